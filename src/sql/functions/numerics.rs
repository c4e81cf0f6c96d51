//! Numerics: division, multiplication and casts that give PostgreSQL's values.
//!
//! A numeric here has its scale in its type and 38 digits in all, so the scale of a result is
//! settled when a query is planned: a quotient has at least [`QUOTIENT_SCALE`] fractional digits
//! (PostgreSQL: at least 16 significant ones), a product has all of them up to
//! [`PRODUCT_SCALE_MAX`], so that room is left before the point. Results are rounded half away
//! from zero. Additions and subtractions are the engine's, which are exact.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::numbers::decimal_text;
use super::{arrays, no_function, numeric_overflow, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::types::DEFAULT_NUMERIC;

/// Fractional digits of a quotient, at least.
const QUOTIENT_SCALE: i8 = 16;

/// Fractional digits of a product, where its factors have no more.
const PRODUCT_SCALE_MAX: i8 = 20;

/// `left / right`
pub(crate) fn divide() -> Arc<ScalarUDF> {
    operation(Operation::Divide)
}

/// `left * right`
pub(crate) fn multiply() -> Arc<ScalarUDF> {
    operation(Operation::Multiply)
}

/// Whether the engine's product of two scales would leave too little room before the point.
pub(crate) fn needs_multiply(left_scale: i8, right_scale: i8) -> bool {
    left_scale.saturating_add(right_scale) > PRODUCT_SCALE_MAX
}

fn operation(operation: Operation) -> Arc<ScalarUDF> {
    udf(NumericFunction {
        operation,
        signature: Signature::any(2, Volatility::Immutable),
    })
}

/// A numeric as the double precision nearest to it.
pub(crate) fn to_double() -> Arc<ScalarUDF> {
    udf(ToDouble {
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// `x::numeric` without a precision.
pub(crate) fn to_bare_numeric() -> Arc<ScalarUDF> {
    udf(ToBareNumeric {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Divide,
    Multiply,
}

impl Operation {
    fn symbol(self) -> &'static str {
        match self {
            Self::Divide => "/",
            Self::Multiply => "*",
        }
    }

    fn scale(self, left: i8, right: i8) -> i8 {
        let larger = left.max(right);
        match self {
            Self::Divide => larger.max(QUOTIENT_SCALE),
            Self::Multiply => left
                .saturating_add(right)
                .min(larger.max(PRODUCT_SCALE_MAX)),
        }
    }

    /// The unscaled result of unscaled operands; `None` where it has too many digits.
    fn apply(self, left: i128, right: i128, scales: Scales) -> Option<i128> {
        let (left, right) = (i256::from_i128(left), i256::from_i128(right));
        let wide = match self {
            Self::Divide => {
                let moved = scales.result + scales.right - scales.left;
                let dividend = left.checked_mul(power_of_ten(moved)?)?;
                rounded_quotient(dividend, right)?
            }
            Self::Multiply => {
                let product = left.checked_mul(right)?;
                let cut = scales.left + scales.right - scales.result;
                rounded_quotient(product, power_of_ten(cut)?)?
            }
        };
        wide.to_i128()
            .filter(|v| v.unsigned_abs() < 10u128.pow(u32::from(DECIMAL128_MAX_PRECISION)))
    }
}

#[derive(Debug, Clone, Copy)]
struct Scales {
    left: i8,
    right: i8,
    result: i8,
}

fn power_of_ten(exponent: i8) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::try_from(exponent).ok()?)
}

/// Half away from zero.
fn rounded_quotient(dividend: i256, divisor: i256) -> Option<i256> {
    let quotient = dividend.checked_div(divisor)?;
    let remainder = dividend.checked_rem(divisor)?;
    let twice = remainder.wrapping_abs().checked_mul(i256::from_i128(2))?;
    if twice < divisor.wrapping_abs() {
        return Some(quotient);
    }
    let is_negative = (dividend < i256::ZERO) != (divisor < i256::ZERO);
    let one = i256::from_i128(if is_negative { -1 } else { 1 });
    quotient.checked_add(one)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericFunction {
    operation: Operation,
    signature: Signature,
}

impl NumericFunction {
    fn scales(left: &DataType, right: &DataType, operation: Operation) -> Result<Scales> {
        match (left, right) {
            (DataType::Decimal128(_, left), DataType::Decimal128(_, right)) => Ok(Scales {
                left: *left,
                right: *right,
                result: operation.scale(*left, *right),
            }),
            _ => Err(Error::internal("numeric arithmetic needs two numerics")),
        }
    }

    fn compute(&self, left: &Decimal128Array, right: &Decimal128Array) -> Result<Decimal128Array> {
        let scales = Self::scales(left.data_type(), right.data_type(), self.operation)?;
        let mut values = Vec::with_capacity(left.len());
        for pair in left.iter().zip(right) {
            let (Some(left), Some(right)) = pair else {
                values.push(None);
                continue;
            };
            if self.operation == Operation::Divide && right == 0 {
                return Err(ArrowError::DivideByZero.into());
            }
            let value = self.operation.apply(left, right, scales);
            values.push(Some(value.ok_or_else(numeric_overflow)?));
        }
        Ok(Decimal128Array::from(values)
            .with_precision_and_scale(DECIMAL128_MAX_PRECISION, scales.result)?)
    }
}

impl ScalarUDFImpl for NumericFunction {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Divide => "numeric_divide",
            Operation::Multiply => "numeric_multiply",
        }
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [left, right] => format!("{left} {} {right}", self.operation.symbol()),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let [left, right] = types else {
            return Err(no_function(self.name(), types).into());
        };
        let scales = Self::scales(left, right, self.operation)?;
        Ok(DataType::Decimal128(
            DECIMAL128_MAX_PRECISION,
            scales.result,
        ))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let left = columns[0].as_primitive::<Decimal128Type>();
        let right = columns[1].as_primitive::<Decimal128Type>();
        let computed: ArrayRef = Arc::new(self.compute(left, right)?);
        result(computed, constant)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToDouble {
    signature: Signature,
}

impl ScalarUDFImpl for ToDouble {
    fn name(&self) -> &str {
        "numeric_to_double"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(args.first().map(ToString::to_string).unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let values = columns[0].as_primitive::<Decimal128Type>();
        let scale = usize::try_from(values.scale()).unwrap_or(0);
        let doubles = values
            .iter()
            .map(|v| v.map(|v| nearest_double(v, scale)).transpose())
            .collect::<Result<Float64Array>>()?;
        result(Arc::new(doubles), constant)
    }
}

/// Both operands of the quick way are exact, so its one rounding is the only one.
fn nearest_double(unscaled: i128, scale: usize) -> Result<f64> {
    const EXACT_MAX: u128 = 1 << 53;
    const EXACT_POWER_MAX: usize = 22;
    if unscaled.unsigned_abs() <= EXACT_MAX && scale <= EXACT_POWER_MAX {
        return Ok(unscaled as f64 / 10f64.powi(scale as i32));
    }
    decimal_text(unscaled, scale)
        .parse()
        .map_err(|_| Error::internal("a numeric's text is a number"))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToBareNumeric {
    signature: Signature,
}

impl ToBareNumeric {
    fn target(given: &DataType) -> Option<DataType> {
        Some(match given {
            DataType::Decimal128(..) => given.clone(),
            DataType::Int8 | DataType::Int16 => DataType::Decimal128(5, 0),
            DataType::Int32 => DataType::Decimal128(10, 0),
            DataType::Int64 | DataType::UInt64 => DataType::Decimal128(20, 0),
            DataType::Float32 | DataType::Float64 | DataType::Utf8 | DataType::Null => {
                DataType::Decimal128(DEFAULT_NUMERIC.0, DEFAULT_NUMERIC.1)
            }
            _ => return None,
        })
    }
}

impl ScalarUDFImpl for ToBareNumeric {
    fn name(&self) -> &str {
        "to_bare_numeric"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [operand] => format!("CAST({operand} AS numeric)"),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The cast itself is the analyzer's, with its checks.
    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types {
            [given] => match Self::target(given) {
                Some(target) => Ok(vec![target]),
                None => Err(Error::new(
                    sqlstate::CANNOT_COERCE,
                    format!(
                        "cannot cast type {} to numeric",
                        crate::error::mapping::type_name(given)
                    ),
                )
                .into()),
            },
            _ => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match types {
            [given] => Ok(given.clone()),
            _ => Err(no_function(self.name(), types).into()),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        args.args
            .pop()
            .ok_or_else(|| Error::internal("a cast without an operand").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_and_products_are_rounded() {
        let scales = |left, right, operation: Operation| Scales {
            left,
            right,
            result: operation.scale(left, right),
        };
        let divide = Operation::Divide;
        // 2.0 / 3 and -2.0 / 3
        let third = divide.apply(20, 3, scales(1, 0, divide));
        assert_eq!(third, Some(6_666_666_666_666_667));
        let third = divide.apply(-20, 3, scales(1, 0, divide));
        assert_eq!(third, Some(-6_666_666_666_666_667));
        // 1 / 0.125 = 8
        assert_eq!(
            divide.apply(1, 125, scales(0, 3, divide)),
            Some(8 * 10i128.pow(16))
        );
        let multiply = Operation::Multiply;
        // 1.5 * 1.5 with all digits, and the last of 32 rounded off
        assert_eq!(multiply.apply(15, 15, scales(1, 1, multiply)), Some(225));
        let half = 5 * 10i128.pow(15);
        assert_eq!(
            multiply.apply(half, half, scales(16, 16, multiply)),
            Some(25 * 10i128.pow(18))
        );
        let large = 10i128.pow(37);
        assert_eq!(multiply.apply(large, large, scales(0, 0, multiply)), None);
    }

    #[test]
    fn doubles_are_the_nearest() {
        assert_eq!(nearest_double(1, 1).unwrap(), 0.1);
        let long = 1_234_567_890_123_456_789;
        assert_eq!(nearest_double(long, 19).unwrap(), 0.123_456_789_012_345_68);
        assert_eq!(nearest_double(-25, 1).unwrap(), -2.5);
    }
}

//! `ceil`, `floor`, `trunc` and `sign` of numerics, and their scales.
//!
//! The engine's keep the scale of what they are given, `ceil(4.2)` is `5.0`, or give a double
//! precision. A result's scale is in its type, so that of `trunc(x, n)` hangs on a literal `n`; by
//! another one it keeps its argument's.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type,
};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::beside::beside;
use super::{arrays, no_function, numeric_overflow, result, udf};
use crate::error::{Error, Result};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::math;
    let of_numerics = |types: &[DataType]| matches!(types.first(), Some(DataType::Decimal128(..)));
    vec![
        beside(math::ceil(), &function(Which::Ceil), of_numerics),
        beside(math::floor(), &function(Which::Floor), of_numerics),
        beside(math::trunc(), &function(Which::Trunc), of_numerics),
        beside(super::maths::sign(), &function(Which::Sign), of_numerics),
        function(Which::Scale),
        function(Which::LeastScale),
    ]
}

fn function(which: Which) -> Arc<ScalarUDF> {
    udf(WholeNumeric {
        which,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Ceil,
    Floor,
    /// with or without a number of digits
    Trunc,
    Sign,
    /// digits behind the point
    Scale,
    /// as many of them as are needed
    LeastScale,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::Ceil => "ceil",
            Self::Floor => "floor",
            Self::Trunc => "trunc",
            Self::Sign => "sign",
            Self::Scale => "scale",
            Self::LeastScale => "min_scale",
        }
    }

    fn gives_integer(self) -> bool {
        matches!(self, Self::Scale | Self::LeastScale)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeNumeric {
    which: Which,
    signature: Signature,
}

/// 10 to a power; `None` where it is beyond all numerics.
fn power_of_ten(exponent: i64) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// The whole number, as one of scale 0.
fn whole(which: Which, value: i128, unit: i128) -> i128 {
    let (quotient, rest) = (value / unit, value % unit);
    match which {
        Which::Ceil => quotient + i128::from(rest > 0),
        Which::Floor => quotient - i128::from(rest < 0),
        Which::Sign => value.signum(),
        Which::Trunc | Which::Scale | Which::LeastScale => quotient,
    }
}

/// `value` of a scale with so many digits behind the point left, below zero before it, in another
/// scale; `None` where it does not fit.
fn truncated(value: i128, scale: i8, digits: i64, result_scale: i8) -> Option<i128> {
    let (scale, result_scale) = (i64::from(scale), i64::from(result_scale));
    let dropped = (scale - digits).max(0);
    let Some(unit) = power_of_ten(dropped) else {
        return Some(0);
    };
    let kept = value - value % unit;
    match result_scale - scale {
        0 => Some(kept),
        longer if longer > 0 => kept.checked_mul(power_of_ten(longer)?),
        shorter => Some(kept / power_of_ten(-shorter)?),
    }
}

/// Digits behind the point without the zeros at the end.
fn least_scale(value: i128, scale: i8) -> i32 {
    let (mut value, mut scale) = (value, i32::from(scale.max(0)));
    while scale > 0 && value % 10 == 0 {
        value /= 10;
        scale -= 1;
    }
    scale
}

/// Scale of the result, of what is given and the literal of digits, if there is one.
fn result_scale(given: i8, digits: Option<&ScalarValue>, has_digits: bool) -> i8 {
    let literal = match digits {
        Some(ScalarValue::Int64(Some(n))) => Some(*n),
        Some(ScalarValue::Int32(Some(n))) => Some(i64::from(*n)),
        _ => None,
    };
    match (has_digits, literal) {
        (false, _) => 0,
        (true, Some(n)) => i8::try_from(n.clamp(0, i64::from(given))).unwrap_or(given),
        (true, None) => given,
    }
}

fn scale_of(data_type: &DataType) -> Result<i8> {
    match data_type {
        DataType::Decimal128(_, scale) => Ok(*scale),
        _ => Err(Error::internal("a whole number is made of a numeric")),
    }
}

impl WholeNumeric {
    fn compute(
        &self,
        values: &Decimal128Array,
        digits: Option<&ArrayRef>,
        result_scale: i8,
    ) -> Result<ArrayRef> {
        let scale = values.scale();
        let unit = power_of_ten(i64::from(scale)).ok_or_else(numeric_overflow)?;
        if self.which.gives_integer() {
            let scales = values.iter().map(|value| {
                value.map(|value| match self.which {
                    Which::Scale => i32::from(scale),
                    _ => least_scale(value, scale),
                })
            });
            return Ok(Arc::new(scales.collect::<Int32Array>()));
        }
        let digits = digits
            .map(|digits| cast(digits, &DataType::Int64))
            .transpose()?;
        let mut computed = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            let digits = match &digits {
                None => Some(0),
                Some(digits) => {
                    let digits = digits.as_primitive::<Int64Type>();
                    digits.is_valid(row).then(|| digits.value(row))
                }
            };
            computed.push(match (value, digits) {
                (Some(value), Some(digits)) if self.which == Which::Trunc => {
                    let kept = truncated(value, scale, digits, result_scale);
                    Some(kept.ok_or_else(numeric_overflow)?)
                }
                (Some(value), Some(_)) => Some(whole(self.which, value, unit)),
                _ => None,
            });
        }
        let computed = Decimal128Array::from(computed)
            .with_precision_and_scale(DECIMAL128_MAX_PRECISION, result_scale)?;
        Ok(Arc::new(computed))
    }
}

impl ScalarUDFImpl for WholeNumeric {
    fn name(&self) -> &str {
        self.which.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let numeric = |given: &DataType| match given {
            DataType::Decimal128(..) => Some(given.clone()),
            DataType::Null => Some(DataType::Decimal128(1, 0)),
            t if t.is_integer() => Some(DataType::Decimal128(20, 0)),
            _ => None,
        };
        let coerced = match types {
            [value] => numeric(value).map(|value| vec![value]),
            [value, digits] if self.which == Which::Trunc => match digits {
                DataType::Null => Some(DataType::Int32),
                t if t.is_integer() => Some(t.clone()),
                _ => None,
            }
            .and_then(|digits| Some(vec![numeric(value)?, digits])),
            _ => None,
        };
        coerced.ok_or_else(|| no_function(self.name(), types).into())
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("a whole number has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let data_type = match args.arg_fields.first() {
            _ if self.which.gives_integer() => DataType::Int32,
            Some(field) => {
                let digits = args.scalar_arguments.get(1).copied().flatten();
                let given = scale_of(field.data_type())?;
                let scale = result_scale(given, digits, args.arg_fields.len() > 1);
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
            }
            None => return Err(no_function(self.name(), &[]).into()),
        };
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let scale = match self.which.gives_integer() {
            true => 0,
            false => scale_of(args.return_field.data_type())?,
        };
        let values = columns[0].as_primitive::<Decimal128Type>();
        result(self.compute(values, columns.get(1), scale)?, constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        for (which, value, expected) in [
            (Which::Ceil, 422, 43),
            (Which::Ceil, -428, -42),
            (Which::Floor, 428, 42),
            (Which::Floor, -428, -43),
            (Which::Trunc, -428, -42),
            (Which::Sign, -84, -1),
            (Which::Sign, 0, 0),
            (Which::Ceil, 420, 42),
        ] {
            assert_eq!(whole(which, value, 10), expected, "{which:?} {value}");
        }
    }

    #[test]
    fn digits_are_cut() {
        // 42.4382
        assert_eq!(truncated(424_382, 4, 2, 2), Some(4_243));
        assert_eq!(truncated(-424_382, 4, 2, 4), Some(-424_300));
        assert_eq!(truncated(424_382, 4, -1, 0), Some(40));
        assert_eq!(truncated(424_382, 4, 9, 4), Some(424_382));
        assert_eq!(truncated(424_382, 4, -60, 0), Some(0));
        assert_eq!(least_scale(84_100, 4), 2);
        assert_eq!(least_scale(0, 3), 0);
        assert_eq!(result_scale(4, Some(&ScalarValue::Int64(Some(2))), true), 2);
        assert_eq!(
            result_scale(4, Some(&ScalarValue::Int64(Some(-2))), true),
            0
        );
        assert_eq!(result_scale(4, None, true), 4);
    }
}

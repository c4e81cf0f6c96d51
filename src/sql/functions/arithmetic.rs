//! Arithmetic that fails where PostgreSQL's fails, and the analyzer rule that puts it in.
//!
//! The engine's `+`, `-` and `*` on integers wrap, those on floats give infinity and NaNs of several
//! kinds, as `/` does, its casts to integers cut the fraction off, and its casts from and to text know fewer forms than PostgreSQL's
//! (see [`super::texts`]). The rule runs after type coercion, when every operand has its final
//! type, and before constants are folded; it replaces only those operations. What it puts in keeps
//! the name of what it replaces, so that columns are called the same.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::{arrays, casts, float_arithmetic, jsonb_scalars, numerics, result, texts, udf};
use crate::error::mapping::type_name;
use crate::error::{Error, sqlstate};
use crate::sql::{local_times, typed_expressions};
use crate::types::SqlType;

/// Replaces arithmetic that would go wrong silently.
#[derive(Debug)]
pub struct CheckedArithmeticRule {
    add: Arc<ScalarUDF>,
    subtract: Arc<ScalarUDF>,
    multiply: Arc<ScalarUDF>,
    divide: Arc<ScalarUDF>,
    modulo: Arc<ScalarUDF>,
    negate: Arc<ScalarUDF>,
    round: Arc<ScalarUDF>,
    to_double: Arc<ScalarUDF>,
    numeric_divide: Arc<ScalarUDF>,
}

impl Default for CheckedArithmeticRule {
    fn default() -> Self {
        let checked = |operation| {
            udf(CheckedFunction {
                operation,
                signature: Signature::any(2, Volatility::Immutable),
            })
        };
        Self {
            add: checked(Operation::Add),
            subtract: checked(Operation::Subtract),
            multiply: checked(Operation::Multiply),
            divide: checked(Operation::Divide),
            modulo: checked(Operation::Modulo),
            negate: float_arithmetic::negate(),
            round: udf(RoundFunction {
                signature: Signature::any(1, Volatility::Immutable),
            }),
            to_double: numerics::to_double(),
            numeric_divide: numerics::divide(),
        }
    }
}

impl AnalyzerRule for CheckedArithmeticRule {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let time_zone = Some(local_times::time_zone(config));
        plan.transform_up_with_subqueries(|plan| self.rewrite_plan(plan, time_zone))
            .map(|t| t.data)
    }
}

impl CheckedArithmeticRule {
    fn rewrite_plan(
        &self,
        plan: LogicalPlan,
        time_zone: Option<&str>,
    ) -> DataFusionResult<Transformed<LogicalPlan>> {
        typed_expressions::rewrite(plan, |e, schema| {
            Ok(self.rewrite_expression(e, schema, time_zone))
        })?
        .map_data(LogicalPlan::recompute_schema)
    }

    /// Rewrites one node; an expression whose type is not known here (it refers to a query
    /// outside) stays as it is.
    fn rewrite_expression(
        &self,
        expression: Expr,
        schema: &DFSchema,
        time_zone: Option<&str>,
    ) -> Transformed<Expr> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                match self.checked(op, &left, &right, schema) {
                    Some(function) => Transformed::yes(Expr::ScalarFunction(
                        ScalarFunction::new_udf(Arc::clone(function), vec![*left, *right]),
                    )),
                    None => Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right))),
                }
            }
            Expr::Negative(operand) => match operand.get_type(schema) {
                Ok(DataType::Float32 | DataType::Float64) => {
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                        Arc::clone(&self.negate),
                        vec![*operand],
                    )))
                }
                _ => Transformed::no(Expr::Negative(operand)),
            },
            Expr::Cast(Cast { expr, field }) => {
                let Some((function, given)) = self.for_cast(&expr, &field, schema, time_zone)
                else {
                    return Transformed::no(Expr::Cast(Cast { expr, field }));
                };
                let call = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*expr]));
                if given == *field.data_type() {
                    return Transformed::yes(call);
                }
                let expr = Box::new(call);
                Transformed::yes(Expr::Cast(Cast { expr, field }))
            }
            Expr::ScalarFunction(mut function) if function.func.name() == casts::NAME => {
                match function.args.pop() {
                    Some(operand) => Transformed::yes(operand),
                    None => Transformed::no(Expr::ScalarFunction(function)),
                }
            }
            other => Transformed::no(other),
        }
    }

    /// The function that must go before a cast, if the engine's cast alone would be wrong, and the
    /// type that it gives.
    fn for_cast(
        &self,
        operand: &Expr,
        target: &FieldRef,
        schema: &DFSchema,
        time_zone: Option<&str>,
    ) -> Option<(Arc<ScalarUDF>, DataType)> {
        let (_, field) = operand.to_field(schema).ok()?;
        if target.data_type().is_integer() {
            match field.data_type() {
                DataType::Decimal128(precision, scale) if *scale > 0 => {
                    let whole = DataType::Decimal128(*precision, 0);
                    return Some((Arc::clone(&self.round), whole));
                }
                float if float.is_floating() => {
                    return Some((Arc::clone(&self.round), float.clone()));
                }
                _ => {}
            }
        }
        if target.data_type().is_floating() && matches!(field.data_type(), DataType::Decimal128(..))
        {
            return Some((Arc::clone(&self.to_double), DataType::Float64));
        }
        if field.data_type().is_null() {
            return None;
        }
        let (from, to) = (SqlType::from_field(&field)?, SqlType::from_field(target)?);
        match (&from, &to) {
            (SqlType::Text, SqlType::Text) => None,
            (SqlType::Jsonb, SqlType::Text) => Some((texts::write_text(time_zone), DataType::Utf8)),
            (SqlType::Jsonb, wanted) => {
                let function = jsonb_scalars::jsonb_as(wanted)?;
                Some((function, wanted.to_arrow()))
            }
            (SqlType::Json, SqlType::Jsonb) => {
                let given = to.to_arrow();
                Some((texts::read_text(to, time_zone), given))
            }
            (SqlType::Text, _) => {
                let given = to.to_arrow();
                Some((texts::read_text(to, time_zone), given))
            }
            (_, SqlType::Text) if texts::needs_write_text(&from) => {
                Some((texts::write_text(time_zone), DataType::Utf8))
            }
            _ => None,
        }
    }

    fn checked(
        &self,
        op: Operator,
        left: &Expr,
        right: &Expr,
        schema: &DFSchema,
    ) -> Option<&Arc<ScalarUDF>> {
        if !matches!(
            op,
            Operator::Plus
                | Operator::Minus
                | Operator::Multiply
                | Operator::Divide
                | Operator::Modulo
        ) {
            return None;
        }
        let left = left.get_type(schema).ok()?;
        let right = right.get_type(schema).ok()?;
        let are_numerics = matches!(
            (&left, &right),
            (DataType::Decimal128(..), DataType::Decimal128(..))
        );
        if op == Operator::Divide && are_numerics {
            return Some(&self.numeric_divide);
        }
        if left != right {
            return None;
        }
        let is_integer = left.is_signed_integer();
        let is_float = matches!(left, DataType::Float32 | DataType::Float64);
        match op {
            Operator::Plus if is_integer || is_float => Some(&self.add),
            Operator::Minus if is_integer || is_float => Some(&self.subtract),
            Operator::Multiply if is_integer || is_float => Some(&self.multiply),
            Operator::Divide if is_integer || is_float => Some(&self.divide),
            Operator::Modulo if is_integer || is_float => Some(&self.modulo),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Operation {
    fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }
}

/// `left op right` of two equal types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedFunction {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedFunction {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Divide => "checked_divide",
            Operation::Modulo => "checked_modulo",
        }
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [left, right] => format!("{left} {} {right}", self.operation.symbol()),
            _ => self.name().to_owned(),
        })
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [left, right] => format!(
                "{} {} {}",
                left.schema_name(),
                self.operation.symbol(),
                right.schema_name()
            ),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        types
            .first()
            .cloned()
            .ok_or_else(|| Error::internal("arithmetic without operands").into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return Err(Error::internal("arithmetic needs two operands").into());
        };
        let left_datum = datum(left)?;
        let right_datum = datum(right)?;
        let data_type = left.data_type();
        let computed = self
            .compute(left_datum.as_ref(), right_datum.as_ref())
            .map_err(|e| in_sql_words(e, &data_type))?;
        let constant = matches!(
            (left, right),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        result(computed, constant)
    }
}

impl CheckedFunction {
    fn compute(
        &self,
        left: &dyn Datum,
        right: &dyn Datum,
    ) -> std::result::Result<ArrayRef, ArrowError> {
        let computed = match self.operation {
            Operation::Add => numeric::add(left, right),
            Operation::Subtract => numeric::sub(left, right),
            Operation::Multiply => numeric::mul(left, right),
            Operation::Divide => {
                refuse_zero(left, right)?;
                numeric::div(left, right)
            }
            Operation::Modulo => {
                refuse_zero(left, right)?;
                numeric::rem(left, right)
            }
        }?;
        match computed.data_type() {
            DataType::Float32 => {
                float_arithmetic::finite::<Float32Type>(computed, left, right, f32::is_finite)
            }
            DataType::Float64 => {
                float_arithmetic::finite::<Float64Type>(computed, left, right, f64::is_finite)
            }
            _ => Ok(computed),
        }
    }
}

fn datum(value: &ColumnarValue) -> DataFusionResult<Box<dyn Datum>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(Arc::clone(array)),
        ColumnarValue::Scalar(scalar) => Box::new(scalar.to_scalar()?),
    })
}

/// Arrow's float division has no error of its own.
fn refuse_zero(left: &dyn Datum, right: &dyn Datum) -> std::result::Result<(), ArrowError> {
    let (dividends, one_dividend) = left.get();
    let (divisors, one_divisor) = right.get();
    let has_zero = match divisors.data_type() {
        DataType::Float32 => divides_by_zero::<Float32Type>(
            dividends,
            one_dividend,
            divisors.as_primitive(),
            one_divisor,
        ),
        DataType::Float64 => divides_by_zero::<Float64Type>(
            dividends,
            one_dividend,
            divisors.as_primitive(),
            one_divisor,
        ),
        _ => false,
    };
    if has_zero {
        Err(ArrowError::DivideByZero)
    } else {
        Ok(())
    }
}

fn divides_by_zero<T: ArrowPrimitiveType>(
    dividends: &dyn Array,
    one_dividend: bool,
    divisors: &PrimitiveArray<T>,
    one_divisor: bool,
) -> bool
where
    T::Native: Default + PartialEq,
{
    let zero = T::Native::default();
    // NULL / 0 is NULL, so a zero counts only against a value.
    let has_dividend = |row: usize| dividends.is_valid(if one_dividend { 0 } else { row });
    if one_divisor {
        return divisors.is_valid(0)
            && divisors.value(0) == zero
            && (0..dividends.len()).any(|row| dividends.is_valid(row));
    }
    divisors
        .values()
        .iter()
        .enumerate()
        .any(|(row, divisor)| *divisor == zero && divisors.is_valid(row) && has_dividend(row))
}

fn in_sql_words(error: ArrowError, data_type: &DataType) -> Error {
    match error {
        ArrowError::ArithmeticOverflow(text) if data_type.is_floating() => {
            Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, text)
        }
        ArrowError::ArithmeticOverflow(_) => Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("{} out of range", type_name(data_type)),
        ),
        other => other.into(),
    }
}

/// Rounds before a cast to an integer, as PostgreSQL does: floats half to even, numerics half away
/// from zero.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundFunction {
    signature: Signature,
}

impl ScalarUDFImpl for RoundFunction {
    fn name(&self) -> &str {
        "round_for_cast"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(args.first().map(ToString::to_string).unwrap_or_default())
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(args
            .first()
            .map(|e| e.schema_name().to_string())
            .unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match types {
            [DataType::Decimal128(precision, _)] => Ok(DataType::Decimal128(*precision, 0)),
            [other] => Ok(other.clone()),
            _ => Err(Error::internal("rounding needs one operand").into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let column = &columns[0];
        let rounded: ArrayRef = match column.data_type() {
            DataType::Float64 => Arc::new(
                column
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(f64::round_ties_even),
            ),
            DataType::Float32 => Arc::new(
                column
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(f32::round_ties_even),
            ),
            DataType::Decimal128(precision, scale) => {
                let (precision, scale) = (*precision, *scale);
                Arc::new(round_decimals(column.as_primitive(), precision, scale)?)
            }
            _ => Arc::clone(column),
        };
        result(rounded, constant)
    }
}

fn round_decimals(
    values: &Decimal128Array,
    precision: u8,
    scale: i8,
) -> DataFusionResult<Decimal128Array> {
    let unit = 10i128.pow(u32::try_from(scale).unwrap_or(0));
    let half = unit / 2;
    let rounded: Decimal128Array = values.unary(|v| {
        let remainder = v % unit;
        let whole = v / unit;
        if remainder.abs() >= half && remainder != 0 {
            whole + v.signum()
        } else {
            whole
        }
    });
    Ok(rounded.with_precision_and_scale(precision, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_round_half_away_from_zero() {
        let values =
            Decimal128Array::from(vec![Some(15), Some(-15), Some(14), None, Some(25), Some(4)])
                .with_precision_and_scale(5, 1)
                .unwrap();
        let rounded = round_decimals(&values, 5, 1).unwrap();
        let rounded: Vec<Option<i128>> = rounded.iter().collect();
        assert_eq!(
            rounded,
            [Some(2), Some(-2), Some(1), None, Some(3), Some(0)]
        );
    }

    #[test]
    fn zero_counts_only_against_a_value() {
        use datafusion::arrow::array::Float64Array;
        let left: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(1.0)]));
        let right: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.0), Some(2.0)]));
        assert!(refuse_zero(&left, &right).is_ok());
        assert!(refuse_zero(&right, &left).is_ok());
        let zeros: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(-0.0)]));
        assert!(refuse_zero(&left, &zeros).is_err());
    }
}

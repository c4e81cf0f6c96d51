//! Operators whose meaning hangs on the operands' types: the planner asks here before it looks for
//! a common type.
//!
//! - `uuid = '…'`: the text is read as a uuid (the engine would compare bytes with letters)
//! - `interval * number`, `interval / number`

use std::sync::Arc;

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::error::{Error, Result, sqlstate};
use crate::sql::functions::{arrays, result, uuids};
use crate::types::SqlType;

/// The hook.
#[derive(Debug)]
pub(crate) struct OperatorPlanner {
    to_uuid: Arc<ScalarUDF>,
    interval_times: Arc<ScalarUDF>,
}

impl OperatorPlanner {
    /// Makes the hook with the functions that it puts in.
    pub fn new() -> Self {
        Self {
            to_uuid: uuids::to_uuid(),
            interval_times: Arc::new(ScalarUDF::new_from_impl(IntervalTimes {
                signature: Signature::exact(
                    vec![
                        DataType::Interval(IntervalUnit::MonthDayNano),
                        DataType::Float64,
                    ],
                    Volatility::Immutable,
                ),
            })),
        }
    }

    /// A text constant beside a value of `other` type, as that type.
    fn adapt(&self, constant: Expr, other: &SqlType) -> Expr {
        let is_text = matches!(&constant, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
        if !is_text || *other != SqlType::Uuid {
            return constant;
        }
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::clone(&self.to_uuid),
            vec![constant],
        ))
    }

    fn scaled(&self, interval: Expr, factor: Expr) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::clone(&self.interval_times),
            vec![interval, factor],
        ))
    }
}

fn sql_type_of(expression: &Expr, schema: &DFSchema) -> Option<SqlType> {
    let (_, field) = expression.to_field(schema).ok()?;
    SqlType::from_field(&field)
}

fn is_number(sql_type: &SqlType) -> bool {
    matches!(
        sql_type,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Numeric { .. }
    )
}

impl ExprPlanner for OperatorPlanner {
    fn plan_binary_op(
        &self,
        expression: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expression;
        let types = (sql_type_of(&left, schema), sql_type_of(&right, schema));
        let (Some(left_type), Some(right_type)) = types else {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        };
        match op {
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => {
                let left = self.adapt(left, &right_type);
                let right = self.adapt(right, &left_type);
                Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
            }
            BinaryOperator::Multiply
                if left_type == SqlType::Interval && is_number(&right_type) =>
            {
                Ok(PlannerResult::Planned(self.scaled(left, right)))
            }
            BinaryOperator::Multiply
                if right_type == SqlType::Interval && is_number(&left_type) =>
            {
                Ok(PlannerResult::Planned(self.scaled(right, left)))
            }
            BinaryOperator::Divide if left_type == SqlType::Interval && is_number(&right_type) => {
                let one = Expr::Literal(ScalarValue::Float64(Some(1.0)), None);
                let inverse = one / right.cast_to(&DataType::Float64, schema)?;
                Ok(PlannerResult::Planned(self.scaled(left, inverse)))
            }
            _ => Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        }
    }
}

/// `interval * number`: fractions of a month become days of a month of 30, fractions of a day
/// become time, as in PostgreSQL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalTimes {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalTimes {
    fn name(&self) -> &str {
        "interval_times"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let intervals = columns[0].as_primitive::<IntervalMonthDayNanoType>();
        let factors = columns[1].as_primitive::<Float64Type>();
        let scaled = intervals
            .iter()
            .zip(factors)
            .map(|pair| match pair {
                (Some(interval), Some(factor)) => times(interval, factor).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<IntervalMonthDayNanoArray>>()?;
        result(Arc::new(scaled) as ArrayRef, constant)
    }
}

fn times(interval: IntervalMonthDayNano, factor: f64) -> Result<IntervalMonthDayNano> {
    const DAY_NS: f64 = 86_400e9;
    let months = f64::from(interval.months) * factor;
    let days = f64::from(interval.days) * factor + months.fract() * 30.0;
    // Rounded to microseconds, which is what an interval shows.
    let time_us = ((interval.nanoseconds as f64 * factor + days.fract() * DAY_NS) / 1e3).round();
    let fits = months.abs() < f64::from(i32::MAX)
        && days.abs() < f64::from(i32::MAX)
        && time_us.abs() < 9.2e15;
    if !fits {
        return Err(Error::new(
            sqlstate::DATETIME_OVERFLOW,
            "interval out of range",
        ));
    }
    Ok(IntervalMonthDayNano::new(
        months.trunc() as i32,
        days.trunc() as i32,
        time_us as i64 * 1_000,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_go_down() {
        let interval = |m, d, ns| IntervalMonthDayNano::new(m, d, ns);
        for (given, factor, expected) in [
            (
                interval(0, 0, 5_000_000_000),
                2.0,
                interval(0, 0, 10_000_000_000),
            ),
            (interval(1, 0, 0), 0.5, interval(0, 15, 0)),
            (interval(0, 1, 0), 0.5, interval(0, 0, 43_200_000_000_000)),
            (interval(1, 1, 0), -2.0, interval(-2, -2, 0)),
        ] {
            assert_eq!(times(given, factor).unwrap(), expected);
        }
        assert!(times(interval(1, 0, 0), f64::NAN).is_err());
        assert!(times(interval(i32::MAX, 0, 0), 2.0).is_err());
    }
}

//! How far a window function sees: which rows can change when one row comes or goes.
//!
//! `lag`, `lead` and frames of a fixed number of rows see a few rows around their own, so only
//! the neighbourhood of a change is computed again. What is added up is added in another order
//! when it is computed from another row on; so only sums that are exact in any order count as
//! near-sighted, and a float's running average is computed from the partition's start.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::{
    Expr, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};

/// Rows before and after its own that a function's value may hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// Rows before.
    pub before: u64,
    /// Rows after.
    pub after: u64,
}

impl Reach {
    /// The farther of two, on either side.
    pub fn and(self, other: Self) -> Self {
        Self {
            before: self.before.max(other.before),
            after: self.after.max(other.after),
        }
    }
}

/// Reach of a function whose value has type `data_type`; `None`: all of its partition.
pub fn of(function: &WindowFunction, data_type: &DataType) -> Option<Reach> {
    let parameters = &function.params;
    if parameters.null_treatment == Some(NullTreatment::IgnoreNulls) {
        return None;
    }
    match &function.fun {
        WindowFunctionDefinition::WindowUDF(udf) => match udf.name() {
            "lag" => shifted(&parameters.args, 1),
            "lead" => shifted(&parameters.args, -1),
            "first_value" | "last_value" | "nth_value" => of_frame(function),
            _ => None,
        },
        WindowFunctionDefinition::AggregateUDF(udf) => {
            let exact = match udf.name() {
                "count" | "min" | "max" => true,
                "sum" => data_type.is_integer() || data_type.is_decimal(),
                _ => false,
            };
            exact.then(|| of_frame(function)).flatten()
        }
    }
}

/// `lag(x, n)` looks n rows back, or forward when n is below zero; `lead` the other way round.
fn shifted(arguments: &[Expr], direction: i64) -> Option<Reach> {
    let by = match arguments.get(1) {
        None => 1,
        Some(Expr::Literal(ScalarValue::Int64(Some(by)), _)) => *by,
        Some(_) => return None,
    };
    let by = by.checked_mul(direction)?;
    Some(Reach {
        before: by.max(0).unsigned_abs(),
        after: by.min(0).unsigned_abs(),
    })
}

/// Reach of a frame of a fixed number of rows.
fn of_frame(function: &WindowFunction) -> Option<Reach> {
    let frame = &function.params.window_frame;
    if frame.units != WindowFrameUnits::Rows {
        return None;
    }
    let start = offset(&frame.start_bound)?;
    let end = offset(&frame.end_bound)?;
    Some(Reach {
        before: start.min(0).unsigned_abs(),
        after: end.max(0).unsigned_abs(),
    })
}

/// Rows from the current one on, below zero before it; `None`: unbounded.
fn offset(bound: &WindowFrameBound) -> Option<i64> {
    let rows = |value: &ScalarValue| match value {
        ScalarValue::UInt64(Some(rows)) => i64::try_from(*rows).ok(),
        _ => None,
    };
    match bound {
        WindowFrameBound::Preceding(value) => Some(-rows(value)?),
        WindowFrameBound::CurrentRow => Some(0),
        WindowFrameBound::Following(value) => rows(value),
    }
}

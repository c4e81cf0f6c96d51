//! How far a window function sees: which rows can change when one row comes or goes.
//!
//! A running sum, a rank or `lag` hangs on no row after its own, so the rows before a change stay
//! as they are. Frames of a fixed number of rows hang on a few rows around their own, so only the
//! neighbourhood of a change is even looked at; there what is added up is added in another order
//! than from the partition's start, so only what is exact in any order counts as near-sighted.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::{
    Expr, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};

/// Rows after its own that a function's value may hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// So many.
    Rows(u64),
    /// Those that tie with it in the order.
    Peers,
    /// All of the partition.
    All,
}

/// The rows that a function's value may hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Rows before its own; `None`: all.
    pub before: Option<u64>,
    /// Rows after its own.
    pub after: After,
    /// The value is the same wherever the computing begins, if all these rows are seen.
    pub exact: bool,
}

impl Reach {
    /// Its own row.
    pub const NONE: Self = Self {
        before: Some(0),
        after: After::Rows(0),
        exact: true,
    };

    /// All of its partition.
    pub const WHOLE: Self = Self {
        before: None,
        after: After::All,
        exact: false,
    };

    /// What two functions together see.
    pub fn and(self, other: Self) -> Self {
        let after = match (self.after, other.after) {
            (After::Rows(one), After::Rows(two)) => After::Rows(one.max(two)),
            (After::Peers | After::Rows(0), After::Peers | After::Rows(0)) => After::Peers,
            _ => After::All,
        };
        Self {
            before: self.before.zip(other.before).map(|(one, two)| one.max(two)),
            after,
            exact: self.exact && other.exact,
        }
    }

    /// Rows before and after, when no others need be looked at.
    pub fn rows(self) -> Option<(u64, u64)> {
        match (self.before, self.after, self.exact) {
            (Some(before), After::Rows(after), true) => Some((before, after)),
            _ => None,
        }
    }
}

/// Reach of a function whose value has type `data_type`.
pub fn of(function: &WindowFunction, data_type: &DataType) -> Reach {
    let parameters = &function.params;
    let ignores_nulls = parameters.null_treatment == Some(NullTreatment::IgnoreNulls);
    let reach = match &function.fun {
        WindowFunctionDefinition::WindowUDF(udf) => match udf.name() {
            "row_number" | "rank" | "dense_rank" => Some(Reach {
                before: None,
                after: After::Rows(0),
                exact: true,
            }),
            "lag" if !ignores_nulls => shifted(&parameters.args, 1),
            "lead" if !ignores_nulls => shifted(&parameters.args, -1),
            "first_value" | "last_value" | "nth_value" => of_frame(function, true),
            _ => None,
        },
        WindowFunctionDefinition::AggregateUDF(udf) => {
            let exact = match udf.name() {
                "count" | "min" | "max" => true,
                "sum" => data_type.is_integer() || data_type.is_decimal(),
                _ => false,
            };
            of_frame(function, exact)
        }
    };
    reach.unwrap_or(Reach::WHOLE)
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
        before: Some(by.max(0).unsigned_abs()),
        after: After::Rows(by.min(0).unsigned_abs()),
        exact: true,
    })
}

/// Reach of what hangs on the rows of the frame only.
fn of_frame(function: &WindowFunction, exact: bool) -> Option<Reach> {
    let frame = &function.params.window_frame;
    if frame.units == WindowFrameUnits::Rows {
        let end = offset(&frame.end_bound)?;
        return Some(Reach {
            before: offset(&frame.start_bound).map(|start| start.min(0).unsigned_abs()),
            after: After::Rows(end.max(0).unsigned_abs()),
            exact,
        });
    }
    let ends_here = match &frame.end_bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(value) => !value.is_null(),
        WindowFrameBound::Following(_) => false,
    };
    ends_here.then_some(Reach {
        before: None,
        after: After::Peers,
        exact,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_functions_see_what_either_sees() {
        let rows = |before, after| Reach {
            before: Some(before),
            after: After::Rows(after),
            exact: true,
        };
        assert_eq!(rows(2, 0).and(rows(1, 3)), rows(2, 3));
        assert_eq!(rows(2, 1).rows(), Some((2, 1)));
        let running = Reach {
            before: None,
            after: After::Peers,
            exact: false,
        };
        assert_eq!(running.and(rows(4, 0)), running);
        assert_eq!(running.and(rows(0, 1)).after, After::All);
        assert_eq!(running.rows(), None);
    }
}

//! `session_start(time, gap)` and `session_end(time, gap)`, as window functions: the bounds of the
//! session that a row is in.
//!
//! Over rows in order of time a session goes on while the next row is at most `gap` later, as in
//! Spark and Flink. It starts at its first row's time and ends `gap` after its last one's.
//!
//! ```text
//!   gap 10:   3   9  15          40  50        77
//!             └─ 3 … 25 ─┘       └ 40 … 60 ┘   └ 77 … 87 ┘
//! ```
//! `SESSION(…)` in FROM is written in terms of them, so that an ad-hoc query and a view mean the
//! same; the incremental planner has an operator for the pair.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    ColumnarValue, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};

use super::functions::windows;
use crate::error::{Error, Result, sqlstate};

/// The function that gives a session's start.
pub const SESSION_START: &str = "session_start";
/// The function that gives a session's end.
pub const SESSION_END: &str = "session_end";

/// The functions of this module.
pub(super) fn functions() -> Vec<Arc<WindowUDF>> {
    [Side::Start, Side::End]
        .into_iter()
        .map(|side| {
            Arc::new(WindowUDF::from(SessionBound {
                side,
                signature: Signature::user_defined(Volatility::Immutable),
            }))
        })
        .collect()
}

/// Whether a row at `time` goes on with a session whose last row is at `last`.
pub fn goes_on(last: i64, time: i64, gap: i64) -> bool {
    time.saturating_sub(last) <= gap
}

/// Where a session ends whose last row is at `last`.
pub fn end_of(last: i64, gap: i64) -> Result<i64> {
    last.checked_add(gap)
        .ok_or_else(|| Error::new(sqlstate::DATETIME_OVERFLOW, "window bound out of range"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Start,
    End,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionBound {
    side: Side,
    signature: Signature,
}

impl WindowUDFImpl for SessionBound {
    fn name(&self) -> &str {
        match self.side {
            Side::Start => SESSION_START,
            Side::End => SESSION_END,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        windows::time_and_lengths(self.name(), 2, types)
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> DataFusionResult<FieldRef> {
        let time = arguments
            .get_input_field(0)
            .ok_or_else(|| Error::internal("a session has a time"))?;
        let field = Field::new(arguments.name(), time.data_type().clone(), true);
        Ok(Arc::new(field))
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> DataFusionResult<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(SessionEvaluator { side: self.side }))
    }
}

#[derive(Debug)]
struct SessionEvaluator {
    side: Side,
}

impl PartitionEvaluator for SessionEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> DataFusionResult<ArrayRef> {
        let data_type = values[0].data_type().clone();
        let gap = ScalarValue::try_from_array(&values[1], 0)?;
        let gap = windows::length_of("session", &ColumnarValue::Scalar(gap))?;
        let times = cast(&values[0], &DataType::Int64)?;
        let Some(gap) = gap else {
            return Ok(datafusion::arrow::array::new_null_array(&data_type, rows));
        };
        let bounds = bounds(times.as_primitive::<Int64Type>(), gap, self.side)?;
        Ok(cast(&bounds, &data_type)?)
    }
}

/// A bound of each row's session; rows without a time are in none and stand together at an end.
fn bounds(times: &Int64Array, gap: i64, side: Side) -> Result<Int64Array> {
    let mut bounds: Vec<Option<i64>> = vec![None; times.len()];
    let mut first = 0;
    while first < times.len() {
        if times.is_null(first) {
            first += 1;
            continue;
        }
        let mut last = first;
        while last + 1 < times.len()
            && times.is_valid(last + 1)
            && goes_on(times.value(last), times.value(last + 1), gap)
        {
            last += 1;
        }
        let bound = match side {
            Side::Start => times.value(first),
            Side::End => end_of(times.value(last), gap)?,
        };
        bounds[first..=last].fill(Some(bound));
        first = last + 1;
    }
    Ok(bounds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_go_on_up_to_the_gap() {
        let times = Int64Array::from(vec![Some(3), Some(9), Some(19), Some(30), None]);
        let of = |side| bounds(&times, 10, side).unwrap();
        let starts = Int64Array::from(vec![Some(3), Some(3), Some(3), Some(30), None]);
        let ends = Int64Array::from(vec![Some(29), Some(29), Some(29), Some(40), None]);
        assert_eq!(of(Side::Start), starts);
        assert_eq!(of(Side::End), ends);
        assert!(bounds(&Int64Array::from(vec![i64::MAX]), 1, Side::End).is_err());
    }
}

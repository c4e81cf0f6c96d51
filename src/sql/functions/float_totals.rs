//! `sum` and `avg` of floats as in PostgreSQL.
//!
//! - A total of infinities of both signs is NaN, and there is one NaN ([`crate::values::float`]).
//! - In a window whose frame moves, what leaves is not taken off the total: `1e100 + 1 - 1e100` is 0,
//!   and an infinity would never leave. The total is made of what is in the frame.
//!
//! The adding itself is the engine's. Absent: variances, of which infinities have none.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::interval_totals::Outcome;
use crate::error::Error;
use crate::values::float::{double, one_nan};

fn is_double(result: &FieldRef) -> bool {
    *result.data_type() == DataType::Float64
}

/// The engine's accumulator, with one NaN.
pub(super) fn of_one(result: &FieldRef, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
    match is_double(result) {
        true => Box::new(OneNan(inner)),
        false => inner,
    }
}

/// The engine's accumulator of groups, with one NaN.
pub(super) fn of_groups(
    result: &FieldRef,
    inner: Box<dyn GroupsAccumulator>,
) -> Box<dyn GroupsAccumulator> {
    match is_double(result) {
        true => Box::new(OneNan(inner)),
        false => inner,
    }
}

/// The accumulator for frames that move, if it is one of doubles.
pub(super) fn sliding(
    args: &AccumulatorArgs<'_>,
    outcome: Outcome,
) -> Option<Box<dyn Accumulator>> {
    let of_doubles = matches!(args.expr_fields, [field] if is_double(field));
    (of_doubles && is_double(&args.return_field) && !args.is_distinct)
        .then(|| Box::new(Frame::new(outcome)) as Box<dyn Accumulator>)
}

#[derive(Debug)]
struct OneNan<A>(A);

impl Accumulator for OneNan<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        Ok(match self.0.evaluate()? {
            ScalarValue::Float64(Some(value)) => ScalarValue::Float64(Some(double(value))),
            other => other,
        })
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

impl GroupsAccumulator for OneNan<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.0.update_batch(values, groups, filter, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        Ok(one_nan(self.0.evaluate(emit_to)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.0.merge_batch(states, groups, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// The values of a frame that moves, as a queue of two stacks: what leaves comes off the first one,
/// each of whose entries is the total from its value on; when that is empty, the second one is
/// turned over into it. So each value is added twice at most.
#[derive(Debug)]
struct Frame {
    outcome: Outcome,
    leaving: Vec<f64>,
    entered: Vec<f64>,
    entered_total: f64,
}

impl Frame {
    fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            leaving: Vec::new(),
            entered: Vec::new(),
            entered_total: 0.0,
        }
    }

    fn leave(&mut self) -> DataFusionResult<()> {
        if self.leaving.is_empty() {
            let mut total = 0.0;
            for value in self.entered.drain(..).rev() {
                total += value;
                self.leaving.push(total);
            }
            self.entered_total = 0.0;
        }
        match self.leaving.pop() {
            Some(_) => Ok(()),
            None => Err(Error::internal("more rows leave a frame than are in it").into()),
        }
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.entered.push(value);
            self.entered_total += value;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        (values[0].null_count()..values[0].len()).try_for_each(|_| self.leave())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let count = self.leaving.len() + self.entered.len();
        if count == 0 {
            return Ok(ScalarValue::Float64(None));
        }
        let total = self.leaving.last().copied().unwrap_or_default() + self.entered_total;
        let value = match self.outcome {
            Outcome::Sum => total,
            Outcome::Average => total / count as f64,
        };
        Ok(ScalarValue::Float64(Some(double(value))))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + (self.leaving.capacity() + self.entered.capacity()) * size_of::<f64>()
    }

    /// A window's accumulator hands nothing on.
    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Err(Error::internal("the total of a frame has no state").into())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        Err(Error::internal("the total of a frame has no state").into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Float64Array;

    use super::*;

    fn array(values: &[Option<f64>]) -> Vec<ArrayRef> {
        vec![Arc::new(Float64Array::from(values.to_vec()))]
    }

    #[test]
    fn what_left_a_frame_leaves_no_trace() {
        let mut frame = Frame::new(Outcome::Sum);
        let mut expect = |left: &[Option<f64>], entered: &[Option<f64>], total: Option<f64>| {
            frame.retract_batch(&array(left)).unwrap();
            frame.update_batch(&array(entered)).unwrap();
            assert_eq!(frame.evaluate().unwrap(), ScalarValue::Float64(total));
        };
        expect(&[], &[None], None);
        expect(&[], &[Some(1e100), Some(1.0)], Some(1e100));
        expect(
            &[None, Some(1e100)],
            &[Some(f64::INFINITY)],
            Some(f64::INFINITY),
        );
        expect(
            &[Some(1.0), Some(f64::INFINITY)],
            &[Some(2.0), None, Some(0.5)],
            Some(2.5),
        );
        expect(&[Some(2.0)], &[], Some(0.5));
        expect(&[None, Some(0.5)], &[], None);
    }

    #[test]
    fn a_frame_does_not_lose_more_than_it_has() {
        let mut frame = Frame::new(Outcome::Average);
        frame.update_batch(&array(&[Some(3.0), Some(4.0)])).unwrap();
        assert_eq!(frame.evaluate().unwrap(), ScalarValue::Float64(Some(3.5)));
        assert!(frame.retract_batch(&array(&[Some(3.0); 3])).is_err());
    }
}

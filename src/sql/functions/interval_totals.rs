//! The accumulator of `sum(interval)` and `avg(interval)`: the three fields are added each for
//! itself, and an average's fractions go down to the next smaller field.

use std::sync::Arc;

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNanoType,
};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::intervals::{INTERVAL, out_of_range, times};

/// What is made of the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// `sum`
    Sum,
    /// `avg`
    Average,
}

/// Total and count of intervals.
#[derive(Debug)]
struct IntervalTotal {
    outcome: Outcome,
    months: i64,
    days: i64,
    nanoseconds: i128,
    count: i64,
}

impl IntervalTotal {
    /// Of no intervals yet.
    fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            months: 0,
            days: 0,
            nanoseconds: 0,
            count: 0,
        }
    }

    fn add(&mut self, values: &ArrayRef, sign: i64) {
        for interval in values
            .as_primitive::<IntervalMonthDayNanoType>()
            .iter()
            .flatten()
        {
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
            self.count += sign;
        }
    }

    fn total(&self) -> DataFusionResult<IntervalMonthDayNano> {
        let months = i32::try_from(self.months).map_err(|_| out_of_range())?;
        let days = i32::try_from(self.days).map_err(|_| out_of_range())?;
        let nanoseconds = i64::try_from(self.nanoseconds).map_err(|_| out_of_range())?;
        Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
    }
}

/// Whether an aggregate's result is an interval, so that this accumulator makes it.
pub(super) fn is_interval(result: &FieldRef) -> bool {
    *result.data_type() == INTERVAL
}

/// The accumulator of an aggregate whose result is an interval; `None` for all others.
pub(super) fn accumulator(result: &FieldRef, outcome: Outcome) -> Option<Box<dyn Accumulator>> {
    is_interval(result).then(|| Box::new(IntervalTotal::new(outcome)) as Box<dyn Accumulator>)
}

/// The state that goes from one such accumulator to another; `None` for all others.
pub(super) fn state_fields(result: &FieldRef) -> Option<Vec<FieldRef>> {
    is_interval(result).then(|| {
        vec![
            Arc::new(Field::new("total", INTERVAL, true)),
            Arc::new(Field::new("count", DataType::Int64, true)),
        ]
    })
}

impl Accumulator for IntervalTotal {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let total = self.total()?;
        let value = match self.outcome {
            Outcome::Sum => total,
            Outcome::Average => times(total, 1.0 / self.count as f64)?,
        };
        Ok(ScalarValue::IntervalMonthDayNano(Some(value)))
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let total = ScalarValue::IntervalMonthDayNano(Some(self.total()?));
        Ok(vec![total, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let counted = self.count;
        self.add(&states[0], 1);
        let counts = states[1].as_primitive::<Int64Type>();
        self.count = counted + counts.iter().flatten().sum::<i64>();
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::IntervalMonthDayNanoArray;

    #[test]
    fn totals_and_averages() {
        let hours = |n: i64| IntervalMonthDayNano::new(0, 0, n * 3_600_000_000_000);
        let day = IntervalMonthDayNano::new(0, 1, 0);
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(day),
            None,
            Some(hours(3)),
        ]));
        let mut sum = IntervalTotal::new(Outcome::Sum);
        sum.update_batch(&[Arc::clone(&values)]).unwrap();
        let expected = IntervalMonthDayNano::new(0, 1, hours(3).nanoseconds);
        let shown = |v| ScalarValue::IntervalMonthDayNano(Some(v));
        assert_eq!(sum.evaluate().unwrap(), shown(expected));
        let mut average = IntervalTotal::new(Outcome::Average);
        average.update_batch(&[Arc::clone(&values)]).unwrap();
        // PostgreSQL: 13:30:00
        let half = IntervalMonthDayNano::new(0, 0, 13 * 3_600_000_000_000 + 1_800_000_000_000);
        assert_eq!(average.evaluate().unwrap(), shown(half));
        average.retract_batch(&[values]).unwrap();
        assert!(average.evaluate().unwrap().is_null());
    }
}

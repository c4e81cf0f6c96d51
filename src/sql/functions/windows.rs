//! `tumble_start`, `tumble_end`, `hop_starts`: the windows that an event time is in.
//!
//! Windows are aligned to the epoch (1970-01-01 00:00 UTC, or 0 for integers) as in Spark and
//! Flink, also before it: the quotient rounds down. Lengths are constants of a fixed duration.
//!
//! ```text
//! tumble_start(t, size)       = floor(t / size) * size
//! tumble_end(t, size)         = tumble_start(t, size) + size
//! hop_starts(t, slide, size)  = [ s : s = k * slide, s <= t < s + size ], oldest first
//! ```

use std::sync::Arc;

use datafusion::arrow::array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, PrimitiveArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

/// Windows of one row: a size far larger than its slide would fill the memory.
const WINDOWS_PER_ROW_MAX: i64 = 100_000;

/// The functions of this module.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Which::TumbleStart, Which::TumbleEnd, Which::HopStarts]
        .into_iter()
        .map(|which| {
            udf(WindowFunction {
                which,
                signature: Signature::user_defined(Volatility::Immutable),
            })
        })
        .collect()
}

/// Start of the tumbling window that a time is in; `None` if it does not fit.
pub fn tumble_start(time: i64, size: i64) -> Option<i64> {
    time.div_euclid(size).checked_mul(size)
}

/// Starts of the hopping windows that a time is in, oldest first; empty where windows have gaps.
pub fn hop_starts(time: i64, slide: i64, size: i64) -> Option<Vec<i64>> {
    let last = tumble_start(time, slide)?;
    let mut starts = Vec::new();
    let mut start = last;
    // time < start + size, written so that it cannot overflow.
    while time.checked_sub(start)? < size {
        starts.push(start);
        start = match start.checked_sub(slide) {
            Some(next) => next,
            None => break,
        };
    }
    starts.reverse();
    Some(starts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    TumbleStart,
    TumbleEnd,
    HopStarts,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowFunction {
    which: Which,
    signature: Signature,
}

/// Types that a function of a time and lengths takes its arguments as: timestamps with
/// intervals, or integers with integers.
pub(crate) fn time_and_lengths(
    function: &str,
    arguments: usize,
    types: &[DataType],
) -> DataFusionResult<Vec<DataType>> {
    let refused = || no_function(function, types).into();
    if types.len() != arguments {
        return Err(refused());
    }
    let (time, length) = match &types[0] {
        DataType::Timestamp(_, zone) => (
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Interval(IntervalUnit::MonthDayNano),
        ),
        DataType::Date32 | DataType::Null => (
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Interval(IntervalUnit::MonthDayNano),
        ),
        t if t.is_integer() => (DataType::Int64, DataType::Int64),
        _ => return Err(refused()),
    };
    let fits = types[1..].iter().all(|t| match (t, &length) {
        (DataType::Null, _) => true,
        (t, DataType::Int64) => t.is_integer(),
        (t, _) => matches!(
            t,
            DataType::Interval(_)
                | DataType::Duration(_)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
        ),
    });
    if !fits {
        return Err(refused());
    }
    let mut coerced = vec![length; types.len()];
    coerced[0] = time;
    Ok(coerced)
}

impl WindowFunction {
    fn argument_count(&self) -> usize {
        match self.which {
            Which::HopStarts => 3,
            _ => 2,
        }
    }
}

impl ScalarUDFImpl for WindowFunction {
    fn name(&self) -> &str {
        match self.which {
            Which::TumbleStart => "tumble_start",
            Which::TumbleEnd => "tumble_end",
            Which::HopStarts => "hop_starts",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        time_and_lengths(self.name(), self.argument_count(), types)
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let time = types
            .first()
            .cloned()
            .ok_or_else(|| no_function(self.name(), types))?;
        Ok(match self.which {
            Which::HopStarts => DataType::List(Arc::new(Field::new("item", time, true))),
            _ => time,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let lengths = args.args[1..]
            .iter()
            .map(|length| length_of(self.name(), length))
            .collect::<Result<Vec<Option<i64>>>>()?;
        let Some(lengths) = lengths.into_iter().collect::<Option<Vec<i64>>>() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(
                args.return_field.data_type(),
            )?));
        };
        let constant = matches!(args.args[0], ColumnarValue::Scalar(_));
        let times = args.args[0].to_array(if constant { 1 } else { args.number_rows })?;
        let computed = match times.data_type() {
            DataType::Timestamp(_, zone) => {
                let zone = zone.clone();
                let microseconds = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                let times = cast(&times, &microseconds)?;
                self.compute::<TimestampMicrosecondType>(times.as_primitive(), &lengths, |a| {
                    Arc::new(
                        TimestampMicrosecondArray::from(a.into_data())
                            .with_timezone_opt(zone.clone()),
                    )
                })?
            }
            _ => self.compute::<Int64Type>(times.as_primitive(), &lengths, |a| {
                Arc::new(Int64Array::from(a.into_data()))
            })?,
        };
        result(computed, constant)
    }
}

impl WindowFunction {
    /// `typed` puts the time zone back on an array of starts.
    fn compute<T: ArrowPrimitiveType<Native = i64>>(
        &self,
        times: &PrimitiveArray<T>,
        lengths: &[i64],
        typed: impl Fn(PrimitiveArray<T>) -> ArrayRef,
    ) -> Result<ArrayRef> {
        let out_of_range = || Error::new(sqlstate::DATETIME_OVERFLOW, "window bound out of range");
        match (self.which, lengths) {
            (Which::TumbleStart, [size]) => {
                let starts =
                    times.try_unary(|t| tumble_start(t, *size).ok_or_else(out_of_range))?;
                Ok(typed(starts))
            }
            (Which::TumbleEnd, [size]) => {
                let ends = times.try_unary(|t| {
                    tumble_start(t, *size)
                        .and_then(|start| start.checked_add(*size))
                        .ok_or_else(out_of_range)
                })?;
                Ok(typed(ends))
            }
            (Which::HopStarts, [slide, size]) => hop_lists(times, *slide, *size, typed),
            _ => Err(Error::internal(
                "window function called with wrong arguments",
            )),
        }
    }
}

fn hop_lists<T: ArrowPrimitiveType<Native = i64>>(
    times: &PrimitiveArray<T>,
    slide: i64,
    size: i64,
    typed: impl Fn(PrimitiveArray<T>) -> ArrayRef,
) -> Result<ArrayRef> {
    if size / slide > WINDOWS_PER_ROW_MAX {
        return Err(Error::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("size of hop is more than {WINDOWS_PER_ROW_MAX} times its slide"),
        ));
    }
    let mut values: Vec<i64> = Vec::with_capacity(times.len());
    let mut lengths = Vec::with_capacity(times.len());
    for time in times {
        let before = values.len();
        if let Some(time) = time {
            let starts = hop_starts(time, slide, size).ok_or_else(|| {
                Error::new(sqlstate::DATETIME_OVERFLOW, "window bound out of range")
            })?;
            values.extend(starts);
        }
        lengths.push(values.len() - before);
    }
    let items = typed(PrimitiveArray::<T>::from_iter_values(values));
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    // A missing time is in no window: an empty list, so that unnesting drops the row.
    Ok(Arc::new(ListArray::new(
        field,
        OffsetBuffer::from_lengths(lengths),
        items,
        None,
    )))
}

/// A constant length: microseconds of an interval, or an integer. `None` for NULL.
pub(crate) fn length_of(function: &str, value: &ColumnarValue) -> Result<Option<i64>> {
    let wrong = |reason: &str| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("window length of {function} {reason}"),
        )
    };
    let ColumnarValue::Scalar(scalar) = value else {
        return Err(wrong("must be a constant"));
    };
    let length = match scalar {
        ScalarValue::Int64(Some(n)) => *n,
        ScalarValue::IntervalMonthDayNano(Some(i)) => {
            if i.months != 0 {
                return Err(wrong(
                    "must not have months or years, which differ in length",
                ));
            }
            i64::from(i.days)
                .checked_mul(86_400_000_000)
                .and_then(|days| days.checked_add(i.nanoseconds / 1_000))
                .ok_or_else(|| wrong("is out of range"))?
        }
        other if other.is_null() => return Ok(None),
        _ => return Err(wrong("must be an interval or an integer")),
    };
    if length <= 0 {
        return Err(wrong("must be greater than zero"));
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tumbling_windows_round_down() {
        for (time, size, start) in [
            (0, 10, 0),
            (9, 10, 0),
            (10, 10, 10),
            (-1, 10, -10),
            (-10, 10, -10),
            (-11, 10, -20),
        ] {
            assert_eq!(tumble_start(time, size), Some(start));
        }
        assert_eq!(tumble_start(i64::MIN, 10), None);
    }

    #[test]
    fn hopping_windows() {
        assert_eq!(hop_starts(12, 5, 10), Some(vec![5, 10]));
        assert_eq!(hop_starts(10, 5, 10), Some(vec![5, 10]));
        assert_eq!(hop_starts(-1, 5, 10), Some(vec![-10, -5]));
        // Size no multiple of the slide.
        assert_eq!(hop_starts(7, 5, 7), Some(vec![5]));
        assert_eq!(hop_starts(6, 5, 7), Some(vec![0, 5]));
        // Gaps between windows.
        assert_eq!(hop_starts(7, 10, 5), Some(vec![]));
        assert_eq!(hop_starts(14, 10, 5), Some(vec![10]));
    }

    #[test]
    fn every_start_holds_the_time() {
        for time in -50..50 {
            for (slide, size) in [(1, 1), (3, 7), (7, 3), (5, 20)] {
                let expected: Vec<i64> = (-20..20)
                    .map(|k| k * slide)
                    .filter(|s| *s <= time && time < s + size)
                    .collect();
                if (slide, size) == (1, 1) {
                    assert_eq!(hop_starts(time, 1, 1), Some(vec![time]));
                } else {
                    let actual = hop_starts(time, slide, size).unwrap();
                    let bounded: Vec<i64> = actual
                        .into_iter()
                        .filter(|s| (-20 * slide..20 * slide).contains(s))
                        .collect();
                    assert_eq!(bounded, expected, "{time} {slide} {size}");
                }
            }
        }
    }
}

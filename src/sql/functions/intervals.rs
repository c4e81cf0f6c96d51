//! Intervals: products, differences of times, and the order in which PostgreSQL compares them.

use std::sync::Arc;

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, IntervalMonthDayNanoArray,
};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimestampMicrosecondType,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::values::datetime::DAY_US;

/// The type of intervals.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `interval * number`
pub(crate) fn interval_times() -> Arc<ScalarUDF> {
    udf(IntervalTimes {
        signature: Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable),
    })
}

/// `timestamp - timestamp`: days and the time of a day, as in PostgreSQL.
pub(crate) fn timestamp_difference() -> Arc<ScalarUDF> {
    udf(TimestampDifference {
        signature: Signature::any(2, Volatility::Immutable),
    })
}

/// The name of [`interval_length`].
pub(crate) const LENGTH: &str = "interval_length";

/// The length of an interval in microseconds, by which PostgreSQL compares intervals.
pub(crate) fn interval_length() -> Arc<ScalarUDF> {
    udf(IntervalLength {
        signature: Signature::exact(vec![INTERVAL], Volatility::Immutable),
    })
}

/// Bytes that sort as PostgreSQL sorts intervals, those of one length by their fields.
pub(crate) fn interval_key() -> Arc<ScalarUDF> {
    udf(IntervalKey {
        signature: Signature::exact(vec![INTERVAL], Volatility::Immutable),
    })
}

/// The interval of such bytes.
pub(crate) fn interval_of_key() -> Arc<ScalarUDF> {
    udf(IntervalOfKey {
        signature: Signature::exact(vec![DataType::Binary], Volatility::Immutable),
    })
}

/// `greatest` and `least`: of intervals of one length the first that is written.
pub(crate) fn choice(is_greatest: bool) -> Arc<ScalarUDF> {
    udf(IntervalChoice {
        is_greatest,
        signature: Signature::variadic(vec![INTERVAL], Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalKey {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalKey {
    fn name(&self) -> &str {
        "interval_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let intervals = columns[0].as_primitive::<IntervalMonthDayNanoType>();
        let keys: BinaryArray = intervals.iter().map(|i| i.map(key)).collect();
        result(Arc::new(keys), constant)
    }
}

/// Each number with its sign turned, so that bytes compare as numbers do.
fn key(interval: IntervalMonthDayNano) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.extend_from_slice(&(length_us(interval) ^ i128::MIN).to_be_bytes());
    key.extend_from_slice(&(interval.months ^ i32::MIN).to_be_bytes());
    key.extend_from_slice(&(interval.days ^ i32::MIN).to_be_bytes());
    key.extend_from_slice(&(interval.nanoseconds ^ i64::MIN).to_be_bytes());
    key
}

fn interval_of(key: &[u8]) -> Option<IntervalMonthDayNano> {
    let fields = key.get(16..)?;
    let months = i32::from_be_bytes(fields.get(..4)?.try_into().ok()?) ^ i32::MIN;
    let days = i32::from_be_bytes(fields.get(4..8)?.try_into().ok()?) ^ i32::MIN;
    let nanoseconds = i64::from_be_bytes(fields.get(8..)?.try_into().ok()?) ^ i64::MIN;
    Some(IntervalMonthDayNano::new(months, days, nanoseconds))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalOfKey {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalOfKey {
    fn name(&self) -> &str {
        "interval_of_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let keys = columns[0].as_binary::<i32>();
        let intervals: IntervalMonthDayNanoArray =
            keys.iter().map(|key| key.and_then(interval_of)).collect();
        result(Arc::new(intervals), constant)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalChoice {
    is_greatest: bool,
    signature: Signature,
}

impl ScalarUDFImpl for IntervalChoice {
    fn name(&self) -> &str {
        match self.is_greatest {
            true => "greatest_interval",
            false => "least_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let intervals: Vec<_> = columns
            .iter()
            .map(|column| column.as_primitive::<IntervalMonthDayNanoType>())
            .collect();
        let rows = columns.first().map_or(0, |column| column.len());
        let chosen: IntervalMonthDayNanoArray = (0..rows)
            .map(|row| {
                let values = intervals.iter().filter(|i| i.is_valid(row));
                values.map(|i| i.value(row)).reduce(|first, other| {
                    let (this, that) = (length_us(first), length_us(other));
                    let is_better = if self.is_greatest {
                        that > this
                    } else {
                        that < this
                    };
                    if is_better { other } else { first }
                })
            })
            .collect();
        result(Arc::new(chosen), constant)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimestampDifference {
    signature: Signature,
}

impl ScalarUDFImpl for TimestampDifference {
    fn name(&self) -> &str {
        "timestamp_difference"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [left, right] => format!("{left} - {right}"),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let left = columns[0].as_primitive::<TimestampMicrosecondType>();
        let right = columns[1].as_primitive::<TimestampMicrosecondType>();
        let differences = left
            .iter()
            .zip(right)
            .map(|pair| match pair {
                (Some(left), Some(right)) => difference(left, right).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<IntervalMonthDayNanoArray>>()?;
        result(Arc::new(differences), constant)
    }
}

pub(super) fn out_of_range() -> Error {
    Error::new(sqlstate::DATETIME_OVERFLOW, "interval out of range")
}

fn difference(left_us: i64, right_us: i64) -> Result<IntervalMonthDayNano> {
    let us = left_us.checked_sub(right_us).ok_or_else(out_of_range)?;
    let days = i32::try_from(us / DAY_US).map_err(|_| out_of_range())?;
    Ok(IntervalMonthDayNano::new(0, days, us % DAY_US * 1_000))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn name(&self) -> &str {
        LENGTH
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let intervals = columns[0].as_primitive::<IntervalMonthDayNanoType>();
        let lengths: Decimal128Array = intervals.iter().map(|i| i.map(length_us)).collect();
        let lengths = lengths.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
        result(Arc::new(lengths), constant)
    }
}

/// Microseconds of an interval: a month has 30 days, a day 24 hours.
pub(super) fn length_us(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * i128::from(DAY_US) + i128::from(interval.nanoseconds / 1_000)
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
        Ok(INTERVAL)
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

/// The product. Errors: 22008 one that no interval holds.
pub(super) fn times(interval: IntervalMonthDayNano, factor: f64) -> Result<IntervalMonthDayNano> {
    const DAY_NS: f64 = 86_400e9;
    let months = f64::from(interval.months) * factor;
    let days = f64::from(interval.days) * factor + months.fract() * 30.0;
    // Rounded to microseconds, which is what an interval shows.
    let time_us = ((interval.nanoseconds as f64 * factor + days.fract() * DAY_NS) / 1e3).round();
    let fits = months.abs() < f64::from(i32::MAX)
        && days.abs() < f64::from(i32::MAX)
        && time_us.abs() < 9.2e15;
    if !fits {
        return Err(out_of_range());
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

    #[test]
    fn keys_sort_as_lengths_do() {
        let interval = IntervalMonthDayNano::new;
        let hour = 3_600_000_000_000;
        let in_order = [
            interval(-1, 0, 0),
            interval(0, -29, 0),
            interval(0, 0, 24 * hour),
            interval(0, 1, 0),
            interval(0, 0, 25 * hour),
            interval(0, 30, 0),
            interval(1, 0, 0),
        ];
        let keys = in_order.map(key);
        assert!(keys.is_sorted());
        assert_eq!(keys.map(|key| interval_of(&key)), in_order.map(Some));
    }

    #[test]
    fn differences_have_days() {
        let day = |days, hours: i64| IntervalMonthDayNano::new(0, days, hours * 3_600_000_000_000);
        assert_eq!(difference(DAY_US * 9 + DAY_US / 2, 0).unwrap(), day(9, 12));
        assert_eq!(difference(0, DAY_US + DAY_US / 4).unwrap(), day(-1, -6));
        assert!(difference(i64::MAX, -1).is_err());
        assert_eq!(length_us(day(1, 0)), length_us(day(0, 24)));
        assert_eq!(
            length_us(IntervalMonthDayNano::new(1, 0, 0)),
            length_us(day(30, 0))
        );
    }
}

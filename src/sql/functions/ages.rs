//! `age`, and series of times and numerics.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Months, NaiveDateTime};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{Array, ArrayRef, Decimal128Array, Int64Array, ListArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, TimeUnit};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::intervals::{INTERVAL, length_us};
use super::plain::{form, plain};
use super::times::{out_of_range, parse_zone};
use super::zoned::later;
use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::values::datetime::DAY_US;

/// Elements of one series, at most.
const SERIES_MAX: usize = 10_000_000;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "age",
            &[
                form!([Timestamp, Timestamp] -> Interval, age),
                form!([TimestampTz, TimestampTz] -> Interval, age),
            ],
        ),
        udf(Series {
            signature: Signature::user_defined(Volatility::Immutable),
        }),
    ]
}

fn moment(value: &ScalarValue) -> Result<NaiveDateTime> {
    let us = match value {
        ScalarValue::TimestampMicrosecond(Some(us), _) => *us,
        _ => return Err(Error::internal("a form's argument is a timestamp")),
    };
    DateTime::from_timestamp_micros(us)
        .map(|t| t.naive_utc())
        .ok_or_else(out_of_range)
}

/// Years, months, days and time between two moments, by the calendar.
fn age(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (end, start) = (moment(&arguments[0])?, moment(&arguments[1])?);
    let negative = end < start;
    let (later, earlier) = if negative { (start, end) } else { (end, start) };
    let months_between = |a: NaiveDateTime, b: NaiveDateTime| {
        (a.year() - b.year()) * 12 + (a.month() as i32 - b.month() as i32)
    };
    let mut months = months_between(later, earlier);
    let time_us = |t: NaiveDateTime| t.and_utc().timestamp_micros().rem_euclid(DAY_US);
    let mut us = time_us(later) - time_us(earlier);
    let mut days = later.day() as i32 - earlier.day() as i32;
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        // The month that is borrowed from is the earlier moment's, as PostgreSQL has it.
        days += days_of_month(earlier);
        months -= 1;
    }
    let sign = if negative { -1 } else { 1 };
    let interval =
        IntervalMonthDayNano::new(months * sign, days * sign, us * 1_000 * i64::from(sign));
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

fn days_of_month(moment: NaiveDateTime) -> i32 {
    let first = moment.date().with_day(1);
    let next = first.and_then(|d| d.checked_add_months(Months::new(1)));
    match first.zip(next) {
        Some((first, next)) => i32::try_from((next - first).num_days()).unwrap_or(31),
        None => 31,
    }
}

/// `generate_series` as an array: of times by intervals, of numerics and of whole numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    signature: Signature,
}

impl Series {
    fn zone(types: &[DataType]) -> Option<Arc<str>> {
        types.iter().find_map(|t| match t {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        })
    }
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        "generate_series_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let is_time = |t: &DataType| matches!(t, DataType::Timestamp(..) | DataType::Date32);
        match types {
            // Days and months by the clocks of a zone.
            [DataType::Timestamp(_, Some(_)), _, _, DataType::Utf8] => {
                let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                Ok(vec![time.clone(), time, INTERVAL, DataType::Utf8])
            }
            [from, to, _] if is_time(from) || is_time(to) => {
                // Dates are series of times with a zone in PostgreSQL.
                let of_dates = types.contains(&DataType::Date32);
                let zone = Self::zone(types).or_else(|| of_dates.then(|| "UTC".into()));
                let time = DataType::Timestamp(TimeUnit::Microsecond, zone);
                Ok(vec![time.clone(), time, INTERVAL])
            }
            [_, _] | [_, _, _] if types.iter().any(|t| matches!(t, DataType::Decimal128(..))) => {
                let scale = types
                    .iter()
                    .map(|t| match t {
                        DataType::Decimal128(_, scale) => *scale,
                        _ => 0,
                    })
                    .max()
                    .unwrap_or(0);
                Ok(vec![
                    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
                    types.len()
                ])
            }
            [_, _] | [_, _, _] if types.iter().all(|t| t.is_integer() || t.is_null()) => {
                Ok(vec![DataType::Int64; types.len()])
            }
            _ => Err(no_function("generate_series", types).into()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let item = types
            .first()
            .cloned()
            .ok_or_else(|| no_function("generate_series", types))?;
        Ok(DataType::List(Arc::new(Field::new("item", item, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let item = columns[0].data_type().clone();
        let rows = columns[0].len();
        let mut lists = Vec::with_capacity(rows);
        for row in 0..rows {
            let values = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<DataFusionResult<Vec<_>>>()?;
            lists.push(match values.iter().any(ScalarValue::is_null) {
                true => None,
                false => Some(series(&values)?),
            });
        }
        result(lists_of(&item, lists)?, constant)
    }
}

/// Lists of what an item type holds: unscaled values, or microseconds.
fn lists_of(item: &DataType, lists: Vec<Option<Vec<i128>>>) -> Result<ArrayRef> {
    let valid: NullBuffer = lists.iter().map(Option::is_some).collect();
    let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = lists.into_iter().flatten().flatten();
    let items: ArrayRef = match item {
        DataType::Decimal128(precision, scale) => Arc::new(
            Decimal128Array::from_iter_values(values)
                .with_precision_and_scale(*precision, *scale)?,
        ),
        _ => {
            let values = values.map(i64::try_from);
            let values: Vec<i64> = values
                .collect::<Result<_, _>>()
                .map_err(|_| out_of_range())?;
            cast(&Int64Array::from(values), item)?
        }
    };
    let field = Arc::new(Field::new("item", item.clone(), true));
    Ok(Arc::new(ListArray::try_new(
        field,
        offsets,
        items,
        Some(valid),
    )?))
}

/// The elements of a series: unscaled values, or microseconds. Errors: 22023 a step of nothing,
/// 54000 too many elements, 22008 a time out of range.
fn series(values: &[ScalarValue]) -> Result<Vec<i128>> {
    match values {
        [
            ScalarValue::TimestampMicrosecond(Some(from), _),
            ScalarValue::TimestampMicrosecond(Some(to), _),
            ScalarValue::IntervalMonthDayNano(Some(step)),
            rest @ ..,
        ] => {
            let zone = match rest {
                [ScalarValue::Utf8(Some(name))] => parse_zone(name)?,
                _ => "+00:00".parse()?,
            };
            times(*from, *to, *step, zone)
        }
        [
            ScalarValue::Decimal128(Some(from), _, scale),
            ScalarValue::Decimal128(Some(to), ..),
            rest @ ..,
        ] => {
            let step = match rest {
                [ScalarValue::Decimal128(Some(step), ..)] => *step,
                _ => 10i128.pow(u32::from(scale.unsigned_abs())),
            };
            numbers(*from, *to, step)
        }
        [
            ScalarValue::Int64(Some(from)),
            ScalarValue::Int64(Some(to)),
            rest @ ..,
        ] => {
            let step = match rest {
                [ScalarValue::Int64(Some(step))] => *step,
                _ => 1,
            };
            numbers(i128::from(*from), i128::from(*to), i128::from(step))
        }
        _ => Err(Error::internal("a series is of times or numbers")),
    }
}

fn no_step() -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        "step size cannot equal zero",
    )
}

fn too_long() -> Error {
    Error::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("a series has more than {SERIES_MAX} elements"),
    )
}

fn numbers(from: i128, to: i128, step: i128) -> Result<Vec<i128>> {
    elements(from, to, step.signum(), |at| Ok(at.checked_add(step)))
}

fn times(from: i64, to: i64, step: IntervalMonthDayNano, zone: Tz) -> Result<Vec<i128>> {
    let direction = length_us(step).signum();
    elements(from, to, direction, |at| {
        later(at, step, zone).map(Some).ok_or_else(out_of_range)
    })
}

/// What lies between two ends, from step to step; a step that leads beyond all values is the last.
fn elements<T: Copy + PartialOrd + Into<i128>>(
    from: T,
    to: T,
    direction: i128,
    next: impl Fn(T) -> Result<Option<T>>,
) -> Result<Vec<i128>> {
    if direction == 0 {
        return Err(no_step());
    }
    let mut out = Vec::new();
    let mut at = Some(from);
    while let Some(element) = at.filter(|at| if direction > 0 { *at <= to } else { *at >= to }) {
        if out.len() == SERIES_MAX {
            return Err(too_long());
        }
        out.push(element.into());
        at = next(element)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> ScalarValue {
        let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        ScalarValue::TimestampMicrosecond(Some(time.and_utc().timestamp_micros()), None)
    }

    #[test]
    fn ages_by_the_calendar() {
        let age = |a, b| match age(&[at(a), at(b)]).unwrap() {
            ScalarValue::IntervalMonthDayNano(Some(i)) => (i.months, i.days, i.nanoseconds),
            other => panic!("{other}"),
        };
        // PostgreSQL: 1 year 1 mon 17 days, 2 days, 29 days, -1 mons
        assert_eq!(age("2024-03-01 00:00", "2023-01-15 00:00"), (13, 17, 0));
        assert_eq!(age("2024-03-01 00:00", "2024-02-28 00:00"), (0, 2, 0));
        assert_eq!(age("2024-02-29 00:00", "2024-01-31 00:00"), (0, 29, 0));
        assert_eq!(age("2024-01-01 00:00", "2024-02-01 00:00"), (-1, 0, 0));
    }

    #[test]
    fn series_of_times_and_numbers() {
        let step = |m, d, h: i64| {
            let ns = h * 3_600_000_000_000;
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(m, d, ns)))
        };
        let count = |from, to, step| series(&[at(from), at(to), step]).unwrap().len();
        assert_eq!(
            count("2024-01-01 00:00", "2024-01-02 00:00", step(0, 0, 12)),
            3
        );
        assert_eq!(
            count("2024-01-31 00:00", "2024-03-31 00:00", step(1, 0, 0)),
            3
        );
        assert_eq!(
            count("2024-01-02 00:00", "2024-01-01 00:00", step(0, -1, 0)),
            2
        );
        assert!(
            series(&[
                at("2024-01-01 00:00"),
                at("2024-01-02 00:00"),
                step(0, 0, 0)
            ])
            .is_err()
        );
        let number = |n| ScalarValue::Int64(Some(n));
        assert_eq!(
            series(&[number(3), number(1), number(-1)]).unwrap(),
            [3, 2, 1]
        );
        // A step beyond all numbers.
        let large = |n: i128| ScalarValue::Decimal128(Some(n * 10i128.pow(37)), 38, 0);
        assert_eq!(
            series(&[large(9), large(9), large(9)]).unwrap(),
            [9 * 10i128.pow(37)]
        );
    }
}

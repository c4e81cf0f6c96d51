//! Times and intervals of their fields: `make_*`, `justify_*`, `isfinite`.

use std::sync::Arc;

use chrono::{NaiveDate, NaiveTime};
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::intervals::out_of_range;
use super::plain::{double, form, plain, text, whole};
use super::times::parse_zone;
use crate::error::{Error, Result, sqlstate};
use crate::values::datetime::DAY_US;
use crate::values::zones::universal_time;

const DAY_NS: i64 = DAY_US * 1_000;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "make_interval",
            &[
                form!([BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, Double] -> Interval, made_interval),
            ],
        ),
        plain(
            "make_date",
            &[form!([BigInt, BigInt, BigInt] -> Date, made_date)],
        ),
        plain(
            "make_time",
            &[form!([BigInt, BigInt, Double] -> Time, made_time)],
        ),
        plain(
            "make_timestamp",
            &[
                form!([BigInt, BigInt, BigInt, BigInt, BigInt, Double] -> Timestamp, |a| {
                    Ok(ScalarValue::TimestampMicrosecond(Some(moment_us(a)?), None))
                }),
            ],
        ),
        plain(
            "make_timestamptz",
            &[
                form!([BigInt, BigInt, BigInt, BigInt, BigInt, Double] -> TimestampTz, |a| {
                    Ok(ScalarValue::TimestampMicrosecond(Some(moment_us(a)?), Some("UTC".into())))
                }),
                form!([BigInt, BigInt, BigInt, BigInt, BigInt, Double, Text] -> TimestampTz, made_in_zone),
            ],
        ),
        plain(
            "justify_days",
            &[form!([Interval] -> Interval, |a| justified(a, false, true))],
        ),
        plain(
            "justify_hours",
            &[form!([Interval] -> Interval, |a| justified(a, true, false))],
        ),
        plain(
            "justify_interval",
            &[form!([Interval] -> Interval, |a| justified(a, true, true))],
        ),
        plain(
            "isfinite",
            &[
                form!([Date] -> Boolean, |_| Ok(ScalarValue::Boolean(Some(true)))),
                form!([Timestamp] -> Boolean, |_| Ok(ScalarValue::Boolean(Some(true)))),
                form!([TimestampTz] -> Boolean, |_| Ok(ScalarValue::Boolean(Some(true)))),
                form!([Interval] -> Boolean, |_| Ok(ScalarValue::Boolean(Some(true)))),
            ],
        ),
    ]
}

fn interval_of(value: &ScalarValue) -> Result<IntervalMonthDayNano> {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => Ok(*interval),
        _ => Err(Error::internal("a form's argument is an interval")),
    }
}

/// Years, months, weeks, days, hours, minutes and seconds. Errors: 22008 more than an interval holds.
fn made_interval(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let number = |place: usize| whole(&arguments[place]).map(i128::from);
    let months = number(0)? * 12 + number(1)?;
    let days = number(2)? * 7 + number(3)?;
    let seconds = double(&arguments[6])?;
    if !seconds.is_finite() {
        return Err(out_of_range());
    }
    let second_us = (seconds * 1e6).round();
    let us = (number(4)? * 3_600 + number(5)? * 60) * 1_000_000 + second_us as i128;
    let fit = || {
        Some(IntervalMonthDayNano::new(
            i32::try_from(months).ok()?,
            i32::try_from(days).ok()?,
            i64::try_from(us.checked_mul(1_000)?).ok()?,
        ))
    };
    let interval = fit().ok_or_else(out_of_range)?;
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

fn field_error(what: String) -> Error {
    Error::new(sqlstate::DATETIME_OVERFLOW, what)
}

/// Errors: 22008 a day that is not in the calendar. Years below 1 are before Christ.
fn date_of(arguments: &[ScalarValue]) -> Result<NaiveDate> {
    let field = |place: usize| whole(&arguments[place]);
    let (year, month, day) = (field(0)?, field(1)?, field(2)?);
    let by_calendar = if year < 0 { year + 1 } else { year };
    let found = || {
        let year = i32::try_from(by_calendar).ok().filter(|_| year != 0)?;
        let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
        NaiveDate::from_ymd_opt(year, month, day)
    };
    found().ok_or_else(|| {
        field_error(format!(
            "date field value out of range: {year}-{month:02}-{day:02}"
        ))
    })
}

fn made_date(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let days = date_of(arguments)? - NaiveDate::default();
    Ok(ScalarValue::Date32(i32::try_from(days.num_days()).ok()))
}

/// Microseconds of a day. Errors: 22008 no time of a day.
fn time_us(arguments: &[ScalarValue]) -> Result<i64> {
    let (hour, minute) = (whole(&arguments[0])?, whole(&arguments[1])?);
    let second = double(&arguments[2])?;
    let is_time = (0..=24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..=60.0).contains(&second)
        && (hour < 24 || minute == 0 && second == 0.0);
    if !is_time {
        return Err(field_error(format!(
            "time field value out of range: {hour}:{minute:02}:{second:02}"
        )));
    }
    Ok((hour * 3_600 + minute * 60) * 1_000_000 + (second * 1e6).round() as i64)
}

fn made_time(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    Ok(ScalarValue::Time64Microsecond(Some(time_us(arguments)?)))
}

fn moment_us(arguments: &[ScalarValue]) -> Result<i64> {
    let date = date_of(arguments)?.and_time(NaiveTime::MIN);
    Ok(date.and_utc().timestamp_micros() + time_us(&arguments[3..])?)
}

fn made_in_zone(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let zone = parse_zone(text(&arguments[6])?)?;
    let us = universal_time(moment_us(arguments)?, zone)
        .ok_or_else(|| field_error("timestamp out of range".to_owned()))?;
    Ok(ScalarValue::TimestampMicrosecond(
        Some(us),
        Some("UTC".into()),
    ))
}

/// Takes whole days out of the hours, and whole months of 30 days out of the days; all parts get one
/// sign. Errors: 22008 more than an interval holds.
fn justified(arguments: &[ScalarValue], hours: bool, days: bool) -> Result<ScalarValue> {
    let interval = interval_of(&arguments[0])?;
    let (mut month, mut day) = (i64::from(interval.months), i64::from(interval.days));
    let mut ns = interval.nanoseconds;
    if hours {
        day += ns / DAY_NS;
        ns %= DAY_NS;
    }
    if days {
        month += day / 30;
        day %= 30;
    }
    if days && hours {
        if month > 0 && (day < 0 || day == 0 && ns < 0) {
            (month, day) = (month - 1, day + 30);
        } else if month < 0 && (day > 0 || day == 0 && ns > 0) {
            (month, day) = (month + 1, day - 30);
        }
    } else if days {
        if month > 0 && day < 0 {
            (month, day) = (month - 1, day + 30);
        } else if month < 0 && day > 0 {
            (month, day) = (month + 1, day - 30);
        }
    }
    if hours {
        if day > 0 && ns < 0 {
            (day, ns) = (day - 1, ns + DAY_NS);
        } else if day < 0 && ns > 0 {
            (day, ns) = (day + 1, ns - DAY_NS);
        }
    }
    let fit = || {
        let (month, day) = (i32::try_from(month).ok()?, i32::try_from(day).ok()?);
        Some(IntervalMonthDayNano::new(month, day, ns))
    };
    let interval = fit().ok_or_else(out_of_range)?;
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of PostgreSQL 15.
    #[test]
    fn intervals_are_justified() {
        let hour = 3_600_000_000_000;
        let interval = IntervalMonthDayNano::new;
        for (given, hours, days, expected) in [
            (
                interval(0, 0, 27 * hour),
                true,
                false,
                interval(0, 1, 3 * hour),
            ),
            (interval(0, 35, 0), false, true, interval(1, 5, 0)),
            (
                interval(1, 0, -hour),
                true,
                true,
                interval(0, 29, 23 * hour),
            ),
            (
                interval(-1, 0, 36 * hour),
                true,
                true,
                interval(0, -28, -12 * hour),
            ),
            (interval(1, -5, 0), false, true, interval(0, 25, 0)),
        ] {
            let given = [ScalarValue::IntervalMonthDayNano(Some(given))];
            let found = justified(&given, hours, days).unwrap();
            assert_eq!(found, ScalarValue::IntervalMonthDayNano(Some(expected)));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let numbers = |values: [i64; 3]| values.map(|v| ScalarValue::Int64(Some(v)));
        assert!(made_date(&numbers([2024, 2, 29])).is_ok());
        for no_date in [[2023, 2, 29], [0, 1, 1], [2024, 13, 1], [2024, 1, -1]] {
            let error = made_date(&numbers(no_date)).unwrap_err();
            assert_eq!(error.sqlstate(), "22008");
        }
        assert_eq!(
            made_date(&numbers([-44, 3, 15])).unwrap(),
            ScalarValue::Date32(Some(-735_160))
        );
    }
}

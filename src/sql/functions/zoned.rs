//! What PostgreSQL computes of a `timestamptz` by the clocks of a time zone, with the zone as the
//! last argument. [`crate::sql::local_times`] puts them in the place of the functions that ask for
//! the session's zone.
//!
//! Units from the day up begin when the zone's clocks say so; hours and less are cut where the
//! clock shows them at that moment, also in the hour that it shows twice (PostgreSQL 15,
//! `timestamptz_trunc`). Months and days of an interval are added on the clocks, its time after
//! that (`timestamptz_pl_interval`).

use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::characters::Templates;
use super::extract::Field;
use super::format::{Clock, Template};
use super::intervals::INTERVAL;
use super::times::{Zones, out_of_range};
use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::values::zones::{abbreviation, local_time, offset_s, offset_text, universal_time};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Zoned {
    /// `date_trunc(unit, time, zone)`
    Truncated,
    /// `(time, interval, zone)`
    Later,
    /// `to_char` of `(time, template, zone)`
    Characters,
    /// `(time, zone)` as JSON has it: `2026-11-29T09:05:00+01:00`
    Iso,
    /// seconds that the zone's clocks are ahead of UTC at `(time, zone)`
    Offset,
}

use Zoned::{Characters, Iso, Later, Offset, Truncated};

/// All of them.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Truncated, Later, Characters, Iso, Offset]
        .map(function)
        .to_vec()
}

/// One of them.
pub(crate) fn function(zoned: Zoned) -> Arc<ScalarUDF> {
    udf(ZonedFunction {
        zoned,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// What `date_trunc` with a zone is called in plans.
pub(crate) const TRUNCATED: &str = "date_trunc_in_zone";

#[derive(Debug, PartialEq, Eq, Hash)]
struct ZonedFunction {
    zoned: Zoned,
    signature: Signature,
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

impl ScalarUDFImpl for ZonedFunction {
    fn name(&self) -> &str {
        match self.zoned {
            Truncated => TRUNCATED,
            Later => "add_in_zone",
            Characters => "to_char_in_zone",
            Iso => "iso_time_in_zone",
            Offset => "offset_of_zone",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let text = DataType::Utf8;
        let wanted = match self.zoned {
            Truncated => vec![text.clone(), time_type(), text],
            Later => vec![time_type(), INTERVAL, text],
            Characters => vec![time_type(), text.clone(), text],
            Iso | Offset => vec![time_type(), text],
        };
        if types.len() != wanted.len() {
            return Err(no_function(self.name(), types).into());
        }
        Ok(wanted)
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.zoned {
            Truncated | Later => time_type(),
            Characters | Iso => DataType::Utf8,
            Offset => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let times = |at: usize| columns[at].as_primitive::<TimestampMicrosecondType>();
        let texts = |at: usize| columns[at].as_string::<i32>();
        let computed: ArrayRef = match self.zoned {
            Truncated => Arc::new(all_truncated(texts(0), times(1), texts(2))?),
            Later => {
                let intervals = columns[1].as_primitive::<IntervalMonthDayNanoType>();
                let mut zones = Zones::default();
                let moved = (0..intervals.len()).map(|row| {
                    let is_null = columns.iter().any(|column| column.is_null(row));
                    if is_null {
                        return Ok(None);
                    }
                    let zone = zones.get(texts(2).value(row))?;
                    let moved = later(times(0).value(row), intervals.value(row), zone);
                    moved.map(Some).ok_or_else(out_of_range)
                });
                let moved: TimestampMicrosecondArray = moved.collect::<Result<_>>()?;
                Arc::new(moved.with_timezone("UTC"))
            }
            Characters => Arc::new(all_characters(times(0), texts(1), texts(2))?),
            Iso => {
                let iso = Template::parse(r#"YYYY-MM-DD"T"HH24:MI:SS"#);
                let texts = each(times(0), texts(1), |us, _, zone| iso_text(&iso, us, zone));
                Arc::new(texts.collect::<Result<StringArray>>()?)
            }
            Offset => {
                let offsets = each(times(0), texts(1), |us, _, zone| Ok(offset_s(us, zone)));
                let offsets = offsets.collect::<Result<Vec<_>>>()?;
                Arc::new(datafusion::arrow::array::Int64Array::from(offsets))
            }
        };
        result(computed, constant)
    }
}

/// A value for each time in its zone.
fn each<'a, T>(
    times: &'a TimestampMicrosecondArray,
    names: &'a StringArray,
    value: impl Fn(i64, &str, Tz) -> Result<T> + 'a,
) -> impl Iterator<Item = Result<Option<T>>> + 'a {
    let mut zones = Zones::default();
    times.iter().zip(names).map(move |pair| match pair {
        (Some(us), Some(name)) => value(us, name, zones.get(name)?).map(Some),
        _ => Ok(None),
    })
}

fn local(us: i64, zone: Tz) -> Result<NaiveDateTime> {
    local_time(us, zone)
        .and_then(DateTime::from_timestamp_micros)
        .map(|t| t.naive_utc())
        .ok_or_else(out_of_range)
}

/// The moment that lies an interval after another, its months and days on the clocks of a zone.
pub(super) fn later(us: i64, interval: IntervalMonthDayNano, zone: Tz) -> Option<i64> {
    let on_clocks = |us: i64, months: i32, days: i32| {
        let wall = DateTime::from_timestamp_micros(local_time(us, zone)?)?.naive_utc();
        let length = Months::new(months.unsigned_abs());
        let wall = match months < 0 {
            true => wall.checked_sub_months(length)?,
            false => wall.checked_add_months(length)?,
        };
        let length = Days::new(u64::from(days.unsigned_abs()));
        let wall = match days < 0 {
            true => wall.checked_sub_days(length)?,
            false => wall.checked_add_days(length)?,
        };
        universal_time(wall.and_utc().timestamp_micros(), zone)
    };
    let mut moved = us;
    if interval.months != 0 {
        moved = on_clocks(moved, interval.months, 0)?;
    }
    if interval.days != 0 {
        moved = on_clocks(moved, 0, interval.days)?;
    }
    moved.checked_add(interval.nanoseconds / 1_000)
}

fn all_truncated(
    units: &StringArray,
    times: &TimestampMicrosecondArray,
    names: &StringArray,
) -> Result<TimestampMicrosecondArray> {
    let mut zones = Zones::default();
    let mut known = Units::default();
    let rows = units.iter().zip(times).zip(names);
    let cut = rows.map(|row| match row {
        ((Some(unit), Some(us)), Some(name)) => {
            known.truncated(unit, us, zones.get(name)?).map(Some)
        }
        _ => Ok(None),
    });
    let cut: TimestampMicrosecondArray = cut.collect::<Result<_>>()?;
    Ok(cut.with_timezone("UTC"))
}

/// The units of many rows, nearly always one.
#[derive(Default)]
pub(super) struct Units<'a>(Option<(&'a str, Field)>);

impl<'a> Units<'a> {
    /// The beginning, by the clocks of a zone, of the unit that a moment lies in. Errors: 22023 no
    /// unit of the name, 0A000 one that times have none of, 22008 out of range.
    pub fn truncated(&mut self, unit: &'a str, us: i64, zone: Tz) -> Result<i64> {
        let field = match self.0 {
            Some((known, field)) if known == unit => field,
            _ => truncatable(unit)?,
        };
        self.0 = Some((unit, field));
        truncated(field, us, zone)
    }
}

fn truncatable(unit: &str) -> Result<Field> {
    let field = Field::parse(unit)?;
    match field.is_calendar_unit() || field.length_us().is_some() {
        true => Ok(field),
        false => Err(Error::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("unit \"{unit}\" not supported for type timestamp with time zone"),
        )),
    }
}

/// The beginning of the unit that a moment lies in.
fn truncated(field: Field, us: i64, zone: Tz) -> Result<i64> {
    if let Some(length_us) = field.length_us() {
        let offset_us = offset_s(us, zone) * 1_000_000;
        let wall_us = us.checked_add(offset_us).ok_or_else(out_of_range)?;
        return Ok(wall_us - wall_us.rem_euclid(length_us) - offset_us);
    }
    let date = local(us, zone)?.date();
    first_day(field, date)
        .and_then(|first| {
            let midnight = first.and_time(chrono::NaiveTime::MIN);
            universal_time(midnight.and_utc().timestamp_micros(), zone)
        })
        .ok_or_else(out_of_range)
}

/// The day on which the unit begins that a date lies in. Centuries and millennia begin with the
/// year 1.
fn first_day(field: Field, date: NaiveDate) -> Option<NaiveDate> {
    let year = date.year();
    let of_year = |year: i32| NaiveDate::from_ymd_opt(year, 1, 1);
    match field {
        Field::Day => Some(date),
        Field::Week => {
            date.checked_sub_days(Days::new(u64::from(date.weekday().num_days_from_monday())))
        }
        Field::Month => date.with_day(1),
        Field::Quarter => NaiveDate::from_ymd_opt(year, date.month0() / 3 * 3 + 1, 1),
        Field::Year => of_year(year),
        Field::Decade => of_year(year.div_euclid(10) * 10),
        Field::Century => of_year((year - 1).div_euclid(100) * 100 + 1),
        Field::Millennium => of_year((year - 1).div_euclid(1000) * 1000 + 1),
        _ => None,
    }
}

fn all_characters(
    times: &TimestampMicrosecondArray,
    templates: &StringArray,
    names: &StringArray,
) -> Result<StringArray> {
    let mut zones = Zones::default();
    let mut known = Templates(None);
    let rows = times.iter().zip(templates).zip(names);
    rows.map(|row| {
        let ((Some(us), Some(template)), Some(name)) = row else {
            return Ok(None);
        };
        let zone = zones.get(name)?;
        let template = known.get(template, |text| Ok(Template::parse(text)))?;
        let clock = Clock {
            zone: abbreviation(name, us),
            offset: offset_text(offset_s(us, zone)),
        };
        Ok(Some(template.format(local(us, zone)?, Some(&clock))))
    })
    .collect()
}

/// As `to_json` writes it: fractions of a second as far as they go, the offset with its minutes.
fn iso_text(template: &Template, us: i64, zone: Tz) -> Result<String> {
    let mut text = template.format(local(us, zone)?, None);
    let fraction = us.rem_euclid(1_000_000);
    if fraction != 0 {
        let digits = format!(".{fraction:06}");
        text.push_str(digits.trim_end_matches('0'));
    }
    let offset = offset_text(offset_s(us, zone));
    text.push_str(&offset);
    if !offset.contains(':') {
        text.push_str(":00");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::datetime::parse_timestamptz;
    use crate::values::zones::parse;

    fn us(text: &str) -> i64 {
        parse_timestamptz(text, None).unwrap()
    }

    /// `date_trunc(unit, time, 'Europe/Berlin')` of PostgreSQL 15.
    #[test]
    fn units_begin_by_the_clock() {
        let berlin = parse("Europe/Berlin").unwrap();
        for (unit, time, expected) in [
            ("day", "2024-06-15 22:30+00", "2024-06-15 22:00+00"),
            ("day", "2024-10-27 12:00+00", "2024-10-26 22:00+00"),
            // The hour that the clock shows twice, the first and the second time.
            ("hour", "2024-10-27 00:30+00", "2024-10-27 00:00+00"),
            ("hour", "2024-10-27 01:30+00", "2024-10-27 01:00+00"),
            ("week", "2024-04-01 12:00+00", "2024-03-31 22:00+00"),
            ("quarter", "2024-06-15 12:00+00", "2024-03-31 22:00+00"),
            ("century", "2024-06-15 12:00+00", "2000-12-31 23:00+00"),
            (
                "milliseconds",
                "1969-12-31 23:59:59.9995+00",
                "1969-12-31 23:59:59.999+00",
            ),
        ] {
            let found = truncated(truncatable(unit).unwrap(), us(time), berlin).unwrap();
            assert_eq!(found, us(expected), "{unit} of {time}");
        }
        assert_eq!(truncatable("dow").unwrap_err().sqlstate(), "0A000");
    }

    #[test]
    fn days_are_as_long_as_the_clock_says() {
        let berlin = parse("Europe/Berlin").unwrap();
        let day = IntervalMonthDayNano::new(0, 1, 0);
        let hours = IntervalMonthDayNano::new(0, 0, 86_400_000_000_000);
        let noon = us("2024-03-30 11:00+00");
        assert_eq!(later(noon, day, berlin), Some(us("2024-03-31 10:00+00")));
        assert_eq!(later(noon, hours, berlin), Some(us("2024-03-31 11:00+00")));
        let month = IntervalMonthDayNano::new(-1, 0, 0);
        let last = us("2024-03-31 11:00+00");
        assert_eq!(later(last, month, berlin), Some(us("2024-02-29 12:00+00")));
    }
}

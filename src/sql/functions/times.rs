//! `timezone(zone, time)`: PostgreSQL's `AT TIME ZONE`.
//!
//! With a zone it gives the local time there, without one it reads the time as local there.

use std::sync::Arc;

use chrono::{NaiveDateTime, TimeZone, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, PrimitiveArray, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![udf(TimeZoneFunction {
        signature: Signature::user_defined(Volatility::Immutable),
    })]
}

/// A zone by name or offset.
pub fn parse_zone(name: &str) -> Result<Tz> {
    let trimmed = name.trim();
    let plain = match trimmed.to_ascii_lowercase().as_str() {
        "utc" | "gmt" | "z" | "zulu" => "UTC",
        _ => trimmed,
    };
    plain.parse::<Tz>().map_err(|_| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("time zone \"{name}\" not recognized"),
        )
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeZoneFunction {
    signature: Signature,
}

impl ScalarUDFImpl for TimeZoneFunction {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let [zone, time] = types else {
            return Err(no_function(self.name(), types).into());
        };
        let is_text = matches!(
            zone,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
        );
        let time = match time {
            DataType::Timestamp(_, None) | DataType::Date32 => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            // A text is read as a time with a zone, as in PostgreSQL.
            DataType::Timestamp(_, Some(_)) | DataType::Utf8 | DataType::Null => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            _ => return Err(no_function(self.name(), types).into()),
        };
        if !is_text {
            return Err(no_function(self.name(), types).into());
        }
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let zone = match types.get(1) {
            Some(DataType::Timestamp(_, Some(_))) => None,
            _ => Some("UTC".into()),
        };
        Ok(DataType::Timestamp(TimeUnit::Microsecond, zone))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let zones = columns[0].as_string::<i32>();
        let to_local = matches!(columns[1].data_type(), DataType::Timestamp(_, Some(_)));
        let times = columns[1].as_primitive::<TimestampMicrosecondType>();
        let converted = convert(zones, times, to_local)?;
        let converted = converted.with_timezone_opt((!to_local).then_some("UTC"));
        result(Arc::new(converted) as ArrayRef, constant)
    }
}

fn convert(
    zones: &StringArray,
    times: &PrimitiveArray<TimestampMicrosecondType>,
    to_local: bool,
) -> Result<TimestampMicrosecondArray> {
    // Nearly always one zone for all rows.
    let mut last: Option<(&str, Tz)> = None;
    let mut converted = Vec::with_capacity(times.len());
    for (name, time) in zones.iter().zip(times) {
        let (Some(name), Some(time)) = (name, time) else {
            converted.push(None);
            continue;
        };
        let zone = match last {
            Some((known, zone)) if known == name => zone,
            _ => parse_zone(name)?,
        };
        last = Some((name, zone));
        let moved = if to_local {
            local_time(time, zone)
        } else {
            universal_time(time, zone)
        };
        converted.push(Some(moved.ok_or_else(|| {
            Error::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
        })?));
    }
    Ok(converted.into_iter().collect())
}

/// Microseconds on the wall clock of a zone.
fn local_time(time_us: i64, zone: Tz) -> Option<i64> {
    let time = Utc.timestamp_micros(time_us).single()?;
    Some(
        time.with_timezone(&zone)
            .naive_local()
            .and_utc()
            .timestamp_micros(),
    )
}

/// Microseconds since the epoch of a wall clock; the standard time where it shows one time twice,
/// and the time before the change where it shows it never.
pub(super) fn universal_time(wall_us: i64, zone: Tz) -> Option<i64> {
    let wall: NaiveDateTime = Utc.timestamp_micros(wall_us).single()?.naive_utc();
    let found = zone.from_local_datetime(&wall);
    if let Some(time) = found.latest() {
        return Some(time.timestamp_micros());
    }
    let before = wall - chrono::Duration::hours(1);
    let time = zone.from_local_datetime(&before).latest()?;
    Some(time.timestamp_micros() + 3_600_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones() {
        let berlin = parse_zone("Europe/Berlin").unwrap();
        let noon = 1_750_000_000_000_000; // 2025-06-15 15:06:40 UTC, summer time
        let wall = local_time(noon, berlin).unwrap();
        assert_eq!(wall - noon, 2 * 3_600_000_000);
        assert_eq!(universal_time(wall, berlin), Some(noon));
        assert_eq!(
            parse_zone("Mars/Olympus").unwrap_err().primary(),
            "time zone \"Mars/Olympus\" not recognized"
        );
    }

    #[test]
    fn an_hour_that_never_was() {
        let berlin = parse_zone("Europe/Berlin").unwrap();
        // 2025-03-30 02:30 does not exist there; PostgreSQL reads it as 01:30 UTC.
        let wall = 1_743_301_800_000_000;
        assert_eq!(universal_time(wall, berlin), Some(wall - 3_600_000_000));
    }
}

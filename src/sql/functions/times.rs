//! `timezone(zone, time)`: PostgreSQL's `AT TIME ZONE`.
//!
//! With a zone it gives the local time there, without one it reads the time as local there.

use std::sync::Arc;

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
use crate::values::zones::{self, local_time, universal_time};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![time_zone()]
}

/// `timezone(zone, time)`
pub(crate) fn time_zone() -> Arc<ScalarUDF> {
    udf(TimeZoneFunction {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// A zone by name or specification. Errors: 22023 there is none of the name.
pub(super) fn parse_zone(name: &str) -> Result<Tz> {
    zones::parse(name).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("time zone \"{name}\" not recognized"),
        )
    })
}

/// The zones of many rows, nearly always one.
#[derive(Default)]
pub(super) struct Zones<'a>(Option<(&'a str, Tz)>);

impl<'a> Zones<'a> {
    /// As [`parse_zone`].
    pub fn get(&mut self, name: &'a str) -> Result<Tz> {
        match self.0 {
            Some((known, zone)) if known == name => Ok(zone),
            _ => {
                let zone = parse_zone(name)?;
                self.0 = Some((name, zone));
                Ok(zone)
            }
        }
    }
}

/// What the clocks of a zone show at moments.
pub(crate) fn shown_by(
    moments: &TimestampMicrosecondArray,
    zone: Tz,
) -> Result<TimestampMicrosecondArray> {
    let shown: TimestampMicrosecondArray =
        moments.try_unary(|us| local_time(us, zone).ok_or_else(out_of_range))?;
    Ok(shown.with_timezone_opt(None::<Arc<str>>))
}

/// The moments at which the clocks of a zone show times.
pub(crate) fn read_by(
    times: &TimestampMicrosecondArray,
    zone: Tz,
) -> Result<TimestampMicrosecondArray> {
    let moments: TimestampMicrosecondArray =
        times.try_unary(|us| universal_time(us, zone).ok_or_else(out_of_range))?;
    Ok(moments.with_timezone("UTC"))
}

pub(super) fn out_of_range() -> Error {
    Error::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
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
    let mut known = Zones::default();
    zones
        .iter()
        .zip(times)
        .map(|pair| match pair {
            (Some(name), Some(time)) => {
                let zone = known.get(name)?;
                let moved = match to_local {
                    true => local_time(time, zone),
                    false => universal_time(time, zone),
                };
                moved.map(Some).ok_or_else(out_of_range)
            }
            _ => Ok(None),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_zones() {
        assert_eq!(
            parse_zone("Mars/Olympus").unwrap_err().primary(),
            "time zone \"Mars/Olympus\" not recognized"
        );
    }
}

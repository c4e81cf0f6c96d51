//! `EXTRACT(field FROM time)` as numeric, with PostgreSQL's fields and scales (PostgreSQL 15
//! documentation, section 9.9.1). `date_part` is the same as double precision.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::intervals::INTERVAL;
use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

/// `extract_field(name, time)`
pub(super) fn extract() -> Arc<ScalarUDF> {
    udf(Extract {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// What `extract` and `date_trunc` take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Century,
    Day,
    Decade,
    DayOfWeek,
    DayOfYear,
    Epoch,
    Hour,
    IsoDayOfWeek,
    IsoYear,
    Julian,
    Microseconds,
    Millennium,
    Milliseconds,
    Minute,
    Month,
    Quarter,
    Second,
    TimeZone,
    Week,
    Year,
}

impl Field {
    pub fn parse(name: &str) -> Result<Self> {
        let lower = name.trim().to_ascii_lowercase();
        Ok(match lower.as_str() {
            "century" | "centuries" | "c" | "cent" => Self::Century,
            "day" | "days" | "d" => Self::Day,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "dow" => Self::DayOfWeek,
            "doy" => Self::DayOfYear,
            "epoch" => Self::Epoch,
            "hour" | "hours" | "h" | "hr" | "hrs" => Self::Hour,
            "isodow" => Self::IsoDayOfWeek,
            "isoyear" => Self::IsoYear,
            "julian" | "jd" | "j" => Self::Julian,
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Self::Microseconds,
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Self::Milliseconds,
            "minute" | "minutes" | "m" | "min" | "mins" => Self::Minute,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "qtr" => Self::Quarter,
            "second" | "seconds" | "s" | "sec" | "secs" => Self::Second,
            "timezone" | "timezone_hour" | "timezone_minute" => Self::TimeZone,
            "week" | "weeks" | "w" => Self::Week,
            "year" | "years" | "y" | "yr" | "yrs" => Self::Year,
            _ => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("unit \"{name}\" not recognized"),
                ));
            }
        })
    }

    /// Whether it is a day, or made of days.
    pub fn is_calendar_unit(self) -> bool {
        matches!(
            self,
            Self::Century
                | Self::Day
                | Self::Decade
                | Self::Millennium
                | Self::Month
                | Self::Quarter
                | Self::Week
                | Self::Year
        )
    }

    /// The length of a unit that is shorter than a day.
    pub fn length_us(self) -> Option<i64> {
        Some(match self {
            Self::Hour => 3_600_000_000,
            Self::Minute => 60_000_000,
            Self::Second => 1_000_000,
            Self::Milliseconds => 1_000,
            Self::Microseconds => 1,
            _ => return None,
        })
    }

    /// Fractional digits of the result.
    fn scale(self, of_date: bool) -> i8 {
        match self {
            Self::Second => 6,
            Self::Milliseconds => 3,
            Self::Epoch | Self::Julian if !of_date => 6,
            _ => 0,
        }
    }

    /// Unscaled value at a moment; `None`: the type has no such field.
    fn of_moment(self, moment: NaiveDateTime, scale: i8) -> i128 {
        let date = moment.date();
        let year = i64::from(date.year());
        let of_day_us = time_of_day_us(moment);
        let value = match self {
            Self::Century => hundreds(year, 100),
            Self::Millennium => hundreds(year, 1000),
            Self::Decade => year.div_euclid(10),
            Self::Year => {
                if year > 0 {
                    year
                } else {
                    year - 1
                }
            }
            Self::IsoYear => i64::from(date.iso_week().year()),
            Self::Quarter => i64::from(date.month0() / 3 + 1),
            Self::Month => i64::from(date.month()),
            Self::Week => i64::from(date.iso_week().week()),
            Self::Day => i64::from(date.day()),
            Self::DayOfYear => i64::from(date.ordinal()),
            Self::DayOfWeek => i64::from(date.weekday().num_days_from_sunday()),
            Self::IsoDayOfWeek => i64::from(date.weekday().number_from_monday()),
            Self::TimeZone => 0,
            Self::Epoch => {
                let us = i128::from(moment.and_utc().timestamp_micros());
                return if scale == 0 {
                    us.div_euclid(1_000_000)
                } else {
                    us
                };
            }
            Self::Julian => {
                let days = i128::from(date.num_days_from_ce()) + 1_721_425;
                let fraction = i128::from(of_day_us) * 1_000_000 / 86_400_000_000;
                return if scale == 0 {
                    days
                } else {
                    days * 1_000_000 + fraction
                };
            }
            Self::Hour | Self::Minute | Self::Second | Self::Milliseconds | Self::Microseconds => {
                return self.of_time(of_day_us);
            }
        };
        i128::from(value)
    }

    /// Unscaled value of a field of a time of day.
    fn of_time(self, us: i64) -> i128 {
        let within_minute = us % 60_000_000;
        i128::from(match self {
            Self::Hour => us / 3_600_000_000,
            Self::Minute => us / 60_000_000 % 60,
            // In microseconds: the scale is 6, 3 or 0.
            _ => within_minute,
        })
    }

    fn of_interval(self, interval: IntervalMonthDayNano) -> Option<i128> {
        let us = interval.nanoseconds / 1_000;
        let months = i64::from(interval.months);
        let years = months / 12;
        Some(i128::from(match self {
            Self::Millennium => years / 1000,
            Self::Century => years / 100,
            Self::Decade => years / 10,
            Self::Year => years,
            Self::Quarter => months % 12 / 3 + 1,
            Self::Month => months % 12,
            Self::Day => i64::from(interval.days),
            Self::Hour => us / 3_600_000_000,
            Self::Minute | Self::Second | Self::Milliseconds | Self::Microseconds => {
                return Some(self.of_time(us));
            }
            Self::Epoch => {
                // A year of 365.25 days, and months of 30 beyond that.
                let days_quarters = i128::from(years) * 1461 + i128::from(months % 12) * 120;
                let days = i128::from(interval.days);
                return Some(
                    days_quarters * 21_600_000_000 + days * 86_400_000_000 + i128::from(us),
                );
            }
            _ => return None,
        }))
    }
}

/// Centuries and millennia count from 1, without a zero.
fn hundreds(year: i64, length: i64) -> i64 {
    match year > 0 {
        true => (year + length - 1) / length,
        false => -((length - 1 - (year - 1)) / length),
    }
}

fn time_of_day_us(moment: NaiveDateTime) -> i64 {
    let time = moment.time();
    i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond() / 1_000)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extract {
    signature: Signature,
}

impl Extract {
    fn out_of_range() -> Error {
        Error::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
    }

    fn unscaled(field: Field, column: &ArrayRef, scale: i8) -> Result<Vec<Option<i128>>> {
        let unsupported = || {
            Error::unsupported(format!(
                "this unit is not supported for type {}",
                crate::error::mapping::type_name(column.data_type())
            ))
        };
        match column.data_type() {
            DataType::Date32 => column
                .as_primitive::<Date32Type>()
                .iter()
                .map(|days| {
                    days.map(|days| {
                        let date =
                            Date32Type::to_naive_date_opt(days).ok_or_else(Self::out_of_range)?;
                        Ok(field.of_moment(date.into(), scale))
                    })
                    .transpose()
                })
                .collect(),
            DataType::Timestamp(..) => column
                .as_primitive::<TimestampMicrosecondType>()
                .iter()
                .map(|us| {
                    us.map(|us| {
                        let moment =
                            DateTime::from_timestamp_micros(us).ok_or_else(Self::out_of_range)?;
                        Ok(field.of_moment(moment.naive_utc(), scale))
                    })
                    .transpose()
                })
                .collect(),
            DataType::Time64(_) => column
                .as_primitive::<Time64MicrosecondType>()
                .iter()
                .map(|us| {
                    us.map(|us| match field {
                        Field::Epoch => Ok(i128::from(us)),
                        Field::Hour
                        | Field::Minute
                        | Field::Second
                        | Field::Milliseconds
                        | Field::Microseconds => Ok(field.of_time(us)),
                        _ => Err(unsupported()),
                    })
                    .transpose()
                })
                .collect(),
            DataType::Interval(_) => column
                .as_primitive::<IntervalMonthDayNanoType>()
                .iter()
                .map(|i| {
                    i.map(|i| field.of_interval(i).ok_or_else(unsupported))
                        .transpose()
                })
                .collect(),
            _ => Err(unsupported()),
        }
    }
}

impl ScalarUDFImpl for Extract {
    fn name(&self) -> &str {
        "extract_field"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let [_, time] = types else {
            return Err(no_function("extract", types).into());
        };
        let time = match time {
            DataType::Date32 => DataType::Date32,
            DataType::Timestamp(_, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
            DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
            DataType::Utf8 | DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => return Err(no_function("extract", types).into()),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("extract has a field, not a type").into())
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs,
    ) -> DataFusionResult<datafusion::arrow::datatypes::FieldRef> {
        let name = match args.scalar_arguments.first() {
            Some(Some(ScalarValue::Utf8(Some(name)))) => name.as_str(),
            _ => "second",
        };
        let of_date = args
            .arg_fields
            .get(1)
            .is_some_and(|f| f.data_type() == &DataType::Date32);
        let scale = Field::parse(name)?.scale(of_date);
        let field = datafusion::arrow::datatypes::Field::new(
            "extract",
            DataType::Decimal128(24, scale),
            true,
        );
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return Err(Error::internal("extract gives a numeric").into());
        };
        let (columns, constant) = arrays(&args)?;
        let names = columns[0].as_string::<i32>();
        let mut values: Vec<Option<i128>> = Vec::with_capacity(names.len());
        let is_one = (1..names.len()).all(|row| names.value(row) == names.value(0));
        if is_one && !names.is_empty() && names.is_valid(0) {
            values = Self::unscaled(Field::parse(names.value(0))?, &columns[1], scale)?;
        } else {
            for row in 0..names.len() {
                let one = columns[1].slice(row, 1);
                let value = match names.is_valid(row) {
                    true => Self::unscaled(Field::parse(names.value(row))?, &one, scale)?,
                    false => vec![None],
                };
                values.extend(value);
            }
        }
        let values = Decimal128Array::from(values).with_precision_and_scale(precision, scale)?;
        result(Arc::new(values), constant)
    }
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    #[test]
    fn fields_of_moments() {
        let moment = NaiveDate::from_ymd_opt(2024, 12, 30)
            .and_then(|d| d.and_hms_micro_opt(10, 20, 30, 500_000))
            .unwrap();
        for (field, scale, expected) in [
            (Field::Century, 0, 21),
            (Field::Millennium, 0, 3),
            (Field::Decade, 0, 202),
            (Field::IsoYear, 0, 2025),
            (Field::Week, 0, 1),
            (Field::IsoDayOfWeek, 0, 1),
            (Field::DayOfWeek, 0, 1),
            (Field::Second, 6, 30_500_000),
            (Field::Milliseconds, 3, 30_500_000),
            (Field::Epoch, 6, 1_735_554_030_500_000),
            (Field::Julian, 0, 2_460_675),
        ] {
            assert_eq!(field.of_moment(moment, scale), expected, "{field:?}");
        }
        assert_eq!(hundreds(1900, 100), 19);
        assert_eq!(hundreds(1901, 100), 20);
        assert_eq!(hundreds(0, 100), -1);
    }

    #[test]
    fn fields_of_intervals() {
        let interval = IntervalMonthDayNano::new(14, 3, 4 * 3_600_000_000_000);
        assert_eq!(Field::Year.of_interval(interval), Some(1));
        assert_eq!(Field::Month.of_interval(interval), Some(2));
        let day = IntervalMonthDayNano::new(0, 1, 0);
        assert_eq!(Field::Epoch.of_interval(day), Some(86_400_000_000));
        let year = IntervalMonthDayNano::new(12, 0, 0);
        assert_eq!(Field::Epoch.of_interval(year), Some(31_557_600_000_000));
        assert_eq!(Field::Week.of_interval(day), None);
    }
}

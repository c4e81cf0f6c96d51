//! `to_char`, `to_timestamp`, `to_date` with PostgreSQL's templates. DataFusion's functions of
//! these names read another pattern language and would answer wrongly without an error.

use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::format::{Clock, Template};
use super::{arrays, no_function, numbers, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Which::Characters, Which::Timestamp, Which::Date]
        .map(function)
        .to_vec()
}

/// What `to_timestamp(text, template)` reads, without a zone.
pub(crate) fn read_wall() -> Arc<ScalarUDF> {
    function(Which::Wall)
}

fn function(which: Which) -> Arc<ScalarUDF> {
    udf(TemplateFunction {
        which,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Characters,
    Timestamp,
    Wall,
    Date,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TemplateFunction {
    which: Which,
    signature: Signature,
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
    )
}

fn timestamp(zone: bool) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.then(|| "UTC".into()))
}

impl ScalarUDFImpl for TemplateFunction {
    fn name(&self) -> &str {
        match self.which {
            Which::Characters => "to_char",
            Which::Timestamp => "to_timestamp",
            Which::Wall => "to_wall_time",
            Which::Date => "to_date",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let coerced = match (self.which, types) {
            (Which::Characters, [value, template]) if is_text(template) => {
                let value = match value {
                    DataType::Timestamp(_, None) | DataType::Date32 => Some(timestamp(false)),
                    DataType::Timestamp(_, Some(_)) => Some(timestamp(true)),
                    DataType::Decimal128(..) | DataType::Interval(_) => Some(value.clone()),
                    t if t.is_integer() => Some(DataType::Int64),
                    DataType::Float32 | DataType::Float64 | DataType::Null => {
                        Some(DataType::Float64)
                    }
                    _ => None,
                };
                value.map(|v| vec![v, DataType::Utf8])
            }
            (Which::Timestamp | Which::Wall | Which::Date, [value, template])
                if is_text(value) && is_text(template) =>
            {
                Some(vec![DataType::Utf8, DataType::Utf8])
            }
            (Which::Timestamp, [value]) if value.is_numeric() => Some(vec![DataType::Float64]),
            // With one argument these are casts, as in Spark.
            (Which::Timestamp, [value])
                if is_text(value)
                    || matches!(value, DataType::Timestamp(..) | DataType::Date32) =>
            {
                Some(vec![timestamp(true)])
            }
            (Which::Date, [value])
                if is_text(value)
                    || matches!(value, DataType::Timestamp(..) | DataType::Date32) =>
            {
                Some(vec![DataType::Date32])
            }
            _ => None,
        };
        coerced.ok_or_else(|| no_function(self.name(), types).into())
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.which {
            Which::Characters => DataType::Utf8,
            Which::Timestamp => timestamp(true),
            Which::Wall => timestamp(false),
            Which::Date => DataType::Date32,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let computed: ArrayRef = match (self.which, columns.as_slice()) {
            (Which::Characters, [value, template]) => {
                Arc::new(to_char(value, template.as_string::<i32>())?)
            }
            (Which::Timestamp, [value]) => match value.data_type() {
                DataType::Float64 => Arc::new(from_epoch(value.as_primitive())?),
                _ => Arc::clone(value),
            },
            (Which::Timestamp | Which::Wall, [text, template]) => {
                let times = read(text.as_string::<i32>(), template.as_string::<i32>())?;
                let times: TimestampMicrosecondArray = times
                    .into_iter()
                    .map(|t| t.map(|t| t.and_utc().timestamp_micros()))
                    .collect();
                let has_zone = self.which == Which::Timestamp;
                Arc::new(times.with_timezone_opt(has_zone.then_some("UTC")))
            }
            (Which::Date, [text, template]) => {
                let times = read(text.as_string::<i32>(), template.as_string::<i32>())?;
                let days: Date32Array =
                    times.into_iter().map(|t| t.map(days_since_epoch)).collect();
                Arc::new(days)
            }
            (_, [value]) => Arc::clone(value),
            _ => return Err(no_function(self.name(), &[]).into()),
        };
        result(computed, constant)
    }
}

fn days_since_epoch(time: NaiveDateTime) -> i32 {
    let days = time.and_utc().timestamp().div_euclid(86_400);
    // chrono's years fit into 32 bits of days.
    i32::try_from(days).unwrap_or(i32::MAX)
}

/// Seconds since the epoch, with a fraction.
fn from_epoch(seconds: &Float64Array) -> Result<TimestampMicrosecondArray> {
    let times = seconds
        .iter()
        .map(|s| {
            s.map(|s| {
                let us = (s * 1e6).round();
                if us.abs() < 9.2e18 {
                    Ok(us as i64)
                } else {
                    Err(Error::new(
                        sqlstate::DATETIME_OVERFLOW,
                        "timestamp out of range",
                    ))
                }
            })
            .transpose()
        })
        .collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(times.with_timezone("UTC"))
}

/// Nearly always one template for all rows: it is read when it changes.
pub(super) struct Templates<'a, T>(pub Option<(&'a str, T)>);

impl<'a, T> Templates<'a, T> {
    pub fn get(&mut self, text: &'a str, parse: impl FnOnce(&str) -> Result<T>) -> Result<&T> {
        let known = matches!(&self.0, Some((last, _)) if *last == text);
        if !known {
            self.0 = Some((text, parse(text)?));
        }
        match &self.0 {
            Some((_, template)) => Ok(template),
            None => Err(Error::internal("a template was not kept")),
        }
    }
}

fn read(texts: &StringArray, templates: &StringArray) -> Result<Vec<Option<NaiveDateTime>>> {
    let mut cache = Templates(None);
    texts
        .iter()
        .zip(templates)
        .map(|pair| match pair {
            (Some(text), Some(template)) => cache
                .get(template, |t| Ok(Template::parse(t)))?
                .read(text)
                .map(Some),
            _ => Ok(None),
        })
        .collect()
}

fn to_char(values: &ArrayRef, templates: &StringArray) -> Result<StringArray> {
    match values.data_type() {
        DataType::Timestamp(_, zone) => {
            let clock = zone.as_deref().map(|_| Clock::utc());
            let mut cache = Templates(None);
            values
                .as_primitive::<TimestampMicrosecondType>()
                .iter()
                .zip(templates)
                .map(|pair| match pair {
                    (Some(us), Some(template)) => {
                        let time = DateTime::from_timestamp_micros(us).ok_or_else(|| {
                            Error::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
                        })?;
                        let template = cache.get(template, |t| Ok(Template::parse(t)))?;
                        Ok(Some(template.format(time.naive_utc(), clock.as_ref())))
                    }
                    _ => Ok(None),
                })
                .collect()
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let mut cache = Templates(None);
            values
                .as_primitive::<IntervalMonthDayNanoType>()
                .iter()
                .zip(templates)
                .map(|pair| match pair {
                    (Some(interval), Some(template)) => {
                        let template = cache.get(template, |t| Ok(Template::parse(t)))?;
                        template.format_interval(interval).map(Some)
                    }
                    _ => Ok(None),
                })
                .collect()
        }
        DataType::Int64 => numbers_to_char(
            values
                .as_primitive::<Int64Type>()
                .iter()
                .map(|v| v.map(|v| v.to_string())),
            templates,
        ),
        DataType::Decimal128(_, scale) => {
            let scale = usize::try_from(*scale).unwrap_or(0);
            numbers_to_char(
                values
                    .as_primitive::<Decimal128Type>()
                    .iter()
                    .map(|v| v.map(|v| numbers::decimal_text(v, scale))),
                templates,
            )
        }
        _ => numbers_to_char(
            values
                .as_primitive::<Float64Type>()
                .iter()
                .map(|v| v.map(|v| format!("{v:.15}"))),
            templates,
        ),
    }
}

fn numbers_to_char(
    values: impl Iterator<Item = Option<String>>,
    templates: &StringArray,
) -> Result<StringArray> {
    let mut cache = Templates(None);
    values
        .zip(templates)
        .map(|pair| match pair {
            (Some(value), Some(template)) => cache
                .get(template, numbers::NumberTemplate::parse)
                .map(|t| Some(t.format(&value))),
            _ => Ok(None),
        })
        .collect()
}

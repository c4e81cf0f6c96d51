//! `date_trunc(unit, time)` of times, dates and intervals (PostgreSQL 15 documentation, section
//! 9.9.2). A date is a moment, as there. With a zone it is [`super::zoned`]'s.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::intervals::INTERVAL;
use super::zoned::Units;
use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

/// Units that the engine cuts to, which it does in fewer steps.
const ENGINES: [&str; 10] = [
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
];

pub(super) fn date_trunc() -> Arc<ScalarUDF> {
    udf(DateTrunc {
        engine: datafusion::functions::datetime::date_trunc(),
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    engine: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let [unit, time] = types else {
            return Err(no_function(self.name(), types).into());
        };
        let is_text = |t: &DataType| {
            matches!(
                t,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
            )
        };
        let zone = match time {
            DataType::Interval(_) | DataType::Duration(_) if is_text(unit) => {
                return Ok(vec![DataType::Utf8, INTERVAL]);
            }
            DataType::Timestamp(_, zone) => zone.clone(),
            DataType::Date32 => Some("UTC".into()),
            other if is_text(other) => Some("UTC".into()),
            _ => return Err(no_function(self.name(), types).into()),
        };
        match is_text(unit) {
            true => Ok(vec![
                DataType::Utf8,
                DataType::Timestamp(TimeUnit::Microsecond, zone),
            ]),
            false => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        types
            .get(1)
            .cloned()
            .ok_or_else(|| no_function(self.name(), types).into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let fields: Vec<DataType> = super::types_of(args.arg_fields);
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let returned = self.return_type(&fields)?;
        Ok(Arc::new(datafusion::arrow::datatypes::Field::new(
            self.name(),
            returned,
            nullable,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let is_time = matches!(args.return_field.data_type(), DataType::Timestamp(..));
        if is_time && args.args.first().is_some_and(is_engines) {
            return self.engine.invoke_with_args(args);
        }
        let (columns, constant) = arrays(&args)?;
        let units = columns[0].as_string::<i32>();
        let cut: ArrayRef = match columns[1].data_type() {
            DataType::Interval(_) => Arc::new(cut_intervals(units, columns[1].as_primitive())?),
            _ => {
                let utc: Tz = "+00:00".parse()?;
                let times = columns[1].as_primitive::<TimestampMicrosecondType>();
                let mut known = Units::default();
                let cut = units.iter().zip(times).map(|row| match row {
                    (Some(unit), Some(us)) => known.truncated(unit, us, utc).map(Some),
                    _ => Ok(None),
                });
                let cut =
                    cut.collect::<Result<datafusion::arrow::array::TimestampMicrosecondArray>>()?;
                Arc::new(cut.with_data_type(columns[1].data_type().clone()))
            }
        };
        result(cut, constant)
    }
}

fn is_engines(unit: &ColumnarValue) -> bool {
    match unit {
        ColumnarValue::Scalar(ScalarValue::Utf8(Some(unit))) => {
            ENGINES.iter().any(|known| known.eq_ignore_ascii_case(unit))
        }
        _ => false,
    }
}

fn cut_intervals(
    units: &StringArray,
    intervals: &datafusion::arrow::array::PrimitiveArray<IntervalMonthDayNanoType>,
) -> Result<IntervalMonthDayNanoArray> {
    let rows = units.iter().zip(intervals);
    rows.map(|row| match row {
        (Some(unit), Some(interval)) => truncated(unit, interval).map(Some),
        _ => Ok(None),
    })
    .collect()
}

/// Cuts an interval's fields below a unit.
fn truncated(unit: &str, interval: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    } = interval;
    let of_months = |length: i32| IntervalMonthDayNano::new(months / length * length, 0, 0);
    let of_time = |length_ns: i64| {
        IntervalMonthDayNano::new(months, days, nanoseconds / length_ns * length_ns)
    };
    Ok(match unit.to_ascii_lowercase().trim_end_matches('s') {
        "millennium" | "millennia" => of_months(12_000),
        "century" | "centurie" => of_months(1_200),
        "decade" => of_months(120),
        "year" => of_months(12),
        "quarter" => of_months(3),
        "month" => of_months(1),
        "day" => IntervalMonthDayNano::new(months, days, 0),
        "hour" => of_time(3_600_000_000_000),
        "minute" => of_time(60_000_000_000),
        "second" => of_time(1_000_000_000),
        "millisecond" => of_time(1_000_000),
        "microsecond" => of_time(1_000),
        _ => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("unit \"{unit}\" not recognized for type interval"),
            ));
        }
    })
}

//! Assignment casts: a value of one type into a column of another, as PostgreSQL's INSERT and
//! UPDATE do it.
//!
//! Numbers go into any numeric type with rounding and a range check, anything goes into text, and a
//! literal (of no type yet) is read by the column's input function. Text that is not a literal
//! goes into no other type without a cast that is written.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};

use super::text::{numeric_overflow, parse_text};
use crate::catalog::definition::ColumnDefinition;
use crate::error::{Error, Result, sqlstate};
use crate::sql::functions::texts::write_column;
use crate::sql::functions::times::{read_by, shown_by};
use crate::types::SqlType;
use crate::values::OutputSettings;

/// Whether values are literals that have no type of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// `'2024-01-01'`
    Literal,
    /// a column, a function's result
    Typed,
}

/// Casts `values`, described by `field`, into `column`.
pub(super) fn assign(
    values: &ArrayRef,
    field: &FieldRef,
    column: &ColumnDefinition,
    origin: Origin,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    let wanted = column.sql_type.to_arrow();
    if values.data_type() == &DataType::Null {
        return Ok(new_null_array(&wanted, values.len()));
    }
    let from = SqlType::from_field(field).ok_or_else(|| mismatch(column, "unknown"))?;
    if from == column.sql_type && values.data_type() == &wanted {
        return Ok(Arc::clone(values));
    }
    match (&from, &column.sql_type) {
        (SqlType::Text | SqlType::Json | SqlType::Jsonb, SqlType::Text) => {
            Ok(cast(values, &DataType::Utf8)?)
        }
        (SqlType::Json | SqlType::Jsonb, SqlType::Json | SqlType::Jsonb) => {
            Ok(cast(values, &DataType::Utf8)?)
        }
        (SqlType::Text, to) if origin == Origin::Literal || is_text_form(to) => {
            let texts = cast(values, &DataType::Utf8)?;
            parse_text(texts.as_string::<i32>(), to, settings)
        }
        (_, SqlType::Text) => text(values, field, &from, settings),
        (from, to) if from.is_number() && to.is_number() => number(values, to),
        (from, to) if is_time(from) && is_time(to) => match settings.time_zone {
            Some(zone) => strict_cast(&by_clocks(values, from, to, zone)?, to),
            None => strict_cast(values, to),
        },
        (from, to) if std::mem::discriminant(from) == std::mem::discriminant(to) => {
            strict_cast(values, to)
        }
        (from, _) => Err(mismatch(column, &type_name(from))),
    }
}

/// As the type's output function writes it; a boolean becomes a whole word, as in a cast.
fn text(
    values: &ArrayRef,
    field: &FieldRef,
    from: &SqlType,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    match from {
        SqlType::Boolean => Ok(cast(values, &DataType::Utf8)?),
        _ => write_column(values, field, settings),
    }
}

/// A moment as what the clocks of a zone show, and the other way round.
fn by_clocks(values: &ArrayRef, from: &SqlType, to: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let as_times = |sql_type: &SqlType| Ok::<_, Error>(cast(values, &sql_type.to_arrow())?);
    match (from, to) {
        (SqlType::TimestampTz, SqlType::TimestampTz) => Ok(Arc::clone(values)),
        (SqlType::TimestampTz, _) => {
            let moments = as_times(&SqlType::TimestampTz)?;
            Ok(Arc::new(shown_by(moments.as_primitive(), zone)?))
        }
        (SqlType::Date | SqlType::Timestamp, SqlType::TimestampTz) => {
            let walls = as_times(&SqlType::Timestamp)?;
            Ok(Arc::new(read_by(walls.as_primitive(), zone)?))
        }
        _ => Ok(Arc::clone(values)),
    }
}

/// Types that expressions hold as text here.
fn is_text_form(sql_type: &SqlType) -> bool {
    matches!(
        sql_type,
        SqlType::Json | SqlType::Jsonb | SqlType::Uuid | SqlType::Interval | SqlType::Struct(_)
    )
}

fn is_time(sql_type: &SqlType) -> bool {
    matches!(
        sql_type,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time
    )
}

fn mismatch(column: &ColumnDefinition, from: &str) -> Error {
    Error::new(
        sqlstate::DATATYPE_MISMATCH,
        format!(
            "column \"{}\" is of type {} but expression is of type {from}",
            column.name,
            type_name(&column.sql_type)
        ),
    )
    .hint("You will need to rewrite or cast the expression.")
}

/// `numeric` without its precision, as messages name it.
fn type_name(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Numeric { .. } => "numeric".to_owned(),
        other => other.to_string(),
    }
}

fn number(values: &ArrayRef, to: &SqlType) -> Result<ArrayRef> {
    let is_whole = matches!(to, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let rounded: ArrayRef = match values.data_type() {
        // PostgreSQL rounds a float to the nearest even number, a numeric away from zero.
        DataType::Float16 | DataType::Float32 | DataType::Float64 if is_whole => {
            let floats = cast(values, &DataType::Float64)?;
            let floats = floats.as_primitive::<Float64Type>();
            let rounded: Float64Array = floats.unary(f64::round_ties_even);
            Arc::new(rounded)
        }
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)
            if is_whole =>
        {
            cast(values, &DataType::Decimal128(38, 0))?
        }
        _ => Arc::clone(values),
    };
    strict_cast(&rounded, to)
}

/// A cast in which a value that does not fit is an error.
fn strict_cast(values: &ArrayRef, to: &SqlType) -> Result<ArrayRef> {
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let result = cast_with_options(values, &to.to_arrow(), &options)?;
    if result.null_count() == values.null_count() {
        return Ok(result);
    }
    Err(match to {
        SqlType::Numeric { precision, scale } => numeric_overflow(*precision, *scale),
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => {
            Error::new(sqlstate::DATETIME_OVERFLOW, format!("{to} out of range"))
        }
        _ => Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, format!("{to} out of range")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, Int32Array, Int64Array, StringArray};
    use datafusion::arrow::datatypes::{Field, Int16Type, Int32Type};

    fn column(sql_type: SqlType) -> ColumnDefinition {
        ColumnDefinition::new("x", sql_type)
    }

    fn assigned(values: impl Array + 'static, to: SqlType, origin: Origin) -> Result<ArrayRef> {
        let field = Arc::new(Field::new("v", values.data_type().clone(), true));
        let values: ArrayRef = Arc::new(values);
        assign(
            &values,
            &field,
            &column(to),
            origin,
            &OutputSettings::default(),
        )
    }

    #[test]
    fn numbers_round_and_stay_in_range() {
        let floats = Float64Array::from(vec![Some(0.5), Some(1.5), None, Some(-2.5)]);
        let read = assigned(floats, SqlType::Integer, Origin::Typed).unwrap();
        assert_eq!(
            read.as_primitive::<Int32Type>(),
            &Int32Array::from(vec![Some(0), Some(2), None, Some(-2)])
        );
        let decimals = Decimal128Array::from(vec![250, -250, 149])
            .with_precision_and_scale(10, 2)
            .unwrap();
        let read = assigned(decimals, SqlType::SmallInt, Origin::Typed).unwrap();
        assert_eq!(read.as_primitive::<Int16Type>().values(), &[3, -3, 1]);
        let error = assigned(
            Int64Array::from(vec![1, 40_000]),
            SqlType::SmallInt,
            Origin::Typed,
        )
        .unwrap_err();
        assert_eq!(error.primary(), "smallint out of range");
        let numeric = SqlType::Numeric {
            precision: 3,
            scale: 1,
        };
        let error = assigned(Int64Array::from(vec![100]), numeric, Origin::Typed).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::NUMERIC_OUT_OF_RANGE);
    }

    #[test]
    fn only_literals_leave_text() {
        let texts = || StringArray::from(vec![Some("7"), None]);
        assert!(assigned(texts(), SqlType::BigInt, Origin::Literal).is_ok());
        let error = assigned(texts(), SqlType::BigInt, Origin::Typed).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::DATATYPE_MISMATCH);
        assert_eq!(
            error.primary(),
            "column \"x\" is of type bigint but expression is of type text"
        );
        let read = assigned(
            Float64Array::from(vec![1.0, 2.5]),
            SqlType::Text,
            Origin::Typed,
        );
        let read = read.unwrap();
        assert_eq!(
            read.as_string::<i32>(),
            &StringArray::from(vec!["1", "2.5"])
        );
        let error = assigned(Int64Array::from(vec![1]), SqlType::Boolean, Origin::Typed);
        assert_eq!(error.unwrap_err().sqlstate(), sqlstate::DATATYPE_MISMATCH);
    }
}

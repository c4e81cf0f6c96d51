//! Text to values of a column, by the input function of its type.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};

use crate::error::{Error, Result, sqlstate};
use crate::sql::functions::texts::read_column;
use crate::types::SqlType;
use crate::values::OutputSettings;

/// Reads a column of text as `sql_type`.
pub(super) fn parse_text(
    texts: &StringArray,
    sql_type: &SqlType,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    let texts: ArrayRef = Arc::new(texts.clone());
    match sql_type {
        SqlType::Text => Ok(texts),
        _ => read_column(&texts, sql_type, settings),
    }
}

/// `numeric field overflow`.
pub(super) fn numeric_overflow(precision: u8, scale: i8) -> Error {
    let digits = i32::from(precision) - i32::from(scale);
    Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "numeric field overflow").detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{digits}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int32Array};
    use datafusion::arrow::datatypes::{Int32Type, TimestampMicrosecondType};

    /// By UTC's clocks.
    fn parse_text(texts: &StringArray, sql_type: &SqlType) -> Result<ArrayRef> {
        super::parse_text(texts, sql_type, &OutputSettings::default())
    }

    fn texts(values: &[Option<&str>]) -> StringArray {
        values.iter().copied().collect()
    }

    #[test]
    fn numbers_and_what_is_wrong_with_them() {
        let read = parse_text(&texts(&[Some("1"), None, Some(" -7 ")]), &SqlType::Integer).unwrap();
        assert_eq!(
            read.as_primitive::<Int32Type>(),
            &Int32Array::from(vec![Some(1), None, Some(-7)])
        );
        for (text, code) in [
            ("x", sqlstate::INVALID_TEXT),
            ("", sqlstate::INVALID_TEXT),
            ("1.5", sqlstate::INVALID_TEXT),
            ("99999999999", sqlstate::NUMERIC_OUT_OF_RANGE),
        ] {
            let error = parse_text(&texts(&[Some("1"), Some(text)]), &SqlType::Integer);
            assert_eq!(error.unwrap_err().sqlstate(), code, "{text}");
        }
        let numeric = SqlType::Numeric {
            precision: 4,
            scale: 2,
        };
        assert!(parse_text(&texts(&[Some("99.99")]), &numeric).is_ok());
        let error = parse_text(&texts(&[Some("100")]), &numeric).unwrap_err();
        assert_eq!(error.primary(), "numeric field overflow");
    }

    #[test]
    fn words_bytes_and_times() {
        let read = parse_text(&texts(&[Some("t"), Some("OFF"), None]), &SqlType::Boolean).unwrap();
        assert_eq!(
            read.as_boolean(),
            &BooleanArray::from(vec![Some(true), Some(false), None])
        );
        assert!(parse_text(&texts(&[Some("o")]), &SqlType::Boolean).is_err());
        let read = parse_text(
            &texts(&[Some("\\xDEad"), Some("a\\\\\\001")]),
            &SqlType::Bytea,
        );
        let read = read.unwrap();
        assert_eq!(read.as_binary::<i32>().value(0), &[0xde, 0xad]);
        assert_eq!(read.as_binary::<i32>().value(1), b"a\\\x01");
        let read = parse_text(
            &texts(&[Some("2024-05-06 07:08:09+02"), Some("2024-05-06")]),
            &SqlType::TimestampTz,
        )
        .unwrap();
        let read = read.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(
            read.value(0) - read.value(1),
            (5 * 3600 + 8 * 60 + 9) * 1_000_000
        );
        let error = parse_text(&texts(&[Some("soon")]), &SqlType::Date).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::INVALID_DATETIME);
        assert_eq!(
            error.primary(),
            "invalid input syntax for type date: \"soon\""
        );
    }

    #[test]
    fn arrays_nest_and_quote() {
        let of_text = SqlType::Array(Box::new(SqlType::Text));
        let read = parse_text(
            &texts(&[Some("{a,\"b,\\\"c\",NULL,\"NULL\"}"), None, Some("{}")]),
            &of_text,
        )
        .unwrap();
        let list = read.as_list::<i32>();
        assert!(list.is_null(1));
        assert_eq!(list.value_length(2), 0);
        let first = list.value(0);
        let first: Vec<_> = first.as_string::<i32>().iter().collect();
        assert_eq!(first, vec![Some("a"), Some("b,\"c"), None, Some("NULL")]);
        let nested = SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Integer))));
        let read = parse_text(&texts(&[Some("{{1,2},{3}}")]), &nested).unwrap();
        assert_eq!(read.as_list::<i32>().value_length(0), 2);
        assert!(parse_text(&texts(&[Some("{1")]), &of_text).is_err());
        assert!(parse_text(&texts(&[Some("{1,,2}")]), &of_text).is_err());
    }
}

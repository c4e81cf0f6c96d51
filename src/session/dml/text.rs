//! Text to values, as PostgreSQL's input functions read it.
//!
//! A whole column at a time: the fast parser first; only where it fails is a value looked at alone,
//! to find what is wrong with it. JSON keeps its text and is only checked.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryBuilder, RecordBatch, StringArray,
    StructArray, new_null_array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options, concat};
use datafusion::arrow::datatypes::{DataType, Field};

use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// Reads a column of text as `sql_type`.
pub(super) fn parse_text(texts: &StringArray, sql_type: &SqlType) -> Result<ArrayRef> {
    match sql_type {
        SqlType::Text => Ok(Arc::new(texts.clone())),
        SqlType::Boolean => each(texts, sql_type, boolean)
            .map(|values| Arc::new(BooleanArray::from(values)) as ArrayRef),
        SqlType::Bytea => each(texts, sql_type, bytea).map(|values| {
            Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>()) as ArrayRef
        }),
        SqlType::Uuid => uuids(texts),
        SqlType::Json | SqlType::Jsonb => {
            each(texts, sql_type, |text| {
                serde_json::from_str::<serde::de::IgnoredAny>(text).ok()
            })?;
            Ok(Arc::new(texts.clone()))
        }
        SqlType::Array(item) => arrays(texts, sql_type, item),
        SqlType::Struct(_) => structs(texts, sql_type),
        _ => scalars(texts, sql_type),
    }
}

/// `invalid input syntax for type integer: "abc"`, or out of range.
pub(super) fn invalid(text: &str, sql_type: &SqlType) -> Error {
    let is_whole = matches!(
        sql_type,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt
    );
    let trimmed = text.trim();
    let digits = trimmed.trim_start_matches(['-', '+']);
    if is_whole && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("value \"{trimmed}\" is out of range for type {sql_type}"),
        );
    }
    if let SqlType::Numeric { precision, scale } = sql_type
        && trimmed.parse::<f64>().is_ok_and(f64::is_finite)
    {
        return numeric_overflow(*precision, *scale);
    }
    let code = match sql_type {
        SqlType::Date
        | SqlType::Time
        | SqlType::Timestamp
        | SqlType::TimestampTz
        | SqlType::Interval => sqlstate::INVALID_DATETIME,
        _ => sqlstate::INVALID_TEXT,
    };
    let name = match sql_type {
        SqlType::Numeric { .. } => "numeric".to_owned(),
        other => other.to_string(),
    };
    Error::new(
        code,
        format!("invalid input syntax for type {name}: \"{text}\""),
    )
}

/// `numeric field overflow`.
pub(super) fn numeric_overflow(precision: u8, scale: i8) -> Error {
    let digits = i32::from(precision) - i32::from(scale);
    Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "numeric field overflow").detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{digits}."
    ))
}

fn each<T>(
    texts: &StringArray,
    sql_type: &SqlType,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Option<T>>> {
    texts
        .iter()
        .map(|text| match text {
            None => Ok(None),
            Some(text) => match parse(text) {
                Some(value) => Ok(Some(value)),
                None => Err(invalid(text, sql_type)),
            },
        })
        .collect()
}

/// Numbers, dates and times: by Arrow's own parser, once more without the spaces around.
fn scalars(texts: &StringArray, sql_type: &SqlType) -> Result<ArrayRef> {
    let data_type = sql_type.to_arrow();
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let mut parsed = cast_with_options(texts, &data_type, &options)?;
    if parsed.null_count() > texts.null_count() {
        let trimmed: StringArray = texts
            .iter()
            .map(|text| text.map(|t| normalized(t, sql_type)))
            .collect();
        parsed = cast_with_options(&trimmed, &data_type, &options)?;
    }
    let failed = (0..texts.len()).find(|&i| texts.is_valid(i) && parsed.is_null(i));
    match failed {
        None => Ok(parsed),
        Some(i) => Err(invalid(texts.value(i), sql_type)),
    }
}

fn normalized(text: &str, sql_type: &SqlType) -> String {
    let text = text.trim();
    let is_time = matches!(
        sql_type,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz
    );
    match text.to_ascii_lowercase().as_str() {
        "epoch" if is_time => "1970-01-01T00:00:00".to_owned(),
        "infinity" | "+infinity" => "inf".to_owned(),
        "-infinity" => "-inf".to_owned(),
        _ if matches!(sql_type, SqlType::Date) => {
            // A time of day after the date is allowed and ignored.
            text.split([' ', 'T']).next().unwrap_or(text).to_owned()
        }
        _ if matches!(sql_type, SqlType::Timestamp) => without_zone(text),
        _ => text.to_owned(),
    }
}

/// A timestamp without time zone ignores one that is written.
fn without_zone(text: &str) -> String {
    let time_start = text.find([' ', 'T']).unwrap_or(text.len());
    let (date, time) = text.split_at(time_start);
    let time = time.trim_end_matches(['Z', 'z']);
    let end = time.rfind(['+', '-']).unwrap_or(time.len());
    format!("{date}{}", time[..end].trim_end())
}

fn boolean(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    // PostgreSQL takes any unique beginning of these words.
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" {
        return Some(true);
    }
    let is_false = begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0";
    is_false.then_some(false)
}

fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits
            .bytes()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        if digits.len() % 2 != 0 {
            return None;
        }
        return digits
            .chunks_exact(2)
            .map(|pair| {
                let text = std::str::from_utf8(pair).ok()?;
                u8::from_str_radix(text, 16).ok()
            })
            .collect();
    }
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            result.push(byte);
            rest = after;
        } else if after.first() == Some(&b'\\') {
            result.push(b'\\');
            rest = &after[1..];
        } else {
            let digits = std::str::from_utf8(after.get(..3)?).ok()?;
            result.push(u8::from_str_radix(digits, 8).ok()?);
            rest = &after[3..];
        }
    }
    Some(result)
}

fn uuids(texts: &StringArray) -> Result<ArrayRef> {
    let values = each(texts, &SqlType::Uuid, |text| {
        uuid::Uuid::try_parse(text.trim()).ok()
    })?;
    let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), 16);
    for value in values {
        match value {
            Some(value) => builder.append_value(value.as_bytes())?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// `{1,2,NULL}`, with `{…}` inside for arrays of arrays.
fn arrays(texts: &StringArray, sql_type: &SqlType, item: &SqlType) -> Result<ArrayRef> {
    let elements = each(texts, sql_type, array_elements)?;
    let flat: StringArray = elements.iter().flatten().flatten().cloned().collect();
    let values = parse_text(&flat, item)?;
    let lengths = elements.iter().map(|e| e.as_ref().map_or(0, Vec::len));
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
    let nulls: datafusion::arrow::buffer::NullBuffer = elements
        .iter()
        .map(Option::is_some)
        .collect::<Vec<_>>()
        .into();
    let field = Arc::new(item.to_field("item", true));
    let list = datafusion::arrow::array::ListArray::try_new(field, offsets, values, Some(nulls))?;
    Ok(Arc::new(list))
}

/// The elements of an array literal, unquoted; nested arrays keep their braces.
fn array_elements(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut elements = Vec::new();
    let mut current = String::new();
    let mut depth = 0_usize;
    let (mut is_in_quotes, mut was_quoted) = (false, false);
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                if depth > 0 {
                    current.push('\\');
                }
                current.push(characters.next()?);
            }
            '"' => {
                is_in_quotes = !is_in_quotes;
                was_quoted = true;
                if depth > 0 {
                    current.push('"');
                }
            }
            '{' if !is_in_quotes => {
                depth += 1;
                current.push(c);
            }
            '}' if !is_in_quotes => {
                depth = depth.checked_sub(1)?;
                current.push(c);
            }
            ',' if !is_in_quotes && depth == 0 => {
                elements.push(element(&mut current, &mut was_quoted)?);
            }
            _ => current.push(c),
        }
    }
    elements.push(element(&mut current, &mut was_quoted)?);
    (!is_in_quotes && depth == 0).then_some(elements)
}

fn element(current: &mut String, was_quoted: &mut bool) -> Option<Option<String>> {
    let text = std::mem::take(current);
    if std::mem::take(was_quoted) {
        return Some(Some(text));
    }
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    Some((!text.eq_ignore_ascii_case("null")).then(|| text.to_owned()))
}

/// A struct is written as a JSON object.
fn structs(texts: &StringArray, sql_type: &SqlType) -> Result<ArrayRef> {
    let data_type = sql_type.to_arrow();
    if texts.is_empty() {
        return Ok(new_null_array(&data_type, 0));
    }
    let field = Arc::new(Field::new("value", data_type.clone(), true));
    let parts = texts
        .iter()
        .map(|text| match text {
            None => Ok(new_null_array(&data_type, 1)),
            Some(text) => struct_of(text, &field).ok_or_else(|| invalid(text, sql_type)),
        })
        .collect::<Result<Vec<_>>>()?;
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

fn struct_of(text: &str, field: &Arc<Field>) -> Option<ArrayRef> {
    let DataType::Struct(fields) = field.data_type() else {
        return None;
    };
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let object = value.as_object()?;
    let columns = fields
        .iter()
        .map(|field| {
            let sql_type = SqlType::from_field(field)?;
            let text = match object.get(field.name()) {
                None | Some(serde_json::Value::Null) => None,
                Some(serde_json::Value::String(text)) => Some(text.clone()),
                Some(other) => Some(other.to_string()),
            };
            parse_text(&StringArray::from(vec![text]), &sql_type).ok()
        })
        .collect::<Option<Vec<_>>>()?;
    let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields.clone()));
    let batch = RecordBatch::try_new(schema, columns).ok()?;
    Some(Arc::new(StructArray::from(batch)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{AsArray, Int32Array};
    use datafusion::arrow::datatypes::{Int32Type, TimestampMicrosecondType};

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

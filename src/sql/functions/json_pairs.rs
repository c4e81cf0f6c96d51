//! `json_object` and `jsonb_object`: objects of texts, from an array of names and values in turn or from one of each;
//! and `json_strip_nulls` (PostgreSQL 15 documentation, section 9.16).

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::plain::{form, plain, text, text_or_null};
use crate::error::{Error, Result, sqlstate};
use crate::values::json::write_string;
use crate::values::jsonb::Json;
use crate::values::list::{Element, parse_elements};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "json_object",
            &[
                form!([TextArray] -> Json, written),
                form!([Text] -> Json, written),
                form!([TextArray, TextArray] -> Json, written),
                form!([Text, Text] -> Json, written),
            ],
        ),
        plain(
            "jsonb_object",
            &[
                form!([TextArray] -> Jsonb, sorted),
                form!([Text] -> Jsonb, sorted),
                form!([TextArray, TextArray] -> Jsonb, sorted),
                form!([Text, Text] -> Jsonb, sorted),
            ],
        ),
        plain(
            "json_strip_nulls",
            &[form!([Json] -> Json, |a| {
                let mut out = bytes::BytesMut::new();
                write_without_nulls(&Json::parse(text(&a[0])?)?, &mut out);
                Ok(as_text(out))
            })],
        ),
    ]
}

fn as_text(out: bytes::BytesMut) -> ScalarValue {
    text_or_null(Some(String::from_utf8_lossy(&out).into_owned()))
}

/// Without a space, and without the members that are null.
fn write_without_nulls(value: &Json, out: &mut bytes::BytesMut) {
    match value {
        Json::Array(items) => {
            out.extend_from_slice(b"[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                write_without_nulls(item, out);
            }
            out.extend_from_slice(b"]");
        }
        Json::Object(members) => {
            out.extend_from_slice(b"{");
            let there = members.iter().filter(|(_, value)| *value != Json::Null);
            for (index, (name, value)) in there.enumerate() {
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                write_string(name.as_bytes(), out);
                out.extend_from_slice(b":");
                write_without_nulls(value, out);
            }
            out.extend_from_slice(b"}");
        }
        other => out.extend_from_slice(other.to_text().as_bytes()),
    }
}

/// An array, or the text of one.
fn texts(array: &ScalarValue) -> Result<Vec<Option<String>>> {
    if let ScalarValue::List(list) = array {
        let items = list.value(0);
        let items = items.as_string::<i32>().iter();
        return Ok(items.map(|item| item.map(str::to_owned)).collect());
    }
    elements(text(array)?)
}

/// Pairs may be arrays within the array.
fn elements(literal: &str) -> Result<Vec<Option<String>>> {
    let mut texts = Vec::new();
    for element in parse_elements(literal)? {
        match element {
            Element::Null => texts.push(None),
            Element::Text(text) => texts.push(Some(text)),
            Element::Nested(pair) => texts.extend(elements(&pair)?),
        }
    }
    Ok(texts)
}

fn members(arguments: &[ScalarValue]) -> Result<Vec<(String, Option<String>)>> {
    let refused = |primary| Error::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, primary);
    let pairs: Vec<_> = match arguments {
        [both] => {
            let both = texts(both)?;
            if !both.len().is_multiple_of(2) {
                return Err(refused("array must have even number of elements"));
            }
            let mut both = both.into_iter();
            std::iter::from_fn(|| Some((both.next()?, both.next()?))).collect()
        }
        [names, values] => {
            let (names, values) = (texts(names)?, texts(values)?);
            if names.len() != values.len() {
                return Err(refused("mismatched array dimensions"));
            }
            names.into_iter().zip(values).collect()
        }
        _ => return Err(Error::internal("a form has one argument or two")),
    };
    let named = pairs.into_iter().map(|(name, value)| {
        let name = name.ok_or_else(|| {
            Error::new(
                sqlstate::NULL_VALUE_NOT_ALLOWED,
                "null value not allowed for object key",
            )
        })?;
        Ok((name, value))
    });
    named.collect()
}

fn written(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut out = bytes::BytesMut::from(&b"{"[..]);
    for (index, (name, value)) in members(arguments)?.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        write_string(name.as_bytes(), &mut out);
        out.extend_from_slice(b" : ");
        match value {
            Some(value) => write_string(value.as_bytes(), &mut out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}");
    Ok(as_text(out))
}

fn sorted(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let members = members(arguments)?.into_iter();
    let members = members.map(|(name, value)| (name, value.map_or(Json::Null, Json::Text)));
    let mut object = Json::Object(members.collect());
    object.sort();
    Ok(text_or_null(Some(object.to_text())))
}

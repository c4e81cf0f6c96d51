//! Functions that take `json` (not `jsonb`) apart: its parts are as they were written, in the order
//! of the text ([`crate::values::json_text`]). Those that give a set of rows are written as arrays.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::json::{not_an, path_steps, place_of};
use super::plain::{Type, form, plain, text, text_or_null, texts, whole};
use crate::error::Result;
use crate::values::json_text::{Parts, parts, plain_text, string_of};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "json_array_elements_array",
            &[form!([Json] -> JsonArray, |a| {
                let items = items_of(text(&a[0])?)?;
                let items = items.into_iter().map(|item| Some(item.to_owned()));
                Ok(texts(Type::JsonArray, items))
            })],
        ),
        plain(
            "json_array_elements_text_array",
            &[form!([Json] -> TextArray, |a| {
                let items = items_of(text(&a[0])?)?.into_iter().map(plain_text);
                Ok(texts(Type::TextArray, items.collect::<Result<Vec<_>>>()?))
            })],
        ),
        plain(
            "json_object_keys_array",
            &[form!([Json] -> TextArray, |a| {
                let names = members_of(text(&a[0])?)?.into_iter();
                let names = names.map(|(name, _)| string_of(name).map(Some));
                Ok(texts(Type::TextArray, names.collect::<Result<Vec<_>>>()?))
            })],
        ),
        plain(
            "json_each_values_array",
            &[form!([Json] -> JsonArray, |a| {
                let members = members_of(text(&a[0])?)?.into_iter();
                let values = members.map(|(_, value)| Some(value.to_owned()));
                Ok(texts(Type::JsonArray, values))
            })],
        ),
        plain(
            "json_each_values_text_array",
            &[form!([Json] -> TextArray, |a| {
                let values = members_of(text(&a[0])?)?.into_iter();
                let values = values.map(|(_, value)| plain_text(value));
                Ok(texts(Type::TextArray, values.collect::<Result<Vec<_>>>()?))
            })],
        ),
        plain(
            "json_extract_path",
            &[
                form!([Json, Text] -> Json, extracted),
                form!([Json, Text, Text] -> Json, extracted),
                form!([Json, Text, Text, Text] -> Json, extracted),
                form!([Json, Text, Text, Text, Text] -> Json, extracted),
            ],
        ),
        plain(
            "json_extract_path_text",
            &[
                form!([Json, Text] -> Text, extracted_text),
                form!([Json, Text, Text] -> Text, extracted_text),
                form!([Json, Text, Text, Text] -> Text, extracted_text),
                form!([Json, Text, Text, Text, Text] -> Text, extracted_text),
            ],
        ),
    ]
}

/// `a -> 'name'`, `a -> place`
pub(crate) fn member() -> Arc<ScalarUDF> {
    plain(
        "json_member",
        &[
            form!([Json, BigInt] -> Json, |a| {
                let step = whole(&a[1])?.to_string();
                let found = match parts(text(&a[0])?)? {
                    Parts::Array(items) => place_of(items.len(), &step).map(|at| items[at]),
                    _ => None,
                };
                Ok(text_or_null(found.map(str::to_owned)))
            }),
            form!([Json, Text] -> Json, |a| {
                let found = match parts(text(&a[0])?)? {
                    Parts::Object(members) => named(&members, text(&a[1])?)?,
                    _ => None,
                };
                Ok(text_or_null(found.map(str::to_owned)))
            }),
        ],
    )
}

/// `a #> '{path}'`
pub(crate) fn path_value() -> Arc<ScalarUDF> {
    plain(
        "json_text_path_value",
        &[
            form!([Json, TextArray] -> Json, at_path),
            form!([Json, Text] -> Json, at_path),
        ],
    )
}

/// `a #>> '{path}'`
pub(crate) fn path_text() -> Arc<ScalarUDF> {
    plain(
        "json_text_path_text",
        &[
            form!([Json, TextArray] -> Text, text_at_path),
            form!([Json, Text] -> Text, text_at_path),
        ],
    )
}

fn items_of(value: &str) -> Result<Vec<&str>> {
    match parts(value)? {
        Parts::Array(items) => Ok(items),
        Parts::Object(_) => Err(not_an("an object")),
        Parts::Scalar(_) => Err(not_an("a scalar")),
    }
}

fn members_of(value: &str) -> Result<Vec<(&str, &str)>> {
    match parts(value)? {
        Parts::Object(members) => Ok(members),
        Parts::Array(_) => Err(not_an("an array")),
        Parts::Scalar(_) => Err(not_an("a scalar")),
    }
}

/// The last member of a name.
fn named<'a>(members: &[(&str, &'a str)], name: &str) -> Result<Option<&'a str>> {
    for (quoted, value) in members.iter().rev() {
        if string_of(quoted)? == name {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn follow<'a>(value: &'a str, steps: &[String]) -> Result<Option<&'a str>> {
    let mut found = value.trim();
    for step in steps {
        let next = match parts(found)? {
            Parts::Object(members) => named(&members, step)?,
            Parts::Array(items) => place_of(items.len(), step).map(|at| items[at]),
            Parts::Scalar(_) => None,
        };
        match next {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

fn steps(arguments: &[ScalarValue]) -> Result<Vec<String>> {
    arguments.iter().map(|a| Ok(text(a)?.to_owned())).collect()
}

fn extracted(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = follow(text(&arguments[0])?, &steps(&arguments[1..])?)?;
    Ok(text_or_null(found.map(str::to_owned)))
}

fn extracted_text(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = follow(text(&arguments[0])?, &steps(&arguments[1..])?)?;
    let found = found.map(plain_text).transpose()?;
    Ok(text_or_null(found.flatten()))
}

fn at_path(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(steps) = path_steps(&arguments[1])? else {
        return Ok(text_or_null(None));
    };
    let found = follow(text(&arguments[0])?, &steps)?;
    Ok(text_or_null(found.map(str::to_owned)))
}

fn text_at_path(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(steps) = path_steps(&arguments[1])? else {
        return Ok(text_or_null(None));
    };
    let found = follow(text(&arguments[0])?, &steps)?;
    let found = found.map(plain_text).transpose()?;
    Ok(text_or_null(found.flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_the_text() {
        let value = " {\"a\":[1,{\"b\":1.50, \"b\":2e1}],\"c\":\"x\"} ";
        let at = |steps: &[&str]| {
            let steps: Vec<String> = steps.iter().map(|s| (*s).to_owned()).collect();
            follow(value, &steps).unwrap()
        };
        assert_eq!(at(&["a"]), Some("[1,{\"b\":1.50, \"b\":2e1}]"));
        assert_eq!(at(&["a", "-1", "b"]), Some("2e1"));
        assert_eq!(at(&["c", "d"]), None);
        assert_eq!(at(&[]), Some(value.trim()));
    }
}

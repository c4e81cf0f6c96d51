//! Functions that take `jsonb` apart (PostgreSQL 15 documentation, section 9.16), and those that say
//! the same of `json`; see [`super::json_texts`] for what gives parts of that. Those that give a set of rows are written here as arrays; the rewrite of
//! queries puts `unnest` around them. Absent: paths of SQL/JSON, `json_populate_record`.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::plain::{Form, Type, form, plain, text, text_or_null, texts, whole};
use crate::error::{Error, Result, sqlstate};
use crate::values::jsonb::Json;
use crate::values::list::{Element, parse_elements};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = Vec::new();
    let mut both = |names: [&'static str; 2], forms: &'static [Form]| {
        functions.extend(names.map(|name| plain(name, forms)));
    };
    both(
        ["json_typeof", "jsonb_typeof"],
        &[form!([Json] -> Text, |a| Ok(text_or_null(Some(parsed(&a[0])?.type_name().to_owned()))))],
    );
    both(
        ["json_array_length", "jsonb_array_length"],
        &[form!([Json] -> Integer, array_length)],
    );
    functions.push(plain(
        "jsonb_array_elements_text_array",
        &[form!([Json] -> TextArray, |a| {
            let items = items_of(parsed(&a[0])?)?;
            Ok(texts(Type::TextArray, items.iter().map(Json::to_plain_text)))
        })],
    ));
    functions.push(plain(
        "jsonb_object_keys_array",
        &[form!([Json] -> TextArray, |a| {
            let members = members_of(parsed(&a[0])?)?;
            Ok(texts(Type::TextArray, members.into_iter().map(|(name, _)| Some(name))))
        })],
    ));
    functions.push(plain(
        "jsonb_each_values_text_array",
        &[form!([Json] -> TextArray, |a| {
            let members = members_of(parsed(&a[0])?)?;
            Ok(texts(Type::TextArray, members.iter().map(|(_, v)| v.to_plain_text())))
        })],
    ));
    functions.push(plain(
        "jsonb_extract_path_text",
        &[
            form!([Json, Text] -> Text, extracted_text),
            form!([Json, Text, Text] -> Text, extracted_text),
            form!([Json, Text, Text, Text] -> Text, extracted_text),
        ],
    ));
    functions.extend(of_jsonb());
    functions
}

fn of_jsonb() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "jsonb_array_elements_array",
            &[form!([Jsonb] -> JsonbArray, |a| elements(Type::JsonbArray, &a[0]))],
        ),
        plain(
            "jsonb_each_values_array",
            &[form!([Jsonb] -> JsonbArray, |a| member_values(Type::JsonbArray, &a[0]))],
        ),
        plain(
            "jsonb_extract_path",
            &[
                form!([Jsonb, Text] -> Jsonb, extracted_value),
                form!([Jsonb, Text, Text] -> Jsonb, extracted_value),
                form!([Jsonb, Text, Text, Text] -> Jsonb, extracted_value),
            ],
        ),
        plain(
            "jsonb_set",
            &[
                form!([Jsonb, Text, Jsonb] -> Jsonb, set),
                form!([Jsonb, Text, Jsonb, Boolean] -> Jsonb, set),
                form!([Jsonb, TextArray, Jsonb] -> Jsonb, set),
                form!([Jsonb, TextArray, Jsonb, Boolean] -> Jsonb, set),
            ],
        ),
        plain(
            "jsonb_insert",
            &[
                form!([Jsonb, Text, Jsonb] -> Jsonb, insert),
                form!([Jsonb, Text, Jsonb, Boolean] -> Jsonb, insert),
                form!([Jsonb, TextArray, Jsonb] -> Jsonb, insert),
                form!([Jsonb, TextArray, Jsonb, Boolean] -> Jsonb, insert),
            ],
        ),
        plain(
            "jsonb_strip_nulls",
            &[form!([Jsonb] -> Jsonb, |a| {
                Ok(text_or_null(Some(without_nulls(parsed(&a[0])?).to_text())))
            })],
        ),
        plain(
            "jsonb_pretty",
            &[form!([Jsonb] -> Text, |a| Ok(text_or_null(Some(parsed(&a[0])?.to_pretty_text()))))],
        ),
    ]
}

/// `a -> 'name'`, `a -> place`, of `jsonb`
pub(crate) fn jsonb_member() -> Arc<ScalarUDF> {
    plain(
        "jsonb_member",
        &[
            form!([Jsonb, BigInt] -> Jsonb, member_at),
            form!([Jsonb, Text] -> Jsonb, member_of),
        ],
    )
}

/// `a ? 'name'`: a member of an object, or a text in an array.
pub(crate) fn has_name() -> Arc<ScalarUDF> {
    plain(
        "jsonb_has",
        &[form!([Jsonb, Text] -> Boolean, |a| {
            let has = has(&parsed(&a[0])?, text(&a[1])?);
            Ok(ScalarValue::Boolean(Some(has)))
        })],
    )
}

/// `a ?| names`
pub(crate) fn has_any() -> Arc<ScalarUDF> {
    plain(
        "jsonb_has_any",
        &[form!([Jsonb, TextArray] -> Boolean, |a| {
            let value = parsed(&a[0])?;
            let has = names_of(&a[1])?.iter().flatten().any(|name| has(&value, name));
            Ok(ScalarValue::Boolean(Some(has)))
        })],
    )
}

/// `a ?& names`
pub(crate) fn has_all() -> Arc<ScalarUDF> {
    plain(
        "jsonb_has_all",
        &[form!([Jsonb, TextArray] -> Boolean, |a| {
            let value = parsed(&a[0])?;
            let has = names_of(&a[1])?.iter().flatten().all(|name| has(&value, name));
            Ok(ScalarValue::Boolean(Some(has)))
        })],
    )
}

fn names_of(names: &ScalarValue) -> Result<Vec<Option<String>>> {
    match names {
        ScalarValue::List(list) => {
            let names = list.value(0);
            let names = names.as_string::<i32>().iter();
            Ok(names.map(|name| name.map(str::to_owned)).collect())
        }
        _ => Err(Error::internal("a form's argument is an array of texts")),
    }
}

fn has(value: &Json, name: &str) -> bool {
    let is_name = |value: &Json| matches!(value, Json::Text(text) if text == name);
    match value {
        Json::Object(members) => members.iter().any(|(n, _)| n == name),
        Json::Array(items) => items.iter().any(is_name),
        scalar => is_name(scalar),
    }
}

fn member_of(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = match parsed(&arguments[0])? {
        Json::Object(members) => {
            let name = text(&arguments[1])?;
            let mut members = members.into_iter();
            members.find(|(n, _)| n == name).map(|(_, value)| value)
        }
        _ => None,
    };
    Ok(text_or_null(found.map(|value| value.to_text())))
}

fn member_at(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = match parsed(&arguments[0])? {
        Json::Array(mut items) => {
            let at = place(&items, &whole(&arguments[1])?.to_string());
            at.map(|at| items.swap_remove(at))
        }
        _ => None,
    };
    Ok(text_or_null(found.map(|value| value.to_text())))
}

/// `a #> '{path}'`
pub(crate) fn path_value() -> Arc<ScalarUDF> {
    plain(
        "json_path_value",
        &[
            form!([Jsonb, TextArray] -> Jsonb, value_at_path),
            form!([Jsonb, Text] -> Jsonb, value_at_path),
        ],
    )
}

/// `a #>> '{path}'`
pub(crate) fn path_text() -> Arc<ScalarUDF> {
    plain(
        "json_path_text",
        &[
            form!([Jsonb, TextArray] -> Text, text_at_path),
            form!([Jsonb, Text] -> Text, text_at_path),
        ],
    )
}

/// `a || b`
pub(crate) fn concat() -> Arc<ScalarUDF> {
    plain(
        "jsonb_concat",
        &[form!([Jsonb, Jsonb] -> Jsonb, concatenated)],
    )
}

/// `a @> b`
pub(crate) fn contains() -> Arc<ScalarUDF> {
    plain(
        "jsonb_contains",
        &[form!([Jsonb, Jsonb] -> Boolean, |a| {
            let contains = is_within(&parsed(&a[0])?, &parsed(&a[1])?, true);
            Ok(ScalarValue::Boolean(Some(contains)))
        })],
    )
}

/// `a - 'name'`, `a - place`, `a - names`
pub(crate) fn without() -> Arc<ScalarUDF> {
    plain(
        "jsonb_without",
        &[
            form!([Jsonb, BigInt] -> Jsonb, without_place),
            form!([Jsonb, TextArray] -> Jsonb, without_names),
            form!([Jsonb, Text] -> Jsonb, without_name),
        ],
    )
}

/// `a #- '{path}'`: without the part at a path.
pub(crate) fn without_path() -> Arc<ScalarUDF> {
    plain(
        "jsonb_without_path",
        &[
            form!([Jsonb, TextArray] -> Jsonb, cut),
            form!([Jsonb, Text] -> Jsonb, cut),
        ],
    )
}

fn cut(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut value = parsed(&arguments[0])?;
    let path = path_without_null(&arguments[1])?;
    if !matches!(value, Json::Object(_) | Json::Array(_)) {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "cannot delete path in scalar",
        ));
    }
    remove(&mut value, &path);
    Ok(text_or_null(Some(value.to_text())))
}

fn remove(value: &mut Json, path: &[String]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match value {
        Json::Object(members) if rest.is_empty() => members.retain(|(name, _)| name != step),
        Json::Object(members) => {
            if let Some((_, member)) = members.iter_mut().find(|(name, _)| name == step) {
                remove(member, rest);
            }
        }
        Json::Array(items) => match place(items, step) {
            Some(at) if rest.is_empty() => {
                items.remove(at);
            }
            Some(at) => remove(&mut items[at], rest),
            None => {}
        },
        _ => {}
    }
}

fn parsed(value: &ScalarValue) -> Result<Json> {
    Json::parse_sorted(text(value)?)
}

pub(super) fn not_an(what: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("cannot extract elements from {what}"),
    )
}

fn items_of(value: Json) -> Result<Vec<Json>> {
    match value {
        Json::Array(items) => Ok(items),
        Json::Object(_) => Err(not_an("an object")),
        _ => Err(not_an("a scalar")),
    }
}

fn members_of(value: Json) -> Result<Vec<(String, Json)>> {
    match value {
        Json::Object(members) => Ok(members),
        Json::Array(_) => Err(not_an("an array")),
        _ => Err(not_an("a scalar")),
    }
}

fn array_length(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let length = match parsed(&arguments[0])? {
        Json::Array(items) => items.len(),
        other => {
            let what = match other {
                Json::Object(_) => "a non-array",
                _ => "a scalar",
            };
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("cannot get array length of {what}"),
            ));
        }
    };
    Ok(ScalarValue::Int32(i32::try_from(length).ok()))
}

fn elements(gives: Type, value: &ScalarValue) -> Result<ScalarValue> {
    let items = items_of(parsed(value)?)?;
    Ok(texts(gives, items.iter().map(|item| Some(item.to_text()))))
}

fn member_values(gives: Type, value: &ScalarValue) -> Result<ScalarValue> {
    let members = members_of(parsed(value)?)?;
    Ok(texts(gives, members.iter().map(|(_, v)| Some(v.to_text()))))
}

/// Steps of a path written as an array of texts, `{a,0,b}`; `None` where one of them is NULL.
/// Errors: 22P02 a text that is no array of one dimension.
fn path_of(path: &str) -> Result<Option<Vec<String>>> {
    let mut steps = Vec::new();
    for element in parse_elements(path)? {
        match element {
            Element::Text(step) => steps.push(step),
            Element::Null => return Ok(None),
            Element::Nested(_) => {
                return Err(Error::new(
                    sqlstate::INVALID_TEXT,
                    format!("malformed array literal: \"{path}\""),
                )
                .detail("A path has one dimension."));
            }
        }
    }
    Ok(Some(steps))
}

fn place(items: &[Json], step: &str) -> Option<usize> {
    place_of(items.len(), step)
}

/// The place that a step means among so many elements; below zero it counts from the end.
pub(super) fn place_of(count: usize, step: &str) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    let length = i64::try_from(count).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok().filter(|i| *i < count)
}

fn follow(value: Json, path: impl IntoIterator<Item = String>) -> Option<Json> {
    path.into_iter().try_fold(value, |value, step| match value {
        Json::Object(members) => members
            .into_iter()
            .find(|(n, _)| *n == step)
            .map(|(_, v)| v),
        Json::Array(mut items) => place(&items, &step).map(|i| items.swap_remove(i)),
        _ => None,
    })
}

/// Steps of a path as a text or as an array of texts; `None` where one of them is NULL.
pub(super) fn path_steps(path: &ScalarValue) -> Result<Option<Vec<String>>> {
    match path {
        ScalarValue::List(list) => {
            let steps = list.value(0);
            let steps: Option<Vec<&str>> = steps.as_string::<i32>().iter().collect();
            Ok(steps.map(|steps| steps.into_iter().map(str::to_owned).collect()))
        }
        written => path_of(text(written)?),
    }
}

fn at_path(arguments: &[ScalarValue]) -> Result<Option<Json>> {
    let path = path_steps(&arguments[1])?;
    let value = parsed(&arguments[0])?;
    Ok(path.and_then(|path| follow(value, path)))
}

fn value_at_path(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    Ok(text_or_null(at_path(arguments)?.map(|v| v.to_text())))
}

fn text_at_path(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = at_path(arguments)?;
    Ok(text_or_null(found.and_then(|v| v.to_plain_text())))
}

fn steps(arguments: &[ScalarValue]) -> Result<Vec<String>> {
    arguments.iter().map(|a| Ok(text(a)?.to_owned())).collect()
}

fn extracted_text(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = follow(parsed(&arguments[0])?, steps(&arguments[1..])?);
    Ok(text_or_null(found.and_then(|v| v.to_plain_text())))
}

fn extracted_value(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let found = follow(parsed(&arguments[0])?, steps(&arguments[1..])?);
    Ok(text_or_null(found.map(|v| v.to_text())))
}

fn set(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut value = parsed(&arguments[0])?;
    let path = path_without_null(&arguments[1])?;
    let creates = !matches!(arguments.get(3), Some(ScalarValue::Boolean(Some(false))));
    put(&mut value, &path, parsed(&arguments[2])?, creates);
    value.sort();
    Ok(text_or_null(Some(value.to_text())))
}

/// A path as a text or as an array. Errors: 22004 a NULL in it.
fn path_without_null(path: &ScalarValue) -> Result<Vec<String>> {
    path_steps(path)?.ok_or_else(|| {
        Error::new(
            sqlstate::NULL_VALUE_NOT_ALLOWED,
            "path element at position 1 is null",
        )
    })
}

fn insert(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut value = parsed(&arguments[0])?;
    let path = path_without_null(&arguments[1])?;
    let is_after = matches!(arguments.get(3), Some(ScalarValue::Boolean(Some(true))));
    insert_at(&mut value, &path, parsed(&arguments[2])?, is_after)?;
    value.sort();
    Ok(text_or_null(Some(value.to_text())))
}

/// Errors: 22023 a member that there is.
fn insert_at(value: &mut Json, path: &[String], new: Json, is_after: bool) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(());
    };
    match value {
        Json::Object(members) => match members.iter_mut().find(|(name, _)| name == step) {
            Some(_) if rest.is_empty() => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    "cannot replace existing key",
                )
                .hint("Try using the function jsonb_set to replace key value."));
            }
            Some((_, member)) => return insert_at(member, rest, new, is_after),
            None if rest.is_empty() => members.push((step.clone(), new)),
            None => {}
        },
        Json::Array(items) => match place(items, step) {
            Some(at) if rest.is_empty() => items.insert(at + usize::from(is_after), new),
            Some(at) => return insert_at(&mut items[at], rest, new, is_after),
            None if rest.is_empty() => {
                let is_first = step.starts_with('-');
                items.insert(if is_first { 0 } else { items.len() }, new);
            }
            None => {}
        },
        _ => {}
    }
    Ok(())
}

fn put(value: &mut Json, path: &[String], new: Json, creates: bool) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match value {
        Json::Object(members) => match members.iter_mut().find(|(name, _)| name == step) {
            Some((_, member)) if rest.is_empty() => *member = new,
            Some((_, member)) => put(member, rest, new, creates),
            None if rest.is_empty() && creates => members.push((step.clone(), new)),
            None => {}
        },
        Json::Array(items) => match place(items, step) {
            Some(at) if rest.is_empty() => items[at] = new,
            Some(at) => put(&mut items[at], rest, new, creates),
            None if rest.is_empty() && creates => {
                let first = step.starts_with('-');
                items.insert(if first { 0 } else { items.len() }, new);
            }
            None => {}
        },
        _ => {}
    }
}

fn without_nulls(value: Json) -> Json {
    match value {
        Json::Array(items) => Json::Array(items.into_iter().map(without_nulls).collect()),
        Json::Object(members) => Json::Object(
            members
                .into_iter()
                .filter(|(_, v)| *v != Json::Null)
                .map(|(n, v)| (n, without_nulls(v)))
                .collect(),
        ),
        other => other,
    }
}

fn concatenated(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let items = |value: Json| match value {
        Json::Array(items) => items,
        other => vec![other],
    };
    let mut joined = match (parsed(&arguments[0])?, parsed(&arguments[1])?) {
        (Json::Object(mut left), Json::Object(right)) => {
            left.extend(right);
            Json::Object(left)
        }
        (left, right) => {
            let mut all = items(left);
            all.extend(items(right));
            Json::Array(all)
        }
    };
    joined.sort();
    Ok(text_or_null(Some(joined.to_text())))
}

/// `@>`: all of `part` is somewhere in `whole`; at the top an array contains a scalar too.
fn is_within(whole: &Json, part: &Json, at_top: bool) -> bool {
    match (whole, part) {
        (Json::Object(members), Json::Object(wanted)) => wanted.iter().all(|(name, value)| {
            members
                .iter()
                .any(|(n, v)| n == name && is_within(v, value, false))
        }),
        (Json::Array(items), Json::Array(wanted)) => wanted
            .iter()
            .all(|value| items.iter().any(|item| is_within(item, value, false))),
        (Json::Array(items), scalar) if at_top && !matches!(scalar, Json::Object(_)) => {
            items.contains(scalar)
        }
        (whole, part) => whole == part,
    }
}

fn without_name(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    without_any(arguments, &[text(&arguments[1])?])
}

fn without_names(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let names = names_of(&arguments[1])?;
    let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    without_any(arguments, &names)
}

fn without_any(arguments: &[ScalarValue], names: &[&str]) -> Result<ScalarValue> {
    let rest = match parsed(&arguments[0])? {
        Json::Object(members) => {
            let kept = |member: &(String, Json)| !names.contains(&member.0.as_str());
            Json::Object(members.into_iter().filter(kept).collect())
        }
        Json::Array(items) => {
            let is_gone =
                |item: &Json| matches!(item, Json::Text(text) if names.contains(&text.as_str()));
            Json::Array(items.into_iter().filter(|i| !is_gone(i)).collect())
        }
        _ => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "cannot delete from scalar",
            ));
        }
    };
    Ok(text_or_null(Some(rest.to_text())))
}

fn without_place(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let at = whole(&arguments[1])?;
    let rest = match parsed(&arguments[0])? {
        Json::Array(mut items) => {
            if let Some(at) = place(&items, &at.to_string()) {
                items.remove(at);
            }
            Json::Array(items)
        }
        _ => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "cannot delete from object using integer index",
            ));
        }
    };
    Ok(text_or_null(Some(rest.to_text())))
}

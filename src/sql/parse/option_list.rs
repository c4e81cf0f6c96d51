//! The `WITH (…)` and `SET (…)` list of statements, as it is written. What the options are and mean is
//! [`crate::sql::options`]'s.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::catalog::definition::{OptionValue, Options};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::options::{self, Targets};

/// A `WITH (…)` list as it was written, each with its character position.
pub(super) type GivenOptions = Vec<(String, OptionValue, usize)>;

/// `[WITH (name = value, …)]`
pub(super) fn with_options(cursor: &mut Cursor) -> Result<GivenOptions> {
    if cursor.accept("WITH") {
        option_list(cursor)
    } else {
        Ok(Vec::new())
    }
}

/// `(name = value, …)`
pub(super) fn option_list(cursor: &mut Cursor) -> Result<GivenOptions> {
    cursor.expect_token(&Token::LParen)?;
    let given = cursor.comma_separated(|cursor| {
        let position = cursor.position();
        let name = option_name(cursor)?;
        let value = if cursor.accept_token(&Token::Eq) {
            option_value(cursor)?
        } else {
            // `WITH (header)` says true.
            OptionValue::Text("true".into())
        };
        Ok((name, value, position))
    })?;
    cursor.expect_token(&Token::RParen)?;
    Ok(given)
}

/// A name that may have dots (`kafka.x`, `cloudFiles.y`), in quotes or not; its case is kept,
/// since names are compared without it and Kafka's own pass through.
pub(super) fn option_name(cursor: &mut Cursor) -> Result<String> {
    let mut name = String::new();
    loop {
        match cursor.peek() {
            Token::Word(w) => name.push_str(&w.value),
            _ => return Err(cursor.expected("the name of an option")),
        }
        cursor.advance();
        if !cursor.accept_token(&Token::Period) {
            return Ok(name);
        }
        name.push('.');
    }
}

fn option_value(cursor: &mut Cursor) -> Result<OptionValue> {
    if cursor.accept("SECRET") {
        return Ok(OptionValue::Secret(cursor.identifier()?));
    }
    if cursor.accept("ARRAY") {
        cursor.expect_token(&Token::LBracket)?;
        let items = cursor.comma_separated(scalar_value)?;
        cursor.expect_token(&Token::RBracket)?;
        return Ok(OptionValue::Text(items.join(",")));
    }
    scalar_value(cursor).map(OptionValue::Text)
}

/// A literal as text.
fn scalar_value(cursor: &mut Cursor) -> Result<String> {
    if let Some(text) = cursor.accept_string() {
        return Ok(text);
    }
    cursor.accept("INTERVAL");
    if let Some(text) = cursor.accept_string() {
        return Ok(text);
    }
    let sign = if cursor.accept_token(&Token::Minus) {
        "-"
    } else {
        cursor.accept_token(&Token::Plus);
        ""
    };
    let text = match cursor.peek() {
        Token::Number(digits, _) => format!("{sign}{digits}"),
        Token::Word(w) if sign.is_empty() => match w.quote_style {
            Some(_) => w.value.clone(),
            None => w.value.to_ascii_lowercase(),
        },
        _ => return Err(cursor.expected("a value")),
    };
    cursor.advance();
    Ok(text)
}

/// Takes `connector` out of the list.
pub(super) fn take_connector(given: &mut GivenOptions) -> Option<String> {
    let at = given
        .iter()
        .position(|(name, _, _)| name.eq_ignore_ascii_case("connector"))?;
    match given.remove(at).1 {
        OptionValue::Text(name) => Some(name.to_ascii_lowercase()),
        OptionValue::Secret(name) => Some(name),
    }
}

/// How PostgreSQL is to lay out a table, and when to clean it up.
const STORAGE_PARAMETERS: [&str; 8] = [
    "autovacuum_",
    "fillfactor",
    "log_autovacuum_",
    "parallel_workers",
    "toast.",
    "toast_tuple_target",
    "user_catalog_table",
    "vacuum_",
];

/// The options that mean something here: a table's rows are laid out by the store.
pub(super) fn effective(target: Targets, mut given: GivenOptions) -> GivenOptions {
    if target == Targets::TABLE {
        let is_storage = |name: &str| STORAGE_PARAMETERS.iter().any(|p| name.starts_with(p));
        given.retain(|(name, ..)| !is_storage(name));
    }
    given
}

/// Canonical options; an error points at the option.
pub(super) fn checked(target: Targets, given: GivenOptions) -> Result<Options> {
    let mut checked = Options::new();
    for (name, value, position) in given {
        let one = options::validate(target, [(name, value)]).map_err(|e| e.position(position))?;
        for (name, value) in one {
            if checked.contains_key(&name) {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("option \"{name}\" is given more than once"),
                )
                .position(position));
            }
            checked.insert(name, value);
        }
    }
    Ok(checked)
}

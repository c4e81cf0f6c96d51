//! `CREATE FUNCTION … LANGUAGE SQL` and the forms in which other statements name a function.
//!
//! Absent: other languages, `OUT` and `VARIADIC` parameters, `BEGIN ATOMIC`, bodies of several
//! statements; each is told by its name.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::{DEFAULT_PRECEDENCE, data_type};
use super::unsupported;
use crate::catalog::definition::ColumnDefinition;
use crate::catalog::function::{
    FunctionBody, FunctionParameter, FunctionResult, FunctionVolatility,
};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::statement::{CreateFunction, FunctionReference, Statement};

/// First words of types of several words: what follows is not a type after a name.
const TYPES_OF_WORDS: &[&str] = &[
    "DOUBLE PRECISION",
    "CHARACTER VARYING",
    "TIMESTAMP WITH",
    "TIMESTAMP WITHOUT",
    "TIME WITH",
    "TIME WITHOUT",
];

/// `FUNCTION` was read: `name (parameters) RETURNS … LANGUAGE SQL … AS '…' | RETURN …`
pub(super) fn create(cursor: &mut Cursor, or_replace: bool) -> Result<Statement> {
    let name = cursor.object_name()?;
    let parameters = parameters(cursor)?;
    let result = result(cursor)?;
    let attributes = attributes(cursor)?;
    let Some(body) = attributes.body else {
        return Err(
            invalid("no function body specified").hint("Write AS 'SELECT …' or RETURN expression.")
        );
    };
    let is_return = matches!(body, FunctionBody::Expression(_));
    match attributes.language.as_deref() {
        Some("sql") => {}
        None if is_return => {}
        None => {
            return Err(invalid("no language specified").hint("Write LANGUAGE SQL."));
        }
        Some(other) => {
            return Err(
                Error::unsupported(format!("language \"{other}\" is not supported"))
                    .hint("Functions are written in SQL: LANGUAGE SQL."),
            );
        }
    }
    if is_return && !matches!(result, FunctionResult::Value(_)) {
        return Err(
            invalid("a function that returns rows has a query as its body")
                .hint("Write AS 'SELECT …'."),
        );
    }
    Ok(Statement::CreateFunction(CreateFunction {
        name,
        or_replace,
        parameters,
        result,
        volatility: attributes.volatility,
        is_strict: attributes.is_strict,
        body,
    }))
}

/// `DROP FUNCTION` was read: `[IF EXISTS] name [(types)], … [CASCADE | RESTRICT]`
pub(super) fn drop(cursor: &mut Cursor) -> Result<Statement> {
    let if_exists = super::if_exists(cursor);
    let functions = cursor.comma_separated(reference)?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(Statement::DropFunction {
        functions,
        if_exists,
        cascade,
    })
}

/// `name` or `name (types)`; names of the parameters may stand before their types.
pub(super) fn reference(cursor: &mut Cursor) -> Result<FunctionReference> {
    let name = cursor.object_name()?;
    let types = match cursor.peek() {
        Token::LParen => {
            let parameters = parameters(cursor)?;
            Some(parameters.into_iter().map(|p| p.sql_type).collect())
        }
        _ => None,
    };
    Ok(FunctionReference { name, types })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(sqlstate::INVALID_FUNCTION_DEFINITION, message)
}

/// `( [[IN] name] type [DEFAULT expression], … )`
pub(super) fn parameters(cursor: &mut Cursor) -> Result<Vec<FunctionParameter>> {
    cursor.expect_token(&Token::LParen)?;
    if cursor.accept_token(&Token::RParen) {
        return Ok(Vec::new());
    }
    let parameters = cursor.comma_separated(parameter)?;
    cursor.expect_token(&Token::RParen)?;
    for (index, parameter) in parameters.iter().enumerate() {
        let (before, _) = parameters.split_at(index);
        if parameter.name.is_some() && before.iter().any(|p| p.name == parameter.name) {
            let name = parameter.name.as_deref().unwrap_or_default();
            return Err(invalid(format!(
                "parameter name \"{name}\" used more than once"
            )));
        }
        let has_default_before = before.iter().any(|p| p.default.is_some());
        if has_default_before && parameter.default.is_none() {
            return Err(invalid(
                "input parameters after one with a default value must also have defaults",
            ));
        }
    }
    Ok(parameters)
}

fn parameter(cursor: &mut Cursor) -> Result<FunctionParameter> {
    for mode in ["OUT", "INOUT", "VARIADIC"] {
        if cursor.sees(mode) && has_name(cursor) {
            return Err(unsupported(cursor, &format!("a parameter of mode {mode}")));
        }
    }
    if cursor.sees("IN") {
        cursor.advance();
    }
    let name = match has_name(cursor) {
        true => Some(cursor.label()?),
        false => None,
    };
    let position = cursor.position();
    let sql_type = data_type(cursor)?;
    if matches!(sql_type, crate::types::SqlType::Struct(_)) {
        return Err(Error::unsupported("a parameter cannot be a struct").position(position));
    }
    let default = match cursor.accept("DEFAULT") || cursor.accept_token(&Token::Eq) {
        true => {
            let start = cursor.offset();
            cursor.run(|p| p.parse_subexpr(DEFAULT_PRECEDENCE))?;
            Some(cursor.text_from(start))
        }
        false => None,
    };
    Ok(FunctionParameter {
        name,
        sql_type,
        default,
    })
}

/// A name and a type come next rather than a type alone.
fn has_name(cursor: &Cursor) -> bool {
    let is_word = |at: usize| matches!(cursor.peek_at(at), Token::Word(_));
    let ends = cursor
        .word_at(1)
        .is_some_and(|word| word == "DEFAULT" || word == "ARRAY");
    is_word(0) && is_word(1) && !ends && !TYPES_OF_WORDS.iter().any(|words| cursor.sees(words))
}

/// `RETURNS type | SETOF type | TABLE (name type, …)`
fn result(cursor: &mut Cursor) -> Result<FunctionResult> {
    if !cursor.accept("RETURNS") {
        return Err(invalid("function result type must be specified").hint(
            "Write RETURNS and a type, or RETURNS TABLE (name type, …) for a function that gives rows.",
        ));
    }
    if cursor.accept("SETOF") {
        return data_type(cursor).map(FunctionResult::Set);
    }
    if cursor.accept("TABLE") {
        cursor.expect_token(&Token::LParen)?;
        let columns = cursor.comma_separated(|cursor| {
            let name = cursor.identifier()?;
            Ok(ColumnDefinition::new(name, data_type(cursor)?))
        })?;
        cursor.expect_token(&Token::RParen)?;
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].iter().any(|c| c.name == column.name) {
                return Err(invalid(format!(
                    "parameter name \"{}\" used more than once",
                    column.name
                )));
            }
        }
        return Ok(FunctionResult::Table(columns));
    }
    if cursor.sees("VOID") || cursor.sees("TRIGGER") {
        let what = cursor.word_at(0).unwrap_or_default().to_lowercase();
        return Err(unsupported(
            cursor,
            &format!("a function that returns {what}"),
        ));
    }
    data_type(cursor).map(FunctionResult::Value)
}

#[derive(Default)]
struct Attributes {
    language: Option<String>,
    volatility: FunctionVolatility,
    is_strict: bool,
    body: Option<FunctionBody>,
}

fn attributes(cursor: &mut Cursor) -> Result<Attributes> {
    let mut found = Attributes::default();
    loop {
        if cursor.accept("LANGUAGE") {
            let language = match cursor.accept_string() {
                Some(text) => text,
                None => cursor.label()?,
            };
            found.language = Some(language.to_ascii_lowercase());
        } else if cursor.accept("IMMUTABLE") {
            found.volatility = FunctionVolatility::Immutable;
        } else if cursor.accept("STABLE") {
            found.volatility = FunctionVolatility::Stable;
        } else if cursor.accept("VOLATILE") {
            found.volatility = FunctionVolatility::Volatile;
        } else if cursor
            .accept_one(&["STRICT", "RETURNS NULL ON NULL INPUT"])
            .is_some()
        {
            found.is_strict = true;
        } else if cursor.accept("CALLED ON NULL INPUT") {
            found.is_strict = false;
        } else if cursor.sees("AS") || cursor.sees("RETURN") || cursor.sees("BEGIN ATOMIC") {
            if found.body.is_some() {
                return Err(invalid("conflicting or redundant options"));
            }
            found.body = Some(body(cursor)?);
        } else if !accept_without_effect(cursor)? {
            return Ok(found);
        }
    }
}

/// What PostgreSQL's planner and permissions are told, and what makes no difference here.
fn accept_without_effect(cursor: &mut Cursor) -> Result<bool> {
    const WORDS: &[&str] = &[
        "LEAKPROOF",
        "NOT LEAKPROOF",
        "SECURITY INVOKER",
        "EXTERNAL SECURITY INVOKER",
        "PARALLEL SAFE",
        "PARALLEL RESTRICTED",
        "PARALLEL UNSAFE",
    ];
    if cursor.accept_one(WORDS).is_some() {
        return Ok(true);
    }
    if cursor.accept_one(&["COST", "ROWS"]).is_some() {
        cursor.unsigned()?;
        return Ok(true);
    }
    for words in ["SECURITY DEFINER", "WINDOW", "TRANSFORM", "SUPPORT", "SET"] {
        if cursor.sees(words) {
            return Err(unsupported(cursor, words));
        }
    }
    Ok(false)
}

fn body(cursor: &mut Cursor) -> Result<FunctionBody> {
    if cursor.sees("BEGIN ATOMIC") {
        return Err(unsupported(cursor, "BEGIN ATOMIC").hint("Write AS 'SELECT …'."));
    }
    if cursor.accept("AS") {
        return cursor.string().map(FunctionBody::Query);
    }
    cursor.expect("RETURN")?;
    let start = cursor.offset();
    cursor.expression()?;
    Ok(FunctionBody::Expression(cursor.text_from(start)))
}

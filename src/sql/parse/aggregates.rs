//! `CREATE AGGREGATE` and `DROP AGGREGATE`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::data_type;
use super::functions::parameters;
use crate::catalog::function::AggregateBody;
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::statement::{CreateAggregate, FunctionReference, Statement};
use crate::types::SqlType;

/// `AGGREGATE` was read: `name (types) (SFUNC = f, STYPE = type [, INITCOND = '…'] [, FINALFUNC = g])`
pub(super) fn create(cursor: &mut Cursor, or_replace: bool) -> Result<Statement> {
    let name = cursor.object_name()?;
    let parameters = arguments(cursor)?;
    let mut options = Options::default();
    cursor.expect_token(&Token::LParen)?;
    cursor.comma_separated(|cursor| option(cursor, &mut options))?;
    cursor.expect_token(&Token::RParen)?;
    let missing = |what: &str| {
        Error::new(
            sqlstate::INVALID_FUNCTION_DEFINITION,
            format!("aggregate {what} must be specified"),
        )
    };
    let body = AggregateBody {
        transition: options.transition.ok_or_else(|| missing("sfunc"))?,
        state: options.state.ok_or_else(|| missing("stype"))?,
        initial: options.initial,
        last: options.last,
    };
    Ok(Statement::CreateAggregate(CreateAggregate {
        name,
        or_replace,
        parameters,
        body,
    }))
}

/// `AGGREGATE` was read: `[IF EXISTS] name (types), … [CASCADE | RESTRICT]`
pub(super) fn drop(cursor: &mut Cursor) -> Result<Statement> {
    let if_exists = super::if_exists(cursor);
    let aggregates = cursor.comma_separated(|cursor| {
        let name = cursor.object_name()?;
        let types = arguments(cursor)?.into_iter().map(|p| p.sql_type).collect();
        Ok(FunctionReference {
            name,
            types: Some(types),
        })
    })?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(Statement::DropAggregate {
        aggregates,
        if_exists,
        cascade,
    })
}

fn arguments(cursor: &mut Cursor) -> Result<Vec<crate::catalog::function::FunctionParameter>> {
    let position = cursor.position();
    let takes_none = matches!(cursor.peek_at(1), Token::Mul | Token::RParen);
    if takes_none || matches!(cursor.word_at(1).as_deref(), Some("ORDER" | "VARIADIC")) {
        return Err(Error::unsupported(
            "aggregates without arguments, ordered-set aggregates and VARIADIC are not supported",
        )
        .hint("Give the types of its arguments: CREATE AGGREGATE name (type, …) (…).")
        .position(position));
    }
    let parameters = parameters(cursor)?;
    match parameters.iter().any(|p| p.default.is_some()) {
        true => Err(Error::new(
            sqlstate::INVALID_FUNCTION_DEFINITION,
            "aggregates cannot have default arguments",
        )
        .position(position)),
        false => Ok(parameters),
    }
}

#[derive(Default)]
struct Options {
    transition: Option<String>,
    state: Option<SqlType>,
    initial: Option<String>,
    last: Option<String>,
}

fn option(cursor: &mut Cursor, options: &mut Options) -> Result<()> {
    let position = cursor.position();
    let name = cursor.label()?;
    let name = name.as_str();
    if matches!(name, "finalfunc_extra" | "hypothetical") {
        return Err(refused(name).position(position));
    }
    cursor.expect_token(&Token::Eq)?;
    match name {
        "sfunc" => options.transition = Some(cursor.object_name()?),
        "stype" => options.state = Some(data_type(cursor)?),
        "initcond" => {
            let text = match cursor.accept_string() {
                Some(text) => text,
                None => {
                    let start = cursor.offset();
                    cursor.expression()?;
                    cursor.text_from(start)
                }
            };
            options.initial = Some(text);
        }
        "finalfunc" => options.last = Some(cursor.object_name()?),
        // What PostgreSQL's planner is told, and makes no difference here.
        "sspace" | "parallel" | "finalfunc_modify" => {
            cursor.advance();
        }
        other => return Err(refused(other).position(position)),
    }
    Ok(())
}

fn refused(option: &str) -> Error {
    const KNOWN: &[&str] = &[
        "finalfunc_extra",
        "hypothetical",
        "combinefunc",
        "serialfunc",
        "deserialfunc",
        "msfunc",
        "minvfunc",
        "mstype",
        "msspace",
        "mfinalfunc",
        "mfinalfunc_extra",
        "mfinalfunc_modify",
        "minitcond",
        "sortop",
    ];
    match KNOWN.contains(&option) {
        true => Error::unsupported(format!("aggregate attribute \"{option}\" is not supported"))
            .hint("There are SFUNC, STYPE, INITCOND and FINALFUNC."),
        false => Error::new(
            sqlstate::SYNTAX_ERROR,
            format!("aggregate attribute \"{option}\" not recognized"),
        ),
    }
}

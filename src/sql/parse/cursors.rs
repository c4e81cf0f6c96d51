//! Prepared statements and cursors of SQL.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::data_type;
use super::{query, statement};
use crate::error::Result;
use crate::sql::cursor::Cursor;
use crate::sql::statement::{Direction, Statement};

/// Reads `PREPARE`, `EXECUTE`, `DEALLOCATE`, `DECLARE`, `FETCH`, `MOVE` or `CLOSE`.
pub(super) fn cursor_statement(cursor: &mut Cursor) -> Result<Statement> {
    match cursor.word_at(0).as_deref() {
        Some("PREPARE") => prepare(cursor),
        Some("EXECUTE") => execute(cursor),
        Some("DEALLOCATE") => {
            cursor.advance();
            cursor.accept("PREPARE");
            Ok(Statement::Deallocate(name_or_all(cursor)?))
        }
        Some("DECLARE") => declare(cursor),
        Some("CLOSE") => {
            cursor.advance();
            Ok(Statement::CloseCursor(name_or_all(cursor)?))
        }
        Some("MOVE") => {
            cursor.advance();
            let (name, direction) = fetch_target(cursor)?;
            Ok(Statement::Move { name, direction })
        }
        _ => {
            cursor.expect("FETCH")?;
            let (name, direction) = fetch_target(cursor)?;
            Ok(Statement::Fetch { name, direction })
        }
    }
}

fn name_or_all(cursor: &mut Cursor) -> Result<Option<String>> {
    if cursor.accept("ALL") {
        Ok(None)
    } else {
        cursor.identifier().map(Some)
    }
}

/// `PREPARE name [(type, …)] AS statement`. The types are checked and dropped: what a parameter is
/// follows from its use, as for a client that declares none.
fn prepare(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("PREPARE")?;
    if cursor.sees("TRANSACTION") {
        return Err(super::unsupported(cursor, "PREPARE TRANSACTION"));
    }
    let name = cursor.identifier()?;
    if cursor.accept_token(&Token::LParen) {
        cursor.comma_separated(data_type)?;
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect("AS")?;
    Ok(Statement::Prepare {
        name,
        statement: Box::new(statement(cursor)?),
    })
}

fn execute(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("EXECUTE")?;
    let name = cursor.identifier()?;
    let mut arguments = Vec::new();
    if cursor.accept_token(&Token::LParen) && !cursor.accept_token(&Token::RParen) {
        arguments = cursor.comma_separated(Cursor::expression)?;
        cursor.expect_token(&Token::RParen)?;
    }
    Ok(Statement::Execute { name, arguments })
}

/// `DECLARE name [BINARY] [INSENSITIVE] [[NO] SCROLL] CURSOR [WITH | WITHOUT HOLD] FOR …`
fn declare(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("DECLARE")?;
    let name = cursor.identifier()?;
    let mut scroll = false;
    while let Some(word) =
        cursor.accept_one(&["BINARY", "INSENSITIVE", "ASENSITIVE", "NO SCROLL", "SCROLL"])
    {
        scroll |= word == "SCROLL";
    }
    cursor.expect("CURSOR")?;
    let hold = cursor.accept_one(&["WITH HOLD", "WITHOUT HOLD"]) == Some("WITH HOLD");
    cursor.expect("FOR")?;
    let inner = if cursor.sees("SUBSCRIBE") || cursor.sees("TAIL") {
        statement(cursor)?
    } else {
        query(cursor)?
    };
    Ok(Statement::DeclareCursor {
        name,
        query: Box::new(inner),
        hold,
        scroll,
    })
}

/// `[direction] [FROM | IN] name`
fn fetch_target(cursor: &mut Cursor) -> Result<(String, Direction)> {
    // A cursor may have the name of a direction: then it stands last.
    let direction = match cursor.peek_at(1) {
        Token::EOF => Direction::Forward(Some(1)),
        _ => direction(cursor)?,
    };
    cursor.accept_one(&["FROM", "IN"]);
    Ok((cursor.identifier()?, direction))
}

fn direction(cursor: &mut Cursor) -> Result<Direction> {
    const WORDS: &[&str] = &[
        "NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "FORWARD", "BACKWARD",
    ];
    Ok(match cursor.accept_one(WORDS) {
        Some("PRIOR") => Direction::Backward(Some(1)),
        Some("FIRST") => Direction::Absolute(1),
        Some("LAST") => Direction::Absolute(-1),
        Some("ABSOLUTE") => Direction::Absolute(required(cursor)?),
        Some("RELATIVE") => Direction::Relative(required(cursor)?),
        Some("BACKWARD") => match counted(cursor)? {
            Direction::Forward(count) => Direction::Backward(count),
            Direction::Backward(count) => Direction::Forward(count),
            other => other,
        },
        Some("NEXT") => Direction::Forward(Some(1)),
        _ => counted(cursor)?,
    })
}

/// `n | ALL`, or nothing for 1; a negative count goes the other way.
fn counted(cursor: &mut Cursor) -> Result<Direction> {
    if cursor.accept("ALL") {
        return Ok(Direction::Forward(None));
    }
    Ok(match signed(cursor)? {
        Some(count) if count < 0 => Direction::Backward(Some(count.unsigned_abs())),
        Some(count) => Direction::Forward(Some(count.unsigned_abs())),
        None => Direction::Forward(Some(1)),
    })
}

fn required(cursor: &mut Cursor) -> Result<i64> {
    signed(cursor)?.ok_or_else(|| cursor.expected("a number"))
}

fn signed(cursor: &mut Cursor) -> Result<Option<i64>> {
    let negative = cursor.accept_token(&Token::Minus);
    if !negative {
        cursor.accept_token(&Token::Plus);
        if !matches!(cursor.peek(), Token::Number(..)) {
            return Ok(None);
        }
    }
    let count = i64::try_from(cursor.unsigned()?).unwrap_or(i64::MAX);
    Ok(Some(if negative { -count } else { count }))
}

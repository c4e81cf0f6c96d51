//! Prepared statements and cursors of SQL.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::data_type;
use super::{query, statement};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::statement::Statement;

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
            let (name, count) = fetch_target(cursor)?;
            Ok(Statement::Move { name, count })
        }
        _ => {
            cursor.expect("FETCH")?;
            let (name, count) = fetch_target(cursor)?;
            Ok(Statement::Fetch { name, count })
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
    loop {
        if cursor.sees("SCROLL") {
            return Err(super::unsupported(cursor, "SCROLL")
                .hint("Cursors read forward only; leave SCROLL out."));
        }
        if cursor
            .accept_one(&["BINARY", "INSENSITIVE", "ASENSITIVE", "NO SCROLL"])
            .is_none()
        {
            break;
        }
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
    })
}

/// `[NEXT | n | ALL | FORWARD [n | ALL]] [FROM | IN] name`
fn fetch_target(cursor: &mut Cursor) -> Result<(String, Option<u64>)> {
    let backward = ["PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD"];
    // A cursor may have one of these names: then it stands last.
    let more_follows = !matches!(cursor.peek_at(1), Token::EOF);
    if more_follows && backward.iter().any(|w| cursor.sees(w)) || cursor.peek() == &Token::Minus {
        return Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "cursor can only scan forward",
        )
        .hint("Declare the cursor again to read from its beginning.")
        .position(cursor.position()));
    }
    if more_follows {
        cursor.accept_one(&["NEXT", "FORWARD"]);
    }
    let count = if cursor.accept("ALL") {
        None
    } else if matches!(cursor.peek(), Token::Number(..)) {
        Some(cursor.unsigned()?)
    } else {
        Some(1)
    };
    cursor.accept_one(&["FROM", "IN"]);
    Ok((cursor.identifier()?, count))
}

//! `CREATE INDEX`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::if_not_exists;
use crate::catalog::definition::IndexColumn;
use crate::error::{Error, Result};
use crate::sql::cursor::Cursor;
use crate::sql::statement::{CreateIndex, Statement};

/// `CREATE INDEX [CONCURRENTLY] [[IF NOT EXISTS] name] ON [ONLY] view [USING btree] (column …, …)
/// [INCLUDE (column, …)] [WITH (fillfactor = …)]`, after `CREATE`.
pub(super) fn create(cursor: &mut Cursor) -> Result<Statement> {
    let position = cursor.position();
    if cursor.accept("UNIQUE INDEX") {
        return Err(Error::unsupported("unique indexes are not supported")
            .hint("Which rows a view holds follows from its query, so that nothing could be refused. Say CREATE INDEX.")
            .position(position));
    }
    cursor.expect("INDEX")?;
    // It is always filled while readers and the view go on.
    cursor.accept("CONCURRENTLY");
    let if_not_exists = if_not_exists(cursor);
    let name = match cursor.sees("ON") {
        true if if_not_exists => return Err(cursor.unexpected()),
        true => None,
        false => Some(cursor.object_name()?),
    };
    cursor.expect("ON")?;
    cursor.accept("ONLY");
    let relation = cursor.object_name()?;
    method(cursor)?;
    cursor.expect_token(&Token::LParen)?;
    let columns = cursor.comma_separated(column)?;
    cursor.expect_token(&Token::RParen)?;
    let include = match cursor.accept("INCLUDE") {
        true => {
            cursor.expect_token(&Token::LParen)?;
            let names = cursor.comma_separated(Cursor::identifier)?;
            cursor.expect_token(&Token::RParen)?;
            names
        }
        false => Vec::new(),
    };
    rest(cursor)?;
    Ok(Statement::CreateIndex(CreateIndex {
        name,
        if_not_exists,
        relation,
        columns,
        include,
    }))
}

/// `USING btree`: all are ordered.
fn method(cursor: &mut Cursor) -> Result<()> {
    if !cursor.accept("USING") {
        return Ok(());
    }
    let position = cursor.position();
    let method = cursor.identifier()?;
    match method.as_str() {
        "btree" => Ok(()),
        _ => Err(
            Error::unsupported(format!("access method \"{method}\" is not supported"))
                .hint("Leave out USING: an index here is ordered, as with btree.")
                .position(position),
        ),
    }
}

fn column(cursor: &mut Cursor) -> Result<IndexColumn> {
    let position = cursor.position();
    let is_expression = match cursor.peek() {
        Token::LParen => true,
        _ => matches!(cursor.peek_at(1), Token::LParen),
    };
    if is_expression {
        return Err(
            Error::unsupported("indexes of expressions are not supported")
                .hint("Let the view have a column of the expression, and index that.")
                .position(position),
        );
    }
    let name = cursor.identifier()?;
    if cursor.sees("COLLATE") {
        return Err(Error::unsupported("COLLATE is not supported in an index")
            .hint("Texts are ordered by their bytes, as with COLLATE \"C\".")
            .position(cursor.position()));
    }
    let descending = cursor.accept_one(&["ASC", "DESC"]) == Some("DESC");
    let nulls_first = match cursor.accept_one(&["NULLS FIRST", "NULLS LAST"]) {
        Some(words) => words == "NULLS FIRST",
        None => descending,
    };
    Ok(IndexColumn {
        name,
        descending,
        nulls_first,
    })
}

/// What may follow the columns, and says nothing here or too much.
fn rest(cursor: &mut Cursor) -> Result<()> {
    let position = cursor.position();
    if cursor.sees("WHERE") {
        return Err(Error::unsupported("partial indexes are not supported")
            .hint("Create a materialized view with this condition, and an index on it if needed.")
            .position(position));
    }
    for words in ["NULLS DISTINCT", "NULLS NOT DISTINCT", "WITH", "TABLESPACE"] {
        if cursor.sees(words) {
            return Err(
                Error::unsupported(format!("{words} is not supported in CREATE INDEX"))
                    .position(position),
            );
        }
    }
    Ok(())
}

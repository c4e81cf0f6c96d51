//! One statement's tokens to one [`Statement`].
//!
//! The first words decide. Queries and DML go to sqlparser whole; the rest is read by the modules
//! below. What PostgreSQL or our own reference knows and this build does not is 0A000, anything
//! else is 42601 with the position.

mod aggregates;
mod alter;
mod copy;
mod create;
mod cursors;
mod functions;
mod grants;
mod indexes;
mod option_list;
mod recovery;
mod roles;
mod run;
mod settings;
mod with;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::names;
use crate::sql::source::Source;
use crate::sql::statement::{ObjectKind, Statement};

pub(crate) use with::{change_of, changes_rows};

/// Statements that do nothing here, by their first words, with their command tags.
const NO_OPERATIONS: &[(&str, &str)] = &[
    ("ANALYZE", "ANALYZE"),
    ("ANALYSE", "ANALYZE"),
    ("VACUUM", "VACUUM"),
    ("LOCK", "LOCK TABLE"),
    ("CHECKPOINT", "CHECKPOINT"),
    ("REINDEX", "REINDEX"),
    ("CLUSTER", "CLUSTER"),
];

/// First words of statements that exist elsewhere and not here.
const UNSUPPORTED: &[&str] = &[
    "MERGE",
    "CALL",
    "DO",
    "LOAD",
    "IMPORT",
    "SECURITY LABEL",
    "TEST",
    "RUN",
    "KILL",
];

/// Parses a text of statements; see [`crate::sql::parse`].
pub(crate) fn parse(sql: &str) -> Result<Vec<(Statement, String)>> {
    let source = Source::new(sql);
    source
        .statements()?
        .into_iter()
        .map(|tokens| {
            let text = source.slice(tokens.start, tokens.end).to_owned();
            let mut cursor = Cursor::new(&source, tokens);
            let statement = statement(&mut cursor)?;
            cursor.finish()?;
            Ok((statement, text))
        })
        .collect()
}

/// Reads one statement; what follows it is the caller's to check.
pub(crate) fn statement(cursor: &mut Cursor) -> Result<Statement> {
    if matches!(cursor.peek(), Token::LParen) {
        return query(cursor);
    }
    let Some(first) = cursor.word_at(0) else {
        return Err(cursor.unexpected());
    };
    match first.as_str() {
        "SELECT" | "WITH" | "VALUES" | "TABLE" => query(cursor),
        "INSERT" | "UPDATE" | "DELETE" => change(cursor),
        "TRUNCATE" => truncate(cursor),
        "COPY" => copy::copy(cursor),
        "CREATE" => create::create(cursor),
        "DROP" => alter::drop(cursor),
        "ALTER" => alter::alter(cursor),
        "COMMENT" => alter::comment(cursor),
        "GRANT" | "REVOKE" => grants::grant(cursor),
        "REASSIGN" => grants::reassign_owned(cursor),
        "START" | "STOP" | "REFRESH" | "FLUSH" | "WAIT" | "SUBSCRIBE" | "TAIL" | "EXPLAIN"
        | "DESCRIBE" | "DESC" => run::run(cursor),
        "RESET" if cursor.sees("RESET CHECKPOINT OF") => recovery::recovery(cursor),
        "DIAGNOSE" | "CHECK" | "VERIFY" | "BACKUP" | "RESTORE" | "REWIND" | "REPAIR"
        | "REBUILD" | "REPLAY" | "RUN" | "TEST" | "COMPARE" | "SUGGEST" => {
            recovery::recovery(cursor)
        }
        "SHOW" | "SET" | "RESET" | "DISCARD" => settings::setting(cursor),
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE" => {
            settings::transaction(cursor)
        }
        "PREPARE" | "EXECUTE" | "DEALLOCATE" | "DECLARE" | "FETCH" | "MOVE" | "CLOSE" => {
            cursors::cursor_statement(cursor)
        }
        "LISTEN" | "UNLISTEN" | "NOTIFY" => channels(cursor),
        _ => other(cursor),
    }
}

/// `LISTEN channel`, `UNLISTEN channel | *`, `NOTIFY channel [, 'payload']`.
fn channels(cursor: &mut Cursor) -> Result<Statement> {
    if cursor.accept("LISTEN") {
        return cursor.identifier().map(Statement::Listen);
    }
    if cursor.accept("UNLISTEN") {
        return match cursor.accept_token(&Token::Mul) {
            true => Ok(Statement::Unlisten(None)),
            false => cursor.identifier().map(|c| Statement::Unlisten(Some(c))),
        };
    }
    cursor.expect("NOTIFY")?;
    let channel = cursor.identifier()?;
    let payload = match cursor.accept_token(&Token::Comma) {
        true => cursor.string()?,
        false => String::new(),
    };
    Ok(Statement::Notify { channel, payload })
}

fn other(cursor: &mut Cursor) -> Result<Statement> {
    for (words, tag) in NO_OPERATIONS {
        if cursor.accept(words) {
            skip_rest(cursor);
            return Ok(Statement::NoOperation(tag));
        }
    }
    for words in UNSUPPORTED {
        if cursor.sees(words) {
            return Err(unsupported(cursor, words));
        }
    }
    Err(cursor.unexpected())
}

/// Takes the tokens up to the end of the statement.
pub(crate) fn skip_rest(cursor: &mut Cursor) {
    while !cursor.at_end() {
        cursor.advance();
    }
}

/// 0A000 at the next token.
pub(crate) fn unsupported(cursor: &Cursor, what: &str) -> Error {
    Error::unsupported(format!("{what} is not supported")).position(cursor.position())
}

/// A query as a statement.
pub(crate) fn query(cursor: &mut Cursor) -> Result<Statement> {
    let position = cursor.position();
    let (mut query, _) = cursor.query()?;
    refuse_reserved_relation(cursor, &query)?;
    if let Some(change) = with::change_of(&mut query, position)? {
        return Ok(change);
    }
    match query.body.as_ref() {
        ast::SetExpr::Select(select) if select.into.is_some() => {
            return Err(Error::unsupported("SELECT INTO is not supported")
                .hint("Use CREATE TABLE … AS SELECT ….")
                .position(position));
        }
        _ => {}
    }
    Ok(Statement::Query(query))
}

/// The query of a view: one that changes rows is none.
pub(crate) fn view_query(cursor: &mut Cursor) -> Result<(Box<ast::Query>, String)> {
    let first = cursor.word_at(0).unwrap_or_default();
    if matches!(first.as_str(), "INSERT" | "UPDATE" | "DELETE" | "MERGE") {
        return Err(cursor.unexpected());
    }
    let position = cursor.position();
    let (query, text) = cursor.query()?;
    let mut ctes = query.with.iter().flat_map(|with| &with.cte_tables);
    if with::changes_rows(&query) || ctes.any(|cte| with::changes_rows(&cte.query)) {
        return Err(
            Error::unsupported("views must not contain data-modifying statements in WITH")
                .position(position),
        );
    }
    Ok((query, text))
}

/// sqlparser takes any word for a relation; PostgreSQL wants quotes around a reserved one.
fn refuse_reserved_relation(cursor: &Cursor, query: &ast::Query) -> Result<()> {
    let found = ast::visit_relations(query, |name| {
        let ident = name.0.first().and_then(|part| part.as_ident());
        match ident {
            Some(i) if i.quote_style.is_none() && names::is_reserved(&i.value) => {
                ControlFlow::Break(cursor.unexpected_at(i.span))
            }
            _ => ControlFlow::Continue(()),
        }
    });
    match found {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// `INSERT`, `UPDATE`, `DELETE`.
fn change(cursor: &mut Cursor) -> Result<Statement> {
    let position = cursor.position();
    let start = cursor.offset();
    let parsed = cursor.run(Parser::parse_statement)?;
    Ok(match parsed {
        ast::Statement::Insert(insert) => Statement::Insert(Box::new(insert)),
        ast::Statement::Delete(delete) => Statement::Delete(Box::new(delete)),
        update @ ast::Statement::Update { .. } => Statement::Update(Box::new(update)),
        _ => {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                format!("syntax error at or near \"{}\"", cursor.text_from(start)),
            )
            .position(position));
        }
    })
}

/// `TRUNCATE [TABLE] [ONLY] name, … [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT]`
fn truncate(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("TRUNCATE")?;
    cursor.accept("TABLE");
    cursor.accept("ONLY");
    let names = cursor.target_names()?;
    cursor.accept_one(&["RESTART IDENTITY", "CONTINUE IDENTITY"]);
    cursor.accept_one(&["CASCADE", "RESTRICT"]);
    Ok(Statement::Truncate(names))
}

/// A kind of object, if one comes next.
pub(crate) fn accept_kind(cursor: &mut Cursor) -> Option<ObjectKind> {
    const KINDS: &[(&str, ObjectKind)] = &[
        ("STREAM", ObjectKind::Stream),
        ("TABLE", ObjectKind::Table),
        ("MATERIALIZED VIEW", ObjectKind::MaterializedView),
        ("VIEW", ObjectKind::View),
        ("SINK", ObjectKind::Sink),
        ("INDEX", ObjectKind::Index),
        ("PIPELINE", ObjectKind::Pipeline),
        ("SECRET", ObjectKind::Secret),
    ];
    KINDS
        .iter()
        .find(|(words, _)| cursor.accept(words))
        .map(|(_, kind)| *kind)
}

/// `IF EXISTS`.
pub(crate) fn if_exists(cursor: &mut Cursor) -> bool {
    cursor.accept("IF EXISTS")
}

/// `IF NOT EXISTS`.
pub(crate) fn if_not_exists(cursor: &mut Cursor) -> bool {
    cursor.accept("IF NOT EXISTS")
}

#[cfg(test)]
mod tests;

//! Running and watching: `START`, `STOP`, `REFRESH`, `FLUSH`, `WAIT`, `SUBSCRIBE`, `EXPLAIN`,
//! `DESCRIBE`.

use std::time::Duration;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{accept_kind, create, settings};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::interval;
use crate::sql::statement::{ObjectKind, Statement, Subscribe};

/// Reads one of these statements.
pub(super) fn run(cursor: &mut Cursor) -> Result<Statement> {
    match cursor.word_at(0).as_deref() {
        Some("START") if cursor.sees("START TRANSACTION") => settings::transaction(cursor),
        Some("START") => {
            cursor.advance();
            let what = runnable(cursor)?;
            Ok(Statement::Start(what, within(cursor)?))
        }
        Some("STOP") => {
            cursor.advance();
            let what = runnable(cursor)?;
            Ok(Statement::Stop(what, within(cursor)?))
        }
        Some("REFRESH") => {
            cursor.expect("REFRESH MATERIALIZED VIEW")?;
            if cursor.sees("CONCURRENTLY") && cursor.word_at(1).is_some() {
                cursor.advance();
            }
            let name = cursor.object_name()?;
            cursor.accept("WITH DATA");
            Ok(Statement::Refresh(name))
        }
        Some("FLUSH") => {
            cursor.advance();
            Ok(Statement::Flush)
        }
        Some("WAIT") => {
            cursor.expect("WAIT FOR")?;
            cursor.accept("MATERIALIZED VIEW");
            let name = cursor.object_name()?;
            Ok(Statement::Wait(name, within(cursor)?))
        }
        Some("SUBSCRIBE" | "TAIL") => subscribe(cursor),
        Some("EXPLAIN") => explain(cursor),
        _ => {
            cursor.advance();
            accept_kind(cursor);
            Ok(Statement::Describe(cursor.target_name()?))
        }
    }
}

/// `ALL` or a kind and a name.
fn runnable(cursor: &mut Cursor) -> Result<Option<(ObjectKind, String)>> {
    if cursor.accept("ALL") {
        return Ok(None);
    }
    let kind = match accept_kind(cursor) {
        Some(
            kind @ (ObjectKind::Stream
            | ObjectKind::MaterializedView
            | ObjectKind::Sink
            | ObjectKind::Pipeline),
        ) => kind,
        _ => return Err(cursor.expected("STREAM, MATERIALIZED VIEW, SINK, PIPELINE or ALL")),
    };
    Ok(Some((kind, cursor.object_name()?)))
}

/// `[WITHIN INTERVAL '…']`
fn within(cursor: &mut Cursor) -> Result<Option<Duration>> {
    if !cursor.accept("WITHIN") {
        return Ok(None);
    }
    let position = cursor.position();
    let expression = cursor.expression()?;
    let us = interval::expression_us(&expression).and_then(|us| u64::try_from(us).ok());
    us.map(|us| Some(Duration::from_micros(us))).ok_or_else(|| {
        Error::new(sqlstate::INVALID_PARAMETER_VALUE, "WITHIN needs a duration")
            .hint("Write WITHIN INTERVAL '60 seconds'.")
            .position(position)
    })
}

/// `SUBSCRIBE [TO] name [WITH (SNAPSHOT, PROGRESS)] [AFTER BATCH n]`
fn subscribe(cursor: &mut Cursor) -> Result<Statement> {
    cursor.advance();
    cursor.accept("TO");
    let mut subscribe = Subscribe {
        name: cursor.object_name()?,
        snapshot: false,
        progress: false,
        after_batch: None,
    };
    if cursor.accept("WITH") {
        cursor.expect_token(&Token::LParen)?;
        cursor.comma_separated(|cursor| {
            let option = cursor.accept_one(&["SNAPSHOT", "PROGRESS"]);
            let Some(option) = option else {
                return Err(cursor.expected("SNAPSHOT or PROGRESS"));
            };
            cursor.accept_token(&Token::Eq);
            let on = cursor.accept_one(&["TRUE", "FALSE"]) != Some("FALSE");
            match option {
                "SNAPSHOT" => subscribe.snapshot = on,
                _ => subscribe.progress = on,
            }
            Ok(())
        })?;
        cursor.expect_token(&Token::RParen)?;
    }
    if cursor.accept("AFTER BATCH") {
        subscribe.after_batch = Some(cursor.unsigned()?);
    }
    Ok(Statement::Subscribe(subscribe))
}

/// `EXPLAIN [ANALYZE] MATERIALIZED VIEW v`, or `EXPLAIN` of a statement.
fn explain(cursor: &mut Cursor) -> Result<Statement> {
    for (words, analyze) in [
        ("EXPLAIN MATERIALIZED VIEW", false),
        ("EXPLAIN ANALYZE MATERIALIZED VIEW", true),
    ] {
        if cursor.accept(words) {
            let name = cursor.object_name()?;
            return Ok(Statement::ExplainMaterializedView { name, analyze });
        }
    }
    if cursor.accept("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW") {
        return create::replaced_view(cursor)
            .map(|create| Statement::ExplainReplace(Box::new(create)));
    }
    let start = cursor.offset();
    let position = cursor.position();
    let parsed = cursor.run(Parser::parse_statement)?;
    match &parsed {
        ast::Statement::Explain { statement, .. }
            if matches!(
                statement.as_ref(),
                ast::Statement::Query(_)
                    | ast::Statement::Insert(_)
                    | ast::Statement::Update { .. }
                    | ast::Statement::Delete(_)
                    | ast::Statement::Execute { .. }
            ) =>
        {
            Ok(Statement::Explain(Box::new(parsed)))
        }
        _ => Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!("syntax error at or near \"{}\"", cursor.text_from(start)),
        )
        .hint("EXPLAIN takes a query, INSERT, UPDATE, DELETE MATERIALIZED VIEW name or CREATE OR REPLACE MATERIALIZED VIEW.")
        .position(position)),
    }
}

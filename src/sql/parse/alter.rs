//! `DROP`, `ALTER` and `COMMENT ON`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::{checked, option_list, option_name};
use super::{accept_kind, if_exists, unsupported};
use crate::catalog::definition::Options;
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::options::{self, Targets};
use crate::sql::statement::{ObjectKind, Statement};

/// Kinds that PostgreSQL drops, alters or comments on and that do not exist here.
const OTHER_KINDS: &[&str] = &[
    "INDEX",
    "SCHEMA",
    "DATABASE",
    "USER",
    "ROLE",
    "EXTENSION",
    "FUNCTION",
    "PROCEDURE",
    "TRIGGER",
    "TYPE",
    "DOMAIN",
    "SEQUENCE",
    "SYSTEM",
    "DEFAULT PRIVILEGES",
    "PUBLICATION",
    "SUBSCRIPTION",
    "RULE",
    "POLICY",
    "CONSTRAINT",
    "FOREIGN TABLE",
    "AGGREGATE",
    "OPERATOR",
    "OWNED",
];

fn kind(cursor: &mut Cursor, verb: &str) -> Result<ObjectKind> {
    if let Some(kind) = accept_kind(cursor) {
        return Ok(kind);
    }
    Err(match OTHER_KINDS.iter().find(|words| cursor.sees(words)) {
        Some(words) => unsupported(cursor, &format!("{verb} {words}")),
        None => cursor.expected("STREAM, TABLE, MATERIALIZED VIEW, VIEW, SINK, PIPELINE or SECRET"),
    })
}

/// `DROP kind [IF EXISTS] name, … [CASCADE | RESTRICT]`
pub(super) fn drop(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("DROP")?;
    let kind = kind(cursor, "DROP")?;
    let if_exists = if_exists(cursor);
    let names = cursor.object_names()?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(Statement::Drop {
        kind,
        names,
        if_exists,
        cascade,
    })
}

/// `ALTER kind name SET (…) | RESET (…) | RENAME TO n`, `ALTER SECRET name AS '…'`
pub(super) fn alter(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("ALTER")?;
    let kind = kind(cursor, "ALTER")?;
    if cursor.sees("IF EXISTS") {
        return Err(unsupported(cursor, "ALTER … IF EXISTS"));
    }
    cursor.accept("ONLY");
    let name = cursor.object_name()?;
    if kind == ObjectKind::Secret && cursor.accept("AS") {
        let value = cursor.string()?;
        return Ok(Statement::AlterSecret { name, value });
    }
    if cursor.accept("RENAME TO") {
        let new_name = cursor.object_name()?;
        return Ok(Statement::Rename {
            kind,
            name,
            new_name,
        });
    }
    let target = Targets::of_kind(kind);
    if cursor.sees("SET") && !cursor.sees("SET SCHEMA") {
        cursor.advance();
        let set = checked(target, option_list(cursor)?)?;
        return Ok(Statement::AlterOptions {
            kind,
            name,
            set,
            reset: Vec::new(),
        });
    }
    if cursor.accept("RESET") {
        cursor.expect_token(&Token::LParen)?;
        let reset = cursor.comma_separated(|cursor| {
            let position = cursor.position();
            let name = option_name(cursor)?;
            options::canonical_name(target, &name).map_err(|e| e.position(position))
        })?;
        cursor.expect_token(&Token::RParen)?;
        return Ok(Statement::AlterOptions {
            kind,
            name,
            set: Options::new(),
            reset,
        });
    }
    Err(unknown_action(cursor))
}

fn unknown_action(cursor: &Cursor) -> Error {
    const KNOWN: &[&str] = &[
        "ADD",
        "DROP",
        "ALTER",
        "RENAME",
        "OWNER TO",
        "SET SCHEMA",
        "ENABLE",
        "DISABLE",
        "CLUSTER",
        "INHERIT",
        "VALIDATE",
        "ATTACH",
        "DETACH",
    ];
    match KNOWN.iter().find(|words| cursor.sees(words)) {
        Some(words) => unsupported(cursor, &format!("ALTER … {words}")),
        None => cursor.expected("SET, RESET or RENAME TO"),
    }
}

/// `COMMENT ON kind name IS '…' | NULL`, `COMMENT ON COLUMN relation.column IS …`
pub(super) fn comment(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("COMMENT ON")?;
    let (kind, name, column) = if cursor.accept("COLUMN") {
        let (name, column) = column_of(cursor)?;
        // Whose column it is, the catalog knows; columns of all relations share one name space.
        (ObjectKind::Table, name, Some(column))
    } else {
        let kind = kind(cursor, "COMMENT ON")?;
        (kind, cursor.object_name()?, None)
    };
    cursor.expect("IS")?;
    let comment = if cursor.accept("NULL") {
        None
    } else {
        Some(cursor.string()?)
    };
    Ok(Statement::Comment {
        kind,
        name,
        column,
        comment,
    })
}

/// `[[database.]schema.]relation.column`
fn column_of(cursor: &mut Cursor) -> Result<(String, String)> {
    let position = cursor.position();
    let mut parts = vec![cursor.identifier()?];
    while cursor.accept_token(&Token::Period) {
        parts.push(cursor.label()?);
    }
    match (parts.pop(), parts.pop()) {
        (Some(column), Some(relation)) => Ok((relation, column)),
        _ => Err(
            Error::new(sqlstate::SYNTAX_ERROR, "column name must be qualified").position(position),
        ),
    }
}

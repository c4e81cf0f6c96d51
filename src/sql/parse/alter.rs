//! `DROP`, `ALTER` and `COMMENT ON`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::{added_column, declared_type, expectation, watermark};
use super::option_list::{checked, effective, option_list, option_name};
use super::{accept_kind, aggregates, functions, grants, if_exists, roles, unsupported};
use crate::catalog::definition::Options;
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::Owned;
use crate::sql::cursor::{Cursor, target};
use crate::sql::options::{self, Targets};
use crate::sql::statement::{AlterAction, ColumnType, ObjectKind, Statement};

/// Kinds that PostgreSQL drops, alters or comments on and that do not exist here.
const OTHER_KINDS: &[&str] = &[
    "SCHEMA",
    "DATABASE",
    "USER MAPPING",
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
        None => cursor
            .expected("STREAM, TABLE, MATERIALIZED VIEW, VIEW, INDEX, SINK, PIPELINE or SECRET"),
    })
}

/// `DROP kind [IF EXISTS] name, … [CASCADE | RESTRICT]`
pub(super) fn drop(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("DROP")?;
    if cursor.accept("FUNCTION") {
        return functions::drop(cursor);
    }
    if cursor.accept("AGGREGATE") {
        return aggregates::drop(cursor);
    }
    if cursor.accept("RECOVERY SCHEDULE") {
        let if_exists = if_exists(cursor);
        let names = cursor.object_names()?;
        return Ok(Statement::DropRecoverySchedule { names, if_exists });
    }
    if roles::accept_role_word(cursor).is_some() {
        return roles::drop(cursor);
    }
    if cursor.accept("OWNED BY") {
        return grants::drop_owned(cursor);
    }
    let kind = kind(cursor, "DROP")?;
    if kind == ObjectKind::Index {
        cursor.accept("CONCURRENTLY");
    }
    let if_exists = if_exists(cursor);
    let names = cursor.target_names()?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(Statement::Drop {
        kind,
        names,
        if_exists,
        cascade,
    })
}

/// `ALTER kind name SET (…) | RESET (…) | RENAME TO n | action, …`, `ALTER SECRET name AS '…'`
pub(super) fn alter(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("ALTER")?;
    if let Some(word) = roles::accept_role_word(cursor) {
        return roles::alter(cursor, word);
    }
    if cursor.accept("DEFAULT PRIVILEGES") {
        return grants::default_privileges(cursor);
    }
    if let Some(statement) = grants::alter_owner(cursor)? {
        return Ok(statement);
    }
    let kind = kind(cursor, "ALTER")?;
    let position = cursor.position();
    let if_exists = if_exists(cursor);
    cursor.accept("ONLY");
    let name = cursor.target_name()?;
    if matches!(kind, ObjectKind::Stream | ObjectKind::Table) && sees_action(cursor) {
        return Ok(Statement::AlterRelation {
            kind,
            name,
            if_exists,
            actions: cursor.comma_separated(action)?,
        });
    }
    if cursor.accept("RENAME TO") {
        let new_name = cursor.object_name()?;
        return Ok(Statement::Rename {
            kind,
            name,
            new_name,
            if_exists,
        });
    }
    if if_exists {
        return Err(
            Error::unsupported("IF EXISTS is not supported in this ALTER").position(position),
        );
    }
    let owned = Owned::Object(kind, name.clone());
    if let Some(statement) = grants::owner_of(cursor, &owned)? {
        return Ok(statement);
    }
    if kind == ObjectKind::Secret && cursor.accept("AS") {
        let value = cursor.string()?;
        return Ok(Statement::AlterSecret { name, value });
    }
    let target = Targets::of_kind(kind);
    if cursor.sees("SET") && !cursor.sees("SET SCHEMA") {
        cursor.advance();
        let set = checked(target, effective(target, option_list(cursor)?))?;
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

/// What follows changes columns, watermark or expectations.
fn sees_action(cursor: &Cursor) -> bool {
    ["ADD", "DROP", "ALTER"]
        .iter()
        .any(|words| cursor.sees(words))
        || (cursor.sees("RENAME") && !cursor.sees("RENAME TO"))
}

/// One action of `ALTER STREAM|TABLE`.
fn action(cursor: &mut Cursor) -> Result<AlterAction> {
    match cursor.accept_one(&["ADD", "DROP", "ALTER", "RENAME"]) {
        Some("ADD") => add(cursor),
        Some("DROP") => drop_part(cursor),
        Some("ALTER") => alter_part(cursor),
        Some(_) => {
            cursor.accept("COLUMN");
            let name = cursor.identifier()?;
            cursor.expect("TO")?;
            let new_name = cursor.identifier()?;
            let sent_as = match cursor.accept("FROM") {
                true => Some(cursor.string()?),
                false => None,
            };
            Ok(AlterAction::RenameColumn {
                name,
                new_name,
                sent_as,
            })
        }
        None => Err(unknown_action(cursor)),
    }
}

fn add(cursor: &mut Cursor) -> Result<AlterAction> {
    if cursor.accept("CONSTRAINT") {
        let name = cursor.identifier()?;
        if cursor.accept("PRIMARY KEY") {
            return cursor.column_names().map(AlterAction::AddPrimaryKey);
        }
        if !cursor.sees("EXPECT") {
            return Err(unsupported(cursor, "ADD CONSTRAINT without EXPECT")
                .hint("Write ADD CONSTRAINT name EXPECT (condition) [ON VIOLATION DROP ROW]."));
        }
        return expectation(cursor, name).map(AlterAction::AddExpectation);
    }
    if cursor.sees("WATERMARK FOR") {
        return watermark(cursor).map(|w| AlterAction::SetWatermark(Some(w)));
    }
    if cursor.accept("PRIMARY KEY") {
        return cursor.column_names().map(AlterAction::AddPrimaryKey);
    }
    for words in ["UNIQUE", "CHECK", "FOREIGN KEY", "EXCLUDE"] {
        if cursor.sees(words) {
            return Err(unsupported(cursor, &format!("ALTER … ADD {words}")));
        }
    }
    cursor.accept("COLUMN");
    let if_not_exists = super::if_not_exists(cursor);
    Ok(AlterAction::AddColumn {
        column: added_column(cursor)?,
        if_not_exists,
    })
}

fn drop_part(cursor: &mut Cursor) -> Result<AlterAction> {
    if cursor.accept("WATERMARK") {
        return Ok(AlterAction::SetWatermark(None));
    }
    let is_constraint = cursor.accept("CONSTRAINT");
    if !is_constraint {
        cursor.accept("COLUMN");
    }
    let if_exists = if_exists(cursor);
    let name = cursor.identifier()?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(match is_constraint {
        true => AlterAction::DropConstraint { name, if_exists },
        false => AlterAction::DropColumn {
            name,
            if_exists,
            cascade,
        },
    })
}

fn alter_part(cursor: &mut Cursor) -> Result<AlterAction> {
    if cursor.sees("WATERMARK FOR") {
        return watermark(cursor).map(|w| AlterAction::SetWatermark(Some(w)));
    }
    cursor.accept("COLUMN");
    let name = cursor.identifier()?;
    let words = [
        "SET NOT NULL",
        "DROP NOT NULL",
        "SET DEFAULT",
        "DROP DEFAULT",
        "SET DATA TYPE",
        "TYPE",
    ];
    match cursor.accept_one(&words) {
        Some("SET NOT NULL") => Ok(AlterAction::SetNullable(name, false)),
        Some("DROP NOT NULL") => Ok(AlterAction::SetNullable(name, true)),
        Some("SET DEFAULT") => {
            let start = cursor.offset();
            cursor.expression()?;
            let default = Some(cursor.text_from(start));
            Ok(AlterAction::SetDefault(name, default))
        }
        Some("DROP DEFAULT") => Ok(AlterAction::SetDefault(name, None)),
        Some(_) => {
            let (sql_type, text_type) = declared_type(cursor)?;
            let using = match cursor.accept("USING") {
                true => {
                    let start = cursor.offset();
                    cursor.expression()?;
                    Some(cursor.text_from(start))
                }
                false => None,
            };
            Ok(AlterAction::SetType(
                name,
                ColumnType {
                    sql_type,
                    text_type,
                    using,
                },
            ))
        }
        None => Err(cursor.expected("TYPE, SET NOT NULL, DROP NOT NULL, SET or DROP DEFAULT")),
    }
}

fn unknown_action(cursor: &Cursor) -> Error {
    const KNOWN: &[&str] = &[
        "ADD",
        "DROP",
        "ALTER",
        "RENAME",
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
        (kind, cursor.target_name()?, None)
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
    match parts.pop().filter(|_| !parts.is_empty()) {
        Some(column) => Ok((target(parts).map_err(|e| e.position(position))?, column)),
        None => Err(
            Error::new(sqlstate::SYNTAX_ERROR, "column name must be qualified").position(position),
        ),
    }
}

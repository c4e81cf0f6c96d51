//! `CREATE`, `ALTER` and `DROP` of users, roles and groups, and the names of roles.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{if_exists, recovery, settings, unsupported};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{
    AccessStatement, GivenPassword, GrantRole, RoleName, RoleOptions, RoleSetting,
};
use crate::sql::cursor::Cursor;
use crate::sql::statement::Statement;

/// `USER`, `ROLE` or `GROUP`, if one comes next. `USER MAPPING` is something else.
pub(super) fn accept_role_word(cursor: &mut Cursor) -> Option<&'static str> {
    match cursor.sees("USER MAPPING") {
        true => None,
        false => cursor.accept_one(&["USER", "ROLE", "GROUP"]),
    }
}

/// A role as statements name it; `PUBLIC` is everyone.
pub(super) fn role_name(cursor: &mut Cursor) -> Result<RoleName> {
    if cursor
        .accept_one(&["CURRENT_USER", "CURRENT_ROLE"])
        .is_some()
    {
        return Ok(RoleName::Current);
    }
    if cursor.accept("SESSION_USER") {
        return Ok(RoleName::Session);
    }
    let position = cursor.position();
    let name = cursor.identifier()?;
    match name.as_str() {
        "public" => Ok(RoleName::Public),
        "none" => Err(
            Error::new(sqlstate::RESERVED_NAME, "role name \"none\" is reserved")
                .position(position),
        ),
        _ => Ok(RoleName::Named(name)),
    }
}

/// Roles separated by commas.
pub(super) fn role_names(cursor: &mut Cursor) -> Result<Vec<RoleName>> {
    cursor.comma_separated(role_name)
}

/// A name for a role; reserved ones are told as PostgreSQL tells them.
fn new_role_name(cursor: &mut Cursor) -> Result<String> {
    let position = cursor.position();
    let name = match role_name(cursor)? {
        RoleName::Named(name) => name,
        RoleName::Public => {
            return Err(
                Error::new(sqlstate::RESERVED_NAME, "role name \"public\" is reserved")
                    .position(position),
            );
        }
        RoleName::Current | RoleName::Session => {
            return Err(Error::new(
                sqlstate::RESERVED_NAME,
                "CURRENT_USER and SESSION_USER cannot be used as a role name here",
            )
            .position(position));
        }
    };
    match name.starts_with("pg_") {
        true => Err(Error::new(
            sqlstate::RESERVED_NAME,
            format!("role name \"{name}\" is reserved"),
        )
        .detail("Role names starting with \"pg_\" are reserved.")
        .position(position)),
        false => Ok(name),
    }
}

/// `CREATE USER | ROLE | GROUP` was read up to that word.
pub(super) fn create(cursor: &mut Cursor, word: &str) -> Result<Statement> {
    let name = new_role_name(cursor)?;
    let mut options = options(cursor, true)?;
    options.login.get_or_insert(word == "USER");
    let create = AccessStatement::CreateRole { name, options };
    Ok(Statement::Access(Box::new(create)))
}

/// `DROP USER | ROLE | GROUP` was read.
pub(super) fn drop(cursor: &mut Cursor) -> Result<Statement> {
    let if_exists = if_exists(cursor);
    let names = role_names(cursor)?;
    let drop = AccessStatement::DropRole { names, if_exists };
    Ok(Statement::Access(Box::new(drop)))
}

/// `ALTER USER | ROLE | GROUP` was read up to that word.
pub(super) fn alter(cursor: &mut Cursor, word: &str) -> Result<Statement> {
    if cursor.sees("ALL SET") || cursor.sees("ALL RESET") || cursor.sees("ALL IN DATABASE") {
        return Err(unsupported(cursor, "ALTER ROLE ALL"));
    }
    let role = role_name(cursor)?;
    let statement = if cursor.accept("RENAME TO") {
        let RoleName::Named(name) = role else {
            return Err(cursor.expected("the name of a role before RENAME"));
        };
        AccessStatement::RenameRole {
            name,
            new_name: new_role_name(cursor)?,
        }
    } else if word == "GROUP" {
        let is_revoke = match cursor.accept_one(&["ADD USER", "DROP USER"]) {
            Some(found) => found == "DROP USER",
            None => return Err(cursor.expected("ADD USER, DROP USER or RENAME TO")),
        };
        AccessStatement::GrantRole(GrantRole {
            is_revoke,
            roles: vec![role],
            members: role_names(cursor)?,
            admin: false,
            granted_by: None,
        })
    } else if let Some(setting) = setting(cursor)? {
        AccessStatement::AlterRoleSetting { role, setting }
    } else {
        let options = options(cursor, false)?;
        AccessStatement::AlterRole { role, options }
    };
    Ok(Statement::Access(Box::new(statement)))
}

/// `[IN DATABASE d] SET … | RESET …`; there is one database, so that it may be named or not.
fn setting(cursor: &mut Cursor) -> Result<Option<RoleSetting>> {
    if cursor.accept("IN DATABASE") {
        let position = cursor.position();
        let database = cursor.identifier()?;
        if database != crate::catalog::pg_catalog::DATABASE_NAME {
            return Err(Error::new(
                sqlstate::INVALID_CATALOG_NAME,
                format!("database \"{database}\" does not exist"),
            )
            .position(position));
        }
        if !cursor.sees("SET") && !cursor.sees("RESET") {
            return Err(cursor.expected("SET or RESET"));
        }
    }
    if cursor.accept("SET") {
        if let Some(name) = settings::from_current(cursor)? {
            return Ok(Some(RoleSetting::FromCurrent(name)));
        }
        let name = settings::set_name(cursor)?;
        return Ok(Some(RoleSetting::Set(name, settings::value(cursor)?)));
    }
    if cursor.accept("RESET ALL") {
        return Ok(Some(RoleSetting::ResetAll));
    }
    if cursor.accept("RESET") {
        let name = settings::parameter_name(cursor)?;
        return Ok(Some(RoleSetting::Reset(name)));
    }
    Ok(None)
}

/// `[WITH] option …`
fn options(cursor: &mut Cursor, is_create: bool) -> Result<RoleOptions> {
    cursor.accept("WITH");
    let mut options = RoleOptions::default();
    while !cursor.at_end() {
        option(cursor, &mut options, is_create)?;
    }
    Ok(options)
}

/// An attribute that a word switches on or off.
type Switch = fn(&mut RoleOptions) -> &mut Option<bool>;

const SWITCHES: [(&str, &str, Switch); 7] = [
    ("SUPERUSER", "NOSUPERUSER", |o| &mut o.superuser),
    ("CREATEDB", "NOCREATEDB", |o| &mut o.create_db),
    ("CREATEROLE", "NOCREATEROLE", |o| &mut o.create_role),
    ("INHERIT", "NOINHERIT", |o| &mut o.inherit),
    ("LOGIN", "NOLOGIN", |o| &mut o.login),
    ("REPLICATION", "NOREPLICATION", |o| &mut o.replication),
    ("BYPASSRLS", "NOBYPASSRLS", |o| &mut o.bypass_rls),
];

fn option(cursor: &mut Cursor, options: &mut RoleOptions, is_create: bool) -> Result<()> {
    let position = cursor.position();
    for (on, off, switch) in SWITCHES {
        if let Some(word) = cursor.accept_one(&[on, off]) {
            return said_once(switch(options), word == on, position);
        }
    }
    if cursor.accept("CONNECTION LIMIT") {
        let negative = cursor.accept_token(&Token::Minus);
        let limit = i32::try_from(cursor.unsigned()?).unwrap_or(i32::MAX);
        let limit = if negative { -limit } else { limit };
        if limit < -1 {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid connection limit: {limit}"),
            )
            .position(position));
        }
        return said_once(&mut options.connection_limit, limit, position);
    }
    if cursor
        .accept_one(&["ENCRYPTED PASSWORD", "PASSWORD"])
        .is_some()
    {
        let password = match cursor.accept("NULL") {
            true => None,
            false => Some(GivenPassword(cursor.string()?)),
        };
        return said_once(&mut options.password, password, position);
    }
    if cursor.accept("VALID UNTIL") {
        let until_us = valid_until(cursor)?;
        return said_once(&mut options.valid_until_us, until_us, position);
    }
    if is_create {
        if cursor.accept_one(&["IN ROLE", "IN GROUP"]).is_some() {
            options.in_roles.extend(role_names(cursor)?);
            return Ok(());
        }
        if cursor.accept_one(&["ROLE", "USER"]).is_some() {
            options.members.extend(role_names(cursor)?);
            return Ok(());
        }
        if cursor.accept("ADMIN") {
            options.admins.extend(role_names(cursor)?);
            return Ok(());
        }
        if cursor.accept("SYSID") {
            // PostgreSQL takes it and does nothing with it.
            cursor.unsigned()?;
            return Ok(());
        }
    }
    Err(cursor.unexpected())
}

fn said_once<T>(slot: &mut Option<T>, value: T, position: usize) -> Result<()> {
    if slot.is_some() {
        return Err(
            Error::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options")
                .position(position),
        );
    }
    *slot = Some(value);
    Ok(())
}

/// `'infinity'` is no end.
fn valid_until(cursor: &mut Cursor) -> Result<Option<i64>> {
    if cursor.accept("NULL") {
        return Ok(None);
    }
    let is_endless = match cursor.peek() {
        Token::SingleQuotedString(text) => text.trim().eq_ignore_ascii_case("infinity"),
        _ => false,
    };
    if is_endless {
        cursor.advance();
        return Ok(None);
    }
    recovery::timestamp(cursor).map(Some)
}

//! `GRANT`, `REVOKE`, `ALTER DEFAULT PRIVILEGES`, `REASSIGN OWNED`, `DROP OWNED`, `OWNER TO`.
//!
//! Whether privileges or roles are granted, the word `ON` after the list says.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::roles::{role_name, role_names};
use super::{functions, unsupported};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{
    AccessStatement, DefaultGrant, Grant, GrantObjects, GrantRole, GrantedPrivilege, Owned,
    RoleName,
};
use crate::sql::cursor::Cursor;
use crate::sql::statement::{ObjectKind, Statement};

fn access(statement: AccessStatement) -> Statement {
    Statement::Access(Box::new(statement))
}

/// Reads `GRANT` or `REVOKE`.
pub(super) fn grant(cursor: &mut Cursor) -> Result<Statement> {
    let is_revoke = cursor.accept("REVOKE");
    if !is_revoke {
        cursor.expect("GRANT")?;
    }
    let grant_option = is_revoke && cursor.accept("GRANT OPTION FOR");
    let admin = is_revoke && cursor.accept("ADMIN OPTION FOR");
    let items = cursor.comma_separated(privilege)?;
    if !cursor.accept("ON") {
        return roles(cursor, items, is_revoke, admin).map(access);
    }
    let objects = objects(cursor)?;
    let grant = grant_tail(cursor, items, objects, is_revoke, grant_option)?;
    Ok(access(AccessStatement::Grant(grant)))
}

/// A privilege, or as yet the name of a role.
fn privilege(cursor: &mut Cursor) -> Result<GrantedPrivilege> {
    if cursor.accept("ALL") {
        cursor.accept("PRIVILEGES");
        let columns = columns(cursor)?;
        return Ok(GrantedPrivilege {
            name: None,
            columns,
        });
    }
    let words = ["SELECT", "REFERENCES", "CREATE"];
    let name = match cursor.accept_one(&words) {
        Some(word) => word.to_lowercase(),
        None => cursor.identifier()?,
    };
    Ok(GrantedPrivilege {
        name: Some(name),
        columns: columns(cursor)?,
    })
}

fn columns(cursor: &mut Cursor) -> Result<Vec<String>> {
    match cursor.peek() {
        Token::LParen => cursor.column_names(),
        _ => Ok(Vec::new()),
    }
}

fn roles(
    cursor: &mut Cursor,
    items: Vec<GrantedPrivilege>,
    is_revoke: bool,
    mut admin: bool,
) -> Result<AccessStatement> {
    let roles = items.into_iter().map(|item| match item {
        GrantedPrivilege {
            name: Some(name),
            columns,
        } if columns.is_empty() => Ok(RoleName::Named(name)),
        _ => Err(cursor.expected("ON")),
    });
    let roles = roles.collect::<Result<Vec<_>>>()?;
    cursor.expect(if is_revoke { "FROM" } else { "TO" })?;
    let members = role_names(cursor)?;
    if !is_revoke
        && cursor
            .accept_one(&["WITH ADMIN OPTION", "WITH ADMIN TRUE"])
            .is_some()
    {
        admin = true;
    }
    let granted_by = granted_by(cursor)?;
    if is_revoke {
        cursor.accept_one(&["CASCADE", "RESTRICT"]);
    }
    Ok(AccessStatement::GrantRole(GrantRole {
        is_revoke,
        roles,
        members,
        admin,
        granted_by,
    }))
}

fn granted_by(cursor: &mut Cursor) -> Result<Option<RoleName>> {
    match cursor.accept("GRANTED BY") {
        true => role_name(cursor).map(Some),
        false => Ok(None),
    }
}

/// From `TO` or `FROM` on.
fn grant_tail(
    cursor: &mut Cursor,
    privileges: Vec<GrantedPrivilege>,
    objects: GrantObjects,
    is_revoke: bool,
    mut grant_option: bool,
) -> Result<Grant> {
    cursor.expect(if is_revoke { "FROM" } else { "TO" })?;
    let grantees = cursor.comma_separated(|cursor| {
        cursor.accept("GROUP");
        role_name(cursor)
    })?;
    if !is_revoke && cursor.accept("WITH GRANT OPTION") {
        grant_option = true;
    }
    let granted_by = granted_by(cursor)?;
    let cascade = is_revoke && cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(Grant {
        is_revoke,
        privileges,
        objects,
        grantees,
        grant_option,
        granted_by,
        cascade,
    })
}

/// What follows `ON`.
fn objects(cursor: &mut Cursor) -> Result<GrantObjects> {
    if let Some(objects) = all_in_schema(cursor)? {
        return Ok(objects);
    }
    const UNKNOWN: &[&str] = &[
        "FUNCTION",
        "PROCEDURE",
        "ROUTINE",
        "SEQUENCE",
        "LANGUAGE",
        "TYPE",
        "DOMAIN",
        "LARGE OBJECT",
        "TABLESPACE",
        "PARAMETER",
        "FOREIGN SERVER",
        "FOREIGN DATA WRAPPER",
        "SINK",
        "INDEX",
    ];
    if let Some(words) = UNKNOWN.iter().find(|words| cursor.sees(words)) {
        return Err(unsupported(cursor, &format!("GRANT ON {words}")));
    }
    if cursor.accept("SCHEMA") {
        return Ok(GrantObjects::Schemas(
            cursor.comma_separated(Cursor::identifier)?,
        ));
    }
    if cursor.accept("DATABASE") {
        return Ok(GrantObjects::Databases(
            cursor.comma_separated(Cursor::identifier)?,
        ));
    }
    if cursor.accept("PIPELINE") {
        return Ok(GrantObjects::Pipelines(cursor.object_names()?));
    }
    if cursor.accept("SECRET") {
        return Ok(GrantObjects::Secrets(cursor.object_names()?));
    }
    cursor.accept_one(&["TABLE", "STREAM", "MATERIALIZED VIEW", "VIEW"]);
    Ok(GrantObjects::Relations(cursor.object_names()?))
}

/// `ALL TABLES IN SCHEMA public`, and the other lists.
fn all_in_schema(cursor: &mut Cursor) -> Result<Option<GrantObjects>> {
    const LISTS: &[(&str, GrantObjects)] = &[
        ("ALL TABLES", GrantObjects::AllRelations(None)),
        (
            "ALL STREAMS",
            GrantObjects::AllRelations(Some(ObjectKind::Stream)),
        ),
        (
            "ALL MATERIALIZED VIEWS",
            GrantObjects::AllRelations(Some(ObjectKind::MaterializedView)),
        ),
        (
            "ALL VIEWS",
            GrantObjects::AllRelations(Some(ObjectKind::View)),
        ),
        ("ALL SEQUENCES", GrantObjects::Nothing),
    ];
    for words in ["ALL FUNCTIONS", "ALL PROCEDURES", "ALL ROUTINES"] {
        if cursor.sees(words) {
            return Err(unsupported(cursor, &format!("GRANT ON {words}"))
                .hint("Everyone may call functions; what they read is checked."));
        }
    }
    let Some((_, objects)) = LISTS.iter().find(|(words, _)| cursor.accept(words)) else {
        return Ok(None);
    };
    cursor.expect("IN SCHEMA")?;
    schemas(cursor)?;
    Ok(Some(objects.clone()))
}

fn schemas(cursor: &mut Cursor) -> Result<Vec<String>> {
    let position = cursor.position();
    let schemas = cursor.comma_separated(Cursor::identifier)?;
    match schemas.iter().find(|schema| *schema != "public") {
        Some(other) => Err(Error::new(
            sqlstate::INVALID_SCHEMA_NAME,
            format!("schema \"{other}\" does not exist"),
        )
        .position(position)),
        None => Ok(schemas),
    }
}

/// `ALTER DEFAULT PRIVILEGES` was read.
pub(super) fn default_privileges(cursor: &mut Cursor) -> Result<Statement> {
    let mut for_roles = Vec::new();
    let mut in_schemas = Vec::new();
    loop {
        if cursor.accept_one(&["FOR ROLE", "FOR USER"]).is_some() {
            for_roles.extend(role_names(cursor)?);
        } else if cursor.accept("IN SCHEMA") {
            in_schemas.extend(schemas(cursor)?);
        } else {
            break;
        }
    }
    let is_revoke = match cursor.accept_one(&["GRANT", "REVOKE"]) {
        Some(word) => word == "REVOKE",
        None => return Err(cursor.expected("GRANT or REVOKE")),
    };
    let grant_option = is_revoke && cursor.accept("GRANT OPTION FOR");
    let privileges = cursor.comma_separated(privilege)?;
    cursor.expect("ON")?;
    let on_relations = match cursor.accept_one(&["TABLES", "SEQUENCES"]) {
        Some(word) => word == "TABLES",
        None => {
            for words in ["FUNCTIONS", "ROUTINES", "TYPES", "SCHEMAS"] {
                if cursor.sees(words) {
                    let what = format!("ALTER DEFAULT PRIVILEGES ON {words}");
                    return Err(unsupported(cursor, &what));
                }
            }
            return Err(cursor.expected("TABLES or SEQUENCES"));
        }
    };
    let objects = GrantObjects::Nothing;
    let grant = grant_tail(cursor, privileges, objects, is_revoke, grant_option)?;
    Ok(access(AccessStatement::DefaultGrant(DefaultGrant {
        roles: for_roles,
        schemas: in_schemas,
        on_relations,
        grant,
    })))
}

/// `REASSIGN OWNED BY roles TO role`
pub(super) fn reassign_owned(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("REASSIGN OWNED BY")?;
    let roles = role_names(cursor)?;
    cursor.expect("TO")?;
    let to = role_name(cursor)?;
    Ok(access(AccessStatement::ReassignOwned { roles, to }))
}

/// `DROP OWNED BY` was read.
pub(super) fn drop_owned(cursor: &mut Cursor) -> Result<Statement> {
    let roles = role_names(cursor)?;
    let cascade = cursor.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(access(AccessStatement::DropOwned { roles, cascade }))
}

/// `OWNER TO role`, if it comes next.
pub(super) fn owner_of(cursor: &mut Cursor, object: &Owned) -> Result<Option<Statement>> {
    if !cursor.accept("OWNER TO") {
        return Ok(None);
    }
    Ok(Some(access(AccessStatement::AlterOwner {
        object: object.clone(),
        owner: role_name(cursor)?,
    })))
}

/// `ALTER SCHEMA | DATABASE | FUNCTION | AGGREGATE … OWNER TO`; `None`: it is none of these.
pub(super) fn alter_owner(cursor: &mut Cursor) -> Result<Option<Statement>> {
    let object = if cursor.accept("SCHEMA") {
        Owned::Schema(cursor.identifier()?)
    } else if cursor.accept("DATABASE") {
        Owned::Database(cursor.identifier()?)
    } else if cursor.accept_one(&["FUNCTION", "AGGREGATE"]).is_some() {
        Owned::Function(functions::reference(cursor)?)
    } else {
        return Ok(None);
    };
    match owner_of(cursor, &object)? {
        Some(statement) => Ok(Some(statement)),
        None => Err(unsupported(cursor, "this ALTER")),
    }
}

//! `has_table_privilege` and its kin, `pg_has_role`, `acldefault`.
//!
//! All forms of PostgreSQL: the user by name, by number or the current one, the object by name or by
//! number. A number that is of nothing gives NULL, a name an error. Several privileges in one text
//! are alternatives.

use std::sync::Arc;

use super::super::DATABASE_NAME;
use super::super::model::{Catalog, NAMESPACES, PUBLIC_OID, TEMPORARY_OID};
use super::super::relation::Datum;
use super::{Definition, int, text};
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::{OID_PUBLIC, ObjectKey, Subject};
use crate::error::{Error, Result, sqlstate};

const OF_OBJECT: &[&str] = &["text text", "text text text"];
const OF_COLUMN: &[&str] = &["text text text", "text text text text"];

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("has_table_privilege", OF_OBJECT, "bool", of_table),
    Definition::new("has_any_column_privilege", OF_OBJECT, "bool", of_any_column),
    Definition::new("has_column_privilege", OF_COLUMN, "bool", of_column),
    Definition::new("has_schema_privilege", OF_OBJECT, "bool", of_schema),
    Definition::new("has_database_privilege", OF_OBJECT, "bool", of_database),
    Definition::new("has_tablespace_privilege", OF_OBJECT, "bool", |c, a| {
        let (subject, _, _) = call(c, a, 2)?;
        Ok(subject.is_superuser.into())
    }),
    Definition::new("has_function_privilege", OF_OBJECT, "bool", of_everyone),
    Definition::new("has_sequence_privilege", OF_OBJECT, "bool", of_everyone),
    Definition::new("has_language_privilege", OF_OBJECT, "bool", of_everyone),
    Definition::new("has_type_privilege", OF_OBJECT, "bool", of_everyone),
    Definition::new("has_pipeline_privilege", OF_OBJECT, "bool", |c, a| {
        let (subject, rest, wanted) = call(c, a, 2)?;
        let key = ObjectKey::Pipeline(text(rest, 0).to_owned());
        Ok(holds_any(c, &subject, &key, wanted)?.into())
    }),
    Definition::new("pg_has_role", OF_OBJECT, "bool", of_role),
    Definition::new("acldefault", &["text oid"], "text[]", default_acl),
    // The columns of aclexplode.
    Definition::new("acl_grantors_array", &["text[]"], "oid[]", |c, a| {
        let roles = exploded(c, a).into_iter().map(|e| e.grantor);
        Ok(roles.collect::<Vec<_>>().into())
    }),
    Definition::new("acl_grantees_array", &["text[]"], "oid[]", |c, a| {
        let roles = exploded(c, a).into_iter().map(|e| e.grantee);
        Ok(roles.collect::<Vec<_>>().into())
    }),
    Definition::new("acl_privileges_array", &["text[]"], "text[]", |c, a| {
        let names = exploded(c, a).into_iter().map(|e| e.name.to_owned());
        Ok(names.collect::<Vec<_>>().into())
    }),
    Definition::new("acl_grantables_array", &["text[]"], "bool[]", |c, a| {
        let options = exploded(c, a)
            .into_iter()
            .map(|e| i64::from(e.is_grantable));
        Ok(options.collect::<Vec<_>>().into())
    }),
];

/// One privilege of a list.
struct Exploded {
    grantor: i64,
    grantee: i64,
    name: &'static str,
    is_grantable: bool,
}

/// The privileges of items as they are written, one by one.
fn exploded(catalog: &Catalog, arguments: &[Datum]) -> Vec<Exploded> {
    let Some(Datum::Texts(items)) = arguments.first() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for item in items {
        let Some((grantee, rest)) = leading_name(item, '=') else {
            continue;
        };
        let Some((letters, grantor)) = rest.split_once('/') else {
            continue;
        };
        let grantor = leading_name(grantor, '\0').map_or_else(String::new, |(name, _)| name);
        let role = |name: &str| match name {
            "" => 0,
            name => catalog.role_named(name).unwrap_or(0),
        };
        let mut letters = letters.chars().peekable();
        while let Some(letter) = letters.next() {
            let is_grantable = letters.next_if_eq(&'*').is_some();
            if let Some(name) = Privileges::name_of_letter(letter) {
                all.push(Exploded {
                    grantor: role(&grantor),
                    grantee: role(&grantee),
                    name,
                    is_grantable,
                });
            }
        }
    }
    all
}

/// A name, in quotes or up to a character, and what follows that character.
fn leading_name(text: &str, end: char) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return match text.split_once(end) {
            Some((name, rest)) => Some((name.to_owned(), rest)),
            None => (end == '\0').then(|| (text.to_owned(), "")),
        };
    };
    let mut name = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' if characters.next_if(|(_, next)| *next == '"').is_some() => name.push('"'),
            '"' => {
                let rest = &quoted[at + 1..];
                return Some((name, rest.strip_prefix(end).unwrap_or(rest)));
            }
            c => name.push(c),
        }
    }
    None
}

/// Who is asked about, the arguments after the user, and the privileges.
fn call<'a>(
    catalog: &Catalog,
    arguments: &'a [Datum],
    without_user: usize,
) -> Result<(Arc<Subject>, &'a [Datum], &'a str)> {
    let wanted = text(arguments, arguments.len() - 1);
    match arguments.len() > without_user {
        true => {
            let subject = subject_of(catalog, text(arguments, 0))?;
            Ok((subject, &arguments[1..], wanted))
        }
        false => Ok((catalog.model.subject(), arguments, wanted)),
    }
}

fn subject_of(catalog: &Catalog, user: &str) -> Result<Arc<Subject>> {
    let access = catalog.model.access();
    if user == "public" {
        return Ok(Arc::new(access.subject(OID_PUBLIC)));
    }
    Ok(Arc::new(access.subject(role_of(catalog, user)?)))
}

fn role_of(catalog: &Catalog, user: &str) -> Result<u32> {
    if let Some(oid) = catalog.role_named(user) {
        return Ok(u32::try_from(oid).unwrap_or(u32::MAX));
    }
    user.parse().map_err(|_| {
        Error::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("role \"{user}\" does not exist"),
        )
    })
}

/// The privileges in a text, each with whether its grant option is meant.
fn wanted_of(text: &str, all: Privileges) -> Result<Vec<(Privileges, bool)>> {
    const OPTION: &str = " WITH GRANT OPTION";
    let one = |part: &str| {
        let part = part.trim().to_uppercase();
        let (name, with_option) = match part.strip_suffix(OPTION) {
            Some(name) => (name.trim_end(), true),
            None => (part.as_str(), false),
        };
        match Privileges::named(name).filter(|p| all.contains(*p)) {
            Some(privilege) => Ok((privilege, with_option)),
            // PostgreSQL 16 and 17 have more of them; nobody has those here.
            None if name == "RULE" || name == "MAINTAIN" => Ok((Privileges::RECOVERY, true)),
            None => Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("unrecognized privilege type: \"{}\"", name),
            )),
        }
    };
    text.split(',').map(one).collect()
}

fn holds_any(catalog: &Catalog, subject: &Subject, key: &ObjectKey, wanted: &str) -> Result<bool> {
    let access = catalog.model.access();
    let held = access.holds(subject, key);
    let grantable = access.grantable(subject, key);
    let mut wanted = wanted_of(wanted, key.privileges())?.into_iter();
    Ok(wanted.any(|(privilege, with_option)| match with_option {
        true => grantable.contains(privilege),
        false => held.contains(privilege),
    }))
}

/// The system's relations: read by everyone but for passwords, changed by superusers.
fn holds_of_system(subject: &Subject, relation: &str, wanted: &str) -> Result<bool> {
    let wanted = wanted_of(wanted, ObjectKey::Relation(0).privileges())?;
    let reads = wanted.contains(&(Privileges::SELECT, false));
    let is_open = !matches!(relation, "pg_authid" | "pg_shadow");
    Ok(subject.is_superuser || reads && is_open)
}

fn missing_relation(name: &str) -> Result<Datum> {
    match name.trim().parse::<i64>() {
        Ok(_) => Ok(Datum::Null),
        Err(_) => Err(Error::new(
            sqlstate::UNDEFINED_TABLE,
            format!("relation \"{name}\" does not exist"),
        )),
    }
}

fn of_table(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let (subject, rest, wanted) = call(catalog, arguments, 2)?;
    let name = text(rest, 0);
    let Some(relation) = catalog.relation_named(name) else {
        return missing_relation(name);
    };
    match u32::try_from(relation.oid) {
        // Whoever finds it has made it.
        _ if relation.namespace == TEMPORARY_OID => Ok(true.into()),
        Ok(oid) if relation.is_users() => {
            Ok(holds_any(catalog, &subject, &ObjectKey::Relation(oid), wanted)?.into())
        }
        _ => Ok(holds_of_system(&subject, &relation.name, wanted)?.into()),
    }
}

fn of_any_column(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let whole = of_table(catalog, arguments)?;
    let (subject, rest, wanted) = call(catalog, arguments, 2)?;
    let relation = catalog.relation_named(text(rest, 0));
    let (Datum::Bool(false), Some(relation)) = (&whole, relation) else {
        return Ok(whole);
    };
    for at in 0..relation.columns.len() {
        if let Some((_, key)) = catalog.column_keys(&relation, at)
            && holds_any(catalog, &subject, &key, wanted)?
        {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn of_column(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let (subject, rest, wanted) = call(catalog, arguments, 3)?;
    let (name, column) = (text(rest, 0), text(rest, 1));
    let Some(relation) = catalog.relation_named(name) else {
        return missing_relation(name);
    };
    let named = relation.columns.iter().position(|c| c.name == column);
    let at = match (named, column.parse::<usize>()) {
        (Some(at), _) => at,
        (None, Ok(number)) if (1..=relation.columns.len()).contains(&number) => number - 1,
        (None, Ok(_)) => return Ok(Datum::Null),
        (None, Err(_)) => {
            return Err(Error::new(
                sqlstate::UNDEFINED_COLUMN,
                format!(
                    "column \"{column}\" of relation \"{}\" does not exist",
                    relation.name
                ),
            ));
        }
    };
    match catalog.column_keys(&relation, at) {
        Some((whole, key)) => {
            wanted_of(wanted, key.privileges())?;
            let holds = holds_any(catalog, &subject, &whole, wanted)?
                || holds_any(catalog, &subject, &key, wanted)?;
            Ok(holds.into())
        }
        None => Ok(holds_of_system(&subject, &relation.name, wanted)?.into()),
    }
}

fn of_schema(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let (subject, rest, wanted) = call(catalog, arguments, 2)?;
    let name = text(rest, 0);
    let named = |(oid, known): &&(i64, &str)| *known == name || oid.to_string() == name;
    let Some((oid, _)) = NAMESPACES.iter().find(named) else {
        return match name.parse::<i64>() {
            Ok(_) => Ok(Datum::Null),
            Err(_) => Err(Error::new(
                sqlstate::INVALID_SCHEMA_NAME,
                format!("schema \"{name}\" does not exist"),
            )),
        };
    };
    if *oid == PUBLIC_OID {
        return Ok(holds_any(catalog, &subject, &ObjectKey::Schema, wanted)?.into());
    }
    let wanted = wanted_of(wanted, ObjectKey::Schema.privileges())?;
    let uses = wanted.contains(&(Privileges::USAGE, false));
    Ok((subject.is_superuser || uses).into())
}

fn of_database(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let (subject, rest, wanted) = call(catalog, arguments, 2)?;
    let name = text(rest, 0);
    let is_it = name == DATABASE_NAME || name == super::super::DATABASE_OID.to_string();
    match (is_it, name.parse::<i64>()) {
        (true, _) => Ok(holds_any(catalog, &subject, &ObjectKey::Database, wanted)?.into()),
        (false, Ok(_)) => Ok(Datum::Null),
        (false, Err(_)) => Err(Error::new(
            sqlstate::INVALID_CATALOG_NAME,
            format!("database \"{name}\" does not exist"),
        )),
    }
}

/// Functions, types and languages are everyone's.
fn of_everyone(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    call(catalog, arguments, 2)?;
    Ok(true.into())
}

fn of_role(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let (subject, rest, wanted) = call(catalog, arguments, 2)?;
    let role = role_of(catalog, text(rest, 0))?;
    let access = catalog.model.access();
    let mut holds = false;
    for part in wanted.split(',') {
        holds |= match part.trim().to_uppercase().as_str() {
            "USAGE" => subject.acts_for(role),
            "MEMBER" | "SET" => subject.is_superuser || access.is_member(subject.role, role),
            "USAGE WITH GRANT OPTION"
            | "USAGE WITH ADMIN OPTION"
            | "MEMBER WITH GRANT OPTION"
            | "MEMBER WITH ADMIN OPTION" => {
                subject.is_superuser || access.is_admin(subject.role, role)
            }
            other => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("unrecognized privilege type: \"{other}\""),
                ));
            }
        };
    }
    Ok(holds.into())
}

/// What an object of a kind has without any GRANT: `r` relation, `n` schema, `d` database,
/// `f` function, `c` column.
fn default_acl(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    use crate::catalog::access::acl::{Acl, AclItem};

    let kind = text(arguments, 0);
    let key = match kind {
        "r" => ObjectKey::Relation(0),
        "n" => ObjectKey::Schema,
        "d" => ObjectKey::Database,
        "f" => ObjectKey::Function(0),
        "c" => return Ok(Vec::<String>::new().into()),
        "s" | "l" | "L" | "t" | "F" | "S" | "T" | "p" => return Ok(Vec::<String>::new().into()),
        _ => {
            return Err(Error::internal(format!(
                "unrecognized object type abbreviation: {kind}"
            )));
        }
    };
    let owner = u32::try_from(int(arguments, 1)).unwrap_or(OID_PUBLIC);
    let item = |grantee, privileges| AclItem {
        grantee,
        grantor: owner,
        privileges,
        grantable: Privileges::NONE,
    };
    let of_public = match key {
        ObjectKey::Database => Privileges::TEMPORARY.union(Privileges::CONNECT),
        ObjectKey::Function(_) => Privileges::EXECUTE,
        _ => Privileges::NONE,
    };
    let items = [item(OID_PUBLIC, of_public), item(owner, key.privileges())];
    let items = items.into_iter().filter(|i| !i.privileges.is_empty());
    let acl = Acl(items.collect());
    Ok(acl.texts(|oid| catalog.role_name(oid.into())).into())
}

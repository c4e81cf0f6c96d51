//! Names and numbers of objects: `regclass` and its kin, quoting, visibility.

use super::super::model::{Catalog, NAMESPACES, Relation, namespace_name};
use super::super::relation::Datum;
use super::super::rows::quote_ident;
use super::{Definition, int, text};
use crate::error::{Error, Result, sqlstate};

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("to_regclass", &["text"], "oid", |c, a| {
        Ok(c.relation_named(text(a, 0)).map(|r| r.oid).into())
    }),
    Definition::new("to_regtype", &["text"], "oid", |c, a| {
        Ok(c.type_named(text(a, 0)).map(|t| t.oid).into())
    }),
    Definition::new("to_regnamespace", &["text"], "oid", |_, a| {
        Ok(namespace_oid(text(a, 0)).into())
    }),
    Definition::new("to_regrole", &["text"], "oid", |c, a| {
        Ok(role_oid(c, text(a, 0)).into())
    }),
    Definition::new("to_regproc", &["text"], "text", |_, a| {
        Ok(known_procedure(text(a, 0)).into())
    }),
    Definition::new("to_regclass_oid", &["text"], "oid", |c, a| {
        object_oid(
            text(a, 0),
            c.relation_named(text(a, 0)).map(|r| r.oid),
            || {
                let (code, name) = (sqlstate::UNDEFINED_TABLE, text(a, 0));
                Error::new(code, format!("relation \"{name}\" does not exist"))
            },
        )
    }),
    Definition::new("to_regtype_oid", &["text"], "oid", |c, a| {
        object_oid(text(a, 0), c.type_named(text(a, 0)).map(|t| t.oid), || {
            let (code, name) = (sqlstate::UNDEFINED_OBJECT, text(a, 0));
            Error::new(code, format!("type \"{name}\" does not exist"))
        })
    }),
    Definition::new("to_regnamespace_oid", &["text"], "oid", |_, a| {
        object_oid(text(a, 0), namespace_oid(text(a, 0)), || {
            let (code, name) = (sqlstate::INVALID_SCHEMA_NAME, text(a, 0));
            Error::new(code, format!("schema \"{name}\" does not exist"))
        })
    }),
    Definition::new("to_regrole_oid", &["text"], "oid", |c, a| {
        object_oid(text(a, 0), role_oid(c, text(a, 0)), || {
            let (code, name) = (sqlstate::UNDEFINED_OBJECT, text(a, 0));
            Error::new(code, format!("role \"{name}\" does not exist"))
        })
    }),
    // Columns of type regproc hold names, so the cast gives one too.
    Definition::new("to_regproc_oid", &["text"], "text", |_, a| {
        Ok(procedure_name(text(a, 0)).into())
    }),
    Definition::new("function_oid", &["text"], "oid", function_oid),
    Definition::new("oid_to_regclass_text", &["oid"], "text", |c, a| {
        shown(
            int(a, 0),
            c.relation(int(a, 0)).map(|r| relation_text(c, &r)),
        )
    }),
    Definition::new("oid_to_regtype_text", &["oid"], "text", |c, a| {
        let found = c.type_by_oid(int(a, 0));
        shown(int(a, 0), found.map(|t| c.format_type(t.oid, None)))
    }),
    Definition::new("oid_to_regnamespace_text", &["oid"], "text", |_, a| {
        shown(int(a, 0), namespace_name(int(a, 0)).map(quote_ident))
    }),
    Definition::new("oid_to_regrole_text", &["oid"], "text", |c, a| {
        let role = c.known_role_name(int(a, 0));
        shown(int(a, 0), role.map(|name| quote_ident(&name)))
    }),
    Definition::new("oid_to_regproc_text", &["text"], "text", |_, a| {
        Ok(text(a, 0).into())
    }),
    Definition::new("quote_ident", &["text"], "text", |_, a| {
        Ok(quote_ident(text(a, 0)).into())
    }),
    Definition::new("quote_literal", &["text"], "text", |_, a| {
        Ok(quote_literal(text(a, 0)).into())
    }),
    Definition::new("quote_nullable", &["text"], "text", |_, a| {
        Ok(match &a[0] {
            Datum::Text(value) => quote_literal(value),
            _ => "NULL".to_owned(),
        }
        .into())
    })
    .with_null(),
    Definition::new("parse_ident", &["text", "text bool"], "text[]", parse_ident),
    Definition::new("pg_table_is_visible", &["oid"], "bool", |c, a| {
        let found = c.relation(int(a, 0));
        let visible = |r: Relation| r.is_on_path() && !c.is_hidden(&r);
        Ok(found.map(visible).into())
    }),
    Definition::new("pg_type_is_visible", &["oid"], "bool", |c, a| {
        Ok(c.type_by_oid(int(a, 0)).map(|_| true).into())
    }),
    Definition::new("pg_function_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_operator_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_collation_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_opclass_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_opfamily_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_conversion_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_statistics_obj_is_visible", &["oid"], "bool", visible),
    Definition::new("pg_get_userbyid", &["oid"], "name", |c, a| {
        Ok(c.role_name(int(a, 0)).into())
    }),
];

fn visible(_: &Catalog, _: &[Datum]) -> Result<Datum> {
    Ok(true.into())
}

/// An object's number: digits stand for themselves, whether or not they name an object.
fn object_oid(name: &str, found: Option<i64>, missing: impl Fn() -> Error) -> Result<Datum> {
    match (name.trim(), found) {
        ("-", _) => Ok(0i64.into()),
        (_, Some(oid)) => Ok(oid.into()),
        (name, None) => match name.parse::<i64>() {
            Ok(oid) => Ok(oid.into()),
            Err(_) => Err(missing()),
        },
    }
}

/// A number's name; the number itself where there is no such object, `-` for none.
fn shown(oid: i64, name: Option<String>) -> Result<Datum> {
    Ok(match (oid, name) {
        (_, Some(name)) => name,
        (0, None) => "-".to_owned(),
        (oid, None) => oid.to_string(),
    }
    .into())
}

fn relation_text(catalog: &Catalog, r: &Relation) -> String {
    let name = quote_ident(&r.name);
    match r.namespace {
        _ if catalog.is_hidden(r) => format!("public.{name}"),
        namespace if !r.is_on_path() => {
            let schema = namespace_name(namespace).unwrap_or_default();
            format!("{schema}.{name}")
        }
        _ => name,
    }
}

fn namespace_oid(text: &str) -> Option<i64> {
    let name = unquoted(text);
    NAMESPACES
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(oid, _)| *oid)
}

fn role_oid(catalog: &Catalog, text: &str) -> Option<i64> {
    catalog.role_named(&unquoted(text))
}

fn unquoted(text: &str) -> String {
    match super::super::model::split_name(text) {
        Some((None, name)) => name,
        _ => String::new(),
    }
}

/// `pg_catalog.array_in(cstring, oid, integer)` is `array_in`.
fn procedure_name(text: &str) -> &str {
    let name = text.split('(').next().unwrap_or(text).trim();
    name.strip_prefix("pg_catalog.").unwrap_or(name)
}

/// A function by its name, or by name and types in brackets.
fn function_oid(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let wanted = text(arguments, 0).trim();
    let wanted = wanted.strip_prefix("public.").unwrap_or(wanted);
    let without_blanks = |text: &str| text.replace(' ', "");
    let functions = catalog.model.functions();
    let mut found = functions.iter().filter(|f| match wanted.contains('(') {
        true => without_blanks(&f.signature()) == without_blanks(wanted),
        false => f.name == unquoted(wanted),
    });
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(Datum::Int(only.oid.into())),
        (Some(_), Some(_)) => Err(Error::new(
            sqlstate::AMBIGUOUS_FUNCTION,
            format!("more than one function named \"{wanted}\""),
        )),
        (None, _) => Err(Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("function \"{wanted}\" does not exist"),
        )),
    }
}

fn known_procedure(text: &str) -> Option<&str> {
    let name = procedure_name(text);
    super::definitions().any(|d| d.name == name).then_some(name)
}

fn quote_literal(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    match value.contains('\\') {
        true => format!("E'{}'", doubled.replace('\\', "\\\\")),
        false => format!("'{doubled}'"),
    }
}

fn parse_ident(_: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let given = text(arguments, 0);
    let parts = super::super::model::split_name(given).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("string is not a valid identifier: \"{given}\""),
        )
    })?;
    Ok(parts
        .0
        .into_iter()
        .chain([parts.1])
        .collect::<Vec<String>>()
        .into())
}

//! What objects look like: types, definitions, comments.

use super::super::model::{Catalog, Relation, namespace_name};
use super::super::relation::Datum;
use super::super::rows::{PG_CLASS, RULE_OFFSET, quote_ident};
use super::{Definition, flag, int, procedures, text};
use crate::error::{Error, Result, sqlstate};
use crate::sql::render_functions;

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("format_type", &["oid int4"], "text", |c, a| {
        Ok(match (&a[0], &a[1]) {
            (Datum::Int(oid), Datum::Int(modifier)) => c.format_type(*oid, Some(*modifier)).into(),
            (Datum::Int(oid), _) => c.format_type(*oid, None).into(),
            _ => Datum::Null,
        })
    })
    .with_null(),
    Definition::new("oidvectortypes", &["oidvector"], "text", |c, a| {
        let Datum::Ints(oids) = &a[0] else {
            return Ok(Datum::Null);
        };
        let names: Vec<String> = oids.iter().map(|oid| c.format_type(*oid, None)).collect();
        Ok(names.join(", ").into())
    }),
    Definition::new("pg_typeof", &["any"], "text", |_, a| Ok(a[0].clone())).with_null(),
    Definition::new(
        "pg_get_expr",
        &["text oid", "text oid bool"],
        "text",
        |_, a| Ok(a[0].clone()),
    ),
    Definition::new(
        "pg_get_constraintdef",
        &["oid", "oid bool"],
        "text",
        |c, a| {
            let keyed = find(c, |r| {
                !r.key.is_empty() && r.key_constraint_oid() == int(a, 0)
            });
            Ok(keyed
                .map(|r| {
                    let columns: Vec<String> =
                        r.key_columns().iter().map(|c| quote_ident(c)).collect();
                    format!("PRIMARY KEY ({})", columns.join(", "))
                })
                .into())
        },
    ),
    Definition::new(
        "pg_get_indexdef",
        &["oid", "oid int4 bool"],
        "text",
        index_text,
    ),
    Definition::new("pg_get_viewdef", &["oid", "oid bool"], "text", |c, a| {
        Ok(c.relation(int(a, 0)).and_then(|r| view_text(&r)).into())
    }),
    Definition::new("pg_get_ruledef", &["oid", "oid bool"], "text", rule_text),
    Definition::new("pg_get_triggerdef", &["oid", "oid bool"], "text", nothing),
    Definition::new("pg_get_functiondef", &["oid"], "text", |c, a| {
        let Some(function) = procedures::by_oid(c, int(a, 0)) else {
            return Ok(Datum::Null);
        };
        if function.is_aggregate() {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{}\" is an aggregate function", function.name),
            ));
        }
        Ok(render_functions::catalog_definition(&function).into())
    }),
    Definition::new("pg_get_function_sqlbody", &["oid"], "text", |c, a| {
        let function = procedures::by_oid(c, int(a, 0));
        Ok(function.and_then(|f| f.return_text()).into())
    }),
    Definition::new(
        "pg_get_function_arg_default",
        &["oid int4"],
        "text",
        |c, a| {
            let function = procedures::by_oid(c, int(a, 0));
            let at = usize::try_from(int(a, 1) - 1).ok();
            let default = function
                .zip(at)
                .and_then(|(f, at)| f.parameters.get(at).and_then(|p| p.default.clone()));
            Ok(default.into())
        },
    ),
    Definition::new("pg_get_partkeydef", &["oid"], "text", nothing),
    Definition::new("pg_get_statisticsobjdef", &["oid"], "text", nothing),
    Definition::new("pg_get_statisticsobjdef_columns", &["oid"], "text", nothing),
    Definition::new("pg_get_serial_sequence", &["text text"], "text", nothing),
    Definition::new("pg_get_function_result", &["oid"], "text", |c, a| {
        Ok(match procedures::by_oid(c, int(a, 0)) {
            Some(function) => render_functions::result(&function).into(),
            None => procedure(c, int(a, 0), "prorettype").into(),
        })
    }),
    Definition::new("pg_get_function_arguments", &["oid"], "text", |c, a| {
        Ok(match procedures::by_oid(c, int(a, 0)) {
            Some(function) => render_functions::arguments(&function).into(),
            None => procedure(c, int(a, 0), "proargtypes").into(),
        })
    }),
    Definition::new(
        "pg_get_function_identity_arguments",
        &["oid"],
        "text",
        |c, a| {
            Ok(match procedures::by_oid(c, int(a, 0)) {
                Some(function) => render_functions::identity_arguments(&function).into(),
                None => procedure(c, int(a, 0), "proargtypes").into(),
            })
        },
    ),
    Definition::new("obj_description", &["oid", "oid name"], "text", |c, a| {
        let of_relations = a.len() == 1 || text(a, 1) == "pg_class";
        let found = c.relation(int(a, 0)).filter(|_| of_relations);
        Ok(found.and_then(|r| r.comment).into())
    }),
    Definition::new("col_description", &["oid int4"], "text", |c, a| {
        let column = usize::try_from(int(a, 1) - 1).ok();
        let found = c.relation(int(a, 0)).zip(column);
        Ok(found
            .and_then(|(r, at)| r.columns.get(at).and_then(|column| column.comment.clone()))
            .into())
    }),
    Definition::new("shobj_description", &["oid name"], "text", nothing),
    Definition::new("pg_describe_object", &["oid oid int4"], "text", |c, a| {
        let found = c.relation(int(a, 1)).filter(|_| int(a, 0) == PG_CLASS);
        Ok(found.map(|r| described(&r)).into())
    }),
    Definition::new("pg_relation_is_publishable", &["oid"], "bool", |_, _| {
        Ok(false.into())
    }),
    Definition::new("pg_encoding_to_char", &["int4"], "name", |_, a| {
        Ok(if int(a, 0) == 6 { "UTF8" } else { "" }.into())
    }),
    Definition::new("getdatabaseencoding", &[""], "name", |_, _| {
        Ok("UTF8".into())
    }),
    Definition::new("pg_tablespace_location", &["oid"], "text", |_, _| {
        Ok("".into())
    }),
    Definition::new("pg_char_to_encoding", &["name"], "int4", |_, a| {
        let name = text(a, 0).to_lowercase().replace('-', "");
        Ok(if name == "utf8" { 6i64 } else { -1 }.into())
    }),
    Definition::new("array_upper", &["array int4"], "int4", |_, a| {
        Ok(match (int(a, 0), int(a, 1)) {
            (length, 1) if length > 0 => length.into(),
            _ => Datum::Null,
        })
    }),
    Definition::new("array_lower", &["array int4"], "int4", |_, a| {
        Ok(match (int(a, 0), int(a, 1)) {
            (length, 1) if length > 0 => 1i64.into(),
            _ => Datum::Null,
        })
    }),
];

/// The query of a view as PostgreSQL writes it: a statement.
fn view_text(view: &Relation) -> Option<String> {
    let text = view.view_text.as_ref()?;
    Some(format!(" {};", text.trim().trim_end_matches(';')))
}

/// What a view's rule does; with `true` the view's name as it is found.
fn rule_text(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let view = catalog.relation(int(arguments, 0) - RULE_OFFSET);
    let text = view.and_then(|view| {
        let schema = namespace_name(view.namespace).filter(|_| !flag(arguments, 1));
        let schema = schema.map_or_else(String::new, |schema| format!("{schema}."));
        let (name, query) = (quote_ident(&view.name), view_text(&view)?);
        Some(format!(
            "CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {schema}{name} DO INSTEAD {query}"
        ))
    });
    Ok(text.into())
}

/// There are no such objects.
fn nothing(_: &Catalog, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Null)
}

fn find(catalog: &Catalog, wanted: impl Fn(&Relation) -> bool) -> Option<Relation> {
    catalog.user_relations().into_iter().find(|r| wanted(r))
}

/// The whole definition, or with a position from 1 that column.
fn index_text(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let oid = int(arguments, 0);
    let indexes = catalog.indexes();
    let Some(index) = indexes.iter().find(|index| index.oid == oid) else {
        return Ok(Datum::Null);
    };
    Ok(match int(arguments, 1) {
        0 => index.text(arguments.len() == 1).into(),
        position => {
            let at = usize::try_from(position - 1).ok();
            let text = at.and_then(|at| index.column_text(at));
            text.unwrap_or_default().into()
        }
    })
}

fn described(r: &Relation) -> String {
    let kind = match r.kind {
        'm' => "materialized view",
        'v' => "view",
        'i' => "index",
        _ => "table",
    };
    format!("{kind} {}", quote_ident(&r.name))
}

/// The types of a function's result or arguments.
fn procedure(catalog: &Catalog, oid: i64, column: &'static str) -> Option<String> {
    let rows = super::procedures(catalog);
    let row = rows
        .iter()
        .find(|row| row.get("oid") == Some(&Datum::Int(oid)))?;
    let name = |oid: &i64| match *oid {
        2276 => "\"any\"".to_owned(),
        2277 => "anyarray".to_owned(),
        oid => catalog.format_type(oid, None),
    };
    match row.get(column)? {
        Datum::Int(oid) => Some(name(oid)),
        Datum::Ints(oids) => Some(oids.iter().map(name).collect::<Vec<_>>().join(", ")),
        _ => None,
    }
}

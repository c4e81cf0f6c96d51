//! The rows of `information_schema`.
//!
//! As in PostgreSQL, with one difference: materialized views are listed as views, since tools that
//! read only these views (Grafana, Power BI) would not find them otherwise. A statement that reads
//! `pg_catalog` too finds them there, as it does in PostgreSQL (Metabase), and is told of them once:
//! it reads the views of [`exact_name`].

mod routines;

use super::DATABASE_NAME;
use super::access;
use super::model::{Catalog, Column, Relation, namespace_name};
use super::relation::{Datum, Row, row};

/// What follows the name of a view that lists no materialized views. No name of a statement ends so.
const EXACT: &str = " without materialized views";

/// Views that list materialized views.
const EXTENDED: [&str; 3] = ["tables", "columns", "views"];

/// The name under which a view is as in PostgreSQL; `None`: it always is.
pub(super) fn exact_name(view: &str) -> Option<String> {
    EXTENDED.contains(&view).then(|| format!("{view}{EXACT}"))
}

/// The view that a name means.
pub(super) fn view_of(name: &str) -> &str {
    name.strip_suffix(EXACT).unwrap_or(name)
}

/// The rows of a view of `information_schema`; none for one that has nothing to tell.
pub(super) fn rows(catalog: &Catalog, name: &str) -> Vec<Row> {
    let view = view_of(name);
    let is_exact = view != name;
    let listed = || {
        let mut relations = shown(catalog);
        relations.retain(|r| !is_exact || r.kind != 'm');
        relations
    };
    match view {
        "tables" => listed().iter().map(table).collect(),
        "columns" => columns(catalog, listed()),
        "schemata" => schemata(catalog),
        "views" => views(listed()),
        "table_constraints" => key_constraints(catalog),
        "key_column_usage" => key_columns(catalog, true),
        "constraint_column_usage" => key_columns(catalog, false),
        "character_sets" => vec![row! {
            character_set_name: "UTF8",
            character_repertoire: "UCS",
            form_of_use: "UTF8",
            default_collate_catalog: DATABASE_NAME,
        }],
        "information_schema_catalog_name" => vec![row! { catalog_name: DATABASE_NAME }],
        "enabled_roles" => access::enabled_roles(catalog),
        "applicable_roles" => access::applicable_roles(catalog),
        "table_privileges" => access::table_privileges(catalog, true),
        "role_table_grants" => access::table_privileges(catalog, false),
        "column_privileges" => access::column_privileges(catalog),
        "routines" => routines::routines(catalog),
        "parameters" => routines::parameters(catalog),
        _ => Vec::new(),
    }
}

pub(super) fn shown(catalog: &Catalog) -> Vec<Relation> {
    let mut relations = catalog.relations();
    relations.retain(|r| r.kind != 'i' && catalog.shows(r));
    relations
}

fn schema_of(r: &Relation) -> Datum {
    namespace_name(r.namespace).into()
}

fn yes(value: bool) -> &'static str {
    if value { "YES" } else { "NO" }
}

fn table(r: &Relation) -> Row {
    row! {
        table_catalog: DATABASE_NAME,
        table_schema: schema_of(r),
        table_name: r.name.as_str(),
        table_type: match r.kind {
            'r' if r.persistence() == "t" => "LOCAL TEMPORARY",
            'r' => "BASE TABLE",
            'f' => "FOREIGN",
            _ => "VIEW",
        },
        is_insertable_into: yes(r.insertable),
        is_typed: "NO",
    }
}

fn columns(catalog: &Catalog, relations: Vec<Relation>) -> Vec<Row> {
    let mut rows = Vec::new();
    for r in relations {
        for (at, column) in r.columns.iter().enumerate() {
            if !catalog.shows_column(&r, at) {
                continue;
            }
            rows.push(column_row(catalog, &r, column, at as i64 + 1));
        }
    }
    rows
}

fn column_row(catalog: &Catalog, r: &Relation, column: &Column, position: i64) -> Row {
    let found = catalog.type_by_oid(column.type_oid);
    let udt = found.map_or("text", |t| t.name.as_str());
    let data_type = match udt.starts_with('_') {
        true => "ARRAY".to_owned(),
        false => catalog.format_type(column.type_oid, None),
    };
    let numeric = (column.type_modifier >= 4).then(|| column.type_modifier - 4);
    let (precision, radix, scale) = match column.type_oid {
        21 => (Some(16), Some(2), Some(0)),
        23 => (Some(32), Some(2), Some(0)),
        20 => (Some(64), Some(2), Some(0)),
        700 => (Some(24), Some(2), None),
        701 => (Some(53), Some(2), None),
        1700 => (
            numeric.map(|m| m >> 16 & 0xffff),
            Some(10),
            numeric.map(|m| m & 0x7ff),
        ),
        _ => (None, None, None),
    };
    let has_time = matches!(column.type_oid, 1083 | 1114 | 1184 | 1186);
    let datetime_precision = match column.type_oid {
        1082 => Some(0),
        _ => has_time.then_some(6),
    };
    row! {
        table_catalog: DATABASE_NAME,
        table_schema: schema_of(r),
        table_name: r.name.as_str(),
        column_name: column.name.as_str(),
        ordinal_position: position,
        column_default: column.default.clone(),
        is_nullable: yes(!column.not_null),
        data_type: data_type,
        character_octet_length: matches!(column.type_oid, 25 | 1043).then_some(1_073_741_824),
        numeric_precision: precision,
        numeric_precision_radix: radix,
        numeric_scale: scale,
        datetime_precision: datetime_precision,
        udt_catalog: DATABASE_NAME,
        udt_schema: "pg_catalog",
        udt_name: udt,
        dtd_identifier: position.to_string(),
        is_self_referencing: "NO",
        is_identity: "NO",
        identity_cycle: "NO",
        is_generated: "NEVER",
        is_updatable: yes(r.insertable),
    }
}

fn schemata(catalog: &Catalog) -> Vec<Row> {
    catalog
        .namespaces()
        .map(|(oid, name)| {
            row! {
                catalog_name: DATABASE_NAME,
                schema_name: name,
                schema_owner: catalog.role_name(catalog.schema_owner(oid)),
            }
        })
        .collect()
}

fn views(mut relations: Vec<Relation>) -> Vec<Row> {
    relations.retain(|r| matches!(r.kind, 'v' | 'm'));
    relations
        .iter()
        .map(|r| {
            row! {
                table_catalog: DATABASE_NAME,
                table_schema: schema_of(r),
                table_name: r.name.as_str(),
                view_definition: r.view_text.clone(),
                check_option: "NONE",
                is_updatable: "NO",
                is_insertable_into: "NO",
                is_trigger_updatable: "NO",
                is_trigger_deletable: "NO",
                is_trigger_insertable_into: "NO",
            }
        })
        .collect()
}

fn keyed(catalog: &Catalog) -> Vec<Relation> {
    let mut relations = catalog.user_relations();
    relations.retain(|r| !r.key.is_empty());
    relations
}

fn key_constraints(catalog: &Catalog) -> Vec<Row> {
    keyed(catalog)
        .iter()
        .map(|r| {
            row! {
                constraint_catalog: DATABASE_NAME,
                constraint_schema: schema_of(r),
                constraint_name: r.key_name(),
                table_catalog: DATABASE_NAME,
                table_schema: schema_of(r),
                table_name: r.name.as_str(),
                constraint_type: "PRIMARY KEY",
                is_deferrable: "NO",
                initially_deferred: "NO",
                enforced: "YES",
            }
        })
        .collect()
}

fn key_columns(catalog: &Catalog, with_position: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for r in keyed(catalog) {
        for (at, column) in r.key_columns().into_iter().enumerate() {
            rows.push(row! {
                constraint_catalog: DATABASE_NAME,
                constraint_schema: schema_of(&r),
                constraint_name: r.key_name(),
                table_catalog: DATABASE_NAME,
                table_schema: schema_of(&r),
                table_name: r.name.as_str(),
                column_name: column,
                ordinal_position: with_position.then_some(at as i64 + 1),
            });
        }
    }
    rows
}

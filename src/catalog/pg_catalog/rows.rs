//! The rows of `pg_catalog` that follow from the objects: classes, attributes, keys, views.
//!
//! A relation whose name is not handled here or in [`system_rows`](super::system_rows) is empty.

use std::collections::BTreeSet;

use super::model::{Catalog, Relation, STREAM_SERVER_OID, namespace_name};
use super::relation::{Datum, Row, row};
use super::system_rows;

/// OIDs of catalog tables, for `classid` columns.
pub(super) const PG_CLASS: i64 = 1_259;
const PG_REWRITE: i64 = 2_618;
/// A view's rule has the view's OID plus this.
pub(super) const RULE_OFFSET: i64 = 1 << 28;

/// The rows of a relation of `pg_catalog`.
pub(super) fn rows(catalog: &Catalog, relation: &str) -> Vec<Row> {
    match relation {
        "pg_class" => classes(catalog),
        "pg_attribute" => attributes(catalog),
        "pg_attrdef" => defaults(catalog),
        "pg_index" => indexes(catalog),
        "pg_constraint" => constraints(catalog),
        "pg_description" => descriptions(catalog),
        "pg_rewrite" => rules(catalog),
        "pg_depend" => dependencies(catalog),
        "pg_tables" => tables(catalog),
        "pg_foreign_table" => foreign_tables(catalog),
        "pg_views" => views(catalog),
        "pg_matviews" => materialized_views(catalog),
        "pg_indexes" => index_definitions(catalog),
        "pg_stat_user_tables" => table_statistics(catalog, true),
        "pg_stat_all_tables" => table_statistics(catalog, false),
        "pg_stat_user_indexes" | "pg_stat_all_indexes" => index_statistics(catalog),
        other => system_rows::rows(catalog, other),
    }
}

fn version(catalog: &Catalog) -> i64 {
    // 0, 1 and 2 are reserved transaction ids in PostgreSQL.
    i64::try_from(catalog.model.version()).unwrap_or(i64::MAX - 3) + 3
}

fn classes(catalog: &Catalog) -> Vec<Row> {
    let version = version(catalog);
    let indexed = indexed(catalog);
    catalog
        .relations()
        .iter()
        .map(|r| {
            let access_method = match r.kind {
                'i' => 403,
                'v' | 'f' => 0,
                _ => 2,
            };
            let estimate = r.row_estimate.map_or(-1.0, |rows| rows as f64);
            row! {
                oid: r.oid,
                relname: r.name.as_str(),
                relnamespace: r.namespace,
                relowner: r.owner,
                relam: access_method,
                relfilenode: if matches!(r.kind, 'v' | 'f') { 0 } else { r.oid },
                reltuples: estimate,
                relhasindex: indexed.contains(&r.oid),
                relpersistence: r.persistence(),
                relkind: r.kind.to_string(),
                relnatts: r.columns.len() as i64,
                relispopulated: true,
                relreplident: if r.kind == 'i' { "n" } else { "d" },
                relacl: catalog.relation_acl(r),
                xmin: if r.is_users() { version } else { 1 },
            }
        })
        .collect()
}

fn attributes(catalog: &Catalog) -> Vec<Row> {
    let version = version(catalog);
    let acls = catalog.column_acls();
    let mut rows = Vec::new();
    for r in &catalog.relations() {
        for (at, column) in r.columns.iter().enumerate() {
            let found = catalog.type_by_oid(column.type_oid);
            let word = |n: usize, otherwise: &str| {
                Datum::Text(found.map_or(otherwise.to_owned(), |t| t.words[n].clone()))
            };
            rows.push(row! {
                attrelid: r.oid,
                attname: column.name.as_str(),
                atttypid: column.type_oid,
                attstattarget: -1,
                attlen: found.map_or(-1, |t| t.length()),
                attnum: at as i64 + 1,
                attndims: i64::from(found.is_some_and(|t| t.name.starts_with('_'))),
                attcacheoff: -1,
                atttypmod: column.type_modifier,
                attbyval: found.is_some_and(|t| t.words[1] == "t"),
                attalign: word(12, "i"),
                attstorage: word(13, "x"),
                attnotnull: column.not_null,
                atthasdef: column.default.is_some(),
                attislocal: true,
                attcollation: found.map_or(0, |t| t.collation()),
                attacl: acls.get(&(r.oid, at)).cloned(),
                xmin: if r.is_users() { version } else { 1 },
            });
        }
    }
    rows
}

fn defaults(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for r in catalog.user_relations() {
        for (at, column) in r.columns.iter().enumerate() {
            let Some(default) = &column.default else {
                continue;
            };
            rows.push(row! {
                oid: (r.oid << 12) + at as i64 + 1,
                adrelid: r.oid,
                adnum: at as i64 + 1,
                adbin: default.as_str(),
            });
        }
    }
    rows
}

fn keyed(catalog: &Catalog) -> Vec<Relation> {
    let mut relations = catalog.user_relations();
    relations.retain(|r| !r.key.is_empty());
    relations
}

fn indexes(catalog: &Catalog) -> Vec<Row> {
    catalog
        .indexes()
        .iter()
        .map(|index| {
            row! {
                indexrelid: index.oid,
                indrelid: index.relation.oid,
                indnatts: index.columns.len() as i64,
                indnkeyatts: index.keys as i64,
                indisunique: index.is_primary(),
                indisprimary: index.is_primary(),
                indimmediate: true,
                indisvalid: true,
                indisready: true,
                indislive: true,
                indkey: index.columns.clone(),
                indcollation: vec![0; index.keys],
                indclass: vec![0; index.keys],
                indoption: index.options.clone(),
            }
        })
        .collect()
}

/// OIDs of what has an index.
fn indexed(catalog: &Catalog) -> BTreeSet<i64> {
    let indexes = catalog.indexes();
    indexes.iter().map(|index| index.relation.oid).collect()
}

fn constraints(catalog: &Catalog) -> Vec<Row> {
    keyed(catalog)
        .iter()
        .map(|r| {
            row! {
                oid: r.key_constraint_oid(),
                conname: r.key_name(),
                connamespace: r.namespace,
                contype: "p",
                convalidated: true,
                conrelid: r.oid,
                conindid: r.key_index_oid(),
                confupdtype: " ",
                confdeltype: " ",
                confmatchtype: " ",
                conislocal: true,
                connoinherit: true,
                conkey: r.key.clone(),
            }
        })
        .collect()
}

fn descriptions(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for index in catalog.indexes() {
        if let Some(comment) = &index.comment {
            rows.push(row! {
                objoid: index.oid,
                classoid: PG_CLASS,
                objsubid: 0,
                description: comment.as_str(),
            });
        }
    }
    for r in catalog.user_relations() {
        let columns = r.columns.iter().map(|c| c.comment.clone());
        for (at, comment) in std::iter::once(r.comment.clone())
            .chain(columns)
            .enumerate()
        {
            if let Some(comment) = comment {
                rows.push(row! {
                    objoid: r.oid,
                    classoid: PG_CLASS,
                    objsubid: at as i64,
                    description: comment,
                });
            }
        }
    }
    rows
}

fn views_of(catalog: &Catalog) -> Vec<Relation> {
    let mut relations = catalog.user_relations();
    relations.retain(|r| matches!(r.kind, 'v' | 'm'));
    relations
}

fn rules(catalog: &Catalog) -> Vec<Row> {
    views_of(catalog)
        .iter()
        .map(|r| {
            row! {
                oid: r.oid + RULE_OFFSET,
                rulename: "_RETURN",
                ev_class: r.oid,
                ev_type: "1",
                ev_enabled: "O",
                is_instead: true,
            }
        })
        .collect()
}

/// A view's rule depends on what the view reads, and on the view itself.
fn dependencies(catalog: &Catalog) -> Vec<Row> {
    let all = catalog.user_relations();
    let mut rows = Vec::new();
    for view in all.iter().filter(|r| matches!(r.kind, 'v' | 'm')) {
        let read = all.iter().filter(|r| view.reads.contains(&r.name));
        for (target, kind) in read.map(|r| (r.oid, "n")).chain([(view.oid, "i")]) {
            rows.push(row! {
                classid: PG_REWRITE,
                objid: view.oid + RULE_OFFSET,
                refclassid: PG_CLASS,
                refobjid: target,
                deptype: kind,
            });
        }
    }
    rows
}

fn schema_of(r: &Relation) -> Datum {
    namespace_name(r.namespace).into()
}

fn owner(catalog: &Catalog, r: &Relation) -> Datum {
    catalog.role_name(r.owner).into()
}

fn tables(catalog: &Catalog) -> Vec<Row> {
    let relations = catalog.relations();
    let tables = relations.iter().filter(|r| r.kind == 'r');
    tables
        .map(|r| {
            row! {
                schemaname: schema_of(r),
                tablename: r.name.as_str(),
                tableowner: owner(catalog, r),
                hasindexes: !r.key.is_empty(),
                hasrules: false,
                hastriggers: false,
                rowsecurity: false,
            }
        })
        .collect()
}

fn views(catalog: &Catalog) -> Vec<Row> {
    let relations = catalog.relations();
    let views = relations.iter().filter(|r| r.kind == 'v');
    views
        .map(|r| {
            row! {
                schemaname: schema_of(r),
                viewname: r.name.as_str(),
                viewowner: owner(catalog, r),
                definition: r.view_text.clone(),
            }
        })
        .collect()
}

fn materialized_views(catalog: &Catalog) -> Vec<Row> {
    let indexed = indexed(catalog);
    let relations = catalog.user_relations();
    let views = relations.iter().filter(|r| r.kind == 'm');
    views
        .map(|r| {
            row! {
                schemaname: schema_of(r),
                matviewname: r.name.as_str(),
                matviewowner: owner(catalog, r),
                hasindexes: indexed.contains(&r.oid),
                ispopulated: true,
                definition: r.view_text.clone(),
            }
        })
        .collect()
}

/// A name as SQL must write it.
pub(super) fn quote_ident(name: &str) -> String {
    let plain = name
        .chars()
        .enumerate()
        .all(|(at, c)| c == '_' || c.is_ascii_lowercase() || at > 0 && c.is_ascii_digit());
    match plain && !name.is_empty() && !is_reserved(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Words that cannot be a column's name without quotes.
fn is_reserved(word: &str) -> bool {
    const RESERVED: &str = " all analyse analyze and any array as asc asymmetric both case cast \
        check collate column constraint create current_catalog current_date current_role \
        current_time current_timestamp current_user default deferrable desc distinct do else end \
        except false fetch for foreign from grant group having in initially intersect into lateral \
        leading limit localtime localtimestamp not null offset on only or order placing primary \
        references returning select session_user some symmetric table then to trailing true union \
        unique user using variadic when where window with ";
    RESERVED.contains(&format!(" {word} "))
}

fn index_definitions(catalog: &Catalog) -> Vec<Row> {
    catalog
        .indexes()
        .iter()
        .map(|index| {
            row! {
                schemaname: schema_of(&index.relation),
                tablename: index.relation.name.as_str(),
                indexname: index.name.as_str(),
                indexdef: index.text(true),
            }
        })
        .collect()
}

/// Streams.
fn foreign_tables(catalog: &Catalog) -> Vec<Row> {
    let relations = catalog.relations();
    let streams = relations.iter().filter(|r| r.kind == 'f');
    streams
        .map(|r| row! { ftrelid: r.oid, ftserver: STREAM_SERVER_OID })
        .collect()
}

fn table_statistics(catalog: &Catalog, users_only: bool) -> Vec<Row> {
    let relations = catalog.relations();
    let counted = relations
        .iter()
        .filter(|r| matches!(r.kind, 'r' | 'm' | 'f') && (r.is_users() || !users_only));
    counted
        .map(|r| {
            row! {
                relid: r.oid,
                schemaname: schema_of(r),
                relname: r.name.as_str(),
                n_live_tup: r.row_estimate.and_then(|n| i64::try_from(n).ok()).unwrap_or(0),
                n_dead_tup: 0,
                n_mod_since_analyze: 0,
            }
        })
        .collect()
}

fn index_statistics(catalog: &Catalog) -> Vec<Row> {
    catalog
        .indexes()
        .iter()
        .map(|index| {
            row! {
                relid: index.relation.oid,
                indexrelid: index.oid,
                schemaname: schema_of(&index.relation),
                relname: index.relation.name.as_str(),
                indexrelname: index.name.as_str(),
            }
        })
        .collect()
}

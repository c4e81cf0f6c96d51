//! The rows of `pg_catalog` that do not depend on the user's objects: types, roles, the database,
//! parameters, sessions.

use super::access;
use super::backends::{Activity, BackendState};
use super::functions;
use super::model::{Catalog, OWNER_OID, PG_CATALOG_OID, STREAM_SERVER_OID, STREAM_WRAPPER_OID};
use super::relation::{Datum, Row, row};
use super::time_zones;
use super::types::RANGES;
use super::{DATABASE_NAME, DATABASE_OID};
use crate::catalog::access::ObjectKey;

/// The rows of a relation; none for one that has nothing to tell.
pub(super) fn rows(catalog: &Catalog, relation: &str) -> Vec<Row> {
    match relation {
        "pg_namespace" => namespaces(catalog),
        "pg_type" => types(catalog),
        "pg_range" => ranges(),
        "pg_database" => vec![database(catalog)],
        "pg_roles" => access::roles(catalog, true),
        "pg_authid" => access::roles(catalog, false),
        "pg_user" => access::users(catalog, true),
        "pg_shadow" => access::users(catalog, false),
        "pg_group" => access::groups(catalog),
        "pg_auth_members" => access::members(catalog),
        "pg_default_acl" => access::default_acls(catalog),
        "pg_db_role_setting" => access::role_settings(catalog),
        "pg_am" => access_methods(),
        "pg_foreign_server" => vec![row! {
            oid: STREAM_SERVER_OID,
            srvname: "streams",
            srvowner: OWNER_OID,
            srvfdw: STREAM_WRAPPER_OID,
        }],
        "pg_foreign_data_wrapper" => vec![row! {
            oid: STREAM_WRAPPER_OID,
            fdwname: "streams",
            fdwowner: OWNER_OID,
        }],
        "pg_collation" => collations(),
        "pg_language" => languages(),
        "pg_tablespace" => tablespaces(),
        "pg_proc" => functions::procedures(catalog),
        "pg_aggregate" => functions::aggregates(catalog),
        "pg_settings" => settings(catalog),
        "pg_stat_activity" => activities(catalog),
        "pg_stat_database" => vec![database_statistics(catalog)],
        "pg_stat_ssl" => encryption(catalog, |a| {
            let (version, cipher) = a.encryption.unwrap_or_default();
            row! {
                pid: a.pid,
                ssl: a.encryption.is_some(),
                version: version.map(|v| v.replace("v1_", "v1.")),
                cipher: cipher,
            }
        }),
        "pg_timezone_names" => time_zones::names(catalog.facts.clock.now_us()),
        "pg_timezone_abbrevs" => time_zones::abbreviations(),
        "pg_stat_gssapi" => encryption(catalog, |a| {
            row! { pid: a.pid, gss_authenticated: false, encrypted: false }
        }),
        _ => Vec::new(),
    }
}

fn namespaces(catalog: &Catalog) -> Vec<Row> {
    catalog
        .namespaces()
        .map(|(oid, name)| {
            row! {
                oid: oid,
                nspname: name,
                nspowner: catalog.schema_owner(oid),
                nspacl: catalog.schema_acl(oid),
            }
        })
        .collect()
}

fn types(catalog: &Catalog) -> Vec<Row> {
    catalog
        .types
        .iter()
        .map(|t| {
            let word = |n: usize| t.words[n].as_str();
            row! {
                oid: t.oid,
                typname: t.name.as_str(),
                typnamespace: PG_CATALOG_OID,
                typowner: OWNER_OID,
                typlen: t.length(),
                typbyval: word(1) == "t",
                typtype: word(2),
                typcategory: word(3),
                typispreferred: word(4) == "t",
                typisdefined: true,
                typdelim: word(5),
                typsubscript: if t.element() != 0 { "array_subscript_handler" } else { "-" },
                typelem: t.element(),
                typarray: t.array(),
                typinput: word(8),
                typoutput: word(9),
                typreceive: word(10),
                typsend: word(11),
                typalign: word(12),
                typstorage: word(13),
                typtypmod: -1,
                typcollation: t.collation(),
            }
        })
        .collect()
}

fn ranges() -> Vec<Row> {
    RANGES
        .iter()
        .map(|(range, subtype, multirange)| {
            row! { rngtypid: *range, rngsubtype: *subtype, rngmultitypid: *multirange }
        })
        .collect()
}

fn database(catalog: &Catalog) -> Row {
    row! {
        oid: DATABASE_OID,
        datname: DATABASE_NAME,
        datdba: catalog.owner_of(&ObjectKey::Database),
        datacl: catalog.acl_of(&ObjectKey::Database),
        encoding: 6,
        datlocprovider: "c",
        datallowconn: true,
        datconnlimit: -1,
        dattablespace: 1663,
        datcollate: "C.UTF-8",
        datctype: "C.UTF-8",
    }
}

fn access_methods() -> Vec<Row> {
    vec![
        row! { oid: 2, amname: "heap", amhandler: "heap_tableam_handler", amtype: "t" },
        row! { oid: 403, amname: "btree", amhandler: "bthandler", amtype: "i" },
    ]
}

fn collations() -> Vec<Row> {
    [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")]
        .map(|(oid, name, provider)| {
            row! {
                oid: oid,
                collname: name,
                collnamespace: PG_CATALOG_OID,
                collowner: OWNER_OID,
                collprovider: provider,
                collisdeterministic: true,
                collencoding: -1,
                collcollate: (oid != 100).then_some(name),
                collctype: (oid != 100).then_some(name),
            }
        })
        .to_vec()
}

fn languages() -> Vec<Row> {
    [(12, "internal"), (14, "sql")]
        .map(|(oid, name)| {
            row! { oid: oid, lanname: name, lanowner: OWNER_OID, lanpltrusted: oid == 14 }
        })
        .to_vec()
}

fn tablespaces() -> Vec<Row> {
    [(1663, "pg_default"), (1664, "pg_global")]
        .map(|(oid, name)| row! { oid: oid, spcname: name, spcowner: OWNER_OID })
        .to_vec()
}

fn settings(catalog: &Catalog) -> Vec<Row> {
    catalog
        .facts
        .parameters
        .all()
        .into_iter()
        .map(|p| {
            let source = if p.value == p.boot_value {
                "default"
            } else {
                "session"
            };
            row! {
                name: p.name,
                setting: p.value,
                unit: p.unit,
                category: "Client Connection Defaults",
                short_desc: p.description,
                context: p.context,
                vartype: p.vartype,
                source: source,
                boot_val: p.boot_value,
                reset_val: p.reset_value,
                pending_restart: false,
            }
        })
        .collect()
}

fn activities(catalog: &Catalog) -> Vec<Row> {
    let activities = catalog.facts.backends.activities();
    let row = |a: Activity| match catalog.sees_statements_of(&a.user) {
        true => activity(catalog, a),
        false => hidden_activity(catalog, a),
    };
    activities.into_iter().map(row).collect()
}

/// Of a session of others only that it is there.
fn hidden_activity(catalog: &Catalog, a: Activity) -> Row {
    row! {
        datid: DATABASE_OID,
        datname: DATABASE_NAME,
        pid: a.pid,
        usesysid: catalog.role_of_user(&a.user),
        usename: a.user,
        application_name: a.application_name,
        query: "<insufficient privilege>",
        backend_type: "client backend",
    }
}

fn activity(catalog: &Catalog, a: Activity) -> Row {
    let waits = a.state != BackendState::Active;
    row! {
        datid: DATABASE_OID,
        datname: DATABASE_NAME,
        pid: a.pid,
        usesysid: catalog.role_of_user(&a.user),
        usename: a.user,
        application_name: a.application_name,
        client_addr: a.client_address.map(|address| address.ip().to_string()),
        client_port: a.client_address.map(|address| i64::from(address.port())),
        backend_start: Datum::Time(a.started_at_us),
        query_start: a.query_started_at_us.map(Datum::Time),
        state_change: Datum::Time(a.state_changed_at_us),
        wait_event_type: waits.then_some("Client"),
        wait_event: waits.then_some("ClientRead"),
        state: a.state.as_str(),
        query: a.query,
        backend_type: "client backend",
    }
}

fn database_statistics(catalog: &Catalog) -> Row {
    row! {
        datid: DATABASE_OID,
        datname: DATABASE_NAME,
        numbackends: catalog.facts.backends.activities().len() as i64,
    }
}

fn encryption(catalog: &Catalog, make: fn(&Activity) -> Row) -> Vec<Row> {
    let activities = catalog.facts.backends.activities();
    activities.iter().map(make).collect()
}

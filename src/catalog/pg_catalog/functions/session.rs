//! The session and the server: who, where, which settings.

use super::super::model::{Catalog, TEMPORARY_OID};
use super::super::relation::Datum;
use super::super::{DATABASE_NAME, PUBLIC_SCHEMA, VERSION_TEXT};
use super::{Definition, flag, int, text};
use crate::catalog::pg_catalog::backends::Backend;
use crate::catalog::temporary::TEMPORARY_SCHEMA_SHOWN;
use crate::error::{Error, Result, sqlstate};

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("version", &[""], "text", |_, _| Ok(VERSION_TEXT.into())),
    Definition::new("current_database", &[""], "name", database),
    Definition::new("current_catalog", &[""], "name", database),
    Definition::new("current_schema", &[""], "name", |_, _| {
        Ok(PUBLIC_SCHEMA.into())
    }),
    Definition::new("current_schemas", &["bool"], "name[]", |c, a| {
        let mut schemas = vec![PUBLIC_SCHEMA.to_owned()];
        if flag(a, 0) {
            schemas.insert(0, "pg_catalog".to_owned());
            if c.has_temporary() {
                schemas.insert(0, TEMPORARY_SCHEMA_SHOWN.to_owned());
            }
        }
        Ok(schemas.into())
    }),
    Definition::new("current_user", &[""], "name", user),
    Definition::new("session_user", &[""], "name", |c, _| {
        Ok(c.role_name(c.model.session_role().into()).into())
    }),
    Definition::new("user", &[""], "name", user),
    Definition::new("current_role", &[""], "name", user),
    Definition::new("current_setting", &["text", "text bool"], "text", setting),
    Definition::new("set_config", &["text text bool"], "text", set_config)
        .volatile()
        .with_null(),
    Definition::new("pg_backend_pid", &[""], "int4", |c, _| {
        Ok(c.facts.backend.pid().into())
    }),
    Definition::new("pg_cancel_backend", &["int4"], "bool", |c, a| {
        let backend = backend(c, int(a, 0));
        if let Some(backend) = &backend {
            c.check_signal(backend, "cancel superuser query", "query is being canceled")?;
        }
        // PostgreSQL tells whether the signal was sent, not whether something ran.
        Ok(backend.map(|b| b.cancel()).is_some().into())
    })
    .volatile(),
    Definition::new(
        "pg_terminate_backend",
        &["int4", "int4 int8"],
        "bool",
        |c, a| {
            let backend = backend(c, int(a, 0));
            if let Some(backend) = &backend {
                let what = "process is being terminated";
                c.check_signal(backend, "terminate superuser process", what)?;
            }
            Ok(backend.map(|b| b.terminate()).is_some().into())
        },
    )
    .volatile(),
    // Nobody waits for a relation or a row here.
    Definition::new("pg_blocking_pids", &["int4"], "oid[]", |_, _| {
        Ok(Vec::<i64>::new().into())
    }),
    Definition::new("pg_reload_conf", &[""], "bool", |c, _| {
        if !c.model.subject().is_superuser {
            return Err(Error::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                "permission denied for function pg_reload_conf",
            ));
        }
        c.facts.backends.reload();
        Ok(true.into())
    })
    .volatile(),
    // The log goes to standard error.
    Definition::new("pg_current_logfile", &["", "text"], "text", |_, _| {
        Ok(Datum::Null)
    }),
    Definition::new("pg_is_in_recovery", &[""], "bool", |_, _| Ok(false.into())),
    Definition::new("pg_is_wal_replay_paused", &[""], "bool", |_, _| {
        Ok(false.into())
    }),
    Definition::new("pg_is_other_temp_schema", &["oid"], "bool", |_, _| {
        Ok(false.into())
    }),
    Definition::new("pg_my_temp_schema", &[""], "oid", |c, _| {
        Ok(if c.has_temporary() { TEMPORARY_OID } else { 0 }.into())
    }),
    Definition::new("txid_current", &[""], "int8", transaction),
    Definition::new("txid_current_if_assigned", &[""], "int8", transaction),
    Definition::new("pg_postmaster_start_time", &[""], "timestamptz", started),
    Definition::new("pg_conf_load_time", &[""], "timestamptz", started),
    Definition::new("clock_timestamp", &[""], "timestamptz", |c, _| {
        Ok(Datum::Time(c.facts.clock.now_us()))
    })
    .volatile(),
    Definition::new("inet_server_addr", &[""], "text", |_, _| Ok(Datum::Null)),
    Definition::new("inet_server_port", &[""], "int4", |_, _| Ok(Datum::Null)),
    Definition::new("inet_client_addr", &[""], "text", |c, _| {
        let address = c.facts.backend.activity().client_address;
        Ok(address.map(|address| address.ip().to_string()).into())
    }),
    Definition::new("inet_client_port", &[""], "int4", |c, _| {
        let address = c.facts.backend.activity().client_address;
        Ok(address.map(|address| i64::from(address.port())).into())
    }),
    Definition::new("pg_notify", &["text text"], "text", notify)
        .volatile()
        .with_null(),
    // The set that `pg_listening_channels()` gives.
    Definition::new("listening_channels_array", &[""], "text[]", |c, _| {
        Ok(c.facts.backend.mailbox().channels().into())
    }),
    Definition::new("pg_notification_queue_usage", &[""], "float8", |_, _| {
        Ok(0.0.into())
    }),
    Definition::new("pg_advisory_unlock_all", &[""], "text", |c, _| {
        let locks = c.facts.backends.advisory_locks();
        locks.release_session(c.facts.backend.pid());
        Ok("".into())
    })
    .volatile(),
];

fn backend(catalog: &Catalog, pid: i64) -> Option<std::sync::Arc<Backend>> {
    let pid = i32::try_from(pid).ok()?;
    catalog.facts.backends.get(pid)
}

fn database(_: &Catalog, _: &[Datum]) -> Result<Datum> {
    Ok(DATABASE_NAME.into())
}

fn user(catalog: &Catalog, _: &[Datum]) -> Result<Datum> {
    Ok(catalog
        .role_name(catalog.model.subject().role.into())
        .into())
}

fn transaction(catalog: &Catalog, _: &[Datum]) -> Result<Datum> {
    // Transactions have no numbers; what grows with every change of a definition does.
    Ok((i64::try_from(catalog.model.version()).unwrap_or(i64::MAX - 3) + 3).into())
}

fn started(catalog: &Catalog, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Time(catalog.facts.started_at_us))
}

fn setting(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let name = text(arguments, 0);
    match catalog.facts.parameters.get(name) {
        Some(value) => Ok(value.into()),
        None if flag(arguments, 1) => Ok(Datum::Null),
        None => Err(Error::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    }
}

/// `pg_notify(channel, payload)`; NULL is empty, as in PostgreSQL.
fn notify(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let given = |n: usize| match arguments.get(n) {
        Some(Datum::Text(text)) => text.as_str(),
        _ => "",
    };
    catalog.facts.outbox.notify(given(0), given(1))?;
    Ok("".into())
}

fn set_config(catalog: &Catalog, arguments: &[Datum]) -> Result<Datum> {
    let Some(Datum::Text(name)) = arguments.first() else {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "SET requires parameter name",
        ));
    };
    let value = match arguments.get(1) {
        Some(Datum::Text(value)) => Some(value.as_str()),
        _ => None,
    };
    let kept = catalog
        .facts
        .parameters
        .set(name, value, flag(arguments, 2))?;
    Ok(kept.into())
}

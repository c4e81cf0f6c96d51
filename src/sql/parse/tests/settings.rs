//! Parameters of the session, and transactions.

use super::*;
use crate::sql::statement::{Discarded, TransactionModes};

#[test]
fn parameters() {
    let set = |name: &str, value: Option<&str>, local: bool| Statement::SetParameter {
        name: name.into(),
        value: value.map(str::to_owned),
        local,
    };
    for (sql, expected) in [
        (
            "SET DateStyle = 'ISO'",
            set("datestyle", Some("ISO"), false),
        ),
        (
            "set extra_float_digits TO 3",
            set("extra_float_digits", Some("3"), false),
        ),
        (
            "SET LOCAL statement_timeout = '5s'",
            set("statement_timeout", Some("5s"), true),
        ),
        (
            "SET SESSION TIMEZONE TO 'Europe/Berlin'",
            set("timezone", Some("Europe/Berlin"), false),
        ),
        ("SET TIME ZONE DEFAULT", set("timezone", None, false)),
        ("SET TIME ZONE -3", set("timezone", Some("-3"), false)),
        (
            "SET search_path = a, \"B\"",
            set("search_path", Some("a, B"), false),
        ),
        (
            "SET NAMES 'UTF8'",
            set("client_encoding", Some("UTF8"), false),
        ),
        ("SET my.app TO on", set("my.app", Some("on"), false)),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY",
            Statement::SetTransaction {
                modes: TransactionModes {
                    isolation: Some("read uncommitted"),
                    read_only: Some(true),
                    deferrable: None,
                },
                is_session: true,
            },
        ),
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            Statement::SetTransaction {
                modes: TransactionModes {
                    isolation: Some("serializable"),
                    ..TransactionModes::default()
                },
                is_session: false,
            },
        ),
        (
            "SET SESSION AUTHORIZATION DEFAULT",
            set("session_authorization", None, false),
        ),
        (
            "SHOW TRANSACTION ISOLATION LEVEL",
            Statement::ShowParameter("transaction_isolation".into()),
        ),
        ("show timezone", Statement::ShowParameter("timezone".into())),
        (
            "SHOW TIME ZONE",
            Statement::ShowParameter("timezone".into()),
        ),
        ("SHOW ALL", Statement::ShowParameter("all".into())),
        ("RESET ALL", Statement::ResetParameter("all".into())),
        ("DISCARD ALL", Statement::Discard(Discarded::All)),
        ("DISCARD TEMP", Statement::Discard(Discarded::Temporary)),
        ("DISCARD PLANS", Statement::NoOperation("DISCARD PLANS")),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
}

#[test]
fn transactions() {
    for (sql, expected) in [
        ("BEGIN", Statement::Begin(TransactionModes::default())),
        (
            "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            Statement::Begin(TransactionModes {
                isolation: Some("repeatable read"),
                read_only: Some(true),
                deferrable: None,
            }),
        ),
        (
            "START TRANSACTION READ WRITE NOT DEFERRABLE",
            Statement::Begin(TransactionModes {
                isolation: None,
                read_only: Some(false),
                deferrable: Some(false),
            }),
        ),
        ("COMMIT WORK", Statement::Commit { chain: false }),
        ("END AND CHAIN", Statement::Commit { chain: true }),
        (
            "ROLLBACK AND NO CHAIN",
            Statement::Rollback { chain: false },
        ),
        ("ABORT TRANSACTION", Statement::Rollback { chain: false }),
        ("SAVEPOINT \"S\"", Statement::Savepoint("S".into())),
        (
            "RELEASE SAVEPOINT s",
            Statement::ReleaseSavepoint("s".into()),
        ),
        ("ROLLBACK TO s", Statement::RollbackToSavepoint("s".into())),
        (
            "ROLLBACK TRANSACTION TO SAVEPOINT s",
            Statement::RollbackToSavepoint("s".into()),
        ),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
}

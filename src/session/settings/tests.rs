//! Tests of the parameter table and its transaction rules.

use super::*;

#[test]
fn names_fold_and_unknown_ones_are_refused_unless_custom() {
    let settings = Settings::new("ada");
    assert_eq!(settings.get("timezone").unwrap(), "UTC");
    assert_eq!(settings.get("TIMEZONE").unwrap(), "UTC");
    assert_eq!(settings.get("session_authorization").unwrap(), "ada");
    let error = settings.set("nosuchparam", Some("1"), false).unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    assert!(settings.get("my.app").is_none());
    settings.set("My.App", Some("x"), false).unwrap();
    assert_eq!(settings.get("my.app").unwrap(), "x");
    assert_eq!(
        settings
            .set("server_version", Some("9"), false)
            .unwrap_err()
            .sqlstate(),
        "55P02"
    );
}

#[test]
fn values_are_checked_and_written_as_postgres_writes_them() {
    let settings = Settings::new("ada");
    for (name, given, kept) in [
        ("statement_timeout", "5000", "5s"),
        ("statement_timeout", "1500", "1500ms"),
        ("statement_timeout", "5min", "5min"),
        ("statement_timeout", "0", "0"),
        ("work_mem", "65536", "64MB"),
        ("jit", "TRUE", "on"),
        ("datestyle", "iso, dmy", "ISO, DMY"),
        ("client_encoding", "unicode", "UTF8"),
        ("client_encoding", "'utf-8'", "UTF8"),
        ("timezone", "Europe/Berlin", "Europe/Berlin"),
        ("timezone", "2", "<+02>-02"),
        ("bytea_output", "HEX", "hex"),
    ] {
        assert_eq!(
            settings.set(name, Some(given), false).unwrap(),
            kept,
            "{name}={given}"
        );
        assert_eq!(settings.get(name).unwrap(), kept);
    }
    for (name, given) in [
        ("statement_timeout", "5 parsecs"),
        ("statement_timeout", "-1"),
        ("jit", "maybe"),
        ("datestyle", "german"),
        ("client_encoding", "latin1"),
        ("timezone", "Nowhere/Land"),
        ("bytea_output", "base64"),
        ("extra_float_digits", "4"),
    ] {
        let error = settings.set(name, Some(given), false).unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "{name}={given}");
    }
    settings
        .set("statement_timeout", Some("5s"), false)
        .unwrap();
    assert_eq!(
        settings.duration("statement_timeout"),
        Some(Duration::from_secs(5))
    );
    settings.reset("statement_timeout").unwrap();
    assert_eq!(settings.duration("statement_timeout"), None);
}

#[test]
fn set_follows_the_transaction() {
    let settings = Settings::new("ada");
    settings
        .set("application_name", Some("before"), false)
        .unwrap();
    settings.mark();
    settings
        .set("application_name", Some("inside"), false)
        .unwrap();
    settings.set("jit", Some("on"), true).unwrap();
    settings.mark();
    settings
        .set("application_name", Some("deeper"), false)
        .unwrap();
    settings.rollback_to_mark(1);
    assert_eq!(settings.get("application_name").unwrap(), "inside");
    settings.end_transaction(true);
    assert_eq!(settings.get("application_name").unwrap(), "inside");
    assert_eq!(
        settings.get("jit").unwrap(),
        "off",
        "SET LOCAL ends with the transaction"
    );

    settings.mark();
    settings
        .set("application_name", Some("lost"), false)
        .unwrap();
    settings.reset_all();
    settings.end_transaction(false);
    assert_eq!(settings.get("application_name").unwrap(), "inside");
}

#[test]
fn reports_come_once_and_reset_goes_back_to_the_startup_packet() {
    let settings = Settings::new("ada");
    settings.set_startup("TimeZone", "Asia/Tokyo").unwrap();
    let first = settings.take_changes();
    assert!(first.len() >= 14);
    assert!(first.contains(&("TimeZone".to_owned(), "Asia/Tokyo".to_owned())));
    assert!(settings.take_changes().is_empty());
    settings.set("timezone", Some("UTC"), false).unwrap();
    settings.set("jit", Some("on"), false).unwrap();
    assert_eq!(
        settings.take_changes(),
        [("TimeZone".to_owned(), "UTC".to_owned())]
    );
    settings.reset("timezone").unwrap();
    assert_eq!(settings.get("timezone").unwrap(), "Asia/Tokyo");
}

//! Statements about checkpoints.

use super::*;
use crate::sql::recovery::{RecoveryStatement, ResetFrom, RewindTo};

fn recovery(sql: &str) -> RecoveryStatement {
    match one(sql) {
        Statement::Recovery(statement) => statement,
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn recovery_statements() {
    let name = || "p".to_owned();
    let reset = |from| RecoveryStatement::ResetCheckpoint { name: name(), from };
    let at_us = 1_704_067_200_000_000;
    for (sql, expected) in [
        (
            "DIAGNOSE CHECKPOINT OF p",
            RecoveryStatement::DiagnoseCheckpoint {
                name: name(),
                as_json: false,
            },
        ),
        (
            "diagnose checkpoint of materialized view p as json",
            RecoveryStatement::DiagnoseCheckpoint {
                name: name(),
                as_json: true,
            },
        ),
        ("DIAGNOSE p", RecoveryStatement::Diagnose { name: name() }),
        (
            "VERIFY MATERIALIZED VIEW p",
            RecoveryStatement::Verify {
                name: name(),
                sample: None,
            },
        ),
        (
            "VERIFY MATERIALIZED VIEW p SAMPLE 100",
            RecoveryStatement::Verify {
                name: name(),
                sample: Some(100),
            },
        ),
        (
            "BACKUP DATABASE TO '/b'",
            RecoveryStatement::BackupDatabase {
                to: "/b".to_owned(),
            },
        ),
        (
            "TEST SOURCE p",
            RecoveryStatement::TestSource { name: name() },
        ),
        ("test sink p", RecoveryStatement::TestSink { name: name() }),
        (
            "SUGGEST WATERMARK FOR p",
            RecoveryStatement::SuggestWatermark { name: name() },
        ),
        (
            "RUN RECOVERY DRILL ON p",
            RecoveryStatement::RunDrill {
                name: name(),
                faults: None,
            },
        ),
        (
            "RUN RECOVERY DRILL ON MATERIALIZED VIEW p WITH (fault = 'kill, lost_state')",
            RecoveryStatement::RunDrill {
                name: name(),
                faults: Some("kill, lost_state".to_owned()),
            },
        ),
        (
            "CHECK PIPELINE p",
            RecoveryStatement::Check { name: name() },
        ),
        (
            "REPAIR CHECKPOINT OF PIPELINE p DRY RUN",
            RecoveryStatement::RepairCheckpoint {
                name: name(),
                dry_run: true,
            },
        ),
        ("RESET CHECKPOINT OF p", reset(ResetFrom::Configured)),
        (
            "RESET CHECKPOINT OF p FROM EARLIEST",
            reset(ResetFrom::Earliest),
        ),
        (
            "RESET CHECKPOINT OF p FROM LATEST",
            reset(ResetFrom::Latest),
        ),
        (
            "RESET CHECKPOINT OF p FROM TIMESTAMP '2024-01-01 01:00:00+01'",
            reset(ResetFrom::Timestamp(at_us)),
        ),
        (
            "RESET CHECKPOINT OF p FROM OFFSETS '{\"s\": {\"commit\": 4}}'",
            reset(ResetFrom::Offsets(serde_json::json!({"s": {"commit": 4}}))),
        ),
        (
            "REBUILD STATE OF p",
            RecoveryStatement::RebuildState { name: name() },
        ),
        (
            "BACKUP CHECKPOINT OF p TO 's3://b/x'",
            RecoveryStatement::BackupCheckpoint {
                name: name(),
                to: Some("s3://b/x".into()),
            },
        ),
        (
            "RESTORE CHECKPOINT OF p FROM 'x' AT BATCH 7",
            RecoveryStatement::RestoreCheckpoint {
                name: name(),
                from: "x".into(),
                batch_id: Some(7),
            },
        ),
        (
            "REWIND p TO BATCH 7",
            RecoveryStatement::Rewind {
                name: name(),
                to: RewindTo::Batch(7),
            },
        ),
        (
            "REWIND PIPELINE p BEFORE TIMESTAMP '2024-01-01'",
            RecoveryStatement::Rewind {
                name: name(),
                to: RewindTo::Before(at_us),
            },
        ),
    ] {
        assert_eq!(recovery(sql), expected, "{sql}");
    }
    for (sql, expected) in [
        (
            "REPLAY DEAD LETTERS OF p",
            RecoveryStatement::ReplayDeadLetters { name: name() },
        ),
        (
            "COMPARE SCHEMA OF STREAM p",
            RecoveryStatement::CompareSchema { name: name() },
        ),
        (
            "COMPARE SCHEMA OF p",
            RecoveryStatement::CompareSchema { name: name() },
        ),
    ] {
        assert_eq!(recovery(sql), expected, "{sql}");
    }
    for sql in [
        "CREATE RECOVERY SCHEDULE n ON p WITH (fault = 'kill') EVERY '1 month'",
        "CREATE RECOVERY SCHEDULE IF NOT EXISTS n ON MATERIALIZED VIEW p WITH (fault = 'kill') EVERY INTERVAL '1 month'",
    ] {
        let Statement::CreateRecoverySchedule(create) = one(sql) else {
            panic!("{sql}");
        };
        assert_eq!((create.name.as_str(), create.target.as_str()), ("n", "p"));
        assert_eq!(create.faults.as_deref(), Some("kill"));
        assert_eq!(create.every, "1 month");
    }
    // As the hints of sources write them.
    recovery("REPAIR CHECKPOINT OF \"My view\";");
    recovery("RESET CHECKPOINT OF v FROM EARLIEST;");
    // Words of the statements are names too.
    let named = RecoveryStatement::Rewind {
        name: "pipeline".into(),
        to: RewindTo::Batch(1),
    };
    assert_eq!(recovery("REWIND pipeline TO BATCH 1"), named);
    // A parameter of that name can still be reset.
    assert_eq!(
        one("RESET checkpoint.x"),
        Statement::ResetParameter("checkpoint.x".into())
    );
    for (sql, sqlstate) in [
        ("RESET CHECKPOINT OF p FROM HERE", "42601"),
        ("RESET CHECKPOINT OF p FROM OFFSETS '{'", "22023"),
        ("RESET CHECKPOINT OF p FROM TIMESTAMP 'soon'", "22007"),
        ("REWIND p", "42601"),
        ("CREATE RECOVERY SCHEDULE n ON p", "42601"),
        (
            "CREATE RECOVERY SCHEDULE n ON p EVERY 'now and then'",
            "22007",
        ),
        ("CREATE RECOVERY SCHEDULE n ON p EVERY '1 second'", "22007"),
        ("COMPARE SCHEMA p", "42601"),
        ("REWIND p TO BATCH -1", "42601"),
        ("RESTORE CHECKPOINT OF p", "42601"),
        ("REPAIR CHECKPOINT p", "42601"),
    ] {
        let error = parse(sql).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate, "{sql}: {error}");
        assert!(error.position_value().is_some(), "{sql}");
    }
}

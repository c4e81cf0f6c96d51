//! Drills by schedule, over a clock that the test moves.

use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;

use super::*;
use crate::clock::ManualClock;

const DAY_US: i64 = 86_400_000_000;

async fn open(dir: &tempfile::TempDir, clock: &Arc<ManualClock>) -> Database {
    let options = DatabaseOptions {
        clock: clock.clone(),
        ..DatabaseOptions::default()
    };
    Database::open(dir.path(), options).await.unwrap()
}

async fn texts(database: &Database, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in database.query(sql).await.unwrap() {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| cast(column, &DataType::Utf8).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let text = |c: &datafusion::arrow::array::ArrayRef| {
                let texts = c.as_string::<i32>().iter().nth(row).flatten();
                texts.unwrap_or("NULL").to_owned()
            };
            rows.push(columns.iter().map(text).collect());
        }
    }
    rows
}

/// Waits until so many drills were made.
async fn wait_for_drills(database: &Database, drills: usize) -> Vec<Vec<String>> {
    let sql = "SELECT fault, verdict, schedule_name, detail FROM streaming_recovery_drills ORDER BY drilled_at, fault";
    for _ in 0..600 {
        let rows = texts(database, sql).await;
        if rows.len() >= drills {
            return rows;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no {drills} drills: {:?}", texts(database, sql).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn drills_come_by_their_schedule_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    // 2024-01-31, so that a month is a short one.
    let clock = ManualClock::at(1_706_659_200_000_000);
    let database = open(&dir, &clock).await;
    database
        .execute(
            "CREATE STREAM s (k BIGINT);
             CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS SELECT k, count(*) AS n FROM s GROUP BY k",
        )
        .await
        .unwrap();
    for k in 0..3 {
        let sql = format!("INSERT INTO s VALUES ({k}); FLUSH");
        database.execute(&sql).await.unwrap();
    }
    database
        .execute("CREATE RECOVERY SCHEDULE monthly ON v WITH (fault = 'lost_state, kill') EVERY '1 month'")
        .await
        .unwrap();
    for refused in [
        "CREATE RECOVERY SCHEDULE monthly ON v EVERY '1 day'",
        "CREATE RECOVERY SCHEDULE other ON nothing EVERY '1 day'",
        "CREATE RECOVERY SCHEDULE other ON v EVERY '1 second'",
        "CREATE RECOVERY SCHEDULE other ON v WITH (fault = 'flood') EVERY '1 day'",
        "DROP RECOVERY SCHEDULE other",
    ] {
        assert!(database.execute(refused).await.is_err(), "{refused}");
    }
    database
        .execute("DROP RECOVERY SCHEDULE IF EXISTS other; CREATE RECOVERY SCHEDULE IF NOT EXISTS monthly ON v EVERY '1 day'")
        .await
        .unwrap();
    clock.advance_us(28 * DAY_US);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let made = "SELECT * FROM streaming_recovery_drills";
    assert!(texts(&database, made).await.is_empty(), "it is not due yet");
    clock.advance_us(DAY_US);
    let drills = wait_for_drills(&database, 2).await;
    for drill in &drills {
        assert_eq!(
            (drill[1].as_str(), drill[2].as_str()),
            ("passed", "monthly"),
            "{drill:?}"
        );
    }
    let next = "SELECT target, every, last_run_at IS NOT NULL, next_run_at > last_run_at FROM streaming_recovery_schedules";
    assert_eq!(
        texts(&database, next).await,
        [["v", "1 month", "true", "true"]]
    );
    database.close().await.unwrap();
    drop(database);
    // Two that were missed are one.
    clock.advance_us(70 * DAY_US);
    let database = open(&dir, &clock).await;
    wait_for_drills(&database, 4).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(wait_for_drills(&database, 4).await.len(), 4);
    // What cannot be drilled is told where drills are told.
    database.execute("STOP PIPELINE v").await.unwrap();
    database.query("REBUILD STATE OF v").await.unwrap();
    clock.advance_us(40 * DAY_US);
    let drills = wait_for_drills(&database, 5).await;
    let failed = drills.last().unwrap();
    assert_eq!(failed[1], "failed", "{failed:?}");
    assert!(failed[3].contains("could not be run"), "{failed:?}");
    // A schedule goes with what it drills.
    database.execute("DROP MATERIALIZED VIEW v").await.unwrap();
    let left = "SELECT * FROM streaming_recovery_schedules";
    assert!(texts(&database, left).await.is_empty());
    database.close().await.unwrap();
}

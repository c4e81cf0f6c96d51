//! More than fits: keys with most of the rows, batches far too large, watermarks that are tightened, queries that want
//! too much.

use std::time::Duration;

use super::bench::{Bench, InputFault};
use super::feed::{FeedKind, Row};

/// Rows of a batch far too large.
const MANY: i64 = 60_000;

const SMALL: &[&str] = &["--memory-limit", "128MiB"];

pub(super) fn faults() -> Vec<InputFault> {
    let mut all = vec![
        InputFault::new("a batch far too large", FeedKind::Insert, |b| {
            Box::pin(async move { insert_many(b, "i % 1000", "i").await })
        }),
        InputFault::new("one key with most rows", FeedKind::Insert, |b| {
            Box::pin(async move {
                insert_many(b, "CASE WHEN i % 100 = 0 THEN i ELSE 1 END", "i % 5").await;
            })
        }),
        InputFault::new("a join that multiplies rows", FeedKind::Insert, |b| {
            Box::pin(async move {
                // Each change of the table is one of all rows of its key.
                insert_many(b, "i % 2", "i % 3").await;
                for _ in 0..3 {
                    b.server.execute("UPDATE t SET g = g + 1 WHERE id < 2").await;
                }
            })
        }),
        InputFault::new("watermark tightened on a running stream", FeedKind::Insert, |b| {
            Box::pin(async move {
                b.server.execute("ALTER STREAM plain ALTER WATERMARK FOR ts AS ts - INTERVAL '1 minute'").await;
                b.say("ALTER STREAM {stream} ALTER WATERMARK FOR ts AS ts - INTERVAL '1 minute';").await;
                for minutes in [3_000, 3_001, 3_002] {
                    b.deliver(&[Row { k: 1, v: Some(1), minutes: Some(minutes) }]).await;
                    b.wait_equal().await;
                }
                let removed = "SELECT sum(state_rows_removed) > 0 FROM streaming_metrics_log WHERE stream_name = 'windowed'";
                b.server.wait_for_value(removed, "t", Duration::from_secs(30)).await;
                // What comes next lies behind it: rows of before are late for both.
                b.skip_to(3_100);
            })
        })
        .of_the_few(),
        InputFault::new("a query that wants too much", FeedKind::Insert, |b| {
            Box::pin(async move {
                let client = b.server.connect().await;
                let greedy = "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 500000) AS s(g)";
                let error = client.simple_query(greedy).await.expect_err("it wants too much");
                let code = error.code().map(|code| code.code().to_owned());
                assert_eq!(code.as_deref(), Some("53200"), "{error:?}");
                b.send().await;
            })
        }),
    ];
    all.iter_mut().for_each(|fault| fault.arguments = SMALL);
    all
}

/// Rows into every stream and its twin's in one statement each; the process stays within its limit.
async fn insert_many(b: &mut Bench, key: &str, value: &str) {
    let streams: Vec<String> = super::shapes::names()
        .map(super::bench::stream_of)
        .chain(["plain".to_owned()])
        .collect();
    for stream in streams {
        let sql = format!(
            "INSERT INTO {stream} SELECT {key}, {value}, TIMESTAMP '2024-01-01' + (i % 1000) * INTERVAL '1 minute'
             FROM generate_series(1, {MANY}) AS s(i)"
        );
        b.server.execute(&sql).await;
    }
    b.server.execute("FLUSH").await;
}

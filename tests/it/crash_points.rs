//! The process dies between every two writes of a batch; the restart finds a whole state.

use std::time::{Duration, Instant};

use crate::harness::{Server, rows, run};

/// Every named point between the writes of a batch.
const POINTS: [&str; 8] = [
    "before_offsets",
    "after_offsets",
    "after_sinks",
    "after_state",
    "after_commit",
    "after_apply",
    "after_metrics",
    "after_retention",
];

#[test]
fn a_crash_at_any_point_of_a_batch_loses_and_doubles_nothing() {
    run(async {
        for point in POINTS {
            for pass in [1, 4] {
                crash_at(point, pass).await;
            }
        }
    });
}

async fn crash_at(point: &str, pass: u32) {
    let what = format!("{point}:{pass}");
    let mut server = Server::start();
    server
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, g BIGINT, v BIGINT);
             CREATE STREAM s (k BIGINT, v BIGINT);
             CREATE MATERIALIZED VIEW sums WITH (trigger = 'continuous') AS
               SELECT t.g, count(*) AS n, sum(s.v) AS total FROM s JOIN t ON t.k = s.k GROUP BY t.g;
             CREATE SINK out FROM sums WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog');
             INSERT INTO t VALUES (0, 0, 0), (1, 1, 0), (2, 0, 0); FLUSH",
        )
        .await;
    server.terminate();
    server.set_environment("TIDEMILL_CRASH_AT", Some(&what));
    server.restart();
    let mut acknowledged = 0i64;
    let start = Instant::now();
    let mut i = 0i64;
    while server.is_alive() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{what}: the point was never passed"
        );
        i += 1;
        let Ok(client) = server.try_connect().await else {
            break;
        };
        let sql = format!(
            "INSERT INTO s VALUES ({}, {i}); UPDATE t SET g = 1 - g WHERE k = {}",
            i % 4,
            i % 3
        );
        if client.batch_execute(&sql).await.is_ok() {
            acknowledged = i;
        }
    }
    server.reap();
    server.set_environment("TIDEMILL_CRASH_AT", None);
    server.restart();
    server.execute("FLUSH").await;
    let client = server.connect().await;
    let kept: i64 = server
        .value("SELECT count(*) FROM s")
        .await
        .parse()
        .expect("a count");
    assert!(
        kept >= acknowledged && kept <= i,
        "{what}: {kept} rows, {acknowledged} acknowledged, {i} sent"
    );
    let mut view = rows(&client, "SELECT * FROM sums").await.expect("readable");
    let mut batch = rows(
        &client,
        "SELECT t.g, count(*) AS n, sum(s.v) AS total FROM s JOIN t ON t.k = s.k GROUP BY t.g",
    )
    .await
    .expect("readable");
    view.sort();
    batch.sort();
    assert_eq!(view, batch, "{what}");
    // The sink's files, added up, are the view: every batch was delivered exactly once.
    let delivered = changelog_sum(&server);
    let expected: Vec<(String, i64)> = view
        .iter()
        .map(|r| (format!("{}|{}|{}", r[0], r[1], r[2]), 1))
        .collect();
    assert_eq!(delivered, expected, "{what}: what the sink delivered");
}

/// The rows that the changelog files of `out` add up to, with their weights.
fn changelog_sum(server: &Server) -> Vec<(String, i64)> {
    let mut sum = std::collections::BTreeMap::new();
    let files = std::fs::read_dir(server.dir().join("out")).expect("the sink's folder");
    for file in files {
        let path = file.expect("a readable folder").path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a readable file");
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let kind = row["change_kind"].as_str().expect("a change kind");
            let weight = if kind == "delete" || kind == "update_before" {
                -1
            } else {
                1
            };
            *sum.entry(format!("{}|{}|{}", row["g"], row["n"], row["total"]))
                .or_insert(0) += weight;
        }
    }
    sum.into_iter().filter(|(_, w)| *w != 0).collect()
}

//! Views over views of several pipelines: these become one, whatever they read and whenever the
//! process dies meanwhile.

use std::time::Duration;

use crate::harness::{Server, rows, run};

/// Two pipelines with a stream, files and a table in common, each with a source of its own too, and
/// sinks; one persists its state now and then only.
const DEFINITIONS: &str = "
CREATE STREAM s (id BIGINT, k TEXT, v BIGINT);
CREATE STREAM own_a (k TEXT, v BIGINT);
CREATE STREAM own_b (k TEXT, w BIGINT);
CREATE TABLE t (k TEXT PRIMARY KEY, w BIGINT);
CREATE STREAM f (k TEXT, x BIGINT) WITH (connector = 'files', location = 'in', format = 'csv');
CREATE STREAM fb (k TEXT, y BIGINT) WITH (connector = 'files', location = 'in_b', format = 'csv', on_bad_row = 'drop');
CREATE MATERIALIZED VIEW a WITH (trigger = '10 milliseconds') AS
  SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT k, v FROM s UNION ALL SELECT k, v FROM own_a UNION ALL SELECT k, x FROM f) GROUP BY k;
CREATE MATERIALIZED VIEW b WITH (trigger = '15 milliseconds', checkpoint_interval = '1 hour') AS
  SELECT k, max(m) AS m, count(*) AS c FROM (
    SELECT s.k, s.v * t.w AS m FROM s JOIN t USING (k) UNION ALL SELECT k, w FROM own_b
    UNION ALL SELECT k, x FROM f UNION ALL SELECT k, y FROM fb) GROUP BY k;
CREATE SINK out_a FROM a WITH (connector = 'files', location = 'out_a', format = 'json', mode = 'changelog');
CREATE SINK out_b FROM b WITH (connector = 'files', location = 'out_b', format = 'json', mode = 'changelog');";

const MERGED: &str =
    "CREATE MATERIALIZED VIEW c AS SELECT a.k, n, v, m, c FROM a LEFT JOIN b USING (k)";

const BATCH_ANSWER: &str = "
SELECT a.k, n, v, m, c FROM (
  SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT k, v FROM s UNION ALL SELECT k, v FROM own_a UNION ALL SELECT k, x FROM f) GROUP BY k) a
LEFT JOIN (SELECT k, max(m) AS m, count(*) AS c FROM (
    SELECT s.k, s.v * t.w AS m FROM s JOIN t USING (k) UNION ALL SELECT k, w FROM own_b
    UNION ALL SELECT k, x FROM f UNION ALL SELECT k, y FROM fb) GROUP BY k) b USING (k)";

fn put_file(server: &Server, folder: &str, round: u32) {
    let folder = server.dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let rows: String = (0..20)
        .map(|i| format!("k{},{}\n", i % 7, i + round * 100))
        .collect();
    std::fs::write(folder.join(format!("{round}.csv")), format!("k,x\n{rows}")).expect("a file");
}

async fn feed(server: &Server, round: u32) {
    put_file(server, "in", round);
    put_file(server, "in_b", round);
    let at = round * 1000;
    server
        .execute(&format!(
            "INSERT INTO s SELECT x, 'k' || (x % 7), x FROM generate_series({at}, {at} + 200) AS g(x);
             INSERT INTO own_a VALUES ('k1', {at}), ('only a', 1);
             INSERT INTO own_b VALUES ('k2', {at});
             INSERT INTO t VALUES ('k{}', {round}) ON CONFLICT (k) DO UPDATE SET w = t.w + 1;",
            round % 5
        ))
        .await;
}

/// All views equal their queries, and the sinks' changes add up to their views.
async fn check(server: &Server, what: &str) {
    server.execute("FLUSH").await;
    let client = server.connect().await;
    let sorted = async |sql: &str| {
        let mut all = rows(&client, sql).await.expect("readable");
        all.sort();
        all
    };
    assert_eq!(
        sorted("SELECT * FROM c").await,
        sorted(BATCH_ANSWER).await,
        "{what}"
    );
    for (view, columns) in [("a", ["k", "n", "v"]), ("b", ["k", "m", "c"])] {
        let stored = sorted(&format!("SELECT {} FROM {view}", columns.join(", "))).await;
        let delivered = delivered(server, &format!("out_{view}"), &columns);
        assert_eq!(delivered, stored, "{what}: what sink out_{view} delivered");
    }
    let pipelines = sorted("SELECT DISTINCT pipeline FROM streaming_queries").await;
    assert_eq!(pipelines.len(), 1, "{what}: {pipelines:?}");
}

/// The rows that a sink's changelog files add up to.
fn delivered(server: &Server, folder: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let mut sum = std::collections::BTreeMap::new();
    for file in std::fs::read_dir(server.dir().join(folder)).expect("the sink's folder") {
        let path = file.expect("a readable folder").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a readable file");
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let kind = row["change_kind"].as_str().expect("a change kind");
            let weight = if matches!(kind, "delete" | "update_before") {
                -1
            } else {
                1
            };
            let text = |column: &&str| match &row[*column] {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Null => "NULL".to_owned(),
                other => other.to_string(),
            };
            *sum.entry(columns.iter().map(text).collect::<Vec<_>>())
                .or_insert(0) += weight;
        }
    }
    sum.retain(|_, weight| *weight != 0);
    assert!(sum.values().all(|weight| *weight == 1), "{folder}: {sum:?}");
    sum.into_keys().collect()
}

#[test]
fn pipelines_become_one_and_go_on_where_they_were() {
    run(async {
        let mut server = Server::start();
        for folder in ["in", "in_b"] {
            put_file(&server, folder, 0);
        }
        server.execute(DEFINITIONS).await;
        for round in 1..4 {
            feed(&server, round).await;
        }
        // Rows go on coming while the pipelines are brought together.
        let (_, ()) = tokio::join!(server.execute(MERGED), feed(&server, 4));
        check(&server, "merged").await;
        feed(&server, 5).await;
        check(&server, "after another batch").await;
        server.kill();
        server.restart();
        feed(&server, 6).await;
        check(&server, "after a kill").await;
        // The local state is only a cache, and a view that joins now is filled with all there was.
        server.terminate();
        std::fs::remove_dir_all(server.data_dir().join("pipelines")).expect("the local state");
        server.restart();
        let pipeline = server
            .value("SELECT DISTINCT pipeline FROM streaming_queries")
            .await;
        server
            .execute(&format!(
                "CREATE MATERIALIZED VIEW d WITH (pipeline = '{pipeline}') AS SELECT k, sum(y) AS y FROM fb GROUP BY k"
            ))
            .await;
        check(&server, "from the checkpoint alone").await;
        let d = server.value("SELECT sum(y) FROM d").await;
        assert_eq!(d, server.value("SELECT sum(y) FROM fb").await);
        let events = server
            .value("SELECT count(*) FROM streaming_events WHERE event = 'merged'")
            .await;
        assert_ne!(events, "0");
    });
}

#[test]
fn a_crash_in_the_middle_of_a_merge_is_brought_to_its_end() {
    run(async {
        for point in [
            "merge_planned:1",
            "merge_planned:2",
            "merge_committed:1",
            "merge_committed:2",
            "merge_forgotten:1",
        ] {
            let mut server = Server::start();
            for folder in ["in", "in_b"] {
                put_file(&server, folder, 0);
            }
            server.execute(DEFINITIONS).await;
            feed(&server, 1).await;
            server.execute("FLUSH").await;
            feed(&server, 2).await;
            server.execute("FLUSH").await;
            server.terminate();
            server.set_environment("TIDEMILL_CRASH_AT", Some(point));
            server.restart();
            let client = server.connect().await;
            let created = client.batch_execute(MERGED).await;
            assert!(created.is_err(), "{point}: the point was never passed");
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(!server.is_alive(), "{point}: {created:?}");
            server.set_environment("TIDEMILL_CRASH_AT", None);
            server.restart();
            feed(&server, 3).await;
            check(&server, point).await;
        }
    });
}

#[test]
fn what_cannot_be_merged_says_so_and_changes_nothing() {
    run(async {
        let server = Server::start();
        server.execute(DEFINITIONS).await;
        feed(&server, 1).await;
        server.execute("FLUSH; STOP PIPELINE b").await;
        let client = server.connect().await;
        let error = client
            .batch_execute(MERGED)
            .await
            .expect_err("b is stopped");
        let error = error.as_db_error().expect("an error of the server").clone();
        assert_eq!(error.code().code(), "55000");
        assert_eq!(error.hint(), Some("START PIPELINE b;"));
        let elsewhere = MERGED.replace("c AS", "c WITH (pipeline = 'other') AS");
        let error = client
            .batch_execute(&elsewhere)
            .await
            .expect_err("no such pipeline");
        assert_eq!(
            error.as_db_error().expect("of the server").code().code(),
            "42P17"
        );
        server.execute("START PIPELINE b").await;
        // In the pipeline that it names, in one transaction with views of its own.
        server
            .execute(&format!(
                "BEGIN; CREATE MATERIALIZED VIEW e AS SELECT count(*) AS n FROM own_a; {};
                 CREATE MATERIALIZED VIEW g AS SELECT e.n FROM e, (SELECT count(*) FROM c); COMMIT",
                MERGED.replace("c AS", "c WITH (pipeline = 'b') AS")
            ))
            .await;
        check(&server, "in the pipeline that it names").await;
        assert_eq!(
            server
                .value("SELECT DISTINCT pipeline FROM streaming_queries")
                .await,
            "b"
        );
    });
}

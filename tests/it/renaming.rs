//! `ALTER … RENAME TO` of what runs: nothing starts over, nobody loses sight of it.

mod names;
mod sources;
mod temporary;

use crate::harness::{Server, run};

async fn started() -> Server {
    let server = Server::start();
    server
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
             CREATE STREAM s (k BIGINT, v BIGINT);
             CREATE MATERIALIZED VIEW sums AS SELECT s.k, sum(s.v) AS total FROM s GROUP BY s.k;
             CREATE INDEX by_total ON sums (total);
             CREATE MATERIALIZED VIEW named AS SELECT sums.k, t.v FROM sums JOIN t ON t.k = sums.k;
             CREATE VIEW shown AS SELECT sums.* FROM sums WHERE sums.k > 0;
             INSERT INTO t VALUES (1, 10), (2, 20);
             INSERT INTO s VALUES (1, 5), (2, 7), (1, 1); FLUSH",
        )
        .await;
    server
}

const RENAMES: &str = "ALTER MATERIALIZED VIEW sums RENAME TO totals; ALTER TABLE t RENAME TO names; \
     ALTER STREAM s RENAME TO readings; ALTER INDEX by_total RENAME TO totals_by_total; \
     ALTER TABLE shown RENAME TO looked_at; ALTER TABLE named RENAME TO joined";

async fn check_contents(server: &Server, expected: &[[&str; 2]]) {
    let found = server.rows("SELECT k, total FROM totals ORDER BY k").await;
    assert_eq!(found, expected);
    let found = server
        .rows("SELECT k, total FROM looked_at ORDER BY k")
        .await;
    assert_eq!(found, expected);
}

#[test]
fn what_is_renamed_goes_on_with_its_state() {
    run(async {
        let mut server = started().await;
        let batch = "SELECT last_batch_id FROM streaming_queries WHERE stream_name = ";
        let before = server.value(&format!("{batch}'sums'")).await;
        let metrics = "SELECT count(*) FROM streaming_metrics_log WHERE stream_name = ";
        let kept = server.value(&format!("{metrics}'sums'")).await;
        assert_ne!(kept, "0");
        server.execute(RENAMES).await;
        // Nothing ran for it: neither the view nor its index is filled again.
        assert_eq!(server.value(&format!("{batch}'totals'")).await, before);
        assert_eq!(server.value(&format!("{metrics}'totals'")).await, kept);
        assert_eq!(server.value(&format!("{metrics}'sums'")).await, "0");
        check_contents(&server, &[["1", "6"], ["2", "7"]]).await;
        let plan = server
            .rows("EXPLAIN SELECT * FROM totals WHERE total = 7")
            .await;
        assert!(
            plan.iter().any(|row| row[0].contains("totals_by_total")),
            "{plan:?}"
        );
        server
            .execute(
                "INSERT INTO readings VALUES (2, 3); UPDATE names SET v = 21 WHERE k = 2; FLUSH",
            )
            .await;
        server.kill();
        server.restart();
        server
            .execute("INSERT INTO readings VALUES (1, 4); FLUSH; VERIFY MATERIALIZED VIEW totals; VERIFY MATERIALIZED VIEW joined")
            .await;
        check_contents(&server, &[["1", "10"], ["2", "10"]]).await;
        assert_eq!(
            server.rows("SELECT k, v FROM joined ORDER BY k").await,
            [["1", "10"], ["2", "21"]]
        );
        // Without REBUILD and the like: a batch later than the first one, and no event of a failure.
        let failed = "SELECT count(*) FROM streaming_events WHERE event = 'failed'";
        assert_eq!(server.value(failed).await, "0");
        let last = server.value(&format!("{batch}'totals'")).await;
        assert!(last.parse::<i64>().expect("a number") > before.parse().expect("a number"));
        for statement in [
            "REFRESH MATERIALIZED VIEW totals",
            "WAIT FOR totals",
            "DIAGNOSE totals",
            "STOP MATERIALIZED VIEW totals",
            "START MATERIALIZED VIEW totals",
            "EXPLAIN MATERIALIZED VIEW totals",
            "ALTER MATERIALIZED VIEW totals SET (max_rows_per_trigger = 1000)",
            "DROP INDEX totals_by_total",
        ] {
            server.execute(statement).await;
        }
    });
}

#[test]
fn a_view_shows_the_names_of_now() {
    run(async {
        let server = started().await;
        server.execute(RENAMES).await;
        let text = |view: &str| format!("SELECT pg_get_viewdef('{view}'::regclass)");
        assert_eq!(
            server.value(&text("looked_at")).await,
            " SELECT totals.* FROM totals WHERE totals.k > 0;"
        );
        assert_eq!(
            server.value(&text("joined")).await,
            " SELECT totals.k, names.v FROM totals JOIN names ON names.k = totals.k;"
        );
        // What SHOW CREATE gives can be run.
        let create = server.rows("SHOW CREATE MATERIALIZED VIEW totals").await;
        assert_eq!(
            create,
            [[
                "totals",
                "CREATE MATERIALIZED VIEW totals WITH (pipeline = 'sums') AS\nSELECT readings.k, sum(readings.v) AS total FROM readings GROUP BY readings.k;"
            ]]
        );
        let index = "SELECT indexdef FROM pg_indexes WHERE indexname = 'totals_by_total'";
        assert!(server.value(index).await.contains("ON public.totals"));
    });
}

#[test]
fn a_free_name_can_be_taken_and_names_can_be_exchanged() {
    run(async {
        let mut server = started().await;
        server
            .execute(
                "ALTER MATERIALIZED VIEW sums RENAME TO old_sums;
                 CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) * 2 AS total FROM s GROUP BY k; FLUSH",
            )
            .await;
        let pipelines = "SELECT count(DISTINCT pipeline) FROM streaming_queries WHERE stream_name IN ('sums', 'old_sums')";
        assert_eq!(server.value(pipelines).await, "2");
        let both =
            "SELECT (SELECT total FROM sums WHERE k = 1), (SELECT total FROM old_sums WHERE k = 1)";
        assert_eq!(server.rows(both).await, [["12", "6"]]);
        server
            .execute(
                "BEGIN; ALTER MATERIALIZED VIEW sums RENAME TO aside; ALTER MATERIALIZED VIEW old_sums RENAME TO sums;
                 ALTER MATERIALIZED VIEW aside RENAME TO old_sums; COMMIT; INSERT INTO s VALUES (1, 1); FLUSH",
            )
            .await;
        assert_eq!(server.rows(both).await, [["7", "14"]]);
        server.kill();
        server.restart();
        server.execute("INSERT INTO s VALUES (1, 1); FLUSH").await;
        assert_eq!(server.rows(both).await, [["8", "16"]]);
        // A query written after the exchange means what it says, also after a restart.
        server
            .execute("CREATE MATERIALIZED VIEW over AS SELECT total FROM sums WHERE k = 1; FLUSH")
            .await;
        server.kill();
        server.restart();
        server.execute("INSERT INTO s VALUES (1, 1); FLUSH").await;
        assert_eq!(server.value("SELECT total FROM over").await, "9");
        let client = server.connect().await;
        for (statement, code) in [
            ("ALTER MATERIALIZED VIEW sums RENAME TO old_sums", "42P07"),
            ("ALTER MATERIALIZED VIEW nosuch RENAME TO x", "42P01"),
            ("ALTER VIEW t RENAME TO x", "42809"),
            ("ALTER INDEX t RENAME TO x", "42809"),
            ("ALTER TABLE t RENAME TO pg_x", "42P07"),
        ] {
            let error = client.batch_execute(statement).await.expect_err(statement);
            let found = error.code().map(|code| code.code().to_owned());
            assert_eq!(found.as_deref(), Some(code), "{statement}");
        }
        server
            .execute("ALTER MATERIALIZED VIEW IF EXISTS nosuch RENAME TO x; DROP MATERIALIZED VIEW old_sums; DROP MATERIALIZED VIEW sums CASCADE")
            .await;
    });
}

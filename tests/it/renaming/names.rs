//! What a name means where a new object has the name that an older one had.

use crate::harness::{Server, describe, rows, run};

/// A view that has another name now, and a new one of its old name.
async fn renamed() -> Server {
    let server = Server::start();
    server
        .execute(
            "CREATE STREAM s (k BIGINT, v BIGINT);
             CREATE MATERIALIZED VIEW v AS SELECT k, sum(v) AS total FROM s GROUP BY k;
             INSERT INTO s VALUES (1, 5), (2, 7); FLUSH;
             ALTER MATERIALIZED VIEW v RENAME TO w",
        )
        .await;
    server
        .execute("CREATE MATERIALIZED VIEW v AS SELECT k FROM s WHERE k = 2; FLUSH")
        .await;
    server
}

#[test]
fn recovery_of_a_name_is_that_of_what_has_it_now() {
    run(async {
        let server = renamed().await;
        for (name, pipeline) in [("v", "v_1"), ("w", "v")] {
            server
                .execute(&format!("BACKUP CHECKPOINT OF {name}"))
                .await;
            let newest =
                "SELECT pipeline FROM streaming_backups ORDER BY backed_up_at DESC LIMIT 1";
            assert_eq!(server.value(newest).await, pipeline, "{name}");
        }
        server.execute("RESET CHECKPOINT OF v FROM LATEST").await;
        server.execute("FLUSH").await;
        // The other view keeps what it has.
        assert_eq!(
            server.rows("SELECT k, total FROM w ORDER BY k").await,
            [["1", "5"], ["2", "7"]]
        );
        assert_eq!(server.value("SELECT count(*) FROM v").await, "0");
    });
}

#[test]
fn advice_names_a_pipeline_by_what_means_it() {
    run(async {
        let mut server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT);
                 CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous', min_batches_to_retain = 3) AS
                   SELECT k, count(*) AS n FROM s GROUP BY k;
                 ALTER MATERIALIZED VIEW v RENAME TO w",
            )
            .await;
        for _ in 0..12 {
            server.execute("INSERT INTO s VALUES (1); FLUSH").await;
        }
        server
            .execute("CREATE MATERIALIZED VIEW v AS SELECT k FROM s; FLUSH")
            .await;
        server.terminate();
        let commits = server.data_dir().join("checkpoints/v/commits");
        std::fs::remove_dir_all(commits).expect("removed");
        server.restart();
        let of_view = "FROM streaming_queries WHERE stream_name = 'w'";
        let status = format!("SELECT status {of_view}");
        let within = std::time::Duration::from_secs(30);
        server.wait_for_value(&status, "failed", within).await;
        let hint = server.value(&format!("SELECT hint {of_view}")).await;
        assert!(hint.contains("RESET CHECKPOINT OF w"), "{hint}");
        let parts = server.rows("DIAGNOSE CHECKPOINT OF w").await;
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        assert!(
            parts.iter().any(|cell| cell.contains(" OF w;")),
            "{parts:?}"
        );
        assert!(
            !parts.iter().any(|cell| cell.contains(" OF v;")),
            "{parts:?}"
        );
    });
}

#[test]
fn a_privilege_is_that_of_the_pipeline_that_a_name_means() {
    run(async {
        let server = renamed().await;
        server
            .execute("CREATE ROLE mender; GRANT RECOVERY ON PIPELINE v_1 TO mender")
            .await;
        let client = server.connect().await;
        client.batch_execute("SET ROLE mender").await.expect("set");
        let allowed = rows(&client, "DIAGNOSE v").await;
        allowed.unwrap_or_else(|error| panic!("{}", describe(&error)));
        let refused = rows(&client, "DIAGNOSE w").await.expect_err("refused");
        assert_eq!(refused.code().map(|code| code.code()), Some("42501"));
    });
}

#[test]
fn a_sink_of_a_free_name_has_a_pipeline_of_its_own() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT); CREATE SINK out FROM s WITH (connector = 'blackhole');
                 ALTER SINK out RENAME TO away",
            )
            .await;
        server
            .execute("CREATE SINK out FROM s WITH (connector = 'blackhole'); INSERT INTO s VALUES (1); FLUSH")
            .await;
        let sinks = "SELECT sink_name, pipeline FROM streaming_sinks ORDER BY sink_name";
        let expected = [["away", "out"], ["out", "out_1"]];
        assert_eq!(server.rows(sinks).await, expected);
        server.execute("DROP SINK away").await;
        assert_eq!(server.rows(sinks).await, [["out", "out_1"]]);
    });
}

#[test]
fn a_schedule_stays_with_its_pipeline() {
    run(async {
        let server = renamed().await;
        let scheduled = "SELECT schedule_name, pipeline FROM streaming_recovery_schedules ORDER BY schedule_name";
        server
            .execute(
                "CREATE RECOVERY SCHEDULE new ON v EVERY '1 month';
                 CREATE RECOVERY SCHEDULE old ON w EVERY '1 month';
                 ALTER MATERIALIZED VIEW v RENAME TO x;
                 ALTER MATERIALIZED VIEW w RENAME TO y;
                 CREATE MATERIALIZED VIEW w AS SELECT k FROM s",
            )
            .await;
        let expected = [["new", "v_1"], ["old", "v"]];
        assert_eq!(server.rows(scheduled).await, expected);
        // Pipelines that become one have one that stays, and the schedules of both.
        server
            .execute(
                "CREATE MATERIALIZED VIEW over AS SELECT x.k, y.total FROM x JOIN y ON x.k = y.k",
            )
            .await;
        let whole = "SELECT DISTINCT pipeline FROM streaming_queries WHERE stream_name IN ('over', 'x', 'y')";
        let whole = server.value(whole).await;
        let expected = [["new", &*whole], ["old", &*whole]];
        assert_eq!(server.rows(scheduled).await, expected);
        server
            .execute(
                "DROP MATERIALIZED VIEW over; DROP MATERIALIZED VIEW x; DROP MATERIALIZED VIEW y",
            )
            .await;
        assert!(server.rows(scheduled).await.is_empty());
    });
}

#[test]
fn what_is_dropped_takes_its_history_along_under_any_name() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT); CREATE MATERIALIZED VIEW v AS SELECT k FROM s;
                 INSERT INTO s VALUES (1); FLUSH; ALTER MATERIALIZED VIEW v RENAME TO w",
            )
            .await;
        let metrics = "SELECT count(*) FROM streaming_metrics_log WHERE stream_name = ";
        assert_ne!(server.value(&format!("{metrics}'w'")).await, "0");
        server.execute("DROP MATERIALIZED VIEW w").await;
        for name in ["v", "w"] {
            let left = server.value(&format!("{metrics}'{name}'")).await;
            assert_eq!(left, "0", "{name}");
        }
    });
}

#[test]
fn options_and_a_name_change_in_one_transaction() {
    run(async {
        let mut server = renamed().await;
        server
            .execute(
                "BEGIN; ALTER MATERIALIZED VIEW w SET (on_row_error = 'skip'); ALTER MATERIALIZED VIEW w RENAME TO z; COMMIT",
            )
            .await;
        server
            .execute(
                "BEGIN; ALTER MATERIALIZED VIEW z RENAME TO w; REFRESH MATERIALIZED VIEW w; WAIT FOR w; COMMIT;
                 BEGIN; CREATE MATERIALIZED VIEW made AS SELECT k FROM s; ALTER MATERIALIZED VIEW made RENAME TO done; COMMIT",
            )
            .await;
        assert_eq!(server.value("SELECT count(*) FROM done").await, "2");
        server.kill();
        server.restart();
        server.execute("INSERT INTO s VALUES (1, 1); FLUSH").await;
        let total = "SELECT total FROM w WHERE k = 1";
        assert_eq!(server.value(total).await, "6");
    });
}

#[test]
fn a_sink_is_tried_under_its_new_name() {
    run(async {
        let server = renamed().await;
        server
            .execute(
                "CREATE SINK files FROM w WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog');
                 INSERT INTO s VALUES (3, 1); FLUSH;
                 ALTER SINK files RENAME TO delivered; ALTER MATERIALIZED VIEW w RENAME TO totals",
            )
            .await;
        let tried = server.rows("TEST SINK delivered").await;
        let checks: Vec<&str> = tried.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(checks, ["ok", "ok"], "{tried:?}");
    });
}

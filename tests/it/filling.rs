//! Views that join a pipeline with a history: filled in parts, whole or not at all.

use std::time::Duration;

use crate::harness::{Server, rows, run};

const ROWS: u64 = 150_000;

/// A memory limit by which a batch takes some ten thousand rows.
fn server() -> Server {
    Server::start_with(&["--memory-limit", "64MiB"], &[])
}

async fn history(server: &Server) {
    server
        .execute(&format!(
            "CREATE STREAM s (id BIGINT, k BIGINT, v BIGINT);
             CREATE TABLE t (k BIGINT PRIMARY KEY, name TEXT);
             CREATE MATERIALIZED VIEW a WITH (pipeline = 'p', trigger = 'continuous') AS SELECT id, k, v FROM s;
             INSERT INTO t SELECT x, 'name ' || x FROM generate_series(0, 999) AS g(x);
             INSERT INTO s SELECT x, x % 1000, x FROM generate_series(1, {ROWS}) AS g(x); FLUSH"
        ))
        .await;
}

const JOINED: &str =
    "SELECT t.name, count(*) AS n, sum(v) AS v FROM a JOIN t USING (k) GROUP BY t.name";

async fn check(server: &Server, view: &str, query: &str, what: &str) {
    let client = server.connect().await;
    let mut answers = Vec::new();
    for sql in [format!("SELECT * FROM {view}"), query.to_owned()] {
        let mut answer = rows(&client, &sql).await.expect("readable");
        answer.sort();
        answers.push(answer);
    }
    assert!(answers[0] == answers[1], "{what}: {view} is not its query");
}

/// The most rows that a batch of a view took in, and how many batches took any.
async fn batches(server: &Server, view: &str) -> (u64, u64) {
    let sql = format!(
        "SELECT coalesce(max(num_input_rows), 0), count(*) FROM streaming_metrics_log
         WHERE stream_name = '{view}' AND num_input_rows > 0"
    );
    let row = server.rows(&sql).await.remove(0);
    let number = |text: &String| text.parse().expect("a number");
    (number(&row[0]), number(&row[1]))
}

#[test]
fn a_view_over_much_is_filled_in_parts_and_its_sink_gets_it_whole() {
    run(async {
        let server = server();
        history(&server).await;
        server
            .execute(&format!(
                "BEGIN; CREATE MATERIALIZED VIEW j AS {JOINED};
                 CREATE SINK out FROM j WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog'); COMMIT;
                 INSERT INTO s VALUES (0, 1, 7); FLUSH"
            ))
            .await;
        check(&server, "j", JOINED, "filled").await;
        let (rows_max, count) = batches(&server, "j").await;
        assert!(
            rows_max < ROWS / 3 && count > 3,
            "{count} batches of up to {rows_max} rows"
        );
        let delivered: i64 = std::fs::read_dir(server.dir().join("out"))
            .expect("the sink's folder")
            .map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("a file"))
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .map(|line| {
                if line.contains("delete") || line.contains("update_before") {
                    -1
                } else {
                    1
                }
            })
            .sum();
        assert_eq!(delivered, 1000, "rows that the sink's changes add up to");
    });
}

#[test]
fn a_crash_between_the_parts_starts_over() {
    run(async {
        for point in [
            "after_offsets:4",
            "after_state:3",
            "after_commit:5",
            "after_apply:2",
        ] {
            let mut server = server();
            history(&server).await;
            server.terminate();
            server.set_environment("TIDEMILL_CRASH_AT", Some(point));
            server.restart();
            let client = server.connect().await;
            let sql = format!("CREATE MATERIALIZED VIEW j AS {JOINED}; FLUSH");
            assert!(
                client.batch_execute(&sql).await.is_err(),
                "{point} was never passed"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.reap();
            server.set_environment("TIDEMILL_CRASH_AT", None);
            server.restart();
            server
                .execute("INSERT INTO s VALUES (0, 1, 7); FLUSH")
                .await;
            check(&server, "j", JOINED, point).await;
            check(&server, "a", "SELECT id, k, v FROM s", point).await;
        }
    });
}

#[test]
fn a_replaced_view_is_read_as_it_was_until_it_is_whole() {
    run(async {
        let server = server();
        history(&server).await;
        server
            .execute("CREATE MATERIALIZED VIEW r WITH (pipeline = 'p') AS SELECT k, count(*) AS n FROM s GROUP BY k; FLUSH")
            .await;
        let client = server.connect().await;
        server
            .execute("CREATE OR REPLACE MATERIALIZED VIEW r WITH (reset_state = true) AS SELECT k, count(*) + 1000 AS n FROM a GROUP BY k")
            .await;
        loop {
            let seen = rows(&client, "SELECT count(*), min(n), max(n) FROM r")
                .await
                .expect("readable");
            let n = ROWS / 1000;
            let expected =
                [n, n + 1000].map(|n| vec!["1000".to_owned(), n.to_string(), n.to_string()]);
            assert!(expected.contains(&seen[0]), "{seen:?}");
            if seen[0] == expected[1] {
                break;
            }
        }
        let (rows_max, count) = batches(&server, "r").await;
        assert!(
            rows_max < ROWS && count > 3,
            "{count} batches of up to {rows_max} rows"
        );
    });
}

#[test]
fn rows_that_an_expectation_dropped_do_not_come_back_with_a_later_view() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM e (id BIGINT, CONSTRAINT positive EXPECT (id > 0) ON VIOLATION DROP ROW);
                 CREATE MATERIALIZED VIEW first WITH (pipeline = 'p') AS SELECT id FROM e;
                 INSERT INTO e VALUES (1), (-1), (NULL); FLUSH;
                 CREATE MATERIALIZED VIEW later WITH (pipeline = 'p') AS SELECT id FROM e; FLUSH",
            )
            .await;
        for view in ["first", "later"] {
            let ids = server
                .rows(&format!("SELECT id FROM {view} ORDER BY id"))
                .await;
            assert_eq!(ids, [["1"], ["NULL"]], "{view}");
        }
    });
}

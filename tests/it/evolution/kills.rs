//! `kill -9` at every point around a column that comes by itself, and at random while ever new ones come.

use std::time::{Duration, Instant};

use super::{WITHIN, added, columns_of, create, put, wait_for_rows};
use crate::harness::{Server, run};
use crate::random::Random;

const ADDING: &str = "format = 'json', schema_evolution = 'add_new_columns'";

/// Points of a batch at which a new field may have been found or not yet.
const POINTS: [&str; 9] = [
    "before_offsets",
    "before_new_columns",
    "after_new_columns",
    "after_offsets",
    "after_sinks",
    "after_state",
    "after_commit",
    "after_apply",
    "after_metrics",
];

#[test]
fn a_column_comes_exactly_once_wherever_the_process_dies() {
    run(async {
        for point in POINTS {
            let mut server = Server::start();
            put(&server, "a.json", "{\"k\": 1}\n");
            create(&server, ADDING).await;
            server
                .execute("CREATE MATERIALIZED VIEW other WITH (trigger = 'continuous') AS SELECT k FROM f")
                .await;
            for view in ["kept", "other"] {
                wait_for_rows(&server, view, 1).await;
            }
            server.terminate();
            server.set_environment("TIDEMILL_CRASH_AT", Some(point));
            put(
                &server,
                "b.json",
                "{\"k\": 2, \"x\": 5, \"y\": \"a\"}\n{\"k\": 3, \"x\": 6}\n",
            );
            server.restart();
            let start = Instant::now();
            while server.is_alive() {
                assert!(start.elapsed() < WITHIN, "{point} was never passed");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            server.set_environment("TIDEMILL_CRASH_AT", None);
            server.restart();
            for view in ["kept", "other"] {
                wait_for_rows(&server, view, 3).await;
            }
            assert_eq!(
                columns_of(&server, "f").await,
                ["k bigint", "v bigint", "x bigint", "y text"],
                "{point}"
            );
            assert_eq!(added(&server, "f").await, ["x", "y"], "{point}");
            server
                .execute("CREATE MATERIALIZED VIEW wide AS SELECT * FROM f")
                .await;
            wait_for_rows(&server, "wide", 3).await;
            assert_eq!(
                server.rows("SELECT k, x, y FROM wide ORDER BY k").await,
                [["1", "NULL", "NULL"], ["2", "5", "a"], ["3", "6", "NULL"]],
                "{point}"
            );
        }
    });
}

#[test]
fn random_kills_while_fields_come_lose_no_value_and_double_no_column() {
    run(async {
        let seed = crate::soak::seeds(20_261_130..20_261_131).start;
        let mut random = Random::new(seed);
        let mut server = Server::start();
        put(&server, "first.json", "{\"k\": 0}\n");
        create(&server, ADDING).await;
        server
            .execute(
                "CREATE MATERIALIZED VIEW sums WITH (trigger = 'continuous') AS SELECT k % 3 AS g, count(*) AS n FROM f GROUP BY k % 3",
            )
            .await;
        const FIELDS: u64 = 12;
        for field in 0..FIELDS {
            for part in 0..2 {
                let k = field * 2 + part + 1;
                put(
                    &server,
                    &format!("{field:02}-{part}.json"),
                    format!("{{\"k\": {k}, \"f{field}\": {k}}}\n"),
                );
            }
            tokio::time::sleep(Duration::from_millis(random.below(120))).await;
            server.kill();
            server.restart();
        }
        let rows = 2 * FIELDS + 1;
        wait_for_rows(&server, "kept", rows).await;
        server
            .wait_for_value("SELECT sum(n)::bigint FROM sums", &rows.to_string(), WITHIN)
            .await;
        let mut expected = vec!["k bigint".to_owned(), "v bigint".to_owned()];
        expected.extend((0..FIELDS).map(|field| format!("f{field} bigint")));
        let mut columns = columns_of(&server, "f").await;
        columns[2..].sort();
        expected[2..].sort();
        assert_eq!(columns, expected, "seed {seed}");
        assert_eq!(
            added(&server, "f").await.len() as u64,
            FIELDS,
            "seed {seed}"
        );
        for field in 0..FIELDS {
            let of = format!(
                "SELECT k = f{field}, count(*) FROM f WHERE f{field} IS NOT NULL GROUP BY 1"
            );
            assert_eq!(server.rows(&of).await, [["t", "2"]], "seed {seed}");
        }
    });
}

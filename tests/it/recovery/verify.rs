//! Views computed again and compared: by one query where that proves something, else by their batches.

use super::{Pair, error_of};
use crate::harness::{Server, run};

#[test]
fn a_view_is_verified_by_a_query_that_shares_no_operator_with_it() {
    run(async {
        let pair = Pair::start().await;
        let verified = pair
            .server
            .rows("VERIFY MATERIALIZED VIEW v")
            .await
            .remove(0);
        assert_eq!(
            (verified[1].as_str(), verified[6].as_str()),
            ("equal", "query")
        );
        let rows: u64 = verified[3].parse().expect("a count");
        assert!(rows >= 5, "{verified:?}");
        // A sample compares fewer rows.
        let sampled = pair
            .server
            .rows("VERIFY MATERIALIZED VIEW v SAMPLE 2")
            .await
            .remove(0);
        assert_eq!(sampled[1], "equal", "{sampled:?}");
        assert!(sampled[7].contains("rows were compared"), "{sampled:?}");
        // What is computed from nothing else cannot be verified; a view over it can.
        let client = pair.server.connect().await;
        let error = error_of(&client, "VERIFY MATERIALIZED VIEW s").await;
        assert_eq!(error.code().code(), "42809");
        let hint = error.hint().expect("a hint");
        let statement = hint.split(';').next().expect("a statement");
        pair.server.rows(statement).await;
        let error = error_of(&client, "VERIFY MATERIALIZED VIEW nothing").await;
        assert_eq!(error.code().code(), "42P01");
    });
}

/// Views over views, altered relations, filters, set operations: one query over the rows that came.
#[test]
fn views_of_many_shapes_are_verified_by_a_query() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT, v BIGINT);
                 CREATE TABLE t (id BIGINT PRIMARY KEY, g TEXT);
                 INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL);
                 INSERT INTO s VALUES (1, 10), (2, 20), (2, 20), (3, NULL), (NULL, 4);
                 CREATE MATERIALIZED VIEW joined AS SELECT t.g, s.v FROM s JOIN t ON t.id = s.k;
                 CREATE MATERIALIZED VIEW sums WITH (pipeline = 'joined') AS SELECT g, count(*) AS n, sum(v) AS total FROM joined GROUP BY g;
                 CREATE MATERIALIZED VIEW apart AS SELECT k FROM s EXCEPT SELECT id FROM t;
                 CREATE MATERIALIZED VIEW large AS SELECT * FROM s WHERE v > (SELECT avg(v) FROM s);
                 CREATE MATERIALIZED VIEW distinct_values AS SELECT DISTINCT v FROM s;
                 FLUSH;",
            )
            .await;
        server
            .execute(
                "ALTER TABLE t ADD COLUMN extra BIGINT DEFAULT 7;
                 UPDATE t SET g = 'c' WHERE id = 2; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (4, 'd', 8);
                 INSERT INTO s VALUES (4, 1), (5, 99); FLUSH;
                 CREATE MATERIALIZED VIEW later AS SELECT id, extra FROM t; FLUSH;",
            )
            .await;
        for view in ["joined", "sums", "apart", "distinct_values", "later"] {
            let sql = format!("VERIFY MATERIALIZED VIEW {view}");
            let verified = server.rows(&sql).await.remove(0);
            assert_eq!(verified[1], "equal", "{verified:?}");
            assert_eq!(verified[6], "query", "{verified:?}");
        }
        let verified = server
            .rows("VERIFY MATERIALIZED VIEW large")
            .await
            .remove(0);
        assert_eq!(verified[1], "equal", "{verified:?}");
    });
}

/// A fault of the files that both computations would share is told of the pipeline, by its own name.
#[test]
fn what_cannot_be_verified_is_told_of_the_pipeline() {
    run(async {
        let mut pair = Pair::start().await;
        pair.damage(|c| std::fs::remove_file(c.join("offsets/3")).expect("removed"));
        let client = pair.server.connect().await;
        let answer = client.simple_query("VERIFY MATERIALIZED VIEW v").await;
        if let Err(error) = answer {
            let text = crate::harness::describe(&error);
            assert!(!text.contains("verification"), "{text}");
        }
    });
}

/// A view that took in a row twice, as by a fault of what computes it: the query does not repeat that.
#[test]
fn a_row_that_was_counted_twice_is_found() {
    run(async {
        let mut pair = Pair::start().await;
        pair.insert(3).await;
        pair.damage(|c| {
            let newest = super::newest(&c.join("commits"));
            let path = c.join(format!("commits/{newest}"));
            let text = std::fs::read_to_string(&path).expect("an entry");
            let lines: Vec<&str> = text.lines().collect();
            let mut entry: serde_json::Value = serde_json::from_str(lines[1]).expect("JSON");
            let commit = &mut entry["source_offsets"]["s"]["commit"];
            // Each round inserts into the stream first, and then changes the table three times.
            *commit = (commit.as_u64().expect("a position") - 4).into();
            let body = format!("{}\n{entry}\n", lines[0]);
            let checksum = crc32c::crc32c(body.as_bytes());
            std::fs::write(&path, format!("{body}crc32c:{checksum:08x}\n")).expect("written");
        });
        pair.insert(1).await;
        let verified = pair
            .server
            .rows("VERIFY MATERIALIZED VIEW v")
            .await
            .remove(0);
        assert_eq!(
            (verified[1].as_str(), verified[6].as_str()),
            ("differs", "query"),
            "{verified:?}"
        );
        assert!(verified[7].contains("unexpected: k = "), "{verified:?}");
        let twin = pair
            .server
            .rows("VERIFY MATERIALIZED VIEW twin")
            .await
            .remove(0);
        assert_eq!(twin[1], "equal", "{twin:?}");
    });
}

//! Checkpoints that begin anew.

use super::{Pair, archived, error_of, newest};
use crate::harness::run;

#[test]
fn a_reset_archives_and_begins_where_it_is_told() {
    run(async {
        let mut pair = Pair::start().await;
        // The whole location is gone: nothing to repair, and never a fresh start unasked.
        pair.damage(|c| std::fs::remove_dir_all(c).expect("removed"));
        pair.wait_for_status("failed").await;
        let statement = "RESET CHECKPOINT OF v;".to_owned();
        assert_eq!(
            pair.part("metadata").await,
            ("missing".to_owned(), statement.clone())
        );
        let steps = pair.server.rows(&statement).await;
        assert!(
            steps.iter().any(|row| row[0] == "starts" && row[1] == "s"),
            "{steps:?}"
        );
        pair.assert_equal_twin().await;
        // On a running pipeline, twice, from the first row.
        let last = newest(&pair.checkpoint().join("commits"));
        for _ in 0..2 {
            pair.server
                .rows("RESET CHECKPOINT OF v FROM EARLIEST")
                .await;
        }
        pair.assert_equal_twin().await;
        assert_eq!(archived(&pair.checkpoint(), &format!("commits/{last}")), 1);
        let first = pair.part("commits").await;
        assert_eq!(first.0, "ok");
        // Batches are numbered on, over a kill too.
        pair.server.kill();
        pair.server.restart();
        pair.assert_equal_twin().await;
        assert!(newest(&pair.checkpoint().join("commits")) > last);
        // From now on: only what comes next counts.
        let position =
            "SELECT end_offset FROM streaming_sources WHERE source_name = 's' AND pipeline = 'v'";
        let end = pair.server.value(position).await;
        let reset = format!("RESET CHECKPOINT OF v FROM OFFSETS '{{\"s\": {end}}}'");
        pair.server.rows(&reset).await;
        pair.server
            .execute("INSERT INTO s VALUES (100, 1, NULL), (100, 2, NULL); FLUSH")
            .await;
        let taken = pair.server.rows("SELECT k, n, total FROM v").await;
        assert_eq!(taken, [["100", "2", "3"]]);
        // From a position: the rows of the last transaction once more, by themselves.
        let end: serde_json::Value =
            serde_json::from_str(&pair.server.value(position).await).expect("JSON");
        let commit = end["commit"].as_u64().expect("a commit");
        pair.server
            .execute("INSERT INTO s VALUES (200, 5, NULL); FLUSH")
            .await;
        let reset =
            format!("RESET CHECKPOINT OF v FROM OFFSETS '{{\"s\": {{\"commit\": {commit}}}}}'");
        pair.server.rows(&reset).await;
        pair.server.execute("FLUSH").await;
        assert_eq!(
            pair.server.rows("SELECT k, n, total FROM v").await,
            [["200", "1", "5"]]
        );
        // What a source cannot do is told, and changes nothing.
        let client = pair.server.connect().await;
        for sql in [
            "RESET CHECKPOINT OF v FROM TIMESTAMP '2024-01-01'",
            "RESET CHECKPOINT OF v FROM OFFSETS '{\"s\": {\"commit\": 99999999}}'",
            "RESET CHECKPOINT OF v FROM OFFSETS '{\"row\": 1}'",
        ] {
            error_of(&client, sql).await;
        }
        pair.server.execute("FLUSH").await;
        assert_eq!(
            pair.server.rows("SELECT k, n, total FROM v").await,
            [["200", "1", "5"]]
        );
        assert_ne!(pair.status().await, "failed");
    });
}

#[test]
fn a_kill_in_the_middle_of_a_reset_or_rebuild_leaves_what_can_be_said_again() {
    run(async {
        let mut pair = Pair::start().await;
        for (point, statement) in [
            ("reset_archiving", "RESET CHECKPOINT OF v"),
            ("reset_archiving:2", "RESET CHECKPOINT OF v FROM EARLIEST"),
            ("reset_archiving:3", "RESET CHECKPOINT OF v"),
            ("reset_planned", "RESET CHECKPOINT OF v FROM EARLIEST"),
            ("rebuild_unfilled", "REBUILD STATE OF v"),
            ("reset_archiving", "REBUILD STATE OF v"),
        ] {
            pair.server.terminate();
            pair.server
                .set_environment("TIDEMILL_CRASH_AT", Some(point));
            pair.server.restart();
            let client = pair.server.connect().await;
            client.simple_query(statement).await.expect_err("it dies");
            pair.server.reap();
            pair.server.set_environment("TIDEMILL_CRASH_AT", None);
            pair.server.restart();
            pair.server.rows(statement).await;
            pair.assert_equal_twin().await;
        }
    });
}

//! State that is lost and computed again, and views that are verified.

use super::{Pair, WITHIN, error_of, garble, newest};
use crate::harness::{Server, run};

#[test]
fn lost_state_is_rebuilt_exactly() {
    run(async {
        let mut pair = Pair::start().await;
        pair.damage(|c| std::fs::remove_dir_all(c.join("state")).expect("removed"));
        pair.wait_for_status("failed").await;
        let statement = "REBUILD STATE OF v;".to_owned();
        assert_eq!(
            pair.part("state").await,
            ("damaged".to_owned(), statement.clone())
        );
        let verdict = pair.server.rows("DIAGNOSE v").await.pop().expect("rows");
        assert_eq!((verdict[1].as_str(), &verdict[3]), ("fail", &statement));
        let steps = pair.server.rows(&statement).await;
        assert!(steps.iter().any(|row| row[0] == "runs again"), "{steps:?}");
        pair.assert_equal_twin().await;
        // One flipped byte in every run: no state is left that leads on.
        pair.damage(|c| {
            for entry in std::fs::read_dir(c.join("state")).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.extension().is_some_and(|e| e == "run") {
                    garble(&path);
                }
            }
        });
        pair.wait_for_status("failed").await;
        pair.server.rows(&statement).await;
        pair.assert_equal_twin().await;
        assert_eq!(pair.events("rebuilt").await, 2);
        assert_eq!(pair.part("state").await.0, "ok");
    });
}

/// The newest run is damaged under a running pipeline: an older state leads on.
#[test]
fn a_damaged_run_is_written_anew_from_an_older_state() {
    run(async {
        let mut pair = Pair::start().await;
        let last = newest(&pair.checkpoint().join("commits"));
        garble(&pair.checkpoint().join(format!("state/{last}.run")));
        let statement = "REPAIR CHECKPOINT OF v;".to_owned();
        assert_eq!(
            pair.part("state").await,
            ("damaged".to_owned(), statement.clone())
        );
        let mended = pair.server.rows(&statement).await;
        assert_eq!(
            (mended[0][0].as_str(), mended[0][3].as_str()),
            ("state", "mended")
        );
        pair.server.execute("FLUSH").await;
        assert_eq!(pair.part("state").await.0, "ok");
        pair.assert_equal_twin().await;
        pair.server.kill();
        pair.server.restart();
        pair.assert_equal_twin().await;
    });
}

/// Retention took the offset log's beginning: the sources are read again, if no sink minds.
#[test]
fn state_is_rebuilt_from_the_sources_where_the_log_is_short() {
    run(async {
        let mut pair = Pair::start().await;
        pair.server
            .execute("ALTER PIPELINE v SET (min_batches_to_retain = 2)")
            .await;
        pair.insert(8).await;
        let oldest = pair.checkpoint().join("offsets/0");
        let start = std::time::Instant::now();
        while oldest.exists() {
            assert!(start.elapsed() < WITHIN, "retention never came");
            pair.insert(1).await;
        }
        pair.damage(|c| std::fs::remove_dir_all(c.join("state")).expect("removed"));
        pair.wait_for_status("failed").await;
        let steps = pair.server.rows("REBUILD STATE OF v").await;
        assert!(steps.iter().any(|row| row[0] == "reads again"), "{steps:?}");
        pair.assert_equal_twin().await;
        pair.server
            .execute("CREATE SINK k FROM v WITH (connector = 'blackhole'); FLUSH")
            .await;
        let client = pair.server.connect().await;
        let error = error_of(&client, "REBUILD STATE OF v").await;
        assert_eq!(error.code().code(), "55000");
        assert!(
            error
                .hint()
                .expect("a hint")
                .contains("RESET CHECKPOINT OF v"),
            "{error:?}"
        );
        pair.assert_equal_twin().await;
    });
}

/// Computing again drops the same late rows: each batch has its own watermark once more.
#[test]
fn state_with_late_rows_is_rebuilt_and_verified_as_it_was() {
    run(async {
        let mut server = Server::start();
        server
            .execute(
                "CREATE STREAM e (ts TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10 minutes');
                 CREATE MATERIALIZED VIEW w WITH (trigger = 'continuous') AS
                   SELECT window_start, k, sum(v) AS s FROM TUMBLE(e, ts, INTERVAL '10 minutes') GROUP BY window_start, window_end, k;",
            )
            .await;
        for i in 0..6 {
            let sql = format!(
                "INSERT INTO e VALUES ('2024-01-01 0{i}:00:00', 1, {i}), ('2024-01-01 0{i}:05:00', 2, 1), ('2024-01-01 00:01:00', 3, {i}); FLUSH"
            );
            server.execute(&sql).await;
        }
        let all = "SELECT * FROM w ORDER BY 1, 2";
        let before = server.rows(all).await;
        let direct = "SELECT window_start, k, sum(v) FROM TUMBLE(e, ts, INTERVAL '10 minutes') GROUP BY window_start, window_end, k ORDER BY 1, 2";
        assert_ne!(server.rows(direct).await, before, "some rows were late");
        let verified = server.rows("VERIFY MATERIALIZED VIEW w").await.remove(0);
        assert_eq!(verified[1], "equal", "{verified:?}");
        assert_eq!(verified[3], before.len().to_string());
        server.rows("REBUILD STATE OF w").await;
        server.execute("FLUSH").await;
        assert_eq!(server.rows(all).await, before);
        // What fixes the input is changed behind its back: what it gives is not what the view holds.
        server.terminate();
        let path = server.data_dir().join("checkpoints/w/offsets/2");
        let text = std::fs::read_to_string(&path).expect("an entry");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.pop();
        let mut source: serde_json::Value = serde_json::from_str(&lines[2]).expect("JSON");
        source["end"] = source["start"].clone();
        lines[2] = source.to_string();
        let body = lines.join("\n") + "\n";
        let checksum = crc32c::crc32c(body.as_bytes());
        std::fs::write(&path, format!("{body}crc32c:{checksum:08x}\n")).expect("written");
        server.restart();
        server.execute("FLUSH").await;
        let verified = server.rows("VERIFY MATERIALIZED VIEW w").await.remove(0);
        assert_eq!(verified[1], "differs", "{verified:?}");
        let unexpected: u64 = verified[5].parse().expect("a count");
        assert!(unexpected >= 2, "{verified:?}");
        assert!(
            verified[7].contains("unexpected: window_start = "),
            "{verified:?}"
        );
        assert_eq!(verified[6], "batches", "{verified:?}");
        assert_eq!(verified[8], "REBUILD STATE OF w;");
        assert_eq!(server.rows(all).await, before, "VERIFY changes nothing");
        let left = std::fs::read_dir(server.data_dir().join("verification"));
        assert_eq!(
            left.map_or(0, Iterator::count),
            0,
            "its folder goes with it"
        );
    });
}

//! Backups, and going back.

use std::path::Path;

use super::{Pair, WITHIN, error_of, newest};
use crate::harness::{Server, run};

#[test]
fn a_backup_restores_a_lost_checkpoint_and_a_rewind_goes_back() {
    run(async {
        let mut pair = Pair::start().await;
        let backup = pair.server.rows("BACKUP CHECKPOINT OF v").await.remove(0);
        let (location, batch) = (backup[1].clone(), backup[2].clone());
        assert!(Path::new(&location).join("metadata").exists());
        let told = pair
            .server
            .rows("SELECT pipeline, location, batch_id, checksum FROM streaming_backups")
            .await;
        assert_eq!(told, [["v", &location, &batch, &backup[5]]]);
        let client = pair.server.connect().await;
        let again = format!("BACKUP CHECKPOINT OF v TO '{location}'");
        assert_eq!(error_of(&client, &again).await.code().code(), "55000");
        pair.insert(3).await;
        pair.damage(|c| std::fs::remove_dir_all(c).expect("removed"));
        pair.wait_for_status("failed").await;
        // DIAGNOSE knows of it.
        let restore = format!("RESTORE CHECKPOINT OF v FROM '{location}';");
        assert_eq!(pair.part("metadata").await.1, restore);
        let steps = pair.server.rows(&restore).await;
        assert_eq!(steps[1][1], format!("batch {batch}"));
        pair.assert_equal_twin().await;
        // An older copy put in its place is refused, and accepted when it is said.
        pair.server.terminate();
        let checkpoint = pair.checkpoint();
        let last = newest(&checkpoint.join("commits"));
        for log in ["commits", "offsets"] {
            std::fs::remove_file(checkpoint.join(log).join(last.to_string())).expect("removed");
        }
        pair.server.restart();
        pair.wait_for_status("failed").await;
        let (_, statement) = pair.part("commits").await;
        assert!(
            statement.ends_with(&format!("AT BATCH {};", last - 1)),
            "{statement}"
        );
        pair.server.rows(&statement).await;
        pair.assert_equal_twin().await;
        // Going back runs the batches after it again.
        let steps = pair.server.rows("REWIND v TO BATCH 2").await;
        assert!(steps.iter().any(|row| row[0] == "runs again"), "{steps:?}");
        pair.assert_equal_twin().await;
        let error = error_of(&pair.server.connect().await, "REWIND v TO BATCH 100000").await;
        assert_eq!(error.code().code(), "22023");
        assert!(
            error.detail().expect("a detail").contains("batches from 0"),
            "{error:?}"
        );
        // A batch whose input nothing tells any more cannot run again: nothing moves.
        std::fs::remove_file(pair.checkpoint().join("offsets/2")).expect("removed");
        let error = error_of(&pair.server.connect().await, "REWIND v TO BATCH 1").await;
        assert!(error.message().contains("before batch 2"), "{error:?}");
        pair.assert_equal_twin().await;
    });
}

/// A pipeline that forgets at once what it does not need waits with that while it is copied.
#[test]
fn a_backup_of_a_pipeline_in_a_hurry_is_whole() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (key BIGINT, v BIGINT) WITH (connector = 'generator', kind = 'sequence', rows = 500000, keys = 100000, max_offsets_per_trigger = 500);
                 CREATE MATERIALIZED VIEW sums WITH (trigger = 'continuous', min_batches_to_retain = 1) AS
                   SELECT key, count(*) AS n, sum(v) AS total FROM s GROUP BY key",
            )
            .await;
        server
            .wait_for_value("SELECT count(*) > 20000 FROM sums", "t", WITHIN)
            .await;
        for round in 0..5 {
            let copy = server.dir().join(format!("copy{round}"));
            let sql = format!("BACKUP CHECKPOINT OF sums TO '{}'", copy.display());
            assert_eq!(server.rows(&sql).await.len(), 1);
        }
        // What was held back goes in the end: a thousand batches leave three thousand files.
        server
            .wait_for_value("SELECT sum(n)::bigint FROM sums", "500000", 2 * WITHIN)
            .await;
        let files = "SELECT files < 1000 FROM streaming_checkpoints WHERE pipeline = 'sums'";
        server.wait_for_value(files, "t", WITHIN).await;
    });
}

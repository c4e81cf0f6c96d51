//! What DIAGNOSE says of sound and damaged checkpoints, and what REPAIR makes of them.

use std::path::Path;

use super::{Pair, archived, error_of, garble, newest};
use crate::harness::run;

#[test]
fn a_sound_checkpoint_is_told_as_sound_whether_it_runs_or_rests() {
    run(async {
        let mut pair = Pair::start().await;
        for is_stopped in [false, true] {
            if is_stopped {
                pair.server.execute("STOP PIPELINE v").await;
            }
            // The disk that the test runs on may be nearly full.
            let rows = pair
                .server
                .rows("DIAGNOSE CHECKPOINT OF v")
                .await
                .into_iter();
            for row in rows.filter(|row| row[0] != "disk") {
                let is_sound = matches!(row[1].as_str(), "ok" | "held" | "free");
                assert!(is_sound && row[6] == "NULL", "{row:?}");
            }
            let guide = pair.server.value("DIAGNOSE CHECKPOINT OF v AS JSON").await;
            let guide: serde_json::Value = serde_json::from_str(&guide).expect("JSON");
            let last = newest(&pair.checkpoint().join("commits"));
            assert_eq!(guide["commits"]["range"], format!("0-{last}"));
            assert_eq!(guide["offsets"]["count"], last + 1);
            assert!(guide["metadata"].as_str().expect("text").contains("\"id\""));
            assert_eq!(guide["state"]["range"], format!("0-{last}"));
            assert!(guide["sources"]["s"]["end_offset"]["commit"].is_u64());
            pair.assert_nothing_to_repair().await;
        }
        assert_eq!(pair.status().await, "stopped", "what rests is left at rest");
        let verdict = pair.server.rows("DIAGNOSE v").await.pop().expect("rows");
        assert_eq!(verdict[0], "verdict");
        assert_eq!(verdict[3], "START PIPELINE v;");
        pair.server.execute("START PIPELINE v").await;
        assert_eq!(pair.server.rows("CHECK v").await.len(), 7);
        let client = pair.server.connect().await;
        let error = error_of(&client, "DIAGNOSE CHECKPOINT OF nothing").await;
        assert_eq!(error.code().code(), "42704");
        let error = error_of(&client, "DIAGNOSE CHECKPOINT OF s").await;
        assert_eq!(error.code().code(), "42809");
        pair.assert_equal_twin().await;
    });
}

/// Damage that REPAIR mends: made on the files, told with the statement, mended, equal to the twin.
#[test]
fn repair_mends_what_it_can_prove() {
    run(async {
        type Damage = fn(&Path);
        let cases: [(&str, Damage, &str); 5] = [
            (
                "metadata",
                |c| std::fs::remove_file(c.join("metadata")).expect("removed"),
                "missing",
            ),
            (
                "metadata",
                |c| std::fs::write(c.join("metadata"), "{").expect("written"),
                "damaged",
            ),
            (
                "commits",
                |c| std::fs::remove_file(c.join("commits/3")).expect("removed"),
                "warning",
            ),
            (
                "offsets",
                |c| garble(&c.join(format!("offsets/{}", newest(&c.join("commits"))))),
                "damaged",
            ),
            (
                "offsets",
                |c| std::fs::write(c.join("offsets/4"), "").expect("written"),
                "damaged",
            ),
        ];
        let mut pair = Pair::start().await;
        for (index, (part, damage, status)) in cases.into_iter().enumerate() {
            pair.damage(damage);
            let runs_on = status == "warning" || index == 4;
            if !runs_on {
                pair.wait_for_status("failed").await;
            }
            let told = pair.part(part).await;
            assert_eq!(
                told,
                (status.to_owned(), "REPAIR CHECKPOINT OF v;".to_owned())
            );
            let dry = pair.server.rows("REPAIR CHECKPOINT OF v DRY RUN").await;
            assert!(
                dry.iter()
                    .any(|row| row[0] == part && row[3] == "would be mended"),
                "{dry:?}"
            );
            assert_eq!(pair.part(part).await, told, "a dry run mends nothing");
            let mended = pair.server.rows(&told.1).await;
            assert!(
                mended
                    .iter()
                    .any(|row| row[0] == part && row[3] == "mended"),
                "{mended:?}"
            );
            assert_eq!(pair.part(part).await, ("ok".to_owned(), "NULL".to_owned()));
            pair.assert_nothing_to_repair().await;
            assert_eq!(pair.events("repaired").await, index as u64 + 1);
            pair.assert_equal_twin().await;
        }
        assert_eq!(
            archived(&pair.checkpoint(), "metadata"),
            1,
            "what was damaged is kept"
        );
        // It outlives a restart.
        pair.server.kill();
        pair.server.restart();
        pair.assert_equal_twin().await;
    });
}

#[test]
fn a_kill_in_the_middle_of_a_repair_leaves_what_can_be_repaired() {
    run(async {
        let mut pair = Pair::start().await;
        for point in ["repair_set_aside", "repair_mended", "repair_mended:2"] {
            pair.server.terminate();
            let checkpoint = pair.checkpoint();
            std::fs::write(checkpoint.join("metadata"), "").expect("written");
            garble(&checkpoint.join("offsets/4"));
            pair.server
                .set_environment("TIDEMILL_CRASH_AT", Some(point));
            pair.server.restart();
            pair.wait_for_status("failed").await;
            let client = pair.server.connect().await;
            client
                .simple_query("REPAIR CHECKPOINT OF v")
                .await
                .expect_err("it dies");
            pair.server.reap();
            pair.server.set_environment("TIDEMILL_CRASH_AT", None);
            pair.server.restart();
            pair.server.rows("REPAIR CHECKPOINT OF v").await;
            assert_eq!(pair.part("offsets").await.0, "ok", "{point}");
            pair.assert_equal_twin().await;
        }
    });
}

//! What backups, drills and verifications refuse or wait for, and with which words.

use std::path::Path;

use super::sources::Files;
use super::{Pair, error_of, follow::follow, garble, newest};
use crate::harness::{Server, run};

fn put_folder(path: &Path) {
    std::fs::remove_file(path).expect("removed");
    std::fs::create_dir(path).expect("a folder");
}

/// A copy that would not open is none, and one that went bad later is not named.
#[test]
fn a_damaged_checkpoint_is_not_backed_up_and_a_damaged_backup_is_not_named() {
    run(async {
        let mut files = Files::start().await;
        let good = files.server.rows("BACKUP CHECKPOINT OF sums").await;
        let (location, batch) = (good[0][1].clone(), good[0][2].clone());
        files.server.execute("STOP PIPELINE sums").await;
        let log = files.checkpoint().join("sources/f");
        let mut entries: Vec<u64> = std::fs::read_dir(&log)
            .expect("a folder")
            .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.parse().ok())
            .collect();
        entries.sort_unstable();
        garble(&log.join(entries[1].to_string()));
        let client = files.server.connect().await;
        let to = files.server.dir().join("copy");
        let backup = format!("BACKUP CHECKPOINT OF sums TO '{}'", to.display());
        let error = error_of(&client, &backup).await;
        assert!(
            error
                .message()
                .contains(&format!("sources/f/{}", entries[1])),
            "{error:?}"
        );
        assert!(
            error.hint().expect("a hint").contains("REPAIR CHECKPOINT"),
            "{error:?}"
        );
        assert!(!to.exists(), "nothing was written");
        let verdict = files.server.rows("DIAGNOSE sums").await.pop();
        let verdict = verdict.expect("a verdict");
        assert_eq!(
            verdict[3],
            format!("RESTORE CHECKPOINT OF sums FROM '{location}';")
        );
        // The newest batch of the backup stands on this entry, older ones do not.
        let of_backup = Path::new(&location).join("sources/f");
        garble(&of_backup.join(newest(&of_backup).to_string()));
        let verdict = files.server.rows("DIAGNOSE sums").await.pop();
        let statement = verdict.expect("a verdict").remove(3);
        assert!(statement.contains(" AT BATCH "), "{statement} of {batch}");
        files.server.execute("START PIPELINE sums").await;
        let run = follow(&files.server, "sums", "a damaged backup").await;
        assert!(run.iter().any(|s| s.contains(" AT BATCH ")), "{run:?}");
        files.wait_for_rows(15).await;
        files.write(5);
        files.wait_for_rows(18).await;
        files.server.terminate();
    });
}

#[test]
fn a_folder_where_a_file_should_be_is_told_with_a_statement() {
    run(async {
        let mut pair = Pair::start().await;
        let backup = pair.server.rows("BACKUP CHECKPOINT OF v").await.remove(0);
        pair.server.execute("STOP PIPELINE v").await;
        put_folder(&pair.checkpoint().join("metadata"));
        let client = pair.server.connect().await;
        for sql in [
            "BACKUP CHECKPOINT OF v",
            "RUN RECOVERY DRILL ON v WITH (fault = 'kill')",
        ] {
            let error = error_of(&client, sql).await;
            assert!(error.message().contains("metadata"), "{error:?}");
            assert!(error.message().contains("a folder"), "{error:?}");
            assert!(error.hint().is_some(), "{error:?}");
        }
        pair.server.execute("START PIPELINE v").await;
        follow(&pair.server, "v", "metadata is a folder").await;
        pair.assert_equal_twin().await;
        // In a copy too: what it names and is none is told before anything moves.
        let copy = Path::new(&backup[1]);
        put_folder(&copy.join(format!("offsets/{}", backup[2])));
        let restore = format!("RESTORE CHECKPOINT OF v FROM '{}'", backup[1]);
        let error = error_of(&client, &format!("{restore} AT BATCH {}", backup[2])).await;
        assert!(error.message().contains("a folder"), "{error:?}");
        assert!(
            error.hint().expect("a hint").contains(" AT BATCH "),
            "{error:?}"
        );
        pair.assert_equal_twin().await;
    });
}

#[test]
fn a_backup_does_not_go_where_live_data_lies() {
    run(async {
        let pair = Pair::start().await;
        let client = pair.server.connect().await;
        let data = pair.server.data_dir();
        std::os::unix::fs::symlink(&data, pair.server.dir().join("link")).expect("a link");
        std::fs::write(pair.server.dir().join("file"), "x").expect("written");
        for (to, why) in [
            (data.join("checkpoints/new"), "lies in the data directory"),
            (data.join("checkpoints/v/sub"), "lies in the data directory"),
            (data.join("backups"), "lies in the data directory"),
            (
                pair.server.dir().join("link/x"),
                "lies in the data directory",
            ),
            (
                pair.server.dir().join("away/../data/x"),
                "lies in the data directory",
            ),
            (pair.server.dir().join("file/x"), "is a file"),
            (Path::new("").to_owned(), "is empty"),
        ] {
            let to = to.display();
            for sql in [
                format!("BACKUP CHECKPOINT OF v TO '{to}'"),
                format!("BACKUP DATABASE TO '{to}'"),
            ] {
                let error = error_of(&client, &sql).await;
                assert_eq!(error.code().code(), "22023", "{sql}: {error:?}");
                assert!(error.message().contains(why), "{sql}: {error:?}");
            }
        }
        let own = data.join("backups/of_mine");
        pair.server
            .rows(&format!("BACKUP CHECKPOINT OF v TO '{}'", own.display()))
            .await;
    });
}

#[test]
fn what_cannot_be_taken_back_is_refused_in_a_block() {
    run(async {
        let pair = Pair::start().await;
        let client = pair.server.connect().await;
        for sql in [
            "BACKUP DATABASE TO 'away'",
            "BACKUP CHECKPOINT OF v",
            "RUN RECOVERY DRILL ON v WITH (fault = 'kill')",
            "REPLAY DEAD LETTERS OF s",
            "RESET CHECKPOINT OF v",
        ] {
            client.batch_execute("BEGIN").await.expect("a block");
            let error = error_of(&client, sql).await;
            assert_eq!(error.code().code(), "25001", "{sql}: {error:?}");
            client.batch_execute("ROLLBACK").await.expect("its end");
        }
    });
}

/// What a statement leads on to is named, and what is not there yet is not compared.
#[test]
fn a_stopped_pipeline_is_told_to_start_and_verified_once_it_has() {
    run(async {
        let mut pair = Pair::start().await;
        let client = pair.server.connect().await;
        for statement in ["REBUILD STATE OF v", "RESET CHECKPOINT OF v"] {
            pair.server.execute("STOP PIPELINE v").await;
            pair.server.rows(statement).await;
            let verdict = pair.server.rows("DIAGNOSE v").await.pop().expect("rows");
            assert_eq!(verdict[3], "START PIPELINE v;", "{statement}: {verdict:?}");
            let commits = pair.part("commits").await;
            assert_eq!(commits, ("empty".to_owned(), "NULL".to_owned()));
            for sql in ["VERIFY MATERIALIZED VIEW v", "RUN RECOVERY DRILL ON v"] {
                let error = error_of(&client, sql).await;
                assert_eq!(error.hint(), Some("START PIPELINE v;"), "{error:?}");
            }
            pair.server.execute("START PIPELINE v").await;
            // Not of the batch that readers saw before.
            let verified = pair
                .server
                .rows("VERIFY MATERIALIZED VIEW v")
                .await
                .remove(0);
            assert_ne!(verified[1], "differs", "{verified:?}");
            pair.assert_equal_twin().await;
        }
        pair.server.rows("REBUILD STATE OF v").await;
        let drills = "RUN RECOVERY DRILL ON v WITH (fault = 'lost_state')";
        assert_eq!(pair.server.rows(drills).await[0][2], "passed");
        let verified = pair
            .server
            .rows("VERIFY MATERIALIZED VIEW v")
            .await
            .remove(0);
        assert_eq!(verified[1], "equal", "{verified:?}");
        assert!(verified[3].parse::<u64>().expect("a count") >= 5);
    });
}

/// Nothing came yet: that is not "equal".
#[test]
fn a_view_that_took_in_nothing_is_told_as_empty_and_its_drills_as_skipped() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT);
                 CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k; INSERT INTO s VALUES (1); FLUSH;",
            )
            .await;
        server.rows("RESET CHECKPOINT OF v FROM LATEST").await;
        let verified = server.rows("VERIFY MATERIALIZED VIEW v").await.remove(0);
        assert_eq!((verified[1].as_str(), verified[3].as_str()), ("empty", "0"));
        let drills = server
            .rows("RUN RECOVERY DRILL ON v WITH (fault = 'kill, source_outage')")
            .await;
        for drill in drills {
            assert_eq!(drill[2], "skipped", "{drill:?}");
            assert!(drill[9].starts_with("Nothing was tried"), "{drill:?}");
        }
        server.execute("INSERT INTO s VALUES (2); FLUSH").await;
        let verified = server.rows("VERIFY MATERIALIZED VIEW v").await.remove(0);
        assert_eq!((verified[1].as_str(), verified[3].as_str()), ("equal", "1"));
    });
}

/// Readers keep what they see until all of it has been computed again, whatever stops that in between.
#[test]
fn a_rebuild_that_fails_half_way_leaves_the_view_readable() {
    run(async {
        let mut files = Files::start().await;
        files
            .server
            .execute("ALTER STREAM f SET (on_bad_row = 'fail')")
            .await;
        files.wait_for_rows(15).await;
        let all = "SELECT * FROM sums ORDER BY k";
        let before = files.server.rows(all).await;
        let file = files.server.dir().join("in/2.json");
        let text = std::fs::read(&file).expect("a file");
        let modified = std::fs::metadata(&file).and_then(|m| m.modified());
        let put = |text: &[u8]| {
            std::fs::write(&file, text).expect("written");
            let file = std::fs::File::options().write(true).open(&file);
            let modified = *modified.as_ref().expect("a time");
            file.expect("a file")
                .set_modified(modified)
                .expect("its time");
        };
        put(&vec![b'x'; text.len()]);
        files.server.rows("REBUILD STATE OF sums").await;
        let status = "SELECT status FROM streaming_queries WHERE stream_name = 'sums'";
        files
            .server
            .wait_for_value(status, "failed", super::WITHIN)
            .await;
        assert_eq!(files.server.rows(all).await, before);
        let rows = files.server.rows("DIAGNOSE sums").await;
        let progress = rows.iter().find(|row| row[0] == "progress").expect("a row");
        assert!(progress[2].contains("are planned"), "{progress:?}");
        assert_eq!(progress[3], "START PIPELINE sums;", "{progress:?}");
        put(&text);
        files.server.execute("START PIPELINE sums; FLUSH").await;
        assert_eq!(files.server.rows(all).await, before);
        files.write(5);
        files.wait_for_rows(18).await;
        files.server.terminate();
    });
}

#[test]
fn positions_and_places_that_are_none_are_told_in_their_own_words() {
    run(async {
        let pair = Pair::start().await;
        pair.server
            .execute("CREATE MATERIALIZED VIEW one AS SELECT k, v FROM s; FLUSH")
            .await;
        let client = pair.server.connect().await;
        let of = async |sql: &str| error_of(&client, sql).await;
        let error = of("RESET CHECKPOINT OF one FROM OFFSETS '{\"zzz\": {\"commit\": 1}}'").await;
        assert_eq!(error.code().code(), "22023");
        assert!(
            error
                .message()
                .contains("neither a position of source \"s\" nor one by its name"),
            "{error:?}"
        );
        let error = of("RESTORE CHECKPOINT OF v FROM ''").await;
        assert!(
            error
                .message()
                .contains("the location of the backup is empty"),
            "{error:?}"
        );
        let error = of("RESTORE CHECKPOINT OF v FROM '/nope'").await;
        assert_eq!(error.code().code(), "58P01", "{error:?}");
        assert!(
            error.message().contains("no backup at \"/nope\""),
            "{error:?}"
        );
        // A table has no watermark, and a stream without a time none that could be suggested.
        let error = of("SUGGEST WATERMARK FOR t").await;
        assert!(
            !error.hint().expect("a hint").contains("Say TABLE"),
            "{error:?}"
        );
        pair.server
            .execute("CREATE STREAM plain (k BIGINT); CREATE MATERIALIZED VIEW w AS SELECT k, count(*) AS n FROM plain GROUP BY k; FLUSH")
            .await;
        let checks = pair.server.rows("CHECK w").await;
        let watermark = checks
            .iter()
            .find(|row| row[0] == "watermark")
            .expect("a row");
        assert_eq!(
            (watermark[1].as_str(), watermark[3].as_str()),
            ("warn", "NULL")
        );
        // One of each is one.
        pair.server
            .execute("CREATE SINK k FROM v WITH (connector = 'blackhole'); FLUSH")
            .await;
        let rows = pair.server.rows("DIAGNOSE v").await;
        assert!(
            rows.iter()
                .any(|row| row[2] == "1 sink takes what it gets."),
            "{rows:?}"
        );
        let rows = pair.server.rows("TEST SINK k").await;
        assert!(rows.iter().all(|row| row[1] == "ok"), "{rows:?}");
        pair.server
            .execute("CREATE SINK raw FROM s WITH (connector = 'files', location = 'raw', format = 'json'); FLUSH")
            .await;
        let rows = pair.server.rows("TEST SINK raw").await;
        assert!(rows.iter().all(|row| row[1] == "ok"), "{rows:?}");
    });
}

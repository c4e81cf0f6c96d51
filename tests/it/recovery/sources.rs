//! Recovery where rows come from files and go to files.

use std::path::{Path, PathBuf};

use super::{WITHIN, error_of, garble, newest};
use crate::harness::{Server, run};

/// A server that reads the folder `in` and writes the changes of its view to the folder `out`.
pub(super) struct Files {
    pub server: Server,
}

impl Files {
    pub async fn start() -> Self {
        let server = Server::start();
        std::fs::create_dir(server.dir().join("in")).expect("a folder");
        let files = Self { server };
        files.write(0);
        files
            .server
            .execute(
                "CREATE STREAM f (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in', format = 'json');
                 CREATE MATERIALIZED VIEW sums WITH (trigger = '20 milliseconds') AS
                   SELECT k, count(*) AS n, sum(v) AS total FROM f GROUP BY k;
                 CREATE SINK out FROM sums WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog');",
            )
            .await;
        for i in 1..5 {
            files.wait_for_rows(3 * i).await;
            files.write(i);
        }
        files.wait_for_rows(15).await;
        files
    }

    pub fn write(&self, i: u64) {
        let text: String = (0..3)
            .map(|j| format!("{{\"k\": {j}, \"v\": {}}}\n", 10 * i + j))
            .collect();
        let folder = self.server.dir().join("in");
        let temporary = folder.join(".new");
        std::fs::write(&temporary, text).expect("written");
        std::fs::rename(temporary, folder.join(format!("{i}.json"))).expect("renamed");
    }

    pub async fn wait_for_rows(&self, rows: u64) {
        let sql = "SELECT coalesce(sum(n), 0)::bigint FROM sums";
        self.server
            .wait_for_value(sql, &rows.to_string(), WITHIN)
            .await;
    }

    pub fn checkpoint(&self) -> PathBuf {
        self.server.data_dir().join("checkpoints/sums")
    }

    /// All that the sink has delivered, file by file.
    pub fn delivered(&self) -> Vec<(String, String)> {
        let mut files: Vec<_> = std::fs::read_dir(self.server.dir().join("out"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| {
                let text = std::fs::read_to_string(&path).expect("a file");
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                let name = path.file_name().expect("a name").to_string_lossy();
                (name.into_owned(), lines.join("\n"))
            })
            .collect();
        files.sort();
        files
    }

    /// The rows of the view over the first files.
    fn expected(&self, written: i64) -> Vec<(i64, i64, i64)> {
        let total = |k: i64| (0..written).map(|i| 10 * i + k).sum();
        (0..3).map(|k| (k, written, total(k))).collect()
    }

    async fn wait_for_status(&self, expected: &str) {
        let sql = "SELECT status FROM streaming_queries WHERE stream_name = 'sums'";
        self.server.wait_for_value(sql, expected, WITHIN).await;
    }
}

/// Every batch runs again under its number: the sink holds what it held.
#[test]
fn a_rebuild_and_a_rewind_deliver_the_same_files_again() {
    run(async {
        let mut files = Files::start().await;
        let before = files.delivered();
        assert!(before.len() >= 5, "{before:?}");
        files.server.terminate();
        std::fs::remove_dir_all(files.checkpoint().join("state")).expect("removed");
        files.server.restart();
        files.wait_for_status("failed").await;
        files.server.rows("REBUILD STATE OF sums").await;
        files.wait_for_rows(15).await;
        assert_eq!(files.delivered(), before);
        files.server.rows("REWIND out TO BATCH 0").await;
        files.server.execute("FLUSH").await;
        assert_eq!(files.delivered(), before);
        files.write(5);
        files.wait_for_rows(18).await;
        assert!(files.delivered().len() > before.len());
    });
}

#[test]
fn a_file_that_is_gone_stops_a_rebuild_before_anything_moves() {
    run(async {
        let files = Files::start().await;
        let (there, away) = (
            files.server.dir().join("in/2.json"),
            files.server.dir().join("2.json"),
        );
        std::fs::rename(&there, &away).expect("renamed");
        let client = files.server.connect().await;
        let error = error_of(&client, "REBUILD STATE OF sums").await;
        assert_eq!(error.code().code(), "55000");
        let detail = error.detail().expect("a detail");
        assert!(detail.contains("2.json"), "{detail}");
        let hint = error.hint().expect("a hint");
        assert!(hint.contains("RESET CHECKPOINT OF sums"), "{hint}");
        assert!(
            files.checkpoint().join("commits/0").exists(),
            "nothing moved"
        );
        files.write(5);
        files.wait_for_rows(18).await;
        std::fs::rename(&away, &there).expect("renamed");
        files.server.rows("REBUILD STATE OF sums").await;
        files.wait_for_rows(18).await;
    });
}

#[test]
fn a_reset_begins_behind_files_or_at_a_time() {
    run(async {
        let files = Files::start().await;
        files
            .server
            .rows("RESET CHECKPOINT OF sums FROM LATEST")
            .await;
        files.write(5);
        files.wait_for_rows(3).await;
        // Over a restart too: the files that were passed over count as read.
        let mut files = files;
        files.server.kill();
        files.server.restart();
        files.write(6);
        files.wait_for_rows(6).await;
        files
            .server
            .rows("RESET CHECKPOINT OF sums FROM EARLIEST")
            .await;
        files.wait_for_rows(21).await;
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for i in 0..3 {
            let path = files.server.dir().join(format!("in/{i}.json"));
            let file = std::fs::File::options()
                .write(true)
                .open(path)
                .expect("a file");
            file.set_modified(old).expect("its time is set");
        }
        files
            .server
            .rows("RESET CHECKPOINT OF sums FROM TIMESTAMP '2020-01-01'")
            .await;
        files.wait_for_rows(12).await;
        assert_eq!(files.server.value("SELECT min(n) FROM sums").await, "4");
    });
}

/// Which files a batch read is proven by nothing else: it is told, and a reset begins anew.
#[test]
fn a_damaged_log_of_files_is_told_and_reset() {
    run(async {
        for is_lost in [true, false] {
            let mut files = Files::start().await;
            files.server.terminate();
            let log = files.checkpoint().join("sources/f");
            let path = log.join(newest(&log).to_string());
            match is_lost {
                true => std::fs::remove_file(path).expect("removed"),
                false => garble(&path),
            }
            files.server.restart();
            files.wait_for_status("failed").await;
            let rows = files.server.rows("DIAGNOSE CHECKPOINT OF sums").await;
            let sources = rows.iter().find(|row| row[0] == "sources").expect("a row");
            assert_eq!(sources[1], "damaged", "{sources:?}");
            assert_eq!(sources[6], "RESET CHECKPOINT OF sums;", "{sources:?}");
            let repair = files.server.rows("REPAIR CHECKPOINT OF sums").await;
            let row = repair.iter().find(|row| row[0] == "sources");
            let row = row.expect("a row");
            assert_eq!(
                (row[3].as_str(), row[4].as_str()),
                ("not mended", "RESET CHECKPOINT OF sums;")
            );
            let client = files.server.connect().await;
            let error = error_of(&client, "REWIND sums TO BATCH 1").await;
            assert!(error.message().contains("sources/f/"), "{error:?}");
            assert!(
                files.checkpoint().join("commits/2").exists(),
                "nothing moved"
            );
            files.server.rows(&row[4]).await;
            files.wait_for_rows(15).await;
            assert!(Path::new(&log).exists());
        }
    });
}

/// A backup is read whole before the checkpoint that is there gives way to it.
#[test]
fn a_backup_that_lacks_a_file_is_refused_before_anything_moves() {
    run(async {
        let files = Files::start().await;
        let backup = files
            .server
            .rows("BACKUP CHECKPOINT OF sums")
            .await
            .remove(0);
        let (location, batch) = (&backup[1], backup[2].parse::<u64>().expect("a batch"));
        files.write(5);
        files.wait_for_rows(18).await;
        let client = files.server.connect().await;
        let restore = format!("RESTORE CHECKPOINT OF sums FROM '{location}'");
        let of_backup = |path: &str| Path::new(location).join(path);
        let log = newest(&of_backup("sources/f"));
        for path in [
            format!("sources/f/{log}"),
            "sources/f/0".to_owned(),
            "metadata".to_owned(),
            format!("offsets/{batch}"),
            format!("commits/{batch}"),
        ] {
            let bytes = std::fs::read(of_backup(&path)).expect("a file of the backup");
            for is_lost in [true, false] {
                match is_lost {
                    true => std::fs::remove_file(of_backup(&path)).expect("removed"),
                    false => {
                        std::fs::write(of_backup(&path), &bytes).expect("written");
                        garble(&of_backup(&path));
                    }
                }
                let error = error_of(&client, &format!("{restore} AT BATCH {batch}")).await;
                assert!(
                    error.hint().is_some() || error.detail().is_some(),
                    "{error:?}"
                );
                assert!(archived_nothing(&files), "{path}: {error:?}");
                files.server.execute("FLUSH").await;
                files.wait_for_rows(18).await;
            }
            std::fs::write(of_backup(&path), &bytes).expect("written");
        }
        files.server.rows(&restore).await;
        files.wait_for_rows(18).await;
    });
}

fn archived_nothing(files: &Files) -> bool {
    !files.checkpoint().with_extension("archive").exists()
}

/// Batches after a restored one are other batches: what the sink had of the old ones is taken back.
#[test]
fn a_restore_takes_back_what_later_batches_delivered() {
    run(async {
        for point in [None, Some("restore_archived"), Some("restore_taken_back")] {
            let mut files = Files::start().await;
            let backup = files
                .server
                .rows("BACKUP CHECKPOINT OF sums")
                .await
                .remove(0);
            let (location, batch) = (backup[1].clone(), backup[2].clone());
            for i in 5..8 {
                files.write(i);
                files.wait_for_rows(3 * i + 3).await;
            }
            // What is read anew comes in one batch, not in three.
            let restore = format!("RESTORE CHECKPOINT OF sums FROM '{location}' AT BATCH {batch}");
            if let Some(point) = point {
                files.server.terminate();
                files
                    .server
                    .set_environment("TIDEMILL_CRASH_AT", Some(point));
                files.server.restart();
                let client = files.server.connect().await;
                client.simple_query(&restore).await.expect_err("it dies");
                files.server.reap();
                files.server.set_environment("TIDEMILL_CRASH_AT", None);
                files.server.restart();
                files.wait_for_status("failed").await;
            }
            let steps = files.server.rows(&restore).await;
            if point.is_none() {
                assert!(steps.iter().any(|row| row[0] == "taken back"), "{steps:?}");
            }
            files.wait_for_rows(24).await;
            files.server.execute("FLUSH").await;
            assert_eq!(sum_of(&files), files.expected(8), "{point:?}");
        }
    });
}

/// What all changes that the sink has add up to: the rows of the view.
fn sum_of(files: &Files) -> Vec<(i64, i64, i64)> {
    let mut counts = std::collections::BTreeMap::new();
    for (_, text) in files.delivered() {
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let number = |name: &str| row[name].as_i64().expect("a number");
            let values = (number("k"), number("n"), number("total"));
            let weight = match row["change_kind"].as_str().expect("a kind") {
                "insert" | "update_after" => 1,
                _ => -1,
            };
            *counts.entry(values).or_insert(0) += weight;
        }
    }
    assert!(
        counts.values().all(|count| matches!(count, 0 | 1)),
        "{counts:?}"
    );
    let rows = counts.into_iter().filter(|(_, count)| *count == 1);
    rows.map(|(row, _)| row).collect()
}

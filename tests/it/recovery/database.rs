//! `BACKUP DATABASE` while the server runs, and `tidemill restore` into another directory.

use std::path::Path;
use std::process::{Command, Output};

use super::{Pair, error_of, garble};
use crate::harness::run;

fn restore(backup: &Path, data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .arg("restore")
        .arg(backup)
        .arg("--data")
        .arg(data)
        .output()
        .expect("the tool runs")
}

#[test]
fn a_database_comes_back_from_its_backup() {
    run(async {
        let mut pair = Pair::start().await;
        let backup = pair.server.dir().join("backup");
        let sql = format!("BACKUP DATABASE TO '{}'", backup.display());
        // Rows come in all the while.
        let client = pair.server.connect().await;
        let writing = tokio::spawn(async move {
            for i in 0..200 {
                let sql = format!("INSERT INTO s VALUES ({}, {i}, NULL)", i % 3);
                client.batch_execute(&sql).await.expect("inserted");
            }
        });
        let rows = pair.server.rows(&sql).await;
        writing.await.expect("it ends");
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert_eq!(rows[1][0], "checkpoint");
        let client = pair.server.connect().await;
        assert_eq!(error_of(&client, &sql).await.code().code(), "55000");
        // What was there when it was taken is there again; what came later is not.
        pair.server
            .execute("CREATE TABLE later (id BIGINT PRIMARY KEY)")
            .await;
        pair.server.terminate();
        let data = pair.server.data_dir();
        let refused = restore(&backup, &data);
        assert!(!refused.status.success());
        std::fs::rename(&data, data.with_extension("old")).expect("renamed");
        // A backup that lacks something is refused, and nothing is left.
        let segment = backup.join("log/00000001.log");
        let bytes = std::fs::read(&segment).expect("a segment");
        garble(&segment);
        let refused = restore(&backup, &data);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("log/00000001.log"), "{text}");
        assert!(!data.exists());
        std::fs::write(&segment, bytes).expect("written");
        // So is one whose state would have to come from an older run.
        let state = backup.join("checkpoints/v/state");
        let last = super::newest(&backup.join("checkpoints/v/commits"));
        let run = state.join(format!("{last}.run"));
        let bytes = std::fs::read(&run).expect("a run");
        garble(&run);
        let refused = restore(&backup, &data);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(&format!("state/{last}.run")), "{text}");
        assert!(!data.exists());
        std::fs::write(&run, bytes).expect("written");
        let restored = restore(&backup, &data);
        assert!(
            restored.status.success(),
            "{}",
            String::from_utf8_lossy(&restored.stderr)
        );
        pair.server.restart();
        pair.assert_equal_twin().await;
        let tables = pair.server.rows("SHOW TABLES").await;
        assert!(tables.iter().all(|row| row[0] != "later"), "{tables:?}");
    });
}

//! Damage made on the files of a real server's checkpoints, told by DIAGNOSE and mended by statements;
//! afterwards the view equals its undamaged twin.

mod copies;
mod database;
mod drills;
mod follow;
mod letters;
mod matrix;
mod offline;
mod probes;
mod refusals;
mod repair;
mod replaced;
mod reset;
mod schemas;
mod scripts;
mod sources;
mod state;
mod verify;

pub(crate) use self::matrix::parquet_of;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Client;

use crate::harness::{Server, describe, rows};

const WITHIN: Duration = Duration::from_secs(30);

/// A server with a view, its twin over the same stream, and some batches in both.
struct Pair {
    server: Server,
    next: u64,
}

impl Pair {
    async fn start() -> Self {
        let server = Server::start();
        let query = "SELECT s.k, t.g, count(*) AS n, sum(v) AS total, max(ts) AS newest
                     FROM s LEFT JOIN t ON t.id = s.k GROUP BY s.k, t.g";
        // The rows come first, so that the first batch has state.
        server
            .execute(&format!(
                "CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 hour');
                 CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);
                 INSERT INTO s VALUES (0, 100, '2024-01-01');
                 INSERT INTO t VALUES (0, 0), (1, 0), (2, 0), (3, 0);
                 CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS {query};
                 CREATE MATERIALIZED VIEW twin WITH (trigger = 'continuous') AS {query};"
            ))
            .await;
        let mut pair = Self { server, next: 0 };
        pair.insert(8).await;
        pair
    }

    /// So many batches more, each of a few rows.
    async fn insert(&mut self, batches: u64) {
        for _ in 0..batches {
            let i = self.next;
            self.next += 1;
            self.server
                .execute(&format!(
                    "INSERT INTO s VALUES ({}, {i}, TIMESTAMP '2024-01-01' + INTERVAL '{i} minutes'), ({}, NULL, NULL);
                     UPDATE t SET g = g + 1 WHERE id = {}; DELETE FROM t WHERE id = 3 AND {i} % 4 = 1;
                     INSERT INTO t VALUES (3, {i}) ON CONFLICT (id) DO NOTHING; FLUSH",
                    i % 3,
                    i % 5,
                    i % 2
                ))
                .await;
        }
    }

    fn checkpoint(&self) -> PathBuf {
        self.server.data_dir().join("checkpoints").join("v")
    }

    /// Stops the server, makes the damage and starts it again.
    fn damage(&mut self, damage: impl FnOnce(&Path)) {
        self.server.terminate();
        damage(&self.checkpoint());
        self.server.restart();
    }

    async fn status(&self) -> String {
        let sql = "SELECT status FROM streaming_queries WHERE stream_name = 'v'";
        self.server.value(sql).await
    }

    async fn wait_for_status(&self, expected: &str) {
        let sql = "SELECT status FROM streaming_queries WHERE stream_name = 'v'";
        self.server.wait_for_value(sql, expected, WITHIN).await;
    }

    /// Status and repair statement of a part.
    async fn part(&self, part: &str) -> (String, String) {
        let rows = self.server.rows("DIAGNOSE CHECKPOINT OF v").await;
        assert_eq!(rows.len(), 7, "{rows:?}");
        let row = rows.iter().find(|row| row[0] == part).expect("the part");
        (row[1].clone(), row[6].clone())
    }

    /// A sound checkpoint is told to be sound.
    async fn assert_nothing_to_repair(&self) {
        let rows = self.server.rows("REPAIR CHECKPOINT OF v").await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(
            (rows[0][0].as_str(), rows[0][3].as_str()),
            ("checkpoint", "ok")
        );
        assert_eq!(rows[0][4], "NULL");
    }

    /// The view and its twin are the same, now and after more rows.
    async fn assert_equal_twin(&mut self) {
        for more in [1, 2] {
            self.insert(more).await;
            let client = self.server.connect().await;
            let of = async |view: &str| {
                let mut all = rows(&client, &format!("SELECT * FROM {view}"))
                    .await
                    .unwrap_or_else(|e| panic!("{}", describe(&e)));
                all.sort();
                all
            };
            let (view, twin) = (of("v").await, of("twin").await);
            assert!(twin.len() >= 5, "{twin:?}");
            assert_eq!(view, twin, "log:\n{}", self.server.log());
            if more == 2 {
                let verified = self
                    .server
                    .rows("VERIFY MATERIALIZED VIEW v")
                    .await
                    .remove(0);
                assert_eq!(verified[1], "equal", "{verified:?}");
            }
        }
    }

    async fn events(&self, kind: &str) -> u64 {
        let sql = format!(
            "SELECT count(*) FROM streaming_events WHERE object_name = 'v' AND event = '{kind}'"
        );
        self.server.value(&sql).await.parse().expect("a count")
    }
}

fn garble(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(path, bytes).expect("written");
}

fn newest(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.parse().ok())
        .max()
        .expect("a batch")
}

/// Files of the archive that end so.
fn archived(checkpoint: &Path, name: &str) -> usize {
    fn walk(folder: &Path, name: &str) -> usize {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return 0;
        };
        entries
            .map(|entry| entry.expect("an entry").path())
            .map(|path| match path.is_dir() {
                true => walk(&path, name),
                false => usize::from(path.ends_with(name)),
            })
            .sum()
    }
    let mut archive = checkpoint.as_os_str().to_owned();
    archive.push(".archive");
    walk(Path::new(&archive), name)
}

async fn error_of(client: &Client, sql: &str) -> tokio_postgres::error::DbError {
    let error = client.simple_query(sql).await.expect_err(sql);
    error.as_db_error().expect("an error of the server").clone()
}

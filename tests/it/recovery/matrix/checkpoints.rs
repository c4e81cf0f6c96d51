//! Faults of a checkpoint's files. All shapes run over one stream, each beside a twin over the same stream.

use crate::harness::Server;
use crate::recovery::follow::{Fault, follow};

use super::place::Place;
use super::{Line, shapes, words};

struct Matrix {
    server: Server,
    next: u64,
}

impl Matrix {
    async fn start(place: &Place) -> Self {
        let server = place.server(&[]);
        let prefix = uuid::Uuid::new_v4();
        let mut sql = "CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 day');
             CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);
             INSERT INTO s VALUES (0, 100, '2024-01-01'); INSERT INTO t VALUES (0, 0), (1, 0), (2, 0), (3, 0);"
            .to_owned();
        let of_s = |_: &str| "s".to_owned();
        let options = |name: &str| format!("trigger = 'continuous'{}", place.options(prefix, name));
        sql += &shapes::create("", of_s, options);
        sql += &shapes::create("_twin", of_s, |_| "trigger = 'continuous'".to_owned());
        // One whose files a fault puts in the place of another's.
        sql += "CREATE MATERIALIZED VIEW twin WITH (trigger = 'continuous') AS SELECT k FROM s;";
        sql += shapes::SINK;
        server.execute(&sql).await;
        let mut matrix = Self { server, next: 0 };
        matrix.insert(8).await;
        matrix
    }

    async fn insert(&mut self, batches: u64) {
        for _ in 0..batches {
            let i = self.next;
            self.next += 1;
            let sql = format!(
                "INSERT INTO s VALUES ({}, {i}, TIMESTAMP '2024-01-01' + INTERVAL '{i} minutes'), ({}, {}, '2024-01-01'), ({}, NULL, NULL);
                 UPDATE t SET g = g + 1 WHERE id = {}; FLUSH",
                i % 3,
                i % 5,
                i % 7,
                i % 2,
                i % 4
            );
            self.server.execute(&sql).await;
        }
    }

    /// Each shape equals its twin, now and after more rows.
    async fn assert_equal(&mut self, fault: &str) {
        for _ in 0..2 {
            self.insert(1).await;
            shapes::assert_equal(&self.server, fault).await;
        }
    }
}

/// An object store has no folders that could stand in the place of a file.
fn is_of_a_disk(fault: &str) -> bool {
    fault.contains("folder") || fault.contains("is a file") || fault.contains("lease")
}

/// Makes faults one after the other; for each the words of every shape.
pub(super) async fn make(faults: Vec<Fault>, is_whole: bool, place: &Place) -> Vec<Line> {
    let mut matrix = Matrix::start(place).await;
    let mut table = Vec::new();
    for (fault, damage) in faults {
        if matches!(place, Place::Store(_)) && is_of_a_disk(fault) {
            continue;
        }
        place.damage(&mut matrix.server, damage).await;
        let mut cells = Vec::new();
        let mut begins_anew = false;
        for name in shapes::names() {
            let statements = follow(&matrix.server, name, &format!("{fault}, {name}")).await;
            begins_anew |= statements
                .iter()
                .any(|s| s.starts_with("RESET") || s.starts_with("ALTER"));
            cells.push(words(&statements));
        }
        println!("{fault}: {cells:?}");
        matrix.assert_equal(fault).await;
        if !begins_anew {
            shapes::assert_delivered(&matrix.server, fault).await;
        }
        table.push(Line::new(fault, place, cells));
        if begins_anew || is_whole {
            // Batches are numbered on, and a sink gets every row again: the next fault wants a new beginning.
            matrix = Matrix::start(place).await;
        }
    }
    table
}

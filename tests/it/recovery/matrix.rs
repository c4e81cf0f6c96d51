//! The fault matrix: every fault of a checkpoint's files, on every shape of a view, on a disk and on an S3 store.
//!
//! All shapes run in one server over the same rows, each beside a twin that nothing happens to. A fault is made on all
//! of their checkpoints at once, then what `DIAGNOSE` names is run, and the views and their twins are compared as
//! multisets, the sink by what its changes add up to. What was run is the table of `docs/fault-matrix.md`, which
//! `TIDEMILL_MATRIX=write` writes. `make test` makes a few of the faults on a disk, `make soak` all of them on both, each
//! on a checkpoint that no other fault was made on before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill::checkpoint::CheckpointLocation;
use tidemill::checkpoint::blob::BlobStore;

use super::follow::{Fault, faults_of_entries, faults_of_state, follow};
use crate::harness::{Server, run};
use crate::s3::{environment, start_store, store_options};

/// The shapes: name, query; `view on view` reads the one before it.
const SHAPES: [(&str, &str); 6] = [
    ("stateless", "SELECT k, v * 2 AS w FROM s WHERE v % 2 = 0"),
    (
        "windowed",
        "SELECT window_start, k, count(*) AS n, sum(v) AS total FROM TUMBLE(s, ts, INTERVAL '10 minutes')
         GROUP BY window_start, window_end, k",
    ),
    ("joined", "SELECT s.k, s.v, t.g FROM s LEFT JOIN t ON t.id = s.k"),
    ("deduplicated", "SELECT DISTINCT k, v % 3 AS g FROM s"),
    ("base", "SELECT k, v, v % 4 AS q FROM s WHERE v IS NOT NULL"),
    ("delivered", "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"),
];
/// The view over `base`.
const OVER: &str = "SELECT q, count(*) AS n, max(v) AS newest FROM base GROUP BY q";
/// Headings of the shapes, in their order.
const HEADINGS: [&str; 6] = [
    "stateless",
    "windowed aggregate",
    "join",
    "dedup",
    "view on view",
    "sink",
];
/// Faults that `make test` makes.
const FEW: [&str; 6] = [
    "metadata garbled",
    "commit in the middle gone",
    "newest offsets garbled",
    "state gone",
    "newest run garbled",
    "all gone",
];

/// Where the checkpoints lie.
enum Place {
    Disk,
    Store(String),
}

struct Matrix {
    server: Server,
    place: Place,
    next: u64,
}

impl Matrix {
    async fn start(place: Place) -> Self {
        let server = match &place {
            Place::Disk => Server::start(),
            Place::Store(endpoint) => Server::start_with(&[], &environment(endpoint)),
        };
        let prefix = uuid::Uuid::new_v4();
        let mut sql = "CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 day');
             CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);
             INSERT INTO s VALUES (0, 100, '2024-01-01'); INSERT INTO t VALUES (0, 0), (1, 0), (2, 0), (3, 0);"
            .to_owned();
        for (name, query) in SHAPES {
            let location = match &place {
                Place::Disk => String::new(),
                Place::Store(_) => {
                    format!(", checkpoint_location = 's3://tidemill/{prefix}/{name}'")
                }
            };
            for (view, location) in [
                (name.to_owned(), location),
                (format!("{name}_twin"), String::new()),
            ] {
                sql += &format!(
                    "CREATE MATERIALIZED VIEW {view} WITH (trigger = 'continuous'{location}) AS {query};"
                );
            }
        }
        // One whose files a fault puts in the place of another's.
        sql += "CREATE MATERIALIZED VIEW twin WITH (trigger = 'continuous') AS SELECT k FROM s;";
        sql += &format!("CREATE MATERIALIZED VIEW over_base WITH (pipeline = 'base') AS {OVER};");
        sql += &format!(
            "CREATE MATERIALIZED VIEW over_base_twin WITH (pipeline = 'base_twin') AS {};",
            OVER.replace("FROM base", "FROM base_twin")
        );
        sql += "CREATE SINK out FROM delivered WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog');";
        server.execute(&sql).await;
        let mut matrix = Self {
            server,
            place,
            next: 0,
        };
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

    async fn damage(&mut self, damage: fn(&Path)) {
        let mut at = BTreeMap::new();
        for (name, _) in SHAPES {
            let sql =
                format!("SELECT location FROM streaming_checkpoints WHERE pipeline = '{name}'");
            at.insert(name, self.server.value(&sql).await);
        }
        self.server.terminate();
        for (name, location) in at {
            match &self.place {
                Place::Disk => damage(Path::new(&location)),
                Place::Store(endpoint) => {
                    self.damage_store(endpoint, name, &location, damage).await
                }
            }
        }
        self.server.restart();
    }

    /// The files are fetched, damaged on the disk and put back.
    async fn damage_store(&self, endpoint: &str, name: &str, location: &str, damage: fn(&Path)) {
        let store = CheckpointLocation::store(location, &store_options(endpoint)).expect("a store");
        let folder = self.server.dir().join("fetched");
        std::fs::remove_dir_all(&folder).ok();
        copy_folder(
            &self.server.data_dir().join("checkpoints/twin"),
            &folder.join("twin"),
        );
        let here = folder.join(name);
        let before = fetch(&store, &here).await;
        damage(&here);
        let after = files(&here);
        let gone = before.keys().filter(|path| !after.contains_key(*path));
        store
            .delete(&gone.cloned().collect::<Vec<_>>())
            .await
            .expect("deleted");
        let changed = after
            .into_iter()
            .filter(|(path, bytes)| before.get(path) != Some(bytes));
        let changed = changed.map(|(path, bytes)| (path, bytes.into())).collect();
        store.put_all(changed).await.expect("put back");
    }

    async fn rows(&self, view: &str) -> Vec<Vec<String>> {
        let mut rows = self.server.rows(&format!("SELECT * FROM {view}")).await;
        rows.sort();
        rows
    }

    /// Each shape equals its twin, now and after more rows.
    async fn assert_equal(&mut self, fault: &str) {
        for _ in 0..2 {
            self.insert(1).await;
            let views = SHAPES.iter().map(|(name, _)| *name).chain(["over_base"]);
            for view in views {
                let twin = self.rows(&format!("{view}_twin")).await;
                assert!(twin.len() >= 3, "{view}: {twin:?}");
                assert_eq!(
                    self.rows(view).await,
                    twin,
                    "{fault}: {view}; log:\n{}",
                    self.server.log()
                );
            }
        }
    }

    /// The changes that the sink has add up to its view.
    async fn assert_delivered(&self, fault: &str) {
        let mut counts: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        for text in files(&self.server.dir().join("out")).into_values() {
            for line in String::from_utf8(text).expect("a text").lines() {
                let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
                let values = ["k", "n", "total"].map(|name| match &row[name] {
                    serde_json::Value::Null => "NULL".to_owned(),
                    value => value.to_string(),
                });
                let is_there =
                    matches!(row["change_kind"].as_str(), Some("insert" | "update_after"));
                *counts.entry(values.to_vec()).or_default() += if is_there { 1 } else { -1 };
            }
        }
        counts.retain(|_, count| *count != 0);
        let sum: Vec<_> = counts.into_iter().collect();
        let expected = self.rows("delivered").await.into_iter().map(|row| (row, 1));
        let mut expected: Vec<_> = expected.collect();
        expected.sort();
        assert_eq!(sum, expected, "{fault}: the sink");
    }
}

async fn fetch(store: &Arc<dyn BlobStore>, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut fetched = BTreeMap::new();
    for info in store.list("").await.expect("a listing") {
        let blob = store
            .get(&info.path)
            .await
            .expect("read")
            .expect("it is listed");
        let path = folder.join(&info.path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, &blob.bytes).expect("written");
        fetched.insert(info.path, blob.bytes.to_vec());
    }
    fetched
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).expect("below it").to_string_lossy();
                found.insert(name.into_owned(), std::fs::read(&path).expect("a file"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

fn copy_folder(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("written");
    }
}

/// What mended a fault, as the table says it.
fn words(statements: &[String]) -> String {
    if statements.is_empty() {
        return "by itself".to_owned();
    }
    let first_words = statements.iter().map(|statement| {
        let words = statement.split(" OF ").next().unwrap_or(statement);
        let words = words.split(" SET ").next().unwrap_or(words);
        words
            .split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    });
    first_words.collect::<Vec<_>>().join(", ")
}

/// An object store has no folders that could stand in the place of a file.
fn is_of_a_disk(fault: &str) -> bool {
    fault.contains("folder") || fault.contains("is a file") || fault.contains("lease")
}

/// Makes faults one after the other; for each the words of every shape.
async fn make(
    faults: Vec<Fault>,
    is_whole: bool,
    place: impl Fn() -> Place,
) -> Vec<(String, Vec<String>)> {
    let mut matrix = Matrix::start(place()).await;
    let mut table = Vec::new();
    for (fault, damage) in faults {
        if matches!(matrix.place, Place::Store(_)) && is_of_a_disk(fault) {
            continue;
        }
        matrix.damage(damage).await;
        let mut cells = Vec::new();
        let mut begins_anew = false;
        for (name, _) in SHAPES {
            let statements = follow(&matrix.server, name, &format!("{fault}, {name}")).await;
            begins_anew |= statements
                .iter()
                .any(|s| s.starts_with("RESET") || s.starts_with("ALTER"));
            cells.push(words(&statements));
        }
        println!("{fault}: {cells:?}");
        matrix.assert_equal(fault).await;
        if !begins_anew {
            matrix.assert_delivered(fault).await;
        }
        table.push((fault.to_owned(), cells));
        if begins_anew || is_whole {
            // Batches are numbered on, and a sink gets every row again: the next fault wants a new beginning.
            matrix = Matrix::start(place()).await;
        }
    }
    table
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fault-matrix.md")
}

fn line_of(place: &str, fault: &str, cells: &[String]) -> String {
    format!("| {fault} | {place} | {} |", cells.join(" | "))
}

fn text_of(lines: &[String]) -> String {
    let mut text = "# The fault matrix\n\n\
         Made by `make soak` (`tests/it/recovery/matrix.rs`, with `TIDEMILL_MATRIX=write`): each fault is made on the files of the\n\
         checkpoint of a view of each shape, on a disk and on an S3 store. A cell says what mended it: nothing (by itself), or the\n\
         statements that `DIAGNOSE` named, one after the other. In every cell the view equals afterwards, as a multiset, a twin that\n\
         nothing happened to, and what the sink has adds up to its view.\n\n"
        .to_owned();
    text += &format!("| fault | on | {} |\n", HEADINGS.join(" | "));
    text += &format!("|---|---|{}\n", "---|".repeat(HEADINGS.len()));
    for line in lines {
        text += line;
        text.push('\n');
    }
    text
}

/// Every fault that was made is documented. What mends it may be another: whether a damaged state has been written
/// anew before it is looked at is a matter of milliseconds.
fn check(lines: &[String]) {
    if std::env::var("TIDEMILL_MATRIX").is_ok_and(|what| what == "write") {
        std::fs::write(document(), text_of(lines)).expect("written");
        return;
    }
    let documented = std::fs::read_to_string(document()).expect("docs/fault-matrix.md");
    let heads = |text: &str| text.split(" | ").take(2).collect::<Vec<_>>().join(" | ");
    for line in lines {
        let is_documented = documented.lines().any(|l| heads(l) == heads(line));
        assert!(is_documented, "not in docs/fault-matrix.md: {line}");
    }
}

#[test]
fn every_shape_comes_back_from_every_fault() {
    let is_whole = std::env::var_os("TIDEMILL_SOAK").is_some()
        || std::env::var_os("TIDEMILL_MATRIX").is_some();
    let mut faults = faults_of_entries();
    faults.extend(faults_of_state());
    if !is_whole {
        faults.retain(|(fault, _)| FEW.contains(fault));
    }
    run(async {
        let mut lines = Vec::new();
        for (fault, cells) in make(faults.clone(), is_whole, || Place::Disk).await {
            lines.push(line_of("disk", &fault, &cells));
        }
        if is_whole && let Some((_store, endpoint)) = start_store() {
            for (fault, cells) in make(faults, is_whole, || Place::Store(endpoint.clone())).await {
                lines.push(line_of("S3", &fault, &cells));
            }
        }
        check(&lines);
    });
}

//! The fault matrix: every fault of `recovery.md`, on every shape of a view, on a disk and on an S3 store.
//!
//! Each shape runs beside a twin that nothing happens to. A fault is made for real, then what `DIAGNOSE` names is run,
//! and the views and their twins are compared as multisets, the sink by what its changes add up to. What was run is
//! the tables of `docs/fault-matrix.md`, which `TIDEMILL_MATRIX=write` writes. `make test` makes a few of the faults on
//! a disk, `make soak` all of them on both, each on a checkpoint that no other fault was made on before.
//!
//! Of the checkpoint's own files: [`checkpoints`]. Of what comes in, and of memory: [`bench`], which makes the faults
//! of the modules beside it.

mod bench;
mod checkpoints;
mod feed;
mod kafka;
mod memory;
mod of_files;
mod of_rows;
mod place;
mod schema;
mod shapes;
mod socket;

use std::path::{Path, PathBuf};

use super::follow::{faults_of_entries, faults_of_state};
use crate::harness::run;
use crate::s3::start_store;

use self::bench::InputFault;
pub(crate) use self::feed::parquet_of;
use self::place::Place;

/// Faults that `make test` makes.
const FEW: [&str; 6] = [
    "metadata garbled",
    "commit in the middle gone",
    "newest offsets garbled",
    "state gone",
    "newest run garbled",
    "all gone",
];

/// A line of a table.
struct Line(String);

impl Line {
    fn new(fault: &str, place: &Place, cells: Vec<String>) -> Self {
        Self(format!(
            "| {fault} | {} | {} |",
            place.name(),
            cells.join(" | ")
        ))
    }

    /// Fault and place.
    fn head(text: &str) -> String {
        text.split(" | ").take(2).collect::<Vec<_>>().join(" | ")
    }
}

/// What mended a fault, as the table says it.
fn words(statements: &[String]) -> String {
    if statements.is_empty() {
        return "by itself".to_owned();
    }
    let mut all: Vec<String> = Vec::new();
    for statement in statements {
        let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase());
        let words = statement.split_whitespace().take_while(is_word);
        let words: Vec<&str> = words.filter(|word| *word != "OF").take(3).collect();
        let words = words.join(" ");
        if all.last() != Some(&words) {
            all.push(words);
        }
    }
    all.join(", ")
}

/// A table of the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Checkpoint,
    Files,
    Sockets,
    Kafka,
    Insert,
    Schema,
    Memory,
}

impl Table {
    /// In the document's order.
    const ALL: [Self; 7] = [
        Self::Checkpoint,
        Self::Files,
        Self::Sockets,
        Self::Kafka,
        Self::Insert,
        Self::Schema,
        Self::Memory,
    ];

    fn heading(self) -> &'static str {
        match self {
            Self::Checkpoint => "Checkpoint",
            Self::Files => "Sources: files",
            Self::Sockets => "Sources: sockets",
            Self::Kafka => "Sources: Kafka",
            Self::Insert => "Sources: INSERT",
            Self::Schema => "Schema",
            Self::Memory => "Memory",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Checkpoint => {
                "Each fault is made on the files of the checkpoint of a view of each shape."
            }
            Self::Files => {
                "Each shape reads a stream of its own over the same files; its twin is given by INSERT the rows that should have come."
            }
            Self::Sockets => "As above, over a socket.",
            Self::Kafka => "As above, over a topic of a real broker.",
            Self::Insert => "Rows are inserted into the streams of both.",
            Self::Schema => "What comes in files has another form than the stream says.",
            Self::Memory => "More comes than fits, under a memory limit of 128 MiB.",
        }
    }
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fault-matrix.md")
}

/// One table with its heading.
fn table_of(table: Table, lines: &[Line]) -> String {
    let (heading, about) = (table.heading(), table.about());
    let headings = shapes::HEADINGS;
    let mut text = format!("## {heading}\n\n{about}\n\n");
    text += &format!("| fault | checkpoint on | {} |\n", headings.join(" | "));
    text += &format!("|---|---|{}\n", "---|".repeat(headings.len()));
    for line in lines {
        text += &line.0;
        text.push('\n');
    }
    text
}

const INTRODUCTION: &str = "# The fault matrix\n\n\
     Made by `make soak` (`tests/it/recovery/matrix.rs`, with `TIDEMILL_MATRIX=write`), with the checkpoints on a disk and on an\n\
     S3 store. A cell says what mended the fault: nothing (by itself), or the statements that `DIAGNOSE` or the error named, one\n\
     after the other. In every cell the view equals afterwards, as a multiset, a twin that nothing happened to, and what the\n\
     sink has adds up to its view.\n";

/// Tables are written by tests that run at the same time.
static DOCUMENT: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Every fault that was made is documented. What mends it may be another: whether a damaged state has been written
/// anew before it is looked at is a matter of milliseconds.
fn check(table: Table, lines: &[Line]) {
    let _held = DOCUMENT.lock().unwrap_or_else(|held| held.into_inner());
    let documented = std::fs::read_to_string(document()).expect("docs/fault-matrix.md");
    if std::env::var("TIDEMILL_MATRIX").is_ok_and(|what| what == "write") {
        let mut text = INTRODUCTION.to_owned();
        for each in Table::ALL {
            let old = documented
                .split("\n## ")
                .find(|part| part.lines().next() == Some(each.heading()));
            let part = match old {
                _ if each == table => table_of(table, lines),
                Some(old) => format!("## {}\n", old.trim_end()),
                None => continue,
            };
            text.push('\n');
            text += &part;
        }
        std::fs::write(document(), text).expect("written");
        return;
    }
    for line in lines {
        let is_documented = documented
            .lines()
            .any(|l| Line::head(l) == Line::head(&line.0));
        assert!(is_documented, "not in docs/fault-matrix.md: {}", line.0);
    }
}

/// All faults on both places are made, or a few of them on a disk.
fn is_whole() -> bool {
    std::env::var_os("TIDEMILL_SOAK").is_some() || std::env::var_os("TIDEMILL_MATRIX").is_some()
}

#[test]
fn every_shape_comes_back_from_every_fault() {
    let is_whole = is_whole();
    let mut faults = faults_of_entries();
    faults.extend(faults_of_state());
    if !is_whole {
        faults.retain(|(fault, _)| FEW.contains(fault));
    }
    run(async {
        let mut lines = checkpoints::make(faults.clone(), is_whole, &Place::Disk).await;
        if is_whole && let Some((_store, endpoint)) = start_store() {
            lines.extend(checkpoints::make(faults, is_whole, &Place::Store(endpoint)).await);
        }
        check(Table::Checkpoint, &lines);
    });
}

/// Makes the faults of one table.
fn make_table(table: Table, faults: Vec<InputFault>) {
    let is_whole = is_whole();
    // One fault, to look into it: `TIDEMILL_FAULT=topic`.
    let wanted = std::env::var("TIDEMILL_FAULT").ok();
    let faults: Vec<InputFault> = faults
        .into_iter()
        .filter(|fault| match &wanted {
            Some(wanted) => fault.name.contains(wanted.as_str()),
            None => is_whole || fault.is_of_the_few,
        })
        .collect();
    run(async {
        let mut lines = bench::make(&faults, &Place::Disk).await;
        if is_whole && let Some((_store, endpoint)) = start_store() {
            lines.extend(bench::make(&faults, &Place::Store(endpoint)).await);
        }
        if wanted.is_none() {
            check(table, &lines);
        }
    });
}

#[test]
fn every_shape_comes_back_from_every_fault_of_its_files() {
    make_table(Table::Files, of_files::faults());
}

#[test]
fn every_shape_comes_back_from_every_fault_of_its_socket() {
    make_table(Table::Sockets, socket::faults());
}

#[test]
fn every_shape_comes_back_from_every_fault_of_its_topic() {
    make_table(Table::Kafka, kafka::faults());
}

#[test]
fn every_shape_comes_back_from_every_fault_of_its_rows() {
    make_table(Table::Insert, of_rows::faults());
}

#[test]
fn every_shape_comes_through_every_change_of_schema() {
    make_table(Table::Schema, schema::faults());
}

#[test]
fn every_shape_comes_through_more_than_fits() {
    make_table(Table::Memory, memory::faults());
}

//! Every fault of a checkpoint: what `DIAGNOSE` names is run as it stands, until the pipeline runs and its
//! view equals a twin that nothing happened to.

use std::path::Path;
use std::time::{Duration, Instant};

use super::sources::Files;
use super::{Pair, WITHIN, garble, newest};
use crate::harness::{Server, run};

/// How long what a statement mends may be told still.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// Statements that one fault may take.
const STATEMENTS_MAX: usize = 5;

/// Runs the statement of the verdict until there is none; what was run.
pub(super) async fn follow(server: &Server, name: &str, fault: &str) -> Vec<String> {
    let mut run = Vec::new();
    let mut said_at = Instant::now();
    loop {
        wait_until_settled(server, name).await;
        let parts = server.rows(&format!("DIAGNOSE CHECKPOINT OF {name}")).await;
        for part in parts.iter().filter(|part| part[1] == "warning") {
            assert!(part[5].len() > 10, "{fault}: a reason: {part:?}");
        }
        let rows = server.rows(&format!("DIAGNOSE {name}")).await;
        let verdict = rows.last().expect("a verdict");
        let statement = &verdict[3];
        if statement == "NULL" {
            assert_ne!(verdict[1], "fail", "{fault}: after {run:?}: {rows:?}");
            let pipeline = &rows[0];
            assert_eq!(pipeline[1], "ok", "{fault}: after {run:?}: {rows:?}");
            return run;
        }
        // What it did is seen with the next batch.
        if run.last() == Some(statement) && said_at.elapsed() < SEEN_WITHIN {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        assert!(
            run.len() < STATEMENTS_MAX && run.last() != Some(statement),
            "{fault}: {statement} leads nowhere after {run:?}: {rows:?}"
        );
        let client = server.connect().await;
        let answer = client.simple_query(statement).await;
        if let Err(error) = answer {
            panic!(
                "{fault}: {statement} after {run:?}: {}",
                crate::harness::describe(&error)
            );
        }
        run.push(statement.clone());
        said_at = Instant::now();
    }
}

async fn wait_until_settled(server: &Server, name: &str) {
    let sql = format!("SELECT status FROM streaming_queries WHERE stream_name = '{name}'");
    let start = Instant::now();
    while ["starting", "restoring", "catching up"].contains(&server.value(&sql).await.as_str()) {
        assert!(start.elapsed() < WITHIN, "it never settles");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) fn remove(path: std::path::PathBuf) {
    std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn put_folder(path: std::path::PathBuf) {
    if path.exists() {
        remove(path.clone());
    }
    std::fs::create_dir(&path).expect("a folder");
    std::fs::write(path.join("inside"), "x").expect("written");
}

fn each(folder: std::path::PathBuf, extension: &str, change: impl Fn(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if extension.is_empty() || path.extension().is_some_and(|e| e == extension) {
            change(&path);
        }
    }
}

/// The newest file of the state with this ending: a batch without changes has none.
fn newest_state(checkpoint: &Path, ending: &str) -> std::path::PathBuf {
    let entries = std::fs::read_dir(checkpoint.join("state")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let of_ending = names.filter_map(|name| {
        let stem = name.strip_suffix(ending)?;
        let last: u64 = stem.rsplit('-').next()?.parse().ok()?;
        Some((last, name))
    });
    let (_, name) = of_ending.max().expect("a file of the state");
    checkpoint.join("state").join(name)
}

pub(super) fn newest_of(checkpoint: &Path, log: &str) -> std::path::PathBuf {
    let folder = checkpoint.join(log);
    folder.join(newest(&folder).to_string())
}

pub(super) type Fault = (&'static str, fn(&Path));

pub(super) fn faults_of_entries() -> Vec<Fault> {
    vec![
        ("metadata gone", |c| remove(c.join("metadata"))),
        ("metadata garbled", |c| garble(&c.join("metadata"))),
        ("metadata empty", |c| {
            std::fs::write(c.join("metadata"), "").expect("written");
        }),
        ("metadata is a folder", |c| put_folder(c.join("metadata"))),
        ("commit in the middle gone", |c| remove(c.join("commits/3"))),
        ("commit in the middle garbled", |c| {
            garble(&c.join("commits/4"))
        }),
        ("commit and offsets in the middle gone", |c| {
            remove(c.join("commits/3"));
            remove(c.join("commits/4"));
            remove(c.join("offsets/4"));
        }),
        ("newest commit gone", |c| remove(newest_of(c, "commits"))),
        ("newest commit garbled", |c| {
            garble(&newest_of(c, "commits"))
        }),
        ("newest commit is a folder", |c| {
            put_folder(newest_of(c, "commits"))
        }),
        ("all commits gone", |c| {
            each(c.join("commits"), "", |p| remove(p.into()))
        }),
        ("newest offsets garbled", |c| {
            garble(&newest_of(c, "offsets"))
        }),
        ("offsets in the middle empty", |c| {
            std::fs::write(c.join("offsets/4"), "").expect("written");
        }),
        ("first offsets gone", |c| remove(c.join("offsets/0"))),
        ("first offsets garbled", |c| garble(&c.join("offsets/1"))),
        ("all offsets gone", |c| {
            std::fs::remove_dir_all(c.join("offsets")).expect("removed");
        }),
        ("offsets is a file", |c| {
            std::fs::remove_dir_all(c.join("offsets")).expect("removed");
            std::fs::write(c.join("offsets"), "x").expect("written");
        }),
        ("stray files", |c| {
            for stray in ["notes.txt", "offsets/abc", "state/7.txt"] {
                std::fs::write(c.join(stray), "x").expect("written");
            }
        }),
        ("lease garbled", |c| garble(&c.join("lease"))),
        ("lease is a folder", |c| put_folder(c.join("lease"))),
    ]
}

pub(super) fn faults_of_state() -> Vec<Fault> {
    vec![
        ("state gone", |c| {
            std::fs::remove_dir_all(c.join("state")).expect("removed");
        }),
        ("newest run garbled", |c| {
            garble(&newest_state(c, ".run"));
        }),
        ("newest manifest gone", |c| {
            remove(newest_state(c, ".manifest"));
        }),
        ("all runs garbled", |c| each(c.join("state"), "run", garble)),
        ("newest manifest is a folder", |c| {
            put_folder(newest_state(c, ".manifest"));
        }),
        ("oldest run gone", |c| {
            let mut runs = Vec::new();
            for entry in std::fs::read_dir(c.join("state")).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.extension().is_some_and(|e| e == "run") {
                    let modified = path.metadata().and_then(|m| m.modified());
                    runs.push((modified.expect("a time"), path));
                }
            }
            remove(runs.into_iter().min().expect("a run").1);
        }),
        ("a state and offsets in the middle gone", |c| {
            std::fs::remove_dir_all(c.join("state")).expect("removed");
            remove(newest_of(c, "offsets"));
        }),
        ("an older copy in its place", |c| {
            let last = newest(&c.join("commits"));
            remove(c.join(format!("commits/{last}")));
            remove(c.join(format!("offsets/{last}")));
        }),
        ("an older copy with a planned batch", |c| {
            let last = newest(&c.join("commits"));
            remove(c.join(format!("commits/{last}")));
            remove(c.join(format!("commits/{}", last - 1)));
            remove(c.join(format!("offsets/{last}")));
        }),
        ("all gone", |c| std::fs::remove_dir_all(c).expect("removed")),
        ("another's metadata", |c| {
            let twin = c.with_file_name("twin");
            std::fs::copy(twin.join("metadata"), c.join("metadata")).expect("copied");
        }),
    ]
}

async fn follow_all(faults: Vec<Fault>) {
    let mut pair = Pair::start().await;
    for (fault, damage) in faults {
        pair.damage(damage);
        let run = follow(&pair.server, "v", fault).await;
        println!("{fault}: {run:?}");
        pair.assert_equal_twin().await;
        if run.iter().any(|statement| statement.starts_with("ALTER")) {
            return;
        }
        // Batches are numbered on by a reset: the next fault wants a checkpoint from its beginning.
        if run.iter().any(|statement| statement.contains("RESET")) {
            pair = Pair::start().await;
        }
    }
}

#[test]
fn diagnose_leads_on_from_damaged_entries() {
    run(follow_all(faults_of_entries()));
}

#[test]
fn diagnose_leads_on_from_damaged_state() {
    run(follow_all(faults_of_state()));
}

#[test]
fn diagnose_leads_on_from_damaged_logs_of_files() {
    run(async {
        let of_logs: Vec<Fault> = vec![
            ("newest entry gone", |c| remove(newest_of(c, "sources/f"))),
            ("newest entry garbled", |c| {
                garble(&newest_of(c, "sources/f"))
            }),
            ("newest entry and newest manifest garbled", |c| {
                garble(&newest_of(c, "sources/f"));
                garble(&newest_state(c, ".manifest"));
            }),
            ("oldest entry gone", |c| remove(c.join("sources/f/0"))),
            ("entry in the middle garbled", |c| {
                garble(&c.join("sources/f/2"))
            }),
            ("all entries gone", |c| {
                std::fs::remove_dir_all(c.join("sources")).expect("removed");
            }),
            ("a file that was read and the state gone", |c| {
                std::fs::remove_dir_all(c.join("state")).expect("removed");
                let folder = c.ancestors().nth(3).expect("the server's folder");
                std::fs::rename(folder.join("in/2.json"), folder.join("2.json")).expect("renamed");
            }),
        ];
        for (fault, damage) in of_logs {
            let mut files = Files::start().await;
            files.server.terminate();
            damage(&files.checkpoint());
            files.server.restart();
            let run = follow(&files.server, "sums", fault).await;
            println!("{fault}: {run:?}");
            let folder = files.server.dir().to_owned();
            if folder.join("2.json").exists() {
                files.wait_for_rows(12).await;
                std::fs::rename(folder.join("2.json"), folder.join("in/2.json")).expect("renamed");
            }
            files.wait_for_rows(15).await;
            files.write(5);
            files.wait_for_rows(18).await;
        }
    });
}

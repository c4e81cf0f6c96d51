//! Faults of files: folders that go, files that go, change, are cut, empty or damaged, and records that are none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};

use super::bench::{Bench, InputFault};
use super::feed::{Feed, FeedKind, Row, Written, parquet_of, times};
use crate::recovery::follow::{newest_of, remove};

const JSON: FeedKind = FeedKind::Files(Written::Json);
const CSV: FeedKind = FeedKind::Files(Written::Csv);
const HEADED: FeedKind = FeedKind::Files(Written::Headed);
const PARQUET: FeedKind = FeedKind::Files(Written::Parquet);

pub(super) fn faults() -> Vec<InputFault> {
    let mut all = of_folders();
    all.extend(of_lines());
    all.extend(of_whole_files());
    all.extend(of_records());
    all
}

fn of_folders() -> Vec<InputFault> {
    vec![
        InputFault::new("files: folder away and back", JSON, |b| {
            Box::pin(async move {
                rename(b, "in", "away");
                b.wait_told("waiting for source", "could not read location").await;
                rename(b, "away", "in");
                b.send().await;
            })
        }),
        InputFault::new("files: folder away while the database was down", JSON, |b| {
            Box::pin(async move {
                b.server.terminate();
                rename(b, "in", "away");
                b.server.restart();
                b.wait_told("waiting for source", "could not read location").await;
                rename(b, "away", "in");
                b.send().await;
            })
        }),
        InputFault::new("files: folder renamed for good", JSON, |b| {
            Box::pin(async move {
                rename(b, "in", "elsewhere");
                if let Feed::Files { folder, .. } = &mut b.feed {
                    folder.set_file_name("elsewhere");
                }
                b.wait_told("waiting for source", "could not read location").await;
                b.say("ALTER STREAM {stream} SET (location = 'elsewhere');").await;
                b.send().await;
            })
        }),
        InputFault::new("files: killed while it reads", JSON, |b| {
            Box::pin(async move {
                for _ in 0..3 {
                    let rows = b.rows(2);
                    b.deliver(&rows).await;
                    b.server.kill();
                    b.server.restart();
                }
            })
        })
        .of_the_few(),
        InputFault::new("files: ten times as many at once", JSON, |b| {
            Box::pin(async move {
                for _ in 0..30 {
                    let rows = b.rows(1);
                    b.deliver(&rows).await;
                }
                b.wait_equal().await;
                let most = "SELECT max(num_input_rows) <= 10 FROM streaming_metrics_log WHERE stream_name = '{view}'";
                b.wait_each(most, "t").await;
            })
        })
        .with(", max_files_per_trigger = 2"),
    ]
}

/// A batch is planned and its file goes before it runs.
async fn lose_a_planned_file(b: &mut Bench) -> Vec<Row> {
    let rows = b.rows(1);
    b.arrive_unexpected(&rows).await;
    let Feed::Files { folder, number, .. } = &b.feed else {
        panic!("no files");
    };
    let path = folder.join(format!("{}.json", number - 1));
    let away = b.server.dir().join("lost.json");
    let (place, from) = (b.place.clone(), path);
    place
        .while_down(
            &mut b.server,
            |checkpoint| remove(newest_of(checkpoint, "commits")),
            |_| std::fs::rename(from, away).expect("renamed"),
        )
        .await;
    rows
}

fn of_lines() -> Vec<InputFault> {
    vec![
        InputFault::new("files: one of a planned batch gone", JSON, |b| {
            Box::pin(async move {
                lose_a_planned_file(b).await;
                b.wait_told("failed", "is gone").await;
            })
        })
        .of_the_few(),
        InputFault::new("files: one of a planned batch gone and put back", JSON, |b| {
            Box::pin(async move {
                let rows = lose_a_planned_file(b).await;
                b.wait_told("failed", "is gone").await;
                let name = match &b.feed {
                    Feed::Files { number, .. } => format!("in/{}.json", number - 1),
                    _ => panic!("no files"),
                };
                rename(b, "lost.json", &name);
                b.say("START PIPELINE {view};").await;
                b.expect(&rows).await;
            })
        }),
        InputFault::new("files: one of a planned batch gone, which may be", JSON, |b| {
            Box::pin(async move {
                lose_a_planned_file(b).await;
                b.send().await;
                let gap = "SELECT count(*) FROM streaming_data_gaps WHERE stream_name = '{stream}' AND accepted_by = 'ignore_missing_files = true'";
                b.wait_each(gap, "1").await;
            })
        })
        .with(", ignore_missing_files = true"),
        InputFault::new("files: last line cut for long", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(1);
                let mut bytes = Feed::lines(&rows, Written::Json);
                bytes.extend(b"{\"k\": 1, \"v\"");
                b.put(&bytes);
                b.expect(&rows).await;
                b.wait_told("failed", "ends in the middle of a line").await;
            })
        })
        .with(", bad_file_wait = '1 second'"),
        InputFault::new("files: half written, completed later", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                let bytes = Feed::lines(&rows, Written::Json);
                let name = b.put(&bytes[..bytes.len() - 9]);
                // Others go on meanwhile.
                b.send().await;
                overwrite(b, &name, &bytes);
                b.expect(&rows).await;
            })
        }),
        InputFault::new("files: empty, filled later", JSON, |b| {
            Box::pin(async move {
                let name = b.put(b"");
                b.send().await;
                let rows = b.rows(1);
                overwrite(b, &name, &Feed::lines(&rows, Written::Json));
                b.expect(&rows).await;
            })
        }),
    ]
}

fn of_whole_files() -> Vec<InputFault> {
    vec![
        InputFault::new("files: overwritten after it was read, warned of", JSON, |b| {
            Box::pin(async move {
                change_a_read_file(b).await;
                b.send().await;
                b.wait_each(CHANGES, "t").await;
            })
        }),
        InputFault::new("files: overwritten after it was read, read again", JSON, |b| {
            Box::pin(async move {
                let rows = change_a_read_file(b).await;
                b.expect(&rows).await;
                b.wait_each(CHANGES, "t").await;
            })
        })
        .with(", on_changed_file = 'read_again'"),
        InputFault::new("files: overwritten after it was read, which must not be", JSON, |b| {
            Box::pin(async move {
                change_a_read_file(b).await;
                b.wait_told("failed", "changed after it was read").await;
            })
        })
        .with(", on_changed_file = 'fail'"),
        InputFault::new("Parquet: cut for long", PARQUET, |b| {
            Box::pin(async move {
                put_cut_parquet(b);
                b.wait_told("failed", "is not a whole Parquet file").await;
            })
        })
        .with(", bad_file_wait = '1 second'"),
        InputFault::new("Parquet: half written, completed later", PARQUET, |b| {
            Box::pin(async move {
                let (name, rows) = put_cut_parquet(b);
                b.send().await;
                overwrite(b, &name, &Feed::lines(&rows, Written::Parquet));
                b.expect(&rows).await;
            })
        }),
        InputFault::new("Parquet: damaged inside", PARQUET, |b| {
            Box::pin(async move {
                put_damaged_parquet(b);
                b.wait_told("failed", "cannot read Parquet file").await;
            })
        }),
        InputFault::new("Parquet: damaged inside, which may be", PARQUET, |b| {
            Box::pin(async move {
                put_damaged_parquet(b);
                b.send().await;
                let gap = "SELECT count(*) FROM streaming_data_gaps WHERE stream_name = '{stream}' AND accepted_by LIKE 'on_bad_file%'";
                b.wait_each(gap, "1").await;
            })
        })
        .with(", on_bad_file = 'skip'"),
    ]
}

const LETTERS: &str = "SELECT count(*) FROM streaming_dead_letters WHERE stream_name = '{stream}'";

fn of_records() -> Vec<InputFault> {
    vec![
        InputFault::new("files: records that are none", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(1);
                let mut bytes = Feed::lines(&rows, Written::Json);
                bytes.extend(b"no record\n{\"k\": \"x\"}\n{\"k\": 1, \"v\": 2}\n");
                b.put(&bytes);
                b.expect(&rows).await;
                let whole = Row {
                    k: 1,
                    v: Some(2),
                    minutes: None,
                };
                b.expect(&[whole]).await;
                b.wait_each(LETTERS, "2").await;
            })
        }),
        InputFault::new(
            "files: records that are none, which must not be",
            JSON,
            |b| {
                Box::pin(async move {
                    b.put(b"no record\n");
                    b.wait_told("failed", "cannot decode").await;
                })
            },
        )
        .with(", on_bad_row = 'fail'"),
        InputFault::new(
            "files: rows that break an expectation stop the batch",
            JSON,
            |b| {
                Box::pin(async move {
                    let broken = Row {
                        k: 1,
                        v: Some(-4),
                        minutes: Some(3),
                    };
                    b.arrive(&[broken]).await;
                    b.wait_told("failed", "positive").await;
                    b.server
                        .execute("ALTER STREAM plain DROP CONSTRAINT positive")
                        .await;
                    b.expect(&[broken]).await;
                })
            },
        )
        .constrained(", CONSTRAINT positive EXPECT (v >= 0 OR v IS NULL) ON VIOLATION FAIL UPDATE"),
        mended("CSV: records mended by an option", CSV),
        mended("CSV with a header: records mended by an option", HEADED),
        InputFault::new("Parquet: rows mended by another field", PARQUET, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                let numbers = |of: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
                    Arc::new(rows.iter().map(of).collect::<Int64Array>())
                };
                // The second row cannot be read under the old name.
                let texts = rows.iter().enumerate();
                let texts = texts.map(|(i, row)| match i {
                    1 => Some("n/a".to_owned()),
                    _ => row.v.map(|v| v.to_string()),
                });
                let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
                b.put(&parquet_of(vec![
                    ("k", numbers(&|row| Some(row.k))),
                    ("v", texts),
                    ("w", numbers(&|row| row.v)),
                    ("ts", times(&rows)),
                ]));
                b.wait_each(LETTERS, "1").await;
                b.say("ALTER STREAM {stream} RENAME COLUMN v TO w;").await;
                for told in b.say("REPLAY DEAD LETTERS OF {stream};").await {
                    assert_eq!(
                        (told[0][1].as_str(), told[0][2].as_str()),
                        ("1", "0"),
                        "{told:?}"
                    );
                }
                b.expect(&rows).await;
                b.wait_equal().await;
                b.say("ALTER STREAM {stream} RENAME COLUMN w TO v;").await;
                b.server.kill();
                b.server.restart();
            })
        }),
    ]
}

/// Lines with a NULL that the format does not know yet.
fn mended(name: &'static str, feed: FeedKind) -> InputFault {
    InputFault::new(name, feed, |b| {
        Box::pin(async move {
            let rows = b.rows(2);
            let text = String::from_utf8(Feed::lines(&rows, b.written())).expect("a text");
            let text = text.replace(",,\n", ",n/a,n/a\n");
            b.put(text.as_bytes());
            b.wait_each(LETTERS, "2").await;
            b.say("ALTER STREAM {stream} SET (null_value = 'n/a');")
                .await;
            let told = b.say("REPLAY DEAD LETTERS OF {stream};").await;
            for told in told {
                assert_eq!(
                    (told[0][1].as_str(), told[0][2].as_str()),
                    ("2", "0"),
                    "{told:?}"
                );
            }
            // What the option made of an empty field is none any more.
            b.expect(&rows).await;
            b.wait_equal().await;
            b.say("ALTER STREAM {stream} RESET (null_value);").await;
        })
    })
}

const CHANGES: &str = "SELECT count(*) > 0 FROM streaming_events WHERE detail::text LIKE '%changed after it was read%' AND object_name IN ('{stream}', '{view}')";

/// What the first file holds is other rows now.
async fn change_a_read_file(b: &mut Bench) -> Vec<Row> {
    let rows = b.rows(2);
    // A file's time has the clock's own steps.
    tokio::time::sleep(Duration::from_millis(20)).await;
    overwrite(b, "0.json", &Feed::lines(&rows, Written::Json));
    rows
}

fn put_cut_parquet(b: &mut Bench) -> (String, Vec<Row>) {
    let rows = b.rows(2);
    let bytes = Feed::lines(&rows, Written::Parquet);
    (b.put(&bytes[..bytes.len() / 2]), rows)
}

fn put_damaged_parquet(b: &mut Bench) {
    let rows = b.rows(2);
    let mut bytes = Feed::lines(&rows, Written::Parquet);
    let length = bytes.len();
    // The footer's own bytes, between its marks.
    bytes[length - 60..length - 20].fill(0xff);
    b.put(&bytes);
}

fn overwrite(b: &Bench, name: &str, bytes: &[u8]) {
    let Feed::Files { folder, .. } = &b.feed else {
        panic!("no files");
    };
    std::fs::write(folder.join(name), bytes).expect("written");
}

fn rename(b: &Bench, from: &str, to: &str) {
    let at = |name: &str| -> PathBuf { b.server.dir().join(name) };
    std::fs::rename(at(from), at(to)).expect("renamed");
}

//! Changes of what comes: fields that come, go, are renamed or of another type, and queries that change.

use super::bench::{Bench, InputFault};
use super::feed::{Feed, FeedKind, Row, Written};
use super::shapes::{SHAPES, SINK, names};

const JSON: FeedKind = FeedKind::Files(Written::Json);

pub(super) fn faults() -> Vec<InputFault> {
    vec![
        InputFault::new("new field, ignored, then taken in", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                put_with(b, &rows, with_more);
                b.expect(&rows).await;
                b.wait_equal().await;
                for name in names() {
                    let add = statement_of(b, name, "more").await;
                    assert!(add.contains("ADD COLUMN more"), "{add}");
                }
                b.say("ALTER STREAM {stream} ADD COLUMN more TEXT;").await;
                let rows = b.rows(2);
                put_with(b, &rows, with_more);
                b.expect(&rows).await;
            })
        })
        .of_the_few(),
        InputFault::new(
            "new field, rescued with values that do not fit",
            JSON,
            |b| {
                Box::pin(async move {
                    let rows = b.rows(2);
                    put_with(b, &rows, with_more);
                    b.expect(&rows).await;
                    b.wait_equal().await;
                    let rows = b.rows(1);
                    put_with(b, &rows, |text| {
                        text.replace("\"v\": ", "\"v\": \"x\", \"w\": ")
                    });
                    expect_without_values(b, &rows).await;
                    let rescued = "SELECT count(*) FROM {stream} WHERE _rescued_data IS NOT NULL";
                    b.wait_each(rescued, "9").await;
                })
            },
        )
        .with(", schema_evolution = 'rescue'"),
        InputFault::new("new field, stops until it has a column", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                put_with(b, &rows, with_more);
                b.expect(&rows).await;
                b.wait_told("failed", "field \"more\"").await;
            })
        })
        .with(", schema_evolution = 'fail'"),
        InputFault::new("new field, a column by itself", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                put_with(b, &rows, with_more);
                b.expect(&rows).await;
                b.wait_equal().await;
                let values = "SELECT count(more) FROM {stream}";
                b.wait_each(values, "6").await;
                b.server.kill();
                b.server.restart();
            })
        })
        .with(", schema_evolution = 'add_new_columns'"),
        InputFault::new("field of a NOT NULL column removed: stops", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                put_with(b, &rows, |text| text.replace("\"k\": ", "\"was\": "));
                b.wait_told("failed", "cannot decode").await;
            })
        })
        .with(", on_bad_row = 'fail'")
        .with_required_key(),
        InputFault::new("field removed: NULL", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(3);
                put_with(b, &rows, without_value);
                expect_without_values(b, &rows).await;
            })
        }),
        InputFault::new("field renamed", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                put_with(b, &rows, |text| text.replace("\"v\"", "\"value\""));
                // Until it is told, it is missing.
                expect_without_values(b, &rows).await;
                b.wait_equal().await;
                for name in names() {
                    b.server
                        .execute(&format!("ALTER STREAM {name}_s RENAME COLUMN v TO value"))
                        .await;
                }
                b.say("ALTER STREAM {stream} RENAME COLUMN value TO v FROM 'value';")
                    .await;
                let rows = b.rows(2);
                put_with(b, &rows, |text| text.replace("\"v\"", "\"value\""));
                b.expect(&rows).await;
            })
        }),
        InputFault::new(
            "type changed: set aside, replayed when the values are mended",
            JSON,
            |b| {
                Box::pin(async move {
                    let rows = b.rows(2);
                    put_with(b, &rows, |text| {
                        text.replace("\"v\": ", "\"v\": \"x\", \"w\": ")
                    });
                    let letters = "SELECT count(*) FROM streaming_dead_letters WHERE stream_name = '{stream}'";
                    b.wait_each(letters, "6").await;
                    // The field under which the values come now.
                    b.say("ALTER STREAM {stream} RENAME COLUMN v TO w;").await;
                    b.say("REPLAY DEAD LETTERS OF {stream};").await;
                    b.expect(&rows).await;
                    b.wait_equal().await;
                    b.say("ALTER STREAM {stream} RENAME COLUMN w TO v;").await;
                })
            },
        ),
        InputFault::new(
            "type widened: whole numbers with a fraction of zero, numbers as texts",
            JSON,
            |b| {
                Box::pin(async move {
                    let rows = b.rows(2);
                    put_with(b, &rows, |text| {
                        let text = text.replace(", \"ts\"", ".0, \"ts\"");
                        text.replace("null.0", "null")
                    });
                    b.expect(&rows).await;
                    let rows = b.rows(2);
                    put_with(b, &rows, |text| {
                        let text = text
                            .replace("\"v\": ", "\"v\": \"")
                            .replace(", \"ts\"", "\", \"ts\"");
                        text.replace("\"null\"", "null")
                    });
                    b.expect(&rows).await;
                })
            },
        ),
        InputFault::new("query changed that holds state", JSON, |b| {
            Box::pin(async move {
                b.server.execute("DROP SINK out").await;
                std::fs::remove_dir_all(b.server.dir().join("out")).expect("removed");
                for (name, query) in SHAPES.into_iter().filter(|(name, _)| *name != "base") {
                    replace(b, name, &query.replace("{s}", &format!("{name}_s"))).await;
                    let twin = format!("{name}_twin");
                    replace(b, &twin, &query.replace("{s}", "plain")).await;
                }
                // What is read by another view is not replaced below it: the other one is.
                for base in ["base", "base_twin"] {
                    let query =
                        format!("SELECT q, count(*) AS n, max(v) AS newest FROM {base} GROUP BY q");
                    replace(
                        b,
                        &format!("over_{base}"),
                        &query
                            .replace("q", "q + 1 AS q")
                            .replace("BY q + 1 AS q", "BY q + 1"),
                    )
                    .await;
                }
                // Nor below its sink, which gets the whole of the new one.
                b.server.execute(SINK).await;
                b.has_said(Some("delivered"), "DROP SINK");
                b.has_said(None, "CREATE OR REPLACE");
                b.has_said(Some("delivered"), "CREATE SINK");
            })
        }),
    ]
}

/// Another query under the same name: where state would be lost it is refused before it acts.
async fn replace(b: &mut Bench, view: &str, query: &str) {
    let changed = format!("{query} ")
        .replace("k,", "k + 1 AS k,")
        .replace(
            "GROUP BY window_start, window_end, k ",
            "GROUP BY window_start, window_end, k + 1 ",
        )
        .replace("GROUP BY k ", "GROUP BY k + 1 ");
    let client = b.server.connect().await;
    let unasked = client
        .batch_execute(&format!(
            "CREATE OR REPLACE MATERIALIZED VIEW {view} AS {changed}"
        ))
        .await;
    if let Err(error) = unasked {
        let error = error.as_db_error().expect("an error of the server");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("reset_state")),
            "{view}: {error:?}"
        );
        b.server
            .execute(&format!(
                "CREATE OR REPLACE MATERIALIZED VIEW {view} WITH (reset_state = true) AS {changed}"
            ))
            .await;
    }
}

fn put_with(b: &mut Bench, rows: &[Row], change: impl Fn(&str) -> String) {
    let text = String::from_utf8(Feed::lines(rows, Written::Json)).expect("a text");
    b.put(change(&text).as_bytes());
}

/// Every record with a field that no column takes.
fn with_more(text: &str) -> String {
    text.replace("{\"k\"", "{\"more\": \"x\", \"k\"")
}

fn without_value(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let (before, rest) = line.split_once("\"v\": ").expect("a value");
        let (_, after) = rest.split_once(", ").expect("a time");
        format!("{before}{after}\n")
    });
    lines.collect()
}

async fn expect_without_values(b: &Bench, rows: &[Row]) {
    let rows: Vec<Row> = rows.iter().map(|row| Row { v: None, ..*row }).collect();
    b.expect(&rows).await;
}

/// What `COMPARE SCHEMA` names for a field of a shape's stream.
async fn statement_of(b: &Bench, name: &str, field: &str) -> String {
    let rows = b.server.rows(&format!("COMPARE SCHEMA OF {name}_s")).await;
    let row = rows.iter().find(|row| row[1] == field);
    row.unwrap_or_else(|| panic!("{rows:?}"))[9].clone()
}

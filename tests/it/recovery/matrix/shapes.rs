//! The shapes of a view that every fault is made on, and when two of them are the same.

use std::collections::BTreeMap;

use crate::harness::Server;

use super::place::files;

/// Name and query over a stream `{s}`; the table `t` is joined with it.
pub(super) const SHAPES: [(&str, &str); 6] = [
    ("stateless", "SELECT k, v * 2 AS w FROM {s} WHERE v % 2 = 0"),
    (
        "windowed",
        "SELECT window_start, k, count(*) AS n, sum(v) AS total FROM TUMBLE({s}, ts, INTERVAL '10 minutes')
         GROUP BY window_start, window_end, k",
    ),
    (
        "joined",
        "SELECT s.k, s.v, t.g FROM {s} AS s LEFT JOIN t ON t.id = s.k",
    ),
    ("deduplicated", "SELECT DISTINCT k, v % 3 AS g FROM {s}"),
    (
        "base",
        "SELECT k, v, v % 4 AS q FROM {s} WHERE v IS NOT NULL",
    ),
    (
        "delivered",
        "SELECT k, count(*) AS n, sum(v) AS total FROM {s} GROUP BY k",
    ),
];

/// The view over `base`, which runs in its pipeline.
const OVER: &str = "SELECT q, count(*) AS n, max(v) AS newest FROM {base} GROUP BY q";

/// Headings of the shapes, in their order.
pub(super) const HEADINGS: [&str; 6] = [
    "stateless",
    "windowed aggregate",
    "join",
    "dedup",
    "view on view",
    "sink",
];

/// Names of the shapes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _)| *name)
}

/// All views that are compared with their twins.
fn views() -> impl Iterator<Item = &'static str> {
    names().chain(["over_base"])
}

/// Creates a view of each shape, over the stream and with the options that are said for its name.
pub(super) fn create(
    suffix: &str,
    stream: impl Fn(&str) -> String,
    options: impl Fn(&str) -> String,
) -> String {
    let mut sql = String::new();
    for (name, query) in SHAPES {
        let query = query.replace("{s}", &stream(name));
        let options = options(name);
        sql += &format!("CREATE MATERIALIZED VIEW {name}{suffix} WITH ({options}) AS {query};");
    }
    let base = format!("base{suffix}");
    let query = OVER.replace("{base}", &base);
    sql + &format!("CREATE MATERIALIZED VIEW over_{base} WITH (pipeline = '{base}') AS {query};")
}

/// The sink of the shape that is delivered.
pub(super) const SINK: &str = "CREATE SINK out FROM delivered
    WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog');";

async fn rows(server: &Server, view: &str) -> Vec<Vec<String>> {
    let mut rows = server.rows(&format!("SELECT * FROM {view}")).await;
    rows.sort();
    rows
}

/// A view that is not the same multiset of rows as its twin, with both; also one that cannot be read yet.
pub(super) async fn unequal(server: &Server) -> Option<String> {
    let client = server.connect().await;
    for view in views() {
        let twin = rows(server, &format!("{view}_twin")).await;
        let mut view_rows =
            match crate::harness::rows(&client, &format!("SELECT * FROM {view}")).await {
                Ok(rows) => rows,
                Err(error) => return Some(crate::harness::describe(&error)),
            };
        view_rows.sort();
        if view_rows != twin {
            return Some(format!("{view}: {view_rows:?}, its twin: {twin:?}"));
        }
    }
    None
}

/// Each view equals its twin, which has rows.
pub(super) async fn assert_equal(server: &Server, fault: &str) {
    for view in views() {
        let twin = rows(server, &format!("{view}_twin")).await;
        assert!(twin.len() >= 3, "{view}: {twin:?}");
    }
    if let Some(what) = unequal(server).await {
        panic!("{fault}: {what}; log:\n{}", server.log());
    }
}

/// The changes that the sink has add up to its view.
pub(super) async fn assert_delivered(server: &Server, fault: &str) {
    let mut counts: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for text in files(&server.dir().join("out")).into_values() {
        for line in String::from_utf8(text).expect("a text").lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let values = ["k", "n", "total"].map(|name| match &row[name] {
                serde_json::Value::Null => "NULL".to_owned(),
                value => value.to_string(),
            });
            let is_there = matches!(row["change_kind"].as_str(), Some("insert" | "update_after"));
            *counts.entry(values.to_vec()).or_default() += if is_there { 1 } else { -1 };
        }
    }
    counts.retain(|_, count| *count != 0);
    let sum: Vec<_> = counts.into_iter().collect();
    let expected = rows(server, "delivered").await.into_iter();
    let mut expected: Vec<_> = expected.map(|row| (row, 1)).collect();
    expected.sort();
    assert_eq!(sum, expected, "{fault}: the sink");
}

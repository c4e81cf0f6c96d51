//! Event-time windows through the planner: lineage, late rows, EMIT ON WINDOW CLOSE.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};

use super::change::ChangeBatch;
use super::plan::InputProperties;
use super::testing::Harness;
use crate::catalog::definition::EmitMode;
use crate::error::sqlstate;

const SECOND: i64 = 1_000_000;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new(
            "at",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            true,
        ),
        Field::new("tick", DataType::Int64, true),
    ]))
}

/// A stream `s` whose watermark follows `at`, and `i` whose follows the integer `tick`.
fn harness() -> Harness {
    let mut harness = Harness::new();
    for (name, column) in [("s", 1), ("i", 2)] {
        harness.relation(
            name,
            InputProperties {
                schema: schema(),
                append_only: true,
                watermark_column: Some(column),
                primary_key: None,
                event_time: Vec::new(),
            },
        );
    }
    harness
}

fn rows(rows: &[(i64, i64)]) -> ChangeBatch {
    let keys: Int64Array = rows.iter().map(|(k, _)| Some(*k)).collect();
    let ticks: Int64Array = rows.iter().map(|(_, at)| Some(*at)).collect();
    let times: TimestampMicrosecondArray = rows.iter().map(|(_, at)| Some(at * SECOND)).collect();
    let batch = RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(keys),
            Arc::new(times.with_timezone("UTC")),
            Arc::new(ticks),
        ],
    )
    .unwrap();
    ChangeBatch::inserts(batch)
}

/// Rows of a view of BIGINT columns, sorted.
fn numbers(harness: &Harness, view: &str) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    for batch in harness.rows(view) {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter();
            all.push(
                values
                    .map(|c| c.as_primitive::<Int64Type>().value(row))
                    .collect(),
            );
        }
    }
    all.sort();
    all
}

#[test]
fn lineage_follows_windows_through_expressions() {
    let harness = harness();
    for (sql, expected) in [
        ("SELECT at FROM s", Some(0)),
        (
            "SELECT at + INTERVAL '3 seconds' AS a FROM s",
            Some(-3 * SECOND),
        ),
        ("SELECT tick FROM s", None),
        (
            "SELECT window_start FROM TUMBLE(s, at, INTERVAL '10 seconds')",
            Some(10 * SECOND),
        ),
        (
            "SELECT window_end FROM TUMBLE(s, at, INTERVAL '10 seconds')",
            Some(0),
        ),
        (
            "SELECT window_start FROM HOP(s, at, INTERVAL '5 seconds', INTERVAL '20 seconds')",
            Some(20 * SECOND),
        ),
        (
            "SELECT window_end FROM HOP(s, at, INTERVAL '5 seconds', INTERVAL '20 seconds')",
            Some(0),
        ),
        ("SELECT window_start FROM TUMBLE(i, tick, 10)", Some(10)),
        ("SELECT window_end FROM HOP(i, tick, 5, 20)", Some(0)),
        (
            "SELECT date_trunc('minute', at) AS m FROM s",
            Some(60 * SECOND),
        ),
        (
            "SELECT window_start FROM TUMBLE(s, at, INTERVAL '10 seconds') UNION ALL SELECT at FROM s",
            None,
        ),
        (
            "SELECT x.window_start FROM (SELECT window_start, k, count(*) FROM \
             TUMBLE(s, at, INTERVAL '10 seconds') GROUP BY 1, 2) x JOIN i ON x.k = i.k",
            Some(10 * SECOND),
        ),
        ("SELECT CAST(at AS DATE) AS d FROM s", None),
    ] {
        let plan = harness.plan("v", sql, EmitMode::OnUpdate).unwrap();
        let closes = plan.event_time[0].map(|time| time.closes_after);
        assert_eq!(closes, expected, "{sql}");
    }
}

#[test]
fn late_rows_are_dropped_and_counted_where_windows_are_grouped() {
    let mut harness = harness();
    let sql = "SELECT window_end, k, count(*) AS n FROM TUMBLE(i, tick, 10) GROUP BY window_end, k";
    harness.view("v", sql);
    harness.view("raw", "SELECT tick, k FROM i");
    harness.batch(vec![("i", rows(&[(1, 3), (1, 9), (2, 12)]))]);
    harness.watermark = Some(10);
    let result = harness.batch(vec![("i", rows(&[(1, 4), (1, 11), (2, 9), (2, 25)]))]);
    assert_eq!(result.late_rows["v"], 2);
    assert_eq!(result.late_rows["raw"], 0);
    assert_eq!(
        numbers(&harness, "v"),
        vec![
            vec![10, 1, 2],
            vec![20, 1, 1],
            vec![20, 2, 1],
            vec![30, 2, 1]
        ]
    );
    assert_eq!(numbers(&harness, "raw").len(), 7);
}

#[test]
fn windows_are_emitted_once_when_they_close() {
    let mut harness = harness();
    let sql = "SELECT window_start, k, count(*) AS n FROM HOP(i, tick, 10, 20) \
               GROUP BY window_start, k HAVING count(*) > 0";
    let plan = harness.plan("v", sql, EmitMode::OnWindowClose).unwrap();
    assert!(plan.append_only);
    harness.add("v", sql, plan);
    harness.batch(vec![("i", rows(&[(1, 3), (1, 12), (2, 25)]))]);
    assert_eq!(numbers(&harness, "v"), Vec::<Vec<i64>>::new());
    assert!(harness.dataflow.wants_batch_at(|_| Some(10)));
    assert!(!harness.dataflow.wants_batch_at(|_| Some(9)));
    harness.watermark = Some(20);
    harness.restart();
    harness.batch(vec![]);
    let closed = vec![vec![-10, 1, 1], vec![0, 1, 2]];
    assert_eq!(numbers(&harness, "v"), closed);
    harness.batch(vec![("i", rows(&[(1, 1), (2, 29)]))]);
    assert_eq!(numbers(&harness, "v"), closed);
    harness.watermark = Some(40);
    harness.batch(vec![]);
    let mut all = closed;
    all.extend([vec![10, 1, 1], vec![10, 2, 2], vec![20, 2, 2]]);
    assert_eq!(numbers(&harness, "v"), all);
}

#[test]
fn a_view_over_a_view_knows_its_windows() {
    let mut harness = harness();
    harness.view(
        "per_key",
        "SELECT window_end, k, count(*) AS n FROM TUMBLE(i, tick, 10) GROUP BY window_end, k",
    );
    let sql = "SELECT window_end, max(n) AS n FROM per_key GROUP BY window_end";
    let plan = harness.plan("most", sql, EmitMode::OnWindowClose).unwrap();
    harness.add("most", sql, plan);
    harness.batch(vec![("i", rows(&[(1, 3), (1, 4), (2, 5), (2, 15)]))]);
    harness.watermark = Some(10);
    harness.batch(vec![("i", rows(&[(2, 6), (2, 7)]))]);
    assert_eq!(numbers(&harness, "most"), vec![vec![10, 2]]);
}

#[test]
fn emit_on_window_close_needs_a_window_of_event_time() {
    let harness = harness();
    for sql in [
        "SELECT k, count(*) AS n FROM s GROUP BY k",
        "SELECT window_start, count(*) AS n FROM TUMBLE(s, tick, 10) GROUP BY 1",
        "SELECT window_start FROM TUMBLE(s, at, INTERVAL '1 second')",
    ] {
        let error = harness.plan("v", sql, EmitMode::OnWindowClose).unwrap_err();
        assert_eq!(
            error.sqlstate(),
            sqlstate::INVALID_OBJECT_DEFINITION,
            "{sql}"
        );
        assert!(error.hint_text().is_some());
    }
}

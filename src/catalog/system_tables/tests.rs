//! Tests of the system tables: their contract of names, and the tuning guide's dashboard query.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::prelude::SessionContext;

use super::*;
use crate::catalog::history::rows::{MetricsRow, Milliseconds};
use crate::clock::ManualClock;
use crate::engine::status::QueryStatus;

fn facts(dir: &std::path::Path, status: EngineStatus) -> SystemFacts {
    let clock = ManualClock::at(1);
    SystemFacts {
        subject: Arc::new(crate::catalog::access::Subject::system()),
        history: History::open(&dir.join("history"), clock.clone()).unwrap(),
        catalog: Catalog::open(&dir.join("catalog"), clock).unwrap(),
        status: Arc::new(move || status.clone()),
        files: Arc::new(|_| Vec::new()),
    }
}

#[test]
fn the_metrics_log_has_the_columns_of_the_contract() {
    let schema = schema_of("streaming_metrics_log").unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let contract = "stream_name, pipeline, batch_id, run_id, batch_started_at, \
        trigger_execution_ms, latest_offset_ms, get_batch_ms, query_planning_ms, wal_commit_ms, \
        add_batch_ms, state_commit_ms, commit_offsets_ms, num_input_rows, num_output_rows, \
        input_rows_per_second, processed_rows_per_second, num_late_rows, \
        num_expectation_failed_rows, num_dead_letter_rows, num_error_rows, state_rows_total, \
        state_rows_updated, state_rows_removed, state_memory_bytes, state_disk_bytes, \
        checkpoint_bytes, watermark_at, event_time_min_at, event_time_max_at, backlog_rows, \
        backlog_bytes, replayed, error_code, error, num_rows_unknown_fields, num_rows_rescued";
    assert_eq!(names, contract.split(", ").collect::<Vec<_>>());
    for field in schema.fields() {
        if field.name().ends_with("_ms") {
            assert_eq!(field.data_type(), &DataType::Decimal128(18, 3));
        }
        if field.name().ends_with("_at") {
            assert!(matches!(field.data_type(), DataType::Timestamp(_, Some(_))));
        }
    }
}

#[test]
fn every_table_has_a_schema_without_facts() {
    for name in names() {
        assert!(!schema_of(name).unwrap().fields().is_empty(), "{name}");
    }
    assert!(schema_of("streaming_nothing").is_none());
}

#[tokio::test]
async fn the_dashboard_query_runs_verbatim() {
    let dir = tempfile::tempdir().unwrap();
    let facts = facts(dir.path(), EngineStatus::default());
    let row = |name: &str, batch_id, rows, us| MetricsRow {
        stream_name: name.to_owned(),
        batch_id,
        num_input_rows: rows,
        add_batch_ms: Milliseconds { us },
        ..MetricsRow::default()
    };
    let rows = [
        row("clicks", 0, 1000, 500_000),
        row("clicks", 1, 333, 1),
        row("other", 7, 5, 5),
    ];
    facts.history.record_metrics(&rows).unwrap();
    let context = SessionContext::new();
    let table = provider("streaming_metrics_log", &facts).unwrap();
    context
        .register_table("streaming_metrics_log", table)
        .unwrap();
    let batches = context
        .sql(
            "SELECT
    batch_id,
    trigger_execution_ms,
    add_batch_ms,
    num_input_rows,
    ROUND(num_input_rows / (add_batch_ms / 1000.0), 0) AS rows_per_second
FROM streaming_metrics_log
WHERE stream_name = 'clicks'
ORDER BY batch_id DESC
LIMIT 100;",
        )
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let batch = datafusion::arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    let ids = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(ids.values(), &[1, 0]);
    let rate = datafusion::arrow::compute::cast(batch.column(4), &DataType::Float64).unwrap();
    assert_eq!(
        rate.as_primitive::<Float64Type>().values(),
        &[333_000_000.0, 2000.0]
    );
}

#[tokio::test]
async fn a_running_query_is_a_row_with_its_nulls() {
    let dir = tempfile::tempdir().unwrap();
    let status = EngineStatus {
        queries: vec![
            QueryStatus {
                stream_name: "v".to_owned(),
                status: "failed",
                exception: Some("division by zero".to_owned()),
                ..QueryStatus::default()
            },
            QueryStatus {
                stream_name: "w".to_owned(),
                status: "running",
                last_batch_id: Some(3),
                ..QueryStatus::default()
            },
        ],
        ..EngineStatus::default()
    };
    let facts = facts(dir.path(), status);
    let context = SessionContext::new();
    context
        .register_table(
            "streaming_queries",
            provider("streaming_queries", &facts).unwrap(),
        )
        .unwrap();
    let count = |sql: &'static str| {
        let context = context.clone();
        async move { context.sql(sql).await.unwrap().count().await.unwrap() }
    };
    assert_eq!(
        count("SELECT 1 FROM streaming_queries WHERE exception IS NULL").await,
        1
    );
    assert_eq!(
        count("SELECT 1 FROM streaming_queries WHERE stream_name = 'v'").await,
        1
    );
    assert_eq!(
        count("SELECT 1 FROM streaming_queries WHERE last_batch_id = 3").await,
        1
    );
    assert_eq!(
        count("SELECT 1 FROM streaming_queries WHERE 'w' = stream_name").await,
        1
    );
}

#[tokio::test]
async fn the_newest_batches_of_a_view_are_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let facts = facts(dir.path(), EngineStatus::default());
    let rows: Vec<MetricsRow> = (0..50)
        .map(|number| MetricsRow {
            stream_name: if number % 2 == 0 { "even" } else { "odd" }.to_owned(),
            batch_id: number,
            ..MetricsRow::default()
        })
        .collect();
    facts.history.record_metrics(&rows).unwrap();
    let context = SessionContext::new();
    let table = provider("streaming_metrics_log", &facts).unwrap();
    context.register_table("log", table).unwrap();
    let ask = async |sql: &str| {
        let frame = context.sql(sql).await.unwrap();
        let plan = frame.clone().create_physical_plan().await.unwrap();
        let words = datafusion::physical_plan::displayable(plan.as_ref());
        let words = words.indent(false).to_string();
        let batches = frame.collect().await.unwrap();
        let ids = batches
            .iter()
            .flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec());
        (ids.collect::<Vec<_>>(), words)
    };
    let newest =
        "SELECT batch_id, run_id FROM log WHERE stream_name = 'odd' ORDER BY batch_id DESC LIMIT 3";
    let (ids, plan) = ask(newest).await;
    assert_eq!(ids, [49, 47, 45]);
    assert!(
        plan.contains("stream_name=odd, newest first, fetch=3"),
        "{plan}"
    );
    assert!(!plan.contains("SortExec"), "{plan}");
    // Whatever else is asked is right, and reads what it must.
    for (sql, expected) in [
        (
            "SELECT batch_id FROM log WHERE stream_name = 'odd' ORDER BY batch_id LIMIT 2",
            vec![1, 3],
        ),
        (
            "SELECT batch_id FROM log WHERE stream_name = 'odd' AND batch_id < 9 ORDER BY batch_id DESC LIMIT 2",
            vec![7, 5],
        ),
        (
            "SELECT batch_id FROM log WHERE stream_name = 'odd' AND stream_name = 'even'",
            vec![],
        ),
        (
            "SELECT batch_id FROM log ORDER BY batch_id DESC LIMIT 2",
            vec![49, 48],
        ),
        (
            "SELECT count(*) FROM log WHERE stream_name = 'even'",
            vec![25],
        ),
        (
            "SELECT count(*) FROM log WHERE stream_name = 'even' OR batch_id = 1",
            vec![26],
        ),
    ] {
        assert_eq!(ask(sql).await.0, expected, "{sql}");
    }
}

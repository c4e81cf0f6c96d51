//! The tables of what runs now: a copy of the engine's state at one instant.

use datafusion::arrow::array::RecordBatch;

use super::SystemFacts;
use super::columns::Columns;
use super::history::{is_readable, shown};
use crate::catalog::history::HistoryFilter;
use crate::engine::status::EngineStatus;
use crate::error::Result;

fn status(facts: Option<&SystemFacts>) -> EngineStatus {
    facts.map(|f| (f.status)()).unwrap_or_default()
}

pub(super) fn queries(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    let rows = status(facts).queries;
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .text("status", |r| r.status)
        .count("last_batch_id", |r| r.last_batch_id)
        .flag("is_trigger_active", |r| r.is_trigger_active)
        .flag("is_data_available", |r| r.is_data_available)
        .text("message", |r| r.message.as_str())
        .text("exception", |r| r.exception.as_deref())
        .text("exception_sqlstate", |r| r.exception_sqlstate.as_deref())
        .text("hint", |r| r.hint.as_deref())
        .time("since_at", |r| r.since_at_us)
        .number("progress_percent", |r| r.progress_percent)
        .count("progress_rows", |r| r.progress_rows)
        .finish()
}

pub(super) fn pipelines(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    let rows = status(facts).pipelines;
    Columns::of(&rows)
        .text("pipeline", |r| r.pipeline.as_str())
        .text("pipeline_id", |r| r.pipeline_id.as_str())
        .text("run_id", |r| r.run_id.as_str())
        .text("status", |r| r.status)
        .text("trigger", |r| r.trigger.as_str())
        .text("checkpoint_location", |r| r.checkpoint_location.as_str())
        .count("last_batch_id", |r| r.last_batch_id)
        .count("restarts", |r| r.restarts)
        .time("next_retry_at", |r| r.next_retry_at_us)
        .time("watermark_at", |r| r.watermark_at_us)
        .count("state_memory_bytes", |r| r.state_memory_bytes)
        .count("state_disk_bytes", |r| r.state_disk_bytes)
        .finish()
}

pub(super) fn sources(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    let rows = status(facts).sources;
    Columns::of(&rows)
        .text("pipeline", |r| r.pipeline.as_str())
        .text("source_name", |r| r.source_name.as_str())
        .text("description", |r| r.description.as_str())
        .json("start_offset", |r| r.start_offset.clone())
        .json("end_offset", |r| r.end_offset.clone())
        .json("latest_offset", |r| r.latest_offset.clone())
        .count("backlog_rows", |r| r.backlog_rows)
        .count("backlog_bytes", |r| r.backlog_bytes)
        .count("num_input_rows", |r| r.num_input_rows)
        .number("input_rows_per_second", |r| r.input_rows_per_second)
        .number("processed_rows_per_second", |r| r.processed_rows_per_second)
        .time("last_data_at", |r| r.last_data_at_us)
        .text("last_error", |r| r.last_error.as_deref())
        .finish()
}

pub(super) fn files(facts: Option<&SystemFacts>, filter: &HistoryFilter) -> Result<RecordBatch> {
    let rows = facts.map(|f| (f.files)(filter.name.as_deref()));
    // Sources know their streams by the names that these are kept under.
    let mut rows = shown(facts, rows.unwrap_or_default(), |row| &mut row.stream_name);
    let is_readable = is_readable(facts);
    rows.retain(|row| is_readable(&row.stream_name));
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .text("path", |r| r.file.path.as_str())
        .text("state", |r| r.state)
        .count("batch_id", |r| r.file.batch_id)
        .count("size_bytes", |r| r.file.size_bytes)
        .count("num_rows", |r| r.file.rows)
        .count("num_dead_letter_rows", |r| r.file.dead_letters)
        .time("modified_at", |r| r.file.modified_at_us)
        .text("error", |r| r.file.error.as_deref())
        .finish()
}

pub(super) fn sinks(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    let rows = status(facts).sinks;
    Columns::of(&rows)
        .text("sink_name", |r| r.sink_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .text("description", |r| r.description.as_str())
        .count("last_batch_id", |r| r.last_batch_id)
        .count("num_output_rows", |r| r.num_output_rows)
        .text("last_error", |r| r.last_error.as_deref())
        .finish()
}

pub(super) fn state_operators(
    facts: Option<&SystemFacts>,
    _: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows = status(facts).state_operators;
    Columns::of(&rows)
        .text("pipeline", |r| r.pipeline.as_str())
        .text("stream_name", |r| r.stream_name.as_str())
        .text("operator_name", |r| r.operator_name.as_str())
        .text("detail", |r| r.detail.as_str())
        .text("mode", |r| {
            if r.incremental {
                "incremental"
            } else {
                "recomputed"
            }
        })
        .count("num_rows_total", |r| r.num_rows_total)
        .count("num_rows_updated", |r| r.num_rows_updated)
        .count("num_rows_removed", |r| r.num_rows_removed)
        .count("memory_bytes", |r| r.memory_bytes)
        .text("retention", |r| r.retention.as_str())
        .finish()
}

pub(super) fn checkpoints(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    let rows = status(facts).checkpoints;
    Columns::of(&rows)
        .text("pipeline", |r| r.pipeline.as_str())
        .text("location", |r| r.location.as_str())
        .count("first_batch_id", |r| r.first_batch_id)
        .count("last_batch_id", |r| r.last_batch_id)
        .count("bytes", |r| r.bytes)
        .count("files", |r| r.files)
        .time("last_commit_at", |r| r.last_commit_at_us)
        .count("missing_batches", |r| r.missing_batches)
        .text("health", |r| r.health.as_str())
        .finish()
}

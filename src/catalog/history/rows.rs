//! Rows of the history tables, as they are stored (JSON) and read.
//!
//! Times are microseconds since the epoch, durations microseconds; the SQL tables show the latter
//! as `NUMERIC(18,3)` milliseconds, of which a microsecond is exactly the last digit.

use serde::{Deserialize, Serialize};

/// A row of `streaming_metrics_log`: one view in one batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct MetricsRow {
    pub stream_name: String,
    pub pipeline: String,
    pub batch_id: u64,
    pub run_id: String,
    pub batch_started_at_us: i64,
    pub trigger_execution_us: i64,
    pub latest_offset_us: i64,
    pub get_batch_us: i64,
    pub query_planning_us: i64,
    pub wal_commit_us: i64,
    pub add_batch_us: i64,
    pub state_commit_us: i64,
    pub commit_offsets_us: i64,
    pub num_input_rows: u64,
    pub num_output_rows: u64,
    pub input_rows_per_second: Option<f64>,
    pub processed_rows_per_second: Option<f64>,
    pub num_late_rows: u64,
    pub num_expectation_failed_rows: u64,
    pub num_dead_letter_rows: u64,
    pub num_error_rows: u64,
    pub state_rows_total: u64,
    pub state_rows_updated: u64,
    pub state_rows_removed: u64,
    pub state_memory_bytes: u64,
    pub state_disk_bytes: u64,
    pub checkpoint_bytes: u64,
    pub watermark_at_us: Option<i64>,
    pub event_time_min_at_us: Option<i64>,
    pub event_time_max_at_us: Option<i64>,
    pub backlog_rows: Option<u64>,
    pub backlog_bytes: Option<u64>,
    pub replayed: bool,
    pub error_code: Option<String>,
    pub error: Option<String>,
}

/// A row of `streaming_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// When.
    pub event_at_us: i64,
    /// `created`, `started`, `stopped`, `failed`, `retried`, `recovered`, ….
    pub kind: String,
    /// View, stream, sink or pipeline.
    pub object_name: String,
    /// Batch it concerns, if any.
    pub batch_id: Option<u64>,
    /// What more there is to say, an object.
    pub detail: serde_json::Value,
}

/// A row of `streaming_dead_letters`: a record that could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRow {
    /// Stream it came for.
    pub stream_name: String,
    /// Pipeline that read it.
    pub pipeline: String,
    /// Batch.
    pub batch_id: u64,
    /// Its number among the batch's dead letters of the stream, from 0.
    pub row_number: u64,
    /// When the batch ran.
    pub batch_started_at_us: i64,
    /// Partition and offset, or file and line.
    pub origin: String,
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// Why it could not be used.
    pub error: String,
}

/// A row of `streaming_late_rows`: a row dropped because its window was closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRow {
    /// View that dropped it.
    pub stream_name: String,
    /// Pipeline.
    pub pipeline: String,
    /// Batch.
    pub batch_id: u64,
    /// Its number among the batch's late rows of the view, from 0.
    pub row_number: u64,
    /// Its event time.
    pub event_time_at_us: Option<i64>,
    /// The watermark that it came after.
    pub watermark_at_us: Option<i64>,
    /// The row as JSON text.
    pub row: String,
}

/// A row of `streaming_expectations_log`: one expectation in one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationRow {
    /// Stream that has it.
    pub stream_name: String,
    /// Its name.
    pub expectation_name: String,
    /// Pipeline.
    pub pipeline: String,
    /// Batch.
    pub batch_id: u64,
    /// When the batch ran.
    pub batch_started_at_us: i64,
    /// Rows that met it.
    pub num_passed_rows: u64,
    /// Rows that did not.
    pub num_failed_rows: u64,
    /// Rows of these that were dropped.
    pub num_dropped_rows: u64,
}

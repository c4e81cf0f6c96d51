//! Rows of the history tables, as they are stored (JSON) and read: keys are the columns' names.
//!
//! Times (`*_at`) are microseconds since the epoch. Milliseconds (`*_ms`) are decimal texts with
//! three digits, of which a microsecond is the last.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that the SQL tables show as `NUMERIC(18,3)` milliseconds; held in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds {
    /// Microseconds.
    pub us: i64,
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}.{:03}", self.us / 1000, self.us % 1000))
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.split_once('.').and_then(|(whole, rest)| {
            let whole: i64 = whole.parse().ok()?;
            let rest: i64 = (rest.len() == 3).then(|| rest.parse().ok()).flatten()?;
            Some(whole * 1000 + rest)
        });
        match parsed {
            Some(us) => Ok(Self { us }),
            None => Err(D::Error::custom("not milliseconds with three digits")),
        }
    }
}

/// A row of `streaming_metrics_log`: one view in one batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct MetricsRow {
    pub stream_name: String,
    pub pipeline: String,
    pub batch_id: u64,
    pub run_id: String,
    pub batch_started_at: i64,
    pub trigger_execution_ms: Milliseconds,
    pub latest_offset_ms: Milliseconds,
    pub get_batch_ms: Milliseconds,
    pub query_planning_ms: Milliseconds,
    pub wal_commit_ms: Milliseconds,
    pub add_batch_ms: Milliseconds,
    pub state_commit_ms: Milliseconds,
    pub commit_offsets_ms: Milliseconds,
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
    pub watermark_at: Option<i64>,
    pub event_time_min_at: Option<i64>,
    pub event_time_max_at: Option<i64>,
    pub backlog_rows: Option<u64>,
    pub backlog_bytes: Option<u64>,
    pub replayed: bool,
    pub error_code: Option<String>,
    pub error: Option<String>,
    pub num_rows_unknown_fields: u64,
    pub num_rows_rescued: u64,
}

/// A row of `streaming_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// When.
    pub event_at: i64,
    /// `created`, `started`, `stopped`, `failed`, `retried`, `recovered`, ….
    pub kind: String,
    /// View, stream, sink or pipeline.
    pub object_name: String,
    /// Pipeline it concerns, if any.
    #[serde(default)]
    pub pipeline: Option<String>,
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
    /// When it was kept.
    pub recorded_at: i64,
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
    pub event_time_at: Option<i64>,
    /// The watermark that it came after.
    pub watermark_at: Option<i64>,
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
    pub batch_started_at: i64,
    /// Rows that met it.
    pub num_passed_rows: u64,
    /// Rows that did not.
    pub num_failed_rows: u64,
    /// Rows of these that were dropped.
    pub num_dropped_rows: u64,
}

/// A row of `streaming_data_gaps`: a part of a source that was lost or skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataGapRow {
    /// Stream that misses it.
    pub stream_name: String,
    /// Pipeline that went on without it.
    pub pipeline: String,
    /// Batch that was planned or read when it was noticed.
    pub batch_id: u64,
    /// When it was noticed.
    pub recorded_at: i64,
    /// Topic and partition, or path.
    pub partition: String,
    /// First missing position, if known.
    pub from_position: Option<String>,
    /// Position after the last missing one, if known.
    pub to_position: Option<String>,
    /// Rows, if known.
    pub num_rows: Option<u64>,
    /// Bytes, if known.
    pub num_bytes: Option<u64>,
    /// What happened, as a sentence.
    pub cause: String,
    /// The option that said to go on.
    pub accepted_by: String,
}

//! What the system tables tell of the running engine: plain rows, copied at one instant.
//!
//! The rows carry the columns of `streaming_queries`, `streaming_pipelines`, `streaming_sources`,
//! `streaming_sinks`, `streaming_state_operators` and `streaming_checkpoints`. Times are
//! microseconds since the epoch.

use std::collections::BTreeMap;

/// All status rows at one instant.
#[derive(Debug, Clone, Default)]
pub struct EngineStatus {
    /// a row per view
    pub queries: Vec<QueryStatus>,
    /// a row per pipeline
    pub pipelines: Vec<PipelineStatus>,
    /// a row per source of a pipeline
    pub sources: Vec<SourceStatus>,
    /// a row per sink
    pub sinks: Vec<SinkStatus>,
    /// a row per stateful operator
    pub state_operators: Vec<StateOperatorStatus>,
    /// a row per checkpoint
    pub checkpoints: Vec<CheckpointStatus>,
}

impl EngineStatus {
    /// Puts the names that users know into the place of those that objects are kept under.
    pub(super) fn show_names(&mut self, names: &BTreeMap<String, String>) {
        let show = |kept: &mut String| {
            if let Some(name) = names.get(kept) {
                kept.clone_from(name);
            }
        };
        let retell = |text: &mut Option<String>| {
            *text = text.take().map(|text| in_shown_names(&text, names));
        };
        for query in &mut self.queries {
            show(&mut query.stream_name);
            query.message = in_shown_names(&query.message, names);
            retell(&mut query.exception);
            retell(&mut query.hint);
        }
        for source in &mut self.sources {
            show(&mut source.source_name);
            retell(&mut source.last_error);
        }
        for sink in &mut self.sinks {
            show(&mut sink.sink_name);
            retell(&mut sink.last_error);
        }
        for operator in &mut self.state_operators {
            show(&mut operator.stream_name);
        }
    }
}

/// A text with the names that users know, where it has quoted ones that objects are kept under.
pub(super) fn in_shown_names(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut parts = text.split('"');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    // Between an odd quote and the next is a name; after that, text again.
    for (index, part) in parts.enumerate() {
        let is_name = index % 2 == 0;
        let name = names.get(part).filter(|_| is_name);
        shown.push('"');
        shown.push_str(name.map_or(part, String::as_str));
    }
    shown
}

/// `streaming_queries`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct QueryStatus {
    pub stream_name: String,
    pub pipeline: String,
    /// one of the statuses that `sql.md` lists
    pub status: &'static str,
    pub last_batch_id: Option<u64>,
    pub is_trigger_active: bool,
    pub is_data_available: bool,
    pub message: String,
    pub exception: Option<String>,
    pub exception_sqlstate: Option<String>,
    pub hint: Option<String>,
    pub since_at_us: i64,
    pub progress_percent: Option<f64>,
    pub progress_rows: Option<u64>,
}

/// `streaming_pipelines`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct PipelineStatus {
    pub pipeline: String,
    pub pipeline_id: String,
    pub run_id: String,
    pub status: &'static str,
    pub trigger: String,
    pub checkpoint_location: String,
    pub last_batch_id: Option<u64>,
    pub restarts: u64,
    pub next_retry_at_us: Option<i64>,
    pub watermark_at_us: Option<i64>,
    pub state_memory_bytes: u64,
    pub state_disk_bytes: u64,
}

/// `streaming_sources`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct SourceStatus {
    pub pipeline: String,
    pub source_name: String,
    pub description: String,
    pub start_offset: Option<String>,
    pub end_offset: Option<String>,
    pub latest_offset: Option<String>,
    pub backlog_rows: Option<u64>,
    pub backlog_bytes: Option<u64>,
    pub num_input_rows: u64,
    pub input_rows_per_second: Option<f64>,
    pub processed_rows_per_second: Option<f64>,
    pub last_data_at_us: Option<i64>,
    pub last_error: Option<String>,
}

/// `streaming_files`; asked for by itself, since they are many.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct FileStatus {
    pub stream_name: String,
    pub pipeline: String,
    /// `pending`, `waiting`, `failed`, `committed` or `skipped`
    pub state: &'static str,
    pub file: crate::connectors::KnownFile,
}

/// `streaming_sinks`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct SinkStatus {
    pub sink_name: String,
    pub pipeline: String,
    pub description: String,
    pub last_batch_id: Option<u64>,
    pub num_output_rows: u64,
    pub last_error: Option<String>,
}

/// `streaming_state_operators`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct StateOperatorStatus {
    pub pipeline: String,
    pub stream_name: String,
    pub operator_name: String,
    pub detail: String,
    pub incremental: bool,
    pub num_rows_total: u64,
    pub num_rows_updated: u64,
    pub num_rows_removed: u64,
    pub memory_bytes: u64,
    pub retention: String,
    /// What ends it; `None`: stateless.
    pub bound: Option<crate::dataflow::operator::StateBound>,
}

/// `streaming_checkpoints`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct CheckpointStatus {
    pub pipeline: String,
    pub location: String,
    pub first_batch_id: Option<u64>,
    pub last_batch_id: Option<u64>,
    pub bytes: u64,
    pub files: u64,
    pub last_commit_at_us: Option<i64>,
    pub missing_batches: u64,
    pub health: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_are_shown_as_users_know_them() {
        let names = BTreeMap::from([("old".to_owned(), "new".to_owned())]);
        let text = "\"old\" is gone: \"old \" and old stay, \"older\" too, and \"old\"";
        assert_eq!(
            in_shown_names(text, &names),
            "\"new\" is gone: \"old \" and old stay, \"older\" too, and \"new\""
        );
        assert_eq!(in_shown_names("", &names), "");
    }
}

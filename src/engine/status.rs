//! What the system tables tell of the running engine: plain rows, copied at one instant.
//!
//! The rows carry the columns of `streaming_queries`, `streaming_pipelines`, `streaming_sources`,
//! `streaming_sinks`, `streaming_state_operators` and `streaming_checkpoints`. Times are
//! microseconds since the epoch.

use std::collections::BTreeMap;

use crate::sql::names::quote_identifier;

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
    /// Names pipelines in statements by views and sinks, where their names mean others.
    pub(super) fn name_members(&mut self, members: &BTreeMap<String, String>) {
        for query in &mut self.queries {
            query.message = naming_members(&query.message, members);
            query.hint = query.hint.take().map(|h| naming_members(&h, members));
        }
    }

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
            // An index is an operator of its view.
            if operator.detail == "index" {
                show(&mut operator.operator_name);
            }
        }
    }
}

/// A text with the names that users know, in the place of those that objects are kept under: of quoted ones, unless it
/// says of them that they are another thing's, and of those in statements, after a keyword.
pub(super) fn in_shown_names(text: &str, names: &BTreeMap<String, String>) -> String {
    /// Before the name of what cannot be renamed, or is within a relation.
    const OF_OTHERS: &[&str] = &["pipeline", "OF", "column", "COLUMN", "field", "constraint"];
    const KEYWORDS: &[&str] = &["STREAM", "TABLE", "VIEW", "INDEX", "SINK"];
    let is_quoted = |before: &str| !OF_OTHERS.contains(&before);
    with_names(text, names, is_quoted, |before| KEYWORDS.contains(&before))
}

/// A text whose statements name pipelines by views and sinks, where the names of these pipelines mean others.
pub fn naming_members(text: &str, members: &BTreeMap<String, String>) -> String {
    const KEYWORDS: &[&str] = &["OF", "DIAGNOSE", "CHECK"];
    let is_named = |before: &str| KEYWORDS.contains(&before);
    with_names(text, members, is_named, is_named)
}

/// A text with other names, quoted or not, where the word before them says that they are such.
fn with_names(
    text: &str,
    names: &BTreeMap<String, String>,
    is_quoted: impl Fn(&str) -> bool,
    is_bare: impl Fn(&str) -> bool,
) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = String::new();
    // Between an odd quote and the next is a name; after that, text again.
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            shown.push('"');
        }
        if index % 2 == 1 {
            let name = names.get(part).filter(|_| is_quoted(&before));
            shown.push_str(name.map_or(part, String::as_str));
            before.clear();
            continue;
        }
        for word in part.split_inclusive(' ') {
            let bare = word.trim_end_matches([' ', ';', ',', '.']);
            match names.get(bare).filter(|_| is_bare(&before)) {
                Some(name) => {
                    shown.push_str(&quote_identifier(name));
                    shown.push_str(&word[bare.len()..]);
                }
                None => shown.push_str(word),
            }
            bare.clone_into(&mut before);
        }
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
        let others = "pipeline \"old\" has no field \"old\"";
        assert_eq!(in_shown_names(others, &names), others);
    }

    #[test]
    fn statements_name_pipelines_by_what_is_in_them() {
        let members = [("v", "w"), ("Q", "a b")];
        let members = members.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let text = "pipeline \"v\" failed: RESET CHECKPOINT OF v FROM EARLIEST; DIAGNOSE v; REBUILD STATE OF \"Q\";";
        assert_eq!(
            naming_members(text, &members),
            "pipeline \"v\" failed: RESET CHECKPOINT OF w FROM EARLIEST; DIAGNOSE w; REBUILD STATE OF \"a b\";"
        );
    }

    #[test]
    fn statements_name_what_users_know() {
        let names = [("old", "new"), ("b", "a b"), ("Q", "q")];
        let names = names.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let text = "ALTER STREAM old ADD COLUMN old text; ALTER VIEW \"Q\" RENAME COLUMN \"Q\" TO old; DROP SINK b; STREAM b";
        assert_eq!(
            in_shown_names(text, &names),
            "ALTER STREAM new ADD COLUMN old text; ALTER VIEW \"q\" RENAME COLUMN \"Q\" TO old; DROP SINK \"a b\"; STREAM \"a b\""
        );
    }
}

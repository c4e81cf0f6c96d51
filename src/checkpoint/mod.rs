//! Checkpoints: what makes a batch survive.
//!
//! The only module that reads or writes a checkpoint location. Layout:
//!
//! ```text
//! <location>/metadata          JSON: id, pipeline, format version, plan fingerprint
//! <location>/offsets/N         "v1", a metadata JSON line, one JSON line per source, checksum line
//! <location>/commits/N         "v1", JSON: next watermark, row counts, metrics, checksum of the manifest
//! <location>/state/N.run       sorted immutable run of batch N (or N1-N2.run: a merge of runs)
//! <location>/state/N.manifest  the runs that make up the state at batch N, with checksums
//! <location>/sources/K/N       what a file source has seen
//! <location>/lease             who writes here
//! ```
//!
//! Writes are whole or absent: locally write, fsync, rename, fsync the folder; on an object store
//! one put, conditional where it fences. Decisions (is this checkpoint sound, where to resume,
//! what to retain, what to merge) are pure functions in [`decide`]; the clock and faults are
//! injected.

pub mod blob;
pub mod decide;
pub mod fault;
pub mod format;
mod large_file;
pub mod lease;
pub mod leftover;
pub mod load;
pub mod local;
pub mod location;
mod merge;
pub mod object;
mod open;
pub mod recovery;
pub mod relocate;
mod retain;
pub mod source_log;
pub mod taking_over;

pub use load::{LoadedRun, RunLoader};
pub(crate) use location::archive_label;
pub use location::{
    Checkpoint, CheckpointStats, Expectation, Identity, PendingState, Resume, ResumePoint,
};
pub use open::CheckpointLocation;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::connectors::SourceRange;

/// The entry of the offset log that fixes a batch's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OffsetEntry {
    /// Batch.
    pub batch_id: u64,
    /// Wall time of the batch, microseconds since the epoch; what `now()` means in it.
    pub batch_at_us: i64,
    /// Largest event time of each watermarked input that the batch's watermark was made of.
    pub watermarks_us: BTreeMap<String, i64>,
    /// The pipeline's watermark that this batch applies, in the unit of its event times.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// What it applies to views whose inputs came into the pipeline when that had gone further, until
    /// they have caught up with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub view_watermarks: BTreeMap<String, Option<i64>>,
    /// Settings that change what the batch computes.
    pub settings: BTreeMap<String, String>,
    /// Exact range of each source, by source name; a source with nothing new is absent.
    pub sources: BTreeMap<String, SourceRange>,
}

/// The setting of an entry that lists, as JSON, the sinks that the batch was delivered to; absent while a
/// batch was only planned.
const SINKS_SETTING: &str = "sinks";

impl OffsetEntry {
    /// The watermark that the batch applies to a view.
    pub fn watermark_of(&self, view: &str) -> Option<i64> {
        let own = self.view_watermarks.get(view);
        own.copied().unwrap_or(self.watermark)
    }

    /// Whether the batch goes to a sink: one that joined after it, when it ran first, gets nothing of it
    /// when it runs again.
    pub fn goes_to(&self, sink: &str) -> bool {
        let listed = self.settings.get(SINKS_SETTING);
        let listed = listed.and_then(|json| serde_json::from_str::<Vec<String>>(json).ok());
        listed.is_none_or(|sinks| sinks.iter().any(|name| name == sink))
    }
}

/// The entry of the commit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommitEntry {
    /// Batch.
    pub batch_id: u64,
    /// Watermark that the next batch applies, by input relation; microseconds.
    pub next_watermarks_us: BTreeMap<String, i64>,
    /// The pipeline's watermark that this batch applied.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// The batch has closed what a watermark closes that its own rows made; the next batch applies
    /// at least this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_until: Option<i64>,
    /// The watermarks of views that are behind it after this batch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub view_watermarks: BTreeMap<String, Option<i64>>,
    /// Largest event time seen so far, by input relation; microseconds.
    pub event_time_max_us: BTreeMap<String, i64>,
    /// Position of every source after this batch.
    pub source_offsets: BTreeMap<String, crate::connectors::SourceOffset>,
    /// Position of every source where its first batch began: what a view that joins later is filled
    /// from.
    #[serde(default)]
    pub initial_offsets: BTreeMap<String, crate::connectors::SourceOffset>,
    /// Sinks that have had their view's whole contents.
    #[serde(default)]
    pub sinks: std::collections::BTreeSet<String>,
    /// Views that have state as of this batch (a view of the pipeline that is not here has yet to
    /// be filled from its inputs' beginning), with the fingerprint of their plan.
    pub views: BTreeMap<String, String>,
    /// Rows of `streaming_metrics_log` for this batch, one per view, as JSON objects.
    pub metrics: Vec<serde_json::Value>,
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_damage;
#[cfg(test)]
mod tests_fuzz;
#[cfg(test)]
mod tests_merge;

//! Beginning a checkpoint anew, and computing its state anew. What was there is moved aside first.
//!
//! ```text
//!   all files, metadata last ─► archive │ sources write their logs │ offsets/N+1 ─► metadata (from here on it counts)
//! ```
//!
//! Batches are numbered on: the first batch of the new checkpoint is the one after the newest that was
//! ever known, so that no batch of the history, and none that a sink has seen, comes twice under one
//! number. Its planned entry fixes where each source begins. Cut short anywhere, the same statement
//! brings it to its end.

use std::collections::BTreeMap;

use super::apply::Held;
use super::rebuild::{self, Rebuild};
use super::survey::Survey;
use crate::checkpoint::OffsetEntry;
use crate::checkpoint::format::{self, Metadata, OffsetFile};
use crate::connectors::{SourceOffset, SourceRange};
use crate::crash_point::crash_point;
use crate::error::{Error, Result, sqlstate};

/// What was moved aside, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    /// Path or URL.
    pub location: String,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Held {
    pub(super) async fn archive_files(
        &self,
        survey: &Survey,
        paths: Vec<String>,
    ) -> Result<Archived> {
        let label = self.label();
        let sizes = paths.iter().filter_map(|path| survey.files.get(path));
        let archived = Archived {
            location: self.archive_path(&label),
            files: paths.len() as u64,
            bytes: sizes.sum(),
        };
        // One part after the other: a crash leaves what still says that there was more.
        for part in paths.chunk_by(|a, b| rank(a) == rank(b)) {
            self.set_aside(part, &label).await?;
            crash_point("reset_archiving");
        }
        Ok(archived)
    }

    /// Moves the whole checkpoint aside; the lease stays.
    pub async fn archive_all(&self, survey: &Survey) -> Result<Archived> {
        let mut paths: Vec<String> = survey
            .files
            .keys()
            .filter(|path| *path != "lease")
            .cloned()
            .collect();
        paths.sort_by_key(|path| rank(path));
        self.archive_files(survey, paths).await
    }

    /// Writes into the entries of batches that will run again which sinks they went to.
    pub(super) async fn note_sinks(&self, survey: &Survey, from: Option<u64>) -> Result<()> {
        let name = self.shared.identity.name();
        let files = rebuild::with_sinks(survey, from).map_err(|why| {
            Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("batches cannot run again: {why}"),
            )
            .hint(format!(
                "Run RESET CHECKPOINT OF {name} to start again; its sinks get every row anew."
            ))
        })?;
        let files = files.into_iter().map(|file| {
            let path = format!("offsets/{}", file.entry.batch_id);
            (path, bytes::Bytes::from(file.encode()))
        });
        self.shared.lease.check().await?;
        self.shared.store.put_all(files.collect()).await
    }

    /// Makes the old state and what stands on it give way to a computation from the sources.
    pub async fn give_up_state(&self, survey: &Survey, rebuild: &Rebuild) -> Result<Archived> {
        let is_kept = |path: &str| match rebuild {
            Rebuild::Replay { .. } => false,
            Rebuild::Fill(commit) => path == format!("commits/{}", commit.entry.batch_id),
        };
        if let Rebuild::Fill(commit) = rebuild {
            let path = format!("commits/{}", commit.entry.batch_id);
            let file = rebuild::unfilled(commit, self.epoch());
            let bytes = format::encode_one(&file).into();
            self.shared.lease.check().await?;
            self.shared.store.put_all(vec![(path, bytes)]).await?;
        }
        if matches!(rebuild, Rebuild::Replay { .. }) {
            self.note_sinks(survey, None).await?;
        }
        crash_point("rebuild_unfilled");
        let mut paths: Vec<String> = survey
            .files
            .keys()
            .filter(|path| path.starts_with("state/") || path.starts_with("commits/"))
            .filter(|path| !is_kept(path))
            .cloned()
            .collect();
        paths.sort_by_key(|path| rank(path));
        self.archive_files(survey, paths).await
    }
}

/// The order in which parts are moved aside: what says whose it is goes last.
pub(super) fn rank(path: &str) -> u8 {
    match path.split_once('/') {
        Some(("state" | "sources", _)) => 0,
        Some(_) => 1,
        None => 2,
    }
}

/// Writes the beginning of a new checkpoint: the first batch, whose planned input is nothing, at the
/// sources' positions. A source without one begins where its options say.
pub async fn begin_again(
    held: &Held,
    first_batch_id: u64,
    positions: BTreeMap<String, SourceOffset>,
) -> Result<()> {
    let shared = &held.shared;
    let now_us = shared.clock.now_us();
    let file = OffsetFile {
        pipeline_id: shared.identity.pipeline_id,
        epoch: held.epoch(),
        entry: OffsetEntry {
            batch_id: first_batch_id,
            batch_at_us: now_us,
            watermarks_us: BTreeMap::new(),
            watermark: None,
            view_watermarks: BTreeMap::new(),
            settings: BTreeMap::new(),
            sources: positions
                .into_iter()
                .map(|(source, start)| {
                    let end = start.clone();
                    (source, SourceRange { start, end })
                })
                .collect(),
        },
    };
    let metadata = Metadata::of(&shared.identity, now_us, first_batch_id);
    let path = format!("offsets/{first_batch_id}");
    held.write(&path, file.encode().into()).await?;
    crash_point("reset_planned");
    held.write("metadata", metadata.encode().into()).await
}

impl Survey {
    /// The number that a checkpoint which begins anew here counts from; never 0, which is that of one
    /// whose sources begin where their options say.
    pub fn next_first_batch(&self) -> u64 {
        self.newest_batch().map_or(1, |newest| newest + 1)
    }

    /// An error unless the location is this pipeline's, or nobody's.
    pub fn require_own(&self) -> Result<()> {
        match self.verdict() {
            crate::checkpoint::decide::Decision::Stop(
                stop @ (crate::checkpoint::decide::Stop::Foreign { .. }
                | crate::checkpoint::decide::Stop::NewerFormat(_)),
            ) => Err(stop.to_error(&self.identity.pipeline_name, &self.location)),
            _ if !self.foreign_ids.is_empty() => Err(Error::damaged(format!(
                "checkpoint location \"{}\" holds files of another pipeline",
                self.location
            ))
            .hint("Give the pipeline a location of its own with ALTER PIPELINE … SET (checkpoint_location = '…').")),
            _ => Ok(()),
        }
    }
}

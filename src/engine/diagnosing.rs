//! Looking at a checkpoint from beside its pipeline, and copying it: neither waits for a batch.
//!
//! A pipeline that runs, rests or cannot open is looked at in the same way: its files are read as they
//! lie, and each source is asked whether it still has what comes next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Engine;
use super::opening::open_relation;
use super::recovery::{Recovered, Recovery};
use super::restoring::{Backup, back_up};
use super::shared::{Command, PipelineShared};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::local::room_at;
use crate::checkpoint::recovery::{Depth, Entry, PartReport, Survey, diagnose, guide_json};
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::connectors::{SourceOffset, SourceRange};
use crate::error::{Error, Result, sqlstate};

/// How long a source may take to answer.
const SOURCE_PATIENCE: Duration = Duration::from_secs(3);

/// A share of the disk's room below which there is a warning, as its divisor.
const ROOM_DIVISOR: u64 = 20;

/// What `DIAGNOSE CHECKPOINT` tells.
#[derive(Debug, Clone)]
pub struct CheckpointDiagnosis {
    /// A row per part.
    pub parts: Vec<PartReport>,
    /// The shape of the guide's `diagnose_checkpoint()`.
    pub guide: Value,
}

impl Engine {
    fn pipeline_named(&self, name: &str) -> Result<Arc<PipelineShared>> {
        self.pipeline(name).ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("pipeline \"{name}\" does not exist"),
            )
            .hint("SHOW PIPELINES;")
        })
    }

    /// Runs a recovery statement on a pipeline at its next batch border.
    pub async fn recover(&self, pipeline: &str, work: Recovery) -> Result<Recovered> {
        let shared = self.pipeline_named(pipeline)?;
        let work = Box::new(work);
        shared.ask(|reply| Command::Recover(work, reply)).await
    }

    /// Where a pipeline's checkpoint lies, and whose it should be.
    pub(super) fn place_of(&self, pipeline: &str) -> Result<(Arc<dyn BlobStore>, Identity)> {
        let shared = self.pipeline_named(pipeline)?;
        let definition = self.inner.parts.definitions.pipeline(pipeline);
        let options = definition.map(|d| d.options).unwrap_or_default();
        let location = self.checkpoint_location(pipeline, &options)?;
        let identity = Identity {
            pipeline_id: shared.id,
            pipeline_name: pipeline.to_owned(),
            fingerprint: String::new(),
        };
        let store = CheckpointLocation::store(&location, &BTreeMap::new())?;
        Ok((store, identity))
    }

    /// Looks at a checkpoint, whether its pipeline runs or not.
    pub async fn diagnose_checkpoint(&self, pipeline: &str) -> Result<CheckpointDiagnosis> {
        let (store, identity) = self.place_of(pipeline)?;
        let history = &self.inner.parts.history;
        let mut known = history.known_batch(pipeline, identity.pipeline_id);
        let mut survey = Survey::take(&store, &identity, known, Depth::Quick).await?;
        let mut parts = self.parts_of(&survey);
        if parts.iter().any(|part| part.repair.is_some()) {
            // A file may have come or gone while others were read: only what stays is a finding.
            known = history.known_batch(pipeline, identity.pipeline_id);
            survey = Survey::take(&store, &identity, known, Depth::Quick).await?;
            parts = self.parts_of(&survey);
        }
        self.add_holder(pipeline, &mut parts)?;
        self.add_sources(&survey, &mut parts).await;
        add_room(&survey, &mut parts);
        Ok(CheckpointDiagnosis {
            parts,
            guide: guide_json(&survey),
        })
    }

    fn parts_of(&self, survey: &Survey) -> Vec<PartReport> {
        diagnose(survey, Depth::Quick, self.inner.parts.clock.now_us())
    }

    /// On a local disk a lock holds the lease, whatever its time says.
    fn add_holder(&self, pipeline: &str, parts: &mut [PartReport]) -> Result<()> {
        let shared = self.pipeline_named(pipeline)?;
        let is_open = !matches!(*shared.status.borrow(), "starting" | "failed");
        if let Some(lease) = parts.iter_mut().find(|part| part.part == "lease")
            && lease.status == "free"
            && lease.count == Some(1)
            && is_open
        {
            lease.status = "held";
        }
        Ok(())
    }

    /// What the sources themselves say of the positions where the pipeline goes on.
    async fn add_sources(&self, survey: &Survey, parts: &mut [PartReport]) {
        let Some(part) = parts.iter_mut().find(|part| part.part == "sources") else {
            return;
        };
        let positions: BTreeMap<String, SourceOffset> = match survey.newest_commit() {
            Some(commit) => commit.entry.source_offsets.clone(),
            None => {
                let planned = survey.offsets.values().rev().find_map(Entry::whole);
                let sources = planned.map(|file| file.entry.sources.clone());
                let starts = sources.unwrap_or_default().into_iter();
                starts.map(|(name, range)| (name, range.start)).collect()
            }
        };
        part.count = Some(positions.len() as u64);
        for (relation, position) in positions {
            let told = tokio::time::timeout(SOURCE_PATIENCE, self.ask_source(&relation, &position));
            let trouble = match told.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some((
                    error.primary().to_owned(),
                    error.hint_text().map(str::to_owned),
                )),
                Err(_) => Some(("it does not answer".to_owned(), None)),
            };
            let mut sentence = format!("{relation} at {}", position.0);
            if let Some((why, hint)) = trouble {
                sentence = format!("{sentence}: {why}");
                if part.status == "ok" {
                    part.status = "warning";
                }
                part.repair = part.repair.take().or(hint);
            }
            if !part.detail.is_empty() {
                part.detail.push(' ');
            }
            part.detail.push_str(&sentence);
            part.detail.push('.');
        }
    }

    async fn ask_source(&self, relation: &str, position: &SourceOffset) -> Result<()> {
        let parts = &self.inner.parts;
        let object = parts
            .definitions
            .object(relation)
            .ok_or_else(|| super::planning::unknown(relation))?;
        let (source, _) = open_relation(parts, &object, None, 0)?;
        source.check_position(position).await?;
        let range = SourceRange {
            start: position.clone(),
            end: position.clone(),
        };
        source.check_range(&range).await
    }

    /// Copies the newest batch of a checkpoint to `to`, or below the data directory's `backups`.
    pub async fn back_up(&self, pipeline: &str, to: Option<&str>) -> Result<Backup> {
        let (store, identity) = self.place_of(pipeline)?;
        let to = match to {
            Some(to) => to.to_owned(),
            None => self.default_backup(pipeline),
        };
        let target = CheckpointLocation::store(&to, &BTreeMap::new())?;
        back_up(&store, &target, &identity).await
    }

    fn default_backup(&self, pipeline: &str) -> String {
        let parts = &self.inner.parts;
        let label = crate::checkpoint::archive_label(&parts.clock);
        let folder = parts
            .data_dir
            .join("backups")
            .join(super::opening::file_name(pipeline));
        folder.join(label).to_string_lossy().into_owned()
    }
}

fn add_room(survey: &Survey, parts: &mut [PartReport]) {
    let Some(part) = parts.iter_mut().find(|part| part.part == "disk") else {
        return;
    };
    let Some(room) = room_at(&survey.location) else {
        return;
    };
    if room.free_bytes < room.total_bytes / ROOM_DIVISOR {
        part.status = "warning";
    }
    let sentence = format!(
        " {} of {} bytes of the disk are free.",
        room.free_bytes, room.total_bytes
    );
    part.detail.push_str(&sentence);
}

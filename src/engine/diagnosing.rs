//! Looking at a checkpoint from beside its pipeline: nobody waits for a batch.
//!
//! A pipeline that runs, rests or cannot open is looked at in the same way: its files are read as they
//! lie, and each source is asked whether it still has what comes next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Engine;
use super::recovery::{Recovered, Recovery};
use super::resetting::ranges_of;
use super::shared::{Command, PipelineShared};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::local::room_at;
use crate::checkpoint::recovery::{
    Depth, Entry, PartReport, Survey, diagnose, guide_json, plan_rebuild,
};
use crate::checkpoint::source_log::LogReader;
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::connectors::{self, SourceOffset, SourceRange, SourceRef};
use crate::error::{Error, Result, sqlstate};
use crate::sql::hints::statement_in;
use crate::sql::names::quote_identifier;

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
    pub(super) fn pipeline_named(&self, name: &str) -> Result<Arc<PipelineShared>> {
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
        self.check_rebuild(&survey, &mut parts).await;
        self.add_holder(pipeline, &mut parts)?;
        self.add_sources(&survey, &mut parts).await;
        add_room(&survey, &mut parts);
        Ok(CheckpointDiagnosis {
            parts,
            guide: guide_json(&survey),
        })
    }

    /// A state is to be rebuilt only where the sources still have its input.
    async fn check_rebuild(&self, survey: &Survey, parts: &mut [PartReport]) {
        let names_rebuild = |part: &&mut PartReport| {
            let repair = part.repair.as_deref();
            repair.is_some_and(|repair| repair.starts_with("REBUILD"))
        };
        let Some(part) = parts.iter_mut().find(names_rebuild) else {
            return;
        };
        let Ok(rebuild) = plan_rebuild(survey) else {
            return;
        };
        for (relation, range) in ranges_of(survey, &rebuild) {
            let asked = self.ask_range(survey, &relation, &range);
            let Ok(Err(error)) = tokio::time::timeout(SOURCE_PATIENCE, asked).await else {
                continue;
            };
            let name = quote_identifier(&survey.identity.pipeline_name);
            part.repair = Some(format!("RESET CHECKPOINT OF {name} FROM EARLIEST;"));
            let why = format!(
                " The state cannot be rebuilt: source \"{relation}\" has lost rows: {}.",
                error.primary()
            );
            part.detail.push_str(&why);
            return;
        }
    }

    /// A source beside the pipeline that reads it, with the pipeline's own log of what it has read.
    pub(super) fn source_beside(&self, identity: &Identity, relation: &str) -> Result<SourceRef> {
        let parts = &self.inner.parts;
        let object = parts.definitions.object(relation);
        let object = object.ok_or_else(|| super::planning::unknown(relation))?;
        let (store, _) = self.place_of(&identity.pipeline_name)?;
        let log = LogReader::new(store, identity.clone(), relation);
        let mut environment = parts.connector_environment(Some(Arc::new(log)), 0);
        environment.pipeline = Some(identity.pipeline_name.clone());
        environment.pipeline_id = Some(identity.pipeline_id);
        connectors::open_source(&object, &environment)
    }

    async fn ask_range(&self, survey: &Survey, relation: &str, range: &SourceRange) -> Result<()> {
        let source = self.source_beside(&survey.identity, relation)?;
        source.check_range(range).await
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
            let told = self.ask_source(survey, &relation, &position);
            let trouble = match tokio::time::timeout(SOURCE_PATIENCE, told).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some((
                    error.primary().to_owned(),
                    error.hint_text().and_then(statement_in),
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

    async fn ask_source(
        &self,
        survey: &Survey,
        relation: &str,
        position: &SourceOffset,
    ) -> Result<()> {
        let source = self.source_beside(&survey.identity, relation)?;
        source.check_position(position).await?;
        let range = SourceRange {
            start: position.clone(),
            end: position.clone(),
        };
        source.check_range(&range).await
    }

    /// A pipeline has committed a batch.
    pub fn has_batch(&self, pipeline: &str) -> bool {
        let history = &self.inner.parts.history;
        let shared = self.pipeline(pipeline);
        shared.is_some_and(|shared| {
            let is_published = shared.publication.lock().batch_id.is_some();
            is_published || history.known_batch(pipeline, shared.id).is_some()
        })
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

//! Opening a pipeline that others became part of: their state is taken over from their checkpoints.
//!
//! What is to be taken over the catalog says, until it has been; so this is the same after a crash in the
//! middle as right after the merge (`merging.rs`). How runs come over is the checkpoint's own matter
//! ([`crate::checkpoint::taking_over`]); here is what the commits say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::file_names::file_name;
use super::opening::{location_of, open_relation};
use super::pipeline::{Pipeline, ViewEntry};
use super::settings::PipelineSettings;
use crate::catalog::definition::MergedPipeline;
use crate::catalog::history::HandedOver;
use crate::checkpoint::relocate::is_at;
use crate::checkpoint::taking_over::TakeOver;
use crate::checkpoint::{
    Checkpoint, CheckpointLocation, CommitEntry, Expectation, Identity, OffsetEntry, Resume,
};
use crate::connectors::{SourceOffset, SourceRange};
use crate::error::{Error, Result};
use crate::sql::names::quote_identifier;
use crate::state::{StateStore, TableId};

impl Pipeline {
    /// While the catalog says so: takes over the state of the pipelines that became part of this one.
    pub(super) async fn finish_merges(
        &mut self,
        views: &[ViewEntry],
        tables: &BTreeMap<String, Vec<TableId>>,
    ) -> Result<()> {
        let definition = self.parts.definitions.pipeline(&self.shared.name);
        for merged in definition.map(|d| d.merges).unwrap_or_default() {
            let settings = PipelineSettings::read(&merged.options)?;
            let location = location_of(&self.parts, &merged.name, &settings);
            if is_at(&location, merged.id).await? {
                self.take_over(&merged, &location, views, tables).await?;
                self.event(
                    "merged",
                    json!({ "pipeline": merged.name, "location": location }),
                );
            }
            StateStore::destroy(
                &self
                    .parts
                    .data_dir
                    .join("pipelines")
                    .join(file_name(&merged.name)),
            )?;
        }
        Ok(())
    }

    /// Views of a pipeline that became part of this one are never filled anew in silence, where it had
    /// state and that is gone.
    pub(super) fn require_merged_state(&self, unfilled: &BTreeSet<String>) -> Result<()> {
        let definition = self.parts.definitions.pipeline(&self.shared.name);
        for merged in definition.map(|d| d.merges).unwrap_or_default() {
            let known = self.parts.history.known_batch(&merged.name, merged.id);
            let lost = merged.views.iter().find(|view| unfilled.contains(*view));
            let (Some(batch_id), Some(view)) = (known, lost) else {
                continue;
            };
            let settings = PipelineSettings::read(&merged.options)?;
            let location = location_of(&self.parts, &merged.name, &settings);
            return Err(Error::damaged(format!(
                "state of materialized view \"{view}\" is gone: pipeline \"{}\" was to become part of \"{}\", and its \
                 checkpoint is not there",
                merged.name, self.shared.name
            ))
            .detail(format!("It was at \"{location}\", at batch {batch_id}."))
            .hint(format!(
                "Put it back, then START PIPELINE {name}; or RESET CHECKPOINT OF {name} FROM EARLIEST computes all views \
                 of the pipeline anew.",
                name = quote_identifier(&self.shared.name)
            )));
        }
        Ok(())
    }

    async fn take_over(
        &mut self,
        merged: &MergedPipeline,
        location: &str,
        views: &[ViewEntry],
        tables: &BTreeMap<String, Vec<TableId>>,
    ) -> Result<()> {
        let theirs = Identity {
            pipeline_id: merged.id,
            pipeline_name: merged.name.clone(),
            fingerprint: String::new(),
        };
        let (theirs, resume) = self.open_for_merge(location, theirs).await?;
        let Some(their_last) = last_commit(resume, &merged.name)? else {
            return theirs.archive().await.map(drop);
        };
        self.state = None;
        let own = self.identity_of(views);
        let (own, resume) = self.open_for_merge(&self.location(), own).await?;
        let own = Arc::new(own);
        let before = last_commit(resume, &self.shared.name)?;
        let is_there = before.as_ref().is_some_and(|before| {
            let known = |(view, is): (&String, &String)| before.views.get(view) == Some(is);
            their_last.views.iter().all(known)
        });
        if !is_there {
            let first_batch = before
                .as_ref()
                .map_or(own.first_batch_id(), |c| c.batch_id + 1);
            let batch_id = first_batch + theirs.batches_to_take_over() - 1;
            let before = before.unwrap_or_else(|| CommitEntry::before_any(first_batch));
            let mut commit = before.and(&their_last, batch_id);
            for relation in their_last.source_offsets.keys() {
                let handed = HandedOver {
                    from: &merged.name,
                    to: &self.shared.name,
                    batch_id,
                    is_read_by_both: before.source_offsets.contains_key(relation),
                };
                self.parts.history.hand_over_letters(relation, &handed);
            }
            for (relation, position) in &their_last.source_offsets {
                if !before.source_offsets.contains_key(relation) {
                    let position = self.position_over(&own, &theirs, relation, position, batch_id);
                    commit
                        .source_offsets
                        .insert(relation.clone(), position.await?);
                }
            }
            let work = TakeOver {
                entry: self.entry_of(&commit, &before),
                tables: their_last
                    .views
                    .keys()
                    .filter_map(|view| tables.get(view))
                    .flatten()
                    .copied()
                    .collect(),
                commit,
                before,
            };
            own.take_over(&theirs, first_batch, &work).await?;
        }
        own.end_take_over(theirs).await?;
        Checkpoint::clone(&own).close().await;
        Ok(())
    }

    async fn open_for_merge(
        &self,
        location: &str,
        identity: Identity,
    ) -> Result<(Checkpoint, Resume)> {
        let history = &self.parts.history;
        let expectation = Expectation {
            catalog_batch: history.known_batch(&identity.pipeline_name, identity.pipeline_id),
            cold_batch: None,
        };
        let clock = self.parts.clock.clone();
        CheckpointLocation::open(location, identity, expectation, clock, &BTreeMap::new()).await
    }

    /// Where a source that only the other pipeline read goes on.
    async fn position_over(
        &self,
        own: &Arc<Checkpoint>,
        theirs: &Checkpoint,
        relation: &str,
        position: &SourceOffset,
        batch_id: u64,
    ) -> Result<SourceOffset> {
        let Some(object) = self.parts.definitions.object(relation) else {
            return Ok(position.clone());
        };
        let retain = self.settings.min_batches_to_retain as usize;
        let (source, _) = open_relation(
            &self.parts,
            &object,
            Some(own.pipeline_id()),
            Some(own),
            retain,
        )?;
        let log = theirs.source_log(relation);
        source.take_over(batch_id, position, &*log).await
    }

    /// The input of the batch that commits `commit`: nothing, at the positions where new sources stand.
    fn entry_of(&self, commit: &CommitEntry, before: &CommitEntry) -> OffsetEntry {
        let new = commit.source_offsets.iter();
        let new = new.filter(|(relation, _)| !before.source_offsets.contains_key(*relation));
        OffsetEntry {
            batch_id: commit.batch_id,
            batch_at_us: self.parts.clock.now_us(),
            watermarks_us: commit.event_time_max_us.clone(),
            watermark: commit.watermark,
            view_watermarks: commit.view_watermarks.clone(),
            settings: BTreeMap::new(),
            sources: new
                .map(|(relation, at)| {
                    let (start, end) = (at.clone(), at.clone());
                    (relation.clone(), SourceRange { start, end })
                })
                .collect(),
        }
    }
}

/// The last commit of a checkpoint that was left at a batch border.
fn last_commit(resume: Resume, pipeline: &str) -> Result<Option<CommitEntry>> {
    let Resume::At(point) = resume else {
        return Ok(None);
    };
    let last = point.last_commit.as_ref().map(|c| c.batch_id);
    if point.newest_commit > last {
        return Err(Error::damaged(format!(
            "state of pipeline \"{pipeline}\" is older than its last batch, and it was to be merged"
        ))
        .detail(format!(
            "The state is of batch {}.",
            last.map_or("none".to_owned(), |n| n.to_string())
        )));
    }
    Ok(point.last_commit)
}

impl CommitEntry {
    /// What is known before the first batch.
    fn before_any(batch_id: u64) -> Self {
        Self {
            batch_id,
            next_watermarks_us: BTreeMap::new(),
            watermark: None,
            closed_until: None,
            view_watermarks: BTreeMap::new(),
            event_time_max_us: BTreeMap::new(),
            source_offsets: BTreeMap::new(),
            initial_offsets: BTreeMap::new(),
            sinks: BTreeSet::new(),
            views: BTreeMap::new(),
            metrics: Vec::new(),
        }
    }

    /// This and what another pipeline's last commit says, as batch `batch_id`; positions of sources that
    /// only the other has are left out. The watermark is the later one: what it closed stays closed; the
    /// views of the pipeline that was behind stay at theirs until they have caught up.
    fn and(&self, other: &Self, batch_id: u64) -> Self {
        let mut both = self.clone();
        both.batch_id = batch_id;
        let closed = |commit: &Self| commit.watermark.max(commit.closed_until);
        both.watermark = closed(self).max(closed(other));
        both.closed_until = both.watermark;
        both.view_watermarks.extend(other.view_watermarks.clone());
        for behind in [self, other] {
            if closed(behind) < both.watermark {
                for view in behind.views.keys() {
                    let known = both.view_watermarks.entry(view.clone());
                    known.or_insert(closed(behind));
                }
            }
        }
        for (mine, theirs) in [
            (&mut both.next_watermarks_us, &other.next_watermarks_us),
            (&mut both.event_time_max_us, &other.event_time_max_us),
        ] {
            for (relation, at) in theirs {
                let known = mine.entry(relation.clone()).or_insert(*at);
                *known = (*known).max(*at);
            }
        }
        for (relation, at) in &other.initial_offsets {
            let known = both.initial_offsets.entry(relation.clone());
            known.or_insert_with(|| at.clone());
        }
        both.sinks.extend(other.sinks.iter().cloned());
        let theirs = other.views.iter();
        both.views
            .extend(theirs.map(|(view, known)| (view.clone(), known.clone())));
        both
    }
}

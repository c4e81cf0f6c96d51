//! Going back: `RESTORE`, `REWIND`.
//!
//! A backup is a checkpoint like any other, so that a checkpoint's own older copy restores as well. What
//! would keep the copy from opening is found before anything of the checkpoint moves.

use std::sync::Arc;

use super::pipeline::Pipeline;
use super::recovery::{Recovered, Step, archived_step, steps_json};
use super::sinks::SinkEntry;
use crate::checkpoint::CheckpointLocation;
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{Depth, Survey, restorable};
use crate::crash_point::crash_point;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::{quote_identifier, quote_literal};
use crate::sql::recovery::RewindTo;

/// The blobs of a backup.
fn backup_at(location: &str) -> Result<Arc<dyn BlobStore>> {
    if location.is_empty() {
        let text = "the location of the backup is empty";
        let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, text);
        return Err(error.hint(WHERE_BACKUPS_ARE));
    }
    CheckpointLocation::store(location, &Default::default())
}

fn nothing_there(location: &str) -> Error {
    let text = format!("there is no backup at \"{location}\"");
    Error::new(sqlstate::UNDEFINED_FILE, text)
        .detail("No file lies there.")
        .hint(WHERE_BACKUPS_ARE)
}

const WHERE_BACKUPS_ARE: &str = "SELECT pipeline, location, batch_id FROM streaming_backups;";

impl Pipeline {
    fn not_restorable(&self, survey: &Survey, what: &str) -> Error {
        let batches = survey.restorable_batches();
        let error = Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!(
                "pipeline \"{}\" cannot go back to {what} at \"{}\"",
                self.shared.name, survey.location
            ),
        );
        match (batches.first(), batches.last()) {
            (Some(first), Some(last)) => error.detail(format!(
                "{} batches from {first} to {last} can be gone back to.",
                batches.len()
            )),
            _ => error.detail("No batch there can be gone back to."),
        }
    }

    fn cannot_run_again(&self, batch_id: u64) -> Error {
        let name = &self.shared.name;
        Error::damaged(format!(
            "pipeline \"{name}\" cannot go back before batch {batch_id}: its offset entry cannot be read"
        ))
        .detail("What that batch took in is told by nothing else, and it would have to run again.")
        .hint(format!(
            "REPAIR CHECKPOINT OF {}; writes the entry anew where its neighbours prove it.",
            quote_identifier(name)
        ))
    }

    pub(super) async fn rewind(&mut self, to: RewindTo) -> Result<Recovered> {
        let held = self.hold().await?;
        let survey = held.survey(self.known_batch(), Depth::Quick).await?;
        survey.require_own()?;
        let target = match to {
            RewindTo::Batch(batch_id) => restorable(&survey, batch_id)
                .ok_or_else(|| self.not_restorable(&survey, &format!("batch {batch_id}")))?,
            RewindTo::Before(at_us) => survey
                .restorable_before(at_us)
                .and_then(|batch_id| restorable(&survey, batch_id))
                .ok_or_else(|| self.not_restorable(&survey, "a batch before this time"))?,
        };
        let last = survey.offsets.keys().next_back().copied();
        if let Some(gap) = last.and_then(|last| survey.offset_gap(target.state_batch_id, last)) {
            return Err(self.cannot_run_again(gap));
        }
        if let Some(why) = survey.source_log_gap(target.state_batch_id) {
            let name = &self.shared.name;
            return Err(Error::damaged(format!(
                "pipeline \"{name}\" cannot go back to batch {}: {why}",
                target.batch_id
            ))
            .detail("Only this file tells which files the batch read. Nothing was changed.")
            .hint(format!(
                "DIAGNOSE CHECKPOINT OF {};",
                quote_identifier(name)
            )));
        }
        let archived = held.rewind(&survey, target.batch_id).await?;
        self.keep_shown(last.unwrap_or(target.batch_id));
        let mut steps = vec![
            archived_step(&self.location(), &archived),
            Step::new("goes back", format!("batch {}", target.batch_id), ""),
        ];
        if let Some(last) = last.filter(|last| *last > target.state_batch_id) {
            steps.push(Step::new(
                "runs again",
                format!("batches {} to {last}", target.state_batch_id + 1),
                "Each batch takes in exactly what it took in before.",
            ));
        }
        for sink in &self.sink_objects {
            let detail = "It gets these batches again, each under its number.";
            steps.push(Step::new("delivers again", &sink.name, detail));
        }
        self.event("rewound", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    /// Puts a copy in the place of the checkpoint. The copy may be the checkpoint itself, older than
    /// the catalog knows it: then it is only accepted as it is. Nothing moves before the copy was read
    /// whole and found to open, and before each sink has said what it would take back.
    pub(super) async fn restore(&self, from: &str, batch_id: Option<u64>) -> Result<Recovered> {
        let source = backup_at(from)?;
        let held = self.hold().await?;
        let own = held.survey(self.known_batch(), Depth::Quick).await?;
        let is_own = source.describe() == own.location;
        let identity = self.identity().await;
        let copy = match is_own {
            true => own.clone(),
            false => Survey::take(&source, &identity, None, Depth::Full).await?,
        };
        if copy.files.is_empty() {
            return Err(nothing_there(from));
        }
        let batch_id = self.choose_restored(&copy, batch_id)?;
        let deliveries = self.deliveries_after(batch_id).await?;
        let archived = match is_own {
            true => held.cut_after(&own, batch_id).await?,
            false => held.archive_all(&own).await?,
        };
        let mut steps = vec![
            archived_step(&self.location(), &archived),
            Step::new(
                "restored",
                format!("batch {batch_id}"),
                format!("from {from}"),
            ),
        ];
        // While the checkpoint is one that does not open: cut short, nothing goes on with half of them.
        crash_point("restore_archived");
        self.take_back(deliveries, &mut steps).await?;
        crash_point("restore_taken_back");
        if !is_own {
            let now_us = self.parts.clock.now_us();
            held.copy_back(&source, &copy, batch_id, now_us).await?;
        }
        // From here on the older batch is the newest that is known.
        let history = &self.parts.history;
        history.record_known_batch(&self.shared.name, self.shared.id, batch_id);
        for sink in &self.sink_objects {
            let detail =
                format!("It gets the batches after {batch_id} anew, under the same numbers.");
            steps.push(Step::new("delivers again", &sink.name, detail));
        }
        self.event("restored", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    /// The batch to restore of a copy that opens as of it.
    fn choose_restored(&self, copy: &Survey, batch_id: Option<u64>) -> Result<u64> {
        copy.require_own()?;
        let newest = copy.restorable_batches().last().copied();
        let target = batch_id
            .or(newest)
            .filter(|batch_id| restorable(copy, *batch_id).is_some())
            .ok_or_else(|| {
                let what = batch_id.map_or("any batch".to_owned(), |n| format!("batch {n}"));
                self.not_restorable(copy, &what)
            })?;
        let Some(why) = copy.why_unusable_at(target) else {
            return Ok(target);
        };
        let error = Error::damaged(format!(
            "checkpoint at \"{}\" cannot be restored as of batch {target}: {why}",
            copy.location
        ))
        .detail("Nothing was changed.");
        Err(match copy.newest_usable() {
            Some(usable) => error.hint(format!(
                "RESTORE CHECKPOINT OF {} FROM {} AT BATCH {usable};",
                quote_identifier(&self.shared.name),
                quote_literal(&copy.location)
            )),
            None => error.hint(format!("Choose another backup: {WHERE_BACKUPS_ARE}")),
        })
    }

    /// What each sink has of batches after `batch_id`. They will be other batches: what is left of the old
    /// ones would stand beside the new.
    async fn deliveries_after(&self, batch_id: u64) -> Result<Vec<(SinkEntry, Vec<String>)>> {
        let mut all = Vec::new();
        for entry in self.sinks_at_rest().await? {
            let later = entry.sink.deliveries_after(self.shared.id, batch_id);
            let later = later
                .await
                .map_err(|e| e.context(format!("sink \"{}\"", entry.name)))?;
            if !later.is_empty() {
                all.push((entry, later));
            }
        }
        Ok(all)
    }

    async fn take_back(
        &self,
        deliveries: Vec<(SinkEntry, Vec<String>)>,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let label = crate::checkpoint::archive_label(&self.parts.clock);
        for (entry, later) in deliveries {
            let moved = entry.sink.take_back(&later, &label).await;
            let archive = moved.map_err(|e| e.context(format!("sink \"{}\"", entry.name)))?;
            let detail = match later.len() {
                1 => format!("1 delivery moved to {archive}"),
                deliveries => format!("{deliveries} deliveries moved to {archive}"),
            };
            steps.push(Step::new("taken back", &entry.name, detail));
        }
        Ok(())
    }
}

//! Feeding a batch: from the sources' chunks, and from what a new view is filled with, to the
//! thread that owns the dataflow.
//!
//! Reading is asynchronous and ahead by a bounded number of chunks; computing is synchronous and
//! has a thread of its own. What is fed, and in which order, depends on the batch's ranges alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use super::decide;
use super::evolving::FoundFields;
use super::filling::{FillStep, Filling};
use super::intake::{IntakeCounts, SourceSlot};
use super::metrics::Stopwatch;
use super::opening::Opened;
use super::parts::EngineParts;
use super::receivers::Receivers;
use super::shared::{Doing, PipelineShared};
use crate::checkpoint::OffsetEntry;
use crate::connectors::evolution::UnknownFields;
use crate::connectors::{SourceOffset, SourceRange};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::graph::{BatchResult, Dataflow};
use crate::dataflow::operator::BatchContext;
use crate::error::{Error, ErrorKind, Result};

/// What goes to the thread that owns the dataflow.
pub(super) enum Feed {
    Push(String, ChangeBatch),
    Fill(String, String, ChangeBatch),
    /// That was all.
    End(BatchEnd),
}

/// What is known once all of a batch was read.
pub(super) enum BatchEnd {
    /// Of the views without state more is to come.
    Partial,
    /// The batch is whole; with the watermark that the next one applies at least.
    Whole(Option<i64>),
}

/// Everything that was counted while a batch was read.
#[derive(Default)]
pub(super) struct Intake {
    /// The state is closed up to here: see [`CommitEntry::closed_until`].
    ///
    /// [`CommitEntry::closed_until`]: crate::checkpoint::CommitEntry::closed_until
    pub closed_until: Option<i64>,
    pub per_relation: BTreeMap<String, IntakeCounts>,
    pub fill_rows: BTreeMap<String, u64>,
    pub dead_letters: u64,
    /// Rows with fields that no column takes, and rows of which something was rescued.
    pub unknown_field_rows: u64,
    pub rescued_rows: u64,
    /// Fields that their stream must have columns for before the batch can commit.
    pub new_fields: Option<FoundFields>,
    pub bytes: u64,
}

impl Intake {
    /// Rows by relation.
    pub fn rows_by_relation(&self) -> BTreeMap<String, u64> {
        self.per_relation
            .iter()
            .map(|(r, c)| (r.clone(), c.rows))
            .collect()
    }
}

/// The dataflow's thread: takes what is fed until the end mark, then finishes the batch. Without
/// the end mark, or on an error, the operators go back to the last committed state.
pub(super) fn work(
    mut dataflow: Dataflow,
    mut feeds: mpsc::Receiver<Feed>,
    context: &BatchContext,
) -> (Dataflow, Result<BatchResult>) {
    let fill_context = BatchContext {
        watermark: None,
        next_watermark: None,
        ..context.clone()
    };
    let mut outcome = Err(given_up());
    while let Some(feed) = feeds.blocking_recv() {
        let step = match feed {
            Feed::Push(relation, change) => dataflow.push(&relation, change, context),
            Feed::Fill(view, relation, change) => {
                dataflow.push_to(&view, &relation, change, &fill_context)
            }
            // No window closes before all of its rows have come.
            Feed::End(BatchEnd::Partial) => {
                outcome = dataflow.finish_part(&fill_context);
                break;
            }
            Feed::End(BatchEnd::Whole(next_watermark)) => {
                outcome = dataflow.finish(&BatchContext {
                    next_watermark,
                    ..context.clone()
                });
                break;
            }
        };
        if let Err(e) = step {
            outcome = Err(e);
            break;
        }
    }
    if outcome.is_err() {
        dataflow.reset();
    }
    (dataflow, outcome)
}

/// One batch's feeding.
pub(super) struct Feeding<'a> {
    pub opened: &'a Opened,
    pub shared: &'a PipelineShared,
    pub parts: &'a EngineParts,
    /// The pipeline's bound on event times ahead of the clock, microseconds; a stream's own comes
    /// first.
    pub skew_us: Option<i64>,
    pub sender: mpsc::Sender<Feed>,
    pub intake: Intake,
}

impl Feeding<'_> {
    /// Feeds the views to be filled, then the batch's ranges, in the order of the relations' names.
    /// True: the views are not filled whole yet.
    pub async fn all(
        &mut self,
        entry: &OffsetEntry,
        step: FillStep,
        filling: &mut Option<Filling>,
        watch: &mut Stopwatch,
    ) -> Result<bool> {
        let opened = self.opened;
        let is_partial = match (step, filling) {
            (FillStep::Part(rows_max), Some(filling)) => self.fill(filling, rows_max).await?,
            (FillStep::Whole, Some(filling)) => self.fill(filling, u64::MAX).await?,
            (FillStep::Clear, _) => true,
            _ => false,
        };
        for slot in &opened.slots {
            if let Some(range) = entry.sources.get(&slot.relation) {
                self.source(slot, range, entry, watch).await?;
            }
        }
        Ok(is_partial)
    }

    /// Feeds a range of a source.
    async fn source(
        &mut self,
        slot: &SourceSlot,
        range: &SourceRange,
        entry: &OffsetEntry,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let skew_us = slot.max_future_skew_us.or(self.skew_us);
        if slot.decodes_text {
            let (stream, pipeline) = (&slot.relation, &self.shared.name);
            let history = &self.parts.history;
            history.forget_batch_letters(stream, pipeline, entry.batch_id);
        }
        let mut chunks = slot
            .source
            .read_range(entry.batch_id, range, slot.read_columns())
            .await?;
        let mut first = true;
        let mut unknown = UnknownFields::default();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            self.took(chunk.changes.num_rows());
            self.intake.bytes += chunk.bytes;
            unknown.merge(chunk.unknown);
            if std::mem::take(&mut first) {
                watch.lap(|p| &mut p.get_batch);
            }
            if !chunk.dead_letters.is_empty() {
                self.intake.dead_letters += chunk.dead_letters.len() as u64;
                self.parts.history.record_dead_letters(
                    &slot.relation,
                    &self.shared.name,
                    entry.batch_id,
                    &chunk.dead_letters,
                );
            }
            let (change, counts) = slot.take_in(chunk.changes, entry.batch_at_us, skew_us)?;
            let of_relation = self.intake.per_relation.entry(slot.relation.clone());
            of_relation.or_default().merge(counts);
            if !change.is_empty() {
                self.send(Feed::Push(slot.relation.clone(), change)).await?;
            }
        }
        if first {
            watch.lap(|p| &mut p.get_batch);
        }
        self.intake.unknown_field_rows += unknown.rows;
        self.intake.rescued_rows += unknown.rescued_rows;
        if unknown.fields.is_empty() {
            return Ok(());
        }
        let known = self.opened.newest_commit.max(self.known_batch());
        if decide::stops_for_fields(slot.evolution, entry.batch_id, known) {
            self.intake.new_fields = Some(FoundFields {
                relation: slot.relation.clone(),
                fields: unknown.fields,
            });
            return Err(given_up());
        }
        Ok(())
    }

    /// The newest batch that the catalog knows to be committed.
    fn known_batch(&self) -> Option<u64> {
        let shared = self.shared;
        self.parts.history.known_batch(&shared.name, shared.id)
    }

    /// Feeds views without state; true: more is left than `rows_max`.
    async fn fill(&mut self, filling: &mut Filling, rows_max: u64) -> Result<bool> {
        let mut rows = 0;
        while rows < rows_max {
            let Some((view, input, change)) = filling.next(self.opened).await? else {
                return Ok(false);
            };
            rows += change.num_rows() as u64;
            self.fill_with(&view, &input, change).await?;
        }
        Ok(true)
    }

    async fn fill_with(&mut self, view: &str, input: &str, change: ChangeBatch) -> Result<()> {
        self.took(change.num_rows());
        *self.intake.fill_rows.entry(view.to_owned()).or_default() += change.num_rows() as u64;
        self.send(Feed::Fill(view.to_owned(), input.to_owned(), change))
            .await
    }

    /// Says that rows have come.
    fn took(&self, rows: usize) {
        self.shared.beat(Doing::Reading, self.parts.clock.now_us());
        self.shared.advance(rows as u64);
    }

    async fn send(&self, feed: Feed) -> Result<()> {
        // The worker closed its end: its own error says why.
        self.sender.send(feed).await.map_err(|_| given_up())
    }
}

fn given_up() -> Error {
    Error::with_kind(
        ErrorKind::Cancelled,
        crate::error::sqlstate::QUERY_CANCELED,
        "the batch was given up",
    )
}

impl Opened {
    /// Only a source that cannot be reached is waited for; any other trouble is told and stops, or as that of a source
    /// that refuses us has all be opened anew.
    pub(super) fn stop_for_broken_source(&self) -> Result<()> {
        let mut errors = self
            .slots
            .iter()
            .filter_map(|slot| slot.last_error.as_ref());
        match errors.find(|e| e.kind() != ErrorKind::Transient || decide::opens_anew(e)) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Asks every source for its latest position, at one instant for those that lie in the durable
    /// log, so that a transaction over several relations is in one batch. A source that cannot be
    /// reached tells so in its slot and has nothing new.
    pub(super) async fn look_for_data(&mut self, parts: &EngineParts, receivers: &Receivers) {
        let log_end = parts.log.end();
        let asked = self.slots.iter().map(|slot| {
            let source = Arc::clone(&slot.source);
            let reads_log = slot.reads_log;
            async move {
                if reads_log {
                    Ok(SourceOffset(serde_json::json!({ "commit": log_end })))
                } else {
                    source.latest_offset().await
                }
            }
            .boxed()
        });
        let answers = futures::future::join_all(asked).await;
        for (slot, answer) in self.slots.iter_mut().zip(answers) {
            match answer {
                Ok(latest) => {
                    slot.backlog = slot.source.backlog(&slot.position, &latest);
                    slot.latest = Some(latest);
                    // What a receiver has logged is there to be read all the same.
                    slot.last_error = receivers.trouble(&slot.relation);
                }
                Err(e) => {
                    slot.latest = None;
                    slot.last_error = Some(e);
                }
            }
        }
    }
}

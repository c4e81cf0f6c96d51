//! Feeding a batch: from the sources' chunks, and from what a new view is filled with, to the
//! thread that owns the dataflow.
//!
//! Reading is asynchronous and ahead by a bounded number of chunks; computing is synchronous and
//! has a thread of its own. What is fed, and in which order, depends on the batch's ranges alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use super::intake::IntakeCounts;
use super::metrics::Stopwatch;
use super::opening::Opened;
use super::receivers::Receivers;
use super::shared::{Doing, PipelineShared};
use crate::checkpoint::OffsetEntry;
use crate::connectors::{SourceOffset, SourceRange};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::graph::{BatchResult, Dataflow};
use crate::dataflow::operator::BatchContext;
use crate::error::{Error, ErrorKind, Result};

/// Rows per batch when a view's stored contents fill another view.
const FILL_BATCH_ROWS: usize = 8192;

/// What goes to the thread that owns the dataflow.
pub(super) enum Feed {
    Push(String, ChangeBatch),
    Fill(String, String, ChangeBatch),
}

/// Everything that was counted while a batch was read.
#[derive(Default)]
pub(super) struct Intake {
    pub per_relation: BTreeMap<String, IntakeCounts>,
    pub fill_rows: BTreeMap<String, u64>,
    pub dead_letters: u64,
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
    mut feeds: mpsc::Receiver<Option<Feed>>,
    context: &BatchContext,
) -> (Dataflow, Result<BatchResult>) {
    let fill_context = BatchContext {
        watermark: None,
        ..context.clone()
    };
    let mut outcome = Err(Error::with_kind(
        ErrorKind::Cancelled,
        crate::error::sqlstate::QUERY_CANCELED,
        "the batch was given up",
    ));
    while let Some(feed) = feeds.blocking_recv() {
        let step = match feed {
            Some(Feed::Push(relation, change)) => dataflow.push(&relation, change, context),
            Some(Feed::Fill(view, relation, change)) => {
                dataflow.push_to(&view, &relation, change, &fill_context)
            }
            None => {
                outcome = dataflow.finish(context);
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

/// Feeds the views to be filled, then the batch's ranges, in the order of the relations' names.
#[allow(clippy::too_many_arguments)]
pub(super) async fn feed_all(
    opened: &Opened,
    shared: &PipelineShared,
    parts: &super::parts::EngineParts,
    entry: &OffsetEntry,
    skew_us: Option<i64>,
    sender: &mpsc::Sender<Option<Feed>>,
    intake: &mut Intake,
    watch: &mut Stopwatch,
) -> Result<()> {
    for (view, relation) in &opened.fills {
        fill(opened, view, relation, shared, parts, sender, intake).await?;
    }
    for slot in &opened.slots {
        let Some(range) = entry.sources.get(&slot.relation) else {
            continue;
        };
        let mut chunks = slot
            .source
            .read_range(entry.batch_id, range, slot.read_columns())
            .await?;
        let mut first = true;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            shared.beat(Doing::Reading, parts.clock.now_us());
            shared.advance(chunk.changes.num_rows() as u64);
            intake.bytes += chunk.bytes;
            if std::mem::take(&mut first) {
                watch.lap(|p| &mut p.get_batch);
            }
            if !chunk.dead_letters.is_empty() {
                intake.dead_letters += chunk.dead_letters.len() as u64;
                parts.history.record_dead_letters(
                    &slot.relation,
                    &shared.name,
                    entry.batch_id,
                    &chunk.dead_letters,
                );
            }
            let skew_us = slot.max_future_skew_us.or(skew_us);
            let (change, counts) = slot.take_in(chunk.changes, entry.batch_at_us, skew_us)?;
            intake
                .per_relation
                .entry(slot.relation.clone())
                .or_default()
                .merge(counts);
            if change.is_empty() {
                continue;
            }
            send(sender, Feed::Push(slot.relation.clone(), change)).await?;
        }
        if first {
            watch.lap(|p| &mut p.get_batch);
        }
    }
    Ok(())
}

async fn send(sender: &mpsc::Sender<Option<Feed>>, feed: Feed) -> Result<()> {
    sender.send(Some(feed)).await.map_err(|_| {
        // The worker closed its end: its own error says why.
        Error::with_kind(
            ErrorKind::Cancelled,
            crate::error::sqlstate::QUERY_CANCELED,
            "the batch was given up",
        )
    })
}

/// Feeds one input of a new view from its beginning to the last committed position: a relation
/// from its source, a view of this pipeline from its stored rows.
async fn fill(
    opened: &Opened,
    view: &str,
    relation: &super::opening::FillInput,
    shared: &PipelineShared,
    parts: &super::parts::EngineParts,
    sender: &mpsc::Sender<Option<Feed>>,
    intake: &mut Intake,
) -> Result<()> {
    match relation {
        super::opening::FillInput::Stored { name, reader } => {
            let rows = reader.all_rows(&opened.state.snapshot(), FILL_BATCH_ROWS)?;
            for batch in rows {
                let batch = batch?;
                shared.beat(Doing::Reading, parts.clock.now_us());
                shared.advance(batch.num_rows() as u64);
                *intake.fill_rows.entry(view.to_owned()).or_default() += batch.num_rows() as u64;
                send(
                    sender,
                    Feed::Fill(view.to_owned(), name.clone(), ChangeBatch::inserts(batch)),
                )
                .await?;
            }
        }
        super::opening::FillInput::Source { name } => {
            let slot = opened.slots.iter().find(|s| s.relation == *name);
            let Some(slot) = slot else { return Ok(()) };
            let range = SourceRange {
                start: slot.initial.clone(),
                end: slot.position.clone(),
            };
            if range.start == range.end {
                return Ok(());
            }
            let all: Vec<usize> = (0..slot.schema.fields().len()).collect();
            let mut chunks = slot
                .source
                .read_range(opened.next_batch_id(), &range, &all)
                .await?;
            while let Some(chunk) = chunks.next().await {
                let changes = chunk?.changes;
                shared.beat(Doing::Reading, parts.clock.now_us());
                shared.advance(changes.num_rows() as u64);
                *intake.fill_rows.entry(view.to_owned()).or_default() += changes.num_rows() as u64;
                send(sender, Feed::Fill(view.to_owned(), name.clone(), changes)).await?;
            }
        }
    }
    Ok(())
}

impl Opened {
    /// Only a source that cannot be reached is waited for; any other trouble is told and stops.
    pub(super) fn stop_for_broken_source(&self) -> Result<()> {
        let mut errors = self
            .slots
            .iter()
            .filter_map(|slot| slot.last_error.as_ref());
        match errors.find(|e| e.kind() != ErrorKind::Transient) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Asks every source for its latest position, at one instant for those that lie in the durable
    /// log, so that a transaction over several relations is in one batch. A source that cannot be
    /// reached tells so in its slot and has nothing new.
    pub(super) async fn look_for_data(
        &mut self,
        parts: &super::parts::EngineParts,
        receivers: &Receivers,
    ) {
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

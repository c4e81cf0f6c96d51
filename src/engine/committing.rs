//! Committing a computed batch, beside the computing of the next one.
//!
//! ```text
//!   batch N    compute ─► sinks ─► apply in memory ─┬─► state + manifest ─► commits/N ─► settle: publish, metrics, retention
//!   batch N+1                                       └─► plan ─► offsets ─► compute ─► (waits for settle of N) ─► sinks ─► …
//! ```
//!
//! The next batch starts from the state in memory that batch N left, but nobody sees anything of N,
//! and nothing of N + 1 goes out, before `commits/N` is on disk. One commit is on its way at a time.
//! If it fails, all that is open is dropped and opened again from what is on disk: the offset log
//! then replays both batches. Deliberately absent: a longer queue of commits, which would only
//! delay what readers see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::batch::BatchOutcome;
use super::feeding::Intake;
use super::filling::waits_for_whole;
use super::metrics::{BatchFigures, Stopwatch, ViewFigures, metrics_rows};
use super::pipeline::Pipeline;
use super::shared::ViewReader;
use crate::checkpoint::{Checkpoint, CommitEntry, OffsetEntry, PendingState};
use crate::crash_point::crash_point;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::graph::BatchResult;
use crate::error::{Error, Result};
use crate::state::{Run, StateSnapshot};

/// Bytes of changes after which the state is persisted before its time.
const UNPERSISTED_BYTES_MAX: usize = 64 << 20;

/// A batch whose commit is being written.
pub(super) struct Committing {
    task: JoinHandle<Result<Written>>,
    entry: OffsetEntry,
    /// What readers see once it is durable.
    snapshot: StateSnapshot,
    view_changes: BTreeMap<String, Vec<ChangeBatch>>,
    /// Views that the batch holds.
    filled: BTreeSet<String>,
    /// Sinks that it was delivered to.
    sinks: BTreeSet<String>,
    /// Replaced views that it fills.
    switched: BTreeMap<String, ViewReader>,
    /// Rows and bytes that it took in.
    taken: (u64, u64),
}

impl Committing {
    /// Waits until it is written or has failed.
    pub async fn finish(self) {
        self.task.await.ok();
    }
}

/// The changes of committed batches that the checkpoint's state does not have yet: the offset log
/// gives them again after a restart.
#[derive(Default)]
pub(super) struct Unpersisted {
    runs: Vec<Arc<Run>>,
    bytes: usize,
    /// When the oldest was added.
    since: Option<Duration>,
}

impl Unpersisted {
    /// The checkpoint has it all.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a batch's changes. What is to be persisted now: all, once `interval` has passed since
    /// the oldest or they take too much memory, else nothing. Without an interval each batch is.
    fn add(&mut self, run: Arc<Run>, interval: Option<Duration>, now: Duration) -> Vec<Arc<Run>> {
        self.bytes += run.bytes();
        self.runs.push(run);
        let since = *self.since.get_or_insert(now);
        let may_wait = interval.is_some_and(|interval| now < since + interval);
        if may_wait && self.bytes < UNPERSISTED_BYTES_MAX {
            return Vec::new();
        }
        let all = std::mem::take(self);
        all.runs
    }
}

/// What the task that writes a commit knows at its end.
struct Written {
    figures: BatchFigures,
    watch: Stopwatch,
    views: BTreeMap<String, ViewFigures>,
}

/// What is written.
struct CommitWork {
    checkpoint: Arc<Checkpoint>,
    /// The changes since the state was last persisted, oldest first; empty: not yet.
    runs: Vec<Arc<Run>>,
    commit: CommitEntry,
    figures: BatchFigures,
    watch: Stopwatch,
    views: BTreeMap<String, ViewFigures>,
}

impl CommitWork {
    /// Makes the batch durable: state and manifest, then the commit entry.
    async fn write(mut self) -> Result<Written> {
        let batch_id = self.commit.batch_id;
        let state = one_of(&self.runs).map(|run| PendingState::encode(batch_id, &run));
        self.watch.lap(|p| &mut p.state_commit);
        self.figures.checkpoint_bytes = state.as_ref().map_or(0, PendingState::bytes);
        // The commit's own time is not known before it is written; the metrics log gets the
        // measured figures later, and these only if the process ends in between.
        self.commit.metrics = metrics_rows(&self.figures, &self.watch.phases, &self.views);
        self.checkpoint
            .commit_batch(state.as_ref(), &self.commit)
            .await?;
        self.watch.lap(|p| &mut p.commit_offsets);
        crash_point("after_commit");
        Ok(Written {
            figures: self.figures,
            watch: self.watch,
            views: self.views,
        })
    }
}

/// The runs as one.
fn one_of(runs: &[Arc<Run>]) -> Option<Arc<Run>> {
    match runs {
        [] => None,
        [run] => Some(Arc::clone(run)),
        runs => {
            let newest_first: Vec<&Run> = runs.iter().rev().map(AsRef::as_ref).collect();
            Some(Arc::new(Run::merge(&newest_first, false)))
        }
    }
}

impl Pipeline {
    /// Takes a computed and delivered batch into the state in memory and starts to write its
    /// commit. The sources' positions move on, so that the next batch can be planned.
    pub(super) fn start_commit(
        &mut self,
        entry: OffsetEntry,
        result: BatchResult,
        intake: &Intake,
        watch: Stopwatch,
        replayed: bool,
        is_partial: bool,
    ) -> Result<()> {
        let figures = self.batch_figures(&entry, intake, replayed);
        let views = self.view_figures(&result, intake);
        let commit = self.commit_entry(&entry, intake, is_partial);
        let mut filled: BTreeSet<String> = commit.views.keys().cloned().collect();
        if is_partial {
            // What replaced views held is read until they are whole.
            filled.extend(self.switching.keys().cloned());
        }
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let BatchResult {
            run, view_changes, ..
        } = result;
        let run = Arc::new(run);
        let rows = intake.rows_by_relation();
        let taken_rows = rows.values().chain(intake.fill_rows.values()).sum();
        opened.pace.learn_written(taken_rows, run.bytes() as u64);
        // What a new view or sink got is not to be computed again: another batch would fill it.
        let must_persist =
            !opened.fills.is_empty() || self.sinks.iter().any(|s| s.is_new) || self.hold.is_some();
        let interval = self.settings.checkpoint_interval.filter(|_| !must_persist);
        let now = self.parts.clock.monotonic();
        let runs = opened.unpersisted.add(Arc::clone(&run), interval, now);
        // From here on memory is ahead of the disk: an error means to open anew.
        opened.commit_started = true;
        opened
            .state
            .apply_pending(entry.batch_id, Arc::clone(&run))?;
        if let Some(dataflow) = opened.dataflow.as_mut().map(parking_lot::Mutex::get_mut) {
            dataflow.committed();
            if !self.parts.budget.make_room() {
                dataflow.shed_memory();
            }
        }
        opened.accept(
            &commit,
            &entry,
            &intake.rows_by_relation(),
            self.parts.clock.now_us(),
            is_partial,
        );
        let commit_sinks = commit.sinks.clone();
        let work = CommitWork {
            checkpoint: Arc::clone(&opened.checkpoint),
            runs,
            commit,
            figures,
            watch,
            views,
        };
        self.committing = Some(Committing {
            snapshot: opened.state.snapshot(),
            entry,
            view_changes,
            filled,
            switched: match is_partial {
                true => BTreeMap::new(),
                false => std::mem::take(&mut self.switching),
            },
            sinks: commit_sinks,
            taken: (
                intake.per_relation.values().map(|c| c.rows).sum(),
                intake.bytes,
            ),
            task: tokio::spawn(work.write()),
        });
        Ok(())
    }

    fn commit_entry(&self, entry: &OffsetEntry, intake: &Intake, is_partial: bool) -> CommitEntry {
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let event_time_max = opened.event_times_after(intake);
        let mut view_watermarks = entry.view_watermarks.clone();
        if !is_partial && entry.watermark.is_some() {
            // What they were filled with was not late, nor are the rows that follow it.
            let filled = opened.unfilled.iter();
            view_watermarks.extend(filled.map(|view| (view.clone(), None)));
        }
        CommitEntry {
            batch_id: entry.batch_id,
            next_watermarks_us: opened.watermarks_of(&event_time_max),
            watermark: entry.watermark,
            closed_until: intake.closed_until,
            view_watermarks,
            event_time_max_us: event_time_max,
            source_offsets: opened.positions_after(entry),
            initial_offsets: opened.initial_offsets(),
            views: self
                .views
                .iter()
                .filter(|v| !(is_partial && opened.unfilled.contains(&v.object.name)))
                .map(|v| (v.object.name.clone(), v.fingerprint.clone()))
                .collect(),
            sinks: self
                .sinks
                .iter()
                .filter(|s| entry.goes_to(&s.name))
                .filter(|s| !waits_for_whole(opened, &s.view, is_partial))
                .map(|s| s.name.clone())
                .collect(),
            metrics: Vec::new(),
        }
    }

    /// Waits until the commit that is on its way is durable, then shows the batch. Nothing happens
    /// if there is none.
    pub(super) async fn settle(&mut self) -> Result<()> {
        if self.opened.is_none() {
            // All that was open was let go of: what is on disk says what became of the batch.
            self.abandon_commit().await;
            return Ok(());
        }
        let Some(committing) = self.committing.as_mut() else {
            return Ok(());
        };
        // Waited for in place: whoever gives this up leaves the task to be found by the next.
        let written = (&mut committing.task)
            .await
            .map_err(|e| Error::internal(format!("writing the commit ended: {e}")))
            .and_then(|written| written);
        let committing = self.committing.take().expect("it was there a moment ago");
        let written = written?;
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let batch_id = committing.entry.batch_id;
        // From here on the batch is a fact: nothing below may fail it.
        opened.commit_started = false;
        opened.state.confirm(batch_id);
        if let Some(target) = self.settings.max_batch_duration {
            let duration = written.watch.phases.total();
            let sources = opened.slots.len();
            opened
                .pace
                .learn(committing.taken, duration, target, sources);
        }
        for sink in &mut self.sinks {
            sink.is_new &= !committing.sinks.contains(&sink.name);
        }
        crash_point("after_apply");
        if self.shows(batch_id) {
            self.shared.publish(
                committing.snapshot,
                batch_id,
                committing.view_changes,
                committing.filled,
                committing.switched,
            );
        } else {
            self.switching.extend(committing.switched);
            self.shared.pass_over(batch_id);
        }
        let rows = metrics_rows(&written.figures, &written.watch.phases, &written.views);
        let history = &self.parts.history;
        history.record_metrics(&self.shared.name, batch_id, &rows);
        history.record_known_batch(&self.shared.name, self.shared.id, batch_id);
        crash_point("after_metrics");
        self.after_commit(&committing.entry).await;
        crash_point("after_retention");
        Ok(())
    }

    /// Whether readers get to see a batch: while those that a statement made run again come, they keep what
    /// they see. Whoever subscribed meanwhile saw that too, and must begin anew.
    pub(super) fn shows(&mut self, batch_id: u64) -> bool {
        let Some(shown) = self.shown else {
            return true;
        };
        let is_whole = self.opened.as_ref().is_none_or(|o| o.unfilled.is_empty());
        if batch_id < shown || !is_whole {
            return false;
        }
        self.shown = None;
        for object in &self.objects {
            self.shared.end_subscriptions(&object.name);
        }
        true
    }

    /// Gives up a commit that is on its way, before what it writes to is closed.
    pub(super) async fn abandon_commit(&mut self) {
        if let Some(committing) = self.committing.take() {
            committing.task.abort();
            // What the abort did not reach any more (a file that is being written) is of this
            // opening's epoch: whoever opens the checkpoint next writes over it.
            committing.task.await.ok();
        }
    }

    /// The commit on its way may go on beside the next batch: more input is known to be there and
    /// due, and nobody waits for this batch. The first commit of a checkpoint is waited for, so that
    /// offsets without any commit never mean more than one batch.
    pub(super) fn may_overlap(&self, outcome: BatchOutcome) -> bool {
        let Some(opened) = &self.opened else {
            return false;
        };
        let has_more = !opened.replay.is_empty()
            || opened
                .slots
                .iter()
                .any(|slot| slot.backlog.rows.or(slot.backlog.bytes).unwrap_or(0) > 0);
        outcome == BatchOutcome::Committed
            && opened.newest_commit > Some(opened.first_batch)
            && opened.fills.is_empty()
            && has_more
            && self.hold.is_none()
            && self.is_trigger_due()
            && !self.waits_for_reached()
    }

    /// Acknowledges to the sources and lets the checkpoint forget what is too old. What fails here
    /// is told and tried again after the next batch.
    async fn after_commit(&mut self, entry: &OffsetEntry) {
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        for slot in &opened.slots {
            let Some(range) = entry.sources.get(&slot.relation) else {
                continue;
            };
            if let Err(e) = slot.source.acknowledge(entry.batch_id, &range.end).await {
                tracing::warn!(pipeline = %self.shared.name, source = %slot.relation, error = %e, "could not acknowledge");
            }
        }
        let shared = Arc::clone(&self.shared);
        opened.checkpoint.retain_beside(
            self.settings.min_batches_to_retain,
            opened.state.cold_batch(),
            move || shared.is_being_copied(),
        );
        self.tell_notices();
        self.refresh_board();
    }
}

//! One batch: choose the range, log it, run it, commit it.
//!
//! ```text
//!  latest ─► plan ranges ─► offsets/N ─┬─► read ─► dataflow (own thread) ─► sinks ─► state + manifest ─► commits/N ─► apply, publish
//!                                      └─ synced while the batch runs; awaited before any effect
//! ```
//!
//! Until `commits/N` is written nothing of the batch is visible; an error before that leaves the
//! planned range in `replay`, and the next try runs exactly it. From the state on it is the work
//! of `committing`, which may go on beside the next batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::decide::{self, WaitingSource};
use super::feeding::{BatchEnd, Feed, Feeding, Intake, work};
use super::filling::waits_for_whole;
use super::metrics::{BatchFigures, Stopwatch, ViewFigures};
use super::pipeline::{Pipeline, ViewEntry};
use super::shared::Doing;
use crate::catalog::definition::Definition;
use crate::checkpoint::OffsetEntry;
use crate::connectors::Delivery;
use crate::crash_point::crash_point;
use crate::dataflow::graph::BatchResult;
use crate::dataflow::operator::BatchContext;
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, ErrorKind, Result};

/// Chunks that may wait between reading and computing: enough to overlap them, few enough to bound memory.
const CHUNKS_IN_FLIGHT: usize = 2;

/// What came of looking for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// A batch was committed.
    Committed,
    /// Nothing is there.
    Idle,
    /// A planned batch failed on a row and is planned anew: look again at once.
    Unplanned,
    /// A stream has gained columns for what its records hold: the planned batch runs again at once.
    Evolved,
}

impl Pipeline {
    /// Looks for data and runs one batch, if there is a reason for one: rows, a batch to replay, a
    /// view to fill, or windows to close.
    pub(super) async fn run_batch(&mut self) -> Result<BatchOutcome> {
        let outcome = self.run_next().await;
        if outcome.as_ref().is_ok_and(|o| self.may_overlap(*o)) {
            return outcome;
        }
        // What comes next looks at what is committed.
        self.settle().await?;
        if matches!(outcome, Ok(BatchOutcome::Idle))
            && let Some(opened) = &self.opened
        {
            self.shared.renew_snapshot(opened.state.snapshot());
        }
        outcome
    }

    async fn run_next(&mut self) -> Result<BatchOutcome> {
        let mut watch = Stopwatch::start(&self.parts.clock);
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let planned = opened.replay.front().cloned();
        let replayed = planned.is_some();
        if !replayed {
            opened.look_for_data(&self.parts, &self.receivers).await;
            opened.stop_for_broken_source()?;
            self.tell_sources();
        }
        watch.lap(|p| &mut p.latest_offset);

        let entry = match planned {
            Some(entry) => entry,
            None => match self.plan_batch().await? {
                Some(entry) => entry,
                None => {
                    self.tell_notices();
                    return Ok(BatchOutcome::Idle);
                }
            },
        };
        self.tell_notices();
        watch.lap(|p| &mut p.query_planning);
        self.tell_active(&entry);

        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let checkpoint = Arc::clone(&opened.checkpoint);
        self.logging = if replayed {
            None
        } else {
            let entry = entry.clone();
            let checkpoint = Arc::clone(&checkpoint);
            crash_point("before_offsets");
            Some(tokio::spawn(async move {
                checkpoint.write_offsets(&entry).await
            }))
        };
        watch.lap(|p| &mut p.wal_commit);

        let computed = self.compute(&entry, &mut watch).await;
        if let Some(logging) = &mut self.logging {
            let logged = logging
                .await
                .map_err(|e| Error::internal(format!("writing the offset log ended: {e}")));
            self.logging = None;
            if let Err(e) = logged.and_then(|written| written) {
                // The range is not fixed: the next try plans anew.
                self.undo_batch();
                self.is_at_checkpoint = true;
                return Err(e);
            }
            let opened = self.opened.as_mut().expect("a running pipeline is open");
            opened.replay.push_front(entry.clone());
        }
        let (result, mut intake, is_partial) = match computed {
            Ok(computed) => computed,
            Err(e) => {
                let opened = self.opened.as_mut().expect("a running pipeline is open");
                return match opened.new_fields.take() {
                    Some(found) => self.evolve(&entry, found).await,
                    None => self.unplan(&entry, e, replayed),
                };
            }
        };
        watch.lap(|p| &mut p.wal_commit);
        crash_point("after_offsets");
        // Nothing of this batch goes out before the last one is durable.
        self.settle().await?;
        watch.lap(|p| &mut p.commit_offsets);
        if let Err(e) = self.deliver(&entry, &result, replayed, is_partial).await {
            self.undo_batch();
            return Err(e);
        }
        watch.lap(|p| &mut p.add_batch);
        crash_point("after_sinks");
        // Whatever comes now, the batch runs again as it is: what is told of it stays true.
        self.tell_rows(&entry, &result, &intake);
        let of_receivers = self.receivers_counts();
        intake.dead_letters += of_receivers.dead_letters;
        intake.unknown_field_rows += of_receivers.unknown_field_rows;
        self.beat(Doing::Committing);
        self.start_commit(entry, result, &intake, watch, replayed, is_partial)?;
        Ok(BatchOutcome::Committed)
    }

    /// What an error of the computation leaves of the planned batch. One that was planned before
    /// this try is planned anew at once: the row may be mended by now.
    fn unplan(&mut self, entry: &OffsetEntry, e: Error, replayed: bool) -> Result<BatchOutcome> {
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let planned = opened.replay.len();
        if !decide::may_plan_anew(&e, entry.batch_id, opened.newest_commit, planned) {
            return Err(e);
        }
        opened.replay.clear();
        opened.failed_on_row = true;
        if replayed {
            Ok(BatchOutcome::Unplanned)
        } else {
            Err(e)
        }
    }

    /// A batch that was computed does not commit: the operators go back to the last committed state.
    fn undo_batch(&mut self) {
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        if let Some(dataflow) = opened.dataflow.as_mut().map(Mutex::get_mut) {
            dataflow.reset();
        }
    }

    /// Chooses the ranges of the next batch; `None`: there is no reason for one.
    async fn plan_batch(&mut self) -> Result<Option<OffsetEntry>> {
        let now_us = self.parts.clock.now_us();
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let only_fills = self.only_fills(opened);
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        // A clock that was set back brings no row back that `now()` has let go.
        let batch_at_us = now_us.max(opened.last_batch_at_us.unwrap_or(now_us));
        let batch_id = opened.next_batch_id();
        let mut sources = BTreeMap::new();
        let written_bytes = opened.pace.written_bytes();
        let of_memory = decide::limits_of_memory(self.parts.budget.limit_bytes(), written_bytes);
        let waiting = opened.slots.iter().map(|slot| WaitingSource {
            watermarked: slot.watermark.is_some(),
            rows: slot.backlog.rows,
        });
        let shares = decide::shares(&waiting.collect::<Vec<_>>());
        let sources_count = opened.slots.len() as f64;
        for (slot, share) in opened.slots.iter().zip(shares) {
            let latest = match &self.hold {
                // What views without state are filled with stands still meanwhile.
                _ if only_fills => None,
                Some(hold) => hold.targets.get(&slot.relation),
                None => slot.latest.as_ref(),
            };
            let Some(latest) = latest else { continue };
            if slot.reads_log && slot.backlog.rows == Some(0) {
                // Commits of other relations are no reason for a batch.
                continue;
            }
            let stricter = super::settings::stricter;
            // Memory is as large for each of several sources.
            let of_memory = decide::part_of(of_memory, share * sources_count);
            let limits = if opened.failed_on_row && !slot.source.is_append_only() {
                of_memory
            } else {
                let told = stricter(slot.limits, self.settings.limits);
                let paced = decide::part_of(opened.pace.limits(), share);
                stricter(stricter(told, paced), of_memory)
            };
            let range = slot
                .source
                .plan_range(batch_id, &slot.position, latest, &limits)
                .await?;
            if let Some(range) = range {
                sources.insert(slot.relation.clone(), range);
            }
        }
        let watermark = opened.next_watermark(&self.settings, batch_at_us);
        let view_watermarks =
            opened.next_view_watermarks(&self.views, &self.settings, batch_at_us, watermark);
        let closes_windows = opened.closes_windows(watermark, &view_watermarks);
        let fills = !opened.unfilled.is_empty() || self.sinks.iter().any(|s| s.is_new);
        let is_due = opened.due_us().is_some_and(|due| due <= batch_at_us);
        let persists = self.hold.is_some() && !opened.unpersisted.is_empty();
        if sources.is_empty() && !fills && !closes_windows && !is_due && !persists {
            return Ok(None);
        }
        Ok(Some(OffsetEntry {
            batch_id,
            batch_at_us,
            watermarks_us: opened.event_time_max.clone(),
            watermark,
            view_watermarks,
            settings: self.views.iter().filter_map(row_policy_setting).collect(),
            sources,
        }))
    }

    /// Reads the ranges and runs the dataflow over them; true: of views without state more is to come.
    async fn compute(
        &mut self,
        entry: &OffsetEntry,
        watch: &mut Stopwatch,
    ) -> Result<(BatchResult, Intake, bool)> {
        let step = self.prepare_filling(entry)?;
        let pool = self.threads.of(self.settings.state_partitions)?;
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let mut dataflow = opened
            .dataflow
            .take()
            .ok_or_else(|| Error::internal("the dataflow is gone"))?
            .into_inner();
        dataflow.set_on_row_error(|view| {
            let name = entry.settings.get(&row_policy_key(view));
            name.and_then(|name| OnRowError::from_name(name))
                .unwrap_or_default()
        });
        dataflow.set_view_watermarks(&entry.view_watermarks);
        let sinks = &self.sinks;
        let now_us = self.parts.clock.now_us();
        self.shared
            .begin_batch(entry.batch_id, now_us, &mut dataflow, |view| {
                sinks.iter().any(|sink| sink.view == view)
            });
        let context = BatchContext {
            batch_id: entry.batch_id,
            snapshot: opened.state.snapshot(),
            watermark: entry.watermark,
            next_watermark: None,
            now_us: entry.batch_at_us,
            budget: Arc::clone(&self.parts.budget),
        };
        let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let worker = tokio::task::spawn_blocking(move || {
            pool.run(move || work(dataflow, receiver, &context))
        });
        let skew_us = self.settings.max_future_skew.map(|d| d.as_micros() as i64);
        let mut filling = opened.filling.take().map(Mutex::into_inner);
        let mut feeding = Feeding {
            opened,
            shared: &self.shared,
            parts: &self.parts,
            skew_us,
            sender,
            intake: Intake::default(),
        };
        let read = feeding.all(entry, step, &mut filling, watch).await;
        let Feeding {
            sender, mut intake, ..
        } = feeding;
        self.beat(Doing::Computing);
        let new_fields = intake.new_fields.take();
        // Dropping the sender without the end mark makes the worker give the batch up.
        if let Ok(is_partial) = read {
            let end = if is_partial {
                BatchEnd::Partial
            } else {
                let opened = self.opened.as_ref().expect("a running pipeline is open");
                intake.closed_until = opened.watermark_after(entry, &intake, &self.settings);
                BatchEnd::Whole(intake.closed_until)
            };
            sender.send(Feed::End(end)).await.ok();
        }
        drop(sender);
        let (dataflow, result) = worker
            .await
            .map_err(|e| Error::internal(format!("the batch's thread ended: {e}")))?;
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        opened.dataflow = Some(Mutex::new(dataflow));
        opened.new_fields = new_fields;
        watch.lap(|p| &mut p.add_batch);
        // The worker's own error explains a failed send; a reading error explains the rest.
        match (read, result) {
            (Err(e), _) if e.kind() != ErrorKind::Cancelled => Err(e),
            (_, Err(e)) => Err(e),
            (Err(e), Ok(_)) => Err(e),
            (Ok(is_partial), Ok(result)) => {
                opened.filling = filling.map(Mutex::new);
                Ok((result, intake, is_partial))
            }
        }
    }

    /// Hands the batch's changes to the sinks.
    async fn deliver(
        &mut self,
        entry: &OffsetEntry,
        result: &BatchResult,
        replayed: bool,
        is_partial: bool,
    ) -> Result<()> {
        self.beat(Doing::Delivering);
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let delivery = Delivery {
            pipeline_id: self.shared.id,
            batch_id: entry.batch_id,
            replayed,
        };
        let nothing = Vec::new();
        for sink in self.sinks.iter_mut().filter(|s| entry.goes_to(&s.name)) {
            if waits_for_whole(opened, &sink.view, is_partial) {
                continue;
            }
            let changes = result.view_changes.get(&sink.view).unwrap_or(&nothing);
            let mut whole;
            let changes = if sink.is_new && !opened.unfilled.contains(&sink.view) {
                // Of the batch before this one, whatever readers see.
                whole = self
                    .shared
                    .stored_rows(&sink.view, &opened.state.snapshot())?;
                whole.extend(changes.iter().cloned());
                &whole
            } else {
                changes
            };
            let delivered = sink.sink.deliver(&delivery, changes).await;
            match delivered {
                Ok(receipt) => {
                    sink.rows += receipt.rows;
                    sink.last_batch_id = Some(entry.batch_id);
                    sink.last_error = None;
                }
                Err(e) => {
                    sink.last_error = Some(e.clone());
                    return Err(e.context(format!("sink \"{}\"", sink.name)));
                }
            }
        }
        Ok(())
    }

    pub(super) fn batch_figures(
        &self,
        entry: &OffsetEntry,
        intake: &Intake,
        replayed: bool,
    ) -> BatchFigures {
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let sum = |f: fn(&crate::connectors::Backlog) -> Option<u64>| {
            opened
                .slots
                .iter()
                .map(|s| f(&s.backlog))
                .sum::<Option<u64>>()
        };
        let counts = intake.per_relation.values();
        BatchFigures {
            pipeline: self.shared.name.clone(),
            run_id: self.run_id.to_string(),
            batch_id: entry.batch_id,
            batch_started_at_us: entry.batch_at_us,
            since_last_start: opened
                .last_batch_at_us
                .map(|t| Duration::from_micros(entry.batch_at_us.saturating_sub(t).max(0) as u64)),
            expectation_failed_rows: counts
                .clone()
                .flat_map(|c| c.expectations.values())
                .map(|counts| counts.failed)
                .sum(),
            dead_letter_rows: intake.dead_letters,
            unknown_field_rows: intake.unknown_field_rows,
            rescued_rows: intake.rescued_rows,
            state_disk_bytes: opened.state.stats().disk_bytes,
            checkpoint_bytes: 0,
            watermark: entry.watermark,
            view_watermarks: entry.view_watermarks.clone(),
            event_time_min: counts.clone().filter_map(|c| c.event_time_min).min(),
            event_time_max: counts.filter_map(|c| c.event_time_max).max(),
            backlog_rows: sum(|b| b.rows),
            backlog_bytes: sum(|b| b.bytes),
            replayed,
        }
    }

    pub(super) fn view_figures(
        &self,
        result: &BatchResult,
        intake: &Intake,
    ) -> BTreeMap<String, ViewFigures> {
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let mut figures: BTreeMap<String, ViewFigures> = BTreeMap::new();
        let is_told = |v: &&ViewEntry| !matches!(v.object.definition, Definition::Index(_));
        for view in self.views.iter().filter(is_told) {
            let mut f = ViewFigures::default();
            for input in &view.inputs {
                f.input_rows += intake.per_relation.get(input).map_or(0, |c| c.rows);
                if self.views.iter().any(|v| v.object.name == *input) {
                    f.input_rows += result.output_rows.get(input).copied().unwrap_or(0);
                }
            }
            f.input_rows += intake
                .fill_rows
                .get(&view.object.name)
                .copied()
                .unwrap_or(0);
            f.output_rows = result
                .output_rows
                .get(&view.object.name)
                .copied()
                .unwrap_or(0);
            if let Some((rows, error)) = result.error_rows.get(&view.object.name) {
                f.error_rows = *rows;
                f.error = Some(error.clone());
            }
            f.late_rows = result
                .late_rows
                .get(&view.object.name)
                .copied()
                .unwrap_or(0);
            figures.insert(view.object.name.clone(), f);
        }
        let operators = opened.dataflow.iter().flat_map(|d| d.lock().statistics());
        for (view, _, _, s) in operators {
            if let Some(f) = figures.get_mut(&view) {
                f.state_rows += s.state_rows;
                f.state_rows_updated += s.state_rows_updated;
                f.state_rows_removed += s.state_rows_removed;
                f.state_memory_bytes += s.memory_bytes;
            }
        }
        figures
    }
}

/// The offset log's name for a view's policy for failing rows.
fn row_policy_key(view: &str) -> String {
    format!("on_row_error.{view}")
}

/// What the offset log says of a view's policy, so that a batch that runs again meets the same.
fn row_policy_setting(view: &super::pipeline::ViewEntry) -> Option<(String, String)> {
    let policy = super::planning::row_policy(&view.object);
    let is_default = policy == OnRowError::default();
    (!is_default).then(|| (row_policy_key(&view.object.name), policy.name().to_owned()))
}

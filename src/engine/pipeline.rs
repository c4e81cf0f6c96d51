//! A pipeline's task: the trigger loop, and what it does on commands and errors.
//!
//! ```text
//!            ┌────────── error that a retry may mend ──────────┐
//!            ▼                                                 │
//!   Opening ──► Running ──► (batch) ──► Running …            Waiting
//!      │           │                                           │
//!      └───────────┴── STOP ──► Stopped      other error ──► Failed ── START ──► Opening
//! ```
//!
//! Commands act at batch borders. STOP waits for the running batch at most as long as it was told,
//! then gives the batch up; the offset log replays it at the next START.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::batch::BatchOutcome;
use super::committing::Committing;
use super::compute::ComputeThreads;
use super::decide::{self, AfterError, Blamed, Trigger, known_by};
use super::intake::SourceSlot;
use super::interrupt::{Interrupted, interruptible};
use super::merging::Hold;
use super::opening::Opened;
use super::parts::{EngineParts, Event};
use super::planning::ViewRegistry;
use super::receivers::{ReceiverCounts, Receivers};
use super::settings::PipelineSettings;
use super::shared::{Command, PipelineShared, Reply, ViewReader};
use super::sinks::SinkEntry;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::checkpoint::Checkpoint;
use crate::connectors::SourceOffset;
use crate::dataflow::plan::ViewPlan;
use crate::error::{Error, ErrorKind, Result};
use crate::state::StateStore;

/// A view of the pipeline.
pub(super) struct ViewEntry {
    pub object: CatalogObject,
    /// What commits know it by.
    pub fingerprint: String,
    /// Relations it reads.
    pub inputs: Vec<String>,
    /// Such a history may come in parts.
    pub may_fill_in_parts: bool,
}

impl ViewEntry {
    pub fn new(object: CatalogObject, plan: &ViewPlan) -> Self {
        Self {
            fingerprint: known_by(object.oid, &plan.fingerprint),
            inputs: plan.inputs.iter().map(|i| i.relation.clone()).collect(),
            // A sink over a query that keeps no rows gets them as they come, and must not get them twice.
            may_fill_in_parts: plan.stored && !plan.takes_history_at_once(),
            object,
        }
    }

    /// A materialized view keeps its rows, and so does an index; what only feeds a sink does not.
    pub fn is_stored(&self) -> bool {
        matches!(
            self.object.definition,
            Definition::MaterializedView(_) | Definition::Index(_)
        )
    }
}

/// Where the loop stands.
pub(super) enum Phase {
    Opening,
    Running,
    /// Until then, then open again (true) or go on running (false).
    Waiting(tokio::time::Instant, bool),
    /// At a batch border, until it is released or merged with another pipeline.
    Held,
    Stopped,
    Failed,
}

/// What a FLUSH or REFRESH waits for.
struct Waiter {
    targets: Vec<(String, SourceOffset)>,
    reply: Reply,
}

impl Waiter {
    /// All sources have been read up to the positions that it waits for.
    fn is_reached(&self, opened: &Opened) -> bool {
        !self.targets.is_empty()
            && self.targets.iter().all(|(relation, target)| {
                let slot = opened.slots.iter().find(|s| s.relation == *relation);
                slot.is_none_or(|slot| {
                    let left = slot.source.backlog(&slot.position, target);
                    left.rows == Some(0) && left.bytes.is_none_or(|b| b == 0)
                })
            })
    }
}

/// The positions up to which all that is known of can be read; of a source that does not answer there is none.
fn targets_of(opened: &Opened) -> Vec<(String, SourceOffset)> {
    let known = |slot: &SourceSlot| Some((slot.relation.clone(), slot.latest.clone()?));
    opened.slots.iter().filter_map(known).collect()
}

/// A pipeline, owned by its task.
pub(super) struct Pipeline {
    pub parts: EngineParts,
    pub shared: Arc<PipelineShared>,
    pub registry: Arc<ViewRegistry>,
    pub receivers: Arc<Receivers>,
    pub settings: PipelineSettings,
    pub threads: ComputeThreads,
    /// What runs in it, in the order of creation: views, and sinks over no materialized view.
    pub objects: Vec<CatalogObject>,
    pub sink_objects: Vec<CatalogObject>,
    pub views: Vec<ViewEntry>,
    pub sinks: Vec<SinkEntry>,
    pub opened: Option<Opened>,
    /// The checkpoint of what was let go of, until it is closed.
    pub closing: Option<Arc<Checkpoint>>,
    pub state: Option<Arc<StateStore>>,
    /// Of replaced views and new indexes: how they are read once a batch that fills them is shown.
    pub switching: BTreeMap<String, ViewReader>,
    /// The last batch's commit, while it is being written.
    pub committing: Option<Committing>,
    /// The last batch's offsets, while they are being written.
    pub logging: Option<JoinHandle<Result<()>>>,
    pub run_id: uuid::Uuid,
    pub restarts: u64,
    pub status: &'static str,
    pub since_us: i64,
    pub error: Option<Error>,
    pub next_retry_at_us: Option<i64>,
    /// What batches have told of each `socket` stream's lines.
    pub counts_told: BTreeMap<String, ReceiverCounts>,
    /// The last batch was one of several that the pipeline is behind.
    pub is_catching_up: bool,
    pub attempt: u32,
    /// It is to stand still.
    pub hold: Option<Hold>,
    /// What goes on is an opening, reading or writing of the checkpoint; an error is of that.
    pub is_at_checkpoint: bool,
    /// Readers go on seeing what they see until the batch of this number has run again.
    pub shown: Option<u64>,
    stopped_by_user: bool,
    waiters: Vec<Waiter>,
    last_start: Option<tokio::time::Instant>,
}

impl Pipeline {
    pub fn new(
        parts: EngineParts,
        shared: Arc<PipelineShared>,
        registry: Arc<ViewRegistry>,
        receivers: Arc<Receivers>,
        settings: PipelineSettings,
        stopped: bool,
    ) -> Self {
        let since_us = parts.clock.now_us();
        shared.life.lock().stall_timeout_us = settings.stall_timeout.as_micros() as i64;
        Self {
            stopped_by_user: stopped || !parts.run_pipelines,
            parts,
            shared,
            registry,
            receivers,
            settings,
            threads: ComputeThreads::default(),
            objects: Vec::new(),
            sink_objects: Vec::new(),
            views: Vec::new(),
            sinks: Vec::new(),
            opened: None,
            closing: None,
            state: None,
            switching: BTreeMap::new(),
            committing: None,
            logging: None,
            run_id: uuid::Uuid::new_v4(),
            restarts: 0,
            status: "starting",
            since_us,
            error: None,
            next_retry_at_us: None,
            counts_told: BTreeMap::new(),
            is_catching_up: false,
            attempt: 0,
            hold: None,
            is_at_checkpoint: false,
            shown: None,
            waiters: Vec::new(),
            last_start: None,
        }
    }

    /// The task.
    pub async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let mut phase = Phase::Opening;
        let mut queue = VecDeque::new();
        self.tell("starting");
        loop {
            while let Ok(command) = commands.try_recv() {
                queue.push_back(command);
            }
            if !queue.is_empty() && self.committing.is_some() {
                // Commands act at a batch border.
                phase = self.settling(&mut commands, &mut queue).await;
            }
            while let Some(command) = queue.pop_front() {
                if let Some((reply, answer)) = self.act(command, &mut phase).await {
                    // Whoever asked may open the same folder again: everything is let go of first.
                    drop(self);
                    reply.send(answer).ok();
                    return;
                }
            }
            phase = match phase {
                Phase::Opening => self.opening(&mut commands, &mut queue).await,
                Phase::Running => self.running(&mut commands, &mut queue).await,
                Phase::Waiting(until, reopen) => {
                    tokio::select! {
                        command = commands.recv() => match command {
                            Some(command) => {
                                queue.push_back(command);
                                Phase::Waiting(until, reopen)
                            }
                            None => return,
                        },
                        () = tokio::time::sleep_until(until) => {
                            self.next_retry_at_us = None;
                            if reopen { Phase::Opening } else { Phase::Running }
                        }
                    }
                }
                Phase::Held | Phase::Stopped | Phase::Failed => match commands.recv().await {
                    Some(command) => {
                        queue.push_back(command);
                        phase
                    }
                    None => return,
                },
            };
        }
    }

    async fn opening(
        &mut self,
        commands: &mut UnboundedReceiver<Command>,
        queue: &mut VecDeque<Command>,
    ) -> Phase {
        self.tell("restoring");
        match interruptible(self.open(), commands, queue).await {
            Interrupted::Abandoned => {
                self.let_go();
                Phase::Opening
            }
            Interrupted::Done(Ok(())) => {
                let recovered = self.opened.as_ref().is_some_and(|o| !o.replay.is_empty());
                self.event(if recovered { "recovered" } else { "started" }, json!({}));
                self.error = None;
                if self.stopped_by_user {
                    self.give_up_hold(self.not_running());
                    self.tell("stopped");
                    Phase::Stopped
                } else {
                    self.tell("running");
                    Phase::Running
                }
            }
            Interrupted::Done(Err(error)) => self.failed(error, true),
        }
    }

    /// Waits for the commit that is on its way.
    async fn settling(
        &mut self,
        commands: &mut UnboundedReceiver<Command>,
        queue: &mut VecDeque<Command>,
    ) -> Phase {
        match interruptible(self.settle(), commands, queue).await {
            Interrupted::Abandoned => {
                self.let_go();
                Phase::Opening
            }
            Interrupted::Done(Ok(())) if self.opened.is_none() => Phase::Opening,
            Interrupted::Done(Ok(())) => Phase::Running,
            Interrupted::Done(Err(error)) => self.failed(error, true),
        }
    }

    /// Waits for the trigger, then runs one batch.
    async fn running(
        &mut self,
        commands: &mut UnboundedReceiver<Command>,
        queue: &mut VecDeque<Command>,
    ) -> Phase {
        self.last_start = Some(tokio::time::Instant::now());
        let outcome = interruptible(self.run_batch(), commands, queue).await;
        match outcome {
            Interrupted::Abandoned => {
                self.let_go();
                self.restarts += 1;
                Phase::Opening
            }
            Interrupted::Done(Ok(outcome)) => {
                self.attempt = 0;
                self.error = None;
                if self.committing.is_some() {
                    return Phase::Running;
                }
                self.answer_waiters(outcome);
                if self.stands_held(outcome).await {
                    return Phase::Held;
                }
                if outcome == BatchOutcome::Idle
                    && self.settings.trigger == Trigger::AvailableNow
                    && !self.source_is_down()
                {
                    self.stopped_by_user = true;
                    self.event(
                        "stopped",
                        json!({ "reason": "available now: all was taken in" }),
                    );
                    self.tell("stopped");
                    return Phase::Stopped;
                }
                if outcome != BatchOutcome::Unplanned {
                    self.wait_for_trigger(outcome, commands, queue).await;
                }
                Phase::Running
            }
            Interrupted::Done(Err(error)) => {
                let reopen = self
                    .opened
                    .as_ref()
                    .is_none_or(|o| o.commit_started || o.dataflow.is_none());
                self.failed(error, reopen)
            }
        }
    }

    /// Sleeps until the next batch is due: the interval since the last start has passed and some
    /// source may have something. Returns at once when a command came.
    async fn wait_for_trigger(
        &mut self,
        outcome: BatchOutcome,
        commands: &mut UnboundedReceiver<Command>,
        queue: &mut VecDeque<Command>,
    ) {
        // Batches that are run again were due long ago.
        let replays = self.opened.as_ref().is_some_and(|o| !o.replay.is_empty());
        if !queue.is_empty() || !self.waiters.is_empty() || replays || self.hold.is_some() {
            return;
        }
        let due = match self.settings.trigger {
            Trigger::Interval(interval) => self.last_start.map(|t| t + interval),
            Trigger::Continuous | Trigger::AvailableNow => None,
        };
        if let Some(due) = due.filter(|d| *d > tokio::time::Instant::now()) {
            self.tell(if self.source_is_down() {
                "waiting for source"
            } else {
                "waiting for trigger"
            });
            tokio::select! {
                command = commands.recv() => {
                    queue.extend(command);
                    return;
                }
                () = tokio::time::sleep_until(due) => {}
            }
        }
        if outcome == BatchOutcome::Committed {
            return;
        }
        self.tell(if self.source_is_down() {
            "waiting for source"
        } else {
            "waiting for data"
        });
        let opened = self.opened.as_ref().expect("a running pipeline is open");
        let waits = opened.slots.iter().map(|slot| {
            let source = Arc::clone(&slot.source);
            let position = slot.position.clone();
            Box::pin(async move { source.wait_for_data(&position).await })
        });
        let waits: Vec<_> = waits.collect();
        let any = async {
            if waits.is_empty() {
                std::future::pending::<()>().await;
            } else {
                futures::future::select_all(waits).await;
            }
        };
        let poll = self.poll_interval();
        tokio::select! {
            command = commands.recv() => queue.extend(command),
            () = any => {}
            () = tokio::time::sleep(poll) => {}
        }
    }

    /// How long to sleep at most without news: idle time-outs and sources that came back are seen
    /// by asking, and rows that come and go by the clock want a batch.
    fn poll_interval(&self) -> Duration {
        let interval = if self.source_is_down() {
            Duration::from_millis(500)
        } else if self.settings.idle_timeout.is_some() {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(5)
        };
        match self.opened.as_ref().and_then(|opened| opened.due_us()) {
            Some(due) => {
                let left = due.saturating_sub(self.parts.clock.now_us()).max(0);
                interval.min(Duration::from_micros(left.unsigned_abs()))
            }
            None => interval,
        }
    }

    pub(super) fn source_is_down(&self) -> bool {
        self.opened
            .as_ref()
            .is_some_and(|o| o.slots.iter().any(|s| s.last_error.is_some()))
    }

    /// What an error that came just now is about.
    fn blamed(&self) -> Blamed {
        let is_committing = self.opened.as_ref().is_some_and(|o| o.commit_started);
        match self.is_at_checkpoint || is_committing {
            true => Blamed::Checkpoint,
            false => Blamed::Connector,
        }
    }

    fn failed(&mut self, error: Error, reopen: bool) -> Phase {
        self.attempt += 1;
        let error = decide::with_advice(error, &self.shared.name);
        let blamed = self.blamed();
        self.is_at_checkpoint = false;
        let reopen = reopen || decide::opens_anew(&error);
        if reopen {
            self.let_go();
        } else {
            self.shared.give_up_batches();
        }
        self.give_up_hold(error.clone());
        let jitter = (self.parts.clock.now_us() % 1000) as f64 / 1000.0;
        let decision = decide::after_error(&error, self.attempt, jitter);
        let detail = json!({
            "error": error.primary(),
            "detail": error.detail_text(),
            "sqlstate": error.sqlstate(),
            "hint": error.hint_text(),
            "attempt": self.attempt,
        });
        self.error = Some(error.clone());
        match decision {
            AfterError::RetryAfter(delay) => {
                tracing::warn!(pipeline = %self.shared.name, error = %error, attempt = self.attempt, "batch failed; it is tried again");
                if self.attempt == 1 {
                    self.event("retried", detail);
                }
                self.restarts += 1;
                self.next_retry_at_us = Some(self.parts.clock.now_us() + delay.as_micros() as i64);
                self.tell(decide::retry_status(&error, blamed));
                Phase::Waiting(tokio::time::Instant::now() + delay, reopen)
            }
            AfterError::Fail => {
                tracing::error!(pipeline = %self.shared.name, error = %error, "pipeline failed");
                self.event("failed", detail);
                for waiter in std::mem::take(&mut self.waiters) {
                    waiter.reply.send(Err(error.clone())).ok();
                }
                self.tell("failed");
                Phase::Failed
            }
        }
    }

    /// Acts on a command at a batch border. A shutdown ends the task; its answer is for the task
    /// to give once all is let go of.
    async fn act(&mut self, command: Command, phase: &mut Phase) -> Option<(Reply, Result<()>)> {
        match command {
            Command::Shutdown(archive, reply) => return Some((reply, self.end(archive).await)),
            Command::Stop(_, reply) => {
                self.stopped_by_user = true;
                for waiter in std::mem::take(&mut self.waiters) {
                    waiter.reply.send(Err(self.not_running())).ok();
                }
                self.event("stopped", json!({}));
                self.tell("stopped");
                // What could not be opened is opened at START; until then only reads need it.
                *phase = Phase::Stopped;
                reply.send(Ok(())).ok();
            }
            Command::Start(reply) => {
                self.stopped_by_user = false;
                self.attempt = 0;
                self.error = None;
                if !matches!(phase, Phase::Opening | Phase::Running) {
                    *phase = match &self.opened {
                        Some(o) if !o.commit_started && o.dataflow.is_some() => Phase::Running,
                        _ => Phase::Opening,
                    };
                    self.run_id = uuid::Uuid::new_v4();
                    self.tell("starting");
                }
                reply.send(Ok(())).ok();
            }
            Command::SetOptions(options, reply) => {
                let answer = self.change_settings(&options, phase).await;
                reply.send(answer).ok();
            }
            Command::Flush(true, reply) if matches!(phase, Phase::Stopped) => {
                reply.send(Err(self.not_running())).ok();
            }
            Command::Flush(_, reply) => self.add_waiter(reply, phase, false).await,
            Command::Refresh(reply) => self.add_waiter(reply, phase, true).await,
            Command::Reopen(reply) => {
                self.let_go();
                self.renew_sink_objects();
                if !matches!(phase, Phase::Stopped) {
                    self.attempt = 0;
                    self.error = None;
                    *phase = Phase::Opening;
                }
                reply.send(Ok(())).ok();
            }
            Command::Recover(work, reply) => {
                let answer = self.recover(&work, phase).await;
                self.refresh_board();
                reply.send(answer).ok();
            }
            Command::Hold(hold) => self.begin_hold(hold, phase),
            Command::Release => {
                self.hold = None;
                if matches!(phase, Phase::Held) {
                    *phase = Phase::Running;
                }
            }
            Command::TakeIn(views, sinks, reply) => {
                self.take_in(views, sinks, phase).await;
                reply.send(Ok(())).ok();
            }
            // It came between batches: the pipeline got on by itself.
            Command::Stalled => {}
            Command::AddView(add, reply) => {
                let answer = self.add_view(*add).await;
                reply.send(answer).ok();
            }
            Command::ReplaceView(replace, reply) => {
                let answer = self.replace_view(*replace).await;
                // A pipeline that could not start with the old query starts with the new one.
                if self.opened.is_none() && !matches!(phase, Phase::Stopped) {
                    self.attempt = 0;
                    self.error = None;
                    *phase = Phase::Opening;
                }
                reply.send(answer).ok();
            }
            Command::RemoveView(name, reply) => {
                let answer = self.remove_view(&name).await;
                reply.send(answer).ok();
            }
            Command::AddSink(object, reply) => {
                let answer = self.add_sink(*object);
                reply.send(answer).ok();
            }
            Command::RemoveSink(name, reply) => {
                self.sinks.retain(|s| s.name != name);
                self.sink_objects.retain(|o| o.name != name);
                self.refresh_board();
                reply.send(Ok(())).ok();
            }
        }
        None
    }

    /// Registers a FLUSH or REFRESH with the positions it must reach.
    async fn add_waiter(&mut self, reply: Reply, phase: &mut Phase, start: bool) {
        match phase {
            Phase::Failed | Phase::Waiting(..) if self.error.is_some() => {
                let error = self.error.clone().unwrap_or_else(|| self.not_running());
                reply.send(Err(error)).ok();
                return;
            }
            Phase::Stopped if !start => {
                // A stopped pipeline takes nothing in, and says so by its status.
                reply.send(Ok(())).ok();
                return;
            }
            Phase::Stopped => {
                *phase = if self.opened.is_some() {
                    Phase::Running
                } else {
                    Phase::Opening
                };
            }
            _ => {}
        }
        let mut targets = Vec::new();
        if let Some(opened) = self.opened.as_mut() {
            opened.look_for_data(&self.parts, &self.receivers).await;
            targets = targets_of(opened);
        }
        self.waiters.push(Waiter { targets, reply });
    }

    /// Answers those whose positions are reached; a batch that found nothing reached them all.
    fn answer_waiters(&mut self, outcome: BatchOutcome) {
        if self.waiters.is_empty() {
            return;
        }
        let Some(opened) = &self.opened else { return };
        let closes_windows = self.closes_windows_now(opened);
        let reached = |waiter: &Waiter| {
            outcome == BatchOutcome::Idle
                || (!closes_windows && opened.unfilled.is_empty() && waiter.is_reached(opened))
        };
        let waiters = std::mem::take(&mut self.waiters);
        for mut waiter in waiters {
            if reached(&waiter) {
                waiter.reply.send(Ok(())).ok();
                continue;
            }
            // It came before there was a source to ask. Where there is always more, no batch finds nothing.
            if waiter.targets.is_empty() {
                waiter.targets = targets_of(opened);
            }
            self.waiters.push(waiter);
        }
        if self.waiters.is_empty() && self.stopped_by_user {
            // A REFRESH of a stopped pipeline ends where it began.
            let (reply, _) = tokio::sync::oneshot::channel();
            self.shared
                .commands
                .send(Command::Stop(Duration::ZERO, reply))
                .ok();
        }
    }

    fn closes_windows_now(&self, opened: &Opened) -> bool {
        let now_us = self.parts.clock.now_us();
        let watermark = opened.next_watermark(&self.settings, now_us);
        let of_views = opened.next_view_watermarks(&self.views, &self.settings, now_us, watermark);
        opened.closes_windows(watermark, &of_views)
            || opened.due_us().is_some_and(|due| due <= now_us)
    }

    /// Someone waits for no more than what has been computed.
    pub(super) fn waits_for_reached(&self) -> bool {
        let Some(opened) = &self.opened else {
            return false;
        };
        self.waiters.iter().any(|waiter| waiter.is_reached(opened))
    }

    /// The next batch need not wait for its time.
    pub(super) fn is_trigger_due(&self) -> bool {
        match (self.settings.trigger, self.last_start) {
            (Trigger::Interval(interval), Some(last)) => {
                last + interval <= tokio::time::Instant::now()
            }
            _ => true,
        }
    }

    pub(super) fn not_running(&self) -> Error {
        Error::with_kind(
            ErrorKind::User,
            crate::error::sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("pipeline \"{}\" is not running", self.shared.name),
        )
        .hint(format!("START PIPELINE {};", self.shared.name))
    }

    /// Writes an event of this pipeline.
    pub(super) fn event(&self, kind: &'static str, detail: serde_json::Value) {
        self.parts.history.record_event(Event {
            at_us: self.parts.clock.now_us(),
            kind,
            object: self.shared.name.clone(),
            pipeline: Some(self.shared.name.clone()),
            batch_id: self.opened.as_ref().and_then(|o| o.last_commit),
            detail,
        });
    }
}

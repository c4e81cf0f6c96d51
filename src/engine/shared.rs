//! What a pipeline shows to others: status, published state, and the channel of changes.
//!
//! Readers and status tables look only at this; they never wait for the pipeline's task.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};

use super::CommittedChanges;
use super::changes::{ChangeChannel, Kept};
use super::kept_rows::{KeptRows, ShownBatch};
use super::known_files::OpenSource;
use super::merging::Hold;
use super::recovery::{Recovered, Recovery};
use super::status::{
    CheckpointStatus, PipelineStatus, QueryStatus, SinkStatus, SourceStatus, StateOperatorStatus,
};
use crate::catalog::definition::{CatalogObject, Options};
use crate::dataflow::graph::Dataflow;
use crate::dataflow::plan::ViewPlan;
use crate::dataflow::view_storage::{KeyOrder, ViewContents, ViewRows};
use crate::error::{Error, Result};
use crate::state::{MemoryBudget, StateSnapshot, WantedKeys};

/// Answers a command.
pub(super) type Reply = oneshot::Sender<Result<()>>;

/// What others ask of a pipeline's task. Acted on at a batch border.
pub(super) enum Command {
    AddView(Box<AddView>, Reply),
    /// Another query under the name of a view.
    ReplaceView(Box<AddView>, Reply),
    RemoveView(String, Reply),
    AddSink(Box<CatalogObject>, Reply),
    RemoveSink(String, Reply),
    SetOptions(Options, Reply),
    Start(Reply),
    Stop(std::time::Duration, Reply),
    Refresh(Reply),
    /// true: a pipeline that does not run is an error, not passed over.
    Flush(bool, Reply),
    /// Read on as far as told, then stand still until released or merged.
    Hold(Hold),
    /// Go on.
    Release,
    /// All views and sinks there are now, those of a pipeline that ended among them.
    TakeIn(Vec<CatalogObject>, Vec<CatalogObject>, Reply),
    /// Sources or sinks changed their options: they are opened again.
    Reopen(Reply),
    /// Reading shows no life: the batch is given up and the sources are opened again.
    Stalled,
    /// A statement that needs the checkpoint to itself.
    Recover(Box<Recovery>, oneshot::Sender<Result<Recovered>>),
    /// Ends the task; true: the checkpoint goes to the archive.
    Shutdown(bool, Reply),
}

/// What a pipeline was doing when it last got on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Waiting,
    Reading,
    Computing,
    Delivering,
    Committing,
}

impl Doing {
    pub fn words(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Reading => "reading its sources",
            Self::Computing => "computing the batch",
            Self::Delivering => "delivering to its sinks",
            Self::Committing => "committing the batch",
        }
    }
}

/// The heartbeat.
#[derive(Debug)]
pub(super) struct Life {
    pub beat_at_us: i64,
    pub doing: Doing,
    pub stall_timeout_us: i64,
    /// The silence since the last beat was told.
    pub told: bool,
}

/// How far the rows of a batch, or of a back-fill and the batches after it, are taken in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub rows_done: u64,
    /// `None`: not known.
    pub rows_total: Option<u64>,
}

impl Progress {
    /// 0 to 100.
    pub fn percent(&self) -> Option<f64> {
        let total = self.rows_total.filter(|total| *total > 0)?;
        Some((self.rows_done as f64 * 100.0 / total as f64).min(100.0))
    }
}

/// A view that joins the pipeline.
pub(super) struct AddView {
    pub object: CatalogObject,
    pub plan: ViewPlan,
}

/// How a materialized view is read.
#[derive(Debug, Clone)]
pub(super) struct ViewReader {
    /// The definition whose rows it reads.
    pub object: Arc<CatalogObject>,
    pub state_name: String,
    pub schema: SchemaRef,
    /// Columns by which its rows are unique; `None`: not known.
    pub key: Option<Vec<usize>>,
    pub contents: ViewContents,
}

impl ViewReader {
    /// The columns of `projection` at a snapshot of the rows whose keys are `wanted`, in batches of
    /// about `batch_rows` rows.
    pub fn rows(
        &self,
        snapshot: &StateSnapshot,
        wanted: &WantedKeys,
        projection: &[usize],
        batch_rows: usize,
    ) -> Result<ViewRows> {
        self.contents.read(
            snapshot,
            &self.state_name,
            &self.schema,
            wanted,
            projection,
            batch_rows,
        )
    }

    /// The order in which its rows come.
    pub fn key_order(&self) -> KeyOrder {
        self.contents.key_order(self.schema.fields().len())
    }

    /// All columns of all rows, as [`Self::rows`].
    pub fn all_rows(&self, snapshot: &StateSnapshot, batch_rows: usize) -> Result<ViewRows> {
        let projection: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.rows(snapshot, &WantedKeys::All, &projection, batch_rows)
    }
}

/// The last committed batch, as readers and subscribers see it.
#[derive(Default)]
pub(super) struct Publication {
    pub snapshot: Option<StateSnapshot>,
    pub batch_id: Option<u64>,
    /// Views that the published batch holds.
    pub filled: BTreeSet<String>,
    /// Views that had rows under another query and are to be filled with those of theirs: a restart came
    /// in between, and neither is there to be read.
    pub refilling: BTreeSet<String>,
    /// Its checkpoint has given way by a statement: what is published next is computed anew.
    pub superseded: bool,
    /// How often it did: a batch may run again under its number and come out otherwise.
    runs: u64,
    /// Batches on their way, with the views whose changes they do not make.
    quiet: BTreeMap<u64, BTreeSet<String>>,
}

impl Publication {
    /// What is shown, told apart from a batch of the same number that ran before.
    pub fn shown_batch(&self) -> Option<ShownBatch> {
        let run = self.runs;
        self.batch_id.map(|batch_id| ShownBatch { run, batch_id })
    }
}

/// Status rows, as of the last change.
#[derive(Debug, Clone, Default)]
pub(super) struct Board {
    pub pipeline: PipelineStatus,
    pub queries: BTreeMap<String, QueryStatus>,
    pub sources: Vec<SourceStatus>,
    pub sinks: Vec<SinkStatus>,
    pub state_operators: Vec<StateOperatorStatus>,
    pub checkpoint: CheckpointStatus,
    pub progress: Progress,
}

/// Where a subscription begins.
pub(super) struct Subscribed {
    pub snapshot: Option<StateSnapshot>,
    /// The batch that the snapshot shows.
    pub batch_id: Option<u64>,
    /// What was asked for of before it.
    pub kept: Option<Kept<Arc<CommittedChanges>>>,
    /// What comes after it.
    pub live: broadcast::Receiver<Arc<CommittedChanges>>,
}

/// The outside of a pipeline.
pub(super) struct PipelineShared {
    pub name: String,
    pub id: uuid::Uuid,
    pub commands: mpsc::UnboundedSender<Command>,
    pub readers: RwLock<HashMap<String, ViewReader>>,
    pub publication: Mutex<Publication>,
    pub board: Mutex<Board>,
    /// The sources that are open, to be asked for their files.
    pub open_sources: Mutex<Vec<OpenSource>>,
    pub life: Mutex<Life>,
    /// The pipeline's status, for those who wait for it to change.
    pub status: watch::Sender<&'static str>,
    subscribers: Mutex<HashMap<String, ChangeChannel>>,
    /// A batch that makes no changes of some views was published or given up.
    quiet_ended: Notify,
    /// Copies of the checkpoint that are being taken.
    copies: AtomicUsize,
    /// What many read of the batch that is shown.
    pub kept_rows: Arc<KeptRows>,
    budget: Arc<MemoryBudget>,
}

/// While it is there no file goes from the checkpoint: it is being copied.
pub(super) struct Copying(Arc<PipelineShared>);

impl Drop for Copying {
    fn drop(&mut self) {
        self.0.copies.fetch_sub(1, Ordering::AcqRel);
    }
}

impl PipelineShared {
    pub fn new(
        name: String,
        id: uuid::Uuid,
        commands: mpsc::UnboundedSender<Command>,
        budget: &Arc<MemoryBudget>,
    ) -> Self {
        Self {
            name,
            id,
            commands,
            readers: RwLock::default(),
            publication: Mutex::default(),
            board: Mutex::default(),
            open_sources: Mutex::default(),
            life: Mutex::new(Life {
                beat_at_us: i64::MAX,
                doing: Doing::Waiting,
                stall_timeout_us: i64::MAX,
                told: false,
            }),
            status: watch::Sender::new("starting"),
            subscribers: Mutex::default(),
            quiet_ended: Notify::new(),
            copies: AtomicUsize::new(0),
            kept_rows: KeptRows::new(budget),
            budget: Arc::clone(budget),
        }
    }

    /// The checkpoint keeps all its files until this is dropped, but for what is being deleted already:
    /// that is older than what a copy takes.
    pub fn copying(self: &Arc<Self>) -> Copying {
        self.copies.fetch_add(1, Ordering::AcqRel);
        Copying(Arc::clone(self))
    }

    /// Whether someone copies the checkpoint.
    pub fn is_being_copied(&self) -> bool {
        self.copies.load(Ordering::Acquire) > 0
    }

    /// The pipeline got on.
    pub fn beat(&self, doing: Doing, now_us: i64) {
        let mut life = self.life.lock();
        life.beat_at_us = now_us;
        life.doing = doing;
        life.told = false;
    }

    /// Tells that so many rows more were taken in.
    pub fn advance(&self, rows: u64) {
        let mut board = self.board.lock();
        board.progress.rows_done += rows;
        let progress = board.progress;
        for query in board.queries.values_mut() {
            query.progress_rows = Some(progress.rows_done);
            query.progress_percent = progress.percent();
        }
    }

    /// Sends a command and waits for its answer.
    pub async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let gone = || Error::internal(format!("pipeline \"{}\" has ended", self.name));
        self.commands.send(command(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Why it failed, from its status.
    pub fn failure(&self) -> Error {
        let board = self.board.lock();
        let mut queries = board.queries.values();
        let failed = queries.find(|q| q.exception.is_some()).cloned();
        let failed = failed.unwrap_or_default();
        let error = Error::new(
            crate::error::sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            failed
                .exception
                .unwrap_or_else(|| format!("pipeline \"{}\" could not start", self.name)),
        );
        match failed.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// Publishes a committed batch: readers and subscribers change over together, and those of
    /// `switched` views to another query.
    pub fn publish(
        &self,
        snapshot: StateSnapshot,
        batch_id: u64,
        mut changes: BTreeMap<String, Vec<crate::dataflow::change::ChangeBatch>>,
        filled: BTreeSet<String>,
        switched: BTreeMap<String, ViewReader>,
    ) {
        let mut publication = self.publication.lock();
        self.readers.write().extend(switched);
        publication.snapshot = Some(snapshot);
        publication.batch_id = Some(batch_id);
        publication.refilling.retain(|view| !filled.contains(view));
        publication.filled = filled;
        publication.runs += u64::from(std::mem::take(&mut publication.superseded));
        let later = publication.quiet.split_off(&(batch_id + 1));
        let quiet = std::mem::replace(&mut publication.quiet, later).remove(&batch_id);
        self.quiet_ended.notify_waiters();
        let mut subscribers = self.subscribers.lock();
        for (view, channel) in subscribers.iter_mut() {
            let is_quiet = quiet.as_ref().is_some_and(|views| views.contains(view));
            if is_quiet || !channel.is_heard() {
                channel.pass_over(batch_id);
            } else {
                channel.publish(batch_id, changes.remove(view).unwrap_or_default());
            }
        }
        // Rows may be freed here: not under the locks.
        drop(subscribers);
        drop(publication);
        self.kept_rows.forget();
    }

    /// A batch ran that readers do not get to see: an older one of those that they see.
    pub fn pass_over(&self, batch_id: u64) {
        let mut publication = self.publication.lock();
        publication.quiet.retain(|batch, _| *batch > batch_id);
        self.quiet_ended.notify_waiters();
    }

    /// Waits until what is published is of the checkpoint that is there.
    pub async fn wait_until_current(&self) {
        loop {
            let published = self.quiet_ended.notified();
            if !self.publication.lock().superseded {
                return;
            }
            published.await;
        }
    }

    /// Waits until a view that is being filled again has its rows.
    pub async fn wait_until_filled(&self, view: &str) {
        loop {
            let published = self.quiet_ended.notified();
            if !self.publication.lock().refilling.contains(view) {
                return;
            }
            published.await;
        }
    }

    /// Waits for the batch that a view has its first rows by; not on a pipeline that does not run.
    pub async fn wait_for_first_batch(&self, view: &str) {
        let mut status = self.status.subscribe();
        loop {
            let published = self.quiet_ended.notified();
            let runs = !matches!(*status.borrow_and_update(), "stopped" | "failed");
            if !runs || self.publication.lock().filled.contains(view) {
                return;
            }
            tokio::select! {
                () = published => {}
                changed = status.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// The same batch from fewer places: what has been merged or put to disk since it was published
    /// is no longer held in memory for readers to come.
    pub fn renew_snapshot(&self, snapshot: StateSnapshot) {
        let mut publication = self.publication.lock();
        if publication.batch_id.is_some() && publication.batch_id == snapshot.batch_id() {
            let before = publication.snapshot.replace(snapshot);
            // Runs may be freed here: not under the lock.
            drop(publication);
            drop(before);
        }
    }

    /// Chooses, as a batch begins, the views whose changes it need not make: those that neither a
    /// subscriber nor `is_taken` wants.
    pub fn begin_batch(
        &self,
        batch_id: u64,
        now_us: i64,
        dataflow: &mut Dataflow,
        is_taken: impl Fn(&str) -> bool,
    ) {
        let mut publication = self.publication.lock();
        let mut subscribers = self.subscribers.lock();
        let channels = subscribers.iter_mut();
        let subscribed: BTreeSet<&str> = channels
            .filter_map(|(view, channel)| channel.is_wanted(now_us).then_some(view.as_str()))
            .collect();
        let quiet = dataflow.choose_quiet(|view| is_taken(view) || subscribed.contains(view));
        publication.quiet.insert(batch_id, quiet);
    }

    /// No batch is on its way any more.
    pub fn give_up_batches(&self) {
        self.publication.lock().quiet.clear();
        self.quiet_ended.notify_waiters();
    }

    /// The published state and, from exactly there on, the changes of a view; before them those after
    /// `after_batch`. Waits for batches on their way that do not make them.
    pub async fn subscribe(&self, view: &str, after_batch: Option<u64>) -> Subscribed {
        // Held from the start: batches that begin from here on make the changes.
        let wanted = self.channel(view, |channel| channel.listen());
        loop {
            let ended = self.quiet_ended.notified();
            {
                let publication = self.publication.lock();
                if !publication.quiet.values().any(|views| views.contains(view)) {
                    let batch_id = publication.batch_id;
                    let (live, kept) = self.channel(view, |channel| {
                        let kept = after_batch.map(|after| match batch_id {
                            Some(last) if after == last => Kept::Changes(Vec::new()),
                            Some(last) if after < last => channel.since(after),
                            _ => Kept::Ahead,
                        });
                        (channel.listen(), kept)
                    });
                    drop(wanted);
                    return Subscribed {
                        snapshot: publication.snapshot.clone(),
                        batch_id,
                        kept,
                        live,
                    };
                }
            }
            ended.await;
        }
    }

    fn channel<T>(&self, view: &str, act: impl FnOnce(&mut ChangeChannel) -> T) -> T {
        let mut channels = self.subscribers.lock();
        let channel = channels.entry(view.to_owned());
        act(channel.or_insert_with(|| ChangeChannel::new(&self.budget)))
    }

    /// Ends the subscriptions of a dropped view.
    pub fn end_subscriptions(&self, view: &str) {
        self.subscribers.lock().remove(view);
    }
}

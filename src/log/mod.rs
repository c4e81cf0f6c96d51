//! The durable log: the only copy of the rows of tables and of streams without a connector.
//!
//! All relations share one log, so that a transaction over several of them is one commit frame.
//! Appends are grouped: one `fdatasync` answers every transaction that waited. Rows of a large
//! transaction go to disk as they come and count only once their commit frame is there.
//!
//! ```text
//! log/00000001.log  00000002.log …      segments: frames of rows, schemas, commits
//! log/tables/                           contents of the tables, a cache of the segments
//! ```
//!
//! Deliberately absent: compaction of superseded rows (a view created later reads a table's whole
//! history) and any knowledge of SQL.

mod end;
pub mod frame;
pub mod index;
mod recovery;
mod shared;
#[cfg(test)]
pub(crate) mod simulation;
pub mod storage;
pub mod stored;
pub mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use datafusion::arrow::array::Array;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};
use end::EndFile;
use frame::EncodedSchema;
use index::FrameLocation;
use recovery::Recovered;
use shared::{EntryIterator, Shared, StoredSchema};
use storage::{LocalStorage, LogStorage};
use writer::{Action, Answer, CommitHook, EncodedFrame, Request, Writer};

/// Position in the log: number of commits that lie before it. 0 is the beginning.
pub type LogPosition = u64;

/// A transaction's frames go to disk before its commit once it holds this much.
const SPILL_BYTES: usize = 1 << 20;
/// Rows of one frame at most; readers hold one frame at a time.
const FRAME_ROWS_MAX: usize = 65_536;
/// Bytes of one frame, about.
const FRAME_BYTES: usize = 4 << 20;

/// The log of a database.
pub struct DurableLog {
    shared: Arc<Shared>,
    requests: Mutex<Option<Sender<Request>>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    next_transaction: AtomicU64,
}

impl std::fmt::Debug for DurableLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableLog")
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

/// One committed change to one relation.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Commit that it belongs to; readable positions are `> commit`.
    pub commit: LogPosition,
    /// Rows, in the relation's schema at that time.
    pub changes: ChangeBatch,
}

/// Rows of an open transaction on their way into the log. Dropped without commit: as if never.
pub struct LogTransaction {
    log: Arc<DurableLog>,
    id: u64,
    bytes: Vec<u8>,
    frames: Vec<EncodedFrame>,
    schemas: Vec<EncodedSchema>,
    last_schema: Option<(datafusion::arrow::datatypes::SchemaRef, bool, u64)>,
    written: Vec<FrameLocation>,
    epoch: Option<u64>,
    marker: Option<String>,
}

impl std::fmt::Debug for LogTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTransaction")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A place in an open transaction that [`LogTransaction::rollback_to`] returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMark {
    frames: usize,
}

impl DurableLog {
    /// Opens the log in `dir`, drops a torn tail, and indexes the frames by relation. Damage
    /// anywhere else is an error of kind `Damaged` that names file and offset.
    pub fn open(dir: &Path) -> Result<Arc<Self>> {
        let storage = LocalStorage::open(dir)
            .map_err(|e| Error::from(e).context("could not open the log"))?;
        Self::open_storage(Arc::new(storage), writer::SEGMENT_BYTES)
    }

    /// As [`Self::open`]; `note` is a file outside of `dir` in which the log's end is kept. A log
    /// that ends before it was lost or cut: `Damaged`, and nothing is changed.
    pub fn open_noted(dir: &Path, note: &Path) -> Result<Arc<Self>> {
        let storage = LocalStorage::open(dir)
            .map_err(|e| Error::from(e).context("could not open the log"))?;
        Self::open_all(Arc::new(storage), writer::SEGMENT_BYTES, Some(note))
    }

    /// As [`Self::open`], over any storage; segments are closed at `segment_bytes_max`.
    pub fn open_storage(storage: Arc<dyn LogStorage>, segment_bytes_max: u64) -> Result<Arc<Self>> {
        Self::open_all(storage, segment_bytes_max, None)
    }

    fn open_all(
        storage: Arc<dyn LogStorage>,
        segment_bytes_max: u64,
        note: Option<&Path>,
    ) -> Result<Arc<Self>> {
        let note = note.map(EndFile::open).transpose()?;
        let known = note
            .as_ref()
            .and_then(|(file, known)| Some((file.path(), (*known)?)));
        let Recovered {
            index,
            schemas,
            identity,
            last,
            next_transaction,
        } = recovery::recover(&*storage, known)?;
        let (end, _) = watch::channel(index.end());
        let shared = Arc::new(Shared {
            storage,
            identity: identity.unwrap_or_else(uuid::Uuid::new_v4),
            index: RwLock::new(index),
            schemas: RwLock::new(
                schemas
                    .into_iter()
                    .map(|(id, schema)| (id, StoredSchema::new(schema)))
                    .collect(),
            ),
            end,
            refused_below: AtomicU64::new(0),
        });
        let note = note.map(|(file, _)| file);
        let (sender, receiver) = channel();
        let writer = Writer::new(Arc::clone(&shared), last, segment_bytes_max, note);
        let thread = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|e| Error::from(e).context("could not start the log's writer"))?;
        Ok(Arc::new(Self {
            shared,
            requests: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(thread)),
            next_transaction: AtomicU64::new(next_transaction),
        }))
    }

    /// Identity of this log; the tables' contents carry it too.
    pub fn identity(&self) -> uuid::Uuid {
        self.shared.identity
    }

    /// Starts a transaction.
    pub fn begin(self: &Arc<Self>) -> LogTransaction {
        LogTransaction {
            log: Arc::clone(self),
            id: self.next_transaction.fetch_add(1, Ordering::Relaxed),
            bytes: Vec::new(),
            frames: Vec::new(),
            schemas: Vec::new(),
            last_schema: None,
            written: Vec::new(),
            epoch: None,
            marker: None,
        }
    }

    /// Someone has taken in the commits before `position`. If the log ends before it, rows were
    /// lost: `Damaged`, and from then on nothing is committed below it, since its number would
    /// count as taken in.
    pub fn require(&self, position: LogPosition) -> Result<()> {
        let end = self.end();
        if position <= end {
            return Ok(());
        }
        self.shared
            .refused_below
            .fetch_max(position, Ordering::Relaxed);
        Err(shared::lost_rows(end, position))
    }

    /// The position after the last durable commit.
    pub fn end(&self) -> LogPosition {
        self.shared.index.read().end()
    }

    /// The position after the last durable commit that touched `relation` (an oid).
    pub fn end_of(&self, relation: u32) -> LogPosition {
        self.shared.index.read().end_of(relation)
    }

    /// Rows and bytes of `relation` in commits `from..to`.
    pub fn size_between(&self, relation: u32, from: LogPosition, to: LogPosition) -> (u64, u64) {
        self.shared.index.read().size_between(relation, from, to)
    }

    /// The greatest position `to <= limit` such that commits `from..to` of `relation` hold at most
    /// `max_rows` rows, but at least one commit (a commit is never split).
    pub fn cut(
        &self,
        relation: u32,
        from: LogPosition,
        limit: LogPosition,
        max_rows: u64,
    ) -> LogPosition {
        self.shared
            .index
            .read()
            .cut(relation, from, limit, max_rows)
    }

    /// Reads the entries of `relation` in commits `from..to`, in order, lazily.
    pub fn read(
        self: &Arc<Self>,
        relation: u32,
        from: LogPosition,
        to: LogPosition,
    ) -> Box<dyn Iterator<Item = Result<LogEntry>> + Send> {
        Box::new(EntryIterator::new(
            Arc::clone(&self.shared),
            relation,
            from,
            to,
        ))
    }

    /// Resolves when `end_of(relation)` passes `from`.
    pub async fn wait_beyond(&self, relation: u32, from: LogPosition) {
        let mut end = self.shared.end.subscribe();
        loop {
            end.borrow_and_update();
            if self.end_of(relation) > from {
                return;
            }
            if end.changed().await.is_err() {
                // The sender lives as long as `self`, so that this cannot happen; waiting for
                // ever is what a log that never grows means.
                std::future::pending::<()>().await;
            }
        }
    }

    /// A commit with this marker is in the log ([`LogTransaction::set_marker`]). The newest marker
    /// is found for ever, older ones as long as their segment is there.
    pub fn has_marker(&self, marker: &str) -> bool {
        self.shared.index.read().has_marker(marker)
    }

    /// Forgets a dropped relation's frames; their segments are deleted when nothing else lives in them.
    /// Blocks until that is durable.
    pub fn forget(&self, relation: u32) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Request {
            transaction: 0,
            epoch: None,
            bytes: Vec::new(),
            frames: Vec::new(),
            schemas: Vec::new(),
            action: Action::Forget(relation),
            reply,
        })?;
        // Not tokio's own blocking receive, which async threads may not call.
        futures::executor::block_on(answer).map_err(|_| closed())??;
        Ok(())
    }

    fn send(&self, request: Request) -> Result<()> {
        self.requests
            .lock()
            .as_ref()
            .ok_or_else(closed)?
            .send(request)
            .map_err(|_| closed())
    }

    /// The hash of a schema; makes it known to readers and returns its frame.
    fn register_schema(
        &self,
        schema: &datafusion::arrow::datatypes::SchemaRef,
        has_weights: bool,
    ) -> EncodedSchema {
        let encoded = frame::encode_schema(schema, has_weights);
        let known = self.shared.schemas.read().contains_key(&encoded.id);
        if !known {
            let payload = &encoded.frame[frame::FRAME_HEADER_BYTES..];
            if let Some(stored) = frame::decode_schema(payload) {
                self.shared
                    .schemas
                    .write()
                    .insert(encoded.id, StoredSchema::new(Arc::new(stored)));
            }
        }
        encoded
    }
}

impl Drop for DurableLog {
    fn drop(&mut self) {
        // Without senders the writer ends; its files are closed once it is joined.
        self.requests.lock().take();
        let thread = self.writer.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the log's writer ended by a panic");
        }
    }
}

impl LogTransaction {
    /// Writes rows of `relation` (bounded memory: they go to disk now, visible only after commit).
    pub async fn append(&mut self, relation: u32, changes: &ChangeBatch) -> Result<()> {
        let rows_per_frame = frame_rows(changes);
        let mut start = 0;
        while start < changes.num_rows() {
            let count = rows_per_frame.min(changes.num_rows() - start);
            self.push(relation, &slice(changes, start, count))?;
            start += count;
            if self.bytes.len() >= SPILL_BYTES {
                self.spill().await?;
            }
        }
        Ok(())
    }

    /// The commit will carry `marker`, by which [`DurableLog::has_marker`] finds it, so that a
    /// change kept elsewhere (the catalog) can be tied to this transaction.
    pub fn set_marker(&mut self, marker: &str) {
        self.marker = Some(marker.to_owned());
    }

    /// The present end of the transaction.
    pub fn mark(&self) -> LogMark {
        LogMark {
            frames: self.written.len() + self.frames.len(),
        }
    }

    /// Takes back what was appended after `mark`.
    pub fn rollback_to(&mut self, mark: LogMark) {
        let buffered = mark.frames.saturating_sub(self.written.len());
        self.frames.truncate(buffered);
        self.bytes
            .truncate(self.frames.last().map_or(0, |frame| frame.end));
        self.written.truncate(mark.frames);
    }

    /// Nothing was appended and no marker set.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.frames.is_empty() && self.marker.is_none()
    }

    /// Makes all appended rows durable and visible as one commit; returns the position after it.
    /// A transaction without rows and marker writes nothing.
    pub async fn commit(self) -> Result<LogPosition> {
        self.finish(None).await
    }

    /// As [`Self::commit`]; `hook` runs with the position on the log's writer once the commit is
    /// durable, in the order of the commits, before anyone is told. It must be short. It does not
    /// run for a transaction without rows and marker.
    pub async fn commit_with(
        self,
        hook: impl FnOnce(LogPosition) + Send + 'static,
    ) -> Result<LogPosition> {
        self.finish(Some(Box::new(hook))).await
    }

    async fn finish(mut self, hook: Option<CommitHook>) -> Result<LogPosition> {
        if self.is_empty() {
            return Ok(self.log.end());
        }
        let action = Action::Commit {
            written: std::mem::take(&mut self.written),
            marker: self.marker.take(),
            hook,
        };
        Ok(self.request(action).await?.position)
    }

    fn push(&mut self, relation: u32, changes: &ChangeBatch) -> Result<()> {
        let schema = self.schema_of(changes);
        frame::push_rows(&mut self.bytes, relation, self.id, changes, schema)?;
        self.frames.push(EncodedFrame {
            end: self.bytes.len(),
            rows: changes.num_rows() as u32,
            relation,
        });
        Ok(())
    }

    fn schema_of(&mut self, changes: &ChangeBatch) -> u64 {
        let schema = changes.schema();
        let has_weights = changes.weights().is_some();
        if let Some((last, weighted, id)) = &self.last_schema
            && *weighted == has_weights
            && Arc::ptr_eq(last, &schema)
        {
            return *id;
        }
        let encoded = self.log.register_schema(&schema, has_weights);
        let id = encoded.id;
        if !self.schemas.iter().any(|s| s.id == id) {
            self.schemas.push(encoded);
        }
        self.last_schema = Some((schema, has_weights, id));
        id
    }

    async fn spill(&mut self) -> Result<()> {
        let answer = self.request(Action::Spill).await?;
        self.written.extend(answer.locations);
        self.epoch = Some(answer.epoch);
        Ok(())
    }

    async fn request(&mut self, action: Action) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        self.log.send(Request {
            transaction: self.id,
            epoch: self.epoch,
            bytes: std::mem::take(&mut self.bytes),
            frames: std::mem::take(&mut self.frames),
            // All schemas of the transaction: the segment may have changed since they were new.
            schemas: self.schemas.clone(),
            action,
            reply,
        })?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for LogTransaction {
    fn drop(&mut self) {
        if self.epoch.is_some() {
            self.log.shared.index.write().close_transaction(self.id);
        }
    }
}

fn slice(changes: &ChangeBatch, start: usize, count: usize) -> ChangeBatch {
    let rows = changes.rows().slice(start, count);
    match changes.weights() {
        None => ChangeBatch::inserts(rows),
        Some(weights) => ChangeBatch::weighted(rows, weights.slice(start, count)),
    }
}

fn frame_rows(changes: &ChangeBatch) -> usize {
    let bytes: usize = changes
        .rows()
        .columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0))
        .sum();
    let row_bytes = bytes / changes.num_rows().max(1);
    (FRAME_BYTES / row_bytes.max(1)).clamp(1, FRAME_ROWS_MAX)
}

fn closed() -> Error {
    Error::transient(
        crate::error::sqlstate::ADMIN_SHUTDOWN,
        "the log is closed: the database is shutting down",
    )
}

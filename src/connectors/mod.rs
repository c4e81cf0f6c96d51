//! Sources and sinks: how rows come in and changes go out.
//!
//! Every source goes through [`Source`], every sink through [`Sink`]; formats (JSON, CSV, Parquet)
//! are shared by all and live in [`formats`]. The engine writes a planned range into the offset
//! log before it reads it, so a source must be able to read exactly the same range again.
//! Absent by design: consumer groups, connector-side commits of progress, and any schedule; when
//! to read is the engine's decision.

mod bad_rows;
pub mod changelog;
pub mod chunks;
pub mod evolution;
pub mod files;
pub mod formats;
pub mod generator;
pub mod kafka;
pub mod log_source;
pub mod open;
pub mod paths;
pub mod replayed;
pub mod settings;
pub mod sinks;
pub mod socket;
mod telling;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};

use self::evolution::UnknownFields;
use self::open::unknown_metadata;
pub use self::open::{ConnectorEnvironment, SinkInput, open_sink, open_source};
pub use self::socket::SocketReceiver;

/// A position in a source: JSON that only the source itself reads, such as
/// `{"events.clicks":{"0":42,"1":17}}` for Kafka. It goes verbatim into the offset log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceOffset(pub serde_json::Value);

/// An exact range: from `start` (exclusive of what was read before) to `end`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceRange {
    /// Position after the last batch.
    pub start: SourceOffset,
    /// Position after this batch.
    pub end: SourceOffset,
}

/// What one batch may take at most; from the pipeline's or stream's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadLimits {
    /// `max_offsets_per_trigger` / `max_rows_per_trigger`
    pub max_rows: Option<u64>,
    /// `max_files_per_trigger`
    pub max_files: Option<u64>,
    /// `max_bytes_per_trigger`
    pub max_bytes: Option<u64>,
}

/// Where a pipeline that begins anew is to start in a source.
#[derive(Debug, Clone, PartialEq)]
pub enum StartAt {
    /// With the first row that is there.
    Earliest,
    /// With what comes next.
    Latest,
    /// With what is of this time or later; microseconds since the epoch.
    Timestamp(i64),
    /// At this position, in the source's own form.
    Offsets(serde_json::Value),
}

/// What is left in a source beyond a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Rows, where the source can tell.
    pub rows: Option<u64>,
    /// Bytes, where the source can tell.
    pub bytes: Option<u64>,
}

/// A record that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where from: `partition 3 offset 42`, `clicks/a.json line 7`.
    pub origin: String,
    /// The bytes as they came, cut at 64 KiB.
    pub raw: Vec<u8>,
    /// Why, as a primary line.
    pub error: String,
}

/// Something about a source that no batch may ever carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// A sentence.
    pub text: String,
    /// What was lost or skipped, if that is what it is about.
    pub gap: Option<DataGap>,
}

/// A part of a source that was lost or skipped, and that some option says to go on without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataGap {
    /// `clicks/3` of a broker, a path of a folder.
    pub partition: String,
    /// First position that is missing, if known.
    pub from: Option<String>,
    /// Position after the last that is missing, if known.
    pub to: Option<String>,
    /// Rows, if known.
    pub rows: Option<u64>,
    /// Bytes, if known.
    pub bytes: Option<u64>,
    /// The option that says to go on.
    pub accepted_by: &'static str,
}

/// A file that a source knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// Its path or key.
    pub path: String,
    /// The batch that took it; `None`: it waits.
    pub batch_id: Option<u64>,
    /// Bytes.
    pub size_bytes: u64,
    /// Microseconds since the epoch.
    pub modified_at_us: i64,
    /// Rows that it gave, as far as it was read since the start.
    pub rows: Option<u64>,
    /// Records of it that could not be decoded, likewise.
    pub dead_letters: Option<u64>,
    /// Why it cannot be read.
    pub error: Option<String>,
}

/// A piece of a range. Many pieces make a range; their order is the same at every read.
#[derive(Debug, Clone)]
pub struct SourceChunk {
    /// Decoded rows in the stream's schema (with weights only from tables and CDC).
    pub changes: ChangeBatch,
    /// Records that could not be decoded.
    pub dead_letters: Vec<DeadLetter>,
    /// What no column takes of the rows.
    pub unknown: UnknownFields,
    /// Bytes read for it, before decoding.
    pub bytes: u64,
}

/// A durable per-source log inside the checkpoint location (`sources/K/N`), for a source whose
/// offsets alone do not name its input, such as the list of files of each batch. Entries are
/// whole or absent and synced when `put` returns.
///
/// An entry names the batch of the one before it as its member `previous`, null for the first and for
/// a compacted one, and a position the batch of its newest entry ([`logged_at`]): so whoever looks at a
/// checkpoint can tell whether all of them are there.
#[async_trait]
pub trait SourceLog: Send + Sync {
    /// Writes the entry of a batch; overwriting an entry of a batch that never committed is fine.
    async fn put(&self, batch_id: u64, entry: &serde_json::Value) -> Result<()>;
    /// Reads the entry of a batch, `None` if there is none.
    async fn get(&self, batch_id: u64) -> Result<Option<serde_json::Value>>;
    /// All entries in batch order.
    async fn load_all(&self) -> Result<Vec<(u64, serde_json::Value)>>;
    /// Replaces all entries up to and including `through` by one compacted entry at `through`.
    async fn compact(&self, through: u64, entry: &serde_json::Value) -> Result<()>;
}

/// The batch whose entry in the source's log a position stands on; `None` where the source keeps no
/// log, and before its first entry.
pub fn logged_at(position: &SourceOffset) -> Option<u64> {
    position.0.get("files_log")?.as_u64()
}

/// A replayable input.
#[async_trait]
pub trait Source: Send + Sync {
    /// One line for people: `kafka topic events.clicks at localhost:9092`.
    fn description(&self) -> String;

    /// Schema of the rows it gives.
    fn schema(&self) -> SchemaRef;

    /// The source that this one only changes the answers of; what it does not answer itself is that
    /// one's to answer.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether a position up to which a pipeline has read can still be one of this source, asked
    /// when the pipeline opens. `Damaged` where the source went back behind it.
    async fn check_position(&self, position: &SourceOffset) -> Result<()> {
        match self.inner() {
            Some(inner) => inner.check_position(position).await,
            None => Ok(()),
        }
    }

    /// Where a new pipeline starts; asked once, then fixed in the offset log.
    async fn initial_offset(&self) -> Result<SourceOffset>;

    /// Where a pipeline that begins anew starts. A source with a [`SourceLog`] writes what the position
    /// stands for as the entry of `batch_id`.
    async fn position_at(&self, batch_id: u64, at: &StartAt) -> Result<SourceOffset> {
        if let Some(inner) = self.inner() {
            return inner.position_at(batch_id, at).await;
        }
        match at {
            StartAt::Earliest => self.initial_offset().await,
            StartAt::Latest => self.latest_offset().await,
            StartAt::Offsets(offset) => {
                let offset = SourceOffset(offset.clone());
                self.check_position(&offset).await?;
                Ok(offset)
            }
            StartAt::Timestamp(_) => Err(Error::unsupported(format!(
                "{} cannot be started at a time",
                self.description()
            ))
            .detail("Its rows have no time of their own.")
            .hint("Say FROM EARLIEST, FROM LATEST or FROM OFFSETS '{…}'.")),
        }
    }

    /// What was taken in up to a position, to be compared with what another pipeline took in;
    /// `None`: the position itself tells it.
    async fn taken_in(&self, position: &SourceOffset) -> Result<Option<u64>> {
        match self.inner() {
            Some(inner) => inner.taken_in(position).await,
            None => Ok(None),
        }
    }

    /// Goes on from where another pipeline's source of the same stream stands, whose log is `theirs`.
    /// A source with a [`SourceLog`] writes what the position stands for as the entry of `batch_id`.
    async fn take_over(
        &self,
        batch_id: u64,
        position: &SourceOffset,
        theirs: &dyn SourceLog,
    ) -> Result<SourceOffset> {
        match self.inner() {
            Some(inner) => inner.take_over(batch_id, position, theirs).await,
            None => Ok(position.clone()),
        }
    }

    /// Whether a range that was read once can still be read whole; an error that says what is gone.
    async fn check_range(&self, range: &SourceRange) -> Result<()> {
        match self.inner() {
            Some(inner) => inner.check_range(range).await,
            None => self.check_position(&range.end).await,
        }
    }

    /// The position after everything that is there now. An error of kind `Transient` means the
    /// source cannot be reached: the engine waits and asks again.
    async fn latest_offset(&self) -> Result<SourceOffset>;

    /// Chooses the range of the next batch, `None` if nothing is there. A source with a
    /// [`SourceLog`] writes the entry for `batch_id` before it returns.
    async fn plan_range(
        &self,
        batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>>;

    /// What lies between two positions, for the backlog columns.
    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog;

    /// Reads exactly a range, in chunks of bounded size; again and again the same.
    /// `projection` lists the columns (indices into `schema`) that are needed; chunks hold only
    /// these, in that order.
    async fn read_range(
        &self,
        batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>>;

    /// The batch that ends at `offset` is durable: the source may forget what came before.
    async fn acknowledge(&self, batch_id: u64, offset: &SourceOffset) -> Result<()>;

    /// What happened to the source since this was last asked, such as records that are lost or
    /// files that changed after they were read; each is given once.
    fn take_notices(&self) -> Vec<Notice> {
        self.inner().map_or_else(Vec::new, Source::take_notices)
    }

    /// The files that it knows of, from memory; none where it reads no files, or has not looked yet.
    fn known_files(&self) -> Vec<KnownFile> {
        self.inner().map_or_else(Vec::new, Source::known_files)
    }

    /// Resolves when something new may be there; the engine also polls. Cancel-safe.
    async fn wait_for_data(&self, from: &SourceOffset);

    /// Changes are inserts only.
    fn is_append_only(&self) -> bool {
        self.inner().is_none_or(Source::is_append_only)
    }
}

/// Shared handle to a source.
pub type SourceRef = Arc<dyn Source>;

/// Who delivers: a sink must make `deliver` idempotent by this pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The pipeline's identity.
    pub pipeline_id: uuid::Uuid,
    /// The batch.
    pub batch_id: u64,
    /// The batch runs again after a crash: a delivery of it may be there already.
    pub replayed: bool,
}

/// An output. `deliver` is called once per batch with the consolidated changes of that batch
/// (possibly none), before the batch commits; after a crash it is called again with the same
/// changes. A reader of the target never sees half a batch.
#[async_trait]
pub trait Sink: Send + Sync {
    /// One line for people.
    fn description(&self) -> String;

    /// Delivers one batch durably.
    async fn deliver(&self, delivery: &Delivery, changes: &[ChangeBatch]) -> Result<SinkReceipt>;

    /// Tries the target without delivering anything; a sentence of what was tried.
    async fn check_target(&self) -> Result<String> {
        Ok("It takes whatever it is given.".to_owned())
    }

    /// What was delivered of batches after `batch_id`, by name: asked before a pipeline goes back to it and
    /// runs on with other batches. Nothing where the target keeps no batch by itself.
    async fn deliveries_after(
        &self,
        _pipeline_id: uuid::Uuid,
        _batch_id: u64,
    ) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Moves deliveries that [`Self::deliveries_after`] named beside the target, into a folder of this
    /// label; says where they are.
    async fn take_back(&self, _deliveries: &[String], _label: &str) -> Result<String> {
        Ok(String::new())
    }
}

/// What a delivery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkReceipt {
    /// Rows written.
    pub rows: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Shared handle to a sink.
pub type SinkRef = Arc<dyn Sink>;

/// Rows already in memory, decoded; what decoders of [`formats`] give.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// Decoded batches.
    pub batches: Vec<RecordBatch>,
    /// Records that could not be decoded.
    pub dead_letters: Vec<DeadLetter>,
}

//! What the log's writer and its readers share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::arrow::buffer::MutableBuffer;
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::LogPosition;
use super::frame::{self, FRAME_HEADER_BYTES, FrameHeader};
use super::index::Index;
use super::recovery::{damaged, io_error, segment_name};
use super::storage::{LogFile, LogStorage};
use super::{LogEntry, index::IndexEntry};
use crate::error::{Error, Result};

/// State behind a [`super::DurableLog`].
#[derive(Debug)]
pub struct Shared {
    /// files
    pub storage: Arc<dyn LogStorage>,
    /// identity of the log
    pub identity: uuid::Uuid,
    /// committed frames
    pub index: RwLock<Index>,
    /// schemas by hash, as stored
    pub schemas: RwLock<HashMap<u64, StoredSchema>>,
    /// position after the last durable commit
    pub end: watch::Sender<LogPosition>,
    /// commits below this position were taken in by someone although they are not here: their
    /// numbers are not given out again
    pub refused_below: AtomicU64,
}

/// The error of a log that ends before `position`, up to which its rows were taken in.
pub fn lost_rows(end: LogPosition, position: LogPosition) -> Error {
    Error::damaged(format!(
        "the folder log of the data directory lost rows: it ends at commit {end}, but rows up to \
         commit {position} were taken in"
    ))
    .detail("The log is the only copy of the rows of tables and of streams without a connector.")
    .hint(
        "Stop the server and put the files of log back from a backup of the same moment. To go on \
         without the lost rows, run RESET CHECKPOINT OF p for every pipeline p that stopped with this \
         error, then start the server again.",
    )
}

/// A schema of frames.
#[derive(Debug, Clone)]
pub struct StoredSchema {
    /// with the weight column, if it has one
    pub stored: SchemaRef,
    /// without
    pub rows: SchemaRef,
}

impl StoredSchema {
    /// From the stored form.
    pub fn new(stored: SchemaRef) -> Self {
        let rows = frame::rows_schema(&stored);
        Self { stored, rows }
    }
}

/// A lazy walk over a relation's entries.
pub struct EntryIterator {
    shared: Arc<Shared>,
    relation: u32,
    next: usize,
    to: LogPosition,
    segment: Option<(u32, Arc<dyn LogFile>)>,
    failed: bool,
}

impl EntryIterator {
    /// Entries of commits `from..to`.
    pub fn new(shared: Arc<Shared>, relation: u32, from: LogPosition, to: LogPosition) -> Self {
        let next = shared.index.read().seek(relation, from);
        Self {
            shared,
            relation,
            next,
            to,
            segment: None,
            failed: false,
        }
    }

    fn read(&mut self, entry: IndexEntry) -> Result<LogEntry> {
        let file = match &self.segment {
            Some((segment, file)) if *segment == entry.segment => Arc::clone(file),
            _ => {
                let file = self
                    .shared
                    .storage
                    .open(&segment_name(entry.segment))
                    .map_err(|e| io_error("open", entry.segment, &e))?;
                self.segment = Some((entry.segment, Arc::clone(&file)));
                file
            }
        };
        let offset = u64::from(entry.offset);
        let bad = |what: &str| damaged(entry.segment, offset, what);
        let mut bytes = [0; FRAME_HEADER_BYTES];
        file.read_at(&mut bytes, offset)
            .map_err(|e| io_error("read", entry.segment, &e))?;
        let header =
            FrameHeader::decode(&bytes).ok_or_else(|| bad("a frame's header is unreadable"))?;
        let mut payload = MutableBuffer::from_len_zeroed(header.payload_bytes as usize);
        file.read_at(payload.as_slice_mut(), offset + FRAME_HEADER_BYTES as u64)
            .map_err(|e| io_error("read", entry.segment, &e))?;
        if crc32c::crc32c(payload.as_slice()) != header.payload_crc {
            return Err(bad("a frame's checksum is wrong"));
        }
        let schema = self.shared.schemas.read().get(&header.schema).cloned();
        let schema = schema.ok_or_else(|| bad("the schema of its rows is missing"))?;
        let changes = frame::decode_rows(payload, &header, &schema.stored, &schema.rows)
            .ok_or_else(|| bad("its rows are unreadable"))?;
        Ok(LogEntry {
            commit: entry.commit,
            changes,
        })
    }
}

impl Iterator for EntryIterator {
    type Item = Result<LogEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let entry = self
            .shared
            .index
            .read()
            .entry(self.relation, self.next, self.to)?;
        self.next += 1;
        let result = self.read(entry);
        self.failed = result.is_err();
        Some(result)
    }
}

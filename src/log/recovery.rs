//! Opening a log: from its files to its index.
//!
//! Headers of all segments are read, payloads only in the last one and where a frame tells
//! about others (commits, schemas). What is found decides:
//!
//! - Segments before the last were synced whole before the next began: anything unreadable in them
//!   is damage.
//! - In the last one, the first unreadable frame is where a crash tore the tail, unless a later
//!   commit says that the disk had already held this place: then it is damage too.
//! - Frames that no commit names belong to transactions that never happened.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;

use super::end::KnownEnd;
use super::frame::{
    self, Commit, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, FrameKind, SEGMENT_HEADER_BYTES,
    SegmentHeader,
};
use super::index::{FrameLocation, Index};
use super::storage::{LogFile, LogStorage};
use crate::error::{Error, Result};

const WINDOW_BYTES: usize = 1 << 20;

/// What a log holds when it opens.
#[derive(Debug)]
pub struct Recovered {
    /// committed frames
    pub index: Index,
    /// schemas by hash
    pub schemas: HashMap<u64, SchemaRef>,
    /// identity; `None`: there is no segment yet
    pub identity: Option<uuid::Uuid>,
    /// the segment to go on in
    pub last: Option<LastSegment>,
    /// first transaction number that no frame has
    pub next_transaction: u64,
}

/// The segment that appends go to.
#[derive(Debug)]
pub struct LastSegment {
    /// number
    pub segment: u32,
    /// its file
    pub file: Arc<dyn LogFile>,
    /// bytes of it that are good
    pub bytes: u64,
    /// schemas that frames in it may name
    pub schemas: Vec<u64>,
}

impl LastSegment {
    /// Cuts a torn tail off, and makes sure that the rest is on disk: what a killed process wrote
    /// may still be only in the system's cache.
    fn settle(&self) -> Result<()> {
        let length = self
            .file
            .length()
            .map_err(|e| io_error("read", self.segment, &e))?;
        if self.bytes < length {
            self.file
                .truncate(self.bytes)
                .map_err(|e| io_error("cut the tail of", self.segment, &e))?;
        }
        self.file
            .sync()
            .map_err(|e| io_error("sync", self.segment, &e))
    }
}

/// The name of a segment's file.
pub fn segment_name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// Reads the log in `storage`. What is `known` of its end, with where that is noted, must be there;
/// nothing is changed before that is sure.
pub fn recover(storage: &dyn LogStorage, known: Option<(&Path, KnownEnd)>) -> Result<Recovered> {
    let mut recovery = Recovery {
        found: Recovered {
            index: Index::default(),
            schemas: HashMap::new(),
            identity: None,
            last: None,
            next_transaction: 1,
        },
        pending: HashMap::new(),
        gaps: Vec::new(),
    };
    let mut segments = list_segments(storage)?;
    let stillborn = take_stillborn_segment(storage, &mut segments)?;
    let last = segments.last().copied();
    let mut previous: Option<u32> = None;
    for segment in segments {
        let file = storage
            .open(&segment_name(segment))
            .map_err(|e| io_error("open", segment, &e))?;
        recovery.read_segment(segment, file, previous, Some(segment) == last)?;
        previous = Some(segment);
    }
    recovery.check_gaps()?;
    if let Some((note, known)) = known {
        let found = &recovery.found;
        known.check(found.identity, found.index.end(), last, note)?;
    }
    if let Some(segment) = stillborn {
        storage
            .remove(&segment_name(segment))
            .map_err(|e| io_error("remove", segment, &e))?;
    }
    if let Some(last) = &recovery.found.last {
        last.settle()?;
    }
    Ok(recovery.found)
}

fn list_segments(storage: &dyn LogStorage) -> Result<Vec<u32>> {
    let names = storage
        .list()
        .map_err(|e| Error::from(e).context("could not list the log"))?;
    let mut segments: Vec<u32> = names
        .iter()
        .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
        .collect();
    segments.sort_unstable();
    Ok(segments)
}

/// A crash between a segment's creation and its header's sync leaves a file that holds no frame.
/// It is no segment, and is to be removed.
fn take_stillborn_segment(
    storage: &dyn LogStorage,
    segments: &mut Vec<u32>,
) -> Result<Option<u32>> {
    let Some(&segment) = segments.last() else {
        return Ok(None);
    };
    let name = segment_name(segment);
    let file = storage
        .open(&name)
        .map_err(|e| io_error("open", segment, &e))?;
    let length = file.length().map_err(|e| io_error("read", segment, &e))?;
    let mut bytes = vec![0; length.min(SEGMENT_HEADER_BYTES as u64) as usize];
    read_at(&*file, segment, &mut bytes, 0)?;
    if length <= SEGMENT_HEADER_BYTES as u64 && SegmentHeader::decode(&bytes)?.is_none() {
        return Ok(segments.pop());
    }
    Ok(None)
}

struct Recovery {
    found: Recovered,
    /// frames of transactions without a commit so far
    pending: HashMap<u64, BTreeMap<(u32, u64), FrameLocation>>,
    /// segment numbers that are not there
    gaps: Vec<u32>,
}

impl Recovery {
    fn read_segment(
        &mut self,
        segment: u32,
        file: Arc<dyn LogFile>,
        previous: Option<u32>,
        is_last: bool,
    ) -> Result<()> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let mut reader = SegmentReader::new(segment, &file, is_last)?;
        if reader.length < SEGMENT_HEADER_BYTES as u64 {
            return Err(damaged(segment, 0, "it is shorter than its header"));
        }
        read_at(&*file, segment, &mut bytes, 0)?;
        let header = SegmentHeader::decode(&bytes)
            .map_err(|e| e.context(format!("log/{}", segment_name(segment))))?
            .filter(|h| h.segment == segment)
            .ok_or_else(|| damaged(segment, 0, "its header is unreadable"))?;
        self.check_order(&header, previous)?;
        self.found.identity = Some(header.identity);
        self.found.index.start_at(header.first_commit);
        self.found.index.add_segment(segment);

        let mut schemas = Vec::new();
        while let Some(frame) = reader.next_frame()? {
            if frame.header.kind == FrameKind::Schema {
                schemas.push(frame.header.schema);
            }
            self.take(segment, &frame)?;
        }
        if is_last {
            let bytes = reader.offset;
            self.found.last = Some(LastSegment {
                segment,
                file,
                bytes,
                schemas,
            });
        }
        Ok(())
    }

    fn check_order(&mut self, header: &SegmentHeader, previous: Option<u32>) -> Result<()> {
        let segment = header.segment;
        if self.found.identity.is_some_and(|id| id != header.identity) {
            return Err(damaged(segment, 0, "it belongs to another database's log"));
        }
        let expected = previous.map_or(1, |p| p + 1);
        self.gaps.extend(expected..segment);
        let end = self.found.index.end();
        let follows =
            header.first_commit == end || (expected != segment && header.first_commit > end);
        if !follows {
            return Err(damaged(
                segment,
                0,
                &format!(
                    "it begins after commit {}, the one before it ends at commit {end}",
                    header.first_commit
                ),
            ));
        }
        Ok(())
    }

    fn take(&mut self, segment: u32, frame: &ReadFrame) -> Result<()> {
        let header = &frame.header;
        let transaction = header.transaction;
        self.found.next_transaction = self.found.next_transaction.max(transaction + 1);
        match header.kind {
            FrameKind::Rows => {
                let location = FrameLocation {
                    segment,
                    offset: frame.offset,
                    bytes: header.frame_bytes() as u32,
                    rows: header.rows,
                    relation: header.relation,
                };
                self.pending
                    .entry(transaction)
                    .or_default()
                    .insert((segment, frame.offset), location);
            }
            FrameKind::Schema => {
                let schema = frame::decode_schema(&frame.payload)
                    .ok_or_else(|| damaged(segment, frame.offset, "its schema is unreadable"))?;
                self.found.schemas.insert(header.schema, Arc::new(schema));
            }
            FrameKind::Commit => {
                let commit = frame::decode_commit(&frame.payload)
                    .ok_or_else(|| damaged(segment, frame.offset, "its commit is unreadable"))?;
                self.take_commit(segment, frame.offset, transaction, &commit)?;
            }
            FrameKind::Forget => self.found.index.forget(header.relation, segment),
            FrameKind::Reclaimed => {
                let segments = frame::decode_reclaimed(&frame.payload);
                self.found.index.add_reclaimed(segments);
            }
        }
        Ok(())
    }

    fn take_commit(
        &mut self,
        segment: u32,
        offset: u64,
        transaction: u64,
        commit: &Commit,
    ) -> Result<()> {
        if commit.commit != self.found.index.end() {
            return Err(damaged(
                segment,
                offset,
                &format!(
                    "commit {} follows commit {}",
                    commit.commit,
                    self.found.index.end()
                ),
            ));
        }
        let mut pending = self.pending.remove(&transaction).unwrap_or_default();
        let mut frames = Vec::with_capacity(commit.frames.len());
        for at in &commit.frames {
            match pending.remove(at) {
                Some(frame) => frames.push(frame),
                // A reclaimed segment held nothing but frames of dropped relations.
                None if self.gaps.contains(&at.0) => {}
                None => {
                    let what = format!(
                        "its commit names a frame at offset {} of {} that is not there",
                        at.1,
                        segment_name(at.0)
                    );
                    return Err(damaged(segment, offset, &what));
                }
            }
        }
        let marker = commit.marker.as_deref();
        self.found.index.commit(&frames, segment, marker);
        Ok(())
    }

    fn check_gaps(&self) -> Result<()> {
        match self
            .gaps
            .iter()
            .find(|s| !self.found.index.reclaimed().contains(s))
        {
            None => Ok(()),
            Some(segment) => Err(Error::damaged(format!(
                "log segment log/{} is missing",
                segment_name(*segment)
            ))
            .detail("It holds rows of tables and streams, and was not deleted by the database.")
            .hint("Put the file back, or restore the data directory with tidemill restore.")),
        }
    }
}

struct ReadFrame {
    header: FrameHeader,
    offset: u64,
    /// empty for rows
    payload: Vec<u8>,
}

/// Walks the frames of one segment.
struct SegmentReader<'a> {
    segment: u32,
    file: &'a Arc<dyn LogFile>,
    length: u64,
    offset: u64,
    is_last: bool,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> SegmentReader<'a> {
    fn new(segment: u32, file: &'a Arc<dyn LogFile>, is_last: bool) -> Result<Self> {
        Ok(Self {
            segment,
            file,
            length: file.length().map_err(|e| io_error("read", segment, &e))?,
            offset: SEGMENT_HEADER_BYTES as u64,
            is_last,
            window: Vec::new(),
            window_start: 0,
        })
    }

    /// The next frame; `None` at the end, which is where a torn tail begins.
    fn next_frame(&mut self) -> Result<Option<ReadFrame>> {
        if self.offset == self.length {
            return Ok(None);
        }
        let Some(header) = self.header_at(self.offset)? else {
            return self.torn("a frame's header is unreadable");
        };
        let payload_start = self.offset + FRAME_HEADER_BYTES as u64;
        if payload_start + u64::from(header.payload_bytes) > self.length {
            return self.torn("a frame is cut off");
        }
        let mut payload = Vec::new();
        if self.is_last || header.kind != FrameKind::Rows {
            payload = self.bytes_at(payload_start, header.payload_bytes as usize)?;
            if crc32c::crc32c(&payload) != header.payload_crc {
                return self.torn("a frame's checksum is wrong");
            }
        }
        if header.kind == FrameKind::Rows {
            payload = Vec::new();
        }
        let offset = self.offset;
        self.offset += header.frame_bytes();
        Ok(Some(ReadFrame {
            header,
            offset,
            payload,
        }))
    }

    fn torn(&mut self, what: &str) -> Result<Option<ReadFrame>> {
        if !self.is_last || self.later_commit_vouches()? {
            return Err(damaged(self.segment, self.offset, what));
        }
        Ok(None)
    }

    /// A commit beyond this place was written when this place was already on disk.
    fn later_commit_vouches(&mut self) -> Result<bool> {
        let rest_bytes = (self.length - self.offset) as usize;
        let rest = self.bytes_at(self.offset, rest_bytes)?;
        let mut at = 1;
        while at + FRAME_HEADER_BYTES <= rest.len() {
            if &rest[at..at + 4] == FRAME_MAGIC
                && let Some(header) = FrameHeader::decode(&rest[at..])
            {
                let start = at + FRAME_HEADER_BYTES;
                let payload = rest.get(start..start + header.payload_bytes as usize);
                if header.kind == FrameKind::Commit
                    && let Some(payload) = payload
                    && crc32c::crc32c(payload) == header.payload_crc
                    && frame::decode_commit(payload)
                        .is_some_and(|commit| commit.synced_bytes > self.offset)
                {
                    return Ok(true);
                }
            }
            at += 1;
        }
        Ok(false)
    }

    fn header_at(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        if offset + FRAME_HEADER_BYTES as u64 > self.length {
            return Ok(None);
        }
        let bytes = self.bytes_at(offset, FRAME_HEADER_BYTES)?;
        Ok(FrameHeader::decode(&bytes))
    }

    fn bytes_at(&mut self, offset: u64, count: usize) -> Result<Vec<u8>> {
        if count > WINDOW_BYTES / 2 {
            let mut bytes = vec![0; count];
            read_at(&**self.file, self.segment, &mut bytes, offset)?;
            return Ok(bytes);
        }
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + count as u64 > window_end {
            let bytes = (self.length - offset).min(WINDOW_BYTES as u64) as usize;
            self.window.resize(bytes, 0);
            self.window_start = offset;
            read_at(&**self.file, self.segment, &mut self.window, offset)?;
        }
        let start = (offset - self.window_start) as usize;
        Ok(self.window[start..start + count].to_vec())
    }
}

fn read_at(file: &dyn LogFile, segment: u32, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_at(buffer, offset)
        .map_err(|e| io_error("read", segment, &e))
}

/// An error about a damaged place of the log.
pub fn damaged(segment: u32, offset: u64, what: &str) -> Error {
    Error::damaged(format!(
        "log/{} is damaged at offset {offset}: {what}",
        segment_name(segment)
    ))
    .detail("The log is the only copy of the rows of tables and of streams without a connector. No file was changed.")
    .hint("Put the file back from a backup, or restore the data directory with tidemill restore.")
}

/// An I/O error with the file it met.
pub fn io_error(what: &str, segment: u32, error: &io::Error) -> Error {
    let name = segment_name(segment);
    if error.raw_os_error() == Some(libc::ENOSPC) || error.raw_os_error() == Some(libc::EDQUOT) {
        return Error::transient(
            crate::error::sqlstate::DISK_FULL,
            format!("could not {what} log/{name}: no space left on device"),
        )
        .hint("Free disk space, then run the statement again.");
    }
    Error::transient(
        crate::error::sqlstate::IO_ERROR,
        format!("could not {what} log/{name}: {error}"),
    )
}

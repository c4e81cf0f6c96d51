//! The one thread that writes the log.
//!
//! It takes all requests that wait, lays their frames one after the other into one write, follows
//! it with one `fdatasync` if any of them commits, then answers them all:
//!
//! ```text
//!   transactions ──requests──► queue ──take all──► one write ─► one fdatasync ─► index ─► hooks ─► answers
//! ```
//!
//! After a failed write or sync nothing is assumed about what the disk holds: the segment is
//! opened anew and cut back to the last durable commit before anything else is written. Frames
//! of unfinished transactions beyond that are lost; the epoch tells those transactions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::oneshot;

use super::LogPosition;
use super::end::{EndFile, KnownEnd};
use super::frame::{self, Commit, EncodedSchema, SegmentHeader};
use super::index::FrameLocation;
use super::recovery::{LastSegment, io_error, segment_name};
use super::shared::{Shared, lost_rows};
use super::storage::LogFile;
use crate::error::{Error, Result};

/// A segment is closed once it holds this much.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// A group of requests is closed once it holds this much.
const GROUP_BYTES: usize = 16 << 20;

/// Runs on the writer's thread right after its commit is durable, in the order of the commits.
pub type CommitHook = Box<dyn FnOnce(LogPosition) + Send>;

/// A frame of rows, encoded, somewhere in a request's bytes.
#[derive(Debug, Clone, Copy)]
pub struct EncodedFrame {
    /// end in the request's bytes; it begins where the one before it ends
    pub end: usize,
    /// rows
    pub rows: u32,
    /// oid
    pub relation: u32,
}

/// What a request wants beside its frames written.
pub enum Action {
    /// nothing: more will follow
    Spill,
    /// the transaction ends
    Commit {
        /// frames it wrote before
        written: Vec<FrameLocation>,
        /// what to find again
        marker: Option<String>,
        /// what to do in commit order
        hook: Option<CommitHook>,
    },
    /// drops a relation's frames
    Forget(u32),
}

/// A request to the writer.
pub struct Request {
    /// transaction number
    pub transaction: u64,
    /// epoch of the frames it wrote before, if any
    pub epoch: Option<u64>,
    /// frames, encoded
    pub bytes: Vec<u8>,
    /// where each frame ends
    pub frames: Vec<EncodedFrame>,
    /// schemas the frames name
    pub schemas: Vec<EncodedSchema>,
    /// what then
    pub action: Action,
    /// the answer
    pub reply: oneshot::Sender<Result<Answer>>,
}

/// What a request came to.
#[derive(Debug)]
pub struct Answer {
    /// its frames
    pub locations: Vec<FrameLocation>,
    /// epoch they were written in
    pub epoch: u64,
    /// position after the commit; the log's end for the others
    pub position: LogPosition,
}

/// The writer's state.
pub struct Writer {
    shared: Arc<Shared>,
    segment: u32,
    file: Option<Arc<dyn LogFile>>,
    written_bytes: u64,
    durable_bytes: u64,
    schemas: HashSet<u64>,
    epoch: u64,
    needs_repair: bool,
    segment_bytes_max: u64,
    /// where the log's end is noted
    note: Option<EndFile>,
}

/// A request whose frames have been laid out in the group.
struct Placed {
    request: Request,
    locations: Vec<FrameLocation>,
    commit: Option<Commit>,
}

impl Writer {
    /// A writer that goes on where `last` ends.
    pub fn new(
        shared: Arc<Shared>,
        last: Option<LastSegment>,
        segment_bytes_max: u64,
        note: Option<EndFile>,
    ) -> Self {
        let mut writer = Self {
            shared,
            segment: 0,
            file: None,
            written_bytes: 0,
            durable_bytes: 0,
            schemas: HashSet::new(),
            epoch: 1,
            needs_repair: false,
            segment_bytes_max,
            note,
        };
        if let Some(last) = last {
            writer.segment = last.segment;
            writer.file = Some(last.file);
            writer.written_bytes = last.bytes;
            writer.durable_bytes = last.bytes;
            writer.schemas = last.schemas.into_iter().collect();
        }
        writer.note_end();
        writer
    }

    /// Serves requests until all senders are gone.
    pub fn run(mut self, queue: &Receiver<Request>) {
        while let Ok(first) = queue.recv() {
            let mut bytes = first.bytes.len();
            let mut group = vec![first];
            while bytes < GROUP_BYTES {
                match queue.try_recv() {
                    Ok(request) => {
                        bytes += request.bytes.len();
                        group.push(request);
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.serve(group);
        }
    }

    fn serve(&mut self, group: Vec<Request>) {
        if let Err(error) = self.prepare() {
            for request in group {
                reply(request.reply, Err(error.clone()));
            }
            return;
        }
        let mut out = Vec::with_capacity(group.iter().map(|r| r.bytes.len() + 256).sum());
        let mut next_commit = self.shared.index.read().end();
        let mut placed = Vec::with_capacity(group.len());
        for request in group {
            if request.epoch.is_some_and(|epoch| epoch != self.epoch) {
                reply(request.reply, Err(lost_frames()));
                continue;
            }
            let required = self.shared.refused_below.load(Ordering::Relaxed);
            if next_commit < required && matches!(request.action, Action::Commit { .. }) {
                reply(request.reply, Err(lost_rows(next_commit, required)));
                continue;
            }
            placed.push(self.place(request, &mut out, &mut next_commit));
        }
        if placed.is_empty() {
            return;
        }
        match self.write(&out, &placed) {
            Ok(()) => self.finish(placed),
            Err(error) => {
                let error = match self.repair() {
                    Ok(()) => error,
                    Err(_) => error.detail(
                        "The end of the log could not be put right either: after a restart the transaction may turn out to have happened.",
                    ),
                };
                for placed in placed {
                    reply(placed.request.reply, Err(error.clone()));
                }
            }
        }
    }

    /// Makes sure that there is a good segment with room.
    fn prepare(&mut self) -> Result<()> {
        if self.needs_repair {
            self.repair()?;
        }
        if let Some(file) = &self.file {
            if self.written_bytes < self.segment_bytes_max {
                return Ok(());
            }
            if self.durable_bytes < self.written_bytes {
                if let Err(e) = file.sync() {
                    self.needs_repair = true;
                    return Err(io_error("sync", self.segment, &e));
                }
                self.durable_bytes = self.written_bytes;
            }
        }
        self.start_segment()
    }

    fn start_segment(&mut self) -> Result<()> {
        let segment = self.segment + 1;
        let name = segment_name(segment);
        let header = SegmentHeader {
            segment,
            first_commit: self.shared.index.read().end(),
            identity: self.shared.identity,
        };
        let file = self
            .shared
            .storage
            .create(&name)
            .and_then(|file| {
                file.write_at(&header.encode(), 0)?;
                file.sync()?;
                Ok(file)
            })
            .map_err(|e| io_error("create", segment, &e))?;
        self.shared.index.write().add_segment(segment);
        self.segment = segment;
        self.file = Some(file);
        self.written_bytes = frame::SEGMENT_HEADER_BYTES as u64;
        self.durable_bytes = self.written_bytes;
        self.schemas.clear();
        Ok(())
    }

    fn place(&mut self, request: Request, out: &mut Vec<u8>, next_commit: &mut u64) -> Placed {
        for schema in &request.schemas {
            if self.schemas.insert(schema.id) {
                out.extend_from_slice(&schema.frame);
            }
        }
        let base = self.written_bytes + out.len() as u64;
        out.extend_from_slice(&request.bytes);
        let mut start = 0;
        let mut locations = Vec::with_capacity(request.frames.len());
        for frame in &request.frames {
            locations.push(FrameLocation {
                segment: self.segment,
                offset: base + start as u64,
                bytes: (frame.end - start) as u32,
                rows: frame.rows,
                relation: frame.relation,
            });
            start = frame.end;
        }
        let mut commit = None;
        match &request.action {
            Action::Spill => {}
            Action::Commit {
                written, marker, ..
            } => {
                let placed = Commit {
                    commit: *next_commit,
                    synced_bytes: self.durable_bytes,
                    frames: written
                        .iter()
                        .chain(&locations)
                        .map(|l| (l.segment, l.offset))
                        .collect(),
                    marker: marker.clone(),
                };
                frame::push_commit(out, request.transaction, &placed);
                *next_commit += 1;
                commit = Some(placed);
            }
            Action::Forget(relation) => frame::push_forget(out, *relation),
        }
        Placed {
            request,
            locations,
            commit,
        }
    }

    fn write(&mut self, out: &[u8], placed: &[Placed]) -> Result<()> {
        let file = self.file.as_ref().ok_or_else(|| {
            Error::internal("the log writes only after it has prepared a segment")
        })?;
        file.write_at(out, self.written_bytes)
            .map_err(|e| io_error("write to", self.segment, &e))?;
        let written_bytes = self.written_bytes + out.len() as u64;
        if placed
            .iter()
            .any(|p| !matches!(p.request.action, Action::Spill))
        {
            file.sync()
                .map_err(|e| io_error("sync", self.segment, &e))?;
            self.durable_bytes = written_bytes;
        }
        self.written_bytes = written_bytes;
        Ok(())
    }

    fn finish(&mut self, placed: Vec<Placed>) {
        let mut answers = Vec::with_capacity(placed.len());
        let mut reclaim = false;
        {
            let mut index = self.shared.index.write();
            for placed in placed {
                let Placed {
                    request,
                    locations,
                    commit,
                } = placed;
                let mut hook = None;
                match request.action {
                    Action::Spill => index.open_transaction(request.transaction, self.segment),
                    Action::Commit {
                        written,
                        hook: commit_hook,
                        ..
                    } => {
                        let frames: Vec<_> = written.iter().chain(&locations).copied().collect();
                        let marker = commit.as_ref().and_then(|c| c.marker.as_deref());
                        index.commit(&frames, self.segment, marker);
                        index.close_transaction(request.transaction);
                        hook = commit_hook;
                    }
                    Action::Forget(relation) => {
                        index.forget(relation, self.segment);
                        reclaim = true;
                    }
                }
                let answer = Answer {
                    locations,
                    epoch: self.epoch,
                    position: index.end(),
                };
                answers.push((hook, request.reply, answer));
            }
        }
        let end = self.shared.index.read().end();
        let mut replies = Vec::with_capacity(answers.len());
        for (hook, sender, answer) in answers {
            if let Some(hook) = hook {
                hook(answer.position);
            }
            replies.push((sender, answer));
        }
        self.note_end();
        self.shared.end.send_replace(end);
        if reclaim && let Err(error) = self.reclaim() {
            tracing::warn!(%error, "segments of the log that nothing needs stay until later");
        }
        for (sender, answer) in replies {
            reply(sender, Ok(answer));
        }
    }

    /// Notes the end outside of the log, after what lies before it is on disk.
    fn note_end(&mut self) {
        let known = KnownEnd {
            identity: self.shared.identity,
            end: self.shared.index.read().end(),
        };
        if known.end == 0 {
            return;
        }
        if let Some(note) = &self.note
            && let Err(error) = note.record(known)
        {
            // An older note is right as well, it only notices less.
            tracing::warn!(%error, "could not note the log's end");
        }
    }

    /// Deletes segments that nothing needs, after the log says so durably.
    fn reclaim(&mut self) -> Result<()> {
        let (segments, all) = {
            let index = self.shared.index.read();
            let segments = index.reclaimable(self.segment);
            let all: Vec<u32> = index.reclaimed().iter().chain(&segments).copied().collect();
            (segments, all)
        };
        if segments.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        frame::push_reclaimed(&mut out, &all);
        let file = self
            .file
            .as_ref()
            .ok_or_else(|| Error::internal("the log has a segment once it reclaims"))?;
        let written = file
            .write_at(&out, self.written_bytes)
            .and_then(|()| file.sync());
        if let Err(e) = written {
            self.needs_repair = true;
            return Err(io_error("write to", self.segment, &e));
        }
        self.written_bytes += out.len() as u64;
        self.durable_bytes = self.written_bytes;
        self.shared
            .index
            .write()
            .add_reclaimed(segments.iter().copied());
        for segment in segments {
            self.shared
                .storage
                .remove(&segment_name(segment))
                .map_err(|e| io_error("remove", segment, &e))?;
        }
        Ok(())
    }

    /// Opens the segment anew and cuts it back to its last durable byte.
    fn repair(&mut self) -> Result<()> {
        self.needs_repair = true;
        self.epoch += 1;
        if self.segment == 0 {
            self.needs_repair = false;
            return Ok(());
        }
        let file = self
            .shared
            .storage
            .open(&segment_name(self.segment))
            .and_then(|file| {
                file.truncate(self.durable_bytes)?;
                file.sync()?;
                Ok(file)
            })
            .map_err(|e| io_error("cut the tail of", self.segment, &e))?;
        self.file = Some(file);
        self.written_bytes = self.durable_bytes;
        // A schema may have been in the part that was cut off; writing one twice does no harm.
        self.schemas.clear();
        self.needs_repair = false;
        Ok(())
    }
}

fn reply(sender: oneshot::Sender<Result<Answer>>, answer: Result<Answer>) {
    // Nobody waits any more when a session was cancelled; the commit stands all the same.
    if sender.send(answer).is_err() {
        tracing::debug!("the session that waited for the log has gone");
    }
}

fn lost_frames() -> Error {
    Error::transient(
        crate::error::sqlstate::IO_ERROR,
        "could not commit: rows of the transaction were lost when a write to the log failed",
    )
    .hint("Run the transaction again.")
}

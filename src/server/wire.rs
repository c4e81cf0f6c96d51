//! One connection's bytes: framing, buffered output, and waiting that can be interrupted.
//!
//! Everything a statement waits for (its next batch, room in the socket) goes through
//! [`Wire::guard`] or [`Wire::flush`], which also watch for a cancel request, the statement
//! timeout and a client that left; a slow client holds its query back since output is written
//! before the next batch is asked for. What a client sends ahead is buffered up to a limit.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use pgwire::messages::PgWireBackendMessage;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::frontend::FrontendMessage;
use crate::catalog::pg_catalog::backends::Signal;
use crate::error::{Error, ErrorKind, Result, sqlstate};

/// Largest message taken from a client.
const MESSAGE_MAX_BYTES: usize = 256 << 20;
/// Largest statement: while it is read, planned and run, there are many copies of its text.
const STATEMENT_MAX_BYTES: usize = 64 << 20;
/// Bytes read ahead of the statement that runs.
const READ_AHEAD_MAX_BYTES: usize = 1 << 20;
/// Output is written when this much is buffered.
pub(super) const FLUSH_BYTES: usize = 64 << 10;

/// Why a connection stops what it does.
#[derive(Debug)]
pub(super) enum Failure {
    /// The statement failed; the session goes on.
    Statement(Error),
    /// The session ends with this error.
    Fatal(Error),
    /// The client is gone; there is no one to tell.
    Gone,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

/// Result of work on a connection.
pub(super) type WireResult<T> = std::result::Result<T, Failure>;

/// Until when a session waits for its client, and what ends it then.
#[derive(Debug)]
pub(super) struct Patience {
    pub until: Instant,
    pub error: Error,
}

/// Both directions of a connection.
pub(super) struct Wire<R, W> {
    reader: R,
    writer: W,
    input: BytesMut,
    /// Encoded messages not yet written.
    pub output: BytesMut,
    signals: watch::Receiver<Signal>,
    // Keeps the channel open until the session's own one is attached.
    _unsignalled: Option<watch::Sender<Signal>>,
    end_of_input: bool,
    deadline: Option<Instant>,
    last_kind: u8,
}

enum Event<T> {
    Done(T),
    Stop(Failure),
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Wire<R, W> {
    /// A connection that no one can signal yet.
    pub fn new(reader: R, writer: W) -> Self {
        let (sender, signals) = watch::channel(Signal::None);
        Self {
            reader,
            writer,
            input: BytesMut::with_capacity(8 << 10),
            output: BytesMut::with_capacity(8 << 10),
            signals,
            _unsignalled: Some(sender),
            end_of_input: false,
            deadline: None,
            last_kind: 0,
        }
    }

    /// From now on these signals interrupt it.
    pub fn attach_signals(&mut self, signals: watch::Receiver<Signal>) {
        self.signals = signals;
        self._unsignalled = None;
    }

    /// Until when the running statement may take; `None`: without limit.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Puts a message into the output buffer.
    pub fn put(&mut self, message: PgWireBackendMessage) -> WireResult<()> {
        message.encode(&mut self.output).map_err(|e| {
            Failure::Statement(Error::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("could not encode the answer: {e}"),
            ))
        })
    }

    /// Awaits `work`, unless a cancel, the deadline or the client's disappearance comes first.
    /// A panic inside becomes an internal error.
    pub async fn guard<T>(&mut self, work: impl Future<Output = T>) -> WireResult<T> {
        let mut work = std::pin::pin!(AssertUnwindSafe(work).catch_unwind());
        loop {
            let event = tokio::select! {
                biased;
                stop = interrupted(&mut self.signals, self.deadline) => Event::Stop(stop),
                done = &mut work => match done {
                    Ok(value) => Event::Done(value),
                    Err(panic) => Event::Stop(Failure::Statement(panic_error(panic.as_ref()))),
                },
                // While the statement makes the client wait, it gets what is there.
                written = self.writer.write_buf(&mut self.output), if !self.output.is_empty() => {
                    match written {
                        Ok(count) if count > 0 => continue,
                        _ => Event::Stop(Failure::Gone),
                    }
                }
                more = read_ahead(&mut self.reader, &mut self.input),
                    if !self.end_of_input && self.input.len() < READ_AHEAD_MAX_BYTES =>
                {
                    match more {
                        true => continue,
                        false => {
                            self.end_of_input = true;
                            Event::Stop(Failure::Gone)
                        }
                    }
                }
            };
            return match event {
                Event::Done(value) => Ok(value),
                Event::Stop(failure) => Err(failure),
            };
        }
    }

    /// Writes all output, interruptible as [`Self::guard`]. What an interrupt leaves unwritten
    /// stays buffered, so that no message is ever cut.
    pub async fn flush_guarded(&mut self) -> WireResult<()> {
        while !self.output.is_empty() {
            tokio::select! {
                biased;
                stop = interrupted(&mut self.signals, self.deadline) => return Err(stop),
                written = self.writer.write_buf(&mut self.output) => match written {
                    Ok(count) if count > 0 => {}
                    _ => return Err(Failure::Gone),
                },
                more = read_ahead(&mut self.reader, &mut self.input),
                    if !self.end_of_input && self.input.len() < READ_AHEAD_MAX_BYTES =>
                {
                    if !more {
                        self.end_of_input = true;
                        return Err(Failure::Gone);
                    }
                }
            }
        }
        self.writer.flush().await.map_err(|_| Failure::Gone)
    }

    /// Writes all output; only a lost connection or a termination ends it early.
    pub async fn flush(&mut self) -> WireResult<()> {
        while !self.output.is_empty() {
            tokio::select! {
                biased;
                written = self.writer.write_buf(&mut self.output) => match written {
                    Ok(count) if count > 0 => {}
                    _ => return Err(Failure::Gone),
                },
                stop = terminated(&mut self.signals) => return Err(stop),
            }
        }
        self.writer.flush().await.map_err(|_| Failure::Gone)
    }

    /// Writes what fits without waiting longer than `within`; for the last words to a client.
    pub async fn flush_within(&mut self, within: std::time::Duration) {
        let all = async {
            self.writer.write_all_buf(&mut self.output).await?;
            self.writer.shutdown().await
        };
        // A client that does not read its farewell loses it: the connection ends either way.
        if !matches!(tokio::time::timeout(within, all).await, Ok(Ok(()))) {
            tracing::debug!("the client did not take the last message");
        }
    }

    /// The next message while a statement reads (COPY): interruptible.
    pub async fn next_guarded(&mut self) -> WireResult<FrontendMessage> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            tokio::select! {
                biased;
                stop = interrupted(&mut self.signals, self.deadline) => return Err(stop),
                more = read_ahead(&mut self.reader, &mut self.input) => {
                    if !more {
                        return Err(Failure::Gone);
                    }
                }
            }
        }
    }

    /// The next message between statements; the end of `patience` ends the session. Dropped while it
    /// waits, it loses nothing.
    pub async fn next(&mut self, patience: Option<&Patience>) -> WireResult<FrontendMessage> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            if self.end_of_input {
                return Err(Failure::Gone);
            }
            self.flush().await?;
            tokio::select! {
                biased;
                stop = terminated(&mut self.signals) => return Err(stop),
                more = read_ahead(&mut self.reader, &mut self.input) => {
                    self.end_of_input = !more;
                }
                error = out_of_patience(patience) => return Err(Failure::Fatal(error)),
            }
        }
    }

    /// A complete message that is already here.
    fn buffered(&mut self) -> WireResult<Option<FrontendMessage>> {
        let Some(length) = self.frame_length()? else {
            return Ok(None);
        };
        if self.input.len() < 1 + length {
            self.input.reserve(1 + length - self.input.len());
            return Ok(None);
        }
        let mut frame = self.input.split_to(1 + length).freeze();
        let kind = frame.get_u8();
        frame.advance(4);
        self.last_kind = kind;
        Ok(Some(FrontendMessage::decode(kind, frame)?))
    }

    fn frame_length(&self) -> WireResult<Option<usize>> {
        if self.input.len() < 5 {
            return Ok(None);
        }
        let length = usize::try_from((&self.input[1..5]).get_i32()).unwrap_or(0);
        if matches!(self.input[0], b'Q' | b'P') && length > STATEMENT_MAX_BYTES {
            return Err(Failure::Fatal(
                Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too long")
                    .detail(format!(
                        "It has {length} bytes; {STATEMENT_MAX_BYTES} are taken."
                    ))
                    .hint("Send large values as parameters, and many rows with COPY."),
            ));
        }
        match (4..=MESSAGE_MAX_BYTES).contains(&length) {
            true => Ok(Some(length)),
            // Nothing after a wrong length can be trusted to be a message.
            false => Err(Failure::Fatal(Error::new(
                sqlstate::PROTOCOL_VIOLATION,
                "invalid message length",
            ))),
        }
    }

    /// Type of the message that was read last.
    pub fn last_kind(&self) -> u8 {
        self.last_kind
    }

    /// True when the next message is here and is Sync.
    pub fn sync_is_next(&self) -> bool {
        self.input.first() == Some(&b'S')
    }

    /// Something is here that nobody has read.
    pub fn has_unread(&self) -> bool {
        !self.input.is_empty()
    }

    /// Both directions again, when nothing is buffered in between.
    pub fn into_parts(self) -> (R, W) {
        (self.reader, self.writer)
    }

    /// Reads one untyped start-up packet (length first) without its length.
    pub async fn startup_packet(&mut self, max_bytes: usize) -> WireResult<Bytes> {
        loop {
            if self.input.len() >= 4 {
                let length = usize::try_from((&self.input[..4]).get_i32()).unwrap_or(0);
                if !(8..=max_bytes).contains(&length) {
                    return Err(Failure::Fatal(Error::new(
                        sqlstate::PROTOCOL_VIOLATION,
                        "invalid length of startup packet",
                    )));
                }
                if self.input.len() >= length {
                    let mut packet = self.input.split_to(length).freeze();
                    packet.advance(4);
                    return Ok(packet);
                }
            }
            if !read_ahead(&mut self.reader, &mut self.input).await {
                return Err(Failure::Gone);
            }
        }
    }
}

/// Awaits work that nothing may interrupt, such as a commit; a panic becomes an internal error.
pub(super) async fn shielded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(panic) => Err(panic_error(panic.as_ref())),
    }
}

/// Reads what is there; false at the end of input or on a broken connection.
async fn read_ahead<R: AsyncRead + Unpin>(reader: &mut R, input: &mut BytesMut) -> bool {
    input.reserve(8 << 10);
    matches!(reader.read_buf(input).await, Ok(count) if count > 0)
}

async fn out_of_patience(patience: Option<&Patience>) -> Error {
    match patience {
        Some(patience) => {
            sleep_until(patience.until).await;
            patience.error.clone()
        }
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn interrupted(signals: &mut watch::Receiver<Signal>, deadline: Option<Instant>) -> Failure {
    tokio::select! {
        biased;
        signal = signals.wait_for(|s| *s != Signal::None) => match signal.map(|s| *s) {
            Ok(Signal::Cancel) => Failure::Statement(Error::with_kind(
                ErrorKind::Cancelled,
                sqlstate::QUERY_CANCELED,
                "canceling statement due to user request",
            )),
            _ => Failure::Fatal(terminated_error()),
        },
        () = until(deadline) => Failure::Statement(Error::with_kind(
            ErrorKind::Cancelled,
            sqlstate::QUERY_CANCELED,
            "canceling statement due to statement timeout",
        )),
    }
}

async fn terminated(signals: &mut watch::Receiver<Signal>) -> Failure {
    match signals.wait_for(|s| *s == Signal::Terminate).await {
        Ok(_) | Err(_) => Failure::Fatal(terminated_error()),
    }
}

fn terminated_error() -> Error {
    Error::with_kind(
        ErrorKind::Cancelled,
        sqlstate::ADMIN_SHUTDOWN,
        "terminating connection due to administrator command",
    )
}

/// A panic's answer to the client; the log has its text.
fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = %text, "a statement panicked");
    Error::internal("the statement ran into a defect of the server")
        .detail("The server's log has the particulars; the connection goes on.")
}

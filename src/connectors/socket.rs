//! The `socket` connector: lines from a TCP server, logged before anything uses them.
//!
//! A socket cannot be asked for the same lines twice, so a receiver appends them to the stream's
//! relation in the durable log, and views read the log. What was received is committed in batches
//! of a few milliseconds; what a crash cuts off before its commit was never seen by anyone.
//!
//! The receiver connects as a client and reconnects for ever, with a growing pause. Bad lines are
//! dead letters: the log holds rows only, so they go to the environment's hook at once, and their
//! count and the last of them are in the status.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use datafusion::arrow::array::RecordBatch;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::formats::lines::find_byte;
use super::formats::{FormatOptions, Layout, RecordDecoder, dead_letter};
use super::settings::Settings;
use super::{ConnectorEnvironment, DeadLetter};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};
use crate::log::DurableLog;
use crate::log::stored::StoredWriter;

/// How long lines are gathered before they are committed.
const GATHER: Duration = Duration::from_millis(10);

/// Rows that are committed at once.
const BATCH_ROWS: usize = 8_192;

/// Bytes of one line at most.
const LINE_BYTES_MAX: usize = 16 << 20;

/// First and last pause before connecting again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Dead letters that the status keeps.
const LETTERS_KEPT: usize = 100;

/// What a receiver is doing.
#[derive(Debug, Clone, Default)]
pub struct SocketStatus {
    /// The connection is up.
    pub connected: bool,
    /// What is wrong now: why it is not connected, or why received rows cannot be logged.
    pub last_error: Option<String>,
    /// Since when there is no connection, microseconds since the epoch; `None` while it is up.
    pub down_since_us: Option<i64>,
    /// Rows committed since the receiver started.
    pub rows: u64,
    /// Lines that could not be decoded since then.
    pub dead_letters: u64,
    /// Lines since then with fields that no column takes.
    pub unknown_field_rows: u64,
    /// The last of these lines.
    pub last_dead_letters: Vec<DeadLetter>,
    /// When a row was last committed, microseconds since the epoch.
    pub last_row_at_us: Option<i64>,
}

impl SocketStatus {
    /// What keeps rows from coming, of kind `Transient` as for a broker that is away; `None` while
    /// all is well or the first connection is still being made.
    pub fn trouble(&self) -> Option<Error> {
        let reason = self.last_error.clone()?;
        let error = Error::transient(sqlstate::CONNECTION_FAILURE, reason);
        let down_since = self.down_since_us.and_then(DateTime::from_timestamp_micros);
        Some(match down_since {
            Some(at) => error.detail(format!(
                "There has been no connection since {}.",
                at.format("%Y-%m-%d %H:%M:%S UTC")
            )),
            None => error,
        })
    }
}

/// Handle to a running receiver. Dropped without [`Self::stop`] the receiver ends at its next
/// chance.
pub struct SocketReceiver {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    status: Arc<Mutex<SocketStatus>>,
}

impl SocketReceiver {
    /// Starts receiving for a `socket` stream. Must be called inside a tokio runtime. Options:
    /// `host`, `port`, `format` (text by default; json, csv).
    pub fn start(object: &CatalogObject, environment: &ConnectorEnvironment) -> Result<Self> {
        let receiver = Receiver::open(object, environment)?;
        let status = receiver.status.clone();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(receiver.run(stopped));
        Ok(Self { stop, task, status })
    }

    /// What it is doing now.
    pub fn status(&self) -> SocketStatus {
        self.status.lock().clone()
    }

    /// Commits what was received and stops.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if self.task.await.is_err() {
            tracing::error!("a socket receiver ended unexpectedly");
        }
    }
}

/// Checks a `socket` stream's options without connecting.
pub fn check_options(object: &CatalogObject, environment: &ConnectorEnvironment) -> Result<()> {
    Endpoint::from_object(object, environment).map(drop)
}

/// Where and how to read.
struct Endpoint {
    host: String,
    port: u16,
    format: FormatOptions,
    layout: Layout,
    /// Bad lines are counted and their bytes not kept.
    drops_bad_rows: bool,
}

impl Endpoint {
    fn from_object(object: &CatalogObject, environment: &ConnectorEnvironment) -> Result<Self> {
        let Definition::Stream(stream) = &object.definition else {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a stream", object.name),
            ));
        };
        let settings = Settings::new(&object.name, &stream.options, &environment.secrets);
        let host = settings.text("host")?.unwrap_or("localhost".to_owned());
        settings.required("port")?;
        let port = settings
            .parsed("port", "a port number from 1 to 65535", |text| {
                text.trim().parse::<u16>().ok().filter(|port| *port > 0)
            })?
            .ok_or_else(|| Error::internal("a required option is there"))?;
        if let Some(column) = object.columns().iter().find(|c| c.metadata_from.is_some()) {
            let name = column.metadata_from.as_deref().unwrap_or_default();
            return Err(super::unknown_metadata(&column.name, name, "socket", &[]));
        }
        let drops_bad_rows = match settings.text("on_bad_row")?.as_deref() {
            Some("fail") => {
                return Err(Error::unsupported(
                    "a socket stream cannot stop at a row that cannot be decoded",
                )
                .detail("What the server sent cannot be asked for again.")
                .hint("Use on_bad_row = 'dead_letter' or 'drop'."));
            }
            policy => policy == Some("drop"),
        };
        let format = FormatOptions::from_settings(&settings, || Some("text"))?;
        let schema = object.sent_schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let layout = Layout::new(&schema, &vec![None; all.len()], &all);
        RecordDecoder::new(&format, &layout.payload, &layout.payload_projection)?;
        Ok(Self {
            host,
            port,
            format,
            layout,
            drops_bad_rows,
        })
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

struct Receiver {
    name: String,
    relation: u32,
    writer: StoredWriter,
    endpoint: Endpoint,
    log: Arc<DurableLog>,
    environment: ConnectorEnvironment,
    status: Arc<Mutex<SocketStatus>>,
}

/// How a connection ended.
enum Ended {
    Stopped,
    Closed,
    Failed(String),
}

impl Receiver {
    fn open(object: &CatalogObject, environment: &ConnectorEnvironment) -> Result<Self> {
        Ok(Self {
            name: object.name.clone(),
            relation: object.oid,
            writer: StoredWriter::new(object),
            endpoint: Endpoint::from_object(object, environment)?,
            log: environment.durable_log()?,
            environment: environment.clone(),
            status: Arc::default(),
        })
    }

    async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            let rows_before = self.status.lock().rows;
            let ended = self.connection(&mut stopped).await;
            self.status.lock().connected = false;
            let reason = match ended {
                Ended::Stopped => return,
                Ended::Closed => "the server closed the connection".to_owned(),
                Ended::Failed(reason) => reason,
            };
            let received = self.status.lock().rows > rows_before;
            failures = if received { 0 } else { failures + 1 };
            let pause = pause(failures, self.environment.clock.now_us() as u64);
            tracing::info!(stream = %self.name, reason, ?pause, "socket is down, connecting again");
            {
                let mut status = self.status.lock();
                status.last_error = Some(reason);
                let now_us = self.environment.clock.now_us();
                status.down_since_us.get_or_insert(now_us);
            }
            if wait_or_stop(pause, &mut stopped).await {
                return;
            }
        }
    }

    async fn connection(&self, stopped: &mut watch::Receiver<bool>) -> Ended {
        let address = self.endpoint.address();
        let connecting =
            tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address.as_str()));
        let socket = tokio::select! {
            _ = stop_asked(stopped) => return Ended::Stopped,
            connected = connecting => match connected {
                Err(_) => return Ended::Failed(format!("could not connect to {address} in time")),
                Ok(Err(e)) => return Ended::Failed(format!("could not connect to {address}: {}", words(&e))),
                Ok(Ok(socket)) => socket,
            },
        };
        {
            let mut status = self.status.lock();
            status.connected = true;
            status.last_error = None;
            status.down_since_us = None;
        }
        self.receive(socket, stopped).await
    }

    /// Reads until the connection or the receiver ends; all that came is committed before.
    async fn receive<S: AsyncRead + Unpin>(
        &self,
        mut socket: S,
        stopped: &mut watch::Receiver<bool>,
    ) -> Ended {
        let endpoint = &self.endpoint;
        let decoder = RecordDecoder::new(
            &endpoint.format,
            &endpoint.layout.payload,
            &endpoint.layout.payload_projection,
        );
        let mut lines = match decoder {
            Ok(decoder) => {
                // Lines are counted from each connection's first, so its time tells them apart.
                let seconds = self.environment.clock.now_us().div_euclid(1_000_000);
                Lines::new(
                    decoder,
                    format!("{} connected {seconds}", endpoint.address()),
                )
            }
            Err(e) => return Ended::Failed(e.primary().to_owned()),
        };
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            let read = tokio::select! {
                biased;
                _ = stop_asked(stopped) => Read::Stopped,
                read = read_some(&mut socket, &mut buffer, lines.rows() > 0) => read,
            };
            let quiet = matches!(read, Read::Nothing);
            let ended = match read {
                Read::Bytes(length) => {
                    lines.add(&buffer[..length]);
                    None
                }
                Read::Nothing => None,
                Read::Stopped => Some(Ended::Stopped),
                Read::End => {
                    lines.finish();
                    Some(Ended::Closed)
                }
                Read::Failed(reason) => Some(Ended::Failed(reason)),
            };
            if (ended.is_some() || lines.is_due(quiet))
                && let Some(ended) = self.commit(&mut lines, stopped).await
            {
                return ended;
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Makes the gathered rows durable, trying again while the log cannot take them: the server
    /// will not send them twice. Meanwhile nothing is read, so the server is held back.
    async fn commit(
        &self,
        lines: &mut Lines,
        stopped: &mut watch::Receiver<bool>,
    ) -> Option<Ended> {
        let (rows, mut letters) = match lines.take(&self.endpoint.layout) {
            Ok(taken) => taken,
            Err(e) => return Some(Ended::Failed(e.primary().to_owned())),
        };
        let unknown_field_rows = lines.take_unknown_field_rows();
        let count = rows.as_ref().map_or(0, RecordBatch::num_rows) as u64;
        if let Some(rows) = rows {
            let changes = match self.writer.stored(&ChangeBatch::inserts(rows)) {
                Ok(changes) => changes,
                Err(e) => return Some(Ended::Failed(e.primary().to_owned())),
            };
            let mut failures = 0;
            while let Err(e) = self.log_rows(&changes).await {
                failures += 1;
                let reason = format!("received rows could not be logged: {}", e.primary());
                tracing::error!(stream = %self.name, rows = count, error = %e, "{reason}");
                self.status.lock().last_error = Some(reason);
                let noise = self.environment.clock.now_us() as u64;
                if wait_or_stop(pause(failures, noise), stopped).await {
                    return Some(Ended::Stopped);
                }
            }
        }
        if self.endpoint.drops_bad_rows {
            letters.iter_mut().for_each(|letter| letter.raw.clear());
        }
        self.tell_letters(&letters);
        let mut status = self.status.lock();
        status.rows += count;
        status.unknown_field_rows += unknown_field_rows;
        if count > 0 {
            status.last_error = None;
            status.last_row_at_us = Some(self.environment.clock.now_us());
        }
        status.dead_letters += letters.len() as u64;
        status.last_dead_letters.extend(letters);
        let surplus = status.last_dead_letters.len().saturating_sub(LETTERS_KEPT);
        status.last_dead_letters.drain(..surplus);
        None
    }

    /// Puts bad lines where people look for them.
    fn tell_letters(&self, letters: &[DeadLetter]) {
        let Some(last) = letters.last() else { return };
        tracing::warn!(
            stream = %self.name, count = letters.len(), origin = %last.origin, error = %last.error,
            "received lines could not be decoded"
        );
        if let Some(record) = &self.environment.dead_letters {
            record(&self.name, self.log.end(), letters);
        }
    }

    async fn log_rows(&self, changes: &ChangeBatch) -> Result<()> {
        let mut transaction = self.log.begin();
        transaction.append(self.relation, changes).await?;
        transaction.commit().await.map(drop)
    }
}

/// An error of the system without its number.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    text.strip_prefix("failed to lookup address information: ")
        .unwrap_or(text)
        .to_owned()
}

/// Resolves when the receiver shall stop, or its handle is gone.
async fn stop_asked(stopped: &mut watch::Receiver<bool>) {
    // An error means that the handle was dropped, which asks for the same.
    if stopped.wait_for(|stop| *stop).await.is_err() {
        tracing::debug!("a socket receiver lost its handle");
    }
}

/// True if the stop came before the pause ended.
async fn wait_or_stop(pause: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = stop_asked(stopped) => true,
        () = tokio::time::sleep(pause) => false,
    }
}

/// Doubles with each failure up to a limit; `noise` spreads receivers that failed together over
/// the second half of the pause.
fn pause(failures: u32, noise: u64) -> Duration {
    let full = PAUSE_MIN
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(PAUSE_MAX);
    let half_us = (full.as_micros() / 2).max(1) as u64;
    Duration::from_micros(half_us + noise % half_us)
}

enum Read {
    Bytes(usize),
    /// The gathering time is over.
    Nothing,
    End,
    Stopped,
    Failed(String),
}

/// Reads what is there; with rows gathered already, not longer than the gathering time.
async fn read_some<S: AsyncRead + Unpin>(
    socket: &mut S,
    buffer: &mut [u8],
    gathered: bool,
) -> Read {
    let read = if gathered {
        match tokio::time::timeout(GATHER, socket.read(buffer)).await {
            Err(_) => return Read::Nothing,
            Ok(read) => read,
        }
    } else {
        socket.read(buffer).await
    };
    match read {
        Ok(0) => Read::End,
        Ok(length) => Read::Bytes(length),
        Err(e) => Read::Failed(format!("reading failed: {}", words(&e))),
    }
}

/// Lines out of arbitrary pieces, decoded as they become whole.
struct Lines {
    decoder: RecordDecoder,
    origin: String,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// The line is longer than allowed: its rest is dropped.
    overlong: bool,
    line: u64,
    letters: Vec<DeadLetter>,
    /// Reads since rows were last taken; a steady flow must not put a commit off for ever.
    reads: u32,
}

impl Lines {
    fn new(decoder: RecordDecoder, origin: String) -> Self {
        Self {
            decoder,
            origin,
            partial: vec![],
            overlong: false,
            line: 0,
            letters: vec![],
            reads: 0,
        }
    }

    fn rows(&self) -> usize {
        self.decoder.rows() + self.letters.len()
    }

    /// Enough is gathered, or nothing more came within the gathering time.
    fn is_due(&mut self, quiet: bool) -> bool {
        const READS_MAX: u32 = 16;
        let rows = self.rows();
        let due = rows >= BATCH_ROWS || (rows > 0 && (quiet || self.reads >= READS_MAX));
        if due {
            self.reads = 0;
        }
        due
    }

    fn add(&mut self, bytes: &[u8]) {
        self.reads += 1;
        let mut rest = bytes;
        while let Some(end) = find_byte(rest, 0, b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.partial.is_empty() {
                self.line(line, false);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                let overlong = std::mem::take(&mut self.overlong);
                self.line(&whole, overlong);
            }
            rest = after;
        }
        if self.partial.len() + rest.len() <= LINE_BYTES_MAX {
            self.partial.extend_from_slice(rest);
        } else {
            self.overlong = true;
        }
    }

    /// The connection ended: a last line without newline is a line.
    fn finish(&mut self) {
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            let overlong = std::mem::take(&mut self.overlong);
            self.line(&line, overlong);
        }
    }

    fn line(&mut self, line: &[u8], overlong: bool) {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let blank = line.iter().all(u8::is_ascii_whitespace);
        if blank && !matches!(self.decoder, RecordDecoder::Value { .. }) {
            return;
        }
        let pushed = if overlong {
            Err(format!("line is longer than {} MiB", LINE_BYTES_MAX >> 20))
        } else {
            self.decoder.push(line)
        };
        if let Err(reason) = pushed {
            let origin = format!("{} line {}", self.origin, self.line);
            self.letters.push(dead_letter(origin, line, reason));
        }
    }

    /// Lines since this was last asked with fields that no column takes.
    fn take_unknown_field_rows(&mut self) -> u64 {
        self.decoder.watch().map_or(0, |watch| {
            watch.finish();
            watch.take_unknown().rows
        })
    }

    fn take(&mut self, layout: &Layout) -> Result<(Option<RecordBatch>, Vec<DeadLetter>)> {
        let letters = std::mem::take(&mut self.letters);
        let rows = self.decoder.rows();
        if rows == 0 {
            return Ok((None, letters));
        }
        let arrays = self.decoder.finish();
        let batch = layout.assemble(&arrays, rows, |_| {
            Err(Error::internal("a socket has no metadata"))
        })?;
        Ok((Some(batch), letters))
    }
}

#[cfg(test)]
mod tests;

//! `GET /subscribe/NAME`: a SUBSCRIBE as server-sent events, for browsers and `curl -N`.
//!
//! ```text
//!   event: update_after
//!   data: {"batch_id":17,"change_kind":"update_after","region":"north","n":3}
//!   id: 17                                  the last row of a batch has its number
//! ```
//!
//! An event is a row, as SUBSCRIBE has it, in `to_json`'s form. A client that comes again with
//! `Last-Event-ID` goes on after that batch: whatever was cut short comes again, nothing is left out.
//! Rows of a snapshot have no number, since one that was cut short cannot be gone on with. A number without an
//! event says where changes begin, and that a batch had none. Rows are
//! made as the client reads; whoever falls behind too far is told so by an `error` event, as on the
//! wire. It is a session like any other: it has a place among them, `pg_stat_activity` shows it and
//! `pg_terminate_backend` ends it. Absent: anything that changes data.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::gate::{Gate, Peer, Seat};
use super::http::User;
use crate::catalog::pg_catalog::backends::{BackendState, Signal};
use crate::error::{Error, Result, sqlstate};
use crate::session::{Session, StatementResult};
use crate::sql::names::quote_identifier;
use crate::sql::statement::{Statement, Subscribe};
use crate::values::OutputSettings;
use crate::values::json::RowJson;

/// Something goes out at least this often, so that a client that is gone is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Rows that are written at once.
const ROWS_AT_ONCE: usize = 512;

#[derive(Clone)]
struct Shared {
    gate: Arc<Gate>,
    stopped: watch::Receiver<bool>,
}

/// The route.
pub(super) fn router(gate: Arc<Gate>, stopped: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/subscribe/{name}", get(subscribe))
        .with_state(Shared { gate, stopped })
}

/// A page of another site that knows a name for this machine must not read with its trust.
pub(super) fn is_own_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

async fn subscribe(
    State(shared): State<Shared>,
    Extension(User(user)): Extension<User>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(name): Path<String>,
    Query(asked): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let opened = async {
        let mut statement = subscription(name, &asked, &headers)?;
        // Progress tells how far the client is; whether it sees more of it than numbers is up to it.
        let shows_progress = std::mem::replace(&mut statement.progress, true);
        let seat = shared.gate.take_seat()?;
        let mut session = shared.gate.database.session(&user);
        session.backend().set_client(Some(peer.address), "http");
        let text = format!("SUBSCRIBE TO {}", quote_identifier(&statement.name));
        session.announce(&text);
        session.backend().statement_started(&text);
        let resumes = statement.after_batch.is_some();
        let has_snapshot = statement.snapshot && !resumes;
        match session
            .execute(&Statement::Subscribe(statement), &[])
            .await?
        {
            StatementResult::Rows { stream, .. } => Ok(Subscriber {
                snapshot_batch: has_snapshot.then_some(None),
                shows_progress,
                signals: session.backend().signals(),
                stopped: shared.stopped.clone(),
                rows: stream,
                pending: None,
                session,
                _seat: seat,
            }),
            _ => Err(Error::internal("a SUBSCRIBE that gives no rows")),
        }
    };
    match opened.await {
        Ok(subscriber) => answered(subscriber),
        Err(error) => refused(&error),
    }
}

/// What the address and the headers ask for.
fn subscription(
    name: String,
    asked: &HashMap<String, String>,
    headers: &HeaderMap,
) -> Result<Subscribe> {
    let mut statement = Subscribe {
        name,
        snapshot: false,
        progress: false,
        after_batch: None,
    };
    let number = |text: &str| {
        text.trim().parse().map_err(|_| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("\"{text}\" is no number of a batch"),
            )
        })
    };
    for (name, value) in asked {
        match name.as_str() {
            "snapshot" => statement.snapshot = flag(name, value)?,
            "progress" => statement.progress = flag(name, value)?,
            "after_batch" => statement.after_batch = Some(number(value)?),
            _ => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("unrecognized parameter \"{name}\""),
                )
                .hint("There are snapshot, progress and after_batch."));
            }
        }
    }
    if let Some(last) = headers.get("last-event-id") {
        let last = last.to_str().unwrap_or_default();
        statement.after_batch = Some(number(last)?);
    }
    statement.snapshot &= statement.after_batch.is_none();
    Ok(statement)
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value {
        "" | "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("parameter \"{name}\" requires a Boolean value"),
        )),
    }
}

fn told(error: &Error) -> Value {
    json!({
        "sqlstate": error.sqlstate(),
        "message": error.primary(),
        "detail": error.detail_text(),
        "hint": error.hint_text(),
    })
}

fn refused(error: &Error) -> Response {
    let status = match error.sqlstate() {
        sqlstate::UNDEFINED_TABLE => StatusCode::NOT_FOUND,
        sqlstate::INSUFFICIENT_PRIVILEGE => StatusCode::FORBIDDEN,
        sqlstate::TOO_MANY_CONNECTIONS => StatusCode::SERVICE_UNAVAILABLE,
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE => StatusCode::CONFLICT,
        sqlstate::SNAPSHOT_TOO_OLD => StatusCode::GONE,
        _ => StatusCode::BAD_REQUEST,
    };
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, format!("{}\n", told(error))).into_response()
}

fn answered(subscriber: Subscriber) -> Response {
    let first = stream::iter([Bytes::from_static(b": subscribed\nretry: 1000\n\n")]);
    let events = stream::unfold(Some(subscriber), |subscriber| async {
        let mut subscriber = subscriber?;
        match subscriber.next().await {
            Next::Events(bytes) => Some((bytes, Some(subscriber))),
            Next::Last(error) => Some((last_event(&error), None)),
            Next::End => None,
        }
    });
    let body = first.chain(events).map(Ok::<_, Infallible>);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

fn last_event(error: &Error) -> Bytes {
    format!("event: error\ndata: {}\n\n", told(error)).into()
}

/// What goes out next.
enum Next {
    Events(Bytes),
    Last(Error),
    End,
}

/// One client.
struct Subscriber {
    rows: BoxStream<'static, Result<RecordBatch>>,
    /// rows of a batch that have not gone out, and how many have
    pending: Option<(RecordBatch, usize)>,
    /// a snapshot comes first: the batch that it shows once that is known
    snapshot_batch: Option<Option<i64>>,
    /// batches without changes are events
    shows_progress: bool,
    signals: watch::Receiver<Signal>,
    stopped: watch::Receiver<bool>,
    session: Session,
    _seat: Seat,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.session.backend().became_idle(BackendState::Idle);
    }
}

impl Subscriber {
    async fn next(&mut self) -> Next {
        if self.pending.is_none() {
            match self.batch().await {
                Some(Ok(Some(batch))) => self.pending = Some((batch, 0)),
                Some(Ok(None)) => return Next::Events(Bytes::from_static(b": \n\n")),
                Some(Err(error)) => return Next::Last(error),
                None => return Next::End,
            }
        }
        match self.events() {
            Ok(bytes) => Next::Events(bytes),
            Err(error) => Next::Last(error),
        }
    }

    /// The next rows; `Some(Ok(None))`: there were none for a while.
    async fn batch(&mut self) -> Option<Result<Option<RecordBatch>>> {
        tokio::select! {
            rows = tokio::time::timeout(HEARTBEAT, self.rows.next()) => match rows {
                Ok(rows) => rows.map(|rows| rows.map(Some)),
                Err(_) => Some(Ok(None)),
            },
            signal = self.signals.wait_for(|signal| *signal != Signal::None) => {
                Some(Err(match signal.map(|signal| *signal) {
                    Ok(Signal::Cancel) => Error::new(
                        sqlstate::QUERY_CANCELED,
                        "canceling statement due to user request",
                    ),
                    _ => Error::new(
                        sqlstate::ADMIN_SHUTDOWN,
                        "terminating connection due to administrator command",
                    ),
                }))
            }
            _ = self.stopped.wait_for(|stopped| *stopped) => Some(Err(Error::new(
                sqlstate::ADMIN_SHUTDOWN,
                "the server is shutting down",
            ))),
        }
    }

    /// Some of the pending rows as events.
    fn events(&mut self) -> Result<Bytes> {
        let Some((batch, sent)) = self.pending.take() else {
            return Ok(Bytes::new());
        };
        let count = ROWS_AT_ONCE.min(batch.num_rows() - sent);
        let part = batch.slice(sent, count);
        let is_whole = sent + count == batch.num_rows();
        let mut out = BytesMut::new();
        let is_progress = is_progress(&batch);
        if is_progress {
            // What came before it is whole.
            self.snapshot_batch = None;
        }
        match is_progress && !self.shows_progress {
            // A number alone is no event.
            true => out.put_slice(b"\n"),
            false => write_events(&part, &mut out)?,
        }
        if is_whole && let Some(id) = self.number(&batch) {
            // Into the last event, before the line that ends it.
            out.truncate(out.len() - 1);
            out.put_slice(format!("id: {id}\n\n").as_bytes());
        }
        if !is_whole {
            self.pending = Some((batch, sent + count));
        }
        Ok(out.freeze())
    }

    /// The number of a batch that has gone out whole.
    fn number(&mut self, batch: &RecordBatch) -> Option<i64> {
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        let number = numbers.iter().flatten().next_back()?;
        if let Some(shown) = &mut self.snapshot_batch
            && *shown.get_or_insert(number) == number
        {
            return None;
        }
        self.snapshot_batch = None;
        Some(number)
    }
}

fn is_progress(batch: &RecordBatch) -> bool {
    let kinds = batch.column(1).as_string::<i32>();
    batch.num_rows() == 1 && kinds.value(0) == "progress"
}

fn write_events(rows: &RecordBatch, out: &mut BytesMut) -> Result<()> {
    let json = RowJson::new(rows)?;
    let settings = OutputSettings::default();
    let kinds = rows.column(1).as_string::<i32>();
    for row in 0..rows.num_rows() {
        out.put_slice(b"event: ");
        out.put_slice(kinds.value(row).as_bytes());
        out.put_slice(b"\ndata: ");
        let start = out.len();
        json.write(row, &settings, out)?;
        // Between the parts of a value of type json; within a text they are escaped.
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        out.put_slice(b"\n\n");
    }
    Ok(())
}

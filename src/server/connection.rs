//! The loop of one connection: a message in, its answer out.
//!
//! The loop owns the session, the prepared statements and the portals. An error ends the
//! statement (and, in the extended protocol, everything up to Sync); only a protocol that makes no
//! sense, a termination or a vanished client ends the connection. The extended protocol's messages
//! are handled in `extended`, rows in `rows`, COPY in `copying`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::response::{
    CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, NotificationResponse,
    ReadyForQuery, TransactionStatus as WireStatus,
};
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::extended::{Portal, Prepared};
use super::frontend::FrontendMessage;
use super::port::SessionPort;
use super::rows::RowSource;
use super::startup::Startup;
use super::wire::{Failure, Patience, Wire, WireResult, shielded};
use crate::catalog::pg_catalog::backends::BackendState;
use crate::catalog::pg_catalog::notifications::Notification;
use crate::error::{Error, ErrorKind, sqlstate};
use crate::session::{StatementResult, TransactionStatus};
use crate::sql::masking::shown;
use crate::sql::places::located;
use crate::sql::statement::{Discarded, Statement};
use crate::values::{Format, OutputSettings};

/// How long a client that is being sent away may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// One client's connection after authentication.
pub(super) struct Connection<R, W, P> {
    pub wire: Wire<R, W>,
    pub session: P,
    pub statements: HashMap<String, Arc<Prepared>>,
    pub portals: HashMap<String, Portal>,
    /// Executes since the last Sync run in a transaction of the server's making.
    pub implicit_open: bool,
    skip_to_sync: bool,
}

impl<R, W, P> Connection<R, W, P>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    P: SessionPort,
{
    /// Takes over an authenticated wire.
    pub fn new(mut wire: Wire<R, W>, session: P) -> Self {
        wire.attach_signals(session.backend().signals());
        Self {
            wire,
            session,
            statements: HashMap::new(),
            portals: HashMap::new(),
            implicit_open: false,
            skip_to_sync: false,
        }
    }

    /// Greets the client and serves it until either side ends.
    pub async fn run(mut self, startup: &Startup) {
        let end = match self.greet(startup) {
            Ok(()) => self.serve().await,
            Err(failure) => failure,
        };
        let error = match end {
            Failure::Gone => return,
            Failure::Statement(error) | Failure::Fatal(error) => error,
        };
        farewell(&mut self.wire, &error).await;
    }

    fn greet(&mut self, startup: &Startup) -> WireResult<()> {
        for (name, value) in &startup.parameters {
            self.session
                .set_startup_parameter(name, value)
                .map_err(Failure::Fatal)?;
        }
        let backend = self.session.backend().clone();
        let secret = match startup.minor_version {
            0 | 1 => {
                let [a, b, c, d, ..] = *backend.secret();
                SecretKey::I32(i32::from_be_bytes([a, b, c, d]))
            }
            _ => SecretKey::Bytes(bytes::Bytes::copy_from_slice(backend.secret())),
        };
        self.send_parameter_changes()?;
        self.wire.put(Message::BackendKeyData(BackendKeyData::new(
            backend.pid(),
            secret,
        )))?;
        self.ready()
    }

    async fn serve(&mut self) -> Failure {
        loop {
            let message = match self.next_message().await {
                Ok(message) => message,
                Err(Failure::Statement(error)) => {
                    if let Err(end) = self.refuse_message(error) {
                        return end;
                    }
                    continue;
                }
                Err(end) => return end,
            };
            if matches!(message, FrontendMessage::Terminate) {
                return Failure::Gone;
            }
            match self.handle(message).await {
                Ok(()) => {}
                Err(Failure::Statement(error)) => {
                    self.skip_to_sync = true;
                    if let Err(end) = self.statement_failed(error).await {
                        return end;
                    }
                }
                Err(end) => return end,
            }
        }
    }

    /// The client's next message. Notifications go out meanwhile, as they come, where no transaction
    /// is open.
    async fn next_message(&mut self) -> WireResult<FrontendMessage> {
        let patience = self.patience();
        let is_idle = self.session.transaction_status() == TransactionStatus::Idle
            && !self.implicit_open
            && !self.skip_to_sync;
        let backend = self.session.backend().clone();
        loop {
            tokio::select! {
                biased;
                message = self.wire.next(patience.as_ref()) => return message,
                () = backend.mailbox().arrived(), if is_idle => self.send_notifications()?,
            }
        }
    }

    fn send_notifications(&mut self) -> WireResult<()> {
        let waiting = self.session.backend().mailbox().take();
        for notification in waiting.map_err(Failure::Fatal)? {
            let Notification {
                pid,
                channel,
                payload,
            } = notification.as_ref().clone();
            let message = NotificationResponse::new(pid, channel, payload);
            self.wire.put(Message::NotificationResponse(message))?;
        }
        Ok(())
    }

    async fn handle(&mut self, message: FrontendMessage) -> WireResult<()> {
        if self.skip_to_sync && !matches!(message, FrontendMessage::Sync) {
            return Ok(());
        }
        match message {
            FrontendMessage::Query(sql) => self.query(&sql).await,
            FrontendMessage::Parse {
                name,
                sql,
                type_oids,
            } => self.prepare(name, sql, type_oids).await,
            FrontendMessage::Bind(bind) => self.bind(bind).await,
            FrontendMessage::Describe(target, name) => self.describe(target, &name),
            FrontendMessage::Execute { portal, row_limit } => {
                self.execute_portal(&portal, row_limit).await
            }
            FrontendMessage::Close(target, name) => self.close(target, &name),
            FrontendMessage::Flush => self.wire.flush().await,
            FrontendMessage::Sync => self.sync().await,
            FrontendMessage::FunctionCall => {
                let error = Error::unsupported("the function call protocol is not supported")
                    .hint("Call the function with SELECT.");
                self.put_error("ERROR", &error)?;
                self.ready()
            }
            // What is left of a COPY that already failed, as in PostgreSQL.
            FrontendMessage::CopyData(_)
            | FrontendMessage::CopyDone
            | FrontendMessage::CopyFail(_) => Ok(()),
            FrontendMessage::Password(_) => Err(Failure::Fatal(Error::new(
                sqlstate::PROTOCOL_VIOLATION,
                "unexpected password message",
            ))),
            FrontendMessage::Terminate => Err(Failure::Gone),
        }
    }

    /// A message that could not be decoded: the same course as if its statement had failed.
    fn refuse_message(&mut self, error: Error) -> WireResult<()> {
        if self.skip_to_sync {
            return Ok(());
        }
        self.session.fail_transaction();
        self.put_error("ERROR", &error)?;
        match self.wire.last_kind() {
            b'Q' | b'F' => self.ready(),
            _ => {
                self.skip_to_sync = true;
                Ok(())
            }
        }
    }

    async fn sync(&mut self) -> WireResult<()> {
        self.skip_to_sync = false;
        if std::mem::take(&mut self.implicit_open)
            && let Err(error) = shielded(self.session.end_implicit(false)).await
        {
            self.put_error("ERROR", &error)?;
        }
        self.ready()?;
        self.wire.flush().await
    }

    async fn statement_failed(&mut self, error: Error) -> WireResult<()> {
        self.session.fail_transaction();
        self.put_error("ERROR", &error)?;
        if std::mem::take(&mut self.implicit_open) {
            self.portals.clear();
            if let Err(error) = shielded(self.session.end_implicit(true)).await {
                tracing::warn!(%error, "could not roll back");
            }
        }
        Ok(())
    }

    // Simple protocol -----------------------------------------------------------------------

    async fn query(&mut self, sql: &str) -> WireResult<()> {
        self.statements.remove("");
        self.portals.remove("");
        // A pipeline without Sync ends here, as in PostgreSQL.
        if std::mem::take(&mut self.implicit_open)
            && let Err(error) = shielded(self.session.end_implicit(false)).await
        {
            self.put_error("ERROR", &error)?;
            return self.ready();
        }
        match self.run_text(sql).await {
            Ok(()) => {}
            Err(Failure::Statement(error)) => {
                self.session.fail_transaction();
                self.put_error("ERROR", &located(error, sql))?;
            }
            Err(end) => return Err(end),
        }
        self.ready()
    }

    async fn run_text(&mut self, sql: &str) -> WireResult<()> {
        self.statement_starts(sql);
        let statements = self.wire.guard(async { self.session.parse(sql) }).await??;
        if statements.is_empty() {
            return self
                .wire
                .put(Message::EmptyQueryResponse(EmptyQueryResponse::new()));
        }
        let several = statements.len() > 1;
        let mut outcome = Ok(());
        for (statement, text) in &statements {
            self.set_deadline();
            self.session.announce(text);
            if several {
                // After a COMMIT among them the next ones are an implicit transaction again.
                self.session.begin_implicit();
            }
            outcome = self.run_statement(statement).await;
            if outcome.is_err() {
                break;
            }
        }
        if several {
            if outcome.is_err() {
                self.session.fail_transaction();
            }
            let ended = shielded(self.session.end_implicit(outcome.is_err())).await;
            outcome = outcome.and(ended.map_err(Failure::Statement));
        }
        outcome
    }

    async fn run_statement(&mut self, statement: &Statement) -> WireResult<()> {
        if self.drops_prepared(statement) {
            return self.complete("DEALLOCATE".to_owned());
        }
        if self.concerns_portal(statement) {
            return self.run_on_portal(statement).await;
        }
        self.run_described(statement, true).await
    }

    /// Runs a statement and sends its rows; with the description of their columns before them, as
    /// the simple protocol wants it.
    pub async fn run_described(
        &mut self,
        statement: &Statement,
        with_description: bool,
    ) -> WireResult<()> {
        let result = self
            .wire
            .guard(self.session.execute(statement, &[]))
            .await??;
        match result {
            StatementResult::Rows {
                schema,
                stream,
                tag,
                tag_has_count,
            } => {
                let mut source = RowSource::new(schema, stream, tag, tag_has_count)?;
                if with_description {
                    self.wire.put(source.description(&[]))?;
                }
                let settings = self.output_settings();
                let sent = source
                    .send(&mut self.wire, &[Format::Text], &settings, None)
                    .await?;
                self.complete(source.tag(sent.rows))
            }
            StatementResult::Command { tag } => self.complete(tag),
            StatementResult::CopyIn(copy) => self.copy_in(copy).await,
            StatementResult::CopyOut {
                statement,
                schema,
                stream,
            } => self.copy_out(&statement, schema, stream).await,
        }
    }

    /// `DEALLOCATE` and `DISCARD` know the names of the protocol too. True: the statement is done.
    pub fn drops_prepared(&mut self, statement: &Statement) -> bool {
        match statement {
            Statement::Deallocate(Some(name)) => {
                self.session.forget_prepared(Some(name));
                self.statements.remove(name).is_some()
            }
            Statement::Deallocate(None) | Statement::Discard(Discarded::All) => {
                self.session.forget_prepared(None);
                self.statements.clear();
                false
            }
            _ => false,
        }
    }

    // Answers -------------------------------------------------------------------------------

    /// Notices, then CommandComplete.
    pub fn complete(&mut self, tag: String) -> WireResult<()> {
        self.send_notices()?;
        self.wire
            .put(Message::CommandComplete(CommandComplete::new(tag)))
    }

    pub fn send_notices(&mut self) -> WireResult<()> {
        for notice in self.session.take_notices() {
            let mut fields = vec![
                (b'S', notice.severity.to_owned()),
                (b'V', notice.severity.to_owned()),
                (b'C', notice.sqlstate.to_owned()),
                (b'M', notice.message),
            ];
            fields.extend(notice.hint.map(|hint| (b'H', hint)));
            self.wire
                .put(Message::NoticeResponse(NoticeResponse::new(clean(fields))))?;
        }
        Ok(())
    }

    fn put_error(&mut self, severity: &'static str, error: &Error) -> WireResult<()> {
        self.send_notices()?;
        self.wire.put(error_message(severity, error))
    }

    fn send_parameter_changes(&mut self) -> WireResult<()> {
        for (name, value) in self.session.take_parameter_changes() {
            if name == "application_name" {
                let address = self.session.backend().activity().client_address;
                self.session.backend().set_client(address, &value);
            }
            self.wire
                .put(Message::ParameterStatus(ParameterStatus::new(name, value)))?;
        }
        Ok(())
    }

    /// ReadyForQuery; portals of a transaction that ended are gone.
    fn ready(&mut self) -> WireResult<()> {
        self.wire.set_deadline(None);
        self.send_notices()?;
        self.send_parameter_changes()?;
        let (status, state) = match self.session.transaction_status() {
            TransactionStatus::Idle => (WireStatus::Idle, BackendState::Idle),
            TransactionStatus::Open => (WireStatus::Transaction, BackendState::IdleInTransaction),
            TransactionStatus::Failed => (WireStatus::Error, BackendState::IdleInFailedTransaction),
        };
        if status == WireStatus::Idle {
            self.portals.clear();
            self.session.rows_were_read();
            self.send_notifications()?;
        }
        self.session.backend().became_idle(state);
        self.wire
            .put(Message::ReadyForQuery(ReadyForQuery::new(status)))
    }

    // Settings ------------------------------------------------------------------------------

    /// Tells everyone what runs now, and starts its time.
    pub fn statement_starts(&mut self, text: &str) {
        self.session.backend().statement_started(&shown(text));
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        let timeout = self.duration_parameter("statement_timeout");
        self.wire
            .set_deadline(timeout.map(|timeout| Instant::now() + timeout));
    }

    /// How long the session may wait for its client, and what ends it then.
    fn patience(&self) -> Option<Patience> {
        let (parameter, sqlstate, told) = match self.session.transaction_status() {
            TransactionStatus::Idle => (
                "idle_session_timeout",
                sqlstate::IDLE_SESSION_TIMEOUT,
                "terminating connection due to idle-session timeout",
            ),
            TransactionStatus::Open | TransactionStatus::Failed => (
                "idle_in_transaction_session_timeout",
                sqlstate::IDLE_IN_TRANSACTION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
            ),
        };
        let timeout = self.duration_parameter(parameter)?;
        Some(Patience {
            until: Instant::now() + timeout,
            error: Error::with_kind(ErrorKind::Cancelled, sqlstate, told),
        })
    }

    /// A duration parameter; `None`: no limit.
    fn duration_parameter(&self, name: &str) -> Option<Duration> {
        parse_duration(&self.session.parameter(name)?).filter(|d| !d.is_zero())
    }

    /// How values are written for this session now.
    pub fn output_settings(&self) -> OutputSettings {
        OutputSettings::new(self.session.parameter("TimeZone").as_deref())
    }
}

/// Tells a client why its connection ends.
pub(super) async fn farewell<R, W>(wire: &mut Wire<R, W>, error: &Error)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if wire.put(error_message("FATAL", error)).is_ok() {
        wire.flush_within(FAREWELL).await;
    }
}

fn error_message(severity: &'static str, error: &Error) -> Message {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.sqlstate().to_owned()),
        (b'M', error.primary().to_owned()),
    ];
    fields.extend(error.detail_text().map(|text| (b'D', text.to_owned())));
    fields.extend(error.hint_text().map(|text| (b'H', text.to_owned())));
    fields.extend(error.position_value().map(|at| (b'P', at.to_string())));
    fields.extend(error.routine_name().map(|name| (b'R', name.to_owned())));
    if let Some(subject) = error.subject() {
        fields.push((b's', "public".to_owned()));
        fields.push((b't', subject.table.clone()));
        fields.extend(subject.column.clone().map(|name| (b'c', name)));
        fields.extend(subject.constraint.clone().map(|name| (b'n', name)));
    }
    Message::ErrorResponse(ErrorResponse::new(clean(fields)))
}

/// A field ends at its first zero byte on the wire, so none may hold one.
fn clean(mut fields: Vec<(u8, String)>) -> Vec<(u8, String)> {
    for (_, text) in &mut fields {
        if text.contains('\0') {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
    fields
}

/// PostgreSQL's spelling of a duration: milliseconds, or a number with `us|ms|s|min|h|d`.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit_ms = match text[digits..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit_ms / 1_000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_postgres_writes_them() {
        for (text, ms) in [
            ("0", Some(0)),
            ("5000", Some(5_000)),
            ("5s", Some(5_000)),
            ("1.5s", Some(1_500)),
            ("2 min", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("1d", Some(86_400_000)),
            ("soon", None),
            ("5 parsecs", None),
        ] {
            assert_eq!(
                parse_duration(text),
                ms.map(Duration::from_millis),
                "{text}"
            );
        }
    }
}

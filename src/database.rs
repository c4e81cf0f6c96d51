//! The database as a library: open a directory, run SQL, read Arrow batches.
//!
//! ```text
//! <data>/LOCK                 who has it open
//! <data>/catalog/             definitions, secrets, history, the end of the log
//! <data>/log/                 rows of tables and of streams without connector; log/tables: contents
//! <data>/pipelines/P/         working state, a cache
//! <data>/checkpoints/P/       the default checkpoint locations
//! <data>/temporary/           what large queries spill; emptied at every start
//! ```
//!
//! This is the one place where the parts are put together.

pub(crate) mod backup;
mod lock;
mod parts;
mod schedules;
mod seams;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_schedules;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::catalog::access::Access;
use crate::catalog::access::password::SALT_BYTES;
use crate::catalog::access::role::BOOTSTRAP_OID;
use crate::catalog::pg_catalog::backends::Backends;
use crate::clock::{ClockRef, SystemClock};
use crate::engine::status::EngineStatus;
use crate::error::{Error, Result, sqlstate};
use crate::session::threads::Threads;
use crate::session::{Session, StatementResult, TransactionStatus};
use crate::sql::host_functions::HostFunction;
pub(crate) use parts::DatabaseParts;

/// User of the library's own sessions.
const LIBRARY_USER: &str = "tidemill";
/// `--memory-limit` unless it says otherwise.
const MEMORY_LIMIT_BYTES: usize = 1 << 30;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// Bytes of memory for state and queries.
    pub memory_limit_bytes: usize,
    /// Where time comes from.
    pub clock: ClockRef,
    /// Folders that connectors may read and write once there are users.
    pub allowed_paths: Vec<PathBuf>,
    /// Pipelines start running at open (`serve`); false for offline work.
    pub start_pipelines: bool,
    /// Functions of the program that embeds the database.
    pub functions: Vec<HostFunction>,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            memory_limit_bytes: MEMORY_LIMIT_BYTES,
            clock: SystemClock::shared(),
            allowed_paths: Vec::new(),
            start_pipelines: true,
            functions: Vec::new(),
        }
    }
}

/// An open database. Cheap to clone; the last clone or `close` ends it.
#[derive(Clone)]
pub struct Database {
    parts: Arc<DatabaseParts>,
    /// A session between two calls of the library: making one costs more than a small statement.
    idle: Arc<Mutex<Option<Session>>>,
}

impl Database {
    /// Opens or creates the database in `dir`; refuses when another process holds it (55006).
    pub async fn open(dir: &Path, options: DatabaseOptions) -> Result<Self> {
        let parts = DatabaseParts::open(dir, &options).await?;
        Ok(Self {
            parts,
            idle: Arc::default(),
        })
    }

    /// A new session for user `user`.
    pub fn session(&self, user: &str) -> Session {
        Session::new(self.parts.clone(), user)
    }

    /// Where the server serves its connections; they live as long as the database.
    pub(crate) fn connection_threads(&self) -> Result<tokio::runtime::Handle> {
        let threads = match self.parts.connection_threads.get() {
            Some(threads) => threads,
            None => {
                let threads = Threads::of_connections()?;
                self.parts.connection_threads.get_or_init(|| threads)
            }
        };
        let gone = || Error::internal("the threads of connections are gone");
        threads.handle().ok_or_else(gone)
    }

    /// Who is connected.
    pub fn backends(&self) -> &Arc<Backends> {
        &self.parts.backends
    }

    /// Who there is, and who may do what.
    pub(crate) fn access(&self) -> Arc<Access> {
        self.parts.catalog.snapshot().access().clone()
    }

    /// The salt that a user who does not exist is told.
    pub(crate) fn mock_salt(&self, user: &str) -> [u8; SALT_BYTES] {
        self.parts.catalog.mock_salt(user)
    }

    /// Keeps an event; that it cannot be kept is logged.
    pub(crate) fn record_event(&self, kind: &str, object: &str, detail: serde_json::Value) {
        if let Err(error) = self.parts.history.record_event(kind, object, None, detail) {
            tracing::error!(object, event = kind, %error, "could not keep an event");
        }
    }

    /// State of everything that runs; never blocks on a pipeline.
    pub fn engine_status(&self) -> EngineStatus {
        self.parts.engine().status()
    }

    /// Where this database's time comes from.
    pub fn clock(&self) -> &ClockRef {
        &self.parts.clock
    }

    /// Gives the bootstrap role a password, so that somebody can log in.
    pub(crate) async fn set_first_password(&self, password: &str) -> Result<()> {
        let name = self.access().role_name(BOOTSTRAP_OID);
        let statement = format!(
            "ALTER USER {} PASSWORD {}",
            crate::sql::names::quote_identifier(&name),
            crate::sql::names::quote_literal(password)
        );
        self.execute(&statement).await
    }

    /// Runs statements, discarding rows. Several statements without `BEGIN` are one transaction.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let mut session = self.library_session();
        session.begin_implicit();
        let result = run_all(&mut session, sql).await;
        let ended = session.end_implicit(result.is_err()).await;
        result.and(ended)?;
        if session.transaction_status() == TransactionStatus::Idle {
            self.give_back(session);
            return Ok(());
        }
        Err(Error::new(
            sqlstate::ACTIVE_TRANSACTION,
            "the statements leave a transaction open",
        )
        .hint("End them with COMMIT."))
    }

    /// Runs one query; all its rows.
    pub async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let (_, rows) = self.stream(sql).await?;
        rows.try_collect().await
    }

    /// Runs one query; its rows as they come.
    pub async fn stream(
        &self,
        sql: &str,
    ) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
        let mut session = self.library_session();
        let mut statements = session.parse(sql)?;
        let (Some((statement, _)), true) = (statements.pop(), statements.is_empty()) else {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "expected exactly one statement",
            ));
        };
        let result = session.execute(&statement, &[]).await?;
        if session.transaction_status() == TransactionStatus::Idle {
            self.give_back(session);
        }
        match result {
            StatementResult::Rows { schema, stream, .. }
            | StatementResult::CopyOut { schema, stream, .. } => Ok((schema, stream)),
            StatementResult::Command { .. } | StatementResult::CopyIn(_) => Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "the statement gives no rows",
            )),
        }
    }

    /// A view's changes from now on, after its contents if `snapshot`: an item per committed batch,
    /// with `batch_id`, `change_kind` and the view's columns.
    pub async fn subscribe(
        &self,
        view: &str,
        snapshot: bool,
    ) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
        let name = view.replace('"', "\"\"");
        let with = if snapshot { " WITH (SNAPSHOT)" } else { "" };
        self.stream(&format!("SUBSCRIBE TO \"{name}\"{with}")).await
    }

    fn library_session(&self) -> Session {
        let idle = self.idle.lock().take();
        idle.unwrap_or_else(|| self.session(LIBRARY_USER))
    }

    fn give_back(&self, mut session: Session) {
        session.forget_everything();
        *self.idle.lock() = Some(session);
    }

    /// Stops: current batches commit, state is persisted.
    pub async fn close(&self) -> Result<()> {
        self.idle.lock().take();
        self.parts.close().await
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

async fn run_all(session: &mut Session, sql: &str) -> Result<()> {
    for (statement, text) in session.parse(sql)? {
        session.announce(&text);
        match session.execute(&statement, &[]).await? {
            StatementResult::Rows { stream, .. } | StatementResult::CopyOut { stream, .. } => {
                stream.try_for_each(|_| async { Ok(()) }).await?;
            }
            StatementResult::Command { .. } => {}
            StatementResult::CopyIn(_) => {
                return Err(Error::unsupported("COPY FROM STDIN needs a client"));
            }
        }
    }
    Ok(())
}

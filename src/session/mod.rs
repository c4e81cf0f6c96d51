//! A session: one client's settings, transaction, prepared statements and cursors.
//!
//! The Postgres server and the library are both clients of [`Session`]. It plans and runs
//! statements; how results are written to a wire is not its concern.

mod access;
mod advice;
mod aggregates;
pub(crate) mod binding;
mod block;
mod context;
mod control;
mod copy;
mod cursors;
mod ddl;
mod describe;
pub mod dml;
mod execute;
mod explain;
mod functions;
mod hidden_columns;
mod letters;
mod lookup;
mod merged_joins;
pub(crate) mod origins;
mod parameters;
mod planning;
mod prepared;
mod query;
mod recovery;
mod relations;
mod reused_plans;
mod rows;
mod rowset;
mod running;
mod schemas;
mod scope;
pub mod settings;
mod show;
mod siblings;
mod subscribe;
mod temporary;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
pub(crate) mod trials;
mod versions;
mod view_scan;
mod whole_rows;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use self::access::identity::{Acting, Identity};
use self::block::{Block, End};
use self::cursors::Cursor;
use self::reused_plans::SharedPlans;
use self::scope::StatementScope;
use self::settings::Settings;
use self::temporary::Temporary;
use self::work::Work;
use crate::catalog::definition::CatalogObject;
use crate::catalog::pg_catalog::backends::Backend;
use crate::catalog::pg_catalog::notifications::Outbox;
use crate::database::DatabaseParts;
use crate::error::Result;
use crate::sql::statement::{CopyStatement, Statement};
use crate::types::SqlType;

pub use parameters::Parameter;
pub(crate) use parameters::placeholder;

/// `I`, `T` or `E` in ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// none open
    Idle,
    /// open
    Open,
    /// open and failed: only ROLLBACK is taken
    Failed,
}

/// A message beside a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE`, `WARNING`, `INFO`
    pub severity: &'static str,
    /// SQLSTATE
    pub sqlstate: &'static str,
    /// primary line
    pub message: String,
    /// HINT
    pub hint: Option<String>,
}

/// What executing a statement gives.
pub enum StatementResult {
    /// Rows; the tag is `SELECT n`, `SHOW`, `FETCH n`, `INSERT 0 n` (RETURNING), ….
    Rows {
        /// columns
        schema: SchemaRef,
        /// batches, as they come; ends early with an error
        stream: BoxStream<'static, Result<RecordBatch>>,
        /// tag without the count
        tag: String,
        /// append the row count to the tag
        tag_has_count: bool,
    },
    /// No rows; a command tag such as `CREATE STREAM` or `INSERT 0 5`.
    Command {
        /// whole tag
        tag: String,
    },
    /// The server must now feed `COPY` data.
    CopyIn(CopyIn),
    /// The server sends these rows as `COPY` data.
    CopyOut {
        /// how
        statement: CopyStatement,
        /// columns
        schema: SchemaRef,
        /// rows
        stream: BoxStream<'static, Result<RecordBatch>>,
    },
}

/// An open `COPY … FROM STDIN`: decoded rows go in, `finish` makes them durable as one.
/// Dropped without `finish`: nothing is kept.
pub struct CopyIn {
    /// how the data is written
    pub statement: CopyStatement,
    /// columns expected, in order
    pub schema: SchemaRef,
    /// takes rows and ends the copy
    pub writer: Box<dyn CopyWriter>,
}

/// Takes the rows of a `COPY … FROM STDIN`.
#[async_trait::async_trait]
pub trait CopyWriter: Send {
    /// Takes decoded rows.
    async fn write(&mut self, rows: RecordBatch) -> Result<()>;
    /// Commits; returns the number of rows.
    async fn finish(self: Box<Self>) -> Result<u64>;
}

/// What Describe needs.
#[derive(Debug, Clone)]
pub struct StatementDescription {
    /// types of `$1…`
    pub parameters: Vec<SqlType>,
    /// columns; `None`: the statement gives no rows
    pub columns: Option<SchemaRef>,
}

/// One client. Not shared: a connection owns it.
///
/// An `INSERT` is acknowledged once it is durable; views follow by their triggers. `FLUSH` or
/// `WAIT FOR v` returns when they have taken it in.
pub struct Session {
    parts: Arc<DatabaseParts>,
    identity: Arc<Identity>,
    /// As whom it acts, as far as that is settled.
    acting: Option<Acting>,
    backend: Arc<Backend>,
    context: SessionContext,
    scope: Arc<StatementScope>,
    settings: Settings,
    block: Block,
    /// The open transaction's changes; `None` between transactions.
    work: Option<Work>,
    rows: rows::SharedRows,
    temporary: Temporary,
    /// What the open transaction says to listeners.
    outbox: Outbox,
    prepared: BTreeMap<String, Arc<Statement>>,
    prepared_by_protocol: BTreeMap<String, Arc<Statement>>,
    /// Behind a lock only because running rows cannot be shared between threads.
    cursors: Mutex<BTreeMap<String, Cursor>>,
    reused_plans: SharedPlans,
    notices: Vec<Notice>,
    /// Text of the statement that comes next.
    announced: String,
    /// A statement is running: still set at the next one, it was dropped on the way.
    is_running: bool,
    /// Rows of a statement of this block ended with an error.
    stream_failed: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(parts: Arc<DatabaseParts>, user: &str) -> Self {
        let scope = StatementScope::new(parts.catalog.snapshot());
        let settings = Settings::new(user);
        let catalog = scope.catalog();
        let identity = Arc::new(Identity::of(catalog.access(), user));
        if let Some(role) = catalog.access().role(user) {
            for (name, value) in &role.settings {
                let set = identity
                    .check_change(catalog.access(), &settings, name, Some(value))
                    .and_then(|()| settings.set_startup(name, value));
                if let Err(error) = set {
                    tracing::warn!(user, parameter = %name, %error, "a parameter of a role cannot be set");
                }
            }
        }
        let backend = parts.backends.register(user);
        let rows = rows::SharedRows::new();
        let outbox = Outbox::default();
        let context = context::client_context(
            &parts, &scope, &rows, &settings, &backend, &identity, &outbox,
        );
        let temporary = Temporary::new(&parts.runtime.memory_pool);
        let mut session = Self {
            parts,
            identity,
            acting: None,
            backend,
            context,
            scope,
            settings,
            block: Block::new(),
            work: None,
            rows,
            temporary,
            outbox,
            prepared: BTreeMap::new(),
            prepared_by_protocol: BTreeMap::new(),
            cursors: Mutex::default(),
            reused_plans: SharedPlans::default(),
            notices: Vec::new(),
            announced: String::new(),
            is_running: false,
            stream_failed: Arc::default(),
        };
        session.enter_subject();
        session
    }

    /// Parses a text into statements with their own source texts.
    pub fn parse(&self, sql: &str) -> Result<Vec<(Statement, String)>> {
        crate::sql::parse(sql)
    }

    /// Parameter types (client-declared ones win over inferred ones) and result columns.
    pub async fn describe(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        self.settle_interrupted();
        if !control::is_transaction_control(statement) {
            self.block.check_usable()?;
        }
        self.enter_scope();
        self.describe_statement(statement, declared).await
    }

    /// Runs a statement. Outside a transaction block it is a transaction of its own.
    /// Cancelling: drop the future or the stream.
    pub async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        self.settle_interrupted();
        if control::is_transaction_control(statement) {
            let result = self.control_transaction(statement).await;
            if result.is_err() {
                self.fail_block();
            }
            return result;
        }
        self.block.check_usable()?;
        if self.block.is_idle() {
            return self.execute_alone(statement, parameters).await;
        }
        self.is_running = true;
        let result = self.execute_in_block(statement, parameters).await;
        self.is_running = false;
        if result.is_err() {
            self.fail_block();
        }
        result
    }

    async fn execute_in_block(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        if !self.block.is_explicit() && running::concerns_committed(statement) {
            // `INSERT …; FLUSH; SELECT …` in one message: what was said before it is committed.
            self.commit_work().await?;
            self.begin_work();
        }
        self.dispatch(statement, parameters).await
    }

    /// A statement outside a block: its own transaction. A change of rows that lost to another
    /// transaction's runs again; each time, some other transaction got through.
    async fn execute_alone(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let mut attempts = 1;
        loop {
            let result = self.execute_once(statement, parameters).await;
            let has_lost = result
                .as_ref()
                .is_err_and(|e| e.sqlstate() == crate::error::sqlstate::SERIALIZATION_FAILURE);
            if !has_lost || !dml::may_run_again(statement) || attempts == dml::ATTEMPTS_MAX {
                return result;
            }
            attempts += 1;
        }
    }

    async fn execute_once(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        self.begin_work();
        self.is_running = true;
        let result = self.dispatch(statement, parameters).await;
        let result = match result {
            Ok(result) => self.commit_work().await.map(|()| result),
            Err(error) => {
                self.rollback_work();
                Err(error)
            }
        };
        self.is_running = false;
        result
    }

    /// Statements of one simple-query message run as one implicit transaction, as in PostgreSQL:
    /// call `begin_implicit` before the first and `end_implicit` after the last (or the failure).
    pub fn begin_implicit(&mut self) {
        self.settle_interrupted();
        if self.block.begin_implicit() {
            self.begin_work();
        }
    }

    /// See [`Self::begin_implicit`]; commits, or rolls back when `failed`.
    pub async fn end_implicit(&mut self, failed: bool) -> Result<()> {
        self.settle_interrupted();
        match self.block.end_implicit(failed) {
            End::Commit => self.commit_work().await,
            End::Rollback => {
                self.rollback_work();
                Ok(())
            }
            End::NotOpen => {
                if failed {
                    self.fail_block();
                }
                Ok(())
            }
        }
    }

    /// A statement failed outside [`Self::execute`]: while its rows were sent, by a cancel, in the
    /// protocol. An open transaction block becomes failed; without one nothing happens.
    pub fn fail_transaction(&mut self) {
        self.settle_interrupted();
        self.fail_block();
        if self.work.is_none() {
            self.outbox.truncate(0);
        }
    }

    /// The rows of a statement outside a block have been read to their end: what its functions did
    /// meanwhile (`pg_notify`, locks of the transaction) counts as of its commit.
    pub fn rows_were_read(&mut self) {
        if self.block.is_idle() && self.work.is_none() {
            self.release_transaction_locks();
            self.tell_listeners();
        }
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        let was_interrupted = self.is_running || self.stream_failed.load(Ordering::SeqCst);
        match self.block.status() {
            TransactionStatus::Open if was_interrupted => TransactionStatus::Failed,
            status => status,
        }
    }

    /// The session's entry among the connected ones; its pid is `pg_backend_pid()`.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        self.identity.name()
    }

    /// Notices raised since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Reported parameters (`client_encoding`, `TimeZone`, …) that changed since the last call;
    /// all of them at the first.
    pub fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        self.settings.take_changes()
    }

    /// Sets a parameter from the start-up packet.
    pub fn set_startup_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.check_role_change(name, Some(value))?;
        self.settings.set_startup(name, value)
    }

    /// Grows with every definition that is committed; what was planned before may be of another form.
    pub fn definitions_version(&self) -> u64 {
        self.parts.catalog.snapshot().version() + self.temporary.version()
    }

    /// Value of a parameter, such as `statement_timeout` or `TimeZone`.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.settings.get(name)
    }

    /// The session's parameters, shared with its own functions and tables.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Binds the stored query of a materialized view: analyzed, not optimized, with the columns
    /// that the definition names. What the engine runs.
    pub async fn bind_materialized_view(&mut self, object: &CatalogObject) -> Result<LogicalPlan> {
        self.enter_scope();
        self.bind_stored_view(object).await
    }

    fn notice(&mut self, message: impl Into<String>) {
        self.notice_as("00000", message);
    }

    fn notice_as(&mut self, sqlstate: &'static str, message: impl Into<String>) {
        self.notices.push(Notice {
            severity: "NOTICE",
            sqlstate,
            message: message.into(),
            hint: None,
        });
    }

    fn notice_with_hint(&mut self, message: String, hint: String) {
        self.notices.push(Notice {
            severity: "NOTICE",
            sqlstate: "00000",
            message,
            hint: Some(hint),
        });
    }

    fn warn(&mut self, sqlstate: &'static str, message: impl Into<String>) {
        self.notices.push(Notice {
            severity: "WARNING",
            sqlstate,
            message: message.into(),
            hint: None,
        });
    }

    /// What became of a statement or its rows since: a dropped future or a failed stream counts
    /// as a failure of the block.
    fn settle_interrupted(&mut self) {
        let was_dropped = std::mem::take(&mut self.is_running);
        if was_dropped && self.block.is_idle() {
            self.rollback_work();
        }
        if was_dropped | self.stream_failed.swap(false, Ordering::SeqCst) {
            self.fail_block();
            if self.work.is_none() {
                self.outbox.truncate(0);
            }
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.identity.name())
            .finish_non_exhaustive()
    }
}

/// Fields of a parameter list as Arrow sees them.
pub fn parameter_field(index: usize, sql_type: &SqlType) -> FieldRef {
    Arc::new(sql_type.to_field(&format!("${}", index + 1), true))
}

//! A session: one client's settings, transaction, prepared statements and cursors.
//!
//! The Postgres server and the library are both clients of [`Session`]. It plans and runs
//! statements; how results are written to a wire is not its concern.

pub mod dml;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::ScalarValue;
use futures::stream::BoxStream;

use crate::error::Result;
use crate::sql::statement::{CopyStatement, Statement};
use crate::types::SqlType;

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
pub struct Session {
    pub(crate) _stub: Arc<()>,
}

impl Session {
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
        let _ = (statement, declared);
        unimplemented!()
    }

    /// Runs a statement. Outside a transaction block it is a transaction of its own.
    /// Cancelling: drop the future or the stream.
    pub async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult> {
        let _ = (statement, parameters);
        unimplemented!()
    }

    /// Statements of one simple-query message run as one implicit transaction, as in PostgreSQL:
    /// call `begin_implicit` before the first and `end_implicit` after the last (or the failure).
    pub fn begin_implicit(&mut self) {}

    /// See [`Self::begin_implicit`]; commits, or rolls back when `failed`.
    pub async fn end_implicit(&mut self, failed: bool) -> Result<()> {
        let _ = failed;
        Ok(())
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }

    /// Notices raised since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// Reported parameters (`client_encoding`, `TimeZone`, …) that changed since the last call;
    /// all of them at the first.
    pub fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Sets a parameter from the start-up packet.
    pub fn set_startup_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        let _ = (name, value);
        Ok(())
    }
    /// Value of a parameter, such as `statement_timeout` or `TimeZone`.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }
}

/// Fields of a parameter list as Arrow sees them.
pub fn parameter_field(index: usize, sql_type: &SqlType) -> FieldRef {
    Arc::new(sql_type.to_field(&format!("${}", index + 1), true))
}

//! The closed enum of everything a client can say.
//!
//! The parser turns text into these; names are folded, options are canonical (snake_case names,
//! Spark's spellings mapped, unknown ones refused). Plain queries and DML stay sqlparser trees for
//! DataFusion's planner. Pure: no I/O, no catalog.

use std::time::Duration;

use datafusion::sql::sqlparser::ast;

use crate::catalog::definition::{
    ColumnDefinition, EmitMode, ExpectationDefinition, IndexColumn, Options, WatermarkDefinition,
};
use crate::catalog::function::{
    AggregateBody, FunctionBody, FunctionParameter, FunctionResult, FunctionVolatility,
};

use super::access::AccessStatement;
use super::recovery::RecoveryStatement;
use crate::catalog::temporary::OnCommit;
use crate::error::{Error, Result, sqlstate};
use crate::types::{SqlType, TextType};

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `SELECT`, `VALUES`, `WITH … SELECT`, `TABLE t`
    Query(Box<ast::Query>),
    /// `INSERT` with `ON CONFLICT` and `RETURNING`
    Insert(Box<ast::Insert>),
    /// `UPDATE … RETURNING`
    Update(Box<ast::Statement>),
    /// `DELETE … RETURNING`
    Delete(Box<ast::Delete>),
    /// `TRUNCATE t, …`
    Truncate(Vec<String>),
    /// `COPY t (columns) FROM STDIN` / `COPY t|(query) TO STDOUT`
    Copy(CopyStatement),
    /// `CREATE STREAM`
    CreateStream(CreateStream),
    /// `CREATE TABLE`
    CreateTable(CreateTable),
    /// `CREATE MATERIALIZED VIEW`
    CreateMaterializedView(CreateMaterializedView),
    /// `CREATE VIEW`
    CreateView(CreateView),
    /// `CREATE SINK`
    CreateSink(CreateSink),
    /// `CREATE INDEX`
    CreateIndex(CreateIndex),
    /// `CREATE FUNCTION`
    CreateFunction(CreateFunction),
    /// `CREATE AGGREGATE`
    CreateAggregate(CreateAggregate),
    /// `DROP AGGREGATE name (types), … [CASCADE]`
    DropAggregate {
        /// which
        aggregates: Vec<FunctionReference>,
        /// `IF EXISTS`
        if_exists: bool,
        /// `CASCADE`
        cascade: bool,
    },
    /// `DROP FUNCTION name [(types)], … [CASCADE]`
    DropFunction {
        /// which
        functions: Vec<FunctionReference>,
        /// `IF EXISTS`
        if_exists: bool,
        /// `CASCADE`
        cascade: bool,
    },
    /// `SHOW FUNCTIONS`
    ShowFunctions,
    /// `SHOW CREATE FUNCTION name [(types)]`
    ShowCreateFunction(FunctionReference),
    /// `CREATE SECRET name AS 'value'`
    CreateSecret {
        /// name
        name: String,
        /// value
        value: String,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
    },
    /// `CREATE RECOVERY SCHEDULE name ON target [WITH (fault = '…')] EVERY '1 month'`
    CreateRecoverySchedule(CreateRecoverySchedule),
    /// `DROP RECOVERY SCHEDULE [IF EXISTS] name, …`
    DropRecoverySchedule {
        /// names
        names: Vec<String>,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// `ALTER SECRET name AS 'value'`
    AlterSecret {
        /// name
        name: String,
        /// value
        value: String,
    },
    /// `DROP kind name, … [CASCADE]`
    Drop {
        /// what
        kind: ObjectKind,
        /// names
        names: Vec<String>,
        /// `IF EXISTS`
        if_exists: bool,
        /// `CASCADE`
        cascade: bool,
    },
    /// `ALTER kind name SET (…)` / `RESET (…)`
    AlterOptions {
        /// what
        kind: ObjectKind,
        /// name
        name: String,
        /// options to set
        set: Options,
        /// options to put back to their defaults
        reset: Vec<String>,
    },
    /// `ALTER STREAM|TABLE name …`: columns, watermark, expectations
    AlterRelation {
        /// what
        kind: ObjectKind,
        /// name
        name: String,
        /// `IF EXISTS`
        if_exists: bool,
        /// what to do, in order
        actions: Vec<AlterAction>,
    },
    /// `ALTER kind name RENAME TO new`
    Rename {
        /// what
        kind: ObjectKind,
        /// name
        name: String,
        /// new name
        new_name: String,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// `COMMENT ON kind name [.column] IS …`
    Comment {
        /// what
        kind: ObjectKind,
        /// name
        name: String,
        /// column, for `COMMENT ON COLUMN`
        column: Option<String>,
        /// text; `None` removes it
        comment: Option<String>,
    },
    /// `START kind name [WITHIN …]` / `START ALL` (`None`)
    Start(Option<(ObjectKind, String)>, Option<Duration>),
    /// `STOP kind name [WITHIN …]` / `STOP ALL` (`None`)
    Stop(Option<(ObjectKind, String)>, Option<Duration>),
    /// `REFRESH MATERIALIZED VIEW v`
    Refresh(String),
    /// `FLUSH`
    Flush,
    /// `WAIT FOR v [WITHIN …]`
    Wait(String, Option<Duration>),
    /// `SUBSCRIBE TO v [WITH (SNAPSHOT, PROGRESS)] [AFTER BATCH n]`
    Subscribe(Subscribe),
    /// `CREATE USER`, `GRANT` and the other statements about roles and privileges
    Access(Box<AccessStatement>),
    /// `DIAGNOSE CHECKPOINT OF p` and the other statements of recovery
    Recovery(RecoveryStatement),
    /// `EXPLAIN [ANALYZE] MATERIALIZED VIEW v`
    ExplainMaterializedView {
        /// name
        name: String,
        /// with the running pipeline's figures
        analyze: bool,
    },
    /// `EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW …`: what it would keep and compute anew
    ExplainReplace(Box<CreateMaterializedView>),
    /// `EXPLAIN …` of a query
    Explain(Box<ast::Statement>),
    /// `SHOW STREAMS | TABLES | …`
    ShowObjects(ObjectKind),
    /// `SHOW CREATE kind name`
    ShowCreate(ObjectKind, String),
    /// `SHOW OPTIONS FOR connector-or-object`
    ShowOptions(String),
    /// `DESCRIBE name`
    Describe(String),
    /// `SHOW parameter` (`ALL` too)
    ShowParameter(String),
    /// `SET [SESSION|LOCAL] parameter = value`; `None` = DEFAULT
    SetParameter {
        /// folded name
        name: String,
        /// value as text
        value: Option<String>,
        /// `LOCAL`
        local: bool,
    },
    /// `RESET parameter` / `RESET ALL`
    ResetParameter(String),
    /// `BEGIN` / `START TRANSACTION`
    Begin(TransactionModes),
    /// `SET TRANSACTION`, `SET SESSION CHARACTERISTICS AS TRANSACTION`
    SetTransaction {
        /// what is set
        modes: TransactionModes,
        /// for the session's next transactions, not for this one
        is_session: bool,
    },
    /// `COMMIT` / `END`
    Commit {
        /// `AND CHAIN`
        chain: bool,
    },
    /// `ROLLBACK` / `ABORT`
    Rollback {
        /// `AND CHAIN`
        chain: bool,
    },
    /// `SAVEPOINT s`
    Savepoint(String),
    /// `RELEASE [SAVEPOINT] s`
    ReleaseSavepoint(String),
    /// `ROLLBACK TO [SAVEPOINT] s`
    RollbackToSavepoint(String),
    /// `PREPARE name [(types)] AS statement`
    Prepare {
        /// name
        name: String,
        /// statement text
        statement: Box<Statement>,
    },
    /// `EXECUTE name (args)`
    Execute {
        /// name
        name: String,
        /// arguments
        arguments: Vec<ast::Expr>,
    },
    /// `DEALLOCATE name | ALL` (`None`)
    Deallocate(Option<String>),
    /// `DECLARE c CURSOR FOR query-or-subscribe`
    DeclareCursor {
        /// name
        name: String,
        /// what it reads
        query: Box<Statement>,
        /// `WITH HOLD`
        hold: bool,
        /// `SCROLL`: it can be read backwards
        scroll: bool,
    },
    /// `FETCH … FROM c`
    Fetch {
        /// name
        name: String,
        /// which rows
        direction: Direction,
    },
    /// `MOVE … FROM c`
    Move {
        /// name
        name: String,
        /// past which rows
        direction: Direction,
    },
    /// `CLOSE c | ALL` (`None`)
    CloseCursor(Option<String>),
    /// `DISCARD ALL`, or a part that there is something of
    Discard(Discarded),
    /// `LISTEN channel`
    Listen(String),
    /// `UNLISTEN channel | *` (`None`)
    Unlisten(Option<String>),
    /// `NOTIFY channel [, 'payload']`
    Notify {
        /// channel
        channel: String,
        /// payload, often empty
        payload: String,
    },
    /// statements accepted with no effect (`ANALYZE`, `VACUUM`, …), with their tag
    NoOperation(&'static str),
}

/// Modes of a transaction, as far as they are said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// `ISOLATION LEVEL`, in PostgreSQL's words; every level is served as the strictest
    pub isolation: Option<&'static str>,
    /// `READ ONLY` or `READ WRITE`
    pub read_only: Option<bool>,
    /// `[NOT] DEFERRABLE`
    pub deferrable: Option<bool>,
}

/// Where FETCH and MOVE go; a count of `None` is ALL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `NEXT`, `n`, `FORWARD n`
    Forward(Option<u64>),
    /// `PRIOR`, `BACKWARD n`
    Backward(Option<u64>),
    /// `FIRST` (1), `LAST` (-1), `ABSOLUTE n`
    Absolute(i64),
    /// `RELATIVE n`
    Relative(i64),
}

/// Kinds of objects that statements name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// `STREAM`
    Stream,
    /// `TABLE`
    Table,
    /// `MATERIALIZED VIEW`
    MaterializedView,
    /// `VIEW`
    View,
    /// `SINK`
    Sink,
    /// `INDEX`
    Index,
    /// `PIPELINE`
    Pipeline,
    /// `SECRET`
    Secret,
}

/// Another type of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    /// the type
    pub sql_type: SqlType,
    /// for text: how it was declared
    pub text_type: Option<TextType>,
    /// the expression that gives the values, as SQL text; `None`: the column itself
    pub using: Option<String>,
}

/// `CREATE AGGREGATE`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateAggregate {
    /// name
    pub name: String,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// arguments
    pub parameters: Vec<FunctionParameter>,
    /// what it is made of
    pub body: AggregateBody,
}

/// `CREATE INDEX`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    /// name; `None`: one is made of those of the view and the columns
    pub name: Option<String>,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// the view
    pub relation: String,
    /// columns in order
    pub columns: Vec<IndexColumn>,
    /// `INCLUDE (…)`
    pub include: Vec<String>,
}

/// One action of `ALTER STREAM|TABLE`.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterAction {
    /// `ADD [CONSTRAINT n] PRIMARY KEY (a, …)`
    AddPrimaryKey(Vec<String>),
    /// `ADD [COLUMN] [IF NOT EXISTS] c type …`
    AddColumn {
        /// the column
        column: ColumnDefinition,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
    },
    /// `DROP [COLUMN] [IF EXISTS] c [CASCADE]`
    DropColumn {
        /// name
        name: String,
        /// `IF EXISTS`
        if_exists: bool,
        /// `CASCADE`
        cascade: bool,
    },
    /// `RENAME [COLUMN] a TO b [FROM 'c']`
    RenameColumn {
        /// name until now
        name: String,
        /// name from now on
        new_name: String,
        /// the name under which the source sends it, if that is not the new one
        sent_as: Option<String>,
    },
    /// `ALTER [COLUMN] c SET NOT NULL` / `DROP NOT NULL` (true)
    SetNullable(String, bool),
    /// `ALTER [COLUMN] c SET DEFAULT e` / `DROP DEFAULT` (`None`)
    SetDefault(String, Option<String>),
    /// `ALTER [COLUMN] c [SET DATA] TYPE t [USING e]`
    SetType(String, ColumnType),
    /// `ALTER WATERMARK FOR c AS e` / `DROP WATERMARK` (`None`)
    SetWatermark(Option<(WatermarkDefinition, DelayUnit)>),
    /// `ADD CONSTRAINT n EXPECT …`
    AddExpectation(ExpectationDefinition),
    /// `DROP CONSTRAINT [IF EXISTS] n`
    DropConstraint {
        /// name
        name: String,
        /// `IF EXISTS`
        if_exists: bool,
    },
}

/// How the delay of a watermark was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayUnit {
    /// none
    None,
    /// `- 1000`
    Number,
    /// `- INTERVAL '1 minute'`
    Interval,
}

impl DelayUnit {
    /// 42883 where a column of this type cannot be lessened by it.
    pub fn check(self, column: &ColumnDefinition) -> Result<()> {
        let is_integer = matches!(column.sql_type, SqlType::Integer | SqlType::BigInt);
        let (other, hint) = match self {
            Self::Interval if is_integer => (
                "interval",
                format!("Write the delay as a number: {} - 1000.", column.name),
            ),
            Self::Number if !is_integer => (
                "integer",
                format!("Write {} - INTERVAL '1 minute'.", column.name),
            ),
            _ => return Ok(()),
        };
        Err(Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("operator does not exist: {} - {other}", column.sql_type),
        )
        .hint(hint))
    }
}

/// `CREATE RECOVERY SCHEDULE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRecoverySchedule {
    /// name
    pub name: String,
    /// a pipeline, or a view or sink in it
    pub target: String,
    /// names of faults with commas between; `None`: all
    pub faults: Option<String>,
    /// the interval, as it was written
    pub every: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
}

/// `CREATE STREAM`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateStream {
    /// name
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// columns
    pub columns: Vec<ColumnDefinition>,
    /// watermark
    pub watermark: Option<WatermarkDefinition>,
    /// expectations
    pub expectations: Vec<ExpectationDefinition>,
    /// `connector = …`
    pub connector: Option<String>,
    /// the other options
    pub options: Options,
}

/// `CREATE TABLE`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// name
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// columns
    pub columns: Vec<ColumnDefinition>,
    /// names of the query's columns
    pub column_names: Vec<String>,
    /// primary key
    pub primary_key: Vec<String>,
    /// of a temporary table: what happens to its rows at a commit
    pub temporary: Option<OnCommit>,
    /// options
    pub options: Options,
    /// `AS query`
    pub query: Option<Box<ast::Query>>,
    /// the query's rows are put in: `WITH NO DATA` was not said
    pub with_data: bool,
}

/// What `DISCARD` lets go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// all that the session has
    All,
    /// temporary tables
    Temporary,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterializedView {
    /// name
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// column names, when listed
    pub column_names: Vec<String>,
    /// options
    pub options: Options,
    /// the `SELECT`
    pub query: Box<ast::Query>,
    /// its text, as the user wrote it
    pub query_text: String,
    /// emit mode
    pub emit: EmitMode,
}

/// `CREATE VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// name
    pub name: String,
    /// `TEMPORARY`
    pub is_temporary: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// column names, when listed
    pub column_names: Vec<String>,
    /// the `SELECT`
    pub query: Box<ast::Query>,
    /// its text
    pub query_text: String,
}

/// `CREATE FUNCTION`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// name
    pub name: String,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// parameters
    pub parameters: Vec<FunctionParameter>,
    /// result
    pub result: FunctionResult,
    /// `IMMUTABLE`, `STABLE`, `VOLATILE`
    pub volatility: FunctionVolatility,
    /// `STRICT`
    pub is_strict: bool,
    /// body
    pub body: FunctionBody,
}

/// A function as statements name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionReference {
    /// name
    pub name: String,
    /// the types of its parameters; `None` where the name is enough
    pub types: Option<Vec<SqlType>>,
}

/// `CREATE SINK`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSink {
    /// name
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// view or stream it delivers
    pub from: String,
    /// connector
    pub connector: String,
    /// the other options
    pub options: Options,
}

/// `SUBSCRIBE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// view or stream
    pub name: String,
    /// current contents first
    pub snapshot: bool,
    /// a row per batch even without changes
    pub progress: bool,
    /// resume after this batch
    pub after_batch: Option<u64>,
}

/// `COPY`.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyStatement {
    /// what is copied
    pub target: CopyTarget,
    /// `FROM STDIN` (true) or `TO STDOUT`
    pub from_stdin: bool,
    /// text, csv or binary
    pub format: CopyFormat,
    /// delimiter
    pub delimiter: u8,
    /// NULL marker
    pub null: String,
    /// header line
    pub header: bool,
    /// its names must be those of the columns (`HEADER match`)
    pub header_match: bool,
    /// CSV columns whose values are always quoted
    pub force_quote: ForceQuote,
    /// CSV quote
    pub quote: u8,
    /// CSV escape
    pub escape: u8,
}

/// `FORCE_QUOTE` of `COPY … TO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForceQuote {
    /// `*`
    All,
    /// these columns; none where it was not said
    Columns(Vec<String>),
}

/// What `COPY` reads or writes.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyTarget {
    /// a relation and its listed columns (empty: all)
    Relation(String, Vec<String>),
    /// `(query)`
    Query(Box<Statement>),
}

/// `FORMAT` of `COPY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// text
    Text,
    /// csv
    Csv,
    /// binary
    Binary,
}

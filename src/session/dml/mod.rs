//! INSERT, UPDATE, DELETE, TRUNCATE and COPY FROM.
//!
//! ```text
//!   statement ─► query that gives its rows ─► assignment casts, defaults, NOT NULL
//!                                                   │ batches
//!                     tables: sorted layer of changes by key      streams: frames in the log
//!                                                   │ statement done
//!                                          Transaction (overlay, log) ─► commit
//! ```
//!
//! A statement plans the query behind it as the session plans any other, over what the transaction
//! sees, and works on whole batches. It changes the transaction only at its end, or, for a
//! stream, takes back what it appended when it fails: a statement is whole or has no effect.
//! Absent: triggers, unique constraints other than the primary key.

mod assign;
mod changes;
mod conflict;
mod copy;
mod describe;
mod insert;
mod lock_rows;
mod locking;
mod needs;
mod plan;
pub mod relation;
mod returning;
mod rewrite;
mod session;
mod target;
#[cfg(test)]
mod tests;
mod text;
pub mod transaction;
mod values;
mod with;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast;

pub use copy::CopyRows;
pub use describe::{DmlDescription, describe};
pub(in crate::session) use lock_rows::has_locks;
pub use plan::{PlainPlanner, StatementPlanner};
pub use relation::TableRelation;
pub use target::CatalogLookup;
pub use transaction::{Transaction, TransactionMark};
pub(in crate::session) use with::has_changes;

pub(in crate::session) use plan::parse_expression;

use crate::error::Result;
use crate::session::Parameter;
use crate::sql::statement::Statement;
use plan::{Planning, Rows};
use target::Target;

/// What a statement works with.
pub struct DmlContext<'a> {
    /// plans and runs queries; its tables show the transaction's view
    pub state: &'a SessionState,
    /// how statements are planned
    pub planner: &'a dyn StatementPlanner,
    /// definitions by name
    pub catalog: CatalogLookup<'a>,
    /// where changes go
    pub transaction: &'a mut Transaction,
    /// values of `$1…`
    pub parameters: &'a [Parameter],
}

/// What a statement did.
#[derive(Debug)]
pub struct DmlResult {
    /// rows inserted, updated or deleted
    pub rows: u64,
    /// rows of RETURNING
    pub returning: Option<(SchemaRef, Vec<RecordBatch>)>,
}

impl DmlContext<'_> {
    fn planning(&self) -> Planning<'_> {
        Planning {
            state: self.state,
            planner: self.planner,
            parameters: self.parameters,
        }
    }
}

/// How often a statement outside a block is tried before its conflict is told.
pub const ATTEMPTS_MAX: u32 = 1000;

/// A statement outside a block that may simply run again after a conflict (40001).
pub fn may_run_again(statement: &Statement) -> bool {
    if let Statement::Query(query) = statement {
        return has_changes(query);
    }
    matches!(
        statement,
        Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Truncate(_)
            | Statement::Execute { .. }
    )
}

/// Runs an `INSERT`.
pub async fn insert(mut dml: DmlContext<'_>, statement: &ast::Insert) -> Result<DmlResult> {
    let mark = dml.transaction.mark();
    let result = insert::insert(&mut dml, statement).await;
    taken_back(dml, mark, result)
}

/// Runs an `UPDATE`; the statement must be one.
pub async fn update(mut dml: DmlContext<'_>, statement: &ast::Statement) -> Result<DmlResult> {
    rewrite::update(&mut dml, statement).await
}

/// Runs a `DELETE`.
pub async fn delete(mut dml: DmlContext<'_>, statement: &ast::Delete) -> Result<DmlResult> {
    rewrite::delete(&mut dml, statement).await
}

/// Runs a `TRUNCATE` of tables.
pub async fn truncate(mut dml: DmlContext<'_>, names: &[String]) -> Result<DmlResult> {
    let mark = dml.transaction.mark();
    let result = rewrite::truncate(&mut dml, names);
    taken_back(dml, mark, result)
}

/// After a failure nothing of the statement stays.
fn taken_back(
    dml: DmlContext<'_>,
    mark: TransactionMark,
    result: Result<DmlResult>,
) -> Result<DmlResult> {
    if result.is_err() {
        dml.transaction.rollback_to(&mark)?;
    }
    result
}

/// `RETURNING`: its items over the rows that a statement left.
async fn returning(
    planning: &Planning<'_>,
    target: &Target,
    items: Option<&Vec<ast::SelectItem>>,
    rows: Rows,
) -> Result<Option<Rows>> {
    let Some(items) = items else {
        return Ok(None);
    };
    let result = planning
        .select_over(&target.alias, rows, items.clone())
        .await?;
    Ok(Some(result))
}

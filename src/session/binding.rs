//! Binding of materialized views' queries: what runs is always bound from the stored text, at
//! creation as at a restart, so that both give one plan.

use std::sync::{Arc, OnceLock, Weak};

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;

use super::rows::SharedRows;
use super::scope::StatementScope;
use super::{functions, planning, versions};
use crate::catalog::definition::{ColumnDefinition, KeptNames};
use crate::catalog::function::FunctionDefinition;
use crate::database::DatabaseParts;
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::sql::local_times::in_time_zone;

/// Binds a stored query: analyzed, not optimized, its columns of the types that the definition
/// tells of (an unsigned count, say, is a numeric in SQL).
pub(super) async fn bind_text(
    state: &SessionState,
    text: &str,
    kept: &KeptNames,
) -> Result<LogicalPlan> {
    let query = planning::query_statement(&*planning::parse_query(text)?);
    let state = in_time_zone(state.clone(), kept.time_zone.as_deref());
    let bound = versions::meaning(kept, bind(&state, query, &[]));
    Ok(bound.await?.plan)
}

/// A query as a pipeline runs it.
pub(super) struct BoundQuery {
    pub plan: LogicalPlan,
    /// what its columns are
    pub columns: Vec<ColumnDefinition>,
    /// the functions in SQL that it calls, those of the plain views in it aside
    pub called: Vec<Arc<FunctionDefinition>>,
}

/// Binds a query that is created now, under these names of its columns if there are any.
pub(super) async fn bind(
    state: &SessionState,
    query: ast::Statement,
    names: &[String],
) -> Result<BoundQuery> {
    let planned = versions::binding(functions::plan(state, query, Vec::new())).await?;
    let plan = planning::analyzed(state, planned.plan)?;
    let columns = planning::columns_of(&plan, names)?;
    let plan = versions::in_scan_names(planning::with_columns(plan, &columns)?)?;
    Ok(BoundQuery {
        plan,
        columns,
        called: planned.called,
    })
}

/// The text to store for a query whose columns the view renames: the names become part of it.
pub(super) fn stored_text(query: &str, view: &str, names: &[String]) -> String {
    if names.is_empty() {
        return query.to_owned();
    }
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names: Vec<_> = names.iter().map(|n| quoted(n)).collect();
    format!(
        "SELECT * FROM ({query}) AS {} ({})",
        quoted(view),
        names.join(", ")
    )
}

/// Binds for the engine, in a context that belongs to no client.
pub(crate) struct ViewBinder {
    parts: Weak<DatabaseParts>,
    context: OnceLock<(SessionContext, Arc<StatementScope>)>,
}

impl ViewBinder {
    /// A binder over a database's definitions. It does not keep the database alive.
    pub fn new(parts: &Arc<DatabaseParts>) -> Self {
        Self {
            parts: Arc::downgrade(parts),
            context: OnceLock::new(),
        }
    }

    /// Binds a query over the newest committed definitions.
    pub async fn bind(&self, query: &str, kept: &KeptNames) -> Result<LogicalPlan> {
        let parts = self.parts.upgrade().ok_or_else(|| {
            Error::with_kind(
                ErrorKind::Cancelled,
                sqlstate::ADMIN_SHUTDOWN,
                "the database is closed",
            )
        })?;
        let (context, scope) = self.context_of(&parts);
        scope.enter(parts.catalog.snapshot());
        bind_text(&context.state(), query, kept).await
    }

    /// Functions and optimizer rules.
    pub fn state(&self) -> SessionState {
        match self.parts.upgrade() {
            Some(parts) => self.context_of(&parts).0.state(),
            // Only a pipeline that outlives its closed database asks then; it plans nothing more.
            None => SessionContext::new().state(),
        }
    }

    fn context_of(&self, parts: &Arc<DatabaseParts>) -> &(SessionContext, Arc<StatementScope>) {
        self.context.get_or_init(|| {
            let scope = StatementScope::new(parts.catalog.snapshot());
            let context = super::context::bare_context(parts, &scope, &SharedRows::new());
            (context, scope)
        })
    }
}

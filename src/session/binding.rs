//! Binding of materialized views' queries: what runs is always bound from the stored text, at
//! creation as at a restart, so that both give one plan.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;

use super::rows::SharedRows;
use super::scope::StatementScope;
use super::{planning, versions};
use crate::catalog::definition::ColumnDefinition;
use crate::database::DatabaseParts;
use crate::error::{Error, ErrorKind, Result, sqlstate};

/// Binds a stored query: analyzed, not optimized, its columns of the types that the definition
/// tells of (an unsigned count, say, is a numeric in SQL).
pub(super) async fn bind_text(
    state: &SessionState,
    text: &str,
    columns_meant: &BTreeMap<String, usize>,
) -> Result<LogicalPlan> {
    let query = planning::query_statement(&*planning::parse_query(text)?);
    let bound = versions::meaning(columns_meant, bind(state, query, &[]));
    Ok(bound.await?.0)
}

/// Binds a query that is created now, under these names of its columns if there are any; and what
/// its columns are.
pub(super) async fn bind(
    state: &SessionState,
    query: ast::Statement,
    names: &[String],
) -> Result<(LogicalPlan, Vec<ColumnDefinition>)> {
    let plan = versions::binding(planning::plan_statement(state, query)).await?;
    let plan = planning::analyzed(state, plan)?;
    let columns = planning::columns_of(&plan, names)?;
    let plan = versions::in_scan_names(planning::with_columns(plan, &columns)?)?;
    Ok((plan, columns))
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
    pub async fn bind(
        &self,
        query: &str,
        versions: &BTreeMap<String, usize>,
    ) -> Result<LogicalPlan> {
        let parts = self.parts.upgrade().ok_or_else(|| {
            Error::with_kind(
                ErrorKind::Cancelled,
                sqlstate::ADMIN_SHUTDOWN,
                "the database is closed",
            )
        })?;
        let (context, scope) = self.context_of(&parts);
        scope.enter(parts.catalog.snapshot());
        bind_text(&context.state(), query, versions).await
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

//! `WITH x AS (DELETE … RETURNING …) SELECT …`: queries of a WITH that change rows.
//!
//! They run first, one after the other, and what they return takes the place of their text. They,
//! and a SELECT after them, see the tables as they were before the statement, as in PostgreSQL.

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast;

use super::lock_rows::has_locks;
use super::plan::{Rows, returned_name, state_with_returned, template};
use super::session::Change;
use crate::error::{Error, Result};
use crate::session::parameters::placeholders;
use crate::session::{Parameter, Session};
use crate::sql::statement::Statement;
use crate::sql::{change_of_query, changes_rows};
use crate::types::SqlType;

/// A query whose WITH changes no rows any more, and where the rows that it returned are found.
pub(in crate::session) struct WithResults {
    pub query: ast::Query,
    pub state: SessionState,
}

/// How far the queries of a WITH are gone through.
struct Progress {
    with: ast::With,
    kept: Vec<ast::Cte>,
    tables: Vec<Rows>,
}

impl Progress {
    /// What stands before the query that comes next.
    fn earlier(&self) -> Option<ast::With> {
        (!self.kept.is_empty()).then(|| ast::With {
            cte_tables: self.kept.clone(),
            ..self.with.clone()
        })
    }

    /// A query that changed rows becomes what it returned; without RETURNING it is gone.
    fn replace(&mut self, mut cte: ast::Cte, returned: Option<Rows>) -> Result<()> {
        let Some(returned) = returned else {
            return Ok(());
        };
        let name = returned_name(self.tables.len());
        self.tables.push(returned);
        cte.query = Box::new(template(&format!("SELECT * FROM {name}"))?);
        self.kept.push(cte);
        Ok(())
    }
}

/// Some query of the WITH changes rows.
pub(in crate::session) fn has_changes(query: &ast::Query) -> bool {
    let with = query.with.iter();
    with.flat_map(|with| &with.cte_tables)
        .any(|cte| changes_rows(&cte.query))
}

impl Session {
    /// Runs the queries of a WITH that change rows; a SELECT after it still sees the tables as they
    /// were.
    pub(in crate::session) async fn run_changes_of_with(
        &mut self,
        query: &ast::Query,
        parameters: &[Parameter],
    ) -> Result<WithResults> {
        self.check_writable("a data-modifying WITH")?;
        let view = self.rows.view(&self.parts.tables)?;
        let (mut query, mut progress, ctes) = taken_apart(query)?;
        for cte in ctes {
            let state = state_with_returned(&self.planning_state(), &progress.tables)?;
            if has_locks(cte.query.as_ref()) && !changes_rows(&cte.query) {
                let mut query = cte.query.as_ref().clone();
                query.with = query.with.or(progress.earlier());
                let rows = self.locked_rows(query, state, parameters).await;
                self.rows.see(&view);
                progress.replace(cte, Some(rows?))?;
                continue;
            }
            if !changes_rows(&cte.query) {
                progress.kept.push(cte);
                continue;
            }
            let change = change_of(&cte, progress.earlier())?;
            let result = self
                .run_change(&Change::of(&change)?, &state, parameters)
                .await;
            self.rows.see(&view);
            progress.replace(cte, result?.returning)?;
        }
        query.with = progress.earlier();
        let state = state_with_returned(&self.planning_state(), &progress.tables)?;
        Ok(WithResults { query, state })
    }

    /// As [`Self::run_changes_of_with`] for a description: nothing is changed and no row returned.
    /// Types of parameters that a changing query tells are noted.
    pub(in crate::session) async fn describe_changes_of_with(
        &mut self,
        query: &ast::Query,
        types: &mut Vec<Option<SqlType>>,
    ) -> Result<WithResults> {
        let (mut query, mut progress, ctes) = taken_apart(query)?;
        for cte in ctes {
            if !changes_rows(&cte.query) {
                progress.kept.push(cte);
                continue;
            }
            let statement = change_of(&cte, progress.earlier())?;
            let described = Box::pin(self.describe_dml(&statement, types)).await?;
            types.resize(types.len().max(described.parameters.len()), None);
            let used = placeholders(&cte.query)?;
            for (index, sql_type) in described.parameters.into_iter().enumerate() {
                if used.contains(&(index + 1)) {
                    types[index].get_or_insert(sql_type);
                }
            }
            let returned = described.columns.map(|columns| (columns, Vec::new()));
            progress.replace(cte, returned)?;
        }
        query.with = progress.earlier();
        let state = state_with_returned(&self.planning_state(), &progress.tables)?;
        Ok(WithResults { query, state })
    }
}

/// A query without its WITH, and the queries of that.
fn taken_apart(query: &ast::Query) -> Result<(ast::Query, Progress, Vec<ast::Cte>)> {
    let mut query = query.clone();
    let mut with = query
        .with
        .take()
        .ok_or_else(|| Error::internal("a WITH that is none"))?;
    let ctes = std::mem::take(&mut with.cte_tables);
    let progress = Progress {
        with,
        kept: Vec::new(),
        tables: Vec::new(),
    };
    Ok((query, progress, ctes))
}

/// The statement of a query, with the queries before it in its reach.
fn change_of(cte: &ast::Cte, earlier: Option<ast::With>) -> Result<Statement> {
    let mut query = cte.query.as_ref().clone();
    query.with = match (earlier, query.with.take()) {
        (Some(mut earlier), Some(own)) => {
            earlier.recursive |= own.recursive;
            earlier.cte_tables.extend(own.cte_tables);
            Some(earlier)
        }
        (earlier, own) => earlier.or(own),
    };
    change_of_query(&mut query)?.ok_or_else(|| Error::internal("a change of rows that is none"))
}

//! `PREPARE`, `EXECUTE`, `DEALLOCATE`. Statements that the protocol prepared have names in SQL too.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;

use super::parameters::cast_values;
use super::rowset::done;
use super::{Parameter, Session, StatementResult, planning, query};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::Statement;

impl Session {
    pub(super) fn prepare(&mut self, name: &str, statement: &Statement) -> Result<StatementResult> {
        if self.prepared.contains_key(name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        self.prepared
            .insert(name.to_owned(), Arc::new(statement.clone()));
        Ok(done("PREPARE"))
    }

    pub(super) fn prepared_statement(&self, name: &str) -> Result<Arc<Statement>> {
        let found = self.prepared.get(name);
        let found = found.or_else(|| self.prepared_by_protocol.get(name));
        found.cloned().ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
        })
    }

    pub(super) async fn execute_prepared(
        &mut self,
        name: &str,
        arguments: &[ast::Expr],
    ) -> Result<StatementResult> {
        let statement = self.prepared_statement(name)?;
        let values = self.arguments(name, &statement, arguments).await?;
        self.dispatch(&statement, &values).await
    }

    /// The query that an EXECUTE in EXPLAIN means, and its parameters.
    pub(super) async fn explained_execute(
        &mut self,
        name: &str,
        arguments: &[ast::Expr],
    ) -> Result<(ast::Statement, Vec<Parameter>)> {
        let statement = self.prepared_statement(name)?;
        let Statement::Query(query) = statement.as_ref() else {
            return Err(Error::unsupported("EXPLAIN takes a query"));
        };
        let query = planning::query_statement(query);
        let values = self.arguments(name, &statement, arguments).await?;
        Ok((query, values))
    }

    /// The protocol prepared a statement under a name.
    pub fn know_prepared(&mut self, name: &str, statement: &Statement) {
        let statement = Arc::new(statement.clone());
        self.prepared_by_protocol.insert(name.to_owned(), statement);
    }

    /// The protocol let go of a statement, or of all.
    pub fn forget_prepared(&mut self, name: Option<&str>) {
        match name {
            Some(name) => {
                self.prepared_by_protocol.remove(name);
            }
            None => self.prepared_by_protocol.clear(),
        }
    }

    /// Arguments of EXECUTE as the statement's parameters.
    async fn arguments(
        &mut self,
        name: &str,
        statement: &Statement,
        arguments: &[ast::Expr],
    ) -> Result<Vec<Parameter>> {
        let description = self.describe_statement(statement, &[]).await?;
        let wanted = description.parameters.len();
        if wanted != arguments.len() {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {wanted} parameters but got {}.",
                arguments.len()
            )));
        }
        let values = self.evaluate(arguments).await?;
        cast_values(&values, &description.parameters)
    }

    /// The values of expressions that read no relation.
    async fn evaluate(&self, expressions: &[ast::Expr]) -> Result<Vec<ScalarValue>> {
        if expressions.is_empty() {
            return Ok(Vec::new());
        }
        let mut select = planning::parse_query("SELECT 1")?;
        if let ast::SetExpr::Select(body) = select.body.as_mut() {
            body.projection = expressions
                .iter()
                .enumerate()
                .map(|(i, expr)| ast::SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias: ast::Ident::new(format!("argument_{i}")),
                })
                .collect();
        }
        let state = self.planning_state();
        let plan = planning::plan_statement(&state, planning::query_statement(&select)).await?;
        let (_, rows) = query::start(&state, &plan).await?;
        let batches: Vec<_> = rows.try_collect().await?;
        let row = batches
            .iter()
            .find(|b| b.num_rows() == 1)
            .ok_or_else(|| Error::internal("the arguments gave no row"))?;
        row.columns()
            .iter()
            .map(|column| Ok(ScalarValue::try_from_array(column, 0)?))
            .collect()
    }

    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Result<StatementResult> {
        let Some(name) = name else {
            self.prepared.clear();
            return Ok(done("DEALLOCATE ALL"));
        };
        self.prepared_statement(name)?;
        self.prepared.remove(name);
        Ok(done("DEALLOCATE"))
    }
}

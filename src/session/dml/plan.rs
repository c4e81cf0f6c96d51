//! Planning and running the queries that feed DML.
//!
//! Rows that exist only in this statement (a conflict's pairs, what RETURNING tells of) are put
//! under a catalog of their own beside the session's, so that any expression over them, with
//! subqueries and all, is planned as the rest of the session plans.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider, MemorySchemaProvider,
    SchemaProvider,
};
use datafusion::common::ScalarValue;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::session::Parameter;
use crate::session::threads::{physical_plan, start_plan};
use crate::sql::local_times::time_zone;
use crate::values::OutputSettings;

/// Turns a statement tree into a plan with the values of its parameters; the session's way.
pub trait StatementPlanner: Send + Sync {
    /// Plans, unoptimized.
    fn plan<'a>(
        &'a self,
        state: &'a SessionState,
        statement: ast::Statement,
        parameters: &'a [Parameter],
    ) -> BoxFuture<'a, Result<LogicalPlan>>;
}

/// DataFusion's planner as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainPlanner;

impl StatementPlanner for PlainPlanner {
    fn plan<'a>(
        &'a self,
        state: &'a SessionState,
        statement: ast::Statement,
        parameters: &'a [Parameter],
    ) -> BoxFuture<'a, Result<LogicalPlan>> {
        Box::pin(async move {
            let statement = ParsedStatement::Statement(Box::new(statement));
            let plan = state.statement_to_plan(statement).await?;
            match parameters.is_empty() {
                true => Ok(plan),
                false => {
                    let values: Vec<ScalarValue> =
                        parameters.iter().map(|p| p.value.clone()).collect();
                    Ok(plan.with_param_values(values)?)
                }
            }
        })
    }
}

/// Rows at hand, and their columns.
pub(super) type Rows = (SchemaRef, Vec<RecordBatch>);

/// A planner at work for one statement.
#[derive(Clone, Copy)]
pub(super) struct Planning<'a> {
    pub state: &'a SessionState,
    pub planner: &'a dyn StatementPlanner,
    pub parameters: &'a [Parameter],
}

impl Planning<'_> {
    /// How values are read and written as text.
    pub fn settings(&self) -> OutputSettings {
        OutputSettings::new(Some(time_zone(self.state.config_options())))
    }

    async fn plan(&self, query: ast::Query) -> Result<Arc<dyn ExecutionPlan>> {
        let statement = ast::Statement::Query(Box::new(query));
        let plan = self
            .planner
            .plan(self.state, statement, self.parameters)
            .await?;
        physical_plan(self.state, &plan).await
    }

    /// Plans a query and starts it.
    pub async fn start(&self, query: ast::Query) -> Result<SendableRecordBatchStream> {
        start_plan(self.state, self.plan(query).await?)
    }

    /// The columns that a query would give; it is planned only.
    pub async fn columns(&self, query: ast::Query) -> Result<SchemaRef> {
        Ok(self.plan(query).await?.schema())
    }

    /// Runs `SELECT items FROM rows AS alias` over rows at hand, in their order.
    pub async fn select_over(
        &self,
        alias: &str,
        rows: Rows,
        items: Vec<ast::SelectItem>,
    ) -> Result<Rows> {
        let state = state_with_rows(self.state, rows)?;
        let stream = self.over(&state).start(own_query(alias, items)?).await?;
        let schema = stream.schema();
        let batches = datafusion::physical_plan::common::collect(stream).await?;
        Ok((schema, batches))
    }

    /// The columns that `SELECT items FROM rows AS alias` would give.
    pub async fn columns_over(
        &self,
        alias: &str,
        schema: &SchemaRef,
        items: Vec<ast::SelectItem>,
    ) -> Result<SchemaRef> {
        let state = state_with_rows(self.state, (Arc::clone(schema), Vec::new()))?;
        self.over(&state).columns(own_query(alias, items)?).await
    }

    fn over<'a>(&'a self, state: &'a SessionState) -> Planning<'a> {
        Planning { state, ..*self }
    }
}

const OWN_CATALOG: &str = "tidemill_statement";
const OWN_SCHEMA: &str = "own";
const OWN_TABLE: &str = "own_rows";

/// `SELECT items` from the table of [`state_with_rows`].
fn own_query(alias: &str, items: Vec<ast::SelectItem>) -> Result<ast::Query> {
    let mut query = template(&format!(
        "SELECT 1 FROM {OWN_CATALOG}.{OWN_SCHEMA}.{OWN_TABLE} AS {}",
        quoted(alias)
    ))?;
    select_of(&mut query)?.projection = items;
    Ok(query)
}

fn state_with_rows(state: &SessionState, rows: Rows) -> Result<SessionState> {
    // One partition, so that rows keep their order.
    let config = state.config().clone().with_target_partitions(1);
    let tables = [(OWN_TABLE.to_owned(), rows)];
    Ok(with_catalog(state, OWN_CATALOG, tables)?
        .with_config(config)
        .build())
}

/// The catalog of what the changing queries of a WITH returned.
const RETURNED_CATALOG: &str = "tidemill_returned";

/// The catalog of what queries gave that lock rows.
const LOCKED_CATALOG: &str = "tidemill_locked";

/// The name of the table that holds what the `number`th changing query of a WITH returned.
pub(super) fn returned_name(number: usize) -> String {
    result_name(RETURNED_CATALOG, number)
}

/// The state with the tables of [`returned_name`].
pub(super) fn state_with_returned(state: &SessionState, tables: &[Rows]) -> Result<SessionState> {
    state_with_results(state, RETURNED_CATALOG, tables)
}

/// The name of the table that holds what the `number`th query gave that locks rows.
pub(super) fn locked_name(number: usize) -> String {
    result_name(LOCKED_CATALOG, number)
}

/// The state with the tables of [`locked_name`].
pub(super) fn state_with_locked(state: &SessionState, tables: &[Rows]) -> Result<SessionState> {
    state_with_results(state, LOCKED_CATALOG, tables)
}

fn result_name(catalog: &str, number: usize) -> String {
    format!("{catalog}.{OWN_SCHEMA}.result_{number}")
}

fn state_with_results(
    state: &SessionState,
    catalog: &'static str,
    tables: &[Rows],
) -> Result<SessionState> {
    let named = |(number, rows): (usize, &Rows)| (format!("result_{number}"), rows.clone());
    let tables = tables.iter().enumerate().map(named);
    Ok(with_catalog(state, catalog, tables)?.build())
}

/// The state with one more catalog, whose tables hold rows at hand.
fn with_catalog(
    state: &SessionState,
    name: &'static str,
    tables: impl IntoIterator<Item = (String, Rows)>,
) -> Result<SessionStateBuilder> {
    let schema = MemorySchemaProvider::new();
    for (table, (columns, batches)) in tables {
        schema.register_table(table, Arc::new(MemTable::try_new(columns, vec![batches])?))?;
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(OWN_SCHEMA, Arc::new(schema))?;
    let list = Arc::new(WithOwnCatalog {
        session: Arc::clone(state.catalog_list()),
        name,
        own: Arc::new(catalog),
    });
    Ok(SessionStateBuilder::new_from_existing(state.clone()).with_catalog_list(list))
}

/// The session's catalogs and one more.
#[derive(Debug)]
struct WithOwnCatalog {
    session: Arc<dyn CatalogProviderList>,
    name: &'static str,
    own: Arc<dyn CatalogProvider>,
}

impl CatalogProviderList for WithOwnCatalog {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.session.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.session.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        match name == self.name {
            true => Some(Arc::clone(&self.own)),
            false => self.session.catalog(name),
        }
    }
}

/// Parses a query of ours.
pub(super) fn template(text: &str) -> Result<ast::Query> {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, text)
        .map_err(|e| Error::internal(format!("a statement of our own does not parse: {e}")))?;
    match statements.into_iter().next() {
        Some(ast::Statement::Query(query)) => Ok(*query),
        _ => Err(Error::internal("a statement of our own is no query")),
    }
}

/// The `SELECT` of a template.
pub(super) fn select_of(query: &mut ast::Query) -> Result<&mut ast::Select> {
    match query.body.as_mut() {
        ast::SetExpr::Select(select) => Ok(select),
        _ => Err(Error::internal("a statement of our own is no SELECT")),
    }
}

/// Parses an expression that a definition holds.
pub(in crate::session) fn parse_expression(text: &str) -> Result<ast::Expr> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|e| Error::damaged(format!("a stored expression does not parse: {e}")))
}

/// An identifier as SQL text.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An expression as an item of a select list.
pub(super) fn item(expr: ast::Expr, alias: &str) -> ast::SelectItem {
    ast::SelectItem::ExprWithAlias {
        expr,
        alias: ast::Ident::with_quote('"', alias),
    }
}

/// A column of a relation, by name.
pub(super) fn column(relation: &str, name: &str) -> ast::Expr {
    ast::Expr::CompoundIdentifier(vec![
        ast::Ident::with_quote('"', relation),
        ast::Ident::with_quote('"', name),
    ])
}

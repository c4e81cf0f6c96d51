//! The session's side: statements that change rows, inside the session's transaction.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};

use super::lock_rows::take_locking;
use super::plan::Planning;
use super::values::{Cell, cells_to_arrays};
use super::{CopyRows, DmlContext, DmlResult, StatementPlanner, Transaction};
use super::{has_changes, has_locks};
use crate::catalog::definition::{CatalogObject, ColumnDefinition};
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::temporary::OnCommit;
use crate::error::{Error, Result};
use crate::log::tables::TableStore;
use crate::session::access::checks::Checks;
use crate::session::access::guard;
use crate::session::parameters::{describe_query, plan_with_values, slots};
use crate::session::rows::SharedRows;
use crate::session::rowset::done;
use crate::session::{
    CopyIn, CopyWriter, Parameter, Session, StatementDescription, StatementResult,
};
use crate::sql::functions::texts::write_column;
use crate::sql::statement::{CopyStatement, CopyTarget, Statement};
use crate::types::SqlType;
use crate::values::OutputSettings;

/// Plans as the session plans its queries.
#[derive(Debug, Clone, Copy)]
struct SessionPlanner;

impl StatementPlanner for SessionPlanner {
    fn plan<'a>(
        &'a self,
        state: &'a SessionState,
        statement: ast::Statement,
        parameters: &'a [Parameter],
    ) -> BoxFuture<'a, Result<LogicalPlan>> {
        Box::pin(plan_with_values(state, statement, parameters))
    }
}

/// A statement that changes rows.
pub(super) enum Change<'a> {
    Insert(&'a ast::Insert),
    Update(&'a ast::Statement),
    Delete(&'a ast::Delete),
    Truncate(&'a [String]),
}

impl<'a> Change<'a> {
    /// The change that a statement is.
    pub fn of(statement: &'a Statement) -> Result<Self> {
        match statement {
            Statement::Insert(insert) => Ok(Self::Insert(insert)),
            Statement::Update(update) => Ok(Self::Update(update)),
            Statement::Delete(delete) => Ok(Self::Delete(delete)),
            Statement::Truncate(names) => Ok(Self::Truncate(names)),
            _ => Err(Error::internal("a change of rows that is none")),
        }
    }

    /// The change with what stands in the place of queries that lock rows, and those; `None`: there are none.
    fn without_locking(&self) -> Result<Option<(Statement, Vec<ast::Query>)>> {
        let taken = match self {
            Self::Insert(insert) if has_locks(*insert) => {
                let mut insert = ast::Insert::clone(insert);
                let queries = take_locking(&mut insert)?;
                (Statement::Insert(Box::new(insert)), queries)
            }
            Self::Update(update) if has_locks(*update) => {
                let mut update = ast::Statement::clone(update);
                let queries = take_locking(&mut update)?;
                (Statement::Update(Box::new(update)), queries)
            }
            Self::Delete(delete) if has_locks(*delete) => {
                let mut delete = ast::Delete::clone(delete);
                let queries = take_locking(&mut delete)?;
                (Statement::Delete(Box::new(delete)), queries)
            }
            _ => return Ok(None),
        };
        Ok(Some(taken))
    }

    fn tag(&self) -> &'static str {
        match self {
            Self::Insert(_) => "INSERT 0",
            Self::Update(_) => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Truncate(_) => "TRUNCATE TABLE",
        }
    }

    async fn run(&self, dml: DmlContext<'_>) -> Result<DmlResult> {
        match self {
            Self::Insert(statement) => super::insert(dml, statement).await,
            Self::Update(statement) => super::update(dml, statement).await,
            Self::Delete(statement) => super::delete(dml, statement).await,
            Self::Truncate(names) => super::truncate(dml, names).await,
        }
    }
}

impl Session {
    /// INSERT, UPDATE, DELETE or TRUNCATE.
    pub(in crate::session) async fn change(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        if let Statement::Insert(insert) = statement
            && let Some(source) = insert.source.as_deref().filter(|s| has_changes(s))
        {
            let results = self.run_changes_of_with(source, parameters).await?;
            let mut insert = insert.as_ref().clone();
            insert.source = Some(Box::new(results.query));
            let change = Change::Insert(&insert);
            return self.change_rows(change, results.state, parameters).await;
        }
        let state = self.planning_state();
        self.change_rows(Change::of(statement)?, state, parameters)
            .await
    }

    /// A statement that changes rows of temporary tables only.
    pub(in crate::session) fn changes_temporary(&self, statement: &Statement) -> bool {
        let definitions = self.definitions();
        if let Statement::Copy(copy) = statement {
            return match &copy.target {
                CopyTarget::Relation(name, _) => {
                    definitions.object(name).is_some_and(|o| o.is_temporary())
                }
                CopyTarget::Query(_) => false,
            };
        }
        let catalog = lookup(definitions);
        let needs = Change::of(statement).and_then(|change| super::needs::needs(&catalog, &change));
        needs.is_ok_and(|needs| needs.iter().all(|need| need.object.is_temporary()))
    }

    /// A column's default gives another value for each row, as `random()` does.
    pub(in crate::session) fn default_differs_by_row(
        &self,
        column: &ColumnDefinition,
    ) -> Result<bool> {
        let Some(default) = &column.default else {
            return Ok(false);
        };
        let state = self.planning_state();
        let expression = state.create_logical_expr(default, &DFSchema::empty())?;
        Ok(expression.is_volatile())
    }

    /// The text of what a column's default gives now; `None` for NULL or without a default.
    pub(in crate::session) async fn default_value_text(
        &mut self,
        column: &ColumnDefinition,
    ) -> Result<Option<String>> {
        if column.default.is_none() {
            return Ok(None);
        }
        let state = self.planning_state();
        let planning = Planning {
            state: &state,
            planner: &SessionPlanner,
            parameters: &[],
        };
        let arrays = cells_to_arrays(&planning, &[column], vec![vec![Cell::Default]]).await?;
        let values = arrays
            .first()
            .ok_or_else(|| Error::internal("a default that gives no value"))?;
        let field = Arc::new(column.sql_type.to_field(&column.name, true));
        let text = write_column(values, &field, &OutputSettings::default())?;
        let text = text.as_string::<i32>();
        Ok(text.is_valid(0).then(|| text.value(0).to_owned()))
    }

    async fn change_rows(
        &mut self,
        change: Change<'_>,
        state: SessionState,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let result = self.run_change(&change, &state, parameters).await?;
        Ok(answer(&change, result))
    }

    /// Runs a change in the transaction of the running statement; first what in it locks rows.
    pub(super) async fn run_change(
        &mut self,
        change: &Change<'_>,
        state: &SessionState,
        parameters: &[Parameter],
    ) -> Result<DmlResult> {
        let Some((change, locking)) = change.without_locking()? else {
            return self.run_plain_change(change, state, parameters).await;
        };
        let state = self
            .state_over_locked(locking, state.clone(), parameters)
            .await?;
        self.run_plain_change(&Change::of(&change)?, &state, parameters)
            .await
    }

    async fn run_plain_change(
        &mut self,
        change: &Change<'_>,
        state: &SessionState,
        parameters: &[Parameter],
    ) -> Result<DmlResult> {
        let definitions = self.definitions();
        let catalog = lookup(Arc::clone(&definitions));
        let needs = super::needs::needs(&catalog, change)?;
        let subject = self.scope.subject();
        let checks = Checks {
            catalog: &definitions,
            subject: &subject,
        };
        for need in &needs {
            checks.relation(&need.object, need.privilege, &need.columns)?;
        }
        let target = needs.first().map_or(0, |need| need.object.oid);
        loop {
            let mut transaction = self.rows.take_for_statement(&self.parts.tables)?;
            let mark = transaction.mark();
            let dml = DmlContext {
                state,
                planner: &SessionPlanner,
                catalog: &catalog,
                transaction: &mut transaction,
                parameters,
            };
            let result = guard::changing(target, Box::pin(change.run(dml))).await;
            let Some(conflict) = transaction.take_conflict() else {
                self.rows.put_back(transaction);
                return result;
            };
            // Nothing of it stays while it waits, so that it can be cancelled.
            let undone = transaction.rollback_to(&mark);
            self.rows.put_back(transaction);
            undone?;
            conflict
                .over(self.settings.duration("lock_timeout"))
                .await?;
        }
    }

    pub(in crate::session) async fn describe_dml(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        if let Statement::Insert(insert) = statement
            && let Some(source) = insert.source.as_deref().filter(|s| has_changes(s))
        {
            let mut types = declared.to_vec();
            let results = self.describe_changes_of_with(source, &mut types).await?;
            let mut insert = insert.as_ref().clone();
            insert.source = Some(Box::new(results.query));
            let insert = ast::Statement::Insert(insert);
            return self.describe_change(insert, results.state, &types).await;
        }
        let statement = match statement {
            Statement::Insert(insert) => ast::Statement::Insert(insert.as_ref().clone()),
            Statement::Update(update) => update.as_ref().clone(),
            Statement::Delete(delete) => ast::Statement::Delete(delete.as_ref().clone()),
            _ => return Err(Error::internal("only a change of rows is described here")),
        };
        let state = self.planning_state();
        self.describe_change(statement, state, declared).await
    }

    async fn describe_change(
        &mut self,
        statement: ast::Statement,
        state: SessionState,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        let mut types = slots(&statement, declared)?;
        let catalog = lookup(self.definitions());
        let mut transaction = Transaction::begin(&self.parts.tables)?;
        let nulls = vec![Parameter::null(SqlType::Text)?; types.len()];
        let dml = DmlContext {
            state: &state,
            planner: &SessionPlanner,
            catalog: &catalog,
            transaction: &mut transaction,
            parameters: &nulls,
        };
        let described = super::describe(dml, &statement).await?;
        for (index, sql_type) in described.parameters {
            if let Some(slot @ None) = types.get_mut(index) {
                *slot = Some(sql_type);
            }
        }
        for query in described.queries {
            let query = ast::Statement::Query(Box::new(query));
            let (found, _) = describe_query(&state, query, &types).await?;
            for (slot, sql_type) in types.iter_mut().zip(found) {
                slot.get_or_insert(sql_type);
            }
        }
        Ok(StatementDescription {
            parameters: types
                .into_iter()
                .map(|t| t.unwrap_or(SqlType::Text))
                .collect(),
            columns: described.returning.map(|schema| shown(&schema)),
        })
    }

    /// Outside a block the copy is a transaction of its own, which its end commits.
    pub(in crate::session) async fn copy_in(
        &mut self,
        copy: &CopyStatement,
        object: &Arc<CatalogObject>,
        columns: &[String],
    ) -> Result<StatementResult> {
        let transaction = self.rows.take_for_statement(&self.parts.tables)?;
        let catalog = lookup(self.definitions());
        let rows = CopyRows::begin(
            self.planning_state(),
            Arc::new(SessionPlanner),
            &catalog,
            &transaction,
            &object.name,
            columns,
        );
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                self.rows.put_back(transaction);
                return Err(error);
            }
        };
        let schema = rows.schema();
        let writer: Box<dyn CopyWriter> = match self.block.is_idle() {
            true => Box::new(OwnCopy {
                rows,
                transaction,
                shared: self.rows.clone(),
                keeps_rows: object.on_commit() == OnCommit::PreserveRows,
            }),
            false => {
                self.rows.put_back(transaction);
                Box::new(BlockCopy {
                    rows,
                    shared: self.rows.clone(),
                    store: Arc::clone(&self.parts.tables),
                })
            }
        };
        Ok(StatementResult::CopyIn(CopyIn {
            statement: copy.clone(),
            schema,
            writer,
        }))
    }
}

pub(super) fn lookup(
    snapshot: Arc<CatalogSnapshot>,
) -> impl Fn(&str) -> Option<Arc<CatalogObject>> + Send + Sync {
    move |name| snapshot.object(name).cloned()
}

fn answer(change: &Change<'_>, result: DmlResult) -> StatementResult {
    let tag = change.tag();
    match result.returning {
        Some((schema, batches)) => {
            let schema = shown(&schema);
            let rows = batches.into_iter().map(Ok);
            StatementResult::Rows {
                schema,
                stream: stream::iter(rows).boxed(),
                tag: tag.to_owned(),
                tag_has_count: true,
            }
        }
        None if matches!(change, Change::Truncate(_)) => done(tag),
        None => done(format!("{tag} {}", result.rows)),
    }
}

/// Columns under the names that a client sees.
fn shown(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let name = crate::sql::rewrite::display_name(field.name());
        field.as_ref().clone().with_name(name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A copy outside a block.
struct OwnCopy {
    rows: CopyRows,
    transaction: Transaction,
    shared: SharedRows,
    /// the end of the transaction leaves the rows of a temporary table
    keeps_rows: bool,
}

#[async_trait]
impl CopyWriter for OwnCopy {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        self.rows.write(&mut self.transaction, &rows).await
    }

    async fn finish(self: Box<Self>) -> Result<u64> {
        let Self {
            rows,
            mut transaction,
            shared,
            keeps_rows,
        } = *self;
        let count = rows.finish(&mut transaction);
        let temporary = transaction.take_temporary();
        if !transaction.is_empty() {
            transaction.commit().await?;
        } else if keeps_rows {
            shared.keep_temporary(temporary);
        }
        Ok(count)
    }
}

/// A copy inside a block: its rows join the block's transaction, which a failure makes fail.
struct BlockCopy {
    rows: CopyRows,
    shared: SharedRows,
    store: Arc<TableStore>,
}

#[async_trait]
impl CopyWriter for BlockCopy {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        let mut transaction = self.shared.take_for_statement(&self.store)?;
        let result = self.rows.write(&mut transaction, &rows).await;
        self.shared.put_back(transaction);
        result
    }

    async fn finish(self: Box<Self>) -> Result<u64> {
        let mut transaction = self.shared.take_for_statement(&self.store)?;
        let count = self.rows.finish(&mut transaction);
        self.shared.put_back(transaction);
        Ok(count)
    }
}

//! `UPDATE`, `DELETE`, `TRUNCATE`: changes to rows that are there.
//!
//! Both statements become a query over the target, with the other relations joined in and the new
//! values beside the old columns. A row that several joined rows match is changed once, by the
//! first. Keys are checked when all rows are known, so that `SET id = id + 1` works.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr};
use futures::StreamExt;

use super::assign::assign;
use super::changes::RowChanges;
use super::plan::{Planning, column, item, select_of, template};
use super::returning::Returning;
use super::target::{Target, Verb, named_relation, plain_name};
use super::values::{Cell, cells_to_arrays, origin_of};
use super::{DmlContext, DmlResult};
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::layout::TableLayout;
use crate::log::tables::view::TablesView;

/// `SET column = value`.
#[derive(Debug)]
pub(super) struct Assigned {
    /// number of the column
    pub column: usize,
    /// as written
    pub expr: Expr,
}

impl Assigned {
    /// What a query must compute; `None` for a value that is the same for all rows.
    pub fn expression(&self) -> Option<&Expr> {
        match Cell::of(&self.expr, &[]) {
            Ok(Cell::Expression(_)) => Some(&self.expr),
            // A parameter: its value is at hand when the statement runs.
            _ => None,
        }
    }

    /// The column's new values: computed ones, or the same for all rows.
    pub async fn values(
        &self,
        planning: &Planning<'_>,
        target: &Target,
        computed: Option<(&ArrayRef, &FieldRef)>,
        count: usize,
    ) -> Result<ArrayRef> {
        let definition = &target.columns()[self.column];
        if let Some((values, field)) = computed {
            let origin = origin_of(&self.expr);
            return assign(values, field, definition, origin, &planning.settings());
        }
        let cell = Cell::of(&self.expr, planning.parameters)?;
        let mut arrays = cells_to_arrays(planning, &[definition], vec![vec![cell]]).await?;
        let one = arrays
            .pop()
            .ok_or_else(|| Error::internal("a column of cells gives an array"))?;
        Ok(ScalarValue::try_from_array(&one, 0)?.to_array_of_size(count)?)
    }
}

/// The assignments of a SET list.
pub(super) fn assignments(target: &Target, list: &[ast::Assignment]) -> Result<Vec<Assigned>> {
    let mut assigned: Vec<Assigned> = Vec::new();
    for assignment in list {
        let pairs: Vec<(&ast::ObjectName, Expr)> = match (&assignment.target, &assignment.value) {
            (ast::AssignmentTarget::ColumnName(name), value) => vec![(name, value.clone())],
            (ast::AssignmentTarget::Tuple(names), Expr::Tuple(values))
                if names.len() == values.len() =>
            {
                names.iter().zip(values.iter().cloned()).collect()
            }
            (ast::AssignmentTarget::Tuple(names), Expr::Subquery(query)) => names
                .iter()
                .zip(columns_of_subquery(query, names.len())?)
                .collect(),
            _ => {
                return Err(Error::unsupported(
                    "SET (columns) takes as many values in parentheses, or a subquery",
                ));
            }
        };
        for (name, expr) in pairs {
            let name = set_column(name)?;
            let column = target.column(&name)?;
            if assigned.iter().any(|a| a.column == column) {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("multiple assignments to same column \"{name}\""),
                ));
            }
            assigned.push(Assigned { column, expr });
        }
    }
    Ok(assigned)
}

/// `(SELECT x, y FROM …)` as one subquery for each column.
fn columns_of_subquery(query: &ast::Query, count: usize) -> Result<Vec<Expr>> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return Err(Error::unsupported(
            "SET (columns) = (subquery) takes a plain SELECT",
        ));
    };
    let has_wildcard = select.projection.iter().any(|item| {
        !matches!(
            item,
            ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. }
        )
    });
    if has_wildcard || select.distinct.is_some() {
        return Err(
            Error::unsupported("SET (columns) = (subquery) takes neither * nor DISTINCT")
                .hint("Name the columns, and put the DISTINCT into a subquery in FROM."),
        );
    }
    if select.projection.len() != count {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "number of columns does not match number of values",
        ));
    }
    Ok((0..count)
        .map(|column| {
            let mut one = query.clone();
            if let ast::SetExpr::Select(select) = one.body.as_mut() {
                select.projection = vec![select.projection.swap_remove(column)];
            }
            Expr::Subquery(Box::new(one))
        })
        .collect())
}

/// The column that `SET name` means; a qualified name is an error in PostgreSQL too.
fn set_column(name: &ast::ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [_] => plain_name(name),
        parts => Err(Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!(
                "column \"{}\" cannot be qualified in SET",
                parts
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(".")
            ),
        )
        .hint("Write the column's name alone.")),
    }
}

pub(super) async fn update(
    dml: &mut DmlContext<'_>,
    statement: &ast::Statement,
) -> Result<DmlResult> {
    let ast::Statement::Update(update) = statement else {
        return Err(Error::internal("an UPDATE is an UPDATE statement"));
    };
    let UpdateQuery {
        target,
        query,
        assigned,
        returning,
    } = update_query(dml, update)?;
    let width = target.columns().len();
    let mut stream = dml.planning().start(query).await?;
    let schema = stream.schema();
    let mut rewrite = Rewrite::new(target, returning, &schema)?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        let mut columns = batch.columns()[..width].to_vec();
        let mut at = width;
        for assigned in &assigned {
            let computed = assigned.expression().map(|_| {
                at += 1;
                (batch.column(at - 1), &schema.fields()[at - 1])
            });
            let values = assigned
                .values(&dml.planning(), &rewrite.target, computed, batch.num_rows())
                .await?;
            columns[assigned.column] = values;
        }
        let (_, is_first) = rewrite.delete(dml.transaction.view(), &batch)?;
        let columns = columns
            .iter()
            .map(|c| Ok(datafusion::arrow::compute::filter(c, &is_first)?))
            .collect::<Result<Vec<_>>>()?;
        let new = rewrite.target.rows(columns, is_first.true_count())?;
        rewrite.insert(&new)?;
        dml.transaction.check_room(rewrite.changes.bytes)?;
        rewrite.keep(&batch, &is_first, || Ok(new))?;
    }
    rewrite.finish(dml).await
}

/// An UPDATE as a query.
pub(super) struct UpdateQuery {
    pub target: Target,
    /// gives old rows, new values, and what RETURNING needs of other relations
    pub query: ast::Query,
    /// the SET list
    pub assigned: Vec<Assigned>,
    pub returning: Returning,
}

/// The other relations of an UPDATE's FROM.
pub(super) fn update_others(update: &ast::Update) -> &[ast::TableWithJoins] {
    match &update.from {
        None => &[],
        Some(
            ast::UpdateTableFromKind::BeforeSet(others)
            | ast::UpdateTableFromKind::AfterSet(others),
        ) => others.as_slice(),
    }
}

/// Reads an UPDATE.
pub(super) fn update_query(dml: &DmlContext<'_>, update: &ast::Update) -> Result<UpdateQuery> {
    if update.or.is_some() || update.limit.is_some() || !update.order_by.is_empty() {
        return Err(Error::unsupported(
            "this form of UPDATE is not supported: write it as PostgreSQL does",
        ));
    }
    let (name, alias) = named_relation(&update.table.relation)?;
    let target = Target::find(dml.catalog, &name, alias.as_deref(), Verb::Update)?;
    let assigned = assignments(&target, &update.assignments)?;
    let mut items = old_columns(&target);
    for (i, assigned) in assigned.iter().enumerate() {
        if let Some(expr) = assigned.expression() {
            items.push(item(expr.clone(), &format!("new {i}")));
        }
    }
    let others = update_others(update);
    let returning = Returning::new(dml.catalog, &target, others, update.returning.as_ref())?;
    items.extend(returning.query_items());
    let query = rows_query(&update.table, others, items, update.selection.as_ref())?;
    Ok(UpdateQuery {
        target,
        query,
        assigned,
        returning,
    })
}

pub(super) async fn delete(dml: &mut DmlContext<'_>, statement: &ast::Delete) -> Result<DmlResult> {
    let (target, query, returning) = delete_query(dml, statement)?;
    let mut stream = dml.planning().start(query).await?;
    let mut rewrite = Rewrite::new(target, returning, &stream.schema())?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let (old, is_first) = rewrite.delete(dml.transaction.view(), &batch)?;
        dml.transaction.check_room(rewrite.changes.bytes)?;
        rewrite.keep(&batch, &is_first, || {
            Ok(filter_record_batch(&old, &is_first)?)
        })?;
    }
    rewrite.finish(dml).await
}

/// The target of a DELETE, the query that gives its rows, and its RETURNING.
pub(super) fn delete_query(
    dml: &DmlContext<'_>,
    statement: &ast::Delete,
) -> Result<(Target, ast::Query, Returning)> {
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
        &statement.from;
    let is_foreign =
        !statement.tables.is_empty() || statement.limit.is_some() || !statement.order_by.is_empty();
    let ([from], false) = (from.as_slice(), is_foreign) else {
        return Err(Error::unsupported(
            "this form of DELETE is not supported: write it as PostgreSQL does",
        ));
    };
    let (name, alias) = named_relation(&from.relation)?;
    let target = Target::find(dml.catalog, &name, alias.as_deref(), Verb::Delete)?;
    let others = statement.using.as_deref().unwrap_or_default();
    let returning = Returning::new(dml.catalog, &target, others, statement.returning.as_ref())?;
    let mut items = old_columns(&target);
    items.extend(returning.query_items());
    let query = rows_query(from, others, items, statement.selection.as_ref())?;
    Ok((target, query, returning))
}

pub(super) fn truncate(dml: &mut DmlContext<'_>, names: &[String]) -> Result<DmlResult> {
    for name in names {
        let target = Target::find(dml.catalog, name, None, Verb::Truncate)?;
        let layout = table_layout(&target)?;
        let projection: Vec<usize> = (0..target.columns().len()).collect();
        let mut changes = RowChanges::default();
        let view = dml.transaction.view().clone();
        for batch in view.scan(&layout, None, &projection)? {
            changes.delete(&view, &layout, &batch?)?;
            dml.transaction.check_room(changes.bytes)?;
        }
        let layer = changes.finish(&view, &target, &layout)?;
        dml.transaction
            .add_locked(&layout, layer, view.position())?;
    }
    Ok(DmlResult {
        rows: 0,
        returning: None,
    })
}

fn table_layout(target: &Target) -> Result<Arc<TableLayout>> {
    target
        .layout
        .clone()
        .ok_or_else(|| Error::internal("only rows of tables change"))
}

fn old_columns(target: &Target) -> Vec<ast::SelectItem> {
    target
        .columns()
        .iter()
        .enumerate()
        .map(|(i, c)| item(column(&target.alias, &c.name), &format!("old {i}")))
        .collect()
}

pub(super) fn rows_query(
    table: &ast::TableWithJoins,
    others: &[ast::TableWithJoins],
    items: Vec<ast::SelectItem>,
    selection: Option<&Expr>,
) -> Result<ast::Query> {
    let mut query = template("SELECT 1")?;
    let select = select_of(&mut query)?;
    select.projection = items;
    select.from = std::iter::once(table).chain(others).cloned().collect();
    select.selection = selection.cloned();
    Ok(query)
}

/// What an UPDATE or DELETE did so far.
struct Rewrite {
    target: Target,
    layout: Arc<TableLayout>,
    changes: RowChanges,
    rows: u64,
    returning: Returning,
    /// the columns that RETURNING sees
    seen: SchemaRef,
    /// the rows that RETURNING sees
    kept: Vec<RecordBatch>,
}

impl Rewrite {
    /// Nothing so far; `query` are the columns of the query that gives the rows.
    fn new(target: Target, returning: Returning, query: &SchemaRef) -> Result<Self> {
        Ok(Self {
            layout: table_layout(&target)?,
            seen: returning.schema(&target, query),
            target,
            changes: RowChanges::default(),
            rows: 0,
            returning,
            kept: Vec::new(),
        })
    }

    /// Deletes the old rows at the front of the query's; which of them were still there.
    fn delete(
        &mut self,
        view: &TablesView,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, BooleanArray)> {
        let old = batch.columns()[..self.target.columns().len()].to_vec();
        let old = self.target.rows(old, batch.num_rows())?;
        let is_first = self.changes.delete(view, &self.layout, &old)?;
        Ok((old, is_first))
    }

    fn insert(&mut self, new: &RecordBatch) -> Result<()> {
        self.changes.insert(&self.target, &self.layout, new)
    }

    /// Counts the rows of `batch` that are changed, and keeps for RETURNING what `changed` gives.
    fn keep(
        &mut self,
        batch: &RecordBatch,
        is_changed: &BooleanArray,
        changed: impl FnOnce() -> Result<RecordBatch>,
    ) -> Result<()> {
        self.rows += is_changed.true_count() as u64;
        if self.returning.items.is_some() {
            let others = self.returning.others_of(batch, is_changed)?;
            let columns = changed()?.columns().iter().cloned().chain(others).collect();
            let rows = RecordBatch::try_new(Arc::clone(&self.seen), columns)?;
            self.kept.push(rows);
        }
        Ok(())
    }

    /// Hands the changes to the transaction, and evaluates RETURNING.
    async fn finish(self, dml: &mut DmlContext<'_>) -> Result<DmlResult> {
        let view = dml.transaction.view();
        let layer = self.changes.finish(view, &self.target, &self.layout)?;
        let items = self.returning.items.as_ref();
        let kept = (self.seen, self.kept);
        let returning = super::returning(&dml.planning(), &self.target, items, kept).await?;
        let base = dml.transaction.view().position();
        dml.transaction.add_locked(&self.layout, layer, base)?;
        Ok(DmlResult {
            rows: self.rows,
            returning,
        })
    }
}

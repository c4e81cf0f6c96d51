//! `UPDATE`, `DELETE`, `TRUNCATE`: changes to rows that are there.
//!
//! Both statements become a query over the target, with the other relations joined in and the new
//! values beside the old columns. A row that several joined rows match is changed once, by the
//! first. Keys are checked when all rows are known, so that `SET id = id + 1` works.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr};
use futures::StreamExt;

use super::assign::assign;
use super::insert::value_of;
use super::plan::{Planning, column, item, select_of, template};
use super::returning::Returning;
use super::target::{Target, Verb, named_relation, relation_name};
use super::transaction::ENTRY_BYTES;
use super::values::{Cell, cells_to_arrays, origin_of};
use super::{DmlContext, DmlResult};
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::layout::{TableLayout, decode_count, encode_count};
use crate::log::tables::overlay::{Layer, OverlayEntry};
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
            return assign(values, field, definition, origin_of(&self.expr));
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
        [_] => relation_name(name),
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
    let layout = table_layout(&target)?;
    let width = target.columns().len();
    let mut changes = RowChanges::default();
    let mut kept = Vec::new();
    let mut rows = 0;
    let mut stream = dml.planning().start(query).await?;
    let schema = stream.schema();
    let kept_schema = returning.schema(&target, &schema);
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
                .values(&dml.planning(), &target, computed, batch.num_rows())
                .await?;
            columns[assigned.column] = values;
        }
        let old = target.rows(batch.columns()[..width].to_vec(), batch.num_rows())?;
        let is_first = changes.delete(dml.transaction.view(), &layout, &old)?;
        let columns = columns
            .iter()
            .map(|c| Ok(datafusion::arrow::compute::filter(c, &is_first)?))
            .collect::<Result<Vec<_>>>()?;
        let new = target.rows(columns, is_first.true_count())?;
        changes.insert(&target, &layout, &new)?;
        dml.transaction.check_room(changes.bytes)?;
        rows += new.num_rows() as u64;
        if returning.items.is_some() {
            let others = returning.others_of(&batch, &is_first)?;
            let columns = new.columns().iter().cloned().chain(others).collect();
            kept.push(RecordBatch::try_new(Arc::clone(&kept_schema), columns)?);
        }
    }
    let layer = changes.finish(dml.transaction.view(), &target, &layout)?;
    let rows_kept = (kept_schema, kept);
    let returning = super::returning(
        &dml.planning(),
        &target,
        returning.items.as_ref(),
        rows_kept,
    )
    .await?;
    let base = dml.transaction.view().position();
    dml.transaction.add(&layout, layer, base);
    Ok(DmlResult { rows, returning })
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
    let returning = Returning::new(&target, others, update.returning.as_ref())?;
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
    let width = target.columns().len();
    let layout = table_layout(&target)?;
    let mut changes = RowChanges::default();
    let mut kept = Vec::new();
    let mut rows = 0;
    let mut stream = dml.planning().start(query).await?;
    let kept_schema = returning.schema(&target, &stream.schema());
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let old = target.rows(batch.columns()[..width].to_vec(), batch.num_rows())?;
        let is_first = changes.delete(dml.transaction.view(), &layout, &old)?;
        dml.transaction.check_room(changes.bytes)?;
        rows += is_first.true_count() as u64;
        if returning.items.is_some() {
            let others = returning.others_of(&batch, &is_first)?;
            let old = filter_record_batch(&old, &is_first)?;
            let columns = old.columns().iter().cloned().chain(others).collect();
            kept.push(RecordBatch::try_new(Arc::clone(&kept_schema), columns)?);
        }
    }
    let layer = changes.finish(dml.transaction.view(), &target, &layout)?;
    let rows_kept = (kept_schema, kept);
    let returning = super::returning(
        &dml.planning(),
        &target,
        returning.items.as_ref(),
        rows_kept,
    )
    .await?;
    let base = dml.transaction.view().position();
    dml.transaction.add(&layout, layer, base);
    Ok(DmlResult { rows, returning })
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
    let returning = Returning::new(&target, others, statement.returning.as_ref())?;
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
        for batch in view.scan(&layout, &projection)? {
            changes.delete(&view, &layout, &batch?)?;
            dml.transaction.check_room(changes.bytes)?;
        }
        let layer = changes.finish(&view, &target, &layout)?;
        dml.transaction.add(&layout, layer, view.position());
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

/// What a statement deletes and inserts, by key. An update is both.
#[derive(Default)]
struct RowChanges {
    deleted: BTreeMap<Vec<u8>, (OverlayEntry, u64)>,
    inserted: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// about what both hold
    bytes: usize,
}

impl RowChanges {
    /// Deletes rows; false where a row was already deleted by this statement.
    fn delete(
        &mut self,
        view: &TablesView,
        layout: &TableLayout,
        rows: &RecordBatch,
    ) -> Result<BooleanArray> {
        let keys = layout.keys(rows)?;
        let mut unknown: Vec<&[u8]> = keys
            .iter()
            .filter(|key| !self.deleted.contains_key(*key))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        let entries = view.get_many(layout, &unknown)?;
        for (key, entry) in unknown.into_iter().zip(entries) {
            let value_bytes = entry.after.as_ref().map_or(0, Vec::len);
            self.bytes += ENTRY_BYTES + key.len() + 2 * value_bytes;
            self.deleted.insert(key.to_vec(), (entry, 0));
        }
        keys.iter()
            .map(|key| {
                let (entry, deleted) = self
                    .deleted
                    .get_mut(key)
                    .ok_or_else(|| Error::internal("a look-up answers every key"))?;
                let is_there = *deleted < copies(layout, entry)?;
                *deleted += u64::from(is_there);
                Ok(Some(is_there))
            })
            .collect()
    }

    /// Inserts rows; two with one key are an error.
    fn insert(&mut self, target: &Target, layout: &TableLayout, rows: &RecordBatch) -> Result<()> {
        let keys = layout.keys(rows)?;
        let values = layout.values(rows)?;
        for row in 0..rows.num_rows() {
            let key = keys.row(row);
            match self.inserted.get_mut(key) {
                Some((_, copies)) if layout.is_bag() => *copies += 1,
                Some(_) => return Err(target.unique_violation(rows, row)),
                None => {
                    let value = value_of(values.as_ref(), row);
                    self.bytes += ENTRY_BYTES + key.len() + value.len();
                    self.inserted.insert(key.to_vec(), (value, 1));
                }
            }
        }
        Ok(())
    }

    /// The layer that both make, after the check that new keys are free.
    fn finish(mut self, view: &TablesView, target: &Target, layout: &TableLayout) -> Result<Layer> {
        let fresh: Vec<&[u8]> = self
            .inserted
            .keys()
            .map(Vec::as_slice)
            .filter(|key| !self.deleted.contains_key(*key))
            .collect();
        let entries = view.get_many(layout, &fresh)?;
        let mut layer = Layer::new();
        for (key, entry) in fresh.into_iter().zip(entries) {
            if entry.after.is_some() && !layout.is_bag() {
                let all: Vec<usize> = (0..target.columns().len()).collect();
                let rows = view.rows_of(layout, &[key], &all)?;
                return Err(target.unique_violation(&rows, 0));
            }
            layer.insert(key.to_vec(), entry);
        }
        for (key, (entry, deleted)) in std::mem::take(&mut self.deleted) {
            let left = copies(layout, &entry)? - deleted;
            let after = match layout.is_bag() {
                true => encode_count(left),
                false if left > 0 => entry.after,
                false => None,
            };
            let before = entry.before;
            layer.insert(key, OverlayEntry { before, after });
        }
        for (key, (value, copies)) in self.inserted {
            let entry = layer
                .get_mut(&key)
                .ok_or_else(|| Error::internal("every inserted key was looked up"))?;
            entry.after = match layout.is_bag() {
                true => {
                    let left = entry.after.as_deref().map_or(Ok(0), decode_count)?;
                    encode_count(left + copies)
                }
                false => Some(value),
            };
        }
        Ok(layer)
    }
}

/// How many rows an entry stands for.
fn copies(layout: &TableLayout, entry: &OverlayEntry) -> Result<u64> {
    match &entry.after {
        None => Ok(0),
        Some(value) if layout.is_bag() => decode_count(value),
        Some(_) => Ok(1),
    }
}

//! `INSERT`: rows from `VALUES` or a query into a table or stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;

use super::assign::{Origin, assign};
use super::conflict::{ConflictRule, apply_updates};
use super::plan::{Planning, item, parse_expression};
use super::target::{Target, Verb, folded, plain_name, relation_name};
use super::transaction::Transaction;
use super::values::{Cell, cells_to_arrays, origin_of};
use super::{DmlContext, DmlResult};
use crate::catalog::definition::{ColumnDefinition, Definition, OnViolation};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, Subject, sqlstate};
use crate::log::tables::codec::Encoded;
use crate::log::tables::layout::{TableLayout, decode_count, encode_count};
use crate::log::tables::overlay::{ENTRY_BYTES, Layer, OverlayEntry};

/// Rows of `VALUES` that are made into arrays at once.
const VALUES_AT_ONCE: usize = 8192;

pub(super) async fn insert(dml: &mut DmlContext<'_>, statement: &ast::Insert) -> Result<DmlResult> {
    let target = insert_target(dml, statement)?;
    let names = statement
        .columns
        .iter()
        .map(plain_name)
        .collect::<Result<Vec<_>>>()?;
    let listed = target.listed(&names)?;
    let rule = ConflictRule::of(&target, statement.on.as_ref())?;
    let mut sink = InsertSink::new(&target, rule, statement.returning.is_some());
    match statement.source.as_deref() {
        None => insert_defaults(dml, &target, &mut sink).await?,
        Some(query) => match plain_values(query) {
            Some(values) => insert_values(dml, &target, &listed, &names, values, &mut sink).await?,
            None => insert_query(dml, &target, &listed, &names, query, &mut sink).await?,
        },
    }
    let (rows, kept) = sink.finish(dml.transaction)?;
    let planning = dml.planning();
    let kept = (Arc::clone(&target.schema), kept);
    let returning =
        super::returning(&planning, &target, statement.returning.as_ref(), kept).await?;
    Ok(DmlResult { rows, returning })
}

/// The target of an INSERT, after refusing what PostgreSQL has not.
pub(super) fn insert_target(dml: &DmlContext<'_>, statement: &ast::Insert) -> Result<Target> {
    let is_foreign = statement.or.is_some()
        || statement.ignore
        || statement.overwrite
        || statement.replace_into
        || statement.partitioned.is_some()
        || !statement.assignments.is_empty()
        || !statement.after_columns.is_empty();
    let ast::TableObject::TableName(name) = &statement.table else {
        return Err(Error::unsupported("INSERT takes the name of a relation"));
    };
    if is_foreign {
        return Err(Error::unsupported(
            "this form of INSERT is not supported: write it as PostgreSQL does",
        ));
    }
    let alias = statement.table_alias.as_ref().map(|a| folded(&a.alias));
    Target::find(
        dml.catalog,
        &relation_name(name)?,
        alias.as_deref(),
        Verb::Insert,
    )
}

/// `VALUES (…), (…)` with nothing around it.
pub(super) fn plain_values(query: &ast::Query) -> Option<&ast::Values> {
    match query.body.as_ref() {
        ast::SetExpr::Values(values)
            if query.with.is_none()
                && query.order_by.is_none()
                && query.limit_clause.is_none()
                && query.fetch.is_none() =>
        {
            Some(values)
        }
        _ => None,
    }
}

async fn insert_defaults(
    dml: &mut DmlContext<'_>,
    target: &Target,
    sink: &mut InsertSink<'_>,
) -> Result<()> {
    let columns: Vec<&ColumnDefinition> = target.columns().iter().collect();
    let cells = columns.iter().map(|_| vec![Cell::Default]).collect();
    let arrays = cells_to_arrays(&dml.planning(), &columns, cells).await?;
    let rows = target.rows(arrays, 1)?;
    sink.take(dml, rows).await
}

async fn insert_values(
    dml: &mut DmlContext<'_>,
    target: &Target,
    listed: &[usize],
    names: &[String],
    values: &ast::Values,
    sink: &mut InsertSink<'_>,
) -> Result<()> {
    let columns: Vec<&ColumnDefinition> = target.columns().iter().collect();
    let width = values.rows.first().map_or(0, |row| row.content.len());
    check_width(width, listed.len(), names)?;
    for rows in values.rows.chunks(VALUES_AT_ONCE) {
        let mut cells: Vec<Vec<Cell>> = vec![Vec::with_capacity(rows.len()); columns.len()];
        for row in rows {
            if row.content.len() != width {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                ));
            }
            for (expr, column) in row.content.iter().zip(listed) {
                cells[*column].push(Cell::of(expr, dml.parameters)?);
            }
        }
        for column in &mut cells {
            column.resize(rows.len(), Cell::Default);
        }
        let arrays = cells_to_arrays(&dml.planning(), &columns, cells).await?;
        let batch = target.rows(arrays, rows.len())?;
        sink.take(dml, batch).await?;
    }
    Ok(())
}

/// A query may give fewer columns only when none are listed.
fn check_width(width: usize, listed: usize, names: &[String]) -> Result<()> {
    let message = match width.cmp(&listed) {
        std::cmp::Ordering::Greater => "INSERT has more expressions than target columns",
        std::cmp::Ordering::Less if !names.is_empty() => {
            "INSERT has more target columns than expressions"
        }
        _ => return Ok(()),
    };
    Err(Error::new(sqlstate::SYNTAX_ERROR, message))
}

async fn insert_query(
    dml: &mut DmlContext<'_>,
    target: &Target,
    listed: &[usize],
    names: &[String],
    query: &ast::Query,
    sink: &mut InsertSink<'_>,
) -> Result<()> {
    let mut stream = dml.planning().start(query.clone()).await?;
    let schema = stream.schema();
    check_width(schema.fields().len(), listed.len(), names)?;
    let given = &listed[..schema.fields().len()];
    let origins = origins_of(query, given.len());
    let filler = DefaultFiller::new(target, given)?;
    let settings = dml.planning().settings();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        let mut columns = filler.fill(&dml.planning(), batch.num_rows()).await?;
        for (at, column) in given.iter().enumerate() {
            let field = &schema.fields()[at];
            let definition = &target.columns()[*column];
            let values = assign(batch.column(at), field, definition, origins[at], &settings)?;
            columns[*column] = Some(values);
        }
        let columns = columns.into_iter().flatten().collect();
        let rows = target.rows(columns, batch.num_rows())?;
        sink.take(dml, rows).await?;
    }
    Ok(())
}

/// Which columns of a query are bare literals.
fn origins_of(query: &ast::Query, width: usize) -> Vec<Origin> {
    let items = match query.body.as_ref() {
        ast::SetExpr::Select(select) => select.projection.as_slice(),
        _ => &[],
    };
    let has_wildcard = items.len() != width;
    (0..width)
        .map(|i| match items.get(i) {
            Some(
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. },
            ) if !has_wildcard => origin_of(expr),
            _ => Origin::Typed,
        })
        .collect()
}

/// Values for the columns that a query does not give.
pub(super) struct DefaultFiller<'a> {
    target: &'a Target,
    missing: Vec<usize>,
    /// column and its default
    defaults: Vec<(usize, ast::Expr)>,
}

impl<'a> DefaultFiller<'a> {
    pub fn new(target: &'a Target, given: &[usize]) -> Result<Self> {
        let missing: Vec<usize> = (0..target.columns().len())
            .filter(|column| !given.contains(column))
            .collect();
        let mut defaults = Vec::new();
        for column in &missing {
            if let Some(text) = &target.columns()[*column].default {
                defaults.push((*column, parse_expression(text)?));
            }
        }
        Ok(Self {
            target,
            missing,
            defaults,
        })
    }

    /// For each column of the target its default's values, null without one, `None` if given.
    /// A default is evaluated for each row, so that random values differ.
    pub async fn fill(
        &self,
        planning: &Planning<'_>,
        count: usize,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.target.columns().len()];
        for column in &self.missing {
            let data_type = self.target.schema.field(*column).data_type();
            columns[*column] = Some(datafusion::arrow::array::new_null_array(data_type, count));
        }
        if self.defaults.is_empty() {
            return Ok(columns);
        }
        let rows = numbered_rows(count)?;
        let items = self
            .defaults
            .iter()
            .enumerate()
            .map(|(i, (_, expr))| item(expr.clone(), &format!("default {i}")))
            .collect();
        let (schema, batches) = planning
            .select_over("rows", (rows.schema(), vec![rows]), items)
            .await?;
        let batch = concat_batches(&schema, &batches)?;
        let settings = planning.settings();
        for (at, (column, expr)) in self.defaults.iter().enumerate() {
            let field = &schema.fields()[at];
            let definition = &self.target.columns()[*column];
            let values = assign(
                batch.column(at),
                field,
                definition,
                origin_of(expr),
                &settings,
            )?;
            columns[*column] = Some(values);
        }
        Ok(columns)
    }
}

/// Rows to evaluate something for; what is in them does not matter.
fn numbered_rows(count: usize) -> Result<RecordBatch> {
    let field = datafusion::arrow::datatypes::Field::new(
        "row number",
        datafusion::arrow::datatypes::DataType::UInt64,
        false,
    );
    let numbers = UInt64Array::from_iter_values(0..count as u64);
    let schema: SchemaRef = Arc::new(Schema::new(vec![field]));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(numbers)])?)
}

/// Takes whole rows on their way into a relation.
pub(super) struct InsertSink<'a> {
    target: &'a Target,
    rule: ConflictRule,
    keeps_rows: bool,
    kept: Vec<RecordBatch>,
    rows: u64,
    layer: Layer,
    bytes: usize,
}

/// A row of a batch that was inserted (`Ok`) or led to an update (`Err`, number of the pair).
type Fate = (usize, std::result::Result<(), usize>);

impl<'a> InsertSink<'a> {
    pub fn new(target: &'a Target, rule: ConflictRule, keeps_rows: bool) -> Self {
        Self {
            target,
            rule,
            keeps_rows,
            kept: Vec::new(),
            rows: 0,
            layer: Layer::new(),
            bytes: 0,
        }
    }

    /// Takes rows in the target's schema.
    pub async fn take(&mut self, dml: &mut DmlContext<'_>, rows: RecordBatch) -> Result<()> {
        match self.target.layout.clone() {
            None => self.take_into_stream(dml, rows).await,
            Some(layout) if layout.is_bag() => self.take_into_bag(dml, &layout, rows),
            Some(layout) => self.take_by_key(dml, &layout, rows).await,
        }
    }

    /// Adds what was taken to the transaction; number of rows, and the rows if they are kept.
    pub fn finish(self, transaction: &mut Transaction) -> Result<(u64, Vec<RecordBatch>)> {
        if let Some(layout) = &self.target.layout {
            let base = transaction.view().position();
            match layout.is_bag() {
                // Whoever adds a row that others add too need not wait for them.
                true => transaction.add(layout, self.layer, base),
                false => transaction.add_locked(layout, self.layer, base)?,
            }
        }
        Ok((self.rows, self.kept))
    }

    /// Goes on with what an earlier sink of the same statement had taken.
    pub fn resume(&mut self, layer: Layer, bytes: usize) {
        self.layer = layer;
        self.bytes = bytes;
    }

    /// What this sink has taken, for the next one: changes, their bytes, rows.
    pub fn pause(self) -> (Layer, usize, u64) {
        (self.layer, self.bytes, self.rows)
    }

    fn keep(&mut self, rows: RecordBatch) {
        self.rows += rows.num_rows() as u64;
        if self.keeps_rows {
            self.kept.push(rows);
        }
    }

    async fn take_into_stream(
        &mut self,
        dml: &mut DmlContext<'_>,
        rows: RecordBatch,
    ) -> Result<()> {
        check_expectations(dml, self.target, &rows).await?;
        let changes = ChangeBatch::inserts(rows.clone());
        dml.transaction
            .append(&self.target.object, &changes)
            .await?;
        self.keep(rows);
        Ok(())
    }

    fn take_into_bag(
        &mut self,
        dml: &mut DmlContext<'_>,
        layout: &TableLayout,
        rows: RecordBatch,
    ) -> Result<()> {
        let keys = layout.keys(&rows)?;
        let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
        for key in keys.iter() {
            *counts.entry(key).or_default() += 1;
        }
        let distinct: Vec<&[u8]> = counts.keys().copied().collect();
        let entries = self.present(dml, layout, &distinct)?;
        for ((key, added), entry) in counts.iter().zip(entries) {
            let count = entry.after.as_deref().map_or(Ok(0), decode_count)?;
            self.bytes += ENTRY_BYTES + key.len();
            self.layer.insert(
                key.to_vec(),
                OverlayEntry {
                    before: entry.before,
                    after: encode_count(count + added),
                },
            );
        }
        dml.transaction.check_room(self.bytes)?;
        self.keep(rows);
        Ok(())
    }

    /// What is known of ascending keys, with this statement's own changes.
    fn present(
        &self,
        dml: &DmlContext<'_>,
        layout: &TableLayout,
        keys: &[&[u8]],
    ) -> Result<Vec<OverlayEntry>> {
        let missing: Vec<&[u8]> = keys
            .iter()
            .copied()
            .filter(|key| !self.layer.contains_key(*key))
            .collect();
        let mut looked_up = dml
            .transaction
            .view()
            .get_many(layout, &missing)?
            .into_iter();
        keys.iter()
            .map(|key| match self.layer.get(*key) {
                Some(entry) => Ok(entry.clone()),
                None => looked_up
                    .next()
                    .ok_or_else(|| Error::internal("a look-up answers every key")),
            })
            .collect()
    }

    async fn take_by_key(
        &mut self,
        dml: &mut DmlContext<'_>,
        layout: &Arc<TableLayout>,
        rows: RecordBatch,
    ) -> Result<()> {
        let keys = layout.keys(&rows)?;
        let values = layout.values(&rows)?;
        let mut order: Vec<usize> = (0..rows.num_rows()).collect();
        order.sort_by(|a, b| keys.row(*a).cmp(keys.row(*b)).then(a.cmp(b)));
        let mut distinct: Vec<&[u8]> = order.iter().map(|&i| keys.row(i)).collect();
        distinct.dedup();
        let entries = self.present(dml, layout, &distinct)?;
        let known: BTreeMap<&[u8], OverlayEntry> = distinct.into_iter().zip(entries).collect();

        let mut fates: Vec<Fate> = Vec::with_capacity(rows.num_rows());
        let mut pairs = Vec::new();
        // In the rows' own order: the first of equal keys is the one that is inserted.
        for row in 0..rows.num_rows() {
            let key = keys.row(row);
            let own = self.layer.get(key);
            let before = known.get(key).map(|e| e.before.clone()).unwrap_or_default();
            let present = match own {
                Some(entry) => entry.after.is_some(),
                None => known.get(key).is_some_and(|e| e.after.is_some()),
            };
            if !present {
                let after = value_of(values.as_ref(), row);
                self.bytes += ENTRY_BYTES + key.len() + after.len();
                let entry = OverlayEntry {
                    before,
                    after: Some(after),
                };
                self.layer.insert(key.to_vec(), entry);
                fates.push((row, Ok(())));
                continue;
            }
            match &self.rule {
                ConflictRule::Fail => return Err(self.target.unique_violation(&rows, row)),
                ConflictRule::Nothing => {}
                ConflictRule::Update(_) if own.is_some() => return Err(twice()),
                ConflictRule::Update(_) => {
                    // The entry marks the key as this statement's; the update fills it in.
                    let entry = known.get(key).cloned().unwrap_or(OverlayEntry {
                        before: None,
                        after: None,
                    });
                    self.layer.insert(key.to_vec(), entry);
                    fates.push((row, Err(pairs.len())));
                    pairs.push(row);
                }
            }
        }
        dml.transaction.check_room(self.bytes)?;
        let updated = self.update(dml, layout, &rows, &keys, &pairs).await?;
        self.keep_affected(rows, fates, updated)
    }

    /// Runs `DO UPDATE` for the rows of `pairs`; the new row of each that its WHERE lets through.
    async fn update(
        &mut self,
        dml: &mut DmlContext<'_>,
        layout: &Arc<TableLayout>,
        rows: &RecordBatch,
        keys: &Encoded,
        pairs: &[usize],
    ) -> Result<Vec<Option<RecordBatch>>> {
        let ConflictRule::Update(action) = &self.rule else {
            return Ok(Vec::new());
        };
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let old_keys: Vec<&[u8]> = pairs.iter().map(|&row| keys.row(row)).collect();
        let old_values: Vec<&[u8]> = old_keys
            .iter()
            .map(|key| {
                let entry = self.layer.get(*key);
                entry.and_then(|e| e.after.as_deref()).unwrap_or_default()
            })
            .collect();
        let projection: Vec<usize> = (0..self.target.columns().len()).collect();
        let old = layout.decode(&old_keys, &old_values, &projection)?;
        let indices = UInt64Array::from_iter_values(pairs.iter().map(|&row| row as u64));
        let excluded = take_record_batch(rows, &indices)?;
        let new_rows = apply_updates(&dml.planning(), self.target, action, &old, &excluded).await?;
        for (old_key, new_row) in old_keys.iter().zip(&new_rows) {
            if let Some(new_row) = new_row {
                self.bytes += replace(&mut self.layer, dml, self.target, layout, old_key, new_row)?;
            }
        }
        dml.transaction.check_room(self.bytes)?;
        Ok(new_rows)
    }

    /// Inserted and updated rows in the order in which they were given.
    fn keep_affected(
        &mut self,
        rows: RecordBatch,
        fates: Vec<Fate>,
        updated: Vec<Option<RecordBatch>>,
    ) -> Result<()> {
        if fates.len() == rows.num_rows() && updated.is_empty() {
            self.keep(rows);
            return Ok(());
        }
        let affected: Vec<RecordBatch> = fates
            .into_iter()
            .filter_map(|(row, fate)| match fate {
                Ok(()) => Some(rows.slice(row, 1)),
                Err(pair) => updated.get(pair).cloned().flatten(),
            })
            .collect();
        self.keep(concat_batches(&self.target.schema, &affected)?);
        Ok(())
    }
}

/// Puts the row that an update made of a key in its place; returns the bytes added.
fn replace(
    layer: &mut Layer,
    dml: &DmlContext<'_>,
    target: &Target,
    layout: &TableLayout,
    old_key: &[u8],
    new_row: &RecordBatch,
) -> Result<usize> {
    let keys = layout.keys(new_row)?;
    let new_key = keys.row(0);
    let after = value_of(layout.values(new_row)?.as_ref(), 0);
    let bytes = ENTRY_BYTES + new_key.len() + after.len();
    if new_key == old_key {
        if let Some(entry) = layer.get_mut(old_key) {
            entry.after = Some(after);
        }
        return Ok(bytes);
    }
    let entry = match layer.get(new_key) {
        Some(entry) => entry.clone(),
        None => dml
            .transaction
            .view()
            .get_many(layout, &[new_key])?
            .pop()
            .ok_or_else(|| Error::internal("a look-up answers every key"))?,
    };
    if entry.after.is_some() {
        return Err(target.unique_violation(new_row, 0));
    }
    if let Some(entry) = layer.get_mut(old_key) {
        entry.after = None;
    }
    let entry = OverlayEntry {
        before: entry.before,
        after: Some(after),
    };
    layer.insert(new_key.to_vec(), entry);
    Ok(bytes)
}

/// The bytes of a row's value; none if all its columns are in the key.
pub(super) fn value_of(values: Option<&Encoded>, row: usize) -> Vec<u8> {
    values.map_or(Vec::new(), |values| values.row(row).to_vec())
}

fn twice() -> Error {
    Error::new(
        sqlstate::CARDINALITY_VIOLATION,
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
    )
    .hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")
}

/// `EXPECT … ON VIOLATION FAIL UPDATE` refuses the statement; other expectations are counted and
/// carried out by the pipelines that read the stream.
async fn check_expectations(
    dml: &DmlContext<'_>,
    target: &Target,
    rows: &RecordBatch,
) -> Result<()> {
    let Definition::Stream(stream) = &target.object.definition else {
        return Ok(());
    };
    let failing = stream
        .expectations
        .iter()
        .filter(|e| e.on_violation == OnViolation::FailUpdate);
    for expectation in failing {
        let condition = parse_expression(&expectation.condition)?;
        let items = vec![item(condition, "holds")];
        let given = (rows.schema(), vec![rows.clone()]);
        let planning = Planning {
            parameters: &[],
            ..dml.planning()
        };
        let (_, batches) = planning
            .select_over(&target.object.name, given, items)
            .await?;
        let mut before = 0;
        for batch in &batches {
            let holds = batch.column(0).as_any();
            let holds = holds
                .downcast_ref::<datafusion::arrow::array::BooleanArray>()
                .ok_or_else(|| Error::damaged("an expectation is no condition"))?;
            // NULL passes, as in a CHECK.
            if let Some(row) = holds.iter().position(|value| value == Some(false)) {
                let text = target.row_text(rows.columns(), before + row)?;
                return Err(Error::new(
                    sqlstate::CHECK_VIOLATION,
                    format!(
                        "new row for relation \"{}\" violates expectation \"{}\"",
                        target.object.name, expectation.name
                    ),
                )
                .detail(format!("Failing row contains ({text})."))
                .about(Subject::constraint(&target.object.name, &expectation.name)));
            }
            before += holds.len();
        }
    }
    Ok(())
}

//! View storage: a view's contents in the state store, written from changes, read by snapshots.
//!
//! | layout | when | key → value |
//! |---|---|---|
//! | keyed | a unique key is known | key columns → the other columns (both arrow-row) |
//! | bag | none is | whole row (arrow-row) → weight |
//! | append | rows only ever come | batch id, sequence (both big endian) → Arrow IPC chunk |
//!
//! A view that only names the results of an aggregate has no tables of its own: it is read from the
//! aggregate's groups ([`ViewContents`]).
//!
//! Keyed needs no read to write: the batch's changes of a key say what is left of it. Bag adds to
//! weights, so it reads each changed row's weight once, in one sorted look-up. Append copies rows
//! in columns. Beside the rows a view's table `…/count` holds its number of rows.
//!
//! Absent: what the changes mean (operators made them) and secondary indexes.

mod append;
mod consolidate;
mod keyed;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, SortField};

use crate::dataflow::aggregate::GroupContents;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::{Entries, merge_into_run};
use crate::dataflow::operator::BatchContext;
use crate::dataflow::single_entry;
use crate::error::{Error, Result};
use crate::state::{Run, StateSnapshot, TableId};

pub use read::{ViewReader, read_view};

/// How a view's rows lie in the state store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewLayout {
    /// Unique by these columns (none: at most one row).
    Keyed(Vec<usize>),
    /// A multiset.
    Bag,
    /// Rows are never deleted.
    Append,
}

impl ViewLayout {
    /// The layout for a view whose changes are append-only or not, with its unique key if known.
    pub fn choose(append_only: bool, key: Option<&[usize]>) -> Self {
        match key {
            Some(key) => Self::Keyed(key.to_vec()),
            None if append_only => Self::Append,
            None => Self::Bag,
        }
    }
}

/// Where a view's rows are.
#[derive(Debug, Clone)]
pub enum ViewContents {
    /// In tables of their own.
    Stored(ViewLayout),
    /// In the state of the aggregate that gives them.
    Groups(Arc<GroupContents>),
}

/// Rows of a view at a snapshot, batch by batch.
pub type ViewRows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl ViewContents {
    /// The rows of the view at a snapshot, only the columns of `projection`, in batches of about
    /// `batch_rows` rows. `state_name` is what the view's tables are named by.
    pub fn read(
        &self,
        snapshot: &StateSnapshot,
        state_name: &str,
        schema: &SchemaRef,
        projection: &[usize],
        batch_rows: usize,
    ) -> Result<ViewRows> {
        Ok(match self {
            Self::Stored(layout) => Box::new(read_view(
                snapshot,
                state_name,
                Arc::clone(schema),
                layout,
                projection,
                batch_rows,
            )?),
            Self::Groups(groups) => Box::new(groups.read(snapshot, projection, batch_rows)?),
        })
    }
}

/// Table of a view's rows.
pub fn rows_table(view: &str) -> TableId {
    TableId::from_name(&format!("{view}/view_rows"))
}

/// Table of a view's row count.
pub fn count_table(view: &str) -> TableId {
    TableId::from_name(&format!("{view}/view_count"))
}

/// Number of rows of a view at a snapshot.
pub fn read_row_count(snapshot: &StateSnapshot, view: &str) -> Result<u64> {
    let rows = single_entry::read_number(snapshot, count_table(view))?;
    Ok(rows.max(0) as u64)
}

/// Converters of a layout's keys and values.
#[derive(Debug)]
pub(crate) struct RowFormat {
    /// Columns in the key, in key order.
    pub key_columns: Vec<usize>,
    /// The other columns, in schema order.
    pub value_columns: Vec<usize>,
    /// `None`: no key columns.
    pub key: Option<RowConverter>,
    /// `None`: no other columns.
    pub value: Option<RowConverter>,
}

impl RowFormat {
    /// SQLSTATE 0A000 for a type that has no row form.
    pub fn try_new(schema: &SchemaRef, layout: &ViewLayout) -> Result<Self> {
        let all = || (0..schema.fields().len()).collect::<Vec<_>>();
        let key_columns = match layout {
            ViewLayout::Keyed(columns) => columns.clone(),
            ViewLayout::Bag => all(),
            ViewLayout::Append => Vec::new(),
        };
        let value_columns = match layout {
            ViewLayout::Keyed(key) => all().into_iter().filter(|c| !key.contains(c)).collect(),
            _ => Vec::new(),
        };
        let converter = |columns: &[usize]| -> Result<Option<RowConverter>> {
            let fields: Vec<_> = columns
                .iter()
                .map(|&c| SortField::new(schema.field(c).data_type().clone()))
                .collect();
            if !RowConverter::supports_fields(&fields) {
                return Err(Error::unsupported(
                    "cannot store a view with a column of this type",
                ));
            }
            Ok(if fields.is_empty() {
                None
            } else {
                Some(RowConverter::new(fields)?)
            })
        };
        Ok(Self {
            key: converter(&key_columns)?,
            value: converter(&value_columns)?,
            key_columns,
            value_columns,
        })
    }
}

/// Writes a view's changes, batch by batch.
#[derive(Debug)]
pub struct ViewStorage {
    name: String,
    schema: SchemaRef,
    layout: ViewLayout,
    format: RowFormat,
    changes: Vec<ChangeBatch>,
    /// Rows after the last finished batch; `None`: not read yet.
    row_count: Option<i64>,
    check_store: bool,
}

impl ViewStorage {
    /// Storage for a view. SQLSTATE 0A000 for a column whose type has no row form.
    pub fn new(view_name: &str, schema: SchemaRef, layout: ViewLayout) -> Result<Self> {
        Ok(Self {
            name: view_name.to_owned(),
            format: RowFormat::try_new(&schema, &layout)?,
            schema,
            layout,
            changes: Vec::new(),
            row_count: None,
            check_store: false,
        })
    }

    /// Also checks each keyed change against what is stored (a read per changed key): what a
    /// deletion deletes is there, what is inserted is new. For tests of operators.
    #[must_use]
    pub fn with_store_check(mut self) -> Self {
        self.check_store = true;
        self
    }

    /// The layout.
    pub fn layout(&self) -> &ViewLayout {
        &self.layout
    }

    /// The view's columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Takes changes of the batch.
    pub fn push(&mut self, changes: &ChangeBatch) {
        if !changes.is_empty() {
            self.changes.push(changes.clone());
        }
    }

    /// The batch's entries, tables ascending. A deletion of what is not there, or a second row
    /// of one key, is an internal error that names the view.
    pub fn finish(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        if self.row_count.is_none() {
            self.row_count = Some(read_row_count(&context.snapshot, &self.name)? as i64);
        }
        if self.changes.is_empty() {
            return Ok(Vec::new());
        }
        let table = rows_table(&self.name);
        let merged = |entries: Entries| merge_into_run(table, &[entries]);
        let run = match &self.layout {
            ViewLayout::Append => {
                append::entries(&self.schema, &self.changes, context.batch_id).map(merged)
            }
            ViewLayout::Keyed(_) => {
                let stored = self.check_store.then_some(&context.snapshot);
                keyed::run(&self.format, &self.changes, table, stored)
            }
            ViewLayout::Bag => {
                consolidate::bag_entries(&self.format, &self.changes, &context.snapshot, table)
                    .map(merged)
            }
        };
        let run = run.map_err(|error| error.context(format!("view \"{}\"", self.name)))?;
        let growth: i64 = self
            .changes
            .iter()
            .map(|c| {
                c.weights()
                    .map_or(c.num_rows() as i64, |w| w.values().iter().sum())
            })
            .sum();
        let rows = self.row_count.unwrap_or(0) + growth;
        if rows < 0 {
            return Err(Error::internal(format!(
                "view \"{}\" would hold fewer than no rows",
                self.name
            )));
        }
        let mut runs = Vec::new();
        if !run.is_empty() {
            runs.push((table, run));
        }
        if growth != 0 {
            self.row_count = Some(rows);
            runs.push(single_entry::write_number(count_table(&self.name), rows));
        }
        runs.sort_unstable_by_key(|(table, _)| *table);
        Ok(runs)
    }

    /// The batch's changes for subscribers and sinks, after [`Self::finish`] and before
    /// [`Self::committed`]: equal rows' weights summed, none left at zero; a key's deletions come
    /// before its insertions. An append view gives its rows as they came.
    pub fn take_changes(&mut self) -> Result<Vec<ChangeBatch>> {
        let changes = std::mem::take(&mut self.changes);
        if self.layout == ViewLayout::Append {
            return Ok(changes);
        }
        consolidate::consolidated(&self.format, &self.schema, &changes)
    }

    /// Rows after the last finished batch.
    pub fn row_count(&self) -> u64 {
        self.row_count.unwrap_or(0).max(0) as u64
    }

    /// The batch is durable and applied.
    pub fn committed(&mut self) {
        self.changes.clear();
    }

    /// The batch failed: forgets it.
    pub fn reset(&mut self) {
        self.changes.clear();
        self.row_count = None;
    }
}

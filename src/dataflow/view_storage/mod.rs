//! View storage: a view's contents in the state store, written from changes, read by snapshots.
//!
//! | layout | when | key → value |
//! |---|---|---|
//! | keyed | a unique key is known | key columns → the other columns (both arrow-row) |
//! | bag | none is | whole row (arrow-row) → weight |
//! | append | rows only ever come | batch id, sequence (both big endian) → Arrow IPC chunk |
//! | index | a second layout of a view's rows | chosen columns, then the others that make it unique |
//!
//! A view that only names the results of an aggregate, or the first rows of groups, has no tables of
//! its own: it is read from the operator's groups ([`ViewContents`]).
//!
//! Keyed needs no read to write: the batch's changes of a key say what is left of it. Bag adds to
//! weights, so it reads each changed row's weight once, in one sorted look-up. Append copies rows
//! in columns. Beside the rows a view's table `…/count` holds its number of rows.
//!
//! An index is keyed where its view has a key, which then ends its own, and a bag where it has none.
//!
//! Absent: what the changes mean (operators made them), and which keys a query wants.

mod append;
mod consolidate;
mod keyed;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, SortField};

use crate::dataflow::aggregate::GroupContents;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::{Entries, merge_into_run};
use crate::dataflow::operator::BatchContext;
use crate::dataflow::single_entry;
use crate::dataflow::top::HeadContents;
use crate::error::{Error, Result};
use crate::state::{Run, StateSnapshot, TableId, WantedKeys};

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
    /// Ordered by columns: with `is_unique` no two rows have these in common, and the others are the
    /// value; else they are all columns, and the value is a weight.
    Index {
        /// The key, in its order.
        key: Vec<KeyColumn>,
        /// No two rows share the key.
        is_unique: bool,
    },
}

/// A column of a stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeyColumn {
    /// Its number among the view's columns.
    pub column: usize,
    /// The largest value comes first.
    pub descending: bool,
    /// NULL comes before all values.
    pub nulls_first: bool,
}

impl KeyColumn {
    /// As keys of views, groups and tables are ordered.
    pub fn ascending(column: usize) -> Self {
        Self {
            column,
            descending: false,
            nulls_first: true,
        }
    }

    /// The same, for arrow.
    pub fn options(&self) -> SortOptions {
        SortOptions {
            descending: self.descending,
            nulls_first: self.nulls_first,
        }
    }
}

/// In which order rows lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyOrder {
    /// The columns that the stored keys begin with.
    pub columns: Vec<KeyColumn>,
    /// These columns are the whole stored key.
    pub is_whole: bool,
}

impl KeyOrder {
    /// A key of ascending columns.
    pub fn ascending(columns: impl IntoIterator<Item = usize>, is_whole: bool) -> Self {
        Self {
            columns: columns.into_iter().map(KeyColumn::ascending).collect(),
            is_whole,
        }
    }
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

    /// The layout of an index over rows with `width` columns and, if known, a unique key.
    pub fn index(mut key: Vec<KeyColumn>, unique: Option<&[usize]>, width: usize) -> Self {
        // The first place of a column decides its order.
        let mut seen = BTreeSet::new();
        key.retain(|k| seen.insert(k.column));
        let rest: Vec<usize> = match unique {
            Some(unique) => unique.to_vec(),
            None => (0..width).collect(),
        };
        let rest = rest.into_iter().filter(|c| seen.insert(*c));
        key.extend(rest.map(KeyColumn::ascending));
        Self::Index {
            key,
            is_unique: unique.is_some(),
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
    /// In the state of the top-N operator that gives them.
    Heads(Arc<HeadContents>),
}

/// Rows of a view at a snapshot, batch by batch.
pub type ViewRows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl ViewContents {
    /// The order of the rows of a view with `columns` columns; without columns: in no order.
    pub fn key_order(&self, columns: usize) -> KeyOrder {
        match self {
            Self::Stored(ViewLayout::Keyed(key)) => KeyOrder::ascending(key.iter().copied(), true),
            Self::Stored(ViewLayout::Bag) => KeyOrder::ascending(0..columns, true),
            Self::Stored(ViewLayout::Append) => KeyOrder::default(),
            Self::Stored(ViewLayout::Index { key, .. }) => KeyOrder {
                columns: key.clone(),
                is_whole: true,
            },
            Self::Groups(groups) => {
                KeyOrder::ascending(groups.key_columns(), groups.has_whole_key())
            }
            Self::Heads(heads) => KeyOrder::ascending(heads.key_columns(), heads.has_whole_key()),
        }
    }

    /// The rows of the view at a snapshot whose keys are `wanted`, only the columns of
    /// `projection`, in batches of about `batch_rows` rows. `state_name` is what the view's tables
    /// are named by.
    pub fn read(
        &self,
        snapshot: &StateSnapshot,
        state_name: &str,
        schema: &SchemaRef,
        wanted: &WantedKeys,
        projection: &[usize],
        batch_rows: usize,
    ) -> Result<ViewRows> {
        Ok(match self {
            Self::Stored(layout) => Box::new(read_view(
                snapshot,
                state_name,
                Arc::clone(schema),
                layout,
                wanted,
                projection,
                batch_rows,
            )?),
            Self::Groups(groups) => {
                Box::new(groups.read(snapshot, wanted, projection, batch_rows)?)
            }
            Self::Heads(heads) => Box::new(heads.read(snapshot, wanted, projection, batch_rows)?),
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
        let all = 0..schema.fields().len();
        let key: Vec<KeyColumn> = match layout {
            ViewLayout::Keyed(columns) => {
                columns.iter().map(|&c| KeyColumn::ascending(c)).collect()
            }
            ViewLayout::Bag => all.clone().map(KeyColumn::ascending).collect(),
            ViewLayout::Append => Vec::new(),
            ViewLayout::Index { key, .. } => key.clone(),
        };
        let key_columns: Vec<usize> = key.iter().map(|k| k.column).collect();
        let has_values = matches!(
            layout,
            ViewLayout::Keyed(_)
                | ViewLayout::Index {
                    is_unique: true,
                    ..
                }
        );
        let value_columns: Vec<usize> = match has_values {
            true => all.filter(|c| !key_columns.contains(c)).collect(),
            false => Vec::new(),
        };
        let converter = |columns: &[KeyColumn]| -> Result<Option<RowConverter>> {
            let field = |k: &KeyColumn| {
                let data_type = schema.field(k.column).data_type().clone();
                SortField::new_with_options(data_type, k.options())
            };
            let fields: Vec<_> = columns.iter().map(field).collect();
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
        let values: Vec<KeyColumn> = value_columns
            .iter()
            .map(|&c| KeyColumn::ascending(c))
            .collect();
        Ok(Self {
            key: converter(&key)?,
            value: converter(&values)?,
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
            ViewLayout::Keyed(_)
            | ViewLayout::Index {
                is_unique: true, ..
            } => {
                let stored = self.check_store.then_some(&context.snapshot);
                keyed::run(&self.format, &self.changes, table, stored)
            }
            ViewLayout::Bag | ViewLayout::Index { .. } => {
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

//! Reading the results of an aggregate from its state: the contents of a view whose rows are its
//! groups.
//!
//! A view that only names and orders the columns of an aggregate keeps no rows of its own: each
//! group's entry has all that its row is made of. So a batch writes every touched group once, not
//! twice. Rows come in the order of the groups' stored keys. Deliberately absent: expressions over
//! the results, since one that fails would make the view unreadable; such a view stores its rows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::SchemaRef;

use super::AggregateRequest;
use super::columns::StateColumn;
use super::keys::KeyFormat;
use super::output::{GroupState, outputs};
use super::plan::AggregatePlan;
use crate::catalog::definition::EmitMode;
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::number::read_integer;
use crate::dataflow::row_errors::OnRowError;
use crate::dataflow::rows::rebatch;
use crate::error::Result;
use crate::state::{StateSnapshot, TableId, WantedEntries, WantedKeys};

/// How the rows of a view are made of an aggregate's groups.
#[derive(Debug)]
pub struct GroupContents {
    plan: AggregatePlan,
    format: KeyFormat,
    groups_table: TableId,
    group_columns: usize,
    /// The view's columns.
    schema: SchemaRef,
    /// For each column of the view, the column of the aggregate's output.
    columns: Vec<usize>,
    /// Whether a group whose result cannot be computed is shown, with NULL for it.
    on_row_error: OnRowError,
}

impl GroupContents {
    /// The contents of a view of `schema` whose columns are `columns` of the aggregate's output.
    /// `None` if the groups that the state holds are not the view's rows: it emits only closed
    /// windows, or a watermark frees groups whose rows stay.
    pub fn of(
        request: &AggregateRequest,
        schema: SchemaRef,
        columns: Vec<usize>,
        on_row_error: OnRowError,
    ) -> Result<Option<Self>> {
        if request.emit != EmitMode::OnUpdate || request.event_time.is_some() {
            return Ok(None);
        }
        let fields = request.output_schema.fields();
        let types = fields.iter().take(request.group.len());
        Ok(Some(Self {
            plan: AggregatePlan::try_new(request)?,
            format: KeyFormat::try_new(types.map(|f| f.data_type().clone()).collect())?,
            groups_table: groups_table(&request.name),
            group_columns: request.group.len(),
            schema,
            columns,
            on_row_error,
        }))
    }

    /// The view's columns that the groups' stored keys begin with, in the keys' order.
    pub fn key_columns(&self) -> Vec<usize> {
        let of_group = |group: usize| self.columns.iter().position(|&column| column == group);
        (0..self.group_columns).map_while(of_group).collect()
    }

    /// The columns of [`Self::key_columns`] are the whole stored key.
    pub fn has_whole_key(&self) -> bool {
        self.key_columns().len() == self.group_columns
    }

    /// The rows at a snapshot whose groups' keys are `wanted`, only the view's columns of
    /// `projection`, in batches of `batch_rows`.
    pub fn read(
        self: &Arc<Self>,
        snapshot: &StateSnapshot,
        wanted: &WantedKeys,
        projection: &[usize],
        batch_rows: usize,
    ) -> Result<GroupReader> {
        Ok(GroupReader {
            contents: Arc::clone(self),
            scan: Some(snapshot.read(self.groups_table, wanted)?),
            projection: projection.to_vec(),
            output_schema: Arc::new(self.schema.project(projection)?),
            batch_rows: batch_rows.max(1),
        })
    }
}

/// The table of an aggregate's groups.
pub(super) fn groups_table(name: &str) -> TableId {
    TableId::from_name(&format!("{name}/groups"))
}

/// An iterator over the rows.
pub struct GroupReader {
    contents: Arc<GroupContents>,
    /// `None`: at the end, or after an error.
    scan: Option<WantedEntries>,
    projection: Vec<usize>,
    output_schema: SchemaRef,
    batch_rows: usize,
}

/// Some groups, as their entries have them.
struct Groups {
    /// Empty when no key column is read.
    keys: ByteRows,
    rows: Vec<i64>,
    columns: Vec<StateColumn>,
}

impl GroupReader {
    fn next_groups(&mut self, needs_keys: bool) -> Result<Groups> {
        let kinds = &self.contents.plan.columns;
        let mut groups = Groups {
            keys: ByteRows::default(),
            rows: Vec::new(),
            columns: kinds.iter().map(|&kind| StateColumn::new(kind)).collect(),
        };
        for (column, &kind) in groups.columns.iter_mut().zip(kinds) {
            column.grow(self.batch_rows, kind);
        }
        while groups.rows.len() < self.batch_rows {
            let Some(scan) = &mut self.scan else { break };
            if !scan.advance()? {
                self.scan = None;
                break;
            }
            let (index, mut value) = (groups.rows.len(), scan.value());
            if needs_keys {
                groups.keys.push(scan.key(), &[]);
            }
            groups.rows.push(read_integer(&mut value)?);
            for column in &mut groups.columns {
                column.decode(index, &mut value)?;
            }
        }
        Ok(groups)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let contents = Arc::clone(&self.contents);
        let places = self.projection.iter();
        let of_output: Vec<usize> = places.map(|&column| contents.columns[column]).collect();
        let needs_keys = of_output.iter().any(|&c| c < contents.group_columns);
        let groups = self.next_groups(needs_keys)?;
        let count = groups.rows.len();
        if count == 0 {
            return Ok(None);
        }
        let keys = if needs_keys {
            contents.format.decode(groups.keys.iter())?
        } else {
            Vec::new()
        };
        let state = GroupState {
            rows: &groups.rows,
            columns: &groups.columns,
        };
        let indexes: Vec<u32> = (0..count as u32).collect();
        let (results, failed) = outputs(&contents.plan.outputs, state, &indexes)?;
        let columns: Vec<ArrayRef> = of_output
            .into_iter()
            .map(|column| match column.checked_sub(contents.group_columns) {
                None => Arc::clone(&keys[column]),
                Some(call) => Arc::clone(&results[call]),
            })
            .collect();
        if failed.places.is_empty() || contents.on_row_error == OnRowError::Null {
            return rebatch(&self.output_schema, columns, count).map(Some);
        }
        // A group whose result cannot be computed is no row of the view.
        let shown: BooleanArray = (0..count)
            .map(|place| Some(!failed.places.contains(&place)))
            .collect();
        let columns = columns
            .iter()
            .map(|column| Ok(filter(column, &shown)?))
            .collect::<Result<Vec<_>>>()?;
        rebatch(&self.output_schema, columns, shown.true_count()).map(Some)
    }
}

impl Iterator for GroupReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            self.scan = None;
        }
        batch.transpose()
    }
}

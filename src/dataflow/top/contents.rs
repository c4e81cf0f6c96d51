//! Reading the first rows of each group from the heads that the state holds: the contents of a view
//! whose rows these are.
//!
//! A head has all that its rows are made of, so that a view which only names and orders their columns
//! keeps none of its own: a batch writes every touched group once, not twice. Rows come in the order
//! of the groups. Deliberately absent, as for the groups of an aggregate: expressions over the rows,
//! and heads that a watermark frees while their rows stay.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::expressions::Column;

use super::heads::{HeadForm, decode, heads_table};
use super::{Head, Selection, TopSpec};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::ordered::{parts, tail_parts};
use crate::dataflow::rows::{RowCodec, rebatch};
use crate::error::Result;
use crate::state::{StateSnapshot, TableId, WantedEntries, WantedKeys};

/// How the rows of a view are made of heads.
#[derive(Debug)]
pub struct HeadContents {
    spec: TopSpec,
    codec: RowCodec,
    table: TableId,
    form: HeadForm,
    /// The view's columns.
    schema: SchemaRef,
    /// For each column of the view, the column of the operator's output.
    columns: Vec<usize>,
}

impl HeadContents {
    /// The contents of a view of `schema` whose columns are `columns` of the output of the operator
    /// of a stable name. `None` if the state does not hold them as heads.
    pub fn of(
        name: &str,
        spec: &TopSpec,
        schema: SchemaRef,
        columns: Vec<usize>,
    ) -> Result<Option<Self>> {
        let form = spec.heads_form();
        let Some(form) = form.filter(|_| spec.rows.event_time.is_none()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            form,
            codec: RowCodec::new(spec.rows.input.clone())?,
            table: heads_table(name),
            spec: spec.clone(),
            schema,
            columns,
        }))
    }

    /// The view's columns that the groups' stored keys begin with, in the keys' order.
    pub fn key_columns(&self) -> Vec<usize> {
        let of_group = self.spec.rows.group.iter().map_while(|expression| {
            let column = expression.downcast_ref::<Column>()?.index();
            self.columns.iter().position(|&of_view| of_view == column)
        });
        of_group.collect()
    }

    /// The columns of [`Self::key_columns`] are the whole stored key.
    pub fn has_whole_key(&self) -> bool {
        let group_columns = self.spec.rows.group.len();
        self.form == HeadForm::Value && self.key_columns().len() == group_columns
    }

    /// The rows at a snapshot whose groups' keys are `wanted`, only the view's columns of
    /// `projection`, in batches of about `batch_rows`.
    pub fn read(
        self: &Arc<Self>,
        snapshot: &StateSnapshot,
        wanted: &WantedKeys,
        projection: &[usize],
        batch_rows: usize,
    ) -> Result<HeadReader> {
        Ok(HeadReader {
            contents: Arc::clone(self),
            scan: Some(snapshot.read(self.table, wanted)?),
            group: Vec::new(),
            head: Head::default(),
            projection: projection.to_vec(),
            output_schema: Arc::new(self.schema.project(projection)?),
            batch_rows: batch_rows.max(1),
        })
    }
}

/// An iterator over the rows.
pub struct HeadReader {
    contents: Arc<HeadContents>,
    /// `None`: at the end, or after an error.
    scan: Option<WantedEntries>,
    /// What has been read of the group whose entries are being read.
    group: Vec<u8>,
    head: Head,
    projection: Vec<usize>,
    output_schema: SchemaRef,
    batch_rows: usize,
}

impl HeadReader {
    /// What goes out of the next group; `None`: there is no further one.
    fn next_selection(&mut self) -> Result<Option<Selection>> {
        let spec = &self.contents.spec;
        while let Some(scan) = &mut self.scan {
            if !scan.advance()? {
                self.scan = None;
                let last = std::mem::take(&mut self.head);
                return Ok((!last.copies.is_empty()).then(|| spec.select(&last)));
            }
            if self.contents.form == HeadForm::Value {
                return Ok(Some(spec.select(&decode(scan.value())?)));
            }
            let (key, copies) = (scan.key(), scan.value());
            let group = parts(key).group;
            let mut whole = None;
            if !self.head.copies.is_empty() && group != self.group {
                whole = Some(std::mem::take(&mut self.head));
            }
            self.head.keep(&key[group.len()..], copies)?;
            self.group.clear();
            self.group.extend_from_slice(group);
            if let Some(whole) = whole {
                return Ok(Some(spec.select(&whole)));
            }
        }
        Ok(None)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let contents = Arc::clone(&self.contents);
        let input_columns = contents.codec.schema().fields().len();
        let places = self.projection.iter();
        let of_output: Vec<usize> = places.map(|&column| contents.columns[column]).collect();
        let needs_rows = of_output.iter().any(|&column| column < input_columns);
        let (mut rows, mut numbers) = (ByteRows::default(), Vec::new());
        while numbers.len() < self.batch_rows {
            let Some(selection) = self.next_selection()? else {
                break;
            };
            for (index, &copies) in selection.weights.iter().enumerate() {
                let (entry, number) = selection.place(index);
                for _ in 0..copies {
                    numbers.push(number);
                    if needs_rows {
                        rows.push(tail_parts(entry).row, &[]);
                    }
                }
            }
        }
        let count = numbers.len();
        if count == 0 {
            return Ok(None);
        }
        let decoded = match needs_rows {
            true => Some(contents.codec.decode(rows.iter())?),
            false => None,
        };
        let numbers: ArrayRef = Arc::new(UInt64Array::from(numbers));
        let columns = of_output.into_iter().map(|column| match &decoded {
            Some(rows) if column < input_columns => Arc::clone(rows.column(column)),
            _ => Arc::clone(&numbers),
        });
        rebatch(&self.output_schema, columns.collect(), count).map(Some)
    }
}

impl Iterator for HeadReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            self.scan = None;
        }
        batch.transpose()
    }
}

//! Reading a view from a snapshot, batch by batch.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::RowConverter;

use super::{RowFormat, ViewLayout, append, rows_table};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::number::read_integer;
use crate::error::{Error, Result};
use crate::state::{StateSnapshot, WantedEntries, WantedKeys};

/// Opens a view's contents at a snapshot, as far as their keys are `wanted` and only the columns of
/// `projection`, in batches of about `batch_size` rows (append views: as they were written, up to
/// some thousand rows).
pub fn read_view(
    snapshot: &StateSnapshot,
    view_name: &str,
    schema: SchemaRef,
    layout: &ViewLayout,
    wanted: &WantedKeys,
    projection: &[usize],
    batch_size: usize,
) -> Result<ViewReader> {
    Ok(ViewReader {
        scan: Some(snapshot.read(rows_table(view_name), wanted)?),
        format: RowFormat::try_new(&schema, layout)?,
        output_schema: Arc::new(schema.project(projection)?),
        schema,
        layout: layout.clone(),
        projection: projection.to_vec(),
        batch_size: batch_size.max(1),
        pending_row: None,
    })
}

/// An iterator over a view's rows.
pub struct ViewReader {
    /// `None`: at the end, or after an error.
    scan: Option<WantedEntries>,
    format: RowFormat,
    schema: SchemaRef,
    output_schema: SchemaRef,
    layout: ViewLayout,
    projection: Vec<usize>,
    batch_size: usize,
    /// A bag's row of which more copies are to come.
    pending_row: Option<(Vec<u8>, usize)>,
}

fn decode(gathered: &ByteRows, converter: &RowConverter) -> Result<Vec<ArrayRef>> {
    let parser = converter.parser();
    Ok(converter.convert_rows(gathered.iter().map(|row| parser.parse(row)))?)
}

impl ViewReader {
    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.output_schema)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.layout {
            ViewLayout::Append => self.next_chunk(),
            ViewLayout::Keyed(_)
            | ViewLayout::Index {
                is_unique: true, ..
            } => self.next_keyed(),
            ViewLayout::Bag | ViewLayout::Index { .. } => self.next_bag(),
        }
    }

    fn next_chunk(&mut self) -> Result<Option<RecordBatch>> {
        let Some(scan) = &mut self.scan else {
            return Ok(None);
        };
        if !scan.advance()? {
            self.scan = None;
            return Ok(None);
        }
        append::decode(scan.value(), &self.schema, &self.projection).map(Some)
    }

    fn next_keyed(&mut self) -> Result<Option<RecordBatch>> {
        let needs = |columns: &[usize]| self.projection.iter().any(|c| columns.contains(c));
        let (needs_keys, needs_values) = (
            needs(&self.format.key_columns),
            needs(&self.format.value_columns),
        );
        let (mut keys, mut values) = (ByteRows::default(), ByteRows::default());
        let mut rows = 0;
        while rows < self.batch_size {
            let Some(scan) = &mut self.scan else { break };
            if !scan.advance()? {
                self.scan = None;
                break;
            }
            if needs_keys {
                keys.push(scan.key(), &[]);
            }
            if needs_values {
                values.push(scan.value(), &[]);
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        for (needed, gathered, indexes, converter) in [
            (
                needs_keys,
                &keys,
                &self.format.key_columns,
                &self.format.key,
            ),
            (
                needs_values,
                &values,
                &self.format.value_columns,
                &self.format.value,
            ),
        ] {
            if let (true, Some(converter)) = (needed, converter) {
                for (&index, column) in indexes.iter().zip(decode(gathered, converter)?) {
                    columns[index] = Some(column);
                }
            }
        }
        let columns = self
            .projection
            .iter()
            .map(|&c| columns[c].clone())
            .collect::<Option<Vec<_>>>();
        let columns =
            columns.ok_or_else(|| Error::internal("a view's column is in no row part"))?;
        self.batch(columns, rows).map(Some)
    }

    fn next_bag(&mut self) -> Result<Option<RecordBatch>> {
        let Some(converter) = &self.format.key else {
            return Err(Error::internal("a view has no columns"));
        };
        let mut gathered = ByteRows::default();
        let mut copies: Vec<u32> = Vec::new();
        while copies.len() < self.batch_size {
            let (row, count) = match self.pending_row.take() {
                Some(pending) => pending,
                None => {
                    let Some(scan) = &mut self.scan else { break };
                    if !scan.advance()? {
                        self.scan = None;
                        break;
                    }
                    let weight = read_integer(&mut scan.value())?;
                    let weight = usize::try_from(weight)
                        .map_err(|_| Error::damaged("a row of a view has a negative weight"))?;
                    (scan.key().to_vec(), weight)
                }
            };
            let now = count.min(self.batch_size - copies.len());
            copies.extend(std::iter::repeat_n(gathered.len() as u32, now));
            gathered.push(&row, &[]);
            if now < count {
                self.pending_row = Some((row, count - now));
            }
        }
        if copies.is_empty() {
            return Ok(None);
        }
        let rows = copies.len();
        if self.projection.is_empty() {
            return self.batch(Vec::new(), rows).map(Some);
        }
        let decoded = decode(&gathered, converter)?;
        let column_of = |column: usize| {
            let place = self.format.key_columns.iter().position(|&c| c == column);
            place.map(|place| &decoded[place])
        };
        let missing = || Error::internal("a column of a view is not in its rows");
        let is_plain = gathered.len() == rows;
        let copies = UInt32Array::from(copies);
        let columns = self
            .projection
            .iter()
            .map(|&c| {
                let column = column_of(c).ok_or_else(missing)?;
                if is_plain {
                    Ok(Arc::clone(column))
                } else {
                    Ok(take(column, &copies, None)?)
                }
            })
            .collect::<Result<_>>()?;
        self.batch(columns, rows).map(Some)
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.output_schema),
            columns,
            &options,
        )?)
    }
}

impl Iterator for ViewReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.next_batch();
        if result.is_err() {
            self.scan = None;
            self.pending_row = None;
        }
        result.transpose()
    }
}

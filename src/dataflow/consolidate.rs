//! Consolidation: equal rows become one, with the sum of their weights; what sums to zero is gone.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::SchemaRef;

use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::rows::{EncodedRows, RowCodec, rebatch};
use crate::error::{Error, Result};

/// Rows of one output batch.
pub const ROWS_PER_BATCH: usize = 8192;

/// The sum of `changes`, each row once with its weight other than zero, in order of first sight.
pub fn consolidate(codec: &RowCodec, changes: &[ChangeBatch]) -> Result<Vec<ChangeBatch>> {
    let encoded: Vec<EncodedRows> = changes
        .iter()
        .map(|change| codec.encode(change.rows()))
        .collect::<Result<_>>()?;
    let rows: usize = changes.iter().map(ChangeBatch::num_rows).sum();
    let mut places: hashbrown::HashMap<&[u8], usize, foldhash::fast::RandomState> =
        hashbrown::HashMap::with_capacity_and_hasher(rows, Default::default());
    let mut sums: Vec<(usize, usize, i64)> = Vec::with_capacity(rows);
    for (batch, (change, encoded)) in changes.iter().zip(&encoded).enumerate() {
        for row in 0..change.num_rows() {
            let weight = change.weight(row);
            let place = *places.entry(encoded.row(row)).or_insert_with(|| {
                sums.push((batch, row, 0));
                sums.len() - 1
            });
            sums[place].2 = sums[place]
                .2
                .checked_add(weight)
                .ok_or_else(|| Error::internal("the weight of a row overflows"))?;
        }
    }
    sums.retain(|(_, _, weight)| *weight != 0);
    sums.chunks(ROWS_PER_BATCH)
        .map(|chunk| pick(codec.schema(), changes, chunk))
        .collect()
}

/// The batch of the rows at (batch, row), with their weights.
fn pick(
    schema: &SchemaRef,
    changes: &[ChangeBatch],
    chosen: &[(usize, usize, i64)],
) -> Result<ChangeBatch> {
    let places: Vec<(usize, usize)> = chosen
        .iter()
        .map(|(batch, row, _)| (*batch, *row))
        .collect();
    let columns = (0..schema.fields().len())
        .map(|column| {
            let parts: Vec<&dyn datafusion::arrow::array::Array> = changes
                .iter()
                .map(|change| change.rows().column(column).as_ref())
                .collect();
            Ok(interleave(&parts, &places)?)
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let rows = rebatch(schema, columns, chosen.len())?;
    let weights = chosen.iter().map(|(_, _, weight)| *weight);
    Ok(change_of(rows, weights))
}

/// A change of `rows` with these weights; all +1 takes no array.
pub fn change_of(rows: RecordBatch, weights: impl Iterator<Item = i64>) -> ChangeBatch {
    let weights: Vec<i64> = weights.collect();
    if weights.iter().all(|weight| *weight == 1) {
        ChangeBatch::inserts(rows)
    } else {
        ChangeBatch::weighted(rows, Int64Array::from(weights))
    }
}

/// Decodes rows into changes of at most [`ROWS_PER_BATCH`]; `at` gives the bytes and the weight of
/// each of `count`.
pub fn decode_changes<'a>(
    codec: &RowCodec,
    count: usize,
    at: impl Fn(usize) -> (&'a [u8], i64),
    out: &mut Vec<ChangeBatch>,
) -> Result<()> {
    for start in (0..count).step_by(ROWS_PER_BATCH) {
        let range = start..(start + ROWS_PER_BATCH).min(count);
        let rows = codec.decode(range.clone().map(|index| at(index).0))?;
        out.push(change_of(rows, range.map(|index| at(index).1)));
    }
    Ok(())
}

/// Encoded rows on their way out.
#[derive(Debug, Default)]
pub struct Outgoing {
    rows: ByteRows,
    weights: Vec<i64>,
}

impl Outgoing {
    /// Adds a row; one of weight 0 is none.
    pub fn push(&mut self, row: &[u8], weight: i64) {
        if weight != 0 {
            self.rows.push(row, &[]);
            self.weights.push(weight);
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The rows as changes.
    pub fn decode(&self, codec: &RowCodec, out: &mut Vec<ChangeBatch>) -> Result<()> {
        let at = |index| (self.rows.get(index), self.weights[index]);
        decode_changes(codec, self.len(), at, out)
    }
}

/// The same rows under a schema that differs in names, nullability or form only.
pub fn under_schema(change: ChangeBatch, schema: &SchemaRef) -> Result<ChangeBatch> {
    if Arc::ptr_eq(&change.schema(), schema) {
        return Ok(change);
    }
    let rows = rebatch(schema, change.rows().columns().to_vec(), change.num_rows())?;
    Ok(change.with_rows(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};

    fn change(values: Vec<Option<i64>>, weights: Vec<i64>) -> (SchemaRef, ChangeBatch) {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let rows =
            RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(values))]).unwrap();
        (
            schema,
            ChangeBatch::weighted(rows, Int64Array::from(weights)),
        )
    }

    #[test]
    fn equal_rows_are_summed_over_batches_and_zeros_vanish() {
        let (schema, first) = change(vec![Some(1), None, Some(2), Some(1)], vec![1, 2, 1, 1]);
        let (_, second) = change(vec![Some(2), None, Some(3)], vec![-1, -1, -4]);
        let codec = RowCodec::new(schema).unwrap();
        let sum = consolidate(&codec, &[first, second]).unwrap();
        assert_eq!(sum.len(), 1);
        let column = sum[0].rows().column(0).as_primitive::<Int64Type>();
        let rows: Vec<(Option<i64>, i64)> = (0..column.len())
            .map(|i| {
                (
                    column.is_valid(i).then(|| column.value(i)),
                    sum[0].weight(i),
                )
            })
            .collect();
        assert_eq!(rows, vec![(Some(1), 2), (None, 1), (Some(3), -4)]);
    }
}

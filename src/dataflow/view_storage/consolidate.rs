//! Summing the weights of equal rows: the bag layout, and what subscribers and sinks get.

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, UInt32Array,
};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, Rows};

use super::RowFormat;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::dataflow::number::{read_integer, write_signed};
use crate::error::{Error, Result};
use crate::state::{EntryKind, StateSnapshot, TableId};

/// Some columns of a change's rows.
pub fn columns_of(change: &ChangeBatch, columns: &[usize]) -> Vec<ArrayRef> {
    columns
        .iter()
        .map(|&c| change.rows().column(c).clone())
        .collect()
}

/// Rows of columns; `None` when there are no columns.
pub fn encode_columns(
    converter: Option<&RowConverter>,
    columns: &[ArrayRef],
) -> Result<Option<Rows>> {
    converter
        .map(|converter| Ok(converter.convert_columns(columns)?))
        .transpose()
}

/// The entries of a batch in the bag layout.
pub fn bag_entries(
    format: &RowFormat,
    changes: &[ChangeBatch],
    snapshot: &StateSnapshot,
    table: TableId,
) -> Result<Entries> {
    let Some(converter) = &format.key else {
        return Err(Error::internal("a view has no columns"));
    };
    let rows: Vec<Rows> = changes
        .iter()
        .map(|change| {
            let columns = columns_of(change, &format.key_columns);
            Ok(converter.convert_columns(&columns)?)
        })
        .collect::<Result<_>>()?;
    let mut order: Vec<(&[u8], i64)> = Vec::with_capacity(rows.iter().map(Rows::num_rows).sum());
    for (rows, change) in rows.iter().zip(changes) {
        order.extend((0..rows.num_rows()).map(|i| (rows.row_bytes(i), change.weight(i))));
    }
    order.sort_by_key(|(row, _)| *row);
    let changed: Vec<(&[u8], i64)> = order
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| {
            (
                same[0].0,
                same.iter().map(|(_, weight)| weight).sum::<i64>(),
            )
        })
        .filter(|(_, weight)| *weight != 0)
        .collect();
    let stored = if changed.is_empty() || !snapshot.may_hold(table)? {
        None
    } else {
        let keys = BinaryArray::from_iter_values(changed.iter().map(|(row, _)| row));
        Some(snapshot.get_many(table, &keys)?)
    };
    let mut entries = Entries::default();
    for (index, (row, change)) in changed.iter().enumerate() {
        let before = match &stored {
            Some(stored) if stored.is_valid(index) => read_integer(&mut stored.value(index))?,
            _ => 0,
        };
        match before + change {
            0 => entries.delete(row),
            after if after > 0 => {
                let kind = EntryKind::of_value(before != 0);
                entries.put(kind, row, |out| write_signed(after.into(), out));
            }
            _ => return Err(Error::internal("a row was deleted that is not there")),
        }
    }
    Ok(entries)
}

/// Bytes of a row, for as long as its rows live.
trait RowBytes {
    fn row_bytes(&self, index: usize) -> &[u8];
}

impl RowBytes for Rows {
    fn row_bytes(&self, index: usize) -> &[u8] {
        self.row(index).data()
    }
}

/// A changed row on its way through [`consolidated`].
struct Item<'a> {
    key: &'a [u8],
    value: &'a [u8],
    row: u32,
    weight: i64,
}

/// Equal rows' weights summed, none left at zero; by key, a key's deletions first.
pub fn consolidated(
    format: &RowFormat,
    schema: &SchemaRef,
    changes: &[ChangeBatch],
) -> Result<Vec<ChangeBatch>> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let columns: Vec<ArrayRef> = (0..schema.fields().len())
        .map(|c| {
            let parts: Vec<&dyn Array> = changes
                .iter()
                .map(|b| b.rows().column(c).as_ref())
                .collect();
            concat(&parts)
        })
        .collect::<std::result::Result<_, _>>()?;
    let select = |indexes: &[usize]| {
        indexes
            .iter()
            .map(|&c| columns[c].clone())
            .collect::<Vec<_>>()
    };
    let keys = encode_columns(format.key.as_ref(), &select(&format.key_columns))?;
    let values = encode_columns(format.value.as_ref(), &select(&format.value_columns))?;
    let weights = changes
        .iter()
        .flat_map(|b| (0..b.num_rows()).map(|i| b.weight(i)));
    let mut items: Vec<Item<'_>> = weights
        .enumerate()
        .map(|(index, weight)| Item {
            key: keys.as_ref().map_or(&[], |r| r.row_bytes(index)),
            value: values.as_ref().map_or(&[], |r| r.row_bytes(index)),
            row: index as u32,
            weight,
        })
        .collect();
    items.sort_by(|a, b| (a.key, a.value).cmp(&(b.key, b.value)));
    let mut summed: Vec<Item<'_>> = items
        .chunk_by(|a, b| a.key == b.key && a.value == b.value)
        .map(|same| Item {
            key: same[0].key,
            value: same[0].value,
            row: same[0].row,
            weight: same.iter().map(|i| i.weight).sum(),
        })
        .filter(|item| item.weight != 0)
        .collect();
    if summed.is_empty() {
        return Ok(Vec::new());
    }
    summed.sort_by(|a, b| (a.key, a.weight > 0).cmp(&(b.key, b.weight > 0)));
    let rows: UInt32Array = summed
        .iter()
        .map(|item| item.row)
        .collect::<Vec<_>>()
        .into();
    let weights: Int64Array = summed
        .iter()
        .map(|item| item.weight)
        .collect::<Vec<_>>()
        .into();
    let columns = columns
        .iter()
        .map(|c| take(c, &rows, None))
        .collect::<std::result::Result<_, _>>()?;
    Ok(vec![ChangeBatch::weighted(
        RecordBatch::try_new(schema.clone(), columns)?,
        weights,
    )])
}

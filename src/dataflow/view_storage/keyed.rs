//! The keyed layout: what a batch leaves of each key it changes.
//!
//! Nearly always a key has one deletion, one insertion, or one of each, and then the insertion is
//! what is written, once it is known to differ from the deletion. Only a key with more changes (a view over several
//! operators may see a row come and go within a batch) has its rows compared.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use datafusion::arrow::array::{Array, BinaryArray, DynComparator, make_comparator};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::row::Rows;

use super::RowFormat;
use super::consolidate::{columns_of, encode_columns};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::error::{Error, Result};
use crate::state::{StateSnapshot, TableId};

/// A changed row: the leading bytes of its key, where it is, its weight.
#[derive(Clone, Copy)]
struct Change {
    leading: u64,
    batch: u32,
    row: u32,
    weight: i64,
}

/// What is left of a key.
enum Left {
    Unchanged,
    Deleted,
    Row { batch: u32, row: u32 },
}

/// A batch's encoded keys, and its values if any of its rows may be written.
struct Encoded {
    keys: Option<Rows>,
    values: Option<Rows>,
}

/// The entries of a batch; with `stored`, each change is checked against the store.
pub fn entries(
    format: &RowFormat,
    changes: &[ChangeBatch],
    stored: Option<(&StateSnapshot, TableId)>,
) -> Result<Entries> {
    let mut encoded = Vec::with_capacity(changes.len());
    let mut order = Vec::with_capacity(changes.iter().map(ChangeBatch::num_rows).sum());
    let mut value_bytes = 0;
    for (batch, change) in changes.iter().enumerate() {
        let keys = encode_columns(
            format.key.as_ref(),
            &columns_of(change, &format.key_columns),
        )?;
        let inserts = change
            .weights()
            .is_none_or(|w| w.values().iter().any(|&w| w > 0));
        let values = if inserts {
            encode_values(format, change)?
        } else {
            None
        };
        value_bytes += values.as_ref().map_or(0, Rows::size);
        let leading = |row: usize| {
            keys.as_ref()
                .map_or(0, |k| leading_bytes(k.row(row).data()))
        };
        order.extend((0..change.num_rows()).map(|row| Change {
            leading: leading(row),
            batch: batch as u32,
            row: row as u32,
            weight: change.weight(row),
        }));
        encoded.push(Encoded { keys, values });
    }
    let key = |c: &Change| -> &[u8] {
        encoded[c.batch as usize]
            .keys
            .as_ref()
            .map_or(&[], |k| k.row(c.row as usize).data())
    };
    // A stable sort, since the changes mostly come as a few sorted stretches, which it merges.
    order.sort_by(|a, b| a.leading.cmp(&b.leading).then_with(|| key(a).cmp(key(b))));
    let mut entries = Entries::default();
    entries.reserve(order.len(), value_bytes + order.len() * 16);
    let mut kept = Vec::new();
    let mut comparators = Comparators::default();
    for same in order.chunk_by(|a, b| a.leading == b.leading && key(a) == key(b)) {
        let left = left_of_key(format, changes, &mut comparators, same)?;
        match left {
            Left::Unchanged => continue,
            Left::Deleted => entries.delete(key(&same[0])),
            Left::Row { batch, row } => {
                let values = encoded[batch as usize].values.as_ref();
                let value = values.map_or(&[][..], |v| v.row(row as usize).data());
                entries.put(key(&same[0]), |out| out.extend_from_slice(value));
            }
        }
        if stored.is_some() {
            kept.push(same.iter().map(|c| c.weight).sum::<i64>());
        }
    }
    if let Some((snapshot, table)) = stored {
        check_store(&entries, &kept, snapshot, table)?;
    }
    Ok(entries)
}

/// The first eight bytes as a number that compares as they do.
fn leading_bytes(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => crate::dataflow::aggregate::leading_bytes(key),
    }
}

fn encode_values(format: &RowFormat, change: &ChangeBatch) -> Result<Option<Rows>> {
    encode_columns(
        format.value.as_ref(),
        &columns_of(change, &format.value_columns),
    )
}

fn left_of_key(
    format: &RowFormat,
    changes: &[ChangeBatch],
    comparators: &mut Comparators,
    same: &[Change],
) -> Result<Left> {
    let row = |c: &Change| Left::Row {
        batch: c.batch,
        row: c.row,
    };
    match same {
        [one] if one.weight == 1 => Ok(row(one)),
        [one] if one.weight == -1 => Ok(Left::Deleted),
        [one] if one.weight == 0 => Ok(Left::Unchanged),
        [a, b] if a.weight + b.weight == 0 && a.weight.abs() == 1 => {
            // Equal rows cancel, whether the key is there (a row that goes and comes back) or not.
            if comparators.are_equal(format, changes, a, b)? {
                return Ok(Left::Unchanged);
            }
            Ok(row(if a.weight == 1 { a } else { b }))
        }
        many => left_of_many(format, changes, many),
    }
}

/// Comparators of value columns between two batches, made when first needed.
#[derive(Default)]
struct Comparators(HashMap<(u32, u32), Vec<DynComparator>>);

impl Comparators {
    fn are_equal(
        &mut self,
        format: &RowFormat,
        changes: &[ChangeBatch],
        a: &Change,
        b: &Change,
    ) -> Result<bool> {
        let columns = match self.0.entry((a.batch, b.batch)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let rows = |c: &Change| changes[c.batch as usize].rows();
                let column = |&c: &usize| {
                    make_comparator(rows(a).column(c), rows(b).column(c), SortOptions::default())
                };
                let made = format.value_columns.iter().map(column);
                new.insert(made.collect::<std::result::Result<_, _>>()?)
            }
        };
        Ok(columns
            .iter()
            .all(|compare| compare(a.row as usize, b.row as usize).is_eq()))
    }
}

/// Sums the weights of equal rows of one key.
fn left_of_many(format: &RowFormat, changes: &[ChangeBatch], same: &[Change]) -> Result<Left> {
    let mut rows: Vec<(Vec<u8>, i64, &Change)> = Vec::with_capacity(same.len());
    for change in same {
        let row = changes[change.batch as usize]
            .rows()
            .slice(change.row as usize, 1);
        let value = encode_values(format, &ChangeBatch::inserts(row))?;
        let value = value.map_or(Vec::new(), |v| v.row(0).data().to_vec());
        match rows.iter_mut().find(|(known, _, _)| *known == value) {
            Some((_, weight, source)) => {
                *weight += change.weight;
                // Of equal rows an inserted one is taken: its batch has its values encoded.
                if change.weight > 0 {
                    *source = change;
                }
            }
            None => rows.push((value, change.weight, change)),
        }
    }
    rows.retain(|(_, weight, _)| *weight != 0);
    let mut inserted = rows.iter().filter(|(_, weight, _)| *weight > 0);
    match (inserted.next(), inserted.next()) {
        (None, _) if rows.is_empty() => Ok(Left::Unchanged),
        (None, _) => Ok(Left::Deleted),
        (Some((_, 1, source)), None) => Ok(Left::Row {
            batch: source.batch,
            row: source.row,
        }),
        _ => Err(Error::internal("two rows have the same unique key")),
    }
}

/// Each key was there before as often as its changes imply.
fn check_store(
    entries: &Entries,
    growth: &[i64],
    snapshot: &StateSnapshot,
    table: TableId,
) -> Result<()> {
    let keys = BinaryArray::from_iter_values((0..entries.len()).map(|i| entries.key(i)));
    let stored = snapshot.get_many(table, &keys)?;
    for (index, growth) in growth.iter().enumerate() {
        let before = i64::from(stored.is_valid(index));
        let after = i64::from(entries.value(index).is_some());
        if before + growth != after {
            return Err(Error::internal(format!(
                "a key was there {before} times, changed by {growth}, and is there {after} times"
            )));
        }
    }
    Ok(())
}

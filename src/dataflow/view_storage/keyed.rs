//! The keyed layout: what a batch leaves of each key it changes.
//!
//! Nearly always a key has one deletion, one insertion, or one of each, and then the insertion is
//! what is written, without a look at any value. Only a key with more changes (a view over several
//! operators may see a row come and go within a batch) has its rows compared.

use std::borrow::Cow;

use datafusion::arrow::array::{Array, BinaryArray};
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
    for same in order.chunk_by(|a, b| a.leading == b.leading && key(a) == key(b)) {
        let left = left_of_key(format, changes, same)?;
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

fn left_of_key(format: &RowFormat, changes: &[ChangeBatch], same: &[Change]) -> Result<Left> {
    let row = |c: &Change| Left::Row {
        batch: c.batch,
        row: c.row,
    };
    match same {
        [one] if one.weight == 1 => Ok(row(one)),
        [one] if one.weight == -1 => Ok(Left::Deleted),
        [one] if one.weight == 0 => Ok(Left::Unchanged),
        [a, b] if a.weight == -1 && b.weight == 1 => Ok(row(b)),
        [a, b] if a.weight == 1 && b.weight == -1 => Ok(row(a)),
        many => left_of_many(format, changes, many),
    }
}

/// Sums the weights of equal rows of one key.
fn left_of_many(format: &RowFormat, changes: &[ChangeBatch], same: &[Change]) -> Result<Left> {
    let mut rows: Vec<(Cow<'static, [u8]>, i64, &Change)> = Vec::with_capacity(same.len());
    for change in same {
        let single = ChangeBatch::inserts(
            changes[change.batch as usize]
                .rows()
                .slice(change.row as usize, 1),
        );
        let value = encode_values(format, &single)?;
        let value = value.map_or(Vec::new(), |v| v.row(0).data().to_vec());
        match rows.iter_mut().find(|(known, _, _)| **known == *value) {
            Some((_, weight, _)) => *weight += change.weight,
            None => rows.push((Cow::Owned(value), change.weight, change)),
        }
    }
    rows.retain(|(_, weight, _)| *weight != 0);
    let mut inserted = rows.iter().filter(|(_, weight, _)| *weight > 0);
    match (inserted.next(), inserted.next()) {
        (None, _) if rows.is_empty() => Ok(Left::Unchanged),
        (None, _) => Ok(Left::Deleted),
        (Some((_, 1, change)), None) => {
            // Of equal rows any one will do, but its batch must be one whose values are encoded.
            let inserted =
                |c: &&Change| c.weight > 0 && c.batch == change.batch && c.row == change.row;
            let same_row = same.iter().find(inserted).unwrap_or(change);
            let source = if same_row.weight > 0 {
                same_row
            } else {
                find_inserted_equal(format, changes, same, change)?
            };
            Ok(Left::Row {
                batch: source.batch,
                row: source.row,
            })
        }
        _ => Err(Error::internal("two rows have the same unique key")),
    }
}

/// A change with a positive weight whose row equals that of `like`.
fn find_inserted_equal<'a>(
    format: &RowFormat,
    changes: &[ChangeBatch],
    same: &'a [Change],
    like: &Change,
) -> Result<&'a Change> {
    let encode = |c: &Change| -> Result<Option<Rows>> {
        let rows = changes[c.batch as usize].rows().slice(c.row as usize, 1);
        encode_values(format, &ChangeBatch::inserts(rows))
    };
    let wanted = encode(like)?;
    for change in same.iter().filter(|c| c.weight > 0) {
        let value = encode(change)?;
        if value.as_ref().map(|v| v.row(0).data()) == wanted.as_ref().map(|v| v.row(0).data()) {
            return Ok(change);
        }
    }
    Err(Error::internal(
        "an inserted row was lost among the changes of its key",
    ))
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

//! The keyed layout: what a batch leaves of each key it changes.
//!
//! ```text
//!   change batches ─► streams sorted by key ─► merged: all changes of a key ─► put, delete, nothing
//! ```
//!
//! Operators mostly emit in key order, the deletions of some keys and then the insertions of the
//! same keys over the same key column. So a batch that comes sorted is not sorted again, and such a
//! pair is one stream whose keys are encoded once and whose values are compared as columns. Only a
//! key with more changes (a view over several operators may see a row come and go within a batch)
//! has its rows compared one by one.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, DynComparator, make_comparator};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::row::Rows;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rayon::prelude::*;

use super::RowFormat;
use super::consolidate::{columns_of, encode_columns};
use crate::dataflow::aggregate::mark_different;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::{RunWriter, leading_bytes};
use crate::error::{Error, Result};
use crate::state::{Run, StateSnapshot, TableId};

/// Rows below which handing work to other threads costs more than it saves.
const PARALLEL_ROWS_MIN: usize = 8192;

/// A changed row: where it is and its weight.
#[derive(Debug, Clone, Copy)]
struct Change {
    batch: u32,
    row: u32,
    weight: i64,
}

/// What is left of a key.
enum Left {
    Unchanged,
    Deleted,
    Row {
        batch: u32,
        row: u32,
        /// The key was there before.
        was_there: bool,
    },
}

/// One batch, or two with the same keys, in key order.
struct Stream {
    first: usize,
    /// The second batch and the rows at which its values differ from the first's.
    second: Option<(usize, Vec<bool>)>,
    keys: Option<Rows>,
    /// Rows in key order; `None`: they are.
    order: Option<Vec<u32>>,
    /// Leading bytes of the keys, in key order.
    leading: Vec<u128>,
    position: usize,
}

/// The run of a batch; with `stored`, each change is checked against the store.
pub fn run(
    format: &RowFormat,
    changes: &[ChangeBatch],
    table: TableId,
    stored: Option<&StateSnapshot>,
) -> Result<Run> {
    let rows: usize = changes.iter().map(ChangeBatch::num_rows).sum();
    let pairs = pair_up(format, changes);
    let encode =
        |&(first, second): &(usize, Option<usize>)| Stream::new(format, changes, first, second);
    let values = |change: &ChangeBatch| match has_inserts(change) {
        true => encode_values(format, change),
        false => Ok(None),
    };
    let (streams, values): (Result<Vec<_>>, Result<Vec<_>>) = if rows < PARALLEL_ROWS_MIN {
        (
            pairs.iter().map(encode).collect(),
            changes.iter().map(values).collect(),
        )
    } else {
        rayon::join(
            || pairs.par_iter().map(encode).collect(),
            || changes.par_iter().map(values).collect(),
        )
    };
    let (mut streams, values) = (streams?, values?);
    let value_bytes = values.iter().flatten().map(Rows::size).sum();
    let mut writer = RunWriter::new(table, rows, rows * 16, value_bytes);
    let mut growth = Vec::new();
    let mut comparators = Comparators::default();
    let mut same: Vec<Change> = Vec::new();
    while let Some(smallest) = smallest_head(&streams) {
        let left = match streams[smallest].simple_pair(changes, &streams, smallest) {
            Some(left) => left,
            None => {
                same.clear();
                gather(changes, &streams, smallest, &mut same);
                left_of_key(format, changes, &mut comparators, &same)?
            }
        };
        let key = streams[smallest].head_key();
        match left {
            Left::Unchanged => {}
            Left::Deleted => writer.delete(key),
            Left::Row {
                batch,
                row,
                was_there,
            } => {
                let values = values[batch as usize].as_ref();
                let value = values.map_or(&[][..], |v| v.row(row as usize).data());
                match was_there {
                    true => writer.put(key, value),
                    false => writer.put_new(key, value),
                }
            }
        }
        if stored.is_some() && !matches!(left, Left::Unchanged) {
            same.clear();
            gather(changes, &streams, smallest, &mut same);
            growth.push(same.iter().map(|c| c.weight).sum());
        }
        advance(&mut streams, smallest);
    }
    let run = writer.finish();
    if let Some(snapshot) = stored {
        check_store(&run, &growth, snapshot, table)?;
    }
    Ok(run)
}

/// Batches, each with the next one when that has the very same key columns.
fn pair_up(format: &RowFormat, changes: &[ChangeBatch]) -> Vec<(usize, Option<usize>)> {
    let shares_keys = |a: &ChangeBatch, b: &ChangeBatch| {
        !format.key_columns.is_empty()
            && a.num_rows() == b.num_rows()
            && format
                .key_columns
                .iter()
                .all(|&c| Arc::ptr_eq(a.rows().column(c), b.rows().column(c)))
    };
    let mut pairs = Vec::with_capacity(changes.len());
    let mut index = 0;
    while index < changes.len() {
        let next = changes
            .get(index + 1)
            .filter(|next| shares_keys(&changes[index], next));
        pairs.push((index, next.map(|_| index + 1)));
        index += 1 + usize::from(next.is_some());
    }
    pairs
}

fn has_inserts(change: &ChangeBatch) -> bool {
    change
        .weights()
        .is_none_or(|w| w.values().iter().any(|&w| w > 0))
}

impl Stream {
    fn new(
        format: &RowFormat,
        changes: &[ChangeBatch],
        first: usize,
        second: Option<usize>,
    ) -> Result<Self> {
        let change = &changes[first];
        let keys = encode_columns(
            format.key.as_ref(),
            &columns_of(change, &format.key_columns),
        )?;
        let key = |row: usize| keys.as_ref().map_or(&[][..], |k| k.row(row).data());
        let mut leading: Vec<u128> = (0..change.num_rows())
            .map(|row| leading_bytes(key(row)))
            .collect();
        let is_sorted = (1..leading.len()).all(|i| {
            leading[i - 1] < leading[i] || (leading[i - 1] == leading[i] && key(i - 1) <= key(i))
        });
        let mut order = None;
        if !is_sorted {
            let mut rows: Vec<(u128, u32)> = leading.iter().copied().zip(0..).collect();
            rows.sort_by(|a, b| {
                a.0.cmp(&b.0)
                    .then_with(|| key(a.1 as usize).cmp(key(b.1 as usize)))
            });
            leading = rows.iter().map(|&(leading, _)| leading).collect();
            order = Some(rows.into_iter().map(|(_, row)| row).collect());
        }
        let second = match second {
            None => None,
            Some(second) => {
                let mut different = vec![false; change.num_rows()];
                for &column in &format.value_columns {
                    let columns = [first, second].map(|batch| changes[batch].rows().column(column));
                    mark_different(columns[0], columns[1], &mut different)?;
                }
                Some((second, different))
            }
        };
        Ok(Self {
            first,
            second,
            keys,
            order,
            leading,
            position: 0,
        })
    }

    fn row(&self, position: usize) -> usize {
        self.order
            .as_ref()
            .map_or(position, |order| order[position] as usize)
    }

    fn key(&self, position: usize) -> &[u8] {
        self.keys
            .as_ref()
            .map_or(&[], |keys| keys.row(self.row(position)).data())
    }

    fn head_key(&self) -> &[u8] {
        self.key(self.position)
    }

    /// The key at `position`, if there is one, is `other`'s head's.
    fn has_key_of(&self, position: usize, other: &Self) -> bool {
        self.leading.get(position).is_some_and(|&leading| {
            leading == other.leading[other.position] && self.key(position) == other.head_key()
        })
    }

    /// What is left of the head's key if its only changes are a deletion and an insertion in this
    /// pair of batches.
    fn simple_pair(&self, changes: &[ChangeBatch], streams: &[Self], own: usize) -> Option<Left> {
        let (second, different) = self.second.as_ref()?;
        let row = self.row(self.position);
        let weights = (
            changes[self.first].weight(row),
            changes[*second].weight(row),
        );
        let batch = match weights {
            (-1, 1) => *second,
            (1, -1) => self.first,
            _ => return None,
        };
        let is_alone = !self.has_key_of(self.position + 1, self)
            && streams
                .iter()
                .enumerate()
                .all(|(index, other)| index == own || !other.has_key_of(other.position, self));
        if !is_alone {
            return None;
        }
        if !different[row] {
            return Some(Left::Unchanged);
        }
        Some(Left::Row {
            batch: batch as u32,
            row: row as u32,
            was_there: true,
        })
    }
}

/// The stream whose head has the smallest key. Streams are few, so all heads are looked at.
fn smallest_head(streams: &[Stream]) -> Option<usize> {
    let live = streams
        .iter()
        .enumerate()
        .filter(|(_, s)| s.position < s.leading.len());
    let smallest = live.min_by(|(_, a), (_, b)| {
        let leading = a.leading[a.position].cmp(&b.leading[b.position]);
        leading.then_with(|| a.head_key().cmp(b.head_key()))
    });
    smallest.map(|(index, _)| index)
}

/// All changes of the key at the head of stream `head`.
fn gather(changes: &[ChangeBatch], streams: &[Stream], head: usize, same: &mut Vec<Change>) {
    for stream in streams {
        let mut position = stream.position;
        while stream.has_key_of(position, &streams[head]) {
            let row = stream.row(position);
            let second = stream.second.as_ref().map(|(second, _)| *second);
            for batch in std::iter::once(stream.first).chain(second) {
                let weight = changes[batch].weight(row);
                same.push(Change {
                    batch: batch as u32,
                    row: row as u32,
                    weight,
                });
            }
            position += 1;
        }
    }
}

/// Moves all streams past the key at the head of stream `head`.
fn advance(streams: &mut [Stream], head: usize) {
    for index in (0..streams.len()).filter(|&index| index != head) {
        while streams[index].has_key_of(streams[index].position, &streams[head]) {
            streams[index].position += 1;
        }
    }
    let stream = &streams[head];
    let mut position = stream.position + 1;
    while stream.has_key_of(position, stream) {
        position += 1;
    }
    streams[head].position = position;
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
    let row = |c: &Change, was_there| Left::Row {
        batch: c.batch,
        row: c.row,
        was_there,
    };
    match same {
        [one] if one.weight == 1 => Ok(row(one, false)),
        [one] if one.weight == -1 => Ok(Left::Deleted),
        [one] if one.weight == 0 => Ok(Left::Unchanged),
        [a, b] if a.weight + b.weight == 0 && a.weight.abs() == 1 => {
            // Equal rows cancel, whether the key is there (a row that goes and comes back) or not.
            if comparators.are_equal(format, changes, a, b)? {
                return Ok(Left::Unchanged);
            }
            Ok(row(if a.weight == 1 { a } else { b }, true))
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
            // As much came as went, or one more.
            was_there: same.iter().map(|change| change.weight).sum::<i64>() == 0,
        }),
        _ => Err(Error::internal("two rows have the same unique key")),
    }
}

/// Each key was there before as often as its changes imply.
fn check_store(run: &Run, growth: &[i64], snapshot: &StateSnapshot, table: TableId) -> Result<()> {
    let prefix = table.0.to_be_bytes().len();
    let keys = BinaryArray::from_iter_values((0..run.len()).map(|i| &run.key(i)[prefix..]));
    let stored = snapshot.get_many(table, &keys)?;
    for (index, growth) in growth.iter().enumerate() {
        let before = i64::from(stored.is_valid(index));
        let after = i64::from(run.value(index).is_some());
        if before + growth != after {
            return Err(Error::internal(format!(
                "a key was there {before} times, changed by {growth}, and is there {after} times"
            )));
        }
    }
    Ok(())
}

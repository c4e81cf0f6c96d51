//! Bags whose rows lie under a key: how the key is told from the row, and how the rows of
//! ascending keys are read.

use std::ops::{ControlFlow, Range};

use super::bag::{Bag, BagReader, SettledRows};
use super::byte_rows::ByteRows;
use super::operator::BatchContext;
use crate::error::Result;
use crate::state::StateSnapshot;

/// Writes the key as the rows of a side lie under it: its length (base 128), then its bytes, so
/// that key and row can be told apart again.
pub fn encode_key(key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = key.len();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(key);
}

/// Splits what [`encode_key`] began from the row behind it.
pub fn split_key(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut length = 0;
    for (index, byte) in bytes.iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes.split_at(index + 1 + length);
        }
    }
    unreachable!("a kept row begins with the length of its key")
}

/// The entries of each key: consecutive, since the key's bytes come first.
pub fn key_ranges(changes: &SettledRows) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for index in 0..changes.len() {
        match ranges.last_mut() {
            Some(last)
                if split_key(changes.key(last.start)).0 == split_key(changes.key(index)).0 =>
            {
                last.end = index + 1;
            }
            _ => ranges.push(index..index + 1),
        }
    }
    ranges
}

/// The changed keys, ascending, each once.
pub fn changed_keys(changes: &SettledRows) -> ByteRows {
    let mut keys = ByteRows::default();
    for range in key_ranges(changes) {
        keys.push(split_key(changes.key(range.start)).0, &[]);
    }
    keys
}

/// Weights of `keys` (ascending) before and after the batch of a settled bag.
pub fn weights_around(
    bag: &Bag,
    keys: &ByteRows,
    context: &BatchContext,
) -> Result<Vec<(i64, i64)>> {
    let before = bag.weights_of(&context.snapshot, keys)?;
    let settled = bag.settled();
    let both = keys.iter().zip(before).map(|(key, before)| {
        let after = settled.find(key).map(|index| settled.new_weight(index));
        (before, after.unwrap_or(before))
    });
    Ok(both.collect())
}

/// Reads the rows of many keys by one scan, which leaps from key to key.
pub struct KeyedReader<'a> {
    bag: &'a Bag,
    snapshot: &'a StateSnapshot,
    after_batch: bool,
    /// The scan; `None` before the first key.
    rows: Option<BagReader>,
}

impl<'a> KeyedReader<'a> {
    /// `after_batch` says whether this batch's changes of the bag are seen.
    pub fn new(bag: &'a Bag, snapshot: &'a StateSnapshot, after_batch: bool) -> Self {
        Self {
            bag,
            snapshot,
            after_batch,
            rows: None,
        }
    }

    /// Calls `take` with every row (without the key) under `key` and its weight, in order, until
    /// it breaks off. Keys ascend from call to call.
    pub fn each(
        &mut self,
        key: &[u8],
        mut take: impl FnMut(&[u8], i64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let rows = match &mut self.rows {
            Some(rows) => {
                rows.move_to(key)?;
                rows
            }
            None => self.rows.insert(if self.after_batch {
                self.bag.read_new_from(self.snapshot, key)?
            } else {
                self.bag.read_old_from(self.snapshot, key)?
            }),
        };
        while rows.advance()? {
            if take(rows.row(), rows.weight())?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Calls `take` with every row under `key` that is there before or after the batch, in order, and
/// its two weights; `reader` shows the rows before it.
pub fn each_around(
    reader: &mut KeyedReader,
    changes: &SettledRows,
    key: &[u8],
    mut take: impl FnMut(&[u8], i64, i64) -> Result<()>,
) -> Result<()> {
    let range = changes.range_of(key);
    let row_of = |index: usize| &changes.key(index)[key.len()..];
    let mut next = range.start;
    reader.each(key, |row, weight| {
        while next < range.end && row_of(next) < row {
            take(
                row_of(next),
                changes.old_weight(next),
                changes.new_weight(next),
            )?;
            next += 1;
        }
        let mut after = weight;
        if next < range.end && row_of(next) == row {
            after = changes.new_weight(next);
            next += 1;
        }
        take(row, weight, after)?;
        Ok(ControlFlow::Continue(()))
    })?;
    for index in next..range.end {
        take(
            row_of(index),
            changes.old_weight(index),
            changes.new_weight(index),
        )?;
    }
    Ok(())
}

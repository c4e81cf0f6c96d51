//! A multiset of rows in state: key bytes → weight.
//!
//! ```text
//!   add(key, row, ±n)*  ──►  settle(): sorted, summed, old weights read once  ──►  drain()
//!                               │ what changed: old and new weight                  entries
//!                               ▼
//!                     BagReader: state as of this batch (store below, settled rows above)
//! ```
//!
//! Recompute, join and DISTINCT keep their rows here. The bytes of a row are preceded by the
//! bytes of its key, so that all rows of a key lie together and are found by one seek. A weight
//! may be below zero for a moment when inputs arrive out of order; it is kept, never clamped, so
//! that the sum comes out right.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryBuilder};
use rayon::prelude::*;

use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::entries::RunWriter;
use super::operator::OperatorStatistics;
use super::rows::RowCodec;
use super::single_entry::RowCount;
use crate::error::{Error, Result};
use crate::state::key_range::after_prefix;
use crate::state::{Run, StateScan, StateSnapshot, TableId};

/// Keys of one read of the store: bounds what is held at once.
const KEYS_PER_READ_MAX: usize = 32 * 1024;

/// What one batch changed in a bag: keys ascending and unique, old and new weight of each, never
/// equal.
#[derive(Debug, Default)]
pub struct SettledRows {
    keys: ByteRows,
    old: Vec<i64>,
    new: Vec<i64>,
    /// Whether each is of this batch only; none at all where all of them stay.
    passing: Vec<bool>,
}

impl SettledRows {
    /// Number of changed keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key `index` with the row behind it.
    pub fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index)
    }

    /// Weight before the batch.
    pub fn old_weight(&self, index: usize) -> i64 {
        self.old[index]
    }

    /// Weight after the batch.
    pub fn new_weight(&self, index: usize) -> i64 {
        self.new[index]
    }

    /// The change of the weight.
    pub fn delta(&self, index: usize) -> i64 {
        self.new[index] - self.old[index]
    }

    /// Appends the changes of keys above all before them.
    pub fn append(&mut self, other: &Self) {
        self.keys.append(&other.keys);
        self.old.extend_from_slice(&other.old);
        self.new.extend_from_slice(&other.new);
    }

    /// Appends a key, above all before it, with its weight before and after the batch.
    pub fn push(&mut self, key: &[u8], old: i64, new: i64) {
        self.keys.push(key, &[]);
        self.old.push(old);
        self.new.push(new);
    }

    /// Index of the first key from `from` on that is not below `bound`. Doubles its step first, so
    /// that bounds that ascend cost the logarithm of the gaps between them.
    fn lower_bound(&self, from: usize, bound: &[u8]) -> usize {
        let (mut low, mut high, mut step) = (from, from, 1);
        while high < self.len() && self.key(high) < bound {
            low = high + 1;
            high = (high + step).min(self.len());
            step *= 2;
        }
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < bound {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Index of `key`.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let index = self.lower_bound(0, key);
        (index < self.len() && self.key(index) == key).then_some(index)
    }

    /// The keys of two batches' changes, ascending, each once.
    pub fn union_of_keys(&self, other: &Self) -> ByteRows {
        self.keys.merged(&other.keys)
    }

    /// The indices of the keys that begin with `prefix`.
    pub fn range_of(&self, prefix: &[u8]) -> std::ops::Range<usize> {
        let start = self.lower_bound(0, prefix);
        let end = match after_prefix(prefix) {
            Some(end) => self.lower_bound(start, &end),
            None => self.len(),
        };
        start..end
    }
}

/// A multiset of rows, kept in the state store.
#[derive(Debug)]
pub struct Bag {
    table: TableId,
    count: RowCount,
    pending: ByteRows,
    pending_weights: Vec<i64>,
    /// Whether what was added is of this batch only; empty where all of it stays.
    pending_passing: Vec<bool>,
    settled: Arc<SettledRows>,
    /// See [`Self::read_due`].
    due_until: Vec<u8>,
}

impl Bag {
    /// The bag of a stable name.
    pub fn new(name: &str) -> Self {
        Self {
            table: TableId::from_name(name),
            count: RowCount::new(name),
            pending: ByteRows::default(),
            pending_weights: Vec::new(),
            pending_passing: Vec::new(),
            settled: Arc::default(),
            due_until: Vec::new(),
        }
    }

    /// The tables it is kept in.
    pub fn tables(&self) -> [TableId; 2] {
        [self.table, self.count.table()]
    }

    /// Adds `weight` copies of `row` under `key`.
    pub fn add(&mut self, key: &[u8], row: &[u8], weight: i64) {
        self.pending.push(key, row);
        self.pending_weights.push(weight);
    }

    /// Adds the rows of a change, under no key.
    pub fn add_change(&mut self, codec: &RowCodec, change: &ChangeBatch) -> Result<()> {
        let rows = codec.encode(change.rows())?;
        for index in 0..change.num_rows() {
            self.add(&[], rows.row(index), change.weight(index));
        }
        Ok(())
    }

    /// Nothing was added since the last settling.
    pub fn is_pending_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// What was added since the last settling, in that order: keys with their rows, and weights.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = (&[u8], i64)> {
        let rows = (0..self.pending.len()).map(|index| self.pending.get(index));
        rows.zip(self.pending_weights.iter().copied())
    }

    /// Says of all that was added, in that order, whether [`Self::let_go_of_passing`] is to let go
    /// of it; the same of equal rows.
    pub fn set_passing(&mut self, passing: Vec<bool>) {
        debug_assert_eq!(passing.len(), self.pending.len(), "a word for each");
        self.pending_passing = passing;
    }

    /// Of the settled rows, those that are of this batch only are not kept. Tells of each, with
    /// its weight as settled.
    pub fn let_go_of_passing(&mut self, mut goes: impl FnMut(&[u8], i64)) {
        if self.settled.passing.is_empty() {
            return;
        }
        let settled = std::mem::take(&mut self.settled);
        let mut kept = SettledRows::default();
        for (index, passes) in settled.passing.iter().enumerate() {
            let (key, old) = (settled.key(index), settled.old_weight(index));
            if !passes {
                kept.push(key, old, settled.new_weight(index));
                continue;
            }
            goes(key, settled.new_weight(index));
            if old != 0 {
                kept.push(key, old, 0);
            }
        }
        self.settled = Arc::new(kept);
    }

    /// Sums up all that was added in this batch and reads the old weight of each changed key.
    /// Once per batch.
    pub fn settle(&mut self, snapshot: &StateSnapshot) -> Result<Arc<SettledRows>> {
        assert!(self.settled.is_empty(), "a bag settles once per batch");
        let pending = std::mem::take(&mut self.pending);
        let weights = std::mem::take(&mut self.pending_weights);
        let passing = std::mem::take(&mut self.pending_passing);
        let mut settled = SettledRows::default();
        let order = pending.sorted_indices();
        let mut position = 0;
        while position < order.len() {
            let first = order[position] as usize;
            let key = pending.get(first);
            let mut delta: i64 = 0;
            while position < order.len() && pending.get(order[position] as usize) == key {
                delta = delta
                    .checked_add(weights[order[position] as usize])
                    .ok_or_else(|| Error::internal("the weight of a row overflows"))?;
                position += 1;
            }
            if delta != 0 {
                settled.keys.push(key, &[]);
                settled.new.push(delta);
                settled.passing.extend(passing.get(first));
            }
        }
        settled.old = self.weights_of(snapshot, &settled.keys)?;
        for (new, old) in settled.new.iter_mut().zip(&settled.old) {
            *new += old;
        }
        self.settled = Arc::new(settled);
        Ok(self.settled.clone())
    }

    /// As [`Self::settle`] where the rows added are known to be new, each by itself: nothing is read.
    pub fn settle_new(&mut self, snapshot: &StateSnapshot) -> Result<Arc<SettledRows>> {
        assert!(self.settled.is_empty(), "a bag settles once per batch");
        let pending = std::mem::take(&mut self.pending);
        let weights = std::mem::take(&mut self.pending_weights);
        let passing = std::mem::take(&mut self.pending_passing);
        let mut settled = SettledRows::default();
        for index in pending.sorted_indices() {
            let index = index as usize;
            settled.push(pending.get(index), 0, weights[index]);
            settled.passing.extend(passing.get(index));
        }
        if cfg!(debug_assertions) {
            let count = settled.len();
            let repeats = (1..count).any(|index| settled.key(index - 1) == settled.key(index));
            let known = self.weights_of(snapshot, &settled.keys)?;
            if repeats || known.iter().any(|weight| *weight != 0) {
                return Err(Error::internal("a row that was to be new is there"));
            }
        }
        self.settled = Arc::new(settled);
        Ok(self.settled.clone())
    }

    /// Takes what another bag of the same name has settled as its own, to be read; it is the other's to
    /// drain.
    pub fn adopt(&mut self, settled: &Arc<SettledRows>) {
        self.settled = Arc::clone(settled);
    }

    /// Replaces what the settled batch does to some keys, such as rows that need not be kept after
    /// all.
    pub fn amend(&mut self, amendments: &SettledRows) {
        let settled = std::mem::take(&mut self.settled);
        let mut merged = SettledRows::default();
        let (mut at, mut amended) = (0, 0);
        while at < settled.len() || amended < amendments.len() {
            let order = if at == settled.len() {
                Ordering::Greater
            } else if amended == amendments.len() {
                Ordering::Less
            } else {
                settled.key(at).cmp(amendments.key(amended))
            };
            let (from, index) = match order {
                Ordering::Less => (settled.as_ref(), at),
                _ => (amendments, amended),
            };
            at += usize::from(order != Ordering::Greater);
            amended += usize::from(order != Ordering::Less);
            if from.delta(index) != 0 {
                let (old, new) = (from.old_weight(index), from.new_weight(index));
                merged.push(from.key(index), old, new);
            }
        }
        self.settled = Arc::new(merged);
    }

    /// What this batch changed, once settled.
    pub fn settled(&self) -> &SettledRows {
        &self.settled
    }

    /// Weights before the batch of `keys` (ascending); 0 where absent.
    pub fn weights_of(&self, snapshot: &StateSnapshot, keys: &ByteRows) -> Result<Vec<i64>> {
        let mut weights = vec![0; keys.len()];
        if keys.is_empty() || !snapshot.may_hold(self.table)? {
            return Ok(weights);
        }
        let reads = weights.par_chunks_mut(KEYS_PER_READ_MAX).enumerate();
        reads.try_for_each(|(number, weights)| -> Result<()> {
            let start = number * KEYS_PER_READ_MAX;
            let mut wanted = BinaryBuilder::new();
            for index in start..start + weights.len() {
                wanted.append_value(keys.get(index));
            }
            let found = snapshot.get_many(self.table, &wanted.finish())?;
            for (place, weight) in weights.iter_mut().enumerate() {
                if found.is_valid(place) {
                    *weight = decode_weight(found.value(place))?;
                }
            }
            Ok(())
        })?;
        Ok(weights)
    }

    /// A reader of the rows under `prefix` before this batch.
    pub fn read_old(&self, snapshot: &StateSnapshot, prefix: &[u8]) -> Result<BagReader> {
        BagReader::new(snapshot, self.table, Arc::default(), prefix)
    }

    /// A reader of the rows from `lower` up to but not including `upper` before this batch, as whole
    /// keys. The caller takes them all out and lets none come in again below `upper`, so that the
    /// next time what is above is read only, and not the traces of what was deleted.
    pub fn read_due(
        &mut self,
        snapshot: &StateSnapshot,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<BagReader> {
        let from = lower.max(&self.due_until);
        let scan = snapshot.scan(self.table, Some(from), Some(from.max(upper)))?;
        if *self.due_until < *upper {
            self.due_until = upper.to_vec();
        }
        BagReader::over(scan, Arc::default(), &[])
    }

    /// A reader of all that [`Self::read_due`] left, with this batch's settled changes.
    pub fn read_rest(&self, snapshot: &StateSnapshot) -> Result<BagReader> {
        let scan = snapshot.scan(self.table, Some(&self.due_until), None)?;
        BagReader::over(scan, self.settled.clone(), &[])
    }

    /// A reader of the rows under `prefix` before this batch, and then of those under further
    /// ones.
    pub fn read_old_from(&self, snapshot: &StateSnapshot, prefix: &[u8]) -> Result<BagReader> {
        let scan = snapshot.scan(self.table, Some(prefix), None)?;
        BagReader::over(scan, Arc::default(), prefix)
    }

    /// As [`Self::read_old_from`] with this batch's settled changes.
    pub fn read_new_from(&self, snapshot: &StateSnapshot, prefix: &[u8]) -> Result<BagReader> {
        let scan = snapshot.scan(self.table, Some(prefix), None)?;
        BagReader::over(scan, self.settled.clone(), prefix)
    }

    /// A reader of the rows under `prefix` with this batch's settled changes.
    pub fn read_new(&self, snapshot: &StateSnapshot, prefix: &[u8]) -> Result<BagReader> {
        BagReader::new(snapshot, self.table, self.settled.clone(), prefix)
    }

    /// What it takes to make readers later, on another thread.
    pub fn reader_source(&self, snapshot: &StateSnapshot) -> BagSource {
        BagSource {
            snapshot: snapshot.clone(),
            table: self.table,
            settled: self.settled.clone(),
        }
    }

    /// The batch's entries: changed weights, and the number of rows kept.
    pub fn drain(&mut self, snapshot: &StateSnapshot) -> Result<Vec<(TableId, Run)>> {
        let settled = std::mem::take(&mut self.settled);
        let (entries, key_bytes) = (settled.len(), settled.keys.bytes());
        // Most weights take a byte.
        let mut writer = RunWriter::new(self.table, entries, key_bytes, entries);
        let (mut growth, mut removed) = (0, 0);
        let mut value = Vec::with_capacity(10);
        for index in 0..entries {
            let new = settled.new_weight(index);
            growth += i64::from(new != 0) - i64::from(settled.old_weight(index) != 0);
            if new == 0 {
                removed += 1;
                writer.delete(settled.key(index));
            } else {
                encode_weight(new, &mut value);
                match settled.old_weight(index) {
                    0 => writer.put_new(settled.key(index), &value),
                    _ => writer.put(settled.key(index), &value),
                }
            }
        }
        let updated = entries as u64 - removed;
        let mut runs = Vec::from_iter(self.count.drain(snapshot, growth, updated, removed)?);
        if entries > 0 {
            runs.push((self.table, writer.finish()));
        }
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    /// Forgets what the failed batch added.
    pub fn reset(&mut self) {
        self.pending = ByteRows::default();
        self.pending_weights = Vec::new();
        self.pending_passing = Vec::new();
        self.settled = Arc::default();
        self.due_until = Vec::new();
        self.count.reset();
    }

    /// Adds its numbers to an operator's.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        self.count.add_statistics(statistics);
        statistics.memory_bytes += self.pending.bytes_held() as u64;
    }
}

/// The entries of several bags, tables ascending.
pub fn drain_all<'a>(
    bags: impl IntoIterator<Item = &'a mut Bag>,
    snapshot: &StateSnapshot,
) -> Result<Vec<(TableId, Run)>> {
    let mut runs = Vec::new();
    for bag in bags {
        runs.extend(bag.drain(snapshot)?);
    }
    runs.sort_by_key(|(table, _)| *table);
    Ok(runs)
}

/// Makes readers of a bag as of one batch; may be sent to another thread.
#[derive(Debug, Clone)]
pub struct BagSource {
    snapshot: StateSnapshot,
    table: TableId,
    settled: Arc<SettledRows>,
}

impl BagSource {
    /// A reader of the rows under `prefix`.
    pub fn read(&self, prefix: &[u8]) -> Result<BagReader> {
        BagReader::new(&self.snapshot, self.table, self.settled.clone(), prefix)
    }
}

/// Rows under a prefix in byte order, each once with its weight (never 0).
pub struct BagReader {
    scan: StateScan,
    /// The scan is at an entry under the prefix.
    scan_valid: bool,
    settled: Arc<SettledRows>,
    /// What is left of the settled rows under the prefix.
    settled_at: usize,
    settled_end: usize,
    prefix: Vec<u8>,
    /// Where the current row is; `None` before the first.
    current: Option<Found>,
    weight: i64,
}

/// Where a row is: in the store, among what the batch settled, or in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Stored,
    Settled,
    Both,
}

impl BagReader {
    fn over(scan: StateScan, settled: Arc<SettledRows>, prefix: &[u8]) -> Result<Self> {
        let mut reader = Self {
            scan,
            scan_valid: false,
            settled,
            settled_at: 0,
            settled_end: 0,
            prefix: Vec::new(),
            current: None,
            weight: 0,
        };
        reader.move_to(prefix)?;
        Ok(reader)
    }

    fn new(
        snapshot: &StateSnapshot,
        table: TableId,
        settled: Arc<SettledRows>,
        prefix: &[u8],
    ) -> Result<Self> {
        let end = after_prefix(prefix);
        let scan = snapshot.scan(table, Some(prefix), end.as_deref())?;
        Self::over(scan, settled, prefix)
    }

    /// Goes over to the rows under another prefix, above the one before. Only of a reader that
    /// [`Bag::read_old_from`] or [`Bag::read_new_from`] gave.
    pub fn move_to(&mut self, prefix: &[u8]) -> Result<()> {
        debug_assert!(*self.prefix <= *prefix, "prefixes ascend");
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.current = None;
        self.scan_valid = self.scan.seek(prefix)?;
        self.settled_at = self.settled.lower_bound(self.settled_at, prefix);
        self.settled_end = match after_prefix(prefix) {
            Some(end) => self.settled.lower_bound(self.settled_at, &end),
            None => self.settled.len(),
        };
        Ok(())
    }

    /// Moves to the next row; false at the end.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if matches!(self.current, Some(Found::Stored | Found::Both)) {
                self.scan_valid = self.scan.advance_within(&self.prefix)?;
            }
            if matches!(self.current, Some(Found::Settled | Found::Both)) {
                self.settled_at += 1;
            }
            self.current = self.find();
            self.weight = match self.current {
                None => return Ok(false),
                Some(Found::Stored) => decode_weight(self.scan.value())?,
                Some(Found::Settled | Found::Both) => self.settled.new_weight(self.settled_at),
            };
            if self.weight != 0 {
                return Ok(true);
            }
        }
    }

    /// Which row comes first of what is stored and what is settled.
    fn find(&self) -> Option<Found> {
        let settled =
            (self.settled_at < self.settled_end).then(|| self.settled.key(self.settled_at));
        let stored = self.scan_valid.then(|| self.scan.key());
        match (stored, settled) {
            (None, None) => None,
            (Some(_), None) => Some(Found::Stored),
            (None, Some(_)) => Some(Found::Settled),
            (Some(stored), Some(settled)) => Some(match stored.cmp(settled) {
                Ordering::Less => Found::Stored,
                Ordering::Equal => Found::Both,
                Ordering::Greater => Found::Settled,
            }),
        }
    }

    /// The current row, without the prefix.
    ///
    /// # Panics
    /// If the last [`Self::advance`] did not give true.
    pub fn row(&self) -> &[u8] {
        let key = match self.current.expect("the reader is at a row") {
            Found::Stored => self.scan.key(),
            Found::Settled | Found::Both => self.settled.key(self.settled_at),
        };
        &key[self.prefix.len()..]
    }

    /// Weight of the current row.
    pub fn weight(&self) -> i64 {
        self.weight
    }
}

/// Zigzag base-128: weights are near zero, so most take one byte.
fn encode_weight(weight: i64, out: &mut Vec<u8>) {
    out.clear();
    let mut rest = ((weight << 1) ^ (weight >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn decode_weight(bytes: &[u8]) -> Result<i64> {
    let damaged = || Error::damaged("a row's weight in the state store cannot be read");
    let mut value: u64 = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if index == 10 {
            return Err(damaged());
        }
        value |= u64::from(byte & 0x7f) << (7 * index as u32);
        if byte & 0x80 == 0 {
            if index + 1 != bytes.len() {
                return Err(damaged());
            }
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(damaged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_survive_their_encoding() {
        let mut bytes = Vec::new();
        for weight in [0, 1, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN] {
            encode_weight(weight, &mut bytes);
            assert_eq!(decode_weight(&bytes).unwrap(), weight);
        }
        assert!(decode_weight(&[]).is_err());
        assert!(decode_weight(&[0x80]).is_err());
        assert!(decode_weight(&[0x01, 0x01]).is_err());
    }

    #[test]
    fn amendments_replace_what_a_batch_does() {
        let settled = |entries: &[(&[u8], i64, i64)]| {
            let mut rows = SettledRows::default();
            for (key, old, new) in entries {
                rows.push(key, *old, *new);
            }
            rows
        };
        let mut bag = Bag::new("b");
        bag.settled = Arc::new(settled(&[(b"a", 0, 2), (b"c", 0, 1), (b"d", 1, 3)]));
        bag.amend(&settled(&[(b"b", 4, 0), (b"c", 0, 0), (b"e", 1, 2)]));
        let after = bag.settled();
        let all: Vec<(&[u8], i64, i64)> = (0..after.len())
            .map(|i| (after.key(i), after.old_weight(i), after.new_weight(i)))
            .collect();
        let expected: [(&[u8], i64, i64); 4] =
            [(b"a", 0, 2), (b"b", 4, 0), (b"d", 1, 3), (b"e", 1, 2)];
        assert_eq!(all, expected);
    }

    #[test]
    fn settled_ranges_find_all_rows_of_a_key() {
        let mut keys = ByteRows::default();
        for key in [&[1, 1][..], &[1, 0xff], &[2], &[2, 0], &[3]] {
            keys.push(key, &[]);
        }
        let count = keys.len();
        let settled = SettledRows {
            keys,
            old: vec![0; count],
            new: vec![1; count],
            passing: Vec::new(),
        };
        assert_eq!(settled.range_of(&[1]), 0..2);
        assert_eq!(settled.range_of(&[2]), 2..4);
        assert_eq!(settled.range_of(&[]), 0..5);
        assert_eq!(settled.range_of(&[9]), 5..5);
    }
}

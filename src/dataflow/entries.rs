//! Sorted entries on their way into a run.
//!
//! Shards each produce their entries of a table in key order; their keys never meet, so the run of
//! the table is a merge of them without comparison of ages.

use std::ops::Range;

use rayon::prelude::*;

use crate::state::{EntryKind, Run, RunBuilder, RunRoom, RunSizes, TableId};

/// Entries of one table in ascending key order, keys without the table prefix.
#[derive(Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// End of key and end of value in `bytes`, and what the entry says.
    ends: Vec<(usize, usize, EntryKind)>,
}

impl Entries {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Makes room for `entries` of about `bytes` in all.
    pub fn reserve(&mut self, entries: usize, bytes: usize) {
        self.ends.reserve(entries);
        self.bytes.reserve(bytes);
    }

    /// Appends a deletion.
    pub fn delete(&mut self, key: &[u8]) {
        self.delete_with(|out| out.extend_from_slice(key));
    }

    /// Appends a deletion whose key `write_key` appends.
    pub fn delete_with(&mut self, write_key: impl FnOnce(&mut Vec<u8>)) {
        write_key(&mut self.bytes);
        let end = self.bytes.len();
        self.ends.push((end, end, EntryKind::Tombstone));
    }

    /// Appends a value that `write` appends.
    pub fn put(&mut self, kind: EntryKind, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.put_with(kind, |out| out.extend_from_slice(key), write);
    }

    /// Appends a value whose key and itself are appended by functions.
    pub fn put_with(
        &mut self,
        kind: EntryKind,
        write_key: impl FnOnce(&mut Vec<u8>),
        write_value: impl FnOnce(&mut Vec<u8>),
    ) {
        write_key(&mut self.bytes);
        let key_end = self.bytes.len();
        write_value(&mut self.bytes);
        self.ends.push((key_end, self.bytes.len(), kind));
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }

    /// Bytes of the keys and of the values of a range.
    fn sizes(&self, range: &Range<usize>) -> (usize, usize) {
        if range.is_empty() {
            return (0, 0);
        }
        let starts = range.clone().map(|index| self.start(index));
        let keys = starts.zip(&self.ends[range.clone()]);
        let key_bytes: usize = keys.map(|(start, end)| end.0 - start).sum();
        let bytes = self.ends[range.end - 1].1 - self.start(range.start);
        (key_bytes, bytes - key_bytes)
    }

    /// First index whose key is not less than `key`.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn leading(&self, index: usize) -> u128 {
        leading_bytes(self.key(index))
    }

    /// Key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index)..self.ends[index].0]
    }

    /// Value of an entry; `None`: deleted.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let (kind, value) = self.says(index);
        (kind != EntryKind::Tombstone).then_some(value)
    }

    fn says(&self, index: usize) -> (EntryKind, &[u8]) {
        let (key_end, value_end, kind) = self.ends[index];
        (kind, &self.bytes[key_end..value_end])
    }
}

/// Builds the run of one table from entries in key order.
#[derive(Debug)]
pub struct RunWriter {
    builder: RunBuilder,
    key: Vec<u8>,
}

impl RunWriter {
    /// A writer with room for `entries` entries of `key_bytes` and `value_bytes` in all.
    pub fn new(table: TableId, entries: usize, key_bytes: usize, value_bytes: usize) -> Self {
        let key = table.0.to_be_bytes().to_vec();
        let key_bytes = key_bytes + entries * key.len();
        Self {
            builder: RunBuilder::with_capacity(entries, key_bytes, value_bytes),
            key,
        }
    }

    fn push(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) {
        self.key.truncate(8);
        self.key.extend_from_slice(key);
        self.builder.push_as(kind, &self.key, value);
    }

    /// Appends a value. Keys come without the table prefix.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(EntryKind::Value, key, value);
    }

    /// Appends a value of a key that was not there.
    pub fn put_new(&mut self, key: &[u8], value: &[u8]) {
        self.push(EntryKind::NewValue, key, value);
    }

    /// Appends a deletion.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(EntryKind::Tombstone, key, &[]);
    }

    /// The run.
    pub fn finish(self) -> Run {
        self.builder.finish()
    }
}

/// Entries below which a merge is not worth a second thread.
const PARALLEL_ENTRIES_MIN: usize = 16 << 10;

/// One run of a table from parts that are each sorted and share no key.
pub fn merge_into_run(table: TableId, parts: &[Entries]) -> Run {
    let whole: Vec<(&Entries, Range<usize>)> =
        parts.iter().map(|part| (part, 0..part.len())).collect();
    let entries: usize = parts.iter().map(Entries::len).sum();
    if entries < PARALLEL_ENTRIES_MIN || rayon::current_num_threads() == 1 {
        return Run::filled(&[sizes_of(&whole)], |mut room| {
            room.iter_mut()
                .for_each(|room| merge_ranges(table, &whole, room));
        });
    }
    // The middle key of the largest part cuts all of them.
    let largest = parts.iter().max_by_key(|part| part.len());
    let pivot = largest.map_or(&[][..], |part| part.key(part.len() / 2));
    let halves: (Vec<_>, Vec<_>) = whole
        .iter()
        .map(|(part, range)| {
            let cut = part.lower_bound(pivot);
            ((*part, range.start..cut), (*part, cut..range.end))
        })
        .unzip();
    let halves = [halves.0, halves.1];
    let sizes = halves.each_ref().map(|half| sizes_of(half));
    Run::filled(&sizes, |mut room| {
        let work = room.par_iter_mut().zip(&halves);
        work.for_each(|(room, half)| merge_ranges(table, half, room));
    })
}

fn sizes_of(parts: &[(&Entries, Range<usize>)]) -> RunSizes {
    let mut sizes = RunSizes::default();
    for (part, range) in parts {
        let (keys, values) = part.sizes(range);
        sizes.entries += range.len();
        sizes.key_bytes += keys + 8 * range.len();
        sizes.value_bytes += values;
    }
    sizes
}

fn merge_ranges(table: TableId, parts: &[(&Entries, Range<usize>)], room: &mut RunRoom<'_>) {
    let prefix = table.0.to_be_bytes();
    let live = parts.iter().filter(|(_, range)| !range.is_empty());
    let mut heads: Vec<(u128, Range<usize>, &Entries)> = live
        .map(|(part, range)| (part.leading(range.start), range.clone(), *part))
        .collect();
    // Few shards: the smallest head is found by looking at all of them.
    while let Some(smallest) = (0..heads.len()).min_by(|&a, &b| {
        let (a, b) = (&heads[a], &heads[b]);
        a.0.cmp(&b.0)
            .then_with(|| a.2.key(a.1.start).cmp(b.2.key(b.1.start)))
    }) {
        let (leading, range, part) = &mut heads[smallest];
        let (kind, value) = part.says(range.start);
        room.push(prefix, kind, part.key(range.start), value);
        range.start += 1;
        if range.start == range.end {
            heads.swap_remove(smallest);
        } else {
            *leading = part.leading(range.start);
        }
    }
}

/// The first sixteen bytes as a number that compares as they do; shorter keys are filled with
/// zeros.
pub fn leading_bytes(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    let length = key.len().min(16);
    head[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_merge_alike_on_one_thread_and_on_two() {
        for entries in [0u64, 1, 5, 1000, 40_000] {
            let mut parts: Vec<Entries> = (0..3).map(|_| Entries::default()).collect();
            let mut expected = Vec::new();
            for key in 0..entries {
                // Unequal parts, keys of unequal length, some deletions.
                let part = &mut parts[[0, 0, 1, 0, 2][(key % 5) as usize]];
                let bytes = [&key.to_be_bytes()[..], &b"xyz"[..(key % 4) as usize]].concat();
                if key % 7 == 3 {
                    part.delete(&bytes);
                } else {
                    part.put(EntryKind::Value, &bytes, |value| {
                        value.extend_from_slice(&key.to_le_bytes())
                    });
                }
                expected.push((bytes, (key % 7 != 3).then(|| key.to_le_bytes().to_vec())));
            }
            let run = merge_into_run(TableId(9), &parts);
            let found: Vec<_> = (0..run.len())
                .map(|i| (run.key(i)[8..].to_vec(), run.value(i).map(<[u8]>::to_vec)))
                .collect();
            assert!(found == expected, "{entries} entries");
        }
    }
}

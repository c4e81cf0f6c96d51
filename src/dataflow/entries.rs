//! Sorted entries on their way into a run.
//!
//! Shards each produce their entries of a table in key order; their keys never meet, so the run of
//! the table is a merge of them without comparison of ages.

use crate::state::{Run, RunBuilder, TableId};

/// Entries of one table in ascending key order, keys without the table prefix.
#[derive(Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// End of key and end of value in `bytes`, and whether the entry is a value.
    ends: Vec<(usize, usize, bool)>,
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
        self.bytes.extend_from_slice(key);
        self.ends.push((self.bytes.len(), self.bytes.len(), false));
    }

    /// Appends an entry whose value `write` appends.
    pub fn put(&mut self, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        write(&mut self.bytes);
        self.ends.push((key_end, self.bytes.len(), true));
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }

    fn key_bytes(&self) -> usize {
        (0..self.len())
            .map(|index| self.ends[index].0 - self.start(index))
            .sum()
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
        let (key_end, value_end, is_value) = self.ends[index];
        is_value.then(|| &self.bytes[key_end..value_end])
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

    /// Appends an entry; `None`: a deletion. Keys come without the table prefix.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.key.truncate(8);
        self.key.extend_from_slice(key);
        self.builder.push(&self.key, value);
    }

    /// Appends a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, Some(value));
    }

    /// Appends a deletion.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(key, None);
    }

    /// The run.
    pub fn finish(self) -> Run {
        self.builder.finish()
    }
}

/// One run of a table from parts that are each sorted and share no key.
pub fn merge_into_run(table: TableId, parts: &[Entries]) -> Run {
    let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
    let entries: usize = parts.iter().map(Entries::len).sum();
    let key_bytes: usize = parts.iter().map(Entries::key_bytes).sum();
    let mut writer = RunWriter::new(table, entries, key_bytes, bytes - key_bytes);
    let live = parts.iter().filter(|part| !part.is_empty());
    let mut heads: Vec<(u128, usize, &Entries)> = live.map(|p| (p.leading(0), 0, p)).collect();
    // Few shards: the smallest head is found by looking at all of them.
    while let Some(smallest) = (0..heads.len()).min_by(|&a, &b| {
        let (a, b) = (&heads[a], &heads[b]);
        a.0.cmp(&b.0).then_with(|| a.2.key(a.1).cmp(b.2.key(b.1)))
    }) {
        let (_, index, part) = heads[smallest];
        writer.push(part.key(index), part.value(index));
        if index + 1 < part.len() {
            heads[smallest] = (part.leading(index + 1), index + 1, part);
        } else {
            heads.swap_remove(smallest);
        }
    }
    writer.finish()
}

/// The first sixteen bytes as a number that compares as they do; shorter keys are filled with
/// zeros.
pub fn leading_bytes(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    let length = key.len().min(16);
    head[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(head)
}

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

/// One run of a table from parts that are each sorted and share no key.
pub fn merge_into_run(table: TableId, parts: &[Entries]) -> Run {
    let mut builder = RunBuilder::new();
    let mut key = table.0.to_be_bytes().to_vec();
    let mut heads: Vec<(&[u8], usize, &Entries)> = parts
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| (part.key(0), 0, part))
        .collect();
    // Few shards: the smallest head is found by looking at all of them.
    while let Some(smallest) = (0..heads.len()).min_by_key(|&i| heads[i].0) {
        let (head, index, part) = heads[smallest];
        key.truncate(8);
        key.extend_from_slice(head);
        builder.push(&key, part.value(index));
        if index + 1 < part.len() {
            heads[smallest] = (part.key(index + 1), index + 1, part);
        } else {
            heads.swap_remove(smallest);
        }
    }
    builder.finish()
}

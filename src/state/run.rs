//! A sorted immutable run: unique keys in byte order, each with a value or a tombstone.

use crate::error::Result;

/// Entries sorted by key; keys unique; `None` value = deleted. Cheap to share behind `Arc`.
#[derive(Debug, Default)]
pub struct Run {
    key_offsets: Vec<u64>,
    keys: Vec<u8>,
    value_offsets: Vec<u64>,
    values: Vec<u8>,
    tombstones: Vec<bool>,
}

/// Builds a run from entries that come in key order.
#[derive(Debug, Default)]
pub struct RunBuilder {
    run: Run,
}

impl RunBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry; `key` (with its table prefix) must be greater than the last one.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let _ = (key, value, &mut self.run);
        unimplemented!()
    }

    /// The finished run.
    pub fn finish(self) -> Run {
        self.run
    }
}

impl Run {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.tombstones.len()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + 17 * self.len()
    }

    /// Key `index` with its table prefix.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.keys[self.key_offsets[index] as usize..self.key_offsets[index + 1] as usize]
    }

    /// Value `index`; `None` for a tombstone.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let _ = (index, &self.values, &self.value_offsets);
        unimplemented!()
    }

    /// Concatenates runs whose key ranges do not overlap and ascend (one per operator table).
    pub fn concat(runs: Vec<Run>) -> Run {
        let _ = runs;
        unimplemented!()
    }

    /// Merges runs, newest first; the newest entry of a key wins. `drop_tombstones` when nothing
    /// older lies below.
    pub fn merge(newest_first: &[&Run], drop_tombstones: bool) -> Run {
        let _ = (newest_first, drop_tombstones);
        unimplemented!()
    }

    /// File form: blocks with checksums, an index and a footer (`checkpoint` documents it).
    pub fn encode(&self) -> Vec<u8> {
        unimplemented!()
    }

    /// Reads the file form; any damage is an error of kind `Damaged` that names the block.
    pub fn decode(bytes: &[u8]) -> Result<Run> {
        let _ = bytes;
        unimplemented!()
    }
}

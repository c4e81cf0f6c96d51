//! A small durable key-value store for the catalog's history: metrics rows, events, dead letters.
//!
//! One RocksDB with its own write-ahead log, since these rows come one at a time and must survive
//! a crash, while a lost tail is written again from the checkpoints' commit entries.

use std::path::Path;

use crate::error::Result;

/// Ordered key-value pairs on disk.
#[derive(Debug)]
pub struct SystemStore {}

impl SystemStore {
    /// Opens or creates the store in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let _ = dir;
        unimplemented!()
    }

    /// Writes pairs as one; `sync` forces them to disk before it returns.
    pub fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)], sync: bool) -> Result<()> {
        let _ = (pairs, sync);
        unimplemented!()
    }

    /// Pairs with `lower <= key < upper`, in key order (descending with `reverse`), at most `limit`.
    pub fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let _ = (lower, upper, reverse, limit);
        unimplemented!()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _ = key;
        unimplemented!()
    }

    /// Deletes `lower <= key < upper`.
    pub fn delete_range(&self, lower: &[u8], upper: &[u8]) -> Result<()> {
        let _ = (lower, upper);
        unimplemented!()
    }
}

//! The state store of one pipeline: memory tier over RocksDB.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::BinaryArray;

use super::{MemoryBudget, Run, TableId};
use crate::error::Result;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StateStoreOptions {
    /// Shared budget; the memory tier spills to RocksDB when it is over.
    pub budget: Arc<MemoryBudget>,
    /// Bytes of the memory tier at which it spills even under budget; bounds the replay of runs
    /// at a restart.
    pub spill_bytes: usize,
}

/// Numbers for the system tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateStoreStats {
    /// Bytes in the memory tier.
    pub memory_bytes: u64,
    /// Bytes of SST files on disk.
    pub disk_bytes: u64,
    /// Runs in the memory tier.
    pub memory_runs: u64,
}

/// A pipeline's state. Cheap to share; readers take snapshots and never block the writer.
#[derive(Debug)]
pub struct StateStore {
    dir: PathBuf,
}

impl StateStore {
    /// Opens the store in `dir` (created when missing; RocksDB itself opens at the first spill or
    /// when files are there). `identity` is the checkpoint id the files must belong to: others'
    /// files are an error of kind `Damaged`.
    pub fn open(dir: &Path, identity: uuid::Uuid, options: StateStoreOptions) -> Result<Self> {
        let _ = (identity, options);
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// The batch whose state the cold tier holds whole; `None`: it is empty. The caller applies
    /// the runs after it, in order, then the store is at the newest batch.
    pub fn cold_batch(&self) -> Option<u64> {
        unimplemented!()
    }

    /// Makes the run of `batch_id` part of the state and publishes it to new snapshots. Called
    /// after the batch is durable in the checkpoint. Spills when over budget.
    pub fn apply(&self, batch_id: u64, run: Arc<Run>) -> Result<()> {
        let _ = (batch_id, run);
        unimplemented!()
    }

    /// Loads base runs at a restore, oldest first, straight into the cold tier.
    pub fn ingest_base(&self, batch_id: u64, run: Run) -> Result<()> {
        let _ = (batch_id, run);
        unimplemented!()
    }

    /// The state as of the last applied batch.
    pub fn snapshot(&self) -> StateSnapshot {
        unimplemented!()
    }

    /// Deletes all local files; the next open starts empty (they are a cache of the checkpoint).
    pub fn destroy(dir: &Path) -> Result<()> {
        let _ = dir;
        unimplemented!()
    }

    /// Numbers for the system tables.
    pub fn stats(&self) -> StateStoreStats {
        let _ = &self.dir;
        unimplemented!()
    }
}

/// An immutable view of the state at a batch; `Clone` is cheap.
#[derive(Debug, Clone)]
pub struct StateSnapshot {}

impl StateSnapshot {
    /// The batch it shows; `None` before the first.
    pub fn batch_id(&self) -> Option<u64> {
        unimplemented!()
    }

    /// Values of `keys` (ascending, without the table prefix); null where absent.
    pub fn get_many(&self, table: TableId, keys: &BinaryArray) -> Result<BinaryArray> {
        let _ = (table, keys);
        unimplemented!()
    }

    /// Entries of a table with `lower <= key < upper` (without the prefix; `None`: unbounded), in
    /// key order, tombstones resolved.
    pub fn scan(
        &self,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<StateScan> {
        let _ = (table, lower, upper);
        unimplemented!()
    }

    /// No entry in the table; cheap.
    pub fn is_table_empty(&self, table: TableId) -> Result<bool> {
        let _ = table;
        unimplemented!()
    }
}

/// A merged scan. Not an `Iterator`, so that entries borrow instead of being copied.
#[derive(Debug)]
pub struct StateScan {}

impl StateScan {
    /// Moves to the next entry; false at the end.
    pub fn advance(&mut self) -> Result<bool> {
        unimplemented!()
    }

    /// Key of the current entry, without the table prefix.
    pub fn key(&self) -> &[u8] {
        unimplemented!()
    }

    /// Value of the current entry.
    pub fn value(&self) -> &[u8] {
        unimplemented!()
    }
}

//! State: sorted immutable runs in memory, RocksDB below, one store per pipeline.
//!
//! ```text
//!   operators ──sorted entries──► Run of batch N ──► checkpoint (state/N.run)
//!                                      │ apply
//!                                      ▼
//!        ┌ memory tier: Run N, Run N-1, merged Run …      (newest wins)
//!        └ cold tier: RocksDB, fed only by ingested SST files; holds batch F ≤ N whole
//! ```
//!
//! Why so: RocksDB written per row is 16 times slower than ingesting sorted files, and a memtable
//! would need a log of its own. Here the checkpoint's runs are the log: after a crash the cold
//! tier stands at exactly batch F (an ingest is atomic and carries the batch id), and the runs
//! F+1..N are read back from the checkpoint as the memory tier.
//!
//! This is the only module that touches RocksDB. It knows no operators, views or offsets.

mod cold;
pub mod key_range;
mod look_up;
pub mod memory;
mod mirror;
mod packed;
pub mod run;
pub mod run_file;
mod run_room;
pub mod snapshot;
pub mod store;
pub mod system;
mod tier;

pub use key_range::{KeyRange, WantedEntries, WantedKeys};
pub use memory::MemoryBudget;
pub(crate) use memory::{GivesBack, MemoryCharge};
pub use run::{EntryKind, Run, RunBuilder};
pub use run_room::{RunRoom, RunSizes};
pub use snapshot::{StateScan, StateSnapshot};
pub use store::{BaseLoader, StateStore, StateStoreOptions, StateStoreStats};
pub use system::SystemStore;

/// Identity of a state table: the first eight bytes (big endian) of every key in the store.
/// Derived from stable names, so that adding an operator moves no other's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl TableId {
    /// The id of a name such as `v_counts/aggregate_0/groups`: FNV-1a, 64 bit
    /// (<http://www.isthe.com/chongo/tech/comp/fnv/>), never 0, which the store keeps for itself.
    pub fn from_name(name: &str) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in name.bytes() {
            hash ^= u64::from(byte);
            hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash.max(1))
    }
}

#[cfg(test)]
mod tests;

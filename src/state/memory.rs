//! The memory budget that all pipelines share (`--memory-limit`).
//!
//! Users account for what they hold and ask whether to shed; nothing is taken from them by force.
//! The block cache of the cold tiers is part of the budget: one cache for the whole process, made
//! when the first store opens RocksDB, its capacity counted as used from then on.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Share of the limit that the block cache gets, as a divisor.
const CACHE_DIVISOR: usize = 4;
/// The block cache is never smaller: index and filter blocks live in it.
const CACHE_BYTES_MIN: usize = 8 << 20;
/// Nor larger: beyond it the kernel's page cache serves as well.
const CACHE_BYTES_MAX: usize = 1 << 30;

/// A budget in bytes; users account for what they hold and shed when asked.
pub struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    block_cache: OnceLock<rocksdb::Cache>,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("limit_bytes", &self.limit_bytes)
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// A budget of `limit_bytes` for all state of the process.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            block_cache: OnceLock::new(),
        })
    }

    /// The whole budget.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Accounts for growth (positive) or release (negative).
    pub fn account(&self, delta_bytes: isize) {
        if delta_bytes >= 0 {
            self.used_bytes
                .fetch_add(delta_bytes as usize, Ordering::Relaxed);
        } else {
            self.used_bytes
                .fetch_sub(delta_bytes.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Bytes in use by all.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// More is in use than allowed: whoever asks must shed (spill runs, drop resident groups).
    pub fn is_over(&self) -> bool {
        self.used_bytes() > self.limit_bytes
    }

    /// The block cache of all cold tiers; a quarter of the limit, within bounds.
    pub(super) fn block_cache(&self) -> &rocksdb::Cache {
        self.block_cache.get_or_init(|| {
            let capacity =
                (self.limit_bytes / CACHE_DIVISOR).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX);
            self.account(capacity as isize);
            rocksdb::Cache::new_lru_cache(capacity)
        })
    }
}

/// Bytes accounted for until it is dropped.
#[derive(Debug)]
pub(super) struct MemoryCharge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryCharge {
    pub(super) fn new(budget: &Arc<MemoryBudget>, bytes: usize) -> Self {
        budget.account(bytes as isize);
        Self {
            budget: Arc::clone(budget),
            bytes,
        }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.budget.account(-(self.bytes as isize));
    }
}

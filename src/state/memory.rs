//! The memory budget that all pipelines share (`--memory-limit`).
//!
//! Users account for what they hold and ask whether to shed; nothing is taken from them by force but
//! mirrors of the cold tiers, which are copies.
//! The block cache of the cold tiers is part of the budget: one cache for the whole process, made
//! when the first store opens RocksDB, its capacity counted as used from then on.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

/// Share of the limit that the block cache gets, as a divisor.
const CACHE_DIVISOR: usize = 4;
/// Share of the limit, as a divisor, that copies leave free.
const ROOM_DIVISOR: usize = 4;
/// The block cache is never smaller: index and filter blocks live in it.
const CACHE_BYTES_MIN: usize = 8 << 20;
/// Nor larger: beyond it the kernel's page cache serves as well.
const CACHE_BYTES_MAX: usize = 1 << 30;

/// A budget in bytes; users account for what they hold and shed when asked.
pub struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    block_cache: OnceLock<rocksdb::Cache>,
    copies: Mutex<Vec<Weak<dyn GivesBack>>>,
}

/// Holds copies in memory that it can do without.
pub(crate) trait GivesBack: Send + Sync {
    /// Lets go of them.
    fn give_back(&self);
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
            copies: Mutex::default(),
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

    /// More is in use than allowed.
    pub fn is_over(&self) -> bool {
        self.used_bytes() > self.limit_bytes
    }

    /// Takes back what are only copies if more is in use than allowed. False: it still is, and
    /// whoever asks must shed (spill runs, drop resident groups).
    pub fn make_room(&self) -> bool {
        if !self.is_over() {
            return true;
        }
        let holders: Vec<_> = {
            let mut copies = self.copies.lock();
            copies.retain(|holder| holder.strong_count() > 0);
            copies.iter().filter_map(Weak::upgrade).collect()
        };
        for holder in holders {
            holder.give_back();
        }
        !self.is_over()
    }

    /// Copies of so many bytes more leave enough to those that work.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.room_for_copies()
    }

    /// There could be room for so many bytes of copies once others let go of all they have.
    pub(super) fn may_have_room(&self, bytes: usize) -> bool {
        self.cache_bytes().saturating_add(bytes) <= self.room_for_copies()
    }

    fn room_for_copies(&self) -> usize {
        self.limit_bytes / ROOM_DIVISOR * (ROOM_DIVISOR - 1)
    }

    fn cache_bytes(&self) -> usize {
        (self.limit_bytes / CACHE_DIVISOR).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX)
    }

    /// `holder` has copies; it is asked for them when memory is short.
    pub(crate) fn may_ask(&self, holder: Weak<dyn GivesBack>) {
        let mut copies = self.copies.lock();
        copies.retain(|holder| holder.strong_count() > 0);
        copies.push(holder);
    }

    /// The block cache of all cold tiers; a quarter of the limit, within bounds.
    pub(super) fn block_cache(&self) -> &rocksdb::Cache {
        self.block_cache.get_or_init(|| {
            let capacity = self.cache_bytes();
            self.account(capacity as isize);
            rocksdb::Cache::new_lru_cache(capacity)
        })
    }
}

/// Bytes accounted for until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryCharge {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, bytes: usize) -> Self {
        budget.account(bytes as isize);
        Self {
            budget: Arc::clone(budget),
            bytes,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Accounts for more.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.budget.account(bytes as isize);
        self.bytes += bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.budget.account(-(self.bytes as isize));
    }
}

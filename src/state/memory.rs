//! The memory budget that all pipelines share (`--memory-limit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A budget in bytes; users account for what they hold and shed when asked.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `limit_bytes` for all state of the process.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
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
}

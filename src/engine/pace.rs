//! `max_batch_duration`: what a batch may take so that it ends in time. The rule itself is
//! [`decide::pace`]; here it is only remembered from batch to batch.

use std::time::Duration;

use super::decide;
use crate::connectors::ReadLimits;

/// What the batches so far have taught; without a target nothing is learnt and nothing limited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    rows: Option<u64>,
    bytes: Option<u64>,
}

impl Pace {
    /// Learns from a batch: the rows and bytes that it took in, and its time.
    pub fn learn(&mut self, (rows, bytes): (u64, u64), duration: Duration, target: Duration) {
        self.rows = decide::pace(self.rows, rows, duration, target);
        self.bytes = decide::pace(self.bytes, bytes, duration, target);
    }

    /// What each of `sources` may give to the next batch.
    pub fn limits(&self, sources: u64) -> ReadLimits {
        let share = |whole: u64| (whole / sources.max(1)).max(1);
        ReadLimits {
            max_rows: self.rows.map(share),
            max_files: None,
            max_bytes: self.bytes.map(share),
        }
    }
}

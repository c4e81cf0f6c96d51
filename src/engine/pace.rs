//! What a batch may take so that it ends in time (`max_batch_duration`) and fits into memory. The
//! rules themselves are [`decide::pace`] and [`decide::limits_of_memory`]; here it is only
//! remembered from batch to batch what they go by.

use std::time::Duration;

use super::decide;
use crate::connectors::ReadLimits;

/// What the batches so far have taught; without a target nothing is learnt and nothing limited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    rows: Option<u64>,
    bytes: Option<u64>,
    /// Bytes of state written for each row taken.
    written_bytes: Option<u64>,
}

/// Batches of fewer rows tell nothing about the size of a row's state.
const TELLING_ROWS_MIN: u64 = 256;

impl Pace {
    /// Learns from a batch: the rows and bytes that it took in, and its time.
    pub fn learn(
        &mut self,
        (rows, bytes): (u64, u64),
        duration: Duration,
        target: Duration,
        sources: usize,
    ) {
        self.rows = decide::pace(self.rows, rows, duration, target, sources);
        self.bytes = decide::pace(self.bytes, bytes, duration, target, sources);
    }

    /// Learns from a batch what the state takes for a row. A larger size counts at once, a smaller
    /// one by and by: rows of one kind may come in turns.
    pub fn learn_written(&mut self, rows: u64, bytes: u64) {
        if rows >= TELLING_ROWS_MIN {
            let before = self.written_bytes.unwrap_or(0);
            self.written_bytes = Some(bytes.div_ceil(rows).max(before / 4 * 3));
        }
    }

    /// Bytes of state written for each row taken; `None`: not known yet.
    pub fn written_bytes(&self) -> Option<u64> {
        self.written_bytes
    }

    /// What the next batch may take of all its sources together.
    pub fn limits(&self) -> ReadLimits {
        ReadLimits {
            max_rows: self.rows,
            max_files: None,
            max_bytes: self.bytes,
        }
    }
}

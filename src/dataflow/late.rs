//! Rows that came after their window was closed, kept for people to look at.
//!
//! Every late row is counted; of a batch's only the first [`ROWS_KEPT_MAX`] of an operator are
//! kept, so that a flood of them costs no more than a few kilobytes.

use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute;

use super::change::ChangeBatch;
use crate::error::Result;

/// Rows of one batch that an operator keeps.
const ROWS_KEPT_MAX: usize = 1_000;

/// Late rows as they reached the operator.
#[derive(Debug, Clone)]
pub struct LateBatch {
    /// The rows.
    pub rows: RecordBatch,
    /// The event time (of a window: the bound that the view groups by) of each, in the
    /// watermark's unit.
    pub times: Int64Array,
}

/// The late rows of one operator and batch.
#[derive(Debug, Default)]
pub struct LateRows {
    batches: Vec<LateBatch>,
    rows: usize,
}

impl LateRows {
    /// Keeps the rows of a change that are not in time, while there is room. A row ends
    /// `end_offset` after its time.
    pub fn keep(
        &mut self,
        change: &ChangeBatch,
        ends: &Int64Array,
        end_offset: i64,
        in_time: &BooleanArray,
    ) -> Result<()> {
        let room = ROWS_KEPT_MAX - self.rows;
        if room == 0 {
            return Ok(());
        }
        let late = compute::not(in_time)?;
        let rows = compute::filter_record_batch(change.rows(), &late)?;
        let times: Int64Array = (0..change.num_rows())
            .filter(|&row| late.value(row))
            .map(|row| Some(ends.value(row).saturating_sub(end_offset)))
            .collect();
        let count = rows.num_rows().min(room);
        self.rows += count;
        self.batches.push(LateBatch {
            rows: rows.slice(0, count),
            times: times.slice(0, count),
        });
        Ok(())
    }

    /// Gives them away.
    pub fn take(&mut self) -> Vec<LateBatch> {
        self.rows = 0;
        std::mem::take(&mut self.batches)
    }
}

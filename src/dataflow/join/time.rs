//! State that a watermark frees: rows that no row in time can match any more.
//!
//! ```text
//!   ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 1 hour
//!     a left row is of use until the watermark reaches  l.t + 1 hour
//!     a right row until it reaches                      r.t
//! ```
//!
//! An index of (time, key, row) says which rows are due. They leave the state without a trace in
//! the output: their pairs were sent, and whether they had a match is settled. So that this
//! holds, rows behind the watermark are left out on both sides, and counted.

use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};

use super::{Join, Side};
use crate::dataflow::bag::{Bag, SettledRows};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::keyed::{split_key, weights_around};
use crate::dataflow::number::sortable_bytes;
use crate::dataflow::operator::BatchContext;
use crate::error::Result;

/// How a side's rows lie to the watermark. Microseconds, or the integer time's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideTime {
    /// The side's column of event time.
    pub column: usize,
    /// A row is late when its time plus this is at or below the watermark.
    pub late_after: i64,
    /// No row in time matches it any more when its time plus this is at or below the watermark;
    /// never less than `late_after`. `None`: that is not known.
    pub free_after: Option<i64>,
}

impl Side {
    /// The times of a change's rows.
    pub(super) fn times(time: SideTime, change: &ChangeBatch) -> Result<Int64Array> {
        let column = cast(change.rows().column(time.column), &DataType::Int64)?;
        Ok(column.as_primitive::<Int64Type>().clone())
    }

    /// Remembers when the batch's rows are due. Those that the next batch would free are of this
    /// batch only: they meet what is there, and are not kept.
    fn note_dues(&mut self, free_after: i64, next_watermark: Option<i64>) {
        let times = std::mem::take(&mut self.times);
        let Some(dues) = &mut self.dues else { return };
        let passes = |time: Option<i64>| {
            let due = time.map(|time| time.saturating_add(free_after));
            due.is_some_and(|due| next_watermark.is_some_and(|next| due <= next))
        };
        let mut passing = Vec::new();
        let mut passing_dues = Vec::new();
        for ((entry, weight), time) in self.rows.pending().zip(times) {
            let passes = passes(time);
            passing.push(passes);
            // A row without a time passes no condition on it, but the condition need not be the
            // only one under which it goes out: it stays.
            let Some(time) = time else { continue };
            // One that may be there already has been noted; this is taken back.
            if !(passes && self.are_new) {
                dues.add(&sortable_bytes(time), entry, weight);
                passing_dues.push(passes);
            }
        }
        if passing.contains(&true) {
            self.rows.set_passing(passing);
            dues.set_passing(passing_dues);
        }
    }

    /// Lets go of the rows that are of this batch only, with what was counted for them.
    fn let_go_of_passing(&mut self, context: &BatchContext) -> Result<()> {
        if let Some(dues) = &mut self.dues {
            dues.let_go_of_passing(|_, _| ());
        }
        let is_counted = self.matches.is_some() || self.totals.is_some();
        let mut entries = Vec::new();
        self.rows.let_go_of_passing(|entry, weight| {
            if is_counted {
                entries.push((entry.to_vec(), weight));
            }
        });
        if entries.is_empty() {
            return Ok(());
        }
        if let Some(matches) = &mut self.matches {
            forget(matches, &entries, context)?;
        }
        match &mut self.totals {
            Some(totals) => lower(totals, &entries, context),
            None => Ok(()),
        }
    }
}

impl Join {
    /// Remembers when the batch's rows are due, before they are settled.
    pub(super) fn note_dues(&mut self, context: &BatchContext) {
        let Some(times) = self.spec.times else { return };
        for (side, time) in self.sides.iter_mut().zip(times) {
            if let Some(free_after) = time.free_after {
                side.note_dues(free_after, context.next_watermark);
            }
        }
    }

    /// The rows of a change that are in time; counts the others.
    pub(super) fn in_time(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
    ) -> Result<ChangeBatch> {
        let (Some(times), Some(watermark)) = (self.spec.times, context.watermark) else {
            return Ok(change);
        };
        let time = times[port];
        let values = Side::times(time, &change)?;
        let late = |index: usize| {
            values.is_valid(index)
                && values.value(index).saturating_add(time.late_after) <= watermark
        };
        let dropped: u64 = (0..change.num_rows())
            .filter(|index| late(*index))
            .map(|index| change.weight(index).unsigned_abs())
            .sum();
        if dropped == 0 {
            return Ok(change);
        }
        self.numbers.of(context).late_rows += dropped;
        let keep: BooleanArray = (0..change.num_rows()).map(|i| Some(!late(i))).collect();
        change.filter(&keep)
    }

    /// Takes the rows that are due out of the settled state; nothing is emitted for them.
    pub(super) fn free(&mut self, context: &BatchContext) -> Result<()> {
        self.settle_dues(context)?;
        for side in &mut self.sides {
            side.let_go_of_passing(context)?;
        }
        let (Some(times), Some(watermark)) = (self.spec.times, context.watermark) else {
            return Ok(());
        };
        for (side, time) in self.sides.iter_mut().zip(times) {
            let (Some(dues), Some(free_after)) = (&mut side.dues, time.free_after) else {
                continue;
            };
            let Some(above) = watermark.saturating_sub(free_after).checked_add(1) else {
                continue;
            };
            // What is due is late too: the batch cannot have touched it, so that it goes with the
            // weight that it has before the batch.
            let mut due = dues.read_due(&context.snapshot, &[], &sortable_bytes(above))?;
            let mut due_rows = SettledRows::default();
            let mut entries: Vec<(Vec<u8>, i64)> = Vec::new();
            while due.advance()? {
                due_rows.push(due.row(), due.weight(), 0);
                entries.push((due.row()[8..].to_vec(), due.weight()));
            }
            if entries.is_empty() {
                continue;
            }
            dues.amend(&due_rows);
            entries.sort_unstable();
            let mut rows = SettledRows::default();
            for (entry, weight) in &entries {
                rows.push(entry, *weight, 0);
            }
            side.rows.amend(&rows);
            if let Some(matches) = &mut side.matches {
                forget(matches, &entries, context)?;
            }
            if let Some(totals) = &mut side.totals {
                lower(totals, &entries, context)?;
            }
        }
        Ok(())
    }

    fn settle_dues(&mut self, context: &BatchContext) -> Result<()> {
        for side in &mut self.sides {
            let Some(dues) = &mut side.dues else { continue };
            match side.are_new {
                true => dues.settle_new(&context.snapshot)?,
                false => dues.settle(&context.snapshot)?,
            };
        }
        Ok(())
    }
}

/// Takes entries (ascending, with their rows' weights) out of a settled bag.
fn forget(bag: &mut Bag, entries: &[(Vec<u8>, i64)], context: &BatchContext) -> Result<()> {
    let mut keys = ByteRows::default();
    entries.iter().for_each(|(entry, _)| keys.push(entry, &[]));
    let around = weights_around(bag, &keys, context)?;
    let mut amendments = SettledRows::default();
    for ((entry, _), (before, _)) in entries.iter().zip(&around) {
        amendments.push(entry, *before, 0);
    }
    bag.amend(&amendments);
    Ok(())
}

/// Takes the weights of freed entries off the sums of their keys.
fn lower(totals: &mut Bag, entries: &[(Vec<u8>, i64)], context: &BatchContext) -> Result<()> {
    let mut keys = ByteRows::default();
    let mut sums: Vec<i64> = Vec::new();
    for (entry, weight) in entries {
        let key = split_key(entry).0;
        if keys.is_empty() || keys.get(keys.len() - 1) != key {
            keys.push(key, &[]);
            sums.push(0);
        }
        if let Some(sum) = sums.last_mut() {
            *sum += weight;
        }
    }
    let around = weights_around(totals, &keys, context)?;
    let mut amendments = SettledRows::default();
    for ((key, sum), (before, after)) in keys.iter().zip(sums).zip(around) {
        amendments.push(key, before, after - sum);
    }
    totals.amend(&amendments);
    Ok(())
}

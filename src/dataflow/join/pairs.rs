//! The pairs that a change of one side makes with the other side's rows.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;

use super::{Alone, Join, LeftRows};
use crate::dataflow::bag::{Bag, SettledRows};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::consolidate::ROWS_PER_BATCH;
use crate::dataflow::expression::as_condition;
use crate::dataflow::keyed::{KeyedReader, key_ranges, split_key};
use crate::dataflow::operator::BatchContext;
use crate::dataflow::rows::rebatch;
use crate::error::Result;

/// A candidate: a changed row and a row of the other side under the same key.
struct Pair {
    /// Index into the buffer's changed rows, and of its entry in the settled changes.
    changed: u32,
    entry: usize,
    /// Index into the buffer's other rows.
    other: u32,
    other_weight: i64,
    /// The other row is still there after the batch, so that its match count goes on.
    other_stays: bool,
}

/// Candidates gathered until they make a batch.
#[derive(Default)]
struct PairBuffer {
    changed: ByteRows,
    /// Where the rows of the current key's changes lie in `changed`, from its first entry on.
    changed_at: Vec<Option<u32>>,
    others: ByteRows,
    /// Full bytes (key and row) of `others`, for the match counts.
    other_keys: ByteRows,
    pairs: Vec<Pair>,
}

impl PairBuffer {
    fn clear(&mut self) {
        self.changed = ByteRows::default();
        self.changed_at.iter_mut().for_each(|place| *place = None);
        self.others = ByteRows::default();
        self.other_keys = ByteRows::default();
        self.pairs.clear();
    }
}

impl Join {
    /// Pairs the changes of side `port` with the other side's rows: the left changes with the
    /// right rows before the batch, the right changes with the left rows after it; left rows that
    /// are not kept with the right rows after it.
    pub(super) fn join_changes(
        &mut self,
        port: usize,
        changed: &[Arc<SettledRows>; 2],
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let (changes, other_changes) = (changed[port].clone(), &changed[1 - port]);
        if changes.is_empty() {
            return Ok(());
        }
        let after_batch = port == 1 || self.spec.left_rows == LeftRows::Passing;
        let keys = key_ranges(&changes);
        let mut buffer = PairBuffer::default();
        // The bag is taken out for the time of the scan, so that full buffers can be emitted.
        let other_rows = std::mem::replace(&mut self.sides[1 - port].rows, Bag::new(""));
        let result = (|| {
            let mut reader = KeyedReader::new(&other_rows, &context.snapshot, after_batch);
            let mut full_key = Vec::new();
            for range in keys {
                let key = split_key(changes.key(range.start)).0;
                buffer.changed_at = vec![None; range.len()];
                reader.each(key, |row, weight| {
                    full_key.clear();
                    full_key.extend_from_slice(key);
                    full_key.extend_from_slice(row);
                    let stays = after_batch
                        || other_changes
                            .find(&full_key)
                            .is_none_or(|index| other_changes.new_weight(index) != 0);
                    let mut other = None;
                    for entry in range.clone() {
                        if buffer.pairs.len() >= ROWS_PER_BATCH {
                            self.flush(port, &changes, &mut buffer, context, out)?;
                            other = None;
                        }
                        let place = &mut buffer.changed_at[entry - range.start];
                        let changed = *place.get_or_insert_with(|| {
                            let kept = split_key(changes.key(entry)).1;
                            buffer.changed.push(self.sides[port].row_of(kept), &[]);
                            buffer.changed.len() as u32 - 1
                        });
                        let other = *other.get_or_insert_with(|| {
                            buffer.others.push(self.sides[1 - port].row_of(row), &[]);
                            buffer.other_keys.push(&full_key, &[]);
                            buffer.others.len() as u32 - 1
                        });
                        buffer.pairs.push(Pair {
                            changed,
                            entry,
                            other,
                            other_weight: weight,
                            other_stays: stays,
                        });
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            self.flush(port, &changes, &mut buffer, context, out)
        })();
        self.sides[1 - port].rows = other_rows;
        result
    }

    /// Tries the condition on the gathered candidates; emits and counts those that pass.
    fn flush(
        &mut self,
        port: usize,
        changes: &SettledRows,
        buffer: &mut PairBuffer,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        if buffer.pairs.is_empty() {
            return Ok(());
        }
        let weights: Int64Array = buffer
            .pairs
            .iter()
            .map(|pair| Some(changes.delta(pair.entry) * pair.other_weight))
            .collect();
        let pairs = ChangeBatch::weighted(self.pair_rows(port, buffer)?, weights);
        let passes: Vec<bool> = match &self.spec.condition {
            None => vec![true; buffer.pairs.len()],
            Some(condition) => {
                let values = self.pair_errors.evaluate_condition(condition, &pairs)?;
                let passes = as_condition(&values)?;
                passes.iter().map(|pass| pass == Some(true)).collect()
            }
        };
        self.count_matches(port, changes, buffer, &passes);
        if self.emits_pairs {
            let weights = passes
                .iter()
                .enumerate()
                .map(|(index, pass)| i64::from(*pass) * pairs.weight(index))
                .collect();
            let (rows, count) = (pairs.rows(), pairs.num_rows());
            let rows = rebatch(&self.spec.schema, rows.columns().to_vec(), count)?;
            self.emit(rows, weights, context, out)?;
        }
        buffer.clear();
        Ok(())
    }

    /// The candidates' rows: left columns, then right ones.
    fn pair_rows(&self, port: usize, buffer: &PairBuffer) -> Result<RecordBatch> {
        let part = |side: usize, rows: &ByteRows, picks: UInt32Array| -> Result<Vec<ArrayRef>> {
            let batch = self.sides[side].codec.decode(rows.iter())?;
            batch
                .columns()
                .iter()
                .map(|column| Ok(take(column, &picks, None)?))
                .collect()
        };
        let pairs = &buffer.pairs;
        let changed = part(
            port,
            &buffer.changed,
            pairs.iter().map(|pair| Some(pair.changed)).collect(),
        )?;
        let others = part(
            1 - port,
            &buffer.others,
            pairs.iter().map(|pair| Some(pair.other)).collect(),
        )?;
        let (mut columns, right) = if port == 0 {
            (changed, others)
        } else {
            (others, changed)
        };
        columns.extend(right);
        rebatch(&self.spec.pair_schema, columns, pairs.len())
    }

    /// Adds the pairs that pass to the match counts of either side. A row that is new counts
    /// all it meets; one that was there counts what changed on the other side.
    fn count_matches(
        &mut self,
        port: usize,
        changes: &SettledRows,
        buffer: &PairBuffer,
        passes: &[bool],
    ) {
        if let Some(matches) = &mut self.sides[port].matches {
            debug_assert_ne!(self.sides[port].alone, Alone::Never);
            for (pair, _) in buffer.pairs.iter().zip(passes).filter(|(_, pass)| **pass) {
                if changes.old_weight(pair.entry) == 0 {
                    matches.add(changes.key(pair.entry), &[], pair.other_weight);
                }
            }
        }
        if let Some(matches) = &mut self.sides[1 - port].matches {
            for (pair, _) in buffer.pairs.iter().zip(passes).filter(|(_, pass)| **pass) {
                if pair.other_stays {
                    let key = buffer.other_keys.get(pair.other as usize);
                    matches.add(key, &[], changes.delta(pair.entry));
                }
            }
        }
    }
}

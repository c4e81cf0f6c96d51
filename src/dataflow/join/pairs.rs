//! The pairs that a change of one side makes with the other side's rows, key by key, over the cores.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;

use super::{Alone, Join, LeftRows, without_zeroes};
use crate::dataflow::bag::SettledRows;
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::consolidate::ROWS_PER_BATCH;
use crate::dataflow::expression::as_condition;
use crate::dataflow::keyed::{KeyedReader, key_ranges, split_key};
use crate::dataflow::operator::BatchContext;
use crate::dataflow::parallel::over_parts;
use crate::dataflow::row_errors::RowErrors;
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

/// Match counts to add: key and row, and by how much.
#[derive(Default)]
struct Counted {
    entries: ByteRows,
    weights: Vec<i64>,
}

impl Counted {
    fn push(&mut self, entry: &[u8], weight: i64) {
        self.entries.push(entry, &[]);
        self.weights.push(weight);
    }
}

/// What the changes of some keys of one side come to.
struct Paired {
    out: Vec<ChangeBatch>,
    /// Match counts of either side.
    counted: [Counted; 2],
    errors: RowErrors,
}

/// The changes of side `port`, to be paired with the other side's rows.
struct Pairing<'a> {
    join: &'a Join,
    port: usize,
    changes: &'a SettledRows,
    other_changes: &'a SettledRows,
    /// The other side's rows are those after the batch.
    after_batch: bool,
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
        if changed[port].is_empty() {
            return Ok(());
        }
        let pairing = Pairing {
            join: self,
            port,
            changes: &changed[port],
            other_changes: &changed[1 - port],
            after_batch: port == 1 || self.spec.left_rows == LeftRows::Passing,
        };
        let keys = key_ranges(pairing.changes);
        for paired in over_parts(&keys, |keys| pairing.pair(keys, context))? {
            for (side, counted) in self.sides.iter_mut().zip(paired.counted) {
                let Some(matches) = &mut side.matches else {
                    continue;
                };
                for (entry, weight) in counted.entries.iter().zip(counted.weights) {
                    matches.add(entry, &[], weight);
                }
            }
            self.pair_errors.absorb(paired.errors)?;
            for change in paired.out {
                self.emit(change, context, out);
            }
        }
        Ok(())
    }
}

impl Pairing<'_> {
    /// Pairs the changes under some keys.
    fn pair(&self, keys: &[Range<usize>], context: &BatchContext) -> Result<Paired> {
        let (changes, sides) = (self.changes, &self.join.sides);
        let mut paired = Paired {
            out: Vec::new(),
            counted: Default::default(),
            errors: self.join.pair_errors.apart(),
        };
        let mut buffer = PairBuffer::default();
        let other_rows = &sides[1 - self.port].rows;
        let mut reader = KeyedReader::new(other_rows, &context.snapshot, self.after_batch);
        let mut full_key = Vec::new();
        for range in keys {
            let key = split_key(changes.key(range.start)).0;
            buffer.changed_at = vec![None; range.len()];
            reader.each(key, |row, weight| {
                full_key.clear();
                full_key.extend_from_slice(key);
                full_key.extend_from_slice(row);
                let other_stays = self.after_batch
                    || self
                        .other_changes
                        .find(&full_key)
                        .is_none_or(|index| self.other_changes.new_weight(index) != 0);
                let mut other = None;
                for entry in range.clone() {
                    if buffer.pairs.len() >= ROWS_PER_BATCH {
                        self.flush(&mut buffer, &mut paired)?;
                        other = None;
                    }
                    let place = &mut buffer.changed_at[entry - range.start];
                    let changed = *place.get_or_insert_with(|| {
                        let kept = split_key(changes.key(entry)).1;
                        buffer.changed.push(sides[self.port].row_of(kept), &[]);
                        buffer.changed.len() as u32 - 1
                    });
                    let other = *other.get_or_insert_with(|| {
                        buffer.others.push(sides[1 - self.port].row_of(row), &[]);
                        buffer.other_keys.push(&full_key, &[]);
                        buffer.others.len() as u32 - 1
                    });
                    buffer.pairs.push(Pair {
                        changed,
                        entry,
                        other,
                        other_weight: weight,
                        other_stays,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.flush(&mut buffer, &mut paired)?;
        Ok(paired)
    }

    /// Tries the condition on the gathered candidates; keeps and counts those that pass.
    fn flush(&self, buffer: &mut PairBuffer, paired: &mut Paired) -> Result<()> {
        if buffer.pairs.is_empty() {
            return Ok(());
        }
        let spec = &self.join.spec;
        let weights: Int64Array = buffer
            .pairs
            .iter()
            .map(|pair| Some(self.changes.delta(pair.entry) * pair.other_weight))
            .collect();
        let pairs = ChangeBatch::weighted(self.pair_rows(buffer)?, weights);
        let passes: Vec<bool> = match &spec.condition {
            None => vec![true; buffer.pairs.len()],
            Some(condition) => {
                let values = paired.errors.evaluate_condition(condition, &pairs)?;
                let passes = as_condition(&values)?;
                passes.iter().map(|pass| pass == Some(true)).collect()
            }
        };
        self.count_matches(buffer, &passes, &mut paired.counted);
        if self.join.emits_pairs {
            let weights = passes
                .iter()
                .enumerate()
                .map(|(index, pass)| i64::from(*pass) * pairs.weight(index))
                .collect();
            let (rows, count) = (pairs.rows(), pairs.num_rows());
            let rows = rebatch(&spec.schema, rows.columns().to_vec(), count)?;
            paired.out.push(without_zeroes(rows, weights)?);
        }
        buffer.clear();
        Ok(())
    }

    /// The candidates' rows: left columns, then right ones.
    fn pair_rows(&self, buffer: &PairBuffer) -> Result<RecordBatch> {
        let port = self.port;
        let part = |side: usize, rows: &ByteRows, picks: UInt32Array| -> Result<Vec<ArrayRef>> {
            let batch = self.join.sides[side].codec.decode(rows.iter())?;
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
        rebatch(&self.join.spec.pair_schema, columns, pairs.len())
    }

    /// Adds the pairs that pass to the match counts of either side. A row that is new counts
    /// all it meets; one that was there counts what changed on the other side.
    fn count_matches(&self, buffer: &PairBuffer, passes: &[bool], counted: &mut [Counted; 2]) {
        let (port, sides) = (self.port, &self.join.sides);
        let passing = || buffer.pairs.iter().zip(passes).filter(|(_, pass)| **pass);
        if sides[port].matches.is_some() {
            debug_assert_ne!(sides[port].alone, Alone::Never);
            for (pair, _) in passing() {
                if self.changes.old_weight(pair.entry) == 0 {
                    counted[port].push(self.changes.key(pair.entry), pair.other_weight);
                }
            }
        }
        if sides[1 - port].matches.is_some() {
            for (pair, _) in passing().filter(|(pair, _)| pair.other_stays) {
                let key = buffer.other_keys.get(pair.other as usize);
                counted[1 - port].push(key, self.changes.delta(pair.entry));
            }
        }
    }
}

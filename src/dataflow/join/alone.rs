//! The rows of a side that go out by themselves: padded with NULL, semi, anti, mark.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};

use super::{Alone, Join, without_zeroes};
use crate::dataflow::bag::{Bag, SettledRows};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::consolidate::ROWS_PER_BATCH;
use crate::dataflow::keyed::{changed_keys, split_key, weights_around};
use crate::dataflow::operator::BatchContext;
use crate::dataflow::rows::rebatch;
use crate::error::Result;

/// Rows on their way out, with weight and whether they have a match.
#[derive(Default)]
struct AloneRows {
    rows: ByteRows,
    weights: Vec<i64>,
    matched: Vec<bool>,
}

impl AloneRows {
    fn push(&mut self, row: &[u8], weight: i64, matched: bool) {
        if weight != 0 {
            self.rows.push(row, &[]);
            self.weights.push(weight);
            self.matched.push(matched);
        }
    }
}

impl Join {
    /// Rows whose key holds a NULL: without a match for ever.
    pub(super) fn emit_unmatched(
        &mut self,
        port: usize,
        change: &ChangeBatch,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let alone = self.sides[port].alone;
        let weights: Vec<i64> = (0..change.num_rows())
            .map(|index| alone.weight(change.weight(index), false))
            .collect();
        let matched = vec![false; change.num_rows()];
        let rows = self.alone_batch(port, change.rows(), matched)?;
        self.emit(without_zeroes(rows, weights)?, context, out);
        Ok(())
    }

    /// Without a further condition a whole key gains or loses its match at once. Where it does
    /// neither, only the changed rows go out.
    pub(super) fn emit_alone_by_key(
        &mut self,
        port: usize,
        changed: &[Arc<SettledRows>; 2],
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let keys = changed_keys(&changed[0]).merged(&changed_keys(&changed[1]));
        let side = &self.sides[port];
        let totals = self.sides[1 - port]
            .totals
            .as_ref()
            .expect("totals are kept for a side that goes out alone");
        let counts = weights_around(totals, &keys, context)?;
        let mut going = AloneRows::default();
        let mut ready = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let (was, is) = (counts[index].0 > 0, counts[index].1 > 0);
            if was != is {
                let mut rows = side.rows.read_old(&context.snapshot, key)?;
                while rows.advance()? {
                    let (row, weight) = (rows.row(), rows.weight());
                    side.send(&mut going, row, weight, was, is);
                    if going.weights.len() >= ROWS_PER_BATCH {
                        ready.push(std::mem::take(&mut going));
                    }
                }
            }
            for entry in changed[port].range_of(key) {
                let row = split_key(changed[port].key(entry)).1;
                let delta = changed[port].delta(entry);
                going.push(row, side.alone.weight(delta, is), is);
            }
            if going.weights.len() >= ROWS_PER_BATCH {
                ready.push(std::mem::take(&mut going));
            }
        }
        ready.push(going);
        self.emit_alone(port, ready, context, out)
    }

    /// With a further condition every row has a match count of its own.
    pub(super) fn emit_alone_by_row(
        &mut self,
        port: usize,
        changed: &SettledRows,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let side = &mut self.sides[port];
        let matches = side
            .matches
            .as_mut()
            .expect("matches are kept for a side that goes out alone");
        forget_removed(matches, changed, context)?;
        let counts = matches.settle(&context.snapshot)?;
        let keys = changed.union_of_keys(&counts);
        let weights = weights_around(&side.rows, &keys, context)?;
        let matches = side.matches.as_ref().expect("matches were just settled");
        let counts = weights_around(matches, &keys, context)?;
        let side = &self.sides[port];
        let mut going = AloneRows::default();
        let mut ready = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let row = split_key(key).1;
            let (was, is) = (counts[index].0 > 0, counts[index].1 > 0);
            let (weight_before, weight_after) = weights[index];
            side.send(&mut going, row, weight_before, was, is);
            let delta = weight_after - weight_before;
            going.push(row, side.alone.weight(delta, is), is);
            if going.weights.len() >= ROWS_PER_BATCH {
                ready.push(std::mem::take(&mut going));
            }
        }
        ready.push(going);
        self.emit_alone(port, ready, context, out)
    }

    fn emit_alone(
        &mut self,
        port: usize,
        ready: Vec<AloneRows>,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        for going in ready {
            if going.weights.is_empty() {
                continue;
            }
            let side = &self.sides[port];
            let rows = going.rows.iter().map(|kept| side.row_of(kept));
            let rows = side.codec.decode(rows)?;
            let rows = self.alone_batch(port, &rows, going.matched)?;
            self.emit(without_zeroes(rows, going.weights)?, context, out);
        }
        Ok(())
    }

    /// Output rows of a side's own rows.
    fn alone_batch(
        &self,
        port: usize,
        rows: &RecordBatch,
        matched: Vec<bool>,
    ) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        match self.sides[port].alone {
            Alone::Padded => {
                let other = self.spec.inputs[1 - port].fields();
                let nulls = other.iter().map(|f| new_null_array(f.data_type(), count));
                if port == 0 {
                    columns.extend(nulls);
                } else {
                    columns = nulls.chain(columns).collect();
                }
            }
            Alone::Marked => columns.push(Arc::new(BooleanArray::from(matched))),
            Alone::Matched | Alone::Unmatched | Alone::Never => {}
        }
        rebatch(&self.spec.schema, columns, count)
    }
}

impl super::Side {
    /// What a row of unchanged weight sends when its match comes or goes.
    fn send(&self, going: &mut AloneRows, row: &[u8], weight: i64, was: bool, is: bool) {
        if was != is {
            going.push(row, -self.alone.weight(weight, was), was);
            going.push(row, self.alone.weight(weight, is), is);
        }
    }
}

/// A row that is gone has no match count any more.
fn forget_removed(matches: &mut Bag, changed: &SettledRows, context: &BatchContext) -> Result<()> {
    let mut removed = ByteRows::default();
    for index in 0..changed.len() {
        if changed.new_weight(index) == 0 {
            removed.push(changed.key(index), &[]);
        }
    }
    let counts = matches.weights_of(&context.snapshot, &removed)?;
    for (key, count) in removed.iter().zip(counts) {
        if count != 0 {
            matches.add(key, &[], -count);
        }
    }
    Ok(())
}

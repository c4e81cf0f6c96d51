//! `x NOT IN (query)`: an anti join whose answer hangs on the whole of the other side.
//!
//! ```text
//!   right: no row        → every left row passes
//!          a NULL        → none passes
//!          neither       → those pass whose value is not NULL and not on the right
//! ```
//!
//! While the right side stays in one of the three cases only changed values are looked at; when it
//! moves from one to another, all left rows are looked through.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;

use super::bag::{Bag, SettledRows, drain_all};
use super::batch_numbers::BatchNumbers;
use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::consolidate::{Outgoing, ROWS_PER_BATCH};
use super::keyed::{KeyedReader, changed_keys, each_around, encode_key, split_key, weights_around};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::row_errors::{OnRowError, RowErrors};
use super::rows::{KeyCodec, RowCodec};
use crate::error::Result;
use crate::state::{Run, TableId};

/// What to test.
#[derive(Debug, Clone)]
pub struct NotInSpec {
    /// In SQL words, for people.
    pub detail: String,
    /// The value of a left row and of a right row, of one type.
    pub keys: [Arc<dyn PhysicalExpr>; 2],
    /// Type of the values.
    pub key_type: DataType,
    /// Left rows, which are the output's too.
    pub schema: SchemaRef,
}

/// What the right side says of all left rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RightSide {
    Empty,
    HoldsNull,
    HoldsValues,
}

/// The operator.
pub struct NotIn {
    spec: NotInSpec,
    keys: KeyCodec,
    codec: RowCodec,
    /// key and row -> weight
    left: Bag,
    /// key -> sum of weights; NULL is a key of its own
    right: Bag,
    /// number of right rows, and of those with a NULL, under one key each
    totals: Bag,
    numbers: BatchNumbers,
    /// Of the values of either side.
    errors: [RowErrors; 2],
}

/// Keys in `totals`.
const ALL: &[u8] = b"a";
const NULLS: &[u8] = b"n";
/// How arrow-row encodes a NULL of any type begins with this, a value never does.
const NULL_SENTINEL: u8 = 0;

fn is_null(key: &[u8]) -> bool {
    key.first() == Some(&NULL_SENTINEL)
}

impl NotIn {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: NotInSpec) -> Result<Self> {
        let bag = |part: &str| Bag::new(&format!("{name}/{part}"));
        Ok(Self {
            keys: KeyCodec::new([spec.key_type.clone()])?,
            codec: RowCodec::new(spec.schema.clone())?,
            left: bag("left"),
            right: bag("right"),
            totals: bag("totals"),
            numbers: BatchNumbers::default(),
            errors: Default::default(),
            spec,
        })
    }

    /// The right side before and after the batch.
    fn right_side(&self, context: &BatchContext) -> Result<(RightSide, RightSide)> {
        let mut keys = ByteRows::default();
        keys.push(ALL, &[]);
        keys.push(NULLS, &[]);
        let counts = weights_around(&self.totals, &keys, context)?;
        let case = |all: i64, nulls: i64| match (all > 0, nulls > 0) {
            (false, _) => RightSide::Empty,
            (true, true) => RightSide::HoldsNull,
            (true, false) => RightSide::HoldsValues,
        };
        let (all, nulls) = (counts[0], counts[1]);
        Ok((case(all.0, nulls.0), case(all.1, nulls.1)))
    }

    /// Looks at the left rows under the changed keys: the right side is of values, as it was.
    fn changed_values(
        &self,
        changed: &SettledRows,
        context: &BatchContext,
        going: &mut Outgoing,
    ) -> Result<()> {
        let mut unordered = ByteRows::default();
        let mut prefixed = Vec::new();
        for index in 0..self.right.settled().len() {
            encode_key(self.right.settled().key(index), &mut prefixed);
            unordered.push(&prefixed, &[]);
        }
        // Lengths come first, so that the keys' order is another one.
        let mut right_keys = ByteRows::default();
        for index in unordered.sorted_indices() {
            right_keys.push(unordered.get(index as usize), &[]);
        }
        let keys = changed_keys(changed).merged(&right_keys);
        let passing = self.passing(
            &keys,
            (RightSide::HoldsValues, RightSide::HoldsValues),
            context,
        )?;
        let mut reader = KeyedReader::new(&self.left, &context.snapshot, false);
        for (key, (was, is)) in keys.iter().zip(passing) {
            if was != is {
                each_around(&mut reader, changed, key, |row, before, after| {
                    going.push(row, i64::from(is) * after - i64::from(was) * before);
                    Ok(())
                })?;
            } else if is {
                for index in changed.range_of(key) {
                    going.push(split_key(changed.key(index)).1, changed.delta(index));
                }
            }
        }
        Ok(())
    }

    /// Looks at all left rows: the right side moved from one case to another.
    fn all_values(
        &self,
        changed: &SettledRows,
        cases: (RightSide, RightSide),
        context: &BatchContext,
        going: &mut Outgoing,
    ) -> Result<()> {
        let mut reader = KeyedReader::new(&self.left, &context.snapshot, false);
        let mut entries: Vec<(Vec<u8>, i64, i64)> = Vec::new();
        each_around(&mut reader, changed, &[], |entry, before, after| {
            entries.push((entry.to_vec(), before, after));
            if entries.len() == ROWS_PER_BATCH {
                self.test_all(&std::mem::take(&mut entries), cases, context, going)?;
            }
            Ok(())
        })?;
        self.test_all(&entries, cases, context, going)
    }

    fn test_all(
        &self,
        entries: &[(Vec<u8>, i64, i64)],
        cases: (RightSide, RightSide),
        context: &BatchContext,
        going: &mut Outgoing,
    ) -> Result<()> {
        let mut keys = ByteRows::default();
        for (entry, _, _) in entries {
            let key = split_key(entry).0;
            if keys.is_empty() || keys.get(keys.len() - 1) != key {
                keys.push(key, &[]);
            }
        }
        let passing = self.passing(&keys, cases, context)?;
        let mut at = 0;
        for (entry, before, after) in entries {
            let (key, row) = split_key(entry);
            while keys.get(at) != key {
                at += 1;
            }
            let (was, is) = passing[at];
            going.push(row, i64::from(is) * after - i64::from(was) * before);
        }
        Ok(())
    }

    /// Whether rows of `keys` (ascending, with their lengths) pass before and after the batch.
    fn passing(
        &self,
        keys: &ByteRows,
        cases: (RightSide, RightSide),
        context: &BatchContext,
    ) -> Result<Vec<(bool, bool)>> {
        // In order of the bytes without lengths, as the right side lies.
        let mut values: Vec<(&[u8], usize)> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| (value_of(key), index))
            .collect();
        values.sort_unstable();
        let mut sorted = ByteRows::default();
        values.iter().for_each(|(value, _)| sorted.push(value, &[]));
        let counts = weights_around(&self.right, &sorted, context)?;
        let mut passing = vec![(false, false); keys.len()];
        for ((value, index), (before, after)) in values.into_iter().zip(counts) {
            let passes = |case: RightSide, count: i64| match case {
                RightSide::Empty => true,
                RightSide::HoldsNull => false,
                RightSide::HoldsValues => !is_null(value) && count <= 0,
            };
            passing[index] = (passes(cases.0, before), passes(cases.1, after));
        }
        Ok(passing)
    }
}

/// The value's bytes behind the length that a key begins with.
fn value_of(key: &[u8]) -> &[u8] {
    let digits = key.iter().take_while(|byte| **byte & 0x80 != 0).count();
    &key[digits + 1..]
}

impl Operator for NotIn {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "not in",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some("(value, row) -> weight, value -> weight of the subquery".to_owned()),
            retention: Some(Retention::by_input("kept while the row is in the input")),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        for errors in &mut self.errors {
            errors.set_policy(policy);
        }
    }

    fn push(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.numbers.of(context).input_rows += change.num_rows() as u64;
        let expression = std::slice::from_ref(&self.spec.keys[port]);
        let (change, values) = self.errors[port].evaluate(expression, change)?;
        let keys = self.keys.encode(&values)?;
        if port == 0 {
            let rows = self.codec.encode(change.rows())?;
            let mut key = Vec::new();
            for index in 0..change.num_rows() {
                encode_key(keys.row(index), &mut key);
                self.left.add(&key, rows.row(index), change.weight(index));
            }
            return Ok(());
        }
        for index in 0..change.num_rows() {
            let (key, weight) = (keys.row(index), change.weight(index));
            self.right.add(key, &[], weight);
            self.totals.add(ALL, &[], weight);
            if is_null(key) {
                self.totals.add(NULLS, &[], weight);
            }
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.errors.iter_mut().try_for_each(RowErrors::settle)?;
        let changed = self.left.settle(&context.snapshot)?;
        self.right.settle(&context.snapshot)?;
        self.totals.settle(&context.snapshot)?;
        let cases = self.right_side(context)?;
        let mut going = Outgoing::default();
        match cases {
            (RightSide::HoldsNull, RightSide::HoldsNull) => {}
            (RightSide::Empty, RightSide::Empty) => {
                for index in 0..changed.len() {
                    going.push(split_key(changed.key(index)).1, changed.delta(index));
                }
            }
            (RightSide::HoldsValues, RightSide::HoldsValues) => {
                self.changed_values(&changed, context, &mut going)?;
            }
            _ => self.all_values(&changed, cases, context, &mut going)?,
        }
        self.numbers.of(context).output_rows += going.len() as u64;
        going.decode(&self.codec, out)
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let bags = [&mut self.left, &mut self.right, &mut self.totals];
        drain_all(bags, &context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        let bags = [&self.left, &self.right, &self.totals];
        bags.into_iter().flat_map(Bag::tables).collect()
    }

    fn reset(&mut self) {
        for bag in [&mut self.left, &mut self.right, &mut self.totals] {
            bag.reset();
        }
        self.errors.iter_mut().for_each(RowErrors::reset);
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.left.add_statistics(&mut statistics);
        self.right.add_statistics(&mut statistics);
        for errors in &self.errors {
            errors.add_statistics(&mut statistics);
        }
        statistics
    }
}

//! Join: inner, outer, semi, anti and mark, with equality keys and any further condition.
//!
//! ```text
//!   left  ──► (key, row) -> weight ─┐   ΔL × R before the batch
//!                                   ├─► L after the batch × ΔR  ──► condition ──► pairs
//!   right ──► (key, row) -> weight ─┘                                   │
//!                                        match counts ◄─────────────────┘
//!                                             │ zero crossings
//!                                             ▼
//!                        rows that stand alone: padded with NULL, semi, anti, mark
//! ```
//!
//! A pair's weight is the product of its rows' weights, so that retractions come out by
//! themselves. Whether a row has a match follows from counts: without a further condition the sum
//! of the other side's weights by key, with one a count for every row. A key with a NULL never
//! matches (unless NULL is to equal NULL, as in INTERSECT), so such a row is never kept.
//! What comes in of an append-only side is never there already, so that its weight is not looked up; where
//! rows may be equal, each is kept under a number of its own ([`numbers`]).
//! A cross join is a join with a key of no columns. Where the condition bounds the distance of two
//! event times, the watermark frees what can match nothing any more ([`time`]).

mod alone;
mod numbers;
mod pairs;
mod shared;
mod time;

use std::sync::Arc;

use datafusion::arrow::array::{Array, Int64Array, RecordBatch};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::JoinType;
use datafusion::physical_expr::PhysicalExpr;

use self::numbers::{NUMBER_BYTES, RowNumbers};
use self::shared::Sharing;
pub use self::shared::{Arranged, Arrangements};
pub use self::time::SideTime;
use super::bag::{Bag, SettledRows, drain_all};
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::keyed::encode_key;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::row_errors::{OnRowError, RowErrors};
use super::rows::{KeyCodec, RowCodec};
use crate::error::Result;
use crate::state::{Run, TableId};

/// What to join.
#[derive(Debug, Clone)]
pub struct JoinSpec {
    /// Which rows come out.
    pub join_type: JoinType,
    /// In SQL words, for people.
    pub detail: String,
    /// Key expressions over the left and the right rows, of equal types pairwise.
    pub keys: [Vec<Arc<dyn PhysicalExpr>>; 2],
    /// Types of the key's columns.
    pub key_types: Vec<DataType>,
    /// NULL equals NULL.
    pub null_equals_null: bool,
    /// Further condition over the left columns followed by the right ones.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// What becomes of left rows.
    pub left_rows: LeftRows,
    /// What is known of the rows of either side.
    pub side_rows: [SideRows; 2],
    /// Sides whose rows are shared with other sides of the view.
    pub arranged: [Option<Arranged>; 2],
    /// Event times of both sides, when the condition bounds their distance.
    pub times: Option<[SideTime; 2]>,
    /// Left and right rows.
    pub inputs: [SchemaRef; 2],
    /// Left columns followed by the right ones.
    pub pair_schema: SchemaRef,
    /// Output rows.
    pub schema: SchemaRef,
}

/// Whether a row that comes in can be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideRows {
    /// It can, or be taken back: its weight is read.
    Any,
    /// Rows are never taken back, but may be equal: each gets a number, and is new with it.
    Repeating,
    /// Rows are never taken back, and no two are equal: each is new.
    Distinct,
}

/// What becomes of left rows once they are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftRows {
    /// They stay, for right rows to come.
    Kept,
    /// They are joined with the right rows as these are after the batch, and forgotten: what the
    /// right side becomes later changes nothing. The left side is append-only.
    Passing,
}

/// How a row of a side goes out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    Never,
    /// Without a match, the other side's columns NULL.
    Padded,
    /// As it is, with a match.
    Matched,
    /// As it is, without a match.
    Unmatched,
    /// Always, with a column that says whether it has a match.
    Marked,
}

/// Whether pairs go out, and how the rows of each side do by themselves.
fn output_of(join_type: JoinType) -> (bool, [Alone; 2]) {
    use Alone::{Marked, Matched, Never, Padded, Unmatched};
    match join_type {
        JoinType::Inner => (true, [Never, Never]),
        JoinType::Left => (true, [Padded, Never]),
        JoinType::Right => (true, [Never, Padded]),
        JoinType::Full => (true, [Padded, Padded]),
        JoinType::LeftSemi => (false, [Matched, Never]),
        JoinType::RightSemi => (false, [Never, Matched]),
        JoinType::LeftAnti => (false, [Unmatched, Never]),
        JoinType::RightAnti => (false, [Never, Unmatched]),
        JoinType::LeftMark => (false, [Marked, Never]),
        JoinType::RightMark => (false, [Never, Marked]),
    }
}

impl Alone {
    fn goes_out(self) -> bool {
        self != Self::Never
    }

    /// The number of copies of a row that go out, given its weight and whether it has a match.
    fn weight(self, weight: i64, matched: bool) -> i64 {
        match self {
            Self::Never => 0,
            Self::Padded | Self::Unmatched => i64::from(!matched) * weight,
            Self::Matched => i64::from(matched) * weight,
            Self::Marked => weight,
        }
    }
}

struct Side {
    codec: RowCodec,
    sharing: Sharing,
    /// Rows are kept with a number.
    are_numbered: bool,
    /// Numbers of rows that may be equal, which this side gives.
    numbers: Option<RowNumbers>,
    /// Every row that comes in is new.
    are_new: bool,
    /// key and row, with its number if it has one -> weight
    rows: Bag,
    alone: Alone,
    /// key -> sum of weights: whether the other side's rows of the key have a match. Kept when
    /// the other side goes out alone and there is no further condition.
    totals: Option<Bag>,
    /// key and row -> sum of the weights of the other side's rows that pass the condition with
    /// it. Kept when this side goes out alone and there is a condition.
    matches: Option<Bag>,
    /// time, key and row -> weight: rows by when they are due to be freed.
    dues: Option<Bag>,
    /// Event times of what was added to `rows` in this batch, where `dues` are kept.
    times: Vec<Option<i64>>,
}

impl Side {
    /// The row of what is kept.
    fn row_of<'a>(&self, kept: &'a [u8]) -> &'a [u8] {
        match self.are_numbered {
            true => &kept[..kept.len() - NUMBER_BYTES],
            false => kept,
        }
    }

    fn settle(&mut self, context: &BatchContext) -> Result<Arc<SettledRows>> {
        let snapshot = &context.snapshot;
        if let Some(totals) = &mut self.totals {
            totals.settle(snapshot)?;
        }
        if let Some(settled) = self.borrowed() {
            return Ok(settled);
        }
        let settled = match self.are_new {
            true => self.rows.settle_new(snapshot),
            false => self.rows.settle(snapshot),
        }?;
        self.sharing.lend(&settled);
        Ok(settled)
    }

    /// The bags that it keeps.
    fn bags(&self) -> impl Iterator<Item = &Bag> {
        let rows = (!self.sharing.borrows()).then_some(&self.rows);
        let others = [&self.totals, &self.matches, &self.dues];
        rows.into_iter().chain(others.into_iter().flatten())
    }

    fn bags_mut(&mut self) -> impl Iterator<Item = &mut Bag> {
        let rows = (!self.sharing.borrows()).then_some(&mut self.rows);
        let others = [&mut self.totals, &mut self.matches, &mut self.dues];
        rows.into_iter().chain(others.into_iter().flatten())
    }

    /// Leaves nothing of the batch for the state.
    fn forget(&mut self) {
        self.rows.reset();
        self.matches.iter_mut().for_each(Bag::reset);
    }
}

/// The operator.
pub struct Join {
    spec: JoinSpec,
    emits_pairs: bool,
    keys: KeyCodec,
    sides: [Side; 2],
    numbers: BatchNumbers,
    /// Of the keys of either side.
    key_errors: [RowErrors; 2],
    /// Of the condition, over pairs.
    pair_errors: RowErrors,
}

impl Join {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: JoinSpec) -> Result<Self> {
        let (emits_pairs, alone) = output_of(spec.join_type);
        let conditional = spec.condition.is_some();
        let side = |index: usize, word: &str| -> Result<Side> {
            let bag = |part: &str| Bag::new(&format!("{name}/{word}{part}"));
            let other_alone = alone[1 - index] != Alone::Never;
            let rows = spec.side_rows[index];
            let arranged = spec.arranged[index].as_ref();
            let are_numbered = rows == SideRows::Repeating;
            let gives_numbers = are_numbered && arranged.is_none_or(|a| a.is_owner);
            Ok(Side {
                codec: RowCodec::new(spec.inputs[index].clone())?,
                sharing: Sharing::default(),
                are_numbered,
                numbers: gives_numbers.then(|| RowNumbers::new(&format!("{name}/{word}/number"))),
                are_new: rows != SideRows::Any,
                rows: arranged.map_or_else(|| bag(""), |arranged| Bag::new(&arranged.name)),
                alone: alone[index],
                totals: (other_alone && !conditional).then(|| bag("/totals")),
                matches: (alone[index] != Alone::Never && conditional).then(|| bag("/matches")),
                dues: spec
                    .times
                    .and_then(|times| times[index].free_after.map(|_| bag("/dues"))),
                times: Vec::new(),
            })
        };
        Ok(Self {
            emits_pairs,
            keys: KeyCodec::new(spec.key_types.iter().cloned())?,
            sides: [side(0, JoinSpec::SIDES[0])?, side(1, JoinSpec::SIDES[1])?],
            numbers: BatchNumbers::default(),
            key_errors: Default::default(),
            pair_errors: RowErrors::default(),
            spec,
        })
    }
}

/// Rows of which a key column is NULL.
fn null_keys(columns: &[datafusion::arrow::array::ArrayRef], rows: usize) -> Vec<bool> {
    let mut null = vec![false; rows];
    for nulls in columns.iter().filter_map(|column| column.logical_nulls()) {
        for (row, null) in null.iter_mut().enumerate() {
            *null |= nulls.is_null(row);
        }
    }
    null
}

impl Operator for Join {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "join",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some(self.kept()),
            retention: Some(self.retention()),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.errors().for_each(|errors| errors.set_policy(policy));
    }

    fn push(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.numbers.of(context).input_rows += change.num_rows() as u64;
        if self.sides[port].sharing.borrows() {
            return Ok(());
        }
        let change = self.in_time(port, change, context)?;
        let (change, columns) = self.key_errors[port].evaluate(&self.spec.keys[port], change)?;
        let keys = self.keys.encode(&columns)?;
        let side = &mut self.sides[port];
        let rows = side.codec.encode(change.rows())?;
        let never_matches = if self.spec.null_equals_null {
            vec![false; change.num_rows()]
        } else {
            null_keys(&columns, change.num_rows())
        };
        let times = match self.spec.times {
            Some(times) => Some(Side::times(times[port], &change)?),
            None => None,
        };
        let (mut key, mut kept) = (Vec::new(), Vec::new());
        for (index, never) in never_matches.iter().enumerate() {
            if *never {
                continue;
            }
            encode_key(keys.row(index), &mut key);
            let weight = change.weight(index);
            kept.clear();
            kept.extend_from_slice(rows.row(index));
            if let Some(numbers) = &mut side.numbers {
                kept.extend_from_slice(&numbers.next(&context.snapshot)?);
            }
            side.rows.add(&key, &kept, weight);
            if let (Some(_), Some(times)) = (&side.dues, &times) {
                side.times
                    .push(times.is_valid(index).then(|| times.value(index)));
            }
            if let Some(totals) = &mut side.totals {
                totals.add(&key, &[], weight);
            }
        }
        if side.alone != Alone::Never && never_matches.contains(&true) {
            let unmatched = change.filter(&never_matches.into())?;
            self.emit_unmatched(port, &unmatched, context, out)?;
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.note_dues(context);
        let [left, right] = &mut self.sides;
        let changed = [left.settle(context)?, right.settle(context)?];
        if self.emits_pairs || self.spec.condition.is_some() {
            self.join_changes(0, &changed, context, out)?;
            if self.spec.left_rows == LeftRows::Kept {
                self.join_changes(1, &changed, context, out)?;
            }
        }
        for port in 0..2 {
            if self.sides[port].alone == Alone::Never {
                continue;
            }
            if self.spec.condition.is_some() {
                self.emit_alone_by_row(port, &changed[port], context, out)?;
            } else {
                self.emit_alone_by_key(port, &changed, context, out)?;
            }
        }
        if self.spec.left_rows == LeftRows::Passing {
            self.sides[0].forget();
        }
        self.free(context)?;
        self.errors().try_for_each(RowErrors::settle)
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let numbers = self.sides.iter_mut().flat_map(|side| &mut side.numbers);
        let mut runs: Vec<_> = numbers.filter_map(RowNumbers::drain).collect();
        runs.extend(drain_all(self.bags(), &context.snapshot)?);
        self.sides.iter_mut().for_each(Side::end);
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    fn tables(&self) -> Vec<TableId> {
        let numbers = self.sides.iter().flat_map(|side| &side.numbers);
        let bags = self.sides.iter().flat_map(Side::bags).flat_map(Bag::tables);
        bags.chain(numbers.map(RowNumbers::table)).collect()
    }

    fn reset(&mut self) {
        self.bags().for_each(Bag::reset);
        self.sides.iter_mut().for_each(Side::end);
        self.sides.iter_mut().for_each(|side| side.times.clear());
        let numbers = self.sides.iter_mut().flat_map(|side| &mut side.numbers);
        numbers.for_each(RowNumbers::reset);
        self.errors().for_each(RowErrors::reset);
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        for side in self.sides.iter().filter(|side| !side.sharing.borrows()) {
            side.rows.add_statistics(&mut statistics);
        }
        for errors in self.key_errors.iter().chain([&self.pair_errors]) {
            errors.add_statistics(&mut statistics);
        }
        statistics
    }
}

impl Join {
    fn retention(&self) -> Retention {
        if self.spec.left_rows == LeftRows::Passing {
            return Retention::by_input(
                "right rows kept while they are in the input; left rows are not kept",
            );
        }
        let freed = |side: usize| self.sides[side].dues.is_some();
        let words = match (freed(0), freed(1)) {
            (true, true) => "freed when the watermark is past all times that can match",
            (true, false) => {
                "left rows freed when the watermark is past all times that can match; right rows kept while they are in the input"
            }
            (false, true) => {
                "right rows freed when the watermark is past all times that can match; left rows kept while they are in the input"
            }
            (false, false) => "kept while the row is in the input",
        };
        match freed(0) && freed(1) {
            true => Retention::by_time(words),
            false => Retention::by_input(words),
        }
    }

    fn errors(&mut self) -> impl Iterator<Item = &mut RowErrors> {
        self.key_errors.iter_mut().chain([&mut self.pair_errors])
    }

    fn bags(&mut self) -> impl Iterator<Item = &mut Bag> {
        self.sides.iter_mut().flat_map(Side::bags_mut)
    }

    /// Sends a change out.
    fn emit(&mut self, change: ChangeBatch, context: &BatchContext, out: &mut Vec<ChangeBatch>) {
        if !change.is_empty() {
            self.numbers.of(context).output_rows += change.num_rows() as u64;
            out.push(change);
        }
    }
}

/// Rows with weights, without those of weight 0.
fn without_zeroes(rows: RecordBatch, weights: Vec<i64>) -> Result<ChangeBatch> {
    let has_zeroes = weights.contains(&0);
    let weights = Int64Array::from(weights);
    let mask = match has_zeroes {
        true => {
            let zero = Int64Array::new_scalar(0);
            Some(compute::kernels::cmp::neq(&weights, &zero)?)
        }
        false => None,
    };
    let change = ChangeBatch::weighted(rows, weights);
    match mask {
        Some(mask) => change.filter(&mask),
        None => Ok(change),
    }
}

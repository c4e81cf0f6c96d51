//! Window functions: only the partitions that a batch touches are computed again, and of them only
//! what can have changed: the rows from the change on where the functions look back, and only its
//! neighbourhood where they see no farther.
//!
//! ```text
//!   change ──► (partition, order, row) -> weight
//!                 │ per touched partition: its rows before │ and after the batch
//!                 ▼                        functions over both, in order
//!              difference of the results
//! ```
//!
//! The rows lie in order in the state, so nothing is sorted. What was sent is not kept: it is
//! computed again from the rows before the batch, which gives the same, since the order is total
//! and a function is a pure one of its partition's rows in order. Where the order is one of event
//! time, rows behind the watermark that nothing looks back to any more are freed whenever their
//! partition is touched. The functions themselves are
//! DataFusion's, with every frame it has (ROWS, RANGE, GROUPS).

pub mod reach;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::window::WindowExpr;

use self::reach::{After, Reach};
use super::bag::SettledRows;
use super::batch_numbers::BatchNumbers;
use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::consolidate::{ROWS_PER_BATCH, consolidate};
use super::keyed::KeyedReader;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics};
use super::ordered::{OrderedRows, OrderedSpec, leading_time, parts, tail_parts};
use super::parallel::over_parts;
use super::row_errors::OnRowError;
use super::rows::{RowCodec, rebatch};
use crate::error::Result;
use crate::state::{Run, TableId};

/// What to compute.
#[derive(Debug, Clone)]
pub struct WindowSpec {
    /// In SQL words, for people.
    pub detail: String,
    /// PARTITION BY and ORDER BY that all the functions have.
    pub rows: OrderedSpec,
    /// The functions, over the input's columns.
    pub functions: Vec<Arc<dyn WindowExpr>>,
    /// How far all of them together see.
    pub reach: Reach,
    /// The input's columns, then a column per function.
    pub schema: SchemaRef,
}

/// The operator.
pub struct Window {
    spec: WindowSpec,
    rows: OrderedRows,
    output: RowCodec,
    numbers: BatchNumbers,
}

/// Consecutive rows of one partition, every copy by itself, and those of them whose results are
/// of use; the others are there to be seen by the functions.
struct Stretch {
    rows: Range<usize>,
    wanted: Range<usize>,
}

/// Rows of some partitions, before or after a batch.
#[derive(Default)]
struct Stretches {
    rows: ByteRows,
    all: Vec<Stretch>,
}

/// The part of a partition that is computed, entry by entry, before and after the batch.
struct Part {
    /// Entries without the partition's bytes, with the copies before and after.
    entries: ByteRows,
    before: Vec<i64>,
    after: Vec<i64>,
    /// The first and the last entry whose copies change.
    changed: Option<(usize, usize)>,
    /// Entries of the partition that the watermark has closed, with their weights.
    closed: Vec<(Vec<u8>, i64)>,
}

impl Part {
    fn push(&mut self, entry: &[u8], before: i64, after: i64) {
        self.entries.push(entry, &[]);
        self.before.push(before.max(0));
        self.after.push(after.max(0));
        if before != after {
            let index = self.before.len() - 1;
            self.changed = Some((self.changed.map_or(index, |(first, _)| first), index));
        }
    }

    /// Drops entries at the head that none after the present end sees, when `copies` before it are
    /// enough. Now and then only, so that it costs little per entry.
    fn keep_last(&mut self, copies: u64) {
        let slack = 2 * usize::try_from(copies).unwrap_or(usize::MAX / 4) + 128;
        if self.before.len() < slack {
            return;
        }
        let mut kept = 0;
        let mut from = self.before.len();
        while from > 0 && kept < copies {
            from -= 1;
            kept += self.before[from] as u64;
        }
        let mut entries = ByteRows::default();
        for index in from..self.entries.len() {
            entries.push(self.entries.get(index), &[]);
        }
        self.entries = entries;
        self.before.drain(..from);
        self.after.drain(..from);
    }

    /// Takes out of the state the closed rows that no later row looks back to any more: all but
    /// the last `copies` before the change.
    fn free_closed(&self, group: &[u8], copies: u64, amendments: &mut SettledRows) {
        let mut kept = 0;
        let mut from = self.closed.len();
        while from > 0 && kept < copies {
            from -= 1;
            kept += self.closed[from].1.max(0) as u64;
        }
        for (entry, weight) in &self.closed[..from] {
            amendments.push(&[group, entry].concat(), *weight, 0);
        }
    }

    /// The entries whose results can differ from before to after.
    fn affected(&self, reach: Reach) -> Range<usize> {
        let Some((first, last)) = self.changed else {
            return 0..0;
        };
        // Every entry is at least one row, before or after.
        let start = match reach.after {
            After::Rows(rows) => first.saturating_sub(usize::try_from(rows).unwrap_or(usize::MAX)),
            After::Peers => {
                let order = |index: usize| tail_parts(self.entries.get(index)).order;
                (0..first)
                    .rev()
                    .find(|index| order(*index) != order(first))
                    .map_or(0, |other| other + 1)
            }
            After::All => 0,
        };
        let end = match reach.before.and_then(|rows| usize::try_from(rows).ok()) {
            Some(rows) => (last + 1).saturating_add(rows).min(self.entries.len()),
            None => self.entries.len(),
        };
        start..end
    }

    /// Appends its rows, before or after the batch, to the stretches.
    fn append(&self, copies: &[i64], affected: &Range<usize>, to: &mut Stretches) {
        let start = to.rows.len();
        let (mut first, mut end) = (start, start);
        for (index, copies) in copies.iter().enumerate() {
            if index == affected.start {
                first = to.rows.len();
            }
            let row = tail_parts(self.entries.get(index)).row;
            for _ in 0..*copies {
                to.rows.push(row, &[]);
            }
            if index + 1 == affected.end {
                end = to.rows.len();
            }
        }
        if first < end {
            to.all.push(Stretch {
                rows: start..to.rows.len(),
                wanted: first..end,
            });
        }
    }
}

/// What goes out for some partitions, and the rows of theirs that leave the state.
#[derive(Default)]
struct Computed {
    out: Vec<ChangeBatch>,
    amendments: SettledRows,
}

impl Window {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: WindowSpec) -> Result<Self> {
        Ok(Self {
            rows: OrderedRows::new(name, spec.rows.clone())?,
            output: RowCodec::new(spec.schema.clone())?,
            numbers: BatchNumbers::default(),
            spec,
        })
    }

    /// The part of a touched partition that can have changed, with what its functions see.
    fn part(
        &self,
        changes: &SettledRows,
        range: Range<usize>,
        reader: &mut KeyedReader,
        context: &BatchContext,
    ) -> Result<Part> {
        let group = parts(changes.key(range.start)).group;
        let mut part = Part {
            entries: ByteRows::default(),
            before: Vec::new(),
            after: Vec::new(),
            changed: None,
            closed: Vec::new(),
        };
        let near = self.spec.reach.rows();
        let context_copies = near.map(|(before, after)| before + after);
        let closed_to = near.and(self.rows.encoding.order_closed_to(context));
        let is_closed = |entry: &[u8]| {
            let time = leading_time(tail_parts(entry).order);
            closed_to.zip(time).is_some_and(|(to, time)| time <= to)
        };
        let mut next = range.start;
        let mut behind = 0;
        let tail_of = |index: usize| &changes.key(index)[group.len()..];
        reader.each(group, |entry, weight| {
            while next < range.end && tail_of(next) < entry {
                part.push(
                    tail_of(next),
                    changes.old_weight(next),
                    changes.new_weight(next),
                );
                next += 1;
            }
            if next < range.end && tail_of(next) == entry {
                part.push(entry, weight, changes.new_weight(next));
                next += 1;
                return Ok(ControlFlow::Continue(()));
            }
            if let Some(copies) = context_copies {
                if next == range.start {
                    if is_closed(entry) {
                        part.closed.push((entry.to_vec(), weight));
                    }
                    part.keep_last(copies);
                } else if next == range.end {
                    if behind >= copies {
                        return Ok(ControlFlow::Break(()));
                    }
                    behind += weight.max(0) as u64;
                }
            }
            part.push(entry, weight, weight);
            Ok(ControlFlow::Continue(()))
        })?;
        for index in next..range.end {
            part.push(
                tail_of(index),
                changes.old_weight(index),
                changes.new_weight(index),
            );
        }
        Ok(part)
    }

    /// What the changes of some partitions come to.
    fn compute(
        &self,
        changes: &SettledRows,
        groups: &[Range<usize>],
        context: &BatchContext,
    ) -> Result<Computed> {
        let mut reader = KeyedReader::new(&self.rows.bag, &context.snapshot, false);
        let mut computed = Computed::default();
        let mut next = 0;
        while next < groups.len() {
            let (mut before, mut after) = (Stretches::default(), Stretches::default());
            while next < groups.len() && before.rows.len() + after.rows.len() < 2 * ROWS_PER_BATCH {
                let range = groups[next].clone();
                let group = parts(changes.key(range.start)).group;
                let part = self.part(changes, range, &mut reader, context)?;
                if let Some((rows_before, rows_after)) = self.spec.reach.rows() {
                    let copies = rows_before + rows_after;
                    part.free_closed(group, copies, &mut computed.amendments);
                }
                let affected = part.affected(self.spec.reach);
                part.append(&part.before, &affected, &mut before);
                part.append(&part.after, &affected, &mut after);
                next += 1;
            }
            computed.out.extend(self.difference(&before, &after)?);
        }
        Ok(computed)
    }

    /// The functions' results over the wanted rows of all stretches, with the rows.
    fn results(&self, stretches: &Stretches) -> Result<Vec<RecordBatch>> {
        let rows = self.rows.encoding.codec().decode(stretches.rows.iter())?;
        let mut results = Vec::with_capacity(stretches.all.len());
        for stretch in &stretches.all {
            let part = rows.slice(stretch.rows.start, stretch.rows.len());
            let from = stretch.wanted.start - stretch.rows.start;
            let mut columns: Vec<ArrayRef> = part.columns().to_vec();
            for function in &self.spec.functions {
                columns.push(function.evaluate(&part)?);
            }
            let columns = columns
                .iter()
                .map(|column| column.slice(from, stretch.wanted.len()))
                .collect();
            results.push(rebatch(&self.spec.schema, columns, stretch.wanted.len())?);
        }
        Ok(results)
    }

    /// How the results over some whole parts differ.
    fn difference(&self, before: &Stretches, after: &Stretches) -> Result<Vec<ChangeBatch>> {
        let mut changes = Vec::new();
        for rows in self.results(before)? {
            changes.push(ChangeBatch::inserts(rows).negated());
        }
        changes.extend(self.results(after)?.into_iter().map(ChangeBatch::inserts));
        consolidate(&self.output, &changes)
    }
}

impl Operator for Window {
    fn describe(&self) -> OperatorDescription {
        let again = match (self.spec.reach.rows(), self.spec.reach.after) {
            (Some(_), _) => "the neighbourhood of a change is computed again",
            (None, After::All) => "touched partitions are computed again",
            (None, _) => "touched partitions are computed again from the change on",
        };
        OperatorDescription {
            kind: "window",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some(format!("(partition, order, row) -> weight; {again}")),
            retention: Some(self.rows.encoding.retention()),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.rows.encoding.errors.set_policy(policy);
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let late = self.rows.push(&change, context)?;
        let numbers = self.numbers.of(context);
        numbers.input_rows += change.num_rows() as u64;
        numbers.late_rows += late;
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.rows.encoding.errors.settle()?;
        self.rows.forget_closed(context)?;
        let changes = self.rows.bag.settle(&context.snapshot)?;
        let groups = self.rows.changed_groups(context);
        let mut amendments = SettledRows::default();
        for part in over_parts(&groups, |groups| self.compute(&changes, groups, context))? {
            amendments.append(&part.amendments);
            let output_rows: usize = part.out.iter().map(ChangeBatch::num_rows).sum();
            self.numbers.of(context).output_rows += output_rows as u64;
            out.extend(part.out);
        }
        if !amendments.is_empty() {
            self.rows.bag.amend(&amendments);
        }
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        self.rows.bag.drain(&context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        self.rows.bag.tables().to_vec()
    }

    fn reset(&mut self) {
        self.rows.bag.reset();
        self.rows.encoding.errors.reset();
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.rows.bag.add_statistics(&mut statistics);
        self.rows.encoding.errors.add_statistics(&mut statistics);
        statistics
    }
}

//! Top-N: the first rows of each group in an order.
//!
//! ```text
//!   change ──► (group, order, row) -> weight
//!                 │ per touched group: the first n before │ and after the batch
//!                 ▼
//!              difference: rows that came in or fell out, numbers that moved
//! ```
//!
//! `LIMIT`/`OFFSET`, `DISTINCT ON` and `ROW_NUMBER()`, `RANK()`, `DENSE_RANK()` with an upper bound
//! are all this. Only the head of a group is read: once before the batch, and a second time only
//! when something of it was taken away; else what came in is merged with what was there. On
//! append-only input rows that fall behind the first n never come back: only the heads are kept
//! ([`heads`]), of which a view's rows can be read ([`contents`]).

mod contents;
mod heads;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;

pub use self::contents::{HeadContents, HeadReader};
pub use self::heads::HeadForm;
use self::heads::Heads;
use crate::dataflow::bag::SettledRows;
use crate::dataflow::batch_numbers::BatchNumbers;
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::consolidate::{ROWS_PER_BATCH, change_of};
use crate::dataflow::keyed::KeyedReader;
use crate::dataflow::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics};
use crate::dataflow::ordered::{OrderedEncoding, OrderedRows, OrderedSpec, parts, tail_parts};
use crate::dataflow::parallel::over_parts;
use crate::dataflow::row_errors::OnRowError;
use crate::dataflow::rows::rebatch;
use crate::error::Result;
use crate::state::{Run, TableId};

/// What is counted, and what goes out with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Copies of rows are counted; rows go out as they are.
    Rows,
    /// Copies of rows are counted; each goes out with its number.
    RowNumber,
    /// The rows before the first one that ties.
    Rank,
    /// The different order keys up to this one.
    DenseRank,
}

/// Which rows.
#[derive(Debug, Clone)]
pub struct TopSpec {
    /// In SQL words, for people.
    pub detail: String,
    /// Groups and order.
    pub rows: OrderedSpec,
    /// What is counted.
    pub numbering: Numbering,
    /// Copies left out at the head of each group; only of [`Numbering::Rows`].
    pub skip: u64,
    /// The last number that goes out; counted after `skip`. `None`: all.
    pub fetch: Option<u64>,
    /// No weight of the input is ever negative.
    pub append_only_input: bool,
    /// Output rows: the input's columns, then the number if there is one.
    pub schema: SchemaRef,
}

/// Where the rows are kept.
enum Store {
    /// Entry by entry.
    All(OrderedRows),
    /// Only the heads, of append-only input.
    Heads(OrderedEncoding, Heads),
}

/// Copies up to which a head is one value; a longer one would be written anew for every row.
const COPIES_PER_VALUE_MAX: u64 = 3;

/// The operator.
pub struct Top {
    spec: TopSpec,
    store: Store,
    numbers: BatchNumbers,
    /// Nobody takes the changes of this batch.
    nobody_takes: bool,
}

/// The head of a group: entries in order until no further one can go out.
#[derive(Debug, Default)]
struct Head {
    /// Without the group's bytes.
    entries: ByteRows,
    /// Copies kept of each entry.
    copies: Vec<i64>,
    /// Copies of all entries so far.
    total: u64,
    /// Number of the last entry.
    number: u64,
}

/// What goes out of a head: entry, number, copies; ascending by the first two.
#[derive(Default)]
struct Selection {
    entries: ByteRows,
    numbers: Vec<u64>,
    weights: Vec<i64>,
}

impl Head {
    fn same_as(&self, other: &Self) -> bool {
        self.copies == other.copies && self.entries.iter().eq(other.entries.iter())
    }
}

/// What goes out in a batch, in parts of some size.
#[derive(Default)]
struct Difference {
    /// It is only counted.
    is_unmade: bool,
    unmade_rows: u64,
    going: Selection,
    ready: Vec<Selection>,
}

impl Difference {
    /// Adds how a group's selection changed.
    fn push(&mut self, before: &Selection, after: &Selection) {
        let (going, unmade_rows) = (&mut self.going, &mut self.unmade_rows);
        match self.is_unmade {
            true => difference(before, after, |_, _, weight| {
                *unmade_rows += u64::from(weight != 0);
            }),
            false => difference(before, after, |entry, number, weight| {
                going.push(tail_parts(entry).row, number, weight);
            }),
        }
        if self.going.weights.len() >= ROWS_PER_BATCH {
            self.ready.push(std::mem::take(&mut self.going));
        }
    }

    /// One that is to be made or counted as this is, for a part of the groups.
    fn apart(&self) -> Self {
        Self {
            is_unmade: self.is_unmade,
            ..Self::default()
        }
    }

    /// Takes over the difference of the groups behind.
    fn absorb(&mut self, part: Self) {
        self.unmade_rows += part.unmade_rows;
        self.ready.extend(part.parts());
    }

    fn parts(mut self) -> Vec<Selection> {
        self.ready.push(self.going);
        self.ready
    }
}

impl Selection {
    fn push(&mut self, entry: &[u8], number: u64, weight: i64) {
        if weight != 0 {
            self.entries.push(entry, &[]);
            self.numbers.push(number);
            self.weights.push(weight);
        }
    }

    fn place(&self, index: usize) -> (&[u8], u64) {
        (self.entries.get(index), self.numbers[index])
    }
}

impl TopSpec {
    /// A column of the output is the number.
    pub fn is_number(&self, column: usize) -> bool {
        self.numbering != Numbering::Rows && column == self.rows.input.fields().len()
    }

    /// How the heads of groups are kept, if they alone are: what falls behind the head of append-only
    /// input never comes back. `None`: all rows are kept.
    pub fn heads_form(&self) -> Option<HeadForm> {
        let copies_max = self.copies_max().filter(|_| self.append_only_input)?;
        // A rank has no bound on the rows that share it.
        let counts_copies = matches!(self.numbering, Numbering::Rows | Numbering::RowNumber);
        Some(match counts_copies && copies_max <= COPIES_PER_VALUE_MAX {
            true => HeadForm::Value,
            false => HeadForm::Entries,
        })
    }

    /// Copies at the head of a group that matter; `None`: all.
    fn copies_max(&self) -> Option<u64> {
        Some(self.skip.saturating_add(self.fetch?))
    }

    /// Takes the next entry of a group; breaks when neither it nor any after it goes out.
    fn take(&self, head: &mut Head, entry: &[u8], weight: i64) -> ControlFlow<()> {
        // A weight below zero is a passing state of an input out of order.
        let weight = weight.max(0);
        let mut copies = weight;
        match self.numbering {
            Numbering::Rows | Numbering::RowNumber => {
                if let Some(max) = self.copies_max() {
                    let left = max.saturating_sub(head.total);
                    if left == 0 {
                        return ControlFlow::Break(());
                    }
                    copies = copies.min(i64::try_from(left).unwrap_or(i64::MAX));
                }
            }
            Numbering::Rank | Numbering::DenseRank => {
                let last = head.entries.len().checked_sub(1);
                let ties = last.is_some_and(|last| {
                    tail_parts(head.entries.get(last)).order == tail_parts(entry).order
                });
                if !ties {
                    head.number = match self.numbering {
                        Numbering::Rank => head.total + 1,
                        _ => head.number + 1,
                    };
                }
                if self.fetch.is_some_and(|fetch| head.number > fetch) {
                    return ControlFlow::Break(());
                }
            }
        }
        if copies > 0 {
            head.entries.push(entry, &[]);
            head.copies.push(copies);
            head.total += copies as u64;
        }
        ControlFlow::Continue(())
    }

    /// What goes out of a head.
    fn select(&self, head: &Head) -> Selection {
        let mut selection = Selection::default();
        let (mut before, mut dense, mut rank) = (0_u64, 0, 0);
        for (index, &copies) in head.copies.iter().enumerate() {
            let entry = head.entries.get(index);
            let ties = index > 0
                && tail_parts(head.entries.get(index - 1)).order == tail_parts(entry).order;
            if !ties {
                (dense, rank) = (dense + 1, before + 1);
            }
            match self.numbering {
                Numbering::Rows => {
                    let skipped = self.skip.saturating_sub(before).min(copies as u64);
                    selection.push(entry, 0, copies - skipped as i64);
                }
                Numbering::RowNumber => {
                    for copy in 0..copies as u64 {
                        selection.push(entry, before + copy + 1, 1);
                    }
                }
                Numbering::Rank => selection.push(entry, rank, copies),
                Numbering::DenseRank => selection.push(entry, dense, copies),
            }
            before += copies as u64;
        }
        selection
    }
}

impl Top {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: TopSpec) -> Result<Self> {
        let rows = spec.rows.clone();
        Ok(Self {
            store: match spec.heads_form() {
                Some(form) => Store::Heads(OrderedEncoding::new(rows)?, Heads::new(name, form)),
                None => Store::All(OrderedRows::new(name, rows)?),
            },
            numbers: BatchNumbers::default(),
            nobody_takes: false,
            spec,
        })
    }

    fn encoding_mut(&mut self) -> &mut OrderedEncoding {
        match &mut self.store {
            Store::All(rows) => &mut rows.encoding,
            Store::Heads(encoding, _) => encoding,
        }
    }

    fn encoding(&self) -> &OrderedEncoding {
        match &self.store {
            Store::All(rows) => &rows.encoding,
            Store::Heads(encoding, _) => encoding,
        }
    }

    /// The head after the batch: read again if entries of the old head lost copies, else merged
    /// from the old head and the entries that gained some.
    fn head_after(
        spec: &TopSpec,
        before: &Head,
        changes: &SettledRows,
        range: Range<usize>,
        group: &[u8],
        reader: &mut KeyedReader,
    ) -> Result<Head> {
        let loses = range.clone().any(|index| changes.delta(index) < 0);
        let mut head = Head::default();
        if loses {
            reader.each(group, |entry, weight| {
                Ok(spec.take(&mut head, entry, weight))
            })?;
            return Ok(head);
        }
        let (mut old, mut index) = (0, range.start);
        while old < before.copies.len() || index < range.end {
            let changed = (index < range.end).then(|| &changes.key(index)[group.len()..]);
            let kept = (old < before.copies.len()).then(|| before.entries.get(old));
            let (entry, weight) = match (kept, changed) {
                (Some(kept), Some(changed)) if kept < changed => (kept, before.copies[old]),
                (Some(kept), None) => (kept, before.copies[old]),
                (_, Some(changed)) => (changed, changes.new_weight(index)),
                (None, None) => break,
            };
            old += usize::from(kept == Some(entry));
            index += usize::from(changed == Some(entry));
            if spec.take(&mut head, entry, weight).is_break() {
                break;
            }
        }
        Ok(head)
    }

    /// Compares the heads of the groups that a batch touches, of which all rows are kept.
    fn compare_all(
        spec: &TopSpec,
        rows: &mut OrderedRows,
        context: &BatchContext,
        difference: &mut Difference,
    ) -> Result<()> {
        let snapshot = &context.snapshot;
        rows.forget_closed(context)?;
        let changes = rows.bag.settle(snapshot)?;
        let groups = rows.changed_groups(context);
        let (bag, whole) = (&rows.bag, &*difference);
        let compare = |groups: &[Range<usize>]| -> Result<Difference> {
            let mut part = whole.apart();
            let mut old_rows = KeyedReader::new(bag, snapshot, false);
            let mut new_rows = KeyedReader::new(bag, snapshot, true);
            for range in groups {
                let group = parts(changes.key(range.start)).group;
                let mut before = Head::default();
                old_rows.each(group, |entry, weight| {
                    Ok(spec.take(&mut before, entry, weight))
                })?;
                let range = range.clone();
                let after = Self::head_after(spec, &before, &changes, range, group, &mut new_rows)?;
                part.push(&spec.select(&before), &spec.select(&after));
            }
            Ok(part)
        };
        for part in over_parts(&groups, compare)? {
            difference.absorb(part);
        }
        Ok(())
    }

    fn emit(
        &mut self,
        going: &mut Selection,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        if going.weights.is_empty() {
            return Ok(());
        }
        let count = going.weights.len();
        let rows = self.encoding().codec().decode(going.entries.iter())?;
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        if self.spec.numbering != Numbering::Rows {
            columns.push(Arc::new(UInt64Array::from(std::mem::take(
                &mut going.numbers,
            ))));
        }
        let rows = rebatch(&self.spec.schema, columns, count)?;
        out.push(change_of(rows, going.weights.iter().copied()));
        self.numbers.of(context).output_rows += count as u64;
        *going = Selection::default();
        Ok(())
    }
}

/// Gives the difference of two selections of one group: entry, number and weight.
fn difference(before: &Selection, after: &Selection, mut take: impl FnMut(&[u8], u64, i64)) {
    let (mut old, mut new) = (0, 0);
    while old < before.weights.len() || new < after.weights.len() {
        let was = (old < before.weights.len()).then(|| before.place(old));
        let is = (new < after.weights.len()).then(|| after.place(new));
        let place = match (was, is) {
            (Some(was), Some(is)) => was.min(is),
            (Some(place), None) | (None, Some(place)) => place,
            (None, None) => return,
        };
        let mut weight = 0;
        if was == Some(place) {
            weight -= before.weights[old];
            old += 1;
        }
        if is == Some(place) {
            weight += after.weights[new];
            new += 1;
        }
        take(place.0, place.1, weight);
    }
}

impl Operator for Top {
    fn describe(&self) -> OperatorDescription {
        let kept = match &self.store {
            Store::All(_) => "(group, order, row) -> weight",
            Store::Heads(_, heads) if heads.form() == HeadForm::Entries => {
                "(group, order, row) -> weight of the first rows"
            }
            Store::Heads(..) => "group -> its first rows",
        };
        OperatorDescription {
            kind: "top",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some(kept.to_owned()),
            retention: Some(match &self.store {
                Store::All(rows) => rows.encoding.retention(),
                Store::Heads(encoding, _) => encoding.retention(),
            }),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.encoding_mut().errors.set_policy(policy);
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let late = match &mut self.store {
            Store::All(rows) => rows.push(&change, context)?,
            Store::Heads(encoding, heads) => {
                encoding.each(&change, context, |group, tail, weight| {
                    heads.add(group, tail, weight);
                })?
            }
        };
        let numbers = self.numbers.of(context);
        numbers.input_rows += change.num_rows() as u64;
        numbers.late_rows += late;
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.encoding_mut().errors.settle()?;
        let mut difference = Difference {
            is_unmade: self.nobody_takes,
            ..Difference::default()
        };
        match &mut self.store {
            Store::All(rows) => Self::compare_all(&self.spec, rows, context, &mut difference)?,
            Store::Heads(encoding, heads) => {
                heads.finish(&self.spec, encoding, context, &mut difference)?;
            }
        }
        self.numbers.of(context).output_rows += difference.unmade_rows;
        for mut going in difference.parts() {
            self.emit(&mut going, context, out)?;
        }
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        match &mut self.store {
            Store::All(rows) => rows.bag.drain(&context.snapshot),
            Store::Heads(_, heads) => heads.drain(&context.snapshot),
        }
    }

    fn tables(&self) -> Vec<TableId> {
        match &self.store {
            Store::All(rows) => rows.bag.tables().to_vec(),
            Store::Heads(_, heads) => heads.tables().to_vec(),
        }
    }

    fn reset(&mut self) {
        self.encoding_mut().errors.reset();
        match &mut self.store {
            Store::All(rows) => rows.bag.reset(),
            Store::Heads(_, heads) => heads.reset(),
        }
        self.numbers = BatchNumbers::default();
    }

    fn set_quiet(&mut self, quiet: bool) {
        self.nobody_takes = quiet;
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.encoding().errors.add_statistics(&mut statistics);
        match &self.store {
            Store::All(rows) => rows.bag.add_statistics(&mut statistics),
            Store::Heads(_, heads) => heads.add_statistics(&mut statistics),
        }
        statistics
    }
}

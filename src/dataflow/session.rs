//! Sessions: rows of a key that follow each other within a gap, with their session's bounds.
//!
//! ```text
//!   change ──► (key, time, row) -> weight
//!                 │ per touched key: sessions before │ and after the batch
//!                 ▼
//!              rows whose session came, went, grew, merged or split: −old bounds, +new bounds
//!   watermark ──► (end, key) -> 1: sessions that nothing can touch any more are freed
//! ```
//!
//! Times and weights alone decide which rows go out, so only these are decoded. A row in time is
//! one whose own session, were it alone, is not closed (`time + gap` is above the watermark), as
//! in Spark. Such a row can still reach a session that ended up to a gap before; so a session is
//! kept until the watermark is a gap past its end, and what was answered stays right.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::SchemaRef;

use super::bag::{Bag, SettledRows, drain_all};
use super::batch_numbers::BatchNumbers;
use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::consolidate::{ROWS_PER_BATCH, change_of};
use super::keyed::{KeyedReader, each_around};
use super::number::sortable_bytes;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::ordered::{OrderedRows, OrderedSpec, leading_time, parts, tail_parts};
use super::row_errors::OnRowError;
use super::rows::rebatch;
use crate::error::{Error, Result};
use crate::sql::sessions::{end_of, goes_on};
use crate::state::{Run, TableId};

/// A bound of a session, as an output column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionColumn {
    /// Time of its first row.
    Start,
    /// Time of its last row plus the gap.
    End,
}

/// What to compute.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// In SQL words, for people.
    pub detail: String,
    /// Keys, and the time as the only order column, ascending. Where it follows a watermark, a row
    /// is late once its own session, were it alone, is closed.
    pub rows: OrderedSpec,
    /// Longest distance of two rows of a session: microseconds, or the integer time's unit.
    pub gap: i64,
    /// What is appended to the input's columns.
    pub columns: Vec<SessionColumn>,
    /// Output rows.
    pub schema: SchemaRef,
}

/// The operator.
pub struct Session {
    spec: SessionSpec,
    rows: OrderedRows,
    /// end and key -> 1 for every session; kept when a watermark frees them
    ends: Option<Bag>,
    numbers: BatchNumbers,
}

/// A key's row before and after the batch.
struct Member {
    row: Vec<u8>,
    time: i64,
    before: i64,
    after: i64,
}

/// Bounds of a session.
type Bounds = (i64, i64);

/// Rows on their way out.
#[derive(Default)]
struct Going {
    rows: ByteRows,
    bounds: Vec<Bounds>,
    weights: Vec<i64>,
}

impl Going {
    fn push(&mut self, row: &[u8], bounds: Bounds, weight: i64) {
        if weight != 0 {
            self.rows.push(row, &[]);
            self.bounds.push(bounds);
            self.weights.push(weight);
        }
    }
}

/// The session of each member that `weight` says is there, in order of time.
fn sessions(
    members: &[Member],
    gap: i64,
    weight: impl Fn(&Member) -> i64,
) -> Result<Vec<Option<Bounds>>> {
    let mut sessions = vec![None; members.len()];
    let present: Vec<usize> = (0..members.len())
        .filter(|index| weight(&members[*index]) > 0)
        .collect();
    let mut first = 0;
    while first < present.len() {
        let time = |at: usize| members[present[at]].time;
        let mut last = first;
        while last + 1 < present.len() && goes_on(time(last), time(last + 1), gap) {
            last += 1;
        }
        let bounds = (time(first), end_of(time(last), gap)?);
        for index in &present[first..=last] {
            sessions[*index] = Some(bounds);
        }
        first = last + 1;
    }
    Ok(sessions)
}

impl Session {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: SessionSpec) -> Result<Self> {
        let ends = spec.rows.order_closes_after.is_some();
        Ok(Self {
            rows: OrderedRows::new(name, spec.rows.clone())?,
            ends: ends.then(|| Bag::new(&format!("{name}/ends"))),
            numbers: BatchNumbers::default(),
            spec,
        })
    }

    /// Takes the rows of closed sessions out of the state. Before settling.
    fn forget_closed(&mut self, context: &BatchContext) -> Result<()> {
        let Some(closed) = self.rows.encoding.order_closed_to(context) else {
            return Ok(());
        };
        let (Some(ends), Some(above)) = (&mut self.ends, closed.checked_add(1)) else {
            return Ok(());
        };
        let snapshot = &context.snapshot;
        let mut due = ends.read_due(snapshot, &[], &sortable_bytes(above))?;
        let mut groups: Vec<Vec<u8>> = Vec::new();
        while due.advance()? {
            groups.push(due.row()[8..].to_vec());
        }
        groups.sort_unstable();
        groups.dedup();
        let mut gone = Vec::new();
        {
            let mut reader = KeyedReader::new(&self.rows.bag, snapshot, false);
            for group in groups {
                let mut members = Vec::new();
                let mut keys = ByteRows::default();
                reader.each(&group, |entry, weight| {
                    keys.push(&group, entry);
                    members.push(member(entry, weight, weight)?);
                    Ok(ControlFlow::Continue(()))
                })?;
                let sessions = sessions(&members, self.spec.gap, |member| member.before)?;
                for (index, session) in sessions.into_iter().enumerate() {
                    if session.is_some_and(|(_, end)| end <= closed) {
                        gone.push((keys.get(index).to_vec(), members[index].before));
                    }
                }
            }
        }
        for (entry, weight) in gone {
            self.rows.bag.add(&entry, &[], -weight);
        }
        Ok(())
    }

    /// What a touched key's rows send, and how its sessions' ends change.
    fn compare(
        &self,
        group: &[u8],
        members: &[Member],
        closed: Option<i64>,
        going: &mut Going,
        ends: &mut Vec<(Vec<u8>, i64)>,
    ) -> Result<()> {
        let before = sessions(members, self.spec.gap, |member| member.before)?;
        let after = sessions(members, self.spec.gap, |member| member.after)?;
        for (index, member) in members.iter().enumerate() {
            let was = before[index];
            // A closed session's rows were answered for and only leave the state.
            let is_closed = closed
                .zip(was)
                .is_some_and(|(closed, (_, end))| end <= closed);
            if is_closed {
                continue;
            }
            let (old, new) = (member.before.max(0), member.after.max(0));
            match (was, after[index]) {
                (Some(was), Some(is)) if was == is => going.push(&member.row, is, new - old),
                (was, is) => {
                    if let Some(was) = was {
                        going.push(&member.row, was, -old);
                    }
                    if let Some(is) = is {
                        going.push(&member.row, is, new);
                    }
                }
            }
        }
        if self.ends.is_some() {
            for (sessions, weight) in [(before, -1), (after, 1)] {
                let mut sessions: Vec<i64> = sessions.into_iter().flatten().map(|s| s.1).collect();
                sessions.dedup();
                ends.extend(sessions.into_iter().map(|end| {
                    let key = [&sortable_bytes(end)[..], group].concat();
                    (key, weight)
                }));
            }
        }
        Ok(())
    }

    fn emit(
        &mut self,
        going: Going,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let count = going.weights.len();
        if count == 0 {
            return Ok(());
        }
        let rows = self.rows.encoding.codec().decode(going.rows.iter())?;
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        for column in &self.spec.columns {
            let bounds = going.bounds.iter().map(|(start, end)| match column {
                SessionColumn::Start => *start,
                SessionColumn::End => *end,
            });
            columns.push(Arc::new(Int64Array::from_iter_values(bounds)));
        }
        let rows = rebatch(&self.spec.schema, columns, count)?;
        out.push(change_of(rows, going.weights.into_iter()));
        self.numbers.of(context).output_rows += count as u64;
        Ok(())
    }
}

/// A member from its entry without the key.
fn member(entry: &[u8], before: i64, after: i64) -> Result<Member> {
    let parts = tail_parts(entry);
    Ok(Member {
        row: parts.row.to_vec(),
        time: leading_time(parts.order)
            .ok_or_else(|| Error::damaged("the time of a row in the state store cannot be read"))?,
        before,
        after,
    })
}

impl Operator for Session {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "session",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some("(key, time, row) -> weight".to_owned()),
            retention: Some(match self.ends {
                Some(_) => Retention::by_time(
                    "freed when the watermark is a gap past the end of the session",
                ),
                None => Retention::by_input("kept while the row is in the input"),
            }),
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
        self.forget_closed(context)?;
        // Sessions that end at or before this are out of reach.
        let closed = self.rows.encoding.order_closed_to(context);
        let changes: Arc<SettledRows> = self.rows.bag.settle(&context.snapshot)?;
        let groups = self.rows.changed_groups(context);
        let mut ready = Vec::new();
        let mut going = Going::default();
        let mut ends = Vec::new();
        {
            let bag = &self.rows.bag;
            let mut reader = KeyedReader::new(bag, &context.snapshot, false);
            for range in groups {
                let group = parts(changes.key(range.start)).group;
                let mut members = Vec::new();
                each_around(&mut reader, &changes, group, |entry, before, after| {
                    members.push(member(entry, before, after)?);
                    Ok(())
                })?;
                self.compare(group, &members, closed, &mut going, &mut ends)?;
                if going.weights.len() >= ROWS_PER_BATCH {
                    ready.push(std::mem::take(&mut going));
                }
            }
        }
        ready.push(going);
        for going in ready {
            self.emit(going, context, out)?;
        }
        if let Some(bag) = &mut self.ends {
            for (key, weight) in ends {
                bag.add(&key, &[], weight);
            }
            bag.settle(&context.snapshot)?;
        }
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let bags = [&mut self.rows.bag].into_iter().chain(&mut self.ends);
        drain_all(bags, &context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        let ends = self.ends.iter().flat_map(Bag::tables);
        self.rows.bag.tables().into_iter().chain(ends).collect()
    }

    fn reset(&mut self) {
        self.rows.bag.reset();
        self.rows.encoding.errors.reset();
        if let Some(ends) = &mut self.ends {
            ends.reset();
        }
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.rows.bag.add_statistics(&mut statistics);
        self.rows.encoding.errors.add_statistics(&mut statistics);
        statistics
    }
}

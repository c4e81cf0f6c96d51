//! Temporal filter: rows that are in from a time until a time of their own.
//!
//! ```text
//!   change ──► now before `from`  ──► waiting: (from, until, row) -> weight
//!          ──► within             ──► out, and live: (until, row) -> weight
//!          ──► now past `until`   ──► nothing
//!   each batch: waiting rows whose time has come go out, live rows whose time is over go back
//! ```
//!
//! Time is the batch's, from the offset log: a batch that runs again gives the same. A batch is
//! wanted as soon as the clock passes the next of these times, rows or none.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use datafusion::physical_expr::PhysicalExpr;

use super::bag::{Bag, drain_all};
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::consolidate::Outgoing;
use super::number::{read_sortable, sortable_bytes};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::row_errors::{OnRowError, RowErrors};
use super::rows::{EncodedRows, RowCodec};
use crate::error::Result;
use crate::state::{Run, TableId};

/// How the batch's time plus an offset (microseconds) must lie to a time of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub enum Bound {
    /// `now + offset < time`
    Below {
        /// Added to now.
        offset_us: i64,
    },
    /// `now + offset <= time`
    UpTo {
        /// Added to now.
        offset_us: i64,
    },
    /// `now + offset > time`
    Above {
        /// Added to now.
        offset_us: i64,
    },
    /// `now + offset >= time`
    From {
        /// Added to now.
        offset_us: i64,
    },
}

impl Bound {
    /// The times at which a row is in, from the first up to but not including the second, when
    /// its own time is `time_us`. The ends stand for never and for ever.
    fn times(self, time_us: i64) -> (i64, i64) {
        match self {
            Self::Below { offset_us } => (i64::MIN, time_us.saturating_sub(offset_us)),
            Self::UpTo { offset_us } => (
                i64::MIN,
                time_us.saturating_sub(offset_us).saturating_add(1),
            ),
            Self::Above { offset_us } => (
                time_us.saturating_sub(offset_us).saturating_add(1),
                i64::MAX,
            ),
            Self::From { offset_us } => (time_us.saturating_sub(offset_us), i64::MAX),
        }
    }

    /// Rows never go back by it.
    pub fn only_lets_in(self) -> bool {
        matches!(self, Self::Above { .. } | Self::From { .. })
    }
}

/// What to filter.
#[derive(Debug, Clone)]
pub struct TemporalSpec {
    /// In SQL words, for people.
    pub detail: String,
    /// A timestamp of each row (microseconds) and how now must lie to it; all must hold.
    pub bounds: Vec<(Bound, Arc<dyn PhysicalExpr>)>,
    /// Rows, in and out.
    pub schema: SchemaRef,
}

/// The operator.
pub struct TemporalFilter {
    spec: TemporalSpec,
    codec: RowCodec,
    waiting: Bag,
    live: Bag,
    /// The next time at which a row comes or goes; the outer `None`: not looked up yet.
    due_us: Option<Option<i64>>,
    numbers: BatchNumbers,
    /// Of the rows' times.
    errors: RowErrors,
}

impl TemporalFilter {
    /// An operator; `name` is its stable name.
    pub fn new(name: &str, spec: TemporalSpec) -> Result<Self> {
        Ok(Self {
            codec: RowCodec::new(spec.schema.clone())?,
            waiting: Bag::new(&format!("{name}/waiting")),
            live: Bag::new(&format!("{name}/live")),
            due_us: None,
            numbers: BatchNumbers::default(),
            errors: RowErrors::default(),
            spec,
        })
    }

    /// From when until when each row is in; a row with a NULL time never is.
    fn times(&self, columns: &[ArrayRef], rows: usize) -> Vec<(i64, i64)> {
        let mut times = vec![(i64::MIN, i64::MAX); rows];
        for ((bound, _), column) in self.spec.bounds.iter().zip(columns) {
            let column = column.as_primitive::<TimestampMicrosecondType>();
            for (index, (from, until)) in times.iter_mut().enumerate() {
                if column.is_null(index) {
                    *until = i64::MIN;
                    continue;
                }
                let (first, end) = bound.times(column.value(index));
                (*from, *until) = ((*from).max(first), (*until).min(end));
            }
        }
        times
    }

    /// Keeps a row that is in until its time is over.
    fn keep_live(live: &mut Bag, until: i64, row: &[u8], weight: i64) {
        if until < i64::MAX {
            live.add(&sortable_bytes(until), row, weight);
        }
    }

    /// Waiting rows whose time has come.
    fn let_in(&mut self, context: &BatchContext, going: &mut Outgoing) -> Result<()> {
        let Some(above) = context.now_us.checked_add(1) else {
            return Ok(());
        };
        let snapshot = &context.snapshot;
        let mut due = self
            .waiting
            .read_due(snapshot, &[], &sortable_bytes(above))?;
        while due.advance()? {
            let (until, row) = (read_sortable(&due.row()[8..])?, &due.row()[16..]);
            if context.now_us < until {
                going.push(row, due.weight());
                Self::keep_live(&mut self.live, until, row, due.weight());
            }
            self.waiting.add(due.row(), &[], -due.weight());
        }
        Ok(())
    }

    /// Live rows whose time is over.
    fn let_out(&mut self, context: &BatchContext, going: &mut Outgoing) -> Result<()> {
        let Some(above) = context.now_us.checked_add(1) else {
            return Ok(());
        };
        let snapshot = &context.snapshot;
        let mut over = self.live.read_due(snapshot, &[], &sortable_bytes(above))?;
        while over.advance()? {
            going.push(&over.row()[8..], -over.weight());
            self.live.add(over.row(), &[], -over.weight());
        }
        Ok(())
    }
}

impl Operator for TemporalFilter {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "temporal filter",
            detail: self.spec.detail.clone(),
            incremental: true,
            state: Some("(time, row) -> weight".to_owned()),
            retention: Some(Retention::by_time(
                "freed when now() has passed the time at which the row leaves",
            )),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.errors.set_policy(policy);
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let times = self.spec.bounds.iter().map(|(_, time)| Arc::clone(time));
        let times: Vec<_> = times.collect();
        let input_rows = change.num_rows() as u64;
        let (change, columns) = self.errors.evaluate(&times, change)?;
        let times = self.times(&columns, change.num_rows());
        let now = context.now_us;
        let rows: EncodedRows = self.codec.encode(change.rows())?;
        let mut is_in = Vec::with_capacity(times.len());
        for (index, (from, until)) in times.into_iter().enumerate() {
            let (row, weight) = (rows.row(index), change.weight(index));
            is_in.push(from <= now && now < until);
            if now < from && from < until {
                let key = [sortable_bytes(from), sortable_bytes(until)];
                self.waiting.add(key.as_flattened(), row, weight);
            } else if now < until {
                Self::keep_live(&mut self.live, until, row, weight);
            }
        }
        let going = change.filter(&is_in.into())?;
        let numbers = self.numbers.of(context);
        numbers.input_rows += input_rows;
        numbers.output_rows += going.num_rows() as u64;
        if !going.is_empty() {
            out.push(going);
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.errors.settle()?;
        let mut going = Outgoing::default();
        self.let_in(context, &mut going)?;
        self.let_out(context, &mut going)?;
        going.decode(&self.codec, out)?;
        self.numbers.of(context).output_rows += going.len() as u64;
        let mut due: Option<i64> = None;
        for bag in [&mut self.waiting, &mut self.live] {
            bag.settle(&context.snapshot)?;
            let mut first = bag.read_rest(&context.snapshot)?;
            if first.advance()? {
                let time = read_sortable(first.row())?;
                due = Some(due.map_or(time, |due| due.min(time)));
            }
        }
        self.due_us = Some(due);
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        drain_all([&mut self.waiting, &mut self.live], &context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        [&self.waiting, &self.live]
            .into_iter()
            .flat_map(Bag::tables)
            .collect()
    }

    fn reset(&mut self) {
        self.waiting.reset();
        self.live.reset();
        self.due_us = None;
        self.errors.reset();
        self.numbers = BatchNumbers::default();
    }

    fn due_us(&self) -> Option<i64> {
        // Not looked up yet: the next batch does, so it is due at once.
        self.due_us.unwrap_or(Some(i64::MIN))
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.waiting.add_statistics(&mut statistics);
        self.live.add_statistics(&mut statistics);
        self.errors.add_statistics(&mut statistics);
        statistics
    }
}

//! The operator: evaluates pushes, runs the shards, frees what the watermark closes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::physical_expr::PhysicalExpr;
use rayon::prelude::*;

use super::AggregateRequest;
use super::contents::groups_table;
use super::input::BatchInput;
use super::keys::KeyFormat;
use super::plan::AggregatePlan;
use super::shard::Shard;
use super::shared::{Closing, ShardOutput, Shared};
use crate::catalog::definition::EmitMode;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::{Entries, merge_into_run};
use crate::dataflow::late::{LateBatch, LateRows};
use crate::dataflow::number::{read_sortable, sortable_bytes, write_signed};
use crate::dataflow::operator::{
    BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention,
};
use crate::dataflow::row_errors::{FailedRows, OnRowError, RowErrors, evaluate_each};
use crate::dataflow::single_entry;
use crate::error::{Error, Result};
use crate::state::{EntryKind, MemoryBudget, Run, StateSnapshot, TableId};

/// Rows below which handing work to other threads costs more than it saves.
const PARALLEL_ROWS_MIN: usize = 8192;
/// Rows that are gathered before the shards take them: waking the threads costs as much as a few
/// thousand rows do.
const GATHERED_ROWS_MAX: usize = 128 << 10;
/// Fewer touched groups than this are merged at no cost that counts.
const WHOLE_GROUPS_MIN: usize = 4096;
/// More shards than this find no cores.
const SHARDS_MAX: usize = 16;

/// Incremental `GROUP BY`; see the module.
#[derive(Debug)]
pub struct AggregateOperator {
    shared: Shared,
    detail: String,
    ends_table: TableId,
    statistics_table: TableId,
    shards: Vec<Shard>,
    /// There are as many shards as there are threads, which may be others from batch to batch.
    follows_pool: bool,
    /// What was pushed and the shards have not taken yet.
    gathered: Vec<BatchInput>,
    gathered_rows: usize,
    /// Every group of the store is resident; `None`: not looked yet.
    complete: Option<bool>,
    /// Rows in all state tables; `None`: not read yet.
    state_rows: Option<i64>,
    /// Groups that end at or before this are gone from the state.
    closed_until: Option<i64>,
    /// The first end of an open group; `None`: not looked yet; `Some(None)`: none is open.
    first_open_end: Option<Option<i64>>,
    in_batch: bool,
    shed_wanted: bool,
    /// The batch writes the entries of all groups, which takes the place of all older ones.
    whole: bool,
    outputs: Vec<ShardOutput>,
    closed_ends: Entries,
    statistics: OperatorStatistics,
    errors: RowErrors,
    late: LateRows,
    budget: Option<Arc<MemoryBudget>>,
    accounted_bytes: usize,
}

/// Shards that the present threads are good for.
fn shards_of_pool() -> usize {
    rayon::current_num_threads().min(SHARDS_MAX)
}

fn new_shards(shared: &Shared, count: usize) -> Vec<Shard> {
    (0..count)
        .map(|index| Shard::new(shared, index, count))
        .collect()
}

impl AggregateOperator {
    /// Compiles a request. SQLSTATE 0A000: values that cannot be kept, or `EMIT ON WINDOW CLOSE`
    /// over groups that no watermark closes.
    pub fn try_new(request: AggregateRequest) -> Result<Self> {
        let mut operator = Self::try_with_shards(request, shards_of_pool())?;
        operator.follows_pool = true;
        Ok(operator)
    }

    /// As [`Self::try_new`] with a number of shards, which changes speed and nothing else.
    pub fn try_with_shards(request: AggregateRequest, shards: usize) -> Result<Self> {
        let emit_on_close = request.emit == EmitMode::OnWindowClose;
        if emit_on_close && request.event_time.is_none() {
            return Err(Error::unsupported("cannot emit on window close without a window in the groups")
                .detail("No group column comes from an event-time column, so no watermark closes a group.")
                .hint("Group by the window columns of TUMBLE or HOP over a relation with WATERMARK FOR, or use EMIT ON UPDATE."));
        }
        let plan = AggregatePlan::try_new(&request)?;
        let fields = request.output_schema.fields();
        let types = fields
            .iter()
            .take(request.group.len())
            .map(|f| f.data_type().clone())
            .collect();
        let format = KeyFormat::try_new(types)?;
        // One group has no second shard to be in.
        let shards = if format.is_single() { 1 } else { shards.max(1) };
        let table = |name: &str| TableId::from_name(&format!("{}/{name}", request.name));
        let detail = describe(&request);
        let shared = Shared {
            plan,
            format,
            group: request
                .group
                .into_iter()
                .map(|(expression, _)| expression)
                .collect(),
            output_schema: request.output_schema,
            event_time: request.event_time,
            emit_on_close,
            groups_table: groups_table(&request.name),
            on_row_error: OnRowError::default(),
            append_only_input: request.append_only_input,
            nobody_takes: false,
            name: request.name.clone(),
        };
        Ok(Self {
            detail,
            ends_table: table("ends"),
            statistics_table: table("statistics"),
            shards: new_shards(&shared, shards),
            follows_pool: false,
            shared,
            gathered: Vec::new(),
            gathered_rows: 0,
            complete: None,
            state_rows: None,
            closed_until: None,
            first_open_end: None,
            in_batch: false,
            shed_wanted: false,
            whole: false,
            outputs: Vec::new(),
            closed_ends: Entries::default(),
            statistics: OperatorStatistics::default(),
            errors: RowErrors::default(),
            late: LateRows::default(),
            budget: None,
            accounted_bytes: 0,
        })
    }

    fn begin(&mut self, context: &BatchContext) -> Result<()> {
        if self.in_batch {
            return Ok(());
        }
        if self.follows_pool
            && !self.shared.format.is_single()
            && self.shards.len() != shards_of_pool()
        {
            // Which shard a group is in shows in nothing but in what is resident.
            self.shards = new_shards(&self.shared, shards_of_pool());
            self.complete = None;
            self.account();
        }
        if self.complete.is_none() {
            self.complete = Some(context.snapshot.is_table_empty(self.shared.groups_table)?);
        }
        if self.state_rows.is_none() {
            let stored = single_entry::read_number(&context.snapshot, self.statistics_table)?;
            self.state_rows = Some(stored);
        }
        self.statistics = OperatorStatistics {
            state_rows: self.statistics.state_rows,
            ..Default::default()
        };
        self.budget = Some(Arc::clone(&context.budget));
        self.in_batch = true;
        Ok(())
    }

    /// The shards take what was pushed.
    fn take_gathered(&mut self, context: &BatchContext) -> Result<()> {
        let inputs = std::mem::take(&mut self.gathered);
        let rows = std::mem::take(&mut self.gathered_rows);
        let store = self.store(context);
        let shared = &self.shared;
        let take = |shard: &mut Shard| {
            let mut inputs = inputs.iter();
            inputs.try_for_each(|input| shard.push(shared, input, store))
        };
        if rows < PARALLEL_ROWS_MIN || self.shards.len() == 1 {
            self.shards.iter_mut().try_for_each(take)
        } else {
            self.shards.par_iter_mut().try_for_each(take)
        }
    }

    /// Where groups that are not resident are read from; `None`: all of them are resident.
    fn store<'a>(&self, context: &'a BatchContext) -> Option<&'a StateSnapshot> {
        (self.complete != Some(true)).then_some(&context.snapshot)
    }

    /// The change without the rows whose group the watermark has closed.
    fn without_late_rows(
        &mut self,
        change: ChangeBatch,
        context: &BatchContext,
    ) -> Result<ChangeBatch> {
        let (Some(event_time), Some(watermark)) = (&self.shared.event_time, context.watermark)
        else {
            return Ok(change);
        };
        let expression: &Arc<dyn PhysicalExpr> = &self.shared.group[event_time.group_index];
        // A time that cannot be computed is met again, and told, with the other expressions.
        let mut failed = FailedRows::default();
        let times = evaluate_each(expression, change.rows(), &mut failed)?;
        let ends = event_time.ends(&times)?;
        let late = (0..ends.len())
            .filter(|&i| ends.is_valid(i) && ends.value(i) <= watermark)
            .count();
        if late == 0 {
            return Ok(change);
        }
        self.statistics.late_rows += late as u64;
        let in_time: BooleanArray = (0..ends.len())
            .map(|i| Some(ends.is_null(i) || ends.value(i) > watermark))
            .collect();
        self.late
            .keep(&change, &ends, event_time.end_offset, &in_time)?;
        change.filter(&in_time)
    }

    /// The change evaluated where some rows fail: by the view's policy without these rows, or with
    /// NULL for what cannot be computed.
    fn evaluate_each(&mut self, change: ChangeBatch) -> Result<BatchInput> {
        let Shared {
            plan,
            format,
            group,
            ..
        } = &self.shared;
        let mut failed = FailedRows::default();
        let input = BatchInput::evaluate_each(plan, format, group, &change, &mut failed)?;
        self.errors.note(&change, &failed)?;
        if failed.is_empty() || self.errors.policy() == OnRowError::Null {
            return Ok(input);
        }
        let change = change.filter(&failed.good_rows(change.num_rows()))?;
        // What still fails is passed over by a FILTER.
        let mut passed_over = FailedRows::default();
        BatchInput::evaluate_each(plan, format, group, &change, &mut passed_over)
    }

    /// The groups that end at or before the watermark, and the deletion of their ends.
    fn closing(&mut self, context: &BatchContext) -> Result<Option<Closing>> {
        let (Some(_), Some(watermark)) = (&self.shared.event_time, context.watermark) else {
            return Ok(None);
        };
        if self.closed_until.is_some_and(|closed| closed >= watermark) {
            return Ok(None);
        }
        let lower = self.closed_until.map(sortable_bytes);
        let upper = watermark.checked_add(1).map(sortable_bytes);
        let mut scan = context.snapshot.scan(
            self.ends_table,
            lower.as_ref().map(|k| k.as_slice()),
            upper.as_ref().map(|k| k.as_slice()),
        )?;
        let mut stored = Vec::new();
        while scan.advance()? {
            self.closed_ends.delete(scan.key());
            stored.push(scan.key()[8..].to_vec());
        }
        self.closed_until = Some(watermark);
        if stored.is_empty() {
            return Ok(None);
        }
        stored.sort_unstable();
        let columns = self
            .shared
            .format
            .decode(stored.iter().map(Vec::as_slice))?;
        let keys = self.shared.format.batch_keys(&columns, stored.len())?;
        Ok(Some(Closing { keys, stored }))
    }

    /// Keeps the first end of an open group known, for [`Operator::wants_batch_at`].
    fn find_first_open_end(&mut self, context: &BatchContext) -> Result<()> {
        if !self.shared.emit_on_close {
            return Ok(());
        }
        let closed = context.watermark.unwrap_or(i64::MIN);
        let stored = match self.first_open_end {
            Some(Some(end)) if end > closed => Some(end),
            Some(None) => None,
            _ => {
                let lower = closed.checked_add(1).map(sortable_bytes);
                let lower = lower.as_ref().map(|k| k.as_slice());
                let mut scan = context.snapshot.scan(self.ends_table, lower, None)?;
                if scan.advance()? {
                    Some(read_sortable(scan.key())?)
                } else {
                    None
                }
            }
        };
        let appeared = self.outputs.iter().filter_map(|o| {
            o.ends
                .iter()
                .find(|(_, _, is_new)| *is_new)
                .map(|(end, _, _)| *end)
        });
        self.first_open_end = Some(appeared.chain(stored).min());
        Ok(())
    }

    fn runs(&mut self) -> Vec<(TableId, Run)> {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut tables: Vec<(TableId, Vec<Entries>)> = Vec::new();
        let groups = outputs
            .iter_mut()
            .flat_map(|o| std::mem::take(&mut o.groups))
            .collect();
        tables.push((self.shared.groups_table, groups));
        for (index, plan) in self.shared.plan.multisets.iter().enumerate() {
            let parts = outputs
                .iter_mut()
                .flat_map(|o| std::mem::take(&mut o.multisets[index]))
                .collect();
            tables.push((plan.table, parts));
        }
        let mut ends: Vec<Entries> = outputs.iter().map(entries_of_ends).collect();
        ends.push(std::mem::take(&mut self.closed_ends));
        tables.push((self.ends_table, ends));
        let growth: i64 = outputs.iter().map(|o| o.growth).sum();
        self.statistics.state_rows_updated = 0;
        self.statistics.state_rows_removed = 0;
        for (_, parts) in &tables {
            for part in parts {
                let removed = (0..part.len()).filter(|&i| part.value(i).is_none()).count();
                self.statistics.state_rows_removed += removed as u64;
                self.statistics.state_rows_updated += (part.len() - removed) as u64;
            }
        }
        let as_before: u64 = outputs.iter().map(|o| o.as_before_rows).sum();
        self.statistics.state_rows_updated -= as_before;
        if growth != 0 {
            let rows = self.state_rows.unwrap_or(0) + growth;
            self.state_rows = Some(rows);
            let mut entries = Entries::default();
            entries.put(EntryKind::Value, b"", |value| {
                write_signed(rows.into(), value)
            });
            tables.push((self.statistics_table, vec![entries]));
        }
        self.statistics.state_rows = self.state_rows.unwrap_or(0).max(0) as u64;
        tables.retain(|(_, parts)| parts.iter().any(|part| !part.is_empty()));
        tables.sort_unstable_by_key(|(table, _)| *table);
        tables
            .into_iter()
            .map(|(table, parts)| {
                let mut run = merge_into_run(table, &parts);
                if self.whole && table == self.shared.groups_table {
                    run.drop_tables(&[table]);
                }
                (table, run)
            })
            .collect()
    }

    /// Most groups are touched: written whole, the table's older entries need never be merged with
    /// these, neither in memory nor in the checkpoint.
    fn is_better_whole(&self) -> bool {
        let counts = self.shards.iter().map(Shard::group_counts);
        let (touched, all) = counts.fold((0, 0), |(a, b), (touched, all)| (a + touched, b + all));
        self.complete == Some(true)
            && self.shared.plan.is_columnar()
            && self.shared.event_time.is_none()
            && touched >= WHOLE_GROUPS_MIN
            && touched >= all - all / 4
    }

    fn account(&mut self) {
        let bytes: usize = self.shards.iter().map(Shard::size_bytes).sum();
        if let Some(budget) = &self.budget {
            budget.account(bytes as isize - self.accounted_bytes as isize);
        }
        self.accounted_bytes = bytes;
    }

    fn forget_resident(&mut self) {
        self.shards = new_shards(&self.shared, self.shards.len());
        self.complete = None;
        self.account();
    }
}

impl Operator for AggregateOperator {
    fn describe(&self) -> OperatorDescription {
        let plan = &self.shared.plan;
        let mut state = "group -> row count and accumulators".to_owned();
        if !plan.is_columnar() {
            state.push_str("; (group, arguments) -> weight");
        }
        let retention = match (&self.shared.event_time, self.shared.emit_on_close) {
            (Some(_), false) => {
                Retention::by_time("a group is freed when the watermark passes its end")
            }
            (Some(_), true) => {
                Retention::by_time("a group is emitted and freed when the watermark passes its end")
            }
            (None, _) => Retention::by_input(
                "kept as long as its rows: no group column comes from event time",
            ),
        };
        OperatorDescription {
            kind: "aggregate",
            detail: self.detail.clone(),
            incremental: true,
            state: Some(state),
            retention: Some(retention),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.errors.set_policy(policy);
        self.shared.on_row_error = policy;
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.begin(context)?;
        self.statistics.input_rows += change.num_rows() as u64;
        if change.is_empty() {
            return Ok(());
        }
        let has_deletes = change
            .weights()
            .is_some_and(|w| w.values().iter().any(|&w| w < 0));
        if self.shared.append_only_input && has_deletes {
            return Err(Error::internal(format!(
                "aggregate \"{}\" got a delete from an append-only input",
                self.shared.name
            )));
        }
        let change = self.without_late_rows(change, context)?;
        if change.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let input = BatchInput::evaluate(&shared.plan, &shared.format, &shared.group, &change);
        let input = match input {
            Err(error) if error.is_of_value() => self.evaluate_each(change)?,
            other => other?,
        };
        self.gathered_rows += input.rows;
        self.gathered.push(input);
        if self.gathered_rows < GATHERED_ROWS_MAX {
            return Ok(());
        }
        self.take_gathered(context)
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.begin(context)?;
        self.take_gathered(context)?;
        let store = self.store(context);
        if self.shared.format.is_single() {
            self.shards[0].ensure_single(&self.shared, store)?;
        }
        let closing = self.closing(context)?;
        let whole = self.is_better_whole();
        let shared = &self.shared;
        let finish =
            |shard: &mut Shard| shard.finish(shared, context, store, closing.as_ref(), whole);
        let work =
            self.statistics.input_rows as usize + closing.as_ref().map_or(0, |c| c.stored.len());
        let outputs: Result<Vec<ShardOutput>> = if work < PARALLEL_ROWS_MIN {
            self.shards.iter_mut().map(finish).collect()
        } else {
            self.shards.par_iter_mut().map(finish).collect()
        };
        self.outputs = outputs?;
        self.whole = whole;
        for output in &mut self.outputs {
            let (groups, error) = std::mem::take(&mut output.failed);
            self.errors.count(groups, error);
            let changes = std::mem::take(&mut output.changes);
            self.statistics.output_rows += output.unmade_rows;
            self.statistics.output_rows += changes.iter().map(|c| c.num_rows() as u64).sum::<u64>();
            out.extend(changes);
        }
        self.errors.settle()?;
        self.account();
        self.find_first_open_end(context)
    }

    fn drain_state(&mut self, _context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        Ok(self.runs())
    }

    fn committed(&mut self) {
        self.in_batch = false;
        let over = self.budget.as_ref().is_some_and(|b| !b.make_room());
        let evict = over || std::mem::take(&mut self.shed_wanted);
        for shard in &mut self.shards {
            if shard.commit(&self.shared, evict) {
                self.complete = Some(false);
            }
        }
        self.account();
        if over && self.budget.as_ref().is_some_and(|budget| budget.is_over()) {
            self.forget_resident();
        }
    }

    fn reset(&mut self) {
        self.in_batch = false;
        self.gathered.clear();
        self.gathered_rows = 0;
        self.outputs.clear();
        self.closed_ends = Entries::default();
        self.state_rows = None;
        self.closed_until = None;
        self.first_open_end = None;
        self.errors.reset();
        self.late = LateRows::default();
        self.forget_resident();
    }

    fn set_quiet(&mut self, quiet: bool) {
        self.shared.nobody_takes = quiet;
    }

    fn shed_memory(&mut self) {
        if self.in_batch {
            // What the batch changed is not in the store yet.
            self.shed_wanted = true;
        } else {
            self.forget_resident();
        }
    }

    fn tables(&self) -> Vec<TableId> {
        let own = [
            self.shared.groups_table,
            self.ends_table,
            self.statistics_table,
        ];
        let multisets = self.shared.plan.multisets.iter().map(|m| m.table);
        own.into_iter().chain(multisets).collect()
    }

    fn wants_batch_at(&self, watermark: i64) -> bool {
        if !self.shared.emit_on_close {
            return false;
        }
        match self.first_open_end {
            // After a start nothing is known until a batch has looked.
            None => true,
            Some(first) => first.is_some_and(|end| end <= watermark),
        }
    }

    fn take_late_rows(&mut self) -> Vec<LateBatch> {
        self.late.take()
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.statistics.clone();
        statistics.memory_bytes = self.accounted_bytes as u64;
        self.errors.add_statistics(&mut statistics);
        statistics
    }
}

impl Drop for AggregateOperator {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.account(-(self.accounted_bytes as isize));
        }
    }
}

fn describe(request: &AggregateRequest) -> String {
    let groups: Vec<_> = request
        .group
        .iter()
        .map(|(_, field)| field.name().as_str())
        .collect();
    let calls: Vec<_> = request
        .aggregates
        .iter()
        .map(|call| call.name.as_str())
        .collect();
    if groups.is_empty() {
        return calls.join(", ");
    }
    format!("{} group by {}", calls.join(", "), groups.join(", "))
        .trim_start()
        .to_owned()
}

fn entries_of_ends(output: &ShardOutput) -> Entries {
    let mut entries = Entries::default();
    let mut key = Vec::new();
    for (end, group, is_new) in &output.ends {
        key.clear();
        key.extend_from_slice(&sortable_bytes(*end));
        key.extend_from_slice(group);
        if *is_new {
            entries.put(EntryKind::NewValue, &key, |_| ());
        } else {
            entries.delete(&key);
        }
    }
    entries
}

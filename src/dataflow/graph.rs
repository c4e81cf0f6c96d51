//! The operators of all views of one pipeline, and how changes flow through them.
//!
//! ```text
//!   push(relation) ─► inputs of every view that reads it ─► … ─► root of view A ─► storage of A
//!                                                                   │ consolidated change
//!                                                                   ▼
//!                                             inputs of the pipeline's views that read A
//! ```
//!
//! A change goes depth first from its input as far as it can without waiting; `finish` then walks
//! the operators in order, inputs first, so that each sees all of its batch before it emits.
//! Nothing here knows of checkpoints; a batch that fails is undone by `reset`, since all that
//! operators hold is a cache of the state store.

mod view;

use std::collections::{BTreeMap, BTreeSet};

use datafusion::arrow::datatypes::SchemaRef;

use super::change::ChangeBatch;
use super::consolidate::consolidate;
use super::late::LateBatch;
use super::operator::{BatchContext, BoxOperator, OperatorDescription, OperatorStatistics};
use super::plan::{InputSpec, ViewPlan};
use super::row_errors::OnRowError;
use super::rows::RowCodec;
use super::view_storage::{ViewLayout, ViewStorage};
use crate::clock::ClockRef;
use crate::error::{Error, Result};
use crate::sql::names::quote_identifier;
use crate::state::{Run, TableId};

/// What a batch gave.
#[derive(Debug)]
pub struct BatchResult {
    /// All entries to write, of operators and of views' contents.
    pub run: Run,
    /// Consolidated changes of each view, in its schema; a view without changes has none.
    pub view_changes: BTreeMap<String, Vec<ChangeBatch>>,
    /// Rows dropped as late, by view.
    pub late_rows: BTreeMap<String, u64>,
    /// Rows that came too late, as far as they are kept, by view.
    pub late: BTreeMap<String, Vec<LateBatch>>,
    /// Rows on which an expression failed and that the view's policy let pass, by view, with the
    /// first error; a view without any has no entry.
    pub error_rows: BTreeMap<String, (u64, Error)>,
    /// Rows of the changes, by view.
    pub output_rows: BTreeMap<String, u64>,
}

struct Node {
    operator: BoxOperator,
    description: OperatorDescription,
    name: String,
    /// (node, port) of the same view that take what this one emits.
    consumers: Vec<(usize, usize)>,
    busy_us: u64,
    /// The batch that `busy_us` belongs to.
    busy_batch_id: u64,
}

struct InputNode {
    node: usize,
    relation: String,
    /// Columns of the relation, ascending.
    projection: Vec<usize>,
}

struct View {
    plan: ViewPlan,
    nodes: Vec<Node>,
    inputs: Vec<InputNode>,
    codec: RowCodec,
    /// See [`ViewPlan::emits_consolidated`].
    emits_consolidated: bool,
    /// `None`: the view only feeds a sink, or its rows are in the state of an operator.
    storage: Option<ViewStorage>,
    /// Its rows are in the state of an operator, so that its changes need not be made for itself.
    is_groups: bool,
    /// Nobody takes its changes in this batch.
    quiet: bool,
    /// This batch fills it with rows from before the watermark, which are not late: it is computed
    /// as without one, and the next batch closes what the watermark has passed.
    is_filled: bool,
    /// The watermark that this batch applies to it, where it is not the pipeline's.
    own_watermark: Option<Option<i64>>,
    /// What the root emitted in this batch.
    emitted: Vec<ChangeBatch>,
    /// The part of `emitted` that storage and dependent views already took.
    passed_on: usize,
}

/// All views of one pipeline.
#[derive(Default)]
pub struct Dataflow {
    /// In an order in which each view comes after those it reads.
    views: Vec<View>,
    clock: Option<ClockRef>,
    /// State of removed views, to be dropped with the next batch that leaves no view half filled.
    dropped: BTreeSet<TableId>,
    /// State of views that are filled from the beginning, to be dropped with the next batch.
    cleared: BTreeSet<TableId>,
    /// What the finished batch drops.
    dropping: Vec<TableId>,
}

impl Dataflow {
    /// A dataflow without views.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures the operators' time by `clock`; without it `busy_us` stays 0.
    #[must_use]
    pub fn with_clock(mut self, clock: ClockRef) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds a view; views of this pipeline that it reads must be there already.
    pub fn add_view(&mut self, plan: ViewPlan) -> Result<()> {
        if self.index_of(&plan.name).is_some() {
            return Err(Error::internal(format!(
                "view \"{}\" is in the dataflow already",
                plan.name
            )));
        }
        let view = View::new(plan)?;
        for table in view.tables() {
            self.dropped.remove(&table);
        }
        self.views.push(view);
        Ok(())
    }

    /// Removes a view; nothing happens if there is none of that name. The next batch drops its
    /// state.
    pub fn remove_view(&mut self, name: &str) {
        if let Some(index) = self.index_of(name) {
            let view = self.views.remove(index);
            self.dropped.extend(view.tables());
        }
    }

    /// What a view's state holds goes with the next batch, which it takes no part in.
    pub fn clear(&mut self, view: &str) {
        self.cleared.extend(self.tables_of(view));
    }

    /// Tables that a view's state lies in; none if there is no such view.
    pub fn tables_of(&self, view: &str) -> Vec<TableId> {
        self.index_of(view)
            .map(|index| self.views[index].tables())
            .unwrap_or_default()
    }

    /// The plans of the views, in the order they run.
    pub fn plans(&self) -> impl Iterator<Item = &ViewPlan> {
        self.views.iter().map(|view| &view.plan)
    }

    /// What is read from outside: per relation, the columns that any view needs. A view of this
    /// pipeline that others read is not among them.
    pub fn inputs(&self) -> Vec<InputSpec> {
        let mut columns: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for spec in self.views.iter().flat_map(|view| &view.plan.inputs) {
            if self.index_of(&spec.relation).is_none() {
                let wanted = columns.entry(&spec.relation).or_default();
                wanted.extend(&spec.projection);
            }
        }
        columns
            .into_iter()
            .map(|(relation, projection)| InputSpec {
                relation: relation.to_owned(),
                projection: projection.into_iter().collect(),
            })
            .collect()
    }

    /// Before a batch: the views whose changes someone outside takes. A view whose rows are in the
    /// state of an operator, and that no other view reads, makes no changes if it is not among them;
    /// its `view_changes` are then missing from the batch's result. Returns these views.
    pub fn choose_quiet(&mut self, is_taken: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let read: BTreeSet<String> = self
            .views
            .iter()
            .flat_map(|view| view.inputs.iter().map(|input| input.relation.clone()))
            .collect();
        let mut quiet = BTreeSet::new();
        for view in &mut self.views {
            let name = &view.plan.name;
            view.quiet =
                view.is_groups && view.plan.stored && !read.contains(name) && !is_taken(name);
            if view.quiet {
                quiet.insert(name.clone());
            }
            let groups = view.plan.outermost_groups();
            for (index, node) in view.nodes.iter_mut().enumerate() {
                let is_groups = groups == Some(index);
                node.operator.set_quiet(view.quiet && is_groups);
            }
        }
        quiet
    }

    /// Takes a change of a relation, in the columns that [`Self::inputs`] names for it.
    pub fn push(
        &mut self,
        relation: &str,
        change: ChangeBatch,
        context: &BatchContext,
    ) -> Result<()> {
        let inputs = self.inputs();
        let Some(spec) = inputs.iter().find(|spec| spec.relation == relation) else {
            return Err(Error::internal(format!("no view reads \"{relation}\"")));
        };
        self.deliver(0, relation, &spec.projection, &change, context)
    }

    /// Back-fill: a change of all columns of a relation goes to one view only. The context is one
    /// without a watermark.
    pub fn push_to(
        &mut self,
        view: &str,
        relation: &str,
        change: ChangeBatch,
        context: &BatchContext,
    ) -> Result<()> {
        let index = self
            .index_of(view)
            .ok_or_else(|| Error::internal(format!("no view \"{view}\" in the dataflow")))?;
        let columns: Vec<usize> = (0..change.schema().fields().len()).collect();
        let clock = self.clock.clone();
        self.views[index].is_filled = true;
        self.views[index].take(relation, &columns, &change, context, clock.as_ref())?;
        self.pass_on(index, context)
    }

    /// Gives a change, whose columns are `columns` of the relation, to the views from `first` on.
    fn deliver(
        &mut self,
        first: usize,
        relation: &str,
        columns: &[usize],
        change: &ChangeBatch,
        context: &BatchContext,
    ) -> Result<()> {
        let clock = self.clock.clone();
        for index in first..self.views.len() {
            if self.views[index].reads(relation) {
                self.views[index].take(relation, columns, change, context, clock.as_ref())?;
                self.pass_on(index, context)?;
            }
        }
        Ok(())
    }

    /// Hands what an append-only view emitted on at once: it needs no consolidation, so that
    /// its rows need not wait for the end of the batch.
    fn pass_on(&mut self, index: usize, context: &BatchContext) -> Result<()> {
        let view = &mut self.views[index];
        if !view.plan.append_only {
            return Ok(());
        }
        let fresh = view.emitted[view.passed_on..].to_vec();
        view.passed_on = view.emitted.len();
        self.hand_over(index, &fresh, context)
    }

    /// Gives a view's changes to its storage and to the views that read it.
    fn hand_over(
        &mut self,
        index: usize,
        changes: &[ChangeBatch],
        context: &BatchContext,
    ) -> Result<()> {
        let view = &mut self.views[index];
        let name = view.plan.name.clone();
        let columns: Vec<usize> = (0..view.plan.schema.fields().len()).collect();
        if view.is_filled && !changes.is_empty() {
            // What it fills is filled likewise.
            let readers = self.views[index + 1..].iter_mut();
            for reader in readers.filter(|reader| reader.reads(&name)) {
                reader.is_filled = true;
            }
        }
        for change in changes {
            if let Some(storage) = &mut self.views[index].storage {
                storage.push(change);
            }
            self.deliver(index + 1, &name, &columns, change, context)?;
        }
        Ok(())
    }

    /// Ends the batch: all operators emit the rest, and their entries are gathered.
    pub fn finish(&mut self, context: &BatchContext) -> Result<BatchResult> {
        let dropped = self.dropped.clone();
        self.finish_dropping(context, dropped)
    }

    /// As [`Self::finish`], where views are being filled of which more is to come: what is to be dropped
    /// is still read meanwhile.
    pub fn finish_part(&mut self, context: &BatchContext) -> Result<BatchResult> {
        self.finish_dropping(context, BTreeSet::new())
    }

    fn finish_dropping(
        &mut self,
        context: &BatchContext,
        dropped: BTreeSet<TableId>,
    ) -> Result<BatchResult> {
        let clock = self.clock.clone();
        let mut runs: Vec<(TableId, Run)> = Vec::new();
        let mut result = BatchResult {
            run: Run::default(),
            view_changes: BTreeMap::new(),
            late_rows: BTreeMap::new(),
            late: BTreeMap::new(),
            error_rows: BTreeMap::new(),
            output_rows: BTreeMap::new(),
        };
        let without_watermark = BatchContext {
            watermark: None,
            next_watermark: None,
            ..context.clone()
        };
        for index in 0..self.views.len() {
            let name = self.views[index].plan.name.clone();
            let context = match self.views[index].is_filled {
                true => &without_watermark,
                false => context,
            };
            self.views[index].finish(context, clock.as_ref())?;
            if self.views[index].plan.append_only {
                self.pass_on(index, context)?;
            } else {
                let view = &mut self.views[index];
                if !view.emits_consolidated {
                    view.emitted = consolidate(&view.codec, &std::mem::take(&mut view.emitted))?;
                }
                let changes = view.emitted.clone();
                self.hand_over(index, &changes, context)?;
            }
            let view = &mut self.views[index];
            let entries = view.drain(context).map_err(|error| named(&name, error))?;
            runs.extend(entries);
            let changes = std::mem::take(&mut view.emitted);
            view.passed_on = 0;
            view.is_filled = false;
            let output_rows = if view.quiet {
                view.unmade_rows()
            } else {
                changes.iter().map(|change| change.num_rows() as u64).sum()
            };
            result.output_rows.insert(name.clone(), output_rows);
            result.late_rows.insert(name.clone(), view.late_rows());
            let operators = view.nodes.iter_mut().map(|node| &mut node.operator);
            let late: Vec<_> = operators.flat_map(|o| o.take_late_rows()).collect();
            if !late.is_empty() {
                result.late.insert(name.clone(), late);
            }
            if let Some(errors) = view.error_rows() {
                result.error_rows.insert(name.clone(), errors);
            }
            if !changes.is_empty() {
                result.view_changes.insert(name, changes);
            }
        }
        runs.sort_by_key(|(table, _)| *table);
        if let Some(pair) = runs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let table = pair[0].0;
            return Err(Error::internal(format!("two operators share {table:?}")));
        }
        result.run = Run::concat(runs.into_iter().map(|(_, run)| run).collect());
        let dropped: Vec<TableId> = dropped.union(&self.cleared).copied().collect();
        if !dropped.is_empty() {
            result.run.drop_tables(&dropped);
        }
        self.dropping = dropped;
        Ok(result)
    }

    /// The batch is durable and applied to the store.
    pub fn committed(&mut self) {
        for table in std::mem::take(&mut self.dropping) {
            self.dropped.remove(&table);
            self.cleared.remove(&table);
        }
        for view in &mut self.views {
            if let Some(storage) = &mut view.storage {
                storage.committed();
            }
            view.nodes
                .iter_mut()
                .for_each(|node| node.operator.committed());
        }
    }

    /// The batch failed: back to the store's last committed state.
    pub fn reset(&mut self) {
        for view in &mut self.views {
            view.emitted.clear();
            view.passed_on = 0;
            view.is_filled = false;
            if let Some(storage) = &mut view.storage {
                storage.reset();
            }
            view.nodes.iter_mut().for_each(|node| node.operator.reset());
        }
    }

    /// What a view's rows meet on which an expression fails. Between batches only.
    pub fn set_on_row_error(&mut self, policy_of: impl Fn(&str) -> OnRowError) {
        for view in &mut self.views {
            let policy = policy_of(&view.plan.name);
            let operators = view.nodes.iter_mut().map(|node| &mut node.operator);
            operators.for_each(|operator| operator.set_on_row_error(policy));
        }
    }

    /// Lets go of what the store can give again. Between batches only.
    pub fn shed_memory(&mut self) {
        for view in &mut self.views {
            view.nodes
                .iter_mut()
                .for_each(|node| node.operator.shed_memory());
        }
    }

    /// The watermarks of views that do not go by the pipeline's. Between batches only.
    pub fn set_view_watermarks(&mut self, watermarks: &BTreeMap<String, Option<i64>>) {
        for view in &mut self.views {
            view.own_watermark = watermarks.get(&view.plan.name).copied();
        }
    }

    /// A batch would close windows, even without rows, with the watermark moved to where it is said to
    /// be for a view; `None`: it has not moved.
    pub fn wants_batch_at(&self, moved_to: impl Fn(&str) -> Option<i64>) -> bool {
        let wants = |view: &View| {
            moved_to(&view.plan.name).is_some_and(|watermark| {
                let mut nodes = view.nodes.iter();
                nodes.any(|node| node.operator.wants_batch_at(watermark))
            })
        };
        self.views.iter().any(wants)
    }

    /// From this time on a batch would let rows in or out by the clock, even one without rows.
    pub fn due_us(&self) -> Option<i64> {
        self.views
            .iter()
            .flat_map(|view| &view.nodes)
            .filter_map(|node| node.operator.due_us())
            .min()
    }

    /// Numbers of every operator after its last batch: view, operator's name, what it is, numbers.
    pub fn statistics(&self) -> Vec<(String, String, OperatorDescription, OperatorStatistics)> {
        let mut all = Vec::new();
        for view in &self.views {
            for node in &view.nodes {
                let mut statistics = node.operator.statistics();
                statistics.busy_us = node.busy_us;
                all.push((
                    view.plan.name.clone(),
                    node.name.clone(),
                    node.description.clone(),
                    statistics,
                ));
            }
        }
        all
    }

    /// Indexes: what they are of, their names, and their rows after the last batch.
    pub fn indexes(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.views.iter().filter_map(|view| {
            let relation = &view.plan.inputs.first()?.relation;
            let storage = view.storage.as_ref()?;
            let is_index = matches!(storage.layout(), ViewLayout::Index { .. });
            is_index.then(|| {
                (
                    relation.as_str(),
                    view.plan.name.as_str(),
                    storage.row_count(),
                )
            })
        })
    }

    /// Columns of a view.
    pub fn view_schema(&self, name: &str) -> Option<SchemaRef> {
        self.index_of(name)
            .map(|index| self.views[index].plan.schema.clone())
    }

    /// Key columns of a view, if no two of its rows share them; and whether it only ever grows.
    pub fn view_key(&self, name: &str) -> Option<(Option<Vec<usize>>, bool)> {
        let plan = &self.views[self.index_of(name)?].plan;
        Some((plan.key.clone(), plan.append_only))
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.views.iter().position(|view| view.plan.name == name)
    }
}

/// The error with the view's name, and what helps where a row is to blame.
fn named(view: &str, error: Error) -> Error {
    let is_of_row = error.is_of_value() && error.hint_text().is_none();
    let error = error.context(format!("materialized view \"{view}\""));
    if !is_of_row {
        return error;
    }
    let view = quote_identifier(view);
    error.hint(format!(
        "Mend the row, or leave such rows out with ALTER MATERIALIZED VIEW {view} \
         SET (on_row_error = 'skip'); then START MATERIALIZED VIEW {view};"
    ))
}

//! One view of the graph: its operators, how a change goes through them, what they write and tell.

use super::{InputNode, Node, View, named};
use crate::clock::ClockRef;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::consolidate::under_schema;
use crate::dataflow::join::Arrangements;
use crate::dataflow::operator::{BatchContext, OperatorStatistics};
use crate::dataflow::plan::{NodeKind, ViewPlan};
use crate::dataflow::rows::{RowCodec, declared, rebatch};
use crate::dataflow::view_storage::{ViewContents, ViewStorage, count_table, rows_table};
use crate::error::{Error, Result};
use crate::state::{Run, TableId};
use std::borrow::Cow;
use std::time::Duration;

impl View {
    pub(super) fn new(plan: ViewPlan) -> Result<Self> {
        let mut nodes: Vec<Node> = Vec::with_capacity(plan.nodes.len());
        let mut inputs = Vec::new();
        let mut arrangements = Arrangements::default();
        for (index, node) in plan.nodes.iter().enumerate() {
            let operator = node
                .build(&mut arrangements)
                .map_err(|error| named(&plan.name, error))?;
            for (port, input) in node.inputs.iter().enumerate() {
                nodes[*input].consumers.push((index, port));
            }
            if let NodeKind::Input {
                relation,
                projection,
            } = &node.kind
            {
                inputs.push(InputNode {
                    node: index,
                    relation: relation.clone(),
                    projection: projection.clone(),
                });
            }
            nodes.push(Node {
                description: operator.describe(),
                operator,
                name: node.name.clone(),
                consumers: Vec::new(),
                busy_us: 0,
                busy_batch_id: 0,
            });
        }
        let contents = plan.contents()?;
        let is_groups = !matches!(contents, ViewContents::Stored(_));
        let storage = match contents {
            ViewContents::Stored(layout) if plan.stored => Some(ViewStorage::new(
                &plan.state_name,
                plan.schema.clone(),
                layout,
            )?),
            _ => None,
        };
        Ok(Self {
            codec: RowCodec::new(plan.schema.clone())?,
            emits_consolidated: plan.emits_consolidated(),
            storage,
            is_groups,
            quiet: false,
            is_filled: false,
            own_watermark: None,
            plan,
            nodes,
            inputs,
            emitted: Vec::new(),
            passed_on: 0,
        })
    }

    pub(super) fn tables(&self) -> Vec<TableId> {
        let operators = self.nodes.iter().flat_map(|node| node.operator.tables());
        let state_name = &self.plan.state_name;
        operators
            .chain([rows_table(state_name), count_table(state_name)])
            .collect()
    }

    pub(super) fn reads(&self, relation: &str) -> bool {
        self.inputs.iter().any(|input| input.relation == relation)
    }

    /// Takes a change whose columns are `columns` of the relation.
    pub(super) fn take(
        &mut self,
        relation: &str,
        columns: &[usize],
        change: &ChangeBatch,
        context: &BatchContext,
        clock: Option<&ClockRef>,
    ) -> Result<()> {
        let context = &*self.own(context);
        for input in 0..self.inputs.len() {
            if self.inputs[input].relation != relation {
                continue;
            }
            let InputNode {
                node, projection, ..
            } = &self.inputs[input];
            let node = *node;
            let places = projection
                .iter()
                .map(|wanted| {
                    columns
                        .iter()
                        .position(|column| column == wanted)
                        .ok_or_else(|| {
                            Error::internal(format!(
                                "column {wanted} of \"{relation}\" was not read"
                            ))
                        })
                })
                .collect::<Result<Vec<_>>>()?;
            let schema = &self.plan.nodes[node].schema;
            let arrays = places
                .into_iter()
                .zip(schema.fields())
                .map(|(place, field)| declared(field, change.rows().column(place).clone()))
                .collect::<Result<_>>()?;
            let rows = rebatch(schema, arrays, change.num_rows())?;
            self.push(node, 0, change.with_rows(rows), context, clock)
                .map_err(|error| named(&self.plan.name, error))?;
        }
        Ok(())
    }

    pub(super) fn push(
        &mut self,
        node: usize,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        clock: Option<&ClockRef>,
    ) -> Result<()> {
        let mut out = Vec::new();
        let start = clock.map(|clock| clock.monotonic());
        let target = &mut self.nodes[node];
        target.operator.push(port, change, context, &mut out)?;
        target.count_time(context.batch_id, clock, start);
        self.forward(node, out, context, clock)
    }

    /// Gives what a node emitted to its consumers, or to the view when it is the root.
    pub(super) fn forward(
        &mut self,
        node: usize,
        changes: Vec<ChangeBatch>,
        context: &BatchContext,
        clock: Option<&ClockRef>,
    ) -> Result<()> {
        for change in changes {
            if change.is_empty() {
                continue;
            }
            if node == self.plan.root() {
                self.emitted.push(under_schema(change, &self.plan.schema)?);
                continue;
            }
            for consumer in 0..self.nodes[node].consumers.len() {
                let (to, port) = self.nodes[node].consumers[consumer];
                self.push(to, port, change.clone(), context, clock)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(
        &mut self,
        context: &BatchContext,
        clock: Option<&ClockRef>,
    ) -> Result<()> {
        let context = &*self.own(context);
        for node in 0..self.nodes.len() {
            let mut out = Vec::new();
            let start = clock.map(|clock| clock.monotonic());
            let target = &mut self.nodes[node];
            target
                .operator
                .finish(context, &mut out)
                .map_err(|error| named(&self.plan.name, error))?;
            target.count_time(context.batch_id, clock, start);
            self.forward(node, out, context, clock)
                .map_err(|error| named(&self.plan.name, error))?;
        }
        Ok(())
    }

    /// A batch as it is for this view.
    fn own<'a>(&self, context: &'a BatchContext) -> Cow<'a, BatchContext> {
        match self.own_watermark {
            Some(watermark) if !self.is_filled => Cow::Owned(BatchContext {
                watermark,
                next_watermark: None,
                ..context.clone()
            }),
            _ => Cow::Borrowed(context),
        }
    }

    pub(super) fn drain(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let context = &*self.own(context);
        let mut runs = Vec::new();
        for node in &mut self.nodes {
            runs.extend(node.operator.drain_state(context)?);
        }
        if let Some(storage) = &mut self.storage {
            runs.extend(storage.finish(context)?);
        }
        runs.retain(|(_, run)| !run.is_empty());
        Ok(runs)
    }

    /// Rows of the changes that the operator which holds the view's rows did not make.
    pub(super) fn unmade_rows(&self) -> u64 {
        let groups = self.plan.outermost_groups();
        groups.map_or(0, |index| {
            self.nodes[index].operator.statistics().output_rows
        })
    }

    pub(super) fn late_rows(&self) -> u64 {
        let late = self
            .nodes
            .iter()
            .map(|node| node.operator.statistics().late_rows);
        late.sum()
    }

    pub(super) fn error_rows(&self) -> Option<(u64, Error)> {
        let mut all = OperatorStatistics::default();
        for node in &self.nodes {
            let of_node = node.operator.statistics();
            all.error_rows += of_node.error_rows;
            all.first_row_error = all.first_row_error.or(of_node.first_row_error);
        }
        Some((all.error_rows, all.first_row_error?))
    }
}

impl Node {
    pub(super) fn count_time(
        &mut self,
        batch_id: u64,
        clock: Option<&ClockRef>,
        start: Option<Duration>,
    ) {
        if self.busy_batch_id != batch_id {
            (self.busy_batch_id, self.busy_us) = (batch_id, 0);
        }
        if let (Some(clock), Some(start)) = (clock, start) {
            self.busy_us += clock.monotonic().saturating_sub(start).as_micros() as u64;
        }
    }
}

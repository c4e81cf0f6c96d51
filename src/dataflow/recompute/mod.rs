//! Recompute: any plan without an incremental operator, run again by DataFusion and compared.
//!
//! ```text
//!   port 0 ──► rows kept ─┐
//!   port 1 ──► rows kept ─┴─► plan over the kept rows ──► result ──┬─► difference goes out
//!                                                kept result ──────┘   (result kept instead)
//! ```
//!
//! The result that was sent is kept rather than computed again from the old rows, so that what is
//! retracted is exactly what was sent, whatever a later version of a function would answer.

mod careful;
pub mod port;
mod run;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;

use self::careful::PlanErrors;
use self::port::{PortContents, PortSlot, RowIterator};
use super::bag::{Bag, BagReader, drain_all};
use super::batch_numbers::BatchNumbers;
use super::byte_rows::ByteRows;
use super::change::ChangeBatch;
use super::consolidate::{ROWS_PER_BATCH, decode_changes};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::row_errors::OnRowError;
use super::rows::{RowCodec, rebatch};
use super::single_entry;
use crate::error::Result;
use crate::state::{Run, TableId};

/// What to recompute.
#[derive(Debug, Clone)]
pub struct RecomputeSpec {
    /// For people: the plan's top node.
    pub detail: String,
    /// The plan over [`port::PortScan`] leaves, optimized.
    pub logical: LogicalPlan,
    /// Schema of each port.
    pub ports: Vec<SchemaRef>,
    /// Schema of the result.
    pub schema: SchemaRef,
    /// Where the physical plan is made; one target partition, no dynamic filters.
    pub state: Arc<SessionState>,
    /// The physical plan cannot run twice (a recursive query): made anew each time.
    pub replan: bool,
}

struct Port {
    codec: Arc<RowCodec>,
    bag: Bag,
    slot: Arc<PortSlot>,
}

/// The operator.
pub struct Recompute {
    spec: RecomputeSpec,
    ports: Vec<Port>,
    plan: Arc<dyn ExecutionPlan>,
    output_codec: RowCodec,
    output: Bag,
    ready_table: TableId,
    /// The result over no rows was sent, in an earlier batch; `None`: not looked up yet.
    ready: Option<bool>,
    became_ready: bool,
    numbers: BatchNumbers,
    /// Of the plan.
    plan_errors: PlanErrors,
}

impl Recompute {
    /// An operator; `name` is its stable name. Fails when DataFusion cannot run the plan.
    pub fn new(name: &str, spec: RecomputeSpec) -> Result<Self> {
        let mut ports = Vec::with_capacity(spec.ports.len());
        for (index, schema) in spec.ports.iter().enumerate() {
            ports.push(Port {
                codec: Arc::new(RowCodec::new(schema.clone())?),
                bag: Bag::new(&format!("{name}/port_{index}")),
                slot: Arc::default(),
            });
        }
        let slots: Vec<Arc<PortSlot>> = ports.iter().map(|port| port.slot.clone()).collect();
        let plan_errors = PlanErrors::default();
        let plan = run::create_plan(&spec.logical, &spec.state, &slots, &plan_errors)?;
        Ok(Self {
            output_codec: RowCodec::new(spec.schema.clone())?,
            ports,
            plan,
            output: Bag::new(&format!("{name}/result")),
            ready_table: TableId::from_name(&format!("{name}/ready")),
            ready: None,
            became_ready: false,
            numbers: BatchNumbers::default(),
            plan_errors,
            spec,
        })
    }

    fn is_ready(&mut self, context: &BatchContext) -> Result<bool> {
        if self.ready.is_none() {
            self.ready = Some(!context.snapshot.is_table_empty(self.ready_table)?);
        }
        Ok(self.ready == Some(true))
    }

    /// Runs the plan over the kept rows and adds its result to the output.
    fn run(&mut self, context: &BatchContext) -> Result<()> {
        for port in &mut self.ports {
            port.bag.settle(&context.snapshot)?;
            let source = port.bag.reader_source(&context.snapshot);
            let codec = port.codec.clone();
            let contents: PortContents = Arc::new(move || {
                Ok(Box::new(PortRows {
                    reader: source.read(&[])?,
                    codec: codec.clone(),
                    copies: 0,
                }) as RowIterator)
            });
            port.slot.set(Some(contents));
        }
        if self.spec.replan {
            let slots: Vec<_> = self.ports.iter().map(|port| port.slot.clone()).collect();
            let RecomputeSpec { logical, state, .. } = &self.spec;
            self.plan = run::create_plan(logical, state, &slots, &self.plan_errors)?;
        } else {
            self.plan = reset_plan_states(self.plan.clone())?;
        }
        let (codec, output) = (&self.output_codec, &mut self.output);
        let spec = &self.spec;
        let result = run::execute(self.plan.clone(), spec.state.task_ctx(), |batch| {
            let batch = rebatch(&spec.schema, batch.columns().to_vec(), batch.num_rows())?;
            output.add_change(codec, &ChangeBatch::inserts(batch))
        });
        for port in &self.ports {
            port.slot.set(None);
        }
        result
    }

    /// Takes away what was sent, and emits what is then left: the difference.
    fn emit_difference(
        &mut self,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let mut sent = self.output.read_old(&context.snapshot, &[])?;
        while sent.advance()? {
            self.output.add(&[], sent.row(), -sent.weight());
        }
        let settled = self.output.settle(&context.snapshot)?;
        let at = |index: usize| (settled.key(index), settled.delta(index));
        decode_changes(&self.output_codec, settled.len(), at, out)?;
        self.numbers.of(context).output_rows += settled.len() as u64;
        Ok(())
    }
}

impl Operator for Recompute {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "recompute",
            detail: self.spec.detail.clone(),
            incremental: false,
            state: Some("row -> weight, inputs and result; all is recomputed".to_owned()),
            retention: Some(Retention::by_input("kept while the rows are in the input")),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.plan_errors.set_policy(policy);
    }

    fn push(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.numbers.of(context).input_rows += change.num_rows() as u64;
        let port = &mut self.ports[port];
        port.bag.add_change(&port.codec, &change)
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.plan_errors.begin();
        let changed = self.ports.iter().any(|port| !port.bag.is_pending_empty());
        if !changed && self.is_ready(context)? {
            return Ok(());
        }
        self.became_ready = true;
        self.run(context)?;
        self.emit_difference(context, out)
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let ports = self.ports.iter_mut().map(|port| &mut port.bag);
        let mut runs = drain_all(ports.chain([&mut self.output]), &context.snapshot)?;
        if self.became_ready && self.ready != Some(true) {
            runs.push(single_entry::write(self.ready_table, &[1]));
        }
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    fn tables(&self) -> Vec<TableId> {
        let ports = self.ports.iter().flat_map(|port| port.bag.tables());
        ports
            .chain(self.output.tables())
            .chain([self.ready_table])
            .collect()
    }

    fn committed(&mut self) {
        if self.became_ready {
            self.ready = Some(true);
        }
        self.became_ready = false;
    }

    fn reset(&mut self) {
        self.ports.iter_mut().for_each(|port| port.bag.reset());
        self.output.reset();
        self.ready = None;
        self.became_ready = false;
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.output.add_statistics(&mut statistics);
        for port in &self.ports {
            port.bag.add_statistics(&mut statistics);
        }
        self.plan_errors.add_statistics(&mut statistics);
        statistics
    }
}

/// The kept rows, decoded in batches; a row of weight n comes n times.
struct PortRows {
    reader: BagReader,
    codec: Arc<RowCodec>,
    /// Copies of the reader's current row that are still to come.
    copies: i64,
}

impl PortRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut rows = ByteRows::default();
        while rows.len() < ROWS_PER_BATCH {
            if self.copies <= 0 {
                if !self.reader.advance()? {
                    break;
                }
                self.copies = self.reader.weight();
                continue;
            }
            rows.push(self.reader.row(), &[]);
            self.copies -= 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.codec.decode(rows.iter())?))
    }
}

impl Iterator for PortRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

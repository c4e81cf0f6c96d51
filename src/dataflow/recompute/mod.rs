//! Recompute: any plan without an incremental operator, run again by DataFusion and compared.
//!
//! ```text
//!   port 0 ──► rows kept ─┐
//!   port 1 ──► rows kept ─┴─► plan over the kept rows ──► result ──┬─► difference goes out
//!                                                kept result ──────┘   (result kept instead)
//! ```
//!
//! Where the plan works partition by partition (a window function's PARTITION BY) only the
//! partitions that a batch touches are read, run and compared; else all is. The result that was
//! sent is kept rather than computed again from the old rows, so that what is retracted is
//! exactly what was sent, whatever a later version of a function would answer.

mod careful;
pub mod port;
mod run;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;

use self::careful::PlanErrors;
use self::port::{PortContents, PortSlot, RowIterator};
use super::bag::{Bag, BagReader, BagSource, ByteRows};
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::consolidate::{ROWS_PER_BATCH, change_of};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics};
use super::row_errors::{FailedRows, OnRowError, RowErrors, evaluate_each};
use super::rows::{KeyCodec, RowCodec, rebatch};
use crate::error::Result;
use crate::state::{Run, RunBuilder, TableId};

/// What to recompute.
#[derive(Debug, Clone)]
pub struct RecomputeSpec {
    /// For people: the plan's top node.
    pub detail: String,
    /// The plan over [`port::PortScan`] leaves, optimized.
    pub logical: LogicalPlan,
    /// Schema of each port.
    pub ports: Vec<SchemaRef>,
    /// How it falls into independent parts; `None`: it does not.
    pub partition: Option<Partition>,
    /// Schema of the result.
    pub schema: SchemaRef,
    /// Where the physical plan is made; one target partition, no dynamic filters.
    pub state: Arc<SessionState>,
    /// The physical plan cannot run twice (a recursive query): made anew each time.
    pub replan: bool,
}

/// The key of the independent parts, over a port's rows and over the result's.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Over the rows of the one port.
    pub input: Vec<Arc<dyn PhysicalExpr>>,
    /// Over the rows of the result.
    pub output: Vec<Arc<dyn PhysicalExpr>>,
}

struct Port {
    codec: Arc<RowCodec>,
    bag: Bag,
    slot: Arc<PortSlot>,
}

/// The operator.
pub struct Recompute {
    spec: RecomputeSpec,
    keys: Option<KeyCodec>,
    ports: Vec<Port>,
    plan: Arc<dyn ExecutionPlan>,
    output_codec: RowCodec,
    output: Bag,
    touched: hashbrown::HashSet<Box<[u8]>, foldhash::fast::RandomState>,
    ready_table: TableId,
    /// The result over no rows was sent, in an earlier batch; `None`: not looked up yet.
    ready: Option<bool>,
    became_ready: bool,
    numbers: BatchNumbers,
    /// Of the partition's key.
    key_errors: RowErrors,
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
        let keys = match &spec.partition {
            Some(partition) => {
                let types = partition
                    .input
                    .iter()
                    .map(|e| e.data_type(&spec.ports[0]))
                    .collect::<Result<Vec<_>, _>>()?;
                Some(KeyCodec::new(types)?)
            }
            None => None,
        };
        let slots: Vec<Arc<PortSlot>> = ports.iter().map(|port| port.slot.clone()).collect();
        let plan_errors = PlanErrors::default();
        let plan = run::create_plan(&spec.logical, &spec.state, &slots, &plan_errors)?;
        Ok(Self {
            output_codec: RowCodec::new(spec.schema.clone())?,
            keys,
            ports,
            plan,
            output: Bag::new(&format!("{name}/result")),
            touched: Default::default(),
            ready_table: TableId::from_name(&format!("{name}/ready")),
            ready: None,
            became_ready: false,
            numbers: BatchNumbers::default(),
            key_errors: RowErrors::default(),
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

    /// The keys of the partitions to run, ascending; all of the operator is one of empty key when
    /// it is not partitioned.
    fn partitions_to_run(&mut self, context: &BatchContext) -> Result<ByteRows> {
        let mut keys = ByteRows::default();
        if self.keys.is_none() {
            let changed = self.ports.iter().any(|port| !port.bag.is_pending_empty());
            if changed || !self.is_ready(context)? {
                self.became_ready = true;
                keys.push(&[], &[]);
            }
            return Ok(keys);
        }
        let mut touched: Vec<Box<[u8]>> = self.touched.drain().collect();
        touched.sort_unstable();
        for key in &touched {
            keys.push(key, &[]);
        }
        Ok(keys)
    }

    /// Runs the plan over the kept rows of `partitions` and adds its result to the output.
    fn run(&mut self, context: &BatchContext, partitions: &Arc<ByteRows>) -> Result<()> {
        for port in &mut self.ports {
            port.bag.settle(&context.snapshot)?;
            let source = port.bag.reader_source(&context.snapshot);
            let (codec, partitions) = (port.codec.clone(), partitions.clone());
            let contents: PortContents = Arc::new(move || {
                Ok(Box::new(PortRows::new(
                    source.clone(),
                    codec.clone(),
                    partitions.clone(),
                )) as RowIterator)
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
        let (spec, keys) = (&self.spec, &self.keys);
        let result = run::execute(self.plan.clone(), spec.state.task_ctx(), |batch| {
            let batch = rebatch(&spec.schema, batch.columns().to_vec(), batch.num_rows())?;
            let rows = codec.encode(&batch)?;
            let keys = match (keys, &spec.partition) {
                (Some(keys), Some(partition)) => {
                    // What fails was told at the input, and is NULL there as here.
                    let mut told = FailedRows::default();
                    let of = |key| evaluate_each(key, &batch, &mut told);
                    let columns = partition.output.iter().map(of);
                    Some(keys.encode(&columns.collect::<Result<Vec<_>>>()?)?)
                }
                _ => None,
            };
            for index in 0..batch.num_rows() {
                let key = keys.as_ref().map_or(&[][..], |keys| keys.row(index));
                output.add(key, rows.row(index), 1);
            }
            Ok(())
        });
        for port in &self.ports {
            port.slot.set(None);
        }
        result
    }

    /// Takes away what was sent for `partitions`, and emits what is then left: the difference.
    fn emit_difference(
        &mut self,
        context: &BatchContext,
        partitions: &ByteRows,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        for key in partitions.iter() {
            let mut sent = self.output.read_old(&context.snapshot, key)?;
            while sent.advance()? {
                self.output.add(key, sent.row(), -sent.weight());
            }
        }
        let settled = self.output.settle(&context.snapshot)?;
        let mut chunk: Vec<(&[u8], i64)> = Vec::with_capacity(ROWS_PER_BATCH);
        let mut emit = |chunk: &mut Vec<(&[u8], i64)>| -> Result<()> {
            if !chunk.is_empty() {
                let rows = self
                    .output_codec
                    .decode(chunk.iter().map(|(row, _)| *row))?;
                out.push(change_of(rows, chunk.iter().map(|(_, delta)| *delta)));
                self.numbers.of(context).output_rows += chunk.len() as u64;
                chunk.clear();
            }
            Ok(())
        };
        for key in partitions.iter() {
            for index in settled.range_of(key) {
                chunk.push((&settled.key(index)[key.len()..], settled.delta(index)));
                if chunk.len() == ROWS_PER_BATCH {
                    emit(&mut chunk)?;
                }
            }
        }
        emit(&mut chunk)
    }
}

impl Operator for Recompute {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "recompute",
            detail: self.spec.detail.clone(),
            incremental: false,
            state: Some(match self.spec.partition {
                Some(_) => "(partition, row) -> weight, input and result; touched partitions are recomputed".to_owned(),
                None => "row -> weight, inputs and result; all is recomputed".to_owned(),
            }),
            retention: Some("kept while the rows are in the input".to_owned()),
        }
    }

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.key_errors.set_policy(policy);
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
        let (change, keys) = match (&self.keys, &self.spec.partition) {
            (Some(keys), Some(partition)) => {
                let (change, columns) = self.key_errors.evaluate(&partition.input, change)?;
                (change, Some(keys.encode(&columns)?))
            }
            _ => (change, None),
        };
        let port = &mut self.ports[port];
        let rows = port.codec.encode(change.rows())?;
        for index in 0..change.num_rows() {
            let key = keys.as_ref().map_or(&[][..], |keys| keys.row(index));
            port.bag.add(key, rows.row(index), change.weight(index));
            if keys.is_some() && !self.touched.contains(key) {
                self.touched.insert(key.into());
            }
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.key_errors.settle()?;
        self.plan_errors.begin();
        let partitions = Arc::new(self.partitions_to_run(context)?);
        if partitions.is_empty() {
            return Ok(());
        }
        self.run(context, &partitions)?;
        self.emit_difference(context, &partitions, out)
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let mut runs = self.output.drain(&context.snapshot)?;
        for port in &mut self.ports {
            runs.extend(port.bag.drain(&context.snapshot)?);
        }
        if self.became_ready && self.ready != Some(true) {
            let mut ready = RunBuilder::new();
            ready.push(&self.ready_table.0.to_be_bytes(), Some(&[1]));
            runs.push((self.ready_table, ready.finish()));
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
        self.touched.clear();
        self.ready = None;
        self.became_ready = false;
        self.key_errors.reset();
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.output.add_statistics(&mut statistics);
        for port in &self.ports {
            port.bag.add_statistics(&mut statistics);
        }
        self.key_errors.add_statistics(&mut statistics);
        self.plan_errors.add_statistics(&mut statistics);
        statistics
    }
}

/// The kept rows of some partitions, decoded in batches; a row of weight n comes n times.
struct PortRows {
    source: BagSource,
    codec: Arc<RowCodec>,
    partitions: Arc<ByteRows>,
    next_partition: usize,
    reader: Option<BagReader>,
    /// Copies of the reader's current row that are still to come.
    copies: i64,
}

impl PortRows {
    fn new(source: BagSource, codec: Arc<RowCodec>, partitions: Arc<ByteRows>) -> Self {
        Self {
            source,
            codec,
            partitions,
            next_partition: 0,
            reader: None,
            copies: 0,
        }
    }

    /// Moves the reader to a row with copies left; false at the end of all partitions.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.copies > 0 {
                return Ok(true);
            }
            if let Some(reader) = &mut self.reader {
                if reader.advance()? {
                    self.copies = reader.weight();
                    continue;
                }
                self.reader = None;
            }
            if self.next_partition == self.partitions.len() {
                return Ok(false);
            }
            let key = self.partitions.get(self.next_partition);
            self.reader = Some(self.source.read(key)?);
            self.next_partition += 1;
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut rows = ByteRows::default();
        while rows.len() < ROWS_PER_BATCH && self.advance()? {
            let reader = self.reader.as_ref().expect("copies belong to a reader");
            rows.push(reader.row(), &[]);
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

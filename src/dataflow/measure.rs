//! Measures of the dataflow's inner loop, for the benchmarks.
//!
//! The keyed aggregation `SELECT k, count(*), sum(v), avg(v) FROM r GROUP BY k` twice over the same
//! Arrow batches: once by DataFusion in one go, once incrementally, batch by batch, with state and
//! view applied to the state store after each. Absent: sources, checkpoints and the pipeline
//! around them, which the end-to-end benchmark measures.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{cast, col, lit};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::aggregate::{AggregateCall, AggregateOperator, AggregateRequest};
use super::change::ChangeBatch;
use super::operator::{BatchContext, Operator};
use super::view_storage::{ViewLayout, ViewStorage, read_view};
use crate::catalog::definition::EmitMode;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::state::{MemoryBudget, Run, StateStore, StateStoreOptions, WantedKeys};

/// Size of a keyed aggregation.
#[derive(Debug, Clone, Copy)]
pub struct KeyedAggregation {
    /// Rows in all.
    pub rows: usize,
    /// Different keys.
    pub keys: u64,
    /// Rows in a batch.
    pub batch_rows: usize,
}

/// Times of a keyed aggregation.
#[derive(Debug, Clone, Default)]
pub struct KeyedAggregationReport {
    /// DataFusion's `GROUP BY` over all batches at once.
    pub one_shot: Duration,
    /// All incremental batches, committed.
    pub incremental: Duration,
    /// Part of it: pushes.
    pub push: Duration,
    /// Part of it: finishes.
    pub finish: Duration,
    /// Part of it: the operator's runs.
    pub drain: Duration,
    /// Part of it: the view's runs.
    pub view: Duration,
    /// Part of it: joining the runs, applying them to the store, committing.
    pub apply: Duration,
    /// Bytes of a batch's run, on average.
    pub run_bytes: usize,
}

impl KeyedAggregation {
    /// The batches: keys in scattered order, values small.
    pub fn batches(&self) -> Result<Vec<RecordBatch>> {
        let scatter = |i: u64| {
            i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
                .wrapping_mul(0xbf58_476d_1ce4_e5b9)
                >> 20
        };
        (0..self.rows)
            .step_by(self.batch_rows.max(1))
            .map(|start| {
                let rows = start as u64..(start + self.batch_rows).min(self.rows) as u64;
                let keys = rows.clone().map(|i| (scatter(i) % self.keys) as i64);
                let values = rows.map(|i| (scatter(i ^ 0x5555) % 1000) as i64);
                let columns: Vec<datafusion::arrow::array::ArrayRef> = vec![
                    Arc::new(Int64Array::from_iter_values(keys)),
                    Arc::new(Int64Array::from_iter_values(values)),
                ];
                Ok(RecordBatch::try_new(input_schema(), columns)?)
            })
            .collect()
    }

    /// Runs it both ways and compares the answers; the state store lies in `state_dir`.
    pub async fn run(&self, state_dir: &Path, clock: &dyn Clock) -> Result<KeyedAggregationReport> {
        let batches = self.batches()?;
        let (one_shot, expected) = one_shot(&batches, clock).await?;
        let mut report = KeyedAggregationReport {
            one_shot,
            ..Default::default()
        };
        let found = incremental(&batches, state_dir, clock, &mut report)?;
        if found != expected {
            return Err(Error::internal(format!(
                "the incremental answer is {found:?}, the one-shot answer {expected:?}"
            )));
        }
        Ok(report)
    }
}

/// Groups, rows and sum of values: enough to see a wrong answer.
type Totals = (usize, i64, i64);

fn input_schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![field("k"), field("v")]))
}

async fn one_shot(batches: &[RecordBatch], clock: &dyn Clock) -> Result<(Duration, Totals)> {
    let cores = rayon::current_num_threads();
    let session =
        SessionContext::new_with_config(SessionConfig::new().with_target_partitions(cores));
    let mut partitions = vec![Vec::new(); cores];
    for (index, batch) in batches.iter().enumerate() {
        partitions[index % cores].push(batch.clone());
    }
    session.register_table(
        "r",
        Arc::new(MemTable::try_new(input_schema(), partitions)?),
    )?;
    let sql = "SELECT k, count(*), sum(v), avg(v) FROM r GROUP BY k";
    let start = clock.monotonic();
    let answer = session.sql(sql).await?.collect().await?;
    let elapsed = clock.monotonic() - start;
    Ok((elapsed, totals(&answer)))
}

fn totals(batches: &[RecordBatch]) -> Totals {
    let sum = |batch: &RecordBatch, column: usize| -> i64 {
        let values = batch.column(column).as_any().downcast_ref::<Int64Array>();
        values.map_or(0, |values| values.values().iter().sum())
    };
    batches
        .iter()
        .fold((0, 0, 0), |(groups, rows, total), batch| {
            (
                groups + batch.num_rows(),
                rows + sum(batch, 1),
                total + sum(batch, 2),
            )
        })
}

fn call(
    function: Arc<AggregateUDF>,
    argument: Arc<dyn PhysicalExpr>,
    name: &str,
) -> Result<AggregateCall> {
    let expr = AggregateExprBuilder::new(function, vec![Arc::clone(&argument)])
        .schema(input_schema())
        .alias(name)
        .build()?;
    Ok(AggregateCall {
        field: expr.field(),
        expr: Arc::new(expr),
        arguments: vec![argument],
        filter: None,
        distinct: false,
        name: name.to_owned(),
    })
}

fn request() -> Result<AggregateRequest> {
    let schema = input_schema();
    let value = col("v", &schema)?;
    let average = cast(Arc::clone(&value), &schema, DataType::Float64)?;
    let aggregates = vec![
        call(count_udaf(), lit(1i64), "count(*)")?,
        call(sum_udaf(), value, "sum(v)")?,
        call(avg_udaf(), average, "avg(v)")?,
    ];
    let key = Arc::new(Field::new("k", DataType::Int64, true));
    let fields: Vec<_> = std::iter::once(Arc::clone(&key))
        .chain(aggregates.iter().map(|call| Arc::clone(&call.field)))
        .collect();
    Ok(AggregateRequest {
        name: "measure/aggregate_0".to_owned(),
        group: vec![(col("k", &schema)?, key)],
        input_schema: schema,
        aggregates,
        output_schema: Arc::new(Schema::new(fields)),
        append_only_input: true,
        event_time: None,
        emit: EmitMode::OnUpdate,
    })
}

fn incremental(
    batches: &[RecordBatch],
    state_dir: &Path,
    clock: &dyn Clock,
    report: &mut KeyedAggregationReport,
) -> Result<Totals> {
    let request = request()?;
    let schema = Arc::clone(&request.output_schema);
    let layout = ViewLayout::Keyed(vec![0]);
    let budget = MemoryBudget::new(1 << 30);
    let options = StateStoreOptions {
        budget: Arc::clone(&budget),
        spill_bytes: 256 << 20,
    };
    let store = StateStore::open(state_dir, uuid::Uuid::nil(), options)?;
    let mut operator = AggregateOperator::try_new(request)?;
    let mut view = ViewStorage::new("measure", Arc::clone(&schema), layout.clone())?;
    let mut run_bytes = 0;
    let begin = clock.monotonic();
    for (batch_id, rows) in batches.iter().enumerate() {
        let batch_id = batch_id as u64;
        let context = BatchContext {
            batch_id,
            snapshot: store.snapshot(),
            watermark: None,
            next_watermark: None,
            now_us: 0,
            budget: Arc::clone(&budget),
        };
        let mut last = clock.monotonic();
        let mut lap = |part: &mut Duration| {
            let now = clock.monotonic();
            *part += now - last;
            last = now;
        };
        let mut out = Vec::new();
        operator.push(0, ChangeBatch::inserts(rows.clone()), &context, &mut out)?;
        lap(&mut report.push);
        operator.finish(&context, &mut out)?;
        lap(&mut report.finish);
        let mut runs = operator.drain_state(&context)?;
        lap(&mut report.drain);
        out.iter().for_each(|change| view.push(change));
        runs.extend(view.finish(&context)?);
        lap(&mut report.view);
        runs.sort_by_key(|(table, _)| *table);
        let run = Run::concat(runs.into_iter().map(|(_, run)| run).collect());
        run_bytes += run.bytes();
        store.apply(batch_id, Arc::new(run))?;
        operator.committed();
        view.committed();
        lap(&mut report.apply);
    }
    report.incremental = clock.monotonic() - begin;
    report.run_bytes = run_bytes / batches.len().max(1);
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let reader = read_view(
        &store.snapshot(),
        "measure",
        schema,
        &layout,
        &WantedKeys::All,
        &all,
        8192,
    )?;
    Ok(totals(&reader.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn both_ways_give_one_answer() {
        let size = KeyedAggregation {
            rows: 25_000,
            keys: 700,
            batch_rows: 10_000,
        };
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let clock = SystemClock::shared();
        let report = runtime
            .block_on(size.run(dir.path(), clock.as_ref()))
            .unwrap();
        assert!(report.run_bytes > 700 * 16);
    }
}

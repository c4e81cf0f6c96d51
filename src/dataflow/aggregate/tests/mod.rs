//! The operator with its view storage against DataFusion over the same rows.
//!
//! Here is what drives it; [`random`] compares with random rows, [`results`] and [`windows`] are
//! cases.

mod random;
mod results;
mod windows;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::*;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::operator::{BatchContext, Operator};
use crate::dataflow::row_errors::OnRowError;
use crate::dataflow::view_storage::{ViewLayout, ViewStorage, read_row_count, read_view};
use crate::error::{Result, sqlstate};
use crate::state::{MemoryBudget, Run, StateStore, StateStoreOptions, WantedKeys};

/// A small xorshift, so that a seed names a run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[derive(Debug, Clone)]
struct Row {
    k: Option<i64>,
    s: Option<String>,
    v: Option<i64>,
    d: Option<i128>,
    f: Option<f64>,
    b: Option<bool>,
    t: Option<i64>,
}

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("k", DataType::Int64),
        field("s", DataType::Utf8),
        field("v", DataType::Int64),
        field("d", DataType::Decimal128(12, 2)),
        field("f", DataType::Float64),
        field("b", DataType::Boolean),
        field("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ]))
}

fn random_row(random: &mut Random) -> Row {
    let mut maybe = |share: u64, below: u64| {
        if random.next(share) == 0 {
            None
        } else {
            Some(random.next(below) as i64)
        }
    };
    Row {
        k: maybe(9, 7).map(|k| k - 3),
        s: maybe(7, 4).map(|s| ["", "a", "ab", "zebra crossing"][s as usize].to_owned()),
        v: maybe(5, 9).map(|v| v - 4),
        d: maybe(5, 2000).map(|d| i128::from(d) - 1000),
        // Quarters, so that sums are exact in any order.
        f: maybe(5, 40).map(|f| f as f64 / 4.0 - 5.0),
        b: maybe(5, 2).map(|b| b == 1),
        t: maybe(8, 6).map(|t| t * 1_000_000),
    }
}

fn to_batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.k).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.s.as_deref()).collect::<StringArray>()),
        Arc::new(rows.iter().map(|r| r.v).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|r| r.d)
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(rows.iter().map(|r| r.f).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|r| r.b).collect::<BooleanArray>()),
        Arc::new(
            rows.iter()
                .map(|r| r.t)
                .collect::<TimestampMicrosecondArray>(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn to_change(rows: &[(Row, i64)]) -> ChangeBatch {
    let batch = to_batch(&rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, w)| *w));
    ChangeBatch::weighted(batch, weights)
}

fn session(rows: &[Row]) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
    let session = SessionContext::new_with_config(config);
    let table = MemTable::try_new(schema(), vec![vec![to_batch(rows)]]).unwrap();
    session.register_table("r", Arc::new(table)).unwrap();
    session
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// The request for the one aggregation of a query, from DataFusion's unoptimized plan of it.
fn request(sql: &str, append_only_input: bool) -> AggregateRequest {
    wait(async {
        let session = session(&[]);
        let state = session.state();
        let plan = state.create_logical_plan(sql).await.unwrap();
        let plan = state
            .analyzer()
            .execute_and_check(plan, &state.config_options().clone(), |_, _| {})
            .unwrap();
        let plan = state
            .query_planner()
            .create_physical_plan(&plan, &state)
            .await
            .unwrap();
        let mut found = None;
        find_aggregate(&plan, &mut found);
        let plan = found.unwrap();
        let plan = plan.downcast_ref::<AggregateExec>().unwrap();
        let input_schema = plan.input().schema();
        let mut fields = Vec::new();
        let mut group = Vec::new();
        for (expression, name) in plan.group_expr().expr() {
            let data_type = expression.data_type(&input_schema).unwrap();
            let field = Arc::new(Field::new(name, data_type, true));
            fields.push(Arc::clone(&field));
            group.push((Arc::clone(expression), field));
        }
        let mut aggregates = Vec::new();
        for (expr, filter) in plan.aggr_expr().iter().zip(plan.filter_expr()) {
            fields.push(expr.field());
            aggregates.push(AggregateCall {
                arguments: expr.expressions(),
                filter: filter.clone(),
                distinct: expr.is_distinct(),
                name: expr.name().to_owned(),
                field: expr.field(),
                expr: Arc::clone(expr),
            });
        }
        AggregateRequest {
            name: "v/aggregate_0".to_owned(),
            input_schema,
            group,
            aggregates,
            output_schema: Arc::new(Schema::new(fields)),
            append_only_input,
            event_time: None,
            emit: EmitMode::OnUpdate,
        }
    })
}

fn find_aggregate(plan: &Arc<dyn ExecutionPlan>, found: &mut Option<Arc<dyn ExecutionPlan>>) {
    if plan.downcast_ref::<AggregateExec>().is_some() {
        *found = Some(Arc::clone(plan));
    }
    for child in plan.children() {
        find_aggregate(child, found);
    }
}

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let formatters: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells = batch
                .columns()
                .iter()
                .zip(&formatters)
                .map(
                    |(column, formatter)| match column.as_any().downcast_ref::<Float64Array>() {
                        Some(floats) if floats.is_valid(row) => {
                            format!("{:.8e}", floats.value(row) + 0.0)
                        }
                        _ => formatter.value(row).to_string(),
                    },
                );
            lines.push(cells.collect::<Vec<_>>().join(" | "));
        }
    }
    lines.sort();
    lines
}

fn expected(sql: &str, rows: &[Row]) -> Vec<String> {
    wait(async {
        lines(
            &session(rows)
                .sql(sql)
                .await
                .unwrap()
                .collect()
                .await
                .unwrap(),
        )
    })
}

/// An operator with its store and its view, as a pipeline drives them.
struct Bench {
    request: AggregateRequest,
    shards: usize,
    operator: AggregateOperator,
    store: StateStore,
    view: ViewStorage,
    layout: ViewLayout,
    /// The view's rows as the operator's own groups.
    groups: Option<Arc<GroupContents>>,
    /// No changes are made: the groups are all there is to read.
    quiet: bool,
    budget: Arc<MemoryBudget>,
    batch_id: u64,
    /// What the operator said it holds when the last batch was computed, before its commit.
    told_bytes: u64,
    /// What the last batch wrote.
    last_run: Arc<Run>,
    /// What the batch after the next one applies at least.
    next_watermark: Option<i64>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(request: AggregateRequest, shards: usize, spill_bytes: usize, keyed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let budget = MemoryBudget::new(1 << 30);
        let options = StateStoreOptions {
            budget: Arc::clone(&budget),
            spill_bytes,
        };
        let key: Vec<usize> = (0..request.group.len()).collect();
        let layout = if request.emit == EmitMode::OnWindowClose {
            ViewLayout::Append
        } else if keyed {
            ViewLayout::Keyed(key)
        } else {
            ViewLayout::Bag
        };
        let output = Arc::clone(&request.output_schema);
        let columns = (0..output.fields().len()).collect();
        let groups = GroupContents::of(&request, output, columns, OnRowError::Fail).unwrap();
        Self {
            groups: groups.map(Arc::new),
            quiet: false,
            operator: AggregateOperator::try_with_shards(request.clone(), shards).unwrap(),
            view: ViewStorage::new("v", Arc::clone(&request.output_schema), layout.clone())
                .unwrap()
                .with_store_check(),
            request,
            shards,
            store: StateStore::open(dir.path(), uuid::Uuid::nil(), options).unwrap(),
            layout,
            budget,
            batch_id: 0,
            told_bytes: 0,
            last_run: Arc::default(),
            next_watermark: None,
            _dir: dir,
        }
    }

    fn context(&self, watermark: Option<i64>) -> BatchContext {
        BatchContext {
            batch_id: self.batch_id,
            snapshot: self.store.snapshot(),
            watermark,
            next_watermark: self.next_watermark,
            now_us: 0,
            budget: Arc::clone(&self.budget),
        }
    }

    fn try_batch(
        &mut self,
        pushes: &[ChangeBatch],
        watermark: Option<i64>,
    ) -> Result<Vec<ChangeBatch>> {
        let context = self.context(watermark);
        let mut out = Vec::new();
        self.operator.set_quiet(self.quiet);
        for push in pushes {
            self.operator.push(0, push.clone(), &context, &mut out)?;
        }
        self.operator.finish(&context, &mut out)?;
        out.iter().for_each(|change| self.view.push(change));
        let mut runs = self.operator.drain_state(&context)?;
        self.told_bytes = self.operator.statistics().memory_bytes;
        runs.extend(self.view.finish(&context)?);
        runs.sort_by_key(|(table, _)| *table);
        let run = Run::concat(runs.into_iter().map(|(_, run)| run).collect());
        self.last_run = Arc::new(run);
        self.store
            .apply(self.batch_id, Arc::clone(&self.last_run))?;
        self.batch_id += 1;
        self.operator.committed();
        self.view.committed();
        Ok(out)
    }

    fn batch(&mut self, pushes: &[ChangeBatch]) -> Vec<ChangeBatch> {
        self.try_batch(pushes, None).unwrap()
    }

    fn restart(&mut self) {
        self.operator =
            AggregateOperator::try_with_shards(self.request.clone(), self.shards).unwrap();
        self.view.reset();
    }

    fn contents(&self) -> Vec<String> {
        let snapshot = self.store.snapshot();
        let schema = Arc::clone(&self.request.output_schema);
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let groups = self.groups.as_ref().map(|groups| {
            let reader = groups.read(&snapshot, &WantedKeys::All, &all, 3).unwrap();
            lines(&reader.collect::<Result<Vec<_>>>().unwrap())
        });
        if self.quiet {
            return groups.unwrap();
        }
        let reader = read_view(
            &snapshot,
            "v",
            schema,
            &self.layout,
            &WantedKeys::All,
            &all,
            3,
        )
        .unwrap();
        let batches: Vec<_> = reader.collect::<Result<_>>().unwrap();
        let lines = lines(&batches);
        assert_eq!(read_row_count(&snapshot, "v").unwrap(), lines.len() as u64);
        assert!(groups.is_none_or(|groups| groups == lines));
        lines
    }
}

fn row(k: i64, v: i64, t: i64) -> Row {
    Row {
        k: Some(k),
        s: None,
        v: Some(v),
        d: None,
        f: None,
        b: None,
        t: Some(t),
    }
}

//! The operator with its view storage against DataFusion over the same rows.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::concat_batches;
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
use crate::state::{MemoryBudget, Run, StateStore, StateStoreOptions};

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
            _dir: dir,
        }
    }

    fn context(&self, watermark: Option<i64>) -> BatchContext {
        BatchContext {
            batch_id: self.batch_id,
            snapshot: self.store.snapshot(),
            watermark,
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
        runs.extend(self.view.finish(&context)?);
        runs.sort_by_key(|(table, _)| *table);
        let run = Run::concat(runs.into_iter().map(|(_, run)| run).collect());
        self.store.apply(self.batch_id, Arc::new(run))?;
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
            let reader = groups.read(&snapshot, &all, 3).unwrap();
            lines(&reader.collect::<Result<Vec<_>>>().unwrap())
        });
        if self.quiet {
            return groups.unwrap();
        }
        let reader = read_view(&snapshot, "v", schema, &self.layout, &all, 3).unwrap();
        let batches: Vec<_> = reader.collect::<Result<_>>().unwrap();
        let lines = lines(&batches);
        assert_eq!(read_row_count(&snapshot, "v").unwrap(), lines.len() as u64);
        assert!(groups.is_none_or(|groups| groups == lines));
        lines
    }
}

/// Random signed batches through the operator, the view compared with DataFusion after each.
fn compare(sql: &str, append_only: bool, seed: u64) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let shards = [1, 3][random.next(2) as usize];
    let spill_bytes = [1, 1 << 24][random.next(2) as usize];
    let keyed = random.next(2) == 0;
    let mut bench = Bench::new(request(sql, append_only), shards, spill_bytes, keyed);
    bench.quiet = random.next(3) == 0;
    let mut live: Vec<Row> = Vec::new();
    for step in 0..14 {
        match random.next(7) {
            0 => bench.operator.shed_memory(),
            1 => bench.restart(),
            2 => {
                // A batch that fails after its pushes leaves no trace.
                let junk: Vec<_> = (0..5).map(|_| (random_row(&mut random), 1)).collect();
                let context = bench.context(None);
                bench
                    .operator
                    .push(0, to_change(&junk), &context, &mut Vec::new())
                    .unwrap();
                bench.operator.finish(&context, &mut Vec::new()).unwrap();
                bench.operator.reset();
            }
            _ => {}
        }
        let mut changes: Vec<(Row, i64)> = Vec::new();
        for _ in 0..random.next(12) {
            let row = random_row(&mut random);
            let weight = 1 + random.next(2) as i64;
            (0..weight).for_each(|_| live.push(row.clone()));
            changes.push((row, weight));
        }
        if !append_only {
            let deletes = if step % 6 == 5 {
                live.len() as u64
            } else {
                random.next(8).min(live.len() as u64)
            };
            for _ in 0..deletes {
                let index = random.next(live.len() as u64) as usize;
                changes.push((live.swap_remove(index), -1));
            }
            for index in (1..changes.len()).rev() {
                changes.swap(index, random.next(index as u64 + 1) as usize);
            }
        }
        let cut = random.next(changes.len() as u64 + 1) as usize;
        let pushes = [to_change(&changes[..cut]), to_change(&changes[cut..])];
        bench.batch(&pushes);
        assert_eq!(
            bench.contents(),
            expected(sql, &live),
            "{sql}, seed {seed}, step {step}"
        );
    }
}

const LINEAR: &[&str] = &[
    "SELECT k, count(*), count(v), sum(v), avg(v) FROM r GROUP BY k",
    "SELECT s, k, sum(d), avg(d), count(s) FROM r GROUP BY s, k",
    "SELECT s, bool_and(b), bool_or(b), count(*) FILTER (WHERE v > 0), sum(v) FILTER (WHERE b) FROM r GROUP BY s",
    "SELECT count(*), sum(v), avg(d), bool_and(b) FROM r",
    "SELECT f, count(*) FROM r GROUP BY f",
    "SELECT b, t, k FROM r GROUP BY b, t, k",
];

const GENERAL: &[&str] = &[
    "SELECT k, min(v), max(v), min(s), max(s), min(f), max(f), min(t), max(d) FROM r GROUP BY k",
    "SELECT s, count(DISTINCT v), sum(DISTINCT v), count(DISTINCT s), count(*) FROM r GROUP BY s",
    "SELECT k, array_agg(v ORDER BY v), string_agg(s, ',' ORDER BY s DESC, v) FROM r GROUP BY k",
    "SELECT k, sum(f), avg(f), median(v), first_value(s ORDER BY v DESC, s) FROM r GROUP BY k",
    "SELECT min(v), max(s), count(DISTINCT k), sum(f), var_pop(f), min(v) FILTER (WHERE b) FROM r",
    "SELECT b, array_agg(DISTINCT v ORDER BY v), stddev(f), min(b), max(b) FROM r GROUP BY b",
];

#[test]
fn linear_aggregates_follow_inserts_and_deletes() {
    for sql in LINEAR {
        (0..6).for_each(|seed| compare(sql, false, seed));
    }
}

#[test]
fn other_aggregates_follow_inserts_and_deletes() {
    for sql in GENERAL {
        (10..16).for_each(|seed| compare(sql, false, seed));
    }
}

#[test]
fn append_only_forms_give_the_same() {
    for sql in LINEAR.iter().chain(GENERAL) {
        (20..23).for_each(|seed| compare(sql, true, seed));
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

#[test]
fn an_aggregate_without_groups_has_a_row_from_the_first_batch() {
    let mut bench = Bench::new(
        request("SELECT count(*), sum(v) FROM r", false),
        2,
        1 << 20,
        true,
    );
    assert_eq!(bench.batch(&[]).len(), 1);
    assert_eq!(bench.contents(), ["0 | NULL"]);
    assert!(bench.batch(&[]).is_empty());
    bench.restart();
    assert!(bench.batch(&[]).is_empty());
    bench.batch(&[to_change(&[(row(1, 5, 0), 2)])]);
    assert_eq!(bench.contents(), ["2 | 10"]);
    bench.batch(&[to_change(&[(row(1, 5, 0), -2)])]);
    assert_eq!(bench.contents(), ["0 | NULL"]);
}

#[test]
fn changes_that_nobody_takes_are_counted_and_checked_but_not_made() {
    let request = request("SELECT k, sum(v) FROM r GROUP BY k", false);
    let mut bench = Bench::new(request, 2, 1 << 20, true);
    bench.quiet = true;
    let batch = [to_change(&[(row(1, 5, 0), 1), (row(2, 5, 0), 1)])];
    assert!(bench.batch(&batch).is_empty());
    assert_eq!(bench.operator.statistics().output_rows, 2);
    // One group changes, one comes, one goes, one gets back what it lost.
    let rows = [
        (row(1, 1, 0), 1),
        (row(3, 1, 0), 1),
        (row(2, 5, 0), -1),
        (row(2, 5, 0), 1),
    ];
    assert!(bench.batch(&[to_change(&rows)]).is_empty());
    assert_eq!(bench.operator.statistics().output_rows, 3);
    assert_eq!(bench.operator.statistics().state_rows_updated, 2);
    assert_eq!(bench.contents(), ["1 | 6", "2 | 5", "3 | 1"]);
    let overflow = [to_change(&[(row(1, i64::MAX, 0), 1)])];
    let error = bench.try_batch(&overflow, None).unwrap_err();
    assert_eq!(error.sqlstate(), "22003", "{error}");
}

#[test]
fn a_batch_that_changes_no_result_emits_nothing() {
    let mut bench = Bench::new(
        request("SELECT k, max(v) FROM r GROUP BY k", true),
        2,
        1 << 20,
        true,
    );
    bench.batch(&[to_change(&[(row(1, 5, 0), 1), (row(2, 5, 0), 1)])]);
    assert!(
        bench
            .batch(&[to_change(&[(row(1, 4, 0), 1), (row(2, 5, 0), 3)])])
            .is_empty()
    );
    let out = bench.batch(&[to_change(&[(row(1, 6, 0), 1), (row(2, 1, 0), 1)])]);
    assert_eq!(out.iter().map(ChangeBatch::num_rows).sum::<usize>(), 2);
}

#[test]
fn an_overflow_is_an_error_and_a_sum_that_comes_back_is_not() {
    let mut bench = Bench::new(
        request("SELECT k, sum(v) FROM r GROUP BY k", false),
        1,
        1 << 20,
        true,
    );
    let large = i64::MAX;
    bench.batch(&[to_change(&[
        (row(1, large, 0), 1),
        (row(1, large, 0), 1),
        (row(1, large, 0), -1),
    ])]);
    assert_eq!(bench.contents(), [format!("1 | {large}")]);
    let error = bench
        .try_batch(&[to_change(&[(row(1, 1, 0), 1)])], None)
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::NUMERIC_OUT_OF_RANGE);
    bench.operator.reset();
    bench.view.reset();
    bench.batch(&[to_change(&[(row(1, -1, 0), 1)])]);
    assert_eq!(bench.contents(), [format!("1 | {}", large - 1)]);
}

#[test]
fn deleting_what_is_not_there_is_an_error() {
    for sql in [
        "SELECT k, count(*) FROM r GROUP BY k",
        "SELECT k, min(v) FROM r GROUP BY k",
    ] {
        let mut bench = Bench::new(request(sql, false), 1, 1 << 20, true);
        bench.batch(&[to_change(&[(row(1, 1, 0), 1)])]);
        assert!(
            bench
                .try_batch(&[to_change(&[(row(2, 1, 0), -1)])], None)
                .is_err()
        );
    }
}

fn windowed(emit: EmitMode) -> AggregateRequest {
    let sql = "SELECT t, k, count(*), count(DISTINCT v) FROM r GROUP BY t, k";
    let event_time = Some(EventTimeGroup {
        group_index: 0,
        end_offset: 10,
    });
    AggregateRequest {
        event_time,
        emit,
        ..request(sql, true)
    }
}

fn starts(lines: &[String]) -> Vec<String> {
    let cells = |line: &String| {
        let cells: Vec<_> = line.split(" | ").collect();
        format!(
            "{} k{} n{} d{}",
            &cells[0][cells[0].len() - 2..],
            cells[1],
            cells[2],
            cells[3]
        )
    };
    lines.iter().map(cells).collect()
}

#[test]
fn a_watermark_drops_late_rows_and_frees_closed_groups() {
    for shards in [1, 3] {
        let mut bench = Bench::new(windowed(EmitMode::OnUpdate), shards, 1, true);
        bench
            .try_batch(
                &[to_change(&[
                    (row(1, 1, 10), 1),
                    (row(1, 2, 10), 1),
                    (row(2, 1, 30), 1),
                ])],
                None,
            )
            .unwrap();
        let before = bench.operator.statistics().state_rows;
        // The window of 10 ends at 20: late at 20, in time at 19.
        bench
            .try_batch(&[to_change(&[(row(1, 2, 10), 1)])], Some(19))
            .unwrap();
        assert_eq!(bench.operator.statistics().late_rows, 0);
        bench.restart();
        let out = bench
            .try_batch(
                &[to_change(&[(row(1, 9, 10), 1), (row(2, 1, 30), 1)])],
                Some(20),
            )
            .unwrap();
        assert_eq!(out.iter().map(ChangeBatch::num_rows).sum::<usize>(), 2);
        let statistics = bench.operator.statistics();
        assert_eq!((statistics.late_rows, statistics.input_rows), (1, 2));
        assert_eq!((before, statistics.state_rows), (5, 2));
        assert_eq!(bench.contents().len(), 2, "removing state emits nothing");
        bench.try_batch(&[], Some(100)).unwrap();
        assert_eq!(bench.operator.statistics().state_rows, 0);
        let snapshot = bench.store.snapshot();
        let tables = bench.operator.state_tables();
        let left: Vec<_> = ["groups", "ends", "rows_1"]
            .map(|name| crate::state::TableId::from_name(&format!("v/aggregate_0/{name}")))
            .into();
        for table in left {
            assert!(tables.contains(&table));
            assert!(!snapshot.scan(table, None, None).unwrap().advance().unwrap());
        }
    }
}

#[test]
fn a_closed_window_is_emitted_once() {
    for shards in [1, 3] {
        let mut bench = Bench::new(windowed(EmitMode::OnWindowClose), shards, 1, true);
        assert!(
            bench.operator.wants_batch_at(0),
            "nothing is known before the first batch"
        );
        let rows = [
            (row(1, 1, 10), 1),
            (row(1, 1, 10), 2),
            (row(2, 1, 12), 1),
            (row(3, 1, 40), 1),
        ];
        assert!(
            bench
                .try_batch(&[to_change(&rows)], Some(5))
                .unwrap()
                .is_empty()
        );
        assert!(!bench.operator.wants_batch_at(19));
        assert!(bench.operator.wants_batch_at(20));
        bench.restart();
        assert!(bench.operator.wants_batch_at(20));
        bench.try_batch(&[], Some(22)).unwrap();
        assert_eq!(starts(&bench.contents()), ["10 k1 n3 d1", "12 k2 n1 d1"]);
        assert!(!bench.operator.wants_batch_at(49) && bench.operator.wants_batch_at(50));
        bench
            .try_batch(&[to_change(&[(row(1, 1, 12), 1)])], Some(22))
            .unwrap();
        assert_eq!(bench.operator.statistics().late_rows, 1);
        bench.operator.shed_memory();
        bench
            .try_batch(&[to_change(&[(row(3, 2, 40), 1)])], Some(30))
            .unwrap();
        bench.try_batch(&[], Some(50)).unwrap();
        bench.try_batch(&[], Some(60)).unwrap();
        assert_eq!(
            starts(&bench.contents()),
            ["10 k1 n3 d1", "12 k2 n1 d1", "40 k3 n2 d2"]
        );
        assert!(!bench.operator.wants_batch_at(i64::MAX));
    }
}

#[test]
fn window_close_needs_a_window() {
    let request = AggregateRequest {
        event_time: None,
        ..windowed(EmitMode::OnWindowClose)
    };
    let error = AggregateOperator::try_new(request).unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::FEATURE_NOT_SUPPORTED);
}

#[test]
fn zeros_are_one_group() {
    let zero = |f| Row {
        f: Some(f),
        ..row(1, 1, 0)
    };
    let sql = "SELECT f, count(*) FROM r GROUP BY f";
    let mut bench = Bench::new(request(sql, false), 2, 1 << 20, true);
    bench.batch(&[to_change(&[
        (zero(0.0), 1),
        (zero(-0.0), 1),
        (zero(f64::NAN), 2),
    ])]);
    assert_eq!(bench.contents().len(), 2);
}

#[test]
fn a_budget_that_is_over_keeps_nothing_but_what_was_touched() {
    let mut bench = Bench::new(
        request("SELECT k, sum(v) FROM r GROUP BY k", false),
        2,
        1,
        true,
    );
    let rows: Vec<_> = (0..3000).map(|k| (row(k, k, 0), 1)).collect();
    bench.batch(&[to_change(&rows)]);
    bench.budget.account(1 << 31);
    bench.batch(&[to_change(&rows[..10])]);
    let small = bench.operator.statistics().memory_bytes;
    assert!(small < 64 * 1024, "{small} bytes are resident");
    bench.batch(&[to_change(&rows)]);
    let contents = bench.contents();
    assert_eq!(contents.len(), 3000);
    assert!(contents.contains(&"9 | 27".to_owned()) && contents.contains(&"10 | 20".to_owned()));
}

#[test]
fn parallel_batches_give_what_sequential_ones_give() {
    let sql = "SELECT k, s, count(*), sum(v), max(v), count(DISTINCT v) FROM r GROUP BY k, s";
    let mut random = Random(77);
    let rows: Vec<Row> = (0..30_000)
        .map(|_| Row {
            k: Some(random.next(900) as i64),
            ..random_row(&mut random)
        })
        .collect();
    let mut bench = Bench::new(request(sql, true), 4, 1 << 24, true);
    for part in rows.chunks(10_000) {
        bench.batch(&[ChangeBatch::inserts(to_batch(part))]);
    }
    assert_eq!(bench.contents(), expected(sql, &rows));
    let whole = concat_batches(&schema(), &[to_batch(&rows)]).unwrap();
    assert_eq!(whole.num_rows(), rows.len());
}

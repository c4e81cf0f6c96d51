//! Test harness: a pipeline's dataflow over a real state store, with DataFusion as the oracle.
//!
//! A test declares relations and views, feeds batches of weighted rows and calls
//! [`Harness::check`], which runs every view's `SELECT` by DataFusion over the relations' present
//! rows and compares as multisets. [`Harness::restart`] throws all memory away and goes on from
//! the store, as after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannedStatement;
use datafusion::sql::sqlparser::ast;

use super::change::ChangeBatch;
use super::consolidate::consolidate;
use super::graph::{BatchResult, Dataflow};
use super::operator::BatchContext;
use super::plan::{InputProperties, ViewPlan, ViewRequest, plan_view};
use super::row_errors::OnRowError;
use super::rows::RowCodec;
use crate::catalog::definition::EmitMode;
use crate::error::Result;
use crate::sql::context::{ContextOptions, new_session_context};
use crate::sql::statement::Statement;
use crate::state::{MemoryBudget, Run, StateStore, StateStoreOptions, WantedKeys};

/// A small generator of reproducible numbers (splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Relation {
    properties: InputProperties,
    changes: Vec<ChangeBatch>,
}

struct TestView {
    sql: String,
    plan: ViewPlan,
    changes: Vec<ChangeBatch>,
}

/// A dataflow under test.
pub struct Harness {
    _dir: tempfile::TempDir,
    store: StateStore,
    budget: Arc<MemoryBudget>,
    /// The dataflow itself.
    pub dataflow: Dataflow,
    context: SessionContext,
    runtime: tokio::runtime::Runtime,
    relations: BTreeMap<String, Relation>,
    views: Vec<(String, TestView)>,
    batch_id: u64,
    last_run: Arc<Run>,
    /// Watermark of the next batches.
    pub watermark: Option<i64>,
    /// What the batch after the next one applies at least.
    pub next_watermark: Option<i64>,
    /// Time of the next batches, microseconds since the epoch.
    pub now_us: i64,
    /// What failing rows meet, in views planned from now on and in all batches.
    pub on_row_error: OnRowError,
}

fn session() -> SessionContext {
    new_session_context(ContextOptions {
        target_partitions: Some(1),
        ..ContextOptions::default()
    })
    .unwrap()
}

/// A schema of nullable columns: `k`, `v` BIGINT and `s` TEXT.
pub fn kvs_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}

/// A row of [`kvs_schema`] and its weight.
pub type WeightedRow = ((Option<i64>, Option<i64>, Option<String>), i64);

impl Harness {
    /// A harness without relations.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let budget = MemoryBudget::new(64 << 20);
        let options = StateStoreOptions {
            budget: budget.clone(),
            spill_bytes: 16 << 20,
        };
        let store = StateStore::open(dir.path(), uuid::Uuid::nil(), options).unwrap();
        Self {
            _dir: dir,
            store,
            budget,
            dataflow: Dataflow::new(),
            context: session(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
            relations: BTreeMap::new(),
            views: Vec::new(),
            batch_id: 0,
            last_run: Arc::default(),
            watermark: None,
            next_watermark: None,
            now_us: 0,
            on_row_error: OnRowError::default(),
        }
    }

    /// Functions and tables for binding.
    pub fn session(&self) -> &SessionContext {
        &self.context
    }

    /// Declares a relation.
    pub fn relation(&mut self, name: &str, properties: InputProperties) {
        self.bind(name, properties.schema.clone());
        let relation = Relation {
            properties,
            changes: Vec::new(),
        };
        self.relations.insert(name.to_owned(), relation);
    }

    /// Declares a relation whose rows come and go, with the columns of [`kvs_schema`].
    pub fn table(&mut self, name: &str) {
        self.relation(
            name,
            InputProperties {
                schema: kvs_schema(),
                append_only: false,
                watermark_column: None,
                primary_key: None,
                event_time: Vec::new(),
            },
        );
    }

    fn bind(&self, name: &str, schema: SchemaRef) {
        let table = MemTable::try_new(schema, vec![vec![]]).unwrap();
        self.context.register_table(name, Arc::new(table)).unwrap();
    }

    /// Plans a view without adding it.
    pub fn plan(&self, name: &str, sql: &str, emit: EmitMode) -> Result<ViewPlan> {
        let state = self.context.state();
        let plan = self.bind_query(sql)?;
        let inputs = |relation: &str| {
            if let Some(relation) = self.relations.get(relation) {
                return Some(relation.properties.clone());
            }
            let (_, view) = self.views.iter().find(|(name, _)| name == relation)?;
            Some(InputProperties {
                schema: view.plan.schema.clone(),
                append_only: view.plan.append_only,
                watermark_column: None,
                primary_key: view.plan.key.clone(),
                event_time: view.plan.event_time.clone(),
            })
        };
        plan_view(&ViewRequest {
            name,
            state_name: name,
            stored: true,
            plan: &plan,
            state: &state,
            inputs: &inputs,
            emit,
            on_row_error: self.on_row_error,
        })
    }

    /// The bound plan of a query, as a session makes it.
    fn bind_query(&self, sql: &str) -> Result<LogicalPlan> {
        let (statement, _) = crate::sql::parse(sql)?.remove(0);
        let Statement::Query(query) = statement else {
            panic!("{sql} is no query");
        };
        let query = crate::sql::rewrite::rewrite_query(*query)?;
        let statement = ast::Statement::Query(Box::new(query));
        let statement = PlannedStatement::Statement(Box::new(statement));
        let state = self.context.state();
        Ok(self.runtime.block_on(state.statement_to_plan(statement))?)
    }

    /// Adds a view.
    pub fn view(&mut self, name: &str, sql: &str) {
        let plan = self.plan(name, sql, EmitMode::OnUpdate).unwrap();
        self.add(name, sql, plan);
    }

    /// Adds a view that must answer what another query does.
    pub fn view_answering(&mut self, name: &str, sql: &str, answer: &str) {
        let plan = self.plan(name, sql, EmitMode::OnUpdate).unwrap();
        self.add(name, answer, plan);
    }

    /// Adds a planned view.
    pub fn add(&mut self, name: &str, sql: &str, plan: ViewPlan) {
        self.bind(name, plan.schema.clone());
        self.dataflow.add_view(plan.clone()).unwrap();
        let view = TestView {
            sql: sql.to_owned(),
            plan,
            changes: Vec::new(),
        };
        self.views.push((name.to_owned(), view));
    }

    /// The context of the next batch.
    pub fn batch_context(&self) -> BatchContext {
        BatchContext {
            batch_id: self.batch_id,
            snapshot: self.store.snapshot(),
            watermark: self.watermark,
            next_watermark: self.next_watermark,
            now_us: self.now_us,
            budget: self.budget.clone(),
        }
    }

    /// Runs one batch to its commit.
    pub fn batch(&mut self, changes: Vec<(&str, ChangeBatch)>) -> BatchResult {
        self.try_batch(changes).unwrap()
    }

    /// Runs one batch to its commit; what it wrote.
    pub fn batch_run(&mut self, changes: Vec<(&str, ChangeBatch)>) -> Arc<Run> {
        self.batch(changes);
        self.last_run.clone()
    }

    /// As [`Self::batch`]; a failed batch leaves no trace.
    pub fn try_batch(&mut self, changes: Vec<(&str, ChangeBatch)>) -> Result<BatchResult> {
        let context = self.batch_context();
        let policy = self.on_row_error;
        self.dataflow.set_on_row_error(|_| policy);
        let mut result = match self.run(&changes, &context) {
            Ok(result) => result,
            Err(error) => {
                self.dataflow.reset();
                return Err(error);
            }
        };
        let run = std::mem::take(&mut result.run);
        self.last_run = Arc::new(run);
        self.store.apply(self.batch_id, self.last_run.clone())?;
        self.dataflow.committed();
        self.batch_id += 1;
        for (relation, change) in changes {
            let relation = self.relations.get_mut(relation).unwrap();
            relation.changes.push(change);
        }
        for (name, view) in &mut self.views {
            let changes = result.view_changes.get(name).cloned().unwrap_or_default();
            if !view.plan.append_only {
                let codec = RowCodec::new(view.plan.schema.clone())?;
                let entries =
                    |c: &[ChangeBatch]| c.iter().map(ChangeBatch::num_rows).sum::<usize>();
                let consolidated = consolidate(&codec, &changes)?;
                assert_eq!(entries(&changes), entries(&consolidated), "{}", view.sql);
            }
            view.changes.extend(changes);
        }
        Ok(result)
    }

    fn run(
        &mut self,
        changes: &[(&str, ChangeBatch)],
        context: &BatchContext,
    ) -> Result<BatchResult> {
        let inputs = self.dataflow.inputs();
        for (relation, change) in changes {
            let Some(spec) = inputs.iter().find(|spec| spec.relation == *relation) else {
                continue;
            };
            let rows = change.rows().project(&spec.projection)?;
            self.dataflow
                .push(relation, change.with_rows(rows), context)?;
        }
        self.dataflow.finish(context)
    }

    /// All memory is lost; the dataflow goes on from the store.
    pub fn restart(&mut self) {
        self.dataflow = Dataflow::new();
        for (_, view) in &self.views {
            self.dataflow.add_view(view.plan.clone()).unwrap();
        }
    }

    /// The present rows of a relation or view.
    pub fn rows(&self, name: &str) -> Vec<RecordBatch> {
        let (schema, changes) = match self.relations.get(name) {
            Some(relation) => (&relation.properties.schema, &relation.changes),
            None => {
                let (_, view) = self.views.iter().find(|(n, _)| n == name).unwrap();
                (&view.plan.schema, &view.changes)
            }
        };
        let codec = RowCodec::new(schema.clone()).unwrap();
        let mut rows = Vec::new();
        for change in consolidate(&codec, changes).unwrap() {
            for index in 0..change.num_rows() {
                let weight = change.weight(index);
                assert!(weight > 0, "{name} holds a row {weight} times");
                let row = change.rows().slice(index, 1);
                rows.extend(std::iter::repeat_n(row, weight as usize));
            }
        }
        if rows.is_empty() {
            return vec![RecordBatch::new_empty(schema.clone())];
        }
        vec![datafusion::arrow::compute::concat_batches(schema, &rows).unwrap()]
    }

    /// What DataFusion answers now.
    fn answer(&self, view: &TestView) -> Vec<RecordBatch> {
        let plan = self.bind_query(&view.sql).unwrap();
        self.runtime.block_on(async {
            let query = self.context.execute_logical_plan(plan).await.unwrap();
            query.collect().await.unwrap()
        })
    }

    /// Compares every view with DataFusion's answer over the same rows.
    pub fn check(&self) {
        for name in self.relations.keys() {
            self.register(name);
        }
        for (name, view) in &self.views {
            let codec = RowCodec::new(view.plan.schema.clone()).unwrap();
            let expected = multiset(&codec, &self.answer(view));
            let actual = multiset(&codec, &self.rows(name));
            if expected != actual {
                let show = |b: &[RecordBatch]| pretty_format_batches(b).unwrap().to_string();
                panic!(
                    "batch {}: view {name}: {}\nexpected:\n{}\ngot:\n{}",
                    self.batch_id,
                    view.sql,
                    show(&self.answer(view)),
                    show(&self.rows(name))
                );
            }
            let stored = multiset(&codec, &self.stored_rows(&view.plan));
            assert!(stored == expected, "what is stored of {name}: {}", view.sql);
            self.register(name);
        }
    }

    /// What a reader of a view finds.
    fn stored_rows(&self, plan: &ViewPlan) -> Vec<RecordBatch> {
        let projection: Vec<usize> = (0..plan.schema.fields().len()).collect();
        let (snapshot, contents) = (self.store.snapshot(), plan.contents().unwrap());
        let name = &plan.state_name;
        let all = &WantedKeys::All;
        let rows = contents.read(&snapshot, name, &plan.schema, all, &projection, 3);
        rows.unwrap().collect::<Result<_>>().unwrap()
    }

    fn register(&self, name: &str) {
        let rows = self.rows(name);
        let table = MemTable::try_new(rows[0].schema(), vec![rows]).unwrap();
        self.context.deregister_table(name).unwrap();
        self.context.register_table(name, Arc::new(table)).unwrap();
    }
}

fn multiset(codec: &RowCodec, batches: &[RecordBatch]) -> BTreeMap<Vec<u8>, usize> {
    let mut rows = BTreeMap::new();
    for batch in batches {
        let columns = batch.columns().to_vec();
        let batch = super::rows::rebatch(codec.schema(), columns, batch.num_rows()).unwrap();
        let encoded = codec.encode(&batch).unwrap();
        for index in 0..batch.num_rows() {
            *rows.entry(encoded.row(index).to_vec()).or_default() += 1;
        }
    }
    rows
}

/// Rows of [`kvs_schema`] that come and go at random: few keys, NULLs, duplicates, and deletes of
/// rows that are there.
pub struct RandomTable {
    rows: Vec<(Option<i64>, Option<i64>, Option<String>)>,
    /// Rows may be deleted again.
    pub deletes: bool,
    /// Number of different keys.
    pub keys: u64,
}

impl RandomTable {
    /// An empty table.
    pub fn new(deletes: bool, keys: u64) -> Self {
        Self {
            rows: Vec::new(),
            deletes,
            keys,
        }
    }

    /// A change of about `size` rows.
    pub fn change(&mut self, random: &mut Random, size: u64) -> ChangeBatch {
        let mut entries = Vec::new();
        for _ in 0..random.below(size + 1) {
            if self.deletes && !self.rows.is_empty() && random.one_in(3) {
                let row = self
                    .rows
                    .swap_remove(random.below(self.rows.len() as u64) as usize);
                entries.push((row, -1));
            } else {
                let null = |random: &mut Random| random.one_in(6);
                let row = (
                    (!null(random)).then(|| random.below(self.keys) as i64),
                    (!null(random)).then(|| random.below(9) as i64 - 3),
                    (!null(random)).then(|| format!("s{}", random.below(4))),
                );
                let copies = if random.one_in(5) { 2 } else { 1 };
                self.rows.extend(std::iter::repeat_n(row.clone(), copies));
                entries.push((row, copies as i64));
            }
        }
        kvs(&entries)
    }
}

/// A change of rows of [`kvs_schema`] with their weights.
pub fn kvs(entries: &[WeightedRow]) -> ChangeBatch {
    let keys: Int64Array = entries.iter().map(|((k, _, _), _)| *k).collect();
    let values: Int64Array = entries.iter().map(|((_, v, _), _)| *v).collect();
    let texts: datafusion::arrow::array::StringArray =
        entries.iter().map(|((_, _, s), _)| s.clone()).collect();
    let rows = RecordBatch::try_new(
        kvs_schema(),
        vec![Arc::new(keys), Arc::new(values), Arc::new(texts)],
    )
    .unwrap();
    super::consolidate::change_of(rows, entries.iter().map(|(_, weight)| *weight))
}

/// Feeds random changes of the tables `t` and `u` to views of the queries, and compares after
/// every batch; some batches are empty, some touch one table only, and the dataflow restarts.
pub fn check_queries(queries: &[&str], deletes: bool, seed: u64) {
    let mut harness = Harness::new();
    for name in ["t", "u"] {
        harness.table(name);
        let relation = harness.relations.get_mut(name).unwrap();
        relation.properties.append_only = !deletes;
    }
    for (index, sql) in queries.iter().enumerate() {
        harness.view(&format!("view_{index}"), sql);
    }
    let mut random = Random::new(seed);
    let mut tables = [RandomTable::new(deletes, 5), RandomTable::new(deletes, 7)];
    for batch in 0..12 {
        let mut changes = Vec::new();
        for (name, table) in ["t", "u"].into_iter().zip(&mut tables) {
            if !random.one_in(4) {
                changes.push((name, table.change(&mut random, 12)));
            }
        }
        harness.batch(changes);
        harness.check();
        if batch % 5 == 4 {
            harness.restart();
        }
    }
}

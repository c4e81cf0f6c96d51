//! A view computed once more as one query over the rows that its pipeline has taken in.
//!
//! ```text
//!   sources, from where they were begun to commit N ──► rows ──► the view's bound query, run by DataFusion
//! ```
//!
//! None of the operators of a pipeline takes part, so a fault of theirs shows. A query knows no batches:
//! where the rows depend on them (late rows, the clock) or on an order that the query leaves open, another
//! result proves nothing, and it is said why.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{cast, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;

use crate::catalog::definition::{CatalogObject, Definition, ExpectationDefinition};
use crate::checkpoint::recovery::{Entry, Survey};
use crate::connectors::SourceRange;
use crate::dataflow::operator::StateBound;
use crate::dataflow::rows::all_nullable;
use crate::engine::Engine;
use crate::engine::planning::version_of;
use crate::engine::shared::PipelineShared;
use crate::error::{Error, Result};

/// Bytes of rows that are held in memory at most.
const INPUT_BYTES_MAX: usize = 256 << 20;

/// Why the rows cannot be computed as one query, as a clause.
pub(super) type Unfit = String;

/// What the query gives.
pub(super) struct ByBatch {
    pub rows: Vec<RecordBatch>,
    /// Why other rows than the view's prove nothing, as a clause; `None`: they prove a fault.
    pub undecided: Option<&'static str>,
}

/// The relations that were read or computed, by name, each with all its stored columns.
struct Inputs<'a> {
    engine: &'a Engine,
    survey: &'a Survey,
    batch_id: u64,
    rows: HashMap<String, Vec<RecordBatch>>,
    bytes: usize,
    undecided: Option<&'static str>,
}

impl Engine {
    /// Runs a view's query over what its pipeline had taken in after `batch_id`.
    pub(super) async fn compute_by_batch(
        &self,
        shared: &PipelineShared,
        view: &str,
        survey: &Survey,
        batch_id: u64,
    ) -> Result<ByBatch, Unfit> {
        let mut inputs = Inputs {
            engine: self,
            survey,
            batch_id,
            rows: HashMap::new(),
            bytes: 0,
            undecided: None,
        };
        let rows = inputs.view(view).await?;
        let operators = shared.board.lock().state_operators.clone();
        let is_timed = operators.iter().any(|o| o.bound == Some(StateBound::Time));
        let undecided = match is_timed {
            true => Some("the watermark or the clock decides what it holds"),
            false => inputs.undecided,
        };
        Ok(ByBatch { rows, undecided })
    }
}

impl Inputs<'_> {
    /// Computes a view, after the views that it reads.
    async fn view(&mut self, name: &str) -> Result<Vec<RecordBatch>, Unfit> {
        let parts = &self.engine.inner.parts;
        let object = parts.definitions.object(name);
        let object = object.ok_or_else(|| format!("\"{name}\" is gone"))?;
        let Definition::MaterializedView(view) = &object.definition else {
            return Err(format!("\"{name}\" is no materialized view"));
        };
        let kept = object.kept_names();
        let bound = parts.binder.bind(&view.query, &kept).await;
        let bound = bound.map_err(|e| e.primary().to_owned())?;
        self.undecided = self.undecided.or_else(|| open_order(&bound));
        for relation in scanned(&bound) {
            let (relation, _) = version_of(&relation);
            if !self.rows.contains_key(relation) {
                let rows = self.relation(relation).await?;
                self.bytes += rows
                    .iter()
                    .map(RecordBatch::get_array_memory_size)
                    .sum::<usize>();
                if self.bytes > INPUT_BYTES_MAX {
                    return Err("its input does not fit into memory".to_owned());
                }
                self.rows.insert(relation.to_owned(), rows);
            }
        }
        let plan = self.over_inputs(bound).map_err(words)?;
        let state = parts.binder.state();
        let physical = state.create_physical_plan(&plan).await;
        let physical = physical.map_err(|e| words(e.into()))?;
        let rows = collect(physical, state.task_ctx()).await.map_err(words)?;
        let schema = object.schema();
        let typed = rows.into_iter().map(|batch| with_types(&batch, &schema));
        typed.collect::<Result<_>>().map_err(words)
    }

    async fn relation(&mut self, name: &str) -> Result<Vec<RecordBatch>, Unfit> {
        let definitions = &self.engine.inner.parts.definitions;
        let object = definitions.object(name);
        let object = object.ok_or_else(|| format!("\"{name}\" is gone"))?;
        if matches!(object.definition, Definition::MaterializedView(_)) {
            // Boxed: a view may read a view, and so on.
            return Box::pin(self.view(name)).await;
        }
        if !expectations(&object).is_empty() {
            return Err(format!("\"{name}\" has constraints that drop rows"));
        }
        self.source(&object).await.map_err(words)
    }

    /// All rows of a source up to the batch, each as often as its changes leave it.
    async fn source(&self, object: &CatalogObject) -> Result<Vec<RecordBatch>> {
        let commit = self.survey.commits.get(&self.batch_id);
        let commit = commit
            .and_then(Entry::whole)
            .ok_or_else(|| Error::damaged(format!("commits/{} cannot be read", self.batch_id)))?;
        let entry = &commit.entry;
        let range = entry.initial_offsets.get(&object.name);
        let range = range.zip(entry.source_offsets.get(&object.name));
        let Some((start, end)) = range.filter(|(start, end)| start != end) else {
            return Ok(Vec::new());
        };
        let source = self
            .engine
            .source_beside(&self.survey.identity, &object.name)?;
        let all: Vec<usize> = (0..object.stored_columns().len()).collect();
        let range = SourceRange {
            start: start.clone(),
            end: end.clone(),
        };
        let mut chunks = source.read_range(self.batch_id, &range, &all).await?;
        let mut rows = Vec::new();
        let mut weights: Option<Weights> = None;
        let mut bytes = self.bytes;
        while let Some(chunk) = chunks.next().await {
            let changes = chunk?.changes;
            bytes += changes.rows().get_array_memory_size();
            if bytes > 2 * INPUT_BYTES_MAX {
                return Err(Error::unsupported("its input does not fit into memory"));
            }
            match changes.weights() {
                None if weights.is_none() => rows.push(changes.rows().clone()),
                given => {
                    let of_each = match &mut weights {
                        Some(weights) => weights,
                        none => none.insert(Weights::of(std::mem::take(&mut rows))?),
                    };
                    let given = given.map(|weights| weights.values().to_vec());
                    of_each.add(changes.rows(), given.as_deref())?;
                }
            }
        }
        match weights {
            None => Ok(rows),
            Some(weights) => weights.rows(),
        }
    }

    /// The plan with the rows in the place of what it scans.
    fn over_inputs(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let replaced = plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(mut scan) = node else {
                return Ok(Transformed::no(node));
            };
            let name = scan.table_name.table().to_owned();
            let (relation, version) = version_of(&name);
            let definitions = &self.engine.inner.parts.definitions;
            let Some(rows) = self.rows.get(relation) else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            let schema = scan.source.schema();
            let object = definitions.object(relation).map(|o| o.at_version(version));
            let stored = |column: usize| match &object {
                Some(object) if !matches!(object.definition, Definition::MaterializedView(_)) => {
                    object.stored_index(column)
                }
                _ => column,
            };
            let columns: Vec<usize> = (0..schema.fields().len()).map(stored).collect();
            let rows = rows
                .iter()
                .map(|batch| Ok(with_types(&batch.project(&columns)?, &schema)?))
                .collect::<datafusion::error::Result<Vec<_>>>()?;
            let schema = all_nullable(&schema);
            let rows = rows
                .into_iter()
                .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            let table = MemTable::try_new(schema, vec![rows])?;
            scan.source = provider_as_source(Arc::new(table));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        })?;
        Ok(replaced.data)
    }
}

/// Runs a plan on a thread for blocking work: the statements of others go on meanwhile.
async fn collect(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<Vec<RecordBatch>> {
    let runtime = tokio::runtime::Handle::current();
    let work = move || runtime.block_on(datafusion::physical_plan::collect(plan, context));
    let rows = tokio::task::spawn_blocking(work).await;
    Ok(rows.map_err(|e| Error::internal(format!("a query ended abnormally: {e}")))??)
}

fn words(error: Error) -> Unfit {
    error.primary().to_owned()
}

/// The columns under the types of a schema, in its order.
fn with_types(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns
        .map(|(column, field)| Ok(cast(column, field.data_type())?))
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(all_nullable(schema), columns)?)
}

fn expectations(object: &CatalogObject) -> &[ExpectationDefinition] {
    match &object.definition {
        Definition::Stream(stream) => &stream.expectations,
        _ => &[],
    }
}

/// Names of the relations that a plan scans.
fn scanned(plan: &LogicalPlan) -> Vec<String> {
    let mut names = Vec::new();
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.push(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    // The walk itself has nothing that fails.
    debug_assert!(walked.is_ok());
    names.sort_unstable();
    names.dedup();
    names
}

/// What of a query leaves its rows open, as a clause.
fn open_order(plan: &LogicalPlan) -> Option<&'static str> {
    const ORDERED: [&str; 7] = [
        "array_agg",
        "string_agg",
        "first_value",
        "last_value",
        "any_value",
        "nth_value",
        "json_agg",
    ];
    let mut open = None;
    let walked = plan.apply_with_subqueries(|node| {
        let fields = node.schema().fields();
        open = open.or(match node {
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(_)
                if !is_plain_distinct(node) =>
            {
                Some("which of several equal rows come first is left open by its query")
            }
            _ if fields.iter().any(|field| is_float(field.data_type())) => {
                Some("sums of floating-point numbers depend on the order of the rows")
            }
            _ => None,
        });
        for expression in node.expressions() {
            expression.apply(|part| {
                if let Expr::AggregateFunction(call) = part
                    && ORDERED.contains(&call.func.name())
                {
                    open = Some("the order of the rows in an aggregate is left open by its query");
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match walked {
        Ok(_) => open,
        Err(_) => Some("its query could not be looked through"),
    }
}

fn is_plain_distinct(node: &LogicalPlan) -> bool {
    use datafusion::logical_expr::Distinct;
    matches!(node, LogicalPlan::Distinct(Distinct::All(_)))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// How often each row of a relation is there.
struct Weights {
    schema: SchemaRef,
    converter: RowConverter,
    counts: BTreeMap<OwnedRow, i64>,
}

impl Weights {
    /// Of rows without weights; empty: the schema comes with the first that are added.
    fn of(rows: Vec<RecordBatch>) -> Result<Self> {
        let mut weights = Self {
            schema: Arc::new(Schema::empty()),
            converter: RowConverter::new(Vec::new())?,
            counts: BTreeMap::new(),
        };
        rows.iter().try_for_each(|batch| weights.add(batch, None))?;
        Ok(weights)
    }

    fn add(&mut self, rows: &RecordBatch, weights: Option<&[i64]>) -> Result<()> {
        if self.schema.fields().is_empty() {
            self.schema = rows.schema();
            let fields = self.schema.fields().iter();
            let fields = fields.map(|field| SortField::new(field.data_type().clone()));
            self.converter = RowConverter::new(fields.collect())?;
        }
        let converted = self.converter.convert_columns(rows.columns())?;
        for (index, row) in converted.iter().enumerate() {
            let weight = weights.map_or(1, |weights| weights[index]);
            *self.counts.entry(row.owned()).or_default() += weight;
        }
        Ok(())
    }

    fn rows(self) -> Result<Vec<RecordBatch>> {
        if self.counts.values().any(|count| *count < 0) {
            return Err(Error::damaged(
                "its input deletes rows that it does not hold",
            ));
        }
        if self.schema.fields().is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .converter
            .convert_rows(self.counts.keys().map(OwnedRow::row))?;
        let batch = RecordBatch::try_new(all_nullable(&self.schema), rows)?;
        let counts = self.counts.values().enumerate();
        let indices: UInt32Array = counts
            .flat_map(|(index, count)| std::iter::repeat_n(index as u32, *count as usize))
            .collect();
        Ok(vec![take_record_batch(&batch, &indices)?])
    }
}

//! Reading a materialized view in a query: which of its keys, in which order, how many rows.
//!
//! A few keys are looked up where the query runs; all else is read by a thread for blocking work,
//! some batches ahead. Absent: telling the plan that rows come in the order of the keys. The engine
//! trips over an ordered input some of whose columns a filter makes constant, below a window.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};

use super::planning;
use crate::catalog::definition::CatalogObject;
use crate::dataflow::view_storage::ViewRows;
use crate::engine::{ReadContext, ReadOrder, WholeRows};
use crate::state::WantedKeys;

/// Batches of a view that wait between the reading thread and the query.
const READ_AHEAD_BATCHES: usize = 2;

/// What of a view is read.
#[derive(Clone)]
pub(super) struct ViewRead {
    pub context: ReadContext,
    pub view: Arc<CatalogObject>,
    /// By which of its orders.
    pub order: ReadOrder,
    /// The name that the order's index has for users.
    pub index_shown: Option<String>,
    pub wanted: WantedKeys,
    /// The conditions that say what is wanted.
    pub by: Vec<Expr>,
    /// Columns; none: rows are only counted.
    pub columns: Vec<usize>,
}

impl ViewRead {
    /// The columns that are read: the first one, where rows are only counted.
    fn read_columns(&self) -> &[usize] {
        match self.columns.is_empty() {
            true => &[0],
            false => &self.columns,
        }
    }

    /// The rows, where others read them before.
    fn kept(&self) -> Option<WholeRows> {
        let (context, columns) = (&self.context, self.read_columns());
        context.kept(&self.view, &self.order, &self.wanted, columns)
    }
}

/// The reading of a view, as a plan.
#[derive(Debug)]
pub(super) struct ViewScan {
    read: ViewRead,
    schema: SchemaRef,
    fetch: Option<usize>,
    /// Its rows, if they are at hand; they are given out in as many parts as there are partitions.
    kept: Option<WholeRows>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for ViewRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewRead({})", self.view.name)
    }
}

impl ViewScan {
    /// `schema` is that of the read columns. Rows that are at hand come in up to `parts_max` parts.
    pub fn new(read: ViewRead, schema: SchemaRef, fetch: Option<usize>, parts_max: usize) -> Self {
        let kept = read.kept();
        let parts = kept.as_ref().map_or(1, |rows| rows.len().min(parts_max));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(parts.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            read,
            schema,
            fetch,
            kept,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for ViewScan {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = &self.read.view;
        write!(f, "ViewScan: {}", view.name)?;
        if let Some(index) = &self.read.index_shown {
            write!(f, " using {index}")?;
        }
        let columns = view.columns();
        let name = |column: usize| columns.get(column).map_or("?", |c| c.name.as_str());
        let read: Vec<_> = self.read.columns.iter().map(|&c| name(c)).collect();
        write!(f, ", columns=[{}]", read.join(", "))?;
        let by: Vec<String> = self.read.by.iter().map(ToString::to_string).collect();
        match &self.read.wanted {
            WantedKeys::All => {}
            WantedKeys::Ranges(ranges) => write!(f, ", key ranges={}", ranges.len())?,
            WantedKeys::Keys(keys) => write!(f, ", keys={}", keys.len())?,
        }
        if !by.is_empty() {
            write!(f, ", by=[{}]", by.join(", "))?;
        }
        match self.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ViewScan {
    fn name(&self) -> &'static str {
        "ViewScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self {
            read: self.read.clone(),
            schema: Arc::clone(&self.schema),
            fetch,
            kept: self.kept.clone(),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// Few keys are read by one thread: spreading their rows over several costs more than it saves.
    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let statistics = Statistics::new_unknown(&self.schema);
        Ok(Arc::new(match &self.read.wanted {
            WantedKeys::Keys(keys) => statistics.with_num_rows(Precision::Inexact(keys.len())),
            _ => statistics,
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = match &self.kept {
            Some(kept) => self.part(kept, partition),
            None => rows(self.read.clone(), Arc::clone(&self.schema), self.fetch),
        };
        let fetch = self.fetch.unwrap_or(usize::MAX);
        Ok(Box::pin(LimitStream::new(rows, 0, Some(fetch), metrics)))
    }
}

impl ViewScan {
    /// A partition's part of rows that are at hand.
    fn part(&self, kept: &WholeRows, partition: usize) -> SendableRecordBatchStream {
        let parts = self.properties.partitioning.partition_count();
        let of = |part: usize| kept.len() * part / parts;
        let rows = kept[of(partition)..of(partition + 1)].to_vec();
        let shown = shown(&self.read, &self.schema);
        let rows = stream::iter(rows).map(move |batch| shown(Ok(batch)));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

/// Rows of a view as the plan has them.
fn shown(
    read: &ViewRead,
    schema: &SchemaRef,
) -> impl Fn(crate::error::Result<RecordBatch>) -> PlanResult<RecordBatch> + Send + use<> {
    // A read of no columns still has a number of rows: the first column was read, and is dropped.
    let is_count_only = read.columns.is_empty();
    let shown = Arc::clone(schema);
    move |batch| {
        let batch = batch.map_err(planning::external)?;
        if is_count_only {
            return Ok(batch.project(&[])?);
        }
        // The definition's schema, whose fields carry the SQL types. What the plan may call
        // nullable need not hold any null, which is checked here.
        let columns = batch.columns().to_vec();
        Ok(RecordBatch::try_new(Arc::clone(&shown), columns)?)
    }
}

fn rows(read: ViewRead, schema: SchemaRef, fetch: Option<usize>) -> SendableRecordBatchStream {
    let shown = shown(&read, &schema);
    let is_short = read.wanted.are_few();
    let open = move || {
        let ViewRead {
            context,
            view,
            order,
            wanted,
            ..
        } = &read;
        context.scan(view, order, wanted, read.read_columns(), fetch)
    };
    let rows = match is_short {
        true => match open() {
            Ok(batches) => stream::iter(batches).map(shown).boxed(),
            Err(error) => stream::iter([Err(planning::external(error))]).boxed(),
        },
        false => read_ahead(open).map(move |batch| shown(batch?)).boxed(),
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Reads on a thread for blocking work; a dropped stream ends the reading. The outer error is that
/// of a reading that broke down.
fn read_ahead(
    open: impl FnOnce() -> crate::error::Result<ViewRows> + Send + 'static,
) -> stream::BoxStream<'static, PlanResult<crate::error::Result<RecordBatch>>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(READ_AHEAD_BATCHES);
    let reading = tokio::task::spawn_blocking(move || {
        let batches = match open() {
            Ok(batches) => batches,
            Err(error) => {
                // Without a receiver nobody asks for the error either.
                sender.blocking_send(Err(error)).ok();
                return;
            }
        };
        for batch in batches {
            let is_last = batch.is_err();
            if sender.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    });
    let rows = stream::unfold(
        (receiver, Some(reading)),
        |(mut receiver, mut reading)| async {
            if let Some(batch) = receiver.recv().await {
                return Some((Ok(batch), (receiver, reading)));
            }
            // The sender is gone: at the end, or because the reading broke down.
            match reading.take()?.await {
                Ok(()) => None,
                Err(failure) => Some((
                    Err(DataFusionError::External(Box::new(failure))),
                    (receiver, None),
                )),
            }
        },
    );
    rows.boxed()
}

//! Threads of their own for connections and for queries.
//!
//! Pipelines have those of whoever opened the database to themselves: a batch goes through many steps that each wait
//! for a thread, and between the plans of two hundred dashboards each would wait for long.
//! (Less of the cores for these by nice values was tried: queries took four times as long, batches no less.)
//!
//! Computing a batch of a cross join may take long without a pause. On threads of its own it keeps
//! neither connections nor pipelines from being served, so that a cancel request and a time-out are
//! answered at once; the abandoned work ends at its next pause. A query runs one batch ahead of
//! whoever reads it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::StreamExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result, sqlstate};

/// Stack of threads that plan: expressions nest as deep as the parser allows, and planning recurses over them. Memory
/// is taken only as far as it is used.
pub(crate) const PLANNING_STACK_BYTES: usize = 32 << 20;

/// As many threads as there are cores, for one kind of work.
#[derive(Debug)]
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Threads on which queries compute.
    pub fn of_queries() -> Result<Arc<Self>> {
        Self::start("query", &mut Builder::new_multi_thread())
    }

    /// Threads on which connections are served, and what they ask is planned.
    pub fn of_connections() -> Result<Arc<Self>> {
        let mut builder = Builder::new_multi_thread();
        Self::start(
            "connection",
            builder.thread_stack_size(PLANNING_STACK_BYTES),
        )
    }

    fn start(name: &str, builder: &mut Builder) -> Result<Arc<Self>> {
        let runtime = builder
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(|e| Error::from(e).context(format!("could not start {name} threads")))?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// Where to start work on them.
    pub fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // A query that still computes is not waited for.
            runtime.shutdown_background();
        }
    }
}

/// Operators that make many rows of few, and so may compute long without reading anything.
const MULTIPLYING: [&str; 5] = [
    "CrossJoinExec",
    "NestedLoopJoinExec",
    "HashJoinExec",
    "SortMergeJoinExec",
    "UnnestExec",
];

/// The physical plan of a query.
pub(in crate::session) async fn physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    physical_plan_of(state, &state.optimize(plan)?).await
}

/// An analyzed plan, optimized.
pub(in crate::session) fn optimized(
    state: &SessionState,
    plan: LogicalPlan,
) -> Result<LogicalPlan> {
    Ok(state.optimizer().optimize(plan, state, |_, _| {})?)
}

/// The physical plan of an optimized one. Operators that would compute long between two reads pause in it:
/// only there a query can be ended.
pub(in crate::session) async fn physical_plan_of(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = state.query_planner();
    let plan = planner.create_physical_plan(plan, state).await?;
    let paused = plan.transform_up(|node| {
        Ok(match MULTIPLYING.contains(&node.name()) {
            true => Transformed::yes(Arc::new(CooperativeExec::new(node)) as _),
            false => Transformed::no(node),
        })
    });
    Ok(paused?.data)
}

/// Starts a physical plan on the threads of its session; dropped, the stream ends it.
pub(in crate::session) fn start_plan(
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<SendableRecordBatchStream> {
    start_plan_in(state, state.task_ctx(), plan)
}

/// As [`start_plan`], in a context of the session's that is there.
pub(in crate::session) fn start_plan_in(
    state: &SessionState,
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<SendableRecordBatchStream> {
    let threads = state.config().get_extension::<Threads>();
    let handle = threads.and_then(|threads| threads.handle());
    let handle = handle.unwrap_or_else(Handle::current);
    let schema = plan.schema();
    let (sender, receiver) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    let work = async move {
        let mut rows = match started(plan, context) {
            Ok(rows) => rows,
            Err(error) => {
                // Without a receiver nobody asks for the error either.
                sender.send(Err(error)).await.ok();
                return;
            }
        };
        while let Some(batch) = rows.next().await {
            if sender.send(batch).await.is_err() {
                return;
            }
        }
    };
    tasks.spawn_on(work, &handle);
    let rows = futures::stream::unfold((receiver, tasks), |(mut receiver, mut tasks)| async {
        if let Some(batch) = receiver.recv().await {
            return Some((batch, (receiver, tasks)));
        }
        // The sender is gone: at the end, or because the query broke down.
        let error: QueryResult<_> = match tasks.join_next().await? {
            Ok(()) => return None,
            Err(failure) => match failure.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(stopped()),
            },
        };
        Some((error, (receiver, tasks)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// Nodes that give for each partition what they read of the same one.
const BY_PARTITION: [&str; 4] = [
    "ProjectionExec",
    "FilterExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
];

/// Starts all partitions. What a UNION ALL gives comes in the order of its branches, as in PostgreSQL, though they are
/// computed side by side; of other plans whatever is first.
fn started(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> QueryResult<SendableRecordBatchStream> {
    if !is_union(&plan) {
        return execute_stream(plan, context);
    }
    let branch = |partition| {
        let rows = plan.execute(partition, Arc::clone(&context))?;
        Ok(spawn_buffered(rows, 1))
    };
    let count = plan.output_partitioning().partition_count();
    let branches: Vec<_> = (0..count).map(branch).collect::<QueryResult<_>>()?;
    let rows = futures::stream::iter(branches).flatten();
    Ok(Box::pin(RecordBatchStreamAdapter::new(plan.schema(), rows)))
}

fn is_union(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.children().as_slice() {
        _ if plan.name() == "UnionExec" => true,
        [input] if BY_PARTITION.contains(&plan.name()) => is_union(input),
        _ => false,
    }
}

fn stopped() -> DataFusionError {
    DataFusionError::External(Box::new(Error::with_kind(
        ErrorKind::Cancelled,
        sqlstate::ADMIN_SHUTDOWN,
        "the query was stopped: the database is shutting down",
    )))
}

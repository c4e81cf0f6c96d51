//! Runs a DataFusion plan from synchronous code.
//!
//! The caller may stand on a blocking thread of a runtime, on a worker of one or on none at all,
//! and a runtime cannot be entered from within another. So the plan gets a thread and a small
//! current-thread runtime of its own for the time it runs: some tens of microseconds, and right
//! everywhere. With one partition the plans run inline; what a few of them spawn stays on it.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use futures::StreamExt;

use super::careful::{PlanErrors, careful};
use super::port::{PortPlanner, PortSlot};
use crate::error::{Error, Result};

/// Makes the physical plan of `logical`, whose ports read `slots`; rows that fail in it meet what
/// `errors` says.
pub fn create_plan(
    logical: &LogicalPlan,
    state: &SessionState,
    slots: &[Arc<PortSlot>],
    errors: &PlanErrors,
) -> Result<Arc<dyn ExecutionPlan>> {
    block_on(async {
        let ports = PortPlanner {
            slots: slots.to_vec(),
        };
        let plan = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(ports)])
            .create_physical_plan(logical, state)
            .await
            .map_err(surface)?;
        careful(plan, errors).map_err(surface)
    })
}

/// Executes a plan and hands over its batches in order.
pub fn execute(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    mut take: impl FnMut(RecordBatch) -> Result<()> + Send,
) -> Result<()> {
    block_on(async move {
        let mut stream = execute_stream(plan, context).map_err(surface)?;
        while let Some(batch) = stream.next().await {
            take(batch.map_err(surface)?)?;
        }
        Ok(())
    })
}

/// An error of our own that went through a plan comes out as it was.
fn surface(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => DataFusionError::External(other).into(),
        },
        DataFusionError::Context(_, inner) => surface(*inner),
        other => other.into(),
    }
}

fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                tokio::runtime::Builder::new_current_thread()
                    .build()
                    .map_err(Error::from)?
                    .block_on(future)
            })
            .join()
            .unwrap_or_else(|_| Err(Error::internal("a recomputed query stopped unexpectedly")))
    })
}

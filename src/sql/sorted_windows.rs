//! Windows over rows that are in order without being sorted by all that parts them.
//!
//! Where a column has no value twice, the engine takes rows in its order for sorted by whatever
//! comes after it too, and leaves the sort out; when the window runs, it does not find the columns
//! in order and fails. Such a window finds its parts by their values: the rows of each come in the
//! order that the engine relied on.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

/// The rule.
#[derive(Debug)]
pub(crate) struct SortedWindows;

impl PhysicalOptimizerRule for SortedWindows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else {
                return Ok(Transformed::no(node));
            };
            if window.partition_by_sort_keys().is_ok() {
                return Ok(Transformed::no(node));
            }
            let window = BoundedWindowAggExec::try_new(
                window.window_expr().to_vec(),
                Arc::clone(window.input()),
                InputOrderMode::Linear,
                !window.partition_keys().is_empty(),
            )?;
            Ok(Transformed::yes(Arc::new(window) as Arc<dyn ExecutionPlan>))
        })
        .map(|t| t.data)
    }

    fn name(&self) -> &str {
        "sorted_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

//! Windows over rows that are in order without being sorted by all that parts them.
//!
//! Where a column has no value twice, the engine takes rows in its order for sorted by whatever
//! comes after it too, and leaves the sort out; when the window runs, it does not find the columns
//! in order and fails. Such a window finds its parts by their values: the rows of each come in the
//! order that the engine relied on. One that sees whole parts at once cannot, and gets its rows sorted.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{
    BoundedWindowAggExec, WindowAggExec, get_ordered_partition_by_indices,
};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

/// The window over rows in the order of its parts, where they are not known to be.
fn sorted(window: &WindowAggExec) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
    let Some(first) = window.window_expr().first() else {
        return Ok(None);
    };
    let parts = first.partition_by();
    let in_order = get_ordered_partition_by_indices(parts, window.input())?;
    if in_order.len() == parts.len() {
        return Ok(None);
    }
    let parts = parts.iter().cloned().map(PhysicalSortExpr::new_default);
    let Some(order) = LexOrdering::new(parts.chain(first.order_by().iter().cloned())) else {
        return Ok(None);
    };
    let sort = SortExec::new(order, Arc::clone(window.input())).with_preserve_partitioning(true);
    let window = WindowAggExec::try_new(
        window.window_expr().to_vec(),
        Arc::new(sort),
        !window.partition_keys().is_empty(),
    )?;
    Ok(Some(Arc::new(window)))
}

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
            if let Some(window) = node.downcast_ref::<WindowAggExec>() {
                return match sorted(window)? {
                    Some(window) => Ok(Transformed::yes(window)),
                    None => Ok(Transformed::no(node)),
                };
            }
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

//! `EXCEPT ALL` and `INTERSECT ALL` as PostgreSQL counts them.
//!
//! The engine plans both as a join without duplicates' numbers: a row that is on the right at all
//! takes away (or keeps) all of its copies on the left. This rule numbers the copies on both sides
//! and joins by the number too:
//!
//! ```text
//! l EXCEPT ALL r  →  anti join of (l, n-th copy) and (r, n-th copy) on all columns and n
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use super::row_numbers;

/// Hold the number of a row among its equals, on the left and on the right: two names, since the
/// sides of a join may be seen as one schema.
const LEFT_COPY: &str = "number of the copy on the left";
const RIGHT_COPY: &str = "number of the copy on the right";

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct CountedSetOperations;

impl AnalyzerRule for CountedSetOperations {
    fn name(&self) -> &str {
        "counted_set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite).map(|t| t.data)
    }
}

fn rewrite(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(join) if is_counted(&join) => Ok(Transformed::yes(counted(join)?)),
        other => Ok(Transformed::no(other)),
    }
}

/// Only set operations join with equal NULLs before a plan is optimized.
pub(super) fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
}

/// Without ALL the left side is distinct, and there is nothing to count.
fn is_counted(join: &Join) -> bool {
    // A plan may be analyzed twice.
    let is_done = join
        .left
        .schema()
        .fields()
        .last()
        .is_some_and(|f| f.name() == LEFT_COPY);
    is_set_operation(join) && !is_done && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

fn counted(join: Join) -> DataFusionResult<LogicalPlan> {
    let outputs: Vec<Expr> = join
        .left
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let left = numbered(Arc::unwrap_or_clone(join.left), left_keys, LEFT_COPY)?;
    let right = numbered(Arc::unwrap_or_clone(join.right), right_keys, RIGHT_COPY)?;
    let number = |name: &str| Expr::Column(Column::new_unqualified(name));
    let mut on = join.on;
    on.push((number(LEFT_COPY), number(RIGHT_COPY)));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNull,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined))
        .project(outputs)?
        .build()
}

/// The plan with the number of each row among its equals as a last column.
fn numbered(plan: LogicalPlan, keys: Vec<Expr>, name: &str) -> DataFusionResult<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let mut outputs: Vec<Expr> = columns.collect();
    let (windowed, number) = row_numbers::numbered(plan, keys, Vec::new())?;
    outputs.push(number.alias(name));
    LogicalPlanBuilder::from(windowed).project(outputs)?.build()
}

//! Rows with their number, which is how rules count or cut rows of a group.

use datafusion::common::Result as DataFusionResult;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, SortExpr};

use crate::error::Error;

/// A plan with the number of each row among those of its `partition`, from 1 on in the order of
/// `order`, as a last column; and that column.
pub(super) fn numbered(
    plan: LogicalPlan,
    partition: Vec<Expr>,
    order: Vec<SortExpr>,
) -> DataFusionResult<(LogicalPlan, Expr)> {
    let number = row_number().partition_by(partition);
    let number = match order.is_empty() {
        true => number.build()?,
        false => number.order_by(order).build()?,
    };
    let windowed = LogicalPlanBuilder::from(plan)
        .window(vec![number])?
        .build()?;
    let column = windowed
        .schema()
        .columns()
        .pop()
        .ok_or_else(|| Error::internal("a window adds a column"))?;
    Ok((windowed, Expr::Column(column)))
}

//! Subqueries in ORDER BY and OVER: the engine takes them in select lists and conditions only, so
//! that they become columns below, which nobody sees.
//!
//! ```text
//! Sort by (subquery)             Projection shown
//!   Projection shown        →      Sort by column
//!     input                          Projection shown, (subquery) AS column
//!                                      input
//! ```
//! Those of a sort are computed where the select list is, since they refer to the rows that it is
//! of.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Sort, Window};
use datafusion::optimizer::AnalyzerRule;

use super::correlated::holds_subquery;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct OrderSubqueries;

impl AnalyzerRule for OrderSubqueries {
    fn name(&self) -> &str {
        "order_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Sort(sort) if sort.expr.iter().any(|by| holds_subquery(&by.expr)) => {
                Ok(Transformed::yes(sorted_by_columns(sort)?))
            }
            LogicalPlan::Window(window) if window.window_expr.iter().any(holds_subquery) => {
                Ok(Transformed::yes(over_columns(window)?))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
    }
}

fn sorted_by_columns(sort: Sort) -> DataFusionResult<LogicalPlan> {
    let Sort { expr, input, fetch } = sort;
    let shown = columns_of(&input);
    let (mut list, input) = match Arc::unwrap_or_clone(input) {
        LogicalPlan::Projection(projection) => (projection.expr, projection.input),
        other => (shown.clone(), Arc::new(other)),
    };
    let mut orders = Vec::with_capacity(expr.len());
    for mut by in expr {
        by.expr = without_subqueries(by.expr, &mut list)?;
        orders.push(by);
    }
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(list)?
        .sort_with_limit(orders, fetch)?
        .project(shown)?
        .build()
}

fn over_columns(window: Window) -> DataFusionResult<LogicalPlan> {
    let shown: Vec<Expr> = window
        .schema
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let mut list = columns_of(&window.input);
    let calls = window
        .window_expr
        .into_iter()
        .map(|call| {
            if !holds_subquery(&call) {
                return Ok(call);
            }
            // Whoever reads the column knows it by the name that it had.
            let name = call.schema_name().to_string();
            Ok(without_subqueries(call.unalias(), &mut list)?.alias(name))
        })
        .collect::<DataFusionResult<Vec<_>>>()?;
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(window.input))
        .project(list)?
        .build()?;
    let window = LogicalPlan::Window(Window::try_new(calls, Arc::new(input))?);
    LogicalPlanBuilder::from(window).project(shown)?.build()
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}

/// An expression over columns in the place of its subqueries, which go to the end of `list`.
fn without_subqueries(expression: Expr, list: &mut Vec<Expr>) -> DataFusionResult<Expr> {
    let is_subquery = |e: &Expr| {
        matches!(
            e,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        )
    };
    expression
        .transform_down(|part| {
            if !is_subquery(&part) {
                return Ok(Transformed::no(part));
            }
            let name = format!("\u{1}subquery {}", list.len());
            list.push(part.alias(&name));
            let column = Expr::Column(Column::from_name(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })
        .map(|t| t.data)
}

//! Intervals in order of their length, as in PostgreSQL: in ORDER BY, of a query, a window or an
//! aggregate. The engine takes them field by field, so that 25 hours come before a day.
//!
//! Runs before the engine settles the types of frames, which it refuses over intervals. Absent: DISTINCT ON, `min`, `max` and `greatest`.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, SortExpr};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::intervals;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct IntervalOrder;

impl AnalyzerRule for IntervalOrder {
    fn name(&self) -> &str {
        "interval_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite_plan)
            .map(|t| t.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let schema = Arc::clone(sort.input.schema());
            let changed = by_length(&mut sort.expr, &schema);
            Ok(Transformed::new_transformed(
                LogicalPlan::Sort(sort),
                changed,
            ))
        }
        LogicalPlan::Window(_) | LogicalPlan::Aggregate(_) => {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let ordered = expression.transform_up(|e| Ok(ordered_by_length(e, &schema)))?;
                Ok(ordered.update_data(|e| name.restore(e)))
            })
        }
        other => Ok(Transformed::no(other)),
    }
}

fn ordered_by_length(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expression {
        Expr::WindowFunction(function) => by_length(&mut function.params.order_by, schema),
        Expr::AggregateFunction(function) => by_length(&mut function.params.order_by, schema),
        _ => false,
    };
    Transformed::new_transformed(expression, changed)
}

/// Puts the lengths of intervals in their place.
fn by_length(order: &mut [SortExpr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for sort in order {
        if matches!(sort.expr.get_type(schema), Ok(DataType::Interval(_))) {
            let interval = std::mem::take(&mut sort.expr);
            let function = intervals::interval_length();
            sort.expr = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![interval]));
            changed = true;
        }
    }
    changed
}

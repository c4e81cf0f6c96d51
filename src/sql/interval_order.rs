//! Intervals by their length, as in PostgreSQL. The engine takes them field by field, so that 25 hours
//! come before a day, and a day and 24 hours are two groups.
//!
//! ```text
//! ORDER BY i, PARTITION BY i, DISTINCT ON (i)   →  by length(i)
//! GROUP BY i, SELECT DISTINCT i                 →  of each length the interval of the least key
//! min(i), max(i), greatest(i, j), least(i, j)   →  of their keys, which sort as lengths do
//! count(DISTINCT i), nullif(i, j)               →  of their lengths
//! INTERSECT, EXCEPT                             →  rows are equal by the lengths in them
//! ```
//! Comparisons are settled by [`crate::sql::planner`] and [`crate::sql::text_constants`]. Runs before
//! the engine settles the types of frames, which it refuses over intervals. Which interval stands for
//! all of one length is PostgreSQL's first; here it hangs on the group alone, not on its order.
//! Absent: `sum(DISTINCT i)` and `array_agg(DISTINCT i)`.

mod groups;
mod windows;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Join, LogicalPlan, ScalarUDF, SortExpr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::intervals;
use crate::sql::set_operations::is_set_operation;

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
    let plan = chosen(plan)?;
    let is_changed = plan.transformed;
    let rewritten = match plan.data {
        LogicalPlan::Sort(mut sort) => {
            let schema = Arc::clone(sort.input.schema());
            let changed = by_length(&mut sort.expr, &schema);
            Transformed::new_transformed(LogicalPlan::Sort(sort), changed)
        }
        LogicalPlan::Distinct(Distinct::On(mut distinct)) => {
            let schema = Arc::clone(distinct.input.schema());
            let mut changed = false;
            for on in &mut distinct.on_expr {
                changed |= into_length(on, &schema);
            }
            if let Some(order) = &mut distinct.sort_expr {
                changed |= by_length(order, &schema);
            }
            Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(distinct)), changed)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => groups::distinct(input)?,
        LogicalPlan::Join(join) if is_set_operation(&join) => equal_by_length(join)?,
        LogicalPlan::Aggregate(aggregate) => ordered(LogicalPlan::Aggregate(aggregate))?
            .transform_data(|plan| match plan {
                LogicalPlan::Aggregate(aggregate) => groups::aggregate(aggregate),
                other => Ok(Transformed::no(other)),
            })?,
        LogicalPlan::Window(window) => {
            ordered(LogicalPlan::Window(window))?.transform_data(|plan| match plan {
                LogicalPlan::Window(window) => windows::window(window),
                other => Ok(Transformed::no(other)),
            })?
        }
        other => Transformed::no(other),
    };
    let transformed = is_changed || rewritten.transformed;
    Ok(Transformed::new_transformed(rewritten.data, transformed))
}

/// Rows of set operations are equal where their intervals have one length.
fn equal_by_length(mut join: Join) -> DataFusionResult<Transformed<LogicalPlan>> {
    let mut changed = false;
    for (left, right) in &mut join.on {
        if into_length(left, join.left.schema()) {
            changed |= into_length(right, join.right.schema());
        }
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        changed,
    ))
}

/// ORDER BY within the functions of a node.
fn ordered(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let ordered = expression.transform_up(|e| Ok(ordered_by_length(e, &schema)))?;
        Ok(ordered.update_data(|e| name.restore(e)))
    })
}

/// Functions that choose one of several intervals.
fn chosen(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let chosen = expression.transform_up(|e| choice(e, &schema))?;
        Ok(chosen.update_data(|e| name.restore(e)))
    })
}

fn choice(expression: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let Expr::ScalarFunction(function) = &expression else {
        return Ok(Transformed::no(expression));
    };
    let name = function.func.name();
    let is_choice = matches!(name, "greatest" | "least" | "nullif");
    if !is_choice || !is_interval(&expression, schema) {
        return Ok(Transformed::no(expression));
    }
    let Expr::ScalarFunction(mut function) = expression else {
        return Ok(Transformed::no(expression));
    };
    Ok(Transformed::yes(match function.args.as_slice() {
        [left, right] if function.func.name() == "nullif" => {
            let equal = length_of(left.clone()).eq(length_of(right.clone()));
            when(equal, lit(ScalarValue::IntervalMonthDayNano(None))).otherwise(left.clone())?
        }
        _ => {
            function.func = intervals::choice(function.func.name() == "greatest");
            Expr::ScalarFunction(function)
        }
    }))
}

fn ordered_by_length(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expression {
        Expr::WindowFunction(function) => {
            let mut changed = by_length(&mut function.params.order_by, schema);
            for part in &mut function.params.partition_by {
                changed |= into_length(part, schema);
            }
            changed
        }
        Expr::AggregateFunction(function) => by_length(&mut function.params.order_by, schema),
        _ => false,
    };
    Transformed::new_transformed(expression, changed)
}

/// Puts the lengths of intervals in their place.
fn by_length(order: &mut [SortExpr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for sort in order {
        changed |= into_length(&mut sort.expr, schema);
    }
    changed
}

fn into_length(expression: &mut Expr, schema: &DFSchema) -> bool {
    let is_interval = is_interval(expression, schema);
    if is_interval {
        *expression = length_of(std::mem::take(expression));
    }
    is_interval
}

fn is_interval(expression: &Expr, schema: &DFSchema) -> bool {
    matches!(expression.get_type(schema), Ok(DataType::Interval(_)))
}

fn length_of(interval: Expr) -> Expr {
    call(intervals::interval_length(), interval)
}

fn key_of(interval: Expr) -> Expr {
    call(intervals::interval_key(), interval)
}

fn of_key(key: Expr) -> Expr {
    call(intervals::interval_of_key(), key)
}

fn call(function: Arc<ScalarUDF>, argument: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![argument]))
}

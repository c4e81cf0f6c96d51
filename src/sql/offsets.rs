//! `ORDER BY … OFFSET n` without LIMIT, within another query.
//!
//! The engine sees that nobody above needs the order, takes the sort away, and skips whatever rows
//! come first. Rows are numbered instead, and the order is made again for whoever sees it:
//!
//! ```text
//! Limit skip n (Sort by o (input))  →  Sort by o (Filter number > n (Window number by o (input)))
//! ```
//! Absent from plans of views, whose top-N operator knows of the order.

use std::sync::Arc;

use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Projection, SkipType, Sort, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::row_numbers;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct SortedOffsets;

impl AnalyzerRule for SortedOffsets {
    fn name(&self) -> &str {
        "sorted_offsets"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Limit(limit) if limit.fetch.is_none() && is_over_sort(&limit.input) => {
                match limit.get_skip_type() {
                    Ok(SkipType::Literal(skip)) => Ok(Transformed::yes(without_first(
                        Arc::unwrap_or_clone(limit.input),
                        skip as u64,
                    )?)),
                    // What is wrong with an offset is told where it is carried out.
                    _ => Ok(Transformed::no(LogicalPlan::Limit(limit))),
                }
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
    }
}

fn is_over_sort(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_over_sort(&projection.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        _ => false,
    }
}

fn without_first(plan: LogicalPlan, skip: u64) -> DataFusionResult<LogicalPlan> {
    let Sort { expr, input, .. } = match plan {
        LogicalPlan::Sort(sort) => sort,
        LogicalPlan::Projection(projection) => {
            let input = without_first(Arc::unwrap_or_clone(projection.input), skip)?;
            let projection = Projection::try_new(projection.expr, Arc::new(input))?;
            return Ok(LogicalPlan::Projection(projection));
        }
        other => {
            return LogicalPlanBuilder::from(other)
                .limit(skip as usize, None)?
                .build();
        }
    };
    let outputs = input.schema().columns().into_iter().map(Expr::Column);
    let outputs: Vec<Expr> = outputs.collect();
    let (windowed, number) =
        row_numbers::numbered(Arc::unwrap_or_clone(input), Vec::new(), expr.clone())?;
    LogicalPlanBuilder::from(windowed)
        .filter(number.gt(lit(skip)))?
        .project(outputs)?
        .sort(expr)?
        .build()
}

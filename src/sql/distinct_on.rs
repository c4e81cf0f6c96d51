//! `DISTINCT ON`: the first row of each group, all of it.
//!
//! The engine takes the first value of every column by itself, so that rows which tie in the ORDER
//! BY would be mixed into one that is not there. This rule numbers the rows instead:
//!
//! ```text
//! SELECT DISTINCT ON (k) c … ORDER BY k, o
//!   →  SELECT c … FROM (…, row_number() OVER (PARTITION BY k ORDER BY k, o) = 1) ORDER BY k, o
//! ```

use std::sync::Arc;

use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr_rewriter::normalize_cols;
use datafusion::logical_expr::{Distinct, DistinctOn, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::AnalyzerRule;

use super::row_numbers;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct FirstOfDistinct;

impl AnalyzerRule for FirstOfDistinct {
    fn name(&self) -> &str {
        "first_of_distinct"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Distinct(Distinct::On(distinct)) => {
                Ok(Transformed::yes(first_rows(distinct)?))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
    }
}

fn first_rows(distinct: DistinctOn) -> DataFusionResult<LogicalPlan> {
    let DistinctOn {
        on_expr,
        select_expr,
        sort_expr,
        input,
        schema,
    } = distinct;
    let on = normalize_cols(on_expr, input.as_ref())?;
    let select = normalize_cols(select_expr, input.as_ref())?;
    let order = sort_expr.clone().unwrap_or_default();
    let (windowed, number) = row_numbers::numbered(Arc::unwrap_or_clone(input), on, order)?;
    let first = number.eq(lit(1_u64));
    let mut plan = LogicalPlanBuilder::from(windowed).filter(first)?;
    if let Some(order) = sort_expr {
        plan = plan.sort(order)?;
    }
    let outputs = select
        .into_iter()
        .zip(schema.iter())
        .map(|(expression, (qualifier, field))| {
            expression
                .unalias()
                .alias_qualified(qualifier.cloned(), field.name())
        });
    plan.project(outputs)?.build()
}

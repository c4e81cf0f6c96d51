//! The engine's filter push-down, held back where it would change an answer.
//!
//! A filter over an aggregation without groups keeps or drops the one row that there always is.
//! The engine moves conditions without columns (`3 = (SELECT …)`, `random() > 2`) below the
//! aggregation, where they drop its input and leave the row. Grouping sets have such a row too.

use std::sync::Arc;

use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The engine's rules, with the push-down of this module.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    for rule in &mut rules {
        if rule.name() == PushDownFilter::new().name() {
            *rule = Arc::new(CarefulPushDown {
                inner: PushDownFilter::new(),
            });
        }
    }
    rules
}

#[derive(Debug)]
struct CarefulPushDown {
    inner: PushDownFilter,
}

impl OptimizerRule for CarefulPushDown {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> DataFusionResult<Transformed<LogicalPlan>> {
        if filters_the_only_row(&plan) {
            return Ok(Transformed::no(plan));
        }
        self.inner.rewrite(plan, config)
    }
}

/// Filters, one or several, over an aggregation that gives a row for no input too.
fn filters_the_only_row(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else {
        return false;
    };
    match filter.input.as_ref() {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty()
                || matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
        }
        below => filters_the_only_row(below),
    }
}

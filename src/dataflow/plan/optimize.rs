//! Optimization before translation: DataFusion's rules, without those that break incremental
//! meaning or cost state.

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;

use super::check::no_volatile_functions;
use super::prepare::prepare;
use crate::error::Result;

/// Rules that are not applied:
/// `push_down_limit` moves LIMIT below joins, unions and into scans, where which rows it keeps
/// depends on arrival; `single_distinct_to_groupby` turns one aggregation with one state into two.
const SKIPPED_RULES: [&str; 2] = ["push_down_limit", "single_distinct_to_groupby"];

/// Analyzer rules that are not applied: set operations have an operator that counts by itself, and
/// the operator of the first rows knows of OFFSET.
const SKIPPED_ANALYSIS: [&str; 2] = ["counted_set_operations", "sorted_offsets"];

/// The analyzed and optimized plan; 0A000 for what no view can hold.
pub fn optimize(plan: &LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let mut analyzer = state.analyzer().clone();
    analyzer
        .rules
        .retain(|rule| !SKIPPED_ANALYSIS.contains(&rule.name()));
    let analyzed = analyzer.execute_and_check(plan.clone(), state.config_options(), |_, _| {})?;
    let prepared = prepare(analyzed)?;
    no_volatile_functions(&prepared)?;
    let rules = state
        .optimizers()
        .iter()
        .filter(|rule| !SKIPPED_RULES.contains(&rule.name()))
        .cloned()
        .collect();
    Ok(Optimizer::with_rules(rules).optimize(prepared, state, |_, _| {})?)
}

/// The state under which recomputed plans are made: one partition, since parallelism belongs to
/// the pipelines, and no dynamic filters, which a plan that runs again would keep.
pub fn recompute_state(state: &SessionState) -> Arc<SessionState> {
    // A state that is built with default catalogs puts fresh ones in the shared list of catalogs.
    let mut config = state
        .config()
        .clone()
        .with_target_partitions(1)
        .with_create_default_catalog_and_schema(false);
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.enable_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    Arc::new(
        SessionStateBuilder::new_from_existing(state.clone())
            .with_config(config)
            .build(),
    )
}

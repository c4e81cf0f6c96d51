//! The one place that makes DataFusion ready for a session or for planning a view.
//!
//! ```text
//! analyzer:  grouping sets over columns → text constants → types kept
//!            → intervals by length → numerics beside floats → … type coercion
//!            → subqueries out of ORDER BY and OVER → offsets without a limit
//!            → subqueries as values → as-of joins
//!            → first of DISTINCT ON → counted set operations → local times
//!            → checked arithmetic
//!            → correlated subqueries
//! optimizer: DataFusion's, with a push-down of filters that keeps answers
//! ```
//! Decisions: text is Utf8 (no views), timestamps have microseconds and a UTC zone exists,
//! `information_schema` is our own, NULLs sort last as in PostgreSQL.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::CatalogProviderList;
use datafusion::common::config::Dialect;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionContext;

use crate::error::Result;
use crate::sql::asof::{self, AsofJoin};
use crate::sql::correlated::CorrelatedSubqueries;
use crate::sql::data_types::SqlTypePlanner;
use crate::sql::distinct_on::FirstOfDistinct;
use crate::sql::empty_subqueries::EmptySubqueries;
use crate::sql::functions;
use crate::sql::functions::arithmetic::CheckedArithmeticRule;
use crate::sql::grouping_sets::GroupingColumns;
use crate::sql::guards::GuardConditions;
use crate::sql::interval_order::IntervalOrder;
use crate::sql::kept_types::KeptTypes;
use crate::sql::local_times::LocalTimes;
use crate::sql::numeric_floats::NumericsBesideFloats;
use crate::sql::offsets::SortedOffsets;
use crate::sql::order_subqueries::OrderSubqueries;
use crate::sql::planner::OperatorPlanner;
use crate::sql::push_down;
use crate::sql::series;
use crate::sql::sessions;
use crate::sql::set_operations::CountedSetOperations;
use crate::sql::sorted_windows::SortedWindows;
use crate::sql::subqueries::SubqueryValues;
use crate::sql::temporal_join;
use crate::sql::text_constants::TextConstants;

/// Catalog (database) that every name is in.
pub const CATALOG: &str = "tidemill";

/// Schema that every object is in.
pub const SCHEMA: &str = "public";

/// Where a session looks for names without a schema; no schema that a statement can name.
pub const SEARCH_PATH: &str = "search path";

/// Each sort sets memory aside for its merge before it begins, ten megabytes if nobody says less:
/// under a small limit a few rows could not be sorted.
const SORTS_AT_ONCE: usize = 32;

/// What differs between the contexts of one database.
#[derive(Default)]
pub struct ContextOptions {
    /// Memory pool and object stores; one for all of a database. `None`: DataFusion's default.
    pub runtime: Option<Arc<RuntimeEnv>>,
    /// Catalogs; `None`: an empty catalog [`CATALOG`] with schema [`SCHEMA`] in memory.
    pub catalogs: Option<Arc<dyn CatalogProviderList>>,
    /// Functions beside ours: those that read the catalog or the session.
    pub functions: Vec<Arc<ScalarUDF>>,
    /// Aggregates beside ours.
    pub aggregates: Vec<Arc<AggregateUDF>>,
    /// Threads of a query; `None`: one per core.
    pub target_partitions: Option<usize>,
}

/// Settings that hold in every context.
pub fn session_config(target_partitions: Option<usize>) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false);
    if let Some(partitions) = target_partitions {
        config = config.with_target_partitions(partitions.max(1));
    }
    let options = config.options_mut();
    options.execution.time_zone = Some("UTC".to_owned());
    // A look-up by key gives a row or none, and is not worth a second thread.
    options
        .execution
        .use_row_number_estimates_to_optimize_partitioning = true;
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = false;
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.sql_parser.default_null_ordering = "nulls_max".to_owned();
    // Whether a column may be NULL is told more exactly in one of the two plans than in the other.
    options.execution.skip_physical_aggregate_schema_check = true;
    // An aggregate such as ARRAY(SELECT … ORDER BY …) sees the order of its subquery.
    options.sql_parser.enable_subquery_sort_elimination = false;
    config
}

/// The engine's rules but the one that pushes filters down a second time, in the physical plan: it
/// follows columns by name through a projection, and takes one of two columns of one name for the
/// other (a join of two relations with a column `f`, sides swapped, under a filter on both). The
/// filters have been pushed down in the logical plan, where columns are told apart. Ours come last.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.retain(|rule| !rule.name().starts_with("FilterPushdown"));
    rules.push(Arc::new(GuardConditions));
    // Of the plan as it will run.
    rules.push(Arc::new(SortedWindows));
    rules
}

fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(GroupingColumns),
        Arc::new(TextConstants),
        Arc::new(KeptTypes),
        Arc::new(IntervalOrder),
        Arc::new(NumericsBesideFloats),
    ];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(OrderSubqueries));
    rules.push(Arc::new(SortedOffsets));
    rules.push(Arc::new(EmptySubqueries));
    rules.push(Arc::new(SubqueryValues));
    rules.push(Arc::new(AsofJoin));
    rules.push(Arc::new(FirstOfDistinct));
    rules.push(Arc::new(CountedSetOperations));
    rules.push(Arc::new(LocalTimes));
    rules.push(Arc::new(CheckedArithmeticRule::default()));
    rules.push(Arc::new(CorrelatedSubqueries));
    rules
}

/// What all contexts have in common, and never changes: a session keeps references to it only.
struct Shared {
    planner: Arc<OperatorPlanner>,
    functions: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    planner: Arc::new(OperatorPlanner::new()),
    functions: functions::all(),
    aggregates: functions::aggregates(),
});

/// A context with our settings, types, functions and rules.
///
/// Each session has its own, so that no setting of one client reaches another. Plan with
/// `state().statement_to_plan` on trees from [`crate::sql::rewrite`]; do not hand it SQL text,
/// which would be parsed by other rules.
pub fn new_session_context(options: ContextOptions) -> Result<SessionContext> {
    let mut config = session_config(options.target_partitions);
    if options.catalogs.is_none() {
        config = config.with_create_default_catalog_and_schema(true);
    }
    if let Some(runtime) = &options.runtime
        && let MemoryLimit::Finite(bytes) = runtime.memory_pool.memory_limit()
    {
        let reserved = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *reserved = (*reserved).min(bytes / SORTS_AT_ONCE);
    }
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_type_planner(Arc::new(SqlTypePlanner))
        .with_physical_optimizer_rules(physical_rules())
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(push_down::optimizer_rules());
    if let Some(runtime) = options.runtime {
        builder = builder.with_runtime_env(runtime);
    }
    if let Some(catalogs) = options.catalogs {
        builder = builder.with_catalog_list(catalogs);
    }
    // The first that knows an operator plans it, and ours differs from the engine's.
    let planners = builder.expr_planners().get_or_insert_with(Vec::new);
    planners.insert(0, SHARED.planner.clone());
    let mut state = builder.build();
    datafusion_functions_json::register_all(&mut state)?;
    state.register_udf(Arc::new(asof::function()))?;
    state.register_udf(Arc::new(temporal_join::function()))?;
    for function in sessions::functions() {
        state.register_udwf(function)?;
    }
    for (name, function) in series::functions() {
        state.register_udtf(name, function);
    }
    let aggregates = SHARED.aggregates.iter().cloned();
    for aggregate in aggregates.chain(options.aggregates) {
        state.register_udaf(aggregate)?;
    }
    let functions = SHARED.functions.iter().cloned();
    for function in functions.chain(options.functions) {
        state.register_udf(function)?;
    }
    Ok(SessionContext::new_with_state(state))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_relations;

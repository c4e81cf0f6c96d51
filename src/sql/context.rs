//! The one place that makes DataFusion ready for a session or for planning a view.
//!
//! ```text
//! analyzer:  … type coercion → subqueries as values → as-of joins → first of DISTINCT ON → counted set operations
//!           → checked arithmetic
//! optimizer: DataFusion's
//! ```
//! Decisions: text is Utf8 (no views), timestamps have microseconds and a UTC zone exists,
//! `information_schema` is our own, NULLs sort last as in PostgreSQL. Number literals with a point
//! are double precision, not numeric as in PostgreSQL: the engine compares a double with a numeric
//! as numerics of 15 fractional digits, which overflows for large doubles; a literal with a cast
//! (`1.1::numeric(4,2)`) is exact.

use std::sync::Arc;

use datafusion::catalog::CatalogProviderList;
use datafusion::common::config::Dialect;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionContext;

use crate::error::Result;
use crate::sql::asof::{self, AsofJoin};
use crate::sql::data_types::SqlTypePlanner;
use crate::sql::distinct_on::FirstOfDistinct;
use crate::sql::functions;
use crate::sql::functions::arithmetic::CheckedArithmeticRule;
use crate::sql::guards::GuardConditions;
use crate::sql::planner::OperatorPlanner;
use crate::sql::sessions;
use crate::sql::set_operations::CountedSetOperations;
use crate::sql::subqueries::SubqueryValues;

/// Catalog (database) that every name is in.
pub const CATALOG: &str = "tidemill";

/// Schema that every object is in.
pub const SCHEMA: &str = "public";

/// What differs between the contexts of one database.
#[derive(Default)]
pub struct ContextOptions {
    /// Memory pool and object stores; one for all of a database. `None`: DataFusion's default.
    pub runtime: Option<Arc<RuntimeEnv>>,
    /// Catalogs; `None`: an empty catalog [`CATALOG`] with schema [`SCHEMA`] in memory.
    pub catalogs: Option<Arc<dyn CatalogProviderList>>,
    /// Functions beside ours: those that read the catalog or the session.
    pub functions: Vec<Arc<ScalarUDF>>,
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
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = false;
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.sql_parser.default_null_ordering = "nulls_max".to_owned();
    // An aggregate such as ARRAY(SELECT … ORDER BY …) sees the order of its subquery.
    options.sql_parser.enable_subquery_sort_elimination = false;
    config
}

/// The engine's rules but the one that pushes filters down a second time, in the physical plan: it
/// follows columns by name through a projection, and takes one of two columns of one name for the
/// other (a join of two relations with a column `f`, sides swapped, under a filter on both). The
/// filters have been pushed down in the logical plan, where columns are told apart. Ours comes last.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.retain(|rule| !rule.name().starts_with("FilterPushdown"));
    rules.push(Arc::new(GuardConditions));
    rules
}

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
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_type_planner(Arc::new(SqlTypePlanner))
        .with_physical_optimizer_rules(physical_rules())
        .with_analyzer_rule(Arc::new(SubqueryValues))
        .with_analyzer_rule(Arc::new(AsofJoin))
        .with_analyzer_rule(Arc::new(FirstOfDistinct))
        .with_analyzer_rule(Arc::new(CountedSetOperations))
        .with_analyzer_rule(Arc::new(CheckedArithmeticRule::default()));
    if let Some(runtime) = options.runtime {
        builder = builder.with_runtime_env(runtime);
    }
    if let Some(catalogs) = options.catalogs {
        builder = builder.with_catalog_list(catalogs);
    }
    let mut state = builder.build();
    datafusion_functions_json::register_all(&mut state)?;
    state.register_expr_planner(Arc::new(OperatorPlanner::new()))?;
    state.register_udaf(functions::sums::sum())?;
    state.register_udf(Arc::new(asof::function()))?;
    for function in sessions::functions() {
        state.register_udwf(function)?;
    }
    for function in functions::all().into_iter().chain(options.functions) {
        state.register_udf(function)?;
    }
    Ok(SessionContext::new_with_state(state))
}

#[cfg(test)]
mod tests;

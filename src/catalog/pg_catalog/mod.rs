//! `pg_catalog` and `information_schema`: what psql, drivers and BI tools ask about the database.
//!
//! ```text
//! ObjectModel (definitions) ─┐
//! Parameters, Backends ──────┼─ Catalog ─┬─ relations (tables made at each read)
//! specifications, types ─────┘           └─ functions (format_type, current_setting, …)
//! ```
//!
//! Everything is computed from one object model at the moment of the statement; OIDs are the
//! objects' own and survive a restart. A relation of PostgreSQL that has nothing to tell here
//! exists and is empty. Absent: any SQL text matching; the SQL module rewrites PostgreSQL's syntax,
//! these tables and functions answer it.

mod access;
pub mod advisory;
pub mod backends;

mod exact;
mod functions;
mod indexes;
mod information;
mod model;
pub mod notifications;
mod relation;
mod rows;
mod schemas;
mod specifications;
mod subquery;
mod system_rows;
mod time_zones;
mod types;
mod unreachable;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::catalog::system_tables;
use crate::error::{Error, Result};

pub use exact::with_exact_information;
pub use model::{ObjectModel, Parameter, Parameters, SessionFacts};
pub use unreachable::without_unreachable;

/// The one database.
pub const DATABASE_NAME: &str = "tidemill";
/// Its OID; tools take databases below 16384 for the system's own.
pub(crate) const DATABASE_OID: i64 = 16_384;
/// The one schema of a user's objects.
pub const PUBLIC_SCHEMA: &str = "public";
/// What `server_version` and `version()` say the server is compatible with.
pub const SERVER_VERSION: &str = concat!("15.0 (Tidemill ", env!("CARGO_PKG_VERSION"), ")");
/// What `version()` answers; clients look for `PostgreSQL` and a number.
pub const VERSION_TEXT: &str = concat!(
    "PostgreSQL 15.0 on ",
    "x86_64-unknown-linux-gnu, Tidemill ",
    env!("CARGO_PKG_VERSION")
);

/// Adds the schemas `pg_catalog` and `information_schema` to the context's default catalog, and
/// the functions to the context. Once per session: the facts are the session's own.
pub fn register(
    context: &SessionContext,
    model: Arc<dyn ObjectModel>,
    facts: SessionFacts,
) -> Result<()> {
    let catalog = Arc::new(model::Catalog::new(model, facts));
    let name = context
        .copied_config()
        .options()
        .catalog
        .default_catalog
        .clone();
    let provider = context
        .catalog(&name)
        .ok_or_else(|| Error::internal(format!("catalog \"{name}\" is not registered")))?;
    let system_tables = provider.schema(system_tables::SCHEMA);
    provider.register_schema("pg_catalog", schemas::pg_catalog(&catalog, system_tables))?;
    provider.register_schema("information_schema", schemas::information_schema(&catalog))?;
    for function in functions::all(&catalog) {
        context.register_udf(function);
    }
    context.add_analyzer_rule(Arc::new(subquery::CatalogSubqueries::new(
        context.state_weak_ref(),
    )));
    Ok(())
}

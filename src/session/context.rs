//! The DataFusion context of a session: its own settings, schemas and functions over the
//! database's shared memory pool.

use std::sync::Arc;

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
};
use datafusion::prelude::SessionContext;

use super::rows::SharedRows;
use super::relations::PublicSchema;
use super::scope::StatementScope;
use super::settings::Settings;
use crate::catalog::pg_catalog;
use crate::catalog::pg_catalog::backends::Backend;
use crate::database::DatabaseParts;
use crate::sql::context::{CATALOG, ContextOptions, SCHEMA, new_session_context};

/// A context over the relations of a database, without what only a client needs.
pub(super) fn bare_context(
    parts: &Arc<DatabaseParts>,
    scope: &Arc<StatementScope>,
    rows: &SharedRows,
) -> SessionContext {
    let public = Arc::new(PublicSchema::new(parts, scope.clone(), rows.clone()));
    let catalog = MemoryCatalogProvider::new();
    catalog
        .register_schema(SCHEMA, public.clone())
        .expect("a catalog in memory takes any schema");
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    let context = new_session_context(ContextOptions {
        runtime: Some(parts.runtime.clone()),
        catalogs: Some(Arc::new(catalogs)),
        ..ContextOptions::default()
    })
    .expect("the functions of a session have names of their own");
    public.attach(context.state_weak_ref());
    context
}

/// A client's context: with `pg_catalog`, `information_schema` and the session's functions.
pub(super) fn client_context(
    parts: &Arc<DatabaseParts>,
    scope: &Arc<StatementScope>,
    rows: &SharedRows,
    settings: &Settings,
    backend: &Arc<Backend>,
) -> SessionContext {
    let context = bare_context(parts, scope, rows);
    let definitions = scope.clone();
    pg_catalog::register(
        &context,
        pg_catalog::SessionModel {
            definitions: Arc::new(move || definitions.catalog()),
            settings: settings.clone(),
            backend: backend.clone(),
            backends: parts.backends.clone(),
        },
    )
    .expect("the functions of a session have names of their own");
    context
}

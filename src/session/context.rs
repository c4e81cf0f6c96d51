//! The DataFusion context of a session: its own settings, schemas and functions over the
//! database's shared memory pool.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
};
use datafusion::prelude::SessionContext;

use super::access::identity::Identity;
use super::relations::{Place, SessionSchema};
use super::rows::SharedRows;
use super::scope::StatementScope;
use super::settings::Settings;
use crate::catalog::access::{Access, Subject};
use crate::catalog::definition::CatalogObject;
use crate::catalog::function::FunctionDefinition;
use crate::catalog::pg_catalog::backends::Backend;
use crate::catalog::pg_catalog::notifications::Outbox;
use crate::catalog::pg_catalog::{self, ObjectModel, Parameter, Parameters, SessionFacts};
use crate::catalog::system_tables;
use crate::catalog::temporary::{TEMPORARY_SCHEMA, TEMPORARY_SCHEMA_SHOWN};
use crate::database::DatabaseParts;
use crate::error::Result;
use crate::sql::context::{CATALOG, ContextOptions, SCHEMA, SEARCH_PATH, new_session_context};

/// A context over the relations of a database, without what only a client needs.
pub(super) fn bare_context(
    parts: &Arc<DatabaseParts>,
    scope: &Arc<StatementScope>,
    rows: &SharedRows,
) -> SessionContext {
    let catalog = MemoryCatalogProvider::new();
    let schemas = [
        (SCHEMA, Place::Public),
        (TEMPORARY_SCHEMA, Place::Temporary),
        (TEMPORARY_SCHEMA_SHOWN, Place::Temporary),
        (system_tables::SCHEMA, Place::System),
        (SEARCH_PATH, Place::SearchPath),
    ];
    let schemas = schemas.map(|(name, place)| {
        let schema = SessionSchema::new(place, parts, scope.clone(), rows.clone());
        let schema = Arc::new(schema);
        catalog
            .register_schema(name, schema.clone())
            .expect("a catalog in memory takes any schema");
        schema
    });
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    let context = new_session_context(ContextOptions {
        runtime: Some(parts.runtime.clone()),
        catalogs: Some(Arc::new(catalogs)),
        functions: parts.host_functions.scalars.clone(),
        aggregates: parts.host_functions.aggregates.clone(),
        ..ContextOptions::default()
    })
    .expect("the functions of a session have names of their own");
    context
        .state_ref()
        .write()
        .config_mut()
        .set_extension(parts.query_threads.clone());
    context
        .state_ref()
        .write()
        .config_mut()
        .set_extension(scope.clone());
    context
        .state_ref()
        .write()
        .config_mut()
        .options_mut()
        .catalog
        .default_schema = SEARCH_PATH.to_owned();
    for schema in schemas {
        schema.attach(context.state_weak_ref());
    }
    context
}

/// A client's context: with `pg_catalog`, `information_schema` and the session's functions.
pub(super) fn client_context(
    parts: &Arc<DatabaseParts>,
    scope: &Arc<StatementScope>,
    rows: &SharedRows,
    settings: &Settings,
    backend: &Arc<Backend>,
    identity: &Arc<Identity>,
    outbox: &Outbox,
) -> SessionContext {
    let context = bare_context(parts, scope, rows);
    let facts = SessionFacts {
        user: identity.name().to_owned(),
        backend: backend.clone(),
        backends: parts.backends.clone(),
        outbox: outbox.clone(),
        parameters: Arc::new(SessionParameters {
            settings: settings.clone(),
            scope: scope.clone(),
            identity: identity.clone(),
        }),
        clock: parts.clock.clone(),
        started_at_us: parts.started_at_us,
    };
    let model = Arc::new(SessionModel {
        scope: scope.clone(),
        settings: settings.clone(),
        identity: identity.clone(),
    });
    pg_catalog::register(&context, model, facts)
        .expect("the functions of a session have names of their own");
    context
}

/// The definitions as the session's running statement sees them.
#[derive(Debug)]
struct SessionModel {
    scope: Arc<StatementScope>,
    settings: Settings,
    identity: Arc<Identity>,
}

/// The session's parameters, as functions of SQL read and set them.
#[derive(Debug)]
struct SessionParameters {
    settings: Settings,
    scope: Arc<StatementScope>,
    identity: Arc<Identity>,
}

impl ObjectModel for SessionModel {
    fn objects(&self) -> Vec<Arc<CatalogObject>> {
        self.scope.catalog().objects().cloned().collect()
    }

    fn version(&self) -> u64 {
        self.scope.catalog().version()
    }

    fn access(&self) -> Arc<Access> {
        self.scope.catalog().access().clone()
    }

    fn subject(&self) -> Arc<Subject> {
        self.scope.subject()
    }

    fn session_role(&self) -> u32 {
        let catalog = self.scope.catalog();
        self.identity.session_role(catalog.access(), &self.settings)
    }

    fn functions(&self) -> Vec<Arc<FunctionDefinition>> {
        self.scope.catalog().functions().cloned().collect()
    }

    fn system_tables(&self) -> Vec<(String, SchemaRef)> {
        system_tables::names()
            .filter_map(|name| Some((name.to_owned(), system_tables::schema_of(name)?)))
            .collect()
    }
}

impl Parameters for SessionParameters {
    fn get(&self, name: &str) -> Option<String> {
        self.settings.get(name)
    }

    fn set(&self, name: &str, value: Option<&str>, is_local: bool) -> Result<String> {
        let catalog = self.scope.catalog();
        self.identity
            .check_change(catalog.access(), &self.settings, name, value)?;
        self.settings.set(name, value, is_local)
    }

    fn all(&self) -> Vec<Parameter> {
        self.settings.all()
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        self.settings.duration(name)
    }
}

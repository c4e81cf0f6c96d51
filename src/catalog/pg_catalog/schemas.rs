//! The two schemas as the engine's planner sees them.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result as PlanResult;

use super::model::Catalog;
use super::relation::{CatalogRelation, Row, Specification};
use super::{information, rows};

/// A schema with a fixed set of relations. Each is made when a statement names it: a session names few
/// of them, and hundreds of sessions would keep them all.
struct FixedSchema {
    catalog: Arc<Catalog>,
    specifications: &'static [Specification],
    /// the relation that a name means
    meant: fn(&str) -> &str,
    rows: fn(&Catalog, &str) -> Vec<Row>,
    /// where other names are looked for
    others: Option<Arc<dyn SchemaProvider>>,
}

/// `pg_catalog`, in which the system tables are too.
pub(super) fn pg_catalog(
    catalog: &Arc<Catalog>,
    system_tables: Option<Arc<dyn SchemaProvider>>,
) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.system_relations,
        meant: |name| name,
        rows: rows::rows,
        others: system_tables,
    })
}

/// `information_schema`.
pub(super) fn information_schema(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.information_views,
        meant: information::view_of,
        rows: information::rows,
        others: None,
    })
}

impl FixedSchema {
    fn specification(&self, name: &str) -> Option<&Specification> {
        let meant = (self.meant)(name);
        self.specifications.iter().find(|s| s.name == meant)
    }

    fn relation(&self, name: &str, specification: &Specification) -> Arc<dyn TableProvider> {
        let (name, catalog, rows) = (name.to_owned(), self.catalog.clone(), self.rows);
        Arc::new(CatalogRelation::new(
            specification.clone(),
            Arc::new(move || {
                catalog.check_readable(&name)?;
                Ok(rows(&catalog, &name))
            }),
        ))
    }
}

impl std::fmt::Debug for FixedSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FixedSchema({} relations)", self.specifications.len())
    }
}

#[async_trait]
impl SchemaProvider for FixedSchema {
    fn table_names(&self) -> Vec<String> {
        let others = self.others.iter().flat_map(|others| others.table_names());
        let own = self.specifications.iter().map(|s| s.name.clone());
        own.chain(others).collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        match (self.specification(name), &self.others) {
            (Some(specification), _) => Ok(Some(self.relation(name, specification))),
            (None, Some(others)) => others.table(name).await,
            (None, None) => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        let others = self.others.as_ref();
        self.specification(name).is_some() || others.is_some_and(|s| s.table_exist(name))
    }
}

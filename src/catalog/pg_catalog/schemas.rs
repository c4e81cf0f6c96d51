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
}

/// `pg_catalog`.
pub(super) fn pg_catalog(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.system_relations,
        meant: |name| name,
        rows: rows::rows,
    })
}

/// `information_schema`.
pub(super) fn information_schema(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.information_views,
        meant: information::view_of,
        rows: information::rows,
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
        self.specifications.iter().map(|s| s.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        let found = self.specification(name);
        Ok(found.map(|specification| self.relation(name, specification)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.specification(name).is_some()
    }
}

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
    rows: fn(&Catalog, &str) -> Vec<Row>,
}

/// `pg_catalog`.
pub(super) fn pg_catalog(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.system_relations,
        rows: rows::rows,
    })
}

/// `information_schema`.
pub(super) fn information_schema(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    Arc::new(FixedSchema {
        catalog: catalog.clone(),
        specifications: catalog.information_views,
        rows: information::rows,
    })
}

impl FixedSchema {
    fn relation(&self, specification: &Specification) -> Arc<dyn TableProvider> {
        let (name, catalog, rows) = (specification.name.clone(), self.catalog.clone(), self.rows);
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
        let mut specifications = self.specifications.iter();
        let found = specifications.find(|s| s.name == name);
        Ok(found.map(|specification| self.relation(specification)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.specifications.iter().any(|s| s.name == name)
    }
}

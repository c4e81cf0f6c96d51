//! The two schemas as the engine's planner sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result as PlanResult;

use super::model::Catalog;
use super::relation::{CatalogRelation, Row};
use super::{information, rows};

/// A schema with a fixed set of relations.
#[derive(Debug)]
struct FixedSchema {
    relations: BTreeMap<String, Arc<dyn TableProvider>>,
}

/// `pg_catalog`.
pub(super) fn pg_catalog(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    fixed(catalog, &catalog.system_relations, rows::rows)
}

/// `information_schema`.
pub(super) fn information_schema(catalog: &Arc<Catalog>) -> Arc<dyn SchemaProvider> {
    fixed(catalog, &catalog.information_views, information::rows)
}

fn fixed(
    catalog: &Arc<Catalog>,
    specifications: &[super::relation::Specification],
    make: fn(&Catalog, &str) -> Vec<Row>,
) -> Arc<dyn SchemaProvider> {
    let mut relations: BTreeMap<String, Arc<dyn TableProvider>> = BTreeMap::new();
    for specification in specifications {
        let name = specification.name.clone();
        let catalog = catalog.clone();
        let relation = CatalogRelation::new(
            specification.clone(),
            Arc::new({
                let name = name.clone();
                move || {
                    catalog.check_readable(&name)?;
                    Ok(make(&catalog, &name))
                }
            }),
        );
        relations.insert(name, Arc::new(relation));
    }
    Arc::new(FixedSchema { relations })
}

#[async_trait]
impl SchemaProvider for FixedSchema {
    fn table_names(&self) -> Vec<String> {
        self.relations.keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        Ok(self.relations.get(name).cloned())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.relations.contains_key(name)
    }
}

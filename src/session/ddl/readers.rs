//! Who reads an altered relation, and whether they can go on as they are.
//!
//! A running view keeps its state only while its plan stays the same, so the plan is made with
//! the definitions before and after, and compared. Plain views count through what reads them; for
//! a dropped column they count by themselves.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, TableScan};

use super::super::{Session, binding, planning, versions};
use super::alter::columns_mut;
use super::listed;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition, PipelineDefinition};
use crate::catalog::shape::Evolved;
use crate::catalog::snapshot::{CatalogSnapshot, depends_on};
use crate::dataflow::plan::ViewPlan;
use crate::engine::parts::Definitions;
use crate::engine::sink_query;
use crate::error::{Error, Result, sqlstate};

/// Definitions as a transaction sees them, for planning only.
pub(super) struct Seen(pub Arc<CatalogSnapshot>);

#[async_trait]
impl Definitions for Seen {
    fn object(&self, name: &str) -> Option<CatalogObject> {
        self.0.by_kept_name(name).map(|o| self.0.as_kept(o))
    }

    fn objects(&self) -> Vec<CatalogObject> {
        let objects = self.0.in_dependency_order();
        objects.iter().map(|o| self.0.as_kept(o)).collect()
    }

    fn kept(&self, object: &CatalogObject) -> CatalogObject {
        self.0.as_kept(object)
    }

    fn shown_names(&self) -> BTreeMap<String, String> {
        self.0.shown_names()
    }

    fn hidden_pipelines(&self) -> BTreeMap<String, String> {
        self.0.hidden_pipelines()
    }

    fn pipeline(&self, name: &str) -> Option<PipelineDefinition> {
        self.0.pipeline(name).cloned()
    }

    fn secret(&self, _name: &str) -> Option<String> {
        None
    }

    async fn add_columns(&self, stream: &str, _: &[(ColumnDefinition, Evolved)]) -> Result<()> {
        Err(Error::internal(format!(
            "\"{stream}\" is to gain columns while it is planned for"
        )))
    }
}

impl Session {
    /// Everything that reads a relation directly or through views.
    fn readers(&self, object: &CatalogObject) -> Vec<Arc<CatalogObject>> {
        let snapshot = self.definitions();
        let mut open = vec![object.reference()];
        let mut seen = BTreeSet::new();
        let mut readers = Vec::new();
        while let Some(name) = open.pop() {
            for reader in snapshot.objects() {
                let reads = depends_on(&reader.definition).any(|read| *read == name);
                if reads && seen.insert(reader.oid) {
                    open.push(reader.reference());
                    readers.push(Arc::clone(reader));
                }
            }
        }
        readers.sort_by_key(|reader| reader.oid);
        readers
    }

    /// The plan of what runs and reads altered relations; `None` for what does not run by itself.
    pub(super) async fn running_plan(&self, reader: &CatalogObject) -> Result<Option<ViewPlan>> {
        let snapshot = self.definitions();
        let text = match &reader.definition {
            Definition::MaterializedView(view) => view.query.clone(),
            Definition::Sink(sink) => match snapshot.object(&sink.from).map(|o| &o.definition) {
                Some(Definition::MaterializedView(_)) => return Ok(None),
                _ => sink_query(&sink.from),
            },
            _ => return Ok(None),
        };
        let state = self.planning_state();
        let bound = binding::bind_text(&state, &text, &reader.kept_names()).await?;
        let seen: Arc<dyn Definitions> = Arc::new(Seen(snapshot));
        let planned = self
            .parts
            .engine()
            .planned(reader, &bound, Some(seen))
            .await?;
        Ok(Some(planned))
    }

    /// Fingerprints of the plans of all that runs over a relation, by name.
    pub(super) async fn plans_over(
        &self,
        object: &CatalogObject,
    ) -> Result<BTreeMap<String, String>> {
        let mut plans = BTreeMap::new();
        for reader in self.readers(object) {
            if let Some(plan) = self.running_plan(&reader).await? {
                plans.insert(reader.name.clone(), plan.fingerprint);
            }
        }
        Ok(plans)
    }

    /// After a change of `what` was staged: the plans are what they were before.
    pub(super) async fn require_same_plans(
        &self,
        object: &CatalogObject,
        before: &BTreeMap<String, String>,
        what: &str,
    ) -> Result<()> {
        let after = self.plans_over(object).await;
        let changed: Vec<&str> = match &after {
            Ok(after) => before
                .iter()
                .filter(|(name, plan)| after.get(*name) != Some(plan))
                .map(|(name, _)| name.as_str())
                .collect(),
            // What cannot be planned any more is not told apart.
            Err(_) => before.keys().map(String::as_str).collect(),
        };
        if changed.is_empty() {
            return Ok(());
        }
        let relation = &object.name;
        Err(Error::new(
            sqlstate::DEPENDENT_OBJECTS,
            format!("cannot alter \"{relation}\" because running views rely on {what}"),
        )
        .detail(format!(
            "These would have to start over: {}.",
            listed(changed)
        ))
        .hint("Drop them, then alter the relation and create them again."))
    }

    /// After a column that may be NULL now was staged: so may be what views make of it.
    pub(super) async fn spread_nullability(&mut self, object: &CatalogObject) -> Result<()> {
        let mut dependents = self.definitions().dependents_in_drop_order(&object.name);
        dependents.reverse();
        for reader in dependents {
            let query = match &reader.definition {
                Definition::MaterializedView(view) => &view.query,
                Definition::View(view) => &view.query,
                _ => continue,
            };
            let kept = reader.kept_names();
            let plan = binding::bind_text(&self.planning_state(), query, &kept).await?;
            let schema = planning::output_schema(&plan);
            let mut changed = CatalogObject::clone(&reader);
            let columns = columns_mut(&mut changed.definition);
            if columns.len() != schema.fields().len() {
                return Err(Error::internal("a view that does not keep its columns"));
            }
            for (column, field) in columns.iter_mut().zip(schema.fields()) {
                column.nullable |= field.is_nullable();
            }
            if changed != *reader {
                let change = CatalogChange::Replace {
                    name: reader.name.clone(),
                    object: Arc::new(changed),
                };
                self.stage(change, None)?;
            }
        }
        Ok(())
    }

    /// Views and sinks that use a column.
    pub(super) async fn readers_of_column(
        &self,
        object: &CatalogObject,
        column: usize,
    ) -> Result<Vec<Arc<CatalogObject>>> {
        let stored = object.stored_index(column);
        let mut found = Vec::new();
        for reader in self.readers(object) {
            let uses = match self.running_plan(&reader).await? {
                Some(plan) => plan
                    .inputs
                    .iter()
                    .any(|i| i.relation == object.kept_name() && i.projection.contains(&stored)),
                None => self.view_uses(&reader, object, stored).await?,
            };
            if uses {
                found.push(reader);
            }
        }
        Ok(found)
    }

    /// A plain view's query needs the column.
    async fn view_uses(
        &self,
        reader: &CatalogObject,
        object: &CatalogObject,
        stored: usize,
    ) -> Result<bool> {
        let Definition::View(view) = &reader.definition else {
            return Ok(false);
        };
        let state = self.planning_state();
        let plan = planning::plan_view_query(&state, &view.query, reader).await?;
        let plan = state.optimize(&planning::analyzed(&state, plan)?)?;
        let mut uses = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                uses |= scan_uses(scan, object, stored);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(uses)
    }
}

/// A scan of the relation, at whatever version, reads the column or filters by it.
fn scan_uses(scan: &TableScan, object: &CatalogObject, stored: usize) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return false;
    };
    let provider: &dyn Any = provider.as_ref();
    let Some(version) = versions::scanned_version(provider, object.oid) else {
        return false;
    };
    let shown = object.at_version(version);
    let names: BTreeSet<&str> = scan
        .filters
        .iter()
        .flat_map(|filter| filter.column_refs())
        .map(|column| column.name.as_str())
        .collect();
    let is_read = |at: usize| match &scan.projection {
        Some(projection) => projection.contains(&at),
        None => true,
    };
    shown.columns().iter().enumerate().any(|(at, column)| {
        shown.stored_index(at) == stored && (is_read(at) || names.contains(column.name.as_str()))
    })
}

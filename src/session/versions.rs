//! What a stored query means by the columns of relations that were altered since.
//!
//! A view keeps, per altered relation that it reads, the version of its columns at the view's
//! creation. While its text is planned, those names mean those versions; a plain view inside brings
//! its own. In the bound plan of a materialized view each such scan carries the version in its
//! name, so that the engine finds the columns, and the plan stays the same over later changes.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, SubqueryAlias, TableScanBuilder};

use super::dml::relation::TableRelation;
use super::relations::Relation;
use crate::catalog::definition::{CatalogObject, KeptNames};
use crate::catalog::function::FunctionDefinition;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::temporary::is_temporary;
use crate::engine::versioned_name;
use crate::error::Result;

/// What names mean while something is planned.
#[derive(Debug, Clone, Default)]
struct Meaning {
    /// names of relations, and what those are named now
    renamed: BTreeMap<String, String>,
    /// of altered relations; `None`: as they are now
    versions: Option<BTreeMap<String, usize>>,
    /// the functions in SQL that there are; `None`: the catalog's
    functions: Option<Vec<Arc<FunctionDefinition>>>,
    /// a plan for a pipeline, which reads views as relations even before they are there
    is_binding: bool,
}

tokio::task_local! {
    static MEANING: Meaning;
}

fn present_meaning() -> Meaning {
    MEANING.try_with(Meaning::clone).unwrap_or_default()
}

/// Runs planning in which the names of altered relations mean the kept versions, those of all
/// others what they were created with, and names of functions the kept ones.
pub(super) async fn meaning<T>(kept: &KeptNames, planning: impl Future<Output = T>) -> T {
    let meaning = Meaning {
        renamed: kept.renamed.clone(),
        versions: Some(kept.versions.clone()),
        functions: Some(kept.functions.clone()),
        ..present_meaning()
    };
    MEANING.scope(meaning, planning).await
}

/// Runs planning of a query that a pipeline will run.
pub(super) async fn binding<T>(planning: impl Future<Output = T>) -> T {
    let meaning = Meaning {
        is_binding: true,
        ..present_meaning()
    };
    MEANING.scope(meaning, planning).await
}

/// The functions in SQL that what is planned now may call; `None`: those of the catalog.
pub(super) fn functions() -> Option<Vec<Arc<FunctionDefinition>>> {
    present_meaning().functions
}

/// What is planned now is for a pipeline.
pub(super) fn is_binding() -> bool {
    present_meaning().is_binding
}

/// A relation as its name is meant now: in a stored query at that query's version, else as it is.
pub(super) fn meant(object: &Arc<CatalogObject>) -> Arc<CatalogObject> {
    let newest = object.version();
    let version = match present_meaning().versions {
        Some(versions) => versions.get(&object.name).copied().unwrap_or(0),
        None => newest,
    };
    match version == newest {
        true => Arc::clone(object),
        false => Arc::new(object.at_version(version)),
    }
}

/// The name that a relation has now which is written so.
pub(super) fn present_name(written: &str) -> String {
    let renamed = present_meaning().renamed;
    renamed.get(written).cloned().unwrap_or(written.to_owned())
}

/// The versions to keep with a query that is created now and reads these relations.
pub(super) fn present<'a>(
    catalog: &CatalogSnapshot,
    reads: impl IntoIterator<Item = &'a String>,
) -> BTreeMap<String, usize> {
    reads
        .into_iter()
        .filter_map(|name| {
            let version = catalog.object(name)?.version();
            (version > 0).then(|| (name.clone(), version))
        })
        .collect()
}

/// Puts what a pipeline knows a relation by into the name of each scan: the name that it is kept under and the
/// version of its columns.
pub(super) fn in_scan_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::TableScan(scan) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(shown) = shown_by(provider.as_ref()) else {
            return Ok(Transformed::no(plan));
        };
        let name = versioned_name(&shown.kept_name, shown.version);
        if name == scan.table_name.table() {
            return Ok(Transformed::no(plan));
        }
        let alias = scan.table_name.clone();
        let versioned = TableScanBuilder::new(TableReference::bare(name), scan.source.clone())
            .with_projection(scan.projection.clone())
            .with_fetch(scan.fetch)
            .build()?;
        let input = Arc::new(LogicalPlan::TableScan(versioned));
        let renamed = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, alias)?);
        Ok(Transformed::new(renamed, true, TreeNodeRecursion::Continue))
    })?;
    Ok(plan.data)
}

/// A plan reads temporary tables.
pub(super) fn reads_temporary(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            let provider = source_as_provider(&scan.source)?;
            let shown = shown_by(provider.as_ref());
            found |= shown.is_some_and(|shown| is_temporary(shown.oid));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// What is planned now is the query of a view, which knows nothing of who reads it.
pub(super) fn is_stored() -> bool {
    present_meaning().versions.is_some()
}

/// The version of the relation `oid` that a provider shows; `None` if it shows another one.
pub(super) fn scanned_version(provider: &dyn Any, oid: u32) -> Option<usize> {
    let shown = shown_by(provider)?;
    (shown.oid == oid).then_some(shown.version)
}

/// The relation that a provider shows.
pub(super) struct Shown {
    pub oid: u32,
    /// What pipelines know it by.
    pub kept_name: String,
    /// The version of its columns.
    pub version: usize,
}

fn shown_by(provider: &dyn Any) -> Option<Shown> {
    if let Some(relation) = provider.downcast_ref::<Relation>() {
        return Some(relation.shown());
    }
    let table = provider.downcast_ref::<TableRelation>();
    table.map(TableRelation::shown)
}

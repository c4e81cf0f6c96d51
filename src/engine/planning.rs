//! From a definition to a plan that runs: what the planner must know of each input.

use std::collections::HashMap;

use datafusion::logical_expr::LogicalPlan;
use parking_lot::RwLock;

use super::parts::EngineParts;
use super::settings::text;
use crate::catalog::definition::{
    CatalogObject, Definition, EmitMode, IndexColumn, IndexDefinition,
};
use crate::dataflow::plan::ViewPlan;
use crate::dataflow::plan::{InputProperties, ViewRequest, plan_view};
use crate::dataflow::row_errors::OnRowError;
use crate::dataflow::view_storage::KeyColumn;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// Properties of the planned views, which views over them build on.
#[derive(Default)]
pub(super) struct ViewRegistry {
    views: RwLock<HashMap<String, InputProperties>>,
}

impl ViewRegistry {
    /// Remembers a planned view.
    pub fn insert(&self, name: &str, plan: &ViewPlan) {
        let properties = InputProperties {
            schema: plan.schema.clone(),
            append_only: plan.append_only,
            watermark_column: None,
            primary_key: plan.key.clone(),
            event_time: plan.event_time.clone(),
        };
        self.views.write().insert(name.to_owned(), properties);
    }

    /// Forgets a dropped view.
    pub fn remove(&self, name: &str) {
        self.views.write().remove(name);
    }

    fn contains(&self, name: &str) -> bool {
        self.views.read().contains_key(name)
    }

    fn get(&self, name: &str) -> Option<InputProperties> {
        self.views.read().get(name).cloned()
    }
}

/// The name that a view's state tables derive from: stable over renames of others, and never the
/// name of a dropped view's leftovers.
pub(super) fn state_name(object: &CatalogObject) -> String {
    format!("{}#{}", object.name, object.oid)
}

/// Plans the views that are not known yet, for others that are planned over them: a pipeline plans
/// its own when it opens, which takes time after a start, and may fail. What cannot be planned stays
/// unknown, and its pipeline says why.
pub(super) async fn know_views(parts: &EngineParts, registry: &ViewRegistry) {
    let objects = parts.definitions.objects();
    let mut unknown: Vec<(&CatalogObject, &str)> = objects
        .iter()
        .filter_map(|object| match &object.definition {
            Definition::MaterializedView(view) => Some((object, view.query.as_str())),
            _ => None,
        })
        .filter(|(object, _)| !registry.contains(&object.name))
        .collect();
    // A view may read one that was created after it, since it may have been replaced.
    let mut left = usize::MAX;
    while !unknown.is_empty() && unknown.len() < left {
        left = unknown.len();
        let mut still_unknown = Vec::new();
        for (object, query) in unknown {
            let bound = parts.binder.bind(query, &object.kept_names()).await;
            match bound.and_then(|bound| plan_object(parts, registry, object, &bound)) {
                Ok(plan) => registry.insert(&object.name, &plan),
                Err(_) => still_unknown.push((object, query)),
            }
        }
        unknown = still_unknown;
    }
}

/// Plans a view's (or an unstored sink query's) bound plan.
pub(super) fn plan_object(
    parts: &EngineParts,
    registry: &ViewRegistry,
    object: &CatalogObject,
    plan: &LogicalPlan,
) -> Result<ViewPlan> {
    let emit = match &object.definition {
        Definition::MaterializedView(view) => view.emit,
        _ => EmitMode::OnUpdate,
    };
    let on_row_error = row_policy(object);
    let inputs = |name: &str| input_properties(parts, registry, name);
    let state = parts.binder.state();
    let mut planned = plan_view(&ViewRequest {
        name: &object.name,
        state_name: &state_name(object),
        stored: matches!(
            object.definition,
            Definition::MaterializedView(_) | Definition::Index(_)
        ),
        plan,
        state: &state,
        inputs: &inputs,
        emit,
        on_row_error,
    })?;
    planned.map_inputs(|name, columns| {
        let (relation, version) = version_of(name);
        if let Some(object) = parts.definitions.object(relation) {
            let object = object.at_version(version);
            for column in columns {
                *column = object.stored_index(*column);
            }
        }
        relation.to_owned()
    });
    if let Definition::Index(index) = &object.definition {
        let columns = index_columns(index, &planned)?;
        planned.order_by(columns);
    }
    Ok(planned)
}

/// The columns of an index, by their numbers in the view.
fn index_columns(index: &IndexDefinition, plan: &ViewPlan) -> Result<Vec<KeyColumn>> {
    let key = |column: &IndexColumn| {
        Ok(KeyColumn {
            column: plan.schema.index_of(&column.name)?,
            descending: column.descending,
            nulls_first: column.nulls_first,
        })
    };
    index.columns.iter().map(key).collect()
}

/// What stands between a relation's name and its version in a bound plan: no statement can hold it.
const VERSION_MARK: char = '\u{1}';

/// The name under which a bound plan scans a relation at a version of its columns.
pub(crate) fn versioned_name(name: &str, version: usize) -> String {
    match version {
        0 => name.to_owned(),
        version => format!("{name}{VERSION_MARK}{version}"),
    }
}

/// A relation's name and version from [`versioned_name`].
pub(super) fn version_of(name: &str) -> (&str, usize) {
    let parts = name.rsplit_once(VERSION_MARK);
    parts
        .and_then(|(relation, version)| Some((relation, version.parse().ok()?)))
        .unwrap_or((name, 0))
}

/// What a view's rows meet on which an expression fails.
pub fn row_policy(object: &CatalogObject) -> OnRowError {
    let Definition::MaterializedView(view) = &object.definition else {
        return OnRowError::default();
    };
    let name = text(&view.options, "on_row_error");
    name.and_then(OnRowError::from_name).unwrap_or_default()
}

fn input_properties(
    parts: &EngineParts,
    registry: &ViewRegistry,
    name: &str,
) -> Option<InputProperties> {
    let (name, version) = version_of(name);
    let object = parts.definitions.object(name)?.at_version(version);
    match &object.definition {
        Definition::Stream(stream) => {
            let schema = object.schema();
            let watermark_column = stream
                .watermark
                .as_ref()
                .and_then(|w| schema.index_of(&w.column).ok());
            Some(InputProperties {
                schema,
                append_only: true,
                watermark_column,
                primary_key: None,
                event_time: Vec::new(),
            })
        }
        Definition::Table(table) => {
            let schema = object.schema();
            let key: Option<Vec<usize>> = table
                .primary_key
                .iter()
                .map(|c| schema.index_of(c).ok())
                .collect();
            Some(InputProperties {
                schema,
                append_only: false,
                watermark_column: None,
                primary_key: key.filter(|k| !k.is_empty()),
                event_time: Vec::new(),
            })
        }
        Definition::MaterializedView(_) => registry.get(name),
        Definition::View(_) | Definition::Sink(_) | Definition::Index(_) => None,
    }
}

/// The query a sink over something that is no materialized view runs: everything in it.
pub(crate) fn sink_query(from: &str) -> String {
    format!(
        "SELECT * FROM {}",
        crate::sql::names::quote_identifier(from)
    )
}

/// An error for an object that the catalog does not have.
pub(super) fn unknown(name: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

pub(super) fn changed_query(view: &str) -> Error {
    let name = quote_identifier(view);
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the state of materialized view \"{view}\" was made by another query"),
    )
    .detail("The checkpoint's fingerprint of the view's operators differs from that of its definition.")
    .hint(format!(
        "CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (reset_state = true) AS … computes it anew from its sources."
    ))
}

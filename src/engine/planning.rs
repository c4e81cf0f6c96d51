//! From a definition to a plan that runs: what the planner must know of each input.

use std::collections::HashMap;

use datafusion::logical_expr::LogicalPlan;
use parking_lot::RwLock;

use super::parts::EngineParts;
use crate::catalog::definition::{CatalogObject, Definition, EmitMode, OptionValue};
use crate::dataflow::plan::ViewPlan;
use crate::dataflow::plan::{InputProperties, ViewRequest, plan_view};
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};

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

    fn get(&self, name: &str) -> Option<InputProperties> {
        self.views.read().get(name).cloned()
    }
}

/// The name that a view's state tables derive from: stable over renames of others, and never the
/// name of a dropped view's leftovers.
pub(super) fn state_name(object: &CatalogObject) -> String {
    format!("{}#{}", object.name, object.oid)
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
    plan_view(&ViewRequest {
        name: &object.name,
        state_name: &state_name(object),
        stored: matches!(object.definition, Definition::MaterializedView(_)),
        plan,
        state: &state,
        inputs: &inputs,
        emit,
        on_row_error,
    })
}

/// What a view's rows meet on which an expression fails.
pub fn row_policy(object: &CatalogObject) -> OnRowError {
    let Definition::MaterializedView(view) = &object.definition else {
        return OnRowError::default();
    };
    match view.options.get("on_row_error") {
        Some(OptionValue::Text(name)) => OnRowError::from_name(name).unwrap_or_default(),
        _ => OnRowError::default(),
    }
}

fn input_properties(
    parts: &EngineParts,
    registry: &ViewRegistry,
    name: &str,
) -> Option<InputProperties> {
    let object = parts.definitions.object(name)?;
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
        Definition::View(_) | Definition::Sink(_) => None,
    }
}

/// The query a sink over something that is no materialized view runs: everything in it.
pub(super) fn sink_query(from: &str) -> String {
    format!(
        "SELECT * FROM {}",
        crate::sql::names::quote_identifier(from)
    )
}

/// An error for an object that the catalog does not have.
pub(super) fn unknown(name: &str) -> Error {
    Error::new(
        crate::error::sqlstate::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

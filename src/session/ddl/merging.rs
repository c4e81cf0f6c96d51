//! The pipeline of a view, and views over views of several pipelines: these become one.
//!
//! All views of a pipeline show the same batch, so that a view over views of several pipelines can
//! only be right if they are one. The definitions change here; the engine brings the pipelines to
//! one place in their common sources before that is committed, and moves the state after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::Session;
use super::super::work::Action;
use super::listed;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition, MergedPipeline, OptionValue};
use crate::catalog::snapshot::{CatalogSnapshot, pipeline_of};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::CreateMaterializedView;

/// Where a view runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenPipeline {
    /// The pipeline's name.
    pub name: String,
    /// Pipelines that become part of it.
    pub merged: Vec<String>,
}

impl ChosenPipeline {
    fn alone(name: String) -> Self {
        Self {
            name,
            merged: Vec::new(),
        }
    }
}

/// The name of the own pipeline of a view or sink: its own, unless the pipeline of that name was made for one that
/// has another name now.
pub(super) fn own_name(snapshot: &CatalogSnapshot, view: &str) -> String {
    let is_anothers = |name: &str| {
        let made_for = snapshot.by_kept_name(view);
        snapshot.pipeline(name).is_some() && made_for.is_some_and(|object| object.name != view)
    };
    let numbered = (1..).map(|number| format!("{view}_{number}"));
    let mut names = std::iter::once(view.to_owned()).chain(numbered);
    let free = |name: &String| match name == view {
        true => !is_anothers(name),
        false => snapshot.pipeline(name).is_none(),
    };
    names.find(free).unwrap_or_else(|| view.to_owned())
}

impl Session {
    /// A view over views runs in their pipeline, else in the one it names, else in its own.
    pub(super) fn choose_pipeline(
        &self,
        create: &CreateMaterializedView,
        depends_on: &[String],
    ) -> Result<ChosenPipeline> {
        let wanted = pipeline_named(create)?;
        let inputs = pipelines_read(&self.definitions(), depends_on);
        let name = match wanted {
            Some(wanted) if inputs.is_empty() || inputs.contains(&wanted) => wanted,
            Some(wanted) => return Err(elsewhere(&create.name, &wanted, &inputs)),
            None if inputs.len() > 1 => self.parts.engine().furthest(&inputs),
            None => match inputs.first() {
                Some(input) => input.clone(),
                None => own_name(&self.definitions(), &create.name),
            },
        };
        let mut chosen = ChosenPipeline::alone(name);
        chosen.merged.extend(inputs);
        chosen.merged.retain(|input| *input != chosen.name);
        Ok(chosen)
    }

    /// The pipeline of a view that takes the place of one of `own`: that, or what it becomes one with.
    pub(super) fn pipeline_of_new(
        &self,
        own: &str,
        create: &CreateMaterializedView,
        depends_on: &[String],
    ) -> Result<ChosenPipeline> {
        let mut inputs = pipelines_read(&self.definitions(), depends_on);
        inputs.insert(own.to_owned());
        let name = match pipeline_named(create)? {
            Some(wanted) if inputs.contains(&wanted) => wanted,
            Some(_) => return Err(stays(&create.name, own)),
            None if inputs.len() > 1 => self.parts.engine().furthest(&inputs),
            None => own.to_owned(),
        };
        inputs.remove(&name);
        Ok(ChosenPipeline {
            name,
            merged: inputs.into_iter().collect(),
        })
    }

    /// Makes pipelines one, as a view over their views needs it.
    pub(super) fn merge_pipelines(&mut self, view: &str, chosen: &ChosenPipeline) -> Result<()> {
        if chosen.merged.is_empty() {
            return Ok(());
        }
        let snapshot = self.definitions();
        let stopped = chosen.merged.iter().chain([&chosen.name]);
        let mut stopped = stopped.filter(|name| snapshot.pipeline(name).is_some_and(|p| p.stopped));
        if let Some(name) = stopped.next() {
            return Err(not_running(view, name));
        }
        let names = listed(chosen.merged.iter().map(String::as_str));
        let (what, become_part) = match chosen.merged.len() {
            1 => ("pipeline", "becomes part"),
            _ => ("pipelines", "become part"),
        };
        self.notice(format!(
            "{what} {names} {become_part} of pipeline \"{}\", whose trigger and other options apply to all of its \
             views from now on",
            chosen.name
        ));
        for from in &chosen.merged {
            self.merge_pipeline(&snapshot, from, &chosen.name)?;
        }
        Ok(())
    }

    fn merge_pipeline(&mut self, snapshot: &CatalogSnapshot, from: &str, into: &str) -> Result<()> {
        let unknown =
            |name: &str| Error::internal(format!("pipeline \"{name}\" is not in the catalog"));
        let gone = snapshot.pipeline(from).ok_or_else(|| unknown(from))?;
        let staying = self.definitions();
        let mut staying = staying.pipeline(into).ok_or_else(|| unknown(into))?.clone();
        // What it took in itself and has not taken over yet comes along.
        staying.merges.extend(gone.merges.iter().cloned());
        staying.merges.push(MergedPipeline {
            name: from.to_owned(),
            id: gone.id,
            options: gone.options.clone(),
            views: snapshot
                .pipeline_members(from)
                .iter()
                .filter(|member| matches!(member.definition, Definition::MaterializedView(_)))
                .map(|member| member.kept_name().to_owned())
                .collect(),
        });
        for member in snapshot.running_in(from) {
            let mut moved = CatalogObject::clone(member);
            match &mut moved.definition {
                Definition::MaterializedView(view) => into.clone_into(&mut view.pipeline),
                Definition::Sink(sink) => into.clone_into(&mut sink.pipeline),
                Definition::Index(index) => into.clone_into(&mut index.pipeline),
                _ => continue,
            }
            let change = CatalogChange::Replace {
                name: member.name.clone(),
                object: Arc::new(moved),
            };
            self.stage(change, None)?;
        }
        self.stage(CatalogChange::PutPipeline(into.to_owned(), staying), None)?;
        self.stage(
            CatalogChange::DropPipeline(from.to_owned()),
            Some(Action::MergePipelines {
                into: into.to_owned(),
                from: from.to_owned(),
            }),
        )
    }
}

/// The pipeline that a statement names.
fn pipeline_named(create: &CreateMaterializedView) -> Result<Option<String>> {
    match create.options.get("pipeline") {
        Some(OptionValue::Text(name)) => Ok(Some(name.clone())),
        Some(OptionValue::Secret(_)) => Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "a pipeline's name cannot be a secret",
        )),
        None => Ok(None),
    }
}

fn stays(view: &str, pipeline: &str) -> Error {
    Error::unsupported(format!(
        "materialized view \"{view}\" cannot move to another pipeline"
    ))
    .detail(format!("It runs in \"{pipeline}\"."))
    .hint(format!(
        "Say DROP MATERIALIZED VIEW {}, then create it again.",
        quote_identifier(view)
    ))
}

fn elsewhere(view: &str, wanted: &str, inputs: &BTreeSet<String>) -> Error {
    let what = if inputs.len() == 1 {
        "pipeline"
    } else {
        "pipelines"
    };
    let names = listed(inputs.iter().map(String::as_str));
    Error::new(
        sqlstate::INVALID_OBJECT_DEFINITION,
        format!("materialized view \"{view}\" cannot run in pipeline \"{wanted}\""),
    )
    .detail(format!(
        "It reads views of {what} {names}, and runs in the same one."
    ))
    .hint("Leave out the option \"pipeline\".")
}

fn not_running(view: &str, pipeline: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("materialized view \"{view}\" needs pipelines to be merged, and \"{pipeline}\" is stopped"),
    )
    .detail("Pipelines are merged where both have taken in the same of their common sources.")
    .hint(format!("START PIPELINE {};", quote_identifier(pipeline)))
}

/// Pipelines of the materialized views that relations are or, through plain views, read.
fn pipelines_read(snapshot: &CatalogSnapshot, names: &[String]) -> BTreeSet<String> {
    let mut pipelines = BTreeSet::new();
    let mut open: Vec<&String> = names.iter().collect();
    while let Some(name) = open.pop() {
        match snapshot.object(name).map(|o| &o.definition) {
            Some(Definition::View(view)) => open.extend(&view.depends_on),
            Some(definition @ Definition::MaterializedView(_)) => {
                pipelines.extend(pipeline_of(definition).map(str::to_owned));
            }
            _ => {}
        }
    }
    pipelines
}

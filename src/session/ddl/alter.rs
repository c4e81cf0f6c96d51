//! `ALTER … SET/RESET`, `RENAME`, `COMMENT`.

use std::sync::Arc;

use super::super::rowset::done;
use super::super::work::Action;
use super::super::{Session, StatementResult};
use super::create::wants_rescued_column;
use super::listed;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition, Options, TIME_ZONE};
use crate::catalog::renaming::KeptName;
use crate::catalog::snapshot::{
    a_kind, kind_keyword, kind_name, options_of_mut, pipeline_of, undefined,
};
use crate::checkpoint::relocate;
use crate::connectors::evolution::rescued_column;
use crate::dataflow::row_errors::OnRowError;
use crate::engine::decide::may_change_row_policy;
use crate::engine::row_policy;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::options;
use crate::sql::statement::ObjectKind;

impl Session {
    pub(in crate::session) async fn alter_options(
        &mut self,
        kind: ObjectKind,
        name: &str,
        set: &Options,
        reset: &[String],
    ) -> Result<StatementResult> {
        self.check_secrets(set)?;
        match kind {
            ObjectKind::Pipeline => self.alter_pipeline(name, set, reset).await?,
            ObjectKind::MaterializedView => self.alter_view_options(name, set, reset).await?,
            ObjectKind::Stream | ObjectKind::Table | ObjectKind::Sink => {
                self.alter_own_options(kind, name, set, reset)?;
            }
            ObjectKind::View | ObjectKind::Secret | ObjectKind::Index => {
                return Err(Error::unsupported(format!(
                    "{} has no options",
                    a_kind(kind)
                )));
            }
        }
        Ok(done(format!("ALTER {}", kind_keyword(kind))))
    }

    async fn alter_pipeline(&mut self, name: &str, set: &Options, reset: &[String]) -> Result<()> {
        let snapshot = self.definitions();
        let mut definition = snapshot
            .pipeline(name)
            .ok_or_else(|| undefined(ObjectKind::Pipeline, name))?
            .clone();
        let engine = self.parts.engine();
        let from = engine.checkpoint_location(name, &definition.options)?;
        change(&mut definition.options, set, reset);
        let to = engine.checkpoint_location(name, &definition.options)?;
        if from != to {
            relocate::check_target(&to, definition.id).await?;
            definition.previous_location = Some(from);
        }
        let action = Action::AlterOptions(
            ObjectKind::Pipeline,
            KeptName::of_pipeline(name),
            definition.options.clone(),
        );
        self.stage(
            CatalogChange::PutPipeline(name.to_owned(), definition),
            Some(action),
        )
    }

    /// A view's options that concern the trigger loop are its pipeline's.
    async fn alter_view_options(
        &mut self,
        name: &str,
        set: &Options,
        reset: &[String],
    ) -> Result<()> {
        let snapshot = self.definitions();
        let object = snapshot.require(ObjectKind::MaterializedView, name)?;
        if set.contains_key("pipeline") || reset.iter().any(|r| r == "pipeline") {
            return Err(Error::unsupported(format!(
                "cannot move materialized view \"{name}\" to another pipeline"
            ))
            .hint("Drop it, then create it WITH (pipeline = '…')."));
        }
        if set.contains_key(TIME_ZONE) || reset.iter().any(|r| r == TIME_ZONE) {
            return Err(Error::unsupported(format!(
                "cannot change the time zone of materialized view \"{name}\""
            ))
            .detail("Its rows were computed by the clocks of its time zone.")
            .hint(format!(
                "Say CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (timezone = '…') AS …."
            )));
        }
        let for_pipeline = super::pipeline_part(set);
        let own: Options = set
            .iter()
            .filter(|(k, _)| !for_pipeline.contains_key(*k))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let (reset_pipeline, reset_own): (Vec<String>, Vec<String>) = reset
            .iter()
            .cloned()
            .partition(|name| super::is_pipeline_option(name));
        let pipeline = pipeline_of(&object.definition)
            .ok_or_else(|| Error::internal("a view without a pipeline"))?
            .to_owned();
        if !for_pipeline.is_empty() || !reset_pipeline.is_empty() {
            let others: Vec<_> = snapshot
                .pipeline_members(&pipeline)
                .into_iter()
                .filter(|o| o.name != name)
                .map(|o| o.name.as_str())
                .collect();
            if !others.is_empty() {
                self.notice(format!(
                    "the options are those of pipeline \"{pipeline}\", and apply to {} too",
                    listed(others)
                ));
            }
            self.alter_pipeline(&pipeline, &for_pipeline, &reset_pipeline)
                .await?;
        }
        if !own.is_empty() || !reset_own.is_empty() {
            self.alter_own_options(ObjectKind::MaterializedView, name, &own, &reset_own)?;
        }
        Ok(())
    }

    fn alter_own_options(
        &mut self,
        kind: ObjectKind,
        name: &str,
        set: &Options,
        reset: &[String],
    ) -> Result<()> {
        let snapshot = self.definitions();
        let object = snapshot.require(kind, name)?;
        let mut changed = CatalogObject::clone(object);
        let options = options_of_mut(&mut changed.definition)
            .ok_or_else(|| Error::internal("an object without options"))?;
        change(options, set, reset);
        let whole = options.clone();
        if kind == ObjectKind::MaterializedView {
            let old = row_policy(object);
            let new = row_policy(&changed);
            if !may_change_row_policy(old, new) {
                return Err(row_policy_is_fixed(name, old, new));
            }
            follow_row_policy(&mut changed);
        }
        match &changed.definition {
            Definition::Stream(stream) => {
                let target = options::Targets::stream(stream.connector.as_deref())?;
                options::validate(target, whole.clone())?;
                if wants_rescued_column(stream) {
                    changed.add_column(rescued_column(), None)?;
                }
            }
            Definition::Sink(sink) => {
                let target = options::Targets::sink(&sink.connector)?;
                options::validate(target, whole.clone())?;
            }
            _ => {}
        }
        let action = match kind {
            ObjectKind::Table => None,
            _ => Some(Action::AlterOptions(kind, KeptName::of(object), whole)),
        };
        self.replace(object, changed, action)
    }

    fn replace(
        &mut self,
        old: &CatalogObject,
        new: CatalogObject,
        action: Option<Action>,
    ) -> Result<()> {
        let change = CatalogChange::Replace {
            name: old.name.clone(),
            object: Arc::new(new),
        };
        self.stage(change, action)
    }

    /// `ALTER … RENAME TO`. Whatever runs knows the relation by the name that it was created under, and what reads it
    /// follows ([`crate::catalog::renaming`]), so that nothing starts over.
    pub(in crate::session) fn rename(
        &mut self,
        kind: ObjectKind,
        name: &str,
        new_name: &str,
        if_exists: bool,
    ) -> Result<StatementResult> {
        let tag = done(format!("ALTER {}", kind_keyword(kind)));
        if matches!(kind, ObjectKind::Pipeline | ObjectKind::Secret) {
            return Err(Error::unsupported(format!(
                "a {} cannot be renamed",
                kind_name(kind)
            )));
        }
        let snapshot = self.definitions();
        let object = match (kind, snapshot.object(name)) {
            (_, None) if if_exists => {
                self.notice(format!("relation \"{name}\" does not exist, skipping"));
                return Ok(tag);
            }
            (_, None) => {
                return Err(Error::new(
                    sqlstate::UNDEFINED_TABLE,
                    format!("relation \"{name}\" does not exist"),
                ));
            }
            // As in PostgreSQL, whatever is a relation can be renamed as if it were a table.
            (ObjectKind::Table, Some(object))
                if !matches!(object.definition, Definition::Sink(_)) =>
            {
                object.clone()
            }
            _ => snapshot.require(kind, name)?.clone(),
        };
        self.rename_object(&object, new_name)?;
        Ok(tag)
    }

    pub(in crate::session) fn comment(
        &mut self,
        kind: ObjectKind,
        name: &str,
        column: Option<&str>,
        comment: Option<&str>,
    ) -> Result<StatementResult> {
        if matches!(kind, ObjectKind::Pipeline | ObjectKind::Secret) {
            return Err(Error::unsupported(format!(
                "a {} cannot have a comment",
                kind_name(kind)
            )));
        }
        let comment = comment.filter(|c| !c.is_empty()).map(str::to_owned);
        let snapshot = self.definitions();
        // A column's comment names its relation whatever kind that is.
        let object = match column {
            Some(_) => snapshot.object(name).ok_or_else(|| {
                Error::new(
                    sqlstate::UNDEFINED_TABLE,
                    format!("relation \"{name}\" does not exist"),
                )
            })?,
            None => snapshot.require(kind, name)?,
        };
        let mut changed = CatalogObject::clone(object);
        match column {
            None => changed.comment = comment,
            Some(column) => {
                columns_mut(&mut changed.definition)
                    .iter_mut()
                    .find(|c| c.name == column)
                    .ok_or_else(|| {
                        Error::new(
                            sqlstate::UNDEFINED_COLUMN,
                            format!("column \"{column}\" of relation \"{name}\" does not exist"),
                        )
                    })?
                    .comment = comment;
            }
        }
        self.replace(object, changed, None)?;
        Ok(done("COMMENT"))
    }
}

fn row_policy_is_fixed(view: &str, old: OnRowError, new: OnRowError) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "cannot change on_row_error of materialized view \"{view}\" from '{}' to '{}'",
            old.name(),
            new.name()
        ),
    )
    .detail(format!(
        "Rows that failed under '{}' are in its state in a way that only '{}' takes back.",
        old.name(),
        old.name()
    ))
    .hint(format!(
        "Compute it anew: CREATE OR REPLACE MATERIALIZED VIEW {} \
         WITH (on_row_error = '{}', reset_state = true) AS …",
        quote_identifier(view),
        new.name()
    ))
}

/// Where a row's failing value is NULL, any column of the view may be.
pub(super) fn follow_row_policy(object: &mut CatalogObject) {
    if row_policy(object) == OnRowError::Null {
        let columns = columns_mut(&mut object.definition).iter_mut();
        columns.for_each(|column| column.nullable = true);
    }
}

pub(super) fn columns_mut(definition: &mut Definition) -> &mut [ColumnDefinition] {
    match definition {
        Definition::Stream(d) => &mut d.columns,
        Definition::Table(d) => &mut d.columns,
        Definition::MaterializedView(d) => &mut d.columns,
        Definition::View(d) => &mut d.columns,
        Definition::Sink(_) | Definition::Index(_) => &mut [],
    }
}

fn change(options: &mut Options, set: &Options, reset: &[String]) {
    for name in reset {
        options.remove(name);
    }
    options.extend(set.iter().map(|(k, v)| (k.clone(), v.clone())));
}

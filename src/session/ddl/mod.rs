//! `CREATE`, `DROP`, `ALTER`, `COMMENT`: statements that change definitions.
//!
//! Each stages its change in the open transaction, with what the engine must do after the commit.
//! A definition that cannot run is refused here, before it is staged.

mod aggregates;
mod alter;
mod bounds;
mod column_types;
mod columns;
mod create;
mod drop;
mod functions;
mod indexes;
mod keys;
mod merging;
mod readers;
mod replace;
mod schedules;
mod views;

use std::sync::Arc;

use super::Session;
use crate::catalog::changes::duplicate_relation;
use crate::catalog::definition::{CatalogObject, Definition, Options, PipelineDefinition};
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::system_tables;
use crate::error::{Error, Result, sqlstate};

pub(super) use indexes::indexes_of;

/// What `CREATE` meets under its name.
enum Existing {
    /// nothing
    None,
    /// an object, and `IF NOT EXISTS` was said: a NOTICE was raised, there is nothing to do
    Skip,
    /// an object to replace
    Replace(Arc<CatalogObject>),
}

impl Session {
    /// The definitions as this transaction sees them.
    pub(super) fn definitions(&self) -> Arc<CatalogSnapshot> {
        self.scope.catalog()
    }

    /// Looks at what has the name already.
    fn existing(&mut self, name: &str, if_not_exists: bool, or_replace: bool) -> Result<Existing> {
        if system_tables::schema_of(name).is_some() || name.starts_with("pg_") {
            return Err(Error::new(
                sqlstate::DUPLICATE_TABLE,
                format!("relation \"{name}\" already exists"),
            )
            .detail("The name belongs to a system table."));
        }
        let snapshot = self.definitions();
        self.told_existing(snapshot.permanent(name), if_not_exists, or_replace)
    }

    /// As [`Self::existing`], among the session's temporary tables and views.
    fn existing_temporary(
        &mut self,
        name: &str,
        if_not_exists: bool,
        or_replace: bool,
    ) -> Result<Existing> {
        let snapshot = self.definitions();
        self.told_existing(snapshot.temporary().get(name), if_not_exists, or_replace)
    }

    fn told_existing(
        &mut self,
        found: Option<&Arc<CatalogObject>>,
        if_not_exists: bool,
        or_replace: bool,
    ) -> Result<Existing> {
        let Some(object) = found else {
            return Ok(Existing::None);
        };
        let name = &object.name;
        if if_not_exists {
            let message = format!("relation \"{name}\" already exists, skipping");
            self.notice_as(sqlstate::DUPLICATE_TABLE, message);
            return Ok(Existing::Skip);
        }
        if or_replace {
            return Ok(Existing::Replace(object.clone()));
        }
        Err(duplicate_relation(name))
    }

    /// A new object under the name.
    fn new_object(&self, name: &str, definition: Definition) -> Arc<CatalogObject> {
        let oid = self.parts.catalog.allocate_oid();
        Arc::new(CatalogObject {
            name: name.to_owned(),
            oid,
            created_at_us: self.parts.clock.now_us(),
            comment: None,
            kept_as: self.definitions().kept_as_of_new(name, oid),
            renamed: Default::default(),
            definition,
        })
    }

    /// Every secret that options name exists.
    fn check_secrets(&self, options: &Options) -> Result<()> {
        use crate::catalog::definition::OptionValue;

        let snapshot = self.definitions();
        for value in options.values() {
            if let OptionValue::Secret(name) = value
                && !snapshot.has_secret(name)
            {
                return Err(Error::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("secret \"{name}\" does not exist"),
                )
                .hint(format!("Create it first with CREATE SECRET {name} AS '…'.")));
            }
        }
        Ok(())
    }
}

/// The options of a view that are settings of its pipeline: of the trigger loop.
fn pipeline_part(options: &Options) -> Options {
    options
        .iter()
        .filter(|(name, _)| is_pipeline_option(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn is_pipeline_option(name: &str) -> bool {
    use crate::sql::options::{Targets, canonical_name};
    canonical_name(Targets::PIPELINE, name).is_ok()
}

/// A pipeline that does not exist yet.
fn new_pipeline(options: Options) -> PipelineDefinition {
    PipelineDefinition {
        id: uuid::Uuid::new_v4(),
        options,
        stopped: false,
        previous_location: None,
        merges: Vec::new(),
    }
}

/// `a`, `b` and `c`, for messages.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|n| format!("\"{n}\"")).collect();
    names.join(", ")
}

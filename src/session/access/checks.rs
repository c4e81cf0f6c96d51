//! What a subject may do with the objects of a catalog. Pure: facts in, a permission or an error out.

use std::sync::Arc;

use super::identity::denied;
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::{Access, ObjectKey, Subject};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::snapshot::{CatalogSnapshot, depends_on, kind_name, kind_of, pipeline_of};
use crate::error::{Error, Result};

/// PostgreSQL's error for a relation that may not be used.
pub(in crate::session) fn denied_relation(object: &CatalogObject) -> Error {
    let kind = kind_name(kind_of(&object.definition));
    denied(format!("permission denied for {kind} {}", object.name))
}

/// A subject before a catalog.
#[derive(Clone, Copy)]
pub(in crate::session) struct Checks<'a> {
    pub catalog: &'a CatalogSnapshot,
    pub subject: &'a Subject,
}

impl<'a> Checks<'a> {
    pub fn access(&self) -> &'a Arc<Access> {
        self.catalog.access()
    }

    /// It owns the relation; an index is its view's owner's.
    pub fn owns_relation(&self, object: &CatalogObject) -> bool {
        if object.is_temporary() {
            return true;
        }
        let owned = match &object.definition {
            Definition::Index(index) => index.of,
            _ => object.oid,
        };
        self.access()
            .owns(self.subject, &ObjectKey::Relation(owned))
    }

    /// `must be owner of table t`
    pub fn relation_owner(&self, name: &str) -> Result<()> {
        match self.catalog.object(name) {
            Some(object) if !self.owns_relation(object) => Err(denied(format!(
                "must be owner of {} {name}",
                kind_name(kind_of(&object.definition))
            ))),
            // What is not there is told by whoever looks for it.
            _ => Ok(()),
        }
    }

    /// `must be owner of …`, of what is no relation
    pub fn owner(&self, key: &ObjectKey, what: &str) -> Result<()> {
        match self.access().owns(self.subject, key) {
            true => Ok(()),
            false => Err(denied(format!("must be owner of {what}"))),
        }
    }

    /// New objects need a place.
    pub fn create_in_schema(&self) -> Result<()> {
        let may = self
            .access()
            .allows(self.subject, &ObjectKey::Schema, Privileges::CREATE);
        match may {
            true => Ok(()),
            false => Err(denied("permission denied for schema public").hint(format!(
                "GRANT CREATE ON SCHEMA public TO {};",
                crate::sql::names::quote_identifier(&self.subject.name)
            ))),
        }
    }

    /// A privilege of the whole relation, or of each of these columns.
    pub fn relation(
        &self,
        object: &CatalogObject,
        needed: Privileges,
        columns: &[usize],
    ) -> Result<()> {
        let access = self.access();
        let of_column = |column: &usize| {
            let place = object.stored_index(*column) as u32;
            access.allows(self.subject, &ObjectKey::Column(object.oid, place), needed)
        };
        let may = object.is_temporary()
            || access.allows(self.subject, &ObjectKey::Relation(object.oid), needed)
            || !columns.is_empty() && columns.iter().all(of_column);
        match may {
            true => Ok(()),
            false => Err(denied_relation(object)),
        }
    }

    /// A privilege of a relation by name, if it is there.
    pub fn relation_named(&self, name: &str, needed: Privileges) -> Result<()> {
        match self.catalog.object(name) {
            Some(object) => self.relation(object, needed, &[]),
            None => Ok(()),
        }
    }

    /// It may run, stop and mend a pipeline.
    pub fn may_recover(&self, pipeline: &str) -> bool {
        let key = ObjectKey::Pipeline(pipeline.to_owned());
        let access = self.access();
        access.owns(self.subject, &key) || access.allows(self.subject, &key, Privileges::RECOVERY)
    }

    /// As [`Self::may_recover`], with the statement that would allow it.
    pub fn recovery_of(&self, pipeline: &str) -> Result<()> {
        match self.may_recover(pipeline) {
            true => Ok(()),
            false => Err(
                denied(format!("permission denied for pipeline {pipeline}")).hint(format!(
                    "GRANT RECOVERY ON PIPELINE {} TO {};",
                    crate::sql::names::quote_identifier(pipeline),
                    crate::sql::names::quote_identifier(&self.subject.name)
                )),
            ),
        }
    }

    /// Recovery of what a name means: a pipeline, a view or sink in one, or a stream.
    pub fn recovery_of_named(&self, name: &str) -> Result<()> {
        if let Some(pipeline) = self.catalog.pipeline_named(name) {
            return self.recovery_of(pipeline);
        }
        let Some(object) = self.catalog.object(name) else {
            return Ok(());
        };
        if self.owns_relation(object) {
            return Ok(());
        }
        // A stream is of no pipeline: all that read it must be the subject's to mend.
        let readers = self.pipelines_that_read(name);
        match readers.is_empty() || readers.iter().any(|p| !self.may_recover(p)) {
            true => Err(denied(format!(
                "must be owner of {} {name}",
                kind_name(kind_of(&object.definition))
            ))
            .hint("RECOVERY on every pipeline that reads it is enough too.")),
            false => Ok(()),
        }
    }

    fn pipelines_that_read(&self, relation: &str) -> Vec<String> {
        let dependents = self.catalog.dependents_in_drop_order(relation);
        let mut pipelines: Vec<String> = dependents
            .iter()
            .filter(|object| depends_on(&object.definition).next().is_some())
            .filter_map(|object| pipeline_of(&object.definition).map(str::to_owned))
            .collect();
        pipelines.sort();
        pipelines.dedup();
        pipelines
    }

    /// Secrets in options: to use one is to hand its value to a connector.
    pub fn secret_use(&self, name: &str) -> Result<()> {
        let key = ObjectKey::Secret(name.to_owned());
        let may = !self.catalog.has_secret(name)
            || self.access().allows(self.subject, &key, Privileges::USAGE);
        match may {
            true => Ok(()),
            false => Err(
                denied(format!("permission denied for secret {name}")).hint(format!(
                    "GRANT USAGE ON SECRET {} TO {};",
                    crate::sql::names::quote_identifier(name),
                    crate::sql::names::quote_identifier(&self.subject.name)
                )),
            ),
        }
    }
}

//! Changes of a transaction to the catalog: staged, then applied as one.
//!
//! A transaction keeps the list of its changes beside its own view of the contents. At commit the
//! list is applied again, to whatever is newest by then; each change names the object it expects,
//! so that two sessions cannot overwrite each other without a word.

use std::sync::Arc;

use super::access::AccessChange;
use super::definition::{CatalogObject, PipelineDefinition};
use super::function::FunctionDefinition;
use super::renaming;
use super::schedule::ScheduleDefinition;
use super::snapshot::{CatalogSnapshot, PartsMut, SecretRecord};
use super::temporary::TemporaryTables;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// One change.
#[derive(Debug, Clone)]
pub enum CatalogChange {
    /// A new relation or sink.
    Create(Arc<CatalogObject>),
    /// Another definition or comment for the object with the same identifier; another name only for itself.
    Replace {
        /// Its name until now.
        name: String,
        /// What it becomes; the same `oid`.
        object: Arc<CatalogObject>,
    },
    /// Another name, for the object and for all that names it.
    Rename {
        /// Its name until now.
        name: String,
        /// Identifier.
        oid: u32,
        /// Its name from now on.
        new_name: String,
    },
    /// The object goes.
    Drop {
        /// Name.
        name: String,
        /// Identifier, so that a namesake created meanwhile is not hit.
        oid: u32,
    },
    /// A pipeline, new or with other settings.
    PutPipeline(String, PipelineDefinition),
    /// A pipeline goes, once its last member went.
    DropPipeline(String),
    /// A new secret.
    CreateSecret(String, SecretRecord),
    /// Another value of a secret.
    ReplaceSecret(String, SecretRecord),
    /// A secret goes.
    DropSecret(String),
    /// A new function, or another definition for the one with the same identifier.
    PutFunction(Arc<FunctionDefinition>),
    /// A function goes.
    DropFunction(Arc<FunctionDefinition>),
    /// A new schedule of recovery drills.
    CreateSchedule(String, ScheduleDefinition),
    /// A schedule goes.
    DropSchedule(String),
    /// Roles, owners or grants.
    Access(AccessChange),
}

/// A session's uncommitted changes to the catalog.
#[derive(Debug, Clone)]
pub struct CatalogTransaction {
    working: Arc<CatalogSnapshot>,
    changes: Vec<CatalogChange>,
}

/// A point to go back to; see [`CatalogTransaction::savepoint`].
#[derive(Debug, Clone)]
pub struct CatalogSavepoint {
    working: Arc<CatalogSnapshot>,
    changes: usize,
}

impl CatalogTransaction {
    /// A transaction over the contents as a session sees them.
    pub fn new(base: Arc<CatalogSnapshot>) -> Self {
        Self {
            working: base,
            changes: Vec::new(),
        }
    }

    /// The contents as this transaction sees them, its own changes included.
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.working.clone()
    }

    /// The changes so far, in order.
    pub fn changes(&self) -> &[CatalogChange] {
        &self.changes
    }

    /// Nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// With nothing changed yet: sees the newest contents from now on (read committed).
    pub fn refresh(&mut self, newest: Arc<CatalogSnapshot>) {
        if self.changes.is_empty() {
            self.working = newest;
        }
    }

    /// Makes a change visible to this transaction. Refuses what cannot be applied.
    pub fn stage(&mut self, change: CatalogChange) -> Result<()> {
        let mut working = CatalogSnapshot::clone(&self.working);
        apply(&mut working, &change)?;
        self.working = Arc::new(working);
        self.changes.push(change);
        Ok(())
    }

    /// Takes out what is of no concern to others: the temporary tables as they are then.
    pub fn take_temporary(&mut self) -> TemporaryTables {
        self.changes.retain(|change| !change.is_temporary());
        self.working.temporary().clone()
    }

    /// Marks this point.
    pub fn savepoint(&self) -> CatalogSavepoint {
        CatalogSavepoint {
            working: self.working.clone(),
            changes: self.changes.len(),
        }
    }

    /// Forgets what came after the mark.
    pub fn rollback_to(&mut self, savepoint: &CatalogSavepoint) {
        self.working = savepoint.working.clone();
        self.changes.truncate(savepoint.changes);
    }

    /// The contents that a commit over `newest` makes.
    pub(super) fn applied_to(&self, newest: &CatalogSnapshot) -> Result<CatalogSnapshot> {
        let mut contents = newest.clone();
        for change in &self.changes {
            apply(&mut contents, change)?;
        }
        contents.check_references()?;
        contents.settle_access()?;
        contents.bump_version();
        Ok(contents)
    }
}

fn apply(contents: &mut CatalogSnapshot, change: &CatalogChange) -> Result<()> {
    let PartsMut {
        objects,
        pipelines,
        secrets,
        functions,
        schedules,
        access,
        temporary,
    } = contents.parts_mut();
    if change.is_temporary() {
        return apply_temporary(temporary, change);
    }
    match change {
        CatalogChange::Access(change) => Arc::make_mut(access).apply(change)?,
        CatalogChange::Create(object) => {
            if objects.contains_key(&object.name) {
                return Err(duplicate_relation(&object.name));
            }
            objects.insert(object.name.clone(), object.clone());
        }
        CatalogChange::Replace { name, object } => {
            expect_object(objects.get(name), name, object.oid)?;
            if objects
                .get(name)
                .is_some_and(|before| !object.follows(before))
            {
                return Err(altered_meanwhile(name));
            }
            if &object.name != name && objects.contains_key(&object.name) {
                return Err(duplicate_relation(&object.name));
            }
            objects.remove(name);
            objects.insert(object.name.clone(), object.clone());
        }
        CatalogChange::Rename {
            name,
            oid,
            new_name,
        } => {
            expect_object(objects.get(name), name, *oid)?;
            if objects.contains_key(new_name) {
                return Err(duplicate_relation(new_name));
            }
            renaming::rename(objects, name, new_name);
            renaming::follow_all(temporary, name, new_name);
            let mut of_it: Vec<_> = schedules.values_mut().collect();
            of_it.retain(|s| s.target == *name && !pipelines.contains_key(name));
            for schedule in of_it {
                schedule.target.clone_from(new_name);
            }
        }
        CatalogChange::Drop { name, oid } => {
            expect_object(objects.get(name), name, *oid)?;
            objects.remove(name);
            schedules.retain(|_, s| s.target != *name || pipelines.contains_key(name));
        }
        CatalogChange::PutPipeline(name, definition) => {
            if let Some(existing) = pipelines.get(name)
                && existing.id != definition.id
            {
                return Err(changed_meanwhile("pipeline", name));
            }
            pipelines.insert(name.clone(), definition.clone());
        }
        CatalogChange::DropPipeline(name) => {
            if pipelines.remove(name).is_none() {
                return Err(changed_meanwhile("pipeline", name));
            }
            // One that became part of another one goes on as that one.
            let is_part = |p: &PipelineDefinition| p.merges.iter().any(|m| m.name == *name);
            let whole = pipelines.iter().find(|(_, p)| is_part(p));
            if let Some((whole, _)) = whole {
                let of_it = schedules.values_mut().filter(|s| s.target == *name);
                of_it.for_each(|s| s.target.clone_from(whole));
            }
            schedules.retain(|_, s| s.target != *name);
        }
        CatalogChange::CreateSecret(name, record) => {
            if secrets.contains_key(name) {
                return Err(duplicate_secret(name));
            }
            secrets.insert(name.clone(), record.clone());
        }
        CatalogChange::ReplaceSecret(name, record) => match secrets.get_mut(name) {
            Some(existing) => *existing = record.clone(),
            None => return Err(changed_meanwhile("secret", name)),
        },
        CatalogChange::DropSecret(name) => {
            if secrets.remove(name).is_none() {
                return Err(changed_meanwhile("secret", name));
            }
        }
        CatalogChange::PutFunction(function) => {
            let signature = function.signature();
            match functions.get(&signature) {
                Some(existing) if existing.oid != function.oid => {
                    return Err(duplicate_function(&signature));
                }
                _ => functions.insert(signature, function.clone()),
            };
        }
        CatalogChange::CreateSchedule(name, schedule) => {
            if schedules.contains_key(name) {
                return Err(duplicate_schedule(name));
            }
            schedules.insert(name.clone(), schedule.clone());
        }
        CatalogChange::DropSchedule(name) => {
            if schedules.remove(name).is_none() {
                return Err(changed_meanwhile("recovery schedule", name));
            }
        }
        CatalogChange::DropFunction(function) => {
            let signature = function.signature();
            match functions.get(&signature) {
                Some(existing) if existing.oid == function.oid => functions.remove(&signature),
                _ => return Err(changed_meanwhile("function", &signature)),
            };
        }
    }
    Ok(())
}

/// A change of the session's own tables.
fn apply_temporary(tables: &mut TemporaryTables, change: &CatalogChange) -> Result<()> {
    let (before, after) = match change {
        CatalogChange::Create(object) => (None, Some(object)),
        CatalogChange::Replace { name, object } => (Some(name), Some(object)),
        CatalogChange::Drop { name, .. } => (Some(name), None),
        _ => (None, None),
    };
    let taken = after.filter(|object| before != Some(&object.name));
    if let Some(object) = taken.filter(|object| tables.contains_key(&object.name)) {
        return Err(duplicate_relation(&object.name));
    }
    if let Some(name) = before {
        tables.remove(name);
    }
    tables.extend(after.map(|object| (object.name.clone(), object.clone())));
    Ok(())
}

fn expect_object(found: Option<&Arc<CatalogObject>>, name: &str, oid: u32) -> Result<()> {
    match found {
        Some(object) if object.oid == oid => Ok(()),
        _ => Err(changed_meanwhile("relation", name)),
    }
}

/// 42P07: the name is taken.
pub fn duplicate_relation(name: &str) -> Error {
    Error::new(
        sqlstate::DUPLICATE_TABLE,
        format!("relation \"{name}\" already exists"),
    )
}

/// 42723: there is a function of this signature.
pub fn duplicate_function(signature: &str) -> Error {
    let name = signature
        .split_once('(')
        .map_or(signature, |(name, _)| name);
    Error::new(
        sqlstate::DUPLICATE_FUNCTION,
        format!("function \"{name}\" already exists with same argument types"),
    )
    .hint("Say CREATE OR REPLACE FUNCTION to give it another body.")
}

/// 42710: the secret's name is taken.
pub fn duplicate_secret(name: &str) -> Error {
    Error::new(
        sqlstate::DUPLICATE_OBJECT,
        format!("secret \"{name}\" already exists"),
    )
    .hint(format!("Change its value with ALTER SECRET {name} AS '…'."))
}

/// 42710: the schedule's name is taken.
pub fn duplicate_schedule(name: &str) -> Error {
    Error::new(
        sqlstate::DUPLICATE_OBJECT,
        format!("recovery schedule \"{name}\" already exists"),
    )
    .hint(format!(
        "DROP RECOVERY SCHEDULE {}; comes first.",
        quote_identifier(name)
    ))
}

fn altered_meanwhile(name: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("could not alter relation \"{name}\": its columns were altered meanwhile"),
    )
    .hint("Run the transaction again.")
}

fn changed_meanwhile(what: &str, name: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("could not change {what} \"{name}\": another transaction dropped or replaced it"),
    )
    .hint("Run the transaction again.")
}

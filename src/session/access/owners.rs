//! `ALTER … OWNER TO`, `REASSIGN OWNED`, `DROP OWNED`.

use std::sync::Arc;

use super::super::Session;
use super::checks::Checks;
use super::grants::{no_database, no_schema};
use super::identity::denied;
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::role::{BOOTSTRAP_OID, Role};
use crate::catalog::access::{AccessChange, ObjectKey};
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::catalog::snapshot::{pipeline_of, undefined};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{Owned, RoleName};
use crate::sql::statement::ObjectKind;

impl Session {
    pub(super) fn alter_owner(&mut self, object: &Owned, owner: &RoleName) -> Result<()> {
        let owner = self.role_named(owner)?;
        let catalog = self.definitions();
        let subject = self.subject();
        let checks = Checks {
            catalog: &catalog,
            subject: &subject,
        };
        let keys: Vec<ObjectKey> = match object {
            Owned::Object(ObjectKind::Pipeline, name) => {
                if catalog.pipeline(name).is_none() {
                    return Err(undefined(ObjectKind::Pipeline, name).hint("SHOW PIPELINES;"));
                }
                checks.object_owner(ObjectKind::Pipeline, name)?;
                vec![ObjectKey::Pipeline(name.clone())]
            }
            Owned::Object(ObjectKind::Secret, name) => {
                if !catalog.has_secret(name) {
                    return Err(undefined(ObjectKind::Secret, name).hint("SHOW SECRETS;"));
                }
                checks.object_owner(ObjectKind::Secret, name)?;
                vec![ObjectKey::Secret(name.clone())]
            }
            Owned::Object(ObjectKind::Index, name) => {
                let object = catalog.require(ObjectKind::Index, name)?;
                return Err(Error::unsupported(format!(
                    "an index belongs to the owner of its view: \"{}\"",
                    object.name
                )));
            }
            Owned::Object(kind, name) => {
                let object = match kind {
                    // As in PostgreSQL, ALTER TABLE is for relations of any kind.
                    ObjectKind::Table => catalog
                        .object(name)
                        .ok_or_else(|| undefined(ObjectKind::Table, name))?,
                    kind => catalog.require(*kind, name)?,
                };
                checks.relation_owner(name)?;
                relation_and_pipeline(object, |p| catalog.pipeline_members(p).len())
            }
            Owned::Schema(name) if name == "public" => {
                checks.owner(&ObjectKey::Schema, "schema public")?;
                vec![ObjectKey::Schema]
            }
            Owned::Schema(name) => return Err(no_schema(name)),
            Owned::Database(name) if name == DATABASE_NAME => {
                checks.owner(&ObjectKey::Database, &format!("database {name}"))?;
                vec![ObjectKey::Database]
            }
            Owned::Database(name) => return Err(no_database(name)),
            Owned::Function(reference) => {
                let function = self.function_named(reference)?;
                let key = ObjectKey::Function(function.oid);
                checks.owner(&key, &format!("function {}", function.name))?;
                vec![key]
            }
        };
        self.check_new_owner(&owner, &keys)?;
        for key in keys {
            self.give_to(key, &owner)?;
        }
        Ok(())
    }

    /// Who gives an object away must belong to the role that gets it, which must have its place.
    fn check_new_owner(&self, owner: &Role, keys: &[ObjectKey]) -> Result<()> {
        let subject = self.subject();
        if subject.is_superuser {
            return Ok(());
        }
        let access = self.access();
        if !access.is_member(subject.role, owner.oid) {
            return Err(denied(format!("must be member of role \"{}\"", owner.name)));
        }
        let is_in_schema = keys
            .iter()
            .any(|key| matches!(key, ObjectKey::Relation(_) | ObjectKey::Function(_)));
        let new = access.subject(owner.oid);
        match is_in_schema && !access.allows(&new, &ObjectKey::Schema, Privileges::CREATE) {
            true => Err(denied("permission denied for schema public")),
            false => Ok(()),
        }
    }

    fn give_to(&mut self, key: ObjectKey, owner: &Role) -> Result<()> {
        if self.access().owner(&key) == owner.oid {
            return Ok(());
        }
        self.stage_access(AccessChange::SetOwner(key, owner.oid))
    }

    pub(super) fn reassign_owned(&mut self, roles: &[RoleName], to: &RoleName) -> Result<()> {
        let to = self.role_named(to)?;
        for role in self.members_of(roles)? {
            if role.oid == BOOTSTRAP_OID {
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!(
                        "cannot reassign ownership of objects owned by role {} because they are required by the database system",
                        role.name
                    ),
                ));
            }
            for key in self.owned_by(role.oid) {
                self.give_to(key, &to)?;
            }
        }
        Ok(())
    }

    pub(super) fn drop_owned(&mut self, roles: &[RoleName], cascade: bool) -> Result<()> {
        for role in self.members_of(roles)? {
            if role.oid == BOOTSTRAP_OID {
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!(
                        "cannot drop objects owned by role {} because they are required by the database system",
                        role.name
                    ),
                ));
            }
            self.drop_objects_of(role.oid, cascade)?;
            self.forget_privileges(role.oid)?;
        }
        Ok(())
    }

    /// Roles whose objects the subject may take: it must have their privileges.
    fn members_of(&self, names: &[RoleName]) -> Result<Vec<Arc<Role>>> {
        let subject = self.subject();
        let member = |name: &RoleName| {
            let role = self.role_named(name)?;
            match subject.acts_for(role.oid) {
                true => Ok(role),
                false => Err(denied(format!(
                    "permission denied to access role \"{}\"",
                    role.name
                ))
                .detail(format!(
                    "Only roles with privileges of role \"{}\" may do this.",
                    role.name
                ))),
            }
        };
        names.iter().map(member).collect()
    }

    fn owned_by(&self, role: u32) -> Vec<ObjectKey> {
        let access = self.access();
        let owned = access.entries().filter(|(_, e)| e.owner == Some(role));
        owned.map(|(key, _)| key.clone()).collect()
    }

    fn drop_objects_of(&mut self, role: u32, cascade: bool) -> Result<()> {
        let catalog = self.definitions();
        let mut relations: Vec<Arc<CatalogObject>> = Vec::new();
        for key in self.owned_by(role) {
            match key {
                ObjectKey::Relation(oid) => relations.extend(catalog.object_by_oid(oid).cloned()),
                ObjectKey::Secret(name) => {
                    self.drop_objects(ObjectKind::Secret, &[name], true, cascade)?;
                }
                ObjectKey::Function(oid) => {
                    let function = catalog.functions().find(|f| f.oid == oid).cloned();
                    if let Some(function) = function {
                        self.stage(CatalogChange::DropFunction(function), None)?;
                    }
                }
                // They go with what is in them, or stay and are the database's again.
                ObjectKey::Pipeline(_) => {}
                ObjectKey::Database | ObjectKey::Schema | ObjectKey::Column(..) => {}
            }
        }
        relations.retain(|o| !matches!(o.definition, Definition::Index(_)));
        self.drop_with_dependents(&relations, cascade)?;
        for key in self.owned_by(role) {
            if matches!(key, ObjectKey::Pipeline(_) | ObjectKey::Relation(_)) {
                self.stage_access(AccessChange::SetOwner(key, BOOTSTRAP_OID))?;
            }
        }
        Ok(())
    }

    fn forget_privileges(&mut self, role: u32) -> Result<()> {
        let access = self.access();
        for (key, entry) in access.entries() {
            let Some(acl) = entry.acl.as_ref().filter(|acl| acl.mentions(role)) else {
                continue;
            };
            let mut after = acl.clone();
            after.forget(role);
            let gone = after.0.is_empty() && matches!(key, ObjectKey::Column(..));
            self.stage_access(AccessChange::SetAcl {
                key: key.clone(),
                before: Some(acl.clone()),
                acl: (!gone).then_some(after),
            })?;
        }
        for default in access.defaults() {
            let mut after = default.clone();
            after.acl.forget(role);
            let goes = default.role == role || after.acl.0.is_empty();
            if goes || after != *default {
                self.stage_access(AccessChange::SetDefault {
                    before: Some(default.clone()),
                    after: (!goes).then_some(after),
                })?;
            }
        }
        Ok(())
    }
}

/// A view's own pipeline goes with it to another owner.
fn relation_and_pipeline(
    object: &CatalogObject,
    members: impl Fn(&str) -> usize,
) -> Vec<ObjectKey> {
    let mut keys = vec![ObjectKey::Relation(object.oid)];
    if let Some(pipeline) = pipeline_of(&object.definition)
        && pipeline == object.name
        && members(pipeline) == 1
    {
        keys.push(ObjectKey::Pipeline(pipeline.to_owned()));
    }
    keys
}

//! `GRANT` and `REVOKE` of privileges.
//!
//! Who grants is the owner if the subject acts for it, else a role of the subject's that has most of
//! the grant options; what it has no option for is left out with a warning, as in PostgreSQL.

use super::super::Session;
use super::checks::denied_relation;
use super::denied;
use super::roles::described;
use crate::catalog::access::acl::{Acl, Change, Dependents, Privileges};
use crate::catalog::access::{AccessChange, OID_PUBLIC, ObjectKey};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::catalog::snapshot::{CatalogSnapshot, a_kind, kind_of, undefined};
use crate::catalog::system_tables;
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{Grant, GrantObjects, GrantedPrivilege, RoleName};
use crate::sql::statement::ObjectKind;

/// Privileges of an object, and whether `ALL` was said.
struct Wanted {
    key: ObjectKey,
    privileges: Privileges,
    is_all: bool,
}

impl Session {
    pub(super) fn grant(&mut self, grant: &Grant) -> Result<()> {
        let grantees = self.grantees(&grant.grantees)?;
        for wanted in self.wanted(grant)? {
            self.grant_on(grant, &wanted, &grantees)?;
        }
        Ok(())
    }

    pub(super) fn grantees(&self, names: &[RoleName]) -> Result<Vec<u32>> {
        let grantee = |name: &RoleName| match name {
            RoleName::Public => Ok(OID_PUBLIC),
            name => Ok(self.role_named(name)?.oid),
        };
        names.iter().map(grantee).collect()
    }

    /// The objects, and for each what is granted of it.
    fn wanted(&self, grant: &Grant) -> Result<Vec<Wanted>> {
        let catalog = self.definitions();
        let keyed = |key: ObjectKey| -> Result<Vec<Wanted>> {
            let (privileges, is_all) = privileges(&grant.privileges, &key)?;
            Ok(vec![Wanted {
                key,
                privileges,
                is_all,
            }])
        };
        let mut all = Vec::new();
        match &grant.objects {
            GrantObjects::Relations(names) => {
                for name in names {
                    let Some(object) = catalog.object(name) else {
                        if system_tables::schema_of(name).is_some() {
                            // They are everyone's to read and nobody's to change.
                            continue;
                        }
                        return Err(Error::new(
                            sqlstate::UNDEFINED_TABLE,
                            format!("relation \"{name}\" does not exist"),
                        ));
                    };
                    all.extend(of_relation(&grant.privileges, object)?);
                }
            }
            GrantObjects::AllRelations(kind) => {
                let has_kind = |object: &CatalogObject| match kind {
                    Some(kind) => kind_of(&object.definition) == *kind,
                    None => is_granted(object),
                };
                for object in catalog.objects().filter(|o| has_kind(o)) {
                    all.extend(of_relation(&grant.privileges, object)?);
                }
            }
            GrantObjects::Schemas(names) => {
                for name in names {
                    if name != "public" {
                        return Err(no_schema(name));
                    }
                    all.extend(keyed(ObjectKey::Schema)?);
                }
            }
            GrantObjects::Databases(names) => {
                for name in names {
                    if name != DATABASE_NAME {
                        return Err(no_database(name));
                    }
                    all.extend(keyed(ObjectKey::Database)?);
                }
            }
            GrantObjects::Pipelines(names) => {
                for name in names {
                    if catalog.pipeline(name).is_none() {
                        return Err(undefined(ObjectKind::Pipeline, name).hint("SHOW PIPELINES;"));
                    }
                    all.extend(keyed(ObjectKey::Pipeline(name.clone()))?);
                }
            }
            GrantObjects::Secrets(names) => {
                for name in names {
                    if !catalog.has_secret(name) {
                        return Err(undefined(ObjectKind::Secret, name).hint("SHOW SECRETS;"));
                    }
                    all.extend(keyed(ObjectKey::Secret(name.clone()))?);
                }
            }
            GrantObjects::Nothing => {}
        }
        Ok(all)
    }

    fn grant_on(&mut self, grant: &Grant, wanted: &Wanted, grantees: &[u32]) -> Result<()> {
        let catalog = self.definitions();
        let access = catalog.access();
        let Wanted {
            key, privileges, ..
        } = wanted;
        let (grantor, options) = self.grantor(key, *privileges, grant.granted_by.as_ref())?;
        if options.is_empty() && access.holds(&self.subject(), key).is_empty() {
            return Err(denied_object(&catalog, key));
        }
        self.tell_of_missing_options(grant, wanted, options, &name_of(&catalog, key));
        let privileges = privileges.intersection(options);
        let owner = access.owner(key);
        let before = access.acl(key).cloned();
        let mut acl = access.effective_acl(key);
        changed(&mut acl, grant, privileges, grantor, owner, grantees)?;
        // The list of a table may hold what its columns were granted: that goes too.
        let columns: Vec<ObjectKey> = match key {
            ObjectKey::Relation(oid) if grant.is_revoke => access
                .entries()
                .map(|(key, _)| key.clone())
                .filter(|key| matches!(key, ObjectKey::Column(of, _) if of == oid))
                .collect(),
            _ => Vec::new(),
        };
        let after = match key {
            ObjectKey::Column(..) if acl.0.is_empty() => None,
            _ => Some(acl),
        };
        if before != after {
            self.stage_access(AccessChange::SetAcl {
                key: key.clone(),
                before,
                acl: after,
            })?;
        }
        for column in columns {
            let access = self.access();
            let before = access.acl(&column).cloned();
            let mut acl = before.clone().unwrap_or_default();
            let of_column = privileges.intersection(column.privileges());
            changed(&mut acl, grant, of_column, grantor, owner, grantees)?;
            let after = (!acl.0.is_empty()).then_some(acl);
            if before != after {
                self.stage_access(AccessChange::SetAcl {
                    key: column,
                    before,
                    acl: after,
                })?;
            }
        }
        Ok(())
    }

    /// In whose name it is granted, and what that role may grant.
    fn grantor(
        &self,
        key: &ObjectKey,
        wanted: Privileges,
        named: Option<&RoleName>,
    ) -> Result<(u32, Privileges)> {
        let subject = self.subject();
        if let Some(name) = named {
            let role = self.role_named(name)?;
            if role.oid != subject.role {
                return Err(Error::unsupported("grantor must be current user"));
            }
        }
        let access = self.access();
        let owner = access.owner(key);
        if access.owns(&subject, key) {
            return Ok((owner, key.privileges()));
        }
        let options_of = |role: u32| {
            let of_object = access.acl(key);
            let of_relation = match key {
                ObjectKey::Column(oid, _) => access.acl(&ObjectKey::Relation(*oid)),
                _ => None,
            };
            let acls = of_object.into_iter().chain(of_relation);
            let grantable = acls.map(|acl| acl.grantable(|r| r == role));
            let sum = grantable.fold(Privileges::NONE, Privileges::union);
            sum.intersection(wanted)
        };
        let roles = access.roles_of(subject.role, true).into_iter();
        let own = (subject.role, options_of(subject.role));
        let best = roles
            .map(|role| (role, options_of(role)))
            .fold(own, |best, next| match next.1.count() > best.1.count() {
                true => next,
                false => best,
            });
        Ok(best)
    }

    fn tell_of_missing_options(
        &mut self,
        grant: &Grant,
        wanted: &Wanted,
        options: Privileges,
        name: &str,
    ) {
        let can = wanted.privileges.intersection(options);
        let (code, done) = match grant.is_revoke {
            true => ("01006", "could be revoked"),
            false => ("01007", "were granted"),
        };
        if can.is_empty() {
            self.warn(code, format!("no privileges {done} for \"{name}\""));
        } else if can != wanted.privileges && !wanted.is_all {
            self.warn(code, format!("not all privileges {done} for \"{name}\""));
        }
    }
}

/// 42501 for an object of which the subject has nothing.
fn denied_object(catalog: &CatalogSnapshot, key: &ObjectKey) -> Error {
    match key {
        ObjectKey::Relation(oid) => match catalog.object_by_oid(*oid) {
            Some(object) => denied_relation(object),
            None => denied("permission denied"),
        },
        ObjectKey::Column(oid, _) => {
            let relation = catalog.object_by_oid(*oid).map_or("", |o| o.name.as_str());
            let column = name_of(catalog, key);
            denied(format!(
                "permission denied for column \"{column}\" of relation \"{relation}\""
            ))
        }
        _ => {
            let what = described(catalog, key).unwrap_or_default();
            denied(format!("permission denied for {what}"))
        }
    }
}

/// An object's bare name.
fn name_of(catalog: &CatalogSnapshot, key: &ObjectKey) -> String {
    let object = |oid: &u32| catalog.object_by_oid(*oid);
    match key {
        ObjectKey::Database => DATABASE_NAME.to_owned(),
        ObjectKey::Schema => "public".to_owned(),
        ObjectKey::Relation(oid) => object(oid).map_or_else(String::new, |o| o.name.clone()),
        ObjectKey::Column(oid, place) => {
            let columns = object(oid).into_iter().flat_map(|o| {
                let place = *place as usize;
                let named = o.columns().iter().enumerate();
                named.filter(move |(at, _)| o.stored_index(*at) == place)
            });
            let mut names = columns.map(|(_, column)| column.name.clone());
            names.next().unwrap_or_default()
        }
        ObjectKey::Pipeline(name) | ObjectKey::Secret(name) => name.clone(),
        ObjectKey::Function(oid) => {
            let mut functions = catalog.functions();
            let found = functions.find(|f| f.oid == *oid);
            found.map_or_else(String::new, |f| f.name.clone())
        }
    }
}

pub(super) fn changed(
    acl: &mut Acl,
    grant: &Grant,
    privileges: Privileges,
    grantor: u32,
    owner: u32,
    grantees: &[u32],
) -> Result<()> {
    if privileges.is_empty() {
        return Ok(());
    }
    let dependents = match grant.cascade {
        true => Dependents::Cascade,
        false => Dependents::Restrict,
    };
    for grantee in grantees {
        let change = Change {
            grantee: *grantee,
            grantor,
            privileges,
            grant_option: grant.grant_option,
        };
        match grant.is_revoke {
            true => acl.revoke(change, owner, dependents)?,
            false => acl.grant(change, owner)?,
        }
    }
    Ok(())
}

/// Relations that `GRANT ON TABLE` is about.
fn is_granted(object: &CatalogObject) -> bool {
    !matches!(
        object.definition,
        Definition::Sink(_) | Definition::Index(_)
    )
}

/// What is granted of a relation and of its columns.
fn of_relation(items: &[GrantedPrivilege], object: &CatalogObject) -> Result<Vec<Wanted>> {
    if !is_granted(object) {
        return Err(Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!(
                "\"{}\" is {}",
                object.name,
                a_kind(kind_of(&object.definition))
            ),
        ));
    }
    let of_whole: Vec<_> = items.iter().filter(|i| i.columns.is_empty()).collect();
    let mut wanted = Vec::new();
    if !of_whole.is_empty() {
        let key = ObjectKey::Relation(object.oid);
        let (privileges, is_all) = privileges(of_whole, &key)?;
        wanted.push(Wanted {
            key,
            privileges,
            is_all,
        });
    }
    for item in items {
        for name in &item.columns {
            let columns = object.columns();
            let at = columns
                .iter()
                .position(|c| c.name == *name)
                .ok_or_else(|| {
                    Error::new(
                        sqlstate::UNDEFINED_COLUMN,
                        format!(
                            "column \"{name}\" of relation \"{}\" does not exist",
                            object.name
                        ),
                    )
                })?;
            let key = ObjectKey::Column(object.oid, object.stored_index(at) as u32);
            let (privileges, is_all) = privileges([item], &key)?;
            wanted.push(Wanted {
                key,
                privileges,
                is_all,
            });
        }
    }
    Ok(wanted)
}

/// The set of a list of privileges, each of which must make sense for the object.
pub(super) fn privileges<'a>(
    items: impl IntoIterator<Item = &'a GrantedPrivilege>,
    key: &ObjectKey,
) -> Result<(Privileges, bool)> {
    let mut sum = Privileges::NONE;
    let mut is_all = false;
    for item in items {
        let Some(name) = &item.name else {
            sum = sum.union(key.privileges());
            is_all = true;
            continue;
        };
        let privilege = Privileges::named(name).ok_or_else(|| {
            Error::new(
                sqlstate::SYNTAX_ERROR,
                format!("unrecognized privilege type \"{name}\""),
            )
        })?;
        if !key.privileges().contains(privilege) {
            return Err(Error::new(
                sqlstate::INVALID_GRANT_OPERATION,
                format!(
                    "invalid privilege type {} for {}",
                    name.to_uppercase(),
                    word_of(key)
                ),
            ));
        }
        sum = sum.union(privilege);
    }
    Ok((sum, is_all))
}

fn word_of(key: &ObjectKey) -> &'static str {
    match key {
        ObjectKey::Database => "database",
        ObjectKey::Schema => "schema",
        ObjectKey::Relation(_) => "table",
        ObjectKey::Column(..) => "column",
        ObjectKey::Pipeline(_) => "pipeline",
        ObjectKey::Secret(_) => "secret",
        ObjectKey::Function(_) => "function",
    }
}

/// 3F000.
pub(super) fn no_schema(name: &str) -> Error {
    Error::new(
        sqlstate::INVALID_SCHEMA_NAME,
        format!("schema \"{name}\" does not exist"),
    )
}

/// 3D000.
pub(super) fn no_database(name: &str) -> Error {
    Error::new(
        sqlstate::INVALID_CATALOG_NAME,
        format!("database \"{name}\" does not exist"),
    )
}

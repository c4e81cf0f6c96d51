//! `CREATE`, `ALTER` and `DROP ROLE`, with the permissions and words of PostgreSQL 15.

use std::sync::Arc;

use super::super::Session;
use super::{denied, undefined_role};
use crate::catalog::access::password::Verifier;
use crate::catalog::access::role::{BOOTSTRAP_NAME, BOOTSTRAP_OID, Membership, Role};
use crate::catalog::access::{Access, AccessChange, ObjectKey, Subject};
use crate::catalog::snapshot::{CatalogSnapshot, kind_name, kind_of};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{GivenPassword, RoleName, RoleOptions, RoleSetting};
use crate::sql::names::quote_identifier;

impl Session {
    pub(super) fn create_role(&mut self, name: &str, options: &RoleOptions) -> Result<()> {
        let subject = self.subject();
        check_attributes(&subject, options)?;
        if !self.may_create_roles() {
            return Err(denied("permission denied to create role"));
        }
        let mut role = Role::new(self.parts.catalog.allocate_oid(), name);
        self.set_options(&mut role, options)?;
        let oid = role.oid;
        self.stage_access(AccessChange::CreateRole(Arc::new(role)))?;
        for group in &options.in_roles {
            let group = self.role_named(group)?;
            self.check_admin(&group)?;
            self.add_member(&group, oid, false)?;
        }
        for (members, admin) in [(&options.members, false), (&options.admins, true)] {
            for member in members {
                let member = self.role_named(member)?;
                let group = self.role_named(&RoleName::Named(name.to_owned()))?;
                self.add_member(&group, member.oid, admin)?;
            }
        }
        self.tell_of_missing_superuser();
        Ok(())
    }

    fn add_member(&mut self, group: &Role, member: u32, admin: bool) -> Result<()> {
        let grantor = self.subject().role;
        self.stage_access(AccessChange::PutMembership(Membership {
            role: group.oid,
            member,
            grantor,
            admin,
        }))
    }

    pub(super) fn alter_role(&mut self, role: &RoleName, options: &RoleOptions) -> Result<()> {
        let before = self.role_named(role)?;
        refuse_predefined(&before)?;
        self.check_alter(&before, options)?;
        if before.oid == BOOTSTRAP_OID && options.superuser == Some(false) {
            return Err(denied("permission denied to alter role")
                .detail("The bootstrap user must have the SUPERUSER attribute."));
        }
        let mut role = Role::clone(&before);
        self.set_options(&mut role, options)?;
        let role = Arc::new(role);
        self.stage_access(AccessChange::PutRole { before, role })?;
        self.tell_of_missing_superuser();
        Ok(())
    }

    fn check_alter(&self, role: &Role, options: &RoleOptions) -> Result<()> {
        let subject = self.subject();
        if subject.is_superuser {
            return Ok(());
        }
        if role.attributes.superuser || options.superuser.is_some() {
            return Err(denied(
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        if role.attributes.replication || options.replication.is_some() {
            return Err(denied(
                "must be superuser to alter replication roles or change replication attribute",
            ));
        }
        if options.bypass_rls.is_some() {
            return Err(denied("must be superuser to change bypassrls attribute"));
        }
        let only_password = RoleOptions {
            password: options.password.clone(),
            ..RoleOptions::default()
        };
        let is_own_password = role.oid == subject.role && *options == only_password;
        match self.may_create_roles() || is_own_password {
            true => Ok(()),
            false => Err(denied("permission denied")),
        }
    }

    fn set_options(&mut self, role: &mut Role, options: &RoleOptions) -> Result<()> {
        let attributes = &mut role.attributes;
        for (attribute, wanted) in [
            (&mut attributes.superuser, options.superuser),
            (&mut attributes.create_db, options.create_db),
            (&mut attributes.create_role, options.create_role),
            (&mut attributes.inherit, options.inherit),
            (&mut attributes.login, options.login),
            (&mut attributes.replication, options.replication),
            (&mut attributes.bypass_rls, options.bypass_rls),
        ] {
            *attribute = wanted.unwrap_or(*attribute);
        }
        role.connection_limit = options.connection_limit.unwrap_or(role.connection_limit);
        role.valid_until_us = options.valid_until_us.unwrap_or(role.valid_until_us);
        match &options.password {
            None => {}
            Some(None) => role.verifier = None,
            Some(Some(GivenPassword(password))) if password.is_empty() => {
                self.notice("empty string is not a valid password, clearing password");
                role.verifier = None;
            }
            Some(Some(GivenPassword(password))) => {
                role.verifier = Some(Verifier::of_password(password)?);
            }
        }
        Ok(())
    }

    /// From the first password on everyone must log in: somebody must be able to do everything.
    fn tell_of_missing_superuser(&mut self) {
        let access = self.access();
        if access.requires_authentication() && !access.has_superuser_with_password() {
            let name = access.role_name(BOOTSTRAP_OID);
            let name = quote_identifier(&name);
            self.warn_with_hint(
                "01000",
                "from now on every user must log in, and no superuser has a password".to_owned(),
                format!(
                    "Say ALTER USER {name} PASSWORD '…'; in this session. Later it takes a stopped server: tidemill sql --data DIR."
                ),
            );
        }
    }

    pub(super) fn rename_role(&mut self, name: &str, new_name: &str) -> Result<()> {
        let before = self.role_named(&RoleName::Named(name.to_owned()))?;
        refuse_predefined(&before)?;
        let access = self.access();
        let session = self.identity.session_role(&access, &self.settings);
        for (oid, what) in [(session, "session"), (self.subject().role, "current")] {
            if before.oid == oid {
                return Err(Error::unsupported(format!("{what} user cannot be renamed")));
            }
        }
        if before.attributes.superuser && !self.subject().is_superuser {
            return Err(denied("must be superuser to rename superusers"));
        }
        if !self.may_create_roles() {
            return Err(denied("permission denied to rename role"));
        }
        let mut role = Role::clone(&before);
        new_name.clone_into(&mut role.name);
        let role = Arc::new(role);
        self.stage_access(AccessChange::PutRole { before, role })
    }

    pub(super) fn alter_role_setting(
        &mut self,
        role: &RoleName,
        setting: &RoleSetting,
    ) -> Result<()> {
        let before = self.role_named(role)?;
        refuse_predefined(&before)?;
        if before.attributes.superuser && !self.subject().is_superuser {
            return Err(denied("must be superuser to alter superusers"));
        }
        let is_own = before.oid == self.subject().role;
        if !is_own && !self.may_create_roles() {
            return Err(denied("permission denied"));
        }
        let mut role = Role::clone(&before);
        match setting {
            RoleSetting::Set(name, Some(value)) => {
                let value = self.settings.checked(name, value)?;
                role.settings.insert(name.to_lowercase(), value);
            }
            RoleSetting::FromCurrent(name) => {
                let value = self.settings.require(name)?;
                let value = self.settings.checked(name, &value)?;
                role.settings.insert(name.to_lowercase(), value);
            }
            RoleSetting::Set(name, None) | RoleSetting::Reset(name) => {
                role.settings.remove(&name.to_lowercase());
            }
            RoleSetting::ResetAll => role.settings.clear(),
        }
        let role = Arc::new(role);
        self.stage_access(AccessChange::PutRole { before, role })
    }

    pub(super) fn drop_roles(&mut self, names: &[RoleName], if_exists: bool) -> Result<()> {
        if !self.may_create_roles() {
            return Err(denied("permission denied to drop role"));
        }
        for name in names {
            let RoleName::Named(text) = name else {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    "cannot use special role specifier in DROP ROLE",
                ));
            };
            let access = self.access();
            let Some(role) = access.role(text) else {
                if !if_exists {
                    return Err(undefined_role(text));
                }
                self.notice(format!("role \"{text}\" does not exist, skipping"));
                continue;
            };
            self.drop_role(&access, role)?;
        }
        Ok(())
    }

    fn drop_role(&mut self, access: &Access, role: &Arc<Role>) -> Result<()> {
        let name = &role.name;
        if role.oid == BOOTSTRAP_OID || role.is_predefined() {
            return Err(Error::new(
                sqlstate::DEPENDENT_OBJECTS,
                format!("cannot drop role {name} because it is required by the database system"),
            ));
        }
        if role.oid == self.subject().role {
            return Err(in_use("current user cannot be dropped"));
        }
        if role.oid == self.identity.session_role(access, &self.settings) {
            return Err(in_use("session user cannot be dropped"));
        }
        if role.attributes.superuser && !self.subject().is_superuser {
            return Err(denied("must be superuser to drop superusers"));
        }
        let hanging = dependents(&self.definitions(), role.oid);
        if !hanging.is_empty() {
            return Err(Error::new(
                sqlstate::DEPENDENT_OBJECTS,
                format!("role \"{name}\" cannot be dropped because some objects depend on it"),
            )
            .detail(hanging.join("\n"))
            .hint(format!(
                "REASSIGN OWNED BY {0} TO {BOOTSTRAP_NAME}; DROP OWNED BY {0};",
                quote_identifier(name)
            )));
        }
        self.stage_access(AccessChange::DropRole(role.clone()))
    }

    pub(super) fn may_create_roles(&self) -> bool {
        let subject = self.subject();
        let role = self.access().role_by_oid(subject.role).cloned();
        subject.is_superuser || role.is_some_and(|role| role.attributes.create_role)
    }
}

fn check_attributes(subject: &Subject, options: &RoleOptions) -> Result<()> {
    if subject.is_superuser {
        return Ok(());
    }
    for (wanted, what) in [
        (options.superuser, "superusers"),
        (options.replication, "replication users"),
        (options.bypass_rls, "bypassrls users"),
    ] {
        if wanted == Some(true) {
            return Err(denied(format!("must be superuser to create {what}")));
        }
    }
    Ok(())
}

fn refuse_predefined(role: &Role) -> Result<()> {
    match role.is_predefined() {
        true => Err(Error::new(
            sqlstate::RESERVED_NAME,
            format!("role name \"{}\" is reserved", role.name),
        )
        .detail("Cannot alter reserved roles.")),
        false => Ok(()),
    }
}

fn in_use(message: &str) -> Error {
    Error::new(sqlstate::OBJECT_IN_USE, message)
}

/// What a role owns or was granted, as PostgreSQL tells it.
pub(super) fn dependents(catalog: &CatalogSnapshot, role: u32) -> Vec<String> {
    let access = catalog.access();
    let mut told = Vec::new();
    for (key, entry) in access.entries() {
        let Some(what) = described(catalog, key) else {
            continue;
        };
        if entry.owner == Some(role) {
            told.push(format!("owner of {what}"));
        } else if entry.acl.as_ref().is_some_and(|acl| acl.mentions(role)) {
            told.push(format!("privileges for {what}"));
        }
    }
    for default in access.defaults() {
        let of = format!(
            "default privileges on new relations belonging to role {}{}",
            access.role_name(default.role),
            if default.in_schema {
                " in schema public"
            } else {
                ""
            }
        );
        if default.role == role {
            told.push(format!("owner of {of}"));
        } else if default.acl.mentions(role) {
            told.push(format!("privileges for {of}"));
        }
    }
    told
}

/// An object in words; `None` for one that is gone.
pub(super) fn described(catalog: &CatalogSnapshot, key: &ObjectKey) -> Option<String> {
    Some(match key {
        ObjectKey::Database => format!("database {}", crate::catalog::pg_catalog::DATABASE_NAME),
        ObjectKey::Schema => "schema public".to_owned(),
        ObjectKey::Relation(oid) => {
            let object = catalog.object_by_oid(*oid)?;
            format!("{} {}", kind_name(kind_of(&object.definition)), object.name)
        }
        ObjectKey::Column(oid, place) => {
            let object = catalog.object_by_oid(*oid)?;
            let columns = object.columns().iter().enumerate();
            let mut named = columns.filter(|(at, _)| object.stored_index(*at) == *place as usize);
            let (_, column) = named.next()?;
            let kind = kind_name(kind_of(&object.definition));
            format!("column {} of {kind} {}", column.name, object.name)
        }
        ObjectKey::Pipeline(name) => format!("pipeline {name}"),
        ObjectKey::Secret(name) => format!("secret {name}"),
        ObjectKey::Function(oid) => {
            let function = catalog.functions().find(|f| f.oid == *oid)?;
            format!("function {}", function.signature())
        }
    })
}

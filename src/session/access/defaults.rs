//! `ALTER DEFAULT PRIVILEGES`: what relations that a role creates later begin with.

use super::super::Session;
use super::grants::{changed, privileges};
use super::identity::denied;
use crate::catalog::access::acl::{Acl, AclItem, Privileges};
use crate::catalog::access::{AccessChange, DefaultAcl, ObjectKey};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{DefaultGrant, RoleName};

/// Any relation: what can be granted is the same of all.
const RELATION: ObjectKey = ObjectKey::Relation(0);

impl Session {
    pub(super) fn alter_default_privileges(&mut self, statement: &DefaultGrant) -> Result<()> {
        if statement.grant.granted_by.is_some() {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "ALTER DEFAULT PRIVILEGES has no GRANTED BY",
            ));
        }
        if statement
            .grant
            .privileges
            .iter()
            .any(|i| !i.columns.is_empty())
        {
            return Err(Error::new(
                sqlstate::INVALID_GRANT_OPERATION,
                "default privileges cannot be set for columns",
            ));
        }
        if !statement.on_relations {
            return Ok(());
        }
        let roles = match statement.roles.is_empty() {
            true => vec![RoleName::Current],
            false => statement.roles.clone(),
        };
        for role in &roles {
            let role = self.role_named(role)?;
            let subject = self.subject();
            if !subject.is_superuser && !self.access().is_member(subject.role, role.oid) {
                return Err(denied(format!("must be member of role \"{}\"", role.name)));
            }
            self.set_default(role.oid, statement)?;
        }
        Ok(())
    }

    fn set_default(&mut self, role: u32, statement: &DefaultGrant) -> Result<()> {
        let grantees = self.grantees(&statement.grant.grantees)?;
        let in_schema = !statement.schemas.is_empty();
        let access = self.access();
        let mut defaults = access.defaults().iter();
        let before = defaults
            .find(|d| d.role == role && d.in_schema == in_schema)
            .cloned();
        // What is said for a schema is added to the rest, so that it begins with nothing.
        let plain = match in_schema {
            true => Acl::default(),
            false => Acl(vec![AclItem {
                grantee: role,
                grantor: role,
                privileges: RELATION.privileges(),
                grantable: Privileges::NONE,
            }]),
        };
        let mut acl = before
            .as_ref()
            .map_or_else(|| plain.clone(), |d| d.acl.clone());
        let (privileges, _) = privileges(&statement.grant.privileges, &RELATION)?;
        changed(
            &mut acl,
            &statement.grant,
            privileges,
            role,
            role,
            &grantees,
        )?;
        let after = (acl != plain).then_some(DefaultAcl {
            role,
            in_schema,
            acl,
        });
        match before == after {
            true => Ok(()),
            false => self.stage_access(AccessChange::SetDefault { before, after }),
        }
    }
}

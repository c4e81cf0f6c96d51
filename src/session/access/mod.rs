//! Roles and privileges in a session: as whom it acts, what it may do, and the statements that
//! change either.
//!
//! ```text
//! statement ─► authorize (by kind) ─► planning ─► guard (each relation that is read)
//!                                        └─► dml/needs (what a change of rows needs)
//! ```

mod audit;
mod authorize;
pub(super) mod checks;
mod defaults;
mod grants;
pub(super) mod guard;
pub(super) mod identity;
mod memberships;
mod owners;
mod roles;

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;

use self::identity::denied;
use super::rowset::done;
use super::{Notice, Session, StatementResult, planning, threads};
use crate::catalog::access::role::Role;
use crate::catalog::access::{Access, AccessChange, ObjectKey, Subject};
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::CatalogObject;
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{AccessStatement, RoleName};

impl Session {
    /// Settles as whom the statement runs.
    pub(super) fn enter_subject(&mut self) {
        let catalog = self.scope.catalog();
        let access = catalog.access();
        let is_current = self
            .acting
            .as_ref()
            .is_some_and(|acting| acting.is_current(access, &self.settings));
        if !is_current {
            let acting = self.identity.acting(access, &self.settings);
            self.scope.set_subject(acting.subject.clone());
            let is_superuser = if acting.subject.is_superuser {
                "on"
            } else {
                "off"
            };
            self.settings.tell("is_superuser", is_superuser);
            self.acting = Some(acting);
        }
    }

    /// As whom the running statement runs.
    pub(super) fn subject(&self) -> Arc<Subject> {
        self.scope.subject()
    }

    /// As whom the running statement runs owns the object.
    pub(super) fn owns(&self, object: &CatalogObject) -> bool {
        let catalog = self.definitions();
        let subject = self.subject();
        let checks = checks::Checks {
            catalog: &catalog,
            subject: &subject,
        };
        checks.owns_relation(object)
    }

    /// Refuses a `SET ROLE` or `SET SESSION AUTHORIZATION` that the session may not do.
    pub(super) fn check_role_change(&self, parameter: &str, value: Option<&str>) -> Result<()> {
        let catalog = self.scope.catalog();
        self.identity
            .check_change(catalog.access(), &self.settings, parameter, value)
    }

    /// Carries out a statement about roles and privileges.
    pub(super) async fn change_access(
        &mut self,
        statement: &AccessStatement,
    ) -> Result<StatementResult> {
        match statement {
            AccessStatement::CreateRole { name, options } => self.create_role(name, options)?,
            AccessStatement::AlterRole { role, options } => self.alter_role(role, options)?,
            AccessStatement::RenameRole { name, new_name } => self.rename_role(name, new_name)?,
            AccessStatement::AlterRoleSetting { role, setting } => {
                self.alter_role_setting(role, setting)?;
            }
            AccessStatement::DropRole { names, if_exists } => self.drop_roles(names, *if_exists)?,
            AccessStatement::Grant(grant) => self.grant(grant)?,
            AccessStatement::GrantRole(grant) => self.grant_roles(grant)?,
            AccessStatement::DefaultGrant(grant) => self.alter_default_privileges(grant)?,
            AccessStatement::AlterOwner { object, owner } => self.alter_owner(object, owner)?,
            AccessStatement::ReassignOwned { roles, to } => self.reassign_owned(roles, to)?,
            AccessStatement::DropOwned { roles, cascade } => self.drop_owned(roles, *cascade)?,
        }
        Ok(done(statement.tag()))
    }

    /// A view that runs holds what its query reads: its creator must be allowed to. The query is
    /// planned as one to run, and not run.
    pub(super) async fn check_readable(&self, query: &ast::Query) -> Result<()> {
        if self.subject().is_superuser {
            return Ok(());
        }
        let state = self.planning_state();
        let plan = planning::plan_statement(&state, planning::query_statement(query)).await?;
        threads::physical_plan(&state, &plan).await.map(drop)
    }

    pub(super) fn access(&self) -> Arc<Access> {
        self.definitions().access().clone()
    }

    pub(super) fn stage_access(&mut self, change: AccessChange) -> Result<()> {
        self.stage(CatalogChange::Access(change), None)
    }

    /// What is created belongs to who creates it, with the default privileges of that role.
    pub(super) fn claim(&mut self, key: ObjectKey) -> Result<()> {
        let owner = self.subject().role;
        if owner != self.access().owner(&key) {
            self.stage_access(AccessChange::SetOwner(key.clone(), owner))?;
        }
        if let ObjectKey::Relation(oid) = key
            && let Some(acl) = self.access().acl_of_new_relation(owner, oid)
        {
            self.stage_access(AccessChange::SetAcl {
                key,
                before: None,
                acl: Some(acl),
            })?;
        }
        Ok(())
    }

    /// A role that a statement names; `PUBLIC` is none.
    fn role_named(&self, name: &RoleName) -> Result<Arc<Role>> {
        let access = self.access();
        let found = match name {
            RoleName::Named(name) => access.role(name),
            RoleName::Current => access.role_by_oid(self.subject().role),
            RoleName::Session => {
                access.role_by_oid(self.identity.session_role(&access, &self.settings))
            }
            RoleName::Public => None,
        };
        found.cloned().ok_or_else(|| {
            let name = match name {
                RoleName::Named(name) => name.as_str(),
                RoleName::Public => "public",
                RoleName::Current | RoleName::Session => self.identity.name(),
            };
            undefined_role(name)
        })
    }

    fn warn_with_hint(&mut self, sqlstate: &'static str, message: String, hint: String) {
        self.notices.push(Notice {
            severity: "WARNING",
            sqlstate,
            message,
            hint: Some(hint),
        });
    }
}

/// 42704.
pub(super) fn undefined_role(name: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("role \"{name}\" does not exist"),
    )
}

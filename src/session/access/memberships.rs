//! `GRANT role TO role` and `REVOKE role FROM role`.

use std::sync::Arc;

use super::super::Session;
use super::denied;
use crate::catalog::access::AccessChange;
use crate::catalog::access::role::{DATABASE_OWNER_OID, Membership, Role};
use crate::error::{Error, Result, sqlstate};
use crate::sql::access::{GrantRole, RoleName};

impl Session {
    pub(super) fn grant_roles(&mut self, grant: &GrantRole) -> Result<()> {
        let grantor = match &grant.granted_by {
            Some(name) => self.role_named(name)?.oid,
            None => self.subject().role,
        };
        for name in &grant.roles {
            let group = self.role_named(name)?;
            self.check_admin(&group)?;
            for member in &grant.members {
                if *member == RoleName::Public {
                    return Err(super::undefined_role("public"));
                }
                let member = self.role_named(member)?;
                match grant.is_revoke {
                    true => self.leave_role(&group, &member, grant.admin)?,
                    false => self.join_role(&group, &member, grant.admin, grantor)?,
                }
            }
        }
        Ok(())
    }

    /// Who may let others into a role, or put them out.
    pub(super) fn check_admin(&self, group: &Role) -> Result<()> {
        let subject = self.subject();
        if subject.is_superuser {
            return Ok(());
        }
        if group.attributes.superuser {
            return Err(denied("must be superuser to alter superusers"));
        }
        let may = self.may_create_roles() && !group.is_predefined()
            || self.access().is_admin(subject.role, group.oid);
        match may {
            true => Ok(()),
            false => Err(denied(format!(
                "must have admin option on role \"{}\"",
                group.name
            ))),
        }
    }

    fn join_role(
        &mut self,
        group: &Arc<Role>,
        member: &Arc<Role>,
        admin: bool,
        grantor: u32,
    ) -> Result<()> {
        if group.oid == DATABASE_OWNER_OID {
            return Err(Error::new(
                sqlstate::INVALID_GRANT_OPERATION,
                "role \"pg_database_owner\" cannot have explicit members",
            ));
        }
        let access = self.access();
        if access.is_member(group.oid, member.oid) {
            return Err(Error::new(
                sqlstate::INVALID_GRANT_OPERATION,
                format!(
                    "role \"{}\" is a member of role \"{}\"",
                    group.name, member.name
                ),
            ));
        }
        let mut memberships = access.memberships().iter();
        let known = memberships.find(|m| (m.role, m.member) == (group.oid, member.oid));
        if known.is_some_and(|m| m.admin || !admin) {
            self.notice(format!(
                "role \"{}\" is already a member of role \"{}\"",
                member.name, group.name
            ));
            return Ok(());
        }
        self.stage_access(AccessChange::PutMembership(Membership {
            role: group.oid,
            member: member.oid,
            grantor,
            admin,
        }))
    }

    fn leave_role(&mut self, group: &Role, member: &Role, admin_only: bool) -> Result<()> {
        let access = self.access();
        let mut memberships = access.memberships().iter();
        let Some(known) = memberships.find(|m| (m.role, m.member) == (group.oid, member.oid))
        else {
            self.warn(
                "01000",
                format!(
                    "role \"{}\" is not a member of role \"{}\"",
                    member.name, group.name
                ),
            );
            return Ok(());
        };
        self.stage_access(match admin_only {
            true => AccessChange::PutMembership(Membership {
                admin: false,
                ..*known
            }),
            false => AccessChange::DropMembership {
                role: group.oid,
                member: member.oid,
            },
        })
    }
}

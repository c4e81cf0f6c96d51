//! Changes of roles, owners and grants, as a transaction of the catalog stages them.
//!
//! A change that overwrites carries what it found: what another session changed meanwhile is
//! refused, never lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acl::Acl;
use super::role::{Membership, Role};
use super::{Access, DefaultAcl, Entry, OID_PUBLIC, ObjectKey};
use crate::error::{Error, Result, sqlstate};

/// One change.
#[derive(Debug, Clone)]
pub enum AccessChange {
    /// A new role.
    CreateRole(Arc<Role>),
    /// Other attributes, or another name, of a role.
    PutRole {
        /// what it was
        before: Arc<Role>,
        /// what it becomes; the same `oid`
        role: Arc<Role>,
    },
    /// A role goes, with its memberships.
    DropRole(Arc<Role>),
    /// A role is in another one, from now on or with another option.
    PutMembership(Membership),
    /// It is no longer.
    DropMembership {
        /// the group
        role: u32,
        /// who was in it
        member: u32,
    },
    /// Another owner; the list says so too.
    SetOwner(ObjectKey, u32),
    /// Another list.
    SetAcl {
        /// of what
        key: ObjectKey,
        /// what it was
        before: Option<Acl>,
        /// what it becomes
        acl: Option<Acl>,
    },
    /// Other default privileges, or with `None` no longer any.
    SetDefault {
        /// what they were
        before: Option<DefaultAcl>,
        /// what they become
        after: Option<DefaultAcl>,
    },
    /// What a relation has goes over to the one that takes its place.
    Inherit {
        /// identifier of the relation that goes
        from: u32,
        /// and of that which comes
        to: u32,
    },
}

impl Access {
    /// Applies a change, or refuses it.
    pub(crate) fn apply(&mut self, change: &AccessChange) -> Result<()> {
        match change {
            AccessChange::CreateRole(role) => {
                if self.roles.contains_key(&role.name) {
                    return Err(duplicate_role(&role.name));
                }
                self.roles.insert(role.name.clone(), role.clone());
            }
            AccessChange::PutRole { before, role } => {
                self.expect_role(before)?;
                if role.name != before.name && self.roles.contains_key(&role.name) {
                    return Err(duplicate_role(&role.name));
                }
                self.roles.remove(&before.name);
                self.roles.insert(role.name.clone(), role.clone());
            }
            AccessChange::DropRole(role) => {
                self.expect_role(role)?;
                self.roles.remove(&role.name);
                self.memberships
                    .retain(|m| m.role != role.oid && m.member != role.oid);
            }
            AccessChange::PutMembership(membership) => {
                let same =
                    |m: &Membership| (m.role, m.member) == (membership.role, membership.member);
                self.memberships.retain(|m| !same(m));
                self.memberships.push(*membership);
            }
            AccessChange::DropMembership { role, member } => {
                self.memberships
                    .retain(|m| (m.role, m.member) != (*role, *member));
            }
            AccessChange::SetOwner(key, owner) => self.set_owner(key, *owner),
            AccessChange::SetAcl { key, before, acl } => {
                if self.acl(key) != before.as_ref() {
                    return Err(changed_meanwhile("privileges"));
                }
                let entry = self.entries.entry(key.clone()).or_default();
                entry.acl.clone_from(acl);
                self.entries.retain(|_, entry| *entry != Entry::default());
            }
            AccessChange::SetDefault { before, after } => {
                if let Some(before) = before {
                    let at = self.defaults.iter().position(|d| d == before);
                    let at = at.ok_or_else(|| changed_meanwhile("default privileges"))?;
                    self.defaults.remove(at);
                } else if let Some(after) = after
                    && self
                        .defaults
                        .iter()
                        .any(|d| (d.role, d.in_schema) == (after.role, after.in_schema))
                {
                    return Err(changed_meanwhile("default privileges"));
                }
                self.defaults.extend(after.clone());
            }
            AccessChange::Inherit { from, to } => self.inherit(*from, *to),
        }
        self.note_passwords();
        Ok(())
    }

    fn set_owner(&mut self, key: &ObjectKey, owner: u32) {
        let old = self.owner(key);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.owner = Some(owner);
        if let Some(acl) = &mut entry.acl {
            acl.change_owner(old, owner);
        }
        if let ObjectKey::Relation(oid) = key {
            let columns = ObjectKey::Column(*oid, 0)..=ObjectKey::Column(*oid, u32::MAX);
            for (_, column) in self.entries.range_mut(columns) {
                if let Some(acl) = &mut column.acl {
                    acl.change_owner(old, owner);
                }
            }
        }
    }

    fn inherit(&mut self, from: u32, to: u32) {
        let columns = ObjectKey::Column(from, 0)..=ObjectKey::Column(from, u32::MAX);
        let columns = self.entries.range(columns).map(|(key, entry)| match key {
            ObjectKey::Column(_, place) => (ObjectKey::Column(to, *place), entry.clone()),
            key => (key.clone(), entry.clone()),
        });
        let mut entries: Vec<_> = columns.collect();
        if let Some(entry) = self.entries.get(&ObjectKey::Relation(from)) {
            entries.push((ObjectKey::Relation(to), entry.clone()));
        }
        let is_new = |key: &ObjectKey| matches!(key, ObjectKey::Relation(oid) | ObjectKey::Column(oid, _) if *oid == to);
        self.entries.retain(|key, _| !is_new(key));
        self.entries.extend(entries);
    }

    /// What objects that are gone had goes too.
    pub(in crate::catalog) fn retain(&mut self, exists: impl Fn(&ObjectKey) -> bool) {
        self.entries.retain(|key, _| exists(key));
    }

    /// Every role that something names is there.
    pub(in crate::catalog) fn check_roles(&self) -> Result<()> {
        let known: BTreeSet<u32> = self.roles.values().map(|role| role.oid).collect();
        let is_gone = |role: &u32| *role != OID_PUBLIC && !known.contains(role);
        let of_acl = |acl: &Acl| {
            let roles = acl.0.iter().flat_map(|item| [item.grantee, item.grantor]);
            roles.collect::<Vec<_>>()
        };
        let owners = self.entries.values().filter_map(|entry| entry.owner);
        let listed = self.entries.values().filter_map(|e| e.acl.as_ref());
        let defaults = self.defaults.iter().flat_map(|d| {
            let roles = of_acl(&d.acl);
            roles.into_iter().chain([d.role])
        });
        let members = self.memberships.iter().flat_map(|m| [m.role, m.member]);
        let mut named = owners
            .chain(listed.flat_map(of_acl))
            .chain(defaults)
            .chain(members);
        match named.any(|role| is_gone(&role)) {
            true => Err(changed_meanwhile("a role")),
            false => Ok(()),
        }
    }

    fn expect_role(&self, role: &Arc<Role>) -> Result<()> {
        match self.roles.get(&role.name) {
            Some(found) if found == role => Ok(()),
            _ => Err(changed_meanwhile(&format!("role \"{}\"", role.name))),
        }
    }
}

/// 42710: the name is taken.
pub fn duplicate_role(name: &str) -> Error {
    Error::new(
        sqlstate::DUPLICATE_OBJECT,
        format!("role \"{name}\" already exists"),
    )
}

fn changed_meanwhile(what: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("could not change {what}: another transaction changed it"),
    )
    .hint("Run the transaction again.")
}

//! Who acts: a role, and all roles whose privileges it has.

use std::collections::BTreeSet;

use super::acl::Privileges;
use super::role::{BOOTSTRAP_OID, READ_ALL_DATA_OID, READ_ALL_STATS_OID, WRITE_ALL_DATA_OID};
use super::{Access, ObjectKey};

/// A role at work. Made once for many checks, of one version of [`Access`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// the role
    pub role: u32,
    /// its name
    pub name: String,
    /// no check stops it
    pub is_superuser: bool,
    acts_for: BTreeSet<u32>,
}

impl Subject {
    /// The database itself: pipelines, and a library that holds the files anyway.
    pub fn system() -> Self {
        Self {
            role: BOOTSTRAP_OID,
            name: super::role::BOOTSTRAP_NAME.to_owned(),
            is_superuser: true,
            acts_for: BTreeSet::from([BOOTSTRAP_OID]),
        }
    }

    /// It has the privileges of a role.
    pub fn acts_for(&self, role: u32) -> bool {
        self.is_superuser || self.acts_for.contains(&role)
    }

    /// It sees statements of others.
    pub fn reads_statistics(&self) -> bool {
        self.acts_for(READ_ALL_STATS_OID)
    }
}

impl Access {
    /// A role at work; one that is gone has what everyone has.
    pub fn subject(&self, oid: u32) -> Subject {
        match self.role_by_oid(oid) {
            Some(role) => Subject {
                role: oid,
                name: role.name.clone(),
                is_superuser: role.attributes.superuser,
                acts_for: self.roles_of(oid, true),
            },
            None => Subject {
                role: oid,
                name: self.role_name(oid),
                is_superuser: false,
                acts_for: BTreeSet::new(),
            },
        }
    }

    /// It owns the object, or has the privileges of the role that does.
    pub fn owns(&self, subject: &Subject, key: &ObjectKey) -> bool {
        subject.is_superuser || subject.acts_for.contains(&self.owner(key))
    }

    /// It has all of these privileges of the object.
    pub fn allows(&self, subject: &Subject, key: &ObjectKey, needed: Privileges) -> bool {
        subject.is_superuser || self.holds(subject, key).contains(needed)
    }

    /// All its privileges of the object.
    pub fn holds(&self, subject: &Subject, key: &ObjectKey) -> Privileges {
        if subject.is_superuser {
            return key.privileges();
        }
        let acts_for = |role: u32| subject.acts_for.contains(&role);
        let listed = match self.acl(key) {
            Some(acl) => acl.held(acts_for),
            None => {
                let of_owner = match acts_for(self.owner(key)) {
                    true if !matches!(key, ObjectKey::Column(..)) => key.privileges(),
                    _ => Privileges::NONE,
                };
                of_owner.union(key.public_privileges())
            }
        };
        listed.union(of_predefined_roles(key, acts_for))
    }

    /// What it may grant on: all of it for the owner.
    pub fn grantable(&self, subject: &Subject, key: &ObjectKey) -> Privileges {
        if self.owns(subject, key) {
            return key.privileges();
        }
        let acl = self.acl(key);
        acl.map_or(Privileges::NONE, |acl| {
            acl.grantable(|role| subject.acts_for.contains(&role))
        })
    }

    /// Of the columns of a relation: whether it has the privilege of one at least.
    pub fn allows_any_column(&self, subject: &Subject, oid: u32, needed: Privileges) -> bool {
        let columns = ObjectKey::Column(oid, 0)..=ObjectKey::Column(oid, u32::MAX);
        let acts_for = |role: u32| subject.acts_for.contains(&role);
        subject.is_superuser
            || self.entries.range(columns).any(|(_, entry)| {
                let acl = entry.acl.as_ref();
                acl.is_some_and(|acl| acl.held(acts_for).contains(needed))
            })
    }
}

/// `pg_read_all_data` and `pg_write_all_data`.
fn of_predefined_roles(key: &ObjectKey, acts_for: impl Fn(u32) -> bool) -> Privileges {
    let (reads, writes) = match key {
        ObjectKey::Relation(_) => (
            Privileges::SELECT,
            Privileges::INSERT
                .union(Privileges::UPDATE)
                .union(Privileges::DELETE),
        ),
        ObjectKey::Schema => (Privileges::USAGE, Privileges::USAGE),
        _ => return Privileges::NONE,
    };
    let mut privileges = Privileges::NONE;
    if acts_for(READ_ALL_DATA_OID) {
        privileges = privileges.union(reads);
    }
    if acts_for(WRITE_ALL_DATA_OID) {
        privileges = privileges.union(writes);
    }
    privileges
}

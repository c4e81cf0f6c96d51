//! Who there is, what belongs to whom, and who may do what: the part of the catalog that every
//! statement asks.
//!
//! ```text
//! Access (roles, memberships, owners, lists) ──subject──► Subject (who acts, as which roles)
//!        └────────────── holds(subject, object) ◄──────────────┘
//! ```
//!
//! Objects are named by what does not change: relations by their identifier, columns by their place
//! in the stored rows, so that a renaming takes its grants along. An object without an entry belongs
//! to the bootstrap role and has PostgreSQL's default privileges. A check is a look-up in a
//! snapshot. Absent: SQL, sessions, the wire.

pub mod acl;
mod changes;
pub mod password;
pub mod role;
mod subject;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::acl::{Acl, AclItem, Privileges};
use self::role::{BOOTSTRAP_OID, DATABASE_OWNER_OID, Membership, Role};

pub use changes::AccessChange;
pub use subject::Subject;

/// The grantee that is everyone.
pub const OID_PUBLIC: u32 = 0;

/// What privileges are of, by what does not change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKey {
    /// the database
    Database,
    /// the schema `public`
    Schema,
    /// stream, table, view, materialized view, sink or index, by its identifier
    Relation(u32),
    /// a column, by its relation and its place in the stored rows
    Column(u32, u32),
    /// a pipeline, by its name
    Pipeline(String),
    /// a secret, by its name
    Secret(String),
    /// a function or aggregate, by its identifier
    Function(u32),
}

const TABLE_PRIVILEGES: Privileges = Privileges::INSERT
    .union(Privileges::SELECT)
    .union(Privileges::UPDATE)
    .union(Privileges::DELETE)
    .union(Privileges::TRUNCATE)
    .union(Privileges::REFERENCES)
    .union(Privileges::TRIGGER);

impl ObjectKey {
    /// All that can be granted of it.
    pub fn privileges(&self) -> Privileges {
        match self {
            Self::Database => Privileges::CREATE
                .union(Privileges::TEMPORARY)
                .union(Privileges::CONNECT),
            Self::Schema => Privileges::USAGE.union(Privileges::CREATE),
            Self::Relation(_) => TABLE_PRIVILEGES,
            Self::Column(..) => Privileges::INSERT
                .union(Privileges::SELECT)
                .union(Privileges::UPDATE)
                .union(Privileges::REFERENCES),
            Self::Pipeline(_) => Privileges::RECOVERY,
            Self::Secret(_) => Privileges::USAGE,
            Self::Function(_) => Privileges::EXECUTE,
        }
    }

    /// What everyone has unless it was taken back.
    fn public_privileges(&self) -> Privileges {
        match self {
            Self::Database => Privileges::TEMPORARY.union(Privileges::CONNECT),
            Self::Schema => Privileges::USAGE,
            Self::Function(_) => Privileges::EXECUTE,
            Self::Relation(_) | Self::Column(..) | Self::Pipeline(_) | Self::Secret(_) => {
                Privileges::NONE
            }
        }
    }
}

/// What is kept of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entry {
    /// `None`: the bootstrap role's; that of a column is its relation's
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// `None`: the default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Acl>,
}

/// `ALTER DEFAULT PRIVILEGES`: what relations that a role creates begin with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultAcl {
    /// whose relations
    pub role: u32,
    /// `IN SCHEMA public`: added to the others
    pub in_schema: bool,
    /// what they begin with
    pub acl: Acl,
}

/// Roles, owners and grants at one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Access {
    roles: BTreeMap<String, Arc<Role>>,
    memberships: Vec<Membership>,
    entries: BTreeMap<ObjectKey, Entry>,
    defaults: Vec<DefaultAcl>,
    has_passwords: bool,
}

/// As it stands in the catalog's file; JSON has no maps with such keys.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    roles: Vec<Arc<Role>>,
    memberships: Vec<Membership>,
    entries: Vec<(ObjectKey, Entry)>,
    #[serde(default)]
    defaults: Vec<DefaultAcl>,
}

impl From<Stored> for Access {
    fn from(stored: Stored) -> Self {
        let mut access = Self::default();
        for role in stored.roles {
            access.roles.retain(|_, known| known.oid != role.oid);
            access.roles.insert(role.name.clone(), role);
        }
        for membership in stored.memberships {
            if !access.memberships.contains(&membership) {
                access.memberships.push(membership);
            }
        }
        access.entries = stored.entries.into_iter().collect();
        access.defaults = stored.defaults;
        access.note_passwords();
        access
    }
}

impl From<Access> for Stored {
    fn from(access: Access) -> Self {
        Self {
            roles: access.roles.into_values().collect(),
            memberships: access.memberships,
            entries: access.entries.into_iter().collect(),
            defaults: access.defaults,
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        let roles = role::predefined().into_iter();
        Self {
            roles: roles.map(|r| (r.name.clone(), Arc::new(r))).collect(),
            memberships: role::predefined_memberships(),
            entries: BTreeMap::new(),
            defaults: Vec::new(),
            has_passwords: false,
        }
    }
}

impl Access {
    /// A role by its name.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// A role by its identifier.
    pub fn role_by_oid(&self, oid: u32) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.oid == oid)
    }

    /// A role's name; for one that is gone, what PostgreSQL says.
    pub fn role_name(&self, oid: u32) -> String {
        match self.role_by_oid(oid) {
            Some(role) => role.name.clone(),
            None => format!("unknown (OID={oid})"),
        }
    }

    /// All roles, by name.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// Who is in which role.
    pub fn memberships(&self) -> &[Membership] {
        &self.memberships
    }

    /// What new relations begin with.
    pub fn defaults(&self) -> &[DefaultAcl] {
        &self.defaults
    }

    /// A user has a password, so that everyone must say who they are.
    pub fn requires_authentication(&self) -> bool {
        self.has_passwords
    }

    /// A superuser who may log in has a password.
    pub fn has_superuser_with_password(&self) -> bool {
        self.roles.values().any(|role| {
            role.attributes.superuser && role.attributes.login && role.verifier.is_some()
        })
    }

    /// The owner of an object.
    pub fn owner(&self, key: &ObjectKey) -> u32 {
        let asked = match key {
            ObjectKey::Column(relation, _) => &ObjectKey::Relation(*relation),
            key => key,
        };
        let own = self.entries.get(asked).and_then(|entry| entry.owner);
        own.unwrap_or(match key {
            ObjectKey::Schema => DATABASE_OWNER_OID,
            _ => BOOTSTRAP_OID,
        })
    }

    /// The list that was made by GRANT and REVOKE; `None`: the default.
    pub fn acl(&self, key: &ObjectKey) -> Option<&Acl> {
        self.entries.get(key)?.acl.as_ref()
    }

    /// Objects with an owner or list of their own.
    pub fn entries(&self) -> impl Iterator<Item = (&ObjectKey, &Entry)> {
        self.entries.iter()
    }

    /// The list in force, the default one written out.
    pub fn effective_acl(&self, key: &ObjectKey) -> Acl {
        match self.acl(key) {
            Some(acl) => acl.clone(),
            None => self.default_acl(key),
        }
    }

    /// What an object of this owner has without any GRANT.
    pub fn default_acl(&self, key: &ObjectKey) -> Acl {
        let owner = self.owner(key);
        if let ObjectKey::Column(..) = key {
            return Acl::default();
        }
        let item = |grantee, privileges| AclItem {
            grantee,
            grantor: owner,
            privileges,
            grantable: Privileges::NONE,
        };
        let of_owner = item(owner, key.privileges());
        let of_public = item(OID_PUBLIC, key.public_privileges());
        let items = [of_public, of_owner].into_iter();
        // PostgreSQL's own schema list has them the other way round, as initdb granted them.
        let mut items: Vec<_> = items.filter(|i| !i.privileges.is_empty()).collect();
        if *key == ObjectKey::Schema {
            items.reverse();
        }
        Acl(items)
    }

    /// What a new relation of this owner begins with; `None`: nothing but the default.
    pub fn acl_of_new_relation(&self, owner: u32, oid: u32) -> Option<Acl> {
        let of_role = |in_schema: bool| {
            let mut defaults = self.defaults.iter();
            defaults.find(|d| d.role == owner && d.in_schema == in_schema)
        };
        let plain = Acl(vec![AclItem {
            grantee: owner,
            grantor: owner,
            privileges: ObjectKey::Relation(oid).privileges(),
            grantable: Privileges::NONE,
        }]);
        let mut acl = of_role(false).map_or_else(|| plain.clone(), |d| d.acl.clone());
        for item in of_role(true).into_iter().flat_map(|d| &d.acl.0) {
            let same = |i: &&mut AclItem| i.grantee == item.grantee && i.grantor == item.grantor;
            match acl.0.iter_mut().find(same) {
                Some(known) => {
                    known.privileges = known.privileges.union(item.privileges);
                    known.grantable = known.grantable.union(item.grantable);
                }
                None => acl.0.push(*item),
            }
        }
        (acl != plain).then_some(acl)
    }

    /// Whether `member` is in `role`, directly or not; through roles that do not inherit too.
    pub fn is_member(&self, member: u32, role: u32) -> bool {
        member == role || self.roles_of(member, false).contains(&role)
    }

    /// All roles that `member` is in, itself included; with `inherited_only`, those whose
    /// privileges it has without `SET ROLE`.
    pub fn roles_of(&self, member: u32, inherited_only: bool) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([member]);
        let mut open = vec![member];
        while let Some(next) = open.pop() {
            if self.owner(&ObjectKey::Database) == next && found.insert(DATABASE_OWNER_OID) {
                open.push(DATABASE_OWNER_OID);
            }
            let passes_on = !inherited_only
                || self
                    .role_by_oid(next)
                    .is_some_and(|role| role.attributes.inherit);
            if !passes_on {
                continue;
            }
            for membership in self.memberships.iter().filter(|m| m.member == next) {
                if found.insert(membership.role) {
                    open.push(membership.role);
                }
            }
        }
        found
    }

    /// `member` may let others into `role`.
    pub fn is_admin(&self, member: u32, role: u32) -> bool {
        let mine = self.roles_of(member, false);
        let mut memberships = self.memberships.iter();
        memberships.any(|m| m.admin && m.role == role && mine.contains(&m.member))
    }

    fn note_passwords(&mut self) {
        self.has_passwords = self
            .roles
            .values()
            .any(|role| role.verifier.is_some() && role.attributes.login);
    }
}

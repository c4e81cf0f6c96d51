//! Roles, owners and privileges as `pg_catalog` and `information_schema` tell of them.
//!
//! In a session under a name that is no role, the bootstrap role goes by that name, so that what a
//! client joins with `current_user` is found.

use std::collections::BTreeMap;

use super::backends::Backend;
use super::model::{Catalog, OWNER_OID, PUBLIC_OID, Relation, TEMPORARY_OID, namespace_name};
use super::relation::{Datum, Row, row};
use super::{DATABASE_NAME, information};
use crate::catalog::access::acl::{Acl, Privileges};
use crate::catalog::access::role::{BOOTSTRAP_OID, DATABASE_OWNER_OID, Role, SIGNAL_BACKEND_OID};
use crate::catalog::access::{OID_PUBLIC, ObjectKey};
use crate::error::{Error, Result, sqlstate};

/// Relations with what passwords are checked against.
const FOR_SUPERUSERS: [&str; 2] = ["pg_authid", "pg_shadow"];

impl Catalog {
    /// A role's name, or PostgreSQL's words for none.
    pub fn role_name(&self, oid: i64) -> String {
        self.known_role_name(oid)
            .unwrap_or_else(|| format!("unknown (OID={oid})"))
    }

    /// A role's name, if there is one.
    pub fn known_role_name(&self, oid: i64) -> Option<String> {
        let access = self.model.access();
        let user = &self.facts.user;
        if oid == OWNER_OID && access.role(user).is_none() {
            return Some(user.clone());
        }
        let role = access.role_by_oid(u32::try_from(oid).ok()?)?;
        Some(role.name.clone())
    }

    /// A role by its name.
    pub fn role_named(&self, name: &str) -> Option<i64> {
        let access = self.model.access();
        match access.role(name) {
            Some(role) => Some(role.oid.into()),
            None => (*name == self.facts.user).then_some(OWNER_OID),
        }
    }

    /// The role of a connected user; a name that is none is the bootstrap role's.
    pub fn role_of_user(&self, name: &str) -> i64 {
        self.role_named(name).unwrap_or(OWNER_OID)
    }

    /// The owner of an object.
    pub fn owner_of(&self, key: &ObjectKey) -> i64 {
        self.model.access().owner(key).into()
    }

    /// What was granted of an object; NULL where nothing was.
    pub fn acl_of(&self, key: &ObjectKey) -> Datum {
        let access = self.model.access();
        access.acl(key).map(|acl| self.acl_texts(acl)).into()
    }

    fn acl_texts(&self, acl: &Acl) -> Vec<String> {
        acl.texts(|oid| self.role_name(oid.into()))
    }

    pub fn relation_acl(&self, r: &Relation) -> Datum {
        match (r.is_users(), u32::try_from(r.oid)) {
            (true, Ok(oid)) => self.acl_of(&ObjectKey::Relation(oid)),
            (true, Err(_)) => Datum::Null,
            (false, _) if r.namespace == TEMPORARY_OID => Datum::Null,
            (false, _) if r.kind == 'i' || is_for_superusers(&r.name) => Datum::Null,
            // As initdb grants it.
            (false, _) => vec![
                format!("{0}=arwdDxt/{0}", self.role_name(OWNER_OID)),
                format!("=r/{}", self.role_name(OWNER_OID)),
            ]
            .into(),
        }
    }

    /// What was granted of columns, by relation and place.
    pub fn column_acls(&self) -> BTreeMap<(i64, usize), Vec<String>> {
        let access = self.model.access();
        let mut acls = BTreeMap::new();
        if !access
            .entries()
            .any(|(key, _)| matches!(key, ObjectKey::Column(..)))
        {
            return acls;
        }
        for object in self.model.objects() {
            for at in 0..object.columns().len() {
                let key = ObjectKey::Column(object.oid, object.stored_index(at) as u32);
                if let Some(acl) = access.acl(&key) {
                    acls.insert((object.oid.into(), at), self.acl_texts(acl));
                }
            }
        }
        acls
    }

    pub fn schema_owner(&self, oid: i64) -> i64 {
        match oid {
            PUBLIC_OID => self.owner_of(&ObjectKey::Schema),
            _ => OWNER_OID,
        }
    }

    /// As initdb makes them, until something is granted.
    pub fn schema_acl(&self, oid: i64) -> Datum {
        let access = self.model.access();
        match oid {
            PUBLIC_OID => self
                .acl_texts(&access.effective_acl(&ObjectKey::Schema))
                .into(),
            _ => {
                let owner = self.role_name(OWNER_OID);
                vec![format!("{owner}=UC/{owner}"), format!("=U/{owner}")].into()
            }
        }
    }

    /// It sees what sessions of that user say.
    pub fn sees_statements_of(&self, user: &str) -> bool {
        let subject = self.model.subject();
        let role = u32::try_from(self.role_of_user(user)).unwrap_or(BOOTSTRAP_OID);
        subject.reads_statistics() || subject.acts_for(role)
    }

    /// Who may stop others.
    pub fn check_signal(&self, backend: &Backend, superuser: &str, what: &str) -> Result<()> {
        let subject = self.model.subject();
        if subject.is_superuser {
            return Ok(());
        }
        let user = backend.activity().user;
        let role = u32::try_from(self.role_of_user(&user)).unwrap_or(BOOTSTRAP_OID);
        let access = self.model.access();
        if access.subject(role).is_superuser {
            return Err(denied(format!("must be a superuser to {superuser}")));
        }
        match subject.acts_for(role) || subject.acts_for(SIGNAL_BACKEND_OID) {
            true => Ok(()),
            false => Err(denied(format!(
                "must be a member of the role whose {what} or member of pg_signal_backend"
            ))),
        }
    }

    /// Some relations are for superusers.
    pub fn check_readable(&self, relation: &str) -> Result<()> {
        let is_closed = is_for_superusers(relation) && !self.model.subject().is_superuser;
        match is_closed {
            false => Ok(()),
            true => {
                let kind = if relation == "pg_authid" {
                    "table"
                } else {
                    "view"
                };
                Err(denied(format!("permission denied for {kind} {relation}")))
            }
        }
    }

    /// `information_schema` tells of what one may do something with.
    pub fn shows(&self, r: &Relation) -> bool {
        let subject = self.model.subject();
        let Ok(oid) = u32::try_from(r.oid) else {
            return true;
        };
        if subject.is_superuser || !r.is_users() {
            return true;
        }
        let access = self.model.access();
        let key = ObjectKey::Relation(oid);
        let any = [Privileges::SELECT, Privileges::INSERT, Privileges::UPDATE];
        let mut of_columns = any.iter();
        access.owns(&subject, &key)
            || !access.holds(&subject, &key).is_empty()
            || of_columns.any(|p| access.allows_any_column(&subject, oid, *p))
    }

    /// A column of which one may do something.
    pub fn shows_column(&self, r: &Relation, at: usize) -> bool {
        let subject = self.model.subject();
        if subject.is_superuser || !r.is_users() {
            return true;
        }
        let Some((relation, column)) = self.column_keys(r, at) else {
            return true;
        };
        let access = self.model.access();
        access.owns(&subject, &relation)
            || !access
                .holds(&subject, &relation)
                .intersection(column.privileges())
                .is_empty()
            || !access.holds(&subject, &column).is_empty()
    }

    /// The names of a relation and of one of its columns in lists.
    pub fn column_keys(&self, r: &Relation, at: usize) -> Option<(ObjectKey, ObjectKey)> {
        let oid = u32::try_from(r.oid).ok()?;
        let objects = self.model.objects();
        let object = objects.iter().find(|object| object.oid == oid)?;
        let place = object.stored_index(at) as u32;
        Some((ObjectKey::Relation(oid), ObjectKey::Column(oid, place)))
    }
}

fn is_for_superusers(relation: &str) -> bool {
    FOR_SUPERUSERS.contains(&relation)
}

fn denied(message: impl Into<String>) -> Error {
    Error::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
}

fn sorted_roles(catalog: &Catalog) -> Vec<(i64, String, Role)> {
    let access = catalog.model.access();
    let mut roles: Vec<_> = access
        .roles()
        .map(|role| {
            let oid = i64::from(role.oid);
            (oid, catalog.role_name(oid), Role::clone(role))
        })
        .collect();
    roles.sort_by_key(|(oid, ..)| *oid);
    roles
}

fn settings_of(role: &Role) -> Datum {
    let settings = role.settings.iter();
    let settings: Vec<String> = settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (!settings.is_empty()).then_some(settings).into()
}

/// `pg_roles`, and `pg_authid` with what passwords are checked against.
pub(super) fn roles(catalog: &Catalog, hide_password: bool) -> Vec<Row> {
    let row = |(oid, name, role): &(i64, String, Role)| {
        let attributes = role.attributes;
        let verifier = role.verifier.as_ref().map(|v| v.as_text().to_owned());
        let password = match hide_password {
            true => Some("********".to_owned()),
            false => verifier,
        };
        row! {
            oid: *oid,
            rolname: name.as_str(),
            rolsuper: attributes.superuser,
            rolinherit: attributes.inherit,
            rolcreaterole: attributes.create_role,
            rolcreatedb: attributes.create_db,
            rolcanlogin: attributes.login,
            rolreplication: attributes.replication,
            rolbypassrls: attributes.bypass_rls,
            rolconnlimit: i64::from(role.connection_limit),
            rolpassword: password,
            rolvaliduntil: role.valid_until_us.map(Datum::Time),
            rolconfig: settings_of(role),
        }
    };
    sorted_roles(catalog).iter().map(row).collect()
}

/// `pg_user`, and `pg_shadow` with what passwords are checked against.
pub(super) fn users(catalog: &Catalog, hide_password: bool) -> Vec<Row> {
    let mut users = sorted_roles(catalog);
    users.retain(|(.., role)| role.attributes.login);
    let row = |(oid, name, role): &(i64, String, Role)| {
        let attributes = role.attributes;
        let verifier = role.verifier.as_ref().map(|v| v.as_text().to_owned());
        row! {
            usename: name.as_str(),
            usesysid: *oid,
            usecreatedb: attributes.create_db,
            usesuper: attributes.superuser,
            userepl: attributes.replication,
            usebypassrls: attributes.bypass_rls,
            passwd: if hide_password { Some("********".to_owned()) } else { verifier },
            valuntil: role.valid_until_us.map(Datum::Time),
            useconfig: settings_of(role),
        }
    };
    users.iter().map(row).collect()
}

/// `pg_group`
pub(super) fn groups(catalog: &Catalog) -> Vec<Row> {
    let access = catalog.model.access();
    let mut groups = sorted_roles(catalog);
    groups.retain(|(.., role)| !role.attributes.login);
    let row = |(oid, name, role): &(i64, String, Role)| {
        let members = access.memberships().iter().filter(|m| m.role == role.oid);
        let members: Vec<i64> = members.map(|m| m.member.into()).collect();
        row! { groname: name.as_str(), grosysid: *oid, grolist: members }
    };
    groups.iter().map(row).collect()
}

/// `pg_auth_members`
pub(super) fn members(catalog: &Catalog) -> Vec<Row> {
    let access = catalog.model.access();
    let row = |m: &crate::catalog::access::role::Membership| {
        row! { roleid: m.role, member: m.member, grantor: m.grantor, admin_option: m.admin }
    };
    access.memberships().iter().map(row).collect()
}

/// `pg_default_acl`
pub(super) fn default_acls(catalog: &Catalog) -> Vec<Row> {
    let access = catalog.model.access();
    let row = |(at, default): (usize, &crate::catalog::access::DefaultAcl)| {
        row! {
            oid: 13_900 + at as i64,
            defaclrole: default.role,
            defaclnamespace: if default.in_schema { PUBLIC_OID } else { 0 },
            defaclobjtype: "r",
            defaclacl: catalog.acl_texts(&default.acl),
        }
    };
    access.defaults().iter().enumerate().map(row).collect()
}

/// `pg_db_role_setting`; parameters of a role hold in every database, of which there is one.
pub(super) fn role_settings(catalog: &Catalog) -> Vec<Row> {
    let mut roles = sorted_roles(catalog);
    roles.retain(|(.., role)| !role.settings.is_empty());
    let row = |(oid, _, role): &(i64, String, Role)| {
        row! { setdatabase: 0, setrole: *oid, setconfig: settings_of(role) }
    };
    roles.iter().map(row).collect()
}

// information_schema -----------------------------------------------------------------------------

fn enabled(catalog: &Catalog) -> Vec<u32> {
    let subject = catalog.model.subject();
    let access = catalog.model.access();
    match subject.is_superuser {
        true => access.roles().map(|role| role.oid).collect(),
        false => access.roles_of(subject.role, true).into_iter().collect(),
    }
}

/// `enabled_roles`
pub(super) fn enabled_roles(catalog: &Catalog) -> Vec<Row> {
    let roles = enabled(catalog).into_iter();
    roles
        .map(|oid| row! { role_name: catalog.role_name(oid.into()) })
        .collect()
}

/// `applicable_roles`
pub(super) fn applicable_roles(catalog: &Catalog) -> Vec<Row> {
    let access = catalog.model.access();
    let enabled = enabled(catalog);
    let owner = access.owner(&ObjectKey::Database);
    // Nobody says so, but it is a member.
    let of_owner = [(owner, DATABASE_OWNER_OID, false)].into_iter();
    let memberships = access.memberships().iter();
    let memberships = memberships.map(|m| (m.member, m.role, m.admin));
    memberships
        .chain(of_owner)
        .filter(|(member, ..)| enabled.contains(member))
        .map(|(member, role, admin)| {
            row! {
                grantee: catalog.role_name(member.into()),
                role_name: catalog.role_name(role.into()),
                is_grantable: if admin { "YES" } else { "NO" },
            }
        })
        .collect()
}

/// One privilege as the views tell it.
struct Told {
    grantor: u32,
    grantee: u32,
    name: &'static str,
    is_grantable: bool,
}

/// The privileges of a list that enabled roles have or gave; PUBLIC's too if asked.
fn told(catalog: &Catalog, acl: &Acl, owner: u32, with_public: bool) -> Vec<Told> {
    let enabled = enabled(catalog);
    let access = catalog.model.access();
    let mut told = Vec::new();
    for item in &acl.0 {
        let concerns = enabled.contains(&item.grantee)
            || enabled.contains(&item.grantor)
            || with_public && item.grantee == OID_PUBLIC;
        if !concerns
            || item.grantee == OID_PUBLIC && !with_public && !enabled.contains(&item.grantor)
        {
            continue;
        }
        let is_owners = item.grantee != OID_PUBLIC && access.subject(item.grantee).acts_for(owner);
        for (name, privilege) in item.privileges.each() {
            told.push(Told {
                grantor: item.grantor,
                grantee: item.grantee,
                name,
                is_grantable: is_owners || item.grantable.contains(privilege),
            });
        }
    }
    told
}

fn grantee_name(catalog: &Catalog, role: u32) -> String {
    match role {
        OID_PUBLIC => "PUBLIC".to_owned(),
        role => catalog.role_name(role.into()),
    }
}

fn user_lists(catalog: &Catalog) -> Vec<(Relation, ObjectKey, Acl, u32)> {
    let access = catalog.model.access();
    let mut relations = information::shown(catalog);
    relations.retain(Relation::is_users);
    let listed = relations.into_iter().filter_map(|r| {
        let key = ObjectKey::Relation(u32::try_from(r.oid).ok()?);
        let acl = access.effective_acl(&key);
        let owner = access.owner(&key);
        Some((r, key, acl, owner))
    });
    listed.collect()
}

/// `table_privileges`, and `role_table_grants` without PUBLIC's.
pub(super) fn table_privileges(catalog: &Catalog, with_public: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (r, _, acl, owner) in user_lists(catalog) {
        for one in told(catalog, &acl, owner, with_public) {
            rows.push(row! {
                grantor: catalog.role_name(one.grantor.into()),
                grantee: grantee_name(catalog, one.grantee),
                table_catalog: DATABASE_NAME,
                table_schema: namespace_name(r.namespace),
                table_name: r.name.as_str(),
                privilege_type: one.name,
                is_grantable: if one.is_grantable { "YES" } else { "NO" },
                with_hierarchy: if one.name == "SELECT" { "YES" } else { "NO" },
            });
        }
    }
    rows
}

/// `column_privileges`: those of the whole relation, for each column, and those of columns alone.
pub(super) fn column_privileges(catalog: &Catalog) -> Vec<Row> {
    let access = catalog.model.access();
    let mut rows = Vec::new();
    for (r, _, acl, owner) in user_lists(catalog) {
        for (at, column) in r.columns.iter().enumerate() {
            let Some((_, key)) = catalog.column_keys(&r, at) else {
                continue;
            };
            let of_column = access.acl(&key).cloned().unwrap_or_default();
            let mut seen = Vec::new();
            for one in [&acl, &of_column]
                .into_iter()
                .flat_map(|acl| told(catalog, acl, owner, true))
            {
                let is_of_columns =
                    Privileges::named(one.name).is_some_and(|p| key.privileges().contains(p));
                let same = (one.grantor, one.grantee, one.name);
                if !is_of_columns || seen.contains(&same) {
                    continue;
                }
                seen.push(same);
                rows.push(row! {
                    grantor: catalog.role_name(one.grantor.into()),
                    grantee: grantee_name(catalog, one.grantee),
                    table_catalog: DATABASE_NAME,
                    table_schema: namespace_name(r.namespace),
                    table_name: r.name.as_str(),
                    column_name: column.name.as_str(),
                    privilege_type: one.name,
                    is_grantable: if one.is_grantable { "YES" } else { "NO" },
                });
            }
        }
    }
    rows
}

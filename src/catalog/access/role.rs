//! Roles: users and groups, as PostgreSQL has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::password::Verifier;

/// The role that everything belongs to unless it says otherwise; it is always a superuser.
pub const BOOTSTRAP_OID: u32 = 10;
/// The name of that role until it is renamed.
pub const BOOTSTRAP_NAME: &str = "tidemill";
/// The owner of the database is its only member, always.
pub const DATABASE_OWNER_OID: u32 = 6_171;
/// `SELECT` on every relation and `USAGE` on every schema.
pub const READ_ALL_DATA_OID: u32 = 6_181;
/// `INSERT`, `UPDATE` and `DELETE` on every relation.
pub const WRITE_ALL_DATA_OID: u32 = 6_182;
/// All that a monitoring tool reads.
pub const MONITOR_OID: u32 = 3_373;
const READ_ALL_SETTINGS_OID: u32 = 3_374;
/// Statements of others in `pg_stat_activity` and in the audit trail.
pub const READ_ALL_STATS_OID: u32 = 3_375;
const SCAN_TABLES_OID: u32 = 3_377;
/// May cancel and end sessions of others that are no superusers.
pub const SIGNAL_BACKEND_OID: u32 = 4_200;

/// The roles that PostgreSQL 15 defines, with its OIDs.
const PREDEFINED: [(u32, &str); 12] = [
    (DATABASE_OWNER_OID, "pg_database_owner"),
    (READ_ALL_DATA_OID, "pg_read_all_data"),
    (WRITE_ALL_DATA_OID, "pg_write_all_data"),
    (MONITOR_OID, "pg_monitor"),
    (READ_ALL_SETTINGS_OID, "pg_read_all_settings"),
    (READ_ALL_STATS_OID, "pg_read_all_stats"),
    (SCAN_TABLES_OID, "pg_stat_scan_tables"),
    (4_569, "pg_read_server_files"),
    (4_570, "pg_write_server_files"),
    (4_571, "pg_execute_server_program"),
    (SIGNAL_BACKEND_OID, "pg_signal_backend"),
    (4_544, "pg_checkpoint"),
];

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Stable; 16384 and up for those that users create.
    pub oid: u32,
    /// Name, folded.
    pub name: String,
    /// What it may do beyond privileges.
    pub attributes: RoleAttributes,
    /// Connections at once; -1: no limit.
    pub connection_limit: i32,
    /// Its password is good until then, microseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_us: Option<i64>,
    /// What a password is checked against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Verifier>,
    /// `ALTER ROLE … SET`: what its sessions begin with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// `SUPERUSER`, `INHERIT`, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RoleAttributes {
    pub superuser: bool,
    pub inherit: bool,
    pub create_role: bool,
    pub create_db: bool,
    pub login: bool,
    pub replication: bool,
    pub bypass_rls: bool,
}

impl Default for RoleAttributes {
    fn default() -> Self {
        Self {
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            replication: false,
            bypass_rls: false,
        }
    }
}

impl Role {
    /// A role of which nothing is said but its name.
    pub fn new(oid: u32, name: impl Into<String>) -> Self {
        Self {
            oid,
            name: name.into(),
            attributes: RoleAttributes::default(),
            connection_limit: -1,
            valid_until_us: None,
            verifier: None,
            settings: BTreeMap::new(),
        }
    }

    /// It came with the database.
    pub fn is_predefined(&self) -> bool {
        self.oid < crate::catalog::FIRST_OID && self.oid != BOOTSTRAP_OID
    }
}

/// A role is a member of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// the group
    pub role: u32,
    /// who is in it
    pub member: u32,
    /// who said so
    pub grantor: u32,
    /// `WITH ADMIN OPTION`
    pub admin: bool,
}

/// The roles of a new database.
pub(super) fn predefined() -> Vec<Role> {
    let mut bootstrap = Role::new(BOOTSTRAP_OID, BOOTSTRAP_NAME);
    bootstrap.attributes = RoleAttributes {
        superuser: true,
        inherit: true,
        create_role: true,
        create_db: true,
        login: true,
        replication: true,
        bypass_rls: true,
    };
    let others = PREDEFINED.map(|(oid, name)| Role::new(oid, name));
    [bootstrap].into_iter().chain(others).collect()
}

/// The memberships of a new database.
pub(super) fn predefined_memberships() -> Vec<Membership> {
    let of_monitor = [READ_ALL_SETTINGS_OID, READ_ALL_STATS_OID, SCAN_TABLES_OID];
    of_monitor
        .map(|role| Membership {
            role,
            member: MONITOR_OID,
            grantor: BOOTSTRAP_OID,
            admin: false,
        })
        .to_vec()
}

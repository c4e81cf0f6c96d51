//! Statements about roles, owners and privileges. Pure, as all statements.

use std::fmt;

use super::statement::{FunctionReference, ObjectKind};

/// A password as it was given. Not shown by `Debug`, so that no log line has it.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenPassword(pub String);

impl fmt::Debug for GivenPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenPassword(…)")
    }
}

/// A role as statements name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleName {
    /// by its name
    Named(String),
    /// `CURRENT_USER`, `CURRENT_ROLE`
    Current,
    /// `SESSION_USER`
    Session,
    /// `PUBLIC`: everyone
    Public,
}

/// What a `CREATE` or `ALTER` says of a role; `None`: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub create_db: Option<bool>,
    pub create_role: Option<bool>,
    pub inherit: Option<bool>,
    pub login: Option<bool>,
    pub replication: Option<bool>,
    pub bypass_rls: Option<bool>,
    pub connection_limit: Option<i32>,
    /// `PASSWORD NULL` is `Some(None)`
    pub password: Option<Option<GivenPassword>>,
    /// microseconds since the epoch; `'infinity'` is `Some(None)`
    pub valid_until_us: Option<Option<i64>>,
    /// `IN ROLE`
    pub in_roles: Vec<RoleName>,
    /// `ROLE`
    pub members: Vec<RoleName>,
    /// `ADMIN`
    pub admins: Vec<RoleName>,
}

/// `ALTER ROLE … SET` and `RESET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleSetting {
    /// `SET name = value`; `None`: DEFAULT
    Set(String, Option<String>),
    /// `SET name FROM CURRENT`
    FromCurrent(String),
    /// `RESET name`
    Reset(String),
    /// `RESET ALL`
    ResetAll,
}

/// Objects of a GRANT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantObjects {
    /// relations; of a kind where it was said
    Relations(Vec<String>),
    /// `ALL TABLES IN SCHEMA public`; of one kind where it was said
    AllRelations(Option<ObjectKind>),
    /// schemas
    Schemas(Vec<String>),
    /// databases
    Databases(Vec<String>),
    /// pipelines
    Pipelines(Vec<String>),
    /// secrets
    Secrets(Vec<String>),
    /// what does not exist here, all of it: sequences
    Nothing,
}

/// One item of a list of privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedPrivilege {
    /// its name in capitals; `None`: `ALL`
    pub name: Option<String>,
    /// columns, where it is of these only
    pub columns: Vec<String>,
}

/// `GRANT … ON … TO …` and `REVOKE … ON … FROM …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// `REVOKE`
    pub is_revoke: bool,
    /// what
    pub privileges: Vec<GrantedPrivilege>,
    /// of what
    pub objects: GrantObjects,
    /// to or from whom
    pub grantees: Vec<RoleName>,
    /// `WITH GRANT OPTION`, or `GRANT OPTION FOR`
    pub grant_option: bool,
    /// `GRANTED BY`
    pub granted_by: Option<RoleName>,
    /// `CASCADE`
    pub cascade: bool,
}

/// `GRANT role TO role` and `REVOKE role FROM role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRole {
    /// `REVOKE`
    pub is_revoke: bool,
    /// the groups
    pub roles: Vec<RoleName>,
    /// who is to be in them
    pub members: Vec<RoleName>,
    /// `WITH ADMIN OPTION`, or `ADMIN OPTION FOR`
    pub admin: bool,
    /// `GRANTED BY`
    pub granted_by: Option<RoleName>,
}

/// `ALTER DEFAULT PRIVILEGES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultGrant {
    /// `FOR ROLE`; none: the current one
    pub roles: Vec<RoleName>,
    /// `IN SCHEMA`
    pub schemas: Vec<String>,
    /// of relations (true), or of what does not exist here
    pub on_relations: bool,
    /// the rest; its objects say nothing
    pub grant: Grant,
}

/// What gets another owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owned {
    /// a relation, sink, index, pipeline or secret
    Object(ObjectKind, String),
    /// a schema
    Schema(String),
    /// a database
    Database(String),
    /// a function or aggregate
    Function(FunctionReference),
}

/// A statement about roles, owners and privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessStatement {
    /// `CREATE USER | ROLE | GROUP`
    CreateRole {
        /// name
        name: String,
        /// options
        options: RoleOptions,
    },
    /// `ALTER USER | ROLE | GROUP` with options
    AlterRole {
        /// which
        role: RoleName,
        /// options
        options: RoleOptions,
    },
    /// `ALTER ROLE … RENAME TO`
    RenameRole {
        /// name
        name: String,
        /// new name
        new_name: String,
    },
    /// `ALTER ROLE … SET | RESET`
    AlterRoleSetting {
        /// which
        role: RoleName,
        /// what
        setting: RoleSetting,
    },
    /// `DROP USER | ROLE | GROUP`
    DropRole {
        /// names
        names: Vec<RoleName>,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// privileges
    Grant(Grant),
    /// memberships
    GrantRole(GrantRole),
    /// `ALTER DEFAULT PRIVILEGES`
    DefaultGrant(DefaultGrant),
    /// `ALTER … OWNER TO`
    AlterOwner {
        /// what
        object: Owned,
        /// to whom
        owner: RoleName,
    },
    /// `REASSIGN OWNED BY … TO …`
    ReassignOwned {
        /// whose
        roles: Vec<RoleName>,
        /// to whom
        to: RoleName,
    },
    /// `DROP OWNED BY …`
    DropOwned {
        /// whose
        roles: Vec<RoleName>,
        /// `CASCADE`
        cascade: bool,
    },
}

impl AccessStatement {
    /// Its command tag.
    pub fn tag(&self) -> String {
        match self {
            Self::CreateRole { .. } => "CREATE ROLE",
            Self::AlterRole { .. } | Self::RenameRole { .. } | Self::AlterRoleSetting { .. } => {
                "ALTER ROLE"
            }
            Self::DropRole { .. } => "DROP ROLE",
            Self::Grant(grant) if grant.is_revoke => "REVOKE",
            Self::Grant(_) => "GRANT",
            Self::GrantRole(grant) if grant.is_revoke => "REVOKE ROLE",
            Self::GrantRole(_) => "GRANT ROLE",
            Self::DefaultGrant(_) => "ALTER DEFAULT PRIVILEGES",
            Self::AlterOwner { object, .. } => {
                return match object {
                    Owned::Object(kind, _) => {
                        format!("ALTER {}", crate::catalog::snapshot::kind_keyword(*kind))
                    }
                    Owned::Schema(_) => "ALTER SCHEMA".to_owned(),
                    Owned::Database(_) => "ALTER DATABASE".to_owned(),
                    Owned::Function(_) => "ALTER FUNCTION".to_owned(),
                };
            }
            Self::ReassignOwned { .. } => "REASSIGN OWNED",
            Self::DropOwned { .. } => "DROP OWNED",
        }
        .to_owned()
    }
}

//! Whose session it is, and as which role it acts now.
//!
//! The login role is fixed when the session begins and known by its identifier, so that a role that
//! was dropped and created anew is another one. `SET ROLE` and `SET SESSION AUTHORIZATION` are
//! parameters, since they follow the transaction as all parameters do. A name that is no role is the
//! bootstrap role's, under that name: where nobody has a password, everyone on this machine is trusted.

use std::sync::Arc;

use crate::catalog::access::role::BOOTSTRAP_OID;
use crate::catalog::access::{Access, Subject};
use crate::error::{Error, Result, sqlstate};
use crate::session::settings::Settings;

/// A role that is gone: it has what everyone has.
const GONE: u32 = u32::MAX;
/// `SET ROLE` in force.
pub(in crate::session) const ROLE: &str = "role";
/// `SET SESSION AUTHORIZATION` in force.
pub(in crate::session) const SESSION_AUTHORIZATION: &str = "session_authorization";

/// Who began the session.
#[derive(Debug, Clone)]
pub(in crate::session) struct Identity {
    login: u32,
    name: String,
}

/// The subject of a version of the catalog and of the parameters.
pub(in crate::session) struct Acting {
    access: Arc<Access>,
    role: Option<String>,
    session: Option<String>,
    pub subject: Arc<Subject>,
}

impl Acting {
    /// Still what the session acts as.
    pub fn is_current(&self, access: &Arc<Access>, settings: &Settings) -> bool {
        Arc::ptr_eq(&self.access, access)
            && self.role == settings.get(ROLE)
            && self.session == settings.get(SESSION_AUTHORIZATION)
    }
}

impl Identity {
    /// A user by name.
    pub fn of(access: &Access, user: &str) -> Self {
        Self {
            login: access.role(user).map_or(BOOTSTRAP_OID, |role| role.oid),
            name: user.to_owned(),
        }
    }

    /// The name that the session began with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `session_user`.
    pub fn session_role(&self, access: &Access, settings: &Settings) -> u32 {
        match settings.get(SESSION_AUTHORIZATION) {
            Some(name) if name != self.name => access.role(&name).map_or(GONE, |r| r.oid),
            _ => match access.role_by_oid(self.login) {
                Some(_) => self.login,
                None => GONE,
            },
        }
    }

    /// `current_user`.
    pub fn current_role(&self, access: &Access, settings: &Settings) -> u32 {
        match settings.get(ROLE) {
            Some(name) if name != "none" => access.role(&name).map_or(GONE, |role| role.oid),
            _ => self.session_role(access, settings),
        }
    }

    /// As whom statements run now.
    pub fn acting(&self, access: &Arc<Access>, settings: &Settings) -> Acting {
        let role = self.current_role(access, settings);
        let mut subject = access.subject(role);
        if role == BOOTSTRAP_OID && access.role(&self.name).is_none() {
            subject.name.clone_from(&self.name);
        }
        Acting {
            access: access.clone(),
            role: settings.get(ROLE),
            session: settings.get(SESSION_AUTHORIZATION),
            subject: Arc::new(subject),
        }
    }

    /// Refuses what the session may not become.
    pub fn check_change(
        &self,
        access: &Access,
        settings: &Settings,
        parameter: &str,
        value: Option<&str>,
    ) -> Result<()> {
        let parameter = parameter.to_lowercase();
        let Some(name) = value else {
            return Ok(());
        };
        match parameter.as_str() {
            ROLE if name != "none" => {
                let wanted = known_role(access, name)?;
                let session = self.session_role(access, settings);
                let may = access.subject(session).is_superuser
                    || session != GONE && access.is_member(session, wanted);
                match may {
                    true => Ok(()),
                    false => Err(denied(format!("permission denied to set role \"{name}\""))),
                }
            }
            SESSION_AUTHORIZATION if name != self.name => {
                known_role(access, name)?;
                match access.subject(self.login).is_superuser {
                    true => Ok(()),
                    false => Err(denied("permission denied to set session authorization")),
                }
            }
            _ => Ok(()),
        }
    }
}

fn known_role(access: &Access, name: &str) -> Result<u32> {
    let role = access.role(name).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("role \"{name}\" does not exist"),
        )
    })?;
    Ok(role.oid)
}

/// 42501.
pub(in crate::session) fn denied(message: impl Into<String>) -> Error {
    Error::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
}

//! Who gets in: what everyone must show, and the checks after it. Shared by the wire and by HTTP.
//!
//! While no user has a password, clients on this machine are trusted and others refused. From the
//! first password on everyone shows one, or a certificate that TLS has verified and whose common name
//! is the user's. Who does not exist is answered as one whose password is wrong.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pgwire::api::auth::sasl::scram::ScramSecret;
use serde_json::json;

use super::failures::{Failures, client};
use super::tls::Tls;
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::password::mock_secret;
use crate::catalog::access::role::{MONITOR_OID, Role};
use crate::catalog::access::{Access, ObjectKey};
use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result, sqlstate};

/// Connections that have not said who they are, beyond the number of sessions.
const PENDING_EXTRA: usize = 100;

/// What is known of a client before it says anything.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// `None`: not encrypted
    pub encryption: Option<Encryption>,
}

/// An encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encryption {
    /// common name of the verified certificate, if the client showed one
    pub certificate_name: Option<String>,
    /// as `pg_stat_ssl` tells it
    pub version: Option<&'static str>,
    pub cipher: Option<&'static str>,
}

/// What a client must show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// nothing
    Trust,
    /// nothing more than its certificate
    Certificate,
    /// a password
    Password,
}

/// The gate of one server.
pub(super) struct Gate {
    pub database: Database,
    pub tls: Option<Arc<Tls>>,
    /// connections from elsewhere must be encrypted
    pub requires_tls: bool,
    max_connections: usize,
    sessions: AtomicUsize,
    pending: AtomicUsize,
    failures: Mutex<Failures>,
}

/// A place that is given back when dropped.
pub(super) struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// As [`Place`] among the sessions, for what outlives a call.
pub(super) struct Seat(Arc<Gate>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take(places: &AtomicUsize, limit: usize) -> Result<Place<'_>> {
    let taken = places.fetch_add(1, Ordering::Relaxed);
    let place = Place(places);
    match taken < limit {
        true => Ok(place),
        false => Err(Error::with_kind(
            ErrorKind::Transient,
            sqlstate::TOO_MANY_CONNECTIONS,
            "sorry, too many clients already",
        )),
    }
}

impl Gate {
    pub fn new(
        database: Database,
        tls: Option<Arc<Tls>>,
        requires_tls: bool,
        max_connections: usize,
    ) -> Self {
        Self {
            database,
            tls,
            requires_tls,
            max_connections,
            sessions: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            failures: Mutex::default(),
        }
    }

    /// A place among those that have not said who they are.
    pub fn enter(&self) -> Result<Place<'_>> {
        take(&self.pending, self.max_connections + PENDING_EXTRA)
    }

    /// A place for a session.
    pub fn begin_session(&self) -> Result<Place<'_>> {
        take(&self.sessions, self.max_connections)
    }

    /// As [`Self::begin_session`].
    pub fn take_seat(self: &Arc<Self>) -> Result<Seat> {
        // Given back by the seat.
        std::mem::forget(self.begin_session()?);
        Ok(Seat(Arc::clone(self)))
    }

    /// What this client must show.
    pub fn demand(&self, peer: &Peer, user: &str) -> Result<Demand> {
        demand(&self.database.access(), peer, user, self.requires_tls)
    }

    /// What a password of this user is checked against; a secret that no password has, where there is
    /// no such user or the user has none that is good now.
    pub fn secret(&self, user: &str) -> ScramSecret {
        let access = self.database.access();
        let role = access.role(user).filter(|role| self.is_in_time(role));
        let secret = role.and_then(|role| role.verifier.as_ref()?.secret());
        secret.unwrap_or_else(|| mock_secret(self.database.mock_salt(user)))
    }

    fn is_in_time(&self, role: &Role) -> bool {
        let now_us = self.database.clock().now_us();
        role.valid_until_us.is_none_or(|until| now_us < until)
    }

    /// Checks a password that was given in the clear; some milliseconds of work.
    pub fn is_password(&self, user: &str, password: &str) -> bool {
        let access = self.database.access();
        let role = access.role(user).filter(|role| self.is_in_time(role));
        match role.and_then(|role| role.verifier.as_ref()) {
            Some(verifier) => verifier.is_of(password),
            None => {
                // As long as it would take with one.
                let salt = self.database.mock_salt(user);
                pgwire::api::auth::sasl::scram::gen_salted_password(
                    password,
                    &salt,
                    crate::catalog::access::password::ITERATIONS,
                );
                false
            }
        }
    }

    /// Whether a try may be looked at; else too many of this client's wait.
    pub fn admit(&self, address: IpAddr, user: &str) -> Result<()> {
        match self.failures.lock().admits(&client(address, user)) {
            true => Ok(()),
            false => Err(wrong_password(user)
                .hint("Several tries wait for their answer. Try again in a second.")),
        }
    }

    /// A try succeeded.
    pub fn passed(&self, address: IpAddr, user: &str) {
        self.failures.lock().succeeded(&client(address, user));
    }

    /// A try failed: tells of it and waits; then the client may be answered.
    pub async fn fail(&self, address: IpAddr, user: &str) -> Error {
        let client = client(address, user);
        let now_us = self.database.clock().now_us();
        let failed = self.failures.lock().failed(&client, now_us);
        if let Some(attempts) = failed.told {
            let (_, name) = &client;
            tracing::warn!(user = %name, %address, attempts, "password authentication failed");
            let detail = json!({
                "user": name,
                "client_address": address.to_string(),
                "attempts": attempts,
            });
            self.database
                .record_event("authentication failed", name, detail);
        }
        let waiting = Waiting {
            failures: &self.failures,
            client,
        };
        tokio::time::sleep(failed.pause).await;
        drop(waiting);
        wrong_password(user)
    }

    /// What a user who has shown who he is must be allowed besides.
    pub fn check_user(&self, user: &str) -> Result<()> {
        let access = self.database.access();
        let Some(role) = access.role(user) else {
            // Trusted under a name that is no role.
            return Ok(());
        };
        if !role.attributes.login {
            return Err(Error::new(
                sqlstate::INVALID_AUTHORIZATION,
                format!("role \"{user}\" is not permitted to log in"),
            ));
        }
        let subject = access.subject(role.oid);
        if !access.allows(&subject, &ObjectKey::Database, Privileges::CONNECT) {
            return Err(Error::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                format!("permission denied for database \"{DATABASE_NAME}\""),
            )
            .detail("User does not have CONNECT privilege."));
        }
        let connected = || {
            let all = self.database.backends().activities();
            all.iter().filter(|a| a.user == user).count()
        };
        match usize::try_from(role.connection_limit) {
            Ok(limit) if !subject.is_superuser && connected() >= limit => Err(Error::with_kind(
                ErrorKind::Transient,
                sqlstate::TOO_MANY_CONNECTIONS,
                format!("too many connections for role \"{user}\""),
            )),
            _ => Ok(()),
        }
    }

    /// The user may read figures of everything.
    pub fn may_monitor(&self, user: &str) -> bool {
        let access = self.database.access();
        let role = access.role(user);
        role.is_some_and(|role| access.subject(role.oid).acts_for(MONITOR_OID))
    }
}

/// A failure that waits, also when its connection is cut meanwhile.
struct Waiting<'a> {
    failures: &'a Mutex<Failures>,
    client: super::failures::Client,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.failures.lock().answered(&self.client);
    }
}

/// 28P01, the same whatever is wrong.
pub(super) fn wrong_password(user: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PASSWORD,
        format!("password authentication failed for user \"{user}\""),
    )
}

fn demand(access: &Access, peer: &Peer, user: &str, requires_tls: bool) -> Result<Demand> {
    let is_here = peer.address.ip().to_canonical().is_loopback();
    if !access.requires_authentication() {
        return match is_here {
            true => Ok(Demand::Trust),
            false => Err(Error::new(
                sqlstate::INVALID_AUTHORIZATION,
                format!(
                    "connections from {} are not accepted while no user has a password",
                    peer.address.ip()
                ),
            )
            .hint("On the server's machine: CREATE USER name SUPERUSER PASSWORD '…';")),
        };
    }
    let Some(encryption) = &peer.encryption else {
        return match requires_tls && !is_here {
            true => Err(Error::new(
                sqlstate::INVALID_AUTHORIZATION,
                format!("connections from {} must be encrypted", peer.address.ip()),
            )
            .hint("Connect with sslmode=require.")),
            false => Ok(Demand::Password),
        };
    };
    match &encryption.certificate_name {
        None => Ok(Demand::Password),
        Some(name) if name == user && access.role(user).is_some() => Ok(Demand::Certificate),
        Some(_) => Err(Error::new(
            sqlstate::INVALID_AUTHORIZATION,
            format!("certificate authentication failed for user \"{user}\""),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::access::AccessChange;
    use crate::catalog::access::password::Verifier;

    fn peer(address: [u8; 4], encryption: Option<Option<&str>>) -> Peer {
        Peer {
            address: SocketAddr::from((address, 1)),
            encryption: encryption.map(|name| Encryption {
                certificate_name: name.map(str::to_owned),
                version: None,
                cipher: None,
            }),
        }
    }

    fn with_ada() -> Access {
        let mut access = Access::default();
        let mut ada = Role::new(20_000, "ada");
        ada.attributes.login = true;
        ada.verifier = Some(Verifier::of_password("x").unwrap());
        access
            .apply(&AccessChange::CreateRole(Arc::new(ada)))
            .unwrap();
        access
    }

    #[test]
    fn without_users_only_this_machine_is_trusted() {
        let access = Access::default();
        let here = peer([127, 0, 0, 1], None);
        assert_eq!(demand(&access, &here, "x", true).unwrap(), Demand::Trust);
        let there = peer([10, 0, 0, 1], Some(None));
        let error = demand(&access, &there, "x", false).unwrap_err();
        assert_eq!(error.sqlstate(), "28000");
    }

    #[test]
    fn with_users_everyone_shows_a_password_or_their_certificate() {
        let access = with_ada();
        let plain = peer([127, 0, 0, 1], None);
        let demanded = |peer: &Peer, user: &str| {
            demand(&access, peer, user, true).map_err(|e| e.primary().to_owned())
        };
        assert_eq!(demanded(&plain, "ada"), Ok(Demand::Password));
        assert_eq!(demanded(&plain, "nobody"), Ok(Demand::Password));
        let with = |name: Option<&'static str>| peer([10, 0, 0, 1], Some(name));
        assert_eq!(demanded(&with(None), "ada"), Ok(Demand::Password));
        assert_eq!(demanded(&with(Some("ada")), "ada"), Ok(Demand::Certificate));
        for (name, user) in [("ada", "tidemill"), ("nobody", "nobody")] {
            let told = demanded(&with(Some(name)), user).unwrap_err();
            assert_eq!(
                told,
                format!("certificate authentication failed for user \"{user}\"")
            );
        }
        let unencrypted = demanded(&peer([10, 0, 0, 1], None), "ada").unwrap_err();
        assert_eq!(unencrypted, "connections from 10.0.0.1 must be encrypted");
    }
}

//! Who is connected: one [`Backend`] per session, all in a [`Backends`] registry.
//!
//! A backend carries the process id and secret of the wire protocol's BackendKeyData, the signal
//! that cancels its running statement, and what `pg_stat_activity` shows. The server, the session
//! and the functions `pg_backend_pid`, `pg_cancel_backend` and `pg_terminate_backend` share it.
//! Absent: any knowledge of sockets or SQL; a signal only says what is wanted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::advisory::AdvisoryLocks;
use super::notifications::{Mailbox, Notification};
use crate::clock::ClockRef;

/// First process id given out; below are the numbers that people expect of system processes.
const FIRST_PID: i32 = 1000;

/// Bytes of a statement that are shown: PostgreSQL's `track_activity_query_size`.
const QUERY_MAX_BYTES: usize = 1_024;

/// What a backend is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// go on
    None,
    /// stop the running statement
    Cancel,
    /// end the session
    Terminate,
}

/// What a backend is doing, as `pg_stat_activity.state` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// waiting for a statement
    Idle,
    /// running one
    Active,
    /// waiting for a statement inside a transaction block
    IdleInTransaction,
    /// waiting inside a failed transaction block
    IdleInFailedTransaction,
}

impl BackendState {
    /// PostgreSQL's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// One row of `pg_stat_activity`; times are microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// process id
    pub pid: i32,
    /// user name
    pub user: String,
    /// `application_name`
    pub application_name: String,
    /// client's address, `None` inside the process
    pub client_address: Option<std::net::SocketAddr>,
    /// version and cipher of TLS; `None`: not encrypted
    pub encryption: Option<(Option<&'static str>, Option<&'static str>)>,
    /// session's start
    pub started_at_us: i64,
    /// last statement's start
    pub query_started_at_us: Option<i64>,
    /// last change of `state`
    pub state_changed_at_us: i64,
    /// what it does
    pub state: BackendState,
    /// the running or last statement
    pub query: String,
}

/// One session's identity and switchboard. Leaves the registry when the last handle is dropped.
#[derive(Debug)]
pub struct Backend {
    pid: i32,
    secret: [u8; 32],
    signal: watch::Sender<Signal>,
    activity: Mutex<Activity>,
    mailbox: Mailbox,
    clock: ClockRef,
    registry: Weak<Backends>,
}

/// All connected sessions of a database.
#[derive(Debug)]
pub struct Backends {
    members: Mutex<BTreeMap<i32, Weak<Backend>>>,
    next_pid: AtomicI32,
    clock: ClockRef,
    advisory_locks: AdvisoryLocks,
    reloads: watch::Sender<u64>,
}

impl Backends {
    /// An empty registry.
    pub fn new(clock: ClockRef) -> Arc<Self> {
        Arc::new(Self {
            members: Mutex::new(BTreeMap::new()),
            next_pid: AtomicI32::new(FIRST_PID),
            clock,
            advisory_locks: AdvisoryLocks::default(),
            reloads: watch::channel(0).0,
        })
    }

    /// Asks the server to read its files anew, as SIGHUP does.
    pub fn reload(&self) {
        self.reloads.send_modify(|count| *count += 1);
    }

    /// Changes whenever somebody asks for that.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// What sessions agreed to lock.
    pub fn advisory_locks(&self) -> &AdvisoryLocks {
        &self.advisory_locks
    }

    /// Registers a new session of `user`.
    pub fn register(self: &Arc<Self>, user: &str) -> Arc<Backend> {
        let now_us = self.clock.now_us();
        let pid = self.next_pid.fetch_add(1, Ordering::Relaxed);
        let mut secret = [0u8; 32];
        secret[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        secret[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let backend = Arc::new(Backend {
            pid,
            secret,
            signal: watch::Sender::new(Signal::None),
            activity: Mutex::new(Activity {
                pid,
                user: user.to_owned(),
                application_name: String::new(),
                client_address: None,
                encryption: None,
                started_at_us: now_us,
                query_started_at_us: None,
                state_changed_at_us: now_us,
                state: BackendState::Idle,
                query: String::new(),
            }),
            mailbox: Mailbox::default(),
            clock: self.clock.clone(),
            registry: Arc::downgrade(self),
        });
        self.members.lock().insert(pid, Arc::downgrade(&backend));
        backend
    }

    /// A connected session by its process id.
    pub fn get(&self, pid: i32) -> Option<Arc<Backend>> {
        self.members.lock().get(&pid).and_then(Weak::upgrade)
    }

    /// Every connected session, by process id.
    pub fn all(&self) -> Vec<Arc<Backend>> {
        let members = self.members.lock();
        members.values().filter_map(Weak::upgrade).collect()
    }

    /// What every session does now.
    pub fn activities(&self) -> Vec<Activity> {
        self.all().iter().map(|b| b.activity()).collect()
    }

    /// Hands a notification to every session that listens to its channel.
    pub fn notify(&self, notification: Notification) {
        let notification = Arc::new(notification);
        for backend in self.all() {
            backend.mailbox.deliver(&notification);
        }
    }

    /// Carries out a CancelRequest: nothing happens unless the secret is the backend's.
    pub fn cancel_with_secret(&self, pid: i32, secret: &[u8]) -> bool {
        self.get(pid)
            .filter(|backend| backend.knows_secret(secret))
            .is_some_and(|backend| backend.cancel())
    }
}

impl Backend {
    /// Process id: BackendKeyData and `pg_backend_pid()`.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What it listens to, and what has come.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// The secret; protocol 3.0 uses its first four bytes.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    fn knows_secret(&self, offered: &[u8]) -> bool {
        match offered.len() {
            4 | 32 => self.secret[..offered.len()] == *offered,
            _ => false,
        }
    }

    /// Asks the running statement to stop; false (and no effect) when none runs.
    pub fn cancel(&self) -> bool {
        if self.activity.lock().state != BackendState::Active {
            return false;
        }
        self.signal.send_if_modified(|signal| {
            let fresh = *signal == Signal::None;
            if fresh {
                *signal = Signal::Cancel;
            }
            fresh
        })
    }

    /// Asks the session to end.
    pub fn terminate(&self) {
        self.signal.send_replace(Signal::Terminate);
    }

    /// A receiver of signals, for the session's loop.
    pub fn signals(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// A statement starts: an older cancel does not concern it.
    pub fn statement_started(&self, query: &str) {
        let now_us = self.clock.now_us();
        self.signal.send_if_modified(|signal| {
            let stale = *signal == Signal::Cancel;
            if stale {
                *signal = Signal::None;
            }
            stale
        });
        let mut activity = self.activity.lock();
        activity.state = BackendState::Active;
        activity.query_started_at_us = Some(now_us);
        activity.state_changed_at_us = now_us;
        let shown = &query[..query.floor_char_boundary(QUERY_MAX_BYTES)];
        activity.query = shown.to_owned();
    }

    /// The session waits for its client again.
    pub fn became_idle(&self, state: BackendState) {
        let now_us = self.clock.now_us();
        let mut activity = self.activity.lock();
        if activity.state != state {
            activity.state = state;
            activity.state_changed_at_us = now_us;
        }
    }

    /// Tells where the client is and what it calls itself.
    pub fn set_client(&self, address: Option<std::net::SocketAddr>, application_name: &str) {
        let mut activity = self.activity.lock();
        activity.client_address = address;
        activity.application_name = application_name.to_owned();
    }

    /// Tells how the connection is encrypted.
    pub fn set_encryption(&self, encryption: Option<(Option<&'static str>, Option<&'static str>)>) {
        self.activity.lock().encryption = encryption;
    }

    /// What it does now.
    pub fn activity(&self) -> Activity {
        self.activity.lock().clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.members.lock().remove(&self.pid);
            registry.advisory_locks.release_transaction(self.pid);
            registry.advisory_locks.release_session(self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_cancel_needs_the_secret_and_a_running_statement() {
        let backends = Backends::new(ManualClock::at(5));
        let (first, second) = (backends.register("ada"), backends.register("bob"));
        assert_ne!(first.pid(), second.pid());
        let secret = *first.secret();
        assert!(!backends.cancel_with_secret(first.pid(), &secret[..4]));
        first.statement_started("select 1");
        assert!(!backends.cancel_with_secret(first.pid(), &second.secret()[..4]));
        assert!(!backends.cancel_with_secret(first.pid(), &secret[..3]));
        assert!(backends.cancel_with_secret(first.pid(), &secret[..4]));
        assert_eq!(*first.signals().borrow(), Signal::Cancel);
        assert_eq!(*second.signals().borrow(), Signal::None);
        first.statement_started("select 2");
        assert_eq!(*first.signals().borrow(), Signal::None);
        first.terminate();
        first.statement_started("select 3");
        assert_eq!(*first.signals().borrow(), Signal::Terminate);
    }

    #[test]
    fn a_dropped_backend_is_gone() {
        let backends = Backends::new(ManualClock::at(5));
        let first = backends.register("ada");
        let second = backends.register("bob");
        let pid = first.pid();
        drop(first);
        assert!(backends.get(pid).is_none());
        assert_eq!(backends.activities().len(), 1);
        assert_eq!(backends.all()[0].pid(), second.pid());
    }
}

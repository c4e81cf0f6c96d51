//! Advisory locks: what `pg_advisory_lock` and its kin hold, for migration tools and job queues.
//!
//! A lock is a number (or two) that sessions agree on. It is held for the session or for its
//! transaction, exclusively or shared, and as often as it was taken. Who waits for somebody who waits
//! for him is told so at once (40P01); PostgreSQL finds that out a second later. Absent: locks of
//! relations and rows, which nobody waits for here.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::{Error, Result, sqlstate};

/// What is locked; one number is never the same lock as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKey {
    /// `bigint`
    One(i64),
    /// `integer, integer`
    Two(i32, i32),
}

/// Whether others may hold it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// by one session
    Exclusive,
    /// by any number of sessions that share it
    Shared,
}

/// When it is let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// by unlocking, or with the session
    Session,
    /// with the transaction
    Transaction,
}

/// How often a session holds a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    exclusive: [u32; 2],
    shared: [u32; 2],
}

impl Held {
    fn count(&mut self, mode: LockMode, scope: LockScope) -> &mut u32 {
        let counts = match mode {
            LockMode::Exclusive => &mut self.exclusive,
            LockMode::Shared => &mut self.shared,
        };
        match scope {
            LockScope::Session => &mut counts[0],
            LockScope::Transaction => &mut counts[1],
        }
    }

    fn is_exclusive(&self) -> bool {
        self.exclusive != [0, 0]
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<LockKey, BTreeMap<i32, Held>>,
    waiting: BTreeMap<i32, LockKey>,
}

impl State {
    /// Takes it, unless another session's hold forbids.
    fn take(&mut self, pid: i32, key: LockKey, mode: LockMode, scope: LockScope) -> bool {
        let holders = self.held.entry(key).or_default();
        let mut others = holders.iter().filter(|(holder, _)| **holder != pid);
        let is_free = match mode {
            LockMode::Exclusive => others.next().is_none(),
            LockMode::Shared => others.all(|(_, held)| !held.is_exclusive()),
        };
        if is_free {
            *holders.entry(pid).or_default().count(mode, scope) += 1;
        }
        is_free
    }

    /// Whether somebody who holds what `pid` wants waits, over any number of others, for `pid`.
    fn is_deadlock(&self, pid: i32, key: LockKey) -> bool {
        let mut keys = vec![key];
        let mut seen = Vec::new();
        while let Some(key) = keys.pop() {
            for holder in self.held.get(&key).into_iter().flat_map(BTreeMap::keys) {
                if *holder == pid && !seen.is_empty() {
                    return true;
                }
                if *holder != pid && !seen.contains(holder) {
                    seen.push(*holder);
                    keys.extend(self.waiting.get(holder));
                }
            }
        }
        false
    }

    fn change(&mut self, pid: i32, change: impl Fn(&mut Held)) {
        self.held.retain(|_, holders| {
            if let Some(held) = holders.get_mut(&pid) {
                change(held);
                if held.is_nothing() {
                    holders.remove(&pid);
                }
            }
            !holders.is_empty()
        });
    }
}

/// All advisory locks of a database.
#[derive(Debug)]
pub struct AdvisoryLocks {
    state: Mutex<State>,
    released: watch::Sender<()>,
}

impl Default for AdvisoryLocks {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            released: watch::Sender::new(()),
        }
    }
}

/// A session's place among those who wait; it leaves with it.
struct Waiting<'a>(&'a AdvisoryLocks, i32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting.remove(&self.1);
    }
}

impl AdvisoryLocks {
    /// Takes a lock if it is free.
    pub fn try_take(&self, pid: i32, key: LockKey, mode: LockMode, scope: LockScope) -> bool {
        self.state.lock().take(pid, key, mode, scope)
    }

    /// Takes a lock once it is free: 55P03 after `within`, 40P01 where that would never be.
    pub async fn take(
        &self,
        pid: i32,
        key: LockKey,
        mode: LockMode,
        scope: LockScope,
        within: Option<Duration>,
    ) -> Result<()> {
        let mut released = self.released.subscribe();
        let _place = Waiting(self, pid);
        let free = async {
            loop {
                released.borrow_and_update();
                {
                    let mut state = self.state.lock();
                    if state.take(pid, key, mode, scope) {
                        return Ok(());
                    }
                    if state.is_deadlock(pid, key) {
                        return Err(Error::transient(
                            sqlstate::DEADLOCK_DETECTED,
                            "deadlock detected",
                        )
                        .detail("The session that holds the lock waits for one that this session holds."));
                    }
                    state.waiting.insert(pid, key);
                }
                if released.changed().await.is_err() {
                    return Err(Error::internal("the locks outlive who waits for them"));
                }
            }
        };
        match within {
            None => free.await,
            Some(within) => match tokio::time::timeout(within, free).await {
                Ok(taken) => taken,
                Err(_) => Err(Error::transient(
                    sqlstate::LOCK_NOT_AVAILABLE,
                    "canceling statement due to lock timeout",
                )),
            },
        }
    }

    /// Lets go of a session's lock once; false: the session does not hold it so.
    pub fn release(&self, pid: i32, key: LockKey, mode: LockMode) -> bool {
        let was_held = {
            let mut state = self.state.lock();
            let held = state.held.get_mut(&key).and_then(|h| h.get_mut(&pid));
            let was_held = held.is_some_and(|held| {
                let count = held.count(mode, LockScope::Session);
                let was_held = *count > 0;
                *count = count.saturating_sub(1);
                was_held
            });
            state.change(pid, |_| {});
            was_held
        };
        self.released.send_replace(());
        was_held
    }

    /// The session's transaction ended.
    pub fn release_transaction(&self, pid: i32) {
        self.release_where(pid, |held| (held.exclusive[1], held.shared[1]) = (0, 0));
    }

    /// `pg_advisory_unlock_all()`, and the session's end.
    pub fn release_session(&self, pid: i32) {
        self.release_where(pid, |held| (held.exclusive[0], held.shared[0]) = (0, 0));
    }

    fn release_where(&self, pid: i32, change: impl Fn(&mut Held)) {
        {
            let mut state = self.state.lock();
            if state.held.is_empty() {
                return;
            }
            state.change(pid, change);
        }
        self.released.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: LockKey = LockKey::One(1);
    const OTHER: LockKey = LockKey::Two(0, 1);

    fn try_session(locks: &AdvisoryLocks, pid: i32, key: LockKey, mode: LockMode) -> bool {
        locks.try_take(pid, key, mode, LockScope::Session)
    }

    #[test]
    fn exclusive_and_shared_holds_keep_each_other_out() {
        let locks = AdvisoryLocks::default();
        assert!(try_session(&locks, 1, KEY, LockMode::Shared));
        assert!(try_session(&locks, 2, KEY, LockMode::Shared));
        assert!(!try_session(&locks, 1, KEY, LockMode::Exclusive));
        assert!(locks.release(2, KEY, LockMode::Shared));
        assert!(!locks.release(2, KEY, LockMode::Shared));
        assert!(try_session(&locks, 1, KEY, LockMode::Exclusive));
        assert!(!try_session(&locks, 2, KEY, LockMode::Shared));
        assert!(try_session(&locks, 2, OTHER, LockMode::Exclusive));
    }

    #[test]
    fn what_is_taken_twice_is_released_twice() {
        let locks = AdvisoryLocks::default();
        assert!(try_session(&locks, 1, KEY, LockMode::Exclusive));
        assert!(try_session(&locks, 1, KEY, LockMode::Exclusive));
        assert!(locks.try_take(1, KEY, LockMode::Exclusive, LockScope::Transaction));
        assert!(locks.release(1, KEY, LockMode::Exclusive));
        locks.release_transaction(1);
        assert!(!try_session(&locks, 2, KEY, LockMode::Shared));
        locks.release_session(1);
        assert!(try_session(&locks, 2, KEY, LockMode::Shared));
    }

    #[tokio::test]
    async fn who_waits_gets_it_or_is_told() {
        let locks = AdvisoryLocks::default();
        let (mode, scope) = (LockMode::Exclusive, LockScope::Session);
        assert!(locks.try_take(1, KEY, mode, scope));
        let patience = Some(Duration::from_millis(20));
        let error = locks.take(2, KEY, mode, scope, patience).await.unwrap_err();
        assert_eq!(error.sqlstate(), "55P03");
        let (taken, ()) = tokio::join!(locks.take(2, KEY, mode, scope, None), async {
            tokio::task::yield_now().await;
            locks.release_session(1);
        });
        taken.unwrap();
        assert!(!locks.try_take(1, KEY, mode, scope));
    }

    #[tokio::test]
    async fn a_circle_of_waiting_sessions_is_broken() {
        let locks = AdvisoryLocks::default();
        let (mode, scope) = (LockMode::Exclusive, LockScope::Session);
        assert!(locks.try_take(1, KEY, mode, scope));
        assert!(locks.try_take(2, OTHER, mode, scope));
        let first = locks.take(1, OTHER, mode, scope, None);
        let second = async {
            tokio::task::yield_now().await;
            let told = locks.take(2, KEY, mode, scope, None).await.unwrap_err();
            locks.release_session(2);
            told.sqlstate()
        };
        let (first, second) = tokio::join!(first, second);
        first.unwrap();
        assert_eq!(second, "40P01");
    }
}

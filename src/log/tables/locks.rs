//! Locks on the keys of tables, which transactions hold until they end: on what they changed, and on what they read
//! with `FOR UPDATE` or `FOR SHARE`.
//!
//! A statement that changes a key which another open transaction has changed waits for that one's end, and is then
//! run again on what is committed by then, as in PostgreSQL's READ COMMITTED. Whoever would wait for itself is told
//! of the deadlock. Deliberately absent: PostgreSQL's two weaker strengths, for foreign keys, which there are none of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::overlay::Layer;
use crate::error::{Error, Result, sqlstate};

/// All locks of a database.
#[derive(Debug, Default)]
pub struct RowLocks {
    state: Mutex<State>,
    released: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// by holder
    held: BTreeMap<u64, Vec<LockedKeys>>,
    /// for whom a holder waits
    waits: HashMap<u64, BTreeSet<u64>>,
}

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStrength {
    /// changing and sharing: of a change, and of `FOR UPDATE`
    Exclusive,
    /// changing: of `FOR SHARE`
    Shared,
}

/// Keys of one table, in order.
#[derive(Debug, Clone)]
struct LockedKeys {
    table: u32,
    keys: Arc<[Vec<u8>]>,
    strength: LockStrength,
}

impl LockedKeys {
    /// One of them is not to be had beside the other.
    fn conflicts_with(&self, other: &Self) -> bool {
        let are_shared = [self, other]
            .iter()
            .all(|keys| keys.strength == LockStrength::Shared);
        !are_shared && self.shares_a_key(other)
    }

    fn shares_a_key(&self, other: &Self) -> bool {
        if self.table != other.table {
            return false;
        }
        let (small, large) = match self.keys.len() < other.keys.len() {
            true => (&self.keys, &other.keys),
            false => (&other.keys, &self.keys),
        };
        small.iter().any(|key| large.binary_search(key).is_ok())
    }
}

impl State {
    fn holders_of(&self, wanted: &LockedKeys, me: u64) -> BTreeSet<u64> {
        let others = self.held.iter().filter(|(holder, _)| **holder != me);
        let theirs = others.filter(|(_, held)| held.iter().any(|h| h.conflicts_with(wanted)));
        theirs.map(|(holder, _)| *holder).collect()
    }

    /// Whether one of `holders` waits, over any number of others, for `me`.
    fn is_deadlock(&self, me: u64, holders: &BTreeSet<u64>) -> bool {
        let mut next: Vec<u64> = holders.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(holder) = next.pop() {
            if holder == me {
                return true;
            }
            if seen.insert(holder) {
                next.extend(self.waits.get(&holder).into_iter().flatten());
            }
        }
        false
    }
}

impl RowLocks {
    /// A transaction that may hold locks.
    pub fn holder(self: &Arc<Self>) -> LockHolder {
        let mut state = self.state.lock();
        state.next += 1;
        LockHolder {
            id: state.next,
            locks: Arc::clone(self),
        }
    }
}

/// A transaction's locks; given back when dropped.
#[derive(Debug)]
pub struct LockHolder {
    id: u64,
    locks: Arc<RowLocks>,
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        let held = self.locks.state.lock().held.remove(&self.id);
        if held.is_some() {
            self.locks.released.send_modify(|count| *count += 1);
        }
    }
}

impl LockHolder {
    /// How often it has locked something.
    pub fn count(&self) -> usize {
        self.locks
            .state
            .lock()
            .held
            .get(&self.id)
            .map_or(0, Vec::len)
    }

    /// Gives back what it locked after the first `count` times.
    pub fn release_after(&self, count: usize) {
        let mut state = self.locks.state.lock();
        let Some(held) = state.held.get_mut(&self.id).filter(|h| h.len() > count) else {
            return;
        };
        held.truncate(count);
        drop(state);
        self.locks.released.send_modify(|count| *count += 1);
    }

    /// Locks the keys of a layer; `Some`: others hold some of them, and none was locked. 40P01 where it would wait
    /// for itself.
    pub fn lock(
        &self,
        table: u32,
        layer: &Layer,
        strength: LockStrength,
    ) -> Result<Option<Conflict>> {
        let wanted = LockedKeys {
            table,
            keys: layer.keys().cloned().collect(),
            strength,
        };
        let mut state = self.locks.state.lock();
        let holders = state.holders_of(&wanted, self.id);
        if holders.is_empty() {
            state.held.entry(self.id).or_default().push(wanted);
            return Ok(None);
        }
        if state.is_deadlock(self.id, &holders) {
            return Err(Error::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected")
                .detail(
                    "The transaction that holds the rows waits for rows that this one has changed.",
                )
                .hint("Say ROLLBACK, then run the transaction again."));
        }
        state.waits.insert(self.id, holders.clone());
        Ok(Some(Conflict {
            waiter: self.id,
            wanted,
            holders,
            locks: Arc::clone(&self.locks),
        }))
    }

    /// Which keys others hold so that this one cannot have them.
    pub fn unavailable<'a>(
        &self,
        table: u32,
        keys: impl Iterator<Item = &'a [u8]>,
        strength: LockStrength,
    ) -> Vec<bool> {
        let state = self.locks.state.lock();
        let others = state.held.iter().filter(|(holder, _)| **holder != self.id);
        let theirs: Vec<&LockedKeys> = others
            .flat_map(|(_, held)| held)
            .filter(|held| held.table == table)
            .filter(|held| [held.strength, strength].contains(&LockStrength::Exclusive))
            .collect();
        let is_held = |key: &[u8]| {
            let mut theirs = theirs.iter();
            theirs.any(|held| {
                held.keys
                    .binary_search_by(|k| k.as_slice().cmp(key))
                    .is_ok()
            })
        };
        keys.map(is_held).collect()
    }

    /// What a layer was made from is no more; there is nobody to wait for.
    pub fn outdated(&self) -> Conflict {
        Conflict {
            waiter: self.id,
            wanted: LockedKeys {
                table: 0,
                keys: Arc::default(),
                strength: LockStrength::Shared,
            },
            holders: BTreeSet::new(),
            locks: Arc::clone(&self.locks),
        }
    }
}

/// Why a statement must run again, and what it waits for before. Dropped: it waits no more.
#[derive(Debug)]
pub struct Conflict {
    waiter: u64,
    wanted: LockedKeys,
    holders: BTreeSet<u64>,
    locks: Arc<RowLocks>,
}

impl Drop for Conflict {
    fn drop(&mut self) {
        self.locks.state.lock().waits.remove(&self.waiter);
    }
}

impl Conflict {
    /// Others hold what was wanted; otherwise it only was read too early.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Resolves once those that hold the keys have ended, or went back to a savepoint. 55P03 after `within`.
    pub async fn over(self, within: Option<Duration>) -> Result<()> {
        let free = self.all_free();
        let Some(within) = within else {
            return free.await;
        };
        let in_time = tokio::time::timeout(within, free).await;
        in_time.unwrap_or_else(|_| {
            Err(Error::transient(
                sqlstate::LOCK_NOT_AVAILABLE,
                "canceling statement due to lock timeout",
            ))
        })
    }

    async fn all_free(&self) -> Result<()> {
        let mut released = self.locks.released.subscribe();
        loop {
            released.borrow_and_update();
            {
                let state = self.locks.state.lock();
                let holds = |holder: &u64| {
                    let mut held = state.held.get(holder).into_iter().flatten();
                    held.any(|h| h.conflicts_with(&self.wanted))
                };
                if !self.holders.iter().any(holds) {
                    return Ok(());
                }
            }
            if released.changed().await.is_err() {
                return Err(Error::internal("the locks outlive who waits for them"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::overlay::OverlayEntry;
    use super::LockStrength::{Exclusive, Shared};
    use super::*;

    fn layer(keys: &[u8]) -> Layer {
        let entry = OverlayEntry {
            before: None,
            after: Some(Vec::new()),
        };
        keys.iter().map(|key| (vec![*key], entry.clone())).collect()
    }

    #[test]
    fn keys_are_of_one_until_it_ends() {
        let locks = Arc::new(RowLocks::default());
        let (a, b) = (locks.holder(), locks.holder());
        assert!(a.lock(1, &layer(&[1, 2]), Exclusive).unwrap().is_none());
        assert!(a.lock(1, &layer(&[2, 3]), Exclusive).unwrap().is_none());
        assert!(b.lock(1, &layer(&[4]), Exclusive).unwrap().is_none());
        assert!(b.lock(2, &layer(&[1]), Exclusive).unwrap().is_none());
        let conflict = b
            .lock(1, &layer(&[3, 4]), Exclusive)
            .unwrap()
            .expect("a holds 3");
        drop(a);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(conflict.over(None)).unwrap();
        assert!(b.lock(1, &layer(&[3]), Exclusive).unwrap().is_none());
    }

    #[test]
    fn nobody_waits_for_itself() {
        let locks = Arc::new(RowLocks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        for (holder, key) in [(&a, 1), (&b, 2), (&c, 3)] {
            assert!(holder.lock(1, &layer(&[key]), Exclusive).unwrap().is_none());
        }
        let a_waits = a.lock(1, &layer(&[2]), Exclusive).unwrap();
        let _b_waits = b.lock(1, &layer(&[3]), Exclusive).unwrap();
        assert!(a_waits.is_some());
        let error = c.lock(1, &layer(&[1]), Exclusive).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::DEADLOCK_DETECTED);
        drop(a_waits);
        assert!(c.lock(1, &layer(&[1]), Exclusive).unwrap().is_some());
    }

    #[test]
    fn a_wait_has_an_end() {
        let locks = Arc::new(RowLocks::default());
        let (a, b) = (locks.holder(), locks.holder());
        assert!(a.lock(1, &layer(&[1]), Exclusive).unwrap().is_none());
        let conflict = b
            .lock(1, &layer(&[1]), Exclusive)
            .unwrap()
            .expect("a holds it");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let error = runtime.block_on(conflict.over(Some(Duration::from_millis(5))));
        assert_eq!(error.unwrap_err().sqlstate(), sqlstate::LOCK_NOT_AVAILABLE);
    }

    #[test]
    fn who_only_reads_shares() {
        let locks = Arc::new(RowLocks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        for holder in [&a, &b] {
            assert!(holder.lock(1, &layer(&[1, 2]), Shared).unwrap().is_none());
        }
        assert!(c.lock(1, &layer(&[2, 3]), Exclusive).unwrap().is_some());
        let keys: [&[u8]; 3] = [&[1], &[2], &[3]];
        let unavailable = |strength| c.unavailable(1, keys.into_iter(), strength);
        assert_eq!(unavailable(Exclusive), [true, true, false]);
        assert_eq!(unavailable(Shared), [false; 3]);
        drop((a, b));
        assert!(c.lock(1, &layer(&[2, 3]), Exclusive).unwrap().is_none());
    }
}

//! The cold tier's entries once more, in memory, as long as there is room.
//!
//! A batch that changes a thousand keys all over ten million entries reads a thousand blocks of the
//! cold tier: checked, decompressed and searched, that is ten times the rest of its work. Packed
//! ([`super::packed`]) the same entries take less than the half of a small budget, and a seek a
//! microsecond. So when the store has come to rest after a spill or an opening, a thread of its own
//! reads the cold tier once. What is spilled later stays in memory too, in front of the packed
//! entries; the next rest packs all anew.
//!
//! ```text
//!   snapshot ─► runs of the memory tier ─► newer runs ─► packed entries    the mirror: as of the
//!                        └──────────────────────► cold tier                 cold tier's batch
//! ```
//!
//! It is a copy, nothing more: whoever needs the memory ([`MemoryBudget::make_room`]) takes it, and
//! readers go to the disk. Deliberately absent: a mirror of a part of the tables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::MemoryBudget;
use super::cold::ColdView;
use super::memory::GivesBack;
use super::packed::{PackedBuilder, PackedEntries};
use super::snapshot::TierRun;
use crate::error::Result;

/// A store that has not spilled for so long is at rest. While much comes in, a copy would be old
/// before it is whole …
const REST_MIN: Duration = match cfg!(test) {
    true => Duration::from_millis(20),
    false => Duration::from_secs(2),
};
/// … and each that was, or found no room, tells to wait twice as long before the next, up to this.
const REST_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether the copy is still wanted.
const ENTRIES_PER_LOOK: usize = 4096;

/// All that the cold tier holds as of one batch.
#[derive(Debug)]
pub(super) struct Mirror {
    /// The batch of the cold view whose entries these are.
    pub(super) batch_id: u64,
    /// Spilled since the entries were packed, newest first.
    pub(super) newer: Vec<Arc<TierRun>>,
    pub(super) packed: Arc<PackedEntries>,
}

/// Keeps the mirror of one store.
#[derive(Debug)]
pub(super) struct MirrorKeeper {
    budget: Arc<MemoryBudget>,
    state: Mutex<State>,
    /// Signals that the thread should look at `state` again.
    changed: Condvar,
    /// The copy that is being made is of no use any more.
    is_outdated: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Where the cold tier stands; the mirror, if there is one, shows no other batch.
    batch_id: Option<u64>,
    mirror: Option<Arc<Mirror>>,
    /// What is to be copied at the next rest.
    wanted: Option<Arc<ColdView>>,
    thread: Option<JoinHandle<()>>,
    is_active: bool,
    /// Copies in a row that were given up.
    given_up: u32,
    closing: bool,
}

impl MirrorKeeper {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Arc<Self> {
        let keeper = Arc::new(Self {
            budget: Arc::clone(budget),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_outdated: AtomicBool::new(false),
        });
        let held: Weak<dyn GivesBack> = Arc::<Self>::downgrade(&keeper);
        budget.may_ask(held);
        keeper
    }

    /// The mirror of a cold tier that is at `batch_id`.
    pub(super) fn of(&self, batch_id: u64) -> Option<Arc<Mirror>> {
        let state = self.state.lock();
        let mirror = state.mirror.as_ref();
        mirror.filter(|m| m.batch_id == batch_id).cloned()
    }

    /// The cold tier is now at another batch: it got `spilled` (newest first), on what the mirror
    /// shows so far. Called before readers see it.
    pub(super) fn moved(self: &Arc<Self>, cold: &Arc<ColdView>, spilled: &[Arc<TierRun>]) {
        let mut state = self.state.lock();
        // The runs are accounted for already.
        state.mirror = state
            .mirror
            .take()
            .filter(|_| self.budget.has_room(0))
            .map(|old| {
                Arc::new(Mirror {
                    batch_id: cold.batch_id(),
                    newer: spilled.iter().chain(&old.newer).cloned().collect(),
                    packed: Arc::clone(&old.packed),
                })
            });
        self.want(&mut state, cold);
    }

    /// The cold tier was opened, or loaded.
    pub(super) fn opened(self: &Arc<Self>, cold: &Arc<ColdView>) {
        let mut state = self.state.lock();
        state.mirror = None;
        self.want(&mut state, cold);
    }

    fn want(self: &Arc<Self>, state: &mut State, cold: &Arc<ColdView>) {
        state.batch_id = Some(cold.batch_id());
        state.wanted = Some(Arc::clone(cold));
        self.is_outdated.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        if state.is_active || state.closing {
            return;
        }
        if let Some(ended) = state.thread.take()
            && ended.join().is_err()
        {
            tracing::error!("mirroring state ended abnormally");
        }
        let keeper = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("tidemill-mirror".into())
            .spawn(move || keeper.work());
        match spawned {
            Ok(thread) => {
                state.thread = Some(thread);
                state.is_active = true;
            }
            // It would only have made reads faster.
            Err(error) => tracing::warn!(%error, "could not start the thread that mirrors state"),
        }
    }

    /// The thread: waits for rest, copies, and again if the store moved on meanwhile.
    fn work(&self) {
        let mut state = self.state.lock();
        while state.wanted.is_some() && !state.closing {
            let rest = rest_after(state.given_up);
            if !self.changed.wait_for(&mut state, rest).timed_out() {
                continue;
            }
            let Some(cold) = state.wanted.take() else {
                break;
            };
            self.is_outdated.store(false, Ordering::Relaxed);
            // On disk they are packed and compressed: in memory they take no less.
            if !self.budget.may_have_room(cold.disk_bytes() as usize) {
                break;
            }
            let copied = parking_lot::MutexGuard::unlocked(&mut state, || self.copy(&cold));
            match copied {
                Ok(packed) => Self::publish(&mut state, &cold, packed),
                Err(error) => tracing::warn!(%error, "could not read local state to mirror it"),
            }
        }
        state.is_active = false;
    }

    fn publish(state: &mut State, cold: &Arc<ColdView>, packed: Option<PackedEntries>) {
        let is_overtaken = state.batch_id != Some(cold.batch_id()) || state.closing;
        match packed.filter(|_| !is_overtaken) {
            Some(packed) => {
                state.given_up = 0;
                state.mirror = Some(Arc::new(Mirror {
                    batch_id: cold.batch_id(),
                    newer: Vec::new(),
                    packed: Arc::new(packed),
                }));
            }
            None => {
                state.given_up += 1;
                // What takes the room may be a reader that will be gone soon.
                state.wanted.get_or_insert_with(|| Arc::clone(cold));
            }
        }
    }

    /// Bytes in memory of it.
    pub(super) fn bytes(&self) -> usize {
        let state = self.state.lock();
        state.mirror.as_ref().map_or(0, |mirror| {
            let newer: usize = mirror.newer.iter().map(|tier| tier.run.bytes()).sum();
            newer + mirror.packed.bytes()
        })
    }

    /// Packs all that the cold tier holds; `None`: there is no room, or it is outdated.
    fn copy(&self, cold: &Arc<ColdView>) -> Result<Option<PackedEntries>> {
        if !self.budget.has_room(cold.disk_bytes() as usize) {
            return Ok(None);
        }
        let mut builder = PackedBuilder::new(&self.budget);
        let mut entries = cold.iterate_all()?;
        let mut until_look = ENTRIES_PER_LOOK;
        while let Some((key, value)) = entries.entry() {
            builder.push(key, value);
            entries.advance()?;
            until_look -= 1;
            if until_look == 0 {
                until_look = ENTRIES_PER_LOOK;
                if self.is_outdated.load(Ordering::Relaxed) || !self.budget.has_room(0) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(builder.finish()))
    }

    /// Ends the thread and lets go of all.
    pub(super) fn close(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.closing = true;
            state.wanted = None;
            state.mirror = None;
            self.is_outdated.store(true, Ordering::Relaxed);
            self.changed.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("mirroring state ended abnormally");
        }
    }

    /// Copies `cold` now, for tests of what reads the copy.
    #[cfg(test)]
    pub(super) fn copy_now(&self, cold: &Arc<ColdView>) {
        self.is_outdated.store(false, Ordering::Relaxed);
        let packed = self.copy(cold).expect("the cold tier is read");
        let mut state = self.state.lock();
        Self::publish(&mut state, cold, packed);
    }
}

/// How long the store must not have spilled.
fn rest_after(given_up: u32) -> Duration {
    (REST_MIN * 2u32.saturating_pow(given_up.min(16))).min(REST_MAX)
}

impl GivesBack for MirrorKeeper {
    fn give_back(&self) {
        let given = self.state.lock().mirror.take();
        // Freed outside the lock.
        drop(given);
    }
}

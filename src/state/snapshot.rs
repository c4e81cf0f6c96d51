//! Reading the state as of one batch: merged scans over all tiers. Look-ups are in `look_up`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::TableId;
use super::cold::{ColdIterator, ColdView, table_bounds};
use super::memory::MemoryCharge;
use super::mirror::Mirror;
use super::packed::PackedCursor;
use super::run::{PREFIX_BYTES, Run};
use crate::error::Result;

/// A run of the memory tier; its bytes are accounted for until its last reader lets go.
#[derive(Debug)]
pub(super) struct TierRun {
    pub(super) run: Arc<Run>,
    pub(super) _charge: MemoryCharge,
}

/// What one batch published: never changes.
#[derive(Debug, Default)]
pub(super) struct Version {
    pub(super) batch_id: Option<u64>,
    /// The newest batch that is durable in the checkpoint: nothing beyond it may go to disk here.
    pub(super) durable_batch_id: Option<u64>,
    /// Runs, the newest ones, of batches that are not durable yet: 0 or 1.
    pub(super) pending_runs: usize,
    /// Newest first.
    pub(super) runs: Vec<Arc<TierRun>>,
    pub(super) cold: Option<Arc<ColdView>>,
}

impl Version {
    pub(super) fn memory_bytes(&self) -> usize {
        self.runs.iter().map(|tier| tier.run.bytes()).sum()
    }

    /// The runs of durable batches, newest first.
    pub(super) fn durable_runs(&self) -> &[Arc<TierRun>] {
        &self.runs[self.pending_runs..]
    }
}

/// An immutable view of the state at a batch; `Clone` is cheap. The default is an empty state.
#[derive(Debug, Clone, Default)]
pub struct StateSnapshot {
    version: Arc<Version>,
    /// What the version's cold view shows, in memory.
    mirror: Option<Arc<Mirror>>,
}

impl StateSnapshot {
    pub(super) fn of(version: Arc<Version>, mirror: Option<Arc<Mirror>>) -> Self {
        Self { version, mirror }
    }

    /// The batch it shows; `None` before the first.
    pub fn batch_id(&self) -> Option<u64> {
        self.version.batch_id
    }

    /// The runs in memory, newest first.
    fn tier_runs(&self) -> impl Iterator<Item = &Arc<TierRun>> {
        let mirrored = self.mirror.iter().flat_map(|mirror| &mirror.newer);
        self.version.runs.iter().chain(mirrored)
    }

    /// As above, without their accounting.
    pub(super) fn memory_runs(&self) -> impl Iterator<Item = &Run> {
        self.tier_runs().map(|tier| &*tier.run)
    }

    /// What lies below them and has to be read from disk.
    pub(super) fn cold(&self) -> Option<&Arc<ColdView>> {
        match self.mirror {
            Some(_) => None,
            None => self.version.cold.as_ref(),
        }
    }

    /// What lies below the runs and is in memory: its entries of a table from `lower` on.
    pub(super) fn packed(
        &self,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Option<PackedCursor> {
        let mirror = self.mirror.as_ref()?;
        let (start, end) = table_bounds(table);
        let of_key = |key: &[u8]| [start.as_slice(), key].concat();
        let from = of_key(lower.unwrap_or_default());
        Some(PackedCursor::new(
            &mirror.packed,
            &from,
            upper.map_or(end, of_key),
        ))
    }

    /// Entries of a table with `lower <= key < upper` (without the prefix; `None`: unbounded), in
    /// key order, tombstones resolved.
    pub fn scan(
        &self,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<StateScan> {
        let mut cursors = Vec::new();
        let mut hidden_below = false;
        for tier in self.tier_runs() {
            let whole = tier.run.table_range(table);
            let bound = |key: &[u8]| tier.run.lower_bound_in_table(&whole, key);
            let start = lower.map_or(whole.start, bound);
            let end = upper.map_or(whole.end, bound);
            if start < end {
                cursors.push(Cursor::Memory {
                    tier: Arc::clone(tier),
                    range: start..end,
                });
            }
            hidden_below = tier.run.drops_table(table);
            if hidden_below {
                break;
            }
        }
        if hidden_below {
            return Ok(StateScan::new(cursors));
        }
        if let Some(cursor) = self.packed(table, lower, upper)
            && cursor.is_at_entry()
        {
            cursors.push(Cursor::Packed(cursor));
        }
        if let Some(cold) = self.cold() {
            let iterator = cold.iterate(table, lower, upper)?;
            if iterator.is_at_entry() {
                cursors.push(Cursor::Cold(iterator));
            }
        }
        Ok(StateScan::new(cursors))
    }

    /// No entry in the table. Passes over all that was deleted and not merged away yet, so ask it
    /// rarely.
    pub fn is_table_empty(&self, table: TableId) -> Result<bool> {
        Ok(!self.scan(table, None, None)?.advance()?)
    }

    /// False: there is no entry in the table; true: there may be one, or only traces of deleted
    /// ones. Cheap.
    pub fn may_hold(&self, table: TableId) -> Result<bool> {
        for run in self.memory_runs() {
            if !run.table_range(table).is_empty() {
                return Ok(true);
            }
            if run.drops_table(table) {
                return Ok(false);
            }
        }
        if let Some(cursor) = self.packed(table, None, None) {
            return Ok(cursor.is_at_entry());
        }
        match self.cold() {
            Some(cold) => Ok(cold.iterate(table, None, None)?.is_at_entry()),
            None => Ok(false),
        }
    }
}

/// A merged scan. Not an `Iterator`, so that entries borrow instead of being copied.
///
/// The cursors with entries left are kept in order of their current key; as long as the first one
/// stays below the second, an entry costs one comparison, however many tiers there are.
pub struct StateScan {
    /// Newest first.
    cursors: Vec<Cursor>,
    /// Indices of the cursors with entries left, by (key, age).
    order: Vec<usize>,
    /// The first cursor is at an entry that was given out.
    at_entry: bool,
}

impl fmt::Debug for StateScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateScan")
            .field("tiers", &self.cursors.len())
            .finish_non_exhaustive()
    }
}

enum Cursor {
    Memory {
        tier: Arc<TierRun>,
        range: Range<usize>,
    },
    Packed(PackedCursor),
    Cold(ColdIterator),
}

impl Cursor {
    fn is_at_entry(&self) -> bool {
        match self {
            Cursor::Memory { range, .. } => !range.is_empty(),
            Cursor::Packed(cursor) => cursor.is_at_entry(),
            Cursor::Cold(iterator) => iterator.is_at_entry(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Cursor::Memory { tier, range } => &tier.run.key(range.start)[PREFIX_BYTES..],
            Cursor::Packed(cursor) => cursor.key(),
            Cursor::Cold(iterator) => iterator.key(),
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            Cursor::Memory { tier, range } => tier.run.value(range.start),
            Cursor::Packed(cursor) => Some(cursor.value()),
            Cursor::Cold(iterator) => Some(iterator.value()),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Cursor::Memory { range, .. } => {
                range.start += 1;
                Ok(())
            }
            Cursor::Packed(cursor) => {
                cursor.advance();
                Ok(())
            }
            Cursor::Cold(iterator) => iterator.advance(),
        }
    }

    /// Moves on to the first entry that is not below `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Cursor::Memory { tier, range } => {
                range.start = tier.run.lower_bound_in_table(range, key);
                Ok(())
            }
            Cursor::Packed(cursor) => {
                cursor.seek(key);
                Ok(())
            }
            Cursor::Cold(iterator) => iterator.seek(key),
        }
    }
}

impl StateScan {
    fn new(cursors: Vec<Cursor>) -> Self {
        let mut scan = Self {
            order: Vec::with_capacity(cursors.len()),
            cursors,
            at_entry: false,
        };
        for age in 0..scan.cursors.len() {
            scan.insert_from(0, age);
        }
        scan
    }

    /// Puts a cursor that is at an entry in its place among `order[from..]`.
    fn insert_from(&mut self, from: usize, age: usize) {
        let key = self.cursors[age].key();
        let at = from
            + self.order[from..]
                .partition_point(|&other| (self.cursors[other].key(), other) < (key, age));
        self.order.insert(at, age);
    }

    /// Moves the cursor at `order[at]` on and restores the order.
    fn step(&mut self, at: usize) -> Result<()> {
        let age = self.order[at];
        self.cursors[age].advance()?;
        if !self.cursors[age].is_at_entry() {
            self.order.remove(at);
            return Ok(());
        }
        let in_order = self
            .order
            .get(at + 1)
            .is_none_or(|&next| (self.cursors[age].key(), age) < (self.cursors[next].key(), next));
        if !in_order {
            self.order.remove(at);
            self.insert_from(at, age);
        }
        Ok(())
    }

    /// Moves to the next entry; false at the end.
    pub fn advance(&mut self) -> Result<bool> {
        self.advance_within(&[])
    }

    /// Moves to the next entry whose key begins with `prefix`, which no key so far is above of;
    /// false if there is none. What was deleted behind the prefix is not passed over.
    pub fn advance_within(&mut self, prefix: &[u8]) -> Result<bool> {
        if self.at_entry {
            self.step(0)?;
        }
        self.stop_within(prefix)
    }

    /// Moves on to the first entry whose key begins with `prefix`; false if there is none, or it
    /// was passed. Ascending prefixes cost the logarithm of the gaps between them, so that many
    /// are read by one scan.
    pub fn seek(&mut self, prefix: &[u8]) -> Result<bool> {
        self.leap(prefix)?;
        self.stop_within(prefix)
    }

    /// Leaves behind what is below `key`; whether there was something.
    pub(super) fn leap(&mut self, key: &[u8]) -> Result<bool> {
        let mut leapt = false;
        while let Some(&first) = self.order.first()
            && self.cursors[first].key() < key
        {
            self.cursors[first].seek(key)?;
            self.order.remove(0);
            if self.cursors[first].is_at_entry() {
                self.insert_from(0, first);
            }
            leapt = true;
        }
        Ok(leapt)
    }

    /// The value of `key`, to which [`Self::leap`] went last.
    pub(super) fn value_of(&self, key: &[u8]) -> Option<&[u8]> {
        let first = &self.cursors[*self.order.first()?];
        // The newest entry of a key comes first.
        if first.key() == key {
            first.value()
        } else {
            None
        }
    }

    /// Goes on from where it stands to the first entry that is neither overwritten nor deleted.
    fn stop_within(&mut self, prefix: &[u8]) -> Result<bool> {
        self.at_entry = false;
        while let Some(&first) = self.order.first() {
            if !self.cursors[first].key().starts_with(prefix) {
                return Ok(false);
            }
            // Older entries of the same key lose.
            while let Some(&second) = self.order.get(1)
                && self.cursors[second].key() == self.cursors[first].key()
            {
                self.step(1)?;
            }
            if self.cursors[first].value().is_some() {
                self.at_entry = true;
                return Ok(true);
            }
            self.step(0)?;
        }
        Ok(false)
    }

    /// Key of the current entry, without the table prefix.
    ///
    /// # Panics
    /// If the last move did not give true.
    pub fn key(&self) -> &[u8] {
        self.cursors[self.order[0]].key()
    }

    /// Value of the current entry.
    ///
    /// # Panics
    /// If the last move did not give true.
    pub fn value(&self) -> &[u8] {
        self.cursors[self.order[0]]
            .value()
            .expect("advance stops at live entries only")
    }
}

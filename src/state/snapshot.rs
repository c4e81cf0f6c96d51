//! Reading the state as of one batch: look-ups of sorted keys and merged scans over all tiers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, BinaryBuilder};
use rocksdb::DBPinnableSlice;

use super::TableId;
use super::cold::{ColdIterator, ColdView};
use super::memory::MemoryCharge;
use super::run::{PREFIX_BYTES, Run};
use crate::error::{Error, Result, sqlstate};

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
}

/// Where the value of a looked-up key is.
enum Place<'a> {
    Absent,
    Memory(&'a [u8]),
    Cold(usize),
}

impl StateSnapshot {
    pub(super) fn of(version: Arc<Version>) -> Self {
        Self { version }
    }

    /// The batch it shows; `None` before the first.
    pub fn batch_id(&self) -> Option<u64> {
        self.version.batch_id
    }

    /// Values of `keys` (ascending, without the table prefix); null where absent.
    pub fn get_many(&self, table: TableId, keys: &BinaryArray) -> Result<BinaryArray> {
        debug_assert!(
            (1..keys.len()).all(|index| keys.value(index - 1) <= keys.value(index)),
            "keys ascend"
        );
        let mut places: Vec<Place<'_>> = Vec::with_capacity(keys.len());
        places.resize_with(keys.len(), || Place::Absent);
        let mut unresolved: Vec<usize> = (0..keys.len()).collect();
        let mut hidden_below = false;
        for tier in &self.version.runs {
            look_up(&tier.run, table, keys, &mut unresolved, &mut places);
            hidden_below = tier.run.drops_table(table);
            if hidden_below || unresolved.is_empty() {
                break;
            }
        }
        let mut pinned: Vec<DBPinnableSlice<'_>> = Vec::new();
        if let Some(cold) = &self.version.cold
            && !hidden_below
            && !unresolved.is_empty()
        {
            let cold_keys: Vec<&[u8]> = unresolved.iter().map(|&at| keys.value(at)).collect();
            cold.get_many(table, &cold_keys, |number, value| {
                places[unresolved[number]] = Place::Cold(pinned.len());
                pinned.push(value);
            })?;
        }
        gather(&places, &pinned)
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
        for tier in &self.version.runs {
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
        if let Some(cold) = &self.version.cold
            && !hidden_below
        {
            let iterator = cold.iterate(table, lower, upper)?;
            if iterator.is_at_entry() {
                cursors.push(Cursor::Cold(iterator));
            }
        }
        Ok(StateScan::new(cursors))
    }

    /// No entry in the table; cheap.
    pub fn is_table_empty(&self, table: TableId) -> Result<bool> {
        Ok(!self.scan(table, None, None)?.advance()?)
    }
}

/// Resolves what one run knows of the keys; keeps the others in `unresolved`.
fn look_up<'a>(
    run: &'a Run,
    table: TableId,
    keys: &BinaryArray,
    unresolved: &mut Vec<usize>,
    places: &mut [Place<'a>],
) {
    let mut range = run.table_range(table);
    if range.is_empty() {
        return;
    }
    unresolved.retain(|&at| {
        if range.is_empty() {
            return true;
        }
        let key = keys.value(at);
        range.start = run.lower_bound_in_table(&range, key);
        if range.is_empty() || &run.key(range.start)[PREFIX_BYTES..] != key {
            return true;
        }
        places[at] = run.value(range.start).map_or(Place::Absent, Place::Memory);
        false
    });
}

fn gather(places: &[Place<'_>], pinned: &[DBPinnableSlice<'_>]) -> Result<BinaryArray> {
    let bytes_of = |place: &Place<'_>| match place {
        Place::Absent => 0,
        Place::Memory(value) => value.len(),
        Place::Cold(at) => pinned[*at].len(),
    };
    let bytes: usize = places.iter().map(bytes_of).sum();
    if bytes > i32::MAX as usize {
        return Err(Error::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            "too much state is read at once",
        )
        .detail(format!(
            "{} keys of one batch have {bytes} bytes of state.",
            places.len()
        ))
        .hint("Lower max_rows_per_trigger of the view."));
    }
    let mut values = BinaryBuilder::with_capacity(places.len(), bytes);
    for place in places {
        match place {
            Place::Absent => values.append_null(),
            Place::Memory(value) => values.append_value(value),
            Place::Cold(at) => values.append_value(&pinned[*at][..]),
        }
    }
    Ok(values.finish())
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
    started: bool,
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
    Cold(ColdIterator),
}

impl Cursor {
    fn is_at_entry(&self) -> bool {
        match self {
            Cursor::Memory { range, .. } => !range.is_empty(),
            Cursor::Cold(iterator) => iterator.is_at_entry(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Cursor::Memory { tier, range } => &tier.run.key(range.start)[PREFIX_BYTES..],
            Cursor::Cold(iterator) => iterator.key(),
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            Cursor::Memory { tier, range } => tier.run.value(range.start),
            Cursor::Cold(iterator) => Some(iterator.value()),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Cursor::Memory { range, .. } => {
                range.start += 1;
                Ok(())
            }
            Cursor::Cold(iterator) => iterator.advance(),
        }
    }
}

impl StateScan {
    fn new(cursors: Vec<Cursor>) -> Self {
        let mut scan = Self {
            order: Vec::with_capacity(cursors.len()),
            cursors,
            started: false,
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
        loop {
            if self.started {
                if self.order.is_empty() {
                    return Ok(false);
                }
                self.step(0)?;
            }
            self.started = true;
            let Some(&first) = self.order.first() else {
                return Ok(false);
            };
            // Older entries of the same key lose.
            while let Some(&second) = self.order.get(1)
                && self.cursors[second].key() == self.cursors[first].key()
            {
                self.step(1)?;
            }
            if self.cursors[first].value().is_some() {
                return Ok(true);
            }
        }
    }

    /// Key of the current entry, without the table prefix.
    ///
    /// # Panics
    /// If the last [`Self::advance`] did not give true.
    pub fn key(&self) -> &[u8] {
        self.cursors[self.order[0]].key()
    }

    /// Value of the current entry.
    ///
    /// # Panics
    /// If the last [`Self::advance`] did not give true.
    pub fn value(&self) -> &[u8] {
        self.cursors[self.order[0]]
            .value()
            .expect("advance stops at live entries only")
    }
}

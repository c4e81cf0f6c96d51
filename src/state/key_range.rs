//! Which keys of a table a reader wants, and the walk over just these.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray};

use super::TableId;
use super::snapshot::{StateScan, StateSnapshot};
use crate::error::Result;

/// Keys `lower <= key < upper`, without the table's prefix; no upper bound: to the table's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be wanted.
    pub lower: Vec<u8>,
    /// The first key that is not wanted any more.
    pub upper: Option<Vec<u8>>,
}

impl KeyRange {
    /// The keys that begin with `prefix`.
    pub fn of_prefix(prefix: Vec<u8>) -> Self {
        Self {
            upper: after_prefix(&prefix),
            lower: prefix,
        }
    }
}

/// The least bytes that are greater than all that begin with `prefix`; `None`: there are none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// What a reader wants of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedKeys {
    /// All of it.
    All,
    /// Ranges, ascending and apart.
    Ranges(Arc<[KeyRange]>),
    /// Single keys, ascending and distinct.
    Keys(Arc<[Vec<u8>]>),
}

impl WantedKeys {
    /// Few keys: reading them takes no longer than starting a thread for it.
    pub fn are_few(&self) -> bool {
        const FEW: usize = 64;
        match self {
            Self::All => false,
            Self::Ranges(ranges) => ranges.is_empty(),
            Self::Keys(keys) => keys.len() <= FEW,
        }
    }
}

/// The entries of wanted keys, in key order, entry by entry as [`StateScan`] gives them.
pub struct WantedEntries {
    snapshot: StateSnapshot,
    table: TableId,
    ranges: Arc<[KeyRange]>,
    next_range: usize,
    place: Place,
}

enum Place {
    /// In a range, or in the whole table.
    Scan(StateScan),
    /// Before the next range, or at the end.
    Between,
    /// At one of the keys that were looked up.
    Found {
        keys: Arc<[Vec<u8>]>,
        values: BinaryArray,
        /// The number of the key after the present one.
        next: usize,
    },
}

impl StateSnapshot {
    /// The entries of a table whose keys are wanted.
    pub fn read(&self, table: TableId, wanted: &WantedKeys) -> Result<WantedEntries> {
        let (ranges, place): (Arc<[KeyRange]>, Place) = match wanted {
            WantedKeys::All => (Arc::new([]), Place::Scan(self.scan(table, None, None)?)),
            WantedKeys::Ranges(ranges) => (Arc::clone(ranges), Place::Between),
            WantedKeys::Keys(keys) => {
                let looked_up = BinaryArray::from_iter_values(keys.iter());
                let found = Place::Found {
                    keys: Arc::clone(keys),
                    values: self.get_many(table, &looked_up)?,
                    next: 0,
                };
                (Arc::new([]), found)
            }
        };
        Ok(WantedEntries {
            snapshot: self.clone(),
            table,
            ranges,
            next_range: 0,
            place,
        })
    }
}

impl WantedEntries {
    /// Moves to the next entry; false at the end.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            match &mut self.place {
                Place::Scan(scan) => {
                    if scan.advance()? {
                        return Ok(true);
                    }
                    self.place = Place::Between;
                }
                Place::Between => {
                    let Some(range) = self.ranges.get(self.next_range) else {
                        return Ok(false);
                    };
                    self.next_range += 1;
                    let (lower, upper) = (range.lower.as_slice(), range.upper.as_deref());
                    self.place = Place::Scan(self.snapshot.scan(self.table, Some(lower), upper)?);
                }
                Place::Found { values, next, .. } => {
                    let valid = (*next..values.len()).find(|&at| values.is_valid(at));
                    *next = valid.map_or(values.len(), |at| at + 1);
                    return Ok(valid.is_some());
                }
            }
        }
    }

    /// Key of the current entry, without the table's prefix.
    ///
    /// # Panics
    /// If the last [`Self::advance`] did not give true.
    pub fn key(&self) -> &[u8] {
        match &self.place {
            Place::Scan(scan) => scan.key(),
            Place::Found { keys, next, .. } => &keys[next - 1],
            Place::Between => panic!("there is no entry between two ranges"),
        }
    }

    /// Value of the current entry.
    ///
    /// # Panics
    /// If the last [`Self::advance`] did not give true.
    pub fn value(&self) -> &[u8] {
        match &self.place {
            Place::Scan(scan) => scan.value(),
            Place::Found { values, next, .. } => values.value(next - 1),
            Place::Between => panic!("there is no entry between two ranges"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{MemoryBudget, RunBuilder, StateStore, StateStoreOptions};

    const TABLE: TableId = TableId(7);

    fn store(dir: &std::path::Path, spill_bytes: usize) -> StateStore {
        let options = StateStoreOptions {
            budget: MemoryBudget::new(1 << 30),
            spill_bytes,
        };
        let store = StateStore::open(dir, uuid::Uuid::nil(), options).unwrap();
        for batch in 0..4u64 {
            let mut run = RunBuilder::new();
            for key in (0..200u16).filter(|key| u64::from(key % 4) == batch || key % 7 == 0) {
                let full = [&TABLE.0.to_be_bytes()[..], &key.to_be_bytes()].concat();
                let value = [batch as u8];
                run.push(&full, (key % 5 != 0 || batch < 3).then_some(&value[..]));
            }
            store.apply(batch, Arc::new(run.finish())).unwrap();
        }
        store.wait_until_idle().unwrap();
        store
    }

    fn entries(store: &StateStore, wanted: &WantedKeys) -> Vec<(u16, u8)> {
        let mut read = store.snapshot().read(TABLE, wanted).unwrap();
        let mut found = Vec::new();
        while read.advance().unwrap() {
            let key = u16::from_be_bytes(read.key().try_into().unwrap());
            found.push((key, read.value()[0]));
        }
        found
    }

    #[test]
    fn wanted_entries_are_those_of_a_scan_that_are_wanted() {
        for spill_bytes in [1, 1 << 20] {
            let dir = tempfile::tempdir().unwrap();
            let store = store(dir.path(), spill_bytes);
            let all = entries(&store, &WantedKeys::All);
            assert!(all.len() > 100);
            let range = |from: u16, to: u16| KeyRange {
                lower: from.to_be_bytes().to_vec(),
                upper: (to < 1000).then(|| to.to_be_bytes().to_vec()),
            };
            let ranges = [range(3, 9), range(9, 9), range(50, 61), range(180, 1000)];
            let in_ranges =
                |key: u16| (3..9).contains(&key) || (50..61).contains(&key) || key >= 180;
            let wanted: Vec<_> = all.iter().copied().filter(|e| in_ranges(e.0)).collect();
            assert_eq!(entries(&store, &WantedKeys::Ranges(ranges.into())), wanted);
            assert_eq!(entries(&store, &WantedKeys::Ranges([].into())), []);
            let keys: Vec<u16> = (0..300).step_by(3).collect();
            let wanted: Vec<_> = all.iter().copied().filter(|e| e.0 % 3 == 0).collect();
            let bytes: Vec<Vec<u8>> = keys.iter().map(|k| k.to_be_bytes().to_vec()).collect();
            assert_eq!(entries(&store, &WantedKeys::Keys(bytes.into())), wanted);
        }
    }

    #[test]
    fn the_bytes_after_a_prefix_are_the_least_that_do_not_begin_with_it() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(after_prefix(&[255, 255]), None);
        assert_eq!(after_prefix(&[]), None);
    }
}

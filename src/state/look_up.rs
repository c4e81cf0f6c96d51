//! Values of many ascending keys as of one batch.
//!
//! ```text
//!   keys ──► one scan that leaps from key to key ──► as long as a leap settles several keys
//!              │ the rest
//!              ▼
//!            look-ups by key: every run, then the mirror in memory, or the cold tier by its Bloom filters
//! ```
//!
//! What comes in is often new and its neighbours are too: then the scan stands far above, and a key
//! that is absent costs one comparison. Where the keys are strewn over the state, a leap per key
//! reads a block for each, which a filter mostly spares.

use std::ops::Range;

use datafusion::arrow::array::{Array, BinaryArray, BinaryBuilder};
use rocksdb::DBPinnableSlice;

use super::TableId;
use super::run::{PREFIX_BYTES, Run};
use super::snapshot::StateSnapshot;
use crate::error::{Error, Result, sqlstate};

/// Fewer keys than this are not worth a scan. Tests have few keys.
const SCANNED_KEYS_MIN: usize = if cfg!(test) { 4 } else { 256 };
/// The scan goes on as long as of so many keys …
const KEYS_PER_TRIAL: usize = if cfg!(test) { 8 } else { 64 };
/// … no more than so many made it leap.
const LEAPS_PER_TRIAL_MAX: usize = KEYS_PER_TRIAL / 4;

/// Where the value of a looked-up key is.
enum Place<'a> {
    Absent,
    Memory(&'a [u8]),
    Cold(usize),
    /// Bytes of what the scan found.
    Scanned(Range<usize>),
}

impl StateSnapshot {
    /// Values of `keys` (ascending, without the table prefix); null where absent.
    pub fn get_many(&self, table: TableId, keys: &BinaryArray) -> Result<BinaryArray> {
        debug_assert!(
            (1..keys.len()).all(|index| keys.value(index - 1) <= keys.value(index)),
            "keys ascend"
        );
        let mut places: Vec<Place<'_>> = Vec::with_capacity(keys.len());
        let mut scanned = Vec::new();
        if keys.len() >= SCANNED_KEYS_MIN {
            self.scan_keys(table, keys, &mut places, &mut scanned)?;
        }
        let mut unresolved: Vec<usize> = (places.len()..keys.len()).collect();
        places.resize_with(keys.len(), || Place::Absent);
        let mut hidden_below = false;
        for run in self.memory_runs() {
            if unresolved.is_empty() {
                break;
            }
            look_up(run, table, keys, &mut unresolved, &mut places);
            hidden_below = run.drops_table(table);
            if hidden_below {
                break;
            }
        }
        if let (Some(&first), false) = (unresolved.first(), hidden_below)
            && let Some(mut cursor) = self.packed(table, Some(keys.value(first)), None)
        {
            for at in unresolved.drain(..) {
                let key = keys.value(at);
                if cursor.is_at_entry() {
                    cursor.seek(key);
                }
                if cursor.is_at_entry() && cursor.key() == key {
                    let start = scanned.len();
                    scanned.extend_from_slice(cursor.value());
                    places[at] = Place::Scanned(start..scanned.len());
                }
            }
        }
        let mut pinned: Vec<DBPinnableSlice<'_>> = Vec::new();
        if let Some(cold) = self.cold()
            && !hidden_below
            && !unresolved.is_empty()
        {
            let cold_keys: Vec<&[u8]> = unresolved.iter().map(|&at| keys.value(at)).collect();
            cold.get_many(table, &cold_keys, |number, value| {
                places[unresolved[number]] = Place::Cold(pinned.len());
                pinned.push(value);
            })?;
        }
        gather(&places, &pinned, &scanned)
    }

    /// Resolves the first of the keys by a scan, up to where it no longer pays.
    fn scan_keys(
        &self,
        table: TableId,
        keys: &BinaryArray,
        places: &mut Vec<Place<'_>>,
        found: &mut Vec<u8>,
    ) -> Result<()> {
        let mut scan = self.scan(table, Some(keys.value(0)), None)?;
        let mut leaps = 0;
        for (index, key) in keys.iter().flatten().enumerate() {
            if index % KEYS_PER_TRIAL == 0 && std::mem::take(&mut leaps) > LEAPS_PER_TRIAL_MAX {
                return Ok(());
            }
            leaps += usize::from(scan.leap(key)?);
            places.push(match scan.value_of(key) {
                None => Place::Absent,
                Some(value) => {
                    let start = found.len();
                    found.extend_from_slice(value);
                    Place::Scanned(start..found.len())
                }
            });
        }
        Ok(())
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

fn gather(
    places: &[Place<'_>],
    pinned: &[DBPinnableSlice<'_>],
    scanned: &[u8],
) -> Result<BinaryArray> {
    let bytes_of = |place: &Place<'_>| match place {
        Place::Absent => 0,
        Place::Memory(value) => value.len(),
        Place::Cold(at) => pinned[*at].len(),
        Place::Scanned(range) => range.len(),
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
            Place::Scanned(range) => values.append_value(&scanned[range.clone()]),
        }
    }
    Ok(values.finish())
}

//! From the values that each key column may have to keys and ranges of keys.

use super::intervals::Intervals;
use crate::state::{KeyRange, WantedKeys};

/// Ranges, and keys looked up one by one, of one reading. Above it one range over all is read.
pub const RANGES_MAX: usize = 1024;

/// The keys that begin with columns of certain values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub wanted: WantedKeys,
    /// Leading columns of which each has one of some values.
    pub equalities: usize,
    /// The column after them is bounded.
    pub has_range: bool,
}

/// The keys whose leading columns have values in the intervals, column by column; `None` where the
/// first column may have any. `is_whole`: these are all columns of the key.
pub fn keys(columns: &[Option<Intervals>], is_whole: bool) -> Option<Keys> {
    if columns
        .iter()
        .flatten()
        .any(|set| set.as_slice().is_empty())
    {
        return Some(Keys {
            wanted: WantedKeys::Ranges([].into()),
            equalities: columns.len(),
            has_range: false,
        });
    }
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    let mut equalities = 0;
    let mut ranges = None;
    for set in columns.iter().map_while(Option::as_ref) {
        let fits = prefixes.len() * set.as_slice().len() <= RANGES_MAX;
        if fits && set.are_values() {
            prefixes = products(&prefixes, set);
            equalities += 1;
            continue;
        }
        let set = if fits { set.clone() } else { set.hull() };
        ranges = Some(ranges_below(&prefixes, &set));
        break;
    }
    if equalities == 0 && ranges.is_none() {
        return None;
    }
    let has_range = ranges.is_some();
    let wanted = match ranges {
        Some(ranges) => WantedKeys::Ranges(ranges.into()),
        None if is_whole && equalities == columns.len() => WantedKeys::Keys(prefixes.into()),
        None => {
            let ranges = prefixes.into_iter().map(KeyRange::of_prefix);
            WantedKeys::Ranges(ranges.collect())
        }
    };
    Some(Keys {
        wanted,
        equalities,
        has_range,
    })
}

/// Each prefix with each value after it; ascending, as the prefixes and values are.
fn products(prefixes: &[Vec<u8>], values: &Intervals) -> Vec<Vec<u8>> {
    let with = |prefix: &Vec<u8>| {
        let values = values.as_slice().iter();
        values
            .map(|value| [prefix.as_slice(), &value.lower].concat())
            .collect::<Vec<_>>()
    };
    prefixes.iter().flat_map(with).collect()
}

fn ranges_below(prefixes: &[Vec<u8>], set: &Intervals) -> Vec<KeyRange> {
    let mut ranges = Vec::with_capacity(prefixes.len() * set.as_slice().len());
    for prefix in prefixes {
        for interval in set.as_slice() {
            ranges.push(KeyRange {
                lower: [prefix.as_slice(), &interval.lower].concat(),
                upper: match &interval.upper {
                    Some(upper) => Some([prefix.as_slice(), upper].concat()),
                    None => KeyRange::of_prefix(prefix.clone()).upper,
                },
            });
        }
    }
    ranges
}

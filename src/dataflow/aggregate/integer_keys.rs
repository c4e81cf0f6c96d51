//! Groups of one integer-like column.
//!
//! Keys that lie close together, as running numbers, days and hours do, are found by their distance
//! from the smallest: an array of four bytes a key, without hash or comparison. All others are found
//! by a hash table of keys and groups. Which of the two is decided from the keys that are there, and
//! again when the groups are gathered anew; no answer and no stored byte depends on it.

use std::hash::BuildHasher;

use datafusion::arrow::array::Int64Array;
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::DataType;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::keys::HASH_SEED;

/// Place of a key that has no group.
const NO_GROUP: u32 = u32::MAX;

/// Keys up to this far apart are found by distance, however few they are: 16 KiB at most.
const SPAN_MIN: i128 = 4096;

/// The array may have this many places for each group: then it is no larger than a hash table.
const PLACES_PER_GROUP: i128 = 4;

/// How an integer-like type is laid out in arrow's row format: a byte that says that the value is not
/// null, then its bytes from the most significant on, the sign turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerForm {
    bytes: usize,
    signed: bool,
}

impl IntegerForm {
    /// The form of a type; `None`: it is not integer-like.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        let (bytes, signed) = match data_type {
            Int8 => (1, true),
            Int16 => (2, true),
            Int32 | Date32 | Time32(_) => (4, true),
            Int64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) => (8, true),
            UInt8 => (1, false),
            UInt16 => (2, false),
            UInt32 => (4, false),
            _ => return None,
        };
        Some(Self { bytes, signed })
    }

    fn write(self, key: Option<i64>, out: &mut Vec<u8>) {
        let mut row = [0; 9];
        if let Some(key) = key {
            let sign = u64::from(self.signed) << (8 * self.bytes - 1);
            let value = ((key as u64) ^ sign) << (64 - 8 * self.bytes);
            row[0] = 1;
            row[1..].copy_from_slice(&value.to_be_bytes());
        }
        out.extend_from_slice(&row);
        out.truncate(out.len() - row.len() + self.bytes + 1);
    }
}

/// The groups, numbered from 0 as they appear.
#[derive(Debug, Default)]
pub struct IntegerKeys {
    index: Index,
    keys: Vec<i64>,
    null_group: Option<u32>,
}

#[derive(Debug)]
enum Index {
    /// Group of the key `base + place`.
    Distance { base: i64, groups: Vec<u32> },
    /// Key and group by the key's hash.
    Hashed(HashTable<(i64, u32)>),
}

impl Default for Index {
    fn default() -> Self {
        Self::Distance {
            base: 0,
            groups: Vec::new(),
        }
    }
}

fn hash(key: i64) -> u64 {
    FixedState::with_seed(HASH_SEED).hash_one(key)
}

impl IntegerKeys {
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Group of each of `rows`, appended to `groups`; unknown keys become new groups.
    pub fn intern(
        &mut self,
        values: &[i64],
        nulls: Option<&NullBuffer>,
        rows: &[u32],
        groups: &mut Vec<u32>,
    ) {
        let Some(nulls) = nulls else {
            self.make_room(rows.iter().map(|&row| values[row as usize]), rows.len());
            return self.intern_all(rows.iter().map(|&row| values[row as usize]), groups);
        };
        let valid = rows.iter().filter(|&&row| nulls.is_valid(row as usize));
        let valid = valid.map(|&row| values[row as usize]);
        self.make_room(valid, rows.len());
        for &row in rows {
            if nulls.is_valid(row as usize) {
                self.intern_all(std::iter::once(values[row as usize]), groups);
            } else {
                groups.push(self.intern_null());
            }
        }
    }

    /// For keys that there is room for.
    fn intern_all(&mut self, values: impl Iterator<Item = i64>, groups: &mut Vec<u32>) {
        let keys = &mut self.keys;
        match &mut self.index {
            Index::Distance { base, groups: of } => groups.extend(values.map(|key| {
                let group = &mut of[key.wrapping_sub(*base) as usize];
                if *group == NO_GROUP {
                    *group = keys.len() as u32;
                    keys.push(key);
                }
                *group
            })),
            Index::Hashed(table) => groups.extend(values.map(|key| {
                let next = keys.len() as u32;
                match table.entry(hash(key), |&(k, _)| k == key, |&(k, _)| hash(k)) {
                    Entry::Occupied(found) => found.get().1,
                    Entry::Vacant(vacant) => {
                        vacant.insert((key, next));
                        keys.push(key);
                        next
                    }
                }
            })),
        }
    }

    fn intern_null(&mut self) -> u32 {
        *self.null_group.get_or_insert_with(|| {
            self.keys.push(0);
            (self.keys.len() - 1) as u32
        })
    }

    /// Extends the array to keys among `values`, of which there are at most `count`, or goes over
    /// to a hash table where they lie too far apart.
    fn make_room(&mut self, values: impl Iterator<Item = i64>, count: usize) {
        let Index::Distance { base, groups } = &mut self.index else {
            return;
        };
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        values.for_each(|key| {
            least = least.min(key);
            greatest = greatest.max(key);
        });
        if least > greatest {
            return;
        }
        let end = i128::from(*base) + groups.len() as i128;
        if !groups.is_empty() {
            if least >= *base && i128::from(greatest) < end {
                return;
            }
            least = least.min(*base);
            greatest = greatest.max((end - 1) as i64);
        }
        let span = i128::from(greatest) - i128::from(least) + 1;
        if span > span_max(self.keys.len() + count) {
            return self.use_hashes();
        }
        // Where keys ascend, the next ones find room too.
        let ahead = if groups.is_empty() { 0 } else { span / 4 };
        let room = ahead.min(i128::from(i64::MAX) - i128::from(greatest));
        let before = if groups.is_empty() {
            0
        } else {
            base.wrapping_sub(least) as usize
        };
        let mut extended = vec![NO_GROUP; (span + room) as usize];
        extended[before..before + groups.len()].copy_from_slice(groups);
        (*base, *groups) = (least, extended);
    }

    fn use_hashes(&mut self) {
        let mut table = HashTable::with_capacity(self.keys.len());
        for (group, &key) in self.keys.iter().enumerate() {
            let group = group as u32;
            if self.null_group != Some(group) {
                table.insert_unique(hash(key), (key, group), |&(k, _)| hash(k));
            }
        }
        self.index = Index::Hashed(table);
    }

    /// Compares as the stored form does: a null before every number.
    pub fn rank(&self, group: u32) -> (bool, i64) {
        let is_null = self.null_group == Some(group);
        (!is_null, self.keys[group as usize])
    }

    /// The keys of `groups` as a column of 64-bit integers.
    pub fn column(&self, groups: &[u32]) -> Int64Array {
        let values: Vec<i64> = groups.iter().map(|&g| self.keys[g as usize]).collect();
        let nulls = self
            .null_group
            .map(|null| groups.iter().map(|&g| g != null).collect::<NullBuffer>())
            .filter(|nulls| nulls.null_count() > 0);
        Int64Array::new(values.into(), nulls)
    }

    /// Appends the stored key of a group.
    pub fn write(&self, group: u32, form: IntegerForm, out: &mut Vec<u8>) {
        let is_null = self.null_group == Some(group);
        form.write((!is_null).then(|| self.keys[group as usize]), out);
    }

    /// Only `groups`, renumbered in that order.
    pub fn gathered(&self, groups: &[u32]) -> Self {
        let mut new = Self::default();
        let keys = groups.iter().filter(|&&g| self.null_group != Some(g));
        let keys = keys.map(|&g| self.keys[g as usize]);
        new.make_room(keys, groups.len());
        let mut numbers = Vec::with_capacity(groups.len());
        for &group in groups {
            if self.null_group == Some(group) {
                numbers.push(new.intern_null());
            } else {
                new.intern_all(std::iter::once(self.keys[group as usize]), &mut numbers);
            }
        }
        new
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        let index = match &self.index {
            Index::Distance { groups, .. } => groups.capacity() * 4,
            Index::Hashed(table) => table.allocation_size(),
        };
        index + self.keys.capacity() * 8
    }
}

/// Keys of that many groups may be this far apart.
fn span_max(groups: usize) -> i128 {
    (groups as i128 * PLACES_PER_GROUP).max(SPAN_MIN)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{ArrayRef, new_null_array};
    use datafusion::arrow::datatypes::TimeUnit;
    use datafusion::arrow::row::{RowConverter, SortField};

    use super::super::keys::from_integers;
    use super::*;

    /// The groups of batches of keys are those that a map gives; returns the keys in the end.
    fn check(batches: &[Vec<Option<i64>>]) -> IntegerKeys {
        let mut keys = IntegerKeys::default();
        let mut known: HashMap<Option<i64>, u32> = HashMap::new();
        for batch in batches {
            let values: Vec<i64> = batch.iter().map(|key| key.unwrap_or(i64::MIN)).collect();
            let nulls: NullBuffer = batch.iter().map(Option::is_some).collect();
            let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
            let rows: Vec<u32> = (0..batch.len() as u32).collect();
            let mut found = Vec::new();
            keys.intern(&values, nulls.as_ref(), &rows, &mut found);
            for (key, group) in batch.iter().zip(found) {
                let next = known.len() as u32;
                assert_eq!(*known.entry(*key).or_insert(next), group, "{key:?}");
            }
        }
        assert_eq!(keys.len(), known.len());
        keys
    }

    #[test]
    fn near_and_far_keys_are_told_apart_alike() {
        let near = |from: i64| (from..from + 3000).map(Some).collect::<Vec<_>>();
        let keys = check(&[
            near(5000),
            near(4000),
            near(9000),
            vec![None, Some(-7), None],
        ]);
        assert!(matches!(keys.index, Index::Distance { .. }));
        let keys = check(&[near(0), vec![Some(i64::MAX), Some(i64::MIN), None], near(7)]);
        assert!(matches!(keys.index, Index::Hashed(_)));
        check(&[vec![Some(i64::MAX), None], vec![Some(i64::MAX - 1)]]);
        check(&[vec![None], vec![None, Some(0)]]);
    }

    #[test]
    fn gathering_chooses_the_index_anew() {
        let keys = check(&[vec![Some(1), None, Some(1 << 40), Some(3)]]);
        assert!(matches!(keys.index, Index::Hashed(_)));
        let mut few = keys.gathered(&[3, 1, 0]);
        assert!(matches!(few.index, Index::Distance { .. }));
        let mut groups = Vec::new();
        let nulls: NullBuffer = [true, false, true, true].into_iter().collect();
        few.intern(&[1, 0, 3, 2], Some(&nulls), &[0, 1, 2, 3], &mut groups);
        assert_eq!(groups, [2, 1, 0, 3]);
    }

    #[test]
    fn the_stored_form_is_that_of_the_row_converter() {
        use DataType::*;
        let types = [
            Int8,
            Int16,
            Int32,
            Int64,
            UInt8,
            UInt16,
            UInt32,
            Date32,
            Date64,
            Time32(TimeUnit::Second),
            Time64(TimeUnit::Microsecond),
            Timestamp(TimeUnit::Microsecond, None),
            Duration(TimeUnit::Millisecond),
        ];
        for data_type in types {
            let form = IntegerForm::of(&data_type).unwrap();
            let numbers: &[i64] = if form.signed {
                &[-100, -1, 0, 1, 127]
            } else {
                &[0, 1, 127, 200]
            };
            let converter = RowConverter::new(vec![SortField::new(data_type.clone())]).unwrap();
            let convert = |column: ArrayRef| converter.convert_columns(&[column]).unwrap();
            let column = Int64Array::from(numbers.to_vec());
            let expected = convert(from_integers(column, &data_type).unwrap());
            for (index, &number) in numbers.iter().enumerate() {
                let mut written = Vec::new();
                form.write(Some(number), &mut written);
                assert_eq!(written, expected.row(index).data(), "{data_type} {number}");
            }
            let mut written = Vec::new();
            form.write(None, &mut written);
            let expected = convert(new_null_array(&data_type, 1));
            assert_eq!(written, expected.row(0).data(), "{data_type} null");
        }
    }
}

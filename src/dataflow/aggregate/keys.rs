//! Group keys: which group a row belongs to.
//!
//! Three tables behind one face. One integer-like column (the common case) has a table of its own
//! ([`IntegerKeys`]). All other keys are the arrow-row bytes of the group columns in an arena. No
//! group columns at all: one group. The stored form of a key is the arrow-row bytes in every case,
//! so the choice is invisible in the state.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

use super::integer_keys::{IntegerForm, IntegerKeys};
use crate::dataflow::entries::leading_bytes;
use crate::dataflow::rows::comparable_floats;
use crate::error::{Error, Result};

/// Seed of the tables' hashes. Fixed: no answer and no stored byte depends on it.
pub(super) const HASH_SEED: u64 = 0x7469_6465_6d69_6c6c;

/// Types whose values are 64-bit integers (or fewer) at heart.
pub fn is_integer_like(data_type: &DataType) -> bool {
    IntegerForm::of(data_type).is_some()
}

/// The integers of an integer-like array.
pub fn to_integers(array: &ArrayRef) -> Result<Int64Array> {
    let array = match array.data_type() {
        DataType::Date32 | DataType::Time32(_) => cast(array, &DataType::Int32)?,
        _ => Arc::clone(array),
    };
    Ok(cast(&array, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

/// An array of an integer-like type from its integers.
pub fn from_integers(values: Int64Array, data_type: &DataType) -> Result<ArrayRef> {
    let values: ArrayRef = Arc::new(values);
    let values = match data_type {
        DataType::Int64 => return Ok(values),
        DataType::Date32 | DataType::Time32(_) => cast(&values, &DataType::Int32)?,
        _ => values,
    };
    Ok(cast(&values, data_type)?)
}

/// How an operator's group columns are keyed; shared by its shards.
#[derive(Debug)]
pub struct KeyFormat {
    types: Vec<DataType>,
    converter: Option<RowConverter>,
    /// Of the only group column.
    integer: Option<IntegerForm>,
}

/// The keys of a batch's rows.
#[derive(Debug)]
pub enum BatchKeys {
    /// No group columns, and the number of rows.
    Single(usize),
    /// One integer-like column.
    Integer(ScalarBuffer<i64>, Option<NullBuffer>),
    /// Arrow-row bytes and their hashes.
    Encoded(Rows, Vec<u64>),
}

impl BatchKeys {
    /// The rows whose key falls to shard `index` of `shards`.
    pub fn select(&self, index: usize, shards: usize, rows: &mut Vec<u32>) {
        let count = match self {
            Self::Single(count) => *count,
            Self::Integer(values, _) => values.len(),
            Self::Encoded(_, hashes) => hashes.len(),
        };
        rows.clear();
        if shards == 1 || matches!(self, Self::Single(_)) {
            rows.extend(0..count as u32);
            return;
        }
        let shards = shards as u64;
        let is_of = |spread: u64| ((spread >> 32) * shards) >> 32 == index as u64;
        match self {
            Self::Single(_) => {}
            Self::Integer(values, None) => {
                select_where(values.iter().map(|&value| is_of(spread(value))), rows);
            }
            Self::Integer(values, Some(nulls)) => {
                let keys = values.iter().zip(nulls.iter());
                let spread =
                    keys.map(|(&value, is_valid)| if is_valid { spread(value) } else { 0 });
                select_where(spread.map(is_of), rows);
            }
            // The slots of a table are chosen by a hash's lower bits.
            Self::Encoded(_, hashes) => {
                select_where(hashes.iter().map(|hash| is_of(hash << 12)), rows);
            }
        }
    }
}

/// Spreads neighbouring integers evenly over the upper bits: a multiplication by 2^64 divided by
/// the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
fn spread(value: i64) -> u64 {
    (value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The positions of what is true. Without a branch: which rows these are cannot be predicted.
fn select_where(chosen: impl ExactSizeIterator<Item = bool>, rows: &mut Vec<u32>) {
    rows.resize(chosen.len(), 0);
    let mut length = 0;
    for (row, is_chosen) in chosen.enumerate() {
        rows[length] = row as u32;
        length += usize::from(is_chosen);
    }
    rows.truncate(length);
}

impl KeyFormat {
    /// The format for group columns of these types; SQLSTATE 0A000 for a type that has no order.
    pub fn try_new(types: Vec<DataType>) -> Result<Self> {
        let fields: Vec<_> = types.iter().cloned().map(SortField::new).collect();
        if !RowConverter::supports_fields(&fields) {
            return Err(Error::unsupported("cannot group by a column of this type"));
        }
        let converter = if types.is_empty() {
            None
        } else {
            Some(RowConverter::new(fields)?)
        };
        let integer = match types.as_slice() {
            [only] => IntegerForm::of(only),
            _ => None,
        };
        Ok(Self {
            types,
            converter,
            integer,
        })
    }

    /// No group columns.
    pub fn is_single(&self) -> bool {
        self.types.is_empty()
    }

    /// An empty table of groups.
    pub fn new_table(&self) -> GroupKeys {
        if self.is_single() {
            GroupKeys::Single { present: false }
        } else if self.integer.is_some() {
            GroupKeys::Integer(IntegerKeys::default())
        } else {
            GroupKeys::Encoded(EncodedKeys::default())
        }
    }

    /// Keys of a batch's group columns.
    pub fn batch_keys(&self, columns: &[ArrayRef], rows: usize) -> Result<BatchKeys> {
        let Some(converter) = &self.converter else {
            return Ok(BatchKeys::Single(rows));
        };
        if self.integer.is_some() {
            let (_, values, nulls) = to_integers(&columns[0])?.into_parts();
            return Ok(BatchKeys::Integer(values, nulls));
        }
        let columns: Vec<_> = columns.iter().map(comparable_floats).collect();
        let encoded = converter.convert_columns(&columns)?;
        let state = FixedState::with_seed(HASH_SEED);
        let hashes = encoded
            .iter()
            .map(|row| state.hash_one(row.data()))
            .collect();
        Ok(BatchKeys::Encoded(encoded, hashes))
    }

    /// Group columns from stored keys.
    pub fn decode<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        match &self.converter {
            None => Ok(Vec::new()),
            Some(converter) => {
                let parser = converter.parser();
                Ok(converter.convert_rows(keys.map(|key| parser.parse(key)))?)
            }
        }
    }
}

/// The groups of one shard, numbered from 0 as they appear.
#[derive(Debug)]
pub enum GroupKeys {
    /// No group columns: at most one group.
    Single {
        /// The group has been asked for.
        present: bool,
    },
    /// One integer-like column.
    Integer(IntegerKeys),
    /// Arrow-row bytes.
    Encoded(EncodedKeys),
}

/// Groups of any other columns.
#[derive(Debug)]
pub struct EncodedKeys {
    // Upper half of the hash and group: most strangers are told apart without the arena.
    table: HashTable<(u64, u32)>,
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Default for EncodedKeys {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            bytes: Vec::new(),
            offsets: vec![0],
        }
    }
}

impl EncodedKeys {
    fn key(&self, group: u32) -> &[u8] {
        &self.bytes[self.offsets[group as usize]..self.offsets[group as usize + 1]]
    }

    fn intern(&mut self, key: &[u8], hash: u64) -> u32 {
        let Self {
            table,
            bytes,
            offsets,
        } = self;
        let next = (offsets.len() - 1) as u32;
        let entry = table.entry(
            hash,
            |&(h, g)| h == hash && bytes[offsets[g as usize]..offsets[g as usize + 1]] == *key,
            |&(h, _)| h,
        );
        match entry {
            Entry::Occupied(found) => found.get().1,
            Entry::Vacant(vacant) => {
                vacant.insert((hash, next));
                bytes.extend_from_slice(key);
                offsets.push(bytes.len());
                next
            }
        }
    }
}

impl GroupKeys {
    /// Number of groups.
    pub fn len(&self) -> usize {
        match self {
            Self::Single { present } => usize::from(*present),
            Self::Integer(keys) => keys.len(),
            Self::Encoded(keys) => keys.offsets.len() - 1,
        }
    }

    /// Group of each of `rows`, appended to `groups`; unknown keys become new groups.
    pub fn intern(&mut self, keys: &BatchKeys, rows: &[u32], groups: &mut Vec<u32>) {
        groups.reserve(rows.len());
        match (self, keys) {
            (Self::Single { present }, BatchKeys::Single(_)) => {
                *present |= !rows.is_empty();
                groups.resize(groups.len() + rows.len(), 0);
            }
            (Self::Integer(table), BatchKeys::Integer(values, nulls)) => {
                table.intern(values, nulls.as_ref(), rows, groups);
            }
            (Self::Encoded(table), BatchKeys::Encoded(encoded, hashes)) => {
                groups.extend(rows.iter().map(|&row| {
                    table.intern(encoded.row(row as usize).data(), hashes[row as usize])
                }));
            }
            _ => unreachable!("table and batch keys come from one format"),
        }
    }

    /// Sorts `groups` by their stored keys.
    pub fn sort(&self, groups: &mut [u32]) {
        match self {
            Self::Single { .. } => {}
            Self::Integer(keys) => {
                groups.sort_unstable_by_key(|&group| keys.rank(group));
            }
            Self::Encoded(keys) => {
                let mut order: Vec<(u128, u32)> = groups
                    .iter()
                    .map(|&g| (leading_bytes(keys.key(g)), g))
                    .collect();
                order.sort_unstable_by(|a, b| {
                    a.0.cmp(&b.0).then_with(|| keys.key(a.1).cmp(keys.key(b.1)))
                });
                for (group, (_, sorted)) in groups.iter_mut().zip(order) {
                    *group = sorted;
                }
            }
        }
    }

    /// Merges two lists of groups that are each sorted.
    pub fn merge(&self, left: &[u32], right: &[u32]) -> Vec<u32> {
        let is_less = |a: u32, b: u32| match self {
            Self::Single { .. } => a < b,
            Self::Integer(keys) => keys.rank(a) < keys.rank(b),
            Self::Encoded(keys) => keys.key(a) < keys.key(b),
        };
        let (mut left, mut right) = (left, right);
        let mut merged = Vec::with_capacity(left.len() + right.len());
        while let ([a, left_rest @ ..], [b, right_rest @ ..]) = (left, right) {
            if is_less(*b, *a) {
                merged.push(*b);
                right = right_rest;
            } else {
                merged.push(*a);
                left = left_rest;
            }
        }
        merged.extend_from_slice(left);
        merged.extend_from_slice(right);
        merged
    }

    /// Group columns of `groups`.
    pub fn columns(
        &self,
        groups: impl ExactSizeIterator<Item = u32>,
        format: &KeyFormat,
    ) -> Result<Vec<ArrayRef>> {
        match self {
            Self::Single { .. } => Ok(Vec::new()),
            Self::Integer(keys) => {
                let groups: Vec<u32> = groups.collect();
                Ok(vec![from_integers(keys.column(&groups), &format.types[0])?])
            }
            Self::Encoded(keys) => format.decode(groups.map(|g| keys.key(g))),
        }
    }

    /// Appends the stored key of a group.
    pub fn write(&self, group: u32, format: &KeyFormat, out: &mut Vec<u8>) {
        match (self, format.integer) {
            (Self::Single { .. }, _) => {}
            (Self::Encoded(keys), _) => out.extend_from_slice(keys.key(group)),
            (Self::Integer(keys), Some(form)) => keys.write(group, form, out),
            (Self::Integer(_), None) => unreachable!("table and format belong together"),
        }
    }

    /// Stored keys of `groups`.
    pub fn encode(
        &self,
        groups: impl ExactSizeIterator<Item = u32>,
        format: &KeyFormat,
    ) -> BinaryArray {
        let mut bytes = Vec::new();
        let mut offsets = Vec::with_capacity(groups.len() + 1);
        offsets.push(0);
        for group in groups {
            self.write(group, format, &mut bytes);
            offsets.push(offset(bytes.len()));
        }
        BinaryArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), None)
    }

    /// A table with only `groups`, renumbered in that order.
    pub fn gathered(&self, groups: &[u32]) -> Self {
        match self {
            Self::Single { .. } => Self::Single {
                present: !groups.is_empty(),
            },
            Self::Integer(old) => Self::Integer(old.gathered(groups)),
            Self::Encoded(old) => {
                let state = FixedState::with_seed(HASH_SEED);
                let mut new = EncodedKeys::default();
                for &group in groups {
                    let key = old.key(group);
                    new.intern(key, state.hash_one(key));
                }
                Self::Encoded(new)
            }
        }
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Single { .. } => 0,
            Self::Integer(keys) => keys.size_bytes(),
            Self::Encoded(keys) => {
                keys.table.allocation_size() + keys.bytes.capacity() + keys.offsets.capacity() * 8
            }
        }
    }
}

/// A binary array of `items`.
pub fn binary_from<'a>(items: impl Iterator<Item = &'a [u8]>) -> BinaryArray {
    let mut bytes = Vec::new();
    let mut offsets = vec![0i32];
    for item in items {
        bytes.extend_from_slice(item);
        offsets.push(offset(bytes.len()));
    }
    BinaryArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), None)
}

fn offset(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("the keys of a batch are less than 2 GiB")
}

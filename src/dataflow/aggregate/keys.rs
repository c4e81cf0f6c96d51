//! Group keys: which group a row belongs to.
//!
//! Three tables behind one face. One integer-like column (the common case) is hashed as an i64
//! beside its group number, so that a look-up is one cache line. All other keys are the arrow-row
//! bytes of the group columns in an arena. No group columns at all: one group. The stored form of
//! a key is the arrow-row bytes in every case, so the choice is invisible in the state.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rayon::prelude::*;
use std::hash::BuildHasher;

use crate::dataflow::entries::leading_bytes;
use crate::dataflow::rows::without_negative_zero;
use crate::error::{Error, Result};

/// Seed of the hash that picks shard and slot. Fixed: no answer and no stored byte depends on it.
const HASH_SEED: u64 = 0x7469_6465_6d69_6c6c;

/// Rows that one thread hashes at once.
const HASH_CHUNK_ROWS: usize = 32 * 1024;

/// Types whose values are 64-bit integers (or fewer) at heart.
pub fn is_integer_like(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Int8 | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | Date32
            | Date64
            | Time32(_)
            | Time64(_)
            | Timestamp(_, _)
            | Duration(_)
    )
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
}

/// The keys of a batch's rows.
#[derive(Debug)]
pub enum BatchKeys {
    /// No group columns.
    Single,
    /// One integer-like column.
    Integer(ScalarBuffer<i64>, Option<NullBuffer>),
    /// Arrow-row bytes.
    Encoded(Rows),
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
        Ok(Self { types, converter })
    }

    /// No group columns.
    pub fn is_single(&self) -> bool {
        self.types.is_empty()
    }

    fn is_integer(&self) -> bool {
        self.types.len() == 1 && is_integer_like(&self.types[0])
    }

    /// An empty table of groups.
    pub fn new_table(&self) -> GroupKeys {
        if self.is_single() {
            GroupKeys::Single { present: false }
        } else if self.is_integer() {
            GroupKeys::Integer(IntegerKeys::default())
        } else {
            GroupKeys::Encoded(EncodedKeys::default())
        }
    }

    /// Keys and hashes of a batch's group columns.
    pub fn batch_keys(&self, columns: &[ArrayRef], rows: usize) -> Result<(BatchKeys, Vec<u64>)> {
        let state = FixedState::with_seed(HASH_SEED);
        let Some(converter) = &self.converter else {
            return Ok((BatchKeys::Single, vec![0; rows]));
        };
        if self.is_integer() {
            let (_, values, nulls) = to_integers(&columns[0])?.into_parts();
            let mut hashes = vec![0; rows];
            let chunks = hashes
                .par_chunks_mut(HASH_CHUNK_ROWS)
                .zip(values.par_chunks(HASH_CHUNK_ROWS));
            chunks.for_each(|(hashes, values)| {
                for (hash, value) in hashes.iter_mut().zip(values) {
                    *hash = state.hash_one(value);
                }
            });
            if let Some(nulls) = &nulls {
                for (row, hash) in hashes.iter_mut().enumerate() {
                    *hash = if nulls.is_valid(row) { *hash } else { 0 };
                }
            }
            return Ok((BatchKeys::Integer(values, nulls), hashes));
        }
        let columns: Vec<_> = columns.iter().map(without_negative_zero).collect();
        let encoded = converter.convert_columns(&columns)?;
        let hashes = encoded
            .iter()
            .map(|row| state.hash_one(row.data()))
            .collect();
        Ok((BatchKeys::Encoded(encoded), hashes))
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

/// Groups of an integer-like column.
#[derive(Debug, Default)]
pub struct IntegerKeys {
    table: HashTable<(i64, u32)>,
    keys: Vec<i64>,
    null_group: Option<u32>,
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

impl IntegerKeys {
    fn intern(&mut self, key: i64, hash: u64, state: &FixedState) -> u32 {
        let next = self.keys.len() as u32;
        match self
            .table
            .entry(hash, |&(k, _)| k == key, |&(k, _)| state.hash_one(k))
        {
            Entry::Occupied(found) => found.get().1,
            Entry::Vacant(vacant) => {
                vacant.insert((key, next));
                self.keys.push(key);
                next
            }
        }
    }

    fn intern_null(&mut self) -> u32 {
        *self.null_group.get_or_insert_with(|| {
            self.keys.push(0);
            (self.keys.len() - 1) as u32
        })
    }
}

impl GroupKeys {
    /// Number of groups.
    pub fn len(&self) -> usize {
        match self {
            Self::Single { present } => usize::from(*present),
            Self::Integer(keys) => keys.keys.len(),
            Self::Encoded(keys) => keys.offsets.len() - 1,
        }
    }

    /// Group of each of `rows`, appended to `groups`; unknown keys become new groups.
    pub fn intern(
        &mut self,
        keys: &BatchKeys,
        hashes: &[u64],
        rows: &[u32],
        groups: &mut Vec<u32>,
    ) {
        groups.reserve(rows.len());
        match (self, keys) {
            (Self::Single { present }, BatchKeys::Single) => {
                *present |= !rows.is_empty();
                groups.resize(groups.len() + rows.len(), 0);
            }
            (Self::Integer(table), BatchKeys::Integer(values, nulls)) => {
                let state = FixedState::with_seed(HASH_SEED);
                match nulls {
                    None => groups.extend(rows.iter().map(|&row| {
                        table.intern(values[row as usize], hashes[row as usize], &state)
                    })),
                    Some(nulls) => groups.extend(rows.iter().map(|&row| {
                        if nulls.is_valid(row as usize) {
                            table.intern(values[row as usize], hashes[row as usize], &state)
                        } else {
                            table.intern_null()
                        }
                    })),
                }
            }
            (Self::Encoded(table), BatchKeys::Encoded(encoded)) => {
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
                // A null sorts before every number in the stored form.
                let rank = |&group: &u32| {
                    let null = keys.null_group == Some(group);
                    (!null, keys.keys[group as usize])
                };
                groups.sort_unstable_by_key(rank);
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
            Self::Integer(keys) => {
                let rank = |g: u32| (keys.null_group != Some(g), keys.keys[g as usize]);
                rank(a) < rank(b)
            }
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
                let values: Vec<i64> = groups.iter().map(|&g| keys.keys[g as usize]).collect();
                let nulls = keys
                    .null_group
                    .map(|null| groups.iter().map(|&g| g != null).collect::<NullBuffer>())
                    .filter(|nulls| nulls.null_count() > 0);
                Ok(vec![from_integers(
                    Int64Array::new(values.into(), nulls),
                    &format.types[0],
                )?])
            }
            Self::Encoded(keys) => format.decode(groups.map(|g| keys.key(g))),
        }
    }

    /// Stored keys of `groups`.
    pub fn encode(
        &self,
        groups: impl ExactSizeIterator<Item = u32>,
        format: &KeyFormat,
    ) -> Result<BinaryArray> {
        match (self, &format.converter) {
            (Self::Single { .. }, _) => Ok(BinaryArray::from_iter_values(groups.map(|_| b""))),
            (Self::Integer(_), Some(converter)) => {
                let columns = self.columns(groups, format)?;
                Ok(converter.convert_columns(&columns)?.try_into_binary()?)
            }
            (Self::Encoded(keys), _) => Ok(binary_from(groups.map(|g| keys.key(g)))),
            (Self::Integer(_), None) => unreachable!("an integer key has one group column"),
        }
    }

    /// A table with only `groups`, renumbered in that order.
    pub fn gathered(&self, groups: &[u32]) -> Self {
        let state = FixedState::with_seed(HASH_SEED);
        match self {
            Self::Single { .. } => Self::Single {
                present: !groups.is_empty(),
            },
            Self::Integer(old) => {
                let mut new = IntegerKeys::default();
                for &group in groups {
                    if old.null_group == Some(group) {
                        new.intern_null();
                    } else {
                        let key = old.keys[group as usize];
                        new.intern(key, state.hash_one(key), &state);
                    }
                }
                Self::Integer(new)
            }
            Self::Encoded(old) => {
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
            Self::Integer(keys) => keys.table.allocation_size() + keys.keys.capacity() * 8,
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
        offsets.push(i32::try_from(bytes.len()).expect("the keys of a batch are less than 2 GiB"));
    }
    BinaryArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), None)
}

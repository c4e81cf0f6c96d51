//! Many entries in little memory: sorted, immutable, keys written by what differs from the one before.
//!
//! The form of a [`super::mirror`]. A run spends 25 bytes on an entry besides its key and value (table,
//! offsets, kind), here it is a few: blocks of [`BLOCK_ENTRIES`] entries, of which the first key is
//! whole. Above the blocks lie two levels of what their first keys begin with, as numbers: a seek in
//! ten million entries is two searches in memory that mostly stays in the processor's cache, and half
//! a block read.
//!
//! ```text
//!   tops ── every 64th head ──► heads ── one a block ──► block: [shared, rest, value] [shared, …] …
//! ```
//!
//! Deliberately absent: tombstones (there is nothing below to hide) and compression beyond the
//! prefixes, which would cost more than the search.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::MemoryBudget;
use super::memory::MemoryCharge;
use super::run::{Leading, PREFIX_BYTES, leading_of};

/// Entries of a block.
const BLOCK_ENTRIES: usize = 32;
/// Heads under one of the level above.
const HEADS_PER_TOP: usize = 64;
/// Blocks gather in pieces of this many bytes: one that grew would be copied, and be there twice.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a block lies.
#[derive(Debug, Clone, Copy)]
struct BlockPlace {
    chunk: u32,
    start: u32,
    entries: u32,
}

/// The entries; built by [`PackedBuilder`], read by [`PackedCursor`].
#[derive(Debug)]
pub(super) struct PackedEntries {
    chunks: Vec<Vec<u8>>,
    places: Vec<BlockPlace>,
    heads: Vec<Leading>,
    tops: Vec<Leading>,
    charge: MemoryCharge,
}

/// Packs entries that come in key order.
#[derive(Debug)]
pub(super) struct PackedBuilder {
    chunks: Vec<Vec<u8>>,
    places: Vec<BlockPlace>,
    heads: Vec<Leading>,
    last_key: Vec<u8>,
    charge: MemoryCharge,
}

impl PackedBuilder {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self {
            chunks: Vec::new(),
            places: Vec::new(),
            heads: Vec::new(),
            last_key: Vec::new(),
            charge: MemoryCharge::new(budget, 0),
        }
    }

    /// Appends an entry; `key` (with its table prefix) must be greater than the last one.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        debug_assert!(
            self.places.is_empty() || self.last_key.as_slice() < key,
            "keys ascend"
        );
        let is_full = |place: &BlockPlace| place.entries as usize == BLOCK_ENTRIES;
        if self.places.last().is_none_or(is_full) {
            self.begin_block(key);
        }
        let (Some(chunk), Some(place)) = (self.chunks.last_mut(), self.places.last_mut()) else {
            return;
        };
        let shared = match place.entries {
            0 => 0,
            _ => shared_prefix(&self.last_key, key),
        };
        write_number(shared, chunk);
        write_number(key.len() - shared, chunk);
        write_number(value.len(), chunk);
        chunk.extend_from_slice(&key[shared..]);
        chunk.extend_from_slice(value);
        place.entries += 1;
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    fn begin_block(&mut self, key: &[u8]) {
        if self.chunks.last().is_none_or(|c| c.len() >= CHUNK_BYTES) {
            self.account();
            // The last block of a chunk goes over its size.
            self.chunks
                .push(Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 16));
        }
        let chunk = self.chunks.len() - 1;
        self.places.push(BlockPlace {
            chunk: chunk as u32,
            start: self.chunks[chunk].len() as u32,
            entries: 0,
        });
        self.heads.push(leading_of(key));
    }

    /// Accounts for what the last chunk came to.
    fn account(&mut self) {
        if let Some(full) = self.chunks.last_mut() {
            full.shrink_to_fit();
            self.charge.grow(full.len());
        }
    }

    pub(super) fn finish(mut self) -> PackedEntries {
        self.account();
        self.places.shrink_to_fit();
        self.heads.shrink_to_fit();
        let tops: Vec<Leading> = self.heads.iter().copied().step_by(HEADS_PER_TOP).collect();
        let heads = size_of::<Leading>() * (self.heads.len() + tops.len());
        self.charge
            .grow(heads + size_of::<BlockPlace>() * self.places.len());
        PackedEntries {
            chunks: self.chunks,
            places: self.places,
            heads: self.heads,
            tops,
            charge: self.charge,
        }
    }
}

impl PackedEntries {
    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// The block in which `key` is if it is anywhere: the last one that begins at or below it.
    fn block_of(&self, key: &[u8]) -> Option<usize> {
        let leading = leading_of(key);
        let above = self.tops.partition_point(|top| *top < leading);
        // The heads below `above` are less than `key`; that of the top before may go on.
        let from = above.saturating_sub(1) * HEADS_PER_TOP;
        let is_at_or_below = |block: usize| match self.heads[block].cmp(&leading) {
            Ordering::Equal => self.first_key(block) <= key,
            other => other.is_lt(),
        };
        let mut end = (above * HEADS_PER_TOP).min(self.heads.len());
        // Tops that are equal to the key's beginning say nothing: look on block by block of them.
        while end < self.heads.len() && is_at_or_below(end) {
            end = (end + HEADS_PER_TOP).min(self.heads.len());
        }
        let (mut low, mut high) = (from, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_at_or_below(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low.checked_sub(1)
    }

    fn bytes_from(&self, place: BlockPlace, at: usize) -> &[u8] {
        &self.chunks[place.chunk as usize][at..]
    }

    fn first_key(&self, block: usize) -> &[u8] {
        let place = self.places[block];
        let mut bytes = self.bytes_from(place, place.start as usize);
        let (_shared, length, _value) = (
            read_number(&mut bytes),
            read_number(&mut bytes),
            read_number(&mut bytes),
        );
        &bytes[..length]
    }
}

/// Walks the entries of one table, up to a bound.
#[derive(Debug)]
pub(super) struct PackedCursor {
    entries: Arc<PackedEntries>,
    /// The first key, with its table's prefix, that is not wanted any more.
    end: Vec<u8>,
    block: usize,
    /// Entries of the block that were read, the current one among them.
    read: u32,
    /// Where in the chunk the next entry begins.
    next: usize,
    /// Of the current entry, with its table's prefix.
    key: Vec<u8>,
    value: Range<usize>,
    at_entry: bool,
}

impl PackedCursor {
    /// At the first entry that is not below `from`; keys with their table's prefix, `from` of the
    /// table of which `end` is the end or a key.
    pub(super) fn new(entries: &Arc<PackedEntries>, from: &[u8], end: Vec<u8>) -> Self {
        let mut cursor = Self {
            entries: Arc::clone(entries),
            end,
            block: 0,
            read: 0,
            next: 0,
            key: Vec::with_capacity(64),
            value: 0..0,
            at_entry: false,
        };
        cursor.move_to(from);
        cursor
    }

    pub(super) fn is_at_entry(&self) -> bool {
        self.at_entry
    }

    /// Key without the table prefix; only at an entry.
    pub(super) fn key(&self) -> &[u8] {
        &self.key[PREFIX_BYTES..]
    }

    /// Value; only at an entry.
    pub(super) fn value(&self) -> &[u8] {
        let place = self.entries.places[self.block];
        &self.entries.chunks[place.chunk as usize][self.value.clone()]
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self) {
        self.step();
        self.at_entry = self.at_entry && self.key < self.end;
    }

    /// Moves on to the first entry that is not below `key` (without the prefix); only at an entry.
    pub(super) fn seek(&mut self, key: &[u8]) {
        if self.key() >= key {
            return;
        }
        let full_key = [&self.key[..PREFIX_BYTES], key].concat();
        let goes_on = |block: usize| {
            let next = self.entries.heads.get(block + 1);
            next.is_none_or(|next| leading_of(&full_key) < *next)
        };
        if goes_on(self.block) {
            self.pass_below(&full_key);
        } else {
            self.move_to(&full_key);
        }
    }

    /// Goes to the first entry at or above `key`, wherever it stands.
    fn move_to(&mut self, key: &[u8]) {
        self.enter(self.entries.block_of(key).unwrap_or(0));
        self.step();
        self.pass_below(key);
    }

    fn pass_below(&mut self, key: &[u8]) {
        while self.at_entry && self.key.as_slice() < key {
            self.step();
        }
        self.at_entry = self.at_entry && self.key < self.end;
    }

    fn enter(&mut self, block: usize) {
        self.block = block;
        self.read = 0;
        self.next = self
            .entries
            .places
            .get(block)
            .map_or(0, |place| place.start as usize);
    }

    /// Reads the next entry, of this block or the next.
    fn step(&mut self) {
        let mut place = match self.entries.places.get(self.block) {
            Some(place) => *place,
            None => {
                self.at_entry = false;
                return;
            }
        };
        if self.read == place.entries {
            match self.entries.places.get(self.block + 1) {
                Some(next) => place = *next,
                None => {
                    self.at_entry = false;
                    return;
                }
            }
            self.enter(self.block + 1);
        }
        let all = &self.entries.chunks[place.chunk as usize];
        let mut bytes = &all[self.next..];
        let shared = read_number(&mut bytes);
        let rest = read_number(&mut bytes);
        let value = read_number(&mut bytes);
        self.key.truncate(shared);
        self.key.extend_from_slice(&bytes[..rest]);
        let value_start = all.len() - bytes.len() + rest;
        self.value = value_start..value_start + value;
        self.next = value_start + value;
        self.read += 1;
        self.at_entry = true;
    }
}

/// Bytes that two keys begin with alike.
fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut shared = 0;
    for (left, right) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        if left != right {
            break;
        }
        shared += 8;
    }
    let rest = a[shared..].iter().zip(&b[shared..]);
    shared + rest.take_while(|(left, right)| left == right).count()
}

/// Base 128, the low digits first.
fn write_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> usize {
    let mut number = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        number |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return number;
        }
    }
    unreachable!("numbers are written whole")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::TableId;

    const TABLE: TableId = TableId(7);

    fn full(table: TableId, key: &[u8]) -> Vec<u8> {
        [&table.0.to_be_bytes()[..], key].concat()
    }

    fn table_end(table: TableId) -> Vec<u8> {
        (table.0 + 1).to_be_bytes().to_vec()
    }

    fn packed(model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Arc<PackedEntries> {
        let mut builder = PackedBuilder::new(&MemoryBudget::new(1 << 30));
        for (key, value) in model {
            builder.push(key, value);
        }
        Arc::new(builder.finish())
    }

    /// Keys with long equal beginnings, so that heads and tops are often equal.
    fn model(random: &mut impl FnMut(u64) -> u64, entries: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut model = BTreeMap::new();
        for _ in 0..entries {
            let table = TableId(6 + random(3));
            let mut key = vec![b'a'; random(24) as usize];
            key.extend_from_slice(&random(entries).to_be_bytes()[5..]);
            let value = vec![b'v'; random(200) as usize];
            model.insert(full(table, &key), value);
        }
        model
    }

    #[test]
    fn cursors_equal_a_map() {
        for seed in 1..40u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % below
            };
            let count = [0, 1, 40, 9_000][seed as usize % 4];
            let model = model(&mut random, count);
            let entries = packed(&model);
            let wanted: Vec<(&[u8], &[u8])> = model
                .range(full(TABLE, b"")..table_end(TABLE))
                .map(|(key, value)| (&key[PREFIX_BYTES..], value.as_slice()))
                .collect();
            let mut cursor = PackedCursor::new(&entries, &full(TABLE, b""), table_end(TABLE));
            for (key, value) in &wanted {
                assert!(cursor.is_at_entry(), "seed {seed}");
                assert_eq!((cursor.key(), cursor.value()), (*key, *value));
                cursor.advance();
            }
            assert!(!cursor.is_at_entry());
            cursor.advance();
            assert!(!cursor.is_at_entry());
            let mut cursor = PackedCursor::new(&entries, &full(TABLE, b""), table_end(TABLE));
            let mut at = 0;
            while at < wanted.len() {
                assert_eq!((cursor.key(), cursor.value()), wanted[at]);
                let mut target = wanted[(at + random(900) as usize).min(wanted.len() - 1)]
                    .0
                    .to_vec();
                if random(2) == 0 {
                    target.push(0);
                }
                cursor.seek(&target);
                at = at.max(wanted.partition_point(|(key, _)| *key < target.as_slice()));
                assert_eq!(cursor.is_at_entry(), at < wanted.len(), "seed {seed}");
                if at == wanted.len() || random(5) == 0 {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_cursor_ends_at_its_bound() {
        let model = (0..500u16)
            .map(|n| (full(TABLE, &n.to_be_bytes()), vec![1]))
            .collect();
        let entries = packed(&model);
        let (from, end) = (full(TABLE, &[0, 200]), full(TABLE, &[1, 4]));
        let mut cursor = PackedCursor::new(&entries, &from, end);
        let mut read = 0;
        while cursor.is_at_entry() {
            assert_eq!(cursor.key(), (200 + read as u16).to_be_bytes());
            read += 1;
            cursor.advance();
        }
        assert_eq!(read, 60);
        let beyond = PackedCursor::new(&entries, &full(TABLE, &[9, 9]), table_end(TABLE));
        assert!(!beyond.is_at_entry());
    }

    #[test]
    fn entries_of_equal_beginnings_take_little_memory() {
        let budget = MemoryBudget::new(1 << 30);
        let mut builder = PackedBuilder::new(&budget);
        let mut bytes = 0;
        for n in 0..200_000u32 {
            let key = full(TABLE, &[&[0; 16][..], &n.to_be_bytes()[..]].concat());
            bytes += key.len() + 2;
            builder.push(&key, b"vv");
        }
        let entries = builder.finish();
        assert!(
            budget.used_bytes() * 2 < bytes,
            "{} of {bytes}",
            budget.used_bytes()
        );
        drop(entries);
        assert_eq!(budget.used_bytes(), 0);
    }
}

//! The heads of groups by themselves: for append-only input, whose rows never come back once they
//! fell behind.
//!
//! | form | when | key → value |
//! |---|---|---|
//! | values | a head has very few rows | group → its rows in order, each with its copies |
//! | entries | else | group, order, row → copies |
//!
//! A head that is one value is read by a look-up, and written anew for every row that comes into it; one
//! of entries is read by a scan, and only what comes in or falls out is written. All touched groups are
//! read in the order of their keys, and each once.

use std::ops::{ControlFlow, Range};

use datafusion::arrow::array::{Array, BinaryArray, BinaryBuilder};

use super::{Difference, Head, TopSpec};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::entries::RunWriter;
use crate::dataflow::number::{
    read_integer, read_unsigned, truncated, write_signed, write_unsigned,
};
use crate::dataflow::operator::{BatchContext, OperatorStatistics};
use crate::dataflow::ordered::{OrderedEncoding, parts};
use crate::dataflow::parallel::over_parts;
use crate::dataflow::single_entry::RowCount;
use crate::error::Result;
use crate::state::{Run, StateScan, StateSnapshot, TableId};

/// Groups of one read of the store.
const GROUPS_PER_READ_MAX: usize = 16 * 1024;

/// How a head lies in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadForm {
    /// As one value under its group.
    Value,
    /// An entry for each different row.
    Entries,
}

/// The store, and what a batch does to it.
#[derive(Debug)]
pub struct Heads {
    table: TableId,
    form: HeadForm,
    count: RowCount,
    /// Entries of this batch: group and rest.
    pending: ByteRows,
    weights: Vec<i64>,
    written: Written,
}

/// What a batch writes.
#[derive(Debug, Default)]
struct Written {
    keys: ByteRows,
    /// The empty string: deleted.
    values: ByteRows,
    were_there: Vec<bool>,
    /// Change of the number of rows.
    growth: i64,
}

impl Written {
    fn push(&mut self, key: (&[u8], &[u8]), value: &[u8], was_there: bool) {
        self.keys.push(key.0, key.1);
        self.values.push(value, &[]);
        self.were_there.push(was_there);
    }

    /// Writes what became of a head.
    fn head(&mut self, form: HeadForm, group: &[u8], before: &Head, after: &Head) {
        self.growth += after.copies.len() as i64 - before.copies.len() as i64;
        if form == HeadForm::Value {
            let was_there = !before.copies.is_empty();
            self.push((group, &[]), &encode(after), was_there);
            return;
        }
        let mut value = Vec::new();
        each_of_both(before.iter(), after.iter(), |entry, old, new| {
            value.clear();
            if new != 0 {
                write_signed(new.into(), &mut value);
            }
            if old != new {
                self.push((group, entry), &value, old != 0);
            }
            ControlFlow::Continue(())
        });
    }

    /// Takes over what a part writes.
    fn absorb(&mut self, part: &Self) {
        self.keys.append(&part.keys);
        self.values.append(&part.values);
        self.were_there.extend_from_slice(&part.were_there);
        self.growth += part.growth;
    }
}

/// The entries of a batch: group and rest, with copies, in order.
struct Added<'a> {
    order: Vec<u32>,
    entries: &'a ByteRows,
    weights: &'a [i64],
}

impl<'a> Added<'a> {
    fn entry(&self, place: usize) -> &'a [u8] {
        self.entries.get(self.order[place] as usize)
    }

    fn group(&self, range: &Range<usize>) -> &'a [u8] {
        parts(self.entry(range.start)).group
    }

    /// The places of each group.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for place in 0..self.order.len() {
            let group = parts(self.entry(place)).group;
            match groups.last_mut() {
                Some(last) if self.group(last) == group => last.end = place + 1,
                _ => groups.push(place..place + 1),
            }
        }
        groups
    }

    /// The entries of a group, each once, without the group's bytes.
    fn of(&self, range: &Range<usize>) -> Vec<(&'a [u8], i64)> {
        let group = self.group(range).len();
        let mut added: Vec<(&[u8], i64)> = Vec::with_capacity(range.len());
        for place in range.clone() {
            let tail = &self.entry(place)[group..];
            let weight = self.weights[self.order[place] as usize];
            match added.last_mut() {
                Some(last) if last.0 == tail => last.1 += weight,
                _ => added.push((tail, weight)),
            }
        }
        added
    }
}

/// Heads before the batch, of groups that are asked for in order.
enum OldHeads {
    Values(BinaryArray),
    Entries(StateScan),
}

impl OldHeads {
    /// The head of a group, which is number `index` of those that are read at once.
    fn head(&mut self, index: usize, group: &[u8]) -> Result<Head> {
        match self {
            Self::Values(stored) if stored.is_valid(index) => decode(stored.value(index)),
            Self::Values(_) => Ok(Head::default()),
            Self::Entries(scan) => {
                let mut head = Head::default();
                let mut is_there = scan.seek(group)?;
                while is_there {
                    head.keep(&scan.key()[group.len()..], scan.value())?;
                    is_there = scan.advance_within(group)?;
                }
                Ok(head)
            }
        }
    }
}

impl Head {
    fn push(&mut self, entry: &[u8], copies: i64) {
        self.entries.push(entry, &[]);
        self.copies.push(copies);
        self.total += copies.max(0) as u64;
    }

    /// Appends an entry as it is stored.
    pub(super) fn keep(&mut self, entry: &[u8], mut copies: &[u8]) -> Result<()> {
        self.push(entry, read_integer(&mut copies)?);
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.entries.iter().zip(self.copies.iter().copied())
    }
}

impl Heads {
    /// Heads under a stable name.
    pub fn new(name: &str, form: HeadForm) -> Self {
        Self {
            table: heads_table(name),
            form,
            count: RowCount::new(&format!("{name}/heads")),
            pending: ByteRows::default(),
            weights: Vec::new(),
            written: Written::default(),
        }
    }

    /// The tables it is kept in.
    pub fn tables(&self) -> [TableId; 2] {
        [self.table, self.count.table()]
    }

    /// How they lie.
    pub fn form(&self) -> HeadForm {
        self.form
    }

    /// Adds copies of an entry.
    pub fn add(&mut self, group: &[u8], tail: &[u8], weight: i64) {
        self.pending.push(group, tail);
        self.weights.push(weight);
    }

    /// Works the batch's entries into the heads of their groups; what changes goes to `difference`.
    pub fn finish(
        &mut self,
        spec: &TopSpec,
        encoding: &OrderedEncoding,
        context: &BatchContext,
        difference: &mut Difference,
    ) -> Result<()> {
        self.forget_closed(encoding, context)?;
        let pending = std::mem::take(&mut self.pending);
        let weights = std::mem::take(&mut self.weights);
        let added = Added {
            order: pending.sorted_indices(),
            entries: &pending,
            weights: &weights,
        };
        let groups = added.groups();
        let (heads, whole) = (&*self, &*difference);
        let merge = |groups: &[Range<usize>]| -> Result<(Difference, Written)> {
            let (mut part, mut written) = (whole.apart(), Written::default());
            for groups in groups.chunks(GROUPS_PER_READ_MAX) {
                let keys = groups.iter().map(|range| added.group(range));
                let mut old = heads.old_heads(keys, &context.snapshot)?;
                for (index, range) in groups.iter().enumerate() {
                    let group = added.group(range);
                    let before = old.head(index, group)?;
                    let after = merged(spec, &before, &added.of(range));
                    if !after.same_as(&before) {
                        part.push(&spec.select(&before), &spec.select(&after));
                        written.head(heads.form, group, &before, &after);
                    }
                }
            }
            Ok((part, written))
        };
        for (part, written) in over_parts(&groups, merge)? {
            difference.absorb(part);
            self.written.absorb(&written);
        }
        Ok(())
    }

    fn old_heads<'a>(
        &self,
        groups: impl Iterator<Item = &'a [u8]>,
        snapshot: &StateSnapshot,
    ) -> Result<OldHeads> {
        let mut groups = groups.peekable();
        Ok(match self.form {
            HeadForm::Value => {
                let mut keys = BinaryBuilder::new();
                groups.for_each(|group| keys.append_value(group));
                OldHeads::Values(snapshot.get_many(self.table, &keys.finish())?)
            }
            HeadForm::Entries => {
                let first = groups.peek().copied();
                OldHeads::Entries(snapshot.scan(self.table, first, None)?)
            }
        })
    }

    /// Takes the groups that the watermark has closed out of the state.
    fn forget_closed(&mut self, encoding: &OrderedEncoding, context: &BatchContext) -> Result<()> {
        let Some((lower, upper)) = encoding.closed_range(context) else {
            return Ok(());
        };
        let snapshot = &context.snapshot;
        let mut closed = snapshot.scan(self.table, Some(&lower), Some(&upper))?;
        while closed.advance()? {
            self.written.growth -= match self.form {
                HeadForm::Value => decode(closed.value())?.copies.len() as i64,
                HeadForm::Entries => 1,
            };
            self.written.push((closed.key(), &[]), &[], true);
        }
        Ok(())
    }

    /// The batch's entries: what changed of the heads, and the number of rows kept.
    pub fn drain(&mut self, snapshot: &StateSnapshot) -> Result<Vec<(TableId, Run)>> {
        let Written {
            keys,
            values,
            were_there,
            growth,
        } = std::mem::take(&mut self.written);
        let mut heads = RunWriter::new(self.table, keys.len(), keys.bytes(), values.bytes());
        let mut removed = 0;
        for index in keys.sorted_indices() {
            let index = index as usize;
            let (key, value) = (keys.get(index), values.get(index));
            match (value.is_empty(), were_there[index]) {
                (true, _) => {
                    removed += 1;
                    heads.delete(key);
                }
                (false, true) => heads.put(key, value),
                (false, false) => heads.put_new(key, value),
            }
        }
        let updated = keys.len() as u64 - removed;
        let count = self.count.drain(snapshot, growth, updated, removed)?;
        let mut runs = Vec::from_iter(count);
        if !keys.is_empty() {
            runs.push((self.table, heads.finish()));
        }
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    /// Forgets what the failed batch added.
    pub fn reset(&mut self) {
        self.pending = ByteRows::default();
        self.weights.clear();
        self.written = Written::default();
        self.count.reset();
    }

    /// Adds its numbers to an operator's.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        self.count.add_statistics(statistics);
    }
}

/// Calls `take` with every entry of either list in order, and its copies in both, until it breaks off.
fn each_of_both<'a>(
    first: impl Iterator<Item = (&'a [u8], i64)>,
    second: impl Iterator<Item = (&'a [u8], i64)>,
    mut take: impl FnMut(&[u8], i64, i64) -> ControlFlow<()>,
) {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    loop {
        let entry = match (first.peek(), second.peek()) {
            (Some((a, _)), Some((b, _))) => *a.min(b),
            (Some((entry, _)), None) | (None, Some((entry, _))) => *entry,
            (None, None) => return,
        };
        let is_entry = |item: &(&[u8], i64)| item.0 == entry;
        let copies = (first.next_if(is_entry), second.next_if(is_entry));
        let of = |item: Option<(&[u8], i64)>| item.map_or(0, |(_, copies)| copies);
        if take(entry, of(copies.0), of(copies.1)).is_break() {
            return;
        }
    }
}

/// The head of what was there and what came in, both in order.
fn merged(spec: &TopSpec, before: &Head, added: &[(&[u8], i64)]) -> Head {
    let mut head = Head::default();
    each_of_both(before.iter(), added.iter().copied(), |entry, old, new| {
        spec.take(&mut head, entry, old + new)
    });
    head
}

fn encode(head: &Head) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (entry, copies) in head.iter() {
        write_unsigned(entry.len() as u128, &mut bytes);
        bytes.extend_from_slice(entry);
        write_signed(copies.into(), &mut bytes);
    }
    bytes
}

/// The table of an operator's heads.
pub(super) fn heads_table(name: &str) -> TableId {
    TableId::from_name(&format!("{name}/heads"))
}

/// A head that is one value.
pub(super) fn decode(mut bytes: &[u8]) -> Result<Head> {
    let mut head = Head::default();
    while !bytes.is_empty() {
        let length = usize::try_from(read_unsigned(&mut bytes)?).map_err(|_| truncated())?;
        let (entry, rest) = bytes.split_at_checked(length).ok_or_else(truncated)?;
        bytes = rest;
        head.push(entry, read_integer(&mut bytes)?);
    }
    Ok(head)
}

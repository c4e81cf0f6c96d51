//! The heads of groups by themselves: for append-only input, whose rows never come back once they
//! fell behind.
//!
//! ```text
//!   group -> its first rows in order, each with its copies
//! ```
//!
//! All touched groups are read by one look-up of sorted keys and written once; nothing is scanned.

use datafusion::arrow::array::{Array, BinaryBuilder};

use super::{Difference, Head, TopSpec};
use crate::dataflow::byte_rows::ByteRows;
use crate::dataflow::entries::RunWriter;
use crate::dataflow::number::{
    read_integer, read_unsigned, truncated, write_signed, write_unsigned,
};
use crate::dataflow::operator::{BatchContext, OperatorStatistics};
use crate::dataflow::ordered::{OrderedEncoding, parts};
use crate::dataflow::single_entry::RowCount;
use crate::error::Result;
use crate::state::{Run, StateSnapshot, TableId};

/// Groups of one read of the store.
const GROUPS_PER_READ_MAX: usize = 16 * 1024;

/// The store, and what a batch does to it.
#[derive(Debug)]
pub struct Heads {
    table: TableId,
    count: RowCount,
    /// Entries of this batch: group and rest.
    pending: ByteRows,
    weights: Vec<i64>,
    /// Changed groups and their new heads, ascending; an empty one is deleted.
    written: Vec<(Vec<u8>, Vec<u8>)>,
    /// Change of the number of rows by this batch.
    growth: i64,
}

impl Heads {
    /// Heads under a stable name.
    pub fn new(name: &str) -> Self {
        Self {
            table: TableId::from_name(&format!("{name}/heads")),
            count: RowCount::new(&format!("{name}/heads")),
            pending: ByteRows::default(),
            weights: Vec::new(),
            written: Vec::new(),
            growth: 0,
        }
    }

    /// The tables it is kept in.
    pub fn tables(&self) -> [TableId; 2] {
        [self.table, self.count.table()]
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
        let order = pending.sorted_indices();
        let entry = |place: usize| pending.get(order[place] as usize);
        let mut place = 0;
        while place < order.len() {
            // The groups of one read, each a range of places.
            let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
            while place < order.len() && groups.len() < GROUPS_PER_READ_MAX {
                let (start, group) = (place, parts(entry(place)).group);
                while place < order.len() && parts(entry(place)).group == group {
                    place += 1;
                }
                groups.push(start..place);
            }
            let mut keys = BinaryBuilder::new();
            for range in &groups {
                keys.append_value(parts(entry(range.start)).group);
            }
            let stored = context.snapshot.get_many(self.table, &keys.finish())?;
            for (index, range) in groups.into_iter().enumerate() {
                let group = parts(entry(range.start)).group;
                let before = match stored.is_valid(index) {
                    true => decode(stored.value(index))?,
                    false => Head::default(),
                };
                let mut added: Vec<(&[u8], i64)> = Vec::with_capacity(range.len());
                for place in range {
                    let tail = &entry(place)[group.len()..];
                    let weight = weights[order[place] as usize];
                    match added.last_mut() {
                        Some(last) if last.0 == tail => last.1 += weight,
                        _ => added.push((tail, weight)),
                    }
                }
                let after = merged(spec, &before, &added);
                if !after.same_as(&before) {
                    difference.push(&spec.select(&before), &spec.select(&after));
                    self.write(group, &before, &after);
                }
            }
        }
        self.written.sort_unstable();
        Ok(())
    }

    fn write(&mut self, group: &[u8], before: &Head, after: &Head) {
        self.growth += after.copies.len() as i64 - before.copies.len() as i64;
        self.written.push((group.to_vec(), encode(after)));
    }

    /// Takes the groups that the watermark has closed out of the state.
    fn forget_closed(&mut self, encoding: &OrderedEncoding, context: &BatchContext) -> Result<()> {
        let Some((lower, upper)) = encoding.closed_range(context) else {
            return Ok(());
        };
        let mut closed = context
            .snapshot
            .scan(self.table, Some(&lower), Some(&upper))?;
        while closed.advance()? {
            self.growth -= decode(closed.value())?.copies.len() as i64;
            self.written.push((closed.key().to_vec(), Vec::new()));
        }
        Ok(())
    }

    /// The batch's entries: changed heads, and the number of rows kept.
    pub fn drain(&mut self, snapshot: &StateSnapshot) -> Result<Vec<(TableId, Run)>> {
        let written = std::mem::take(&mut self.written);
        let sizes = written
            .iter()
            .map(|(group, head)| (group.len(), head.len()));
        let (keys, values) = sizes.fold((0, 0), |(keys, values), (k, v)| (keys + k, values + v));
        let mut heads = RunWriter::new(self.table, written.len(), keys, values);
        for (group, head) in &written {
            heads.push(group, (!head.is_empty()).then_some(&head[..]));
        }
        let growth = std::mem::take(&mut self.growth);
        let removed = written.iter().filter(|(_, head)| head.is_empty()).count();
        let updated = (written.len() - removed) as u64;
        let count = self
            .count
            .drain(snapshot, growth, updated, removed as u64)?;
        let mut runs = Vec::from_iter(count);
        if !written.is_empty() {
            runs.push((self.table, heads.finish()));
        }
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    /// Forgets what the failed batch added.
    pub fn reset(&mut self) {
        self.pending = ByteRows::default();
        self.weights.clear();
        self.written.clear();
        self.growth = 0;
        self.count.reset();
    }

    /// Adds its numbers to an operator's.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        self.count.add_statistics(statistics);
    }
}

/// The head of what was there and what came in, both in order.
fn merged(spec: &TopSpec, before: &Head, added: &[(&[u8], i64)]) -> Head {
    let mut head = Head::default();
    let (mut old, mut new) = (0, 0);
    while old < before.copies.len() || new < added.len() {
        let was = (old < before.copies.len()).then(|| before.entries.get(old));
        let comes = (new < added.len()).then(|| added[new].0);
        let entry = match (was, comes) {
            (Some(was), Some(comes)) => was.min(comes),
            (Some(entry), None) | (None, Some(entry)) => entry,
            (None, None) => break,
        };
        let mut weight = 0;
        if was == Some(entry) {
            weight += before.copies[old];
            old += 1;
        }
        if comes == Some(entry) {
            weight += added[new].1;
            new += 1;
        }
        if spec.take(&mut head, entry, weight).is_break() {
            break;
        }
    }
    head
}

fn encode(head: &Head) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, copies) in head.copies.iter().enumerate() {
        let entry = head.entries.get(index);
        write_unsigned(entry.len() as u128, &mut bytes);
        bytes.extend_from_slice(entry);
        write_signed(i128::from(*copies), &mut bytes);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Result<Head> {
    let mut head = Head::default();
    while !bytes.is_empty() {
        let length = usize::try_from(read_unsigned(&mut bytes)?).map_err(|_| truncated())?;
        let (entry, rest) = bytes.split_at_checked(length).ok_or_else(truncated)?;
        bytes = rest;
        let copies = read_integer(&mut bytes)?;
        head.entries.push(entry, &[]);
        head.copies.push(copies);
        head.total += copies.max(0) as u64;
    }
    Ok(head)
}

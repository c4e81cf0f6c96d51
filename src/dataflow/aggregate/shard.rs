//! A shard: the resident groups whose key hash falls to it, their state, and a batch's work on
//! them. Shards share nothing that changes, so they run on as many cores as there are shards, and
//! how many there are shows in no answer and in no stored byte.
//!
//! ```text
//!   push    rows ─► group numbers ─► (new ones: load) ─► (first touch: copy old state) ─► update
//!   finish  touched, by key ─► multisets ─► old and new output ─► changes, entries
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::{cast, filter};
use datafusion::arrow::datatypes::{DataType, TimeUnit};

use super::EventTimeGroup;
use super::cells;
use super::columns::StateColumn;
use super::input::BatchInput;
use super::keys::{BatchKeys, GroupKeys, to_integers};
use super::multiset::{self, Delta, TouchedGroups};
use super::output::{self, GroupState};
use super::shared::{Closing, Ends, ShardOutput, Shared};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::dataflow::number::{read_integer, write_signed};
use crate::dataflow::operator::BatchContext;
use crate::error::{Error, Result};
use crate::state::{EntryKind, StateSnapshot};

const UNTOUCHED: u32 = u32::MAX;

/// The groups of one shard.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    shards: usize,
    keys: GroupKeys,
    rows: Vec<i64>,
    /// The group has an entry in the store (or will have, once this batch is committed).
    present: Vec<bool>,
    columns: Vec<StateColumn>,
    /// Position in `touched`.
    slots: Vec<u32>,
    touched: Vec<u32>,
    /// How many of the first groups are numbered in the order of their keys.
    sorted: usize,
    /// State before the batch, by slot; empty while nobody asks for it.
    old_rows: Vec<i64>,
    old_columns: Vec<StateColumn>,
    deltas: Vec<Vec<Delta>>,
    row_buffer: Vec<u32>,
    group_buffer: Vec<u32>,
}

impl Shard {
    /// Shard `index` of `shards`, with no group resident.
    pub fn new(shared: &Shared, index: usize, shards: usize) -> Self {
        let columns = || {
            shared
                .plan
                .columns
                .iter()
                .map(|&kind| StateColumn::new(kind))
                .collect()
        };
        Self {
            index,
            shards,
            keys: shared.format.new_table(),
            rows: Vec::new(),
            present: Vec::new(),
            columns: columns(),
            slots: Vec::new(),
            touched: Vec::new(),
            sorted: 0,
            old_rows: Vec::new(),
            old_columns: columns(),
            deltas: shared.plan.multisets.iter().map(|_| Vec::new()).collect(),
            row_buffer: Vec::new(),
            group_buffer: Vec::new(),
        }
    }

    /// Takes this shard's rows of a batch. With `store`, groups that are not resident are read
    /// from it; without, they are known to be new.
    pub fn push(
        &mut self,
        shared: &Shared,
        input: &BatchInput,
        store: Option<&StateSnapshot>,
    ) -> Result<()> {
        let mut rows = std::mem::take(&mut self.row_buffer);
        let mut groups = std::mem::take(&mut self.group_buffer);
        input.keys.select(self.index, self.shards, &mut rows);
        groups.clear();
        let result = self.push_selected(shared, input, store, &rows, &mut groups);
        self.row_buffer = rows;
        self.group_buffer = groups;
        result
    }

    fn push_selected(
        &mut self,
        shared: &Shared,
        input: &BatchInput,
        store: Option<&StateSnapshot>,
        rows: &[u32],
        groups: &mut Vec<u32>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.intern(shared, &input.keys, rows, groups, store)?;
        self.touch(shared, groups);
        cells::count_rows(&mut self.rows, rows, groups, input.weights.as_deref())?;
        for cell in &shared.plan.cells {
            cells::update(cell, &mut self.columns, input, rows, groups)?;
        }
        for (multiset, (plan, deltas)) in shared
            .plan
            .multisets
            .iter()
            .zip(&mut self.deltas)
            .enumerate()
        {
            let weights = input.weights.as_deref();
            for (&row, &group) in rows.iter().zip(groups.iter()) {
                let takes = |mask: usize| {
                    let mask = input.masks[mask].as_ref();
                    mask.is_none_or(|m| m.is_valid(row as usize))
                };
                let weight = plan.delta(takes, weights.map_or(1, |w| w[row as usize]));
                if weight != 0 {
                    let row = input.multisets[multiset].row(row as usize).data().into();
                    deltas.push(Delta { group, row, weight });
                }
            }
        }
        Ok(())
    }

    /// Numbers the groups of `rows`; new ones get their state from the store, if there is one.
    fn intern(
        &mut self,
        shared: &Shared,
        keys: &BatchKeys,
        rows: &[u32],
        groups: &mut Vec<u32>,
        store: Option<&StateSnapshot>,
    ) -> Result<()> {
        let known = self.keys.len() as u32;
        self.keys.intern(keys, rows, groups);
        let length = self.keys.len();
        if length == known as usize {
            return Ok(());
        }
        self.rows.resize(length, 0);
        self.present.resize(length, false);
        self.slots.resize(length, UNTOUCHED);
        for (column, &kind) in self.columns.iter_mut().zip(&shared.plan.columns) {
            column.grow(length, kind);
        }
        match store {
            Some(store) => self.load(shared, known..length as u32, store),
            None => Ok(()),
        }
    }

    fn load(
        &mut self,
        shared: &Shared,
        new: std::ops::Range<u32>,
        store: &StateSnapshot,
    ) -> Result<()> {
        let mut groups: Vec<u32> = new.collect();
        self.keys.sort(&mut groups);
        let keys = self.keys.encode(groups.iter().copied(), &shared.format);
        let values = store.get_many(shared.groups_table, &keys)?;
        for (index, &group) in groups.iter().enumerate() {
            if values.is_null(index) {
                continue;
            }
            let mut value = values.value(index);
            let group = group as usize;
            self.present[group] = true;
            self.rows[group] = read_integer(&mut value)?;
            for column in &mut self.columns {
                column.decode(group, &mut value)?;
            }
        }
        Ok(())
    }

    /// Marks groups as touched, and remembers the state of those that were not yet.
    fn touch(&mut self, shared: &Shared, groups: &[u32]) {
        let known = self.touched.len();
        // Without a branch: which rows are the first of their group cannot be predicted.
        self.touched.resize(known + groups.len(), 0);
        let mut length = known;
        for &group in groups {
            let slot = &mut self.slots[group as usize];
            let is_first = *slot == UNTOUCHED;
            self.touched[length] = group;
            *slot = if is_first { length as u32 } else { *slot };
            length += usize::from(is_first);
        }
        self.touched.truncate(length);
        if !shared.keeps_old() {
            return;
        }
        let new = &self.touched[known..];
        self.old_rows
            .extend(new.iter().map(|&g| self.rows[g as usize]));
        for (old, column) in self.old_columns.iter_mut().zip(&self.columns) {
            old.extend_from(column, new);
        }
    }

    /// The one group of an aggregate without group columns is there from the first batch on.
    pub fn ensure_single(&mut self, shared: &Shared, store: Option<&StateSnapshot>) -> Result<()> {
        let mut groups = Vec::new();
        self.intern(shared, &BatchKeys::Single(1), &[0], &mut groups, store)?;
        if !self.present[0] {
            self.touch(shared, &groups);
        }
        Ok(())
    }

    /// Groups that the batch touched, and all that are there or were before it.
    pub fn group_counts(&self) -> (usize, usize) {
        (self.touched.len(), self.keys.len())
    }

    /// All changes are in: derives what the batch changes. With `whole`, the entries of all groups
    /// are written: the shards hold all there are, and older entries will not be read again.
    pub fn finish(
        &mut self,
        shared: &Shared,
        context: &BatchContext,
        store: Option<&StateSnapshot>,
        closing: Option<&Closing>,
        whole: bool,
    ) -> Result<ShardOutput> {
        let mut result = ShardOutput {
            multisets: shared.plan.multisets.iter().map(|_| Vec::new()).collect(),
            ..ShardOutput::default()
        };
        if whole || !self.touched.is_empty() {
            self.finish_groups(shared, context, whole, &mut result)?;
        }
        if let Some(closing) = closing {
            self.close(shared, &context.snapshot, store, closing, &mut result)?;
        }
        Ok(result)
    }

    fn finish_groups(
        &mut self,
        shared: &Shared,
        context: &BatchContext,
        whole: bool,
        result: &mut ShardOutput,
    ) -> Result<()> {
        let groups = self.groups_in_order(whole);
        let slots: Vec<u32> = groups.iter().map(|&g| self.slots[g as usize]).collect();
        if groups.iter().any(|&g| self.rows[g as usize] < 0) {
            return Err(Error::damaged(format!(
                "aggregate \"{}\" was told to delete a row that it does not hold",
                shared.name
            )));
        }
        if whole {
            let is_touched = |&(_, slot): &(u32, u32)| slot != UNTOUCHED;
            let all = groups.iter().copied().zip(slots.iter().copied());
            let (touched, touched_slots): (Vec<u32>, Vec<u32>) = all.filter(is_touched).unzip();
            let columns = self.columns_of(shared, &touched)?;
            self.show(shared, &columns, &touched_slots, &touched, result)?;
            self.write_groups(shared, &Ends::default(), &slots, &groups, true, result);
        } else {
            let columns = self.columns_of(shared, &groups)?;
            let ends = shared.ends(&columns, context.next_watermark)?;
            self.apply_multisets(shared, &context.snapshot, &ends, &slots, &groups, result)?;
            self.show(shared, &columns, &slots, &groups, result)?;
            self.write_groups(shared, &ends, &slots, &groups, false, result);
        }
        if !shared.is_quiet() {
            result.unmade_rows = 0;
        }
        Ok(())
    }

    /// The group columns of touched groups, where anything is to be made of them.
    fn columns_of(&self, shared: &Shared, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        if shared.is_quiet() && shared.event_time.is_none() {
            return Ok(Vec::new());
        }
        self.keys.columns(groups.iter().copied(), &shared.format)
    }

    /// Emits the changes of touched groups, or looks whether they could be emitted.
    fn show(
        &self,
        shared: &Shared,
        columns: &[ArrayRef],
        slots: &[u32],
        groups: &[u32],
        result: &mut ShardOutput,
    ) -> Result<()> {
        if shared.is_quiet() {
            let state = GroupState {
                rows: &self.rows,
                columns: &self.columns,
            };
            let failed = output::check(&shared.plan.outputs, state, groups)?;
            result.fail(shared, failed)?;
        } else if !shared.emit_on_close {
            self.emit_changes(shared, columns, slots, groups, result)?;
        }
        Ok(())
    }

    /// The touched groups by key, or `all`. Groups are numbered by key up to `sorted`, so that a
    /// batch that touches many reads through them; the later ones are sorted.
    fn groups_in_order(&self, all: bool) -> Vec<u32> {
        let is_touched = |&group: &u32| all || self.slots[group as usize] != UNTOUCHED;
        let length = self.keys.len() as u32;
        if !all && self.touched.len() < self.keys.len() / 8 {
            let mut groups = self.touched.clone();
            self.keys.sort(&mut groups);
            return groups;
        }
        let groups: Vec<u32> = (0..self.sorted as u32).filter(is_touched).collect();
        let mut later: Vec<u32> = (self.sorted as u32..length).filter(is_touched).collect();
        if later.is_empty() {
            return groups;
        }
        self.keys.sort(&mut later);
        self.keys.merge(&groups, &later)
    }

    fn apply_multisets(
        &mut self,
        shared: &Shared,
        snapshot: &StateSnapshot,
        ends: &Ends,
        slots: &[u32],
        groups: &[u32],
        result: &mut ShardOutput,
    ) -> Result<()> {
        if shared.plan.is_columnar() {
            return Ok(());
        }
        let touched = TouchedGroups {
            keys: &self.keys.encode(groups.iter().copied(), &shared.format),
            groups,
            ends,
        };
        let mut ranks = vec![0u32; slots.len()];
        for (rank, &slot) in slots.iter().enumerate() {
            ranks[slot as usize] = rank as u32;
        }
        for (index, plan) in shared.plan.multisets.iter().enumerate() {
            let mut deltas = std::mem::take(&mut self.deltas[index]);
            for delta in &mut deltas {
                delta.group = ranks[self.slots[delta.group as usize] as usize];
            }
            let mut entries = Entries::default();
            let columns = &mut self.columns;
            result.growth +=
                multiset::apply(plan, deltas, &touched, columns, snapshot, &mut entries)
                    .map_err(|error| error.context(format!("aggregate \"{}\"", shared.name)))?;
            result.multisets[index].push(entries);
            let mut closed = Entries::default();
            for (rank, &group) in groups.iter().enumerate() {
                if ends.is_closing(rank) && self.present[group as usize] {
                    let key = touched.keys.value(rank);
                    result.growth -= multiset::delete_group(plan, key, snapshot, &mut closed)?;
                }
            }
            result.multisets[index].push(closed);
            if let Some(empty) = multiset::empty_result(plan)? {
                let values = self.columns[plan.calls[0].column].bytes_mut();
                for &group in groups {
                    values[group as usize].get_or_insert_with(|| empty.clone());
                }
            }
        }
        Ok(())
    }

    /// −old and +new for the touched groups whose output differs, each by key.
    fn emit_changes(
        &self,
        shared: &Shared,
        columns: &[ArrayRef],
        slots: &[u32],
        groups: &[u32],
        result: &mut ShardOutput,
    ) -> Result<()> {
        let old = GroupState {
            rows: &self.old_rows,
            columns: &self.old_columns,
        };
        let new = GroupState {
            rows: &self.rows,
            columns: &self.columns,
        };
        let was: Vec<bool> = groups.iter().map(|&g| self.present[g as usize]).collect();
        let is: Vec<bool> = groups.iter().map(|&g| self.is_there(shared, g)).collect();
        let (old, old_failed) = output::outputs(&shared.plan.outputs, old, slots)?;
        let (new, new_failed) = output::outputs(&shared.plan.outputs, new, groups)?;
        let was = shared.shown(was, &old_failed);
        let is = shared.shown(is, &new_failed);
        result.fail(shared, new_failed)?;
        let mut changed: Vec<bool> = was.iter().zip(&is).map(|(was, is)| was != is).collect();
        for (old, new) in old.iter().zip(&new) {
            output::mark_different(old, new, &mut changed)?;
        }
        let changes = &mut result.changes;
        let gone: Vec<bool> = was.iter().zip(&changed).map(|(a, b)| a & b).collect();
        let come: Vec<bool> = is.iter().zip(&changed).map(|(a, b)| a & b).collect();
        if let Some(rows) = pick(shared, columns, &old, gone)? {
            let weights = Int64Array::from_value(-1, rows.num_rows());
            changes.push(ChangeBatch::weighted(rows, weights));
        }
        if let Some(rows) = pick(shared, columns, &new, come)? {
            changes.push(ChangeBatch::inserts(rows));
        }
        Ok(())
    }

    fn is_there(&self, shared: &Shared, group: u32) -> bool {
        shared.format.is_single() || self.rows[group as usize] > 0
    }

    fn write_groups(
        &mut self,
        shared: &Shared,
        ends: &Ends,
        slots: &[u32],
        groups: &[u32],
        whole: bool,
        result: &mut ShardOutput,
    ) {
        let mut entries = Entries::default();
        entries.reserve(groups.len(), groups.len() * (14 + 6 * self.columns.len()));
        for (rank, (&slot, &group)) in slots.iter().zip(groups).enumerate() {
            let index = group as usize;
            let was = self.present[index];
            let is = self.is_there(shared, group);
            let is_changed = slot != UNTOUCHED && (was != is || self.is_changed(slot, index));
            if is_changed {
                result.unmade_rows += u64::from(was) + u64::from(is);
            }
            let write_key = |out: &mut Vec<u8>| self.keys.write(group, &shared.format, out);
            let stays = is && !ends.is_closing(rank);
            // What is whole has the groups that are as they were too, touched or not.
            if stays && (is_changed || whole) {
                result.as_before_rows += u64::from(!is_changed);
                let kind = EntryKind::of_value(was);
                entries.put_with(kind, write_key, |value| {
                    write_signed(self.rows[index].into(), value);
                    self.columns
                        .iter()
                        .for_each(|column| column.encode(index, value));
                });
            } else if was && !stays {
                entries.delete_with(write_key);
            }
            if was != stays
                && let Some(end) = ends.get(rank)
            {
                let mut key = Vec::new();
                self.keys.write(group, &shared.format, &mut key);
                result.ends.insert((end, key, stays));
            }
            if !stays {
                self.forget_state(shared, index);
            }
            self.present[index] = stays;
            result.growth += i64::from(stays) - i64::from(was);
        }
        result.groups.push(entries);
    }

    /// The state of a touched group is not what it was before the batch.
    fn is_changed(&self, slot: u32, group: usize) -> bool {
        let slot = slot as usize;
        let Some(old_rows) = self.old_rows.get(slot) else {
            // Rows only ever come: a group that any came to has more of them.
            return true;
        };
        self.rows[group] != *old_rows
            || self
                .columns
                .iter()
                .zip(&self.old_columns)
                .any(|(new, old)| new.differs(group, old, slot))
    }

    fn forget_state(&mut self, shared: &Shared, group: usize) {
        self.rows[group] = 0;
        self.present[group] = false;
        for (column, &kind) in self.columns.iter_mut().zip(&shared.plan.columns) {
            column.reset(group, kind);
        }
    }

    /// Removes the groups that the watermark closes; emits them if that is when they show.
    fn close(
        &mut self,
        shared: &Shared,
        snapshot: &StateSnapshot,
        store: Option<&StateSnapshot>,
        closing: &Closing,
        result: &mut ShardOutput,
    ) -> Result<()> {
        let mut rows = Vec::new();
        closing.keys.select(self.index, self.shards, &mut rows);
        if rows.is_empty() {
            return Ok(());
        }
        // State is read only if it is shown.
        let store = store.filter(|_| shared.emit_on_close);
        let mut groups = Vec::new();
        self.intern(shared, &closing.keys, &rows, &mut groups, store)?;
        if shared.emit_on_close {
            let columns = self.keys.columns(groups.iter().copied(), &shared.format)?;
            let state = GroupState {
                rows: &self.rows,
                columns: &self.columns,
            };
            let (outputs, failed) = output::outputs(&shared.plan.outputs, state, &groups)?;
            let there = groups.iter().map(|&g| self.rows[g as usize] > 0).collect();
            let there = shared.shown(there, &failed);
            result.fail(shared, failed)?;
            if let Some(rows) = pick(shared, &columns, &outputs, there)? {
                result.changes.push(ChangeBatch::inserts(rows));
            }
        }
        let mut entries = Entries::default();
        let mut multisets: Vec<Entries> = shared
            .plan
            .multisets
            .iter()
            .map(|_| Entries::default())
            .collect();
        for (&row, &group) in rows.iter().zip(&groups) {
            let key = &closing.stored[row as usize];
            entries.delete(key);
            result.growth -= 1;
            for (plan, entries) in shared.plan.multisets.iter().zip(&mut multisets) {
                result.growth -= multiset::delete_group(plan, key, snapshot, entries)?;
            }
            self.forget_state(shared, group as usize);
        }
        result.groups.push(entries);
        for (parts, entries) in result.multisets.iter_mut().zip(multisets) {
            parts.push(entries);
        }
        Ok(())
    }

    /// The batch is committed. With `evict`, only groups that it touched stay resident; returns
    /// whether any group that is in the store was let go.
    pub fn commit(&mut self, shared: &Shared, evict: bool) -> bool {
        for &group in &self.touched {
            self.slots[group as usize] = UNTOUCHED;
        }
        self.old_rows.clear();
        self.old_columns.iter_mut().for_each(StateColumn::clear);
        let touched = std::mem::take(&mut self.touched);
        let there = |&group: &u32| self.present[group as usize];
        let length = self.keys.len();
        let alive = self.present.iter().filter(|&&present| present).count();
        if evict && touched.len() < alive {
            let kept: Vec<u32> = touched.iter().copied().filter(there).collect();
            self.keep_only(shared, &kept);
            return kept.len() < alive;
        }
        // Vanished groups keep their place for a while, since many come back.
        let dead = length - alive;
        let is_sparse = dead > 1024 && dead > alive;
        // Batches that touch many groups read through them by key.
        let is_unordered = length - self.sorted > length / 8 && touched.len() >= length / 8;
        if is_sparse || is_unordered {
            let mut kept: Vec<u32> = (0..length as u32).filter(there).collect();
            self.keys.sort(&mut kept);
            self.keep_only(shared, &kept);
            self.sorted = kept.len();
        }
        self.touched = touched;
        self.touched.clear();
        false
    }

    fn keep_only(&mut self, shared: &Shared, groups: &[u32]) {
        let mut kept = Self::new(shared, self.index, self.shards);
        kept.keys = self.keys.gathered(groups);
        kept.rows = groups.iter().map(|&g| self.rows[g as usize]).collect();
        kept.present = vec![true; groups.len()];
        kept.slots = vec![UNTOUCHED; groups.len()];
        for (new, old) in kept.columns.iter_mut().zip(&self.columns) {
            new.extend_from(old, groups);
        }
        *self = kept;
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        let columns: usize = self
            .columns
            .iter()
            .chain(&self.old_columns)
            .map(StateColumn::size_bytes)
            .sum();
        let buffers =
            self.row_buffer.capacity() + self.group_buffer.capacity() + self.touched.capacity();
        self.keys.size_bytes()
            + columns
            + self.rows.capacity() * 13
            + self.old_rows.capacity() * 8
            + buffers * 4
    }
}

impl EventTimeGroup {
    /// When each group closes; null: never.
    pub fn ends(&self, times: &ArrayRef) -> Result<Int64Array> {
        let times = match times.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => to_integers(times)?,
            DataType::Timestamp(_, zone) => to_integers(&cast(
                times,
                &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            )?)?,
            DataType::Date32 => to_integers(&cast(
                times,
                &DataType::Timestamp(TimeUnit::Microsecond, None),
            )?)?,
            _ => to_integers(times)?,
        };
        Ok(times.unary(|time| time.saturating_add(self.end_offset)))
    }
}

/// The output rows that `mask` marks; `None` when there are none.
fn pick(
    shared: &Shared,
    group: &[ArrayRef],
    outputs: &[ArrayRef],
    mask: Vec<bool>,
) -> Result<Option<RecordBatch>> {
    let count = mask.iter().filter(|&&marked| marked).count();
    if count == 0 {
        return Ok(None);
    }
    let columns = group.iter().chain(outputs);
    let columns: Vec<ArrayRef> = if count == mask.len() {
        columns.cloned().collect()
    } else {
        let mask = BooleanArray::from(mask);
        columns
            .map(|c| filter(c, &mask))
            .collect::<std::result::Result<_, _>>()?
    };
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(Some(RecordBatch::try_new_with_options(
        Arc::clone(&shared.output_schema),
        columns,
        &options,
    )?))
}

//! A shard: the resident groups whose key hash falls to it, their state, and a batch's work on
//! them. Shards share nothing that changes, so they run on as many cores as there are shards, and
//! how many there are shows in no answer and in no stored byte.
//!
//! ```text
//!   push    rows ─► group numbers ─► (new ones: load) ─► (first touch: copy old state) ─► update
//!   finish  touched, by key ─► multisets ─► old and new output ─► changes, entries
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::{cast, filter};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::physical_expr::PhysicalExpr;

use super::EventTimeGroup;
use super::cells;
use super::columns::StateColumn;
use super::input::BatchInput;
use super::keys::{BatchKeys, GroupKeys, KeyFormat, to_integers};
use super::multiset::{self, Delta, TouchedGroups};
use super::output::{self, FailedGroups, GroupState};
use super::plan::AggregatePlan;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::dataflow::number::{read_integer, write_signed};
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};
use crate::state::{StateSnapshot, TableId};

const UNTOUCHED: u32 = u32::MAX;

/// What all shards of an operator read.
#[derive(Debug)]
pub struct Shared {
    /// The operator's name, for errors.
    pub name: String,
    /// Cells, multisets, outputs.
    pub plan: AggregatePlan,
    /// Group keys.
    pub format: KeyFormat,
    /// Group expressions.
    pub group: Vec<Arc<dyn PhysicalExpr>>,
    /// Group columns, then aggregates.
    pub output_schema: SchemaRef,
    /// The group column that holds event time.
    pub event_time: Option<EventTimeGroup>,
    /// Nothing is emitted but closed groups.
    pub emit_on_close: bool,
    /// Table of the groups.
    pub groups_table: TableId,
    /// What becomes of a group whose result cannot be computed.
    pub on_row_error: OnRowError,
}

/// Groups that the watermark closes, ascending by key.
#[derive(Debug)]
pub struct Closing {
    /// Their keys, as a batch.
    pub keys: BatchKeys,
    /// Hashes of the keys.
    pub hashes: Vec<u64>,
    /// Their keys, stored form.
    pub stored: Vec<Vec<u8>>,
}

/// What a shard gives for a batch.
#[derive(Debug, Default)]
pub struct ShardOutput {
    /// Changes of the output.
    pub changes: Vec<ChangeBatch>,
    /// Rows of changes that were not made because nobody takes them.
    pub unmade_rows: u64,
    /// Entries of the groups' table: touched groups, closed groups.
    pub groups: Vec<Entries>,
    /// Entries of each multiset's table.
    pub multisets: Vec<Vec<Entries>>,
    /// (end, key) of groups that appeared (true) or vanished by deletes (false).
    pub ends: BTreeSet<(i64, Vec<u8>, bool)>,
    /// By how many the state's rows grew.
    pub growth: i64,
    /// Groups whose result cannot be computed, and the first error.
    pub failed: (u64, Option<Error>),
}

impl ShardOutput {
    /// Counts the groups whose result cannot be computed; an error where they must not be.
    fn fail(&mut self, shared: &Shared, failed: FailedGroups) -> Result<()> {
        match failed.first {
            Some(error) if shared.on_row_error == OnRowError::Fail => Err(error),
            first => {
                self.failed.0 += failed.places.len() as u64;
                self.failed.1 = self.failed.1.take().or(first);
                Ok(())
            }
        }
    }
}

impl Shared {
    /// The groups that are shown: those whose result cannot be computed only with NULL for it.
    fn shown(&self, mut there: Vec<bool>, failed: &FailedGroups) -> Vec<bool> {
        if self.on_row_error != OnRowError::Null {
            failed.places.iter().for_each(|&place| there[place] = false);
        }
        there
    }
}

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
    /// The first groups, by key; see [`Self::touched_in_order`].
    order: Vec<u32>,
    old_rows: Vec<i64>,
    old_present: Vec<bool>,
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
            order: Vec::new(),
            old_rows: Vec::new(),
            old_present: Vec::new(),
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
        self.select(&input.hashes, &mut rows);
        groups.clear();
        let result = self.push_selected(shared, input, store, &rows, &mut groups);
        self.row_buffer = rows;
        self.group_buffer = groups;
        result
    }

    /// Rows whose key falls to this shard.
    fn select(&self, hashes: &[u64], rows: &mut Vec<u32>) {
        rows.clear();
        if self.shards == 1 {
            rows.extend(0..hashes.len() as u32);
            return;
        }
        // Without a branch: which shard a row falls to cannot be predicted.
        rows.resize(hashes.len(), 0);
        let (shards, index) = (self.shards as u64, self.index as u64);
        let mut length = 0;
        for (row, hash) in hashes.iter().enumerate() {
            rows[length] = row as u32;
            let shard = (((hash >> 20) & 0xffff_ffff) * shards) >> 32;
            length += usize::from(shard == index);
        }
        rows.truncate(length);
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
        self.intern(shared, &input.keys, &input.hashes, rows, groups, store)?;
        self.touch(groups);
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
            let mask = input.masks[plan.mask].as_ref();
            for (&row, &group) in rows.iter().zip(groups.iter()) {
                if mask.is_none_or(|m| m.is_valid(row as usize)) {
                    let weight = input.weights.as_ref().map_or(1, |w| w[row as usize]);
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
        hashes: &[u64],
        rows: &[u32],
        groups: &mut Vec<u32>,
        store: Option<&StateSnapshot>,
    ) -> Result<()> {
        let known = self.keys.len() as u32;
        self.keys.intern(keys, hashes, rows, groups);
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
        let keys = self.keys.encode(groups.iter().copied(), &shared.format)?;
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

    /// Remembers the state of groups that are touched for the first time in this batch.
    fn touch(&mut self, groups: &[u32]) {
        let known = self.touched.len();
        for &group in groups {
            let slot = &mut self.slots[group as usize];
            if *slot == UNTOUCHED {
                *slot = self.touched.len() as u32;
                self.touched.push(group);
            }
        }
        let new = &self.touched[known..];
        self.old_rows
            .extend(new.iter().map(|&g| self.rows[g as usize]));
        self.old_present
            .extend(new.iter().map(|&g| self.present[g as usize]));
        for (old, column) in self.old_columns.iter_mut().zip(&self.columns) {
            old.extend_from(column, new);
        }
    }

    /// The one group of an aggregate without group columns is there from the first batch on.
    pub fn ensure_single(&mut self, shared: &Shared, store: Option<&StateSnapshot>) -> Result<()> {
        let mut groups = Vec::new();
        self.intern(shared, &BatchKeys::Single, &[0], &[0], &mut groups, store)?;
        if !self.present[0] {
            self.touch(&groups);
        }
        Ok(())
    }

    /// All changes are in: derives what the batch changes.
    pub fn finish(
        &mut self,
        shared: &Shared,
        snapshot: &StateSnapshot,
        store: Option<&StateSnapshot>,
        closing: Option<&Closing>,
        quiet: bool,
    ) -> Result<ShardOutput> {
        let mut result = ShardOutput {
            multisets: shared.plan.multisets.iter().map(|_| Vec::new()).collect(),
            ..ShardOutput::default()
        };
        if !self.touched.is_empty() {
            self.finish_touched(shared, snapshot, quiet, &mut result)?;
        }
        if let Some(closing) = closing {
            self.close(shared, snapshot, store, closing, &mut result)?;
        }
        Ok(result)
    }

    fn finish_touched(
        &mut self,
        shared: &Shared,
        snapshot: &StateSnapshot,
        quiet: bool,
        result: &mut ShardOutput,
    ) -> Result<()> {
        let groups = self.touched_in_order();
        let slots: Vec<u32> = groups.iter().map(|&g| self.slots[g as usize]).collect();
        let keys = self.keys.encode(groups.iter().copied(), &shared.format)?;
        if groups.iter().any(|&g| self.rows[g as usize] < 0) {
            return Err(Error::internal(format!(
                "aggregate \"{}\" was told to delete a row that it does not hold",
                shared.name
            )));
        }
        self.apply_multisets(
            shared,
            snapshot,
            &slots,
            &TouchedGroups {
                keys: &keys,
                groups: &groups,
            },
            result,
        )?;
        let needs_columns = !quiet || shared.event_time.is_some();
        let columns = if needs_columns {
            self.keys.columns(groups.iter().copied(), &shared.format)?
        } else {
            Vec::new()
        };
        if quiet {
            let state = GroupState {
                rows: &self.rows,
                columns: &self.columns,
            };
            let failed = output::check(&shared.plan.outputs, state, &groups)?;
            result.fail(shared, failed)?;
        } else if !shared.emit_on_close {
            self.emit_changes(shared, &columns, &slots, &groups, result)?;
        }
        self.write_touched(shared, &keys, &columns, &slots, &groups, result)?;
        if !quiet {
            result.unmade_rows = 0;
        }
        Ok(())
    }

    /// The touched groups by key. When they are many, the order of all groups is kept from batch
    /// to batch and read through; when they are few, they are sorted.
    fn touched_in_order(&mut self) -> Vec<u32> {
        let length = self.keys.len();
        if self.touched.len() < length / 8 {
            let mut groups = self.touched.clone();
            self.keys.sort(&mut groups);
            return groups;
        }
        if self.order.len() < length {
            let mut new: Vec<u32> = (self.order.len() as u32..length as u32).collect();
            self.keys.sort(&mut new);
            self.order = self.keys.merge(&self.order, &new);
        }
        let is_touched = |&&group: &&u32| self.slots[group as usize] != UNTOUCHED;
        self.order.iter().filter(is_touched).copied().collect()
    }

    fn apply_multisets(
        &mut self,
        shared: &Shared,
        snapshot: &StateSnapshot,
        slots: &[u32],
        touched: &TouchedGroups<'_>,
        result: &mut ShardOutput,
    ) -> Result<()> {
        if shared.plan.is_columnar() {
            return Ok(());
        }
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
            let column = &mut self.columns[plan.column];
            result.growth += multiset::apply(plan, deltas, touched, column, snapshot, &mut entries)
                .map_err(|error| error.context(format!("aggregate \"{}\"", shared.name)))?;
            result.multisets[index].push(entries);
            if let Some(empty) = multiset::empty_result(plan)? {
                let values = column.bytes_mut();
                for &group in touched.groups {
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
        let was: Vec<bool> = slots
            .iter()
            .map(|&s| self.old_present[s as usize])
            .collect();
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

    fn write_touched(
        &mut self,
        shared: &Shared,
        keys: &BinaryArray,
        columns: &[ArrayRef],
        slots: &[u32],
        groups: &[u32],
        result: &mut ShardOutput,
    ) -> Result<()> {
        let ends = match &shared.event_time {
            Some(event_time) => Some(event_time.ends(&columns[event_time.group_index])?),
            None => None,
        };
        let mut entries = Entries::default();
        entries.reserve(
            groups.len(),
            keys.value_data().len() + groups.len() * (4 + 6 * self.columns.len()),
        );
        for (rank, (&slot, &group)) in slots.iter().zip(groups).enumerate() {
            let (key, was) = (keys.value(rank), self.old_present[slot as usize]);
            let is = self.is_there(shared, group);
            let index = group as usize;
            let is_changed = was != is || self.is_changed(slot as usize, index);
            if is_changed {
                result.unmade_rows += u64::from(was) + u64::from(is);
            }
            if is && is_changed {
                entries.put(key, |value| {
                    write_signed(self.rows[index].into(), value);
                    self.columns
                        .iter()
                        .for_each(|column| column.encode(index, value));
                });
            } else if !is {
                if was {
                    entries.delete(key);
                }
                self.forget_state(shared, index);
            }
            self.present[index] = is;
            result.growth += i64::from(is) - i64::from(was);
            if let Some(ends) = &ends
                && was != is
                && ends.is_valid(rank)
            {
                result.ends.insert((ends.value(rank), key.to_vec(), is));
            }
        }
        result.groups.push(entries);
        Ok(())
    }

    /// The state of a touched group is not what it was before the batch.
    fn is_changed(&self, slot: usize, group: usize) -> bool {
        self.rows[group] != self.old_rows[slot]
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
        self.select(&closing.hashes, &mut rows);
        if rows.is_empty() {
            return Ok(());
        }
        // State is read only if it is shown.
        let store = store.filter(|_| shared.emit_on_close);
        let mut groups = Vec::new();
        self.intern(
            shared,
            &closing.keys,
            &closing.hashes,
            &rows,
            &mut groups,
            store,
        )?;
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
        let touched = std::mem::take(&mut self.touched);
        for &group in &touched {
            self.slots[group as usize] = UNTOUCHED;
        }
        self.old_rows.clear();
        self.old_present.clear();
        self.old_columns.iter_mut().for_each(StateColumn::clear);
        let there = |&group: &u32| self.present[group as usize];
        let alive = self.present.iter().filter(|&&present| present).count();
        if evict && touched.len() < alive {
            let kept: Vec<u32> = touched.iter().copied().filter(there).collect();
            self.keep_only(shared, &kept);
            return kept.len() < alive;
        }
        // Vanished groups keep their place for a while, since many come back.
        let dead = self.keys.len() - alive;
        if dead > 1024 && dead > alive {
            let kept: Vec<u32> = (0..self.keys.len() as u32).filter(there).collect();
            self.keep_only(shared, &kept);
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
        let buffers = self.row_buffer.capacity()
            + self.group_buffer.capacity()
            + self.touched.capacity()
            + self.order.capacity();
        self.keys.size_bytes()
            + columns
            + self.rows.capacity() * 13
            + self.old_rows.capacity() * 9
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

//! The rows that one statement deletes and inserts, gathered by key before any of them counts.

use std::collections::BTreeMap;

use datafusion::arrow::array::{BooleanArray, RecordBatch};

use super::insert::value_of;
use super::target::Target;
use crate::error::{Error, Result};
use crate::log::tables::layout::{TableLayout, decode_count, encode_count};
use crate::log::tables::overlay::{ENTRY_BYTES, Layer, OverlayEntry};
use crate::log::tables::view::TablesView;

/// What a statement deletes and inserts, by key. An update is both.
#[derive(Default)]
pub(super) struct RowChanges {
    deleted: BTreeMap<Vec<u8>, (OverlayEntry, u64)>,
    inserted: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// about what both hold
    pub bytes: usize,
}

impl RowChanges {
    /// Deletes rows; false where a row was already deleted by this statement.
    pub fn delete(
        &mut self,
        view: &TablesView,
        layout: &TableLayout,
        rows: &RecordBatch,
    ) -> Result<BooleanArray> {
        let keys = layout.keys(rows)?;
        let mut unknown: Vec<&[u8]> = keys
            .iter()
            .filter(|key| !self.deleted.contains_key(*key))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        let entries = view.get_many(layout, &unknown)?;
        for (key, entry) in unknown.into_iter().zip(entries) {
            let value_bytes = entry.after.as_ref().map_or(0, Vec::len);
            self.bytes += ENTRY_BYTES + key.len() + 2 * value_bytes;
            self.deleted.insert(key.to_vec(), (entry, 0));
        }
        keys.iter()
            .map(|key| {
                let (entry, deleted) = self
                    .deleted
                    .get_mut(key)
                    .ok_or_else(|| Error::internal("a look-up answers every key"))?;
                let is_there = *deleted < copies(layout, entry)?;
                *deleted += u64::from(is_there);
                Ok(Some(is_there))
            })
            .collect()
    }

    /// Inserts rows; two with one key are an error.
    pub fn insert(
        &mut self,
        target: &Target,
        layout: &TableLayout,
        rows: &RecordBatch,
    ) -> Result<()> {
        let keys = layout.keys(rows)?;
        let values = layout.values(rows)?;
        for row in 0..rows.num_rows() {
            let key = keys.row(row);
            match self.inserted.get_mut(key) {
                Some((_, copies)) if layout.is_bag() => *copies += 1,
                Some(_) => return Err(target.unique_violation(rows, row)),
                None => {
                    let value = value_of(values.as_ref(), row);
                    self.bytes += ENTRY_BYTES + key.len() + value.len();
                    self.inserted.insert(key.to_vec(), (value, 1));
                }
            }
        }
        Ok(())
    }

    /// The layer that both make, after the check that new keys are free.
    pub fn finish(
        mut self,
        view: &TablesView,
        target: &Target,
        layout: &TableLayout,
    ) -> Result<Layer> {
        let fresh: Vec<&[u8]> = self
            .inserted
            .keys()
            .map(Vec::as_slice)
            .filter(|key| !self.deleted.contains_key(*key))
            .collect();
        let entries = view.get_many(layout, &fresh)?;
        let mut layer = Layer::new();
        for (key, entry) in fresh.into_iter().zip(entries) {
            if entry.after.is_some() && !layout.is_bag() {
                let all: Vec<usize> = (0..target.columns().len()).collect();
                let rows = view.rows_of(layout, &[key], &all)?;
                return Err(target.unique_violation(&rows, 0));
            }
            layer.insert(key.to_vec(), entry);
        }
        for (key, (entry, deleted)) in std::mem::take(&mut self.deleted) {
            let left = copies(layout, &entry)? - deleted;
            let after = match layout.is_bag() {
                true => encode_count(left),
                false if left > 0 => entry.after,
                false => None,
            };
            let before = entry.before;
            layer.insert(key, OverlayEntry { before, after });
        }
        for (key, (value, copies)) in self.inserted {
            let entry = layer
                .get_mut(&key)
                .ok_or_else(|| Error::internal("every inserted key was looked up"))?;
            entry.after = match layout.is_bag() {
                true => {
                    let left = entry.after.as_deref().map_or(Ok(0), decode_count)?;
                    encode_count(left + copies)
                }
                false => Some(value),
            };
        }
        Ok(layer)
    }
}

/// How many rows an entry stands for.
fn copies(layout: &TableLayout, entry: &OverlayEntry) -> Result<u64> {
    match &entry.after {
        None => Ok(0),
        Some(value) if layout.is_bag() => decode_count(value),
        Some(_) => Ok(1),
    }
}

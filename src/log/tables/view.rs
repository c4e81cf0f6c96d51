//! What a statement sees of the tables: a committed snapshot under the transaction's own changes.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, RecordBatch};

use super::layout::{TableLayout, decode_count};
use super::overlay::{Layer, Overlay, OverlayEntry};
use crate::error::Result;
use crate::state::{KeyRange, StateScan, StateSnapshot};

/// Rows of a batch that a scan gives.
const SCAN_ROWS: usize = 8192;

/// An immutable view of all tables. `Clone` is cheap.
#[derive(Debug, Clone)]
pub struct TablesView {
    snapshot: StateSnapshot,
    overlays: Arc<HashMap<u32, Overlay>>,
}

impl TablesView {
    /// Committed contents under a transaction's changes (by oid).
    pub fn new(snapshot: StateSnapshot, overlays: Arc<HashMap<u32, Overlay>>) -> Self {
        Self { snapshot, overlays }
    }

    /// The committed part.
    pub fn snapshot(&self) -> &StateSnapshot {
        &self.snapshot
    }

    /// Position in the log that the committed part shows.
    pub fn position(&self) -> u64 {
        self.snapshot.batch_id().unwrap_or(0)
    }

    /// What is known of keys, which ascend: the value now, and the committed one under it.
    pub fn get_many(&self, layout: &TableLayout, keys: &[&[u8]]) -> Result<Vec<OverlayEntry>> {
        let overlay = self.overlays.get(&layout.oid());
        let mut found: Vec<Option<OverlayEntry>> = keys
            .iter()
            .map(|key| overlay.and_then(|o| o.get(key)).cloned())
            .collect();
        let missing: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
        let missing_keys: BinaryArray = missing.iter().map(|&i| Some(keys[i])).collect();
        let values = self.snapshot.get_many(layout.table_id(), &missing_keys)?;
        for (at, &i) in missing.iter().enumerate() {
            let value = values.is_valid(at).then(|| values.value(at).to_vec());
            found[i] = Some(OverlayEntry {
                before: value.clone(),
                after: value,
            });
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The rows of a table in the order of its key, all or those in a range of keys; columns of
    /// `projection`.
    pub fn scan(
        &self,
        layout: &Arc<TableLayout>,
        range: Option<&KeyRange>,
        projection: &[usize],
    ) -> Result<TableScan> {
        let layers = match self.overlays.get(&layout.oid()) {
            Some(overlay) => overlay.layers().to_vec(),
            None => Vec::new(),
        };
        let lower = range.map(|range| range.lower.as_slice());
        let upper = range.and_then(|range| range.upper.as_deref());
        Ok(TableScan {
            layout: Arc::clone(layout),
            projection: projection.to_vec(),
            committed: Committed::start(self.snapshot.scan(layout.table_id(), lower, upper)?)?,
            layers: layers
                .into_iter()
                .rev()
                .map(|layer| LayerCursor::start(layer, lower, upper))
                .collect(),
            repeat: None,
            done: false,
        })
    }

    /// Rows with these keys, which ascend and are distinct; columns of `projection`.
    pub fn rows_of(
        &self,
        layout: &TableLayout,
        keys: &[&[u8]],
        projection: &[usize],
    ) -> Result<RecordBatch> {
        let entries = self.get_many(layout, keys)?;
        let mut found = Found::default();
        for (key, entry) in keys.iter().zip(&entries) {
            if let Some(value) = &entry.after {
                let count = match layout.is_bag() {
                    true => decode_count(value)?,
                    false => 1,
                };
                for _ in 0..count {
                    found.push(key, value);
                }
            }
        }
        found.decode(layout, projection)
    }
}

/// Keys and values gathered for one batch, in two buffers.
#[derive(Debug, Default)]
struct Found {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Found {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn decode(&self, layout: &TableLayout, projection: &[usize]) -> Result<RecordBatch> {
        let mut start = 0;
        let mut keys = Vec::with_capacity(self.ends.len());
        let mut values = Vec::with_capacity(self.ends.len());
        for &(key_end, value_end) in &self.ends {
            keys.push(&self.bytes[start..key_end]);
            values.push(&self.bytes[key_end..value_end]);
            start = value_end;
        }
        layout.decode(&keys, &values, projection)
    }
}

/// A scan's cursor over the committed contents.
struct Committed {
    scan: StateScan,
    is_at_entry: bool,
}

impl Committed {
    fn start(mut scan: StateScan) -> Result<Self> {
        let is_at_entry = scan.advance()?;
        Ok(Self { scan, is_at_entry })
    }

    fn key(&self) -> Option<&[u8]> {
        self.is_at_entry.then(|| self.scan.key())
    }

    fn advance(&mut self) -> Result<()> {
        self.is_at_entry = self.scan.advance()?;
        Ok(())
    }
}

/// A cursor over one layer; it remembers its key, since the map is behind a shared pointer.
struct LayerCursor {
    layer: Arc<Layer>,
    next: Option<Vec<u8>>,
    /// Keys from here on are not wanted.
    upper: Option<Vec<u8>>,
}

impl LayerCursor {
    fn start(layer: Arc<Layer>, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        let mut cursor = Self {
            layer,
            next: None,
            upper: upper.map(<[u8]>::to_vec),
        };
        cursor.seek(lower.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec())));
        cursor
    }

    fn seek(&mut self, from: Bound<Vec<u8>>) {
        let mut keys = self.layer.range::<Vec<u8>, _>((from, Bound::Unbounded));
        let next = keys.next().map(|(key, _)| key);
        let is_wanted = |key: &&Vec<u8>| self.upper.as_ref().is_none_or(|upper| *key < upper);
        self.next = next.filter(is_wanted).cloned();
    }

    fn advance(&mut self) {
        if let Some(key) = self.next.take() {
            self.seek(Bound::Excluded(key));
        }
    }
}

/// A lazy scan of a table: batches of some thousand rows.
pub struct TableScan {
    layout: Arc<TableLayout>,
    projection: Vec<usize>,
    committed: Committed,
    /// newest first
    layers: Vec<LayerCursor>,
    /// a bag's row that goes on in the next batch
    repeat: Option<(Vec<u8>, u64)>,
    done: bool,
}

impl TableScan {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut found = Found::default();
        while found.ends.len() < SCAN_ROWS {
            if let Some((key, count)) = self.repeat.take() {
                let now = count.min((SCAN_ROWS - found.ends.len()) as u64);
                for _ in 0..now {
                    found.push(&key, &[]);
                }
                if count > now {
                    self.repeat = Some((key, count - now));
                }
            } else if !self.step(&mut found)? {
                break;
            }
        }
        if found.ends.is_empty() {
            return Ok(None);
        }
        found.decode(&self.layout, &self.projection).map(Some)
    }

    /// Takes the least key of all cursors; false at the end.
    fn step(&mut self, found: &mut Found) -> Result<bool> {
        let least = self
            .layers
            .iter()
            .enumerate()
            .filter_map(|(at, cursor)| Some((cursor.next.as_deref()?, at)))
            .min();
        let from_layer = match (least, self.committed.key()) {
            (None, None) => return Ok(false),
            (None, Some(_)) => None,
            (Some((_, at)), None) => Some(at),
            (Some((key, at)), Some(committed)) => (key <= committed).then_some(at),
        };
        let Some(at) = from_layer else {
            let (key, value) = (self.committed.scan.key(), self.committed.scan.value());
            match self.layout.is_bag() {
                true => self.repeat = Some((key.to_vec(), decode_count(value)?)),
                false => found.push(key, value),
            }
            self.committed.advance()?;
            return Ok(true);
        };
        let key = self.layers[at].next.clone().unwrap_or_default();
        if let Some(value) = self.layers[at]
            .layer
            .get(&key)
            .and_then(|e| e.after.as_ref())
        {
            match self.layout.is_bag() {
                true => self.repeat = Some((key.clone(), decode_count(value)?)),
                false => found.push(&key, value),
            }
        }
        for cursor in &mut self.layers {
            if cursor.next.as_ref() == Some(&key) {
                cursor.advance();
            }
        }
        if self.committed.key() == Some(&key) {
            self.committed.advance()?;
        }
        Ok(true)
    }
}

impl Iterator for TableScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_batch().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

//! Bringing the tables' contents up to the log's end at open.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, RecordBatch};

use super::layout::{TableLayout, decode_count, encode_count};
use crate::error::{Error, Result};
use crate::log::stored::batch_of;
use crate::log::{DurableLog, LogPosition};
use crate::state::{Run, RunBuilder, StateStore};

/// Rows of one table that one step takes, about.
const STEP_ROWS: u64 = 200_000;

/// Applies all commits after the store's cold tier.
pub fn replay(
    log: &Arc<DurableLog>,
    store: &StateStore,
    layouts: &[Arc<TableLayout>],
) -> Result<()> {
    let mut position = store.cold_batch().unwrap_or(0);
    let end = log.end();
    let mut layouts: Vec<_> = layouts.to_vec();
    layouts.sort_by_key(|layout| layout.oid());
    while position < end {
        let next = layouts
            .iter()
            .map(|layout| log.cut(layout.oid(), position, end, STEP_ROWS))
            .min()
            .unwrap_or(end);
        let mut builder = RunBuilder::new();
        for layout in &layouts {
            replay_table(log, store, layout, position, next, &mut builder)?;
        }
        let run: Run = builder.finish();
        store.apply(next, Arc::new(run))?;
        position = next;
    }
    Ok(())
}

fn replay_table(
    log: &Arc<DurableLog>,
    store: &StateStore,
    layout: &TableLayout,
    from: LogPosition,
    to: LogPosition,
    builder: &mut RunBuilder,
) -> Result<()> {
    let mut values: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    let mut counts: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for entry in log.read(layout.oid(), from, to) {
        let changes = entry?.changes;
        let rows = conform(layout, changes.rows())?;
        let keys = layout.keys(&rows)?;
        let row_values = layout.values(&rows)?;
        for i in 0..rows.num_rows() {
            let key = keys.row(i).to_vec();
            let weight = changes.weight(i);
            if layout.is_bag() {
                *counts.entry(key).or_default() += weight;
            } else {
                let value = || {
                    row_values
                        .as_ref()
                        .map_or(Vec::new(), |rows| rows.row(i).to_vec())
                };
                values.insert(key, (weight > 0).then(value));
            }
        }
    }
    if layout.is_bag() {
        values = resolve_counts(store, layout, counts)?;
    }
    let mut key = Vec::new();
    for (suffix, value) in &values {
        key.clear();
        key.extend_from_slice(&layout.table_id().0.to_be_bytes());
        key.extend_from_slice(suffix);
        builder.push(&key, value.as_deref());
    }
    Ok(())
}

fn resolve_counts(
    store: &StateStore,
    layout: &TableLayout,
    counts: BTreeMap<Vec<u8>, i64>,
) -> Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
    let keys: BinaryArray = counts.keys().map(|key| Some(key.as_slice())).collect();
    let before = store.snapshot().get_many(layout.table_id(), &keys)?;
    counts
        .into_iter()
        .enumerate()
        .map(|(i, (key, change))| {
            let count = match before.is_valid(i) {
                true => decode_count(before.value(i))? as i64,
                false => 0,
            };
            let count = u64::try_from(count + change).map_err(|_| {
                Error::damaged(format!(
                    "the log deletes rows of table \"{}\" that were never there",
                    layout.name()
                ))
            })?;
            Ok((key, encode_count(count)))
        })
        .collect()
}

/// Rows as logged at any time, in the table's present columns.
fn conform(layout: &TableLayout, rows: &RecordBatch) -> Result<RecordBatch> {
    let columns = (0..layout.schema().fields().len())
        .map(|column| layout.logged_column(rows, column))
        .collect::<Result<Vec<_>>>()?;
    batch_of(layout.schema(), columns, rows.num_rows())
}

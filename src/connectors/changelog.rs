//! Weighted rows to the four kinds of change that people and other systems read.
//!
//! Inside, a batch's change is a multiset of weighted rows. Outside, a change to one key is told
//! as what it was and what it is: a deleted and an inserted row of one key in one batch become
//! update-before and update-after, next to each other. Without a key there are only inserts and
//! deletes. A weight of n is n rows.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, SortField};

use crate::dataflow::change::ChangeBatch;
use crate::error::Result;

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// it is new
    Insert,
    /// what it was before an update
    UpdateBefore,
    /// what it is after an update
    UpdateAfter,
    /// it is gone
    Delete,
}

impl ChangeKind {
    /// As outputs name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::UpdateBefore => "update_before",
            Self::UpdateAfter => "update_after",
            Self::Delete => "delete",
        }
    }
}

/// The changes of a batch, one row each.
#[derive(Debug, Clone)]
pub struct Changelog {
    /// The rows.
    pub rows: RecordBatch,
    /// What happened to each.
    pub kinds: Vec<ChangeKind>,
}

impl Changelog {
    /// Labels a batch's consolidated changes. `key` lists the columns that identify a row; empty
    /// if none do. Deletes come before inserts, so that a reader that applies them in order never
    /// holds two rows of one key.
    pub fn of(schema: &SchemaRef, changes: &[ChangeBatch], key: &[usize]) -> Result<Self> {
        let rows = concat_batches(schema, changes.iter().map(ChangeBatch::rows))?;
        let weights: Vec<i64> = changes
            .iter()
            .flat_map(|c| (0..c.num_rows()).map(|i| c.weight(i)))
            .collect();
        let labelled = if key.is_empty() {
            without_key(&weights)
        } else {
            by_key(&rows, &weights, key)?
        };
        let indices: UInt64Array = labelled.iter().map(|(i, _)| Some(*i as u64)).collect();
        Ok(Self {
            rows: take_record_batch(&rows, &indices)?,
            kinds: labelled.into_iter().map(|(_, kind)| kind).collect(),
        })
    }

    /// The kinds as a text column.
    pub fn kind_column(&self) -> Arc<StringArray> {
        Arc::new(StringArray::from_iter_values(
            self.kinds.iter().map(|kind| kind.name()),
        ))
    }
}

fn copies(index: usize, weight: i64) -> impl Iterator<Item = usize> {
    std::iter::repeat_n(index, weight.unsigned_abs() as usize)
}

fn without_key(weights: &[i64]) -> Vec<(usize, ChangeKind)> {
    let of = |kind: ChangeKind, wanted: fn(i64) -> bool| {
        weights
            .iter()
            .enumerate()
            .filter(move |(_, w)| wanted(**w))
            .flat_map(move |(i, w)| copies(i, *w).map(move |i| (i, kind)))
    };
    of(ChangeKind::Delete, |w| w < 0)
        .chain(of(ChangeKind::Insert, |w| w > 0))
        .collect()
}

/// Deleted and inserted rows of one key.
#[derive(Default)]
struct KeyChanges {
    deleted: Vec<usize>,
    inserted: Vec<usize>,
}

fn by_key(rows: &RecordBatch, weights: &[i64], key: &[usize]) -> Result<Vec<(usize, ChangeKind)>> {
    let columns: Vec<_> = key.iter().map(|&i| rows.column(i).clone()).collect();
    let fields = columns
        .iter()
        .map(|c| SortField::new(c.data_type().clone()))
        .collect();
    let keys = RowConverter::new(fields)?.convert_columns(&columns)?;
    let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(weights.len());
    let mut changes: Vec<KeyChanges> = Vec::new();
    for (index, weight) in weights.iter().enumerate() {
        let place = *places.entry(keys.row(index).data()).or_insert_with(|| {
            changes.push(KeyChanges::default());
            changes.len() - 1
        });
        let of_key = &mut changes[place];
        if *weight < 0 {
            of_key.deleted.extend(copies(index, *weight));
        } else {
            of_key.inserted.extend(copies(index, *weight));
        }
    }
    let mut labelled = Vec::with_capacity(weights.len());
    for KeyChanges { deleted, inserted } in changes {
        let updates = deleted.len().min(inserted.len());
        for (before, after) in deleted.iter().zip(&inserted) {
            labelled.push((*before, ChangeKind::UpdateBefore));
            labelled.push((*after, ChangeKind::UpdateAfter));
        }
        let rest = |rows: &[usize], kind| {
            rows[updates..]
                .iter()
                .map(move |i| (*i, kind))
                .collect::<Vec<_>>()
        };
        labelled.extend(rest(&deleted, ChangeKind::Delete));
        labelled.extend(rest(&inserted, ChangeKind::Insert));
    }
    Ok(labelled)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    fn changes(rows: &[(Option<i64>, i64, i64)]) -> (SchemaRef, Vec<ChangeBatch>) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("v", DataType::Int64, false),
        ]));
        let batches = rows
            .chunks(2)
            .map(|part| {
                let k: Int64Array = part.iter().map(|r| r.0).collect();
                let v: Int64Array = part.iter().map(|r| Some(r.1)).collect();
                let rows =
                    RecordBatch::try_new(schema.clone(), vec![Arc::new(k), Arc::new(v)]).unwrap();
                let weights: Int64Array = part.iter().map(|r| Some(r.2)).collect();
                ChangeBatch::weighted(rows, weights)
            })
            .collect();
        (schema, batches)
    }

    fn labelled(rows: &[(Option<i64>, i64, i64)], key: &[usize]) -> Vec<(i64, &'static str)> {
        let (schema, batches) = changes(rows);
        let log = Changelog::of(&schema, &batches, key).unwrap();
        let values = log.rows.column(1).as_primitive::<Int64Type>();
        values
            .values()
            .iter()
            .copied()
            .zip(log.kinds.iter().map(|k| k.name()))
            .collect()
    }

    #[test]
    fn updates_are_paired_by_key_over_batches() {
        let rows = [
            (Some(1), 11, 1),
            (Some(2), 20, -1),
            (Some(3), 30, 1),
            (None, 41, 1),
            (Some(1), 10, -1),
            (None, 40, -1),
        ];
        assert_eq!(
            labelled(&rows, &[0]),
            [
                (10, "update_before"),
                (11, "update_after"),
                (20, "delete"),
                (30, "insert"),
                (40, "update_before"),
                (41, "update_after"),
            ]
        );
    }

    #[test]
    fn without_a_key_copies_are_rows_and_deletes_come_first() {
        let rows = [(Some(1), 10, 2), (Some(1), 11, -2), (None, 12, 1)];
        assert_eq!(
            labelled(&rows, &[]),
            [
                (11, "delete"),
                (11, "delete"),
                (10, "insert"),
                (10, "insert"),
                (12, "insert")
            ]
        );
        assert!(labelled(&[], &[0]).is_empty());
    }
}

//! `SUBSCRIBE TO v`: the changes of a relation as rows, batch by batch.
//!
//! Rows are `batch_id`, `change_kind` (`insert`, `delete`; `update_before` and `update_after` one
//! after the other where a key stays; `progress` with NULL columns: that the snapshot is whole, where changes
//! begin, and batches without any), then the view's columns. A
//! change of weight n is n rows. Within a batch deletes come before inserts, so that a reader who
//! applies rows in order never holds a key twice. A stream or table is followed in the same way;
//! its batches are the commits of the durable log.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array, new_null_array,
};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::row::{Row, RowConverter, Rows, SortField};
use futures::{StreamExt, stream};

use super::query::RowStream;
use super::temporary::refuse_temporary;
use super::{Session, StatementResult, query};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::renaming::KeptName;
use crate::dataflow::change::ChangeBatch;
use crate::engine::{CommittedChanges, SubscribeFrom, Subscription};
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::layout::TableLayout;
use crate::log::tables::view::TablesView;
use crate::sql::statement::Subscribe;

impl Session {
    pub(super) async fn subscribe(&mut self, subscribe: &Subscribe) -> Result<StatementResult> {
        let (schema, rows) = self.start_subscription(subscribe).await?;
        Ok(StatementResult::Rows {
            schema,
            stream: query::watched(rows, self.stream_failed.clone()),
            tag: "SUBSCRIBE".to_owned(),
            tag_has_count: true,
        })
    }

    pub(super) async fn start_subscription(
        &self,
        subscribe: &Subscribe,
    ) -> Result<(SchemaRef, RowStream)> {
        let snapshot = self.definitions();
        let Subscription {
            schema: columns,
            key,
            changes,
        } = match snapshot.object(&subscribe.name) {
            Some(object)
                if matches!(
                    object.definition,
                    Definition::Stream(_) | Definition::Table(_)
                ) =>
            {
                refuse_temporary(object, "subscribe to")?;
                self.subscribe_to_source(object, subscribe).await?
            }
            found => {
                let engine = self.parts.engine();
                let context = engine.read_context();
                let object = found.ok_or_else(|| no_relation(&subscribe.name))?;
                refuse_temporary(object, "subscribe to")?;
                if context.shown(object.kept_name(), object.oid).is_some() {
                    return Err(being_replaced(&subscribe.name));
                }
                let (name, after) = (KeptName::of(object), subscribe.after_batch);
                engine
                    .subscribe(&name, subscribe.snapshot, subscribe.progress, after)
                    .await?
            }
        };
        let schema = subscription_schema(&columns);
        let wanted = schema.clone();
        let rows = changes
            .map(move |committed| rows_of(&wanted, key.as_deref(), &committed?))
            .boxed();
        Ok((schema, rows))
    }

    /// A table's snapshot is what it holds, not how it came to it.
    async fn subscribe_to_source(
        &self,
        object: &Arc<CatalogObject>,
        subscribe: &Subscribe,
    ) -> Result<Subscription> {
        let from = match (subscribe.after_batch, subscribe.snapshot) {
            (Some(after), _) => SubscribeFrom::After(after),
            (None, true) => SubscribeFrom::Beginning,
            (None, false) => SubscribeFrom::Now,
        };
        let layout = match &object.definition {
            Definition::Table(_) => Some(TableLayout::of(object)?),
            _ => None,
        };
        let engine = self.parts.engine();
        let changes = match (&layout, from) {
            (Some(layout), SubscribeFrom::Beginning) => {
                let (batch_id, contents) = self.contents(layout)?;
                let from = SubscribeFrom::After(batch_id);
                let live = engine.subscribe_to_source(object, from).await?;
                let whole = CommittedChanges {
                    batch_id,
                    snapshot: false,
                    changes: Vec::new(),
                };
                let contents = contents.chain([Ok(whole)]);
                stream::iter(contents).chain(live).boxed()
            }
            _ => engine.subscribe_to_source(object, from).await?,
        };
        let progress = subscribe.progress;
        let is_told = move |told: &Result<CommittedChanges>| {
            let has_changes = told.as_ref().map_or(true, |c| !c.changes.is_empty());
            std::future::ready(progress || has_changes)
        };
        let changes = changes.filter(is_told).boxed();
        let key = layout.filter(|layout| !layout.is_bag());
        Ok(Subscription {
            schema: object.schema(),
            key: key.map(|layout| layout.key_columns().to_vec()),
            changes,
        })
    }

    /// What a table holds after a commit of the durable log, and after which.
    fn contents(
        &self,
        layout: &Arc<TableLayout>,
    ) -> Result<(u64, impl Iterator<Item = Result<CommittedChanges>> + use<>)> {
        let view = TablesView::new(self.parts.tables.snapshot()?, Arc::default());
        let batch_id = view.position();
        let all: Vec<usize> = (0..layout.schema().fields().len()).collect();
        let contents = view.scan(layout, None, &all)?.map(move |batch| {
            Ok(CommittedChanges {
                batch_id,
                snapshot: true,
                changes: vec![ChangeBatch::inserts(batch?)],
            })
        });
        Ok((batch_id, contents))
    }
}

/// The columns of a subscription to a relation of `columns`.
pub(super) fn subscription_schema(columns: &Schema) -> SchemaRef {
    let mut fields = vec![
        Arc::new(Field::new("batch_id", DataType::Int64, false)),
        Arc::new(Field::new("change_kind", DataType::Utf8, false)),
    ];
    fields.extend(
        columns
            .fields()
            .iter()
            .map(|f| Arc::new(f.as_ref().clone().with_nullable(true))),
    );
    Arc::new(Schema::new(fields))
}

/// All rows of a committed batch as one.
fn rows_of(
    schema: &SchemaRef,
    key: Option<&[usize]>,
    committed: &CommittedChanges,
) -> Result<RecordBatch> {
    if committed.changes.iter().all(ChangeBatch::is_empty) {
        return progress_row(schema, committed.batch_id);
    }
    let columns = Arc::new(Schema::new(schema.fields()[2..].to_vec()));
    let signed = |sign: i64| -> Result<RecordBatch> {
        let mut batches = Vec::new();
        for change in &committed.changes {
            let rows = compute::take_record_batch(change.rows(), &repeated_indices(change, sign))?;
            batches.push(rows.with_schema(columns.clone())?);
        }
        Ok(compute::concat_batches(&columns, &batches)?)
    };
    let (deleted, inserted) = (signed(-1)?, signed(1)?);
    let pairs = match key {
        Some(key) => pairs_of(key, &deleted, &inserted)?,
        None => BTreeMap::new(),
    };
    let is_paired: BTreeSet<usize> = pairs.values().copied().collect();
    let mut order: Vec<(usize, usize)> = Vec::new();
    let mut kinds = Vec::new();
    for row in (0..deleted.num_rows()).filter(|row| !pairs.contains_key(row)) {
        order.push((0, row));
        kinds.push("delete");
    }
    for (before, after) in &pairs {
        order.extend([(0, *before), (1, *after)]);
        kinds.extend(["update_before", "update_after"]);
    }
    for row in (0..inserted.num_rows()).filter(|row| !is_paired.contains(row)) {
        order.push((1, row));
        kinds.push("insert");
    }
    let rows = compute::interleave_record_batch(&[&deleted, &inserted], &order)?;
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_value(
            committed.batch_id as i64,
            kinds.len(),
        )),
        Arc::new(StringArray::from(kinds)),
    ];
    columns.extend(rows.columns().iter().cloned());
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// Deleted rows and the inserted ones of the same key; both by their numbers.
fn pairs_of(
    key: &[usize],
    deleted: &RecordBatch,
    inserted: &RecordBatch,
) -> Result<BTreeMap<usize, usize>> {
    if key.is_empty() {
        // There is one row at most.
        let count = deleted.num_rows().min(inserted.num_rows());
        return Ok((0..count).map(|row| (row, row)).collect());
    }
    let types = key.iter().map(|column| {
        let data_type = deleted.schema_ref().field(*column).data_type().clone();
        SortField::new(data_type)
    });
    let converter = RowConverter::new(types.collect())?;
    let keys = |rows: &RecordBatch| -> Result<Rows> {
        let columns: Vec<ArrayRef> = key.iter().map(|c| rows.column(*c).clone()).collect();
        Ok(converter.convert_columns(&columns)?)
    };
    let (deleted, inserted) = (keys(deleted)?, keys(inserted)?);
    let by_key: HashMap<Row<'_>, usize> = deleted.iter().zip(0..).collect();
    let pairs = inserted.iter().zip(0..);
    Ok(pairs
        .filter_map(|(key, after)| Some((*by_key.get(&key)?, after)))
        .collect())
}

/// Indices of the rows with weights of this sign, each as often as its weight says.
fn repeated_indices(change: &ChangeBatch, sign: i64) -> UInt64Array {
    (0..change.num_rows())
        .flat_map(|row| {
            let copies = (change.weight(row) * sign).max(0) as usize;
            std::iter::repeat_n(row as u64, copies)
        })
        .collect::<Vec<_>>()
        .into()
}

fn progress_row(schema: &SchemaRef, batch_id: u64) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_value(batch_id as i64, 1)),
        Arc::new(StringArray::from_iter_values(["progress"])),
    ];
    columns.extend(
        schema
            .fields()
            .iter()
            .skip(2)
            .map(|field| new_null_array(field.data_type(), 1)),
    );
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn no_relation(name: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

/// A replaced view has no changes before the batch that fills it.
fn being_replaced(view: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("materialized view \"{view}\" is being replaced"),
    )
    .hint(format!("Say WAIT FOR {view} first."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;

    fn change(values: Vec<Option<i64>>, weights: Vec<i64>) -> ChangeBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values))]).unwrap();
        ChangeBatch::weighted(rows, weights.into())
    }

    #[test]
    fn weights_become_rows_and_deletes_come_first() {
        let change = change(vec![Some(1), None, Some(3)], vec![2, 1, -1]);
        let schema = subscription_schema(&change.schema());
        let batch = rows_of(
            &schema,
            None,
            &CommittedChanges {
                batch_id: 9,
                snapshot: false,
                changes: vec![change],
            },
        )
        .unwrap();
        let kinds = batch.column(1).as_string::<i32>();
        let values = batch.column(2).as_primitive::<Int64Type>();
        let rows: Vec<(String, Option<i64>)> = kinds
            .iter()
            .zip(values.iter())
            .map(|(k, v)| (k.unwrap().to_owned(), v))
            .collect();
        let expected = [
            ("delete", Some(3)),
            ("insert", Some(1)),
            ("insert", Some(1)),
            ("insert", None),
        ];
        assert_eq!(rows, expected.map(|(k, v)| (k.to_owned(), v)));
    }

    #[test]
    fn a_key_that_stays_is_updated() {
        let change = change(
            vec![Some(1), Some(2), Some(2), None, None],
            vec![-1, -1, 1, 1, -1],
        );
        let schema = subscription_schema(&change.schema());
        let committed = CommittedChanges {
            batch_id: 9,
            snapshot: false,
            changes: vec![change],
        };
        let batch = rows_of(&schema, Some(&[0]), &committed).unwrap();
        let kinds: Vec<_> = batch
            .column(1)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect();
        assert_eq!(
            kinds,
            [
                "delete",
                "update_before",
                "update_after",
                "update_before",
                "update_after"
            ]
        );
        let values = batch.column(2).as_primitive::<Int64Type>();
        let values: Vec<_> = values.iter().collect();
        assert_eq!(values, [Some(1), Some(2), Some(2), None, None]);
    }

    #[test]
    fn a_batch_without_changes_is_a_progress_row() {
        let schema = subscription_schema(&change(vec![Some(1)], vec![1]).schema());
        let committed = CommittedChanges {
            batch_id: 4,
            snapshot: false,
            changes: Vec::new(),
        };
        let batch = rows_of(&schema, None, &committed).unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(batch.column(2).null_count(), 1);
    }
}

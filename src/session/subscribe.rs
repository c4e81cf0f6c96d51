//! `SUBSCRIBE TO v`: the changes of a view as rows, batch by batch.
//!
//! Rows are `batch_id`, `change_kind` (`insert`, `delete`; `progress` with NULL columns), then the
//! view's columns. A change of weight n is n rows. Within a batch deletes come before inserts, so
//! that a reader who applies rows in order never holds a key twice.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array, new_null_array,
};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;

use super::query::RowStream;
use super::{Session, StatementResult, query};
use crate::dataflow::change::ChangeBatch;
use crate::engine::CommittedChanges;
use crate::error::Result;
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
        let (columns, changes) = self
            .parts
            .engine()
            .subscribe(
                &subscribe.name,
                subscribe.snapshot,
                subscribe.progress,
                subscribe.after_batch,
            )
            .await?;
        let schema = subscription_schema(&columns);
        let wanted = schema.clone();
        let rows = changes
            .map(move |committed| rows_of(&wanted, &committed?))
            .boxed();
        Ok((schema, rows))
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
fn rows_of(schema: &SchemaRef, committed: &CommittedChanges) -> Result<RecordBatch> {
    if committed.changes.iter().all(ChangeBatch::is_empty) {
        return progress_row(schema, committed.batch_id);
    }
    let mut batches = Vec::new();
    for (kind, sign) in [("delete", -1), ("insert", 1)] {
        for change in &committed.changes {
            let indices = repeated_indices(change, sign);
            if indices.is_empty() {
                continue;
            }
            let rows = compute::take_record_batch(change.rows(), &indices)?;
            let count = rows.num_rows();
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_value(committed.batch_id as i64, count)),
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                    kind, count,
                ))),
            ];
            columns.extend(rows.columns().iter().cloned());
            batches.push(RecordBatch::try_new(schema.clone(), columns)?);
        }
    }
    Ok(compute::concat_batches(schema, &batches)?)
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
    fn a_batch_without_changes_is_a_progress_row() {
        let schema = subscription_schema(&change(vec![Some(1)], vec![1]).schema());
        let committed = CommittedChanges {
            batch_id: 4,
            snapshot: false,
            changes: Vec::new(),
        };
        let batch = rows_of(&schema, &committed).unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(batch.column(2).null_count(), 1);
    }
}

//! Small results that a statement makes by itself: `SHOW`, `DESCRIBE`, `EXPLAIN`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{StreamExt, stream};

use super::StatementResult;

/// A result of text columns.
pub(super) fn text_rows(
    columns: &[&str],
    rows: impl IntoIterator<Item = Vec<Option<String>>>,
    tag: &str,
) -> StatementResult {
    let schema = text_schema(columns);
    let rows: Vec<_> = rows.into_iter().collect();
    let arrays: Vec<ArrayRef> = (0..columns.len())
        .map(|column| {
            let values = rows.iter().map(|row| row[column].as_deref());
            Arc::new(values.collect::<StringArray>()) as ArrayRef
        })
        .collect();
    let batch = RecordBatch::try_new(schema, arrays).expect("text columns of equal length");
    one_batch(batch, tag, false)
}

/// The schema of [`text_rows`].
pub(super) fn text_schema(columns: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(
        columns
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, true))
            .collect::<Vec<_>>(),
    ))
}

/// A result of one batch.
pub(super) fn one_batch(batch: RecordBatch, tag: &str, tag_has_count: bool) -> StatementResult {
    StatementResult::Rows {
        schema: batch.schema(),
        stream: stream::iter([Ok(batch)]).boxed(),
        tag: tag.to_owned(),
        tag_has_count,
    }
}

/// A command's answer.
pub(super) fn done(tag: impl Into<String>) -> StatementResult {
    StatementResult::Command { tag: tag.into() }
}

//! Rows between a relation's present columns and those under which they lie in the log.
//!
//! A frame names its columns as they were stored: names that are never reused, so that the frames
//! of all times can be read at once. What a frame lacks was added later and has its missing value;
//! a dropped column is NULL. A column that is NOT NULL now may have been NULL in rows that were
//! changed since: they are read as they were ([`batch_of`]).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;

use crate::catalog::definition::CatalogObject;
use crate::catalog::shape::StoredColumn;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::rows::all_nullable;
use crate::error::{Error, Result};
use crate::values::{Format, decode_parameter};

/// What rows hold in a column that was added after them.
pub fn missing_value(column: &StoredColumn) -> Result<ScalarValue> {
    let data_type = column.definition.sql_type.to_arrow();
    let Some(text) = column.missing.as_deref().filter(|_| !column.dropped) else {
        return Ok(ScalarValue::try_from(&data_type)?);
    };
    let sql_type = &column.definition.sql_type;
    decode_parameter(
        1,
        sql_type,
        sql_type.pg_oid(),
        Format::Text,
        Some(text.as_bytes()),
    )
    .map_err(|e| {
        Error::damaged(format!(
            "the value of column \"{}\" in older rows is unreadable: {}",
            column.definition.name,
            e.primary()
        ))
    })
}

/// Rows of any time: where one is NULL in a column that is NOT NULL now, the batch's column is nullable.
pub fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let is_broken =
        |(field, column): (&FieldRef, &ArrayRef)| !field.is_nullable() && column.null_count() > 0;
    let schema = match schema.fields().iter().zip(&columns).any(is_broken) {
        true => all_nullable(schema),
        false => Arc::clone(schema),
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// Reads frames of a relation as its stored columns.
#[derive(Debug)]
pub struct StoredReader {
    columns: Vec<StoredColumn>,
    /// Never altered: a frame's columns are the relation's, in their order.
    is_original: bool,
    missing: Vec<ScalarValue>,
}

impl StoredReader {
    /// A reader of a relation, whatever version of it.
    pub fn new(object: &CatalogObject) -> Result<Self> {
        let columns = object.stored_columns();
        let missing = columns.iter().map(missing_value).collect::<Result<_>>()?;
        Ok(Self {
            is_original: object.version() == 0,
            columns,
            missing,
        })
    }

    /// One stored column of a frame's rows.
    pub fn column(&self, rows: &RecordBatch, stored: usize) -> Result<ArrayRef> {
        let column = &self.columns[stored];
        let wanted = column.definition.sql_type.to_arrow();
        if column.dropped {
            return Ok(new_null_array(&wanted, rows.num_rows()));
        }
        // Most frames have all columns, in order.
        let found = match rows.schema_ref().fields().get(stored) {
            Some(field) if self.is_original || field.name() == &column.name => {
                Some(rows.column(stored))
            }
            _ => rows.column_by_name(&column.name),
        };
        match found {
            Some(values) if values.data_type() == &wanted => Ok(Arc::clone(values)),
            Some(values) => Ok(cast(values, &wanted)?),
            None => Ok(self.missing[stored].to_array_of_size(rows.num_rows())?),
        }
    }
}

/// Writes rows of a relation under the names of its stored columns.
#[derive(Debug, Clone)]
pub struct StoredWriter {
    /// `None`: the relation was never altered, and its rows are stored as they are
    schema: Option<SchemaRef>,
}

impl StoredWriter {
    /// A writer of rows in the columns of `object`.
    pub fn new(object: &CatalogObject) -> Self {
        if object.version() == 0 {
            return Self { schema: None };
        }
        let stored = object.stored_columns();
        let fields = object.columns().iter().enumerate().map(|(at, column)| {
            let name = &stored[object.stored_index(at)].name;
            // A row that a transaction took away may be from before NOT NULL.
            column.to_field().with_name(name).with_nullable(true)
        });
        Self {
            schema: Some(Arc::new(Schema::new(fields.collect::<Vec<_>>()))),
        }
    }

    /// The changes as they are logged.
    pub fn stored(&self, changes: &ChangeBatch) -> Result<ChangeBatch> {
        let Some(schema) = &self.schema else {
            return Ok(changes.clone());
        };
        let rows = changes.rows();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let columns = rows.columns().to_vec();
        let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
        Ok(changes.with_rows(rows))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;
    use crate::catalog::samples::{column, stream};

    fn changes(object: &CatalogObject, values: &[i64]) -> ChangeBatch {
        let columns: Vec<ArrayRef> = values
            .iter()
            .map(|v| Arc::new(Int64Array::from(vec![*v])) as ArrayRef)
            .collect();
        ChangeBatch::inserts(RecordBatch::try_new(object.schema(), columns).unwrap())
    }

    #[test]
    fn frames_of_all_times_are_read_by_their_stored_names() {
        let mut s = stream(20_000, "s", &["a", "b"]);
        let first = StoredWriter::new(&s).stored(&changes(&s, &[1, 2])).unwrap();
        s.add_column(column("c"), Some("7".to_owned())).unwrap();
        s.drop_column("a").unwrap();
        s.rename_column("b", "a", None).unwrap();
        s.add_column(column("b"), None).unwrap();
        // a (stored b), c, b (stored b#3)
        let last = StoredWriter::new(&s)
            .stored(&changes(&s, &[20, 30, 40]))
            .unwrap();
        let reader = StoredReader::new(&s).unwrap();
        let read = |changes: &ChangeBatch| -> Vec<Option<i64>> {
            (0..4)
                .map(|stored| {
                    let values = reader.column(changes.rows(), stored).unwrap();
                    let values = values.as_primitive::<Int64Type>().clone();
                    values.iter().next().flatten()
                })
                .collect()
        };
        assert_eq!(read(&first), [None, Some(2), Some(7), None]);
        assert_eq!(read(&last), [None, Some(20), Some(30), Some(40)]);
    }
}

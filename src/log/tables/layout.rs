//! How a table's rows become keys and values of the state store.
//!
//! With a primary key: key = the key columns, value = the other columns, both as arrow-row bytes.
//! Without one a table is a bag: key = the whole row, value = how many times it is there. So a
//! logged row alone says which entry it changes, and no hidden identity has to be logged.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, Rows, SortField};

use crate::catalog::definition::{CatalogObject, Definition};
use crate::error::{Error, Result, sqlstate};
use crate::state::TableId;

/// The layout of one table.
#[derive(Debug)]
pub struct TableLayout {
    oid: u32,
    name: String,
    schema: SchemaRef,
    key_columns: Vec<usize>,
    value_columns: Vec<usize>,
    is_bag: bool,
    key_converter: RowConverter,
    value_converter: Option<RowConverter>,
}

impl TableLayout {
    /// The layout of a table's definition; 42809 for another kind of relation.
    pub fn of(object: &CatalogObject) -> Result<Arc<Self>> {
        let Definition::Table(definition) = &object.definition else {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a table", object.name),
            ));
        };
        let schema = object.schema();
        let is_bag = definition.primary_key.is_empty();
        let key_columns = match is_bag {
            true => (0..schema.fields().len()).collect(),
            false => definition
                .primary_key
                .iter()
                .map(|name| schema.index_of(name))
                .collect::<Result<Vec<_>, _>>()?,
        };
        let value_columns: Vec<usize> = (0..schema.fields().len())
            .filter(|c| !key_columns.contains(c))
            .collect();
        let value_converter = match value_columns.is_empty() {
            true => None,
            false => Some(converter(&schema, &value_columns)?),
        };
        Ok(Arc::new(Self {
            oid: object.oid,
            name: object.name.clone(),
            key_converter: converter(&schema, &key_columns)?,
            value_converter,
            schema,
            key_columns,
            value_columns,
            is_bag,
        }))
    }

    /// Object identifier.
    pub fn oid(&self) -> u32 {
        self.oid
    }

    /// Name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The state table with its rows.
    pub fn table_id(&self) -> TableId {
        TableId(u64::from(self.oid))
    }

    /// Schema of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Columns of the primary key; all columns for a bag.
    pub fn key_columns(&self) -> &[usize] {
        &self.key_columns
    }

    /// It has no primary key.
    pub fn is_bag(&self) -> bool {
        self.is_bag
    }

    /// Keys of rows in the table's schema.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self
            .key_columns
            .iter()
            .map(|&c| Arc::clone(rows.column(c)))
            .collect();
        Ok(self.key_converter.convert_columns(&columns)?)
    }

    /// Keys of values for the key columns, in the key's order.
    pub fn keys_of_columns(&self, columns: &[ArrayRef]) -> Result<Rows> {
        Ok(self.key_converter.convert_columns(columns)?)
    }

    /// Values of rows in the table's schema; `None` if all columns are in the key (the value of
    /// a keyed table is then empty; a bag's is its count).
    pub fn values(&self, rows: &RecordBatch) -> Result<Option<Rows>> {
        let Some(converter) = &self.value_converter else {
            return Ok(None);
        };
        let columns: Vec<ArrayRef> = self
            .value_columns
            .iter()
            .map(|&c| Arc::clone(rows.column(c)))
            .collect();
        Ok(Some(converter.convert_columns(&columns)?))
    }

    /// Decodes rows; columns of `projection` only, in its order. A bag's values are not looked at:
    /// repeat its keys.
    pub fn decode(
        &self,
        keys: &[&[u8]],
        values: &[&[u8]],
        projection: &[usize],
    ) -> Result<RecordBatch> {
        let key_arrays = match projection.iter().any(|c| self.key_columns.contains(c)) {
            true => decode_rows(&self.key_converter, keys)?,
            false => Vec::new(),
        };
        let value_arrays = match &self.value_converter {
            Some(converter) if projection.iter().any(|c| self.value_columns.contains(c)) => {
                decode_rows(converter, values)?
            }
            _ => Vec::new(),
        };
        let columns = projection
            .iter()
            .map(|column| {
                let in_key = self.key_columns.iter().position(|c| c == column);
                let array = match in_key {
                    Some(at) => key_arrays.get(at),
                    None => self
                        .value_columns
                        .iter()
                        .position(|c| c == column)
                        .and_then(|at| value_arrays.get(at)),
                };
                let empty = || new_empty_array(self.schema.field(*column).data_type());
                array.cloned().unwrap_or_else(empty)
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        let schema = Arc::new(self.schema.project(projection)?);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// The count in a bag's value.
pub fn decode_count(value: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| Error::damaged("a row's count in a table is unreadable"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// A bag's value; `None` for no row.
pub fn encode_count(count: u64) -> Option<Vec<u8>> {
    (count > 0).then(|| count.to_be_bytes().to_vec())
}

fn converter(schema: &SchemaRef, columns: &[usize]) -> Result<RowConverter> {
    let fields = columns
        .iter()
        .map(|&c| SortField::new(schema.field(c).data_type().clone()))
        .collect();
    Ok(RowConverter::new(fields)?)
}

fn decode_rows(converter: &RowConverter, rows: &[&[u8]]) -> Result<Vec<ArrayRef>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let parser = converter.parser();
    Ok(converter.convert_rows(rows.iter().map(|bytes| parser.parse(bytes)))?)
}

//! How a table's rows become keys and values of the state store.
//!
//! With a primary key: key = the key columns, value = the other columns, both as arrow-row bytes.
//! Without one a table is a bag: key = the whole row, value = how many times it is there. So a
//! logged row alone says which entry it changes, and no hidden identity has to be logged.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, SortField};

use super::codec::{Codec, Encoded};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::shape::StoredColumn;
use crate::error::{Error, Result, sqlstate};
use crate::log::stored::{StoredReader, StoredWriter, batch_of};
use crate::state::TableId;

/// The layout of one table.
#[derive(Debug)]
pub struct TableLayout {
    oid: u32,
    name: String,
    schema: SchemaRef,
    version: usize,
    key_columns: Vec<usize>,
    /// What each column is made of.
    places: Vec<Place>,
    /// Absent for a bag.
    key_converter: Option<RowConverter>,
    codec: Codec,
    writer: StoredWriter,
    reader: StoredReader,
    /// The stored column that each column is.
    stored: Vec<usize>,
}

/// Where a column lies.
#[derive(Debug, Clone, Copy)]
enum Place {
    Key(usize),
    /// Position among the codec's columns.
    Coded(usize),
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
        let in_key = |stored: usize| {
            !is_bag
                && key_columns
                    .iter()
                    .any(|k| object.stored_index(*k) == stored)
        };
        let stored = object.stored_columns();
        let coded: Vec<usize> = (0..stored.len()).filter(|at| !in_key(*at)).collect();
        let place = |column: usize| {
            let key = key_columns.iter().position(|k| *k == column);
            match key.filter(|_| !is_bag) {
                Some(at) => Place::Key(at),
                None => {
                    let stored = object.stored_index(column);
                    let at = coded.binary_search(&stored);
                    Place::Coded(at.expect("what is not in the key is coded"))
                }
            }
        };
        let places = (0..schema.fields().len()).map(place).collect();
        let fixed = coded
            .iter()
            .filter(|at| **at < object.original_columns())
            .count();
        let coded: Vec<StoredColumn> = coded.iter().map(|at| stored[*at].clone()).collect();
        Ok(Arc::new(Self {
            oid: object.oid,
            name: object.name.clone(),
            version: object.version(),
            key_converter: match is_bag {
                true => None,
                false => Some(converter(&schema, &key_columns)?),
            },
            codec: Codec::new(&coded, fixed, is_bag)?,
            writer: StoredWriter::new(object),
            reader: StoredReader::new(object)?,
            stored: (0..schema.fields().len())
                .map(|column| object.stored_index(column))
                .collect(),
            schema,
            key_columns,
            places,
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

    /// How often the table's columns had been altered; see [`CatalogObject::version`].
    pub fn version(&self) -> usize {
        self.version
    }

    /// The state table with its rows.
    pub fn table_id(&self) -> TableId {
        TableId(u64::from(self.oid))
    }

    /// Schema of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Names its rows for the log.
    pub fn writer(&self) -> &StoredWriter {
        &self.writer
    }

    /// A column of rows as they were logged at any time.
    pub fn logged_column(&self, rows: &RecordBatch, column: usize) -> Result<ArrayRef> {
        self.reader.column(rows, self.stored[column])
    }

    /// Columns of the primary key; all columns for a bag.
    pub fn key_columns(&self) -> &[usize] {
        &self.key_columns
    }

    /// It has no primary key.
    pub fn is_bag(&self) -> bool {
        self.key_converter.is_none()
    }

    /// Keys of rows in the table's schema.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Encoded> {
        let Some(converter) = &self.key_converter else {
            return self.coded(rows);
        };
        let columns: Vec<ArrayRef> = self
            .key_columns
            .iter()
            .map(|&c| Arc::clone(rows.column(c)))
            .collect();
        Ok(Encoded::Plain(converter.convert_columns(&columns)?))
    }

    /// Values of rows in the table's schema; `None` if all columns are in the key (the value of
    /// a keyed table is then empty; a bag's is its count).
    pub fn values(&self, rows: &RecordBatch) -> Result<Option<Encoded>> {
        if self.is_bag() || self.codec.is_empty() {
            return Ok(None);
        }
        self.coded(rows).map(Some)
    }

    fn coded(&self, rows: &RecordBatch) -> Result<Encoded> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.codec.width()];
        for (place, values) in self.places.iter().zip(rows.columns()) {
            if let Place::Coded(at) = place {
                columns[*at] = Some(Arc::clone(values));
            }
        }
        self.codec.encode(columns, rows.num_rows())
    }

    /// Decodes rows; columns of `projection` only, in its order. A bag's values are not looked at:
    /// repeat its keys.
    pub fn decode(
        &self,
        keys: &[&[u8]],
        values: &[&[u8]],
        projection: &[usize],
    ) -> Result<RecordBatch> {
        let wants = |is_key: bool| {
            let mut places = projection.iter().map(|c| self.places[*c]);
            places.any(|place| matches!(place, Place::Key(_)) == is_key)
        };
        let key_arrays = match &self.key_converter {
            Some(converter) if wants(true) => decode_rows(converter, keys)?,
            _ => Vec::new(),
        };
        let coded = if self.is_bag() { keys } else { values };
        let coded_arrays = match wants(false) {
            true => self.codec.decode(coded)?,
            false => Vec::new(),
        };
        let columns = projection
            .iter()
            .map(|column| {
                let array = match self.places[*column] {
                    Place::Key(at) => key_arrays.get(at),
                    Place::Coded(at) => coded_arrays.get(at),
                };
                let empty = || new_empty_array(self.schema.field(*column).data_type());
                array.cloned().unwrap_or_else(empty)
            })
            .collect();
        let schema = Arc::new(self.schema.project(projection)?);
        batch_of(&schema, columns, keys.len())
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

pub(super) fn decode_rows(converter: &RowConverter, rows: &[&[u8]]) -> Result<Vec<ArrayRef>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let parser = converter.parser();
    Ok(converter.convert_rows(rows.iter().map(|bytes| parser.parse(bytes)))?)
}

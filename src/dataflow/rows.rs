//! Rows as bytes: the one encoding that keys and rows have in state.
//!
//! arrow-row's encoding keeps the order of the columns, is self-delimiting (so a key's bytes
//! followed by a row's bytes can be split again), and equal bytes mean equal rows with NULL equal
//! to NULL. A batch is encoded once; state is compared as bytes and decoded only to be emitted.
//! A row of no columns, as `count(*)` reads it, is the empty byte string.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch, RecordBatchOptions, Scalar,
};
use datafusion::arrow::compute;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::{
    DataType, Field, Float16Type, Float32Type, Float64Type, Schema, SchemaRef,
};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::ScalarValue;

use crate::error::{Error, Result};
use crate::values::float;

/// Encodes and decodes rows of one schema.
#[derive(Debug)]
pub struct RowCodec {
    converter: RowConverter,
    schema: SchemaRef,
}

/// Encoded rows of one batch.
#[derive(Debug)]
pub struct EncodedRows(Option<Rows>);

impl EncodedRows {
    /// Bytes of row `index`.
    pub fn row(&self, index: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |rows| rows.row(index).data())
    }
}

impl RowCodec {
    /// A codec for rows of `schema`; 0A000 for a type whose values have no order.
    pub fn new(schema: SchemaRef) -> Result<Self> {
        let types = schema.fields().iter().map(|f| f.data_type().clone());
        Ok(Self {
            converter: converter(types)?,
            schema,
        })
    }

    /// Schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Encodes the columns of a batch of `schema`.
    pub fn encode(&self, rows: &RecordBatch) -> Result<EncodedRows> {
        encode(&self.converter, rows.columns())
    }

    /// Decodes rows that this codec (or one of an equal schema) encoded.
    pub fn decode<'a>(&self, rows: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<RecordBatch> {
        let count = rows.len();
        if self.schema.fields().is_empty() {
            return rebatch(&self.schema, Vec::new(), count);
        }
        let parser = self.converter.parser();
        let columns = self
            .converter
            .convert_rows(rows.map(|bytes| parser.parse(bytes)))?;
        rebatch(&self.schema, columns, count)
    }
}

/// Encodes keys: values of expressions, compared as SQL's `=` compares them.
#[derive(Debug)]
pub struct KeyCodec {
    converter: RowConverter,
}

impl KeyCodec {
    /// A codec for keys of these types.
    pub fn new(types: impl IntoIterator<Item = DataType>) -> Result<Self> {
        Ok(Self {
            converter: converter(types.into_iter())?,
        })
    }

    /// Encodes key columns. Negative zero becomes zero and every NaN the same one, since they are equal.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<EncodedRows> {
        let columns: Vec<ArrayRef> = columns.iter().map(comparable_floats).collect();
        encode(&self.converter, &columns)
    }
}

fn converter(types: impl Iterator<Item = DataType>) -> Result<RowConverter> {
    let fields: Vec<SortField> = types.map(SortField::new).collect();
    if !RowConverter::supports_fields(&fields) {
        return Err(Error::unsupported(
            "cannot keep a column of this type in the state of a materialized view",
        )
        .hint("Cast the column to a type that can be compared, such as text."));
    }
    Ok(RowConverter::new(fields)?)
}

fn encode(converter: &RowConverter, columns: &[ArrayRef]) -> Result<EncodedRows> {
    if columns.is_empty() {
        return Ok(EncodedRows(None));
    }
    Ok(EncodedRows(Some(converter.convert_columns(columns)?)))
}

/// Negative zero as zero, and every NaN as the same one: they are equal.
pub fn comparable_floats(column: &ArrayRef) -> ArrayRef {
    fn positive<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        add: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        Arc::new(column.as_primitive::<T>().unary::<_, T>(add))
    }
    match column.data_type() {
        // IEEE 754: -0.0 + 0.0 is +0.0, and nothing else changes.
        DataType::Float32 => positive::<Float32Type>(column, |v| float::real(v + 0.0)),
        DataType::Float64 => positive::<Float64Type>(column, |v| float::double(v + 0.0)),
        DataType::Float16 => positive::<Float16Type>(column, |v| {
            if v.to_bits() == 0x8000 {
                Default::default()
            } else {
                v
            }
        }),
        _ => column.clone(),
    }
}

/// A batch of `schema` from columns whose types may differ in form only (a view or dictionary
/// array for plain text); `rows` counts when there are no columns.
pub fn rebatch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(column)
            } else {
                Ok(compute::cast(&column, field.data_type())?)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}

/// The schema with a NULL allowed in every column.
pub fn all_nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<_>>(),
        schema.metadata().clone(),
    ))
}

/// Values of a column that comes from outside, under the declaration that a plan counts on. A NULL
/// where it is NOT NULL is of a row from before, which was changed since; it is taken as some value,
/// the same when it comes as when it goes.
pub fn declared(field: &Field, values: ArrayRef) -> Result<ArrayRef> {
    if field.is_nullable() || values.null_count() == 0 {
        return Ok(values);
    }
    let some = ScalarValue::new_default(values.data_type())?.to_array_of_size(1)?;
    let are_there = compute::is_not_null(&values)?;
    Ok(zip(&are_there, &values, &Scalar::new(some))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float64Array, Int64Array, StringArray};
    use datafusion::arrow::datatypes::{Field, Schema};

    #[test]
    fn rows_come_back_with_nulls_and_keep_order() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
        ]));
        let batch = RecordBatch::try_new(
            schema.clone(),
            vec![
                Arc::new(Int64Array::from(vec![Some(-5), None, Some(7)])),
                Arc::new(StringArray::from(vec![Some(""), Some("x"), None])),
            ],
        )
        .unwrap();
        let codec = RowCodec::new(schema).unwrap();
        let encoded = codec.encode(&batch).unwrap();
        assert!(encoded.row(1) < encoded.row(0) && encoded.row(0) < encoded.row(2));
        let back = codec.decode((0..3).map(|i| encoded.row(i))).unwrap();
        assert_eq!(back, batch);
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let codec = RowCodec::new(Arc::new(Schema::empty())).unwrap();
        let empty: &[u8] = &[];
        let back = codec.decode([empty, empty].into_iter()).unwrap();
        assert_eq!(back.num_rows(), 2);
    }

    #[test]
    fn equal_floats_are_one_key() {
        let codec = KeyCodec::new([DataType::Float64]).unwrap();
        let values = vec![0.0, -0.0, 1.0, f64::NAN, -f64::NAN];
        let column: ArrayRef = Arc::new(Float64Array::from(values));
        let keys = codec.encode(&[column]).unwrap();
        assert_eq!(keys.row(0), keys.row(1));
        assert_ne!(keys.row(0), keys.row(2));
        assert_eq!(keys.row(3), keys.row(4));
    }
}

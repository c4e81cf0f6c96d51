//! Columns of system tables from rows: name, SQL type and values in one line each.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{Field, Schema};

use crate::catalog::history::rows::Milliseconds;
use crate::error::Result;
use crate::types::SqlType;

/// Milliseconds in the tables.
const MILLISECONDS: SqlType = SqlType::Numeric {
    precision: 18,
    scale: 3,
};

/// A table under construction over rows of `T`.
pub(super) struct Columns<'a, T> {
    rows: &'a [T],
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl<'a, T> Columns<'a, T> {
    pub fn of(rows: &'a [T]) -> Self {
        Self {
            rows,
            fields: Vec::new(),
            arrays: Vec::new(),
        }
    }

    pub fn finish(self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let schema = Arc::new(Schema::new(self.fields));
        Ok(RecordBatch::try_new_with_options(
            schema,
            self.arrays,
            &options,
        )?)
    }

    pub fn text<'b, V>(self, name: &str, value: impl Fn(&'a T) -> V) -> Self
    where
        'a: 'b,
        V: Into<Option<&'b str>>,
    {
        let rows = self.rows;
        let array: StringArray = rows.iter().map(|row| value(row).into()).collect();
        self.push(name, &SqlType::Text, Arc::new(array))
    }

    pub fn json(self, name: &str, value: impl Fn(&'a T) -> Option<String>) -> Self {
        let array: StringArray = self.rows.iter().map(value).collect();
        self.push(name, &SqlType::Jsonb, Arc::new(array))
    }

    pub fn bytes(self, name: &str, value: impl Fn(&'a T) -> &'a [u8]) -> Self {
        let array: BinaryArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.push(name, &SqlType::Bytea, Arc::new(array))
    }

    pub fn flag(self, name: &str, value: impl Fn(&'a T) -> bool) -> Self {
        let array: BooleanArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.push(name, &SqlType::Boolean, Arc::new(array))
    }

    pub fn count<V: Into<Option<u64>>>(self, name: &str, value: impl Fn(&'a T) -> V) -> Self {
        let array: Int64Array = self
            .rows
            .iter()
            .map(|row| {
                value(row)
                    .into()
                    .map(|v| i64::try_from(v).unwrap_or(i64::MAX))
            })
            .collect();
        self.push(name, &SqlType::BigInt, Arc::new(array))
    }

    pub fn number(self, name: &str, value: impl Fn(&'a T) -> Option<f64>) -> Self {
        let array: Float64Array = self.rows.iter().map(value).collect();
        self.push(name, &SqlType::Double, Arc::new(array))
    }

    /// Microseconds since the epoch.
    pub fn time<V: Into<Option<i64>>>(self, name: &str, value: impl Fn(&'a T) -> V) -> Self {
        let array: TimestampMicrosecondArray =
            self.rows.iter().map(|row| value(row).into()).collect();
        let array = array.with_timezone("UTC");
        self.push(name, &SqlType::TimestampTz, Arc::new(array))
    }

    pub fn milliseconds(self, name: &str, value: impl Fn(&'a T) -> Milliseconds) -> Self {
        let array: Decimal128Array = self
            .rows
            .iter()
            .map(|row| Some(i128::from(value(row).us)))
            .collect();
        let array = array
            .with_precision_and_scale(18, 3)
            .expect("a 64-bit number of microseconds is kept within 18 digits");
        self.push(name, &MILLISECONDS, Arc::new(array))
    }

    fn push(mut self, name: &str, sql_type: &SqlType, array: ArrayRef) -> Self {
        assert_eq!(array.len(), self.rows.len(), "a value per row");
        self.fields.push(sql_type.to_field(name, true));
        self.arrays.push(array);
        self
    }
}

//! Columns under construction: text and JSON values in, Arrow arrays out.
//!
//! All row formats (JSON, CSV, text) fill the same typed columns, so a value means the same in
//! each. A column can be cut back to a length, which is how a record that turns out bad in its
//! last field leaves no trace while the records before it stay. Written directly over plain
//! vectors: no per-value allocation, no intermediate document.
//!
//! Where a format is silent, text means what PostgreSQL's input functions say. A number in a
//! timestamp column is time since the epoch; see [`EpochUnit`].

use std::sync::Arc;

use datafusion::arrow::array::NullBufferBuilder;
use datafusion::arrow::array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray,
    PrimitiveArray, StringArray, StructArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, FieldRef};

use super::json_text::{JsonText, Token};
use super::values::{self, EpochUnit};
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::values::jsonb::Json;

/// Why a value was refused: the primary line of a dead letter.
pub type Refusal = String;

/// A growing column of one declared type.
pub struct Column {
    field: FieldRef,
    sql_type: SqlType,
    epoch: EpochUnit,
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    Boolean(Vec<bool>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Bytes(Vec<i32>, Vec<u8>),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>),
    Interval(Vec<IntervalMonthDayNano>),
    Uuid(Vec<u8>),
    List(Vec<i32>, Box<Column>),
    Struct(Vec<Column>),
}

impl Column {
    /// An empty column for `field`. Types that SQL cannot declare are refused.
    pub fn new(field: &FieldRef, epoch: EpochUnit) -> Result<Self> {
        let unsupported = || {
            Error::unsupported(format!(
                "column \"{}\" has a type that this format cannot read",
                field.name()
            ))
        };
        let sql_type = SqlType::from_field(field).ok_or_else(unsupported)?;
        let values = match (&sql_type, field.data_type()) {
            (SqlType::Boolean, DataType::Boolean) => Values::Boolean(vec![]),
            (SqlType::SmallInt, DataType::Int16) => Values::Int16(vec![]),
            (SqlType::Integer, DataType::Int32) => Values::Int32(vec![]),
            (SqlType::BigInt, DataType::Int64) => Values::Int64(vec![]),
            (SqlType::Real, DataType::Float32) => Values::Float32(vec![]),
            (SqlType::Double, DataType::Float64) => Values::Float64(vec![]),
            (SqlType::Numeric { .. }, DataType::Decimal128(p, s)) => {
                Values::Decimal(vec![], *p, *s)
            }
            (SqlType::Text | SqlType::Json | SqlType::Jsonb, DataType::Utf8)
            | (SqlType::Bytea, DataType::Binary) => Values::Bytes(vec![0], vec![]),
            (SqlType::Date, DataType::Date32) => Values::Date(vec![]),
            (SqlType::Time, DataType::Time64(_)) => Values::Time(vec![]),
            (SqlType::Timestamp | SqlType::TimestampTz, DataType::Timestamp(_, _)) => {
                Values::Timestamp(vec![])
            }
            (SqlType::Interval, DataType::Interval(_)) => Values::Interval(vec![]),
            (SqlType::Uuid, DataType::FixedSizeBinary(16)) => Values::Uuid(vec![]),
            (SqlType::Array(_), DataType::List(item)) => {
                Values::List(vec![0], Box::new(Self::new(item, epoch)?))
            }
            (SqlType::Struct(_), DataType::Struct(fields)) => Values::Struct(
                fields
                    .iter()
                    .map(|f| Self::new(f, epoch))
                    .collect::<Result<_>>()?,
            ),
            _ => return Err(unsupported()),
        };
        Ok(Self {
            field: field.clone(),
            sql_type,
            epoch,
            nulls: NullBufferBuilder::new(0),
            values,
        })
    }

    /// The column's declared field.
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Values so far.
    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// No values yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value `index` is NULL.
    pub fn is_null(&self, index: usize) -> bool {
        !self.nulls.is_valid(index)
    }

    /// Cuts the column back to `length` values, whatever a refused value left behind.
    pub fn truncate(&mut self, length: usize) {
        self.nulls.truncate(length);
        match &mut self.values {
            Values::Boolean(v) => v.truncate(length),
            Values::Int16(v) => v.truncate(length),
            Values::Int32(v) | Values::Date(v) => v.truncate(length),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v) => v.truncate(length),
            Values::Float32(v) => v.truncate(length),
            Values::Float64(v) => v.truncate(length),
            Values::Decimal(v, _, _) => v.truncate(length),
            Values::Interval(v) => v.truncate(length),
            Values::Uuid(v) => v.truncate(length * 16),
            Values::Bytes(offsets, bytes) => {
                offsets.truncate(length + 1);
                bytes.truncate(last_offset(offsets));
            }
            Values::List(offsets, item) => {
                offsets.truncate(length + 1);
                item.truncate(last_offset(offsets));
            }
            Values::Struct(fields) => fields.iter_mut().for_each(|f| f.truncate(length)),
        }
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        self.nulls.append_null();
        match &mut self.values {
            Values::Boolean(v) => v.push(false),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, _, _) => v.push(0),
            Values::Interval(v) => v.push(IntervalMonthDayNano::ZERO),
            Values::Uuid(v) => v.extend_from_slice(&[0; 16]),
            Values::Bytes(offsets, _) | Values::List(offsets, _) => {
                offsets.push(offsets.last().copied().unwrap_or(0));
            }
            Values::Struct(fields) => fields.iter_mut().for_each(Self::push_null),
        }
    }

    /// Appends a value written as text, as a CSV field or a JSON string.
    pub fn push_text(&mut self, text: &str) -> Result<(), Refusal> {
        let refuse = || values::refusal(&self.sql_type, text);
        match &mut self.values {
            Values::Boolean(v) => v.push(values::boolean(text).ok_or_else(refuse)?),
            Values::Int16(v) => v.push(values::integer(text).ok_or_else(refuse)?),
            Values::Int32(v) => v.push(values::integer(text).ok_or_else(refuse)?),
            Values::Int64(v) => v.push(values::integer(text).ok_or_else(refuse)?),
            Values::Float32(v) => v.push(text.trim().parse().map_err(|_| refuse())?),
            Values::Float64(v) => v.push(text.trim().parse().map_err(|_| refuse())?),
            Values::Decimal(v, precision, scale) => {
                v.push(values::decimal(text, *precision, *scale).ok_or_else(refuse)?);
            }
            Values::Date(v) => v.push(values::date(text).ok_or_else(refuse)?),
            Values::Time(v) => v.push(values::time_us(text).ok_or_else(refuse)?),
            Values::Timestamp(v) => {
                v.push(values::timestamp_us(text, self.epoch).ok_or_else(refuse)?);
            }
            Values::Interval(v) => v.push(values::interval(text).ok_or_else(refuse)?),
            Values::Uuid(v) => v.extend_from_slice(
                uuid::Uuid::parse_str(text.trim())
                    .map_err(|_| refuse())?
                    .as_bytes(),
            ),
            Values::Bytes(offsets, bytes) => {
                match &self.sql_type {
                    SqlType::Bytea => values::bytea(text, bytes).ok_or_else(refuse)?,
                    SqlType::Json => {
                        JsonText::new(text).whole_value().map_err(|_| refuse())?;
                        bytes.extend_from_slice(text.as_bytes());
                    }
                    SqlType::Jsonb => {
                        let value = Json::parse_sorted(text).map_err(|_| refuse())?;
                        bytes.extend_from_slice(value.to_text().as_bytes());
                    }
                    _ => bytes.extend_from_slice(text.as_bytes()),
                }
                offsets.push(offset_of(bytes.len())?);
            }
            Values::List(..) | Values::Struct(_) => {
                let mut json = JsonText::new(text);
                self.push_json(&mut json)?;
                return json.end();
            }
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// Appends raw bytes to a `bytea` column, or UTF-8 bytes to any other.
    pub fn push_bytes(&mut self, raw: &[u8]) -> Result<(), Refusal> {
        if let (SqlType::Bytea, Values::Bytes(offsets, bytes)) = (&self.sql_type, &mut self.values)
        {
            bytes.extend_from_slice(raw);
            offsets.push(offset_of(bytes.len())?);
            self.nulls.append_non_null();
            return Ok(());
        }
        self.push_text(values::utf8(raw)?)
    }

    /// Appends the JSON value that the cursor stands at, and moves the cursor behind it.
    pub fn push_json(&mut self, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        if let Values::Bytes(offsets, bytes) = &mut self.values
            && matches!(self.sql_type, SqlType::Json | SqlType::Jsonb)
            && json.peek()? != Token::Null
        {
            let raw = json.raw_value()?;
            if self.sql_type == SqlType::Jsonb {
                // Equal values are one text, as everywhere.
                return self.push_text(raw);
            }
            bytes.extend_from_slice(raw.as_bytes());
            offsets.push(offset_of(bytes.len())?);
            self.nulls.append_non_null();
            return Ok(());
        }
        match json.peek()? {
            Token::Null => {
                json.literal("null")?;
                self.push_null();
                Ok(())
            }
            Token::String => self.push_json_string(json),
            Token::Number => {
                let number = json.number()?;
                self.push_number(number)
            }
            Token::True => {
                json.literal("true")?;
                self.push_boolean(true)
            }
            Token::False => {
                json.literal("false")?;
                self.push_boolean(false)
            }
            Token::Array => self.push_json_array(json),
            Token::Object => self.push_json_object(json),
        }
    }

    fn push_json_string(&mut self, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        if matches!(self.values, Values::List(..) | Values::Struct(_)) {
            let raw = json.raw_value()?;
            return Err(values::refusal(&self.sql_type, raw));
        }
        // The common case first: text without escapes is copied straight from the input.
        let text = json.string()?;
        if let (SqlType::Text, Values::Bytes(offsets, bytes)) = (&self.sql_type, &mut self.values) {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(offset_of(bytes.len())?);
            self.nulls.append_non_null();
            return Ok(());
        }
        self.push_text(&text)
    }

    fn push_number(&mut self, number: &str) -> Result<(), Refusal> {
        let refuse = || values::refusal(&self.sql_type, number);
        match &mut self.values {
            Values::Int16(v) => v.push(values::integer(number).ok_or_else(refuse)?),
            Values::Int32(v) => v.push(values::integer(number).ok_or_else(refuse)?),
            Values::Int64(v) => v.push(values::integer(number).ok_or_else(refuse)?),
            Values::Float32(v) => v.push(number.parse().map_err(|_| refuse())?),
            Values::Float64(v) => v.push(number.parse().map_err(|_| refuse())?),
            Values::Decimal(v, precision, scale) => {
                v.push(values::decimal(number, *precision, *scale).ok_or_else(refuse)?);
            }
            Values::Timestamp(v) => {
                v.push(values::epoch_us(number, self.epoch).ok_or_else(refuse)?);
            }
            // As Debezium writes dates: days since the epoch.
            Values::Date(v) => v.push(values::integer(number).ok_or_else(refuse)?),
            Values::Bytes(offsets, bytes) if self.sql_type == SqlType::Text => {
                bytes.extend_from_slice(number.as_bytes());
                offsets.push(offset_of(bytes.len())?);
            }
            _ => return Err(refuse()),
        }
        self.nulls.append_non_null();
        Ok(())
    }

    fn push_boolean(&mut self, value: bool) -> Result<(), Refusal> {
        let word = if value { "true" } else { "false" };
        match &mut self.values {
            Values::Boolean(v) => v.push(value),
            Values::Bytes(offsets, bytes) if self.sql_type == SqlType::Text => {
                bytes.extend_from_slice(word.as_bytes());
                offsets.push(offset_of(bytes.len())?);
            }
            _ => return Err(values::refusal(&self.sql_type, word)),
        }
        self.nulls.append_non_null();
        Ok(())
    }

    fn push_json_array(&mut self, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        let Values::List(offsets, item) = &mut self.values else {
            return self.push_raw_json(json);
        };
        json.begin_array()?;
        while json.next_item()? {
            item.push_json(json)?;
        }
        offsets.push(offset_of(item.len())?);
        self.nulls.append_non_null();
        Ok(())
    }

    fn push_json_object(&mut self, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        let length = self.len();
        let Values::Struct(fields) = &mut self.values else {
            return self.push_raw_json(json);
        };
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match fields.iter_mut().find(|f| f.field.name() == key.as_ref()) {
                None => json.skip_value()?,
                Some(field) => {
                    // Of a repeated key the last value counts.
                    field.truncate(length);
                    field.push_json(json)?;
                }
            }
        }
        for field in fields.iter_mut().filter(|f| f.len() == length) {
            field.push_null();
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// A JSON array or object in a text column is kept as its text; elsewhere it is refused.
    fn push_raw_json(&mut self, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        let raw = json.raw_value()?;
        if self.sql_type != SqlType::Text {
            return Err(values::refusal(&self.sql_type, raw));
        }
        self.push_text(raw)
    }

    /// Takes all values out as an array; the column is empty again.
    pub fn finish(&mut self) -> ArrayRef {
        let length = self.len();
        let nulls = self.nulls.finish();
        match &mut self.values {
            Values::Boolean(v) => {
                let bits = BooleanBuffer::from(std::mem::take(v));
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Values::Int16(v) => primitive::<Int16Type>(v, nulls),
            Values::Int32(v) => primitive::<Int32Type>(v, nulls),
            Values::Int64(v) => primitive::<Int64Type>(v, nulls),
            Values::Float32(v) => primitive::<Float32Type>(v, nulls),
            Values::Float64(v) => primitive::<Float64Type>(v, nulls),
            Values::Date(v) => primitive::<Date32Type>(v, nulls),
            Values::Time(v) => primitive::<Time64MicrosecondType>(v, nulls),
            Values::Interval(v) => primitive::<IntervalMonthDayNanoType>(v, nulls),
            Values::Decimal(v, _, _) => Arc::new(
                PrimitiveArray::<Decimal128Type>::new(take(v), nulls)
                    .with_data_type(self.field.data_type().clone()),
            ),
            Values::Timestamp(v) => Arc::new(
                PrimitiveArray::<TimestampMicrosecondType>::new(take(v), nulls)
                    .with_data_type(self.field.data_type().clone()),
            ),
            Values::Uuid(v) => Arc::new(FixedSizeBinaryArray::new(
                16,
                Buffer::from_vec(std::mem::take(v)),
                nulls,
            )),
            Values::Bytes(offsets, bytes) => {
                let offsets = take_offsets(offsets);
                let bytes = Buffer::from_vec(take_bytes(bytes));
                if self.sql_type == SqlType::Bytea {
                    Arc::new(BinaryArray::new(offsets, bytes, nulls))
                } else {
                    // SAFETY: every path appends whole `&str` values, and a cut goes back to an
                    // offset between values, so each value is valid UTF-8 within the buffer.
                    Arc::new(unsafe { StringArray::new_unchecked(offsets, bytes, nulls) })
                }
            }
            Values::List(offsets, item) => Arc::new(ListArray::new(
                item.field.clone(),
                take_offsets(offsets),
                item.finish(),
                nulls,
            )),
            Values::Struct(fields) => {
                let DataType::Struct(declared) = self.field.data_type() else {
                    unreachable!("a struct column has a struct type")
                };
                let arrays = fields.iter_mut().map(Self::finish).collect();
                Arc::new(
                    StructArray::try_new_with_length(declared.clone(), arrays, nulls, length)
                        .expect("fields are nullable and of one length"),
                )
            }
        }
    }
}

fn last_offset(offsets: &[i32]) -> usize {
    offsets.last().copied().unwrap_or(0) as usize
}

/// An offset into a column's bytes; a chunk is cut long before 2 GiB, but one record can be larger.
fn offset_of(length: usize) -> Result<i32, Refusal> {
    i32::try_from(length).map_err(|_| "record is too large".to_owned())
}

fn take<T: datafusion::arrow::datatypes::ArrowNativeType>(values: &mut Vec<T>) -> ScalarBuffer<T> {
    let next = Vec::with_capacity(values.len());
    ScalarBuffer::from(std::mem::replace(values, next))
}

fn take_bytes(bytes: &mut Vec<u8>) -> Vec<u8> {
    let next = Vec::with_capacity(bytes.len());
    std::mem::replace(bytes, next)
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut next = Vec::with_capacity(offsets.len());
    next.push(0);
    // Offsets only ever grow within a column, from zero.
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, next)))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(take(values), nulls))
}

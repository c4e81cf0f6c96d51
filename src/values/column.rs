//! One column of a batch, ready to be written row by row.
//!
//! [`Column::new`] casts the array to the Arrow type its [`WireType`] holds values as (so that
//! dictionary, view, large and unsigned forms need no code of their own) and downcasts it once.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Decimal256Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, MapArray, StringArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, UnionArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use std::fmt::Write;
use std::sync::Arc;

use super::OutputSettings;
use super::datetime::{
    PG_EPOCH_DAYS, PG_EPOCH_US, write_date, write_time, write_timestamp, write_timestamptz,
};
use super::float::{write_double, write_real};
use super::interval::Interval;
use super::json::{write_json, write_object, write_string};
use super::list::quote_element;
use super::numeric::Decimal;
use super::types::{Kind, WireType};
use crate::error::{Error, Result, sqlstate};

/// A column by the way its values are written.
#[allow(missing_docs)]
pub(crate) enum Column {
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    Oid(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Decimal128(Decimal128Array, i32),
    Decimal256(Decimal256Array, i32),
    Text(StringArray),
    Json(StringArray),
    Jsonb(StringArray),
    Bytea(BinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampTz(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    Uuid(FixedSizeBinaryArray),
    List {
        values: ListArray,
        item: Box<Column>,
        item_type: Box<WireType>,
        /// int2vector and oidvector
        vector: bool,
    },
    Struct {
        values: StructArray,
        members: Vec<(String, Column)>,
    },
    Map {
        values: MapArray,
        keys: Box<Column>,
        items: Box<Column>,
    },
    Union(UnionArray),
}

impl Column {
    /// Prepares an array.
    pub fn new(array: &ArrayRef, wire_type: &WireType) -> Result<Self> {
        let array = match array.data_type() == &wire_type.held_as {
            true => array.clone(),
            false => held(array, wire_type)?,
        };
        Ok(match &wire_type.kind {
            Kind::Bool => Self::Bool(array.as_boolean().clone()),
            Kind::Int2 => Self::Int2(array.as_primitive::<Int16Type>().clone()),
            Kind::Int4 => Self::Int4(array.as_primitive::<Int32Type>().clone()),
            Kind::Int8 => Self::Int8(array.as_primitive::<Int64Type>().clone()),
            Kind::Oid => Self::Oid(array.as_primitive::<Int64Type>().clone()),
            Kind::Float4 => Self::Float4(array.as_primitive::<Float32Type>().clone()),
            Kind::Float8 => Self::Float8(array.as_primitive::<Float64Type>().clone()),
            Kind::Numeric => match wire_type.held_as {
                DataType::Decimal256(_, scale) => {
                    Self::Decimal256(array.as_primitive::<Decimal256Type>().clone(), scale.into())
                }
                DataType::Decimal128(_, scale) => {
                    Self::Decimal128(array.as_primitive::<Decimal128Type>().clone(), scale.into())
                }
                _ => return Err(Error::internal("a numeric column holds no decimals")),
            },
            Kind::Text if wire_type.oid == 114 => Self::Json(array.as_string::<i32>().clone()),
            Kind::Jsonb => Self::Jsonb(array.as_string::<i32>().clone()),
            Kind::Text => Self::Text(array.as_string::<i32>().clone()),
            Kind::Bytea => Self::Bytea(array.as_binary::<i32>().clone()),
            Kind::Date => Self::Date(array.as_primitive::<Date32Type>().clone()),
            Kind::Time => Self::Time(array.as_primitive::<Time64MicrosecondType>().clone()),
            Kind::Timestamp => {
                Self::Timestamp(array.as_primitive::<TimestampMicrosecondType>().clone())
            }
            Kind::TimestampTz => {
                Self::TimestampTz(array.as_primitive::<TimestampMicrosecondType>().clone())
            }
            Kind::Interval => {
                Self::Interval(array.as_primitive::<IntervalMonthDayNanoType>().clone())
            }
            Kind::Uuid => Self::Uuid(array.as_fixed_size_binary().clone()),
            Kind::Array(item_type) | Kind::Vector(item_type) => {
                let values = array.as_list::<i32>().clone();
                Self::List {
                    item: Box::new(Self::new(values.values(), item_type)?),
                    values,
                    item_type: item_type.clone(),
                    vector: matches!(wire_type.kind, Kind::Vector(_)),
                }
            }
            Kind::Struct(types) => {
                let values = array.as_struct().clone();
                let members = types
                    .iter()
                    .zip(values.columns())
                    .map(|((name, t), column)| Ok((name.clone(), Self::new(column, t)?)))
                    .collect::<Result<Vec<_>>>()?;
                Self::Struct { values, members }
            }
            Kind::Map(key_type, value_type) => {
                let values = array.as_map().clone();
                Self::Map {
                    keys: Box::new(Self::new(values.keys(), key_type)?),
                    items: Box::new(Self::new(values.values(), value_type)?),
                    values,
                }
            }
            Kind::JsonUnion => Self::Union(
                array
                    .as_any()
                    .downcast_ref::<UnionArray>()
                    .ok_or_else(|| Error::internal("a union column holds no union"))?
                    .clone(),
            ),
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Bool(a) => a,
            Self::Int2(a) => a,
            Self::Int4(a) => a,
            Self::Int8(a) | Self::Oid(a) => a,
            Self::Float4(a) => a,
            Self::Float8(a) => a,
            Self::Decimal128(a, _) => a,
            Self::Decimal256(a, _) => a,
            Self::Text(a) | Self::Json(a) | Self::Jsonb(a) => a,
            Self::Bytea(a) => a,
            Self::Date(a) => a,
            Self::Time(a) => a,
            Self::Timestamp(a) | Self::TimestampTz(a) => a,
            Self::Interval(a) => a,
            Self::Uuid(a) => a,
            Self::List { values, .. } => values,
            Self::Struct { values, .. } => values,
            Self::Map { values, .. } => values,
            Self::Union(a) => a,
        }
    }

    /// True: NULL.
    pub fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Union(union) => union.value(row).is_null(0),
            column => column.array().is_null(row),
        }
    }

    /// Appends a value's text; not for NULL.
    pub fn write_text(
        &self,
        row: usize,
        settings: &OutputSettings,
        out: &mut BytesMut,
    ) -> Result<()> {
        match self {
            Self::Bool(a) => out.put_u8(if a.value(row) { b't' } else { b'f' }),
            Self::Int2(a) => display(a.value(row), out),
            Self::Int4(a) => display(a.value(row), out),
            Self::Int8(a) | Self::Oid(a) => display(a.value(row), out),
            Self::Float4(a) => write_real(a.value(row), out),
            Self::Float8(a) => write_double(a.value(row), out),
            Self::Decimal128(a, scale) => {
                Decimal::new(&a.value(row).to_string(), *scale).write_text(out);
            }
            Self::Decimal256(a, scale) => {
                Decimal::new(&a.value(row).to_string(), *scale).write_text(out);
            }
            Self::Text(a) | Self::Json(a) | Self::Jsonb(a) => {
                out.put_slice(a.value(row).as_bytes())
            }
            Self::Bytea(a) => write_hex(a.value(row), out),
            Self::Date(a) => write_date(a.value(row).into(), out),
            Self::Time(a) => write_time(a.value(row), out),
            Self::Timestamp(a) => write_timestamp(a.value(row), out),
            Self::TimestampTz(a) => write_timestamptz(a.value(row), settings.time_zone, out),
            Self::Interval(a) => interval(a, row).write_text(out),
            Self::Uuid(a) => match uuid::Uuid::from_slice(a.value(row)) {
                Ok(id) => display(id.hyphenated(), out),
                Err(_) => write_hex(a.value(row), out),
            },
            Self::List {
                values,
                item,
                vector,
                ..
            } => {
                let offsets = values.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                return match vector {
                    true => write_vector(item, range, settings, out),
                    false => write_list(item, range, settings, out),
                };
            }
            Self::Struct { members, .. } => {
                let members = members.iter().map(|(name, c)| (name.as_bytes(), c, row));
                return write_object(members, settings, out);
            }
            Self::Map {
                values,
                keys,
                items,
            } => return write_map(values, keys, items, row, settings, out),
            Self::Union(union) => return write_union(union, row, settings, out),
        }
        Ok(())
    }

    /// Appends a value's binary form; not for NULL.
    pub fn write_binary(
        &self,
        row: usize,
        settings: &OutputSettings,
        out: &mut BytesMut,
    ) -> Result<()> {
        match self {
            Self::Bool(a) => out.put_u8(a.value(row).into()),
            Self::Int2(a) => out.put_i16(a.value(row)),
            Self::Int4(a) => out.put_i32(a.value(row)),
            Self::Int8(a) => out.put_i64(a.value(row)),
            Self::Oid(a) => out.put_u32(a.value(row) as u32),
            Self::Float4(a) => out.put_f32(a.value(row)),
            Self::Float8(a) => out.put_f64(a.value(row)),
            Self::Decimal128(a, scale) => {
                Decimal::new(&a.value(row).to_string(), *scale).write_binary(out);
            }
            Self::Decimal256(a, scale) => {
                Decimal::new(&a.value(row).to_string(), *scale).write_binary(out);
            }
            Self::Text(a) => out.put_slice(a.value(row).as_bytes()),
            Self::Bytea(a) => out.put_slice(a.value(row)),
            Self::Date(a) => out.put_i32((i64::from(a.value(row)) - PG_EPOCH_DAYS) as i32),
            Self::Time(a) => out.put_i64(a.value(row)),
            Self::Timestamp(a) | Self::TimestampTz(a) => {
                let us = a.value(row).checked_sub(PG_EPOCH_US);
                out.put_i64(us.ok_or_else(|| {
                    Error::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
                })?);
            }
            Self::Interval(a) => {
                let interval = interval(a, row);
                out.put_i64(interval.us);
                out.put_i32(interval.days);
                out.put_i32(interval.months);
            }
            Self::Uuid(a) => out.put_slice(a.value(row)),
            Self::List {
                values,
                item,
                item_type,
                vector,
            } => {
                let offsets = values.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                return write_array(item, item_type, range, *vector, settings, out);
            }
            Self::Json(_) | Self::Union(_) => return self.write_text(row, settings, out),
            // The version of jsonb's binary form.
            Self::Jsonb(_) | Self::Struct { .. } | Self::Map { .. } => {
                out.put_u8(1);
                return self.write_text(row, settings, out);
            }
        }
        Ok(())
    }
}

/// Casts to the type that values are held as.
fn held(array: &ArrayRef, wire_type: &WireType) -> Result<ArrayRef> {
    match (&wire_type.kind, array.data_type()) {
        // The members' own types decide; they are cast one by one.
        (Kind::Struct(_) | Kind::Map(..) | Kind::JsonUnion, _) => Ok(array.clone()),
        (Kind::Uuid, DataType::FixedSizeBinary(16)) => Ok(array.clone()),
        // A cast of the list would look into item types that only differ by name.
        (Kind::Array(_) | Kind::Vector(_), DataType::List(_)) => Ok(array.clone()),
        (Kind::Array(item) | Kind::Vector(item), _) if matches!(item.kind, Kind::Struct(_)) => {
            let (DataType::LargeList(field) | DataType::FixedSizeList(field, _)) =
                array.data_type()
            else {
                return Ok(cast(array, &wire_type.held_as)?);
            };
            Ok(cast(array, &DataType::List(Arc::clone(field)))?)
        }
        (Kind::TimestampTz | Kind::Timestamp, DataType::Timestamp(unit, _))
            if matches!(
                wire_type.held_as,
                DataType::Timestamp(ref held_unit, _) if held_unit == unit
            ) =>
        {
            Ok(array.clone())
        }
        _ => Ok(cast(array, &wire_type.held_as)?),
    }
}

fn display(value: impl std::fmt::Display, out: &mut BytesMut) {
    write!(out, "{value}").expect("the buffer grows");
}

fn write_hex(bytes: &[u8], out: &mut BytesMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + bytes.len() * 2);
    out.put_slice(b"\\x");
    for byte in bytes {
        out.put_u8(DIGITS[usize::from(byte >> 4)]);
        out.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

fn interval(array: &IntervalMonthDayNanoArray, row: usize) -> Interval {
    let value = array.value(row);
    Interval {
        months: value.months,
        days: value.days,
        us: value.nanoseconds / 1_000,
    }
}

fn write_vector(
    item: &Column,
    range: std::ops::Range<usize>,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    for (n, at) in range.enumerate() {
        if n > 0 {
            out.put_u8(b' ');
        }
        item.write_text(at, settings, out)?;
    }
    Ok(())
}

fn write_list(
    item: &Column,
    range: std::ops::Range<usize>,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    let nested = matches!(item, Column::List { vector: false, .. });
    out.put_u8(b'{');
    for (n, at) in range.enumerate() {
        if n > 0 {
            out.put_u8(b',');
        }
        if item.is_null(at) {
            out.put_slice(b"NULL");
            continue;
        }
        let start = out.len();
        item.write_text(at, settings, out)?;
        if !nested {
            quote_element(out, start);
        }
    }
    out.put_u8(b'}');
    Ok(())
}

fn write_map(
    values: &MapArray,
    keys: &Column,
    items: &Column,
    row: usize,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    let offsets = values.value_offsets();
    out.put_u8(b'{');
    for (n, at) in (offsets[row]..offsets[row + 1]).enumerate() {
        if n > 0 {
            out.put_slice(settings.spacing.comma());
        }
        let mut key = BytesMut::new();
        keys.write_text(at as usize, settings, &mut key)?;
        write_string(&key, out);
        out.put_slice(settings.spacing.colon());
        write_json(items, at as usize, settings, out)?;
    }
    out.put_u8(b'}');
    Ok(())
}

/// A JSON value held as a union: objects and arrays are JSON text already, by their members' names.
fn write_union(
    union: &UnionArray,
    row: usize,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    let type_id = union.type_id(row);
    let DataType::Union(fields, _) = union.data_type() else {
        return Err(Error::internal("a union column holds no union"));
    };
    let field = fields
        .iter()
        .find(|(id, _)| *id == type_id)
        .map(|(_, field)| field)
        .ok_or_else(|| Error::internal("a union holds a type it does not list"))?;
    let value = union.value(row);
    let column = Column::new(&value, &WireType::of_field(field)?)?;
    match field.name().as_str() {
        "object" | "array" if !column.is_null(0) => column.write_text(0, settings, out),
        _ => write_json(&column, 0, settings, out),
    }
}

/// Dimensions of a nested array; 2202E when its rows differ in length.
fn dimensions(item: &Column, range: std::ops::Range<usize>, found: &mut Vec<usize>) -> Result<()> {
    found.push(range.len());
    let Column::List {
        values,
        item: inner,
        vector: false,
        ..
    } = item
    else {
        return Ok(());
    };
    let offsets = values.value_offsets();
    let mut common: Option<Vec<usize>> = None;
    for at in range {
        let mut inner_found = Vec::new();
        if !item.is_null(at) {
            let inner_range = offsets[at] as usize..offsets[at + 1] as usize;
            dimensions(inner, inner_range, &mut inner_found)?;
        }
        match &common {
            Some(expected) if *expected != inner_found => {
                return Err(Error::new(
                    "2202E",
                    "multidimensional arrays must have sub-arrays of equal lengths",
                )
                .hint("Ask for the column as text."));
            }
            _ => common = Some(inner_found),
        }
    }
    found.extend(common.unwrap_or_default());
    Ok(())
}

/// Array header and elements (`array_send`): dimensions, null flag, element OID, per dimension
/// its length and lower bound, then each element with its length.
fn write_array(
    item: &Column,
    item_type: &WireType,
    range: std::ops::Range<usize>,
    vector: bool,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    let mut element_type = item_type;
    while let Kind::Array(inner) = &element_type.kind {
        element_type = inner;
    }
    let mut sizes = Vec::new();
    dimensions(item, range.clone(), &mut sizes)?;
    if sizes.contains(&0) {
        sizes.clear();
    }
    out.put_i32(sizes.len() as i32);
    let null_flag = out.len();
    out.put_i32(0);
    out.put_u32(element_type.oid);
    for size in &sizes {
        out.put_i32(*size as i32);
        out.put_i32(if vector { 0 } else { 1 });
    }
    if !sizes.is_empty() && write_elements(item, item_type, range, settings, out)? {
        out[null_flag..null_flag + 4].copy_from_slice(&1i32.to_be_bytes());
    }
    Ok(())
}

/// True: one of them is NULL.
fn write_elements(
    item: &Column,
    item_type: &WireType,
    range: std::ops::Range<usize>,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<bool> {
    let mut has_null = false;
    for at in range {
        if let (Column::List { values, item, .. }, Kind::Array(inner_type)) =
            (item, &item_type.kind)
        {
            let offsets = values.value_offsets();
            let inner = offsets[at] as usize..offsets[at + 1] as usize;
            has_null |= write_elements(item, inner_type, inner, settings, out)?;
            continue;
        }
        if item.is_null(at) {
            has_null = true;
            out.put_i32(-1);
            continue;
        }
        let start = out.len();
        out.put_i32(0);
        item.write_binary(at, settings, out)?;
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(has_null)
}

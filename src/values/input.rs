//! The input functions of all types: text and binary values into Arrow columns.
//!
//! [`ColumnBuilder`] takes a value in either form with PostgreSQL's rules and errors (22P02 bad
//! text, 22P03 bad binary, 22003 out of range, 22007/22008 dates). A parameter is a column of one
//! row; COPY fills one builder per column.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, IntervalMonthDayNanoBuilder, ListArray, StringBuilder, StructArray,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano};

use super::OutputSettings;
use super::datetime::{self, DAY_US, PG_EPOCH_DAYS, PG_EPOCH_US};
use super::float::{self, parse_double, parse_real};
use super::interval::Interval;
use super::jsonb::{self, Json};
use super::list::{Element, parse_elements};
use super::numeric;
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// A column being filled.
pub(crate) struct ColumnBuilder {
    sql_type: SqlType,
    settings: OutputSettings,
    values: Values,
}

enum Values {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Numeric(Decimal128Builder),
    Text(StringBuilder),
    Json(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Array {
        items: Box<ColumnBuilder>,
        lengths: Vec<usize>,
        valid: Vec<bool>,
    },
    Struct {
        members: Vec<(String, ColumnBuilder)>,
        valid: Vec<bool>,
    },
}

impl ColumnBuilder {
    /// An empty column; the settings' time zone is that of `timestamptz` texts without one.
    pub fn new(sql_type: &SqlType, settings: &OutputSettings) -> Self {
        let values = match sql_type {
            SqlType::Boolean => Values::Boolean(BooleanBuilder::new()),
            SqlType::SmallInt => Values::SmallInt(Int16Builder::new()),
            SqlType::Integer => Values::Integer(Int32Builder::new()),
            SqlType::BigInt => Values::BigInt(Int64Builder::new()),
            SqlType::Real => Values::Real(Float32Builder::new()),
            SqlType::Double => Values::Double(Float64Builder::new()),
            SqlType::Numeric { .. } => {
                Values::Numeric(Decimal128Builder::new().with_data_type(sql_type.to_arrow()))
            }
            SqlType::Text => Values::Text(StringBuilder::new()),
            SqlType::Json | SqlType::Jsonb => Values::Json(StringBuilder::new()),
            SqlType::Bytea => Values::Bytea(BinaryBuilder::new()),
            SqlType::Date => Values::Date(Date32Builder::new()),
            SqlType::Time => Values::Time(Time64MicrosecondBuilder::new()),
            SqlType::Timestamp => Values::Timestamp(TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => Values::TimestampTz(
                TimestampMicrosecondBuilder::new().with_data_type(sql_type.to_arrow()),
            ),
            SqlType::Interval => Values::Interval(IntervalMonthDayNanoBuilder::new()),
            SqlType::Uuid => Values::Uuid(FixedSizeBinaryBuilder::new(16)),
            SqlType::Array(item) => Values::Array {
                items: Box::new(Self::new(item, settings)),
                lengths: Vec::new(),
                valid: Vec::new(),
            },
            SqlType::Struct(members) => Values::Struct {
                members: members
                    .iter()
                    .map(|(name, t)| (name.clone(), Self::new(t, settings)))
                    .collect(),
                valid: Vec::new(),
            },
        };
        Self {
            sql_type: sql_type.clone(),
            settings: settings.clone(),
            values,
        }
    }

    /// Appends NULL.
    pub fn append_null(&mut self) {
        match &mut self.values {
            Values::Boolean(b) => b.append_null(),
            Values::SmallInt(b) => b.append_null(),
            Values::Integer(b) => b.append_null(),
            Values::BigInt(b) => b.append_null(),
            Values::Real(b) => b.append_null(),
            Values::Double(b) => b.append_null(),
            Values::Numeric(b) => b.append_null(),
            Values::Text(b) | Values::Json(b) => b.append_null(),
            Values::Bytea(b) => b.append_null(),
            Values::Date(b) => b.append_null(),
            Values::Time(b) => b.append_null(),
            Values::Timestamp(b) | Values::TimestampTz(b) => b.append_null(),
            Values::Interval(b) => b.append_null(),
            Values::Uuid(b) => b.append_null(),
            Values::Array { lengths, valid, .. } => {
                lengths.push(0);
                valid.push(false);
            }
            Values::Struct { members, valid } => {
                members
                    .iter_mut()
                    .for_each(|(_, member)| member.append_null());
                valid.push(false);
            }
        }
    }

    /// Appends a value from its text.
    pub fn append_text(&mut self, text: &str) -> Result<()> {
        match &mut self.values {
            Values::Boolean(b) => b.append_value(parse_boolean(text)?),
            Values::SmallInt(b) => b.append_value(parse_integer(text, "smallint")?),
            Values::Integer(b) => b.append_value(parse_integer(text, "integer")?),
            Values::BigInt(b) => b.append_value(parse_integer(text, "bigint")?),
            Values::Real(b) => b.append_value(parse_real(text)?),
            Values::Double(b) => b.append_value(parse_double(text)?),
            Values::Numeric(b) => {
                let (precision, scale) = numeric_shape(&self.sql_type);
                b.append_value(numeric::parse_text(text, precision, scale)?);
            }
            Values::Text(b) => b.append_value(checked_text(text)?),
            Values::Json(b) => b.append_value(checked_json(text, &self.sql_type)?),
            Values::Bytea(b) => b.append_value(parse_bytea(text)?),
            Values::Date(b) => b.append_value(datetime::parse_date(text)?),
            Values::Time(b) => b.append_value(datetime::parse_time(text)?),
            Values::Timestamp(b) => b.append_value(datetime::parse_timestamp(text)?),
            Values::TimestampTz(b) => {
                b.append_value(datetime::parse_timestamptz(text, self.settings.time_zone)?);
            }
            Values::Interval(b) => b.append_value(arrow_interval(Interval::parse(text)?)?),
            Values::Uuid(b) => append_uuid(b, parse_uuid(text)?.as_bytes())?,
            Values::Array {
                items,
                lengths,
                valid,
            } => {
                let elements = parse_elements(text)?;
                lengths.push(elements.len());
                valid.push(true);
                for element in elements {
                    match element {
                        Element::Null => items.append_null(),
                        Element::Text(text) | Element::Nested(text) => items.append_text(&text)?,
                    }
                }
            }
            Values::Struct { members, valid } => {
                append_object(members, text)?;
                valid.push(true);
            }
        }
        Ok(())
    }

    /// Appends a value from its binary form; `wire_oid` is the type the client says it is.
    pub fn append_binary(&mut self, wire_oid: u32, bytes: &[u8]) -> Result<()> {
        let fixed = |length: usize| match bytes.len() == length {
            true => Ok(Bytes::copy_from_slice(bytes)),
            false => Err(bad_binary()),
        };
        match &mut self.values {
            Values::Boolean(b) => b.append_value(fixed(1)?.get_u8() != 0),
            Values::SmallInt(b) => b.append_value(fixed(2)?.get_i16()),
            Values::Integer(b) => b.append_value(fixed(4)?.get_i32()),
            // oid is held as bigint
            Values::BigInt(b) if wire_oid == 26 => b.append_value(fixed(4)?.get_u32().into()),
            Values::BigInt(b) => b.append_value(fixed(8)?.get_i64()),
            Values::Real(b) => b.append_value(float::real(fixed(4)?.get_f32())),
            Values::Double(b) => b.append_value(float::double(fixed(8)?.get_f64())),
            Values::Numeric(b) => {
                let (precision, scale) = numeric_shape(&self.sql_type);
                b.append_value(numeric::parse_binary(bytes, precision, scale)?);
            }
            Values::Text(_) => return self.append_text(utf8(bytes)?),
            Values::Json(_) => {
                let text = match (&self.sql_type, wire_oid, bytes.split_first()) {
                    (SqlType::Jsonb, 3802, Some((1, rest))) => rest,
                    (SqlType::Jsonb, 3802, _) => return Err(bad_binary()),
                    _ => bytes,
                };
                return self.append_text(utf8(text)?);
            }
            Values::Bytea(b) => b.append_value(bytes),
            Values::Date(b) => {
                let days = i64::from(fixed(4)?.get_i32()) + PG_EPOCH_DAYS;
                b.append_value(i32::try_from(days).map_err(|_| out_of_range("date"))?);
            }
            Values::Time(b) => {
                let us = fixed(8)?.get_i64();
                if !(0..=DAY_US).contains(&us) {
                    return Err(out_of_range("time"));
                }
                b.append_value(us);
            }
            Values::Timestamp(b) | Values::TimestampTz(b) => {
                let us = fixed(8)?.get_i64().checked_add(PG_EPOCH_US);
                b.append_value(us.ok_or_else(|| out_of_range("timestamp"))?);
            }
            Values::Interval(b) => {
                let mut value = fixed(16)?;
                let us = value.get_i64();
                let days = value.get_i32();
                let months = value.get_i32();
                b.append_value(arrow_interval(Interval { months, days, us })?);
            }
            Values::Uuid(b) => append_uuid(b, &fixed(16)?)?,
            Values::Array {
                items,
                lengths,
                valid,
            } => {
                let length = append_array(items, Bytes::copy_from_slice(bytes))?;
                lengths.push(length);
                valid.push(true);
            }
            Values::Struct { .. } => {
                let text = match bytes.split_first() {
                    Some((1, rest)) if wire_oid == 3802 => rest,
                    _ => bytes,
                };
                return self.append_text(utf8(text)?);
            }
        }
        Ok(())
    }

    /// The column so far, in the type's Arrow form; the builder is empty again.
    pub fn finish(&mut self) -> ArrayRef {
        let data_type = self.sql_type.to_arrow();
        match &mut self.values {
            Values::Boolean(b) => Arc::new(b.finish()),
            Values::SmallInt(b) => Arc::new(b.finish()),
            Values::Integer(b) => Arc::new(b.finish()),
            Values::BigInt(b) => Arc::new(b.finish()),
            Values::Real(b) => Arc::new(b.finish()),
            Values::Double(b) => Arc::new(b.finish()),
            Values::Numeric(b) => Arc::new(b.finish()),
            Values::Text(b) | Values::Json(b) => Arc::new(b.finish()),
            Values::Bytea(b) => Arc::new(b.finish()),
            Values::Date(b) => Arc::new(b.finish()),
            Values::Time(b) => Arc::new(b.finish()),
            Values::Timestamp(b) | Values::TimestampTz(b) => Arc::new(b.finish()),
            Values::Interval(b) => Arc::new(b.finish()),
            Values::Uuid(b) => Arc::new(b.finish()),
            Values::Array {
                items,
                lengths,
                valid,
            } => {
                let DataType::List(field) = data_type else {
                    unreachable!("an array type is an Arrow list");
                };
                Arc::new(ListArray::new(
                    field,
                    OffsetBuffer::from_lengths(lengths.drain(..)),
                    items.finish(),
                    Some(NullBuffer::from(std::mem::take(valid))),
                ))
            }
            Values::Struct { members, valid } => {
                let DataType::Struct(fields) = data_type else {
                    unreachable!("a struct type is an Arrow struct");
                };
                let columns = members.iter_mut().map(|(_, m)| m.finish()).collect();
                let nulls = Some(NullBuffer::from(std::mem::take(valid)));
                Arc::new(StructArray::new(fields, columns, nulls))
            }
        }
    }
}

fn numeric_shape(sql_type: &SqlType) -> (u8, i8) {
    match sql_type {
        SqlType::Numeric { precision, scale } => (*precision, *scale),
        _ => crate::types::DEFAULT_NUMERIC,
    }
}

fn bad_text(type_name: &str, text: &str) -> Error {
    Error::new(
        sqlstate::INVALID_TEXT,
        format!("invalid input syntax for type {type_name}: \"{text}\""),
    )
}

fn bad_binary() -> Error {
    Error::new(sqlstate::INVALID_BINARY, "incorrect binary data format")
}

fn out_of_range(type_name: &str) -> Error {
    Error::new(
        sqlstate::DATETIME_OVERFLOW,
        format!("{type_name} out of range"),
    )
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| super::invalid_utf8(&bytes[e.valid_up_to()..]))
}

fn checked_text(text: &str) -> Result<&str> {
    match text.contains('\0') {
        true => Err(super::invalid_utf8(&[0])),
        false => Ok(text),
    }
}

/// A JSON text as it is held: `jsonb` in its one form.
fn checked_json<'a>(text: &'a str, sql_type: &SqlType) -> Result<Cow<'a, str>> {
    match sql_type {
        SqlType::Jsonb => Ok(Cow::Owned(Json::parse_sorted(text)?.to_text())),
        _ => jsonb::check(text).map(|()| Cow::Borrowed(text)),
    }
}

/// Any unambiguous beginning of true, false, yes, no; on, off, 1, 0.
fn parse_boolean(text: &str) -> Result<bool> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |full: &str| !word.is_empty() && full.starts_with(&word);
    match word.as_str() {
        "1" | "on" => Ok(true),
        "0" | "of" | "off" => Ok(false),
        _ if begins("true") || begins("yes") => Ok(true),
        _ if begins("false") || begins("no") => Ok(false),
        _ => Err(bad_text("boolean", text)),
    }
}

fn parse_integer<T: std::str::FromStr<Err = std::num::ParseIntError>>(
    text: &str,
    type_name: &str,
) -> Result<T> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.trim().parse().map_err(|e: std::num::ParseIntError| {
        match matches!(e.kind(), NegOverflow | PosOverflow) {
            true => Error::new(
                sqlstate::NUMERIC_OUT_OF_RANGE,
                format!(
                    "value \"{}\" is out of range for type {type_name}",
                    text.trim()
                ),
            ),
            false => bad_text(type_name, text),
        }
    })
}

/// `\x0aff`, or bytes with `\\` and `\ooo`.
fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex),
        None => parse_escaped(text),
    }
}

/// Bytes as themselves, but `\\` and `\ooo`; 22P02 for another backslash.
pub(crate) fn parse_escaped(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        match after {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => return Err(bad_text("bytea", text)),
        }
    }
    Ok(bytes)
}

/// Two hexadecimal digits a byte, blanks between them read over; 22023 for what is none.
pub(crate) fn parse_hex(hex: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| {
            c.to_digit(16).map(|digit| digit as u8).ok_or_else(|| {
                Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("invalid hexadecimal digit: \"{c}\""),
                )
            })
        })
        .collect::<Result<_>>()?;
    if digits.len() % 2 == 1 {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "invalid hexadecimal data: odd number of digits",
        ));
    }
    Ok(digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect())
}

fn parse_uuid(text: &str) -> Result<uuid::Uuid> {
    let trimmed = text.trim();
    match trimmed.starts_with("urn") {
        true => Err(bad_text("uuid", text)),
        false => uuid::Uuid::try_parse(trimmed).map_err(|_| bad_text("uuid", text)),
    }
}

fn append_uuid(builder: &mut FixedSizeBinaryBuilder, bytes: &[u8]) -> Result<()> {
    builder.append_value(bytes).map_err(Error::from)
}

fn arrow_interval(interval: Interval) -> Result<IntervalMonthDayNano> {
    let nanoseconds = interval.us.checked_mul(1_000).ok_or_else(|| {
        Error::new(sqlstate::DATETIME_OVERFLOW, "interval out of range")
            .detail("The time of an interval holds up to 292 years.")
    })?;
    Ok(IntervalMonthDayNano::new(
        interval.months,
        interval.days,
        nanoseconds,
    ))
}

/// Fills a struct's members from a JSON object; missing ones become NULL.
fn append_object(members: &mut [(String, ColumnBuilder)], text: &str) -> Result<()> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| bad_text("struct", text))?;
    for (name, member) in members {
        match object.get(name.as_str()) {
            None | Some(serde_json::Value::Null) => member.append_null(),
            Some(serde_json::Value::String(text)) => member.append_text(text)?,
            Some(serde_json::Value::Array(elements)) => append_json_array(member, elements)?,
            Some(value) => member.append_text(&value.to_string())?,
        }
    }
    Ok(())
}

fn append_json_array(builder: &mut ColumnBuilder, elements: &[serde_json::Value]) -> Result<()> {
    let Values::Array {
        items,
        lengths,
        valid,
    } = &mut builder.values
    else {
        let text = serde_json::Value::Array(elements.to_vec()).to_string();
        return builder.append_text(&text);
    };
    lengths.push(elements.len());
    valid.push(true);
    for element in elements {
        match element {
            serde_json::Value::Null => items.append_null(),
            serde_json::Value::String(text) => items.append_text(text)?,
            serde_json::Value::Array(inner) => append_json_array(items, inner)?,
            value => items.append_text(&value.to_string())?,
        }
    }
    Ok(())
}

/// Reads `array_send`'s form into `items`; the number of elements of the outer dimension.
fn append_array(items: &mut ColumnBuilder, mut bytes: Bytes) -> Result<usize> {
    if bytes.len() < 12 {
        return Err(bad_binary());
    }
    let dimensions = bytes.get_i32();
    bytes.advance(4);
    let item_oid = bytes.get_u32();
    if !(0..=6).contains(&dimensions) || bytes.len() < dimensions as usize * 8 {
        return Err(bad_binary());
    }
    let mut sizes = Vec::new();
    for _ in 0..dimensions {
        sizes.push(usize::try_from(bytes.get_i32()).map_err(|_| bad_binary())?);
        bytes.advance(4);
    }
    let Some((outer, inner)) = sizes.split_first() else {
        return Ok(0);
    };
    if sizes.contains(&0) {
        return Ok(0);
    }
    for _ in 0..*outer {
        append_dimension(items, item_oid, inner, &mut bytes)?;
    }
    match bytes.is_empty() {
        true => Ok(*outer),
        false => Err(bad_binary()),
    }
}

fn append_dimension(
    items: &mut ColumnBuilder,
    item_oid: u32,
    sizes: &[usize],
    bytes: &mut Bytes,
) -> Result<()> {
    if let Some((size, inner)) = sizes.split_first() {
        let Values::Array {
            items,
            lengths,
            valid,
        } = &mut items.values
        else {
            return Err(bad_binary());
        };
        lengths.push(*size);
        valid.push(true);
        for _ in 0..*size {
            append_dimension(items, item_oid, inner, bytes)?;
        }
        return Ok(());
    }
    if bytes.len() < 4 {
        return Err(bad_binary());
    }
    match bytes.get_i32() {
        -1 => items.append_null(),
        length => {
            let length = usize::try_from(length).map_err(|_| bad_binary())?;
            if bytes.len() < length {
                return Err(bad_binary());
            }
            items.append_binary(item_oid, &bytes.split_to(length))?;
        }
    }
    Ok(())
}

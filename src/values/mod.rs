//! Values between Arrow and PostgreSQL's text and binary forms, both ways.
//!
//! Output: [`RowEncoder`] casts a batch's columns once to the few Arrow types that stand for SQL
//! types, then writes row after row without looking at types again. Input: [`input::ColumnBuilder`]
//! is the input function of every type; parameters are columns of one row, COPY fills many.
//! Only OIDs of PostgreSQL's own types are ever sent: drivers refuse others.

pub(crate) mod column;
pub(crate) mod datetime;
pub(crate) mod float;
pub(crate) mod input;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod json_text;
pub(crate) mod jsonb;
pub(crate) mod list;
pub(crate) mod numeric;
pub(crate) mod types;
mod written_dates;
pub(crate) mod zones;

#[cfg(test)]
mod tests;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::array::timezone::Tz;
use datafusion::common::ScalarValue;

use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;
use column::Column;
use types::WireType;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// text
    Text,
    /// binary
    Binary,
}

impl Format {
    /// From the protocol's code; 08P01 for one that does not exist.
    pub fn from_code(code: i16) -> Result<Self> {
        match code {
            0 => Ok(Self::Text),
            1 => Ok(Self::Binary),
            code => Err(Error::new(
                sqlstate::PROTOCOL_VIOLATION,
                format!("unsupported format code: {code}"),
            )),
        }
    }

    /// The protocol's code.
    pub fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }
}

/// Session settings that decide how values read and are read.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputSettings {
    /// `TimeZone`; `None` is UTC
    pub time_zone: Option<Tz>,
    /// Blanks in arrays and objects that are made of values.
    pub spacing: JsonSpacing,
}

/// Blanks behind the commas and colons of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum JsonSpacing {
    /// One each, as `jsonb` is written.
    #[default]
    Jsonb,
    /// None, as `to_json` writes rows and arrays.
    Json,
}

impl JsonSpacing {
    /// What stands between two members or elements.
    pub fn comma(self) -> &'static [u8] {
        match self {
            Self::Jsonb => b", ",
            Self::Json => b",",
        }
    }

    /// What stands behind a name.
    pub fn colon(self) -> &'static [u8] {
        match self {
            Self::Jsonb => b": ",
            Self::Json => b":",
        }
    }
}

impl OutputSettings {
    /// From the parameter `TimeZone`; a zone that is not known counts as UTC.
    pub fn new(time_zone: Option<&str>) -> Self {
        let other = time_zone.filter(|name| !zones::is_utc(name));
        Self {
            time_zone: other.and_then(zones::parse),
            ..Self::default()
        }
    }
}

/// Writes the rows of one batch.
pub(crate) struct RowEncoder<'a> {
    columns: Vec<(Column, Format)>,
    settings: &'a OutputSettings,
}

impl<'a> RowEncoder<'a> {
    /// Prepares a batch. `formats`: one for all columns, or one each.
    pub fn new(
        batch: &RecordBatch,
        types: &[WireType],
        formats: &[Format],
        settings: &'a OutputSettings,
    ) -> Result<Self> {
        if batch.num_columns() != types.len() {
            return Err(Error::internal(format!(
                "a result has {} columns where {} were described",
                batch.num_columns(),
                types.len()
            )));
        }
        let mut columns = Vec::with_capacity(types.len());
        for (i, (array, wire_type)) in batch.columns().iter().zip(types).enumerate() {
            let format = formats.get(i).or(formats.first()).copied();
            columns.push((
                Column::new(array, wire_type)?,
                format.unwrap_or(Format::Text),
            ));
        }
        Ok(Self { columns, settings })
    }

    /// Appends a DataRow message.
    pub fn data_row(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        let message = out.len();
        out.put_u8(b'D');
        out.put_i32(0);
        let written = self
            .tuple(row, out)
            .and_then(|()| patch_length(out, message + 1, out.len() - message - 1));
        if written.is_err() {
            // Half a message must not reach the client.
            out.truncate(message);
        }
        written
    }

    /// Appends the number of columns and each value with its length (-1: NULL): the body of
    /// DataRow, and a tuple of binary COPY.
    pub fn tuple(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        // A relation has far fewer columns than i16 holds; the planner's limit is lower.
        out.put_i16(self.columns.len() as i16);
        for (column, format) in &self.columns {
            if column.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            let start = out.len();
            out.put_i32(0);
            match format {
                Format::Text => column.write_text(row, self.settings, out)?,
                Format::Binary => column.write_binary(row, self.settings, out)?,
            }
            patch_length(out, start, out.len() - start - 4)?;
        }
        Ok(())
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Appends the text of a value; false, and nothing appended, when it is NULL.
    pub fn text(&self, row: usize, column: usize, out: &mut BytesMut) -> Result<bool> {
        let (column, _) = &self.columns[column];
        if column.is_null(row) {
            return Ok(false);
        }
        column.write_text(row, self.settings, out)?;
        Ok(true)
    }
}

fn patch_length(out: &mut BytesMut, at: usize, length: usize) -> Result<()> {
    let length = i32::try_from(length).map_err(|_| {
        Error::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            "a value or row is too large to be sent",
        )
        .detail("A row of the wire protocol holds less than 2 GiB.")
    })?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A bound parameter, `number` counted from 1, from what the client sent (`None`: NULL).
pub(crate) fn decode_parameter(
    number: usize,
    sql_type: &SqlType,
    wire_oid: u32,
    format: Format,
    value: Option<&[u8]>,
) -> Result<ScalarValue> {
    let mut builder = input::ColumnBuilder::new(sql_type, &OutputSettings::default());
    match (value, format) {
        (None, _) => builder.append_null(),
        (Some(bytes), Format::Text) => {
            let text =
                std::str::from_utf8(bytes).map_err(|e| invalid_utf8(&bytes[e.valid_up_to()..]))?;
            builder.append_text(text)?;
        }
        (Some(bytes), Format::Binary) => {
            builder
                .append_binary(wire_oid, bytes)
                .map_err(|e| match e.sqlstate() {
                    sqlstate::INVALID_BINARY => Error::new(
                        sqlstate::INVALID_BINARY,
                        format!("incorrect binary data format in bind parameter {number}"),
                    )
                    .detail(format!("The parameter's type is {sql_type}.")),
                    _ => e,
                })?;
        }
    }
    Ok(ScalarValue::try_from_array(&builder.finish(), 0)?)
}

/// 22021 for bytes that are not UTF-8.
pub(crate) fn invalid_utf8(bytes: &[u8]) -> Error {
    let shown: Vec<String> = bytes.iter().take(3).map(|b| format!("0x{b:02x}")).collect();
    Error::new(
        sqlstate::INVALID_ENCODING,
        format!(
            "invalid byte sequence for encoding \"UTF8\": {}",
            shown.join(" ")
        ),
    )
}

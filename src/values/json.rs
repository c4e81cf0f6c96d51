//! Structs, maps and lists of them as JSON text.
//!
//! PostgreSQL has no anonymous record that drivers decode, so a struct goes out as `jsonb`, in
//! jsonb's spacing; the settings say where it is that of `json`. Numbers stay numbers, JSON columns are embedded, all else is a string of
//! its SQL text; NaN and infinity, which JSON lacks, are strings too.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;

use super::column::Column;
use super::{OutputSettings, WireType};
use crate::error::Result;

/// The rows of a batch as JSON objects, in the form of PostgreSQL's `to_json`.
pub(crate) struct RowJson {
    columns: Vec<(String, Column)>,
}

impl RowJson {
    /// Prepares a batch.
    pub fn new(batch: &RecordBatch) -> Result<Self> {
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, array)| {
            let column = Column::new(array, &WireType::of_field(field)?)?;
            Ok((field.name().clone(), column))
        });
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
        })
    }

    /// Appends a row.
    pub fn write(&self, row: usize, settings: &OutputSettings, out: &mut BytesMut) -> Result<()> {
        for (at, (name, column)) in self.columns.iter().enumerate() {
            out.put_u8(if at == 0 { b'{' } else { b',' });
            write_string(name.as_bytes(), out);
            out.put_u8(b':');
            write_json(column, row, settings, out)?;
        }
        out.put_u8(b'}');
        Ok(())
    }
}

/// Appends a value as JSON; NULL is `null`.
pub(crate) fn write_json(
    column: &Column,
    row: usize,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    if column.is_null(row) {
        out.put_slice(b"null");
        return Ok(());
    }
    match column {
        Column::Bool(values) => {
            out.put_slice(if values.value(row) { b"true" } else { b"false" });
            Ok(())
        }
        Column::Int2(_) | Column::Int4(_) | Column::Int8(_) | Column::Oid(_) => {
            column.write_text(row, settings, out)
        }
        Column::Decimal128(..) | Column::Decimal256(..) => column.write_text(row, settings, out),
        Column::Float4(values) if values.value(row).is_finite() => {
            column.write_text(row, settings, out)
        }
        Column::Float8(values) if values.value(row).is_finite() => {
            column.write_text(row, settings, out)
        }
        Column::Json(_)
        | Column::Jsonb(_)
        | Column::Struct { .. }
        | Column::Map { .. }
        | Column::Union(_) => column.write_text(row, settings, out),
        Column::List { values, item, .. } => {
            let offsets = values.value_offsets();
            out.put_u8(b'[');
            for (n, at) in (offsets[row]..offsets[row + 1]).enumerate() {
                if n > 0 {
                    out.put_slice(settings.spacing.comma());
                }
                write_json(item, at as usize, settings, out)?;
            }
            out.put_u8(b']');
            Ok(())
        }
        Column::Timestamp(_) | Column::TimestampTz(_) => {
            let mut text = BytesMut::new();
            column.write_text(row, settings, &mut text)?;
            write_iso_time(&mut text);
            write_string(&text, out);
            Ok(())
        }
        _ => {
            let mut text = BytesMut::new();
            column.write_text(row, settings, &mut text)?;
            write_string(&text, out);
            Ok(())
        }
    }
}

/// A timestamp in JSON has ISO 8601's form: a T between date and time, and minutes in its offset.
fn write_iso_time(text: &mut BytesMut) {
    if let Some(blank) = text.iter().position(|b| *b == b' ') {
        text[blank] = b'T';
        if matches!(text[blank..], [.., b'+' | b'-', _, _]) {
            text.put_slice(b":00");
        }
    }
}

/// Appends `{"name": value, …}`.
pub(crate) fn write_object<'a>(
    members: impl Iterator<Item = (&'a [u8], &'a Column, usize)>,
    settings: &OutputSettings,
    out: &mut BytesMut,
) -> Result<()> {
    out.put_u8(b'{');
    for (n, (name, column, row)) in members.enumerate() {
        if n > 0 {
            out.put_slice(settings.spacing.comma());
        }
        write_string(name, out);
        out.put_slice(settings.spacing.colon());
        write_json(column, row, settings, out)?;
    }
    out.put_u8(b'}');
    Ok(())
}

/// Appends a JSON string of UTF-8 bytes.
pub(crate) fn write_string(text: &[u8], out: &mut BytesMut) {
    out.put_u8(b'"');
    for byte in text {
        match byte {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            0x08 => out.put_slice(b"\\b"),
            0x0c => out.put_slice(b"\\f"),
            0..=0x1f => out.put_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.put_u8(*byte),
        }
    }
    out.put_u8(b'"');
}

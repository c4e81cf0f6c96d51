//! Rows to bytes: JSON lines, CSV, Parquet.
//!
//! What these write, the decoders beside it read back as the same values: `json` columns are
//! written as JSON and not as strings, `bytea` as `\x…`, `uuid` with its hyphens, NULL in JSON
//! explicitly, and in CSV apart from the empty string.

use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder,
    make_encoder,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions as DisplayOptions};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

use super::csv::CsvStyle;
use super::{Format, column::Column, values::EpochUnit};
use crate::error::{Error, Result};
use crate::types::{SqlType, TYPE_KEY};

/// Writes all batches in a format; the bytes go to `out` as they come.
pub fn write_all<W: Write + Send>(
    format: &Format,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    out: W,
) -> Result<()> {
    match format {
        Format::Json => write_json(batches, out),
        Format::Csv(style) => write_csv(style, schema, batches, out),
        Format::Parquet => write_parquet(schema, batches, out),
        Format::Text | Format::Raw => {
            Err(Error::unsupported("a sink cannot write format text or raw"))
        }
    }
}

fn json_options() -> WriterBuilder {
    WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(SqlEncoders))
}

fn write_json<W: Write>(batches: &[RecordBatch], out: W) -> Result<()> {
    let mut writer = json_options().build::<_, LineDelimited>(out);
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(writer.into_inner().flush()?)
}

/// Each row of a batch as a JSON object.
pub fn json_rows(batch: &RecordBatch) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    write_json(std::slice::from_ref(batch), &mut lines)?;
    let lines =
        String::from_utf8(lines).map_err(|_| Error::internal("JSON of a row is not UTF-8"))?;
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Encoders for the types that arrow's JSON has no rule for, or another one.
#[derive(Debug)]
struct SqlEncoders;

impl EncoderFactory for SqlEncoders {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let name = field.metadata().get(TYPE_KEY).map(String::as_str);
        let encoder: Box<dyn Encoder + 'a> = match (name, array.data_type()) {
            (Some("json" | "jsonb"), DataType::Utf8) => Box::new(RawJson(array.as_string::<i32>())),
            (Some("uuid"), DataType::FixedSizeBinary(16)) => {
                Box::new(UuidText(array.as_fixed_size_binary()))
            }
            (_, DataType::Binary) => Box::new(HexText(array.as_binary::<i32>())),
            (_, DataType::Interval(_)) => {
                Box::new(Displayed(ArrayFormatter::try_new(array, &DISPLAY)?))
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

static DISPLAY: DisplayOptions<'static> = DisplayOptions::new();

struct RawJson<'a>(&'a StringArray);

impl Encoder for RawJson<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        // A newline between tokens would end the line; inside JSON strings it is always escaped.
        out.extend(
            self.0
                .value(index)
                .bytes()
                .map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }),
        );
    }
}

struct UuidText<'a>(&'a datafusion::arrow::array::FixedSizeBinaryArray);

impl Encoder for UuidText<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(uuid_text(self.0.value(index)).as_bytes());
        out.push(b'"');
    }
}

struct HexText<'a>(&'a datafusion::arrow::array::BinaryArray);

impl Encoder for HexText<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"\\\\x");
        push_hex(self.0.value(index), out);
        out.push(b'"');
    }
}

struct Displayed<'a>(ArrayFormatter<'a>);

impl Encoder for Displayed<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(self.0.value(index).to_string().as_bytes());
        out.push(b'"');
    }
}

fn uuid_text(bytes: &[u8]) -> String {
    uuid::Uuid::from_slice(bytes)
        .map(|u| u.to_string())
        .unwrap_or_default()
}

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// A column as text, as CSV and the console show it.
pub fn text_column(field: &FieldRef, array: &ArrayRef) -> Result<StringArray> {
    let name = field.metadata().get(TYPE_KEY).map(String::as_str);
    match (name, array.data_type()) {
        (_, DataType::Utf8) => Ok(array.as_string::<i32>().clone()),
        (Some("uuid"), DataType::FixedSizeBinary(16)) => Ok(array
            .as_fixed_size_binary()
            .iter()
            .map(|v| v.map(uuid_text))
            .collect()),
        (_, DataType::Binary) => Ok(array
            .as_binary::<i32>()
            .iter()
            .map(|v| {
                v.map(|bytes| {
                    let mut text = b"\\x".to_vec();
                    push_hex(bytes, &mut text);
                    String::from_utf8_lossy(&text).into_owned()
                })
            })
            .collect()),
        (_, DataType::List(_) | DataType::Struct(_)) => json_column(field, array),
        (_, DataType::Interval(_)) => displayed_column(array),
        _ => Ok(cast(array, &DataType::Utf8)?.as_string::<i32>().clone()),
    }
}

fn displayed_column(array: &ArrayRef) -> Result<StringArray> {
    let formatter = ArrayFormatter::try_new(array, &DISPLAY)?;
    Ok((0..array.len())
        .map(|i| array.is_valid(i).then(|| formatter.value(i).to_string()))
        .collect())
}

fn json_column(field: &FieldRef, array: &ArrayRef) -> Result<StringArray> {
    let options = EncoderOptions::default()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(SqlEncoders));
    let mut encoder = make_encoder(field, array.as_ref(), &options)?;
    let mut texts = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        texts.push(array.is_valid(row).then(|| {
            let mut text = Vec::new();
            encoder.encode(row, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }));
    }
    Ok(texts.into_iter().collect())
}

fn write_csv<W: Write>(
    style: &CsvStyle,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    mut out: W,
) -> Result<()> {
    let mut line = Vec::new();
    if style.header {
        for (i, field) in schema.fields().iter().enumerate() {
            push_csv_field(style, i, Some(field.name()), &mut line);
        }
        line.push(b'\n');
        out.write_all(&line)?;
    }
    for batch in batches {
        let columns = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| text_column(field, array))
            .collect::<Result<Vec<_>>>()?;
        line.clear();
        for row in 0..batch.num_rows() {
            for (i, column) in columns.iter().enumerate() {
                let value = column.is_valid(row).then(|| column.value(row));
                push_csv_field(style, i, value, &mut line);
            }
            line.push(b'\n');
            if line.len() > 64 << 10 {
                out.write_all(&line)?;
                line.clear();
            }
        }
        out.write_all(&line)?;
    }
    Ok(out.flush()?)
}

fn push_csv_field(style: &CsvStyle, index: usize, value: Option<&str>, line: &mut Vec<u8>) {
    if index > 0 {
        line.push(style.delimiter);
    }
    let Some(value) = value else {
        line.extend_from_slice(style.null.as_bytes());
        return;
    };
    let special = |b: u8| b == style.delimiter || b == style.quote || b == b'\n' || b == b'\r';
    if value != style.null && !value.bytes().any(special) {
        line.extend_from_slice(value.as_bytes());
        return;
    }
    line.push(style.quote);
    for byte in value.bytes() {
        if byte == style.quote {
            line.push(byte);
        }
        line.push(byte);
    }
    line.push(style.quote);
}

fn write_parquet<W: Write + Send>(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    out: W,
) -> Result<()> {
    let level = ZstdLevel::try_new(1).map_err(|e| Error::internal(e.to_string()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .build();
    let stored = stored_schema(schema);
    let failed = |e: datafusion::parquet::errors::ParquetError| {
        Error::internal("could not write Parquet").detail(format!("The writer says: {e}."))
    };
    let mut writer = ArrowWriter::try_new(out, stored.clone(), Some(properties)).map_err(failed)?;
    for batch in batches {
        let arrays = batch
            .columns()
            .iter()
            .zip(stored.fields())
            .map(
                |(array, field)| match (array.data_type(), field.data_type()) {
                    (DataType::Interval(_), DataType::Utf8) => {
                        displayed_column(array).map(|a| Arc::new(a) as ArrayRef)
                    }
                    _ => Ok(array.clone()),
                },
            )
            .collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(stored.clone(), arrays)?;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

/// Parquet has no interval with months and nanoseconds: it is stored as text.
fn stored_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(stored_field);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A column as Parquet files have it.
pub fn stored_field(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Interval(_) => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    }
}

/// Checks that every column of `schema` has a form in files at all.
pub fn check_writable(schema: &SchemaRef) -> Result<()> {
    for field in schema.fields() {
        if SqlType::from_field(field).is_none() {
            Column::new(field, EpochUnit::Auto)?;
        }
    }
    Ok(())
}

//! Formats: bytes to rows and rows to bytes, shared by all connectors.
//!
//! ```text
//! file bytes ─ lines ─┐
//! socket line ────────┼─ RecordDecoder (json, csv, text, raw) ─ Column ─ Arrow arrays
//! kafka payload ──────┘
//! parquet file ───────── ParquetChunks ─ cast to the declared types
//! RecordBatch ────────── encode (json, csv, parquet) ─ bytes
//! ```
//!
//! A record that cannot be decoded is refused with a reason and leaves no trace; the caller makes
//! a dead letter of it, since only the caller knows where it came from.

pub mod column;
pub mod csv;
pub mod encode;
pub mod json;
pub mod json_text;
pub mod letter;
pub mod lines;
pub mod observed;
pub mod parquet;
pub mod values;
pub mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Fields, Schema, SchemaRef};

use self::column::{Column, Refusal};
use self::csv::{CsvDecoder, CsvStyle};
use self::json::JsonDecoder;
use self::values::EpochUnit;
use self::watch::Watch;
use super::DeadLetter;
use super::evolution::SchemaEvolution;
use super::settings::Settings;
use crate::catalog::definition::CatalogObject;
use crate::error::{Error, Result, sqlstate};

/// Bytes of a bad record that a dead letter keeps.
pub const DEAD_LETTER_BYTES_MAX: usize = 64 << 10;

/// A format with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// one JSON object per record
    Json,
    /// delimited fields
    Csv(CsvStyle),
    /// the record is the value of the one column, as text
    Text,
    /// the record is the value of the one column, as bytes
    Raw,
    /// Apache Parquet files
    Parquet,
}

/// A format and how it reads values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatOptions {
    /// The format.
    pub format: Format,
    /// What numbers in timestamp columns count.
    pub epoch: EpochUnit,
    /// Other names under which columns may come, each with the name that they usually come under.
    pub other_names: Vec<(String, String)>,
    /// What fields without a column do.
    pub evolution: SchemaEvolution,
    /// Names of fields that are never new: those of columns that someone dropped, and those of columns that
    /// are filled from elsewhere.
    pub taken_names: Vec<String>,
}

impl FormatOptions {
    /// A format of which nothing else is said.
    pub fn of(format: Format, epoch: EpochUnit) -> Self {
        Self {
            format,
            epoch,
            other_names: Vec::new(),
            evolution: SchemaEvolution::None,
            taken_names: Vec::new(),
        }
    }

    /// For a stream whose columns were altered, as its connector sees it: records of before end before columns
    /// that were added, and one that is renamed comes under either name.
    #[must_use]
    pub fn with_altered_columns(mut self, object: &CatalogObject) -> Self {
        self.other_names = object.other_names();
        self.taken_names = object.taken_names();
        if let Format::Csv(style) = &mut self.format {
            let added = &object.columns()[object.original_columns()..];
            style.added_columns = added.iter().filter(|c| c.metadata_from.is_none()).count();
        }
        self
    }

    /// From `format`, `header`, `delimiter`, `quote`, `null_value`, `timestamp_unit`, `schema_evolution`.
    /// Without `format`, `default` is asked for one.
    pub fn from_settings(
        settings: &Settings<'_>,
        default: impl FnOnce() -> Option<&'static str>,
    ) -> Result<Self> {
        let name = match settings.text("format")? {
            Some(name) => name.trim().to_ascii_lowercase(),
            None => match default() {
                Some(name) => name.to_owned(),
                None => settings.required("format")?,
            },
        };
        let format = match name.as_str() {
            "json" | "jsonl" | "ndjson" => Format::Json,
            "csv" => Format::Csv(csv_style(settings)?),
            "text" => Format::Text,
            "raw" | "bytes" => Format::Raw,
            "parquet" => Format::Parquet,
            _ => {
                return Err(settings.invalid("format", "json, csv, parquet, text or raw"));
            }
        };
        let epoch = settings
            .choice(
                "timestamp_unit",
                &[
                    ("auto", EpochUnit::Auto),
                    ("seconds", EpochUnit::Seconds),
                    ("s", EpochUnit::Seconds),
                    ("milliseconds", EpochUnit::Milliseconds),
                    ("ms", EpochUnit::Milliseconds),
                    ("microseconds", EpochUnit::Microseconds),
                    ("us", EpochUnit::Microseconds),
                    ("nanoseconds", EpochUnit::Nanoseconds),
                    ("ns", EpochUnit::Nanoseconds),
                ],
            )?
            .unwrap_or_default();
        Ok(Self {
            evolution: settings
                .choice("schema_evolution", &SchemaEvolution::WORDS)?
                .unwrap_or_default(),
            ..Self::of(format, epoch)
        })
    }
}

fn csv_style(settings: &Settings<'_>) -> Result<CsvStyle> {
    let default = CsvStyle::default();
    let style = CsvStyle {
        delimiter: settings
            .single_byte("delimiter")?
            .unwrap_or(default.delimiter),
        quote: settings.single_byte("quote")?.unwrap_or(default.quote),
        null: settings.text("null_value")?.unwrap_or(default.null),
        header: settings.boolean("header")?.unwrap_or(default.header),
        added_columns: default.added_columns,
    };
    if style.delimiter == style.quote {
        return Err(settings.invalid("delimiter", "a character other than the quote"));
    }
    Ok(style)
}

/// Decodes records that are whole in memory.
pub enum RecordDecoder {
    /// JSON objects
    Json(JsonDecoder),
    /// CSV records
    Csv(CsvDecoder),
    /// one value per record
    Value {
        /// the column, when it is asked for
        column: Option<Column>,
        /// records are text, not bytes
        text: bool,
        /// rows so far
        rows: usize,
    },
}

impl RecordDecoder {
    /// A decoder for `payload[projection]`. Parquet has no records; it is refused here.
    pub fn new(options: &FormatOptions, payload: &Fields, projection: &[usize]) -> Result<Self> {
        Ok(match &options.format {
            Format::Json => Self::Json(
                JsonDecoder::new(payload, projection, options.epoch)?
                    .with_other_names(&options.other_names)
                    .watched_by(Watch::new(options)),
            ),
            Format::Csv(style) => Self::Csv(
                CsvDecoder::new(payload, projection, style.clone(), options.epoch)?
                    .with_other_names(&options.other_names)
                    .watched_by(Watch::new(options)),
            ),
            Format::Text | Format::Raw => {
                if payload.len() != 1 {
                    return Err(Error::new(
                        sqlstate::INVALID_OBJECT_DEFINITION,
                        "formats text and raw need exactly one column for the payload",
                    )
                    .detail(format!("{} columns are declared.", payload.len()))
                    .hint("Use format = 'json', or declare one TEXT or BYTEA column."));
                }
                let column = match projection {
                    [] => None,
                    _ => Some(Column::new(&payload[0], options.epoch)?),
                };
                Self::Value {
                    column,
                    text: options.format == Format::Text,
                    rows: 0,
                }
            }
            Format::Parquet => {
                return Err(Error::unsupported(
                    "format parquet is for files, not for single records",
                ));
            }
        })
    }

    /// Decodes one record. A refused record leaves nothing behind.
    pub fn push(&mut self, record: &[u8]) -> Result<(), Refusal> {
        match self {
            Self::Json(decoder) => decoder.push(record),
            Self::Csv(decoder) => decoder.push(record),
            Self::Value { column, text, rows } => {
                if *text {
                    values::utf8(record)?;
                }
                if let Some(column) = column {
                    let pushed = column.push_bytes(record);
                    if pushed.is_err() {
                        column.truncate(*rows);
                    }
                    pushed?;
                }
                *rows += 1;
                Ok(())
            }
        }
    }

    /// Takes a record without a value (a Kafka tombstone): NULL for text and raw, refused else.
    pub fn push_absent(&mut self) -> Result<(), Refusal> {
        match self {
            Self::Value { column, rows, .. } => {
                if let Some(column) = column {
                    if !column.field().is_nullable() {
                        return Err(json::null_refusal(column.field().name()));
                    }
                    column.push_null();
                }
                *rows += 1;
                Ok(())
            }
            _ => Err("record has no value".to_owned()),
        }
    }

    /// Rows decoded since the last [`Self::finish`].
    pub fn rows(&self) -> usize {
        match self {
            Self::Json(decoder) => decoder.rows(),
            Self::Csv(decoder) => decoder.rows(),
            Self::Value { rows, .. } => *rows,
        }
    }

    /// What is noticed beside the columns; `None`: records have no fields.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        match self {
            Self::Json(decoder) => decoder.watch(),
            Self::Csv(decoder) => decoder.watch(),
            Self::Value { .. } => None,
        }
    }

    /// Takes the decoded columns, in the projection's order.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        match self {
            Self::Json(decoder) => decoder.finish(),
            Self::Csv(decoder) => decoder.finish(),
            Self::Value { column, rows, .. } => {
                *rows = 0;
                column.iter_mut().map(Column::finish).collect()
            }
        }
    }
}

/// A dead letter for a refused record.
pub fn dead_letter(origin: String, raw: &[u8], error: Refusal) -> DeadLetter {
    DeadLetter {
        origin,
        raw: raw[..raw.len().min(DEAD_LETTER_BYTES_MAX)].to_vec(),
        error,
    }
}

/// How a source's declared columns divide into payload and metadata, and where the columns of one
/// projection come from.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Payload columns in declared order: what the format sees.
    pub payload: Fields,
    /// Indices into `payload` that the projection needs, ascending, each once.
    pub payload_projection: Vec<usize>,
    /// For each projected column: its payload array (position in `payload_projection`) or the
    /// metadata it shows.
    outputs: Vec<Output>,
    schema: SchemaRef,
}

#[derive(Debug, Clone)]
enum Output {
    Payload(usize),
    Metadata(String),
}

impl Layout {
    /// Divides `schema[projection]`. `metadata` names, for each column of `schema`, the metadata
    /// it is filled from, if any.
    pub fn new(schema: &SchemaRef, metadata: &[Option<String>], projection: &[usize]) -> Self {
        let payload_indices: Vec<usize> = (0..schema.fields().len())
            .filter(|&i| metadata[i].is_none())
            .collect();
        let payload: Fields = payload_indices
            .iter()
            .map(|&i| schema.fields()[i].clone())
            .collect();
        let mut payload_projection: Vec<usize> = payload_indices
            .iter()
            .enumerate()
            .filter(|(_, i)| projection.contains(i))
            .map(|(position, _)| position)
            .collect();
        payload_projection.dedup();
        let outputs = projection
            .iter()
            .map(|&i| match &metadata[i] {
                Some(name) => Output::Metadata(name.clone()),
                None => Output::Payload(
                    payload_projection
                        .iter()
                        .position(|&p| payload_indices[p] == i)
                        .expect("a projected payload column is in the payload projection"),
                ),
            })
            .collect();
        let fields: Fields = projection
            .iter()
            .map(|&i| schema.fields()[i].clone())
            .collect();
        Self {
            payload,
            payload_projection,
            outputs,
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// Names of the metadata that the projection needs.
    pub fn metadata_names(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().filter_map(|o| match o {
            Output::Metadata(name) => Some(name.as_str()),
            Output::Payload(_) => None,
        })
    }

    /// Schema of the projected columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Puts a batch together from payload arrays (in `payload_projection` order) and metadata.
    pub fn assemble(
        &self,
        payload: &[ArrayRef],
        rows: usize,
        mut metadata: impl FnMut(&str) -> Result<ArrayRef>,
    ) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.outputs.len());
        for (output, field) in self.outputs.iter().zip(self.schema.fields()) {
            arrays.push(match output {
                Output::Payload(position) => payload[*position].clone(),
                Output::Metadata(name) => {
                    let array = metadata(name)?;
                    datafusion::arrow::compute::cast(&array, field.data_type())?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema.clone(),
            arrays,
            &options,
        )?)
    }
}

//! The three formats of COPY, both ways.
//!
//! A decoder takes the client's bytes in pieces cut anywhere and fills a [`RowSink`], which gives
//! record batches of bounded size. Errors name the line and, where one is at fault, the column. An
//! encoder writes one row of a batch at a time.

mod binary;
mod csv;
mod text;

#[cfg(test)]
mod tests;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;

use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CopyFormat, CopyStatement, ForceQuote};
use crate::types::SqlType;
use crate::values::input::ColumnBuilder;
use crate::values::{OutputSettings, RowEncoder};

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// Bytes of input after which a batch is cut whatever its rows.
const BATCH_BYTES: usize = 4 << 20;
/// Largest line or row taken: PostgreSQL's limit of a field.
const LINE_MAX_BYTES: usize = 1 << 30;

/// Collects decoded rows.
pub(crate) struct RowSink {
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    bytes: usize,
    /// Line (text, csv) or row (binary) being decoded, from 1.
    line: u64,
}

/// A value on its way into a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Text(&'a str),
    Binary(&'a [u8]),
}

impl RowSink {
    fn new(schema: SchemaRef, settings: &OutputSettings) -> Result<Self> {
        let builders = schema
            .fields()
            .iter()
            .map(|field| {
                let sql_type = SqlType::from_field(field).ok_or_else(|| {
                    Error::unsupported(format!("column \"{}\" cannot be copied", field.name()))
                })?;
                Ok(ColumnBuilder::new(&sql_type, settings))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            schema,
            builders,
            rows: 0,
            bytes: 0,
            line: 0,
        })
    }

    fn width(&self) -> usize {
        self.builders.len()
    }

    /// Sets one value of the current row; every column must be set once before `end_row`.
    fn set(&mut self, column: usize, value: Value<'_>) -> Result<()> {
        let builder = &mut self.builders[column];
        let appended = match value {
            Value::Null => {
                builder.append_null();
                Ok(())
            }
            Value::Text(text) => builder.append_text(text),
            // COPY has no OIDs: each value is of its column's own type.
            Value::Binary(bytes) => {
                let field = self.schema.field(column).clone();
                let oid = SqlType::from_field(&field.into()).map_or(25, |t| t.pg_oid());
                builder.append_binary(oid, bytes)
            }
        };
        appended.map_err(|error| self.located(column, error, value))
    }

    fn end_row(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Adds where it happened to an error.
    fn located(&self, column: usize, error: Error, value: Value<'_>) -> Error {
        let name = self.schema.field(column).name();
        let shown = match value {
            Value::Text(text) => format!(": \"{}\"", text.chars().take(100).collect::<String>()),
            _ => String::new(),
        };
        let place = format!("COPY line {}, column {name}{shown}.", self.line);
        match error.detail_text().map(str::to_owned) {
            Some(detail) => error.detail(format!("{detail} {place}")),
            None => error.detail(place),
        }
    }

    /// `HEADER match`: the header's names are those of the columns.
    fn check_header<'a>(&self, names: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
        let (found, wanted) = (names.len(), self.width());
        if found != wanted {
            return Err(self.bad_format(format!(
                "wrong number of fields in header line: got {found}, expected {wanted}"
            )));
        }
        for (column, name) in names.enumerate() {
            let wanted = self.schema.field(column).name();
            if name != wanted.as_bytes() {
                let name = String::from_utf8_lossy(name);
                return Err(self.bad_format(format!(
                    "column name mismatch in header line field {}: got \"{name}\", expected \"{wanted}\"",
                    column + 1
                )));
            }
        }
        Ok(())
    }

    /// 22P04 at the current line.
    fn bad_format(&self, primary: impl Into<String>) -> Error {
        Error::new(sqlstate::BAD_COPY_FORMAT, primary).detail(format!("COPY line {}.", self.line))
    }

    fn missing(&self, column: usize) -> Error {
        let name = self.schema.field(column).name();
        self.bad_format(format!("missing data for column \"{name}\""))
    }

    fn take(&mut self, all: bool) -> Result<Option<RecordBatch>> {
        let full = self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        if self.rows == 0 || !(full || all) {
            return Ok(None);
        }
        (self.rows, self.bytes) = (0, 0);
        let mut columns = Vec::with_capacity(self.builders.len());
        for (builder, field) in self.builders.iter_mut().zip(self.schema.fields()) {
            let array = builder.finish();
            columns.push(match array.data_type() == field.data_type() {
                true => array,
                false => cast(&array, field.data_type())?,
            });
        }
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }
}

/// Decodes what a client sends after `COPY … FROM STDIN`.
pub(crate) struct Decoder {
    sink: RowSink,
    /// bytes of an unfinished line or row
    pending: BytesMut,
    format: FormatDecoder,
}

enum FormatDecoder {
    Text(text::TextDecoder),
    Csv(csv::CsvDecoder),
    Binary(binary::BinaryDecoder),
}

impl Decoder {
    /// A decoder of the statement's format for rows of `schema`.
    pub fn new(
        statement: &CopyStatement,
        schema: SchemaRef,
        settings: &OutputSettings,
    ) -> Result<Self> {
        Ok(Self {
            sink: RowSink::new(schema, settings)?,
            pending: BytesMut::new(),
            format: match statement.format {
                CopyFormat::Text => FormatDecoder::Text(text::TextDecoder::new(statement)),
                CopyFormat::Csv => FormatDecoder::Csv(csv::CsvDecoder::new(statement)),
                CopyFormat::Binary => FormatDecoder::Binary(binary::BinaryDecoder::default()),
            },
        })
    }

    /// Takes more bytes; `finish` says that they are the last.
    pub fn push(&mut self, bytes: &[u8], finish: bool) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        let used = match &mut self.format {
            FormatDecoder::Text(decoder) => decoder.decode(&self.pending, finish, &mut self.sink),
            FormatDecoder::Csv(decoder) => decoder.decode(&self.pending, finish, &mut self.sink),
            FormatDecoder::Binary(decoder) => decoder.decode(&self.pending, finish, &mut self.sink),
        }?;
        bytes::Buf::advance(&mut self.pending, used);
        match self.pending.len() > LINE_MAX_BYTES {
            true => Err(Error::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "a line of COPY is too long",
            )
            .detail(format!("COPY line {}.", self.sink.line + 1))),
            false => Ok(()),
        }
    }

    /// A batch when enough rows are there, or (`all`) the rest.
    pub fn take(&mut self, all: bool) -> Result<Option<RecordBatch>> {
        self.sink.take(all)
    }
}

/// Encodes the rows of `COPY … TO STDOUT`.
pub(crate) struct Encoder<'a> {
    statement: &'a CopyStatement,
    /// Columns whose values are always quoted.
    quoted: Vec<bool>,
}

impl<'a> Encoder<'a> {
    /// An encoder of the statement's format; 42703 for a column of FORCE_QUOTE that is none.
    pub fn new(statement: &'a CopyStatement, schema: &SchemaRef) -> Result<Self> {
        let width = schema.fields().len();
        let quoted = match &statement.force_quote {
            ForceQuote::All => vec![true; width],
            ForceQuote::Columns(names) => {
                let mut quoted = vec![false; width];
                for name in names {
                    let at = schema.index_of(name).map_err(|_| {
                        Error::new(
                            sqlstate::UNDEFINED_COLUMN,
                            format!("column \"{name}\" does not exist"),
                        )
                    })?;
                    quoted[at] = true;
                }
                quoted
            }
        };
        Ok(Self { statement, quoted })
    }

    fn is_quoted(&self, column: usize) -> bool {
        self.quoted.get(column).copied().unwrap_or(false)
    }

    /// Bytes before the first row: binary signature, or the header line.
    pub fn start(&self, schema: &SchemaRef, out: &mut BytesMut) {
        match self.statement.format {
            CopyFormat::Binary => {
                out.put_slice(binary::SIGNATURE);
                out.put_u64(0);
            }
            _ if !self.statement.header => {}
            format => {
                for (n, field) in schema.fields().iter().enumerate() {
                    if n > 0 {
                        out.put_u8(self.statement.delimiter);
                    }
                    let start = out.len();
                    out.put_slice(field.name().as_bytes());
                    match format {
                        CopyFormat::Csv => csv::quote(self.statement, false, out, start),
                        _ => text::escape(self.statement, out, start),
                    }
                }
                out.put_u8(b'\n');
            }
        }
    }

    /// One row.
    pub fn row(&self, rows: &RowEncoder<'_>, row: usize, out: &mut BytesMut) -> Result<()> {
        if self.statement.format == CopyFormat::Binary {
            return rows.tuple(row, out);
        }
        for column in 0..rows.width() {
            if column > 0 {
                out.put_u8(self.statement.delimiter);
            }
            let start = out.len();
            if !rows.text(row, column, out)? {
                out.put_slice(self.statement.null.as_bytes());
                continue;
            }
            match self.statement.format {
                CopyFormat::Csv => {
                    csv::quote(self.statement, self.is_quoted(column), out, start);
                }
                _ => text::escape(self.statement, out, start),
            }
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// Bytes after the last row.
    pub fn end(&self, out: &mut BytesMut) {
        if self.statement.format == CopyFormat::Binary {
            out.put_i16(-1);
        }
    }
}

/// UTF-8 or 22021 at the current line.
fn utf8<'a>(bytes: &'a [u8], sink: &RowSink) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|e| {
        crate::values::invalid_utf8(&bytes[e.valid_up_to()..])
            .detail(format!("COPY line {}.", sink.line))
    })
}

//! COPY's CSV format: quotes may hold delimiters and line ends, NULL is an unquoted marker.

use bytes::{BufMut, BytesMut};

use super::{RowSink, Value, utf8};
use crate::error::Result;
use crate::sql::statement::CopyStatement;

/// State between pieces of input.
pub(super) struct CsvDecoder {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    skip_header: bool,
    header_match: bool,
    ended: bool,
    /// bytes of the unfinished record that were searched already
    searched: usize,
    in_quotes: bool,
}

/// One field of a record.
struct Field {
    bytes: Vec<u8>,
    quoted: bool,
}

impl CsvDecoder {
    pub fn new(statement: &CopyStatement) -> Self {
        Self {
            delimiter: statement.delimiter,
            quote: statement.quote,
            escape: statement.escape,
            null: statement.null.clone(),
            skip_header: statement.header,
            header_match: statement.header_match,
            ended: false,
            searched: 0,
            in_quotes: false,
        }
    }

    /// Decodes whole records; returns the bytes used.
    pub fn decode(&mut self, input: &[u8], finish: bool, sink: &mut RowSink) -> Result<usize> {
        let mut used = 0;
        while !self.ended {
            let rest = &input[used..];
            let (record, next) = match self.record_end(rest, finish) {
                Some(end) => (&rest[..end], end + 1),
                None if finish && !rest.is_empty() => {
                    if self.in_quotes {
                        sink.line += 1;
                        return Err(sink.bad_format("unterminated CSV quoted field"));
                    }
                    (rest, rest.len())
                }
                None => return Ok(used),
            };
            self.searched = 0;
            used += next;
            self.record(record.strip_suffix(b"\r").unwrap_or(record), sink)?;
        }
        Ok(input.len())
    }

    /// The newline outside quotes that ends a record.
    fn record_end(&mut self, input: &[u8], finish: bool) -> Option<usize> {
        let mut at = self.searched;
        while at < input.len() {
            let byte = input[at];
            if self.in_quotes {
                if byte == self.escape && self.escape != self.quote {
                    // The escaped byte must be here to be judged.
                    if at + 1 >= input.len() && !finish {
                        break;
                    }
                    let escapes = input
                        .get(at + 1)
                        .is_some_and(|next| *next == self.quote || *next == self.escape);
                    at += if escapes { 2 } else { 1 };
                    continue;
                }
                // A doubled quote leaves and enters the quotes again.
                self.in_quotes = byte != self.quote;
            } else if byte == self.quote {
                self.in_quotes = true;
            } else if byte == b'\n' {
                return Some(at);
            }
            at += 1;
        }
        self.searched = at;
        None
    }

    fn record(&mut self, record: &[u8], sink: &mut RowSink) -> Result<()> {
        sink.line += 1;
        let newlines = record.iter().filter(|b| **b == b'\n').count() as u64;
        if std::mem::take(&mut self.skip_header) {
            if self.header_match {
                let fields = self.split(record);
                sink.check_header(fields.iter().map(|f| &*f.bytes))?;
            }
            sink.line += newlines;
            return Ok(());
        }
        if record == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let fields = self.split(record);
        let width = sink.width();
        if width == 0 && record.is_empty() {
            sink.end_row(1);
            return Ok(());
        }
        if fields.len() < width {
            return Err(sink.missing(fields.len()));
        }
        if fields.len() > width {
            return Err(sink.bad_format("extra data after last expected column"));
        }
        for (column, field) in fields.iter().enumerate() {
            if !field.quoted && field.bytes == self.null.as_bytes() {
                sink.set(column, Value::Null)?;
            } else {
                let text = utf8(&field.bytes, sink)?;
                sink.set(column, Value::Text(text))?;
            }
        }
        sink.line += newlines;
        sink.end_row(record.len());
        Ok(())
    }

    fn split(&self, record: &[u8]) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut field = Field {
            bytes: Vec::new(),
            quoted: false,
        };
        let mut in_quotes = false;
        let mut at = 0;
        while at < record.len() {
            let byte = record[at];
            let next = record.get(at + 1);
            at += 1;
            if in_quotes {
                let escaped = byte == self.escape
                    && next.is_some_and(|n| *n == self.quote || *n == self.escape);
                if escaped {
                    field.bytes.push(record[at]);
                    at += 1;
                } else if byte == self.quote {
                    in_quotes = false;
                } else {
                    field.bytes.push(byte);
                }
            } else if byte == self.quote {
                in_quotes = true;
                field.quoted = true;
            } else if byte == self.delimiter {
                let next_field = Field {
                    bytes: Vec::new(),
                    quoted: false,
                };
                fields.push(std::mem::replace(&mut field, next_field));
            } else {
                field.bytes.push(byte);
            }
        }
        fields.push(field);
        fields
    }
}

/// Quotes what was written into `out` from `start` on, where it needs quotes.
pub(super) fn quote(statement: &CopyStatement, is_forced: bool, out: &mut BytesMut, start: usize) {
    let text = &out[start..];
    let special =
        |b: &u8| *b == statement.delimiter || *b == statement.quote || matches!(b, b'\n' | b'\r');
    let needed = is_forced
        || text == statement.null.as_bytes()
        || text == b"\\."
        || text.iter().any(special);
    if !needed {
        return;
    }
    let plain = text.to_vec();
    out.truncate(start);
    out.put_u8(statement.quote);
    for byte in plain {
        if byte == statement.quote || byte == statement.escape {
            out.put_u8(statement.escape);
        }
        out.put_u8(byte);
    }
    out.put_u8(statement.quote);
}

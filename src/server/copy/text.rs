//! COPY's text format: tab-separated, backslash escapes, `\N` for NULL, `\.` ends the data.

use bytes::{BufMut, BytesMut};

use super::{RowSink, Value, utf8};
use crate::error::Result;
use crate::sql::statement::CopyStatement;

/// State between pieces of input.
pub(super) struct TextDecoder {
    delimiter: u8,
    null: String,
    skip_header: bool,
    header_match: bool,
    ended: bool,
    /// bytes of the unfinished line that were searched already
    searched: usize,
}

impl TextDecoder {
    pub fn new(statement: &CopyStatement) -> Self {
        Self {
            delimiter: statement.delimiter,
            null: statement.null.clone(),
            skip_header: statement.header,
            header_match: statement.header_match,
            ended: false,
            searched: 0,
        }
    }

    /// Decodes whole lines; returns the bytes used.
    pub fn decode(&mut self, input: &[u8], finish: bool, sink: &mut RowSink) -> Result<usize> {
        let mut used = 0;
        while !self.ended {
            let rest = &input[used..];
            let (line, next) = match self.line_end(rest) {
                Some(end) => (&rest[..end], end + 1),
                None if finish && !rest.is_empty() => (rest, rest.len()),
                None => return Ok(used),
            };
            self.searched = 0;
            used += next;
            self.line(line.strip_suffix(b"\r").unwrap_or(line), sink)?;
        }
        // What follows the end marker is ignored.
        Ok(input.len())
    }

    /// The newline that ends a line: one that no backslash precedes.
    fn line_end(&mut self, input: &[u8]) -> Option<usize> {
        let mut at = self.searched;
        while at < input.len() {
            match input[at] {
                b'\n' => return Some(at),
                b'\\' if at + 1 < input.len() => at += 2,
                b'\\' => break,
                _ => at += 1,
            }
        }
        self.searched = at;
        None
    }

    fn line(&mut self, line: &[u8], sink: &mut RowSink) -> Result<()> {
        sink.line += 1;
        if std::mem::take(&mut self.skip_header) {
            if self.header_match {
                let mut names = Vec::new();
                let mut rest = Some(line);
                while let Some(field) = rest {
                    let (raw, after) = self.split(field);
                    names.push(unescape(raw));
                    rest = after;
                }
                sink.check_header(names.iter().map(Vec::as_slice))?;
            }
            return Ok(());
        }
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let width = sink.width();
        if width == 0 {
            return match line.is_empty() {
                true => {
                    sink.end_row(1);
                    Ok(())
                }
                false => Err(sink.bad_format("extra data after last expected column")),
            };
        }
        let mut rest = Some(line);
        for column in 0..width {
            let field = rest.ok_or_else(|| sink.missing(column))?;
            let (raw, after) = self.split(field);
            rest = after;
            if raw == self.null.as_bytes() {
                sink.set(column, Value::Null)?;
                continue;
            }
            match raw.contains(&b'\\') {
                false => {
                    let text = utf8(raw, sink)?;
                    sink.set(column, Value::Text(text))?;
                }
                true => {
                    let bytes = unescape(raw);
                    let text = utf8(&bytes, sink)?.to_owned();
                    sink.set(column, Value::Text(&text))?;
                }
            }
        }
        if rest.is_some() {
            return Err(sink.bad_format("extra data after last expected column"));
        }
        sink.end_row(line.len());
        Ok(())
    }

    fn split<'a>(&self, input: &'a [u8]) -> (&'a [u8], Option<&'a [u8]>) {
        let mut at = 0;
        while at < input.len() {
            match input[at] {
                b if b == self.delimiter => return (&input[..at], Some(&input[at + 1..])),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        (input, None)
    }
}

fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' || at + 1 == raw.len() {
            bytes.push(raw[at]);
            at += 1;
            continue;
        }
        at += 2;
        match raw[at - 1] {
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(11),
            first @ b'0'..=b'7' => {
                let (value, length) = number(&raw[at..], 2, 8, u32::from(first - b'0'));
                bytes.push(value as u8);
                at += length;
            }
            b'x' => match number(&raw[at..], 2, 16, 0) {
                (_, 0) => bytes.push(b'x'),
                (value, length) => {
                    bytes.push(value as u8);
                    at += length;
                }
            },
            other => bytes.push(other),
        }
    }
    bytes
}

/// Up to `most` more digits; the value and how many were there.
fn number(input: &[u8], most: usize, radix: u32, first: u32) -> (u32, usize) {
    let mut value = first;
    let mut length = 0;
    for byte in input.iter().take(most) {
        let Some(digit) = char::from(*byte).to_digit(radix) else {
            break;
        };
        value = value * radix + digit;
        length += 1;
    }
    (value, length)
}

/// Escapes what was written into `out` from `start` on.
pub(super) fn escape(statement: &CopyStatement, out: &mut BytesMut, start: usize) {
    let special = |b: &u8| *b == statement.delimiter || matches!(b, b'\\' | 8..=13);
    if !out[start..].iter().any(special) {
        return;
    }
    let plain = out[start..].to_vec();
    out.truncate(start);
    for byte in plain {
        match byte {
            8 => out.put_slice(b"\\b"),
            b'\t' => out.put_slice(b"\\t"),
            b'\n' => out.put_slice(b"\\n"),
            11 => out.put_slice(b"\\v"),
            12 => out.put_slice(b"\\f"),
            b'\r' => out.put_slice(b"\\r"),
            byte => {
                if byte == b'\\' || byte == statement.delimiter {
                    out.put_u8(b'\\');
                }
                out.put_u8(byte);
            }
        }
    }
}

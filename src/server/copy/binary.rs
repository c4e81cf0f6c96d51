//! COPY's binary format: a signature, then tuples of length-prefixed binary values, then -1.

use bytes::Buf;

use super::{RowSink, Value};
use crate::error::{Error, Result};

/// First bytes of the format; four bytes of flags and the length of an extension follow.
pub(super) const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEADER_BYTES: usize = 19;

/// State between pieces of input.
#[derive(Default)]
pub(super) struct BinaryDecoder {
    header_read: bool,
    ended: bool,
}

impl BinaryDecoder {
    /// Decodes whole tuples; returns the bytes used.
    pub fn decode(&mut self, input: &[u8], finish: bool, sink: &mut RowSink) -> Result<usize> {
        let mut used = 0;
        if !self.header_read {
            match header_length(input, sink)? {
                Some(length) => used = length,
                None if finish => {
                    return Err(sink.bad_format("COPY file signature not recognized"));
                }
                None => return Ok(0),
            }
            self.header_read = true;
        }
        while !self.ended {
            match self.tuple(&input[used..], sink)? {
                Some(length) => used += length,
                // The end of the rows may be the end of the data too: some drivers send no trailer.
                None if finish && used == input.len() => self.ended = true,
                None if finish => return Err(sink.bad_format("unexpected EOF in COPY data")),
                None => return Ok(used),
            }
        }
        match used == input.len() {
            true => Ok(used),
            false => Err(sink.bad_format("received copy data after EOF marker")),
        }
    }

    /// Decodes one tuple if all of it is here; its length.
    fn tuple(&mut self, input: &[u8], sink: &mut RowSink) -> Result<Option<usize>> {
        let Some(count) = input.get(..2).map(|mut b| b.get_i16()) else {
            return Ok(None);
        };
        if count == -1 {
            self.ended = true;
            return Ok(Some(2));
        }
        if usize::try_from(count) != Ok(sink.width()) {
            sink.line += 1;
            let width = sink.width();
            return Err(sink.bad_format(format!("row field count is {count}, expected {width}")));
        }
        let mut values: Vec<Option<&[u8]>> = Vec::with_capacity(sink.width());
        let mut at = 2;
        for _ in 0..count {
            let Some(length) = input.get(at..at + 4).map(|mut b| b.get_i32()) else {
                return Ok(None);
            };
            at += 4;
            if length == -1 {
                values.push(None);
                continue;
            }
            let length = usize::try_from(length).map_err(|_| invalid_size(sink))?;
            let Some(bytes) = input.get(at..at + length) else {
                return Ok(None);
            };
            at += length;
            values.push(Some(bytes));
        }
        sink.line += 1;
        for (column, value) in values.into_iter().enumerate() {
            sink.set(column, value.map_or(Value::Null, Value::Binary))?;
        }
        sink.end_row(at);
        Ok(Some(at))
    }
}

fn invalid_size(sink: &RowSink) -> Error {
    sink.bad_format("invalid field size")
}

fn header_length(input: &[u8], sink: &RowSink) -> Result<Option<usize>> {
    let known = input.len().min(SIGNATURE.len());
    if input[..known] != SIGNATURE[..known] {
        return Err(sink.bad_format("COPY file signature not recognized"));
    }
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let flags = (&input[11..15]).get_u32();
    if flags & 0xffff_0000 != 0 {
        return Err(sink.bad_format("unrecognized critical flags in COPY file header"));
    }
    let extension = usize::try_from((&input[15..19]).get_i32())
        .map_err(|_| sink.bad_format("invalid COPY file header"))?;
    let length = HEADER_BYTES + extension;
    Ok((input.len() >= length).then_some(length))
}

//! Records out of a byte stream, in bounded memory.
//!
//! Lines for JSON and text; for CSV a newline inside quotes belongs to the record. A last record
//! without newline counts: whether a file is complete is decided before it is read. A record
//! beyond [`RECORD_BYTES_MAX`] is given in its beginning only, marked overlong, and skipped.

use std::io::{self, Read};

use super::csv;

/// Bytes of one record at most.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Bytes of an overlong record that are given.
const BEGINNING_BYTES: usize = 64 << 10;

/// Bytes asked of the input at a time.
const READ_BYTES: usize = 1 << 20;

/// How records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordEnd {
    /// at every newline
    Newline,
    /// at newlines outside this quote
    NewlineOutside(u8),
}

/// One record as it stands in the input.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its bytes without the line end.
    pub bytes: &'a [u8],
    /// Its bytes with the line end.
    pub length: usize,
    /// Line it starts at, from 1.
    pub line: u64,
    /// It is longer than allowed, and `bytes` is only its beginning.
    pub overlong: bool,
}

/// Cuts a byte stream into records.
pub struct RecordReader<R> {
    input: R,
    end: RecordEnd,
    buffer: Vec<u8>,
    /// Unread part of `buffer`.
    start: usize,
    filled: usize,
    ended: bool,
    line: u64,
    record_bytes_max: usize,
}

impl<R: Read> RecordReader<R> {
    /// Records of `input`.
    pub fn new(input: R, end: RecordEnd) -> Self {
        Self::with_limit(input, end, RECORD_BYTES_MAX)
    }

    fn with_limit(input: R, end: RecordEnd, record_bytes_max: usize) -> Self {
        Self {
            input,
            end,
            buffer: vec![],
            start: 0,
            filled: 0,
            ended: false,
            line: 1,
            record_bytes_max,
        }
    }

    /// The next record, `None` at the end.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        let mut scanned = 0;
        let (length, complete) = loop {
            let unread = &self.buffer[self.start..self.filled];
            let found = match self.end {
                RecordEnd::Newline => find_byte(unread, scanned, b'\n').map(|i| i + 1),
                RecordEnd::NewlineOutside(quote) => csv::record_length(unread, quote),
            };
            if let Some(length) = found {
                break (length, true);
            }
            if unread.len() > self.record_bytes_max {
                break (unread.len(), false);
            }
            if self.ended {
                if unread.is_empty() {
                    return Ok(None);
                }
                break (unread.len(), true);
            }
            scanned = unread.len();
            self.fill()?;
        };
        let line = self.line;
        let start = self.start;
        self.start += length;
        if complete {
            let bytes = &self.buffer[start..start + length];
            self.line += match self.end {
                RecordEnd::Newline => 1,
                RecordEnd::NewlineOutside(_) => {
                    bytes.iter().filter(|b| **b == b'\n').count() as u64
                }
            };
            let bytes = without_line_end(bytes);
            let overlong = bytes.len() > self.record_bytes_max;
            return Ok(Some(Record {
                bytes: &bytes[..if overlong {
                    BEGINNING_BYTES.min(bytes.len())
                } else {
                    bytes.len()
                }],
                length,
                line,
                overlong,
            }));
        }
        self.skip_overlong(start, length, line)
    }

    /// Keeps the beginning of an overlong record and reads past its newline.
    fn skip_overlong(
        &mut self,
        start: usize,
        mut length: usize,
        line: u64,
    ) -> io::Result<Option<Record<'_>>> {
        let beginning = self.buffer[start..start + BEGINNING_BYTES.min(length)].to_vec();
        loop {
            self.start = self.filled;
            self.fill()?;
            let unread = &self.buffer[self.start..self.filled];
            match find_byte(unread, 0, b'\n') {
                Some(i) => {
                    self.start += i + 1;
                    length += i + 1;
                    break;
                }
                None => length += unread.len(),
            }
            if self.ended {
                self.start = self.filled;
                break;
            }
        }
        self.line += 1;
        // The beginning must live in the buffer to be lent: it goes before the unread bytes.
        let kept = beginning.len();
        let mut buffer = beginning;
        buffer.extend_from_slice(&self.buffer[self.start..self.filled]);
        self.buffer = buffer;
        self.start = kept;
        self.filled = self.buffer.len();
        Ok(Some(Record {
            bytes: &self.buffer[..kept],
            length,
            line,
            overlong: true,
        }))
    }

    /// Reads more, moving the unread bytes to the front first.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize(self.filled + READ_BYTES, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }
}

fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Position of `byte` in `bytes` at or after `from`, eight bytes at a time.
pub fn find_byte(bytes: &[u8], from: usize, byte: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let needle = ONES * u64::from(byte);
    let mut at = from;
    while let Some(eight) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(eight.try_into().expect("eight bytes")) ^ needle;
        let found = word.wrapping_sub(ONES) & !word & HIGHS;
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes
        .get(at..)?
        .iter()
        .position(|b| *b == byte)
        .map(|i| at + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, so that every border falls somewhere.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn all(input: &[u8], step: usize, end: RecordEnd, limit: usize) -> Vec<(String, u64, bool)> {
        let mut reader = RecordReader::with_limit(Trickle(input, step), end, limit);
        let mut records = vec![];
        let mut bytes = 0;
        while let Some(record) = reader.next_record().unwrap() {
            bytes += record.length;
            records.push((
                String::from_utf8_lossy(record.bytes).into_owned(),
                record.line,
                record.overlong,
            ));
        }
        assert_eq!(bytes, input.len());
        records
    }

    #[test]
    fn lines_with_any_borders() {
        for step in 1..9 {
            let lines = all(b"a\n\r\nbb\r\nccc", step, RecordEnd::Newline, 100);
            let texts: Vec<_> = lines.iter().map(|l| (l.0.as_str(), l.1)).collect();
            assert_eq!(texts, [("a", 1), ("", 2), ("bb", 3), ("ccc", 4)]);
        }
        assert!(all(b"", 1, RecordEnd::Newline, 10).is_empty());
    }

    #[test]
    fn quoted_newlines_stay_inside_a_record() {
        for step in 1..9 {
            let end = RecordEnd::NewlineOutside(b'"');
            let records = all(b"1,\"a\nb\"\n2,\"\"\"\n\"\n3,c\n", step, end, 100);
            let lines: Vec<_> = records.iter().map(|r| r.1).collect();
            assert_eq!(lines, [1, 3, 5]);
            assert_eq!(records[0].0, "1,\"a\nb\"");
        }
    }

    #[test]
    fn an_overlong_record_is_cut_and_skipped() {
        for step in [1, 3, 64] {
            let records = all(
                b"ok\n0123456789abcdefghij\nend\n",
                step,
                RecordEnd::Newline,
                8,
            );
            assert_eq!(records.len(), 3, "{records:?}");
            assert!(records[1].2 && records[1].0.starts_with("01234567"));
            assert_eq!(records[2], ("end".to_owned(), 3, false));
        }
    }
}

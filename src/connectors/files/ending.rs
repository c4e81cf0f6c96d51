//! Whether the last line of a file is all there.
//!
//! A writer that appends leaves half a line for a moment. A newline at the end tells that a line is
//! whole (outside quotes in CSV), and so does a JSON value that closes. Without either nothing is
//! certain, except for JSON that stops in the middle of a value.

use std::io::{self, Read};

use serde::de::IgnoredAny;

use super::location::{FileEntry, Location, OpenFile};
use crate::connectors::formats::Format;

/// Bytes of a last line that are looked at; a longer line counts as not ended.
const TAIL_BYTES: u64 = 1 << 20;

/// How a file of lines ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// its last line is whole
    Whole,
    /// its last line has no end, and may be whole or not
    Open,
    /// its last line is a beginning only
    Cut,
    /// its size is not what the listing said: it is being written
    Changing,
}

/// Looks at the end of a file; for CSV, whose quotes may hide newlines, at all of it. Blocks.
pub fn of_file(location: &Location, entry: &FileEntry, format: &Format) -> io::Result<Ending> {
    let file = location.open(entry)?;
    if file.size()? != entry.size {
        return Ok(Ending::Changing);
    }
    if entry.size == 0 {
        return Ok(Ending::Open);
    }
    match format {
        Format::Csv(style) => csv_ending(file.reader(0).take(entry.size), style.quote),
        Format::Json => Ok(json_ending(&tail(&file, entry.size)?)),
        Format::Text | Format::Raw | Format::Parquet => {
            let last = file.read_at(entry.size - 1, 1)?;
            Ok(if last[..] == *b"\n" {
                Ending::Whole
            } else {
                Ending::Open
            })
        }
    }
}

fn tail(file: &OpenFile, size: u64) -> io::Result<bytes::Bytes> {
    let last = file.read_at(size - 1, 1)?;
    if last[..] == *b"\n" {
        return Ok(last);
    }
    let length = size.min(TAIL_BYTES);
    file.read_at(size - length, length as usize)
}

/// From the last bytes of a file of JSON lines, which hold all of its last line if it is not long.
fn json_ending(tail: &[u8]) -> Ending {
    if tail.ends_with(b"\n") {
        return Ending::Whole;
    }
    let line = match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => &tail[newline + 1..],
        None if tail.len() as u64 == TAIL_BYTES => return Ending::Open,
        None => tail.strip_prefix(b"\xef\xbb\xbf").unwrap_or(tail),
    };
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ending::Whole;
    }
    match serde_json::from_slice::<IgnoredAny>(line) {
        // A number or word might go on.
        Ok(_) if line.ends_with(b"}") || line.ends_with(b"]") => Ending::Whole,
        Err(e) if e.is_eof() => Ending::Cut,
        Ok(_) | Err(_) => Ending::Open,
    }
}

fn csv_ending(mut input: impl Read, quote: u8) -> io::Result<Ending> {
    let mut buffer = vec![0u8; 1 << 20];
    let mut quotes = 0usize;
    let mut last = 0u8;
    loop {
        let read = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        quotes += buffer[..read].iter().filter(|byte| **byte == quote).count();
        last = buffer[read - 1];
    }
    let whole = last == b'\n' && quotes.is_multiple_of(2);
    Ok(if whole { Ending::Whole } else { Ending::Open })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_end_by_newline_or_by_closing() {
        let cases: [(&[u8], Ending); 10] = [
            (b"{\"k\":1}\n", Ending::Whole),
            (b"{\"k\":1}\n{\"k\":2}", Ending::Whole),
            (b"{\"k\":1}\n  \t", Ending::Whole),
            (b"\xef\xbb\xbf{\"k\":1} ", Ending::Whole),
            (b"{\"k\":1}\n{\"k\":2,\"v\":", Ending::Cut),
            (b"{\"k\":\"a}", Ending::Cut),
            (b"{", Ending::Cut),
            (b"{\"k\":1}\noops", Ending::Open),
            (b"12", Ending::Open),
            (b"{\"k\":1}}", Ending::Open),
        ];
        for (tail, ending) in cases {
            assert_eq!(
                json_ending(tail),
                ending,
                "{}",
                String::from_utf8_lossy(tail)
            );
        }
    }

    #[test]
    fn csv_lines_end_outside_quotes() {
        let ending = |text: &str| csv_ending(text.as_bytes(), b'"').unwrap();
        assert_eq!(ending("a,b\n"), Ending::Whole);
        assert_eq!(ending("a,\"x\ny\"\n"), Ending::Whole);
        assert_eq!(ending("a,\"x\n"), Ending::Open);
        assert_eq!(ending("a,b\n1,2"), Ending::Open);
    }
}

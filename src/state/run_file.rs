//! The file form of a run: blocks with checksums, an index and a footer.
//!
//! `docs/checkpoint-format.md` has it byte by byte. Every number is little endian. Lengths are
//! checked against the bytes that are there before anything is allocated, so that a damaged file
//! costs an error, never memory. A reader can take one block at a time.

use std::ops::Range;

use super::TableId;
use super::run::{PREFIX_BYTES, Run, RunBuilder};
use crate::error::{Error, Result};

const MAGIC: [u8; 4] = *b"TMRN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
/// Bytes of entries after which a block ends.
const BLOCK_BYTES: usize = 128 * 1024;
/// Index entry: offset u64, length u32, entries u32.
const INDEX_ENTRY_BYTES: usize = 16;
/// Index offset u64, blocks u32, dropped tables u32, entries u64, checksum u32, magic.
const FOOTER_BYTES: usize = 32;
/// Entries u32, key bytes u32, value bytes u32.
const BLOCK_HEADER_BYTES: usize = 12;
/// Marks a tombstone in the list of value lengths.
const TOMBSTONE: u32 = u32::MAX;

impl Run {
    /// File form: blocks with checksums, an index and a footer (`checkpoint` documents it).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() + self.bytes() / 64 + 256);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let mut index = Vec::new();
        let mut start = 0;
        while start < self.len() {
            let end = self.block_end(start);
            let offset = out.len();
            self.encode_block(start, end, &mut out);
            index.extend_from_slice(&(offset as u64).to_le_bytes());
            index.extend_from_slice(&((out.len() - offset) as u32).to_le_bytes());
            index.extend_from_slice(&((end - start) as u32).to_le_bytes());
            start = end;
        }
        let tail_offset = out.len();
        let blocks = (index.len() / INDEX_ENTRY_BYTES) as u32;
        out.extend_from_slice(&index);
        for table in self.dropped_tables() {
            out.extend_from_slice(&table.0.to_le_bytes());
        }
        out.extend_from_slice(&(tail_offset as u64).to_le_bytes());
        out.extend_from_slice(&blocks.to_le_bytes());
        out.extend_from_slice(&(self.dropped_tables().len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        let checksum = crc32c::crc32c(&out[tail_offset..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    fn block_end(&self, start: usize) -> usize {
        let bytes_to = |end: usize| {
            let (keys, values) = self.entry_bytes(start..end);
            keys.len() + values.len() + 8 * (end - start)
        };
        // Bytes only grow with the end, so that shrinking steps find it.
        let mut end = start;
        let mut step = 1024;
        while step > 0 {
            while end + step <= self.len() && bytes_to(end + step) < BLOCK_BYTES {
                end += step;
            }
            step /= 4;
        }
        (end + 1).min(self.len())
    }

    fn encode_block(&self, start: usize, end: usize, out: &mut Vec<u8>) {
        let offset = out.len();
        let (keys, values) = self.entry_bytes(start..end);
        for number in [end - start, keys.len(), values.len()] {
            let number = u32::try_from(number).expect("keys and values are below 4 GiB");
            out.extend_from_slice(&number.to_le_bytes());
        }
        for index in start..end {
            out.extend_from_slice(&(self.key(index).len() as u32).to_le_bytes());
        }
        for index in start..end {
            let length = self.value(index).map_or(TOMBSTONE, |v| v.len() as u32);
            out.extend_from_slice(&length.to_le_bytes());
        }
        out.extend_from_slice(keys);
        out.extend_from_slice(values);
        let checksum = crc32c::crc32c(&out[offset..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the file form; any damage is an error of kind `Damaged` that names the block.
    pub fn decode(bytes: &[u8]) -> Result<Run> {
        check_header(bytes)?;
        let index = RunIndex::read(bytes)?;
        let mut run = index.decode_blocks(0..index.blocks.len(), bytes, 0)?;
        run.drop_tables(&index.dropped_tables);
        Ok(run)
    }
}

/// Where the blocks of a run file are: read from its end, so that a reader can take a few blocks
/// at a time.
#[derive(Debug)]
pub struct RunIndex {
    blocks: Vec<Block>,
    dropped_tables: Vec<TableId>,
}

#[derive(Debug)]
struct Block {
    offset: u64,
    length: u64,
    entries: usize,
}

/// Bytes from a file's end that hold the index of all but very large files.
pub const TAIL_BYTES: u64 = 64 << 10;

impl RunIndex {
    /// Reads the index from the last bytes of a file of `file_bytes`. Gives the number of bytes
    /// that are needed if `tail` holds too few.
    pub fn read_tail(tail: &[u8], file_bytes: u64) -> Result<Result<Self, u64>> {
        if tail.len() < FOOTER_BYTES || file_bytes < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            return Err(damaged(format!("{file_bytes} bytes are no run file")));
        }
        let footer = tail.len() - FOOTER_BYTES;
        if tail[tail.len() - 4..] != MAGIC {
            return Err(damaged("the file is cut: it has no footer".into()));
        }
        let index_offset = u64_at(tail, footer);
        let block_count = u64::from(u32_at(tail, footer + 8));
        let dropped_count = u64::from(u32_at(tail, footer + 12));
        let index_bytes = block_count * INDEX_ENTRY_BYTES as u64 + dropped_count * 8;
        let footer_offset = file_bytes - FOOTER_BYTES as u64;
        if index_offset < HEADER_BYTES as u64
            || index_offset.checked_add(index_bytes) != Some(footer_offset)
        {
            return Err(damaged("the footer does not fit the file".into()));
        }
        let needed = index_bytes + FOOTER_BYTES as u64;
        if needed > tail.len() as u64 {
            return Ok(Err(needed));
        }
        let tail = &tail[tail.len() - needed as usize..];
        if crc32c::crc32c(&tail[..tail.len() - 8]) != u32_at(tail, tail.len() - 8) {
            return Err(damaged("wrong checksum of the index".into()));
        }
        Self::parse(tail, index_offset, block_count as usize).map(Ok)
    }

    fn read(file: &[u8]) -> Result<Self> {
        Self::read_tail(file, file.len() as u64)?
            .map_err(|_| damaged("the footer does not fit the file".into()))
    }

    /// `tail` is index, dropped tables and footer, whose checksum is right.
    fn parse(tail: &[u8], index_offset: u64, block_count: usize) -> Result<Self> {
        let mut blocks = Vec::with_capacity(block_count);
        let mut expected_offset = HEADER_BYTES as u64;
        for number in 0..block_count {
            let at = number * INDEX_ENTRY_BYTES;
            let block = Block {
                offset: u64_at(tail, at),
                length: u64::from(u32_at(tail, at + 8)),
                entries: u32_at(tail, at + 12) as usize,
            };
            if block.offset != expected_offset || block.length > index_offset - block.offset {
                return Err(damaged(format!("block {number} does not fit the file")));
            }
            expected_offset += block.length;
            blocks.push(block);
        }
        if expected_offset != index_offset {
            return Err(damaged("there are bytes that belong to no block".into()));
        }
        let dropped = &tail[block_count * INDEX_ENTRY_BYTES..tail.len() - FOOTER_BYTES];
        let entries = u64_at(tail, tail.len() - 16);
        if entries != blocks.iter().map(|block| block.entries as u64).sum::<u64>() {
            return Err(damaged(
                "the footer counts other entries than its index".into(),
            ));
        }
        Ok(Self {
            blocks,
            dropped_tables: dropped
                .chunks_exact(8)
                .map(|table| TableId(u64_at(table, 0)))
                .collect(),
        })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Tables that the run drops.
    pub fn dropped_tables(&self) -> &[TableId] {
        &self.dropped_tables
    }

    /// The blocks from `first` on that fit into `bytes_max`, at least one, and where they lie in
    /// the file.
    pub fn stretch(&self, first: usize, bytes_max: u64) -> (Range<usize>, Range<u64>) {
        let start = self.blocks[first].offset;
        let mut end = first;
        while end < self.blocks.len()
            && (end == first
                || self.blocks[end].offset + self.blocks[end].length - start <= bytes_max)
        {
            end += 1;
        }
        let last = &self.blocks[end - 1];
        (first..end, start..last.offset + last.length)
    }

    /// Decodes blocks from `bytes`, which lie in the file from `offset` on. The run holds their
    /// entries only, not the dropped tables.
    pub fn decode_blocks(&self, blocks: Range<usize>, bytes: &[u8], offset: u64) -> Result<Run> {
        // Entries are at least 16 bytes in a block, so the index cannot ask for more than is there.
        let entries: usize = self.blocks[blocks.clone()].iter().map(|b| b.entries).sum();
        if entries > bytes.len() / 16 {
            return Err(damaged("the index counts more entries than fit".into()));
        }
        let mut builder = RunBuilder::with_capacity(entries, bytes.len() / 2, bytes.len() / 2);
        let mut last_key: &[u8] = &[];
        for number in blocks {
            let block = &self.blocks[number];
            let start = (block.offset - offset) as usize;
            let body = bytes
                .get(start..start + block.length as usize)
                .ok_or_else(|| damaged(format!("block {number} is cut")))?;
            last_key = decode_block(body, block.entries, last_key, &mut builder)
                .map_err(|why| damaged(format!("block {number}: {why}")))?;
        }
        Ok(builder.finish())
    }
}

fn check_header(bytes: &[u8]) -> Result<()> {
    if bytes.len() < HEADER_BYTES || bytes[..4] != MAGIC {
        return Err(damaged(format!("{} bytes are no run file", bytes.len())));
    }
    let version = u32_at(bytes, 4);
    if version != VERSION {
        return Err(Error::damaged(format!(
            "state run has format version {version}, this build reads version {VERSION}"
        ))
        .hint("Start the version of Tidemill that wrote it, or a newer one."));
    }
    Ok(())
}

/// Appends a block's entries; returns its last key.
fn decode_block<'a>(
    body: &'a [u8],
    entries: usize,
    last_key: &'a [u8],
    builder: &mut RunBuilder,
) -> Result<&'a [u8], &'static str> {
    if body.len() < BLOCK_HEADER_BYTES + 4 {
        return Err("it is cut");
    }
    let checked = body.len() - 4;
    if crc32c::crc32c(&body[..checked]) != u32_at(body, checked) {
        return Err("wrong checksum");
    }
    let count = u32_at(body, 0) as usize;
    let key_bytes = u32_at(body, 4) as usize;
    let value_bytes = u32_at(body, 8) as usize;
    if count != entries || BLOCK_HEADER_BYTES + 8 * count + key_bytes + value_bytes != checked {
        return Err("its lengths do not fit");
    }
    let lengths = &body[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + 8 * count];
    let mut keys = &body[BLOCK_HEADER_BYTES + 8 * count..checked - value_bytes];
    let mut values = &body[checked - value_bytes..checked];
    let mut last_key = last_key;
    for index in 0..count {
        let key = split(&mut keys, u32_at(lengths, 4 * index) as usize)?;
        let value = match u32_at(lengths, 4 * (count + index)) {
            TOMBSTONE => None,
            length => Some(split(&mut values, length as usize)?),
        };
        if key.len() < PREFIX_BYTES || key <= last_key {
            return Err("its keys do not ascend");
        }
        builder.push(key, value);
        last_key = key;
    }
    Ok(last_key)
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], &'static str> {
    let (head, rest) = bytes
        .split_at_checked(length)
        .ok_or("an entry is longer than its block")?;
    *bytes = rest;
    Ok(head)
}

fn damaged(why: String) -> Error {
    Error::damaged("state run is damaged").detail(format!("In the file: {why}."))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

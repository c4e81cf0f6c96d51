//! Merging runs at the location in bounded memory.
//!
//! Each input gives a window of its next blocks. Whatever is not greater than the smallest window
//! end of those that go on is final: it is merged and moves to the output, which is written in
//! parts. So a state of any size is merged with about a megabyte an input and one part in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::blob::PutOutcome;
use super::format::RunInfo;
use super::load::damaged_run;
use super::location::{Shared, unused_run_file};
use crate::error::{Error, Result};
use crate::state::run_file::{RunIndex, TAIL_BYTES};
use crate::state::{Run, TableId};

/// What a merge holds in memory at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct MergeLimits {
    /// Bytes that are read of an input at a time; at least one block is.
    pub(super) window_bytes: u64,
    /// Bytes of a part of the output.
    pub(super) part_bytes: usize,
}

impl Default for MergeLimits {
    fn default() -> Self {
        Self {
            window_bytes: 1 << 20,
            part_bytes: 32 << 20,
        }
    }
}

/// Attempts at a name that turns out to be taken.
const ATTEMPTS: usize = 5;

/// Runs of the same batches are the parts of one run, in key order.
pub(super) fn is_same_run(a: &RunInfo, b: &RunInfo) -> bool {
    (a.first_batch_id, a.last_batch_id) == (b.first_batch_id, b.last_batch_id)
}

/// Merges `oldest_first` and writes the parts of the result, which stay in flight. `drop_through`: nothing older lies
/// below, so tombstones are left out, up to that batch.
pub(super) async fn merge(
    shared: &Arc<Shared>,
    oldest_first: &[RunInfo],
    drop_through: Option<u64>,
    limits: MergeLimits,
) -> Result<Vec<RunInfo>> {
    let mut inputs = Vec::new();
    for parts in oldest_first.chunk_by(is_same_run) {
        inputs.insert(
            0,
            RunReader::open(shared, parts, limits.window_bytes).await?,
        );
    }
    let mut hidden = Vec::new();
    for input in &mut inputs {
        input.hidden_tables.clone_from(&hidden);
        hidden.extend_from_slice(&input.dropped_tables);
    }
    let mut output = PartWriter {
        shared,
        inputs: oldest_first,
        drop_through,
        parts: Vec::new(),
    };
    let mut part = Run::default();
    if drop_through.is_none() {
        for input in &inputs {
            part.drop_tables(&input.dropped_tables);
        }
    }
    loop {
        for input in &mut inputs {
            input.fill().await?;
        }
        let bound = inputs.iter().filter_map(RunReader::bound).min();
        let bound = bound.map(<[u8]>::to_vec);
        let stretches: Vec<Run> = inputs
            .iter_mut()
            .map(|input| input.take_through(bound.as_deref()))
            .collect();
        if stretches.iter().all(Run::is_empty) {
            break;
        }
        let merged = tokio::task::spawn_blocking(move || {
            let newest_first: Vec<&Run> = stretches.iter().collect();
            Run::merge(&newest_first, drop_through.is_some())
        })
        .await
        .map_err(|error| Error::internal(format!("merging runs ended abnormally: {error}")))?;
        part.append(&merged);
        if part.bytes() >= limits.part_bytes {
            output.put(std::mem::take(&mut part)).await?;
        }
    }
    if !part.changes_nothing() || output.parts.is_empty() {
        output.put(part).await?;
    }
    Ok(std::mem::take(&mut output.parts))
}

/// One input: its parts, block by block.
struct RunReader<'a> {
    shared: &'a Shared,
    window_bytes: u64,
    /// Parts that are not opened yet.
    parts: VecDeque<&'a RunInfo>,
    current: Option<(&'a RunInfo, RunIndex)>,
    next_block: usize,
    dropped_tables: Vec<TableId>,
    /// Tables that newer runs drop: their entries are not read where whole blocks hold them.
    hidden_tables: Vec<TableId>,
    window: Run,
    /// Entries of the window that are taken.
    taken: usize,
}

impl<'a> RunReader<'a> {
    async fn open(shared: &'a Shared, parts: &'a [RunInfo], window_bytes: u64) -> Result<Self> {
        let mut reader = Self {
            shared,
            window_bytes,
            parts: parts.iter().collect(),
            current: None,
            next_block: 0,
            dropped_tables: Vec::new(),
            hidden_tables: Vec::new(),
            window: Run::default(),
            taken: 0,
        };
        reader.open_part().await?;
        // The first part names the tables that the whole run drops.
        if let Some((_, index)) = &reader.current {
            reader.dropped_tables = index.dropped_tables().to_vec();
        }
        Ok(reader)
    }

    async fn open_part(&mut self) -> Result<()> {
        self.current = None;
        self.next_block = 0;
        let Some(info) = self.parts.pop_front() else {
            return Ok(());
        };
        let mut length = TAIL_BYTES.min(info.bytes);
        loop {
            let tail = self.read(info, info.bytes - length..info.bytes).await?;
            match RunIndex::read_tail(&tail, info.bytes)? {
                Ok(index) => {
                    self.current = Some((info, index));
                    return Ok(());
                }
                Err(needed) => length = needed,
            }
        }
    }

    async fn read(&self, info: &RunInfo, range: std::ops::Range<u64>) -> Result<Bytes> {
        let path = format!("state/{}", info.file);
        let length = range.end - range.start;
        match self.shared.store.get_range(&path, range).await? {
            Some(bytes) if bytes.len() as u64 == length => Ok(bytes),
            Some(_) => Err(damaged_run(self.shared, info, "the file is cut")),
            None => Err(damaged_run(self.shared, info, "the file is missing")),
        }
    }

    fn goes_on(&self) -> bool {
        !self.parts.is_empty()
            || self
                .current
                .as_ref()
                .is_some_and(|(_, index)| self.next_block < index.blocks())
    }

    /// Reads the next window if the last one is used up.
    async fn fill(&mut self) -> Result<()> {
        while self.taken == self.window.len() && self.goes_on() {
            let Some((info, index)) = &self.current else {
                return Ok(());
            };
            if self.next_block == index.blocks() {
                self.open_part().await?;
                continue;
            }
            let (mut window, mut end) = self.read_window(info, index, self.next_block).await?;
            let first = self.past_hidden(info, index, &window).await?;
            if first > self.next_block {
                (window, end) = self.read_window(info, index, first).await?;
            }
            self.window = window;
            self.next_block = end;
            self.taken = 0;
        }
        Ok(())
    }

    /// A window that begins with a block, and the block after it.
    async fn read_window(
        &self,
        info: &RunInfo,
        index: &RunIndex,
        first: usize,
    ) -> Result<(Run, usize)> {
        let (blocks, range) = index.stretch(first, self.window_bytes);
        let bytes = self.read(info, range.clone()).await?;
        let window = index.decode_blocks(blocks.clone(), &bytes, range.start)?;
        Ok((window, blocks.end))
    }

    /// The next block that must be read where the next one begins with a hidden table: where another
    /// table begins in a later one, those between hold the hidden table alone.
    async fn past_hidden(&self, info: &RunInfo, index: &RunIndex, window: &Run) -> Result<usize> {
        let next = self.next_block;
        if self.hidden_tables.is_empty() {
            return Ok(next);
        }
        let table = self.table_of(info, window)?;
        if !self.hidden_tables.contains(&table) {
            return Ok(next);
        }
        let last = index.blocks() - 1;
        if self.first_table(info, index, last).await? == table {
            return Ok(last);
        }
        // The last block that begins with the table: the next table may begin within it.
        let (mut low, mut high) = (next, last);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.first_table(info, index, middle).await? == table {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The table of a block's first entry.
    async fn first_table(&self, info: &RunInfo, index: &RunIndex, block: usize) -> Result<TableId> {
        let (blocks, range) = index.stretch(block, 0);
        let bytes = self.read(info, range.clone()).await?;
        let entries = index.decode_blocks(blocks, &bytes, range.start)?;
        self.table_of(info, &entries)
    }

    /// The table of the first of some entries.
    fn table_of(&self, info: &RunInfo, entries: &Run) -> Result<TableId> {
        let table = (!entries.is_empty())
            .then(|| entries.key(0))
            .and_then(|key| key.first_chunk());
        table
            .map(|table| TableId(u64::from_be_bytes(*table)))
            .ok_or_else(|| damaged_run(self.shared, info, "a block is empty"))
    }

    /// The last key of the window, if more will come after it.
    fn bound(&self) -> Option<&[u8]> {
        (self.goes_on() && !self.window.is_empty()).then(|| self.window.key(self.window.len() - 1))
    }

    /// Takes the entries up to and including `bound`; all of the window without one.
    fn take_through(&mut self, bound: Option<&[u8]>) -> Run {
        let end = match bound {
            None => self.window.len(),
            Some(bound) => {
                let end = self.window.lower_bound(self.taken, bound);
                let is_there = end < self.window.len() && self.window.key(end) == bound;
                end + usize::from(is_there)
            }
        };
        let mut stretch = self.window.slice(self.taken..end);
        self.taken = end;
        stretch.drop_tables(&self.dropped_tables);
        stretch
    }
}

/// Writes the parts of a merged run under names that no other run has.
struct PartWriter<'a> {
    shared: &'a Shared,
    inputs: &'a [RunInfo],
    drop_through: Option<u64>,
    parts: Vec<RunInfo>,
}

impl PartWriter<'_> {
    async fn put(&mut self, run: Run) -> Result<()> {
        let shared = self.shared;
        let first_batch_id = self.inputs[0].first_batch_id;
        let last_batch_id = self.inputs[self.inputs.len() - 1].last_batch_id;
        let bytes = Bytes::from(run.encode());
        shared.lease.check().await?;
        for _ in 0..ATTEMPTS {
            let file = {
                let mut state = shared.state.lock();
                let epoch = shared.lease.epoch();
                let file = unused_run_file(&state.files, first_batch_id, last_batch_id, epoch);
                // Whatever comes of it, the name is used.
                state
                    .files
                    .insert(format!("state/{file}"), bytes.len() as u64);
                state.in_flight.insert(file.clone());
                file
            };
            let outcome = shared
                .store
                .put_if_absent(&format!("state/{file}"), bytes.clone())
                .await;
            let is_written = outcome
                .as_ref()
                .is_ok_and(|outcome| *outcome != PutOutcome::Lost);
            if !is_written {
                shared.state.lock().in_flight.remove(&file);
                outcome?;
                continue;
            }
            self.parts.push(RunInfo {
                file,
                first_batch_id,
                last_batch_id,
                bytes: bytes.len() as u64,
                entries: run.len() as u64,
                crc32c: crc32c::crc32c(&bytes),
                tombstones_dropped_through: self
                    .inputs
                    .iter()
                    .filter_map(|input| input.tombstones_dropped_through)
                    .max()
                    .max(self.drop_through),
            });
            return Ok(());
        }
        Err(shared.contested("state"))
    }
}

impl Drop for PartWriter<'_> {
    fn drop(&mut self) {
        // Parts of a merge that failed; those of one that did not were taken out.
        let mut state = self.shared.state.lock();
        for part in &self.parts {
            state.in_flight.remove(&part.file);
        }
    }
}

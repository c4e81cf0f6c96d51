//! Blobs in memory with faults that a seed decides; for simulations.
//!
//! It behaves like a store between a careless caller and a power cut: a call may fail before or
//! after its effect, blobs written at the same time may be there each by itself, and after a crash
//! every call fails until [`FaultStore::restart`]. With `torn_writes` a crash may even leave a
//! prefix of a blob, which the stores themselves promise never to do, so that checksums are put to
//! the test. What was acknowledged always stays.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::blob::{Blob, BlobInfo, BlobStore, BlobVersion, Follows, PutOutcome};
use crate::error::{Error, Result, sqlstate};

/// How often what goes wrong, in thousandths of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// The call fails and has no effect.
    pub error_before: u64,
    /// The call has its effect and fails.
    pub error_after: u64,
    /// The process dies in the call.
    pub crash: u64,
    /// A crash may leave a prefix of what was being written.
    pub torn_writes: bool,
}

/// Blobs in memory, with faults.
#[derive(Debug)]
pub struct FaultStore {
    state: Mutex<FaultState>,
}

#[derive(Debug)]
struct FaultState {
    blobs: BTreeMap<String, Bytes>,
    random: u64,
    rates: FaultRates,
    crashed: bool,
    calls: u64,
    crash_at_call: Option<u64>,
    ranges_read: Vec<(String, Range<u64>)>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    ErrorBefore,
    ErrorAfter,
    Crash,
}

impl FaultStore {
    /// An empty store whose faults follow from `seed`.
    pub fn new(seed: u64, rates: FaultRates) -> Self {
        Self {
            state: Mutex::new(FaultState {
                blobs: BTreeMap::new(),
                random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                rates,
                crashed: false,
                calls: 0,
                crash_at_call: None,
                ranges_read: Vec::new(),
            }),
        }
    }

    /// The store died in a call.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// The machine is on again.
    pub fn restart(&self) {
        self.state.lock().crashed = false;
    }

    /// Other faults from now on.
    pub fn set_rates(&self, rates: FaultRates) {
        self.state.lock().rates = rates;
    }

    /// Writes and deletions so far.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// What was read of which blob by ranges, since this was last asked.
    pub fn take_ranges_read(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut self.state.lock().ranges_read)
    }

    /// Dies in the given write or deletion, counted from the first.
    pub fn crash_at_call(&self, call: u64) {
        self.state.lock().crash_at_call = Some(call);
    }

    /// Changes a blob behind everyone's back; for damage.
    pub fn tamper(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.state.lock();
        let Some(bytes) = state.blobs.get(path) else {
            return false;
        };
        let mut bytes = bytes.to_vec();
        change(&mut bytes);
        state.blobs.insert(path.to_owned(), bytes.into());
        true
    }

    /// Removes blobs behind everyone's back.
    pub fn lose(&self, is_lost: impl Fn(&str) -> bool) {
        self.state.lock().blobs.retain(|path, _| !is_lost(path));
    }

    /// A copy of all blobs.
    pub fn contents(&self) -> BTreeMap<String, Bytes> {
        self.state.lock().blobs.clone()
    }

    /// Replaces all blobs.
    pub fn set_contents(&self, blobs: BTreeMap<String, Bytes>) {
        self.state.lock().blobs = blobs;
    }
}

impl FaultState {
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn fate(&mut self) -> Result<Fate> {
        self.alive()?;
        self.calls += 1;
        if self.crash_at_call == Some(self.calls) {
            self.crash_at_call = None;
            self.crashed = true;
            return Ok(Fate::Crash);
        }
        let dice = self.below(1000);
        let rates = self.rates;
        Ok(if dice < rates.crash {
            self.crashed = true;
            Fate::Crash
        } else if dice < rates.crash + rates.error_before {
            Fate::ErrorBefore
        } else if dice < rates.crash + rates.error_before + rates.error_after {
            Fate::ErrorAfter
        } else {
            Fate::Done
        })
    }

    fn alive(&self) -> Result<()> {
        if self.crashed {
            return Err(Error::transient(sqlstate::IO_ERROR, "the store is down"));
        }
        Ok(())
    }

    fn version(&self, path: &str) -> BlobVersion {
        let bytes = self.blobs.get(path).map_or(&[][..], |bytes| bytes);
        BlobVersion(format!("{:x}-{}", crc32c::crc32c(bytes), bytes.len()))
    }

    /// The effect of a write that the process does not live to see.
    fn write_in_crash(&mut self, path: &str, bytes: &Bytes) {
        match self.below(3) {
            0 => {}
            1 if self.rates.torn_writes => {
                let cut = self.below(bytes.len() as u64 + 1) as usize;
                self.blobs.insert(path.to_owned(), bytes.slice(..cut));
            }
            _ => {
                self.blobs.insert(path.to_owned(), bytes.clone());
            }
        }
    }

    /// Writes blobs with the fate of the call.
    fn write(&mut self, blobs: &[(String, Bytes)]) -> Result<()> {
        match self.fate()? {
            Fate::Crash => {
                for (path, bytes) in blobs {
                    self.write_in_crash(path, bytes);
                }
                Err(injected("the process dies here"))
            }
            Fate::ErrorBefore => Err(injected("could not write")),
            fate => {
                self.blobs.extend(blobs.iter().cloned());
                if fate == Fate::ErrorAfter {
                    return Err(injected("the answer was lost"));
                }
                Ok(())
            }
        }
    }
}

fn injected(what: &str) -> Error {
    Error::transient(sqlstate::IO_ERROR, what)
}

#[async_trait]
impl BlobStore for FaultStore {
    fn describe(&self) -> String {
        "fault://".into()
    }

    async fn put_all(&self, blobs: Vec<(String, Bytes)>) -> Result<()> {
        self.state.lock().write(&blobs)
    }

    async fn put_after(
        &self,
        ahead: Vec<(String, Bytes)>,
        path: &str,
        bytes: Bytes,
        follows: Follows,
    ) -> Result<(Vec<PutOutcome>, Option<PutOutcome>)> {
        let is_loose = follows == Follows::OnceAcknowledged;
        let outcomes = {
            let mut state = self.state.lock();
            state.alive()?;
            let (new, taken): (Vec<_>, Vec<_>) = ahead
                .iter()
                .cloned()
                .partition(|(path, _)| !state.blobs.contains_key(path));
            let mut together = new;
            let is_new = taken.is_empty() && !state.blobs.contains_key(path);
            if is_loose && is_new {
                together.push((path.to_owned(), bytes.clone()));
            }
            state.write(&together)?;
            let outcome = |blob: &(String, Bytes)| {
                if taken.contains(blob) {
                    PutOutcome::Lost
                } else {
                    PutOutcome::Written(state.version(&blob.0))
                }
            };
            let outcomes = ahead.iter().map(outcome).collect::<Vec<_>>();
            if is_loose && is_new {
                let last = PutOutcome::Written(state.version(path));
                return Ok((outcomes, Some(last)));
            }
            outcomes
        };
        if outcomes.contains(&PutOutcome::Lost) {
            return Ok((outcomes, None));
        }
        let last = self.put_if_absent(path, bytes).await?;
        Ok((outcomes, Some(last)))
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        let mut state = self.state.lock();
        state.alive()?;
        if state.blobs.contains_key(path) {
            return Ok(PutOutcome::Lost);
        }
        state.write(&[(path.to_owned(), bytes)])?;
        Ok(PutOutcome::Written(state.version(path)))
    }

    async fn put_if_match(
        &self,
        path: &str,
        bytes: Bytes,
        version: &BlobVersion,
    ) -> Result<PutOutcome> {
        let mut state = self.state.lock();
        state.alive()?;
        if !state.blobs.contains_key(path) || state.version(path) != *version {
            return Ok(PutOutcome::Lost);
        }
        state.write(&[(path.to_owned(), bytes)])?;
        Ok(PutOutcome::Written(state.version(path)))
    }

    async fn get(&self, path: &str) -> Result<Option<Blob>> {
        let mut state = self.state.lock();
        state.alive()?;
        if state.below(1000) < state.rates.error_before {
            return Err(injected("could not read"));
        }
        Ok(state.blobs.get(path).map(|bytes| Blob {
            bytes: bytes.clone(),
            version: state.version(path),
        }))
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let read = (path.to_owned(), range.clone());
        self.state.lock().ranges_read.push(read);
        let blob = self.get(path).await?;
        Ok(blob.map(|blob| {
            let length = blob.bytes.len() as u64;
            let (start, end) = (range.start.min(length), range.end.min(length));
            blob.bytes.slice(start as usize..end.max(start) as usize)
        }))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobInfo>> {
        let state = self.state.lock();
        state.alive()?;
        Ok(state
            .blobs
            .iter()
            .filter(|(path, _)| path.starts_with(prefix) && !path.starts_with(".archive/"))
            .map(|(path, bytes)| BlobInfo {
                path: path.clone(),
                bytes: bytes.len() as u64,
            })
            .collect())
    }

    async fn delete(&self, paths: &[String]) -> Result<()> {
        let mut state = self.state.lock();
        let fate = state.fate()?;
        for path in paths {
            let is_done = match fate {
                Fate::ErrorBefore => false,
                Fate::Crash => state.below(2) == 0,
                Fate::Done | Fate::ErrorAfter => true,
            };
            if is_done {
                state.blobs.remove(path);
            }
        }
        match fate {
            Fate::Done => Ok(()),
            _ => Err(injected("could not delete")),
        }
    }

    async fn archive(&self, paths: &[String], label: &str) -> Result<()> {
        let mut state = self.state.lock();
        let fate = state.fate()?;
        for path in paths {
            let is_done = match fate {
                Fate::ErrorBefore => false,
                Fate::Crash => state.below(2) == 0,
                Fate::Done | Fate::ErrorAfter => true,
            };
            if is_done && let Some(bytes) = state.blobs.remove(path) {
                state
                    .blobs
                    .insert(format!(".archive/{label}/{path}"), bytes);
            }
        }
        match fate {
            Fate::Done => Ok(()),
            _ => Err(injected("could not archive")),
        }
    }
}

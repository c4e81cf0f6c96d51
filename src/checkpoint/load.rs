//! Loading the state of the resumed batch: runs one after the other, oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::format::RunInfo;
use super::location::Shared;
use super::merge::is_same_run;
use crate::error::{Error, Result};
use crate::state::{Run, StateStore};

/// Runs that together have at most this size stay in memory; older ones go to the cold tier.
const MEMORY_TIER_BYTES: u64 = 32 << 20;

/// A run to load.
#[derive(Debug)]
pub struct LoadedRun {
    /// Batch that the state is at after it.
    pub batch_id: u64,
    /// Its entries.
    pub run: Arc<Run>,
    /// It is large or old: it belongs into the cold tier. All base runs come before all others.
    pub is_base: bool,
    /// The state is at `batch_id` after it; false for a part of a run that others follow, which
    /// only base runs have.
    pub is_last_part: bool,
}

/// Gives the runs of a state, oldest first; see [`super::Checkpoint::load_runs_after`].
#[derive(Debug)]
pub struct RunLoader {
    shared: Arc<Shared>,
    discard_cold: bool,
    /// With whether they are base runs.
    runs: VecDeque<(RunInfo, bool)>,
    bytes_total: u64,
    bytes_loaded: u64,
    /// Ends with an empty run of this batch, if the last run is of an older one.
    end_batch: Option<u64>,
}

impl RunLoader {
    pub(super) fn new(shared: Arc<Shared>, cold_batch: Option<u64>, batch_id: u64) -> Self {
        Self::with_memory_tier(shared, cold_batch, batch_id, MEMORY_TIER_BYTES)
    }

    pub(super) fn with_memory_tier(
        shared: Arc<Shared>,
        cold_batch: Option<u64>,
        batch_id: u64,
        memory_tier_bytes: u64,
    ) -> Self {
        let all = shared.state.lock().runs.clone();
        let discard_cold = cold_batch.is_some_and(|cold| must_discard_cold(&all, cold, batch_id));
        let cold_batch = if discard_cold { None } else { cold_batch };
        let needed: Vec<RunInfo> = all
            .into_iter()
            .filter(|run| cold_batch.is_none_or(|cold| run.last_batch_id > cold))
            .collect();
        let last = needed.last().map(|run| run.last_batch_id).max(cold_batch);
        let end_batch = (last != Some(batch_id)).then_some(batch_id);
        let mut newer_bytes = 0;
        let mut is_base = false;
        let mut runs = VecDeque::new();
        let groups: Vec<&[RunInfo]> = needed.chunk_by(is_same_run).collect();
        for parts in groups.into_iter().rev() {
            newer_bytes += parts.iter().map(|part| part.bytes).sum::<u64>();
            // The parts of one run cannot be applied one by one.
            is_base |= newer_bytes > memory_tier_bytes || parts.len() > 1;
            for part in parts.iter().rev() {
                runs.push_front((part.clone(), is_base));
            }
        }
        Self {
            shared,
            discard_cold,
            runs,
            bytes_total: newer_bytes,
            bytes_loaded: 0,
            end_batch,
        }
    }

    /// The local cold tier cannot be built upon (it is ahead of the state, or too old): close the
    /// store, [`crate::state::StateStore::destroy`] it and open it anew before loading.
    pub fn discard_cold(&self) -> bool {
        self.discard_cold
    }

    /// Bytes loaded and bytes in all, for progress.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_loaded, self.bytes_total)
    }

    /// The next run, `None` after the last. After all of them the state is at the batch asked for.
    pub async fn next(&mut self) -> Result<Option<LoadedRun>> {
        let Some((info, is_base)) = self.runs.pop_front() else {
            return Ok(self.end_batch.take().map(|batch_id| LoadedRun {
                batch_id,
                run: Arc::new(Run::default()),
                is_base: false,
                is_last_part: true,
            }));
        };
        let decoded = self.shared.state.lock().decoded.remove(&info.file);
        let run = match decoded {
            Some(run) => run,
            None => Arc::new(read_run(&self.shared, &info).await?),
        };
        self.bytes_loaded += info.bytes;
        let next = self.runs.front();
        Ok(Some(LoadedRun {
            batch_id: info.last_batch_id,
            run,
            is_base,
            is_last_part: next.is_none_or(|(next, _)| !is_same_run(&info, next)),
        }))
    }

    /// Loads all runs into a store, which must be at the cold batch that this loader was made for,
    /// or empty if [`Self::discard_cold`]. `progress` gets bytes loaded and bytes in all.
    pub async fn load_into(
        &mut self,
        store: &StateStore,
        mut progress: impl FnMut(u64, u64) + Send,
    ) -> Result<()> {
        let mut base = None;
        while let Some(loaded) = self.next().await? {
            if loaded.is_base {
                let mut loader = match base.take() {
                    Some(loader) => loader,
                    None => store.base_loader()?,
                };
                loader.add(&loaded.run)?;
                if loaded.is_last_part {
                    loader.finish(loaded.batch_id)?;
                } else {
                    base = Some(loader);
                }
            } else {
                store.apply(loaded.batch_id, loaded.run)?;
            }
            progress(self.bytes_loaded, self.bytes_total);
        }
        Ok(())
    }
}

/// The cold tier is ahead of the batch wanted, or below a run that lacks tombstones it would need.
pub(super) fn must_discard_cold(runs: &[RunInfo], cold_batch: u64, batch_id: u64) -> bool {
    cold_batch > batch_id
        || runs.iter().any(|run| {
            run.last_batch_id > cold_batch
                && run
                    .tombstones_dropped_through
                    .is_some_and(|through| through > cold_batch)
        })
}

/// How the error of a run file that cannot be used begins; its name and what is wrong follow.
pub(super) const RUN_UNUSABLE: &str = "part of the state cannot be used: ";

/// What is wrong with a file that has not the size it was written with, as a clause.
pub(super) fn wrong_size(bytes: u64, expected_bytes: u64) -> String {
    match bytes {
        0 => "the file is empty".to_owned(),
        _ if bytes < expected_bytes => {
            format!("the file is cut: it has {bytes} bytes instead of {expected_bytes}")
        }
        _ => format!("the file has {bytes} bytes instead of {expected_bytes}"),
    }
}

/// The error of a run file that cannot be used.
pub(super) fn damaged_run(shared: &Shared, info: &RunInfo, why: &str) -> Error {
    let location = shared.store.describe();
    Error::damaged(format!(
        "{RUN_UNUSABLE}\"{location}/state/{}\": {why}",
        info.file
    ))
    .hint(format!("Run REBUILD STATE OF {}.", shared.identity.name()))
}

/// Reads a run file and checks its size and checksum.
pub(super) async fn read_run_bytes(shared: &Shared, info: &RunInfo) -> Result<Bytes> {
    let path = format!("state/{}", info.file);
    let damaged = |why: &str| damaged_run(shared, info, why);
    let Some(blob) = shared.store.get(&path).await? else {
        return Err(damaged("the file is missing"));
    };
    let bytes = blob.bytes.len() as u64;
    if bytes != info.bytes {
        return Err(damaged(&wrong_size(bytes, info.bytes)));
    }
    if crc32c::crc32c(&blob.bytes) != info.crc32c {
        return Err(damaged("its checksum is wrong"));
    }
    Ok(blob.bytes)
}

/// Reads and checks a run file.
pub(super) async fn read_run(shared: &Shared, info: &RunInfo) -> Result<Run> {
    let bytes = read_run_bytes(shared, info).await?;
    Run::decode(&bytes).map_err(|error| {
        let why = error.detail_text().unwrap_or("it is not a run");
        damaged_run(shared, info, why.trim_end_matches('.'))
    })
}

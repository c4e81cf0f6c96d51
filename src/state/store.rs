//! The state store of one pipeline: memory tier over RocksDB.
//!
//! `apply` puts a run in front and publishes; everything slow (merging large runs, spilling) is
//! done by a background thread that exists only while there is work. While it merges or spills
//! some runs, new ones gather in front of them; readers keep what their snapshot holds. The run of
//! a batch that is still being committed lies in front of all and is left alone: no batch is on
//! disk here before it is committed.
//!
//! ```text
//!   apply ─► [run N] [run N-1] [ runs claimed by the worker … ]   cold tier
//!             small ones merged       │ merge: replaced by one run
//!             at once                 │ spill: ingested, then removed
//! ```

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use uuid::Uuid;

use super::cold::{self, ColdFiles, ColdTier, ColdView};
use super::memory::MemoryCharge;
use super::mirror::MirrorKeeper;
use super::snapshot::{StateSnapshot, TierRun, Version};
use super::tier::plan_merge;
use super::{MemoryBudget, Run};
use crate::error::{Error, Result};

/// Runs of this many bytes together are merged while publishing: it takes microseconds.
const INLINE_MERGE_BYTES: usize = 256 << 10;
/// Runs that may gather in front of the ones the worker has, before `apply` merges them itself.
const GATHERED_RUNS_MAX: usize = 16;
/// A tier below this size is not spilled because the budget is over: it would free nothing worth
/// a file.
const SPILL_BYTES_MIN: usize = 4 << 20;
/// The tier may grow to this many times `spill_bytes` while a spill runs, then `apply` waits.
const BACK_PRESSURE_FACTOR: usize = 4;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StateStoreOptions {
    /// Shared budget; the memory tier spills to RocksDB when it is over.
    pub budget: Arc<MemoryBudget>,
    /// Bytes of the memory tier at which it spills even under budget; bounds the replay of runs
    /// at a restart.
    pub spill_bytes: usize,
}

/// Numbers for the system tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateStoreStats {
    /// Bytes in the memory tier, and of the copy of the cold tier above it.
    pub memory_bytes: u64,
    /// Bytes of SST files on disk.
    pub disk_bytes: u64,
    /// Runs in the memory tier.
    pub memory_runs: u64,
}

/// A pipeline's state; readers take snapshots and never block the writer.
#[derive(Debug)]
pub struct StateStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    identity: Uuid,
    options: StateStoreOptions,
    /// Locked only to clone or replace the pointer.
    published: RwLock<Arc<Version>>,
    /// Serialises whoever changes the version; never held during slow work.
    control: Mutex<Control>,
    /// Signals that the worker finished a job.
    job_done: Condvar,
    mirror: Arc<MirrorKeeper>,
}

#[derive(Debug, Default)]
struct Control {
    cold: Option<Arc<ColdTier>>,
    /// The oldest runs of the version that the worker is merging or spilling.
    claimed_runs: usize,
    worker: Option<JoinHandle<()>>,
    worker_active: bool,
    spilling: bool,
    closing: bool,
    /// Why the last spill failed; the next `apply` tries again.
    spill_error: Option<Error>,
}

enum Job {
    Spill(Arc<Version>),
    Merge(Vec<Arc<TierRun>>),
}

impl StateStore {
    /// Opens the store in `dir` (created when missing; RocksDB itself opens at the first spill or
    /// when files are there). `identity` is the checkpoint id the files must belong to: others'
    /// files are an error of kind `Damaged`.
    pub fn open(dir: &Path, identity: Uuid, options: StateStoreOptions) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| cold::io_error(dir, &e))?;
        let mut control = Control::default();
        let mut version = Version::default();
        let mirror = MirrorKeeper::new(&options.budget);
        if ColdTier::is_present(dir)? {
            let (tier, batch_id) = ColdTier::open(dir, identity, &options.budget)?;
            version.batch_id = batch_id;
            version.durable_batch_id = batch_id;
            version.cold = batch_id.map(|batch_id| ColdView::pin(&tier, batch_id));
            control.cold = Some(tier);
        }
        if let Some(cold) = &version.cold {
            mirror.opened(cold);
        }
        Ok(Self {
            shared: Arc::new(Shared {
                dir: dir.to_owned(),
                identity,
                options,
                published: RwLock::new(Arc::new(version)),
                control: Mutex::new(control),
                job_done: Condvar::new(),
                mirror,
            }),
        })
    }

    /// The batch whose state the cold tier holds whole; `None`: it is empty. The caller applies
    /// the runs after it, in order, then the store is at the newest batch.
    pub fn cold_batch(&self) -> Option<u64> {
        let version = self.shared.version();
        version.cold.as_ref().map(|cold| cold.batch_id())
    }

    /// Makes the run of `batch_id`, which is durable in the checkpoint, part of the state and
    /// publishes it to new snapshots. Spills in the background when over budget; waits for a spill
    /// only if the memory tier is far over its size. An error means that nothing was applied (the
    /// disk is full, say) and that the same call may be made again.
    pub fn apply(&self, batch_id: u64, run: Arc<Run>) -> Result<()> {
        self.apply_pending(batch_id, run)?;
        self.confirm(batch_id);
        Ok(())
    }

    /// As [`Self::apply`] for a batch that is not durable yet: it stays in memory, apart from older
    /// runs, until [`Self::confirm`]. One batch at a time; if it never becomes durable, the store is
    /// dropped and opened again.
    pub fn apply_pending(&self, batch_id: u64, run: Arc<Run>) -> Result<()> {
        let shared = &self.shared;
        let mut control = shared.control.lock();
        Shared::wait_for_room(shared, &mut control)?;
        let current = shared.version();
        if current.batch_id != current.durable_batch_id {
            return Err(Error::internal(format!(
                "batch {batch_id} is applied while an earlier one is not durable"
            )));
        }
        if current.batch_id.is_some_and(|last| batch_id <= last) {
            return Err(Error::internal(format!(
                "batch {batch_id} is applied after batch {}",
                current.batch_id.unwrap_or_default()
            )));
        }
        let mut runs = Vec::with_capacity(current.runs.len() + 1);
        if !run.changes_nothing() {
            runs.push(shared.tier_run(run));
        }
        let pending_runs = runs.len();
        runs.extend(current.runs.iter().cloned());
        shared.publish(Version {
            batch_id: Some(batch_id),
            durable_batch_id: current.durable_batch_id,
            pending_runs,
            runs,
            cold: current.cold.clone(),
        });
        Ok(())
    }

    /// The pending batch is durable: its run may be merged and spilled.
    pub fn confirm(&self, batch_id: u64) {
        let shared = &self.shared;
        let mut control = shared.control.lock();
        let current = shared.version();
        debug_assert_eq!(current.batch_id, Some(batch_id), "the pending batch");
        let mut runs = current.runs.clone();
        shared.merge_inline(&mut runs, control.claimed_runs, current.cold.is_some());
        shared.publish(Version {
            batch_id: current.batch_id,
            durable_batch_id: current.batch_id,
            pending_runs: 0,
            runs,
            cold: current.cold.clone(),
        });
        Shared::start_worker(shared, &mut control);
    }

    /// Loads base runs at a restore, oldest first, straight into the cold tier. The memory tier
    /// must be empty.
    pub fn ingest_base(&self, batch_id: u64, run: Run) -> Result<()> {
        let mut loader = self.base_loader()?;
        loader.add(&run)?;
        loader.finish(batch_id)
    }

    /// As [`Self::ingest_base`] for a run that comes in parts.
    pub fn base_loader(&self) -> Result<BaseLoader<'_>> {
        let mut control = self.shared.control.lock();
        let current = self.shared.version();
        if !current.runs.is_empty() {
            return Err(Error::internal("a base run is loaded after newer state"));
        }
        let tier = self.shared.cold_tier(&mut control)?;
        Ok(BaseLoader {
            shared: &self.shared,
            files: ColdFiles::new(&tier, current.cold.is_some()),
            tier,
        })
    }

    /// The state as of the last applied batch.
    pub fn snapshot(&self) -> StateSnapshot {
        let version = self.shared.version();
        let cold = version.cold.as_ref();
        let mirror = cold.and_then(|cold| self.shared.mirror.of(cold.batch_id()));
        StateSnapshot::of(version, mirror)
    }

    /// Deletes all local files; the next open starts empty (they are a cache of the checkpoint).
    pub fn destroy(dir: &Path) -> Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(cold::io_error(dir, &error))
            }
            _ => Ok(()),
        }
    }

    /// Returns when the background thread has nothing to do; gives the last spill's failure.
    /// For an orderly shutdown and for measurements.
    pub fn wait_until_idle(&self) -> Result<()> {
        let mut control = self.shared.control.lock();
        while control.worker_active {
            self.shared.job_done.wait(&mut control);
        }
        control.spill_error.clone().map_or(Ok(()), Err)
    }

    /// Copies the cold tier into memory without waiting for rest.
    #[cfg(test)]
    pub(super) fn mirror_now(&self) {
        if let Some(cold) = &self.shared.version().cold {
            self.shared.mirror.copy_now(cold);
        }
    }

    /// Numbers for the system tables.
    pub fn stats(&self) -> StateStoreStats {
        let version = self.shared.version();
        StateStoreStats {
            memory_bytes: (version.memory_bytes() + self.shared.mirror.bytes()) as u64,
            disk_bytes: version.cold.as_ref().map_or(0, |cold| cold.disk_bytes()),
            memory_runs: version.runs.len() as u64,
        }
    }
}

/// Loads one base run in parts; nothing shows before [`BaseLoader::finish`].
#[derive(Debug)]
pub struct BaseLoader<'a> {
    shared: &'a Shared,
    files: ColdFiles,
    tier: Arc<ColdTier>,
}

impl BaseLoader<'_> {
    /// Adds a part; its keys come after those of the parts before.
    pub fn add(&mut self, part: &Run) -> Result<()> {
        self.files.add(&[part])
    }

    /// The run is whole: the state is now at `batch_id`.
    pub fn finish(self, batch_id: u64) -> Result<()> {
        // Held over the ingest: a restore has no one to wait for it.
        let _control = self.shared.control.lock();
        let current = self.shared.version();
        if !current.runs.is_empty() || current.batch_id.is_some_and(|last| batch_id <= last) {
            return Err(Error::internal(format!(
                "base run of batch {batch_id} is loaded after newer state"
            )));
        }
        self.files.ingest(batch_id)?;
        let cold = ColdView::pin(&self.tier, batch_id);
        self.shared.mirror.opened(&cold);
        self.shared.publish(Version {
            batch_id: Some(batch_id),
            durable_batch_id: Some(batch_id),
            pending_runs: 0,
            runs: Vec::new(),
            cold: Some(cold),
        });
        Ok(())
    }
}

impl Drop for StateStore {
    fn drop(&mut self) {
        let worker = {
            let mut control = self.shared.control.lock();
            control.closing = true;
            control.worker.take()
        };
        self.shared.mirror.close();
        if let Some(worker) = worker
            && worker.join().is_err()
        {
            tracing::error!(dir = %self.shared.dir.display(), "state worker ended abnormally");
        }
    }
}

impl Shared {
    fn version(&self) -> Arc<Version> {
        Arc::clone(&self.published.read())
    }

    fn publish(&self, version: Version) {
        let version = Arc::new(version);
        let previous = std::mem::replace(&mut *self.published.write(), version);
        // Runs may be freed here: not under the lock.
        drop(previous);
    }

    fn tier_run(&self, run: Arc<Run>) -> Arc<TierRun> {
        let charge = MemoryCharge::new(&self.options.budget, run.bytes());
        Arc::new(TierRun {
            run,
            _charge: charge,
        })
    }

    fn cold_tier(&self, control: &mut Control) -> Result<Arc<ColdTier>> {
        if let Some(tier) = &control.cold {
            return Ok(Arc::clone(tier));
        }
        let (tier, _) = ColdTier::open(&self.dir, self.identity, &self.options.budget)?;
        control.cold = Some(Arc::clone(&tier));
        Ok(tier)
    }

    /// Memory is far over: waits for the spill that runs. If that failed and fails again, so does
    /// the caller.
    fn wait_for_room(shared: &Arc<Self>, control: &mut MutexGuard<'_, Control>) -> Result<()> {
        let budget = &shared.options.budget;
        let mut tried = false;
        loop {
            let bytes = shared.version().memory_bytes();
            let tier_is_full = bytes > BACK_PRESSURE_FACTOR * shared.options.spill_bytes;
            let memory_is_full =
                budget.used_bytes() > budget.limit_bytes() / 4 * 5 && bytes > SPILL_BYTES_MIN;
            if control.spilling && (tier_is_full || memory_is_full) {
                shared.job_done.wait(control);
                continue;
            }
            match control.spill_error.take() {
                Some(error) if tier_is_full && tried => {
                    control.spill_error = Some(error.clone());
                    return Err(error);
                }
                _ if !tier_is_full => return Ok(()),
                _ => {}
            }
            tried = true;
            Self::start_worker(shared, control);
            if !control.worker_active {
                return Ok(());
            }
            shared.job_done.wait(control);
        }
    }

    /// Merges the runs that the worker has not claimed, if that is a matter of microseconds or
    /// too many have gathered.
    fn merge_inline(&self, runs: &mut Vec<Arc<TierRun>>, claimed_runs: usize, has_older: bool) {
        let free = runs.len() - claimed_runs;
        let sizes = run_bytes(&runs[..free]);
        let range = if free > GATHERED_RUNS_MAX && claimed_runs > 0 {
            0..free
        } else {
            match plan_merge(&sizes) {
                Some(range) if sizes[range.clone()].iter().sum::<usize>() <= INLINE_MERGE_BYTES => {
                    range
                }
                _ => return,
            }
        };
        let is_oldest = claimed_runs == 0 && range.end == runs.len();
        let merged = merge_runs(&runs[range.clone()], is_oldest && !has_older);
        runs.splice(range, [self.tier_run(Arc::new(merged))]);
    }

    fn start_worker(shared: &Arc<Self>, control: &mut Control) {
        if control.worker_active || shared.plan_job(control).is_none() {
            return;
        }
        control.worker_active = true;
        if let Some(ended) = control.worker.take()
            && ended.join().is_err()
        {
            tracing::error!("state worker ended abnormally");
        }
        let worker = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name("tidemill-state".into())
            .spawn(move || worker.work_guarded());
        match spawned {
            Ok(handle) => control.worker = Some(handle),
            Err(error) => {
                control.worker_active = false;
                control.spill_error = Some(error.into());
            }
        }
    }

    /// What the worker should do now.
    fn plan_job(&self, control: &Control) -> Option<Job> {
        if control.closing || control.spill_error.is_some() {
            return None;
        }
        let version = self.version();
        let runs = version.durable_runs();
        let sizes = run_bytes(runs);
        let bytes: usize = sizes.iter().sum();
        let budget_says = bytes >= SPILL_BYTES_MIN && !self.options.budget.make_room();
        if bytes > self.options.spill_bytes || budget_says {
            return Some(Job::Spill(version));
        }
        let range = plan_merge(&sizes)?;
        Some(Job::Merge(runs[range].to_vec()))
    }

    /// The worker thread. A panic in it must not leave others waiting for a job that never ends.
    fn work_guarded(&self) {
        let work = std::panic::AssertUnwindSafe(|| self.work());
        if std::panic::catch_unwind(work).is_err() {
            let mut control = self.control.lock();
            control.worker_active = false;
            control.spilling = false;
            control.claimed_runs = 0;
            control.spill_error = Some(Error::internal("merging or spilling state panicked"));
            self.job_done.notify_all();
        }
    }

    /// Job after job until there is none.
    fn work(&self) {
        let mut control = self.control.lock();
        while let Some(job) = self.plan_job(&control) {
            match job {
                Job::Merge(runs) => self.merge_job(&mut control, &runs),
                Job::Spill(version) => self.spill_job(&mut control, &version),
            }
            control.claimed_runs = 0;
            self.job_done.notify_all();
        }
        control.worker_active = false;
        self.job_done.notify_all();
    }

    fn merge_job(&self, control: &mut MutexGuard<'_, Control>, runs: &[Arc<TierRun>]) {
        // All older runs are claimed too, so that the claimed ones stay together at the end.
        let version = self.version();
        let durable_runs = version.durable_runs().len();
        control.claimed_runs = durable_runs;
        let drop_tombstones = runs.len() == durable_runs && version.cold.is_none();
        let merged = MutexGuard::unlocked(control, || merge_runs(runs, drop_tombstones));
        let current = self.version();
        let range = position_of(&current.runs, runs);
        let mut new_runs = current.runs.clone();
        new_runs.splice(range, [self.tier_run(Arc::new(merged))]);
        self.publish(Version {
            batch_id: current.batch_id,
            durable_batch_id: current.durable_batch_id,
            pending_runs: current.pending_runs,
            runs: new_runs,
            cold: current.cold.clone(),
        });
    }

    fn spill_job(&self, control: &mut MutexGuard<'_, Control>, version: &Version) {
        control.claimed_runs = version.durable_runs().len();
        control.spilling = true;
        let result = self.spill(control, version);
        control.spilling = false;
        match result {
            Ok(cold) => {
                let current = self.version();
                let range = position_of(&current.runs, version.durable_runs());
                self.mirror.moved(&cold, version.durable_runs());
                self.publish(Version {
                    batch_id: current.batch_id,
                    durable_batch_id: current.durable_batch_id,
                    pending_runs: current.pending_runs,
                    runs: current.runs[..range.start].to_vec(),
                    cold: Some(cold),
                });
            }
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "could not spill state");
                control.spill_error = Some(error);
            }
        }
    }

    fn spill(
        &self,
        control: &mut MutexGuard<'_, Control>,
        version: &Version,
    ) -> Result<Arc<ColdView>> {
        let batch_id = version
            .durable_batch_id
            .ok_or_else(|| Error::internal("runs without a batch are spilled"))?;
        let tier = self.cold_tier(control)?;
        let runs: Vec<&Run> = version
            .durable_runs()
            .iter()
            .map(|tier| &*tier.run)
            .collect();
        MutexGuard::unlocked(control, || {
            tier.ingest(batch_id, &runs, version.cold.is_some())?;
            Ok(ColdView::pin(&tier, batch_id))
        })
    }
}

fn run_bytes(runs: &[Arc<TierRun>]) -> Vec<usize> {
    runs.iter().map(|tier| tier.run.bytes()).collect()
}

fn merge_runs(newest_first: &[Arc<TierRun>], drop_tombstones: bool) -> Run {
    let runs: Vec<&Run> = newest_first.iter().map(|tier| &*tier.run).collect();
    Run::merge(&runs, drop_tombstones)
}

/// Where the `claimed` runs now are: newer ones may have come before them.
fn position_of(runs: &[Arc<TierRun>], claimed: &[Arc<TierRun>]) -> Range<usize> {
    let start = runs
        .iter()
        .position(|run| Arc::ptr_eq(run, &claimed[0]))
        .expect("claimed runs are replaced by the worker only");
    start..start + claimed.len()
}

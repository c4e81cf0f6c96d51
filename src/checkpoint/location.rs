//! An open checkpoint: what the engine writes at every batch.
//!
//! ```text
//!   write_offsets(N) ─────────────► offsets/N        may run beside the batch's computation
//!   commit_batch(N) ──────────────► state/N.run, state/N.manifest, and when they are durable commits/N: the batch is
//! ```
//!
//! Every entry carries the lease's epoch. An entry that is there already is replaced if it is of
//! this or an older epoch (the batch runs again), and means that we are fenced if it is of a newer
//! one. Runs are never overwritten: a batch that runs again gives its run another name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

use super::blob::{BlobStore, Follows, PutOutcome, get_or_why};
use super::format::{
    CommitFile, Manifest, ManifestHead, OffsetFile, RunInfo, StateReference, Unreadable,
};
use super::lease::HeldLease;
use super::load::RunLoader;
use super::source_log::CheckpointSourceLog;
use super::{CommitEntry, OffsetEntry, decide};
use crate::clock::ClockRef;
use crate::connectors::SourceLog;
use crate::error::{Error, Result, sqlstate};
use crate::state::Run;

/// Attempts at a write whose name turns out to be taken.
const ATTEMPTS: usize = 5;

/// Whose checkpoint it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The pipeline's id.
    pub pipeline_id: Uuid,
    /// The pipeline's name, for messages and for `REPAIR`.
    pub pipeline_name: String,
    /// Fingerprint of its plan, kept in metadata and manifests.
    pub fingerprint: String,
}

impl Identity {
    /// The pipeline's name as statements write it.
    pub(super) fn name(&self) -> String {
        crate::sql::names::quote_identifier(&self.pipeline_name)
    }
}

/// What else is known of the checkpoint before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expectation {
    /// Newest batch of this pipeline that the catalog knows to have committed; less at the
    /// location is an error, never a fresh start.
    pub catalog_batch: Option<u64>,
    /// The batch of the local cold tier ([`crate::state::StateStore::cold_batch`]): runs up to it
    /// need not be read.
    pub cold_batch: Option<u64>,
}

/// Where the engine goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Resume {
    /// No batch ever ran.
    Fresh,
    /// Load the state as of `last_commit`, then run the batches of `replay` again.
    At(Box<ResumePoint>),
}

/// See [`Resume::At`].
#[derive(Debug, Clone, PartialEq)]
pub struct ResumePoint {
    /// The batch whose state is there; `None`: the empty state before the first batch.
    pub last_commit: Option<CommitEntry>,
    /// The newest batch that ever committed here; those of `replay` up to it were delivered before.
    pub newest_commit: Option<u64>,
    /// Entries of the batches to run again exactly so, ascending.
    pub replay: Vec<OffsetEntry>,
    /// What an operator may want to know (events), as sentences.
    pub notes: Vec<String>,
}

/// The changes of the state up to a batch, in their file form, on their way to the location.
#[derive(Debug, Clone)]
pub struct PendingState {
    batch_id: u64,
    /// `None`: nothing changed.
    run: Option<Bytes>,
    entries: u64,
    crc32c: u32,
}

impl PendingState {
    /// Encodes the changes of the batches since the state was persisted last, up to `batch_id`.
    pub fn encode(batch_id: u64, run: &Run) -> Self {
        let bytes = (!run.changes_nothing()).then(|| Bytes::from(run.encode()));
        Self {
            batch_id,
            entries: run.len() as u64,
            crc32c: bytes.as_ref().map_or(0, |bytes| crc32c::crc32c(bytes)),
            run: bytes,
        }
    }

    /// A run file of another checkpoint as the changes of a batch.
    pub(super) fn of_file(batch_id: u64, bytes: Bytes, info: &RunInfo) -> Self {
        Self {
            batch_id,
            run: Some(bytes),
            entries: info.entries,
            crc32c: info.crc32c,
        }
    }

    /// Size in bytes; 0 if nothing changed.
    pub fn bytes(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.len() as u64)
    }
}

/// A state that is about to be written: what the manifest will say.
struct PlannedState {
    manifest: Manifest,
    reference: StateReference,
    run_path: String,
    run: Bytes,
    manifest_path: String,
    manifest_bytes: Bytes,
}

/// Numbers for `streaming_checkpoints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointStats {
    /// Oldest batch that can be told of.
    pub first_batch_id: Option<u64>,
    /// Newest committed batch.
    pub last_batch_id: Option<u64>,
    /// Bytes at the location.
    pub bytes: u64,
    /// Files at the location.
    pub files: u64,
    /// Committed batches between first and last whose commit entry is missing.
    pub missing_batches: u64,
}

/// The epoch of a commit entry; `None`: it cannot be read.
fn commit_epoch(bytes: &[u8]) -> Option<u64> {
    let file = super::format::decode_one::<CommitFile>(bytes).ok()?;
    Some(file.epoch)
}

/// An open checkpoint location, with its lease held. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn BlobStore>,
    pub(super) lease: HeldLease,
    pub(super) identity: Identity,
    pub(super) clock: ClockRef,
    pub(super) state: Mutex<LocationState>,
    /// A merge of runs is going on.
    pub(super) merging: AtomicBool,
    /// A retention is going on.
    pub(super) retaining: AtomicBool,
    /// A retention in a task of its own is going on, or about to begin.
    pub(super) beside: AtomicBool,
}

/// What is at the location, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct LocationState {
    /// Size by path.
    pub(super) files: HashMap<String, u64>,
    pub(super) first_batch: Option<u64>,
    pub(super) last_commit: Option<CommitEntry>,
    /// The state that the next commit stands on.
    pub(super) persisted: Option<StateReference>,
    /// Runs of the state, oldest first; the next manifest lists them.
    pub(super) runs: Vec<RunInfo>,
    /// Manifest batch that each retained commit stands on; `None` inside: not read yet.
    pub(super) commits: BTreeMap<u64, Option<Option<u64>>>,
    /// Files of the runs that a manifest lists.
    pub(super) manifests: BTreeMap<u64, Vec<String>>,
    pub(super) offsets: BTreeSet<u64>,
    /// Files that are being written and that no manifest lists yet.
    pub(super) in_flight: HashSet<String>,
    /// Decoded runs of the opening, until they are loaded.
    pub(super) decoded: HashMap<String, Arc<Run>>,
    pub(super) cold_batch: Option<u64>,
}

impl Shared {
    pub(super) async fn put_all(&self, blobs: Vec<(String, Bytes)>) -> Result<()> {
        let sizes: Vec<(String, u64)> = blobs
            .iter()
            .map(|(path, bytes)| (path.clone(), bytes.len() as u64))
            .collect();
        self.store.put_all(blobs).await?;
        self.state.lock().files.extend(sizes);
        Ok(())
    }

    pub(super) async fn delete(&self, paths: &[String]) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        self.store.delete(paths).await?;
        let mut state = self.state.lock();
        for path in paths {
            state.files.remove(path);
        }
        Ok(())
    }

    /// Writes an entry; `epoch_of` reads the epoch of one that is there.
    async fn put_fenced(
        &self,
        path: &str,
        bytes: Bytes,
        epoch_of: fn(&[u8]) -> Option<u64>,
    ) -> Result<()> {
        self.lease.check().await?;
        let size = bytes.len() as u64;
        for _ in 0..ATTEMPTS {
            let mut outcome = self.store.put_if_absent(path, bytes.clone()).await?;
            if outcome == PutOutcome::Lost {
                let Some(current) = self.store.get(path).await? else {
                    continue;
                };
                if epoch_of(&current.bytes).is_some_and(|epoch| epoch > self.lease.epoch()) {
                    return Err(self.lease.fenced(None));
                }
                if current.bytes == bytes {
                    outcome = PutOutcome::Written(current.version);
                } else {
                    outcome = self
                        .store
                        .put_if_match(path, bytes.clone(), &current.version)
                        .await?;
                }
            }
            if matches!(outcome, PutOutcome::Written(_)) {
                self.state.lock().files.insert(path.to_owned(), size);
                return Ok(());
            }
        }
        Err(self.contested(path))
    }

    /// Whatever is written, another is there at the next look. The lease says whether there is another
    /// writer; it is asked at the next try.
    pub(super) fn contested(&self, path: &str) -> Error {
        let location = self.store.describe();
        Error::transient(
            sqlstate::IO_ERROR,
            format!("could not write \"{location}/{path}\""),
        )
        .detail("The store does not keep what it says it wrote, or another process writes there.")
    }

    pub(super) fn damaged(&self, path: &str, why: Unreadable) -> Error {
        let location = self.store.describe();
        match why {
            Unreadable::NewerVersion(version) => decide::newer_format(&location, &version),
            Unreadable::Damaged(why) => {
                Error::damaged(format!("checkpoint file \"{location}/{path}\": {why}")).hint(
                    format!("Run REPAIR CHECKPOINT OF {}.", self.identity.name()),
                )
            }
        }
    }
}

impl Checkpoint {
    /// The location, for people; without credentials.
    pub fn location(&self) -> String {
        self.shared.store.describe()
    }

    /// The number of its first batch.
    pub fn first_batch_id(&self) -> u64 {
        self.shared.state.lock().first_batch.unwrap_or_default()
    }

    /// The identity of the pipeline that it belongs to.
    pub fn pipeline_id(&self) -> uuid::Uuid {
        self.shared.identity.pipeline_id
    }

    /// The pipeline that it belongs to.
    pub fn pipeline_name(&self) -> &str {
        &self.shared.identity.pipeline_name
    }

    /// Fixes a batch's input. Durable when it returns; the batch may be computed meanwhile, but
    /// nothing of it may go out before. Replaces the entry of a batch that never committed.
    pub async fn write_offsets(&self, entry: &OffsetEntry) -> Result<()> {
        let file = OffsetFile {
            pipeline_id: self.shared.identity.pipeline_id,
            epoch: self.shared.lease.epoch(),
            entry: entry.clone(),
        };
        let path = format!("offsets/{}", entry.batch_id);
        self.shared
            .put_fenced(&path, file.encode().into(), |bytes| {
                OffsetFile::decode(bytes).ok().map(|file| file.epoch)
            })
            .await?;
        let mut state = self.shared.state.lock();
        state.offsets.insert(entry.batch_id);
        state.first_batch.get_or_insert(entry.batch_id);
        Ok(())
    }

    /// Makes the batch a committed one: persists its state, if it comes with any, and then its commit
    /// entry. An error of kind `Fenced` means that another process has taken over; after any other
    /// error the batch may or may not be committed, and the checkpoint must be opened again to know.
    pub async fn commit_batch(
        &self,
        state: Option<&PendingState>,
        entry: &CommitEntry,
    ) -> Result<()> {
        let Some((pending, run)) = state.and_then(|s| Some((s, s.run.as_ref()?))) else {
            if state.is_some() {
                self.persist_nothing(entry.batch_id);
            }
            return self.put_commit(entry).await;
        };
        for attempt in 0..ATTEMPTS {
            let planned = self.plan_state(pending, run.clone());
            let run_path = planned.run_path.clone();
            let written = self.put_batch(planned, entry, attempt).await;
            if let Some(file) = run_path.strip_prefix("state/") {
                self.shared.state.lock().in_flight.remove(file);
            }
            if written? {
                return Ok(());
            }
        }
        let path = format!("state/{}.manifest", pending.batch_id);
        Err(self.shared.contested(&path))
    }

    /// The state with the new run, under a name that no file has yet, and its manifest.
    fn plan_state(&self, pending: &PendingState, run: Bytes) -> PlannedState {
        let shared = &self.shared;
        let batch_id = pending.batch_id;
        let mut state = shared.state.lock();
        // The batch ran before and is persisted again: its earlier run goes.
        state.runs.retain(|info| info.last_batch_id < batch_id);
        let first_batch_id = match state.persisted {
            Some(persisted) if persisted.batch_id < batch_id => persisted.batch_id + 1,
            Some(_) => batch_id,
            None => state.first_batch.unwrap_or(batch_id).min(batch_id),
        };
        let epoch = shared.lease.epoch();
        let file = unused_run_file(&state.files, first_batch_id, batch_id, epoch);
        state.in_flight.insert(file.clone());
        let mut runs = state.runs.clone();
        runs.push(RunInfo {
            file: file.clone(),
            first_batch_id,
            last_batch_id: batch_id,
            bytes: run.len() as u64,
            entries: pending.entries,
            crc32c: pending.crc32c,
            tombstones_dropped_through: None,
        });
        let manifest = Manifest {
            head: ManifestHead {
                pipeline_id: shared.identity.pipeline_id,
                pipeline: shared.identity.pipeline_name.clone(),
                fingerprint: shared.identity.fingerprint.clone(),
                epoch,
                batch_id,
            },
            runs,
        };
        let manifest_bytes = Bytes::from(manifest.encode());
        PlannedState {
            reference: StateReference {
                batch_id,
                manifest_batch_id: Some(batch_id),
                manifest_crc32c: crc32c::crc32c(&manifest_bytes),
            },
            manifest,
            run_path: format!("state/{file}"),
            run,
            manifest_path: format!("state/{batch_id}.manifest"),
            manifest_bytes,
        }
    }

    fn persist_nothing(&self, batch_id: u64) {
        let mut state = self.shared.state.lock();
        let previous = state.persisted;
        state.persisted = Some(StateReference {
            batch_id,
            manifest_batch_id: previous.and_then(|p| p.manifest_batch_id),
            manifest_crc32c: previous.map_or(0, |p| p.manifest_crc32c),
        });
    }

    /// Writes run, manifest and commit entry. False: a name was taken, try again.
    async fn put_batch(
        &self,
        planned: PlannedState,
        entry: &CommitEntry,
        attempt: usize,
    ) -> Result<bool> {
        let shared = &self.shared;
        let manifest_path = &planned.manifest_path;
        if attempt > 0 || shared.state.lock().files.contains_key(manifest_path) {
            self.give_way(manifest_path).await?;
        }
        let commit_path = format!("commits/{}", entry.batch_id);
        let commit = self.commit_bytes(entry, Some(planned.reference));
        shared.lease.check().await?;
        let sizes = [
            planned.run.len() as u64,
            planned.manifest_bytes.len() as u64,
        ];
        // Where an older state is left, a commit entry without its own is no loss: the batch runs again.
        let has_older = {
            let state = shared.state.lock();
            state.manifests.range(..entry.batch_id).next().is_some()
        };
        let follows = match has_older {
            true => Follows::OnceAcknowledged,
            false => Follows::Always,
        };
        let (ahead, last) = shared
            .store
            .put_after(
                vec![
                    (planned.run_path.clone(), planned.run),
                    (planned.manifest_path.clone(), planned.manifest_bytes),
                ],
                &commit_path,
                commit.clone(),
                follows,
            )
            .await?;
        {
            let mut state = shared.state.lock();
            // Whoever wrote them, they are there.
            state.files.insert(planned.run_path, sizes[0]);
            state.files.insert(planned.manifest_path, sizes[1]);
            if ahead.contains(&PutOutcome::Lost) {
                return Ok(false);
            }
            let runs = &planned.manifest.runs;
            let files = runs.iter().map(|run| run.file.clone()).collect();
            state.manifests.insert(entry.batch_id, files);
            state.runs = planned.manifest.runs;
            state.persisted = Some(planned.reference);
        }
        if matches!(last, Some(PutOutcome::Written(_))) {
            let size = commit.len() as u64;
            shared.state.lock().files.insert(commit_path, size);
        } else {
            shared
                .put_fenced(&commit_path, commit, commit_epoch)
                .await?;
        }
        self.accept_commit(entry);
        Ok(true)
    }

    /// A manifest of the same batch is there: of an earlier run of the batch it goes, of a newer
    /// lease it fences us.
    async fn give_way(&self, path: &str) -> Result<()> {
        let current = match get_or_why(&*self.shared.store, path).await? {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            Err(_) => {
                // What has the file's name and is none, such as a folder, moves aside.
                self.shared.lease.check().await?;
                let label = archive_label(&self.shared.clock);
                return self.shared.store.archive(&[path.to_owned()], &label).await;
            }
        };
        if let Ok(manifest) = Manifest::decode(&current)
            && manifest.head.epoch > self.shared.lease.epoch()
        {
            return Err(self.shared.lease.fenced(None));
        }
        self.shared.lease.check().await?;
        self.shared.delete(&[path.to_owned()]).await
    }

    /// Writes the commit entry of a batch whose state is persisted, or stays as it was persisted.
    async fn put_commit(&self, entry: &CommitEntry) -> Result<()> {
        let persisted = self.shared.state.lock().persisted;
        let bytes = self.commit_bytes(entry, persisted);
        let path = format!("commits/{}", entry.batch_id);
        self.shared.put_fenced(&path, bytes, commit_epoch).await?;
        self.accept_commit(entry);
        Ok(())
    }

    fn commit_bytes(&self, entry: &CommitEntry, state: Option<StateReference>) -> Bytes {
        let first_batch = self.shared.state.lock().first_batch;
        let file = CommitFile {
            pipeline_id: self.shared.identity.pipeline_id,
            epoch: self.shared.lease.epoch(),
            first_batch_id: first_batch.unwrap_or(entry.batch_id),
            state,
            entry: entry.clone(),
        };
        super::format::encode_one(&file).into()
    }

    fn accept_commit(&self, entry: &CommitEntry) {
        let mut state = self.shared.state.lock();
        let manifest = state.persisted.and_then(|p| p.manifest_batch_id);
        state.commits.insert(entry.batch_id, Some(manifest));
        let is_newest = state
            .last_commit
            .as_ref()
            .is_none_or(|last| last.batch_id <= entry.batch_id);
        if is_newest {
            state.last_commit = Some(entry.clone());
        }
    }

    /// The offset entry of a batch, `None` if there is none.
    pub async fn read_offsets(&self, batch_id: u64) -> Result<Option<OffsetEntry>> {
        let path = format!("offsets/{batch_id}");
        let Some(blob) = self.shared.store.get(&path).await? else {
            return Ok(None);
        };
        let file =
            OffsetFile::decode(&blob.bytes).map_err(|why| self.shared.damaged(&path, why))?;
        Ok(Some(file.entry))
    }

    /// The commit entry of a batch, `None` if there is none.
    pub async fn read_commit(&self, batch_id: u64) -> Result<Option<CommitEntry>> {
        let path = format!("commits/{batch_id}");
        let Some(blob) = self.shared.store.get(&path).await? else {
            return Ok(None);
        };
        let file: CommitFile = super::format::decode_one(&blob.bytes)
            .map_err(|why| self.shared.damaged(&path, why))?;
        Ok(Some(file.entry))
    }

    /// The newest commit entry written or resumed from.
    pub fn last_commit(&self) -> Option<CommitEntry> {
        self.shared.state.lock().last_commit.clone()
    }

    /// The runs that lead from a cold tier at `cold_batch` (`None`: empty) to the state of the
    /// batch that was resumed from, oldest first.
    pub fn load_runs_after(&self, cold_batch: Option<u64>, batch_id: u64) -> RunLoader {
        RunLoader::new(Arc::clone(&self.shared), cold_batch, batch_id)
    }

    /// The log of a source inside this checkpoint.
    pub fn source_log(&self, source: &str) -> Arc<dyn SourceLog> {
        Arc::new(CheckpointSourceLog::new(Arc::clone(&self.shared), source))
    }

    /// Extends the lease; call it every few seconds, also while no batch runs.
    pub async fn renew_lease(&self) -> Result<()> {
        self.shared.lease.renew().await
    }

    /// Numbers for the system tables, without I/O.
    pub fn stats(&self) -> CheckpointStats {
        let state = self.shared.state.lock();
        let first = state.commits.keys().next().copied();
        let last = state.commits.keys().next_back().copied();
        CheckpointStats {
            first_batch_id: first,
            last_batch_id: last,
            bytes: state.files.values().sum(),
            files: state.files.len() as u64,
            missing_batches: match (first, last) {
                (Some(first), Some(last)) => last - first + 1 - state.commits.len() as u64,
                _ => 0,
            },
        }
    }

    /// Lets go of the lease once nothing goes on beside: the location can be opened again at once,
    /// if there is no other clone of this handle.
    pub async fn close(self) {
        self.wait_until_idle().await;
    }

    /// Waits for merges and retention that go on beside the batches.
    pub async fn wait_until_idle(&self) {
        let is_busy = || {
            let shared = &self.shared;
            [&shared.merging, &shared.retaining, &shared.beside]
                .iter()
                .any(|flag| flag.load(Ordering::Acquire))
        };
        while is_busy() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Moves all files to `<location>.archive/<time>/` and gives that time's label. The location
    /// is empty then: nothing more may be written through this handle.
    pub async fn archive(self) -> Result<String> {
        self.shared.lease.check().await?;
        self.wait_until_idle().await;
        // What lands after the listing would be taken for a damaged checkpoint of the next pipeline.
        self.shared.store.settle().await;
        let label = archive_label(&self.shared.clock);
        let mut paths: Vec<String> = self
            .shared
            .store
            .list("")
            .await?
            .into_iter()
            .map(|blob| blob.path)
            .filter(|path| path != "lease")
            .collect();
        // The logs go last: a crash in between leaves what still says that there was a batch.
        paths.sort_by_key(|path| path.starts_with("offsets/") || path.starts_with("commits/"));
        self.shared.store.archive(&paths, &label).await?;
        let mut state = self.shared.state.lock();
        *state = LocationState::default();
        Ok(label)
    }
}

pub(crate) fn archive_label(clock: &ClockRef) -> String {
    chrono::DateTime::from_timestamp_micros(clock.now_us()).map_or_else(
        || "0".to_owned(),
        |at| at.format("%Y%m%dT%H%M%S%.6fZ").to_string(),
    )
}

/// `N.run` or `N1-N2.run`, with the epoch and a number where that name is taken.
pub(super) fn unused_run_file(
    files: &HashMap<String, u64>,
    first_batch: u64,
    last_batch: u64,
    epoch: u64,
) -> String {
    let stem = if first_batch == last_batch {
        last_batch.to_string()
    } else {
        format!("{first_batch}-{last_batch}")
    };
    let mut file = format!("{stem}.run");
    let mut number = 0;
    while files.contains_key(&format!("state/{file}")) {
        file = format!("{stem}.{epoch}.{number}.run");
        number += 1;
    }
    file
}

//! Opening a location: facts in, a decision, and the decision carried out.
//!
//! Nothing is written before it is known that the location is this pipeline's; then the lease is
//! taken, and only then the facts count.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::blob::{BlobInfo, BlobStore, PutOutcome, get_or_why};
use super::decide::{self, Decision, Fact, Facts, MetadataFact, Part, Plan, Stop};
use super::format::{self, CommitFile, Manifest, Metadata, OffsetFile, RunInfo, Unreadable};
use super::lease::HeldLease;
use super::load::{self, RUN_UNUSABLE, wrong_size};
use super::local::LocalStore;
use super::location::{
    Checkpoint, Expectation, Identity, LocationState, Resume, ResumePoint, Shared, archive_label,
};
use super::{CommitEntry, OffsetEntry, object};
use crate::clock::ClockRef;
use crate::error::{Error, Result, sqlstate};

/// Reads of one opening that go on at the same time.
const READS_AT_ONCE: usize = 16;
/// Decoded runs that are kept from the check of the state until they are loaded.
const DECODED_BYTES_MAX: u64 = 64 << 20;

/// Opens checkpoint locations.
#[derive(Debug)]
pub struct CheckpointLocation;

impl CheckpointLocation {
    /// The blobs at a path or an URL (`file://`, `s3://`, `gs://`, `az://`, `memory://`).
    /// `options` are the store's own, such as `aws_endpoint`; what they leave out comes from the
    /// environment.
    pub fn store(location: &str, options: &BTreeMap<String, String>) -> Result<Arc<dyn BlobStore>> {
        if let Some(path) = location.strip_prefix("file://") {
            return Ok(Arc::new(LocalStore::new(Path::new(path))));
        }
        if location.contains("://") {
            return object::open(location, options);
        }
        if location.is_empty() {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "checkpoint location is empty",
            ));
        }
        Ok(Arc::new(LocalStore::new(Path::new(location))))
    }

    /// Takes the lease of a location and finds where to resume. Errors: `Damaged` where the
    /// pipeline must stop, with the statement that mends it as the hint; `Transient` (55006) while
    /// another process holds it.
    pub async fn open(
        location: &str,
        identity: Identity,
        expectation: Expectation,
        clock: ClockRef,
        options: &BTreeMap<String, String>,
    ) -> Result<(Checkpoint, Resume)> {
        refuse_inside_another(location)?;
        Self::open_store(
            Self::store(location, options)?,
            identity,
            expectation,
            clock,
        )
        .await
    }

    /// As [`Self::open`], over blobs that the caller has.
    pub async fn open_store(
        store: Arc<dyn BlobStore>,
        identity: Identity,
        expectation: Expectation,
        clock: ClockRef,
    ) -> Result<(Checkpoint, Resume)> {
        let before = Gathered::list(&*store, &identity, expectation).await?;
        if let Decision::Stop(stop) = decide::resume(&before.facts) {
            return Err(stop.to_error(&identity.pipeline_name, &store.describe()));
        }
        let lease = HeldLease::acquire(Arc::clone(&store), Arc::clone(&clock)).await?;
        let gathered = Gathered::list(&*store, &identity, expectation).await?;
        let shared = Arc::new(Shared {
            store,
            lease,
            identity,
            clock,
            state: Mutex::new(LocationState {
                files: gathered.files.clone(),
                cold_batch: expectation.cold_batch,
                ..LocationState::default()
            }),
            merging: AtomicBool::new(false),
            retaining: AtomicBool::new(false),
            beside: AtomicBool::new(false),
        });
        let checkpoint = Checkpoint { shared };
        let resume = checkpoint.resume(gathered, expectation).await?;
        Ok((checkpoint, resume))
    }
}

/// A local location below another checkpoint would be taken for a part of it, and archived with it.
fn refuse_inside_another(location: &str) -> Result<()> {
    let path = location.strip_prefix("file://").unwrap_or(location);
    if path.contains("://") {
        return Ok(());
    }
    for outer in Path::new(path).ancestors().skip(1) {
        let is_checkpoint = std::fs::read(outer.join("metadata"))
            .is_ok_and(|bytes| Metadata::decode(&bytes).is_ok());
        if is_checkpoint {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!(
                    "checkpoint location \"{location}\" lies inside the checkpoint at \"{}\"",
                    outer.display()
                ),
            )
            .hint("Choose a folder outside of other checkpoints."));
        }
    }
    Ok(())
}

/// Facts and the contents that go with them.
struct Gathered {
    facts: Facts,
    files: HashMap<String, u64>,
    offsets: BTreeMap<u64, OffsetEntry>,
    /// Runs of the state of a commit.
    runs: BTreeMap<u64, Vec<RunInfo>>,
}

impl Gathered {
    async fn list(
        store: &dyn BlobStore,
        identity: &Identity,
        expectation: Expectation,
    ) -> Result<Self> {
        let metadata = match get_or_why(store, "metadata").await? {
            Ok(None) => MetadataFact::Missing,
            Err(why) => MetadataFact::Unreadable(Unreadable::Damaged(why)),
            Ok(Some(bytes)) => match Metadata::decode(&bytes) {
                Ok(metadata) => MetadataFact::Whole(metadata),
                Err(why) => MetadataFact::Unreadable(why),
            },
        };
        let files = store.list("").await?;
        let is_other = |blob: &BlobInfo| {
            ["state/", "sources/"]
                .iter()
                .any(|folder| blob.path.starts_with(folder))
        };
        Ok(Self {
            facts: Facts {
                pipeline_id: identity.pipeline_id,
                catalog_batch: expectation.catalog_batch,
                metadata,
                offsets: unread(&files, "offsets/"),
                commits: unread(&files, "commits/"),
                states: BTreeMap::new(),
                has_other_files: files.iter().any(is_other),
                newest_state: files
                    .iter()
                    .filter_map(|blob| decide::state_batch(&blob.path))
                    .max(),
            },
            files: files
                .into_iter()
                .map(|blob| (blob.path, blob.bytes))
                .collect(),
            offsets: BTreeMap::new(),
            runs: BTreeMap::new(),
        })
    }
}

fn unread<T>(files: &[BlobInfo], folder: &str) -> BTreeMap<u64, Fact<T>> {
    files
        .iter()
        .filter_map(|blob| blob.path.strip_prefix(folder)?.parse().ok())
        .map(|batch_id| (batch_id, Fact::Unread))
        .collect()
}

/// What reading a part gave.
enum PartContent {
    Offsets(u64, Fact<OffsetEntry>),
    Commit(u64, Box<Fact<CommitFile>>),
    State(u64, Fact<Vec<RunInfo>>),
}

impl Checkpoint {
    async fn resume(&self, mut gathered: Gathered, expectation: Expectation) -> Result<Resume> {
        loop {
            match decide::resume(&gathered.facts) {
                Decision::Read(parts) => self.read_parts(parts, &mut gathered, expectation).await?,
                Decision::Fresh => {
                    self.write_metadata().await?;
                    return Ok(Resume::Fresh);
                }
                Decision::Resume(plan) => return self.carry_out(plan, gathered).await,
                Decision::Stop(stop) => return Err(self.stop_error(&stop)),
            }
        }
    }

    fn stop_error(&self, stop: &Stop) -> Error {
        stop.to_error(&self.shared.identity.pipeline_name, &self.location())
    }

    async fn write_metadata(&self) -> Result<()> {
        let identity = &self.shared.identity;
        let metadata = Metadata::of(identity, self.shared.clock.now_us(), 0);
        let bytes = metadata.encode();
        let size = bytes.len() as u64;
        let outcome = self
            .shared
            .store
            .put_if_absent("metadata", bytes.into())
            .await?;
        // It is there if this opening is a second try; `decide` has seen that it is ours.
        if matches!(outcome, PutOutcome::Written(_)) {
            let mut state = self.shared.state.lock();
            state.files.insert("metadata".into(), size);
        }
        Ok(())
    }

    async fn read_parts(
        &self,
        parts: Vec<Part>,
        gathered: &mut Gathered,
        expectation: Expectation,
    ) -> Result<()> {
        let contents: Vec<PartContent> = {
            let facts = &gathered.facts;
            futures::stream::iter(parts)
                .map(|part| self.read_part(part, facts, expectation))
                .buffered(READS_AT_ONCE)
                .try_collect()
                .await?
        };
        for content in contents {
            match content {
                PartContent::Offsets(batch_id, Fact::Whole(entry)) => {
                    gathered.offsets.insert(batch_id, entry);
                    gathered.facts.offsets.insert(batch_id, Fact::Whole(()));
                }
                PartContent::Offsets(batch_id, Fact::Damaged(why)) => {
                    gathered.facts.offsets.insert(batch_id, Fact::Damaged(why));
                }
                PartContent::Commit(batch_id, fact) => {
                    gathered.facts.commits.insert(batch_id, *fact);
                }
                PartContent::State(batch_id, Fact::Whole(runs)) => {
                    gathered.runs.insert(batch_id, runs);
                    gathered.facts.states.insert(batch_id, Fact::Whole(()));
                }
                PartContent::State(batch_id, Fact::Damaged(why)) => {
                    gathered.facts.states.insert(batch_id, Fact::Damaged(why));
                }
                PartContent::Offsets(_, Fact::Unread) | PartContent::State(_, Fact::Unread) => {}
            }
        }
        Ok(())
    }

    async fn read_part(
        &self,
        part: Part,
        facts: &Facts,
        expectation: Expectation,
    ) -> Result<PartContent> {
        Ok(match part {
            Part::Offsets(batch_id) => {
                let path = format!("offsets/{batch_id}");
                let fact = self
                    .read_entry(&path, OffsetFile::decode, |file| {
                        (file.pipeline_id, file.entry.batch_id == batch_id)
                    })
                    .await?;
                PartContent::Offsets(
                    batch_id,
                    match fact {
                        Fact::Whole(file) => Fact::Whole(file.entry),
                        Fact::Damaged(why) => Fact::Damaged(why),
                        Fact::Unread => Fact::Unread,
                    },
                )
            }
            Part::Commit(batch_id) => {
                let path = format!("commits/{batch_id}");
                let fact = self
                    .read_entry(&path, format::decode_one::<CommitFile>, |file| {
                        (file.pipeline_id, file.entry.batch_id == batch_id)
                    })
                    .await?;
                PartContent::Commit(batch_id, Box::new(fact))
            }
            Part::State(batch_id) => {
                let fact = match facts.commits.get(&batch_id) {
                    Some(Fact::Whole(commit)) => self.check_state(commit, expectation).await?,
                    _ => Fact::Damaged("the commit entry is not readable".into()),
                };
                PartContent::State(batch_id, fact)
            }
        })
    }

    /// Reads an entry; `belongs` gives the pipeline it names and whether the batch fits.
    async fn read_entry<T>(
        &self,
        path: &str,
        decode: impl Fn(&[u8]) -> Result<T, Unreadable>,
        belongs: impl Fn(&T) -> (uuid::Uuid, bool),
    ) -> Result<Fact<T>> {
        let bytes = match get_or_why(&*self.shared.store, path).await? {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Fact::Damaged("the file is missing".into())),
            Err(why) => return Ok(Fact::Damaged(why)),
        };
        match decode(&bytes) {
            Ok(file) => match belongs(&file) {
                (id, _) if id != self.shared.identity.pipeline_id => {
                    Ok(Fact::Damaged("it belongs to another pipeline".into()))
                }
                (_, false) => Ok(Fact::Damaged("it is of another batch".into())),
                _ => Ok(Fact::Whole(file)),
            },
            Err(Unreadable::Damaged(why)) => Ok(Fact::Damaged(why)),
            Err(why @ Unreadable::NewerVersion(_)) => Err(self.shared.damaged(path, why)),
        }
    }

    /// The runs that a commit stands on, if its manifest is the one it names, and all its runs are
    /// there; those that the local cold tier lacks are read and checked.
    async fn check_state(
        &self,
        commit: &CommitFile,
        expectation: Expectation,
    ) -> Result<Fact<Vec<RunInfo>>> {
        let Some(state) = commit.state else {
            return Ok(Fact::Whole(Vec::new()));
        };
        let Some(manifest_batch) = state.manifest_batch_id else {
            return Ok(Fact::Whole(Vec::new()));
        };
        let path = format!("state/{manifest_batch}.manifest");
        let unusable = |why: &str| {
            let location = self.location();
            Ok(Fact::Damaged(format!("\"{location}/{path}\": {why}")))
        };
        let bytes = match get_or_why(&*self.shared.store, &path).await? {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return unusable("the file is missing"),
            Err(why) => return unusable(&why),
        };
        let manifest = match Manifest::decode(&bytes) {
            Ok(manifest) => manifest,
            Err(Unreadable::Damaged(why)) => return unusable(&why),
            Err(why @ Unreadable::NewerVersion(_)) => return Err(self.shared.damaged(&path, why)),
        };
        if crc32c::crc32c(&bytes) != state.manifest_crc32c
            || manifest.head.pipeline_id != self.shared.identity.pipeline_id
        {
            return unusable("it is not the one that its commit names");
        }
        self.check_runs(manifest.runs, commit.entry.batch_id, expectation)
            .await
    }

    async fn check_runs(
        &self,
        runs: Vec<RunInfo>,
        batch_id: u64,
        expectation: Expectation,
    ) -> Result<Fact<Vec<RunInfo>>> {
        for run in &runs {
            let path = format!("state/{}", run.file);
            let size = self.shared.state.lock().files.get(&path).copied();
            match size {
                None => {
                    return Ok(Fact::Damaged(format!(
                        "\"{}/{path}\": the file is missing",
                        self.location()
                    )));
                }
                Some(size) if size != run.bytes => {
                    return Ok(Fact::Damaged(format!(
                        "\"{}/{path}\": {}",
                        self.location(),
                        wrong_size(size, run.bytes)
                    )));
                }
                Some(_) => {}
            }
        }
        let cold_batch = expectation
            .cold_batch
            .filter(|&cold| !load::must_discard_cold(&runs, cold, batch_id));
        let mut decoded_bytes = 0;
        for run in runs.iter().rev() {
            if cold_batch.is_some_and(|cold| run.last_batch_id <= cold) {
                continue;
            }
            match load::read_run(&self.shared, run).await {
                Ok(decoded) => {
                    decoded_bytes += run.bytes;
                    if decoded_bytes <= DECODED_BYTES_MAX {
                        let mut state = self.shared.state.lock();
                        state.decoded.insert(run.file.clone(), Arc::new(decoded));
                    }
                }
                Err(error) if error.kind() == crate::error::ErrorKind::Damaged => {
                    return Ok(Fact::Damaged(
                        error.primary().trim_start_matches(RUN_UNUSABLE).to_owned(),
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Fact::Whole(runs))
    }

    /// Sets damaged files aside and takes up the state that the plan starts from.
    async fn carry_out(&self, plan: Plan, mut gathered: Gathered) -> Result<Resume> {
        let set_aside: Vec<String> = plan
            .set_aside
            .iter()
            .map(|part| match part {
                Part::Offsets(batch_id) => format!("offsets/{batch_id}"),
                Part::Commit(batch_id) | Part::State(batch_id) => format!("commits/{batch_id}"),
            })
            .collect();
        if !set_aside.is_empty() {
            let label = archive_label(&self.shared.clock);
            self.shared.store.archive(&set_aside, &label).await?;
        }
        for path in &set_aside {
            gathered.files.remove(path);
        }
        let start = plan
            .start
            .and_then(|start| match &gathered.facts.commits[&start] {
                Fact::Whole(commit) => Some(commit.clone()),
                _ => None,
            });
        let newest_commit = gathered
            .facts
            .commits
            .iter()
            .rev()
            .find(|(_, fact)| matches!(fact, Fact::Whole(_)))
            .map(|(&batch_id, _)| batch_id);
        self.take_up(&plan, start.as_ref(), &mut gathered);
        for note in &plan.notes {
            tracing::warn!(
                pipeline = self.shared.identity.pipeline_name,
                location = self.location(),
                "{note}"
            );
        }
        let replay = plan
            .replay
            .iter()
            .filter_map(|batch_id| gathered.offsets.remove(batch_id))
            .collect();
        let last_commit: Option<CommitEntry> = start.map(|commit| commit.entry);
        Ok(Resume::At(Box::new(ResumePoint {
            last_commit,
            newest_commit,
            replay,
            notes: plan.notes,
        })))
    }

    fn take_up(&self, plan: &Plan, start: Option<&CommitFile>, gathered: &mut Gathered) {
        let mut state = self.shared.state.lock();
        state.files = std::mem::take(&mut gathered.files);
        let is_kept = |part: Part| !plan.set_aside.contains(&part);
        state.offsets = gathered
            .facts
            .offsets
            .keys()
            .copied()
            .filter(|&batch_id| is_kept(Part::Offsets(batch_id)))
            .collect();
        for (&batch_id, fact) in &gathered.facts.commits {
            let stands_on = match fact {
                Fact::Whole(commit) => Some(commit.state.and_then(|s| s.manifest_batch_id)),
                _ => None,
            };
            if is_kept(Part::Commit(batch_id)) {
                state.commits.insert(batch_id, stands_on);
            }
        }
        state.first_batch = start
            .map(|commit| commit.first_batch_id)
            .or_else(|| state.offsets.first().copied());
        if let Some(commit) = start {
            state.last_commit = Some(commit.entry.clone());
            state.persisted = commit.state;
            state.runs = gathered
                .runs
                .remove(&commit.entry.batch_id)
                .unwrap_or_default();
            if let Some(manifest) = commit.state.and_then(|s| s.manifest_batch_id) {
                let files = state.runs.iter().map(|run| run.file.clone()).collect();
                state.manifests.insert(manifest, files);
            }
        }
    }
}

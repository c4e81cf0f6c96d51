//! A checkpoint as it lies there: every file read and judged by itself.
//!
//! Reading needs no lease, so that it can be done beside a pipeline that runs; a file that goes
//! while it is read (retention) counts as one that was never there.

mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use uuid::Uuid;

use self::reading::{Content, FILES_AT_ONCE, check_runs, in_groups, is_entry, read};
use crate::checkpoint::blob::{BlobStore, get_or_why};
use crate::checkpoint::decide::{self, Decision, Fact, Facts, MetadataFact, Part};
use crate::checkpoint::format::{
    self, CommitFile, Lease, Manifest, Metadata, OffsetFile, RunInfo, Unreadable,
};
use crate::checkpoint::load::wrong_size;
use crate::checkpoint::location::Identity;
use crate::error::Result;

/// Reads that go on at the same time, each of several files.
const READS_AT_ONCE: usize = 4;
/// Bytes of runs whose checksums are read at [`Depth::Quick`].
const QUICK_BYTES_MAX: u64 = 256 << 20;

/// How much of the runs is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Checksums of the newest runs, up to a bound; of the others only their sizes.
    Quick,
    /// All checksums.
    Full,
}

/// A file that is there.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry<T> {
    /// Sound.
    Whole(T),
    /// Not sound: why, as a clause.
    Damaged(String),
}

impl<T> Entry<T> {
    /// The content of a sound one.
    pub fn whole(&self) -> Option<&T> {
        match self {
            Entry::Whole(content) => Some(content),
            Entry::Damaged(_) => None,
        }
    }

    /// What is wrong with it.
    pub fn damage(&self) -> Option<&str> {
        match self {
            Entry::Whole(_) => None,
            Entry::Damaged(why) => Some(why),
        }
    }
}

/// All that is at a location.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The location, for people.
    pub location: String,
    /// Whose checkpoint it should be.
    pub identity: Identity,
    /// Newest batch that the catalog knows.
    pub catalog_batch: Option<u64>,
    /// `metadata`.
    pub metadata: MetadataFact,
    /// The text of `metadata`, if it is any.
    pub metadata_text: Option<String>,
    /// `offsets/N`.
    pub offsets: BTreeMap<u64, Entry<OffsetFile>>,
    /// `commits/N`.
    pub commits: BTreeMap<u64, Entry<CommitFile>>,
    /// `state/N.manifest`, with the checksum of its bytes.
    pub manifests: BTreeMap<u64, Entry<(Manifest, u32)>>,
    /// Run files that a manifest names and that cannot be used: what is wrong, by file name.
    pub damaged_runs: BTreeMap<String, String>,
    /// Bytes of runs whose checksums were read.
    pub checked_bytes: u64,
    /// `sources/S/N`, by path, with the batch of the entry before it.
    pub sources: BTreeMap<String, Entry<Option<u64>>>,
    /// `lease`.
    pub lease: Option<Entry<Lease>>,
    /// Size of every file, by path.
    pub files: BTreeMap<String, u64>,
    /// Other pipelines that an entry names.
    pub foreign_ids: BTreeSet<Uuid>,
    /// The newest format version found, where this build does not know it.
    pub newer_version: Option<String>,
}

impl Survey {
    /// Reads a location.
    pub async fn take(
        store: &Arc<dyn BlobStore>,
        identity: &Identity,
        catalog_batch: Option<u64>,
        depth: Depth,
    ) -> Result<Self> {
        let files: BTreeMap<String, u64> = store
            .list("")
            .await?
            .into_iter()
            .map(|blob| (blob.path, blob.bytes))
            .collect();
        let mut survey = Self {
            location: store.describe(),
            identity: identity.clone(),
            catalog_batch,
            metadata: MetadataFact::Missing,
            metadata_text: None,
            offsets: BTreeMap::new(),
            commits: BTreeMap::new(),
            manifests: BTreeMap::new(),
            damaged_runs: BTreeMap::new(),
            checked_bytes: 0,
            sources: BTreeMap::new(),
            lease: None,
            files,
            foreign_ids: BTreeSet::new(),
            newer_version: None,
        };
        survey.read_single(store).await?;
        let paths = survey.files.keys().filter(|path| is_entry(path));
        let paths: Vec<String> = paths.cloned().collect();
        let groups: Vec<Vec<String>> = paths
            .chunks(FILES_AT_ONCE)
            .map(<[String]>::to_vec)
            .collect();
        let contents: Vec<Vec<Content>> = futures::stream::iter(groups)
            .map(|paths| read(store, paths))
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        let contents = contents.into_iter().flatten();
        for content in contents {
            survey.add(content);
        }
        survey.check_runs(store, depth).await?;
        Ok(survey)
    }

    async fn read_single(&mut self, store: &Arc<dyn BlobStore>) -> Result<()> {
        match get_or_why(&**store, "metadata").await? {
            Ok(None) => {}
            Err(why) => self.metadata = MetadataFact::Unreadable(Unreadable::Damaged(why)),
            Ok(Some(bytes)) => {
                self.metadata_text = std::str::from_utf8(&bytes).ok().map(str::to_owned);
                self.metadata = match Metadata::decode(&bytes) {
                    Ok(metadata) => MetadataFact::Whole(metadata),
                    Err(why) => MetadataFact::Unreadable(why),
                };
            }
        }
        self.lease = match get_or_why(&**store, "lease").await? {
            Ok(None) => None,
            Err(why) => Some(Entry::Damaged(why)),
            Ok(Some(bytes)) => Some(match format::decode_one(&bytes) {
                Ok(lease) => Entry::Whole(lease),
                Err(why) => Entry::Damaged(self.words(why)),
            }),
        };
        Ok(())
    }

    fn words(&mut self, why: Unreadable) -> String {
        match why {
            Unreadable::Damaged(why) => why,
            Unreadable::NewerVersion(version) => {
                let words = format!("it was written by a newer version ({version})");
                self.newer_version = Some(version);
                words
            }
        }
    }

    fn judge<T>(&mut self, read: std::result::Result<(Uuid, bool, T), Unreadable>) -> Entry<T> {
        match read {
            Ok((id, _, _)) if id != self.identity.pipeline_id => {
                self.foreign_ids.insert(id);
                Entry::Damaged("it belongs to another pipeline".into())
            }
            Ok((_, false, _)) => Entry::Damaged("it is of another batch".into()),
            Ok((_, true, content)) => Entry::Whole(content),
            Err(why) => Entry::Damaged(self.words(why)),
        }
    }

    fn add(&mut self, content: Content) {
        match content {
            Content::Offsets(batch_id, Some(read)) => {
                let entry = self.judge(read);
                self.offsets.insert(batch_id, entry);
            }
            Content::Commit(batch_id, Some(read)) => {
                let entry = self.judge(read);
                self.commits.insert(batch_id, entry);
            }
            Content::Manifest(batch_id, Some(read)) => {
                let entry = self.judge(read);
                self.manifests.insert(batch_id, entry);
            }
            Content::Source(path, Some(read)) => {
                let entry = self.judge(read);
                self.sources.insert(path, entry);
            }
            Content::Offsets(batch_id, None) => self.forget(&format!("offsets/{batch_id}")),
            Content::Commit(batch_id, None) => self.forget(&format!("commits/{batch_id}")),
            Content::Manifest(batch_id, None) => self.forget(&format!("state/{batch_id}.manifest")),
            Content::Source(path, None) => self.forget(&path),
        }
    }

    fn forget(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Every run that a manifest names, newest first, each once.
    pub fn named_runs(&self) -> Vec<RunInfo> {
        let mut seen = BTreeSet::new();
        let manifests = self.manifests.values().rev().filter_map(Entry::whole);
        manifests
            .flat_map(|(manifest, _)| manifest.runs.iter().rev())
            .filter(|run| seen.insert(run.file.clone()))
            .cloned()
            .collect()
    }

    async fn check_runs(&mut self, store: &Arc<dyn BlobStore>, depth: Depth) -> Result<()> {
        let mut to_read = Vec::new();
        for run in self.named_runs() {
            match self.files.get(&format!("state/{}", run.file)) {
                None => {
                    let why = "the file is missing".to_owned();
                    self.damaged_runs.insert(run.file, why);
                }
                Some(size) if *size != run.bytes => {
                    let why = wrong_size(*size, run.bytes);
                    self.damaged_runs.insert(run.file, why);
                }
                Some(_) if depth == Depth::Full => to_read.push(run),
                Some(_) if self.checked_bytes + run.bytes <= QUICK_BYTES_MAX => {
                    self.checked_bytes += run.bytes;
                    to_read.push(run);
                }
                Some(_) => {}
            }
        }
        self.checked_bytes = to_read.iter().map(|run| run.bytes).sum();
        let checked: Vec<Vec<(String, String)>> = futures::stream::iter(in_groups(to_read))
            .map(|runs| check_runs(store, runs))
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        self.damaged_runs.extend(checked.into_iter().flatten());
        Ok(())
    }

    /// The manifest and runs that a commit stands on; why they cannot be used.
    pub fn state_of(&self, commit: &CommitFile) -> Entry<()> {
        let Some((state, manifest_batch)) = commit
            .state
            .and_then(|state| Some((state, state.manifest_batch_id?)))
        else {
            return Entry::Whole(());
        };
        let location = &self.location;
        let damaged =
            |file: String, why: &str| Entry::Damaged(format!("\"{location}/state/{file}\": {why}"));
        let file = format!("{manifest_batch}.manifest");
        match self.manifests.get(&manifest_batch) {
            None => damaged(file, "the file is missing"),
            Some(Entry::Damaged(why)) => damaged(file, why),
            Some(Entry::Whole((_, crc))) if *crc != state.manifest_crc32c => {
                damaged(file, "it is not the one that its commit names")
            }
            Some(Entry::Whole((manifest, _))) => manifest
                .runs
                .iter()
                .find_map(|run| Some((run, self.damaged_runs.get(&run.file)?)))
                .map_or(Entry::Whole(()), |(run, why)| {
                    damaged(run.file.clone(), why)
                }),
        }
    }

    /// The first file that is not as it was written, as a clause.
    pub fn first_damage(&self) -> Option<String> {
        fn of<T>(folder: &str, entries: &BTreeMap<u64, Entry<T>>, end: &str) -> Option<String> {
            let mut entries = entries.iter();
            entries.find_map(|(n, entry)| Some(format!("{folder}/{n}{end}: {}", entry.damage()?)))
        }
        let mut sources = self.sources.iter();
        let mut runs = self.damaged_runs.iter();
        of("offsets", &self.offsets, "")
            .or_else(|| of("commits", &self.commits, ""))
            .or_else(|| of("state", &self.manifests, ".manifest"))
            .or_else(|| runs.next().map(|(run, why)| format!("state/{run}: {why}")))
            .or_else(|| {
                sources.find_map(|(path, entry)| Some(format!("{path}: {}", entry.damage()?)))
            })
    }

    /// The newest sound commit.
    pub fn newest_commit(&self) -> Option<&CommitFile> {
        self.commits.values().rev().find_map(Entry::whole)
    }

    /// The newest batch that the location or the catalog tells of.
    pub fn newest_batch(&self) -> Option<u64> {
        let offsets = self.offsets.keys().next_back().copied();
        let commits = self.commits.keys().next_back().copied();
        offsets.max(commits).max(self.catalog_batch)
    }

    /// What opening would do: it asks for parts, and is told what they are.
    pub fn verdict(&self) -> Decision {
        let mut facts = self.unread_facts();
        loop {
            match decide::resume(&facts) {
                Decision::Read(parts) => {
                    for part in parts {
                        self.tell(&mut facts, part);
                    }
                }
                decided => return decided,
            }
        }
    }

    fn unread_facts(&self) -> Facts {
        let files = || self.files.keys().map(String::as_str);
        let is_other = |path: &str| path.starts_with("state/") || path.starts_with("sources/");
        Facts {
            pipeline_id: self.identity.pipeline_id,
            catalog_batch: self.catalog_batch,
            metadata: self.metadata.clone(),
            offsets: unread(&self.offsets),
            commits: unread(&self.commits),
            states: BTreeMap::new(),
            has_other_files: files().any(is_other),
            newest_state: files().filter_map(decide::state_batch).max(),
        }
    }

    fn tell(&self, facts: &mut Facts, part: Part) {
        match part {
            Part::Offsets(batch_id) => {
                let told = told(self.offsets.get(&batch_id), |_| ());
                facts.offsets.insert(batch_id, told);
            }
            Part::Commit(batch_id) => {
                let told = told(self.commits.get(&batch_id), CommitFile::clone);
                facts.commits.insert(batch_id, told);
            }
            Part::State(batch_id) => {
                let commit = self.commits.get(&batch_id).and_then(Entry::whole);
                let state = commit.map(|commit| self.state_of(commit));
                let told = told(state.as_ref(), |()| ());
                facts.states.insert(batch_id, told);
            }
        }
    }
}

fn unread<T, U>(entries: &BTreeMap<u64, Entry<T>>) -> BTreeMap<u64, Fact<U>> {
    entries.keys().map(|n| (*n, Fact::Unread)).collect()
}

fn told<T, U>(entry: Option<&Entry<T>>, content: impl Fn(&T) -> U) -> Fact<U> {
    match entry {
        Some(Entry::Whole(whole)) => Fact::Whole(content(whole)),
        Some(Entry::Damaged(why)) => Fact::Damaged(why.clone()),
        None => Fact::Damaged("the file is missing".to_owned()),
    }
}

/// The batch in a file's name, where it is written as we write it.
pub(super) fn batch_of(digits: &str) -> Option<u64> {
    let batch_id: u64 = digits.parse().ok()?;
    (batch_id.to_string() == digits).then_some(batch_id)
}

/// The batch of `sources/S/N` or `sources/S/N.compact`.
pub(super) fn source_batch(path: &str) -> Option<u64> {
    let (_, name) = path.strip_prefix("sources/")?.split_once('/')?;
    batch_of(name.strip_suffix(".compact").unwrap_or(name))
}

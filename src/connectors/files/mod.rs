//! The `files` source: a folder, a pattern or an object-store prefix of JSON, CSV, Parquet or text.
//!
//! New files are found by listing, oldest first. The exact list of a batch's files goes into the
//! source's log before the batch is planned, so that a batch reads the same files again whatever
//! happened to the folder since. Writers should rename whole files into place, or `min_file_age`
//! keeps young files out; a file whose last line is not ended is left until it is, or until nobody
//! has touched it for `bad_file_wait`. Empty files wait until they have content.
//!
//! Absent: watching by the kernel's notifications (object stores have none, network folders lie).

mod ending;
mod inspect;
pub mod location;
pub mod pattern;
pub mod plan;
mod read;
mod told;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;

pub(super) use self::inspect::parquet_sample;
use self::location::{FileEntry, Location};
use self::plan::{FilesOffset, Found, LogEntry, OnBadFile, OnChangedFile, PlannedFile, Seen};
use self::read::{FileTask, ReadPolicy};
use self::told::ReadFiles;
use super::evolution::RESCUED_METADATA;
use super::formats::{Format, FormatOptions, Layout};
use super::settings::Settings;
use super::telling::{Names, Notices};
use super::{
    Backlog, ConnectorEnvironment, KnownFile, ReadLimits, Source, SourceChunk, SourceLog,
    SourceOffset, SourceRange, StartAt, chunks,
};
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Options};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

/// Batches that get an entry between two compactions of the log.
const COMPACT_EVERY: usize = 50;

/// How often a waiting pipeline looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The source.
pub struct FilesSource {
    names: Names,
    location: Location,
    schema: SchemaRef,
    metadata: Vec<Option<String>>,
    policy: ReadPolicy,
    limits: ReadLimits,
    min_file_age_us: i64,
    bad_file_wait_us: i64,
    log: Arc<dyn SourceLog>,
    retain_batches: usize,
    clock: ClockRef,
    known: Mutex<Known>,
}

/// What the source knows of its files; rebuilt from the log when a pipeline goes back.
#[derive(Default)]
struct Known {
    /// The log was read.
    loaded: bool,
    /// Batches on the current chain, oldest first.
    chain: Vec<u64>,
    /// Files of these batches.
    seen: HashMap<String, Seen>,
    /// Files that were told to be empty for long.
    told_empty: HashSet<String>,
    /// The last listing.
    listing: Option<Arc<Vec<FileEntry>>>,
}

impl FilesSource {
    /// Opens the source of a stream or table; nothing is listed yet.
    pub fn open(
        object: &CatalogObject,
        options: &Options,
        environment: &ConnectorEnvironment,
    ) -> Result<Self> {
        let settings = Settings::new(&object.name, options, &environment.secrets);
        let location_text = settings.required("location")?;
        let format = FormatOptions::from_settings(&settings, || format_by_name(&location_text))?
            .with_altered_columns(object);
        let metadata = metadata_columns(object.columns())?;
        let names = Names::new(&object.name, environment);
        let policy = ReadPolicy {
            names: names.clone(),
            notices: Notices::default(),
            read_files: ReadFiles::default(),
            format,
            replayed: environment.letters.clone(),
            ignore_missing_files: settings.boolean("ignore_missing_files")?.unwrap_or(false),
            on_bad_file: settings
                .choice(
                    "on_bad_file",
                    &[
                        ("wait", OnBadFile::Wait),
                        ("fail", OnBadFile::Fail),
                        ("skip", OnBadFile::Skip),
                    ],
                )?
                .unwrap_or(OnBadFile::Wait),
            on_changed_file: settings
                .choice(
                    "on_changed_file",
                    &[
                        ("warn", OnChangedFile::Warn),
                        ("read_again", OnChangedFile::ReadAgain),
                        ("fail", OnChangedFile::Fail),
                    ],
                )?
                .unwrap_or(OnChangedFile::Warn),
        };
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let source = Self {
            names,
            location: Location::parse(&location_text, &settings)?,
            schema: object.schema(),
            metadata,
            policy,
            limits: ReadLimits {
                max_rows: None,
                max_files: settings.count("max_files_per_trigger")?,
                max_bytes: settings.bytes("max_bytes_per_trigger")?,
            },
            min_file_age_us: settings.duration("min_file_age")?.map_or(0, micros),
            bad_file_wait_us: micros(
                settings
                    .duration("bad_file_wait")?
                    .unwrap_or(Duration::from_secs(60)),
            ),
            log: environment
                .source_log
                .clone()
                .unwrap_or_else(|| Arc::new(MemoryLog::default())),
            retain_batches: environment.retain_batches,
            clock: environment.clock.clone(),
            known: Mutex::default(),
        };
        // A layout of all columns shows now what would fail at the first batch.
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let layout = source.layout(&all);
        if source.policy.format.format != Format::Parquet {
            super::formats::RecordDecoder::new(
                &source.policy.format,
                &layout.payload,
                &layout.payload_projection,
            )?;
        }
        Ok(source)
    }

    fn layout(&self, projection: &[usize]) -> Layout {
        Layout::new(&self.schema, &self.metadata, projection)
    }

    /// Entries of a log by batch.
    async fn entries(&self, log: &dyn SourceLog) -> Result<HashMap<u64, LogEntry>> {
        let all = log.load_all().await?;
        let root = self.location.root();
        all.iter()
            .map(|(batch_id, value)| {
                let entry = LogEntry::parse(&self.names, *batch_id, value)?;
                Ok((*batch_id, entry.at_root(&root)))
            })
            .collect()
    }

    /// Makes the known files those of the chain that ends at `last`.
    async fn load(&self, last: Option<u64>) -> Result<()> {
        let (chain, seen) = self.read_log(&*self.log, last).await?;
        let mut known = self.known.lock();
        known.loaded = true;
        known.chain = chain;
        known.seen = seen;
        Ok(())
    }

    /// The chain of a log that ends at `last`, and the files on it.
    async fn read_log(
        &self,
        log: &dyn SourceLog,
        last: Option<u64>,
    ) -> Result<(Vec<u64>, HashMap<String, Seen>)> {
        let entries = self.entries(log).await?;
        let chain = plan::chain(&self.names, &entries, last)?;
        let mut seen = HashMap::new();
        for batch_id in &chain {
            for file in &entries[batch_id].files {
                remember(&mut seen, file, *batch_id);
            }
        }
        Ok((chain, seen))
    }

    /// Loads the newest chain, if nothing was loaded yet.
    async fn load_newest(&self) -> Result<()> {
        if self.known.lock().loaded {
            return Ok(());
        }
        let newest = self.log.load_all().await?.last().map(|(batch, _)| *batch);
        self.load(newest).await
    }

    async fn list(&self) -> Result<Arc<Vec<FileEntry>>> {
        let listing = Arc::new(self.location.list().await?);
        self.known.lock().listing = Some(listing.clone());
        Ok(listing)
    }

    /// Sorts the last listing against the known files and applies `on_changed_file`.
    fn found(&self, listing: &[FileEntry]) -> Result<Found> {
        let mut known = self.known.lock();
        for entry in listing {
            // From now on it is known by its own time.
            if let Some(seen) = known.seen.get_mut(&entry.path)
                && seen.moved
                && seen.size == entry.size
            {
                (seen.moved, seen.modified_at_us) = (false, entry.modified_at_us);
            }
        }
        let found = plan::sort_listing(
            listing,
            &known.seen,
            self.clock.now_us(),
            self.min_file_age_us,
            self.policy.on_changed_file,
        );
        for entry in &found.changed {
            match self.policy.on_changed_file {
                OnChangedFile::Fail => return Err(read::changed_file(&self.names, &entry.path)),
                OnChangedFile::ReadAgain => {}
                OnChangedFile::Warn => {
                    if let Some(seen) = known.seen.get_mut(&entry.path) {
                        self.policy.notices.tell(format!(
                            "file \"{}\" changed after it was read: it had {} bytes and has {} \
                             now; what changed is not read",
                            entry.path, seen.size, entry.size
                        ));
                        seen.size = entry.size;
                        seen.modified_at_us = entry.modified_at_us;
                    }
                }
            }
        }
        self.tell_empty(listing, &mut known);
        Ok(found)
    }

    /// Says once of a file that it stays empty; it is read when it has content.
    fn tell_empty(&self, listing: &[FileEntry], known: &mut Known) {
        let now_us = self.clock.now_us();
        for entry in listing.iter().filter(|entry| entry.size == 0) {
            let age_us = now_us.saturating_sub(entry.modified_at_us);
            let waited = age_us >= self.bad_file_wait_us && !known.seen.contains_key(&entry.path);
            if waited && known.told_empty.insert(entry.path.clone()) {
                self.policy.notices.tell(format!(
                    "file \"{}\" is empty; it is read when it has content",
                    entry.path
                ));
            }
        }
    }

    /// Files of the batches after `start` up to `end`, in reading order.
    async fn files_between(
        &self,
        start: FilesOffset,
        end: FilesOffset,
    ) -> Result<Vec<PlannedFile>> {
        let mut batches = Vec::new();
        let mut next = end.files_log;
        while let Some(batch_id) = next
            && start.files_log.is_none_or(|s| batch_id > s)
        {
            let value = self.log.get(batch_id).await?;
            let value = value.ok_or_else(|| plan::missing_entry(&self.names, batch_id))?;
            let entry = LogEntry::parse(&self.names, batch_id, &value)?;
            let entry = entry.at_root(&self.location.root());
            next = entry.previous;
            batches.push((batch_id, entry));
        }
        let mut files = Vec::new();
        for (batch_id, entry) in batches.into_iter().rev() {
            files.extend(entry.files.into_iter().filter(|file| {
                let of = file.batch_id.unwrap_or(batch_id);
                start.files_log.is_none_or(|s| of > s)
            }));
        }
        Ok(files)
    }

    /// What to compact: everything but the newest batches, once enough has piled up.
    fn compaction(&self) -> Option<(u64, LogEntry)> {
        let known = self.known.lock();
        if known.chain.len() < self.retain_batches + COMPACT_EVERY {
            return None;
        }
        let through = known.chain[known.chain.len() - 1 - self.retain_batches];
        let old = known.seen.iter().filter(|(_, s)| s.batch_id <= through);
        Some((through, compacted(self.location.root(), old)))
    }
}

/// One entry for all of these files.
fn compacted<'a>(root: String, seen: impl Iterator<Item = (&'a String, &'a Seen)>) -> LogEntry {
    let mut by_order = BTreeMap::new();
    for (path, seen) in seen {
        let entry = FileEntry {
            path: path.clone(),
            size: seen.size,
            modified_at_us: seen.modified_at_us,
        };
        let file = PlannedFile {
            entry,
            batch_id: Some(seen.batch_id),
            skipped: None,
            moved: false,
        };
        by_order.insert((seen.batch_id, seen.modified_at_us, path.clone()), file);
    }
    LogEntry {
        previous: None,
        files: by_order.into_values().collect(),
        root: Some(root),
    }
}

fn remember(seen: &mut HashMap<String, Seen>, file: &PlannedFile, batch_id: u64) {
    seen.insert(
        file.entry.path.clone(),
        Seen {
            size: file.entry.size,
            modified_at_us: file.entry.modified_at_us,
            batch_id: file.batch_id.unwrap_or(batch_id),
            moved: file.moved,
        },
    );
}

/// The format that the ending of a location names.
pub(super) fn format_by_name(location: &str) -> Option<&'static str> {
    let extension = location.rsplit('.').next()?.to_ascii_lowercase();
    match extension.as_str() {
        "json" | "jsonl" | "ndjson" => Some("json"),
        "csv" => Some("csv"),
        "parquet" => Some("parquet"),
        "txt" => Some("text"),
        _ => None,
    }
}

/// Which columns are filled from a file's metadata.
fn metadata_columns(columns: &[ColumnDefinition]) -> Result<Vec<Option<String>>> {
    const NAMES: [&str; 3] = ["file_path", "file_modified_at", RESCUED_METADATA];
    columns
        .iter()
        .map(|column| match &column.metadata_from {
            Some(name) if !NAMES.contains(&name.as_str()) => {
                Err(super::unknown_metadata(&column.name, name, "files", &NAMES))
            }
            name => Ok(name.clone()),
        })
        .collect()
}

#[async_trait]
impl Source for FilesSource {
    fn description(&self) -> String {
        format!("files in {}", self.location.description())
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        Ok(FilesOffset::default().to_offset())
    }

    /// Files that are passed over become the entry of the first batch, and so count as read.
    async fn position_at(&self, batch_id: u64, at: &StartAt) -> Result<SourceOffset> {
        let before_us = match at {
            StartAt::Earliest => return self.initial_offset().await,
            StartAt::Latest => i64::MAX,
            StartAt::Timestamp(us) => *us,
            StartAt::Offsets(offset) => {
                let offset = FilesOffset::parse(&SourceOffset(offset.clone()))?;
                return match offset.files_log {
                    None => Ok(FilesOffset::default().to_offset()),
                    Some(_) => Err(Error::unsupported(
                        "a files source cannot be started at a batch of another checkpoint",
                    )
                    .hint("Say FROM EARLIEST, FROM LATEST or FROM TIMESTAMP '…'.")),
                };
            }
        };
        let listing = self.location.list().await?;
        let files: Vec<PlannedFile> = listing
            .iter()
            .filter(|entry| entry.modified_at_us < before_us)
            .map(|entry| PlannedFile {
                entry: entry.clone(),
                batch_id: None,
                skipped: None,
                moved: false,
            })
            .collect();
        if files.is_empty() {
            return self.initial_offset().await;
        }
        let position = FilesOffset {
            files_log: Some(batch_id),
            files: files.len() as u64,
        };
        let entry = LogEntry {
            previous: None,
            files,
            root: Some(self.location.root()),
        };
        self.log.put(batch_id, &entry.to_json()?).await?;
        Ok(position.to_offset())
    }

    async fn taken_in(&self, position: &SourceOffset) -> Result<Option<u64>> {
        let position = FilesOffset::parse(position)?;
        let (_, seen) = self.read_log(&*self.log, position.files_log).await?;
        // The same whatever batches they came in.
        let of_file = |(path, seen): (&String, &Seen)| {
            let mut hasher = DefaultHasher::new();
            (path, seen.size, seen.modified_at_us).hash(&mut hasher);
            hasher.finish()
        };
        Ok(Some(seen.iter().map(of_file).fold(0, u64::wrapping_add)))
    }

    /// Their files become the entry of `batch_id`.
    async fn take_over(
        &self,
        batch_id: u64,
        position: &SourceOffset,
        theirs: &dyn SourceLog,
    ) -> Result<SourceOffset> {
        let position = FilesOffset::parse(position)?;
        if position.files_log.is_none() {
            return Ok(position.to_offset());
        }
        let (_, seen) = self.read_log(theirs, position.files_log).await?;
        let mut entry = compacted(self.location.root(), seen.iter());
        // Their batches had other numbers.
        entry.files.iter_mut().for_each(|file| file.batch_id = None);
        self.log.put(batch_id, &entry.to_json()?).await?;
        let position = FilesOffset {
            files_log: Some(batch_id),
            files: position.files,
        };
        Ok(position.to_offset())
    }

    async fn check_range(&self, range: &SourceRange) -> Result<()> {
        let start = FilesOffset::parse(&range.start)?;
        let end = FilesOffset::parse(&range.end)?;
        let listing = self.location.list().await?;
        let there: HashSet<&str> = listing.iter().map(|entry| entry.path.as_str()).collect();
        let files = self.files_between(start, end).await?;
        match files
            .iter()
            .find(|file| file.skipped.is_none() && !there.contains(file.entry.path.as_str()))
        {
            None => Ok(()),
            Some(gone) => Err(Error::damaged(format!(
                "file \"{}\", which was read before, is gone",
                gone.entry.path
            ))
            .hint(format!(
                "Put it back, or {}",
                self.names.checkpoint("RESET", "")
            ))),
        }
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        self.load_newest().await?;
        let listing = self.list().await?;
        let found = self.found(&listing)?;
        let known = self.known.lock();
        let latest = FilesOffset {
            files_log: known.chain.last().copied(),
            files: (known.seen.len() + found.unread.len()) as u64,
        };
        Ok(latest.to_offset())
    }

    async fn plan_range(
        &self,
        batch_id: u64,
        start: &SourceOffset,
        _latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        let start_position = FilesOffset::parse(start)?;
        let stands = {
            let known = self.known.lock();
            known.loaded && known.chain.last().copied() == start_position.files_log
        };
        if !stands {
            self.load(start_position.files_log).await?;
        }
        let listing = self.known.lock().listing.clone();
        let listing = match listing {
            Some(listing) => listing,
            None => self.list().await?,
        };
        let found = self.found(&listing)?;
        let limits = ReadLimits {
            max_rows: None,
            max_files: plan::tighter(limits.max_files, self.limits.max_files),
            max_bytes: plan::tighter(limits.max_bytes, self.limits.max_bytes),
        };
        let files = self.choose(&found.unread, &limits).await?;
        if files.is_empty() {
            return Ok(None);
        }
        let entry = LogEntry {
            previous: start_position.files_log,
            files,
            root: Some(self.location.root()),
        };
        self.log.put(batch_id, &entry.to_json()?).await?;
        let mut known = self.known.lock();
        for file in &entry.files {
            if known.seen.contains_key(&file.entry.path) {
                self.policy.notices.tell(format!(
                    "file \"{}\" changed after it was read, and is read again",
                    file.entry.path
                ));
            }
            remember(&mut known.seen, file, batch_id);
            self.policy.read_files.planned(&file.entry.path);
        }
        known.chain.push(batch_id);
        let end = FilesOffset {
            files_log: Some(batch_id),
            files: known.seen.len() as u64,
        };
        Ok(Some(SourceRange {
            start: start.clone(),
            end: end.to_offset(),
        }))
    }

    fn backlog(&self, _from: &SourceOffset, _latest: &SourceOffset) -> Backlog {
        let known = self.known.lock();
        let Some(listing) = &known.listing else {
            return Backlog::default();
        };
        let bytes = listing
            .iter()
            .filter(|entry| !known.seen.contains_key(&entry.path))
            .map(|entry| entry.size)
            .sum();
        Backlog {
            rows: None,
            bytes: Some(bytes),
        }
    }

    async fn read_range(
        &self,
        _batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>> {
        let start = FilesOffset::parse(&range.start)?;
        let end = FilesOffset::parse(&range.end)?;
        if start.files_log == end.files_log {
            return Ok(stream::empty().boxed());
        }
        let files = self.files_between(start, end).await?;
        let layout = Arc::new(self.layout(projection));
        let (location, policy) = (self.location.clone(), self.policy.clone());
        let readers = files.into_iter().flat_map(move |file| {
            let segments = read::segments(&file, &location, &policy.format.format);
            let (location, policy, layout) = (location.clone(), policy.clone(), layout.clone());
            segments.into_iter().map(move |segment| {
                FileTask {
                    location: location.clone(),
                    policy: policy.clone(),
                    layout: layout.clone(),
                    file: file.clone(),
                    segment,
                    sent: Cell::default(),
                    aside: RefCell::default(),
                }
                .into_reader()
            })
        });
        let parallelism = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(chunks::read_in_order(readers, parallelism.min(8)))
    }

    async fn acknowledge(&self, _batch_id: u64, offset: &SourceOffset) -> Result<()> {
        let position = FilesOffset::parse(offset)?;
        let Some((through, entry)) = self.compaction() else {
            return Ok(());
        };
        if position
            .files_log
            .is_none_or(|acknowledged| through >= acknowledged)
        {
            return Ok(());
        }
        self.log.compact(through, &entry.to_json()?).await?;
        let mut known = self.known.lock();
        known.chain.retain(|batch_id| *batch_id >= through);
        Ok(())
    }

    fn known_files(&self) -> Vec<KnownFile> {
        let known = self.known.lock();
        told::known_files(&known, &self.policy.read_files)
    }

    fn take_notices(&self) -> Vec<crate::connectors::Notice> {
        self.policy.notices.take()
    }

    async fn wait_for_data(&self, _from: &SourceOffset) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A log for readers that live no longer than the process, such as a `SELECT` on the stream.
#[derive(Default)]
struct MemoryLog(Mutex<BTreeMap<u64, serde_json::Value>>);

#[async_trait]
impl SourceLog for MemoryLog {
    async fn put(&self, batch_id: u64, entry: &serde_json::Value) -> Result<()> {
        self.0.lock().insert(batch_id, entry.clone());
        Ok(())
    }

    async fn get(&self, batch_id: u64) -> Result<Option<serde_json::Value>> {
        Ok(self.0.lock().get(&batch_id).cloned())
    }

    async fn load_all(&self) -> Result<Vec<(u64, serde_json::Value)>> {
        Ok(self
            .0
            .lock()
            .iter()
            .map(|(batch_id, entry)| (*batch_id, entry.clone()))
            .collect())
    }

    async fn compact(&self, through: u64, entry: &serde_json::Value) -> Result<()> {
        let mut entries = self.0.lock();
        entries.retain(|batch_id, _| *batch_id > through);
        entries.insert(through, entry.clone());
        Ok(())
    }
}

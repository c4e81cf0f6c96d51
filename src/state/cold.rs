//! The cold tier: one RocksDB that is fed only by ingested SST files.
//!
//! It has no memtable traffic and no write-ahead log. Each ingest brings the entries and, in a
//! small file of its own, a marker key (table 0) with the identity and the batch whose state is
//! now whole; RocksDB makes all files of one ingest visible in one manifest edit, so after a crash
//! it stands at exactly one batch. The marker has its own file because the smallest key in every
//! file would make all files overlap and keep RocksDB from placing them below level 0.
//!
//! The only other place that names the library is `system`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableSlice, DBRawIterator, DEFAULT_COLUMN_FAMILY_NAME, IngestExternalFileOptions,
    LogLevel, Options, ReadOptions, SnapshotWithThreadMode, SstFileWriter,
};
use uuid::Uuid;

use super::run::{EntryKind, MergeHeads, PREFIX_BYTES, overwriting};
use super::{MemoryBudget, Run, TableId};
use crate::error::{Error, Result, sqlstate};

/// The database's folder is `rocksdb-` and a random name: a reader may still hold the one of a
/// store that was destroyed when the next is opened at the same place.
const DATABASE_DIR_PREFIX: &str = "rocksdb-";
const INGEST_DIR: &str = "ingest";
/// In table 0, which no user of the store can have.
const MARKER_KEY: &[u8] = b"\0\0\0\0\0\0\0\0marker";
/// See [`ColdTier::leave_sequence_zero`].
const FIRST_KEY: &[u8] = b"\0\0\0\0\0\0\0\0first";
const MARKER_VERSION: u32 = 1;
/// Version u32, identity 16 bytes, batch u64; little endian.
const MARKER_BYTES: usize = 28;
/// SST files of one ingest are cut at this size, so that compaction moves small pieces.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Read at once where all is read.
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Keys of one call into RocksDB; bounds the blocks it pins.
const MULTI_GET_KEYS: usize = 4096;

/// The open database and the batch it holds.
pub(super) struct ColdTier {
    database: DB,
    ingest_dir: PathBuf,
    identity: Uuid,
    options: Options,
    next_file: AtomicU64,
}

impl fmt::Debug for ColdTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColdTier")
            .field("path", &self.database.path())
            .finish_non_exhaustive()
    }
}

impl ColdTier {
    /// Files of a cold tier are in `dir`.
    pub(super) fn is_present(dir: &Path) -> Result<bool> {
        Ok(database_dir(dir)?.is_some())
    }

    /// Opens or creates the database below `dir`. Gives the batch it holds whole.
    pub(super) fn open(
        dir: &Path,
        identity: Uuid,
        budget: &MemoryBudget,
    ) -> Result<(Arc<Self>, Option<u64>)> {
        let ingest_dir = dir.join(INGEST_DIR);
        if ingest_dir.exists() {
            // Left by a crash in the middle of a spill; the runs are in the checkpoint.
            fs::remove_dir_all(&ingest_dir).map_err(|e| io_error(&ingest_dir, &e))?;
        }
        fs::create_dir_all(&ingest_dir).map_err(|e| io_error(&ingest_dir, &e))?;
        let path = match database_dir(dir)? {
            Some(path) => path,
            None => {
                let name = Uuid::new_v4().simple().to_string();
                dir.join(format!("{DATABASE_DIR_PREFIX}{}", &name[..8]))
            }
        };
        let options = database_options(budget);
        let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let database = DB::open_cf_descriptors(&options, &path, [family]).map_err(rocksdb_error)?;
        let tier = Self {
            database,
            ingest_dir,
            identity,
            options,
            next_file: AtomicU64::new(0),
        };
        tier.leave_sequence_zero()?;
        let batch = tier.read_marker()?;
        Ok((Arc::new(tier), batch))
    }

    /// Writes one key the ordinary way into a new database. Ingested files may all get sequence
    /// number 0, and a snapshot at 0 is not respected when a range tombstone is compacted.
    fn leave_sequence_zero(&self) -> Result<()> {
        if self.database.latest_sequence_number() > 0 {
            return Ok(());
        }
        self.database.put(FIRST_KEY, []).map_err(rocksdb_error)?;
        self.database.flush().map_err(rocksdb_error)
    }

    fn read_marker(&self) -> Result<Option<u64>> {
        let Some(marker) = self
            .database
            .get_pinned(MARKER_KEY)
            .map_err(rocksdb_error)?
        else {
            return Ok(None);
        };
        let field = |from: usize, to: usize| marker.get(from..to);
        let (Some(version), Some(identity), Some(batch)) =
            (field(0, 4), field(4, 20), field(20, MARKER_BYTES))
        else {
            return Err(Error::damaged("local state has a damaged marker"));
        };
        let version = u32::from_le_bytes(version.try_into().expect("4 bytes were taken"));
        if version != MARKER_VERSION {
            return Err(Error::damaged(format!(
                "local state has format version {version}, this build reads version {MARKER_VERSION}"
            )));
        }
        if identity != self.identity.as_bytes() {
            return Err(
                Error::damaged("local state belongs to another checkpoint").detail(format!(
                    "It belongs to {}, wanted is {}.",
                    Uuid::from_slice(identity).unwrap_or_default(),
                    self.identity
                )),
            );
        }
        Ok(Some(u64::from_le_bytes(
            batch.try_into().expect("8 bytes were taken"),
        )))
    }

    /// Makes merged `newest_first` runs part of the database, which then holds `batch_id`.
    /// `has_older`: there are entries below, so tombstones must be kept where they may matter.
    pub(super) fn ingest(
        self: &Arc<Self>,
        batch_id: u64,
        newest_first: &[&Run],
        has_older: bool,
    ) -> Result<()> {
        let mut files = ColdFiles::new(self, has_older);
        files.add(newest_first)?;
        files.ingest(batch_id)
    }

    fn write_marker(&self, batch_id: u64, files: &mut Vec<PathBuf>) -> Result<()> {
        let mut marker = Vec::with_capacity(MARKER_BYTES);
        marker.extend_from_slice(&MARKER_VERSION.to_le_bytes());
        marker.extend_from_slice(self.identity.as_bytes());
        marker.extend_from_slice(&batch_id.to_le_bytes());
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(self.new_file(files)).map_err(rocksdb_error)?;
        writer.put(MARKER_KEY, &marker).map_err(rocksdb_error)?;
        writer.finish().map_err(rocksdb_error)
    }

    /// A file of range tombstones for the tables that the runs drop.
    fn write_dropped_tables(&self, newest_first: &[&Run], files: &mut Vec<PathBuf>) -> Result<()> {
        let mut tables: Vec<TableId> = newest_first
            .iter()
            .flat_map(|run| run.dropped_tables().iter().copied())
            .collect();
        tables.sort_unstable();
        tables.dedup();
        if tables.is_empty() {
            return Ok(());
        }
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(self.new_file(files)).map_err(rocksdb_error)?;
        for table in tables {
            let (lower, upper) = table_bounds(table);
            writer.delete_range(lower, upper).map_err(rocksdb_error)?;
        }
        writer.finish().map_err(rocksdb_error)
    }

    fn new_file(&self, files: &mut Vec<PathBuf>) -> PathBuf {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let path = self.ingest_dir.join(format!("{number}.sst"));
        files.push(path.clone());
        path
    }

    /// Bytes of SST files.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.database
            .property_int_value("rocksdb.total-sst-files-size")
            .ok()
            .flatten()
            .unwrap_or(0)
    }
}

/// Files of one ingest, written bit by bit; removed if they are not ingested.
#[derive(Debug)]
pub(super) struct ColdFiles {
    tier: Arc<ColdTier>,
    files: Vec<PathBuf>,
    /// Range tombstones of dropped tables.
    drop_files: Vec<PathBuf>,
    has_older: bool,
}

impl ColdFiles {
    pub(super) fn new(tier: &Arc<ColdTier>, has_older: bool) -> Self {
        Self {
            tier: Arc::clone(tier),
            files: Vec::new(),
            drop_files: Vec::new(),
            has_older,
        }
    }

    /// Adds merged runs, whose keys come after those that were added before.
    pub(super) fn add(&mut self, newest_first: &[&Run]) -> Result<()> {
        if self.has_older {
            self.tier
                .write_dropped_tables(newest_first, &mut self.drop_files)?;
        }
        let mut output = SplitWriter {
            tier: &self.tier,
            files: &mut self.files,
            writer: None,
        };
        let mut heads = MergeHeads::new(newest_first);
        while let Some(stretch) = heads.next_stretch() {
            let run = newest_first[stretch.age];
            let is_over = |oldest| overwriting(EntryKind::Tombstone, oldest).is_none();
            let leaves_nothing = !self.has_older || stretch.overwrites.is_some_and(is_over);
            for index in stretch.range {
                let key = run.key(index);
                match run.value(index) {
                    Some(value) => output.put(key, value)?,
                    // Asking the database whether it has the key costs more than the tombstone.
                    None if !leaves_nothing => output.delete(key)?,
                    None => {}
                }
            }
        }
        output.finish()
    }

    /// Makes all of it visible at once, as the state of `batch_id`. Dropped tables go first: where
    /// files of one ingest overlap, RocksDB takes the later ones as newer.
    pub(super) fn ingest(mut self, batch_id: u64) -> Result<()> {
        self.tier.write_marker(batch_id, &mut self.files)?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let files: Vec<&PathBuf> = self.drop_files.iter().chain(&self.files).collect();
        self.tier
            .database
            .ingest_external_file_opts(&options, files)
            .map_err(rocksdb_error)
    }
}

impl Drop for ColdFiles {
    fn drop(&mut self) {
        for file in self.files.iter().chain(&self.drop_files) {
            // Ingested files are hard-linked: the name here goes in any case. One that stays
            // behind only takes room and is removed at the next open.
            if let Err(error) = fs::remove_file(file)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(file = %file.display(), %error, "could not remove an ingested file");
            }
        }
    }
}

/// Cuts the entries of one ingest into files of bounded size.
struct SplitWriter<'a, 'f> {
    tier: &'a ColdTier,
    files: &'f mut Vec<PathBuf>,
    writer: Option<SstFileWriter<'a>>,
}

impl<'a> SplitWriter<'a, '_> {
    fn writer(&mut self) -> Result<&mut SstFileWriter<'a>> {
        let is_full = self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.file_size() >= FILE_BYTES_MAX);
        if is_full && let Some(mut full) = self.writer.take() {
            full.finish().map_err(rocksdb_error)?;
        }
        if self.writer.is_none() {
            let writer = SstFileWriter::create(&self.tier.options);
            writer
                .open(self.tier.new_file(self.files))
                .map_err(rocksdb_error)?;
            self.writer = Some(writer);
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.writer()?.put(key, value).map_err(rocksdb_error)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.writer()?.delete(key).map_err(rocksdb_error)
    }

    fn finish(mut self) -> Result<()> {
        match self.writer.take() {
            Some(mut writer) => writer.finish().map_err(rocksdb_error),
            None => Ok(()),
        }
    }
}

/// The cold tier as of one batch, pinned by a RocksDB snapshot.
pub(super) struct ColdView {
    // Declared before `tier`, so that it is released while the database is open.
    snapshot: SnapshotWithThreadMode<'static, DB>,
    tier: Arc<ColdTier>,
    batch_id: u64,
}

impl fmt::Debug for ColdView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColdView")
            .field("batch_id", &self.batch_id)
            .finish_non_exhaustive()
    }
}

impl ColdView {
    /// Pins the database as it is now, which must be at `batch_id`.
    pub(super) fn pin(tier: &Arc<ColdTier>, batch_id: u64) -> Arc<Self> {
        // SAFETY: the reference lives as long as `tier`, which the view holds and which cannot
        // move inside its `Arc`; the snapshot is the field that is dropped first.
        let database: &'static DB = unsafe { &*std::ptr::from_ref(&tier.database) };
        Arc::new(Self {
            snapshot: SnapshotWithThreadMode::new(database),
            tier: Arc::clone(tier),
            batch_id,
        })
    }

    pub(super) fn batch_id(&self) -> u64 {
        self.batch_id
    }

    /// Bytes of SST files.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.tier.disk_bytes()
    }

    /// Looks up ascending keys of a table; calls `found` with the number of each key that is
    /// there and its value.
    pub(super) fn get_many<'s>(
        &'s self,
        table: TableId,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, DBPinnableSlice<'s>),
    ) -> Result<()> {
        let family = self
            .tier
            .database
            .cf_handle(DEFAULT_COLUMN_FAMILY_NAME)
            .ok_or_else(|| Error::internal("local state has no default column family"))?;
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for (chunk_number, chunk) in keys.chunks(MULTI_GET_KEYS).enumerate() {
            bytes.clear();
            ends.clear();
            for key in chunk {
                bytes.extend_from_slice(&table.0.to_be_bytes());
                bytes.extend_from_slice(key);
                ends.push(bytes.len());
            }
            let full_keys: Vec<&[u8]> = ends
                .iter()
                .enumerate()
                .map(|(index, &end)| {
                    let start = if index == 0 { 0 } else { ends[index - 1] };
                    &bytes[start..end]
                })
                .collect();
            let values = self
                .tier
                .database
                .batched_multi_get_cf_opt(family, full_keys, true, &options);
            for (index, value) in values.into_iter().enumerate() {
                if let Some(value) = value.map_err(rocksdb_error)? {
                    found(chunk_number * MULTI_GET_KEYS + index, value);
                }
            }
        }
        Ok(())
    }

    /// An iterator over a table's entries within bounds, at its first entry.
    pub(super) fn iterate(
        self: &Arc<Self>,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<ColdIterator> {
        let (table_lower, table_upper) = table_bounds(table);
        let mut from = table_lower.clone();
        from.extend_from_slice(lower.unwrap_or_default());
        let to = match upper {
            Some(upper) => [table_lower.as_slice(), upper].concat(),
            None => table_upper,
        };
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        let mut iterator = self.raw_iterator(options);
        iterator.seek(&from);
        let iterator = ColdIterator {
            iterator,
            table,
            _view: Arc::clone(self),
        };
        iterator.check()?;
        Ok(iterator)
    }

    /// An iterator over the entries of all tables, which leaves the block cache to others.
    pub(super) fn iterate_all(self: &Arc<Self>) -> Result<ColdEntries> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(READ_AHEAD_BYTES);
        let mut iterator = self.raw_iterator(options);
        iterator.seek(table_bounds(TableId(1)).0);
        let entries = ColdEntries {
            iterator,
            _view: Arc::clone(self),
        };
        entries.check()?;
        Ok(entries)
    }

    /// Must be dropped before the view.
    fn raw_iterator(self: &Arc<Self>, options: ReadOptions) -> DBRawIterator<'static> {
        // SAFETY: the iterator refers to the snapshot and its database, both inside the view that
        // its holder keeps behind an `Arc`; the iterator is the field that is dropped first.
        let view: &'static ColdView = unsafe { &*Arc::as_ptr(self) };
        view.snapshot.raw_iterator_opt(options)
    }
}

/// Walks all tables.
pub(super) struct ColdEntries {
    iterator: DBRawIterator<'static>,
    _view: Arc<ColdView>,
}

impl ColdEntries {
    /// Key with its table's prefix, and value; `None` at the end.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.iterator.item()
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.iterator.next();
        self.check()
    }

    fn check(&self) -> Result<()> {
        self.iterator.status().map_err(rocksdb_error)
    }
}

/// A step costs a small part of a seek, which looks into every file.
const STEPS_BEFORE_SEEK: usize = 8;

/// Walks the cold tier; holds its view.
pub(super) struct ColdIterator {
    iterator: DBRawIterator<'static>,
    table: TableId,
    _view: Arc<ColdView>,
}

impl fmt::Debug for ColdIterator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColdIterator").finish_non_exhaustive()
    }
}

impl ColdIterator {
    pub(super) fn is_at_entry(&self) -> bool {
        self.iterator.valid()
    }

    /// Key without the table prefix; only at an entry.
    pub(super) fn key(&self) -> &[u8] {
        let key = self.iterator.key().expect("the cursor is at an entry");
        &key[PREFIX_BYTES..]
    }

    /// Value; only at an entry.
    pub(super) fn value(&self) -> &[u8] {
        self.iterator.value().expect("the cursor is at an entry")
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.iterator.next();
        self.check()
    }

    /// Moves on to the first entry that is not below `key`; only at an entry.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            if !self.iterator.valid() || self.key() >= key {
                return self.check();
            }
            self.iterator.next();
        }
        if self.iterator.valid() && self.key() < key {
            let full_key = [&self.table.0.to_be_bytes()[..], key].concat();
            self.iterator.seek(full_key);
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.iterator.valid() {
            return Ok(());
        }
        self.iterator.status().map_err(rocksdb_error)
    }
}

/// Full keys of a table lie in `lower <= key < upper`.
pub(super) fn table_bounds(table: TableId) -> (Vec<u8>, Vec<u8>) {
    let upper = match table.0.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        // No key is as long as this, and so none is greater.
        None => vec![0xff; 1 << 16],
    };
    (table.0.to_be_bytes().to_vec(), upper)
}

fn database_dir(dir: &Path) -> Result<Option<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(dir, &error)),
    };
    for entry in entries {
        let path = entry.map_err(|e| io_error(dir, &e))?.path();
        let is_database = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(DATABASE_DIR_PREFIX));
        if is_database {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Bytes of a data block before compression. A key that is looked up by itself costs a block, which is
/// read and decompressed: look-ups all over the state are what a small change of much state is.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes of a piece of an index or filter.
const METADATA_BLOCK_BYTES: usize = 16 << 10;

fn database_options(budget: &MemoryBudget) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(budget.block_cache());
    table.set_bloom_filter(10.0, false);
    table.set_block_size(BLOCK_BYTES);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // In pieces: the filter of a whole file, some megabytes, does not fit into a
    // shard of the cache, and would be read and checked again for every look-up.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_format_version(5);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    // Nothing is written to the memtable: the smallest that RocksDB accepts.
    options.set_write_buffer_size(64 << 10);
    options.set_max_write_buffer_number(2);
    options.set_target_file_size_base(FILE_BYTES_MAX);
    options.set_max_bytes_for_level_base(8 * FILE_BYTES_MAX);
    options.set_max_background_jobs(2);
    options.set_max_open_files(512);
    options.set_keep_log_file_num(2);
    options.set_log_level(LogLevel::Warn);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_bytes_per_sync(1 << 20);
    // A slowed-down ingest would only hold memory longer.
    options.set_level_zero_slowdown_writes_trigger(64);
    options.set_level_zero_stop_writes_trigger(128);
    options
}

pub(super) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let state = if error.kind() == std::io::ErrorKind::StorageFull {
        sqlstate::DISK_FULL
    } else {
        sqlstate::IO_ERROR
    };
    Error::transient(
        state,
        format!("could not access \"{}\": {error}", path.display()),
    )
}

/// What a RocksDB error means to the caller.
pub(super) fn rocksdb_error(error: rocksdb::Error) -> Error {
    use rocksdb::ErrorKind as Kind;
    let text = error.to_string();
    if text.contains("No space left on device") {
        return Error::transient(
            sqlstate::DISK_FULL,
            "could not write local state: disk is full",
        )
        .detail(text);
    }
    match error.kind() {
        Kind::Corruption | Kind::NotFound | Kind::InvalidArgument => {
            Error::damaged("local state is damaged").detail(text)
        }
        // A file that is missing or short is damage, not a busy disk.
        Kind::IOError if text.contains("No such file or directory") => {
            Error::damaged("local state is damaged").detail(text)
        }
        Kind::Unknown | Kind::NotSupported => Error::internal("local state failed").detail(text),
        _ => Error::transient(sqlstate::IO_ERROR, "could not access local state").detail(text),
    }
}

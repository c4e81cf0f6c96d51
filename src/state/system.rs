//! A small durable key-value store for the catalog's history: metrics rows, events, dead letters.
//!
//! One RocksDB with its own write-ahead log, since these rows come one at a time and must survive
//! a crash, while a lost tail is written again from the checkpoints' commit entries.

use std::fmt;
use std::fs;
use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType,
    DEFAULT_COLUMN_FAMILY_NAME, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::cold::{io_error, rocksdb_error};
use crate::error::Result;

/// History is read rarely and in ranges: a small cache does.
const CACHE_BYTES: usize = 4 << 20;
const WRITE_BUFFER_BYTES: usize = 2 << 20;

/// Ordered key-value pairs on disk.
pub struct SystemStore {
    database: DB,
}

impl fmt::Debug for SystemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemStore")
            .field("path", &self.database.path())
            .finish()
    }
}

impl SystemStore {
    /// Opens or creates the store in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| io_error(dir, &e))?;
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_write_buffer_number(2);
        options.set_max_total_wal_size(4 * WRITE_BUFFER_BYTES as u64);
        options.set_max_background_jobs(2);
        options.set_max_open_files(64);
        options.set_keep_log_file_num(2);
        options.set_log_level(LogLevel::Warn);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let database = DB::open_cf_descriptors(&options, dir, [family]).map_err(rocksdb_error)?;
        Ok(Self { database })
    }

    /// Writes pairs as one; `sync` forces them to disk before it returns.
    pub fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.database
            .write_opt(batch, &options)
            .map_err(rocksdb_error)
    }

    /// Pairs with `lower <= key < upper`, in key order (descending with `reverse`), at most `limit`.
    pub fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut pairs = Vec::new();
        if lower >= upper {
            return Ok(pairs);
        }
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        let mut iterator = self.database.raw_iterator_opt(options);
        if reverse {
            iterator.seek_to_last();
        } else {
            iterator.seek_to_first();
        }
        while pairs.len() < limit
            && let Some((key, value)) = iterator.item()
        {
            pairs.push((key.to_vec(), value.to_vec()));
            if reverse {
                iterator.prev();
            } else {
                iterator.next();
            }
        }
        iterator.status().map_err(rocksdb_error)?;
        Ok(pairs)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.database.get(key).map_err(rocksdb_error)
    }

    /// Deletes `lower <= key < upper`.
    pub fn delete_range(&self, lower: &[u8], upper: &[u8]) -> Result<()> {
        if lower >= upper {
            return Ok(());
        }
        let mut batch = WriteBatch::default();
        batch.delete_range(lower, upper);
        self.database.write(batch).map_err(rocksdb_error)
    }
}

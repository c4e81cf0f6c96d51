//! Where files are: a local path, a pattern of paths, or an object store.
//!
//! One small interface serves both kinds: list, open for reading, write one whole file. Listing is
//! recursive; names whose any part starts with `.` or `_`, and names that end like a temporary
//! file, are not data. Reading is synchronous (it runs on the blocking pool).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::reader::{ChunkReader, Length};
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::connectors::settings::Settings;
use crate::error::{Error, Result, sqlstate};

/// Bytes fetched from an object store at a time.
const FETCH_BYTES: u64 = 8 << 20;

/// A file as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path as users see it and as it is opened: local path, or key in the store.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was last changed, microseconds since the epoch.
    pub modified_at_us: i64,
}

/// A place with files.
#[derive(Debug, Clone)]
pub enum Location {
    /// the local file system
    Local {
        /// folder or file to start from
        root: PathBuf,
        /// which paths below `root` count; all if absent
        pattern: Option<Pattern>,
    },
    /// an object store
    Store {
        /// the store
        store: Arc<dyn ObjectStore>,
        /// prefix below which files are
        prefix: ObjectPath,
        /// which keys count; all if absent
        pattern: Option<Pattern>,
        /// the URL, for people
        url: String,
    },
}

impl Location {
    /// From a path, a `file://` URL or an object store's URL. Credentials of a store come from
    /// options named as its own settings (`endpoint`, `region`, `access_key_id`,
    /// `secret_access_key`, `allow_http`, …), else from the usual environment variables.
    pub fn parse(location: &str, settings: &Settings<'_>) -> Result<Self> {
        if let Some(path) = location.strip_prefix("file://") {
            return Ok(Self::local(path));
        }
        if !location.contains("://") {
            return Ok(Self::local(location));
        }
        let (base, pattern) = split_pattern(location);
        let invalid = |reason: String| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid location \"{}\"", without_password(location)),
            )
            .detail(reason)
            .hint("Use a path, or a URL such as s3://bucket/folder.")
        };
        let url = url::Url::parse(base).map_err(|e| invalid(format!("{e}.")))?;
        let (store, prefix) = crate::object_stores::open(&url, store_options(settings)?)
            .map_err(|e| invalid(format!("The object store says: {e}.")))?;
        let pattern = pattern.map(|_| {
            let host_end = location.find("://").map_or(0, |i| i + 3);
            let key = location[host_end..]
                .split_once('/')
                .map_or("", |(_, key)| key);
            Pattern::new(key)
        });
        Ok(Self::Store {
            store,
            prefix,
            pattern,
            url: without_password(location),
        })
    }

    fn local(path: &str) -> Self {
        let (base, pattern) = split_pattern(path);
        Self::Local {
            root: PathBuf::from(if base.is_empty() { "." } else { base }),
            pattern: pattern.map(|_| Pattern::new(path)),
        }
    }

    /// The location for people.
    pub fn description(&self) -> String {
        match self {
            Self::Local { root, pattern } => match pattern {
                Some(pattern) => pattern.text().to_owned(),
                None => root.display().to_string(),
            },
            Self::Store { url, .. } => url.clone(),
        }
    }

    /// What all paths of the location begin with: by what lies behind it a file is known when all of them are moved.
    pub fn root(&self) -> String {
        match self {
            Self::Local { root, .. } => root.display().to_string(),
            Self::Store { prefix, .. } => prefix.to_string(),
        }
    }

    /// The location has wildcards: it can be read, not written.
    pub fn has_pattern(&self) -> bool {
        match self {
            Self::Local { pattern, .. } | Self::Store { pattern, .. } => pattern.is_some(),
        }
    }

    /// All data files, in no order. A folder that does not exist is an error that may go away.
    pub async fn list(&self) -> Result<Vec<FileEntry>> {
        match self {
            Self::Local { root, pattern } => {
                let (root, pattern) = (root.clone(), pattern.clone());
                tokio::task::spawn_blocking(move || list_local(&root, pattern.as_ref()))
                    .await
                    .map_err(|_| Error::internal("a listing ended unexpectedly"))?
            }
            Self::Store {
                store,
                prefix,
                pattern,
                url,
            } => list_store(store, prefix, pattern.as_ref(), url).await,
        }
    }

    /// Opens a listed file for reading, from a blocking thread inside the runtime.
    pub fn open(&self, entry: &FileEntry) -> io::Result<OpenFile> {
        match self {
            Self::Local { .. } => Ok(OpenFile::Local(Arc::new(fs::File::open(&entry.path)?))),
            Self::Store { store, .. } => Ok(OpenFile::Store(StoreFile {
                store: store.clone(),
                path: ObjectPath::from(entry.path.as_str()),
                size: entry.size,
                runtime: tokio::runtime::Handle::current(),
            })),
        }
    }

    /// The file as it is now, `None` if it is gone.
    pub async fn stat(&self, path: &str) -> Result<Option<FileEntry>> {
        match self {
            Self::Local { .. } => match tokio::fs::metadata(path).await {
                Ok(metadata) => Ok(Some(local_entry(Path::new(path), &metadata))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(unreachable_location(path, &e)),
            },
            Self::Store { store, .. } => match store.head(&ObjectPath::from(path)).await {
                Ok(meta) => Ok(Some(store_entry(&meta))),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(e) => Err(unreachable_location(path, &e)),
            },
        }
    }
}

/// The environment's and the options' settings of an object store, by the store's own names.
fn store_options(settings: &Settings<'_>) -> Result<Vec<(String, String)>> {
    let mut options: Vec<(String, String)> = std::env::vars()
        .filter(|(name, _)| {
            ["AWS_", "AZURE_", "GOOGLE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    const NAMES: [&str; 11] = [
        "endpoint",
        "region",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "allow_http",
        "skip_signature",
        "account_name",
        "account_key",
        "sas_token",
        "service_account_key",
    ];
    for name in NAMES {
        if let Some(value) = settings.text(name)? {
            options.push((name.to_owned(), value));
        }
    }
    Ok(options)
}

fn without_password(location: &str) -> String {
    match (location.find("://"), location.find('@')) {
        (Some(scheme), Some(at)) if scheme < at && !location[scheme + 3..at].contains('/') => {
            format!("{}{}", &location[..scheme + 3], &location[at + 1..])
        }
        _ => location.to_owned(),
    }
}

/// The folder before the first part with a wildcard, and whether there is one.
fn split_pattern(location: &str) -> (&str, Option<()>) {
    match location.find(['*', '?', '[', '{']) {
        None => (location, None),
        Some(first) => {
            let end = location[..first].rfind('/').map_or(0, |i| i + 1);
            (&location[..end], Some(()))
        }
    }
}

/// Names that hold no data: hidden ones, `_SUCCESS` and the like, and files still being written.
fn is_data_name(name: &str) -> bool {
    const TEMPORARY: [&str; 6] = [
        ".tmp",
        ".temp",
        ".part",
        ".partial",
        ".crdownload",
        ".inprogress",
    ];
    !name.starts_with(['.', '_'])
        && !name.ends_with('~')
        && !TEMPORARY.iter().any(|suffix| name.ends_with(suffix))
}

fn unreachable_location(location: &str, error: &dyn std::fmt::Display) -> Error {
    Error::transient(
        sqlstate::IO_ERROR,
        format!("could not read location \"{location}\""),
    )
    .detail(format!("The cause is: {error}."))
}

fn local_entry(path: &Path, metadata: &fs::Metadata) -> FileEntry {
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |d| d.as_micros() as i64);
    FileEntry {
        path: path.to_string_lossy().into_owned(),
        size: metadata.len(),
        modified_at_us: modified,
    }
}

fn list_local(root: &Path, pattern: Option<&Pattern>) -> Result<Vec<FileEntry>> {
    let shown = root.display().to_string();
    let metadata = fs::metadata(root).map_err(|e| {
        let error = unreachable_location(&shown, &e);
        if e.kind() == io::ErrorKind::NotFound {
            error.hint(
                "Create the folder, or say ALTER STREAM … SET (location = '…') where it is now.",
            )
        } else {
            error
        }
    })?;
    if metadata.is_file() {
        return Ok(vec![local_entry(root, &metadata)]);
    }
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // A folder below may go away while it is listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && folder != root => continue,
            Err(e) => return Err(unreachable_location(&folder.display().to_string(), &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| unreachable_location(&shown, &e))?;
            if !is_data_name(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let path = entry.path();
            // Follows symbolic links; what is gone between the two calls is not there.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file()
                && pattern.is_none_or(|p| p.matches(&path.to_string_lossy()))
            {
                found.push(local_entry(&path, &metadata));
            }
        }
    }
    Ok(found)
}

fn store_entry(meta: &object_store::ObjectMeta) -> FileEntry {
    FileEntry {
        path: meta.location.to_string(),
        size: meta.size,
        modified_at_us: meta.last_modified.timestamp_micros(),
    }
}

async fn list_store(
    store: &Arc<dyn ObjectStore>,
    prefix: &ObjectPath,
    pattern: Option<&Pattern>,
    url: &str,
) -> Result<Vec<FileEntry>> {
    let metas: Vec<object_store::ObjectMeta> = store
        .list(Some(prefix))
        .try_collect()
        .await
        .map_err(|e| unreachable_location(url, &e))?;
    let below = prefix.parts().count();
    let mut found: Vec<FileEntry> = metas
        .iter()
        .filter(|meta| {
            meta.location
                .parts()
                .skip(below)
                .all(|part| is_data_name(part.as_ref()))
        })
        .filter(|meta| pattern.is_none_or(|p| p.matches(meta.location.as_ref())))
        .map(store_entry)
        .collect();
    if found.is_empty() && pattern.is_none() {
        // The location may name one object; listing a prefix does not show it.
        match store.head(prefix).await {
            Ok(meta) => found.push(store_entry(&meta)),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(e) if metas.is_empty() => return Err(unreachable_location(url, &e)),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// A file open for reading.
#[derive(Clone)]
pub enum OpenFile {
    /// a local file
    Local(Arc<fs::File>),
    /// an object
    Store(StoreFile),
}

/// An object, read by ranges.
#[derive(Clone)]
pub struct StoreFile {
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    size: u64,
    runtime: tokio::runtime::Handle,
}

impl StoreFile {
    fn range(&self, start: u64, length: u64) -> io::Result<Bytes> {
        let end = (start + length).min(self.size);
        if start >= end {
            return Ok(Bytes::new());
        }
        self.runtime
            .block_on(self.store.get_range(&self.path, start..end))
            .map_err(|e| match e {
                object_store::Error::NotFound { .. } => {
                    io::Error::new(io::ErrorKind::NotFound, e.to_string())
                }
                e => io::Error::other(e.to_string()),
            })
    }
}

impl OpenFile {
    /// Bytes.
    pub fn size(&self) -> io::Result<u64> {
        match self {
            Self::Local(file) => Ok(file.metadata()?.len()),
            Self::Store(file) => Ok(file.size),
        }
    }

    /// Reads exactly `length` bytes at `start`.
    pub fn read_at(&self, start: u64, length: usize) -> io::Result<Bytes> {
        match self {
            Self::Local(file) => {
                use std::os::unix::fs::FileExt;
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
            Self::Store(file) => {
                let bytes = file.range(start, length as u64)?;
                if bytes.len() != length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(bytes)
            }
        }
    }

    /// A reader of `start` to the end, without buffering of its own for local files.
    pub fn reader(&self, start: u64) -> FileReader {
        FileReader {
            file: self.clone(),
            at: start,
            fetched: Bytes::new(),
        }
    }
}

/// Reads an open file in order.
pub struct FileReader {
    file: OpenFile,
    at: u64,
    fetched: Bytes,
}

impl Read for FileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &self.file {
            OpenFile::Local(file) => {
                use std::os::unix::fs::FileExt;
                let read = file.read_at(out, self.at)?;
                self.at += read as u64;
                Ok(read)
            }
            OpenFile::Store(file) => {
                if self.fetched.is_empty() {
                    self.fetched = file.range(self.at, FETCH_BYTES)?;
                    self.at += self.fetched.len() as u64;
                }
                let taken = out.len().min(self.fetched.len());
                out[..taken].copy_from_slice(&self.fetched.split_to(taken));
                Ok(taken)
            }
        }
    }
}

impl Length for OpenFile {
    fn len(&self) -> u64 {
        self.size().unwrap_or(0)
    }
}

impl ChunkReader for OpenFile {
    type T = io::BufReader<FileReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::new(self.reader(start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.read_at(start, length)?)
    }
}

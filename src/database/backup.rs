//! A backup of the whole database, taken while it runs, and the way back into an empty data directory.
//!
//! ```text
//!   catalog ─► checkpoints, each at its newest batch ─► log ─► catalog once more: the same? ─► backup.json
//! ```
//!
//! What is read later may be newer, never older, than what was read before: a pipeline goes on from its
//! checkpoint to the end of the log, as after a crash. Definitions that change meanwhile make it begin
//! again. Absent: the history of events and metrics, on which nothing depends, and working state, a cache.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::DatabaseParts;
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{Backup, Depth, Survey, identity_at, not_empty};
use crate::checkpoint::{CheckpointLocation, local::LocalStore};
use crate::error::{Error, Result, sqlstate};

/// Written last: what says that a backup is whole.
const LIST_FILE: &str = "backup.json";
const FORMAT_VERSION: u32 = 1;
/// Definitions that changed meanwhile.
const ATTEMPTS_MAX: usize = 5;
/// Bytes that are written at a time, about.
const GROUP_BYTES: usize = 64 << 20;

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatabaseBackup {
    version: u32,
    /// Microseconds since the epoch.
    pub created_at_us: i64,
    /// Files of catalog and log.
    files: Vec<CopiedFile>,
    /// Checkpoints.
    pub checkpoints: Vec<CopiedCheckpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopiedFile {
    path: String,
    bytes: u64,
    crc32c: u32,
}

/// A pipeline's checkpoint in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedCheckpoint {
    /// The pipeline.
    pub pipeline: String,
    /// Below the backup, and below the data directory.
    folder: String,
    /// As of this batch.
    pub batch_id: u64,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// CRC-32C over the names and contents of its files, in the order of the names, `metadata` last.
    crc32c: u32,
}

impl DatabaseBackup {
    /// Files and bytes of catalog and log.
    pub fn size(&self) -> (u64, u64) {
        let bytes = self.files.iter().map(|file| file.bytes);
        (self.files.len() as u64, bytes.sum())
    }

    fn encode(&self) -> Result<Bytes> {
        let text = serde_json::to_string(self).map_err(|e| Error::internal(e.to_string()))?;
        let checksum = crc32c::crc32c(text.as_bytes());
        Ok(format!("{text}\ncrc32c:{checksum:08x}\n").into())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, checksum) = text.trim_end().split_once("\ncrc32c:")?;
        let is_sound = format!("{:08x}", crc32c::crc32c(body.as_bytes())) == checksum;
        let backup: Self = serde_json::from_str(body).ok().filter(|_| is_sound)?;
        (backup.version <= FORMAT_VERSION).then_some(backup)
    }
}

/// Copies the database to an empty location.
pub(crate) async fn back_up(parts: &DatabaseParts, location: &str) -> Result<DatabaseBackup> {
    parts.engine().check_backup_target(location)?;
    let to = CheckpointLocation::store(location, &BTreeMap::new())?;
    if !to.list("").await?.is_empty() {
        return Err(not_empty(&to.describe()));
    }
    let data = parts.engine().data_dir();
    for _ in 0..ATTEMPTS_MAX {
        let before = catalog_files(&data)?;
        let mut backup = DatabaseBackup {
            version: FORMAT_VERSION,
            created_at_us: parts.clock.now_us(),
            files: Vec::new(),
            checkpoints: Vec::new(),
        };
        let definitions = parts.catalog.snapshot();
        for (pipeline, _) in definitions.pipelines() {
            backup.copy_checkpoint(parts, location, pipeline).await?;
        }
        backup.put(&to, before.clone()).await?;
        for path in log_files(&data)? {
            let bytes = read(&data.join(&path))?;
            backup.put(&to, vec![(path, bytes)]).await?;
        }
        if definitions_of(&catalog_files(&data)?) == definitions_of(&before) {
            to.put_all(vec![(LIST_FILE.to_owned(), backup.encode()?)])
                .await?;
            return Ok(backup);
        }
        backup.remove(&to, location).await?;
    }
    Err(Error::transient(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "could not back up the database: its definitions changed meanwhile",
    )
    .hint("Run BACKUP DATABASE while nobody creates or alters objects."))
}

impl DatabaseBackup {
    async fn copy_checkpoint(
        &mut self,
        parts: &DatabaseParts,
        location: &str,
        pipeline: &str,
    ) -> Result<()> {
        // One that never committed begins where its sources begin, as it would anyway.
        if !parts.engine().has_batch(pipeline) {
            return Ok(());
        }
        let folder = format!("checkpoints/{}", crate::engine::file_name(pipeline));
        let to = format!("{}/{folder}", location.trim_end_matches('/'));
        let Backup {
            batch_id,
            files,
            bytes,
            crc32c,
            ..
        } = parts.engine().copy_checkpoint(pipeline, &to).await?;
        self.checkpoints.push(CopiedCheckpoint {
            pipeline: pipeline.to_owned(),
            folder,
            batch_id,
            files,
            bytes,
            crc32c,
        });
        Ok(())
    }

    async fn put(&mut self, to: &Arc<dyn BlobStore>, files: Vec<(String, Bytes)>) -> Result<()> {
        self.files
            .extend(files.iter().map(|(path, bytes)| CopiedFile {
                path: path.clone(),
                bytes: bytes.len() as u64,
                crc32c: crc32c::crc32c(bytes),
            }));
        to.put_all(files).await
    }

    /// Takes away what an attempt has written.
    async fn remove(&self, to: &Arc<dyn BlobStore>, location: &str) -> Result<()> {
        let paths: Vec<String> = self.files.iter().map(|file| file.path.clone()).collect();
        to.delete(&paths).await?;
        for checkpoint in &self.checkpoints {
            let at = format!("{}/{}", location.trim_end_matches('/'), checkpoint.folder);
            let store = CheckpointLocation::store(&at, &BTreeMap::new())?;
            let files = store.list("").await?.into_iter().map(|blob| blob.path);
            store.delete(&files.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Bytes> {
    let bytes = fs::read(path).map_err(|e| {
        let text = format!("could not read \"{}\": {e}", path.display());
        Error::transient(sqlstate::IO_ERROR, text)
    })?;
    Ok(bytes.into())
}

/// Names of the files right in a folder of the data directory, below it.
fn names_in(data: &Path, folder: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(data.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && !name.ends_with(".new") && !name.starts_with('.') {
            names.push(format!("{folder}/{name}"));
        }
    }
    names.sort();
    Ok(names)
}

fn catalog_files(data: &Path) -> Result<Vec<(String, Bytes)>> {
    let names = names_in(data, "catalog")?.into_iter();
    let files = names.map(|name| {
        let bytes = read(&data.join(&name))?;
        Ok((name, bytes))
    });
    files.collect()
}

/// The log's end goes on all the time; definitions are the rest.
fn definitions_of(files: &[(String, Bytes)]) -> Vec<&(String, Bytes)> {
    let files = files.iter();
    files
        .filter(|(name, _)| !name.ends_with("log_end"))
        .collect()
}

fn log_files(data: &Path) -> Result<Vec<String>> {
    let mut names = names_in(data, "log")?;
    names.retain(|name| name.ends_with(".log"));
    Ok(names)
}

/// Puts a backup into a data directory that is empty or not there. Everything is read and checked before
/// the first file is written, and the directory gets its name last.
pub(crate) async fn restore(location: &str, data: &Path) -> Result<DatabaseBackup> {
    let from = CheckpointLocation::store(location, &BTreeMap::new())?;
    let is_free = match fs::read_dir(data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_free {
        let text = format!("data directory \"{}\" is not empty", data.display());
        return Err(Error::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text)
            .hint("Name a new one: a restore never replaces a database."));
    }
    let list = from.get(LIST_FILE).await?;
    let backup = list.and_then(|list| DatabaseBackup::decode(&list.bytes));
    let backup = backup.ok_or_else(|| {
        Error::damaged(format!(
            "\"{location}\" holds no whole backup of a database"
        ))
        .detail(format!(
            "{LIST_FILE}, which is written last, is not there or not sound."
        ))
    })?;
    for file in &backup.files {
        backup.checked(&from, file).await?;
    }
    let mut checkpoints = Vec::new();
    for checkpoint in &backup.checkpoints {
        checkpoints.push(survey_of(location, checkpoint).await?);
    }
    let unfinished = PathBuf::from(format!("{}.restoring", data.display()));
    match fs::remove_dir_all(&unfinished) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let target: Arc<dyn BlobStore> = Arc::new(LocalStore::new(&unfinished));
    for file in &backup.files {
        let bytes = backup.checked(&from, file).await?;
        target.put_all(vec![(file.path.clone(), bytes)]).await?;
    }
    for (checkpoint, (store, survey)) in backup.checkpoints.iter().zip(&checkpoints) {
        let folder = unfinished.join(&checkpoint.folder);
        let target: Arc<dyn BlobStore> = Arc::new(LocalStore::new(&folder));
        copy(store, survey, checkpoint, &target).await?;
    }
    if data.exists() {
        fs::remove_dir(data)?;
    }
    fs::rename(&unfinished, data)?;
    Ok(backup)
}

impl DatabaseBackup {
    async fn checked(&self, from: &Arc<dyn BlobStore>, file: &CopiedFile) -> Result<Bytes> {
        let blob = from.get(&file.path).await?;
        let why = match &blob {
            Some(blob) if crc32c::crc32c(&blob.bytes) == file.crc32c => None,
            Some(_) => Some("its checksum is wrong"),
            None => Some("the file is missing"),
        };
        match (blob, why) {
            (Some(blob), None) => Ok(blob.bytes),
            (_, why) => Err(unusable(
                &from.describe(),
                &file.path,
                why.unwrap_or("it is unusable"),
            )),
        }
    }
}

fn unusable(location: &str, what: &str, why: &str) -> Error {
    Error::damaged(format!(
        "backup at \"{location}\" cannot be used: {what}: {why}"
    ))
    .detail("Nothing was written.")
}

/// The checkpoint of a backup, if it opens.
async fn survey_of(
    location: &str,
    checkpoint: &CopiedCheckpoint,
) -> Result<(Arc<dyn BlobStore>, Survey)> {
    let at = format!("{}/{}", location.trim_end_matches('/'), checkpoint.folder);
    let store = CheckpointLocation::store(&at, &BTreeMap::new())?;
    let identity = identity_at(&store).await?;
    let survey = Survey::take(&store, &identity, None, Depth::Full).await?;
    if let Some(why) = survey.why_unusable_at(checkpoint.batch_id) {
        return Err(unusable(location, &checkpoint.folder, &why));
    }
    // One that opens from an older state is not what was backed up either.
    check_whole(&store, &survey, checkpoint).await?;
    Ok((store, survey))
}

/// The files of a checkpoint's copy, in the order in which they were summed up.
fn files_of(survey: &Survey, checkpoint: &CopiedCheckpoint) -> impl Iterator<Item = String> {
    let paths = survey.files_at(checkpoint.batch_id).into_iter();
    paths.chain(["metadata".to_owned()])
}

/// Checks that the sound files are all that were backed up, and as they were.
async fn check_whole(
    from: &Arc<dyn BlobStore>,
    survey: &Survey,
    checkpoint: &CopiedCheckpoint,
) -> Result<()> {
    let mut crc32c = 0;
    for path in files_of(survey, checkpoint) {
        if let Some(blob) = from.get(&path).await? {
            crc32c = crc32c::crc32c_append(crc32c, path.as_bytes());
            crc32c = crc32c::crc32c_append(crc32c, &blob.bytes);
        }
    }
    if crc32c == checkpoint.crc32c {
        return Ok(());
    }
    let damage = survey.first_damage();
    let why = damage.unwrap_or_else(|| "its files are not those that were backed up".to_owned());
    Err(unusable(&from.describe(), &checkpoint.folder, &why))
}

async fn copy(
    from: &Arc<dyn BlobStore>,
    survey: &Survey,
    checkpoint: &CopiedCheckpoint,
    to: &Arc<dyn BlobStore>,
) -> Result<()> {
    let mut group = Vec::new();
    let mut bytes = 0;
    for path in files_of(survey, checkpoint) {
        let blob = from.get(&path).await?;
        let blob = blob.ok_or_else(|| unusable(&from.describe(), &path, "the file is missing"))?;
        bytes += blob.bytes.len();
        group.push((path, blob.bytes));
        if bytes >= GROUP_BYTES {
            to.put_all(std::mem::take(&mut group)).await?;
            bytes = 0;
        }
    }
    to.put_all(group).await
}

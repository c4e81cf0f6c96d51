//! Reading the files of a checkpoint, many at a time: entries are decoded and runs are checked on threads of their
//! own, in groups, since a checkpoint may hold tens of thousands of small files.

use std::sync::Arc;

use uuid::Uuid;

use super::{batch_of, source_batch};
use crate::checkpoint::blob::{BlobStore, Judged};
use crate::checkpoint::format::{self, CommitFile, Manifest, OffsetFile, RunInfo, Unreadable};
use crate::error::{Error, Result};

/// Files that are read and decoded in one go.
pub(super) const FILES_AT_ONCE: usize = 256;
/// Bytes of runs that are read in one go.
const GROUP_BYTES: u64 = 8 << 20;

/// A file and its content, as far as it could be read.
pub(super) enum Content {
    Offsets(u64, Read<OffsetFile>),
    Commit(u64, Read<CommitFile>),
    Manifest(u64, Read<(Manifest, u32)>),
    Source(String, Read<Option<u64>>),
}

/// What reading gave; `None`: the file is gone.
pub(super) type Read<T> = Option<std::result::Result<(Uuid, bool, T), Unreadable>>;

/// A file that holds an entry, by its name.
enum EntryName {
    Offsets(u64),
    Commit(u64),
    Manifest(u64),
    Source(u64),
}

fn entry_name(path: &str) -> Option<EntryName> {
    let (folder, name) = path.split_once('/')?;
    match folder {
        "offsets" => batch_of(name).map(EntryName::Offsets),
        "commits" => batch_of(name).map(EntryName::Commit),
        "state" => batch_of(name.strip_suffix(".manifest")?).map(EntryName::Manifest),
        _ => source_batch(path).map(EntryName::Source),
    }
}

pub(super) fn is_entry(path: &str) -> bool {
    entry_name(path).is_some()
}

/// Reads files that hold entries, and decodes them on a thread of their own.
pub(super) async fn read(store: &Arc<dyn BlobStore>, paths: Vec<String>) -> Result<Vec<Content>> {
    let read = store.get_each(paths.clone()).await?;
    let decoded = tokio::task::spawn_blocking(move || {
        let files = paths.into_iter().zip(read);
        files
            .filter_map(|(path, read)| decode(path, read))
            .collect()
    });
    decoded
        .await
        .map_err(|error| Error::internal(format!("reading entries ended abnormally: {error}")))
}

fn decode(path: String, read: Judged) -> Option<Content> {
    let name = entry_name(&path)?;
    // Gone: `None`; no file at all: damaged.
    let bytes = match read {
        Ok(None) => None,
        Ok(Some(bytes)) => Some(Ok(bytes)),
        Err(why) => Some(Err(Unreadable::Damaged(why))),
    };
    Some(match name {
        EntryName::Offsets(batch_id) => Content::Offsets(
            batch_id,
            bytes.map(|bytes| {
                let file = OffsetFile::decode(&bytes?)?;
                Ok((file.pipeline_id, file.entry.batch_id == batch_id, file))
            }),
        ),
        EntryName::Commit(batch_id) => Content::Commit(
            batch_id,
            bytes.map(|bytes| {
                let file: CommitFile = format::decode_one(&bytes?)?;
                Ok((file.pipeline_id, file.entry.batch_id == batch_id, file))
            }),
        ),
        EntryName::Manifest(batch_id) => Content::Manifest(
            batch_id,
            bytes.map(|bytes| {
                let bytes = bytes?;
                let manifest = Manifest::decode(&bytes)?;
                let head = &manifest.head;
                let (id, fits) = (head.pipeline_id, head.batch_id == batch_id);
                Ok((id, fits, (manifest, crc32c::crc32c(&bytes))))
            }),
        ),
        EntryName::Source(batch_id) => Content::Source(
            path,
            bytes.map(|bytes| {
                let entry: SourceEntry = format::decode_one(&bytes?)?;
                let fits = batch_id == entry.batch_id;
                Ok((entry.pipeline_id, fits, entry.entry.previous))
            }),
        ),
    })
}

/// An entry of a source's log, without what only the source reads.
#[derive(serde::Deserialize)]
struct SourceEntry {
    pipeline_id: Uuid,
    batch_id: u64,
    entry: Link,
}

/// What every entry says of the one before it.
#[derive(serde::Deserialize)]
struct Link {
    #[serde(default)]
    previous: Option<u64>,
}

/// Runs that are read in one go: small ones many at a time.
pub(super) fn in_groups(runs: Vec<RunInfo>) -> Vec<Vec<RunInfo>> {
    let mut groups: Vec<Vec<RunInfo>> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        bytes += run.bytes;
        match groups.last_mut() {
            Some(group) if bytes <= GROUP_BYTES && group.len() < FILES_AT_ONCE => group.push(run),
            _ => {
                bytes = run.bytes;
                groups.push(vec![run]);
            }
        }
    }
    groups
}

/// Reads runs; what is wrong with which of them.
pub(super) async fn check_runs(
    store: &Arc<dyn BlobStore>,
    runs: Vec<RunInfo>,
) -> Result<Vec<(String, String)>> {
    let paths = runs.iter().map(|run| format!("state/{}", run.file));
    let read = store.get_each(paths.collect()).await?;
    let checked = tokio::task::spawn_blocking(move || {
        let judge = |(run, read): (RunInfo, Judged)| match read {
            // Retention took it since it was listed, with the manifest that names it.
            Ok(None) => None,
            Ok(Some(bytes)) if crc32c::crc32c(&bytes) == run.crc32c => None,
            Ok(Some(_)) => Some((run.file, "its checksum is wrong".to_owned())),
            Err(why) => Some((run.file, why)),
        };
        runs.into_iter().zip(read).filter_map(judge).collect()
    });
    checked
        .await
        .map_err(|error| Error::internal(format!("checking runs ended abnormally: {error}")))
}

//! Copying a checkpoint to another location, and a copy back.
//!
//! A copy is taken beside the running pipeline without its lease: what a commit stands on never changes, it
//! can only go by retention, and then the copy is begun again with a newer batch. What says that it is a
//! checkpoint, `metadata`, is written last in both directions.
//!
//! A copy that would not open is none: before the first file is written the batch is asked whether it would,
//! and each file is checked once more as it is copied, since at [`Depth::Quick`] not all of them were read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::apply::Held;
use super::survey::{Depth, Entry, Survey};
use crate::checkpoint::Identity;
use crate::checkpoint::blob::{BlobStore, get_or_why};
use crate::checkpoint::decide::MetadataFact;
use crate::checkpoint::format::{Manifest, Metadata, Unreadable, decode_lines};
use crate::error::{Error, Result, sqlstate};

/// Bytes that are copied at a time, about, and files to a disk: batches go on beside, and wait for the same disk
/// and for the same threads.
const COPY_BYTES: usize = 4 << 20;
const COPY_FILES: usize = 8;
/// Files that are copied to a store at a time.
const COPY_FILES_TO_STORE: usize = 64;
/// Copies that are begun before one gives up.
const COPIES_MAX: usize = 5;

/// A backup that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Where it lies.
    pub location: String,
    /// The batch that it is of.
    pub batch_id: u64,
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// CRC-32C over the names and contents of its files, in the order of the names.
    pub crc32c: u32,
}

/// Copies the newest batch that can be gone back to.
pub async fn back_up(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    identity: &Identity,
) -> Result<Backup> {
    if !to.list("").await?.is_empty() {
        return Err(not_empty(&to.describe()));
    }
    let (source, target) = (from.describe(), to.describe());
    if Path::new(&target).starts_with(&source) {
        return Err(inside_itself(&target, &source));
    }
    let mut found = None;
    for _ in 0..COPIES_MAX {
        let survey = Survey::take(from, identity, None, Depth::Quick).await?;
        survey.require_own()?;
        // Much work for a long log: not on a thread that batches run on.
        let chosen = tokio::task::spawn_blocking(move || {
            let chosen = batch_to_copy(&survey);
            chosen.map(|batch_id| Copied::of(survey, batch_id))
        });
        let chosen = chosen
            .await
            .map_err(|e| Error::internal(format!("choosing a batch ended abnormally: {e}")))?;
        let copied = match chosen {
            Ok(copied) => copied,
            // A file may have come or gone while others were read: only what stays is a reason.
            Err(why) if found.as_ref() == Some(&why) => return Err(not_sound(identity, &why)),
            Err(why) => {
                found = Some(why);
                continue;
            }
        };
        let copied = copy_batch(from, to, copied).await;
        if let Ok(Some(backup)) = copied {
            return Ok(backup);
        }
        // The next copy is of another batch, and holds nothing of this one; nor is half a copy left.
        let begun = to.list("").await?.into_iter().map(|blob| blob.path);
        to.delete(&begun.collect::<Vec<_>>()).await?;
        copied?;
    }
    Err(Error::transient(
        sqlstate::IO_ERROR,
        format!(
            "could not copy the checkpoint at \"{}\": its files go faster than they are copied",
            source
        ),
    )
    .hint("Retain more batches with ALTER PIPELINE … SET (min_batches_to_retain = …)."))
}

/// A place that holds something already.
pub fn not_empty(location: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("backup location \"{location}\" is not empty"),
    )
    .hint("Choose another folder: a backup never replaces one.")
}

fn inside_itself(target: &str, source: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("backup location \"{target}\" lies in the checkpoint at \"{source}\""),
    )
    .hint("Choose a folder outside of it.")
}

/// The newest batch that can be gone back to, if a copy of it would open; else why not, as a clause.
fn batch_to_copy(survey: &Survey) -> Result<u64, String> {
    let Some(batch_id) = survey.restorable_batches().last().copied() else {
        let newest = survey.newest_commit().map(|commit| survey.state_of(commit));
        return Err(match newest {
            Some(Entry::Damaged(why)) => why,
            _ => "it has no batch that can be restored".to_owned(),
        });
    };
    match survey.why_unusable_at(batch_id) {
        Some(why) => Err(why),
        None => Ok(batch_id),
    }
}

/// Why a checkpoint is not copied, as a clause that names the file.
fn not_sound(identity: &Identity, why: &str) -> Error {
    let (pipeline, name) = (&identity.pipeline_name, identity.name());
    Error::damaged(format!(
        "checkpoint of pipeline \"{pipeline}\" is not backed up: {why}"
    ))
    .detail("A copy of it would not open. Nothing was written.")
    .hint(format!(
        "REPAIR CHECKPOINT OF {name}; mends what the other files prove, DIAGNOSE {name}; names the statement for the rest."
    ))
}

/// What is copied of a checkpoint.
struct Copied {
    identity: Identity,
    batch_id: u64,
    /// All but `metadata`.
    files: Vec<String>,
    /// The checksum of each run.
    runs: HashMap<String, u32>,
}

impl Copied {
    fn of(survey: Survey, batch_id: u64) -> Self {
        let runs = survey.named_runs().into_iter();
        Self {
            batch_id,
            files: survey.files_at(batch_id),
            runs: runs
                .map(|run| (format!("state/{}", run.file), run.crc32c))
                .collect(),
            identity: survey.identity,
        }
    }
}

/// Copies a batch; `None`: a file went meanwhile.
async fn copy_batch(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    copied: Copied,
) -> Result<Option<Backup>> {
    let Copied {
        identity,
        batch_id,
        files,
        runs,
    } = copied;
    let mut backup = Backup {
        location: to.describe(),
        batch_id,
        bytes: 0,
        files: 0,
        crc32c: 0,
    };
    let mut group: Vec<(String, Bytes)> = Vec::new();
    let mut group_bytes = 0;
    let group_files = match backup.location.contains("://") {
        true => COPY_FILES_TO_STORE,
        false => COPY_FILES,
    };
    // What says that it is a checkpoint goes last.
    for path in files.into_iter().chain(["metadata".to_owned()]) {
        let Some(blob) = from.get(&path).await? else {
            return Ok(None);
        };
        if let Err(why) = check_copied(&path, &blob.bytes, runs.get(&path).copied()) {
            return Err(not_sound(&identity, &format!("{path}: {why}")));
        }
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, path.as_bytes());
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, &blob.bytes);
        backup.bytes += blob.bytes.len() as u64;
        backup.files += 1;
        if path == "metadata" {
            to.put_all(std::mem::take(&mut group)).await?;
        }
        group_bytes += blob.bytes.len();
        group.push((path, blob.bytes));
        if group_bytes >= COPY_BYTES || group.len() >= group_files {
            to.put_all(std::mem::take(&mut group)).await?;
            group_bytes = 0;
        }
    }
    to.put_all(group).await?;
    Ok(Some(backup))
}

/// Whether a file is what it should be: a run by the checksum that its manifest has, the others by their own.
fn check_copied(path: &str, bytes: &Bytes, run: Option<u32>) -> Result<(), Unreadable> {
    match run {
        Some(expected) if crc32c::crc32c(bytes) == expected => Ok(()),
        Some(_) => Err(Unreadable::Damaged("its checksum is wrong".to_owned())),
        None if path == "metadata" => Metadata::decode(bytes).map(drop),
        None => decode_lines(bytes).map(drop),
    }
}

impl Held {
    /// Gives the location the files of a copy as of `batch_id`. What is in the way has been moved aside.
    pub async fn copy_back(
        &self,
        source: &Arc<dyn BlobStore>,
        copy: &Survey,
        batch_id: u64,
        now_us: i64,
    ) -> Result<()> {
        let target = &self.shared.store;
        let mut group = Vec::new();
        let mut bytes = 0;
        for path in copy.files_at(batch_id) {
            let blob = source.get(&path).await?.ok_or_else(|| {
                Error::damaged(format!(
                    "{path} of the backup at \"{}\" vanished while it was copied",
                    copy.location
                ))
            })?;
            bytes += blob.bytes.len();
            group.push((path, blob.bytes));
            if bytes >= COPY_BYTES {
                target.put_all(std::mem::take(&mut group)).await?;
                bytes = 0;
            }
        }
        target.put_all(group).await?;
        self.write_metadata(copy, now_us).await
    }
}

/// Whose checkpoint lies at a location, by its own files: for tools that have no catalog.
pub async fn identity_at(store: &Arc<dyn BlobStore>) -> Result<Identity> {
    let nobody = Identity {
        pipeline_id: uuid::Uuid::nil(),
        pipeline_name: String::new(),
        fingerprint: String::new(),
    };
    let survey = Survey::take(store, &nobody, None, Depth::Quick).await?;
    if let MetadataFact::Whole(metadata) = survey.metadata {
        return Ok(Identity {
            pipeline_id: metadata.id,
            pipeline_name: metadata.pipeline,
            fingerprint: metadata.fingerprint,
        });
    }
    let mut ids = survey.foreign_ids.iter();
    let (Some(id), None) = (ids.next(), ids.next()) else {
        return Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "nothing at \"{}\" tells whose checkpoint it is",
                store.describe()
            ),
        )
        .hint(
            "Start the server over its data directory and run DIAGNOSE CHECKPOINT OF the pipeline.",
        ));
    };
    let pipeline_name = name_at(store, &survey).await?;
    Ok(Identity {
        pipeline_id: *id,
        pipeline_name: pipeline_name.unwrap_or_else(|| "unknown".to_owned()),
        fingerprint: String::new(),
    })
}

/// The pipeline's name, which every manifest holds.
async fn name_at(store: &Arc<dyn BlobStore>, survey: &Survey) -> Result<Option<String>> {
    let mut manifests = survey.files.keys().rev();
    let newest = manifests.find(|path| path.ends_with(".manifest"));
    let Some(path) = newest else {
        return Ok(None);
    };
    let read = get_or_why(&**store, path).await?;
    let bytes = read.ok().flatten();
    let manifest = bytes.and_then(|bytes| Manifest::decode(&bytes).ok());
    Ok(manifest.map(|manifest| manifest.head.pipeline))
}

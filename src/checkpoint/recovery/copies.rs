//! Copying a checkpoint to another location, and a copy back.
//!
//! A copy is taken beside the running pipeline without its lease: what a commit stands on never changes, it
//! can only go by retention, and then the copy is begun again with a newer batch. What says that it is a
//! checkpoint, `metadata`, is written last in both directions.

use std::sync::Arc;

use bytes::Bytes;

use super::apply::Held;
use super::survey::{Depth, Survey};
use crate::checkpoint::Identity;
use crate::checkpoint::blob::{BlobStore, get_or_why};
use crate::checkpoint::decide::MetadataFact;
use crate::checkpoint::format::Manifest;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// Bytes that are copied at a time, about.
const COPY_BYTES: usize = 64 << 20;
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
        return Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("backup location \"{}\" is not empty", to.describe()),
        )
        .hint("Choose another folder: a backup never replaces one."));
    }
    for _ in 0..COPIES_MAX {
        let survey = Survey::take(from, identity, None, Depth::Quick).await?;
        survey.require_own()?;
        let Some(&batch_id) = survey.restorable_batches().last() else {
            return Err(Error::damaged(format!(
                "checkpoint of pipeline \"{}\" has no batch that can be restored",
                identity.pipeline_name
            ))
            .hint(format!(
                "Run DIAGNOSE CHECKPOINT OF {}.",
                quote_identifier(&identity.pipeline_name)
            )));
        };
        if let Some(backup) = copy_batch(from, to, &survey, batch_id).await? {
            return Ok(backup);
        }
        // The next copy is of another batch, and holds nothing of this one.
        let begun = to.list("").await?.into_iter().map(|blob| blob.path);
        to.delete(&begun.collect::<Vec<_>>()).await?;
    }
    Err(Error::transient(
        sqlstate::IO_ERROR,
        format!(
            "could not copy the checkpoint at \"{}\": its files go faster than they are copied",
            from.describe()
        ),
    )
    .hint("Retain more batches with ALTER PIPELINE … SET (min_batches_to_retain = …)."))
}

/// Copies a batch; `None`: a file went meanwhile.
async fn copy_batch(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    survey: &Survey,
    batch_id: u64,
) -> Result<Option<Backup>> {
    let mut backup = Backup {
        location: to.describe(),
        batch_id,
        bytes: 0,
        files: 0,
        crc32c: 0,
    };
    let mut group: Vec<(String, Bytes)> = Vec::new();
    let mut group_bytes = 0;
    // What says that it is a checkpoint goes last.
    let paths = survey.files_at(batch_id).into_iter();
    for path in paths.chain(["metadata".to_owned()]) {
        let Some(blob) = from.get(&path).await? else {
            return Ok(None);
        };
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, path.as_bytes());
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, &blob.bytes);
        backup.bytes += blob.bytes.len() as u64;
        backup.files += 1;
        if path == "metadata" {
            to.put_all(std::mem::take(&mut group)).await?;
        }
        group_bytes += blob.bytes.len();
        group.push((path, blob.bytes));
        if group_bytes >= COPY_BYTES {
            to.put_all(std::mem::take(&mut group)).await?;
            group_bytes = 0;
        }
    }
    to.put_all(group).await?;
    Ok(Some(backup))
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

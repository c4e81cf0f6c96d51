//! Moving a checkpoint to another location.
//!
//! ```text
//!   copy all but metadata ─► metadata (from here on the new one counts) ─► archive the old one
//! ```
//!
//! Nobody writes to either meanwhile: the pipeline has let go of the old location and not opened
//! the new one. Cut short anywhere, the same call brings it to its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::CheckpointLocation;
use super::blob::BlobStore;
use super::format::Metadata;
use super::location::archive_label;
use crate::clock::ClockRef;
use crate::error::{Error, Result, sqlstate};

/// Bytes that are copied at a time, about.
const COPY_BYTES: usize = 64 << 20;
/// How long the old location may take to be archived; it may not be there any more.
const ARCHIVE_WITHIN: Duration = Duration::from_secs(5);

/// Brings the checkpoint of `pipeline` from one location to another. A new location that holds
/// another pipeline's checkpoint is refused (55000).
pub async fn relocate(from: &str, to: &str, pipeline: Uuid, clock: &ClockRef) -> Result<()> {
    let options = Default::default();
    let source = CheckpointLocation::store(from, &options)?;
    let target = CheckpointLocation::store(to, &options)?;
    if owner(&target).await? != Some(pipeline) {
        require_free(&target, pipeline).await?;
        if owner(&source).await? != Some(pipeline) {
            // Nothing was ever written: the new location is where it begins.
            return Ok(());
        }
        copy(&source, &target).await?;
    }
    let archived = tokio::time::timeout(ARCHIVE_WITHIN, archive(&source, pipeline, clock)).await;
    match archived {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(location = from, %error, "could not archive a checkpoint that was moved");
        }
        Err(_) => tracing::warn!(
            location = from,
            "archiving a checkpoint that was moved takes too long"
        ),
    }
    Ok(())
}

/// Checks that a checkpoint could be moved to a location: it can be read, and is no other's.
pub async fn check_target(location: &str, pipeline: Uuid) -> Result<()> {
    let target = CheckpointLocation::store(location, &Default::default())?;
    require_free(&target, pipeline).await
}

/// Whether the checkpoint of `pipeline` lies at a location.
pub async fn is_at(location: &str, pipeline: Uuid) -> Result<bool> {
    let store = CheckpointLocation::store(location, &Default::default())?;
    Ok(owner(&store).await? == Some(pipeline))
}

/// The pipeline whose checkpoint lies there.
async fn owner(store: &Arc<dyn BlobStore>) -> Result<Option<Uuid>> {
    let Some(blob) = store.get("metadata").await? else {
        return Ok(None);
    };
    let metadata = Metadata::decode(&blob.bytes).map_err(|_| {
        Error::damaged(format!("the checkpoint at {} is damaged", store.describe()))
            .detail("Its metadata is unreadable.")
    })?;
    Ok(Some(metadata.id))
}

async fn require_free(target: &Arc<dyn BlobStore>, pipeline: Uuid) -> Result<()> {
    match owner(target).await? {
        Some(other) if other != pipeline => Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "checkpoint location {} belongs to another pipeline",
                target.describe()
            ),
        )
        .hint("Choose an empty location.")),
        _ => Ok(()),
    }
}

async fn copy(source: &Arc<dyn BlobStore>, target: &Arc<dyn BlobStore>) -> Result<()> {
    let mut group: Vec<(String, Bytes)> = Vec::new();
    let mut bytes = 0;
    for blob in source.list("").await? {
        if matches!(blob.path.as_str(), "lease" | "metadata") {
            continue;
        }
        let content = required(source, &blob.path).await?;
        bytes += content.len();
        group.push((blob.path, content));
        if bytes >= COPY_BYTES {
            target.put_all(std::mem::take(&mut group)).await?;
            bytes = 0;
        }
    }
    target.put_all(group).await?;
    let metadata = required(source, "metadata").await?;
    target
        .put_all(vec![("metadata".to_owned(), metadata)])
        .await
}

async fn required(source: &Arc<dyn BlobStore>, path: &str) -> Result<Bytes> {
    let blob = source.get(path).await?;
    let blob = blob.ok_or_else(|| {
        Error::damaged(format!(
            "{path} of the checkpoint at {} vanished while it was copied",
            source.describe()
        ))
    })?;
    Ok(blob.bytes)
}

async fn archive(source: &Arc<dyn BlobStore>, pipeline: Uuid, clock: &ClockRef) -> Result<()> {
    if owner(source).await? != Some(pipeline) {
        return Ok(());
    }
    let blobs = source.list("").await?;
    let mut paths: Vec<String> = blobs
        .into_iter()
        .map(|blob| blob.path)
        .filter(|path| path != "lease")
        .collect();
    // What says whose it is goes last.
    paths.sort_by_key(|path| path == "metadata");
    source.archive(&paths, &archive_label(clock)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::metadata;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn a_move_goes_on_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let clock: ClockRef = ManualClock::at(1_000_000);
        let id = Uuid::from_u128(7);
        let place = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (from, to) = (place("old"), place("new"));
        let write = |location: &str, path: &str, bytes: Vec<u8>| {
            let store = CheckpointLocation::store(location, &Default::default()).unwrap();
            let blob = (path.to_owned(), Bytes::from(bytes));
            async move { store.put_all(vec![blob]).await.unwrap() }
        };
        relocate(&from, &to, id, &clock).await.unwrap();
        write(&from, "metadata", metadata(id)).await;
        write(&from, "offsets/3", b"three".to_vec()).await;
        // Cut after a part of the copy: it is made again.
        write(&to, "offsets/3", b"thr".to_vec()).await;
        relocate(&from, &to, id, &clock).await.unwrap();
        let target = CheckpointLocation::store(&to, &Default::default()).unwrap();
        let copied = target.get("offsets/3").await.unwrap().unwrap();
        assert_eq!(copied.bytes, Bytes::from_static(b"three"));
        let source = CheckpointLocation::store(&from, &Default::default()).unwrap();
        assert!(source.get("metadata").await.unwrap().is_none());
        // Cut before the archiving: the new one counts, whatever the old one says.
        write(&from, "metadata", metadata(id)).await;
        write(&from, "offsets/3", b"older".to_vec()).await;
        relocate(&from, &to, id, &clock).await.unwrap();
        let copied = target.get("offsets/3").await.unwrap().unwrap();
        assert_eq!(copied.bytes, Bytes::from_static(b"three"));
        assert!(source.get("metadata").await.unwrap().is_none());
        let other = relocate(&to, &from, Uuid::from_u128(8), &clock).await;
        other.unwrap();
        let error = check_target(&to, Uuid::from_u128(8)).await.unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
    }
}

//! Named blobs at a location: the few operations that a checkpoint needs of a disk or an object
//! store.
//!
//! Whatever implements [`BlobStore`] promises: a write is whole or absent, also over a crash, and
//! durable when it returned; the conditional writes decide races. It knows nothing of what the
//! blobs mean. Paths are relative to the location, `/`-separated, such as `offsets/7`.

use std::fmt;
use std::fs::File;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use crate::error::{Error, ErrorKind, Result};

/// Which content a blob has, for conditional updates: an etag or version that only the store
/// itself reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobVersion(pub String);

/// A blob and the version that was read.
#[derive(Debug, Clone)]
pub struct Blob {
    /// Content.
    pub bytes: Bytes,
    /// For [`BlobStore::put_if_match`].
    pub version: BlobVersion,
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobInfo {
    /// Path below the location.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// How a conditional write went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    /// Written; the blob now has this version.
    Written(BlobVersion),
    /// Not written: another one was there, or had come, first.
    Lost,
}

/// How the last blob of [`BlobStore::put_after`] follows the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// It never shows without them.
    Always,
    /// Once it is acknowledged they are all there. After a power cut before that it may show without
    /// them, which a reader must be able to do without.
    OnceAcknowledged,
}

/// An operating-system lock on the location.
#[derive(Debug)]
pub enum OsLock {
    /// Held until dropped; a killed process lets go of it at once.
    Held(File),
    /// A living process has it.
    Busy,
    /// The store has no such locks: only the lease's expiry tells.
    Unsupported,
}

/// Content of a blob, `None` if there is none; or why what has its name is none, as a clause.
pub type Judged = std::result::Result<Option<Bytes>, String>;

/// Reads of many blobs that go on at the same time.
const READS_AT_ONCE: usize = 16;

/// Blobs at one location.
#[async_trait]
pub trait BlobStore: Send + Sync + fmt::Debug {
    /// The location, for people; without credentials.
    fn describe(&self) -> String;

    /// Writes several blobs, replacing what is there. After an error any of them may be written,
    /// each whole. They are written at the same time, so that they cost one wait for the disk.
    async fn put_all(&self, blobs: Vec<(String, Bytes)>) -> Result<()>;

    /// Writes new blobs, each unless there is one, and after them one more. Gives an outcome for each of
    /// `ahead`, and the last one's if it was tried: it is not when one of the others was lost. A store
    /// may make the last one wait although it need not.
    async fn put_after(
        &self,
        ahead: Vec<(String, Bytes)>,
        path: &str,
        bytes: Bytes,
        _follows: Follows,
    ) -> Result<(Vec<PutOutcome>, Option<PutOutcome>)> {
        let puts = ahead
            .iter()
            .map(|(path, bytes)| self.put_if_absent(path, bytes.clone()));
        let outcomes = futures::future::try_join_all(puts).await?;
        if outcomes.contains(&PutOutcome::Lost) {
            return Ok((outcomes, None));
        }
        let last = self.put_if_absent(path, bytes).await?;
        Ok((outcomes, Some(last)))
    }

    /// Writes a blob unless there is one.
    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome>;

    /// Replaces a blob if it still has `version`.
    async fn put_if_match(
        &self,
        path: &str,
        bytes: Bytes,
        version: &BlobVersion,
    ) -> Result<PutOutcome>;

    /// Reads a blob, `None` if there is none; [`not_a_blob`] where something else has its name.
    async fn get(&self, path: &str) -> Result<Option<Blob>>;

    /// Reads blobs in order to judge them, each as [`get_or_why`] does.
    async fn get_each(&self, paths: Vec<String>) -> Result<Vec<Judged>> {
        futures::stream::iter(paths)
            .map(|path| async move { get_or_why(self, &path).await })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await
    }

    /// Reads bytes `range` of a blob, `None` if there is none. Fewer come back where it is shorter.
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Option<Bytes>>;

    /// All blobs whose path begins with `prefix` (a folder with its `/`, or empty for all).
    async fn list(&self, prefix: &str) -> Result<Vec<BlobInfo>>;

    /// Deletes blobs; those that are not there are fine.
    async fn delete(&self, paths: &[String]) -> Result<()>;

    /// Moves blobs to `<location>.archive/<label>/`, keeping their paths.
    async fn archive(&self, paths: &[String], label: &str) -> Result<()>;

    /// Waits for work that goes on although whoever asked for it was cancelled.
    async fn settle(&self) {}

    /// Tries to lock the location for this process.
    async fn lock(&self) -> Result<OsLock> {
        Ok(OsLock::Unsupported)
    }
}

/// The error for what has a blob's name and is none, such as a folder.
pub(super) fn not_a_blob(path: &str, what: &str) -> Error {
    Error::damaged(format!("\"{path}\" is {what}, not a file")).detail(what)
}

/// Reads a blob in order to judge it: what has its name and is none is no error, but a clause that
/// says so.
pub(super) async fn get_or_why<S: BlobStore + ?Sized>(store: &S, path: &str) -> Result<Judged> {
    match store.get(path).await {
        Ok(blob) => Ok(Ok(blob.map(|blob| blob.bytes))),
        Err(error) => judged(error),
    }
}

/// What an error of reading says of the blob; an error again, if it says nothing of it.
pub(super) fn judged(error: Error) -> Result<Judged> {
    if error.kind() != ErrorKind::Damaged {
        return Err(error);
    }
    let what = error.detail_text().unwrap_or("something else");
    Ok(Err(format!("it is {what}, not a file")))
}

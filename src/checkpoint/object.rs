//! Blobs in an object store: S3, Azure, Google Cloud, HTTP with conditional puts, or memory.
//!
//! A put is whole or absent by nature. `put_if_absent` and `put_if_match` are the store's own
//! conditional requests; a store that ignores the conditions cannot be used and is not guarded
//! against here. What is there already and is the same was written: by the request before, say. The archive is a copy and a deletion.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion,
};
use parking_lot::Mutex;
use url::Url;

use super::blob::{Blob, BlobInfo, BlobStore, BlobVersion, PutOutcome};
use crate::error::{Error, Result, sqlstate};
use crate::object_stores;

/// Requests of one call that go on at the same time.
const REQUESTS_AT_ONCE: usize = 16;

/// Buckets of `memory://`, shared by the process so that a reopened location is the same.
static MEMORY: LazyLock<Mutex<BTreeMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Blobs below a prefix of a bucket.
#[derive(Debug)]
pub struct ObjectBlobStore {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    description: String,
}

/// Opens the store of an URL.
pub(super) fn open(
    location: &str,
    options: &BTreeMap<String, String>,
) -> Result<Arc<dyn BlobStore>> {
    let url = Url::parse(location).map_err(|error| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("\"{location}\" is not a checkpoint location"),
        )
        .detail(format!("It is no valid URL: {error}."))
    })?;
    let description = describe(&url);
    let (store, path): (Arc<dyn ObjectStore>, Path) = if url.scheme() == "memory" {
        let bucket = url.host_str().unwrap_or_default().to_owned();
        let store = Arc::clone(MEMORY.lock().entry(bucket).or_default());
        (store, Path::from(url.path()))
    } else {
        object_stores::open(&url, store_options(&url, options)).map_err(|error| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("cannot use checkpoint location \"{description}\""),
            )
            .detail(error.to_string())
        })?
    };
    Ok(Arc::new(ObjectBlobStore::new(
        store,
        path.as_ref(),
        description,
    )))
}

/// The environment's settings for the kind of store, overridden by the location's own.
fn store_options(url: &Url, options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let prefixes: &[&str] = match url.scheme() {
        "s3" | "s3a" => &["AWS_"],
        "gs" => &["GOOGLE_"],
        "az" | "adl" | "azure" | "abfs" | "abfss" => &["AZURE_"],
        _ => &["AWS_", "AZURE_", "GOOGLE_"],
    };
    let mut all: BTreeMap<String, String> = std::env::vars()
        .filter(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let own = options
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    all.extend(own);
    all
}

/// The URL without what may be a secret.
fn describe(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url
        .port()
        .map_or_else(String::new, |port| format!(":{port}"));
    let path = url.path().trim_end_matches('/');
    format!("{}://{host}{port}{path}", url.scheme())
}

impl ObjectBlobStore {
    /// The blobs below `prefix` of a store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, description: String) -> Self {
        Self {
            store,
            prefix: prefix.trim_matches('/').to_owned(),
            description,
        }
    }

    fn path(&self, path: &str) -> Path {
        Path::from(format!("{}/{path}", self.prefix))
    }

    fn error(&self, path: &str, error: object_store::Error) -> Error {
        let state = match &error {
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => sqlstate::INVALID_AUTHORIZATION,
            _ => sqlstate::IO_ERROR,
        };
        Error::transient(
            state,
            format!("could not access \"{}/{path}\"", self.description),
        )
        .detail(error.to_string())
    }

    async fn put(&self, path: &str, bytes: Bytes, mode: PutMode) -> Result<PutOutcome> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let payload = PutPayload::from_bytes(bytes.clone());
        match self
            .store
            .put_opts(&self.path(path), payload, options)
            .await
        {
            Ok(result) => Ok(PutOutcome::Written(version_of_put(&result))),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }
                // An update of what was deleted meanwhile.
                | object_store::Error::NotFound { .. },
            ) => self.lost(path, &bytes).await,
            Err(error) => Err(self.error(path, error)),
        }
    }

    /// A request that was carried out although its answer got lost is tried again, and then finds what
    /// it wrote itself.
    async fn lost(&self, path: &str, bytes: &Bytes) -> Result<PutOutcome> {
        Ok(match self.get(path).await? {
            Some(current) if current.bytes == *bytes => PutOutcome::Written(current.version),
            _ => PutOutcome::Lost,
        })
    }
}

/// ETag and version, as far as the store gives them.
fn version_of_put(result: &PutResult) -> BlobVersion {
    join_version(result.e_tag.as_deref(), result.version.as_deref())
}

fn join_version(e_tag: Option<&str>, version: Option<&str>) -> BlobVersion {
    BlobVersion(format!(
        "{}\n{}",
        e_tag.unwrap_or_default(),
        version.unwrap_or_default()
    ))
}

fn split_version(version: &BlobVersion) -> UpdateVersion {
    let (e_tag, version) = version.0.split_once('\n').unwrap_or((&version.0, ""));
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion {
        e_tag: known(e_tag),
        version: known(version),
    }
}

#[async_trait]
impl BlobStore for ObjectBlobStore {
    fn describe(&self) -> String {
        self.description.clone()
    }

    async fn put_all(&self, blobs: Vec<(String, Bytes)>) -> Result<()> {
        let puts = blobs
            .into_iter()
            .map(|(path, bytes)| async move { self.put(&path, bytes, PutMode::Overwrite).await });
        futures::future::try_join_all(puts).await.map(|_| ())
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        self.put(path, bytes, PutMode::Create).await
    }

    async fn put_if_match(
        &self,
        path: &str,
        bytes: Bytes,
        version: &BlobVersion,
    ) -> Result<PutOutcome> {
        self.put(path, bytes, PutMode::Update(split_version(version)))
            .await
    }

    async fn get(&self, path: &str) -> Result<Option<Blob>> {
        let result = match self.store.get(&self.path(path)).await {
            Ok(result) => result,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.error(path, error)),
        };
        let version = join_version(result.meta.e_tag.as_deref(), result.meta.version.as_deref());
        let bytes = result.bytes().await.map_err(|e| self.error(path, e))?;
        Ok(Some(Blob { bytes, version }))
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        match self.store.get_range(&self.path(path), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(path, error)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobInfo>> {
        let folder = self.path(prefix);
        let start = match self.prefix.is_empty() {
            true => 0,
            false => self.prefix.len() + 1,
        };
        let mut found: Vec<BlobInfo> = self
            .store
            .list(Some(&folder))
            .map_ok(|meta| BlobInfo {
                path: meta.location.as_ref()[start..].to_owned(),
                bytes: meta.size,
            })
            .try_collect()
            .await
            .map_err(|e| self.error(prefix, e))?;
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    async fn delete(&self, paths: &[String]) -> Result<()> {
        let locations: Vec<object_store::Result<Path>> =
            paths.iter().map(|path| Ok(self.path(path))).collect();
        let mut results = self
            .store
            .delete_stream(futures::stream::iter(locations).boxed());
        while let Some(result) = results.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.error("", error)),
            }
        }
        Ok(())
    }

    async fn archive(&self, paths: &[String], label: &str) -> Result<()> {
        let moves = paths.iter().cloned().map(|path| async move {
            let from = self.path(&path);
            let to = Path::from(format!("{}.archive/{label}/{path}", self.prefix));
            match self.store.copy(&from, &to).await {
                Ok(()) => {}
                Err(object_store::Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(self.error(&path, error)),
            }
            self.store
                .delete(&from)
                .await
                .map_err(|e| self.error(&path, e))
        });
        futures::stream::iter(moves)
            .buffered(REQUESTS_AT_ONCE)
            .try_collect()
            .await
    }
}

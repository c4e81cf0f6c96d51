//! `sources/K/N`: what a source itself must remember of each batch, such as its list of files.
//!
//! An entry that stands for all up to its batch is named `N.compact`. It is written before the
//! entries it replaces are deleted, and a reader skips those that a crash left.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::blob::{BlobStore, get_or_why};
use super::format::{self, Unreadable};
use super::location::{Identity, Shared};
use crate::connectors::SourceLog;
use crate::error::{Error, Result};

const COMPACT_SUFFIX: &str = ".compact";

/// The log of a pipeline that has the checkpoint's lease.
pub(super) struct CheckpointSourceLog {
    shared: Arc<Shared>,
    log: LogReader,
}

/// The log for who only looks: it refuses to write.
pub struct LogReader {
    store: Arc<dyn BlobStore>,
    identity: Identity,
    source: String,
    folder: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    pipeline_id: Uuid,
    batch_id: u64,
    entry: serde_json::Value,
}

impl CheckpointSourceLog {
    pub(super) fn new(shared: Arc<Shared>, source: &str) -> Self {
        let store = Arc::clone(&shared.store);
        Self {
            log: LogReader::new(store, shared.identity.clone(), source),
            shared,
        }
    }

    async fn write(&self, name: String, batch_id: u64, entry: &serde_json::Value) -> Result<()> {
        let bytes = format::encode_one(&Entry {
            pipeline_id: self.shared.identity.pipeline_id,
            batch_id,
            entry: entry.clone(),
        });
        self.shared.lease.check().await?;
        let path = format!("{}{name}", self.log.folder);
        self.shared.put_all(vec![(path, bytes.into())]).await
    }
}

impl LogReader {
    /// The log of a source at a location.
    pub fn new(store: Arc<dyn BlobStore>, identity: Identity, source: &str) -> Self {
        Self {
            store,
            identity,
            source: source.to_owned(),
            folder: folder_of(source),
        }
    }

    async fn read(&self, name: &str) -> Result<Option<serde_json::Value>> {
        let path = format!("{}{name}", self.folder);
        let bytes = match get_or_why(&*self.store, &path).await? {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(why) => return Err(self.damaged(name, &why)),
        };
        match format::decode_one::<Entry>(&bytes) {
            Ok(entry) if entry.pipeline_id == self.identity.pipeline_id => Ok(Some(entry.entry)),
            Ok(_) => Err(self.damaged(name, "it belongs to another pipeline")),
            Err(Unreadable::Damaged(why)) => Err(self.damaged(name, &why)),
            Err(Unreadable::NewerVersion(version)) => Err(super::decide::newer_format(
                &self.store.describe(),
                &version,
            )),
        }
    }

    fn damaged(&self, name: &str, why: &str) -> Error {
        Error::damaged(format!(
            "log of what source \"{}\" has read is damaged at batch {}",
            self.source,
            name.trim_end_matches(COMPACT_SUFFIX)
        ))
        .detail(format!(
            "In \"{}/{}{name}\" {why}.",
            self.store.describe(),
            self.folder
        ))
        .hint(format!(
            "Restore a backup of the checkpoint, or read all files again: RESET CHECKPOINT OF {};",
            self.identity.name()
        ))
    }

    /// Names by batch: the newest compacted entry and those after it; and all names up to it.
    async fn names(&self) -> Result<BTreeMap<u64, String>> {
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        let mut compacted: Option<u64> = None;
        for blob in self.store.list(&self.folder).await? {
            let Some(name) = blob.path.strip_prefix(&self.folder) else {
                continue;
            };
            let digits = name.strip_suffix(COMPACT_SUFFIX);
            let Ok(batch_id) = digits.unwrap_or(name).parse::<u64>() else {
                continue;
            };
            if digits.is_some() {
                compacted = compacted.max(Some(batch_id));
                names.insert(batch_id, name.to_owned());
            } else {
                names.entry(batch_id).or_insert_with(|| name.to_owned());
            }
        }
        Ok(match compacted {
            Some(compacted) => names.split_off(&compacted),
            None => names,
        })
    }

    async fn entry(&self, batch_id: u64) -> Result<Option<serde_json::Value>> {
        if let Some(entry) = self.read(&format!("{batch_id}{COMPACT_SUFFIX}")).await? {
            return Ok(Some(entry));
        }
        self.read(&batch_id.to_string()).await
    }

    async fn entries(&self) -> Result<Vec<(u64, serde_json::Value)>> {
        let mut entries = Vec::new();
        for (batch_id, name) in self.names().await? {
            if let Some(entry) = self.read(&name).await? {
                entries.push((batch_id, entry));
            }
        }
        Ok(entries)
    }

    fn read_only(&self) -> Error {
        Error::internal(format!(
            "the log of source \"{}\" is open for reading only",
            self.source
        ))
    }
}

#[async_trait]
impl SourceLog for LogReader {
    async fn put(&self, _batch_id: u64, _entry: &serde_json::Value) -> Result<()> {
        Err(self.read_only())
    }

    async fn get(&self, batch_id: u64) -> Result<Option<serde_json::Value>> {
        self.entry(batch_id).await
    }

    async fn load_all(&self) -> Result<Vec<(u64, serde_json::Value)>> {
        self.entries().await
    }

    async fn compact(&self, _through: u64, _entry: &serde_json::Value) -> Result<()> {
        Err(self.read_only())
    }
}

#[async_trait]
impl SourceLog for CheckpointSourceLog {
    async fn put(&self, batch_id: u64, entry: &serde_json::Value) -> Result<()> {
        self.write(batch_id.to_string(), batch_id, entry).await
    }

    async fn get(&self, batch_id: u64) -> Result<Option<serde_json::Value>> {
        self.log.entry(batch_id).await
    }

    async fn load_all(&self) -> Result<Vec<(u64, serde_json::Value)>> {
        self.log.entries().await
    }

    async fn compact(&self, through: u64, entry: &serde_json::Value) -> Result<()> {
        let name = format!("{through}{COMPACT_SUFFIX}");
        self.write(name.clone(), through, entry).await?;
        let replaced: Vec<String> = self
            .shared
            .store
            .list(&self.log.folder)
            .await?
            .into_iter()
            .map(|blob| blob.path)
            .filter(|path| {
                path.strip_prefix(&self.log.folder).is_some_and(|other| {
                    let batch_id = other.trim_end_matches(COMPACT_SUFFIX).parse::<u64>();
                    other != name && batch_id.is_ok_and(|batch_id| batch_id <= through)
                })
            })
            .collect();
        self.shared.delete(&replaced).await
    }
}

/// Where the log of a source lies.
pub(super) fn folder_of(source: &str) -> String {
    format!("sources/{}/", escape(source))
}

/// A name as one path component: everything but letters, digits, `-` and `_` as `%xx`.
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02x}"));
        }
    }
    escaped
}

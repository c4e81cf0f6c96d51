//! `sources/K/N`: what a source itself must remember of each batch, such as its list of files.
//!
//! An entry that stands for all up to its batch is named `N.compact`. It is written before the
//! entries it replaces are deleted, and a reader skips those that a crash left.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::format::{self, Unreadable};
use super::location::Shared;
use crate::connectors::SourceLog;
use crate::error::{Error, Result};

const COMPACT_SUFFIX: &str = ".compact";

pub(super) struct CheckpointSourceLog {
    shared: Arc<Shared>,
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
        Self {
            shared,
            source: source.to_owned(),
            folder: format!("sources/{}/", escape(source)),
        }
    }

    async fn write(&self, name: String, batch_id: u64, entry: &serde_json::Value) -> Result<()> {
        let bytes = format::encode_one(&Entry {
            pipeline_id: self.shared.identity.pipeline_id,
            batch_id,
            entry: entry.clone(),
        });
        self.shared.lease.check().await?;
        let path = format!("{}{name}", self.folder);
        self.shared.put_all(vec![(path, bytes.into())]).await
    }

    async fn read(&self, name: &str) -> Result<Option<serde_json::Value>> {
        let path = format!("{}{name}", self.folder);
        let Some(blob) = self.shared.store.get(&path).await? else {
            return Ok(None);
        };
        match format::decode_one::<Entry>(&blob.bytes) {
            Ok(entry) if entry.pipeline_id == self.shared.identity.pipeline_id => {
                Ok(Some(entry.entry))
            }
            Ok(_) => Err(self.damaged(name, "it belongs to another pipeline")),
            Err(Unreadable::Damaged(why)) => Err(self.damaged(name, &why)),
            Err(Unreadable::NewerVersion(version)) => Err(super::decide::newer_format(
                &self.shared.store.describe(),
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
            self.shared.store.describe(),
            self.folder
        ))
        .hint(format!(
            "Run REPAIR CHECKPOINT OF {}.",
            self.shared.identity.name()
        ))
    }

    /// Names by batch: the newest compacted entry and those after it; and all names up to it.
    async fn names(&self) -> Result<BTreeMap<u64, String>> {
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        let mut compacted: Option<u64> = None;
        for blob in self.shared.store.list(&self.folder).await? {
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
}

#[async_trait]
impl SourceLog for CheckpointSourceLog {
    async fn put(&self, batch_id: u64, entry: &serde_json::Value) -> Result<()> {
        self.write(batch_id.to_string(), batch_id, entry).await
    }

    async fn get(&self, batch_id: u64) -> Result<Option<serde_json::Value>> {
        if let Some(entry) = self.read(&format!("{batch_id}{COMPACT_SUFFIX}")).await? {
            return Ok(Some(entry));
        }
        self.read(&batch_id.to_string()).await
    }

    async fn load_all(&self) -> Result<Vec<(u64, serde_json::Value)>> {
        let mut entries = Vec::new();
        for (batch_id, name) in self.names().await? {
            if let Some(entry) = self.read(&name).await? {
                entries.push((batch_id, entry));
            }
        }
        Ok(entries)
    }

    async fn compact(&self, through: u64, entry: &serde_json::Value) -> Result<()> {
        let name = format!("{through}{COMPACT_SUFFIX}");
        self.write(name.clone(), through, entry).await?;
        let replaced: Vec<String> = self
            .shared
            .store
            .list(&self.folder)
            .await?
            .into_iter()
            .map(|blob| blob.path)
            .filter(|path| {
                path.strip_prefix(&self.folder).is_some_and(|other| {
                    let batch_id = other.trim_end_matches(COMPACT_SUFFIX).parse::<u64>();
                    other != name && batch_id.is_ok_and(|batch_id| batch_id <= through)
                })
            })
            .collect();
        self.shared.delete(&replaced).await
    }
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

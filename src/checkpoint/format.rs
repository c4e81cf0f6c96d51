//! The text files of a checkpoint: metadata, offsets, commits, manifests, source logs, the lease.
//!
//! An entry is `v1`, lines of JSON, and a last line `crc32c:` with the checksum of all bytes before
//! it in eight hexadecimal digits (`docs/checkpoint-format.md`). Parsing never trusts a length and
//! never panics; what cannot be read is told in words that go into a DETAIL.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{CommitEntry, Identity, OffsetEntry};
use crate::connectors::SourceRange;

/// The version this build writes; it reads no other yet.
pub const FORMAT_VERSION: u32 = 1;
const CHECKSUM_KEY: &str = "crc32c:";

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Written by a newer build.
    NewerVersion(String),
    /// Cut, garbled or empty; what is wrong, as a clause.
    Damaged(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::NewerVersion(version) => {
                write!(f, "it was written by a newer version ({version})")
            }
            Unreadable::Damaged(why) => f.write_str(why),
        }
    }
}

impl Unreadable {
    fn damaged(why: impl Into<String>) -> Self {
        Unreadable::Damaged(why.into())
    }
}

/// `metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The pipeline's id; every file names it.
    pub id: Uuid,
    /// The pipeline's name when the checkpoint was made.
    pub pipeline: String,
    /// See [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Fingerprint of the pipeline's plan when the checkpoint was made.
    pub fingerprint: String,
    /// Microseconds since the epoch.
    pub created_at_us: i64,
    /// The number of its first batch; 0 unless it was begun anew in the place of another.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_batch_id: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls gets a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Which state a commit stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReference {
    /// The state is persisted up to and including this batch.
    pub batch_id: u64,
    /// The manifest that lists its runs; `None`: the state is empty.
    pub manifest_batch_id: Option<u64>,
    /// Checksum of that manifest's bytes, 0 without one.
    pub manifest_crc32c: u32,
}

/// `commits/N`: the engine's entry and what the checkpoint itself must know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommitFile {
    /// The pipeline's id.
    pub pipeline_id: Uuid,
    /// The lease under which it was written.
    pub epoch: u64,
    /// The first batch that this checkpoint ever had.
    pub first_batch_id: u64,
    /// The persisted state; `None`: nothing was persisted yet.
    pub state: Option<StateReference>,
    /// The engine's entry.
    #[serde(flatten)]
    pub entry: CommitEntry,
}

/// `offsets/N`.
#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFile {
    /// The pipeline's id.
    pub pipeline_id: Uuid,
    /// The lease under which it was written.
    pub epoch: u64,
    /// The engine's entry.
    pub entry: OffsetEntry,
}

#[derive(Serialize, Deserialize)]
struct OffsetHead {
    pipeline_id: Uuid,
    epoch: u64,
    batch_id: u64,
    batch_at_us: i64,
    watermarks_us: BTreeMap<String, i64>,
    #[serde(default)]
    watermark: Option<i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    view_watermarks: BTreeMap<String, Option<i64>>,
    settings: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct SourceLine {
    source: String,
    #[serde(flatten)]
    range: SourceRange,
}

/// A run that is part of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// File name below `state/`.
    pub file: String,
    /// First batch it holds entries of.
    pub first_batch_id: u64,
    /// Last batch it holds entries of.
    pub last_batch_id: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Checksum of the whole file.
    pub crc32c: u32,
    /// Tombstones of batches up to this one are left out, since nothing older was below: the run
    /// may not be laid over a state that is older than this.
    pub tombstones_dropped_through: Option<u64>,
}

/// `state/N.manifest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What it belongs to.
    pub head: ManifestHead,
    /// Oldest first.
    pub runs: Vec<RunInfo>,
}

/// First line of a manifest; enough to write `metadata` anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestHead {
    /// The pipeline's id.
    pub pipeline_id: Uuid,
    /// The pipeline's name.
    pub pipeline: String,
    /// Fingerprint of the pipeline's plan.
    pub fingerprint: String,
    /// The lease under which it was written.
    pub epoch: u64,
    /// Batch.
    pub batch_id: u64,
}

/// `lease`: who writes here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Random, per opening.
    pub holder: Uuid,
    /// Grows with every holder.
    pub epoch: u64,
    /// Host name, for people and to tell whether `pid` can be asked about.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// Microseconds since the epoch.
    pub acquired_at_us: i64,
    /// Microseconds since the epoch; after it another may take over.
    pub expires_at_us: i64,
}

/// Writes lines of JSON as an entry.
pub fn encode_lines(lines: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut text = format!("v{FORMAT_VERSION}\n");
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    let checksum = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("{CHECKSUM_KEY}{checksum:08x}\n"));
    text.into_bytes()
}

/// The lines of JSON of an entry, after its version and checksum were checked.
pub fn decode_lines(bytes: &[u8]) -> Result<Vec<&str>, Unreadable> {
    if bytes.is_empty() {
        return Err(Unreadable::damaged("the file is empty"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::damaged("it is not text"))?;
    check_version(text.lines().next().unwrap_or_default())?;
    let body_end = text
        .trim_end_matches('\n')
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let (body, last) = text.split_at(body_end);
    let checksum = last
        .strip_suffix('\n')
        .and_then(|line| line.strip_prefix(CHECKSUM_KEY))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or_else(|| Unreadable::damaged("the file is cut: it has no checksum line"))?;
    if crc32c::crc32c(body.as_bytes()) != checksum {
        return Err(Unreadable::damaged("its checksum is wrong"));
    }
    Ok(body.lines().skip(1).collect())
}

fn check_version(line: &str) -> Result<(), Unreadable> {
    match line.strip_prefix('v').map(str::parse::<u32>) {
        Some(Ok(FORMAT_VERSION)) => Ok(()),
        Some(Ok(version)) if version > FORMAT_VERSION => {
            Err(Unreadable::NewerVersion(version.to_string()))
        }
        _ => Err(Unreadable::damaged("it does not begin with a version")),
    }
}

fn json_line<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain structures always have a JSON form")
}

fn parse_line<T: DeserializeOwned>(line: Option<&&str>) -> Result<T, Unreadable> {
    let line = line.ok_or_else(|| Unreadable::damaged("a line is missing"))?;
    serde_json::from_str(line).map_err(|e| Unreadable::damaged(format!("a line is wrong: {e}")))
}

/// An entry of one JSON value.
pub fn encode_one<T: Serialize>(value: &T) -> Vec<u8> {
    encode_lines([json_line(value)])
}

/// Reads what [`encode_one`] wrote.
pub fn decode_one<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    parse_line(decode_lines(bytes)?.first())
}

impl OffsetFile {
    /// The bytes of `offsets/N`.
    pub fn encode(&self) -> Vec<u8> {
        let entry = &self.entry;
        let head = json_line(&OffsetHead {
            pipeline_id: self.pipeline_id,
            epoch: self.epoch,
            batch_id: entry.batch_id,
            batch_at_us: entry.batch_at_us,
            watermarks_us: entry.watermarks_us.clone(),
            watermark: entry.watermark,
            view_watermarks: entry.view_watermarks.clone(),
            settings: entry.settings.clone(),
        });
        let sources = entry.sources.iter().map(|(source, range)| {
            json_line(&SourceLine {
                source: source.clone(),
                range: range.clone(),
            })
        });
        encode_lines(std::iter::once(head).chain(sources))
    }

    /// Reads `offsets/N`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let lines = decode_lines(bytes)?;
        let head: OffsetHead = parse_line(lines.first())?;
        let mut sources = BTreeMap::new();
        for line in &lines[1..] {
            let line: SourceLine = parse_line(Some(line))?;
            sources.insert(line.source, line.range);
        }
        Ok(Self {
            pipeline_id: head.pipeline_id,
            epoch: head.epoch,
            entry: OffsetEntry {
                batch_id: head.batch_id,
                batch_at_us: head.batch_at_us,
                watermarks_us: head.watermarks_us,
                watermark: head.watermark,
                view_watermarks: head.view_watermarks,
                settings: head.settings,
                sources,
            },
        })
    }
}

impl Manifest {
    /// The bytes of `state/N.manifest`.
    pub fn encode(&self) -> Vec<u8> {
        encode_lines(std::iter::once(json_line(&self.head)).chain(self.runs.iter().map(json_line)))
    }

    /// Reads `state/N.manifest`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let lines = decode_lines(bytes)?;
        let head = parse_line(lines.first())?;
        let runs = lines[1..]
            .iter()
            .map(|line| parse_line(Some(line)))
            .collect::<Result<_, _>>()?;
        Ok(Self { head, runs })
    }
}

impl Metadata {
    /// The metadata of a checkpoint that is made now and begins with a batch.
    pub fn of(identity: &Identity, created_at_us: i64, first_batch_id: u64) -> Self {
        Self {
            id: identity.pipeline_id,
            pipeline: identity.pipeline_name.clone(),
            format_version: FORMAT_VERSION,
            fingerprint: identity.fingerprint.clone(),
            created_at_us,
            first_batch_id,
        }
    }

    /// The bytes of `metadata`: one line of JSON whose last member is the checksum of the others.
    pub fn encode(&self) -> Vec<u8> {
        let plain = json_line(self);
        let checksum = crc32c::crc32c(plain.as_bytes());
        let open = plain.strip_suffix('}').unwrap_or(&plain);
        format!("{open},\"crc32c\":\"{checksum:08x}\"}}\n").into_bytes()
    }

    /// Reads `metadata`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::damaged("it is not text"))?;
        let mut value: serde_json::Value = serde_json::from_str(text)
            .map_err(|e| Unreadable::damaged(format!("it is not JSON: {e}")))?;
        let version = value.get("format_version").and_then(|v| v.as_u64());
        if let Some(version) = version
            && version > u64::from(FORMAT_VERSION)
        {
            return Err(Unreadable::NewerVersion(version.to_string()));
        }
        let checksum = value
            .as_object_mut()
            .and_then(|object| object.shift_remove("crc32c"))
            .and_then(|checksum| checksum.as_str().map(str::to_owned))
            .ok_or_else(|| Unreadable::damaged("it has no checksum"))?;
        let metadata: Self = serde_json::from_value(value)
            .map_err(|e| Unreadable::damaged(format!("it is incomplete: {e}")))?;
        let expected = crc32c::crc32c(json_line(&metadata).as_bytes());
        if format!("{expected:08x}") != checksum {
            return Err(Unreadable::damaged("its checksum is wrong"));
        }
        Ok(metadata)
    }
}

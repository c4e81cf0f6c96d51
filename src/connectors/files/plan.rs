//! Which files a batch takes: pure decisions over what is known and what a listing shows.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::location::FileEntry;
use crate::connectors::telling::Names;
use crate::connectors::{ReadLimits, SourceOffset};
use crate::error::{Error, Result};

/// The position in a file source: the last batch that has an entry in the source's log, and how
/// many files were known after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FilesOffset {
    /// `None` before the first batch with files.
    pub files_log: Option<u64>,
    /// Files read so far.
    pub files: u64,
}

impl FilesOffset {
    /// From the offset log's JSON.
    pub fn parse(offset: &SourceOffset) -> Result<Self> {
        serde_json::from_value(offset.0.clone()).map_err(|_| {
            Error::damaged(
                "offset of a files source is not of the form {\"files_log\": n, \"files\": n}",
            )
            .detail(format!("It says {}.", offset.0))
        })
    }

    /// To the offset log's JSON.
    pub fn to_offset(self) -> SourceOffset {
        SourceOffset(serde_json::json!({"files_log": self.files_log, "files": self.files}))
    }
}

/// A file of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Which file, as it was when it was planned.
    #[serde(flatten)]
    pub entry: FileEntry,
    /// Batch it belongs to; only in compacted entries, where it tells the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<u64>,
    /// Why it is not read, under `on_bad_file = 'skip'`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// It was read where the location was before: what is there now may be a copy of it.
    #[serde(skip)]
    pub moved: bool,
}

/// An entry of the source's log. Entries form a chain by `previous`: an entry that was written for
/// a batch which never came to be is on no chain and counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Batch of the entry before, `None` for the first and for a compacted one.
    pub previous: Option<u64>,
    /// Files, in reading order.
    pub files: Vec<PlannedFile>,
    /// What their paths began with: the location as it was then. Logs of before do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

impl LogEntry {
    /// From the log's JSON; the names and `batch_id` are for the error.
    pub(in crate::connectors) fn parse(
        names: &Names,
        batch_id: u64,
        value: &Value,
    ) -> Result<Self> {
        serde_json::from_value(value.clone())
            .map_err(|e| damaged_entry(names, batch_id, &e.to_string()))
    }

    /// The files where the location is now: whoever moves all of them reads none again.
    #[must_use]
    pub fn at_root(mut self, now: &str) -> Self {
        let Some(then) = self.root.replace(now.to_owned()).filter(|then| then != now) else {
            return self;
        };
        for file in &mut self.files {
            if let Some(behind) = behind_root(&file.entry.path, &then) {
                file.entry.path = match (now, behind) {
                    (now, "") => now.to_owned(),
                    ("", behind) => behind.to_owned(),
                    (now, behind) => format!("{}/{behind}", now.trim_end_matches('/')),
                };
                file.moved = true;
            }
        }
        self
    }

    /// To the log's JSON.
    pub fn to_json(&self) -> Result<Value> {
        serde_json::to_value(self).map_err(|e| Error::internal(e.to_string()))
    }
}

/// What a path says behind its root; a root may itself be the file.
fn behind_root<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let behind = path.strip_prefix(root.trim_end_matches('/'))?;
    let is_below = root.is_empty() || behind.is_empty() || behind.starts_with('/');
    is_below.then(|| behind.trim_start_matches('/'))
}

/// Batches of the chain that ends at `last`, oldest first.
pub(in crate::connectors) fn chain(
    names: &Names,
    entries: &HashMap<u64, LogEntry>,
    last: Option<u64>,
) -> Result<Vec<u64>> {
    let mut batches = Vec::new();
    let mut next = last;
    while let Some(batch_id) = next {
        let entry = entries
            .get(&batch_id)
            .ok_or_else(|| missing_entry(names, batch_id))?;
        if entry.previous.is_some_and(|p| p >= batch_id) {
            let why = "the entry before it is not older than itself";
            return Err(damaged_entry(names, batch_id, why));
        }
        batches.push(batch_id);
        next = entry.previous;
    }
    batches.reverse();
    Ok(batches)
}

/// The error for an entry that a position refers to and the log does not have.
pub(in crate::connectors) fn missing_entry(names: &Names, batch_id: u64) -> Error {
    Error::damaged(format!(
        "log of what source \"{}\" has read is missing at batch {batch_id}",
        names.stream
    ))
    .detail(format!(
        "File sources/{}/{batch_id} of the checkpoint is not there.",
        names.stream
    ))
    .hint(begin_anew(names))
}

/// Nothing else tells which files a batch read.
fn begin_anew(names: &Names) -> String {
    let reset = names.checkpoint("RESET", "");
    format!("Restore a backup of the checkpoint, or read all files again: {reset}")
}

/// The error for an entry that is there and cannot be right.
fn damaged_entry(names: &Names, batch_id: u64, why: &str) -> Error {
    Error::damaged(format!(
        "log of what source \"{}\" has read is damaged at batch {batch_id}",
        names.stream
    ))
    .detail(format!(
        "In file sources/{}/{batch_id} of the checkpoint: {why}.",
        names.stream
    ))
    .hint(begin_anew(names))
}

/// A file that was read, as it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Bytes.
    pub size: u64,
    /// Microseconds since the epoch.
    pub modified_at_us: i64,
    /// Batch it was read in.
    pub batch_id: u64,
    /// See [`PlannedFile::moved`].
    pub moved: bool,
}

impl Seen {
    /// The listed file is the one that was read. Of a moved one the time may be that of a copy.
    fn is(&self, entry: &FileEntry) -> bool {
        self.size == entry.size && (self.moved || self.modified_at_us == entry.modified_at_us)
    }
}

/// What happens to a file that changed after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChangedFile {
    /// say so once
    Warn,
    /// read it as a new file
    ReadAgain,
    /// stop
    Fail,
}

/// What a listing means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Files to read, oldest first, then by path.
    pub unread: Vec<FileEntry>,
    /// Files that were read and have another size or time now.
    pub changed: Vec<FileEntry>,
}

/// Sorts a listing into unread and changed files. Empty files, and files younger than
/// `min_age_us`, are not ready: they are left for a later listing.
pub fn sort_listing(
    listing: &[FileEntry],
    seen: &HashMap<String, Seen>,
    now_us: i64,
    min_age_us: i64,
    on_changed: OnChangedFile,
) -> Found {
    let mut found = Found::default();
    for entry in listing {
        let ready = entry.size > 0 && now_us.saturating_sub(entry.modified_at_us) >= min_age_us;
        match seen.get(&entry.path) {
            None if ready => found.unread.push(entry.clone()),
            None => {}
            Some(seen) if seen.is(entry) => {}
            // Another file, which has the name of one that was read elsewhere.
            Some(seen) if seen.moved && ready => found.unread.push(entry.clone()),
            Some(seen) if seen.moved => {}
            Some(_) => {
                if on_changed == OnChangedFile::ReadAgain && ready {
                    found.unread.push(entry.clone());
                }
                found.changed.push(entry.clone());
            }
        }
    }
    found
        .unread
        .sort_by(|a, b| (a.modified_at_us, &a.path).cmp(&(b.modified_at_us, &b.path)));
    found
}

/// Takes the first files within the limits, but always one.
pub fn take(unread: &[FileEntry], limits: &ReadLimits) -> usize {
    let files_max = limits.max_files.unwrap_or(u64::MAX).max(1);
    let bytes_max = limits.max_bytes.unwrap_or(u64::MAX);
    let mut bytes = 0u64;
    let mut taken = 0;
    for entry in unread {
        bytes = bytes.saturating_add(entry.size);
        if taken as u64 >= files_max || (taken > 0 && bytes > bytes_max) {
            break;
        }
        taken += 1;
    }
    taken
}

/// The tighter of two limits.
pub fn tighter(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What happens to a file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadFile {
    /// stop
    Fail,
    /// set it aside as a dead letter
    Skip,
    /// leave it until it is whole or too old, then stop
    Wait,
}

/// What to do with one bad file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFile {
    /// stop
    Fail,
    /// set it aside
    Skip,
    /// not in this batch
    Later,
}

/// Decides about a bad file that was last changed `age_us` ago.
pub fn decide_bad_file(policy: OnBadFile, age_us: i64, wait_us: i64) -> BadFile {
    match policy {
        OnBadFile::Fail => BadFile::Fail,
        OnBadFile::Skip => BadFile::Skip,
        OnBadFile::Wait if age_us < wait_us => BadFile::Later,
        OnBadFile::Wait => BadFile::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, size: u64, modified_at_us: i64) -> FileEntry {
        FileEntry {
            path: path.to_owned(),
            size,
            modified_at_us,
        }
    }

    #[test]
    fn order_age_and_change() {
        let listing = [
            entry("b", 5, 100),
            entry("a", 5, 100),
            entry("c", 5, 50),
            entry("empty", 0, 10),
            entry("young", 5, 990),
            entry("old", 5, 10),
            entry("grown", 9, 10),
        ];
        let seen_at = |size| Seen {
            moved: false,
            size,
            modified_at_us: 10,
            batch_id: 1,
        };
        let seen = HashMap::from([
            ("old".to_owned(), seen_at(5)),
            ("grown".to_owned(), seen_at(5)),
        ]);
        let paths = |found: &Found| {
            found
                .unread
                .iter()
                .map(|f| f.path.clone())
                .collect::<Vec<_>>()
        };
        let found = sort_listing(&listing, &seen, 1_000, 20, OnChangedFile::Warn);
        assert_eq!(paths(&found), ["c", "a", "b"]);
        assert_eq!(found.changed, [entry("grown", 9, 10)]);
        let found = sort_listing(&listing, &seen, 1_000, 0, OnChangedFile::ReadAgain);
        assert_eq!(paths(&found), ["grown", "c", "a", "b", "young"]);
    }

    #[test]
    fn limits_always_let_one_file_through() {
        let unread = [entry("a", 100, 1), entry("b", 10, 2), entry("c", 10, 3)];
        let limits = |files, bytes| ReadLimits {
            max_rows: None,
            max_files: files,
            max_bytes: bytes,
        };
        assert_eq!(take(&unread, &limits(None, None)), 3);
        assert_eq!(take(&unread, &limits(Some(2), None)), 2);
        assert_eq!(take(&unread, &limits(Some(0), None)), 1);
        assert_eq!(take(&unread, &limits(None, Some(1))), 1);
        assert_eq!(take(&unread, &limits(None, Some(110))), 2);
        assert_eq!(take(&[], &limits(None, None)), 0);
    }

    #[test]
    fn an_entry_that_never_committed_is_on_no_chain() {
        let of = |previous| LogEntry {
            root: None,
            previous,
            files: vec![],
        };
        let entries = HashMap::from([
            (1, of(None)),
            (2, of(Some(1))),
            (3, of(Some(2))),
            (4, of(Some(2))),
        ]);
        let names = Names {
            stream: "f".into(),
            pipeline: Some("My view".into()),
        };
        assert_eq!(chain(&names, &entries, Some(4)).unwrap(), [1, 2, 4]);
        assert_eq!(chain(&names, &entries, None).unwrap(), Vec::<u64>::new());
        let error = chain(&names, &entries, Some(9)).unwrap_err();
        assert_eq!(
            error.primary(),
            "log of what source \"f\" has read is missing at batch 9"
        );
        assert!(error.detail_text().unwrap().contains("sources/f/9"));
        assert_eq!(
            error.hint_text(),
            Some(
                "Restore a backup of the checkpoint, or read all files again: RESET CHECKPOINT OF \"My view\";"
            )
        );
        let loop_entries = HashMap::from([(1, of(Some(1)))]);
        let error = chain(&names, &loop_entries, Some(1)).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Damaged);
        assert!(error.primary().contains("\"f\"") && error.primary().contains("batch 1"));
    }

    #[test]
    fn files_of_a_moved_location_are_the_ones_that_were_read() {
        let file = |path: &str| PlannedFile {
            entry: FileEntry {
                path: path.into(),
                size: 3,
                modified_at_us: 5,
            },
            batch_id: None,
            skipped: None,
            moved: false,
        };
        let entry = |root: Option<&str>| LogEntry {
            previous: None,
            files: vec![file("in/a/b.json"), file("inside/c.json")],
            root: root.map(str::to_owned),
        };
        let paths = |entry: LogEntry| -> Vec<(String, bool)> {
            let files = entry.files.into_iter();
            files.map(|file| (file.entry.path, file.moved)).collect()
        };
        let told = |path: &str, moved| (path.to_owned(), moved);
        let moved = paths(entry(Some("in")).at_root("there/now/"));
        assert_eq!(
            moved,
            [
                told("there/now/a/b.json", true),
                told("inside/c.json", false)
            ]
        );
        for root in [None, Some("there")] {
            let same = paths(entry(root).at_root("there"));
            assert_eq!(same[0], told("in/a/b.json", false));
        }
        // A copy has a time of its own; of another size it is another file.
        let seen = Seen {
            size: 3,
            modified_at_us: 5,
            batch_id: 0,
            moved: true,
        };
        let seen = HashMap::from([("x".to_owned(), seen)]);
        for (size, unread) in [(3, 0), (4, 1)] {
            let listed = FileEntry {
                path: "x".into(),
                size,
                modified_at_us: 9,
            };
            let found = sort_listing(&[listed], &seen, 100, 0, OnChangedFile::Fail);
            assert_eq!((found.unread.len(), found.changed.len()), (unread, 0));
        }
    }

    #[test]
    fn bad_files_wait_only_so_long() {
        use BadFile::*;
        assert_eq!(decide_bad_file(OnBadFile::Wait, 5, 10), Later);
        assert_eq!(decide_bad_file(OnBadFile::Wait, 10, 10), Fail);
        assert_eq!(decide_bad_file(OnBadFile::Skip, 5, 10), Skip);
        assert_eq!(decide_bad_file(OnBadFile::Fail, 5, 10), Fail);
    }
}

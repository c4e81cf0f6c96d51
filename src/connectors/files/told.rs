//! What a files source tells of its files: what its log knows of each, and what reading them came to.
//!
//! The log knows which batch took a file, with its size and time, for as long as the source lives; the last
//! listing knows what still waits. Rows are counted when a file is read, and told until the process
//! ends: to keep them would be a write per file. All of it is in memory already; nothing is asked of the
//! folder, so that telling it takes no longer while a store is away.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Known;
use super::plan::Seen;
use crate::connectors::KnownFile;

/// Files whose reading is remembered.
const READ_FILES_MAX: usize = 100_000;

/// What reading one segment of a file came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentRead {
    /// Rows that it gave.
    pub rows: u64,
    /// Records that could not be decoded.
    pub dead_letters: u64,
    /// Why it was not read, or not to its end.
    pub error: Option<String>,
}

/// What reading files came to, by path and by where a segment begins.
#[derive(Debug, Clone, Default)]
pub struct ReadFiles(Arc<Mutex<HashMap<String, BTreeMap<u64, SegmentRead>>>>);

impl ReadFiles {
    /// A segment was read, now or once more.
    pub fn was_read(&self, path: &str, start: u64, read: SegmentRead) {
        let mut files = self.0.lock();
        if files.len() < READ_FILES_MAX || files.contains_key(path) {
            files
                .entry(path.to_owned())
                .or_default()
                .insert(start, read);
        }
    }

    /// A file cannot be planned as it is.
    pub fn cannot_be_planned(&self, path: &str, error: &str) {
        let read = SegmentRead {
            error: Some(error.to_owned()),
            ..SegmentRead::default()
        };
        self.was_read(path, 0, read);
    }

    /// A file is planned: what was told of it before is of another try.
    pub fn planned(&self, path: &str) {
        self.0.lock().remove(path);
    }

    fn of(&self, path: &str) -> Option<SegmentRead> {
        let files = self.0.lock();
        let mut all = SegmentRead::default();
        for segment in files.get(path)?.values() {
            all.rows += segment.rows;
            all.dead_letters += segment.dead_letters;
            all.error = all.error.or_else(|| segment.error.clone());
        }
        Some(all)
    }
}

/// Every file that is known, those that batches took first, by batch and path.
pub(super) fn known_files(known: &Known, read: &ReadFiles) -> Vec<KnownFile> {
    let taken = known
        .seen
        .iter()
        .map(|(path, seen)| taken(path, seen, read));
    let mut files: Vec<KnownFile> = taken.collect();
    let listing = known.listing.iter().flat_map(|listing| listing.iter());
    let waiting = listing.filter(|entry| !known.seen.contains_key(&entry.path));
    files.extend(waiting.map(|entry| KnownFile {
        path: entry.path.clone(),
        batch_id: None,
        size_bytes: entry.size,
        modified_at_us: entry.modified_at_us,
        rows: None,
        dead_letters: None,
        error: read.of(&entry.path).and_then(|read| read.error),
    }));
    files.sort_by(|a, b| {
        let waits = |file: &KnownFile| file.batch_id.is_none();
        (waits(a), a.batch_id, &a.path).cmp(&(waits(b), b.batch_id, &b.path))
    });
    files
}

fn taken(path: &str, seen: &Seen, read: &ReadFiles) -> KnownFile {
    let read = read.of(path);
    let counted = read.as_ref().filter(|read| read.error.is_none());
    KnownFile {
        path: path.to_owned(),
        batch_id: Some(seen.batch_id),
        size_bytes: seen.size,
        modified_at_us: seen.modified_at_us,
        rows: counted.map(|read| read.rows),
        dead_letters: counted.map(|read| read.dead_letters),
        error: read.and_then(|read| read.error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::location::FileEntry;
    use super::*;

    #[test]
    fn files_are_told_by_their_batches_and_those_that_wait_behind_them() {
        let seen = |batch_id| Seen {
            size: 7,
            modified_at_us: 1,
            batch_id,
            moved: false,
        };
        let entry = |path: &str| FileEntry {
            path: path.to_owned(),
            size: 9,
            modified_at_us: 2,
        };
        let known = Known {
            seen: [("b", 3), ("a", 3), ("z", 2)]
                .map(|(path, batch_id)| (path.to_owned(), seen(batch_id)))
                .into(),
            listing: Some(Arc::new(vec![entry("new"), entry("a")])),
            ..Known::default()
        };
        let read = ReadFiles::default();
        let segment = |rows| SegmentRead {
            rows,
            ..SegmentRead::default()
        };
        for (start, rows) in [(0, 2), (16, 3), (0, 4)] {
            read.was_read("a", start, segment(rows));
        }
        read.cannot_be_planned("new", "it is cut");
        let told = known_files(&known, &read);
        let told: Vec<_> = told
            .iter()
            .map(|f| (f.path.as_str(), f.batch_id, f.rows, f.error.as_deref()))
            .collect();
        let expected = [
            ("z", Some(2), None, None),
            ("a", Some(3), Some(7), None),
            ("b", Some(3), None, None),
            ("new", None, None, Some("it is cut")),
        ];
        assert_eq!(told, expected);
        read.planned("new");
        assert_eq!(known_files(&known, &read)[3].error, None);
    }
}

//! How far the log once went, kept outside of its folder: what a lost or cut log is noticed by.
//!
//! Opening cannot tell a log whose end was lost from one that never went further. So the writer
//! notes the end after every durable group of commits in a small file elsewhere. The note is not
//! synced: after a power cut it may be behind, or unreadable and then nothing is known; it is never
//! ahead of the log, since it is written after the log is on disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::LogPosition;
use super::recovery::segment_name;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"TIDEEND1";
const BYTES: usize = 36;

/// What the note says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownEnd {
    /// identity of the log
    pub identity: Uuid,
    /// position after a commit that was durable
    pub end: LogPosition,
}

impl KnownEnd {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(self.identity.as_bytes());
        bytes[24..32].copy_from_slice(&self.end.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.get(..BYTES)?.try_into().ok()?;
        let (body, crc) = bytes.split_at(32);
        if &body[..8] != MAGIC || crc != crc32c::crc32c(body).to_le_bytes() {
            return None;
        }
        Some(Self {
            identity: Uuid::from_slice(&body[8..24]).ok()?,
            end: u64::from_le_bytes(body[24..].try_into().ok()?),
        })
    }

    /// Whether a log that was found with this identity (`None`: no segment) and end can be the one
    /// the note is of; the error names its last segment and both positions.
    pub fn check(
        &self,
        identity: Option<Uuid>,
        end: LogPosition,
        last_segment: Option<u32>,
        note: &Path,
    ) -> Result<()> {
        let is_same = identity.is_none_or(|found| found == self.identity);
        if is_same && end >= self.end {
            return Ok(());
        }
        let segment = segment_name(last_segment.unwrap_or(1));
        let primary = if !is_same {
            format!("log/{segment} belongs to another database's log")
        } else if identity.is_none() {
            format!(
                "log/{segment} is missing or empty: the log went up to commit {}",
                self.end
            )
        } else {
            format!(
                "log/{segment} is cut: it ends at commit {end}, but the log went up to commit {}",
                self.end
            )
        };
        Err(Error::damaged(primary)
            .detail(
                "The log is the only copy of the rows of tables and of streams without a \
                 connector. No file was changed.",
            )
            .hint(format!(
                "Put the files of the folder log back from a backup of the same moment, or restore \
                 the whole data directory. To go on without the lost rows, delete {}; pipelines \
                 that took them in then stop, each with the statement that helps.",
                note.display()
            )))
    }
}

/// The file with the note.
#[derive(Debug)]
pub struct EndFile {
    path: PathBuf,
    file: File,
}

impl EndFile {
    /// Opens or creates the note, and reads it.
    pub fn open(path: &Path) -> Result<(Self, Option<KnownEnd>)> {
        let context = |e: std::io::Error| {
            Error::from(e).context(format!("could not open {}", path.display()))
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(context)?;
        let bytes = std::fs::read(path).map_err(context)?;
        let known = KnownEnd::decode(&bytes);
        if known.is_none() && !bytes.is_empty() {
            tracing::warn!(path = %path.display(), "the note of the log's end cannot be read");
        }
        let path = path.to_owned();
        Ok((Self { path, file }, known))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the note.
    pub fn record(&self, known: KnownEnd) -> std::io::Result<()> {
        self.file.write_all_at(&known.encode(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::from_u128(7);

    #[test]
    fn the_note_survives_and_damage_of_it_is_no_knowledge() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log_end");
        let (file, known) = EndFile::open(&path).unwrap();
        assert_eq!(known, None);
        for end in [10, 3_000_000_000_000] {
            let note = KnownEnd { identity: ID, end };
            file.record(note).unwrap();
            assert_eq!(EndFile::open(&path).unwrap().1, Some(note));
        }
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 9, 25, 35] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            assert_eq!(KnownEnd::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(KnownEnd::decode(&whole[..35]), None);
    }

    #[test]
    fn a_shorter_or_foreign_log_is_refused_by_name() {
        let known = KnownEnd {
            identity: ID,
            end: 10,
        };
        let note = Path::new("/d/catalog/log_end");
        for (identity, end, segment) in [(Some(ID), 10, Some(3)), (Some(ID), 11, Some(1))] {
            known.check(identity, end, segment, note).unwrap();
        }
        let never = KnownEnd {
            identity: ID,
            end: 0,
        };
        never.check(None, 0, None, note).unwrap();
        for (identity, end, segment, words) in [
            (
                None,
                0,
                None,
                "log/00000001.log is missing or empty: the log went up to commit 10",
            ),
            (
                Some(ID),
                4,
                Some(2),
                "log/00000002.log is cut: it ends at commit 4,",
            ),
            (
                Some(Uuid::from_u128(8)),
                99,
                Some(1),
                "log/00000001.log belongs to another",
            ),
        ] {
            let error = known.check(identity, end, segment, note).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Damaged);
            assert!(error.primary().starts_with(words), "{error}");
            assert!(error.hint_text().unwrap().contains("/d/catalog/log_end"));
        }
    }
}

//! Default locations whose pipeline no longer exists: what a crash in the middle of a DROP, or of a
//! CREATE, leaves behind. They go where DROP puts them, so that their name can be used again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::format::Metadata;
use super::location::archive_label;
use crate::clock::ClockRef;
use crate::error::{Error, Result};

/// Moves every folder of `dir` that is the checkpoint of none of `pipelines` to the archive beside
/// it; answers where each went. A folder that cannot be told is left alone: its pipeline says so.
pub fn archive_leftovers(
    dir: &Path,
    pipelines: &HashSet<Uuid>,
    clock: &ClockRef,
) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::from(error).context(dir.display())),
    };
    let mut archived = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        // A pipeline's folder has no dot in its name; an archive has.
        if name.as_encoded_bytes().contains(&b'.') {
            continue;
        }
        let Ok(bytes) = std::fs::read(entry.path().join("metadata")) else {
            continue;
        };
        let Ok(metadata) = Metadata::decode(&bytes) else {
            continue;
        };
        if pipelines.contains(&metadata.id) {
            continue;
        }
        let mut archive = entry.path().into_os_string();
        archive.push(".archive");
        let archive = PathBuf::from(archive);
        std::fs::create_dir_all(&archive)?;
        let to = archive.join(archive_label(clock));
        std::fs::rename(entry.path(), &to)
            .map_err(|e| Error::from(e).context(entry.path().display()))?;
        archived.push(to);
    }
    Ok(archived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn checkpoint(dir: &Path, name: &str, metadata: &[u8]) {
        std::fs::create_dir_all(dir.join(name).join("offsets")).unwrap();
        std::fs::write(dir.join(name).join("metadata"), metadata).unwrap();
    }

    #[test]
    fn only_folders_of_pipelines_that_are_gone_are_moved() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("checkpoints");
        let clock: ClockRef = ManualClock::at(1_000_000);
        let (live, gone) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let known = HashSet::from([live]);
        assert!(archive_leftovers(&dir, &known, &clock).unwrap().is_empty());
        let metadata = |id| {
            let metadata = Metadata {
                id,
                pipeline: "p".into(),
                format_version: 1,
                fingerprint: String::new(),
                created_at_us: 0,
            };
            metadata.encode()
        };
        checkpoint(&dir, "live", &metadata(live));
        checkpoint(&dir, "gone", &metadata(gone));
        checkpoint(&dir, "damaged", b"{");
        checkpoint(&dir, "gone.archive", &metadata(gone));
        std::fs::create_dir_all(dir.join("empty")).unwrap();
        let archived = archive_leftovers(&dir, &known, &clock).unwrap();
        assert_eq!(archived.len(), 1);
        assert!(archived[0].starts_with(dir.join("gone.archive")));
        assert!(archived[0].join("offsets").is_dir());
        assert!(!dir.join("gone").exists());
        for kept in ["live", "damaged", "empty"] {
            assert!(dir.join(kept).is_dir(), "{kept}");
        }
        assert!(archive_leftovers(&dir, &known, &clock).unwrap().is_empty());
    }
}

//! Default locations whose pipeline no longer exists: what a crash in the middle of a DROP, or of a
//! CREATE, leaves behind. They go where DROP puts them, so that their name can be used again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::format::Metadata;
use super::local::archive_root;
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
        archived.push(set_aside(&entry.path(), clock)?);
    }
    Ok(archived)
}

/// Moves a checkpoint's folder to the archive beside it; answers where it went.
pub fn set_aside(folder: &Path, clock: &ClockRef) -> Result<PathBuf> {
    let to = archive_root(folder).join(archive_label(clock));
    let moved =
        std::fs::create_dir_all(archive_root(folder)).and_then(|()| std::fs::rename(folder, &to));
    moved.map_err(|e| Error::from(e).context(folder.display()))?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::metadata;
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

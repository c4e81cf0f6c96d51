//! Copies of checkpoints: taking one beside the running pipeline, where it may go, and whether one can be
//! used. Neither waits for a batch.
//!
//! A copy must not go where the database keeps what is live: there it would be taken for a part of it, be
//! moved aside by `REPAIR`, or go with what it is to replace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Engine;
use super::shared::PipelineShared;
use crate::checkpoint::CheckpointLocation;
use crate::checkpoint::recovery::{Backup, Depth, Survey, back_up};
use crate::error::{Error, Result, sqlstate};

/// The folder of backups below the data directory: the only one there that may be named.
const FOLDER: &str = "backups";

/// What can be gone back to in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usable {
    /// The newest batch as of which it opens.
    pub batch_id: u64,
    /// It is the one that is taken where no batch is named.
    pub is_newest: bool,
}

impl Engine {
    /// What a backup of a pipeline can be restored as of; `None`: it cannot be used.
    pub async fn usable_batch(&self, pipeline: &str, location: &str) -> Result<Option<Usable>> {
        let (_, identity) = self.place_of(pipeline)?;
        let store = CheckpointLocation::store(location, &BTreeMap::new())?;
        let survey = Survey::take(&store, &identity, None, Depth::Full).await?;
        survey.require_own()?;
        let newest = survey.restorable_batches().last().copied();
        let usable = survey.newest_usable();
        Ok(usable.map(|batch_id| Usable {
            batch_id,
            is_newest: newest == usable,
        }))
    }

    /// Where the database lies.
    pub fn data_dir(&self) -> PathBuf {
        self.inner.parts.data_dir.clone()
    }

    /// Copies the newest batch of a checkpoint to `to`, or below the data directory's `backups`.
    pub async fn back_up(&self, pipeline: &str, to: Option<&str>) -> Result<Backup> {
        let to = match to {
            Some(to) => {
                self.check_backup_target(to)?;
                to.to_owned()
            }
            None => self.default_backup(pipeline),
        };
        self.copy_checkpoint(pipeline, &to).await
    }

    /// As [`Self::back_up`], to a place that was checked.
    pub async fn copy_checkpoint(&self, pipeline: &str, to: &str) -> Result<Backup> {
        let (store, identity) = self.place_of(pipeline)?;
        let target = CheckpointLocation::store(to, &BTreeMap::new())?;
        let shared = self.pipeline(pipeline);
        let _copying = shared.as_ref().map(PipelineShared::copying);
        back_up(&store, &target, &identity).await
    }

    /// An error for a place where a backup must not go.
    pub fn check_backup_target(&self, to: &str) -> Result<()> {
        let refused = |why: &str| {
            let text = format!("backup location \"{to}\" {why}");
            let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, text);
            Err(error.hint("Choose an empty folder of its own, or a prefix in an object store."))
        };
        if to.is_empty() {
            return refused("is empty");
        }
        let place = Place::of(to);
        if let Some(file) = place.file_in_the_way() {
            return refused(&format!("cannot be a folder: \"{file}\" is a file"));
        }
        let data = Place::of(&self.data_dir().to_string_lossy());
        let own = Place::of(&self.data_dir().join(FOLDER).to_string_lossy());
        if place.is_within(&data) && (!place.is_within(&own) || place == own) {
            return refused("lies in the data directory");
        }
        for shared in self.inner.directory.pipelines.read().values() {
            let definition = self.inner.parts.definitions.pipeline(&shared.name);
            let options = definition.map(|d| d.options).unwrap_or_default();
            let location = self.checkpoint_location(&shared.name, &options)?;
            if place.is_within(&Place::of(&location)) {
                return refused(&format!(
                    "lies in the checkpoint of pipeline \"{}\"",
                    shared.name
                ));
            }
        }
        Ok(())
    }

    fn default_backup(&self, pipeline: &str) -> String {
        let parts = &self.inner.parts;
        let label = crate::checkpoint::archive_label(&parts.clock);
        let folder = parts
            .data_dir
            .join(FOLDER)
            .join(super::file_names::file_name(pipeline));
        folder.join(label).to_string_lossy().into_owned()
    }
}

/// Where something lies, in a form in which places can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// An URL of an object store, without a slash at its end.
    Remote(String),
    /// A path without links and dots, as far as it exists.
    Local(PathBuf),
}

impl Place {
    fn of(location: &str) -> Self {
        let path = location.strip_prefix("file://").unwrap_or(location);
        match path.contains("://") {
            true => Self::Remote(path.trim_end_matches('/').to_owned()),
            false => Self::Local(resolved(Path::new(path))),
        }
    }

    fn is_within(&self, outer: &Self) -> bool {
        match (self, outer) {
            (Self::Local(path), Self::Local(outer)) => path.starts_with(outer),
            (Self::Remote(url), Self::Remote(outer)) => {
                let rest = url.strip_prefix(outer.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            _ => false,
        }
    }

    /// A file where a folder would have to be.
    fn file_in_the_way(&self) -> Option<String> {
        let Self::Local(path) = self else {
            return None;
        };
        let mut folders = path.ancestors();
        let file = folders.find(|path| path.exists()).filter(|p| p.is_file());
        file.map(|file| file.display().to_string())
    }
}

/// The path by the folders that there are: links are followed, `..` leads out of what they lead to.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for known in absolute.ancestors() {
        if let Ok(real) = known.canonicalize() {
            let rest = absolute.strip_prefix(known).unwrap_or(Path::new(""));
            return lexical(&real.join(rest));
        }
    }
    lexical(&absolute)
}

/// Without `..`: of folders that do not exist there are no links.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_compared_whatever_they_are_called() {
        let temp = tempfile::tempdir().expect("a folder");
        let real = temp.path().join("real");
        std::fs::create_dir(&real).expect("a folder");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let place = |path: &Path| Place::of(&path.to_string_lossy());
        let outer = place(&real);
        assert!(place(&link.join("a/b")).is_within(&outer));
        assert!(place(&temp.path().join("x/../real/a")).is_within(&outer));
        assert!(!place(&link.join("../other")).is_within(&outer));
        assert!(!place(&temp.path().join("really")).is_within(&outer));
        std::fs::write(real.join("file"), "x").expect("written");
        assert!(place(&real.join("file/below")).file_in_the_way().is_some());
        assert!(place(&real.join("folder")).file_in_the_way().is_none());
        let url = |text: &str| Place::of(text);
        assert!(url("s3://b/a/c").is_within(&url("s3://b/a/")));
        assert!(!url("s3://b/ab").is_within(&url("s3://b/a")));
    }
}

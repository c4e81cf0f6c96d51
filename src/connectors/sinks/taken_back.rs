//! Taking deliveries back: files of batches that are no more move beside the sink's folder.
//!
//! ```text
//! <location>/<file>  ──►  <location>.archive/<label>/<file>
//! ```
//!
//! As with checkpoints nothing is deleted. In an object store a file is copied and then removed there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};

use super::files::{blocking, could_not_write};
use crate::connectors::files::location::Location;
use crate::error::Result;

/// Names of the files right below a location; none where the folder is not there.
pub(super) async fn names(location: &Location) -> Result<Vec<String>> {
    match location {
        Location::Local { root, .. } => {
            let root = root.clone();
            blocking(move || names_in(&root)).await
        }
        Location::Store {
            store, prefix, url, ..
        } => {
            let listed = store.list_with_delimiter(Some(prefix)).await;
            let listed = listed.map_err(|e| could_not_write(url, &e))?;
            let names = listed.objects.iter();
            let names = names.filter_map(|meta| Some(meta.location.filename()?.to_owned()));
            Ok(names.collect())
        }
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let failed = |e: &io::Error| could_not_write(&folder.display().to_string(), e);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(&e)),
    };
    entries
        .map(|entry| {
            let entry = entry.map_err(|e| failed(&e))?;
            Ok(entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}

/// Moves files in their order; says where they are.
pub(super) async fn move_aside(
    location: &Location,
    names: Vec<String>,
    label: &str,
) -> Result<String> {
    match location {
        Location::Local { root, .. } => {
            let (root, archive) = (root.clone(), archive_of(root, label));
            let shown = archive.display().to_string();
            blocking(move || rename_all(&root, &archive, &names)).await?;
            Ok(shown)
        }
        Location::Store {
            store, prefix, url, ..
        } => {
            let archive = ObjectPath::from(format!("{prefix}.archive/{label}"));
            let moved = names.into_iter().map(Ok::<_, object_store::Error>);
            let moved = futures::stream::iter(moved).try_for_each(|name| {
                let from = prefix.clone().join(name.as_str());
                let to = archive.clone().join(name.as_str());
                async move {
                    store.copy(&from, &to).await?;
                    store.delete(&from).await
                }
            });
            moved.await.map_err(|e| could_not_write(url, &e))?;
            Ok(format!("{}.archive/{label}", url.trim_end_matches('/')))
        }
    }
}

/// Removes a file that was written to try the location.
pub(super) async fn remove(location: &Location, name: &str) -> Result<()> {
    match location {
        Location::Local { root, .. } => {
            let path = root.join(name);
            let shown = path.display().to_string();
            let removed = tokio::fs::remove_file(path).await;
            removed.map_err(|e| could_not_write(&shown, &e))
        }
        Location::Store {
            store, prefix, url, ..
        } => {
            let removed = store.delete(&prefix.clone().join(name)).await;
            removed.map_err(|e| could_not_write(url, &e))
        }
    }
}

fn archive_of(root: &Path, label: &str) -> PathBuf {
    // Components, so that a `/` at the end does not put the archive into the folder.
    let mut archive = root.components().as_path().as_os_str().to_owned();
    archive.push(".archive");
    PathBuf::from(archive).join(label)
}

fn rename_all(root: &Path, archive: &Path, names: &[String]) -> Result<()> {
    let failed = |path: &Path, e: &io::Error| could_not_write(&path.display().to_string(), e);
    fs::create_dir_all(archive).map_err(|e| failed(archive, &e))?;
    for name in names {
        let from = root.join(name);
        match fs::rename(&from, archive.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&from, &e)),
            _ => {}
        }
    }
    for folder in [archive, root] {
        fs::File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|e| failed(folder, &e))?;
    }
    Ok(())
}

//! Blobs as files of a folder.
//!
//! A write goes to a temporary name, is synced, gets its name by a rename, and then the folder is
//! synced: after a crash it is whole or absent. Temporary files of a crash are removed when the
//! folder is opened. The version of a file is its checksum and length: the only conditional update
//! is the lease's, whose content differs each time and which an OS lock guards besides.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::blob::{
    Blob, BlobInfo, BlobStore, BlobVersion, Follows, Judged, OsLock, PutOutcome, judged, not_a_blob,
};
use super::large_file::write_synced;
use crate::crash_point::crash_point;
use crate::error::{Error, Result, sqlstate};

const TEMPORARY_SUFFIX: &str = ".tmp";
const LOCK_FILE: &str = "lease.lock";

/// Blobs in a folder of a local disk.
#[derive(Debug, Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    next_temporary: AtomicU64,
    /// Folders that exist durably, open for syncing.
    folders: Mutex<HashMap<PathBuf, Arc<File>>>,
    /// Shared by all work on files until it is done: it goes on when nobody waits for it any more.
    at_work: Arc<RwLock<()>>,
}

/// What a write meets at its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Replace,
    Keep,
}

impl LocalStore {
    /// The store in `root`, which is created by the first write.
    pub fn new(root: &Path) -> Self {
        Self {
            inner: Arc::new(Inner {
                root: root.to_owned(),
                next_temporary: AtomicU64::new(0),
                folders: Mutex::new(HashMap::new()),
                at_work: Arc::default(),
            }),
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let at_work = Arc::clone(&inner.at_work).read_owned().await;
        let worked = tokio::task::spawn_blocking(move || {
            let result = work(&inner);
            drop(at_work);
            result
        });
        worked
            .await
            .map_err(|error| Error::internal(format!("file work ended abnormally: {error}")))?
    }
}

#[async_trait]
impl BlobStore for LocalStore {
    fn describe(&self) -> String {
        self.inner.root.display().to_string()
    }

    async fn put_all(&self, blobs: Vec<(String, Bytes)>) -> Result<()> {
        let prepared = futures::future::try_join_all(blobs.into_iter().map(|(path, bytes)| {
            self.blocking(move |inner| {
                let target = inner.root.join(path);
                let temporary = inner.write_temporary(&target, &bytes)?;
                Ok((temporary, target))
            })
        }))
        .await?;
        self.blocking(move |inner| {
            let mut folders: Vec<PathBuf> = Vec::new();
            for (temporary, target) in prepared {
                fs::rename(&temporary, &target).map_err(|e| file_error(&target, &e))?;
                let folder = parent_of(&target);
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
            folders.iter().try_for_each(|folder| inner.sync(folder))
        })
        .await
    }

    async fn put_after(
        &self,
        ahead: Vec<(String, Bytes)>,
        path: &str,
        bytes: Bytes,
        follows: Follows,
    ) -> Result<(Vec<PutOutcome>, Option<PutOutcome>)> {
        let targets: Vec<(PathBuf, Bytes)> = ahead
            .into_iter()
            .chain([(path.to_owned(), bytes)])
            .map(|(path, bytes)| (self.inner.root.join(path), bytes))
            .collect();
        // One change of threads for all of it: for small files that costs more than the disk.
        self.blocking(move |inner| inner.put_after(&targets, follows))
            .await
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        let target = self.inner.root.join(path);
        self.blocking(move |inner| {
            let outcome = inner.put_name(&target, &bytes, Existing::Keep)?;
            if outcome != PutOutcome::Lost {
                inner.sync(&parent_of(&target))?;
            }
            Ok(outcome)
        })
        .await
    }

    async fn put_if_match(
        &self,
        path: &str,
        bytes: Bytes,
        version: &BlobVersion,
    ) -> Result<PutOutcome> {
        let (path, version) = (path.to_owned(), version.clone());
        self.blocking(move |inner| match inner.read(&path)? {
            Some(current) if current.version == version => {
                let target = inner.root.join(&path);
                let outcome = inner.put_name(&target, &bytes, Existing::Replace)?;
                inner.sync(&parent_of(&target))?;
                Ok(outcome)
            }
            _ => Ok(PutOutcome::Lost),
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<Option<Blob>> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.read(&path)).await
    }

    async fn get_each(&self, paths: Vec<String>) -> Result<Vec<Judged>> {
        // One change of threads for all of them: for small files that costs more than the disk.
        let judge = |inner: &Inner, path: &String| match inner.read(path) {
            Ok(blob) => Ok(Ok(blob.map(|blob| blob.bytes))),
            Err(error) => judged(error),
        };
        self.blocking(move |inner| paths.iter().map(|path| judge(inner, path)).collect())
            .await
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.read_range(&path, range))
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobInfo>> {
        let prefix = prefix.to_owned();
        self.blocking(move |inner| {
            let mut found = Vec::new();
            inner.walk(&inner.root.join(&prefix), &mut found)?;
            found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            Ok(found)
        })
        .await
    }

    async fn delete(&self, paths: &[String]) -> Result<()> {
        let paths = paths.to_vec();
        self.blocking(move |inner| {
            for path in paths {
                let path = inner.root.join(path);
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        return Err(file_error(&path, &e));
                    }
                    // Not synced: a deletion that a crash undoes is made again.
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    async fn archive(&self, paths: &[String], label: &str) -> Result<()> {
        let (paths, label) = (paths.to_vec(), label.to_owned());
        self.blocking(move |inner| inner.archive(&paths, &label))
            .await
    }

    async fn settle(&self) {
        drop(self.inner.at_work.write().await);
    }

    async fn lock(&self) -> Result<OsLock> {
        self.blocking(|inner| {
            inner.folder(&inner.root)?;
            inner.remove_temporaries(&inner.root)?;
            let path = inner.root.join(LOCK_FILE);
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|e| file_error(&path, &e))?;
            match file.try_lock() {
                Ok(()) => Ok(OsLock::Held(file)),
                Err(fs::TryLockError::WouldBlock) => Ok(OsLock::Busy),
                Err(fs::TryLockError::Error(e)) => Err(file_error(&path, &e)),
            }
        })
        .await
    }
}

/// Does something with each, at the same time: what waits for the disk waits once.
fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = items.split_first() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = others
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let mut results = vec![work(first)];
        for thread in started {
            match thread.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}

impl Inner {
    /// Writes whole content under its name; the name is durable once the folder is synced.
    fn put_name(&self, target: &Path, bytes: &[u8], existing: Existing) -> Result<PutOutcome> {
        let temporary = self.write_temporary(target, bytes)?;
        Ok(if self.rename(&temporary, target, existing)? {
            PutOutcome::Written(version_of(bytes))
        } else {
            PutOutcome::Lost
        })
    }

    /// All but the last get their names before the last one does. Costs two waits for the disk, one of
    /// them for what is in the files; a third where the last is to follow always.
    fn put_after(
        &self,
        targets: &[(PathBuf, Bytes)],
        follows: Follows,
    ) -> Result<(Vec<PutOutcome>, Option<PutOutcome>)> {
        let written = at_once(targets, |(target, bytes)| {
            self.write_temporary(target, bytes)
        });
        let (temporaries, failed): (Vec<_>, Vec<_>) = written.into_iter().partition(Result::is_ok);
        let temporaries: Vec<PathBuf> = temporaries.into_iter().flatten().collect();
        if let Some(Err(error)) = failed.into_iter().next() {
            temporaries.iter().for_each(|path| remove_quietly(path));
            return Err(error);
        }
        let named = self.name_after(targets, &temporaries, follows);
        if !matches!(named, Ok((_, Some(PutOutcome::Written(_))))) {
            temporaries.iter().for_each(|path| remove_quietly(path));
        }
        named
    }

    fn name_after(
        &self,
        targets: &[(PathBuf, Bytes)],
        temporaries: &[PathBuf],
        follows: Follows,
    ) -> Result<(Vec<PutOutcome>, Option<PutOutcome>)> {
        let name = |index: usize| {
            let (target, bytes) = &targets[index];
            let renamed = self.rename(&temporaries[index], target, Existing::Keep)?;
            Ok::<_, Error>(if renamed {
                PutOutcome::Written(version_of(bytes))
            } else {
                PutOutcome::Lost
            })
        };
        let last = targets.len() - 1;
        let outcomes: Vec<PutOutcome> = (0..last).map(name).collect::<Result<_>>()?;
        if outcomes.contains(&PutOutcome::Lost) {
            return Ok((outcomes, None));
        }
        let mut folders: Vec<PathBuf> = targets[..last].iter().map(|t| parent_of(&t.0)).collect();
        folders.dedup();
        if follows == Follows::Always {
            let synced = at_once(&folders, |folder| self.sync(folder));
            synced.into_iter().collect::<Result<()>>()?;
            folders.clear();
        }
        crash_point("after_state");
        let outcome = name(last)?;
        folders.push(parent_of(&targets[last].0));
        let synced = at_once(&folders, |folder| self.sync(folder));
        synced.into_iter().collect::<Result<()>>()?;
        Ok((outcomes, Some(outcome)))
    }

    /// False if the target exists and is to be kept.
    fn rename(&self, temporary: &Path, target: &Path, existing: Existing) -> Result<bool> {
        let renamed = match existing {
            Existing::Replace => fs::rename(temporary, target),
            Existing::Keep => rename_unless_exists(temporary, target),
        };
        let Err(error) = renamed else {
            return Ok(true);
        };
        remove_quietly(temporary);
        if error.kind() == io::ErrorKind::AlreadyExists {
            return Ok(false);
        }
        Err(file_error(target, &error))
    }

    /// Writes and syncs the content under a temporary name beside `target`.
    fn write_temporary(&self, target: &Path, bytes: &[u8]) -> Result<PathBuf> {
        let folder = parent_of(target);
        self.folder(&folder)?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{name}.{number}{TEMPORARY_SUFFIX}"));
        if let Err(error) = write_synced(&temporary, bytes) {
            remove_quietly(&temporary);
            // Someone may have moved the whole location away.
            self.folders.lock().remove(&folder);
            return Err(file_error(target, &error));
        }
        Ok(temporary)
    }

    fn sync(&self, folder: &Path) -> Result<()> {
        self.folder(folder)?
            .sync_all()
            .map_err(|e| file_error(folder, &e))
    }

    /// An open folder, created durably with its parents if it is missing.
    fn folder(&self, path: &Path) -> Result<Arc<File>> {
        if let Some(folder) = self.folders.lock().get(path) {
            return Ok(Arc::clone(folder));
        }
        if !path.is_dir() {
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                let parent_folder = self.folder(parent)?;
                match fs::create_dir(path) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(file_error(path, &e));
                    }
                    _ => parent_folder
                        .sync_all()
                        .map_err(|e| file_error(parent, &e))?,
                }
            } else {
                fs::create_dir_all(path).map_err(|e| file_error(path, &e))?;
            }
        }
        let folder = Arc::new(File::open(path).map_err(|e| file_error(path, &e))?);
        self.folders
            .lock()
            .insert(path.to_owned(), Arc::clone(&folder));
        Ok(folder)
    }

    fn read(&self, path: &str) -> Result<Option<Blob>> {
        let path = self.root.join(path);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(Blob {
                version: version_of(&bytes),
                bytes: bytes.into(),
            })),
            Err(e) if is_missing(&e) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                Err(not_a_blob(&path.display().to_string(), "a folder"))
            }
            Err(e) => Err(file_error(&path, &e)),
        }
    }

    fn read_range(&self, path: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let path = self.root.join(path);
        let read = File::open(&path).and_then(|mut file| {
            file.seek(io::SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start))
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(e) if is_missing(&e) => Ok(None),
            Err(e) => Err(file_error(&path, &e)),
        }
    }

    fn walk(&self, folder: &Path, found: &mut Vec<BlobInfo>) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if is_missing(&e) => return Ok(()),
            Err(e) => return Err(file_error(folder, &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| file_error(folder, &e))?;
            let path = entry.path();
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Deleted since it was listed.
                Err(e) if is_missing(&e) => continue,
                Err(e) => return Err(file_error(&path, &e)),
            };
            let Some(relative) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) else {
                continue;
            };
            if metadata.is_dir() && is_folder_of_blobs(relative) {
                self.walk(&path, found)?;
                continue;
            }
            if relative.ends_with(TEMPORARY_SUFFIX) || relative == LOCK_FILE {
                continue;
            }
            found.push(BlobInfo {
                path: relative.to_owned(),
                bytes: metadata.len(),
            });
        }
        Ok(())
    }

    fn archive(&self, paths: &[String], label: &str) -> Result<()> {
        let archive_root = archive_root(&self.root).join(label);
        let mut folders = vec![self.root.clone()];
        for path in paths {
            let (from, to) = (self.root.join(path), archive_root.join(path));
            self.folder(&parent_of(&to))?;
            match fs::rename(&from, &to) {
                Err(e) if is_missing(&e) => continue,
                Err(e) => return Err(file_error(&from, &e)),
                Ok(()) => {}
            }
            for folder in [parent_of(&from), parent_of(&to)] {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
        folders.iter().try_for_each(|folder| self.sync(folder))
    }

    fn remove_temporaries(&self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).map_err(|e| file_error(folder, &e))? {
            let path = entry.map_err(|e| file_error(folder, &e))?.path();
            if path.is_dir() {
                self.remove_temporaries(&path)?;
            } else if path.to_string_lossy().ends_with(TEMPORARY_SUFFIX) {
                tracing::info!(file = %path.display(), "removed what a crash left half written");
                remove_quietly(&path);
            }
        }
        Ok(())
    }
}

/// Blobs lie in such folders. Any other folder stands in the place of a blob, or is nobody's: it is
/// listed like a blob, so that it can be told and moved aside whole.
fn is_folder_of_blobs(path: &str) -> bool {
    match path.split_once('/') {
        None => matches!(path, "offsets" | "commits" | "state" | "sources"),
        Some(("sources", source)) => !source.contains('/'),
        Some(_) => false,
    }
}

/// Room on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What may still be written.
    pub free_bytes: u64,
    /// The whole disk.
    pub total_bytes: u64,
}

/// The room on the disk that holds a folder; `None` where there is no such folder.
pub fn room_at(folder: &str) -> Option<Room> {
    let path = std::ffi::CString::new(folder).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a valid C string and the result is large enough; both live over the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it has filled the result.
    let found = unsafe { found.assume_init() };
    Some(Room {
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Where what is archived of a folder goes.
pub(super) fn archive_root(root: &Path) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    path.push(".archive");
    PathBuf::from(path)
}

fn version_of(bytes: &[u8]) -> BlobVersion {
    BlobVersion(format!("{:08x}-{}", crc32c::crc32c(bytes), bytes.len()))
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent()
        .map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn remove_quietly(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "could not remove a temporary file");
    }
}

/// Renames in one step unless the target exists; where the file system cannot, by a hard link.
fn rename_unless_exists(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let from_c = std::ffi::CString::new(from.as_os_str().as_bytes())?;
        let to_c = std::ffi::CString::new(to.as_os_str().as_bytes())?;
        // SAFETY: both are valid C strings that live over the call.
        let result = unsafe {
            libc::renameat2(
                libc::AT_FDCWD,
                from_c.as_ptr(),
                libc::AT_FDCWD,
                to_c.as_ptr(),
                libc::RENAME_NOREPLACE,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
            return Err(error);
        }
    }
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

fn file_error(path: &Path, error: &io::Error) -> Error {
    let state = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => sqlstate::DISK_FULL,
        _ => sqlstate::IO_ERROR,
    };
    Error::transient(
        state,
        format!("could not access \"{}\": {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_waited_for_by_settling() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path());
        let (go, wait) = std::sync::mpsc::channel();
        let work = store.blocking(move |inner| {
            wait.recv().ok();
            fs::write(inner.root.join("late"), b"x").map_err(|e| file_error(&inner.root, &e))
        });
        let given_up = tokio::time::timeout(Duration::from_millis(10), work).await;
        assert!(given_up.is_err());
        assert!(!dir.path().join("late").exists());
        go.send(()).unwrap();
        store.settle().await;
        assert!(dir.path().join("late").exists());
    }
}

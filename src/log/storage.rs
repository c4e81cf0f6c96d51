//! Files under the log, behind a trait small enough that a simulation can tear and fail them.
//!
//! Deliberately absent: paths, directories of more than one level, append handles. The log knows
//! where each byte goes and says so at every write.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the log.
pub trait LogFile: Send + Sync + Debug {
    /// Fills `buffer` from `offset`; fewer bytes in the file are an `UnexpectedEof`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, growing the file.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns once all that was written is on disk.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn length(&self) -> io::Result<u64>;
}

/// The folder of the log.
pub trait LogStorage: Send + Sync + Debug {
    /// Names of the files there.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Creates a file, empty even if it was there, and makes its name durable.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The folder on a local disk.
#[derive(Debug)]
pub struct LocalStorage {
    dir: PathBuf,
}

impl LocalStorage {
    /// The storage in `dir`, which is created when missing.
    pub fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl LogStorage for LocalStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Some(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.dir.join(name))?;
        Ok(Arc::new(LocalFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.dir.join(name))?;
        self.sync_dir()?;
        Ok(Arc::new(LocalFile(file)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))?;
        self.sync_dir()
    }
}

#[derive(Debug)]
struct LocalFile(File);

impl LogFile for LocalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

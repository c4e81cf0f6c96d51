//! `LOCK`: one process at a time has a data directory open.
//!
//! The operating system holds the lock and drops it with the process, however that ends; the
//! file's text only says who it is.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::error::{Error, Result, sqlstate};

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock of a data directory, or says who has it (55006).
    pub fn take(dir: &Path) -> Result<Self> {
        let at = |e: std::io::Error| {
            Error::transient(
                sqlstate::IO_ERROR,
                format!("could not lock {}: {e}", dir.display()),
            )
        };
        std::fs::create_dir_all(dir).map_err(at)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("LOCK"))
            .map_err(at)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        file.set_len(0).map_err(at)?;
        file.rewind().map_err(at)?;
        writeln!(file, "{}", std::process::id()).map_err(at)?;
        Ok(Self { _file: file })
    }
}

fn held(dir: &Path, file: &mut File) -> Error {
    let mut holder = String::new();
    let who = match file.read_to_string(&mut holder) {
        Ok(_) if !holder.trim().is_empty() => format!("process {}", holder.trim()),
        _ => "another process".to_owned(),
    };
    Error::new(
        sqlstate::OBJECT_IN_USE,
        format!("data directory {} is in use by {who}", dir.display()),
    )
    .hint("Stop that server first, or choose another folder with --data.")
}

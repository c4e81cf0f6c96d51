//! `catalog.json`: the catalog's only file.
//!
//! ```text
//! {"format":1,"crc32c":<number>,"catalog":{"contents":{…},"pending":null|{"marker":…,"contents":{…}}}}
//! ```
//!
//! The checksum covers the bytes of the `catalog` value as they stand in the file. The whole file is
//! rewritten at every commit (write, sync, rename, sync the folder): definitions are few, and one
//! file that is whole or absent needs no log of its own.

use std::fs::{self, File};
use std::io::{ErrorKind as IoErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::snapshot::CatalogSnapshot;
use crate::error::{Error, Result, sqlstate};

const FORMAT: u32 = 1;
const FILE_NAME: &str = "catalog.json";
/// Folders beside `catalog/` that hold data which only the catalog can explain.
const DESCRIBED_FOLDERS: [&str; 3] = ["log", "pipelines", "checkpoints"];

/// What the file holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct FileBody {
    pub contents: CatalogSnapshot,
    pub pending: Option<Pending>,
}

/// A commit that the log decides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub marker: String,
    pub contents: CatalogSnapshot,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    format: u32,
    crc32c: u32,
    #[serde(borrow)]
    catalog: &'a RawValue,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// The file in its folder.
#[derive(Debug)]
pub(super) struct CatalogFile {
    dir: PathBuf,
}

impl CatalogFile {
    /// Reads the file, or creates it when the whole data directory is new.
    pub fn open(dir: &Path) -> Result<(Self, FileBody)> {
        let file = Self {
            dir: dir.to_owned(),
        };
        match fs::read(file.path()) {
            Ok(bytes) => {
                let body = decode(&bytes).map_err(|e| e.context(file.path().display()))?;
                Ok((file, body))
            }
            Err(error) if error.kind() == IoErrorKind::NotFound => {
                refuse_orphaned_data(dir)?;
                fs::create_dir_all(dir)?;
                let body = FileBody::default();
                file.write(&body)?;
                Ok((file, body))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// Replaces the file; durable when it returns, and the old one stands until then.
    pub fn write(&self, body: &FileBody) -> Result<()> {
        let bytes = encode(body)?;
        // What passwords are checked against is in it.
        write_whole(&self.dir, FILE_NAME, &bytes, 0o600)
    }
}

fn encode(body: &FileBody) -> Result<Vec<u8>> {
    let broken = |_| Error::internal("the catalog cannot be written as JSON");
    let catalog = serde_json::value::to_raw_value(body).map_err(broken)?;
    let mut bytes = serde_json::to_vec(&Envelope {
        format: FORMAT,
        crc32c: crc32c::crc32c(catalog.get().as_bytes()),
        catalog: &catalog,
    })
    .map_err(broken)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<FileBody> {
    let damaged = |what: &str| {
        Error::damaged(format!("the catalog file {what}")).hint(
            "Nothing was changed. Put back the file from a backup of the data directory, then start again.",
        )
    };
    let format: FormatOnly =
        serde_json::from_slice(bytes).map_err(|_| damaged("cannot be read as JSON"))?;
    if format.format != FORMAT {
        return Err(damaged(&format!(
            "has format {}, and this version reads format {FORMAT}",
            format.format
        )));
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(bytes).map_err(|_| damaged("is incomplete"))?;
    if crc32c::crc32c(envelope.catalog.get().as_bytes()) != envelope.crc32c {
        return Err(damaged("does not match its checksum"));
    }
    serde_json::from_str(envelope.catalog.get())
        .map_err(|_| damaged("holds a definition that this version does not know"))
}

fn refuse_orphaned_data(dir: &Path) -> Result<()> {
    let Some(data) = dir.parent() else {
        return Ok(());
    };
    for folder in DESCRIBED_FOLDERS {
        let holds_files = match fs::read_dir(data.join(folder)) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == IoErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if holds_files {
            return Err(Error::damaged(format!(
                "{} is missing, yet {} holds data",
                dir.join(FILE_NAME).display(),
                data.join(folder).display()
            ))
            .hint("Nothing was changed. Put back the file from a backup of the data directory, or start in an empty folder."));
        }
    }
    Ok(())
}

/// Writes a file whole or not at all: a temporary file, synced, renamed over, the folder synced.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let temporary = dir.join(format!("{name}.new"));
    let at = |error: std::io::Error| {
        let code = match error.kind() {
            IoErrorKind::StorageFull => sqlstate::DISK_FULL,
            _ => sqlstate::IO_ERROR,
        };
        Error::transient(
            code,
            format!("could not write {}: {error}", dir.join(name).display()),
        )
    };
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)
        .map_err(at)?;
    file.write_all(bytes).map_err(at)?;
    file.sync_all().map_err(at)?;
    fs::rename(&temporary, dir.join(name)).map_err(at)?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(at)
}

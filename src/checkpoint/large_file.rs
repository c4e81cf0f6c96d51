//! Writing a file durably, a large one past the kernel's page cache.
//!
//! A run is written once, synced at once, and mostly read again by nobody before it is merged. Copying
//! it into fresh pages of the cache took a third of all CPU where much state is written, and pushed out
//! what is read; a write from aligned memory takes a tenth of that. Where the file system does not take
//! such writes, the file is written the usual way. Deliberately absent: reading past the cache, since the
//! kernel reads ahead.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Smaller files are written the usual way.
const DIRECT_BYTES_MIN: usize = 1 << 20;
/// Memory, offset and length of a direct write are multiples of this: a page, and no disk asks more.
const ALIGNMENT: usize = 4096;
/// Bytes of one write.
const CHUNK_BYTES: usize = 1 << 20;

/// Creates a file of these bytes, or replaces its content, and syncs it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() >= DIRECT_BYTES_MIN {
        match write_direct(path, bytes) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            written => return written,
        }
    }
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Errors: `InvalidInput` where the file system takes no direct writes.
fn write_direct(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    let mut memory = vec![0; CHUNK_BYTES + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let aligned = &mut memory[start..start + CHUNK_BYTES];
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let length = chunk.len().next_multiple_of(ALIGNMENT);
        aligned[..chunk.len()].copy_from_slice(chunk);
        aligned[chunk.len()..length].fill(0);
        file.write_all(&aligned[..length])?;
    }
    file.set_len(bytes.len() as u64)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_sizes_come_out_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for length in [
            0,
            1,
            DIRECT_BYTES_MIN - 1,
            DIRECT_BYTES_MIN,
            DIRECT_BYTES_MIN + 1,
            CHUNK_BYTES + ALIGNMENT,
            3 * CHUNK_BYTES + 12_345,
            7,
        ] {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            write_synced(&path, &bytes).unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes, "{length} bytes");
        }
        assert!(write_synced(&dir.path().join("none/file"), &[0; 2 << 20]).is_err());
    }
}

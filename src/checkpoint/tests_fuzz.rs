//! Every parser of a checkpoint's files on files that are nearly right: none panics, none asks for much more
//! memory than the file is large, and none takes what is damaged for whole.
//!
//! The files are those that the tree keeps of version 1, mutated by a seed. Half of them get their checksums made
//! right again, so that what lies behind the checksum is reached too.

use std::path::{Path, PathBuf};

use super::format::{self, CommitFile, Lease, Manifest, Metadata, OffsetFile};
use super::recovery::{Depth, Hand, Held, Survey, diagnose, plan, repair};
use super::simulation::identity;
use super::*;
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::fault::{FaultRates, FaultStore};
use crate::clock::ManualClock;
use crate::connectors::files::plan::LogEntry;
use crate::counting_allocator::allocated_by;
use crate::error::ErrorKind;
use crate::state::Run;
use crate::state::run_file::RunIndex;

/// Bytes that a parser may ask for, as a multiple of the file's.
const ALLOCATED_FACTOR: usize = 400;
/// And whatever the file's size.
const ALLOCATED_BYTES: usize = 64 << 10;

struct Random(u64);

impl Random {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// The files of the kept checkpoint, by their paths below it.
fn kept_files() -> Vec<(String, Vec<u8>)> {
    fn walk(folder: &Path, root: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                walk(&path, root, files);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.push((name.to_owned(), std::fs::read(&path).unwrap()));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-1");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files
}

/// Changes a few places: a byte, a number, a part left out, doubled or taken from another file.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = random.below(24).min(bytes.len() - at);
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            4 => {
                let from = random.below(other.len());
                let part = other[from..(from + 24).min(other.len())].to_vec();
                bytes.splice(at..at + length, part);
            }
            5 => {
                let number: &[u8] = match random.below(4) {
                    0 => b"18446744073709551615",
                    1 => b"-1",
                    2 => b"1e308",
                    _ => &[0xff, 0xff, 0xff, 0x7f],
                };
                bytes.splice(at..at + length, number.iter().copied());
            }
            _ => {
                let nested = [b'[', b'{', b'"'][random.below(3)];
                bytes.splice(at..at, vec![nested; random.below(300)]);
            }
        }
    }
}

/// The checksum of what the file holds now, where it has one at its end.
fn mend_checksum(bytes: &mut Vec<u8>) {
    if let Some(at) = bytes.windows(7).rposition(|w| w == b"crc32c:") {
        let checksum = crc32c::crc32c(&bytes[..at]);
        bytes.truncate(at);
        bytes.extend(format!("crc32c:{checksum:08x}\n").bytes());
    } else if bytes.ends_with(b"TMRN") && bytes.len() > 40 {
        // A run: index, dropped tables and footer, wherever the footer says that the index begins.
        let end = bytes.len() - 8;
        let offset = bytes[bytes.len() - 32..][..8]
            .try_into()
            .map(u64::from_le_bytes);
        let from = offset.map_or(0, |offset| offset.min(end as u64) as usize);
        let checksum = crc32c::crc32c(&bytes[from..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Gives the bytes to every parser.
fn parse_all(bytes: &[u8]) {
    Metadata::decode(bytes).ok();
    OffsetFile::decode(bytes).ok();
    Manifest::decode(bytes).ok();
    format::decode_one::<CommitFile>(bytes).ok();
    format::decode_one::<Lease>(bytes).ok();
    format::decode_one::<LogEntry>(bytes).ok();
    Run::decode(bytes).ok();
    let file_bytes = bytes.len() as u64;
    if let Ok(Ok(index)) = RunIndex::read_tail(bytes, file_bytes) {
        let mut first = 0;
        while first < index.blocks() {
            let (blocks, range) = index.stretch(first, 1 << 16);
            first = blocks.end;
            if let Some(stretch) = bytes.get(range.start as usize..range.end as usize) {
                index.decode_blocks(blocks, stretch, range.start).ok();
            }
        }
    }
}

#[test]
fn no_parser_panics_or_asks_for_more_memory_than_its_file_can_need() {
    let files = kept_files();
    assert!(files.len() > 20, "{}", files.len());
    let usual = 0..4_000;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let mut random = Random::of(seed);
        let (_, file) = &files[random.below(files.len())];
        let (_, other) = &files[random.below(files.len())];
        let mut bytes = file.clone();
        mutate(&mut random, &mut bytes, other);
        if random.below(2) == 0 {
            mend_checksum(&mut bytes);
        }
        let ((), allocated) = allocated_by(|| parse_all(&bytes));
        let allowed = ALLOCATED_BYTES + ALLOCATED_FACTOR * bytes.len();
        assert!(
            allocated <= allowed,
            "{allocated} for {} bytes",
            bytes.len()
        );
    }
}

/// A whole location with some files mutated: it is told, mended as far as it goes, and opened or refused with a
/// reason; it is never taken for a new one. What `REPAIR` is named for, it does: said again it has no more to do.
#[tokio::test]
async fn a_damaged_location_is_told_mended_and_opened_or_refused() {
    let files = kept_files();
    let usual = 0..300;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let mut random = Random::of(seed);
        let mut contents: std::collections::BTreeMap<String, bytes::Bytes> = files
            .iter()
            .filter(|(path, _)| path != "lease")
            .map(|(path, bytes)| (path.clone(), bytes.clone().into()))
            .collect();
        for _ in 0..1 + random.below(5) {
            let (path, bytes) = &files[random.below(files.len())];
            if random.below(4) == 0 {
                contents.remove(path);
                continue;
            }
            let mut bytes = bytes.clone();
            let (_, other) = &files[random.below(files.len())];
            mutate(&mut random, &mut bytes, other);
            if random.below(3) == 0 {
                mend_checksum(&mut bytes);
            }
            contents.insert(path.clone(), bytes.into());
        }
        let store = std::sync::Arc::new(FaultStore::new(seed, FaultRates::default()));
        store.set_contents(contents);
        look_mend_and_open(store, seed).await;
    }
}

async fn look_mend_and_open(store: std::sync::Arc<FaultStore>, seed: u64) {
    const KNOWN: Option<u64> = Some(5);
    let clock = ManualClock::at(1_000_000);
    let blobs: std::sync::Arc<dyn BlobStore> = store;
    let hand = Hand {
        epoch: 9,
        now_us: 5,
    };
    let survey = Survey::take(&blobs, &identity(), KNOWN, Depth::Full)
        .await
        .unwrap();
    diagnose(&survey, Depth::Full, 0);
    let Ok(held) = Held::acquire(std::sync::Arc::clone(&blobs), identity(), clock.clone()).await
    else {
        return;
    };
    let mended = repair(&held, KNOWN).await;
    drop(held);
    clock.advance_us(1_000_000_000);
    let expectation = Expectation {
        catalog_batch: KNOWN,
        cold_batch: None,
    };
    if mended.is_ok() {
        let survey = Survey::take(&blobs, &identity(), KNOWN, Depth::Full)
            .await
            .unwrap();
        let again = plan(&survey, hand).unwrap();
        let changes = again.iter().filter_map(|finding| finding.mend.as_ref());
        for mend in changes {
            assert!(
                mend.aside.is_empty() && mend.write.is_none(),
                "seed {seed}: {again:?}"
            );
        }
    }
    let opened = CheckpointLocation::open_store(blobs, identity(), expectation, clock).await;
    match opened {
        Ok((_, Resume::Fresh)) => panic!("seed {seed}: a damaged checkpoint is no new one"),
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Damaged, "seed {seed}: {error}");
            assert!(error.hint_text().is_some(), "seed {seed}: {error}");
        }
    }
}

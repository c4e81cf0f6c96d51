//! A checkpoint of very many batches is looked at in little time.

use std::path::Path;

use super::*;
use crate::checkpoint::format::{Manifest, ManifestHead, RunInfo, StateReference};
use crate::checkpoint::local::LocalStore;

const MANY: u64 = 10_000;
/// Runs that the state of a batch consists of.
const RUNS: u64 = 10;

fn write(folder: &Path, path: &str, bytes: &[u8]) {
    std::fs::write(folder.join(path), bytes).unwrap();
}

fn many_batches(folder: &Path) {
    for part in ["offsets", "commits", "state"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
    }
    write(
        folder,
        "metadata",
        &Metadata::of(&identity(), 5, 0).encode(),
    );
    let run = |n: u64| RunInfo {
        file: format!("{n}.run"),
        first_batch_id: n,
        last_batch_id: n,
        bytes: 8,
        entries: 1,
        crc32c: crc32c::crc32c(&n.to_le_bytes()),
        tombstones_dropped_through: None,
    };
    for n in 0..MANY {
        let (pipeline_id, epoch) = (identity().pipeline_id, 1);
        let offsets = OffsetFile {
            pipeline_id,
            epoch,
            entry: planned(n),
        };
        write(folder, &format!("offsets/{n}"), &offsets.encode());
        write(folder, &format!("state/{n}.run"), &n.to_le_bytes());
        let manifest = Manifest {
            head: ManifestHead {
                pipeline_id,
                pipeline: "p".into(),
                fingerprint: String::new(),
                epoch,
                batch_id: n,
            },
            runs: (n.saturating_sub(RUNS - 1)..=n).map(run).collect(),
        };
        let manifest = manifest.encode();
        write(folder, &format!("state/{n}.manifest"), &manifest);
        let commit = CommitFile {
            pipeline_id,
            epoch,
            first_batch_id: 0,
            state: Some(StateReference {
                batch_id: n,
                manifest_batch_id: Some(n),
                manifest_crc32c: crc32c::crc32c(&manifest),
            }),
            entry: committed(n),
        };
        write(
            folder,
            &format!("commits/{n}"),
            &format::encode_one(&commit),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_batches_are_looked_at_at_once() {
    let folder = tempfile::tempdir().unwrap();
    many_batches(folder.path());
    let store: Arc<dyn BlobStore> = Arc::new(LocalStore::new(folder.path()));
    let clock = crate::clock::SystemClock::shared();
    let begun_us = clock.now_us();
    let identity = identity();
    let survey = Survey::take(&store, &identity, Some(MANY - 1), Depth::Quick);
    let survey = survey.await.unwrap();
    let surveyed_us = clock.now_us() - begun_us;
    let parts = diagnose(&survey, Depth::Quick, 0);
    let took_us = clock.now_us() - begun_us;
    println!("{MANY} batches: surveyed in {surveyed_us} µs, diagnosed after {took_us} µs");
    for part in &parts {
        assert!(part.repair.is_none(), "{part:?}");
        assert_ne!(part.status, "damaged", "{part:?}");
    }
    // Unoptimized code on a busy machine; what `make bench` builds takes a fraction.
    assert!(took_us < 20_000_000, "{took_us}");
}

//! A checkpoint of format version 1 as it was written when the version was made, kept in the tree: every
//! later build reads it, tells it as sound and mends it.
//!
//! Where the version that this build writes has none, its test writes one into a
//! folder of its own; what is there is never written again.

use std::path::{Path, PathBuf};

use super::*;
use crate::checkpoint::format::FORMAT_VERSION;
use crate::checkpoint::local::LocalStore;

fn folder(version: u32) -> PathBuf {
    let name = format!("tests/data/checkpoint-{version}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => std::fs::copy(&path, &target).map(drop).unwrap(),
        }
    }
}

async fn open_at(store: &Arc<dyn BlobStore>, known: Option<u64>) -> (Checkpoint, Resume) {
    let expectation = Expectation {
        catalog_batch: known,
        cold_batch: None,
    };
    let opened =
        CheckpointLocation::open_store(Arc::clone(store), identity(), expectation, clock());
    opened.await.unwrap()
}

#[tokio::test]
async fn a_checkpoint_of_the_version_that_is_written_is_kept() {
    let folder = folder(FORMAT_VERSION);
    if !folder.exists() {
        write_what_is_kept(&folder).await;
        panic!("{} was written: it belongs into the tree", folder.display());
    }
}

async fn write_what_is_kept(folder: &Path) {
    let store: Arc<dyn BlobStore> = Arc::new(LocalStore::new(folder));
    let (checkpoint, _) = open_at(&store, None).await;
    let log = checkpoint.source_log("s");
    for batch_id in 0..BATCHES {
        let previous = batch_id.checked_sub(1);
        let entry = json!({ "previous": previous, "files": [] });
        log.put(batch_id, &entry).await.unwrap();
        checkpoint.write_offsets(&planned(batch_id)).await.unwrap();
        let run = run_of_keys([batch_id], Some(b"v"));
        commit_batch_as(&checkpoint, &committed(batch_id), &run)
            .await
            .unwrap();
    }
    checkpoint.write_offsets(&planned(BATCHES)).await.unwrap();
    checkpoint.close().await;
    std::fs::remove_file(folder.join("lease.lock")).unwrap();
}

/// The files were written before commits told it; nothing was closed ahead of its watermark then.
fn without_closed_until(commit: CommitEntry) -> CommitEntry {
    CommitEntry {
        closed_until: None,
        ..commit
    }
}

#[tokio::test]
async fn a_checkpoint_of_version_1_is_read_told_and_mended() {
    let temporary = tempfile::tempdir().unwrap();
    copy(&folder(1), temporary.path());
    let store: Arc<dyn BlobStore> = Arc::new(LocalStore::new(temporary.path()));
    let survey = Survey::take(&store, &identity(), Some(BATCHES - 1), Depth::Full)
        .await
        .unwrap();
    for part in diagnose(&survey, Depth::Full, 0) {
        assert!(part.repair.is_none(), "{part:?}");
        assert!(!matches!(part.status, "damaged" | "missing"), "{part:?}");
    }
    for batch_id in 0..BATCHES {
        let offsets = survey.offsets[&batch_id].whole().unwrap();
        assert_eq!(offsets.entry, planned(batch_id));
        let commit = survey.commits[&batch_id].whole().unwrap();
        assert_eq!(commit.entry, without_closed_until(committed(batch_id)));
    }
    let (checkpoint, resume) = open_at(&store, Some(BATCHES - 1)).await;
    let point = resume_point(resume);
    assert_eq!(point.replay, [planned(BATCHES)]);
    let last = point.last_commit.unwrap();
    assert_eq!(last, without_closed_until(committed(BATCHES - 1)));
    let keys = load_keys(&checkpoint, last.batch_id).await.unwrap();
    assert_eq!(keys.len() as u64, BATCHES);
    let log = checkpoint.source_log("s").load_all().await.unwrap();
    assert_eq!(log.len() as u64, BATCHES);
    checkpoint.close().await;
    // What its neighbours prove comes out as it was.
    let path = temporary.path().join("offsets/3");
    let before = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let held = Held::acquire(Arc::clone(&store), identity(), clock())
        .await
        .unwrap();
    repair(&held, Some(BATCHES - 1)).await.unwrap();
    let mended = OffsetFile::decode(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(mended.entry, OffsetFile::decode(&before).unwrap().entry);
}

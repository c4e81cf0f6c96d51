//! Tests of damage: what is found, what is made again, and which statement is named.

use std::sync::Arc;

use uuid::Uuid;

use super::blob::BlobStore;
use super::fault::{FaultRates, FaultStore};
use super::format::Metadata;
use super::simulation::{entry_of, identity};
use super::tests::{commit_batch, load_keys, open_at, resume_point, run_of_keys};
use super::*;
use crate::clock::{ClockRef, ManualClock};
use crate::error::{Error, ErrorKind, Result};

/// A checkpoint of three batches in memory, closed.
async fn three_batches() -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::new(5, FaultRates::default()));
    let (checkpoint, _) = open_faulty(&store, None).await.unwrap();
    for batch_id in 0..3 {
        commit_batch(&checkpoint, batch_id, &run_of_keys([batch_id], Some(b"v")))
            .await
            .unwrap();
    }
    store
}

async fn open_faulty(
    store: &Arc<FaultStore>,
    catalog_batch: Option<u64>,
) -> Result<(Checkpoint, Resume)> {
    let expectation = Expectation {
        catalog_batch,
        cold_batch: None,
    };
    let store: Arc<dyn BlobStore> = store.clone();
    let clock = ManualClock::at(1_000_000);
    CheckpointLocation::open_store(store, identity(), expectation, clock).await
}

/// Opens after damage; the damaged pipeline must stop with `hint` and leave every file but the
/// lease as it was.
async fn expect_stop(store: &Arc<FaultStore>, catalog_batch: Option<u64>, hint: &str) -> Error {
    let mut before = store.contents();
    let error = open_faulty(store, catalog_batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(
        error.hint_text().unwrap_or_default().contains(hint),
        "{error}"
    );
    let mut after = store.contents();
    before.remove("lease");
    after.remove("lease");
    assert_eq!(before, after, "{error}");
    error
}

#[tokio::test]
async fn damage_stops_the_pipeline_and_names_the_statement() {
    let garble = |bytes: &mut Vec<u8>| bytes[7] ^= 0x10;

    let store = three_batches().await;
    store.lose(|_| true);
    let error = expect_stop(&store, Some(2), "RESTORE CHECKPOINT OF p").await;
    assert!(store.contents().is_empty(), "{error}");
    assert_eq!(open_faulty(&store, None).await.unwrap().1, Resume::Fresh);

    let store = three_batches().await;
    store.lose(|path| path == "metadata");
    expect_stop(&store, Some(2), "REPAIR CHECKPOINT OF p").await;
    expect_stop(&store, None, "REPAIR CHECKPOINT OF p").await;

    let store = three_batches().await;
    store.tamper("metadata", garble);
    expect_stop(&store, Some(2), "REPAIR CHECKPOINT OF p").await;

    let store = three_batches().await;
    let other = Metadata {
        id: Uuid::from_u128(5),
        pipeline: "other".into(),
        format_version: 1,
        fingerprint: String::new(),
        created_at_us: 0,
        first_batch_id: 0,
    };
    store.tamper("metadata", |bytes| *bytes = other.encode());
    let error = expect_stop(&store, Some(2), "RESET CHECKPOINT OF p").await;
    assert!(error.detail_text().unwrap().contains("\"other\""));

    let store = three_batches().await;
    store.tamper("metadata", |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text
            .replace("\"format_version\":1", "\"format_version\":7")
            .into_bytes();
    });
    let error = expect_stop(&store, Some(2), "newer").await;
    let detail = error.detail_text().unwrap();
    assert!(detail.contains('7') && detail.contains('1'), "{detail}");

    let store = three_batches().await;
    store.lose(|path| path.starts_with("offsets/2") || path.starts_with("commits/2"));
    let error = expect_stop(&store, Some(2), "RESTORE CHECKPOINT OF p FROM").await;
    assert!(error.hint_text().unwrap().contains("AT BATCH 1"));

    let store = three_batches().await;
    store.tamper("offsets/2", garble);
    expect_stop(&store, Some(2), "REPAIR CHECKPOINT OF p").await;

    let store = three_batches().await;
    store.lose(|path| path.starts_with("state/"));
    expect_stop(&store, Some(2), "REBUILD STATE OF p").await;

    let store = three_batches().await;
    store.tamper("state/0.run", Vec::clear);
    let error = expect_stop(&store, Some(2), "REBUILD STATE OF p").await;
    assert!(
        error.primary().contains("state/0.run\": the file is empty"),
        "{error}"
    );
}

#[tokio::test]
async fn what_never_committed_is_planned_anew_and_a_lost_commit_replayed() {
    // The newest commit entry is lost or damaged: its batch runs again.
    for damage in [true, false] {
        let store = three_batches().await;
        if damage {
            store.tamper("commits/2", |bytes| bytes.truncate(9));
        } else {
            store.lose(|path| path == "commits/2");
        }
        let (checkpoint, resume) = open_faulty(&store, Some(2)).await.unwrap();
        let point = resume_point(resume);
        assert_eq!(point.last_commit.as_ref().unwrap().batch_id, 1);
        assert_eq!(point.replay, [entry_of(2, 2, 3)]);
        assert_eq!(load_keys(&checkpoint, 1).await.unwrap().len(), 2);
        commit_batch(&checkpoint, 2, &run_of_keys([2], Some(b"v")))
            .await
            .unwrap();
        drop(checkpoint);
        let (checkpoint, _) = open_faulty(&store, Some(2)).await.unwrap();
        assert_eq!(load_keys(&checkpoint, 2).await.unwrap().len(), 3);
    }
    // The newest offset entry is damaged and has no commit: set aside.
    let store = three_batches().await;
    let (checkpoint, _) = open_faulty(&store, Some(2)).await.unwrap();
    checkpoint.write_offsets(&entry_of(3, 3, 9)).await.unwrap();
    drop(checkpoint);
    store.tamper("offsets/3", Vec::clear);
    let (checkpoint, resume) = open_faulty(&store, Some(2)).await.unwrap();
    let point = resume_point(resume);
    assert_eq!(point.last_commit.unwrap().batch_id, 2);
    assert!(point.replay.is_empty() && point.notes[0].contains("batch 3"));
    assert!(
        store
            .contents()
            .keys()
            .any(|p| p.starts_with(".archive/") && p.ends_with("offsets/3"))
    );
    commit_batch(&checkpoint, 3, &run_of_keys([3], Some(b"v")))
        .await
        .unwrap();
    drop(checkpoint);
    // An older commit entry is missing: it goes on and says so.
    store.lose(|path| path == "commits/1");
    let (checkpoint, resume) = open_faulty(&store, Some(3)).await.unwrap();
    assert!(resume_point(resume).notes[0].contains("missing"));
    assert_eq!(checkpoint.stats().missing_batches, 1);
}

#[tokio::test]
async fn a_location_inside_another_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outer = folder.path().join("p").display().to_string();
    let clock: ClockRef = ManualClock::at(1_000_000);
    let (checkpoint, _) = open_at(&outer, &clock, None).await.unwrap();
    for inner in [format!("{outer}/state"), format!("file://{outer}/a/b")] {
        let error = open_at(&inner, &clock, None).await.unwrap_err();
        assert!(error.primary().contains("inside the checkpoint"), "{error}");
    }
    let beside = folder.path().join("q").display().to_string();
    open_at(&beside, &clock, None).await.unwrap();
    drop(checkpoint);
}

#[tokio::test]
async fn archive_empties_the_location_for_a_reset() {
    let store = three_batches().await;
    let (checkpoint, _) = open_faulty(&store, Some(2)).await.unwrap();
    let label = checkpoint.archive().await.unwrap();
    let contents = store.contents();
    assert!(contents.contains_key(&format!(".archive/{label}/commits/2")));
    assert!(contents.contains_key(&format!(".archive/{label}/metadata")));
    assert_eq!(open_faulty(&store, None).await.unwrap().1, Resume::Fresh);
}

#[tokio::test]
async fn source_logs_keep_entries_and_compact_them() {
    let store = three_batches().await;
    let (checkpoint, _) = open_faulty(&store, Some(2)).await.unwrap();
    let log = checkpoint.source_log("click stream/1");
    let other = checkpoint.source_log("click stream_1");
    for batch_id in 0..5u64 {
        log.put(batch_id, &serde_json::json!([batch_id, 0.5]))
            .await
            .unwrap();
    }
    assert_eq!(log.get(3).await.unwrap(), Some(serde_json::json!([3, 0.5])));
    assert_eq!(log.get(9).await.unwrap(), None);
    assert!(other.load_all().await.unwrap().is_empty());
    log.compact(3, &serde_json::json!("all")).await.unwrap();
    // A crash in the middle of compacting leaves entries that no longer count.
    let left = store.contents()["sources/click%20stream%2f1/4"].clone();
    let mut contents = store.contents();
    contents.insert("sources/click%20stream%2f1/2".into(), left);
    store.set_contents(contents);
    let batches: Vec<u64> = log.load_all().await.unwrap().iter().map(|e| e.0).collect();
    assert_eq!(batches, [3, 4]);
    assert_eq!(log.get(3).await.unwrap(), Some(serde_json::json!("all")));
    store.tamper("sources/click%20stream%2f1/4", |bytes| bytes.truncate(8));
    let error = log.load_all().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.primary().contains("batch 4"), "{error}");
}

//! Faults made on the files of a checkpoint, and what each statement makes of them; also when it is
//! cut short at any of its writes.

mod anew;
mod diagnose;
mod kept;
mod many;
mod repair;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use super::plan::Hand;
use super::*;
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::decide::{Decision, Stop};
use crate::checkpoint::fault::{FaultRates, FaultStore};
use crate::checkpoint::format::{self, CommitFile, Metadata, OffsetFile};
use crate::checkpoint::simulation::identity;
use crate::checkpoint::tests::{commit_batch_as, load_keys, resume_point, run_of_keys};
use crate::checkpoint::{
    Checkpoint, CheckpointLocation, CommitEntry, Expectation, OffsetEntry, Resume,
};
use crate::clock::{ClockRef, ManualClock};
use crate::connectors::{SourceOffset, SourceRange};
use crate::error::Result;

const BATCHES: u64 = 6;

/// Later with every look, as clocks are: each statement has an archive of its own.
fn clock() -> ClockRef {
    static LOOKS: AtomicI64 = AtomicI64::new(1_000_000);
    ManualClock::at(LOOKS.fetch_add(1, Ordering::Relaxed))
}

fn position(rows: u64) -> SourceOffset {
    SourceOffset(rows.into())
}

fn times(us: i64) -> BTreeMap<String, i64> {
    BTreeMap::from([("s".to_owned(), us)])
}

/// Entries as the engine writes them: each batch's watermark lies 50 behind the newest event time of
/// the batches before it.
fn planned(batch_id: u64) -> OffsetEntry {
    let before = batch_id as i64 * 1_000;
    OffsetEntry {
        batch_id,
        batch_at_us: 7_000 + before,
        watermarks_us: if batch_id == 0 {
            BTreeMap::new()
        } else {
            times(before)
        },
        watermark: (batch_id > 0).then_some(before - 50),
        view_watermarks: BTreeMap::new(),
        settings: BTreeMap::from([("on_row_error.v".to_owned(), "skip".to_owned())]),
        sources: BTreeMap::from([(
            "s".to_owned(),
            SourceRange {
                start: position(batch_id * 10),
                end: position(batch_id * 10 + 10),
            },
        )]),
    }
}

fn committed(batch_id: u64) -> CommitEntry {
    let planned = planned(batch_id);
    let newest = batch_id as i64 * 1_000 + 1_000;
    CommitEntry {
        batch_id,
        next_watermarks_us: times(newest - 50),
        watermark: planned.watermark,
        closed_until: Some(newest - 50),
        view_watermarks: BTreeMap::new(),
        event_time_max_us: times(newest),
        initial_offsets: BTreeMap::from([("s".to_owned(), position(0))]),
        sinks: ["k".to_owned()].into(),
        source_offsets: BTreeMap::from([("s".to_owned(), position(batch_id * 10 + 10))]),
        views: BTreeMap::from([("v".to_owned(), "f".to_owned())]),
        metrics: vec![json!({ "batch_started_at": planned.batch_at_us })],
    }
}

async fn open(store: &Arc<FaultStore>) -> Result<(Checkpoint, Resume)> {
    let expectation = Expectation {
        catalog_batch: Some(BATCHES - 1),
        cold_batch: None,
    };
    let store: Arc<dyn BlobStore> = store.clone();
    CheckpointLocation::open_store(store, identity(), expectation, clock()).await
}

/// A checkpoint of six batches, closed; each batch adds one key.
async fn six_batches() -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::new(5, FaultRates::default()));
    let expectation = Expectation::default();
    let as_blobs: Arc<dyn BlobStore> = store.clone();
    let opened = CheckpointLocation::open_store(as_blobs, identity(), expectation, clock()).await;
    let (checkpoint, _) = opened.unwrap();
    for batch_id in 0..BATCHES {
        checkpoint.write_offsets(&planned(batch_id)).await.unwrap();
        let run = run_of_keys([batch_id], Some(b"v"));
        commit_batch_as(&checkpoint, &committed(batch_id), &run)
            .await
            .unwrap();
    }
    store
}

async fn hold(store: &Arc<FaultStore>) -> Result<Held> {
    Held::acquire(store.clone(), identity(), clock()).await
}

async fn repaired(store: &Arc<FaultStore>) -> Result<Repaired> {
    repair(&hold(store).await?, Some(BATCHES - 1)).await
}

async fn surveyed(store: &Arc<FaultStore>) -> Survey {
    let store: Arc<dyn BlobStore> = store.clone();
    Survey::take(&store, &identity(), Some(BATCHES - 1), Depth::Full)
        .await
        .unwrap()
}

/// An entry without what a rebuild or a rewind adds.
fn without_sinks(entry: &OffsetEntry) -> OffsetEntry {
    let mut entry = entry.clone();
    entry.settings.remove("sinks");
    entry
}

/// The keys of the state after everything that is to run again has run.
async fn keys_after_replay(store: &Arc<FaultStore>) -> usize {
    let (checkpoint, resume) = open(store).await.unwrap();
    let point = resume_point(resume);
    let mut last = point.last_commit.as_ref().map(|commit| commit.batch_id);
    if let Some(start) = last {
        assert_eq!(
            load_keys(&checkpoint, start).await.unwrap().len() as u64,
            start + 1
        );
    }
    for entry in &point.replay {
        assert_eq!(
            without_sinks(entry),
            planned(entry.batch_id),
            "a batch runs as it ran before"
        );
        let run = run_of_keys([entry.batch_id], Some(b"v"));
        commit_batch_as(&checkpoint, &committed(entry.batch_id), &run)
            .await
            .unwrap();
        last = Some(entry.batch_id);
    }
    drop(checkpoint);
    let (checkpoint, _) = open(store).await.unwrap();
    load_keys(&checkpoint, last.unwrap()).await.unwrap().len()
}

fn garble(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
}

fn hand() -> Hand {
    Hand {
        epoch: 9,
        now_us: 5,
    }
}

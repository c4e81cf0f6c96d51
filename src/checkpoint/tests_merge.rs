//! What a merge reads of its inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blob::BlobStore;
use super::fault::{FaultRates, FaultStore};
use super::merge::{MergeLimits, merge};
use super::simulation::identity;
use super::tests::commit_batch;
use super::{CheckpointLocation, Expectation};
use crate::clock::ManualClock;
use crate::state::{Run, RunBuilder, TableId};

const TABLES: std::ops::Range<u64> = 1..4;
const ROWS: u64 = 10_000;

fn rows_of(tables: impl Iterator<Item = u64>) -> Run {
    let mut builder = RunBuilder::new();
    for table in tables {
        for row in 0..ROWS {
            let key = [table.to_be_bytes(), row.to_be_bytes()].concat();
            builder.push(&key, Some(&[7; 100]));
        }
    }
    builder.finish()
}

/// Beside a run that drops a table each window of an older run is read once. What passing over the dropped
/// table's blocks saves here, the search for its end costs.
#[tokio::test]
async fn a_window_is_read_once_beside_a_dropped_table() {
    let store = Arc::new(FaultStore::new(5, FaultRates::default()));
    let as_blobs: Arc<dyn BlobStore> = store.clone();
    let clock = ManualClock::at(1_000_000);
    let opened =
        CheckpointLocation::open_store(as_blobs, identity(), Expectation::default(), clock);
    let (checkpoint, _) = opened.await.unwrap();
    commit_batch(&checkpoint, 0, &rows_of(TABLES))
        .await
        .unwrap();
    let mut newer = rows_of(std::iter::once(9));
    newer.drop_tables(&[TableId(2)]);
    commit_batch(&checkpoint, 1, &newer).await.unwrap();
    let runs = checkpoint.shared.state.lock().runs.clone();
    store.take_ranges_read();
    let limits = MergeLimits {
        window_bytes: 300 << 10,
        part_bytes: 32 << 20,
    };
    let merged = merge(&checkpoint.shared, &runs, None, limits)
        .await
        .unwrap();
    let entries: u64 = merged.iter().map(|run| run.entries).sum();
    assert_eq!(entries, 3 * ROWS, "of tables 1, 3 and 9");
    let mut reads: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut bytes = 0;
    for (path, range) in store.take_ranges_read() {
        bytes += range.end - range.start;
        *reads.entry((path, range.start)).or_default() += 1;
    }
    // A run's tail is longer than was guessed, and where the dropped table ends a window begins.
    let again = reads.values().filter(|count| **count > 1).count();
    assert!(again <= 2, "{reads:?}");
    let all: u64 = runs.iter().map(|run| run.bytes).sum();
    assert!(bytes < all * 11 / 10, "{bytes} of {all} bytes");
}

//! Tests of entries, stores, leases and retention, and what other tests of checkpoints share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::blob::{BlobStore, BlobVersion, Follows, PutOutcome};
use super::fault::{FaultRates, FaultStore};
use super::format::{
    CommitFile, Manifest, ManifestHead, Metadata, OffsetFile, RunInfo, StateReference, Unreadable,
};
use super::local::LocalStore;
use super::simulation::{commit_of, entry_of, identity};
use super::*;
use crate::clock::{ClockRef, ManualClock, SystemClock};
use crate::error::{ErrorKind, Result};
use crate::state::{Run, RunBuilder};

pub(super) fn run_of_keys(keys: impl IntoIterator<Item = u64>, value: Option<&[u8]>) -> Run {
    let mut builder = RunBuilder::new();
    for key in keys {
        let key = [1u64.to_be_bytes(), key.to_be_bytes()].concat();
        builder.push(&key, value);
    }
    builder.finish()
}

/// A `metadata` file of the pipeline `id`.
pub(super) fn metadata(id: Uuid) -> Vec<u8> {
    let metadata = Metadata {
        id,
        pipeline: "p".into(),
        format_version: 1,
        fingerprint: String::new(),
        created_at_us: 0,
        first_batch_id: 0,
    };
    metadata.encode()
}

type Decode = fn(&[u8]) -> Result<(), Unreadable>;

fn sample_files() -> Vec<(Vec<u8>, Decode)> {
    let entry = entry_of(7, 3, 9);
    let commit = CommitFile {
        pipeline_id: Uuid::from_u128(1),
        epoch: 3,
        first_batch_id: 0,
        state: Some(StateReference {
            batch_id: 7,
            manifest_batch_id: Some(6),
            manifest_crc32c: 99,
        }),
        entry: commit_of(&entry),
    };
    let manifest = Manifest {
        head: ManifestHead {
            pipeline_id: Uuid::from_u128(1),
            pipeline: "größer".into(),
            fingerprint: "f".into(),
            epoch: 3,
            batch_id: 6,
        },
        runs: vec![RunInfo {
            file: "6.run".into(),
            first_batch_id: 6,
            last_batch_id: 6,
            bytes: 10,
            entries: 2,
            crc32c: 5,
            tombstones_dropped_through: Some(2),
        }],
    };
    let metadata = Metadata {
        id: Uuid::from_u128(1),
        pipeline: "p".into(),
        format_version: 1,
        fingerprint: "f".into(),
        created_at_us: 5,
        first_batch_id: 0,
    };
    let offsets = OffsetFile {
        pipeline_id: Uuid::from_u128(1),
        epoch: 3,
        entry,
    };
    assert_eq!(OffsetFile::decode(&offsets.encode()), Ok(offsets.clone()));
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest.clone()));
    assert_eq!(Metadata::decode(&metadata.encode()), Ok(metadata.clone()));
    assert_eq!(
        format::decode_one(&format::encode_one(&commit)),
        Ok(commit.clone())
    );
    vec![
        (offsets.encode(), |b| OffsetFile::decode(b).map(drop)),
        (manifest.encode(), |b| Manifest::decode(b).map(drop)),
        (metadata.encode(), |b| Metadata::decode(b).map(drop)),
        (format::encode_one(&commit), |b| {
            format::decode_one::<CommitFile>(b).map(drop)
        }),
    ]
}

#[test]
fn entries_tell_every_cut_and_flip() {
    for (whole, decode) in sample_files() {
        for cut in 0..whole.len() - 1 {
            assert!(decode(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                // White space after the JSON of `metadata` carries nothing.
                let is_space = at + 1 == whole.len() && flipped[at].is_ascii_whitespace();
                // Hexadecimal digits and JSON's exponents have no case of their own.
                let same = flipped.eq_ignore_ascii_case(&whole);
                if !is_space && !same {
                    assert!(decode(&flipped).is_err(), "bit {bit} of byte {at} flipped");
                }
            }
        }
        for garbage in [
            &b""[..],
            b"v1",
            b"v1\n",
            b"v1\ncrc32c:0\n",
            b"{}",
            b"\xff\xfe",
            b"v2\n",
        ] {
            assert!(decode(garbage).is_err());
        }
    }
    assert_eq!(
        format::decode_lines(b"v9\n{}\n"),
        Err(Unreadable::NewerVersion("9".into()))
    );
}

#[tokio::test]
async fn stores_keep_the_contract_of_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let options = BTreeMap::new();
    let stores: Vec<Arc<dyn BlobStore>> = vec![
        Arc::new(LocalStore::new(&folder.path().join("a/b"))),
        CheckpointLocation::store("memory://contract/some/prefix", &options).unwrap(),
        Arc::new(FaultStore::new(1, FaultRates::default())),
    ];
    for store in stores {
        let put = |path: &str, text: &str| (path.to_owned(), Bytes::from(text.to_owned()));
        assert!(store.list("").await.unwrap().is_empty());
        assert!(store.get("offsets/1").await.unwrap().is_none());
        store
            .put_all(vec![put("offsets/1", "one"), put("state/1.run", "run")])
            .await
            .unwrap();
        store.put_all(vec![put("offsets/1", "uno")]).await.unwrap();
        let PutOutcome::Written(version) = store.put_if_absent("lease", "x".into()).await.unwrap()
        else {
            panic!("it was absent");
        };
        let lost = store.put_if_absent("lease", "y".into()).await.unwrap();
        assert_eq!(lost, PutOutcome::Lost);
        let other = BlobVersion("other".into());
        let lost = store
            .put_if_match("lease", "y".into(), &other)
            .await
            .unwrap();
        assert_eq!(lost, PutOutcome::Lost);
        let written = store
            .put_if_match("lease", "z".into(), &version)
            .await
            .unwrap();
        assert!(matches!(written, PutOutcome::Written(_)));
        let lost = store
            .put_if_match("lease", "w".into(), &version)
            .await
            .unwrap();
        assert_eq!(lost, PutOutcome::Lost);
        let taken = vec![put("state/1.run", "new"), put("state/2.run", "two")];
        let (ahead, last) = store
            .put_after(taken, "commits/1", "c".into(), Follows::Always)
            .await
            .unwrap();
        assert_eq!((&ahead[0], last), (&PutOutcome::Lost, None));
        assert!(matches!(ahead[1], PutOutcome::Written(_)));
        assert!(store.get("commits/1").await.unwrap().is_none());
        let free = vec![put("state/3.run", "three")];
        let (_, last) = store
            .put_after(free, "commits/1", "c".into(), Follows::OnceAcknowledged)
            .await
            .unwrap();
        assert!(matches!(last, Some(PutOutcome::Written(_))));
        store
            .delete(&["state/3.run".into(), "commits/1".into()])
            .await
            .unwrap();
        assert_eq!(
            store.get("state/1.run").await.unwrap().unwrap().bytes,
            "run"
        );
        assert_eq!(store.get("offsets/1").await.unwrap().unwrap().bytes, "uno");
        let listed: Vec<String> = store
            .list("state/")
            .await
            .unwrap()
            .into_iter()
            .map(|blob| blob.path)
            .collect();
        assert_eq!(listed, ["state/1.run", "state/2.run"]);
        store
            .delete(&["state/1.run".into(), "state/none".into()])
            .await
            .unwrap();
        store
            .archive(&["offsets/1".into(), "offsets/none".into()], "t")
            .await
            .unwrap();
        let all = store.list("").await.unwrap();
        assert_eq!(all.iter().map(|b| b.bytes).collect::<Vec<_>>(), [1, 3]);
    }
    let archived = folder.path().join("a/b.archive/t/offsets/1");
    assert_eq!(std::fs::read(archived).unwrap(), b"uno");
}

pub(super) async fn open_at(
    location: &str,
    clock: &ClockRef,
    catalog_batch: Option<u64>,
) -> Result<(Checkpoint, Resume)> {
    let expectation = Expectation {
        catalog_batch,
        cold_batch: None,
    };
    CheckpointLocation::open(
        location,
        identity(),
        expectation,
        Arc::clone(clock),
        &BTreeMap::new(),
    )
    .await
}

pub(super) async fn commit_batch(checkpoint: &Checkpoint, batch_id: u64, run: &Run) -> Result<()> {
    let entry = entry_of(batch_id, batch_id, batch_id + 1);
    checkpoint.write_offsets(&entry).await?;
    commit_batch_as(checkpoint, &commit_of(&entry), run).await
}

/// Commits a batch that was planned.
pub(super) async fn commit_batch_as(
    checkpoint: &Checkpoint,
    commit: &CommitEntry,
    run: &Run,
) -> Result<()> {
    let state = PendingState::encode(commit.batch_id, run);
    checkpoint.commit_batch(Some(&state), commit).await
}

pub(super) async fn load_keys(
    checkpoint: &Checkpoint,
    batch_id: u64,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut loader = checkpoint.load_runs_after(None, batch_id);
    let mut contents = BTreeMap::new();
    let mut last = None;
    while let Some(loaded) = loader.next().await? {
        assert!(Some(loaded.batch_id) > last, "batches ascend");
        last = Some(loaded.batch_id);
        for index in 0..loaded.run.len() {
            match loaded.run.value(index) {
                Some(value) => contents.insert(loaded.run.key(index).to_vec(), value.to_vec()),
                None => contents.remove(loaded.run.key(index)),
            };
        }
    }
    assert_eq!(last, Some(batch_id));
    Ok(contents)
}

pub(super) fn resume_point(resume: Resume) -> ResumePoint {
    match resume {
        Resume::At(point) => *point,
        Resume::Fresh => panic!("there were batches"),
    }
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_and_fences_the_one_before() {
    let clock = ManualClock::at(1_000_000);
    let shared_clock: ClockRef = clock.clone();
    let location = "memory://fencing/p";
    let (first, _) = open_at(location, &shared_clock, None).await.unwrap();
    commit_batch(&first, 0, &run_of_keys(0..3, Some(b"a")))
        .await
        .unwrap();
    let error = open_at(location, &shared_clock, Some(0)).await.unwrap_err();
    assert_eq!(
        (error.sqlstate(), error.kind()),
        ("55006", ErrorKind::Transient)
    );
    assert!(error.primary().contains("in use by process"), "{error}");
    assert!(
        error.primary().contains(" since 1970-01-01 00:00:01 UTC"),
        "{error}"
    );
    assert!(error.hint_text().is_some(), "{error}");
    clock.advance_us(20_000_000);
    first.renew_lease().await.unwrap();
    clock.advance_us(20_000_000);
    assert!(
        open_at(location, &shared_clock, Some(0)).await.is_err(),
        "it was renewed"
    );
    // The first one sleeps over its lease's end; the second takes over.
    first.write_offsets(&entry_of(1, 1, 2)).await.unwrap();
    clock.advance_us(40_000_000);
    let (second, resume) = open_at(location, &shared_clock, Some(0)).await.unwrap();
    assert_eq!(resume_point(resume).replay, [entry_of(1, 1, 2)]);
    let run = run_of_keys(1..9, Some(b"b"));
    let state = PendingState::encode(1, &run);
    for error in [
        commit_batch(&first, 1, &run_of_keys(5..6, None))
            .await
            .unwrap_err(),
        first.renew_lease().await.unwrap_err(),
        first
            .commit_batch(Some(&state), &commit_of(&entry_of(1, 1, 2)))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    second
        .commit_batch(Some(&state), &commit_of(&entry_of(1, 1, 2)))
        .await
        .unwrap();
    drop(second);
    let (third, _) = open_at(location, &shared_clock, Some(1)).await.unwrap();
    assert_eq!(load_keys(&third, 1).await.unwrap().len(), 9);
}

#[tokio::test]
async fn a_local_location_is_locked_while_its_holder_lives() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("p").display().to_string();
    let clock = SystemClock::shared();
    let (first, resume) = open_at(&location, &clock, None).await.unwrap();
    assert_eq!(resume, Resume::Fresh);
    let error = open_at(&location, &clock, None).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55006");
    commit_batch(&first, 1, &run_of_keys(0..3, Some(b"a")))
        .await
        .unwrap();
    // The folder is replaced by a copy that another lease has written.
    let lease = Path::new(&location).join("lease");
    let text = std::fs::read(&lease).unwrap();
    std::fs::write(&lease, b"v1\n").unwrap();
    let error = commit_batch(&first, 2, &Run::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    std::fs::write(&lease, text).unwrap();
    drop(first);
    // Whoever held it is gone: no waiting for an expiry.
    let (second, resume) = open_at(&location, &clock, Some(1)).await.unwrap();
    let point = resume_point(resume);
    assert_eq!(point.last_commit.unwrap().batch_id, 1);
    assert!(point.replay.is_empty());
    commit_batch(&second, 2, &Run::default()).await.unwrap();
    assert_eq!(load_keys(&second, 2).await.unwrap().len(), 3);
    assert_eq!(second.stats().last_batch_id, Some(2));
}

#[tokio::test]
async fn retention_and_merging_keep_the_location_small_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("p").display().to_string();
    let clock = SystemClock::shared();
    let (checkpoint, _) = open_at(&location, &clock, None).await.unwrap();
    for batch_id in 0..150 {
        let run = if batch_id % 5 == 4 {
            run_of_keys([batch_id - 4], None)
        } else {
            run_of_keys([batch_id, 1_000], Some(&batch_id.to_be_bytes()))
        };
        commit_batch(&checkpoint, batch_id, &run).await.unwrap();
        checkpoint
            .retain(10, Some(batch_id), || false)
            .await
            .unwrap();
        if batch_id == 70 {
            // A base run may not lie on a cold tier that is older.
            let loader = checkpoint.load_runs_after(Some(3), 70);
            assert!(loader.discard_cold());
            assert!(checkpoint.load_runs_after(Some(71), 70).discard_cold());
            assert!(!checkpoint.load_runs_after(Some(70), 70).discard_cold());
        }
    }
    let stats = checkpoint.stats();
    assert_eq!((stats.last_batch_id, stats.missing_batches), (Some(149), 0));
    assert!(stats.first_batch_id >= Some(137), "{stats:?}");
    let listed = LocalStore::new(Path::new(&location))
        .list("")
        .await
        .unwrap();
    assert_eq!(listed.len() as u64, stats.files, "what is counted is there");
    assert!(stats.files < 120, "{stats:?}");
    drop(checkpoint);
    let (checkpoint, resume) = open_at(&location, &clock, Some(149)).await.unwrap();
    assert_eq!(resume_point(resume).notes, Vec::<String>::new());
    let keys = load_keys(&checkpoint, 149).await.unwrap();
    // Of each five batches one key was deleted again and one batch wrote none.
    assert_eq!(keys.len(), 150 / 5 * 3 + 1);
    // Retention after a restart still knows what older commits stand on.
    for batch_id in 150..160 {
        commit_batch(&checkpoint, batch_id, &run_of_keys([1_000], Some(b"x")))
            .await
            .unwrap();
        checkpoint.retain(12, None, || false).await.unwrap();
    }
    drop(checkpoint);
    damage_newest_run(&location, 159);
    let (checkpoint, resume) = open_at(&location, &clock, Some(159)).await.unwrap();
    let point = resume_point(resume);
    assert_eq!(point.last_commit.as_ref().unwrap().batch_id, 158);
    assert_eq!(point.newest_commit, Some(159));
    assert_eq!(point.replay, [entry_of(159, 159, 160)]);
    assert_eq!(point.notes.len(), 1);
    assert_eq!(load_keys(&checkpoint, 158).await.unwrap().len(), keys.len());
    commit_batch(&checkpoint, 159, &run_of_keys([1_000], Some(b"x")))
        .await
        .unwrap();
    drop(checkpoint);
    let (checkpoint, resume) = open_at(&location, &clock, Some(159)).await.unwrap();
    assert!(resume_point(resume).replay.is_empty());
    assert_eq!(load_keys(&checkpoint, 159).await.unwrap().len(), keys.len());
}

/// Runs of some thousand entries that overlap, with deletions and a dropped table, merged in small
/// parts and loaded in every way.
fn damage_newest_run(location: &str, batch_id: u64) {
    let path = Path::new(location).join(format!("state/{batch_id}.run"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn runs_merge_in_parts_and_load_into_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("p").display().to_string();
    let clock = SystemClock::shared();
    let (checkpoint, _) = open_at(&location, &clock, None).await.unwrap();
    let limits = super::merge::MergeLimits {
        window_bytes: 1,
        part_bytes: 300 << 10,
    };
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut merges = 0;
    for batch_id in 0..40u64 {
        let mut builder = RunBuilder::new();
        let mut entries = Vec::new();
        for table in 1..3u64 {
            for row in 0..1_500u64 {
                let key = [table, (row * 31 + batch_id * 7) % 6_000 * 1_000 + row];
                let value = (row % 5 != batch_id % 5).then(|| vec![batch_id as u8; 100]);
                entries.push((key.map(u64::to_be_bytes).concat(), value));
            }
        }
        entries.sort();
        for (key, value) in &entries {
            builder.push(key, value.as_deref());
        }
        let mut run = builder.finish();
        // The second table and the first, so that what is hidden ends a run or begins it.
        if let Some(table) = [(17, 2), (23, 1)]
            .iter()
            .find(|(batch, _)| *batch == batch_id)
        {
            run.drop_tables(&[crate::state::TableId(table.1)]);
            model.retain(|key, _| u64::from(key[7]) != table.1);
        }
        for (key, value) in entries {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        commit_batch(&checkpoint, batch_id, &run).await.unwrap();
        merges += u64::from(checkpoint.merge_runs_within(limits).await.unwrap());
    }
    assert!(merges >= 4, "{merges} merges");
    commit_batch(&checkpoint, 40, &Run::default())
        .await
        .unwrap();
    let runs = checkpoint.shared.state.lock().runs.clone();
    assert!(
        runs.windows(2)
            .any(|w| super::merge::is_same_run(&w[0], &w[1])),
        "parts"
    );
    for memory_tier_bytes in [0, 200 << 10, 1 << 30] {
        let folder = tempfile::tempdir().unwrap();
        let options = crate::state::StateStoreOptions {
            budget: crate::state::MemoryBudget::new(1 << 30),
            spill_bytes: 1 << 30,
        };
        let id = identity().pipeline_id;
        let store = crate::state::StateStore::open(folder.path(), id, options).unwrap();
        let shared = Arc::clone(&checkpoint.shared);
        let mut loader = RunLoader::with_memory_tier(shared, None, 40, memory_tier_bytes);
        let mut seen = (0, 0);
        loader
            .load_into(&store, |done, all| seen = (done, all))
            .await
            .unwrap();
        assert_eq!(seen.0, seen.1);
        assert_eq!(store.snapshot().batch_id(), Some(40));
        let mut found = BTreeMap::new();
        for table in 1..3u64 {
            let id = crate::state::TableId(table);
            let mut scan = store.snapshot().scan(id, None, None).unwrap();
            while scan.advance().unwrap() {
                let key = [&table.to_be_bytes(), scan.key()].concat();
                found.insert(key, scan.value().to_vec());
            }
        }
        assert!(
            found == model,
            "{} entries, {} wanted",
            found.len(),
            model.len()
        );
    }
}

//! Crash simulation of the checkpoint: an engine in miniature over a store with seeded faults.
//!
//! Each batch's changes follow from its offset entry alone, so the state after any batch is known
//! without the checkpoint. After every crash the location is opened again and must give the state
//! of a committed batch and the entries of all batches beyond it; no acknowledged commit may be
//! missing, and no acknowledged offset entry may come back changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::fault::{FaultRates, FaultStore};
use super::*;
use crate::clock::ManualClock;
use crate::connectors::SourceOffset;
use crate::error::{ErrorKind, Result};
use crate::state::{Run, RunBuilder};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The changes of a batch: puts and deletes of a few keys, decided by its input alone.
fn run_of(entry: &OffsetEntry) -> Run {
    let end = entry.sources["s"]
        .end
        .0
        .as_u64()
        .expect("the simulated source counts rows");
    let mut random = Random(end.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut changes = BTreeMap::new();
    for _ in 0..random.below(12) {
        let mut key = 1u64.to_be_bytes().to_vec();
        key.push(random.below(30) as u8);
        let value = (random.below(3) > 0).then(|| end.to_be_bytes().to_vec());
        changes.insert(key, value);
    }
    let mut builder = RunBuilder::new();
    for (key, value) in &changes {
        builder.push(key, value.as_deref());
    }
    builder.finish()
}

fn apply(contents: &mut Contents, run: &Run) {
    for index in 0..run.len() {
        match run.value(index) {
            Some(value) => contents.insert(run.key(index).to_vec(), value.to_vec()),
            None => contents.remove(run.key(index)),
        };
    }
}

fn offset(position: u64) -> SourceOffset {
    SourceOffset(position.into())
}

pub(super) fn commit_of(entry: &OffsetEntry) -> CommitEntry {
    CommitEntry {
        batch_id: entry.batch_id,
        next_watermarks_us: BTreeMap::from([("s".into(), entry.batch_at_us)]),
        watermark: Some(entry.batch_at_us),
        closed_until: Some(entry.batch_at_us + 1),
        view_watermarks: BTreeMap::from([("behind".into(), None)]),
        event_time_max_us: BTreeMap::new(),
        initial_offsets: BTreeMap::new(),
        sinks: ["k".to_owned()].into(),
        source_offsets: entry
            .sources
            .iter()
            .map(|(name, range)| (name.clone(), range.end.clone()))
            .collect(),
        views: BTreeMap::from([("v".into(), "f".into())]),
        metrics: vec![serde_json::json!({"num_input_rows": entry.batch_id, "rate": 0.1})],
    }
}

pub(super) fn entry_of(batch_id: u64, from: u64, to: u64) -> OffsetEntry {
    let range = crate::connectors::SourceRange {
        start: offset(from),
        end: offset(to),
    };
    OffsetEntry {
        batch_id,
        batch_at_us: 1_000 * batch_id as i64,
        watermarks_us: BTreeMap::from([("s".into(), -1)]),
        watermark: Some(-1),
        view_watermarks: BTreeMap::from([("behind".into(), Some(-2))]),
        settings: BTreeMap::new(),
        sources: BTreeMap::from([("s".into(), range)]),
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        pipeline_id: Uuid::from_u128(77),
        pipeline_name: "p".into(),
        fingerprint: "f1".into(),
    }
}

/// What the simulation knows besides the store.
struct World {
    store: Arc<FaultStore>,
    random: Random,
    clock: Arc<ManualClock>,
    /// All entries that a write was tried with, by batch.
    tried: BTreeMap<u64, Vec<OffsetEntry>>,
    /// Entry of each batch that committed, or may have.
    inputs: BTreeMap<u64, OffsetEntry>,
    acknowledged: Option<u64>,
    trace: Vec<String>,
}

impl World {
    fn state_at(&self, batch_id: Option<u64>) -> Contents {
        let mut contents = Contents::new();
        let Some(batch_id) = batch_id else {
            return contents;
        };
        for (_, entry) in self.inputs.range(..=batch_id) {
            apply(&mut contents, &run_of(entry));
        }
        contents
    }

    async fn persistent<T>(&self, mut call: impl AsyncFnMut() -> Result<T>) -> Option<T> {
        for _ in 0..20 {
            match call().await {
                Ok(value) => return Some(value),
                Err(error) if error.kind() == ErrorKind::Transient => {
                    if self.store.has_crashed() {
                        return None;
                    }
                }
                Err(error) => panic!("{error}\n{}", self.trace.join("\n")),
            }
        }
        None
    }

    /// From one opening to the next crash.
    async fn live(&mut self, batches: u64) {
        let expectation = Expectation {
            catalog_batch: self
                .acknowledged
                .filter(|_| self.random.0.is_multiple_of(2)),
            cold_batch: None,
        };
        self.trace.push(format!("open, {expectation:?}"));
        let store: Arc<dyn blob::BlobStore> = self.store.clone();
        let opened = self
            .persistent(async || {
                CheckpointLocation::open_store(
                    Arc::clone(&store),
                    identity(),
                    expectation,
                    self.clock.clone(),
                )
                .await
            })
            .await;
        let Some((checkpoint, resume)) = opened else {
            return;
        };
        self.trace.push(format!("{resume:?}"));
        let (start, replay, source_end) = match resume {
            Resume::Fresh => {
                assert_eq!(self.acknowledged, None, "{}", self.trace.join("\n"));
                (None, Vec::new(), 0)
            }
            Resume::At(point) => {
                let commit = point.last_commit.as_ref();
                let end = commit.map_or(0, |c| {
                    c.source_offsets["s"]
                        .0
                        .as_u64()
                        .expect("the simulated source counts rows")
                });
                (commit.map(|c| c.batch_id), point.replay, end)
            }
        };
        let newest = replay.last().map(|entry| entry.batch_id).max(start);
        assert!(newest >= self.acknowledged, "{}", self.trace.join("\n"));
        let mut loader = checkpoint.load_runs_after(None, start.unwrap_or(0));
        let mut contents = Contents::new();
        if start.is_some() {
            loop {
                let Some(loaded) = self.persistent(async || loader.next().await).await else {
                    return;
                };
                let Some(loaded) = loaded else { break };
                apply(&mut contents, &loaded.run);
            }
        }
        assert_eq!(
            contents,
            self.state_at(start),
            "at {start:?}\n{}",
            self.trace.join("\n")
        );
        self.run_batches(&checkpoint, start, replay, source_end, batches)
            .await;
    }

    async fn run_batches(
        &mut self,
        checkpoint: &Checkpoint,
        start: Option<u64>,
        replay: Vec<OffsetEntry>,
        mut source_end: u64,
        batches: u64,
    ) {
        let first = start.map_or(0, |start| start + 1);
        let mut unpersisted: Vec<Run> = Vec::new();
        let interval = 1 + self.random.below(3);
        let mut replay = std::collections::VecDeque::from(replay);
        for next in first..first + batches {
            let replayed = replay.pop_front();
            let entry = match &replayed {
                Some(entry) => {
                    assert_eq!(entry.batch_id, next);
                    assert!(
                        self.tried[&next].contains(entry),
                        "{}",
                        self.trace.join("\n")
                    );
                    if self.acknowledged.is_some_and(|batch| next <= batch) {
                        assert_eq!(self.inputs[&next], *entry);
                    }
                    entry.clone()
                }
                None => {
                    let to = source_end + 1 + self.random.below(1_000_000);
                    entry_of(next, source_end, to)
                }
            };
            source_end = entry.sources["s"]
                .end
                .0
                .as_u64()
                .expect("the simulated source counts rows");
            if replayed.is_none() {
                self.tried.entry(next).or_default().push(entry.clone());
                let written = self
                    .persistent(async || checkpoint.write_offsets(&entry).await)
                    .await;
                if written.is_none() {
                    return;
                }
            }
            unpersisted.insert(0, run_of(&entry));
            let mut state = None;
            if next.is_multiple_of(interval) {
                let newest_first: Vec<&Run> = unpersisted.iter().collect();
                state = Some(PendingState::encode(
                    next,
                    &Run::merge(&newest_first, false),
                ));
                unpersisted.clear();
            }
            // From here on the batch may turn out to be committed.
            self.inputs.insert(next, entry.clone());
            let commit = commit_of(&entry);
            let written = checkpoint.commit_batch(state.as_ref(), &commit).await;
            if let Err(error) = written {
                // Committed or not: only opening it again tells.
                self.trace.push(format!("commit of {next}: {error}"));
                return;
            }
            self.acknowledged = self.acknowledged.max(Some(next));
            self.trace.push(format!("committed {next}"));
            if self.random.below(3) == 0 {
                let min_batches = 1 + self.random.below(6);
                let retained = self
                    .persistent(async || checkpoint.retain(min_batches, None, || false).await)
                    .await;
                if retained.is_none() {
                    return;
                }
            }
            self.clock.advance_us(100_000);
        }
    }
}

async fn simulate(seed: u64, rates: FaultRates) {
    let mut world = World {
        store: Arc::new(FaultStore::new(seed, rates)),
        random: Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1),
        clock: ManualClock::at(1_000_000),
        tried: BTreeMap::new(),
        inputs: BTreeMap::new(),
        acknowledged: None,
        trace: vec![format!("seed {seed}")],
    };
    for _ in 0..12 {
        let batches = 1 + world.random.below(25);
        world.live(batches).await;
        world.clock.advance_us(1_000_000);
        world.store.restart();
        if world.acknowledged.is_none() && rates.torn_writes {
            // A torn `metadata` of a location that was never used stops, rightly; the simulation
            // is about what comes after.
            let torn = world
                .store
                .contents()
                .get("metadata")
                .is_some_and(|bytes| format::Metadata::decode(bytes).is_err());
            world.store.lose(|path| torn && path == "metadata");
        }
    }
    world.store.set_rates(FaultRates::default());
    world.live(3).await;
    world.live(0).await;
    assert!(world.acknowledged.is_some());
}

#[tokio::test]
async fn crashes_and_errors_lose_nothing_acknowledged() {
    // `make soak` tries 25 times as many: 10,000.
    let usual = 0..400;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let rates = FaultRates {
            error_before: 20,
            error_after: 20,
            crash: 25,
            torn_writes: false,
        };
        simulate(seed, rates).await;
    }
}

#[tokio::test]
async fn torn_writes_are_seen_and_made_again() {
    let usual = 1_000..1_200;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let rates = FaultRates {
            error_before: 0,
            error_after: 0,
            crash: 40,
            torn_writes: true,
        };
        simulate(seed, rates).await;
    }
}

#[tokio::test]
async fn a_crash_in_every_single_write_is_survived() {
    for call in 1..95 {
        for torn_writes in [false, true] {
            let mut world = World {
                store: Arc::new(FaultStore::new(
                    call,
                    FaultRates {
                        torn_writes,
                        ..FaultRates::default()
                    },
                )),
                random: Random(call * 2 + 1),
                clock: ManualClock::at(1_000_000),
                tried: BTreeMap::new(),
                inputs: BTreeMap::new(),
                acknowledged: None,
                trace: vec![format!("crash at call {call}")],
            };
            world.store.crash_at_call(call);
            world.live(40).await;
            assert!(
                world.store.has_crashed(),
                "only {} calls",
                world.store.calls()
            );
            world.clock.advance_us(1_000_000);
            world.store.restart();
            let torn = world
                .store
                .contents()
                .get("metadata")
                .is_some_and(|bytes| format::Metadata::decode(bytes).is_err());
            world.store.lose(|path| torn && path == "metadata");
            world.live(12).await;
            world.live(2).await;
            assert!(world.acknowledged >= Some(9), "{}", world.trace.join("\n"));
        }
    }
}

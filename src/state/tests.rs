//! Property tests of runs and the store against an ordered map, with spills and reopening.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray};
use uuid::Uuid;

use super::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small generator of numbers (xorshift), so that a failure repeats from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn full_key(table: TableId, key: &[u8]) -> Vec<u8> {
    [&table.0.to_be_bytes(), key].concat()
}

fn run_of(entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Run {
    let mut builder = RunBuilder::new();
    for (key, value) in entries {
        builder.push(key, value.as_deref());
    }
    builder.finish()
}

fn entries_of(run: &Run) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    (0..run.len())
        .map(|index| {
            (
                run.key(index).to_vec(),
                run.value(index).map(<[u8]>::to_vec),
            )
        })
        .collect()
}

const TABLES: [TableId; 4] = [TableId(1), TableId(2), TableId(500), TableId(u64::MAX)];

/// Random entries: keys of one to three bytes (also 0xff and empty), puts and deletes.
fn random_entries(random: &mut Random, count: u64) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    (0..count)
        .map(|_| {
            let table = TABLES[random.below(4) as usize];
            let length = random.below(4) as usize;
            let key: Vec<u8> = (0..length)
                .map(|_| [0, 1, 7, 0x80, 0xff][random.below(5) as usize])
                .collect();
            let value = (random.below(3) > 0).then(|| {
                let length = random.below(20) as usize;
                vec![random.below(256) as u8; length]
            });
            (full_key(table, &key), value)
        })
        .collect()
}

fn apply_to_model(model: &mut Model, entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
    for (key, value) in entries {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn drop_from_model(model: &mut Model, table: TableId) {
    model.retain(|key, _| key[..8] != table.0.to_be_bytes());
}

fn table_of_model(model: &Model, table: TableId) -> Vec<(Vec<u8>, Vec<u8>)> {
    model
        .iter()
        .filter(|(key, _)| key[..8] == table.0.to_be_bytes())
        .map(|(key, value)| (key[8..].to_vec(), value.clone()))
        .collect()
}

fn scan_all(
    snapshot: &StateSnapshot,
    table: TableId,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = snapshot.scan(table, lower, upper).unwrap();
    let mut found = Vec::new();
    while scan.advance().unwrap() {
        found.push((scan.key().to_vec(), scan.value().to_vec()));
    }
    assert!(!scan.advance().unwrap(), "the end stays the end");
    found
}

/// One scan that leaps over ascending prefixes, and now and then leaves one before its end.
fn check_prefixes(
    snapshot: &StateSnapshot,
    table: TableId,
    expected: &[(Vec<u8>, Vec<u8>)],
    random: &mut Random,
) {
    let mut prefixes: Vec<Vec<u8>> = (0..6)
        .map(|_| {
            let bytes =
                (0..1 + random.below(2)).map(|_| [0, 1, 7, 0x80, 0xff][random.below(5) as usize]);
            bytes.collect()
        })
        .collect();
    prefixes.sort();
    prefixes.dedup();
    // None lies under another.
    prefixes.dedup_by(|next, before| next.starts_with(before));
    let mut scan = snapshot.scan(table, Some(&prefixes[0]), None).unwrap();
    for prefix in prefixes {
        let under = expected.iter().filter(|(key, _)| key.starts_with(&prefix));
        let mut is_there = scan.seek(&prefix).unwrap();
        for (key, value) in under {
            assert!(is_there, "{key:?} under {prefix:?}");
            assert_eq!((scan.key(), scan.value()), (&key[..], &value[..]));
            if random.below(8) == 0 {
                break;
            }
            is_there = scan.advance_within(&prefix).unwrap();
        }
    }
}

/// Compares a snapshot with the model: scans, bounded scans, look-ups of present and absent keys.
fn check(snapshot: &StateSnapshot, model: &Model, random: &mut Random) {
    for table in TABLES {
        let expected = table_of_model(model, table);
        assert_eq!(scan_all(snapshot, table, None, None), expected);
        assert_eq!(snapshot.is_table_empty(table).unwrap(), expected.is_empty());
        assert!(snapshot.may_hold(table).unwrap() || expected.is_empty());
        check_prefixes(snapshot, table, &expected, random);
        let bounds: Vec<Vec<u8>> = (0..2)
            .map(|_| {
                (0..random.below(3))
                    .map(|_| random.below(256) as u8)
                    .collect()
            })
            .collect();
        let within: Vec<_> = expected
            .iter()
            .filter(|(key, _)| *key >= bounds[0] && *key < bounds[1])
            .cloned()
            .collect();
        assert_eq!(
            scan_all(snapshot, table, Some(&bounds[0]), Some(&bounds[1])),
            within
        );
        let mut keys: Vec<Vec<u8>> = expected.iter().map(|(key, _)| key.clone()).collect();
        keys.extend((0..10).map(|_| vec![random.below(256) as u8; random.below(4) as usize]));
        keys.sort();
        let found = snapshot
            .get_many(table, &BinaryArray::from_iter_values(&keys))
            .unwrap();
        for (index, key) in keys.iter().enumerate() {
            let wanted = model.get(&full_key(table, key));
            let got = (!found.is_null(index)).then(|| found.value(index).to_vec());
            assert_eq!(got.as_ref(), wanted, "{key:?} of {table:?}");
        }
    }
}

#[test]
fn merge_keeps_the_newest_entry_and_drops_what_it_may() {
    for seed in 1..200 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut runs = Vec::new();
        let mut with_tombstones = BTreeMap::new();
        for _ in 0..random.below(9) {
            let count = random.below(60);
            let entries = random_entries(&mut random, count);
            let mut run = run_of(&entries);
            if random.below(4) == 0 {
                let table = TABLES[random.below(4) as usize];
                run.drop_tables(&[table]);
                with_tombstones.retain(|key: &Vec<u8>, _| key[..8] != table.0.to_be_bytes());
            }
            with_tombstones.extend(entries);
            runs.insert(0, run);
        }
        let newest_first: Vec<&Run> = runs.iter().collect();
        let merged = Run::merge(&newest_first, false);
        assert_eq!(entries_of(&merged), with_tombstones, "seed {seed}");
        let live = Run::merge(&newest_first, true);
        with_tombstones.retain(|_, value| value.is_some());
        assert_eq!(entries_of(&live), with_tombstones, "seed {seed}");
        assert!(live.dropped_tables().is_empty());
        let again = Run::decode(&merged.encode()).unwrap();
        assert_eq!(entries_of(&again), entries_of(&merged));
        assert_eq!(again.dropped_tables(), merged.dropped_tables());
    }
}

#[test]
fn concat_joins_ascending_tables() {
    let part = |table: u64, keys: &[&[u8]]| {
        let mut builder = RunBuilder::new();
        for key in keys {
            builder.push(&full_key(TableId(table), key), Some(key));
        }
        builder.finish()
    };
    let all = Run::concat(vec![
        Run::default(),
        part(1, &[b"a", b"b"]),
        part(2, &[]),
        part(3, &[b"", b"z"]),
    ]);
    assert_eq!(all.len(), 4);
    assert_eq!(all.key(2), full_key(TableId(3), b""));
    assert_eq!(all.value(3), Some(&b"z"[..]));
    assert_eq!(all.table_range(TableId(1)), 0..2);
    assert_eq!(all.table_range(TableId(2)), 2..2);
    assert_eq!(all.lower_bound(0, &full_key(TableId(3), b"b")), 3);
}

#[test]
fn damaged_run_files_are_told_and_cost_no_memory() {
    let mut random = Random(7);
    let mut run = run_of(&random_entries(&mut random, 300));
    run.drop_tables(&[TableId(9)]);
    let whole = run.encode();
    for cut in 0..whole.len() {
        assert!(Run::decode(&whole[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << random.below(8);
        assert!(Run::decode(&flipped).is_err(), "flipped at {at}");
    }
    for _ in 0..2_000 {
        let length = random.below(200) as usize;
        let mut garbage: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        if length > 40 {
            garbage[..8].copy_from_slice(&whole[..8]);
            garbage[length - 4..].copy_from_slice(b"TMRN");
        }
        assert!(Run::decode(&garbage).is_err());
    }
    assert!(Run::decode(&Run::default().encode()).unwrap().is_empty());
}

fn options(limit_bytes: usize, spill_bytes: usize) -> StateStoreOptions {
    StateStoreOptions {
        budget: MemoryBudget::new(limit_bytes),
        spill_bytes,
    }
}

#[test]
fn store_equals_a_map_over_spills_merges_snapshots_and_reopening() {
    let usual = 1..25;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a));
        let folder = tempfile::tempdir().unwrap();
        let identity = Uuid::from_u128(u128::from(seed));
        // Some stores spill every other batch, some never.
        let spill_bytes = [1 << 10, 8 << 10, 1 << 30][random.below(3) as usize];
        let open =
            || StateStore::open(folder.path(), identity, options(1 << 30, spill_bytes)).unwrap();
        let mut store = open();
        let mut model = Model::new();
        let mut kept_runs: Vec<(u64, Arc<Run>)> = Vec::new();
        let mut snapshots = Vec::new();
        for batch_id in 0..120u64 {
            let count = random.below(40);
            let entries = random_entries(&mut random, count);
            let mut run = run_of(&entries);
            if random.below(10) == 0 {
                let table = TABLES[random.below(4) as usize];
                run.drop_tables(&[table]);
                drop_from_model(&mut model, table);
            }
            apply_to_model(&mut model, &entries);
            let run = Arc::new(run);
            kept_runs.push((batch_id, Arc::clone(&run)));
            store.apply(batch_id, run).unwrap();
            assert_eq!(store.snapshot().batch_id(), Some(batch_id));
            if random.below(6) == 0 {
                store.mirror_now();
            }
            if random.below(8) == 0 {
                snapshots.push((store.snapshot(), model.clone()));
            }
            if random.below(4) == 0 {
                check(&store.snapshot(), &model, &mut random);
            }
            if random.below(30) == 0 {
                // A restart: readers let go, the cold tier says where it stands.
                for (snapshot, model) in snapshots.drain(..) {
                    check(&snapshot, &model, &mut random);
                }
                drop(store);
                store = open();
                let cold = store.cold_batch();
                for (batch_id, run) in &kept_runs {
                    if cold.is_none_or(|cold| *batch_id > cold) {
                        store.apply(*batch_id, Arc::clone(run)).unwrap();
                    }
                }
                check(&store.snapshot(), &model, &mut random);
            }
        }
        store.wait_until_idle().unwrap();
        check(&store.snapshot(), &model, &mut random);
        for (snapshot, model) in snapshots {
            check(&snapshot, &model, &mut random);
        }
        assert!(store.stats().memory_runs <= 10, "{:?}", store.stats());
    }
}

#[test]
fn identity_guards_local_files_and_destroy_forgets_them() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("p");
    let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let store = StateStore::open(&dir, mine, options(1 << 30, 1 << 30)).unwrap();
    assert_eq!(store.cold_batch(), None);
    let mut base = RunBuilder::new();
    base.push(&full_key(TableId(1), b"k"), Some(b"old"));
    store.ingest_base(7, base.finish()).unwrap();
    assert_eq!(store.cold_batch(), Some(7));
    assert!(
        store.apply(7, Arc::new(Run::default())).is_err(),
        "batches ascend"
    );
    let reader = store.snapshot();
    drop(store);
    drop(reader);
    let error = StateStore::open(&dir, other, options(1 << 30, 1 << 30)).unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::Damaged);
    let store = StateStore::open(&dir, mine, options(1 << 30, 1 << 30)).unwrap();
    assert_eq!(store.snapshot().batch_id(), Some(7));
    let reader = store.snapshot();
    drop(store);
    // A reader that still holds the old files does not keep the next store from starting empty.
    StateStore::destroy(&dir).unwrap();
    let store = StateStore::open(&dir, other, options(1 << 30, 1 << 30)).unwrap();
    assert_eq!(store.cold_batch(), None);
    store.ingest_base(1, Run::default()).unwrap();
    let keys = BinaryArray::from_iter_values([b"k"]);
    assert_eq!(reader.get_many(TableId(1), &keys).unwrap().value(0), b"old");
    assert!(
        store
            .snapshot()
            .get_many(TableId(1), &keys)
            .unwrap()
            .is_null(0)
    );
}

#[test]
fn memory_is_accounted_for_and_freed() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(1 << 30, 1 << 30);
    let budget = Arc::clone(&options.budget);
    let store = StateStore::open(folder.path(), Uuid::nil(), options).unwrap();
    let mut random = Random(3);
    for batch_id in 0..50 {
        store
            .apply(batch_id, Arc::new(run_of(&random_entries(&mut random, 50))))
            .unwrap();
    }
    store.wait_until_idle().unwrap();
    assert_eq!(budget.used_bytes() as u64, store.stats().memory_bytes);
    assert!(budget.used_bytes() > 0);
    drop(store);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn spills_when_the_shared_budget_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(40 << 20, 1 << 30);
    let budget = Arc::clone(&options.budget);
    let store = StateStore::open(folder.path(), Uuid::nil(), options).unwrap();
    let value = vec![7u8; 1_000];
    for batch_id in 0..40u64 {
        let mut builder = RunBuilder::new();
        for row in 0..2_000u64 {
            let key = full_key(TableId(4), &(row * 40 + batch_id).to_be_bytes());
            builder.push(&key, Some(&value));
        }
        store.apply(batch_id, Arc::new(builder.finish())).unwrap();
    }
    store.wait_until_idle().unwrap();
    assert!(store.cold_batch().is_some(), "it spilled");
    assert!(!budget.is_over(), "{} bytes in use", budget.used_bytes());
    let mut scan = store.snapshot().scan(TableId(4), None, None).unwrap();
    let mut rows = 0u64;
    while scan.advance().unwrap() {
        assert_eq!(scan.key(), rows.to_be_bytes());
        rows += 1;
    }
    assert_eq!(rows, 80_000);
}

#[test]
fn a_mirror_follows_spills_and_goes_when_memory_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(200 << 20, 1 << 20);
    let budget = Arc::clone(&options.budget);
    let store = StateStore::open(folder.path(), Uuid::nil(), options).unwrap();
    let apply = |batch_id: u64| {
        let mut builder = RunBuilder::new();
        for row in 0..3_000u64 {
            let key = full_key(TableId(4), &(row * 100 + batch_id).to_be_bytes());
            builder.push(&key, Some(&[batch_id as u8; 400]));
        }
        store.apply(batch_id, Arc::new(builder.finish())).unwrap();
        store.wait_until_idle().unwrap();
    };
    let check = |batches: u64| {
        let mut scan = store.snapshot().scan(TableId(4), None, None).unwrap();
        for row in 0..3_000 {
            for batch in 0..batches {
                assert!(scan.advance().unwrap());
                assert_eq!(scan.key(), (row * 100 + batch).to_be_bytes());
            }
        }
        assert!(!scan.advance().unwrap());
    };
    for batch_id in 0..3 {
        apply(batch_id);
    }
    assert!(store.cold_batch().is_some(), "it spilled");
    store.mirror_now();
    assert!(
        store.snapshot().cold().is_none(),
        "readers find all in memory"
    );
    check(3);
    let mirrored = store.stats().memory_bytes;
    assert!(mirrored > 3 * 3_000 * 400, "{mirrored} bytes");
    for batch_id in 3..6 {
        apply(batch_id);
    }
    assert!(
        store.snapshot().cold().is_none(),
        "what was spilled later stays too"
    );
    check(6);
    budget.account(200 << 20);
    assert!(!budget.make_room(), "the copy alone is not enough");
    assert!(store.stats().memory_bytes < 2 << 20, "{:?}", store.stats());
    assert!(store.snapshot().cold().is_some());
    check(6);
    store.mirror_now();
    assert!(store.snapshot().cold().is_some(), "there is no room");
    budget.account(-(200 << 20));
    store.mirror_now();
    assert!(store.snapshot().cold().is_none());
    check(6);
}

#[test]
fn a_store_at_rest_mirrors_itself_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(100 << 20, 1 << 20);
    let budget = Arc::clone(&options.budget);
    let store = StateStore::open(folder.path(), Uuid::nil(), options).unwrap();
    budget.account(90 << 20);
    let mut builder = RunBuilder::new();
    for row in 0..20_000u64 {
        builder.push(&full_key(TableId(4), &row.to_be_bytes()), Some(&[7; 100]));
    }
    store.apply(1, Arc::new(builder.finish())).unwrap();
    store.wait_until_idle().unwrap();
    std::thread::park_timeout(std::time::Duration::from_millis(200));
    assert!(store.snapshot().cold().is_some(), "there is no room");
    budget.account(-(90 << 20));
    for _ in 0..1_000 {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        if store.snapshot().cold().is_none() {
            return;
        }
    }
    panic!("nothing was mirrored");
}

#[test]
fn a_batch_that_is_not_durable_never_reaches_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let open = || StateStore::open(folder.path(), Uuid::nil(), options(1 << 30, 1 << 10)).unwrap();
    let run_of_batch = |batch_id: u64| {
        let mut builder = RunBuilder::new();
        for row in 0..100u64 {
            let key = full_key(TableId(4), &row.to_be_bytes());
            builder.push(&key, Some(&[batch_id as u8; 50]));
        }
        Arc::new(builder.finish())
    };
    let newest = |store: &StateStore| {
        let key = BinaryArray::from_iter_values([7u64.to_be_bytes()]);
        let found = store.snapshot().get_many(TableId(4), &key).unwrap();
        found.value(0)[0]
    };
    let store = open();
    store.apply(1, run_of_batch(1)).unwrap();
    store.apply_pending(2, run_of_batch(2)).unwrap();
    store.wait_until_idle().unwrap();
    assert_eq!((store.cold_batch(), newest(&store)), (Some(1), 2));
    assert!(store.apply_pending(3, run_of_batch(3)).is_err());
    drop(store);
    let store = open();
    assert_eq!(
        (store.snapshot().batch_id(), newest(&store)),
        (Some(1), 1),
        "what was not durable is gone"
    );
    store.apply_pending(2, run_of_batch(2)).unwrap();
    store.confirm(2);
    store.wait_until_idle().unwrap();
    assert_eq!((store.cold_batch(), newest(&store)), (Some(2), 2));
}

#[test]
fn history_store_scans_both_ways_and_deletes_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let store = SystemStore::open(folder.path()).unwrap();
    let pairs: Vec<_> = (0..100u8).map(|n| (vec![b'm', n], vec![n; 3])).collect();
    store.put_all(&pairs, true).unwrap();
    store.put_all(&[(vec![b'n'], vec![])], false).unwrap();
    let newest = store.scan(b"m", b"n", true, 2).unwrap();
    assert_eq!(newest, vec![pairs[99].clone(), pairs[98].clone()]);
    assert_eq!(
        store.scan(&[b'm', 10], &[b'm', 13], false, 99).unwrap(),
        pairs[10..13]
    );
    store.delete_range(&[b'm', 0], &[b'm', 98]).unwrap();
    drop(store);
    let store = SystemStore::open(folder.path()).unwrap();
    assert_eq!(store.scan(b"m", b"n", false, 99).unwrap(), pairs[98..]);
    assert_eq!(store.get(b"n").unwrap(), Some(vec![]));
    assert_eq!(store.get(&[b'm', 5]).unwrap(), None);
    assert!(store.scan(b"z", b"a", false, 9).unwrap().is_empty());
}

#[test]
fn what_came_and_went_in_memory_leaves_no_trace() {
    for seed in 1..100 {
        let mut random = Random(seed * 0x51ed_270b);
        // What lies below the runs, and what stands after each of them.
        let older: BTreeMap<Vec<u8>, u64> = (0..10)
            .map(|n| (full_key(TABLES[0], &[n]), u64::from(n)))
            .collect();
        let mut model = older.clone();
        let mut runs: Vec<Run> = Vec::new();
        for batch in 0..6 {
            let mut builder = RunBuilder::new();
            for n in 0..20 {
                let key = full_key(TABLES[0], &[n]);
                match random.below(4) {
                    0 if model.remove(&key).is_some() => {
                        builder.push_as(EntryKind::Tombstone, &key, &[]);
                    }
                    1 => {
                        let was_there = model.insert(key.clone(), batch).is_some();
                        let kind = EntryKind::of_value(was_there);
                        builder.push_as(kind, &key, &batch.to_le_bytes());
                    }
                    _ => {}
                }
            }
            runs.insert(0, builder.finish());
        }
        // Merged at once or in two steps, over what lies below.
        let at_once = Run::merge(&runs.iter().collect::<Vec<_>>(), false);
        let cut = 1 + random.below(4) as usize;
        let halves = [&runs[..cut], &runs[cut..]]
            .map(|half| Run::merge(&half.iter().collect::<Vec<_>>(), false));
        let in_steps = Run::merge(&[&halves[0], &halves[1]], false);
        for merged in [at_once, in_steps] {
            let mut shown = older.clone();
            for index in 0..merged.len() {
                let key = merged.key(index).to_vec();
                match merged.value(index) {
                    Some(value) => {
                        let value = u64::from_le_bytes(value.try_into().unwrap());
                        shown.insert(key, value);
                    }
                    None => {
                        let below = shown.remove(&key);
                        assert!(below.is_some(), "seed {seed}: a trace of {key:?}");
                    }
                }
            }
            assert_eq!(shown, model, "seed {seed}");
        }
    }
}

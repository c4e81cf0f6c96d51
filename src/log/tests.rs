//! The log against a plain model, through crashes, failures and damage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};

use super::simulation::{Random, SimulatedStorage};
use super::*;
use crate::error::ErrorKind;

fn rows(values: &[(i64, Option<&str>)]) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]));
    RecordBatch::try_new(
        schema,
        vec![
            Arc::new(Int64Array::from_iter_values(values.iter().map(|v| v.0))),
            Arc::new(values.iter().map(|v| v.1).collect::<StringArray>()),
        ],
    )
    .unwrap()
}

fn inserts(ids: std::ops::Range<i64>) -> ChangeBatch {
    let values: Vec<_> = ids
        .map(|i| (i, (i % 3 != 0).then_some("some name")))
        .collect();
    ChangeBatch::inserts(rows(&values))
}

/// Commit, id, weight of all rows of a relation.
fn contents(log: &Arc<DurableLog>, relation: u32) -> Vec<(u64, i64, i64)> {
    let mut result = Vec::new();
    for entry in log.read(relation, 0, log.end()) {
        let entry = entry.unwrap();
        let ids = entry.changes.rows().column(0);
        let ids = ids.as_any().downcast_ref::<Int64Array>().unwrap();
        for i in 0..ids.len() {
            result.push((entry.commit, ids.value(i), entry.changes.weight(i)));
        }
    }
    result
}

#[tokio::test]
async fn rows_and_weights_come_back_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let log = DurableLog::open(dir.path()).unwrap();
    let identity = log.identity();
    let mut transaction = log.begin();
    transaction.append(7, &inserts(0..3)).await.unwrap();
    let changed = ChangeBatch::weighted(
        rows(&[(1, None), (1, Some("b"))]),
        Int64Array::from(vec![-1, 2]),
    );
    transaction.append(8, &changed).await.unwrap();
    transaction.append(7, &changed).await.unwrap();
    transaction.set_marker("create t");
    assert_eq!(transaction.commit().await.unwrap(), 1);
    let mut given_up = log.begin();
    given_up.append(7, &inserts(50..60)).await.unwrap();
    drop(given_up);
    let mut second = log.begin();
    second.append(8, &inserts(5..6)).await.unwrap();
    assert_eq!(second.commit().await.unwrap(), 2);

    drop(log);
    let log = DurableLog::open(dir.path()).unwrap();
    assert_eq!(log.identity(), identity);
    assert_eq!(
        (log.end(), log.end_of(7), log.end_of(8), log.end_of(9)),
        (2, 1, 2, 0)
    );
    assert_eq!(
        contents(&log, 7),
        vec![(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 1, -1), (0, 1, 2)]
    );
    assert_eq!(contents(&log, 8), vec![(0, 1, -1), (0, 1, 2), (1, 5, 1)]);
    assert!(log.has_marker("create t") && !log.has_marker("create u"));
    let entry = log.read(7, 0, 1).next().unwrap().unwrap();
    assert_eq!(entry.changes.rows(), inserts(0..3).rows());
}

#[tokio::test]
async fn marks_take_back_written_and_buffered_frames() {
    let dir = tempfile::tempdir().unwrap();
    let log = DurableLog::open(dir.path()).unwrap();
    let mut transaction = log.begin();
    transaction.append(1, &inserts(0..2)).await.unwrap();
    let mark = transaction.mark();
    transaction.append(1, &inserts(100..200_000)).await.unwrap();
    assert!(
        !transaction.written.is_empty(),
        "a large append goes to disk at once"
    );
    assert_eq!(log.end(), 0);
    transaction.rollback_to(mark);
    transaction.append(1, &inserts(2..4)).await.unwrap();
    let second = transaction.mark();
    transaction.append(1, &inserts(7..9)).await.unwrap();
    transaction.rollback_to(second);
    transaction.commit().await.unwrap();
    drop(log);
    let log = DurableLog::open(dir.path()).unwrap();
    let ids: Vec<i64> = contents(&log, 1).iter().map(|r| r.1).collect();
    assert_eq!(ids, vec![0, 1, 2, 3]);
}

#[tokio::test]
async fn a_waiter_wakes_for_its_relation() {
    let dir = tempfile::tempdir().unwrap();
    let log = DurableLog::open(dir.path()).unwrap();
    let waiter = tokio::spawn({
        let log = Arc::clone(&log);
        async move { log.wait_beyond(2, 0).await }
    });
    for (relation, done) in [(1, false), (2, true)] {
        let mut transaction = log.begin();
        transaction.append(relation, &inserts(0..1)).await.unwrap();
        transaction.commit().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(waiter.is_finished(), done);
    }
}

#[tokio::test]
async fn segments_roll_and_are_reclaimed_when_their_relation_is_forgotten() {
    let storage = SimulatedStorage::new(1);
    let open = || DurableLog::open_storage(Arc::new(storage.clone()), 4096).unwrap();
    let log = open();
    for i in 0..40 {
        let mut transaction = log.begin();
        let relation = if i < 20 { 1 } else { 2 };
        transaction
            .append(relation, &inserts(i..i + 9))
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    }
    assert!(storage.names().len() > 3);
    let kept = contents(&log, 2);
    log.forget(1).unwrap();
    assert!(!storage.names().contains(&"00000001.log".to_owned()));
    assert_eq!(log.end_of(1), 0);
    drop(log);
    let log = open();
    assert_eq!(contents(&log, 2), kept);
    assert_eq!((log.end(), log.end_of(1)), (40, 0));
    drop(log);
    let middle = storage.names()[storage.names().len() - 2].clone();
    LogStorage::remove(&storage, &middle).unwrap();
    let error = DurableLog::open_storage(Arc::new(storage.clone()), 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.primary().contains(&middle), "{error}");
}

#[tokio::test]
async fn damage_in_the_middle_is_named_and_a_torn_tail_is_dropped() {
    let storage = SimulatedStorage::new(2);
    let log = DurableLog::open_storage(Arc::new(storage.clone()), 1 << 20).unwrap();
    let mut ends = Vec::new();
    for i in 0..3 {
        let mut transaction = log.begin();
        transaction.append(1, &inserts(i..i + 2)).await.unwrap();
        transaction.commit().await.unwrap();
        ends.push(storage.length("00000001.log"));
    }
    drop(log);
    for offset in [60, ends[0] - 3, ends[0] + 70, ends[1] - 2] {
        storage.flip_bit("00000001.log", offset);
        let error = DurableLog::open_storage(Arc::new(storage.clone()), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "offset {offset}");
        assert!(error.primary().contains("00000001.log"));
        storage.flip_bit("00000001.log", offset);
    }
    storage.flip_bit("00000001.log", ends[1] + 70);
    let log = DurableLog::open_storage(Arc::new(storage.clone()), 1 << 20).unwrap();
    assert_eq!(
        log.end(),
        2,
        "the last commit cannot be told from a torn one"
    );
    assert_eq!(storage.length("00000001.log"), ends[1]);
}

#[tokio::test]
async fn a_lost_or_cut_log_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, note) = (dir.path().join("log"), dir.path().join("log_end"));
    let file = folder.join("00000001.log");
    let open = || DurableLog::open_noted(&folder, &note);
    let log = open().unwrap();
    let mut length_of_two = 0;
    for i in 0..5 {
        let mut transaction = log.begin();
        transaction.append(1, &inserts(i..i + 2)).await.unwrap();
        transaction.commit().await.unwrap();
        if i == 1 {
            length_of_two = std::fs::metadata(&file).unwrap().len() as usize;
        }
    }
    drop(log);
    let whole = std::fs::read(&file).unwrap();
    for length in [0, 20, length_of_two, length_of_two + 11, whole.len() - 1] {
        std::fs::write(&file, &whole[..length]).unwrap();
        let error = open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{length}");
        assert!(error.primary().contains("log/00000001.log"), "{error}");
        assert!(error.primary().ends_with("up to commit 5"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap().len(), length, "not changed");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Damaged);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&file, &whole).unwrap();
    let log = open().unwrap();
    assert_eq!(log.end(), 5);
    log.require(5).unwrap();
}

#[tokio::test]
async fn numbers_that_were_taken_in_are_not_given_out_again() {
    let storage = SimulatedStorage::new(3);
    let log = DurableLog::open_storage(Arc::new(storage), 1 << 20).unwrap();
    let commit = async |log: &Arc<DurableLog>| {
        let mut transaction = log.begin();
        transaction.append(1, &inserts(0..2)).await.unwrap();
        transaction.commit().await
    };
    assert_eq!(commit(&log).await.unwrap(), 1);
    log.require(1).unwrap();
    let error = log.require(10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.primary().contains("ends at commit 1,"), "{error}");
    assert!(error.primary().contains("commit 10 "), "{error}");
    assert_eq!(commit(&log).await.unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(log.end(), 1);
}

/// What a simulated client tried to commit.
#[derive(Debug, Clone)]
struct Attempt {
    id: i64,
    relations: Vec<u32>,
    acknowledged: Option<u64>,
}

async fn attempt(log: &Arc<DurableLog>, id: i64, random: &mut Random) -> Attempt {
    let relations: Vec<u32> = (1..=3).filter(|_| random.one_in(2)).collect();
    let mut transaction = log.begin();
    let mut failed = false;
    for relation in &relations {
        let count = random.below(40) as i64 + 1;
        let ids = vec![(id, None); count as usize];
        let changes = ChangeBatch::inserts(rows(&ids));
        failed |= transaction.append(*relation, &changes).await.is_err();
        if random.one_in(5) {
            failed |= transaction.spill().await.is_err();
        }
    }
    let acknowledged = match failed {
        true => None,
        false => transaction.commit().await.ok(),
    };
    Attempt {
        id,
        relations,
        acknowledged,
    }
}

fn check(log: &Arc<DurableLog>, attempts: &[Attempt], seed: u64) {
    let mut seen: BTreeMap<i64, BTreeMap<u32, u64>> = BTreeMap::new();
    for relation in 1..=3 {
        for (commit, id, _) in contents(log, relation) {
            let earlier = seen.entry(id).or_default().insert(relation, commit);
            assert!(
                earlier.is_none_or(|c| c == commit),
                "seed {seed}: {id} came twice"
            );
        }
    }
    for attempt in attempts.iter().filter(|a| !a.relations.is_empty()) {
        match seen.get(&attempt.id) {
            None => assert_eq!(
                attempt.acknowledged, None,
                "seed {seed}: {attempt:?} is lost"
            ),
            Some(found) => {
                let relations: Vec<u32> = found.keys().copied().collect();
                assert_eq!(
                    relations, attempt.relations,
                    "seed {seed}: part of {attempt:?}"
                );
                if let Some(position) = attempt.acknowledged {
                    assert!(found.values().all(|c| c + 1 == position), "seed {seed}");
                }
            }
        }
    }
}

#[tokio::test]
async fn acknowledged_commits_survive_every_crash() {
    let usual = 0..300;
    for seed in crate::soak::seeds(usual.clone()) {
        let _tried = crate::soak::tried(seed, &usual);
        let mut random = Random::new(seed + 1);
        let storage = SimulatedStorage::new(seed + 7);
        let mut attempts = Vec::new();
        for round in 0..4 {
            let log = DurableLog::open_storage(Arc::new(storage.clone()), 6000)
                .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            check(&log, &attempts, seed);
            if random.one_in(2) {
                storage.fail_one_in(Some(6));
            }
            storage.stop_after(random.below(60));
            for i in 0..8 {
                let id = (round * 100 + i) * 10;
                let mut clients = Vec::new();
                for client in 0..1 + random.below(3) as i64 {
                    let log = Arc::clone(&log);
                    let mut random = Random::new(random.next());
                    clients.push(async move { attempt(&log, id + client, &mut random).await });
                }
                attempts.extend(futures::future::join_all(clients).await);
            }
            drop(log);
            storage.crash();
        }
        let log = DurableLog::open_storage(Arc::new(storage.clone()), 6000).unwrap();
        check(&log, &attempts, seed);
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_transaction_and_nothing_else() {
    let storage = SimulatedStorage::new(5);
    let log = DurableLog::open_storage(Arc::new(storage.clone()), 1 << 20).unwrap();
    let mut first = log.begin();
    first.append(1, &inserts(0..2)).await.unwrap();
    first.commit().await.unwrap();
    storage.fail_one_in(Some(1));
    let mut refused = log.begin();
    refused.append(1, &inserts(2..4)).await.unwrap();
    let error = refused.commit().await.unwrap_err();
    assert_eq!(error.sqlstate(), crate::error::sqlstate::DISK_FULL);
    assert_eq!(error.kind(), ErrorKind::Transient);
    storage.fail_one_in(None);
    let mut later = log.begin();
    later.append(1, &inserts(4..5)).await.unwrap();
    assert_eq!(later.commit().await.unwrap(), 2);
    let ids: Vec<i64> = contents(&log, 1).iter().map(|r| r.1).collect();
    assert_eq!(ids, vec![0, 1, 4]);
}

//! `RESET`, `REBUILD STATE`, `REWIND`: what begins or runs again.

use super::*;

async fn reset(store: &Arc<FaultStore>) -> Result<Archived> {
    let held = hold(store).await?;
    let survey = held.survey(Some(BATCHES - 1), Depth::Quick).await?;
    survey.require_own()?;
    let archived = held.archive_all(&survey).await?;
    let positions = BTreeMap::from([("s".to_owned(), position(33))]);
    begin_again(&held, survey.next_first_batch(), positions).await?;
    Ok(archived)
}

#[tokio::test]
async fn a_reset_moves_all_aside_and_numbers_on() {
    let mut crashes = 0;
    for call in 1.. {
        let store = six_batches().await;
        let before = store.contents();
        store.crash_at_call(store.calls() + call);
        let is_done = reset(&store).await.is_ok();
        store.crash_at_call(0);
        store.restart();
        if !is_done {
            crashes += 1;
            reset(&store).await.unwrap();
        }
        let (checkpoint, resume) = open(&store).await.unwrap();
        let point = resume_point(resume);
        assert_eq!(point.last_commit, None);
        let [first] = &point.replay[..] else {
            panic!("{:?}", point.replay);
        };
        // Cut short after it was planned, it is the batch after that.
        assert!(first.batch_id >= BATCHES && first.batch_id <= BATCHES + 1);
        assert_eq!(checkpoint.first_batch_id(), first.batch_id);
        assert_eq!(first.sources["s"].start, position(33));
        assert_eq!(first.sources["s"].end, position(33));
        let contents = store.contents();
        for (path, bytes) in before.iter().filter(|(path, _)| *path != "lease") {
            let kept = contents
                .iter()
                .any(|(p, b)| p.starts_with(".archive/") && p.ends_with(path) && b == bytes);
            assert!(kept, "{path} is in the archive");
        }
        // Its first batch commits, and the next opening goes on from there.
        let run = run_of_keys([77], Some(b"v"));
        let commit = CommitEntry {
            batch_id: first.batch_id,
            ..committed(0)
        };
        commit_batch_as(&checkpoint, &commit, &run).await.unwrap();
        drop(checkpoint);
        let (checkpoint, resume) = open(&store).await.unwrap();
        let last = resume_point(resume).last_commit.unwrap().batch_id;
        assert_eq!(load_keys(&checkpoint, last).await.unwrap().len(), 1);
        if is_done {
            break;
        }
    }
    assert!(crashes >= 4, "{crashes} crashes");
}

/// The entry that fixes where a reset begins is not planned anew when it is torn.
#[tokio::test]
async fn a_torn_beginning_is_told() {
    let store = six_batches().await;
    reset(&store).await.unwrap();
    store.tamper("offsets/6", |bytes| bytes.truncate(20));
    let error = open(&store).await.unwrap_err();
    assert!(
        error.primary().contains("offset entry of batch 6"),
        "{error}"
    );
    // Without metadata it is still known which batch is the first.
    let store = six_batches().await;
    reset(&store).await.unwrap();
    store.lose(|path| path == "metadata");
    repaired(&store).await.unwrap();
    let (checkpoint, _) = open(&store).await.unwrap();
    assert_eq!(checkpoint.first_batch_id(), 6);
}

async fn rebuilt(store: &Arc<FaultStore>) -> Result<Rebuild> {
    let held = hold(store).await?;
    let survey = held.survey(Some(BATCHES - 1), Depth::Quick).await?;
    let rebuild = plan_rebuild(&survey).expect("the offset log is whole");
    held.give_up_state(&survey, &rebuild).await?;
    Ok(rebuild)
}

#[tokio::test]
async fn lost_state_is_computed_again_from_the_first_batch() {
    let mut crashes = 0;
    for call in 1.. {
        let store = six_batches().await;
        store.lose(|path| path.starts_with("state/"));
        assert!(matches!(
            surveyed(&store).await.verdict(),
            Decision::Stop(Stop::StateLost { .. })
        ));
        store.crash_at_call(store.calls() + call);
        let is_done = rebuilt(&store).await.is_ok();
        store.crash_at_call(0);
        store.restart();
        if !is_done {
            crashes += 1;
            rebuilt(&store).await.unwrap();
        }
        assert_eq!(keys_after_replay(&store).await, 6);
        if is_done {
            break;
        }
    }
    assert!(crashes >= 2, "{crashes} crashes");
    // Retention took the beginning: the views are filled from the sources.
    let store = six_batches().await;
    store.lose(|path| path.starts_with("state/") || path == "offsets/0" || path == "commits/0");
    let Rebuild::Fill(commit) = rebuilt(&store).await.unwrap() else {
        panic!("the offset log does not reach back");
    };
    assert_eq!(commit.entry.batch_id, 5);
    let (_, resume) = open(&store).await.unwrap();
    let point = resume_point(resume);
    let last = point.last_commit.unwrap();
    assert_eq!((last.batch_id, last.views.len()), (5, 0));
    assert_eq!(last.source_offsets, committed(5).source_offsets);
    assert!(point.replay.is_empty());
}

#[tokio::test]
async fn a_rewind_runs_the_batches_after_it_again() {
    let store = six_batches().await;
    let survey = surveyed(&store).await;
    assert_eq!(survey.restorable_batches(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(survey.restorable_before(9_500), Some(2));
    assert_eq!(survey.restorable_before(10), None);
    hold(&store)
        .await
        .unwrap()
        .rewind(&survey, 2)
        .await
        .unwrap();
    let (_, resume) = open(&store).await.unwrap();
    let point = resume_point(resume);
    assert_eq!(point.last_commit.unwrap().batch_id, 2);
    let replay: Vec<OffsetEntry> = point.replay.iter().map(without_sinks).collect();
    assert_eq!(replay, [planned(3), planned(4), planned(5)]);
    for entry in &point.replay {
        assert!(entry.goes_to("k") && !entry.goes_to("later"));
    }
    assert_eq!(keys_after_replay(&store).await, 6);
    // A batch whose state is damaged is reached from an older one.
    let store = six_batches().await;
    store.tamper("state/3.run", |bytes| garble(bytes));
    let survey = surveyed(&store).await;
    let expected = Restorable {
        batch_id: 4,
        state_batch_id: 2,
    };
    assert_eq!(restorable(&survey, 4), Some(expected));
    let files = survey.files_at(1);
    assert!(
        files.contains(&"state/1.run".to_owned()) && !files.contains(&"state/2.run".to_owned())
    );
}

//! `REPAIR`: entries made again, what is refused, and kills in the middle.

use super::*;

/// Every entry that is lost or damaged in the middle comes back as it was.
#[tokio::test]
async fn entries_are_written_anew_as_they_were() {
    for batch_id in 1..BATCHES {
        for is_lost in [true, false] {
            let store = six_batches().await;
            let path = format!("offsets/{batch_id}");
            match is_lost {
                true => store.lose(|p| p == path),
                false => assert!(store.tamper(&path, |bytes| garble(bytes))),
            }
            let repaired = repaired(&store).await.unwrap();
            assert_eq!(repaired.findings.len(), 1, "{:?}", repaired.findings);
            let file = OffsetFile::decode(&store.contents()[&path]).unwrap();
            assert_eq!(file.entry, planned(batch_id));
            assert_eq!(repaired.archive.is_some(), !is_lost);
            let kept = store
                .contents()
                .keys()
                .any(|p| p.starts_with(".archive/") && p.ends_with(&path));
            assert_eq!(kept, !is_lost, "what was damaged is kept");
        }
    }
    for batch_id in 1..BATCHES - 1 {
        for is_lost in [true, false] {
            let store = six_batches().await;
            let path = format!("commits/{batch_id}");
            match is_lost {
                true => store.lose(|p| p == path),
                false => assert!(store.tamper(&path, |bytes| garble(bytes))),
            }
            repaired(&store).await.unwrap();
            let file: CommitFile = format::decode_one(&store.contents()[&path]).unwrap();
            let expected = CommitEntry {
                metrics: Vec::new(),
                ..committed(batch_id)
            };
            assert_eq!(file.entry, expected);
            assert_eq!(file.state.unwrap().manifest_batch_id, Some(batch_id));
            assert!(restorable(&surveyed(&store).await, batch_id).is_some());
        }
    }
}

/// Several neighbours at once: each proves the next.
#[tokio::test]
async fn a_stretch_of_entries_is_written_anew() {
    let store = six_batches().await;
    store.lose(|path| matches!(path, "commits/2" | "commits/3" | "offsets/1" | "metadata"));
    store.tamper("offsets/5", |bytes| garble(bytes));
    let dry = plan(&surveyed(&store).await, hand()).unwrap();
    assert_eq!(
        dry.iter().filter(|f| f.mend.is_some()).count(),
        5,
        "{dry:#?}"
    );
    repaired(&store).await.unwrap();
    assert_eq!(keys_after_replay(&store).await, 6);
    let again = repaired(&store).await.unwrap();
    assert!(again.findings.is_empty(), "{:?}", again.findings);
    for batch_id in [1, 5] {
        let bytes = &store.contents()[&format!("offsets/{batch_id}")];
        assert_eq!(OffsetFile::decode(bytes).unwrap().entry, planned(batch_id));
    }
}

/// What the neighbours do not prove is left, told, and named with the statement that helps.
#[tokio::test]
async fn what_is_not_proven_is_not_made_up() {
    let store = six_batches().await;
    // Nothing tells where batch 5 ended.
    store.lose(|path| matches!(path, "offsets/4" | "commits/4" | "commits/3"));
    store.tamper("offsets/5", |bytes| garble(bytes));
    let before = store.contents();
    let findings = plan(&surveyed(&store).await, hand()).unwrap();
    assert_eq!(before, store.contents(), "a plan changes nothing");
    let unmended: Vec<_> = findings.iter().filter(|f| f.statement.is_some()).collect();
    assert!(!unmended.is_empty(), "{findings:#?}");
    for finding in unmended {
        let statement = finding.statement.as_deref().unwrap();
        assert!(
            statement.starts_with("RESET CHECKPOINT OF p"),
            "{statement}"
        );
    }
    // A view that joined in the gap: no entry is written that might lack it.
    let store = six_batches().await;
    store.lose(|path| path == "commits/2");
    let file: CommitFile = format::decode_one(&store.contents()["commits/3"]).unwrap();
    let mut joined = file.clone();
    joined.entry.views.insert("w".into(), "g".into());
    store.tamper("commits/3", |bytes| *bytes = format::encode_one(&joined));
    let findings = repaired(&store).await.unwrap().findings;
    assert!(findings[0].mend.is_none(), "{findings:?}");
    assert!(!store.contents().contains_key("commits/2"));
}

#[tokio::test]
async fn metadata_is_written_with_the_own_id_and_another_s_is_refused() {
    for is_lost in [true, false] {
        let store = six_batches().await;
        match is_lost {
            true => store.lose(|path| path == "metadata"),
            false => assert!(store.tamper("metadata", |bytes| *bytes = b"{\"id\"".to_vec())),
        }
        assert!(open(&store).await.is_err());
        repaired(&store).await.unwrap();
        let metadata = Metadata::decode(&store.contents()["metadata"]).unwrap();
        assert_eq!(metadata.id, identity().pipeline_id);
        assert_eq!(keys_after_replay(&store).await, 6);
    }
    let store = six_batches().await;
    let other = crate::checkpoint::tests::metadata(uuid::Uuid::from_u128(5));
    store.tamper("metadata", |bytes| *bytes = other);
    let mut before = store.contents();
    let error = repaired(&store).await.unwrap_err();
    assert!(
        error.primary().contains("belongs to another pipeline"),
        "{error}"
    );
    let survey = surveyed(&store).await;
    assert!(survey.require_own().is_err());
    let mut after = store.contents();
    before.remove("lease");
    after.remove("lease");
    assert_eq!(before, after);
}

/// Files that nothing names move aside; a torn newest entry is planned anew.
#[tokio::test]
async fn strays_and_torn_entries_move_aside() {
    let store = six_batches().await;
    let (checkpoint, _) = open(&store).await.unwrap();
    checkpoint.write_offsets(&planned(6)).await.unwrap();
    drop(checkpoint);
    store.tamper("offsets/6", |bytes| bytes.truncate(10));
    let mut contents = store.contents();
    for stray in ["offsets/abc", "notes.txt", "state/9.txt", "commits/007"] {
        contents.insert(stray.to_owned(), "x".into());
    }
    store.set_contents(contents);
    let findings = repaired(&store).await.unwrap().findings;
    assert_eq!(findings.len(), 5, "{findings:#?}");
    let paths: BTreeSet<String> = store.contents().into_keys().collect();
    for stray in [
        "offsets/6",
        "offsets/abc",
        "notes.txt",
        "state/9.txt",
        "commits/007",
    ] {
        assert!(!paths.contains(stray), "{stray}");
        let kept = paths
            .iter()
            .any(|p| p.starts_with(".archive/") && p.ends_with(stray));
        assert!(kept, "{stray}");
    }
    assert_eq!(keys_after_replay(&store).await, 6);
}

/// A statement that dies in any of its writes is brought to its end by the same statement.
#[tokio::test]
async fn a_repair_that_is_cut_short_is_run_again() {
    let damage = |store: &FaultStore| {
        store.lose(|path| matches!(path, "commits/1" | "metadata"));
        store.tamper("offsets/3", |bytes| garble(bytes));
        store.tamper("offsets/5", |bytes| garble(bytes));
    };
    let mut crashes = 0;
    for call in 1.. {
        let store = six_batches().await;
        damage(&store);
        store.crash_at_call(store.calls() + call);
        if repaired(&store).await.is_ok() && !store.has_crashed() {
            break;
        }
        crashes += 1;
        store.restart();
        repaired(&store).await.unwrap();
        assert_eq!(keys_after_replay(&store).await, 6, "crash at write {call}");
    }
    assert!(crashes > 6, "{crashes} crashes");
}

/// Nothing is changed at a location that another holder may be writing to.
#[tokio::test]
async fn a_location_in_use_is_refused() {
    let store = six_batches().await;
    store.lose(|path| path == "commits/2");
    let (checkpoint, _) = open(&store).await.unwrap();
    let before = store.contents();
    let error = repaired(&store).await.unwrap_err();
    assert_eq!(error.sqlstate(), crate::error::sqlstate::OBJECT_IN_USE);
    assert!(error.hint_text().is_some(), "{error}");
    assert_eq!(store.contents(), before);
    drop(checkpoint);
    repaired(&store).await.unwrap();
    assert!(store.contents().contains_key("commits/2"));
}

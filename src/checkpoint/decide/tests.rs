//! The rules of resuming, stated as facts and answers.

use super::*;
use crate::checkpoint::CommitEntry;
use crate::checkpoint::format::StateReference;

const ID: Uuid = Uuid::from_u128(1);

fn metadata(id: Uuid) -> MetadataFact {
    MetadataFact::Whole(Metadata {
        id,
        pipeline: "q".into(),
        format_version: 1,
        fingerprint: String::new(),
        created_at_us: 0,
        first_batch_id: 0,
    })
}

/// A commit whose state is persisted up to `state`.
fn commit(batch_id: u64, state: Option<u64>) -> Fact<CommitFile> {
    Fact::Whole(CommitFile {
        pipeline_id: ID,
        epoch: 1,
        first_batch_id: 0,
        state: state.map(|batch_id| StateReference {
            batch_id,
            manifest_batch_id: Some(batch_id),
            manifest_crc32c: 1,
        }),
        entry: CommitEntry {
            batch_id,
            next_watermarks_us: BTreeMap::new(),
            watermark: None,
            closed_until: None,
            view_watermarks: BTreeMap::new(),
            initial_offsets: BTreeMap::new(),
            sinks: Default::default(),
            event_time_max_us: BTreeMap::new(),
            source_offsets: BTreeMap::new(),
            views: BTreeMap::new(),
            metrics: Vec::new(),
        },
    })
}

/// Sound facts: offsets and commits of `batches`, state persisted at each.
fn sound(batches: Range<u64>) -> Facts {
    Facts {
        pipeline_id: ID,
        catalog_batch: None,
        metadata: metadata(ID),
        offsets: batches.clone().map(|n| (n, Fact::Whole(()))).collect(),
        commits: batches.clone().map(|n| (n, commit(n, Some(n)))).collect(),
        states: batches.map(|n| (n, Fact::Whole(()))).collect(),
        has_other_files: true,
        newest_state: None,
    }
}

fn bad<T>() -> Fact<T> {
    Fact::Damaged("it is cut".into())
}

/// Start, batches to replay, number of files set aside, number of notes.
fn plan_of(facts: &Facts) -> (Option<u64>, Vec<u64>, usize, usize) {
    match resume(facts) {
        Decision::Resume(plan) => (
            plan.start,
            plan.replay,
            plan.set_aside.len(),
            plan.notes.len(),
        ),
        other => panic!("{other:?}"),
    }
}

fn stop_of(facts: &Facts) -> Stop {
    match resume(facts) {
        Decision::Stop(stop) => stop,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fresh_only_where_nothing_ever_was() {
    let mut facts = sound(0..0);
    facts.has_other_files = false;
    facts.metadata = MetadataFact::Missing;
    assert_eq!(resume(&facts), Decision::Fresh);
    facts.metadata = metadata(ID);
    assert_eq!(resume(&facts), Decision::Fresh);
    facts.catalog_batch = Some(0);
    assert!(matches!(
        stop_of(&facts),
        Stop::Older {
            newest_batch: None,
            ..
        }
    ));
    facts.metadata = MetadataFact::Missing;
    assert_eq!(stop_of(&facts), Stop::Missing { catalog_batch: 0 });
    facts.catalog_batch = None;
    facts.has_other_files = true;
    assert_eq!(stop_of(&facts), Stop::MetadataMissing);
    let mut facts = sound(0..3);
    facts.metadata = metadata(Uuid::from_u128(2));
    assert!(matches!(stop_of(&facts), Stop::Foreign { .. }));
    facts.metadata = MetadataFact::Unreadable(Unreadable::NewerVersion("2".into()));
    assert_eq!(stop_of(&facts), Stop::NewerFormat("2".into()));
}

#[test]
fn resumes_after_the_newest_commit_and_replays_what_is_beyond() {
    assert_eq!(plan_of(&sound(0..3)), (Some(2), vec![], 0, 0));
    let mut facts = sound(0..3);
    facts.offsets.insert(3, Fact::Whole(()));
    facts.catalog_batch = Some(2);
    assert_eq!(plan_of(&facts), (Some(2), vec![3], 0, 0));
    // Commit and state of batch 2 are gone although the catalog knows it: replayed.
    facts.commits.remove(&2);
    facts.states.remove(&2);
    assert_eq!(plan_of(&facts), (Some(1), vec![2, 3], 0, 0));
    facts.catalog_batch = Some(4);
    assert!(matches!(
        stop_of(&facts),
        Stop::Older {
            newest_batch: Some(3),
            catalog_batch: 4
        }
    ));
    // Only the first batch's offsets: from the empty state.
    let mut facts = sound(0..0);
    facts.offsets.insert(0, Fact::Whole(()));
    assert_eq!(plan_of(&facts), (None, vec![0], 0, 0));
}

#[test]
fn lost_commits_are_never_a_fresh_start() {
    let without_commits = |offsets: Range<u64>, newest_state| {
        let mut facts = sound(offsets);
        facts.commits.clear();
        facts.newest_state = newest_state;
        facts
    };
    let lost = |oldest_offsets, newest_state| Stop::CommitsLost {
        first_batch: 0,
        oldest_offsets,
        newest_state,
    };
    // Only retained batches are there: those before them cannot run again.
    let mut retained = without_commits(18..21, Some(20));
    assert_eq!(stop_of(&retained), lost(Some(18), Some(20)));
    retained.newest_state = None;
    retained.catalog_batch = Some(19);
    assert_eq!(stop_of(&retained), lost(Some(18), None));
    assert_eq!(stop_of(&without_commits(1..2, None)), lost(Some(1), None));
    // The offset log is gone as well.
    assert_eq!(
        stop_of(&without_commits(0..0, Some(7))),
        lost(None, Some(7))
    );
    assert_eq!(
        stop_of(&without_commits(0..1, Some(7))),
        lost(Some(0), Some(7))
    );
    // One damaged commit of a later batch is not the first batch's.
    let mut one = without_commits(18..19, None);
    one.commits.insert(18, bad());
    assert!(matches!(stop_of(&one), Stop::StateLost { .. }));
    // Every batch is told: all run again, and a note says so.
    let all = without_commits(0..4, Some(3));
    assert_eq!(plan_of(&all), (None, vec![0, 1, 2, 3], 0, 1));
    // Whether the newest one committed is not known: it is not planned anew.
    let mut newest_damaged = without_commits(0..4, None);
    newest_damaged.offsets.insert(3, bad());
    assert!(matches!(
        stop_of(&newest_damaged),
        Stop::OffsetsDamaged { batch_id: 3, .. }
    ));
    // A crash before the first commit is no loss.
    for newest_state in [None, Some(0)] {
        let first = without_commits(0..1, newest_state);
        assert_eq!(plan_of(&first), (None, vec![0], 0, 0));
        assert_eq!(
            resume(&without_commits(0..0, newest_state)),
            Decision::Fresh
        );
    }
}

#[test]
fn messages_name_the_file_and_what_is_wrong() {
    for (stop, words) in [
        (
            Stop::OffsetsDamaged {
                batch_id: 11,
                why: MISSING.into(),
            },
            "\"/c/a/offsets/11\": the file is missing",
        ),
        (
            Stop::StateLost {
                newest_commit: 20,
                why: "\"/c/a/state/20.run\": its checksum is wrong".into(),
            },
            "\"/c/a/state/20.run\": its checksum is wrong",
        ),
        (
            Stop::MetadataMissing,
            "\"/c/a/metadata\": the file is missing",
        ),
        (
            Stop::CommitsLost {
                first_batch: 0,
                oldest_offsets: Some(18),
                newest_state: None,
            },
            "\"/c/a/commits\" is empty",
        ),
    ] {
        let error = stop.to_error("a", "/c/a");
        assert!(error.primary().ends_with(words), "{error}");
        assert!(!error.primary().contains("damaged"), "{error}");
        assert!(
            error.hint_text().is_some_and(|hint| hint.contains(" OF a")),
            "{error}"
        );
    }
}

#[test]
fn state_behind_its_commit_is_replayed_from_where_it_stands() {
    let mut facts = sound(0..6);
    for batch_id in 4..6 {
        facts.commits.insert(batch_id, commit(batch_id, Some(3)));
    }
    assert_eq!(plan_of(&facts), (Some(3), vec![4, 5], 0, 0));
    // Nothing persisted at all: everything runs again.
    for batch_id in 0..6 {
        facts.commits.insert(batch_id, commit(batch_id, None));
    }
    assert_eq!(plan_of(&facts), (None, (0..6).collect(), 0, 0));
    facts.offsets.remove(&0);
    assert!(matches!(
        stop_of(&facts),
        Stop::OffsetsDamaged { batch_id: 0, .. }
    ));
}

#[test]
fn damaged_entries_beyond_the_newest_commit_are_set_aside() {
    let mut facts = sound(0..3);
    facts.offsets.insert(3, bad());
    assert_eq!(plan_of(&facts), (Some(2), vec![], 1, 1));
    facts.commits.insert(2, bad());
    assert_eq!(plan_of(&facts), (Some(1), vec![2], 2, 2));
    // The catalog knows that batch 3 committed.
    facts.catalog_batch = Some(3);
    assert!(matches!(
        stop_of(&facts),
        Stop::OffsetsDamaged { batch_id: 3, .. }
    ));
    // Not the newest: what came after it was planned upon it.
    facts.catalog_batch = None;
    facts.offsets.insert(4, Fact::Whole(()));
    assert!(matches!(
        stop_of(&facts),
        Stop::OffsetsDamaged { batch_id: 3, .. }
    ));
    let mut facts = sound(0..3);
    facts.offsets.insert(2, bad());
    assert!(matches!(
        stop_of(&facts),
        Stop::OffsetsDamaged { batch_id: 2, .. }
    ));
    facts.offsets.remove(&2);
    assert!(matches!(
        stop_of(&facts),
        Stop::OffsetsDamaged { batch_id: 2, .. }
    ));
}

#[test]
fn damaged_state_falls_back_while_the_offset_log_covers_it() {
    let mut facts = sound(0..5);
    facts.states.insert(4, bad());
    facts.states.insert(3, bad());
    assert_eq!(plan_of(&facts), (Some(2), vec![3, 4], 0, 1));
    facts.offsets.remove(&3);
    assert!(matches!(
        stop_of(&facts),
        Stop::StateLost {
            newest_commit: 4,
            ..
        }
    ));
    let mut facts = sound(0..5);
    for batch_id in 0..5 {
        facts.states.insert(batch_id, bad());
    }
    assert!(matches!(
        stop_of(&facts),
        Stop::StateLost {
            newest_commit: 4,
            ..
        }
    ));
    let mut facts = sound(0..5);
    for batch_id in 0..5 {
        facts.commits.insert(batch_id, bad());
    }
    assert!(matches!(stop_of(&facts), Stop::StateLost { .. }));
    // A gap among older commits only deserves a note.
    let mut facts = sound(0..5);
    facts.commits.remove(&2);
    assert_eq!(plan_of(&facts), (Some(4), vec![], 0, 1));
}

#[test]
fn reads_no_more_than_it_needs() {
    let mut facts = sound(0..100);
    for fact in facts.offsets.values_mut() {
        *fact = Fact::Unread;
    }
    for fact in facts.commits.values_mut() {
        *fact = Fact::Unread;
    }
    facts.states.clear();
    let mut reads = Vec::new();
    loop {
        match resume(&facts) {
            Decision::Read(parts) => {
                assert!(!parts.is_empty());
                for part in parts {
                    reads.push(part);
                    match part {
                        Part::Offsets(n) => facts.offsets.insert(n, Fact::Whole(())).map(drop),
                        Part::Commit(n) => facts.commits.insert(n, commit(n, Some(n))).map(drop),
                        Part::State(n) => facts.states.insert(n, Fact::Whole(())).map(drop),
                    };
                }
            }
            Decision::Resume(plan) => {
                assert_eq!(plan.start, Some(99));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        reads,
        [Part::Commit(99), Part::Offsets(99), Part::State(99)]
    );
}

#[test]
fn retention_keeps_the_newest_and_what_was_not_persisted() {
    assert_eq!(retention_cutoff(None, None, 10), 0);
    assert_eq!(retention_cutoff(Some(100), None, 10), 0);
    assert_eq!(retention_cutoff(Some(100), Some(100), 10), 91);
    assert_eq!(retention_cutoff(Some(100), Some(100), 0), 100);
    assert_eq!(retention_cutoff(Some(100), Some(40), 10), 40);
    assert_eq!(retention_cutoff(Some(3), Some(3), 10), 0);
}

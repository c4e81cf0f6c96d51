//! What is told, and that every statement named is one.

use super::*;

#[tokio::test]
async fn a_diagnosis_tells_each_part_and_the_statement() {
    let part = |survey: &Survey, name: &str| {
        let parts = diagnose(survey, Depth::Full, 0);
        assert_eq!(parts.len(), 7);
        parts.into_iter().find(|part| part.part == name).unwrap()
    };
    let store = six_batches().await;
    let survey = surveyed(&store).await;
    for name in ["metadata", "offsets", "commits", "state", "sources", "disk"] {
        let part = part(&survey, name);
        assert_eq!((part.status, part.repair), ("ok", None), "{name}");
    }
    let commits = part(&survey, "commits");
    assert_eq!(
        (commits.count, commits.first, commits.last),
        (Some(6), Some(0), Some(5))
    );
    let guide = guide_json(&survey);
    assert_eq!(guide["offsets"], json!({"count": 6, "range": "0-5"}));
    assert!(
        guide["metadata"]
            .as_str()
            .unwrap()
            .contains("\"format_version\":1")
    );

    type Damage = fn(&FaultStore);
    let cases: [(Damage, &str, &str, &str); 7] = [
        (
            |s| s.lose(|p| p == "metadata"),
            "metadata",
            "missing",
            "REPAIR CHECKPOINT OF p;",
        ),
        (
            |s| assert!(s.tamper("metadata", |bytes| garble(bytes))),
            "metadata",
            "damaged",
            "REPAIR CHECKPOINT OF p;",
        ),
        (
            |s| s.lose(|p| p == "commits/2"),
            "commits",
            "warning",
            "REPAIR CHECKPOINT OF p;",
        ),
        (
            |s| assert!(s.tamper("offsets/5", |bytes| garble(bytes))),
            "offsets",
            "damaged",
            "REPAIR CHECKPOINT OF p;",
        ),
        (
            |s| s.lose(|p| p.starts_with("state/")),
            "state",
            "damaged",
            "REBUILD STATE OF p;",
        ),
        (
            |s| s.lose(|_| true),
            "metadata",
            "missing",
            "RESET CHECKPOINT OF p;",
        ),
        (
            |s| s.lose(|p| p == "offsets/5" || p == "commits/5"),
            "commits",
            "damaged",
            "RESTORE CHECKPOINT OF p FROM 'fault://' AT BATCH 4;",
        ),
    ];
    for (damage, name, status, statement) in cases {
        let store = six_batches().await;
        damage(&store);
        let part = part(&surveyed(&store).await, name);
        assert_eq!(part.status, status, "{part:?}");
        assert_eq!(part.repair.as_deref(), Some(statement), "{part:?}");
        crate::sql::parse(statement).unwrap();
    }
    // Another's checkpoint is not to be mended.
    let store = six_batches().await;
    let other = crate::checkpoint::tests::metadata(uuid::Uuid::from_u128(5));
    store.tamper("metadata", |bytes| *bytes = other);
    store.tamper("offsets/3", |bytes| garble(bytes));
    let survey = surveyed(&store).await;
    assert_eq!(part(&survey, "metadata").status, "foreign");
    assert_eq!(part(&survey, "offsets").repair, None);
    // One flipped byte of a run is seen, and an older state leads on.
    let store = six_batches().await;
    store.tamper("state/5.run", |bytes| garble(bytes));
    let state = part(&surveyed(&store).await, "state");
    assert_eq!(state.status, "damaged");
    assert!(
        state.detail.contains("its checksum is wrong"),
        "{}",
        state.detail
    );
    assert!(
        state.detail.contains("runs 1 batch again"),
        "{}",
        state.detail
    );
    store.lose(|path| path.starts_with("offsets/"));
    let guide = guide_json(&surveyed(&store).await);
    assert_eq!(guide["offsets"], "MISSING");
    store.lose(|path| path == "metadata");
    assert_eq!(
        guide_json(&surveyed(&store).await)["metadata"],
        "MISSING_OR_CORRUPT"
    );
}

/// Every hint of the checkpoint that names a statement names one that parses.
#[tokio::test]
async fn hints_are_statements() {
    let store = six_batches().await;
    let mut survey = surveyed(&store).await;
    survey.location = "/data/it's".to_owned();
    let stops = [
        Stop::Missing { catalog_batch: 3 },
        Stop::Older {
            newest_batch: Some(2),
            catalog_batch: 3,
        },
        Stop::Older {
            newest_batch: None,
            catalog_batch: 3,
        },
        Stop::Foreign {
            id: uuid::Uuid::from_u128(1),
            pipeline: "other".into(),
        },
        Stop::MetadataMissing,
        Stop::MetadataDamaged("cut".into()),
        Stop::OffsetsDamaged {
            batch_id: 3,
            why: "cut".into(),
        },
        Stop::CommitsLost {
            first_batch: 0,
            oldest_offsets: Some(4),
            newest_state: None,
        },
        Stop::StateLost {
            newest_commit: 3,
            why: "gone".into(),
        },
    ];
    for pipeline in ["p", "My view", "select"] {
        for stop in &stops {
            survey.identity.pipeline_name = pipeline.to_owned();
            let statement = mending_statement(stop, &survey);
            crate::sql::parse(&statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
            let error = stop.to_error(pipeline, "/data/it's");
            let hint = error.hint_text().unwrap();
            let mut found = 0;
            for verb in ["RESTORE", "RESET", "REPAIR", "REBUILD"] {
                let Some(start) = hint.find(verb) else {
                    continue;
                };
                let statement = hint[start..].split(&[',', '.'][..]).next().unwrap();
                let statement = statement
                    .split(" with a backup")
                    .next()
                    .and_then(|s| s.split(" to ").next())
                    .unwrap();
                crate::sql::parse(statement).unwrap_or_else(|e| panic!("{hint}: {statement}: {e}"));
                found += 1;
            }
            assert!(found > 0, "{hint}");
        }
    }
}

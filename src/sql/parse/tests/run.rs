//! Statements that run, show and describe.

use super::*;

#[test]
fn running() {
    let minute = Some(Duration::from_secs(60));
    for (sql, expected) in [
        ("START ALL", Statement::Start(None, None)),
        (
            "START PIPELINE p",
            Statement::Start(Some((ObjectKind::Pipeline, "p".into())), None),
        ),
        (
            "STOP MATERIALIZED VIEW v WITHIN INTERVAL '60 seconds'",
            Statement::Stop(Some((ObjectKind::MaterializedView, "v".into())), minute),
        ),
        ("STOP ALL", Statement::Stop(None, None)),
        (
            "REFRESH MATERIALIZED VIEW v",
            Statement::Refresh("v".into()),
        ),
        ("FLUSH", Statement::Flush),
        (
            "WAIT FOR v WITHIN INTERVAL '1' MINUTE",
            Statement::Wait("v".into(), minute),
        ),
        (
            "SUBSCRIBE TO v WITH (SNAPSHOT, PROGRESS = false) AFTER BATCH 7",
            Statement::Subscribe(Subscribe {
                name: "v".into(),
                snapshot: true,
                progress: false,
                after_batch: Some(7),
            }),
        ),
        (
            "EXPLAIN ANALYZE MATERIALIZED VIEW v",
            Statement::ExplainMaterializedView {
                name: "v".into(),
                analyze: true,
            },
        ),
        ("DESCRIBE TABLE t", Statement::Describe("t".into())),
        ("DESC t", Statement::Describe("t".into())),
        (
            "SHOW MATERIALIZED VIEWS",
            Statement::ShowObjects(ObjectKind::MaterializedView),
        ),
        ("SHOW STREAMS", Statement::ShowObjects(ObjectKind::Stream)),
        (
            "SHOW CREATE STREAM s",
            Statement::ShowCreate(ObjectKind::Stream, "s".into()),
        ),
        (
            "SHOW OPTIONS FOR MATERIALIZED VIEW",
            Statement::ShowOptions("materialized view".into()),
        ),
        (
            "SHOW OPTIONS FOR 'kafka'",
            Statement::ShowOptions("kafka".into()),
        ),
        ("ANALYZE VERBOSE t (a)", Statement::NoOperation("ANALYZE")),
        ("LISTEN Jobs", Statement::Listen("jobs".into())),
        ("UNLISTEN *", Statement::Unlisten(None)),
        (
            "NOTIFY \"Jobs\", 'it''s'",
            Statement::Notify {
                channel: "Jobs".into(),
                payload: "it's".into(),
            },
        ),
        ("VACUUM", Statement::NoOperation("VACUUM")),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
    assert!(matches!(
        one("EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1"),
        Statement::Explain(_)
    ));
    assert!(matches!(
        one("EXPLAIN ANALYZE SELECT 1"),
        Statement::Explain(_)
    ));
}

//! Tests of the whole library: definitions, rows, views and restarts together.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use futures::TryStreamExt;

use super::*;

async fn open(dir: &tempfile::TempDir) -> Database {
    Database::open(dir.path(), DatabaseOptions::default())
        .await
        .unwrap()
}

/// Rows of integers, sorted.
async fn rows(database: &Database, sql: &str) -> Vec<Vec<Option<i64>>> {
    let batches = database
        .query(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| cast(c, &DataType::Int64).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cell = |c: &datafusion::arrow::array::ArrayRef| {
                c.as_primitive::<Int64Type>().iter().nth(row).flatten()
            };
            rows.push(columns.iter().map(cell).collect());
        }
    }
    rows.sort();
    rows
}

fn some(values: &[&[i64]]) -> Vec<Vec<Option<i64>>> {
    values
        .iter()
        .map(|row| row.iter().copied().map(Some).collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_follows_its_stream_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE STREAM s (k BIGINT, v BIGINT);
             CREATE MATERIALIZED VIEW totals (key, n, total) WITH (trigger = 'continuous') AS
               SELECT k, count(*), sum(v) FROM s GROUP BY k",
        )
        .await
        .unwrap();
    database
        .execute("INSERT INTO s VALUES (1, 10), (2, 5), (1, NULL); FLUSH")
        .await
        .unwrap();
    let totals = "SELECT key, n, total FROM totals";
    assert_eq!(
        rows(&database, totals).await,
        some(&[&[1, 2, 10], &[2, 1, 5]])
    );
    database.close().await.unwrap();
    drop(database);

    let database = open(&dir).await;
    database
        .execute("INSERT INTO s VALUES (2, 7); FLUSH")
        .await
        .unwrap();
    assert_eq!(
        rows(&database, totals).await,
        some(&[&[1, 2, 10], &[2, 2, 12]])
    );
    let metrics =
        "SELECT sum(num_input_rows) FROM streaming_metrics_log WHERE stream_name = 'totals'";
    assert_eq!(rows(&database, metrics).await, some(&[&[4]]));
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_rows_of_a_transaction_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute("BEGIN; CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT); INSERT INTO t VALUES (1, 2), (3, 4); COMMIT")
        .await
        .unwrap();
    let failed = database
        .execute("BEGIN; CREATE TABLE u (a BIGINT); INSERT INTO t VALUES (5, 6); INSERT INTO t VALUES (1, 1); COMMIT")
        .await
        .unwrap_err();
    assert_eq!(failed.sqlstate(), "23505");
    database
        .execute("CREATE TABLE copied AS SELECT a + 1 AS a, b FROM t WHERE b > 2")
        .await
        .unwrap();
    let check = async |database: &Database| {
        assert_eq!(
            rows(database, "SELECT a, b FROM t").await,
            some(&[&[1, 2], &[3, 4]])
        );
        assert_eq!(
            rows(database, "SELECT a, b FROM copied").await,
            some(&[&[4, 4]])
        );
        let error = database.query("SELECT * FROM u").await.unwrap_err();
        assert_eq!(error.sqlstate(), "42P01");
    };
    check(&database).await;
    database.close().await.unwrap();
    drop(database);
    check(&open(&dir).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_joins_views_of_one_batch_with_views_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
             CREATE MATERIALIZED VIEW m WITH (trigger = 'continuous') AS SELECT v, count(*) AS n FROM t GROUP BY v;
             CREATE VIEW big AS SELECT v, n FROM m WHERE n > 1;
             CREATE MATERIALIZED VIEW over_view AS SELECT count(*) AS total FROM big",
        )
        .await
        .unwrap();
    database
        .execute("INSERT INTO t VALUES (1, 7), (2, 7), (3, 8); FLUSH")
        .await
        .unwrap();
    database
        .execute("UPDATE t SET v = 8 WHERE k = 1; DELETE FROM t WHERE k = 2; FLUSH")
        .await
        .unwrap();
    let joined = "SELECT t.k, b.n FROM big b JOIN t ON t.v = b.v";
    assert_eq!(rows(&database, joined).await, some(&[&[1, 2], &[3, 2]]));
    assert_eq!(
        rows(&database, "SELECT total FROM over_view").await,
        some(&[&[1]])
    );
    let pipelines = rows(
        &database,
        "SELECT count(DISTINCT pipeline) FROM streaming_queries",
    )
    .await;
    assert_eq!(
        pipelines,
        some(&[&[1]]),
        "a view over views runs in their pipeline"
    );
    let error = database
        .execute("DROP MATERIALIZED VIEW m")
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
    database.execute("DROP TABLE t CASCADE").await.unwrap();
    assert!(database.engine_status().queries.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_stores_the_types_that_its_definition_tells() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY);
             CREATE MATERIALIZED VIEW ranked AS SELECT k, row_number() OVER (ORDER BY k DESC) AS r FROM t",
        )
        .await
        .unwrap();
    database
        .execute("INSERT INTO t VALUES (5), (7); FLUSH")
        .await
        .unwrap();
    let ranked = "SELECT * FROM ranked";
    assert_eq!(rows(&database, ranked).await, some(&[&[5, 2], &[7, 1]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_gives_the_contents_and_then_each_change() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
             CREATE MATERIALIZED VIEW m WITH (trigger = 'continuous') AS SELECT k, v FROM t",
        )
        .await
        .unwrap();
    database
        .execute("INSERT INTO t VALUES (1, 10), (2, 20); FLUSH")
        .await
        .unwrap();
    let (_, mut changes) = database.subscribe("m", true).await.unwrap();
    let mut next = async || {
        let batch = changes.try_next().await.unwrap().unwrap();
        let kinds = batch.column(1).as_string::<i32>();
        let values = batch.column(3).as_primitive::<Int64Type>();
        let pairs = kinds.iter().zip(values.iter());
        let mut rows: Vec<_> = pairs
            .map(|(kind, value)| (kind.unwrap().to_owned(), value.unwrap()))
            .collect();
        rows.sort();
        rows
    };
    let pair = |kind: &str, value| (kind.to_owned(), value);
    assert_eq!(next().await, [pair("insert", 10), pair("insert", 20)]);
    database
        .execute("UPDATE t SET v = 11 WHERE k = 1")
        .await
        .unwrap();
    assert_eq!(
        next().await,
        [pair("update_after", 11), pair("update_before", 10)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_cannot_be_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute("CREATE STREAM s (a BIGINT)")
        .await
        .unwrap();
    for (sql, code) in [
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM streaming_queries",
            "0A000",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT nothing FROM s",
            "42703",
        ),
        (
            "CREATE MATERIALIZED VIEW v WITH (pipline = 'p') AS SELECT a FROM s",
            "42704",
        ),
        (
            "CREATE SINK k FROM s WITH (connector = 'files', location = '/tmp/x', password = SECRET none)",
            "42704",
        ),
    ] {
        let error = database.execute(sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
    }
    assert_eq!(
        rows(&database, "SELECT count(*) FROM streaming_pipelines").await,
        some(&[&[0]])
    );
    database.execute("DROP STREAM s").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_log_is_refused_and_its_numbers_stay_taken() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE STREAM s (k BIGINT);
             CREATE MATERIALIZED VIEW n WITH (trigger = 'continuous') AS SELECT count(*) FROM s",
        )
        .await
        .unwrap();
    for _ in 0..5 {
        database
            .execute("INSERT INTO s VALUES (1); FLUSH")
            .await
            .unwrap();
    }
    database.close().await.unwrap();
    drop(database);
    let segment = dir.path().join("log").join("00000001.log");
    std::fs::write(&segment, b"").unwrap();
    let refused = Database::open(dir.path(), DatabaseOptions::default()).await;
    let error = refused.map(drop).unwrap_err();
    assert_eq!(error.sqlstate(), "XX001");
    assert!(error.primary().contains("log/00000001.log"), "{error}");
    // Even where nobody knows any more how far the log went, the view's checkpoint does.
    std::fs::remove_file(dir.path().join("catalog").join("log_end")).unwrap();
    let database = open(&dir).await;
    let error = database.execute("FLUSH").await.unwrap_err();
    assert!(error.primary().contains("lost rows"), "{error}");
    let error = database
        .execute("INSERT INTO s VALUES (1)")
        .await
        .unwrap_err();
    assert!(error.primary().contains("ends at commit 0,"), "{error}");
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_commits_stop_the_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir).await;
    database
        .execute(
            "CREATE STREAM s (k BIGINT);
             CREATE MATERIALIZED VIEW n WITH (trigger = 'continuous', min_batches_to_retain = 3) AS
               SELECT k, count(*) FROM s GROUP BY k",
        )
        .await
        .unwrap();
    for _ in 0..12 {
        database
            .execute("INSERT INTO s VALUES (1); FLUSH")
            .await
            .unwrap();
    }
    database.close().await.unwrap();
    drop(database);
    let checkpoint = dir.path().join("checkpoints").join("n");
    std::fs::remove_dir_all(checkpoint.join("commits")).unwrap();
    let database = open(&dir).await;
    let error = database
        .execute("INSERT INTO s VALUES (1); FLUSH")
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), "XX001");
    assert!(error.primary().contains("checkpoints/n/commits"), "{error}");
    assert!(error.hint_text().unwrap().contains("RESET CHECKPOINT OF n"));
    database.close().await.unwrap();
}

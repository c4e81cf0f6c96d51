//! Changes of rows through a session: parameters, blocks, savepoints, COPY, several sessions.

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use futures::TryStreamExt;

use super::batch_texts;
use crate::error::{Result, sqlstate};
use crate::session::{CopyIn, Parameter, Session, StatementResult};
use crate::types::SqlType;
use crate::{Database, DatabaseOptions};

async fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, DatabaseOptions::default())
        .await
        .unwrap()
}

/// Runs statements; tags of commands, and rows as text.
async fn run(session: &mut Session, sql: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (statement, _) in session.parse(sql)? {
        match session.execute(&statement, &[]).await? {
            StatementResult::Rows { stream, .. } => {
                let batches: Vec<RecordBatch> = stream.try_collect().await?;
                lines.extend(batches.iter().flat_map(batch_texts));
            }
            StatementResult::Command { tag } => lines.push(tag),
            _ => panic!("{sql} is a COPY"),
        }
    }
    Ok(lines)
}

async fn start_copy(session: &mut Session, sql: &str) -> CopyIn {
    let (statement, _) = session.parse(sql).unwrap().remove(0);
    match session.execute(&statement, &[]).await.unwrap() {
        StatementResult::CopyIn(copy) => copy,
        _ => panic!("{sql} is no COPY FROM STDIN"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_and_savepoints_keep_and_take_back() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    let mut session = database.session("ada");
    let mut other = database.session("eve");
    run(
        &mut session,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT DEFAULT 'd')",
    )
    .await
    .unwrap();
    let lines = run(
        &mut session,
        "BEGIN; INSERT INTO t VALUES (1, 'a'), (2, DEFAULT); SAVEPOINT s;
         UPDATE t SET v = v || '!' WHERE id = 1 RETURNING *; DELETE FROM t WHERE id = 2;
         SELECT * FROM t ORDER BY id; ROLLBACK TO s; SELECT * FROM t ORDER BY id",
    )
    .await
    .unwrap();
    assert_eq!(
        lines,
        [
            "BEGIN",
            "INSERT 0 2",
            "SAVEPOINT",
            "1|a!",
            "DELETE 1",
            "1|a!",
            "ROLLBACK",
            "1|a",
            "2|d"
        ]
    );
    assert!(run(&mut other, "SELECT * FROM t").await.unwrap().is_empty());
    run(&mut session, "COMMIT").await.unwrap();
    assert_eq!(
        run(&mut other, "SELECT count(*) FROM t").await.unwrap(),
        ["2"]
    );
    run(
        &mut session,
        "BEGIN; DELETE FROM t; CREATE TABLE u (a INT); INSERT INTO u VALUES (1)",
    )
    .await
    .unwrap();
    run(&mut session, "ROLLBACK").await.unwrap();
    run(
        &mut session,
        "BEGIN; CREATE TABLE w (a INT); INSERT INTO w VALUES (1), (1); COMMIT",
    )
    .await
    .unwrap();
    database.close().await.unwrap();
    drop((session, other, database));
    let database = open(dir.path()).await;
    let mut session = database.session("ada");
    let lines = run(&mut session, "SELECT * FROM t ORDER BY id; SELECT a FROM w").await;
    assert_eq!(lines.unwrap(), ["1|a", "2|d", "1", "1"]);
    let error = run(&mut session, "INSERT INTO u VALUES (1)")
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::UNDEFINED_TABLE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_have_the_types_of_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    let mut session = database.session("ada");
    run(
        &mut session,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, d DATE, n NUMERIC(8,2), s SMALLINT)",
    )
    .await
    .unwrap();
    let sql = "INSERT INTO t (v, id, d, n) VALUES ($1, $2 + 1, $3, $4)
               ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v AS text";
    let (insert, _) = session.parse(sql).unwrap().remove(0);
    let described = session.describe(&insert, &[]).await.unwrap();
    let numeric = SqlType::Numeric {
        precision: 8,
        scale: 2,
    };
    assert_eq!(
        described.parameters,
        [SqlType::Text, SqlType::Integer, SqlType::Date, numeric]
    );
    let columns = described.columns.unwrap();
    assert_eq!(columns.field(0).data_type(), &DataType::Int64);
    assert_eq!(columns.field(1).name(), "text");
    let parameters = [
        ScalarValue::from("x"),
        ScalarValue::from(4_i64),
        ScalarValue::Date32(Some(0)),
        ScalarValue::Decimal128(Some(150), 8, 2),
    ]
    .map(Parameter::untyped);
    for _ in 0..2 {
        let result = session.execute(&insert, &parameters).await.unwrap();
        let StatementResult::Rows { stream, tag, .. } = result else {
            panic!("RETURNING gives rows");
        };
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        assert_eq!(tag, "INSERT 0");
        assert_eq!(
            batches.iter().flat_map(batch_texts).collect::<Vec<_>>(),
            ["5|x"]
        );
    }
    let (update, _) = session
        .parse("UPDATE t SET s = $1, v = $2 || v WHERE id = $3")
        .unwrap()
        .remove(0);
    let described = session.describe(&update, &[]).await.unwrap();
    assert_eq!(described.parameters[0], SqlType::SmallInt);
    assert_eq!(described.parameters[2], SqlType::BigInt);
    assert!(described.columns.is_none());
    let parameters = [
        ScalarValue::Int16(Some(7)),
        ScalarValue::from("y"),
        ScalarValue::from(5_i64),
    ]
    .map(Parameter::untyped);
    session.execute(&update, &parameters).await.unwrap();
    assert_eq!(
        run(&mut session, "SELECT * FROM t").await.unwrap(),
        ["5|yx|1970-01-01|1.50|7"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_commit_alone_or_with_their_block() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    let mut session = database.session("ada");
    run(
        &mut session,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)",
    )
    .await
    .unwrap();
    let rows = |copy: &CopyIn, ids: Vec<i64>| {
        let texts: StringArray = ids.iter().map(|i| Some(format!("v{i}"))).collect();
        let columns: Vec<datafusion::arrow::array::ArrayRef> = vec![
            std::sync::Arc::new(Int64Array::from(ids)),
            std::sync::Arc::new(texts),
        ];
        RecordBatch::try_new(copy.schema.clone(), columns).unwrap()
    };
    let mut copy = start_copy(&mut session, "COPY t FROM STDIN").await;
    let first = rows(&copy, vec![3, 1]);
    copy.writer.write(first).await.unwrap();
    let second = rows(&copy, vec![2]);
    copy.writer.write(second).await.unwrap();
    assert_eq!(
        run(&mut session, "SELECT count(*) FROM t").await.unwrap(),
        ["0"]
    );
    assert_eq!(copy.writer.finish().await.unwrap(), 3);
    assert_eq!(
        run(&mut session, "SELECT * FROM t").await.unwrap(),
        ["1|v1", "2|v2", "3|v3"]
    );
    // Dropped without an end: nothing is kept.
    let mut copy = start_copy(&mut session, "COPY t FROM STDIN").await;
    let first = rows(&copy, vec![9]);
    copy.writer.write(first).await.unwrap();
    drop(copy);
    run(&mut session, "BEGIN").await.unwrap();
    let mut copy = start_copy(&mut session, "COPY t (id, v) FROM STDIN").await;
    let first = rows(&copy, vec![4]);
    copy.writer.write(first).await.unwrap();
    assert_eq!(copy.writer.finish().await.unwrap(), 1);
    assert_eq!(
        run(&mut session, "SELECT count(*) FROM t").await.unwrap(),
        ["4"]
    );
    run(&mut session, "ROLLBACK").await.unwrap();
    assert_eq!(
        run(&mut session, "SELECT count(*) FROM t").await.unwrap(),
        ["3"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_statements_that_meet_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    let mut session = database.session("ada");
    run(
        &mut session,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES (1, 0)",
    )
    .await
    .unwrap();
    let clients: Vec<_> = (0..4)
        .map(|i| {
            let mut session = database.session(&format!("client{i}"));
            tokio::spawn(async move {
                for _ in 0..25 {
                    let sql =
                        "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = t.n + 1";
                    run(&mut session, sql).await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(run(&mut session, "SELECT n FROM t").await.unwrap(), ["100"]);
    // What a block has changed is waited for.
    let mut other = database.session("eve");
    run(&mut session, "BEGIN; UPDATE t SET n = n + 1")
        .await
        .unwrap();
    let waiting =
        tokio::spawn(async move { run(&mut other, "UPDATE t SET n = n * 2").await.map(drop) });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    run(&mut session, "COMMIT").await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(run(&mut session, "SELECT n FROM t").await.unwrap(), ["202"]);
}

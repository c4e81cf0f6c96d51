//! Tests of sessions over a real database in a temporary folder.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use futures::TryStreamExt;

use datafusion::common::ScalarValue;

use super::*;
use crate::{Database, DatabaseOptions};

struct Fixture {
    database: Database,
    session: Session,
    dir: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path(), DatabaseOptions::default())
        .await
        .unwrap();
    Fixture {
        session: database.session("ada"),
        database,
        dir,
    }
}

/// Runs statements one after the other, each for itself; the rows of the last one.
async fn run(session: &mut Session, sql: &str) -> Result<Vec<RecordBatch>> {
    let mut rows = Vec::new();
    for (statement, _) in session.parse(sql)? {
        rows = match session.execute(&statement, &[]).await? {
            StatementResult::Rows { stream, .. } => stream.try_collect().await?,
            _ => Vec::new(),
        };
    }
    Ok(rows)
}

async fn code(session: &mut Session, sql: &str) -> &'static str {
    run(session, sql).await.unwrap_err().sqlstate()
}

fn numbers(rows: &[RecordBatch]) -> Vec<Option<i64>> {
    let first = |b: &RecordBatch| {
        let column = datafusion::arrow::compute::cast(
            b.column(0),
            &datafusion::arrow::datatypes::DataType::Int64,
        );
        let column = column.unwrap();
        column
            .as_primitive::<Int64Type>()
            .iter()
            .collect::<Vec<_>>()
    };
    rows.iter().flat_map(first).collect()
}

fn texts(rows: &[RecordBatch]) -> Vec<String> {
    rows.iter()
        .flat_map(|b| b.column(0).as_string::<i32>().iter().collect::<Vec<_>>())
        .map(|v| v.unwrap_or("NULL").to_owned())
        .collect()
}

#[tokio::test]
async fn a_query_has_its_columns_and_rows() {
    let mut f = fixture().await;
    let rows = run(
        &mut f.session,
        "SELECT * FROM (VALUES (1), (2), (NULL)) AS t (a) ORDER BY a",
    )
    .await
    .unwrap();
    assert_eq!(numbers(&rows), [Some(1), Some(2), None]);
    assert_eq!(code(&mut f.session, "SELECT * FROM nowhere").await, "42P01");
    assert_eq!(code(&mut f.session, "SELECT nothing").await, "42703");
}

#[tokio::test]
async fn definitions_live_and_die_with_their_transaction() {
    let mut f = fixture().await;
    let mut other = f.database.session("eve");
    run(
        &mut f.session,
        "BEGIN; CREATE STREAM s (a BIGINT, b TEXT); CREATE VIEW v AS SELECT a FROM s",
    )
    .await
    .unwrap();
    assert!(run(&mut f.session, "SHOW VIEWS").await.unwrap()[0].num_rows() == 1);
    assert_eq!(code(&mut other, "DESCRIBE s").await, "42P01");
    run(&mut f.session, "ROLLBACK").await.unwrap();
    assert_eq!(code(&mut f.session, "DESCRIBE s").await, "42P01");

    run(
        &mut f.session,
        "BEGIN; CREATE STREAM s (a BIGINT); SAVEPOINT one; CREATE STREAM t (a BIGINT)",
    )
    .await
    .unwrap();
    assert_eq!(
        code(&mut f.session, "CREATE STREAM s (a BIGINT)").await,
        "42P07"
    );
    assert_eq!(f.session.transaction_status(), TransactionStatus::Failed);
    assert_eq!(code(&mut f.session, "SELECT 1").await, "25P02");
    run(&mut f.session, "ROLLBACK TO one; COMMIT")
        .await
        .unwrap();
    assert_eq!(
        texts(&run(&mut other, "SHOW STREAMS").await.unwrap()),
        ["s"]
    );

    f.database.close().await.unwrap();
    drop((f.session, other, f.database));
    let again = Database::open(f.dir.path(), DatabaseOptions::default())
        .await
        .unwrap();
    assert_eq!(texts(&again.query("SHOW STREAMS").await.unwrap()), ["s"]);
}

#[tokio::test]
async fn drop_refuses_what_others_need_and_cascades_when_told() {
    let mut f = fixture().await;
    run(&mut f.session, "CREATE STREAM s (a BIGINT); CREATE VIEW v AS SELECT a FROM s; CREATE VIEW w AS SELECT a FROM v")
        .await
        .unwrap();
    let error = run(&mut f.session, "DROP STREAM s").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
    assert!(
        error
            .detail_text()
            .unwrap()
            .contains("view w depends on stream s"),
        "{error}"
    );
    assert_eq!(code(&mut f.session, "DROP TABLE s").await, "42809");
    assert_eq!(code(&mut f.session, "DROP STREAM nothing").await, "42P01");
    f.session.take_notices();
    run(&mut f.session, "DROP STREAM IF EXISTS nothing")
        .await
        .unwrap();
    assert!(
        f.session.take_notices()[0]
            .message
            .contains("does not exist, skipping")
    );
    run(&mut f.session, "DROP STREAM s CASCADE").await.unwrap();
    assert!(
        f.session.take_notices()[0]
            .message
            .contains("drop cascades to view v, view w")
    );
    assert_eq!(
        run(&mut f.session, "SHOW VIEWS").await.unwrap()[0].num_rows(),
        0
    );
}

#[tokio::test]
async fn names_of_columns_and_duplicates_are_checked() {
    let mut f = fixture().await;
    let s = &mut f.session;
    assert_eq!(code(s, "CREATE STREAM s (a BIGINT, a TEXT)").await, "42701");
    assert_eq!(
        code(s, "CREATE VIEW v AS SELECT 1 AS x, 2 AS x").await,
        "42701"
    );
    assert_eq!(code(s, "CREATE VIEW v AS SELECT $1").await, "42P02");
    assert_eq!(
        code(s, "CREATE TABLE streaming_queries (a BIGINT)").await,
        "42P07"
    );
    assert_eq!(
        code(s, "CREATE STREAM s (a TEXT, CONSTRAINT c EXPECT (a + 1))")
            .await
            .len(),
        5
    );
    run(
        s,
        "CREATE STREAM s (a BIGINT); CREATE STREAM IF NOT EXISTS s (b TEXT)",
    )
    .await
    .unwrap();
    run(s, "CREATE VIEW v (x, y) AS SELECT a, a + 1 FROM s")
        .await
        .unwrap();
    assert_eq!(texts(&run(s, "DESCRIBE v").await.unwrap()), ["x", "y"]);
}

#[tokio::test]
async fn parameters_are_inferred_declared_and_bound() {
    let mut f = fixture().await;
    run(&mut f.session, "CREATE STREAM s (a BIGINT, t TIMESTAMPTZ)")
        .await
        .unwrap();
    let mut describe = async |sql: &str, declared: &[Option<SqlType>]| {
        let (statement, _) = f.session.parse(sql).unwrap().pop().unwrap();
        f.session.describe(&statement, declared).await.unwrap()
    };
    let described = describe("SELECT a FROM s WHERE t > $2 AND a = $1", &[]).await;
    assert_eq!(
        described.parameters,
        [SqlType::BigInt, SqlType::TimestampTz]
    );
    let described = describe("SELECT $1 AS x", &[]).await;
    assert_eq!(described.parameters, [SqlType::Text]);
    let described = describe("SELECT $1 + 1 AS x", &[Some(SqlType::Double)]).await;
    let columns = described.columns.unwrap();
    assert_eq!(
        SqlType::from_field(&columns.fields()[0]),
        Some(SqlType::Double)
    );

    let (statement, _) = f
        .session
        .parse("SELECT $1 + $2 AS x")
        .unwrap()
        .pop()
        .unwrap();
    let values =
        [ScalarValue::Int64(Some(40)), ScalarValue::Int64(Some(2))].map(Parameter::untyped);
    let StatementResult::Rows { stream, .. } =
        f.session.execute(&statement, &values).await.unwrap()
    else {
        panic!("a query gives rows");
    };
    assert_eq!(
        numbers(&stream.try_collect::<Vec<_>>().await.unwrap()),
        [Some(42)]
    );
    let error = f
        .session
        .execute(&statement, &values[..1])
        .await
        .err()
        .unwrap();
    assert_eq!(error.sqlstate(), "42P02");
}

#[tokio::test]
async fn prepared_statements_and_cursors() {
    let mut f = fixture().await;
    let s = &mut f.session;
    run(s, "PREPARE p AS SELECT $1 + 1 AS x").await.unwrap();
    assert_eq!(
        numbers(&run(s, "EXECUTE p (41)").await.unwrap()),
        [Some(42)]
    );
    assert_eq!(code(s, "EXECUTE p").await, "42601");
    assert_eq!(code(s, "PREPARE p AS SELECT 1").await, "42P05");
    run(s, "DEALLOCATE p").await.unwrap();
    assert_eq!(code(s, "EXECUTE p (1)").await, "26000");

    assert_eq!(code(s, "DECLARE c CURSOR FOR SELECT 1").await, "25P01");
    let declare =
        "DECLARE c CURSOR FOR SELECT * FROM (VALUES (1),(2),(3),(4),(5)) AS t (a) ORDER BY a";
    run(s, &format!("BEGIN; {declare}")).await.unwrap();
    assert_eq!(
        numbers(&run(s, "FETCH 2 FROM c").await.unwrap()),
        [Some(1), Some(2)]
    );
    assert_eq!(numbers(&run(s, "FETCH 1 FROM c").await.unwrap()), [Some(3)]);
    assert_eq!(
        numbers(&run(s, "FETCH ALL FROM c").await.unwrap()),
        [Some(4), Some(5)]
    );
    assert!(numbers(&run(s, "FETCH 1 FROM c").await.unwrap()).is_empty());
    run(s, "COMMIT").await.unwrap();
    assert_eq!(code(s, "FETCH 1 FROM c").await, "34000");
}

#[tokio::test]
async fn parameters_of_the_session_follow_its_transaction() {
    let mut f = fixture().await;
    let s = &mut f.session;
    run(
        s,
        "BEGIN; SET application_name = 'x'; SET LOCAL jit = on; ROLLBACK",
    )
    .await
    .unwrap();
    assert_eq!(texts(&run(s, "SHOW application_name").await.unwrap()), [""]);
    run(s, "SET timezone = 'Europe/Berlin'").await.unwrap();
    assert_eq!(s.parameter("TimeZone").unwrap(), "Europe/Berlin");
    let other = f.database.session("eve");
    assert_eq!(other.parameter("TimeZone").unwrap(), "UTC");
    assert_eq!(code(s, "SHOW nothing").await, "42704");
    run(s, "BEGIN; BEGIN").await.unwrap();
    assert_eq!(s.take_notices()[0].sqlstate, "25001");
    run(s, "COMMIT; COMMIT").await.unwrap();
    assert_eq!(s.take_notices()[0].sqlstate, "25P01");
    assert_eq!(
        code(s, "BEGIN READ ONLY; CREATE STREAM s (a BIGINT)").await,
        "25006"
    );
}

#[tokio::test]
async fn a_statement_dropped_on_the_way_fails_its_block() {
    let mut f = fixture().await;
    run(&mut f.session, "BEGIN; CREATE STREAM s (a BIGINT)")
        .await
        .unwrap();
    f.session.is_running = true;
    assert_eq!(f.session.transaction_status(), TransactionStatus::Failed);
    assert_eq!(code(&mut f.session, "SELECT 1").await, "25P02");
    run(&mut f.session, "COMMIT").await.unwrap();
    assert_eq!(
        code(&mut f.session, "DESCRIBE s").await,
        "42P01",
        "COMMIT rolled back"
    );
}

#[tokio::test]
async fn explain_gives_the_plan_as_lines() {
    let mut f = fixture().await;
    let plan = run(&mut f.session, "EXPLAIN SELECT 1 AS a").await.unwrap();
    assert_eq!(plan[0].schema().field(0).name(), "QUERY PLAN");
    assert!(plan[0].num_rows() > 0);
    let measured = run(
        &mut f.session,
        "EXPLAIN ANALYZE SELECT count(*) FROM (VALUES (1), (2)) AS t (a)",
    );
    assert!(
        texts(&measured.await.unwrap())
            .join(" ")
            .contains("output_rows")
    );
    // Joins get pauses before they run; what stands above them is measured all the same.
    let measured = run(
        &mut f.session,
        "EXPLAIN ANALYZE SELECT count(*)
         FROM (VALUES (1), (2)) AS t (a) JOIN (VALUES (2), (3)) AS u (b) ON a < b",
    );
    let lines = texts(&measured.await.unwrap());
    let counts = lines.iter().filter(|line| line.contains("AggregateExec"));
    assert!(counts.clone().count() > 0, "{lines:?}");
    for line in counts {
        // A partial aggregate gives one row for each of its partitions.
        assert!(!line.contains("output_rows=0"), "{line}");
        assert!(line.contains("output_rows="), "{line}");
    }
}

#[tokio::test]
async fn secrets_are_used_by_name_and_never_shown() {
    let mut f = fixture().await;
    let s = &mut f.session;
    run(s, "CREATE SECRET pw AS 'hunter2'").await.unwrap();
    assert_eq!(code(s, "CREATE SECRET pw AS 'again'").await, "42710");
    run(s, "ALTER SECRET pw AS 'hunter3'").await.unwrap();
    let shown = run(s, "SHOW SECRETS").await.unwrap();
    assert_eq!(texts(&shown), ["pw"]);
    assert_eq!(shown[0].num_columns(), 1);
    run(s, "DROP SECRET pw").await.unwrap();
    assert_eq!(code(s, "DROP SECRET pw").await, "42704");
}

#[tokio::test]
async fn system_tables_answer_by_bare_names() {
    let mut f = fixture().await;
    for name in crate::catalog::system_tables::names() {
        let rows = run(&mut f.session, &format!("SELECT count(*) FROM {name}")).await;
        rows.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    run(&mut f.session, "CREATE STREAM s (a BIGINT)")
        .await
        .unwrap();
    run(
        &mut f.session,
        "CREATE VIEW failing AS SELECT stream_name FROM streaming_queries WHERE status = 'failed'",
    )
    .await
    .unwrap();
    run(&mut f.session, "SELECT * FROM failing").await.unwrap();
    let events = run(
        &mut f.session,
        "SELECT event FROM streaming_events WHERE object_name = 's' AND event <> 'statement'",
    );
    assert_eq!(texts(&events.await.unwrap()), ["created"]);
}

#[tokio::test]
async fn a_second_opener_is_refused_and_told_who_holds_it() {
    let f = fixture().await;
    let error = Database::open(f.dir.path(), DatabaseOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), "55006");
    assert!(
        error.primary().contains(&std::process::id().to_string()),
        "{error}"
    );
}

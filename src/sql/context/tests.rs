//! What a query means in our context, by running it.
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::sql::parser::Statement as DataFusionStatement;
use datafusion::sql::sqlparser::ast;

use super::*;
use crate::error::Error;
use crate::sql::rewrite::{display_name, rewrite_query};
use crate::sql::statement::Statement;

async fn run(sql: &str) -> Result<Vec<RecordBatch>> {
    let context = new_session_context(ContextOptions::default())?;
    let mut batches = Vec::new();
    for (statement, _) in crate::sql::parse(sql)? {
        let Statement::Query(query) = statement else {
            panic!("{sql} is no query")
        };
        let query = rewrite_query(*query)?;
        let statement =
            DataFusionStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let plan = context.state().statement_to_plan(statement).await?;
        batches = context.execute_logical_plan(plan).await?.collect().await?;
    }
    Ok(batches)
}

/// All values of all rows, in PostgreSQL's order of columns, separated by `|` and spaces.
pub(super) async fn values(sql: &str) -> String {
    let batches = run(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join("|"));
        }
    }
    rows.join(" ")
}

async fn error(sql: &str) -> Error {
    match run(sql).await {
        Err(e) => e,
        Ok(batches) => panic!("{sql} gave {batches:?}"),
    }
}

#[tokio::test]
async fn arithmetic_fails_where_postgres_fails() {
    for (sql, state, primary) in [
        (
            "SELECT 9223372036854775807 + 1",
            "22003",
            "bigint out of range",
        ),
        (
            "SELECT x + 1 FROM (VALUES (1), (9223372036854775807)) t(x)",
            "22003",
            "bigint out of range",
        ),
        (
            "SELECT x::int * x::int FROM (VALUES (2000000000)) t(x)",
            "22003",
            "integer out of range",
        ),
        (
            "SELECT a FROM (VALUES (1)) t(a) WHERE a - 9223372036854775807 - 10 < 0",
            "22003",
            "bigint out of range",
        ),
        (
            "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) t(x)",
            "22003",
            "bigint out of range",
        ),
        (
            "SELECT k, sum(x) FROM (VALUES (1, 9223372036854775807), (1, 1), (2, 1)) t(k, x) GROUP BY k",
            "22003",
            "bigint out of range",
        ),
        (
            "SELECT sum(x * x) FROM (VALUES (4000000000)) t(x)",
            "22003",
            "bigint out of range",
        ),
        ("SELECT 1 / 0", "22012", "division by zero"),
        (
            "SELECT x % 0 FROM (VALUES (1)) t(x)",
            "22012",
            "division by zero",
        ),
        (
            "SELECT x / 0.0 FROM (VALUES (1.5)) t(x)",
            "22012",
            "division by zero",
        ),
        (
            "SELECT 'abc'::int",
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        ),
        (
            "SELECT x::int FROM (VALUES ('1'), ('abc')) t(x)",
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        ),
        ("SELECT 3000000000::int", "22003", "integer out of range"),
        (
            "SELECT x::smallint FROM (VALUES (40000)) t(x)",
            "22003",
            "smallint out of range",
        ),
        (
            "SELECT 'soon'::timestamp",
            "22007",
            "invalid input syntax for type timestamp: \"soon\"",
        ),
        (
            "SELECT 'x'::uuid",
            "22P02",
            "invalid input syntax for type uuid: \"x\"",
        ),
        (
            "SELECT * FROM nothere",
            "42P01",
            "relation \"nothere\" does not exist",
        ),
        (
            "SELECT b FROM (VALUES (1)) t(a)",
            "42703",
            "column \"b\" does not exist",
        ),
        (
            "SELECT t.b FROM (VALUES (1)) t(a)",
            "42703",
            "column t.b does not exist",
        ),
        (
            "SELECT nofunction(1)",
            "42883",
            "function nofunction does not exist",
        ),
        (
            "SELECT a, count(*) FROM (VALUES (1)) t(a)",
            "42803",
            "column \"t.a\" must appear in the GROUP BY clause or be used in an aggregate function",
        ),
        (
            "SELECT a FROM (VALUES (1)) t(a), (VALUES (1)) u(a)",
            "42702",
            "column reference \"a\" is ambiguous",
        ),
        (
            "SELECT true + 1",
            "42883",
            "operator does not exist: boolean + integer",
        ),
        (
            "SELECT (SELECT a FROM (VALUES (1), (2)) t(a))",
            "21000",
            "more than one row returned by a subquery used as an expression",
        ),
    ] {
        let e = error(sql).await;
        assert_eq!((e.sqlstate(), e.primary()), (state, primary), "{sql}");
    }
}

#[tokio::test]
async fn arithmetic_keeps_its_values_and_names() {
    for (sql, expected) in [
        ("SELECT 1 + 2 * 3, 7 / 2, -7 / 2, 7 % 3", "7|3|-3|1"),
        (
            "SELECT x + y FROM (VALUES (1, 2), (NULL, 3)) t(x, y)",
            "3 NULL",
        ),
        (
            "SELECT 1.5::int, 2.5::int, -1.5::int, 1.5::numeric(3,1)::int, 2.5::numeric(3,1)::int",
            "2|3|-2|2|3",
        ),
        (
            "SELECT x / 0.0 FROM (VALUES (NULL::double precision)) t(x)",
            "NULL",
        ),
        (
            "SELECT a + 1 AS b, count(*) FROM (VALUES (1), (1), (2)) t(a) GROUP BY a + 1 ORDER BY b",
            "2|2 3|1",
        ),
        (
            "SELECT sum(a + 1) FROM (VALUES (1), (2)) t(a) HAVING sum(a + 1) > 4",
            "5",
        ),
        (
            "SELECT (SELECT max(u.a + 1) FROM (VALUES (1, 10)) u(k, a) WHERE u.k = t.a) FROM (VALUES (1)) t(a)",
            "11",
        ),
        (
            "SELECT DATE '2026-01-31' + 1, DATE '2026-01-31' - DATE '2026-01-01'",
            "2026-02-01|30",
        ),
    ] {
        assert_eq!(values(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn types_are_ours() {
    let batches = run(
        "SELECT now(), '2026-01-01'::timestamp, '2026-01-01 00:00+02'::timestamptz, 1::numeric, \
         'a'::varchar(3), '1'::numeric(5), '{1,2}'::int[], '00000000-0000-0000-0000-000000000001'::uuid, \
         '{}'::json, INTERVAL '1 day', '\\x00ff'::bytea, '12:00'::time",
    )
    .await
    .unwrap();
    let types: Vec<String> = batches[0]
        .schema()
        .fields()
        .iter()
        .map(|f| crate::types::SqlType::from_field(f).unwrap().to_string())
        .collect();
    assert_eq!(
        types,
        [
            "timestamp with time zone",
            "timestamp without time zone",
            "timestamp with time zone",
            "numeric(10,0)",
            "text",
            "numeric(5,0)",
            "integer[]",
            "uuid",
            "json",
            "interval",
            "bytea",
            "time without time zone"
        ]
    );
    let names: Vec<String> = batches[0]
        .schema()
        .fields()
        .iter()
        .map(|f| display_name(f.name()).to_owned())
        .collect();
    assert_eq!(names[..4], ["now", "timestamp", "timestamptz", "numeric"]);
}

#[tokio::test]
async fn windows() {
    let rows = "(SELECT * FROM (VALUES (TIMESTAMP '2026-01-01 00:07:00', 1), (TIMESTAMP '1969-12-31 23:59:59', 2), (NULL, 3)) t(ts, v))";
    let tumble = format!(
        "SELECT window_start, window_end, sum(v) FROM TUMBLE({rows}, ts, INTERVAL '10 minutes') \
         GROUP BY window_start, window_end ORDER BY 1"
    );
    assert_eq!(
        values(&tumble).await,
        "1969-12-31T23:50:00|1970-01-01T00:00:00|2 2026-01-01T00:00:00|2026-01-01T00:10:00|1"
    );
    let hop = format!(
        "SELECT window_start, window_end, v FROM HOP({rows}, ts, INTERVAL '5 minutes', INTERVAL '10 minutes') \
         WHERE v = 1 ORDER BY 1"
    );
    assert_eq!(
        values(&hop).await,
        "2026-01-01T00:00:00|2026-01-01T00:10:00|1 2026-01-01T00:05:00|2026-01-01T00:15:00|1"
    );
    let integers = "SELECT window_start, window_end, v FROM HOP((SELECT * FROM (VALUES (-1, 1), (7, 2)) t(at, v)), at, 5, 10) ORDER BY v, 1";
    assert_eq!(values(integers).await, "-10|0|1 -5|5|1 0|10|2 5|15|2");
    assert_eq!(
        error("SELECT tumble_start(TIMESTAMP '2026-01-01', INTERVAL '1 month')")
            .await
            .sqlstate(),
        "22023"
    );
    assert_eq!(
        error("SELECT tumble_start('a', 1)").await.sqlstate(),
        "42883"
    );
    let zoned = "SELECT tumble_start(TIMESTAMPTZ '2026-01-01 00:07:00+00', INTERVAL '5 minutes')";
    assert_eq!(values(zoned).await, "2026-01-01T00:05:00Z");
}

#[tokio::test]
async fn postgres_forms_run() {
    for (sql, expected) in [
        (
            "SELECT x FROM (VALUES (1), (3), (2)) t(x) ORDER BY x OFFSET 1 ROWS FETCH NEXT 1 ROW ONLY",
            "2",
        ),
        (
            "SELECT u::text, u = '00000000-0000-0000-0000-0000000000FF' FROM (SELECT '{00000000-0000-0000-0000-0000000000ff}'::uuid AS u) t",
            "00000000-0000-0000-0000-0000000000ff|true",
        ),
        (
            "SELECT t > '2026-01-01 10:30', t = '2026-01-01 10:31' FROM (SELECT TIMESTAMP '2026-01-01 10:31:00' AS t) x",
            "true|true",
        ),
        (
            "SELECT TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '5 seconds' * floor(3.7), TIMESTAMP '2026-01-01 00:00:00' + 2 * INTERVAL '1 day' / 4",
            "2026-01-01T00:00:15|2026-01-01T12:00:00",
        ),
        ("SELECT version() LIKE 'PostgreSQL 15.0 on %'", "true"),
        (
            "SELECT to_char(TIMESTAMP '2026-03-02 15:04:05', 'YYYY-MM-DD HH24:MI'), to_char(-12.5, '99.9')",
            "2026-03-02 15:04|-12.5",
        ),
        (
            "SELECT to_timestamp('02.03.2026 15:04', 'DD.MM.YYYY HH24:MI'), to_timestamp(1.5)",
            "2026-03-02T15:04:00Z|1970-01-01T00:00:01.500Z",
        ),
        (
            "SELECT to_date('20260302', 'YYYYMMDD'), to_date('2026-03-02')",
            "2026-03-02|2026-03-02",
        ),
        (
            "SELECT TIMESTAMPTZ '2026-01-01 02:00+02', TIMESTAMP '2026-01-01 10:30'",
            "2026-01-01T00:00:00Z|2026-01-01T10:30:00",
        ),
        (
            "SELECT array_to_string(ARRAY(SELECT x FROM (VALUES (1, 2), (3, 1)) t(x, y) ORDER BY y), ',')",
            "3,1",
        ),
        (
            "SELECT 'pg_x' LIKE 'pg/_%' ESCAPE '/', 'pgxx' LIKE 'pg/_%' ESCAPE '/'",
            "true|false",
        ),
        (
            "SELECT x LIKE 'a!%' || '%' ESCAPE '!' FROM (VALUES ('a%b'), ('ab')) t(x)",
            "true false",
        ),
        (
            "SELECT 'abc' SIMILAR TO '(a|b)%', 'xabc' SIMILAR TO 'a%', 'abc' ~ 'b', 'ABC' ~* 'b'",
            "true|false|true|true",
        ),
        (
            "SELECT 2 = ANY(ARRAY[1,2]), 'b' = ANY('{a,b}'), 3 <> ALL(ARRAY[1,2])",
            "true|true|true",
        ),
        (
            "SELECT array_to_string(ARRAY(SELECT x FROM (VALUES (3), (1)) t(x) ORDER BY x), ',')",
            "1,3",
        ),
        (
            "SELECT TIMESTAMPTZ '2026-06-01 12:00:00+00' AT TIME ZONE 'Europe/Berlin'",
            "2026-06-01T14:00:00",
        ),
        (
            "SELECT TIMESTAMP '2026-06-01 14:00:00' AT TIME ZONE 'Europe/Berlin'",
            "2026-06-01T12:00:00Z",
        ),
        (
            "SELECT i FROM generate_series(1, 3) AS i ORDER BY i DESC",
            "3 2 1",
        ),
        ("SELECT t.a, t.* FROM (VALUES (1, 2)) t(a, b)", "1|1|2"),
        (
            "SELECT DISTINCT lower(x) FROM (VALUES ('B'), ('a'), ('b')) t(x) ORDER BY lower(x)",
            "a b",
        ),
        (
            "SELECT count FROM (SELECT count(*) FROM (VALUES (1)) t) s",
            "1",
        ),
        (
            "SELECT x FROM (VALUES (1), (NULL), (2)) t(x) ORDER BY x",
            "1 2 NULL",
        ),
        ("SELECT ('{\"a\": {\"b\": 5}}'::json -> 'a' ->> 'b')", "5"),
        (
            "SELECT uuid_to_text('{00000000-0000-0000-0000-0000000000FF}'::uuid)",
            "00000000-0000-0000-0000-0000000000ff",
        ),
        (
            "SELECT EXTRACT(hour FROM TIMESTAMP '2026-01-01 13:00')",
            "13",
        ),
        ("SELECT \"Q\" FROM (VALUES (1)) t(\"Q\")", "1"),
        ("SELECT E'a\\tb' = 'a\tb', $$x'y$$", "true|x'y"),
    ] {
        assert_eq!(values(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn texts_are_read_and_written_as_postgres_does() {
    for (sql, expected) in [
        (
            "SELECT interval '1 day 02:03:04' = x::interval FROM (VALUES ('26:03:04'), ('1 day 02:03:04')) t(x)",
            "true true",
        ),
        (
            "SELECT interval '1 year 2 mons 3 days 04:05:06.5'::text, ('-1-2'::interval)::text, ('1 02:03'::interval)::text",
            "1 year 2 mons 3 days 04:05:06.5|-1 years -2 mons|1 day 02:03:00",
        ),
        (
            "SELECT '2024-02-03 10:00+02'::timestamptz, x::timestamp FROM (VALUES ('2024-02-03 10:00+02')) t(x)",
            "2024-02-03T08:00:00Z|2024-02-03T10:00:00",
        ),
        (
            "SELECT x::boolean FROM (VALUES ('yes'), ('on'), ('t'), ('f'), ('of'), (NULL)) t(x)",
            "true true true false false NULL",
        ),
        ("SELECT '\\x00ff'::bytea, 'a\\001'::bytea", "00ff|6101"),
        ("SELECT '\\x00ff'::bytea::text", "\\x00ff"),
        (
            "SELECT array_to_string('{1,\"2\",NULL}'::int[], ','), '{}'::int[]",
            "1,2|[]",
        ),
        (
            "SELECT '1e5'::numeric(10,2), ' 12 '::int, '-1.5'::real",
            "100000.00|12|-1.5",
        ),
        (
            "SELECT ts::text, 'x' || ts, concat(ts) FROM (VALUES (timestamp '2024-01-01 00:19:00.5')) t(ts)",
            "2024-01-01 00:19:00.5|x2024-01-01 00:19:00.5|2024-01-01 00:19:00.5",
        ),
        (
            "SELECT 100000::float8::text, '-Infinity'::float8::text, 1e20::float8::text, 1e-7::float8::text",
            "100000|-Infinity|1e+20|1e-07",
        ),
        ("SELECT 2.5::int, -2.5::int, 2.4::bigint", "3|-3|2"),
        (
            "SELECT 'abc'::varchar(2), 'é1x'::character varying(2), 12345::varchar(3)",
            "ab|é1|123",
        ),
        ("SELECT mod(7, 4), mod(-7, 4), mod(1 + 6, 2 + 2)", "3|-3|3"),
        (
            "SELECT extract(second from timestamp '2024-01-01 00:00:01.5'), extract(milliseconds from timestamp '2024-01-01 00:00:01.5')",
            "1.500000|1500.000",
        ),
        (
            "SELECT timestamptz '2024-02-03 10:00+02'::text, time '10:00'::text, true::text",
            "2024-02-03 08:00:00+00|10:00:00|true",
        ),
    ] {
        assert_eq!(values(sql).await, expected, "{sql}");
    }
    for (sql, state) in [
        ("SELECT interval '1 fortnight'", "22007"),
        ("SELECT '2024-02-30'::date", "22008"),
        ("SELECT x::time FROM (VALUES ('25:00')) t(x)", "22008"),
        ("SELECT '1e300'::real", "22003"),
        ("SELECT '\\x0af'::bytea", "22023"),
        ("SELECT '{1'::int[]", "22P02"),
        ("SELECT '{1,}'::int[]", "22P02"),
        ("SELECT '{'::json", "22P02"),
        ("SELECT 1 AS a ORDER BY 5", "42P10"),
        ("SELECT 1 AS a WHERE count(*) > 1", "42803"),
        ("SELECT 1 AS a LIMIT -1", "2201W"),
    ] {
        assert_eq!(error(sql).await.sqlstate(), state, "{sql}");
    }
}

#[tokio::test]
async fn set_operations_with_all_count_copies() {
    const LEFT: &str =
        "SELECT * FROM (VALUES (1, 'a'), (1, 'a'), (2, NULL), (2, NULL), (3, 'c')) l(i, t)";
    const RIGHT: &str =
        "SELECT * FROM (VALUES (1, 'a'), (2, NULL), (2, NULL), (2, NULL), (4, 'd')) r(i, t)";
    for (operation, expected) in [
        ("EXCEPT ALL", "1|a 3|c"),
        ("INTERSECT ALL", "1|a 2|NULL 2|NULL"),
        ("EXCEPT", "3|c"),
        ("INTERSECT", "1|a 2|NULL"),
        ("UNION", "1|a 2|NULL 3|c 4|d"),
    ] {
        let sql = format!("SELECT i, t FROM ({LEFT} {operation} {RIGHT}) x ORDER BY i, t");
        assert_eq!(values(&sql).await, expected, "{operation}");
    }
    assert_eq!(
        values("SELECT n FROM (SELECT 1.5::numeric(10,2) AS n UNION ALL SELECT x * x FROM (VALUES (2.25::numeric(10,2))) t(x)) u ORDER BY n").await,
        "1.5000 5.0625"
    );
}

#[tokio::test]
async fn rounded_numerics_compare() {
    for (sql, expected) in [
        (
            "SELECT round(1.5::numeric, 3) >= 1.25::numeric(10,2)",
            "true",
        ),
        (
            "SELECT round(1.4567::numeric(10,4), 2), round(1.5::numeric(3,1))",
            "1.46|2",
        ),
        (
            "SELECT round(avg(a)::numeric, 4) > 2.99::numeric(10,2) FROM (VALUES (3), (4)) t(a)",
            "true",
        ),
        (
            "SELECT a FROM (VALUES (3), (4)) t(a) GROUP BY a HAVING round(sum(a)::numeric, 1) < 3.5::numeric(10,2)",
            "3",
        ),
        ("SELECT round(2.345::float8, 2), round(7)", "2.35|7"),
    ] {
        assert_eq!(values(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn subqueries_are_values_with_three_states() {
    const U1: &str = "(VALUES (1, 1), (2, NULL), (3, 6)) u1(id, b)";
    const U2: &str = "(VALUES (1, 5), (2, NULL)) u2(id, b)";
    const W: &str = "(VALUES (1, 1), (5, 5), (NULL, 2)) w(b, id)";
    for (sql, expected) in [
        (
            format!("SELECT id FROM {U1} WHERE 4 NOT IN (SELECT b FROM {U2})"),
            "",
        ),
        (
            format!("SELECT id FROM {U1} WHERE abs(4) NOT IN (SELECT b FROM {U2})"),
            "",
        ),
        (
            format!("SELECT id FROM {U1} WHERE 4 NOT IN (SELECT id FROM {U2}) ORDER BY id"),
            "1 2 3",
        ),
        (
            format!("SELECT id FROM {U1} WHERE NULL::bigint NOT IN (SELECT b FROM {U2})"),
            "",
        ),
        (
            format!("SELECT id FROM {U1} WHERE b NOT IN (SELECT id FROM {U2})"),
            "3",
        ),
        (
            format!("SELECT id FROM {U1} WHERE (b IN (SELECT b FROM {U2})) IS NULL ORDER BY id"),
            "1 2 3",
        ),
        (
            format!("SELECT id FROM {U1} WHERE b NOT IN (SELECT b FROM {U2}) OR id = 7"),
            "",
        ),
        (
            format!(
                "SELECT id FROM {U1} WHERE b NOT IN (SELECT id FROM {U2}) OR id = 2 ORDER BY id"
            ),
            "2 3",
        ),
        (
            format!("SELECT id FROM {U1} WHERE NOT (b IN (SELECT b FROM {U2}) AND id > 0)"),
            "",
        ),
        (
            format!(
                "SELECT id FROM {U1} WHERE (b NOT IN (SELECT b FROM {U2})) IS NOT TRUE ORDER BY id"
            ),
            "1 2 3",
        ),
        (
            format!(
                "SELECT id, b IN (SELECT b FROM {U2}), b IN (SELECT id FROM {U2}) FROM {U1} ORDER BY id"
            ),
            "1|NULL|true 2|NULL|NULL 3|NULL|false",
        ),
        (
            format!("SELECT b, b IN (SELECT b FROM {U2}) FROM {W} ORDER BY id"),
            "1|NULL NULL|NULL 5|true",
        ),
        (
            format!(
                "SELECT b IN (SELECT b FROM {U2} WHERE false), b NOT IN (SELECT b FROM {U2} WHERE false) FROM {W}"
            ),
            "false|true false|true false|true",
        ),
        (
            format!(
                "SELECT id, EXISTS (SELECT * FROM {U2} WHERE u2.id = u1.id) FROM {U1} ORDER BY id"
            ),
            "1|true 2|true 3|false",
        ),
        (
            format!(
                "SELECT id, NOT EXISTS (SELECT * FROM {U2} WHERE u2.b = u1.b) FROM {U1} ORDER BY id"
            ),
            "1|true 2|true 3|true",
        ),
    ] {
        assert_eq!(values(&sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn rows_compare_by_their_members() {
    const ROWS: &str =
        "(VALUES (1, 1, 2), (2, NULL, 1), (3, NULL, 2), (4, NULL, NULL)) t(id, a, b)";
    for (condition, expected) in [
        ("(a, b) = (1, 2)", "1|true 2|false 3|NULL 4|NULL"),
        ("(a, b) <> (1, 2)", "1|false 2|true 3|NULL 4|NULL"),
        ("(b, a) < (2, 5)", "1|true 2|true 3|NULL 4|NULL"),
        ("ROW(a, b) IS NULL", "1|false 2|false 3|false 4|true"),
        ("(a, b) IS NOT NULL", "1|true 2|false 3|false 4|false"),
        ("(a, b) IN ((1, 2), (1, 1))", "1|true 2|NULL 3|NULL 4|NULL"),
        (
            "(a, b) NOT IN ((5, 5), (1, 7))",
            "1|true 2|true 3|true 4|NULL",
        ),
    ] {
        let sql = format!("SELECT id, {condition} FROM {ROWS} ORDER BY id");
        assert_eq!(values(&sql).await, expected, "{condition}");
    }
    assert_eq!(
        values("SELECT x.id FROM (VALUES (1, 1, 9), (2, 7, 9), (3, NULL, 9), (4, NULL, 8)) x(id, a, f) WHERE a NOT IN (SELECT a FROM (VALUES (1, 9), (2, 9)) y(a, f) WHERE y.f = x.f) ORDER BY id").await,
        "2 4"
    );
}

#[tokio::test]
async fn filters_over_joins_tell_columns_of_one_name_apart() {
    const LEFT: &str = "(VALUES (1, true), (2, false), (3, NULL), (4, true)) ra(id, f)";
    const RIGHT: &str = "(VALUES (1, true, 1), (2, true, 2), (3, true, 3), (4, false, 4), (5, true, 9), (7, NULL, 1)) rb(id, f, b)";
    const CONDITION: &str = "CASE WHEN rb.f THEN ra.f ELSE rb.f END";
    for join in [
        format!("{LEFT} RIGHT JOIN {RIGHT} ON ra.id = rb.b"),
        format!("{RIGHT} LEFT JOIN {LEFT} ON ra.id = rb.b"),
        format!("{LEFT} FULL JOIN {RIGHT} ON ra.id = rb.b"),
    ] {
        let sql = format!("SELECT rb.id FROM {join} WHERE {CONDITION} ORDER BY rb.id");
        assert_eq!(values(&sql).await, "1", "{join}");
    }
}

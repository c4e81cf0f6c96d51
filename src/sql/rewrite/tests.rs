//! Text in, text out. The suffix of kept-apart names is shown as `#n`.
use super::*;
use crate::sql::parse;
use crate::sql::statement::Statement as Parsed;

fn rewritten(sql: &str) -> Result<String> {
    let (statement, _) = parse(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
        .remove(0);
    let Parsed::Query(query) = statement else {
        panic!("{sql} is no query")
    };
    let text = rewrite_query(*query)?.to_string();
    Ok(without_literal_types(&text).replace('\u{1}', "#"))
}

/// `1::INT` as `1`: every whole number has its type, which says nothing of the other rewrites.
fn without_literal_types(text: &str) -> String {
    let mut parts = text.split("::INT");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number: String = {
            let digits = out.chars().rev().take_while(char::is_ascii_digit);
            digits.collect()
        };
        let before = out.chars().rev().nth(number.len());
        let is_literal = !number.is_empty() && !before.is_some_and(char::is_alphanumeric);
        if !is_literal {
            out.push_str("::INT");
        }
        out.push_str(part);
    }
    out
}

#[test]
fn numbers_have_types() {
    let text = |sql: &str| {
        let (statement, _) = parse(sql).unwrap().remove(0);
        match statement {
            Parsed::Query(query) => rewrite_query(*query).unwrap().to_string(),
            _ => panic!("{sql} is no query"),
        }
    };
    for (sql, expected) in [
        ("SELECT 1 AS a", "SELECT 1::INT AS a"),
        ("SELECT 3000000000 AS a", "SELECT 3000000000 AS a"),
        ("SELECT 1.50 AS a", "SELECT '1.50'::NUMERIC(3,2) AS a"),
        ("SELECT 1e300 AS a", "SELECT '1e300'::DOUBLE PRECISION AS a"),
        ("SELECT x::numeric AS a", "SELECT to_bare_numeric(x) AS a"),
        (
            "SELECT '1.5'::numeric AS a",
            "SELECT '1.5'::NUMERIC(2,1) AS a",
        ),
        ("SELECT round(x, 2) AS a", "SELECT round(x, 2) AS a"),
        (
            "SELECT a FROM t GROUP BY 1 ORDER BY 1 LIMIT 2",
            "SELECT a FROM t GROUP BY 1 ORDER BY 1 LIMIT 2",
        ),
    ] {
        assert_eq!(text(sql), expected);
    }
}

#[test]
fn sets_and_json() {
    check(&[
        (
            "SELECT generate_series(1, a) AS s FROM t",
            "SELECT unnest(generate_series_array(1, a)) AS s FROM t",
        ),
        (
            "SELECT u FROM t, unnest(t.a) AS u",
            "SELECT u FROM t, LATERAL (SELECT unnest(t.a) AS u) AS u",
        ),
        (
            "SELECT a FROM jsonb_each('{}') WITH ORDINALITY AS e (a, b, c)",
            "SELECT a FROM (SELECT unnest(jsonb_object_keys_array('{}')) AS key, \
             unnest(jsonb_each_values_array('{}')) AS value, \
             unnest(generate_series_array(1, cardinality(jsonb_object_keys_array('{}'))::INT::BIGINT)) AS ordinality) AS e (a, b, c)",
        ),
        (
            "SELECT json_agg(x ORDER BY y) AS j FROM t",
            "SELECT json_of_array(array_agg(json_item(x) ORDER BY y)) AS j FROM t",
        ),
    ]);
}

fn check(cases: &[(&str, &str)]) {
    for (sql, expected) in cases {
        assert_eq!(&rewritten(sql).unwrap(), expected, "{sql}");
    }
}

#[test]
fn output_names() {
    check(&[
        (
            "SELECT 1, 'a'",
            "SELECT 1 AS \"?column?\", 'a' AS \"?column?#2\"",
        ),
        (
            "SELECT a, t.b, a + 1",
            "SELECT a, t.b, a + 1 AS \"?column?\"",
        ),
        (
            "SELECT count(*), SUM(x), count(y)",
            "SELECT count(*) AS \"count\", SUM(x) AS \"sum\", count(y) AS \"count#2\"",
        ),
        (
            "SELECT a.id, b.id, a.id AS x",
            "SELECT a.id, b.id AS \"id#2\", a.id AS x",
        ),
        (
            "SELECT x::int, '1'::int, 1::text",
            "SELECT x::INT AS \"x\", '1'::INT AS \"int4\", 1::TEXT AS \"text\"",
        ),
        (
            "SELECT CASE WHEN a THEN b END, CASE WHEN a THEN b ELSE c END",
            "SELECT CASE WHEN a THEN b END AS \"case\", CASE WHEN a THEN b ELSE c END AS \"c\"",
        ),
        (
            "SELECT coalesce(a, 1), true, now()",
            "SELECT coalesce(a, 1) AS \"coalesce\", true AS \"bool\", now() AS \"now\"",
        ),
        (
            "SELECT (SELECT max(v) FROM t), EXISTS (SELECT b FROM t)",
            "SELECT (SELECT max(v) AS \"max\" FROM t) AS \"max\", EXISTS (SELECT b FROM t) AS \"exists\"",
        ),
        // Beside a star that may have it too, only at the top.
        (
            "SELECT t.oid, t.* FROM t",
            "SELECT t.oid AS \"oid#1\", t.* FROM t",
        ),
        (
            "SELECT s.oid FROM (SELECT t.oid, u.* FROM t, u) s",
            "SELECT s.oid FROM (SELECT t.oid, u.* FROM t, u) s",
        ),
        (
            "SELECT 1 UNION ALL SELECT 2",
            "SELECT 1 AS \"?column?\" UNION ALL SELECT 2 AS \"?column?\"",
        ),
        (
            "SELECT DISTINCT lower(a) FROM t ORDER BY lower(a) DESC, 1",
            "SELECT DISTINCT lower(a) AS \"lower\" FROM t ORDER BY 1 DESC, 1",
        ),
        (
            "WITH c AS (SELECT max(a) FROM t) SELECT max FROM c",
            "WITH c AS (SELECT max(a) AS \"max\" FROM t) SELECT max FROM c",
        ),
    ]);
    assert_eq!(display_name("count\u{1}2"), "count");
    assert_eq!(display_name("count"), "count");
}

#[test]
fn windows_in_from() {
    check(&[
        (
            "SELECT a FROM TUMBLE(clicks, ts, INTERVAL '1 minute')",
            "SELECT a FROM (SELECT *, tumble_start(ts, INTERVAL '1 minute') AS window_start, \
             tumble_end(ts, INTERVAL '1 minute') AS window_end FROM clicks WHERE ts IS NOT NULL) AS tumble",
        ),
        (
            "SELECT w.a FROM tumble((SELECT a, b FROM t), b, 100) w JOIN u ON true",
            "SELECT w.a FROM (SELECT *, tumble_start(b, 100) AS window_start, tumble_end(b, 100) AS window_end \
             FROM (SELECT a, b FROM t) AS input WHERE b IS NOT NULL) w JOIN u ON true",
        ),
        (
            "SELECT 1 AS x FROM HOP(public.c, c.ts, '5 minutes', '10 minutes') AS h",
            "SELECT 1 AS x FROM (SELECT *, window_start + INTERVAL '10 minutes' AS window_end FROM \
             (SELECT *, unnest(hop_starts(c.ts, INTERVAL '5 minutes', INTERVAL '10 minutes')) AS window_start \
             FROM public.c WHERE c.ts IS NOT NULL) AS hop) AS h",
        ),
        (
            "SELECT * FROM SESSION(c, ts, INTERVAL '5 minutes', k, lower(l))",
            "SELECT * FROM (SELECT *, session_start(ts, INTERVAL '5 minutes') OVER (PARTITION BY k, lower(l) ORDER BY ts) \
             AS window_start, session_end(ts, INTERVAL '5 minutes') OVER (PARTITION BY k, lower(l) ORDER BY ts) \
             AS window_end FROM c WHERE ts IS NOT NULL) AS session",
        ),
        (
            "SELECT window.start, c.k, count(*) AS n FROM clicks c GROUP BY window(c.ts, '10 minutes'), c.k",
            "SELECT window_start AS start, c.k, count(*) AS n FROM (SELECT *, tumble_start(ts, INTERVAL '10 minutes') \
             AS window_start, tumble_end(ts, INTERVAL '10 minutes') AS window_end FROM clicks WHERE ts IS NOT NULL) c \
             GROUP BY window_start, window_end, c.k",
        ),
        (
            "SELECT session_window.end AS e FROM t GROUP BY k, session_window(ts, 5) HAVING max(window.start) > 1",
            "SELECT window_end AS e FROM (SELECT *, session_start(ts, 5) OVER (PARTITION BY k ORDER BY ts) AS window_start, \
             session_end(ts, 5) OVER (PARTITION BY k ORDER BY ts) AS window_end FROM t WHERE ts IS NOT NULL) AS t \
             GROUP BY k, window_start, window_end HAVING max(window_start) > 1",
        ),
        // A window over a window's result.
        (
            "SELECT * FROM TUMBLE((SELECT * FROM TUMBLE(t, a, 1)), a, 2)",
            "SELECT * FROM (SELECT *, tumble_start(a, 2) AS window_start, tumble_end(a, 2) AS window_end FROM \
             (SELECT * FROM (SELECT *, tumble_start(a, 1) AS window_start, tumble_end(a, 1) AS window_end \
             FROM t WHERE a IS NOT NULL) AS tumble) AS input WHERE a IS NOT NULL) AS tumble",
        ),
        (
            "SELECT i FROM pg_catalog.generate_series(1, 3) AS i",
            "SELECT i FROM generate_series(1, 3) AS i (i)",
        ),
    ]);
}

#[test]
fn wrong_windows() {
    for (sql, state) in [
        ("SELECT * FROM TUMBLE(t, ts)", "42883"),
        ("SELECT * FROM TUMBLE(1, ts, INTERVAL '1 s')", "42883"),
        ("SELECT * FROM TUMBLE(t, a + b, INTERVAL '1 s')", "42883"),
        ("SELECT * FROM TUMBLE(t, ts, INTERVAL '0 s')", "22023"),
        ("SELECT * FROM TUMBLE(t, ts, INTERVAL '1 month')", "22023"),
        ("SELECT * FROM TUMBLE(t, ts, -5)", "22023"),
        ("SELECT * FROM TUMBLE(t, ts, x)", "22023"),
        ("SELECT * FROM HOP(t, ts, INTERVAL '1 s')", "42883"),
        ("SELECT * FROM SESSION(t, ts)", "42883"),
        ("SELECT * FROM SESSION(t, ts, INTERVAL '-1 s', k)", "22023"),
        (
            "SELECT count(*) FROM t, u GROUP BY window(ts, '1 minute')",
            "0A000",
        ),
        (
            "SELECT window(ts, '1 s') FROM t GROUP BY window(ts, '1 s')",
            "0A000",
        ),
    ] {
        assert_eq!(rewritten(sql).expect_err(sql).sqlstate(), state, "{sql}");
    }
}

#[test]
fn postgres_forms() {
    check(&[
        (
            "SELECT c FROM t WHERE n OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default",
            "SELECT c FROM t WHERE n ~ '^(x)$'",
        ),
        (
            "SELECT pg_catalog.lower(a) FROM t",
            "SELECT lower(a) AS \"lower\" FROM t",
        ),
        (
            "SELECT a FROM t WHERE o = 'x'::regclass",
            "SELECT a FROM t WHERE o = to_regclass_oid('x')",
        ),
        (
            "SELECT a FROM t WHERE ('x'::pg_catalog.regtype)::pg_catalog.text = b",
            "SELECT a FROM t WHERE oid_to_regtype_text((to_regtype_oid('x'))) = b",
        ),
        (
            "SELECT c.oid::regclass FROM c",
            "SELECT oid_to_regclass_text(to_regclass_oid(c.oid)) AS \"oid\" FROM c",
        ),
        (
            "SELECT 'x'::regclass::oid AS o",
            "SELECT to_regclass_oid('x')::oid AS o",
        ),
        (
            "SELECT a FROM t WHERE n LIKE 'pg/_%' ESCAPE '/'",
            "SELECT a FROM t WHERE n LIKE 'pg\\_%'",
        ),
        (
            "SELECT a FROM t WHERE n NOT LIKE 'pg/_' || '%' ESCAPE '/'",
            "SELECT a FROM t WHERE n NOT LIKE like_escape('pg/_' || '%', '/')",
        ),
        (
            "SELECT a FROM t WHERE n SIMILAR TO 'a%|b_'",
            "SELECT a FROM t WHERE n ~ '^(?:a(?s:.)*|b(?s:.))$'",
        ),
        (
            "SELECT a FROM t WHERE n NOT SIMILAR TO m",
            "SELECT a FROM t WHERE n !~ similar_to_escape(m, '\\')",
        ),
        (
            "SELECT ARRAY(SELECT x FROM t) AS a",
            "SELECT (SELECT array_or_empty(array_agg(element)) FROM (SELECT x FROM t) AS elements (element)) AS a",
        ),
        (
            "SELECT ARRAY(SELECT x FROM t ORDER BY 1 DESC, y) AS a",
            "SELECT (SELECT array_or_empty(array_agg(element ORDER BY element DESC, order_2)) FROM \
             (SELECT x, y AS order_2 FROM t ORDER BY 1 DESC, y) AS elements (element, order_2)) AS a",
        ),
        (
            "SELECT INTERVAL '1 day 02:03' AS a, '5 minutes'::interval AS b, INTERVAL '5' MINUTE AS c, INTERVAL '2 days' AS d",
            "SELECT INTERVAL '0 months 1 days 7380000000 microseconds' AS a, INTERVAL '5 minutes' AS b, INTERVAL '5 minute' AS c, INTERVAL '2 days' AS d",
        ),
        (
            "SELECT '1-2'::interval AS a, INTERVAL '-1 days ago' AS b",
            "SELECT INTERVAL '14 months 0 days 0 microseconds' AS a, INTERVAL '0 months 1 days 0 microseconds' AS b",
        ),
        ("TABLE t", "SELECT * FROM t"),
        (
            "SELECT rank() OVER (ORDER BY a) FROM t",
            "SELECT rank() OVER (ORDER BY a)::BIGINT AS \"rank\" FROM t",
        ),
        (
            "SELECT a FROM t WHERE b = ANY('{x,\"y,z\"}')",
            "SELECT a FROM t WHERE b = ANY(ARRAY['x', 'y,z'])",
        ),
        (
            "SELECT ts AT TIME ZONE 'UTC' FROM t",
            "SELECT timezone('UTC', ts) AS \"timezone\" FROM t",
        ),
        ("SELECT 'x'::uuid AS u", "SELECT to_uuid('x') AS u"),
        ("SELECT current_schema AS s", "SELECT current_schema() AS s"),
        (
            "SELECT every(b) FROM t",
            "SELECT bool_and(b) AS \"every\" FROM t",
        ),
    ]);
    for (sql, state) in [
        ("SELECT a = ANY('{1')", "22P02"),
        ("SELECT a = ANY('{1,}')", "22P02"),
        ("SELECT interval '1 day 02:63'", "22007"),
        ("SELECT a OPERATOR(pg_catalog.<<|) b", "42883"),
        ("SELECT a LIKE 'b/' ESCAPE '/'", "22025"),
    ] {
        assert_eq!(rewritten(sql).expect_err(sql).sqlstate(), state, "{sql}");
    }
}

#[test]
fn returning_is_named() {
    let (statement, _) = parse("DELETE FROM t RETURNING a, a + 1").unwrap().remove(0);
    let Parsed::Delete(delete) = statement else {
        panic!()
    };
    let text = rewrite_statement(Statement::Delete(*delete))
        .unwrap()
        .to_string();
    assert!(
        without_literal_types(&text).ends_with("RETURNING a, a + 1 AS \"?column?\""),
        "{text}"
    );
}

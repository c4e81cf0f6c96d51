//! What relations and aggregates mean in our context, where the engine has another idea.

use super::tests::values;

#[tokio::test]
async fn aggregates_with_orders_of_their_own() {
    const ROWS: &str = "FROM (VALUES (1, 'x'), (3, 'y'), (2, 'z'), (3, 'w')) r(v, t)";
    for (select, expected) in [
        (
            "array_agg(DISTINCT v ORDER BY v DESC), array_agg(DISTINCT v ORDER BY v)",
            "[3, 2, 1]|[1, 2, 3]",
        ),
        (
            "array_agg(v ORDER BY t), array_agg(DISTINCT v ORDER BY v DESC)",
            "[3, 1, 3, 2]|[3, 2, 1]",
        ),
        (
            "(array_agg(t ORDER BY t DESC))[1], (array_agg(t ORDER BY t))[2]",
            "z|x",
        ),
        ("(array_agg(v))[9]", "NULL"),
    ] {
        assert_eq!(
            values(&format!("SELECT {select} {ROWS}")).await,
            expected,
            "{select}"
        );
    }
    assert_eq!(
        values(&format!(
            "SELECT grouping(v % 2), v % 2, count(*) {ROWS} GROUP BY ROLLUP (v % 2) ORDER BY 1, 2"
        ))
        .await,
        "0|0|1 0|1|3 1|NULL|4"
    );
    assert_eq!(
        values("SELECT r.a, u.x, u.n FROM (SELECT 1 AS a, ARRAY[7, 8] AS l) r CROSS JOIN LATERAL unnest(r.l) WITH ORDINALITY u(x, n) ORDER BY n").await,
        "1|7|1 1|8|2"
    );
}

#[tokio::test]
async fn orders_by_subqueries_and_groups_by_nothing() {
    const R: &str = "(VALUES (1, 5), (2, 3), (3, 9)) r(id, v)";
    const S: &str = "(VALUES (1), (1), (3)) s(k)";
    for (sql, expected) in [
        (
            format!(
                "SELECT id FROM {R} ORDER BY (SELECT count(*) FROM {S} WHERE s.k = r.id) DESC, id LIMIT 2"
            ),
            "1 3",
        ),
        (
            format!(
                "SELECT id, row_number() OVER (ORDER BY (SELECT count(*) FROM {S} WHERE s.k = r.id), id DESC) AS n FROM {R} ORDER BY id"
            ),
            "1|3 2|1 3|2",
        ),
        (
            format!(
                "SELECT v % 2 AS c, count(*) FROM {R} GROUP BY v % 2 ORDER BY (SELECT count(*) FROM {S}), c"
            ),
            "1|3",
        ),
        (
            format!("SELECT count(*), max(v) FROM {R} GROUP BY ()"),
            "3|9",
        ),
        (format!("SELECT 1 FROM {R} WHERE false GROUP BY ()"), "1"),
        (
            format!("SELECT v % 2 AS m, count(*) FROM {R} GROUP BY (), v % 2"),
            "1|3",
        ),
        ("SELECT ~5, ~(-1)::bigint, ~(~2)".to_owned(), "-6|0|2"),
    ] {
        assert_eq!(values(&sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn distinct_from_binds_as_a_comparison() {
    const R: &str = "(VALUES (1, 5, true), (NULL, 3, NULL), (3, 2, false)) r(k, v, f)";
    for (condition, expected) in [
        ("k IS DISTINCT FROM 1 AND v > 2", "3"),
        ("k IS NOT DISTINCT FROM NULL OR v = 2", "3 2"),
        (
            "f IS DISTINCT FROM true AND f IS NOT DISTINCT FROM false",
            "2",
        ),
        (
            "k IS DISTINCT FROM v - 4 AND NOT f IS DISTINCT FROM false",
            "2",
        ),
    ] {
        let sql = format!("SELECT v FROM {R} WHERE {condition} ORDER BY v DESC");
        assert_eq!(values(&sql).await, expected, "{condition}");
    }
}

#[tokio::test]
async fn grouping_sets_over_expressions_constants_and_repeats() {
    const R: &str = "(VALUES (1, 'a'), (2, 'b'), (4, 'a')) r(k, t)";
    for (sql, expected) in [
        (
            "SELECT k, count(*) FROM {R} GROUP BY CUBE (k, k)",
            "1|1 1|1 1|1 2|1 2|1 2|1 4|1 4|1 4|1 NULL|3",
        ),
        (
            "SELECT t, count(*) FROM {R} GROUP BY t, ROLLUP (k, t)",
            "a|1 a|1 a|1 a|1 a|2 b|1 b|1 b|1",
        ),
        (
            "SELECT count(*) FROM {R} GROUP BY ROLLUP (7::bigint, 1.5::double precision)",
            "3 3 3",
        ),
        (
            "SELECT CASE WHEN k > 3 THEN date '2024-02-08' END AS d, k, count(*) FROM {R} GROUP BY ROLLUP ((CASE WHEN k > 3 THEN date '2024-02-08' END), k)",
            "2024-02-08|4|1 2024-02-08|NULL|1 NULL|1|1 NULL|2|1 NULL|NULL|2 NULL|NULL|3",
        ),
        (
            "SELECT upper(t), grouping(upper(t)), max(k + 1) FROM {R} GROUP BY GROUPING SETS ((upper(t)), ())",
            "A|0|5 B|0|3 NULL|1|5",
        ),
        ("SELECT count(DISTINCT (k % 2, t)) FROM {R}", "3"),
        ("SELECT 7 FROM {R} HAVING true", "7"),
    ] {
        let mut rows: Vec<String> = values(&sql.replace("{R}", R))
            .await
            .split(' ')
            .map(str::to_owned)
            .collect();
        rows.sort();
        assert_eq!(rows.join(" "), expected, "{sql}");
    }
}

#[tokio::test]
async fn frames_that_move_take_back_what_leaves_them() {
    const R: &str = "(VALUES (1, 5, 'a'), (2, NULL, 'b'), (3, 6, NULL), (4, 12, 'd')) r(id, v, t)";
    for (call, expected) in [
        ("bool_and(v > 5)", "false false true true"),
        ("bool_or(v > 5)", "false true true true"),
        ("bit_and(v)", "5 4 4 4"),
        ("bit_or(v)", "5 7 14 14"),
        ("string_agg(t, '-')", "a-b a-b b-d d"),
        (
            "json_agg(v)",
            "[5, null] [5, null, 6] [null, 6, 12] [6, 12]",
        ),
    ] {
        let sql = format!(
            "SELECT {call} OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM {R} ORDER BY id"
        );
        assert_eq!(values(&sql).await, expected, "{call}");
    }
}

#[tokio::test]
async fn correlated_subqueries_that_give_and_compare_a_cast() {
    const A: &str = "(VALUES (1, 5::bigint), (2, 1), (3, NULL)) a(id, k)";
    const B: &str = "(VALUES (1, 'a'), (5, 'b'), (NULL, 'c')) b(m, u)";
    for (condition, expected) in [
        ("k IN (SELECT m FROM {B} WHERE m <> a.k)", ""),
        ("k IN (SELECT m FROM {B} WHERE m <= a.k) OR id = 3", "1 2 3"),
    ] {
        let sql = format!("SELECT id FROM {A} WHERE {condition} ORDER BY id").replace("{B}", B);
        assert_eq!(values(&sql).await, expected, "{condition}");
    }
}

#[tokio::test]
async fn outputs_under_the_name_of_a_column_that_orders() {
    const A: &str = "(VALUES (1, 'c'), (2, 'b'), (3, 'a')) a(id, t)";
    for (sql, expected) in [
        ("SELECT upper(t) AS t FROM {A} ORDER BY a.t", "A B C"),
        (
            "SELECT -id AS id, t FROM {A} ORDER BY a.id, id",
            "-1|c -2|b -3|a",
        ),
        (
            "SELECT id FROM (SELECT id * 2 AS id FROM {A} ORDER BY a.id DESC LIMIT 2) q ORDER BY id",
            "4 6",
        ),
        (
            "SELECT x.id, y.t FROM (VALUES (2), (3)) x(id), LATERAL (SELECT t || x.id::text AS t FROM {A} WHERE a.id < x.id ORDER BY a.t LIMIT 1) y ORDER BY 1",
            "2|c2 3|b3",
        ),
    ] {
        let sql = sql.replace("{A}", A);
        assert_eq!(values(&sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn offsets_without_a_limit_skip_the_first_in_order() {
    const A: &str = "(VALUES (3, 'c'), (1, 'a'), (4, 'd'), (2, 'b')) a(id, t)";
    for (sql, expected) in [
        (
            "SELECT sum(id) FROM (SELECT id, t FROM {A} ORDER BY t DESC OFFSET 1) q",
            "6",
        ),
        (
            "SELECT q.id FROM (SELECT id FROM {A} ORDER BY t OFFSET 2) q JOIN {A} ON a.id = q.id ORDER BY 1",
            "3 4",
        ),
        ("SELECT id FROM {A} ORDER BY t DESC OFFSET 2", "2 1"),
        (
            "SELECT id FROM {A} WHERE id IN (SELECT id FROM {A} ORDER BY id OFFSET 3)",
            "4",
        ),
    ] {
        let sql = sql.replace("{A}", A);
        assert_eq!(values(&sql).await, expected, "{sql}");
    }
}

//! Rows that fail: a view equals the query that leaves them out, or makes NULL of them, by itself.

use super::row_errors::OnRowError;
use super::testing::{Harness, Random, RandomTable, kvs};

/// Pairs of a view's query and of one without failing rows that must answer the same.
fn check(policy: OnRowError, queries: &[(&str, &str)]) {
    for seed in crate::soak::seeds(0..6) {
        let mut harness = Harness::new();
        harness.on_row_error = policy;
        harness.table("t");
        harness.table("u");
        for (index, (sql, answer)) in queries.iter().enumerate() {
            harness.view_answering(&format!("view_{index}"), sql, answer);
        }
        let mut random = Random::new(seed);
        let mut tables = [RandomTable::new(true, 5), RandomTable::new(true, 7)];
        for batch in 0..10 {
            let tables = ["t", "u"].into_iter().zip(&mut tables);
            let changes = tables
                .map(|(name, table)| (name, table.change(&mut random, 12)))
                .collect();
            harness.batch(changes);
            harness.check();
            if batch == 5 {
                harness.restart();
            }
        }
    }
}

#[test]
fn skip_leaves_failing_rows_out_everywhere() {
    check(
        OnRowError::Skip,
        &[
            (
                "SELECT k, 10 / v AS q FROM t",
                "SELECT k, 10 / v AS q FROM t WHERE v IS DISTINCT FROM 0",
            ),
            (
                "SELECT k FROM t WHERE 10 / v > 2",
                "SELECT k FROM t WHERE 10 / nullif(v, 0) > 2",
            ),
            (
                "SELECT 10 / v AS g, count(*) AS n, sum(k) AS s FROM t GROUP BY 10 / v",
                "SELECT 10 / v AS g, count(*) AS n, sum(k) AS s FROM t WHERE v IS DISTINCT FROM 0 GROUP BY 10 / v",
            ),
            (
                "SELECT k, count(*) AS n, max(10 / v) AS m, count(DISTINCT 10 / v) AS d FROM t GROUP BY k",
                "SELECT k, count(*) AS n, max(10 / v) AS m, count(DISTINCT 10 / v) AS d FROM t WHERE v IS DISTINCT FROM 0 GROUP BY k",
            ),
            (
                "SELECT count(*) AS n, sum(10 / v) FILTER (WHERE v <> 0) AS s FROM t",
                "SELECT count(*) AS n, sum(10 / nullif(v, 0)) AS s FROM t",
            ),
            (
                "SELECT t.k AS a, u.s AS b FROM t LEFT JOIN u ON 10 / t.v = u.k",
                "SELECT t.k AS a, u.s AS b FROM (SELECT * FROM t WHERE v IS DISTINCT FROM 0) t LEFT JOIN u ON 10 / t.v = u.k",
            ),
            (
                "SELECT t.k AS a, u.v AS b FROM t FULL JOIN u ON t.k = u.k AND t.v / u.v > 0",
                "SELECT t.k AS a, u.v AS b FROM t FULL JOIN u ON t.k = u.k AND t.v / nullif(u.v, 0) > 0",
            ),
        ],
    );
}

#[test]
fn null_keeps_failing_rows_without_the_value() {
    check(
        OnRowError::Null,
        &[
            (
                "SELECT k, 10 / v AS q, v + 1 AS w FROM t",
                "SELECT k, 10 / nullif(v, 0) AS q, v + 1 AS w FROM t",
            ),
            (
                "SELECT 10 / v AS g, count(*) AS n FROM t GROUP BY 10 / v",
                "SELECT 10 / nullif(v, 0) AS g, count(*) AS n FROM t GROUP BY 10 / nullif(v, 0)",
            ),
            (
                "SELECT k, count(*) AS n, max(10 / v) AS m FROM t GROUP BY k",
                "SELECT k, count(*) AS n, max(10 / nullif(v, 0)) AS m FROM t GROUP BY k",
            ),
            (
                "SELECT t.k AS a, u.s AS b FROM t LEFT JOIN u ON 10 / t.v = u.k",
                "SELECT t.k AS a, u.s AS b FROM t LEFT JOIN u ON 10 / nullif(t.v, 0) = u.k",
            ),
        ],
    );
}

#[test]
fn a_row_that_is_mended_in_its_batch_is_no_error() {
    let mut harness = Harness::new();
    harness.table("t");
    for (name, sql) in [
        ("project", "SELECT k, 10 / v AS q FROM t"),
        (
            "group",
            "SELECT 10 / v AS g, count(*) AS n FROM t GROUP BY 10 / v",
        ),
        (
            "join",
            "SELECT x.k AS a, y.k AS b FROM t x JOIN t y ON x.k + y.k = 3 AND x.k / y.v > 0",
        ),
    ] {
        harness.view(name, sql);
    }
    let row = |k, v| (Some(k), Some(v), None);
    harness.batch(vec![("t", kvs(&[(row(1, 2), 1), (row(2, 1), 1)]))]);
    let bad = vec![("t", kvs(&[(row(1, 0), 1), (row(1, 2), -1)]))];
    let error = harness.try_batch(bad).unwrap_err();
    assert_eq!(
        error.primary(),
        "materialized view \"project\": division by zero in row (k, v) = (1, 0)"
    );
    assert!(error.hint_text().unwrap().contains("on_row_error = 'skip'"));
    let mended = [
        (row(1, 0), 1),
        (row(1, 0), -1),
        (row(1, 5), 1),
        (row(1, 2), -1),
    ];
    harness.batch(vec![("t", kvs(&mended))]);
    harness.check();
}

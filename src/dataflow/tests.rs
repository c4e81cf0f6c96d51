//! The batch answer: after every batch a view holds what DataFusion answers over the same rows.

use super::plan::InputProperties;
use super::testing::{Harness, check_queries, kvs, kvs_schema};
use crate::catalog::definition::EmitMode;
use crate::error::sqlstate;
use crate::state::TableId;

fn check(queries: &[&str]) {
    for seed in crate::soak::seeds(0..2) {
        check_queries(queries, true, seed);
        check_queries(queries, false, seed + 100);
    }
}

#[test]
fn stateless_plans() {
    check(&[
        "SELECT * FROM t",
        "SELECT k + 1 AS a, upper(s) AS b, v FROM t WHERE v > 0",
        "SELECT s FROM t WHERE k IS NULL OR s LIKE 's%'",
        "SELECT k, v FROM t UNION ALL SELECT v, k FROM u WHERE k < 3",
        "SELECT k FROM (SELECT k, v * 2 AS w FROM t ORDER BY v) x WHERE w > 2 ORDER BY k",
        "SELECT 1 AS one, 'a' AS a",
        "SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS c(a, b)",
        "SELECT k, 7 AS c FROM t UNION ALL SELECT 1, 2",
        "SELECT t.k, t.s FROM t JOIN generate_series(1, 3) AS g(n) ON t.k = g.n",
    ]);
}

#[test]
fn unnest() {
    check(&[
        "SELECT k, unnest(make_array(v, k, 5)) AS e FROM t",
        "SELECT unnest(make_array(v, k)) AS e, unnest(make_array(s)) AS f FROM t",
        "SELECT unnest(make_array(make_array(k, v), make_array(v))) AS e FROM t",
    ]);
}

#[test]
fn distinct_and_union() {
    check(&[
        "SELECT DISTINCT k, s FROM t",
        "SELECT k FROM t UNION SELECT k FROM u",
    ]);
}

#[test]
fn aggregates() {
    check(&[
        "SELECT k, count(*) AS n, sum(v) AS v, avg(v) AS a, count(s) AS c FROM t GROUP BY k",
        "SELECT count(*) AS n, sum(v) AS v, min(v) AS l, max(s) AS h FROM t",
        "SELECT k, min(v) AS l, max(v) AS h, count(DISTINCT s) AS d FROM t GROUP BY k",
        "SELECT s, k, sum(v) FILTER (WHERE v > 0) AS v FROM t GROUP BY s, k HAVING count(*) > 1",
        "SELECT k, array_agg(v ORDER BY v) AS l, string_agg(s, ',' ORDER BY s) AS j FROM t GROUP BY k",
        "SELECT k + 1 AS a, bool_and(v > 0) AS b, median(v) AS m FROM t WHERE s IS NOT NULL GROUP BY k + 1",
        "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x GROUP BY n",
    ]);
}

#[test]
fn aggregates_of_joins() {
    check(&[
        "SELECT t.k, count(*) AS n, sum(u.v) AS v FROM t JOIN u ON t.k = u.k GROUP BY t.k",
        "SELECT t.s, count(u.k) AS n, max(u.v) AS v FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.s",
        "SELECT t.k, x.n FROM t LEFT JOIN (SELECT k, count(*) AS n FROM u GROUP BY k) x ON t.k = x.k",
        "SELECT k, v FROM t WHERE v > (SELECT avg(v) FROM t)",
        "SELECT k, v FROM t WHERE v = (SELECT max(u.v) FROM u WHERE u.k = t.k)",
        "SELECT k, (SELECT count(*) FROM u WHERE u.k = t.k) AS n FROM t",
        "SELECT sum(v) AS v FROM t HAVING sum(v) > 5",
    ]);
}

#[test]
fn joins_on_a_key() {
    check(&[
        "SELECT t.k, t.v, u.v AS w, u.s FROM t JOIN u ON t.k = u.k",
        "SELECT t.*, u.v AS w FROM t LEFT JOIN u ON t.k = u.k",
        "SELECT t.v, u.* FROM t RIGHT JOIN u ON t.k = u.k AND t.s = u.s",
        "SELECT t.k, u.k AS l, t.v, u.v AS w FROM t FULL JOIN u ON t.k = u.k",
        "SELECT t.k, t.s FROM t LEFT SEMI JOIN u ON t.k = u.k",
        "SELECT t.k, t.s FROM t LEFT ANTI JOIN u ON t.k = u.k",
        "SELECT u.k, u.s FROM t RIGHT ANTI JOIN u ON t.k = u.k",
    ]);
}

#[test]
fn joins_with_a_further_condition() {
    check(&[
        "SELECT t.k, t.v, u.v AS w FROM t JOIN u ON t.k = u.k AND t.v < u.v",
        "SELECT t.k, t.v, u.v AS w, u.s FROM t LEFT JOIN u ON t.k = u.k AND t.v < u.v",
        "SELECT t.k, t.v, u.v AS w FROM t RIGHT JOIN u ON t.k = u.k AND t.v + u.v > 1",
        "SELECT t.k, t.v, u.k AS l, u.v AS w FROM t FULL JOIN u ON t.k = u.k AND t.v <> u.v",
        "SELECT t.k, t.v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.v)",
        "SELECT t.k, t.v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.v)",
        "SELECT t.k, t.v FROM t WHERE k > 3 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    ]);
}

#[test]
fn joins_without_a_key_and_of_more_relations() {
    check(&[
        "SELECT t.v, u.v AS w FROM t, u WHERE t.v > 2",
        "SELECT t.v, u.v AS w FROM t JOIN u ON t.v < u.v - 3",
        "SELECT t.v, u.v AS w FROM t LEFT JOIN u ON t.v < u.v - 3",
        "SELECT a.k, b.v, c.s FROM t a JOIN u b ON a.k = b.k LEFT JOIN t c ON c.v = b.v",
        "SELECT a.k, b.v FROM t a JOIN t b ON a.k = b.v",
        "SELECT t.k FROM t WHERE t.k IN (SELECT v FROM u)",
        "SELECT t.k FROM t WHERE t.k NOT IN (SELECT v FROM u)",
    ]);
}

#[test]
fn recursive_queries_are_recomputed() {
    check(&[
        "WITH RECURSIVE r AS (SELECT k FROM t WHERE k < 3 UNION ALL SELECT k + 1 FROM r WHERE k < 5) SELECT * FROM r",
    ]);
}

#[test]
fn limit_without_an_order_keeps_the_least_rows() {
    let mut harness = Harness::new();
    harness.table("t");
    harness.view("v", "SELECT k FROM t LIMIT 2");
    harness.batch(vec![(
        "t",
        kvs(&[((Some(9), None, None), 1), ((Some(5), None, None), 1)]),
    )]);
    harness.batch(vec![("t", kvs(&[((Some(7), None, None), 1)]))]);
    let rows = harness.rows("v");
    let expected = datafusion::arrow::array::Int64Array::from(vec![5, 7]);
    let mut values: Vec<i64> = (0..2)
        .map(|i| {
            use datafusion::arrow::array::AsArray;
            rows[0]
                .column(0)
                .as_primitive::<datafusion::arrow::datatypes::Int64Type>()
                .value(i)
        })
        .collect();
    values.sort_unstable();
    assert_eq!(values, expected.values().to_vec());
}

#[test]
fn views_over_views_see_the_same_batch() {
    let mut harness = Harness::new();
    harness.table("t");
    harness.table("u");
    harness.view("a", "SELECT DISTINCT k, v FROM t");
    harness.view("b", "SELECT a.k, u.s FROM a LEFT JOIN u ON a.k = u.k");
    harness.view("c", "SELECT k FROM b UNION ALL SELECT k FROM a");
    let mut random = super::testing::Random::new(7);
    let mut tables = [
        super::testing::RandomTable::new(true, 4),
        super::testing::RandomTable::new(true, 4),
    ];
    for _ in 0..10 {
        let changes = vec![
            ("t", tables[0].change(&mut random, 10)),
            ("u", tables[1].change(&mut random, 10)),
        ];
        harness.batch(changes);
        harness.check();
    }
    assert_eq!(harness.dataflow.inputs().len(), 2);
}

#[test]
fn an_aggregate_that_feeds_another_is_never_quiet() {
    let mut harness = Harness::new();
    harness.table("t");
    harness.view(
        "v",
        "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x GROUP BY n",
    );
    assert!(harness.dataflow.choose_quiet(|_| false).contains("v"));
    let rows = kvs(&[((Some(1), None, None), 2), ((Some(2), None, None), 1)]);
    let result = harness.batch(vec![("t", rows)]);
    assert_eq!(result.output_rows["v"], 2);
}

#[test]
fn a_failed_batch_leaves_no_trace() {
    let mut harness = Harness::new();
    harness.table("t");
    harness.table("u");
    harness.view("d", "SELECT t.k, u.v FROM t LEFT JOIN u ON t.k = u.k");
    harness.view("q", "SELECT 10 / v AS w FROM t");
    let good = kvs(&[((Some(1), Some(2), None), 1)]);
    harness.batch(vec![("t", good.clone()), ("u", good)]);
    let bad = kvs(&[((Some(1), Some(0), None), 1), ((Some(3), Some(1), None), 1)]);
    let error = harness
        .try_batch(vec![("t", bad.clone()), ("u", bad)])
        .unwrap_err();
    assert!(error.primary().contains("\"q\""), "{error}");
    assert_eq!(error.sqlstate(), sqlstate::DIVISION_BY_ZERO, "{error}");
    let next = kvs(&[((Some(3), Some(5), None), 1)]);
    harness.batch(vec![("t", next.clone()), ("u", next)]);
    harness.check();
}

#[test]
fn a_removed_view_leaves_no_state() {
    let mut harness = Harness::new();
    harness.table("t");
    harness.view("keep", "SELECT DISTINCT k FROM t");
    harness.view(
        "gone",
        "SELECT t.k, x.n, sum(x.n) OVER (PARTITION BY t.k) AS w FROM t JOIN \
         (SELECT k, count(*) AS n, min(v) AS l FROM t GROUP BY k) x ON t.k = x.k",
    );
    let row = kvs(&[((Some(1), Some(2), None), 1), ((Some(2), None, None), 3)]);
    let first = harness.batch_run(vec![("t", row.clone())]);
    let mut written: Vec<TableId> = (0..first.len())
        .map(|i| TableId(u64::from_be_bytes(first.key(i)[..8].try_into().unwrap())))
        .collect();
    written.dedup();
    harness.dataflow.remove_view("gone");
    let second = harness.batch_run(vec![("t", row)]);
    let (kept, gone): (Vec<TableId>, Vec<TableId>) = written
        .into_iter()
        .partition(|table| !second.drops_table(*table));
    let keep = [
        TableId::from_name("keep/distinct_0/rows"),
        TableId::from_name("keep/distinct_0/rows/count"),
        TableId::from_name("keep/view_rows"),
        TableId::from_name("keep/view_count"),
    ];
    assert!(kept.iter().all(|table| keep.contains(table)), "{kept:?}");
    assert!(gone.len() > 8 && gone.iter().all(|table| !keep.contains(table)));
}

#[test]
fn what_cannot_be_a_view_is_refused() {
    let mut harness = Harness::new();
    harness.table("t");
    let plan = |sql| harness.plan("v", sql, EmitMode::OnUpdate);
    for (sql, name) in [
        ("SELECT random() AS r FROM t", "random"),
        ("SELECT k, now() AS n FROM t", "now"),
        (
            "SELECT k FROM t WHERE v > (SELECT max(v) * random() FROM t)",
            "random",
        ),
    ] {
        let error = plan(sql).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::FEATURE_NOT_SUPPORTED, "{error}");
        assert!(error.primary().contains(name), "{error}");
        assert!(error.hint_text().is_some());
    }
    let error = harness
        .plan("v", "SELECT k FROM t", EmitMode::OnWindowClose)
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::INVALID_OBJECT_DEFINITION);
}

#[test]
fn plans_tell_keys_and_append_only() {
    let mut harness = Harness::new();
    harness.relation(
        "s",
        InputProperties {
            schema: kvs_schema(),
            append_only: true,
            watermark_column: Some(1),
            primary_key: None,
            event_time: Vec::new(),
        },
    );
    harness.relation(
        "p",
        InputProperties {
            schema: kvs_schema(),
            append_only: false,
            watermark_column: None,
            primary_key: Some(vec![0]),
            event_time: Vec::new(),
        },
    );
    let plan = |sql| harness.plan("v", sql, EmitMode::OnUpdate).unwrap();
    let stream = plan("SELECT v, k FROM s WHERE k > 1");
    assert!(stream.append_only);
    assert_eq!(stream.key, None);
    assert_eq!(stream.event_time[0].map(|time| time.closes_after), Some(0));
    assert_eq!(plan("SELECT s, k FROM p").key, Some(vec![1]));
    assert_eq!(plan("SELECT s FROM p").key, None);
    let joined = plan("SELECT p.k, q.s FROM p JOIN p q ON p.v = q.k");
    assert_eq!(joined.key, Some(vec![0]));
    assert!(!joined.append_only);
    let renamed = plan("SELECT v, k FROM s WHERE k > 2");
    assert_ne!(stream.fingerprint, renamed.fingerprint);
    assert_eq!(
        stream.fingerprint,
        plan("SELECT v, k FROM s WHERE k > 1").fingerprint
    );
    assert_eq!(stream.schema.field(0).name(), "v");
}

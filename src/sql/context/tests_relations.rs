//! What relations and aggregates mean in our context, where the engine has another idea.

use super::tests::values;

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
        (
            "SELECT grouping(k::text), count(*) FROM {R} GROUP BY ROLLUP (k::text, k)",
            "0|1 0|1 0|1 0|1 0|1 0|1 1|3",
        ),
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

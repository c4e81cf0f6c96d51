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

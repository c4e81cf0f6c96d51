//! Single statements, and what PostgreSQL answers to them.

use datafusion::common::ScalarValue;

use super::{Database, texts};
use crate::error::sqlstate;

/// Statements that are refused, and as what.
const REFUSED: [(&str, &str); 18] = [
    ("INSERT INTO nowhere VALUES (1)", sqlstate::UNDEFINED_TABLE),
    (
        "INSERT INTO accounts (nothing) VALUES (1)",
        sqlstate::UNDEFINED_COLUMN,
    ),
    (
        "INSERT INTO accounts (id, id) VALUES (1, 2)",
        sqlstate::DUPLICATE_COLUMN,
    ),
    (
        "INSERT INTO accounts (id) VALUES (7, 8)",
        sqlstate::SYNTAX_ERROR,
    ),
    (
        "INSERT INTO accounts (id, name) VALUES (7)",
        sqlstate::SYNTAX_ERROR,
    ),
    (
        "INSERT INTO accounts (id) VALUES ('seven')",
        sqlstate::INVALID_TEXT,
    ),
    (
        "INSERT INTO accounts (id) VALUES (99999999999999999999)",
        sqlstate::NUMERIC_OUT_OF_RANGE,
    ),
    (
        "INSERT INTO accounts (id, balance) VALUES (7, 123456789)",
        sqlstate::NUMERIC_OUT_OF_RANGE,
    ),
    (
        "INSERT INTO accounts (id, opened) VALUES (7, 5)",
        sqlstate::DATATYPE_MISMATCH,
    ),
    (
        "INSERT INTO accounts (id) SELECT name FROM accounts",
        sqlstate::DATATYPE_MISMATCH,
    ),
    (
        "INSERT INTO accounts (id, balance) VALUES (7, NULL)",
        sqlstate::NOT_NULL_VIOLATION,
    ),
    (
        "INSERT INTO accounts DEFAULT VALUES",
        sqlstate::NOT_NULL_VIOLATION,
    ),
    (
        "INSERT INTO accounts (id) VALUES (7), (2)",
        sqlstate::UNIQUE_VIOLATION,
    ),
    (
        "INSERT INTO accounts (id) VALUES (7), (7)",
        sqlstate::UNIQUE_VIOLATION,
    ),
    (
        "INSERT INTO fed VALUES (1, 'a')",
        sqlstate::WRONG_OBJECT_TYPE,
    ),
    ("UPDATE events SET id = 1", sqlstate::WRONG_OBJECT_TYPE),
    ("DELETE FROM events", sqlstate::WRONG_OBJECT_TYPE),
    (
        "INSERT INTO accounts (id) VALUES (7) ON CONFLICT (name) DO NOTHING",
        sqlstate::INVALID_COLUMN_REFERENCE,
    ),
];

#[tokio::test]
async fn insert_casts_fills_and_checks() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    let inserted = database
        .count(
            "INSERT INTO accounts (id, balance, opened) VALUES
             (1, 10.005, '2024-02-29'), ('2', DEFAULT, NULL), (1 + 2, -1.5, DATE '2023-01-01')",
        )
        .await;
    assert_eq!(inserted, 3);
    assert_eq!(
        database.rows("SELECT * FROM accounts ORDER BY id").await,
        [
            "1|nobody|10.01|2024-02-29",
            "2|nobody|0.00|∅",
            "3|nobody|-1.50|2023-01-01"
        ]
    );
    for (sql, code) in REFUSED {
        let error = database.fails(sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
    }
    let error = database
        .fails("INSERT INTO accounts (id, balance) VALUES (7, NULL)")
        .await;
    assert_eq!(
        error.primary(),
        "null value in column \"balance\" of relation \"accounts\" violates not-null constraint"
    );
    assert_eq!(
        error.detail_text(),
        Some("Failing row contains (7, nobody, null, null).")
    );
    let error = database
        .fails("INSERT INTO pairs VALUES (1, 'x', NULL), (1, 'x', true)")
        .await;
    assert_eq!(
        error.detail_text(),
        Some("Key (b, a)=(x, 1) already exists.")
    );
    assert_eq!(database.rows("SELECT count(*) FROM accounts").await, ["3"]);
    assert_eq!(database.rows("SELECT count(*) FROM pairs").await, ["0"]);
}

#[tokio::test]
async fn insert_from_queries_parameters_and_returning() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    let result = database
        .run_with(
            "INSERT INTO accounts AS a (id, name) VALUES ($1, upper($2)), ($1 + 1, $2) RETURNING a.id * 10 AS ten, *",
            &[ScalarValue::from(5_i64), ScalarValue::from("ann")],
        )
        .await
        .unwrap();
    let (schema, _) = result.returning.as_ref().unwrap();
    assert_eq!(schema.field(0).name(), "ten");
    assert_eq!(texts(result), ["50|5|ANN|0.00|∅", "60|6|ann|0.00|∅"]);
    let inserted = database
        .count(
            "INSERT INTO accounts (id, balance, opened)
             SELECT id + 10, 2.5, '2020-01-01' FROM accounts WHERE name = 'ann'",
        )
        .await;
    assert_eq!(inserted, 1);
    assert_eq!(
        database.rows("SELECT * FROM accounts WHERE id = 16").await,
        ["16|nobody|2.50|2020-01-01"]
    );
    // More rows than one batch, twice the same key late in the statement: nothing stays.
    let error = database
        .fails("INSERT INTO bag SELECT 1, 'x' UNION ALL SELECT i, i FROM (SELECT unnest(range(0, 30000)) AS i) WHERE 1 / (29999 - i) >= 0")
        .await;
    assert!(!error.primary().is_empty());
    assert_eq!(database.rows("SELECT count(*) FROM bag").await, ["0"]);
    assert_eq!(
        database
            .count("INSERT INTO bag SELECT i % 100, 'v' FROM (SELECT unnest(range(0, 30000)) AS i)")
            .await,
        30_000
    );
    assert_eq!(
        database
            .rows("SELECT count(*), count(DISTINCT k), sum(k) FROM bag")
            .await,
        ["30000|100|1485000"]
    );
}

#[tokio::test]
async fn conflicts_do_nothing_or_update() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    database
        .count("INSERT INTO accounts (id, name, balance) VALUES (1, 'a', 1), (2, 'b', 2)")
        .await;
    assert_eq!(
        database
            .rows("INSERT INTO accounts (id) VALUES (1), (3), (3), (2) ON CONFLICT DO NOTHING RETURNING id")
            .await,
        ["3"]
    );
    let result = database
        .run(
            "INSERT INTO accounts AS t (id, name, balance) VALUES (2, 'B', 5), (9, 'n', 1), (1, 'A', 7)
             ON CONFLICT (id) DO UPDATE SET balance = t.balance + excluded.balance, name = excluded.name || name
             WHERE t.id > 1 RETURNING id, name, balance",
        )
        .await
        .unwrap();
    assert_eq!(result.rows, 2);
    assert_eq!(texts(result), ["2|Bb|7.00", "9|n|1.00"]);
    let error = database
        .fails(
            "INSERT INTO accounts (id) VALUES (2), (2) ON CONFLICT (id) DO UPDATE SET name = 'x'",
        )
        .await;
    assert_eq!(error.sqlstate(), sqlstate::CARDINALITY_VIOLATION);
    let error = database
        .fails(
            "INSERT INTO accounts (id) VALUES (50), (50) ON CONFLICT (id) DO UPDATE SET name = 'x'",
        )
        .await;
    assert_eq!(error.sqlstate(), sqlstate::CARDINALITY_VIOLATION);
    // The updated row may move to another key, if that is free.
    database
        .count("INSERT INTO accounts (id) VALUES (9) ON CONFLICT (id) DO UPDATE SET id = 90")
        .await;
    let error = database
        .fails("INSERT INTO accounts (id) VALUES (90) ON CONFLICT (id) DO UPDATE SET id = 1")
        .await;
    assert_eq!(error.sqlstate(), sqlstate::UNIQUE_VIOLATION);
    assert_eq!(
        database
            .rows("SELECT id, name FROM accounts ORDER BY id")
            .await,
        ["1|a", "2|Bb", "3|nobody", "90|n"]
    );
}

#[tokio::test]
async fn updates_and_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    database
        .count(
            "INSERT INTO accounts (id, name, balance) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        )
        .await;
    database
        .count("INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (2, 'y'), (NULL, NULL)")
        .await;
    assert_eq!(
        database
            .count("UPDATE accounts SET id = id + 1, name = DEFAULT WHERE id >= 2")
            .await,
        2
    );
    assert_eq!(
        database
            .rows("SELECT id, name, balance FROM accounts ORDER BY id")
            .await,
        ["1|a|1.00", "3|nobody|2.00", "4|nobody|3.00"]
    );
    let error = database
        .fails("UPDATE accounts SET id = 3 WHERE id = 1")
        .await;
    assert_eq!(error.detail_text(), Some("Key (id)=(3) already exists."));
    assert_eq!(
        database
            .fails("UPDATE accounts SET id = 8")
            .await
            .sqlstate(),
        sqlstate::UNIQUE_VIOLATION
    );
    assert_eq!(
        database
            .fails("UPDATE accounts SET balance = NULL")
            .await
            .sqlstate(),
        sqlstate::NOT_NULL_VIOLATION
    );
    assert_eq!(
        database
            .rows(
                "UPDATE accounts a SET name = b.v, balance = '7' FROM bag b
                 WHERE a.id = b.k RETURNING a.id, a.name, a.balance, b.k, b.v || '!', k + id"
            )
            .await,
        ["1|x|7.00|1|x!|2"],
        "two joined rows change it once"
    );
    assert_eq!(
        database
            .count("UPDATE bag SET v = v || '!' WHERE k = 1")
            .await,
        2
    );
    assert_eq!(
        database.rows("SELECT * FROM bag ORDER BY k, v").await,
        ["1|x!", "1|x!", "2|y", "∅|∅"]
    );
    assert_eq!(
        database
            .rows("DELETE FROM bag USING accounts WHERE bag.k = accounts.id RETURNING v, accounts.name AS n")
            .await,
        ["x!|x", "x!|x"]
    );
    assert_eq!(
        database
            .count("DELETE FROM accounts WHERE id IN (SELECT k + 1 FROM bag WHERE k IS NOT NULL)")
            .await,
        1
    );
    assert_eq!(database.count("DELETE FROM bag WHERE k IS NULL").await, 1);
    assert_eq!(
        database.rows("SELECT id FROM accounts ORDER BY id").await,
        ["1", "4"]
    );
    database.run("TRUNCATE accounts, bag").await.unwrap();
    assert_eq!(database.rows("SELECT count(*) FROM accounts").await, ["0"]);
    assert_eq!(database.rows("SELECT count(*) FROM bag").await, ["0"]);
}

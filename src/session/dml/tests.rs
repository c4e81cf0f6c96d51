//! Changes of rows: PostgreSQL's answers statement by statement, and random statements against a
//! plain model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use datafusion::common::ScalarValue;

use super::*;
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, ExpectationDefinition, OnViolation,
    StreamDefinition, TableDefinition,
};
use crate::error::{Error, sqlstate};
use crate::log::DurableLog;
use crate::log::tables::TableStore;
use crate::state::MemoryBudget;
use crate::types::SqlType;

fn column(
    name: &str,
    sql_type: SqlType,
    nullable: bool,
    default: Option<&str>,
) -> ColumnDefinition {
    ColumnDefinition {
        name: name.to_owned(),
        sql_type,
        nullable,
        default: default.map(str::to_owned),
        metadata_from: None,
        comment: None,
        text_type: None,
    }
}

fn object(name: &str, oid: u32, definition: Definition) -> Arc<CatalogObject> {
    Arc::new(CatalogObject {
        name: name.to_owned(),
        oid,
        created_at_us: 0,
        comment: None,
        definition,
    })
}

fn table(name: &str, oid: u32, key: &[&str], columns: Vec<ColumnDefinition>) -> Arc<CatalogObject> {
    let definition = Definition::Table(TableDefinition {
        columns,
        primary_key: key.iter().map(|k| (*k).to_owned()).collect(),
        options: BTreeMap::new(),
        shape: Default::default(),
    });
    object(name, oid, definition)
}

const MONEY: SqlType = SqlType::Numeric {
    precision: 10,
    scale: 2,
};

fn definitions() -> Vec<Arc<CatalogObject>> {
    let stream = |connector: Option<&str>| {
        Definition::Stream(StreamDefinition {
            columns: vec![
                column("id", SqlType::BigInt, false, None),
                column("name", SqlType::Text, true, Some("'none'")),
            ],
            watermark: None,
            expectations: vec![ExpectationDefinition {
                name: "positive".to_owned(),
                condition: "id > 0".to_owned(),
                on_violation: OnViolation::FailUpdate,
            }],
            connector: connector.map(str::to_owned),
            options: BTreeMap::new(),
            shape: Default::default(),
        })
    };
    vec![
        table(
            "accounts",
            20001,
            &["id"],
            vec![
                column("id", SqlType::BigInt, false, None),
                column("name", SqlType::Text, true, Some("'nobody'")),
                column("balance", MONEY, false, Some("0")),
                column("opened", SqlType::Date, true, None),
            ],
        ),
        table(
            "pairs",
            20002,
            &["b", "a"],
            vec![
                column("a", SqlType::Integer, true, None),
                column("b", SqlType::Text, true, None),
                column("flag", SqlType::Boolean, true, None),
            ],
        ),
        table(
            "bag",
            20003,
            &[],
            vec![
                column("k", SqlType::Integer, true, None),
                column("v", SqlType::Text, true, None),
            ],
        ),
        object("events", 20004, stream(None)),
        object("fed", 20005, stream(Some("kafka"))),
    ]
}

struct Database {
    store: Arc<TableStore>,
    objects: Vec<Arc<CatalogObject>>,
}

impl Database {
    fn open(dir: &Path) -> Self {
        let log = DurableLog::open(&dir.join("log")).unwrap();
        let objects = definitions();
        let tables: Vec<_> = objects
            .iter()
            .filter(|o| matches!(o.definition, Definition::Table(_)))
            .cloned()
            .collect();
        let budget = MemoryBudget::new(64 << 20);
        let store = TableStore::open(&dir.join("log/tables"), &log, &budget, &tables).unwrap();
        Self { store, objects }
    }

    fn context(&self, transaction: &Transaction) -> SessionContext {
        let config = SessionConfig::new()
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let context = SessionContext::new_with_config(config);
        for object in &self.objects {
            if let Definition::Table(_) = object.definition {
                let relation = TableRelation::new(object, transaction.view().clone()).unwrap();
                context
                    .register_table(object.name.as_str(), Arc::new(relation))
                    .unwrap();
            }
        }
        context
    }

    /// Runs one statement inside a transaction.
    async fn run_in(
        &self,
        transaction: &mut Transaction,
        sql: &str,
        parameters: &[ScalarValue],
    ) -> Result<DmlResult> {
        let parameters: Vec<Parameter> =
            parameters.iter().cloned().map(Parameter::untyped).collect();
        transaction.begin_statement()?;
        let context = self.context(transaction);
        let state = context.state();
        let catalog = |name: &str| self.objects.iter().find(|o| o.name == name).cloned();
        let dml = DmlContext {
            state: &state,
            planner: &PlainPlanner,
            catalog: &catalog,
            transaction,
            parameters: &parameters,
        };
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .unwrap()
            .remove(0);
        match &statement {
            ast::Statement::Insert(statement) => insert(dml, statement).await,
            ast::Statement::Update(_) => update(dml, &statement).await,
            ast::Statement::Delete(statement) => delete(dml, statement).await,
            ast::Statement::Truncate(truncated) => {
                let names: Vec<String> = truncated
                    .table_names
                    .iter()
                    .map(|t| t.name.to_string())
                    .collect();
                truncate(dml, &names).await
            }
            ast::Statement::Query(query) => {
                let planning = dml.planning();
                let stream = planning.start(query.as_ref().clone()).await?;
                let schema = stream.schema();
                let rows = datafusion::physical_plan::common::collect(stream).await?;
                Ok(DmlResult {
                    rows: 0,
                    returning: Some((schema, rows)),
                })
            }
            other => panic!("{other} is not for this test"),
        }
    }

    async fn run(&self, sql: &str) -> Result<DmlResult> {
        self.run_with(sql, &[]).await
    }

    async fn run_with(&self, sql: &str, parameters: &[ScalarValue]) -> Result<DmlResult> {
        let mut transaction = Transaction::begin(&self.store)?;
        let result = self.run_in(&mut transaction, sql, parameters).await?;
        transaction.commit().await?;
        Ok(result)
    }

    async fn count(&self, sql: &str) -> u64 {
        self.run(sql).await.unwrap().rows
    }

    async fn fails(&self, sql: &str) -> Error {
        self.run(sql).await.unwrap_err()
    }

    async fn rows(&self, sql: &str) -> Vec<String> {
        texts(self.run(sql).await.unwrap())
    }
}

fn texts(result: DmlResult) -> Vec<String> {
    let (_, batches) = result.returning.unwrap();
    batches.iter().flat_map(batch_texts).collect()
}

fn batch_texts(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|c| cast(c, &DataType::Utf8).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            let values: Vec<&str> = columns
                .iter()
                .map(|c| match c.is_null(row) {
                    true => "∅",
                    false => c.as_string::<i32>().value(row),
                })
                .collect();
            values.join("|")
        })
        .collect()
}

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
    let cases = [
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
    for (sql, code) in cases {
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

#[tokio::test]
async fn streams_take_rows_and_keep_statements_whole() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    let log = Arc::clone(database.store.log());
    let stored = || -> Vec<String> {
        log.read(20004, 0, log.end())
            .flat_map(|entry| batch_texts(entry.unwrap().changes.rows()))
            .collect()
    };
    let mut transaction = Transaction::begin(&database.store).unwrap();
    database
        .run_in(&mut transaction, "INSERT INTO events VALUES (1, 'a')", &[])
        .await
        .unwrap();
    let error = database
        .run_in(
            &mut transaction,
            "INSERT INTO events SELECT 5 - i, 'b' FROM (SELECT unnest(range(0, 9)) AS i)",
            &[],
        )
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::CHECK_VIOLATION);
    assert_eq!(error.detail_text(), Some("Failing row contains (0, b)."));
    let mark = transaction.mark();
    database
        .run_in(&mut transaction, "INSERT INTO events (id) VALUES (2)", &[])
        .await
        .unwrap();
    transaction.rollback_to(&mark).unwrap();
    database
        .run_in(&mut transaction, "INSERT INTO events (id) VALUES (3)", &[])
        .await
        .unwrap();
    database
        .run_in(
            &mut transaction,
            "INSERT INTO accounts (id) VALUES (3)",
            &[],
        )
        .await
        .unwrap();
    assert!(stored().is_empty());
    transaction.commit().await.unwrap();
    assert_eq!(stored(), ["1|a", "3|none"]);
    assert_eq!(log.end(), 1, "one commit for the stream and the table");
}

#[tokio::test]
async fn transactions_see_their_own_changes_and_the_first_committer_wins() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    database
        .count("INSERT INTO accounts (id, balance) VALUES (1, 1), (2, 2)")
        .await;
    let mut first = Transaction::begin(&database.store).unwrap();
    let mut second = Transaction::begin(&database.store).unwrap();
    let add = "UPDATE accounts SET balance = balance + 10 WHERE id = 1";
    database.run_in(&mut first, add, &[]).await.unwrap();
    database.run_in(&mut second, add, &[]).await.unwrap();
    let seen = "SELECT balance FROM accounts ORDER BY id";
    let result = database.run_in(&mut first, seen, &[]).await.unwrap();
    assert_eq!(texts(result), ["11.00", "2.00"]);
    // Another row, committed meanwhile, is seen by the next statement and is no conflict.
    database
        .count("UPDATE accounts SET balance = 3 WHERE id = 2")
        .await;
    let result = database.run_in(&mut first, seen, &[]).await.unwrap();
    assert_eq!(texts(result), ["11.00", "3.00"]);
    first.commit().await.unwrap();
    let error = second.commit().await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::SERIALIZATION_FAILURE);
    assert_eq!(database.rows(seen).await, ["11.00", "3.00"]);
    // Both insert the same key.
    let mut first = Transaction::begin(&database.store).unwrap();
    let mut second = Transaction::begin(&database.store).unwrap();
    database
        .run_in(&mut first, "INSERT INTO accounts (id) VALUES (7)", &[])
        .await
        .unwrap();
    database
        .run_in(&mut second, "INSERT INTO accounts (id) VALUES (7)", &[])
        .await
        .unwrap();
    let (a, b) = tokio::join!(first.commit(), second.commit());
    assert!(a.is_ok() != b.is_ok());
}

#[tokio::test]
async fn copies_are_whole_and_fill_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    let mut transaction = Transaction::begin(&database.store).unwrap();
    let catalog = |name: &str| database.objects.iter().find(|o| o.name == name).cloned();
    let begin = |transaction: &Transaction| {
        let state = database.context(transaction).state();
        let columns = ["balance".to_owned(), "id".to_owned()];
        CopyRows::begin(
            state,
            Arc::new(PlainPlanner),
            &catalog,
            transaction,
            "accounts",
            &columns,
        )
    };
    let mut copy = begin(&transaction).unwrap();
    let rows = |ids: &[i64]| {
        let ids = datafusion::arrow::array::Int64Array::from(ids.to_vec());
        let balances = cast(&ids, &MONEY.to_arrow()).unwrap();
        RecordBatch::try_new(copy_schema(), vec![balances, Arc::new(ids)]).unwrap()
    };
    fn copy_schema() -> SchemaRef {
        use datafusion::arrow::datatypes::{Field, Schema};
        Arc::new(Schema::new(vec![
            Field::new("balance", MONEY.to_arrow(), true),
            Field::new("id", DataType::Int64, true),
        ]))
    }
    assert_eq!(copy.schema(), copy_schema());
    copy.write(&mut transaction, &rows(&[1, 2])).await.unwrap();
    copy.write(&mut transaction, &rows(&[3])).await.unwrap();
    assert_eq!(copy.finish(&mut transaction), 3);
    let mut refused = begin(&transaction).unwrap();
    refused.write(&mut transaction, &rows(&[8])).await.unwrap();
    let error = refused
        .write(&mut transaction, &rows(&[9, 8]))
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::UNIQUE_VIOLATION);
    refused.abandon(&mut transaction).unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(
        database
            .rows("SELECT id, name, balance FROM accounts")
            .await,
        ["1|nobody|1.00", "2|nobody|2.00", "3|nobody|3.00"]
    );
}

/// The plain model: what `accounts` holds, and how often each row is in `bag`.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    accounts: BTreeMap<i64, (Option<String>, i64)>,
    bag: BTreeMap<(i64, String), u64>,
}

impl Model {
    /// A random statement, and what it does here; `None`: it must fail.
    fn step(&self, random: &mut Random) -> (String, Option<Self>) {
        let mut after = self.clone();
        let id = random.below(12) as i64;
        let other = random.below(12) as i64;
        let amount = random.below(50) as i64;
        let sql = match random.below(9) {
            0 => {
                let ids = [id, other];
                let is_taken = id == other || ids.iter().any(|i| self.accounts.contains_key(i));
                for i in ids {
                    after.accounts.insert(i, (None, amount));
                }
                let sql = format!(
                    "INSERT INTO accounts (id, name, balance) VALUES ({id}, NULL, {amount}), ({other}, NULL, {amount})"
                );
                return (sql, (!is_taken).then_some(after));
            }
            1 => {
                let old = after.accounts.get(&id).map_or(0, |a| a.1);
                let name = after
                    .accounts
                    .get(&id)
                    .map_or(Some("new".to_owned()), |_| Some(format!("u{amount}")));
                after.accounts.insert(id, (name, old + amount));
                format!(
                    "INSERT INTO accounts (id, name, balance) VALUES ({id}, 'new', {amount}) ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + excluded.balance, name = 'u{amount}'"
                )
            }
            2 => {
                for i in [id, other] {
                    after
                        .accounts
                        .entry(i)
                        .or_insert((Some("quiet".to_owned()), 0));
                }
                format!(
                    "INSERT INTO accounts (id, name) VALUES ({id}, 'quiet'), ({other}, 'quiet') ON CONFLICT DO NOTHING"
                )
            }
            3 => {
                let moved: Vec<_> = self.accounts.iter().filter(|(i, _)| **i >= id).collect();
                for (i, _) in &moved {
                    after.accounts.remove(i);
                }
                for (i, account) in moved {
                    after.accounts.insert(i + 1, account.clone());
                }
                format!("UPDATE accounts SET id = id + 1 WHERE id >= {id}")
            }
            4 => {
                after.accounts.retain(|i, _| *i % 3 != id % 3);
                format!("DELETE FROM accounts WHERE id % 3 = {}", id % 3)
            }
            5 => {
                let key = (id % 4, format!("v{}", other % 3));
                *after.bag.entry(key).or_default() += 2;
                format!(
                    "INSERT INTO bag VALUES ({0}, 'v{1}'), ({0}, 'v{1}')",
                    id % 4,
                    other % 3
                )
            }
            6 => {
                let moved: Vec<_> = self.bag.iter().filter(|((k, _), _)| *k == id % 4).collect();
                for (key, _) in &moved {
                    after.bag.remove(*key);
                }
                for ((_, v), count) in moved {
                    *after.bag.entry((other % 4, v.clone())).or_default() += count;
                }
                format!("UPDATE bag SET k = {} WHERE k = {}", other % 4, id % 4)
            }
            7 => {
                after.bag.retain(|(k, v), _| !(*k == id % 4 && v == "v1"));
                format!("DELETE FROM bag WHERE k = {} AND v = 'v1'", id % 4)
            }
            _ => {
                for (i, account) in &mut after.accounts {
                    let total: u64 = self
                        .bag
                        .iter()
                        .filter(|((k, _), _)| k == i)
                        .map(|(_, n)| n)
                        .sum();
                    account.1 += total as i64;
                }
                "UPDATE accounts SET balance = balance + (SELECT count(*) FROM bag WHERE bag.k = accounts.id)".to_owned()
            }
        };
        (sql, Some(after))
    }

    fn lines(&self) -> (Vec<String>, Vec<String>) {
        let accounts = self.accounts.iter().map(|(id, (name, balance))| {
            format!("{id}|{}|{balance}.00", name.as_deref().unwrap_or("∅"))
        });
        let bag = self
            .bag
            .iter()
            .flat_map(|((k, v), count)| vec![format!("{k}|{v}"); *count as usize]);
        (accounts.collect(), bag.collect())
    }
}

use crate::log::simulation::Random;

async fn check(database: &Database, transaction: &mut Transaction, model: &Model, what: &str) {
    let (accounts, bag) = model.lines();
    let sql = "SELECT id, name, balance FROM accounts ORDER BY id";
    let found = texts(database.run_in(transaction, sql, &[]).await.unwrap());
    assert_eq!(found, accounts, "accounts, {what}");
    let sql = "SELECT k, v FROM bag ORDER BY k, v";
    let found = texts(database.run_in(transaction, sql, &[]).await.unwrap());
    assert_eq!(found, bag, "bag, {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transactions_match_the_model_over_restarts() {
    for seed in 1..=6 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::open(dir.path());
        let mut committed = Model::default();
        for round in 0..25 {
            let mut transaction = Transaction::begin(&database.store).unwrap();
            let mut model = committed.clone();
            let mut saved = None;
            for _ in 0..random.below(7) {
                if random.one_in(4) {
                    saved = Some((transaction.mark(), model.clone()));
                }
                if random.one_in(5)
                    && let Some((mark, earlier)) = &saved
                {
                    transaction.rollback_to(mark).unwrap();
                    model = earlier.clone();
                }
                let (sql, after) = model.step(&mut random);
                let what = format!("seed {seed}, round {round}: {sql}");
                let result = database.run_in(&mut transaction, &sql, &[]).await;
                match after {
                    Some(after) => {
                        result.unwrap_or_else(|e| panic!("{what}: {e}"));
                        model = after;
                    }
                    None => {
                        let error = result.expect_err(&what);
                        assert_eq!(error.sqlstate(), sqlstate::UNIQUE_VIOLATION, "{what}");
                    }
                }
                check(&database, &mut transaction, &model, &what).await;
            }
            if random.one_in(3) {
                drop(transaction);
            } else {
                transaction.commit().await.unwrap();
                committed = model;
            }
            if random.one_in(6) {
                drop(database);
                if random.one_in(2) {
                    std::fs::remove_dir_all(dir.path().join("log/tables")).ok();
                }
                database = Database::open(dir.path());
            }
            let mut reader = Transaction::begin(&database.store).unwrap();
            check(
                &database,
                &mut reader,
                &committed,
                &format!("seed {seed}, round {round}"),
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_increments_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let database = Arc::new(Database::open(dir.path()));
    database
        .count("INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0)")
        .await;
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let database = Arc::clone(&database);
            tokio::spawn(async move {
                let id = 1 + client % 2;
                let sql = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {id}");
                for _ in 0..25 {
                    while let Err(error) = database.run(&sql).await {
                        assert_eq!(error.sqlstate(), sqlstate::SERIALIZATION_FAILURE);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(
        database
            .rows("SELECT balance FROM accounts ORDER BY id")
            .await,
        ["50.00", "50.00"]
    );
}

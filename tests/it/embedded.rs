//! The library in another program: functions in Rust, used in views.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidemill::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use tidemill::arrow::datatypes::Int64Type;
use tidemill::types::SqlType;
use tidemill::{
    AggregateFunction, Database, DatabaseOptions, Determinism, HostFunction, Result, ScalarFunction,
};

use crate::harness::run;
use crate::oracle::multiset;

/// `mirrored(text)`: its characters from the last to the first.
#[derive(Debug)]
struct Mirrored;

impl ScalarFunction for Mirrored {
    fn name(&self) -> &str {
        "mirrored"
    }

    fn parameters(&self) -> Vec<SqlType> {
        vec![SqlType::Text]
    }

    fn result(&self) -> SqlType {
        SqlType::Text
    }

    fn compute(&self, arguments: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let texts = arguments[0].as_string::<i32>().iter();
        let mirrored = texts.map(|text| text.map(|t| t.chars().rev().collect::<String>()));
        Ok(Arc::new(mirrored.collect::<StringArray>()))
    }
}

/// `ticket()`: another number each time.
#[derive(Debug)]
struct Ticket;

impl ScalarFunction for Ticket {
    fn name(&self) -> &str {
        "ticket"
    }

    fn parameters(&self) -> Vec<SqlType> {
        Vec::new()
    }

    fn result(&self) -> SqlType {
        SqlType::BigInt
    }

    fn determinism(&self) -> Determinism {
        Determinism::Volatile
    }

    fn compute(&self, _: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let tickets = 0..i64::try_from(rows).unwrap_or(i64::MAX);
        Ok(Arc::new(tickets.collect::<Int64Array>()))
    }
}

/// `commonest(bigint)`: the value that most rows have, the least of several.
#[derive(Debug)]
struct Commonest;

impl AggregateFunction for Commonest {
    fn name(&self) -> &str {
        "commonest"
    }

    fn parameters(&self) -> Vec<SqlType> {
        vec![SqlType::BigInt]
    }

    fn result(&self) -> SqlType {
        SqlType::BigInt
    }

    fn compute(&self, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        let mut counts = BTreeMap::new();
        for value in arguments[0].as_primitive::<Int64Type>().iter().flatten() {
            *counts.entry(value).or_insert(0) += 1;
        }
        let mut best: Option<(i64, i32)> = None;
        for (value, count) in counts {
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((value, count));
            }
        }
        let result: Int64Array = [best.map(|(value, _)| value)].into_iter().collect();
        Ok(Arc::new(result))
    }
}

async fn open(dir: &Path, functions: Vec<HostFunction>) -> Result<Database> {
    let options = DatabaseOptions {
        functions,
        ..DatabaseOptions::default()
    };
    Database::open(dir, options).await
}

fn all() -> Vec<HostFunction> {
    vec![
        HostFunction::Scalar(Arc::new(Mirrored)),
        HostFunction::Scalar(Arc::new(Ticket)),
        HostFunction::Aggregate(Arc::new(Commonest)),
    ]
}

async fn query(database: &Database, sql: &str) -> Vec<RecordBatch> {
    let rows = database.query(sql).await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn expect(database: &Database, view: &str, select: &str, what: &str) {
    database.execute("FLUSH").await.expect("a flush");
    let kept = query(database, &format!("SELECT * FROM {view}")).await;
    let batch = query(database, select).await;
    assert_eq!(multiset(&kept), multiset(&batch), "{what}: {view}");
}

#[test]
fn functions_of_the_program_are_used_in_views() {
    const VIEWS: [(&str, &str); 3] = [
        (
            "names",
            "SELECT id, mirrored(name) AS m FROM t WHERE mirrored(name) <> 'x'",
        ),
        (
            "groups",
            "SELECT name, commonest(v) AS c, count(*) AS n FROM t GROUP BY name",
        ),
        ("whole", "SELECT commonest(v) AS c FROM t"),
    ];
    run(async {
        let dir = tempfile::tempdir().expect("a folder");
        let mut database = open(dir.path(), all()).await.expect("it opens");
        let table = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, v BIGINT)";
        database.execute(table).await.expect("a table");
        for (name, select) in VIEWS {
            let create = format!("CREATE MATERIALIZED VIEW {name} AS {select}");
            database.execute(&create).await.expect("a view");
        }
        for change in [
            "INSERT INTO t VALUES (1, 'abc', 5), (2, 'abc', 5), (3, 'abc', 7), (4, NULL, 1), (5, 'x', 2)",
            "UPDATE t SET v = 7 WHERE id = 1",
            "DELETE FROM t WHERE id IN (2, 4)",
            "UPDATE t SET name = 'éa' WHERE id = 5",
            "DELETE FROM t",
        ] {
            database.execute(change).await.expect(change);
            for (name, select) in VIEWS {
                expect(&database, name, select, change).await;
            }
            // The views are planned again over the functions that are there then.
            database.close().await.expect("it closes");
            drop(database);
            database = open(dir.path(), all()).await.expect("it opens again");
        }
        database
            .execute("INSERT INTO t VALUES (1, 'abc', 5)")
            .await
            .expect("a row");
        database.execute("FLUSH").await.expect("a flush");
        let rows = query(&database, "SELECT m FROM names").await;
        assert_eq!(rows[0].column(0).as_string::<i32>().value(0), "cba");

        let volatile = "CREATE MATERIALIZED VIEW tickets AS SELECT id, ticket() AS n FROM t";
        let error = database
            .execute(volatile)
            .await
            .expect_err("it is volatile");
        assert_eq!(error.sqlstate(), "0A000");
        database
            .execute("SELECT id, ticket() FROM t")
            .await
            .expect("a query may");
        let taken = "CREATE FUNCTION mirrored(x TEXT) RETURNS TEXT RETURN x";
        let error = database
            .execute(taken)
            .await
            .expect_err("the name is taken");
        assert_eq!(error.sqlstate(), "42723");
        database.close().await.expect("it closes");
    });
}

#[test]
fn names_of_the_system_are_refused() {
    #[derive(Debug)]
    struct Named(&'static str);
    impl ScalarFunction for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn parameters(&self) -> Vec<SqlType> {
            Vec::new()
        }
        fn result(&self) -> SqlType {
            SqlType::BigInt
        }
        fn compute(&self, _: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
            Ok(Arc::new(Int64Array::from(vec![0; rows])))
        }
    }
    run(async {
        for (name, sqlstate) in [("lower", "42723"), ("sum", "42723"), ("My Own", "42602")] {
            let dir = tempfile::tempdir().expect("a folder");
            let function = HostFunction::Scalar(Arc::new(Named(name)));
            let error = open(dir.path(), vec![function]).await.expect_err(name);
            assert_eq!(error.sqlstate(), sqlstate, "{name}");
        }
    });
}

//! Streams, COPY and several statements in one transaction; several transactions at once.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::{Database, MONEY, batch_texts, texts};
use crate::error::sqlstate;
use crate::session::dml::{CopyRows, PlainPlanner, Transaction};

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
async fn transactions_see_their_own_changes_and_the_second_waits_for_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    database
        .count("INSERT INTO accounts (id, balance) VALUES (1, 1), (2, 2)")
        .await;
    let mut first = Transaction::begin(&database.store).unwrap();
    let mut second = Transaction::begin(&database.store).unwrap();
    let add = "UPDATE accounts SET balance = balance + 10 WHERE id = 1";
    database.run_in(&mut first, add, &[]).await.unwrap();
    let error = database.run_in(&mut second, add, &[]).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::SERIALIZATION_FAILURE);
    let conflict = second.take_conflict().expect("the first has the row");
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
    conflict.over(None).await.unwrap();
    second.begin_statement().unwrap();
    database.run_in(&mut second, add, &[]).await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(database.rows(seen).await, ["21.00", "3.00"]);
    // Both insert the same key.
    let mut first = Transaction::begin(&database.store).unwrap();
    let mut second = Transaction::begin(&database.store).unwrap();
    database
        .run_in(&mut first, "INSERT INTO accounts (id) VALUES (7)", &[])
        .await
        .unwrap();
    let insert = "INSERT INTO accounts (id) VALUES (7)";
    database.run_in(&mut second, insert, &[]).await.unwrap_err();
    let conflict = second.take_conflict().expect("the first has the key");
    first.commit().await.unwrap();
    conflict.over(None).await.unwrap();
    second.begin_statement().unwrap();
    let error = database.run_in(&mut second, insert, &[]).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::UNIQUE_VIOLATION);
    assert!(second.take_conflict().is_none());
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
        let ids = Int64Array::from(ids.to_vec());
        let balances = cast(&ids, &MONEY.to_arrow()).unwrap();
        RecordBatch::try_new(copy_schema(), vec![balances, Arc::new(ids)]).unwrap()
    };
    fn copy_schema() -> SchemaRef {
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

#[tokio::test]
async fn a_copy_of_more_than_fits_says_how_to_split_it() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path());
    let mut transaction = Transaction::begin(&database.store).unwrap();
    let mut failed = None;
    for part in 0..1000 {
        let insert = format!(
            "INSERT INTO accounts (id, name) SELECT {part} * 1000 + i, repeat('x', 100) FROM (SELECT unnest(range(0, 1000)) AS i)"
        );
        if let Err(error) = database.run_in(&mut transaction, &insert, &[]).await {
            failed = Some((part, error));
            break;
        }
    }
    let (part, error) = failed.expect("the limit is met");
    assert!((10..80).contains(&part), "{part}");
    assert_eq!(error.sqlstate(), sqlstate::OUT_OF_MEMORY);
    assert!(error.detail_text().unwrap().contains("8 MiB"));
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("COPY a large file in parts"), "{hint}");
    // What was said before stays; in parts it goes.
    transaction.commit().await.unwrap();
    let mut transaction = Transaction::begin(&database.store).unwrap();
    let insert = "INSERT INTO accounts (id, name) SELECT 1000000 + i, repeat('x', 100) FROM (SELECT unnest(range(0, 1000)) AS i)";
    database
        .run_in(&mut transaction, insert, &[])
        .await
        .unwrap();
}

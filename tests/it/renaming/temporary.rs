//! Temporary views over relations that have other names since.

use crate::harness::{Server, describe, rows, run};

async fn values(client: &tokio_postgres::Client, sql: &str) -> Vec<String> {
    let found = rows(client, sql).await;
    let found = found.unwrap_or_else(|error| panic!("{sql}: {}", describe(&error)));
    found.into_iter().flatten().collect()
}

#[test]
fn a_temporary_view_goes_on_over_what_others_rename() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE TABLE a (k BIGINT PRIMARY KEY); CREATE TABLE b (k BIGINT PRIMARY KEY);
                 INSERT INTO a VALUES (1); INSERT INTO b VALUES (2)",
            )
            .await;
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE TEMP VIEW of_a AS SELECT a.k FROM a; CREATE TEMP VIEW of_both AS SELECT a.k AS a, b.k AS b FROM a, b;
                 CREATE TEMP VIEW over AS SELECT * FROM of_a",
            )
            .await
            .expect("created");
        server.execute("ALTER TABLE a RENAME TO a2").await;
        assert_eq!(values(&client, "SELECT * FROM of_a").await, ["1"]);
        assert_eq!(values(&client, "SELECT * FROM over").await, ["1"]);
        // Another one of the old name is another one.
        server
            .execute("CREATE TABLE a (k BIGINT PRIMARY KEY); INSERT INTO a VALUES (9)")
            .await;
        assert_eq!(values(&client, "SELECT * FROM of_both").await, ["1", "2"]);
        // Names that are exchanged between two looks.
        server
            .execute(
                "BEGIN; ALTER TABLE a2 RENAME TO c; ALTER TABLE b RENAME TO a2; ALTER TABLE c RENAME TO b; COMMIT",
            )
            .await;
        assert_eq!(values(&client, "SELECT * FROM of_both").await, ["1", "2"]);
        assert_eq!(values(&client, "SELECT * FROM of_a").await, ["1"]);
        let text = "SELECT pg_get_viewdef('of_a'::regclass)";
        assert_eq!(values(&client, text).await, [" SELECT b.k FROM b;"]);
    });
}

#[test]
fn a_temporary_view_goes_on_over_what_its_session_renames() {
    run(async {
        let server = Server::start();
        server
            .execute("CREATE STREAM s (k BIGINT); INSERT INTO s VALUES (3)")
            .await;
        let client = server.connect().await;
        client
            .batch_execute("CREATE TEMP VIEW tv AS SELECT * FROM s; ALTER STREAM s RENAME TO s2")
            .await
            .expect("renamed");
        assert_eq!(values(&client, "SELECT * FROM tv").await, ["3"]);
        client
            .batch_execute("BEGIN; ALTER STREAM s2 RENAME TO s3")
            .await
            .expect("renamed");
        assert_eq!(values(&client, "SELECT * FROM tv").await, ["3"]);
        client.batch_execute("ROLLBACK").await.expect("rolled back");
        assert_eq!(values(&client, "SELECT * FROM tv").await, ["3"]);
        client
            .batch_execute("CREATE STREAM s (k BIGINT); INSERT INTO s VALUES (4)")
            .await
            .expect("created");
        assert_eq!(values(&client, "SELECT * FROM tv").await, ["3"]);
        assert_eq!(values(&client, "SELECT * FROM s").await, ["4"]);
    });
}

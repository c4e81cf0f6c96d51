//! Temporary tables beside what lasts: kills, failed commits, the memory limit, other users.
//!
//! What they answer is compared with PostgreSQL in `clients/temporary_session.py`.

use std::path::Path;

use crate::harness::{Server, describe, rows, run};

/// Some file below `folder` holds these bytes.
fn is_on_disk(folder: &Path, needle: &[u8]) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => is_on_disk(&path, needle),
            false => std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle)),
        }
    })
}

#[test]
fn a_kill_leaves_nothing_of_temporary_tables() {
    run(async {
        let mut server = Server::start();
        server
            .execute(
                "CREATE TABLE t (id BIGINT PRIMARY KEY, what TEXT);
                 INSERT INTO t VALUES (1, 'permanent');
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, max(what) AS what FROM t;",
            )
            .await;
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE TEMP TABLE t AS SELECT g AS id, 'fleeting' || g AS what FROM generate_series(1, 5000) g;
                 BEGIN; INSERT INTO t VALUES (0, 'fleeting'); INSERT INTO public.t SELECT id + 10, 'from it' FROM t WHERE id = 3; COMMIT",
            )
            .await
            .expect("both change as one");
        server.execute("FLUSH").await;
        assert_eq!(
            server.rows("SELECT * FROM v").await,
            [["2", "permanent"]],
            "a view reads what is permanent, whatever hides it"
        );
        server.kill();
        assert!(
            !is_on_disk(server.dir(), b"fleeting4"),
            "rows of temporary tables are in no file"
        );
        assert!(is_on_disk(server.dir(), b"from it"));
        server.restart();
        assert_eq!(
            server.rows("SELECT * FROM t ORDER BY id").await,
            [["1", "permanent"], ["13", "from it"]]
        );
        let left = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'";
        assert_eq!(server.value(left).await, "0");
        server
            .execute("CREATE TEMP TABLE u (a BIGINT); INSERT INTO u VALUES (1)")
            .await;
    });
}

#[test]
fn a_commit_that_fails_leaves_temporary_tables_as_they_were() {
    run(async {
        let server = Server::start();
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE TEMP TABLE s (a BIGINT); INSERT INTO s VALUES (1);
                 CREATE TEMP TABLE other AS SELECT 1 AS a",
            )
            .await
            .expect("they are made");
        client
            .batch_execute(
                "BEGIN; INSERT INTO s VALUES (2); DROP TABLE other; CREATE TEMP TABLE late (a BIGINT);
                 CREATE TABLE taken (id BIGINT PRIMARY KEY)",
            )
            .await
            .expect("all of it works");
        server
            .execute("CREATE TABLE taken (id BIGINT PRIMARY KEY)")
            .await;
        let error = client.batch_execute("COMMIT").await.expect_err("it lost");
        assert!(describe(&error).contains("42P07"), "{}", describe(&error));
        let kept = rows(
            &client,
            "SELECT (SELECT count(*) FROM s), (SELECT count(*) FROM other)",
        );
        assert_eq!(kept.await.expect("both are there"), [["1", "1"]]);
        let late = client.batch_execute("SELECT * FROM late").await;
        assert!(describe(&late.expect_err("never made")).contains("42P01"));
    });
}

#[test]
fn temporary_tables_stay_within_the_memory_of_queries() {
    run(async {
        let server = Server::start_with(&["--memory-limit", "128MiB"], &[]);
        let client = server.connect().await;
        client
            .batch_execute("CREATE TEMP TABLE big (id BIGINT PRIMARY KEY, what TEXT)")
            .await
            .expect("made");
        let mut refused = None;
        for round in 0..40 {
            let insert = format!(
                "INSERT INTO big SELECT g + {round} * 10000, repeat('x', 200) FROM generate_series(1, 10000) g"
            );
            if let Err(error) = client.batch_execute(&insert).await {
                refused = Some((round, describe(&error)));
                break;
            }
        }
        let (round, error) = refused.expect("there is a limit");
        assert!(error.contains("53200"), "{error}");
        assert!(round > 2, "some fit: {round}");
        let count = rows(&client, "SELECT count(*) FROM big").await;
        assert_eq!(
            count.expect("what fitted is there"),
            [[(round * 10_000).to_string()]]
        );
        client
            .batch_execute("DELETE FROM big WHERE id > 100")
            .await
            .expect("rows go");
        client
            .batch_execute(
                "INSERT INTO big SELECT g + 1000000, 'y' FROM generate_series(1, 10000) g",
            )
            .await
            .expect("there is room again");
        // Another session is not harmed, and what this one holds goes with it.
        let sorted = "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY g DESC) AS n FROM generate_series(1, 10000) g) s";
        assert_eq!(server.value(sorted).await, "10000");
    });
}

#[test]
fn temporary_tables_need_their_privilege_and_nothing_else() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE TABLE t (a BIGINT PRIMARY KEY); CREATE ROLE ada; GRANT SELECT ON t TO ada;
                 REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            )
            .await;
        let client = server.connect().await;
        client.batch_execute("SET ROLE ada").await.expect("ada");
        client
            .batch_execute(
                "CREATE TEMP TABLE mine (a BIGINT PRIMARY KEY); INSERT INTO mine VALUES (1);
                 UPDATE mine SET a = 2; ALTER TABLE mine ADD COLUMN b TEXT; COMMENT ON TABLE mine IS 'x';
                 INSERT INTO mine SELECT a FROM t; TRUNCATE mine; DROP TABLE mine",
            )
            .await
            .expect("her own");
        server
            .execute("REVOKE TEMPORARY ON DATABASE tidemill FROM PUBLIC")
            .await;
        let refused = client.batch_execute("CREATE TEMP TABLE mine (a BIGINT)");
        let error = describe(&refused.await.expect_err("not any more"));
        assert!(
            error.contains("42501")
                && error.contains(
                    "permission denied to create temporary tables in database \"tidemill\""
                ),
            "{error}"
        );
    });
}

//! What each mode does with JSON lines.

use super::{WITHIN, added, columns_of, counted, create, put, wait_for_failure, wait_for_rows};
use crate::harness::{Server, describe, run};

const JSON: &str = "format = 'json'";

#[test]
fn none_ignores_unknown_fields_and_counts_their_rows() {
    run(async {
        let server = Server::start();
        put(
            &server,
            "a.json",
            "{\"k\": 1, \"v\": 2}\n{\"k\": 2, \"x\": 1}\n{\"k\": 3, \"x\": null}\n{\"k\": \"no\", \"x\": 1}\n{\"y\": [], \"k\": 4, \"x\": 1}\n",
        );
        create(&server, JSON).await;
        wait_for_rows(&server, "kept", 4).await;
        server.execute("FLUSH").await;
        assert_eq!(
            counted(&server, "kept", "num_rows_unknown_fields").await,
            "2"
        );
        assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "0");
        assert_eq!(counted(&server, "kept", "num_dead_letter_rows").await, "1");
        assert_eq!(columns_of(&server, "f").await, ["k bigint", "v bigint"]);
    });
}

#[test]
fn rescue_keeps_what_no_column_takes_in_a_column_that_a_star_leaves_out() {
    run(async {
        let server = Server::start();
        put(
            &server,
            "a.json",
            "{\"k\": 1, \"v\": 2}\n{\"k\": 2, \"v\": \"seven\", \"x\": {\"y\": 1}}\n{\"k\": 3, \"x\": null}\n",
        );
        create(&server, "format = 'json', schema_evolution = 'rescue'").await;
        server
            .execute(
                "CREATE MATERIALIZED VIEW rescued AS SELECT k, _rescued_data FROM f;
                 CREATE MATERIALIZED VIEW alike AS SELECT * FROM f NATURAL JOIN (SELECT * FROM f) g;
                 CREATE MATERIALIZED VIEW paired AS SELECT * FROM f NATURAL JOIN f AS g;
                 CREATE MATERIALIZED VIEW as_row AS SELECT to_jsonb(f) AS whole, k FROM f;
                 CREATE MATERIALIZED VIEW joined AS SELECT a.*, b.v AS other FROM f a JOIN (SELECT * FROM f) b ON a.k = b.k",
            )
            .await;
        for view in ["kept", "rescued", "joined", "as_row"] {
            wait_for_rows(&server, view, 3).await;
        }
        // Rows of NULL meet none; a column that nobody sees is no condition.
        for view in ["alike", "paired"] {
            wait_for_rows(&server, view, 1).await;
            assert_eq!(columns_of(&server, view).await, ["k bigint", "v bigint"]);
        }
        assert_eq!(
            server.value("SELECT whole FROM as_row WHERE k = 1").await,
            "{\"k\": 1, \"v\": 2}"
        );
        assert_eq!(
            server.rows("SELECT * FROM kept ORDER BY k").await,
            [["1", "2"], ["2", "NULL"], ["3", "NULL"]]
        );
        assert_eq!(columns_of(&server, "kept").await, ["k bigint", "v bigint"]);
        assert_eq!(columns_of(&server, "joined").await.len(), 3);
        assert_eq!(
            server
                .rows("SELECT k, _rescued_data ->> 'v', _rescued_data -> 'x' ->> 'y', _rescued_data ->> '_file_path' FROM rescued ORDER BY k")
                .await,
            [
                ["1", "NULL", "NULL", "NULL"],
                ["2", "seven", "1", "in/a.json"],
                ["3", "NULL", "NULL", "NULL"]
            ]
        );
        // A statement over the stream itself sees it likewise.
        assert_eq!(
            server.rows("SELECT * FROM f WHERE k = 1").await,
            [["1", "2"]]
        );
        assert_eq!(server.rows("TABLE f").await[0].len(), 2);
        let of_two = "SELECT * FROM f a, f b WHERE a.k = b.k AND a.k = 1";
        assert_eq!(server.rows(of_two).await, [["1", "2", "1", "2"]]);
        let merged = "SELECT * FROM f a JOIN f b USING (k) WHERE k = 1";
        assert_eq!(server.rows(merged).await, [["1", "2", "2"]]);
        let named = "WITH f AS (SELECT k, _rescued_data FROM f) SELECT * FROM f WHERE k = 2";
        assert_eq!(server.rows(named).await[0].len(), 2);
        server.execute("FLUSH").await;
        assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "1");
        assert_eq!(counted(&server, "kept", "num_dead_letter_rows").await, "0");
        let client = server.connect().await;
        let dropped = client
            .batch_execute("ALTER STREAM f DROP COLUMN _rescued_data")
            .await;
        let told = describe(&dropped.expect_err("it is needed"));
        assert!(told.contains("schema_evolution"), "{told}");
    });
}

#[test]
fn a_stream_begins_to_rescue_when_it_is_told_to() {
    run(async {
        let server = Server::start();
        put(&server, "a.json", "{\"k\": 1, \"x\": 1}\n");
        create(&server, JSON).await;
        wait_for_rows(&server, "kept", 1).await;
        server
            .execute("ALTER STREAM f SET (schema_evolution = 'rescue')")
            .await;
        put(&server, "b.json", "{\"k\": 2, \"v\": \"two\"}\n");
        wait_for_rows(&server, "kept", 2).await;
        assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "1");
        // What is read from now on is rescued whenever it came.
        server
            .execute("CREATE MATERIALIZED VIEW rescued AS SELECT k FROM f WHERE _rescued_data IS NOT NULL")
            .await;
        wait_for_rows(&server, "rescued", 2).await;
        let created = server
            .value("SELECT count(*) FROM (SELECT * FROM f) q")
            .await;
        assert_eq!(created, "2");
        server
            .execute("ALTER STREAM f SET (schema_evolution = 'none')")
            .await;
        put(
            &server,
            "c.json",
            "{\"k\": 3, \"v\": \"three\"}\n{\"k\": 4}\n",
        );
        wait_for_rows(&server, "kept", 3).await;
    });
}

#[test]
fn fail_stops_before_the_batch_and_names_place_field_and_statement() {
    run(async {
        let mut server = Server::start();
        put(&server, "a.json", "{\"k\": 1}\n");
        create(&server, "format = 'json', schema_evolution = 'fail'").await;
        wait_for_rows(&server, "kept", 1).await;
        put(
            &server,
            "b.json",
            "{\"k\": 2, \"x\": null}\n{\"k\": 3, \"userId\": 7, \"at\": \"2024-05-01T00:00:00Z\"}\n{\"k\": 4, \"userId\": 7.5}\n",
        );
        let (error, hint) = wait_for_failure(&server, "kept").await;
        assert!(
            error.contains("field \"userId\"") && error.contains("in/b.json line 2"),
            "{error}"
        );
        let alter = hint
            .split_inclusive(';')
            .next()
            .expect("a statement")
            .to_owned();
        assert_eq!(
            alter,
            "ALTER STREAM f ADD COLUMN \"userId\" double precision, ADD COLUMN at timestamp with time zone;"
        );
        // Nothing of the batch is shown, and a restart changes nothing.
        wait_for_rows(&server, "kept", 1).await;
        server.kill();
        server.restart();
        let (again, _) = wait_for_failure(&server, "kept").await;
        assert_eq!(again, error);
        server.execute(&alter).await;
        wait_for_rows(&server, "kept", 4).await;
        server
            .execute("CREATE MATERIALIZED VIEW wide AS SELECT * FROM f")
            .await;
        wait_for_rows(&server, "wide", 4).await;
        assert_eq!(
            server
                .rows("SELECT k, \"userId\", at IS NULL FROM wide ORDER BY k")
                .await,
            [
                ["1", "NULL", "t"],
                ["2", "NULL", "t"],
                ["3", "7", "f"],
                ["4", "7.5", "t"]
            ]
        );
        // Another option lets it go on too; a column that was dropped is no new field.
        put(&server, "c.json", "{\"k\": 5, \"more\": 1}\n");
        wait_for_failure(&server, "kept").await;
        server
            .execute("ALTER STREAM f SET (schema_evolution = 'none')")
            .await;
        wait_for_rows(&server, "kept", 5).await;
        server
            .execute(
                "DROP MATERIALIZED VIEW wide; ALTER STREAM f DROP COLUMN at;
                 ALTER STREAM f SET (schema_evolution = 'fail')",
            )
            .await;
        put(
            &server,
            "d.json",
            "{\"k\": 6, \"at\": \"2024-05-01T00:00:00Z\"}\n",
        );
        wait_for_rows(&server, "kept", 6).await;
        assert_eq!(added(&server, "f").await, Vec::<String>::new());
    });
}

#[test]
fn add_new_columns_takes_fields_in_without_failing_and_views_keep_their_columns() {
    run(async {
        let server = Server::start();
        put(&server, "a.json", "{\"k\": 1, \"v\": 10}\n");
        create(
            &server,
            "format = 'json', schema_evolution = 'add_new_columns'",
        )
        .await;
        server
            .execute(
                "CREATE MATERIALIZED VIEW other WITH (trigger = '30 milliseconds') AS SELECT k, count(*) AS n FROM f GROUP BY k",
            )
            .await;
        wait_for_rows(&server, "kept", 1).await;
        put(
            &server,
            "b.json",
            "{\"k\": 2, \"n\": 1, \"b\": true, \"t\": \"x\", \"d\": 0.5, \"j\": {\"a\": [1]}, \"nothing\": null}\n{\"k\": 3, \"n\": 2.5, \"t\": 5, \"at\": \"2024-05-01T00:00:00+02:00\", \"userId\": 3000000000}\n",
        );
        for view in ["kept", "other"] {
            wait_for_rows(&server, view, 3).await;
        }
        let expected = [
            "k bigint",
            "v bigint",
            "n double precision",
            "b boolean",
            "t text",
            "d double precision",
            "j jsonb",
            "at timestamp with time zone",
            "userId bigint",
        ];
        assert_eq!(columns_of(&server, "f").await, expected);
        assert_eq!(columns_of(&server, "kept").await, expected[..2]);
        server
            .execute("CREATE MATERIALIZED VIEW wide AS SELECT * FROM f")
            .await;
        wait_for_rows(&server, "wide", 3).await;
        assert_eq!(
            server
                .rows("SELECT k, n, b, t, d, j -> 'a' ->> 0, at = '2024-04-30T22:00:00Z', \"userId\" FROM wide ORDER BY k")
                .await,
            [
                ["1", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"],
                ["2", "1", "t", "x", "0.5", "1", "NULL", "NULL"],
                ["3", "2.5", "NULL", "5", "NULL", "NULL", "t", "3000000000"]
            ]
        );
        // Both pipelines found the fields; each came once, and nothing failed.
        assert_eq!(
            added(&server, "f").await,
            ["n", "b", "t", "d", "j", "at", "userId"]
        );
        let failed = "SELECT count(*) FROM streaming_events WHERE event IN ('failed', 'retried')";
        assert_eq!(server.value(failed).await, "0");
        // A value of another type is what the policy for bad rows says; a wider column takes narrower ones.
        put(
            &server,
            "c.json",
            "{\"k\": 4, \"userId\": \"x\"}\n{\"k\": 5, \"n\": 7}\n",
        );
        wait_for_rows(&server, "wide", 4).await;
        for view in ["kept", "other"] {
            wait_for_rows(&server, view, 4).await;
            assert_eq!(counted(&server, view, "num_dead_letter_rows").await, "1");
        }
        // A column that someone dropped does not come back.
        server
            .execute("DROP MATERIALIZED VIEW wide; ALTER STREAM f DROP COLUMN j")
            .await;
        put(&server, "d.json", "{\"k\": 6, \"j\": 1}\n");
        wait_for_rows(&server, "kept", 5).await;
        assert!(
            !columns_of(&server, "f")
                .await
                .contains(&"j jsonb".to_owned())
        );
    });
}

#[test]
fn an_alter_that_another_session_overtook_is_refused() {
    run(async {
        let server = Server::start();
        put(&server, "a.json", "{\"k\": 1}\n");
        create(
            &server,
            "format = 'json', schema_evolution = 'add_new_columns'",
        )
        .await;
        wait_for_rows(&server, "kept", 1).await;
        let client = server.connect().await;
        client
            .batch_execute("BEGIN; ALTER STREAM f ADD COLUMN mine BIGINT")
            .await
            .expect("altered");
        put(&server, "b.json", "{\"k\": 2, \"theirs\": 1}\n");
        server
            .wait_for_value(
                "SELECT count(*) FROM information_schema.columns WHERE column_name = 'theirs'",
                "1",
                WITHIN,
            )
            .await;
        let error = client.batch_execute("COMMIT").await.expect_err("overtaken");
        let told = describe(&error);
        assert!(told.contains("40001"), "{told}");
        client
            .batch_execute("ROLLBACK; ALTER STREAM f ADD COLUMN mine BIGINT")
            .await
            .expect("altered");
        assert_eq!(
            columns_of(&server, "f").await,
            ["k bigint", "v bigint", "theirs bigint", "mine bigint"]
        );
    });
}

#[test]
fn a_missing_field_is_null_or_sets_the_record_aside_where_null_is_refused() {
    run(async {
        let server = Server::start();
        for mode in ["none", "rescue", "fail", "add_new_columns"] {
            let folder = server.dir().join(mode);
            super::put_into(
                &folder,
                "a.json",
                "{\"k\": 1, \"v\": 1}\n{\"v\": 2}\n{\"k\": 3}\n",
            );
            server
                .execute(&format!(
                    "CREATE STREAM s_{mode} (k BIGINT NOT NULL, v BIGINT)
                       WITH (connector = 'files', location = '{mode}', format = 'json', schema_evolution = '{mode}');
                     CREATE MATERIALIZED VIEW v_{mode} AS SELECT k, v FROM s_{mode}"
                ))
                .await;
            wait_for_rows(&server, &format!("v_{mode}"), 2).await;
            let letters =
                format!("SELECT origin FROM streaming_dead_letters WHERE stream_name = 's_{mode}'");
            assert_eq!(
                server.rows(&letters).await,
                [[format!("{mode}/a.json line 2")]]
            );
        }
    });
}

//! `merge_schema`: a sink whose view has other columns than its target.

use std::collections::BTreeSet;

use super::{WITHIN, put, wait_for_failure};
use crate::harness::{Server, run};

/// A view over a stream that gained a column, delivered into a folder that has files without it.
async fn deliver(server: &Server, format: &str, query: &str, options: &str) {
    server
        .execute(&format!(
            "CREATE MATERIALIZED VIEW v AS {query};
             CREATE SINK out FROM v WITH (connector = 'files', location = 'out', mode = 'append', {format}{options})"
        ))
        .await;
}

#[test]
fn new_columns_are_taken_into_the_target_or_both_schemas_are_shown() {
    run(async {
        for (name, format) in [
            ("parquet", "format = 'parquet'"),
            ("json", "format = 'json'"),
            ("csv", "format = 'csv', header = true"),
        ] {
            let server = Server::start();
            put(&server, "a.json", "{\"k\": 1, \"more\": \"x\"}\n");
            server
                .execute(
                    "CREATE STREAM f (k BIGINT, more TEXT) WITH (connector = 'files', location = 'in', format = 'json')",
                )
                .await;
            deliver(&server, format, "SELECT k FROM f", "").await;
            let delivered = "SELECT num_output_rows FROM streaming_sinks WHERE sink_name = 'out'";
            server.wait_for_value(delivered, "1", WITHIN).await;
            server
                .execute("DROP SINK out; DROP MATERIALIZED VIEW v")
                .await;
            deliver(&server, format, "SELECT k, more FROM f", "").await;
            let (error, hint) = wait_for_failure(&server, "v").await;
            assert!(error.contains("the target has other columns"), "{error}");
            assert_eq!(
                hint.split_inclusive(": ").nth(1).expect("a statement"),
                "ALTER SINK out SET (merge_schema = true);"
            );
            let detail = server
                .value("SELECT detail ->> 'detail' FROM streaming_events WHERE event = 'failed' AND object_name = 'v' ORDER BY event_at DESC LIMIT 1")
                .await;
            assert!(
                detail.contains("The target has") && detail.contains("k bigint, more text"),
                "{detail}"
            );
            server
                .execute("ALTER SINK out SET (merge_schema = true)")
                .await;
            server.wait_for_value(delivered, "1", WITHIN).await;
            // What is there now reads as one, older rows without the column.
            server
                .execute(&format!(
                    "CREATE STREAM back (k BIGINT, more TEXT) WITH (connector = 'files', location = 'out', {format})"
                ))
                .await;
            let rows = server.rows("SELECT k, more FROM back").await;
            let rows: BTreeSet<_> = rows.into_iter().map(|row| row.join(" ")).collect();
            assert_eq!(rows, ["1 NULL", "1 x"].map(str::to_owned).into(), "{name}");
            // Nothing of a column that goes, or is of another type, can be merged.
            server
                .execute("DROP SINK out; DROP MATERIALIZED VIEW v")
                .await;
            deliver(
                &server,
                format,
                "SELECT more FROM f",
                ", merge_schema = true",
            )
            .await;
            let (_, hint) = wait_for_failure(&server, "v").await;
            assert!(hint.contains("another folder"), "{hint}");
        }
    });
}

#[test]
fn a_column_of_another_type_is_never_merged_into_parquet() {
    run(async {
        let server = Server::start();
        put(&server, "a.json", "{\"k\": 1}\n");
        server
            .execute("CREATE STREAM f (k BIGINT) WITH (connector = 'files', location = 'in', format = 'json')")
            .await;
        deliver(&server, "format = 'parquet'", "SELECT k FROM f", "").await;
        let delivered = "SELECT num_output_rows FROM streaming_sinks WHERE sink_name = 'out'";
        server.wait_for_value(delivered, "1", WITHIN).await;
        server
            .execute("DROP SINK out; DROP MATERIALIZED VIEW v")
            .await;
        deliver(
            &server,
            "format = 'parquet'",
            "SELECT k::text AS k FROM f",
            ", merge_schema = true",
        )
        .await;
        let (error, _) = wait_for_failure(&server, "v").await;
        assert!(error.contains("the target has other columns"), "{error}");
        let test = server.rows("TEST SINK out").await;
        assert!(
            test.iter()
                .flatten()
                .any(|cell| cell.contains("the target has other columns")),
            "{test:?}"
        );
    });
}

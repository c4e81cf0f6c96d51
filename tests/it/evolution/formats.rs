//! The modes over CSV with a header and Parquet, and what is told of files.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, ListArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};

use super::{added, columns_of, counted, create, put, wait_for_failure, wait_for_rows};
use crate::harness::{Server, run};
use crate::recovery::parquet_of;

#[test]
fn csv_with_a_header_gains_and_rescues_and_counts() {
    run(async {
        let server = Server::start();
        let write = |server: &Server| {
            put(server, "a.csv", "k,v\n1,2\n");
            put(
                server,
                "b.csv",
                "zip,V,k,when,empty\n01067,3,2,2024-05-01T00:00:00Z,\n99,x,3,,\n",
            );
        };
        write(&server);
        create(
            &server,
            "format = 'csv', header = true, schema_evolution = 'add_new_columns'",
        )
        .await;
        wait_for_rows(&server, "kept", 2).await;
        assert_eq!(
            columns_of(&server, "f").await,
            [
                "k bigint",
                "v bigint",
                "zip text",
                "when timestamp with time zone"
            ]
        );
        assert_eq!(
            server.rows("SELECT k, v, zip FROM f ORDER BY k").await,
            [["1", "2", "NULL"], ["2", "3", "01067"]]
        );
        assert_eq!(counted(&server, "kept", "num_dead_letter_rows").await, "1");

        let server = Server::start();
        write(&server);
        create(
            &server,
            "format = 'csv', header = true, schema_evolution = 'rescue'",
        )
        .await;
        wait_for_rows(&server, "kept", 3).await;
        assert_eq!(
            server
                .rows("SELECT k, v, _rescued_data ->> 'zip', _rescued_data ->> 'v', _rescued_data ->> '_file_path' FROM f ORDER BY k")
                .await,
            [
                ["1", "2", "NULL", "NULL", "NULL"],
                ["2", "3", "01067", "NULL", "in/b.csv"],
                ["3", "NULL", "99", "x", "in/b.csv"]
            ]
        );
        server.execute("FLUSH").await;
        assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "2");

        let server = Server::start();
        write(&server);
        create(
            &server,
            "format = 'csv', header = true, schema_evolution = 'fail'",
        )
        .await;
        let (error, _) = wait_for_failure(&server, "kept").await;
        assert!(error.contains("in/b.csv line 2"), "{error}");
    });
}

fn numbers<const N: usize>(values: [i64; N]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts<const N: usize>(values: [&str; N]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// Columns of their own types: a time, a flag, a list and a struct.
fn wide() -> Vec<u8> {
    let times = TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("UTC");
    let list =
        ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)]), None]);
    let field = Arc::new(Field::new("a", DataType::Int64, true));
    let nested = StructArray::from(vec![(field, numbers([5, 6]))]);
    parquet_of(vec![
        ("K", numbers([2, 3])),
        ("at", Arc::new(times)),
        ("flag", Arc::new(BooleanArray::from(vec![true, false]))),
        ("list", Arc::new(list)),
        ("nested", Arc::new(nested)),
        ("v", texts(["7", "x"])),
    ])
}

#[test]
fn parquet_columns_come_with_their_own_types() {
    run(async {
        let server = Server::start();
        put(
            &server,
            "a.parquet",
            parquet_of(vec![("k", numbers([1])), ("v", numbers([1]))]),
        );
        create(
            &server,
            "format = 'parquet', schema_evolution = 'add_new_columns'",
        )
        .await;
        wait_for_rows(&server, "kept", 1).await;
        put(&server, "b.parquet", wide());
        wait_for_rows(&server, "kept", 2).await;
        assert_eq!(
            columns_of(&server, "f").await,
            [
                "k bigint",
                "v bigint",
                "at timestamp with time zone",
                "flag boolean",
                "list ARRAY",
                "nested jsonb"
            ]
        );
        assert_eq!(added(&server, "f").await, ["at", "flag", "list", "nested"]);
        assert_eq!(
            server
                .rows("SELECT k, v, at IS NULL, flag, list, nested ->> 'a' FROM f ORDER BY k")
                .await,
            [
                ["1", "1", "t", "NULL", "NULL", "NULL"],
                ["2", "7", "f", "t", "{1,2}", "5"]
            ]
        );
    });
}

#[test]
fn parquet_values_are_rescued_with_the_path_of_their_file() {
    run(async {
        let server = Server::start();
        put(&server, "b.parquet", wide());
        create(&server, "format = 'parquet', schema_evolution = 'rescue'").await;
        wait_for_rows(&server, "kept", 2).await;
        assert_eq!(
            server
                .rows(
                    "SELECT k, v, _rescued_data ->> 'v', _rescued_data ->> 'flag', _rescued_data -> 'nested' ->> 'a',
                       _rescued_data -> 'list' ->> 1, _rescued_data ->> '_file_path' FROM f ORDER BY k"
                )
                .await,
            [
                ["2", "7", "NULL", "true", "5", "2", "in/b.parquet"],
                ["3", "NULL", "x", "false", "6", "NULL", "in/b.parquet"]
            ]
        );
        server.execute("FLUSH").await;
        assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "2");
        assert_eq!(
            counted(&server, "kept", "num_rows_unknown_fields").await,
            "2"
        );
        assert_eq!(counted(&server, "kept", "num_dead_letter_rows").await, "0");
    });
}

#[test]
fn parquet_files_stop_a_stream_that_is_to_fail() {
    run(async {
        let server = Server::start();
        put(&server, "b.parquet", wide());
        create(&server, "format = 'parquet', schema_evolution = 'fail'").await;
        let (error, hint) = wait_for_failure(&server, "kept").await;
        assert!(error.contains("in/b.parquet"), "{error}");
        let alter = hint.split_inclusive(';').next().expect("a statement");
        server.execute(alter).await;
        wait_for_rows(&server, "kept", 1).await;
        assert_eq!(columns_of(&server, "f").await.len(), 6);
    });
}

#[test]
fn every_file_is_told_with_its_batch_its_rows_and_what_is_wrong_with_it() {
    run(async {
        let mut server = Server::start();
        put(&server, "a.json", "{\"k\": 1}\n{\"k\": 2}\nno\n");
        create(&server, "format = 'json', max_files_per_trigger = 1").await;
        wait_for_rows(&server, "kept", 2).await;
        put(&server, "b.json", "{\"k\": 3}\n");
        wait_for_rows(&server, "kept", 3).await;
        put(&server, "c.json", "{\"k\": 4}\n{\"k\"");
        let files = "SELECT path, state, batch_id, size_bytes, num_rows, num_dead_letter_rows, error IS NOT NULL
                       FROM streaming_files WHERE stream_name = 'f' ORDER BY path";
        let told = |rows: [&str; 2]| {
            vec![
                ["in/a.json", "committed", "0", "21", rows[0], rows[1], "f"]
                    .map(str::to_owned)
                    .to_vec(),
            ]
        };
        let all = server.rows(files).await;
        assert_eq!(all[..1], told(["2", "1"])[..]);
        assert_eq!(all[1][..3], ["in/b.json", "committed", "1"]);
        let waiting =
            "SELECT state FROM streaming_files WHERE path = 'in/c.json' AND error IS NOT NULL";
        let start = std::time::Instant::now();
        while server.rows(waiting).await != [["waiting"]] {
            assert!(
                start.elapsed() < super::WITHIN,
                "{:?}",
                server.rows(files).await
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        // What the source's log knows is still known after a restart.
        server.kill();
        server.restart();
        wait_for_rows(&server, "kept", 3).await;
        let start = std::time::Instant::now();
        while server.rows(files).await.len() < 3 {
            assert!(
                start.elapsed() < super::WITHIN,
                "{:?}",
                server.rows(files).await
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(server.rows(files).await[..1], told(["NULL", "NULL"])[..]);
        let named = "SELECT count(*) FROM streaming_files WHERE stream_name = 'nothing'";
        assert_eq!(server.value(named).await, "0");
    });
}

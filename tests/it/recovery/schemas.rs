//! `COMPARE SCHEMA`: source, stream, view and sink side by side; the ALTER that it names makes them agree.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};

use super::matrix::parquet_of;
use super::{WITHIN, error_of};
use crate::harness::{Server, run};

fn put(server: &Server, name: &str, text: &str) {
    let folder = server.dir().join("in");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), text).expect("written");
}

#[test]
fn what_a_source_sends_is_compared_with_what_is_declared() {
    run(async {
        let server = Server::start();
        put(
            &server,
            "a.json",
            "{\"k\": 1, \"old\": 5, \"flag\": true}\n",
        );
        server
            .execute(
                "CREATE STREAM f (k BIGINT, old BIGINT, flag BOOLEAN, path TEXT METADATA FROM 'file_path')
                   WITH (connector = 'files', location = 'in', format = 'json');
                 CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM f GROUP BY k;
                 CREATE SINK out FROM v WITH (connector = 'blackhole');",
            )
            .await;
        server
            .wait_for_value("SELECT coalesce(sum(n), 0)::bigint FROM v", "1", WITHIN)
            .await;
        let of = |rows: &[Vec<String>], column: &str| {
            let row = rows.iter().find(|row| row[3] == column || row[1] == column);
            row.unwrap_or_else(|| panic!("{column}: {rows:?}")).clone()
        };
        for name in ["f", "v", "out", "PIPELINE v"] {
            let rows = server.rows(&format!("COMPARE SCHEMA OF {name}")).await;
            let k = of(&rows, "k");
            assert_eq!(
                k[1..8],
                [
                    "k",
                    "bigint",
                    "k",
                    "bigint",
                    "v.k bigint",
                    "out.k bigint",
                    "ok"
                ],
                "{name}"
            );
            assert_eq!(of(&rows, "path")[7], "metadata", "{rows:?}");
            let computed = rows.iter().find(|row| row[7] == "computed");
            assert_eq!(computed.expect("n")[5], "v.n bigint", "{rows:?}");
            assert!(rows.iter().all(|row| row[9] == "NULL"), "{rows:?}");
        }
        // Upstream a field gets another name, and one another type.
        for i in 0..3 {
            put(
                &server,
                &format!("b{i}.json"),
                "{\"k\": 1, \"renamed\": 5, \"flag\": 7.25}\n",
            );
        }
        std::fs::remove_file(server.dir().join("in/a.json")).expect("removed");
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        let old = of(&rows, "old");
        assert_eq!(
            (old[7].as_str(), old[9].as_str()),
            ("not sent", "ALTER STREAM f RENAME COLUMN old TO renamed;")
        );
        let flag = of(&rows, "flag");
        assert_eq!(flag[7], "differs", "{flag:?}");
        assert!(flag[8].contains("type double precision"), "{flag:?}");
        // What is named makes them agree.
        for row in &rows {
            if row[9] != "NULL" {
                server.execute(&row[9]).await;
            }
        }
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        for column in ["k", "renamed"] {
            assert_eq!(of(&rows, column)[7], "ok", "{rows:?}");
        }
        put(
            &server,
            "c.json",
            "{\"k\": 1, \"renamed\": 5, \"flag\": 7.25, \"more\": \"2024-05-01T00:00:00Z\"}\n",
        );
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        let more = of(&rows, "more");
        assert_eq!(
            more[9],
            "ALTER STREAM f ADD COLUMN more timestamp with time zone;"
        );
        server.execute(&more[9]).await;
        server.execute("CREATE STREAM plain (k BIGINT)").await;
        let rows = server.rows("COMPARE SCHEMA OF plain").await;
        assert_eq!(rows[0][7], "not compared", "{rows:?}");
        let client = server.connect().await;
        let error = error_of(&client, "COMPARE SCHEMA OF nothing").await;
        assert_eq!(error.code().code(), "42704");
    });
}

/// Files of columns say themselves what these are.
#[test]
fn what_parquet_files_hold_is_compared_with_what_is_declared() {
    run(async {
        let server = Server::start();
        let file = |columns: Vec<(&str, ArrayRef)>, name: &str| {
            let folder = server.dir().join("in");
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join(name), parquet_of(columns)).expect("written");
        };
        let numbers = || -> ArrayRef { Arc::new(Int64Array::from(vec![1, 2])) };
        let texts = |of: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(of.to_vec())) };
        file(vec![("K", numbers()), ("old", numbers())], "a.parquet");
        server
            .execute(
                "CREATE STREAM f (k BIGINT, old BIGINT, flag BOOLEAN) WITH (connector = 'files', location = 'in', format = 'parquet');
                 CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM f GROUP BY k;",
            )
            .await;
        let counted = "SELECT coalesce(sum(n), 0)::bigint FROM v";
        server.wait_for_value(counted, "2", WITHIN).await;
        let of = |rows: &[Vec<String>], name: &str| {
            let row = rows.iter().find(|row| row[3] == name || row[1] == name);
            row.unwrap_or_else(|| panic!("{name}: {rows:?}")).clone()
        };
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        assert_eq!(
            of(&rows, "k")[1..8],
            ["K", "bigint", "k", "bigint", "v.k bigint", "NULL", "ok"]
        );
        assert_eq!(of(&rows, "flag")[7], "not sent", "{rows:?}");
        std::fs::remove_file(server.dir().join("in/a.parquet")).expect("removed");
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1, 2]));
        let columns = vec![
            ("k", numbers()),
            ("old", texts(["1", "x"])),
            ("flag", texts(["true", "f"])),
            ("at", times),
        ];
        file(columns, "b.parquet");
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        let old = of(&rows, "old");
        assert_eq!(old[7], "differs", "{old:?}");
        assert!(old[8].starts_with("1 of 2 records"), "{old:?}");
        let at = of(&rows, "at");
        assert_eq!(
            at[9],
            "ALTER STREAM f ADD COLUMN at timestamp without time zone;"
        );
        server.execute(&at[9]).await;
        let rows = server.rows("COMPARE SCHEMA OF f").await;
        assert_eq!(of(&rows, "at")[7], "ok", "{rows:?}");
    });
}

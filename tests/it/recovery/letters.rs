//! `REPLAY DEAD LETTERS`: what was set aside goes through again, once, whatever happens before and after.

use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};

use super::matrix::parquet_of;
use super::{WITHIN, error_of};
use crate::harness::{Server, run};

/// A server that reads the folder `in`, with records that cannot be read, and a view with all of its batches apart.
async fn start() -> Server {
    let server = Server::start();
    std::fs::create_dir(server.dir().join("in")).expect("a folder");
    write(&server, 0, "1,1\n1,n/a\n");
    server
        .execute(
            "CREATE STREAM f (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in', format = 'csv');
             CREATE MATERIALIZED VIEW sums WITH (trigger = '20 milliseconds') AS SELECT k, count(*) AS n, sum(v) AS total FROM f GROUP BY k;",
        )
        .await;
    wait_for(&server, "1").await;
    write(&server, 1, "2,n/a\n2,4\nno record\n");
    wait_for(&server, "2").await;
    server
}

fn write(server: &Server, number: u64, text: &str) {
    let folder = server.dir().join("in");
    let temporary = folder.join(".new");
    let mut file = std::fs::File::create(&temporary).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    std::fs::rename(temporary, folder.join(format!("{number}.csv"))).expect("renamed");
}

async fn wait_for(server: &Server, rows: &str) {
    let sql = "SELECT coalesce(sum(n), 0)::bigint FROM sums";
    server.wait_for_value(sql, rows, WITHIN).await;
}

const LETTERS: &str = "SELECT count(*) FROM streaming_dead_letters WHERE stream_name = 'f'";
const ALL: &str = "SELECT k, n, total FROM sums ORDER BY k";

#[test]
fn letters_go_through_once_after_a_fix() {
    run(async {
        let mut server = start().await;
        assert_eq!(server.value(LETTERS).await, "3");
        // Before the fix nothing can: it is told why.
        let told = server.rows("REPLAY DEAD LETTERS OF f").await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0][1].as_str(), told[0][2].as_str()), ("0", "3"));
        assert!(told[0][3].contains("line 2"), "{told:?}");
        server.rows(&told[0][4]).await;
        server
            .execute("ALTER STREAM f SET (null_value = 'n/a')")
            .await;
        let told = server.rows("REPLAY DEAD LETTERS OF f").await;
        assert_eq!(
            (
                told[0][0].as_str(),
                told[0][1].as_str(),
                told[0][2].as_str()
            ),
            ("sums", "2", "1")
        );
        wait_for(&server, "4").await;
        assert_eq!(server.value(LETTERS).await, "1");
        let expected = server.rows(ALL).await;
        assert_eq!(expected, [["1", "2", "1"], ["2", "2", "4"]]);
        // Once: said again it does nothing, over a restart too.
        server.kill();
        server.restart();
        let told = server.rows("REPLAY DEAD LETTERS OF f").await;
        assert_eq!((told[0][1].as_str(), told[0][2].as_str()), ("0", "1"));
        write(&server, 2, "1,5\n");
        wait_for(&server, "5").await;
        // Batches that run again give the same, though the records could be read where they lie by now.
        let before = server.rows(ALL).await;
        for statement in [
            "REBUILD STATE OF sums",
            "REWIND sums TO BATCH 0",
            "RESET CHECKPOINT OF sums FROM EARLIEST",
        ] {
            server.rows(statement).await;
            wait_for(&server, "5").await;
            server.execute("FLUSH").await;
            assert_eq!(server.rows(ALL).await, before, "{statement}");
            let verified = server.rows("VERIFY MATERIALIZED VIEW sums").await.remove(0);
            assert_eq!(verified[1], "equal", "{statement}: {verified:?}");
        }
        // One that comes later reads the records themselves.
        server
            .execute("CREATE MATERIALIZED VIEW later AS SELECT k, count(*) AS n FROM f GROUP BY k; FLUSH")
            .await;
        let later = "SELECT coalesce(sum(n), 0)::bigint FROM later";
        server.wait_for_value(later, "5", WITHIN).await;
        server.rows("REPLAY DEAD LETTERS OF f").await;
        server.execute("FLUSH").await;
        assert_eq!(server.value(later).await, "5");
        assert_eq!(server.rows(ALL).await, before);
    });
}

/// A batch that is read again after the fix has the records by itself: their letters are none any more.
#[test]
fn letters_that_a_rebuild_has_taken_in_do_not_come_again() {
    run(async {
        let server = start().await;
        server
            .execute("ALTER STREAM f SET (null_value = 'n/a')")
            .await;
        server.rows("REBUILD STATE OF sums").await;
        wait_for(&server, "4").await;
        server.wait_for_value(LETTERS, "1", WITHIN).await;
        let told = server.rows("REPLAY DEAD LETTERS OF f").await;
        assert_eq!(told[0][1], "0", "{told:?}");
        server.execute("FLUSH").await;
        wait_for(&server, "4").await;
    });
}

#[test]
fn what_cannot_go_through_by_itself_is_refused_with_a_reason() {
    run(async {
        let server = Server::start();
        std::fs::create_dir(server.dir().join("in")).expect("a folder");
        server
            .execute(
                "CREATE STREAM plain (k BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY);
                 CREATE STREAM named (k BIGINT, path TEXT NOT NULL METADATA FROM 'file_path') WITH (connector = 'files', location = 'in', format = 'csv');
                 CREATE STREAM quiet (k BIGINT) WITH (connector = 'files', location = 'in', format = 'json');",
            )
            .await;
        let client = server.connect().await;
        for (stream, code) in [("t", "42809"), ("named", "0A000"), ("nothing", "42P01")] {
            let sql = format!("REPLAY DEAD LETTERS OF {stream}");
            let error = error_of(&client, &sql).await;
            assert_eq!(error.code().code(), code, "{stream}: {error:?}");
        }
        for stream in ["quiet", "plain"] {
            let sql = format!("REPLAY DEAD LETTERS OF {stream}");
            let told = server.rows(&sql).await;
            assert_eq!((told[0][1].as_str(), told[0][2].as_str()), ("0", "0"));
        }
    });
}

/// Lines of a socket are rows of the log: those that are mended are some more.
#[test]
fn letters_of_a_socket_go_through_once() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = Server::start();
        server
            .execute(&format!(
                "CREATE STREAM so (v BIGINT) WITH (connector = 'socket', host = '127.0.0.1', port = {port}, format = 'csv');
                 CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(v) AS total FROM so;"
            ))
            .await;
        let (mut connection, _) = listener.accept().expect("it connects");
        connection.write_all(b"1\nn/a\nx\n4\n").expect("sent");
        let sql = "SELECT coalesce(sum(n), 0)::bigint FROM sums";
        server.wait_for_value(sql, "2", WITHIN).await;
        server
            .execute("ALTER STREAM so SET (null_value = 'n/a')")
            .await;
        for replayed in ["1", "0"] {
            let told = server.rows("REPLAY DEAD LETTERS OF so").await;
            assert_eq!(told[0][1], replayed, "{told:?}");
            assert_eq!(told[0][2], "1", "{told:?}");
        }
        server.wait_for_value(sql, "3", WITHIN).await;
        server.execute("FLUSH").await;
        assert_eq!(server.value("SELECT total FROM sums").await, "5");
    });
}

/// Batches that run again after the replay give each record once, whatever they read of it.
#[test]
fn letters_of_files_with_named_columns_go_through_once() {
    run(async {
        let server = Server::start();
        for folder in ["headed", "parquet"] {
            std::fs::create_dir(server.dir().join(folder)).expect("a folder");
        }
        let put = |path: &str, bytes: &[u8]| {
            let temporary = server.dir().join(".new");
            std::fs::write(&temporary, bytes).expect("written");
            std::fs::rename(temporary, server.dir().join(path)).expect("renamed");
        };
        // The columns come in another order in each.
        put("headed/0.csv", b"k,v,note\n1,1,\"a\nb\"\n1,n/a,\"c,\nd\"\n");
        put("headed/1.csv", b"note,v,k\ne,n/a,2\nf,3,2\n");
        put(
            "parquet/0.parquet",
            &parquet(&[Some("1"), Some("n/a"), None]),
        );
        server
            .execute(
                "CREATE STREAM headed (k BIGINT, v BIGINT, note TEXT) WITH (connector = 'files', location = 'headed', format = 'csv', header = true);
                 CREATE STREAM columnar (k BIGINT, v BIGINT, note TEXT) WITH (connector = 'files', location = 'parquet', format = 'parquet');
                 CREATE MATERIALIZED VIEW of_headed WITH (trigger = '20 milliseconds') AS SELECT k, count(*) AS n, sum(v) AS v, max(note) AS note FROM headed GROUP BY k;
                 CREATE MATERIALIZED VIEW of_columnar WITH (trigger = '20 milliseconds') AS SELECT k, v FROM columnar;",
            )
            .await;
        let letters = "SELECT count(*) FROM streaming_dead_letters";
        server.wait_for_value(letters, "3", WITHIN).await;
        // A letter of a Parquet file has all of its columns, whatever the view reads.
        let raw = "SELECT convert_from(raw, 'UTF8') FROM streaming_dead_letters WHERE stream_name = 'columnar'";
        let row: serde_json::Value = serde_json::from_str(&server.value(raw).await).expect("JSON");
        assert_eq!(row["note"], "row 1");
        server
            .execute("ALTER STREAM headed SET (null_value = 'n/a'); ALTER STREAM columnar RENAME COLUMN v TO w")
            .await;
        for (stream, count) in [("headed", "2"), ("columnar", "1")] {
            for replayed in [count, "0"] {
                let sql = format!("REPLAY DEAD LETTERS OF {stream}");
                let told = server.rows(&sql).await;
                assert_eq!(
                    (told[0][1].as_str(), told[0][2].as_str()),
                    (replayed, "0"),
                    "{told:?}"
                );
            }
        }
        let headed = "SELECT k, n, v, note FROM of_headed ORDER BY k";
        let columnar = "SELECT k, v FROM of_columnar ORDER BY k";
        let counted = "SELECT sum(n)::bigint FROM of_headed";
        server.wait_for_value(counted, "4", WITHIN).await;
        let rows = "SELECT count(*) FROM of_columnar";
        server.wait_for_value(rows, "3", WITHIN).await;
        let expected = [["1", "2", "1", "c,\nd"], ["2", "2", "3", "f"]];
        assert_eq!(server.rows(headed).await, expected);
        let before = server.rows(columnar).await;
        assert_eq!(before, [["0", "1"], ["1", "7"], ["2", "NULL"]]);
        for (statement, from) in [
            ("REBUILD STATE OF", ""),
            ("RESET CHECKPOINT OF", " FROM EARLIEST"),
        ] {
            for view in ["of_headed", "of_columnar"] {
                server.rows(&format!("{statement} {view}{from}")).await;
            }
            server.wait_for_value(counted, "4", WITHIN).await;
            server.wait_for_value(rows, "3", WITHIN).await;
            server.execute("FLUSH").await;
            assert_eq!(server.rows(headed).await, expected, "{statement}");
            assert_eq!(server.rows(columnar).await, before, "{statement}");
        }
    });
}

/// Rows with a key, a text that may be no number, the number that is meant, and a note.
fn parquet(values: &[Option<&str>]) -> Vec<u8> {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
    let meant = values
        .iter()
        .map(|value| value.map(|value| value.parse().unwrap_or(7)));
    let notes = (0..values.len()).map(|i| Some(format!("row {i}")));
    parquet_of(vec![
        ("K", keys),
        (
            "v",
            Arc::new(values.iter().collect::<StringArray>()) as ArrayRef,
        ),
        ("w", Arc::new(meant.collect::<Int64Array>()) as ArrayRef),
        ("note", Arc::new(notes.collect::<StringArray>()) as ArrayRef),
    ])
}

/// What two pipelines set aside is the one's that they become: seen, and replayed for the views of both.
#[test]
fn letters_of_merged_pipelines_go_through_once_for_all_views() {
    run(async {
        let mut server = Server::start();
        for (folder, text) in [("in", "1,1\n1,n/a\n"), ("in_b", "1,5\n2,n/a\n")] {
            std::fs::create_dir(server.dir().join(folder)).expect("a folder");
            std::fs::write(server.dir().join(folder).join("0.csv"), text).expect("written");
        }
        let options = "WITH (trigger = '20 milliseconds')";
        server
            .execute(&format!(
                "CREATE STREAM f (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in', format = 'csv');
                 CREATE STREAM g (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in_b', format = 'csv');
                 CREATE MATERIALIZED VIEW a {options} AS SELECT k, count(*) AS n, sum(v) AS total FROM f GROUP BY k;
                 CREATE MATERIALIZED VIEW b {options} AS SELECT k, count(*) AS n, sum(v) AS total FROM (SELECT * FROM f UNION ALL SELECT * FROM g) GROUP BY k;"
            ))
            .await;
        let rows_of = |view: &str| format!("SELECT coalesce(sum(n), 0)::bigint FROM {view}");
        server.wait_for_value(&rows_of("a"), "1", WITHIN).await;
        server.wait_for_value(&rows_of("b"), "2", WITHIN).await;
        let letters =
            "SELECT stream_name, count(*) FROM streaming_dead_letters GROUP BY 1 ORDER BY 1";
        assert_eq!(server.rows(letters).await, [["f", "2"], ["g", "1"]]);
        let merged =
            "CREATE MATERIALIZED VIEW c AS SELECT a.k, a.n, b.n AS m FROM a JOIN b USING (k)";
        server.execute(merged).await;
        let of_both = "SELECT n || ' ' || m FROM c";
        server.wait_for_value(of_both, "1 2", WITHIN).await;
        // One letter for each record that is to be mended.
        assert_eq!(server.rows(letters).await, [["f", "1"], ["g", "1"]]);
        server.kill();
        server.restart();
        server
            .execute(
                "ALTER STREAM f SET (null_value = 'n/a'); ALTER STREAM g SET (null_value = 'n/a')",
            )
            .await;
        for stream in ["f", "g"] {
            for replayed in ["1", "0"] {
                let sql = format!("REPLAY DEAD LETTERS OF {stream}");
                let told = server.rows(&sql).await;
                assert_eq!(
                    (told[0][1].as_str(), told[0][2].as_str()),
                    (replayed, "0"),
                    "{told:?}"
                );
            }
        }
        server.wait_for_value(&rows_of("a"), "2", WITHIN).await;
        server.wait_for_value(&rows_of("b"), "4", WITHIN).await;
        let all =
            "SELECT 'a', k, n, total FROM a UNION ALL SELECT 'b', k, n, total FROM b ORDER BY 1, 2";
        let expected = [
            ["a", "1", "2", "1"],
            ["b", "1", "3", "6"],
            ["b", "2", "1", "NULL"],
        ];
        assert_eq!(server.rows(all).await, expected);
        let pipeline =
            "SELECT DISTINCT pipeline FROM streaming_queries WHERE stream_name IN ('a', 'b')";
        let pipeline = server.value(pipeline).await;
        let reset = format!("RESET CHECKPOINT OF {pipeline} FROM EARLIEST");
        server.rows(&reset).await;
        server.wait_for_value(&rows_of("b"), "4", WITHIN).await;
        server.execute("FLUSH").await;
        assert_eq!(server.rows(all).await, expected);
    });
}

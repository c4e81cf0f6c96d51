//! `REPLAY DEAD LETTERS`: what was set aside goes through again, once, whatever happens before and after.

use std::io::Write;

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
                 CREATE STREAM named (k BIGINT) WITH (connector = 'files', location = 'in', format = 'csv', header = true);
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

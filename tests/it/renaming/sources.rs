//! Streams over files that have other names now, while a new stream has the old one.

use std::time::Duration;

use crate::harness::{Server, rows, run};

const WITHIN: Duration = Duration::from_secs(30);

fn put(server: &Server, name: &str, bytes: &str) {
    let folder = server.dir().join("in");
    std::fs::create_dir_all(&folder).expect("a folder");
    let temporary = folder.join(format!(".{name}.tmp"));
    std::fs::write(&temporary, bytes).expect("written");
    std::fs::rename(temporary, folder.join(name)).expect("renamed");
}

/// A stream `g` with a view over it, which was `f`, and another stream `f`.
async fn renamed(evolution: &str) -> Server {
    let server = Server::start();
    put(&server, "a.json", "{\"k\": 1, \"v\": 2}\n");
    server
        .execute(&format!(
            "CREATE STREAM f (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in', format = 'json', schema_evolution = '{evolution}');
             CREATE MATERIALIZED VIEW kept WITH (trigger = '20 milliseconds') AS SELECT * FROM f"
        ))
        .await;
    wait_for_rows(&server, 1).await;
    server
        .execute("ALTER STREAM f RENAME TO g; CREATE STREAM f (k BIGINT)")
        .await;
    server
}

async fn wait_for_rows(server: &Server, count: u64) {
    let counted = "SELECT count(*) FROM kept";
    server
        .wait_for_value(counted, &count.to_string(), WITHIN)
        .await;
}

async fn columns_of(server: &Server, relation: &str) -> Vec<String> {
    let columns = format!(
        "SELECT column_name FROM information_schema.columns WHERE table_name = '{relation}' ORDER BY ordinal_position"
    );
    let found = server.rows(&columns).await;
    found.into_iter().flatten().collect()
}

#[test]
fn new_fields_give_columns_to_the_stream_that_has_them() {
    run(async {
        let mut server = renamed("add_new_columns").await;
        put(&server, "b.json", "{\"k\": 2, \"x\": \"new\"}\n");
        wait_for_rows(&server, 2).await;
        assert_eq!(columns_of(&server, "g").await, ["k", "v", "x"]);
        assert_eq!(columns_of(&server, "f").await, ["k"]);
        server.kill();
        server.restart();
        put(&server, "c.json", "{\"k\": 3, \"y\": 1}\n");
        wait_for_rows(&server, 3).await;
        assert_eq!(columns_of(&server, "g").await, ["k", "v", "x", "y"]);
        let told = "SELECT object_name FROM streaming_events WHERE event = 'schema changed'";
        assert_eq!(server.rows(told).await, [["g"], ["g"]]);
    });
}

#[test]
fn a_pipeline_that_stops_for_new_fields_names_the_stream_as_it_is_named() {
    run(async {
        let server = renamed("fail").await;
        put(&server, "b.json", "{\"k\": 2, \"x\": \"new\"}\n");
        let of_view = "FROM streaming_queries WHERE stream_name = 'kept'";
        let status = format!("SELECT status {of_view}");
        server.wait_for_value(&status, "failed", WITHIN).await;
        let hint = server.value(&format!("SELECT hint {of_view}")).await;
        let alter = hint.split_inclusive(';').next().expect("a statement");
        assert_eq!(alter, "ALTER STREAM g ADD COLUMN x text;");
        assert!(hint.contains("ALTER STREAM g RENAME COLUMN"), "{hint}");
        let error = server.value(&format!("SELECT exception {of_view}")).await;
        assert!(error.contains("stream \"g\" has no column for"), "{error}");
        server.execute(alter).await;
        wait_for_rows(&server, 2).await;
    });
}

#[test]
fn a_star_leaves_out_what_is_rescued_after_a_restart_too() {
    run(async {
        let mut server = renamed("rescue").await;
        server.kill();
        server.restart();
        put(&server, "b.json", "{\"k\": 2, \"x\": \"new\"}\n");
        wait_for_rows(&server, 2).await;
        assert_eq!(columns_of(&server, "kept").await, ["k", "v"]);
        let failed = "SELECT count(*) FROM streaming_events WHERE event = 'failed'";
        assert_eq!(server.value(failed).await, "0");
        server
            .execute("CREATE VIEW shown AS SELECT * FROM g; ALTER STREAM g RENAME TO h")
            .await;
        let shown = server.rows("SELECT * FROM shown ORDER BY k").await;
        assert_eq!(shown, [["1", "2"], ["2", "NULL"]]);
    });
}

#[test]
fn files_are_shown_with_the_stream_that_reads_them() {
    run(async {
        let server = renamed("none").await;
        let files = "SELECT stream_name, path FROM streaming_files";
        let expected = [["g", "in/a.json"]];
        assert_eq!(server.rows(files).await, expected);
        let asked = format!("{files} WHERE stream_name = 'g'");
        assert_eq!(server.rows(&asked).await, expected);
        let others = format!("{files} WHERE stream_name = 'f'");
        assert!(server.rows(&others).await.is_empty());
        server
            .execute(
                "CREATE ROLE of_new; GRANT SELECT ON f TO of_new; CREATE ROLE of_old; GRANT SELECT ON g TO of_old",
            )
            .await;
        for (role, count) in [("of_new", 0), ("of_old", 1)] {
            let client = server.connect().await;
            let set = format!("SET ROLE {role}");
            client.batch_execute(&set).await.expect("set");
            let seen = rows(&client, files).await.expect("rows");
            assert_eq!(seen.len(), count, "{role}: {seen:?}");
        }
    });
}

//! `schema_evolution`: fields that no column takes, on real files and a real Kafka, through kills.

mod formats;
mod kafka;
mod kills;
mod modes;
mod sinks;

use std::path::Path;
use std::time::Duration;

use crate::harness::Server;

const WITHIN: Duration = Duration::from_secs(30);

/// Puts a file whole into the folder `in` of a server.
fn put(server: &Server, name: &str, bytes: impl AsRef<[u8]>) {
    put_into(&server.dir().join("in"), name, bytes);
}

fn put_into(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(folder).expect("a folder");
    let temporary = folder.join(format!(".{name}.tmp"));
    std::fs::write(&temporary, bytes).expect("written");
    std::fs::rename(temporary, folder.join(name)).expect("renamed");
}

/// A stream over the files of `in`, and a view of all its columns.
async fn create(server: &Server, options: &str) {
    server
        .execute(&format!(
            "CREATE STREAM f (k BIGINT, v BIGINT) WITH (connector = 'files', location = 'in', {options});
             CREATE MATERIALIZED VIEW kept WITH (trigger = '20 milliseconds') AS SELECT * FROM f;"
        ))
        .await;
}

/// Waits until the view holds so many rows.
async fn wait_for_rows(server: &Server, view: &str, rows: u64) {
    let counted = format!("SELECT count(*) FROM {view}");
    server
        .wait_for_value(&counted, &rows.to_string(), WITHIN)
        .await;
}

/// Waits until the view's pipeline has failed; its error, detail and hint.
async fn wait_for_failure(server: &Server, view: &str) -> (String, String) {
    let of_view = format!("FROM streaming_queries WHERE stream_name = '{view}'");
    let status = format!("SELECT status {of_view}");
    server.wait_for_value(&status, "failed", WITHIN).await;
    let told = server
        .rows(&format!("SELECT exception, hint {of_view}"))
        .await;
    (told[0][0].clone(), told[0][1].clone())
}

/// Names and types of a relation's columns, as PostgreSQL tells them.
async fn columns_of(server: &Server, relation: &str) -> Vec<String> {
    let rows = server
        .rows(&format!(
            "SELECT column_name || ' ' || data_type FROM information_schema.columns
               WHERE table_name = '{relation}' ORDER BY ordinal_position"
        ))
        .await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

/// The columns that pipelines added to the stream by themselves, in order.
async fn added(server: &Server, stream: &str) -> Vec<String> {
    let rows = server
        .rows(&format!(
            "SELECT detail FROM streaming_events
               WHERE event = 'schema changed' AND object_name = '{stream}' ORDER BY event_at"
        ))
        .await;
    let mut names = Vec::new();
    for row in rows {
        let detail: serde_json::Value = serde_json::from_str(&row[0]).expect("JSON");
        for column in detail["added"].as_array().expect("columns") {
            names.push(column["name"].as_str().expect("a name").to_owned());
        }
    }
    names
}

/// The sum of a counter over all batches of a view.
async fn counted(server: &Server, view: &str, counter: &str) -> String {
    let sum = format!(
        "SELECT coalesce(sum({counter}), 0)::bigint FROM streaming_metrics_log WHERE stream_name = '{view}'"
    );
    server.value(&sum).await
}

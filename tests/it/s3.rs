//! Checkpoints on an S3 store: restart with the local state gone, and never a fresh start.

use std::process::Command;
use std::time::Duration;

use crate::harness::{Server, rows, run};
use crate::tools::{Process, free_port, is_there, tools_dir, wait_for_port};

#[test]
fn a_checkpoint_on_s3_restores_an_emptied_local_state() {
    let moto = tools_dir().join("python/bin/moto_server");
    if !is_there(&moto, "the S3 server (moto)") {
        return;
    }
    run(async {
        let port = free_port();
        let _store =
            Process::spawn(Command::new(moto).args(["-H", "127.0.0.1", "-p", &port.to_string()]));
        wait_for_port(port, Duration::from_secs(60));
        let endpoint = format!("http://127.0.0.1:{port}");
        let created = Command::new("curl")
            .args(["-s", "-f", "-X", "PUT", &format!("{endpoint}/tidemill")])
            .status()
            .expect("curl runs");
        assert!(created.success(), "the bucket is created");
        let environment = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ALLOW_HTTP", "true"),
        ];
        let mut server = Server::start_with(&[], &environment);
        server
            .execute(
                "CREATE STREAM s (k BIGINT, v BIGINT);
                 CREATE MATERIALIZED VIEW sums WITH (checkpoint_location = 's3://tidemill/sums') AS
                   SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
            )
            .await;
        for i in 0..5 {
            server
                .execute(&format!(
                    "INSERT INTO s SELECT i % 100, i FROM generate_series({}, {}) AS g(i); FLUSH",
                    i * 1000,
                    i * 1000 + 999
                ))
                .await;
        }
        let client = server.connect().await;
        let mut before = rows(&client, "SELECT * FROM sums").await.expect("readable");
        before.sort();
        assert_eq!(before.len(), 100);
        drop(client);
        server.kill();
        std::fs::remove_dir_all(server.data_dir().join("pipelines"))
            .expect("the local state is deleted");
        server.restart();
        server.wait_for_value("SELECT count(*) FROM streaming_queries WHERE status IN ('running', 'waiting for data', 'waiting for trigger')", "1", Duration::from_secs(30)).await;
        let client = server.connect().await;
        let mut after = rows(&client, "SELECT * FROM sums").await.expect("readable");
        after.sort();
        assert_eq!(before, after);
        server.execute("INSERT INTO s VALUES (7, 1); FLUSH").await;
        assert_eq!(server.value("SELECT n FROM sums WHERE k = 7").await, "51");
    });
}

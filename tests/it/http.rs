//! The HTTP endpoint: health and Prometheus metrics.

use std::io::{Read, Write};

use crate::harness::{Server, run};

fn get(server: &Server, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(server.http()).expect("connects");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: tidemill\r\nConnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn health_and_metrics_are_told_over_http() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (a BIGINT);
                 CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM s;
                 INSERT INTO s VALUES (1), (2); FLUSH",
            )
            .await;
        assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200"));
        let metrics = get(&server, "/metrics");
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        assert!(
            metrics
                .lines()
                .any(|l| l.starts_with("tidemill_") && l.contains("counted")),
            "no figure of the view in:\n{metrics}"
        );
    });
}

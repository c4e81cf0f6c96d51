//! The checkpointing guide's word count over a real socket, through `kill -9`, with exact counts.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::harness::{Server, run};

/// What `nc -lk` is to the guide: gives lines to whoever connects.
struct Lines {
    listener: TcpListener,
    peer: Option<TcpStream>,
}

impl Lines {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            peer: None,
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }

    fn accept(&mut self) {
        self.peer = Some(self.listener.accept().expect("the server connects").0);
    }

    fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.peer
            .as_mut()
            .expect("connected")
            .write_all(bytes)
            .expect("sent");
    }
}

#[test]
fn word_count_over_a_socket_survives_kill_with_exact_counts() {
    run(async {
        let mut lines = Lines::new();
        let mut server = Server::start();
        let script =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/word_count.sql"))
                .expect("the example script")
                .replace("port = 9999", &format!("port = {}", lines.port()));
        server.execute(&script).await;
        let total = "SELECT coalesce(sum(count), 0)::bigint FROM word_counts";
        let within = Duration::from_secs(10);
        lines.accept();
        lines.send("the quick brown fox\nthe lazy dog\n");
        server.wait_for_value(total, "7", within).await;
        for round in 0..3 {
            lines.send("the fox ");
            lines.send("again\n");
            let expected = (7 + 3 * (round + 1)).to_string();
            server.wait_for_value(total, &expected, within).await;
            server.kill();
            server.restart();
            // The counts are those from before the kill: no reset, no double.
            server.wait_for_value(total, &expected, within).await;
            lines.accept();
        }
        let rows = server
            .rows("SELECT word, count FROM word_counts ORDER BY count DESC, word")
            .await;
        let got: Vec<(&str, &str)> = rows
            .iter()
            .map(|r| (r[0].as_str(), r[1].as_str()))
            .collect();
        assert_eq!(
            got,
            [
                ("the", "5"),
                ("fox", "4"),
                ("again", "3"),
                ("brown", "1"),
                ("dog", "1"),
                ("lazy", "1"),
                ("quick", "1")
            ]
        );
        // A line that is no text is set aside and counted with the next batch.
        lines.send_bytes(b"\xff\xfe\n");
        let letters = "SELECT count(*) FROM streaming_dead_letters WHERE error LIKE '%UTF8%'";
        server.wait_for_value(letters, "1", within).await;
        lines.send("the fox\n");
        server.wait_for_value(total, "18", within).await;
        let counted = "SELECT sum(num_dead_letter_rows) FROM streaming_metrics_log";
        server.wait_for_value(counted, "1", within).await;
        // The peer goes away for good: the status says so, and an event.
        drop(lines);
        let status = "SELECT count(*) FROM streaming_queries WHERE status = 'waiting for source'
                      AND exception LIKE 'could not connect to localhost:%: Connection refused'";
        let lost = "SELECT count(*) > 0 FROM streaming_events WHERE event = 'source lost'";
        server
            .wait_for_value(lost, "t", Duration::from_secs(20))
            .await;
        // First the connection was closed; that nobody listens shows at the next attempt.
        server
            .wait_for_value(status, "1", Duration::from_secs(20))
            .await;
    });
}

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

/// Reads server-sent events until `until` says that those that came are enough.
fn events(server: &Server, path: &str, headers: &str, until: impl Fn(&str) -> bool) -> String {
    let mut stream = std::net::TcpStream::connect(server.http()).expect("connects");
    let timeout = Some(std::time::Duration::from_secs(20));
    stream.set_read_timeout(timeout).expect("set");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
    )
    .expect("sent");
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut part).expect("events come");
        all.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&all).into_owned();
        if read == 0 || until(&text) {
            return text;
        }
    }
}

/// The lines of events, without those of HTTP's chunks.
fn lines(answer: &str) -> Vec<&str> {
    let wanted = |line: &&str| {
        ["event: ", "data: ", "id: "]
            .iter()
            .any(|w| line.starts_with(w))
    };
    answer.lines().filter(wanted).collect()
}

#[test]
fn a_subscription_is_a_stream_of_events() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE TABLE t (k BIGINT PRIMARY KEY, what TEXT, n NUMERIC(8,2), at TIMESTAMPTZ, a BIGINT[], j JSON);
                 INSERT INTO t VALUES (1, E'one\\n\"', 1.5, '2024-01-01', '{1,NULL}', E'{\"a\":\\n 1}');
                 CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS SELECT k % 2 AS odd, count(*) AS n FROM t GROUP BY k % 2;
                 FLUSH",
            )
            .await;
        let told = events(&server, "/subscribe/t?snapshot", "", |text| {
            text.contains("data: ")
        });
        assert!(told.contains("content-type: text/event-stream"), "{told}");
        let row = r#""k":1,"what":"one\n\"","n":1.50,"at":"2024-01-01T00:00:00+00:00","a":[1, null],"j":{"a":  1}}"#;
        let told = lines(&told);
        assert_eq!(told[0], "event: insert");
        assert!(
            told[1].ends_with(row) && told[1].contains(r#""change_kind":"insert""#),
            "{told:?}"
        );
        // Only its end has a number.
        assert!(
            told[2..].iter().all(|line| line.starts_with("id: ")),
            "{told:?}"
        );
        // Changes, with the number of each batch at its end.
        server
            .execute("UPDATE t SET n = 2 WHERE k = 1; FLUSH")
            .await;
        let server = std::sync::Arc::new(server);
        let reader = std::sync::Arc::clone(&server);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let read = tokio::task::spawn_blocking(move || {
            events(&reader, "/subscribe/v?snapshot=true", "", |text| {
                if text.contains("data: ") {
                    begun.send(()).expect("the test waits");
                }
                text.matches("id: ").count() == 3
            })
        });
        has_begun
            .recv_timeout(std::time::Duration::from_secs(20))
            .expect("the snapshot comes");
        let shown = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'http' AND query = 'SUBSCRIBE TO v'";
        assert_eq!(server.value(shown).await, "1");
        server
            .execute("INSERT INTO t (k) VALUES (2), (3), (5); FLUSH")
            .await;
        server.execute("DELETE FROM t WHERE k = 2; FLUSH").await;
        let told = read.await.expect("read");
        let told = lines(&told);
        for (kind, odd, n) in [
            ("insert", 1, 1),
            ("update_before", 1, 1),
            ("update_after", 1, 3),
            ("insert", 0, 1),
            ("delete", 0, 1),
        ] {
            let row = format!(r#""change_kind":"{kind}","odd":{odd},"n":{n}}}"#);
            let found = told.iter().filter(|line| line.contains(&row));
            assert_eq!(found.count(), 1, "{kind} {odd} {n}: {told:?}");
        }
        let numbers: Vec<&str> = told
            .iter()
            .filter_map(|line| line.strip_prefix("id: "))
            .collect();
        assert_eq!(numbers.len(), 3, "{told:?}");
        // Who comes again goes on after the batch that was read to its end, here without a gap, as in SQL.
        let again = |number: &str| format!("Last-Event-ID: {number}\r\nConnection: close\r\n");
        server.execute("INSERT INTO t (k) VALUES (8); FLUSH").await;
        let eight = r#""odd":0,"n":1}"#;
        let told = events(&server, "/subscribe/v", &again(numbers[1]), |text| {
            text.contains("delete") && text.matches(eight).count() == 2
        });
        assert!(!told.contains(r#""odd":1"#), "{told}");
        // What is not kept is gone, and what never was is no batch.
        for (number, status, code) in [("0", "410", "72000"), ("999999", "400", "22023")] {
            let told = events(&server, "/subscribe/v", &again(number), |_| false);
            assert!(
                told.starts_with(&format!("HTTP/1.1 {status}"))
                    && told.contains(code)
                    && told.contains("SUBSCRIBE TO v WITH (SNAPSHOT);"),
                "{number}: {told}"
            );
        }
        // A number that a client makes up harms nobody who writes.
        let told = events(&server, "/subscribe/t", &again("999999"), |_| false);
        assert!(
            told.starts_with("HTTP/1.1 400") && told.contains("22023"),
            "{told}"
        );
        server.execute("INSERT INTO t (k) VALUES (10)").await;
        // Of a table, who comes again goes on after the batch that was read to its end.
        let first = r#""k":1,"#;
        let ends = |text: &str| {
            let after = text.split_once(first);
            after.is_some_and(|(_, rest)| rest.contains("id: "))
        };
        let told = events(&server, "/subscribe/t?after_batch=0", "", ends);
        let told = lines(&told);
        let mut told = told.iter().skip_while(|line| !line.contains(first));
        let number = told.find_map(|line| line.strip_prefix("id: "));
        let number = number.expect("a batch has a number");
        let path = "/subscribe/t?snapshot=true";
        let rest = events(&server, path, &again(number), |text| {
            text.contains(r#""k":5,"#)
        });
        let rest = lines(&rest);
        let is_told = |key: u8| {
            let row = format!(r#""change_kind":"insert","k":{key},"#);
            rest.iter().any(|line| line.contains(&row))
        };
        assert_eq!([1, 2, 3, 5].map(is_told), [false, true, true, true]);
    });
}

#[test]
fn subscribers_over_http_are_sessions() {
    run(async {
        let server = Server::start();
        server
            .execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
            .await;
        let refused = |path: &str, headers: &str| events(&server, path, headers, |_| false);
        for (path, status, code) in [
            ("/subscribe/nosuch", "404", "42P01"),
            ("/subscribe/t?since=3", "400", "22023"),
            ("/subscribe/t?after_batch=x", "400", "22023"),
        ] {
            let told = refused(path, "Connection: close\r\n");
            assert!(
                told.starts_with(&format!("HTTP/1.1 {status}")) && told.contains(code),
                "{path}: {told}"
            );
        }
        // A name that another site gave to this machine is not trusted.
        let told = get(&server, "/subscribe/t");
        assert!(told.starts_with("HTTP/1.1 403"), "{told}");
        // An administrator ends it as he ends any other.
        let server = std::sync::Arc::new(server);
        let reader = std::sync::Arc::clone(&server);
        let read = tokio::task::spawn_blocking(move || {
            events(&reader, "/subscribe/t", "Connection: close\r\n", |_| false)
        });
        let pid = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'http'";
        let within = std::time::Duration::from_secs(10);
        server.wait_for_value(pid, "1", within).await;
        server
            .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'http'")
            .await;
        server.wait_for_value(pid, "0", within).await;
        // Once users exist, one says who he is, and reads what he may.
        server
            .execute(
                "CREATE USER ada PASSWORD 'secret'; CREATE USER bob PASSWORD 'secret'; GRANT SELECT ON t TO ada; INSERT INTO t VALUES (1)",
            )
            .await;
        drop(read);
        let told = events(&server, "/subscribe/t", "Connection: close\r\n", |_| false);
        assert!(told.starts_with("HTTP/1.1 401"), "{told}");
        // ada:secret, bob:secret
        let ada = "Authorization: Basic YWRhOnNlY3JldA==\r\n";
        let told = events(&server, "/subscribe/t?snapshot", ada, |text| {
            text.contains("data: ")
        });
        assert!(told.contains(r#""k":1}"#), "{told}");
        let bob = "Authorization: Basic Ym9iOnNlY3JldA==\r\nConnection: close\r\n";
        let told = events(&server, "/subscribe/t?snapshot", bob, |_| false);
        assert!(
            told.starts_with("HTTP/1.1 403") && told.contains("permission denied for table t"),
            "{told}"
        );
        let metrics = events(
            &server,
            "/metrics",
            &format!("{ada}Connection: close\r\n"),
            |_| false,
        );
        assert!(metrics.starts_with("HTTP/1.1 403"), "{metrics}");
    });
}

#[test]
fn a_batch_without_changes_tells_its_progress() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE STREAM s (k BIGINT, v BIGINT);
                 CREATE MATERIALIZED VIEW high WITH (pipeline = 'p') AS SELECT k FROM s WHERE v > 100;
                 CREATE MATERIALIZED VIEW low WITH (pipeline = 'p') AS SELECT k FROM s WHERE v <= 100;
                 INSERT INTO s VALUES (1, 1000), (1, 1); FLUSH",
            )
            .await;
        let client = server.connect().await;
        client
            .batch_execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO high WITH (PROGRESS)")
            .await
            .expect("declared");
        // The first says where the changes begin.
        for (value, kind) in [
            (None, "progress"),
            (Some(1), "progress"),
            (Some(500), "insert"),
            (Some(2), "progress"),
        ] {
            if let Some(value) = value {
                let insert = format!("INSERT INTO s VALUES (7, {value}); FLUSH");
                server.execute(&insert).await;
            }
            let fetched = crate::harness::rows(&client, "FETCH 1 FROM c").await;
            let fetched = fetched.expect("a row");
            assert_eq!(fetched[0][1], kind, "{value:?}: {fetched:?}");
        }
    });
}

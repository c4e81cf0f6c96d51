//! Sessions at their limits: time-outs, notifications to idle sessions, rows by the gigabyte in bounded
//! memory, clients that stop reading, many connections.
//!
//! Sizes are those of a test that takes seconds; `TIDEMILL_SOAK` multiplies them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio_postgres::{AsyncMessage, NoTls, Notification};

use crate::harness::{Server, run};
use crate::postgres::Postgres;
use crate::soak;

/// A client that hears notifications.
async fn listener(
    server: &Server,
) -> (
    tokio_postgres::Client,
    tokio::sync::mpsc::UnboundedReceiver<Notification>,
) {
    let (host, port) = server.address().split_once(':').expect("host:port");
    let config = format!("host={host} port={port} user=tidemill dbname=tidemill");
    let (client, mut connection) = tokio_postgres::connect(&config, NoTls)
        .await
        .expect("connects");
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        let mut messages = std::pin::pin!(messages);
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification).is_err()
            {
                return;
            }
        }
    });
    (client, heard)
}

async fn next(heard: &mut tokio::sync::mpsc::UnboundedReceiver<Notification>) -> Notification {
    tokio::time::timeout(Duration::from_secs(20), heard.recv())
        .await
        .expect("a notification comes")
        .expect("the connection stands")
}

#[test]
fn events_are_notifications() {
    run(async {
        let server = Server::start();
        let (client, mut heard) = listener(&server).await;
        client
            .batch_execute("LISTEN streaming_events")
            .await
            .expect("listens");
        server
            .execute("CREATE STREAM s (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
            .await;
        let mut told = Vec::new();
        while !told.contains(&("created".to_owned(), "v".to_owned())) {
            let notification = next(&mut heard).await;
            assert_eq!(notification.channel(), "streaming_events");
            assert!(notification.payload().len() < 8_000);
            let row: serde_json::Value =
                serde_json::from_str(notification.payload()).expect("the payload is JSON");
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            assert!(!notification.payload().contains("CREATE STREAM"), "{row}");
            told.push((text("event"), text("object_name")));
        }
        assert!(
            told.contains(&("created".to_owned(), "s".to_owned())),
            "{told:?}"
        );
        let kept = server
            .value("SELECT count(*) FROM streaming_events WHERE event = 'created'")
            .await;
        let heard = told.iter().filter(|(event, _)| event == "created").count();
        assert_eq!(kept, heard.to_string());
    });
}

#[test]
fn transactions_notify_when_they_commit() {
    run(async {
        let server = Server::start();
        let (client, mut heard) = listener(&server).await;
        client.batch_execute("LISTEN c").await.expect("listens");
        let other = server.connect().await;
        for statements in [
            "BEGIN; NOTIFY c, 'rolled back'; ROLLBACK",
            "BEGIN; NOTIFY c, '1'; SAVEPOINT a; NOTIFY c, 'undone'; ROLLBACK TO a; NOTIFY c, '2'; NOTIFY c, '1'; COMMIT",
            "NOTIFY c, '3'; SELECT pg_notify('c', '4'); NOTIFY d, 'unheard'",
        ] {
            other.batch_execute(statements).await.expect(statements);
        }
        assert!(
            other
                .batch_execute("NOTIFY c, 'lost'; SELECT 1/0")
                .await
                .is_err()
        );
        other.batch_execute("NOTIFY c").await.expect("notifies");
        let mut payloads = Vec::new();
        for _ in 0..5 {
            payloads.push(next(&mut heard).await.payload().to_owned());
        }
        assert_eq!(payloads, ["1", "2", "3", "4", ""]);
        // Within a transaction they wait for its end.
        client.batch_execute("BEGIN").await.expect("begins");
        other
            .batch_execute("NOTIFY c, 'later'")
            .await
            .expect("notifies");
        client.batch_execute("SELECT 1").await.expect("reads");
        assert!(heard.try_recv().is_err());
        client.batch_execute("COMMIT").await.expect("ends");
        assert_eq!(next(&mut heard).await.payload(), "later");
        client.batch_execute("DISCARD ALL").await.expect("forgets");
        other
            .batch_execute("NOTIFY c, 'unheard'")
            .await
            .expect("notifies");
        client.batch_execute("SELECT 1").await.expect("reads");
        assert!(heard.try_recv().is_err());
    });
}

/// SQLSTATE and text with which a session ends, or its statement fails.
async fn told(client: &tokio_postgres::Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    match error.as_db_error() {
        Some(e) => (e.code().code().to_owned(), e.message().to_owned()),
        None => (String::new(), error.to_string()),
    }
}

#[test]
fn time_outs_are_those_of_postgres() {
    run(async {
        let server = Server::start();
        let client = server.connect().await;
        client
            .batch_execute("SET statement_timeout = '100ms'")
            .await
            .expect("sets");
        let expected = "canceling statement due to statement timeout";
        for sql in [
            "SELECT pg_sleep(20)",
            "SELECT count(*) FROM generate_series(1, 100000000000) g",
        ] {
            assert_eq!(
                told(&client, sql).await,
                ("57014".to_owned(), expected.to_owned())
            );
        }
        // Each statement of a message has its own time.
        client
            .batch_execute("SELECT pg_sleep(0.06); SELECT pg_sleep(0.06)")
            .await
            .expect("in time");
        let holder = server.connect().await;
        holder
            .batch_execute("SELECT pg_advisory_lock(7)")
            .await
            .expect("locks");
        client
            .batch_execute("SET statement_timeout = 0; SET lock_timeout = '50ms'")
            .await
            .expect("sets");
        let expected = "canceling statement due to lock timeout";
        let got = told(&client, "SELECT pg_advisory_lock(7)").await;
        assert_eq!(got, ("55P03".to_owned(), expected.to_owned()));
        let tried = "SELECT pg_try_advisory_lock(7)";
        assert_eq!(
            crate::harness::rows(&client, tried).await.expect(tried),
            [["f"]]
        );
        // A lock goes with its session.
        drop(holder);
        client
            .batch_execute("SET lock_timeout = '20s'; SELECT pg_advisory_lock(7)")
            .await
            .expect("the lock is free");
        // Of a transaction, with its end.
        client
            .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(8); COMMIT")
            .await
            .expect("locks");
        let tried = "SELECT pg_try_advisory_lock(8)";
        assert_eq!(server.rows(tried).await, [["t"]]);
    });
}

/// Reads until the server ends the connection; what it said last.
fn last_words(address: &str, statements: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a time-out");
    let mut body = (3i32 << 16).to_be_bytes().to_vec();
    body.extend(b"user\0tidemill\0database\0tidemill\0\0");
    socket
        .write_all(&(body.len() as i32 + 4).to_be_bytes())
        .and_then(|()| socket.write_all(&body))
        .expect("the start is sent");
    let mut message = vec![b'Q'];
    message.extend((statements.len() as i32 + 5).to_be_bytes());
    message.extend(statements.as_bytes());
    message.push(0);
    socket.write_all(&message).expect("the statements are sent");
    let mut answers = Vec::new();
    socket
        .read_to_end(&mut answers)
        .expect("the server ends it");
    String::from_utf8_lossy(&answers).into_owned()
}

#[test]
fn idle_sessions_are_ended_as_postgres_ends_them() {
    let server = Server::start();
    for (statements, state, text) in [
        (
            "SET idle_session_timeout = '100ms'",
            "57P05",
            "idle-session timeout",
        ),
        (
            "SET idle_in_transaction_session_timeout = '100ms'; BEGIN; SELECT 1",
            "25P03",
            "idle-in-transaction timeout",
        ),
    ] {
        let told = last_words(server.address(), statements);
        let fatal = format!("C{state}\0Mterminating connection due to {text}");
        assert!(told.contains("SFATAL") && told.contains(&fatal), "{told:?}");
    }
}

/// Bytes of COPY text that are sent in this test.
fn copied_bytes() -> usize {
    (128 << 20) * soak::factor() as usize
}

fn psql(server: &Server, sql: &str) -> Command {
    let (host, port) = server.address().split_once(':').expect("host:port");
    let mut command = Command::new("psql");
    command
        .args([
            "-X", "-q", "-h", host, "-p", port, "-U", "tidemill", "-d", "tidemill",
        ])
        .args(["-v", "ON_ERROR_STOP=1", "-c", sql]);
    command
}

#[test]
fn copy_keeps_little_in_memory() {
    const GROWTH_MAX_BYTES: u64 = 160 << 20;
    let server = Server::start();
    run(server.execute("CREATE STREAM s (id BIGINT, t TEXT)"));
    let before = server.resident_bytes();
    let mut copy = psql(&server, "COPY s FROM STDIN")
        .stdin(Stdio::piped())
        .spawn()
        .expect("psql is installed");
    let text = "x".repeat(190);
    let (mut rows, mut sent) = (0u64, 0);
    {
        let pipe = copy.stdin.take().expect("piped");
        let mut pipe = std::io::BufWriter::with_capacity(1 << 20, pipe);
        while sent < copied_bytes() {
            let line = format!("{rows}\t{text}\n");
            pipe.write_all(line.as_bytes()).expect("psql reads");
            sent += line.len();
            rows += 1;
        }
        pipe.flush().expect("psql reads");
    }
    assert!(copy.wait().expect("psql ends").success());
    let growth = server.peak_bytes() - before;
    assert!(
        growth < GROWTH_MAX_BYTES,
        "{growth} bytes for {sent} bytes in"
    );
    let mut copy = psql(&server, "COPY s TO STDOUT")
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql is installed");
    let mut out = copy.stdout.take().expect("piped");
    let received = std::io::copy(&mut out, &mut std::io::sink()).expect("read");
    assert!(copy.wait().expect("psql ends").success());
    assert_eq!(received, sent as u64);
    let growth = server.peak_bytes() - before;
    assert!(
        growth < GROWTH_MAX_BYTES,
        "{growth} bytes for {sent} bytes out"
    );
}

#[test]
fn a_bad_row_of_a_long_copy_is_named_and_nothing_is_kept() {
    const BAD_LINE: u64 = 1_000_000;
    let server = Server::start();
    run(server.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER); CREATE STREAM s (id BIGINT, n INTEGER)",
    ));
    for relation in ["t", "s"] {
        let mut copy = psql(&server, &format!("COPY {relation} (id, n) FROM STDIN"))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql is installed");
        {
            let pipe = copy.stdin.take().expect("piped");
            let mut pipe = std::io::BufWriter::with_capacity(1 << 20, pipe);
            for line in 1..BAD_LINE + 10 {
                let n = if line == BAD_LINE { "bad" } else { "1" };
                // The server may have refused already.
                if writeln!(pipe, "{line}\t{n}").is_err() {
                    break;
                }
            }
        }
        let output = copy.wait_with_output().expect("psql ends");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains("invalid input syntax for type integer: \"bad\"")
                && told.contains("COPY line 1000000, column n: \"bad\"."),
            "{told}"
        );
        assert_eq!(
            run(server.value(&format!("SELECT count(*) FROM {relation}"))),
            "0"
        );
    }
}

#[test]
fn clients_that_stop_reading_or_sending_hold_nothing() {
    // A batch of these rows is eight megabytes, and each query has a few on their way.
    const GROWTH_MAX_BYTES: u64 = 512 << 20;
    let server = Server::start();
    let before = server.resident_bytes();
    let start = |statement: &str| {
        let mut socket = TcpStream::connect(server.address()).expect("the server listens");
        let mut body = (3i32 << 16).to_be_bytes().to_vec();
        body.extend(b"user\0tidemill\0database\0tidemill\0\0");
        let mut said = (body.len() as i32 + 4).to_be_bytes().to_vec();
        said.extend(body);
        said.push(b'Q');
        said.extend((statement.len() as i32 + 5).to_be_bytes());
        said.extend(statement.as_bytes());
        said.push(0);
        socket.write_all(&said).expect("sent");
        socket
    };
    // A hundred gigabytes that nobody reads, and messages that never end.
    let endless = "SELECT g, repeat('x', 1000) FROM generate_series(1, 100000000) g";
    let unread: Vec<TcpStream> = (0..8).map(|_| start(endless)).collect();
    let unsaid: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut socket = start("SELECT 1");
            socket.write_all(b"Q\x03\0\0\0SELECT").expect("sent");
            socket
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    run(async {
        let active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%repeat%' AND pid <> pg_backend_pid()";
        assert_eq!(server.value(active).await, "8");
        let growth = server.peak_bytes().saturating_sub(before);
        assert!(growth < GROWTH_MAX_BYTES, "{growth} bytes");
        // Cancelled by others, they end at once though nobody reads.
        let cancel = "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%repeat%' AND pid <> pg_backend_pid()";
        assert_eq!(server.value(cancel).await, "t");
        server
            .wait_for_value(active, "0", Duration::from_secs(10))
            .await;
        drop((unread, unsaid));
        let alone = "SELECT count(*) FROM pg_stat_activity";
        server
            .wait_for_value(alone, "1", Duration::from_secs(10))
            .await;
    });
}

#[test]
fn a_message_of_a_gigabyte_is_refused_at_once() {
    let server = Server::start();
    for (kind, told) in [
        (b'Q', "statement is too long"),
        (b'd', "invalid message length"),
    ] {
        let mut socket = TcpStream::connect(server.address()).expect("the server listens");
        let mut body = (3i32 << 16).to_be_bytes().to_vec();
        body.extend(b"user\0tidemill\0database\0tidemill\0\0");
        let mut said = (body.len() as i32 + 4).to_be_bytes().to_vec();
        said.extend(body);
        said.push(kind);
        said.extend((1i32 << 30).to_be_bytes());
        socket.write_all(&said).expect("sent");
        let mut answers = Vec::new();
        socket
            .read_to_end(&mut answers)
            .expect("the server ends it");
        let answers = String::from_utf8_lossy(&answers);
        assert!(
            answers.contains("SFATAL") && answers.contains(told),
            "{answers:?}"
        );
    }
}

#[test]
fn a_thousand_sessions_take_little_memory() {
    const SESSIONS: usize = 1_000;
    const SESSION_MAX_BYTES: u64 = 400 << 10;
    let server = Server::start_with(&["--max-connections", "1001"], &[]);
    run(async {
        // What all have in common is made once.
        server.value("SELECT 1").await;
        let before = server.resident_bytes();
        let started = Instant::now();
        let mut clients = Vec::with_capacity(SESSIONS);
        for _ in 0..SESSIONS {
            clients.push(server.connect().await);
        }
        let answers = clients
            .iter()
            .map(|client| client.query_one("SELECT 1::int", &[]));
        let answers = futures::future::join_all(answers).await;
        assert!(answers.iter().all(Result::is_ok));
        let each = (server.resident_bytes() - before) / SESSIONS as u64;
        assert!(each < SESSION_MAX_BYTES, "{each} bytes a session");
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{:?}",
            started.elapsed()
        );
        clients.push(server.connect().await);
        let refused = server.try_connect().await.expect_err("one too many");
        let code = refused.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("53300"));
        drop(clients);
        let alone = "SELECT count(*) FROM pg_stat_activity";
        let start = Instant::now();
        while server.try_connect().await.is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "sessions do not end"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server
            .wait_for_value(alone, "1", Duration::from_secs(20))
            .await;
    });
}

#[test]
fn pgbench_runs_in_every_mode() {
    let Some(programs) = Postgres::folder_of("pgbench") else {
        eprintln!("SKIPPED: pgbench is not installed; `.ci/setup test` installs it");
        return;
    };
    let server = Server::start();
    run(server.execute(
        "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT); INSERT INTO accounts SELECT g, 0 FROM generate_series(1, 1000) g",
    ));
    let script = server.dir().join("transfer.sql");
    std::fs::write(
        &script,
        "\\set id random(1, 1000)\nBEGIN;\nUPDATE accounts SET balance = balance + 1 WHERE id = :id;\nSELECT balance FROM accounts WHERE id = :id;\nCOMMIT;\n",
    )
    .expect("written");
    let (host, port) = server.address().split_once(':').expect("host:port");
    let mut done = 0;
    for mode in ["simple", "extended", "prepared"] {
        let output = Command::new(programs.join("pgbench"))
            .args(["-h", host, "-p", port, "-U", "tidemill", "-n", "-M", mode])
            .args(["-c", "4", "-j", "2", "-t", "20", "-f"])
            .arg(&script)
            .arg("tidemill")
            .output()
            .expect("pgbench runs");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{told}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(told.contains("number of failed transactions: 0 "), "{told}");
        done += 80;
    }
    let total = run(server.value("SELECT sum(balance) FROM accounts"));
    assert_eq!(total, done.to_string());
    pgbench_initializes(&server, &programs.join("pgbench"));
    let ready = Command::new(programs.join("pg_isready"))
        .args(["-h", host, "-p", port])
        .status();
    assert!(ready.expect("pg_isready runs").success());
}

/// `pgbench -i` and its own transactions, as they are.
fn pgbench_initializes(server: &Server, program: &std::path::Path) {
    let (host, port) = server.address().split_once(':').expect("host:port");
    let pgbench = |arguments: &[&str]| {
        let output = Command::new(program)
            .args(["-h", host, "-p", port, "-U", "tidemill"])
            .args(arguments)
            .arg("tidemill")
            .output()
            .expect("pgbench runs");
        let told = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned());
        assert!(output.status.success(), "{arguments:?}: {told:?}");
        told.concat()
    };
    pgbench(&["-i", "-s", "1", "--unlogged-tables"]);
    // Generated by the server, the keys last.
    pgbench(&["-i", "-s", "1", "-I", "dtGpv"]);
    // All of them change the one row of pgbench_branches.
    let told = pgbench(&["-c", "4", "-j", "2", "-t", "15"]);
    assert!(told.contains("number of failed transactions: 0 "), "{told}");
    let sums = run(server.rows(
        "SELECT count(*), sum(delta) = (SELECT sum(abalance) FROM pgbench_accounts), \
           sum(delta) = (SELECT sum(tbalance) FROM pgbench_tellers), sum(delta) = (SELECT sum(bbalance) FROM pgbench_branches) \
         FROM pgbench_history",
    ));
    assert_eq!(sums, [["60", "t", "t", "t"]]);
    for builtin in ["simple-update", "select-only"] {
        pgbench(&["-b", builtin, "-c", "2", "-t", "20", "-M", "prepared"]);
    }
}

#[test]
fn a_postgres_reads_and_writes_through_its_foreign_tables() {
    let Some(postgres) = Postgres::start("postgres_fdw") else {
        return;
    };
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner TEXT, balance NUMERIC(12,2), tags TEXT[], at TIMESTAMPTZ); \
                 INSERT INTO accounts SELECT g, 'o' || g % 3, g, ARRAY['a', 'b'], '2024-01-01 00:00:00+00' FROM generate_series(1, 500) g; \
                 CREATE MATERIALIZED VIEW per_owner AS SELECT owner, count(*) AS n, sum(balance) AS total FROM accounts GROUP BY owner; FLUSH",
            )
            .await;
        let (host, port) = server.address().split_once(':').expect("host:port");
        let client = postgres.connect().await;
        if client
            .batch_execute("CREATE EXTENSION postgres_fdw")
            .await
            .is_err()
        {
            eprintln!("SKIPPED: postgres_fdw is not installed beside PostgreSQL");
            return;
        }
        client
            .batch_execute(&format!(
                "CREATE SERVER tm FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', port '{port}', dbname 'tidemill', fetch_size '70', batch_size '50'); \
                 CREATE USER MAPPING FOR tidemill SERVER tm OPTIONS (user 'tidemill'); \
                 CREATE SCHEMA far; IMPORT FOREIGN SCHEMA public FROM SERVER tm INTO far"
            ))
            .await
            .expect("the schema is imported");
        for (sql, expected) in [
            ("SELECT count(*)::text FROM far.accounts", "500"),
            ("SELECT sum(total)::text FROM far.per_owner", "125250.00"),
            (
                "SELECT string_agg(owner, ',' ORDER BY id) FROM far.accounts WHERE id IN (1, 2, 3) AND at < now()",
                "o1,o2,o0",
            ),
            (
                "SELECT string_agg(owner || n, ' ' ORDER BY owner) FROM (SELECT owner, count(*) AS n FROM far.accounts WHERE id > 10 GROUP BY owner) x",
                "o0163 o1163 o2164",
            ),
            (
                "SELECT count(*)::text FROM far.accounts a JOIN far.per_owner p USING (owner) WHERE a.id < 10",
                "9",
            ),
            (
                "WITH i AS (INSERT INTO far.accounts SELECT g, 'new', 1, NULL, now() FROM generate_series(1000, 1199) g RETURNING id) SELECT count(*)::text FROM i",
                "200",
            ),
            (
                "WITH u AS (UPDATE far.accounts SET balance = balance + 10 WHERE owner = 'new' RETURNING balance) SELECT sum(balance)::text FROM u",
                "2200.00",
            ),
            (
                "WITH d AS (DELETE FROM far.accounts WHERE id >= 1100 RETURNING 1) SELECT count(*)::text FROM d",
                "100",
            ),
            ("SELECT count(*)::text FROM far.accounts", "600"),
        ] {
            let row = client.query_one(sql, &[]).await;
            let row = row.unwrap_or_else(|e| panic!("{sql}: {}", crate::harness::describe(&e)));
            assert_eq!(row.get::<_, &str>(0), expected, "{sql}");
        }
        let explained = "EXPLAIN (VERBOSE, COSTS OFF) SELECT owner, count(*) FROM far.accounts WHERE id > 10 GROUP BY owner";
        let plan = crate::harness::rows(&client, explained)
            .await
            .expect("a plan");
        let pushed =
            "Remote SQL: SELECT owner, count(*) FROM public.accounts WHERE ((id > 10)) GROUP BY 1";
        assert!(
            plan.iter().flatten().any(|line| line.trim() == pushed),
            "{plan:?}"
        );
        assert_eq!(server.value("SELECT count(*) FROM accounts").await, "600");
        // What EXPLAIN here says of rows and costs is what PostgreSQL plans with.
        client
            .batch_execute("ALTER SERVER tm OPTIONS (ADD use_remote_estimate 'true')")
            .await
            .expect("altered");
        let estimated = "SELECT count(*)::text FROM far.accounts a JOIN far.per_owner p USING (owner) WHERE a.id < 10";
        let row = client.query_one(estimated, &[]).await;
        let row = row.unwrap_or_else(|e| panic!("{}", crate::harness::describe(&e)));
        assert_eq!(row.get::<_, &str>(0), "9");
        let sampled = "ANALYZE far.accounts";
        client.batch_execute(sampled).await.expect("sampled");
        let rows = crate::harness::rows(
            &client,
            "SELECT reltuples::bigint FROM pg_class WHERE oid = 'far.accounts'::regclass",
        );
        assert_eq!(rows.await.expect("known"), [["600"]]);
    });
}

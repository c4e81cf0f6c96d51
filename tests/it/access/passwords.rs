//! Logging in, and what does not get in.

use std::time::{Duration, Instant};

use super::*;
use crate::harness::{rows, run};

#[test]
fn everyone_logs_in_once_there_is_a_password() {
    run(async {
        let mut server = server_with_users(
            "CREATE USER ada WITH PASSWORD 'ada''s' CONNECTION LIMIT 1;
             CREATE USER twin0 PASSWORD 'x';
             CREATE ROLE closed PASSWORD 'x';
             CREATE USER late PASSWORD 'x' VALID UNTIL '2001-01-01';
             CREATE USER \"Ünï code\" PASSWORD 'pässwörd';",
        )
        .await;
        server.terminate();
        server.restart();
        let refused = |user: &'static str, password: &'static str| {
            let server = &server;
            async move {
                let error = connect(server, user, password).await.expect_err(user);
                let db = error.as_db_error().expect("an answer of the server");
                format!("{} {}", db.code().code(), db.message())
            }
        };
        // Who does not exist, has no password or one no more is told what a wrong password is.
        for (user, password) in [
            ("ada", "wrong"),
            ("nobody", "x"),
            ("late", "x"),
            ("tidemill", ""),
        ] {
            let told = refused(user, password).await;
            let expected = match password {
                "" => continue,
                _ => format!("28P01 password authentication failed for user \"{user}\""),
            };
            assert_eq!(told, expected);
        }
        assert_eq!(
            refused("closed", "x").await,
            "28000 role \"closed\" is not permitted to log in"
        );
        let ada = connect(&server, "ada", "ada\\'s")
            .await
            .expect("ada logs in");
        let who = rows(&ada, "SELECT current_user, session_user")
            .await
            .unwrap();
        assert_eq!(who, [["ada", "ada"]]);
        assert_eq!(
            refused("ada", "ada\\'s").await,
            "53300 too many connections for role \"ada\""
        );
        connect(&server, "'Ünï code'", "pässwörd")
            .await
            .expect("any name and password");
        // Nothing shows a password or what it is checked against but to superusers.
        let hidden = outcome(&ada, "SELECT * FROM pg_authid").await;
        assert_eq!(hidden, "42501 permission denied for table pg_authid");
        let root = root(&server).await;
        let kept = rows(
            &root,
            "SELECT count(*) FROM pg_authid WHERE rolpassword LIKE 'SCRAM-SHA-256$4096:%'",
        )
        .await
        .unwrap();
        assert_eq!(kept, [["6"]]);
        // Neither a start-up option nor a parameter of one's own role makes one somebody else.
        for option in ["role", "session_authorization"] {
            let (out, err) = psql(
                &url(&server, "late", &format!("options='-c {option}=tidemill'")),
                &[],
                "SELECT 1;\n",
            );
            assert!(out.is_empty() && err.contains("FATAL"), "{out}{err}");
            let (_, err) = psql(
                &url(&server, "twin0", &format!("options='-c {option}=tidemill'")),
                &[("PGPASSWORD", "x")],
                "SELECT current_user;\n",
            );
            assert!(err.contains("permission denied to set"), "{err}");
        }
        let twin = connect(&server, "twin0", "x").await.expect("twin0 logs in");
        assert_eq!(
            outcome(&twin, "ALTER ROLE twin0 SET role = 'tidemill'").await,
            "ok"
        );
        let twin = connect(&server, "twin0", "x").await.expect("twin0 logs in");
        assert_eq!(
            rows(&twin, "SELECT current_user").await.unwrap(),
            [["twin0"]]
        );
        // The password of the role's own; a verifier from elsewhere is good.
        assert_eq!(outcome(&ada, "ALTER USER ada PASSWORD 'new'").await, "ok");
        assert_eq!(
            outcome(&ada, "ALTER USER ada SUPERUSER")
                .await
                .split(' ')
                .next(),
            Some("42501")
        );
        let verifier = rows(
            &root,
            "SELECT rolpassword FROM pg_authid WHERE rolname = 'ada'",
        )
        .await
        .unwrap();
        let statement = format!("CREATE USER twin PASSWORD '{}'", verifier[0][0]);
        assert_eq!(outcome(&root, &statement).await, "ok");
        connect(&server, "twin", "new")
            .await
            .expect("the verifier is ada's");
        let (out, err) = psql(
            &url(&server, "twin", ""),
            &[("PGPASSWORD", "new")],
            "SELECT current_user;\n",
        );
        assert!(out.contains("twin") && err.is_empty(), "{out}{err}");
        let log = server.log();
        for secret in ["ada's", "root-pw", "pässwörd", "SCRAM-SHA-256$"] {
            assert!(!log.contains(secret), "{secret} in:\n{log}");
        }
    });
}

#[test]
fn statements_are_shown_without_their_passwords() {
    run(async {
        let server =
            server_with_users("CREATE USER ada PASSWORD 'opensesame'; CREATE SECRET k AS 'hidden'")
                .await;
        let root = root(&server).await;
        outcome(&root, "ALTER USER ada PASSWORD 'swordfish'").await;
        let said = "SELECT detail->>'user', detail->>'statement' FROM streaming_events WHERE event = 'statement' ORDER BY event_at";
        let said: Vec<String> = rows(&root, said).await.unwrap().concat();
        let all = said.join("\n");
        for secret in ["opensesame", "hidden", "swordfish", ROOT] {
            assert!(!all.contains(secret), "{all}");
        }
        assert!(all.contains("CREATE USER ada PASSWORD '********'"), "{all}");
        assert!(all.contains("CREATE SECRET k AS '********'"), "{all}");
        let ada = connect(&server, "ada", "swordfish").await.unwrap();
        let seen = rows(
            &ada,
            "SELECT DISTINCT query FROM pg_stat_activity WHERE usename = 'tidemill'",
        )
        .await
        .unwrap();
        assert_eq!(seen, [["<insufficient privilege>"]]);
        let seen = rows(
            &ada,
            "SELECT DISTINCT detail->>'statement' FROM streaming_events WHERE event = 'statement'",
        )
        .await
        .unwrap();
        assert_eq!(seen, [["<insufficient privilege>"]]);
        assert_eq!(
            outcome(
                &ada,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tidemill'"
            )
            .await,
            "42501 must be a superuser to terminate superuser process"
        );
    });
}

#[test]
fn a_thousand_wrong_passwords_are_slowed_told_and_harm_nobody() {
    run(async {
        let server =
            server_with_users("CREATE USER ada PASSWORD 'right'; CREATE USER bob PASSWORD 'bob'")
                .await;
        let server = std::sync::Arc::new(server);
        let start = Instant::now();
        let tries = (0..20).map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let error = connect(&server, "ada", "wrong").await.expect_err("refused");
                    let code = error
                        .as_db_error()
                        .expect("an answer")
                        .code()
                        .code()
                        .to_owned();
                    assert_eq!(code, "28P01");
                }
            })
        });
        let tries: Vec<_> = tries.collect();
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let began = Instant::now();
            let bob = connect(&server, "bob", "bob")
                .await
                .expect("bob is unharmed");
            assert_eq!(rows(&bob, "SELECT 1").await.unwrap(), [["1"]]);
            slowest = slowest.max(began.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        for task in tries {
            task.await.expect("all were refused");
        }
        assert!(
            start.elapsed() > Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
        let root = root(&server).await;
        let told = rows(&root, "SELECT count(*), min(object_name), min(detail->>'client_address') FROM streaming_events WHERE event = 'authentication failed'").await.unwrap();
        let events: u32 = told[0][0].parse().unwrap();
        assert!((1..=5).contains(&events), "{told:?}");
        assert_eq!(told[0][1..], ["ada", "127.0.0.1"]);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        connect(&server, "ada", "right")
            .await
            .expect("the right password is still good");
    });
}

#[test]
fn other_machines_are_let_in_once_there_is_a_user() {
    run(async {
        let dir = tempfile::TempDir::new().unwrap();
        let serve = |more: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_tidemill"))
                .arg("serve")
                .args(["--data", dir.path().join("data").to_str().unwrap()])
                .args(["--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"])
                .args(more)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let refused = serve(&[]).wait_with_output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success());
        assert!(
            told.contains("cannot listen on 0.0.0.0:0 while no user has a password"),
            "{told}"
        );
        assert!(told.contains("ALTER USER tidemill PASSWORD"), "{told}");
        let password = dir.path().join("password");
        std::fs::write(&password, "first\n").unwrap();
        let mut child = serve(&["--password-file", password.to_str().unwrap()]);
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let port = line
            .split("postgres=0.0.0.0:")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let config = format!(
            "host=127.0.0.1 port={} user=tidemill dbname=tidemill password=first",
            port.expect(&line)
        );
        let connected = tokio_postgres::connect(&config, NoTls).await;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(connected.is_ok());
    });
}

#[test]
fn figures_are_for_those_who_monitor() {
    use std::io::Read;

    run(async {
        let server = server_with_users(
            "CREATE USER ada PASSWORD 'a'; CREATE USER grafana PASSWORD 'g'; GRANT pg_monitor TO grafana",
        )
        .await;
        let get = |path: &str, credentials: Option<&str>| {
            let mut stream = std::net::TcpStream::connect(server.http()).unwrap();
            let header =
                credentials.map_or(String::new(), |c| format!("Authorization: Basic {c}\r\n"));
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n"
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer[9..12].to_owned()
        };
        // Of "ada:a", "grafana:g" and "grafana:x".
        let (ada, grafana, wrong) = ("YWRhOmE=", "Z3JhZmFuYTpn", "Z3JhZmFuYTp4");
        assert_eq!(get("/healthz", None), "200");
        assert_eq!(get("/metrics", None), "401");
        assert_eq!(get("/metrics", Some(wrong)), "401");
        assert_eq!(get("/metrics", Some(ada)), "403");
        assert_eq!(get("/metrics", Some(grafana)), "200");
    });
}

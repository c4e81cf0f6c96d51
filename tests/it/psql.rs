//! The real psql: statements in one text, backslash commands, \copy, errors with hint.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{Server, run};

fn psql(server: &Server, input: &str) -> (String, String) {
    let (host, port) = server.address().split_once(':').expect("host:port");
    let mut child = Command::new("psql")
        .args([
            "-X", "-h", host, "-p", port, "-U", "tidemill", "-d", "tidemill",
        ])
        .current_dir(server.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql is installed");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("written");
    let output = child.wait_with_output().expect("psql ends");
    (
        String::from_utf8(output.stdout).expect("UTF-8"),
        String::from_utf8(output.stderr).expect("UTF-8"),
    )
}

#[test]
fn psql_works() {
    run(async {
        let server = Server::start();
        let (out, err) = psql(
            &server,
            "CREATE STREAM clicks (user_id BIGINT, url TEXT);\n\
             CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT NOT NULL);\n\
             CREATE MATERIALIZED VIEW per_user AS SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id;\n\
             CREATE VIEW pv AS SELECT * FROM per_user;\n\
             INSERT INTO clicks VALUES (1, 'a'), (1, 'b'); FLUSH;\n\
             \\timing on\nSELECT * FROM per_user;\n\\timing off\n\
             \\d\n\\dt\n\\dm\n\\dv\n\\l\n\\dn\n\\d t\n\\d per_user\n\\conninfo\n",
        );
        // The view keeps a group for every user for ever, and says so; nothing else is told.
        let told: Vec<&str> = err.lines().collect();
        let told_of_state = told.len() == 2
            && told[0]
                .starts_with("NOTICE:  materialized view \"per_user\" keeps state without bound")
            && told[1].contains("give stream clicks a TIMESTAMPTZ column and a watermark for it");
        assert!(
            told_of_state,
            "stderr:\n{err}\nstdout:\n{out}\nlog:\n{}",
            server.log()
        );
        for expected in [
            "CREATE STREAM",
            "CREATE TABLE",
            "CREATE MATERIALIZED VIEW",
            "INSERT 0 2",
            "Time: ",
            "| clicks ",
            "| per_user | materialized view",
            "| pv ",
            "tidemill",
            "public",
            "Table \"public.t\"",
            "\"t_pkey\" PRIMARY KEY",
            "not null",
            "Materialized view \"public.per_user\"",
        ] {
            assert!(out.contains(expected), "no {expected:?} in:\n{out}");
        }
        let (out, err) = psql(
            &server,
            "CREATE FUNCTION doubled(x bigint) RETURNS bigint LANGUAGE SQL IMMUTABLE RETURN x * 2;\n\\df\n\\sf doubled\n",
        );
        assert_eq!(err, "", "{out}");
        for expected in [
            "public | doubled | bigint           | x bigint            | func",
            "CREATE OR REPLACE FUNCTION public.doubled(x bigint)",
        ] {
            assert!(out.contains(expected), "no {expected:?} in:\n{out}");
        }
        std::fs::write(server.dir().join("t.csv"), "id,name\n1,ann\n2,\"b,ob\"\n")
            .expect("written");
        let (out, err) = psql(
            &server,
            "\\copy t FROM 't.csv' WITH (FORMAT csv, HEADER true)\n\\copy t TO 'out.csv' WITH (FORMAT csv)\nSELECT nothing FROM t;\nSELECT 1/0;\n",
        );
        assert!(out.contains("COPY 2"), "{out}{err}");
        assert!(
            err.contains("column \"nothing\" does not exist") && err.contains("division by zero"),
            "{err}"
        );
        let mut copied: Vec<String> = std::fs::read_to_string(server.dir().join("out.csv"))
            .expect("copied")
            .lines()
            .map(str::to_owned)
            .collect();
        copied.sort();
        assert_eq!(copied, ["1,ann", "2,\"b,ob\""]);
    });
}

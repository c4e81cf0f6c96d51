//! Real clients: each runs one session against a PostgreSQL and against the server, and is told the same.
//!
//! A session is a program in `clients/` that prints a line per step. What is compared is everything
//! that a program sees through its driver: rows, types, tags, SQLSTATEs, metadata, notifications. What
//! is known to differ (types that are not there, rows as values) no session asks for. A client that
//! cannot be had on this machine is skipped, loudly.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{Server, run};
use crate::postgres::Postgres;
use crate::tools::{is_there, tools_dir};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients")
}

fn tool(path: &str) -> PathBuf {
    tools_dir().join("clients").join(path)
}

/// What a program says of one server, and why it failed if it did.
fn answers(mut program: Command, host: &str, port: u16) -> Vec<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = program
        .env("PGHOST", host)
        .env("PGPORT", port.to_string())
        .env("PGUSER", "tidemill")
        .env("PGDATABASE", "tidemill")
        .env("PGCONNECT_TIMEOUT", "20")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore")
        .env("TZ", "UTC")
        .output()
        .expect("the client starts");
    // A driver may warn of its own doings, now and then; a program that fails says why.
    let stderr = if status.success() { Vec::new() } else { stderr };
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    told.iter()
        .flat_map(|text| text.lines().map(str::to_owned))
        .collect()
}

/// Runs a client's session against both servers; every line must be the same.
fn compare(client: &str, needs: &Path, program: impl Fn() -> Command) {
    if !is_there(needs, client) {
        return;
    }
    let Some(postgres) = Postgres::start(client) else {
        return;
    };
    run(async {
        let oracle = postgres.connect().await;
        oracle
            .batch_execute("CREATE DATABASE tidemill")
            .await
            .expect("a database");
    });
    let server = Server::start();
    let wanted = answers(program(), "127.0.0.1", postgres.port());
    let (host, port) = server.address().split_once(':').expect("host:port");
    let got = answers(program(), host, port.parse().expect("a port"));
    assert!(
        wanted.len() > 20,
        "{client} against PostgreSQL: {wanted:#?}"
    );
    let differing: Vec<String> = wanted
        .iter()
        .zip(&got)
        .filter(|(wanted, got)| wanted != got)
        .map(|(wanted, got)| format!("- {wanted}\n+ {got}"))
        .collect();
    assert!(
        differing.is_empty() && wanted.len() == got.len(),
        "{client}: {} lines, {} from PostgreSQL\n{}\nlog:\n{}",
        got.len(),
        wanted.len(),
        differing.join("\n"),
        server.log()
    );
}

fn python(script: &str) -> impl Fn() -> Command {
    let script = folder().join(script);
    move || {
        let mut command = Command::new(tool("python/bin/python"));
        command.arg(&script);
        command
    }
}

#[test]
fn psycopg2_is_told_what_postgres_tells() {
    let python_is = tool("python/bin/python");
    compare("psycopg2", &python_is, python("psycopg2_session.py"));
}

#[test]
fn psycopg3_is_told_what_postgres_tells() {
    let python_is = tool("python/bin/python");
    compare("psycopg 3", &python_is, python("psycopg3_session.py"));
}

#[test]
fn temporary_tables_are_as_in_postgres() {
    let python_is = tool("python/bin/python");
    compare(
        "temporary tables",
        &python_is,
        python("temporary_session.py"),
    );
}

#[test]
fn asyncpg_is_told_what_postgres_tells() {
    let python_is = tool("python/bin/python");
    compare("asyncpg", &python_is, python("asyncpg_session.py"));
}

#[test]
fn sqlalchemy_is_told_what_postgres_tells() {
    let python_is = tool("python/bin/python");
    compare("SQLAlchemy", &python_is, python("sqlalchemy_session.py"));
}

#[test]
fn jdbc_is_told_what_postgres_tells() {
    let jar = tool("java/jars/postgresql-42.7.4.jar");
    compare("pgjdbc", &jar, || {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&jar).arg(folder().join("Jdbc.java"));
        command
    });
}

#[test]
fn node_is_told_what_postgres_tells() {
    let modules = tool("node/node_modules");
    compare("node-postgres and postgres.js", &modules, || {
        let mut command = Command::new("node");
        command
            .env("NODE_PATH", &modules)
            .arg(folder().join("node_session.js"));
        command
    });
}

#[test]
fn pgx_is_told_what_postgres_tells() {
    let program = tool("go/session");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(folder().join("go"))
        .output();
    match built {
        Ok(built) if built.status.success() => {}
        Ok(built) => eprintln!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(e) => eprintln!("go: {e}"),
    }
    compare("pgx", &program, || Command::new(&program));
}

#[test]
fn tokio_postgres_and_sqlx_are_told_what_postgres_tells() {
    let folder = folder().join("rust");
    let target = tool("rust");
    let built = Command::new("cargo")
        .args(["build", "--locked", "--quiet"])
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .current_dir(&folder)
        .output();
    match built {
        Ok(built) if built.status.success() => {}
        Ok(built) => eprintln!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(e) => eprintln!("cargo: {e}"),
    }
    let program = target.join("debug/session");
    compare("tokio-postgres and sqlx", &program, || {
        Command::new(&program)
    });
}

/// What Grafana's query builder and Metabase's synchronisation ask of a database with materialized
/// views: both find each relation, and each of its columns, once.
#[test]
fn grafana_and_metabase_see_every_relation_once() {
    run(async {
        let server = Server::start();
        server
            .execute(
                "CREATE TABLE sales (id BIGINT PRIMARY KEY, amount BIGINT); CREATE VIEW v AS SELECT id FROM sales;
                 CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(amount) AS total FROM sales",
            )
            .await;
        let grafana_tables = "SELECT quote_ident(table_name) FROM information_schema.tables \
             WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') AND table_schema = 'public' ORDER BY 1";
        let names = [["mv"], ["sales"], ["v"]];
        assert_eq!(server.rows(grafana_tables).await, names);
        let grafana_columns = "SELECT quote_ident(column_name), data_type FROM information_schema.columns \
             WHERE quote_ident(table_name) = 'mv' ORDER BY 1";
        assert_eq!(
            server.rows(grafana_columns).await,
            [["n", "bigint"], ["total", "bigint"]]
        );
        let metabase_tables = "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid \
             WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'f', 'm') ORDER BY 1";
        assert_eq!(server.rows(metabase_tables).await, names);
        let metabase_fields = "SELECT c.table_name AS table, c.column_name AS name FROM information_schema.columns AS c WHERE c.table_schema = 'public' \
             UNION ALL SELECT pc.relname, pa.attname FROM pg_catalog.pg_class AS pc \
             JOIN pg_catalog.pg_namespace AS pn ON pn.oid = pc.relnamespace JOIN pg_catalog.pg_attribute AS pa ON pa.attrelid = pc.oid \
             WHERE pc.relkind = 'm' AND pa.attnum >= 1 ORDER BY 1, 2";
        assert_eq!(
            server.rows(metabase_fields).await,
            [
                ["mv", "n"],
                ["mv", "total"],
                ["sales", "amount"],
                ["sales", "id"],
                ["v", "id"]
            ]
        );
        let both = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' \
             UNION ALL SELECT matviewname FROM pg_matviews WHERE schemaname = 'public' ORDER BY 1";
        assert_eq!(server.rows(both).await, names);
        let without_alias = "SELECT tables.table_name FROM information_schema.tables JOIN pg_class ON relname = tables.table_name \
             WHERE tables.table_schema = 'public' ORDER BY 1";
        assert_eq!(server.rows(without_alias).await, [["sales"], ["v"]]);
    });
}

/// A project with seeds, a view, tables, a materialized view with an index, tests and descriptions,
/// built twice: dbt replaces what is there by renaming, and brings increments by temporary tables.
#[test]
fn dbt_builds_its_project_twice() {
    let dbt = tool("python/bin/dbt");
    if !is_there(&dbt, "dbt") {
        return;
    }
    let server = Server::start();
    let project = server.dir().join("dbt");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(folder().join("dbt"))
        .arg(&project)
        .status();
    assert!(copied.expect("cp runs").success());
    let (host, port) = server.address().split_once(':').expect("host:port");
    let port: u16 = port.parse().expect("a port");
    for arguments in [&["build"][..], &["build"], &["docs", "generate"]] {
        let mut command = Command::new(&dbt);
        command
            .args(["--no-use-colors", "--no-send-anonymous-usage-stats"])
            .args(arguments)
            .args(["--profiles-dir", "."])
            .current_dir(&project);
        let told = answers(command, host, port);
        let done = match arguments {
            ["build"] => told.iter().any(|line| line.contains("ERROR=0 SKIP=0")),
            _ => told.iter().any(|line| line.contains("Catalog written")),
        };
        assert!(done, "{arguments:?}: {told:#?}\nlog:\n{}", server.log());
    }
    run(async {
        let rows = server
            .rows("SELECT name, orders FROM as_materialized_view ORDER BY name")
            .await;
        assert_eq!(rows, [["Ada", "2"], ["Bob", "1"], ["C, D", "1"]]);
        // What the second run added of an increment, and what it put in the place of older rows.
        let rows = server
            .rows("SELECT id, amount, run FROM as_incremental ORDER BY id")
            .await;
        assert_eq!(
            rows,
            [
                ["1", "10.5", "first"],
                ["2", "5", "first"],
                ["3", "7.25", "later"],
                ["4", "NULL", "later"]
            ]
        );
        let rows = server
            .rows("SELECT run, count(*) FROM as_appended GROUP BY run ORDER BY run")
            .await;
        assert_eq!(rows, [["first", "4"], ["later", "4"]]);
        let described = "SELECT obj_description('as_table'::regclass, 'pg_class'), col_description('as_table'::regclass, 1)";
        let rows = server.rows(described).await;
        assert_eq!(rows, [["orders of each customer", "as on the bill"]]);
    });
}

#[test]
fn tools_statements_are_answered_as_postgres_answers_them() {
    let python_is = tool("python/bin/python");
    compare(
        "recorded statements",
        &python_is,
        python("recorded_session.py"),
    );
}

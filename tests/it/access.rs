//! Users, passwords, TLS, grants: by the real psql, by drivers, and beside a real PostgreSQL.

mod grants;
mod parity;
mod passwords;
mod tls;

use std::io::Write;
use std::process::{Command, Stdio};

use tokio_postgres::{Client, NoTls};

use crate::harness::Server;

/// The superuser's password in these tests.
const ROOT: &str = "root-pw";

/// A server on which `tidemill` has a password, so that everyone must log in.
async fn server_with_users(statements: &str) -> Server {
    server_with(&[], statements).await
}

async fn server_with(arguments: &[&str], statements: &str) -> Server {
    let server = Server::start_with(arguments, &[]);
    let first = server.connect().await;
    first
        .batch_execute(&format!("ALTER USER tidemill PASSWORD '{ROOT}'"))
        .await
        .expect("the first password is set");
    first.batch_execute(statements).await.expect(statements);
    server
}

/// A connection of a user.
async fn connect(
    server: &Server,
    user: &str,
    password: &str,
) -> Result<Client, tokio_postgres::Error> {
    let (host, port) = server.address().split_once(':').expect("host:port");
    let config =
        format!("host={host} port={port} user={user} dbname=tidemill password='{password}'");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(async move {
        // The server may end it first.
        connection.await.ok();
    });
    Ok(client)
}

async fn root(server: &Server) -> Client {
    connect(server, "tidemill", ROOT)
        .await
        .expect("root logs in")
}

/// SQLSTATE and primary line of what a statement fails with; `ok` if it does not.
async fn outcome(client: &Client, sql: &str) -> String {
    match client.simple_query(sql).await {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.as_db_error() {
            Some(db) => format!("{} {}", db.code().code(), db.message()),
            None => error.to_string(),
        },
    }
}

/// What psql prints and what it says of errors, with a connection string.
fn psql(connection: &str, environment: &[(&str, &str)], input: &str) -> (String, String) {
    let mut child = Command::new("psql")
        .args(["-X", connection])
        .env_remove("PGPASSWORD")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql is installed");
    // One that could not connect reads nothing.
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .ok();
    let output = child.wait_with_output().expect("psql ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

fn url(server: &Server, user: &str, more: &str) -> String {
    let (host, port) = server.address().split_once(':').expect("host:port");
    format!("host={host} port={port} user={user} dbname=tidemill {more}")
}

//! A server of this binary as a process of its own: what the demo and the measurements run against.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};

use super::sql::wire_error;
use crate::error::{Error, Result};

/// Ends with its process: what it leaves is its data directory and its log.
pub(super) struct ServerProcess {
    child: Child,
    address: String,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a server over the directory `data` on free ports, with further options of `serve`,
    /// and waits for its ready line. Its log is written beside the directory.
    pub async fn start(data: &Path, options: &[&str]) -> Result<Self> {
        let log_path = data.with_extension("log");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| Error::internal("the server has no stdout"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        let mut server = Self {
            child,
            address: String::new(),
            log: log_path,
        };
        server.address = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("postgres="))
            .ok_or_else(|| server.trouble("did not start"))?
            .to_owned();
        Ok(server)
    }

    /// Host and port of the Postgres protocol.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process's number; an error once it has ended.
    pub fn pid(&self) -> Result<u32> {
        self.child
            .id()
            .ok_or_else(|| self.trouble("has ended by itself"))
    }

    pub async fn connect(&self) -> Result<Client> {
        let url = format!("postgres://tidemill@{}/tidemill", self.address);
        let connected = tokio_postgres::connect(&url, NoTls).await;
        let (client, connection) = connected.map_err(|e| wire_error(&e))?;
        tokio::spawn(async move {
            // A kill ends the connection; the statement in flight tells of it.
            connection.await.ok();
        });
        Ok(client)
    }

    /// Kills the process, as `kill -9` does.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// SIGTERM and a clean end.
    pub async fn stop(&mut self) -> Result<()> {
        let pid = self.pid()?;
        // SAFETY: the signal goes to our own child, which has not been reaped yet.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
        let status = self.child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            Err(self.trouble(&format!("ended with {status}")))
        }
    }

    fn trouble(&self, what: &str) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        Error::internal(format!("the server {what}")).detail(log)
    }
}

//! The server that the demo starts, kills and restarts: this binary as a process of its own.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};

use super::{broken, value, wire_error};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

pub(super) struct DemoServer {
    data: tempfile::TempDir,
    child: Child,
    address: String,
    clock: ClockRef,
    started: Duration,
    ready: Duration,
}

impl DemoServer {
    /// Starts a server over a new temporary data directory.
    pub async fn start(clock: &ClockRef) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let started = clock.monotonic();
        let (child, address) = spawn(&data).await?;
        Ok(Self {
            data,
            child,
            address,
            clock: clock.clone(),
            started,
            ready: clock.monotonic() - started,
        })
    }

    pub async fn restart(&mut self, clock: &ClockRef) -> Result<()> {
        self.started = clock.monotonic();
        let (child, address) = spawn(&self.data).await?;
        self.child = child;
        self.address = address;
        self.ready = clock.monotonic() - self.started;
        Ok(())
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn ready_ms(&self) -> u128 {
        self.ready.as_millis()
    }

    pub fn since_start(&self) -> Duration {
        self.clock.monotonic() - self.started
    }

    pub async fn connect(&self) -> Result<Client> {
        let (host, port) = self
            .address
            .split_once(':')
            .ok_or_else(|| broken("no address in the ready line"))?;
        let config = format!("host={host} port={port} user=tidemill dbname=tidemill");
        let (client, connection) = tokio_postgres::connect(&config, NoTls)
            .await
            .map_err(|e| wire_error(&e))?;
        tokio::spawn(async move {
            // The kill ends the connection; the statement in flight tells of it.
            connection.await.ok();
        });
        Ok(client)
    }

    /// Kills the process at a moment when a batch is being processed.
    pub async fn kill_in_mid_batch(&mut self, client: &Client) -> Result<()> {
        for _ in 0..2000 {
            let active = value(
                client,
                "SELECT count(*) FROM streaming_queries WHERE is_trigger_active",
            )
            .await?;
            if active.as_deref() != Some("0") {
                break;
            }
        }
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(())
    }

    /// SIGTERM and a clean end.
    pub async fn stop(&mut self) -> Result<()> {
        let pid = self
            .child
            .id()
            .ok_or_else(|| broken("the server has ended by itself"))?;
        // SAFETY: the signal goes to our own child, which has not been reaped yet.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
        let status = self.child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            Err(broken(&format!("the server ended with {status}")))
        }
    }
}

async fn spawn(data: &tempfile::TempDir) -> Result<(Child, String)> {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(data.path().join("server.log"))?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .arg("--data")
        .arg(data.path().join("data"))
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
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
    let address = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("postgres="));
    match address {
        Some(address) => Ok((child, address.to_owned())),
        None => {
            let log = std::fs::read_to_string(data.path().join("server.log")).unwrap_or_default();
            Err(broken(&format!("the server did not start: {log}")))
        }
    }
}

//! A server process under measurement: its memory and CPU time as the kernel accounts them.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::cli::demo::wire_error;
use crate::error::{Error, Result};

pub(super) struct ServerProcess {
    child: Child,
    address: String,
}

impl ServerProcess {
    /// Starts a server over `data` and waits for its ready line.
    pub async fn start(data: &std::path::Path, memory_limit: &str) -> Result<Self> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(data.with_extension("log"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args([
                "--listen",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--memory-limit",
                memory_limit,
            ])
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
            .find_map(|word| word.strip_prefix("postgres="))
            .ok_or_else(|| Error::internal("the server did not start"))?
            .to_owned();
        Ok(Self { child, address })
    }

    pub async fn connect(&self) -> Result<Client> {
        let (host, port) = self
            .address
            .split_once(':')
            .ok_or_else(|| Error::internal("no address"))?;
        let config = format!("host={host} port={port} user=tidemill dbname=tidemill");
        let (client, connection) = tokio_postgres::connect(&config, NoTls)
            .await
            .map_err(|e| wire_error(&e))?;
        tokio::spawn(async move {
            connection.await.ok();
        });
        Ok(client)
    }

    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }

    /// A figure of `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`.
    pub fn memory_bytes(&self, figure: &str) -> Result<u64> {
        let pid = self
            .child
            .id()
            .ok_or_else(|| Error::internal("the server has ended"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status
            .lines()
            .find(|l| l.starts_with(figure))
            .unwrap_or_default();
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        Ok(kib * 1024)
    }

    /// CPU time used so far, user and system.
    pub fn cpu_time(&self) -> Result<Duration> {
        let pid = self
            .child
            .id()
            .ok_or_else(|| Error::internal("the server has ended"))?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks: u64 = [11, 12]
            .iter()
            .filter_map(|i| fields.get(*i)?.parse::<u64>().ok())
            .sum();
        // Linux counts in hundredths of a second for user space (USER_HZ, proc(5)).
        Ok(Duration::from_millis(ticks * 10))
    }
}

/// The only value of a query.
pub(super) async fn value(client: &Client, sql: &str) -> Result<String> {
    let messages = client.simple_query(sql).await.map_err(|e| wire_error(&e))?;
    let row = messages.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}

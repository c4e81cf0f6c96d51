//! The server that the demo starts, kills and restarts, and how long that took.

use std::time::Duration;

use tokio_postgres::Client;

use super::value;
use crate::cli::server_process::ServerProcess;
use crate::clock::ClockRef;
use crate::error::Result;

pub(super) struct DemoServer {
    data: tempfile::TempDir,
    process: ServerProcess,
    clock: ClockRef,
    started: Duration,
    ready: Duration,
}

impl DemoServer {
    /// Starts a server over a new temporary data directory.
    pub async fn start(clock: &ClockRef) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let started = clock.monotonic();
        let process = spawn(&data).await?;
        Ok(Self {
            data,
            process,
            clock: clock.clone(),
            started,
            ready: clock.monotonic() - started,
        })
    }

    pub async fn restart(&mut self) -> Result<()> {
        self.started = self.clock.monotonic();
        self.process = spawn(&self.data).await?;
        self.ready = self.clock.monotonic() - self.started;
        Ok(())
    }

    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    pub fn ready_ms(&self) -> u128 {
        self.ready.as_millis()
    }

    pub fn since_start(&self) -> Duration {
        self.clock.monotonic() - self.started
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
        self.process.kill().await
    }

    /// SIGTERM and a clean end.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.stop().await
    }
}

async fn spawn(data: &tempfile::TempDir) -> Result<ServerProcess> {
    ServerProcess::start(&data.path().join("data"), &[]).await
}

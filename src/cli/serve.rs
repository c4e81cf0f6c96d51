//! `tidemill serve`: a database, its server, and a clean end at SIGTERM or SIGINT.

use std::net::SocketAddr;

use tokio::signal::unix::{SignalKind, signal};

use super::{Settings, print};
use crate::Database;
use crate::error::{Error, Result, sqlstate};
use crate::server::{self, ServerOptions};

/// Serves until a signal; current batches commit and state is persisted before it returns.
pub(super) async fn serve(
    settings: &Settings,
    listen: Option<&str>,
    http: Option<&str>,
) -> Result<()> {
    let mut options = ServerOptions::default();
    if let Some(listen) = listen {
        options.listen = address(listen)?;
    }
    if let Some(http) = http {
        options.http = Some(address(http)?);
    }
    // Signals count from the first moment on: one that comes while state is restored ends it too.
    let at = |e: std::io::Error| Error::from(e).context("could not listen for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(at)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(at)?;

    let data = settings.data_dir();
    let database = Database::open(&data, settings.database_options()?).await?;
    let running = match server::serve(database.clone(), options).await {
        Ok(running) => running,
        Err(error) => {
            database.close().await?;
            return Err(error);
        }
    };
    let mut ready = format!("tidemill ready: postgres={}", running.postgres_address());
    if let Some(http) = running.http_address() {
        ready.push_str(&format!(" http={http}"));
    }
    print::line(&ready)?;
    tracing::info!(data = %data.display(), postgres = %running.postgres_address(), "ready");

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    running.shutdown().await;
    database.close().await?;
    tracing::info!("stopped");
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr> {
    let invalid = || {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid address: \"{text}\""),
        )
        .hint("Write it like 127.0.0.1:5433.")
    };
    if let Some(port) = text.strip_prefix("localhost:") {
        let port: u16 = port.parse().map_err(|_| invalid())?;
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| invalid())
}

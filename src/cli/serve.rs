//! `tidemill serve`: a database, its server, and a clean end at SIGTERM or SIGINT. SIGHUP reads the
//! certificates anew.

use std::net::SocketAddr;

use tokio::signal::unix::{SignalKind, signal};

use super::{ServeSettings, Settings, print};
use crate::Database;
use crate::error::{Error, Result, sqlstate};
use crate::server::{self, ServerOptions, TlsFiles};

/// Serves until a signal; current batches commit and state is persisted before it returns.
pub(super) async fn serve(settings: &Settings, serve: ServeSettings) -> Result<()> {
    let options = server_options(&serve)?;
    // Signals count from the first moment on: one that comes while state is restored ends it too.
    let at = |e: std::io::Error| Error::from(e).context("could not listen for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(at)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(at)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(at)?;

    let data = settings.data_dir();
    let mut database_options = settings.database_options()?;
    database_options
        .allowed_paths
        .clone_from(&serve.allowed_paths);
    let database = Database::open(&data, database_options).await?;
    let started = async {
        set_first_password(&database, &serve).await?;
        server::serve(database.clone(), options).await
    };
    let running = match started.await {
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

    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => running.reload(),
        }
    }
    tracing::info!("stopping");
    running.shutdown().await;
    database.close().await?;
    tracing::info!("stopped");
    Ok(())
}

fn server_options(serve: &ServeSettings) -> Result<ServerOptions> {
    let mut options = ServerOptions::default();
    if let Some(listen) = &serve.listen {
        options.listen = address(listen)?;
    }
    if let Some(http) = &serve.http {
        options.http = Some(address(http)?);
    }
    if let Some(limit) = serve.max_connections {
        options.max_connections = limit;
    }
    options.requires_tls = serve.tls_required;
    options.tls = match (&serve.tls_cert, &serve.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: serve.tls_client_ca.clone(),
        }),
        (None, None) if serve.tls_client_ca.is_none() && !serve.tls_required => None,
        _ => {
            return Err(Error::new(
                sqlstate::CONFIG_FILE_ERROR,
                "TLS needs both a certificate and its key",
            )
            .hint("Give --tls-cert FILE and --tls-key FILE."));
        }
    };
    Ok(options)
}

/// Where nobody can log in yet, the first superuser's password comes from a file.
async fn set_first_password(database: &Database, serve: &ServeSettings) -> Result<()> {
    let Some(path) = &serve.password_file else {
        return Ok(());
    };
    if database.access().requires_authentication() {
        return Ok(());
    }
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(
            sqlstate::CONFIG_FILE_ERROR,
            format!("could not read password file {}: {e}", path.display()),
        )
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Error::new(
            sqlstate::CONFIG_FILE_ERROR,
            format!("password file {} is empty", path.display()),
        ));
    }
    database.set_first_password(password).await
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

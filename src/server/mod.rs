//! The Postgres-wire server, and HTTP beside it: clients of [`Database`] and its sessions.
//!
//! ```text
//! accept ─ startup ─ connection loop ─┬─ simple query ─┐
//!                                     ├─ extended ─────┼─ rows ─ values ─ wire ─ socket
//!                                     └─ COPY ─────────┘
//! ```
//!
//! One task per connection, on pgwire's messages but with a loop of our own: pgwire's buffers whole
//! results, does not flush while a query streams, and cancels only before the first row. Absent
//! here: SQL, plans and operators.

mod connection;
mod copy;
mod copying;
mod extended;
pub(crate) mod frontend;
mod http;
mod metrics;
mod port;
mod rows;
mod startup;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result, sqlstate};
use connection::{Connection, farewell};
use startup::{Startup, authenticate, negotiate};
use wire::{Failure, Wire};

pub use metrics::StatusSource;

/// How long a client may take to say who it is.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connections may take to end at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a server listens and what it allows.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Postgres wire; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `/healthz`, `/readyz`, `/metrics`; `None`: no HTTP.
    pub http: Option<SocketAddr>,
    /// Connections at once; more are refused with SQLSTATE 53300.
    pub max_connections: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 8433))),
            max_connections: 1_000,
        }
    }
}

/// A server that runs. Dropped without [`RunningServer::shutdown`], it stops accepting and its
/// connections are cut.
#[derive(Debug)]
pub struct RunningServer {
    postgres: SocketAddr,
    http: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl RunningServer {
    /// The Postgres-wire address, with the port that was taken.
    pub fn postgres_address(&self) -> SocketAddr {
        self.postgres
    }

    /// The HTTP address, if HTTP is on.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Stops accepting, ends every connection with 57P01, and returns when all are gone (at the
    /// latest some seconds later). The database stays open.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a server task failed");
            }
        }
    }
}

/// Starts serving a database.
pub async fn serve(database: Database, options: ServerOptions) -> Result<RunningServer> {
    let listener = bind(options.listen).await?;
    let postgres = local_address(&listener)?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let http = match options.http {
        Some(address) => {
            let listener = bind(address).await?;
            let bound = local_address(&listener)?;
            let router = http::router(Arc::new(database.clone()), stopped.clone());
            tasks.spawn(http::run(listener, router, stopped.clone()));
            Some(bound)
        }
        None => None,
    };
    let limit = options.max_connections;
    tasks.spawn(accept_loop(listener, database, limit, stopped));
    Ok(RunningServer {
        postgres,
        http,
        stop,
        tasks,
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| {
        Error::transient(
            sqlstate::IO_ERROR,
            format!("could not listen on {address}: {e}"),
        )
        .hint("Choose another address with --listen or --http.")
    })
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr> {
    Ok(listener.local_addr()?)
}

async fn accept_loop(
    listener: TcpListener,
    database: Database,
    limit: usize,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => {
                    let (database, open) = (database.clone(), open.clone());
                    connections.spawn(async move {
                        let place = open.fetch_add(1, Ordering::Relaxed);
                        let _left = Leaves(&open);
                        serve_socket(socket, address, database, place < limit).await;
                    });
                }
                Err(error) => {
                    // Out of descriptors, mostly: a pause lets connections end.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended by a defect of the server");
                }
            }
            () = told_to_stop(&mut stopped) => break,
        }
    }
    drop(listener);
    for backend in database.backends().all() {
        backend.terminate();
    }
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        tracing::warn!("connections did not end in time and are cut");
    }
}

/// Resolves when the server is told to stop, or was dropped.
async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stop| *stop).await.is_err() {
        tracing::debug!("the server was dropped");
    }
}

/// Gives a connection's place back, however it ends.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve_socket(socket: TcpStream, address: SocketAddr, database: Database, has_place: bool) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let (reader, writer) = socket.into_split();
    let mut wire = Wire::new(reader, writer);
    let began = begin(&mut wire, &database, has_place);
    let startup = match tokio::time::timeout(STARTUP_TIMEOUT, began).await {
        Ok(Ok(Some(startup))) => startup,
        Ok(Ok(None) | Err(Failure::Gone)) | Err(_) => return,
        Ok(Err(Failure::Statement(error) | Failure::Fatal(error))) => {
            farewell(&mut wire, &error).await;
            return;
        }
    };
    let session = database.session(&startup.user);
    session.backend().set_client(Some(address), "");
    Connection::new(wire, session).run(&startup).await;
}

/// Everything before the session exists; `None`: there will be none.
async fn begin<R, W>(
    wire: &mut Wire<R, W>,
    database: &Database,
    has_place: bool,
) -> wire::WireResult<Option<Startup>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let Some(startup) = negotiate(wire, database.backends()).await? else {
        return Ok(None);
    };
    if !has_place {
        return Err(Failure::Fatal(Error::with_kind(
            ErrorKind::Transient,
            sqlstate::TOO_MANY_CONNECTIONS,
            "sorry, too many clients already",
        )));
    }
    check_database(&startup).map_err(Failure::Fatal)?;
    authenticate(wire, &startup).await?;
    Ok(Some(startup))
}

/// There is one database. Clients that were told none ask for one named like the user, and many
/// tools ask for `postgres`: these mean it too.
fn check_database(startup: &Startup) -> Result<()> {
    let name = startup.database.as_str();
    match name == DATABASE_NAME || name == "postgres" || name == startup.user {
        true => Ok(()),
        false => Err(Error::new(
            sqlstate::INVALID_CATALOG_NAME,
            format!("database \"{name}\" does not exist"),
        )
        .hint(format!("Connect to database \"{DATABASE_NAME}\"."))),
    }
}

//! The Postgres-wire server, and HTTP beside it: clients of [`Database`] and its sessions.
//!
//! ```text
//! accept ─ TLS ─ startup ─ gate ─ connection loop ─┬─ simple query ─┐
//!                                                  ├─ extended ─────┼─ rows ─ values ─ wire ─ socket
//!                                                  └─ COPY ─────────┘
//! ```
//!
//! One task per connection, on pgwire's messages but with a loop of our own: pgwire's buffers whole
//! results, does not flush while a query streams, and cancels only before the first row. Absent
//! here: SQL, plans and operators.

mod connection;
mod copy;
mod copying;
mod events;
mod extended;
mod failures;
pub(crate) mod frontend;
mod gate;
mod http;
mod metrics;
mod port;
mod rows;
mod scram;
mod startup;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::database::Database;
use crate::error::{Error, Result, sqlstate};
use connection::{Connection, farewell};
use gate::{Encryption, Gate, Peer, Place};
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use startup::{Negotiated, Startup, authenticate, negotiate};
use tls::Tls;
use wire::{Failure, Wire};

pub use metrics::StatusSource;
pub use tls::TlsFiles;

/// How long a client may take to say who it is.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;
/// How often it is looked whether certificates were exchanged.
const TLS_FILES_EVERY: Duration = Duration::from_secs(2);
/// `max_connections` unless it is said.
pub(crate) const MAX_CONNECTIONS: usize = 1_000;
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
    /// Certificate and key; `None`: nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// Connections from other machines must be encrypted.
    pub requires_tls: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 8433))),
            max_connections: MAX_CONNECTIONS,
            tls: None,
            requires_tls: false,
        }
    }
}

/// A server that runs. Dropped without [`RunningServer::shutdown`], it stops accepting and its
/// connections are cut.
#[derive(Debug)]
pub struct RunningServer {
    postgres: SocketAddr,
    http: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
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

    /// Reads the certificates anew for connections that begin from now on. With files that cannot be
    /// used the old ones stay, and the log says why.
    pub fn reload(&self) {
        if let Some(tls) = &self.tls {
            tell_reload(tls.reload());
        }
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
    for address in [Some(options.listen), options.http].into_iter().flatten() {
        check_listen(&database, address)?;
    }
    let tls = options.tls.map(Tls::open).transpose()?.map(Arc::new);
    let listener = bind(options.listen).await?;
    let postgres = local_address(&listener)?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let limit = options.max_connections;
    let gate = Gate::new(database.clone(), tls.clone(), options.requires_tls, limit);
    let gate = Arc::new(gate);
    let http = match options.http {
        Some(address) => {
            let listener = bind(address).await?;
            let bound = local_address(&listener)?;
            let router = http::router(Arc::new(database), stopped.clone());
            let router = router.merge(events::router(gate.clone(), stopped.clone()));
            let router = http::behind(gate.clone(), router);
            tasks.spawn(http::run(listener, tls.clone(), router, stopped.clone()));
            Some(bound)
        }
        None => None,
    };
    if let Some(tls) = &tls {
        let asked = gate.database.backends().reloads();
        tasks.spawn(follow_files(tls.clone(), asked, stopped.clone()));
    }
    let threads = gate.database.connection_threads()?;
    let listener = {
        let _their_reactor = threads.enter();
        TcpListener::from_std(listener.into_std()?)?
    };
    tasks.spawn_on(accept_loop(listener, gate, stopped), &threads);
    Ok(RunningServer {
        postgres,
        http,
        tls,
        stop,
        tasks,
    })
}

/// Other machines may connect only once there is somebody to log in as.
fn check_listen(database: &Database, address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() || database.access().requires_authentication() {
        return Ok(());
    }
    Err(Error::new(
        sqlstate::CONFIG_FILE_ERROR,
        format!("cannot listen on {address} while no user has a password"),
    )
    .detail("Whoever can reach the server could read and change everything.")
    .hint(
        "Create a user first: tidemill sql --data DIR -c \"ALTER USER tidemill PASSWORD '…'\"; or set TIDEMILL_PASSWORD_FILE.",
    ))
}

/// Takes over certificates that were exchanged, by itself or when `pg_reload_conf` asks for it.
async fn follow_files(
    tls: Arc<Tls>,
    mut asked: watch::Receiver<u64>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut ticks = tokio::time::interval(TLS_FILES_EVERY);
    loop {
        let is_asked = tokio::select! {
            _ = ticks.tick() => false,
            // The registry of sessions lives as long as the database.
            changed = asked.changed() => changed.is_ok(),
            () = told_to_stop(&mut stopped) => return,
        };
        if is_asked || tls.has_changed() {
            tell_reload(tls.reload());
        }
    }
}

fn tell_reload(reloaded: Result<()>) {
    match reloaded {
        Ok(()) => tracing::info!("TLS files were read anew"),
        Err(error) => {
            tracing::error!(%error, "TLS files cannot be used; the old certificate stays");
        }
    }
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

async fn accept_loop(listener: TcpListener, gate: Arc<Gate>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => {
                    let gate = gate.clone();
                    connections.spawn(async move { serve_socket(socket, address, &gate).await });
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
    for backend in gate.database.backends().all() {
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

async fn serve_socket(socket: TcpStream, address: SocketAddr, gate: &Gate) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let peer = Peer {
        address,
        encryption: None,
    };
    let deadline = Instant::now() + STARTUP_TIMEOUT;
    let begins_with_tls = async {
        let mut first = [0];
        gate.tls.is_some()
            && matches!(socket.peek(&mut first).await, Ok(1))
            && first[0] == TLS_HANDSHAKE
    };
    let is_direct = match tokio::time::timeout_at(deadline, begins_with_tls).await {
        Ok(is_direct) => is_direct,
        Err(_) => return,
    };
    if is_direct {
        return serve_encrypted(socket, peer, gate, deadline, Ask::Alpn).await;
    }
    let (reader, writer) = socket.into_split();
    let mut wire = Wire::new(reader, writer);
    let negotiated = negotiate(&mut wire, gate.database.backends(), gate.tls.is_some());
    let negotiated = tokio::time::timeout_at(deadline, negotiated).await;
    if let Ok(Ok(Negotiated::Encrypt)) = negotiated {
        let (reader, writer) = wire.into_parts();
        match reader.reunite(writer) {
            Ok(socket) => serve_encrypted(socket, peer, gate, deadline, Ask::Nothing).await,
            Err(error) => tracing::error!(%error, "two halves of one socket do not fit"),
        }
        return;
    }
    let established = Established {
        peer,
        binding: None,
        deadline,
    };
    serve_wire(wire, negotiated, established, gate).await;
}

/// What TLS must have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// nothing: the request said what it is for
    Nothing,
    /// the protocol's name, where TLS began without a request
    Alpn,
}

async fn serve_encrypted(
    socket: TcpStream,
    mut peer: Peer,
    gate: &Gate,
    deadline: Instant,
    ask: Ask,
) {
    let Some(tls) = &gate.tls else {
        return;
    };
    let identity = tls.current();
    let accepted = TlsAcceptor::from(identity.postgres.clone()).accept(socket);
    let stream = match tokio::time::timeout_at(deadline, accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::info!(address = %peer.address, %error, "could not establish TLS");
            return;
        }
        Err(_) => return,
    };
    let (_, session) = stream.get_ref();
    if ask == Ask::Alpn && session.alpn_protocol() != Some(b"postgresql") {
        tracing::info!(address = %peer.address, "direct TLS without the protocol's name");
        return;
    }
    let certificate = session.peer_certificates().and_then(|c| c.first());
    peer.encryption = Some(Encryption {
        certificate_name: certificate.map(|c| tls::common_name(c).unwrap_or_default()),
        version: session.protocol_version().and_then(|v| v.as_str()),
        cipher: session
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str()),
    });
    let (reader, writer) = tokio::io::split(stream);
    let mut wire = Wire::new(reader, writer);
    let negotiated = negotiate(&mut wire, gate.database.backends(), false);
    let negotiated = tokio::time::timeout_at(deadline, negotiated).await;
    let established = Established {
        peer,
        binding: identity.binding.clone(),
        deadline,
    };
    serve_wire(wire, negotiated, established, gate).await;
}

/// A connection that speaks the protocol.
struct Established {
    peer: Peer,
    /// what passwords are bound to
    binding: Option<ScramServerAuth>,
    deadline: Instant,
}

async fn serve_wire<R, W>(
    mut wire: Wire<R, W>,
    negotiated: std::result::Result<wire::WireResult<Negotiated>, tokio::time::error::Elapsed>,
    established: Established,
    gate: &Gate,
) where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let Established { peer, deadline, .. } = &established;
    let begun = match negotiated {
        Ok(Ok(Negotiated::Session(startup))) => {
            let begun = begin(&mut wire, &startup, &established, gate);
            match tokio::time::timeout_at(*deadline, begun).await {
                Ok(Ok(place)) => Ok((startup, place)),
                Ok(Err(failure)) => Err(failure),
                Err(_) => return,
            }
        }
        Ok(Ok(Negotiated::Encrypt | Negotiated::Cancelled)) | Err(_) => return,
        Ok(Err(failure)) => Err(failure),
    };
    let (startup, _place) = match begun {
        Ok(begun) => begun,
        Err(Failure::Gone) => return,
        Err(Failure::Statement(error) | Failure::Fatal(error)) => {
            farewell(&mut wire, &error).await;
            return;
        }
    };
    let session = gate.database.session(&startup.user);
    session.backend().set_client(Some(peer.address), "");
    let encryption = peer.encryption.as_ref();
    session
        .backend()
        .set_encryption(encryption.map(|e| (e.version, e.cipher)));
    Connection::new(wire, session).run(&startup).await;
}

/// Everything before the session exists.
async fn begin<'a, R, W>(
    wire: &mut Wire<R, W>,
    startup: &Startup,
    established: &Established,
    gate: &'a Gate,
) -> wire::WireResult<Place<'a>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let _pending = gate.enter().map_err(Failure::Fatal)?;
    let Established { peer, binding, .. } = established;
    authenticate(wire, gate, peer, binding.as_ref(), &startup.user).await?;
    check_database(startup).map_err(Failure::Fatal)?;
    gate.begin_session().map_err(Failure::Fatal)
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

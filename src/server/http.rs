//! HTTP for machines: `/healthz`, `/readyz`, `/metrics`, and `/subscribe` of `events.rs`.
//!
//! Health is about the process (it answers), readiness about whether it takes clients: not while it
//! shuts down. Nothing here waits for a pipeline. The probes tell nothing of what is in the database,
//! so that they are everyone's; for the rest, once users have passwords, a user says who he is (basic
//! authentication, checked as the wire's are). Metrics are for those who act for `pg_monitor`;
//! what a subscriber may read, his session says.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::events;
use super::gate::{Demand, Encryption, Gate, Peer};
use super::metrics::{self, StatusSource};
use super::tls::{self, Tls};
use crate::catalog::pg_catalog::DATABASE_NAME;

/// Connections whose TLS is done and that were not taken over yet.
const READY_MAX: usize = 16;
/// How long a client may take for TLS.
const HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Clone)]
struct Shared {
    source: Arc<dyn StatusSource>,
    stopped: watch::Receiver<bool>,
}

/// The routes over a source of status.
pub(super) fn router(source: Arc<dyn StatusSource>, stopped: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(prometheus))
        .with_state(Shared { source, stopped })
}

/// The routes for those who may see them.
pub(super) fn behind(gate: Arc<Gate>, router: Router) -> Router {
    router.layer(middleware::from_fn_with_state(gate, let_in))
}

/// Who asks, for what runs as him.
#[derive(Clone)]
pub(super) struct User(pub String);

async fn let_in(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if is_probe {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let Some(ConnectInfo(peer)) = peer.cloned() else {
        return (StatusCode::FORBIDDEN, "unknown client\n").into_response();
    };
    let is_subscriber = request.uri().path().starts_with("/subscribe/");
    let (user, demand) = match user_of(&gate, &peer, request.headers()).await {
        Ok(known) => known,
        Err(refusal) => return refusal,
    };
    let is_trusted = demand == Demand::Trust;
    if is_subscriber && is_trusted && !events::is_own_host(request.headers()) {
        let text = "say localhost or an address of this machine\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if !is_subscriber && !is_trusted && !gate.may_monitor(&user) {
        let text = format!("user \"{user}\" is no member of pg_monitor\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    request.extensions_mut().insert(User(user));
    next.run(request).await
}

/// Who asks, and what he had to show; else what to answer.
async fn user_of(
    gate: &Gate,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<(String, Demand), Response> {
    let given = basic_credentials(headers);
    let certificate = peer
        .encryption
        .as_ref()
        .and_then(|e| e.certificate_name.clone());
    let user = match (&given, certificate) {
        (Some((user, _)), _) => user.clone(),
        (None, Some(name)) => name,
        (None, None) => String::new(),
    };
    let forbidden = |error: crate::error::Error| {
        (StatusCode::FORBIDDEN, format!("{}\n", error.primary())).into_response()
    };
    let demand = gate.demand(peer, &user).map_err(forbidden)?;
    match demand {
        Demand::Trust if user.is_empty() => return Ok((DATABASE_NAME.to_owned(), demand)),
        Demand::Trust => return Ok((user, demand)),
        Demand::Certificate => {}
        Demand::Password => {
            let Some((user, password)) = given else {
                return Err(challenge("a user and a password are needed"));
            };
            check_password(gate, peer, &user, password).await?;
        }
    }
    let allowed = gate.check_user(&user);
    allowed.map_err(forbidden)?;
    Ok((user, demand))
}

async fn check_password(
    gate: &Gate,
    peer: &Peer,
    user: &str,
    password: String,
) -> Result<(), Response> {
    let address = peer.address.ip();
    if let Err(error) = gate.admit(address, user) {
        return Err((
            StatusCode::TOO_MANY_REQUESTS,
            format!("{}\n", error.primary()),
        )
            .into_response());
    }
    if gate.is_password(user, &password) {
        gate.passed(address, user);
        return Ok(());
    }
    let error = gate.fail(address, user).await;
    Err(challenge(error.primary()))
}

fn challenge(text: &str) -> Response {
    let realm = "Basic realm=\"tidemill\", charset=\"UTF-8\"";
    let headers = [(header::WWW_AUTHENTICATE, realm)];
    (StatusCode::UNAUTHORIZED, headers, format!("{text}\n")).into_response()
}

fn basic_credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    is_basic.then_some(())?;
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Serves until told to stop.
pub(super) async fn run(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let until = async move { super::told_to_stop(&mut stopped).await };
    let service = router.into_make_service_with_connect_info::<Peer>();
    let served = match Ready::open(listener, tls) {
        Ok(ready) => {
            axum::serve(ready, service)
                .with_graceful_shutdown(until)
                .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP server failed");
    }
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Accepted = (Box<dyn Stream>, Peer);

/// Connections that are ready to be spoken on: a slow handshake holds up no other.
struct Ready {
    connections: mpsc::Receiver<Accepted>,
    address: SocketAddr,
}

impl Ready {
    fn open(listener: TcpListener, tls: Option<Arc<Tls>>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(READY_MAX);
        tokio::spawn(accept(listener, tls, sender));
        Ok(Self {
            connections,
            address,
        })
    }
}

async fn accept(listener: TcpListener, tls: Option<Arc<Tls>>, ready: mpsc::Sender<Accepted>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept an HTTP connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let peer = Peer {
                address,
                encryption: None,
            };
            let accepted: Option<Accepted> = match tls {
                None => Some((Box::new(socket), peer)),
                Some(tls) => encrypted(&tls, socket, peer).await,
            };
            // Nobody takes it when the server stops.
            if let Some(accepted) = accepted {
                ready.send(accepted).await.ok();
            }
        });
    }
}

async fn encrypted(tls: &Tls, socket: tokio::net::TcpStream, mut peer: Peer) -> Option<Accepted> {
    let accepted = TlsAcceptor::from(tls.current().http.clone()).accept(socket);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::info!(address = %peer.address, %error, "could not establish TLS for HTTP");
            return None;
        }
        Err(_) => return None,
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|c| c.first());
    peer.encryption = Some(Encryption {
        certificate_name: certificate.map(|c| tls::common_name(c).unwrap_or_default()),
        version: None,
        cipher: None,
    });
    Some((Box::new(stream), peer))
}

impl Listener for Ready {
    type Io = Box<dyn Stream>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends with this one.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(Peer {
            address: self.address,
            encryption: None,
        })
    }
}

impl Connected<IncomingStream<'_, Ready>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Ready>) -> Self {
        stream.remote_addr().clone()
    }
}

async fn ready(State(shared): State<Shared>) -> Response {
    match *shared.stopped.borrow() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response(),
        false => "ready\n".into_response(),
    }
}

async fn prometheus(State(shared): State<Shared>) -> Response {
    let status = shared.source.engine_status();
    let text = metrics::render(&status, &shared.source.connections());
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

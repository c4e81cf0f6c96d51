//! HTTP for machines: `/healthz`, `/readyz`, `/metrics`.
//!
//! Health is about the process (it answers), readiness about whether it takes clients: not while it
//! shuts down. Nothing here waits for a pipeline.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::metrics::{self, StatusSource};

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

/// Serves until told to stop.
pub(super) async fn run(listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let until = async move { super::told_to_stop(&mut stopped).await };
    if let Err(error) = axum::serve(listener, router)
        .with_graceful_shutdown(until)
        .await
    {
        tracing::error!(%error, "the HTTP server failed");
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

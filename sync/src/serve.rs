//! Loopback HTTP server with liveness, readiness (Tidegate matches the source) and metrics.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::engine::progress::Progress;

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, progress: Arc<Progress>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/networks", get(networks))
        .with_state(progress);
    axum::serve(listener, router).await
}

async fn ready(State(progress): State<Arc<Progress>>) -> (StatusCode, String) {
    let trouble = progress.trouble();
    if trouble.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, trouble.join("\n") + "\n")
    }
}

/// Returns the networks of a container engine; other sources have none.
async fn networks(State(progress): State<Arc<Progress>>) -> Result<Json<Value>, (StatusCode, &'static str)> {
    let none = (StatusCode::NOT_FOUND, "this source has no networks, or has not been reached yet\n");
    progress.networks().map(Json).ok_or(none)
}

async fn metrics(State(progress): State<Arc<Progress>>) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], progress.metrics())
}

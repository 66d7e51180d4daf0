//! HTTP server with liveness, readiness and metrics.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{connections, guard};

/// State of a program for its status server.
pub trait Status: Send + Sync + 'static {
    /// Returns the reasons why the program cannot do its work, one for each line. Empty if it is ready.
    fn trouble(&self) -> Vec<String>;

    /// Returns the metrics in the OpenMetrics text format.
    fn metrics(&self) -> String;
}

/// Parses the listen address of a status server.
///
/// # Errors
/// Returns an error with an example if the text is no address with a port.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an address and a port, such as 127.0.0.1:7442".to_owned())
}

/// Returns the routes `/healthz`, `/readyz` and `/metrics`.
pub fn routes<S: Status>(status: Arc<S>) -> Router {
    Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(ready::<S>))
        .route("/metrics", get(metrics::<S>))
        .with_state(status)
}

/// Serves routes until the process ends, with limits for connections. On a loopback address, only requests for a local
/// host name are accepted.
///
/// # Errors
/// Returns an error if the listener has no address.
pub async fn serve(listener: TcpListener, routes: Router) -> std::io::Result<()> {
    let routes = guard::guarded(routes, listener.local_addr()?);
    connections::serve(listener, routes, CancellationToken::new()).await;
    Ok(())
}

async fn ready<S: Status>(State(status): State<Arc<S>>) -> (StatusCode, String) {
    let trouble = status.trouble();
    if trouble.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, trouble.join("\n") + "\n")
    }
}

async fn metrics<S: Status>(State(status): State<Arc<S>>) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], status.metrics())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_need_a_port() {
        for good in ["127.0.0.1:7442", "[::]:7442", "0.0.0.0:0"] {
            assert!(parse_listen(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1", "localhost:7442", "::1:7442", "127.0.0.1:65536"] {
            assert!(parse_listen(bad).is_err(), "{bad}");
        }
    }
}

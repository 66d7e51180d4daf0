//! Loopback HTTP server with liveness, readiness (Tidegate matches the source) and metrics.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::engine::progress::Progress;

/// Serves liveness, readiness and metrics over HTTP until the process ends.
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

/// Returns the report on the container engine's networks as JSON, or an error for sources other than
/// `docker`.
async fn networks(State(progress): State<Arc<Progress>>) -> Result<Json<Value>, (StatusCode, &'static str)> {
    let none = (StatusCode::NOT_FOUND, "this source has no networks, or has not been reached yet\n");
    progress.networks().map(Json).ok_or(none)
}

async fn metrics(State(progress): State<Arc<Progress>>) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], progress.metrics())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use reference_pages::{
        command::{self, File},
        golden, metrics,
    };

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_and_setting_has_a_row() -> Result<(), String> {
        let description = "`tidegate-sync` reads settings from flags, from environment variables and from the TOML file that \
                           `--config` names. Arguments without a flag are lists in the file: `paths` of `files`, `names` of \
                           `dns`.";
        let page = command::page(&Cli::command(), File { description, keys: None });
        golden::check("tidegate-sync.md", &page)
    }

    #[test]
    fn every_metric_has_a_row() -> Result<(), String> {
        let introduction = "Metrics of an adapter at `/metrics` of its `--listen` address, in the OpenMetrics text format. An \
                            adapter serves loopback only.";
        let families = metrics::families(&Progress::default().metrics());
        golden::check(
            "metrics-tidegate-sync.md",
            &format!("# Metrics of tidegate-sync\n\n{introduction}\n\n{families}"),
        )
    }
}

//! Loopback HTTP server with liveness, readiness (the state is known) and metrics.

mod external_dns;

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;

pub(crate) use self::external_dns::ExternalDns;
use crate::metrics::Metrics;

/// Serves liveness, readiness and metrics over HTTP until the process ends.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(ready))
        .route("/metrics", get(text))
        .with_state(metrics);
    axum::serve(listener, router).await
}

async fn ready(State(metrics): State<Arc<Metrics>>) -> (StatusCode, &'static str) {
    if metrics.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no state yet: no control server has been reached since the start\n",
        )
    }
}

async fn text(State(metrics): State<Arc<Metrics>>) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.text())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use reference_pages::{
        command::{self, File},
        golden, metrics,
    };

    use super::*;
    use crate::{args::Args, metrics::Outcome};

    #[test]
    fn every_setting_has_a_row() -> Result<(), String> {
        let description = "`tidegate-dns` reads settings from flags, from environment variables and from the TOML file that \
                           `--config` names.";
        golden::check("tidegate-dns.md", &command::page(&Args::command(), File { description, keys: None }))
    }

    #[test]
    fn every_metric_has_a_row() -> Result<(), String> {
        let introduction = "Metrics of the DNS server at `/metrics` of its `--status-listen` address, in the OpenMetrics text \
                            format. The address is a loopback address.";
        let all = Metrics::default();
        all.count(Outcome::Own);
        all.set_cache((0, 0), 0);
        let families = metrics::families(&all.text());
        golden::check(
            "metrics-tidegate-dns.md",
            &format!("# Metrics of tidegate-dns\n\n{introduction}\n\n{families}"),
        )
    }
}

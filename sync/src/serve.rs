//! State of the adapter for its status server (Tidegate matches the source), and the route `/networks`.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use daemon::status::{self, Status};
use serde_json::Value;

use crate::engine::progress::Progress;

impl Status for Progress {
    fn trouble(&self) -> Vec<String> {
        Self::trouble(self)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }
}

/// Returns the routes of the status server.
pub(crate) fn routes(progress: Arc<Progress>) -> Router {
    let networks = Router::new().route("/networks", get(networks)).with_state(Arc::clone(&progress));
    status::routes(progress).merge(networks)
}

/// Returns the report on the container engine's networks as JSON, or an error for sources other than
/// `docker`.
async fn networks(State(progress): State<Arc<Progress>>) -> Result<Json<Value>, (StatusCode, &'static str)> {
    let none = (StatusCode::NOT_FOUND, "this source has no networks, or has not been reached yet\n");
    progress.networks().map(Json).ok_or(none)
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
        let introduction =
            "Metrics of an adapter at `/metrics` of its `--listen` address, in the OpenMetrics text format.";
        let families = metrics::families(&Progress::default().metrics());
        golden::check(
            "metrics-tidegate-sync.md",
            &format!("# Metrics of tidegate-sync\n\n{introduction}\n\n{families}"),
        )
    }
}

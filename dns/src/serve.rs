//! State of the program for its status server, with the busiest names at `/names`, and for reports to the control servers.

mod external_dns;
mod report;

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};
use daemon::status::{self, Status};
use model::wire::dns_names::DnsNamesReport;

pub(crate) use self::{
    external_dns::ExternalDns,
    report::{StatusReporter, host_name},
};
use crate::{metrics::Metrics, responder::NameCounters};

/// Returns the routes of the status server.
pub(crate) fn routes(metrics: Arc<Metrics>, names: Arc<NameCounters>) -> Router {
    status::routes(metrics).merge(Router::new().route("/names", get(busiest)).with_state(names))
}

async fn busiest(State(names): State<Arc<NameCounters>>) -> Json<DnsNamesReport> {
    Json(names.report())
}

impl Status for Metrics {
    fn trouble(&self) -> Vec<String> {
        if self.is_ready() {
            Vec::new()
        } else {
            vec!["no state yet: no control server has been reached since the start".to_owned()]
        }
    }

    fn metrics(&self) -> String {
        self.text()
    }
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
                            format.";
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

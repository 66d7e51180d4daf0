//! State of the program for its status server.

mod report;

use daemon::status::Status;

pub(crate) use self::report::{RecentCounts, StatusReporter, host_name};

use crate::metrics::Metrics;

impl Status for Metrics {
    fn trouble(&self) -> Vec<String> {
        if !self.is_ready() {
            return vec!["no state yet: no control server has been reached since the start".to_owned()];
        }
        let closed = self.closed_ports();
        closed
            .into_iter()
            .map(|port| format!("no socket of port {port} could be opened; see the log"))
            .collect()
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
    use crate::args::Args;

    #[test]
    fn every_setting_has_a_row() -> Result<(), String> {
        let description = "`tidegate-gateway` reads settings from flags, from environment variables and from the TOML file \
                           that `--config` names.";
        let page = command::page(&Args::command(), File { description, keys: None });
        golden::check("tidegate-gateway.md", &page)
    }

    #[test]
    fn every_metric_has_a_row() -> Result<(), String> {
        let introduction = "Metrics of the gateway at `/metrics` of its `--status-listen` address, in the OpenMetrics text \
                            format.";
        let families = metrics::families(&Metrics::with_samples().text());
        let page = format!("# Metrics of tidegate-gateway\n\n{introduction}\n\n{families}");
        golden::check("metrics-tidegate-gateway.md", &page)
    }
}

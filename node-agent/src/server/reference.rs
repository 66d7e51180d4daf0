//! Generates the pages about this program in `docs/reference/`: commands, settings and metrics.
//! `UPDATE_GOLDEN=1` rewrites the pages.

use std::sync::Arc;

use clap::CommandFactory as _;
use reference_pages::{
    command::{self, File},
    golden, metrics,
};
use rustls::RootCertStore;
use serde_json::json;

use super::*;
use crate::{announce::bgp::show, config::options::Cli, control, dataplane::BackendOptions};

#[test]
fn every_command_and_setting_has_a_row() -> Result<(), String> {
    let description = "`tidegate-agent` reads settings from flags, from environment variables and from the TOML file that \
                       `--config` names. Settings of the proxy apply where the Node object has none.";
    let page = command::page(&Cli::command(), File { description, keys: None });
    golden::check("tidegate-agent.md", &page)
}

#[tokio::test]
async fn every_metric_has_a_row() -> Result<(), String> {
    let introduction = "Metrics of an agent at `/metrics` of its `--listen` address, in the OpenMetrics text format. Sums of \
                        the traffic over all nodes are metrics of [tidegate-api](metrics-tidegate-api.md).";
    let page = format!("# Metrics of tidegate-agent\n\n{introduction}\n\n{}", metrics::families(&scrape()));
    golden::check("metrics-tidegate-agent.md", &page)
}

/// Returns the text of `/metrics` with at least one sample of every metric.
fn scrape() -> String {
    let target = json!({
        "protocol": "TCP", "address": "10.1.0.1", "port": 80, "connections": 1, "packets": 1, "bytes": 1, "active": 1,
        "inactive": 1,
    });
    let targets = vec![serde_json::from_value(target).unwrap()];
    let status = Status {
        mode: ProxyMode::Userspace,
        options: BackendOptions::default(),
        received: None,
        verified: None,
        held: None,
        services: 1,
        failures: Arc::default(),
        failures_total: 0,
        problems: Vec::new(),
        warnings: Vec::new(),
        policy: None,
        kernel: crate::dataplane::KernelCounters::default(),
        relay_heap_bytes: Some(1),
        journal_bytes: 1,
        events: Arc::default(),
        traffic: Arc::new([("default/web".to_owned().try_into().unwrap(), targets)].into()),
        traffic_at: None,
    };
    let decided = watch::channel(crate::announce::bgp::RoutingDecisions::default()).1;
    let client = control::client(RootCertStore::empty()).unwrap();
    let tally = Tally::default();
    tally.health.checks.get_or_create(&[("result", "Succeeded")]).inc();
    let shown = ServedSources {
        node: Name::parse("node-1").unwrap(),
        boot_id: "boot".to_owned(),
        status: watch::channel(status).1,
        announced: watch::channel(Announcements::default()).1,
        routes: show::start(decided, watch::channel(crate::bgp::NeighborsStatus::default()).1),
        checked: watch::channel(CheckedEndpoints::default()).1,
        tally,
        enrolled: watch::channel(enrol::CertificateStatus {
            expires: Some(Timestamp::from_unix_seconds(0)),
            problem: None,
        })
        .1,
        control: Arc::new(Control::new(vec!["http://127.0.0.1:7440".parse().unwrap()], client)),
        telemetry: traces::Telemetry::default(),
    };
    let mut text = String::new();
    text::encode(&mut text, &registry(&shown)).unwrap();
    text
}

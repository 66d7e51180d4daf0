//! Generator of the reference pages of `tidegate-api`: commands, settings and metrics. `UPDATE_GOLDEN=1`
//! rewrites them.

use std::time::Duration;

use clap::CommandFactory as _;
use model::{
    bgp::book::{BgpBook, BgpReportUpdate},
    cluster::snapshot::Snapshot,
    observed::{
        health::{Guard, HealthBook},
        status::EndpointCounts,
        traffic::TrafficBook,
    },
    primitives::{name::Name, quantity::Timestamp},
};
use reference_pages::{
    command::{self, File},
    golden, metrics,
};
use serde_json::json;

use super::commands::Cli;
use crate::telemetry::{
    bgp, health,
    metrics::{Call, Metrics, Reading, RequestLabels},
    otlp, store, traffic,
};

#[test]
fn every_command_and_setting_has_a_row() -> Result<(), String> {
    let description = "`tidegate-api` reads settings from flags, from environment variables and from the TOML file that \
                       `--config` names.";
    let page = command::page(&Cli::command(), File { description, keys: None });
    golden::check("tidegate-api.md", &page)
}

#[tokio::test]
async fn every_metric_has_a_row() -> Result<(), String> {
    let introduction = "Metrics of the control server at `/metrics`, in the OpenMetrics text format. Values of a shared store \
                        exist with etcd only. Series of Services, endpoints and BgpPeers are bounded in number; \
                        `tidegate_traffic_hidden_services`, `tidegate_traffic_hidden_endpoints` and \
                        `tidegate_bgp_hidden_peers` count the omitted ones.";
    let page =
        format!("# Metrics of tidegate-api\n\n{introduction}\n\n{}", metrics::families(&scrape().await));
    golden::check("metrics-tidegate-api.md", &page)
}

/// Returns the text of `/metrics` of a test server on which every metric has at least one sample.
async fn scrape() -> String {
    let (now, node) = (Timestamp::from_unix_seconds(0), Name::parse("node-1").unwrap());
    let metrics = Metrics::new();
    metrics
        .request(RequestLabels { route: "/healthz".to_owned(), method: "GET", status: 200 }, Duration::ZERO);
    metrics.verdict("out");
    metrics.time(Call::Head, std::future::ready(())).await;

    let mut services = TrafficBook::default();
    let target = json!({
        "protocol": "TCP", "address": "10.1.0.1", "port": 80, "connections": 1, "packets": 1, "bytes": 1, "active": 1,
        "inactive": 1, "failed": { "refused": 1, "unreachable": 1, "silent": 1, "reset": 1 },
    });
    let targets = vec![serde_json::from_value(target).unwrap()];
    services.apply(&node, "boot", [("default/web".to_owned().try_into().unwrap(), targets)].into(), now);
    let mut moment = traffic::registry(&services);

    let mut routers = BgpBook::default();
    let session = json!({ "peer": "tor-1", "state": "Established", "since": now, "reason": "established", "localASN": 64512 });
    let report = json!({ "asn": 64512, "routerId": "10.0.0.1", "sessions": [session] });
    let news = BgpReportUpdate {
        bgp: Some(serde_json::from_value(report).unwrap()),
        is_complete: true,
        ..BgpReportUpdate::default()
    };
    routers.apply(&node, news, now);
    bgp::register(&mut moment, &routers, |_| true);

    health::register(&mut moment, &Snapshot::default(), &HealthBook::default(), &Guard::default(), now);
    store::register(&mut moment, ::store::Figures::default());
    otlp::register(&mut moment, traces::Totals::default());
    let reading = Reading {
        revision: 1,
        epoch: 1,
        compiled: 1,
        endpoints: EndpointCounts::default(),
        objects: vec![("Service", 1)],
        queue: 0,
        watchers: 0,
        feeds: 0,
        requests: 0,
        unsent_bytes: 0,
        nodes_connected: 1,
        dns_servers: 1,
        dns_servers_with_problems: 0,
        is_leader: true,
    };
    metrics.render(reading, &moment)
}

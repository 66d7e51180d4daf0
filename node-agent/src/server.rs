//! Read-only status server on `--listen`: `/metrics`, `/healthz`, `/v1/state`, `/v1/traffic`,
//! `/v1/announcements`, `/v1/routes`, `/v1/health-checks`.

mod otlp;
#[cfg(test)]
mod reference;

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use announce::status::{AnnouncementTotals, Announcements, Counts};
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use daemon::{connections, guard};
use health::{self, CheckedEndpoints};
use ipnet::IpNet;
use model::{
    bgp::report::{BgpReport, BgpRoute, BgpSessionState},
    kinds::{event::Event, node::ProxyMode, resource::ServiceKey},
    primitives::{
        name::Name,
        quantity::{Position, Timestamp},
    },
    wire::{
        hold::HeldState,
        report::{AddressReport, CheckReport, Counters, Failure, PeerReport, PeerState, TargetTraffic},
    },
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use serde::Serialize;
use speaker::routing::show::View;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use traces::Telemetry;

use crate::{
    control::{
        Control,
        board::{ServerState, StreamUse},
    },
    enrol, report,
    status::{Status, TrafficByService},
    tally::Tally,
};

/// Media type of the OpenMetrics text format.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of Services with their own metrics, so that a large cluster does not overload Prometheus.
const METRIC_SERVICES_MAX: usize = 1000;

/// Watch channels and shared objects from which the status server builds its responses.
#[derive(Debug, Clone)]
pub struct ServedSources {
    /// Name of this node.
    pub node: Name,
    /// Identifier that is different for each start of the agent.
    pub boot_id: String,
    /// Status of the control loop.
    pub status: watch::Receiver<Status>,
    /// Roles (announcer or standby) of this node for load balancer addresses.
    pub announced: watch::Receiver<Announcements>,
    /// Status of the BGP sessions and advertised routes.
    pub routes: View,
    /// Results of endpoint health checks.
    pub checked: watch::Receiver<CheckedEndpoints>,
    /// Counters of the agent, exported as metrics.
    pub tally: Tally,
    /// Status of this node's certificate.
    pub enrolled: watch::Receiver<enrol::CertificateStatus>,
    /// Connections to the control servers, with the observed state of each server.
    pub control: Arc<Control>,
    /// Export to an OpenTelemetry collector.
    pub telemetry: Telemetry,
}

/// Response body of `/v1/state`: position (epoch and revision), Services, failures and warnings of the agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StateAnswer {
    node: Name,
    boot_id: String,
    version: &'static str,
    mode: ProxyMode,
    healthy: bool,
    connected: bool,
    control: Vec<ServerState>,
    received: Option<Position>,
    applied: Option<Position>,
    verified: Option<Position>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldState>,
    services: usize,
    failures_total: u64,
    failures: BTreeMap<ServiceKey, Failure>,
    problems: Vec<String>,
    warnings: Vec<String>,
    events: Vec<Event>,
    counters: Counters,
    feed_refusals: u64,
    journal_bytes: u64,
    announcements: Counts,
    peers: Vec<PeerReport>,
    bgp: Option<BgpReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires: Option<Timestamp>,
}

/// Response body of `/healthz`: a flag that is true if the agent is healthy, and the list of its problems.
#[derive(Debug, Serialize)]
struct Health {
    healthy: bool,
    problems: Vec<String>,
    /// State that the state guard holds pending confirmation, if any. The agent stays healthy meanwhile,
    /// because the node serves its last good state and a restart would not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldState>,
}

/// Serves the status pages until `stop` is canceled. On a loopback address, only requests for a local host name
/// are accepted.
///
/// # Errors
/// Returns an error if the listener has no address.
pub async fn run(
    listener: TcpListener,
    shown: ServedSources,
    stop: CancellationToken,
) -> std::io::Result<()> {
    if let Some(metrics) = shown.telemetry.metrics.clone() {
        otlp::export(metrics, registry(&shown), stop.clone());
    }
    let router = guard::guarded(router(shown), listener.local_addr()?);
    connections::serve(listener, router, stop).await;
    Ok(())
}

/// Builds the HTTP router with all paths of the status server.
pub fn router(shown: ServedSources) -> Router {
    let registry = Arc::new(registry(&shown));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/v1/state", get(state))
        .route("/v1/traffic", get(traffic))
        .route("/v1/announcements", get(announcements))
        .route("/v1/routes", get(routes))
        .route("/v1/health-checks", get(health_checks))
        .with_state(shown)
        .route("/metrics", get(move || std::future::ready(metrics(&registry))))
}

/// Returns the registry of all metrics of this agent.
fn registry(shown: &ServedSources) -> Registry {
    let mut registry = Registry::with_prefix("tidegate_agent");
    shown.tally.register(&mut registry);
    registry.register_collector(Box::new(StatusCollector(shown.status.clone())));
    registry.register_collector(Box::new(AnnouncementCollector(shown.announced.clone())));
    registry.register_collector(Box::new(BgpCollector(shown.routes.clone())));
    registry.register_collector(Box::new(CheckCollector(shown.checked.clone())));
    registry.register_collector(Box::new(CertificateCollector(shown.enrolled.clone())));
    registry.register_collector(Box::new(ControlCollector(Arc::clone(&shown.control))));
    registry.register_collector(Box::new(allocator::HeapCollector));
    registry.register_collector(Box::new(otlp::OtlpCollector(shown.telemetry.tracer.clone())));
    registry
}

fn metrics(registry: &Registry) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, METRICS_TYPE)], body).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn healthz(State(shown): State<ServedSources>) -> (StatusCode, Json<Health>) {
    let status = shown.status.borrow();
    let code = if status.is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (
        code,
        Json(Health { healthy: status.is_healthy(), problems: status.problems.clone(), held: status.held }),
    )
}

async fn state(State(shown): State<ServedSources>) -> Json<StateAnswer> {
    let ServedSources {
        node, boot_id, status, announced, mut routes, checked, tally, control, enrolled, ..
    } = shown;
    let enrol::CertificateStatus { expires: certificate_expires, problem: of_certificate } =
        enrolled.borrow().clone();
    let events_of_bgp = Arc::clone(&routes.routes.borrow().events);
    let announced = announced.borrow().clone();
    let checking = checked.borrow().warning.clone();
    let status = status.borrow().clone();
    let counters = report::counters(&tally, &status);
    let healthy = status.is_healthy();
    let Status {
        mode,
        options: _,
        received,
        verified,
        held,
        services,
        failures,
        failures_total,
        problems,
        warnings,
        kernel: _,
        relay_heap_bytes: _,
        journal_bytes,
        events,
        traffic: _,
        traffic_at: _,
        // Its problems are among the warnings.
        policy: _,
    } = status;
    Json(StateAnswer {
        node,
        boot_id,
        version: env!("CARGO_PKG_VERSION"),
        mode,
        healthy,
        connected: tally.feed_connected.get() == 1,
        control: control.board.all(),
        received,
        applied: verified,
        verified,
        held,
        services,
        failures_total,
        failures: (*failures).clone(),
        problems,
        warnings: warnings
            .into_iter()
            .chain(announced.warning.clone())
            .chain(routes.warnings())
            .chain(checking)
            .chain(of_certificate)
            .collect(),
        events: report::merge_events(&events, &events_of_bgp),
        counters,
        feed_refusals: tally.feed_refusals.get(),
        journal_bytes,
        announcements: announced.counts(),
        peers: announced.peers.to_vec(),
        bgp: routes.report(),
        certificate_expires,
    })
}

async fn traffic(State(shown): State<ServedSources>) -> Json<TrafficByService> {
    let traffic = Arc::clone(&shown.status.borrow().traffic);
    Json((*traffic).clone())
}

async fn announcements(State(shown): State<ServedSources>) -> Json<BTreeMap<IpAddr, AddressReport>> {
    let addresses = shown.announced.borrow().addresses.clone();
    Json(addresses.into_iter().collect())
}

async fn routes(State(shown): State<ServedSources>) -> Json<BTreeMap<IpNet, BgpRoute>> {
    let routes = shown.routes.routes.borrow().routes.clone();
    Json(routes.into_iter().collect())
}

async fn health_checks(State(shown): State<ServedSources>) -> Json<BTreeMap<ServiceKey, Vec<CheckReport>>> {
    let services = shown.checked.borrow().services.clone();
    let services = services.into_iter();
    Json(services.map(|(service, reports)| (service, reports.values().cloned().collect())).collect())
}

/// Metric collector of the expiry time of the node's certificate; no metric without a certificate.
#[derive(Debug)]
struct CertificateCollector(watch::Receiver<enrol::CertificateStatus>);

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(expires) = self.0.borrow().expires else { return Ok(()) };
        let help = "When the certificate of this node expires, in Unix seconds";
        let metric = encoder.encode_descriptor("certificate_expires", help, None, MetricType::Gauge)?;
        ConstGauge::new(expires.unix_seconds()).encode(metric)
    }
}

/// Metric collector for each control server: state of its stream, and success of reports to it.
#[derive(Debug)]
struct ControlCollector(Arc<Control>);

impl Collector for ControlCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let all = self.0.board.all();
        /// Metric of a control server: its name, its help text, and the condition under which its value is 1.
        type Gauge = (&'static str, &'static str, fn(&ServerState) -> bool);
        let gauges: [Gauge; 3] = [
            ("control_serves_state", "1 while the state comes from this control server", |seen| {
                seen.stream == StreamUse::State
            }),
            ("control_connected", "1 while a stream from this control server is open", |seen| {
                seen.stream != StreamUse::None
            }),
            ("control_takes_reports", "1 when this control server took the last report", |seen| {
                seen.takes_reports == Some(true)
            }),
        ];
        for (name, help, condition) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for seen in &all {
                let labels = [("server", seen.url.as_str())];
                ConstGauge::new(u64::from(condition(seen))).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Reports that this control server did not accept";
        let mut family =
            encoder.encode_descriptor("control_report_errors", help, None, MetricType::Counter)?;
        for seen in &all {
            let labels = [("server", seen.url.as_str())];
            ConstCounter::new(seen.report_errors).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Metric collector of the number of endpoints per health state. Contains only sums, because one series per
/// endpoint would overload the metrics system.
#[derive(Debug)]
struct CheckCollector(watch::Receiver<CheckedEndpoints>);

impl Collector for CheckCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let checked = self.0.borrow().clone();
        let health::Counts { pending, healthy, unhealthy } = checked.counts();
        let help = "Endpoints that this node checks, by health state";
        let mut family = encoder.encode_descriptor("checked_endpoints", help, None, MetricType::Gauge)?;
        for (state, count) in [("pending", pending), ("healthy", healthy), ("unhealthy", unhealthy)] {
            ConstGauge::new(count).encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }
}

/// Metric collector of the current BGP sessions.
#[derive(Debug)]
struct BgpCollector(View);

impl Collector for BgpCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let sessions = self.0.clone().report().map(|report| report.sessions).unwrap_or_default();
        let up = sessions.iter().filter(|session| session.state == BgpSessionState::Established).count();
        let told = sessions.iter().map(|session| session.counters.prefixes_sent).sum();
        let gauges = [
            ("bgp_sessions", "Configured BGP sessions", sessions.len() as u64),
            ("bgp_sessions_established", "BGP sessions that are established", up as u64),
            ("bgp_prefixes_told", "Prefixes advertised to BGP neighbours, over all sessions", told),
        ];
        for (name, help, value) in gauges {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::<u64>::new(value).encode(family)?;
        }
        Ok(())
    }
}

/// Metric collector of the number of announced addresses per role. Contains only sums, because one series per
/// address would overload the metrics system.
#[derive(Debug)]
struct AnnouncementCollector(watch::Receiver<Announcements>);

impl Collector for AnnouncementCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let announced = self.0.borrow().clone();
        let Counts { owner, standby, held, conflicts } = announced.counts();
        let is_up = |peer: &&PeerReport| peer.state == PeerState::Up;
        let gauges = [
            ("addresses_owned", "Load balancer addresses that this node announces", owner),
            ("addresses_standby", "Addresses for which this node stands by", standby),
            (
                "addresses_held",
                "Addresses for which this node has the highest preference but which it does not announce",
                held,
            ),
            ("address_conflicts", "Addresses that somebody else was heard to announce", conflicts),
            ("peers", "Nodes that this one watches", announced.peers.len() as u64),
            (
                "peers_up",
                "Nodes that this one watches and that are alive",
                announced.peers.iter().filter(is_up).count() as u64,
            ),
        ];
        for (name, help, value) in gauges {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        let AnnouncementTotals { takeovers, gratuitous, replies, peer_failures } = announced.totals;
        let counters = [
            ("address_takeovers", "Times that this node began to announce an address", takeovers),
            (
                "gratuitous_packets",
                "Gratuitous ARP packets and unsolicited neighbor advertisements sent",
                gratuitous,
            ),
            ("neighbor_replies", "ARP requests and neighbor solicitations answered", replies),
            ("peer_failures", "Failures of BFD sessions with other nodes", peer_failures),
        ];
        for (name, help, value) in counters {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(family)?;
        }
        Ok(())
    }
}

/// Metric collector of the status of the control loop: positions, Services, failures and traffic.
#[derive(Debug)]
struct StatusCollector(watch::Receiver<Status>);

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let status = self.0.borrow().clone();
        let revision = |position: Option<Position>| position.map_or(0, |position| position.revision.0);
        let counters = [
            ("kernel_transactions", "Transactions committed to the kernel", status.kernel.transactions),
            ("kernel_messages", "Netlink messages in those transactions", status.kernel.messages),
            ("kernel_bytes", "Bytes of these messages", status.kernel.bytes),
            ("conntrack_deletions", "Conntrack entries deleted", status.kernel.conntrack_deletions),
        ];
        for (name, help, value) in counters {
            ConstCounter::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        let gauges = [
            ("healthy", "1 when state is loaded and the last pass succeeded", u64::from(status.is_healthy())),
            ("received_revision", "Revision up to which everything has arrived", revision(status.received)),
            ("verified_revision", "Revision up to which the kernel was read back", revision(status.verified)),
            (
                "state_held",
                "1 while a state of control is held back or refused, and the last good one stays",
                u64::from(status.held.is_some()),
            ),
            ("services", "Services held", status.services as u64),
            ("failures", "Services that could not be programmed as desired", status.failures_total),
            ("journal_bytes", "Size of the saved state in bytes", status.journal_bytes),
        ];
        let relay = status.relay_heap_bytes.map(|bytes| {
            let help = "Bytes of memory that the relay process of userspace mode has allocated and not freed";
            ("relay_heap_in_use_bytes", help, bytes)
        });
        for (name, help, value) in gauges.into_iter().chain(relay) {
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
        encode_traffic(&status.traffic, &mut encoder)
    }
}

/// Encodes the traffic sums per Service as metrics. Counters per target are available at `/v1/traffic`.
fn encode_traffic(traffic: &TrafficByService, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    type Value = fn(&TargetTraffic) -> Option<u64>;
    let families: [(&str, &str, MetricType, Value); 5] = [
        ("service_connections", "Connections given to endpoints", MetricType::Counter, |row| {
            Some(row.connections)
        }),
        ("service_packets", "Packets in both directions", MetricType::Counter, |row| row.packets),
        ("service_bytes", "Bytes in both directions", MetricType::Counter, |row| row.bytes),
        ("service_active_connections", "Established connections", MetricType::Gauge, |row| row.active),
        (
            "service_inactive_connections",
            "Known connections that are not established",
            MetricType::Gauge,
            |row| row.inactive,
        ),
    ];
    for (name, help, kind, value) in families {
        let sum = |rows: &[TargetTraffic]| rows.iter().filter_map(value).reduce(u64::saturating_add);
        let sums = traffic.iter().filter_map(|(service, rows)| Some((service, sum(rows)?)));
        let mut sums = sums.take(METRIC_SERVICES_MAX).peekable();
        if sums.peek().is_none() {
            continue;
        }
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (service, sum) in sums {
            let labels = [("namespace", service.namespace.as_str()), ("service", service.name.as_str())];
            let metric = family.encode_family(&labels)?;
            if matches!(kind, MetricType::Counter) {
                ConstCounter::new(sum).encode(metric)?;
            } else {
                ConstGauge::new(sum).encode(metric)?;
            }
        }
    }
    let left_out = traffic.len().saturating_sub(METRIC_SERVICES_MAX);
    let help = "Services left out of these metrics because of their number; /v1/traffic has all of them";
    let family = encoder.encode_descriptor("services_left_out", help, None, MetricType::Gauge)?;
    ConstGauge::new(u64::try_from(left_out).unwrap_or(u64::MAX)).encode(family)
}

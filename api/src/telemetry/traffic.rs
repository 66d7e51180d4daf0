//! Traffic metrics of Services. Their labels are object names and addresses, so this module limits the number of
//! series.

use std::{cmp::Reverse, net::IpAddr};

use model::{
    kinds::service::Protocol,
    observed::traffic::{ServiceTrafficTotals, TargetKey, TrafficBook},
    wire::traffic_counts::{Counts, TargetFailures},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Maximum number of Services with series of their own: those with most connections. Each has at most nine series.
pub(crate) const SERVICES_EXPOSED_MAX: usize = 1000;
/// Maximum number of endpoints with series of their own. Only endpoints of Services that have series of their own
/// are included. Each has at most nine series.
pub(crate) const ENDPOINTS_EXPOSED_MAX: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    namespace: String,
    service: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    namespace: String,
    service: String,
    protocol: &'static str,
    address: String,
    /// Port of the endpoint; empty if the endpoint receives connections at the port to which the client connected.
    port: String,
}

/// Traffic metrics with one type of labels.
struct TrafficFamilies<L: Clone + std::hash::Hash + Eq> {
    connections: Family<L, Counter>,
    packets: Family<L, Counter>,
    bytes: Family<L, Counter>,
    active: Family<L, Gauge>,
    inactive: Family<L, Gauge>,
    /// Number of failed connections by cause. A cause with count zero has no series.
    failed: Family<(L, FailedLabels), Counter>,
}

/// Label with the cause of a failed connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedLabels {
    how: &'static str,
}

/// Empty set of labels, for the total of all traffic, including Services without series of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

/// Returns a registry with the current traffic metrics of Services.
pub(crate) fn registry(book: &TrafficBook) -> Registry {
    let mut totals: Vec<_> = book.totals().collect();
    let (everything, services, endpoints) =
        (TrafficFamilies::new(), TrafficFamilies::new(), TrafficFamilies::new());
    let all = totals.iter().map(|totals| &totals.counts).chain([book.gone()]);
    everything.set(&NoLabels {}, &Counts::sum(all));
    totals.sort_by_key(|totals| (Reverse(totals.counts.connections), totals.service));
    let hidden_services = totals.split_off(totals.len().min(SERVICES_EXPOSED_MAX));
    for ServiceTrafficTotals { service, counts, endpoints: _ } in &totals {
        let (namespace, service) = (service.namespace.to_string(), service.name.to_string());
        services.set(&ServiceLabels { namespace, service }, counts);
    }
    let busiest = busiest_endpoints(&totals);
    let all_endpoints = totals.iter().chain(&hidden_services).flat_map(|totals| totals.endpoints.values());
    let hidden_endpoints = all_endpoints.filter(|counts| counts.has_any()).count() - busiest.len();
    for (labels, counts) in busiest {
        endpoints.set(&labels, &counts);
    }
    let mut registry = Registry::with_prefix("tidegate");
    everything.register("traffic", &mut registry);
    services.register("service", &mut registry);
    endpoints.register("endpoint", &mut registry);
    let refused = Counter::<u64>::default();
    refused.inc_by(book.refused);
    registry.register(
        "traffic_refused",
        "Times that traffic of a Service was dropped because the limit was reached",
        refused,
    );
    for (name, help, hidden) in [
        ("services", "Services with traffic but without their own series", hidden_services.len()),
        ("endpoints", "Endpoints with traffic but without their own series", hidden_endpoints),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(as_gauge(u64::try_from(hidden).unwrap_or(u64::MAX)));
        registry.register(format!("traffic_hidden_{name}"), help, gauge);
    }
    registry
}

fn busiest_endpoints(totals: &[ServiceTrafficTotals<'_>]) -> Vec<(EndpointLabels, Counts)> {
    let all = totals.iter().flat_map(|totals| {
        totals.endpoints.iter().map(move |(target, counts)| (totals.service, *target, *counts))
    });
    let mut all: Vec<_> = all.filter(|(_, _, counts)| counts.has_any()).collect();
    all.sort_by_key(|(service, target, counts)| (Reverse(counts.connections), *service, *target));
    all.truncate(ENDPOINTS_EXPOSED_MAX);
    let labels = |service: &model::kinds::resource::ServiceKey, target: TargetKey| {
        let TargetKey { protocol, address, port } = target;
        EndpointLabels {
            namespace: service.namespace.to_string(),
            service: service.name.to_string(),
            protocol: Protocol::as_str(protocol),
            address: IpAddr::to_string(&address),
            port: port.map(|port| port.to_string()).unwrap_or_default(),
        }
    };
    all.into_iter().map(|(service, target, counts)| (labels(service, target), counts)).collect()
}

impl<L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static>
    TrafficFamilies<L>
{
    fn new() -> Self {
        Self {
            connections: Family::default(),
            packets: Family::default(),
            bytes: Family::default(),
            active: Family::default(),
            inactive: Family::default(),
            failed: Family::default(),
        }
    }

    /// Sets the series with the given labels. Values that the nodes do not count have no series.
    fn set(&self, labels: &L, counts: &Counts) {
        // Rates are computed by the monitoring system from the sums.
        let Counts { connections, packets, bytes, active, inactive, per_second: _, failed } = counts;
        let TargetFailures { refused, unreachable, silent, reset } = failed.unwrap_or_default();
        for (how, value) in
            [("refused", refused), ("unreachable", unreachable), ("silent", silent), ("reset", reset)]
        {
            if value > 0 {
                self.failed.get_or_create(&(labels.clone(), FailedLabels { how })).inc_by(value);
            }
        }
        let counters =
            [(&self.connections, Some(*connections)), (&self.packets, *packets), (&self.bytes, *bytes)];
        for (family, value) in counters {
            if let Some(value) = value {
                family.get_or_create(labels).inc_by(value);
            }
        }
        for (family, value) in [(&self.active, *active), (&self.inactive, *inactive)] {
            if let Some(value) = value {
                family.get_or_create(labels).set(as_gauge(value));
            }
        }
    }

    fn register(self, of: &str, to: &mut Registry) {
        let Self { connections, packets, bytes, active, inactive, failed } = self;
        for (what, help, family) in [
            ("connections", "Connections assigned to it", connections),
            ("packets", "Packets in both directions", packets),
            ("bytes", "Bytes in both directions", bytes),
        ] {
            to.register(format!("{of}_{what}"), help, family);
        }
        to.register(format!("{of}_active_connections"), "Established connections", active);
        to.register(
            format!("{of}_inactive_connections"),
            "Tracked connections that are not established",
            inactive,
        );
        to.register(
            format!("{of}_failed_connections"),
            "Connections that an endpoint rejected or aborted, as counted by the relays of userspace mode",
            failed,
        );
    }
}

fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{
        kinds::resource::ServiceKey,
        primitives::{name::Name, quantity::Timestamp},
    };
    use prometheus_client::encoding::text::encode_registry;
    use serde_json::json;

    use super::*;

    /// If more Services and endpoints have traffic than may have series of their own, two metrics contain the
    /// numbers of the ones without series. The total includes all of them, even after their deletion.
    #[test]
    fn f086_series_are_bounded_and_the_sum_is_not() {
        const SERVICES: u64 = SERVICES_EXPOSED_MAX as u64 + 7;
        let mut book = TrafficBook::default();
        let targets = |connections: u64| {
            let one = |host: u64| json!({ "protocol": "TCP", "address": format!("10.1.0.{host}"), "port": 80, "connections": connections, "bytes": 10 });
            (1..=3).map(|host| serde_json::from_value(one(host)).unwrap()).collect()
        };
        let key = |number: u64| ServiceKey::try_from(format!("default/s{number}")).unwrap();
        let traffic: BTreeMap<_, _> = (1..=SERVICES).map(|number| (key(number), targets(number))).collect();
        let (node, now) = (Name::parse("n1").unwrap(), Timestamp::from_unix_seconds(0));
        book.apply(&node, "a", traffic, now);
        let sum = 3 * SERVICES * (SERVICES + 1) / 2;
        let lines = |book: &TrafficBook| -> Vec<String> {
            let mut text = String::new();
            encode_registry(&mut text, &registry(book)).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let found = lines(&book);
        let has = |line: String| assert!(found.contains(&line), "{line} is missing");
        let count = |name: &str| found.iter().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!(count("tidegate_service_connections_total"), SERVICES_EXPOSED_MAX);
        assert_eq!(count("tidegate_endpoint_connections_total"), ENDPOINTS_EXPOSED_MAX);
        has("tidegate_traffic_hidden_services 7".to_owned());
        has(format!("tidegate_traffic_hidden_endpoints {}", 3 * SERVICES - ENDPOINTS_EXPOSED_MAX as u64));
        has(format!("tidegate_traffic_connections_total{{}} {sum}"));
        has(format!("tidegate_traffic_bytes_total{{}} {}", 30 * SERVICES));
        let busiest = format!(
            r#"tidegate_service_connections_total{{namespace="default",service="s{SERVICES}"}} {}"#,
            3 * SERVICES
        );
        has(busiest);

        book.forget(|_| false, |_| true, now);
        assert!(
            lines(&book).contains(&format!("tidegate_traffic_connections_total{{}} {sum}")),
            "it never falls"
        );
    }
}

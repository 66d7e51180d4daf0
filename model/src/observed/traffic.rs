//! Traffic counters that agents report, by Service, node and endpoint, and sums of these counters.
//!
//! An agent reports only changes, so the last counters of each node are stored here, up to
//! [`TARGETS_KEPT_MAX`] endpoints. The sums are stored separately, because they must never decrease, even if
//! an endpoint is removed or an agent restarts: Prometheus computes rates from them.

mod busiest;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::compiled::CompiledService,
    kinds::{node::ProxyMode, resource::ServiceKey, service::Protocol},
    observed::rollup::NodeView,
    primitives::{
        name::Name,
        quantity::{Port, Timestamp},
    },
    wire::{report::TargetTraffic, traffic_counts::Counts},
};

pub use self::busiest::{BUSIEST_LISTED_MAX, Busiest, BusyService, SortBy};

/// Maximum number of stored sets of counters, one for each node and endpoint. A set has about 200 bytes, so
/// all have at most 40 MB. Further sets are not stored.
pub const TARGETS_KEPT_MAX: usize = 200_000;
/// Maximum number of listed endpoints in one response, about 2 MB. The limit applies to
/// [`ServiceTraffic::endpoints`] and, separately, to the endpoints of all nodes together in
/// [`ServiceTraffic::nodes`]. The sums include all endpoints.
pub const ROWS_LISTED_MAX: usize = 10_000;
/// Time in seconds after which counters are discarded if a restarted agent does not report them again. The
/// time is long, because an agent reads its counters only every 10 s and may need several reports for all of
/// them.
pub const REPEAT_WITHIN_SECS: i64 = 120;

/// Protocol, address and port of an endpoint whose traffic is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    /// Transport protocol of the connections.
    pub protocol: Protocol,
    /// IP address of the endpoint.
    pub address: IpAddr,
    /// Port of the endpoint; `None` if connections keep the destination port of the client (port ranges).
    pub port: Option<Port>,
}

/// Traffic of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTraffic {
    /// Key of the Service.
    pub service: ServiceKey,
    /// Sum over all nodes and endpoints.
    pub total: Counts,
    /// Traffic of each endpoint, summed over all nodes.
    #[schema(max_items = 10000)]
    pub endpoints: Vec<EndpointTraffic>,
    /// Number of endpoints beyond the limit of `endpoints`.
    pub endpoints_omitted: usize,
    /// Traffic by node. If the list would be too long, only the nodes with the most connections are included.
    pub nodes: BTreeMap<Name, NodeTraffic>,
    /// Number of nodes beyond the limit of `nodes`.
    pub nodes_omitted: usize,
}

/// Traffic of one Service through one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTraffic {
    /// Proxy mode that the node uses, if known.
    pub mode: Option<ProxyMode>,
    /// Time of the node's last report.
    pub last_report: Option<Timestamp>,
    /// Time since the node's last report, in seconds. The counters may be up to 10 s older, because an agent
    /// reads them every 10 s.
    pub age_seconds: Option<u64>,
    /// Sum over all endpoints of the Service on this node.
    pub total: Counts,
    /// Counters of each endpoint since the node programmed it.
    pub endpoints: Vec<EndpointTraffic>,
}

/// Traffic of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointTraffic {
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// Address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port of the endpoint; `null` if the Service port is a range, so that the destination port of a
    /// connection is not changed.
    pub port: Option<Port>,
    /// Ports of the Service that lead to the endpoint, such as `80` or `8000-8100`; empty for a removed endpoint.
    pub service_ports: Vec<String>,
    /// Traffic counters of the endpoint.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Traffic of one Service since the start of this server. Counters are sums that never decrease; gauges and
/// rates have their current values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTrafficTotals<'a> {
    /// Key of the Service.
    pub service: &'a ServiceKey,
    /// Sum of all traffic, including that of removed endpoints.
    pub counts: Counts,
    /// Traffic by endpoint over all nodes, for endpoints whose traffic at least one node still reports.
    pub endpoints: BTreeMap<TargetKey, Counts>,
}

/// Traffic counters that the agents reported last, with sums over nodes, endpoints and time.
#[derive(Debug, Default)]
pub struct TrafficBook {
    services: BTreeMap<ServiceKey, ServiceCounters>,
    /// Boot id of the agent process on each node. A different id in a report shows that the agent was
    /// restarted.
    boots: BTreeMap<Name, String>,
    targets: usize,
    /// Sum of the traffic of Services that no longer exist.
    gone: Counts,
    /// Number of times that a node reported counters of a Service that were not stored, because
    /// [`TARGETS_KEPT_MAX`] was reached.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct ServiceCounters {
    nodes: BTreeMap<Name, NodeCounters>,
    /// Sums by endpoint over all nodes, without gauges such as open connections.
    sums: BTreeMap<TargetKey, Counts>,
    /// Sum of the traffic of former endpoints, which no node reports any longer.
    gone: Counts,
}

#[derive(Debug, Default)]
struct NodeCounters {
    targets: BTreeMap<TargetKey, Counts>,
    /// Time at which a restart of the agent was detected; `None` after the restarted agent has reported these
    /// counters.
    unrepeated_since: Option<Timestamp>,
}

impl TrafficBook {
    /// Stores the traffic counters that a node reports, and adds their increases to the sums. The list of a
    /// Service replaces its earlier list from the node; an empty list removes the counters of the Service on
    /// the node.
    pub fn apply(
        &mut self,
        node: &Name,
        boot_id: &str,
        traffic: BTreeMap<ServiceKey, Vec<TargetTraffic>>,
        now: Timestamp,
    ) {
        let known = self.boots.insert(node.clone(), boot_id.to_owned());
        if known.is_some_and(|known| known != boot_id) {
            for page in self.services.values_mut().filter_map(|pages| pages.nodes.get_mut(node)) {
                page.unrepeated_since.get_or_insert(now);
            }
        }
        for (service, targets) in traffic {
            self.apply_service(node, service, targets);
        }
    }

    fn apply_service(&mut self, node: &Name, service: ServiceKey, targets: Vec<TargetTraffic>) {
        let targets: BTreeMap<_, _> = targets.iter().map(split).collect();
        let mut entry = match self.services.entry(service) {
            Entry::Vacant(_) if targets.is_empty() => return,
            Entry::Vacant(entry) => entry.insert_entry(ServiceCounters::default()),
            Entry::Occupied(entry) => entry,
        };
        let pages = entry.get_mut();
        let known = pages.nodes.get(node).map_or(0, |page| page.targets.len());
        if targets.len() > known && self.targets - known + targets.len() > TARGETS_KEPT_MAX {
            self.refused += 1;
            return;
        }
        let earlier = pages.nodes.remove(node).unwrap_or_default().targets;
        for (target, counts) in &targets {
            let earlier = earlier.get(target).copied().unwrap_or_default();
            pages.sums.entry(*target).or_default().add(&counts.since(&earlier));
        }
        self.targets = self.targets - earlier.len() + targets.len();
        if !targets.is_empty() {
            pages.nodes.insert(node.clone(), NodeCounters { targets, unrepeated_since: None });
        }
    }

    /// Removes the counters of Services and nodes that no longer exist, and counters that a restarted agent
    /// has not reported again within [`REPEAT_WITHIN_SECS`].
    pub fn forget(
        &mut self,
        has_service: impl Fn(&ServiceKey) -> bool,
        has_node: impl Fn(&Name) -> bool,
        now: Timestamp,
    ) {
        self.boots.retain(|node, _| has_node(node));
        for (_, pages) in self.services.extract_if(.., |service, _| !has_service(service)) {
            self.gone.add(&Counts::sum(pages.sums.values().chain([&pages.gone])));
        }
        let is_over = |since: Timestamp| now.unix_seconds() - since.unix_seconds() > REPEAT_WITHIN_SECS;
        self.targets = 0;
        for pages in self.services.values_mut() {
            pages.nodes.retain(|node, page| has_node(node) && !page.unrepeated_since.is_some_and(is_over));
            let targets = pages.nodes.values().flat_map(|page| page.targets.keys());
            let held: BTreeSet<_> = targets.copied().collect();
            let ServiceCounters { nodes, sums, gone } = pages;
            sums.retain(|target, counts| {
                let is_held = held.contains(target);
                if !is_held {
                    gone.add(counts);
                }
                is_held
            });
            self.targets += nodes.values().map(|page| page.targets.len()).sum::<usize>();
        }
    }

    /// Returns the traffic of one Service, from the last reports of existing nodes.
    #[must_use]
    pub fn service(
        &self,
        key: &ServiceKey,
        compiled: Option<&CompiledService>,
        views: &[NodeView<'_>],
        now: Timestamp,
    ) -> ServiceTraffic {
        let ports = compiled.map(service_ports).unwrap_or_default();
        let rows = |targets: &BTreeMap<TargetKey, Counts>, view: Option<&NodeView<'_>>| {
            let row = |(target, counts): (&TargetKey, &Counts)| {
                row(*target, view.map_or(*counts, |view| current(counts, view)), &ports)
            };
            targets.iter().map(row).collect::<Vec<_>>()
        };
        let mut sums: BTreeMap<TargetKey, Counts> = BTreeMap::new();
        let pages = self.services.get(key);
        let page_of = |view: &'_ NodeView<'_>| pages.and_then(|pages| pages.nodes.get(view.name));
        let mut reporting: Vec<_> =
            views.iter().filter_map(|view| page_of(view).map(|page| (view, page))).collect();
        for (view, page) in &reporting {
            for (target, counts) in &page.targets {
                sums.entry(*target).or_default().add(&current(counts, view));
            }
        }
        reporting.sort_by_cached_key(|(_, page)| Reverse(Counts::sum(page.targets.values()).connections));
        let mut room = ROWS_LISTED_MAX;
        let listed = reporting.iter().take_while(|(_, page)| {
            let left = room.checked_sub(page.targets.len());
            room = left.unwrap_or(0);
            left.is_some()
        });
        let mut nodes = BTreeMap::new();
        for (view, page) in listed {
            let age = view.last_report.map(|at| now.unix_seconds().saturating_sub(at.unix_seconds()));
            let endpoints = rows(&page.targets, Some(view));
            let traffic = NodeTraffic {
                mode: view.report.map(|report| report.mode),
                last_report: view.last_report,
                age_seconds: age.map(|age| u64::try_from(age).unwrap_or(0)),
                total: Counts::sum(endpoints.iter().map(|row| &row.counts)),
                endpoints,
            };
            nodes.insert(view.name.clone(), traffic);
        }
        let mut endpoints = rows(&sums, None);
        endpoints.truncate(ROWS_LISTED_MAX);
        ServiceTraffic {
            service: key.clone(),
            total: Counts::sum(sums.values()),
            endpoints_omitted: sums.len() - endpoints.len(),
            endpoints,
            nodes_omitted: reporting.len() - nodes.len(),
            nodes,
        }
    }

    /// Returns the number of open connections to an endpoint of a Service through each node. Nodes that do
    /// not count open connections are omitted.
    pub fn active<'a>(
        &'a self,
        service: &ServiceKey,
        target: &'a TargetKey,
    ) -> impl Iterator<Item = (&'a Name, u64)> + 'a {
        let nodes = self.services.get(service).into_iter().flat_map(|pages| &pages.nodes);
        nodes.filter_map(|(node, page)| Some((node, page.targets.get(target)?.active?)))
    }

    /// Returns the sum of the traffic of all Services that no longer exist.
    #[must_use]
    pub const fn gone(&self) -> &Counts {
        &self.gone
    }

    /// Returns the traffic sums of every Service that has had at least one connection or failure.
    pub fn totals(&self) -> impl Iterator<Item = ServiceTrafficTotals<'_>> {
        let all = self.services.iter().map(|(service, pages)| {
            let mut endpoints = pages.sums.clone();
            for (target, counts) in pages.nodes.values().flat_map(|page| &page.targets) {
                endpoints.entry(*target).or_default().add(&counts.momentary());
            }
            let counts = Counts::sum(endpoints.values().chain([&pages.gone]));
            ServiceTrafficTotals { service, counts, endpoints }
        });
        all.filter(|totals| totals.counts.has_any())
    }
}

/// Returns counters that a node reported, without the rates if the agent of the node no longer reports,
/// because these are outdated.
fn current(counts: &Counts, view: &NodeView<'_>) -> Counts {
    Counts { per_second: counts.per_second.filter(|_| view.is_connected), ..*counts }
}

fn split(traffic: &TargetTraffic) -> (TargetKey, Counts) {
    let TargetTraffic {
        protocol,
        address,
        port,
        connections,
        packets,
        bytes,
        active,
        inactive,
        per_second,
        failed,
    } = *traffic;
    let counts = Counts { connections, packets, bytes, active, inactive, per_second, failed };
    (TargetKey { protocol, address, port }, counts)
}

fn row(target: TargetKey, counts: Counts, ports: &BTreeMap<TargetKey, Vec<String>>) -> EndpointTraffic {
    let TargetKey { protocol, address, port } = target;
    let service_ports = ports.get(&target).cloned().unwrap_or_default();
    EndpointTraffic { protocol, address, port, service_ports, counts }
}

/// Returns for each endpoint of a Service the ports of the Service that lead to the endpoint.
fn service_ports(service: &CompiledService) -> BTreeMap<TargetKey, Vec<String>> {
    let mut found: BTreeMap<TargetKey, Vec<String>> = BTreeMap::new();
    for port in &service.ports {
        let is_range = port.range().single().is_none();
        for endpoint in &port.endpoints {
            let target = TargetKey {
                protocol: port.protocol,
                address: endpoint.address,
                port: (!is_range).then_some(endpoint.port),
            };
            found.entry(target).or_default().push(port.range().to_string());
        }
    }
    found
}

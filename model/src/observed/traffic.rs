//! What went through: the traffic that agents report, by Service, node and endpoint, and sums of it.
//!
//! A report names only what differs, so the last word on each node's endpoints is kept here, up to [`TARGETS_KEPT_MAX`].
//! Beside it runs a sum that never falls, whatever endpoint, agent or proxy mode comes and goes: the form that
//! Prometheus needs to tell a rate.

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

/// Endpoints remembered, once for each node that has them: about 200 bytes each, so 40 MB. Of more, nothing is kept.
pub const TARGETS_KEPT_MAX: usize = 200_000;
/// Endpoints listed in one answer, and rows of endpoints over all of its nodes: some 2 MB. Sums cover all.
pub const ROWS_LISTED_MAX: usize = 10_000;
/// How long what an agent's earlier start said is believed when its next start does not repeat it, in seconds: an agent
/// counts every 10 s and spreads much over several reports.
pub const REPEAT_WITHIN_SECS: i64 = 120;

/// An endpoint of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port; `None` where the client's port is kept.
    pub port: Option<Port>,
}

/// The traffic of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTraffic {
    /// Which Service.
    pub service: ServiceKey,
    /// The sum over all nodes and endpoints.
    pub total: Counts,
    /// The endpoints, each summed over the nodes.
    #[schema(max_items = 10000)]
    pub endpoints: Vec<EndpointTraffic>,
    /// Endpoints that are not listed, for want of room.
    pub endpoints_omitted: usize,
    /// The nodes that report traffic of the Service; those with most connections when there are too many.
    pub nodes: BTreeMap<Name, NodeTraffic>,
    /// Nodes that are not listed, for want of room.
    pub nodes_omitted: usize,
}

/// The traffic of one Service through one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTraffic {
    /// The proxy mode that carries it.
    pub mode: Option<ProxyMode>,
    /// When the node last reported.
    pub last_report: Option<Timestamp>,
    /// How old the figures are, in seconds; an agent counts every 10 s.
    pub age_seconds: Option<u64>,
    /// The sum over the endpoints.
    pub total: Counts,
    /// The endpoints, counted since the node programmed each.
    pub endpoints: Vec<EndpointTraffic>,
}

/// The traffic of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointTraffic {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The endpoint's port; `null` where the client's port is kept.
    pub port: Option<Port>,
    /// The ports of the Service that lead there, such as `80` or `8000-8100`; empty for an endpoint that it has no longer.
    pub service_ports: Vec<String>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Sums of one Service since this server began to listen. They never fall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTotals<'a> {
    /// Which Service.
    pub service: &'a ServiceKey,
    /// All of it, also of endpoints that are gone.
    pub counts: Counts,
    /// The endpoints that some node still has.
    pub endpoints: BTreeMap<TargetKey, Counts>,
}

/// What all agents have said.
#[derive(Debug, Default)]
pub struct TrafficBook {
    services: BTreeMap<ServiceKey, ServicePages>,
    /// The start of each node's agent.
    boots: BTreeMap<Name, String>,
    targets: usize,
    /// What went through Services that are gone.
    gone: Counts,
    /// How often a node's word on a Service was not kept because [`TARGETS_KEPT_MAX`] is reached.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct ServicePages {
    nodes: BTreeMap<Name, NodePage>,
    /// By endpoint, without what is open at the moment.
    sums: BTreeMap<TargetKey, Counts>,
    /// Of endpoints that no node has any longer.
    gone: Counts,
}

#[derive(Debug, Default)]
struct NodePage {
    targets: BTreeMap<TargetKey, Counts>,
    /// Since when the agent that said this is another.
    unrepeated_since: Option<Timestamp>,
}

impl TrafficBook {
    /// Takes what a node's agent reports: of each Service named everything, none for an empty list.
    pub fn take(
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
            self.take_service(node, service, targets);
        }
    }

    fn take_service(&mut self, node: &Name, service: ServiceKey, targets: Vec<TargetTraffic>) {
        let targets: BTreeMap<_, _> = targets.iter().map(split).collect();
        let mut entry = match self.services.entry(service) {
            Entry::Vacant(_) if targets.is_empty() => return,
            Entry::Vacant(entry) => entry.insert_entry(ServicePages::default()),
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
            pages.nodes.insert(node.clone(), NodePage { targets, unrepeated_since: None });
        }
    }

    /// Forgets what belongs to Services and nodes that no longer exist, and what an agent has not repeated.
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
            let ServicePages { nodes, sums, gone } = pages;
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

    /// The traffic of one Service, as the nodes that exist last reported it.
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

    /// Open connections to a target of a Service, by the nodes that report it.
    pub fn active<'a>(
        &'a self,
        service: &ServiceKey,
        target: &'a TargetKey,
    ) -> impl Iterator<Item = (&'a Name, u64)> + 'a {
        let nodes = self.services.get(service).into_iter().flat_map(|pages| &pages.nodes);
        nodes.filter_map(|(node, page)| Some((node, page.targets.get(target)?.active?)))
    }

    /// What went through Services that are gone.
    #[must_use]
    pub const fn gone(&self) -> &Counts {
        &self.gone
    }

    /// The sums of every Service that had a connection, or failed to give one to an endpoint.
    pub fn totals(&self) -> impl Iterator<Item = ServiceTotals<'_>> {
        let all = self.services.iter().map(|(service, pages)| {
            let mut endpoints = pages.sums.clone();
            for (target, counts) in pages.nodes.values().flat_map(|page| &page.targets) {
                endpoints.entry(*target).or_default().add(&counts.momentary());
            }
            let counts = Counts::sum(endpoints.values().chain([&pages.gone]));
            ServiceTotals { service, counts, endpoints }
        });
        all.filter(|totals| totals.counts.has_any())
    }
}

/// What was counted by a node, without rates once its agent is silent: nobody knows what goes through at the moment.
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

/// The ports of a Service that lead to each endpoint.
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

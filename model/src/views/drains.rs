//! Endpoints in drain or maintenance, with their remaining connections.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{maintenance::Maintenance, resource::ServiceKey, service::Protocol},
    observed::{
        rollup::NodeView,
        traffic::{TargetKey, TrafficBook},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::{Epoch, Port, Position},
    },
};

/// Maximum number of endpoints in one response; each takes about 500 bytes.
pub const DRAINS_LISTED_MAX: usize = 1000;
/// Maximum number of nodes listed for one endpoint.
const NODES_LISTED_MAX: usize = 20;

/// Filter for endpoints in drain or maintenance; selects all if no field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainFilter {
    /// Node on which the endpoints are; `None` matches all.
    pub node: Option<Name>,
    /// Namespace of the Service; `None` matches all.
    pub namespace: Option<Namespace>,
    /// Name of the Service; `None` matches all.
    pub service: Option<Name>,
    /// Address of the endpoint; `None` matches all.
    pub address: Option<IpAddr>,
}

/// Endpoints that are in drain or maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainList {
    /// Number of open connections to all of these endpoints, as reported by the nodes.
    pub connections: u64,
    /// True if no connection remains: every node has reported its number of connections since the drain or
    /// maintenance began, and all numbers are 0.
    pub is_over: bool,
    /// Endpoints in drain or maintenance, grouped by Service; at most 1000.
    #[schema(max_items = 1000)]
    pub items: Vec<DrainedEndpoint>,
    /// Number of endpoints beyond the limit of `items`. The values of `connections` and `isOver` take them
    /// into account.
    pub omitted: usize,
    /// Number of open connections that the Node of the filter carries for Services with load balancer addresses, to
    /// endpoints that are not in `items`. A drain of the Node resets those that entered by an address that moves to
    /// another node. Absent without a Node in the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_through_node: Option<u64>,
}

/// Endpoint of a Service that is in drain or maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Drained)]
pub struct DrainedEndpoint {
    /// Service of the endpoint.
    pub service: ServiceKey,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// IP address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port of the endpoint; `null` for a port range, because connections then keep the destination port of
    /// the client.
    pub port: Option<Port>,
    /// Node of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Mode, reason, requester and deadline of the drain or maintenance.
    pub maintenance: Maintenance,
    /// Number of open connections to the endpoint over all nodes.
    pub connections: u64,
    /// Number of open connections by node; at most 20 nodes.
    pub nodes: BTreeMap<Name, u64>,
    /// Nodes that have not reported a number of connections since the drain or maintenance began, with the
    /// reason; at most 20.
    pub unknown: BTreeMap<Name, String>,
}

/// Lists the endpoints in drain or maintenance that match `filter`. `epoch` is the epoch of the store. The
/// function visits all endpoints of the Services once.
#[must_use]
pub fn drains<'a>(
    services: impl Iterator<Item = &'a CompiledService>,
    filter: &DrainFilter,
    book: &TrafficBook,
    views: &[NodeView<'_>],
    epoch: Epoch,
) -> DrainList {
    let mut list = DrainList {
        connections: 0,
        is_over: true,
        items: Vec::new(),
        omitted: 0,
        connections_through_node: filter.node.as_ref().map(|_| 0),
    };
    for service in services.filter(|service| filter.takes_service(&service.service)) {
        let counts = ConnectionCounts { book, views, wanted: Position { epoch, revision: service.revision } };
        for port in &service.ports {
            for endpoint in &port.endpoints {
                match &endpoint.maintenance {
                    Some(maintenance) if filter.takes_endpoint(endpoint) => {
                        list.push(counts.drained(service, port, endpoint, maintenance));
                    }
                    Some(_) | None => {
                        list.add_through_node(counts.through_node(service, port, endpoint, filter));
                    }
                }
            }
        }
    }
    list
}

impl DrainFilter {
    fn takes_service(&self, key: &ServiceKey) -> bool {
        let Self { node: _, namespace, service, address: _ } = self;
        namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && service.as_ref().is_none_or(|service| *service == key.name)
    }

    fn takes_endpoint(&self, endpoint: &CompiledEndpoint) -> bool {
        let Self { node, namespace: _, service: _, address } = self;
        (node.is_none() || *node == endpoint.node) && address.is_none_or(|it| it == endpoint.address)
    }
}

impl DrainList {
    fn add_through_node(&mut self, connections: u64) {
        self.connections_through_node =
            self.connections_through_node.map(|sum| sum.saturating_add(connections));
    }

    fn push(&mut self, drained: DrainedEndpoint) {
        self.connections = self.connections.saturating_add(drained.connections);
        self.is_over &= drained.connections == 0 && drained.unknown.is_empty();
        if self.items.len() < DRAINS_LISTED_MAX {
            self.items.push(drained);
        } else {
            self.omitted += 1;
        }
    }
}

/// Returns the key of the traffic counters of an endpoint. With a port range, connections keep the destination port of
/// the client.
fn target(port: &CompiledPort, endpoint: &CompiledEndpoint) -> TargetKey {
    let is_range = port.range().single().is_none();
    TargetKey {
        protocol: port.protocol,
        address: endpoint.address,
        port: (!is_range).then_some(endpoint.port),
    }
}

/// Inputs for counting the open connections to endpoints of one Service that are in drain or maintenance, as
/// reported by the nodes.
struct ConnectionCounts<'a> {
    book: &'a TrafficBook,
    views: &'a [NodeView<'a>],
    /// Position that a node must have applied when it counts connections. Earlier counts are ignored, because
    /// the node may have accepted new connections afterwards.
    wanted: Position,
}

impl ConnectionCounts<'_> {
    /// Returns the number of open connections to an endpoint through the Node of the filter, if the Service has a
    /// load balancer address.
    fn through_node(
        &self,
        service: &CompiledService,
        port: &CompiledPort,
        endpoint: &CompiledEndpoint,
        filter: &DrainFilter,
    ) -> u64 {
        let Some(node) = filter.node.as_ref().filter(|_| !service.load_balancer_ips.is_empty()) else {
            return 0;
        };
        let target = target(port, endpoint);
        self.book
            .active(&service.service, &target)
            .filter(|(name, _)| *name == node)
            .map(|(_, active)| active)
            .sum()
    }

    fn drained(
        &self,
        service: &CompiledService,
        port: &CompiledPort,
        endpoint: &CompiledEndpoint,
        maintenance: &Maintenance,
    ) -> DrainedEndpoint {
        let target = target(port, endpoint);
        let mut nodes: BTreeMap<Name, u64> = BTreeMap::new();
        let mut connections: u64 = 0;
        for (node, active) in self.book.active(&service.service, &target) {
            connections = connections.saturating_add(active);
            if active > 0 && nodes.len() < NODES_LISTED_MAX {
                nodes.insert(node.clone(), active);
            }
        }
        // Nodes do not carry connections of a Service that is not programmed.
        let views = self.views.iter().filter(|_| service.is_programmable());
        let unknown = views.filter_map(|view| Some((view.name.clone(), self.why_unknown(view)?)));
        DrainedEndpoint {
            service: service.service.clone(),
            protocol: target.protocol,
            address: target.address,
            port: target.port,
            node: endpoint.node.clone(),
            maintenance: maintenance.clone(),
            connections,
            nodes,
            unknown: unknown.take(NODES_LISTED_MAX).collect(),
        }
    }

    fn why_unknown(&self, view: &NodeView<'_>) -> Option<String> {
        match (view.report, view.last_report) {
            (Some(report), _) if view.is_connected => {
                let is_current = report.traffic_at.is_some_and(|at| at >= self.wanted);
                (!is_current).then(|| "it has not counted its connections since the change".to_owned())
            }
            (_, Some(at)) => Some(format!("its agent has not reported since {at}")),
            (_, None) => Some("its agent has never reported".to_owned()),
        }
    }
}

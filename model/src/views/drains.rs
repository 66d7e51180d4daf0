//! What is taken out of service by intent, and how many connections are left on it.

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

/// Endpoints in one answer; about 500 bytes each.
pub const DRAINS_LISTED_MAX: usize = 1000;
/// Nodes named for one endpoint.
const NODES_LISTED_MAX: usize = 20;

/// Which endpoints are asked about; all that are taken out of service when nothing is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainFilter {
    /// Those on this Node.
    pub node: Option<Name>,
    /// Those of Services in this namespace.
    pub namespace: Option<Namespace>,
    /// Those of Services with this name.
    pub service: Option<Name>,
    /// Those at this address.
    pub address: Option<IpAddr>,
}

/// Endpoints that are taken out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainList {
    /// Connections that are left, as far as is known.
    pub connections: u64,
    /// Whether every node has said so, and none is left.
    pub is_over: bool,
    /// The endpoints, by Service.
    #[schema(max_items = 1000)]
    pub items: Vec<Drained>,
    /// Endpoints that are not listed, for want of room; `connections` and `isOver` are about them as well.
    pub omitted: usize,
}

/// An endpoint of a Service that is taken out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// The Service.
    pub service: ServiceKey,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The endpoint's port; `null` where the client's port is kept.
    pub port: Option<Port>,
    /// Its Node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// How it is taken out of service, why, and by whom.
    pub maintenance: Maintenance,
    /// Open connections that the nodes carry to it.
    pub connections: u64,
    /// The same by node; at most 20.
    pub nodes: BTreeMap<Name, u64>,
    /// Nodes that have not said yet how many they carry, each with the reason; at most 20.
    pub unknown: BTreeMap<Name, String>,
}

/// Lists what is taken out of service of all compiled Services. Costs a walk over their endpoints.
#[must_use]
pub fn drains<'a>(
    services: impl Iterator<Item = &'a CompiledService>,
    filter: &DrainFilter,
    book: &TrafficBook,
    views: &[NodeView<'_>],
    epoch: Epoch,
) -> DrainList {
    let mut list = DrainList { connections: 0, is_over: true, items: Vec::new(), omitted: 0 };
    for service in services.filter(|service| filter.takes_service(&service.service)) {
        let counted = Counted { book, views, wanted: Position { epoch, revision: service.revision } };
        for port in &service.ports {
            for endpoint in &port.endpoints {
                let Some(maintenance) = &endpoint.maintenance else { continue };
                if filter.takes_endpoint(endpoint) {
                    list.push(counted.drained(service, port, endpoint, maintenance));
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
    fn push(&mut self, drained: Drained) {
        self.connections = self.connections.saturating_add(drained.connections);
        self.is_over &= drained.connections == 0 && drained.unknown.is_empty();
        if self.items.len() < DRAINS_LISTED_MAX {
            self.items.push(drained);
        } else {
            self.omitted += 1;
        }
    }
}

/// What the nodes have counted of one Service.
struct Counted<'a> {
    book: &'a TrafficBook,
    views: &'a [NodeView<'a>],
    /// How far a node must have been when it counted.
    wanted: Position,
}

impl Counted<'_> {
    fn drained(
        &self,
        service: &CompiledService,
        port: &CompiledPort,
        endpoint: &CompiledEndpoint,
        maintenance: &Maintenance,
    ) -> Drained {
        let is_range = port.range().single().is_none();
        let target = TargetKey {
            protocol: port.protocol,
            address: endpoint.address,
            port: (!is_range).then_some(endpoint.port),
        };
        let mut nodes: BTreeMap<Name, u64> = BTreeMap::new();
        let mut connections: u64 = 0;
        for (node, active) in self.book.active(&service.service, &target) {
            connections = connections.saturating_add(active);
            if active > 0 && nodes.len() < NODES_LISTED_MAX {
                nodes.insert(node.clone(), active);
            }
        }
        // Where nothing is programmed, nothing is carried.
        let views = self.views.iter().filter(|_| service.is_programmable());
        let unknown = views.filter_map(|view| Some((view.name.clone(), self.why_unknown(view)?)));
        Drained {
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

//! Selection of the endpoints of a Service port to which one node forwards connections: by readiness, traffic
//! policy, node and zone. If no endpoint is ready, terminating endpoints that still serve are used.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{DrainingTargets, Masquerade, NodeLocation, Target, Targets, Verdict};
use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{maintenance::MaintenanceMode, service::TrafficDistribution},
    primitives::{name::Name, net::IpFamily},
};

/// Endpoints of one Service port and one IP family to which one node forwards connections, for each traffic
/// policy.
pub(super) struct SelectedEndpoints {
    family: IpFamily,
    /// Endpoints for policy Cluster: those of the whole cluster or, if the Service has a
    /// `trafficDistribution`, the nearest of them.
    anywhere: Targets,
    /// Endpoints for policy Local: those on the node itself.
    here: Targets,
    /// Number of endpoints of the port on all nodes that can receive connections.
    count: usize,
    /// Number of endpoints of the port on all nodes with a weight above 0, in any condition.
    known: usize,
    /// Addresses of used endpoints that run, or may run, on this node. Such an endpoint can reach itself
    /// through the Service.
    hairpins: BTreeSet<IpAddr>,
    /// Targets in drain, which have weight 0. Their established connections may continue.
    leaving: DrainingTargets,
}

impl SelectedEndpoints {
    pub(super) fn of(
        service: &CompiledService,
        port: &CompiledPort,
        place: &NodeLocation,
        family: IpFamily,
    ) -> Self {
        let of_family: Vec<_> =
            weighted(port).filter(|endpoint| IpFamily::of(endpoint.address) == family).collect();
        let all = with_fallback(&of_family);
        let here: Vec<_> = of_family
            .iter()
            .copied()
            .filter(|endpoint| endpoint.node.as_ref() == Some(&place.node))
            .collect();
        let is_ready = all.first().is_some_and(|endpoint| endpoint.ready);
        // Topology applies to ready endpoints only: the fallback uses all terminating ones.
        let near = if is_ready { near(&all, service.traffic_distribution, place) } else { all.clone() };
        let here = with_fallback(&here);
        let may_be_here =
            |endpoint: &&&CompiledEndpoint| endpoint.node.as_ref().is_none_or(|node| *node == place.node);
        let used_here = near.iter().chain(&here).filter(may_be_here);
        Self {
            family,
            hairpins: used_here.map(|endpoint| endpoint.address).collect(),
            anywhere: targets(port, &near),
            here: targets(port, &here),
            count: all.len(),
            known: of_family.len(),
            leaving: leaving(port, family),
        }
    }

    pub(super) const fn family(&self) -> IpFamily {
        self.family
    }

    /// Returns true if an endpoint of the port can receive connections, and the port has others, in any condition. The answer stays
    /// the same when a health check removes the second to last one, so that nothing changes at that moment for datagrams on
    /// their way to it.
    pub(super) const fn has_several(&self) -> bool {
        self.count > 0 && self.known > 1
    }

    /// Returns the draining targets, whose established connections may continue.
    pub(super) fn leaving(&self) -> DrainingTargets {
        Arc::clone(&self.leaving)
    }

    /// Returns the addresses of the used endpoints that run, or may run, on this node. If such an endpoint
    /// connects to its own Service, the connection may lead back to the endpoint.
    pub(super) fn hairpins(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.hairpins.iter().copied()
    }

    /// Returns the verdict of policy Cluster: forwarding to the nearest endpoints, or a rejection if there is no
    /// endpoint.
    pub(super) fn anywhere(&self, masquerade: Masquerade) -> Verdict {
        forward(&self.anywhere, masquerade).unwrap_or(Verdict::Reject)
    }

    /// Returns the verdict of policy Local: forwarding to the endpoints of this node. If only other nodes have
    /// endpoints, packets are dropped, so that an external load balancer fails over. If no node has endpoints,
    /// packets are rejected.
    pub(super) fn here(&self, masquerade: Masquerade) -> Verdict {
        let otherwise = if self.count > 0 { Verdict::Drop } else { Verdict::Reject };
        forward(&self.here, masquerade).unwrap_or(otherwise)
    }
}

fn forward(targets: &Targets, masquerade: Masquerade) -> Option<Verdict> {
    (!targets.is_empty()).then(|| Verdict::Forward { masquerade, targets: Arc::clone(targets) })
}

fn targets(port: &CompiledPort, endpoints: &[&CompiledEndpoint]) -> Targets {
    let targets: BTreeMap<_, _> =
        endpoints.iter().map(|endpoint| (target(port, endpoint), endpoint.weight)).collect();
    Arc::new(targets)
}

fn target(port: &CompiledPort, endpoint: &CompiledEndpoint) -> Target {
    let is_range = port.range().single().is_none();
    Target { address: endpoint.address, port: (!is_range).then_some(endpoint.port) }
}

fn leaving(port: &CompiledPort, family: IpFamily) -> DrainingTargets {
    let of_family = port.endpoints.iter().filter(|endpoint| IpFamily::of(endpoint.address) == family);
    let drain = |endpoint: &CompiledEndpoint| match endpoint.maintenance.as_ref()?.mode {
        MaintenanceMode::Drain => Some(endpoint.maintenance.as_ref()?.deadline),
        MaintenanceMode::Maintenance => None,
    };
    let leaving: BTreeMap<_, _> = of_family
        .filter(|endpoint| endpoint.weight.0 == 0)
        .filter_map(|endpoint| Some((target(port, endpoint), drain(endpoint)?)))
        .collect();
    Arc::new(leaving)
}

fn weighted(port: &CompiledPort) -> impl Iterator<Item = &CompiledEndpoint> {
    port.endpoints.iter().filter(|endpoint| endpoint.weight.0 > 0)
}

/// Returns the addresses of the ready endpoints of a port on a node, except endpoints of weight 0.
pub(super) fn ready_on(port: &CompiledPort, node: &Name) -> impl Iterator<Item = IpAddr> {
    let here = weighted(port).filter(|endpoint| endpoint.ready && endpoint.node.as_ref() == Some(node));
    here.map(|endpoint| endpoint.address)
}

/// Returns the endpoints of a port to which new connections may go, on any node: for each IP family the ready ones
/// or, if none is ready, those that terminate and still serve; never those of weight 0.
pub(crate) fn usable(port: &CompiledPort) -> Vec<&CompiledEndpoint> {
    let of = |family| weighted(port).filter(move |endpoint| IpFamily::of(endpoint.address) == family);
    let families = [IpFamily::V4, IpFamily::V6];
    families.into_iter().flat_map(|family| with_fallback(&of(family).collect::<Vec<_>>())).collect()
}

/// Returns the ready endpoints; if none is ready, the terminating ones that still serve (KEP-1669).
fn with_fallback<'a>(endpoints: &[&'a CompiledEndpoint]) -> Vec<&'a CompiledEndpoint> {
    let ready: Vec<_> = endpoints.iter().copied().filter(|endpoint| endpoint.ready).collect();
    if !ready.is_empty() {
        return ready;
    }
    endpoints.iter().copied().filter(|endpoint| endpoint.serving && endpoint.terminating).collect()
}

/// Returns the nearest of the ready endpoints according to `preference`: with PreferSameNode those on the
/// node, if none those in its zone, if none all; with PreferSameZone those in the zone, if none all; without
/// preference all (KEP-3015).
fn near<'a>(
    ready: &[&'a CompiledEndpoint],
    preference: Option<TrafficDistribution>,
    place: &NodeLocation,
) -> Vec<&'a CompiledEndpoint> {
    let on_node = |endpoint: &CompiledEndpoint| endpoint.node.as_ref() == Some(&place.node);
    let in_zone = |endpoint: &CompiledEndpoint| place.zone.is_some() && endpoint.zone == place.zone;
    let those = |near: &dyn Fn(&CompiledEndpoint) -> bool| {
        let found: Vec<_> = ready.iter().copied().filter(|endpoint| near(endpoint)).collect();
        (!found.is_empty()).then_some(found)
    };
    let found = match preference {
        None => None,
        Some(TrafficDistribution::PreferClose | TrafficDistribution::PreferSameZone) => those(&in_zone),
        Some(TrafficDistribution::PreferSameNode) => those(&on_node).or_else(|| those(&in_zone)),
    };
    found.unwrap_or_else(|| ready.to_vec())
}

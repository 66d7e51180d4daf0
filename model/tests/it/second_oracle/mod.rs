//! Second oracle: computes the result of a new connection on a node directly from Services, EndpointSets and
//! Nodes.
//!
//! It is written from the described semantics of Services (`docs/explanation/proxy-modes.md`) and the behavior
//! of kube-proxy, and shares no function with the compiler: of the crate `model` it uses only the types of the
//! objects and of the result. Tests compare it with `compile`, `program` and the first oracle, so that an error
//! in one of these is visible although all proxy modes are derived from them. Each rule is one function.
//!
//! The tests of the node agent contain this module as well, and compare it with real connections.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test program uses its own part")]

pub mod draw;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{
    kinds::{
        endpoint_set::{Endpoint, EndpointSetSpec},
        maintenance::MaintenanceMode,
        node::NodeSpec,
        service::{
            ClusterIp, Protocol, ServicePort, ServiceSpec, ServiceType, SourceRangesScope, TargetPort,
            TrafficDistribution, TrafficPolicy,
        },
    },
    primitives::{net::IpFamily, quantity::Weight},
    program::oracle::{Connection, Fate},
};

/// Objects of a cluster, and the node whose treatment of connections is computed.
#[derive(Debug, Clone)]
pub struct Estate {
    /// Services by name, all in one namespace. If several claim one frontend, the first one has it.
    pub services: BTreeMap<String, ServiceObjects>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeSpec>,
    /// Name of the node that handles the connections.
    pub here: String,
}

/// Service with the objects that belong to it.
#[derive(Debug, Clone)]
pub struct ServiceObjects {
    pub spec: ServiceSpec,
    /// Load balancer addresses that the Service has.
    pub load_balancer_ips: Vec<IpAddr>,
    pub sets: Vec<EndpointSetSpec>,
}

/// Way in which a proxy mode carries out the semantics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Modes nftables and iptables, without deviations.
    Exact,
    /// Mode ipvs: sources are not distinguished, and every frontend address is a local address.
    Ipvs,
    /// Mode userspace: the endpoints see the address of the node, and SCTP is refused.
    Userspace,
}

/// Kind of the address by which a connection enters a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    ClusterIp,
    LoadBalancerIp,
    ExternalIp,
    NodePort,
}

/// Service port that a connection meets.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub name: &'a str,
    pub service: &'a ServiceObjects,
    pub port: &'a ServicePort,
    pub entrance: Entrance,
}

/// Origin of a connection, as far as traffic policies distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    WorkloadHere,
    NodeItself,
    Outside,
}

/// Endpoint of a Service port, with the properties that the selection examines.
#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    endpoint: &'a Endpoint,
    number: u16,
    weight: u16,
    is_ready: bool,
    is_finishing: bool,
}

impl Estate {
    /// Returns the result of a new connection.
    pub fn fate(&self, dialect: Dialect, connection: &Connection) -> Fate {
        let Some(hit) = self.hit(connection) else {
            let is_closed = self.is_closed_port(dialect, connection.destination);
            return if is_closed { Fate::Reject } else { Fate::Untouched };
        };
        if !may_connect(&hit, connection) {
            return Fate::Drop;
        }
        let candidates = self.candidates(&hit, connection);
        let anywhere = self.nearest(hit.service, usable(&candidates));
        let is_here =
            |one: &Candidate<'_>| one.endpoint.node.as_ref().is_some_and(|on| on.as_str() == self.here);
        let local = usable(&candidates.iter().copied().filter(is_here).collect::<Vec<_>>());
        let (is_local, is_masqueraded) = self.policy(&hit, connection);
        let ipvs_shares = dialect == Dialect::Ipvs && is_external_local(&hit) && !local.is_empty();
        let targets = match (is_local, ipvs_shares) {
            (true, _) if local.is_empty() && !anywhere.is_empty() => return Fate::Drop,
            (true, _) | (_, true) => local,
            (false, false) => anywhere,
        };
        if targets.is_empty() || dialect == Dialect::Userspace && connection.protocol == Protocol::Sctp {
            return Fate::Reject;
        }
        Fate::Forward {
            hairpins: self.hairpins(&targets, connection.source),
            is_masqueraded: is_masqueraded || dialect == Dialect::Userspace,
            targets: targets
                .iter()
                .map(|one| {
                    let number =
                        model::primitives::quantity::Port::new(one.number).expect("ports are not zero");
                    ((one.endpoint.address, number), Weight(one.weight))
                })
                .collect(),
        }
    }

    /// Returns the Service port that a connection meets. An exact address precedes a node port.
    pub fn hit(&self, connection: &Connection) -> Option<Hit<'_>> {
        let exact = self.services.iter().find_map(|(name, service)| {
            let entrance = entrance(service, connection.destination)?;
            let port = service.spec.ports.iter().find(|port| accepts(port, connection))?;
            Some(Hit { name, service, port, entrance })
        });
        exact.or_else(|| {
            let is_answering = connection.is_node_address && self.has_node_ports_at(connection.destination);
            self.services.iter().filter(|_| is_answering).find_map(|(name, service)| {
                let port = node_port(service, connection)?;
                Some(Hit { name, service, port, entrance: Entrance::NodePort })
            })
        })
    }

    /// Number of ready endpoints on the node that a health check node port of a Service reports, or `None` if the
    /// Service has none: distinct addresses of the first IP family (KEP-1669).
    pub fn local_endpoints(&self, service: &ServiceObjects) -> Option<u32> {
        service.spec.health_check_node_port.filter(|_| is_exposed(&service.spec))?;
        let mut ready = BTreeSet::new();
        for port in &service.spec.ports {
            for candidate in self.all_candidates(service, port, port.port.get()) {
                let address = candidate.endpoint.address;
                let is_first =
                    service.spec.ip_families.first().is_none_or(|one| *one == IpFamily::of(address));
                let is_here = candidate.endpoint.node.as_ref().is_some_and(|on| on.as_str() == self.here);
                if is_first && is_here && candidate.is_ready && candidate.weight > 0 {
                    ready.insert(address);
                }
            }
        }
        u32::try_from(ready.len()).ok()
    }

    /// Node ports answer at all addresses of the node, or at those that `nodePortAddresses` contains.
    fn has_node_ports_at(&self, address: IpAddr) -> bool {
        let nets = &self.own().proxy.node_port_addresses;
        nets.is_empty() || contains(nets.iter(), address)
    }

    /// Cluster IPs and load balancer addresses refuse connections to ports that no Service has. In ipvs mode, the
    /// node has the external IPs as well.
    fn is_closed_port(&self, dialect: Dialect, address: IpAddr) -> bool {
        self.services.values().any(|service| match entrance(service, address) {
            Some(Entrance::ClusterIp | Entrance::LoadBalancerIp) => true,
            Some(Entrance::ExternalIp) => dialect == Dialect::Ipvs && !service.spec.ports.is_empty(),
            Some(Entrance::NodePort) | None => false,
        })
    }

    /// Returns whether only endpoints of this node are used, and whether the source address is replaced.
    ///
    /// - Cluster IP: `internalTrafficPolicy`; sources outside of all workload networks are masqueraded.
    /// - Others with policy Cluster: all endpoints; always masqueraded, because another node may have the endpoint.
    /// - Others with policy Local: sources outside of the node keep their address and reach endpoints of the node;
    ///   the node and its workloads reach all endpoints.
    fn policy(&self, hit: &Hit<'_>, connection: &Connection) -> (bool, bool) {
        if hit.entrance == Entrance::ClusterIp {
            let is_local = hit.service.spec.internal_traffic_policy == TrafficPolicy::Local;
            return (is_local, self.is_off_cluster(connection.source));
        }
        match (hit.service.spec.external_traffic_policy, self.origin(connection)) {
            (TrafficPolicy::Cluster, _) => (false, true),
            (TrafficPolicy::Local, Origin::Outside) => (true, false),
            (TrafficPolicy::Local, Origin::WorkloadHere) => (false, false),
            (TrafficPolicy::Local, Origin::NodeItself) => (false, true),
        }
    }

    fn origin(&self, connection: &Connection) -> Origin {
        if self.is_workload_here(connection.source) {
            Origin::WorkloadHere
        } else if connection.is_from_node {
            Origin::NodeItself
        } else {
            Origin::Outside
        }
    }

    /// Workloads of the node are the sources in its `workloadCIDRs`, as far as these lie in `clusterCIDRs`. If none
    /// does, all `clusterCIDRs` of the family count.
    fn is_workload_here(&self, source: IpAddr) -> bool {
        let node = self.own();
        let is_of_family = |net: &&IpNet| IpFamily::of_net(net) == IpFamily::of(source);
        let own: Vec<_> = node.workload_cidrs.iter().filter(is_of_family).collect();
        let cluster: Vec<_> = node.proxy.cluster_cidrs.iter().filter(is_of_family).collect();
        if cluster.is_empty() {
            return contains(own.into_iter(), source);
        }
        let inside = own.into_iter().filter(|net| cluster.iter().any(|outer| outer.contains(*net)));
        let inside: Vec<_> = inside.collect();
        if inside.is_empty() {
            contains(cluster.into_iter(), source)
        } else {
            contains(inside.into_iter(), source)
        }
    }

    /// A source is masqueraded at a cluster IP if it is in no workload network of the cluster. Without workload
    /// networks of its family, no source is known to be outside. `masqueradeAll` masquerades every source.
    fn is_off_cluster(&self, source: IpAddr) -> bool {
        let own = self.own();
        if own.proxy.masquerade_all {
            return true;
        }
        let of_nodes: Vec<_> = self.nodes.values().flat_map(|node| &node.workload_cidrs).collect();
        let cluster: Vec<_> = if own.proxy.cluster_cidrs.is_empty() {
            of_nodes
        } else {
            own.proxy.cluster_cidrs.iter().collect()
        };
        let of_family: Vec<_> =
            cluster.into_iter().filter(|net| IpFamily::of_net(net) == IpFamily::of(source)).collect();
        !of_family.is_empty() && !contains(of_family.into_iter(), source)
    }

    /// Endpoints of the Service port in the IP family of the connection.
    fn candidates<'a>(&'a self, hit: &Hit<'a>, connection: &Connection) -> Vec<Candidate<'a>> {
        let family = IpFamily::of(connection.destination);
        let all = self.all_candidates(hit.service, hit.port, connection.port.get());
        all.into_iter().filter(|one| IpFamily::of(one.endpoint.address) == family).collect()
    }

    /// Endpoints of all sets that serve the port. A port range keeps the port of the client. If two sets have the same
    /// address and port, a ready entry counts, otherwise the first.
    fn all_candidates<'a>(
        &'a self,
        service: &'a ServiceObjects,
        port: &ServicePort,
        client: u16,
    ) -> Vec<Candidate<'a>> {
        let mut candidates: Vec<Candidate<'a>> = Vec::new();
        for set in &service.sets {
            let Some(number) = served_at(set, port) else { continue };
            let number = if port.end_port.is_some() { client } else { number };
            for endpoint in &set.endpoints {
                let one = self.candidate(&service.spec, endpoint, number);
                let key = (endpoint.address, number);
                match candidates.iter_mut().find(|known| (known.endpoint.address, known.number) == key) {
                    Some(known) if one.is_ready && !known.is_ready => *known = one,
                    Some(_) => {}
                    None => candidates.push(one),
                }
            }
        }
        candidates
    }

    /// An endpoint with a drain has weight 0, one in maintenance is neither ready nor serving. Both can be set on the
    /// endpoint, its Node and its Service; maintenance precedes a drain.
    fn candidate<'a>(&self, spec: &ServiceSpec, endpoint: &'a Endpoint, number: u16) -> Candidate<'a> {
        let of_endpoint = match &endpoint.maintenance {
            Some(maintenance) => Some(maintenance.mode),
            None => endpoint.drain.then_some(MaintenanceMode::Drain),
        };
        let node = endpoint.node.as_ref().and_then(|node| self.nodes.get(node.as_str()));
        let of_node = node.and_then(|node| node.maintenance.as_deref()).map(|one| one.mode);
        let of_service = spec.maintenance.as_deref().map(|one| one.mode);
        let modes = [of_endpoint, of_node, of_service];
        let is_absent = modes.contains(&Some(MaintenanceMode::Maintenance));
        let is_drained = !is_absent && modes.contains(&Some(MaintenanceMode::Drain));
        let conditions = endpoint.conditions;
        Candidate {
            endpoint,
            number,
            weight: if is_drained { 0 } else { endpoint.weight.0 },
            is_ready: !is_absent && (conditions.ready || spec.publish_not_ready_addresses),
            is_finishing: !is_absent && conditions.serving && conditions.terminating,
        }
    }

    /// `trafficDistribution` prefers ready endpoints on the node (`PreferSameNode`), then those in its zone, and falls
    /// back to all (KEP-3015).
    fn nearest<'a>(&self, service: &ServiceObjects, usable: Vec<Candidate<'a>>) -> Vec<Candidate<'a>> {
        let Some(preference) = service.spec.traffic_distribution else { return usable };
        if usable.iter().any(|one| !one.is_ready) {
            return usable;
        }
        let zone = self.own().zone.as_ref();
        let on_node =
            |one: &&Candidate<'_>| one.endpoint.node.as_ref().is_some_and(|on| on.as_str() == self.here);
        let in_zone = |one: &&Candidate<'_>| zone.is_some() && one.endpoint.zone.as_ref() == zone;
        let same_node: Vec<_> = usable.iter().filter(on_node).copied().collect();
        let same_zone: Vec<_> = usable.iter().filter(in_zone).copied().collect();
        if preference == TrafficDistribution::PreferSameNode && !same_node.is_empty() {
            same_node
        } else if !same_zone.is_empty() {
            same_zone
        } else {
            usable
        }
    }

    /// A connection that leads an endpoint to itself is masqueraded if the endpoint runs on this node, or may.
    fn hairpins(&self, targets: &[Candidate<'_>], source: IpAddr) -> BTreeSet<IpAddr> {
        let may_be_here =
            |one: &Candidate<'_>| one.endpoint.node.as_ref().is_none_or(|on| on.as_str() == self.here);
        let own = targets.iter().filter(|one| one.endpoint.address == source && may_be_here(one));
        own.map(|one| one.endpoint.address).collect()
    }

    fn own(&self) -> &NodeSpec {
        &self.nodes[&self.here]
    }
}

/// Source ranges limit the clients of every address but the cluster IP; other clients are dropped. Ranges of the
/// other IP family allow no client. With scope `LoadBalancerOnly`, they limit the clients of load balancer addresses
/// only, and nobody in an IP family without ranges, as kube-proxy does. The node itself may always connect.
fn may_connect(hit: &Hit<'_>, connection: &Connection) -> bool {
    let ranges = &hit.service.spec.load_balancer_source_ranges;
    let is_kubernetes = hit.service.spec.source_ranges_scope == SourceRangesScope::LoadBalancerOnly;
    let family = IpFamily::of(connection.destination);
    let has_family = ranges.iter().any(|range| IpFamily::of_net(range) == family);
    let is_named = connection.is_from_node || contains(ranges.iter(), connection.source);
    match hit.entrance {
        Entrance::ClusterIp => true,
        Entrance::LoadBalancerIp if is_kubernetes => !has_family || is_named,
        Entrance::ExternalIp | Entrance::NodePort if is_kubernetes => true,
        Entrance::LoadBalancerIp | Entrance::ExternalIp | Entrance::NodePort => ranges.is_empty() || is_named,
    }
}

/// Ready endpoints receive connections. If there is none, those that terminate and still serve do (KEP-1669). An
/// endpoint with weight 0 receives none.
fn usable<'a>(candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let weighted = || candidates.iter().filter(|one| one.weight > 0);
    let ready: Vec<_> = weighted().filter(|one| one.is_ready).copied().collect();
    if ready.is_empty() { weighted().filter(|one| one.is_finishing).copied().collect() } else { ready }
}

/// Returns the port at which a set serves a Service port: the set's port of the same name and protocol or, if the set
/// has no ports, the numeric target port.
fn served_at(set: &EndpointSetSpec, port: &ServicePort) -> Option<u16> {
    if set.ports.is_empty() {
        return match &port.target_port {
            None => Some(port.port.get()),
            Some(TargetPort::Number(number)) => Some(number.get()),
            Some(TargetPort::Name(_)) => None,
        };
    }
    let named = set.ports.iter().find(|one| one.name == port.name && one.protocol == port.protocol);
    named.map(|one| one.port.get())
}

/// Returns the kind of an address of a Service. An address in several lists counts as the first of cluster IP, load
/// balancer address and external IP.
fn entrance(service: &ServiceObjects, address: IpAddr) -> Option<Entrance> {
    let spec = &service.spec;
    if !is_exposed(spec) {
        None
    } else if spec.cluster_ips.contains(&ClusterIp::Address(address)) {
        Some(Entrance::ClusterIp)
    } else if service.load_balancer_ips.contains(&address) {
        Some(Entrance::LoadBalancerIp)
    } else {
        spec.external_ips.contains(&address).then_some(Entrance::ExternalIp)
    }
}

/// Nodes serve neither disabled Services nor aliases of DNS names.
fn is_exposed(spec: &ServiceSpec) -> bool {
    !spec.disabled && spec.service_type != ServiceType::ExternalName
}

fn accepts(port: &ServicePort, connection: &Connection) -> bool {
    let last = port.end_port.unwrap_or(port.port);
    port.protocol == connection.protocol && (port.port..=last).contains(&connection.port)
}

/// Returns the Service port whose node port a connection meets, in the IP families of the Service.
fn node_port<'a>(service: &'a ServiceObjects, connection: &Connection) -> Option<&'a ServicePort> {
    let spec = &service.spec;
    let has_family = spec.ip_families.contains(&IpFamily::of(connection.destination));
    let mut ports = spec.ports.iter().filter(|_| has_family && is_exposed(spec));
    ports.find(|port| port.protocol == connection.protocol && port.node_port == Some(connection.port))
}

fn is_external_local(hit: &Hit<'_>) -> bool {
    hit.entrance != Entrance::ClusterIp && hit.service.spec.external_traffic_policy == TrafficPolicy::Local
}

fn contains<'a>(mut nets: impl Iterator<Item = &'a IpNet>, address: IpAddr) -> bool {
    nets.any(|net| net.contains(&address))
}

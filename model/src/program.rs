//! Packet program: maps the destination and source of a new connection to a verdict, on one node and for one
//! Service.
//!
//! The pure function [`program()`] derives it from a compiled Service. The kernel objects of every proxy
//! mode, their verification, the test oracle ([`oracle`]) and `explain` are all based on packet programs. A
//! frontend is an address, protocol and port at which a Service accepts connections.
//!
//! ```text
//! new connection ─▶ to a frontend? ── no ──▶ to another port of a virtual address? ── yes ──▶ reject
//!                        │ yes                        └── no ──▶ not handled
//!                        ▼
//!                 source in the allowed ranges, or the node itself? ── no ──▶ drop
//!                        │ yes
//!                        ▼
//!                 verdict for the class of the source: workload, this node, or elsewhere
//!                        │
//!                        ▼
//!                 forward, reject or drop
//! ```

mod endpoints;
pub mod lower;
pub mod oracle;
pub mod survival;
pub mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use litemap::LiteMap;
use serde::{Deserialize, Serialize};

pub(crate) use self::endpoints::usable;

use self::endpoints::SelectedEndpoints;
use crate::{
    cluster::compiled::{CompiledPort, CompiledService, UnsupportedField},
    kinds::service::{
        DRAIN_SECONDS_DEFAULT, Protocol, ProxyProtocol, RemovalPolicy, Scheduler, SchedulerFlag,
        SourceRangesScope, TrafficPolicy,
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange, Timestamp, Weight},
    },
};

/// Packet program: the treatment of packets of one Service on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Treatment of new connections by frontend. The map is a sorted vector, because most programs have one
    /// frontend, for which a `BTreeMap` would reserve the space of eleven.
    pub frontends: LiteMap<Frontend, Route>,
    /// Cluster IPs and load balancer addresses of the Service. Connections to a port of these addresses that is
    /// not a frontend of any Service are rejected.
    pub virtual_addresses: BTreeSet<IpAddr>,
    /// Addresses of targets that run, or may run, on this node. If such a target connects to itself through
    /// the Service, the connection works only if its source address is masqueraded.
    pub hairpins: BTreeSet<IpAddr>,
    /// Health check node port, at which the agent itself responds, without packet rules; `None` if the
    /// Service has none.
    pub health_check: Option<HealthCheckNodePort>,
}

/// Health check node port of a Service with external traffic policy Local (KEP-1669).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheckNodePort {
    /// TCP port at which the agent serves the health check, at the node's addresses.
    pub port: Port,
    /// Number of ready endpoints on this node, without terminating ones (KEP-1669). Only distinct addresses
    /// of the first IP family of the Service count, so that a dual-stack workload counts once.
    pub local_endpoints: u32,
}

/// Address, protocol and ports to which clients connect. Frontends of one program do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frontend {
    /// Destination address: one address or, for a node port, all addresses of the node.
    pub destination: Destination,
    /// Transport protocol of the connections.
    pub protocol: Protocol,
    /// Destination ports of the connections.
    pub ports: PortRange,
}

/// Destination address of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Destination {
    /// A single virtual address.
    Address(IpAddr),
    /// All addresses of the node in an IP family, except loopback ones, at which node ports are enabled.
    AnyLocal(IpFamily),
}

impl Destination {
    /// Returns the IP family of packets that match the destination.
    #[must_use]
    pub const fn family(self) -> IpFamily {
        match self {
            Self::Address(address) => IpFamily::of(address),
            Self::AnyLocal(family) => family,
        }
    }
}

/// Treatment of new connections to one frontend, by source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Type of the frontend's address. Only the names of rules depend on the type; decisions do not.
    pub role: Role,
    /// Name of the Service port, if the port has one.
    pub port_name: Option<Label>,
    /// Networks that may connect; `None` permits all. Connections from other sources are dropped, except
    /// connections of the node itself.
    pub allowed_sources: Option<BTreeSet<IpNet>>,
    /// Verdict for sources in the workload networks of this node.
    pub from_workloads: Verdict,
    /// Verdict for connections from the node's own addresses that are not in the workload networks.
    pub from_node: Verdict,
    /// Verdict for all other sources, such as other nodes and their workloads.
    pub from_elsewhere: Verdict,
    /// Session affinity: time in seconds, 1–86,400, for which new connections from a source address go to the
    /// same target, counted from its last new connection. The frontends of a Service port share the memory of a node,
    /// except in ipvs mode. `None` disables session affinity.
    pub affinity_seconds: Option<u32>,
    /// IPVS scheduler that selects a target; `None` for the default selection of the proxy mode, by weight.
    pub scheduler: Option<Scheduler>,
    /// IPVS flags that modify the scheduler; empty without a scheduler.
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// PROXY protocol header that carries the client's address to the target.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Treatment of established connections to targets that were removed.
    pub removal: Removal,
    /// Draining targets, whose established TCP connections may continue, with an optional deadline. No
    /// verdict contains these targets, so they receive no new connections.
    pub leaving: DrainingTargets,
    /// True if clients of the frontend should not receive the errors of an endpoint that refuses datagrams (UDP only): a
    /// health check removes the endpoint from the targets, and another usable one takes its place. Only nftables mode drops these
    /// errors.
    pub fails_over: bool,
    /// Two-stage path ([`survival`]) for sources elsewhere: the nodes of the targets translate the connections.
    /// `None` if this node translates all of them.
    pub owners: Option<Owners>,
}

/// Nodes of the targets on other nodes: the address at which this node reaches the node of each target, by address of
/// the target. Packets for these targets are forwarded to their nodes without translation. Targets that are absent run
/// on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners(pub Arc<BTreeMap<IpAddr, IpAddr>>);

/// Type of the address of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Cluster IP of the Service.
    ClusterIp,
    /// External IP, which another system routes to the nodes.
    ExternalIp,
    /// Load balancer address of the Service.
    LoadBalancer,
    /// Node port at the addresses of every node.
    NodePort,
}

/// Treatment of established TCP connections to a removed target. UDP and SCTP flows always move to another
/// target immediately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Removal {
    /// Established connections continue until they end.
    #[default]
    Keep,
    /// Established connections are terminated after this number of seconds.
    Drain(u32),
    /// Established connections are terminated immediately.
    Reset,
}

/// Draining targets, which receive no new connections. The optional deadline is the time at which remaining
/// connections to the target are terminated.
pub type DrainingTargets = Arc<BTreeMap<Target, Option<Timestamp>>>;

/// Targets with their weights, which are above zero.
pub type Targets = Arc<BTreeMap<Target, Weight>>;

/// Treatment of new connections to a frontend: they are forwarded, rejected, dropped or relayed. A route has
/// one verdict for each class of sources: workloads, the node itself, all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The connection is forwarded to one of the targets.
    Forward {
        /// Sources whose address is replaced by the node's address (source NAT).
        masquerade: Masquerade,
        /// Possible targets with their weights; never empty.
        targets: Targets,
    },
    /// The connection is rejected: TCP by a reset (or an ICMP error), other protocols by ICMP port unreachable.
    Reject,
    /// The packet is dropped without a response. Applies with traffic policy Local if only other nodes have
    /// endpoints.
    Drop,
    /// The connection goes to a listening socket of this node. [`program()`] never returns this verdict;
    /// userspace mode replaces forwarding verdicts by it.
    Relay {
        /// Port at which the listener accepts connections.
        port: Port,
    },
}

impl Verdict {
    /// Returns the targets, if the verdict has any.
    #[must_use]
    pub const fn targets(&self) -> Option<&Targets> {
        match self {
            Self::Forward { targets, .. } => Some(targets),
            Self::Reject | Self::Drop | Self::Relay { .. } => None,
        }
    }
}

impl Route {
    /// Creates a route with the same verdict for all sources. All other fields have defaults, such as no
    /// source ranges and no affinity.
    #[must_use]
    pub fn new(role: Role, verdict: Verdict) -> Self {
        Self {
            role,
            port_name: None,
            allowed_sources: None,
            from_workloads: verdict.clone(),
            from_node: verdict.clone(),
            from_elsewhere: verdict,
            affinity_seconds: None,
            scheduler: None,
            scheduler_flags: BTreeSet::new(),
            proxy_protocol: None,
            removal: Removal::Keep,
            leaving: DrainingTargets::default(),
            fails_over: false,
            owners: None,
        }
    }

    /// Returns the verdicts in the order in which sources are classified: workloads, node, elsewhere.
    #[must_use]
    pub const fn verdicts(&self) -> [&Verdict; 3] {
        [&self.from_workloads, &self.from_node, &self.from_elsewhere]
    }

    /// Returns the verdict if the route has the same one for all classes of sources (workloads, the node, all
    /// others), otherwise `None`.
    #[must_use]
    pub fn uniform(&self) -> Option<&Verdict> {
        let [workloads, node, elsewhere] = self.verdicts();
        (workloads == node && node == elsewhere).then_some(elsewhere)
    }

    /// Returns the targets of all three verdicts of the route.
    #[must_use]
    pub fn all_targets(&self) -> BTreeSet<Target> {
        self.verdicts()
            .into_iter()
            .filter_map(Verdict::targets)
            .flat_map(|targets| targets.keys().copied())
            .collect()
    }
}

/// Sources whose address is replaced by the node's address (source NAT). A connection of a target to itself is
/// always masqueraded (`Program::hairpins`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Masquerade {
    /// The source address is never replaced.
    Never,
    /// Sources outside of the workload networks are masqueraded. If no workload networks are known, no source
    /// is masqueraded ([`oracle::Networks::masquerade_sources`]).
    OffCluster,
    /// All sources are masqueraded, because replies must return through this node.
    Always,
}

/// Endpoint address and port to which connections are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// IP address of the endpoint.
    pub address: IpAddr,
    /// Port of the endpoint; `None` keeps the destination port of the client, for frontends with a port range.
    pub port: Option<Port>,
}

/// Node for which a packet program is derived, and the zone of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLocation {
    /// Name of the node.
    pub node: Name,
    /// Zone of the node, if the node has one.
    pub zone: Option<Label>,
}

/// Derives the packet program of a compiled Service for one node.
///
/// # Errors
///
/// Returns the settings that no proxy mode implements; such a Service is not programmed.
pub fn program(service: &CompiledService, place: &NodeLocation) -> Result<Program, Vec<UnsupportedField>> {
    if !service.unsupported.is_empty() {
        return Err(service.unsupported.clone());
    }
    let mut program = Program::default();
    program.virtual_addresses.extend(service.cluster_ips.iter().chain(&service.load_balancer_ips));
    let first_family = service.ip_families.first().copied();
    let mut ready_here: BTreeSet<IpAddr> = BTreeSet::new();
    let ports = service.ports.iter().flat_map(|port| IpFamily::ALL.map(|family| (port, family)));
    let planned: Vec<_> =
        ports.map(|(port, family)| (port, family, frontends(service, port, family))).collect();
    // Agents hold the programs of all Services for a long time, so no spare capacity is allocated.
    program.frontends = LiteMap::with_capacity(planned.iter().map(|(.., frontends)| frontends.len()).sum());
    for port in &service.ports {
        let ready = endpoints::ready_on(port, &place.node);
        ready_here.extend(ready.filter(|&ip| first_family.is_none_or(|family| IpFamily::of(ip) == family)));
    }
    for (port, family, frontends) in planned {
        if !frontends.is_empty() {
            let chosen = SelectedEndpoints::of(service, port, place, family);
            program.hairpins.extend(chosen.hairpins());
            for (destination, number, role) in frontends {
                let frontend = Frontend { destination, protocol: port.protocol, ports: number };
                program.frontends.insert(frontend, route(service, port, &chosen, role));
            }
        }
    }
    program.health_check = service.health_check_node_port.map(|port| HealthCheckNodePort {
        port,
        local_endpoints: u32::try_from(ready_here.len()).unwrap_or(u32::MAX),
    });
    Ok(program)
}

fn frontends(
    service: &CompiledService,
    port: &CompiledPort,
    family: IpFamily,
) -> Vec<(Destination, PortRange, Role)> {
    let ports = port.range();
    let at = |addresses: &[IpAddr], role| {
        let of_family = addresses.iter().filter(move |address| IpFamily::of(**address) == family);
        of_family.map(move |address| (Destination::Address(*address), ports, role)).collect::<Vec<_>>()
    };
    let node_port = port.node_port.filter(|_| service.ip_families.contains(&family));
    let node_port = node_port.map(|number| (Destination::AnyLocal(family), number.into(), Role::NodePort));
    // An address may be listed in two roles; the later role describes it better.
    [
        at(&service.external_ips, Role::ExternalIp),
        at(&service.load_balancer_ips, Role::LoadBalancer),
        at(&service.cluster_ips, Role::ClusterIp),
        node_port.into_iter().collect(),
    ]
    .concat()
}

fn route(service: &CompiledService, port: &CompiledPort, chosen: &SelectedEndpoints, role: Role) -> Route {
    let (from_workloads, from_node, from_elsewhere) = match role {
        Role::ClusterIp => {
            let verdict = match service.internal_traffic_policy {
                TrafficPolicy::Cluster => chosen.anywhere(Masquerade::OffCluster),
                TrafficPolicy::Local => chosen.here(Masquerade::OffCluster),
            };
            (verdict.clone(), verdict.clone(), verdict)
        }
        Role::ExternalIp | Role::LoadBalancer | Role::NodePort => match service.external_traffic_policy {
            TrafficPolicy::Cluster => {
                let verdict = chosen.anywhere(Masquerade::Always);
                (verdict.clone(), verdict.clone(), verdict)
            }
            // Connections of the node and of its workloads are treated as if they had left the cluster and returned
            // through any node. Workloads of other nodes count as external: an endpoint on a third node would reply to
            // them directly, past this node, which alone can translate the reply.
            TrafficPolicy::Local => (
                chosen.anywhere(Masquerade::Never),
                chosen.anywhere(Masquerade::Always),
                chosen.here(Masquerade::Never),
            ),
        },
    };
    Route {
        role,
        port_name: port.name.clone(),
        allowed_sources: allowed_sources(service, chosen.family(), role),
        from_workloads,
        from_node,
        from_elsewhere,
        affinity_seconds: service.affinity_seconds,
        scheduler: service.scheduler.clone(),
        scheduler_flags: service.scheduler_flags.clone(),
        proxy_protocol: service.proxy_protocol,
        removal: match service.removal_policy {
            RemovalPolicy::Keep => Removal::Keep,
            RemovalPolicy::Drain => Removal::Drain(service.drain_seconds.unwrap_or(DRAIN_SECONDS_DEFAULT)),
            RemovalPolicy::Reset => Removal::Reset,
        },
        leaving: chosen.leaving(),
        fails_over: fails_over(service, port, chosen, role),
        owners: None,
    }
}

/// Returns true if datagrams to the frontends of a role reach another endpoint once the health check has removed one
/// that refuses them.
fn fails_over(
    service: &CompiledService,
    port: &CompiledPort,
    chosen: &SelectedEndpoints,
    role: Role,
) -> bool {
    let policy = match role {
        Role::ClusterIp => service.internal_traffic_policy,
        Role::ExternalIp | Role::LoadBalancer | Role::NodePort => service.external_traffic_policy,
    };
    port.protocol == Protocol::Udp
        && service.health_check.is_some()
        && policy == TrafficPolicy::Cluster
        && chosen.has_several()
}

/// Returns the networks that may connect to the frontends of a role in an IP family; `None` permits all.
fn allowed_sources(service: &CompiledService, family: IpFamily, role: Role) -> Option<BTreeSet<IpNet>> {
    let scope = service.source_ranges_scope;
    let is_restricted = match role {
        Role::ClusterIp => false,
        Role::LoadBalancer => true,
        Role::ExternalIp | Role::NodePort => scope == SourceRangesScope::AllExternal,
    };
    if !is_restricted || service.source_ranges.is_empty() {
        return None;
    }
    let of_family = service.source_ranges.iter().filter(|range| IpFamily::of_net(range) == family);
    let ranges: BTreeSet<_> = of_family.copied().collect();
    let is_everyone = ranges.iter().any(|range| range.prefix_len() == 0);
    let is_family_open = ranges.is_empty() && scope == SourceRangesScope::LoadBalancerOnly;
    (!is_everyone && !is_family_open).then_some(ranges)
}

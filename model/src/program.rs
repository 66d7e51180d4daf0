//! The packet program: which destination and source lead to which verdict on one node, for one Service.
//!
//! This one pure function feeds every backend's render, the drift checks, the test oracle ([`oracle`]) and `explain`.
//! What is not expressed here does not exist in any kernel.
//!
//! ```text
//! new connection ─▶ frontend (destination, protocol, port)? ── no ──▶ port of a virtual address? ─▶ reject : untouched
//!                        │ yes
//!                        ▼
//!                 source allowed? ── no ─▶ drop
//!                        │ yes, or the node itself
//!                        ▼
//!          workload │ this node │ from elsewhere      (the first that it is)
//!                        ▼
//!               forward │ reject │ drop
//! ```

mod endpoints;
pub mod lower;
pub mod oracle;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use self::endpoints::Chosen;
use crate::{
    cluster::compiled::{CompiledPort, CompiledService, UnsupportedField},
    kinds::service::{
        DRAIN_SECONDS_DEFAULT, Protocol, ProxyProtocol, RemovalPolicy, Scheduler, SchedulerFlag,
        TrafficPolicy,
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange, Timestamp, Weight},
    },
};

/// What one node does with the packets of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What happens to new connections, by destination. Most programs have one frontend: a node of a tree has room for eleven.
    pub frontends: LiteMap<Frontend, Route>,
    /// Addresses that the Service owns whole (cluster IPs and load balancer addresses): every port that is no frontend
    /// of any Service is rejected there.
    pub virtual_addresses: BTreeSet<IpAddr>,
    /// Targets on this node (or on no known node), which reach themselves through their own Service only if that
    /// connection is masqueraded.
    pub hairpins: BTreeSet<IpAddr>,
    /// Where the node says whether it has endpoints. No rule of a backend: the agent itself serves it.
    pub health_check: Option<HealthCheckNodePort>,
}

/// The health check node port of a Service with external policy Local.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheckNodePort {
    /// The TCP port on the node's addresses.
    pub port: Port,
    /// Distinct addresses of ready endpoints on this node, of the first family of the Service: a workload with an address of
    /// each family is one endpoint, and one that the Service's addresses do not lead to is none. Terminating ones do not
    /// count (KEP-1669).
    pub local_endpoints: u32,
}

/// The destination of a new connection. Frontends of one program never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frontend {
    /// The address, or any address of the node.
    pub destination: Destination,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination ports.
    pub ports: PortRange,
}

/// The address part of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Destination {
    /// Exactly this address.
    Address(IpAddr),
    /// Every non-loopback address of the node in this family that node ports answer at.
    AnyLocal(IpFamily),
}

impl Destination {
    /// The family of the packets that can match.
    #[must_use]
    pub const fn family(self) -> IpFamily {
        match self {
            Self::Address(address) => IpFamily::of(address),
            Self::AnyLocal(family) => family,
        }
    }
}

/// What happens to new connections to one frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// What the frontend is, and of which port of the Service; names rules, decides nothing.
    pub role: Role,
    /// The name of the Service's port, if it has one.
    pub port_name: Option<Label>,
    /// Sources that may connect, all when `None`; connections from others are dropped. The node itself always may.
    pub allowed_sources: Option<BTreeSet<IpNet>>,
    /// For sources in the workload networks.
    pub from_workloads: Verdict,
    /// For the node's own addresses, unless they lie in the workload networks.
    pub from_node: Verdict,
    /// For every other source.
    pub from_elsewhere: Verdict,
    /// How long a source address stays on its target after its last new connection, in seconds, 1–86,400; per frontend
    /// and node. `None`: every connection is placed anew.
    pub affinity_seconds: Option<u32>,
    /// How a target is chosen; at random in proportion to the weights when `None`.
    pub scheduler: Option<Scheduler>,
    /// Variants of the scheduler.
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// The header that tells the target the client's address.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// What happens to established connections of a target that goes.
    pub removal: Removal,
    /// Targets that go and whose established TCP connections may finish instead, until the time given if there is one.
    /// None of them is a target of a verdict.
    pub leaving: Leaving,
}

/// What a frontend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A virtual address inside the cluster.
    ClusterIp,
    /// An address that someone else routes to the nodes.
    ExternalIp,
    /// A load balancer address.
    LoadBalancer,
    /// A port of every node.
    NodePort,
}

/// What happens to established TCP connections of a target that goes. UDP and SCTP flows move at once in every case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Removal {
    /// They go on until they end by themselves.
    #[default]
    Keep,
    /// They are cut after this many seconds.
    Drain(u32),
    /// They are cut at once.
    Reset,
}

/// Targets that drain, with the time at which what is left is cut.
pub type Leaving = Arc<BTreeMap<Target, Option<Timestamp>>>;

/// Targets with their weights above zero.
pub type Targets = Arc<BTreeMap<Target, Weight>>;

/// What happens to a new connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It goes to one of the targets.
    Forward {
        /// Whose source address is replaced by the node's.
        masquerade: Masquerade,
        /// Where to; never empty.
        targets: Targets,
    },
    /// It is refused: TCP by a reset (or ICMP), everything else by ICMP port unreachable.
    Reject,
    /// It is dropped without an answer: somebody else has endpoints for it.
    Drop,
    /// It is handed to a socket of this node that listens at the port. Never made from a Service: the userspace
    /// backend puts its listeners in the place of targets.
    Relay {
        /// The listener's port.
        port: Port,
    },
}

impl Verdict {
    /// The targets, if it has any.
    #[must_use]
    pub const fn targets(&self) -> Option<&Targets> {
        match self {
            Self::Forward { targets, .. } => Some(targets),
            Self::Reject | Self::Drop | Self::Relay { .. } => None,
        }
    }
}

impl Route {
    /// The same verdict for everybody, and nothing special.
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
            leaving: Leaving::default(),
        }
    }

    /// The verdicts, in the order in which the sources are told apart.
    #[must_use]
    pub const fn verdicts(&self) -> [&Verdict; 3] {
        [&self.from_workloads, &self.from_node, &self.from_elsewhere]
    }

    /// The verdict, when it is the same for every source.
    #[must_use]
    pub fn uniform(&self) -> Option<&Verdict> {
        let [workloads, node, elsewhere] = self.verdicts();
        (workloads == node && node == elsewhere).then_some(elsewhere)
    }

    /// Every target that any source can meet.
    #[must_use]
    pub fn all_targets(&self) -> BTreeSet<Target> {
        self.verdicts()
            .into_iter()
            .filter_map(Verdict::targets)
            .flat_map(|targets| targets.keys().copied())
            .collect()
    }
}

/// Whose source address is replaced by the node's. A target that connects to itself is masqueraded in every case
/// (`Program::hairpins`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Masquerade {
    /// Nobody's.
    Never,
    /// Sources outside the workload networks, if any are known ([`oracle::Networks::masquerade_sources`]).
    OffCluster,
    /// Every source, because the reply has to come back through this node.
    Always,
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port; `None`: the port that the client named (frontends of several ports, and only those).
    pub port: Option<Port>,
}

/// What a node knows of itself when it makes programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub node: Name,
    /// Its failure zone.
    pub zone: Option<Label>,
}

/// Turns a compiled Service into what a node does with its packets.
///
/// # Errors
/// The settings that no proxy mode carries out; then nothing of the Service is programmed.
pub fn program(service: &CompiledService, place: &Place) -> Result<Program, Vec<UnsupportedField>> {
    if !service.unsupported.is_empty() {
        return Err(service.unsupported.clone());
    }
    let mut program = Program::default();
    program.virtual_addresses.extend(service.cluster_ips.iter().chain(&service.load_balancer_ips));
    let first_family = service.ip_families.first().copied();
    let mut ready_here: BTreeSet<IpAddr> = BTreeSet::new();
    let ports = service.ports.iter().flat_map(|port| IpFamily::ALL.map(|family| (port, family)));
    let asked: Vec<_> =
        ports.map(|(port, family)| (port, family, frontends(service, port, family))).collect();
    // Agents hold a program of every Service for long: no room is kept for more.
    program.frontends = LiteMap::with_capacity(asked.iter().map(|(.., frontends)| frontends.len()).sum());
    for port in &service.ports {
        let ready = endpoints::ready_on(port, &place.node);
        ready_here.extend(ready.filter(|&ip| first_family.is_none_or(|family| IpFamily::of(ip) == family)));
    }
    for (port, family, frontends) in asked {
        if !frontends.is_empty() {
            let chosen = Chosen::of(service, port, place, family);
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
    // One address may be listed twice in different roles; the later one describes it better.
    [
        at(&service.external_ips, Role::ExternalIp),
        at(&service.load_balancer_ips, Role::LoadBalancer),
        at(&service.cluster_ips, Role::ClusterIp),
        node_port.into_iter().collect(),
    ]
    .concat()
}

fn route(service: &CompiledService, port: &CompiledPort, chosen: &Chosen, role: Role) -> Route {
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
            // What starts inside the cluster is served as if it had gone out and come back through any node.
            TrafficPolicy::Local => (
                chosen.anywhere(Masquerade::Never),
                chosen.anywhere(Masquerade::Always),
                chosen.here(Masquerade::Never),
            ),
        },
    };
    let is_open = service.source_ranges.is_empty()
        || role == Role::ClusterIp
        || service
            .source_ranges
            .iter()
            .any(|range| range.prefix_len() == 0 && chosen.family() == IpFamily::of_net(range));
    let of_family = |range: &&IpNet| IpFamily::of_net(range) == chosen.family();
    Route {
        role,
        port_name: port.name.clone(),
        allowed_sources: (!is_open)
            .then(|| service.source_ranges.iter().filter(of_family).copied().collect()),
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
    }
}

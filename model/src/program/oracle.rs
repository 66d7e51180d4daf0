//! Oracle: interpreter of packet programs without side effects, which determines the result for a new
//! connection on a node. Tests compare the behavior of real kernels with this result.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Destination, Frontend, Masquerade, Program, Route, Target, Verdict};
use crate::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Port, Weight},
    },
};

/// Networks that the packet rules of a node distinguish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// Networks of the workloads on this node, of both IP families, disjoint.
    pub workloads: BTreeSet<IpNet>,
    /// Sources that [`Masquerade::OffCluster`] masquerades, as disjoint networks of both IP families.
    pub masquerade_sources: BTreeSet<IpNet>,
    /// Networks of node addresses at which node ports are served, disjoint; `0.0.0.0/0` and `::/0` for all
    /// addresses.
    pub node_ports: BTreeSet<IpNet>,
    /// Networks from which cluster IPs are allocated, disjoint. Packets to an address in them that no Service has
    /// are dropped. Empty if the networks are unknown.
    pub services: BTreeSet<IpNet>,
}

impl Default for Networks {
    /// Returns the default: no workload networks, no masqueraded sources, and node ports at all addresses.
    fn default() -> Self {
        let all = [IpNet::V4(ipnet::Ipv4Net::default()), IpNet::V6(ipnet::Ipv6Net::default())];
        Self {
            workloads: BTreeSet::new(),
            masquerade_sources: BTreeSet::new(),
            node_ports: all.into_iter().collect(),
            services: BTreeSet::new(),
        }
    }
}

/// New connection, with the properties that packet rules examine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Source address of the connection.
    pub source: IpAddr,
    /// True if the source is one of the node's own addresses.
    pub is_from_node: bool,
    /// Destination address of the connection.
    pub destination: IpAddr,
    /// True if the destination is one of the node's own addresses, except loopback addresses.
    pub is_node_address: bool,
    /// Transport protocol of the connection.
    pub protocol: Protocol,
    /// Destination port of the connection.
    pub port: Port,
}

/// Result for a new connection according to the packet programs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// No frontend or virtual address matches; the packet passes unchanged.
    Untouched,
    /// The connection is rejected with a reset or an ICMP error.
    Reject,
    /// The packet is dropped without a response.
    Drop,
    /// The connection is forwarded to one of the targets.
    Forward {
        /// Addresses and ports of the possible targets, with their weights.
        targets: BTreeMap<(IpAddr, Port), Weight>,
        /// True if the source address is masqueraded, whichever target is selected.
        is_masqueraded: bool,
        /// Target addresses that equal the source of the connection. Connections to them are always
        /// masqueraded, so the target sees the node as the source.
        hairpins: BTreeSet<IpAddr>,
    },
    /// The connection goes to a listener at the contained port of the node.
    Relay(Port),
}

/// Result for a new connection, with the intermediate results that led to it. `K` is the type of the key that
/// identifies a packet program, such as a Service key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleDecision<'a, K> {
    /// Frontend or address that matches the destination.
    pub matched: FrontendMatch<'a, K>,
    /// Class of the source, which selects the verdict.
    pub class: Class,
    /// Result of comparing the source with the networks that may connect.
    pub admission: Admission,
    /// Verdict that applies; `None` if no frontend matches or the source may not connect.
    pub verdict: Option<&'a Verdict>,
    /// Result for the connection.
    pub fate: Fate,
}

/// Frontend or virtual address that matches the destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontendMatch<'a, K> {
    /// A frontend matches the address, protocol and port. Contains the key of its program.
    Frontend {
        /// Key of the program that has the frontend.
        of: K,
        /// Frontend that matches.
        frontend: &'a Frontend,
        /// Route of the frontend, with the verdicts.
        route: &'a Route,
    },
    /// A virtual address matches, but the port is not a frontend.
    VirtualAddress {
        /// Key of the program that has the address.
        of: K,
    },
    /// No address or port of any program matches.
    Nothing,
}

/// Class of the source of a connection. If several classes apply, the first of them in the order of the
/// variants is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The source is in a workload network of this node.
    Workload,
    /// The source is the node itself.
    Node,
    /// The source is neither a workload of this node nor the node itself, such as another node or its workloads.
    Elsewhere,
}

/// Result of comparing the source of a connection with the networks that a frontend allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The frontend allows all sources.
    Open,
    /// The source is in the contained network, which the frontend allows.
    Within(IpNet),
    /// The source is the node itself, which is always allowed.
    Node,
    /// The source is in none of the allowed networks.
    Denied,
}

/// Returns the result of the given packet programs for a new connection. Frontends with an exact address take
/// precedence over node ports, and earlier programs over later ones.
pub fn fate<'a>(
    programs: impl Iterator<Item = &'a Program> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> Fate {
    decide(programs.map(|program| ((), program)), networks, connection).fate
}

/// Returns the result for a new connection, as [`fate`] does, together with the intermediate results: the
/// frontend, the class of the source, and the check of the source against the allowed networks.
pub fn decide<'a, K>(
    programs: impl Iterator<Item = (K, &'a Program)> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> OracleDecision<'a, K> {
    let is_workload = is_in(&networks.workloads, connection.source);
    let class = match (is_workload, connection.is_from_node) {
        (true, _) => Class::Workload,
        (false, true) => Class::Node,
        (false, false) => Class::Elsewhere,
    };
    let matched = meet(programs.clone(), networks, connection);
    let (admission, verdict, fate) = match &matched {
        FrontendMatch::Nothing if is_in(&networks.services, connection.destination) => {
            (Admission::Open, None, Fate::Drop)
        }
        FrontendMatch::Nothing => (Admission::Open, None, Fate::Untouched),
        FrontendMatch::VirtualAddress { .. } => (Admission::Open, None, Fate::Reject),
        FrontendMatch::Frontend { route, .. } => {
            let admission = admission(route, connection);
            if admission == Admission::Denied {
                (admission, None, Fate::Drop)
            } else {
                let verdict = route.verdict(class);
                let hairpins = || programs.clone().any(|(_, one)| one.hairpins.contains(&connection.source));
                (admission, Some(verdict), carry_out(verdict, networks, connection, hairpins))
            }
        }
    };
    OracleDecision { matched, class, admission, verdict, fate }
}

fn meet<'a, K>(
    programs: impl Iterator<Item = (K, &'a Program)> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> FrontendMatch<'a, K> {
    let Connection { destination, protocol, port, .. } = *connection;
    let find = |wanted: Destination| {
        let matches = move |frontend: &Frontend| {
            frontend.destination == wanted && frontend.protocol == protocol && frontend.ports.contains(port)
        };
        programs.clone().find_map(|(of, program)| {
            let (frontend, route) = program.frontends.iter().find(|(frontend, _)| matches(frontend))?;
            Some(FrontendMatch::Frontend { of, frontend, route })
        })
    };
    let any_local = || {
        let answers = connection.is_node_address && is_in(&networks.node_ports, destination);
        if answers { find(Destination::AnyLocal(IpFamily::of(destination))) } else { None }
    };
    let closed = || {
        let mut having = programs.clone().filter(|(_, one)| one.virtual_addresses.contains(&destination));
        having.next().map(|(of, _)| FrontendMatch::VirtualAddress { of })
    };
    find(Destination::Address(destination))
        .or_else(any_local)
        .or_else(closed)
        .unwrap_or(FrontendMatch::Nothing)
}

fn admission(route: &Route, connection: &Connection) -> Admission {
    let Some(allowed) = &route.allowed_sources else { return Admission::Open };
    if connection.is_from_node {
        return Admission::Node;
    }
    let within = allowed.iter().find(|net| net.contains(&connection.source));
    within.map_or(Admission::Denied, |net| Admission::Within(*net))
}

fn carry_out(
    verdict: &Verdict,
    networks: &Networks,
    connection: &Connection,
    has_hairpin: impl Fn() -> bool,
) -> Fate {
    let Connection { source, port, .. } = *connection;
    match verdict {
        Verdict::Reject => Fate::Reject,
        Verdict::Drop => Fate::Drop,
        Verdict::Relay { port } => Fate::Relay(*port),
        Verdict::Forward { masquerade, targets } => {
            let at = |target: &Target| (target.address, target.port.unwrap_or(port));
            let is_hairpin = targets.keys().any(|target| target.address == source) && has_hairpin();
            Fate::Forward {
                targets: targets.iter().map(|(target, weight)| (at(target), *weight)).collect(),
                is_masqueraded: match masquerade {
                    Masquerade::Never => false,
                    Masquerade::Always => true,
                    Masquerade::OffCluster => is_in(&networks.masquerade_sources, source),
                },
                hairpins: is_hairpin.then_some(source).into_iter().collect(),
            }
        }
    }
}

fn is_in(networks: &BTreeSet<IpNet>, address: IpAddr) -> bool {
    networks.iter().any(|net| net.contains(&address))
}

impl Route {
    /// Returns the verdict for a class of sources.
    #[must_use]
    pub const fn verdict(&self, class: Class) -> &Verdict {
        match class {
            Class::Workload => &self.from_workloads,
            Class::Node => &self.from_node,
            Class::Elsewhere => &self.from_elsewhere,
        }
    }
}

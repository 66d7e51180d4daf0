//! The pure interpreter of packet programs: what becomes of a new connection on a node. What a kernel does is compared
//! with this.

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

/// The networks that the rules of a node tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// Where workloads are: disjoint networks of both families.
    pub workloads: BTreeSet<IpNet>,
    /// Sources whose connections are masqueraded by [`Masquerade::OffCluster`]: disjoint networks of both families.
    pub masquerade_sources: BTreeSet<IpNet>,
    /// Node ports answer at the node's addresses in these networks; disjoint, `0.0.0.0/0` and `::/0` for all.
    pub node_ports: BTreeSet<IpNet>,
}

impl Default for Networks {
    /// No known workloads, nothing masqueraded by source, node ports at all addresses.
    fn default() -> Self {
        let all = [IpNet::V4(ipnet::Ipv4Net::default()), IpNet::V6(ipnet::Ipv6Net::default())];
        Self {
            workloads: BTreeSet::new(),
            masquerade_sources: BTreeSet::new(),
            node_ports: all.into_iter().collect(),
        }
    }
}

/// A new connection, as far as rules look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Where it comes from.
    pub source: IpAddr,
    /// Whether that is one of the node's own addresses.
    pub is_from_node: bool,
    /// Where it goes.
    pub destination: IpAddr,
    /// Whether that is one of the node's own addresses (not a loopback one).
    pub is_node_address: bool,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port.
    pub port: Port,
}

/// What becomes of a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// No rule of ours concerns it.
    Untouched,
    /// It is refused.
    Reject,
    /// It is dropped without an answer.
    Drop,
    /// It goes to one of the targets, which see the node as its source if `is_masqueraded`, and else the client.
    Forward {
        /// The targets, each with its port, by weight.
        targets: BTreeMap<(IpAddr, Port), Weight>,
        /// Whether its source becomes the node, whichever target it meets.
        is_masqueraded: bool,
        /// Targets that see the node as the source in any case, because they are the source.
        hairpins: BTreeSet<IpAddr>,
    },
    /// It is handed to a listener of the node.
    Relay(Port),
}

/// Why a connection has its fate: what was looked up, and what was found. `K` names programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a, K> {
    /// Where the connection is met.
    pub met: Met<'a, K>,
    /// Who connects.
    pub class: Class,
    /// Whether its source may connect.
    pub admission: Admission,
    /// What is done with it; nothing where no frontend meets it or the source may not connect.
    pub verdict: Option<&'a Verdict>,
    /// What becomes of it.
    pub fate: Fate,
}

/// Where a connection is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met<'a, K> {
    /// At a frontend.
    Frontend {
        /// Whose it is.
        of: K,
        /// Which.
        frontend: &'a Frontend,
        /// What it does.
        route: &'a Route,
    },
    /// At a port of a virtual address that is no frontend.
    VirtualAddress {
        /// Whose address it is.
        of: K,
    },
    /// Nowhere.
    Nothing,
}

/// Who connects, in the order in which sources are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A source in the workload networks.
    Workload,
    /// The node itself.
    Node,
    /// Everybody else.
    Elsewhere,
}

/// Whether a source may connect to a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Everybody may.
    Open,
    /// It lies in this allowed network.
    Within(IpNet),
    /// It is the node itself, which always may.
    Node,
    /// It may not.
    Denied,
}

/// What becomes of a new connection: exact addresses before node ports, programs in the order in which they come.
pub fn fate<'a>(
    programs: impl Iterator<Item = &'a Program> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> Fate {
    decide(programs.map(|program| ((), program)), networks, connection).fate
}

/// The same, with the reasons.
pub fn decide<'a, K>(
    programs: impl Iterator<Item = (K, &'a Program)> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> Decision<'a, K> {
    let is_workload = is_in(&networks.workloads, connection.source);
    let class = match (is_workload, connection.is_from_node) {
        (true, _) => Class::Workload,
        (false, true) => Class::Node,
        (false, false) => Class::Elsewhere,
    };
    let met = meet(programs.clone(), networks, connection);
    let (admission, verdict, fate) = match &met {
        Met::Nothing => (Admission::Open, None, Fate::Untouched),
        Met::VirtualAddress { .. } => (Admission::Open, None, Fate::Reject),
        Met::Frontend { route, .. } => {
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
    Decision { met, class, admission, verdict, fate }
}

fn meet<'a, K>(
    programs: impl Iterator<Item = (K, &'a Program)> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> Met<'a, K> {
    let Connection { destination, protocol, port, .. } = *connection;
    let find = |wanted: Destination| {
        let matches = move |frontend: &Frontend| {
            frontend.destination == wanted && frontend.protocol == protocol && frontend.ports.contains(port)
        };
        programs.clone().find_map(|(of, program)| {
            let (frontend, route) = program.frontends.iter().find(|(frontend, _)| matches(frontend))?;
            Some(Met::Frontend { of, frontend, route })
        })
    };
    let any_local = || {
        let answers = connection.is_node_address && is_in(&networks.node_ports, destination);
        if answers { find(Destination::AnyLocal(IpFamily::of(destination))) } else { None }
    };
    let closed = || {
        let mut having = programs.clone().filter(|(_, one)| one.virtual_addresses.contains(&destination));
        having.next().map(|(of, _)| Met::VirtualAddress { of })
    };
    find(Destination::Address(destination)).or_else(any_local).or_else(closed).unwrap_or(Met::Nothing)
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
    /// The verdict for who connects.
    #[must_use]
    pub const fn verdict(&self, class: Class) -> &Verdict {
        match class {
            Class::Workload => &self.from_workloads,
            Class::Node => &self.from_node,
            Class::Elsewhere => &self.from_elsewhere,
        }
    }
}

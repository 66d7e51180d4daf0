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
    net::IpFamily,
    quantity::{Port, Weight},
    service::Protocol,
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

/// What becomes of a new connection: exact addresses before node ports, programs in the order in which they come.
pub fn fate<'a>(
    programs: impl Iterator<Item = &'a Program> + Clone,
    networks: &Networks,
    connection: &Connection,
) -> Fate {
    let Connection { source, destination, protocol, port, .. } = *connection;
    let find = |wanted: Destination| {
        let matches = move |frontend: &Frontend| {
            frontend.destination == wanted && frontend.protocol == protocol && frontend.ports.contains(port)
        };
        let routes = programs.clone().flat_map(|program| &program.frontends);
        routes.clone().find(move |(frontend, _)| matches(frontend)).map(|(_, route)| route)
    };
    let is_in =
        |networks: &BTreeSet<IpNet>, address: IpAddr| networks.iter().any(|net| net.contains(&address));
    let any_local = || {
        let answers = connection.is_node_address && is_in(&networks.node_ports, destination);
        if answers { find(Destination::AnyLocal(IpFamily::of(destination))) } else { None }
    };
    let Some(route) = find(Destination::Address(destination)).or_else(any_local) else {
        let is_virtual = programs.clone().any(|program| program.virtual_addresses.contains(&destination));
        return if is_virtual { Fate::Reject } else { Fate::Untouched };
    };
    let is_allowed = |allowed: &BTreeSet<IpNet>| connection.is_from_node || is_in(allowed, source);
    if !route.allowed_sources.as_ref().is_none_or(is_allowed) {
        return Fate::Drop;
    }
    match verdict(route, is_in(&networks.workloads, source), connection.is_from_node) {
        Verdict::Reject => Fate::Reject,
        Verdict::Drop => Fate::Drop,
        Verdict::Relay { port } => Fate::Relay(*port),
        Verdict::Forward { masquerade, targets } => {
            let at = |target: &Target| (target.address, target.port.unwrap_or(port));
            let is_hairpin = targets.keys().any(|target| target.address == source)
                && programs.clone().any(|program| program.hairpins.contains(&source));
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

/// The verdict for a source: workloads before the node itself before everybody else.
const fn verdict(route: &Route, is_workload: bool, is_node: bool) -> &Verdict {
    if is_workload {
        &route.from_workloads
    } else if is_node {
        &route.from_node
    } else {
        &route.from_elsewhere
    }
}

//! The packet program: which destination leads to which verdict on one node, for one Service.
//!
//! This one pure function feeds every backend's render, the drift checks, the test oracle and `explain`. What is not
//! expressed here does not exist in any kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    compiled::{CompiledEndpoint, CompiledPort, CompiledService, UnsupportedField},
    name::Name,
    net::IpFamily,
    quantity::{Port, Weight},
    service::Protocol,
};

/// What one node does with the packets of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// What happens to new connections, by destination.
    pub frontends: BTreeMap<Frontend, Verdict>,
    /// Virtual addresses that exist only in rules: every port that is no frontend is rejected there.
    pub virtual_addresses: BTreeSet<IpAddr>,
    /// Endpoints on this node (or on no known node), which reach themselves through their own Service only if that
    /// connection is masqueraded.
    pub hairpins: BTreeSet<IpAddr>,
}

/// The destination of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The address, or any address of the node.
    pub destination: Destination,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port.
    pub port: Port,
}

/// The address part of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Exactly this address.
    Address(IpAddr),
    /// Every non-loopback address of the node in this family.
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

/// What happens to a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to one of the targets, chosen at random in proportion to the weights.
    Forward {
        /// Whose source address is replaced by the node's.
        masquerade: Masquerade,
        /// The targets with weights above zero; never empty.
        targets: BTreeMap<Target, Weight>,
    },
    /// It is refused: TCP by a reset, everything else by ICMP port unreachable.
    Reject,
}

/// Whose source address is replaced by the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Masquerade {
    /// Sources outside the workload networks, if any are known.
    OffCluster,
    /// Every source, because the reply has to come back through this node.
    Always,
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port.
    pub port: Port,
}

/// Turns a compiled Service into what `node` does with its packets.
///
/// # Errors
/// The settings that cannot be carried out; then nothing of the Service is programmed.
pub fn program(service: &CompiledService, node: &Name) -> Result<Program, Vec<UnsupportedField>> {
    if !service.unsupported.is_empty() {
        return Err(service.unsupported.clone());
    }
    let mut program = Program::default();
    program.virtual_addresses.extend(&service.cluster_ips);
    for port in &service.ports {
        let chosen = choose_endpoints(port);
        let local = chosen.iter().filter(|endpoint| endpoint.node.as_ref().is_none_or(|name| name == node));
        program.hairpins.extend(local.map(|endpoint| endpoint.address));
        for (frontend, masquerade) in frontends(service, port) {
            let verdict = verdict(&chosen, frontend.destination.family(), masquerade);
            program.frontends.insert(frontend, verdict);
        }
    }
    Ok(program)
}

/// Ready endpoints; when there are none, those that still serve while they terminate (KEP-1669).
fn choose_endpoints(port: &CompiledPort) -> Vec<&CompiledEndpoint> {
    let usable = |endpoint: &&CompiledEndpoint| endpoint.weight.0 > 0;
    let ready: Vec<_> = port.endpoints.iter().filter(usable).filter(|endpoint| endpoint.ready).collect();
    if !ready.is_empty() {
        return ready;
    }
    port.endpoints.iter().filter(usable).filter(|endpoint| endpoint.serving && endpoint.terminating).collect()
}

fn frontends(service: &CompiledService, port: &CompiledPort) -> Vec<(Frontend, Masquerade)> {
    let at = |destination, number| Frontend { destination, protocol: port.protocol, port: number };
    let cluster = service
        .cluster_ips
        .iter()
        .map(|&ip| (at(Destination::Address(ip), port.port), Masquerade::OffCluster));
    let external =
        service.external_ips.iter().map(|&ip| (at(Destination::Address(ip), port.port), Masquerade::Always));
    let node_port = port.node_port.into_iter().flat_map(|number| {
        let families = service.ip_families.iter();
        families.map(move |&family| (at(Destination::AnyLocal(family), number), Masquerade::Always))
    });
    cluster.chain(external).chain(node_port).collect()
}

fn verdict(endpoints: &[&CompiledEndpoint], family: IpFamily, masquerade: Masquerade) -> Verdict {
    let of_family = endpoints.iter().filter(|endpoint| IpFamily::of(endpoint.address) == family);
    let targets: BTreeMap<_, _> = of_family
        .map(|endpoint| (Target { address: endpoint.address, port: endpoint.port }, endpoint.weight))
        .collect();
    if targets.is_empty() { Verdict::Reject } else { Verdict::Forward { masquerade, targets } }
}

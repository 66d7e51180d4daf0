//! Builders of packet programs (rules for the packets of one Service on one node) for backend tests.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        net::IpFamily,
        quantity::{Port, Revision, Weight},
    },
    program::{Destination, Frontend, Masquerade, Program, Role, Route, Target, Verdict},
};
use node_agent::dataplane::{DesiredProgram, DesiredState, Outcome, Pass, Scope};

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is an address"))
}

pub fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

pub fn key(name: &str) -> ServiceKey {
    ServiceKey::try_from(format!("default/{name}")).unwrap()
}

pub fn at(ip: &str, protocol: Protocol, number: u16) -> Frontend {
    Frontend { destination: Destination::Address(address(ip)), protocol, ports: port(number).into() }
}

pub fn node_port(family: IpFamily, protocol: Protocol, number: u16) -> Frontend {
    Frontend { destination: Destination::AnyLocal(family), protocol, ports: port(number).into() }
}

/// Converts a list of targets, each given as address, port and weight.
pub fn targets(list: &[(&str, u16, u16)]) -> BTreeMap<Target, Weight> {
    let target = |ip: &str, number| Target { address: address(ip), port: Some(port(number)) };
    list.iter().map(|&(ip, number, weight)| (target(ip, number), Weight(weight))).collect()
}

pub fn forward(masquerade: Masquerade, list: &[(&str, u16, u16)]) -> Verdict {
    Verdict::Forward { masquerade, targets: Arc::new(targets(list)) }
}

/// Builds a packet program with these virtual addresses and frontends. The verdict of a frontend applies to
/// every source. `hairpins` are the endpoints on this node.
pub fn program(virtual_addresses: &[&str], hairpins: &[&str], frontends: &[(Frontend, Verdict)]) -> Program {
    Program {
        frontends: frontends
            .iter()
            .cloned()
            .map(|(frontend, verdict)| (frontend, route(&frontend, verdict)))
            .collect(),
        virtual_addresses: virtual_addresses.iter().map(|text| address(text)).collect(),
        hairpins: hairpins.iter().map(|text| address(text)).collect(),
        health_check: None,
    }
}

/// Builds the route of a frontend with three verdicts: for workloads, for the node itself, and for other
/// sources.
pub fn by_source(frontend: &Frontend, [workloads, node, elsewhere]: [Verdict; 3]) -> Route {
    Route { from_workloads: workloads, from_node: node, ..route(frontend, elsewhere) }
}

/// Builds a packet program with these routes, without virtual addresses or hairpins (local endpoints).
pub fn routed(routes: Vec<(Frontend, Route)>) -> Program {
    Program { frontends: routes.into_iter().collect(), ..Program::default() }
}

/// Parses a list of networks.
pub fn nets(list: &[&str]) -> std::collections::BTreeSet<ipnet::IpNet> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

/// Builds a frontend for a port range at an address.
pub fn range(ip: &str, protocol: Protocol, first: u16, last: u16) -> Frontend {
    Frontend {
        ports: model::primitives::quantity::PortRange::new(port(first), port(last)),
        ..at(ip, protocol, first)
    }
}

/// Builds a verdict that forwards to the addresses in `list` without a change of the destination port.
pub fn forward_ports(masquerade: Masquerade, list: &[&str]) -> Verdict {
    let target = |ip: &&str| (Target { address: address(ip), port: None }, Weight(1));
    Verdict::Forward { masquerade, targets: Arc::new(list.iter().map(target).collect()) }
}

/// Builds a route with the same verdict for every source.
pub fn route(frontend: &Frontend, verdict: Verdict) -> Route {
    let role = match (frontend.destination, &verdict) {
        (Destination::AnyLocal(_), _) => Role::NodePort,
        (_, Verdict::Forward { masquerade: Masquerade::Always, .. }) => Role::ExternalIp,
        (Destination::Address(_), _) => Role::ClusterIp,
    };
    Route::new(role, verdict)
}

/// Builds the packet program of a TCP Service at port 80 of a virtual address. `list` contains the targets as
/// address, port and weight; if it is empty, connections are rejected.
pub fn simple(virtual_address: &str, list: &[(&str, u16, u16)]) -> Program {
    let verdict = if list.is_empty() { Verdict::Reject } else { forward(Masquerade::OffCluster, list) };
    let hairpins: Vec<_> = list.iter().map(|(ip, ..)| *ip).collect();
    program(&[virtual_address], &hairpins, &[(at(virtual_address, Protocol::Tcp, 80), verdict)])
}

pub fn set(desired: &mut DesiredState, name: &str, program: Program) {
    let program = DesiredProgram { revision: Revision(1), program: Arc::new(program) };
    desired.programs.insert(key(name), program);
}

pub fn desired(services: Vec<(&str, Program)>) -> DesiredState {
    let mut desired = DesiredState::default();
    for (name, program) in services {
        set(&mut desired, name, program);
    }
    desired
}

pub fn only(names: &[&str]) -> Scope {
    Scope::Services(names.iter().map(|name| key(name)).collect())
}

/// Asserts that a kernel update (pass) succeeded as a whole and for each Service, and returns the number of
/// kernel writes.
pub fn verified(pass: &Pass) -> u64 {
    assert!(pass.failed.is_none(), "{:?}", pass.failed);
    for (service, outcome) in &pass.outcomes {
        assert_eq!(*outcome, Outcome::Verified, "{service}");
    }
    pass.writes
}

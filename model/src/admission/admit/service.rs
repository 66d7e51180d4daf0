//! Allocation of the cluster IPs and node ports of a Service: values are kept, requested by the client, or chosen
//! by the server.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{entropy::Random, families, taken};
use crate::{
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::service::{ClusterIp, IpFamilyPolicy, Protocol, ServicePort, ServiceSpec},
    primitives::{
        net::{IpFamily, from_number, to_number},
        quantity::Port,
        violation::{Violation, ViolationCode},
    },
};

/// Minimum number of addresses at the start of a Service range that are allocated last, because users choose
/// addresses there (KEP-3070). These are a sixteenth of the range, from 16 to 256 addresses, but at most half
/// of the range.
const BY_HAND_MIN: u128 = 16;
const BY_HAND_MAX: u128 = 256;

/// Sets the cluster IPs and node ports that a Service keeps from its old state, and checks the ones that the
/// new state requests. Missing values are set later by [`allocate`].
pub(super) fn claim(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    old: Option<&ServiceSpec>,
    spec: &mut ServiceSpec,
    found: &mut Vec<Violation>,
) {
    if spec.is_external_name() {
        return;
    }
    normalize(spec);
    if let Some(old) = old.filter(|old| !old.is_external_name()) {
        keep_addresses(old, spec, found);
        keep_node_ports(old, spec);
        keep_health_check_node_port(old, spec);
    }
    families::settle(config, spec, found);
    if spec.is_headless() {
        return;
    }
    if spec.ip_family_policy == Some(IpFamilyPolicy::SingleStack) {
        spec.cluster_ips.truncate(1);
        spec.ip_families.truncate(1);
    }
    for (index, address) in spec.cluster_addresses().enumerate() {
        check_cluster_ip(snapshot, config, index, address, found);
    }
    for (index, port) in spec.ports.iter().enumerate() {
        if let Some(node_port) = port.node_port {
            let at = format!("/spec/ports/{index}/nodePort");
            check_node_port(snapshot, config, at, port.protocol, node_port, found);
        }
    }
    if let Some(port) = spec.health_check_node_port {
        let at = "/spec/healthCheckNodePort".to_owned();
        let is_node_port =
            |other: &ServicePort| (other.protocol, other.node_port) == (Protocol::Tcp, Some(port));
        if spec.ports.iter().any(is_node_port) {
            let message = format!("must differ from the TCP node ports of the Service; {port} is one");
            found.push(Violation::new(at, ViolationCode::Conflict, message));
        } else {
            check_node_port(snapshot, config, at, Protocol::Tcp, port, found);
        }
    }
}

/// Allocates the cluster IPs and node ports that a Service still lacks.
pub(super) fn allocate(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &mut ServiceSpec,
    random: &mut Random,
    found: &mut Vec<Violation>,
) {
    if spec.is_external_name() || spec.is_headless() {
        return;
    }
    let mut addresses = Vec::new();
    for family in spec.ip_families.clone() {
        let held = spec.cluster_addresses().find(|address| IpFamily::of(*address) == family);
        let range = config.service_cidr(family);
        match held.or_else(|| range.and_then(|range| free_address(snapshot, range, random))) {
            Some(address) => addresses.push(ClusterIp::Address(address)),
            None => found.push(
                Violation::new(
                    "/spec/clusterIP",
                    ViolationCode::Exhausted,
                    "must find a free address; the range is full",
                )
                .hint("delete Services that are no longer needed, or start with a larger --service-cidr"),
            ),
        }
    }
    spec.cluster_ip = addresses.first().copied();
    spec.cluster_ips = addresses;
    if spec.has_node_ports() {
        allocate_node_ports(snapshot, config, spec, random, found);
    }
}

/// Makes `clusterIP` and `clusterIPs` consistent, as Kubernetes does: `clusterIP` is the first entry of
/// `clusterIPs`.
fn normalize(spec: &mut ServiceSpec) {
    if spec.cluster_ips.is_empty() {
        spec.cluster_ips.extend(spec.cluster_ip);
    }
    spec.cluster_ip = spec.cluster_ips.first().copied();
}

fn keep_addresses(old: &ServiceSpec, spec: &mut ServiceSpec, found: &mut Vec<Violation>) {
    if spec.cluster_ip.is_some() && spec.cluster_ip != old.cluster_ip {
        let message = match old.cluster_ip {
            Some(ClusterIp::Address(address)) => format!("cannot be changed; it is {address}"),
            Some(ClusterIp::None) | None => "cannot be given to a headless Service".to_owned(),
        };
        let hint = "leave it out to keep it, or delete the Service and create it again";
        found.push(Violation::new("/spec/clusterIP", ViolationCode::Immutable, message).hint(hint));
        return;
    }
    if spec.ip_families.is_empty() && spec.ip_family_policy.is_none() {
        spec.ip_families.clone_from(&old.ip_families);
        spec.ip_family_policy = old.ip_family_policy;
    } else if spec.ip_families.is_empty() {
        spec.ip_families.extend(old.ip_families.first());
    }
    for held in old.cluster_ips.iter().skip(spec.cluster_ips.len()) {
        let is_wanted = match held.address() {
            None => true,
            Some(address) => {
                let family = IpFamily::of(address);
                let is_new = !spec.cluster_addresses().any(|address| IpFamily::of(address) == family);
                is_new
                    && (spec.ip_families.contains(&family)
                        || spec.ip_family_policy != Some(IpFamilyPolicy::SingleStack))
            }
        };
        if is_wanted {
            spec.cluster_ips.push(*held);
        }
    }
    spec.cluster_ip = spec.cluster_ips.first().copied();
}

/// Copies the node port of each old port to the new port with the same number and protocol, or else with the same
/// name.
fn keep_node_ports(old: &ServiceSpec, spec: &mut ServiceSpec) {
    for index in 0..spec.ports.len() {
        let port = &spec.ports[index];
        if !spec.has_node_port(port) {
            continue;
        }
        let same_number = old.ports.iter().find(|old| (old.protocol, old.port) == (port.protocol, port.port));
        let same_name = || {
            old.ports
                .iter()
                .find(|old| old.name.is_some() && old.name == port.name && old.protocol == port.protocol)
        };
        let held = same_number.or_else(same_name).and_then(|old| old.node_port);
        let is_used = |number| {
            spec.ports.iter().any(|other| other.protocol == port.protocol && other.node_port == Some(number))
        };
        if let Some(number) = held.filter(|number| port.node_port.is_none() && !is_used(*number)) {
            spec.ports[index].node_port = Some(number);
        }
    }
}

fn keep_health_check_node_port(old: &ServiceSpec, spec: &mut ServiceSpec) {
    if spec.has_health_check_node_port() && spec.health_check_node_port.is_none() {
        let held = old.health_check_node_port;
        let is_asked = |port: &ServicePort| port.protocol == Protocol::Tcp && port.node_port == held;
        spec.health_check_node_port = held.filter(|_| !spec.ports.iter().any(is_asked));
    }
}

fn check_cluster_ip(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    index: usize,
    address: IpAddr,
    found: &mut Vec<Violation>,
) {
    let at = if index == 0 { "/spec/clusterIP".to_owned() } else { format!("/spec/clusterIPs/{index}") };
    let ranges: Vec<_> = config.service_cidrs().iter().map(ToString::to_string).collect();
    match config.service_cidr_of(address) {
        None => {
            let message =
                format!("must lie in the Service range {}; {address} does not", ranges.join(" or "));
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        }
        Some(range) if !host_numbers(range).contains(&to_number(address)) => {
            let message = format!("must be a host address of {range}; {address} is its first or last");
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        }
        Some(_) => {
            if let Some(holder) = snapshot.cluster_ip_holder(address) {
                found.push(taken(at, ViolationCode::AddressTaken, &address.to_string(), holder));
            }
        }
    }
}

fn check_node_port(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    at: String,
    protocol: Protocol,
    node_port: Port,
    found: &mut Vec<Violation>,
) {
    let range = config.node_port_range();
    if !range.contains(&node_port.get()) {
        let message = format!("must lie in {}-{}; {node_port} does not", range.start(), range.end());
        found.push(Violation::new(at, ViolationCode::PortOutOfRange, message));
    } else if let Some(holder) = snapshot.node_port_holder(protocol, node_port) {
        let what = format!("node port {node_port}/{}", protocol.as_str());
        found.push(taken(at, ViolationCode::PortTaken, &what, holder));
    }
}

fn allocate_node_ports(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &mut ServiceSpec,
    random: &mut Random,
    found: &mut Vec<Violation>,
) {
    // Ports allocated here are not in the snapshot before the Service is.
    let mut own: Vec<(Protocol, Port)> =
        spec.ports.iter().filter_map(|port| Some((port.protocol, port.node_port?))).collect();
    own.extend(spec.health_check_node_port.map(|port| (Protocol::Tcp, port)));
    let mut give = |at: String, protocol: Protocol| {
        let free = any_free_node_port(snapshot, config, protocol, random, &own);
        match free {
            Some(number) => own.push((protocol, number)),
            None => found.push(no_node_port(config, at)),
        }
        free
    };
    for index in 0..spec.ports.len() {
        let port = &spec.ports[index];
        if port.node_port.is_some() || !spec.has_node_port(port) {
            continue;
        }
        let given = give(format!("/spec/ports/{index}/nodePort"), port.protocol);
        spec.ports[index].node_port = given;
    }
    if spec.has_health_check_node_port() && spec.health_check_node_port.is_none() {
        spec.health_check_node_port = give("/spec/healthCheckNodePort".to_owned(), Protocol::Tcp);
    }
}

fn no_node_port(config: &ClusterConfig, at: String) -> Violation {
    let range = config.node_port_range();
    let message = format!("must find a free port; {}-{} is full", range.start(), range.end());
    Violation::new(at, ViolationCode::Exhausted, message)
        .hint("delete Services that are no longer needed, or start with a larger --node-port-range")
}

/// Returns a free node port of the configured range, or `None` if there is none. The search starts at a
/// random port, and skips the ports in `own`, which the same Service already uses.
fn any_free_node_port(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    protocol: Protocol,
    random: &mut Random,
    own: &[(Protocol, Port)],
) -> Option<Port> {
    let range = config.node_port_range();
    let size = u128::from(range.end() - range.start()) + 1;
    let offset = u16::try_from(random.below(size)).expect("the range holds at most 65,535 ports");
    let start = range.start().saturating_add(offset);
    free_node_port(snapshot, protocol, start, *range.end(), own)
        .or_else(|| free_node_port(snapshot, protocol, *range.start(), *range.end(), own))
}

/// Returns the first node port from `start` to `end` that no Service in the snapshot uses and that is not in
/// `own`; `None` if there is none.
fn free_node_port(
    snapshot: &Snapshot,
    protocol: Protocol,
    mut start: u16,
    end: u16,
    own: &[(Protocol, Port)],
) -> Option<Port> {
    loop {
        let free = Port::new(snapshot.first_free_node_port(protocol, start, end)?)?;
        if !own.contains(&(protocol, free)) {
            return Some(free);
        }
        start = free.get().checked_add(1).filter(|next| *next <= end)?;
    }
}

/// Returns the usable addresses of a range as integers: all except the network address (for IPv6 the
/// subnet-router anycast address, RFC 4291 §2.6.1) and the broadcast address of an IPv4 range.
fn host_numbers(range: IpNet) -> std::ops::RangeInclusive<u128> {
    let (first, last) = (to_number(range.network()), to_number(range.broadcast()));
    match IpFamily::of_net(&range) {
        IpFamily::V4 => first + 1..=last - 1,
        IpFamily::V6 => first + 1..=last,
    }
}

fn free_address(snapshot: &Snapshot, range: IpNet, random: &mut Random) -> Option<IpAddr> {
    let family = IpFamily::of_net(&range);
    let (first, last) = host_numbers(range).into_inner();
    let size = last - first + 1;
    let by_hand = (size / 16).clamp(BY_HAND_MIN, BY_HAND_MAX).min(size / 2);
    let start = first + by_hand + random.below(size - by_hand);
    let free = snapshot
        .first_free_address(family, start, last)
        .or_else(|| snapshot.first_free_address(family, first + by_hand, last))
        .or_else(|| snapshot.first_free_address(family, first, last))?;
    from_number(family, free)
}

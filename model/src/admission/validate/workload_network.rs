//! Validation rules of WorkloadNetworks.

use ipnet::IpNet;

use super::{check_length, check_network, check_unique, interface::is_file_name, pool::check_selectors};
use crate::{
    kinds::attachment::INTERFACE_LENGTH_MAX,
    kinds::metadata::check_key,
    kinds::workload::NETWORK_NAMESPACE_LENGTH_MAX,
    kinds::workload_network::{
        BLOCK_SIZE_V4_MAX, BLOCK_SIZE_V4_MIN, BLOCK_SIZE_V6_MAX, BLOCK_SIZE_V6_MIN, BLOCKS_MAX,
        COOLDOWN_SECONDS_MAX, DeclarableInterfaces, Encapsulation, NETWORK_CIDRS_MAX, NETWORK_MTU_MAX,
        NETWORK_MTU_MIN, NETWORK_NAMES_MAX, NETWORK_RANGES_MAX, NETWORK_SELECTORS_MAX, WorkloadNetworkSpec,
    },
    primitives::{
        net::{self, IpFamily},
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn validate(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    if spec.cidrs.is_empty() {
        let message = "must have at least one network";
        found.push(Violation::new("/spec/cidrs", ViolationCode::Required, message));
    }
    validate_block_sizes(spec, found);
    if check_length("/spec/cidrs", spec.cidrs.len(), NETWORK_CIDRS_MAX, found) {
        validate_cidrs(spec, found);
        validate_encapsulation(spec, found);
        validate_block_count(spec, found);
    }
    validate_agents(spec, found);
    validate_interfaces(&spec.interfaces, found);
    validate_ranges(spec, found);
    check_selectors("/spec/nodeSelectors", &spec.node_selectors, NETWORK_SELECTORS_MAX, found);
    if spec.cooldown_seconds > COOLDOWN_SECONDS_MAX {
        let message = format!("must be at most {COOLDOWN_SECONDS_MAX}, not {}", spec.cooldown_seconds);
        found.push(Violation::new("/spec/cooldownSeconds", ViolationCode::Invalid, message));
    }
    if let Some(mtu) = spec.mtu.filter(|mtu| !(NETWORK_MTU_MIN..=NETWORK_MTU_MAX).contains(mtu)) {
        let message = format!("must be between {NETWORK_MTU_MIN} and {NETWORK_MTU_MAX}, not {mtu}");
        found.push(Violation::new("/spec/mtu", ViolationCode::Invalid, message));
    }
}

fn validate_block_sizes(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    let limits = [
        ("ipv4", spec.block_size.ipv4, BLOCK_SIZE_V4_MIN, BLOCK_SIZE_V4_MAX),
        ("ipv6", spec.block_size.ipv6, BLOCK_SIZE_V6_MIN, BLOCK_SIZE_V6_MAX),
    ];
    for (field, size, min, max) in limits {
        if !(min..=max).contains(&size) {
            let message = format!("must be between {min} and {max}, not {size}");
            found.push(Violation::new(format!("/spec/blockSize/{field}"), ViolationCode::Invalid, message));
        }
    }
}

fn validate_cidrs(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    for (index, cidr) in spec.cidrs.iter().enumerate() {
        let at = format!("/spec/cidrs/{index}");
        if !check_network(at.clone(), cidr, found) {
            continue;
        }
        if let Some(why) = net::forbidden_within(cidr.network(), cidr.broadcast()) {
            let message =
                format!("must be an ordinary unicast network; {cidr} contains addresses that are {why}");
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
            continue;
        }
        if let Some(other) = spec.cidrs[..index].iter().find(|other| net::overlaps(other, cidr)) {
            let message = format!("must not overlap {other} of the same WorkloadNetwork");
            found.push(Violation::new(at.clone(), ViolationCode::Overlap, message));
        }
        let size = spec.block_size.of(IpFamily::of_net(cidr));
        if cidr.prefix_len() > size {
            let message =
                format!("must contain at least one block of prefix length {size}; {cidr} is smaller");
            let hint = "choose a larger network, or smaller blocks in spec.blockSize";
            found.push(Violation::new(at, ViolationCode::Invalid, message).hint(hint));
        }
    }
}

/// Checks that the encapsulation carries the IP families of the networks.
fn validate_encapsulation(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    let v6 = spec.cidrs.iter().find(|cidr| IpFamily::of_net(cidr) == IpFamily::V6);
    let Some(v6) = v6.filter(|_| spec.encapsulation == Encapsulation::Ipip) else { return };
    let message = format!("must be Vxlan or None, because Ipip carries IPv4 only and {v6} is in spec.cidrs");
    let hint = "write the IPv6 networks into another WorkloadNetwork, or choose Vxlan";
    found.push(Violation::new("/spec/encapsulation", ViolationCode::Conflict, message).hint(hint));
}

/// Checks the number of IPv4 blocks. IPv6 networks usually have room for more blocks than Nodes ever get.
fn validate_block_count(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    let size = spec.block_size.ipv4;
    let of_cidr = |cidr: &IpNet| {
        1_usize.checked_shl(size.saturating_sub(cidr.prefix_len()).into()).unwrap_or(usize::MAX)
    };
    let v4 = spec.cidrs.iter().filter(|cidr| IpFamily::of_net(cidr) == IpFamily::V4);
    let blocks = v4.map(of_cidr).fold(0, usize::saturating_add);
    if blocks > BLOCKS_MAX {
        let message = format!(
            "must divide spec.cidrs into at most {BLOCKS_MAX} IPv4 blocks; with prefix length {size}, they have {blocks}"
        );
        found.push(
            Violation::new("/spec/blockSize/ipv4", ViolationCode::Invalid, message)
                .hint("choose larger blocks, that is, a smaller prefix length, or smaller networks"),
        );
    }
}

/// Checks the limits for agents.
fn validate_agents(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    check_length("/spec/namespaces/names", spec.namespaces.names.len(), NETWORK_NAMES_MAX, found);
    check_length("/spec/reservedLabels", spec.reserved_labels.len(), NETWORK_NAMES_MAX, found);
    for (index, key) in spec.reserved_labels.iter().enumerate() {
        if let Err(message) = check_key(key) {
            let at = format!("/spec/reservedLabels/{index}");
            found.push(Violation::new(at, ViolationCode::Invalid, message));
        }
    }
}

fn validate_interfaces(interfaces: &DeclarableInterfaces, found: &mut Vec<Violation>) {
    let DeclarableInterfaces { names, network_namespaces } = interfaces;
    let lists = [
        ("names", names, INTERFACE_LENGTH_MAX),
        ("networkNamespaces", network_namespaces, NETWORK_NAMESPACE_LENGTH_MAX),
    ];
    for (field, patterns, length_max) in lists {
        check_length(&format!("/spec/interfaces/{field}"), patterns.len(), NETWORK_NAMES_MAX, found);
        for (index, pattern) in patterns.iter().enumerate() {
            let prefix = pattern.strip_suffix('*').unwrap_or(pattern);
            let is_any = prefix.is_empty() && !pattern.is_empty();
            if !is_any && !is_file_name(prefix, length_max) {
                let message = format!(
                    "must have 1 to {length_max} letters, digits, `_`, `.` and `-`, with `*` at the end for any \
                     further ones, not `{}`",
                    pattern.escape_debug()
                );
                let at = format!("/spec/interfaces/{field}/{index}");
                found.push(Violation::new(at, ViolationCode::Invalid, message));
            }
        }
    }
}

fn validate_ranges(spec: &WorkloadNetworkSpec, found: &mut Vec<Violation>) {
    if check_length("/spec/natExcept", spec.nat_except.len(), NETWORK_RANGES_MAX, found) {
        check_unique(spec.nat_except.iter(), |index| format!("/spec/natExcept/{index}"), found);
        for (index, network) in spec.nat_except.iter().enumerate() {
            check_network(format!("/spec/natExcept/{index}"), network, found);
        }
    }
    if !spec.nat_outgoing && !spec.nat_except.is_empty() {
        let message = "must be left out without natOutgoing, which it restricts";
        let hint = "set natOutgoing to true";
        found.push(Violation::new("/spec/natExcept", ViolationCode::Conflict, message).hint(hint));
    }
    if !check_length("/spec/reserved", spec.reserved.len(), NETWORK_RANGES_MAX, found) {
        return;
    }
    check_unique(spec.reserved.iter(), |index| format!("/spec/reserved/{index}"), found);
    for (index, reserved) in spec.reserved.iter().enumerate() {
        if !spec.cidrs.iter().any(|cidr: &IpNet| reserved.overlaps_net(cidr)) {
            let message = format!("must lie in the WorkloadNetwork; {reserved} does not");
            found.push(Violation::new(format!("/spec/reserved/{index}"), ViolationCode::Invalid, message));
        }
    }
}

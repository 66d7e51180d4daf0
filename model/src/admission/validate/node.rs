//! Validation rules of a Node spec.

use ipnet::IpNet;

use super::{bgp::validate_node, check_address, check_length, check_network, check_unique};
use crate::{
    kinds::node::{
        MARK_BIT_MAX, NODE_ADDRESSES_MAX, NODE_NETWORKS_MAX, NODE_WORKLOAD_CIDRS_MAX, NodeSpec, ProxyOptions,
    },
    primitives::{
        net,
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn validate(spec: &NodeSpec, found: &mut Vec<Violation>) {
    check_length("/spec/addresses", spec.addresses.len(), NODE_ADDRESSES_MAX, found);
    check_unique(spec.addresses.iter(), |index| format!("/spec/addresses/{index}"), found);
    for (index, address) in spec.addresses.iter().enumerate() {
        check_address(format!("/spec/addresses/{index}"), *address, found);
    }
    if check_length("/spec/workloadCIDRs", spec.workload_cidrs.len(), NODE_WORKLOAD_CIDRS_MAX, found) {
        validate_cidrs(spec, found);
    }
    validate_networks("/spec/proxy/clusterCIDRs", &spec.proxy.cluster_cidrs, found);
    validate_networks("/spec/proxy/nodePortAddresses", &spec.proxy.node_port_addresses, found);
    validate_marks(&spec.proxy, found);
    if let Some(maintenance) = &spec.maintenance {
        maintenance.validate("/spec/maintenance", found);
    }
    if let Some(bgp) = &spec.bgp {
        validate_node(bgp, found);
    }
}

fn validate_cidrs(spec: &NodeSpec, found: &mut Vec<Violation>) {
    for (index, cidr) in spec.workload_cidrs.iter().enumerate() {
        let at = format!("/spec/workloadCIDRs/{index}");
        if !check_network(at.clone(), cidr, found) {
            continue;
        }
        if let Some(why) = net::forbidden_within(cidr.network(), cidr.broadcast()) {
            let message =
                format!("must be an ordinary unicast network; {cidr} contains addresses that are {why}");
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        } else if let Some(other) =
            spec.workload_cidrs[..index].iter().find(|other| net::overlaps(other, cidr))
        {
            let message = format!("must not overlap {other} of the same Node");
            found.push(Violation::new(at, ViolationCode::Overlap, message));
        }
    }
}

/// Checks a list of networks of a Node's proxy options. Networks may overlap, and `0.0.0.0/0` and `::/0` are
/// permitted.
fn validate_networks(at: &str, networks: &[IpNet], found: &mut Vec<Violation>) {
    if !check_length(at, networks.len(), NODE_NETWORKS_MAX, found) {
        return;
    }
    check_unique(networks.iter(), |index| format!("{at}/{index}"), found);
    for (index, network) in networks.iter().enumerate() {
        let at = format!("{at}/{index}");
        let is_everything = network.prefix_len() == 0;
        if check_network(at.clone(), network, found)
            && !is_everything
            && let Some(why) = net::forbidden(network.network())
        {
            let message = format!(
                "must be an ordinary unicast network; {network} begins with an address that is {why}"
            );
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        }
    }
}

fn validate_marks(proxy: &ProxyOptions, found: &mut Vec<Violation>) {
    let bits = [("masqueradeBit", proxy.masquerade_bit), ("dropBit", proxy.drop_bit)];
    for (field, bit) in bits.iter().filter_map(|(field, bit)| Some((field, (*bit)?))) {
        if bit > MARK_BIT_MAX {
            let message = format!("must be between 0 and {MARK_BIT_MAX}, not {bit}");
            found.push(Violation::new(format!("/spec/proxy/{field}"), ViolationCode::Invalid, message));
        }
    }
    if proxy.masquerade_mark() == proxy.drop_mark() {
        let field = if proxy.drop_bit.is_some() { "dropBit" } else { "masqueradeBit" };
        let message = "must be two different bits: one mark cannot ask for masquerading and for dropping";
        let hint = "masqueradeBit is 14 and dropBit is 15 when left out";
        found.push(
            Violation::new(format!("/spec/proxy/{field}"), ViolationCode::Conflict, message).hint(hint),
        );
    }
}

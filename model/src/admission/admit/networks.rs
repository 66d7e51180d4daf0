//! Admission rules between WorkloadNetworks and other objects: the addresses of workloads are those of no Service, pool
//! or Node.

use std::net::IpAddr;

use ipnet::IpNet;

use super::staged_object::StagedObject;
use crate::{
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        address_pool::AddressRange,
        resource::{Kind, ObjectKey},
        workload_network::{NETWORKS_MAX, WorkloadNetworkSpec},
    },
    primitives::{
        net,
        violation::{Violation, ViolationCode},
    },
};

/// Checks that the networks of a WorkloadNetwork overlap no other WorkloadNetwork, pool, Service range or network of a
/// Node, and contain no address of a Node or Service. The snapshot does not contain the checked object.
pub(super) fn check(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &WorkloadNetworkSpec,
    found: &mut Vec<Violation>,
) {
    if snapshot.count(Kind::WorkloadNetwork) >= NETWORKS_MAX {
        let message =
            format!("must be one of at most {NETWORKS_MAX} WorkloadNetworks; there are as many already");
        let hint = "add the networks to spec.cidrs of another WorkloadNetwork";
        found.push(Violation::new("/metadata/name", ViolationCode::TooLong, message).hint(hint));
    }
    for (index, cidr) in spec.cidrs.iter().enumerate() {
        check_cidr(snapshot, config, &format!("/spec/cidrs/{index}"), cidr, found);
    }
}

fn check_cidr(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    at: &str,
    cidr: &IpNet,
    found: &mut Vec<Violation>,
) {
    let hint = "choose a network that nothing else uses";
    let mut overlap = |what: String| {
        let message = format!("must not overlap {what}; {cidr} does");
        found.push(Violation::new(at, ViolationCode::Overlap, message).hint(hint));
    };
    if let Some((other, name)) = snapshot.workload_network_overlapping(cidr) {
        overlap(format!("{other} of WorkloadNetwork {name}"));
    }
    if let Some(range) = config.service_cidrs().iter().find(|range| net::overlaps(range, cidr)) {
        overlap(format!("the range of virtual addresses, {range}"));
    }
    let mut of_nodes = snapshot.workload_cidrs_of_nodes();
    if let Some((other, node)) = of_nodes.find(|(other, _)| net::overlaps(other, cidr)) {
        overlap(format!("the workload network {other} of Node {node}"));
    }
    let range = AddressRange::Net(*cidr);
    if let Some(pool) = snapshot.pool_overlapping(&range) {
        overlap(format!("AddressPool {pool}"));
    }
    let mut holds = |address: IpAddr, what: String| {
        let message = format!("must not hold {address}, which is {what}");
        found.push(Violation::new(at, ViolationCode::AddressTaken, message).hint(hint));
    };
    if let Some((address, node)) = snapshot.node_address_in(&range, |_| false) {
        holds(address, format!("an address of Node {node}"));
    }
    if let Some((address, service)) = snapshot.external_ip_in(&range) {
        holds(address, format!("an external IP of Service {service}"));
    }
    if let Some(address) = snapshot.held_of_no_pool_in(&range).next()
        && let Some(service) = snapshot.load_balancer_ip_holder(address)
    {
        holds(address, format!("a load balancer address of Service {service}"));
    }
}

/// Checks that the address of a Node does not lie in a WorkloadNetwork.
pub(super) fn check_node_address(
    snapshot: &Snapshot,
    at: String,
    address: IpAddr,
    found: &mut Vec<Violation>,
) {
    if let Some((cidr, name)) = snapshot.network_cidrs().find(|(cidr, _)| cidr.contains(&address)) {
        let message =
            format!("must not be a workload's address; {address} lies in {cidr} of WorkloadNetwork {name}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
}

/// Checks that a workload network of a Node overlaps no WorkloadNetwork.
pub(super) fn check_network_of_node(
    snapshot: &Snapshot,
    at: String,
    network: &IpNet,
    found: &mut Vec<Violation>,
) {
    if let Some((cidr, name)) = snapshot.workload_network_overlapping(network) {
        let message = format!("must not overlap {cidr} of WorkloadNetwork {name}; {network} does");
        let hint = "nodes get blocks of a WorkloadNetwork by themselves; leave the network out";
        found.push(Violation::new(at, ViolationCode::Overlap, message).hint(hint));
    }
}

/// Checks that the Attachments of each WorkloadNetwork that the request changes or deletes keep their addresses. `working`
/// must already contain all objects of the request.
pub(super) fn check_changed(
    before: &Snapshot,
    working: &Snapshot,
    staged: &[StagedObject],
    pruned: &[ObjectKey],
    found: &mut Vec<Violation>,
) {
    let of_staged = staged.iter().map(|one| (&one.key, Some(one)));
    for (key, staged_object) in of_staged.chain(pruned.iter().map(|key| (key, None))) {
        if key.kind != Kind::WorkloadNetwork {
            continue;
        }
        let kept = working.workload_network(&key.name);
        let is_kept =
            |address: IpAddr| kept.is_some_and(|spec| spec.cidrs.iter().any(|cidr| cidr.contains(&address)));
        let cidrs = before.workload_network(&key.name).map(|old| &old.cidrs[..]).unwrap_or_default();
        let mut lost = cidrs.iter().flat_map(|cidr| before.attached_in(cidr)).filter(|ip| !is_kept(*ip));
        let Some(address) = lost.next() else { continue };
        let attachment = before.attachment_with(address).map(ToString::to_string).unwrap_or_default();
        let (pointer, message) = if kept.is_some() {
            let message = format!(
                "must contain the addresses of Attachments; {address} of Attachment {attachment} lies outside"
            );
            ("/spec/cidrs", message)
        } else {
            ("", format!("{key} must stay while Attachments have its addresses: {address} of {attachment}"))
        };
        let violation = Violation::new(pointer, ViolationCode::InUse, message)
            .hint("end the workloads with these addresses first");
        found.push(match staged_object {
            Some(staged_object) => staged_object.place(violation),
            None => violation,
        });
    }
}

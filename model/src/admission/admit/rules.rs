//! Admission rules for the placement of addresses: virtual addresses, workload addresses and node addresses must
//! be disjoint.

use std::{net::IpAddr, sync::Arc};

use super::{networks, pools};
use crate::{
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        dns_zone::DnsZoneSpec,
        node::NodeSpec,
        resource::{Kind, Object, Spec},
        service::ServiceSpec,
    },
    primitives::{
        net,
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn check(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    object: &Object,
    found: &mut Vec<Violation>,
) {
    for (at, address) in object.spec.endpoint_addresses() {
        outside_service_range(config, at, address, found);
    }
    if let Some(spec) = object.as_service() {
        check_external_ips(snapshot, config, spec, found);
    }
    if let Some(spec) = object.as_address_pool() {
        pools::check(snapshot, config, spec, found);
    }
    if let Some(spec) = object.as_node() {
        check_node(snapshot, config, spec, found);
    }
    if let Some(spec) = object.as_workload_network() {
        networks::check(snapshot, config, spec, found);
    }
    if let Some(spec) = object.as_dns_zone() {
        check_dns_zone(snapshot, spec, found);
    }
}

/// Checks that no other DnsZone has the same zone. The snapshot does not contain the checked object.
fn check_dns_zone(snapshot: &Snapshot, spec: &DnsZoneSpec, found: &mut Vec<Violation>) {
    if let Some(other) = snapshot.dns_zone_named(spec.zone.as_str()) {
        let message = format!("must be of one DnsZone alone; DnsZone {other} has {}", spec.zone);
        let hint = "put the records into that DnsZone, or delete it first";
        found.push(Violation::new("/spec/zone", ViolationCode::Duplicate, message).hint(hint));
    }
}

fn check_node(snapshot: &Snapshot, config: &ClusterConfig, spec: &NodeSpec, found: &mut Vec<Violation>) {
    for (index, address) in spec.addresses.iter().enumerate() {
        let at = format!("/spec/addresses/{index}");
        outside_service_range(config, at.clone(), *address, found);
        pools::check_node_address(snapshot, at.clone(), *address, found);
        networks::check_node_address(snapshot, at.clone(), *address, found);
        if let Some(holder) = snapshot.load_balancer_ip_holder(*address) {
            let message =
                format!("must not be a load balancer address; {address} is one of Service {holder}");
            let violation = Violation::new(at, ViolationCode::AddressTaken, message);
            found.push(violation.naming(&holder.namespace, &holder.name));
        }
    }
    check_router_id(snapshot, spec, found);
    for (index, cidr) in spec.workload_cidrs.iter().enumerate() {
        if let Some(range) = config.service_cidrs().iter().find(|range| net::overlaps(range, cidr)) {
            let message = format!("must not overlap the range of virtual addresses, {range}");
            let at = format!("/spec/workloadCIDRs/{index}");
            found.push(Violation::new(at, ViolationCode::Overlap, message));
        }
        let at = format!("/spec/workloadCIDRs/{index}");
        networks::check_network_of_node(snapshot, at.clone(), cidr, found);
        pools::check_workload_network(snapshot, at, cidr, found);
    }
}

/// Checks that no other Node has the same BGP Identifier, because a router cannot distinguish two neighbors with
/// one identifier (RFC 4271 §6.8).
fn check_router_id(snapshot: &Snapshot, spec: &NodeSpec, found: &mut Vec<Violation>) {
    let id_of = |spec: &NodeSpec| spec.bgp.as_ref().and_then(|bgp| bgp.router_id);
    let Some(id) = id_of(spec) else { return };
    let has_id =
        |object: &&Arc<Object>| matches!(&object.spec, Spec::Node(other) if id_of(other) == Some(id));
    if let Some(holder) = snapshot.list(Kind::Node, None, None).find(has_id) {
        let message = format!("must be of one Node alone; Node {} has {id}", holder.metadata.name);
        found.push(Violation::new("/spec/bgp/routerId", ViolationCode::Duplicate, message));
    }
}

fn outside_service_range(config: &ClusterConfig, at: String, address: IpAddr, found: &mut Vec<Violation>) {
    if let Some(range) = config.service_cidr_of(address) {
        let message = format!("must not be a virtual address; {address} lies in the Service range {range}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
}

/// Checks that the external IPs of a Service lie in allowed ranges, and that no pool, workload network or other
/// Service uses them. Load balancer addresses are checked during their allocation.
fn check_external_ips(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &ServiceSpec,
    found: &mut Vec<Violation>,
) {
    for (index, address) in spec.external_ips.iter().enumerate() {
        let at = format!("/spec/externalIPs/{index}");
        if let Some(pool) = snapshot.pool_of(*address) {
            let message = format!("must not lie in an address pool; {address} lies in AddressPool {pool}");
            let hint = "ask for it in spec.loadBalancer.addresses, or choose an address of no pool";
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message).hint(hint));
            continue;
        }
        if let Some(holder) = snapshot.load_balancer_ip_holder(*address) {
            let message =
                format!("must not be a load balancer address; {address} is one of Service {holder}");
            let violation = Violation::new(at, ViolationCode::AddressTaken, message);
            found.push(violation.naming(&holder.namespace, &holder.name));
            continue;
        }
        check_external_ip(snapshot, config, spec, &at, *address, found);
    }
}

fn check_external_ip(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &ServiceSpec,
    at: &str,
    address: IpAddr,
    found: &mut Vec<Violation>,
) {
    let allowed = config.external_ip_cidrs();
    if !allowed.iter().any(|range| range.contains(&address)) {
        let hint = if allowed.is_empty() {
            "no range is allowed: start the control server with --allow-external-ip RANGE".to_owned()
        } else {
            let ranges: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            format!("allowed by --allow-external-ip: {}", ranges.join(", "))
        };
        let message = format!("must lie in a range that the control server allows; {address} does not");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message).hint(hint));
    }
    outside_service_range(config, at.to_owned(), address, found);
    if let Some(cidr) = snapshot.workload_cidrs().find(|cidr| cidr.contains(&address)) {
        let message =
            format!("must not be a workload's address; {address} lies in the workload network {cidr}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
    for port in &spec.ports {
        if let Some(holder) = snapshot.routed_holder(address, port.protocol, port.range()) {
            let what = format!("{address} port {}/{}", port.range(), port.protocol.as_str());
            let taken = super::taken(at.to_owned(), ViolationCode::AddressTaken, &what, holder);
            found.push(taken.hint("take other ports or another address, or change the holder first"));
        }
    }
}

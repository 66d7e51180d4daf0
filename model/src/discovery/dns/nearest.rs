//! Choice of the load balancer addresses that are near to a client, if a name has several.

use std::net::IpAddr;

use super::{record::Answer, zone::Zone};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, ObjectKey},
    primitives::name::{Label, Name},
};

/// Leaves the load balancer addresses out of an answer that are far from the client, if others are near: those that a node in
/// the failure zone of the client announces by ARP or NDP, and those that are announced by BGP, to which the network finds a
/// near node. The failure zone is that of the Workload with the address of the client, of its Node, or of the Node with the
/// address. Answers to other clients, and without a near address, are not changed.
#[must_use]
pub fn nearest(zone: &Zone, client: IpAddr, mut found: Answer) -> Answer {
    let addresses = || found.answers.iter().filter_map(|record| record.data.address());
    if addresses().nth(1).is_none() {
        return found;
    }
    let Some(client_zone) = failure_zone_of(zone, client) else { return found };
    let is_near = |address| is_near(zone.snapshot(), address, client_zone);
    if addresses().any(is_near) {
        found.answers.retain(|record| record.data.address().is_none_or(is_near));
    }
    found
}

fn failure_zone_of(zone: &Zone, client: IpAddr) -> Option<&Label> {
    let snapshot = zone.snapshot();
    let workload = zone.workload_at(client).and_then(|key| snapshot.get(key)?.as_workload());
    match workload {
        Some(workload) => workload.zone.as_ref().or_else(|| zone_of_node(snapshot, workload.node.as_ref()?)),
        None => zone_of_node(snapshot, snapshot.node_with_address(client)?),
    }
}

fn zone_of_node<'a>(snapshot: &'a Snapshot, node: &Name) -> Option<&'a Label> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    snapshot.get(&key)?.as_node()?.zone.as_ref()
}

/// Returns true if the owner of a load balancer address, the first candidate that is not lost, is in a failure zone, or the
/// address is announced by BGP.
fn is_near(snapshot: &Snapshot, address: IpAddr, client_zone: &Label) -> bool {
    let Some(spec) = snapshot.address(address).and_then(|object| object.as_address()) else { return false };
    let owner = spec.announcement.candidates.iter().find(|candidate| !snapshot.is_lost(&candidate.node));
    let zone = owner.and_then(|owner| zone_of_node(snapshot, &owner.node));
    zone == Some(client_zone) || !spec.announcement.advertisements.is_empty()
}

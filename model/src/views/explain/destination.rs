//! Object that has the destination address of a packet, and the Services that may handle packets to it.

use std::{collections::BTreeSet, net::IpAddr};

use super::{About, Step, StepState};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{resource::ServiceKey, service::Protocol},
    observed::rollup::{AnnouncementInputs, address_status},
    primitives::{name::Name, quantity::Port},
};

/// Returns the Services whose packet programs may match packets to an address, and to a port if one is given.
pub(super) fn holders(
    snapshot: &Snapshot,
    address: IpAddr,
    at: Option<(Protocol, Port)>,
) -> BTreeSet<ServiceKey> {
    let mut holders = BTreeSet::new();
    holders.extend(snapshot.cluster_ip_holder(address).cloned());
    if let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) {
        holders.extend(record.services.iter().cloned());
    }
    holders.extend(snapshot.external_ip_holder(address).cloned());
    if let Some((protocol, port)) = at {
        holders.extend(snapshot.routed_holder(address, protocol, port.into()).cloned());
        holders.extend(snapshot.node_port_holder(protocol, port).cloned());
    }
    holders
}

/// Returns the steps that explain a destination address: the object to which the address belongs and, for a
/// load balancer address, the nodes that announce it.
pub(super) fn steps(of: &AnnouncementInputs<'_>, address: IpAddr) -> Vec<Step> {
    let snapshot = of.scene.snapshot;
    let about = About::Destination;
    if let Some(service) = snapshot.cluster_ip_holder(address) {
        return vec![Step::fine(about, format!("{address} is the cluster IP of Service {service}"))];
    }
    if let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) {
        return recorded(of, record);
    }
    if let Some(service) = snapshot.external_ip_holder(address) {
        let why = "external IPs are not announced; routes to the nodes are configured elsewhere";
        return vec![
            Step::fine(about, format!("{address} is an external IP of Service {service}")).because(why),
        ];
    }
    if let Some(node) = node_of(of, address) {
        return vec![Step::fine(about, format!("{address} is an address of Node {node}"))];
    }
    if let Some(pool) = snapshot.pool_of(address) {
        let step = Step::broken(about, format!("no Service has {address}"));
        let hint = "a Service of type LoadBalancer gets it by asking for it (spec.loadBalancer.addresses), or by chance";
        return vec![
            step.because(format!("it lies in pool {pool} and is free, or reserved there")).hint(hint),
        ];
    }
    if let Some(net) = snapshot.workload_cidrs().find(|net| net.contains(&address)) {
        let step = Step::fine(about, format!("{address} lies in the workload network {net}"));
        return vec![step.because("packets to it concern no Service")];
    }
    let step = Step::broken(about, format!("{address} is not known"));
    let why = "it is no address of a Service, of a Node, of a pool or of a workload network";
    let hint = "`tidegate get services -A` and `tidegate get addresses` list all addresses";
    vec![step.because(why).hint(hint)]
}

fn recorded(of: &AnnouncementInputs<'_>, record: &crate::kinds::address::AddressSpec) -> Vec<Step> {
    let address = record.address;
    if record.services.is_empty() {
        let step = Step::broken(About::Destination, format!("no Service has {address}"));
        let why = record.quarantine.as_ref().map_or_else(
            || "it was freed".to_owned(),
            |held| format!("it is held back until {}, for Service {} that had it", held.until, held.former),
        );
        return vec![step.because(why)];
    }
    let names: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    let outcome = format!("{address} is a load balancer address of Service {}", names.join(" and "));
    let pool = record.pool.as_ref().map_or_else(|| "of no pool".to_owned(), |pool| format!("of pool {pool}"));
    vec![Step::fine(About::Destination, outcome).because(pool), announced(of, record)]
}

/// Returns the step that explains the announcement of a load balancer address.
fn announced(of: &AnnouncementInputs<'_>, record: &crate::kinds::address::AddressSpec) -> Step {
    let status = address_status(of, record);
    let Some(condition) = status.conditions.first() else {
        return Step::new(About::Announced, StepState::Unknown, "its announcement is not known");
    };
    let mut why = Vec::new();
    let ranked: Vec<_> =
        record.announcement.candidates.iter().map(|candidate| candidate.node.to_string()).collect();
    if !ranked.is_empty() {
        why.push(format!("ranked {}", ranked.join(", ")));
    }
    why.extend(status.nodes.iter().map(|(node, said)| {
        let reason = &said.reason;
        format!("{node} says {:?} since {} ({reason})", said.role, said.since)
    }));
    if let Some(bgp) = &status.by_bgp {
        let names =
            |names: Vec<String>| if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
        let by = names(bgp.announced_by.iter().map(ToString::to_string).collect());
        why.push(format!("by BGP from {by} to {}", names(bgp.announced_to.to_vec())));
        why.extend(bgp.not_by.iter().map(|(node, reason)| format!("not from {node}: {reason}")));
    }
    Step::of(About::Announced, condition).because(why.join("; "))
}

/// Returns the nodes that receive traffic for a load balancer address by ARP, NDP or BGP, each with the reason.
pub(super) fn announcers(of: &AnnouncementInputs<'_>, address: IpAddr) -> Vec<(Name, String)> {
    let record = of.scene.snapshot.address(address).and_then(|object| object.as_address());
    let Some(status) = record.map(|record| address_status(of, record)) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(owner) = status.owner {
        found.push((owner, format!("it answers for {address} on the wire")));
    }
    for (node, _, route) in of.bgp.of_address(address) {
        let routers: Vec<_> = route.announced_to().collect();
        if !routers.is_empty() && found.iter().all(|(known, _)| known != node) {
            found.push((node.clone(), format!("it announces {address} to {}", routers.join(", "))));
        }
    }
    found
}

/// True if the address belongs to a Service. In ipvs mode, such addresses are configured on every node and
/// reported by its agent, but do not identify a Node.
pub(super) fn is_of_service(snapshot: &Snapshot, address: IpAddr) -> bool {
    snapshot.cluster_ip_holder(address).is_some()
        || snapshot.address(address).is_some()
        || snapshot.external_ip_holder(address).is_some()
}

/// Returns the Node that has an address according to its spec or to the report of its agent, if any.
pub(super) fn node_of(of: &AnnouncementInputs<'_>, address: IpAddr) -> Option<Name> {
    if is_of_service(of.scene.snapshot, address) {
        return None;
    }
    let stated = of.scene.snapshot.node_with_address(address).cloned();
    let reports = || {
        let mut views = of.scene.nodes.iter();
        views.find(|view| view.report.is_some_and(|report| report.facts.addresses.contains(&address)))
    };
    stated.or_else(|| reports().map(|view| view.name.clone()))
}

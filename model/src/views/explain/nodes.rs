//! Selection of the nodes through which a packet may enter the cluster.

use super::destination::{announcers, node_of};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        node::NodeSpec,
        resource::{Kind, ObjectKey},
    },
    observed::rollup::AnnouncementInputs,
    primitives::{name::Name, net::IpFamily},
    wire::trace::Packet,
};

/// Returns the spec of a Node, or `None` if it does not exist.
pub(super) fn spec_of<'a>(snapshot: &'a Snapshot, node: &Name) -> Option<&'a NodeSpec> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    snapshot.get(&key)?.as_node()
}

/// Returns the nodes through which a packet may enter the cluster, each with the reason: only the node `at`
/// if given, otherwise the nodes that follow from the source or destination address. If neither limits the
/// nodes, returns all of them.
pub(super) fn nodes_for(
    of: &AnnouncementInputs<'_>,
    packet: &Packet,
    at: Option<&Name>,
) -> Vec<(Name, String)> {
    if let Some(node) = at {
        return vec![(node.clone(), "it was asked for".to_owned())];
    }
    let Packet { source, destination, .. } = packet;
    if let Some(node) = node_of(of, *source) {
        return vec![(node, format!("{source} is its own address"))];
    }
    if let Some(node) = home_of(of, packet) {
        return vec![(node, format!("{source} is a workload there"))];
    }
    if let Some(node) = node_of(of, *destination) {
        return vec![(node, format!("{destination} is its own address"))];
    }
    let announcers = announcers(of, *destination);
    if !announcers.is_empty() {
        return announcers;
    }
    let why = "the packet may enter through any node";
    of.scene.nodes.iter().map(|view| (view.name.clone(), why.to_owned())).collect()
}

/// Returns the Node whose workload networks contain the source of the packet, if any.
fn home_of(of: &AnnouncementInputs<'_>, packet: &Packet) -> Option<Name> {
    let is_home = |name: &&Name| {
        let spec = spec_of(of.scene.snapshot, name);
        spec.is_some_and(|spec| spec.workload_cidrs.iter().any(|net| net.contains(&packet.source)))
    };
    let mut names = of.scene.nodes.iter().map(|view| view.name);
    names.find(is_home).cloned()
}

/// Returns the first address of a Node in an IP family, as the destination of a sample packet to a node port;
/// `None` if the Node has none.
pub(super) fn address_of(
    of: &AnnouncementInputs<'_>,
    node: &Name,
    family: IpFamily,
) -> Option<std::net::IpAddr> {
    let stated = spec_of(of.scene.snapshot, node).map(|spec| spec.addresses.as_slice()).unwrap_or_default();
    let view = of.scene.nodes.iter().find(|view| view.name == node);
    let reported = view.and_then(|view| view.report).map(|report| report.facts.addresses.as_slice());
    let mut all = stated.iter().chain(reported.unwrap_or_default());
    all.find(|address| IpFamily::of(**address) == family).copied()
}

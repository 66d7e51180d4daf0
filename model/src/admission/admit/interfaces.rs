//! Admission rules for interfaces that Workloads declare: the WorkloadNetwork must permit them, and the addresses must be of
//! blocks of the Node.

use std::net::IpAddr;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        attachment::{AttachmentKind, WorkloadKey},
        resource::Object,
        workload::{INTERFACES_OF_NODE_MAX, WorkloadInterface, WorkloadSpec},
        workload_network::WorkloadNetworkSpec,
    },
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
};

/// Checks the interface that a Workload declares. An unchanged one stays valid, also if the WorkloadNetwork no longer
/// permits it. The snapshot contains all objects of the request.
pub(super) fn check(snapshot: &Snapshot, old: Option<&Object>, object: &Object, found: &mut Vec<Violation>) {
    let Some(spec) = object.as_workload() else { return };
    let (Some(interface), Some(node)) = (&spec.interface, &spec.node) else { return };
    let Some(namespace) = &object.metadata.namespace else { return };
    let is_same = |old: &WorkloadSpec| {
        let has_addresses = spec.addresses.is_empty() || old.addresses == spec.addresses;
        old.interface == spec.interface && old.node == spec.node && has_addresses
    };
    if old.and_then(Object::as_workload).is_some_and(is_same) {
        return;
    }
    let key = WorkloadKey { namespace: namespace.clone(), name: object.metadata.name.clone() };
    match snapshot.workload_network(&interface.network) {
        Some(network) => check_permission(&key, interface, network, found),
        None => {
            let message = format!("must be the name of a WorkloadNetwork; there is no {}", interface.network);
            found.push(Violation::new("/spec/interface/network", ViolationCode::NotFound, message));
        }
    }
    for (index, address) in spec.addresses.iter().enumerate() {
        let at = format!("/spec/addresses/{index}");
        check_address(snapshot, &key, interface, node, at, *address, found);
    }
    check_others(snapshot, &key, interface, node, &spec.addresses, found);
}

/// Checks the permission of the WorkloadNetwork: otherwise, writers of a namespace could take any interface of a Node.
fn check_permission(
    key: &WorkloadKey,
    interface: &WorkloadInterface,
    network: &WorkloadNetworkSpec,
    found: &mut Vec<Violation>,
) {
    let name = &interface.network;
    if !interface.is_permitted(&network.interfaces) {
        let (field, text, list) = match interface.kind {
            AttachmentKind::Veth => {
                ("networkNamespace", interface.network_namespace.as_deref(), "networkNamespaces")
            }
            AttachmentKind::Tap | AttachmentKind::Host => ("name", Some(interface.name.as_str()), "names"),
        };
        let text = text.unwrap_or_default();
        let message = format!("must be permitted by WorkloadNetwork {name}, which does not permit `{text}`");
        let hint = format!("add it to spec.interfaces.{list} of the WorkloadNetwork");
        let at = format!("/spec/interface/{field}");
        found.push(Violation::new(at, ViolationCode::Forbidden, message).hint(hint));
    }
    if !network.namespaces.permit(&key.namespace) {
        let message = format!(
            "must be a WorkloadNetwork that permits namespace {}; {name} does not permit it",
            key.namespace
        );
        let hint = "add the namespace to spec.namespaces.names of the WorkloadNetwork";
        found.push(Violation::new("/spec/interface/network", ViolationCode::Forbidden, message).hint(hint));
    }
}

fn check_address(
    snapshot: &Snapshot,
    key: &WorkloadKey,
    interface: &WorkloadInterface,
    node: &Name,
    at: String,
    address: IpAddr,
    found: &mut Vec<Violation>,
) {
    let network = &interface.network;
    let block = snapshot.block_with(address);
    if !block.is_some_and(|block| block.is_held() && block.node == *node && block.network == *network) {
        let message = format!(
            "must be of a block of WorkloadNetwork {network} that Node {node} has; {address} is of none"
        );
        let hint = "see `tidegate get blocks`, or leave the addresses out, so that the agent assigns some";
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message).hint(hint));
        return;
    }
    let name = snapshot.attachment_with(address);
    let own = snapshot.attachments_of_workload(key).any(|own| Some(&own.metadata.name) == name);
    if let Some(other) = name.filter(|_| !own) {
        let message = format!("must be free; {address} is an address of Attachment {other}");
        found.push(Violation::new(at, ViolationCode::AddressTaken, message));
    }
}

/// Checks the interface against those that other Workloads declare on the Node.
fn check_others(
    snapshot: &Snapshot,
    key: &WorkloadKey,
    interface: &WorkloadInterface,
    node: &Name,
    addresses: &[IpAddr],
    found: &mut Vec<Violation>,
) {
    let mut count = 0;
    for other in snapshot.declared_on(node).filter(|other| *other != key) {
        count += 1;
        let Some(spec) = snapshot.get(&other.object_key()).and_then(|object| object.as_workload()) else {
            continue;
        };
        for (index, address) in addresses.iter().enumerate().filter(|(_, one)| spec.addresses.contains(one)) {
            let message = format!("must be free; {address} is an address of Workload {other}");
            let at = format!("/spec/addresses/{index}");
            found.push(Violation::new(at, ViolationCode::AddressTaken, message));
        }
        if spec.interface.as_ref().is_some_and(|other_interface| {
            excludes(interface, other_interface, key.namespace == other.namespace)
        }) {
            let message = format!("must not be the interface of Workload {other}: {}", interface.name);
            found.push(Violation::new("/spec/interface/name", ViolationCode::Conflict, message));
        }
    }
    if count >= INTERFACES_OF_NODE_MAX {
        let message =
            format!("must be one of at most {INTERFACES_OF_NODE_MAX} declared interfaces of Node {node}");
        found.push(Violation::new("/spec/interface", ViolationCode::TooLong, message));
    }
}

/// True if two Workloads of a Node cannot declare these interfaces. Several Workloads of one namespace can be behind one
/// interface of the Node.
fn excludes(one: &WorkloadInterface, other: &WorkloadInterface, is_same_namespace: bool) -> bool {
    let is_veth = |interface: &WorkloadInterface| interface.kind == AttachmentKind::Veth;
    match (is_veth(one), is_veth(other)) {
        (true, true) => one.name == other.name && one.network_namespace == other.network_namespace,
        (false, false) => one.name == other.name && (!is_same_namespace || one.kind != other.kind),
        (true, false) | (false, true) => false,
    }
}

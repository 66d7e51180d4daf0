//! Registration of a Node by its own agent. An agent is entitled to the labels of its join token, and to addresses
//! and workload networks that concern no other Node. All else that it requests is recorded in `spec.requested`
//! until an operator accepts it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    cluster::{
        config::{ClusterConfig, REGISTERED_PREFIX_V4_MIN, REGISTERED_PREFIX_V6_MIN},
        snapshot::Snapshot,
    },
    kinds::{
        address_pool::AddressRange,
        metadata::{HOSTNAME_LABEL, Labels},
        node::{NodeRequest, NodeSpec},
        resource::{Object, Spec},
    },
    primitives::net::{self, IpFamily},
};

/// Moves the properties of a Node to `spec.requested` to which its agent is not entitled. `permitted` are the
/// labels of the join token, all of which the Node gets, beside the label [`HOSTNAME_LABEL`] with its own name.
pub(super) fn limit(snapshot: &Snapshot, config: &ClusterConfig, permitted: &Labels, object: &mut Object) {
    let Spec::Node(spec) = &mut object.spec else { return };
    let mut requested =
        NodeRequest { labels: std::mem::take(&mut object.metadata.labels), ..NodeRequest::default() };
    let hostname = requested.labels.remove_entry(HOSTNAME_LABEL);
    let (own, foreign): (Option<_>, Option<_>) = match hostname {
        Some((key, value)) if value == object.metadata.name.as_str() => (Some((key, value)), None),
        other => (None, other),
    };
    requested.labels.extend(foreign);
    requested.labels.retain(|key, value| permitted.get(key) != Some(value));
    object.metadata.labels.clone_from(permitted);
    if let Some((key, value)) = own {
        object.metadata.labels.entry(key).or_insert(value);
    }
    let is_foreign = |address: &IpAddr| {
        snapshot.node_with_address(*address).is_some()
            || snapshot.workload_cidrs().any(|network| network.contains(address))
    };
    (requested.addresses, spec.addresses) = spec.addresses.iter().partition(|address| is_foreign(address));
    (requested.workload_cidrs, spec.workload_cidrs) = divide_networks(snapshot, config, spec);
    spec.requested = requested;
}

/// Divides the workload networks of a new Node into those that its agent may only request and those to which
/// the agent is entitled.
fn divide_networks(snapshot: &Snapshot, config: &ClusterConfig, spec: &NodeSpec) -> (Vec<IpNet>, Vec<IpNet>) {
    let mut room = IpFamily::ALL.map(|family| (family, room_of(family)));
    spec.workload_cidrs.iter().partition(|network| {
        let size = size_of(network);
        let room = room.iter_mut().find(|(family, _)| *family == IpFamily::of_net(network));
        let Some((_, left)) = room.filter(|(_, left)| size <= *left) else { return true };
        let is_requested = !is_in_range(config, network) || is_in_use(snapshot, network);
        if !is_requested {
            *left -= size;
        }
        is_requested
    })
}

fn is_in_range(config: &ClusterConfig, network: &IpNet) -> bool {
    config.workload_ranges().iter().any(|range| range.contains(network))
}

fn is_in_use(snapshot: &Snapshot, network: &IpNet) -> bool {
    snapshot.workload_cidrs().any(|other| net::overlaps(other, network))
        || snapshot.node_address_in(&AddressRange::Net(*network), |_| false).is_some()
}

/// Returns the number of addresses that the workload networks of an agent may have together.
fn room_of(family: IpFamily) -> u128 {
    let prefix = match family {
        IpFamily::V4 => REGISTERED_PREFIX_V4_MIN,
        IpFamily::V6 => REGISTERED_PREFIX_V6_MIN,
    };
    1 << (family.bits() - prefix)
}

/// Returns the number of addresses of a network; that of `::/0` is one too small, so that it fits the type.
fn size_of(network: &IpNet) -> u128 {
    1_u128.checked_shl(u32::from(network.max_prefix_len() - network.prefix_len())).unwrap_or(u128::MAX)
}

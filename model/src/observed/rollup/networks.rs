//! Status of WorkloadNetworks, blocks and Attachments, derived from the stored objects.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{no, yes};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        attachment::{AttachmentSpec, InterfaceFault, InterfaceFaultReason},
        block::BlockSpec,
        condition_reason::ConditionReason,
        resource::Kind,
        selector::Selector,
        workload_network::{BLOCKS_MAX, WorkloadNetworkSpec},
    },
    observed::{
        network_status::{
            AttachmentStatus, BlockStatus, BlockUsage, NODES_LISTED_MAX, WorkloadNetworkStatus,
        },
        status::{Condition, ConditionType},
    },
    primitives::{
        name::Name,
        net::{IpFamily, overlaps},
    },
};

/// Computes the status of a WorkloadNetwork. `service_cidrs` are the ranges of cluster IPs of the control server.
#[must_use]
pub fn workload_network_status(
    snapshot: &Snapshot,
    name: &Name,
    spec: &WorkloadNetworkSpec,
    service_cidrs: &BTreeSet<IpNet>,
) -> WorkloadNetworkStatus {
    let NetworkRoom { conditions, nodes, without, usages } =
        network_room(snapshot, name, spec, service_cidrs);
    let attached = |family| {
        let blocks = snapshot.blocks_in(name).filter(|cidr| IpFamily::of_net(cidr) == family);
        blocks.map(|cidr| count(snapshot.attached_in(cidr))).fold(0, u64::saturating_add)
    };
    let [mut v4, mut v6] = usages;
    (v4.attached, v6.attached) = (attached(IpFamily::V4), attached(IpFamily::V6));
    let nodes_without_block = without.into_iter().take(NODES_LISTED_MAX).collect();
    WorkloadNetworkStatus { conditions, nodes, nodes_without_block, v4, v6 }
}

/// Blocks of a WorkloadNetwork without their Attachments, of which there may be many.
pub struct NetworkRoom {
    /// Conditions of the WorkloadNetwork.
    pub conditions: Vec<Condition>,
    /// Number of the Nodes that the WorkloadNetwork selects.
    pub nodes: u64,
    /// Selected Nodes without a block of one of the IP families.
    pub without: Vec<Name>,
    usages: [BlockUsage; 2],
}

/// Computes the conditions of a WorkloadNetwork, and the Nodes without a block. `service_cidrs` are the ranges of cluster IPs of the
/// control server.
#[must_use]
pub fn network_room(
    snapshot: &Snapshot,
    name: &Name,
    spec: &WorkloadNetworkSpec,
    service_cidrs: &BTreeSet<IpNet>,
) -> NetworkRoom {
    let families: Vec<_> = spec.families().collect();
    let nodes = snapshot.list(Kind::Node, None, None);
    let nodes =
        nodes.filter(|node| Selector::any_matches(&spec.node_selectors, &node.metadata.labels)).count();
    let without = snapshot.lacking_blocks().filter(|(network, _)| network == name);
    let without: Vec<Name> = without.map(|(_, node)| node.clone()).collect();
    let usages = IpFamily::ALL.map(|family| usage(snapshot, name, spec, family));
    let conditions =
        vec![accepted(spec, service_cidrs), has_room(&usages, &families), ready(nodes, &without)];
    NetworkRoom { conditions, nodes: u64::try_from(nodes).unwrap_or(u64::MAX), without, usages }
}

/// Admission rejects such an overlap; the ranges of the server may have changed since.
fn accepted(spec: &WorkloadNetworkSpec, service_cidrs: &BTreeSet<IpNet>) -> Condition {
    let overlap = spec
        .cidrs
        .iter()
        .find_map(|cidr| service_cidrs.iter().find(|range| overlaps(range, cidr)).map(|range| (cidr, range)));
    match overlap {
        None => yes(ConditionType::Accepted, ConditionReason::Valid),
        Some((cidr, range)) => {
            let message = format!("{cidr} overlaps the range of virtual addresses, {range}");
            no(ConditionType::Accepted, ConditionReason::Overlaps, message)
                .hint("start the control servers with another range, or change spec.cidrs")
        }
    }
}

fn has_room(usages: &[BlockUsage; 2], families: &[IpFamily]) -> Condition {
    let full = IpFamily::ALL.into_iter().zip(usages).find(|(family, usage)| {
        families.contains(family) && usage.given.saturating_add(usage.cooling) >= usage.total
    });
    match full {
        None => yes(ConditionType::HasRoom, ConditionReason::BlocksFree),
        Some((family, usage)) => {
            let message = format!(
                "no {} block is free: Nodes have {} of {}, and {} are in their cooldown",
                family.as_str(),
                usage.given,
                usage.total,
                usage.cooling
            );
            no(ConditionType::HasRoom, ConditionReason::BlocksExhausted, message)
                .hint("add a network to spec.cidrs, or choose smaller blocks in spec.blockSize")
        }
    }
}

fn ready(selected: usize, without: &[Name]) -> Condition {
    if selected == 0 {
        let message = "spec.nodeSelectors match no Node".to_owned();
        return no(ConditionType::Ready, ConditionReason::NoNodesSelected, message)
            .hint("label Nodes, or change spec.nodeSelectors");
    }
    let Some(first) = without.first() else {
        return yes(ConditionType::Ready, ConditionReason::BlocksGiven);
    };
    let rest = match without.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    no(
        ConditionType::Ready,
        ConditionReason::NodesWithoutBlock,
        format!("{} of {selected} Nodes have no block: {first}{rest}", without.len()),
    )
    .hint("see condition HasRoom")
}

fn usage(snapshot: &Snapshot, name: &Name, spec: &WorkloadNetworkSpec, family: IpFamily) -> BlockUsage {
    let size = spec.block_size.of(family);
    let is_of_family = |cidr: &&IpNet| IpFamily::of_net(cidr) == family;
    let blocks_of =
        |cidr: &IpNet| 1_u64.checked_shl(size.saturating_sub(cidr.prefix_len()).into()).unwrap_or(u64::MAX);
    let mut usage = BlockUsage {
        total: spec
            .cidrs
            .iter()
            .filter(is_of_family)
            .map(blocks_of)
            .fold(0, u64::saturating_add)
            .min(u64::try_from(BLOCKS_MAX).unwrap_or(u64::MAX)),
        ..BlockUsage::default()
    };
    for cidr in snapshot.blocks_in(name).filter(is_of_family) {
        if !snapshot.block(cidr).is_some_and(BlockSpec::is_held) {
            usage.cooling += 1;
            continue;
        }
        usage.given += 1;
        usage.addresses = usage.addresses.saturating_add(addresses_of(cidr));
    }
    usage
}

/// Returns the number of addresses of a network, at most 2⁶⁴ − 1.
fn addresses_of(cidr: &IpNet) -> u64 {
    1_u64.checked_shl((cidr.max_prefix_len() - cidr.prefix_len()).into()).unwrap_or(u64::MAX)
}

fn count(items: impl Iterator) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}

/// Computes the status of a block.
#[must_use]
pub fn block_status(snapshot: &Snapshot, spec: &BlockSpec) -> BlockStatus {
    let used = match spec.cooldown_until {
        Some(until) => {
            let message = format!("released; no other Node gets the block before {until}");
            no(ConditionType::Used, ConditionReason::CoolingDown, message)
        }
        None if spec.draining => {
            let mut condition = yes(ConditionType::Used, ConditionReason::Draining);
            condition.message = "Attachments keep their addresses; the Node assigns no others".to_owned();
            condition
        }
        None => yes(ConditionType::Used, ConditionReason::BlocksGiven),
    };
    BlockStatus {
        conditions: vec![used],
        addresses: addresses_of(&spec.cidr),
        attached: count(snapshot.attached_in(&spec.cidr)),
    }
}

/// Computes the status of an Attachment.
#[must_use]
pub fn attachment_status(snapshot: &Snapshot, spec: &AttachmentSpec) -> AttachmentStatus {
    let workload = snapshot.get(&spec.workload.object_key()).and_then(|object| object.as_workload());
    let has_all =
        workload.is_some_and(|workload| spec.addresses.iter().all(|ip| workload.addresses.contains(ip)));
    let used = match workload {
        Some(_) if has_all => yes(ConditionType::Used, ConditionReason::Attached),
        Some(_) => {
            let message = format!("Workload {} has other addresses", spec.workload);
            no(ConditionType::Used, ConditionReason::NotAttached, message)
                .hint("write the addresses of the Attachment to spec.addresses of the Workload")
        }
        None => {
            let message = format!("there is no Workload {}", spec.workload);
            no(ConditionType::Used, ConditionReason::NotAttached, message)
                .hint("create the Workload with the addresses of the Attachment")
        }
    };
    let programmed = spec.declared.then(|| attachment_programmed(spec));
    AttachmentStatus { conditions: std::iter::once(used).chain(programmed).collect() }
}

/// Derives the condition of a declared interface from its Attachment.
pub(super) fn attachment_programmed(spec: &AttachmentSpec) -> Condition {
    let Some(InterfaceFault { reason, message }) = &spec.fault else {
        return yes(ConditionType::Programmed, ConditionReason::Attached);
    };
    let reason = match reason {
        InterfaceFaultReason::Missing => ConditionReason::InterfaceMissing,
        InterfaceFaultReason::Refused => ConditionReason::InterfaceRefused,
        InterfaceFaultReason::Failed => ConditionReason::InterfacePending,
    };
    no(ConditionType::Programmed, reason, message.clone())
}

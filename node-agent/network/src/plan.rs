//! Routes and tunnel of a node, derived from the blocks of all nodes. Does no I/O.
//!
//! ```text
//!  block of another node, node on the same segment   block via NODE
//!  block of another node, elsewhere                  block encap ip id VNI dst NODE dev tg-vx
//!  block of this node                                blackhole block
//!  address of a workload on this node                address/32 dev tgXXXXXXXXXXX
//! ```
//! The blackhole drops packets to addresses that no workload has. Without it, they would follow the default route.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::primitives::{name::Name, net::IpFamily};

use crate::desired::{DesiredNetwork, Encapsulation, Uplink};

/// Bytes that VXLAN-GPE adds to a packet over IPv4: 20 for IP, 8 for UDP, 8 for VXLAN.
pub const OVERHEAD_V4: u32 = 36;
/// Bytes that VXLAN-GPE adds to a packet over IPv6: 40 for IP, 8 for UDP, 8 for VXLAN.
pub const OVERHEAD_V6: u32 = 56;
/// MTU of workloads if no interface of the node limits it.
pub const MTU_DEFAULT: u32 = 1500;
/// Minimum MTU of an interface with IPv6 (RFC 8200 §5).
pub const MTU_MIN: u32 = 1280;

/// Next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Packets are dropped.
    Blackhole,
    /// Packets are sent to a node on the same segment.
    Gateway(IpAddr),
    /// Packets are encapsulated and sent to the node with this address.
    Tunnel(IpAddr),
    /// Packets are sent to the workload behind the interface with this index.
    Interface(u32),
}

/// Reason why a node has no route to the block of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreachable {
    /// The node of the block has no address that this node can use.
    NoNodeAddress,
    /// The node is in another subnet, and the network has no encapsulation. Packets follow the other routes of the
    /// machine.
    OtherSubnet,
}

/// Links and routes that a node needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Routes by destination.
    pub routes: BTreeMap<IpNet, Hop>,
    /// MTU of the tunnel device; `None` if no network needs the device.
    pub tunnel_mtu: Option<u32>,
    /// Blocks of other nodes to which the plan has no route.
    pub unreachable: BTreeMap<IpNet, Unreachable>,
}

/// Returns the links and routes of the node `own`. `workloads` has the addresses of the attached workloads with the
/// indexes of their interfaces.
#[must_use]
pub fn plan(
    own: &Name,
    desired: &DesiredNetwork,
    uplinks: &[Uplink],
    workloads: &BTreeMap<IpAddr, u32>,
) -> NetworkPlan {
    let mut plan = NetworkPlan::default();
    for (range, block) in &desired.blocks {
        if block.node == *own {
            plan.routes.insert(*range, Hop::Blackhole);
            continue;
        }
        let settings = desired.networks.get(&block.network);
        let encapsulation = settings.map_or(Encapsulation::None, |settings| settings.encapsulation);
        let nodes = desired.nodes.get(&block.node).map(Vec::as_slice).unwrap_or_default();
        match hop(IpFamily::of_net(range), encapsulation, nodes, uplinks) {
            Ok(hop) => {
                plan.routes.insert(*range, hop);
            }
            Err(reason) => {
                plan.unreachable.insert(*range, reason);
            }
        }
    }
    plan.routes
        .extend(workloads.iter().map(|(address, index)| (IpNet::from(*address), Hop::Interface(*index))));
    // Packets of other nodes arrive encapsulated, also if this node knows none of them yet.
    let has_tunnel = desired.networks.values().any(|settings| settings.encapsulation != Encapsulation::None);
    plan.tunnel_mtu = has_tunnel.then(|| path_mtu(own, desired, uplinks));
    plan
}

/// Returns the MTU of the interfaces of workloads in a network: the value of its settings, or the largest packet that
/// every path of the network carries.
#[must_use]
pub fn workload_mtu(own: &Name, network: &Name, desired: &DesiredNetwork, uplinks: &[Uplink]) -> u32 {
    let settings = desired.networks.get(network);
    if let Some(mtu) = settings.and_then(|settings| settings.mtu) {
        return mtu;
    }
    match settings.map(|settings| settings.encapsulation) {
        Some(Encapsulation::CrossSubnet | Encapsulation::Always) => path_mtu(own, desired, uplinks),
        Some(Encapsulation::None) | None => uplink_mtu(own, desired, uplinks),
    }
}

/// Returns the minimum MTU of the interfaces with an address of this node; of all interfaces if none has one.
fn uplink_mtu(own: &Name, desired: &DesiredNetwork, uplinks: &[Uplink]) -> u32 {
    let addresses = desired.nodes.get(own).map(Vec::as_slice).unwrap_or_default();
    let has_own = |uplink: &&Uplink| uplink.subnets.iter().any(|subnet| addresses.contains(&subnet.addr()));
    let of_node = uplinks.iter().filter(has_own).map(|uplink| uplink.mtu).min();
    let mtu = of_node.or_else(|| uplinks.iter().map(|uplink| uplink.mtu).min());
    mtu.unwrap_or(MTU_DEFAULT).max(MTU_MIN)
}

/// Returns the largest packet that the tunnel carries to every node.
fn path_mtu(own: &Name, desired: &DesiredNetwork, uplinks: &[Uplink]) -> u32 {
    let others = desired.nodes.iter().filter(|(node, _)| *node != own);
    let has_v6 =
        others.filter_map(|(_, addresses)| remote(addresses, uplinks)).any(|address| address.is_ipv6());
    let overhead = if has_v6 { OVERHEAD_V6 } else { OVERHEAD_V4 };
    uplink_mtu(own, desired, uplinks).saturating_sub(overhead).max(MTU_MIN)
}

fn hop(
    family: IpFamily,
    encapsulation: Encapsulation,
    nodes: &[IpAddr],
    uplinks: &[Uplink],
) -> Result<Hop, Unreachable> {
    let is_neighbor = |address: &&IpAddr| {
        IpFamily::of(**address) == family && uplinks.iter().any(|uplink| uplink.is_on_segment(**address))
    };
    let neighbor = nodes.iter().find(is_neighbor).map(|address| Hop::Gateway(*address));
    let tunnel = remote(nodes, uplinks).map(Hop::Tunnel);
    match encapsulation {
        Encapsulation::None => {
            let has_address = nodes.iter().any(|address| IpFamily::of(*address) == family);
            neighbor.ok_or(if has_address { Unreachable::OtherSubnet } else { Unreachable::NoNodeAddress })
        }
        Encapsulation::CrossSubnet => neighbor.or(tunnel).ok_or(Unreachable::NoNodeAddress),
        Encapsulation::Always => tunnel.ok_or(Unreachable::NoNodeAddress),
    }
}

/// Returns the first address of a node whose family an interface of this node has.
fn remote(nodes: &[IpAddr], uplinks: &[Uplink]) -> Option<IpAddr> {
    let families: BTreeSet<_> =
        uplinks.iter().flat_map(|uplink| &uplink.subnets).map(IpFamily::of_net).collect();
    nodes.iter().copied().find(|address| families.contains(&IpFamily::of(*address)))
}

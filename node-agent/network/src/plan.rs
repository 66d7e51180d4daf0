//! Routes and tunnels of a node, derived from the blocks of all nodes. Does no I/O.
//!
//! ```text
//!  block of another node, node on the same segment   block via NODE
//!  block of another node, elsewhere, VXLAN           block encap ip id VNI dst NODE dev tg-vx
//!  block of another node, elsewhere, IPIP            block encap ip dst NODE dev tg-ipip
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

use crate::desired::{DesiredNetwork, Encapsulation, NetworkSettings, TunnelKind, Uplink};

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
    Tunnel(TunnelKind, IpAddr),
    /// Packets are sent to the workload behind the interface with this index.
    Interface(u32),
}

/// Reason why a node has no route to the block of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreachable {
    /// The node of the block has no address that this node and the encapsulation can use.
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
    /// MTU of each tunnel device that a network needs.
    pub tunnels: BTreeMap<TunnelKind, u32>,
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
        let nodes = desired.nodes.get(&block.node).map(Vec::as_slice).unwrap_or_default();
        match hop(IpFamily::of_net(range), settings, nodes, uplinks) {
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
    let kinds: BTreeSet<_> = desired.networks.values().filter_map(NetworkSettings::used_tunnel).collect();
    plan.tunnels = kinds.into_iter().map(|kind| (kind, path_mtu(kind, own, desired, uplinks))).collect();
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
    match settings.and_then(NetworkSettings::used_tunnel) {
        Some(kind) => path_mtu(kind, own, desired, uplinks),
        None => uplink_mtu(own, desired, uplinks),
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

/// Returns the largest packet that a tunnel carries to every node.
fn path_mtu(kind: TunnelKind, own: &Name, desired: &DesiredNetwork, uplinks: &[Uplink]) -> u32 {
    let others = desired.nodes.iter().filter(|(node, _)| *node != own);
    let families = others.filter_map(|(_, addresses)| remote(kind, addresses, uplinks)).map(IpFamily::of);
    let overhead = families.map(|family| kind.overhead(family)).max();
    let overhead = overhead.unwrap_or_else(|| kind.overhead(IpFamily::V4));
    uplink_mtu(own, desired, uplinks).saturating_sub(overhead).max(MTU_MIN)
}

fn hop(
    family: IpFamily,
    settings: Option<&NetworkSettings>,
    nodes: &[IpAddr],
    uplinks: &[Uplink],
) -> Result<Hop, Unreachable> {
    let is_neighbor = |address: &&IpAddr| {
        IpFamily::of(**address) == family && uplinks.iter().any(|uplink| uplink.is_on_segment(**address))
    };
    let neighbor = nodes.iter().find(is_neighbor).map(|address| Hop::Gateway(*address));
    let kind = settings.and_then(NetworkSettings::used_tunnel).filter(|kind| kind.supports(family));
    let tunnel = kind.and_then(|kind| remote(kind, nodes, uplinks).map(|node| Hop::Tunnel(kind, node)));
    match settings.map_or(Encapsulation::None, |settings| settings.encapsulation) {
        Encapsulation::None => {
            let has_address = nodes.iter().any(|address| IpFamily::of(*address) == family);
            neighbor.ok_or(if has_address { Unreachable::OtherSubnet } else { Unreachable::NoNodeAddress })
        }
        Encapsulation::CrossSubnet => neighbor.or(tunnel).ok_or(Unreachable::NoNodeAddress),
        Encapsulation::Always => tunnel.ok_or(Unreachable::NoNodeAddress),
    }
}

/// Returns the first address of a node whose family the tunnel supports and an interface of this node has.
fn remote(kind: TunnelKind, nodes: &[IpAddr], uplinks: &[Uplink]) -> Option<IpAddr> {
    let families: BTreeSet<_> =
        uplinks.iter().flat_map(|uplink| &uplink.subnets).map(IpFamily::of_net).collect();
    let is_reached = |family| kind.supports(family) && families.contains(&family);
    nodes.iter().copied().find(|address| is_reached(IpFamily::of(*address)))
}

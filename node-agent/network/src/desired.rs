//! Desired state of the workload network on one node: the networks, and the blocks of all nodes. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ipnet::IpNet;
use model::{
    kinds::{address_pool::AddressRange, attachment::WorkloadKey},
    primitives::{name::Name, net::IpFamily},
    wire::workload_network::DeclaredInterface,
};

/// Workload networks, the blocks of all nodes, and the addresses at which the nodes are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredNetwork {
    /// Workload networks by name.
    pub networks: BTreeMap<Name, NetworkSettings>,
    /// Blocks of all nodes, by address range. Blocks do not overlap.
    pub blocks: BTreeMap<IpNet, Block>,
    /// Addresses of the nodes, each in order of preference.
    pub nodes: BTreeMap<Name, Vec<IpAddr>>,
    /// Interfaces of this node that Workloads declare, by Workload.
    pub interfaces: BTreeMap<WorkloadKey, DeclaredInterface>,
}

/// Settings of one workload network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSettings {
    /// Ranges of the addresses of the network.
    pub cidrs: BTreeSet<IpNet>,
    /// True if packets to destinations outside of all networks are masqueraded.
    pub nat_outgoing: bool,
    /// Further destinations that are not masqueraded.
    pub nat_except: BTreeSet<IpNet>,
    /// Transport of packets between nodes.
    pub encapsulation: Encapsulation,
    /// Tunnel of encapsulated packets. Without effect if `encapsulation` is `None`.
    pub tunnel: TunnelKind,
    /// Addresses that no workload receives.
    pub reserved: Vec<AddressRange>,
    /// Time for which a released address is not assigned again.
    pub cooldown: Duration,
    /// MTU of the interfaces of workloads in bytes; `None` for the largest one that all paths support.
    pub mtu: Option<u32>,
}

impl NetworkSettings {
    /// Returns the tunnel of the network; `None` if packets are not encapsulated.
    #[must_use]
    pub const fn used_tunnel(&self) -> Option<TunnelKind> {
        match self.encapsulation {
            Encapsulation::None => None,
            Encapsulation::CrossSubnet | Encapsulation::Always => Some(self.tunnel),
        }
    }
}

/// Transport of packets of workloads to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// Packets are routed without encapsulation. Routers between subnets must know the blocks.
    None,
    /// Packets to nodes in other subnets are encapsulated; those to nodes in the same subnet are routed.
    CrossSubnet,
    /// Packets to all other nodes are encapsulated.
    Always,
}

/// Kind of the tunnel in which packets travel to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelKind {
    /// VXLAN-GPE: IPv4 and IPv6 packets in UDP, over IPv4 or IPv6.
    Vxlan,
    /// IPIP (RFC 2003): IPv4 packets in IPv4, protocol number 4.
    Ipip,
}

impl TunnelKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Vxlan, Self::Ipip];

    /// Returns true if an IP family can be that of the outer headers of the tunnel, and of the packets inside.
    #[must_use]
    pub const fn supports(self, family: IpFamily) -> bool {
        match (self, family) {
            (Self::Vxlan, _) | (Self::Ipip, IpFamily::V4) => true,
            (Self::Ipip, IpFamily::V6) => false,
        }
    }

    /// Returns the bytes that the tunnel adds to a packet to a node with an address of `family`.
    #[must_use]
    pub const fn overhead(self, family: IpFamily) -> u32 {
        match (self, family) {
            // 20 for IPv4, 8 for UDP, 8 for VXLAN.
            (Self::Vxlan, IpFamily::V4) => 36,
            // 40 for IPv6, 8 for UDP, 8 for VXLAN.
            (Self::Vxlan, IpFamily::V6) => 56,
            (Self::Ipip, _) => 20,
        }
    }
}

/// Range of addresses of a workload network that one node assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Name of the workload network.
    pub network: Name,
    /// Name of the node that assigns the addresses.
    pub node: Name,
    /// True if no further addresses of the block are assigned.
    pub is_draining: bool,
}

/// Interface of this node that leads to other nodes, with the addresses and prefix lengths of its subnets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Index of the interface.
    pub index: u32,
    /// Maximum size of a packet in bytes.
    pub mtu: u32,
    /// Addresses of the interface with their prefix lengths.
    pub subnets: BTreeSet<IpNet>,
}

impl Uplink {
    /// Returns true if a node with this address is on the same segment.
    #[must_use]
    pub fn is_on_segment(&self, address: IpAddr) -> bool {
        self.subnets
            .iter()
            .any(|subnet| subnet.prefix_len() < subnet.max_prefix_len() && subnet.contains(&address))
    }
}

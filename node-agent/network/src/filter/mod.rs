//! nf_tables table of the workload network: masquerading of packets that leave it, source addresses of workloads, and
//! protection of the tunnels.
//!
//! ```text
//!  prerouting   from a workload with another source address     ─▶ drop
//!  forward      tunnel packet from a workload                   ─▶ drop
//!               tunnel packet from another source than a node to a node ─▶ drop
//!  input        tunnel packet from another source than a node   ─▶ drop
//!  postrouting  from a block of this node to an address outside ─▶ masquerade
//! ```
//! Tunnel packets are those to UDP 4790 with VXLAN, and those of protocol 4 with IPIP, each if the node has the tunnel.
//! A packet in the tunnel has any inner source address. Without the protection, every machine that reaches a node could send
//! packets in the name of a workload, and a workload in the name of another. The table is written as a whole; its content
//! is small and changes with blocks and nodes only.

pub mod keeper;
pub mod parse;
pub mod render;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use kernel::nftables::{Hook, expr::Expr, uapi};
use model::primitives::{
    name::Name,
    net::{IpFamily, from_number, to_number},
};

use crate::desired::{DesiredNetwork, TunnelKind};

/// Name of the table, by which a new process recognizes it.
pub const TABLE: &str = "tidegate-network";
/// Number of the hook of packets to this machine (`NF_INET_LOCAL_IN`).
const LOCAL_IN: u32 = 1;
/// Priority before connection tracking (`NF_IP_PRI_RAW`).
const RAW: i32 = -300;

/// Content of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterTable {
    /// Elements of each set; an interval set has the edges of its intervals.
    pub sets: BTreeMap<FilterSet, BTreeSet<FilterElement>>,
    /// Rules of each chain, in order.
    pub chains: BTreeMap<FilterChain, Vec<Vec<Expr>>>,
}

/// Set of addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterSet {
    /// Purpose of the set.
    pub role: FilterRole,
    /// Family of the addresses.
    pub family: IpFamily,
}

/// Purpose of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterRole {
    /// Sources that are masqueraded: blocks of this node.
    Sources,
    /// Destinations that see the address of the workload.
    Inside,
    /// Nodes, which may send tunnel packets.
    Nodes,
}

/// Element of a set: an address, or an edge of an interval.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterElement {
    /// Bytes of the address.
    pub key: Vec<u8>,
    /// True for the first address after an interval.
    pub is_end: bool,
}

/// Chain of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterChain {
    /// Masquerading.
    Outgoing,
    /// Protection of the tunnels of this node.
    Tunnel,
    /// Protection of the tunnels of other nodes.
    Forward,
    /// Check of the source addresses of workloads.
    WorkloadSources,
}

/// Parts of the table that a node needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterNeeds {
    /// Tunnels of which the node has the device.
    pub tunnels: BTreeSet<TunnelKind>,
    /// True if the node has interfaces of workloads.
    pub workloads: bool,
    /// Names of interfaces that the agent did not create, and behind which workloads are.
    pub interfaces: BTreeSet<String>,
}

impl FilterSet {
    /// Returns the name of the set in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.role, self.family) {
            (FilterRole::Sources, IpFamily::V4) => "sources4",
            (FilterRole::Sources, IpFamily::V6) => "sources6",
            (FilterRole::Inside, IpFamily::V4) => "inside4",
            (FilterRole::Inside, IpFamily::V6) => "inside6",
            (FilterRole::Nodes, IpFamily::V4) => "nodes4",
            (FilterRole::Nodes, IpFamily::V6) => "nodes6",
        }
    }

    /// Returns the flags of the set: those with networks are interval sets.
    #[must_use]
    pub const fn flags(self) -> u32 {
        match self.role {
            FilterRole::Sources | FilterRole::Inside => uapi::NFT_SET_INTERVAL,
            FilterRole::Nodes => 0,
        }
    }

    /// Returns the key type of the set, as numbered by the `nft` command, and the key length in bytes.
    #[must_use]
    pub const fn key(self) -> (u32, u32) {
        match self.family {
            IpFamily::V4 => (7, 4),
            IpFamily::V6 => (8, 16),
        }
    }
}

impl FilterChain {
    /// Returns the name of the chain in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outgoing => "outgoing",
            Self::Tunnel => "tunnel",
            Self::Forward => "forward",
            Self::WorkloadSources => "workload-sources",
        }
    }

    /// Returns the type of the chain.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Outgoing => "nat",
            Self::Tunnel | Self::Forward | Self::WorkloadSources => "filter",
        }
    }

    /// Returns the hook of the chain. Masquerading comes after the chains of proxy modes: only the first translation of a
    /// connection has an effect. Source addresses are checked before connection tracking, so that a dropped packet
    /// creates no connection; the forward chain sees destinations that a proxy mode has translated.
    #[must_use]
    pub const fn hook(self) -> Hook {
        match self {
            Self::Outgoing => Hook { number: uapi::NF_INET_POST_ROUTING, priority: 110 },
            Self::Tunnel => Hook { number: LOCAL_IN, priority: -10 },
            Self::Forward => Hook { number: uapi::NF_INET_FORWARD, priority: -10 },
            Self::WorkloadSources => Hook { number: uapi::NF_INET_PRE_ROUTING, priority: RAW },
        }
    }
}

/// Returns the content of the table on the node `own`; `None` if no table is needed. A node that may attach workloads, because
/// a network exists, has the check of their source addresses before the first one.
#[must_use]
pub fn desired(own: &Name, desired: &DesiredNetwork, needs: &FilterNeeds) -> Option<FilterTable> {
    let masqueraded = |name: &Name| desired.networks.get(name).is_some_and(|network| network.nat_outgoing);
    let of_node =
        desired.blocks.iter().filter(|(_, block)| block.node == *own && masqueraded(&block.network));
    let sources: Vec<_> = of_node.map(|(range, _)| *range).collect();
    let mut table = FilterTable::default();
    if !sources.is_empty() {
        let networks = desired.networks.values();
        let inside: Vec<_> =
            networks.flat_map(|network| network.cidrs.iter().chain(&network.nat_except)).copied().collect();
        let mut outgoing = Vec::new();
        for family in IpFamily::ALL {
            let [from, inside_set] =
                [FilterRole::Sources, FilterRole::Inside].map(|role| FilterSet { role, family });
            table.sets.insert(from, edges(&sources, family));
            table.sets.insert(inside_set, edges(&inside, family));
            outgoing.extend(rules::outgoing(from, inside_set));
        }
        table.chains.insert(FilterChain::Outgoing, outgoing);
    }
    if !needs.tunnels.is_empty() {
        let (mut to_node, mut forwarded) = (Vec::new(), Vec::new());
        for kind in &needs.tunnels {
            forwarded.push(rules::workload_tunnel(*kind));
            forwarded.extend(needs.interfaces.iter().map(|name| rules::interface_tunnel(*kind, name)));
        }
        for family in IpFamily::ALL {
            let set = FilterSet { role: FilterRole::Nodes, family };
            let addresses = desired.nodes.values().flatten().filter(|node| IpFamily::of(**node) == family);
            let elements = addresses.map(|node| FilterElement { key: bytes(*node), is_end: false });
            table.sets.insert(set, elements.collect());
            // Protocol 4 in IPv6 is not IPIP.
            for kind in needs.tunnels.iter().filter(|kind| kind.supports(family)) {
                to_node.extend(rules::tunnel(*kind, set));
                forwarded.extend(rules::forwarded_tunnel(*kind, set));
            }
        }
        table.chains.insert(FilterChain::Tunnel, to_node);
        table.chains.insert(FilterChain::Forward, forwarded);
    }
    if needs.workloads || !desired.networks.is_empty() {
        let of_interfaces = needs.interfaces.iter().map(|name| rules::foreign_source_of(name));
        let sources = std::iter::once(rules::foreign_source()).chain(of_interfaces).collect();
        table.chains.insert(FilterChain::WorkloadSources, sources);
    }
    (!table.chains.is_empty()).then_some(table)
}

/// Returns the edges of the networks of a family. Networks that overlap or touch are one interval, because the kernel rejects
/// overlapping intervals.
fn edges(nets: &[IpNet], family: IpFamily) -> BTreeSet<FilterElement> {
    let of_family = nets.iter().filter(|net| IpFamily::of_net(net) == family);
    let mut ranges: Vec<_> =
        of_family.map(|net| (to_number(net.network()), to_number(net.broadcast()))).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    let edge = |number: u128, is_end| {
        from_number(family, number).map(|address| FilterElement { key: bytes(address), is_end })
    };
    // An interval up to the last address of the family has no end.
    let ends = |(first, last): (u128, u128)| {
        [edge(first, false), last.checked_add(1).and_then(|end| edge(end, true))]
    };
    merged.into_iter().flat_map(ends).flatten().collect()
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_overlap_or_touch_are_one_interval() {
        let nets: Vec<IpNet> = ["10.9.0.0/26", "10.9.0.64/25", "10.9.0.0/24", "10.9.4.0/24", "fd09::/64"]
            .map(|net| net.parse().unwrap())
            .to_vec();
        let edge = |a, b, c, d, is_end| FilterElement { key: vec![a, b, c, d], is_end };
        let expected = [
            edge(10, 9, 0, 0, false),
            edge(10, 9, 1, 0, true),
            edge(10, 9, 4, 0, false),
            edge(10, 9, 5, 0, true),
        ];
        assert_eq!(edges(&nets, IpFamily::V4), BTreeSet::from(expected));
        assert_eq!(edges(&nets, IpFamily::V6).len(), 2);
        let last = edges(&["255.255.255.0/24".parse().unwrap()], IpFamily::V4);
        assert_eq!(last, BTreeSet::from([edge(255, 255, 255, 0, false)]));
    }
}

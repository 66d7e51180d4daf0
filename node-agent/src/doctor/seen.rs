//! Collected machine data that the checks of `tidegate-agent doctor` evaluate. Does no I/O.

use std::collections::BTreeSet;

use super::{
    captures::ServedFrontend,
    chains::Chain,
    parse::{Link, RoutingRule},
    resolver::ResolverSettings,
};

/// Collected machine data. A kernel setting is `None` if the machine does not have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// Current number of connections in the conntrack table; `None` without conntrack.
    pub(super) conntrack_count: Option<u64>,
    /// Maximum number of connections in the conntrack table (`nf_conntrack_max`); `None` without conntrack.
    pub(super) conntrack_max: Option<u64>,
    /// Value of `nf_conntrack_helper`: 1 if the kernel assigns helpers automatically.
    pub(super) conntrack_helper: Option<u64>,
    /// Values of `arp_ignore` and `arp_announce` for all interfaces.
    pub(super) arp: [Option<u64>; 2],
    /// Values of `bridge-nf-call-iptables` and `bridge-nf-call-ip6tables`.
    pub(super) bridge_calls: [Option<u64>; 2],
    /// Network interfaces of the machine.
    pub(super) links: Vec<Link>,
    /// Names of the interfaces with an IPv4 network, and of those with an IPv6 network.
    pub(super) with_network: [BTreeSet<String>; 2],
    /// Chains of nf_tables and of the nft and legacy flavors of iptables.
    pub(super) chains: Vec<Chain>,
    /// Frontends of Services that the kernel serves.
    pub(super) served: Vec<ServedFrontend>,
    /// Policy routing rules that match a packet mark.
    pub(super) routing_rules: Vec<RoutingRule>,
    /// Service ranges to which only a route of the agent leads.
    pub(super) service_routes: BTreeSet<ipnet::IpNet>,
    /// Running programs that conflict with the agent.
    pub(super) holders: Vec<Holder>,
    /// Settings with which programs resolve names; `None` without the file.
    pub(super) resolver: Option<ResolverSettings>,
    /// Programs other than `tidegate-dns` that listen at port 53 of all addresses.
    pub(super) name_servers: Vec<Holder>,
    /// Names of the data that could not be read, each with the reason.
    pub(super) unseen: Vec<String>,
}

/// Running program that announces addresses or balances traffic, as the agent does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    /// Process name of the program.
    pub(super) program: String,
    /// Process ID; `None` if only a listening port was found.
    pub(super) process: Option<u32>,
    /// Description of the program's purpose, for messages.
    pub(super) does: String,
}

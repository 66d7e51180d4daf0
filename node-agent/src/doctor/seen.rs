//! Data read from a machine, before judgment. Pure.

use std::collections::BTreeSet;

use super::{
    chains::Chain,
    parse::{Link, RoutingRule},
};

/// Data read; `None` if the machine does not have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// Number of tracked connections.
    pub(super) conntrack_count: Option<u64>,
    /// Maximum number of tracked connections.
    pub(super) conntrack_max: Option<u64>,
    /// Automatic assignment of conntrack helpers.
    pub(super) conntrack_helper: Option<u64>,
    /// `arp_ignore` and `arp_announce` of all interfaces.
    pub(super) arp: [Option<u64>; 2],
    /// `bridge-nf-call-iptables` and `bridge-nf-call-ip6tables`.
    pub(super) bridge_calls: [Option<u64>; 2],
    /// Interfaces.
    pub(super) links: Vec<Link>,
    /// Names of the interfaces with an IPv4 network, and with an IPv6 network.
    pub(super) with_network: [BTreeSet<String>; 2],
    /// All chains of nf_tables and of both iptables flavours.
    pub(super) chains: Vec<Chain>,
    /// Policy routing rules that match a mark.
    pub(super) routing_rules: Vec<RoutingRule>,
    /// Other programs.
    pub(super) holders: Vec<Holder>,
    /// Data that could not be read, with the reason.
    pub(super) unseen: Vec<String>,
}

/// A program with a conflicting function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    /// Process name.
    pub(super) program: String,
    /// Process ID, if found.
    pub(super) process: Option<u32>,
    /// Function of the program.
    pub(super) does: String,
}

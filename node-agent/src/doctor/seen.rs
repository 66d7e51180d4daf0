//! What was read of a machine, before anything is said of it. Pure.

use std::collections::BTreeSet;

use super::{
    chains::Chain,
    parse::{Link, RoutingRule},
};

/// What was read; `None` where the machine has no such thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Connections that are tracked.
    pub(super) conntrack_count: Option<u64>,
    /// How many may be.
    pub(super) conntrack_max: Option<u64>,
    /// Whether helpers are assigned by port.
    pub(super) conntrack_helper: Option<u64>,
    /// `arp_ignore` and `arp_announce` of all interfaces.
    pub(super) arp: [Option<u64>; 2],
    /// Whether what a bridge carries meets the rules, of IPv4 and of IPv6.
    pub(super) bridge_calls: [Option<u64>; 2],
    /// The interfaces.
    pub(super) links: Vec<Link>,
    /// Those of them that have a network of IPv4, and of IPv6.
    pub(super) with_network: [BTreeSet<String>; 2],
    /// All chains, of nf_tables and of both flavours of iptables.
    pub(super) chains: Vec<Chain>,
    /// Rules of routing that ask for a mark.
    pub(super) routing_rules: Vec<RoutingRule>,
    /// Other programs.
    pub(super) holders: Vec<Holder>,
    /// What could not be read, and why.
    pub(super) unseen: Vec<String>,
}

/// A program that does what we do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    /// As the kernel names it.
    pub(super) program: String,
    /// Its process, if it was found.
    pub(super) process: Option<u32>,
    /// What it does.
    pub(super) does: String,
}

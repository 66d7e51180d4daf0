//! Tests that the traffic counters (connections, packets, bytes and open connections) match the actual
//! traffic, for TCP and UDP.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use node_agent::dataplane::{
    BackendOptions,
    nftables::{NftablesBackend, NftablesOptions},
    userspace::{Limits, UserspaceBackend},
};

use crate::support::{counters, iptables, net::Topology};

#[test]
fn f086_what_goes_through_is_counted_in_nftables_mode() {
    let topology = Topology::silent("cnt-nft");
    counters::tell(&topology, || Box::new(NftablesBackend::open(NftablesOptions::default()).unwrap()));
}

#[test]
fn f086_what_goes_through_is_counted_in_iptables_mode() {
    for flavour in iptables::flavours() {
        let topology = Topology::silent("cnt-ipt");
        counters::tell(&topology, || Box::new(iptables::backend(flavour)));
    }
}

#[test]
fn f086_what_goes_through_is_counted_in_userspace_mode() {
    let topology = Topology::silent("cnt-us");
    let mark = BackendOptions::default().masquerade_mark;
    counters::tell(&topology, || Box::new(UserspaceBackend::open(mark, Limits::default()).unwrap()));
}

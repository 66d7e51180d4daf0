//! Tests of draining endpoints in each mode: established connections continue until the deadline of the drain
//! and are then reset, even if the removal policy requires a reset at once.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use node_agent::dataplane::{
    BackendOptions,
    nftables::{NftablesBackend, NftablesOptions},
    userspace::{Limits, UserspaceBackend},
};

use crate::support::{drain, iptables, net::Topology};

#[test]
fn a_drain_lets_connections_finish_and_its_deadline_cuts_them_in_nftables_mode() {
    let topology = Topology::silent("drain-nft");
    drain::tell(&topology, || Box::new(NftablesBackend::open(NftablesOptions::default()).unwrap()));
}

#[test]
fn a_drain_lets_connections_finish_and_its_deadline_cuts_them_in_iptables_mode() {
    for flavour in iptables::flavours() {
        let topology = Topology::silent("drain-ipt");
        drain::tell(&topology, || Box::new(iptables::backend(flavour)));
    }
}

#[test]
fn a_drain_lets_connections_finish_and_its_deadline_cuts_them_in_userspace_mode() {
    let topology = Topology::silent("drain-us");
    let mark = BackendOptions::default().masquerade_mark;
    drain::tell(&topology, || Box::new(UserspaceBackend::open(mark, Limits::default()).unwrap()));
}

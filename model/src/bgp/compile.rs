//! Compilation of the BGP configuration of a node from the cluster state: identity, peers and Advertisements.
//!
//! The result depends on the Node, the BgpPeers, the BfdProfiles and the Advertisements, but never on Services:
//! the record of each load balancer address lists the Advertisements that cover the address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    bgp::{
        identity::{AsnSource, NodeBgpStatus, RouterIdSource},
        settings::{BgpAdvertisement, BgpNeighbour, BgpRemote, BgpState},
    },
    cluster::snapshot::Snapshot,
    kinds::{
        advertisement::{AdvertisementSpec, AdvertisementType},
        bfd_profile::BfdProfileSpec,
        bgp_peer::{
            BGP_PORT, BgpPeerSpec, CONNECT_TIME_DEFAULT, DYNAMIC_NEIGHBOURS_DEFAULT, HOLD_TIME_DEFAULT,
            MAX_PREFIXES_DEFAULT, PeerAsn,
        },
        metadata::Labels,
        network_keys::block_key,
        node::NodeSpec,
        resource::{Kind, Object, ObjectKey},
        selector::Selector,
    },
    primitives::name::Name,
};

/// Hop limit of packets to peers that may be several hops away: the usual default of hosts (RFC 1700).
const TTL_SEVERAL_HOPS: u8 = 64;
/// Hop limit of packets to directly connected external peers.
const TTL_ONE_HOP: u8 = 1;
/// Hop limit of packets to peers with GTSM enabled (RFC 5082 §3).
const TTL_SECURITY: u8 = 255;

/// Returns the BGP configuration of a node; `None` if the node has no peers. `asn` is the default AS number of
/// Nodes.
#[must_use]
pub fn bgp_state(snapshot: &Snapshot, node: &Name, asn: u32) -> Option<BgpState> {
    // Fast path: most clusters have no peers.
    if snapshot.count(Kind::BgpPeer) == 0 {
        return None;
    }
    let (object, spec) = node_of(snapshot, node)?;
    let who = identity(node, spec, asn);
    let peers: BTreeMap<Name, BgpNeighbour> = selecting_peers(snapshot, &object.metadata.labels)
        .into_iter()
        .filter(|side| side.clash.is_none())
        .filter_map(|side| Some((side.name.clone(), neighbour(snapshot, side.spec, who.asn)?)))
        .collect();
    if peers.is_empty() {
        return None;
    }
    let advertisements = advertisements(snapshot)
        .filter(|(_, spec)| Selector::any_matches(&spec.node_selectors, &object.metadata.labels))
        .filter_map(|(name, spec)| Some((name.clone(), advertisement(spec, &peers)?)))
        .collect();
    let blocks = blocks(snapshot, node, &advertisements);
    Some(BgpState {
        asn: who.asn,
        router_id: who.router_id,
        is_draining: !spec.takes_announcements(),
        peers,
        advertisements,
        blocks,
    })
}

/// Returns the blocks of a node that at least one of its Advertisements announces, with the names of these
/// Advertisements.
fn blocks(
    snapshot: &Snapshot,
    node: &Name,
    of_node: &BTreeMap<Name, BgpAdvertisement>,
) -> BTreeMap<IpNet, BTreeSet<Name>> {
    let announced: Vec<_> = advertisements(snapshot)
        .filter(|(name, spec)| !spec.workload_networks.is_empty() && of_node.contains_key(*name))
        .collect();
    if announced.is_empty() {
        return BTreeMap::new();
    }
    let names = |cidr: &IpNet| -> Option<BTreeSet<Name>> {
        let network = &snapshot.get(&block_key(cidr))?.as_block()?.network;
        let by = announced.iter().filter(|(_, spec)| spec.workload_networks.contains(network));
        let names: BTreeSet<Name> = by.map(|(name, _)| (*name).clone()).collect();
        (!names.is_empty()).then_some(names)
    };
    snapshot.blocks_of(node).filter_map(|cidr| Some((*cidr, names(cidr)?))).collect()
}

/// Returns the BGP identity of a Node. `asn` is the default AS number.
#[must_use]
pub fn identity(name: &Name, node: &NodeSpec, asn: u32) -> NodeBgpStatus {
    let stated = node.bgp.clone().unwrap_or_default();
    let (asn, asn_from) = stated.asn.map_or((asn, AsnSource::Default), |asn| (asn, AsnSource::Node));
    let first = node.addresses.iter().find_map(|address| match address {
        IpAddr::V4(v4) if !v4.is_unspecified() => Some(*v4),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    });
    let (router_id, router_id_from) = match (stated.router_id, first) {
        (Some(id), _) => (id, RouterIdSource::Node),
        (None, Some(address)) => (address, RouterIdSource::Address),
        (None, None) => (id_of_name(name), RouterIdSource::Name),
    };
    NodeBgpStatus { asn, asn_from, router_id, router_id_from }
}

/// Derives a BGP Identifier from a name by its FNV-1a hash, so that every server derives the same one. The result
/// is never zero (RFC 6286 §2.1).
fn id_of_name(name: &Name) -> Ipv4Addr {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.as_str().bytes().fold(0x811c_9dc5, mix);
    Ipv4Addr::from(hash.max(1))
}

/// BgpPeer whose selectors match a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectingPeer<'a> {
    /// Name of the BgpPeer.
    pub(crate) name: &'a Name,
    /// Spec of the BgpPeer.
    pub(crate) spec: &'a BgpPeerSpec,
    /// Earlier BgpPeer (by name) for the same router on this node, because of which this BgpPeer has no
    /// session there. Admission rejects BgpPeers that conflict in this way, but not changes of Node labels
    /// that cause the conflict.
    pub(crate) clash: Option<&'a Name>,
}

/// Returns the peers that select a node with `labels`, in the order of names.
pub(crate) fn selecting_peers<'a>(snapshot: &'a Snapshot, labels: &Labels) -> Vec<SelectingPeer<'a>> {
    let mut found: Vec<SelectingPeer<'a>> = Vec::new();
    for (name, spec) in peers(snapshot) {
        if spec.disabled || !Selector::any_matches(&spec.node_selectors, labels) {
            continue;
        }
        let same = found.iter().find(|peer| peer.clash.is_none() && is_same_router(peer.spec, spec));
        let clash = same.map(|peer| peer.name);
        found.push(SelectingPeer { name, spec, clash });
    }
    found
}

/// Returns true if two BgpPeers lead to the same router on a node that both select, so that only one session is
/// possible.
pub(crate) fn is_same_router(a: &BgpPeerSpec, b: &BgpPeerSpec) -> bool {
    let is_unnumbered = |spec: &BgpPeerSpec| spec.peer_address.is_none() && spec.interface.is_some();
    // The router at the other end of a link may be the one with an address there.
    let is_same_link = a.interface.is_some() && a.interface == b.interface;
    let place = |spec: &BgpPeerSpec| {
        (spec.peer_address, spec.interface.clone(), spec.peer_network.map(|network| network.trunc()))
    };
    let is_same_place =
        if is_unnumbered(a) || is_unnumbered(b) { is_same_link } else { place(a) == place(b) };
    let port = |spec: &BgpPeerSpec| spec.peer_port.unwrap_or(BGP_PORT);
    // Without a source address the kernel may select the one that the other peer names.
    let may_be_same_source =
        a.source_address.is_none() || b.source_address.is_none() || a.source_address == b.source_address;
    is_same_place && port(a) == port(b) && may_be_same_source
}

/// Returns all BgpPeers, in the order of names.
pub(crate) fn peers(snapshot: &Snapshot) -> impl Iterator<Item = (&Name, &BgpPeerSpec)> {
    let all = snapshot.list(Kind::BgpPeer, None, None);
    all.filter_map(|object| Some((&object.metadata.name, object.as_bgp_peer()?)))
}

/// Returns all Advertisements of type BGP, in the order of names.
pub(crate) fn advertisements(snapshot: &Snapshot) -> impl Iterator<Item = (&Name, &AdvertisementSpec)> {
    let all = snapshot.list(Kind::Advertisement, None, None);
    let all = all.filter_map(|object| Some((&object.metadata.name, object.as_advertisement()?)));
    all.filter(|(_, spec)| spec.advertisement_type == AdvertisementType::Bgp)
}

/// Returns the spec of a BgpPeer, or `None` if the BgpPeer does not exist.
pub(crate) fn peer<'a>(snapshot: &'a Snapshot, name: &Name) -> Option<&'a BgpPeerSpec> {
    let key = ObjectKey { kind: Kind::BgpPeer, namespace: None, name: name.clone() };
    snapshot.get(&key)?.as_bgp_peer()
}

/// Returns the spec of a BfdProfile, or `None` if the BfdProfile does not exist.
pub(crate) fn profile<'a>(snapshot: &'a Snapshot, name: &Name) -> Option<&'a BfdProfileSpec> {
    let key = ObjectKey { kind: Kind::BfdProfile, namespace: None, name: name.clone() };
    snapshot.get(&key)?.as_bfd_profile()
}

fn node_of<'a>(snapshot: &'a Snapshot, name: &Name) -> Option<(&'a Arc<Object>, &'a NodeSpec)> {
    let object = snapshot.get(&ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() })?;
    Some((object, object.as_node()?))
}

/// Returns the session settings for a BgpPeer, with all defaults filled in. `None` if the BgpPeer has no address,
/// network or interface, which validation rejects.
fn neighbour(snapshot: &Snapshot, spec: &BgpPeerSpec, asn: u32) -> Option<BgpNeighbour> {
    let local_asn = spec.local_asn.unwrap_or(asn);
    Some(BgpNeighbour {
        remote: remote(spec)?,
        peer_asn: spec.peer_asn,
        local_asn,
        port: spec.peer_port.unwrap_or(BGP_PORT),
        source_address: spec.source_address,
        device: spec.interface.clone(),
        hold_time: spec.hold_time.unwrap_or(HOLD_TIME_DEFAULT),
        keepalive_time: spec.keepalive_time,
        connect_time: spec.connect_time.unwrap_or(CONNECT_TIME_DEFAULT),
        password: spec.password.clone(),
        ttl: ttl(spec, local_asn),
        ttl_security: spec.ttl_security,
        passive: spec.waits_for_connections(),
        families: spec.effective_families(),
        graceful_restart: spec.graceful_restart,
        role: spec.role,
        bfd: spec.bfd_profile.as_ref().and_then(|name| profile(snapshot, name)).cloned(),
        max_prefixes: spec.max_prefixes.unwrap_or(MAX_PREFIXES_DEFAULT),
        route_reflector_client: spec.route_reflector_client,
    })
}

fn remote(spec: &BgpPeerSpec) -> Option<BgpRemote> {
    match (spec.peer_address, spec.peer_network, &spec.interface) {
        (Some(address), _, _) => Some(BgpRemote::Address(address)),
        (None, Some(network), _) => {
            let limit = spec.dynamic_limit.unwrap_or(DYNAMIC_NEIGHBOURS_DEFAULT);
            Some(BgpRemote::Network { network, limit })
        }
        (None, None, interface) => interface.clone().map(BgpRemote::Interface),
    }
}

fn ttl(spec: &BgpPeerSpec, local_asn: u32) -> u8 {
    let is_near = is_external(spec.peer_asn, local_asn) && !spec.ebgp_multi_hop;
    match (spec.ttl_security, is_near) {
        (Some(_), _) => TTL_SECURITY,
        (None, true) => TTL_ONE_HOP,
        (None, false) => TTL_SEVERAL_HOPS,
    }
}

/// Returns true if the AS number of the peer differs from the local one, so that the session is external (EBGP).
pub(crate) const fn is_external(peer: PeerAsn, local_asn: u32) -> bool {
    match peer {
        PeerAsn::Number(asn) => asn != local_asn,
        PeerAsn::Internal => false,
        PeerAsn::External => true,
    }
}

/// Converts an Advertisement to the form that a node receives, with only those of its peers that the node
/// has. Returns `None` if it names only peers that the node does not have.
fn advertisement(
    spec: &AdvertisementSpec,
    neighbours: &BTreeMap<Name, BgpNeighbour>,
) -> Option<BgpAdvertisement> {
    let named: BTreeSet<Name> =
        spec.peers.iter().filter(|name| neighbours.contains_key(*name)).cloned().collect();
    // An empty list means all peers, so a list that lost its last entry must be omitted.
    if named.is_empty() && !spec.peers.is_empty() {
        return None;
    }
    Some(BgpAdvertisement {
        peers: named,
        aggregation_length: spec.length_v4(),
        aggregation_length_v6: spec.length_v6(),
        local_pref: spec.local_pref,
        med: spec.med,
        prepend: spec.prepend.unwrap_or(0),
        communities: spec.communities.clone(),
    })
}

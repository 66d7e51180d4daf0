//! `describe` sections of BGP peers and BFD profiles, and the BGP parts of other kinds. Pure functions.

use model::{
    bgp::identity::{AsnSource, NodeBgpStatus, RouterIdSource},
    kinds::advertisement::AdvertisementSpec,
    primitives::quantity::Timestamp,
};

use crate::{
    terminal::{clean, table::Table},
    views::typed::{BfdProfile, BgpPeer, word, words},
    views::{
        bgp,
        columns::{
            addresses::{or_all, selectors},
            bgp::{asn, families, hold_time, hops, remote},
        },
        describe::Page,
    },
};

pub(crate) fn peer(page: &mut Page, object: &BgpPeer, now: Timestamp) {
    let spec = &object.spec;
    page.section("BGP peer");
    page.field("Peer", &remote(spec));
    page.field("Peer AS", &asn(spec));
    let local = spec.local_asn.map_or_else(|| "that of each node".to_owned(), |asn| asn.to_string());
    page.field("Our AS", &local);
    if spec.peer_network.is_some() {
        let limit = spec.dynamic_limit.unwrap_or(16);
        page.field("Neighbours", &format!("dynamic: any in the network, up to {limit} per node"));
    }
    page.optional("Source address", &word(&spec.source_address));
    let keepalive = spec.keepalive_time.map_or_else(|| "third of it".to_owned(), |time| format!("{time} s"));
    page.field("Hold time", &format!("{} s, keepalives every {keepalive}", hold_time(spec)));
    page.field("After a failure", &format!("{} s, then longer", spec.connect_time.unwrap_or(5)));
    let has_password = object.status.has_password;
    page.field("Password", if has_password { "set (TCP MD5); never shown" } else { "none" });
    match hops(spec).as_str() {
        "-" => {}
        hops => page.field("Hops", hops),
    }
    page.field("Routes of", &families(spec));
    page.optional("BFD profile", &word(&spec.bfd_profile));
    if let Some(restart) = &spec.graceful_restart {
        let time = restart.restart_time;
        page.field("Graceful restart", &format!("the peer is asked to retain routes for {time} s"));
    }
    page.optional("Role", &word(&spec.role));
    if spec.passive {
        page.field("Passive", "yes: waits for connections from the peer");
    }
    if spec.route_reflector_client {
        page.field("Route reflector", "yes: the nodes pass routes on to the peer, their client");
    }
    page.field("Maximum prefixes", &spec.max_prefixes.unwrap_or(1_000_000).to_string());
    page.field("Nodes", &or_all(selectors(&spec.node_selectors)));
    if spec.disabled {
        page.field("Disabled", "yes: no node opens a session with it");
    }
    nodes(page, object);
    sessions(page, object, now);
}

/// Adds the BGP sessions with a peer that its status lists, and a command that shows all of them if the list
/// is incomplete.
fn sessions(page: &mut Page, object: &BgpPeer, now: Timestamp) {
    let sessions = &object.status.sessions;
    page.section(&format!("Sessions ({} of {} established)", sessions.established, sessions.total));
    let table = bgp::of_peer(sessions, now);
    if table.is_empty() {
        page.line("  <none>");
        return;
    }
    page.table(&table);
    let shown: usize = sessions.by_node.values().map(Vec::len).sum();
    if usize::try_from(sessions.total).is_ok_and(|total| total > shown) {
        let name = word(&object.metadata.as_ref().map(|metadata| &metadata.name));
        page.line(&format!("  more: `tidegate bgp peers --peer {}`", clean(&name)));
    }
}

/// Adds a table of the nodes on which the peer is configured, with the AS, the router ID and a problem of
/// each.
fn nodes(page: &mut Page, object: &BgpPeer) {
    page.section(&format!("Nodes ({})", object.status.nodes_total));
    let mut table = Table::new(vec!["NODE", "AS", "ROUTER-ID", "PROBLEM"]);
    for (node, side) in &object.status.nodes {
        table.push(vec![
            word(node).into(),
            side.local_asn.to_string().into(),
            side.router_id.to_string().into(),
            word(&side.problem).into(),
        ]);
    }
    if table.is_empty() {
        page.line("  <none>");
    } else {
        page.table(&table);
    }
}

pub(crate) fn profile(page: &mut Page, object: &BfdProfile) {
    let spec = &object.spec;
    page.section("BFD profile");
    page.field("Receives every", &format!("{} ms", spec.receive_interval));
    page.field("Sends every", &format!("{} ms", spec.transmit_interval));
    page.field("Failed after", &format!("{} missing packets", spec.detect_multiplier));
    if spec.passive_mode {
        page.field("Passive", "yes: sends only after the first packet of the peer");
    }
    let ttl = spec.minimum_ttl;
    page.field("Over several hops", &format!("packets with a hop limit below {ttl} are dropped"));
    page.field("Used by", &words(&object.status.used_by));
}

/// Adds the BGP settings of an Advertisement.
pub(crate) fn advertisement(page: &mut Page, spec: &AdvertisementSpec) {
    page.field("Peers", &or_all(words(&spec.peers)));
    for (title, length, whole) in
        [("IPv4 prefixes", spec.aggregation_length, 32), ("IPv6 prefixes", spec.aggregation_length_v6, 128)]
    {
        let length = length.unwrap_or(whole);
        let each = if length == whole { ": one per address" } else { "" };
        page.field(title, &format!("/{length}{each}"));
    }
    page.optional("Local preference", &word(&spec.local_pref));
    page.optional("MED", &word(&spec.med));
    page.optional("Prepended", &word(&spec.prepend));
    page.optional("Communities", &words(&spec.communities));
}

/// Adds the BGP identity of a node: its AS and BGP Identifier, each with the source of the value.
pub(crate) fn node(page: &mut Page, identity: &NodeBgpStatus) {
    let from = match identity.asn_from {
        AsnSource::Node => "spec.bgp.asn",
        AsnSource::Default => "--asn of the control server",
    };
    page.field("BGP AS", &format!("{} ({from})", identity.asn));
    let from = match identity.router_id_from {
        RouterIdSource::Node => "spec.bgp.routerId",
        RouterIdSource::Address => "its first IPv4 address",
        RouterIdSource::Name => "derived from its name",
    };
    page.field("BGP Identifier", &format!("{} ({from})", identity.router_id));
}

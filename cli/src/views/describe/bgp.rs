//! `describe` sections of BGP peers and BFD profiles, and the BGP parts of other kinds. Pure.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    lenient_json::{clean, entries, flag, joined, number, text},
    terminal::table::Table,
    views::{
        bgp,
        columns::{
            addresses::{or_all, selectors},
            bgp::{asn, families, hold_time, hops, remote, with_default},
        },
        describe::Page,
    },
};

pub(crate) fn peer(page: &mut Page, object: &Value, now: Timestamp) {
    page.section("BGP peer");
    page.field("Peer", &remote(object));
    page.field("Peer AS", &asn(object));
    let local = text(object, "/spec/localASN");
    page.field("Our AS", if local.is_empty() { "that of each node" } else { &local });
    let limit = with_default(object, "/spec/dynamicLimit", "16");
    if !text(object, "/spec/peerNetwork").is_empty() {
        page.field("Neighbours", &format!("dynamic: any in the network, up to {limit} per node"));
    }
    page.optional("Source address", &text(object, "/spec/sourceAddress"));
    let keepalive = text(object, "/spec/keepaliveTime");
    let keepalive = if keepalive.is_empty() { "a third of it".to_owned() } else { format!("{keepalive} s") };
    page.field("Hold time", &format!("{} s, keepalives every {keepalive}", hold_time(object)));
    page.field(
        "After a failure",
        &format!("{} s, then longer", with_default(object, "/spec/connectTime", "5")),
    );
    let has_password = flag(object, "/status/hasPassword", false);
    page.field("Password", if has_password { "set (TCP MD5); never shown" } else { "none" });
    match hops(object).as_str() {
        "-" => {}
        hops => page.field("Hops", hops),
    }
    page.field("Routes of", &families(object));
    page.optional("BFD profile", &text(object, "/spec/bfdProfile"));
    let restart = text(object, "/spec/gracefulRestart/restartTime");
    if !restart.is_empty() {
        page.field("Graceful restart", &format!("the peer is asked to retain routes for {restart} s"));
    }
    page.optional("Role", &text(object, "/spec/role"));
    if flag(object, "/spec/passive", false) {
        page.field("Passive", "yes: waits for connections from the peer");
    }
    page.field("Maximum prefixes", &with_default(object, "/spec/maxPrefixes", "1000000"));
    page.field("Nodes", &or_all(selectors(object, "/spec/nodeSelectors")));
    if flag(object, "/spec/disabled", false) {
        page.field("Disabled", "yes: no node opens a session with it");
    }
    nodes(page, object);
    sessions(page, object, now);
}

/// Adds the sessions reported by nodes; with many sessions only the faulty ones.
fn sessions(page: &mut Page, object: &Value, now: Timestamp) {
    let [established, total] =
        ["established", "total"].map(|field| number(object, &format!("/status/sessions/{field}")));
    page.section(&format!("Sessions ({established} of {total} established)"));
    let table = bgp::of_peer(object, now);
    if table.is_empty() {
        page.line("  <none>");
        return;
    }
    page.table(&table);
    let shown = entries(object, "/status/sessions/byNode")
        .map(|(_, sessions)| sessions.as_array().map_or(0, Vec::len));
    let shown: usize = shown.sum();
    if usize::try_from(total).is_ok_and(|total| total > shown) {
        let name = text(object, "/metadata/name");
        page.line(&format!("  more: `tidegate bgp peers --peer {}`", clean(&name)));
    }
}

/// Adds the nodes that use the peer.
fn nodes(page: &mut Page, object: &Value) {
    let total = number(object, "/status/nodesTotal");
    page.section(&format!("Nodes ({total})"));
    let mut table = Table::new(vec!["NODE", "AS", "ROUTER-ID", "PROBLEM"]);
    for (node, side) in entries(object, "/status/nodes") {
        table.push(vec![
            node.into(),
            text(side, "/localASN").into(),
            text(side, "/routerId").into(),
            text(side, "/problem").into(),
        ]);
    }
    if table.is_empty() {
        page.line("  <none>");
    } else {
        page.table(&table);
    }
}

pub(crate) fn profile(page: &mut Page, object: &Value) {
    page.section("BFD profile");
    for (title, at) in
        [("Receives every", "/spec/receiveInterval"), ("Sends every", "/spec/transmitInterval")]
    {
        page.field(title, &format!("{} ms", with_default(object, at, "300")));
    }
    let multiplier = with_default(object, "/spec/detectMultiplier", "3");
    page.field("Failed after", &format!("{multiplier} missing packets"));
    if flag(object, "/spec/passiveMode", false) {
        page.field("Passive", "yes: sends only after the first packet of the peer");
    }
    let ttl = with_default(object, "/spec/minimumTtl", "254");
    page.field("Over several hops", &format!("packets with a hop limit below {ttl} are dropped"));
    page.field("Used by", &joined(object, "/status/usedBy"));
}

/// Adds the BGP settings of an Advertisement.
pub(crate) fn advertisement(page: &mut Page, object: &Value) {
    page.field("Peers", &or_all(joined(object, "/spec/peers")));
    for (title, at, whole) in [
        ("IPv4 prefixes", "/spec/aggregationLength", "32"),
        ("IPv6 prefixes", "/spec/aggregationLengthV6", "128"),
    ] {
        let length = with_default(object, at, whole);
        let each = if length == whole { ": one per address" } else { "" };
        page.field(title, &format!("/{length}{each}"));
    }
    for (title, at) in
        [("Local preference", "/spec/localPref"), ("MED", "/spec/med"), ("Prepended", "/spec/prepend")]
    {
        page.optional(title, &text(object, at));
    }
    page.optional("Communities", &joined(object, "/spec/communities"));
}

/// Adds the BGP identity of a node.
pub(crate) fn node(page: &mut Page, object: &Value) {
    let [asn, asn_from, id, id_from] = ["asn", "asnFrom", "routerId", "routerIdFrom"]
        .map(|field| text(object, &format!("/status/bgp/{field}")));
    if asn.is_empty() {
        return;
    }
    let from = match asn_from.as_str() {
        "Node" => "spec.bgp.asn",
        _ => "--asn of the control server",
    };
    page.field("BGP AS", &format!("{asn} ({from})"));
    let from = match id_from.as_str() {
        "Node" => "spec.bgp.routerId",
        "Address" => "its first IPv4 address",
        _ => "derived from its name",
    };
    page.field("BGP Identifier", &format!("{id} ({from})"));
}

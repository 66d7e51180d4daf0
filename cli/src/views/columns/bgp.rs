//! Columns of BGP peers and BFD profiles. Pure functions.

use model::{
    kinds::{
        bfd_profile::BfdProfileSpec,
        bgp_peer::{BgpPeerSpec, HOLD_TIME_DEFAULT, PeerAsn},
    },
    primitives::quantity::Timestamp,
};

use crate::{
    terminal::{style::Tone, table::Cell},
    views::columns::{
        addresses::{or_all, selectors, status},
        age_cell,
    },
    views::typed::{BfdProfile, BgpPeer, word, words},
};

/// Column headings of BGP peers: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const PEER: (&[&str], &[&str]) = (
    &["NAME", "PEER", "AS", "LOCAL-AS", "BFD", "NODES", "SESSIONS", "STATUS", "AGE"],
    &["SOURCE", "HOLD", "HOPS", "PASSWORD", "FAMILIES", "RESTART", "NODE-SELECTORS"],
);
/// Column headings of BFD profiles: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const PROFILE: (&[&str], &[&str]) =
    (&["NAME", "RECEIVE", "TRANSMIT", "MULTIPLIER", "STATUS", "AGE"], &["PASSIVE", "MINIMUM-TTL", "USED-BY"]);

pub(crate) fn peer(object: &BgpPeer, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (spec, state) = (&object.spec, &object.status);
    let mut row: Vec<Cell> = vec![
        remote(spec).into(),
        word(&spec.peer_asn).into(),
        local_asn(object).into(),
        or_dash(word(&spec.bfd_profile)).into(),
        state.nodes_total.to_string().into(),
        sessions(object),
        status(spec.disabled, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(or_dash(word(&spec.source_address)).into());
        row.push(format!("{}s", hold_time(spec)).into());
        row.push(hops(spec).into());
        row.push(if state.has_password { "yes" } else { "no" }.into());
        row.push(families(spec).into());
        row.push(restart(spec).into());
        row.push(or_all(selectors(&spec.node_selectors)).into());
    }
    row
}

/// Formats the numbers of established and of all sessions of a peer, such as `2/3`.
fn sessions(peer: &BgpPeer) -> Cell {
    let (established, total) = (peer.status.sessions.established, peer.status.sessions.total);
    let tone = match established {
        _ if established == total => Tone::Plain,
        0 => Tone::Bad,
        _ => Tone::Waiting,
    };
    Cell::toned(tone, format!("{established}/{total}"))
}

pub(crate) fn profile(object: &BfdProfile, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row: Vec<Cell> = vec![
        format!("{}ms", spec.receive_interval).into(),
        format!("{}ms", spec.transmit_interval).into(),
        spec.detect_multiplier.to_string().into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(if spec.passive_mode { "yes" } else { "no" }.into());
        row.push(spec.minimum_ttl.to_string().into());
        row.push(words(&object.status.used_by).into());
    }
    row
}

/// Formats the address of a peer: `10.0.0.1`, `10.0.0.1:1179`, `fe80::1%eth0`, `eth0`, `10.0.0.0/24`.
#[must_use]
pub(crate) fn remote(peer: &BgpPeerSpec) -> String {
    let at = match (peer.peer_address, &peer.interface) {
        (Some(address), None) => address.to_string(),
        (Some(address), Some(interface)) => format!("{address}%{interface}"),
        (None, Some(interface)) => interface.to_string(),
        (None, None) => word(&peer.peer_network),
    };
    match peer.peer_port {
        None | Some(179) => at,
        Some(port) if at.contains(':') => format!("[{at}]:{port}"),
        Some(port) => format!("{at}:{port}"),
    }
}

/// Formats the AS of a peer, such as `AS 65001`.
#[must_use]
pub(crate) fn asn(peer: &BgpPeerSpec) -> String {
    match peer.peer_asn {
        PeerAsn::Number(asn) => format!("AS {asn}"),
        asn @ (PeerAsn::Internal | PeerAsn::External) => word(&asn),
    }
}

/// Formats the receive interval, transmit interval and detection multiplier of a BFD profile, such as
/// `300/300 ms × 3`.
#[must_use]
pub(crate) fn intervals(profile: &BfdProfileSpec) -> String {
    format!("{}/{} ms × {}", profile.receive_interval, profile.transmit_interval, profile.detect_multiplier)
}

/// Returns the local AS of a peer: the configured one, or else that of its nodes. Returns `by node` if the
/// nodes have different ones, and `-` if there are no nodes.
fn local_asn(peer: &BgpPeer) -> String {
    if let Some(stated) = peer.spec.local_asn {
        return stated.to_string();
    }
    let mut of_nodes: Vec<u32> = peer.status.nodes.values().map(|node| node.local_asn).collect();
    of_nodes.sort_unstable();
    of_nodes.dedup();
    match &of_nodes[..] {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [..] => "by node".to_owned(),
    }
}

/// Formats the permitted distance to a peer: a number of hops enforced by GTSM (RFC 5082), `several` for
/// multihop eBGP, or `-` for a directly connected peer.
pub(crate) fn hops(peer: &BgpPeerSpec) -> String {
    match peer.ttl_security {
        Some(hops) => format!("{hops} (GTSM)"),
        None if peer.ebgp_multi_hop => "several".to_owned(),
        None => "-".to_owned(),
    }
}

/// Returns the enabled address families of a peer, separated by commas.
pub(crate) fn families(peer: &BgpPeerSpec) -> String {
    let families = words(&peer.families);
    if families.is_empty() { "IPv4,IPv6".to_owned() } else { families }
}

/// Returns the configured hold time of a peer, or its default, in seconds.
pub(crate) fn hold_time(peer: &BgpPeerSpec) -> u16 {
    peer.hold_time.unwrap_or(HOLD_TIME_DEFAULT)
}

fn restart(peer: &BgpPeerSpec) -> String {
    let restart = peer.graceful_restart.as_ref();
    restart.map_or_else(|| "-".to_owned(), |restart| format!("{}s", restart.restart_time))
}

/// Returns the text, or a dash if it is empty.
pub(crate) fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::views::typed::decode;

    #[test]
    fn peers_are_written_so_that_they_can_be_told_apart() {
        for (spec, written) in [
            (json!({ "peerAddress": "10.0.0.1" }), "10.0.0.1"),
            (json!({ "peerAddress": "10.0.0.1", "peerPort": 179 }), "10.0.0.1"),
            (json!({ "peerAddress": "10.0.0.1", "peerPort": 1179 }), "10.0.0.1:1179"),
            (
                json!({ "peerAddress": "fe80::1", "interface": "eth0", "peerPort": 1179 }),
                "[fe80::1%eth0]:1179",
            ),
            (json!({ "interface": "eth0" }), "eth0"),
            (json!({ "peerNetwork": "10.0.0.0/24" }), "10.0.0.0/24"),
        ] {
            let mut spec = spec;
            spec["peerASN"] = 65001.into();
            assert_eq!(remote(&decode(&spec).unwrap()), written);
        }
    }
}

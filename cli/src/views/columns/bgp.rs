//! Columns of BGP peers and BFD profiles. Pure.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    lenient_json::{entries, flag, joined, number, text},
    terminal::{style::Tone, table::Cell},
    views::columns::{
        addresses::{or_all, selectors, status},
        age_cell,
    },
};

/// Headings of peers: narrow, and the additional wide ones.
pub(crate) const PEER: (&[&str], &[&str]) = (
    &["NAME", "PEER", "AS", "LOCAL-AS", "BFD", "NODES", "SESSIONS", "STATUS", "AGE"],
    &["SOURCE", "HOLD", "HOPS", "PASSWORD", "FAMILIES", "RESTART", "NODE-SELECTORS"],
);
/// Headings of profiles.
pub(crate) const PROFILE: (&[&str], &[&str]) =
    (&["NAME", "RECEIVE", "TRANSMIT", "MULTIPLIER", "STATUS", "AGE"], &["PASSIVE", "MINIMUM-TTL", "USED-BY"]);

pub(crate) fn peer(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![
        remote(object).into(),
        text(object, "/spec/peerASN").into(),
        local_asn(object).into(),
        or_dash(text(object, "/spec/bfdProfile")).into(),
        number(object, "/status/nodesTotal").to_string().into(),
        sessions(object),
        status(object),
        age_cell(object, now),
    ];
    if wide {
        row.push(or_dash(text(object, "/spec/sourceAddress")).into());
        row.push(format!("{}s", hold_time(object)).into());
        row.push(hops(object).into());
        row.push(if flag(object, "/status/hasPassword", false) { "yes" } else { "no" }.into());
        row.push(families(object).into());
        row.push(restart(object).into());
        row.push(or_all(selectors(object, "/spec/nodeSelectors")).into());
    }
    row
}

/// Formats established and total sessions, such as `2/3`.
fn sessions(peer: &Value) -> Cell {
    let [established, total] =
        ["established", "total"].map(|field| number(peer, &format!("/status/sessions/{field}")));
    let tone = match established {
        _ if established == total => Tone::Plain,
        0 => Tone::Bad,
        _ => Tone::Waiting,
    };
    Cell::toned(tone, format!("{established}/{total}"))
}

pub(crate) fn profile(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let milliseconds = |at| format!("{}ms", with_default(object, at, "300"));
    let mut row: Vec<Cell> = vec![
        milliseconds("/spec/receiveInterval").into(),
        milliseconds("/spec/transmitInterval").into(),
        with_default(object, "/spec/detectMultiplier", "3").into(),
        status(object),
        age_cell(object, now),
    ];
    if wide {
        row.push(if flag(object, "/spec/passiveMode", false) { "yes" } else { "no" }.into());
        row.push(with_default(object, "/spec/minimumTtl", "254").into());
        row.push(joined(object, "/status/usedBy").into());
    }
    row
}

/// Formats the address of a peer: `10.0.0.1`, `10.0.0.1:1179`, `fe80::1%eth0`, `eth0`, `10.0.0.0/24`.
#[must_use]
pub(crate) fn remote(peer: &Value) -> String {
    let [address, interface, network, port] = ["peerAddress", "interface", "peerNetwork", "peerPort"]
        .map(|field| text(peer, &format!("/spec/{field}")));
    let at = match (address.is_empty(), interface.is_empty()) {
        (false, true) => address,
        (false, false) => format!("{address}%{interface}"),
        (true, false) => interface,
        (true, true) => network,
    };
    match port.as_str() {
        "" | "179" => at,
        port if at.contains(':') => format!("[{at}]:{port}"),
        port => format!("{at}:{port}"),
    }
}

/// Formats the AS of a peer, such as `AS 65001`.
#[must_use]
pub(crate) fn asn(peer: &Value) -> String {
    let asn = text(peer, "/spec/peerASN");
    if asn.starts_with(|c: char| c.is_ascii_digit()) { format!("AS {asn}") } else { asn }
}

/// Formats the intervals of a profile, such as `300/300 ms × 3`.
#[must_use]
pub(crate) fn intervals(profile: &Value) -> String {
    format!(
        "{}/{} ms × {}",
        with_default(profile, "/spec/receiveInterval", "300"),
        with_default(profile, "/spec/transmitInterval", "300"),
        with_default(profile, "/spec/detectMultiplier", "3")
    )
}

/// Returns the local AS of a peer: the configured one, or that of its nodes if they agree.
fn local_asn(peer: &Value) -> String {
    let stated = text(peer, "/spec/localASN");
    if !stated.is_empty() {
        return stated;
    }
    let mut of_nodes: Vec<String> =
        entries(peer, "/status/nodes").map(|(_, node)| text(node, "/localASN")).collect();
    of_nodes.sort();
    of_nodes.dedup();
    match &of_nodes[..] {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [..] => "by node".to_owned(),
    }
}

/// Returns the permitted distance of a peer in hops.
pub(crate) fn hops(peer: &Value) -> String {
    let security = text(peer, "/spec/ttlSecurity");
    if !security.is_empty() {
        return format!("{security} (GTSM)");
    }
    if flag(peer, "/spec/ebgpMultiHop", false) { "several" } else { "-" }.to_owned()
}

/// Returns the address families of a peer.
pub(crate) fn families(peer: &Value) -> String {
    let families = joined(peer, "/spec/families");
    if families.is_empty() { "IPv4,IPv6".to_owned() } else { families }
}

/// Returns the hold time in seconds.
pub(crate) fn hold_time(peer: &Value) -> String {
    with_default(peer, "/spec/holdTime", "90")
}

fn restart(peer: &Value) -> String {
    let time = text(peer, "/spec/gracefulRestart/restartTime");
    if time.is_empty() { "-".to_owned() } else { format!("{time}s") }
}

/// Returns the value at a pointer, or `default` if it is empty.
pub(crate) fn with_default(object: &Value, at: &str, default: &str) -> String {
    let given = text(object, at);
    if given.is_empty() { default.to_owned() } else { given }
}

/// Returns a dash for an empty value.
pub(crate) fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            assert_eq!(remote(&json!({ "spec": spec })), written);
        }
    }
}

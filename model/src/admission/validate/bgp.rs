//! Validation rules of BgpPeers, BfdProfiles, the BGP settings of Nodes, and BGP Advertisements.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{check_length, check_network, pool::check_selectors};
use crate::{
    kinds::{
        advertisement::{
            ADVERTISEMENT_ENTRIES_MAX, AdvertisementSpec, AdvertisementType, PREPEND_MAX, WhenIsolated,
        },
        bfd_profile::{BFD_INTERVAL_MS_MAX, BFD_INTERVAL_MS_MIN, BfdProfileSpec},
        bgp_peer::{
            BgpPeerSpec, DYNAMIC_NEIGHBOURS_MAX, HOLD_TIME_DEFAULT, HOLD_TIME_MIN, NodeBgp,
            PASSWORD_BYTES_MAX, PEER_SELECTORS_MAX, PeerAsn, RESTART_TIME_MAX, forbidden_asn,
        },
    },
    primitives::{
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn validate_peer(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    check_place(spec, found);
    check_source(spec, found);
    check_numbers(spec, found);
    check_timers(spec, found);
    check_hops(spec, found);
    if spec.password.as_ref().is_some_and(|password| password.reveal().len() > PASSWORD_BYTES_MAX) {
        let message = format!("must be at most {PASSWORD_BYTES_MAX} bytes long (RFC 2385 in Linux)");
        found.push(Violation::new("/spec/password", ViolationCode::TooLong, message));
    }
    check_selectors("/spec/nodeSelectors", &spec.node_selectors, PEER_SELECTORS_MAX, found);
}

/// Checks that exactly one field locates the peer: an address, an interface, or a network of dynamic neighbors.
fn check_place(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    let is_on_link = spec.peer_address.is_some_and(is_link_local);
    let ways = [
        ("peerAddress", spec.peer_address.is_some()),
        ("interface", spec.interface.is_some() && !is_on_link),
        ("peerNetwork", spec.peer_network.is_some()),
    ];
    let given: Vec<&str> = ways.iter().filter(|(_, is_given)| *is_given).map(|(field, _)| *field).collect();
    match given[..] {
        [] => found.push(
            Violation::new("/spec/peerAddress", ViolationCode::Required, "must be present, or one of the other fields that locate the peer")
                .hint("set peerAddress; or interface, to discover the peer on a link; or peerNetwork, to accept all neighbors in it"),
        ),
        [_] => {}
        [first, ..] => {
            for field in &given[1..] {
                let message = format!("must be left out with {first}: one field locates the peer");
                found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message));
            }
        }
    }
    if is_on_link && spec.interface.is_none() {
        let message = "must be given with a link-local peerAddress, which is on every link";
        found.push(Violation::new("/spec/interface", ViolationCode::Required, message));
    }
    if let Some(why) = spec.peer_address.and_then(no_router) {
        let message = format!("must be the address of a router, not one that is {why}");
        found.push(Violation::new("/spec/peerAddress", ViolationCode::AddressNotAllowed, message));
    }
    if let Some(network) = &spec.peer_network {
        check_peer_network(network, found);
    }
    check_dynamic(spec, found);
}

fn check_peer_network(network: &IpNet, found: &mut Vec<Violation>) {
    let at = "/spec/peerNetwork";
    if !check_network(at.to_owned(), network, found) {
        return;
    }
    if network.prefix_len() == 0 {
        let message = "must be a network of routers, not the default route";
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    } else if let Some(why) = no_router(network.network()).filter(|_| network.prefix_len() > 0) {
        let message = format!("must be a network of routers; {network} begins with an address that is {why}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
}

/// Checks the fields that apply to dynamic neighbors only.
fn check_dynamic(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    if let Some(limit) = spec.dynamic_limit {
        if spec.peer_network.is_none() {
            let message = "must be left out without peerNetwork, whose neighbors it limits";
            found.push(Violation::new("/spec/dynamicLimit", ViolationCode::Conflict, message));
        }
        if !(1..=DYNAMIC_NEIGHBOURS_MAX).contains(&limit) {
            let message = format!("must be between 1 and {DYNAMIC_NEIGHBOURS_MAX}, not {limit}");
            found.push(Violation::new("/spec/dynamicLimit", ViolationCode::Invalid, message));
        }
    }
    if spec.peer_network.is_some() {
        for (field, is_given) in
            [("peerPort", spec.peer_port.is_some()), ("connectTime", spec.connect_time.is_some())]
        {
            if is_given {
                let message = "must be left out with peerNetwork: its neighbors connect to the node";
                found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message));
            }
        }
    }
}

/// Returns the reason why an address cannot belong to a router; `None` if it can. Loopback addresses are allowed,
/// because another daemon on the machine may be the peer.
fn no_router(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("unspecified (0.0.0.0/8)"),
        IpAddr::V4(v4) if v4.is_multicast() => Some("multicast (224.0.0.0/4)"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some("reserved or broadcast (240.0.0.0/4)"),
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) if v6.is_unspecified() => Some("unspecified (::)"),
        IpAddr::V6(v6) if v6.is_multicast() => Some("multicast (ff00::/8)"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("IPv4-mapped (::ffff:0:0/96); write the IPv4 address instead")
        }
        IpAddr::V6(_) => None,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn check_source(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    let at = "/spec/sourceAddress";
    let Some(source) = spec.source_address else { return };
    if let Some(why) = no_router(source) {
        let message = format!("must be an address of the node, not one that is {why}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        return;
    }
    let of_network = spec.peer_network.as_ref().map(IpFamily::of_net);
    let on_link = spec.interface.as_ref().map(|_| IpFamily::V6);
    let remote = spec.peer_address.map(IpFamily::of).or(of_network).or(on_link);
    if let Some(family) = remote.filter(|family| *family != IpFamily::of(source)) {
        let message = format!("must be of {}, as the peer is; {source} is not", family.as_str());
        found.push(Violation::new(at, ViolationCode::Conflict, message));
    } else if spec.interface.is_some() && !is_link_local(source) {
        let message = format!("must be link-local, as the peer is; {source} is not");
        found.push(
            Violation::new(at, ViolationCode::Conflict, message)
                .hint("leave it out: the interface has one link-local address"),
        );
    } else if is_link_local(source) && spec.interface.is_none() {
        let message = "must not be link-local without spec.interface";
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
}

fn check_numbers(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    if let PeerAsn::Number(asn) = spec.peer_asn {
        check_asn("/spec/peerASN", asn, found);
    }
    if let Some(asn) = spec.local_asn {
        check_asn("/spec/localASN", asn, found);
    }
    let zeros = [
        ("peerPort", spec.peer_port == Some(0), "a port from 1"),
        ("maxPrefixes", spec.max_prefixes == Some(0), "at least 1"),
        ("connectTime", spec.connect_time == Some(0), "at least 1 second"),
    ];
    for (field, _, wanted) in zeros.iter().filter(|(_, is_zero, _)| *is_zero) {
        let message = format!("must be {wanted}, not 0");
        found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Invalid, message));
    }
    if let Some(restart) = spec.graceful_restart.map(|restart| restart.restart_time)
        && !(1..=RESTART_TIME_MAX).contains(&restart)
    {
        let message = format!("must be between 1 and {RESTART_TIME_MAX} seconds (RFC 4724), not {restart}");
        found.push(Violation::new("/spec/gracefulRestart/restartTime", ViolationCode::Invalid, message));
    }
}

fn check_asn(at: &str, asn: u32, found: &mut Vec<Violation>) {
    if let Some(why) = forbidden_asn(asn) {
        let message = format!("must be a usable AS number; {asn} is {why}");
        found.push(
            Violation::new(at, ViolationCode::Invalid, message)
                .hint("64512 to 65534 and 4200000000 to 4294967294 are for private use (RFC 6996)"),
        );
    }
}

fn check_timers(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    let hold = spec.hold_time.unwrap_or(HOLD_TIME_DEFAULT);
    if (1..HOLD_TIME_MIN).contains(&hold) {
        let message = format!("must be 0, or at least {HOLD_TIME_MIN} seconds (RFC 4271), not {hold}");
        found.push(
            Violation::new("/spec/holdTime", ViolationCode::Invalid, message)
                .hint("BFD detects a failure in less than a second: name a bfdProfile"),
        );
    }
    let at = "/spec/keepaliveTime";
    match spec.keepalive_time {
        None => {}
        Some(_) if hold == 0 => {
            let message = "must be left out with holdTime 0, which disables keepalives";
            found.push(Violation::new(at, ViolationCode::Conflict, message));
        }
        Some(0) => {
            let message = "must be at least 1 second, not 0";
            found.push(Violation::new(at, ViolationCode::Invalid, message));
        }
        Some(keepalive) if keepalive >= hold => {
            let message = format!("must be less than holdTime, {hold}, not {keepalive}");
            found.push(
                Violation::new(at, ViolationCode::Conflict, message)
                    .hint("the default is a third of holdTime"),
            );
        }
        Some(_) => {}
    }
}

/// Checks the hop limits, which depend on the session type.
fn check_hops(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    if let Some(hops) = spec.ttl_security.filter(|hops| !(1..=254).contains(hops)) {
        let message = format!("must be between 1 and 254 hops, not {hops}");
        found.push(Violation::new("/spec/ttlSecurity", ViolationCode::Invalid, message));
    }
    if spec.ttl_security.is_some() && spec.ebgp_multi_hop {
        let message = "must be left out with ttlSecurity, which sets the distance of the peer in hops";
        found.push(Violation::new("/spec/ebgpMultiHop", ViolationCode::Conflict, message));
    }
    if spec.ebgp_multi_hop && (spec.interface.is_some() || spec.peer_address.is_some_and(is_link_local)) {
        let message = "must be left out for a peer on a link of the node";
        found.push(Violation::new("/spec/ebgpMultiHop", ViolationCode::Conflict, message));
    }
    let is_internal = match (spec.peer_asn, spec.local_asn) {
        (PeerAsn::Internal, _) => true,
        (PeerAsn::Number(peer), Some(local)) => peer == local,
        (PeerAsn::Number(_), None) | (PeerAsn::External, _) => false,
    };
    if is_internal {
        check_internal(spec, found);
    }
    if spec.route_reflector_client {
        check_client(spec, found);
    }
}

/// Checks that a client of a route reflector is of the AS of the node.
fn check_client(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    let at = "/spec/routeReflectorClient";
    if spec.peer_asn != PeerAsn::Internal {
        let message =
            "must be left out unless peerASN is internal: routes are reflected within an AS (RFC 4456)";
        found.push(Violation::new(at, ViolationCode::Conflict, message).hint("set `peerASN: internal`"));
    }
    if spec.local_asn.is_some() {
        let message = "must be left out with localASN: routes are reflected in the AS of the node";
        found.push(Violation::new(at, ViolationCode::Conflict, message));
    }
}

/// Checks that fields for external peers are absent from an internal peer.
pub(crate) fn check_internal(spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
    if spec.ebgp_multi_hop {
        let message = "must be left out for an internal peer, which may be any number of hops away";
        found.push(Violation::new("/spec/ebgpMultiHop", ViolationCode::Conflict, message));
    }
    if spec.role.is_some() {
        let message = "must be left out for an internal peer: roles are between two AS (RFC 9234)";
        found.push(Violation::new("/spec/role", ViolationCode::Conflict, message));
    }
}

pub(super) fn validate_profile(spec: &BfdProfileSpec, found: &mut Vec<Violation>) {
    for (field, interval) in
        [("receiveInterval", spec.receive_interval), ("transmitInterval", spec.transmit_interval)]
    {
        if !(BFD_INTERVAL_MS_MIN..=BFD_INTERVAL_MS_MAX).contains(&interval) {
            let message = format!(
                "must be between {BFD_INTERVAL_MS_MIN} and {BFD_INTERVAL_MS_MAX} milliseconds, not {interval}"
            );
            found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Invalid, message));
        }
    }
    if spec.detect_multiplier == 0 {
        let message = "must be at least 1: the number of missing packets after which the path has failed";
        found.push(Violation::new("/spec/detectMultiplier", ViolationCode::Invalid, message));
    }
    if !(1..=254).contains(&spec.minimum_ttl) {
        let message = format!("must be between 1 and 254, not {}", spec.minimum_ttl);
        found.push(Violation::new("/spec/minimumTtl", ViolationCode::Invalid, message));
    }
}

/// Checks the AS number and the BGP Identifier of a Node.
pub(super) fn validate_node(bgp: &NodeBgp, found: &mut Vec<Violation>) {
    if let Some(asn) = bgp.asn {
        check_asn("/spec/bgp/asn", asn, found);
    }
    if bgp.router_id == Some(Ipv4Addr::UNSPECIFIED) {
        let message = "must not be 0.0.0.0, which is no BGP Identifier (RFC 6286)";
        found.push(
            Violation::new("/spec/bgp/routerId", ViolationCode::Invalid, message)
                .hint("leave it out to have one derived from the Node's addresses or its name"),
        );
    }
}

/// Checks that an Advertisement of type L2 sets no fields of type BGP, and the reverse, because such fields
/// have no effect. Also checks the values of BGP fields.
pub(super) fn validate_advertisement(spec: &AdvertisementSpec, found: &mut Vec<Violation>) {
    let is_bgp = spec.advertisement_type == AdvertisementType::Bgp;
    let of_bgp = [
        ("peers", !spec.peers.is_empty()),
        ("workloadNetworks", !spec.workload_networks.is_empty()),
        ("aggregationLength", spec.aggregation_length.is_some()),
        ("aggregationLengthV6", spec.aggregation_length_v6.is_some()),
        ("localPref", spec.local_pref.is_some()),
        ("med", spec.med.is_some()),
        ("prepend", spec.prepend.is_some()),
        ("communities", !spec.communities.is_empty()),
    ];
    let of_l2 = [
        ("interfaces", !spec.interfaces.is_empty()),
        ("preferredNodeSelectors", !spec.preferred_node_selectors.is_empty()),
        ("answerPing", !spec.answer_ping),
        ("whenIsolated", spec.when_isolated != WhenIsolated::default()),
    ];
    let (foreign, word) = if is_bgp { (&of_l2[..], "BGP") } else { (&of_bgp[..], "L2") };
    for (field, _) in foreign.iter().filter(|(_, is_given)| *is_given) {
        let message = format!("must be left out of an Advertisement of type {word}, where it has no effect");
        let violation = Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message);
        found.push(if is_bgp {
            violation
        } else {
            violation.hint("set `type: BGP` for a BGP Advertisement")
        });
    }
    if is_bgp {
        check_values(spec, found);
    }
}

fn check_values(spec: &AdvertisementSpec, found: &mut Vec<Violation>) {
    check_length("/spec/peers", spec.peers.len(), ADVERTISEMENT_ENTRIES_MAX, found);
    check_length("/spec/workloadNetworks", spec.workload_networks.len(), ADVERTISEMENT_ENTRIES_MAX, found);
    if !spec.announces_addresses() {
        for (field, is_given) in [
            ("serviceSelectors", !spec.service_selectors.is_empty()),
            ("aggregationLength", spec.aggregation_length.is_some()),
            ("aggregationLengthV6", spec.aggregation_length_v6.is_some()),
        ] {
            if is_given {
                let message = "must be left out with `workloadNetworks`, because it selects or aggregates addresses of load balancers";
                found.push(
                    Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message)
                        .hint("list pools in `addressPools` to announce their addresses as well"),
                );
            }
        }
    }
    check_length("/spec/communities", spec.communities.len(), ADVERTISEMENT_ENTRIES_MAX, found);
    for (field, length, max) in [
        ("aggregationLength", spec.aggregation_length, 32),
        ("aggregationLengthV6", spec.aggregation_length_v6, 128),
    ] {
        if let Some(length) = length.filter(|length| !(1..=max).contains(length)) {
            let message = format!("must be between 1 and {max}, not {length}");
            found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Invalid, message));
        }
    }
    if let Some(prepend) = spec.prepend.filter(|prepend| *prepend > PREPEND_MAX) {
        let message = format!("must be at most {PREPEND_MAX}, not {prepend}");
        found.push(Violation::new("/spec/prepend", ViolationCode::Invalid, message));
    }
}

//! Validation of the fields of BgpPeers, BfdProfiles, Nodes and BGP Advertisements: all violations are returned at
//! once, with their JSON pointers.

use model::{
    admission::decode::{Expect, decode},
    primitives::violation::{
        Violation,
        ViolationCode::{self, AddressNotAllowed, Conflict, Invalid, Required, TooLong},
    },
};
use serde_json::{Value, json};

use crate::support::{object, of_kind};

fn announcing(name: &str, more: Value) -> Value {
    let mut spec = json!({ "type": "BGP" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    of_kind("Advertisement", name, json!({}), spec)
}

fn violations_of(value: &Value) -> Vec<(String, ViolationCode)> {
    let found = decode(value, &Expect::default()).err().unwrap_or_default();
    found.into_iter().map(|Violation { pointer, code, .. }| (pointer, code)).collect()
}

/// Returns JSON pointer and code of each violation in a BgpPeer with the given spec.
fn refused_peer(spec: Value) -> Vec<(String, ViolationCode)> {
    violations_of(&of_kind("BgpPeer", "router", json!({}), spec))
}

fn at(field: &str, code: ViolationCode) -> Vec<(String, ViolationCode)> {
    vec![(format!("/spec/{field}"), code)]
}

fn with(base: Value, field: &str, value: Value) -> Value {
    let mut spec = base;
    spec[field] = value;
    spec
}

fn plain() -> Value {
    json!({ "peerAddress": "10.0.0.1", "peerASN": 65_001 })
}

#[test]
fn exactly_one_field_locates_a_peer() {
    for good in [
        plain(),
        json!({ "peerAddress": "127.0.0.1", "peerASN": "internal" }),
        json!({ "peerAddress": "2001:db8::1", "peerASN": "external", "sourceAddress": "2001:db8::2" }),
        json!({ "peerAddress": "fe80::1", "interface": "eth0", "peerASN": 65_001, "sourceAddress": "fe80::2" }),
        json!({ "interface": "eth0", "peerASN": "external" }),
        json!({ "peerNetwork": "10.0.0.0/24", "peerASN": 65_001, "dynamicLimit": 8 }),
    ] {
        assert_eq!(refused_peer(good.clone()), [], "{good}");
    }
    let cases = [
        (json!({ "peerASN": 1 }), at("peerAddress", Required)),
        (with(plain(), "interface", json!("eth0")), at("interface", Conflict)),
        (with(plain(), "peerNetwork", json!("10.0.0.0/24")), at("peerNetwork", Conflict)),
        (json!({ "peerAddress": "fe80::1", "peerASN": 1 }), at("interface", Required)),
        (with(plain(), "peerAddress", json!("224.0.0.5")), at("peerAddress", AddressNotAllowed)),
        (with(plain(), "peerAddress", json!("0.0.0.0")), at("peerAddress", AddressNotAllowed)),
        (with(plain(), "peerAddress", json!("255.255.255.255")), at("peerAddress", AddressNotAllowed)),
        (with(plain(), "peerAddress", json!("ff02::5")), at("peerAddress", AddressNotAllowed)),
        (with(plain(), "peerAddress", json!("::ffff:10.0.0.1")), at("peerAddress", AddressNotAllowed)),
        (json!({ "peerNetwork": "10.0.0.1/24", "peerASN": 1 }), at("peerNetwork", Invalid)),
        (json!({ "peerNetwork": "0.0.0.0/0", "peerASN": 1 }), at("peerNetwork", AddressNotAllowed)),
        (json!({ "peerNetwork": "224.0.0.0/8", "peerASN": 1 }), at("peerNetwork", AddressNotAllowed)),
        (json!({ "peerNetwork": "10.0.0.0/8", "peerASN": 1, "peerPort": 1179 }), at("peerPort", Conflict)),
        (json!({ "peerNetwork": "10.0.0.0/8", "peerASN": 1, "connectTime": 9 }), at("connectTime", Conflict)),
        (
            json!({ "peerNetwork": "10.0.0.0/8", "peerASN": 1, "dynamicLimit": 257 }),
            at("dynamicLimit", Invalid),
        ),
        (with(plain(), "dynamicLimit", json!(4)), at("dynamicLimit", Conflict)),
        (with(plain(), "sourceAddress", json!("2001:db8::2")), at("sourceAddress", Conflict)),
        (with(plain(), "sourceAddress", json!("224.0.0.1")), at("sourceAddress", AddressNotAllowed)),
        (
            json!({ "interface": "eth0", "peerASN": 1, "sourceAddress": "2001:db8::2" }),
            at("sourceAddress", Conflict),
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(refused_peer(spec.clone()), expected, "{spec}");
    }
}

/// A client of a route reflector is a peer of the AS of the node.
#[test]
fn f160_clients_of_a_route_reflector_are_internal_peers() {
    let client = json!({ "peerNetwork": "10.0.0.0/24", "peerASN": "internal", "routeReflectorClient": true });
    assert_eq!(refused_peer(client.clone()), []);
    let refused = at("routeReflectorClient", Conflict);
    for asn in [json!("external"), json!(65_001)] {
        assert_eq!(refused_peer(with(client.clone(), "peerASN", asn)), refused);
    }
    assert_eq!(refused_peer(with(client, "localASN", json!(65_001))), refused);
}

#[test]
fn numbers_and_times_of_a_peer_are_in_range_and_all_violations_are_returned_at_once() {
    let cases = [
        ("peerASN", json!(0), Invalid),
        ("peerASN", json!(23_456), Invalid),
        ("peerASN", json!(65_535), Invalid),
        ("peerASN", json!(4_294_967_295_u32), Invalid),
        ("peerASN", json!("mine"), Invalid),
        ("peerASN", json!(4_294_967_296_u64), Invalid),
        ("peerASN", json!(-1), Invalid),
        ("localASN", json!(23_456), Invalid),
        ("holdTime", json!(1), Invalid),
        ("holdTime", json!(2), Invalid),
        ("keepaliveTime", json!(0), Invalid),
        ("keepaliveTime", json!(90), Conflict),
        ("connectTime", json!(0), Invalid),
        ("peerPort", json!(0), Invalid),
        ("maxPrefixes", json!(0), Invalid),
        ("ttlSecurity", json!(0), Invalid),
        ("ttlSecurity", json!(255), Invalid),
        ("password", json!("x".repeat(81)), TooLong),
        ("password", json!("ü".repeat(41)), TooLong),
    ];
    for (field, value, code) in cases {
        assert_eq!(refused_peer(with(plain(), field, value.clone())), at(field, code), "{field}: {value}");
    }
    for (field, value) in [
        ("holdTime", json!(0)),
        ("holdTime", json!(3)),
        ("keepaliveTime", json!(30)),
        ("password", json!("x".repeat(80))),
        ("peerASN", json!(4_200_000_000_u32)),
        ("ebgpMultiHop", json!(true)),
        ("families", json!(["IPv6"])),
        ("role", json!("Customer")),
        ("gracefulRestart", json!({})),
    ] {
        assert_eq!(refused_peer(with(plain(), field, value.clone())), [], "{field}: {value}");
    }
    let restart = with(plain(), "gracefulRestart", json!({ "restartTime": 4096 }));
    assert_eq!(refused_peer(restart), at("gracefulRestart/restartTime", Invalid));
    let silent = with(with(plain(), "holdTime", json!(0)), "keepaliveTime", json!(1));
    assert_eq!(refused_peer(silent), at("keepaliveTime", Conflict));
    let both = with(with(plain(), "ttlSecurity", json!(1)), "ebgpMultiHop", json!(true));
    assert_eq!(refused_peer(both), at("ebgpMultiHop", Conflict));
    let inside = json!({ "peerAddress": "10.0.0.1", "peerASN": 65_001, "localASN": 65_001, "ebgpMultiHop": true, "role": "Peer" });
    assert_eq!(refused_peer(inside), [at("ebgpMultiHop", Conflict), at("role", Conflict)].concat());
    let all = json!({ "peerASN": 0, "localASN": 65_535, "holdTime": 2, "password": "x".repeat(99), "connectTime": 0 });
    let fields: Vec<_> = refused_peer(all).into_iter().map(|(pointer, _)| pointer).collect();
    let expected = ["peerAddress", "peerASN", "localASN", "connectTime", "holdTime", "password"];
    assert_eq!(fields, expected.map(|field| format!("/spec/{field}")));
}

#[test]
fn profiles_nodes_and_advertisements_are_checked_field_by_field() {
    let profile = |spec: Value| violations_of(&of_kind("BfdProfile", "fast", json!({}), spec));
    assert_eq!(profile(json!({})), []);
    assert_eq!(profile(json!({ "receiveInterval": 10, "transmitInterval": 60_000, "minimumTtl": 1 })), []);
    for (field, value) in [
        ("receiveInterval", json!(9)),
        ("transmitInterval", json!(60_001)),
        ("detectMultiplier", json!(0)),
        ("detectMultiplier", json!(256)),
        ("minimumTtl", json!(255)),
        ("minimumTtl", json!(0)),
    ] {
        assert_eq!(profile(json!({ field: value })), at(field, Invalid), "{field}");
    }
    let of_node = |bgp: Value| violations_of(&of_kind("Node", "n", json!({}), json!({ "bgp": bgp })));
    assert_eq!(of_node(json!({ "asn": 65_001, "routerId": "10.0.0.1" })), []);
    assert_eq!(
        of_node(json!({ "asn": 0, "routerId": "0.0.0.0" })),
        [at("bgp/asn", Invalid), at("bgp/routerId", Invalid)].concat()
    );
    let of_l2 = |field: &str, value: Value| {
        violations_of(&of_kind("Advertisement", "a", json!({}), json!({ field: value })))
    };
    for (field, value) in [
        ("peers", json!(["r"])),
        ("aggregationLength", json!(24)),
        ("aggregationLengthV6", json!(64)),
        ("localPref", json!(1)),
        ("med", json!(1)),
        ("prepend", json!(1)),
        ("communities", json!(["no-export"])),
    ] {
        assert_eq!(of_l2(field, value), at(field, Conflict), "{field}");
    }
    let of_bgp = |field: &str, value: Value| violations_of(&announcing("a", json!({ field: value })));
    for (field, value) in [
        ("interfaces", json!(["eth0"])),
        ("preferredNodeSelectors", json!([{ "weight": 1, "preference": {} }])),
        ("answerPing", json!(false)),
        ("whenIsolated", json!("Withdraw")),
    ] {
        assert_eq!(of_bgp(field, value), at(field, Conflict), "{field}");
    }
    for (field, value) in [
        ("aggregationLength", json!(0)),
        ("aggregationLength", json!(33)),
        ("aggregationLengthV6", json!(129)),
        ("prepend", json!(17)),
    ] {
        assert_eq!(of_bgp(field, value), at(field, Invalid), "{field}");
    }
    assert_eq!(of_bgp("communities", json!(["65000:1", "maybe"])), at("communities/1", Invalid));
    // The object as the server returns it can be sent back.
    let shown = object(&announcing("a", json!({ "med": 1 }))).to_json();
    assert_eq!(violations_of(&shown), []);
}

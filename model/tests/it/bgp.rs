//! Admission of BGP objects: reasons for refusals, the resulting configuration that nodes receive, and
//! passwords, which responses never contain.

use std::net::{IpAddr, Ipv4Addr};

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    bgp::{
        compile::{bgp_state, identity},
        identity::RouterIdSource,
        settings::{BgpRemote, BgpState},
    },
    cluster::change::Action,
    kinds::{bgp_peer::PeerAsn, node::NodeSpec},
    observed::{
        rollup::{bfd_profile_status, bgp_peer_status},
        status::{BgpPeerStatus, ConditionStatus},
    },
    primitives::{
        name::Name,
        violation::{
            Violation,
            ViolationCode::{self, Conflict, Duplicate, InUse, NotFound, Overlap},
        },
    },
    wire::feed::{Frame, NodeState},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

const ASN: u32 = 64_512;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn peer(name: &str, spec: Value) -> Value {
    of_kind("BgpPeer", name, json!({}), spec)
}

/// Returns a BgpPeer with an external AS number and address 10.0.0.`last`. The fields in `more` are added to
/// its spec or replaced.
fn router(name: &str, last: u8, more: Value) -> Value {
    let mut spec = json!({ "peerAddress": format!("10.0.0.{last}"), "peerASN": 65_001 });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    peer(name, spec)
}

fn announcing(name: &str, more: Value) -> Value {
    let mut spec = json!({ "type": "BGP" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    of_kind("Advertisement", name, json!({}), spec)
}

fn node(name: &str, labels: Value, spec: Value) -> Value {
    of_kind("Node", name, labels, spec)
}

fn pool(name: &str, addresses: &[&str]) -> Value {
    of_kind("AddressPool", name, json!({}), json!({ "addresses": addresses }))
}

/// Returns the JSON pointer, code and message of the only violation in a refusal; panics if there is not exactly
/// one.
fn refusal(result: Result<Action, Refusal>) -> (String, ViolationCode, String) {
    match result {
        Err(Refusal::Invalid(found)) if found.len() == 1 => {
            let Violation { pointer, code, message, .. } = found.into_iter().next().unwrap();
            (pointer.trim_start_matches("/items/0").to_owned(), code, message)
        }
        other => panic!("must be refused for one field, was {other:?}"),
    }
}

fn removal(cluster: &mut Cluster, key: &str) -> (ViolationCode, String) {
    match cluster.delete(key) {
        Err(Refusal::Invalid(found)) if found.len() == 1 => (found[0].code, found[0].message.clone()),
        other => panic!("must be refused, was {:?}", other.map(|admitted| admitted.changes)),
    }
}

fn state(cluster: &Cluster, node: &str) -> Option<BgpState> {
    bgp_state(&cluster.snapshot, &name(node), ASN)
}

fn peers_of(cluster: &Cluster, node: &str) -> Vec<String> {
    state(cluster, node)
        .map(|state| state.peers.keys().map(ToString::to_string).collect())
        .unwrap_or_default()
}

fn with(base: Value, field: &str, value: Value) -> Value {
    let mut spec = base;
    spec[field] = value;
    spec
}

/// A write without a BGP password keeps the present one, and an empty password removes it. No response
/// contains a password.
#[test]
fn a_password_is_kept_until_it_is_removed_and_never_shown() {
    let mut cluster = Cluster::new();
    let password = |cluster: &Cluster| {
        let spec = cluster.get("bgppeers//r").as_bgp_peer().unwrap();
        spec.password.as_ref().map(|password| password.reveal().to_owned())
    };
    cluster.apply(&router("r", 1, json!({ "password": "hush-hush" }))).unwrap();
    cluster.apply(&node("n", json!({}), json!({}))).unwrap();
    let shown = cluster.get("bgppeers//r").to_json().to_string();
    assert!(!shown.contains("hush") && !shown.contains("password"), "{shown}");
    assert!(!format!("{:?}", cluster.get("bgppeers//r")).contains("hush"));
    let status = |cluster: &Cluster| {
        let spec = cluster.get("bgppeers//r").as_bgp_peer().unwrap().clone();
        bgp_peer_status(&cluster.snapshot, &name("r"), &spec, ASN)
    };
    assert!(status(&cluster).has_password);
    assert!(!serde_json::to_string(&status(&cluster)).unwrap().contains("hush"));
    // The node needs the password.
    assert_eq!(
        state(&cluster, "n").unwrap().peers[&name("r")].password.as_ref().unwrap().reveal(),
        "hush-hush"
    );
    let read_back = cluster.get("bgppeers//r").to_json();
    assert_eq!(cluster.apply(&read_back).unwrap(), Action::Unchanged);
    cluster.apply(&router("r", 1, json!({ "holdTime": 30 }))).unwrap();
    assert_eq!(password(&cluster).as_deref(), Some("hush-hush"));
    cluster.apply(&router("r", 1, json!({ "password": "other" }))).unwrap();
    assert_eq!(password(&cluster).as_deref(), Some("other"));
    cluster.apply(&router("r", 1, json!({ "password": "" }))).unwrap();
    assert_eq!((password(&cluster), status(&cluster).has_password), (None, false));
    // A password of the wrong type is not quoted in the refusal.
    let found = decode(&router("r", 1, json!({ "password": 47_114_711 })), &Expect::default()).unwrap_err();
    assert_eq!((found.len(), found[0].pointer.as_str()), (1, "/spec/password"));
    assert!(!format!("{found:?}").contains("4711"), "{found:?}");
}

#[test]
fn a_node_receives_its_peers_with_all_defaults_set() {
    let mut cluster = Cluster::new();
    assert_eq!(state(&cluster, "n"), None);
    cluster
        .apply(&node(
            "n",
            json!({ "rack": "a" }),
            json!({ "addresses": ["2001:db8::9", "10.0.0.9", "10.0.0.8"] }),
        ))
        .unwrap();
    cluster
        .apply(&node(
            "other",
            json!({}),
            json!({ "bgp": { "asn": 65_001, "routerId": "1.2.3.4" }, "unschedulable": true }),
        ))
        .unwrap();
    assert_eq!(state(&cluster, "n"), None, "nothing is told where there are no peers");
    let fast = of_kind("BfdProfile", "fast", json!({}), json!({ "receiveInterval": 100 }));
    let in_rack = json!([{ "matchLabels": { "rack": "a" } }]);
    for value in [
        fast,
        router("r1", 1, json!({ "bfdProfile": "fast", "nodeSelectors": in_rack })),
        router("r2", 2, json!({ "localASN": 65_001, "peerPort": 1179, "holdTime": 9, "families": ["IPv4"] })),
        router("far", 3, json!({ "ebgpMultiHop": true, "passive": true, "nodeSelectors": in_rack })),
        router("near", 4, json!({ "ttlSecurity": 1 })),
        router("off", 5, json!({ "disabled": true })),
        peer("link", json!({ "interface": "eth1", "peerASN": "external" })),
        peer("local", json!({ "peerAddress": "fe80::1", "interface": "eth2", "peerASN": "external" })),
        peer(
            "crowd",
            json!({ "peerNetwork": "10.1.0.0/16", "peerASN": "internal", "routeReflectorClient": true }),
        ),
        announcing("to-all", json!({ "communities": ["no-export"], "med": 7 })),
        announcing("to-far", json!({ "peers": ["far"], "med": 7, "prepend": 0 })),
        announcing("elsewhere", json!({ "med": 7, "nodeSelectors": [{ "matchLabels": { "rack": "z" } }] })),
    ] {
        cluster.apply(&value).unwrap_or_else(|refusal| panic!("{value}: {refusal:?}"));
    }
    let told = state(&cluster, "n").unwrap();
    assert_eq!((told.asn, told.router_id, told.is_draining), (ASN, Ipv4Addr::new(10, 0, 0, 9), false));
    // The sent state decodes to the same value, on the wire and in an agent's journal.
    let frame = Frame::Node(NodeState { bgp: Some(Box::new(told.clone())), ..NodeState::default() });
    assert_eq!(serde_json::from_str::<Frame>(&serde_json::to_string(&frame).unwrap()).unwrap(), frame);
    let names: Vec<_> = told.peers.keys().map(Name::as_str).collect();
    assert_eq!(names, ["crowd", "far", "link", "local", "near", "r1", "r2"]);
    let of = |peer: &str| &told.peers[&name(peer)];
    let r1 = of("r1");
    assert_eq!(r1.remote, BgpRemote::Address(IpAddr::from([10, 0, 0, 1])));
    assert_eq!((r1.local_asn, r1.peer_asn, r1.port, r1.hold_time), (ASN, PeerAsn::Number(65_001), 179, 90));
    assert_eq!((r1.connect_time, r1.families.len(), r1.max_prefixes), (5, 2, 1_000_000));
    assert_eq!(r1.bfd.as_ref().map(|bfd| (bfd.receive_interval, bfd.transmit_interval)), Some((100, 300)));
    assert_eq!((of("r2").local_asn, of("r2").port, of("r2").families.len()), (65_001, 1179, 1));
    let ttls: Vec<_> = ["r1", "r2", "far", "near", "crowd"].map(|peer| of(peer).ttl).to_vec();
    assert_eq!(ttls, [1, 64, 64, 255, 64], "external, internal, several hops, GTSM, internal");
    assert_eq!((of("far").passive, of("crowd").passive, of("r1").passive), (true, true, false));
    assert_eq!(of("link").remote, BgpRemote::Interface("eth1".to_owned().try_into().unwrap()));
    assert!(of("local").device.is_some());
    assert!(matches!(of("crowd").remote, BgpRemote::Network { limit: 16, .. }));
    assert_eq!((of("crowd").route_reflector_client, of("r2").route_reflector_client), (true, false));
    let advertisements: Vec<_> = told.advertisements.keys().map(Name::as_str).collect();
    assert_eq!(advertisements, ["to-all", "to-far"]);
    let to_all = &told.advertisements[&name("to-all")];
    assert_eq!((to_all.aggregation_length, to_all.aggregation_length_v6, to_all.med), (32, 128, Some(7)));
    // A node without the named peers does not receive the Advertisement; without names it would apply to all
    // peers.
    let other = state(&cluster, "other").unwrap();
    assert_eq!((other.asn, other.router_id, other.is_draining), (65_001, Ipv4Addr::new(1, 2, 3, 4), true));
    assert_eq!(other.advertisements.keys().map(Name::as_str).collect::<Vec<_>>(), ["to-all"]);
    assert_eq!(other.peers[&name("near")].ttl, 255);
    assert_eq!(other.peers[&name("crowd")].local_asn, 65_001);
}

#[test]
fn a_router_id_comes_from_the_spec_an_address_or_the_name_and_is_never_zero() {
    let id = |name_of: &str, spec: Value| {
        let spec: NodeSpec = serde_json::from_value(spec).unwrap();
        let who = identity(&name(name_of), &spec, ASN);
        (who.router_id.to_string(), who.router_id_from)
    };
    let both = json!({ "addresses": ["10.0.0.9"], "bgp": { "routerId": "1.2.3.4" } });
    assert_eq!(id("n", both), ("1.2.3.4".to_owned(), RouterIdSource::Node));
    assert_eq!(
        id("n", json!({ "addresses": ["fd00::1", "10.0.0.9"] })),
        ("10.0.0.9".to_owned(), RouterIdSource::Address)
    );
    // FNV-1a of "node-1", computed independently: upgrades must keep the identifier.
    assert_eq!(id("node-1", json!({ "addresses": ["fd00::1"] })).1, RouterIdSource::Name);
    assert_ne!(id("node-1", json!({})).0, id("node-2", json!({})).0);
    assert_eq!(id("node-1", json!({})).0, "84.196.51.131");
    let mut cluster = Cluster::new();
    cluster.apply(&node("a", json!({}), json!({ "bgp": { "routerId": "1.2.3.4" } }))).unwrap();
    let (pointer, code, message) =
        refusal(cluster.apply(&node("b", json!({}), json!({ "bgp": { "routerId": "1.2.3.4" } }))));
    assert_eq!((pointer.as_str(), code), ("/spec/bgp/routerId", Duplicate));
    assert!(message.contains("Node a has 1.2.3.4"), "{message}");
}

#[test]
fn one_router_is_one_peer_of_a_node() {
    let mut cluster = Cluster::new();
    let rack = |rack: &str| json!([{ "matchLabels": { "rack": rack } }]);
    cluster.apply(&node("n1", json!({ "rack": "a" }), json!({}))).unwrap();
    cluster.apply(&node("n2", json!({ "rack": "b", "row": "1" }), json!({}))).unwrap();
    cluster.apply(&router("first", 1, json!({ "nodeSelectors": rack("a") }))).unwrap();
    for (more, meeting) in [
        (json!({}), "every Node that it selects"),
        (json!({ "nodeSelectors": rack("a"), "sourceAddress": "10.0.0.9" }), "every Node that it selects"),
        (
            json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "rack", "operator": "Exists" }] }] }),
            "Node n1",
        ),
    ] {
        let (pointer, code, message) = refusal(cluster.apply(&router("second", 1, more)));
        assert_eq!((pointer.as_str(), code), ("/spec/peerAddress", Duplicate));
        assert!(message.contains("BgpPeer first") && message.contains(meeting), "{message}");
    }
    for good in [
        json!({ "peerPort": 1179 }),
        json!({ "nodeSelectors": rack("b") }),
        json!({ "disabled": true }),
        json!({ "nodeSelectors": rack("c") }),
    ] {
        cluster
            .apply(&router("second", 1, good.clone()))
            .unwrap_or_else(|refusal| panic!("{good}: {refusal:?}"));
    }
    // The device at the other end of a link may also be a peer by its address.
    cluster.apply(&peer("link", json!({ "interface": "eth1", "peerASN": "external" }))).unwrap();
    let there = |interface: &str| {
        peer("there", json!({ "peerAddress": "fe80::1", "interface": interface, "peerASN": "external" }))
    };
    assert_eq!(refusal(cluster.apply(&there("eth1"))).1, Duplicate);
    cluster.apply(&there("eth2")).unwrap();
    let other = peer("link", json!({ "interface": "eth2", "peerASN": "external" }));
    let (pointer, code, _) = refusal(cluster.apply(&other));
    assert_eq!((pointer.as_str(), code), ("/spec/interface", Duplicate));
    for key in ["bgppeers//link", "bgppeers//there"] {
        cluster.delete(key).unwrap();
    }
    // Agents set labels, so the conflict is not refused: the first name keeps the session, and the status
    // reports it.
    cluster.apply(&router("second", 1, json!({ "nodeSelectors": rack("b") }))).unwrap();
    let both = json!([{ "matchLabels": { "row": "1" } }]);
    let mut other = router("first", 1, json!({ "nodeSelectors": [rack("a")[0], both[0]] }));
    assert_eq!(refusal(cluster.apply(&other)).1, Duplicate);
    other["spec"]["nodeSelectors"] = json!([rack("a")[0], { "matchLabels": { "row": "2" } }]);
    cluster.apply(&other).unwrap();
    cluster.apply(&node("n2", json!({ "rack": "b", "row": "2" }), json!({}))).unwrap();
    assert_eq!(peers_of(&cluster, "n2"), ["first"]);
    let spec = cluster.get("bgppeers//second").as_bgp_peer().unwrap().clone();
    let BgpPeerStatus { conditions, nodes, .. } =
        bgp_peer_status(&cluster.snapshot, &name("second"), &spec, ASN);
    assert_eq!((conditions[1].reason.as_str(), nodes.len()), ("SameRouter", 1));
    assert!(nodes[&name("n2")].problem.as_ref().unwrap().contains("BgpPeer first"));
    // The conflict does not block other writes.
    cluster.apply(&pool("lan", &["198.51.100.0/28"])).unwrap();
}

#[test]
fn references_exist_and_referenced_objects_stay() {
    let mut cluster = Cluster::new();
    let missing = refusal(cluster.apply(&router("r", 1, json!({ "bfdProfile": "fast" }))));
    assert_eq!((missing.0.as_str(), missing.1), ("/spec/bfdProfile", NotFound));
    let missing = refusal(cluster.apply(&announcing("a", json!({ "peers": ["r"] }))));
    assert_eq!((missing.0.as_str(), missing.1), ("/spec/peers", NotFound));
    let missing = refusal(cluster.apply(&announcing("a", json!({ "addressPools": ["lan"] }))));
    assert_eq!((missing.0.as_str(), missing.1), ("/spec/addressPools", NotFound));
    // The order within one request does not matter.
    let all = [
        announcing("a", json!({ "peers": ["r"] })),
        router("r", 1, json!({ "bfdProfile": "fast" })),
        of_kind("BfdProfile", "fast", json!({}), json!({})),
    ];
    cluster.apply_many(&all, None).unwrap();
    let status = bfd_profile_status(&cluster.snapshot, &name("fast"));
    assert_eq!(status.used_by, [name("r")].into());
    let (code, message) = removal(&mut cluster, "bfdprofiles//fast");
    assert_eq!((code, message.as_str()), (InUse, "BfdProfile fast must stay while BgpPeer r names it"));
    let (code, message) = removal(&mut cluster, "bgppeers//r");
    assert_eq!((code, message.as_str()), (InUse, "BgpPeer r must stay while Advertisement a names it"));
    for key in ["advertisements//a", "bgppeers//r", "bfdprofiles//fast"] {
        cluster.delete(key).unwrap_or_else(|refusal| panic!("{key}: {refusal:?}"));
    }
}

#[test]
fn attributes_without_a_receiving_peer_are_refused_in_either_order_of_writes() {
    let mut cluster = Cluster::new();
    cluster.apply(&router("out", 1, json!({}))).unwrap();
    cluster.apply(&peer("in", json!({ "peerAddress": "10.0.0.2", "peerASN": "internal" }))).unwrap();
    for (more, field) in [
        (json!({ "peers": ["out"], "localPref": 200 }), "localPref"),
        (json!({ "peers": ["in"], "prepend": 2 }), "prepend"),
    ] {
        let (pointer, code, _) = refusal(cluster.apply(&announcing("a", more)));
        assert_eq!((pointer, code), (format!("/spec/{field}"), Conflict));
    }
    for good in [
        json!({ "peers": ["in", "out"], "localPref": 200, "prepend": 2 }),
        json!({ "localPref": 200 }),
        json!({ "peers": ["in"], "prepend": 0 }),
        json!({ "peers": ["in"], "localPref": 200 }),
    ] {
        cluster.apply(&announcing("a", good.clone())).unwrap_or_else(|refusal| panic!("{good}: {refusal:?}"));
    }
    let outside = peer("in", json!({ "peerAddress": "10.0.0.2", "peerASN": "external" }));
    let (pointer, code, message) = refusal(cluster.apply(&outside));
    assert_eq!((pointer.as_str(), code), ("/spec/peerASN", Conflict));
    assert!(message.contains("Advertisement a") && message.contains("localPref"), "{message}");
    // Internal by the AS of the Node: several hops and roles are for external peers only.
    let (pointer, _, message) =
        refusal(cluster.apply(&router("out", 1, json!({ "peerASN": ASN, "ebgpMultiHop": true }))));
    assert_eq!(pointer, "/spec/ebgpMultiHop", "{message}");
}

#[test]
fn an_advertisement_selects_a_node_that_has_one_of_its_peers() {
    let mut cluster = Cluster::new();
    let rack = |rack: &str| json!([{ "matchLabels": { "rack": rack } }]);
    cluster.apply(&router("r", 1, json!({ "nodeSelectors": rack("a") }))).unwrap();
    let beside = announcing("x", json!({ "peers": ["r"], "nodeSelectors": rack("b") }));
    cluster.apply(&beside).unwrap();
    cluster.delete("advertisements//x").unwrap();
    cluster.apply(&node("n1", json!({ "rack": "a" }), json!({}))).unwrap();
    cluster.apply(&beside).unwrap();
    cluster.delete("advertisements//x").unwrap();
    cluster.apply(&node("n2", json!({ "rack": "b" }), json!({}))).unwrap();
    let (pointer, code, _) = refusal(cluster.apply(&beside));
    assert_eq!((pointer.as_str(), code), ("/spec/nodeSelectors", Conflict));
    cluster.apply(&announcing("x", json!({ "peers": ["r"], "nodeSelectors": rack("a") }))).unwrap();
    let (pointer, code, message) =
        refusal(cluster.apply(&router("r", 1, json!({ "nodeSelectors": rack("b") }))));
    assert_eq!((pointer.as_str(), code), ("/spec/nodeSelectors", Conflict));
    assert!(message.contains("Advertisement x"), "{message}");
}

#[test]
fn peers_exchange_routes_of_a_family_of_the_pools() {
    let mut cluster = Cluster::new();
    cluster.apply(&pool("six", &["2001:db8::/64"])).unwrap();
    cluster.apply(&pool("both", &["2001:db8:1::/64", "198.51.100.0/28"])).unwrap();
    cluster.apply(&router("r", 1, json!({ "families": ["IPv4"] }))).unwrap();
    let named = |pool: &str| announcing("a", json!({ "addressPools": [pool], "peers": ["r"] }));
    let (pointer, code, message) = refusal(cluster.apply(&named("six")));
    assert_eq!((pointer.as_str(), code), ("/spec/peers", Conflict));
    assert!(message.contains("IPv6"), "{message}");
    cluster.apply(&named("both")).unwrap();
    cluster.apply(&router("r", 1, json!({}))).unwrap();
    cluster.apply(&named("six")).unwrap();
    let (pointer, code, message) = refusal(cluster.apply(&router("r", 1, json!({ "families": ["IPv4"] }))));
    assert_eq!((pointer.as_str(), code), ("/spec/families", Conflict));
    assert!(message.contains("Advertisement a"), "{message}");
}

#[test]
fn a_prefix_attracts_no_traffic_of_foreign_addresses() {
    let mut cluster = Cluster::new();
    cluster.apply(&pool("small", &["198.51.100.0/28", "2001:db8::/64"])).unwrap();
    let (pointer, code, message) = refusal(
        cluster.apply(&announcing("a", json!({ "addressPools": ["small"], "aggregationLength": 24 }))),
    );
    assert_eq!((pointer.as_str(), code), ("/spec/aggregationLength", Overlap));
    assert!(message.contains("198.51.100.0/24"), "{message}");
    let (pointer, ..) = refusal(cluster.apply(&announcing("a", json!({ "aggregationLengthV6": 48 }))));
    assert_eq!(pointer, "/spec/aggregationLengthV6");
    cluster.apply(&announcing("a", json!({ "aggregationLength": 28, "aggregationLengthV6": 64 }))).unwrap();
    // The pool shrinks below the prefix, or is deleted.
    let (pointer, code, message) =
        refusal(cluster.apply(&pool("small", &["198.51.100.0/29", "2001:db8::/64"])));
    assert_eq!((pointer.as_str(), code), ("/spec/addresses", Overlap));
    assert!(message.contains("Advertisement a") && message.contains("198.51.100.0/28"), "{message}");
    cluster.apply(&pool("small", &["198.51.100.0/27", "2001:db8::/64"])).unwrap();
    cluster.apply(&pool("next", &["198.51.100.32/27"])).unwrap();
    cluster.apply(&announcing("a", json!({ "aggregationLength": 26 }))).unwrap();
    assert_eq!(removal(&mut cluster, "addresspools//next").0, Overlap);
}

#[test]
fn an_aggregated_prefix_and_the_policy_local_exclude_each_other() {
    let mut cluster = Cluster::new();
    cluster.apply(&pool("lan", &["198.51.100.0/28"])).unwrap();
    let wide = announcing("wide", json!({ "addressPools": ["lan"], "aggregationLength": 28 }));
    let balancer = |policy: &str| {
        let spec =
            json!({ "type": "LoadBalancer", "externalTrafficPolicy": policy, "ports": [{ "port": 80 }] });
        service("web", spec)
    };
    cluster.apply(&balancer("Local")).unwrap();
    let (pointer, code, message) = refusal(cluster.apply(&wide));
    assert_eq!((pointer.as_str(), code), ("/spec/aggregationLength", Conflict));
    assert!(message.contains("Service default/web") && message.contains("198.51.100."), "{message}");
    cluster.apply(&balancer("Cluster")).unwrap();
    cluster.apply(&wide).unwrap();
    let (pointer, code, message) = refusal(cluster.apply(&balancer("Local")));
    assert_eq!((pointer.as_str(), code), ("/spec/externalTrafficPolicy", Conflict));
    assert!(message.contains("Advertisement wide"), "{message}");
    // No prefix of ours contains an address outside of pools.
    cluster.delete("advertisements//wide").unwrap();
    cluster.apply(&announcing("all", json!({ "aggregationLength": 28 }))).unwrap();
    let spec = json!({ "type": "LoadBalancer", "loadBalancer": { "addresses": ["192.0.2.9"] }, "ports": [{ "port": 80 }] });
    let (pointer, code, _) = refusal(cluster.apply(&service("by-hand", spec)));
    assert_eq!((pointer.as_str(), code), ("/spec/loadBalancer/addresses", Conflict));
}

/// A write that makes an address available to a waiting Service is accepted, even if this address conflicts
/// with an aggregated Advertisement. Later writes of the Service are accepted too, unless a write itself
/// creates a conflict.
#[test]
fn conflicts_that_arose_while_a_service_was_pending_block_no_write() {
    let mut cluster = Cluster::new();
    let balancer = |policy: &str, labels: Value| {
        let spec =
            json!({ "type": "LoadBalancer", "externalTrafficPolicy": policy, "ports": [{ "port": 80 }] });
        of_kind("Service", "web", labels, spec)
    };
    cluster.apply(&balancer("Local", json!({}))).unwrap();
    cluster.apply(&announcing("wide", json!({ "aggregationLength": 28 }))).unwrap();
    cluster.apply(&pool("lan", &["198.51.100.0/28"])).unwrap();
    assert_eq!(cluster.snapshot.addresses_of(&key("web")).count(), 1);
    cluster.apply(&balancer("Local", json!({ "a": "b" }))).unwrap();
    cluster.apply(&balancer("Cluster", json!({}))).unwrap();
    assert_eq!(refusal(cluster.apply(&balancer("Local", json!({})))).0, "/spec/externalTrafficPolicy");
}

#[test]
fn advertisements_do_not_contradict_each_other() {
    let mut cluster = Cluster::new();
    cluster.apply(&pool("four", &["198.51.100.0/24"])).unwrap();
    cluster.apply(&pool("six", &["2001:db8::/64"])).unwrap();
    cluster.apply(&router("r1", 1, json!({}))).unwrap();
    cluster.apply(&router("r2", 2, json!({}))).unwrap();
    cluster
        .apply(&announcing("first", json!({ "addressPools": ["four"], "peers": ["r1"], "med": 10 })))
        .unwrap();
    for (more, field) in [
        (json!({ "med": 20 }), "med"),
        (json!({}), "med"),
        (json!({ "addressPools": ["four", "six"], "med": 11, "aggregationLengthV6": 64 }), "med"),
        (json!({ "peers": ["r1", "r2"], "med": 10, "prepend": 1 }), "prepend"),
    ] {
        let (pointer, code, message) = refusal(cluster.apply(&announcing("second", more)));
        assert_eq!((pointer, code), (format!("/spec/{field}"), Conflict));
        assert!(message.contains("Advertisement first"), "{message}");
    }
    for good in [
        json!({ "med": 10, "communities": ["no-export"] }),
        json!({ "peers": ["r2"], "med": 20 }),
        json!({ "addressPools": ["six"], "med": 20 }),
        json!({ "aggregationLength": 24, "addressPools": ["four"], "med": 20 }),
        json!({ "serviceSelectors": [{ "matchLabels": { "a": "b" } }], "med": 10 }),
    ] {
        cluster
            .apply(&announcing("second", good.clone()))
            .unwrap_or_else(|refusal| panic!("{good}: {refusal:?}"));
    }
}

#[test]
fn the_status_of_a_peer_names_its_nodes_or_the_reason_for_none() {
    let mut cluster = Cluster::new();
    let of = |cluster: &Cluster| {
        let spec = cluster.get("bgppeers//r").as_bgp_peer().unwrap().clone();
        let status = bgp_peer_status(&cluster.snapshot, &name("r"), &spec, ASN);
        let used = status.conditions[1].clone();
        (used.reason.as_str(), used.status, status.nodes_total)
    };
    let in_rack = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    cluster.apply(&router("r", 1, in_rack.clone())).unwrap();
    assert_eq!(of(&cluster), ("NoNodes", ConditionStatus::Unknown, 0));
    cluster.apply(&node("n1", json!({}), json!({}))).unwrap();
    assert_eq!(of(&cluster), ("NoMatchingNode", ConditionStatus::False, 0));
    cluster.apply(&node("n1", json!({ "rack": "a" }), json!({}))).unwrap();
    assert_eq!(of(&cluster), ("NodesSelected", ConditionStatus::True, 1));
    let off = with(in_rack, "disabled", json!(true));
    cluster.apply(&router("r", 1, off)).unwrap();
    assert_eq!(of(&cluster).0, "Disabled");
}

//! Conditions of addresses, Services and BgpPeers that depend on BGP: they name the announcing nodes and the
//! routers, or the first reason why an announcement is missing.

use std::{net::IpAddr, sync::Arc};

use model::{
    bgp::{
        book::{BgpBook, BgpReportUpdate},
        report::{BgpReport, BgpSession},
        trouble::trouble,
    },
    cluster::snapshot::Snapshot,
    kinds::{
        address::{AddressSpec, Candidate, name_of},
        bgp_peer::BgpPeerSpec,
        metadata::Metadata,
        resource::{Object, Spec},
    },
    observed::{
        announcements::{AnnouncementBook, AnnouncementUpdate},
        assign::ClusterView,
        rollup::{
            AnnouncementInputs, NodeView, address_status, bgp_peer_status, service_announced, with_sessions,
        },
        status::{AddressStatus, BgpPeerStatus, Condition},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Revision, Timestamp},
        secret::Secret,
    },
    wire::report::AddressReport,
};
use serde_json::{Value, json};

use crate::support::{key, object, of_kind, service};

const ADDRESS: &str = "192.0.2.7";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_771_000_000 + secs)
}

/// Cluster with nodes `a` to `d`, of which `d` does not report, and Service `web` with the load balancer address
/// 192.0.2.7.
struct World {
    book: AnnouncementBook,
    bgp: BgpBook,
    record: AddressSpec,
    /// Value of `spec.peers` in the BGP Advertisement.
    peers: Value,
}

impl World {
    fn new() -> Self {
        let address: IpAddr = ADDRESS.parse().unwrap();
        let mut record = AddressSpec::new(address, Some(name("pool")));
        record.services.insert(key("web"));
        record.announcement.advertisements.insert(name("to-racks"));
        Self { book: AnnouncementBook::default(), bgp: BgpBook::default(), record, peers: json!([]) }
    }

    fn say(&mut self, node: &str, sessions: Vec<BgpSession>, routes: &[(&str, Value)]) {
        let bgp = BgpReport { asn: 64512, router_id: "192.0.2.1".parse().unwrap(), sessions, strangers: 0 };
        let route = |(prefix, route): &(&str, Value)| {
            (prefix.parse().unwrap(), serde_json::from_value(route.clone()).unwrap())
        };
        let news = BgpReportUpdate {
            bgp: Some(bgp),
            routes: routes.iter().map(route).collect(),
            is_complete: true,
            ..BgpReportUpdate::default()
        };
        self.bgp.apply(&name(node), news, at(0));
    }

    fn peer_status(&self, peer: Object) -> BgpPeerStatus {
        let spec = peer.as_bgp_peer().unwrap().clone();
        self.look_with(Some(peer), |of| {
            let status = bgp_peer_status(of.scene.snapshot, &name("tor-1"), &spec, 64_512);
            with_sessions(of, &name("tor-1"), &spec, status)
        })
    }

    fn look<T>(&self, look: impl FnOnce(&AnnouncementInputs<'_>) -> T) -> T {
        self.look_with(None, look)
    }

    fn look_with<T>(&self, more: Option<Object>, look: impl FnOnce(&AnnouncementInputs<'_>) -> T) -> T {
        let racks = [("a", "1"), ("b", "1"), ("c", "2"), ("d", "3")];
        let node = |(node, rack)| object(&of_kind("Node", node, json!({ "rack": rack }), json!({})));
        let mut objects: Vec<Object> = racks.map(node).to_vec();
        objects.extend(more);
        objects.push(object(&service("web", json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }))));
        let spec = json!({ "type": "BGP", "peers": self.peers });
        objects.push(object(&of_kind("Advertisement", "to-racks", json!({}), spec)));
        let record = self.record.clone();
        objects.push(Object {
            metadata: Metadata::named(name_of(record.address), None),
            spec: Spec::Address(Box::new(record)),
        });
        let snapshot = Snapshot::from_objects(Revision(1), objects.into_iter().map(Arc::new));
        let names = ["a", "b", "c", "d"].map(name);
        let view = |name| NodeView {
            name,
            is_connected: *name != self::name("d"),
            has_left: false,
            is_contested: false,
            is_lost: false,
            last_report: Some(at(0)),
            report: None,
        };
        let nodes: Vec<_> = names.iter().map(view).collect();
        let scene = ClusterView { snapshot: &snapshot, epoch: Epoch(1), nodes: &nodes, compiled: &|_| None };
        look(&AnnouncementInputs { scene, book: &self.book, bgp: &self.bgp })
    }

    fn status(&self) -> AddressStatus {
        self.look(|of| address_status(of, &self.record))
    }

    /// Returns status, reason and message of the condition of the address, such as `True Announced: message`.
    /// Asserts that the Service has the same condition.
    fn announced(&self) -> String {
        let condition = self.status().conditions[0].clone();
        assert_eq!(self.look(|of| service_announced(of, &key("web"))).unwrap(), condition);
        line(&condition)
    }
}

fn line(condition: &Condition) -> String {
    format!("{:?} {}: {}", condition.status, condition.reason, condition.message)
}

fn up(peer: &str) -> BgpSession {
    session(peer, "Established", json!({}))
}

fn session(peer: &str, state: &str, more: Value) -> BgpSession {
    let mut json = json!({
        "peer": peer, "address": "10.0.0.1", "state": state, "since": at(0), "reason": "connection refused",
        "localASN": 64512,
    });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn told(peers: &[&str]) -> (&'static str, Value) {
    let peers =
        peers.iter().map(|peer| ((*peer).to_owned(), json!({ "since": at(0), "text": "next hop self" })));
    ("192.0.2.7/32", json!({ "addresses": [ADDRESS], "peers": Value::Object(peers.collect()) }))
}

fn withheld(why: &str) -> (&'static str, Value) {
    ("192.0.2.7/32", json!({ "addresses": [ADDRESS], "withheld": why }))
}

/// F126: the status of an address announced by BGP counts and names the announcing nodes and the routers, and
/// gives the reason for nodes that do not announce the address.
#[test]
fn f126_the_status_of_an_announced_address_names_nodes_and_routers() {
    let mut world = World::new();
    world.say("a", vec![up("tor-1")], &[told(&["tor-1", "racks@10.9.0.4"])]);
    assert_eq!(
        world.announced(),
        "True Announced: 192.0.2.7 is announced by 1 node to 2 routers (racks@10.9.0.4, tor-1)"
    );
    world.say("b", vec![up("tor-1")], &[told(&["tor-1"])]);
    world.say("c", vec![up("tor-1")], &[withheld("no usable endpoint")]);
    world.say("d", vec![up("tor-2")], &[told(&["tor-2"])]);
    assert_eq!(
        world.announced(),
        "True Announced: 192.0.2.7 is announced by 2 nodes to 2 routers (racks@10.9.0.4, tor-1); not by c: no usable endpoint",
        "a silent node does not count"
    );
    let by_bgp = world.status().by_bgp.unwrap();
    assert_eq!((by_bgp.nodes, by_bgp.routers, by_bgp.prefixes.len()), (2, 2, 1));
    assert_eq!(by_bgp.not_by, [(name("c"), "no usable endpoint".to_owned())].into());
    assert!(world.status().not_candidates.is_empty(), "where routers are told nobody is a candidate");

    let aggregate =
        json!({ "addresses": [ADDRESS, "192.0.2.8"], "peers": { "tor-1": { "since": at(0), "text": "x" } } });
    let mut world = World::new();
    world.say("a", vec![up("tor-1")], &[("192.0.2.0/24", aggregate)]);
    assert_eq!(
        world.announced(),
        "True Announced: 192.0.2.7 is announced within 192.0.2.0/24 by 1 node to 1 router (tor-1)"
    );
}

/// F126: the condition of an address that is not announced by BGP gives the reason: no session is
/// established, the nodes withhold the address, the nodes have not announced it yet, or the announcing nodes
/// no longer report.
#[test]
fn f126_the_status_gives_the_first_reason_for_a_missing_announcement() {
    let waiting = (
        "192.0.2.7/32",
        json!({ "addresses": [ADDRESS], "peers": { "tor-1": { "text": "the session is down" } } }),
    );
    let down = || session("tor-1", "Active", json!({}));
    type Saying = (&'static str, Vec<BgpSession>, Vec<(&'static str, Value)>);
    let cases: [(&[&str], Vec<Saying>, &str); 9] = [
        (&[], vec![], "False NoSession: no node has a BGP session with a router to announce 192.0.2.7"),
        (
            &["tor-2"],
            vec![("a", vec![up("tor-1")], vec![])],
            "False NoSession: no node has a BGP session with tor-2 to announce 192.0.2.7",
        ),
        (
            &[],
            vec![("a", vec![down()], vec![waiting.clone()])],
            "False NoSession: no BGP session is established that could announce 192.0.2.7; a with tor-1: connection refused",
        ),
        (
            &[],
            vec![("a", vec![down(), up("tor-2")], vec![waiting.clone()])],
            "False NotYetAnnounced: no router has 192.0.2.7 yet; a: the session is down",
        ),
        (
            &[],
            vec![("a", vec![up("tor-1")], vec![])],
            "False NotYetAnnounced: no node has reported an announcement of 192.0.2.7 by BGP (to-racks)",
        ),
        (
            &[],
            vec![("a", vec![up("tor-1")], vec![withheld("no usable endpoint")])],
            "False Withheld: no node announces 192.0.2.7 by BGP; a: no usable endpoint",
        ),
        (
            &[],
            vec![("a", vec![down()], vec![withheld("draining")]), ("b", vec![down()], vec![waiting])],
            "False NoSession: no BGP session is established that could announce 192.0.2.7; a with tor-1: connection refused",
        ),
        (
            &[],
            vec![("d", vec![up("tor-1")], vec![told(&["tor-1"])])],
            "Unknown OwnerSilent: d announced 192.0.2.7 by BGP in the last report, and is silent",
        ),
        (
            &[],
            vec![("d", vec![up("tor-1")], vec![withheld("draining")])],
            "False NoSession: no node has a BGP session with a router to announce 192.0.2.7",
        ),
    ];
    for (peers, sayings, expected) in cases {
        let mut world = World { peers: json!(peers), ..World::new() };
        for (node, sessions, routes) in sayings {
            world.say(node, sessions, &routes);
        }
        assert_eq!(world.announced(), expected);
        assert!(world.status().conditions[0].hint.is_some(), "{expected}");
    }
}

#[test]
fn an_address_with_two_types_of_announcement_needs_both() {
    let mut world = World::new();
    let candidate = Candidate {
        node: name("a"),
        address: "192.0.2.1".parse().unwrap(),
        interfaces: [].into(),
        peer_public_key: None,
    };
    world.record.announcement.candidates.push(candidate);
    world.say("a", vec![up("tor-1")], &[told(&["tor-1"])]);
    assert!(
        world.announced().starts_with("False NotYetAnnounced: a is assigned to announce 192.0.2.7"),
        "{}",
        world.announced()
    );
    let part: AddressReport = serde_json::from_value(json!({
        "role": "Owner", "epoch": 1, "since": at(0), "reason": "first in rank", "interfaces": ["eth0"],
    }))
    .unwrap();
    let parts = [(ADDRESS.parse().unwrap(), part)].into();
    world.book.apply(&name("a"), AnnouncementUpdate { parts, ..AnnouncementUpdate::default() }, at(0));
    assert_eq!(
        world.announced(),
        "True Announced: a announces 192.0.2.7 on eth0; 192.0.2.7 is announced by 1 node to 1 router (tor-1)"
    );
    world.say("a", vec![up("tor-1")], &[withheld("draining")]);
    let said = world.announced();
    assert!(
        said.starts_with("False Withheld: no node announces")
            && said.contains("a announces 192.0.2.7 on eth0"),
        "{said}"
    );
}

/// A BgpPeer has the condition Ready if every Node that it selects has an established session with the
/// router.
#[test]
fn a_peer_is_ready_when_every_node_has_a_session_with_it() {
    let peer = |more: Value| {
        let mut spec = json!({ "peerASN": 65_001 });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if spec.get("peerNetwork").is_none() {
            spec["peerAddress"] = json!("10.0.0.1");
        }
        object(&of_kind("BgpPeer", "tor-1", json!({}), spec))
    };
    // Nodes `a` and `b` are in rack 1, `c` is in rack 2, and the silent `d` is in rack 3.
    let racks = |racks: &[&str]| {
        let selector = json!({ "matchExpressions": [{ "key": "rack", "operator": "In", "values": racks }] });
        json!({ "nodeSelectors": [selector] })
    };
    let network = json!({ "peerNetwork": "10.0.0.0/24", "passive": true });
    let refused = json!({
        "remoteASN": 65002, "reason": "AS of the peer is 65002, expected 65001",
        "lastSent": { "at": at(-20), "code": 2, "subcode": 2, "message": "Bad Peer AS" },
    });
    let wrong = || session("tor-1", "Idle", refused.clone());
    type Saying = (&'static str, Vec<BgpSession>);
    let in_rack_1 =
        || vec![("a", vec![up("tor-1"), session("tor-2", "Idle", json!({}))]), ("b", vec![up("tor-1")])];
    let cases: [(Value, Vec<Saying>, &str); 10] = [
        (
            json!({ "disabled": true }),
            vec![],
            "False NotUsed: no node has a session with it while it is disabled",
        ),
        (racks(&["9"]), vec![], "False NotUsed: no Node has labels that match spec.nodeSelectors"),
        (racks(&["1"]), in_rack_1(), "True Established: 2 sessions established"),
        (racks(&["1", "2"]), in_rack_1(), "False NoSession: these nodes have reported no session: c"),
        (
            racks(&["1", "3"]),
            in_rack_1(),
            "Unknown AgentSilent: the agents are silent, so their sessions are unknown: d",
        ),
        (
            json!({}),
            [in_rack_1(), vec![("c", vec![wrong()])]].concat(),
            "False WrongPeerAS: 1 of 3 sessions are not established; c: Idle, AS of the peer is 65002, expected 65001",
        ),
        (
            racks(&["1"]),
            vec![("a", vec![session("tor-1", "OpenSent", json!({ "reason": "OPEN was sent" }))])],
            "False Negotiating: 1 of 1 sessions are not established; a: OpenSent, OPEN was sent",
        ),
        (
            network.clone(),
            in_rack_1(),
            "Unknown AgentSilent: the agents are silent, so their sessions are unknown: d",
        ),
        (
            json!({ "peerNetwork": "10.0.0.0/24", "nodeSelectors": racks(&["2"])["nodeSelectors"] }),
            vec![("c", vec![])],
            "False NoNeighbour: no router in 10.0.0.0/24 has connected to a node yet",
        ),
        (
            json!({ "peerNetwork": "10.0.0.0/24", "nodeSelectors": racks(&["1", "2"])["nodeSelectors"] }),
            vec![("a", vec![up("tor-1")])],
            "True Established: 1 session established",
        ),
    ];
    for (spec, sayings, expected) in cases {
        let mut world = World::new();
        for (node, sessions) in sayings {
            world.say(node, sessions, &[]);
        }
        let status = world.peer_status(peer(spec));
        let condition = status.conditions.last().unwrap();
        assert_eq!(line(condition), expected);
        assert!(condition.hint.is_some() || !expected.starts_with("False WrongPeerAS"));
    }
}

#[test]
fn a_peer_lists_its_sessions_with_failed_ones_first() {
    let mut world = World::new();
    world.say("a", vec![up("tor-1"), up("tor-2")], &[]);
    let many = |at: usize| session("tor-1", "Idle", json!({ "address": format!("10.0.0.{at}") }));
    world.say("b", (0..60).map(many).collect(), &[]);
    world.say("d", vec![up("tor-1")], &[]);
    let spec = json!({ "peerASN": 65_001, "peerNetwork": "10.0.0.0/24" });
    let sessions = world.peer_status(object(&of_kind("BgpPeer", "tor-1", json!({}), spec))).sessions;
    assert_eq!(
        (sessions.total, sessions.established),
        (62, 1),
        "what a silent node said last is not established"
    );
    assert_eq!(sessions.by_node.keys().map(Name::as_str).collect::<Vec<_>>(), ["b"], "50 are listed");
    assert_eq!(
        sessions.by_node[&name("b")][0].trouble.as_ref().map(|trouble| trouble.reason.as_str()),
        Some("Connecting")
    );
}

/// If a session is not established, the reason is the cause of its last failure, if this failure was recent;
/// otherwise, the reason follows from the state of the session.
#[test]
fn a_failed_session_has_a_reason() {
    let error = |secs: i64, code: u8, subcode: u8| json!({ "at": at(secs), "code": code, "subcode": subcode, "message": "m" });
    let sent = |code, subcode| json!({ "lastSent": error(0, code, subcode) });
    let received = |code, subcode| json!({ "lastReceived": error(0, code, subcode) });
    for (more, expected) in [
        (json!({}), "Connecting"),
        (json!({ "counters": { "connectionFailures": 3 } }), "ConnectionFailed"),
        (json!({ "counters": { "md5Failures": 3, "connectionFailures": 3 } }), "PasswordMismatch"),
        (json!({ "state": "OpenSent" }), "Negotiating"),
        (sent(2, 2), "WrongPeerAS"),
        (received(2, 2), "WrongLocalAS"),
        (sent(2, 3), "RouterIDRefused"),
        (received(2, 6), "HoldTimeRefused"),
        (received(2, 7), "CapabilityMissing"),
        (received(2, 11), "RoleMismatch"),
        (sent(4, 0), "HoldTimerExpired"),
        (sent(1, 2), "ProtocolError"),
        (sent(6, 1), "TooManyPrefixes"),
        (received(6, 2), "ShutDownByPeer"),
        (received(6, 3), "RemovedByPeer"),
        (received(6, 5), "RejectedByPeer"),
        (received(6, 8), "PeerOutOfResources"),
        (sent(6, 10), "BFDDown"),
        (sent(6, 7), "Connecting"),
        (json!({ "lastSent": error(0, 2, 2), "lastReceived": error(-50, 6, 2) }), "WrongPeerAS"),
        (json!({ "lastSent": error(-50, 2, 2), "lastReceived": error(0, 6, 2) }), "ShutDownByPeer"),
        (json!({ "lastSent": error(-181, 2, 2) }), "Connecting"),
    ] {
        let found = trouble(&session("tor-1", "Active", more.clone()), None).unwrap();
        assert_eq!(found.reason.as_str(), expected, "{more}");
    }
    let mut established = up("tor-1");
    established.last_sent = Some(serde_json::from_value(error(0, 2, 2)).unwrap());
    assert_eq!(trouble(&established, None), None);
    let spec = |asn: u32| {
        let spec = json!({ "peerAddress": "10.0.0.1", "peerASN": asn });
        object(&of_kind("BgpPeer", "tor-1", json!({}), spec)).as_bgp_peer().unwrap().clone()
    };
    let refused = json!({ "remoteASN": 65_002, "lastSent": error(0, 2, 2) });
    let refused = session("tor-1", "Active", refused);
    assert_eq!(trouble(&refused, Some(&spec(65_001))).unwrap().reason.as_str(), "WrongPeerAS");
    let mended = trouble(&refused, Some(&spec(65_002))).unwrap();
    assert_eq!(mended.reason.as_str(), "Connecting", "the AS was corrected since");
    assert!(mended.hint.unwrap().contains("after an error"));
    let waiting = session("tor-1", "Active", json!({}));
    let hint = |spec: &BgpPeerSpec| trouble(&waiting, Some(spec)).unwrap().hint.unwrap();
    assert!(!hint(&spec(65_001)).contains("password"));
    let secret = BgpPeerSpec { password: Some(Secret::new("s".to_owned())), ..spec(65_001) };
    assert!(hint(&secret).contains("spec.password"), "a passive router does not answer");
}

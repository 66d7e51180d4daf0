//! Tests of the route status that an agent reports while sessions come up and go down. The status combines
//! the decision about each route with the routes that have been sent to neighbors.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{collections::BTreeSet, sync::Arc};

use bgp::{
    Attributes, Community,
    attributes::NextHop,
    export::{Route, Towards, attributes},
};
use ipnet::IpNet;
use model::{
    bgp::report::{BgpCounters, BgpError, BgpRoute, BgpSession, BgpSessionState},
    kinds::event::EventReason,
    primitives::{name::Name, quantity::Timestamp},
};
use node_agent::{
    announce::bgp::{
        RoutingDecisions,
        decision::{Choice, Decision},
        show::Board,
    },
    bgp::{AdvertisedRoute, NeighborStatus, NeighborsStatus, NeighbourKey},
};
use proptest::prelude::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn prefix(number: u8) -> IpNet {
    format!("192.0.2.{number}/32").parse().unwrap()
}

fn key(text: &str) -> NeighbourKey {
    match text.split_once('@') {
        None => NeighbourKey { peer: name(text), address: None },
        Some((peer, address)) => NeighbourKey { peer: name(peer), address: Some(address.parse().unwrap()) },
    }
}

fn session(peer: &str, state: BgpSessionState) -> BgpSession {
    BgpSession {
        peer: key(peer).peer,
        address: Some([198, 51, 100, 1].into()),
        state,
        since: Timestamp::from_unix_seconds(0),
        reason: "because".to_owned(),
        established: u64::from(state == BgpSessionState::Established),
        remote_asn: Some(65000),
        local_asn: 64512,
        remote_router_id: None,
        host_name: None,
        negotiated: None,
        last_sent: None,
        last_received: None,
        bfd: None,
        counters: BgpCounters::default(),
    }
}

fn route(med: u32) -> Route {
    Route { med: Some(med), communities: [Community::NO_EXPORT].into(), prepend: 1, ..Route::default() }
}

fn told(med: u32) -> AdvertisedRoute {
    let next_hop = NextHop::V4([198, 51, 100, 7].into());
    let towards = Towards { local_asn: 64512, is_external: true, role: None, next_hop };
    let attributes: Arc<Attributes> = Arc::new(attributes(&route(med), &towards));
    AdvertisedRoute { since: Timestamp::from_unix_seconds(7), attributes }
}

/// Returns a route of another node that this node has reflected to a neighbor.
fn reflected() -> AdvertisedRoute {
    let AdvertisedRoute { since, attributes } = told(5);
    let attributes = Attributes { originator_id: Some([192, 0, 2, 9].into()), ..(*attributes).clone() };
    AdvertisedRoute { since, attributes: Arc::new(attributes) }
}

fn decision(peers: &[(&str, Choice)], withheld: Option<&str>) -> Arc<Decision> {
    let peers = peers.iter().map(|(peer, choice)| (name(peer), choice.clone())).collect();
    Arc::new(Decision { addresses: BTreeSet::new(), peers, withheld: withheld.map(str::to_owned) })
}

fn announce(med: u32) -> Choice {
    Choice::Announce { route: route(med), note: None }
}

fn neighbour(peer: &str, state: BgpSessionState, prefixes: &[(u8, u32)]) -> (NeighbourKey, NeighborStatus) {
    let told = prefixes.iter().map(|(number, med)| (prefix(*number), told(*med))).collect();
    (key(peer), NeighborStatus { session: session(peer, state), told })
}

fn shown(neighbours: Vec<(NeighbourKey, NeighborStatus)>) -> NeighborsStatus {
    NeighborsStatus { neighbours: neighbours.into_iter().collect(), ..NeighborsStatus::default() }
}

fn decided(decisions: Vec<(u8, Arc<Decision>)>) -> RoutingDecisions {
    let decisions = decisions.into_iter().map(|(number, decision)| (prefix(number), decision)).collect();
    RoutingDecisions { bgp: None, decisions }
}

/// Returns the status of a route at each peer as tuples: name of the peer, time of the announcement, and
/// text.
fn say(route: &BgpRoute) -> Vec<(&str, Option<i64>, &str)> {
    let told = route.peers.iter();
    told.map(|(peer, told)| (peer.as_str(), told.since.map(|since| since.unix_seconds()), told.text.as_str()))
        .collect()
}

use BgpSessionState::{Active, Established};

#[test]
fn what_each_neighbour_was_told_is_shown_and_why_others_were_not() {
    let noted = Choice::Announce { route: route(5), note: Some("two say otherwise".to_owned()) };
    let refused = Choice::Withhold("no IPv4".to_owned());
    let peers = [("a", noted), ("b", announce(5)), ("c", refused), ("d", announce(5)), ("e", announce(5))];
    let mut board = Board::default();
    let neighbours = vec![
        neighbour("a", Established, &[(1, 5)]),
        neighbour("b", Active, &[]),
        neighbour("c", Established, &[]),
        neighbour("d@198.51.100.1", Established, &[(1, 5)]),
        neighbour("d@198.51.100.2", Established, &[]),
        neighbour("z", Established, &[(1, 9)]),
    ];
    let text = "next hop 198.51.100.7, AS path 64512 64512, MED 5, communities no-export";
    assert!(board.follow(decided(vec![(1, decision(&peers, None))]), shown(neighbours)));
    let route = &board.routes()[&prefix(1)];
    assert_eq!(
        say(route),
        [
            ("a", Some(7), format!("{text}; two say otherwise").as_str()),
            ("b", None, "the session is not established"),
            ("c", None, "no IPv4"),
            ("d@198.51.100.1", Some(7), text),
            (
                "d@198.51.100.2",
                None,
                "it is not told yet, or cannot be by this session; the session's reason may say more"
            ),
            ("e", None, "it has no session yet"),
            // The withdrawal is pending.
            ("z", Some(7), "next hop 198.51.100.7, AS path 64512 64512, MED 9, communities no-export"),
        ]
    );
    assert_eq!(route.withheld, None);

    let withheld = decision(&[], Some("the node is being drained"));
    assert!(board.follow(decided(vec![(1, withheld.clone())]), NeighborsStatus::default()));
    assert_eq!(board.routes()[&prefix(1)].withheld.as_deref(), Some("the node is being drained"));
    assert_eq!(say(&board.routes()[&prefix(1)]), []);
    assert!(!board.follow(decided(vec![(1, withheld)]), NeighborsStatus::default()), "nothing is new");
    assert!(board.follow(RoutingDecisions::default(), NeighborsStatus::default()));
    assert!(board.routes().is_empty());
}

/// Routes of other nodes that this node reflects are not listed, also while the own route for the same prefix is about
/// to replace them.
#[test]
fn reflected_routes_are_no_routes_of_this_node() {
    let mut board = Board::default();
    let with = |told: AdvertisedRoute| {
        let (key, status) = neighbour("a", Established, &[]);
        let told = [(prefix(2), told)].into_iter().collect();
        shown(vec![(key, NeighborStatus { told, ..status })])
    };
    board.follow(RoutingDecisions::default(), with(reflected()));
    assert!(board.routes().is_empty());
    let announced = decided(vec![(2, decision(&[("a", announce(5))], None))]);
    assert!(board.follow(announced.clone(), with(reflected())));
    let since = |board: &Board| board.routes()[&prefix(2)].peers["a"].since.map(|since| since.unix_seconds());
    assert_eq!(since(&board), None);
    assert!(board.follow(announced, with(told(5))));
    assert_eq!(since(&board), Some(7));
    assert!(board.follow(RoutingDecisions::default(), with(reflected())));
    assert!(board.routes().is_empty());
}

#[test]
fn sessions_that_come_go_and_fail_otherwise_are_events() {
    let mut board = Board::default();
    let mut look = |session: BgpSession| {
        let neighbours = [(
            key("a"),
            NeighborStatus { session, told: std::iter::empty::<(IpNet, AdvertisedRoute)>().collect() },
        )];
        board.follow(RoutingDecisions::default(), shown(neighbours.into()));
    };
    let error = |message: &str| BgpError {
        at: Timestamp::from_unix_seconds(0),
        code: 2,
        subcode: 2,
        message: message.to_owned(),
    };
    let failed = |message: &str| BgpSession { last_received: Some(error(message)), ..session("a", Active) };
    look(session("a", Active));
    look(session("a", Established));
    look(BgpSession { established: 2, ..session("a", Established) });
    look(session("a", Active));
    look(failed("bad peer AS"));
    look(failed("bad peer AS"));
    look(failed("unacceptable hold time"));
    look(session("a", Established));
    board.follow(RoutingDecisions::default(), NeighborsStatus::default());
    let events = board.events();
    let said: Vec<_> = events.iter().map(|event| (event.reason, event.message.as_str())).collect();
    use EventReason::{BgpSessionDown as Down, BgpSessionUp as Up};
    assert_eq!(
        said,
        [
            (Up, "the session with a (198.51.100.1, AS 65000) is established"),
            (Up, "the session with a (198.51.100.1, AS 65000) is established again"),
            (Down, "the session with a (198.51.100.1, AS 65000) is lost: because"),
            (Down, "the session with a (198.51.100.1, AS 65000) cannot be established: bad peer AS"),
            (
                Down,
                "the session with a (198.51.100.1, AS 65000) cannot be established: unacceptable hold time"
            ),
            (Up, "the session with a (198.51.100.1, AS 65000) is established"),
            (Down, "the session with a (198.51.100.1, AS 65000) is ended"),
        ]
    );
}

fn moment() -> impl Strategy<Value = (RoutingDecisions, NeighborsStatus)> {
    let choice = prop_oneof![(0..3_u32).prop_map(announce), Just(Choice::Withhold("no".to_owned()))];
    let peers = prop::collection::vec((prop_oneof![Just("a"), Just("b"), Just("d")], choice), 0..3);
    let decisions = prop::collection::btree_map(0..6_u8, peers, 0..6);
    let state = prop_oneof![Just(Established), Just(Active)];
    let tables = prop::collection::btree_map(0..6_u8, 0..3_u32, 0..6);
    let key = prop_oneof![Just("a"), Just("b"), Just("d@198.51.100.1"), Just("d@198.51.100.2")];
    let neighbours = prop::collection::btree_map(key, (state, tables), 0..4);
    (decisions, neighbours).prop_map(|(decisions, neighbours)| {
        let decisions = decisions.into_iter().map(|(number, peers)| (number, decision(&peers, None)));
        let neighbours = neighbours
            .into_iter()
            .map(|(peer, (state, table))| neighbour(peer, state, &table.into_iter().collect::<Vec<_>>()));
        (decided(decisions.collect()), shown(neighbours.collect()))
    })
}

proptest! {
    /// After any sequence of changes, the route status that is updated with each change equals a newly
    /// computed one.
    #[test]
    fn following_shows_the_same_as_beginning_anew(
        moments in prop::collection::vec(moment(), 3),
        picks in prop::collection::vec((0..3_usize, 0..3_usize), 1..12),
    ) {
        let mut board = Board::default();
        // Often only one of the two changes.
        for (one, other) in picks {
            let (decided, shown) = (moments[one].0.clone(), moments[other].1.clone());
            board.follow(decided.clone(), shown.clone());
            let mut anew = Board::default();
            anew.follow(decided, shown);
            prop_assert_eq!(board.routes(), anew.routes());
        }
    }
}

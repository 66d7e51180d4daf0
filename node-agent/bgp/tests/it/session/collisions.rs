//! Tests of connection collisions (RFC 4271 §6.8, RFC 6286 §2.3, RFC 4724 §5).

use std::{
    collections::{BTreeSet, VecDeque},
    net::Ipv4Addr,
};

use bgp::{
    Message, Open,
    session::{Config, ConnectionId, Direction, Input, Output, PeerAsn, State},
};

use super::support::{
    Bench, COLLISION, OURS, THEIRS, codes, config, connected, down, graceful, graceful_open, id, open,
    passive, received,
};

/// Returns the connection that remains after the neighbor's OPEN has arrived on both connections, first on
/// `first`.
fn left_over(first: u64, open: &Open) -> ConnectionId {
    let mut bench = Bench::new(Config { peer_asn: PeerAsn::External, ..config() });
    bench.tell(Input::Start);
    // The neighbor's connection (2) arrives while ours (1) is pending.
    bench.tell(connected(2, Direction::Incoming));
    bench.tell(connected(1, Direction::Outgoing));
    bench.tell(received(first, Message::Open(open.clone())));
    let outputs = bench.tell(received(3 - first, Message::Open(open.clone())));
    assert_eq!(codes(&outputs), Some(COLLISION));
    assert_eq!((bench.state(), bench.contract.open.len()), (State::OpenConfirm, 1));
    let left = *bench.contract.open.first().unwrap();
    bench.tell(received(left.0, Message::Keepalive));
    assert_eq!(bench.session.established_over(), Some(left));
    left
}

#[test]
fn the_connection_of_the_higher_identifier_stays_whichever_was_first() {
    let neighbour = |router_id: [u8; 4], asn| Open { router_id: router_id.into(), asn, ..open() };
    for first in [1, 2] {
        assert_eq!(left_over(first, &neighbour([9, 255, 255, 255], THEIRS)), id(1), "ours");
        assert_eq!(left_over(first, &neighbour([10, 0, 0, 2], 7)), id(2), "the neighbour's");
        // With equal identifiers the larger AS number decides.
        assert_eq!(left_over(first, &neighbour([10, 0, 0, 1], OURS - 1)), id(1));
        assert_eq!(left_over(first, &neighbour([10, 0, 0, 1], OURS + 1)), id(2));
    }
}

#[test]
fn what_is_left_of_others_ends_when_one_is_established() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    bench.tell(connected(2, Direction::Incoming));
    bench.tell(connected(1, Direction::Outgoing));
    bench.tell(received(1, Message::Open(open())));
    let outputs = bench.tell(received(1, Message::Keepalive));
    assert_eq!((codes(&outputs), bench.contract.open.clone()), (Some(COLLISION), [id(1)].into()));
}

/// The end of one of two connections is the reason of the session's state if the state changes with it.
#[test]
fn the_end_of_one_of_two_connections_is_the_reason_of_a_changed_state_only() {
    let closed = || Input::Closed { connection: id(1), why: "closed by the router".to_owned() };
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    bench.tell(connected(2, Direction::Incoming));
    bench.tell(connected(1, Direction::Outgoing));
    let mut confirmed = bench.clone();
    let reason = bench.session.reason().to_owned();
    bench.tell(closed());
    assert_eq!((bench.state(), bench.session.reason()), (State::OpenSent, reason.as_str()));
    confirmed.tell(received(1, Message::Open(open())));
    assert_eq!(confirmed.state(), State::OpenConfirm);
    confirmed.tell(closed());
    assert_eq!((confirmed.state(), confirmed.session.reason()), (State::OpenSent, "closed by the router"));
}

#[test]
fn a_second_connection_beside_an_established_one_is_refused_and_the_first_one_probed() {
    for theirs in [open(), graceful_open(true)] {
        // Graceful Restart is not offered by us.
        let mut bench = Bench::established(config(), theirs.clone());
        bench.tell(connected(2, Direction::Incoming));
        assert_eq!(bench.state(), State::Established);
        let outputs = bench.tell(received(2, Message::Open(theirs)));
        assert_eq!(codes(&outputs), Some(COLLISION));
        let probe = Output::Send { connection: id(1), message: Message::Keepalive };
        assert!(
            outputs.contains(&probe) && outputs.contains(&Output::Close { connection: id(2) }),
            "{outputs:?}"
        );
        assert_eq!(bench.session.established_over(), Some(id(1)));
    }
}

/// A second connection with an OPEN of a neighbor with Graceful Restart replaces the established one, which
/// is closed without a NOTIFICATION (RFC 4724 §5).
#[test]
fn a_neighbour_that_agreed_on_graceful_restart_replaces_its_connection() {
    let mut bench = Bench::established(graceful(), graceful_open(false));
    bench.tell(connected(2, Direction::Incoming));
    assert_eq!(bench.session.established_over(), Some(id(1)), "a connection alone says nothing");
    let outputs = bench.tell(received(2, Message::Open(graceful_open(false))));
    assert_eq!(codes(&outputs), None);
    assert!(outputs.contains(&Output::Close { connection: id(1) }));
    let down = down(&outputs).unwrap();
    assert!(down.peer_keeps_routes && down.sent.is_none(), "{down:?}");
    bench.tell(received(2, Message::Keepalive));
    assert_eq!(bench.session.established_over(), Some(id(2)));
    // A connection with an unacceptable OPEN replaces nothing.
    bench.tell(connected(3, Direction::Incoming));
    bench.tell(received(3, Message::Open(Open { asn: 65_009, ..graceful_open(false) })));
    assert_eq!(bench.session.established_over(), Some(id(2)));
}

/// A second connection does not replace the established one if the neighbor's Graceful Restart capability
/// lists no family (RFC 4724 §5).
#[test]
fn a_neighbour_that_only_helps_others_to_restart_replaces_nothing() {
    let mut only_helps = graceful_open(true);
    for capability in &mut only_helps.capabilities {
        if let bgp::Capability::GracefulRestart(restart) = capability {
            restart.families.clear();
        }
    }
    let mut bench = Bench::established(graceful(), only_helps.clone());
    bench.tell(connected(2, Direction::Incoming));
    let outputs = bench.tell(received(2, Message::Open(only_helps)));
    assert_eq!(codes(&outputs), Some(COLLISION));
    assert_eq!(bench.session.established_over(), Some(id(1)));
}

#[test]
fn a_newer_connection_of_the_neighbour_takes_the_place_of_an_older_one_that_is_not_established() {
    for state in [State::OpenSent, State::OpenConfirm] {
        let mut bench = Bench::incoming(passive(), open(), state);
        let outputs = bench.tell(connected(2, Direction::Incoming));
        assert_eq!(codes(&outputs), Some(COLLISION));
        assert_eq!(bench.contract.open, [id(2)].into());
        assert_eq!(bench.state(), State::OpenSent);
    }
    let mut bench = Bench::incoming(passive(), open(), State::Established);
    for newer in 2..50 {
        bench.tell(connected(newer, Direction::Incoming));
        assert_eq!(bench.contract.open, [id(1), id(newer)].into());
    }
}

#[test]
fn what_is_being_made_is_given_up_when_open_comes_over_another_connection() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    bench.tell(connected(2, Direction::Incoming));
    assert!(bench.contract.is_dialling, "it may be the one that works");
    let outputs = bench.tell(received(2, Message::Open(open())));
    assert_eq!(outputs[0], Output::CancelConnect);
    // Too late: the driver already has the connection.
    assert_eq!(bench.tell(connected(1, Direction::Outgoing)), [Output::Close { connection: id(1) }]);
}

#[test]
fn a_connection_beside_another_one_ends_alone() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    bench.tell(connected(2, Direction::Incoming));
    bench.tell(connected(1, Direction::Outgoing));
    let outputs = bench.tell(received(1, Message::Open(Open { asn: 65_009, ..open() })));
    assert_eq!(codes(&outputs), Some((2, 2)));
    assert_eq!((bench.state(), bench.contract.open.len()), (State::OpenSent, 1));
    bench.tell(received(2, Message::Open(open())));
    assert_eq!(bench.state(), State::OpenConfirm);
}

/// Two speakers and the messages in transit between them. Messages of one connection arrive in order, those
/// of different connections in any order.
#[derive(Clone)]
struct Crossing {
    sides: [Bench; 2],
    /// Messages in transit, by connection (0: opened by the first side, 1: by the second) and by receiver.
    flying: [[VecDeque<Input>; 2]; 2],
    /// Connections on which each side has received messages, in the order of arrival. This order determines the
    /// rest of the state.
    heard: [Vec<usize>; 2],
}

impl Crossing {
    /// Creates two speakers that have connected to each other at the same time. Their OPENs are in transit on
    /// both connections.
    fn new() -> Self {
        let other = Config {
            local_asn: THEIRS,
            peer_asn: PeerAsn::Number(OURS),
            router_id: Ipv4Addr::new(10, 0, 0, 2),
            ..config()
        };
        let mut crossing = Self {
            sides: [Bench::new(config()), Bench::new(other)],
            flying: Default::default(),
            heard: Default::default(),
        };
        for side in [0, 1] {
            crossing.tell(side, Input::Start);
        }
        for side in [0, 1] {
            let direction =
                |connection| if connection == side { Direction::Outgoing } else { Direction::Incoming };
            for connection in [0, 1] {
                crossing.tell(side, connected(connection as u64, direction(connection)));
            }
        }
        crossing
    }

    fn tell(&mut self, side: usize, input: Input) {
        for output in self.sides[side].tell(input) {
            match output {
                Output::Send { connection, message } => {
                    let queue = &mut self.flying[usize::try_from(connection.0).unwrap()][1 - side];
                    queue.push_back(received(connection.0, message));
                }
                Output::Close { connection } => {
                    let queue = &mut self.flying[usize::try_from(connection.0).unwrap()][1 - side];
                    queue.push_back(Input::Closed { connection, why: "closed".to_owned() });
                }
                Output::Connect | Output::CancelConnect | Output::Event(_) => {}
            }
        }
    }

    /// Returns the states that can follow: one for each message that may arrive next.
    fn nexts(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        for (connection, receiver) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut next = self.clone();
            if let Some(input) = next.flying[connection][receiver].pop_front() {
                next.heard[receiver].push(connection);
                next.tell(receiver, input);
                nexts.push(next);
            }
        }
        nexts
    }
}

/// If two speakers connect to each other at once and messages arrive in any possible order, both keep the
/// same connection, or both end all connections and try again later.
#[test]
fn in_every_order_both_sides_keep_the_same_connection_or_try_again() {
    let (mut open, mut kept, mut none) = (vec![Crossing::new()], [0u32; 2], 0u32);
    let mut met = BTreeSet::new();
    while let Some(crossing) = open.pop() {
        if !met.insert(crossing.heard.clone()) {
            continue;
        }
        let nexts = crossing.nexts();
        if !nexts.is_empty() {
            open.extend(nexts);
            continue;
        }
        let [ours, theirs] = &crossing.sides;
        let over = ours.session.established_over();
        assert_eq!(over, theirs.session.established_over());
        match over {
            Some(connection) => kept[usize::try_from(connection.0).unwrap()] += 1,
            None => {
                assert_eq!((ours.state(), theirs.state()), (State::Active, State::Active));
                assert!(ours.due_in().is_some() && theirs.due_in().is_some());
                none += 1;
            }
        }
        assert_eq!(ours.contract.open, theirs.contract.open);
    }
    assert!(kept[0] > 0, "that of the lower identifier, where it was established before the other one came");
    assert!(kept[1] > 0 && none > 0, "{kept:?} {none}");
}

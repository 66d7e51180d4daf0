//! Properties that hold for any sequence of events: the session never panics, keeps its guarantees, and two
//! sessions always connect.

use std::net::Ipv4Addr;

use bgp::{
    Family, Message, Notification, Open, Refresh, RefreshKind, Role,
    session::{Config, Direction, Input, PeerAsn, State, Stop},
};
use proptest::{collection::vec, prelude::*};

use super::{
    support::{
        Bench, OURS, THEIRS, config, connected, graceful_open, id, malformed, open, received, secs, update,
    },
    world::{Trouble, World, stays_up},
};

fn configs() -> impl Strategy<Value = Config> {
    let times = prop_oneof![Just(0u16), 3u16..200];
    let keepalive = proptest::option::of(1u16..60);
    let restart = proptest::option::of(1u16..4095);
    (times, keepalive, 1u16..90, any::<bool>(), restart, any::<bool>(), 1u32..6).prop_map(
        |(hold_time, keepalive_time, connect_time, passive, graceful_restart, is_restarted, max_prefixes)| {
            Config {
                hold_time,
                keepalive_time,
                connect_time,
                passive,
                graceful_restart,
                is_restarted,
                max_prefixes,
                ..config()
            }
        },
    )
}

fn opens() -> impl Strategy<Value = Open> {
    prop_oneof![
        4 => Just(open()),
        2 => any::<bool>().prop_map(graceful_open),
        1 => Just(Open { router_id: Ipv4Addr::new(9, 0, 0, 1), ..open() }),
        1 => Just(Open { hold_time: 0, ..open() }),
        1 => Just(Open { asn: 65_009, ..open() }),
    ]
}

fn notifications() -> impl Strategy<Value = Notification> {
    (0u8..10, 0u8..12, vec(any::<u8>(), 0..4)).prop_map(|(code, subcode, data)| Notification {
        code,
        subcode,
        data,
    })
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => opens().prop_map(Message::Open),
        4 => Just(Message::Keepalive),
        1 => notifications().prop_map(Message::Notification),
        1 => Just(update(&["192.0.2.0/24"], &[])),
        1 => Just(update(&["192.0.2.1/32", "192.0.2.2/32", "2001:db8::/64"], &["192.0.2.0/24"])),
        1 => Just(Message::Refresh(Refresh { family: None, kind: RefreshKind::Request })),
    ]
}

fn stops() -> impl Strategy<Value = Stop> {
    prop_oneof![
        Just(Stop::Silent),
        Just(Stop::Deconfigured),
        Just(Stop::ConfigurationChange),
        ".{0,300}".prop_map(Stop::Shutdown),
        Just(Stop::Reset("reset".to_owned())),
    ]
}

/// Generates inputs of a correct or misbehaving driver (the code that owns the sockets). Few connection
/// numbers are used, so that most inputs concern an existing connection. [`carry_on`] gives new connections
/// unique numbers.
fn inputs() -> impl Strategy<Value = Input> {
    let one = 1u64..8;
    prop_oneof![
        2 => Just(Input::Start),
        1 => stops().prop_map(Input::Stop),
        6 => Just(Input::Timeout),
        4 => Just(connected(0, Direction::Outgoing)),
        4 => Just(connected(0, Direction::Incoming)),
        2 => Just(Input::ConnectFailed { why: "refused".to_owned() }),
        2 => one.clone().prop_map(|number| Input::Closed { connection: id(number), why: "closed".to_owned() }),
        12 => (one.clone(), messages()).prop_map(|(number, message)| received(number, message)),
        1 => (one.clone(), notifications()).prop_map(|(number, answer)| malformed(number, answer)),
        1 => one.clone().prop_map(|number| Input::SendStalled { connection: id(number) }),
        1 => (one, any::<bool>())
            .prop_map(|(number, is_drained)| Input::SendMoved { connection: id(number), is_drained }),
        1 => Just(Input::BfdDown),
        1 => configs().prop_map(|config| Input::Configure(Box::new(config))),
    ]
}

/// Applies an input to the session. The connection numbers 1 to 8 are replaced by the numbers of the newest
/// connections; 1 is the newest.
fn carry_on(bench: &mut Bench, input: Input, made: &mut u64) {
    let name = |number: u64, made: u64| id((made + 1).saturating_sub(number));
    let input = match input {
        Input::Connected { direction, .. } => {
            *made += 1;
            connected(*made, direction)
        }
        Input::Closed { connection, why } => Input::Closed { connection: name(connection.0, *made), why },
        Input::Received { connection, result } => {
            Input::Received { connection: name(connection.0, *made), result }
        }
        Input::SendStalled { connection } => Input::SendStalled { connection: name(connection.0, *made) },
        Input::SendMoved { connection, is_drained } => {
            Input::SendMoved { connection: name(connection.0, *made), is_drained }
        }
        Input::Start
        | Input::Stop(_)
        | Input::Timeout
        | Input::ConnectFailed { .. }
        | Input::BfdDown
        | Input::Configure(_) => input,
    };
    bench.tell(input);
}

fn troubles() -> impl Strategy<Value = Trouble> {
    (0u64..300, 0u64..300, 0u64..100, 0u64..60, 1u64..3000).prop_map(
        |(refused, unanswered, reset, dead, delay_ms)| Trouble { refused, unanswered, reset, dead, delay_ms },
    )
}

/// Generates pairs of compatible configurations, of which at most one is passive.
fn pairs() -> impl Strategy<Value = [Config; 2]> {
    let both = (any::<bool>(), any::<bool>(), any::<bool>());
    (configs(), configs(), both, capable(), capable()).prop_map(|(one, other, both, can, other_can)| {
        let (same_id, internal, has_roles) = both;
        let roles = has_roles.then_some([Role::Customer, Role::Provider]);
        let passive = other.passive && !one.passive;
        let asn = if internal { OURS } else { THEIRS };
        let router_id = if same_id && !internal { one.router_id } else { Ipv4Addr::new(10, 0, 0, 2) };
        let one = Config { peer_asn: PeerAsn::Number(asn), ..one };
        let other = Config { local_asn: asn, peer_asn: PeerAsn::Number(OURS), router_id, passive, ..other };
        let configure = |config: Config, at: usize, can: Capable| Config {
            families: if can.0 { Family::ALL.into() } else { [Family::Ipv4Unicast].into() },
            extended_next_hop: can.1,
            host_name: can.2,
            role: roles.map(|roles| roles[at]),
            ..config
        };
        [configure(one, 0, can), configure(other, 1, other_can)]
    })
}

/// Optional capabilities: IPv6, IPv6 next hops, and a host name.
type Capable = (bool, bool, Option<String>);

fn capable() -> impl Strategy<Value = Capable> {
    (any::<bool>(), any::<bool>(), proptest::option::of(".{0,80}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of inputs, followed by 1,000 seconds without inputs, at most one connection is left
    /// and no handshake is in progress. [`super::contract`] checks the guarantees at every step.
    #[test]
    fn any_sequence_of_inputs_keeps_every_promise(
        config in configs(),
        steps in vec((0u64..200_000, any::<bool>(), inputs()), 0..120),
    ) {
        let mut bench = Bench::new(config);
        bench.tell(Input::Start);
        let mut made = 0;
        for (wait_ms, is_quick, input) in steps {
            // Most events follow closely; some come after deadlines that are handled late.
            bench.now += std::time::Duration::from_millis(if is_quick { wait_ms % 50 } else { wait_ms });
            carry_on(&mut bench, input, &mut made);
        }
        bench.pass(secs(1000));
        prop_assert!(bench.contract.open.len() <= 1, "{:?}", bench.contract.open);
        prop_assert!(matches!(bench.state(), State::Idle | State::Connect | State::Active | State::Established));
    }

    /// After any network failures and restarts, once the network works, both sides are established on the
    /// same connection and remain so.
    #[test]
    fn two_sessions_find_each_other_after_any_trouble(
        seed in any::<u64>(),
        configs in pairs(),
        phases in vec((troubles(), 0u64..600, proptest::option::of(0usize..2)), 0..5),
    ) {
        let mut world = World::new(configs, seed, Trouble::NONE);
        for (trouble, time, restarts) in phases {
            world.trouble = trouble;
            world.run(secs(time));
            if let Some(side) = restarts {
                world.restart(side);
            }
        }
        world.trouble = Trouble::NONE;
        // Messages in transit arrive.
        world.run(secs(5));
        if world.sides.iter().any(|side| side.session.config().hold_time == 0) {
            // With a Hold Time of zero, only a restart detects a dead connection.
            world.restart(0);
            world.restart(1);
        }
        let came_up = world.run_until(secs(1800), World::is_up);
        prop_assert!(came_up, "{:#?} {:#?}", world.sides[0].session, world.sides[1].session);
        prop_assert!(stays_up(&mut world), "{:#?} {:#?}", world.sides[0].session, world.sides[1].session);
    }

    /// If the network works, the first connection attempt establishes the session.
    #[test]
    fn two_sessions_find_each_other_at_once_when_nothing_is_wrong(seed in any::<u64>(), configs in pairs()) {
        let mut world = World::new(configs, seed, Trouble { delay_ms: 1, ..Trouble::NONE });
        prop_assert!(world.run_until(secs(1), World::is_up));
        prop_assert_eq!(world.sides.each_ref().map(|side| side.established), [1, 1]);
    }
}

//! Tests of the session timers: connect retry, hold, keepalive and send hold.

use bgp::{
    Message, Open, Refresh, RefreshKind,
    notification::{cease, code},
    session::{Config, Direction, Input, Output, State, Stop},
};

use super::support::{
    Bench, codes, config, connected, id, malformed, notification, open, passive, received, secs, sent, update,
};

fn refused() -> Input {
    Input::ConnectFailed { why: "connection refused".to_owned() }
}

fn is_within_a_quarter_of(bench: &Bench, seconds: u64) -> bool {
    let due = bench.due_in().unwrap();
    (secs(seconds) * 3 / 4..=secs(seconds)).contains(&due)
}

#[test]
fn attempts_come_slower_with_failures_up_to_a_minute_and_say_why() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    for wait in [5, 10, 20, 40, 60, 60] {
        bench.tell(refused());
        assert_eq!((bench.state(), bench.session.reason()), (State::Active, "connection refused"));
        assert!(is_within_a_quarter_of(&bench, wait), "{wait}: {:?}", bench.due_in());
        let outputs = bench.pass(bench.due_in().unwrap());
        assert_eq!(outputs[0], Output::Connect);
        assert_eq!(bench.session.reason(), "connecting; before: connection refused");
    }
    // A stable session resets the backoff; a short one continues it.
    for (lasts, wait) in [(10, 60), (60, 5)] {
        bench.tell(connected(lasts, Direction::Outgoing));
        bench.tell(received(lasts, Message::Open(open())));
        bench.tell(received(lasts, Message::Keepalive));
        bench.keep_up(lasts, secs(lasts));
        bench.tell(Input::Closed { connection: id(lasts), why: "reset".to_owned() });
        assert!(is_within_a_quarter_of(&bench, wait), "{wait}: {:?}", bench.due_in());
        bench.pass(bench.due_in().unwrap());
    }
}

#[test]
fn other_settings_and_a_new_start_forget_failures() {
    let failed = || {
        let mut bench = Bench::new(config());
        bench.tell(Input::Start);
        for _ in 0..4 {
            bench.tell(refused());
            bench.pass(bench.due_in().unwrap());
        }
        bench
    };
    let mut bench = failed();
    assert!(bench.due_in().unwrap() > secs(40));
    bench.tell(connected(1, Direction::Outgoing));
    bench.tell(Input::Configure(Box::new(Config { hold_time: 9, ..config() })));
    assert_eq!((bench.state(), bench.due_in()), (State::Connect, Some(secs(5))));
    let mut bench = failed();
    bench.tell(Input::Stop(Stop::Silent));
    bench.tell(Input::Start);
    assert_eq!((bench.session.reason(), bench.due_in()), ("connecting", Some(secs(5))));
}

#[test]
fn an_attempt_without_an_answer_is_given_up_and_another_one_made() {
    let mut bench = Bench::new(Config { connect_time: 1, ..config() });
    bench.tell(Input::Start);
    assert_eq!(bench.due_in(), Some(secs(5)), "as long as a lost segment takes");
    assert_eq!(bench.pass(secs(5)), [Output::CancelConnect, Output::Connect]);
    assert_eq!(bench.session.reason(), "connecting; before: no answer to the attempt to connect");
    assert_eq!(bench.state(), State::Connect);
}

#[test]
fn while_the_neighbours_connection_is_looked_at_no_other_one_is_made() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    bench.tell(refused());
    bench.tell(connected(1, Direction::Incoming));
    assert_eq!(bench.due_in(), Some(secs(240)));
    let outputs = bench.pass(secs(240));
    assert_eq!(codes(&outputs), Some((code::HOLD_TIMER, 0)));
    assert_eq!(bench.session.reason(), "the neighbour has sent no OPEN within 4 minutes");
    assert!(is_within_a_quarter_of(&bench, 10));
}

/// Repeated protocol errors keep the session in Idle for a growing time, in which connections of the neighbor
/// are rejected.
#[test]
fn protocol_errors_are_damped() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    for (number, wait) in [5, 10, 20, 40, 60, 60].into_iter().enumerate() {
        let number = number as u64 * 2;
        bench.tell(connected(number, Direction::Outgoing));
        let outputs = bench.tell(malformed(number, notification(code::HEADER, 1)));
        assert_eq!((codes(&outputs), bench.state()), (Some((1, 1)), State::Idle));
        assert!(is_within_a_quarter_of(&bench, wait), "{wait}: {:?}", bench.due_in());
        let outputs = bench.tell(connected(number + 1, Direction::Incoming));
        assert_eq!(codes(&outputs), Some((code::CEASE, cease::REJECTED)));
        assert!(sent(&outputs).len() == 1 && bench.contract.open.is_empty());
        bench.pass(bench.due_in().unwrap());
        assert_eq!(bench.state(), State::Connect);
    }
    bench.tell(connected(99, Direction::Outgoing));
    bench.tell(malformed(99, notification(code::HEADER, 1)));
    bench.tell(Input::Start);
    assert_eq!(bench.state(), State::Connect, "whoever starts it does not wait");
    // Another attempt follows without a configuration change as well.
    bench.tell(connected(100, Direction::Outgoing));
    bench.tell(malformed(100, notification(code::HEADER, 1)));
    bench.tell(Input::Configure(Box::new(Config { connect_time: 6, ..config() })));
    assert_eq!(bench.state(), State::Idle, "this changes nothing");
    bench.tell(Input::Configure(Box::new(Config { hold_time: 9, ..config() })));
    assert_eq!(bench.state(), State::Connect);
}

#[test]
fn silence_ends_a_session_and_only_keepalives_and_updates_are_none() {
    let mut bench = Bench::established(config(), open());
    bench.pass(secs(29));
    bench.tell(received(1, Message::Keepalive));
    bench.pass(secs(29));
    bench.tell(received(1, update(&[], &["192.0.2.0/24"])));
    bench.pass(secs(29));
    assert_eq!(bench.state(), State::Established);
    bench.tell(received(1, Message::Refresh(Refresh { family: None, kind: RefreshKind::Request })));
    let outputs = bench.pass(secs(1));
    assert_eq!(codes(&outputs), Some((code::HOLD_TIMER, 0)));
    assert_eq!(bench.session.reason(), "nothing was heard for the hold time of 30 s");
    assert_eq!(bench.state(), State::Active);
}

#[test]
fn keepalives_are_sent_three_times_in_the_hold_time_or_as_often_as_wanted() {
    let keepalives = |config: Config, hold_time: u16| {
        let mut bench = Bench::established(config, Open { hold_time, ..open() });
        let sent_ones = bench.keep_up(1, secs(600));
        (sent(&sent_ones).len(), bench.session.negotiated().unwrap().keepalive_time)
    };
    let (count, nominal) = keepalives(config(), 30);
    assert!((60..=80).contains(&count) && nominal == 10, "{count} {nominal}");
    let (count, nominal) = keepalives(Config { keepalive_time: Some(2), ..config() }, 30);
    assert!((300..=400).contains(&count) && nominal == 2, "{count} {nominal}");
    let (count, nominal) = keepalives(Config { keepalive_time: Some(60), ..config() }, 30);
    assert!(
        (60..=80).contains(&count) && nominal == 10,
        "no slower than the hold time allows: {count} {nominal}"
    );
    assert_eq!(keepalives(config(), 3), (600, 1), "no faster than one a second");
    assert_eq!(keepalives(Config { keepalive_time: Some(5), ..config() }, 0), (0, 0));
    assert_eq!(keepalives(Config { hold_time: 0, ..config() }, 90), (0, 0));
}

#[test]
fn without_a_hold_time_only_the_beginning_is_limited() {
    let mut bench = Bench::outgoing(passive_none(), Open { hold_time: 0, ..open() }, State::OpenConfirm);
    assert_eq!(bench.due_in(), Some(secs(240)));
    bench.tell(received(1, Message::Keepalive));
    assert_eq!(bench.due_in(), None);
    assert_eq!(bench.pass(secs(1_000_000)), []);
}

fn passive_none() -> Config {
    Config { hold_time: 0, ..config() }
}

/// A neighbor that accepts no bytes for eight minutes is disconnected, even if it sends messages (RFC 9687).
#[test]
fn a_neighbour_that_takes_no_bytes_is_given_up() {
    let mut bench = Bench::established(config(), open());
    let stalled = || Input::SendStalled { connection: id(1) };
    bench.tell(stalled());
    bench.keep_up(1, secs(400));
    bench.tell(Input::SendMoved { connection: id(1), is_drained: false });
    bench.keep_up(1, secs(479));
    bench.tell(Input::SendMoved { connection: id(1), is_drained: true });
    bench.keep_up(1, secs(1000));
    assert_eq!(bench.state(), State::Established);
    bench.tell(stalled());
    bench.keep_up(1, secs(100));
    bench.tell(Input::SendMoved { connection: id(1), is_drained: false });
    bench.keep_up(1, secs(300));
    // A repeated report changes nothing.
    bench.tell(stalled());
    let mut outputs = bench.keep_up(1, secs(179));
    assert_eq!(bench.state(), State::Established);
    outputs.extend(bench.keep_up(1, secs(1)));
    assert_eq!(codes(&outputs), None, "nothing can be sent");
    assert!(outputs.contains(&Output::Close { connection: id(1) }));
    assert_eq!(bench.session.reason(), "the neighbour takes no data from us (send hold time)");
}

#[test]
fn bfd_ends_a_session_at_once_and_holds_up_none() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut bench = Bench::outgoing(config(), open(), state);
        assert_eq!(codes(&bench.tell(Input::BfdDown)), Some((code::CEASE, cease::BFD_DOWN)));
        assert_eq!(bench.session.reason(), "BFD: the path to the neighbour is down");
        assert!(is_within_a_quarter_of(&bench, 5));
        assert_eq!(bench.tell(Input::BfdDown), []);
    }
    let mut bench = Bench::incoming(passive(), open(), State::Established);
    bench.tell(Input::BfdDown);
    bench.tell(connected(2, Direction::Incoming));
    assert_eq!(bench.state(), State::OpenSent);
}

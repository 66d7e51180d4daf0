//! Tests of Graceful Restart (RFC 4724, RFC 8538): the advertised capability, and the cases in which the
//! neighbor retains routes.

use bgp::{
    Capability, Family, GracefulRestart, Message, Notification, Open,
    notification::{cease, code},
    session::{Config, Direction, Input, Output, State, Stop},
};

use super::support::{
    Bench, codes, config, connected, down, graceful, graceful_open, id, malformed, notification, notified,
    open, opened, passive, received, secs, sent,
};

fn restart_in(open: &Open) -> Option<&GracefulRestart> {
    open.capabilities.iter().find_map(|capability| {
        if let Capability::GracefulRestart(restart) = capability { Some(restart) } else { None }
    })
}

/// The Restart State bit (R) is set in each OPEN after a restart of the agent until the session has been
/// established once. The bits F and N are always set.
#[test]
fn open_tells_of_a_restart_until_the_session_was_established_once() {
    let mut bench = Bench::new(Config { is_restarted: true, passive: true, ..graceful() });
    bench.tell(Input::Start);
    let mut say = |connection: u64, then: &[Message]| {
        let said = opened(&bench.tell(connected(connection, Direction::Incoming)));
        then.iter().for_each(|message| drop(bench.tell(received(connection, message.clone()))));
        bench.tell(Input::Closed { connection: id(connection), why: "closed".to_owned() });
        restart_in(&said).unwrap().clone()
    };
    let restart = say(1, &[Message::Open(open())]);
    assert!(restart.is_restarted && restart.notification);
    assert_eq!(restart.restart_time, 120);
    assert_eq!(restart.families, Family::ALL.map(|family| (family, true)).into());
    assert!(say(2, &[Message::Open(open()), Message::Keepalive]).is_restarted);
    let after = say(3, &[]);
    assert_eq!(after, GracefulRestart { is_restarted: false, ..restart });
    let mut bench = Bench::new(passive());
    bench.tell(Input::Start);
    assert_eq!(
        restart_in(&opened(&bench.tell(connected(1, Direction::Incoming)))),
        None,
        "only where it is wanted"
    );
}

/// After each kind of session end, the neighbor retains or removes the routes as negotiated: without Graceful
/// Restart, with it, or with its extension for notifications.
#[test]
fn whether_the_neighbour_keeps_our_routes_follows_from_the_agreement_and_from_the_end() {
    let closed = || Input::Closed { connection: id(1), why: "reset".to_owned() };
    let says = |notification| received(1, Message::Notification(notification));
    let hard = || notification(code::CEASE, cease::SHUTDOWN).into_hard_reset();
    type End = Box<dyn Fn(&mut Bench) -> Vec<Output>>;
    let tell = |input: Input| -> End { Box::new(move |bench| bench.tell(input.clone())) };
    let silent = || -> End { Box::new(|bench| bench.pass(secs(30))) };
    let cases = [
        ("closed", tell(closed()), [false, true, true]),
        ("stopped silently", tell(Input::Stop(Stop::Silent)), [false, true, true]),
        ("shut down", tell(Input::Stop(Stop::Shutdown(String::new()))), [false; 3]),
        ("reset", tell(Input::Stop(Stop::Reset(String::new()))), [false; 3]),
        ("deconfigured", tell(Input::Stop(Stop::Deconfigured)), [false; 3]),
        ("stopped for other settings", tell(Input::Stop(Stop::ConfigurationChange)), [false, false, true]),
        ("BFD", tell(Input::BfdDown), [false, false, true]),
        ("hold time", silent(), [false, false, true]),
        ("malformed", tell(malformed(1, notification(code::UPDATE, 1))), [false, false, true]),
        (
            "the neighbour shuts down",
            tell(says(notification(code::CEASE, cease::SHUTDOWN))),
            [false, false, true],
        ),
        ("the neighbour resets hard", tell(says(hard())), [false; 3]),
    ];
    for (what, end, keeps) in cases {
        for (theirs, keeps) in [open(), graceful_open(false), graceful_open(true)].into_iter().zip(keeps) {
            let mut bench = Bench::established(graceful(), theirs.clone());
            let outputs = end(&mut bench);
            assert_eq!(down(&outputs).unwrap().peer_keeps_routes, keeps, "{what} {theirs:?}");
            let mut bench = Bench::established(config(), theirs);
            let outputs = end(&mut bench);
            assert!(!down(&outputs).unwrap().peer_keeps_routes, "{what}: we did not ask for it");
        }
    }
}

/// A stop that withdraws the routes sends a Hard Reset, because after a plain Cease the neighbor would retain
/// them (RFC 8538 §3.1).
#[test]
fn a_stop_that_takes_routes_back_is_a_hard_reset_where_a_cease_would_not() {
    let text = || Stop::Shutdown("works until six".to_owned());
    let mut bench = Bench::established(graceful(), graceful_open(true));
    let outputs = bench.tell(Input::Stop(text()));
    let hard = notified(&outputs).unwrap();
    let inner = hard.inner().unwrap();
    assert_eq!((hard.code, hard.subcode, inner.code, inner.subcode), (6, 9, 6, 2));
    assert_eq!(hard.text().as_deref(), Some("works until six"));
    assert_eq!(bench.session.reason(), "stopped: works until six");
    for (config, theirs) in [(graceful(), graceful_open(false)), (config(), graceful_open(true))] {
        let outputs = Bench::established(config, theirs).tell(Input::Stop(text()));
        let plain = notified(&outputs).unwrap();
        assert_eq!((plain.code, plain.subcode, plain.text().as_deref()), (6, 2, Some("works until six")));
    }
    for (stop, inner) in [(Stop::Deconfigured, 3), (Stop::Reset(String::new()), 4)] {
        let outputs = Bench::established(graceful(), graceful_open(true)).tell(Input::Stop(stop.clone()));
        assert_eq!(notified(&outputs), Some(&Notification::new(code::CEASE, inner).into_hard_reset()));
        let outputs = Bench::established(config(), open()).tell(Input::Stop(stop));
        assert_eq!(codes(&outputs), Some((code::CEASE, inner)));
    }
    let outputs =
        Bench::established(graceful(), graceful_open(true)).tell(Input::Stop(Stop::ConfigurationChange));
    assert_eq!(codes(&outputs), Some((code::CEASE, cease::CONFIGURATION_CHANGE)), "routes may stay over it");
}

/// If OPEN contains several Graceful Restart capabilities, the last one is used (RFC 4724 §3).
#[test]
fn the_last_graceful_restart_capability_counts() {
    let mut theirs = graceful_open(true);
    theirs.capabilities.extend(graceful_open(false).capabilities);
    theirs.capabilities.push(Capability::EnhancedRouteRefresh);
    let bench = Bench::established(graceful(), theirs);
    let restart = bench.session.negotiated().unwrap().graceful_restart.as_ref().unwrap();
    assert!(!restart.notification);
}

#[test]
fn a_planned_restart_says_nothing_in_any_state() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut bench = Bench::outgoing(graceful(), graceful_open(true), state);
        let outputs = bench.tell(Input::Stop(Stop::Silent));
        assert_eq!(outputs[0], Output::Close { connection: id(1) });
        assert_eq!((sent(&outputs).len(), bench.state(), bench.due_in()), (0, State::Idle, None));
    }
}

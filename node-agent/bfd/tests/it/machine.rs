//! Tests of the session state machine, event by event (RFC 5880 §6.8).

use std::time::Duration;

use bfd::{Config, Diagnostic, Event, Input, Interval, Role, Session, State, wire::Packet};

use crate::support::{
    config, discriminator, in_state, ms, multiplier, origin, packet, receive, session, sorted, up,
};

/// Transitions of RFC 5880 §6.8.6: state of the session, state in the received packet, and resulting state.
const TRANSITIONS: [(State, State, State); 16] = {
    use State::{AdminDown, Down, Init, Up};
    [
        (AdminDown, AdminDown, AdminDown),
        (AdminDown, Down, AdminDown),
        (AdminDown, Init, AdminDown),
        (AdminDown, Up, AdminDown),
        (Down, AdminDown, Down),
        (Down, Down, Init),
        (Down, Init, Up),
        (Down, Up, Down),
        (Init, AdminDown, Down),
        (Init, Down, Init),
        (Init, Init, Up),
        (Init, Up, Up),
        (Up, AdminDown, Down),
        (Up, Down, Down),
        (Up, Init, Up),
        (Up, Up, Up),
    ]
};

#[test]
fn every_state_answers_every_state_as_the_table_says() {
    let now = origin();
    for (ours, theirs, expected) in TRANSITIONS {
        let mut session = in_state(ours, now);
        receive(&mut session, packet(theirs), now);
        assert_eq!(session.state(), expected, "{ours} hears {theirs}");
        let fell = matches!(ours, State::Init | State::Up) && expected == State::Down;
        if fell {
            assert_eq!(
                session.diagnostic(),
                Diagnostic::NeighborSignaledSessionDown,
                "{ours} hears {theirs}"
            );
        }
    }
}

#[test]
fn silence_for_the_detection_time_is_down_and_the_peer_a_stranger_again() {
    let now = origin();
    let mut session = up(now);
    // The peer's Detect Mult times the larger of its Desired Min TX and our Required Min RX Interval.
    assert_eq!(session.detection_time(), Some(ms(900)));
    let slower = Packet { desired_min_tx_micros: 400_000, multiplier: multiplier(5), ..packet(State::Up) };
    receive(&mut session, slower, now);
    assert_eq!(session.detection_time(), Some(ms(2000)));
    let before = sorted(session.handle(Input::Timeout, now + ms(1999)));
    assert_eq!((session.state(), before.events), (State::Up, vec![]));
    let done = sorted(session.handle(Input::Timeout, now + ms(2000)));
    assert_eq!(done.events, [Event::Down(Diagnostic::ControlDetectionTimeExpired)]);
    assert_eq!(done.sent.len(), 1, "the news goes out at once: {:?}", done.sent);
    assert_eq!((done.sent[0].state, done.sent[0].your_discriminator), (State::Down, None));
    assert_eq!(done.sent[0].diagnostic, Diagnostic::ControlDetectionTimeExpired);
    assert_eq!(session.remote().discriminator, None);
}

#[test]
fn a_session_that_was_never_up_falls_silently() {
    let now = origin();
    let mut session = in_state(State::Init, now);
    let done = sorted(session.handle(Input::Timeout, now + Duration::from_secs(10)));
    assert_eq!((session.state(), done.events), (State::Down, vec![]));
}

/// A session sends slowly until it is up, then negotiates the configured interval by a Poll Sequence.
#[test]
fn coming_up_negotiates_the_configured_interval() {
    let now = origin();
    let mut session = session(now);
    assert_eq!(session.poll_timeout(), Some(now), "the first packet is due at once");
    let first = sorted(session.handle(Input::Timeout, now));
    assert_eq!(
        (first.sent[0].desired_min_tx_micros, first.sent[0].required_min_rx_micros),
        (1_000_000, 300_000)
    );
    assert_eq!((first.sent[0].state, first.sent[0].required_min_echo_rx_micros), (State::Down, 0));
    let done = receive(&mut session, packet(State::Init), now);
    assert_eq!(done.events, [Event::Up]);
    assert_eq!(done.sent.len(), 1);
    assert!(done.sent[0].poll && done.sent[0].desired_min_tx_micros == 300_000, "{:?}", done.sent);
    assert_eq!(session.transmit_interval(), ms(300), "faster is at once");
    let again = sorted(session.handle(Input::Timeout, now + ms(300)));
    assert!(again.sent[0].poll, "until it is answered");
    receive(&mut session, Packet { is_final: true, ..packet(State::Up) }, now + ms(300));
    let later = sorted(session.handle(Input::Timeout, now + ms(600)));
    assert!(!later.sent[0].poll);
}

#[test]
fn a_poll_is_answered_at_once_with_final_and_without_poll() {
    let now = origin();
    let mut session = up(now);
    let done = receive(&mut session, Packet { poll: true, ..packet(State::Up) }, now);
    assert_eq!(done.sent.len(), 1);
    assert!(done.sent[0].is_final && !done.sent[0].poll, "also while we ask ourselves");
}

/// A longer transmit interval and a shorter receive interval take effect only after the peer's packet with
/// the Final bit (RFC 5880 §6.8.3).
#[test]
fn what_could_make_a_peer_see_us_as_gone_waits_for_its_final() {
    let now = origin();
    let mut session = up(now);
    let last = Packet { is_final: true, ..packet(State::Up) };
    receive(&mut session, last, now);
    receive(&mut session, packet(State::Up), now);
    let slower = Config { desired_min_tx: Interval::new(ms(2000)).unwrap(), ..config(100, 3) };
    let done = sorted(session.handle(Input::Configure(slower), now));
    let [asked] = done.sent[..] else { panic!("{done:?}") };
    assert!(asked.poll);
    assert_eq!((asked.desired_min_tx_micros, asked.required_min_rx_micros), (2_000_000, 100_000));
    assert_eq!(session.transmit_interval(), ms(300));
    assert_eq!(session.detection_time(), Some(ms(900)));
    let done = receive(&mut session, last, now);
    assert_eq!(session.transmit_interval(), ms(2000));
    assert_eq!(session.detection_time(), Some(ms(300)));
    assert_eq!(done.events, [Event::TimersChanged]);
}

#[test]
fn what_is_safe_for_the_peer_is_done_at_once() {
    let now = origin();
    let mut session = up(now);
    receive(&mut session, Packet { is_final: true, ..packet(State::Up) }, now);
    receive(&mut session, packet(State::Up), now);
    let faster = Config { desired_min_tx: Interval::new(ms(100)).unwrap(), ..config(600, 3) };
    session.handle(Input::Configure(faster), now);
    assert_eq!(session.transmit_interval(), ms(100));
    assert_eq!(session.detection_time(), Some(ms(1800)));
}

/// Intervals configured during a Poll Sequence get a new Poll Sequence, which starts after a packet without
/// the Final bit.
#[test]
fn poll_sequences_do_not_run_into_each_other() {
    let now = origin();
    let mut session = up(now);
    let done = sorted(session.handle(Input::Configure(config(500, 3)), now));
    assert!(done.sent.is_empty(), "the first sequence still runs");
    let last = Packet { is_final: true, ..packet(State::Up) };
    assert!(receive(&mut session, last, now).sent.is_empty());
    assert!(receive(&mut session, last, now).sent.is_empty(), "a second answer to the first sequence");
    assert_eq!(session.transmit_interval(), ms(300));
    let done = receive(&mut session, packet(State::Up), now);
    assert!(done.sent[0].poll && done.sent[0].desired_min_tx_micros == 500_000, "{done:?}");
    receive(&mut session, last, now);
    assert_eq!(session.transmit_interval(), ms(500));
}

#[test]
fn a_sequence_that_no_packet_separates_begins_after_an_interval() {
    let now = origin();
    let mut session = up(now);
    session.handle(Input::Configure(config(500, 3)), now);
    receive(&mut session, Packet { is_final: true, ..packet(State::Up) }, now);
    let mut polled = false;
    let mut at = now;
    while !polled && at < now + ms(400) {
        at = session.poll_timeout().unwrap();
        polled = sorted(session.handle(Input::Timeout, at)).sent.iter().any(|packet| packet.poll);
    }
    assert_eq!(at, now + ms(300));
}

#[test]
fn the_multiplier_needs_no_poll() {
    let now = origin();
    let mut session = up(now);
    receive(&mut session, Packet { is_final: true, ..packet(State::Up) }, now);
    let done = sorted(session.handle(Input::Configure(config(300, 7)), now));
    assert!(!done.sent[0].poll && done.sent[0].multiplier == multiplier(7), "{done:?}");
}

/// The transmit interval is the larger of the session's own and the one that the peer requests; a shorter
/// request of the peer takes effect at once (RFC 5880 §6.8.7).
#[test]
fn the_transmit_interval_follows_every_packet() {
    let now = origin();
    let mut session = up(now);
    let asking = |micros| Packet { required_min_rx_micros: micros, is_final: true, ..packet(State::Up) };
    receive(&mut session, asking(5_000_000), now);
    assert_eq!(session.transmit_interval(), Duration::from_secs(5));
    session.handle(Input::Timeout, now);
    let at = now + ms(500);
    receive(&mut session, asking(50_000), at);
    assert_eq!(session.transmit_interval(), ms(300));
    assert!(session.poll_timeout().unwrap() <= at, "no longer than the new interval after the last packet");
}

#[test]
fn intervals_are_jittered_within_their_bounds() {
    for (times, range) in [(3, 225..=300), (1, 225..=270)] {
        let now = origin();
        let mut session = Session::new(config(300, times), discriminator(1), 42, now);
        receive(&mut session, Packet { required_min_rx_micros: 1, ..packet(State::Init) }, now);
        let (mut at, mut gaps) = (now, Vec::new());
        for _ in 0..200 {
            receive(&mut session, Packet { is_final: true, ..packet(State::Up) }, at);
            let next = session.poll_timeout().unwrap();
            gaps.push((next - at).as_millis());
            at = next;
            assert_eq!(sorted(session.handle(Input::Timeout, at)).sent.len(), 1);
        }
        let gaps = &gaps[1..];
        assert!(gaps.iter().all(|gap| range.contains(gap)), "{times}: {gaps:?}");
        assert!(gaps.iter().collect::<std::collections::BTreeSet<_>>().len() > 20, "{gaps:?}");
    }
}

#[test]
fn a_peer_that_wants_no_packets_gets_none_but_is_watched() {
    let now = origin();
    let mut session = up(now);
    receive(&mut session, Packet { required_min_rx_micros: 0, ..packet(State::Up) }, now);
    let next = session.poll_timeout().unwrap();
    assert_eq!(next, now + ms(900), "nothing but the detection time");
    assert!(sorted(session.handle(Input::Timeout, now + ms(500))).sent.is_empty());
    sorted(session.handle(Input::Timeout, next));
    assert_eq!(session.state(), State::Down);
    assert!(session.poll_timeout().is_some(), "what it asked for is forgotten with it");
}

#[test]
fn the_demand_mode_of_the_peer_is_honoured_while_both_are_up() {
    let now = origin();
    let mut session = up(now);
    let demanding = Packet { demand: true, is_final: true, ..packet(State::Up) };
    receive(&mut session, demanding, now);
    assert!(sorted(session.handle(Input::Timeout, now + ms(800))).sent.is_empty());
    let asked = receive(&mut session, Packet { poll: true, ..demanding }, now + ms(800));
    assert!(asked.sent[0].is_final, "a Poll is answered");
    // Our own Polls are still sent.
    receive(&mut session, Packet { is_final: false, ..demanding }, now + ms(800));
    assert!(sorted(session.handle(Input::Configure(config(500, 3)), now + ms(800))).sent[0].poll);
    assert!(sorted(session.handle(Input::Timeout, now + ms(1100))).sent[0].poll);
    receive(&mut session, Packet { state: State::Down, ..demanding }, now + ms(1200));
    assert_eq!(session.state(), State::Down);
    assert!(session.poll_timeout().unwrap() <= now + ms(2200), "not up: packets flow again");
}

#[test]
fn admin_down_is_said_several_times_at_once_and_holds_until_it_is_lifted() {
    let now = origin();
    let mut session = up(now);
    let done = sorted(session.handle(Input::AdminDown(Diagnostic::AdministrativelyDown), now));
    assert_eq!(done.events, [Event::Down(Diagnostic::AdministrativelyDown)]);
    assert_eq!(done.sent.len(), 3);
    for sent in &done.sent {
        assert_eq!((sent.state, sent.diagnostic), (State::AdminDown, Diagnostic::AdministrativelyDown));
        assert_eq!(sent.desired_min_tx_micros, 1_000_000);
    }
    assert!(sorted(session.handle(Input::AdminDown(Diagnostic::AdministrativelyDown), now)).sent.is_empty());
    let reason = sorted(session.handle(Input::AdminDown(Diagnostic::None), now));
    assert_eq!((reason.sent.len(), reason.sent[0].diagnostic), (3, Diagnostic::None));
    let later = sorted(session.handle(Input::Timeout, now + ms(1000)));
    assert_eq!(later.sent[0].state, State::AdminDown, "it goes on saying so");
    let lifted = sorted(session.handle(Input::Enable, now + ms(1000)));
    assert_eq!((session.state(), lifted.sent[0].state), (State::Down, State::Down));
}

#[test]
fn the_admin_down_of_the_peer_is_told_once_with_its_diagnostic() {
    let now = origin();
    let mut session = up(now);
    let stopped = Packet { diagnostic: Diagnostic::AdministrativelyDown, ..packet(State::AdminDown) };
    let done = receive(&mut session, stopped, now);
    assert_eq!(done.events, [Event::RemoteAdminDown(Diagnostic::AdministrativelyDown)]);
    assert_eq!(session.state(), State::Down);
    assert_eq!(receive(&mut session, stopped, now).events, []);
    let restarts = Packet { diagnostic: Diagnostic::None, ..stopped };
    assert_eq!(receive(&mut session, restarts, now).events, [Event::RemoteAdminDown(Diagnostic::None)]);
    // The last received fields are kept after the peer is gone.
    session.handle(Input::Timeout, now + Duration::from_secs(5));
    let remote = session.remote();
    assert_eq!(
        (remote.discriminator, remote.state, remote.diagnostic),
        (None, State::AdminDown, Diagnostic::None)
    );
}

#[test]
fn a_passive_session_speaks_only_to_a_peer_that_it_hears() {
    let now = origin();
    let mut session =
        Session::new(Config { role: Role::Passive, ..config(300, 3) }, discriminator(1), 42, now);
    assert_eq!(session.poll_timeout(), None);
    assert!(sorted(session.handle(Input::AdminDown(Diagnostic::None), now)).sent.is_empty());
    assert!(sorted(session.handle(Input::Enable, now)).sent.is_empty());
    receive(&mut session, packet(State::Down), now);
    assert_eq!(session.state(), State::Init);
    let sent = sorted(session.handle(Input::Timeout, session.poll_timeout().unwrap())).sent;
    assert_eq!((sent[0].state, sent[0].your_discriminator), (State::Init, Some(discriminator(9))));
    session.handle(Input::Timeout, now + Duration::from_secs(10));
    assert_eq!(session.poll_timeout(), None, "it is gone, and nothing is said into the void");
}

#[test]
fn a_peer_that_starts_anew_is_followed() {
    let now = origin();
    let mut session = up(now);
    let anew = Packet {
        my_discriminator: discriminator(77),
        your_discriminator: None,
        desired_min_tx_micros: 1_000_000,
        ..packet(State::Down)
    };
    let done = receive(&mut session, anew, now);
    assert_eq!(done.events, [Event::Down(Diagnostic::NeighborSignaledSessionDown)]);
    assert_eq!(done.sent[0].your_discriminator, Some(discriminator(77)));
    receive(&mut session, Packet { my_discriminator: discriminator(77), ..packet(State::Init) }, now);
    assert_eq!(session.state(), State::Up);
}

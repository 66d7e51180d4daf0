//! Helpers for the tests: packets, sessions, and a simulated link in virtual time.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part of the support")]

pub mod link;

use std::{
    num::{NonZeroU8, NonZeroU32},
    time::{Duration, Instant},
};

use bfd::{
    Algorithm, Config, Diagnostic, Event, Input, Interval, Key, Output, Role, Secret, Session, State,
    wire::{self, Packet},
};

/// Returns the start of virtual time.
#[allow(clippy::disallowed_methods, reason = "some origin is needed; nothing depends on which")]
pub fn origin() -> Instant {
    Instant::now()
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn multiplier(value: u8) -> NonZeroU8 {
    NonZeroU8::new(value).unwrap()
}

pub fn discriminator(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

pub fn config(interval_ms: u64, times: u8) -> Config {
    let interval = Interval::new(ms(interval_ms)).unwrap();
    Config {
        desired_min_tx: interval,
        required_min_rx: interval,
        multiplier: multiplier(times),
        role: Role::Active,
        key: None,
    }
}

pub fn key(algorithm: Algorithm) -> Key {
    Key::symmetric(3, algorithm, Secret::new(b"a shared secret").unwrap())
}

/// Returns a packet of a peer that uses intervals of 50 ms and has received the discriminator 1 of the
/// session under test.
pub fn packet(state: State) -> Packet {
    Packet {
        diagnostic: Diagnostic::None,
        state,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        demand: false,
        multiplier: multiplier(3),
        my_discriminator: discriminator(9),
        your_discriminator: Some(discriminator(1)),
        desired_min_tx_micros: 50_000,
        required_min_rx_micros: 50_000,
        required_min_echo_rx_micros: 0,
    }
}

/// Creates a session with intervals of 300 ms, Detect Mult 3 and discriminator 1.
pub fn session(now: Instant) -> Session {
    Session::new(config(300, 3), discriminator(1), 42, now)
}

/// Outputs of a session for one input, separated by kind.
#[derive(Debug, Default, PartialEq)]
pub struct Done {
    pub sent: Vec<Packet>,
    pub events: Vec<Event>,
    pub refused: Vec<bfd::Refusal>,
}

pub fn sorted(outputs: Vec<Output>) -> Done {
    let mut done = Done::default();
    for output in outputs {
        match output {
            Output::Transmit(bytes) => done.sent.push(wire::parse(&bytes).unwrap().packet),
            Output::Event(event) => done.events.push(event),
            Output::Refused(refusal) => done.refused.push(refusal),
        }
    }
    done
}

pub fn receive(session: &mut Session, packet: Packet, now: Instant) -> Done {
    let bytes = wire::render(&packet, None);
    sorted(session.handle(Input::Received(&wire::parse(&bytes).unwrap()), now))
}

/// Creates a session that is up, with the peer of [`packet`].
pub fn up(now: Instant) -> Session {
    let mut session = session(now);
    receive(&mut session, packet(State::Init), now);
    assert_eq!(session.state(), State::Up);
    session
}

/// Creates a session and brings it into a state by packets.
pub fn in_state(state: State, now: Instant) -> Session {
    let mut session = session(now);
    match state {
        State::AdminDown => drop(session.handle(Input::AdminDown(Diagnostic::AdministrativelyDown), now)),
        State::Down => {}
        State::Init => drop(receive(&mut session, packet(State::Down), now)),
        State::Up => drop(receive(&mut session, packet(State::Init), now)),
    }
    assert_eq!(session.state(), state);
    session
}

//! Tests of keyed SHA1 authentication between two sessions, and of the reasons why packets are rejected (RFC
//! 5880 §6.7).

use std::time::Instant;

use bfd::{
    Algorithm, Config, Input, Key, Output, Refusal, Secret, Session, State,
    wire::{self, Section},
};

use crate::support::{
    self, config, discriminator, key,
    link::{Pair, Quality},
    ms, origin, sorted,
};

const BOTH: [Algorithm; 2] = [Algorithm::KeyedSha1, Algorithm::MeticulousKeyedSha1];

fn with_key(key: Key) -> Config {
    Config { key: Some(key), ..config(300, 3) }
}

fn new(config: Config, number: u32, now: Instant) -> Session {
    Session::new(config, discriminator(number), number.into(), now)
}

/// Returns the next packet that a session sends.
fn next(session: &mut Session, now: Instant) -> Vec<u8> {
    let outputs = session.handle(Input::Timeout, session.poll_timeout().unwrap().max(now));
    let packet = outputs.into_iter().find_map(|output| match output {
        Output::Transmit(bytes) => Some(bytes),
        Output::Event(_) | Output::Refused(_) => None,
    });
    packet.unwrap()
}

fn give(session: &mut Session, bytes: &[u8], now: Instant) -> Vec<Refusal> {
    sorted(session.handle(Input::Received(&wire::parse(bytes).unwrap()), now)).refused
}

fn sequence(bytes: &[u8]) -> u32 {
    match wire::parse(bytes).unwrap().section {
        Some(Section::Sha1(section)) => section.sequence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_key_is_accepted_and_any_other_refused() {
    let now = origin();
    for algorithm in BOTH {
        let good = key(algorithm);
        let bytes = next(&mut new(with_key(good.clone()), 1, now), now);
        let cases = [
            (Some(good.clone()), None),
            (None, Some(Refusal::AuthenticationUnexpected)),
            (Some(Key { id: 4, ..good.clone() }), Some(Refusal::KeyId)),
            (Some(Key { receive: Secret::new(b"another").unwrap(), ..good }), Some(Refusal::Digest)),
        ];
        for (key, expected) in cases {
            let mut receiver = new(Config { key, ..config(300, 3) }, 2, now);
            assert_eq!(give(&mut receiver, &bytes, now), Vec::from_iter(expected), "{algorithm:?}");
            assert_eq!(receiver.state(), if expected.is_none() { State::Init } else { State::Down });
        }
    }
    let meticulous = next(&mut new(with_key(key(Algorithm::MeticulousKeyedSha1)), 1, now), now);
    let mut keyed = new(with_key(key(Algorithm::KeyedSha1)), 2, now);
    assert_eq!(give(&mut keyed, &meticulous, now), [Refusal::AuthenticationType]);
    let plain = next(&mut new(config(300, 3), 1, now), now);
    assert_eq!(give(&mut keyed, &plain, now), [Refusal::AuthenticationMissing]);
    let mut password = meticulous;
    password[24] = 1;
    assert_eq!(give(&mut keyed, &password, now), [Refusal::AuthenticationType]);
}

#[test]
fn a_packet_changed_anywhere_is_refused() {
    let now = origin();
    let config = with_key(key(Algorithm::MeticulousKeyedSha1));
    let good = next(&mut new(config.clone(), 1, now), now);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let mut receiver = new(config.clone(), 2, now);
        if let Ok(received) = wire::parse(&bytes) {
            let refused = sorted(receiver.handle(Input::Received(&received), now)).refused;
            assert_eq!(refused.len(), 1, "byte {at}");
        }
    }
}

/// RFC 5880 §6.7.3: a sequence number may repeat only in keyed mode; lower numbers and those too far ahead
/// are rejected.
#[test]
fn sequence_numbers_have_a_window() {
    let now = origin();
    for (algorithm, repeats) in [(Algorithm::KeyedSha1, true), (Algorithm::MeticulousKeyedSha1, false)] {
        let config = with_key(key(algorithm));
        let mut sender = new(config.clone(), 1, now);
        // A different configuration each time, because changed content has a new sequence number in both
        // modes.
        let packets: Vec<_> = (0..24)
            .map(|round: u64| {
                let times = config_multiplier(round);
                sender.handle(Input::Configure(Config { multiplier: times, ..config.clone() }), now);
                next(&mut sender, now + ms(2000) * u32::try_from(round).unwrap())
            })
            .collect();
        let numbers: Vec<_> = packets.iter().map(|bytes| sequence(bytes)).collect();
        assert!(numbers.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) >= 1), "{numbers:?}");
        let mut receiver = new(config.clone(), 2, now);
        assert_eq!(give(&mut receiver, &packets[1], now), []);
        let again = give(&mut receiver, &packets[1], now);
        assert_eq!(again, if repeats { vec![] } else { vec![Refusal::Sequence] }, "{algorithm:?}");
        assert_eq!(give(&mut receiver, &packets[0], now), [Refusal::Sequence], "from before");
        assert_eq!(give(&mut receiver, &packets[23], now), [Refusal::Sequence], "too far ahead");
        assert_eq!(give(&mut receiver, &packets[2], now), []);
    }
}

fn config_multiplier(round: u64) -> std::num::NonZeroU8 {
    support::multiplier(if round.is_multiple_of(2) { 3 } else { 2 })
}

#[test]
fn keyed_numbers_stay_while_nothing_changes_and_meticulous_ones_never() {
    let now = origin();
    for (algorithm, step) in [(Algorithm::KeyedSha1, 0), (Algorithm::MeticulousKeyedSha1, 1)] {
        let mut sender = new(with_key(key(algorithm)), 1, now);
        let first = sequence(&next(&mut sender, now));
        let second = sequence(&next(&mut sender, now));
        assert_eq!(second.wrapping_sub(first), step, "{algorithm:?}");
    }
}

/// A restarted peer with new sequence numbers is accepted after twice the detection time
/// (`bfd.AuthSeqKnown`).
#[test]
fn the_window_is_forgotten_after_twice_the_detection_time() {
    let now = origin();
    let config = with_key(key(Algorithm::MeticulousKeyedSha1));
    let mut receiver = new(config.clone(), 2, now);
    give(&mut receiver, &next(&mut new(config.clone(), 1, now), now), now);
    let twice = receiver.detection_time().unwrap() * 2;
    let anew = next(&mut new(config, 7, now), now);
    receiver.handle(Input::Timeout, now + twice - ms(1));
    assert_eq!(give(&mut receiver, &anew, now + twice - ms(1)), [Refusal::Sequence]);
    receiver.handle(Input::Timeout, now + twice);
    assert_eq!(give(&mut receiver, &anew, now + twice), []);
}

/// Recorded packets of a peer that is gone are accepted again when its sequence numbers are forgotten, but they do
/// not bring the session up: they contain the previous discriminator.
#[test]
fn recorded_packets_of_a_peer_that_is_gone_do_not_bring_the_session_up() {
    for algorithm in BOTH {
        let config = with_key(key(algorithm));
        let mut pair = Pair::new([config.clone(), config], 7, Quality::good(ms(1)));
        assert!(pair.run_until(ms(10_000), |pair| pair.sides.iter().all(|side| side.state() == State::Up)));
        pair.run(ms(3000));
        let (recorded, mut session) = (pair.recorded, pair.sides[1].clone());
        let end = pair.now + ms(3000);
        while let Some(at) = session.poll_timeout().filter(|at| *at <= end) {
            session.handle(Input::Timeout, at);
        }
        assert_eq!((session.state(), session.needs_discriminator()), (State::Down, true));
        session.renumber(discriminator(99));
        assert!(!session.needs_discriminator());
        let mut accepted = 0;
        for bytes in &recorded {
            let received = wire::parse(bytes).unwrap();
            // The driver finds the session by the discriminator, if there is one.
            let theirs = received.packet.your_discriminator;
            if theirs.is_none_or(|number| number == session.discriminator()) {
                accepted += 1;
                session.handle(Input::Received(&received), end);
            }
            assert_ne!(session.state(), State::Up, "{algorithm:?}");
        }
        assert!(accepted > 0, "{} packets, of which none is accepted", recorded.len());
    }
}

//! Tests of keys with a secret for each direction, and of the change of a key while a session is up.

use bfd::{
    Algorithm, Config, Input, Key, Output, Refusal, Secret, Session, State,
    key_change::KEY_CHANGE_TIME,
    wire::{self, Packet, SHA1_DIGEST_BYTES, Section, Sha1Section},
};
use sha1::{Digest as _, Sha1};

use crate::support::{
    config, discriminator, key,
    link::{Pair, Quality},
    ms, origin, sorted,
};

fn with_key(key: Key) -> Config {
    Config { key: Some(key), ..config(300, 3) }
}

/// Returns the keys of both ends of a pair, with a secret for each direction.
fn pair_keys(label: &str) -> [Key; 2] {
    let secret = |side: u8| Secret::new(format!("{label} {side}").as_bytes()).unwrap();
    let key = |transmit, receive| Key {
        id: 2,
        algorithm: Algorithm::MeticulousKeyedSha1,
        transmit: secret(transmit),
        receive: secret(receive),
    };
    [key(0, 1), key(1, 0)]
}

fn shared_key() -> Key {
    key(Algorithm::MeticulousKeyedSha1)
}

/// Returns a pair of sessions that are up with the shared key.
fn shared_pair() -> Pair {
    let configs = [with_key(shared_key()), with_key(shared_key())];
    let mut pair = Pair::new(configs, 7, Quality::good(ms(1)));
    assert!(pair.run_until(ms(10_000), is_up));
    pair.run(ms(3000));
    assert_eq!(pair.refused, [vec![], vec![]]);
    pair.events = [Vec::new(), Vec::new()];
    pair
}

fn is_up(pair: &Pair) -> bool {
    pair.sides.iter().all(|side| side.state() == State::Up)
}

fn change_key(pair: &mut Pair, side: usize, key: &Key) {
    pair.tell(side, Input::Configure(with_key(key.clone())));
}

/// Returns the refusals of a packet that a third system sends with a key.
fn forge(session: &mut Session, key: Key, pair: &Pair) -> Vec<Refusal> {
    let mut other = Session::new(with_key(key), discriminator(9), 9, pair.now);
    let at = other.poll_timeout().unwrap().max(pair.now);
    let packet = other.handle(Input::Timeout, at).into_iter().find_map(|output| match output {
        Output::Transmit(bytes) => Some(bytes),
        Output::Event(_) | Output::Refused(_) => None,
    });
    sorted(session.handle(Input::Received(&wire::parse(&packet.unwrap()).unwrap()), pair.now)).refused
}

/// Input: a system receives the packets that it has sent, and never those of its peer.
/// Output: the session comes up with one secret for both directions, and stays down with two secrets.
#[test]
fn reflected_packets_are_accepted_only_with_one_secret_for_both_directions() {
    let [ours, _] = pair_keys("first");
    for (key, expected) in [(shared_key(), State::Up), (ours, State::Down)] {
        let mut now = origin();
        let mut session = Session::new(with_key(key), discriminator(1), 5, now);
        let mut flying = Vec::new();
        for _ in 0..20 {
            now = session.poll_timeout().unwrap().max(now);
            flying.extend(session.handle(Input::Timeout, now));
            while let Some(output) = flying.pop() {
                if let Output::Transmit(bytes) = output {
                    flying.extend(session.handle(Input::Received(&wire::parse(&bytes).unwrap()), now));
                }
            }
        }
        assert_eq!(session.state(), expected);
    }
}

/// Input: the systems get a new key 5 s apart, first from the shared key to one of the pair, then to another one.
/// Output: the session stays up, and the key before is refused as soon as both have the new one.
#[test]
fn a_session_stays_up_while_its_key_changes() {
    for order in [[0, 1], [1, 0]] {
        let mut pair = shared_pair();
        let mut before = shared_key();
        for label in ["first", "second"] {
            let keys = pair_keys(label);
            change_key(&mut pair, order[0], &keys[order[0]]);
            pair.run(ms(5000));
            assert!(is_up(&pair), "one side has the new key");
            change_key(&mut pair, order[1], &keys[order[1]]);
            pair.run(ms(1000));
            for side in [0, 1] {
                let refused = forge(&mut pair.sides[side].clone(), before.clone(), &pair);
                assert_eq!(refused.len(), 1, "{refused:?}");
            }
            pair.refused = [Vec::new(), Vec::new()];
            let sent = pair.recorded.len();
            pair.run(KEY_CHANGE_TIME + ms(5000));
            assert_eq!(pair.refused, [vec![], vec![]], "both send with the new key only");
            // One packet in 225 to 300 ms.
            let sent = pair.recorded.len() - sent;
            assert!((110..160).contains(&sent), "{sent} packets");
            before = keys[0].clone();
        }
        assert_eq!(pair.events, [vec![], vec![]]);
    }
}

/// A peer without the new key keeps the session up for a limited time only.
#[test]
fn the_previous_key_ends_after_a_limited_time() {
    let mut pair = shared_pair();
    change_key(&mut pair, 0, &pair_keys("first")[0]);
    pair.run(KEY_CHANGE_TIME - ms(100));
    assert!(is_up(&pair));
    pair.run(ms(2000));
    assert_eq!(pair.sides.each_ref().map(Session::state), [State::Down; 2]);
    pair.run(KEY_CHANGE_TIME);
    assert_eq!(pair.sides.each_ref().map(Session::state), [State::Down; 2]);
    // The other side gets the key late.
    change_key(&mut pair, 1, &pair_keys("first")[1]);
    assert!(pair.run_until(ms(10_000), is_up));
}

/// A further change before the peer has the key in between.
#[test]
fn a_session_stays_up_if_its_key_changes_twice_before_the_peer_follows() {
    let mut pair = shared_pair();
    for label in ["first", "second"] {
        change_key(&mut pair, 0, &pair_keys(label)[0]);
        pair.run(ms(3000));
    }
    change_key(&mut pair, 1, &pair_keys("second")[1]);
    pair.run(KEY_CHANGE_TIME * 2);
    assert!(is_up(&pair));
    assert_eq!(pair.events, [vec![], vec![]]);
}

/// A node that knows the previous key cannot take part in a session that was down at the change or goes down in it.
#[test]
fn the_previous_key_is_refused_by_a_session_that_is_not_up() {
    let now = origin();
    let mut session = Session::new(with_key(shared_key()), discriminator(1), 5, now);
    session.handle(Input::Configure(with_key(pair_keys("first")[0].clone())), now);
    let mut pair = shared_pair();
    assert_eq!(forge(&mut session, shared_key(), &pair), [Refusal::KeyId]);
    change_key(&mut pair, 0, &pair_keys("first")[0]);
    assert_eq!(forge(&mut pair.sides[0].clone(), shared_key(), &pair), [Refusal::KeyId], "sequence numbers");
    // The peer dies in the change.
    pair.quality = Quality::CUT;
    pair.run(ms(5000));
    assert_eq!(pair.sides[0].state(), State::Down);
    assert_eq!(forge(&mut pair.sides[0].clone(), shared_key(), &pair), [Refusal::KeyId]);
}

/// Returns the packet with which a third system ends the session of the receiver of `last`, the last packet of its peer.
/// The third system has received this packet and knows the secret.
fn forged_end(last: &[u8], key_id: u8, secret: &[u8]) -> Vec<u8> {
    let received = wire::parse(last).unwrap();
    let Some(Section::Sha1(section)) = received.section else { panic!("{:?}", received.section) };
    let packet = Packet { state: State::Down, ..received.packet };
    let section = Sha1Section { key_id, sequence: section.sequence.wrapping_add(1), ..section };
    let mut padded = [0; SHA1_DIGEST_BYTES];
    padded[..secret.len()].copy_from_slice(secret);
    let with_secret = wire::render(&packet, Some(&Sha1Section { digest: padded, ..section }));
    let digest = Sha1::digest(&with_secret).into();
    wire::render(&packet, Some(&Sha1Section { digest, ..section }))
}

/// Input: a third node, which knows the shared key, sends the next packet of a node to its peer, with state Down.
/// Output: the session ends with the shared key, and stays up with the key of the pair.
#[test]
fn a_node_that_has_seen_all_packets_cannot_end_a_session() {
    for has_pair_key in [false, true] {
        let mut pair = shared_pair();
        if has_pair_key {
            for (side, key) in pair_keys("first").iter().enumerate() {
                change_key(&mut pair, side, key);
            }
            pair.run(ms(3000));
        }
        let last = pair.recorded.last().unwrap().clone();
        for key_id in [shared_key().id, pair_keys("first")[0].id] {
            let forged = forged_end(&last, key_id, b"a shared secret");
            pair.tell(1, Input::Received(&wire::parse(&forged).unwrap()));
        }
        assert_eq!(pair.sides[1].state() == State::Up, has_pair_key);
    }
}

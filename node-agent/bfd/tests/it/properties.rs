//! Properties of two sessions that communicate over an unreliable link, in virtual time.

use std::time::Duration;

use bfd::{Algorithm, Config, Diagnostic, Event, Input, Interval, State, wire};
use proptest::{collection::vec, prelude::*};

use crate::support::{
    self, config, key,
    link::{Pair, Quality},
    ms, multiplier, origin,
};

/// Time that suffices to initialize a session with slow packets, to forget old sequence numbers, and to
/// complete Poll Sequences.
const PATIENCE: Duration = Duration::from_secs(30);

fn configs(times_min: u8) -> impl Strategy<Value = [Config; 2]> {
    let one = (20u64..600, 20u64..600, times_min..6).prop_map(|(transmit, receive, times)| Config {
        desired_min_tx: Interval::new(ms(transmit)).unwrap(),
        required_min_rx: Interval::new(ms(receive)).unwrap(),
        multiplier: multiplier(times),
        ..config(100, 3)
    });
    let keys = prop_oneof![
        Just(None),
        Just(Some(key(Algorithm::KeyedSha1))),
        Just(Some(key(Algorithm::MeticulousKeyedSha1)))
    ];
    (one.clone(), one, keys)
        .prop_map(|(one, other, key)| [Config { key: key.clone(), ..one }, Config { key, ..other }])
}

fn both_up(pair: &Pair) -> bool {
    pair.sides.iter().all(|side| side.state() == State::Up)
}

fn falls(pair: &Pair) -> usize {
    let is_fall = |(_, event): &&(_, Event)| matches!(event, Event::Down(_) | Event::RemoteAdminDown(_));
    pair.events.iter().flatten().filter(is_fall).count()
}

/// Returns the transmit interval and detection time of one side as defined by RFC 5880 §6.8.2 and §6.8.4 for
/// both configurations.
fn negotiated(pair: &Pair, side: usize) -> (Duration, Duration) {
    let (ours, theirs) = (pair.sides[side].config(), pair.sides[1 - side].config());
    let transmit = ours.desired_min_tx.max(theirs.required_min_rx).duration();
    let receive = ours.required_min_rx.max(theirs.desired_min_tx).duration();
    (transmit, receive * theirs.multiplier.get().into())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Without packet loss, no renegotiation brings a session down, and both sides end with the intervals
    /// defined by the RFC.
    #[test]
    fn without_loss_both_come_up_and_no_renegotiation_brings_them_down(
        seed in any::<u64>(),
        begin in configs(1),
        later in vec((0u64..1500, 0usize..2, configs(1)), 0..8),
        delay in 0u64..30,
    ) {
        // With Detect Mult 1 a late packet is a lost one, and jitter leaves a tenth of 20 ms.
        let quality = Quality { spread: ms(1), ..Quality::good(ms(delay)) };
        let keys = [begin[0].key.clone(), begin[1].key.clone()];
        let mut pair = Pair::new(begin, seed, quality);
        prop_assert!(pair.run_until(Duration::from_secs(5), both_up));
        for (wait, side, configs) in later {
            pair.run(ms(wait));
            let config = Config { key: keys[side].clone(), ..configs[side].clone() };
            pair.tell(side, Input::Configure(config));
        }
        pair.run(Duration::from_secs(5));
        prop_assert_eq!(falls(&pair), 0, "{:?}", pair.events);
        prop_assert!(pair.refused.iter().all(Vec::is_empty), "{:?}", pair.refused);
        for side in [0, 1] {
            let (transmit, detection) = negotiated(&pair, side);
            prop_assert_eq!(pair.sides[side].transmit_interval(), transmit);
            prop_assert_eq!(pair.sides[side].detection_time(), Some(detection));
        }
    }

    /// Reordering of packets alone brings down no session that is up.
    #[test]
    fn reordering_brings_nothing_down(seed in any::<u64>(), configs in configs(2), spread in 1u64..19) {
        let configs = configs.map(|config| Config { key: None, ..config });
        let mut pair = Pair::new(configs, seed, Quality::good(ms(5)));
        prop_assert!(pair.run_until(PATIENCE, both_up));
        pair.run(Duration::from_secs(3));
        pair.quality = Quality { spread: ms(spread), in_order: false, ..pair.quality };
        pair.run(Duration::from_secs(20));
        prop_assert_eq!(falls(&pair), 0, "{:?}", pair.events);
    }

    /// After any disturbance both sessions come up once the link works, and detect a cut link within the
    /// negotiated time.
    #[test]
    fn after_any_trouble_both_come_up_and_a_cut_is_detected_in_time(
        seed in any::<u64>(),
        configs in configs(2),
        troubles in vec((0u64..8000, 0u64..=1000, 0u64..400, 0u64..400, any::<bool>()), 0..5),
    ) {
        let mut pair = Pair::new(configs, seed, Quality::good(ms(1)));
        for (wait, loss_permille, delay, spread, in_order) in troubles {
            pair.quality = Quality { delay: ms(delay), spread: ms(spread), loss_permille, in_order };
            pair.run(ms(wait));
        }
        pair.quality = Quality::good(ms(1));
        let came_up = pair.run_until(PATIENCE, both_up);
        prop_assert!(came_up, "{:?} {:?}", pair.events, pair.refused);
        pair.run(Duration::from_secs(10));
        prop_assert!(both_up(&pair), "and they stay so: {:?}", pair.events);
        pair.quality = Quality::CUT;
        pair.events = [Vec::new(), Vec::new()];
        pair.run(Duration::from_secs(60));
        for side in [0, 1] {
            let (_, detection) = negotiated(&pair, side);
            let expected = (pair.heard[side] + detection, Event::Down(Diagnostic::ControlDetectionTimeExpired));
            prop_assert_eq!(&pair.events[side][..], &[expected]);
        }
    }

    /// A session that receives arbitrary, mostly valid packets never panics, and its next deadline is always
    /// in the future.
    #[test]
    fn no_packets_do_harm(packets in vec((vec(any::<u8>(), 24..56), 0u64..3000), 0..60), seed in any::<u64>()) {
        let now = origin();
        let mut session = bfd::Session::new(config(50, 3), support::discriminator(1), seed, now);
        let mut at = now;
        for (mut bytes, wait) in packets {
            at += ms(wait);
            // Make most packets valid.
            bytes[0] = 0x20 | (bytes[0] & 0x1f);
            bytes[1] &= 0xfa;
            bytes[3] = 24;
            if let Ok(received) = wire::parse(&bytes) {
                session.handle(Input::Received(&received), at);
            }
            session.handle(Input::Timeout, at);
            prop_assert!(session.poll_timeout().is_none_or(|next| next > at));
        }
    }
}

//! Interoperability tests of Tidegate's BFD with BIRD 2, with and without authentication, in network
//! namespaces.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::time::Duration;

use bfd::{Algorithm, Diagnostic, State};
use node_agent::bfd::{HANDOVER, SessionConfig};

use crate::support::{
    bfd::{Pair, V4, V6, eventually, every, is_up, key, ours, set, state, wait, wait_up},
    speakers::Bird,
};

fn configuration(millis: u32, multiplier: u32, authentication: &str) -> String {
    format!(
        "router id 192.0.2.2;
protocol device {{ }}
protocol bfd {{
  interface \"eth0\" {{
    min rx interval {millis} ms; min tx interval {millis} ms; multiplier {multiplier};
    {authentication}
  }};
  neighbor 192.0.2.1 dev \"eth0\" local 192.0.2.2;
  neighbor 2001:db8::1 dev \"eth0\" local 2001:db8::2;
}}
"
    )
}

fn bird_is_up(bird: &Bird, peer: &str) {
    eventually("BIRD is up", || bird.bfd_is_up(peer), || bird.birdc(&["show", "bfd", "sessions"]));
}

#[test]
fn sessions_come_up_and_follow_the_intervals_of_bird() {
    let pair = Pair::new("bfdbird-up");
    let bird = Bird::start(pair.theirs.name(), &configuration(150, 10, ""));
    let bfd = pair.start();
    set(&bfd, &[(ours(V4), every(100, 8)), (ours(V6), every(100, 8))]);
    let interval = |millis: u64, multiplier: u32| {
        let interval = Duration::from_millis(millis);
        move |state: &node_agent::bfd::PeerState| {
            state.transmit_interval == interval && state.detection_time == Some(interval * multiplier)
        }
    };
    for addresses in [V4, V6] {
        wait_up(&bfd, ours(addresses));
        bird_is_up(&bird, addresses.0);
        wait(&bfd, ours(addresses), "BIRD's interval", interval(150, 10));
        // BIRD's view: its interval, and the detection time from our multiplier.
        let seen = || bird.bfd_session(addresses.0)[4..] == ["0.150", "1.200"];
        eventually("BIRD sees our multiplier", seen, || bird.birdc(&["show", "bfd", "sessions"]));
    }
    let since = [V4, V6].map(|addresses| state(&bfd, ours(addresses)).since);
    set(&bfd, &[(ours(V4), every(400, 5)), (ours(V6), every(400, 5))]);
    for addresses in [V4, V6] {
        wait(&bfd, ours(addresses), "our interval", interval(400, 10));
        let seen = || bird.bfd_session(addresses.0)[4..] == ["0.400", "2.000"];
        eventually("BIRD follows", seen, || bird.birdc(&["show", "bfd", "sessions"]));
    }
    // BIRD increases its interval only after our response to its Poll.
    bird.configure(&configuration(600, 10, ""));
    for addresses in [V4, V6] {
        wait(&bfd, ours(addresses), "BIRD's new interval", interval(600, 10));
        let seen = || bird.bfd_session(addresses.0)[4..] == ["0.600", "3.000"];
        eventually("BIRD has our answer", seen, || bird.birdc(&["show", "bfd", "sessions"]));
    }
    assert_eq!([V4, V6].map(|addresses| state(&bfd, ours(addresses)).since), since, "no session fell");
    bfd.admin_down(HANDOVER);
    for addresses in [V4, V6] {
        eventually(
            "BIRD sees us stop",
            || !bird.bfd_is_up(addresses.0),
            || bird.birdc(&["show", "bfd", "sessions"]),
        );
    }
}

#[test]
fn bird_falling_silent_is_detected() {
    let pair = Pair::new("bfdbird-gone");
    let bird = Bird::start(pair.theirs.name(), &configuration(150, 10, ""));
    let bfd = pair.start();
    set(&bfd, &[(ours(V4), every(150, 10)), (ours(V6), every(150, 10))]);
    for addresses in [V4, V6] {
        wait_up(&bfd, ours(addresses));
    }
    drop(bird);
    for addresses in [V4, V6] {
        let fallen = wait(&bfd, ours(addresses), "down", |state| state.state == State::Down);
        assert_eq!(fallen.diagnostic, Diagnostic::ControlDetectionTimeExpired);
    }
}

#[test]
fn authenticated_sessions_come_up_with_the_right_key_only() {
    for (algorithm, name) in
        [(Algorithm::KeyedSha1, "keyed sha1"), (Algorithm::MeticulousKeyedSha1, "meticulous keyed sha1")]
    {
        let pair = Pair::new(if name.starts_with('k') { "bfdbird-k" } else { "bfdbird-m" });
        let authentication = format!("authentication {name}; password \"open sesame\" {{ id 3; }};");
        let bird = Bird::start(pair.theirs.name(), &configuration(150, 10, &authentication));
        let bfd = pair.start();
        let with = |secret: &str| SessionConfig { auth: Some(key(algorithm, secret)), ..every(150, 10) };
        // The right key in one family, a wrong one in the other.
        set(&bfd, &[(ours(V4), with("open sesame")), (ours(V6), with("open barley"))]);
        wait_up(&bfd, ours(V4));
        bird_is_up(&bird, V4.0);
        let refused = wait(&bfd, ours(V6), "refused", |state| state.counters.authentication_digest >= 3);
        assert_eq!((refused.state, refused.remote), (State::Down, None));
        assert!(!bird.bfd_is_up(V6.0));
        // With the right key the second session comes up too, and both stay up.
        set(&bfd, &[(ours(V4), with("open sesame")), (ours(V6), with("open sesame"))]);
        wait_up(&bfd, ours(V6));
        bird_is_up(&bird, V6.0);
        let sent = state(&bfd, ours(V4)).counters.received;
        wait(&bfd, ours(V4), "thirty more packets", |state| state.counters.received >= sent + 30);
        assert!(is_up(&bfd, ours(V4)) && is_up(&bfd, ours(V6)), "{name}");
        assert_eq!(state(&bfd, ours(V4)).counters.authentication_digest, 0);
    }
}

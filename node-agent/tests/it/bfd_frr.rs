//! Interoperability tests of Tidegate's BFD with FRR's `bfdd`, in network namespaces.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::time::Duration;

use bfd::{Diagnostic, State};
use node_agent::bfd::{Bfd, HANDOVER, RESTART, Reach, SessionConfig};

use crate::support::{
    bfd::{Pair, V4, V6, eventually, every, interval, is_up, ours, set, state, wait, wait_up},
    speakers::Frr,
};

const PEERS: &str = "bfd
 peer 192.0.2.1 local-address 192.0.2.2
  receive-interval 200
  transmit-interval 200
  detect-multiplier 10
 exit
 peer 2001:db8::1 local-address 2001:db8::2
  receive-interval 200
  transmit-interval 200
  detect-multiplier 10
 exit
exit
";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until FRR reports `value` in the field `field` of its BFD session with a peer.
fn frr_shows(frr: &Frr, peer: &str, field: &str, value: impl Into<serde_json::Value>) {
    let value = value.into();
    let what = format!("{field} {value} of {peer}");
    eventually(&what, || frr.bfd_peer(peer)[field] == value, || frr.bfd_peer(peer).to_string());
}

/// Starts sessions with FRR over IPv4 and IPv6 and waits until they are up. The interval is 200 ms; Detect
/// Mult is ten on FRR's side and nine on Tidegate's.
fn come_up(pair: &Pair) -> (Bfd, Frr) {
    let frr = Frr::bfdd(pair.theirs.name(), PEERS);
    let bfd = pair.start();
    set(&bfd, &[(ours(V4), every(200, 9)), (ours(V6), every(200, 9))]);
    for addresses in [V4, V6] {
        wait_up(&bfd, ours(addresses));
        wait(&bfd, ours(addresses), "the negotiated interval", |state| {
            state.transmit_interval == ms(200) && state.detection_time == Some(ms(2000))
        });
        frr_shows(&frr, addresses.0, "status", "up");
        frr_shows(&frr, addresses.0, "remote-transmit-interval", 200);
        frr_shows(&frr, addresses.0, "remote-detect-multiplier", 9);
    }
    (bfd, frr)
}

fn assert_never_fell(bfd: &Bfd, frr: &Frr, since: &[std::time::Instant]) {
    for (addresses, since) in [V4, V6].into_iter().zip(since) {
        assert_eq!(state(bfd, ours(addresses)).since, *since);
        assert_eq!(frr.bfd_changes(addresses.0), (1, 0), "FRR's ups and downs");
    }
}

#[test]
fn sessions_come_up_and_intervals_are_renegotiated_both_ways_without_falling() {
    let pair = Pair::new("bfdfrr-up");
    let (bfd, frr) = come_up(&pair);
    let since = [V4, V6].map(|addresses| state(&bfd, ours(addresses)).since);
    // Our side: slower, then faster than before; FRR keeps its transmit interval of 200 ms.
    for (millis, multiplier) in [(700, 4), (100, 12)] {
        set(&bfd, &[(ours(V4), every(millis, multiplier)), (ours(V6), every(millis, multiplier))]);
        for addresses in [V4, V6] {
            let slower = ms(millis.max(200));
            wait(&bfd, ours(addresses), "our interval", |state| {
                state.transmit_interval == slower && state.detection_time == Some(slower * 10)
            });
            frr_shows(&frr, addresses.0, "remote-transmit-interval", millis);
            frr_shows(&frr, addresses.0, "remote-receive-interval", millis);
            frr_shows(&frr, addresses.0, "remote-detect-multiplier", multiplier);
        }
    }
    // FRR's side.
    for (millis, multiplier) in [(900, 3u32), (150, 9)] {
        for addresses in [V4, V6] {
            let peer = format!("peer {} local-address {}", addresses.0, addresses.1);
            let [receive, transmit, detect] = [
                format!("receive-interval {millis}"),
                format!("transmit-interval {millis}"),
                format!("detect-multiplier {multiplier}"),
            ];
            frr.vtysh(&["configure terminal", "bfd", &peer, &receive, &transmit, &detect]);
        }
        for addresses in [V4, V6] {
            wait(&bfd, ours(addresses), "their interval", |state| {
                let detection = ms(millis) * multiplier;
                state.transmit_interval == ms(millis) && state.detection_time == Some(detection)
            });
        }
    }
    assert_never_fell(&bfd, &frr, &since);
}

#[test]
fn a_cut_link_is_detected_and_a_mended_one_comes_up_again() {
    let pair = Pair::new("bfdfrr-cut");
    let (bfd, _frr) = come_up(&pair);
    let mut news = bfd.news();
    news.mark_unchanged();
    pair.theirs.ip(&["link", "set", "eth0", "down"]);
    for addresses in [V4, V6] {
        let fallen = wait(&bfd, ours(addresses), "down", |state| state.state == State::Down);
        assert_eq!(fallen.diagnostic, Diagnostic::ControlDetectionTimeExpired);
        assert!(!fallen.remote.unwrap().heard);
    }
    assert!(news.has_changed().unwrap());
    pair.theirs.ip(&["link", "set", "eth0", "up"]);
    for addresses in [V4, V6] {
        wait_up(&bfd, ours(addresses));
    }
}

/// If packets are lost in one direction only, the side that receives nothing detects the failure, and the
/// other side goes down as well.
#[test]
fn a_path_that_is_broken_one_way_is_down_on_both_sides() {
    let pair = Pair::new("bfdfrr-half");
    let (bfd, frr) = come_up(&pair);
    pair.theirs.nft("table inet t { chain c { type filter hook input priority 0; udp dport 3784 drop; }; }");
    for addresses in [V4, V6] {
        // Down, and Init as soon as the peer is received in state Down.
        let fallen = wait(&bfd, ours(addresses), "not up", |state| state.state != State::Up);
        assert_eq!(fallen.diagnostic, Diagnostic::NeighborSignaledSessionDown);
        let remote = fallen.remote.unwrap();
        assert_eq!((remote.heard, remote.state), (true, State::Down));
        assert_eq!(remote.diagnostic, Diagnostic::ControlDetectionTimeExpired);
        frr_shows(&frr, addresses.0, "diagnostic", "control detection time expired");
    }
}

#[test]
fn each_side_sees_the_other_being_stopped_and_why() {
    let pair = Pair::new("bfdfrr-admin");
    let (bfd, frr) = come_up(&pair);
    // FRR's side.
    let peer = format!("peer {} local-address {}", V4.0, V4.1);
    frr.vtysh(&["configure terminal", "bfd", &peer, "shutdown"]);
    let stopped = wait(&bfd, ours(V4), "stopped by the peer", |state| state.state == State::Down);
    assert_eq!(stopped.diagnostic, Diagnostic::NeighborSignaledSessionDown);
    let remote = stopped.remote.unwrap();
    // FRR 8.4 sends no diagnostic.
    assert_eq!((remote.heard, remote.state), (true, State::AdminDown));
    assert!(is_up(&bfd, ours(V6)), "the other session goes on");
    frr.vtysh(&["configure terminal", "bfd", &peer, "no shutdown"]);
    wait_up(&bfd, ours(V4));
    // Our side, with both diagnostics.
    for (diagnostic, shown) in [(HANDOVER, "administratively down"), (RESTART, "ok")] {
        bfd.admin_down(diagnostic);
        for addresses in [V4, V6] {
            assert_eq!(state(&bfd, ours(addresses)).state, State::AdminDown);
            frr_shows(&frr, addresses.0, "status", "down");
            frr_shows(&frr, addresses.0, "diagnostic", "neighbor signaled session down");
            frr_shows(&frr, addresses.0, "remote-diagnostic", shown);
        }
    }
    bfd.enable();
    for addresses in [V4, V6] {
        wait_up(&bfd, ours(addresses));
        frr_shows(&frr, addresses.0, "status", "up");
    }
    // A removed session does not appear as a failure.
    set(&bfd, &[(ours(V6), every(200, 9))]);
    frr_shows(&frr, V4.0, "diagnostic", "neighbor signaled session down");
    assert!(is_up(&bfd, ours(V6)));
}

#[test]
fn a_session_over_several_hops_comes_up() {
    let pair = Pair::new("bfdfrr-hops");
    let frr =
        Frr::bfdd(pair.theirs.name(), "bfd\n peer 192.0.2.1 multihop local-address 192.0.2.2\n exit\nexit\n");
    let bfd = pair.start();
    let reach = Reach::Multihop { hop_limit_min: 250 };
    set(&bfd, &[(ours(V4), SessionConfig { reach, receive: interval(250), ..every(300, 3) })]);
    wait_up(&bfd, ours(V4));
    frr_shows(&frr, V4.0, "status", "up");
    frr_shows(&frr, V4.0, "multihop", true);
    frr_shows(&frr, V4.0, "remote-receive-interval", 250);
}

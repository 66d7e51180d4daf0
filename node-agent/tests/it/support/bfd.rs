//! Test network of two nodes on one link, with BFD between them.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    num::NonZeroU8,
    thread,
    time::{Duration, Instant},
};

use bfd::{Algorithm, Interval, Key, Secret, State};
use node_agent::bfd::{Bfd, PeerKey, PeerState, SessionConfig};

use super::Namespace;

/// Maximum time to wait for an expected event, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub const V4: (&str, &str) = ("192.0.2.1", "192.0.2.2");
pub const V6: (&str, &str) = ("2001:db8::1", "2001:db8::2");

/// Two namespaces connected by a link that is called `eth0` on both sides. The node under test has the first
/// address of each address family, its peer the second.
pub struct Pair {
    pub ours: Namespace,
    pub theirs: Namespace,
}

impl Pair {
    pub fn new(test: &str) -> Self {
        let pair =
            Self { ours: Namespace::new(&format!("{test}-a")), theirs: Namespace::new(&format!("{test}-b")) };
        pair.ours.ip(&["link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", pair.theirs.name()]);
        for (namespace, v4, v6) in [(&pair.ours, V4.0, V6.0), (&pair.theirs, V4.1, V6.1)] {
            namespace.exec(&["sysctl", "-qw", "net.ipv6.conf.eth0.keep_addr_on_down=1"]);
            namespace.ip(&["addr", "add", &format!("{v4}/24"), "dev", "eth0"]);
            namespace.ip(&["addr", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]);
            namespace.ip(&["link", "set", "eth0", "up"]);
        }
        // BIRD ignores tentative addresses, and announces the next hop that it knows when the session begins.
        let end = Instant::now() + PATIENCE;
        for namespace in [&pair.ours, &pair.theirs] {
            while !namespace.exec(&["ip", "-6", "address", "show", "dev", "eth0", "tentative"]).is_empty() {
                assert!(Instant::now() < end, "{}: an address stays tentative", namespace.name());
                thread::sleep(Duration::from_millis(10));
            }
        }
        pair
    }

    /// Starts BFD in the namespace of the node under test.
    pub fn start(&self) -> Bfd {
        self.ours.run(|| Bfd::start().unwrap())
    }
}

/// Returns the key of the session from the perspective of the node under test.
pub fn ours(addresses: (&str, &str)) -> PeerKey {
    PeerKey { local: address(addresses.0), peer: address(addresses.1) }
}

/// Returns the key of the session from the perspective of the peer.
pub fn theirs(addresses: (&str, &str)) -> PeerKey {
    PeerKey { local: address(addresses.1), peer: address(addresses.0) }
}

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn interval(millis: u64) -> Interval {
    Interval::new(Duration::from_millis(millis)).unwrap()
}

pub fn every(millis: u64, multiplier: u8) -> SessionConfig {
    SessionConfig::new(interval(millis), NonZeroU8::new(multiplier).unwrap(), None)
}

pub fn key(algorithm: Algorithm, secret: &str) -> Key {
    Key::symmetric(3, algorithm, Secret::new(secret.as_bytes()).unwrap())
}

pub fn set(bfd: &Bfd, peers: &[(PeerKey, SessionConfig)]) {
    bfd.set_peers(BTreeMap::from_iter(peers.iter().cloned())).unwrap();
}

pub fn state(bfd: &Bfd, key: PeerKey) -> PeerState {
    bfd.states().remove(&key).expect("the peer is set")
}

pub fn is_up(bfd: &Bfd, key: PeerKey) -> bool {
    state(bfd, key).state == State::Up
}

/// Waits until `holds` returns true. On timeout, the test fails with the text that `shown` returns.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool, shown: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}\n{}", shown());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the session with the key `key` satisfies a condition, and returns the state of the session.
pub fn wait(bfd: &Bfd, key: PeerKey, what: &str, holds: impl Fn(&PeerState) -> bool) -> PeerState {
    eventually(what, || holds(&state(bfd, key)), || format!("{:#?}", state(bfd, key)));
    state(bfd, key)
}

pub fn wait_up(bfd: &Bfd, key: PeerKey) -> PeerState {
    wait(bfd, key, "up", |state| state.state == State::Up)
}

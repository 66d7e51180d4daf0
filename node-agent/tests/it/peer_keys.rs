//! Tests of the keys of BFD between nodes, with real sessions: a third node, which knows the key of all nodes, its own
//! key and all public keys, and sends from the address of another node.

use std::{collections::BTreeMap, num::NonZeroU8, time::Duration};

use bfd::State;
use model::primitives::{name::Name, public_key::PublicKey, secret::Secret};
use node_agent::{
    announce::{
        AnnounceConfig, Announcing,
        adapters::Peers,
        io_traits::{OnExit, Session, Watch},
        owners::{self, MonitoredPeer},
        peer_keys::PeerIdentity,
    },
    bfd::{Bfd, PeerKey, PeerState},
};

use crate::support::{
    Namespace,
    bfd::{Pair, V4, eventually, every, ours, set, state, theirs, wait},
};

/// Number of packets of a forger that are awaited, more than a session needs to come up.
const FORGED_MIN: u64 = 5;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn identity(node: &str, secret: u8) -> PeerIdentity {
    PeerIdentity::new(name(node), [secret; 32])
}

/// Agent of a node, as far as it monitors one other node.
struct Agent {
    peers: Peers,
    /// Second handle, which shows the state of the session.
    view: Bfd,
    key: PeerKey,
}

impl Agent {
    fn start(namespace: &Namespace, key: PeerKey, identity: Option<PeerIdentity>) -> Self {
        let bfd = namespace.run(|| Bfd::start().unwrap());
        let view = bfd.share();
        let config = AnnounceConfig {
            peer_interval: Duration::from_millis(100),
            peer_multiplier: NonZeroU8::new(10).unwrap(),
            on_exit: OnExit::Handover,
        };
        Self { peers: Peers::new(bfd, config, identity, Announcing::default()), view, key }
    }

    /// Monitors a node whose public key control has sent together with the key of this node, or has not.
    fn follow(&mut self, node: &str, public_key: Option<PublicKey>) {
        let pair = owners::Pair { local: self.key.local, peer: self.key.peer };
        let peer = MonitoredPeer { node: name(node), public_key };
        let shared = Secret::new("the key of all nodes".to_owned());
        self.peers.set_peers(&BTreeMap::from([(pair, peer)]), Some(&shared));
        // The session has the key of the first handle.
        set(&self.view, &[(self.key, every(100, 10))]);
    }

    fn session(&self) -> Session {
        *self.peers.sessions().values().next().unwrap()
    }

    fn wait_up(&self) -> PeerState {
        wait(&self.view, self.key, "up", |state| state.state == State::Up)
    }

    /// Waits until this session has received `packets` more packets.
    fn wait_packets(&self, packets: u64) {
        let before = state(&self.view, self.key).counters.received;
        wait(&self.view, self.key, "packets", |state| state.counters.received >= before + packets);
    }

    fn wait_down(&self) {
        eventually("down", || self.session() == Session::Down, || format!("{:?}", self.session()));
    }

    /// Returns the number of received packets that were dropped for another key.
    fn refused(&self) -> u64 {
        let counters = state(&self.view, self.key).counters;
        counters.authentication_key + counters.authentication_digest
    }
}

/// Starts agents of nodes a and b, whose session is up with keys of this pair, or with the key of all nodes.
fn start(pair: &Pair, has_keys: bool) -> (Agent, Agent) {
    let (a, b) = (identity("a", 1), identity("b", 2));
    let public = |of: &PeerIdentity| has_keys.then(|| of.public_key());
    let (public_a, public_b) = (public(&a), public(&b));
    let mut one = Agent::start(&pair.ours, ours(V4), Some(a));
    let mut other = Agent::start(&pair.theirs, theirs(V4), Some(b));
    one.follow("b", public_b);
    other.follow("a", public_a);
    one.wait_up();
    other.wait_up();
    (one, other)
}

/// Ends an agent without a farewell, as a dead machine does.
fn kill(agent: Agent) {
    let Agent { peers, view, key: _ } = agent;
    // The last handle ends its sessions silently, the other one shares them.
    drop(peers);
    view.stop();
}

/// F132: a node that is dead counts as dead, whatever a third node sends from its address.
/// Input: with the key of all nodes only, the same packets keep the dead node alive: the finding L9.
#[tokio::test(flavor = "multi_thread")]
async fn f132_a_third_node_cannot_keep_a_dead_node_alive() {
    let pair = Pair::new("keys-dead");
    let public_a = identity("a", 1).public_key();
    // The identity and the public key with which the third node takes part.
    let own_key = || (Some(identity("m", 3)), Some(public_a));
    let own_key_as_b = || (Some(identity("b", 3)), Some(public_a));
    let (a, b) = start(&pair, false);
    kill(b);
    a.wait_down();
    let mut forger = Agent::start(&pair.theirs, theirs(V4), None);
    forger.follow("a", None);
    a.wait_up();
    kill(forger);
    kill(a);

    let (a, b) = start(&pair, true);
    kill(b);
    a.wait_down();
    for (identity, public) in [(None, None), own_key(), own_key_as_b()] {
        let before = a.refused();
        let mut forger = Agent::start(&pair.theirs, theirs(V4), identity);
        forger.follow("a", public);
        eventually(
            "packets of the forger",
            || a.refused() >= before + FORGED_MIN,
            || format!("{:#?}", state(&a.view, a.key)),
        );
        assert_eq!((a.session(), forger.session()), (Session::Down, Session::Down));
        kill(forger);
    }
    // The node itself comes back.
    let mut b = Agent::start(&pair.theirs, theirs(V4), Some(identity("b", 2)));
    b.follow("a", Some(public_a));
    a.wait_up();
}

/// F132: an agent of an older version, and a control server of an older version, know no key of a pair. An upgrade of one
/// agent after the other, and a new key of one agent, interrupt nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f132_an_upgrade_changes_the_key_without_a_failure() {
    let pair = Pair::new("keys-change");
    let (mut a, mut b) = start(&pair, false);
    let since = (state(&a.view, a.key).since, state(&b.view, b.key).since);
    let (public_a, public_b) = (identity("a", 1).public_key(), identity("b", 2).public_key());
    a.follow("b", Some(public_b));
    a.wait_packets(20);
    assert_eq!(b.session(), Session::Up, "b has not received the keys yet");
    b.follow("a", Some(public_a));
    b.wait_packets(20);
    let refused = a.refused() + b.refused();
    a.wait_packets(20);
    assert_eq!(a.refused() + b.refused(), refused, "both send with the new key only");
    assert_eq!((a.session(), b.session()), (Session::Up, Session::Up));
    assert_eq!((state(&a.view, a.key).since, state(&b.view, b.key).since), since);

    // Node b is installed anew: its agent has another key, which a receives from control later.
    kill(b);
    a.wait_down();
    let fresh = identity("b", 4);
    let public_b = fresh.public_key();
    let mut b = Agent::start(&pair.theirs, theirs(V4), Some(fresh));
    b.follow("a", Some(public_a));
    let refused = a.refused();
    eventually("packets with the new key", || a.refused() > refused, String::new);
    a.follow("b", Some(public_b));
    a.wait_up();
    b.wait_up();

    // A node that reports a weak key is not monitored, and other nodes are.
    a.follow("b", Some(PublicKey::new([0; 32])));
    assert_eq!(a.peers.sessions(), BTreeMap::new());
}

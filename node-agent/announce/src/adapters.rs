//! Production implementations of the traits in [`super::ownership::io_traits`]: the ARP and NDP announcer,
//! and peer monitoring by BFD.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Instant, SystemTime},
};

use ::bfd::{Algorithm, Interval, Key, State};
use bfd_runner::{Bfd, HANDOVER, PeerKey, PeerState, RESTART, SessionConfig};
use model::{
    kinds::advertisement::InterfaceName,
    primitives::{name::Name, secret::Secret},
};
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, sync::mpsc};
use tracing::{error, info, warn};

use super::{
    Announcing,
    l2::announcer::{Announcer, DesiredAddress, Duty, L2Conflict, ProbeAnswer},
    ping::{Ping, Reply},
    thread::Message,
};
use crate::AnnounceConfig;
use crate::ownership::{
    io_traits::{OnExit, Presence, SentFrames, Session, Station, Watch, Wire, WireEvent},
    owners::{MonitoredPeer, Pair},
};
use crate::peer_keys::{PeerIdentity, WeakPublicKey};

/// Auth Key ID (RFC 5880 §4.4) of the key of all nodes.
const SHARED_KEY_ID: u8 = 1;
/// Length of a key in bytes (RFC 5880 §4.4).
const KEY_BYTES: usize = 20;

/// Implementation of `Wire` that announces addresses by ARP and NDP and controls replies to ICMP echo
/// requests.
pub struct L2 {
    announcer: Announcer,
    ping: Ping,
    announcing: Announcing,
    runtime: Handle,
}

impl L2 {
    /// Wraps an announcer. Conflicts and probe results of the announcer are forwarded to the announcing
    /// thread.
    #[must_use]
    pub fn new(
        announcer: Announcer,
        conflicts: mpsc::Receiver<L2Conflict>,
        ping: Ping,
        announcing: Announcing,
    ) -> Self {
        let runtime = Handle::current();
        runtime.spawn(tell_conflicts(conflicts, announcing.clone()));
        Self { announcer, ping, announcing, runtime }
    }
}

async fn tell_conflicts(mut conflicts: mpsc::Receiver<L2Conflict>, announcing: Announcing) {
    while let Some(L2Conflict { address, mac, interface }) = conflicts.recv().await {
        let by = Station { mac: mac.to_string(), interface };
        announcing.tell(Message::Wire(WireEvent::Conflict { address, by }));
    }
}

impl Wire for L2 {
    fn set(&mut self, changes: BTreeMap<IpAddr, Option<Presence>>) {
        // Sent first and not awaited, so that it does not delay the announcement.
        let replies = changes.iter().map(|(address, presence)| (*address, presence.as_ref().and_then(reply)));
        self.ping.set(replies.collect());
        let wanted = |presence: Presence| {
            let Presence { interfaces, is_announced, answer_ping: _ } = presence;
            DesiredAddress { interfaces, duty: if is_announced { Duty::Announce } else { Duty::Watch } }
        };
        let changes = changes.into_iter().map(|(address, presence)| (address, presence.map(wanted)));
        match self.announcer.set(changes.collect()).blocking_recv() {
            Ok(refused) if refused.is_empty() => {}
            Ok(refused) => warn!(
                addresses = refused.len(),
                "too many addresses; the excess addresses \
                                                             are not announced"
            ),
            Err(_ended) => error!("the announcer has stopped"),
        }
    }

    fn announce_again(&mut self, address: IpAddr) {
        self.announcer.announce_again(address);
    }

    fn quiet(&mut self, address: IpAddr) {
        self.announcer.quiet(address);
    }

    fn probe(&mut self, address: IpAddr, interfaces: &BTreeSet<InterfaceName>) {
        let answer = self.announcer.probe(address, interfaces.clone());
        let announcing = self.announcing.clone();
        self.runtime.spawn(async move {
            let by = match answer.await {
                Ok(ProbeAnswer::Silent) => None,
                Ok(ProbeAnswer::Taken { mac, interface }) => {
                    Some(Station { mac: mac.to_string(), interface })
                }
                // Without a result the probe counts as unanswered after its timeout.
                Ok(ProbeAnswer::Unknown) | Err(_) => return,
            };
            announcing.tell(Message::Wire(WireEvent::Probed { address, by }));
        });
    }

    fn leave(&mut self, on_exit: OnExit) {
        match on_exit {
            OnExit::Handover => {}
            OnExit::Keep => self.ping.keep(),
        }
    }

    fn sent(&self) -> BTreeMap<IpAddr, SentFrames> {
        let status = self.announcer.status().blocking_recv().unwrap_or_default();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let instant = |at: SystemTime| now.checked_sub(wall.duration_since(at).ok()?);
        let sent = |(address, status): (IpAddr, super::l2::announcer::AddressStatus)| {
            let last_gratuitous = status.last_gratuitous.and_then(instant);
            (address, SentFrames { replies: status.replies, gratuitous: status.gratuitous, last_gratuitous })
        };
        status.addresses.into_iter().map(sent).collect()
    }
}

/// Returns the ping setting of an address (reply or drop), or `None` if this node does not announce the
/// address.
fn reply(presence: &Presence) -> Option<Reply> {
    let reply = if presence.answer_ping { Reply::Answer } else { Reply::Silence };
    presence.is_announced.then_some(reply)
}

/// Implementation of the trait `Watch` that monitors the other candidate nodes by BFD.
pub struct Peers {
    bfd: Bfd,
    config: AnnounceConfig,
    identity: Option<PeerIdentity>,
    /// Keys of the present sessions, so that a change of one peer derives no other key again.
    keys: BTreeMap<Pair, (MonitoredPeer, Result<Key, WeakPublicKey>)>,
    /// Nodes whose sessions use the key of all nodes, so that each is logged once.
    sharing: BTreeSet<Name>,
}

impl Peers {
    /// Wraps a BFD instance. Changes of session states are forwarded to the announcing thread. `identity` is the
    /// private key of this node, if it has one.
    #[must_use]
    pub fn new(
        bfd: Bfd,
        config: AnnounceConfig,
        identity: Option<PeerIdentity>,
        announcing: Announcing,
    ) -> Self {
        let mut news = bfd.news();
        Handle::current().spawn(async move {
            while news.changed().await.is_ok() {
                announcing.tell(Message::Sessions);
            }
        });
        Self { bfd, config, identity, keys: BTreeMap::new(), sharing: BTreeSet::new() }
    }

    /// Returns the key of the session with a peer: the one of this pair of nodes or, if one of them has none, the
    /// one of all nodes.
    fn key_for(
        &mut self,
        pair: Pair,
        peer: &MonitoredPeer,
        shared_key: Option<&Key>,
    ) -> Result<Option<Key>, WeakPublicKey> {
        let (Some(public), Some(identity)) = (&peer.public_key, &self.identity) else {
            return Ok(shared_key.cloned());
        };
        let derive = || (peer.clone(), identity.session_key(&peer.node, public, pair));
        let (of, key) = self.keys.entry(pair).or_insert_with(derive);
        if of != peer {
            (*of, *key) = derive();
        }
        key.clone().map(Some)
    }

    /// Logs the nodes whose sessions begin or cease to use the key of all nodes.
    fn log_sharing(&mut self, peers: &BTreeMap<Pair, MonitoredPeer>) {
        let is_sharing = |peer: &&MonitoredPeer| peer.public_key.is_none() || self.identity.is_none();
        let sharing: BTreeSet<_> = peers.values().filter(is_sharing).map(|peer| peer.node.clone()).collect();
        for node in sharing.difference(&self.sharing) {
            info!(
                %node,
                "BFD with this node is authenticated by the key of all nodes, because this pair has no key; \
                 upgrade both agents and the control servers"
            );
        }
        for node in self.sharing.difference(&sharing) {
            info!(%node, "BFD with this node is no longer authenticated by the key of all nodes");
        }
        self.sharing = sharing;
    }
}

impl Watch for Peers {
    fn set_peers(&mut self, peers: &BTreeMap<Pair, MonitoredPeer>, shared_key: Option<&Secret>) {
        let interval = match Interval::new(self.config.peer_interval) {
            Ok(interval) => interval,
            Err(error) => return error!(%error, "peer nodes cannot be monitored"),
        };
        let shared_key = shared_key.and_then(shared_key_of);
        self.log_sharing(peers);
        self.keys.retain(|pair, _| peers.contains_key(pair));
        let mut wanted = BTreeMap::new();
        for (pair, peer) in peers {
            match self.key_for(*pair, peer, shared_key.as_ref()) {
                Ok(key) => {
                    let config = SessionConfig::new(interval, self.config.peer_multiplier, key);
                    wanted.insert(PeerKey { local: pair.local, peer: pair.peer }, config);
                }
                // A session that anybody could take part in would be worse than none.
                Err(WeakPublicKey) => {
                    warn!(node = %peer.node, "the node is not monitored, because it reports a weak public key");
                }
            }
        }
        if let Err(error) = self.bfd.set_peers(wanted) {
            error!(%error, "peer nodes cannot be monitored");
        }
    }

    fn sessions(&self) -> BTreeMap<Pair, Session> {
        let states = self.bfd.states().into_iter();
        states.map(|(key, state)| (Pair { local: key.local, peer: key.peer }, session(&state))).collect()
    }

    fn leave(&mut self, on_exit: OnExit) {
        self.bfd.admin_down(match on_exit {
            OnExit::Handover => HANDOVER,
            OnExit::Keep => RESTART,
        });
    }
}

fn session(state: &PeerState) -> Session {
    match (state.state, state.remote) {
        (State::Up, _) => Session::Up,
        (_, Some(remote)) if remote.state == State::AdminDown && remote.diagnostic == HANDOVER => {
            Session::HandedOver
        }
        (_, Some(remote)) if remote.state == State::AdminDown => Session::Restarting { since: state.since },
        _ => Session::Down,
    }
}

/// Derives the BFD key of all nodes from the cluster secret. The secret may be longer than a key, so its digest is
/// used.
fn shared_key_of(secret: &Secret) -> Option<Key> {
    let digest = Sha256::digest(secret.reveal().as_bytes());
    let secret = ::bfd::Secret::new(digest.get(..KEY_BYTES)?).ok()?;
    Some(Key::symmetric(SHARED_KEY_ID, Algorithm::MeticulousKeyedSha1, secret))
}

//! Engine of all BFD sessions of this node: assigns packets to sessions, handles deadlines, and reports
//! changes to the users of BFD.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io,
    net::UdpSocket,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use ::bfd::{Diagnostic, Input, Output, Session, wire};
use base::entropy;
use tokio::sync::watch;

use super::{
    peer::{self, Peer},
    peers::{Fault, PeerKey, PeerState, SessionConfig, TooManyPeers},
    socket::{self, Arrival, BUFFER_BYTES, Door},
    wants::{Owner, Wants},
};

/// Delay before opening a socket is retried after a failure.
const OPEN_RETRY: Duration = Duration::from_secs(1);
/// Maximum number of packets read from one listening socket per pass (one iteration of the BFD thread), about
/// the size of the socket buffer. A flood therefore delays deadlines only by milliseconds.
const PACKETS_PER_PASS_MAX: usize = 2048;

/// Listening sockets, each with its local address and port.
pub(super) type Ready = Vec<(Door, Arc<UdpSocket>)>;

/// Instruction to the BFD thread after a pass, which handles packets and deadlines.
pub(super) enum Pass {
    /// The thread must sleep until a packet arrives or the deadline is reached.
    Continue {
        /// Listening sockets whose packets wake the thread.
        doors: Ready,
        /// Earliest time at which any session must send a packet or times out; `None` if there is none.
        deadline: Option<Instant>,
    },
    /// The thread must exit, because the last handle was dropped.
    Stop,
}

#[derive(Debug)]
pub(super) struct Engine {
    wants: Wants,
    peers: BTreeMap<PeerKey, Peer>,
    by_discriminator: BTreeMap<NonZeroU32, PeerKey>,
    doors: BTreeMap<Door, Arc<UdpSocket>>,
    /// Next deadline of each session that has sockets.
    deadlines: BTreeSet<(Instant, PeerKey)>,
    /// Time at which opening of sockets is retried; `None` if all sockets are open.
    open_at: Option<Instant>,
    /// Diagnostic to send while all sessions are in AdminDown; `None` if the sessions are enabled.
    held: Option<Diagnostic>,
    /// Number of packets dropped because they belong to no session.
    strangers: u64,
    news: watch::Sender<u64>,
    is_stopped: bool,
}

impl Engine {
    pub(super) fn new() -> Self {
        Self {
            wants: Wants::default(),
            peers: BTreeMap::new(),
            by_discriminator: BTreeMap::new(),
            doors: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            open_at: None,
            held: None,
            strangers: 0,
            news: watch::Sender::new(0),
            is_stopped: false,
        }
    }

    pub(super) fn set_peers(
        &mut self,
        owner: Owner,
        wanted: BTreeMap<PeerKey, SessionConfig>,
        now: Instant,
    ) -> Result<(), TooManyPeers> {
        let wanted = self.wants.set(owner, wanted)?;
        self.follow(wanted, now);
        Ok(())
    }

    fn follow(&mut self, wanted: BTreeMap<PeerKey, SessionConfig>, now: Instant) {
        let is_kept = |key: &PeerKey, peer: &Peer| {
            wanted.get(key).is_some_and(|config| config.reach == peer.config.reach)
        };
        let gone: Vec<_> =
            self.peers.iter().filter(|(key, peer)| !is_kept(key, peer)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove(key, now);
        }
        for (key, config) in wanted {
            match self.peers.get_mut(&key) {
                None => self.add(key, config, now),
                Some(peer) if peer.config == config => {}
                Some(peer) => {
                    let settings = config.of_session();
                    peer.config = config;
                    self.tell(key, Input::Configure(settings), now);
                }
            }
        }
        let doors: BTreeSet<_> = self.peers.iter().map(|(key, peer)| peer.door(*key)).collect();
        self.doors.retain(|door, _| doors.contains(door));
    }

    fn add(&mut self, key: PeerKey, config: SessionConfig, now: Instant) {
        let discriminator = free_discriminator(&self.by_discriminator);
        let mut session = Session::new(config.of_session(), discriminator, entropy(), now);
        if let Some(diagnostic) = self.held {
            // There is no socket yet; the state is sent with the first packet.
            session.handle(Input::AdminDown(diagnostic), now);
        }
        let peer = Peer::new(key, config, session, now);
        self.by_discriminator.insert(discriminator, key);
        self.peers.insert(key, peer);
        self.open_at = Some(now);
        self.ring();
    }

    /// Ends a session after sending AdminDown packets, so that the peer does not report a path failure.
    fn remove(&mut self, key: PeerKey, now: Instant) {
        self.tell(key, Input::AdminDown(super::RESTART), now);
        let Some(peer) = self.peers.remove(&key) else { return };
        self.by_discriminator.remove(&peer.session.discriminator());
        if let Some(deadline) = peer.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        self.ring();
    }

    pub(super) fn states(&self, owner: Owner) -> BTreeMap<PeerKey, PeerState> {
        let own = self.peers.iter().filter(|(key, _)| self.wants.has(owner, key));
        own.map(|(key, peer)| (*key, peer.state())).collect()
    }

    pub(super) const fn strangers(&self) -> u64 {
        self.strangers
    }

    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn hold_down(&mut self, diagnostic: Diagnostic, now: Instant) {
        self.held = Some(diagnostic);
        for key in self.keys() {
            self.tell(key, Input::AdminDown(diagnostic), now);
        }
    }

    pub(super) fn enable(&mut self, now: Instant) {
        self.held = None;
        for key in self.keys() {
            self.tell(key, Input::Enable, now);
        }
    }

    pub(super) const fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn keys(&self) -> Vec<PeerKey> {
        self.peers.keys().copied().collect()
    }

    /// Handles received packets, and then the sessions whose deadline has passed. Packets come first, even
    /// those that arrived after the thread woke, because they count as received in time.
    pub(super) fn pass(&mut self, ready: &Ready, now: Instant) -> Pass {
        if self.is_stopped {
            return Pass::Stop;
        }
        let is_due = self.deadlines.first().is_some_and(|(at, _)| *at <= now);
        let all = if is_due { self.doors() } else { Ready::new() };
        for (door, socket) in if is_due { &all } else { ready } {
            self.take_packets(*door, socket, now);
        }
        if self.open_at.is_some_and(|at| at <= now) {
            self.open_missing(now);
        }
        while let Some((at, key)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.note_lateness(key, at, now);
            self.tell(key, Input::Timeout, now);
        }
        let next = self.deadlines.first().map(|(at, _)| *at);
        Pass::Continue { doors: self.doors(), deadline: [next, self.open_at].into_iter().flatten().min() }
    }

    fn doors(&self) -> Ready {
        self.doors.iter().map(|(door, socket)| (*door, Arc::clone(socket))).collect()
    }

    fn take_packets(&mut self, door: Door, socket: &UdpSocket, now: Instant) {
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..PACKETS_PER_PASS_MAX {
            match socket::receive(socket, &mut buffer) {
                Ok(Some(arrival)) => self.take(door, &arrival, &buffer[..arrival.length], now),
                Ok(None) => return,
                // Network error reported for an earlier packet; the next receive succeeds.
                Err(error) => tracing::debug!(%error, local = %door.local, "BFD receive failed"),
            }
        }
    }

    /// Passes a packet to its session. The session is found by Your Discriminator if it is set (RFC 5880
    /// §6.3), otherwise by the addresses (RFC 5881 §3). A packet that belongs to no session is counted and
    /// dropped.
    fn take(&mut self, door: Door, arrival: &Arrival, bytes: &[u8], now: Instant) {
        let by_source = PeerKey { local: door.local, peer: arrival.source };
        let received = wire::parse(bytes);
        let key = match &received {
            Ok(received) => match received.packet.your_discriminator {
                Some(ours) => self.by_discriminator.get(&ours).copied(),
                None => Some(by_source),
            },
            Err(_) => Some(by_source),
        };
        let peer = key.and_then(|key| Some((key, self.peers.get_mut(&key)?)));
        let peer = peer.filter(|(key, peer)| peer.door(*key).port == door.port);
        let Some((key, peer)) = peer else {
            self.strangers += 1;
            return;
        };
        if arrival.hop_limit < peer.config.reach.hop_limit_min() {
            peer.counters.hop_limit += 1;
            return;
        }
        match received {
            Err(malformed) => {
                peer.counters.malformed += 1;
                tracing::debug!(peer = %key.peer, %malformed, "BFD packet dropped");
            }
            Ok(received) => {
                self.tell(key, Input::Received(&received), now);
            }
        }
    }

    /// Opens the missing sockets of all sessions. Temporary failures are retried after [`OPEN_RETRY`],
    /// permanent failures are not.
    fn open_missing(&mut self, now: Instant) {
        self.open_at = None;
        for key in self.keys() {
            let Some(peer) = self.peers.get_mut(&key) else { continue };
            if peer.sender.is_some() || Fault::of(key).is_some() {
                continue;
            }
            let before = peer.fault;
            match open(&mut self.doors, peer.door(key)) {
                Ok(sender) => (peer.sender, peer.fault) = (Some(sender), None),
                Err(error) => {
                    peer.fault = Some(Fault::Socket(error.kind()));
                    self.open_at = Some(now + OPEN_RETRY);
                    if before != peer.fault {
                        tracing::warn!(local = %key.local, peer = %key.peer, %error, "no socket for BFD; \
                                                                                      retrying");
                    }
                }
            }
            let is_news = before != peer.fault;
            self.schedule(key);
            if is_news {
                self.ring();
            }
        }
    }

    fn note_lateness(&mut self, key: PeerKey, due: Instant, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&key)
            && now.saturating_duration_since(due) > peer.session.transmit_interval() / 2
        {
            peer.counters.late += 1;
        }
    }

    /// Passes an event to a session and carries out the resulting actions. All changes of a session go
    /// through this function.
    fn tell(&mut self, key: PeerKey, input: Input<'_>, now: Instant) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        let before = (peer.session.state(), peer.shown());
        peer.counters.received += u64::from(matches!(input, Input::Received(_)));
        for output in peer.session.handle(input, now) {
            match output {
                Output::Transmit(bytes) => peer.send(key.peer, &bytes),
                Output::Event(event) => peer::report(key, event),
                Output::Refused(refusal) => {
                    peer.counters.refuse(refusal);
                    tracing::debug!(peer = %key.peer, %refusal, "BFD packet dropped");
                }
            }
        }
        if peer.session.needs_discriminator() {
            self.by_discriminator.remove(&peer.session.discriminator());
            let discriminator = free_discriminator(&self.by_discriminator);
            peer.session.renumber(discriminator);
            self.by_discriminator.insert(discriminator, key);
        }
        if before.0 != peer.session.state() {
            peer.since = now;
        }
        let is_news = before.1 != peer.shown();
        self.schedule(key);
        if is_news {
            self.ring();
        }
    }

    /// Updates the index of deadlines for a session. A session without sockets has no deadline.
    fn schedule(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        let next = peer.session.poll_timeout().filter(|_| peer.sender.is_some());
        if peer.deadline == next {
            return;
        }
        if let Some(deadline) = peer.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        peer.deadline = next;
        self.deadlines.extend(next.map(|next| (next, key)));
    }

    fn ring(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Returns a random discriminator that no session uses.
fn free_discriminator(used: &BTreeMap<NonZeroU32, PeerKey>) -> NonZeroU32 {
    loop {
        let candidate = NonZeroU32::new((entropy() >> 32) as u32);
        if let Some(free) = candidate.filter(|number| !used.contains_key(number)) {
            return free;
        }
    }
}

/// Opens the listening socket of a local address unless it is already open, and returns a new socket for
/// sending.
fn open(doors: &mut BTreeMap<Door, Arc<UdpSocket>>, door: Door) -> io::Result<UdpSocket> {
    let sender = socket::sender(door.local, || entropy() as u16)?;
    if let Entry::Vacant(vacant) = doors.entry(door) {
        vacant.insert(Arc::new(socket::listen(door)?));
    }
    Ok(sender)
}

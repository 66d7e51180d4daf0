//! Announcing thread: receives events, passes them to [`Owners`] for a decision, carries out the resulting
//! actions, and publishes the status.
//!
//! Separate from the agent's thread, so that a long kernel update does not delay a takeover.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use base::{Gate, entropy};
use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, secret::Secret},
    wire::report::PEERS_MAX,
};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Following, show::Show, status::Announcements};
use crate::ownership::{
    io_traits::{Neighbours, OnExit, Presence, Station, Watch, Wire, WireEvent},
    liveness,
    machine::{Input, Liveness, ObservedStation, Output, Party, Phase},
    owners::{MonitoredPeer, Ordering, Owners, Pair},
};

/// Time for which a newly monitored node counts as alive, in addition to the detection time. Both systems
/// start with one packet per second (RFC 5880 §6.8.3), and a session needs three packets.
const UNHEARD_GRACE: Duration = Duration::from_secs(3);
/// Interval between reads of the announcer's frame counters.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after an announcement before the counters are read, so that the status contains the announcement.
const COUNT_DELAY: Duration = Duration::from_secs(1);
/// Maximum time to wait until other nodes have taken over the addresses of a stopping agent.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of queued messages that are processed before the resulting actions are carried out.
const MESSAGES_PER_TURN_MAX: usize = 1024;

/// Dependencies of the announcing thread, passed to [`super::spawn`].
pub struct Parts {
    /// Name of this node.
    pub node: Name,
    /// Announcer for ARP, NDP and ping replies.
    pub wire: Box<dyn Wire>,
    /// BFD, by which the other candidate nodes are monitored.
    pub watch: Box<dyn Watch>,
    /// Neighbor table of the kernel, which maps the MAC address of another announcer to a node.
    pub neighbours: Box<dyn Neighbours>,
    /// BFD detection time. A newly monitored node counts as alive for this time plus `UNHEARD_GRACE`.
    pub detection_time: Duration,
}

/// Message to the announcing thread.
#[derive(Debug)]
pub enum Message {
    /// State changes from the agent. The channel fires when this node no longer replies to requests for
    /// withdrawn addresses.
    Follow(Following, SyncSender<()>),
    /// Services in a finished kernel update, each with a [`Gate`] that is open if the kernel serves the
    /// Service.
    Gates(Vec<(ServiceKey, Gate)>),
    /// Observation of the layer-2 announcer: a conflict with another station, or the result of a probe.
    Wire(WireEvent),
    /// Notification that the state of a BFD session has changed; the thread reads the states itself.
    Sessions,
    /// Changed reachability of the control server: true if the control server accepts reports.
    Control(bool),
    /// Names of the interfaces that have a link (`IFF_LOWER_UP`); replaces the previous set.
    Carriers(BTreeSet<String>),
    /// Current problem that does not prevent announcement, shown in the status; `None` when it is resolved.
    Warning(Option<String>),
    /// Request to hand over or keep all addresses and to end the thread. Sent when the agent stops.
    Leave {
        /// Handling of the announced addresses: handed over to other nodes, or kept for a restart of this
        /// agent.
        on_exit: OnExit,
        /// Channel that fires when this node no longer replies to requests for any address.
        done: SyncSender<()>,
    },
}

/// Runs the announcing thread until it has carried out [`Message::Leave`] or all senders are dropped.
pub(super) fn run(parts: Parts, messages: &Receiver<Message>, shown: watch::Sender<Announcements>) {
    let Parts { node, wire, watch, neighbours, detection_time } = parts;
    let mut announcer = OwnershipThread {
        owners: Owners::new(node.clone()),
        show: Show::new(node, shown),
        wire,
        watch,
        neighbours,
        patience: detection_time + UNHEARD_GRACE,
        detection_time,
        present: BTreeMap::new(),
        peers: BTreeMap::new(),
        key: None,
        count_at: Instant::now() + COUNT_INTERVAL,
        leaving: None,
        known_macs: BTreeMap::new(),
    };
    loop {
        let began = Instant::now();
        let due = announcer.poll_timeout(began);
        let received = messages.recv_timeout(due.saturating_duration_since(began));
        announcer.notice_pause(began, Instant::now());
        match received {
            Ok(message) => {
                announcer.take(message);
                for _ in 0..MESSAGES_PER_TURN_MAX {
                    let Ok(message) = messages.try_recv() else { break };
                    announcer.take(message);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        announcer.turn();
        if announcer.has_left() {
            return;
        }
    }
}

struct OwnershipThread {
    owners: Owners,
    show: Show,
    wire: Box<dyn Wire>,
    watch: Box<dyn Watch>,
    neighbours: Box<dyn Neighbours>,
    /// Time for which a newly monitored node counts as alive without a packet: detection time plus
    /// [`UNHEARD_GRACE`].
    patience: Duration,
    detection_time: Duration,
    present: BTreeMap<IpAddr, Presence>,
    peers: BTreeMap<Pair, MonitoredPeer>,
    key: Option<Secret>,
    count_at: Instant,
    leaving: Option<Leaving>,
    /// Last known MAC addresses of monitored nodes, by address. The kernel forgets its own with the link, and a node that
    /// returns must still tell candidates from other stations.
    known_macs: BTreeMap<IpAddr, String>,
}

/// Handover in progress: this node replies to requests until other nodes announce the addresses or the
/// deadline passes.
struct Leaving {
    until: Instant,
    done: SyncSender<()>,
    /// Addresses that no other node has been observed to announce yet.
    waiting: BTreeSet<IpAddr>,
}

impl OwnershipThread {
    /// Returns the time until which the thread may wait for messages. While other nodes are monitored, the wait is
    /// shorter than the detection time, so that a longer wait is a pause of the process.
    fn poll_timeout(&self, now: Instant) -> Instant {
        let until = self.leaving.as_ref().map(|leaving| leaving.until);
        let awake_at = (!self.peers.is_empty()).then(|| now + self.detection_time / 2);
        [self.owners.poll_timeout(), until, awake_at].into_iter().flatten().fold(self.count_at, Instant::min)
    }

    /// Notifies the addresses if a wait from `began` to `ended` was so long that the other nodes have declared
    /// this node down. Must be called before messages are processed, which may date from the pause.
    fn notice_pause(&mut self, began: Instant, ended: Instant) {
        let waited = ended.saturating_duration_since(began);
        if !self.peers.is_empty() && waited > self.detection_time {
            info!(
                milliseconds = waited.as_millis(),
                "the agent was paused; probing before further announcements"
            );
            self.owners.resume(ended, entropy());
        }
    }

    fn take(&mut self, message: Message) {
        let (now, random) = (Instant::now(), entropy());
        match message {
            Message::Follow(following, done) => {
                self.follow(following, now, random);
                // The waiting side may have timed out.
                let _gone = done.try_send(());
            }
            Message::Gates(gates) => {
                let gates = gates.into_iter().map(|(service, gate)| (service, Some(gate)));
                self.owners.set_gates(gates, now, random);
            }
            Message::Wire(WireEvent::Conflict { address, by }) => {
                let heard = self.identify(address, by);
                match (&mut self.leaving, &heard.party) {
                    // Another candidate has taken over.
                    (Some(leaving), Party::Candidate(_)) => {
                        leaving.waiting.remove(&address);
                        self.owners.remove(address);
                    }
                    _ => self.owners.hear(address, Input::Heard(heard), now, random),
                }
            }
            Message::Wire(WireEvent::Probed { address, by }) => {
                let heard = by.map(|by| self.identify(address, by));
                self.owners.hear(address, Input::Probed(heard), now, random);
            }
            // The end of the sessions of a node that leaves is no evidence about the other nodes.
            Message::Sessions if self.leaving.is_some() => {}
            Message::Sessions => self.follow_sessions(now, random),
            Message::Control(is_reached) => self.owners.set_control(is_reached, now, random),
            Message::Carriers(carriers) => self.owners.set_carriers(carriers, now, random),
            Message::Warning(warning) => self.show.set_warning(warning),
            Message::Leave { on_exit, done } => self.leave(on_exit, done, now),
        }
    }

    fn follow(&mut self, following: Following, now: Instant, random: u64) {
        let Following { addresses, is_old, closing, changing, key } = following;
        let gone = closing.into_iter().map(|service| (service, None));
        self.owners.set_gates(gone, now, random);
        let unheard_until = now + self.patience;
        for (address, state) in addresses {
            match state {
                Some(state) => {
                    let order = Ordering { state, is_old, changing: &changing, unheard_until };
                    self.owners.set(order, now, random);
                }
                None => self.owners.remove(address),
            }
        }
        self.follow_peers(key, now, random);
        self.carry_out();
    }

    fn turn(&mut self) {
        let now = Instant::now();
        self.owners.tick(now, entropy());
        self.carry_out();
        if now >= self.count_at {
            self.count_at = now + COUNT_INTERVAL;
            self.show.count(&self.wire.sent(), now);
            self.show.warn_of_failures(now);
        }
        self.show.publish();
    }

    /// Carries out the pending actions of all addresses: first withdrawals and announcements, then probes and
    /// repeated announcements.
    fn carry_out(&mut self) {
        let actions = self.owners.take_actions();
        let touched = self.owners.take_touched();
        let changes: BTreeMap<_, _> =
            touched.iter().filter_map(|address| Some((*address, self.change_of(*address)?))).collect();
        if !changes.is_empty() {
            self.wire.set(changes.clone());
        }
        for (address, presence) in changes {
            let was_announced = self.present.get(&address).is_some_and(|before| before.is_announced);
            let is_announced = presence.as_ref().is_some_and(|presence| presence.is_announced);
            if was_announced != is_announced {
                let what = if is_announced { "announcing" } else { "withdrawn" };
                let reason = self
                    .owners
                    .get(address)
                    .and_then(|entry| crate::ownership::words::standing(&entry.ownership));
                let reason =
                    reason.map_or_else(|| "this node has no part in it".to_owned(), |(_, reason)| reason);
                info!(%address, reason, "{what}");
            }
            match presence {
                Some(presence) => self.present.insert(address, presence),
                None => self.present.remove(&address),
            };
        }
        if actions.iter().any(|(_, output)| matches!(output, Output::Announce | Output::Reannounce)) {
            self.count_at = self.count_at.min(Instant::now() + COUNT_DELAY);
        }
        for (address, output) in actions {
            let Some(presence) = self.present.get(&address) else { continue };
            match output {
                Output::Announce | Output::Withdraw => {}
                Output::Reannounce if presence.is_announced => self.wire.announce_again(address),
                Output::Reannounce => {}
                Output::Quiet => self.wire.quiet(address),
                Output::Probe => self.wire.probe(address, &presence.interfaces),
            }
        }
        for address in touched {
            let presence = self.present.get(&address);
            self.show.set(address, self.owners.get(address), presence);
        }
    }

    /// Returns the presence to set for an address, or `None` if the announcer already has it. `Some(None)`
    /// removes the address.
    fn change_of(&self, address: IpAddr) -> Option<Option<Presence>> {
        let before = self.present.get(&address);
        let wanted = self.owners.get(address).and_then(|entry| {
            let is_announced = matches!(entry.ownership.phase(), Phase::Owner(_));
            let own = entry.own_candidate(self.show.node()).map(|own| own.interfaces.clone());
            // A leaving owner may no longer be a candidate; it continues on its previous interfaces.
            let leaving = || before.filter(|_| is_announced).map(|before| before.interfaces.clone());
            let interfaces = own.or_else(leaving)?;
            Some(Presence { interfaces, is_announced, answer_ping: entry.state.announcement.answer_ping })
        });
        (before != wanted.as_ref()).then_some(wanted)
    }

    fn follow_peers(&mut self, key: Option<Secret>, now: Instant, random: u64) {
        let mut peers = self.owners.pairs();
        let wanted = peers.len();
        if let Some((first_excess, _)) = peers.iter().nth(PEERS_MAX) {
            let first_excess = *first_excess;
            peers.split_off(&first_excess);
            warn!(
                wanted,
                watched = peers.len(),
                "more candidates than can be monitored; \
                                                                the excess candidates are not monitored"
            );
        }
        if peers != self.peers || key != self.key {
            (self.peers, self.key) = (peers, key);
            self.watch.set_peers(&self.peers, self.key.as_ref());
            self.show.forget_peers(&self.peers);
            self.follow_sessions(now, random);
        }
    }

    fn follow_sessions(&mut self, now: Instant, random: u64) {
        let sessions = self.watch.sessions();
        for (pair, MonitoredPeer { node, .. }) in self.owners.pairs() {
            let (Some(session), Some(before)) = (sessions.get(&pair), self.owners.liveness(pair)) else {
                continue;
            };
            let after = liveness::follow(before, *session);
            self.show.set_peer(pair, &node, after, now);
            if after != before {
                let macs = self.neighbours.macs();
                self.learn_macs(&macs);
                let alive = after == Liveness::Up;
                info!(%node, peer = %pair.peer, alive, state = ?session, "liveness of a node has changed");
                self.owners.set_liveness(pair, after, now, random);
            }
        }
    }

    /// Remembers the MAC addresses of monitored nodes in the neighbor table.
    fn learn_macs(&mut self, macs: &BTreeMap<IpAddr, String>) {
        let peers: BTreeSet<IpAddr> = self.owners.pairs().into_keys().map(|pair| pair.peer).collect();
        self.known_macs.retain(|peer, _| peers.contains(peer));
        let shown = peers.into_iter().filter_map(|peer| Some((peer, macs.get(&peer)?.clone())));
        self.known_macs.extend(shown);
    }

    /// Identifies a station by its MAC address: returns the monitored node or candidate with this MAC address in the
    /// neighbor table or, if it has none there, last known; otherwise [`Party::Stranger`].
    fn identify(&mut self, address: IpAddr, station: Station) -> ObservedStation {
        let Station { mac, interface } = station;
        let macs = self.neighbours.macs();
        self.learn_macs(&macs);
        let known = |peer: IpAddr| macs.get(&peer).or_else(|| self.known_macs.get(&peer));
        let is_it = |peer: IpAddr| known(peer).is_some_and(|known| *known == mac);
        let candidates = self.owners.get(address).map(|entry| &entry.state.announcement.candidates);
        let candidate = candidates.into_iter().flatten().find(|candidate| is_it(candidate.address));
        let watched = || self.owners.pairs().into_iter().find(|(pair, _)| is_it(pair.peer));
        let name = candidate
            .map(|candidate| candidate.node.clone())
            .or_else(|| watched().map(|(_, peer)| peer.node));
        ObservedStation { party: name.map_or(Party::Stranger, Party::Candidate), mac, interface }
    }

    fn leave(&mut self, on_exit: OnExit, done: SyncSender<()>, now: Instant) {
        self.watch.leave(on_exit);
        self.wire.leave(on_exit);
        let has_heir = |address: &IpAddr| {
            let candidates = self.owners.get(*address).map(|entry| &entry.state.announcement.candidates);
            candidates.into_iter().flatten().any(|candidate| {
                let own = self.owners.get(*address).and_then(|entry| entry.own_candidate(self.show.node()));
                let pair = own.map(|own| Pair { local: own.address, peer: candidate.address });
                pair.and_then(|pair| self.owners.liveness(pair)) == Some(Liveness::Up)
            })
        };
        let announced = self.present.iter().filter(|(_, presence)| presence.is_announced);
        let waiting = match on_exit {
            OnExit::Handover => announced.map(|(address, _)| *address).filter(has_heir).collect(),
            OnExit::Keep => BTreeSet::new(),
        };
        // A node that leaves announces nothing new meanwhile.
        let entries = self.owners.entries().iter();
        let others = entries.filter(|(_, entry)| !matches!(entry.ownership.phase(), Phase::Owner(_)));
        for address in others.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.owners.remove(address);
        }
        self.leaving = Some(Leaving { until: now + HANDOVER_TIME_MAX, done, waiting });
    }

    /// Returns true if other nodes announce all addresses, or the handover deadline has passed. All addresses
    /// are then removed from the announcer.
    fn has_left(&mut self) -> bool {
        let is_over = |leaving: &mut Leaving| leaving.waiting.is_empty() || Instant::now() >= leaving.until;
        let Some(leaving) = self.leaving.take_if(is_over) else { return false };
        if !leaving.waiting.is_empty() {
            warn!(addresses = leaving.waiting.len(), "no other node took over these addresses in time");
        }
        let nothing = std::mem::take(&mut self.present).into_keys().map(|address| (address, None));
        self.wire.set(nothing.collect());
        let _gone = leaving.done.try_send(());
        true
    }
}

//! Publishes the announcement status. An event updates only the addresses that it affects; the frame counters
//! of all addresses are read at intervals.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Instant};

use base::{clock::wall_clock, limit_message};
use imbl::OrdMap;
use model::{
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{AddressConflict, AddressReport, PeerReport, PeerState},
};
use tokio::sync::watch;

use super::status::Announcements;
use crate::ownership::{
    io_traits::{Presence, SentFrames},
    machine::{Liveness, OwnershipConflict, Party},
    owners::{Entry, Pair},
    words,
};

/// Status under construction, with the watch channel on which it is published.
pub(super) struct Show {
    node: Name,
    addresses: OrdMap<IpAddr, AddressReport>,
    peers: BTreeMap<Pair, PeerReport>,
    warning: Option<String>,
    shown: watch::Sender<Announcements>,
    is_stale: bool,
}

impl Show {
    pub(super) fn new(node: Name, shown: watch::Sender<Announcements>) -> Self {
        Self { node, addresses: OrdMap::new(), peers: BTreeMap::new(), warning: None, shown, is_stale: false }
    }

    /// Returns the name of this node.
    pub(super) const fn node(&self) -> &Name {
        &self.node
    }

    /// Updates the status of one address, or removes the address if `entry` is `None`.
    pub(super) fn set(&mut self, address: IpAddr, entry: Option<&Entry>, presence: Option<&Presence>) {
        let standing = entry.and_then(|entry| Some((entry, words::standing(&entry.ownership)?)));
        let Some((entry, (role, reason))) = standing else {
            self.is_stale |= self.addresses.remove(&address).is_some();
            return;
        };
        let before = self.addresses.get(&address);
        let since =
            before.filter(|before| before.role == role).map_or_else(wall_clock, |before| before.since);
        let announcing = presence.filter(|presence| presence.is_announced);
        let interfaces =
            announcing.map(|presence| presence.interfaces.iter().map(ToString::to_string).collect());
        let announced = AddressReport {
            role,
            epoch: entry.ownership.order().epoch,
            since,
            reason: limit_message(reason),
            interfaces: interfaces.unwrap_or_default(),
            conflict: entry.ownership.conflict().map(conflict),
            last_gratuitous: before.and_then(|before| before.last_gratuitous),
            replies: before.map_or(0, |before| before.replies),
            gratuitous: before.map_or(0, |before| before.gratuitous),
        };
        if before != Some(&announced) {
            self.addresses.insert(address, announced);
            self.is_stale = true;
        }
    }

    /// Copies the frame counters of the layer-2 announcer into the status of those addresses whose counters
    /// have changed.
    pub(super) fn count(&mut self, sent: &BTreeMap<IpAddr, SentFrames>, now: Instant) {
        for (address, sent) in sent {
            let Some(before) = self.addresses.get(address) else { continue };
            if (before.replies, before.gratuitous) == (sent.replies, sent.gratuitous) {
                continue;
            }
            let last_gratuitous = sent.last_gratuitous.map(|at| wall_clock_of(at, now));
            let (replies, gratuitous) = (sent.replies, sent.gratuitous);
            let announced = AddressReport { last_gratuitous, replies, gratuitous, ..before.clone() };
            self.addresses.insert(*address, announced);
            self.is_stale = true;
        }
    }

    /// Records the liveness of the monitored node with this address pair.
    pub(super) fn set_peer(&mut self, pair: Pair, node: &Name, liveness: Liveness) {
        let state = match liveness {
            Liveness::Up => PeerState::Up,
            Liveness::Unknown { .. } | Liveness::Down => PeerState::Down,
            Liveness::HandedOver | Liveness::Restarting { .. } => PeerState::AdminDown,
        };
        if self.peers.get(&pair).is_some_and(|before| before.state == state && before.node == *node) {
            return;
        }
        let report = PeerReport { node: node.clone(), address: pair.peer, state, since: wall_clock() };
        self.peers.insert(pair, report);
        self.is_stale = true;
    }

    /// Sets the warning in the status, or clears it with `None`.
    pub(super) fn set_warning(&mut self, warning: Option<String>) {
        self.is_stale |= self.warning != warning;
        self.warning = warning;
    }

    /// Removes all nodes from the status that are not in `watched`.
    pub(super) fn forget_peers(&mut self, watched: &BTreeMap<Pair, Name>) {
        let before = self.peers.len();
        self.peers.retain(|pair, _| watched.contains_key(pair));
        self.is_stale |= self.peers.len() != before;
    }

    /// Publishes the status if it has changed.
    pub(super) fn publish(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            let peers = Arc::new(self.peers.values().cloned().collect());
            let (addresses, warning) = (self.addresses.clone(), self.warning.clone());
            self.shown.send_replace(Announcements { addresses, peers, warning });
        }
    }
}

fn conflict(conflict: &OwnershipConflict) -> AddressConflict {
    let OwnershipConflict { heard, at } = conflict;
    AddressConflict {
        mac: heard.mac.clone(),
        interface: heard.interface.clone(),
        at: wall_clock_of(*at, Instant::now()),
        node: match &heard.party {
            Party::Candidate(name) => Some(name.clone()),
            Party::Stranger => None,
        },
    }
}

fn wall_clock_of(at: Instant, now: Instant) -> Timestamp {
    let ago = i64::try_from(now.saturating_duration_since(at).as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_unix_seconds(wall_clock().unix_seconds().saturating_sub(ago))
}

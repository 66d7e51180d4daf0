//! Keeps what is shown in step with what is done: per address that was touched, never over all of them but for counters.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Instant, SystemTime},
};

use imbl::OrdMap;
use model::{
    name::Name,
    quantity::Timestamp,
    report::{AddressConflict, Announced, PeerReport, PeerState},
};
use tokio::sync::watch;

use super::{
    machine::{Conflict, Liveness},
    owners::{Entry, Pair},
    ports::{Presence, Wire},
    shown::Announcements,
    words,
};
use crate::desired::limit_message;

/// What is shown, and to whom.
pub(super) struct Show {
    node: Name,
    addresses: OrdMap<IpAddr, Announced>,
    peers: BTreeMap<Pair, PeerReport>,
    shown: watch::Sender<Announcements>,
    is_stale: bool,
}

impl Show {
    pub(super) fn new(node: Name, shown: watch::Sender<Announcements>) -> Self {
        Self { node, addresses: OrdMap::new(), peers: BTreeMap::new(), shown, is_stale: false }
    }

    /// This node.
    pub(super) const fn node(&self) -> &Name {
        &self.node
    }

    /// Shows one address as it is.
    pub(super) fn set(
        &mut self,
        address: IpAddr,
        entry: Option<&Entry>,
        presence: Option<&Presence>,
        wire: &dyn Wire,
    ) {
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
        let announced = Announced {
            role,
            epoch: entry.ownership.order().epoch,
            since,
            reason: limit_message(reason),
            interfaces: interfaces.unwrap_or_default(),
            conflict: entry.ownership.conflict().map(conflict),
            ..counted(address, wire, Instant::now(), before)
        };
        if before != Some(&announced) {
            self.addresses.insert(address, announced);
            self.is_stale = true;
        }
    }

    /// Reads what was sent for every address that is announced.
    pub(super) fn count(&mut self, wire: &dyn Wire, now: Instant) {
        let owned = self.addresses.iter().filter(|(_, announced)| !announced.interfaces.is_empty());
        let counted: Vec<_> = owned
            .map(|(address, before)| (*address, before, counted(*address, wire, now, Some(before))))
            .filter(|(_, before, after)| *before != after)
            .map(|(address, _, after)| (address, after))
            .collect();
        self.is_stale |= !counted.is_empty();
        self.addresses.extend(counted);
    }

    /// Shows how a node is seen.
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

    /// Forgets the nodes that are not watched any longer.
    pub(super) fn forget_peers(&mut self, watched: &BTreeMap<Pair, Name>) {
        let before = self.peers.len();
        self.peers.retain(|pair, _| watched.contains_key(pair));
        self.is_stale |= self.peers.len() != before;
    }

    /// Lets everybody see what has changed.
    pub(super) fn publish(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            let peers = Arc::new(self.peers.values().cloned().collect());
            self.shown.send_replace(Announcements { addresses: self.addresses.clone(), peers });
        }
    }
}

/// The counters of an address; the rest is as before, or empty.
fn counted(address: IpAddr, wire: &dyn Wire, now: Instant, before: Option<&Announced>) -> Announced {
    let sent = wire.sent(address);
    let empty = || Announced {
        role: model::report::Role::Held,
        epoch: 0,
        since: wall_clock(),
        reason: String::new(),
        interfaces: Vec::new(),
        last_gratuitous: None,
        replies: 0,
        gratuitous: 0,
        conflict: None,
    };
    let mut announced = before.cloned().unwrap_or_else(empty);
    if sent.gratuitous != announced.gratuitous {
        announced.last_gratuitous = sent.last_gratuitous.map(|at| wall_clock_of(at, now));
    }
    (announced.replies, announced.gratuitous) = (sent.replies, sent.gratuitous);
    announced
}

fn conflict(conflict: &Conflict) -> AddressConflict {
    let Conflict { heard, at } = conflict;
    AddressConflict {
        mac: heard.mac.clone(),
        interface: heard.interface.clone(),
        at: wall_clock_of(*at, Instant::now()),
    }
}

fn wall_clock() -> Timestamp {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Timestamp::from_unix_seconds(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn wall_clock_of(at: Instant, now: Instant) -> Timestamp {
    let ago = i64::try_from(now.saturating_duration_since(at).as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_unix_seconds(wall_clock().unix_seconds().saturating_sub(ago))
}

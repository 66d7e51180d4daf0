//! Publishes the announcement status. An event updates only the addresses that it affects; the frame counters
//! of all addresses are read at intervals.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Instant};

use base::{clock::wall_clock, limit_message};
use imbl::{OrdMap, Vector};
use model::{
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{
        ANNOUNCEMENT_CHANGES_MAX, AddressConflict, AddressReport, AnnouncementChange, AnnouncementRole,
        PeerReport, PeerState,
    },
};
use tokio::sync::watch;

use super::{
    failures::SessionFailures,
    status::{AnnouncementTotals, Announcements},
};
use crate::ownership::{
    io_traits::{Presence, SentFrames},
    machine::{Liveness, OwnershipConflict, Party},
    owners::{Entry, MonitoredPeer, Pair},
    words,
};

/// Reason for the end of an announcement by a node to which no order gives a role.
const NO_CANDIDATE: &str = "this node is no longer a candidate for the address";

/// Status under construction, with the watch channel on which it is published.
pub(super) struct Show {
    node: Name,
    addresses: OrdMap<IpAddr, AddressReport>,
    changes: Vector<AnnouncementChange>,
    changes_total: u64,
    peers: BTreeMap<Pair, PeerReport>,
    warning: Option<String>,
    totals: AnnouncementTotals,
    failures: SessionFailures,
    failure_warning: Option<String>,
    shown: watch::Sender<Announcements>,
    is_stale: bool,
}

impl Show {
    pub(super) fn new(node: Name, shown: watch::Sender<Announcements>) -> Self {
        Self {
            node,
            addresses: OrdMap::new(),
            changes: Vector::new(),
            changes_total: 0,
            peers: BTreeMap::new(),
            warning: None,
            totals: AnnouncementTotals::default(),
            failures: SessionFailures::default(),
            failure_warning: None,
            shown,
            is_stale: false,
        }
    }

    /// Returns the name of this node.
    pub(super) const fn node(&self) -> &Name {
        &self.node
    }

    /// Updates the status of one address, or removes the address if `entry` is `None`.
    pub(super) fn set(&mut self, address: IpAddr, entry: Option<&Entry>, presence: Option<&Presence>) {
        let standing = entry.and_then(|entry| Some((entry, words::standing(&entry.ownership)?)));
        let Some((entry, (role, reason))) = standing else {
            if let Some(before) = self.addresses.remove(&address) {
                self.is_stale = true;
                if before.role == AnnouncementRole::Owner {
                    self.record(address, false, wall_clock(), NO_CANDIDATE.to_owned());
                }
            }
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
        let was_owner = before.is_some_and(|before| before.role == AnnouncementRole::Owner);
        let is_owner = role == AnnouncementRole::Owner;
        let is_new = before != Some(&announced);
        self.totals.takeovers += u64::from(is_owner && !was_owner);
        if is_owner != was_owner {
            self.record(address, is_owner, since, announced.reason.clone());
        }
        if is_new {
            self.addresses.insert(address, announced);
            self.is_stale = true;
        }
    }

    /// Records that this node begins or ceases to announce an address. The cause is recorded with the change, because the
    /// reason of a later role is another one.
    fn record(&mut self, address: IpAddr, announces: bool, time: Timestamp, reason: String) {
        self.changes_total += 1;
        let number = self.changes_total;
        self.changes.push_back(AnnouncementChange { number, time, address, announces, reason });
        if self.changes.len() > ANNOUNCEMENT_CHANGES_MAX {
            self.changes.pop_front();
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
            self.totals.gratuitous += sent.gratuitous.saturating_sub(before.gratuitous);
            self.totals.replies += sent.replies.saturating_sub(before.replies);
            let last_gratuitous = sent.last_gratuitous.map(|at| wall_clock_of(at, now));
            let (replies, gratuitous) = (sent.replies, sent.gratuitous);
            let announced = AddressReport { last_gratuitous, replies, gratuitous, ..before.clone() };
            self.addresses.insert(*address, announced);
            self.is_stale = true;
        }
    }

    /// Records the liveness of the monitored node with this address pair.
    pub(super) fn set_peer(&mut self, pair: Pair, node: &Name, liveness: Liveness, now: Instant) {
        let state = match liveness {
            Liveness::Up => PeerState::Up,
            Liveness::Unknown { .. } | Liveness::Down => PeerState::Down,
            Liveness::HandedOver | Liveness::Restarting { .. } => PeerState::AdminDown,
        };
        if self.peers.get(&pair).is_some_and(|before| before.state == state && before.node == *node) {
            return;
        }
        let was_up = self.peers.get(&pair).is_some_and(|before| before.state == PeerState::Up);
        if was_up && state == PeerState::Down {
            self.totals.peer_failures += 1;
            self.failures.record(pair, node, now);
            self.warn_of_failures(now);
        }
        let report = PeerReport { node: node.clone(), address: pair.peer, state, since: wall_clock() };
        self.peers.insert(pair, report);
        self.is_stale = true;
    }

    /// Updates the warning about sessions that fail repeatedly.
    pub(super) fn warn_of_failures(&mut self, now: Instant) {
        let warning = self.failures.warning(now);
        self.is_stale |= warning != self.failure_warning;
        self.failure_warning = warning;
    }

    /// Sets the warning in the status, or clears it with `None`.
    pub(super) fn set_warning(&mut self, warning: Option<String>) {
        self.is_stale |= self.warning != warning;
        self.warning = warning;
    }

    /// Removes all nodes from the status that are not in `watched`.
    pub(super) fn forget_peers(&mut self, watched: &BTreeMap<Pair, MonitoredPeer>) {
        let before = self.peers.len();
        self.peers.retain(|pair, _| watched.contains_key(pair));
        self.failures.retain(|pair| watched.contains_key(pair));
        self.is_stale |= self.peers.len() != before;
    }

    /// Publishes the status if it has changed.
    pub(super) fn publish(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            let peers = Arc::new(self.peers.values().cloned().collect());
            let (addresses, changes) = (self.addresses.clone(), self.changes.clone());
            let warnings: Vec<_> =
                [&self.warning, &self.failure_warning].into_iter().flatten().cloned().collect();
            let warning = (!warnings.is_empty()).then(|| limit_message(warnings.join("; ")));
            self.shown.send_replace(Announcements {
                addresses,
                changes,
                peers,
                warning,
                totals: self.totals,
            });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_packets_of_all_addresses_and_failures_of_sessions() {
        let (sender, shown) = watch::channel(Announcements::default());
        let node = Name::parse("n1").unwrap();
        let mut show = Show::new(node.clone(), sender);
        let addresses: [IpAddr; 2] = [[192, 0, 2, 7].into(), [192, 0, 2, 8].into()];
        for address in addresses {
            let report = AddressReport {
                role: AnnouncementRole::Owner,
                epoch: 1,
                since: wall_clock(),
                reason: "a test".to_owned(),
                interfaces: Vec::new(),
                last_gratuitous: None,
                replies: 0,
                gratuitous: 0,
                conflict: None,
            };
            show.addresses.insert(address, report);
        }
        let now = Instant::now();
        let sent = |replies, gratuitous| SentFrames { replies, gratuitous, last_gratuitous: Some(now) };
        show.count(&[(addresses[0], sent(1, 2)), (addresses[1], sent(0, 3))].into(), now);
        show.count(&[(addresses[0], sent(4, 2)), (addresses[1], sent(0, 3))].into(), now);
        show.addresses.remove(&addresses[1]);
        show.count(&[(addresses[0], sent(4, 3))].into(), now);
        let pair = Pair { local: [192, 0, 2, 1].into(), peer: [192, 0, 2, 2].into() };
        for liveness in [Liveness::Down, Liveness::Up, Liveness::HandedOver, Liveness::Up, Liveness::Down] {
            show.set_peer(pair, &node, liveness, now);
        }
        show.publish();
        let expected = AnnouncementTotals { takeovers: 0, gratuitous: 6, replies: 4, peer_failures: 1 };
        assert_eq!(shown.borrow().totals, expected);
    }
}

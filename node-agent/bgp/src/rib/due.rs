//! Index of the routes that must still be sent in a session, by prefix and by attributes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::Terms;
use crate::{attributes::Attributes, family::Family, wire};

/// Desired, sent and pending route of one prefix.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Desired attributes; `None` if the prefix is not to be advertised.
    pub(super) wanted: Option<Arc<Attributes>>,
    /// Attributes last sent in this session; `None` if the neighbor does not have the prefix.
    pub(super) told: Option<Arc<Attributes>>,
    /// Change that must still be sent; `None` if the neighbor is up to date.
    pub(super) due: Option<Due>,
    /// True if all routes of the family are being sent and this prefix has not been sent yet.
    pub(super) is_owed: bool,
    /// True if the attributes leave no room for the prefix in a message, so the prefix is not advertised.
    pub(super) is_too_long: bool,
}

/// Change of a prefix that must still be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    Withdrawal,
    Announcement(Arc<Attributes>),
}

/// State that exists only while the session is established.
#[derive(Debug)]
pub(super) struct EstablishedState {
    pub(super) terms: Terms,
    pub(super) families: BTreeMap<Family, Telling>,
    pub(super) withdrawals: BTreeSet<IpNet>,
    /// Prefixes to announce, by the properties that all prefixes of a message share; the sets are never
    /// empty.
    pub(super) announcements: BTreeMap<Group, BTreeSet<IpNet>>,
}

/// Properties that all announced prefixes of one message share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) attributes: Arc<Attributes>,
}

/// Progress of sending all routes of a family, initially or in response to a refresh request.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) phase: TransmissionPhase,
    /// Number of prefixes that have not been sent yet.
    pub(super) owed: usize,
    /// True if the neighbor has requested another refresh during this one. All routes are then sent once
    /// more.
    pub(super) is_asked_again: bool,
}

/// Phase of sending all routes of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransmissionPhase {
    /// The initial routes of the session are being sent; End-of-RIB follows.
    Initial,
    /// The neighbor has requested a refresh; `BoRR` has not been sent yet.
    Asked,
    /// Routes of a refresh are being sent; `EoRR` follows if Enhanced Route Refresh was negotiated.
    Answering,
    /// All routes were sent; only changes are sent from now on.
    Settled,
}

impl Entry {
    /// Returns true if the prefix is not desired, not known to the neighbor and has no pending change, so
    /// that the entry can be removed.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.wanted.is_none() && self.told.is_none()
    }
}

impl Due {
    /// Returns the change that must be sent for a prefix. `None` if the sent attributes are already the
    /// desired ones, unless all routes are being sent again and the prefix is still missing
    /// ([`Entry::is_owed`]).
    fn of(entry: &Entry) -> Option<Self> {
        let wanted = entry.wanted.as_ref().filter(|_| !entry.is_too_long);
        match (wanted, &entry.told) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::Withdrawal),
            (Some(wanted), Some(told)) if wanted == told && !entry.is_owed => None,
            (Some(wanted), _) => Some(Self::Announcement(Arc::clone(wanted))),
        }
    }
}

impl Telling {
    /// Returns true if an End-of-RIB, `BoRR` or `EoRR` marker must be sent. While `is_end_held` is true, the
    /// End-of-RIB marker is delayed.
    pub(super) const fn is_mark_due(&self, is_end_held: bool) -> bool {
        match self.phase {
            TransmissionPhase::Initial => self.owed == 0 && !is_end_held,
            TransmissionPhase::Asked => true,
            TransmissionPhase::Answering => self.owed == 0,
            TransmissionPhase::Settled => false,
        }
    }
}

impl EstablishedState {
    pub(super) fn new(terms: Terms) -> Self {
        let telling = |family: &Family| {
            (*family, Telling { phase: TransmissionPhase::Initial, owed: 0, is_asked_again: false })
        };
        let families = terms.families.iter().map(telling).collect();
        Self { terms, families, withdrawals: BTreeSet::new(), announcements: BTreeMap::new() }
    }

    /// Adds a prefix to a transmission of all routes, even if the prefix is about to be withdrawn: if it is
    /// announced again meanwhile, it must be sent before the end of the transmission, at which the neighbor
    /// drops all prefixes that it has not received.
    pub(super) fn owe(&mut self, prefix: IpNet, entry: &mut Entry) {
        let Some(telling) = self.families.get_mut(&Family::of(&prefix)) else { return };
        if !entry.is_forgotten() && !entry.is_owed {
            entry.is_owed = true;
            telling.owed += 1;
        }
        self.settle(prefix, entry);
    }

    /// Handles a change of the desired attributes. While the initial routes are being sent, a new prefix is
    /// sent with them, so that a neighbor with a stale route does not drop the route at the End-of-RIB (RFC
    /// 4724 §4.2).
    pub(super) fn change(&mut self, prefix: IpNet, entry: &mut Entry) {
        let telling = self.families.get(&Family::of(&prefix));
        let is_first = telling.is_some_and(|telling| telling.phase == TransmissionPhase::Initial);
        if is_first && entry.told.is_none() {
            self.owe(prefix, entry);
        } else {
            self.settle(prefix, entry);
        }
    }

    /// Removes a prefix from the transmission of all routes, after the prefix was sent or no longer needs to
    /// be sent.
    pub(super) fn pay(&mut self, prefix: IpNet, entry: &mut Entry) {
        if std::mem::take(&mut entry.is_owed)
            && let Some(telling) = self.families.get_mut(&Family::of(&prefix))
        {
            telling.owed -= 1;
        }
    }

    /// Updates the index of pending changes after the entry of a prefix has changed.
    pub(super) fn settle(&mut self, prefix: IpNet, entry: &mut Entry) {
        if !self.families.contains_key(&Family::of(&prefix)) {
            return;
        }
        let due = Due::of(entry);
        if due.is_none() {
            self.pay(prefix, entry);
        }
        if due == entry.due {
            return;
        }
        let family = Family::of(&prefix);
        match std::mem::replace(&mut entry.due, due.clone()) {
            Some(Due::Withdrawal) => {
                self.withdrawals.remove(&prefix);
            }
            Some(Due::Announcement(attributes)) => self.take_out(prefix, Group { family, attributes }),
            None => {}
        }
        match due {
            Some(Due::Withdrawal) => {
                self.withdrawals.insert(prefix);
            }
            Some(Due::Announcement(attributes)) => {
                self.announcements.entry(Group { family, attributes }).or_default().insert(prefix);
            }
            None => {}
        }
    }

    fn take_out(&mut self, prefix: IpNet, group: Group) {
        if let std::collections::btree_map::Entry::Occupied(mut occupied) = self.announcements.entry(group) {
            occupied.get_mut().remove(&prefix);
            if occupied.get().is_empty() {
                occupied.remove();
            }
        }
    }

    /// Returns the next prefix to send whose attributes leave no room for it in a message.
    pub(super) fn too_long(&self) -> Option<IpNet> {
        let (group, prefixes) = self.announcements.first_key_value()?;
        let overhead = wire::update_overhead(&group.attributes, group.family, &self.terms.context);
        let bytes_max = self.terms.context.message_bytes_max();
        prefixes.first().copied().filter(|prefix| overhead + wire::prefix_bytes(prefix) > bytes_max)
    }
}

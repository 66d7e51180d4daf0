//! Index of the routes that remain to be sent in a session, by prefix and by message content.

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
    /// Change that remains to be sent; `None` if the neighbor is up to date.
    pub(super) due: Option<Due>,
    /// True if the prefix belongs to a table transmission in progress and has not been sent in it yet.
    pub(super) is_owed: bool,
    /// True if the attributes leave no room for the prefix in a message, so the prefix is not advertised.
    pub(super) is_too_long: bool,
}

/// Change of a prefix that remains to be sent.
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
    /// Prefixes to announce, by the properties shared by all prefixes of a message; sets are never empty.
    pub(super) announcements: BTreeMap<Group, BTreeSet<IpNet>>,
}

/// Properties that all announced prefixes of one message share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) attributes: Arc<Attributes>,
}

/// Progress of sending the whole table of a family, initially or for a refresh request.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) phase: TransmissionPhase,
    /// Number of prefixes of the transmission that have not been sent yet.
    pub(super) owed: usize,
    /// True if the neighbor has requested a refresh during this one; another one follows.
    pub(super) is_asked_again: bool,
}

/// Phase of sending the whole table of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransmissionPhase {
    /// Initial table of the session, ended by End-of-RIB.
    Initial,
    /// Refresh requested by the neighbor; `BoRR` has not been sent yet.
    Asked,
    /// Refresh in progress; ended by `EoRR` if Enhanced Route Refresh was negotiated.
    Answering,
    /// Table sent completely; only changes are sent from now on.
    Settled,
}

impl Entry {
    /// Returns true if the prefix is neither desired nor known to the neighbor nor pending, so the entry can
    /// be removed.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.wanted.is_none() && self.told.is_none()
    }
}

impl Due {
    /// Returns the pending change of a prefix: needed if desired and sent attributes differ, or if the prefix
    /// belongs to a table transmission.
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
    /// Returns true if an End-of-RIB, `BoRR` or `EoRR` marker is due. `is_end_held` delays the End-of-RIB
    /// marker.
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

    /// Adds a prefix to the table transmission. Includes a prefix that is about to be withdrawn: if it is
    /// announced again, this must happen before the end of the table, at which the neighbor drops prefixes it
    /// has not received.
    pub(super) fn owe(&mut self, prefix: IpNet, entry: &mut Entry) {
        let Some(telling) = self.families.get_mut(&Family::of(&prefix)) else { return };
        if !entry.is_forgotten() && !entry.is_owed {
            entry.is_owed = true;
            telling.owed += 1;
        }
        self.settle(prefix, entry);
    }

    /// Handles changed desired attributes. A new prefix during the initial table becomes part of it, so that
    /// a neighbor with a stale route does not drop it at the End-of-RIB (RFC 4724 §4.2).
    pub(super) fn change(&mut self, prefix: IpNet, entry: &mut Entry) {
        let telling = self.families.get(&Family::of(&prefix));
        let is_first = telling.is_some_and(|telling| telling.phase == TransmissionPhase::Initial);
        if is_first && entry.told.is_none() {
            self.owe(prefix, entry);
        } else {
            self.settle(prefix, entry);
        }
    }

    /// Removes a prefix from the table transmission after it was sent or became obsolete.
    pub(super) fn pay(&mut self, prefix: IpNet, entry: &mut Entry) {
        if std::mem::take(&mut entry.is_owed)
            && let Some(telling) = self.families.get_mut(&Family::of(&prefix))
        {
            telling.owed -= 1;
        }
    }

    /// Updates the message index after a change of a prefix's entry.
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

    /// Returns the next due prefix if its attributes leave no room for it in a message.
    pub(super) fn too_long(&self) -> Option<IpNet> {
        let (group, prefixes) = self.announcements.first_key_value()?;
        let overhead = wire::update_overhead(&group.attributes, group.family, &self.terms.context);
        let bytes_max = self.terms.context.message_bytes_max();
        prefixes.first().copied().filter(|prefix| overhead + wire::prefix_bytes(prefix) > bytes_max)
    }
}

//! Pending routes of a session, by prefix and by message.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::Terms;
use crate::{attributes::Attributes, family::Family, wire};

/// State of one prefix.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Desired attributes.
    pub(super) wanted: Option<Arc<Attributes>>,
    /// Attributes sent in this session.
    pub(super) told: Option<Arc<Attributes>>,
    /// Pending change.
    pub(super) due: Option<Due>,
    /// True if the prefix is part of a table transmission that has not sent it yet.
    pub(super) is_owed: bool,
    /// True if the attributes exceed the message size.
    pub(super) is_too_long: bool,
}

/// Pending change of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    Withdrawal,
    Announcement(Arc<Attributes>),
}

/// State of an established session.
#[derive(Debug)]
pub(super) struct EstablishedState {
    pub(super) terms: Terms,
    pub(super) families: BTreeMap<Family, Telling>,
    pub(super) withdrawals: BTreeSet<IpNet>,
    /// Prefixes that can share a message; sets are never empty.
    pub(super) announcements: BTreeMap<Group, BTreeSet<IpNet>>,
}

/// Key of prefixes that can share a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) attributes: Arc<Attributes>,
}

/// State of the table transmission of a family.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) phase: TransmissionPhase,
    /// Number of owed prefixes.
    pub(super) owed: usize,
    /// True if the neighbor has requested another refresh.
    pub(super) is_asked_again: bool,
}

/// Phase of a table transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransmissionPhase {
    /// Initial table of the session, ended by End-of-RIB.
    Initial,
    /// Refresh requested; `BoRR` is pending.
    Asked,
    /// Refresh in progress.
    Answering,
    /// Complete; only changes are sent.
    Settled,
}

impl Entry {
    /// Returns true if the entry can be removed.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.wanted.is_none() && self.told.is_none()
    }
}

impl Due {
    /// Returns the pending change: due if desired and sent attributes differ, or the prefix is owed.
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
    /// Returns true if a marker is due.
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

    /// Removes a prefix from the table transmission, after it was sent or became obsolete.
    pub(super) fn pay(&mut self, prefix: IpNet, entry: &mut Entry) {
        if std::mem::take(&mut entry.is_owed)
            && let Some(telling) = self.families.get_mut(&Family::of(&prefix))
        {
            telling.owed -= 1;
        }
    }

    /// Updates the indexes after a change of a prefix.
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

    /// Returns the next prefix if it does not fit into a message with its attributes.
    pub(super) fn too_long(&self) -> Option<IpNet> {
        let (group, prefixes) = self.announcements.first_key_value()?;
        let overhead = wire::update_overhead(&group.attributes, group.family, &self.terms.context);
        let bytes_max = self.terms.context.message_bytes_max();
        prefixes.first().copied().filter(|prefix| overhead + wire::prefix_bytes(prefix) > bytes_max)
    }
}

//! What a neighbour has to be told in a session: by prefix, and by the message that it will be in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::Terms;
use crate::{attributes::Attributes, family::Family, wire};

/// One prefix.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// What the neighbour is to know.
    pub(super) wanted: Option<Arc<Attributes>>,
    /// What it was told in this session.
    pub(super) told: Option<Arc<Attributes>>,
    /// What it has to be told.
    pub(super) due: Option<Due>,
    /// Whether it belongs to the table that is being told, as it is or as it will be.
    pub(super) is_owed: bool,
    /// Whether the attributes fit into no message.
    pub(super) is_too_long: bool,
}

/// What has to be told of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    Withdrawal,
    Announcement(Arc<Attributes>),
}

/// A session, and where everything stands in it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) terms: Terms,
    pub(super) families: BTreeMap<Family, Telling>,
    pub(super) withdrawals: BTreeSet<IpNet>,
    /// What can share a message; never empty sets.
    pub(super) announcements: BTreeMap<Group, BTreeSet<IpNet>>,
}

/// Prefixes that can share a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) attributes: Arc<Attributes>,
}

/// How far the neighbour has been told all routes of a family.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) phase: Phase,
    /// Prefixes that are still owed.
    pub(super) owed: usize,
    /// Whether it wants all of them once more.
    pub(super) is_asked_again: bool,
}

/// Where the telling of a whole table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first one of the session; End-of-RIB ends it.
    Initial,
    /// A refresh was asked for, and its beginning is to be marked.
    Asked,
    /// The refresh is being answered.
    Answering,
    /// The neighbour knows all; only changes are told.
    Settled,
}

impl Entry {
    /// Whether nothing is to be kept of it.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.wanted.is_none() && self.told.is_none()
    }
}

impl Due {
    /// Due when what is wanted differs from what was told, or is owed.
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
    /// Whether a mark has to be sent before anything else.
    pub(super) const fn is_mark_due(&self, is_end_held: bool) -> bool {
        match self.phase {
            Phase::Initial => self.owed == 0 && !is_end_held,
            Phase::Asked => true,
            Phase::Answering => self.owed == 0,
            Phase::Settled => false,
        }
    }
}

impl Session {
    pub(super) fn new(terms: Terms) -> Self {
        let telling =
            |family: &Family| (*family, Telling { phase: Phase::Initial, owed: 0, is_asked_again: false });
        let families = terms.families.iter().map(telling).collect();
        Self { terms, families, withdrawals: BTreeSet::new(), announcements: BTreeMap::new() }
    }

    /// A prefix belongs to the table that is to be told; also one that is about to be withdrawn: if it is wanted after all, the
    /// neighbour has to hear of it before the end of the table, with which it drops what it did not hear.
    pub(super) fn owe(&mut self, prefix: IpNet, entry: &mut Entry) {
        let Some(telling) = self.families.get_mut(&Family::of(&prefix)) else { return };
        if !entry.is_forgotten() && !entry.is_owed {
            entry.is_owed = true;
            telling.owed += 1;
        }
        self.settle(prefix, entry);
    }

    /// Something else is wanted of a prefix. What is new before the first table has ended belongs to that table, so that a
    /// neighbour that kept it from an earlier session does not drop it at the End-of-RIB (RFC 4724 §4.2).
    pub(super) fn change(&mut self, prefix: IpNet, entry: &mut Entry) {
        let telling = self.families.get(&Family::of(&prefix));
        let is_first = telling.is_some_and(|telling| telling.phase == Phase::Initial);
        if is_first && entry.told.is_none() {
            self.owe(prefix, entry);
        } else {
            self.settle(prefix, entry);
        }
    }

    /// A prefix was told, or there is nothing to tell of it any longer.
    pub(super) fn pay(&mut self, prefix: IpNet, entry: &mut Entry) {
        if std::mem::take(&mut entry.is_owed)
            && let Some(telling) = self.families.get_mut(&Family::of(&prefix))
        {
            telling.owed -= 1;
        }
    }

    /// Puts a prefix where it belongs, after something about it has changed.
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

    /// The next prefix, if it does not fit into a message with its attributes.
    pub(super) fn too_long(&self) -> Option<IpNet> {
        let (group, prefixes) = self.announcements.first_key_value()?;
        let overhead = wire::update_overhead(&group.attributes, group.family, &self.terms.context);
        let bytes_max = self.terms.context.message_bytes_max();
        prefixes.first().copied().filter(|prefix| overhead + wire::prefix_bytes(prefix) > bytes_max)
    }
}

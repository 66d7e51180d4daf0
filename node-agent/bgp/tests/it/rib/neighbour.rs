//! Simulated neighbor that applies encoded messages, retains routes over session losses (RFC 4724 §4.2) and
//! removes routes that a refresh did not confirm (RFC 7313 §4).

use std::collections::{BTreeMap, BTreeSet};

use bgp::{
    Attributes, Family, Message, RefreshKind,
    wire::{self, Context},
};
use ipnet::IpNet;

#[derive(Default)]
pub(crate) struct Neighbour {
    table: BTreeMap<IpNet, Attributes>,
    /// Routes received in an earlier session or before a refresh, and not confirmed since.
    stale: BTreeSet<IpNet>,
    /// Routes received in an earlier session, and not confirmed since.
    old: BTreeSet<IpNet>,
    families: BTreeSet<Family>,
    ended: BTreeSet<Family>,
    refreshing: BTreeSet<Family>,
}

impl Neighbour {
    pub(crate) fn lose(&mut self) {
        self.stale = self.table.keys().copied().collect();
        self.old = self.stale.clone();
        self.families.clear();
        self.refreshing.clear();
    }

    /// Establishes a session. Retained routes of families no longer negotiated are removed (RFC 4724 §4.2).
    pub(crate) fn establish(&mut self, families: &[Family]) {
        self.families = families.iter().copied().collect();
        self.ended.clear();
        let families = &self.families;
        self.table.retain(|prefix, _| families.contains(&Family::of(prefix)));
        self.old.retain(|prefix| families.contains(&Family::of(prefix)));
    }

    pub(crate) fn hear(&mut self, messages: Vec<Message>, context: &Context) {
        for message in messages {
            let bytes = wire::encode(&message, context).unwrap();
            let decoded = wire::decode(&bytes, context).unwrap();
            assert!(decoded.faults.is_empty());
            assert_eq!(decoded.message, message);
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Update(update) => {
                for prefix in &update.withdrawn {
                    assert!(
                        !self.old.contains(prefix) && self.table.contains_key(prefix),
                        "{prefix} was not told"
                    );
                    self.forget(prefix);
                }
                for prefix in update.announced {
                    assert!(self.families.contains(&Family::of(&prefix)));
                    self.stale.remove(&prefix);
                    self.old.remove(&prefix);
                    self.table.insert(prefix, update.attributes.clone().unwrap());
                }
                if let Some(family) = update.end_of_rib {
                    assert!(self.ended.insert(family), "ended once");
                    self.sweep(family);
                }
            }
            Message::Refresh(refresh) => {
                let family = refresh.family.unwrap();
                match refresh.kind {
                    RefreshKind::Begin => {
                        assert!(self.ended.contains(&family), "the first table comes before a refresh");
                        assert!(self.refreshing.insert(family), "one after another");
                        let known = self.table.keys().filter(|prefix| Family::of(prefix) == family);
                        self.stale.extend(known);
                    }
                    RefreshKind::End => {
                        assert!(self.refreshing.remove(&family), "begun before");
                        self.sweep(family);
                    }
                    RefreshKind::Request | RefreshKind::Unknown(_) => panic!("nobody asks"),
                }
            }
            Message::Open(_) | Message::Notification(_) | Message::Keepalive => panic!("no routes"),
        }
    }

    fn forget(&mut self, prefix: &IpNet) {
        self.table.remove(prefix);
        self.stale.remove(prefix);
        self.old.remove(prefix);
    }

    fn sweep(&mut self, family: Family) {
        let swept: Vec<_> =
            self.stale.iter().filter(|prefix| Family::of(prefix) == family).copied().collect();
        swept.iter().for_each(|prefix| self.forget(prefix));
    }

    /// Returns the routes that were received in this session.
    pub(crate) fn heard(&self) -> impl Iterator<Item = (&IpNet, &Attributes)> {
        self.table.iter().filter(|(prefix, _)| !self.old.contains(prefix))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended == self.families && self.refreshing.is_empty()
    }

    pub(crate) const fn table(&self) -> &BTreeMap<IpNet, Attributes> {
        &self.table
    }
}

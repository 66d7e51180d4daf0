//! The routes of one neighbour: what is wanted, with which attributes, and what of it the kernel has taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ::bgp::{
    Family, Message, Role, Update,
    export::{Exports, Route, Towards},
    rib::{RibOut, Terms},
};
use imbl::OrdMap;
use ipnet::IpNet;

use super::{
    next_hop::NextHops,
    shown::{self, Told},
};

/// What the agent wants a neighbour to be told, by prefix.
pub(super) type Wanted = BTreeMap<IpNet, Arc<Route>>;

/// What of a session the attributes depend on, besides next hops.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relation {
    pub(super) local_asn: u32,
    pub(super) is_external: bool,
    pub(super) role: Option<Role>,
}

/// The routes of one neighbour.
#[derive(Debug, Default)]
pub(super) struct Routes {
    wanted: Wanted,
    /// Empty while the session is not established.
    rib: RibOut,
    is_end_held: bool,
    /// While the session is established: how attributes are made.
    exports: Option<Exports>,
    relation: Option<Relation>,
    next_hops: NextHops,
    told: OrdMap<IpNet, Told>,
    /// What was taken of the routes and not by the kernel yet.
    unsent: Vec<Update>,
}

impl Routes {
    pub(super) fn new(wanted: Wanted, is_end_held: bool) -> Self {
        let mut routes = Self { wanted, ..Self::default() };
        routes.hold_end_of_rib(is_end_held);
        routes
    }

    pub(super) fn hold_end_of_rib(&mut self, is_held: bool) {
        self.is_end_held = is_held;
        self.rib.hold_end_of_rib(is_held);
    }

    /// Other routes for some prefixes.
    pub(super) fn change(&mut self, changes: BTreeMap<IpNet, Option<Arc<Route>>>) {
        for (prefix, route) in changes {
            self.set(prefix, route.as_deref());
            match route {
                Some(route) => self.wanted.insert(prefix, route),
                None => self.wanted.remove(&prefix),
            };
        }
    }

    /// Nothing is wanted any longer.
    pub(super) fn withdraw_all(&mut self) {
        for (prefix, _) in std::mem::take(&mut self.wanted) {
            self.set(prefix, None);
        }
    }

    fn set(&mut self, prefix: IpNet, route: Option<&Route>) {
        if let Some(exports) = &mut self.exports {
            let attributes = route.and_then(|route| exports.attributes(Family::of(&prefix), route));
            self.rib.set(prefix, attributes);
        }
    }

    /// The session is established.
    pub(super) fn begin(&mut self, terms: Terms, relation: Relation, next_hops: NextHops) {
        self.end();
        self.relation = Some(relation);
        self.target(next_hops);
        self.rib.begin(terms);
    }

    /// Other next hops, in an established session: what changes is told again.
    pub(super) fn retarget(&mut self, next_hops: NextHops) {
        if self.relation.is_some() && self.next_hops != next_hops {
            self.target(next_hops);
        }
    }

    fn target(&mut self, next_hops: NextHops) {
        let Some(Relation { local_asn, is_external, role }) = self.relation else { return };
        let towards = next_hops.iter().filter_map(|(family, next_hop)| {
            let next_hop = *next_hop.as_ref().ok()?;
            Some((*family, Towards { local_asn, is_external, role, next_hop, is_shutting_down: false }))
        });
        let mut exports = Exports::new(towards.collect());
        for (prefix, route) in &self.wanted {
            self.rib.set(*prefix, exports.attributes(Family::of(prefix), route));
        }
        self.exports = Some(exports);
        self.next_hops = next_hops;
    }

    /// The session is lost.
    pub(super) fn end(&mut self) {
        self.rib = RibOut::default();
        self.rib.hold_end_of_rib(self.is_end_held);
        (self.exports, self.relation) = (None, None);
        self.next_hops.clear();
        self.told.clear();
        self.unsent.clear();
    }

    pub(super) fn refresh(&mut self, family: Family) {
        self.rib.refresh(family);
    }

    /// Messages that are due, of about so many bytes.
    pub(super) fn take(&mut self, bytes_max: usize) -> Vec<Message> {
        let messages = self.rib.take(bytes_max);
        let updates = messages.iter().filter_map(|message| match message {
            Message::Update(update) => Some((**update).clone()),
            Message::Open(_) | Message::Notification(_) | Message::Keepalive | Message::Refresh(_) => None,
        });
        self.unsent.extend(updates);
        messages
    }

    /// The kernel has all that was taken. Answers whether the neighbour was told anything new by it.
    pub(super) fn sent(&mut self) -> bool {
        let now = shown::now();
        let mut is_news = false;
        for Update { withdrawn, announced, attributes, .. } in std::mem::take(&mut self.unsent) {
            for prefix in withdrawn {
                is_news |= self.told.remove(&prefix).is_some();
            }
            let Some(attributes) = attributes.map(Arc::new) else { continue };
            for prefix in announced {
                if self.told.get(&prefix).is_some_and(|told| told.attributes == attributes) {
                    continue;
                }
                self.told.insert(prefix, Told { since: now, attributes: Arc::clone(&attributes) });
                is_news = true;
            }
        }
        is_news
    }

    pub(super) fn has_news(&self) -> bool {
        self.rib.has_news() || !self.unsent.is_empty()
    }

    pub(super) const fn told(&self) -> &OrdMap<IpNet, Told> {
        &self.told
    }

    /// Why routes of a family are not told although both sides exchange them; only where some are wanted.
    pub(super) fn withheld(&self) -> impl Iterator<Item = String> {
        let wanted: BTreeSet<Family> = self.wanted.keys().map(Family::of).collect();
        self.next_hops.iter().filter_map(move |(family, next_hop)| {
            let why = next_hop.as_ref().err().filter(|_| wanted.contains(family))?;
            Some(format!("no {family} routes are announced: {why}"))
        })
    }
}

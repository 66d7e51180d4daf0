//! Routes of one neighbor: the desired routes, their attributes, and the Adj-RIB-Out.

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
    reflection::Reflection,
    status::{self, AdvertisedRoute},
};

/// Maximum number of changed prefixes passed to the RIB per call, so that other neighbors are served as well.
const SETTLED_PER_TURN_MAX: usize = 1024;

/// Desired route of a neighbor by prefix, without the attributes that depend on the session.
pub(super) type DesiredRoutes = BTreeMap<IpNet, Arc<Route>>;

/// Session properties that determine the attributes of routes, except for next hops: AS numbers and role.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relation {
    pub(super) local_asn: u32,
    pub(super) is_external: bool,
    pub(super) role: Option<Role>,
}

/// Routes of one neighbor, from the decision to advertise them until the kernel has accepted their messages.
#[derive(Debug, Default)]
pub(super) struct NeighborRoutes {
    wanted: DesiredRoutes,
    /// Prefixes whose desired route has changed and has not yet been passed to the RIB.
    unsettled: BTreeSet<IpNet>,
    /// Adj-RIB-Out; empty while the session is not established.
    rib: RibOut,
    is_end_held: bool,
    /// Cache of route attributes; `None` while the session is not established.
    exports: Option<Exports>,
    relation: Option<Relation>,
    next_hops: NextHops,
    told: OrdMap<IpNet, AdvertisedRoute>,
    /// Updates returned by [`Self::take`] that the kernel has not yet accepted, so that the neighbor may lack
    /// them.
    unsent: Vec<Update>,
}

impl NeighborRoutes {
    pub(super) fn new(wanted: DesiredRoutes, is_end_held: bool) -> Self {
        let mut routes = Self { wanted, ..Self::default() };
        routes.hold_end_of_rib(is_end_held);
        routes
    }

    pub(super) fn hold_end_of_rib(&mut self, is_held: bool) {
        self.is_end_held = is_held;
        self.rib.hold_end_of_rib(is_held);
    }

    /// Applies changes of the desired routes; `None` withdraws a prefix.
    pub(super) fn change(&mut self, changes: BTreeMap<IpNet, Option<Arc<Route>>>) {
        if self.exports.is_some() {
            self.unsettled.extend(changes.keys());
        }
        for (prefix, route) in changes {
            match route {
                Some(route) => self.wanted.insert(prefix, route),
                None => self.wanted.remove(&prefix),
            };
        }
    }

    /// Handles changes of reflected routes to these prefixes.
    pub(super) fn reflect(&mut self, prefixes: impl IntoIterator<Item = IpNet>) {
        if self.exports.is_some() {
            self.unsettled.extend(prefixes);
        }
    }

    /// Withdraws all routes. Called before the session ends.
    pub(super) fn withdraw_all(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        if self.exports.is_some() {
            self.unsettled.extend(wanted.keys());
            self.unsettled.extend(self.rib.prefixes());
        }
    }

    /// Passes at most [`SETTLED_PER_TURN_MAX`] changed prefixes to the RIB. Routes of this node have precedence over
    /// reflected ones with the same or a lower LOCAL_PREF (RFC 4271 §9.1.2).
    fn settle(&mut self, reflection: &Reflection) {
        let Some(exports) = &mut self.exports else { return };
        for _ in 0..SETTLED_PER_TURN_MAX {
            let Some(prefix) = self.unsettled.pop_first() else { return };
            let own = self.wanted.get(&prefix);
            let own = own.and_then(|route| exports.attributes(Family::of(&prefix), route));
            let wanted = match (own, reflection.attributes(&prefix)) {
                (Some(own), Some(reflected)) if reflected.local_pref > own.local_pref => Some(reflected),
                (own, reflected) => own.or(reflected),
            };
            self.rib.set(prefix, wanted);
        }
    }

    /// Starts to send all routes. Called when the session is established.
    pub(super) fn begin(&mut self, terms: Terms, relation: Relation, next_hops: NextHops) {
        self.end();
        self.relation = Some(relation);
        self.rib.begin(terms);
        self.target(next_hops);
    }

    /// Applies new next hops to an established session; affected routes are sent again.
    pub(super) fn retarget(&mut self, next_hops: NextHops) {
        if self.relation.is_some() && self.next_hops != next_hops {
            self.target(next_hops);
        }
    }

    fn target(&mut self, next_hops: NextHops) {
        let Some(Relation { local_asn, is_external, role }) = self.relation else { return };
        let towards = next_hops.iter().filter_map(|(family, next_hop)| {
            let next_hop = *next_hop.as_ref().ok()?;
            Some((*family, Towards { local_asn, is_external, role, next_hop }))
        });
        self.exports = Some(Exports::new(towards.collect()));
        self.unsettled.extend(self.wanted.keys());
        self.next_hops = next_hops;
    }

    /// Resets the session-specific state. Called when the session is lost; the desired routes are kept.
    pub(super) fn end(&mut self) {
        self.rib = RibOut::default();
        self.rib.hold_end_of_rib(self.is_end_held);
        (self.exports, self.relation) = (None, None);
        self.unsettled.clear();
        self.next_hops.clear();
        self.told.clear();
        self.unsent.clear();
    }

    pub(super) fn refresh(&mut self, family: Family) {
        self.rib.refresh(family);
    }

    /// Returns the next messages to send, of about `bytes_max` bytes in total. Returns no message while
    /// changed prefixes have not been passed to the RIB, so that prefixes with equal attributes share a
    /// message and the End-of-RIB marker comes last.
    pub(super) fn take(&mut self, bytes_max: usize, reflection: &Reflection) -> Vec<Message> {
        self.settle(reflection);
        if !self.unsettled.is_empty() {
            return Vec::new();
        }
        let messages = self.rib.take(bytes_max);
        let updates = messages.iter().filter_map(|message| match message {
            Message::Update(update) => Some((**update).clone()),
            Message::Open(_) | Message::Notification(_) | Message::Keepalive | Message::Refresh(_) => None,
        });
        self.unsent.extend(updates);
        messages
    }

    /// Records that the kernel has accepted all messages returned by [`Self::take`]. Returns true if the
    /// Adj-RIB-Out has changed.
    pub(super) fn sent(&mut self) -> bool {
        let now = status::now();
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
                self.told.insert(prefix, AdvertisedRoute { since: now, attributes: Arc::clone(&attributes) });
                is_news = true;
            }
        }
        is_news
    }

    /// Returns true if changed prefixes have not been passed to the RIB, or the RIB has changes to send, so
    /// that [`Self::take`] should be called.
    pub(super) fn is_due(&self) -> bool {
        !self.unsettled.is_empty() || self.rib.has_news()
    }

    /// Returns true if changes remain to be sent, or the kernel has not yet accepted all messages about
    /// them.
    pub(super) fn has_news(&self) -> bool {
        self.is_due() || !self.unsent.is_empty()
    }

    pub(super) const fn told(&self) -> &OrdMap<IpNet, AdvertisedRoute> {
        &self.told
    }

    /// Returns the reason for each negotiated address family whose routes are not advertised because there is
    /// no next hop.
    pub(super) fn withheld(&self) -> impl Iterator<Item = String> {
        let without =
            self.next_hops.iter().filter_map(|(family, next_hop)| Some((family, next_hop.as_ref().err()?)));
        // Searched only for a family with a problem, because there may be many routes.
        let wanted =
            without.filter(|(family, _)| self.wanted.keys().any(|prefix| Family::of(prefix) == **family));
        wanted.map(|(family, why)| format!("no {family} routes are announced: {why}"))
    }
}

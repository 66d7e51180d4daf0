//! Computes the path attributes of this node's routes for one neighbor (RFC 4271 §5).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    attributes::{
        AsPath, Attributes, Community, ExtendedCommunity, LargeCommunity, NextHop, Origin, Segment,
    },
    capability::Role,
    family::Family,
};

/// Default of `LOCAL_PREF` for internal peers, as usual on routers.
pub const LOCAL_PREF_DEFAULT: u32 = 100;
/// Maximum number of cached attribute sets per neighbor. Few are needed, because attributes differ only
/// between routes of different Advertisement objects.
const REMEMBERED_MAX: usize = 1024;
/// Number of cached attribute sets at which the first cleanup runs. Each later cleanup runs at twice the
/// number of sets then in use, plus this constant.
const SPARE: usize = 16;

/// Route attributes that are configured for a prefix and do not depend on the neighbor.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// `MULTI_EXIT_DISC`, sent to all peers; absent by default.
    pub med: Option<u32>,
    /// `LOCAL_PREF`, sent only to internal peers; [`LOCAL_PREF_DEFAULT`] if `None`.
    pub local_pref: Option<u32>,
    /// Number of additional times that this node's AS number is prepended to the AS path; external peers
    /// only.
    pub prepend: u8,
    /// Communities to send with the route (RFC 1997).
    pub communities: BTreeSet<Community>,
    /// Extended communities to send with the route (RFC 4360).
    pub extended_communities: BTreeSet<ExtendedCommunity>,
    /// Large communities to send with the route (RFC 8092).
    pub large_communities: BTreeSet<LargeCommunity>,
}

/// Properties of a session that determine the attributes of the routes sent to the neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Towards {
    /// AS number of this node towards the neighbor, which is prepended for external peers.
    pub local_asn: u32,
    /// True if the neighbor is in a different AS (EBGP).
    pub is_external: bool,
    /// Configured BGP Role of this node (RFC 9234), which may require the attribute Only to Customer.
    pub role: Option<Role>,
    /// Next hop to send to the neighbor.
    pub next_hop: NextHop,
}

/// Returns the path attributes of a route for a neighbor. `AS_SET` and `ATOMIC_AGGREGATE` are never needed,
/// because aggregates contain only addresses of this cluster.
#[must_use]
pub fn attributes(route: &Route, towards: &Towards) -> Attributes {
    let Route { med, local_pref, prepend, communities, extended_communities, large_communities } = route;
    let Towards { local_asn, is_external, role, next_hop } = *towards;
    Attributes {
        origin: Origin::Igp,
        as_path: if is_external { own_path(local_asn, *prepend) } else { AsPath::default() },
        next_hop,
        med: *med,
        local_pref: (!is_external).then_some(local_pref.unwrap_or(LOCAL_PREF_DEFAULT)),
        is_atomic_aggregate: false,
        aggregator: None,
        communities: communities.clone(),
        originator_id: None,
        cluster_list: Vec::new(),
        extended_communities: extended_communities.clone(),
        large_communities: large_communities.clone(),
        only_to_customer: role.filter(|role| is_external && marks(*role)).map(|_| local_asn),
    }
}

/// Returns an AS path that contains this node's AS number `1 + prepend` times (RFC 4271 §5.1.2).
fn own_path(local_asn: u32, prepend: u8) -> AsPath {
    let count = usize::from(prepend.saturating_add(1));
    AsPath(vec![Segment::Sequence(vec![local_asn; count])])
}

/// Returns true if routes sent in this BGP Role carry the attribute Only to Customer (RFC 9234 §5).
const fn marks(role: Role) -> bool {
    match role {
        Role::Provider | Role::Peer | Role::RouteServer => true,
        Role::Customer | Role::RouteServerClient => false,
    }
}

/// Cache of path attributes for one neighbor. Routes with equal attributes share one set, so that they are
/// packed into the same message.
#[derive(Debug, Clone, Default)]
pub struct Exports {
    towards: BTreeMap<Family, Towards>,
    made: BTreeMap<(Family, Route), Arc<Attributes>>,
    /// Number of attribute sets in use after the last cleanup.
    used: usize,
}

impl Exports {
    /// Creates an empty cache for a neighbor with these negotiated families.
    #[must_use]
    pub const fn new(towards: BTreeMap<Family, Towards>) -> Self {
        Self { towards, made: BTreeMap::new(), used: 0 }
    }

    /// Returns the path attributes of a route, or `None` if the address family was not negotiated with the
    /// neighbor.
    pub fn attributes(&mut self, family: Family, route: &Route) -> Option<Arc<Attributes>> {
        let towards = self.towards.get(&family)?;
        let key = (family, route.clone());
        if let Some(made) = self.made.get(&key) {
            return Some(Arc::clone(made));
        }
        if self.made.len() >= 2 * self.used + SPARE {
            // Attribute sets of changed Advertisements have no other owner.
            self.made.retain(|_, made| Arc::strong_count(made) > 1);
            self.used = self.made.len();
        }
        if self.made.len() >= REMEMBERED_MAX {
            self.made.clear();
            self.used = 0;
        }
        let made = Arc::new(attributes(route, towards));
        self.made.insert(key, Arc::clone(&made));
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn towards(is_external: bool) -> Towards {
        Towards {
            local_asn: 4_200_000_001,
            is_external,
            role: None,
            next_hop: NextHop::V4([192, 0, 2, 1].into()),
        }
    }

    #[test]
    fn other_as_are_told_the_path_and_the_own_one_the_preference() {
        let route = Route { med: Some(50), local_pref: Some(200), prepend: 2, ..Route::default() };
        let outside = attributes(&route, &towards(true));
        assert_eq!(outside.as_path, AsPath(vec![Segment::Sequence(vec![4_200_000_001; 3])]));
        assert_eq!((outside.local_pref, outside.med, outside.origin), (None, Some(50), Origin::Igp));
        let inside = attributes(&route, &towards(false));
        assert_eq!((inside.as_path, inside.local_pref, inside.med), (AsPath::default(), Some(200), Some(50)));
        let plain = attributes(&Route::default(), &towards(false));
        assert_eq!(plain.local_pref, Some(LOCAL_PREF_DEFAULT));
        let longest = attributes(&Route { prepend: u8::MAX, ..route }, &towards(true));
        assert_eq!(longest.as_path, AsPath(vec![Segment::Sequence(vec![4_200_000_001; 255])]));
    }

    #[test]
    fn routes_are_marked_for_those_who_may_not_pass_them_up() {
        let marked = |role, is_external| {
            attributes(&Route::default(), &Towards { role: Some(role), ..towards(is_external) })
                .only_to_customer
        };
        for role in [Role::Provider, Role::Peer, Role::RouteServer] {
            assert_eq!(marked(role, true), Some(4_200_000_001), "{role}");
        }
        for role in [Role::Customer, Role::RouteServerClient] {
            assert_eq!(marked(role, true), None, "{role}");
        }
        assert_eq!(marked(Role::Provider, false), None);
    }

    #[test]
    fn equal_attributes_are_shared_and_foreign_families_have_none() {
        let mut exports = Exports::new([(Family::Ipv4Unicast, towards(true))].into());
        let first = exports.attributes(Family::Ipv4Unicast, &Route::default()).unwrap();
        let again = exports.attributes(Family::Ipv4Unicast, &Route::default()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(exports.attributes(Family::Ipv6Unicast, &Route::default()), None);
    }

    #[test]
    fn attributes_that_no_route_has_are_forgotten_and_those_that_some_have_are_shared() {
        let mut exports = Exports::new([(Family::Ipv4Unicast, towards(true))].into());
        let mut with = |med| {
            let made = exports.attributes(Family::Ipv4Unicast, &Route { med: Some(med), ..Route::default() });
            (made.unwrap(), exports.made.len())
        };
        let held: Vec<_> = (0..40).map(|med| with(med).0).collect();
        for med in 1000..5000 {
            assert!(with(med).1 <= 2 * held.len() + SPARE);
        }
        for (med, held) in (0..).zip(&held) {
            assert!(Arc::ptr_eq(&with(med).0, held), "{med}");
        }
        drop(held);
        for med in 1000..5000 {
            with(med);
        }
        assert!(with(0).1 <= SPARE + 1);
    }
}

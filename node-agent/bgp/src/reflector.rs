//! Route reflector (RFC 4456): routes of the internal peers, the best route of each prefix, and the peers to
//! which it is reflected.
//!
//! ```text
//!   UPDATE of a peer ──▶ announce, withdraw ──▶ routes of each prefix ──▶ best route ──▶ take_changed
//!                                                                             │
//!                          RibOut of every other peer ◀── route(prefix, peer) ┘
//! ```
//! The routes of all peers are kept, and their number is limited ([`ROUTES_MAX`]). Invariants: a route is never
//! sent to the peer that it comes from; a route of a non-client is sent only to clients; the next hop stays that
//! of the originator; and a route that has passed this speaker before is refused (RFC 4456 §8).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    attributes::{Attributes, Community, NextHop},
    export::LOCAL_PREF_DEFAULT,
    family::Family,
    wire::{self, Context},
};

/// Maximum number of routes of all peers together. With two routes for each of 5,000 nodes and two reflectors,
/// 20,000 routes are usual.
pub const ROUTES_MAX: usize = 100_000;

/// Maximum length of an UPDATE with the attributes of a reflected route and without prefixes, in bytes. Longer attributes
/// are refused, so that the memory of the table is limited.
pub const ATTRIBUTES_BYTES_MAX: usize = 1024;

/// Relation of a peer to the route reflector (RFC 4456 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// Client: its routes are reflected to all peers, and it receives the routes of all peers.
    Client,
    /// Non-client: its routes are reflected to clients only, and it receives the routes of clients only.
    NonClient,
}

/// Established session with an internal peer from which routes are reflected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReflectedPeer {
    /// Relation of the peer to the route reflector.
    pub kind: PeerKind,
    /// BGP Identifier of the peer. The peer is the originator of its routes without `ORIGINATOR_ID`.
    pub router_id: Ipv4Addr,
    /// Address of the peer, by which the last tie between routes is broken.
    pub address: IpAddr,
    /// BGP Identifier of this speaker, which is also its cluster ID (RFC 4456 §7).
    pub cluster_id: Ipv4Addr,
    /// AS number of both speakers.
    pub asn: u32,
}

/// Reason why a received route is not reflected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReflectionRefusal {
    /// This speaker has originated the route (RFC 4456 §8, `ORIGINATOR_ID`).
    OwnRoute,
    /// The route has passed this speaker (RFC 4456 §8, `CLUSTER_LIST`).
    ClusterLoop,
    /// The AS path contains the AS of this speaker (RFC 4271 §9).
    AsLoop,
    /// The route has the community `NO_ADVERTISE` (RFC 1997).
    NoAdvertise,
    /// The next hop is unusable for other peers: a link-local address, or of the wrong family.
    NextHop,
    /// The attributes are longer than [`ATTRIBUTES_BYTES_MAX`].
    TooLong,
    /// The table has [`ROUTES_MAX`] routes.
    TableFull,
}

/// Routes of all internal peers of a route reflector. `K` identifies a peer.
#[derive(Debug)]
pub struct Reflector<K> {
    paths: BTreeMap<IpNet, BTreeMap<K, ReflectedRoute>>,
    /// Prefixes of each peer; the sets are never empty.
    prefixes: BTreeMap<K, BTreeSet<IpNet>>,
    routes: usize,
    routes_max: usize,
    changed: BTreeSet<IpNet>,
    /// Peers with routes that were refused because the table was full.
    lacking: BTreeSet<K>,
}

/// Route of one peer.
#[derive(Debug, Clone)]
struct ReflectedRoute {
    /// Attributes of the reflected route: the received ones with `ORIGINATOR_ID` and our cluster ID.
    attributes: Arc<Attributes>,
    peer: ReflectedPeer,
    /// True if the session was lost since, and the route is kept during a graceful restart (RFC 4724 §4.2).
    is_stale: bool,
}

impl<K> Default for Reflector<K> {
    fn default() -> Self {
        Self {
            paths: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            routes: 0,
            routes_max: ROUTES_MAX,
            changed: BTreeSet::new(),
            lacking: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> Reflector<K> {
    /// Creates an empty table with another limit than [`ROUTES_MAX`].
    #[must_use]
    pub fn with_routes_max(routes_max: usize) -> Self {
        Self { routes_max, ..Self::default() }
    }

    /// Stores the routes of an UPDATE. They replace earlier routes of the peer for the same prefixes, also if they
    /// are refused.
    ///
    /// # Errors
    /// Returns the reason why the routes are not reflected. With [`ReflectionRefusal::TableFull`] or [`ReflectionRefusal::NextHop`],
    /// some of the routes may have been stored.
    pub fn announce(
        &mut self,
        from: &K,
        peer: &ReflectedPeer,
        prefixes: &[IpNet],
        attributes: &Attributes,
    ) -> Result<(), ReflectionRefusal> {
        let reflected = reflected(attributes, peer);
        let mut refusal = Ok(());
        for prefix in prefixes {
            let stored = match &reflected {
                Ok(reflected) => {
                    let attributes = Arc::clone(reflected);
                    self.store(
                        from,
                        prefix.trunc(),
                        ReflectedRoute { attributes, peer: *peer, is_stale: false },
                    )
                }
                Err(refusal) => Err(*refusal),
            };
            if let Err(reason) = stored {
                self.withdraw(from, prefix);
                refusal = Err(reason);
            }
        }
        refusal
    }

    /// Removes the route of a peer for a prefix, if there is one.
    pub fn withdraw(&mut self, from: &K, prefix: &IpNet) {
        self.replace(from, prefix.trunc(), None);
    }

    /// Removes all routes of a peer.
    pub fn remove(&mut self, from: &K) {
        for prefix in self.prefixes.get(from).cloned().unwrap_or_default() {
            self.replace(from, prefix, None);
        }
        self.lacking.remove(from);
    }

    /// Keeps the routes of a peer of these families as stale after its session was lost; removes the others, and
    /// those that were stale already, because of the last but one session (RFC 4724 §4.2).
    pub fn retain_stale(&mut self, from: &K, families: &BTreeSet<Family>) {
        for prefix in self.prefixes.get(from).cloned().unwrap_or_default() {
            let path = self.paths.get_mut(&prefix).and_then(|paths| paths.get_mut(from));
            match path {
                Some(path) if !path.is_stale && families.contains(&Family::of(&prefix)) => {
                    path.is_stale = true;
                }
                Some(_) | None => self.replace(from, prefix, None),
            }
        }
    }

    /// Removes the stale routes of a peer of one family: after End-of-RIB, or when the peer has taken too long.
    pub fn remove_stale(&mut self, from: &K, family: Family) {
        for prefix in self.prefixes.get(from).cloned().unwrap_or_default() {
            let path = self.paths.get(&prefix).and_then(|paths| paths.get(from));
            if Family::of(&prefix) == family && path.is_some_and(|path| path.is_stale) {
                self.replace(from, prefix, None);
            }
        }
    }

    /// Returns the attributes with which a prefix is reflected to a peer, or `None` if the best route is not for
    /// that peer (RFC 4456 §6) or there is none.
    #[must_use]
    pub fn route(&self, prefix: &IpNet, to: &K, kind: PeerKind) -> Option<Arc<Attributes>> {
        let (from, path) = best(self.paths.get(prefix)?)?;
        let is_meant = path.peer.kind == PeerKind::Client || kind == PeerKind::Client;
        (from != to && is_meant).then(|| Arc::clone(&path.attributes))
    }

    /// Returns all prefixes in the table.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.paths.keys()
    }

    /// Returns the number of routes of a peer.
    #[must_use]
    pub fn count(&self, from: &K) -> usize {
        self.prefixes.get(from).map_or(0, BTreeSet::len)
    }

    /// Returns true if the best route of a prefix has changed since the last [`Self::take_changed`].
    #[must_use]
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns at most `count_max` prefixes whose best route has changed since they were last returned.
    pub fn take_changed(&mut self, count_max: usize) -> BTreeSet<IpNet> {
        match self.changed.iter().nth(count_max).copied() {
            None => std::mem::take(&mut self.changed),
            Some(first_left) => {
                let left = self.changed.split_off(&first_left);
                std::mem::replace(&mut self.changed, left)
            }
        }
    }

    /// Returns the peers whose refused routes have room in the table now, and forgets them: the caller must request
    /// their routes again (RFC 2918). Returns none before a quarter of the table is free, so that few changes at
    /// the limit cause no further requests.
    pub fn take_lacking(&mut self) -> BTreeSet<K> {
        if self.routes > self.routes_max / 4 * 3 {
            BTreeSet::new()
        } else {
            std::mem::take(&mut self.lacking)
        }
    }

    fn store(&mut self, from: &K, prefix: IpNet, path: ReflectedRoute) -> Result<(), ReflectionRefusal> {
        if !has_next_hop_of(&path.attributes, Family::of(&prefix)) {
            return Err(ReflectionRefusal::NextHop);
        }
        let is_known = self.paths.get(&prefix).is_some_and(|paths| paths.contains_key(from));
        if !is_known && self.routes >= self.routes_max {
            self.lacking.insert(from.clone());
            return Err(ReflectionRefusal::TableFull);
        }
        self.replace(from, prefix, Some(path));
        Ok(())
    }

    /// Sets or removes the route of a peer for a prefix, and records if the best route is another one afterwards.
    fn replace(&mut self, from: &K, prefix: IpNet, path: Option<ReflectedRoute>) {
        let known = self.paths.entry(prefix).or_default();
        let of_best = |paths: &BTreeMap<K, ReflectedRoute>| {
            best(paths).map(|(key, path)| (key.clone(), path.peer.kind, Arc::clone(&path.attributes)))
        };
        let before = of_best(known);
        let is_added = path.is_some();
        let replaced = match path {
            Some(path) => known.insert(from.clone(), path),
            None => known.remove(from),
        };
        if before != of_best(known) {
            self.changed.insert(prefix);
        }
        if known.is_empty() {
            self.paths.remove(&prefix);
        }
        self.routes += usize::from(is_added);
        self.routes -= usize::from(replaced.is_some());
        if is_added {
            self.prefixes.entry(from.clone()).or_default().insert(prefix);
        } else if let Some(prefixes) = self.prefixes.get_mut(from) {
            prefixes.remove(&prefix);
            if prefixes.is_empty() {
                self.prefixes.remove(from);
            }
        }
    }
}

impl fmt::Display for ReflectionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnRoute => "this node has originated the route",
            Self::ClusterLoop => "the route has passed this node (cluster list)",
            Self::AsLoop => "the AS path contains our AS",
            Self::NoAdvertise => "the route has the community no-advertise",
            Self::NextHop => "the next hop is link-local, or of the other address family",
            Self::TooLong => "the attributes are too long",
            Self::TableFull => "the table of reflected routes is full",
        })
    }
}

/// Returns the attributes with which routes of a peer are reflected (RFC 4456 §8 and §10): the received ones, with
/// the originator and our cluster ID. The link-local next hop (RFC 2545) is omitted, because the receivers may be
/// on other links than the originator.
fn reflected(received: &Attributes, peer: &ReflectedPeer) -> Result<Arc<Attributes>, ReflectionRefusal> {
    let ReflectedPeer { kind: _, router_id, address: _, cluster_id, asn } = *peer;
    let originator_id = received.originator_id.unwrap_or(router_id);
    if originator_id == cluster_id {
        return Err(ReflectionRefusal::OwnRoute);
    }
    if received.cluster_list.contains(&cluster_id) {
        return Err(ReflectionRefusal::ClusterLoop);
    }
    if received.as_path.0.iter().any(|segment| segment.numbers().contains(&asn)) {
        return Err(ReflectionRefusal::AsLoop);
    }
    if received.communities.contains(&Community::NO_ADVERTISE) {
        return Err(ReflectionRefusal::NoAdvertise);
    }
    let next_hop = match received.next_hop {
        NextHop::V4(address) => NextHop::V4(address),
        NextHop::V6 { global, link_local: _ } if global.is_unicast_link_local() => {
            return Err(ReflectionRefusal::NextHop);
        }
        NextHop::V6 { global, link_local: _ } => NextHop::V6 { global, link_local: None },
    };
    let reflected = Attributes {
        next_hop,
        local_pref: Some(received.local_pref.unwrap_or(LOCAL_PREF_DEFAULT)),
        originator_id: Some(originator_id),
        cluster_list: std::iter::once(cluster_id).chain(received.cluster_list.iter().copied()).collect(),
        ..received.clone()
    };
    let context = Context { four_octet_as: true, ..Context::default() };
    let length = wire::update_overhead(&reflected, Family::Ipv4Unicast, &context);
    if length > ATTRIBUTES_BYTES_MAX { Err(ReflectionRefusal::TooLong) } else { Ok(Arc::new(reflected)) }
}

/// Returns true if the next hop can be that of prefixes of a family. An UPDATE with prefixes of both families has
/// the next hop of the IPv4 prefixes only.
const fn has_next_hop_of(attributes: &Attributes, family: Family) -> bool {
    match (family, attributes.next_hop) {
        (Family::Ipv4Unicast, NextHop::V4(_) | NextHop::V6 { .. })
        | (Family::Ipv6Unicast, NextHop::V6 { .. }) => true,
        (Family::Ipv6Unicast, NextHop::V4(_)) => false,
    }
}

/// Returns the best route of a prefix (RFC 4271 §9.1.2.2 with RFC 4456 §9), or `None` without routes. All routes
/// are internal, and the metric to the next hop is unknown, so these steps do not apply.
fn best<K>(paths: &BTreeMap<K, ReflectedRoute>) -> Option<(&K, &ReflectedRoute)> {
    if paths.len() < 2 {
        return paths.iter().next();
    }
    let preference = |path: &ReflectedRoute| {
        let Attributes { local_pref, as_path, origin, .. } = &*path.attributes;
        (Reverse(*local_pref), as_path.length(), *origin)
    };
    let highest = paths.values().map(preference).min()?;
    let equal: Vec<_> = paths.iter().filter(|(_, path)| preference(path) == highest).collect();
    // Only routes of the same neighboring AS are compared by MULTI_EXIT_DISC (step c), which is no order of all
    // routes: a route is removed if any other one of its AS is better.
    let exit = |path: &ReflectedRoute| (path.attributes.as_path.neighbor(), path.attributes.med.unwrap_or(0));
    let mut lowest = BTreeMap::new();
    for (neighbor, med) in equal.iter().map(|(_, path)| exit(path)) {
        let least = lowest.entry(neighbor).or_insert(med);
        *least = med.min(*least);
    }
    let is_beaten = |path: &ReflectedRoute| {
        let (neighbor, med) = exit(path);
        lowest.get(&neighbor).is_some_and(|least| *least < med)
    };
    let left = equal.iter().filter(|(_, path)| !is_beaten(path));
    let tie = |path: &ReflectedRoute| {
        let Attributes { originator_id, cluster_list, .. } = &*path.attributes;
        (*originator_id, cluster_list.len(), path.peer.address)
    };
    left.min_by_key(|(_, path)| tie(path)).copied()
}

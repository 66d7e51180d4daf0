//! Part of one neighbor in the route reflector (RFC 4456) of this node: stores the routes of the neighbor, selects
//! those for it, and keeps its routes during a graceful restart.
//!
//! All neighbors share one table ([`SharedTable`]). The lock is held for single operations only, and all tasks run on
//! one thread, so that no neighbor waits for another one.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use ::bgp::{
    Attributes, Family, Update,
    attributes::NextHop,
    reflector::{PeerKind, ReflectedPeer, ReflectionRefusal, Reflector},
    session::{Config, Down, NegotiatedSession},
};
use ipnet::IpNet;
use tokio::sync::Notify;

use super::status::NeighbourKey;

/// Maximum time after the start of a session for which stale routes are kept without an End-of-RIB marker; the usual
/// value of routers.
const STALE_TIME_MAX: Duration = Duration::from_mins(6);

/// Table of the route reflector, shared by the hub and all neighbors.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedTable(Arc<TableState>);

#[derive(Debug, Default)]
struct TableState {
    reflector: Mutex<Reflector<NeighbourKey>>,
    bell: Notify,
}

impl SharedTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, Reflector<NeighbourKey>> {
        self.0.reflector.lock().expect("the lock is not poisoned")
    }

    /// Waits until [`Self::ring`] has been called since the last return. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.0.bell.notified().await;
    }

    /// Wakes the hub, because the best route of a prefix has changed.
    pub(super) fn ring(&self) {
        self.0.bell.notify_one();
    }
}

/// Part of one neighbor in the route reflector.
#[derive(Debug)]
pub(super) struct Reflection {
    key: NeighbourKey,
    table: SharedTable,
    /// Established session that takes part; `None` without a session, for external neighbors, and on nodes that are
    /// no route reflector.
    session: Option<ReflectingSession>,
    /// Time at which the stale routes of the neighbor are removed; `None` if there are none.
    stale_until: Option<Instant>,
    /// Reasons for which routes of this session are not reflected.
    refused: BTreeSet<ReflectionRefusal>,
}

/// Properties of an established session that takes part in route reflection.
#[derive(Debug)]
struct ReflectingSession {
    peer: ReflectedPeer,
    /// True if the neighbor accepts IPv6 next hops of IPv4 routes (RFC 8950).
    takes_ipv6: bool,
    /// Families whose routes the neighbor keeps forwarding during a restart, and its restart time (RFC 4724 §3).
    restart: Option<(BTreeSet<Family>, Duration)>,
}

impl Reflection {
    pub(super) const fn new(key: NeighbourKey, table: SharedTable) -> Self {
        Self { key, table, session: None, stale_until: None, refused: BTreeSet::new() }
    }

    /// Starts with an established session. `kind` is `None` if the session takes no part in route reflection. Stale
    /// routes are kept until End-of-RIB if the neighbor has kept forwarding (RFC 4724 §4.2).
    pub(super) fn begin(
        &mut self,
        kind: Option<PeerKind>,
        config: &Config,
        negotiated: &NegotiatedSession,
        address: IpAddr,
    ) {
        self.refused.clear();
        self.session = kind.filter(|_| !negotiated.is_external).map(|kind| ReflectingSession {
            peer: ReflectedPeer {
                kind,
                router_id: negotiated.peer_router_id,
                address,
                cluster_id: config.router_id,
                asn: config.local_asn,
            },
            takes_ipv6: negotiated.extended_next_hop,
            restart: restart(negotiated),
        });
        if self.stale_until.is_none() {
            return;
        }
        let kept = |family: &Family| {
            let restart = negotiated.graceful_restart.as_ref().filter(|_| self.session.is_some());
            restart.is_some_and(|restart| restart.families.get(family) == Some(&true))
        };
        let lost: Vec<_> = Family::ALL.into_iter().filter(|family| !kept(family)).collect();
        self.remove_stale(&lost);
        self.stale_until = (lost.len() < Family::ALL.len()).then(|| Instant::now() + STALE_TIME_MAX);
    }

    /// Stores the routes of an UPDATE.
    pub(super) fn learn(&mut self, update: &Update) {
        let Some(ReflectingSession { peer, .. }) = &self.session else { return };
        let Update { withdrawn, announced, attributes, end_of_rib: _, foreign: _ } = update;
        let mut table = self.table.lock();
        for prefix in withdrawn {
            table.withdraw(&self.key, prefix);
        }
        if let Some(attributes) = attributes
            && let Err(refusal) = table.announce(&self.key, peer, announced, attributes)
        {
            self.refused.insert(refusal);
        }
        drop(table);
        self.report_changes();
    }

    /// Handles the End-of-RIB marker of the neighbor: routes of the family that are stale still are removed.
    pub(super) fn end_of_rib(&mut self, family: Family) {
        if self.stale_until.is_some() {
            self.remove_stale(&[family]);
        }
    }

    /// Ends the session. The routes of the neighbor are kept for its restart time if a graceful restart was negotiated,
    /// and removed otherwise.
    pub(super) fn end(&mut self, down: &Down) {
        let Some(session) = self.session.take() else { return };
        // Both sides negotiate the same extensions, so that the neighbor keeps our routes if we keep those of it.
        match session.restart.filter(|_| down.peer_keeps_routes) {
            Some((families, time)) => {
                self.table.lock().retain_stale(&self.key, &families);
                self.stale_until = Some(Instant::now() + time);
                self.report_changes();
            }
            None => self.remove(),
        }
    }

    /// Removes all routes of the neighbor, and reflects nothing to it any longer.
    pub(super) fn remove(&mut self) {
        (self.session, self.stale_until) = (None, None);
        self.table.lock().remove(&self.key);
        self.report_changes();
    }

    /// Returns the time at which [`Self::expire`] must be called.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.stale_until
    }

    /// Removes stale routes whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.stale_until.is_some_and(|until| until <= now) {
            self.stale_until = None;
            self.remove_stale(&Family::ALL);
        }
    }

    /// Returns the attributes with which a prefix is reflected to the neighbor, or `None` if it is not.
    pub(super) fn attributes(&self, prefix: &IpNet) -> Option<Arc<Attributes>> {
        let ReflectingSession { peer, takes_ipv6, restart: _ } = self.session.as_ref()?;
        let attributes = self.table.lock().route(prefix, &self.key, peer.kind)?;
        let is_sendable = match (Family::of(prefix), attributes.next_hop) {
            (Family::Ipv4Unicast, NextHop::V6 { .. }) => *takes_ipv6,
            (Family::Ipv4Unicast, NextHop::V4(_)) | (Family::Ipv6Unicast, _) => true,
        };
        is_sendable.then_some(attributes)
    }

    /// Returns all prefixes that may be reflected to the neighbor; none without a session that takes part.
    pub(super) fn prefixes(&self) -> Vec<IpNet> {
        if self.session.is_none() {
            return Vec::new();
        }
        self.table.lock().prefixes().copied().collect()
    }

    /// Returns the number of routes of the neighbor in the table.
    pub(super) fn count(&self) -> usize {
        self.table.lock().count(&self.key)
    }

    /// Returns the reasons for which routes of the neighbor are not reflected.
    pub(super) fn refusals(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|reason| format!("some routes are not reflected: {reason}"))
    }

    /// Forgets the reasons of refusals before the routes of the neighbor are requested again.
    pub(super) fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    fn remove_stale(&self, families: &[Family]) {
        let mut table = self.table.lock();
        for family in families {
            table.remove_stale(&self.key, *family);
        }
        drop(table);
        self.report_changes();
    }

    fn report_changes(&self) {
        if self.table.lock().has_changed() {
            self.table.ring();
        }
    }
}

/// Returns the families whose routes the neighbor keeps forwarding during a restart, and its restart time; `None` if
/// there are no such families.
fn restart(negotiated: &NegotiatedSession) -> Option<(BTreeSet<Family>, Duration)> {
    let restart = negotiated.graceful_restart.as_ref()?;
    let families: BTreeSet<_> =
        restart.families.keys().filter(|family| negotiated.families.contains(family)).copied().collect();
    (!families.is_empty()).then(|| (families, Duration::from_secs(restart.restart_time.into())))
}

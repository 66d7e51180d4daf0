//! State of one listener: its targets, and the connections of each target with their deadline. Shared by the
//! backend, which changes the state, and the tasks that forward traffic.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kernel::netlink::socket::Netlink;
use model::{
    kinds::{
        resource::ServiceKey,
        service::{Protocol, ProxyProtocol},
    },
    primitives::{
        net::IpFamily,
        quantity::{Port, Weight},
    },
    program::{Destination, Frontend, Removal, Target, Targets},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    balance::{Balancer, SharedAffinity},
    desired::Policy,
    failures::Failures,
    listing::ListenerListing,
};
use crate::Traffic;

/// Capacity limits and timeouts of a relay, over all its listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of TCP connections; each takes two descriptors and kernel buffers.
    pub connections_max: usize,
    /// Maximum number of UDP flows; each takes a descriptor.
    pub flows_max: usize,
    /// Time without a datagram in either direction after which a UDP flow ends.
    pub flow_idle: Duration,
}

impl Default for Limits {
    /// Returns limits of 16,384 connections and 8,192 flows. The idle timeout of flows equals the kernel's
    /// default for unreplied flows (`nf_conntrack_udp_timeout`), after which the kernel could no longer
    /// translate a response back to the frontend.
    fn default() -> Self {
        Self { connections_max: 16_384, flows_max: 8_192, flow_idle: Duration::from_secs(30) }
    }
}

/// State that all listeners of one backend share.
pub(super) struct RelayShared {
    pub(super) limits: Limits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) flows: Arc<Semaphore>,
    /// Netlink socket for conntrack requests. Used to read the original destination of redirected datagrams,
    /// and to delete UDP flows that the kernel sends to a former listener of their frontend.
    pub(super) netlink: Mutex<Netlink>,
    pub(super) tally: RelayTally,
}

/// Counters of failures and rejections, over all listeners.
#[derive(Debug, Default)]
pub(super) struct RelayTally {
    pub(super) connections_refused: AtomicU64,
    pub(super) flows_refused: AtomicU64,
    pub(super) strays: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) unplaced: AtomicU64,
    pub(super) datagrams_dropped: AtomicU64,
}

/// Values of the counters of failures and rejections since the backend was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Number of TCP connections closed at once because the limit was reached.
    pub connections_refused: u64,
    /// Number of UDP flows not started because the limit was reached.
    pub flows_refused: u64,
    /// Number of connections and flows that reached a listener without being redirected by the rules of the
    /// relay; connections are reset, datagrams dropped.
    pub strays: u64,
    /// Number of attempts at another target after the selected one did not respond.
    pub retries: u64,
    /// Number of connections and flows for which no target responded.
    pub unplaced: u64,
    /// Number of datagrams dropped because the queue of their flow was full.
    pub datagrams_dropped: u64,
}

impl RelayTally {
    pub(super) fn read(&self) -> RelayCounters {
        let Self { connections_refused, flows_refused, strays, retries, unplaced, datagrams_dropped } = self;
        RelayCounters {
            connections_refused: connections_refused.load(Ordering::Relaxed),
            flows_refused: flows_refused.load(Ordering::Relaxed),
            strays: strays.load(Ordering::Relaxed),
            retries: retries.load(Ordering::Relaxed),
            unplaced: unplaced.load(Ordering::Relaxed),
            datagrams_dropped: datagrams_dropped.load(Ordering::Relaxed),
        }
    }
}

/// Increments a counter by one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Traffic counters of one target of one Service, over all listeners.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) connections: AtomicU64,
    /// Number of datagrams in both directions. The packets of a TCP connection are not visible to a relay and
    /// not counted.
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) active: AtomicU64,
    pub(super) failures: Failures,
}

impl Account {
    pub(super) fn traffic(&self, service: ServiceKey, protocol: Protocol, target: Target) -> Traffic {
        let Self { connections, packets, bytes, active, failures } = self;
        let packets = match protocol {
            Protocol::Tcp | Protocol::Sctp => None,
            Protocol::Udp => Some(packets.load(Ordering::Relaxed)),
        };
        Traffic {
            service,
            protocol,
            target,
            connections: connections.load(Ordering::Relaxed),
            packets,
            bytes: Some(bytes.load(Ordering::Relaxed)),
            active: Some(active.load(Ordering::Relaxed)),
            inactive: None,
            failed: Some(failures.read()),
        }
    }
}

/// State of one target in one listener, with the established connections of the target.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) target: Target,
    pub(super) account: Arc<Account>,
    /// Token whose cancellation terminates the established connections of the target.
    pub(super) cut: CancellationToken,
    active: AtomicU64,
}

impl Seat {
    fn new(target: Target, account: Arc<Account>) -> Self {
        Self { target, account, cut: CancellationToken::new(), active: AtomicU64::new(0) }
    }
}

/// Connection or flow that has been assigned to a target. Counts as active until dropped.
pub(super) struct Assignment {
    pub(super) seat: Arc<Seat>,
    pub(super) address: SocketAddr,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

impl Assignment {
    fn new(seat: Arc<Seat>, original: SocketAddr, proxy_protocol: Option<ProxyProtocol>) -> Self {
        seat.active.fetch_add(1, Ordering::Relaxed);
        seat.account.active.fetch_add(1, Ordering::Relaxed);
        let port = seat.target.port.map_or_else(|| original.port(), Port::get);
        let address = SocketAddr::new(seat.target.address, port);
        Self { seat, address, proxy_protocol }
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.seat.active.fetch_sub(1, Ordering::Relaxed);
        self.seat.account.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of one listener, shared by the backend and the tasks that forward traffic.
pub(super) struct Relay {
    pub(super) frontend: Frontend,
    /// Port at which the listener receives redirected connections.
    pub(super) port: Port,
    pub(super) shared: Arc<RelayShared>,
    /// Token that is canceled when the listener must accept no new connections.
    pub(super) closing: CancellationToken,
    state: Mutex<State>,
}

struct State {
    balancer: Balancer,
    seats: BTreeMap<Target, Arc<Seat>>,
    /// Removed targets that may still have connections, each with the deadline by which these must end;
    /// `None` for no deadline.
    leaving: BTreeMap<Target, (Arc<Seat>, Option<Instant>)>,
    /// Targets that the user drains; they receive no new connections.
    draining: BTreeSet<Target>,
    proxy_protocol: Option<ProxyProtocol>,
    removal: Removal,
}

/// Configuration that a listener must follow.
pub(super) struct ListenerOrders<'a> {
    pub(super) targets: &'a Targets,
    /// Targets that receive no new connections but keep established ones.
    pub(super) tolerated: BTreeSet<Target>,
    pub(super) policy: Policy,
    /// Session affinity of the Service port, with its timeout.
    pub(super) affinity: Option<SharedAffinity>,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
    pub(super) removal: Removal,
    /// Draining targets whose connections may finish regardless of the removal policy, each with the
    /// deadline; `None` for no deadline.
    pub(super) leaving: BTreeMap<Target, Option<Instant>>,
}

impl Relay {
    pub(super) fn new(frontend: Frontend, port: Port, shared: Arc<RelayShared>) -> Self {
        let state = State {
            balancer: Balancer::new(Policy::RoundRobin),
            seats: BTreeMap::new(),
            leaving: BTreeMap::new(),
            draining: BTreeSet::new(),
            proxy_protocol: None,
            removal: Removal::Keep,
        };
        Self { frontend, port, shared, closing: CancellationToken::new(), state: Mutex::new(state) }
    }

    /// Returns the configuration of the listener for a preview.
    pub(super) fn told(&self) -> ListenerListing {
        let State { balancer, proxy_protocol, .. } = &*self.lock();
        balancer.told(*proxy_protocol)
    }

    /// Returns true if this listener serves connections to the address `original`, that is, if the rules
    /// redirect such connections to the listener's port.
    pub(super) fn answers(&self, original: SocketAddr) -> bool {
        let is_destination = match self.frontend.destination {
            Destination::Address(address) => address == original.ip(),
            Destination::AnyLocal(family) => {
                IpFamily::of(original.ip()) == family && !original.ip().is_loopback()
            }
        };
        let port = Port::new(original.port());
        is_destination && port.is_some_and(|port| self.frontend.ports.contains(port))
    }

    /// Applies the wanted configuration, and handles the connections of removed targets: terminates them at
    /// once, or lets them finish. `account` returns the traffic counters of a target. Returns true if
    /// [`Relay::keep_up`] has work to do.
    pub(super) fn follow(
        &self,
        orders: &ListenerOrders<'_>,
        now: Instant,
        mut account: impl FnMut(&Target) -> Arc<Account>,
    ) -> bool {
        let mut state = self.lock();
        let State { balancer, seats, leaving, draining, proxy_protocol, removal } = &mut *state;
        balancer.update(orders.policy, orders.targets, orders.affinity.clone());
        (*proxy_protocol, *removal) = (orders.proxy_protocol, orders.removal);
        for target in orders.targets.keys() {
            // A seat whose connections were terminated cannot be reused.
            let returned =
                leaving.remove(target).map(|(seat, _)| seat).filter(|seat| !seat.cut.is_cancelled());
            seats
                .entry(*target)
                .or_insert_with(|| returned.unwrap_or_else(|| Arc::new(Seat::new(*target, account(target)))));
        }
        let gone = seats.extract_if(.., |target, _| !orders.targets.contains_key(target));
        for (target, seat) in gone {
            let is_tolerated = orders.tolerated.contains(&target) || self.drains(orders, &target);
            let removal = if is_tolerated { Removal::Keep } else { self.effective(orders.removal) };
            leave(leaving, seat, removal, now);
        }
        // A target that drained and is now removed follows the removal policy; a draining one gets the latest
        // deadline.
        for target in draining.extract_if(.., |target| !self.drains(orders, target)) {
            if let Some((seat, _)) = leaving.remove(&target) {
                leave(leaving, seat, self.effective(orders.removal), now);
            }
        }
        for (target, until) in orders.leaving.iter().filter(|(target, _)| self.drains(orders, target)) {
            draining.insert(*target);
            if let Some((_, deadline)) = leaving.get_mut(target) {
                *deadline = *until;
            }
        }
        leaving.retain(|_, (seat, _)| Arc::strong_count(seat) > 1);
        !leaving.is_empty()
    }

    /// Ends all connections according to the removal policy, because the frontend was removed. New
    /// connections are not assigned any more. Returns true if [`Relay::keep_up`] has work to do.
    pub(super) fn dissolve(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let State { balancer, seats, leaving, removal, .. } = &mut *state;
        balancer.update(Policy::RoundRobin, &BTreeMap::new(), None);
        for (_, seat) in std::mem::take(seats) {
            leave(leaving, seat, self.effective(*removal), now);
        }
        self.closing.cancel();
        !leaving.is_empty()
    }

    /// Terminates connections past their deadline. Returns true if removed targets still have connections,
    /// so that the call must be repeated later.
    pub(super) fn keep_up(&self, now: Instant) -> bool {
        let leaving = &mut self.lock().leaving;
        for (seat, deadline) in leaving.values() {
            if deadline.is_some_and(|deadline| deadline <= now) {
                seat.cut.cancel();
            }
        }
        leaving.retain(|_, (seat, _)| Arc::strong_count(seat) > 1);
        !leaving.is_empty()
    }

    /// Selects a target, except those in `excluded`, for a client that connected to the address `original`.
    /// Returns `None` if there is no other target.
    pub(super) fn place(
        &self,
        client: SocketAddr,
        original: SocketAddr,
        excluded: &BTreeSet<Target>,
    ) -> Option<Assignment> {
        let mut state = self.lock();
        let State { balancer, seats, proxy_protocol, .. } = &mut *state;
        let active =
            |target: &Target| seats.get(target).map_or(0, |seat| seat.active.load(Ordering::Relaxed));
        let target = balancer.pick(client, excluded, Instant::now(), active)?;
        let seat = Arc::clone(seats.get(&target)?);
        Some(Assignment::new(seat, original, *proxy_protocol))
    }

    /// Returns true if the user drains the target, so that its connections may finish.
    fn drains(&self, orders: &ListenerOrders<'_>, target: &Target) -> bool {
        match self.frontend.protocol {
            Protocol::Tcp => orders.leaving.contains_key(target),
            Protocol::Udp | Protocol::Sctp => false,
        }
    }

    /// Returns the targets that can receive new connections, with their weights.
    pub(super) fn targets(&self) -> BTreeMap<Target, Weight> {
        self.lock().balancer.targets()
    }

    /// Returns the removal policy that applies to the listener's protocol. UDP flows move to another target
    /// at once, because datagrams belong to no connection that could finish.
    const fn effective(&self, removal: Removal) -> Removal {
        match self.frontend.protocol {
            Protocol::Tcp => removal,
            Protocol::Udp | Protocol::Sctp => Removal::Reset,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the lock is not poisoned")
    }
}

fn leave(
    leaving: &mut BTreeMap<Target, (Arc<Seat>, Option<Instant>)>,
    seat: Arc<Seat>,
    removal: Removal,
    now: Instant,
) {
    let deadline = match removal {
        Removal::Keep => None,
        Removal::Drain(seconds) => Some(now + Duration::from_secs(u64::from(seconds))),
        Removal::Reset => {
            seat.cut.cancel();
            return;
        }
    };
    leaving.insert(seat.target, (seat, deadline));
}

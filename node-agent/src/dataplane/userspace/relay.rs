//! One listener's state: its targets, who is on them, and when they are cut. Shared by the backend, which changes it, and
//! the tasks that carry connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

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

use super::{balance::Balancer, desired::Policy, failures::Failures, listing::Told};
use crate::{dataplane::Traffic, netlink::socket::Netlink};

/// How much a relay may hold, and how patient it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections at one time; each takes two descriptors and buffers of the kernel's.
    pub connections_max: usize,
    /// UDP flows at one time; each takes a descriptor.
    pub flows_max: usize,
    /// How long a UDP flow may be silent in both directions.
    pub flow_idle: Duration,
}

impl Default for Limits {
    /// Room for 16,384 connections and 8,192 flows. Flows live as long as the kernel by default remembers one that was
    /// never answered (`nf_conntrack_udp_timeout`): an answer that comes later could not be translated back.
    fn default() -> Self {
        Self { connections_max: 16_384, flows_max: 8_192, flow_idle: Duration::from_secs(30) }
    }
}

/// What all listeners of one backend share.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) flows: Arc<Semaphore>,
    /// Asks the kernel's connection tracking where captured datagrams were sent to.
    pub(super) netlink: Mutex<Netlink>,
    pub(super) tally: RelayTally,
}

/// What went wrong, and how often.
#[derive(Debug, Default)]
pub(super) struct RelayTally {
    pub(super) connections_refused: AtomicU64,
    pub(super) flows_refused: AtomicU64,
    pub(super) strays: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) unplaced: AtomicU64,
    pub(super) datagrams_dropped: AtomicU64,
}

/// What relays could not carry since the backend was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Connections refused because there were too many.
    pub connections_refused: u64,
    /// UDP flows dropped because there were too many.
    pub flows_refused: u64,
    /// Connections and flows that came to a listener without being captured.
    pub strays: u64,
    /// Attempts at another target after one did not answer.
    pub retries: u64,
    /// Connections and flows that no target took.
    pub unplaced: u64,
    /// Datagrams dropped because a queue was full.
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

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What went to one target of one Service, through whichever listener.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) connections: AtomicU64,
    /// Datagrams; nothing is known about the packets of a TCP connection.
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

/// One target at one listener.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) target: Target,
    pub(super) account: Arc<Account>,
    /// Ends what is established here.
    pub(super) cut: CancellationToken,
    active: AtomicU64,
}

impl Seat {
    fn new(target: Target, account: Arc<Account>) -> Self {
        Self { target, account, cut: CancellationToken::new(), active: AtomicU64::new(0) }
    }
}

/// A connection or flow on a seat, from the choice to its end.
pub(super) struct Placed {
    pub(super) seat: Arc<Seat>,
    pub(super) address: SocketAddr,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

impl Placed {
    fn new(seat: Arc<Seat>, original: SocketAddr, proxy_protocol: Option<ProxyProtocol>) -> Self {
        seat.active.fetch_add(1, Ordering::Relaxed);
        seat.account.active.fetch_add(1, Ordering::Relaxed);
        let port = seat.target.port.map_or_else(|| original.port(), Port::get);
        let address = SocketAddr::new(seat.target.address, port);
        Self { seat, address, proxy_protocol }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.seat.active.fetch_sub(1, Ordering::Relaxed);
        self.seat.account.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One listener.
pub(super) struct Relay {
    pub(super) frontend: Frontend,
    /// Where it listens.
    pub(super) port: Port,
    pub(super) shared: Arc<Shared>,
    /// No new connections are wanted.
    pub(super) closing: CancellationToken,
    state: Mutex<State>,
}

struct State {
    balancer: Balancer,
    seats: BTreeMap<Target, Arc<Seat>>,
    /// Targets that are gone and may have connections, with the time at which these are cut.
    leaving: BTreeMap<Target, (Arc<Seat>, Option<Instant>)>,
    /// Targets that drain because that was asked for.
    draining: BTreeSet<Target>,
    proxy_protocol: Option<ProxyProtocol>,
    removal: Removal,
}

/// What a relay should do.
pub(super) struct Orders<'a> {
    pub(super) targets: &'a Targets,
    /// Targets that new connections may not be given, but established ones may keep.
    pub(super) tolerated: BTreeSet<Target>,
    pub(super) policy: Policy,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
    pub(super) removal: Removal,
    /// Targets whose connections may finish whatever the removal policy says, with the time at which they are cut.
    pub(super) leaving: BTreeMap<Target, Option<Instant>>,
}

impl Relay {
    pub(super) fn new(frontend: Frontend, port: Port, shared: Arc<Shared>) -> Self {
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

    /// What it was told last.
    pub(super) fn told(&self) -> Told {
        let State { balancer, proxy_protocol, .. } = &*self.lock();
        balancer.told(*proxy_protocol)
    }

    /// Whether a connection to this address is one that the capture rules bring here.
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

    /// Takes over what should be, and cuts or lets go what is on targets that are gone. `account` answers the account of
    /// a target. Answers whether [`Relay::keep_up`] has something to do.
    pub(super) fn follow(
        &self,
        orders: &Orders<'_>,
        now: Instant,
        mut account: impl FnMut(&Target) -> Arc<Account>,
    ) -> bool {
        let mut state = self.lock();
        let State { balancer, seats, leaving, draining, proxy_protocol, removal } = &mut *state;
        balancer.update(orders.policy, orders.targets, orders.affinity_seconds);
        (*proxy_protocol, *removal) = (orders.proxy_protocol, orders.removal);
        for target in orders.targets.keys() {
            // One that has been cut is of no use to new connections.
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
        // What drained and is gone now follows the policy; what drains has the time that was asked for last.
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

    /// Ends everything by the removal policy, because the frontend is gone. New connections are no longer placed.
    /// Answers whether [`Relay::keep_up`] has something to do.
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

    /// Cuts what is due; answers whether anything is left to watch.
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

    /// Chooses a target for a client that connected to `original`.
    pub(super) fn place(
        &self,
        client: SocketAddr,
        original: SocketAddr,
        excluded: &BTreeSet<Target>,
    ) -> Option<Placed> {
        let mut state = self.lock();
        let State { balancer, seats, proxy_protocol, .. } = &mut *state;
        let active =
            |target: &Target| seats.get(target).map_or(0, |seat| seat.active.load(Ordering::Relaxed));
        let target = balancer.pick(client, excluded, Instant::now(), active)?;
        let seat = Arc::clone(seats.get(&target)?);
        Some(Placed::new(seat, original, *proxy_protocol))
    }

    /// Whether connections to a target may finish because that was asked for.
    fn drains(&self, orders: &Orders<'_>, target: &Target) -> bool {
        match self.frontend.protocol {
            Protocol::Tcp => orders.leaving.contains_key(target),
            Protocol::Udp | Protocol::Sctp => false,
        }
    }

    /// The targets that a new connection can be given.
    pub(super) fn targets(&self) -> BTreeMap<Target, Weight> {
        self.lock().balancer.targets()
    }

    /// A datagram has no connection that could be finished: flows move at once.
    const fn effective(&self, removal: Removal) -> Removal {
        match self.frontend.protocol {
            Protocol::Tcp => removal,
            Protocol::Udp | Protocol::Sctp => Removal::Reset,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
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

//! State machine of the ARP and NDP announcer, without sockets or clock.
//!
//! ```text
//!             set, links up                 burst of 5, 1.1 s apart        about every minute
//!  (absent)  ───────────────▶ announced ──▶ gratuitous ──────────────────▶ gratuitous ──▶ …
//!      ▲                         │ request ──▶ reply       claim by another ──▶ conflict
//!      └──── withdrawn, down ────┘
//! ```
//! The driver of the machine (the announcer thread) passes in frames, changes and the time, carries out
//! [`L2Output`]s, applies [`Machine::listening`] to every pair in [`Machine::take_changed`], and calls
//! [`Machine::timeout`] at [`Machine::poll_timeout`].

mod counters;
mod frames;
mod hear;
mod limit;
mod places;
mod probe;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

pub use counters::{AddressCounters, DropReason, PortCounters};
use kernel::links::Mac;
use limit::ReplyLimit;
use model::{kinds::advertisement::InterfaceName, primitives::net::IpFamily};
use places::{AddressState, Port};
use probe::Probe;
pub use probe::{PROBE_TIME, ProbeAnswer, ProbeId};

/// Maximum number of addresses that are announced or watched (observed for other announcers).
pub const ADDRESSES_MAX: usize = 65_536;
/// Number of gratuitous announcements in a burst.
pub const BURST_ROUNDS: u32 = 5;
/// Time between the announcements of a burst: five of them take 4.4 s.
pub const BURST_INTERVAL: Duration = Duration::from_millis(1100);
/// Default time between announcements after the burst, ±25 %. The time is shorter than the aging time of
/// switches and neighbor caches.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Age of a received frame, or delay of a repeated announcement, above which the process was paused. Requests
/// of this age are not answered, because another node may have taken over and answered them.
pub const LATE_TIME: Duration = Duration::from_millis(500);
/// Maximum number of addresses announced per [`Machine::timeout`] call, so that requests are answered between
/// two calls.
const ANNOUNCED_PER_TURN_MAX: usize = 256;

/// Desired state of one load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredAddress {
    /// Names of the interfaces on which the address is announced, or watched for other announcers. An
    /// interface that does not exist yet is used as soon as it appears.
    pub interfaces: BTreeSet<InterfaceName>,
    /// Duty of this node for the address: announce it, or only observe other announcers.
    pub duty: Duty,
}

/// Mode of a desired address: announced by this node, or only observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Announce the address, answer requests, and report conflicts.
    Announce,
    /// Do not announce the address or answer requests for it; only report other stations that announce it.
    Watch,
}

/// Observation that another station announces an address which this node announces or watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L2Conflict {
    /// Load balancer address that the other station announces.
    pub address: IpAddr,
    /// MAC address of the other station.
    pub mac: Mac,
    /// Name of the interface on which the announcement was received.
    pub interface: String,
}

/// Action that the driver of the machine (the announcer thread) has to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum L2Output {
    /// Send a frame on the socket of this interface and family.
    Send {
        /// Index of the interface.
        index: u32,
        /// Address family, which selects the socket.
        family: IpFamily,
        /// Bytes of the Ethernet frame.
        frame: Vec<u8>,
    },
    /// Another station announces an address that this node announces or watches. Reported once per second for
    /// each station and interface.
    Conflict(L2Conflict),
    /// Final result of a probe started by [`Machine::probe`].
    Probed(ProbeId, ProbeAnswer),
}

/// Frames that an interface must receive for an address. Determines the socket, its filter and the multicast
/// group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// No frames are needed for the address on this interface.
    No,
    /// Only broadcasts and multicasts to all nodes are needed, to observe other announcers of the address.
    Overheard,
    /// Requests for the address are needed as well, to reply to them: its solicited-node multicast group is
    /// joined.
    Answered,
}

/// Timing parameters of the announcer.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Time between announcements after the burst, varied by ±25 %.
    pub refresh_interval: Duration,
    /// Seed of the pseudo-random numbers for the ±25 % variation.
    pub random: u64,
}

/// State machine of the ARP and NDP announcer; see the module documentation.
#[derive(Debug)]
pub struct Machine {
    timing: Timing,
    ports: BTreeMap<u32, Port>,
    indexes: BTreeMap<String, u32>,
    /// MAC addresses of all interfaces of this machine, to recognize frames sent by it.
    own_macs: BTreeSet<Mac>,
    held: BTreeMap<IpAddr, AddressState>,
    /// Addresses to announce or watch by interface name, including interfaces that do not exist yet.
    wanted_on: BTreeMap<InterfaceName, BTreeSet<IpAddr>>,
    /// Schedule of announcements: time, interface index and address of each.
    due: BTreeSet<(Instant, u32, IpAddr)>,
    probes: BTreeMap<ProbeId, Probe>,
    probes_due: BTreeSet<(Instant, ProbeId)>,
    probed: BTreeMap<IpAddr, BTreeSet<ProbeId>>,
    replies: ReplyLimit,
    changed: BTreeSet<(u32, IpAddr)>,
    outputs: Vec<L2Output>,
}

impl Machine {
    /// Creates a state machine without interfaces or addresses.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            ports: BTreeMap::new(),
            indexes: BTreeMap::new(),
            own_macs: BTreeSet::new(),
            held: BTreeMap::new(),
            wanted_on: BTreeMap::new(),
            due: BTreeSet::new(),
            probes: BTreeMap::new(),
            probes_due: BTreeSet::new(),
            probed: BTreeMap::new(),
            replies: ReplyLimit::default(),
            changed: BTreeSet::new(),
            outputs: Vec::new(),
        }
    }

    /// Changes the desired state of addresses; `None` withdraws an address at once. Unchanged addresses are
    /// not announced again. Returns the addresses rejected because of [`ADDRESSES_MAX`].
    pub fn set(
        &mut self,
        changes: BTreeMap<IpAddr, Option<DesiredAddress>>,
        now: Instant,
    ) -> BTreeSet<IpAddr> {
        let mut refused = BTreeSet::new();
        for (address, wanted) in changes {
            if wanted.is_some() && !self.held.contains_key(&address) && self.held.len() == ADDRESSES_MAX {
                refused.insert(address);
                continue;
            }
            self.want(address, wanted, now);
        }
        refused
    }

    /// Announces an address again, with a full burst of five announcements on each of its interfaces. Returns
    /// false if the address is not announced.
    pub fn announce_again(&mut self, address: IpAddr, now: Instant) -> bool {
        let Some(held) = self.held.get_mut(&address) else { return false };
        let mut is_announced = false;
        for (index, schedule) in &mut held.places {
            if let Some(schedule) = schedule {
                self.due.remove(&(schedule.next, *index, address));
                *schedule = places::Schedule::begin(now);
                self.due.insert((now, *index, address));
                is_announced = true;
            }
        }
        is_announced
    }

    /// Ends the current burst of an address. An announcement that has not been sent at all is still sent once;
    /// the next one follows after the refresh interval.
    pub fn quiet(&mut self, address: IpAddr, now: Instant) {
        let refresh = self.refresh_after();
        let Some(held) = self.held.get_mut(&address) else { return };
        for (index, schedule) in &mut held.places {
            if let Some(schedule) = schedule {
                self.due.remove(&(schedule.next, *index, address));
                schedule.end_burst(now + refresh);
                self.due.insert((schedule.next, *index, address));
            }
        }
    }

    /// Returns the time at which [`Self::timeout`] must be called, or `None` if nothing is scheduled.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let announcement = self.due.first().map(|(at, ..)| *at);
        let probe = self.probes_due.first().map(|(at, _)| *at);
        announcement.into_iter().chain(probe).min()
    }

    /// Sends the announcements and probes that are scheduled for `now` or earlier. A call sends a limited
    /// number of announcements; for the others, the function must be called again at once.
    pub fn timeout(&mut self, now: Instant) {
        self.run_probes(now);
        for _ in 0..ANNOUNCED_PER_TURN_MAX {
            let Some((at, index, address)) = self.due.first().copied().filter(|(at, ..)| *at <= now) else {
                return;
            };
            self.due.remove(&(at, index, address));
            self.announce(address, index, now);
        }
    }

    /// Sends one gratuitous announcement of an address on an interface and schedules the next announcement. A
    /// repeated announcement that is late is postponed, because the process was paused and another node may
    /// have taken over.
    fn announce(&mut self, address: IpAddr, index: u32, now: Instant) {
        let refresh = self.refresh_after();
        let Some(held) = self.held.get_mut(&address) else { return };
        let (Some(Some(schedule)), Some(port)) = (held.places.get_mut(&index), self.ports.get_mut(&index))
        else {
            return;
        };
        let is_late = now > schedule.next + LATE_TIME && !schedule.is_first();
        let pause = if is_late { BURST_INTERVAL } else { schedule.step(refresh) };
        schedule.next = now + pause;
        self.due.insert((schedule.next, index, address));
        if is_late {
            return;
        }
        // The next announcement of another station is a reaction to this one.
        held.told.1.clear();
        let family = IpFamily::of(address);
        for frame in frames::gratuitous(address, port.mac) {
            held.counters.gratuitous += 1;
            port.counters.gratuitous += 1;
            self.outputs.push(L2Output::Send { index, family, frame: frame.render() });
        }
        held.counters.last_gratuitous = Some(now);
    }

    /// Returns the refresh interval with random variation, so that addresses set at the same time are later
    /// announced at different times.
    fn refresh_after(&mut self) -> Duration {
        self.timing.random = self
            .timing
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The upper bits of this generator are the random ones.
        let share = u32::try_from(self.timing.random >> 54).unwrap_or_default();
        let interval = self.timing.refresh_interval;
        interval * 3 / 4 + interval * share / 2048
    }

    /// Returns the actions collected since the last call, in order.
    pub fn take_outputs(&mut self) -> Vec<L2Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the interfaces and addresses for which [`Self::listening`] may have changed since the last
    /// call.
    pub fn take_changed(&mut self) -> BTreeSet<(u32, IpAddr)> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the frames that an interface must receive for an address.
    #[must_use]
    pub fn listening(&self, index: u32, address: IpAddr) -> Listening {
        match self.held.get(&address).and_then(|held| held.places.get(&index)) {
            Some(Some(_)) => Listening::Answered,
            Some(None) => Listening::Overheard,
            None if self.is_probed_on(address, index) => Listening::Overheard,
            None => Listening::No,
        }
    }

    /// Counts a frame on this interface that the kernel did not accept for sending.
    pub fn not_sent(&mut self, index: u32) {
        if let Some(port) = self.ports.get_mut(&index) {
            port.counters.not_sent += 1;
        }
    }

    /// Returns the counters of each address since it was first set.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &AddressCounters)> {
        self.held.iter().map(|(address, held)| (*address, &held.counters))
    }

    /// Returns the index, the name and the counters of each interface since it came up.
    pub fn interfaces(&self) -> impl Iterator<Item = (u32, &str, &PortCounters)> {
        self.ports.iter().map(|(index, port)| (*index, port.name.as_str(), &port.counters))
    }
}

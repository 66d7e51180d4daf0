//! What an announcer says and when, as a machine without sockets and clock.
//!
//! ```text
//!             set, links up                 burst of 5, 1.1 s apart        every minute or so
//!  (nothing) ───────────────▶ announced ──▶ gratuitous ──────────────────▶ gratuitous ──▶ …
//!      ▲                         │ question ──▶ reply      another's claim ──▶ conflict
//!      └──── withdrawn, down ────┘
//! ```
//! Whoever runs it hands over frames, changes and the time, carries out [`Output`]s, listens as [`Machine::listening`] says
//! for every pair in [`Machine::take_changed`], and calls [`Machine::timeout`] at [`Machine::poll_timeout`].

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

pub use counters::{AddressCounters, Dropped, PortCounters};
use limit::ReplyLimit;
use model::{kinds::advertisement::InterfaceName, primitives::net::IpFamily};
use places::{Held, Port};
use probe::Probe;
pub use probe::{PROBE_TIME, ProbeAnswer, ProbeId};

use crate::links::Mac;

/// Addresses that are announced or watched at once.
pub const ADDRESSES_MAX: usize = 65_536;
/// Rounds of a burst of gratuitous announcements.
pub const BURST_ROUNDS: u32 = 5;
/// Time between the rounds of a burst: five fit into five seconds.
pub const BURST_INTERVAL: Duration = Duration::from_millis(1100);
/// Time between announcements after the burst, give or take a quarter, unless set otherwise: shorter than the time after
/// which switches and neighbours forget.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Addresses announced in one turn, so that questions are answered between.
const ANNOUNCED_PER_TURN_MAX: usize = 256;

/// What is wanted of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The interfaces, by name; those that do not exist yet count when they come.
    pub interfaces: BTreeSet<InterfaceName>,
    /// What is done there.
    pub duty: Duty,
}

/// What is done about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// It is announced, questions about it are answered, and others who announce it are told of.
    Announce,
    /// Others who announce it are told of, nothing else.
    Watch,
}

/// Somebody else announces an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Who announces it.
    pub mac: Mac,
    /// Where it was heard.
    pub interface: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A frame is to be sent.
    Send {
        /// The index of the interface.
        index: u32,
        /// The family, which tells the socket.
        family: IpFamily,
        /// The bytes.
        frame: Vec<u8>,
    },
    /// Somebody else announces an address of ours; said once a second for each station and interface.
    Conflict(Conflict),
    /// A probe has ended.
    Probed(ProbeId, ProbeAnswer),
}

/// How an interface listens for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// Not.
    No,
    /// To what others say to everybody.
    Overheard,
    /// As one who is asked: with the multicast group at which the address is asked for.
    Answered,
}

/// What is set once.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Time between announcements after the burst, give or take a quarter.
    pub refresh_interval: Duration,
    /// Where the jitter begins.
    pub random: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Machine {
    timing: Timing,
    ports: BTreeMap<u32, Port>,
    indexes: BTreeMap<String, u32>,
    /// What our own frames come from, on whatever interface they are heard.
    own_macs: BTreeSet<Mac>,
    held: BTreeMap<IpAddr, Held>,
    /// The addresses wanted on an interface, whether it exists or not.
    wanted_on: BTreeMap<InterfaceName, BTreeSet<IpAddr>>,
    /// When which address is announced where.
    due: BTreeSet<(Instant, u32, IpAddr)>,
    probes: BTreeMap<ProbeId, Probe>,
    probes_due: BTreeSet<(Instant, ProbeId)>,
    probed: BTreeMap<IpAddr, BTreeSet<ProbeId>>,
    replies: ReplyLimit,
    changed: BTreeSet<(u32, IpAddr)>,
    outputs: Vec<Output>,
}

impl Machine {
    /// A machine that knows of no interface and announces nothing.
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

    /// Changes what is wanted of addresses; none ends it at once. What stays as it was is not announced anew. Answers the
    /// addresses that were beyond [`ADDRESSES_MAX`] and are not taken.
    pub fn set(&mut self, changes: BTreeMap<IpAddr, Option<Wanted>>, now: Instant) -> BTreeSet<IpAddr> {
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

    /// Announces an address anew, with a whole burst, on all its interfaces. Answers whether it is announced at all.
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

    /// When [`Self::timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let announcement = self.due.first().map(|(at, ..)| *at);
        let probe = self.probes_due.first().map(|(at, _)| *at);
        announcement.into_iter().chain(probe).min()
    }

    /// Does what is due. Bounded: what is left over is due at once again.
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

    /// One round of gratuitous announcements of one address on one interface.
    fn announce(&mut self, address: IpAddr, index: u32, now: Instant) {
        let refresh = self.refresh_after();
        let Some(held) = self.held.get_mut(&address) else { return };
        let (Some(Some(schedule)), Some(port)) = (held.places.get_mut(&index), self.ports.get_mut(&index))
        else {
            return;
        };
        let pause = schedule.step(refresh);
        schedule.next = now + pause;
        self.due.insert((schedule.next, index, address));
        let family = IpFamily::of(address);
        for frame in frames::gratuitous(address, port.mac) {
            held.counters.gratuitous += 1;
            port.counters.gratuitous += 1;
            self.outputs.push(Output::Send { index, family, frame: frame.render() });
        }
        held.counters.last_gratuitous = Some(now);
    }

    /// The time to the next announcement after a burst. Addresses that came together drift apart.
    fn refresh_after(&mut self) -> Duration {
        self.timing.random = self
            .timing
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The upper bits of such a sequence are the random ones.
        let share = u32::try_from(self.timing.random >> 54).unwrap_or_default();
        let interval = self.timing.refresh_interval;
        interval * 3 / 4 + interval * share / 2048
    }

    /// What is to be done since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The interfaces and addresses for which [`Self::listening`] may differ from what it was at the last call.
    pub fn take_changed(&mut self) -> BTreeSet<(u32, IpAddr)> {
        std::mem::take(&mut self.changed)
    }

    /// How an interface listens for an address.
    #[must_use]
    pub fn listening(&self, index: u32, address: IpAddr) -> Listening {
        match self.held.get(&address).and_then(|held| held.places.get(&index)) {
            Some(Some(_)) => Listening::Answered,
            Some(None) => Listening::Overheard,
            None if self.is_probed_on(address, index) => Listening::Overheard,
            None => Listening::No,
        }
    }

    /// A frame could not be sent.
    pub fn not_sent(&mut self, index: u32) {
        if let Some(port) = self.ports.get_mut(&index) {
            port.counters.not_sent += 1;
        }
    }

    /// What was counted for each address since it was first wanted.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &AddressCounters)> {
        self.held.iter().map(|(address, held)| (*address, &held.counters))
    }

    /// What was counted for each interface since it came: index, name, counters.
    pub fn interfaces(&self) -> impl Iterator<Item = (u32, &str, &PortCounters)> {
        self.ports.iter().map(|(index, port)| (*index, port.name.as_str(), &port.counters))
    }
}

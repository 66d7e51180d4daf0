//! Assigns addresses to interfaces: maps the configured interface names to existing interfaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::links::{Link, Links, Mac};

use super::{AddressCounters, BURST_INTERVAL, BURST_ROUNDS, DesiredAddress, Duty, Machine, PortCounters};

/// Interface that is up and has an Ethernet address, so that the announcer can send frames on it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) mac: Mac,
    pub(super) counters: PortCounters,
}

/// Desired state, schedule and counters of one address.
#[derive(Debug)]
pub(super) struct AddressState {
    pub(super) wanted: DesiredAddress,
    /// Indexes of the existing interfaces, with the announcement schedule of the address on each; `None` if
    /// the address is only watched for other announcers.
    pub(super) places: BTreeMap<u32, Option<Schedule>>,
    pub(super) counters: AddressCounters,
    /// Start of the current one-second interval of conflict reports, and the stations and interfaces already
    /// reported in it.
    pub(super) told: (Option<Instant>, BTreeSet<(Mac, u32)>),
}

/// Schedule of the gratuitous announcements of an address on one interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) next: Instant,
    rounds_left: u32,
}

impl Schedule {
    pub(super) fn begin(now: Instant) -> Self {
        Self { next: now, rounds_left: BURST_ROUNDS }
    }

    /// Counts one announcement and returns the time until the next one: [`BURST_INTERVAL`] within the burst,
    /// `refresh` after it.
    pub(super) fn step(&mut self, refresh: Duration) -> Duration {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        if self.rounds_left > 0 { BURST_INTERVAL } else { refresh }
    }

    /// Returns true if no announcement of the burst has been sent.
    pub(super) fn is_first(&self) -> bool {
        self.rounds_left == BURST_ROUNDS
    }

    /// Ends the burst, after its first announcement if this has not been sent. The next announcement follows at
    /// `refresh_at`.
    pub(super) fn end_burst(&mut self, refresh_at: Instant) {
        if self.is_first() {
            self.rounds_left = 1;
        } else {
            (self.rounds_left, self.next) = (0, refresh_at);
        }
    }
}

impl Machine {
    pub(super) fn want(&mut self, address: IpAddr, wanted: Option<DesiredAddress>, now: Instant) {
        let mut held = match (self.held.remove(&address), &wanted) {
            (Some(held), _) => held,
            (None, None) => return,
            (None, Some(wanted)) => AddressState {
                wanted: DesiredAddress { interfaces: BTreeSet::new(), duty: wanted.duty },
                places: BTreeMap::new(),
                counters: AddressCounters::default(),
                told: (None, BTreeSet::new()),
            },
        };
        let old = std::mem::take(&mut held.wanted.interfaces);
        for name in &old {
            if let Some(on) = self.wanted_on.get_mut(name) {
                on.remove(&address);
                if on.is_empty() {
                    self.wanted_on.remove(name);
                }
            }
        }
        let Some(wanted) = wanted else {
            for (index, schedule) in held.places {
                self.leave(address, index, schedule);
            }
            return;
        };
        for name in &wanted.interfaces {
            self.wanted_on.entry(name.clone()).or_default().insert(address);
        }
        held.wanted = wanted;
        self.held.insert(address, held);
        self.place(address, now);
    }

    /// Updates the interfaces on which an address is announced. Announcements on unchanged interfaces
    /// continue as scheduled.
    fn place(&mut self, address: IpAddr, now: Instant) {
        let Some(held) = self.held.get_mut(&address) else { return };
        let names = held.wanted.interfaces.iter();
        let here: BTreeSet<u32> = names.filter_map(|name| self.indexes.get(name.as_str()).copied()).collect();
        let is_announced = held.wanted.duty == Duty::Announce;
        let mut left = Vec::new();
        held.places.retain(|index, schedule| {
            let stays = here.contains(index) && schedule.is_some() == is_announced;
            if !stays {
                left.push((*index, *schedule));
            }
            stays
        });
        let mut new = Vec::new();
        for index in here {
            held.places.entry(index).or_insert_with(|| {
                new.push(index);
                is_announced.then(|| Schedule::begin(now))
            });
        }
        for (index, schedule) in left {
            self.leave(address, index, schedule);
        }
        for index in new {
            self.changed.insert((index, address));
            if is_announced {
                self.due.insert((now, index, address));
            }
        }
    }

    fn leave(&mut self, address: IpAddr, index: u32, schedule: Option<Schedule>) {
        self.changed.insert((index, address));
        if let Some(schedule) = schedule {
            self.due.remove(&(schedule.next, index, address));
        }
    }

    /// Applies the current interfaces. All addresses are announced again on an interface that comes up or
    /// gets another name or Ethernet address; other interfaces are unaffected.
    pub fn links(&mut self, links: &Links, now: Instant) {
        self.own_macs = links.by_index.values().filter_map(|link| link.mac).collect();
        let is_same = |index: u32, port: &Port| {
            let link = links.by_index.get(&index);
            link.is_some_and(|link| usable(link) == Some(port.mac) && link.name == port.name)
        };
        let gone: Vec<u32> = self
            .ports
            .iter()
            .filter(|(index, port)| !is_same(**index, port))
            .map(|(index, _)| *index)
            .collect();
        for index in gone {
            self.lose(index, now);
        }
        for (index, link) in &links.by_index {
            let Some(mac) = usable(link).filter(|_| !self.ports.contains_key(index)) else { continue };
            let port = Port { name: link.name.clone(), mac, counters: PortCounters::default() };
            self.ports.insert(*index, port);
            self.indexes.insert(link.name.clone(), *index);
            for address in self.addresses_wanted_on(&link.name) {
                self.place(address, now);
            }
        }
    }

    fn lose(&mut self, index: u32, now: Instant) {
        let Some(port) = self.ports.remove(&index) else { return };
        if self.indexes.get(&port.name) == Some(&index) {
            self.indexes.remove(&port.name);
        }
        for address in self.addresses_wanted_on(&port.name) {
            self.place(address, now);
        }
    }

    fn addresses_wanted_on(&self, name: &str) -> Vec<IpAddr> {
        let found = self.wanted_on.iter().find(|(wanted, _)| wanted.as_str() == name);
        found.map(|(_, addresses)| addresses.iter().copied().collect()).unwrap_or_default()
    }
}

/// Returns the Ethernet address of an interface, or `None` if the interface is down or has no Ethernet
/// address.
fn usable(link: &Link) -> Option<Mac> {
    link.mac.filter(|mac| link.is_up && mac.is_unicast())
}

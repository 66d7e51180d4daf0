//! Probes for other users of an address as in RFC 5227 §2.1.1, but with shorter intervals: within a site,
//! replies arrive within milliseconds, and the address is unavailable during the probe.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::links::Mac;
use model::{kinds::advertisement::InterfaceName, primitives::net::IpFamily};

use super::{L2Output, Machine, frames};

/// Time after which a probe without reply ends.
pub const PROBE_TIME: Duration = Duration::from_millis(300);
/// Time between two requests of a probe, and between the last request and the result.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of requests that a probe sends on each interface.
const PROBE_ROUNDS: u32 = 3;
/// Maximum number of concurrent probes. Further probes return [`ProbeAnswer::Unknown`].
const PROBES_MAX: usize = 4096;

/// Identifier of a probe, chosen by the caller, by which the result is matched to the request.
pub type ProbeId = u64;

/// Result of a probe for other users of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// No station replied on any of the interfaces.
    Silent,
    /// Another station replied for the address on one of the interfaces.
    Taken {
        /// MAC address of the station.
        mac: Mac,
        /// Interface on which the station replied.
        interface: String,
    },
    /// No interface could be probed, or there are too many concurrent probes.
    Unknown,
}

/// Probe in progress for one address.
#[derive(Debug)]
pub(super) struct Probe {
    address: IpAddr,
    indexes: BTreeSet<u32>,
    rounds_left: u32,
    next: Instant,
}

impl Machine {
    /// Starts a probe for other users of an address. The result is reported as [`L2Output::Probed`].
    pub fn probe(
        &mut self,
        id: ProbeId,
        address: IpAddr,
        interfaces: &BTreeSet<InterfaceName>,
        now: Instant,
    ) {
        let names = interfaces.iter();
        let indexes: BTreeSet<u32> =
            names.filter_map(|name| self.indexes.get(name.as_str()).copied()).collect();
        if indexes.is_empty() || self.probes.len() == PROBES_MAX {
            self.outputs.push(L2Output::Probed(id, ProbeAnswer::Unknown));
            return;
        }
        self.changed.extend(indexes.iter().map(|index| (*index, address)));
        self.probed.entry(address).or_default().insert(id);
        self.probes.insert(id, Probe { address, indexes, rounds_left: PROBE_ROUNDS, next: now });
        self.probes_due.insert((now, id));
    }

    pub(super) fn run_probes(&mut self, now: Instant) {
        while let Some((at, id)) = self.probes_due.first().copied().filter(|(at, _)| *at <= now) {
            self.probes_due.remove(&(at, id));
            let Some(probe) = self.probes.get_mut(&id) else { continue };
            let here: Vec<(u32, Mac)> = probe
                .indexes
                .iter()
                .filter_map(|index| self.ports.get(index).map(|port| (*index, port.mac)))
                .collect();
            if here.is_empty() {
                self.end_probe(id, ProbeAnswer::Unknown);
                continue;
            }
            if probe.rounds_left == 0 {
                self.end_probe(id, ProbeAnswer::Silent);
                continue;
            }
            probe.rounds_left -= 1;
            probe.next = now + PROBE_INTERVAL;
            self.probes_due.insert((probe.next, id));
            let (address, family) = (probe.address, IpFamily::of(probe.address));
            for (index, mac) in here {
                let frame = frames::probe(address, mac).render();
                self.outputs.push(L2Output::Send { index, family, frame });
            }
        }
    }

    pub(super) fn is_probed_on(&self, address: IpAddr, index: u32) -> bool {
        let probes = self.probed.get(&address).into_iter().flatten();
        probes.filter_map(|id| self.probes.get(id)).any(|probe| probe.indexes.contains(&index))
    }

    /// Ends the probes of an address to which a station has replied. Returns true if there were any.
    pub(super) fn answer_probes(&mut self, address: IpAddr, mac: Mac, index: u32, interface: &str) -> bool {
        let waiting = self.probed.get(&address).into_iter().flatten().copied();
        let asked_here = |id: &u64| self.probes.get(id).is_some_and(|probe| probe.indexes.contains(&index));
        let answered: Vec<_> = waiting.filter(asked_here).collect();
        for id in &answered {
            self.end_probe(*id, ProbeAnswer::Taken { mac, interface: interface.to_owned() });
        }
        !answered.is_empty()
    }

    fn end_probe(&mut self, id: ProbeId, answer: ProbeAnswer) {
        let Some(probe) = self.probes.remove(&id) else { return };
        let Probe { address, indexes, rounds_left: _, next } = probe;
        self.probes_due.remove(&(next, id));
        if let Some(waiting) = self.probed.get_mut(&address) {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.probed.remove(&address);
            }
        }
        self.changed.extend(indexes.into_iter().map(|index| (index, address)));
        self.outputs.push(L2Output::Probed(id, answer));
    }
}

//! What flows carry and how many are open, by frontend and target: sums over readings of the kernel's table. Pure.
//!
//! The kernel counts by flow (`nf_conntrack_acct`), and forgets a count with its flow. What a flow carried since the reading
//! before is added to a sum that never falls; only what it carried after its last reading is missed. An entry outlives its
//! connection by ten seconds or more (`nf_conntrack_tcp_timeout_close` and its siblings), which is the time between readings,
//! so that short connections are counted whole unless the table is full or readings are rare because it is huge.
//! What flows had carried before the first reading belongs to whoever counted then.

use std::collections::BTreeMap;

use model::program::{Frontend, Target};

use super::Flow;

/// Flows whose counts are remembered from one reading to the next: the largest default of `nf_conntrack_max`, some 16 MB.
/// What further ones carry is not counted, but that they are open is.
pub const FLOWS_KEPT_MAX: usize = 262_144;

/// What tells a flow from others that live at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// The kernel's number of the entry, which is a hash.
    pub id: u32,
    /// The client's port, so that two with the same hash are told apart.
    pub client_port: u16,
    /// The port of the target.
    pub target_port: u16,
}

/// What was carried, in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Bytes, with headers from the network layer up.
    pub bytes: u64,
}

impl Carried {
    /// Adds what else was carried.
    pub fn add(&mut self, other: &Self) {
        let Self { packets, bytes } = other;
        self.packets = self.packets.saturating_add(*packets);
        self.bytes = self.bytes.saturating_add(*bytes);
    }

    fn since(&self, before: &Self) -> Self {
        // A lower count is that of another flow with the same number.
        let grown = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new);
        Self { packets: grown(self.packets, before.packets), bytes: grown(self.bytes, before.bytes) }
    }
}

/// A flow as it is seen in one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// Where it goes.
    pub flow: Flow,
    /// Which one it is.
    pub id: FlowId,
    /// What it carried since it began, if that is counted.
    pub carried: Option<Carried>,
    /// Whether at least one direction is open; of connectionless protocols, whether both sides were heard.
    pub is_open: bool,
}

/// The flows of one target through one frontend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flows {
    /// What was carried since the first reading, by those that are gone as well.
    pub carried: Carried,
    /// Those that are open.
    pub active: u64,
    /// Those that are known and not open.
    pub inactive: u64,
}

/// The sums.
#[derive(Debug, Default)]
pub struct Account {
    seen: BTreeMap<FlowId, Carried>,
    flows: BTreeMap<(Frontend, Target), Flows>,
    has_read: bool,
}

/// A reading while it is taken; nothing of it counts before it is complete.
#[derive(Debug, Default)]
pub struct Reading {
    seen: BTreeMap<FlowId, Carried>,
    flows: BTreeMap<(Frontend, Target), Flows>,
}

impl Account {
    /// Takes in one flow of a reading. A flow that is shown twice, because the table changed under the reading, counts once.
    pub fn see(&self, reading: &mut Reading, at: (Frontend, Target), sighting: &Sighting) {
        let Sighting { flow: _, id, carried, is_open } = sighting;
        if reading.seen.contains_key(id) {
            return;
        }
        let sums = reading.flows.entry(at).or_default();
        if *is_open {
            sums.active += 1;
        } else {
            sums.inactive += 1;
        }
        if reading.seen.len() >= FLOWS_KEPT_MAX {
            return;
        }
        let carried = carried.unwrap_or_default();
        reading.seen.insert(*id, carried);
        if self.has_read {
            let before = self.seen.get(id).copied().unwrap_or_default();
            sums.carried.add(&carried.since(&before));
        }
    }

    /// Takes over a complete reading. Sums of targets that are not current and have no flow are forgotten.
    pub fn conclude(&mut self, reading: Reading, is_current: impl Fn(&Frontend, &Target) -> bool) {
        let Reading { seen, mut flows } = reading;
        for (at, before) in &self.flows {
            if let Some(sums) = flows.get_mut(at) {
                sums.carried.add(&before.carried);
            } else if is_current(&at.0, &at.1) {
                flows.insert(*at, Flows { carried: before.carried, active: 0, inactive: 0 });
            }
        }
        *self = Self { seen, flows, has_read: true };
    }

    /// The sums, by frontend and target.
    pub fn flows(&self) -> impl Iterator<Item = (&Frontend, &Target, &Flows)> {
        self.flows.iter().map(|((frontend, target), flows)| (frontend, target, flows))
    }
}

#[cfg(test)]
mod tests {
    use model::{kinds::service::Protocol, primitives::quantity::Port, program::Destination};

    use super::*;

    fn at() -> (Frontend, Target) {
        let port = Port::new(80).unwrap();
        let destination = Destination::Address("10.96.0.1".parse().unwrap());
        let frontend = Frontend { destination, protocol: Protocol::Tcp, ports: port.into() };
        (frontend, Target { address: "10.1.1.2".parse().unwrap(), port: Some(port) })
    }

    fn flow(id: u32, bytes: u64, is_open: bool) -> Sighting {
        let (frontend, target) = at();
        let Destination::Address(destination) = frontend.destination else { panic!("an address") };
        let port = target.port.unwrap();
        let protocol = Protocol::Tcp;
        let flow = Flow { protocol, destination, port, target: target.address, target_port: port };
        let id = FlowId { id, client_port: 1, target_port: 80 };
        Sighting { flow, id, carried: Some(Carried { packets: bytes / 100, bytes }), is_open }
    }

    /// Readings → bytes, open, and other flows after each.
    #[test]
    fn sums_never_fall_and_begin_with_the_first_reading() {
        let mut account = Account::default();
        for (sightings, bytes, active, inactive) in [
            // What was carried before anybody looked.
            (vec![flow(1, 5000, true)], 0, 1, 0),
            (vec![flow(1, 5100, true), flow(2, 700, true)], 800, 2, 0),
            // One is closing, and shown twice.
            (vec![flow(1, 5100, true), flow(2, 900, false), flow(2, 900, false)], 1000, 1, 1),
            (vec![flow(1, 5200, true)], 1100, 1, 0),
            (vec![], 1100, 0, 0),
            // The number of a flow is given again.
            (vec![flow(1, 300, true)], 1400, 1, 0),
        ] {
            let mut reading = Reading::default();
            for sighting in &sightings {
                account.see(&mut reading, at(), sighting);
            }
            account.conclude(reading, |_, _| true);
            let found: Vec<_> = account.flows().map(|(_, _, flows)| *flows).collect();
            let carried = Carried { packets: bytes / 100, bytes };
            assert_eq!(found, [Flows { carried, active, inactive }], "{sightings:?}");
        }
        account.conclude(Reading::default(), |_, _| false);
        assert_eq!(account.flows().count(), 0, "what is not current and has no flow is forgotten");
    }
}

//! Flow accounting: bytes, packets and open flows by frontend (address, protocol and port of a Service) and
//! target, summed over readings of the conntrack table. Does no I/O.
//!
//! The kernel counts per flow (`nf_conntrack_acct`) and deletes the counters together with the flow. The
//! increase since the previous reading is added to a sum that never decreases; only the traffic after the
//! last reading of a flow is missed. An entry outlives its connection by at least ten seconds
//! (`nf_conntrack_tcp_timeout_close` and similar sysctls), the interval between readings. Short connections
//! are therefore counted completely, unless the table is full or so large that readings are rare. Traffic
//! before the first reading is not counted here, because the previous process has counted it.

use std::collections::BTreeMap;

use kernel::conntrack::{FlowId, FlowTraffic, Sighting};
use model::program::{Frontend, Target};

/// Maximum number of flows remembered between readings: the largest default of `nf_conntrack_max`, about 16
/// MB. Further flows count as open, but their traffic is not counted.
pub const FLOWS_KEPT_MAX: usize = 262_144;

/// Traffic and number of the flows to one target through one frontend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flows {
    /// Packets and bytes since the first reading, including those of ended flows.
    pub carried: FlowTraffic,
    /// Number of flows open at the last reading.
    pub active: u64,
    /// Number of flows that were tracked at the last reading but not open, such as closing ones.
    pub inactive: u64,
}

/// Traffic and number of flows by frontend and target, summed over all readings.
#[derive(Debug, Default)]
pub struct Account {
    seen: BTreeMap<FlowId, FlowTraffic>,
    flows: BTreeMap<(Frontend, Target), Flows>,
    has_read: bool,
}

/// Flows seen so far in a walk of the conntrack table. These flows are added to the sums only after the walk is
/// complete.
#[derive(Debug, Default)]
pub struct Reading {
    seen: BTreeMap<FlowId, FlowTraffic>,
    flows: BTreeMap<(Frontend, Target), Flows>,
}

impl Account {
    /// Adds one flow to a reading. A flow listed twice, because the table changed during the dump, counts
    /// once.
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

    /// Adds the traffic since the previous reading to the sums. The reading must be complete. Sums of targets
    /// that are neither current nor have a flow are dropped.
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

    /// Iterates over the sums of all frontends and targets.
    pub fn flows(&self) -> impl Iterator<Item = (&Frontend, &Target, &Flows)> {
        self.flows.iter().map(|((frontend, target), flows)| (frontend, target, flows))
    }
}

#[cfg(test)]
mod tests {
    use kernel::conntrack::Flow;
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
        let target = target.address;
        let is_unanswered = false;
        let flow = Flow { protocol, destination, port, target, target_port: port, is_unanswered };
        let id = FlowId { id, client_port: 1, target_port: 80 };
        Sighting { flow, id, carried: Some(FlowTraffic { packets: bytes / 100, bytes }), is_open }
    }

    /// Sums of bytes start at 0 with the first reading and never decrease. Each row has a reading, and the
    /// expected bytes, open flows and other flows after it.
    #[test]
    fn sums_never_fall_and_begin_with_the_first_reading() {
        let mut account = Account::default();
        for (sightings, bytes, active, inactive) in [
            // Traffic from before the first reading.
            (vec![flow(1, 5000, true)], 0, 1, 0),
            (vec![flow(1, 5100, true), flow(2, 700, true)], 800, 2, 0),
            // One flow is closing, and listed twice.
            (vec![flow(1, 5100, true), flow(2, 900, false), flow(2, 900, false)], 1000, 1, 1),
            (vec![flow(1, 5200, true)], 1100, 1, 0),
            (vec![], 1100, 0, 0),
            // The id of a flow is reused.
            (vec![flow(1, 300, true)], 1400, 1, 0),
        ] {
            let mut reading = Reading::default();
            for sighting in &sightings {
                account.see(&mut reading, at(), sighting);
            }
            account.conclude(reading, |_, _| true);
            let found: Vec<_> = account.flows().map(|(_, _, flows)| *flows).collect();
            let carried = FlowTraffic { packets: bytes / 100, bytes };
            assert_eq!(found, [Flows { carried, active, inactive }], "{sightings:?}");
        }
        account.conclude(Reading::default(), |_, _| false);
        assert_eq!(account.flows().count(), 0, "sums that are not current and have no flow are dropped");
    }
}

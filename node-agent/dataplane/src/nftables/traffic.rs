//! Number of connections per target, from the packet counters of map elements.
//!
//! The kernel counts per slot (position in the list of targets of a frontend). The counter of a target
//! restarts when the target moves to another slot, so the increases between readings are added up here; only
//! connections between the last reading and the move are missed. Unused targets are not stored, because most
//! nodes send no connections to most targets of a large cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use model::{
    kinds::resource::ServiceKey,
    program::{Frontend, Target},
};

use super::{
    NftablesBackend,
    element::SetElement,
    parse, render,
    schema::{SetId, SetRole},
};
use crate::Traffic;

/// Connections per target, summed over all readings of the counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Packet counters of the elements at the last reading; elements with a counter of 0 are left out.
    seen: BTreeMap<SetElement, u64>,
    /// Connections per target since the backend was opened; targets without connections are left out.
    totals: BTreeMap<(Frontend, Target), u64>,
}

/// Counters of all elements, read at one time.
#[derive(Debug, Default)]
struct Reading {
    /// Packet counter of each element, if above 0.
    counts: BTreeMap<SetElement, u64>,
    /// Targets that still have an element and have had connections. Totals of other targets are dropped.
    present: BTreeSet<(Frontend, Target)>,
}

impl Tally {
    /// Adds the counter of an element to a reading.
    fn note(&self, reading: &mut Reading, element: SetElement, count: u64) {
        let Some(target) = target(&element) else { return };
        if count > 0 {
            reading.counts.insert(element, count);
        }
        if count > 0 || self.totals.contains_key(&target) {
            reading.present.insert(target);
        }
    }

    /// Adds the increase since the previous reading to the totals. The reading must be complete.
    fn update(&mut self, reading: Reading) {
        for (element, &count) in &reading.counts {
            let Some(target) = target(element) else { continue };
            // A lower counter belongs to a re-created element.
            let before = self.seen.get(element).copied().filter(|before| *before <= count);
            *self.totals.entry(target).or_default() += count - before.unwrap_or_default();
        }
        self.seen = reading.counts;
        self.totals.retain(|target, _| reading.present.contains(target));
    }
}

fn target(element: &SetElement) -> Option<(Frontend, Target)> {
    match element {
        SetElement::Slot(frontend, _, target) | SetElement::AffinityTarget(frontend, _, _, target) => {
            // A listener on this node is not a target of a Service.
            (!target.address.is_unspecified()).then_some((*frontend, *target))
        }
        SetElement::Chain(..)
        | SetElement::Dispatch(..)
        | SetElement::DispatchFrom(..)
        | SetElement::AffinityGroup(..)
        | SetElement::AffinitySlot(..)
        | SetElement::Allowed(..)
        | SetElement::Range(_)
        | SetElement::Failover(_)
        | SetElement::VirtualAddress(_)
        | SetElement::Hairpin(_)
        | SetElement::Network(..) => None,
    }
}

impl NftablesBackend {
    /// Reads the counters of all elements and returns the connections per target. Targets without connections
    /// are left out.
    pub(super) fn read_traffic(&mut self) -> io::Result<Vec<Traffic>> {
        let table = self.options.table;
        let mut reading = Reading::default();
        let counted = |set: &SetId| match set.role {
            SetRole::Endpoints(_) | SetRole::AffinityTargets(..) => true,
            SetRole::Chains(_)
            | SetRole::ChainsFrom(_)
            | SetRole::Dispatch(_)
            | SetRole::DispatchFrom(..)
            | SetRole::AffinityGroups(_)
            | SetRole::Affinity
            | SetRole::AffinitySlots(_)
            | SetRole::AllowedSources(_)
            | SetRole::Ranges
            | SetRole::Failover
            | SetRole::VirtualAddresses
            | SetRole::Hairpins
            | SetRole::Networks(_) => false,
        };
        for set in SetId::all().filter(counted) {
            let of_set = self.netlink.dump(
                &render::dump_elements(table, set),
                Reading::default,
                |of_set, answer| {
                    parse::for_each_counted(set, answer, |element, packets| {
                        self.tally.note(of_set, element, packets);
                    })
                },
            )?;
            reading.counts.extend(of_set.counts);
            reading.present.extend(of_set.present);
        }
        self.tally.update(reading);
        let mut sums = BTreeMap::new();
        for ((frontend, target), count) in &self.tally.totals {
            if let Some(service) = self.claims.owner(frontend) {
                *sums.entry((ServiceKey::clone(service), frontend.protocol, *target)).or_insert(0) += count;
            }
        }
        let traffic = |((service, protocol, target), connections)| Traffic {
            service,
            protocol,
            target,
            connections,
            packets: None,
            bytes: None,
            active: None,
            inactive: None,
            failed: None,
        };
        Ok(sums.into_iter().map(traffic).collect())
    }
}

#[cfg(test)]
mod tests {
    use model::{kinds::service::Protocol, primitives::quantity::Port, program::Destination};

    use super::*;
    use crate::nftables::{element::Slot, schema::Pool};

    #[test]
    fn counts_go_on_when_a_target_changes_its_slot_and_end_with_the_target() {
        let port = Port::new(80).unwrap();
        let frontend = Frontend {
            destination: Destination::Address("10.96.0.1".parse().unwrap()),
            protocol: Protocol::Tcp,
            ports: port.into(),
        };
        let target = |text: &str| Target { address: text.parse().unwrap(), port: Some(port) };
        let (a, b) = (target("10.1.1.2"), target("10.1.2.2"));
        let slot = |index, target, count| {
            (SetElement::Slot(frontend, Slot { pool: Pool::Workloads, index }, target), count)
        };
        let mut tally = Tally::default();
        for (readings, totals) in [
            (vec![slot(0, a, 5), slot(1, b, 7)], vec![5, 7]),
            (vec![slot(0, a, 6), slot(1, b, 7)], vec![6, 7]),
            // The first target is removed, the second one moves to its slot.
            (vec![slot(0, b, 2)], vec![9]),
            // The element was re-created between two readings.
            (vec![slot(0, b, 1)], vec![10]),
            // Unused targets are not stored.
            (vec![slot(0, b, 1), slot(1, a, 0)], vec![10]),
            (vec![slot(0, a, 0), slot(1, b, 0)], vec![10]),
            (vec![slot(0, a, 2), slot(1, b, 3)], vec![2, 13]),
        ] {
            let mut reading = Reading::default();
            for (element, count) in readings {
                tally.note(&mut reading, element, count);
            }
            tally.update(reading);
            assert_eq!(tally.totals.values().copied().collect::<Vec<_>>(), totals);
        }
    }
}

//! How many connections each target was given: the counters of the elements that name targets.
//!
//! The kernel counts by slot. When a target moves to another slot its count begins anew there, so what was read is
//! summed up here; only connections between the last reading and the move are missed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use model::{
    program::{Frontend, Target},
    resource::ServiceKey,
};

use super::{
    NftablesBackend,
    element::Element,
    parse, render,
    schema::{SetId, SetRole},
};
use crate::dataplane::Traffic;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The last reading of each element.
    seen: BTreeMap<Element, u64>,
    totals: BTreeMap<(Frontend, Target), u64>,
}

impl Tally {
    /// Takes in a reading of all elements.
    fn update(&mut self, readings: &BTreeMap<Element, u64>) {
        let mut current = BTreeSet::new();
        for (element, &count) in readings {
            let Some(target) = target(element) else { continue };
            current.insert(target);
            // A lower count is that of an element that was made anew.
            let before = self.seen.get(element).copied().filter(|before| *before <= count);
            *self.totals.entry(target).or_default() += count - before.unwrap_or_default();
        }
        self.seen.clone_from(readings);
        self.totals.retain(|target, _| current.contains(target));
    }
}

fn target(element: &Element) -> Option<(Frontend, Target)> {
    match element {
        Element::Slot(frontend, _, target) | Element::AffinityTarget(frontend, _, _, target) => {
            // A listener of this node is no target of a Service.
            (!target.address.is_unspecified()).then_some((*frontend, *target))
        }
        Element::Dispatch(..)
        | Element::DispatchFrom(..)
        | Element::AffinitySlot(..)
        | Element::Allowed(..)
        | Element::Range(_)
        | Element::VirtualAddress(_)
        | Element::Hairpin(_)
        | Element::Network(..) => None,
    }
}

impl NftablesBackend {
    /// Reads all counters.
    pub(super) fn read_traffic(&mut self) -> io::Result<Vec<Traffic>> {
        let table = self.options.table;
        let mut readings = BTreeMap::new();
        let counted = |set: &SetId| match set.role {
            SetRole::Endpoints(_) | SetRole::AffinityTargets(..) => true,
            SetRole::Dispatch(_)
            | SetRole::DispatchFrom(..)
            | SetRole::Affinity(_)
            | SetRole::AffinitySlots(_)
            | SetRole::AllowedSources(_)
            | SetRole::Ranges
            | SetRole::VirtualAddresses
            | SetRole::Hairpins
            | SetRole::Networks(_) => false,
        };
        for set in SetId::all().filter(counted) {
            let of_set =
                self.netlink.dump(&render::dump_elements(table, set), BTreeMap::new, |counts, answer| {
                    parse::for_each_counted(set, answer, |element, packets| {
                        counts.insert(element, packets);
                    })
                })?;
            readings.extend(of_set);
        }
        self.tally.update(&readings);
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
    use model::{program::Destination, quantity::Port, service::Protocol};

    use super::*;
    use crate::dataplane::nftables::{element::Slot, schema::Pool};

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
            (Element::Slot(frontend, Slot { pool: Pool::Workloads, index }, target), count)
        };
        let mut tally = Tally::default();
        for (readings, totals) in [
            (vec![slot(0, a, 5), slot(1, b, 7)], vec![5, 7]),
            (vec![slot(0, a, 6), slot(1, b, 7)], vec![6, 7]),
            // The first target goes, the second one moves to its slot.
            (vec![slot(0, b, 2)], vec![9]),
            // The element was made anew between two readings.
            (vec![slot(0, b, 1)], vec![10]),
            (vec![slot(0, b, 1), slot(1, a, 0)], vec![0, 10]),
        ] {
            tally.update(&readings.into_iter().collect());
            assert_eq!(tally.totals.values().copied().collect::<Vec<_>>(), totals);
        }
    }
}

//! Difference between the routes of a plan and those in the kernel. Does no I/O.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{HeldHop, RouteKey};
use crate::plan::Hop;

/// Change of one route in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteChange {
    /// Adds a route at a position at which the agent has none.
    Add(IpNet, Hop),
    /// Replaces the next hop of a route of the agent.
    Replace(IpNet, Hop),
    /// Removes a route of the agent.
    Remove(RouteKey),
}

/// Returns the changes that turn the routes `held` into those of a plan. Routes are removed last, so that a packet finds
/// a route at all times.
#[must_use]
pub fn diff(planned: &BTreeMap<IpNet, Hop>, held: &BTreeMap<RouteKey, HeldHop>) -> Vec<RouteChange> {
    let mut changes = Vec::new();
    for (destination, hop) in planned {
        match held.get(&RouteKey::of(*destination)) {
            None => changes.push(RouteChange::Add(*destination, *hop)),
            Some(HeldHop::Known(same)) if same == hop => {}
            Some(HeldHop::Known(_) | HeldHop::Unknown) => {
                changes.push(RouteChange::Replace(*destination, *hop))
            }
        }
    }
    let is_planned =
        |key: &RouteKey| *key == RouteKey::of(key.destination) && planned.contains_key(&key.destination);
    changes.extend(held.keys().filter(|key| !is_planned(key)).cloned().map(RouteChange::Remove));
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::desired::TunnelKind;

    fn hop() -> impl Strategy<Value = Hop> {
        prop_oneof![
            Just(Hop::Blackhole),
            (0_u8..3).prop_map(|last| Hop::Gateway([192, 0, 2, last].into())),
            (prop::sample::select(&TunnelKind::ALL[..]), 0_u8..3)
                .prop_map(|(kind, last)| Hop::Tunnel(kind, [192, 0, 2, last].into())),
            (1_u32..4).prop_map(Hop::Interface),
        ]
    }

    fn destination() -> impl Strategy<Value = IpNet> {
        (0_u8..6, prop::bool::ANY).prop_map(|(third, is_block)| {
            let prefix = if is_block { 26 } else { 32 };
            IpNet::new([10, 9, third, 0].into(), prefix).unwrap()
        })
    }

    fn held() -> impl Strategy<Value = BTreeMap<RouteKey, HeldHop>> {
        let key = (destination(), prop::bool::weighted(0.8)).prop_map(|(destination, is_own)| {
            let metric = if is_own { super::super::METRIC } else { 0 };
            RouteKey { metric, ..RouteKey::of(destination) }
        });
        let hop = prop_oneof![hop().prop_map(HeldHop::Known), Just(HeldHop::Unknown)];
        prop::collection::btree_map(key, hop, 0..8)
    }

    proptest! {
        /// The changes, applied to the held routes, lead to the planned ones, and a second pass has no changes.
        #[test]
        fn changes_lead_to_the_plan(
            planned in prop::collection::btree_map(destination(), hop(), 0..8),
            mut held in held(),
        ) {
            for change in diff(&planned, &held) {
                match change {
                    RouteChange::Add(destination, hop) => {
                        let before = held.insert(RouteKey::of(destination), HeldHop::Known(hop));
                        prop_assert_eq!(before, None);
                    }
                    RouteChange::Replace(destination, hop) => {
                        let before = held.insert(RouteKey::of(destination), HeldHop::Known(hop));
                        prop_assert!(before.is_some_and(|before| before != HeldHop::Known(hop)));
                    }
                    RouteChange::Remove(key) => prop_assert!(held.remove(&key).is_some()),
                }
            }
            let expected: BTreeMap<_, _> =
                planned.iter().map(|(net, hop)| (RouteKey::of(*net), HeldHop::Known(*hop))).collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(diff(&planned, &held), []);
        }
    }
}

//! Change from one tunnel to another without lost packets. Does no I/O.
//!
//! ```text
//!  change ─▶ new device ── SWITCH_DELAY ──▶ routes change ── rest of KEEP_TIME ──▶ former device removed
//! ```
//! Nodes receive a change one after another. Each of them accepts packets of both tunnels before the first one sends through the
//! new tunnel, and until the last one has ceased to send through the former. A new process has no memory of a change: its routes
//! change at once, and the former device stays for the whole time again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::primitives::net::IpFamily;

use super::{HeldHop, RouteKey, TunnelIndexes};
use crate::{
    desired::TunnelKind,
    plan::{Hop, NetworkPlan},
};

/// Time between the creation of a device beside a former one and its first use: time for all nodes to create theirs.
pub const SWITCH_DELAY: Duration = Duration::from_secs(10);
/// Time for which a device that is no longer needed receives packets. Longer than [`SWITCH_DELAY`] of a node that receives the
/// change late.
pub const KEEP_TIME: Duration = Duration::from_secs(60);

/// Times of the changes between tunnels.
#[derive(Debug, Clone, Default)]
pub struct Handover {
    /// Time at which a device was created beside a former one.
    created: BTreeMap<TunnelKind, Instant>,
    /// Time since which a device is not needed.
    unneeded: BTreeMap<TunnelKind, Instant>,
}

impl Handover {
    /// Notes that a device was created beside a former one.
    pub fn note_created(&mut self, kind: TunnelKind, now: Instant) {
        self.created.insert(kind, now);
    }

    /// Forgets that a device was not needed.
    pub fn note_needed(&mut self, kind: TunnelKind) {
        self.unneeded.remove(&kind);
    }

    /// Forgets a device that does not exist.
    pub fn note_absent(&mut self, kind: TunnelKind) {
        self.created.remove(&kind);
        self.unneeded.remove(&kind);
    }

    /// Returns true if a device that the plan does not need stays, because nodes may still send through it, or because the
    /// device that replaces it is not among the usable ones, `tunnels`.
    pub fn retains(
        &mut self,
        kind: TunnelKind,
        plan: &NetworkPlan,
        tunnels: &TunnelIndexes,
        now: Instant,
    ) -> bool {
        let is_missing = plan.tunnels.keys().any(|needed| !tunnels.contains_key(needed));
        let unneeded = *self.unneeded.entry(kind).or_insert(now);
        let has_successor = !plan.tunnels.is_empty();
        // The time begins with the devices that replace this one.
        let created = plan.tunnels.keys().filter_map(|needed| self.created.get(needed));
        let since = created.fold(unneeded, |latest, created| latest.max(*created));
        has_successor && (is_missing || now.saturating_duration_since(since) < KEEP_TIME)
    }

    /// Replaces next hops through a device that is new or not among `tunnels` by those through the former device, if the kernel
    /// has such a route. Returns true if it has replaced any.
    pub fn defer(
        &self,
        planned: &mut BTreeMap<IpNet, Hop>,
        held: &BTreeMap<RouteKey, HeldHop>,
        tunnels: &TunnelIndexes,
        now: Instant,
    ) -> bool {
        let mut is_deferred = false;
        for (destination, hop) in planned {
            let Hop::Tunnel(kind, node) = *hop else { continue };
            if tunnels.contains_key(&kind) && !self.is_new(kind, now) {
                continue;
            }
            let Some(HeldHop::Known(Hop::Tunnel(former, _))) = held.get(&RouteKey::of(*destination)) else {
                continue;
            };
            let families = [IpFamily::of(node), IpFamily::of_net(destination)];
            if *former != kind && families.iter().all(|family| former.supports(*family)) {
                *hop = Hop::Tunnel(*former, node);
                is_deferred = true;
            }
        }
        is_deferred
    }

    fn is_new(&self, kind: TunnelKind, now: Instant) -> bool {
        self.created.get(&kind).is_some_and(|created| now.saturating_duration_since(*created) < SWITCH_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: [u8; 4] = [192, 0, 2, 1];

    fn through(kind: TunnelKind) -> BTreeMap<IpNet, Hop> {
        BTreeMap::from([("10.9.1.0/26".parse().unwrap(), Hop::Tunnel(kind, NODE.into()))])
    }

    fn held(kind: TunnelKind) -> BTreeMap<RouteKey, HeldHop> {
        through(kind).into_iter().map(|(net, hop)| (RouteKey::of(net), HeldHop::Known(hop))).collect()
    }

    /// Input: a change from VXLAN to IPIP. Output: routes change after the delay, and the former device goes after its time; at
    /// once without a successor.
    #[test]
    fn routes_change_after_a_delay_and_the_former_device_stays_longer() {
        let start = Instant::now();
        let both = TunnelIndexes::from([(TunnelKind::Vxlan, 1), (TunnelKind::Ipip, 2)]);
        let plan = NetworkPlan { tunnels: [(TunnelKind::Ipip, 1480)].into(), ..NetworkPlan::default() };
        let mut handover = Handover::default();
        handover.note_created(TunnelKind::Ipip, start);
        for (seconds, is_deferred, is_retained) in
            [(0, true, true), (9, true, true), (10, false, true), (59, false, true), (60, false, false)]
        {
            let now = start + Duration::from_secs(seconds);
            let mut planned = through(TunnelKind::Ipip);
            assert_eq!(handover.defer(&mut planned, &held(TunnelKind::Vxlan), &both, now), is_deferred);
            let kind = if is_deferred { TunnelKind::Vxlan } else { TunnelKind::Ipip };
            assert_eq!(planned, through(kind), "{seconds} s");
            assert_eq!(handover.retains(TunnelKind::Vxlan, &plan, &both, now), is_retained, "{seconds} s");
        }
        assert!(!Handover::default().retains(TunnelKind::Vxlan, &NetworkPlan::default(), &both, start));
        // A block without a route needs no former one.
        let mut planned = through(TunnelKind::Ipip);
        assert!(!handover.defer(&mut planned, &BTreeMap::new(), &both, start));
    }

    /// Input: a device that cannot be created. Output: the former one and its routes stay for any time.
    #[test]
    fn a_device_without_a_successor_in_the_kernel_stays() {
        let start = Instant::now();
        let late = start + 2 * KEEP_TIME;
        let former = TunnelIndexes::from([(TunnelKind::Vxlan, 1)]);
        let plan = NetworkPlan { tunnels: [(TunnelKind::Ipip, 1480)].into(), ..NetworkPlan::default() };
        let mut handover = Handover::default();
        for now in [start, late] {
            let mut planned = through(TunnelKind::Ipip);
            assert!(handover.defer(&mut planned, &held(TunnelKind::Vxlan), &former, now));
            assert!(handover.retains(TunnelKind::Vxlan, &plan, &former, now));
        }
        let both = TunnelIndexes::from([(TunnelKind::Vxlan, 1), (TunnelKind::Ipip, 2)]);
        handover.note_created(TunnelKind::Ipip, late);
        let nearly = late + KEEP_TIME - Duration::from_secs(1);
        assert!(handover.retains(TunnelKind::Vxlan, &plan, &both, nearly), "counts from its successor");
        handover.note_needed(TunnelKind::Vxlan);
        assert!(handover.retains(TunnelKind::Vxlan, &plan, &both, late + KEEP_TIME), "was needed again");
    }

    /// Input: former next hops that IPIP cannot have. Output: the routes change at once.
    #[test]
    fn a_former_tunnel_that_cannot_carry_the_packets_is_not_used() {
        let mut handover = Handover::default();
        let now = Instant::now();
        handover.note_created(TunnelKind::Vxlan, now);
        let both = TunnelIndexes::from([(TunnelKind::Vxlan, 1), (TunnelKind::Ipip, 2)]);
        let v6 = Hop::Tunnel(TunnelKind::Vxlan, "2001:db8::1".parse().unwrap());
        let mut planned = BTreeMap::from([("10.9.1.0/26".parse().unwrap(), v6)]);
        assert!(!handover.defer(&mut planned, &held(TunnelKind::Ipip), &both, now));
    }
}

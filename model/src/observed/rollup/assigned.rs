//! Status of address assignment: computes the condition AddressAssigned of a Service, and the usage of an
//! AddressPool.

use std::net::IpAddr;

use super::{no, yes};
use crate::{
    cluster::{allocate::explain, snapshot::Snapshot},
    kinds::{
        address_pool::AddressPoolSpec,
        condition_reason::ConditionReason,
        load_balancer::LoadBalancerRequest,
        resource::ServiceKey,
        service::{ServiceSpec, ServiceType},
    },
    observed::status::{AddressPoolStatus, Condition, ConditionType, PoolUsage},
    primitives::{name::Name, net::IpFamily},
};

/// Returns the condition AddressAssigned, which is true if a Service has all load balancer addresses that it
/// requires.
pub(super) fn address_assigned(
    snapshot: &Snapshot,
    key: &ServiceKey,
    spec: &ServiceSpec,
    has: &[IpAddr],
) -> Condition {
    let at = ConditionType::AddressAssigned;
    match spec.service_type {
        ServiceType::ExternalName => yes(at, ConditionReason::ExternalName),
        ServiceType::LoadBalancer => of_load_balancer(snapshot, key, has),
        ServiceType::ClusterIP if spec.is_headless() => yes(at, ConditionReason::Headless),
        ServiceType::ClusterIP | ServiceType::NodePort => yes(at, ConditionReason::Allocated),
    }
}

fn of_load_balancer(snapshot: &Snapshot, key: &ServiceKey, has: &[IpAddr]) -> Condition {
    let at = ConditionType::AddressAssigned;
    let Some(wanted) = snapshot.service(key).and_then(|object| LoadBalancerRequest::of(object)) else {
        return yes(at, ConditionReason::Allocated);
    };
    let lacking = wanted.lacking(has.iter().copied());
    let Some(lack) = explain(snapshot, &wanted, &lacking).filter(|_| !lacking.is_empty()) else {
        let as_named = has.iter().all(|address| wanted.named(IpFamily::of(*address)).is_some());
        return yes(at, if as_named { ConditionReason::AsRequested } else { ConditionReason::Allocated });
    };
    let is_needed = has.is_empty() || wanted.takes_all_or_none() || !wanted.addresses.is_empty();
    if is_needed {
        return no(at, lack.reason, lack.message).hint(lack.hint);
    }
    // PreferDualStack accepts a single family.
    Condition { message: lack.message, ..yes(at, ConditionReason::Allocated) }.hint(lack.hint)
}

/// Computes the status of an AddressPool: the numbers of assigned, quarantined (recently released) and free
/// addresses, and its conditions.
#[must_use]
pub fn address_pool_status(snapshot: &Snapshot, name: &Name, spec: &AddressPoolSpec) -> AddressPoolStatus {
    let usage = |family| usage(snapshot, name, spec, family);
    let (v4, v6) = (usage(IpFamily::V4), usage(IpFamily::V6));
    let conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid), has_room(spec, &v4, &v6)];
    AddressPoolStatus { conditions, v4, v6 }
}

fn usage(snapshot: &Snapshot, name: &Name, spec: &AddressPoolSpec, family: IpFamily) -> PoolUsage {
    let (assigned, quarantined) = snapshot.counts_of_pool(name, family);
    let shown = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let total = u64::try_from(spec.capacity(family)).unwrap_or(u64::MAX);
    let (assigned, quarantined) = (shown(assigned), shown(quarantined));
    let available = total.saturating_sub(assigned).saturating_sub(quarantined);
    PoolUsage { total, assigned, quarantined, available }
}

fn has_room(spec: &AddressPoolSpec, v4: &PoolUsage, v6: &PoolUsage) -> Condition {
    let at = ConditionType::HasRoom;
    if spec.disabled {
        return no(
            at,
            ConditionReason::Disabled,
            "the pool is disabled and assigns no more addresses".to_owned(),
        )
        .hint("set spec.disabled to false");
    }
    let is_full = |usage: &PoolUsage| usage.total > 0 && usage.available == 0;
    let full: Vec<_> = [("IPv4", v4), ("IPv6", v6)].into_iter().filter(|(_, usage)| is_full(usage)).collect();
    if full.is_empty() && v4.total == 0 && v6.total == 0 {
        return no(
            at,
            ConditionReason::Empty,
            "every address of the pool is reserved or excluded".to_owned(),
        )
        .hint("add a range to spec.addresses");
    }
    match &full[..] {
        [] => yes(at, ConditionReason::Free),
        full => {
            let families: Vec<_> = full.iter().map(|(family, _)| *family).collect();
            let held_back = full.iter().any(|(_, usage)| usage.quarantined > 0);
            let why = if held_back { "; some are in quarantine" } else { "" };
            no(at, ConditionReason::Full, format!("no {} address is free{why}", families.join(" and no ")))
                .hint("add a range to spec.addresses, or delete Services that are no longer needed")
        }
    }
}

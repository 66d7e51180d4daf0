//! Reason for which a Service lacks a load balancer address, as shown in its status.

use std::net::IpAddr;

use super::{Denial, choose, is_for, place, pools, room};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        address_pool::AddressPoolSpec, condition_reason::ConditionReason, load_balancer::LoadBalancerRequest,
        resource::Kind,
    },
    primitives::{name::Name, net::IpFamily, violation::without_name},
};

/// Maximum number of pools that a message names.
const POOLS_LISTED_MAX: usize = 5;

/// Reason why a Service lacks a load balancer address, with a message and a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingAddress {
    /// Machine-readable reason for the condition AddressAssigned.
    pub(crate) reason: ConditionReason,
    /// Message for users that names the affected addresses or pools.
    pub(crate) message: String,
    /// Remedy, as an instruction for the user.
    pub(crate) hint: &'static str,
}

/// Returns the reason why a Service lacks an address: the one for the first IP family of `lacking` in which
/// no address is available, or [`ConditionReason::Waiting`] if an address is available in each of these
/// families.
pub(crate) fn explain(
    snapshot: &Snapshot,
    wanted: &LoadBalancerRequest<'_>,
    lacking: &[IpFamily],
) -> Option<MissingAddress> {
    let lacks = lacking.iter().filter_map(|family| explain_one(snapshot, wanted, *family));
    let waits = || {
        lacking.first().map(|family| MissingAddress {
            reason: ConditionReason::Waiting,
            message: format!("an {} address is free and will be assigned shortly", family.as_str()),
            hint: "wait: Services without an address are served in turn",
        })
    };
    lacks.into_iter().next().or_else(waits)
}

fn explain_one(
    snapshot: &Snapshot,
    wanted: &LoadBalancerRequest<'_>,
    family: IpFamily,
) -> Option<MissingAddress> {
    if let Some(address) = wanted.named(family) {
        let denied = place(snapshot, None, wanted, address, false)
            .and_then(|_| room(snapshot, wanted, address, false))
            .err()?;
        return Some(of_denial(wanted, address, &denied));
    }
    choose(snapshot, wanted, family).is_none().then(|| of_pools(snapshot, wanted, family))
}

fn of_denial(wanted: &LoadBalancerRequest<'_>, address: IpAddr, denial: &Denial) -> MissingAddress {
    let reason = match denial {
        Denial::Quarantined { .. } => ConditionReason::WaitingForQuarantine,
        Denial::PoolDisabled(_) => ConditionReason::PoolDisabled,
        Denial::ServiceRange(_)
        | Denial::WorkloadNetwork(_)
        | Denial::NodeAddress(_)
        | Denial::ExternalIp(_)
        | Denial::OutsideEveryPool
        | Denial::NotInNamedPool { .. }
        | Denial::Reserved(_)
        | Denial::Avoided(_)
        | Denial::NotForService(_)
        | Denial::Held(_)
        | Denial::Crowded
        | Denial::Clash { .. }
        | Denial::OtherPolicy(_)
        | Denial::OtherSelector(_) => ConditionReason::AddressNotAvailable,
    };
    let message = format!("{address} {denial}");
    // The status of a Service is for readers of its namespace, who may not see other namespaces.
    let message = match denial.holder().filter(|holder| holder.namespace != wanted.key.namespace) {
        Some(holder) => without_name(&message, &holder.namespace, &holder.name),
        None => message,
    };
    MissingAddress { reason, message, hint: denial.hint() }
}

fn of_pools(snapshot: &Snapshot, wanted: &LoadBalancerRequest<'_>, family: IpFamily) -> MissingAddress {
    if snapshot.count(Kind::AddressPool) == 0 {
        return MissingAddress {
            reason: ConditionReason::NoPools,
            message: "there are no address pools".to_owned(),
            hint: "create an AddressPool; until then the Service is reachable at its cluster IP and node ports",
        };
    }
    if let Some(named) = &wanted.pool {
        match snapshot.pool(named) {
            None => {
                return MissingAddress {
                    reason: ConditionReason::PoolNotFound,
                    message: format!("there is no AddressPool {named}"),
                    hint: "create it, or name another in spec.loadBalancer.pool",
                };
            }
            Some(pool) if !is_for(pool, wanted) => {
                return MissingAddress {
                    reason: ConditionReason::NoPoolMatches,
                    message: format!("pool {named} is not for this Service"),
                    hint: "change `namespaces` or `serviceSelectors` of the pool, or name another",
                };
            }
            Some(_) => {}
        }
    }
    of_matching(snapshot, &pools(snapshot, wanted).collect::<Vec<_>>(), family)
}

fn of_matching(
    snapshot: &Snapshot,
    matching: &[(&Name, &AddressPoolSpec)],
    family: IpFamily,
) -> MissingAddress {
    if matching.is_empty() {
        return MissingAddress {
            reason: ConditionReason::NoPoolMatches,
            message: "no pool assigns addresses to this Service unless the Service names it".to_owned(),
            hint: "name a pool in spec.loadBalancer.pool, or change `autoAssign`, `namespaces` or `serviceSelectors` of one",
        };
    }
    let of_family: Vec<_> = matching.iter().filter(|(_, pool)| pool.capacity(family) > 0).copied().collect();
    if of_family.is_empty() {
        return MissingAddress {
            reason: ConditionReason::NoPoolOfFamily,
            message: format!("no {} address is in {}", family.as_str(), list(matching)),
            hint: "add a range of that IP family to the pool, or change spec.ipFamilies",
        };
    }
    let enabled: Vec<_> = of_family.iter().filter(|(_, pool)| !pool.disabled).copied().collect();
    if enabled.is_empty() {
        return MissingAddress {
            reason: ConditionReason::PoolDisabled,
            message: format!("{} assigns no more addresses: it is disabled", list(&of_family)),
            hint: "set spec.disabled of the pool to false, or name another pool",
        };
    }
    let held_back: Vec<_> =
        enabled.iter().filter(|(name, _)| snapshot.counts_of_pool(name, family).1 > 0).copied().collect();
    if !held_back.is_empty() {
        return MissingAddress {
            reason: ConditionReason::WaitingForQuarantine,
            message: format!(
                "no {} address is free in {}; some are in quarantine",
                family.as_str(),
                list(&held_back)
            ),
            hint: "the Service receives an address when a quarantine ends (`quarantineSeconds` of the pool)",
        };
    }
    MissingAddress {
        reason: ConditionReason::PoolFull,
        message: format!("no {} address is free in {}", family.as_str(), list(&enabled)),
        hint: "add a range to the pool, or delete Services that are no longer needed",
    }
}

fn list(pools: &[(&Name, &AddressPoolSpec)]) -> String {
    let names: Vec<_> = pools.iter().take(POOLS_LISTED_MAX).map(|(name, _)| name.as_str()).collect();
    let more = pools.len().saturating_sub(POOLS_LISTED_MAX);
    let word = if pools.len() == 1 { "pool" } else { "pools" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{rest}", names.join(", "))
}

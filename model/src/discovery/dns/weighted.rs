//! Choice of the load balancer addresses of one of several Services, in proportion to their weights.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{record::Answer, zone::Zone};
use crate::{cluster::snapshot::Snapshot, kinds::resource::ServiceKey};

/// Weight of a Service without `dnsWeight` beside one that has it.
const DEFAULT_WEIGHT: u16 = 1;

/// Leaves the load balancer addresses of one Service in an answer that has those of several, if one of these has
/// `dnsWeight`. Each is chosen in proportion to its weight; `draw` returns a number below its argument, which is not zero.
/// Answers are not changed if all weights are zero, or if an address in them is no load balancer address.
#[must_use]
pub fn weighted(zone: &Zone, mut found: Answer, draw: impl FnOnce(u32) -> u32) -> Answer {
    let Some(weights) = weights(zone.snapshot(), &found) else { return found };
    let total: u32 = weights.values().sum();
    if total == 0 {
        return found;
    }
    let mut left = draw(total);
    let chosen = weights.iter().find(|(_, weight)| {
        let is_chosen = left < **weight;
        left = left.saturating_sub(**weight);
        is_chosen
    });
    let Some((services, _)) = chosen else { return found };
    let kept: Vec<_> = addresses_of(&found)
        .filter(|address| services_at(zone.snapshot(), *address) == Some(*services))
        .collect();
    found.answers.retain(|record| record.data.address().is_none_or(|address| kept.contains(&address)));
    found
}

/// Returns the weight of each group of Services with common addresses. `None` if the answer is that of one group, if none
/// of the Services has a weight, or if an address is no load balancer address.
fn weights<'a>(snapshot: &'a Snapshot, found: &Answer) -> Option<BTreeMap<&'a BTreeSet<ServiceKey>, u32>> {
    addresses_of(found).nth(1)?;
    let groups: Option<BTreeSet<_>> =
        addresses_of(found).map(|address| services_at(snapshot, address)).collect();
    let groups = groups.filter(|groups| groups.len() > 1)?;
    let own: BTreeMap<_, _> =
        groups.into_iter().map(|services| (services, weight_of(snapshot, services))).collect();
    own.values().any(Option::is_some).then(|| {
        let weight = |weight: Option<u16>| u32::from(weight.unwrap_or(DEFAULT_WEIGHT));
        own.into_iter().map(|(services, own)| (services, weight(own))).collect()
    })
}

/// Returns the weight of the Services with a load balancer address. `None` if they have none.
pub(super) fn weight_at(snapshot: &Snapshot, address: IpAddr) -> Option<u16> {
    weight_of(snapshot, services_at(snapshot, address)?)
}

fn addresses_of(found: &Answer) -> impl Iterator<Item = IpAddr> {
    found.answers.iter().filter_map(|record| record.data.address())
}

fn services_at(snapshot: &Snapshot, address: IpAddr) -> Option<&BTreeSet<ServiceKey>> {
    Some(&snapshot.address(address)?.as_address()?.services).filter(|services| !services.is_empty())
}

/// Returns the largest weight of Services that share an address.
fn weight_of(snapshot: &Snapshot, services: &BTreeSet<ServiceKey>) -> Option<u16> {
    let own = |service| snapshot.service(service)?.as_service()?.load_balancer.as_ref()?.dns_weight;
    services.iter().filter_map(own).max()
}

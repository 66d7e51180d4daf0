//! Allocation of load balancer addresses: the rules for a requested address, the choice of a free address,
//! and the reason why a Service has no address.
//!
//! These functions only query a snapshot. [`admit`](crate::admission::admit) writes the records.

mod denial;
mod lack;

use std::net::IpAddr;

pub(crate) use self::denial::Denial;
pub(crate) use self::lack::explain;
use crate::{
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, load_balancer::LoadBalancerRequest,
        service::TrafficPolicy,
    },
    primitives::{name::Name, net::IpFamily},
};

/// Maximum number of Services that share one address. The address record lists all of them, so each further
/// Service makes a change of the record more expensive.
pub(crate) const SHARED_MAX: usize = 256;
/// Maximum number of shared addresses with the same sharing key that are tried before the Service receives an
/// address of its own.
const SHARING_TRIED_MAX: usize = 64;

/// Checks that a Service may have an address, regardless of its present holder, and returns the pool that
/// contains the address. Returns `Ok(None)` for an address that is in no pool but in a range that the
/// operator allows; if `config` is `None`, no such range is allowed. `is_kept` is true if the Service already
/// has the address.
///
/// # Errors
/// Returns the reason why the Service may not have the address.
pub(crate) fn place(
    snapshot: &Snapshot,
    config: Option<&ClusterConfig>,
    wanted: &LoadBalancerRequest<'_>,
    address: IpAddr,
    is_kept: bool,
) -> Result<Option<Name>, Denial> {
    if let Some(range) = config.and_then(|config| config.service_cidr_of(address)) {
        return Err(Denial::ServiceRange(range));
    }
    if let Some(node) = snapshot.node_with_address(address) {
        return Err(Denial::NodeAddress(node.clone()));
    }
    let found = snapshot.pool_of(address).and_then(|name| Some((name, snapshot.pool(name)?)));
    // Pools do not overlap workload networks, so pool addresses skip the iteration over the networks of all Nodes.
    if found.is_none()
        && let Some(network) = snapshot.workload_cidrs().find(|network| network.contains(&address))
    {
        return Err(Denial::WorkloadNetwork(*network));
    }
    if let Some(named) = wanted.pool.as_ref().filter(|named| found.is_none_or(|(name, _)| name != *named)) {
        return Err(Denial::NotInNamedPool {
            named: named.clone(),
            pool: found.map(|(name, _)| name.clone()),
        });
    }
    let Some((name, pool)) = found else {
        let is_named = wanted.addresses.contains(&address);
        let is_allowed =
            |config: &ClusterConfig| config.external_ip_cidrs().iter().any(|range| range.contains(&address));
        return if is_named && config.is_some_and(is_allowed) {
            Ok(None)
        } else {
            Err(Denial::OutsideEveryPool)
        };
    };
    if pool.is_reserved(address) {
        Err(Denial::Reserved(name.clone()))
    } else if pool.is_avoided(address) {
        Err(Denial::Avoided(name.clone()))
    } else if !is_for(pool, wanted) {
        Err(Denial::NotForService(name.clone()))
    } else if pool.disabled && !is_kept {
        Err(Denial::PoolDisabled(name.clone()))
    } else {
        Ok(Some(name.clone()))
    }
}

/// Checks that no other Service holds an address, or that the Service may share it, and that the address is
/// not quarantined for another Service. `is_freed` is true if the same request ends the quarantine of the
/// address.
pub(crate) fn room(
    snapshot: &Snapshot,
    wanted: &LoadBalancerRequest<'_>,
    address: IpAddr,
    is_freed: bool,
) -> Result<(), Denial> {
    if let Some(holder) = snapshot.external_ip_holder(address) {
        return Err(Denial::ExternalIp(holder.clone()));
    }
    let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) else {
        return Ok(());
    };
    if !record.services.is_empty() {
        return share(snapshot, wanted, record);
    }
    match &record.quarantine {
        Some(quarantine) if quarantine.former != wanted.key && !is_freed => {
            Err(Denial::Quarantined { former: quarantine.former.clone(), until: quarantine.until })
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that a Service may share an address with the Services that have it. Traffic policy and selector are
/// compared with one of these Services only, because all of them agree; ports are compared with each of them.
fn share(snapshot: &Snapshot, wanted: &LoadBalancerRequest<'_>, record: &AddressSpec) -> Result<(), Denial> {
    let Some(holder) = record.services.iter().find(|holder| **holder != wanted.key) else { return Ok(()) };
    let key = wanted.sharing_key.as_ref().filter(|key| record.sharing_key.as_ref() == Some(key));
    if key.is_none() {
        return Err(Denial::Held(holder.clone()));
    }
    if record.services.len() >= SHARED_MAX {
        return Err(Denial::Crowded);
    }
    let ports = wanted.spec.ports.iter();
    let mut clashes = ports.filter_map(|port| {
        let holder = snapshot.routed_holder(record.address, port.protocol, port.range())?;
        (*holder != wanted.key).then(|| Denial::Clash {
            holder: holder.clone(),
            protocol: port.protocol,
            ports: port.range(),
        })
    });
    if let Some(clash) = clashes.next() {
        return Err(clash);
    }
    let Some(other) = snapshot.service(holder).and_then(|object| object.as_service()) else { return Ok(()) };
    if other.external_traffic_policy != wanted.spec.external_traffic_policy {
        return Err(Denial::OtherPolicy(holder.clone()));
    }
    // A node announces the address when it has endpoints. With policy Local all sharing Services therefore need the
    // same ones.
    let is_local = wanted.spec.external_traffic_policy == TrafficPolicy::Local;
    let same_endpoints = other.selector == wanted.spec.selector
        && !other.selector.is_empty()
        && holder.namespace == wanted.key.namespace;
    if is_local && !same_endpoints { Err(Denial::OtherSelector(holder.clone())) } else { Ok(()) }
}

/// Returns true if the namespaces and selectors of a pool include a Service.
pub(crate) fn is_for(pool: &AddressPoolSpec, wanted: &LoadBalancerRequest<'_>) -> bool {
    let AddressPoolSpec { namespaces, service_selectors, .. } = pool;
    (namespaces.is_empty() || namespaces.contains(&wanted.key.namespace))
        && crate::kinds::selector::Selector::any_matches(service_selectors, &wanted.metadata.labels)
}

/// Returns the pools that may provide an address to a Service, in the order of allocation.
fn pools<'a>(
    snapshot: &'a Snapshot,
    wanted: &'a LoadBalancerRequest<'_>,
) -> impl Iterator<Item = (&'a Name, &'a AddressPoolSpec)> {
    let named = wanted.pool.as_ref().and_then(|name| Some((name, snapshot.pool(name)?)));
    let unnamed = snapshot.pools_in_order().filter(|_| wanted.pool.is_none());
    named.into_iter().chain(unnamed).filter(|(_, pool)| is_for(pool, wanted))
}

/// Chooses an address, with its pool, for a Service that requests no specific address in this family; `None`
/// if no pool has one. In each pool, the order of preference is: an address that this Service has released
/// and that is still in quarantine, an address of Services with the same sharing key, the first free address.
pub(crate) fn choose(
    snapshot: &Snapshot,
    wanted: &LoadBalancerRequest<'_>,
    family: IpFamily,
) -> Option<(IpAddr, Option<Name>)> {
    let mut enabled = pools(snapshot, wanted).filter(|(_, pool)| !pool.disabled);
    enabled.find_map(|(name, pool)| {
        let is_of_pool = |address: &IpAddr| IpFamily::of(*address) == family && pool.is_usable(*address);
        let own = snapshot.held_back_for(&wanted.key).find(is_of_pool);
        let shared = || {
            let tried = wanted.sharing_key.iter().flat_map(|key| snapshot.shared_by(key));
            let mut tried = tried.filter(is_of_pool).take(SHARING_TRIED_MAX);
            tried.find(|address| room(snapshot, wanted, *address, false).is_ok())
        };
        let free = || snapshot.first_free_of_pool(pool, family);
        let address = own.or_else(shared).or_else(free)?;
        Some((address, Some(name.clone())))
    })
}

//! Admission rules between pools and other objects: permitted ranges, and the effect of a pool change on
//! allocated addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{addresses::Ledger, staged_object::StagedObject};
use crate::{
    cluster::{
        allocate::{Denial, is_for, place},
        config::ClusterConfig,
        snapshot::Snapshot,
    },
    kinds::{
        address_pool::AddressPoolSpec,
        advertisement::AdvertisementSpec,
        load_balancer::LoadBalancerRequest,
        resource::{Kind, Object, ObjectKey, ServiceKey},
    },
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
};

/// Maximum number of Services that one request may evict from their load balancer addresses.
pub const EVICTIONS_MAX: usize = super::OPERATIONS_MAX;
/// Maximum number of Services that a refusal lists as holders of affected addresses.
const HOLDERS_LISTED_MAX: usize = 10;

/// Checks that the ranges of a pool do not overlap other pools, Service ranges, workload networks, Node addresses
/// or external IPs.
pub(super) fn check(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    spec: &AddressPoolSpec,
    found: &mut Vec<Violation>,
) {
    for (index, range) in spec.addresses.iter().enumerate() {
        let mut overlap = |what: String, hint: &str| {
            let message = format!("must not overlap {what}; {range} does");
            let at = format!("/spec/addresses/{index}");
            found.push(Violation::new(at, ViolationCode::Overlap, message).hint(hint));
        };
        if let Some(pool) = snapshot.pool_overlapping(range) {
            overlap(format!("AddressPool {pool}"), "an address is of one pool; shrink that pool first");
        }
        if let Some(cidr) = config.service_cidrs().iter().find(|cidr| range.overlaps_net(cidr)) {
            overlap(
                format!("the range of virtual addresses, {cidr}"),
                "choose a range of the network outside",
            );
        }
        if let Some((cidr, network)) = snapshot.network_cidrs().find(|(cidr, _)| range.overlaps_net(cidr)) {
            overlap(format!("{cidr} of WorkloadNetwork {network}"), "choose a range of the network outside");
        }
        let mut of_nodes = snapshot.workload_cidrs_of_nodes();
        if let Some((cidr, _)) = of_nodes.find(|(cidr, _)| range.overlaps_net(cidr)) {
            overlap(
                format!("the workload network {cidr} of a Node"),
                "choose a range of the network outside",
            );
        }
        if let Some((address, node)) = snapshot.node_address_in(range, |address| spec.is_reserved(address)) {
            let message = format!("must not hold {address}, which is an address of Node {node}");
            let hint = format!("add {address} to spec.reserved");
            let at = format!("/spec/addresses/{index}");
            found.push(Violation::new(at, ViolationCode::AddressTaken, message).hint(hint));
        }
        if let Some((address, service)) = snapshot.external_ip_in(range) {
            let message = format!("must not hold {address}, which is an external IP of Service {service}");
            let hint =
                "an address is an external IP or a load balancer's, not both; change that Service first";
            let at = format!("/spec/addresses/{index}");
            let violation = Violation::new(at, ViolationCode::AddressTaken, message).hint(hint);
            found.push(violation.naming(&service.namespace, &service.name));
        }
    }
}

/// Checks that the address of a Node does not lie in a pool, unless the pool reserves it.
pub(super) fn check_node_address(
    snapshot: &Snapshot,
    at: String,
    address: IpAddr,
    found: &mut Vec<Violation>,
) {
    let Some(name) = snapshot.pool_of(address) else { return };
    if snapshot.pool(name).is_some_and(|pool| pool.is_reserved(address)) {
        return;
    }
    let message = format!("must not lie in an address pool; {address} lies in AddressPool {name}");
    let hint = format!("add {address} to spec.reserved of the pool");
    found.push(Violation::new(at, ViolationCode::AddressTaken, message).hint(hint));
}

/// Checks that the pools that an Advertisement names exist. `snapshot` must already contain all objects of the
/// request.
pub(super) fn check_advertisement(snapshot: &Snapshot, spec: &AdvertisementSpec, found: &mut Vec<Violation>) {
    for pool in spec.address_pools.iter().filter(|pool| snapshot.pool(pool).is_none()) {
        let message = format!("must name AddressPools that exist; there is no {pool}");
        let hint = "create it before, or in the same apply; leave the field out for all pools";
        found.push(Violation::new("/spec/addressPools", ViolationCode::NotFound, message).hint(hint));
    }
}

/// Adds a violation for each deleted pool that an Advertisement names.
pub(super) fn check_removed(
    snapshot: &Snapshot,
    staged: &[StagedObject],
    pruned: &[ObjectKey],
    found: &mut Vec<Violation>,
) {
    let removed = staged
        .iter()
        .filter(|staged_object| staged_object.new.is_none())
        .map(|staged_object| &staged_object.key);
    for key in removed.chain(pruned).filter(|key| key.kind == Kind::AddressPool) {
        if let Some(advertisement) = snapshot.advertisement_of_pool(&key.name) {
            let message = format!("{key} must stay while Advertisement {advertisement} names it");
            let hint = "take it out of spec.addressPools of the Advertisement first, or delete that too";
            found.push(Violation::new("", ViolationCode::InUse, message).hint(hint));
        }
    }
}

/// Load balancer address that a Service may no longer use after a pool change, with the reason.
struct AddressLoss {
    address: IpAddr,
    holder: ServiceKey,
    denial: Denial,
}

/// Checks, for each pool that the request changes or deletes, if Services may keep the addresses in it. Each
/// address that a Service may not keep is a violation. With `evict`, the addresses of these Services are
/// released instead. Returns the Services whose addresses were released.
pub(super) fn settle(
    ledger: &mut Ledger<'_>,
    working: &mut Snapshot,
    staged: &[StagedObject],
    pruned: &[ObjectKey],
    evict: bool,
    found: &mut Vec<Violation>,
) -> BTreeSet<ServiceKey> {
    let mut displaced = BTreeSet::new();
    let of_staged = staged.iter().map(|staged_object| (&staged_object.key, Some(staged_object)));
    for (key, staged_object) in of_staged.chain(pruned.iter().map(|key| (key, None))) {
        if key.kind != Kind::AddressPool {
            continue;
        }
        let new = staged_object.and_then(|staged_object| staged_object.new.as_ref()).and_then(as_pool);
        if ledger.before.pool(&key.name).zip(new).is_some_and(|(old, new)| gives_the_same(old, new)) {
            continue;
        }
        let losses = review(ledger, working, &key.name, new);
        if evict {
            displaced.extend(losses.into_iter().map(|loss| loss.holder));
        } else {
            let refusals = refuse(key, new.is_some(), &losses);
            found.extend(refusals.into_iter().map(|violation| match staged_object {
                Some(staged_object) => staged_object.place(violation),
                None => violation,
            }));
        }
    }
    if displaced.len() > EVICTIONS_MAX {
        let message = format!(
            "must move at most {EVICTIONS_MAX} Services at once; this would move {}",
            displaced.len()
        );
        let hint = "take the addresses from the pool in several steps";
        found.push(Violation::new("", ViolationCode::TooLong, message).hint(hint));
    }
    for key in &displaced {
        ledger.detach(working, key);
    }
    displaced
}

fn as_pool(object: &Object) -> Option<&AddressPoolSpec> {
    object.as_address_pool()
}

/// True if two states of a pool offer the same addresses to the same Services.
fn gives_the_same(old: &AddressPoolSpec, new: &AddressPoolSpec) -> bool {
    let AddressPoolSpec {
        addresses,
        reserved,
        auto_assign: _,
        avoid_buggy_ips,
        priority: _,
        namespaces,
        service_selectors,
        disabled: _,
        routed_externally: _,
        quarantine_seconds: _,
    } = old;
    *addresses == new.addresses
        && *reserved == new.reserved
        && *avoid_buggy_ips == new.avoid_buggy_ips
        && *namespaces == new.namespaces
        && *service_selectors == new.service_selectors
}

/// Returns the addresses that Services may no longer use after the pool `name` becomes `new` (`None` if it is
/// deleted). In the record of each other address of the pool, sets the pool to the one that now contains the
/// address.
fn review(
    ledger: &mut Ledger<'_>,
    working: &mut Snapshot,
    name: &Name,
    new: Option<&AddressPoolSpec>,
) -> Vec<AddressLoss> {
    let mut addresses: BTreeSet<IpAddr> = ledger.before.held_of_pool(Some(name)).collect();
    let ranges = new.into_iter().flat_map(|pool| &pool.addresses);
    addresses.extend(ranges.flat_map(|range| working.held_of_no_pool_in(range)));
    let mut losses = Vec::new();
    for address in addresses {
        let mut kept_in = None;
        for holder in holders(ledger.before, working, name, address) {
            let Some(object) = working.service(&holder) else { continue };
            let Some(wanted) = LoadBalancerRequest::of(object) else { continue };
            match place(working, Some(ledger.config), &wanted, address, true) {
                Ok(pool) => kept_in = Some(pool),
                Err(denial) => losses.push(AddressLoss { address, holder, denial }),
            }
        }
        if let Some(pool) = kept_in {
            ledger.set_pool(working, address, pool);
        }
    }
    losses
}

/// Returns the Services that the loss of an address by a pool affects: those that have the address, and those
/// that had it before the request, still request it, and could have it in the unchanged pool.
fn holders(before: &Snapshot, working: &Snapshot, pool: &Name, address: IpAddr) -> BTreeSet<ServiceKey> {
    let record = |snapshot: &Snapshot| {
        let record = snapshot.address(address).and_then(|object| object.as_address());
        record.map(|record| record.services.clone()).unwrap_or_default()
    };
    let old = before.pool(pool);
    let mut holders = record(working);
    holders.extend(record(before).into_iter().filter(|key| {
        let wanted = working.service(key).and_then(|object| LoadBalancerRequest::of(object));
        wanted.zip(old).is_some_and(|(wanted, old)| {
            let names_another = wanted.pool.as_ref().is_some_and(|named| named != pool);
            wanted.wants(address) && !names_another && old.is_usable(address) && is_for(old, &wanted)
        })
    }));
    holders
}

/// Returns the violations for a pool change that takes addresses from Services: one for each changed field,
/// or a single one if the pool is deleted (`is_kept` is false).
fn refuse(key: &ObjectKey, is_kept: bool, losses: &[AddressLoss]) -> Vec<Violation> {
    let mut by_field: BTreeMap<&str, Vec<&AddressLoss>> = BTreeMap::new();
    for loss in losses {
        let field = if is_kept { field_of(&loss.denial) } else { "" };
        by_field.entry(field).or_default().push(loss);
    }
    let refusals = by_field.into_iter().map(|(field, losses)| {
        let listed = &losses[..losses.len().min(HOLDERS_LISTED_MAX)];
        let holders: Vec<_> =
            listed.iter().map(|loss| format!("{} of Service {}", loss.address, loss.holder)).collect();
        let more = losses.len().saturating_sub(HOLDERS_LISTED_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let held = format!("{}{rest}", holders.join(", "));
        let message = if is_kept {
            format!("must leave to Services the addresses that they hold: {held}")
        } else {
            format!("{key} must stay while Services hold its addresses: {held}")
        };
        let hint = "change the Services first, or send `evict=true` to give them other addresses, as far as there are any";
        let violation = Violation::new(field, ViolationCode::InUse, message).hint(hint);
        listed.iter().fold(violation, |violation, AddressLoss { holder, .. }| {
            violation.naming(&holder.namespace, &holder.name)
        })
    });
    refusals.collect()
}

/// Returns the JSON pointer of the pool field that is the reason for a denial.
const fn field_of(denial: &Denial) -> &'static str {
    match denial {
        Denial::Reserved(_) => "/spec/reserved",
        Denial::Avoided(_) => "/spec/avoidBuggyIPs",
        Denial::NotForService(_) => "/spec/serviceSelectors",
        Denial::ServiceRange(_)
        | Denial::WorkloadNetwork(_)
        | Denial::NodeAddress(_)
        | Denial::ExternalIp(_)
        | Denial::OutsideEveryPool
        | Denial::NotInNamedPool { .. }
        | Denial::PoolDisabled(_)
        | Denial::Held(_)
        | Denial::Crowded
        | Denial::Clash { .. }
        | Denial::OtherPolicy(_)
        | Denial::OtherSelector(_)
        | Denial::Quarantined { .. } => "/spec/addresses",
    }
}

/// Checks that a workload network contains no load balancer address and overlaps no pool.
pub(super) fn check_workload_network(
    snapshot: &Snapshot,
    at: String,
    network: &ipnet::IpNet,
    found: &mut Vec<Violation>,
) {
    let range = crate::kinds::address_pool::AddressRange::Net(*network);
    if let Some(pool) = snapshot.pool_overlapping(&range) {
        let message = format!("must not overlap an address pool; {network} overlaps AddressPool {pool}");
        let hint = "shrink the pool first, or choose another network";
        found.push(Violation::new(at.clone(), ViolationCode::Overlap, message).hint(hint));
    }
    if let Some(address) = snapshot.held_of_no_pool_in(&range).next()
        && let Some(holder) = snapshot.load_balancer_ip_holder(address)
    {
        let message = format!("must not hold {address}, a load balancer address of Service {holder}");
        let hint = "change that Service first, or choose another network";
        let violation = Violation::new(at, ViolationCode::AddressTaken, message).hint(hint);
        found.push(violation.naming(&holder.namespace, &holder.name));
    }
}

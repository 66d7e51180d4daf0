//! Admission rules for addresses that BGP announces as part of an aggregated prefix instead of as a /32 or /128.

use std::{collections::BTreeSet, net::IpAddr};

use super::length_field;
use crate::{
    admission::admit::staged_object::StagedObject,
    cluster::snapshot::Snapshot,
    kinds::{
        advertisement::{AdvertisementSpec, AdvertisementType},
        resource::{Kind, Object, ServiceKey, Spec},
        service::TrafficPolicy,
    },
    observed::assign::covering,
    primitives::{
        name::Name,
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

/// Checks the BGP rules that depend on the allocated addresses. Must run after the allocation.
pub(in crate::admission::admit) fn check_addresses(
    before: &Snapshot,
    snapshot: &Snapshot,
    staged: &[StagedObject],
    found: &mut Vec<Violation>,
) {
    for staged_object in staged {
        let mut own = Vec::new();
        match staged_object.new.as_ref().map(|object| &object.spec) {
            Some(Spec::Service(_)) => {
                let Some(key) = staged_object.service_key() else { continue };
                // A conflict that arose without this write, while the Service was pending, does not block it.
                let stands = before.service(&key).map(|old| policy(old))
                    == snapshot.service(&key).map(|new| policy(new));
                let had: BTreeSet<IpAddr> = before.addresses_of(&key).filter(|_| stands).collect();
                for address in snapshot.addresses_of(&key).filter(|address| !had.contains(address)) {
                    check_address(snapshot, address, None, &mut own);
                }
            }
            Some(Spec::Advertisement(spec)) if spec.advertisement_type == AdvertisementType::Bgp => {
                check_addresses_of(snapshot, &staged_object.key.name, spec, &mut own);
            }
            Some(_) | None => {}
        }
        // The first address is enough: the remedy is the same for all.
        found.extend(own.into_iter().take(1).map(|violation| staged_object.place(violation)));
    }
}

/// Checks the rules of aggregated prefixes for all addresses that an Advertisement covers. Stops at the first
/// violation.
fn check_addresses_of(
    snapshot: &Snapshot,
    name: &Name,
    spec: &AdvertisementSpec,
    found: &mut Vec<Violation>,
) {
    if !IpFamily::ALL.into_iter().any(|family| spec.aggregates(family)) {
        return;
    }
    for object in snapshot.list(Kind::Address, None, None) {
        let Some(record) = object.as_address() else { continue };
        if spec.covers_pool(record.pool.as_ref()) && found.is_empty() {
            check_address(snapshot, record.address, Some(name), found);
        }
    }
}

/// Checks that an address may be announced as part of an aggregated prefix. `name` is the written Advertisement;
/// `None` if the write concerns the Service.
fn check_address(snapshot: &Snapshot, address: IpAddr, name: Option<&Name>, found: &mut Vec<Violation>) {
    let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) else { return };
    let family = IpFamily::of(address);
    let wide = covering(snapshot, record, AdvertisementType::Bgp)
        .find(|(of, spec)| name.is_none_or(|name| name == *of) && spec.aggregates(family));
    let Some((advertisement, spec)) = wide else { return };
    let is_local = |key: &&ServiceKey| {
        snapshot.service(key).is_some_and(|object| policy(object) == Some(TrafficPolicy::Local))
    };
    let local = record.services.iter().find(is_local);
    let length = spec.length(family);
    let at_length = length_field(family);
    let (at, message, hint) = match (local, &record.pool, name) {
        (Some(service), _, Some(_)) => (
            at_length,
            format!(
                "must be {} while Service {service} has {address} with externalTrafficPolicy Local: nodes without its endpoints would draw its traffic by a prefix of {length} bits",
                family.bits()
            ),
            "leave the field out, or let serviceSelectors or addressPools leave such Services out",
        ),
        (Some(_), _, None) => (
            "/spec/externalTrafficPolicy",
            format!(
                "must be Cluster: Advertisement {advertisement} announces {address} by a prefix of {length} bits, also from nodes without endpoints of the Service"
            ),
            "use an address that is announced by itself, from a pool that another Advertisement names",
        ),
        (None, None, Some(_)) => (
            at_length,
            format!(
                "must be {} while it announces {address}, which is of no pool: a prefix of {length} bits around it draws traffic of addresses that are not ours",
                family.bits()
            ),
            "name the pools to announce in spec.addressPools",
        ),
        (None, None, None) => (
            "/spec/loadBalancer/addresses",
            format!(
                "must lie in a pool: Advertisement {advertisement} announces {address} by a prefix of {length} bits, which draws traffic of addresses that are not ours"
            ),
            "name the pools to announce in spec.addressPools of that Advertisement",
        ),
        (None, Some(_), _) => return,
    };
    found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
}

fn policy(object: &Object) -> Option<TrafficPolicy> {
    object.as_service().map(|service| service.external_traffic_policy)
}

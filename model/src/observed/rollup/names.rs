//! Status of DNS names: the condition Resolvable of Services with host names, and the status of DnsZones.

use std::collections::BTreeMap;

use super::{AnnouncementInputs, no, yes};
use crate::{
    cluster::{compiled::CompiledService, snapshot::Snapshot},
    discovery::hostnames::{ClaimDecision, families_in_service, judge_claim, owner_of},
    kinds::{
        condition_reason::ConditionReason,
        dns_zone::DnsZoneSpec,
        resource::{ObjectKey, ServiceKey},
        service::ServiceSpec,
    },
    observed::status::{Condition, ConditionType, DnsZoneStatus},
    primitives::{
        domain_name::{DomainName, reversed},
        net::IpFamily,
    },
};

/// Type of the condition of Services.
const AT: ConditionType = ConditionType::Resolvable;
/// Maximum number of host names listed in the status of a DnsZone, in each of the lists.
const LISTED_MAX: usize = 100;
/// Maximum number of claimed host names that the status of a DnsZone examines.
const EXAMINED_MAX: usize = 10_000;

/// Returns the condition Resolvable of a Service, which is true if the DNS server answers each of its host names with an
/// address; `None` if it has no host names. `compiled` is the compiled form of the Service, if any.
#[must_use]
pub fn service_resolvable(
    of: &AnnouncementInputs<'_>,
    key: &ServiceKey,
    spec: &ServiceSpec,
    compiled: Option<&CompiledService>,
) -> Option<Condition> {
    if spec.hostnames.is_empty() {
        return None;
    }
    let snapshot = of.scene.snapshot;
    if let Some(refused) = spec.hostnames.iter().find_map(|hostname| refused(snapshot, key, hostname)) {
        return Some(refused);
    }
    let families = compiled.map(families_in_service).unwrap_or_default();
    let mut in_service = Vec::new();
    let mut obstacles = Vec::new();
    for address in snapshot.addresses_of(key) {
        let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) else { continue };
        if !of.is_in_dns(record) {
            obstacles.push(format!("{address} is not announced"));
        } else if families.contains(&IpFamily::of(address)) {
            in_service.push(address.to_string());
        } else {
            obstacles.push(format!("no endpoint of the IP family of {address} is usable"));
        }
    }
    let names: Vec<_> = spec.hostnames.iter().map(DomainName::as_str).collect();
    if in_service.is_empty() {
        if obstacles.is_empty() {
            obstacles.push("the Service has no load balancer address".to_owned());
        }
        let message = format!("{} has no address: {}", names.join(", "), obstacles.join("; "));
        let hint = "the names resolve again when an address is announced and has a usable endpoint";
        return Some(no(AT, ConditionReason::NoAddressInService, message).hint(hint));
    }
    let mut message = format!("{} is answered with {}", names.join(", "), in_service.join(", "));
    for obstacle in obstacles {
        message += "; ";
        message += &obstacle;
    }
    Some(Condition { message, ..yes(AT, ConditionReason::NamesAnswered) })
}

/// Returns the condition for a host name that the Service does not have; `None` if the Service has it.
fn refused(snapshot: &Snapshot, key: &ServiceKey, hostname: &DomainName) -> Option<Condition> {
    let namespace = &key.namespace;
    Some(match judge_claim(snapshot, key, hostname.as_str()) {
        ClaimDecision::Owner => return None,
        ClaimDecision::NoZone => {
            no(AT, ConditionReason::NoDnsZone, format!("no DnsZone contains {hostname}"))
                .hint("create a DnsZone that contains the name and allows the namespace")
        }
        ClaimDecision::NotAllowed(zone) => {
            let message =
                format!("DnsZone {zone} does not allow namespace {namespace} to have the name {hostname}");
            no(AT, ConditionReason::NamespaceNotAllowed, message)
                .hint("add the namespace to spec.allowedNamespaces of the DnsZone")
        }
        ClaimDecision::Reserved(zone) => {
            let message = format!("DnsZone {zone} has its own records at {hostname}");
            no(AT, ConditionReason::NameReserved, message)
                .hint("choose another name, or remove the record from spec.records of the DnsZone")
        }
        ClaimDecision::Taken(owner) => {
            // Users of one namespace may not read the objects of another one.
            let owner = if owner.namespace.as_ref() == Some(namespace) {
                owner.to_string()
            } else {
                format!("a {} of another namespace", owner.kind)
            };
            let message = format!("{owner} is older and has the name {hostname}");
            no(AT, ConditionReason::NameTaken, message)
                .hint("choose another name, or remove it from the older object")
        }
    })
}

/// Computes the status of a DnsZone from the stored objects.
#[must_use]
pub fn dns_zone_status(snapshot: &Snapshot, spec: &DnsZoneSpec) -> DnsZoneStatus {
    let zone = spec.zone.as_str();
    let apex = snapshot.hostname_claims(zone).next().map(|claim| (zone.to_owned(), &claim.object));
    let below = snapshot.hostnames_below(zone).take(EXAMINED_MAX);
    let below = below.filter_map(|(name, claims)| Some((reversed(name), &claims.get_min()?.object)));
    let (mut hostnames, mut refused): (BTreeMap<_, String>, BTreeMap<_, _>) = <_>::default();
    for (name, first) in apex.into_iter().chain(below) {
        let is_here = snapshot.dns_zone_of(&name).is_some_and(|(_, found)| found.zone == spec.zone);
        let Some(name) = DomainName::parse(&name).ok().filter(|_| is_here) else { continue };
        match owner_of(snapshot, name.as_str()) {
            Some(owner) if hostnames.len() < LISTED_MAX => drop(hostnames.insert(name, shown(owner))),
            None if refused.len() < LISTED_MAX => drop(refused.insert(name, shown(first))),
            Some(_) | None => {}
        }
    }
    let used = if spec.records.is_empty() && hostnames.is_empty() {
        no(ConditionType::Used, ConditionReason::NoNames, "it has no records and no host names".to_owned())
            .hint("add spec.records, or host names of a Service or HttpRoute in an allowed namespace")
    } else {
        yes(ConditionType::Used, ConditionReason::HasNames)
    };
    DnsZoneStatus {
        conditions: vec![yes(ConditionType::Accepted, ConditionReason::Valid), used],
        hostnames,
        refused,
    }
}

/// Returns the text for an object with a host name: a Service by its namespace and name, another object with its kind.
fn shown(object: &ObjectKey) -> String {
    ServiceKey::of_object_key(object).map_or_else(|| object.to_string(), |service| service.to_string())
}

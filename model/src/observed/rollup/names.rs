//! Status of DNS names: the condition Resolvable of Services and routes with host names, and the status of DnsZones.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnnouncementInputs, no, yes};
use crate::{
    cluster::{compiled::CompiledService, snapshot::Snapshot},
    discovery::hostnames::{ClaimDecision, families_in_service, judge_claim, owner_of, services_behind},
    kinds::{
        condition_reason::ConditionReason,
        dns_zone::DnsZoneSpec,
        resource::{ObjectKey, ServiceKey},
        route::RouteSpec,
        service::ServiceSpec,
    },
    observed::status::{Condition, ConditionType, DnsZoneStatus},
    primitives::{
        domain_name::{DomainName, reversed},
        hostname_pattern::HostnamePattern,
        net::IpFamily,
    },
};

/// Type of the condition of Services and routes.
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
    let object = key.object_key();
    let mut names = spec.hostnames.iter().map(DomainName::as_str);
    if let Some(refused) = names.find_map(|hostname| refused(snapshot, &object, hostname)) {
        return Some(refused);
    }
    let families = compiled.map(families_in_service).unwrap_or_default();
    let mut found = FoundAddresses::default();
    found.add(of, key, &families);
    let names: Vec<_> = spec.hostnames.iter().map(DomainName::as_str).collect();
    Some(found.condition(&names.join(", "), "the Service has no load balancer address"))
}

/// Returns the condition Resolvable of a route, which is true if the DNS server answers each of its host names in a DnsZone with
/// an address; `None` if no DnsZone contains one of them.
#[must_use]
pub fn route_resolvable(
    of: &AnnouncementInputs<'_>,
    route: &ObjectKey,
    spec: RouteSpec<'_>,
) -> Option<Condition> {
    let snapshot = of.scene.snapshot;
    let names = spec.hostnames().iter().map(HostnamePattern::as_str);
    let names: Vec<_> = names.filter(|name| snapshot.dns_zone_of(name).is_some()).collect();
    if let Some(refused) = names.iter().find_map(|name| refused(snapshot, route, name)) {
        return Some(refused);
    }
    let mut all = FoundAddresses::default();
    for name in &names {
        let owner = owner_of(snapshot, name).unwrap_or(route);
        let mut found = FoundAddresses::default();
        for service in services_behind(snapshot, owner, name) {
            let compiled = (of.scene.compiled)(&service);
            let families = compiled.map(|compiled| families_in_service(&compiled)).unwrap_or_default();
            found.add(of, &service, &families);
        }
        if found.in_service.is_empty() {
            let missing = "the Services that publish its Gateways have no load balancer address";
            return Some(found.condition(name, missing));
        }
        all.in_service.append(&mut found.in_service);
        all.obstacles.append(&mut found.obstacles);
    }
    (!names.is_empty()).then(|| all.condition(&names.join(", "), ""))
}

/// Load balancer addresses of host names, as text.
#[derive(Debug, Default)]
struct FoundAddresses {
    /// Addresses in the answers.
    in_service: BTreeSet<String>,
    /// Reasons for which other addresses are not in the answers.
    obstacles: BTreeSet<String>,
}

impl FoundAddresses {
    fn add(&mut self, of: &AnnouncementInputs<'_>, service: &ServiceKey, families: &BTreeSet<IpFamily>) {
        let snapshot = of.scene.snapshot;
        for address in snapshot.addresses_of(service) {
            let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) else {
                continue;
            };
            if !of.is_in_dns(record) {
                self.obstacles.insert(format!("{address} is not announced"));
            } else if families.contains(&IpFamily::of(address)) {
                self.in_service.insert(address.to_string());
            } else {
                self.obstacles.insert(format!("no endpoint of the IP family of {address} is usable"));
            }
        }
    }

    /// Returns the condition for host names. `missing` is the reason if there is no address at all.
    fn condition(self, names: &str, missing: &str) -> Condition {
        let Self { in_service, mut obstacles } = self;
        let join = |texts: BTreeSet<String>, by: &str| texts.into_iter().collect::<Vec<_>>().join(by);
        if in_service.is_empty() {
            if obstacles.is_empty() {
                obstacles.insert(missing.to_owned());
            }
            let message = format!("{names} has no address: {}", join(obstacles, "; "));
            let hint = "the names resolve again when an address is announced and has a usable endpoint";
            return no(AT, ConditionReason::NoAddressInService, message).hint(hint);
        }
        let mut message = format!("{names} is answered with {}", join(in_service, ", "));
        for obstacle in obstacles {
            message += "; ";
            message += &obstacle;
        }
        Condition { message, ..yes(AT, ConditionReason::NamesAnswered) }
    }
}

/// Returns the condition for a host name that an object does not have; `None` if the object has it.
fn refused(snapshot: &Snapshot, claimant: &ObjectKey, hostname: &str) -> Option<Condition> {
    let namespace = claimant.namespace.as_ref();
    let own = namespace.map(ToString::to_string).unwrap_or_default();
    Some(match judge_claim(snapshot, claimant, hostname) {
        ClaimDecision::Owner => return None,
        ClaimDecision::NoZone => {
            no(AT, ConditionReason::NoDnsZone, format!("no DnsZone contains {hostname}"))
                .hint("create a DnsZone that contains the name and allows the namespace")
        }
        ClaimDecision::NotAllowed(zone) => {
            let message =
                format!("DnsZone {zone} does not allow namespace {own} to have the name {hostname}");
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
            let owner = if owner.namespace.as_ref() == namespace {
                owner.to_string()
            } else {
                format!("a {} of another namespace", owner.kind)
            };
            let message = format!("{owner} is older and has the name {hostname}");
            no(AT, ConditionReason::NameTaken, message)
                .hint("choose another name, or remove it from the older object")
        }
        ClaimDecision::NotAttached => {
            let message = format!("the route is attached to no listener with the name {hostname}");
            no(AT, ConditionReason::NoMatchingListenerHostname, message).hint(
                "correct spec.hostnames, or add a listener with the name to a Gateway of spec.parentRefs",
            )
        }
    })
}

/// Computes the status of a DnsZone from the stored objects.
#[must_use]
pub fn dns_zone_status(snapshot: &Snapshot, spec: &DnsZoneSpec) -> DnsZoneStatus {
    let zone = spec.zone.as_str();
    let apex = snapshot.hostname_claims(zone).next().map(|claim| (zone.to_owned(), &claim.object));
    let below = snapshot.hostnames_below(zone).take(EXAMINED_MAX);
    let below = below.filter_map(|(name, claims)| Some((reversed(name), &claims.first()?.object)));
    let (mut hostnames, mut refused): (BTreeMap<_, String>, BTreeMap<_, _>) = <_>::default();
    for (name, first) in apex.into_iter().chain(below) {
        let is_here = snapshot.dns_zone_of(&name).is_some_and(|(_, found)| found.zone == spec.zone);
        if !is_here {
            continue;
        }
        match owner_of(snapshot, &name) {
            Some(owner) if hostnames.len() < LISTED_MAX => drop(hostnames.insert(name, shown(owner))),
            None if refused.len() < LISTED_MAX => drop(refused.insert(name, shown(first))),
            Some(_) | None => {}
        }
    }
    let used = if spec.records.is_empty() && hostnames.is_empty() {
        no(ConditionType::Used, ConditionReason::NoNames, "it has no records and no host names".to_owned())
            .hint("add spec.records, or host names of a Service or route in an allowed namespace")
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

//! Owners of host names: which Service, Gateway or route has a name in a DnsZone, the Services whose addresses are
//! those of the name, and the reason why another object does not have it.

use std::collections::BTreeSet;

use crate::{
    cluster::{
        compiled::CompiledService,
        snapshot::{HostnameClaim, Snapshot, publishing_service},
    },
    http::{HttpObjects, attach},
    kinds::{
        dns_zone::{DnsRecord, DnsZoneSpec},
        http_route::ParentRef,
        resource::{Kind, ObjectKey, ServiceKey},
        route::RouteSpec,
    },
    primitives::{name::Name, net::IpFamily},
    program::usable,
};

/// Maximum number of claims of one host name that are examined to find its owner, so that the cost of a question has a limit.
const CLAIMS_EXAMINED_MAX: usize = 64;

/// Decision about the claim of a host name by a Service or route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDecision<'a> {
    /// The object has the name, or the name leads to the Gateways of the route.
    Owner,
    /// No DnsZone contains the name.
    NoZone,
    /// The DnsZone with this name does not allow names of the namespace.
    NotAllowed(&'a Name),
    /// The DnsZone with this name has a static address or alias with the name, or its name server has it.
    Reserved(&'a Name),
    /// An older Service, Gateway or route has the name.
    Taken(&'a ObjectKey),
    /// The route is attached to no listener with the name.
    NotAttached,
}

/// Returns the decision about the claim of a host name by an object.
#[must_use]
pub fn judge_claim<'a>(snapshot: &'a Snapshot, claimant: &ObjectKey, hostname: &str) -> ClaimDecision<'a> {
    let Some((zone, spec)) = snapshot.dns_zone_of(hostname) else { return ClaimDecision::NoZone };
    if !claimant.namespace.as_ref().is_some_and(|namespace| spec.allows(namespace)) {
        return ClaimDecision::NotAllowed(zone);
    }
    if is_reserved(spec, hostname) {
        return ClaimDecision::Reserved(zone);
    }
    if is_route(claimant) && gateways_of(snapshot, claimant, hostname).is_empty() {
        return ClaimDecision::NotAttached;
    }
    match owner_in(snapshot, spec, hostname) {
        Some(owner) if owner != claimant && !leads_to(snapshot, owner, claimant, hostname) => {
            ClaimDecision::Taken(owner)
        }
        Some(_) | None => ClaimDecision::Owner,
    }
}

/// Returns true if the addresses of a host name that `owner` has lead to all Gateways of a route, such as that of another path
/// of the same host.
fn leads_to(snapshot: &Snapshot, owner: &ObjectKey, claimant: &ObjectKey, hostname: &str) -> bool {
    let services = |object| services_behind(snapshot, object, hostname);
    is_route(claimant) && services(claimant).is_subset(&services(owner))
}

/// Returns the Service, Gateway or route that has a host name, or `None` if no object has it.
#[must_use]
pub fn owner_of<'a>(snapshot: &'a Snapshot, hostname: &str) -> Option<&'a ObjectKey> {
    let (_, spec) = snapshot.dns_zone_of(hostname)?;
    if is_reserved(spec, hostname) { None } else { owner_in(snapshot, spec, hostname) }
}

/// Returns the oldest object in an allowed namespace of a DnsZone that claims a host name. Routes that are attached to no
/// listener with the name do not count, so that a route without effect takes no name from others.
pub(super) fn owner_in<'a>(
    snapshot: &'a Snapshot,
    spec: &DnsZoneSpec,
    hostname: &str,
) -> Option<&'a ObjectKey> {
    let is_allowed =
        |claim: &&HostnameClaim| claim.object.namespace.as_ref().is_some_and(|one| spec.allows(one));
    let claims = snapshot.hostname_claims(hostname).filter(is_allowed).take(CLAIMS_EXAMINED_MAX);
    let mut keys = claims.map(|claim| &claim.object);
    keys.find(|key| !is_route(key) || !gateways_of(snapshot, key, hostname).is_empty())
}

/// Returns the Services whose load balancer addresses are those of a host name that an object has: the Service itself, or
/// the Services that publish the Gateways of a route.
#[must_use]
pub fn services_behind(snapshot: &Snapshot, owner: &ObjectKey, hostname: &str) -> BTreeSet<ServiceKey> {
    match ServiceKey::of_object_key(owner) {
        Some(service) => BTreeSet::from([service]),
        None => {
            let gateways = gateways_of(snapshot, owner, hostname);
            gateways.iter().filter_map(|key| publishing_service(snapshot.get(key)?)).collect()
        }
    }
}

/// Returns the Gateways that serve a host name for an object: the Gateway itself, or those with a listener to which a
/// route is attached with the name. Empty for other kinds.
#[must_use]
pub fn gateways_of(snapshot: &Snapshot, owner: &ObjectKey, hostname: &str) -> BTreeSet<ObjectKey> {
    if owner.kind == Kind::Gateway {
        return BTreeSet::from([owner.clone()]);
    }
    let Some(object) = snapshot.get(owner) else { return BTreeSet::new() };
    let (Some(namespace), Some(route)) = (&owner.namespace, RouteSpec::of(object)) else {
        return BTreeSet::new();
    };
    let objects = HttpObjects::parents_of(snapshot, namespace, route);
    let serving = route.parent_refs().iter().filter(|parent| {
        let listeners = attach(&objects, namespace, route, parent).unwrap_or_default();
        let mut names = listeners.iter().flat_map(|listener| &listener.hostnames).flatten();
        names.any(|name| name.as_str() == hostname)
    });
    let gateway = |parent: &ParentRef| ObjectKey {
        kind: Kind::Gateway,
        namespace: parent.namespace.clone().or_else(|| owner.namespace.clone()),
        name: parent.name.clone(),
    };
    serving.map(gateway).collect()
}

fn is_route(key: &ObjectKey) -> bool {
    matches!(key.kind, Kind::HttpRoute | Kind::TlsRoute)
}

fn is_reserved(spec: &DnsZoneSpec, hostname: &str) -> bool {
    let is_reserving =
        |record: &DnsRecord| record.name.as_str() == hostname && record.record_type.excludes_hostnames();
    hostname == spec.name_server() || spec.records.iter().any(is_reserving)
}

/// Returns the IP families of which a Service has a usable endpoint at one of its ports: one to which nodes forward
/// new connections. None if nodes do not program the Service.
#[must_use]
pub fn families_in_service(compiled: &CompiledService) -> BTreeSet<IpFamily> {
    if !compiled.is_programmable() || !compiled.unsupported.is_empty() {
        return BTreeSet::new();
    }
    compiled.ports.iter().flat_map(usable).map(|endpoint| IpFamily::of(endpoint.address)).collect()
}

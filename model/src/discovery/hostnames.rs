//! Owners of host names: which Service has a name in a DnsZone, and the reason why another one does not.

use std::collections::BTreeSet;

use crate::{
    cluster::{compiled::CompiledService, snapshot::Snapshot},
    kinds::{
        dns_zone::{DnsRecord, DnsZoneSpec},
        resource::ServiceKey,
    },
    primitives::{name::Name, net::IpFamily},
    program::usable,
};

/// Decision about the claim of a host name by a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDecision<'a> {
    /// The Service has the name.
    Owner,
    /// No DnsZone contains the name.
    NoZone,
    /// The DnsZone with this name does not allow names of the namespace.
    NotAllowed(&'a Name),
    /// The DnsZone with this name has a static address or alias with the name, or its name server has it.
    Reserved(&'a Name),
    /// An older Service has the name.
    Taken(&'a ServiceKey),
}

/// Returns the decision about the claim of a host name by a Service.
#[must_use]
pub fn judge_claim<'a>(snapshot: &'a Snapshot, service: &ServiceKey, hostname: &str) -> ClaimDecision<'a> {
    let Some((zone, spec)) = snapshot.dns_zone_of(hostname) else { return ClaimDecision::NoZone };
    if !spec.allows(&service.namespace) {
        return ClaimDecision::NotAllowed(zone);
    }
    if is_reserved(spec, hostname) {
        return ClaimDecision::Reserved(zone);
    }
    match owner_in(snapshot, spec, hostname) {
        Some(owner) if owner != service => ClaimDecision::Taken(owner),
        Some(_) | None => ClaimDecision::Owner,
    }
}

/// Returns the Service that has a host name, or `None` if no Service has it.
#[must_use]
pub fn owner_of<'a>(snapshot: &'a Snapshot, hostname: &str) -> Option<&'a ServiceKey> {
    let (_, spec) = snapshot.dns_zone_of(hostname)?;
    if is_reserved(spec, hostname) { None } else { owner_in(snapshot, spec, hostname) }
}

/// Returns the oldest Service in an allowed namespace of a DnsZone that claims a host name.
pub(super) fn owner_in<'a>(
    snapshot: &'a Snapshot,
    spec: &DnsZoneSpec,
    hostname: &str,
) -> Option<&'a ServiceKey> {
    let mut claims = snapshot.hostname_claims(hostname);
    claims.find(|claim| spec.allows(&claim.service.namespace)).map(|claim| &claim.service)
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

//! Index of DNS names: the zones of DnsZones, and the host names that Services, Gateways and routes claim.

use std::collections::BTreeSet;

use imbl::OrdMap;

use super::{Entry, Snapshot};
use crate::{
    kinds::{
        dns_zone::DnsZoneSpec,
        gateway::ServiceRef,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{
        domain_name::{DomainName, reversed},
        hostname_pattern::HostnamePattern,
        name::Name,
        non_empty_set::NonEmptySet,
        quantity::Timestamp,
    },
};

/// Index of DNS names in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameIndex {
    /// Names of the DnsZones by their zone.
    zones: OrdMap<DomainName, Name>,
    /// Objects that claim a host name, by the reversed name, so that names below a name are adjacent.
    claims: OrdMap<String, NonEmptySet<HostnameClaim>>,
    /// Gateways by the Service that publishes them.
    published: OrdMap<ServiceKey, NonEmptySet<ObjectKey>>,
}

/// Claim of a host name by a Service, by a Gateway with a listener for the name, or by a route. Claims are ordered by
/// the creation time of the object, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostnameClaim {
    /// Creation time of the object; `None` before the object is stored.
    pub created: Option<Timestamp>,
    /// Service, Gateway or route that claims the name.
    pub object: ObjectKey,
}

impl NameIndex {
    pub(super) fn index_zone(&mut self, name: &Name, spec: &DnsZoneSpec, entry: Entry) {
        entry.map(&mut self.zones, spec.zone.clone(), name);
    }

    pub(super) fn index_hostnames(&mut self, object: &Object, key: &ObjectKey, entry: Entry) {
        let created = object.metadata.creation_timestamp;
        for hostname in claimed(&object.spec) {
            let claim = HostnameClaim { created, object: key.clone() };
            entry.set(&mut self.claims, reversed(hostname), claim);
        }
        if let Some(service) = publishing_service(object) {
            entry.set(&mut self.published, service, key.clone());
        }
    }
}

/// Returns the host names that an object claims, each once: those of a Service, of the listeners of a Gateway, and of a
/// route. Names of Gateways and routes may be wildcard names, such as `*.example.org`.
fn claimed(spec: &Spec) -> BTreeSet<&str> {
    if let Spec::Service(spec) = spec {
        spec.hostnames.iter().map(DomainName::as_str).collect()
    } else if let Spec::Gateway(spec) = spec {
        let names = spec.listeners.iter().filter_map(|listener| listener.hostname.as_ref());
        names.map(HostnamePattern::as_str).collect()
    } else if let Spec::HttpRoute(spec) = spec {
        spec.hostnames.iter().map(HostnamePattern::as_str).collect()
    } else if let Spec::TlsRoute(spec) = spec {
        spec.hostnames.iter().map(HostnamePattern::as_str).collect()
    } else {
        BTreeSet::new()
    }
}

impl Snapshot {
    /// Returns the name of the DnsZone with exactly this zone, or `None` if there is none.
    #[must_use]
    pub fn dns_zone_named(&self, zone: &str) -> Option<&Name> {
        self.names.zones.get(zone)
    }

    /// Returns the DnsZone to which a DNS name in lower case belongs, with its name: the one with the longest zone that
    /// contains the name. `None` if no zone contains the name.
    #[must_use]
    pub fn dns_zone_of(&self, name: &str) -> Option<(&Name, &DnsZoneSpec)> {
        if self.names.zones.is_empty() {
            return None;
        }
        let mut rest = Some(name);
        while let Some(zone) = rest {
            if let Some(object) = self.names.zones.get(zone) {
                let key = ObjectKey { kind: Kind::DnsZone, namespace: None, name: object.clone() };
                return Some((object, self.objects.get(&key)?.as_dns_zone()?));
            }
            rest = zone.split_once('.').map(|(_, parent)| parent);
        }
        None
    }

    /// Returns the claims of a host name, oldest first.
    pub fn hostname_claims(&self, name: &str) -> impl Iterator<Item = &HostnameClaim> {
        self.names.claims.get(&reversed(name)).into_iter().flatten()
    }

    /// Returns the Services whose addresses may be those of host names: Services that claim a host name, and those that
    /// publish a Gateway. A Service may occur several times.
    pub fn services_with_hostnames(&self) -> impl Iterator<Item = ServiceKey> {
        let claiming = self.names.claims.values().flatten();
        let claiming = claiming.filter_map(|claim| ServiceKey::of_object_key(&claim.object));
        claiming.chain(self.names.published.keys().cloned())
    }

    /// Returns true if the addresses of a Service may be those of host names: it claims a host name, or publishes a
    /// Gateway.
    #[must_use]
    pub fn is_named(&self, service: &ServiceKey) -> bool {
        let spec = self.service(service).and_then(|object| object.as_service());
        spec.is_some_and(|spec| !spec.hostnames.is_empty() || self.names.published.contains_key(service))
    }

    /// Returns the claimed host names below a DNS name, with the labels from right to left, each with its claims.
    pub fn hostnames_below(&self, name: &str) -> impl Iterator<Item = (&str, &NonEmptySet<HostnameClaim>)> {
        let prefix = format!("{}.", reversed(name));
        let below = self.names.claims.range(prefix.clone()..);
        below
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .map(|(name, claims)| (name.as_str(), claims))
    }
}

/// Returns the Service whose load balancer addresses lead to the listeners of a Gateway: the one in `spec.publishedBy`, by
/// default the one with its namespace and name. `None` for objects of other kinds.
#[must_use]
pub fn publishing_service(gateway: &Object) -> Option<ServiceKey> {
    let spec = gateway.as_gateway()?;
    let own = gateway.metadata.namespace.clone()?;
    Some(match &spec.published_by {
        Some(ServiceRef { namespace, name }) => {
            ServiceKey { namespace: namespace.clone().unwrap_or(own), name: name.clone() }
        }
        None => ServiceKey { namespace: own, name: gateway.metadata.name.clone() },
    })
}

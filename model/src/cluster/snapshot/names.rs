//! Index of DNS names: the zones of DnsZones, and the host names that Services, Gateways and HttpRoutes claim.

use std::collections::BTreeSet;

use imbl::{OrdMap, OrdSet};

use super::{Entry, Snapshot};
use crate::{
    kinds::{
        dns_zone::DnsZoneSpec,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{
        domain_name::{DomainName, reversed},
        hostname_pattern::HostnamePattern,
        name::Name,
        quantity::Timestamp,
    },
};

/// Index of DNS names in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameIndex {
    /// Names of the DnsZones by their zone.
    zones: OrdMap<DomainName, Name>,
    /// Objects that claim a host name, by the reversed name, so that names below a name are adjacent.
    claims: OrdMap<String, OrdSet<HostnameClaim>>,
}

/// Claim of a host name by a Service, by a Gateway with a listener for the name, or by an HttpRoute. Claims are ordered by
/// the creation time of the object, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostnameClaim {
    /// Creation time of the object; `None` before the object is stored.
    pub created: Option<Timestamp>,
    /// Service, Gateway or HttpRoute that claims the name.
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
    }
}

/// Returns the host names that an object claims, each once: those of a Service, of the listeners of a Gateway, and of an
/// HttpRoute. Wildcard names are left out.
fn claimed(spec: &Spec) -> BTreeSet<&str> {
    let exact = |pattern: &'_ HostnamePattern| pattern.wildcard_base().is_none();
    if let Spec::Service(spec) = spec {
        spec.hostnames.iter().map(DomainName::as_str).collect()
    } else if let Spec::Gateway(spec) = spec {
        let names = spec.listeners.iter().filter_map(|listener| listener.hostname.as_ref());
        names.filter(|name| exact(name)).map(HostnamePattern::as_str).collect()
    } else if let Spec::HttpRoute(spec) = spec {
        spec.hostnames.iter().filter(|name| exact(name)).map(HostnamePattern::as_str).collect()
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
        let gateways = self.list(Kind::Gateway, None, None);
        claiming.chain(gateways.filter_map(|gateway| publishing_service(&gateway.key())))
    }

    /// Returns true if the addresses of a Service may be those of host names: it claims a host name, or publishes a
    /// Gateway.
    #[must_use]
    pub fn is_named(&self, service: &ServiceKey) -> bool {
        let ServiceKey { namespace, name } = service.clone();
        let gateway = ObjectKey { kind: Kind::Gateway, namespace: Some(namespace), name };
        let spec = self.service(service).and_then(|object| object.as_service());
        spec.is_some_and(|spec| !spec.hostnames.is_empty() || self.objects.contains_key(&gateway))
    }

    /// Returns the claimed host names below a DNS name, with the labels from right to left, each with its claims.
    pub fn hostnames_below(&self, name: &str) -> impl Iterator<Item = (&str, &OrdSet<HostnameClaim>)> {
        let prefix = format!("{}.", reversed(name));
        let below = self.names.claims.range(prefix.clone()..);
        below
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .map(|(name, claims)| (name.as_str(), claims))
    }
}

/// Returns the Service whose load balancer addresses lead to the listeners of a Gateway: the one with its namespace and
/// name. `None` for objects of other kinds.
#[must_use]
pub fn publishing_service(gateway: &ObjectKey) -> Option<ServiceKey> {
    let namespace = gateway.namespace.clone().filter(|_| gateway.kind == Kind::Gateway)?;
    Some(ServiceKey { namespace, name: gateway.name.clone() })
}

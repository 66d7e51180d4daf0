//! Index of DNS names: the zones of DnsZones, and the host names that Services claim.

use imbl::{OrdMap, OrdSet};

use super::{Entry, Snapshot};
use crate::{
    kinds::{
        dns_zone::DnsZoneSpec,
        resource::{Kind, Object, ObjectKey, ServiceKey},
    },
    primitives::{
        domain_name::{DomainName, reversed},
        name::Name,
        quantity::Timestamp,
    },
};

/// Index of DNS names in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameIndex {
    /// Names of the DnsZones by their zone.
    zones: OrdMap<DomainName, Name>,
    /// Services that claim a host name, by the reversed name, so that names below a name are adjacent.
    claims: OrdMap<String, OrdSet<HostnameClaim>>,
}

/// Claim of a host name by a Service. Claims are ordered by the creation time of the Service, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostnameClaim {
    /// Creation time of the Service; `None` before the Service is stored.
    pub created: Option<Timestamp>,
    /// Service that claims the name.
    pub service: ServiceKey,
}

impl NameIndex {
    pub(super) fn index_zone(&mut self, name: &Name, spec: &DnsZoneSpec, entry: Entry) {
        entry.map(&mut self.zones, spec.zone.clone(), name);
    }

    pub(super) fn index_hostnames(&mut self, object: &Object, service: &ServiceKey, entry: Entry) {
        let Some(spec) = object.as_service() else { return };
        let created = object.metadata.creation_timestamp;
        for hostname in &spec.hostnames {
            let claim = HostnameClaim { created, service: service.clone() };
            entry.set(&mut self.claims, hostname.reversed(), claim);
        }
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

    /// Returns the Services that claim a host name. A Service with several names occurs several times.
    pub fn services_with_hostnames(&self) -> impl Iterator<Item = &ServiceKey> {
        self.names.claims.values().flatten().map(|claim| &claim.service)
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

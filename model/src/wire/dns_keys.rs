//! Keys of DnsZones with their secrets, which DNS servers receive.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::resource::Kind,
    primitives::{domain_name::DomainName, quantity::Revision, secret::Secret},
};

/// Keys of all DnsZones at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsKeyList {
    /// Revision of the state that has these keys.
    pub revision: Revision,
    /// Keys in the order of their DnsZones.
    pub keys: Vec<ZoneKey>,
}

/// Key of a DnsZone with its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneKey {
    /// Name of the zone that has the key, such as `example.org`.
    pub zone: DomainName,
    /// Name of the key, which is unique in its zone only.
    #[schema(value_type = DomainName, example = "secondary.example.org")]
    pub name: DomainName,
    /// Secret of the key in base64, from 16 to 128 bytes.
    #[schema(value_type = String)]
    pub secret: Secret,
}

impl DnsKeyList {
    /// Returns the keys of a state.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let zones = snapshot.list(Kind::DnsZone, None, None).filter_map(|object| object.as_dns_zone());
        let keys = zones.flat_map(|spec| {
            spec.keys.iter().filter_map(|key| {
                let secret = key.secret.clone()?;
                Some(ZoneKey { zone: spec.zone.clone(), name: key.name.clone(), secret })
            })
        });
        Self { revision: snapshot.revision(), keys: keys.collect() }
    }
}

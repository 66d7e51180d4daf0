//! Content of the zones of DnsZones for secondary name servers (RFC 5936), and the servers to notify of changes
//! (RFC 1996).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use super::{
    answer::{Lookup, NameRecords, labels_below},
    record::{DnsQuestion, Record, RecordType},
    zone::Zone,
};
use crate::{
    kinds::{dns_key::DnsOperation, dns_zone::DnsZoneSpec, resource::Kind},
    primitives::domain_name::reversed,
};

/// Types of the records in a zone, without its start of authority.
pub(super) const TYPES: [RecordType; 7] = [
    RecordType::Ns,
    RecordType::A,
    RecordType::Aaaa,
    RecordType::Cname,
    RecordType::Txt,
    RecordType::Srv,
    RecordType::Mx,
];

/// Decision about the transfer of a zone to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferDecision<'a> {
    /// The client may transfer the zone, which has this start of authority.
    Allowed(&'a DnsZoneSpec, Record),
    /// No DnsZone has exactly this zone.
    NotAuthoritative,
    /// The DnsZone does not allow the client.
    Refused,
}

/// Decides about the transfer of the zone of a question to a client. `key` is the name of the key of the zone with which
/// the client has signed its request, if it is signed.
#[must_use]
pub fn judge_transfer<'a>(
    zone: &'a Zone,
    question: &DnsQuestion,
    client: IpAddr,
    key: Option<&str>,
) -> TransferDecision<'a> {
    let name = question.labels.join(".");
    let found = zone.snapshot().dns_zone_of(&name).filter(|(_, spec)| spec.zone.as_str() == name);
    let Some((_, spec)) = found else { return TransferDecision::NotAuthoritative };
    let mut networks = spec.transfer.iter().flat_map(|transfer| &transfer.allow);
    let is_permitted = key.is_some_and(|key| spec.permits(key, DnsOperation::Transfer));
    if is_permitted || networks.any(|network| network.contains(&client)) {
        TransferDecision::Allowed(spec, zone.start_of_external(spec))
    } else {
        TransferDecision::Refused
    }
}

/// Returns the records of the zone of a DnsZone without its start of authority: those of the answers, and the
/// delegations to the DnsZones below. Returns `None` if it is not known yet which addresses are announced.
#[must_use]
pub fn transfer_records(zone: &Zone, spec: &DnsZoneSpec) -> Option<Vec<Record>> {
    let mut records = BTreeSet::new();
    for name in names(zone, spec) {
        for record_type in TYPES {
            match (Lookup { zone, record_type }).find_external(&name, spec) {
                NameRecords::Records(found, _) => records.extend(found),
                NameRecords::Alias(record, _) => drop(records.insert(record)),
                NameRecords::Nothing => {}
                NameRecords::Unknown => return None,
            }
        }
    }
    for below in zones_below(zone, spec) {
        let lookup = Lookup { zone, record_type: RecordType::Ns };
        if let NameRecords::Records(servers, addresses) = lookup.apex_of(below) {
            records.extend(servers.into_iter().chain(addresses));
        }
    }
    Some(records.into_iter().collect())
}

/// Notification of a secondary name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneNotification {
    /// Address of the secondary name server.
    pub server: SocketAddr,
    /// Start of authority of the zone.
    pub start: Record,
    /// Name of the key of the zone with which the notification is signed; `None` without a signature.
    pub key: Option<String>,
}

/// Returns the notifications of all secondary name servers.
#[must_use]
pub fn notifications(zone: &Zone) -> Vec<ZoneNotification> {
    let zones = zone.snapshot().list(Kind::DnsZone, None, None).filter_map(|object| object.as_dns_zone());
    let of_zone = |spec: &DnsZoneSpec| {
        let Some(transfer) = &spec.transfer else { return Vec::new() };
        let notification = |server| ZoneNotification {
            server,
            start: zone.start_of_external(spec),
            key: transfer.notify_key.as_ref().map(ToString::to_string),
        };
        transfer.notified().map(notification).collect()
    };
    zones.flat_map(of_zone).collect()
}

/// Returns the names that may have records in the zone of a DnsZone. Names that a longer zone contains are left out.
fn names(zone: &Zone, spec: &DnsZoneSpec) -> BTreeSet<String> {
    let fixed = spec.records.iter().map(|record| record.name.to_string());
    let claimed = zone.snapshot().hostnames_below(spec.zone.as_str()).map(|(name, _)| reversed(name));
    let all = [spec.zone.to_string(), spec.name_server()].into_iter().chain(fixed).chain(claimed);
    all.filter(|name| belongs_to(zone, spec, name)).collect()
}

/// Returns true if a name is in the zone of a DnsZone, and in no longer zone.
pub(super) fn belongs_to(zone: &Zone, spec: &DnsZoneSpec, name: &str) -> bool {
    let domain = &zone.settings.domain;
    let labels = DnsQuestion::new(name, RecordType::Any).labels;
    let is_in_cluster =
        labels_below(&labels, domain).is_some() && domain.as_str().len() >= spec.zone.as_str().len();
    let owner = zone.snapshot().dns_zone_of(name);
    !is_in_cluster && owner.is_some_and(|(_, owner)| owner.zone == spec.zone)
}

/// Returns the DnsZones directly below a DnsZone that external clients see.
fn zones_below<'a>(zone: &'a Zone, spec: &'a DnsZoneSpec) -> impl Iterator<Item = &'a DnsZoneSpec> {
    let snapshot = zone.snapshot();
    let all = snapshot.list(Kind::DnsZone, None, None).filter_map(|object| object.as_dns_zone());
    all.filter(move |below| {
        let parent = below.zone.as_str().split_once('.').and_then(|(_, parent)| snapshot.dns_zone_of(parent));
        below.visibility.is_external() && parent.is_some_and(|(_, parent)| parent.zone == spec.zone)
    })
}

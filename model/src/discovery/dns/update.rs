//! Dynamic updates of the zones of DnsZones (RFC 2136): prerequisites, and the static records that result.

use std::collections::BTreeSet;

use super::{
    answer::{Lookup, NameRecords},
    record::{Record, RecordData, RecordType},
    transfer::{TYPES, belongs_to},
    zone::Zone,
};
use crate::{
    discovery::hostnames::owner_of,
    kinds::dns_zone::{DNS_TTL_MAX, DnsRecord, DnsRecordType, DnsZoneSpec},
    primitives::domain_name::DomainName,
};

/// Update of a zone. Names are in lower case, without the final dot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneUpdate {
    /// Conditions, all of which must hold before the first change.
    pub prerequisites: Vec<Prerequisite>,
    /// Changes in the order in which they are made.
    pub changes: Vec<RecordChange>,
}

/// Condition of an update (RFC 2136 §2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prerequisite {
    /// The name has a record.
    NameInUse(String),
    /// The name has no record.
    NameUnused(String),
    /// The name has a record of the type.
    SetExists(String, RecordType),
    /// The name has no record of the type.
    SetMissing(String, RecordType),
    /// The name has exactly these values of the type.
    SetEquals(String, RecordType, BTreeSet<RecordData>),
}

impl Prerequisite {
    fn name(&self) -> &str {
        match self {
            Self::NameInUse(name)
            | Self::NameUnused(name)
            | Self::SetExists(name, _)
            | Self::SetMissing(name, _)
            | Self::SetEquals(name, _, _) => name,
        }
    }
}

/// Change of records (RFC 2136 §2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// Adds a record, or changes the time to live of one with the same value.
    Add(Record),
    /// Removes the record with a value.
    Remove(String, RecordData),
    /// Removes all records of a type.
    RemoveSet(String, RecordType),
    /// Removes all records of a name.
    RemoveName(String),
}

/// Reason for which an update is not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The name of a prerequisite has no record (NXDOMAIN).
    #[error("a name has no record")]
    NameUnused,
    /// The name of a prerequisite has a record (YXDOMAIN).
    #[error("a name has a record")]
    NameInUse,
    /// The records of a prerequisite exist (YXRRSET).
    #[error("records exist")]
    SetExists,
    /// The records of a prerequisite do not exist, or have other values (NXRRSET).
    #[error("records do not exist, or have other values")]
    SetMissing,
    /// A name does not belong to the zone (NOTZONE).
    #[error("{0} does not belong to the zone")]
    NotInZone(String),
    /// A record cannot be in the zone, or may not be changed (REFUSED).
    #[error("{0}")]
    Refused(String),
    /// The announced addresses, which prerequisites depend on, are not known yet (SERVFAIL).
    #[error("the announced addresses are not known yet")]
    Unknown,
}

/// Returns the static records of a DnsZone after an update. Prerequisites apply to all records of the zone, those of
/// Services included, and changes to static records only.
///
/// # Errors
/// Returns the reason if a prerequisite does not hold or a change is not permitted. No change is made then.
pub fn apply_update(
    zone: &Zone,
    spec: &DnsZoneSpec,
    update: &ZoneUpdate,
) -> Result<Vec<DnsRecord>, UpdateError> {
    for prerequisite in &update.prerequisites {
        check(zone, spec, prerequisite)?;
    }
    // All changes are permitted before the first one is made (RFC 2136 §3.4.1).
    for change in &update.changes {
        permit(zone, spec, change)?;
    }
    let mut records = spec.records.clone();
    for change in &update.changes {
        make(spec, &mut records, change)?;
    }
    Ok(records)
}

fn check(zone: &Zone, spec: &DnsZoneSpec, prerequisite: &Prerequisite) -> Result<(), UpdateError> {
    let name = prerequisite.name();
    if !belongs_to(zone, spec, name) {
        return Err(UpdateError::NotInZone(name.to_owned()));
    }
    let (is_met, error) = match prerequisite {
        Prerequisite::NameInUse(_) => (is_used(zone, spec, name)?, UpdateError::NameUnused),
        Prerequisite::NameUnused(_) => (!is_used(zone, spec, name)?, UpdateError::NameInUse),
        Prerequisite::SetExists(_, wanted) => {
            (!values(zone, spec, name, *wanted)?.is_empty(), UpdateError::SetMissing)
        }
        Prerequisite::SetMissing(_, wanted) => {
            (values(zone, spec, name, *wanted)?.is_empty(), UpdateError::SetExists)
        }
        Prerequisite::SetEquals(_, wanted, expected) => {
            (values(zone, spec, name, *wanted)? == *expected, UpdateError::SetMissing)
        }
    };
    if is_met { Ok(()) } else { Err(error) }
}

fn is_used(zone: &Zone, spec: &DnsZoneSpec, name: &str) -> Result<bool, UpdateError> {
    for wanted in TYPES.into_iter().chain([RecordType::Soa]) {
        if !values(zone, spec, name, wanted)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the values of a type that a name has in the answers of the zone.
fn values(
    zone: &Zone,
    spec: &DnsZoneSpec,
    name: &str,
    wanted: RecordType,
) -> Result<BTreeSet<RecordData>, UpdateError> {
    let lookup = Lookup { zone, record_type: wanted };
    match lookup.find_external(name, spec) {
        NameRecords::Records(records, _) => Ok(records.into_iter().map(|record| record.data).collect()),
        // A question for another type finds the alias too.
        NameRecords::Alias(record, _) if wanted == RecordType::Cname => Ok(BTreeSet::from([record.data])),
        NameRecords::Alias(..) | NameRecords::Nothing => Ok(BTreeSet::new()),
        NameRecords::Unknown => Err(UpdateError::Unknown),
    }
}

/// Checks that the name of a change belongs to the zone, and that no Service has the records.
fn permit(zone: &Zone, spec: &DnsZoneSpec, change: &RecordChange) -> Result<(), UpdateError> {
    let (name, concerns_hostnames) = match change {
        RecordChange::Add(record) => (&record.owner, excludes_hostnames(&record.data)),
        RecordChange::Remove(name, data) => (name, excludes_hostnames(data)),
        RecordChange::RemoveSet(name, record_type) => {
            (name, static_type(*record_type).is_some_and(|record_type| record_type.excludes_hostnames()))
        }
        RecordChange::RemoveName(name) => (name, true),
    };
    if !belongs_to(zone, spec, name) {
        return Err(UpdateError::NotInZone(name.clone()));
    }
    match owner_of(zone.snapshot(), name).filter(|_| concerns_hostnames) {
        Some(owner) => Err(UpdateError::Refused(format!("{owner} has the name {name}"))),
        None => Ok(()),
    }
}

fn excludes_hostnames(data: &RecordData) -> bool {
    static_value(data).is_some_and(|(record_type, _)| record_type.excludes_hostnames())
}

fn make(spec: &DnsZoneSpec, records: &mut Vec<DnsRecord>, change: &RecordChange) -> Result<(), UpdateError> {
    match change {
        RecordChange::Add(record) => return add(spec, records, record),
        RecordChange::Remove(name, data) => {
            let Some((record_type, value)) = static_value(data) else { return Ok(()) };
            for record in records.iter_mut().filter(|it| is_of(it, name, record_type)) {
                record.values.retain(|known| !is_same(record_type, known, &value));
            }
            records.retain(|record| !record.values.is_empty());
        }
        RecordChange::RemoveSet(name, record_type) => {
            if let Some(record_type) = static_type(*record_type) {
                records.retain(|record| !is_of(record, name, record_type));
            }
        }
        RecordChange::RemoveName(name) => records.retain(|record| record.name.as_str() != name),
    }
    Ok(())
}

/// Adds a record. An alias beside other records of the name, and another record beside an alias, are ignored (RFC 2136
/// §3.4.2.2).
fn add(spec: &DnsZoneSpec, records: &mut Vec<DnsRecord>, new: &Record) -> Result<(), UpdateError> {
    let Some((record_type, value)) = static_value(&new.data) else {
        return Err(UpdateError::Refused(format!(
            "{}: only A, AAAA, CNAME, TXT, SRV and MX records can be added",
            new.owner
        )));
    };
    let name = DomainName::parse(&new.owner)
        .map_err(|error| UpdateError::Refused(format!("{}: {error}", new.owner)))?;
    let is_alias = |record: &DnsRecord| record.record_type == DnsRecordType::Cname;
    let is_new_alias = record_type == DnsRecordType::Cname;
    let mut at_name = records.iter().filter(|record| record.name == name);
    if at_name.any(|record| is_alias(record) != is_new_alias) || (is_new_alias && name == spec.zone) {
        return Ok(());
    }
    // The time to live is that of all records of the set (RFC 2181 §5.2).
    let ttl = Some(new.ttl.min(DNS_TTL_MAX));
    match records.iter_mut().find(|record| is_of(record, name.as_str(), record_type)) {
        Some(record) => {
            record.ttl = ttl;
            if is_new_alias {
                record.values = vec![value];
            } else if !record.values.iter().any(|known| is_same(record_type, known, &value)) {
                record.values.push(value);
            }
        }
        None => records.push(DnsRecord { name, record_type, ttl, values: vec![value] }),
    }
    Ok(())
}

fn is_of(record: &DnsRecord, name: &str, record_type: DnsRecordType) -> bool {
    record.name.as_str() == name && record.record_type == record_type
}

/// Returns true if two values of a type have the same meaning, such as an IPv6 address in two forms.
fn is_same(record_type: DnsRecordType, one: &str, other: &str) -> bool {
    let parse = |text: &str| crate::kinds::dns_zone::DnsRecordValue::parse(record_type, text);
    one == other || matches!((parse(one), parse(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns the type of static records, or `None` if DnsZones have no static records of the type.
const fn static_type(record_type: RecordType) -> Option<DnsRecordType> {
    match record_type {
        RecordType::A => Some(DnsRecordType::A),
        RecordType::Aaaa => Some(DnsRecordType::Aaaa),
        RecordType::Cname => Some(DnsRecordType::Cname),
        RecordType::Srv => Some(DnsRecordType::Srv),
        RecordType::Txt => Some(DnsRecordType::Txt),
        RecordType::Mx => Some(DnsRecordType::Mx),
        RecordType::Ns | RecordType::Ptr | RecordType::Soa | RecordType::Any | RecordType::Other => None,
    }
}

/// Returns type and value of a static record, or `None` if DnsZones have no static records of the type.
fn static_value(data: &RecordData) -> Option<(DnsRecordType, String)> {
    match data {
        RecordData::A(address) => Some((DnsRecordType::A, address.to_string())),
        RecordData::Aaaa(address) => Some((DnsRecordType::Aaaa, address.to_string())),
        RecordData::Cname(target) => Some((DnsRecordType::Cname, target.clone())),
        RecordData::Srv { priority, weight, port, target } => {
            Some((DnsRecordType::Srv, format!("{priority} {weight} {port} {target}")))
        }
        RecordData::Mx { preference, exchange } => {
            Some((DnsRecordType::Mx, format!("{preference} {exchange}")))
        }
        RecordData::Txt(text) => Some((DnsRecordType::Txt, text.clone())),
        RecordData::Ns(_) | RecordData::Ptr(_) | RecordData::Soa { .. } | RecordData::AnyRefused => None,
    }
}

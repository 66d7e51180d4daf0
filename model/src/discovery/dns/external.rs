//! Records of the zones of DnsZones: static records, and the host names of Services, Gateways and HttpRoutes with their load
//! balancer addresses.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    answer::{Lookup, NameRecords, any_refused},
    record::{Record, RecordData, RecordType},
};
use crate::{
    discovery::hostnames::{owner_in, owner_of, services_behind},
    kinds::dns_zone::{DnsRecordValue, DnsZoneSpec},
    primitives::{domain_name::reversed, net::IpFamily},
};

/// Maximum number of claimed host names below a name that are examined to determine if the name exists.
const EXAMINED_MAX: usize = 64;

/// Static records of a DnsZone by their reversed names, so that names below a name are adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StaticRecords(BTreeMap<String, Vec<(u32, RecordData)>>);

impl StaticRecords {
    /// Indexes the records of a DnsZone. Values that cannot be parsed, which a newer server may have admitted, are left
    /// out.
    pub(super) fn of(spec: &DnsZoneSpec) -> Self {
        let mut records: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in &spec.records {
            let ttl = record.ttl.unwrap_or(spec.ttl);
            let values = record.values.iter();
            let values = values.filter_map(|value| DnsRecordValue::parse(record.record_type, value).ok());
            let data = values.map(|value| (ttl, RecordData::from(value)));
            records.entry(record.name.reversed()).or_default().extend(data);
        }
        Self(records)
    }

    fn at(&self, name: &str) -> Option<&Vec<(u32, RecordData)>> {
        self.0.get(&reversed(name))
    }

    fn has_below(&self, name: &str) -> bool {
        let prefix = format!("{}.", reversed(name));
        self.0.range(prefix.clone()..).next().is_some_and(|(name, _)| name.starts_with(&prefix))
    }
}

impl From<DnsRecordValue> for RecordData {
    fn from(value: DnsRecordValue) -> Self {
        match value {
            DnsRecordValue::A(address) => Self::A(address),
            DnsRecordValue::Aaaa(address) => Self::Aaaa(address),
            DnsRecordValue::Cname(target) => Self::Cname(target.to_string()),
            DnsRecordValue::Txt(text) => Self::Txt(text),
            DnsRecordValue::Srv { priority, weight, port, target } => {
                Self::Srv { priority, weight, port, target: target.to_string() }
            }
            DnsRecordValue::Mx { preference, exchange } => {
                Self::Mx { preference, exchange: exchange.to_string() }
            }
        }
    }
}

const fn type_of(data: &RecordData) -> RecordType {
    match data {
        RecordData::A(_) => RecordType::A,
        RecordData::Aaaa(_) => RecordType::Aaaa,
        RecordData::Cname(_) => RecordType::Cname,
        RecordData::Ns(_) => RecordType::Ns,
        RecordData::Ptr(_) => RecordType::Ptr,
        RecordData::Srv { .. } => RecordType::Srv,
        RecordData::Mx { .. } => RecordType::Mx,
        RecordData::Soa { .. } => RecordType::Soa,
        RecordData::Txt(_) => RecordType::Txt,
        RecordData::AnyRefused => RecordType::Any,
    }
}

/// Returns true if Services and routes cannot have a name with these static records: an address or an alias is among them.
fn excludes_hostnames(records: &[(u32, RecordData)]) -> bool {
    let types = [RecordType::A, RecordType::Aaaa, RecordType::Cname];
    records.iter().any(|(_, data)| types.contains(&type_of(data)))
}

impl Lookup<'_> {
    /// Finds the records with which a question for a name in the zone of a DnsZone is answered: those of the name or, if it
    /// does not exist, those of a wildcard name, with the name as their owner (RFC 4592 §3.3.1).
    pub(super) fn find_in_zone(&self, name: &str, spec: &DnsZoneSpec) -> NameRecords {
        let found = self.find_external(name, spec);
        if !matches!(found, NameRecords::Nothing) {
            return found;
        }
        let Some(wildcard) = self.zone.wildcard_of(name, spec) else { return found };
        if self.record_type == RecordType::Any {
            return NameRecords::Records(vec![any_refused(name.to_owned())], Vec::new());
        }
        let Some(addresses) = self.zone.addresses_in_service(&wildcard) else { return NameRecords::Unknown };
        self.addresses(name, &addresses, spec.ttl)
    }

    /// Finds the records of exactly this name in the zone of a DnsZone.
    pub(super) fn find_external(&self, name: &str, spec: &DnsZoneSpec) -> NameRecords {
        let found = self.external_records(name, spec);
        if self.record_type == RecordType::Any && matches!(found, NameRecords::Records(..)) {
            return NameRecords::Records(vec![any_refused(name.to_owned())], Vec::new());
        }
        found
    }

    fn external_records(&self, name: &str, spec: &DnsZoneSpec) -> NameRecords {
        let fixed = self.zone.static_records(spec);
        let is_apex = name == spec.zone.as_str();
        if is_apex && matches!(self.record_type, RecordType::Soa | RecordType::Ns) {
            return self.apex_of(spec);
        }
        let at_name = fixed.and_then(|fixed| fixed.at(name));
        let is_address = matches!(self.record_type, RecordType::A | RecordType::Aaaa);
        if let Some(records) = at_name.filter(|records| !is_address || excludes_hostnames(records)) {
            return self.static_records(name, records);
        }
        if name == spec.name_server() {
            return self.addresses(name, &self.zone.settings.servers, spec.ttl);
        }
        if owner_in(self.zone.snapshot(), spec, name).is_some() {
            let Some(addresses) = self.zone.addresses_in_service(name) else { return NameRecords::Unknown };
            return self.addresses(name, &addresses, spec.ttl);
        }
        let is_above = || {
            let claims = self.zone.snapshot().hostnames_below(name).take(EXAMINED_MAX);
            let mut names = claims.map(|(below, _)| reversed(below));
            names.any(|below| owner_of(self.zone.snapshot(), &below).is_some())
                || spec.name_server().ends_with(&format!(".{name}"))
                || fixed.is_some_and(|fixed| fixed.has_below(name))
        };
        if is_apex || at_name.is_some() || is_above() {
            NameRecords::Records(Vec::new(), Vec::new())
        } else {
            NameRecords::Nothing
        }
    }

    fn static_records(&self, name: &str, all: &[(u32, RecordData)]) -> NameRecords {
        let record = |(ttl, data): &(u32, RecordData)| Record {
            owner: name.to_owned(),
            ttl: *ttl,
            data: data.clone(),
        };
        let alias = all.iter().find_map(|entry| {
            let RecordData::Cname(target) = &entry.1 else { return None };
            Some(NameRecords::Alias(record(entry), target.clone()))
        });
        if let Some(alias) = alias.filter(|_| self.record_type != RecordType::Any) {
            return alias;
        }
        let wanted = all.iter().filter(|(_, data)| type_of(data) == self.record_type);
        NameRecords::Records(wanted.map(record).collect(), Vec::new())
    }

    /// Returns the start of authority or the name server of a zone, with the addresses of the name server.
    pub(super) fn apex_of(&self, spec: &DnsZoneSpec) -> NameRecords {
        if self.record_type == RecordType::Soa {
            return NameRecords::Records(vec![self.zone.start_of_external(spec)], Vec::new());
        }
        let server = spec.name_server();
        let owner = spec.zone.to_string();
        let record = Record { owner, ttl: spec.ttl, data: RecordData::Ns(server.clone()) };
        let fixed = self.zone.static_records(spec).and_then(|fixed| fixed.at(&server));
        let additional = match fixed {
            Some(fixed) => fixed
                .iter()
                .filter(|(_, data)| matches!(data, RecordData::A(_) | RecordData::Aaaa(_)))
                .map(|(ttl, data)| Record { owner: server.clone(), ttl: *ttl, data: data.clone() })
                .collect(),
            None => self.all_addresses(&server, &self.zone.settings.servers, spec.ttl),
        };
        NameRecords::Records(vec![record], additional)
    }
}

impl super::zone::Zone {
    /// Returns the addresses of a host name, each once: those of the Service that has it, or of the Services that publish
    /// its Gateways. Only addresses that are announced are returned, as long as an endpoint of their IP family is usable.
    /// `None` if the announced addresses are not known yet.
    pub(super) fn addresses_in_service(&self, hostname: &str) -> Option<Vec<IpAddr>> {
        let announced = self.announced()?;
        let Some(owner) = owner_of(self.snapshot(), hostname) else { return Some(Vec::new()) };
        let mut found = Vec::new();
        for service in services_behind(self.snapshot(), owner, hostname) {
            let families = self.families_in_service(&service);
            let is_in_service = |address: &IpAddr| {
                announced.contains(address)
                    && families.is_some_and(|families| families.contains(&IpFamily::of(*address)))
            };
            for address in self.snapshot().addresses_of(&service).filter(is_in_service) {
                // Services may share an address.
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        Some(found)
    }

    /// Returns the host name of an object by which a name in the zone of a DnsZone is answered: the name itself, or a wildcard
    /// name if it does not exist. `None` if the name has no addresses of a host name.
    pub(super) fn hostname_of(&self, name: &str, spec: &DnsZoneSpec) -> Option<String> {
        if owner_of(self.snapshot(), name).is_some() {
            return Some(name.to_owned());
        }
        if self.has_name(name, spec) { None } else { self.wildcard_of(name, spec) }
    }

    /// Returns the wildcard host name for a name that does not exist: the one directly below the closest name above it that
    /// exists. `None` if no object has this host name.
    fn wildcard_of(&self, name: &str, spec: &DnsZoneSpec) -> Option<String> {
        let mut above = name;
        while above != spec.zone.as_str() {
            (_, above) = above.split_once('.')?;
            let wildcard = format!("*.{above}");
            if owner_of(self.snapshot(), &wildcard).is_some() {
                return Some(wildcard);
            }
            if self.has_name(above, spec) {
                return None;
            }
        }
        None
    }

    fn has_name(&self, name: &str, spec: &DnsZoneSpec) -> bool {
        // The type has no influence on the existence of a name.
        let lookup = Lookup { zone: self, record_type: RecordType::Txt };
        !matches!(lookup.find_external(name, spec), NameRecords::Nothing)
    }

    /// Returns the start of authority of the zone of a DnsZone.
    pub(super) fn start_of_external(&self, spec: &DnsZoneSpec) -> Record {
        let data = RecordData::Soa {
            primary: spec.name_server(),
            mailbox: format!("hostmaster.{}", spec.zone),
            serial: self.external_serial(),
            minimum: spec.negative_ttl,
        };
        Record { owner: spec.zone.to_string(), ttl: spec.negative_ttl, data }
    }
}

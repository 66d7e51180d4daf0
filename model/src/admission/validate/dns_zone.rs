//! Validation rules of DnsZones, and of the host names of Services.

use std::collections::{BTreeMap, BTreeSet};

use super::{check_length, check_unique};
use crate::{
    kinds::{
        dns_key::{DNS_KEYS_MAX, DNS_SECRET_BYTES, DnsKey, DnsOperation, secret_bytes},
        dns_zone::{
            DNS_NAMESPACES_MAX, DNS_NOTIFIED_MAX, DNS_RECORDS_MAX, DNS_TRANSFER_NETWORKS_MAX, DNS_TTL_MAX,
            DNS_VALUES_MAX, DnsRecord, DnsRecordType, DnsRecordValue, DnsTransfer, DnsZoneSpec, parse_server,
        },
        service::{HOSTNAMES_MAX, ServiceSpec, ServiceType},
    },
    primitives::{
        domain_name::DomainName,
        violation::{
            Violation,
            ViolationCode::{Conflict, Duplicate, Invalid, Required},
        },
    },
};

/// Zones of reverse names, which are answered from the addresses of Services.
const REVERSE_ZONES: [&str; 2] = ["in-addr.arpa", "ip6.arpa"];

pub(super) fn validate(spec: &DnsZoneSpec, found: &mut Vec<Violation>) {
    let is_reverse = |reverse: &&str| {
        let below = spec.zone.as_str().strip_suffix(*reverse);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    };
    if let Some(reverse) = REVERSE_ZONES.iter().find(|reverse| is_reverse(reverse)) {
        let message =
            format!("must not be in {reverse}: reverse names follow from the addresses of Services");
        found.push(Violation::new("/spec/zone", Invalid, message));
    }
    check_ttl("/spec/ttl", Some(spec.ttl), found);
    check_ttl("/spec/negativeTtl", Some(spec.negative_ttl), found);
    check_length("/spec/allowedNamespaces", spec.allowed_namespaces.len(), DNS_NAMESPACES_MAX, found);
    check_keys(&spec.keys, found);
    if let Some(transfer) = &spec.transfer {
        let has_key = spec.keys.iter().any(|key| key.operations.contains(&DnsOperation::Transfer));
        check_transfer(transfer, has_key, found);
        let key = transfer.notify_key.as_ref();
        if let Some(key) = key.filter(|key| !spec.permits(key.as_str(), DnsOperation::Transfer)) {
            let message = format!("must be the name of a key in `keys` that permits Transfer, not `{key}`");
            found.push(Violation::new("/spec/transfer/notifyKey", Invalid, message));
        }
    }
    if !check_length("/spec/records", spec.records.len(), DNS_RECORDS_MAX, found) {
        return;
    }
    let mut types: BTreeMap<&DomainName, BTreeSet<DnsRecordType>> = BTreeMap::new();
    for record in &spec.records {
        types.entry(&record.name).or_default().insert(record.record_type);
    }
    let mut seen = BTreeSet::new();
    for (index, record) in spec.records.iter().enumerate() {
        let at = format!("/spec/records/{index}");
        if !seen.insert((&record.name, record.record_type)) {
            let message = format!(
                "must not repeat {} {}: put all values into one entry",
                record.name, record.record_type
            );
            found.push(Violation::new(format!("{at}/name"), Duplicate, message));
        }
        check_record(spec, &at, record, types.get(&record.name), found);
    }
}

fn check_keys(keys: &[DnsKey], found: &mut Vec<Violation>) {
    let at = "/spec/keys";
    if !check_length(at, keys.len(), DNS_KEYS_MAX, found) {
        return;
    }
    check_unique(keys.iter().map(|key| &key.name), |index| format!("{at}/{index}/name"), found);
    for (index, key) in keys.iter().enumerate() {
        if key.operations.is_empty() {
            let message = "must have at least one operation: Transfer, Update or both";
            found.push(Violation::new(format!("{at}/{index}/operations"), Required, message));
        }
        // The message does not repeat the secret.
        if key.secret.as_ref().is_some_and(|secret| secret_bytes(secret).is_none()) {
            let (min, max) = (DNS_SECRET_BYTES.start(), DNS_SECRET_BYTES.end());
            let message = format!("must be base64 of {min} to {max} bytes");
            let violation = Violation::new(format!("{at}/{index}/secret"), Invalid, message);
            found.push(violation.hint("create it with `tsig-keygen` or `openssl rand -base64 32`"));
        }
    }
}

fn check_transfer(transfer: &DnsTransfer, has_key: bool, found: &mut Vec<Violation>) {
    let at = "/spec/transfer/allow";
    if transfer.allow.is_empty() && !has_key {
        let message = "must have at least one network, unless a key permits Transfer: leave `transfer` out to transfer \
                       the zone to nobody";
        found.push(Violation::new(at, Required, message));
    }
    if check_length(at, transfer.allow.len(), DNS_TRANSFER_NETWORKS_MAX, found) {
        check_unique(transfer.allow.iter(), |index| format!("{at}/{index}"), found);
    }
    let at = "/spec/transfer/notify";
    if !check_length(at, transfer.notify.len(), DNS_NOTIFIED_MAX, found) {
        return;
    }
    for (index, text) in transfer.notify.iter().enumerate() {
        if parse_server(text).is_none() {
            let message = format!("must be an address such as 192.0.2.53 or 192.0.2.53:5353, not `{text}`");
            found.push(Violation::new(format!("{at}/{index}"), Invalid, message));
        }
    }
    check_unique(transfer.notified(), |index| format!("{at}/{index}"), found);
}

fn check_ttl(at: &str, ttl: Option<u32>, found: &mut Vec<Violation>) {
    if let Some(ttl) = ttl.filter(|ttl| *ttl > DNS_TTL_MAX) {
        let message = format!("must be between 0 and {DNS_TTL_MAX} seconds, not {ttl}");
        found.push(Violation::new(at, Invalid, message));
    }
}

fn check_record(
    spec: &DnsZoneSpec,
    at: &str,
    record: &DnsRecord,
    types: Option<&BTreeSet<DnsRecordType>>,
    found: &mut Vec<Violation>,
) {
    let DnsRecord { name, record_type, ttl, values } = record;
    if !name.is_within(&spec.zone) {
        let message = format!("must be {0} or end in .{0}; {name} is outside of the zone", spec.zone);
        let hint = "names are complete, such as www.example.org in the zone example.org";
        found.push(Violation::new(format!("{at}/name"), Conflict, message).hint(hint));
    }
    if *record_type == DnsRecordType::Cname {
        check_alias(spec, at, record, types, found);
    }
    check_ttl(&format!("{at}/ttl"), *ttl, found);
    let at_values = format!("{at}/values");
    if values.is_empty() {
        found.push(Violation::new(at_values, Required, "must have at least one value"));
        return;
    }
    if !check_length(&at_values, values.len(), DNS_VALUES_MAX, found) {
        return;
    }
    let mut parsed = Vec::new();
    for (index, value) in values.iter().enumerate() {
        match DnsRecordValue::parse(*record_type, value) {
            Ok(value) => parsed.push(value),
            Err(message) => found.push(Violation::new(format!("{at_values}/{index}"), Invalid, message)),
        }
    }
    if parsed.len() == values.len() {
        check_unique(parsed.iter(), |index| format!("{at_values}/{index}"), found);
    }
}

/// Checks an alias: no other record may have its name (RFC 1034 §3.6.2). The zone itself always has others.
fn check_alias(
    spec: &DnsZoneSpec,
    at: &str,
    record: &DnsRecord,
    types: Option<&BTreeSet<DnsRecordType>>,
    found: &mut Vec<Violation>,
) {
    let name = &record.name;
    if *name == spec.zone {
        let message = format!("must not be CNAME at {name}, which has the records of the zone itself");
        found.push(
            Violation::new(format!("{at}/type"), Conflict, message).hint("use A and AAAA records there"),
        );
    } else if name.as_str() == spec.name_server() {
        let message = format!("must not be CNAME at {name}, the name server of the zone");
        found.push(
            Violation::new(format!("{at}/type"), Conflict, message).hint("use A and AAAA records there"),
        );
    }
    let other = types.into_iter().flatten().find(|one| **one != DnsRecordType::Cname);
    if let Some(other) = other {
        let message = format!("must be the only record of {name}, which also has {other}");
        found.push(Violation::new(format!("{at}/type"), Conflict, message));
    }
    if record.values.len() > 1 {
        let message = "must have exactly one value: an alias has one target";
        found.push(Violation::new(format!("{at}/values"), Conflict, message));
    }
}

pub(super) fn validate_hostnames(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let at = "/spec/hostnames";
    if !spec.hostnames.is_empty() && spec.service_type != ServiceType::LoadBalancer {
        let message = "must be left out unless type is LoadBalancer, whose addresses the names have";
        found.push(Violation::new(at, Conflict, message));
    }
    if check_length(at, spec.hostnames.len(), HOSTNAMES_MAX, found) {
        check_unique(spec.hostnames.iter(), |index| format!("{at}/{index}"), found);
    }
}

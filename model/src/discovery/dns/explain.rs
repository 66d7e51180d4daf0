//! Explanation of the answers to a name: the names that a client tries, and the reason of each record.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    answer::{answer, labels_below},
    name::ZoneName,
    record::{Answer, DnsQuestion, Record, RecordData, RecordType, Resolution, ResponseCode},
    reverse::{address_of, parse_label},
    weighted::weight_at,
    zone::Zone,
};
use crate::{
    discovery::hostnames::{gateways_of, owner_of, services_behind},
    kinds::resource::{Kind, ObjectKey, ServiceKey},
    primitives::{name::Namespace, quantity::Revision},
};

/// Number of dots from which a name is tried as it is before the search path, as `options ndots:5` says.
const NDOTS: usize = 5;

/// Maximum number of objects without effect that the reason for a missing name lists.
const CLAIMS_SHOWN: usize = 3;

/// Question of a client to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameQuestion {
    /// Name as the client writes it. With a final dot, the search path is not used.
    pub name: String,
    /// Type of the wanted records.
    pub record_type: RecordType,
    /// Address of the client. The namespace of its Workload selects the search path.
    pub client: Option<IpAddr>,
    /// Namespace of the search path, if the client is absent or its address is that of no Workload. `None` for no
    /// search path.
    pub namespace: Option<Namespace>,
}

/// Explanation of the answers to a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameExplanation {
    /// Name as the client writes it.
    #[schema(example = "web.shop")]
    pub name: String,
    /// Type of the wanted records.
    #[serde(rename = "type")]
    #[schema(example = "A")]
    pub record_type: String,
    /// Revision of the state from which the answers are computed.
    pub revision: Revision,
    /// Namespace of the client, which selects the search path. Absent if no search path is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Origin of the namespace and the order of the names.
    #[schema(example = "search path of namespace `shop`, in which the client is Workload `web-1`")]
    pub reason: String,
    /// Names that the client asks one after another, up to the first one with records.
    pub attempts: Vec<NameAttempt>,
}

/// Question for one name, with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameAttempt {
    /// Complete name, without the final dot.
    #[schema(example = "web.shop.svc.cluster.local")]
    pub name: String,
    /// Result of the question.
    pub result: NameResult,
    /// Reason of the result.
    #[schema(example = "Service `shop/web` exists")]
    pub reason: String,
    /// Records of the answer, the authority and the additional section.
    pub records: Vec<ExplainedRecord>,
}

/// Result of the question for one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum NameResult {
    /// The name has records of the type.
    Records,
    /// The name exists and has no records of the type (NOERROR).
    NoRecords,
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The name is outside of all zones: the DNS server asks its upstream servers.
    Forwarded,
    /// The records are not known yet (SERVFAIL).
    Unknown,
}

/// Section of a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessageSection {
    /// Records of the type of the question, and aliases.
    Answer,
    /// Start of authority of a negative answer.
    Authority,
    /// Addresses of the hosts in the answer.
    Additional,
}

/// DNS record with the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedRecord {
    /// Section of the message with the record.
    pub section: MessageSection,
    /// Name of the record, without the final dot.
    #[schema(example = "web.shop.svc.cluster.local")]
    pub name: String,
    /// Time in seconds for which clients may cache the record.
    #[schema(example = 5)]
    pub ttl: u32,
    /// Type of the record.
    #[serde(rename = "type")]
    #[schema(example = "A")]
    pub record_type: String,
    /// Value of the record in the presentation format of DNS.
    #[schema(example = "10.96.0.10")]
    pub data: String,
    /// Object or rule from which the record follows.
    #[schema(example = "cluster IP of Service `shop/web`")]
    pub reason: String,
}

/// Explains the answers to the questions of a client for a name, in the order of its search path.
#[must_use]
pub fn explain_name(zone: &Zone, question: &NameQuestion) -> NameExplanation {
    let (namespace, reason) = search_namespace(zone, question);
    let names = candidates(zone, &question.name, namespace.as_ref());
    let mut attempts = Vec::new();
    for name in names {
        let attempt = attempt(zone, name, question.record_type);
        let is_last = matches!(attempt.result, NameResult::Records | NameResult::Forwarded);
        attempts.push(attempt);
        if is_last {
            break;
        }
    }
    NameExplanation {
        name: question.name.clone(),
        record_type: question.record_type.as_str().to_owned(),
        revision: zone.snapshot().revision(),
        namespace,
        reason,
        attempts,
    }
}

/// Returns the namespace of the search path, and its reason. `None` if no search path is used.
fn search_namespace(zone: &Zone, question: &NameQuestion) -> (Option<Namespace>, String) {
    if question.name.ends_with('.') {
        return (None, "the name ends with a dot, so no search path is used".to_owned());
    }
    let own = question.client.and_then(|address| zone.workload_at(address));
    if let Some(workload) = own
        && let Some(namespace) = &workload.namespace
    {
        let reason = format!(
            "search path of namespace `{namespace}`, in which the client is Workload `{}`",
            workload.name
        );
        return (Some(namespace.clone()), reason);
    }
    let client = question
        .client
        .map(|address| format!("no Workload has the client's address {address}; "))
        .unwrap_or_default();
    match &question.namespace {
        Some(namespace) => {
            (Some(namespace.clone()), format!("{client}search path of namespace `{namespace}`"))
        }
        None => (None, format!("{client}no search path is used")),
    }
}

/// Returns the complete names that a client with the search path of a namespace tries.
fn candidates(zone: &Zone, name: &str, namespace: Option<&Namespace>) -> Vec<String> {
    let Some(namespace) = namespace else { return vec![name.trim_end_matches('.').to_owned()] };
    let domain = &zone.settings().domain;
    let search = [
        format!("{name}.{namespace}.svc.{domain}"),
        format!("{name}.svc.{domain}"),
        format!("{name}.{domain}"),
    ];
    let is_first = name.matches('.').count() >= NDOTS;
    let own = || std::iter::once(name.to_owned());
    if is_first { own().chain(search).collect() } else { search.into_iter().chain(own()).collect() }
}

fn attempt(zone: &Zone, name: String, record_type: RecordType) -> NameAttempt {
    let question = DnsQuestion::new(&name, record_type);
    let found = match answer(zone, &question) {
        Resolution::Foreign | Resolution::Refused => {
            let reason =
                "the name is outside of the cluster zone, the reverse zones of its addresses and all DnsZones"
                    .to_owned();
            return NameAttempt { name, result: NameResult::Forwarded, reason, records: Vec::new() };
        }
        Resolution::Own(found) => found,
        Resolution::Unknown => {
            let reason = "it is not known yet which load balancer addresses are announced".to_owned();
            return NameAttempt { name, result: NameResult::Unknown, reason, records: Vec::new() };
        }
    };
    let (result, reason) = result_of(zone, &question, &found);
    let Answer { answers, authority, additional, .. } = found;
    let sections = [
        (MessageSection::Answer, answers),
        (MessageSection::Authority, authority),
        (MessageSection::Additional, additional),
    ];
    let records = sections.into_iter().flat_map(|(section, records)| {
        records.into_iter().map(move |record| explained(zone, section, record)).collect::<Vec<_>>()
    });
    NameAttempt { name, result, reason, records: records.collect() }
}

fn result_of(zone: &Zone, question: &DnsQuestion, found: &Answer) -> (NameResult, String) {
    if let Some(target) = &found.chase {
        let reason =
            format!("the alias leads to `{target}`, which the DNS server asks of its upstream servers");
        return (NameResult::Records, reason);
    }
    let last_alias = found.answers.iter().rev().find_map(|record| {
        let RecordData::Cname(target) = &record.data else { return None };
        Some(target.clone())
    });
    // The name at the end of a chain of aliases.
    let end =
        last_alias.map_or_else(|| question.clone(), |target| DnsQuestion::new(&target, question.record_type));
    match found.code {
        ResponseCode::NxDomain => (NameResult::NoName, absence(zone, &end.labels)),
        ResponseCode::NoError if found.answers.is_empty() || !found.authority.is_empty() => {
            (NameResult::NoRecords, no_records(zone, &end.labels.join("."), question.record_type))
        }
        ResponseCode::NoError => (NameResult::Records, "the name exists".to_owned()),
    }
}

/// Returns the reason why an existing name has no records of a type.
fn no_records(zone: &Zone, name: &str, record_type: RecordType) -> String {
    let owner = host_owner(zone, name);
    match owner.filter(|_| matches!(record_type, RecordType::A | RecordType::Aaaa)) {
        Some((owner, hostname)) => format!(
            "{} has the host name{}, and no load balancer address of the IP family is announced while a usable \
             endpoint has the family{}",
            quoted(owner),
            wildcard(&hostname),
            of_gateways(zone, owner, &hostname),
        ),
        None => format!("`{name}` exists and has no records of type {}", record_type.as_str()),
    }
}

fn explained(zone: &Zone, section: MessageSection, record: Record) -> ExplainedRecord {
    let reason = reason(zone, &record);
    let (record_type, data) = record.data.to_presentation();
    ExplainedRecord {
        section,
        name: record.owner,
        ttl: record.ttl,
        record_type: record_type.to_owned(),
        data,
        reason,
    }
}

/// Returns the object or rule from which a record follows.
fn reason(zone: &Zone, record: &Record) -> String {
    let labels = DnsQuestion::new(&record.owner, RecordType::Any).labels;
    if matches!(record.data, RecordData::Soa { .. }) {
        return match zone.snapshot().dns_zone_named(&record.owner) {
            Some(object) => {
                format!("start of authority of DnsZone `{object}`; each DNS server has its own serial number")
            }
            None => {
                "start of authority of the zone; its serial number is the revision of the state".to_owned()
            }
        };
    }
    if record.data == RecordData::AnyRefused {
        return "answer to a question for all types (RFC 8482)".to_owned();
    }
    if let Some(address) = address_of(&labels) {
        return match zone.snapshot().cluster_ip_holder(address) {
            Some(service)
                if record
                    .data
                    .to_presentation()
                    .1
                    .starts_with(&format!("{}.{}.svc.", service.name, service.namespace)) =>
            {
                format!("{address} is a cluster IP of Service `{service}`")
            }
            _ => format!("{address} is the address of an endpoint of a headless Service"),
        };
    }
    let Some(below) = labels_below(&labels, &zone.settings().domain) else {
        return external_reason(zone, record);
    };
    match ZoneName::of(below) {
        ZoneName::Apex => "name server of the zone".to_owned(),
        ZoneName::Version => "version of the DNS specification of Kubernetes".to_owned(),
        ZoneName::NameServer => "address of the DNS server".to_owned(),
        ZoneName::Service(key)
        | ZoneName::Port(key, ..)
        | ZoneName::Host(key, _)
        | ZoneName::Zonal { service: key, .. } => of_service(zone, &key, &record.data),
        ZoneName::Workload(namespace, label) => {
            let workload = parse_label(&label).and_then(|address| zone.workload_at(address));
            workload.map_or_else(
                || format!("address of a Workload in namespace `{namespace}`"),
                |key| format!("address of Workload `{}` in namespace `{namespace}`", key.name),
            )
        }
        ZoneName::Empty
        | ZoneName::Namespace(_)
        | ZoneName::Protocol(..)
        | ZoneName::Zones(_)
        | ZoneName::Unknown => "record of the cluster zone".to_owned(),
    }
}

fn of_service(zone: &Zone, key: &ServiceKey, data: &RecordData) -> String {
    let address = data.address();
    match (zone.hosts(key), address, data) {
        (_, _, RecordData::Cname(_)) => format!("Service `{key}` has type ExternalName"),
        (Some(hosts), Some(address), _) => {
            format!("usable endpoint `{}` of headless Service `{key}`", hosts.name_of(address))
        }
        (Some(_), None, _) => format!("port of a usable endpoint of headless Service `{key}`"),
        (None, Some(_), _) => format!("cluster IP of Service `{key}`"),
        (None, None, _) => format!("port of Service `{key}`"),
    }
}

/// Returns the reason why a name does not exist.
fn absence(zone: &Zone, labels: &[String]) -> String {
    if let Some(address) = address_of(labels) {
        return format!("no Service has the address {address}, which is in a network of the cluster");
    }
    let Some(below) = labels_below(labels, &zone.settings().domain) else {
        return external_absence(zone, &labels.join("."));
    };
    let service_missing =
        |key: &ServiceKey| (zone.snapshot().service(key).is_none()).then(|| no_service(zone, key));
    match ZoneName::of(below) {
        ZoneName::Namespace(namespace) => format!("namespace `{namespace}` has no Service and no Workload"),
        ZoneName::Service(key) => service_missing(&key)
            .unwrap_or_else(|| format!("headless Service `{key}` has no usable endpoint, ready or serving while it terminates")),
        ZoneName::Protocol(key, protocol) => service_missing(&key)
            .unwrap_or_else(|| format!("Service `{key}` has no named port with protocol {}", protocol.as_str())),
        ZoneName::Port(key, protocol, port) => service_missing(&key).unwrap_or_else(|| {
            format!("Service `{key}` has no port `{port}` with protocol {}, or no usable endpoint at it", protocol.as_str())
        }),
        ZoneName::Host(key, host) => service_missing(&key).unwrap_or_else(|| match zone.hosts(&key) {
            Some(_) => format!("no usable endpoint of headless Service `{key}` has the name `{host}`"),
            None => format!("Service `{key}` is not headless, so no name below it exists"),
        }),
        ZoneName::Zonal { service, zone: failure_zone, .. } => service_missing(&service)
            .unwrap_or_else(|| format!("no usable endpoint of Service `{service}` is in failure zone `{failure_zone}`, or the Service is not headless")),
        ZoneName::Zones(key) => {
            service_missing(&key).unwrap_or_else(|| format!("Service `{key}` is not headless or has no usable endpoint"))
        }
        ZoneName::Workload(namespace, label) => match parse_label(&label) {
            Some(address) => format!("no Workload in namespace `{namespace}` that can serve has the address {address}"),
            None => format!("`{label}` is no address with dashes, such as `10-1-2-3`"),
        },
        ZoneName::Apex | ZoneName::Version | ZoneName::NameServer | ZoneName::Empty => "an alias leads back to itself".to_owned(),
        ZoneName::Unknown => "the name has no place in the zone: names of Services end with `SERVICE.NAMESPACE.svc` and the zone".to_owned(),
    }
}

/// Returns the reason for the absence of a Service, with the namespaces that have one of the name.
fn no_service(zone: &Zone, key: &ServiceKey) -> String {
    let all = zone.snapshot().list(Kind::Service, None, None);
    let others = all
        .filter(|object| object.metadata.name == key.name)
        .filter_map(|object| object.metadata.namespace.as_ref());
    let others: Vec<_> = others.take(3).map(|namespace| format!("`{namespace}`")).collect();
    if others.is_empty() {
        format!("there is no Service `{key}`")
    } else {
        format!("there is no Service `{key}`; there is one of this name in namespace {}", others.join(", "))
    }
}

/// Returns the object from which a record outside of the cluster zone follows.
fn external_reason(zone: &Zone, record: &Record) -> String {
    let (snapshot, name) = (zone.snapshot(), record.owner.as_str());
    let owner = host_owner(zone, name).filter(|_| record.data.address().is_some());
    match (owner, snapshot.dns_zone_of(name)) {
        (Some((owner, hostname)), _) => {
            let gateways = of_gateways(zone, owner, &hostname);
            let weight = record.data.address().and_then(|address| weight_at(snapshot, address));
            let weight =
                weight.map(|weight| format!("; the Service has weight {weight}")).unwrap_or_default();
            format!("host name{} of {}{gateways}{weight}", wildcard(&hostname), quoted(owner))
        }
        (None, Some((object, _))) => format!("record of DnsZone `{object}`"),
        (None, None) => "record of another zone".to_owned(),
    }
}

/// Returns the object whose addresses a name outside of the cluster zone has, with its host name: the name itself or a wildcard
/// name.
fn host_owner<'a>(zone: &'a Zone, name: &str) -> Option<(&'a ObjectKey, String)> {
    let (_, spec) = zone.snapshot().dns_zone_of(name)?;
    let hostname = zone.hostname_of(name, spec)?;
    Some((owner_of(zone.snapshot(), &hostname)?, hostname))
}

/// Returns a wildcard name as words after "host name"; empty for another name, which the reader knows.
fn wildcard(hostname: &str) -> String {
    if hostname.starts_with("*.") { format!(" `{hostname}`") } else { String::new() }
}

/// Returns an object with its name in quotation marks for code.
fn quoted(object: &ObjectKey) -> String {
    match &object.namespace {
        Some(namespace) => format!("{} `{namespace}/{}`", object.kind, object.name),
        None => format!("{} `{}`", object.kind, object.name),
    }
}

/// Returns the Services whose addresses are those of a host name of a Gateway or HttpRoute, as the end of a sentence; empty
/// for the host name of a Service.
fn of_gateways(zone: &Zone, owner: &ObjectKey, name: &str) -> String {
    if owner.kind == Kind::Service {
        return String::new();
    }
    let gateways: Vec<_> = gateways_of(zone.snapshot(), owner, name).iter().map(quoted).collect();
    let services = services_behind(zone.snapshot(), owner, name);
    let services: Vec<_> = services.iter().map(|service| format!("`{service}`")).collect();
    format!("; {} is published by Service {}", gateways.join(", "), services.join(", "))
}

/// Returns the reason why a name outside of the cluster zone does not exist.
fn external_absence(zone: &Zone, name: &str) -> String {
    match zone.snapshot().dns_zone_of(name) {
        Some((object, spec)) => {
            let claims = zone.snapshot().hostname_claims(name).take(CLAIMS_SHOWN);
            let refused = claims.map(|claim| {
                let is_allowed = claim.object.namespace.as_ref().is_some_and(|one| spec.allows(one));
                let cause = if is_allowed {
                    "is attached to no listener with the name"
                } else {
                    "is in a namespace that the DnsZone does not allow"
                };
                format!("; {} has it and {cause}", quoted(&claim.object))
            });
            format!(
                "DnsZone `{object}` has no record at the name, and no Service, Gateway or attached HttpRoute of an \
                 allowed namespace has it as a host name{}",
                refused.collect::<String>()
            )
        }
        None => "the name is outside of the cluster zone".to_owned(),
    }
}

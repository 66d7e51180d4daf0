//! Answers of the cluster zone to questions.

use std::{borrow::Cow, collections::BTreeSet, net::IpAddr};

use super::{
    hosts::{HostPort, Hosts},
    name::ZoneName,
    record::{Answer, DnsQuestion, Record, RecordData, RecordType, Resolution, ResponseCode},
    reverse::{address_of, parse_label, zone_of},
    zone::Zone,
};
use crate::{
    kinds::{
        dns_zone::DnsZoneSpec,
        resource::ServiceKey,
        service::{Protocol, ServicePort, ServiceSpec},
    },
    primitives::name::{Label, Name, Namespace},
};

/// Version of the DNS specification of Kubernetes that the zone follows.
const SPECIFICATION: &str = "1.1.0";
/// Time in seconds for which resolvers may cache the version of the specification, as in the specification.
const SPECIFICATION_TTL: u32 = 28_800;
/// Maximum number of names of one address.
const REVERSE_NAMES_MAX: usize = 8;
/// Maximum number of aliases in the zone that are followed for one question. More are a loop.
const ALIASES_MAX: usize = 8;
/// Sum of the weights of the SRV records of one port.
const SRV_WEIGHT: usize = 100;

/// Records of a name, or the reason why there are none.
pub(super) enum NameRecords {
    /// The name exists; the records of the type of the question, with those for the additional section.
    Records(Vec<Record>, Vec<Record>),
    /// The name is an alias for another one, which has this name.
    Alias(Record, String),
    /// The name does not exist.
    Nothing,
    /// The records of the name are not known yet.
    Unknown,
}

/// Clients with the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientView {
    /// Clients of the cluster: they see all zones, and other names are forwarded for them.
    Cluster,
    /// All other clients: they see the zones of DnsZones with external visibility.
    External,
}

/// Returns true if the label directly below the cluster zone is that of Services or pods.
fn is_reserved_label(label: &str) -> bool {
    matches!(label, "svc" | "pod")
}

/// Returns true if the zone of a DnsZone is never answered beside a cluster zone, because all its names belong to the cluster: the
/// cluster zone itself, and zones of its Services and pods. Both names are in lower case, without the final dot.
#[must_use]
pub fn is_shadowed(zone: &str, cluster: &str) -> bool {
    let Some(below) = zone.strip_suffix(cluster) else { return false };
    let Some(below) = below.strip_suffix('.') else { return below.is_empty() };
    is_reserved_label(below.rsplit('.').next().unwrap_or_default())
}

/// Zone that contains a name.
enum Place<'a> {
    /// Cluster zone, with the labels of the name below it.
    Cluster(&'a [String]),
    /// Zone of a DnsZone.
    External(&'a DnsZoneSpec),
}

impl<'a> Place<'a> {
    /// Returns the zone that contains a name: the longest one, but the cluster zone for names of Services and pods, so that no
    /// DnsZone can take them. `None` if no zone contains the name, or if the client does not see the zone.
    fn of(zone: &'a Zone, labels: &'a [String], view: ClientView) -> Option<Self> {
        let cluster = labels_below(labels, &zone.settings.domain);
        let external = zone.snapshot().dns_zone_of(&labels.join(".")).map(|(_, spec)| spec);
        let is_used = |spec: &&DnsZoneSpec| {
            cluster.is_none_or(|below| {
                spec.zone.as_str().len() > zone.settings.domain.as_str().len()
                    && !below.last().is_some_and(|label| is_reserved_label(label))
            })
        };
        let place = external.filter(is_used).map(Self::External).or_else(|| cluster.map(Self::Cluster));
        place.filter(|place| place.is_visible(view))
    }

    const fn is_visible(&self, view: ClientView) -> bool {
        match (view, self) {
            (ClientView::Cluster, _) => true,
            (ClientView::External, Self::Cluster(_)) => false,
            (ClientView::External, Self::External(spec)) => spec.visibility.is_external(),
        }
    }

    /// Returns the start of authority of the zone.
    fn start_of_authority(&self, zone: &Zone) -> Record {
        match self {
            Self::Cluster(_) => start_of_authority(zone, zone.settings.domain.as_str()),
            Self::External(spec) => zone.start_of_external(spec),
        }
    }
}

/// Answers a question of a client of the cluster from the cluster zone, the reverse zones of its addresses, and the
/// zones of DnsZones.
#[must_use]
pub fn answer(zone: &Zone, question: &DnsQuestion) -> Resolution {
    answer_in(zone, question, ClientView::Cluster)
}

/// Answers a question of a client from the zones that the client sees. A name that an external client does not see is
/// refused, and an alias to such a name is answered alone.
#[must_use]
pub fn answer_in(zone: &Zone, question: &DnsQuestion, view: ClientView) -> Resolution {
    let outside = match view {
        ClientView::Cluster => Resolution::Foreign,
        ClientView::External => Resolution::Refused,
    };
    if let Some(address) = address_of(&question.labels) {
        return if view == ClientView::Cluster { reverse(zone, address, question) } else { outside };
    }
    let lookup = Lookup { zone, record_type: question.record_type };
    let mut labels: Cow<'_, [String]> = Cow::Borrowed(&question.labels);
    let Some(place) = Place::of(zone, &labels, view) else { return outside };
    let mut authority = place.start_of_authority(zone);
    let mut answers = Vec::new();
    let mut found = lookup.find_at(&labels, &place);
    for _ in 0..ALIASES_MAX {
        let NameRecords::Alias(record, target) = found else { break };
        if answers.contains(&record) {
            // A loop of aliases: the chain once, without records.
            return Resolution::Own(positive(answers, Vec::new(), None));
        }
        answers.push(record);
        if question.record_type == RecordType::Cname {
            return Resolution::Own(positive(answers, Vec::new(), None));
        }
        labels = Cow::Owned(DnsQuestion::new(&target, question.record_type).labels);
        let Some(place) = Place::of(zone, &labels, view) else {
            let chase = (view == ClientView::Cluster).then_some(target);
            return Resolution::Own(positive(answers, Vec::new(), chase));
        };
        authority = place.start_of_authority(zone);
        found = lookup.find_at(&labels, &place);
    }
    Resolution::Own(match found {
        NameRecords::Records(records, additional) if !records.is_empty() => {
            answers.extend(records);
            positive(answers, additional, None)
        }
        NameRecords::Records(..) => negative(ResponseCode::NoError, authority, answers),
        NameRecords::Alias(..) | NameRecords::Nothing => negative(ResponseCode::NxDomain, authority, answers),
        NameRecords::Unknown => return Resolution::Unknown,
    })
}

/// Returns the labels of a name below a domain, or `None` if the name is outside of it.
pub(super) fn labels_below<'a>(labels: &'a [String], domain: &Name) -> Option<&'a [String]> {
    let count = domain.as_str().split('.').count();
    let (below, end) = labels.split_at_checked(labels.len().checked_sub(count)?)?;
    end.iter().map(String::as_str).eq(domain.as_str().split('.')).then_some(below)
}

const fn positive(answers: Vec<Record>, additional: Vec<Record>, chase: Option<String>) -> Answer {
    Answer { code: ResponseCode::NoError, answers, authority: Vec::new(), additional, chase }
}

/// Returns an answer without the wanted records: the start of authority, after the aliases that led to the name.
fn negative(code: ResponseCode, authority: Record, answers: Vec<Record>) -> Answer {
    Answer { code, answers, authority: vec![authority], additional: Vec::new(), chase: None }
}

fn start_of_authority(zone: &Zone, owner: &str) -> Record {
    let domain = &zone.settings.domain;
    let data = RecordData::Soa {
        primary: format!("ns.dns.{domain}"),
        mailbox: format!("hostmaster.{domain}"),
        serial: zone.serial(),
        minimum: zone.settings.ttl_negative,
    };
    Record { owner: owner.to_owned(), ttl: zone.settings.ttl_negative, data }
}

/// Answers a question for the names of an address.
fn reverse(zone: &Zone, address: IpAddr, question: &DnsQuestion) -> Resolution {
    let domain = &zone.settings.domain;
    let mut names: BTreeSet<String> = BTreeSet::new();
    if let Some(service) = zone.snapshot().cluster_ip_holder(address) {
        names.insert(service_name(service, domain));
    }
    for service in zone.headless_at(address) {
        let host = zone.hosts(service).map(|hosts| hosts.name_of(address));
        names.extend(host.map(|host| format!("{host}.{}", service_name(service, domain))));
    }
    let owner = question.labels.join(".");
    if names.is_empty() {
        let is_own = zone.settings.reverse.iter().any(|network| network.contains(&address));
        let authority = start_of_authority(zone, &zone_of(address));
        let answer = || negative(ResponseCode::NxDomain, authority, Vec::new());
        return if is_own { Resolution::Own(answer()) } else { Resolution::Foreign };
    }
    let ttl = zone.settings.ttl;
    let pointer = |name| Record { owner: owner.clone(), ttl, data: RecordData::Ptr(name) };
    let records: Vec<Record> = if question.record_type == RecordType::Ptr {
        names.into_iter().take(REVERSE_NAMES_MAX).map(pointer).collect()
    } else if question.record_type == RecordType::Any {
        vec![any_refused(owner)]
    } else {
        Vec::new()
    };
    Resolution::Own(if records.is_empty() {
        negative(ResponseCode::NoError, start_of_authority(zone, &zone_of(address)), Vec::new())
    } else {
        positive(records, Vec::new(), None)
    })
}

pub(super) fn any_refused(owner: String) -> Record {
    Record { owner, ttl: SPECIFICATION_TTL, data: RecordData::AnyRefused }
}

fn service_name(service: &ServiceKey, domain: &Name) -> String {
    format!("{}.{}.svc.{domain}", service.name, service.namespace)
}

/// Search for the records of one type.
pub(super) struct Lookup<'a> {
    pub(super) zone: &'a Zone,
    pub(super) record_type: RecordType,
}

impl Lookup<'_> {
    /// Finds the records of a name in the zone that contains it.
    fn find_at(&self, labels: &[String], place: &Place<'_>) -> NameRecords {
        match place {
            Place::Cluster(below) => self.find(labels, below),
            Place::External(spec) => self.find_in_zone(&labels.join("."), spec),
        }
    }

    /// Finds the records of a name in the zone, given by all its labels and by those below the zone.
    fn find(&self, labels: &[String], below: &[String]) -> NameRecords {
        let owner = labels.join(".");
        let found = match ZoneName::of(below) {
            ZoneName::Apex => self.apex(&owner),
            ZoneName::Version => self.version(&owner),
            ZoneName::NameServer => {
                self.addresses(&owner, &self.zone.settings.servers, self.zone.settings.ttl)
            }
            ZoneName::Empty => NameRecords::Records(Vec::new(), Vec::new()),
            ZoneName::Namespace(namespace) => exists(self.zone.has_namespace(&namespace)),
            ZoneName::Service(key) => self.service(&owner, &key),
            ZoneName::Protocol(key, protocol) => self.protocol(&key, protocol),
            ZoneName::Port(key, protocol, port) => self.port(&owner, &key, protocol, &port),
            ZoneName::Host(key, host) => self.host(&owner, &key, &host),
            ZoneName::Zonal { service, zone, is_pinned } => self.zonal(&owner, &service, &zone, is_pinned),
            ZoneName::Zones(key) => {
                exists(self.zone.hosts(&key).is_some_and(|hosts| !hosts.addresses().is_empty()))
            }
            ZoneName::Workload(namespace, label) => self.workload(&owner, &namespace, &label),
            ZoneName::Unknown => NameRecords::Nothing,
        };
        if self.record_type == RecordType::Any && matches!(found, NameRecords::Records(..)) {
            return NameRecords::Records(vec![any_refused(owner)], Vec::new());
        }
        found
    }

    fn apex(&self, owner: &str) -> NameRecords {
        let domain = &self.zone.settings.domain;
        if self.record_type == RecordType::Soa {
            return NameRecords::Records(vec![start_of_authority(self.zone, owner)], Vec::new());
        }
        if self.record_type != RecordType::Ns {
            return NameRecords::Records(Vec::new(), Vec::new());
        }
        let (server, ttl) = (format!("ns.dns.{domain}"), self.zone.settings.ttl);
        let additional = self.all_addresses(&server, &self.zone.settings.servers, ttl);
        NameRecords::Records(
            vec![Record { owner: owner.to_owned(), ttl, data: RecordData::Ns(server) }],
            additional,
        )
    }

    fn version(&self, owner: &str) -> NameRecords {
        let text = || Record {
            owner: owner.to_owned(),
            ttl: SPECIFICATION_TTL,
            data: RecordData::Txt(SPECIFICATION.to_owned()),
        };
        let records = if self.record_type == RecordType::Txt { vec![text()] } else { Vec::new() };
        NameRecords::Records(records, Vec::new())
    }

    fn service(&self, owner: &str, key: &ServiceKey) -> NameRecords {
        let Some(spec) = self.spec(key) else { return NameRecords::Nothing };
        if let Some(target) = &spec.external_name {
            return self.alias(owner, target);
        }
        if let Some(hosts) = self.zone.hosts(key) {
            let addresses: Vec<_> = hosts.addresses().into_iter().collect();
            if addresses.is_empty() {
                return NameRecords::Nothing;
            }
            if self.record_type == RecordType::Srv {
                let ports = hosts.ports.iter().filter(|port| port.protocol.is_some());
                return self.host_ports(owner, key, hosts, ports);
            }
            return self.addresses(owner, &addresses, self.zone.settings.ttl_headless);
        }
        let addresses: Vec<_> = spec.cluster_addresses().collect();
        if self.record_type == RecordType::Srv {
            return self.service_ports(owner, key, &addresses, spec.ports.iter());
        }
        self.addresses(owner, &addresses, self.zone.settings.ttl)
    }

    /// Returns the alias of a Service of type ExternalName. A target that is an address has no records: an alias
    /// cannot point to an address.
    fn alias(&self, owner: &str, target: &Name) -> NameRecords {
        if target.as_str().parse::<IpAddr>().is_ok() {
            return NameRecords::Records(Vec::new(), Vec::new());
        }
        let target = target.as_str().to_owned();
        let data = RecordData::Cname(target.clone());
        NameRecords::Alias(Record { owner: owner.to_owned(), ttl: self.zone.settings.ttl, data }, target)
    }

    fn protocol(&self, key: &ServiceKey, protocol: Protocol) -> NameRecords {
        let Some(spec) = self.spec(key).filter(|spec| !spec.is_external_name()) else {
            return NameRecords::Nothing;
        };
        exists(spec.ports.iter().any(|port| port.protocol == protocol && port.name.is_some()))
    }

    fn port(&self, owner: &str, key: &ServiceKey, protocol: Protocol, name: &Label) -> NameRecords {
        let Some(spec) = self.spec(key).filter(|spec| !spec.is_external_name()) else {
            return NameRecords::Nothing;
        };
        if let Some(hosts) = self.zone.hosts(key) {
            let wanted =
                |port: &&HostPort| port.protocol == Some(protocol) && port.name.as_ref() == Some(name);
            let mut ports = hosts.ports.iter().filter(wanted).peekable();
            return match ports.peek() {
                Some(port) if !port.endpoints.is_empty() => self.host_ports(owner, key, hosts, ports),
                _ => NameRecords::Nothing,
            };
        }
        let wanted = |port: &&ServicePort| port.protocol == protocol && port.name.as_ref() == Some(name);
        let mut ports = spec.ports.iter().filter(wanted).peekable();
        if ports.peek().is_none() {
            return NameRecords::Nothing;
        }
        let addresses: Vec<_> = spec.cluster_addresses().collect();
        self.service_ports(owner, key, &addresses, ports)
    }

    fn host(&self, owner: &str, key: &ServiceKey, host: &str) -> NameRecords {
        let addresses = self.zone.hosts(key).map(|hosts| hosts.addresses_named(host)).unwrap_or_default();
        self.endpoints(owner, addresses)
    }

    fn zonal(&self, owner: &str, key: &ServiceKey, zone: &Label, is_pinned: bool) -> NameRecords {
        let Some(hosts) = self.zone.hosts(key) else { return NameRecords::Nothing };
        let mut addresses = hosts.addresses_in(zone);
        if addresses.is_empty() && !is_pinned {
            addresses = hosts.addresses();
        }
        self.endpoints(owner, addresses)
    }

    /// Returns the address records of endpoints; the name does not exist without any.
    fn endpoints(&self, owner: &str, addresses: BTreeSet<IpAddr>) -> NameRecords {
        if addresses.is_empty() {
            return NameRecords::Nothing;
        }
        let addresses: Vec<_> = addresses.into_iter().collect();
        self.addresses(owner, &addresses, self.zone.settings.ttl_headless)
    }

    fn workload(&self, owner: &str, namespace: &Namespace, label: &str) -> NameRecords {
        match parse_label(label).filter(|address| self.zone.has_workload(namespace, *address)) {
            Some(address) => self.addresses(owner, &[address], self.zone.settings.ttl),
            None => NameRecords::Nothing,
        }
    }

    /// Returns the SRV records of ports of a Service with cluster IPs, whose target is the Service itself.
    fn service_ports<'p>(
        &self,
        owner: &str,
        key: &ServiceKey,
        addresses: &[IpAddr],
        ports: impl Iterator<Item = &'p ServicePort>,
    ) -> NameRecords {
        if self.record_type != RecordType::Srv {
            return NameRecords::Records(Vec::new(), Vec::new());
        }
        let ttl = self.zone.settings.ttl;
        let target = service_name(key, &self.zone.settings.domain);
        let weight = weight(addresses.len());
        let records = ports.map(|port| Record {
            owner: owner.to_owned(),
            ttl,
            data: RecordData::Srv { priority: 0, weight, port: port.port.get(), target: target.clone() },
        });
        // Two protocols may have the same port, and a set of records contains each record once.
        let records: BTreeSet<Record> = records.collect();
        NameRecords::Records(records.into_iter().collect(), self.all_addresses(&target, addresses, ttl))
    }

    /// Returns the SRV records of ports of a headless Service, one for each endpoint.
    fn host_ports<'p>(
        &self,
        owner: &str,
        key: &ServiceKey,
        hosts: &Hosts,
        ports: impl Iterator<Item = &'p HostPort>,
    ) -> NameRecords {
        if self.record_type != RecordType::Srv {
            return NameRecords::Records(Vec::new(), Vec::new());
        }
        let ttl = self.zone.settings.ttl_headless;
        let service = service_name(key, &self.zone.settings.domain);
        let (mut records, mut additional) = (BTreeSet::new(), BTreeSet::new());
        for port in ports {
            let weight = weight(port.endpoints.len());
            for host in &port.endpoints {
                let target = format!("{}.{service}", hosts.name_of(host.address));
                additional.extend(self.all_addresses(&target, &[host.address], ttl));
                let data = RecordData::Srv { priority: 0, weight, port: host.port.get(), target };
                records.insert(Record { owner: owner.to_owned(), ttl, data });
            }
        }
        NameRecords::Records(records.into_iter().collect(), additional.into_iter().collect())
    }

    /// Returns the address records of the type of the question.
    pub(super) fn addresses(&self, owner: &str, addresses: &[IpAddr], ttl: u32) -> NameRecords {
        let wanted = |record: &Record| match self.record_type {
            RecordType::A => matches!(record.data, RecordData::A(_)),
            RecordType::Aaaa => matches!(record.data, RecordData::Aaaa(_)),
            RecordType::Cname
            | RecordType::Ns
            | RecordType::Ptr
            | RecordType::Soa
            | RecordType::Srv
            | RecordType::Txt
            | RecordType::Mx
            | RecordType::Any
            | RecordType::Other => false,
        };
        let records = self.all_addresses(owner, addresses, ttl).into_iter().filter(wanted);
        NameRecords::Records(records.collect(), Vec::new())
    }

    pub(super) fn all_addresses(&self, owner: &str, addresses: &[IpAddr], ttl: u32) -> Vec<Record> {
        let data = |address: &IpAddr| match *address {
            IpAddr::V4(address) => RecordData::A(address),
            IpAddr::V6(address) => RecordData::Aaaa(address),
        };
        addresses.iter().map(|address| Record { owner: owner.to_owned(), ttl, data: data(address) }).collect()
    }

    fn spec(&self, key: &ServiceKey) -> Option<&ServiceSpec> {
        self.zone.snapshot().service(key)?.as_service()
    }
}

/// Returns an existing name without records if `exists`, otherwise no name.
const fn exists(exists: bool) -> NameRecords {
    if exists { NameRecords::Records(Vec::new(), Vec::new()) } else { NameRecords::Nothing }
}

/// Returns the weight of each of `count` SRV records of a port: equal shares, at least 1.
fn weight(count: usize) -> u16 {
    u16::try_from((SRV_WEIGHT / count.max(1)).max(1)).unwrap_or(1)
}

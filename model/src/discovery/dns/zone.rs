//! State of the cluster zone: the snapshot and the indices that questions need.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use imbl::OrdMap;
use ipnet::IpNet;

use super::{
    address_holders::AddressHolders, external::StaticRecords, hosts::Hosts,
    service_addresses::ServiceAddressIndex,
};
use crate::{
    cluster::{
        change::{Change, ChangeKind, ObjectChange},
        snapshot::{Snapshot, interleaved, publishing_service},
    },
    compile::{affected, compile},
    discovery::hostnames::families_in_service,
    kinds::{
        dns_zone::DnsZoneSpec,
        resource::{Kind, Object, ObjectKey, ServiceKey},
        route::RouteSpec,
    },
    primitives::{
        domain_name::DomainName,
        name::{Name, Namespace},
        net::IpFamily,
        quantity::Revision,
    },
};

/// Settings of the cluster zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneSettings {
    /// Name of the zone in lower case, without the final dot, such as `cluster.local`.
    pub domain: Name,
    /// Time in seconds for which resolvers may cache records of Services with an address.
    pub ttl: u32,
    /// Time in seconds for which resolvers may cache records of the endpoints of headless Services.
    pub ttl_headless: u32,
    /// Time in seconds for which resolvers may cache that a record does not exist.
    pub ttl_negative: u32,
    /// Addresses of the name server, the records of `ns.dns` in the zone.
    pub servers: Vec<IpAddr>,
    /// Networks whose reverse names belong to the cluster: an address in them without a Service has no name.
    pub reverse: Vec<IpNet>,
}

impl ZoneSettings {
    /// Creates settings with the default times: 5 s for Services, 1 s for endpoints and negative answers.
    #[must_use]
    pub const fn new(domain: Name) -> Self {
        Self { domain, ttl: 5, ttl_headless: 1, ttl_negative: 1, servers: Vec::new(), reverse: Vec::new() }
    }
}

/// Cluster zone at one revision. Clones share all data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub(super) settings: Arc<ZoneSettings>,
    snapshot: Snapshot,
    /// Endpoints of all headless Services.
    headless: OrdMap<ServiceKey, Arc<Hosts>>,
    /// Headless Services that have an endpoint at an address.
    headless_at: AddressHolders<ServiceKey>,
    /// Addresses of all Services by their names.
    service_addresses: ServiceAddressIndex,
    /// Workloads by their addresses.
    workloads_at: AddressHolders<ObjectKey>,
    /// Static records of the DnsZones, by their zones.
    static_records: OrdMap<DomainName, Arc<StaticRecords>>,
    /// IP families of which the Services with host names, and those that publish a Gateway, have a usable endpoint.
    families_in_service: OrdMap<ServiceKey, BTreeSet<IpFamily>>,
    /// Load balancer addresses that are announced; `None` if they are not known yet.
    announced: Option<Arc<BTreeSet<IpAddr>>>,
    /// Serial number of the zones of DnsZones.
    external_serial: u32,
    /// True if answers in the zones of DnsZones may have changed since the serial number was set.
    has_external_changes: bool,
}

impl Zone {
    /// Creates the zone of a state.
    #[must_use]
    pub fn new(settings: ZoneSettings, snapshot: Snapshot) -> Self {
        let mut zone = Self {
            settings: Arc::new(settings),
            snapshot,
            headless: OrdMap::new(),
            headless_at: AddressHolders::new(),
            service_addresses: ServiceAddressIndex::default(),
            workloads_at: AddressHolders::new(),
            static_records: OrdMap::new(),
            families_in_service: OrdMap::new(),
            announced: None,
            external_serial: 0,
            has_external_changes: true,
        };
        let snapshot = zone.snapshot.clone();
        for service in interleaved(snapshot.list(Kind::Service, None, None)) {
            ServiceKey::of_object_key(&service.key()).iter().for_each(|key| zone.refresh(key));
        }
        for workload in snapshot.list(Kind::Workload, None, None) {
            zone.index_workload(workload, true);
        }
        for object in snapshot.list(Kind::DnsZone, None, None) {
            zone.index_static_records(object, true);
        }
        zone
    }

    /// Returns the zone after changes up to a revision. The changes need not include objects of kinds that have no
    /// influence on the zone.
    #[must_use]
    pub fn update(&self, revision: Revision, changes: impl IntoIterator<Item = ObjectChange>) -> Self {
        let mut zone = self.clone();
        for change in changes {
            zone.apply(change);
        }
        zone.snapshot.set_revision(revision);
        zone
    }

    fn apply(&mut self, change: ObjectChange) {
        let before = self.snapshot.clone();
        let Some(change) = self.snapshot.receive(change) else { return };
        self.note_external(before.get(&change.object.key()), &change);
        if let Some(old) = before.get(&change.object.key()) {
            self.index_workload(old, false);
            self.index_static_records(old, false);
        }
        if change.kind != ChangeKind::Deleted {
            self.index_workload(&change.object, true);
            self.index_static_records(&change.object, true);
        }
        for service in affected(&before, &self.snapshot, &change) {
            self.refresh(&service);
        }
        let old = before.get(&change.object.key()).map(|old| &**old);
        for service in old.into_iter().chain([&*change.object]).filter_map(publishing_service) {
            self.refresh(&service);
        }
    }

    /// Notes that a change of an object may change answers in the zones of DnsZones: a change of a DnsZone, of a Service
    /// with host names, of an address that such a Service has, of a Gateway, or of the host names and parents of a
    /// route.
    fn note_external(&mut self, old: Option<&Arc<Object>>, change: &Change) {
        let new = &change.object;
        let is_same = |old: &Arc<Object>| {
            let parts = |object: &Object| {
                RouteSpec::of(object).map(|route| (route.hostnames().to_vec(), route.parent_refs().to_vec()))
            };
            old.spec == new.spec || parts(old).is_some_and(|old| Some(old) == parts(new))
        };
        if change.kind != ChangeKind::Deleted && old.is_some_and(is_same) {
            return;
        }
        let has_names = |service: &ServiceKey| self.families_in_service.contains_key(service);
        let is_concerned = |object: &Object| {
            object.as_dns_zone().is_some()
                || object.as_gateway().is_some()
                || RouteSpec::of(object).is_some_and(|route| self.has_zone_of(route))
                || object.as_service().is_some_and(|spec| !spec.hostnames.is_empty())
                || object.as_address().is_some_and(|record| record.services.iter().any(has_names))
        };
        if old.into_iter().chain([new]).any(|object| is_concerned(object)) {
            self.has_external_changes = true;
        }
    }

    /// Returns true if a DnsZone contains a host name of a route.
    fn has_zone_of(&self, route: RouteSpec<'_>) -> bool {
        route.hostnames().iter().any(|name| self.snapshot.dns_zone_of(name.as_str()).is_some())
    }

    /// Computes the addresses and endpoints of a Service anew, if it is headless, has host names or publishes a Gateway.
    fn refresh(&mut self, service: &ServiceKey) {
        let hosts = Hosts::of(&self.snapshot, service).map(Arc::new);
        let addresses = |hosts: Option<&Arc<Hosts>>| hosts.map(|hosts| hosts.addresses()).unwrap_or_default();
        let (old, new) = (addresses(self.headless.get(service)), addresses(hosts.as_ref()));
        for address in old.difference(&new) {
            self.headless_at.remove(*address, service);
        }
        for address in new.difference(&old) {
            self.headless_at.insert(*address, service.clone());
        }
        self.service_addresses.refresh(&self.snapshot, service, hosts.as_deref());
        match hosts {
            Some(hosts) => drop(self.headless.insert(service.clone(), hosts)),
            None => drop(self.headless.remove(service)),
        }
        if self.snapshot.is_named(service) {
            let compiled = compile(&self.snapshot, service);
            let families = compiled.as_ref().map(families_in_service).unwrap_or_default();
            if self.families_in_service.get(service) != Some(&families) {
                self.has_external_changes = true;
            }
            self.families_in_service.insert(service.clone(), families);
        } else if self.families_in_service.remove(service).is_some() {
            self.has_external_changes = true;
        }
    }

    fn index_static_records(&mut self, object: &Object, is_present: bool) {
        let Some(spec) = object.as_dns_zone() else { return };
        if is_present {
            self.static_records.insert(spec.zone.clone(), Arc::new(StaticRecords::of(spec)));
        } else {
            self.static_records.remove(&spec.zone);
        }
    }

    fn index_workload(&mut self, object: &Object, is_present: bool) {
        let Some(workload) = object.as_workload() else { return };
        let key = object.key();
        for address in &workload.addresses {
            if is_present {
                self.workloads_at.insert(*address, key.clone());
            } else {
                self.workloads_at.remove(*address, &key);
            }
        }
    }

    /// Returns the state from which answers are computed.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the settings of the zone.
    #[must_use]
    pub fn settings(&self) -> &ZoneSettings {
        &self.settings
    }

    /// Returns the zone with another set of load balancer addresses that are announced.
    #[must_use]
    pub fn with_announced(&self, announced: Option<Arc<BTreeSet<IpAddr>>>) -> Self {
        let has_external_changes = self.has_external_changes || self.announced != announced;
        Self { announced, has_external_changes, ..self.clone() }
    }

    /// Returns the zone with a serial number of the zones of DnsZones. Later changes are noted
    /// ([`Self::has_external_changes`]).
    #[must_use]
    pub fn with_external_serial(&self, external_serial: u32) -> Self {
        Self { external_serial, has_external_changes: false, ..self.clone() }
    }

    /// Returns the serial number of the zones of DnsZones.
    #[must_use]
    pub const fn external_serial(&self) -> u32 {
        self.external_serial
    }

    /// True if answers in the zones of DnsZones may differ from those to which the serial number was given.
    #[must_use]
    pub const fn has_external_changes(&self) -> bool {
        self.has_external_changes
    }

    /// Returns the load balancer addresses that are announced, of Services with host names and of those that publish a
    /// Gateway; `None` if they are not known yet.
    #[must_use]
    pub const fn announced(&self) -> Option<&Arc<BTreeSet<IpAddr>>> {
        self.announced.as_ref()
    }

    /// Returns the static records of a DnsZone.
    pub(super) fn static_records(&self, spec: &DnsZoneSpec) -> Option<&StaticRecords> {
        self.static_records.get(&spec.zone).map(|records| &**records)
    }

    /// Returns the IP families of which a Service that has host names or publishes a Gateway has a usable endpoint.
    pub(super) fn families_in_service(&self, service: &ServiceKey) -> Option<&BTreeSet<IpFamily>> {
        self.families_in_service.get(service)
    }

    /// Returns the serial number of the cluster zone: the revision of the state modulo 2^32.
    pub(super) fn serial(&self) -> u32 {
        // Serial numbers wrap around by design (RFC 1982).
        (self.snapshot.revision().0 & u64::from(u32::MAX)) as u32
    }

    /// Returns true if a namespace contains a Service or Workload.
    pub(super) fn has_namespace(&self, namespace: &Namespace) -> bool {
        let any = |kind| self.snapshot.list(kind, Some(namespace), None).next().is_some();
        any(Kind::Service) || any(Kind::Workload)
    }

    /// Returns the addresses at the name of a Service, of both IP families and in the order of the answer, with the time
    /// in seconds for which resolvers may cache them. `name` is complete, in lower case and without the final dot.
    /// Returns `None` for all other names, and for a Service without addresses; [`answer`](super::answer) decides about
    /// them.
    #[must_use]
    pub fn service_addresses(&self, name: &str) -> Option<(&[IpAddr], u32)> {
        let key = name.strip_suffix(self.settings.domain.as_str())?.strip_suffix(".svc.")?;
        let found = self.service_addresses.get(key)?;
        let ttl = if found.is_headless { self.settings.ttl_headless } else { self.settings.ttl };
        Some((found.addresses(), ttl))
    }

    /// Returns the endpoints of a headless Service; `None` for other Services.
    pub(super) fn hosts(&self, service: &ServiceKey) -> Option<&Arc<Hosts>> {
        self.headless.get(service)
    }

    /// Returns the headless Services that have an endpoint at an address.
    pub(super) fn headless_at(&self, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.headless_at.get(address)
    }

    /// Returns the first Workload with an address.
    pub(super) fn workload_at(&self, address: IpAddr) -> Option<&ObjectKey> {
        self.workloads_at.get(address).next()
    }

    /// Returns true if a Workload of the namespace that can serve has the address.
    pub(super) fn has_workload(&self, namespace: &Namespace, address: IpAddr) -> bool {
        let mut own = self.workloads_at.get(address).filter(|key| key.namespace.as_ref() == Some(namespace));
        own.any(|key| {
            let workload = self.snapshot.get(key).and_then(|object| object.as_workload());
            workload.is_some_and(|workload| workload.phase.is_alive())
        })
    }
}

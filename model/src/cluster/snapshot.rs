//! State of the whole cluster at one revision, with indices by which a write finds each object in O(log n).
//!
//! The maps are persistent: a clone shares all data, so readers keep a snapshot while the writer creates the next.
//! Snapshots are created by admission, by loading a store, and by applying commits of other servers. Callers must
//! check the uniqueness of indexed values before insertion.

use std::{collections::BTreeSet, net::IpAddr, ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};
use ipnet::IpNet;

mod addresses;
mod entry;
mod names;
mod networks;
mod routes;

pub use self::{
    addresses::PendingService,
    names::{HostnameClaim, publishing_service},
};

use self::{
    addresses::AddressIndex, entry::Entry, names::NameIndex, networks::NetworkIndex, routes::RouteIndex,
};
use crate::{
    cluster::{
        change::{Change, ChangeKind, Commit, ObjectChange},
        default_checks::DefaultChecks,
        quota::Usage,
    },
    kinds::{
        address_pool::AddressRange,
        attachment::WorkloadKey,
        endpoint_health::{EndpointHealthSpec, record_key},
        maintenance::Maintenance,
        metadata::Labels,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
        service::{Protocol, ServiceSpec},
    },
    primitives::{
        interval_set::IntervalSet,
        name::{Name, Namespace},
        net::{IpFamily, to_number},
        non_empty_set::NonEmptySet,
        quantity::{Port, PortRange, Revision, Timestamp},
    },
};

/// Immutable state of the whole cluster at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    revision: Revision,
    objects: OrdMap<ObjectKey, Arc<Object>>,
    counts: OrdMap<Kind, usize>,
    cluster_ips: OrdMap<IpAddr, ServiceKey>,
    taken_addresses: OrdMap<IpFamily, IntervalSet>,
    /// Services that accept connections at external and load balancer addresses, by address, protocol and
    /// first port of each range. Ranges do not overlap, so the last entry at or below a port is the only one
    /// that can contain it.
    routed_frontends: OrdMap<(IpAddr, Protocol, Port), RoutedFrontend>,
    /// Services that have a node port, by protocol and port. Health check node ports are included as TCP.
    node_ports: OrdMap<(Protocol, Port), ServiceKey>,
    taken_node_ports: OrdMap<Protocol, IntervalSet>,
    workloads_by_label: OrdMap<LabelKey, NonEmptySet<Name>>,
    services_by_selector: OrdMap<LabelKey, NonEmptySet<Name>>,
    sets_by_service: OrdMap<ServiceKey, NonEmptySet<Name>>,
    apply_sets: OrdMap<Name, NonEmptySet<ObjectKey>>,
    workload_cidrs: OrdMap<IpNet, NonEmptySet<Name>>,
    node_addresses: OrdMap<IpAddr, NonEmptySet<Name>>,
    load_balancing: AddressIndex,
    names: NameIndex,
    routes: RouteIndex,
    networks: NetworkIndex,
    workloads_by_node: OrdMap<Name, NonEmptySet<ObjectKey>>,
    lost_nodes: OrdSet<Name>,
    /// EndpointSets that have an endpoint on a Node, by the name of the Node.
    sets_by_node: OrdMap<Name, NonEmptySet<ObjectKey>>,
    /// Number of endpoint addresses: those of Workloads and of the endpoints in EndpointSets.
    endpoint_addresses: usize,
    /// Amounts of limited resources that the objects of each namespace use.
    usage: OrdMap<Namespace, Usage>,
    /// Number of objects of each namespace and kind; zero is absent.
    namespaces: OrdMap<Namespace, OrdMap<Kind, usize>>,
    default_checks: DefaultChecks,
}

/// Service that accepts connections to a port range of an external or load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RoutedFrontend {
    last: Port,
    holder: ServiceKey,
}

/// Namespace, label key and label value: the key of the label index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LabelKey {
    namespace: Namespace,
    key: Box<str>,
    value: Box<str>,
}

impl Snapshot {
    /// Builds a snapshot and its indices from the objects of a store.
    #[must_use]
    pub fn from_objects(revision: Revision, objects: impl IntoIterator<Item = Arc<Object>>) -> Self {
        let mut snapshot = Self { revision, ..Self::default() };
        for object in interleaved(objects) {
            snapshot.put(object);
        }
        snapshot
    }

    /// Sets the health checks by default, which are off in a new snapshot.
    #[must_use]
    pub fn with_default_checks(self, default_checks: DefaultChecks) -> Self {
        Self { default_checks, ..self }
    }

    /// Returns the setting for health checks by default.
    #[must_use]
    pub const fn default_checks(&self) -> &DefaultChecks {
        &self.default_checks
    }

    /// Returns the revision of the last change in the snapshot.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns an object, or `None` if it does not exist.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Returns a Service, or `None` if it does not exist.
    #[must_use]
    pub fn service(&self, key: &ServiceKey) -> Option<&Arc<Object>> {
        self.objects.get(&key.object_key())
    }

    /// Returns the objects of a kind in the order of their keys, in `namespace` or, if it is `None`, in all
    /// namespaces. If `after` is given, starts with the object that follows this key.
    pub fn list<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&'a Namespace>,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        // Keys without a namespace sort before keys with one, and the least name before all others.
        let start = match (after, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, namespace) => {
                Bound::Included(ObjectKey { kind, namespace: namespace.cloned(), name: least_name() })
            }
        };
        let wanted = move |key: &ObjectKey| {
            key.kind == kind && namespace.is_none_or(|namespace| key.namespace.as_ref() == Some(namespace))
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| wanted(key))
            .map(|(_, object)| object)
    }

    /// Returns the number of objects of a kind in all namespaces.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the namespaces that contain objects, in the order of names, with the number of objects of each kind.
    pub fn namespaces(&self) -> impl Iterator<Item = (&Namespace, &OrdMap<Kind, usize>)> {
        self.namespaces.iter()
    }

    /// Returns the number of virtual addresses of Services: cluster IPs and load balancer addresses.
    #[must_use]
    pub fn vips(&self) -> usize {
        self.cluster_ips.len() + self.held_addresses()
    }

    /// Returns the number of addresses of Workloads and of endpoints in EndpointSets.
    #[must_use]
    pub const fn endpoint_addresses(&self) -> usize {
        self.endpoint_addresses
    }

    /// Returns the amounts of limited resources that the objects of a namespace use, except checked endpoints,
    /// which depend on several objects.
    #[must_use]
    pub fn usage(&self, namespace: &Namespace) -> Usage {
        self.usage.get(namespace).copied().unwrap_or_default()
    }

    /// Returns the Service that holds a cluster IP, or `None` if the address is free.
    #[must_use]
    pub fn cluster_ip_holder(&self, address: IpAddr) -> Option<&ServiceKey> {
        self.cluster_ips.get(&address)
    }

    /// Returns a Service that uses one of `ports` at an external or load balancer address, or `None` if all
    /// of them are free.
    #[must_use]
    pub fn routed_holder(
        &self,
        address: IpAddr,
        protocol: Protocol,
        ports: PortRange,
    ) -> Option<&ServiceKey> {
        let (at, frontend) = self.routed_frontends.get_prev(&(address, protocol, ports.last()))?;
        let is_same = (at.0, at.1) == (address, protocol);
        (is_same && frontend.last >= ports.first()).then_some(&frontend.holder)
    }

    /// Returns the first Node address in a range for which `is_excepted` returns false, with the name of its
    /// Node; `None` if there is none.
    pub(crate) fn node_address_in(
        &self,
        range: &AddressRange,
        is_excepted: impl Fn(IpAddr) -> bool,
    ) -> Option<(IpAddr, &Name)> {
        let mut inside = self.node_addresses.range(range.first()..=range.last());
        let (address, nodes) = inside.find(|(address, _)| !is_excepted(**address))?;
        Some((*address, nodes.first()?))
    }

    /// Returns a Node whose spec contains an address, or `None` if no Node has it.
    #[must_use]
    pub fn node_with_address(&self, address: IpAddr) -> Option<&Name> {
        self.node_addresses.get(&address).and_then(NonEmptySet::first)
    }

    /// Returns the Service that holds a node port or health check node port, or `None` if the port is free.
    #[must_use]
    pub fn node_port_holder(&self, protocol: Protocol, port: Port) -> Option<&ServiceKey> {
        self.node_ports.get(&(protocol, port))
    }

    /// Returns the first free cluster IP of a family from `start` to `end`, or `None` if all are in use.
    /// Addresses are given as integers.
    #[must_use]
    pub fn first_free_address(&self, family: IpFamily, start: u128, end: u128) -> Option<u128> {
        self.taken_addresses.get(&family).map_or(Some(start), |taken| taken.first_free(start, end))
    }

    /// Returns the first free node port from `start` to `end`, or `None` if all are in use.
    #[must_use]
    pub fn first_free_node_port(&self, protocol: Protocol, start: u16, end: u16) -> Option<u16> {
        let taken = self.taken_node_ports.get(&protocol);
        let free = taken.map_or(Some(u128::from(start)), |taken| taken.first_free(start.into(), end.into()));
        free.and_then(|port| u16::try_from(port).ok())
    }

    /// Returns the Workloads of a namespace that have all labels of a selector; none if the selector is empty.
    pub fn workloads_matching<'a>(
        &'a self,
        namespace: &Namespace,
        selector: &'a Labels,
    ) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        let candidates =
            |(key, value): (&String, &String)| self.workloads_by_label.get(&label_key(namespace, key, value));
        let sets: Option<Vec<_>> = selector.iter().map(candidates).collect();
        // The rarest label bounds the number of Workloads to examine.
        let rarest = sets.and_then(|sets| sets.into_iter().min_by_key(|set| set.len()));
        let namespace = namespace.clone();
        rarest
            .into_iter()
            .flatten()
            .filter_map(move |name| {
                let namespace = Some(namespace.clone());
                self.objects.get(&ObjectKey { kind: Kind::Workload, namespace, name: name.clone() })
            })
            .filter(|workload| is_subset(selector, &workload.metadata.labels))
    }

    /// Returns the Services of a namespace whose selector matches the given labels.
    pub fn services_selecting<'a>(
        &'a self,
        namespace: &'a Namespace,
        labels: &'a Labels,
    ) -> impl Iterator<Item = ServiceKey> + 'a {
        let by_label = labels
            .iter()
            .filter_map(|(key, value)| self.services_by_selector.get(&label_key(namespace, key, value)));
        by_label.flatten().map(|name| ServiceKey { namespace: namespace.clone(), name: name.clone() }).filter(
            |key| {
                let spec = self.service(key).and_then(|object| object.as_service());
                spec.is_some_and(|spec| is_subset(&spec.selector, labels))
            },
        )
    }

    /// Returns the health record of a Service, which lists its unhealthy endpoints; `None` if it has none.
    #[must_use]
    pub fn endpoint_health(&self, service: &ServiceKey) -> Option<&EndpointHealthSpec> {
        self.objects.get(&record_key(service))?.as_endpoint_health()
    }

    /// Returns the Workloads that run on a Node.
    pub fn workloads_on<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        self.workloads_by_node.get(node).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// Returns true if a Node counts as lost because its agent is silent. Other nodes check the Workloads on a lost
    /// Node.
    #[must_use]
    pub fn is_lost(&self, node: &Name) -> bool {
        self.lost_nodes.contains(node)
    }

    /// Returns the Nodes that count as lost, each with the time since which it does.
    pub fn lost_nodes(&self) -> impl Iterator<Item = (&Name, Timestamp)> {
        self.lost_nodes.iter().filter_map(|node| {
            let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
            Some((node, self.objects.get(&key)?.as_node()?.lost_since?))
        })
    }

    /// Returns the maintenance of a Node, or `None` if none is set.
    #[must_use]
    pub fn maintenance_of(&self, node: &Name) -> Option<&Maintenance> {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
        self.objects.get(&key)?.as_node()?.maintenance.as_deref()
    }

    /// Returns the EndpointSets that have an endpoint on a Node.
    pub fn endpoint_sets_on<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        self.sets_by_node.get(node).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// Returns the EndpointSets that belong to a Service.
    pub fn endpoint_sets_of<'a>(
        &'a self,
        service: &'a ServiceKey,
    ) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        self.sets_by_service.get(service).into_iter().flatten().filter_map(|name| {
            let namespace = Some(service.namespace.clone());
            self.objects.get(&ObjectKey { kind: Kind::EndpointSet, namespace, name: name.clone() })
        })
    }

    /// Returns the keys of the members of an apply set.
    pub fn apply_set_members<'a>(&'a self, name: &Name) -> impl Iterator<Item = &'a ObjectKey> + 'a {
        self.apply_sets.get(name).into_iter().flatten()
    }

    /// Returns the workload networks of all Nodes and the networks of all WorkloadNetworks.
    pub fn workload_cidrs(&self) -> impl Iterator<Item = &IpNet> {
        self.workload_cidrs.keys().chain(self.network_cidrs().map(|(cidr, _)| cidr))
    }

    /// Returns the workload networks of all Nodes (`workloadCIDRs`), each with a Node that has it.
    pub(crate) fn workload_cidrs_of_nodes(&self) -> impl Iterator<Item = (&IpNet, &Name)> {
        self.workload_cidrs.iter().filter_map(|(cidr, nodes)| Some((cidr, nodes.first()?)))
    }

    /// Returns the state after a commit that another server made; `None` if the commit does not directly
    /// follow this state.
    #[must_use]
    pub fn apply(&self, commit: &Commit) -> Option<Self> {
        if commit.revision != self.revision.next() {
            return None;
        }
        let mut next = self.clone();
        for Change { kind, object } in &commit.changes {
            let key = object.key();
            let is_known = self.objects.contains_key(&key);
            match kind {
                ChangeKind::Added if !is_known => next.put(Arc::clone(object)),
                ChangeKind::Modified if is_known => next.put(Arc::clone(object)),
                ChangeKind::Deleted if is_known => drop(next.remove(&key)),
                ChangeKind::Added | ChangeKind::Modified | ChangeKind::Deleted => return None,
            }
        }
        next.revision = commit.revision;
        Some(next)
    }

    /// Applies a change that a watch reports. Returns the change with the object, or `None` if the removed object does
    /// not exist.
    pub(crate) fn receive(&mut self, change: ObjectChange) -> Option<Change> {
        match change {
            ObjectChange::Put(object) => {
                self.put(Arc::clone(&object));
                Some(Change { kind: ChangeKind::Modified, object })
            }
            ObjectChange::Removed(key) => {
                self.remove(&key).map(|object| Change { kind: ChangeKind::Deleted, object })
            }
        }
    }

    pub(crate) fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// Inserts an object and updates the indices. Replaces an object with the same key.
    pub(crate) fn put(&mut self, object: Arc<Object>) {
        let key = object.key();
        self.remove(&key);
        self.index(&object, &key, Entry::Add);
        *self.counts.entry(key.kind).or_insert(0) += 1;
        self.objects.insert(key, Arc::clone(&object));
        self.update_lacking(&object);
    }

    /// Removes an object with its index entries, and returns it.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let object = self.objects.remove(key)?;
        self.index(&object, key, Entry::Remove);
        match self.count(key.kind) {
            0 | 1 => self.counts.remove(&key.kind),
            count => self.counts.insert(key.kind, count - 1),
        };
        self.update_lacking(&object);
        Some(object)
    }

    fn index(&mut self, object: &Object, key: &ObjectKey, entry: Entry) {
        if let Some(set) = &object.metadata.apply_set {
            entry.set(&mut self.apply_sets, set.clone(), key.clone());
        }
        if let Some(namespace) = &key.namespace {
            entry.usage(&mut self.usage, namespace, &Usage::of(object));
            entry.kind(&mut self.namespaces, namespace, key.kind);
        }
        match (&object.spec, &key.namespace) {
            (Spec::Service(spec), Some(namespace)) => {
                let service = ServiceKey { namespace: namespace.clone(), name: key.name.clone() };
                self.index_service(spec, &service, entry);
                self.index_routed(object, &service, entry);
                self.names.index_hostnames(object, key, entry);
            }
            (Spec::Workload(spec), Some(namespace)) => {
                entry.count(&mut self.endpoint_addresses, spec.addresses.len());
                if let Some(node) = &spec.node {
                    entry.set(&mut self.workloads_by_node, node.clone(), key.clone());
                }
                let workload = WorkloadKey { namespace: namespace.clone(), name: key.name.clone() };
                self.networks.index_workload(&workload, spec, entry);
                for (label, value) in &object.metadata.labels {
                    entry.set(
                        &mut self.workloads_by_label,
                        label_key(namespace, label, value),
                        key.name.clone(),
                    );
                }
            }
            (Spec::EndpointSet(spec), Some(namespace)) => {
                entry.count(&mut self.endpoint_addresses, spec.endpoints.len());
                let service = ServiceKey { namespace: namespace.clone(), name: spec.service.clone() };
                entry.set(&mut self.sets_by_service, service, key.name.clone());
                let nodes: BTreeSet<_> = spec.endpoints.iter().filter_map(|one| one.node.as_ref()).collect();
                for node in nodes {
                    entry.set(&mut self.sets_by_node, node.clone(), key.clone());
                }
            }
            (Spec::Node(spec), _) => {
                if spec.lost_since.is_some() {
                    entry.member(&mut self.lost_nodes, key.name.clone());
                }
                for cidr in &spec.workload_cidrs {
                    entry.set(&mut self.workload_cidrs, *cidr, key.name.clone());
                }
                for address in &spec.addresses {
                    entry.set(&mut self.node_addresses, *address, key.name.clone());
                }
            }
            (Spec::Address(spec), _) => self.index_address(spec, entry),
            (Spec::AddressPool(spec), _) => self.index_pool(&key.name, spec, entry),
            (Spec::Advertisement(spec), _) => self.index_advertisement(&key.name, spec, entry),
            (Spec::DnsZone(spec), _) => self.names.index_zone(&key.name, spec, entry),
            // BgpPeers and BfdProfiles are few and need no index.
            (Spec::BgpPeer(_) | Spec::BfdProfile(_), _) => {}
            (Spec::HttpRoute(_) | Spec::TlsRoute(_), Some(_)) => {
                self.routes.index_route(key, object, entry);
                self.names.index_hostnames(object, key, entry);
            }
            (Spec::Gateway(_), _) => self.names.index_hostnames(object, key, entry),
            (Spec::WorkloadNetwork(spec), _) => self.networks.index_network(&key.name, spec, entry),
            (Spec::Block(spec), _) => self.networks.index_block(spec, entry),
            (Spec::Attachment(spec), _) => self.networks.index_attachment(&key.name, spec, entry),
            // Certificates are looked up by their names. The compiler of network policy has an index of its own.
            (Spec::Certificate(_) | Spec::NetworkPolicy(_), _) => {}
            // EndpointHealth records are looked up by the name of their Service.
            (Spec::EndpointHealth(_), _) => {}
            // Namespaced kinds always have a namespace, because decoding fills it in.
            (
                Spec::Service(_)
                | Spec::Workload(_)
                | Spec::EndpointSet(_)
                | Spec::HttpRoute(_)
                | Spec::TlsRoute(_),
                None,
            ) => {}
        }
    }

    fn index_service(&mut self, spec: &ServiceSpec, key: &ServiceKey, entry: Entry) {
        // One entry of the selector finds the Service by any label that matches it.
        if let Some((label, value)) = spec.selector.first_key_value() {
            entry.set(
                &mut self.services_by_selector,
                label_key(&key.namespace, label, value),
                key.name.clone(),
            );
        }
        for address in spec.cluster_addresses() {
            entry.map(&mut self.cluster_ips, address, key);
            entry.number(&mut self.taken_addresses, IpFamily::of(address), to_number(address));
        }
        let node_ports = spec.ports.iter().filter_map(|port| Some((port.protocol, port.node_port?)));
        let health = spec.health_check_node_port.map(|port| (Protocol::Tcp, port));
        for (protocol, port) in node_ports.chain(health) {
            entry.map(&mut self.node_ports, (protocol, port), key);
            entry.number(&mut self.taken_node_ports, protocol, port.get().into());
        }
    }
}

/// Returns every second object, then the others. A persistent map splits a full node in the middle, so that insertion in
/// the order of the keys leaves all nodes half empty; in this order, the second half of the objects fills them.
pub(crate) fn interleaved<T>(objects: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let (mut even, mut odd) = (Vec::new(), Vec::new());
    for (at, object) in objects.into_iter().enumerate() {
        if at % 2 == 0 { even.push(object) } else { odd.push(object) }
    }
    even.into_iter().chain(odd)
}

fn label_key(namespace: &Namespace, key: &str, value: &str) -> LabelKey {
    LabelKey { namespace: namespace.clone(), key: key.into(), value: value.into() }
}

fn is_subset(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn least_name() -> Name {
    Name::parse("0").expect("a digit is a name, and no name sorts before it")
}

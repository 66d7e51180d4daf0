//! Compilation of the cluster state to the messages that nodes receive, one Service at a time, and
//! determination of the Services that a change affects.

mod health;

pub(crate) use self::health::{VerdictRule, is_panic};

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    bgp::compile::bgp_state,
    cluster::{
        change::Change,
        compiled::{CompiledEndpoint, CompiledPort, CompiledService, DefaultCheck, Survival},
        snapshot::Snapshot,
        unsupported::blocking,
    },
    kinds::{
        address::Candidate,
        connections::Survive,
        endpoint_set::{Endpoint, EndpointSetSpec},
        maintenance::{Maintenance, MaintenanceMode},
        metadata::CHECKED_BY,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
        service::{Protocol, ServicePort, ServiceSpec, TargetPort},
        workload::{WorkloadPhase, WorkloadSpec},
    },
    primitives::{
        name::Name,
        quantity::{Port, Revision, Weight},
    },
    wire::{
        feed::{AddressState, NetworkState, NodeState},
        workload_network::compile_interfaces,
    },
};

/// Compiles one Service with its endpoints to the form that nodes receive. Returns `None` if the Service does
/// not exist or has type ExternalName. The revision in the result is zero; the caller sets it to the revision
/// of the commit.
#[must_use]
pub fn compile(snapshot: &Snapshot, key: &ServiceKey) -> Option<CompiledService> {
    let object = snapshot.service(key)?;
    let spec = object.as_service().filter(|spec| !spec.is_external_name())?;
    let sources = Sources::of(snapshot, key, spec);
    // A disabled Service keeps its addresses and ports, but nodes do not receive them.
    let is_exposed = !spec.disabled;
    let mut ports: Vec<_> =
        spec.ports.iter().map(|port| compile_port(spec, port, &sources, is_exposed)).collect();
    let health_check = spec.health_check.clone().filter(|_| is_exposed);
    let default_check = match health_check {
        None if is_exposed => default_check(snapshot, object, spec, &ports),
        None | Some(_) => DefaultCheck::Off,
    };
    if let Some(record) = snapshot.endpoint_health(key).filter(|_| is_exposed) {
        let rule = |port: &CompiledPort| VerdictRule::new(health_check.as_deref(), default_check, port);
        ports.iter_mut().for_each(|port| health::apply(rule(port), record, port));
    }
    let survival = (is_exposed && spec.connections.survive == Survive::Always)
        .then(|| Box::new(survival(snapshot, &ports)));
    let exposed = |addresses: Vec<_>| if is_exposed { addresses } else { Vec::new() };
    Some(CompiledService {
        service: key.clone(),
        revision: Revision(0),
        cluster_ips: exposed(spec.cluster_addresses().collect()),
        ip_families: spec.ip_families.clone(),
        external_ips: exposed(spec.external_ips.clone()),
        load_balancer_ips: exposed(snapshot.addresses_of(key).collect()),
        source_ranges: spec.load_balancer_source_ranges.iter().copied().collect(),
        source_ranges_scope: spec.source_ranges_scope,
        ports,
        affinity_seconds: spec.affinity_seconds(),
        external_traffic_policy: spec.external_traffic_policy,
        internal_traffic_policy: spec.internal_traffic_policy,
        traffic_distribution: spec.traffic_distribution,
        health_check_node_port: spec.health_check_node_port.filter(|_| is_exposed),
        scheduler: spec.scheduler.clone(),
        scheduler_flags: spec.scheduler_flags.clone(),
        forwarding_method: spec.forwarding_method,
        proxy_protocol: spec.proxy_protocol,
        removal_policy: spec.removal_policy,
        drain_seconds: spec.drain_seconds,
        health_check,
        default_check,
        survival,
        unsupported: blocking(spec),
    })
}

/// Returns the addresses of the Nodes of endpoints.
fn survival(snapshot: &Snapshot, ports: &[CompiledPort]) -> Survival {
    let nodes: BTreeSet<_> =
        ports.iter().flat_map(|port| &port.endpoints).filter_map(|endpoint| endpoint.node.as_ref()).collect();
    let addresses =
        |node: &Name| addresses_of_node(snapshot, node).map(|addresses| (node.clone(), addresses));
    Survival { node_addresses: nodes.into_iter().filter_map(addresses).collect() }
}

fn addresses_of_node(snapshot: &Snapshot, node: &Name) -> Option<BTreeSet<IpAddr>> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    Some(snapshot.get(&key)?.as_node()?.addresses.iter().copied().collect())
}

/// Returns the use of checks by default for a Service without a health check.
fn default_check(
    snapshot: &Snapshot,
    object: &Object,
    spec: &ServiceSpec,
    ports: &[CompiledPort],
) -> DefaultCheck {
    let may_check =
        |port: &CompiledPort| port.endpoints.iter().any(|endpoint| port.may_check_by_default(endpoint));
    if ports.iter().any(may_check) {
        snapshot.default_checks().of(&object.metadata, spec)
    } else {
        DefaultCheck::Off
    }
}

/// Compiles the ports of a headless Service with their endpoints. A Service without ports gets one port without a
/// name, whose number has no meaning, with all endpoints. Returns `None` if the Service does not exist.
pub(crate) fn headless_ports(snapshot: &Snapshot, key: &ServiceKey) -> Option<Vec<CompiledPort>> {
    let compiled = compile(snapshot, key)?;
    if !compiled.ports.is_empty() {
        return Some(compiled.ports);
    }
    let spec = snapshot.service(key)?.as_service()?;
    let sources = Sources::of(snapshot, key, spec);
    let any = Port::new(1)?;
    let sets = sources.sets.iter().flat_map(|set| set.spec.endpoints.iter().map(move |one| (set, one)));
    let sets = sets.map(|(set, endpoint)| CompiledEndpoint {
        checked_by_source: set.is_checked,
        ..of_endpoint(spec, endpoint, any, snapshot)
    });
    let workloads = sources.workloads.iter().filter(|workload| workload.spec.phase.is_alive());
    let workloads = workloads.flat_map(|workload| of_workload(spec, workload, any, snapshot));
    let endpoints = sets.chain(workloads).collect();
    Some(vec![CompiledPort {
        name: None,
        protocol: Protocol::Tcp,
        port: any,
        end_port: None,
        node_port: None,
        endpoints,
    }])
}

/// Compiles a load balancer address to the form that nodes receive. Returns `None` if no Service has the address.
/// The revision in the result is zero; the caller sets it to the revision of the commit.
#[must_use]
pub fn compile_address(snapshot: &Snapshot, address: IpAddr) -> Option<AddressState> {
    let record = snapshot.address(address)?.as_address().filter(|record| !record.services.is_empty())?;
    let mut announcement = record.announcement.clone();
    // Older agents reject candidates with unknown fields.
    let key = |one: &mut Candidate| Some((one.node.clone(), one.peer_public_key.take()?));
    let peer_public_keys = announcement.candidates.iter_mut().filter_map(key).collect();
    Some(AddressState {
        address,
        revision: Revision(0),
        services: record.services.clone(),
        announcement,
        peer_public_keys,
    })
}

/// Returns the Services whose compiled form (the data that agents receive) a change may alter. `before` and
/// `after` are the snapshots before and after the commit that contains the change.
#[must_use]
pub fn affected(before: &Snapshot, after: &Snapshot, change: &Change) -> BTreeSet<ServiceKey> {
    let object = &change.object;
    let old = before.get(&object.key());
    let states = || old.into_iter().chain(std::iter::once(object));
    if object.spec.kind() == Kind::Address {
        let records = states().filter_map(|state| state.as_address());
        return records.flat_map(|record| record.services.iter().cloned()).collect();
    }
    if object.as_node().is_some() {
        return affected_by_node(before, after, &object.metadata.name);
    }
    let Some(namespace) = object.metadata.namespace.as_ref() else { return BTreeSet::new() };
    match object.spec.kind() {
        Kind::Node
        | Kind::AddressPool
        | Kind::BfdProfile
        | Kind::BgpPeer
        | Kind::Advertisement
        | Kind::DnsZone
        | Kind::Certificate
        | Kind::Gateway
        | Kind::HttpRoute
        | Kind::TlsRoute
        | Kind::WorkloadNetwork
        | Kind::NetworkPolicy
        | Kind::Address
        | Kind::Block
        | Kind::Attachment => BTreeSet::new(),
        // An EndpointHealth has the name of its Service.
        Kind::Service | Kind::EndpointHealth => {
            BTreeSet::from([ServiceKey { namespace: namespace.clone(), name: object.metadata.name.clone() }])
        }
        Kind::EndpointSet | Kind::Workload => {
            states().flat_map(|state| services_served_by(after, state)).collect()
        }
    }
}

/// Returns the Services for which an EndpointSet or Workload provides endpoints; none for objects of other
/// kinds.
#[must_use]
pub fn services_served_by(snapshot: &Snapshot, object: &Object) -> Vec<ServiceKey> {
    let Some(namespace) = &object.metadata.namespace else { return Vec::new() };
    match object.as_workload() {
        Some(_) => snapshot.services_selecting(namespace, &object.metadata.labels).collect(),
        None => served_by(object).into_iter().collect(),
    }
}

/// Returns the Services whose endpoints on a Node are affected by a change of its lost state, its maintenance or its
/// addresses; an empty set if none of them has changed.
fn affected_by_node(before: &Snapshot, after: &Snapshot, node: &Name) -> BTreeSet<ServiceKey> {
    let is_maintained_as_before = before.maintenance_of(node) == after.maintenance_of(node);
    let has_moved = addresses_of_node(before, node) != addresses_of_node(after, node);
    if before.is_lost(node) == after.is_lost(node) && is_maintained_as_before && !has_moved {
        return BTreeSet::new();
    }
    // The loss of a Node affects its Workloads only; endpoints in EndpointSets have conditions of their own.
    let sets = (!is_maintained_as_before || has_moved).then(|| after.endpoint_sets_on(node));
    let by_hand = sets.into_iter().flatten().filter_map(|set| served_by(set));
    let workloads = after.workloads_on(node);
    let placed = workloads.filter_map(|one| Some((one.metadata.namespace.as_ref()?, &one.metadata.labels)));
    placed
        .flat_map(|(namespace, labels)| after.services_selecting(namespace, labels))
        .chain(by_hand)
        .collect()
}

/// Compiles the cluster-wide data that the packet rules of every node depend on, such as the workload networks.
#[must_use]
pub fn network(snapshot: &Snapshot) -> NetworkState {
    let nodes = snapshot.list(Kind::Node, None, None).map(|node| &node.metadata.name);
    NetworkState {
        workload_cidrs: snapshot.workload_cidrs().copied().collect(),
        default_check: snapshot.default_checks().is_on(),
        checkers: nodes.filter(|node| !snapshot.is_lost(node)).cloned().collect(),
        ..NetworkState::default()
    }
}

/// Compiles the settings of one node, or the defaults if the node does not exist. `asn` is the AS number for
/// Nodes that set none.
#[must_use]
pub fn node_state(snapshot: &Snapshot, node: &Name, asn: u32) -> NodeState {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    let Some(Spec::Node(spec)) = snapshot.get(&key).map(|object| &object.spec) else {
        return NodeState::default();
    };
    NodeState {
        mode: spec.mode,
        zone: spec.zone.clone(),
        proxy: spec.proxy.clone(),
        workload_cidrs: Some(spec.workload_cidrs.iter().chain(snapshot.blocks_of(node)).copied().collect()),
        bgp: bgp_state(snapshot, node, asn).map(Box::new),
        interfaces: compile_interfaces(snapshot, node),
    }
}

fn served_by(object: &Object) -> Option<ServiceKey> {
    let spec = object.as_endpoint_set()?;
    let namespace = object.metadata.namespace.clone()?;
    Some(ServiceKey { namespace, name: spec.service.clone() })
}

/// EndpointSets and Workloads from which the endpoints of one Service are compiled.
struct Sources<'a> {
    snapshot: &'a Snapshot,
    sets: Vec<EndpointSource<'a, EndpointSetSpec>>,
    workloads: Vec<EndpointSource<'a, WorkloadSpec>>,
}

/// EndpointSet or Workload.
struct EndpointSource<'a, S> {
    spec: &'a S,
    /// True if the object has the annotation [`CHECKED_BY`].
    is_checked: bool,
}

impl<'a, S> EndpointSource<'a, S> {
    fn of(object: &'a Object, spec: &'a S) -> Self {
        Self { spec, is_checked: object.metadata.annotations.contains_key(CHECKED_BY) }
    }
}

impl<'a> Sources<'a> {
    fn of(snapshot: &'a Snapshot, key: &'a ServiceKey, spec: &'a ServiceSpec) -> Self {
        let sets = snapshot
            .endpoint_sets_of(key)
            .filter_map(|object| Some(EndpointSource::of(object, object.as_endpoint_set()?)));
        let workloads = snapshot.workloads_matching(&key.namespace, &spec.selector);
        let workloads =
            workloads.filter_map(|object| Some(EndpointSource::of(object, object.as_workload()?)));
        Self { snapshot, sets: sets.collect(), workloads: workloads.collect() }
    }
}

/// Returns the maintenance that applies to an endpoint: the strictest of the settings on the endpoint itself
/// (`own`), on its Node and on its Service.
fn with_context<'a>(
    own: Option<&'a Maintenance>,
    node: Option<&Name>,
    spec: &'a ServiceSpec,
    snapshot: &'a Snapshot,
) -> Option<&'a Maintenance> {
    let of_node = node.and_then(|node| snapshot.maintenance_of(node));
    Maintenance::stronger([own, of_node, spec.maintenance.as_deref()])
}

/// Applies maintenance to an endpoint: mode drain sets its weight to 0, mode maintenance makes it neither
/// ready nor serving. Without maintenance, returns the endpoint unchanged.
fn take_out(mut endpoint: CompiledEndpoint, maintenance: Option<&Maintenance>) -> CompiledEndpoint {
    let Some(maintenance) = maintenance else { return endpoint };
    match maintenance.mode {
        MaintenanceMode::Drain => endpoint.weight = Weight(0),
        MaintenanceMode::Maintenance => (endpoint.ready, endpoint.serving) = (false, false),
    }
    endpoint.maintenance = Some(Box::new(maintenance.clone()));
    endpoint
}

fn compile_port(
    spec: &ServiceSpec,
    port: &ServicePort,
    sources: &Sources<'_>,
    is_exposed: bool,
) -> CompiledPort {
    let snapshot = sources.snapshot;
    let by_hand = sources.sets.iter().flat_map(|set| {
        port_of_set(set.spec, port).into_iter().flat_map(move |number| {
            set.spec.endpoints.iter().map(move |endpoint| CompiledEndpoint {
                checked_by_source: set.is_checked,
                ..of_endpoint(spec, endpoint, number, snapshot)
            })
        })
    });
    let selected =
        sources.workloads.iter().filter(|workload| workload.spec.phase.is_alive()).flat_map(|workload| {
            let number = port_of_workload(workload.spec, port);
            number.into_iter().flat_map(|number| of_workload(spec, workload, number, snapshot))
        });
    let mut endpoints: BTreeMap<_, CompiledEndpoint> = BTreeMap::new();
    for mut endpoint in by_hand.chain(selected) {
        if port.end_port.is_some() {
            // In a range, the port is preserved; the port in the endpoint source does not apply.
            endpoint.port = port.port;
        }
        // Several sources may contain the same address and port. A ready entry takes precedence.
        let known = endpoints.entry((endpoint.address, endpoint.port)).or_insert_with(|| endpoint.clone());
        if endpoint.ready && !known.ready {
            *known = endpoint;
        }
    }
    CompiledPort {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
        end_port: port.end_port,
        node_port: port.node_port.filter(|_| is_exposed),
        endpoints: endpoints.into_values().collect(),
    }
}

/// Returns the port at which the endpoints of a set serve a Service port, or `None` if they do not serve it.
pub(crate) fn port_of_set(set: &EndpointSetSpec, port: &ServicePort) -> Option<Port> {
    if set.ports.is_empty() {
        return match &port.target_port {
            None => Some(port.port),
            Some(TargetPort::Number(number)) => Some(*number),
            Some(TargetPort::Name(_)) => None,
        };
    }
    let same =
        set.ports.iter().find(|candidate| candidate.name == port.name && candidate.protocol == port.protocol);
    same.map(|found| found.port)
}

/// Returns the port at which a Workload serves a Service port, or `None` if the Workload does not serve it.
pub(crate) fn port_of_workload(workload: &WorkloadSpec, port: &ServicePort) -> Option<Port> {
    match &port.target_port {
        None => Some(port.port),
        Some(TargetPort::Number(number)) => Some(*number),
        Some(TargetPort::Name(name)) => {
            workload.ports.get(name).filter(|named| named.protocol == port.protocol).map(|named| named.port)
        }
    }
}

fn of_endpoint(spec: &ServiceSpec, endpoint: &Endpoint, port: Port, snapshot: &Snapshot) -> CompiledEndpoint {
    let Endpoint { address, node, zone, hostname: _, weight, conditions, drain: _, maintenance: _ } =
        endpoint;
    let maintenance = with_context(endpoint.own_maintenance(), node.as_ref(), spec, snapshot);
    let compiled = CompiledEndpoint {
        address: *address,
        port,
        node: node.clone(),
        zone: zone.clone(),
        weight: *weight,
        ready: conditions.ready || spec.publish_not_ready_addresses,
        serving: conditions.serving,
        terminating: conditions.terminating,
        maintenance: None,
        // The source of an EndpointSet sets the conditions of its endpoints.
        node_lost: false,
        checked_by_source: false,
    };
    take_out(compiled, maintenance)
}

fn of_workload<'a>(
    spec: &'a ServiceSpec,
    source: &EndpointSource<'a, WorkloadSpec>,
    port: Port,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = CompiledEndpoint> + 'a {
    let (workload, checked_by_source) = (source.spec, source.is_checked);
    let terminating = workload.phase == WorkloadPhase::Terminating;
    let maintenance = with_context(workload.maintenance.as_deref(), workload.node.as_ref(), spec, snapshot);
    let node_lost = workload.node.as_ref().is_some_and(|node| snapshot.is_lost(node));
    workload.addresses.iter().map(move |address| {
        let compiled = CompiledEndpoint {
            address: *address,
            port,
            node: workload.node.clone(),
            zone: workload.zone.clone(),
            weight: workload.weight,
            ready: (workload.ready && !terminating) || spec.publish_not_ready_addresses,
            serving: workload.ready,
            terminating,
            maintenance: None,
            node_lost,
            checked_by_source,
        };
        take_out(compiled, maintenance)
    })
}

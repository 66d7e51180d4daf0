//! Generator of random clusters, as objects of the API, and of connections that mostly go to existing frontends.
//!
//! The hosts and addresses are those of the test bed of the node agent (`node-agent/tests/it/testbed/`), where the
//! connections are opened.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use model::{
    cluster::snapshot::Snapshot,
    kinds::{
        address::{AddressSpec, name_of},
        endpoint_set::{Endpoint, EndpointConditions, EndpointPort, EndpointSetSpec},
        maintenance::{Maintenance, MaintenanceMode},
        metadata::Metadata,
        node::NodeSpec,
        resource::{Object, ServiceKey, Spec},
        service::{
            ClusterIp, Protocol, RemovalPolicy, Scheduler, ServicePort, ServiceSpec, SessionAffinity,
            SourceRangesScope, TargetPort, TrafficDistribution, TrafficPolicy,
        },
    },
    primitives::{
        name::{Label, Name, Namespace},
        net::IpFamily,
        quantity::{Port, Revision, Weight},
    },
    program::oracle::Connection,
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{Estate, ServiceObjects};

/// Name of the node that handles the connections.
pub const NODE: &str = "n1";
/// Addresses of the node, except loopback ones.
pub const NODE_ADDRESSES: [&str; 14] = [
    "192.0.2.1",
    "192.0.2.11",
    "10.1.1.1",
    "10.1.2.1",
    "10.1.3.1",
    "10.2.1.1",
    "10.2.2.1",
    "2001:db8::1",
    "2001:db8::11",
    "fd01:1::1",
    "fd01:2::1",
    "fd01:3::1",
    "fd02:1::1",
    "fd02:2::1",
];
/// Hosts that may be endpoints: name, addresses, Node and zone.
const HOSTS: [(&str, [&str; 2], &str, &str); 6] = [
    ("a", ["10.1.1.2", "fd01:1::2"], "n1", "z1"),
    ("b", ["10.1.2.2", "fd01:2::2"], "n1", "z1"),
    ("c", ["10.1.3.2", "fd01:3::2"], "n1", "z1"),
    ("d", ["10.2.1.2", "fd02:1::2"], "n2", "z2"),
    ("e", ["10.2.2.2", "fd02:2::2"], "n3", "z1"),
    ("node", ["192.0.2.1", "2001:db8::1"], "n1", "z1"),
];
const CLIENTS: [[&str; 2]; 3] =
    [["192.0.2.2", "2001:db8::2"], ["192.0.2.3", "2001:db8::3"], ["198.51.100.2", "2001:db8:100::2"]];
const SERVICES_MAX: usize = 4;
const SOURCES: [&str; 6] = [
    "192.0.2.2/32",
    "192.0.2.0/28",
    "198.51.100.0/24",
    "10.1.0.0/16",
    "2001:db8::2/127",
    "2001:db8:100::/64",
];

/// Properties that depend on the proxy mode and on the kernel.
#[derive(Debug, Clone, Copy)]
pub struct DrawOptions {
    /// IP family of every Service; some have the other one as well.
    pub family: IpFamily,
    /// Number of connections in each state.
    pub connections: usize,
    pub protocols: &'static [Protocol],
    /// IPVS schedulers of Services.
    pub schedulers: &'static [&'static str],
}

/// Random cluster with the connections to make.
#[derive(Debug, Clone)]
pub struct DrawnState {
    pub estate: Estate,
    pub questions: Vec<Question>,
}

/// Connection of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Name of the host: `client`, `node`, or that of a workload.
    pub from: &'static str,
    /// Source address; the kernel of the node chooses if `None`.
    pub source: Option<IpAddr>,
    pub to: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

impl Question {
    /// Returns the properties of the connection that packet rules examine.
    pub fn connection(&self) -> Connection {
        let own = NODE_ADDRESSES.map(ip);
        let is_node_address = own.contains(&self.to);
        let of_node = HOSTS[5].1[usize::from(self.to.is_ipv6())];
        let chosen = if is_node_address { self.to } else { ip(of_node) };
        Connection {
            source: self.source.unwrap_or(chosen),
            is_from_node: self.from == "node",
            destination: self.to,
            is_node_address,
            protocol: self.protocol,
            port: port(self.port),
        }
    }
}

/// Returns the seed of the random clusters: the number in the variable `TIDEGATE_SEED`, or a fresh one.
///
/// # Panics
/// Panics if the variable is not a number.
pub fn seed() -> u64 {
    match std::env::var("TIDEGATE_SEED") {
        Ok(text) => text.parse().expect("TIDEGATE_SEED is a number"),
        Err(_) => RandomState::new().build_hasher().finish(),
    }
}

/// Creates a runner of random cases that makes the same choices for the same seed.
pub fn runner(seed: u64, cases: u32, shrinks: u32) -> TestRunner {
    let mut config =
        Config { cases, max_shrink_iters: shrinks, failure_persistence: None, ..Config::default() };
    // In milliseconds: a failure must be reported before a guest VM is ended.
    config.max_shrink_time = 60_000;
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Generates a cluster and connections, of which most go to a frontend.
pub fn state(options: DrawOptions) -> impl Strategy<Value = DrawnState> {
    let services = vec(service(options), 1..=SERVICES_MAX);
    (nodes(), services, vec(question(options), options.connections)).prop_map(
        move |(nodes, services, asks)| {
            let services: BTreeMap<_, _> = services
                .into_iter()
                .enumerate()
                .map(|(index, one)| (format!("s{index}"), one.build(options.family, index)))
                .collect();
            let estate = Estate { services, nodes, here: NODE.to_owned() };
            let frontends = frontends(&estate);
            let questions = asks.iter().map(|ask| ask.resolve(&estate, &frontends, options.family)).collect();
            DrawnState { estate, questions }
        },
    )
}

impl Estate {
    /// Returns the stored objects of the cluster.
    pub fn snapshot(&self) -> Snapshot {
        let namespace = Namespace::parse("default").unwrap();
        let mut objects = Vec::new();
        let mut put = |name: &str, namespace: Option<&Namespace>, spec| {
            let metadata = Metadata::named(Name::parse(name).unwrap(), namespace.cloned());
            objects.push(Arc::new(Object { metadata, spec }));
        };
        let mut addresses: BTreeMap<IpAddr, BTreeSet<ServiceKey>> = BTreeMap::new();
        for (name, service) in &self.services {
            put(name, Some(&namespace), Spec::Service(Box::new(service.spec.clone())));
            for (index, set) in service.sets.iter().enumerate() {
                put(&format!("{name}-{index}"), Some(&namespace), Spec::EndpointSet(set.clone()));
            }
            for address in &service.load_balancer_ips {
                addresses.entry(*address).or_default().insert(key(name));
            }
        }
        for (address, services) in addresses {
            let spec = AddressSpec { services, ..AddressSpec::new(address, None) };
            put(name_of(address).as_str(), None, Spec::Address(Box::new(spec)));
        }
        for (name, node) in &self.nodes {
            put(name, None, Spec::Node(Box::new(node.clone())));
        }
        Snapshot::from_objects(Revision(1), objects)
    }
}

/// Returns the key of a Service of a drawn cluster.
pub fn key(name: &str) -> ServiceKey {
    ServiceKey::try_from(format!("default/{name}")).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

/// Generates the Nodes: workload networks of all, of one, or none, and options of the node.
fn nodes() -> impl Strategy<Value = BTreeMap<String, NodeSpec>> {
    let known = prop_oneof![6 => Just(3_usize), 1 => Just(1), 1 => Just(0)];
    let maintained = prop_oneof![
        8 => Just(None),
        1 => Just(Some(("n2", MaintenanceMode::Drain))),
        1 => Just(Some(("n3", MaintenanceMode::Maintenance))),
    ];
    (known, 0..6_u8, 0..6_u8, 0..8_u8, maintained).prop_map(|(known, all, narrow, cluster, maintained)| {
        let networks =
            [["10.1.0.0/16", "fd01::/16"], ["10.2.1.0/24", "fd02:1::/32"], ["10.2.2.0/24", "fd02:2::/32"]];
        let mut nodes = BTreeMap::new();
        for (index, zone) in ["z1", "z2", "z1"].into_iter().enumerate() {
            let name = format!("n{}", index + 1);
            let zone = Some(Label::parse(zone).unwrap());
            let mut node = NodeSpec { zone, ..NodeSpec::default() };
            if index < known {
                node.workload_cidrs = nets(&networks[index]);
            }
            if index == 0 {
                node.addresses = NODE_ADDRESSES.map(ip).to_vec();
                node.proxy.masquerade_all = all == 0;
                if narrow == 0 {
                    node.proxy.node_port_addresses = nets(&["192.0.2.0/29", "2001:db8::/124"]);
                }
                node.proxy.cluster_cidrs = match cluster {
                    0 => nets(&["10.0.0.0/8", "fd00::/8"]),
                    1 => nets(&["10.2.0.0/16", "fd02::/16"]),
                    _ => vec![],
                };
            }
            node.maintenance = maintained.filter(|(of, _)| *of == name).map(|(_, mode)| maintenance(mode));
            nodes.insert(name, node);
        }
        nodes
    })
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn maintenance(mode: MaintenanceMode) -> Box<Maintenance> {
    Box::new(Maintenance { mode, reason: None, by: None, deadline: None })
}

/// Service without its addresses, which follow from its index.
#[derive(Debug, Clone)]
struct ServiceDraft {
    has_cluster_ip: bool,
    is_dual: bool,
    external: Option<u8>,
    balancer: Option<u8>,
    spec: ServiceSpec,
    ports: Vec<PortDraft>,
    /// Endpoints of a set without ports, which serve every port.
    common: Vec<EndpointDraft>,
}

#[derive(Debug, Clone)]
struct PortDraft {
    protocol: Protocol,
    number: u16,
    end: Option<u16>,
    /// Last digit of the node port.
    node_port: Option<u16>,
    target: u16,
    endpoints: Vec<EndpointDraft>,
}

#[derive(Debug, Clone, Copy)]
struct EndpointDraft {
    host: usize,
    weight: u16,
    condition: Condition,
}

#[derive(Debug, Clone, Copy)]
enum Condition {
    Ready,
    NotReady,
    Finishing,
    Dying,
    Drained,
    Absent,
}

fn service(options: DrawOptions) -> impl Strategy<Value = ServiceDraft> {
    let addresses = (weighted(0.9), weighted(0.35), option::of(0..3_u8), option::of(0..3_u8));
    let ports = vec(service_port(options), 1..=3);
    let common = prop_oneof![4 => Just(Vec::new()), 1 => endpoints()];
    (addresses, settings(options), ports, common).prop_map(|(addresses, spec, ports, common)| {
        let (has_cluster_ip, is_dual, external, balancer) = addresses;
        ServiceDraft { has_cluster_ip, is_dual, external, balancer, spec, ports, common }
    })
}

/// Generates the settings of a Service: policies, preferences, source ranges, affinity and removal.
fn settings(options: DrawOptions) -> impl Strategy<Value = ServiceSpec> {
    let policies = (any::<bool>(), any::<bool>(), option::weighted(0.3, distribution()));
    let scope = select(&[SourceRangesScope::AllExternal, SourceRangesScope::LoadBalancerOnly][..]);
    let ranges = (prop_oneof![3 => Just(Vec::new()), 1 => vec(select(&SOURCES[..]), 1..4)], scope);
    let removal = select(&[RemovalPolicy::Keep, RemovalPolicy::Drain, RemovalPolicy::Reset][..]);
    let scheduler = option::of(any::<Index>());
    let rare = (weighted(0.1), weighted(0.05), 0..24_u8);
    (policies, ranges, removal, weighted(0.4), scheduler, rare).prop_map(
        move |((internal, external, near), ranges, removal_policy, is_sticky, scheduler, rare)| {
            let policy = |is_local| if is_local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
            let (publish_not_ready_addresses, disabled, maintained) = rare;
            let scheduler = scheduler.filter(|_| !options.schedulers.is_empty());
            ServiceSpec {
                internal_traffic_policy: policy(internal),
                external_traffic_policy: policy(external),
                traffic_distribution: near,
                load_balancer_source_ranges: nets(&ranges.0),
                source_ranges_scope: ranges.1,
                session_affinity: if is_sticky { SessionAffinity::ClientIP } else { SessionAffinity::None },
                scheduler: scheduler.map(|one| {
                    Scheduler(Label::parse(options.schedulers[one.index(options.schedulers.len())]).unwrap())
                }),
                removal_policy,
                drain_seconds: (removal_policy == RemovalPolicy::Drain).then_some(60),
                publish_not_ready_addresses,
                maintenance: (maintained == 0).then(|| maintenance(MaintenanceMode::Drain)),
                disabled,
                ..ServiceSpec::default()
            }
        },
    )
}

fn weighted(probability: f64) -> impl Strategy<Value = bool> {
    prop::bool::weighted(probability)
}

fn distribution() -> impl Strategy<Value = TrafficDistribution> {
    use TrafficDistribution::{PreferClose, PreferSameNode, PreferSameZone};
    select(&[PreferClose, PreferSameZone, PreferSameNode][..])
}

fn service_port(options: DrawOptions) -> impl Strategy<Value = PortDraft> {
    let number = prop_oneof![
        4 => select(&[80_u16, 81, 443][..]).prop_map(|port| (port, None)),
        1 => Just((7000, Some(7009))),
    ];
    let target = select(&[8080_u16, 8081, 9090][..]);
    (select(options.protocols), number, option::of(0..3_u16), target, endpoints()).prop_map(
        |(protocol, (number, end), node_port, target, endpoints)| {
            let node_port = node_port.filter(|_| end.is_none());
            PortDraft { protocol, number, end, node_port, target, endpoints }
        },
    )
}

fn endpoints() -> impl Strategy<Value = Vec<EndpointDraft>> {
    use Condition::{Absent, Drained, Dying, Finishing, NotReady, Ready};
    let condition = prop_oneof![
        7 => Just(Ready),
        1 => Just(NotReady),
        2 => Just(Finishing),
        1 => Just(Dying),
        1 => Just(Drained),
        1 => Just(Absent),
    ];
    let weight = select(&[0_u16, 1, 1, 1, 1, 2, 5][..]);
    let one = (0..HOSTS.len(), weight, condition);
    vec(one, 0..=5).prop_map(|list| {
        let by_host: BTreeMap<_, _> = list.into_iter().map(|one| (one.0, one)).collect();
        let draft = |(host, weight, condition)| EndpointDraft { host, weight, condition };
        by_host.into_values().map(draft).collect()
    })
}

impl ServiceDraft {
    fn build(self, family: IpFamily, index: usize) -> ServiceObjects {
        let mut spec = self.spec;
        let other = if family == IpFamily::V4 { IpFamily::V6 } else { IpFamily::V4 };
        spec.ip_families = if self.is_dual { vec![family, other] } else { vec![family] };
        let families = spec.ip_families.clone();
        let number = u8::try_from(index).unwrap();
        let all =
            |of: &dyn Fn(IpFamily) -> IpAddr| families.iter().map(|family| of(*family)).collect::<Vec<_>>();
        if self.has_cluster_ip {
            spec.cluster_ips =
                all(&|family| cluster_ip(family, number)).into_iter().map(ClusterIp::Address).collect();
            spec.cluster_ip = spec.cluster_ips.first().copied();
        }
        // A small range, so that Services conflict now and then.
        let outer_ips = |which: Option<u8>, offset: u8| {
            which.map_or_else(Vec::new, |which| all(&|family| outer(family, offset + which)))
        };
        spec.external_ips = outer_ips(self.external, 0);
        let load_balancer_ips = outer_ips(self.balancer, 8);
        let mut sets = Vec::new();
        let service = Name::parse(&format!("s{index}")).unwrap();
        let mut known = BTreeSet::new();
        for draft in &self.ports {
            if !known.insert((draft.protocol, draft.number)) {
                continue;
            }
            let name = Label::parse(&format!("p{}", spec.ports.len())).unwrap();
            let mut of_service = draft.build(&name, index);
            // Admission rejects a node port that a Service has twice.
            let is_same = |one: &ServicePort| {
                one.protocol == of_service.protocol && one.node_port == of_service.node_port
            };
            if spec.ports.iter().any(is_same) {
                of_service.node_port = None;
            }
            spec.ports.push(of_service);
            let served =
                EndpointPort { name: Some(name), protocol: draft.protocol, port: port(draft.target) };
            let endpoints = built(&draft.endpoints, &families);
            sets.push(EndpointSetSpec { service: service.clone(), ports: vec![served], endpoints });
        }
        if !self.common.is_empty() {
            let endpoints = built(&self.common, &families);
            sets.push(EndpointSetSpec { service, ports: Vec::new(), endpoints });
        }
        ServiceObjects { spec, load_balancer_ips, sets }
    }
}

impl PortDraft {
    fn build(&self, name: &Label, index: usize) -> ServicePort {
        let first = 30080 + 10 * (u16::try_from(index).unwrap() / 2);
        ServicePort {
            name: Some(name.clone()),
            protocol: self.protocol,
            port: port(self.number),
            end_port: self.end.map(port),
            target_port: self.end.is_none().then(|| TargetPort::Number(port(self.target))),
            node_port: self.node_port.map(|last| port(first + last)),
            app_protocol: None,
        }
    }
}

fn built(drafts: &[EndpointDraft], families: &[IpFamily]) -> Vec<Endpoint> {
    drafts.iter().flat_map(|draft| families.iter().map(|family| endpoint(*draft, *family))).collect()
}

fn endpoint(draft: EndpointDraft, family: IpFamily) -> Endpoint {
    use Condition::{Absent, Drained, Dying, Finishing, NotReady, Ready};
    let (_, addresses, node, zone) = HOSTS[draft.host];
    let (ready, serving, terminating) = match draft.condition {
        Ready | Drained | Absent => (true, true, false),
        NotReady => (false, false, false),
        Finishing => (false, true, true),
        Dying => (false, false, true),
    };
    Endpoint {
        address: ip(addresses[usize::from(family == IpFamily::V6)]),
        node: Some(Name::parse(node).unwrap()),
        zone: Some(Label::parse(zone).unwrap()),
        hostname: None,
        weight: Weight(draft.weight),
        conditions: EndpointConditions { ready, serving, terminating },
        drain: matches!(draft.condition, Drained),
        maintenance: matches!(draft.condition, Absent).then(|| maintenance(MaintenanceMode::Maintenance)),
    }
}

/// Destination of a connection, before the cluster is known.
#[derive(Debug, Clone, Copy)]
enum Aim {
    Frontend,
    ClosedPort,
    OtherProtocol,
    NodePort,
    Anywhere,
}

#[derive(Debug, Clone)]
struct QuestionDraft {
    who: usize,
    aim: Aim,
    which: Index,
    detail: Index,
    protocol: Protocol,
}

fn question(options: DrawOptions) -> impl Strategy<Value = QuestionDraft> {
    let aim = prop_oneof![
        16 => Just(Aim::Frontend),
        2 => Just(Aim::ClosedPort),
        1 => Just(Aim::OtherProtocol),
        1 => Just(Aim::NodePort),
        1 => Just(Aim::Anywhere),
    ];
    (0..12_usize, aim, any::<Index>(), any::<Index>(), select(options.protocols))
        .prop_map(|(who, aim, which, detail, protocol)| QuestionDraft { who, aim, which, detail, protocol })
}

/// Returns the addresses, protocols and ports at which clients reach the drawn Services.
fn frontends(estate: &Estate) -> Vec<(IpAddr, &ServicePort)> {
    let mut found = Vec::new();
    for service in estate.services.values().filter(|service| !service.spec.disabled) {
        let cluster_ips = service.spec.cluster_addresses();
        let addresses: Vec<_> = cluster_ips
            .chain(service.load_balancer_ips.clone())
            .chain(service.spec.external_ips.clone())
            .collect();
        for port in &service.spec.ports {
            found.extend(addresses.iter().map(|address| (*address, port)));
            let own = [0, 1, 3, 7, 8, 10].map(|index| ip(NODE_ADDRESSES[index])).into_iter();
            let own = own.filter(|address| service.spec.ip_families.contains(&IpFamily::of(*address)));
            found.extend(own.filter(|_| port.node_port.is_some()).map(|address| (address, port)));
        }
    }
    found
}

impl QuestionDraft {
    fn resolve(&self, estate: &Estate, frontends: &[(IpAddr, &ServicePort)], family: IpFamily) -> Question {
        let nobody = outer(family, 20);
        let closed = select_of(&self.detail, &[80_u16, 81, 443, 7001, 7010, 8080, 2222]);
        let at = |(address, port): &(IpAddr, &ServicePort)| {
            let is_node = NODE_ADDRESSES.map(ip).contains(address);
            let number = match (is_node.then_some(port.node_port).flatten(), port.end_port) {
                (Some(node_port), _) => node_port.get(),
                (None, Some(_)) => select_of(&self.detail, &[7001_u16, 7005]),
                (None, None) => port.port.get(),
            };
            (*address, port.protocol, number)
        };
        let known = || (!frontends.is_empty()).then(|| at(self.which.get(frontends)));
        let (to, protocol, number) = match self.aim {
            Aim::Frontend => known().unwrap_or((nobody, self.protocol, 80)),
            Aim::ClosedPort => {
                let (to, ..) = known().unwrap_or((nobody, self.protocol, 80));
                (to, self.protocol, closed)
            }
            Aim::OtherProtocol => {
                let (to, _, number) = known().unwrap_or((nobody, self.protocol, 80));
                (to, self.protocol, number)
            }
            Aim::NodePort => {
                let of_family = |address: &IpAddr| IpFamily::of(*address) == family;
                let own: Vec<_> = NODE_ADDRESSES.map(ip).into_iter().filter(of_family).collect();
                (
                    *self.which.get(&own),
                    self.protocol,
                    select_of(&self.detail, &[30080_u16, 30081, 30090, 30099]),
                )
            }
            Aim::Anywhere => {
                let index = u8::try_from(self.which.index(estate.services.len() + 1)).unwrap();
                let number = select_of(&self.detail, &[80_u16, 81, 443, 7001]);
                (cluster_ip(family, index), self.protocol, number)
            }
        };
        let (from, source) = host(self.who, IpFamily::of(to));
        Question { from, source, to, protocol, port: number }
    }
}

/// Returns a host that opens a connection, and its source address.
fn host(who: usize, family: IpFamily) -> (&'static str, Option<IpAddr>) {
    let of_family = |texts: [&str; 2]| ip(texts[usize::from(family == IpFamily::V6)]);
    match who {
        0..5 => (HOSTS[who].0, Some(of_family(HOSTS[who].1))),
        5 | 6 => ("node", None),
        _ => ("client", Some(of_family(CLIENTS[who % 3]))),
    }
}

fn select_of(index: &Index, list: &[u16]) -> u16 {
    *index.get(list)
}

fn cluster_ip(family: IpFamily, number: u8) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::from([10, 96, 0, 10 + number]),
        IpFamily::V6 => ip(&format!("fd96::{:x}", 0x10 + number)),
    }
}

fn outer(family: IpFamily, number: u8) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::from([198, 18, 0, 10 + number]),
        IpFamily::V6 => ip(&format!("2001:db8:18::{:x}", 0x10 + number)),
    }
}

//! Properties of packet programs, checked by the oracle (the interpreter of programs) for random Services, nodes
//! and connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        resource::ServiceKey,
        service::{Protocol, SourceRangesScope, TrafficDistribution, TrafficPolicy},
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, Weight},
    },
    program::{
        Destination, Frontend, NodeLocation, Program, Role, Route,
        oracle::{Connection, Fate, Networks, fate},
        program,
    },
};
use proptest::{prelude::*, sample::select};

const WORKLOAD_NET: [&str; 2] = ["10.1.0.0/16", "fd00:1::/64"];
/// IPv4 and IPv6 address of the node. The source ranges of Services in the tests contain the addresses
/// `ALLOWED` and not `STRANGER`.
const NODE: [&str; 2] = ["172.17.8.101", "fd00:17::101"];
const ALLOWED: [&str; 2] = ["198.51.100.9", "2001:db8:51::9"];
const STRANGER: [&str; 2] = ["203.0.113.9", "2001:db8:113::9"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn node(number: u8) -> Name {
    Name::parse(&format!("n{number}")).unwrap()
}

fn an_endpoint() -> impl Strategy<Value = CompiledEndpoint> {
    let at = (any::<bool>(), 1_u8..6, prop::option::of(1_u8..4), prop::option::of(select(vec!["a", "b"])));
    // Common combinations of ready, serving and terminating, and a contradictory one.
    let states = [
        (true, true, false),
        (false, true, true),
        (false, true, true),
        (false, false, true),
        (true, false, true),
    ];
    (at, 0_u16..3, select(states.to_vec())).prop_map(
        |((is_v6, host, on, zone), weight, (ready, serving, terminating))| CompiledEndpoint {
            address: if is_v6 { ip(&format!("fd00:1::{host}")) } else { ip(&format!("10.1.0.{host}")) },
            port: port(8080),
            node: on.map(node),
            zone: zone.map(|zone| Label::parse(zone).unwrap()),
            weight: Weight(weight),
            ready,
            serving,
            terminating,
            maintenance: None,
            node_lost: false,
            checked_by_source: false,
        },
    )
}

/// Generates the ports of a Service: TCP port 80 with a node port, a UDP port range, both, or neither.
fn ports() -> impl Strategy<Value = Vec<CompiledPort>> {
    let endpoints = || prop::collection::vec(an_endpoint(), 0..6);
    (endpoints(), endpoints(), any::<bool>(), any::<bool>()).prop_map(
        |(single, range, has_single, has_range)| {
            let of = |protocol, first, last, node_port, endpoints: Vec<CompiledEndpoint>| {
                let by_address: BTreeMap<_, _> =
                    endpoints.into_iter().map(|one| (one.address, one)).collect();
                let endpoints = by_address.into_values().collect();
                CompiledPort { name: None, protocol, port: port(first), end_port: last, node_port, endpoints }
            };
            let single = of(Protocol::Tcp, 80, None, Some(port(30080)), single);
            let range = of(Protocol::Udp, 100, Some(port(200)), None, range);
            [(has_single, single), (has_range, range)]
                .into_iter()
                .filter_map(|(is_there, port)| is_there.then_some(port))
                .collect()
        },
    )
}

fn a_service() -> impl Strategy<Value = CompiledService> {
    let policy = || select(vec![TrafficPolicy::Cluster, TrafficPolicy::Local]);
    let near = select(vec![TrafficDistribution::PreferSameZone, TrafficDistribution::PreferSameNode]);
    let scope = select(vec![SourceRangesScope::AllExternal, SourceRangesScope::LoadBalancerOnly]);
    (ports(), policy(), policy(), prop::option::of(near), (0_usize..=2, scope), any::<bool>()).prop_map(
        |(ports, external, internal, near, (ranges_count, source_ranges_scope), is_v4_only)| {
            let both = |v4: &str, v6: &str| {
                let all = [ip(v4), ip(v6)];
                if is_v4_only { all[..1].to_vec() } else { all.to_vec() }
            };
            let ranges = ["198.51.100.0/24", "2001:db8:51::/48"].map(|range| range.parse().unwrap());
            CompiledService {
                cluster_ips: both("10.96.0.10", "fd00:96::10"),
                ip_families: if is_v4_only { vec![IpFamily::V4] } else { IpFamily::ALL.to_vec() },
                external_ips: both("192.0.2.9", "2001:db8:e::9"),
                load_balancer_ips: both("192.0.2.7", "2001:db8:e::7"),
                source_ranges: ranges.into_iter().take(ranges_count).collect(),
                source_ranges_scope,
                ports,
                external_traffic_policy: external,
                internal_traffic_policy: internal,
                traffic_distribution: near,
                ..CompiledService::new(ServiceKey::try_from("default/web".to_owned()).unwrap())
            }
        },
    )
}

fn a_place() -> impl Strategy<Value = NodeLocation> {
    (1_u8..4, prop::option::of(select(vec!["a", "b"]))).prop_map(|(on, zone)| NodeLocation {
        node: node(on),
        zone: zone.map(|zone| Label::parse(zone).unwrap()),
    })
}

/// Returns the networks that packet rules distinguish. They contain no workload network if `is_known` is
/// false.
fn networks(is_known: bool) -> Networks {
    if !is_known {
        return Networks::default();
    }
    Networks {
        workloads: WORKLOAD_NET.map(|net| net.parse().unwrap()).into(),
        // Sufficient for the sources of these tests, none of which lies in both.
        masquerade_sources: [
            "172.16.0.0/12",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "2000::/3",
            "fd00:17::/64",
        ]
        .map(|net| net.parse().unwrap())
        .into(),
        ..Networks::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Workload,
    Node,
    Elsewhere,
}

/// Returns source addresses of an IP family with their classes: at least one in every class, and the
/// addresses of all workloads that may be targets.
fn sources(family: IpFamily) -> Vec<(IpAddr, Class)> {
    let of_family = |texts: [&str; 2]| ip(texts[usize::from(family == IpFamily::V6)]);
    let workloads = (1..8).map(|host| match family {
        IpFamily::V4 => (ip(&format!("10.1.0.{host}")), Class::Workload),
        IpFamily::V6 => (ip(&format!("fd00:1::{host}")), Class::Workload),
    });
    let others = [(NODE, Class::Node), (ALLOWED, Class::Elsewhere), (STRANGER, Class::Elsewhere)]
        .map(|(text, class)| (of_family(text), class));
    workloads.chain(others).collect()
}

fn connection(frontend: &Frontend, at: Port, source: IpAddr, class: Class) -> Connection {
    let (destination, is_node_address) = match frontend.destination {
        Destination::Address(address) => (address, false),
        Destination::AnyLocal(IpFamily::V4) => (ip(NODE[0]), true),
        Destination::AnyLocal(IpFamily::V6) => (ip(NODE[1]), true),
    };
    let (protocol, is_from_node) = (frontend.protocol, class == Class::Node);
    Connection { source, is_from_node, destination, is_node_address, protocol, port: at }
}

fn ask(program: &Program, networks: &Networks, connection: &Connection) -> Fate {
    fate(std::iter::once(program), networks, connection)
}

/// Returns the oracle's result for each combination of a frontend and a source address.
fn every_fate<'a>(
    program: &'a Program,
    networks: &'a Networks,
) -> impl Iterator<Item = (&'a Frontend, &'a Route, (IpAddr, Class), Fate)> {
    program.frontends.iter().flat_map(move |(frontend, route)| {
        sources(frontend.destination.family()).into_iter().map(move |(source, class)| {
            let fate = ask(program, networks, &connection(frontend, frontend.ports.first(), source, class));
            (frontend, route, (source, class), fate)
        })
    })
}

fn port_of<'a>(service: &'a CompiledService, frontend: &Frontend) -> &'a CompiledPort {
    service.ports.iter().find(|port| port.protocol == frontend.protocol).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For every frontend and source, the oracle returns a result, and frontends do not overlap. Connections
    /// to other ports of the Service's virtual addresses are rejected, and all other packets pass unchanged.
    #[test]
    fn every_packet_to_a_frontend_has_exactly_one_result_and_others_have_none(service in a_service(), place in a_place(), known in any::<bool>()) {
        let program = program(&service, &place).unwrap();
        let networks = networks(known);
        for (frontend, _, _, fate) in every_fate(&program, &networks) {
            prop_assert!(fate != Fate::Untouched, "{frontend:?}");
        }
        let frontends: Vec<_> = program.frontends.keys().collect();
        for (index, one) in frontends.iter().enumerate() {
            let overlaps = |other: &&&Frontend| {
                (one.destination, one.protocol) == (other.destination, other.protocol) && one.ports.overlaps(other.ports)
            };
            prop_assert_eq!(frontends[..index].iter().find(overlaps), None);
        }
        for address in service.cluster_ips.iter().chain(&service.load_balancer_ips).chain(&service.external_ips) {
            let undefined = Frontend { destination: Destination::Address(*address), protocol: Protocol::Sctp, ports: port(80).into() };
            let fate = ask(&program, &networks, &connection(&undefined, port(80), ip("10.1.0.1"), Class::Workload));
            let expected = if service.external_ips.contains(address) { Fate::Untouched } else { Fate::Reject };
            prop_assert_eq!(fate, expected, "{}", address);
        }
    }

    /// All targets are endpoints of the port and IP family, have a weight above 0, and are ready or, if none is
    /// ready, terminating and still serving. A port range keeps the destination port of the client.
    #[test]
    fn targets_are_usable_endpoints_of_the_port(service in a_service(), place in a_place(), known in any::<bool>()) {
        let program = program(&service, &place).unwrap();
        for (frontend, _, _, fate) in every_fate(&program, &networks(known)) {
            let Fate::Forward { targets, .. } = fate else { continue };
            let of_port = port_of(&service, frontend);
            let endpoints = targets.keys().map(|(address, _)| {
                of_port.endpoints.iter().find(|endpoint| endpoint.address == *address).unwrap()
            });
            let endpoints: Vec<_> = endpoints.collect();
            prop_assert!(!endpoints.is_empty());
            let are_ready = endpoints.iter().all(|endpoint| endpoint.ready);
            let are_leaving = endpoints.iter().all(|endpoint| !endpoint.ready && endpoint.serving && endpoint.terminating);
            prop_assert!(are_ready || are_leaving, "{endpoints:?}");
            for (endpoint, ((address, at), weight)) in endpoints.iter().zip(&targets) {
                prop_assert!(endpoint.weight.0 > 0 && endpoint.weight == *weight);
                prop_assert_eq!(IpFamily::of(*address), frontend.destination.family());
                prop_assert_eq!(*at, if of_port.end_port.is_some() { frontend.ports.first() } else { endpoint.port });
            }
        }
    }

    /// With external traffic policy Local, connections from outside of the cluster never reach an endpoint of
    /// another node, and keep their source address. With policy Cluster, they are masqueraded, so that
    /// replies return through this node.
    #[test]
    fn the_external_policy_determines_targets_and_masquerading_of_outside_sources(service in a_service(), place in a_place(), known in any::<bool>()) {
        let program = program(&service, &place).unwrap();
        for (frontend, route, (_, class), fate) in every_fate(&program, &networks(known)) {
            if route.role == Role::ClusterIp || class != Class::Elsewhere {
                continue;
            }
            let Fate::Forward { targets, is_masqueraded, .. } = fate else { continue };
            let is_local = service.external_traffic_policy == TrafficPolicy::Local;
            prop_assert_eq!(is_masqueraded, !is_local);
            let of_port = port_of(&service, frontend);
            let is_here = |address: &IpAddr| {
                of_port.endpoints.iter().any(|one| one.address == *address && one.node.as_ref() == Some(&place.node))
            };
            prop_assert!(!is_local || targets.keys().all(|(address, _)| is_here(address)), "{targets:?}");
        }
    }

    /// Sources inside of the cluster reach all endpoints, unless the internal policy restricts them to those of
    /// the node.
    #[test]
    fn sources_in_the_cluster_reach_any_endpoint_of_an_outside_frontend(service in a_service(), place in a_place()) {
        let program = program(&service, &place).unwrap();
        for (frontend, route, (_, class), fate) in every_fate(&program, &networks(true)) {
            let is_free = service.source_ranges.is_empty() || class == Class::Node;
            if route.role == Role::ClusterIp || class == Class::Elsewhere || !is_free {
                continue;
            }
            let of_port = port_of(&service, frontend);
            let has_endpoint = of_port.endpoints.iter().any(|one| {
                let serves = one.ready || (one.serving && one.terminating);
                one.weight.0 > 0 && serves && IpFamily::of(one.address) == frontend.destination.family()
            });
            prop_assert_eq!(matches!(fate, Fate::Forward { .. }), has_endpoint, "{:?} {:?}", frontend, fate);
        }
    }

    /// Source ranges drop connections from other sources at every frontend except the cluster IP or, with scope
    /// LoadBalancerOnly, at load balancer addresses of the families with ranges only. The node itself is always
    /// allowed. All other connections are treated as without ranges.
    #[test]
    fn source_ranges_restrict_the_frontends_of_their_scope(service in a_service(), place in a_place(), known in any::<bool>()) {
        let restricted = program(&service, &place).unwrap();
        let open = program(&CompiledService { source_ranges: BTreeSet::new(), ..service.clone() }, &place).unwrap();
        let networks = networks(known);
        let both = every_fate(&restricted, &networks).zip(every_fate(&open, &networks));
        for ((_, route, (source, class), fate), (.., without_ranges)) in both {
            let ranges = &service.source_ranges;
            let has_family = ranges.iter().any(|range| IpFamily::of_net(range) == IpFamily::of(source));
            let is_guarded = match (service.source_ranges_scope, route.role) {
                (_, Role::ClusterIp) => false,
                (SourceRangesScope::AllExternal, _) => !ranges.is_empty(),
                (SourceRangesScope::LoadBalancerOnly, role) => has_family && role == Role::LoadBalancer,
            };
            let is_named = class == Class::Node || ranges.iter().any(|range| range.contains(&source));
            let expected = if is_guarded && !is_named { Fate::Drop } else { without_ranges };
            prop_assert_eq!(fate, expected);
        }
    }

    /// The result depends only on the class of the source and on the source ranges: for two sources of one
    /// class, both inside or both outside the ranges, the result is the same. Connections of an endpoint to
    /// itself are an exception.
    #[test]
    fn the_result_depends_on_the_class_of_the_source_alone(service in a_service(), place in a_place()) {
        let program = program(&service, &place).unwrap();
        let without_hairpin = |fate: Fate| match fate {
            Fate::Forward { targets, is_masqueraded, .. } => Fate::Forward { targets, is_masqueraded, hairpins: BTreeSet::new() },
            other @ (Fate::Untouched | Fate::Reject | Fate::Drop | Fate::Relay(_)) => other,
        };
        let mut seen: Vec<(Frontend, Class, bool, Fate)> = Vec::new();
        for (frontend, _, (source, class), fate) in every_fate(&program, &networks(true)) {
            let is_named = service.source_ranges.iter().any(|range| range.contains(&source));
            let fate = without_hairpin(fate);
            let earlier = seen.iter().find(|one| (one.0, one.1, one.2) == (*frontend, class, is_named));
            prop_assert_eq!(earlier.map(|one| &one.3).unwrap_or(&fate), &fate);
            seen.push((*frontend, class, is_named, fate));
        }
    }

    /// If a connection of an endpoint on the node leads to the endpoint itself, the connection is masqueraded,
    /// because otherwise the reply would bypass the node.
    #[test]
    fn hairpin_connections_are_masqueraded(service in a_service(), place in a_place(), known in any::<bool>()) {
        let program = program(&service, &place).unwrap();
        for (frontend, _, (source, _), fate) in every_fate(&program, &networks(known)) {
            let Fate::Forward { targets, hairpins, .. } = fate else { continue };
            let endpoint = port_of(&service, frontend).endpoints.iter().find(|one| one.address == source);
            let is_here = endpoint.is_some_and(|one| one.node.as_ref().is_none_or(|on| *on == place.node));
            let is_target = targets.keys().any(|(address, _)| *address == source);
            if is_target && is_here {
                prop_assert_eq!(hairpins, BTreeSet::from([source]));
            }
        }
    }
}

//! Generator of random states (Services and networks) and of random connections between the hosts of the test
//! bed.

use std::net::IpAddr;

use model::{
    kinds::service::{
        Protocol::{self, Tcp, Udp},
        TrafficDistribution,
    },
    primitives::net::IpFamily,
    wire::feed::NodeState,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::testbed::{
    Ask, Build, Spot,
    hosts::{DAEMON_PORT, WORKLOAD_NETWORKS, client_address},
    judge::{Expected, Seen},
};

/// Generated state with the connections to make.
#[derive(Debug, Clone)]
pub struct Drawn {
    pub node: NodeState,
    pub workloads: Vec<&'static str>,
    pub services: Vec<Build>,
    pub asks: Vec<Ask>,
}

const SERVICES_MAX: u8 = 4;
const SOURCES: [&str; 6] = [
    "192.0.2.2/32",
    "192.0.2.0/28",
    "198.51.100.0/24",
    "10.1.0.0/16",
    "2001:db8::2/127",
    "2001:db8:100::/64",
];

pub fn state(family: IpFamily, connections: usize) -> impl Strategy<Value = Drawn> {
    let services = vec(service(), 1..=usize::from(SERVICES_MAX));
    (networks(), services, vec(ask(family), connections)).prop_map(
        move |((node, workloads), services, asks)| {
            let services: Vec<_> =
                services.iter().zip(0..).map(|(drawn, number)| drawn.build(family, number)).collect();
            Drawn { node, workloads, services, asks }
        },
    )
}

/// Returns true if a connection can be checked: its client can observe the expected result, and the result
/// does not depend on other nodes.
pub fn is_sound(ask: Ask, expected: &Expected) -> bool {
    match expected {
        // A workload of another node reaches itself through that node.
        Expected::Answer(targets) => {
            let own = ask.from.address(IpFamily::of(ask.to));
            !targets.iter().any(|((address, _), seen)| *address == own && *seen == Seen::Client)
        }
        Expected::Daemon | Expected::Refused | Expected::Silence | Expected::Nobody => true,
    }
}

fn networks() -> impl Strategy<Value = (NodeState, Vec<&'static str>)> {
    let some = vec!["10.1.0.0/16", "fd01::/16"];
    let workloads = prop_oneof![
        6 => Just(WORKLOAD_NETWORKS.to_vec()),
        1 => Just(some),
        1 => Just(Vec::new()),
    ];
    (any::<bool>(), any::<bool>(), 0..6_u8, workloads).prop_map(|(narrow, _, all, workloads)| {
        let mut node = NodeState::default();
        node.proxy.masquerade_all = all == 0;
        if narrow && all == 1 {
            let chosen = ["192.0.2.0/29", "2001:db8::/124"];
            node.proxy.node_port_addresses = chosen.iter().map(|net| net.parse().unwrap()).collect();
        }
        (node, workloads)
    })
}

/// Generated Service without its addresses, which are derived from the index of the Service.
#[derive(Debug, Clone)]
struct DrawnService {
    has_cluster_ip: bool,
    external: Option<u8>,
    balancer: Option<u8>,
    internal_local: bool,
    external_local: bool,
    near: Option<TrafficDistribution>,
    ranges: Vec<&'static str>,
    ports: Vec<DrawnPort>,
}

fn service() -> impl Strategy<Value = DrawnService> {
    let addresses = (prop::bool::weighted(0.9), option::of(0..3_u8), option::of(0..3_u8));
    let policies = (any::<bool>(), any::<bool>(), option::weighted(0.3, distribution()));
    let ranges = prop_oneof![3 => Just(Vec::new()), 1 => vec(select(&SOURCES[..]), 1..4)];
    (addresses, policies, ranges, vec(port(), 1..=3)).prop_map(|(addresses, policies, ranges, ports)| {
        let (has_cluster_ip, external, balancer) = addresses;
        let (internal_local, external_local, near) = policies;
        DrawnService {
            has_cluster_ip,
            external,
            balancer,
            internal_local,
            external_local,
            near,
            ranges,
            ports,
        }
    })
}

impl DrawnService {
    fn build(&self, family: IpFamily, number: u8) -> Build {
        let mut build = Build::new(&format!("s{number}"), family);
        if self.has_cluster_ip {
            build = build.cluster_ip(cluster_ip(family, number));
        }
        // A small range, so that Services conflict now and then.
        if let Some(which) = self.external {
            build = build.external_ip(outer(family, which));
        }
        if let Some(which) = self.balancer {
            build = build.load_balancer_ip(outer(family, 8 + which));
        }
        let mut taken = Vec::new();
        for port in &self.ports {
            if !taken.contains(&(port.protocol, port.number)) {
                taken.push((port.protocol, port.number));
                build = port.add(build, family);
            }
        }
        build = if self.internal_local { build.internal_local() } else { build };
        build = if self.external_local { build.external_local() } else { build };
        build = self.near.into_iter().fold(build, Build::prefer);
        build.sources(&self.ranges)
    }
}

fn distribution() -> impl Strategy<Value = TrafficDistribution> {
    use TrafficDistribution::{PreferClose, PreferSameNode, PreferSameZone};
    prop_oneof![Just(PreferClose), Just(PreferSameZone), Just(PreferSameNode)]
}

#[derive(Debug, Clone)]
struct DrawnPort {
    protocol: Protocol,
    number: u16,
    end: Option<u16>,
    node_port: Option<u16>,
    target: u16,
    endpoints: Vec<(Spot, Condition, u16)>,
}

#[derive(Debug, Clone, Copy)]
enum Condition {
    Ready,
    NotReady,
    Terminating,
}

fn port() -> impl Strategy<Value = DrawnPort> {
    let protocol = prop_oneof![2 => Just(Tcp), 1 => Just(Udp)];
    let number = prop_oneof![4 => select(&[80_u16, 81, 443][..]).prop_map(|port| (port, None)), 1 => Just((7000, Some(7009)))];
    let condition = prop_oneof![
        5 => Just(Condition::Ready),
        1 => Just(Condition::NotReady),
        2 => Just(Condition::Terminating),
    ];
    let spots = prop::sample::subsequence(vec![Spot::A, Spot::B, Spot::C, Spot::D, Spot::E], 0..=4);
    let endpoints = spots.prop_flat_map(move |spots| {
        let length = spots.len();
        let weight = select(&[0_u16, 1, 1, 1, 2, 5][..]);
        (Just(spots), vec((condition.clone(), weight), length)).prop_map(|(spots, more)| {
            let one = |(spot, (condition, weight))| (spot, condition, weight);
            spots.into_iter().zip(more).map(one).collect::<Vec<_>>()
        })
    });
    let node_port = option::of(select(&[30080_u16, 30081, 30082][..]));
    let target = select(&[8080_u16, 8081, 9090][..]);
    (protocol, number, node_port, target, endpoints).prop_map(
        |(protocol, (number, end), node_port, target, endpoints)| {
            let node_port = node_port.filter(|_| end.is_none());
            DrawnPort { protocol, number, end, node_port, target, endpoints }
        },
    )
}

impl DrawnPort {
    fn add(&self, build: Build, family: IpFamily) -> Build {
        let spots: Vec<_> = self.endpoints.iter().map(|(spot, ..)| *spot).collect();
        let mut build = build.port_to(self.protocol, self.number, self.target, &spots);
        build = self.end.into_iter().fold(build, Build::to);
        build = self.node_port.into_iter().fold(build, Build::node_port);
        let port = build.service.ports.last_mut().unwrap();
        for (spot, condition, weight) in &self.endpoints {
            let address = spot.address(family);
            let mut of_spot = port.endpoints.iter_mut().filter(|endpoint| endpoint.address == address);
            let endpoint = of_spot.next().expect("every spot has an endpoint");
            endpoint.weight.0 = *weight;
            endpoint.ready = matches!(condition, Condition::Ready);
            endpoint.serving = !matches!(condition, Condition::NotReady);
            endpoint.terminating = matches!(condition, Condition::Terminating);
        }
        build
    }
}

fn ask(family: IpFamily) -> impl Strategy<Value = Ask> {
    let who = prop_oneof![
        2 => (0..3_usize).prop_map(move |number| (Spot::Client, Some(client_address(family, number)))),
        1 => Just((Spot::Node, None)),
        2 => select(&Spot::WORKLOADS[..]).prop_map(move |spot| (spot, Some(spot.address(family)))),
    ];
    let service_port = select(&[80_u16, 80, 80, 81, 443, 7001, 7005, 7010, 8080, DAEMON_PORT][..]);
    let at_service = (
        prop_oneof![
            4 => (0..SERVICES_MAX).prop_map(move |number| cluster_ip(family, number)),
            3 => (0..3_u8).prop_map(move |which| outer(family, which)),
            3 => (0..3_u8).prop_map(move |which| outer(family, 8 + which)),
        ],
        service_port,
    );
    let at_node = (0..3_usize).prop_map(move |which| {
        let list = match family {
            IpFamily::V4 => ["192.0.2.1", "192.0.2.11", "10.1.2.1"],
            IpFamily::V6 => ["2001:db8::1", "2001:db8::11", "fd01:2::1"],
        };
        list[which].parse().unwrap()
    });
    let at_node = (at_node, select(&[30080_u16, 30081, 30082, 30083][..]));
    let to = prop_oneof![3 => at_service, 1 => at_node];
    (who, to, prop_oneof![2 => Just(Tcp), 1 => Just(Udp)])
        .prop_map(|((from, source), (to, port), protocol)| Ask { from, source, to, protocol, port })
}

fn cluster_ip(family: IpFamily, number: u8) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::from([10, 96, 0, 10 + number]),
        IpFamily::V6 => format!("fd96::{:x}", 0x10 + number).parse().unwrap(),
    }
}

fn outer(family: IpFamily, number: u8) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::from([198, 18, 0, 10 + number]),
        IpFamily::V6 => format!("2001:db8:18::{:x}", 0x10 + number).parse().unwrap(),
    }
}

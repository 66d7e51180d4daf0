//! Conformance scenarios of node ports, external addresses, load balancer addresses and source ranges.

use model::{primitives::net::IpFamily, wire::feed::NodeState};
use node_agent::dataplane::Outcome;

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Spot,
    Spot::{A, B, C, Client, D, E, Node},
    hosts::{WORKLOAD_NETWORKS, client_address},
    node::{
        BOTH,
        Claim::{Mask, Reach, Refused, Silence},
        TCP, UDP,
    },
};

const EVERYBODY: &[Spot] = &[Client, Node, C, D];

pub const SCENARIOS: &[Scenario] = &[
    scenario("A node port serves at every address of the node", "F035 F043 F044 F098", node_port)
        .stands_for("S10 N15"),
    scenario("A node port serves when the node has no endpoint of its own", "F035", node_port_elsewhere)
        .stands_for("S10"),
    scenario("A node port that is not defined is left to the node", "F035", node_port_undefined)
        .stands_for("S19"),
    scenario("A node port is not open at loopback addresses or at virtual ones", "F035", node_port_loopback),
    scenario("Node ports answer only at the chosen addresses", "F035", node_port_addresses),
    scenario("The number of a node port can change", "F043", node_port_number).stands_for("N13 N14"),
    scenario("One node port number serves different Services over TCP and UDP", "F045", node_port_protocols)
        .stands_for("S12"),
    scenario("A Service can change its type and back", "F030 F035", types).stands_for("S13 S14 S15 S16"),
    scenario("A node port without endpoints refuses", "F035", node_port_empty),
    scenario("An external IP that no node has is served", "F040", external_ip).stands_for("S11"),
    scenario("An external IP without endpoints refuses", "F040", external_ip_empty),
    scenario("A load balancer address serves clients outside, workloads and the node", "F051", load_balancer)
        .stands_for("L11 L14"),
    scenario("A load balancer address needs no node port and can get one", "F051", load_balancer_node_port)
        .stands_for("L9"),
    scenario("A load balancer Service changes type and ports over TCP", "F051", |b| change(b, TCP))
        .stands_for("L1"),
    scenario("A load balancer Service changes type and ports over UDP", "F051", |b| change(b, UDP))
        .stands_for("L2"),
    scenario(
        "A load balancer address serves both protocols at one port for workloads",
        "F045",
        both_protocols,
    )
    .stands_for("S46"),
    scenario("An undefined port of a load balancer address is refused", "F032", load_balancer_undefined),
    scenario("Source ranges admit and drop at a load balancer address", "F049 F097", ranges_load_balancer)
        .stands_for("L3"),
    scenario("Source ranges admit and drop at an external IP", "F049", ranges_external_ip),
    scenario("Source ranges admit and drop at a node port", "F049", ranges_node_port),
    scenario("Source ranges leave the cluster IP open", "F049", ranges_cluster_ip),
    scenario("Source ranges can change while a client is outside", "F049", ranges_change).stands_for("L3"),
    scenario(
        "Source ranges of scope LoadBalancerOnly leave other entries and other families open",
        "F049 F097",
        ranges_load_balancer_only,
    )
    .stands_for("L3"),
    scenario("A range of everything restricts nobody", "F049", ranges_everything),
    scenario("Of two Services at one frontend the first has it and the other fails", "F034", collision)
        .stands_for("S17"),
];

fn node_port(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A, B]).node_port(30080).udp(80, &[A, B]).node_port(30080);
    b.set(&[&web]);
    for address in b.node_addresses() {
        b.expect(EVERYBODY, BOTH, address, 30080, Mask(&[A, B]));
    }
}

fn node_port_elsewhere(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[D, E]).node_port(30080);
    b.set(&[&web]);
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[D, E]));
}

fn node_port_undefined(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A]).node_port(30080);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.node_address(), 30081, Refused);
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Refused);
    b.expect(EVERYBODY, UDP, b.node_address(), 30080, Mask(&[A]));
    b.remove(&web);
    b.expect(EVERYBODY, BOTH, b.node_address(), 30080, Refused);
}

fn node_port_loopback(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]).node_port(30080);
    b.set(&[&web]);
    let loopback = if b.node_address().is_ipv4() { "127.0.0.1" } else { "::1" };
    b.expect(&[Node], TCP, loopback.parse().unwrap(), 30080, Refused);
    for address in [b.vip(1), b.outer(1)] {
        b.expect(EVERYBODY, TCP, address, 30080, Refused);
    }
    b.expect(&[Client], TCP, A.address(b.family), 30080, Refused);
}

fn node_port_addresses(b: &mut Bench) {
    let mut node = NodeState::default();
    node.proxy.node_port_addresses =
        ["192.0.2.0/29", "2001:db8::/124"].iter().map(|net| net.parse().unwrap()).collect();
    b.networks(&node, &WORKLOAD_NETWORKS);
    let web = b.service("web", 1).tcp(80, &[A, B]).node_port(30080).udp(80, &[A]).node_port(30080);
    b.set(&[&web]);
    let [inside, second, wire] = b.node_addresses();
    b.expect(EVERYBODY, TCP, inside, 30080, Mask(&[A, B]));
    b.expect(EVERYBODY, UDP, inside, 30080, Mask(&[A]));
    for address in [second, wire] {
        b.expect(EVERYBODY, BOTH, address, 30080, Refused);
    }
}

fn node_port_number(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A]).node_port(30080).udp(80, &[A]).node_port(30080);
    b.set(&[&web]);
    b.expect(&[Client, D], BOTH, b.node_address(), 30080, Mask(&[A]));
    let web = b.service("web", 1).tcp(80, &[A]).node_port(30090).udp(80, &[A]).node_port(30090);
    b.set(&[&web]);
    b.expect(&[Client, D], BOTH, b.node_address(), 30080, Refused);
    b.expect(&[Client, D], BOTH, b.node_address(), 30090, Mask(&[A]));
}

fn node_port_protocols(b: &mut Bench) {
    let tcp = b.service("tcp", 1).tcp(80, &[A]).node_port(30080);
    let udp = b.service("udp", 2).udp(80, &[B]).node_port(30080);
    b.set(&[&tcp, &udp]);
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[A]));
    b.expect(EVERYBODY, UDP, b.node_address(), 30080, Mask(&[B]));
    b.remove(&udp);
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[A]));
    b.expect(EVERYBODY, UDP, b.node_address(), 30080, Refused);
}

fn types(b: &mut Bench) {
    let name_only = b.bare("web");
    let cluster_ip = b.service("web", 1).tcp(80, &[A]);
    let node_port = cluster_ip.clone().node_port(30080);
    b.set(&[&name_only]);
    b.expect(&[Client, C], TCP, b.vip(1), 80, Silence);
    for build in [&cluster_ip, &node_port, &cluster_ip, &name_only, &node_port, &name_only] {
        b.set(&[build]);
        let at_node = if build.service.ports.iter().any(|port| port.node_port.is_some()) {
            Mask(&[A])
        } else {
            Refused
        };
        let at_vip = if build.service.cluster_ips.is_empty() { Silence } else { Reach(&[A]) };
        b.expect(&[Client, C], TCP, b.vip(1), 80, at_vip);
        b.expect(&[Client, C], TCP, b.node_address(), 30080, at_node);
    }
}

fn node_port_empty(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[]).node_port(30080).udp(80, &[]).node_port(30080);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.node_address(), 30080, Refused);
}

fn external_ip(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, D]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.outer(1), 80, Mask(&[A, D]));
}

fn external_ip_empty(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.outer(1), 80, Refused);
}

fn load_balancer(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).both(80, &[A, D]);
    b.set(&[&web]);
    b.expect(&[Client, Node, B, C, E], BOTH, b.outer(1), 80, Mask(&[A, D]));
}

fn load_balancer_node_port(b: &mut Bench) {
    let bare = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]);
    b.set(&[&bare]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Mask(&[A]));
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Refused);
    let with = bare.clone().node_port(30080);
    b.set(&[&with]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Mask(&[A]));
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[A]));
}

fn change(b: &mut Bench, over: &[model::kinds::service::Protocol]) {
    let protocol = over[0];
    let from = &[Client, C];
    let cluster_ip = b.service("web", 1).port(protocol, 80, &[A]);
    let node_port = cluster_ip.clone().node_port(30080);
    let balanced = node_port.clone().load_balancer_ip(b.outer(1));
    let moved = b.service("web", 1).load_balancer_ip(b.outer(1)).port(protocol, 81, &[A]).node_port(30081);
    for build in [&cluster_ip, &node_port, &balanced] {
        b.set(&[build]);
    }
    b.expect(from, over, b.outer(1), 80, Mask(&[A]));
    b.expect(from, over, b.node_address(), 30080, Mask(&[A]));
    b.set(&[&moved]);
    b.expect(from, over, b.outer(1), 81, Mask(&[A]));
    b.expect(from, over, b.outer(1), 80, Refused);
    b.expect(from, over, b.node_address(), 30080, Refused);
    b.expect(from, over, b.node_address(), 30081, Mask(&[A]));
    b.set(&[&cluster_ip]);
    b.expect(from, over, b.outer(1), 81, Silence);
    b.expect(from, over, b.node_address(), 30081, Refused);
    b.expect(from, over, b.vip(1), 80, Reach(&[A]));
}

fn both_protocols(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]).udp(80, &[B]);
    b.set(&[&web]);
    for address in [b.vip(1), b.outer(1)] {
        b.expect(&[Client, C, Node], TCP, address, 80, Reach(&[A]));
        b.expect(&[Client, C, Node], UDP, address, 80, Reach(&[B]));
    }
}

fn load_balancer_undefined(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.outer(1), 8080, Refused);
    b.expect(EVERYBODY, UDP, b.outer(1), 80, Refused);
}

/// Source ranges that contain the client's first address and its address in another network, but not its
/// second address.
const RANGES: &[&str] = &["192.0.2.2/32", "198.51.100.0/24", "2001:db8::2/128", "2001:db8:100::/64"];

fn inside_and_outside(b: &mut Bench, to: std::net::IpAddr, port: u16) {
    let [first, second, third] = [0, 1, 2].map(|number| client_address(b.family, number));
    b.expect_from(&[first, third], to, port, Mask(&[A, B]));
    b.expect_from(&[second], to, port, Silence);
    b.expect(&[C, D], TCP, to, port, Silence);
    b.expect(&[Node], TCP, to, port, Mask(&[A, B]));
}

fn ranges_load_balancer(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, B]).sources(RANGES);
    b.set(&[&web]);
    inside_and_outside(b, b.outer(1), 80);
}

fn ranges_external_ip(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).tcp(80, &[A, B]).sources(RANGES);
    b.set(&[&web]);
    inside_and_outside(b, b.outer(1), 80);
}

fn ranges_node_port(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A, B]).node_port(30080).sources(RANGES);
    b.set(&[&web]);
    inside_and_outside(b, b.node_address(), 30080);
}

fn ranges_cluster_ip(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).both(80, &[A, B]).sources(RANGES);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect_from(&[client_address(b.family, 1)], b.vip(1), 80, Mask(&[A, B]));
}

fn ranges_change(b: &mut Bench) {
    let open = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, B]);
    let second = client_address(b.family, 1);
    b.set(&[&open]);
    b.expect_from(&[second], b.outer(1), 80, Mask(&[A, B]));
    b.set(&[&open.clone().sources(RANGES)]);
    b.expect_from(&[second], b.outer(1), 80, Silence);
    let wider = [RANGES, &["192.0.2.3/32", "2001:db8::3/128"]].concat();
    b.set(&[&open.clone().sources(&wider)]);
    b.expect_from(&[second], b.outer(1), 80, Mask(&[A, B]));
    b.set(&[&open]);
    b.expect(&[Client, C, D], TCP, b.outer(1), 80, Mask(&[A, B]));
}

/// The behavior of kube-proxy: node ports, external IPs and the addresses of a family without ranges stay open. The
/// scope can change while clients connect.
fn ranges_load_balancer_only(b: &mut Bench) {
    let open = b
        .service("web", 1)
        .load_balancer_ip(b.outer(1))
        .external_ip(b.outer(2))
        .tcp(80, &[A, B])
        .node_port(30080);
    let other_family = match b.family {
        IpFamily::V4 => "2001:db8::2/128",
        IpFamily::V6 => "192.0.2.2/32",
    };
    let ranges = open.clone().sources(RANGES);
    let outside = client_address(b.family, 1);
    for _ in 0..2 {
        b.set(&[&ranges.clone().load_balancer_only()]);
        inside_and_outside(b, b.outer(1), 80);
        for (address, port) in [(b.outer(2), 80), (b.node_address(), 30080)] {
            b.expect_from(&[outside], address, port, Mask(&[A, B]));
            b.expect(&[C, D], TCP, address, port, Mask(&[A, B]));
        }
        b.set(&[&ranges]);
        for (address, port) in [(b.outer(1), 80), (b.outer(2), 80), (b.node_address(), 30080)] {
            b.expect_from(&[outside], address, port, Silence);
        }
    }
    b.set(&[&open.clone().sources(&[other_family]).load_balancer_only()]);
    for (address, port) in [(b.outer(1), 80), (b.outer(2), 80), (b.node_address(), 30080)] {
        b.expect(&[Client, C, D, Node], TCP, address, port, Mask(&[A, B]));
    }
    b.set(&[&open.sources(&[other_family])]);
    for (address, port) in [(b.outer(1), 80), (b.outer(2), 80), (b.node_address(), 30080)] {
        b.expect(&[Client, C, D], TCP, address, port, Silence);
    }
}

fn ranges_everything(b: &mut Bench) {
    let ranges = &["203.0.113.0/24", "0.0.0.0/0", "2001:db8:3::/64", "::/0"];
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, B]).sources(ranges);
    b.set(&[&web]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Mask(&[A, B]));
    let outside = &["203.0.113.0/24", "2001:db8:3::/64"];
    b.set(&[&b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, B]).sources(outside)]);
    b.expect(&[Client, C, D], TCP, b.outer(1), 80, Silence);
}

fn collision(b: &mut Bench) {
    let first = b.service("a-first", 1).tcp(80, &[A]).node_port(30080);
    let second = b.service("b-second", 2).tcp(80, &[B]).node_port(30080);
    b.set(&[&first]);
    let pass = b.try_set(&[&second]);
    assert!(
        matches!(pass.outcomes.get(&second.key()), Some(Outcome::Failed { .. })),
        "the second one fails with a reason: {pass:?}"
    );
    b.expect(&[Client, C], TCP, b.node_address(), 30080, Mask(&[A]));
    b.expect(&[Client, C], TCP, b.vip(1), 80, Reach(&[A]));
    b.remove(&first);
    let pass = b.try_set(&[&second]);
    assert_eq!(pass.outcomes.get(&second.key()), Some(&Outcome::Verified));
    b.expect(&[Client, C], TCP, b.node_address(), 30080, Mask(&[B]));
}

//! Conformance scenarios of traffic policies, of the fallback to terminating endpoints, and of the preference
//! for endpoints on the same node or in the same zone.

use model::kinds::service::TrafficDistribution::{PreferClose, PreferSameNode, PreferSameZone};

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Build, Spot,
    Spot::{A, B, C, Client, D, E, Node},
    node::{
        BOTH,
        Claim::{Keep, Mask, Reach, Refused, Silence},
        TCP,
    },
};

const EVERYBODY: &[Spot] = &[Client, Node, C, D];

pub const SCENARIOS: &[Scenario] = &[
    scenario("Internal policy Local keeps workloads to endpoints of the node", "F047", internal_local)
        .stands_for("S33"),
    scenario("Internal policy Local keeps the node itself to its endpoints", "F047", internal_local_node)
        .stands_for("S34"),
    scenario(
        "Internal policy Local reaches an endpoint in the node's own network",
        "F047",
        internal_local_host,
    )
    .stands_for("S35"),
    scenario("Internal policy Local without endpoints anywhere refuses", "F047", internal_local_empty),
    scenario("External policy Local at a node port keeps source and node", "F048", external_node_port)
        .stands_for("S36"),
    scenario(
        "External policy Local at a load balancer address keeps source and node",
        "F048",
        external_balancer,
    )
    .stands_for("L11 L12"),
    scenario("External policy Local at an external IP keeps source and node", "F048", external_ip),
    scenario("External policy Local drops where the node has no endpoint", "F048 F099", external_none_here)
        .stands_for("L12"),
    scenario("External policy Local serves workloads and the node from all endpoints", "F048", short_circuit)
        .stands_for("L14"),
    scenario(
        "External policy Local treats the workloads of other nodes as external",
        "F048",
        workloads_of_other_nodes,
    ),
    scenario("External policy Local without endpoints anywhere refuses", "F048", external_empty),
    scenario("External policy Cluster takes any node", "F048", external_cluster).stands_for("L13"),
    scenario("The external policy can change, with a node port or a balancer", "F048", external_changes)
        .stands_for("S48"),
    scenario("Source ranges and external policy Local hold together", "F048 F049", local_with_ranges),
    scenario("Internal traffic falls back to terminating endpoints", "F022", fallback_internal)
        .stands_for("S38"),
    scenario(
        "Internal Local traffic falls back to terminating endpoints here",
        "F022",
        fallback_internal_local,
    )
    .stands_for("S39"),
    scenario("External traffic falls back to terminating endpoints", "F022", fallback_external)
        .stands_for("S40"),
    scenario(
        "External Local traffic falls back to terminating endpoints here",
        "F022",
        fallback_external_local,
    )
    .stands_for("S41"),
    scenario("A ready endpoint anywhere comes before terminating ones", "F022", ready_first)
        .stands_for("S38"),
    scenario("Terminating endpoints that do not serve get nothing", "F022", terminating_dead)
        .stands_for("S22"),
    scenario("With only terminating endpoints the health check counts none", "F048", health_check)
        .stands_for("S37 S48"),
    scenario("PreferClose keeps traffic in the zone", "F041", |b| zone(b, PreferClose)).stands_for("T1 T2"),
    scenario("PreferSameZone keeps traffic in the zone", "F041", |b| zone(b, PreferSameZone))
        .stands_for("T3 T4"),
    scenario("PreferSameZone takes all endpoints when the zone has none", "F041", zone_empty)
        .stands_for("T3"),
    scenario("PreferSameNode keeps traffic on the node, then in the zone", "F041", same_node)
        .stands_for("T5 T6"),
];

fn internal_local(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]).internal_local();
    let far = b.service("far", 2).both(80, &[D, E]).internal_local();
    b.set(&[&web, &far]);
    b.expect(&[B, C], BOTH, b.vip(1), 80, Keep(&[A]));
    b.expect(&[B, C], BOTH, b.vip(2), 80, Silence);
}

fn internal_local_node(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]).internal_local();
    let far = b.service("far", 2).both(80, &[D, E]).internal_local();
    b.set(&[&web, &far]);
    b.expect(&[Node], BOTH, b.vip(1), 80, Reach(&[A]));
    b.expect(&[Node], BOTH, b.vip(2), 80, Silence);
}

fn internal_local_host(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[Node, D]).internal_local();
    b.set(&[&web]);
    b.expect(&[Node, A, B], BOTH, b.vip(1), 80, Reach(&[Node]));
}

fn internal_local_empty(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[]).internal_local();
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Refused);
}

fn external_node_port(b: &mut Bench) {
    let web = both_node_ports(b.service("web", 1), &[A, B, D]).external_local();
    b.set(&[&web]);
    for address in b.node_addresses() {
        b.expect(&[Client], BOTH, address, 30080, Keep(&[A, B]));
    }
}

fn both_node_ports(build: Build, spots: &[Spot]) -> Build {
    build.tcp(80, spots).node_port(30080).udp(80, spots).node_port(30080)
}

fn external_balancer(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).both(80, &[A, B, D]).external_local();
    b.set(&[&web]);
    b.expect(&[Client], BOTH, b.outer(1), 80, Keep(&[A, B]));
    b.expect(&[Client], BOTH, b.vip(1), 80, Mask(&[A, B, D]));
}

fn external_ip(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, D]).external_local();
    b.set(&[&web]);
    b.expect(&[Client], BOTH, b.outer(1), 80, Keep(&[A]));
}

fn external_none_here(b: &mut Bench) {
    let web = b
        .service("web", 1)
        .load_balancer_ip(b.outer(1))
        .external_ip(b.outer(2))
        .tcp(80, &[D, E])
        .node_port(30080)
        .external_local();
    b.set(&[&web]);
    for (address, port) in [(b.outer(1), 80), (b.outer(2), 80), (b.node_address(), 30080)] {
        b.expect(&[Client], TCP, address, port, Silence);
    }
    b.expect(&[Client], TCP, b.vip(1), 80, Mask(&[D, E]));
}

fn short_circuit(b: &mut Bench) {
    let web =
        b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, D]).node_port(30080).external_local();
    let far =
        b.service("far", 2).load_balancer_ip(b.outer(2)).tcp(80, &[D, E]).node_port(30081).external_local();
    b.set(&[&web, &far]);
    for (address, port, spots) in [
        (b.outer(1), 80, &[A, D]),
        (b.node_address(), 30080, &[A, D]),
        (b.outer(2), 80, &[D, E]),
        (b.node_address(), 30081, &[D, E]),
    ] {
        b.expect(&[B, C], TCP, address, port, Keep(spots));
        b.expect(&[Node], TCP, address, port, Reach(spots));
    }
}

/// A workload connects to another node. An endpoint on a third node would reply to it directly, with an address
/// that it has not connected to.
fn workloads_of_other_nodes(b: &mut Bench) {
    let web =
        b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, E]).node_port(30080).external_local();
    let far =
        b.service("far", 2).load_balancer_ip(b.outer(2)).tcp(80, &[E]).node_port(30081).external_local();
    b.hosts.connect(D, E);
    b.set(&[&web, &far]);
    for (address, port) in [(b.outer(1), 80), (b.node_address(), 30080)] {
        b.expect(&[D], TCP, address, port, Keep(&[A]));
    }
    for (address, port) in [(b.outer(2), 80), (b.node_address(), 30081)] {
        b.expect(&[D], TCP, address, port, Silence);
    }
    b.hosts.disconnect(D);
}

fn external_empty(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[]).node_port(30080).external_local();
    b.set(&[&web]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Refused);
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Refused);
}

fn external_cluster(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[D, E]).node_port(30080);
    b.set(&[&web]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Mask(&[D, E]));
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[D, E]));
}

fn external_changes(b: &mut Bench) {
    let cluster = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, D]).node_port(30080);
    let local = cluster.clone().external_local();
    for _ in 0..2 {
        b.set(&[&local]);
        b.expect(&[Client], TCP, b.outer(1), 80, Keep(&[A]));
        b.expect(&[Client], TCP, b.node_address(), 30080, Keep(&[A]));
        b.set(&[&cluster]);
        b.expect(&[Client], TCP, b.outer(1), 80, Mask(&[A, D]));
        b.expect(&[Client], TCP, b.node_address(), 30080, Mask(&[A, D]));
    }
}

fn local_with_ranges(b: &mut Bench) {
    let ranges = &["192.0.2.2/32", "2001:db8::2/128"];
    let web =
        b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, D]).external_local().sources(ranges);
    b.set(&[&web]);
    let [first, second, _] = [0, 1, 2].map(|number| crate::testbed::hosts::client_address(b.family, number));
    b.expect_from(&[first], b.outer(1), 80, Keep(&[A]));
    b.expect_from(&[second], b.outer(1), 80, Silence);
    b.expect(&[C], TCP, b.outer(1), 80, Silence);
    b.expect(&[Node], TCP, b.outer(1), 80, Reach(&[A, D]));
}

fn fallback_internal(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]).terminating(A).terminating(D);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, D]));
}

fn fallback_internal_local(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]).terminating(A).internal_local();
    b.set(&[&web]);
    b.expect(&[Node, B], BOTH, b.vip(1), 80, Reach(&[A]));
}

fn fallback_external(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, D]).node_port(30080);
    b.set(&[&web.terminating(A).terminating(D)]);
    b.expect(EVERYBODY, TCP, b.outer(1), 80, Mask(&[A, D]));
    b.expect(EVERYBODY, TCP, b.node_address(), 30080, Mask(&[A, D]));
}

fn fallback_external_local(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, D]).node_port(30080);
    b.set(&[&web.terminating(A).external_local()]);
    b.expect(&[Client], TCP, b.outer(1), 80, Keep(&[A]));
    b.expect(&[Client], TCP, b.node_address(), 30080, Keep(&[A]));
}

fn ready_first(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B, D]).terminating(A).terminating(B);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[D]));
}

fn terminating_dead(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B]).terminating(A).terminating(B);
    b.set(&[&web.at(B, |endpoint| endpoint.serving = false)]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
}

fn health_check(b: &mut Bench) {
    let mut web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A, B, D]).external_local();
    web.service.health_check_node_port = Some(crate::support::programs::port(30999));
    for (build, local_endpoints) in
        [(web.clone(), 2), (web.clone().terminating(A), 1), (web.terminating(A).terminating(B), 0)]
    {
        b.set(&[&build]);
        let program = &b.desired.programs[&build.key()].program;
        assert_eq!(program.health_check.unwrap().local_endpoints, local_endpoints);
        // Traffic continues meanwhile, so that an external load balancer has time to react.
        let asked = if local_endpoints == 1 { Keep(&[B]) } else { Keep(&[A, B]) };
        b.expect(&[Client], TCP, b.outer(1), 80, asked);
    }
}

fn zone(b: &mut Bench, preference: model::kinds::service::TrafficDistribution) {
    let web = b.service("web", 1).both(80, &[A, D, E]).prefer(preference);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, E]));
}

fn zone_empty(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D, E]).prefer(PreferSameZone);
    b.set(&[&web.clone().not_ready(A).not_ready(E)]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[D]));
    b.place.zone = Some(crate::testbed::say::label("z5"));
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, D, E]));
}

fn same_node(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D, E]).prefer(PreferSameNode);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
    b.set(&[&web.clone().not_ready(A)]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[E]));
    b.set(&[&web.clone().not_ready(A).not_ready(E)]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[D]));
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
}

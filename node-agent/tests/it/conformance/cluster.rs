//! Conformance scenarios of cluster IPs (virtual addresses inside the cluster).

use model::{
    kinds::service::Protocol::{Sctp, Tcp, Udp},
    primitives::net::IpFamily,
};

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Lane, Spot,
    Spot::{A, B, C, Client, D, E, Node},
    flow::{Datagrams, TRANSFER_BYTES, Transfer},
    hosts::DAEMON_PORT,
    node::{
        BOTH,
        Claim::{Keep, Mask, Reach, Refused, Silence},
        TCP, UDP,
    },
    servers::has_sctp,
};

/// Clients of every kind: an outside client, the node, a workload on the node, and a workload on another
/// node.
const EVERYBODY: &[Spot] = &[Client, Node, C, D];

pub const SCENARIOS: &[Scenario] = &[
    scenario("A cluster IP serves every kind of client over TCP and UDP", "F030 F041 F044", serves)
        .stands_for("S1 N1 N2 N4 N5 D11 D12"),
    scenario("Endpoints on other nodes are reached like those here", "F041", reaches_other_nodes)
        .stands_for("S1"),
    scenario("An endpoint reaches its own Service, and through it itself", "F096", hairpin)
        .stands_for("S5 N7 N8 D13"),
    scenario("Each of several ports has its own endpoints", "F042", multiport).stands_for("S2"),
    scenario("Ports of the Service can be added and removed", "F041", ports_change).stands_for("S3"),
    scenario("Workloads keep their source address through a cluster IP", "F092", workload_source)
        .stands_for("S4 X3"),
    scenario("Sources outside the workload networks are masqueraded", "F088 F090 F092", off_cluster),
    scenario("Networks of other workloads count as outside when only some are named", "F092", own_cidr),
    scenario("With masquerade-all every source is masqueraded", "F088", masquerade_all),
    scenario("Services come and go without harm to others", "F041", up_and_down).stands_for("S6"),
    scenario("A Service can be removed and made again", "F041", recreated).stands_for("S7"),
    scenario("Without endpoints a cluster IP refuses", "F032", no_endpoints).stands_for("S31 S32"),
    scenario("A port of a cluster IP that is not defined is refused", "F032", undefined_ports),
    scenario("A daemon of the node is not reached through a virtual address", "F032", host_daemon),
    scenario("Two protocols at one port are independent", "F045", protocols).stands_for("S45"),
    scenario("A named target port resolves on each endpoint for itself", "F042", named_ports)
        .stands_for("S49 S50 S51"),
    scenario("Several Services share their endpoints", "F041", shared_endpoints).stands_for("N10"),
    scenario("Large requests come back whole over TCP and UDP", "F041", large_requests)
        .stands_for("N16 N17 D19"),
    scenario("Endpoints in the node's own network serve", "F041", host_network).stands_for("N18 D20"),
    scenario("Addresses of several ranges serve", "F041", ranges).stands_for("K1"),
    scenario("Endpoints that are not ready get nothing", "F022", not_ready).stands_for("S22"),
    scenario("Endpoints that are published although not ready serve", "F022", published)
        .stands_for("S20 S21"),
    scenario("A disabled Service is as if it were not there", "F041", disabled),
    scenario("New connections are divided by weight", "F046", weights),
    scenario("An endpoint of weight zero gets nothing new", "F046", weight_zero),
    scenario("A Service of one family has nothing in the other", "F041", single_stack).stands_for("D5 D6 D7"),
    scenario("A Service of both families serves in both", "F041", dual_stack).stands_for("D4 D8 D9"),
    scenario("A range of ports goes to the same ports of the endpoints", "F041", port_range),
    scenario("A frontend of all ports serves every port", "F041", all_ports)
        .refused_in("ipvs", "65,535 virtual servers for one Service are too many"),
    scenario("SCTP is served", "F044", sctp).stands_for("S47 N3 N6 N9 D14"),
    scenario("A second pass over the same state writes nothing", "F012", idle_pass),
];

fn serves(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
}

fn reaches_other_nodes(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D, E]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, D, E]));
}

fn hairpin(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B]);
    let alone = b.service("alone", 2).both(80, &[C]);
    b.set(&[&web, &alone]);
    b.expect(&[A, B], BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(&[C], BOTH, b.vip(2), 80, Mask(&[C]));
}

fn multiport(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A]).port_to(Tcp, 81, 8081, &[B]).udp(53, &[C]);
    b.set(&[&web]);
    b.expect(EVERYBODY, TCP, b.vip(1), 80, Reach(&[A]));
    b.expect(EVERYBODY, TCP, b.vip(1), 81, Reach(&[B]));
    b.expect(EVERYBODY, UDP, b.vip(1), 53, Reach(&[C]));
}

fn ports_change(b: &mut Bench) {
    let one = b.service("web", 1).tcp(80, &[A]);
    b.set(&[&one]);
    b.expect(EVERYBODY, TCP, b.vip(1), 80, Reach(&[A]));
    let two = one.clone().port_to(Tcp, 81, 8081, &[B]);
    b.set(&[&two]);
    b.expect(EVERYBODY, TCP, b.vip(1), 80, Reach(&[A]));
    b.expect(EVERYBODY, TCP, b.vip(1), 81, Reach(&[B]));
    let other = b.service("web", 1).port_to(Tcp, 81, 8081, &[B]);
    b.set(&[&other]);
    b.expect(EVERYBODY, TCP, b.vip(1), 80, Refused);
    b.expect(EVERYBODY, TCP, b.vip(1), 81, Reach(&[B]));
}

fn workload_source(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]);
    b.set(&[&web]);
    b.expect(&[B, C, E], BOTH, b.vip(1), 80, Keep(&[A, D]));
    // Direct connections between workloads are not affected.
    b.expect(&[B, E], BOTH, A.address(b.family), 8080, Keep(&[A]));
}

fn off_cluster(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, D]);
    b.set(&[&web]);
    b.expect(&[Client], BOTH, b.vip(1), 80, Mask(&[A, D]));
    b.expect(&[B], BOTH, b.vip(1), 80, Keep(&[A, D]));
}

fn own_cidr(b: &mut Bench) {
    b.networks(&model::wire::feed::NodeState::default(), &["10.1.0.0/16", "fd01::/16"]);
    let web = b.service("web", 1).both(80, &[A]);
    b.set(&[&web]);
    b.expect(&[B], BOTH, b.vip(1), 80, Keep(&[A]));
    b.expect(&[D, Client], BOTH, b.vip(1), 80, Mask(&[A]));
}

fn masquerade_all(b: &mut Bench) {
    let mut node = model::wire::feed::NodeState::default();
    node.proxy.masquerade_all = true;
    b.networks(&node, &crate::testbed::hosts::WORKLOAD_NETWORKS);
    let web = b.service("web", 1).both(80, &[A, D]);
    b.set(&[&web]);
    b.expect(&[B, E, Client], BOTH, b.vip(1), 80, Mask(&[A, D]));
}

fn up_and_down(b: &mut Bench) {
    let [one, two, three] =
        [1, 2, 3].map(|number| b.service(&format!("up-{number}"), number).both(80, &[A, B]));
    b.set(&[&one, &two]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[A, B]));
    b.remove(&one);
    b.expect(EVERYBODY, TCP, b.vip(1), 80, Silence);
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[A, B]));
    b.set(&[&three]);
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[A, B]));
    b.expect(EVERYBODY, BOTH, b.vip(3), 80, Reach(&[A, B]));
}

fn recreated(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A]);
    for _ in 0..2 {
        b.set(&[&web]);
        b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
        b.remove(&web);
        b.expect(&[Client, A], TCP, b.vip(1), 80, Silence);
    }
}

fn no_endpoints(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Refused);
    let web = b.service("web", 1).both(80, &[A]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
    let web = b.service("web", 1).both(80, &[A]).not_ready(A);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Refused);
}

fn undefined_ports(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A]);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 8080, Refused);
    b.expect(EVERYBODY, UDP, b.vip(1), 80, Refused);
}

fn host_daemon(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]);
    b.set(&[&web]);
    b.expect(&[Client, C, D], TCP, b.node_address(), DAEMON_PORT, crate::testbed::node::Claim::Daemon);
    for address in [b.vip(1), b.outer(1)] {
        b.expect(EVERYBODY, TCP, address, DAEMON_PORT, Refused);
    }
}

fn protocols(b: &mut Bench) {
    let dns = b.service("dns", 1).tcp(53, &[A]).udp(53, &[B]);
    b.set(&[&dns]);
    b.expect(EVERYBODY, TCP, b.vip(1), 53, Reach(&[A]));
    b.expect(EVERYBODY, UDP, b.vip(1), 53, Reach(&[B]));
}

fn named_ports(b: &mut Bench) {
    let mut web = b.service("web", 1).both(80, &[A, B]);
    web = web.at(B, |endpoint| endpoint.port = crate::support::programs::port(9090));
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
}

fn shared_endpoints(b: &mut Bench) {
    let one = b.service("one", 1).both(80, &[A, B]);
    let two = b.service("two", 2).both(80, &[A, B]);
    b.set(&[&one, &two]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[A, B]));
    b.remove(&one);
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[A, B]));
}

fn large_requests(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A]);
    b.set(&[&web]);
    for from in [Client, B, A] {
        let transfer = Transfer::start(&b.hosts, from, b.vip(1), 80);
        assert!(transfer.finish() >= TRANSFER_BYTES);
        let datagrams = Datagrams::new(&b.hosts, from, b.vip(1), 80);
        assert!(datagrams.echo(8192), "a datagram of 8 KiB from {from:?} comes back whole");
    }
}

fn host_network(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[Node]);
    let mixed = b.service("mixed", 2).both(80, &[Node, A]);
    b.set(&[&web, &mixed]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[Node]));
    b.expect(EVERYBODY, BOTH, b.vip(2), 80, Reach(&[Node, A]));
}

fn ranges(b: &mut Bench) {
    let second = match b.family {
        IpFamily::V4 => "172.30.0.1",
        IpFamily::V6 => "fd30::1",
    };
    let one = b.service("one", 1).both(80, &[A]);
    let two = b.bare("two").cluster_ip(second.parse().unwrap()).both(80, &[B]);
    b.set(&[&one, &two]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
    b.expect(EVERYBODY, BOTH, second.parse().unwrap(), 80, Reach(&[B]));
}

fn not_ready(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B, C]).not_ready(B);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, C]));
}

fn published(b: &mut Bench) {
    // Control marks endpoints as `ready` if not-ready addresses are published.
    let web = b.service("web", 1).both(80, &[A, B]).at(B, |endpoint| {
        endpoint.serving = false;
        endpoint.terminating = true;
    });
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
}

fn disabled(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A]);
    b.set(&[&web]);
    b.expect(&[Client, C], BOTH, b.vip(1), 80, Reach(&[A]));
    b.set(&[&b.bare("web")]);
    b.expect(&[Client, C], BOTH, b.vip(1), 80, Silence);
    b.set(&[&web]);
    b.expect(&[Client, C], BOTH, b.vip(1), 80, Reach(&[A]));
}

fn weights(b: &mut Bench) {
    let web = b.service("web", 1).tcp(80, &[A, B]).weight(A, 300).weight(B, 100);
    b.set(&[&web]);
    let counts = super::affinity::count(b, b.vip(1), 400);
    // 300 ± 8.7 is one standard deviation; six of them make a chance failure less likely than one in 10^8.
    assert!((248..=352).contains(&counts["a"]), "{counts:?}");
}

fn weight_zero(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B, C]).weight(B, 0);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, C]));
    let none = b.service("web", 1).both(80, &[A]).weight(A, 0);
    b.set(&[&none]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Refused);
}

fn single_stack(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A]).node_port(30080);
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A]));
    let other = b.node_addresses_of(super::scenario::other(b.family))[0];
    b.expect(&[Client], UDP, other, 30080, Refused);
}

fn dual_stack(b: &mut Bench) {
    let other = super::scenario::other(b.family);
    let mut web = b.service("web", 1).both(80, &[A, B]).node_port(30080);
    web.service.ip_families = IpFamily::ALL.to_vec();
    let second = match other {
        IpFamily::V4 => "10.98.0.1",
        IpFamily::V6 => "fd98::1",
    };
    web = web.cluster_ip(second.parse().unwrap());
    for port in &mut web.service.ports {
        port.endpoints.extend([A, C].map(|spot| crate::testbed::say::endpoint(spot, other, 8080)));
        port.endpoints.sort();
    }
    b.set(&[&web]);
    b.expect(EVERYBODY, BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(EVERYBODY, BOTH, second.parse().unwrap(), 80, Reach(&[A, C]));
    for (family, spots) in [(b.family, &[A, B]), (other, &[A, C])] {
        b.expect(&[Client, D], UDP, b.node_addresses_of(family)[0], 30080, Mask(spots));
    }
}

fn port_range(b: &mut Bench) {
    let mut web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(7000, &[A, B]).to(7009);
    web = web.udp(7000, &[A]).to(7009);
    b.set(&[&web]);
    for address in [b.vip(1), b.outer(1)] {
        for port in [7001, 7005] {
            b.expect(EVERYBODY, TCP, address, port, Reach(&[A, B]));
            b.expect(EVERYBODY, UDP, address, port, Reach(&[A]));
        }
        b.expect(EVERYBODY, BOTH, address, 7010, Refused);
    }
}

fn all_ports(b: &mut Bench) {
    let web = b.bare("web").load_balancer_ip(b.outer(1)).tcp(1, &[A, B]).to(65535).udp(1, &[A]).to(65535);
    b.set(&[&web]);
    for port in [80, 8080, 9090] {
        b.expect(EVERYBODY, TCP, b.outer(1), port, Reach(&[A, B]));
        b.expect(EVERYBODY, UDP, b.outer(1), port, Reach(&[A]));
    }
}

fn sctp(b: &mut Bench) {
    let web = b.service("web", 1).port(Sctp, 80, &[A, B]).node_port(30080).port(Udp, 80, &[C]);
    b.set(&[&web]);
    if b.lane == Lane::Userspace {
        b.differences
            .insert("SCTP ports are refused and reported, and the other ports of the Service are served");
    } else if has_sctp() {
        b.expect(EVERYBODY, &[Sctp], b.vip(1), 80, Reach(&[A, B]));
        b.expect(&[A], &[Sctp], b.vip(1), 80, Reach(&[A, B]));
        b.expect(&[Client, C], &[Sctp], b.node_address(), 30080, Mask(&[A, B]));
    } else {
        b.differences.insert("this kernel has no SCTP sockets: only programmed");
    }
    b.expect(EVERYBODY, UDP, b.vip(1), 80, Reach(&[C]));
}

fn idle_pass(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    let sticky = b.service("sticky", 2).tcp(80, &[A, B]).affinity(60).load_balancer_ip(b.outer(2));
    let sticky = sticky.sources(&["192.0.2.0/24", "2001:db8::/64"]).external_local();
    b.begin_anew();
    b.set(&[&web, &sticky]);
    b.expect(&[Client], TCP, b.vip(1), 80, Reach(&[A, B]));
    super::affinity::count(b, b.vip(2), 4);
    assert_eq!(b.set(&[&web, &sticky]), 0, "nothing was to be changed");
    // Reading a kernel that works asynchronously must give the same result every time.
    for _ in 0..5 {
        let node = b.hosts.at(Node);
        let backend = &mut b.backend;
        node.run(|| backend.observe()).unwrap();
        let everything = b.apply(&node_agent::dataplane::Scope::Everything);
        let writes = crate::testbed::node::verified(&everything);
        assert_eq!(writes, 0, "nothing was to be changed after a look at everything");
    }
}

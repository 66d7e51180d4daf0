//! Decisions on new connections: direct ones, through a Service, and of all kinds of workloads.

use std::net::SocketAddr;

use model::{policy::set::Peer, primitives::net::IpFamily};

use crate::site::{Selected, Site, accept, isolated, peers};

/// Input: three workloads; the first two accept connections of the third only. Output: the first two cannot connect to each
/// other in either direction, all others can, in both families and through a Service; counters of drops rise.
#[test]
fn f149_f153_denied_workloads_cannot_connect_in_either_direction_and_drops_are_counted() {
    let mut site = Site::new(3);
    for family in IpFamily::ALL {
        site.assert_matrix(family, 80, |_, _| true);
    }
    let only_third = || Some(isolated(vec![accept(peers(3), None)]));
    for index in [0, 1] {
        site.select(index, Selected { ingress: only_third(), ..Selected::default() });
    }
    site.select(2, Selected { peers: vec![3], ..Selected::default() });
    assert!(site.program() > 0);
    let is_accepted = |from: usize, to: usize| from == 2 || to == 2;
    for family in IpFamily::ALL {
        let before = site.dropped();
        site.assert_matrix(family, 80, is_accepted);
        assert!(site.dropped() >= before + 2, "both directions are counted");
    }

    // A Service with one endpoint: the decision is on the endpoint and the client, after the translation.
    site.node.exec("nft add table inet service");
    site.node.exec("nft add chain inet service in { type nat hook prerouting priority dstnat ; }");
    site.node.exec("nft add chain inet service out { type nat hook postrouting priority srcnat ; }");
    site.node.exec("nft add rule inet service in ip daddr 10.96.0.1 dnat ip to 10.1.0.2");
    site.node.exec("nft add rule inet service out ip daddr 10.1.0.2 masquerade");
    let service = SocketAddr::from(([10, 96, 0, 1], 80));
    assert!(site.connect(1, service, false).is_none());
    assert!(site.connect(2, service, true).is_some());
    // The node reaches its own workloads always, and a workload itself.
    let own = SocketAddr::new(site.address(0, IpFamily::V4), 80);
    assert!(site.node.inside(|| std::net::TcpStream::connect(own).is_ok()));
    assert!(site.connect(0, service, true).is_some(), "to itself through the Service");
}

/// Input: a workload that accepts no connection in either direction. Output: neighbor discovery still works, so that the node
/// reaches the workload by IPv6 after all neighbors were forgotten.
#[test]
fn neighbor_discovery_passes_an_isolated_workload() {
    let mut site = Site::new(2);
    let none = || Some(isolated(Vec::new()));
    site.select(0, Selected { ingress: none(), egress: none(), ..Selected::default() });
    site.program();
    site.node.ip("-6 neigh flush dev w0");
    site.workloads[0].namespace.as_ref().unwrap().ip("-6 neigh flush dev eth0");
    let own = SocketAddr::new(site.address(0, IpFamily::V6), 80);
    assert!(site.node.inside(|| std::net::TcpStream::connect(own).is_ok()));
    site.assert_matrix(IpFamily::V6, 80, |_, _| false);
    // The egress of the workload covers the node too.
    let node = SocketAddr::from(([10, 1, 1, 1], 22));
    site.node.exec("sysctl -qw net.ipv4.icmp_ratelimit=0");
    let before = site.dropped();
    assert!(site.connect(0, node, false).is_none());
    assert!(site.dropped() > before);
}

/// Input: a workload behind a veth, one behind a tap (a virtual machine), and one at an interface of the node, with the same
/// rules: port 80 from the first one and from a network, except for an address in it. Output: all have the same decisions.
#[test]
fn f159_one_policy_covers_a_veth_a_tap_and_a_host_interface() {
    let mut site = Site::new(2);
    site.add_machine();
    site.add_host_interface();
    let [network, outsider] = ["10.1.0.0/16", "10.1.1.2/32"].map(|text| text.parse().unwrap());
    let network = Peer::Network { cidr: network, except: [outsider].into() };
    let ingress = || Some(isolated(vec![accept(peers(1), Some(80)), accept(network.clone(), Some(80))]));
    site.select(0, Selected { peers: vec![1], ingress: ingress(), egress: None });
    for index in [2, 3] {
        site.select(index, Selected { ingress: ingress(), ..Selected::default() });
    }
    site.program();
    // Workload 1 is free itself. The machine is in the network; the node (3) reaches its own workloads.
    let is_accepted = |from: usize, to: usize| to == 1 || from != 1;
    site.assert_matrix(IpFamily::V4, 80, is_accepted);
    site.assert_matrix(IpFamily::V4, 81, |from, to| to == 1 || from == 3);
    // In IPv6, only the peer selector matches.
    site.assert_matrix(IpFamily::V6, 80, |from, to| to == 1 || from == 0 || from == 3);
}

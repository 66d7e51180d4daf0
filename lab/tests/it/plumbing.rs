//! Tests of the lab itself (namespaces, networks, servers), on which the other tests depend.

use lab::{
    host::kernel,
    network::{
        client::{self, Connection, UdpClient, at},
        topology::{self, Topology},
    },
};

#[test]
fn every_place_reaches_every_workload_in_both_families_and_sources_are_kept() {
    let mut topology = Topology::new(2).unwrap();
    topology.add_workload("a", "node1", 2).unwrap();
    topology.add_workload("b", "node1", 3).unwrap();
    topology.add_workload("c", "node2", 2).unwrap();
    for name in ["a", "b", "c"] {
        topology.serve(name, 8080).unwrap();
    }
    for from in ["a", "b", "c", "node1", "node2"] {
        for to in ["a", "b", "c"] {
            for address in topology.workloads[to].addresses {
                let place = topology.place(from).unwrap();
                let tcp = client::tcp(place, at(address, 8080)).unwrap();
                assert_eq!((tcp.backend.as_str(), tcp.port), (to, 8080), "TCP from {from}");
                let udp = client::udp(place, at(address, 8080)).unwrap();
                assert_eq!(udp.backend, to, "UDP from {from}");
                if let Some(workload) = topology.workloads.get(from) {
                    assert!(workload.addresses.contains(&tcp.peer.ip()), "{from} was seen as {}", tcp.peer);
                    assert!(workload.addresses.contains(&udp.peer.ip()), "{from} was seen as {}", udp.peer);
                }
            }
        }
    }
}

#[test]
fn a_stopped_backend_closes_its_connections_and_refuses_new_ones() {
    let mut topology = Topology::new(1).unwrap();
    topology.add_workload("a", "node1", 2).unwrap();
    topology.serve("a", 8080).unwrap();
    let node = topology.place("node1").unwrap().clone();
    let to = at(topology.workloads["a"].addresses[0], 8080);
    let mut connection = Connection::open(&node, to).unwrap();
    let udp = UdpClient::open(&node, to).unwrap();
    connection.exchange("hello").unwrap();
    assert_eq!(udp.ask().unwrap().peer, udp.ask().unwrap().peer, "a UDP client keeps its port");

    topology.stop_serving("a");
    connection.exchange("still there?").unwrap_err();
    assert!(client::is_refusal(&client::tcp(&node, to).unwrap_err()));
    assert!(client::is_refusal(&udp.ask().unwrap_err()));
}

#[test]
fn a_lab_leaves_nothing_behind_also_after_a_panic() {
    let before = kernel::host().unwrap();
    let panicked = std::thread::spawn(|| {
        let mut topology = Topology::new(1).unwrap();
        topology.add_workload("gone", "node1", 2).unwrap();
        assert!(kernel::host().unwrap().iter().any(|line| line.contains("-gone")));
        panic!("as tests do");
    });
    panicked.join().unwrap_err();
    let left: Vec<_> =
        kernel::host().unwrap().difference(&before).filter(|line| line.contains("-gone")).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn the_addresses_of_both_families_read_alike() {
    let text = |addresses: [std::net::IpAddr; 2]| addresses.map(|address| address.to_string());
    assert_eq!(text(topology::node_addresses(1)), ["172.17.8.101", "fd00:8::101"]);
    assert_eq!(text(topology::workload_addresses(3, 12)), ["10.1.3.12", "fd00:10:3::12"]);
}

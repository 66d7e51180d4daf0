//! Tests with real packets to Services on every path: virtual addresses, node ports and external addresses,
//! and traffic that must be blocked.

use std::net::{IpAddr, SocketAddr};

use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::kernel,
    network::{
        client::{at, is_refusal},
        topology,
    },
};
use serde_json::json;

/// Starts three nodes with backends behind node1 and node2 and none behind node3, and clients behind node1
/// and node3.
fn web() -> Cluster {
    let mut cluster = Cluster::start(&Options::default()).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_backend("web-2", "node2", 12, "web").unwrap();
    cluster.add_place("near", "node1", 50).unwrap();
    cluster.add_place("far", "node3", 50).unwrap();
    cluster
}

const BOTH: [&str; 2] = ["web-1", "web-2"];

/// F004, F030, F041, F042, F044, F045, F046: a Service with port 80 and target port 8080 replies on every
/// node and to every workload, by TCP and UDP on the same port, and by IPv4 and IPv6.
#[test]
fn f030_a_virtual_address_answers_every_node_and_workload_in_both_protocols_and_families() {
    let cluster = web();
    let spec = json!({
        "ipFamilyPolicy": "RequireDualStack",
        "selector": {"app": "web"},
        "ports": [
            {"name": "http", "port": 80, "targetPort": BACKEND_PORT},
            {"name": "dns", "protocol": "UDP", "port": 80, "targetPort": "dns"},
        ],
    });
    cluster.add_service("web", spec).unwrap();
    assert_eq!(
        cluster.service("default/web").unwrap()["spec"]["type"],
        "ClusterIP",
        "F030: the default type"
    );
    for (family, range) in [(0, "10.96.0.0/16"), (1, "fd00:96::/112")] {
        let to = at(cluster.cluster_ip("default/web", family).unwrap(), 80);
        let range: ipnet::IpNet = range.parse().unwrap();
        assert!(range.contains(&to.ip()), "F030: {to} is in {range}");
        for from in ["near", "far", "web-2", "node1", "node2", "node3"] {
            cluster.expect_backends(from, to, &BOTH).unwrap();
            let reply = cluster.udp(from, to).unwrap();
            assert!(BOTH.contains(&reply.backend.as_str()), "{reply:?}");
            assert_eq!(reply.port, BACKEND_PORT, "F042: the target port");
        }
        let reply = cluster.tcp("far", to).unwrap();
        let far = cluster.topology.workloads["far"].addresses;
        assert!(
            far.contains(&reply.peer.ip()),
            "a workload keeps its source address, was seen as {}",
            reply.peer
        );
    }
    // Each backend should get 100 of 200; the probability of fewer than 60 is below 1e-8.
    let counts = cluster.spread("far", at(cluster.cluster_ip("default/web", 0).unwrap(), 80), 200).unwrap();
    assert!(BOTH.iter().all(|name| counts[*name] >= 60), "F046: successive connections spread: {counts:?}");
}

/// F032, F033: connections to undefined ports and to a Service without endpoints are refused at once and never
/// reach the host. A headless Service creates no rule.
#[test]
fn f032_undefined_ports_and_services_without_endpoints_are_refused_and_headless_has_no_rules() {
    let mut cluster = web();
    cluster
        .add_service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}))
        .unwrap();
    cluster.add_service("empty", json!({"selector": {"app": "nobody"}, "ports": [{"port": 80}, ]})).unwrap();
    let vip = cluster.cluster_ip("default/web", 0).unwrap();
    let empty = cluster.cluster_ip("default/empty", 0).unwrap();
    // A server on all addresses of the node must not respond at the virtual address.
    let host = cluster.topology.nodes["node1"].namespace.clone();
    let _host_server = lab::network::echo::EchoServer::start(&host, "host-service", 2222).unwrap();
    for from in ["near", "node1", "node3"] {
        for to in [at(vip, 2222), at(empty, 80)] {
            let error = cluster.tcp(from, to).unwrap_err();
            assert!(is_refusal(&error), "TCP {from} → {to}: {error:#}");
            let error = cluster.udp(from, to).unwrap_err();
            assert!(is_refusal(&error), "UDP {from} → {to}: {error:#}");
        }
    }
    cluster.wait_converged().unwrap();

    let before: Vec<_> = rulesets(&cluster);
    cluster.apply("{apiVersion: tidegate/v1, kind: Service, metadata: {name: headless}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}}").unwrap();
    cluster.wait_converged().unwrap();
    assert_eq!(cluster.service("default/headless").unwrap()["spec"]["clusterIP"], "None");
    assert_eq!(rulesets(&cluster), before, "F033: a headless Service makes no rule");
    cluster.topology.stop_serving("web-1");
}

/// F035, F036, F040, F043: every node, even one without endpoints, forwards node ports (requested and
/// allocated ones) and external addresses to a backend.
#[test]
fn f035_node_ports_and_external_addresses_reach_a_backend_from_outside_through_every_node() {
    let cluster = web();
    let spec = json!({
        "type": "NodePort",
        "ipFamilyPolicy": "RequireDualStack",
        "selector": {"app": "web"},
        "externalIPs": [topology::EXTERNAL_V4, topology::EXTERNAL_V6],
        "ports": [
            {"name": "explicit", "port": 80, "targetPort": 8080, "nodePort": 30802},
            {"name": "chosen", "port": 81, "targetPort": 8080},
            {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 8080, "nodePort": 30802},
        ],
    });
    cluster.add_service("web", spec).unwrap();
    let chosen = cluster.node_port("default/web", 1).unwrap();
    assert!((30000..=32767).contains(&chosen) && chosen != 30802, "F036: {chosen}");
    for index in 1..=3 {
        for address in topology::node_addresses(index) {
            cluster.expect_backends("client", at(address, 30802), &BOTH).unwrap();
            cluster.tcp("client", at(address, chosen)).unwrap();
            cluster.udp("client", at(address, 30802)).unwrap();
        }
    }
    for address in [IpAddr::from(topology::EXTERNAL_V4), IpAddr::from(topology::EXTERNAL_V6)] {
        cluster.expect_backends("client", at(address, 80), &BOTH).unwrap();
        cluster.udp("client", at(address, 80)).unwrap();
        cluster.tcp("far", at(address, 80)).unwrap();
    }
    // A server of the node on another port stays reachable, and node ports do not exist on loopback.
    let host = cluster.topology.nodes["node3"].namespace.clone();
    let _host_server = lab::network::echo::EchoServer::start(&host, "host-service", 2222).unwrap();
    let own = cluster.tcp("client", at(topology::node_addresses(3)[0], 2222)).unwrap();
    assert_eq!(own.backend, "host-service");
    let refused = json!({
        "apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": "thief"},
        "spec": {"externalIPs": ["198.51.100.1"], "ports": [{"port": 80}]},
    });
    let answer = cluster.api.send_json("POST", "/v1/namespaces/default/services", &refused).unwrap();
    let problem = answer.expect(422).unwrap();
    assert!(
        problem["errors"][0]["pointer"].as_str().unwrap().starts_with("/spec/externalIPs"),
        "F040: {problem:#}"
    );
}

/// A workload reaches itself through its own Service, and the weights of endpoints determine their shares of
/// connections.
#[test]
fn a_workload_reaches_itself_through_its_service_and_weights_give_shares() {
    let mut cluster = Cluster::start(&Options::default()).unwrap();
    cluster.add_backend("self-1", "node1", 11, "self").unwrap();
    cluster.add_backend("heavy", "node1", 12, "weighted").unwrap();
    cluster.add_backend("light", "node2", 13, "weighted").unwrap();
    let spec = |app: &str| json!({"ipFamilyPolicy": "RequireDualStack", "selector": {"app": app}, "ports": [{"port": 80, "targetPort": "web"}]});
    cluster.add_service("self", spec("self")).unwrap();
    for family in [0, 1] {
        let to = at(cluster.cluster_ip("default/self", family).unwrap(), 80);
        assert_eq!(cluster.tcp("self-1", to).unwrap().backend, "self-1", "hairpin to {to}");
    }
    cluster.patch("namespaces/default/workloads/heavy", &json!({"spec": {"weight": 3}})).unwrap();
    cluster.add_service("weighted", spec("weighted")).unwrap();
    let to = at(cluster.cluster_ip("default/weighted", 0).unwrap(), 80);
    // 300 of 400 expected; the standard deviation is 9, so both bounds are more than five of them away.
    let heavy = cluster.spread("self-1", to, 400).unwrap()["heavy"];
    assert!((250..350).contains(&heavy), "weights 3 : 1 gave {heavy} of 400");
    cluster.patch("namespaces/default/workloads/heavy", &json!({"spec": {"weight": 0}})).unwrap();
    cluster.wait_verified("default/weighted").unwrap();
    cluster.expect_backends("self-1", to, &["light"]).unwrap();
}

/// F042: a named target port leads to the port that each workload has under this name.
#[test]
fn f042_a_named_target_port_is_resolved_for_each_workload() {
    let mut cluster = web();
    cluster.topology.stop_serving("web-2");
    cluster.topology.serve("web-2", 9090).unwrap();
    cluster
        .patch("namespaces/default/workloads/web-2", &json!({"spec": {"ports": {"web": {"port": 9090}}}}))
        .unwrap();
    cluster
        .add_service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "web"}]}))
        .unwrap();
    let to: SocketAddr = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    cluster.expect_backends("far", to, &BOTH).unwrap();
    for _ in 0..10 {
        let reply = cluster.tcp("far", to).unwrap();
        assert_eq!(reply.port, if reply.backend == "web-2" { 9090 } else { BACKEND_PORT });
    }
}

fn rulesets(cluster: &Cluster) -> Vec<String> {
    cluster.topology.nodes.values().map(|machine| kernel::ruleset(&machine.namespace).unwrap()).collect()
}

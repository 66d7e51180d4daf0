//! Tests of the routes to the Service ranges, in network namespaces without a default route.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

use std::collections::BTreeSet;

use ipnet::IpNet;
use model::kinds::node::ProxyMode;
use node_agent::{
    dataplane::{self, BackendOptions, Scope},
    service_routes::{self, KernelServiceRoutes, ServiceRoutes},
};

use crate::support::{Namespace, net::Topology, programs::*};

fn ranges() -> BTreeSet<IpNet> {
    nets(&["10.96.0.0/16", "fd96::/112"])
}

fn without_default_route(test: &str) -> Topology {
    let topology = Topology::new(test);
    topology.node.ip(&["route", "del", "default"]);
    topology.node.ip(&["-6", "route", "del", "default"]);
    topology
}

/// Returns the rules and routes of the agent, which name its routing table.
fn objects(node: &Namespace) -> String {
    let lists = ["-4", "-6"].map(|family| {
        node.exec(&["ip", family, "rule"]) + &node.exec(&["ip", family, "route", "show", "table", "all"])
    });
    lists.concat().lines().filter(|line| line.contains("7440")).collect()
}

/// Processes of the node connect through virtual addresses, and a Service without endpoints refuses, for the node
/// and for workloads.
#[test]
fn a_node_without_a_default_route_reaches_virtual_addresses() {
    for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
        let topology = without_default_route(&format!("sroute-{}", mode.as_str()));
        assert_eq!(objects(&topology.node), "");
        let refused = |client: &Namespace, ip: &str| {
            client.run(|| {
                let to = std::net::SocketAddr::new(address(ip), 80);
                std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_secs(3))
                    .unwrap_err()
                    .kind()
            })
        };
        topology.node.run(|| {
            let mut backend = dataplane::open(mode, &BackendOptions::default()).unwrap();
            backend.observe().unwrap();
            let served = desired(vec![
                ("v4", simple("10.96.0.1", &[("10.1.1.2", 8080, 1)])),
                ("v6", simple("fd96::1", &[("fd01:1::2", 8080, 1)])),
                ("none4", simple("10.96.0.2", &[])),
                ("none6", simple("fd96::2", &[])),
            ]);
            verified(&backend.apply(&served, &Scope::Everything));
        });
        assert!(topology.node.ask_tcp("10.96.0.1", 80).is_err(), "no route leads there");
        let mut routes = KernelServiceRoutes::default();
        let changes = topology.node.run(|| routes.follow(&ranges())).unwrap();
        assert_eq!(changes, 4, "a rule and a route for each family");
        assert_eq!(topology.node.run(|| routes.follow(&ranges())).unwrap(), 0);
        for ip in ["10.96.0.1", "fd96::1"] {
            for client in [&topology.node, &topology.b] {
                assert_eq!(client.ask_tcp(ip, 80).unwrap().name, "a", "{ip} in {mode:?}");
            }
        }
        for ip in ["10.96.0.2", "fd96::2"] {
            for client in [&topology.node, &topology.b] {
                let refused = refused(client, ip);
                assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "{ip} in {mode:?}");
            }
        }
        assert_eq!(topology.node.run(service_routes::cleanup).unwrap(), 4);
        assert_eq!(objects(&topology.node), "");
    }
}

/// A lost rule or route is repaired. A route of another program to the range removes those of the agent, which come
/// back when it goes.
#[test]
fn a_route_of_others_replaces_the_route_of_the_agent() {
    let topology = without_default_route("sroute-others");
    let node = &topology.node;
    let mut routes = KernelServiceRoutes::default();
    let mut follow = |ranges: &BTreeSet<IpNet>| node.run(|| routes.follow(ranges)).unwrap();
    assert_eq!(follow(&ranges()), 4);
    node.ip(&["route", "flush", "table", "7440"]);
    assert_eq!(follow(&ranges()), 1);
    node.ip(&["-6", "rule", "del", "priority", "32800"]);
    assert!(follow(&ranges()) > 0);
    assert_eq!(node.run(service_routes::ranges).unwrap(), ranges());
    node.ip(&["route", "add", "default", "via", "192.0.2.2"]);
    assert_eq!(follow(&ranges()), 2);
    assert_eq!(node.run(service_routes::ranges).unwrap(), nets(&["fd96::/112"]));
    node.ip(&["route", "del", "default"]);
    assert_eq!(follow(&ranges()), 2);
    node.ip(&["route", "add", "unreachable", "10.96.0.0/16"]);
    assert_eq!(follow(&ranges()), 2, "a route that rejects packets counts");
    assert_eq!(follow(&nets(&["10.97.0.0/16"])), 4);
    assert_eq!(follow(&BTreeSet::new()), 2);
    assert_eq!(node.run(service_routes::cleanup).unwrap(), 0);
}

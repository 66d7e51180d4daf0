//! Deterministic objects of a large cluster: Nodes, Services and their endpoints, derived from their numbers. Most
//! are healthy; a few have a problem, so that the web page shows each kind of problem.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use model::{
    kinds::resource::ServiceKey,
    primitives::name::{Label, Name},
};
use serde_json::{Value, json};

use super::{Behaviour, Member};

/// Interval, in Service numbers, between Services without endpoints.
const WITHOUT_ENDPOINTS_EVERY: u32 = 997;
/// Interval, in Service numbers, between Services whose endpoints are all unready.
const NOT_READY_EVERY: u32 = 743;
/// Interval, in Service numbers, between Services that have lost some of their endpoints.
const DEGRADED_EVERY: u32 = 211;
/// Interval, in Service numbers, between Services that are disabled on purpose.
const DISABLED_EVERY: u32 = 601;
/// Interval, in Service numbers, between Services with an external address.
const LOAD_BALANCER_EVERY: u32 = 50;
/// Interval, in Service numbers, between Services with a node port.
const NODE_PORT_EVERY: u32 = 9;
/// Number of nodes in the network of the external addresses, which announce them.
const EDGE_NODES: u16 = 6;

/// Number of the Service that the kernels of some simulated agents reject.
const REFUSED: u32 = 13;

const NAMESPACES: [&str; 20] = [
    "accounts",
    "billing",
    "cart",
    "catalog",
    "checkout",
    "default",
    "delivery",
    "fraud",
    "identity",
    "inventory",
    "mail",
    "media",
    "metrics",
    "orders",
    "payments",
    "pricing",
    "reports",
    "search",
    "support",
    "web",
];
const ROLES: [&str; 10] =
    ["api", "worker", "cache", "queue", "db", "admin", "front", "sync", "export", "gateway"];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Returns the name of the node with number `number`, counted from 0.
pub(super) fn node_name(number: u16) -> String {
    format!("node-{:03}", number + 1)
}

/// Returns the parameters of one agent per node. In a cluster of more than 12 nodes, the last [`UNWELL`]
/// agents are faulty, two with each kind of fault.
pub(super) fn members(nodes: u16) -> Vec<Member> {
    (0..nodes).filter_map(|number| member(number, nodes)).collect()
}

/// Number of agents with a simulated fault: they reject a Service, lag behind or stop to report.
pub(super) const UNWELL: u16 = 6;

fn member(number: u16, nodes: u16) -> Option<Member> {
    let behaviour = match nodes - number {
        _ if nodes <= 2 * UNWELL => Behaviour::Converges,
        1 | 2 => Behaviour::IsSilent,
        3 | 4 => Behaviour::Lags,
        5 | 6 => Behaviour::Refuses(refused()),
        _ => Behaviour::Converges,
    };
    let [high, low] = number.to_be_bytes();
    let mut networks = vec![network(Ipv4Addr::new(172, 16 + high, low, 10), 16)?];
    if number < EDGE_NODES {
        networks.push(network(Ipv4Addr::new(198, 18, 0, 10 + low), 22)?);
    }
    let zone = ZONES[usize::from(number) % ZONES.len()];
    Some(Member {
        node: Name::parse(&node_name(number)).ok()?,
        networks,
        zone: Some(zone.to_owned()),
        behaviour,
    })
}

/// Returns the key of the Service that the simulated kernels of some faulty agents reject.
fn refused() -> BTreeSet<ServiceKey> {
    let (namespace, name) = key(REFUSED);
    let key = Label::parse(namespace).ok().zip(Name::parse(&name).ok());
    key.into_iter().map(|(namespace, name)| ServiceKey { namespace, name }).collect()
}

fn network(address: Ipv4Addr, length: u8) -> Option<IpNet> {
    Ipv4Net::new(address, length).ok().map(IpNet::from)
}

/// Builds the address pool of external addresses and its Advertisement.
pub(super) fn settings() -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![
        object("AddressPool", "public", json!({"addresses": ["198.18.1.0/25"]})),
        object("Advertisement", "public", json!({"type": "L2", "addressPools": ["public"]})),
    ]
}

/// Builds the Service with number `number`, counted from 0, and its endpoints on `nodes` nodes.
pub(super) fn service(number: u32, nodes: u16) -> Vec<Value> {
    let (namespace, name) = key(number);
    let metadata = |labels: Value| json!({"namespace": namespace, "name": name, "labels": labels});
    let mut spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    if number.is_multiple_of(LOAD_BALANCER_EVERY) {
        spec["type"] = json!("LoadBalancer");
    } else if number.is_multiple_of(NODE_PORT_EVERY) {
        spec["type"] = json!("NodePort");
    }
    if number % DISABLED_EVERY == 5 {
        spec["disabled"] = json!(true);
    }
    let labels = json!({"team": namespace});
    let mut objects = vec![
        json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": metadata(labels), "spec": spec}),
    ];
    if number % WITHOUT_ENDPOINTS_EVERY != 3 {
        let spec = json!({"service": name, "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints(number, nodes)});
        objects.push(json!({"apiVersion": "tidegate/v1", "kind": "EndpointSet", "metadata": metadata(json!({})), "spec": spec}));
    }
    objects
}

/// Returns the namespace and name of the Service with number `number`, counted from 0.
pub(super) fn key(number: u32) -> (&'static str, String) {
    let place = number as usize;
    let role = ROLES[(place / NAMESPACES.len()) % ROLES.len()];
    (NAMESPACES[place % NAMESPACES.len()], format!("{role}-{number:05}"))
}

fn endpoints(number: u32, nodes: u16) -> Vec<Value> {
    // Two to six endpoints.
    let total = 2 + number % 5;
    let ready = match number {
        _ if number % NOT_READY_EVERY == 7 => 0,
        _ if number % DEGRADED_EVERY == 11 => total - 1,
        _ => total,
    };
    let endpoint = |place: u32| {
        let node = (number * 7 + place * 131) % u32::from(nodes);
        let [_, _, high, low] = node.to_be_bytes();
        let [.., host] = (number + place).to_be_bytes();
        let address =
            Ipv4Addr::new(10, high + 16 * u8::try_from(place % 6).unwrap_or(0), low, host.clamp(1, 254));
        json!({"address": address, "node": node_name(u16::try_from(node).unwrap_or(0)), "conditions": {"ready": place < ready}})
    };
    (0..total).map(endpoint).collect()
}

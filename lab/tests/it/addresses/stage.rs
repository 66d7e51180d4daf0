//! Test cluster with load balancer addresses, and functions that return the state of these addresses as seen
//! by agents, the control server and a client on the same link.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use anyhow::{Result, ensure};
use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::wait,
    network::client::at,
};
use serde_json::{Value, json};

/// Ranges of the address pool in every test, within the network of the nodes.
pub(crate) const POOL: [&str; 2] = ["172.17.8.220-172.17.8.229", "fd00:8::220-fd00:8::229"];

/// Starts a cluster with `nodes` nodes, an address pool in their network, and an Advertisement of the pool.
pub(crate) fn stage(nodes: u8) -> Cluster {
    stage_with(&Options { nodes, ..Options::default() })
}

pub(crate) fn stage_with(options: &Options) -> Cluster {
    let cluster = Cluster::start(options).unwrap();
    cluster.apply_objects(&[pool("lan", &POOL), advertisement("lan", &json!({}))]).unwrap();
    cluster
}

pub(crate) fn pool(name: &str, addresses: &[&str]) -> Value {
    let spec = json!({"addresses": addresses});
    json!({"apiVersion": "tidegate/v1", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn advertisement(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "tidegate/v1", "kind": "Advertisement", "metadata": {"name": name}, "spec": spec})
}

/// Creates a dual-stack Service `web` with an endpoint on each of `nodes`. `spec` contains further fields of
/// the Service. Returns its IPv4 and IPv6 load balancer addresses.
pub(crate) fn add_web(cluster: &mut Cluster, nodes: &[&str], spec: &Value) -> [IpAddr; 2] {
    for (index, node) in nodes.iter().enumerate() {
        let host = 11 + u8::try_from(index).unwrap();
        cluster.add_backend(&format!("web-{node}"), node, host, "web").unwrap();
    }
    let mut whole = json!({
        "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080}],
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    cluster.add_service("web", whole).unwrap();
    let ingress = |index| addresses(cluster, "default/web").unwrap()[index];
    [ingress(0), ingress(1)]
}

/// Returns the load balancer addresses of a Service, IPv4 first.
pub(crate) fn addresses(cluster: &Cluster, service: &str) -> Result<Vec<IpAddr>> {
    let service = cluster.service(service)?;
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    let mut all =
        ingress.iter().map(|one| Ok(string(one, "/ip")?.parse()?)).collect::<Result<Vec<IpAddr>>>()?;
    ensure!(!all.is_empty(), "no address yet: {:#}", service["status"]);
    all.sort();
    Ok(all)
}

/// Returns the role (such as owner) and the reason that each running agent reports for an address, by node
/// name.
pub(crate) fn roles(cluster: &Cluster, address: IpAddr) -> BTreeMap<String, (String, String)> {
    let said = |node: &String| {
        let all = cluster.agent(node).ok()?.get_json("/v1/announcements").ok()?;
        let part = all.get(address.to_string())?;
        Some((node.clone(), (string(part, "/role").ok()?, string(part, "/reason").ok()?)))
    };
    cluster.agents.keys().filter_map(said).collect()
}

/// Returns the only node whose agent reports itself as owner of the address.
pub(crate) fn owner(cluster: &Cluster, address: IpAddr) -> Result<String> {
    let roles = roles(cluster, address);
    let owners: Vec<_> =
        roles.iter().filter(|(_, (role, _))| role == "Owner").map(|(node, _)| node).collect();
    ensure!(owners.len() == 1, "owners of {address}: {roles:#?}");
    Ok(owners[0].clone())
}

/// Waits until exactly one agent reports itself as owner of the address, and returns its node.
#[track_caller]
pub(crate) fn wait_owner(cluster: &Cluster, address: IpAddr) -> String {
    wait::until(&format!("one owner of {address}"), || owner(cluster, address)).unwrap()
}

/// Waits until one node other than `from` owns all the addresses, and returns that node.
#[track_caller]
pub(crate) fn wait_moved(cluster: &Cluster, addresses: &[IpAddr], from: &str) -> String {
    let moved = |address: &IpAddr| {
        wait::until(&format!("{address} to leave {from}"), || {
            let owner = owner(cluster, *address)?;
            ensure!(owner != from, "it is there");
            Ok(owner)
        })
        .unwrap()
    };
    addresses.iter().map(moved).next_back().unwrap()
}

/// Returns the link-layer addresses of all machines that reply when the client resolves an address several
/// times.
pub(crate) fn answering(cluster: &Cluster, address: IpAddr) -> BTreeSet<String> {
    let client = cluster.place("client").unwrap();
    let text = address.to_string();
    // Both tools fail without a reply; only their output counts.
    let said = match address {
        IpAddr::V4(_) => client.run("sh", &["-c", &format!("arping -c 2 -w 2 -I eth0 {text} || true")]),
        IpAddr::V6(_) => client.run("sh", &["-c", &format!("ndisc6 -m -w 700 {text} eth0 || true")]),
    };
    said.unwrap().split(|c: char| !c.is_ascii_hexdigit() && c != ':').filter_map(mac).collect()
}

/// Returns the number of ARP requests that the client sent for an IPv4 address over three seconds, and the
/// number of replies.
pub(crate) fn asked_and_answered(cluster: &Cluster, address: IpAddr) -> (u64, u64) {
    let client = cluster.place("client").unwrap();
    let said = client.run("sh", &["-c", &format!("arping -b -w 3 -I eth0 {address} || true")]).unwrap();
    let number = |words: [&str; 2]| {
        let line = said.lines().find_map(|line| line.strip_prefix(words[0])?.trim_start().split(' ').next());
        line.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {words:?} in {said}"))
    };
    (number(["Sent", "probes"]), number(["Received", "response(s)"]))
}

/// Returns the nodes that reply when the outside client resolves an address, and asserts that no other
/// machine replies.
pub(crate) fn answerers(cluster: &Cluster, address: IpAddr) -> BTreeSet<String> {
    let macs = answering(cluster, address);
    let of = |node: &&String| macs.contains(&mac_of(cluster, node));
    let known: BTreeSet<_> = cluster.topology.nodes.keys().filter(of).cloned().collect();
    assert_eq!(known.len(), macs.len(), "somebody unknown answers for {address}: {macs:?}");
    known
}

fn mac(word: &str) -> Option<String> {
    let pairs: Vec<_> = word.split(':').collect();
    let is_pair = |pair: &&str| (1..=2).contains(&pair.len()) && u8::from_str_radix(pair, 16).is_ok();
    (pairs.len() == 6 && pairs.iter().all(is_pair)).then(|| {
        pairs.iter().map(|pair| format!("{:0>2}", pair.to_lowercase())).collect::<Vec<_>>().join(":")
    })
}

fn mac_of(cluster: &Cluster, node: &str) -> String {
    let place = cluster.place(node).unwrap();
    let listing = place.run("ip", &["-j", "link", "show", "eth0"]).unwrap();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    listing[0]["address"].as_str().unwrap().to_owned()
}

/// Returns the epoch (version of the announcement) of an address and its candidate nodes in order, as
/// recorded by the control server.
pub(crate) fn order(cluster: &Cluster, address: IpAddr) -> (u64, Vec<String>) {
    let name = model::kinds::address::name_of(address);
    let record = cluster.object(&format!("addresses/{}", name.as_str())).unwrap();
    let announcement = &record["spec"]["announcement"];
    let candidates = announcement["candidates"].as_array().cloned().unwrap_or_default();
    let names = candidates.iter().map(|candidate| candidate["node"].as_str().unwrap().to_owned()).collect();
    (announcement["epoch"].as_u64().unwrap(), names)
}

/// Waits until the control server has recorded a node as the first candidate, and returns the epoch of the
/// announcement.
#[track_caller]
pub(crate) fn wait_first(cluster: &Cluster, address: IpAddr, node: &str) -> u64 {
    wait::until(&format!("control to record {node} as the first for {address}"), || {
        let (epoch, candidates) = order(cluster, address);
        ensure!(candidates.first().is_some_and(|first| first == node), "candidates: {candidates:?}");
        Ok(epoch)
    })
    .unwrap()
}

/// Waits until the outside client can connect to port 80 at each of `addresses`.
#[track_caller]
pub(crate) fn wait_reached(cluster: &Cluster, addresses: &[IpAddr]) {
    for address in addresses {
        wait::until(&format!("the client to reach {address}"), || {
            cluster.tcp("client", at(*address, 80)).map(drop)
        })
        .unwrap();
    }
}

/// Moves the switch port of a node to a separate switch, so that the node is disconnected while its link
/// stays up. If `is_cut` is false, moves the port back.
pub(crate) fn cut_off(cluster: &Cluster, node: &str, is_cut: bool) {
    let fabric = cluster.place("fabric").unwrap();
    if fabric.run("ip", &["link", "show", "apart"]).is_err() {
        fabric.ip(&["link add apart type bridge", "link set apart up"]).unwrap();
    }
    let switch = if is_cut { "apart" } else { "switch" };
    let index = cluster.topology.nodes[node].index;
    fabric.ip(&[format!("link set port{} master {switch}", 100 + u16::from(index))]).unwrap();
}

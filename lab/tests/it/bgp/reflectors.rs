//! Tests of route reflectors (RFC 4456) on a real network: nodes as reflectors for other nodes, FRR and BIRD, compared
//! with a full mesh of the nodes; and FRR and BIRD as reflectors for nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, shell, wait},
    network::{
        client::{self, at},
        echo::EchoServer,
        topology::{TopologyNode, fabric_addresses, node_addresses},
    },
    processes::{
        binaries,
        routers::{Bird, Frr, RouterPlan, learned},
    },
};
use serde_json::{Value, json};

use super::stage::{ASN, object};

const CIDRS: [&str; 2] = ["10.64.0.0/16", "fd64::/64"];
/// Number of blocks of each node: one of each IP family.
const BLOCKS: u64 = 2;

/// Starts a cluster whose nodes announce their blocks to all of their BGP peers. Each node has its name as the label
/// `member`, and the first two have the label `reflector`.
fn start(nodes: u8) -> Cluster {
    let cluster = Cluster::start(&Options { nodes, ..Options::default() }).unwrap();
    for node in cluster.topology.nodes.keys() {
        let is_reflector = ["node1", "node2"].contains(&node.as_str());
        let reflector = if is_reflector { Value::from("yes") } else { Value::Null };
        let labels = json!({"metadata": {"labels": {"member": node, "reflector": reflector}}});
        cluster.patch(&format!("nodes/{node}"), &labels).unwrap();
    }
    let network = object("WorkloadNetwork", "pods", &json!({"cidrs": CIDRS}));
    let advertisement =
        object("Advertisement", "pods", &json!({"type": "BGP", "workloadNetworks": ["pods"]}));
    cluster.apply_objects(&[network, advertisement]).unwrap();
    cluster
}

/// Returns a BgpPeer of the AS of the nodes at `address`, for the nodes that `selector` matches.
fn peer(name: &str, address: IpAddr, selector: &Value) -> Value {
    let spec = json!({
        "peerAddress": address, "peerASN": "internal", "connectTime": 1, "nodeSelectors": [selector],
    });
    object("BgpPeer", name, &spec)
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    let mut expression = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        expression["values"] = json!(values);
    }
    json!({"matchExpressions": [expression]})
}

/// Returns the peers of a full mesh: each node is the peer of all others.
fn mesh(cluster: &Cluster) -> Vec<Value> {
    let nodes = cluster.topology.nodes.iter();
    let to = |(name, machine): (&String, &TopologyNode)| {
        let others = requirement("member", "NotIn", &[name]);
        peer(&format!("mesh-{name}"), node_addresses(machine.index)[0], &others)
    };
    nodes.map(to).collect()
}

/// Returns the peers of a network with two reflectors: one peer for all clients, one for each reflector towards the
/// clients, and one for each reflector towards the other one.
fn reflectors() -> Vec<Value> {
    let clients = json!({
        "peerNetwork": "172.17.8.0/24", "peerASN": "internal", "dynamicLimit": 64, "routeReflectorClient": true,
        "nodeSelectors": [{"matchLabels": {"reflector": "yes"}}],
    });
    let mut peers = vec![object("BgpPeer", "clients", &clients)];
    for (index, other) in [(1, "node2"), (2, "node1")] {
        let address = node_addresses(index)[0];
        peers.push(peer(
            &format!("reflector-{index}"),
            address,
            &requirement("reflector", "DoesNotExist", &[]),
        ));
        peers.push(peer(&format!("core-{index}"), address, &json!({"matchLabels": {"member": other}})));
    }
    peers
}

/// Returns the established sessions of a node as its agent shows them.
fn established(cluster: &Cluster, node: &str) -> Result<Vec<Value>> {
    let state = cluster.agent_state(node)?;
    let sessions = state["bgp"]["sessions"].as_array().cloned().unwrap_or_default();
    Ok(sessions.into_iter().filter(|session| session["state"] == "Established").collect())
}

/// Returns the number of sessions between nodes. A session is listed by both of its nodes.
fn sessions_between_nodes(cluster: &Cluster) -> Result<usize> {
    let nodes: BTreeSet<String> =
        cluster.topology.nodes.values().map(|machine| node_addresses(machine.index)[0].to_string()).collect();
    let mut ends = 0;
    for node in cluster.topology.nodes.keys() {
        let is_node = |session: &Value| session["address"].as_str().is_some_and(|it| nodes.contains(it));
        ends += established(cluster, node)?.iter().filter(|session| is_node(session)).count();
    }
    Ok(ends / 2)
}

fn received(session: &Value) -> u64 {
    session["counters"]["prefixesReceived"].as_u64().unwrap_or_default()
}

/// Applies peers and waits until `is_complete` holds for the established sessions of every node. Returns the number of
/// sessions between nodes, and the time.
fn converge(
    cluster: &Cluster,
    peers: &[Value],
    is_complete: impl Fn(&str, &[Value]) -> bool,
) -> (usize, Duration) {
    let begun = Instant::now();
    cluster.apply_objects(peers).unwrap();
    wait::until("all nodes to have the routes of all others", || {
        for node in cluster.topology.nodes.keys() {
            let sessions = established(cluster, node)?;
            ensure!(is_complete(node, &sessions), "{node}: {sessions:#?}");
        }
        Ok(())
    })
    .unwrap();
    let time = begun.elapsed();
    (sessions_between_nodes(cluster).unwrap(), time)
}

/// Returns the address of the node that has each block.
fn owners(cluster: &Cluster) -> Result<BTreeMap<String, IpAddr>> {
    let listed = cluster.object("blocks")?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let owner = |item: &Value| {
        let cidr = item["spec"]["cidr"].as_str()?;
        let machine = cluster.topology.nodes.get(item["spec"]["node"].as_str()?)?;
        let [v4, v6] = node_addresses(machine.index);
        Some((cidr.to_owned(), if cidr.contains(':') { v6 } else { v4 }))
    };
    items.iter().map(|item| owner(item).with_context(|| format!("{item}"))).collect()
}

/// Returns the next hops of a route. BIRD has two for the same node, if one is its link-local address.
fn gateways(route: &Value) -> Vec<String> {
    let hops = route["nexthops"].as_array().cloned().unwrap_or_else(|| vec![route.clone()]);
    hops.iter().map(|hop| hop["gateway"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits until the kernel of a router has a route to each block of `expected` and no other one. The next hop is the node
/// of the block; that of IPv6 may be the link-local address of the node, if the node itself is the peer.
#[track_caller]
fn wait_learned(router: &Namespace, expected: &BTreeMap<String, IpAddr>) {
    wait::until("the routes of blocks at a router", || {
        let routes = learned(router)?;
        let mut found = BTreeMap::new();
        for route in &routes {
            let prefix = route["dst"].as_str().context("a prefix")?;
            if prefix.starts_with("10.64.") || prefix.starts_with("fd64:") {
                found.insert(prefix.to_owned(), gateways(route));
            }
        }
        let prefixes: Vec<_> = found.keys().collect();
        ensure!(prefixes == expected.keys().collect::<Vec<_>>(), "{found:#?} instead of {expected:#?}");
        for (prefix, gateways) in &found {
            let owner = expected[prefix].to_string();
            let is_owner = |gateway: &String| *gateway == owner || gateway.starts_with("fe80:");
            ensure!(gateways.iter().all(is_owner), "{prefix} via {gateways:?}");
        }
        Ok(())
    })
    .unwrap();
}

/// F160: two reflectors replace the mesh of eight nodes. Every node then receives the blocks of all others over two
/// sessions, and so do FRR and BIRD, whose kernels reach each block directly at its node. A client that FRR is sends
/// packets to a workload without passing a reflector. The loss of one reflector takes only its own blocks.
#[test]
fn f160_two_reflectors_replace_the_mesh_of_eight_nodes() {
    const NODES: u8 = 8;
    let mut cluster = start(NODES);
    let others = BLOCKS * (u64::from(NODES) - 1);
    let (in_mesh, mesh_time) = converge(&cluster, &mesh(&cluster), |_, sessions| {
        sessions.iter().map(received).sum::<u64>() == others
    });
    for node in cluster.topology.nodes.keys() {
        cluster.delete(&format!("bgppeers/mesh-{node}")).unwrap();
    }
    wait::until("the end of the mesh", || {
        let left = sessions_between_nodes(&cluster)?;
        ensure!(left == 0, "{left} sessions");
        Ok(())
    })
    .unwrap();

    let is_reflector = |node: &str| ["node1", "node2"].contains(&node);
    let (with_reflectors, reflector_time) = converge(&cluster, &reflectors(), |node, sessions| {
        let counts: Vec<_> = sessions.iter().map(received).collect();
        is_reflector(node) || counts == [others, others]
    });
    let n = usize::from(NODES);
    assert_eq!((in_mesh, with_reflectors), (n * (n - 1) / 2, 2 * (n - 2) + 1));
    println!(
        "{n} nodes: {in_mesh} sessions in a mesh, all routes after {mesh_time:.1?}; {with_reflectors} with two reflectors, \
         after {reflector_time:.1?}"
    );

    let neighbours = [1, 2].map(|index| (node_addresses(index)[0], ASN));
    let plan = |host| RouterPlan::new(ASN, Ipv4Addr::new(172, 17, 8, host), neighbours.to_vec());
    let [for_frr, for_bird] =
        [1, 2].map(|host| cluster.topology.add_place(&format!("client{host}"), host).unwrap());
    let frr =
        Frr::start(&for_frr, &RouterPlan { networks: vec!["10.65.0.0/24".to_owned()], ..plan(1) }).unwrap();
    let bird = Bird::start(&for_bird, &plan(2)).unwrap();
    let mut expected = owners(&cluster).unwrap();
    assert_eq!(expected.len(), 2 * n, "{expected:#?}");
    for router in [&frr.namespace, &bird.namespace] {
        wait_learned(router, &expected);
    }
    // Routes of foreign clients are reflected too.
    wait::until("the route of FRR at BIRD", || {
        let routes = learned(&bird.namespace)?;
        let of_frr = routes.iter().find(|route| route["dst"] == "10.65.0.0/24");
        let gateway = of_frr.context("no route")?["gateway"].clone();
        ensure!(gateway == fabric_addresses(1)[0].to_string(), "{gateway}");
        Ok(())
    })
    .unwrap();

    reach_workload(&cluster, &frr);

    let lost: Vec<_> = node_addresses(1).into();
    cluster.agents.get_mut("node1").unwrap().kill();
    expected.retain(|_, owner| !lost.contains(owner));
    for router in [&frr.namespace, &bird.namespace] {
        wait_learned(router, &expected);
    }
    cluster.delete("advertisements/pods").unwrap();
    wait_learned(&frr.namespace, &BTreeMap::new());
}

/// Attaches a workload on a node that is no reflector, and connects to it from the machine of FRR.
fn reach_workload(cluster: &Cluster, frr: &Frr) {
    let web = Namespace::new("web").unwrap();
    let program = binaries::find("tidegate-agent").unwrap().display().to_string();
    let state = format!("--state-dir={}", cluster.state_directory("node5").display());
    shell::run(&program, &[&state, "attach", "web", "--netns", web.name()]).unwrap();
    let addresses: Vec<IpAddr> = wait::until("the record of the Workload", || {
        let workload = cluster.object("namespaces/default/workloads/web")?;
        let addresses: Vec<IpAddr> = serde_json::from_value(workload["spec"]["addresses"].clone())?;
        ensure!(addresses.len() == 2, "{workload}");
        Ok(addresses)
    })
    .unwrap();
    let _server = EchoServer::start(&web, "web", 8080).unwrap();
    for address in addresses {
        let reply = wait::until("a reply", || client::tcp(&frr.namespace, at(address, 8080))).unwrap();
        assert!(fabric_addresses(1).contains(&reply.peer.ip()), "{}", reply.peer);
    }
}

/// F160: nodes are clients of FRR and of BIRD as reflectors, and receive the blocks of all other nodes from both.
#[test]
fn f160_nodes_are_clients_of_frr_and_bird_as_reflectors() {
    const NODES: u8 = 3;
    let cluster = start(NODES);
    let clients: Vec<_> =
        cluster.topology.nodes.values().map(|node| (node_addresses(node.index)[0], ASN)).collect();
    let plan = |host| RouterPlan {
        reflects: true,
        ..RouterPlan::new(ASN, Ipv4Addr::new(172, 17, 8, host), clients.clone())
    };
    let [for_frr, for_bird] =
        [1, 2].map(|host| cluster.topology.add_place(&format!("reflector{host}"), host).unwrap());
    let frr = Frr::start(&for_frr, &plan(1)).unwrap();
    let bird = Bird::start(&for_bird, &plan(2)).unwrap();
    let peers = [1, 2].map(|host| {
        peer(&format!("router{host}"), fabric_addresses(host)[0], &requirement("member", "Exists", &[]))
    });
    let others = BLOCKS * (u64::from(NODES) - 1);
    // FRR sends a client its own routes too, which the client recognizes by ORIGINATOR_ID.
    let is_complete = |session: &Value| (others..=others + BLOCKS).contains(&received(session));
    converge(&cluster, &peers, |_, sessions| sessions.len() == 2 && sessions.iter().all(is_complete));
    let expected = owners(&cluster).unwrap();
    for router in [&frr.namespace, &bird.namespace] {
        wait_learned(router, &expected);
    }
}

//! Tests that `tidegate explain` predicts the result of real connections, on nodes in every mode.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::{guest, modes, wait},
    network::{
        client::{Reply, at, is_refusal},
        topology,
    },
    processes::binaries,
};
use serde_json::{Value, json};

/// Last octet of a running workload without a server.
const DEAD: u8 = 99;
/// Number of consecutive connections of one client that must reach the same endpoint with session affinity.
const STAYS: usize = 8;

/// Connection that `explain` first predicts and that a client then makes.
struct Case {
    what: &'static str,
    /// Location of the client, such as `inside-1`; `source` is the address from which it connects.
    from: String,
    source: IpAddr,
    to: SocketAddr,
    /// Subject (field `about`) of the first step in the explanation that does not succeed; `None` if the
    /// connection succeeds.
    broken: Option<&'static str>,
}

/// Result of a connection attempt.
#[derive(Debug)]
enum Outcome {
    Reached(Reply),
    Refused,
    Silent,
}

/// Starts a cluster with one node in each of `modes`, a backend `web-N` and a client location `inside-N`
/// behind each node, and the Services of all cases.
fn cluster(modes: &[&'static str]) -> Cluster {
    let nodes = u8::try_from(modes.len()).unwrap();
    let options = Options { nodes, modes: modes.to_vec(), ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    for number in 1..=nodes {
        let node = format!("node{number}");
        cluster.add_place(&format!("inside-{number}"), &node, 50 + number).unwrap();
        cluster.add_backend(&format!("web-{number}"), &node, 10 + number, "web").unwrap();
    }
    cluster.add_place("dead", "node1", DEAD).unwrap();
    let dead = cluster.topology.workloads["dead"].addresses[0];
    // These endpoints have no known node.
    let endpoints = |service: &str, address: IpAddr| {
        json!({ "kind": "EndpointSet", "metadata": { "name": service }, "spec": {
            "service": service, "endpoints": [{ "address": address }], "ports": [{ "port": BACKEND_PORT }],
        }})
    };
    let service = |name: &str, more: Value| {
        let mut spec = json!({ "ports": [{ "port": 80, "targetPort": BACKEND_PORT }] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })
    };
    let web = json!({ "app": "web" });
    let check = json!({ "type": "Tcp", "intervalMs": 1000, "timeoutMs": 1000, "fall": 2, "rise": 1 });
    let objects = [
        service("web", json!({ "selector": web })),
        service(
            "denied",
            json!({ "selector": web, "type": "NodePort", "loadBalancerSourceRanges": ["198.51.100.0/24"] }),
        ),
        service("empty", json!({ "selector": { "app": "nobody" } })),
        service("local", json!({ "internalTrafficPolicy": "Local" })),
        endpoints("local", "10.1.250.9".parse().unwrap()),
        service("sticky", json!({ "selector": web, "sessionAffinity": "ClientIP" })),
        service("checked", json!({ "selector": web, "healthCheck": check })),
        endpoints("checked", dead),
    ];
    cluster.apply_objects(&objects).unwrap();
    wait::until("the dead endpoint to be taken out", || {
        let health = cluster.api.get_json("/v1/namespaces/default/services/checked/health")?;
        let all = health["endpoints"].as_array().context("endpoints")?;
        let is_as_wanted = |one: &Value| {
            let wanted = if one["address"] == dead.to_string() { "Unhealthy" } else { "Healthy" };
            one["state"] == wanted
        };
        ensure!(all.iter().all(is_as_wanted), "{health:#}");
        Ok(())
    })
    .unwrap();
    cluster.wait_converged().unwrap();
    cluster
}

fn cases(cluster: &Cluster, number: u8) -> Vec<Case> {
    let inside = format!("inside-{number}");
    let source = cluster.topology.workloads[&inside].addresses[0];
    let vip = |name: &str| cluster.cluster_ip(&format!("default/{name}"), 0).unwrap();
    let case = |what, name: &str, port, broken| Case {
        what,
        from: inside.clone(),
        source,
        to: at(vip(name), port),
        broken,
    };
    let [outside, _] = topology::fabric_addresses(200);
    let node = topology::node_addresses(number)[0];
    let denied = Case {
        what: "a source that is not allowed",
        from: "client".to_owned(),
        source: outside,
        to: at(node, cluster.node_port("default/denied", 0).unwrap()),
        broken: Some("SourceRanges"),
    };
    vec![
        case("a hit", "web", 80, None),
        denied,
        case("no endpoints", "empty", 80, Some("Candidates")),
        case("policy Local and no endpoint here", "local", 80, Some("Candidates")),
        case("affinity", "sticky", 80, None),
        case("an endpoint whose check fails", "checked", 80, None),
        case("a port that the address does not have", "web", 81, Some("Frontend")),
    ]
}

fn tidegate(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let place = cluster.place("control")?;
    let program = binaries::find("tidegate")?;
    let output = Command::new("ip")
        .args(["netns", "exec", place.name(), program.to_str().unwrap(), "--api", cluster.api.url()])
        .args(arguments)
        .output()?;
    // Exit code 3 is the explanation of a fault.
    let is_answered = matches!(output.status.code(), Some(0 | 3));
    ensure!(is_answered, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until the agent of a node responds and its kernel is in the desired state, and returns its
/// explanation of the connection in `case`.
fn explained(cluster: &Cluster, node: &str, case: &Case) -> Value {
    let [source, to] = [case.source.to_string(), format!("{}/tcp", case.to)];
    wait::until(&format!("{node} to be asked about {}", case.what), || {
        let said = tidegate(cluster, &["explain", &source, "->", &to, "--at", node, "-o", "json"])?;
        let said: Value = serde_json::from_str(&said)?;
        let kernel = &said["paths"][0]["kernel"];
        ensure!(kernel.is_object() && kernel["difference"].is_null(), "{said:#}");
        Ok(said)
    })
    .unwrap()
}

fn connect(cluster: &Cluster, case: &Case) -> Outcome {
    match cluster.tcp(&case.from, case.to) {
        Ok(reply) => Outcome::Reached(reply),
        Err(error) if is_refusal(&error) => Outcome::Refused,
        Err(_) => Outcome::Silent,
    }
}

/// Returns true if the predicted end of a connection matches its actual outcome. If a backend replied, its
/// address and port, and the client address that it observed, must also match.
fn is_end(cluster: &Cluster, node: &str, case: &Case, end: &Value, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused => end == "refused",
        Outcome::Silent => end == "dropped",
        Outcome::Reached(Reply { backend, port, peer }) => {
            let reaches = &end["reaches"];
            let address = cluster.topology.workloads[backend].addresses[0].to_string();
            let is_seen = match reaches["sees"].as_str() {
                Some("client") => peer.ip() == case.source,
                Some("node") => {
                    let own = cluster.place(node).unwrap().run("ip", &["-o", "address"]).unwrap();
                    own.contains(&format!(" {}/", peer.ip()))
                }
                _ => false,
            };
            reaches["address"] == address && reaches["port"] == *port && is_seen
        }
    }
}

fn agrees(cluster: &Cluster, number: u8, mode: &str) {
    let node = format!("node{number}");
    for case in cases(cluster, number) {
        let said = explained(cluster, &node, &case);
        let path = &said["paths"][0];
        let what = format!("{mode}: {}", case.what);
        assert_eq!(path["mode"].as_str().unwrap().to_lowercase(), mode, "{said:#}");
        assert_eq!(path["fate"], path["kernel"]["fate"], "{what}: {said:#}");
        assert_eq!(said["broken"]["step"]["about"].as_str(), case.broken, "{what}: {said:#}");
        let ends = path["ends"].as_array().unwrap();
        let times = if case.what == "affinity" { STAYS } else { 1 };
        let mut met = BTreeSet::new();
        for _ in 0..times {
            let outcome = connect(cluster, &case);
            let agrees = ends.iter().any(|end| is_end(cluster, &node, &case, end, &outcome));
            assert!(agrees, "{what}: explained as {said:#}\nbut was {outcome:?}");
            if let Outcome::Reached(reply) = outcome {
                met.insert(reply.backend);
            }
        }
        let reached = ends.iter().filter_map(|end| end["reaches"]["address"].as_str());
        let reached: BTreeSet<_> = reached.collect();
        if case.what == "affinity" {
            assert_eq!(met.len(), 1, "{what}: {met:?}");
            let steps = path["steps"].as_array().unwrap();
            let affinity = steps.iter().find(|step| step["about"] == "Affinity").unwrap();
            assert!(affinity["outcome"].as_str().unwrap().contains("stays on its endpoint"), "{affinity}");
        } else if !reached.is_empty() {
            let all = &cluster.topology.workloads;
            let is_reached = |name: &&String| reached.contains(all[*name].addresses[0].to_string().as_str());
            let names: Vec<_> = all.keys().filter(is_reached).map(String::as_str).collect();
            assert_eq!(names.len(), reached.len(), "{what}: {said:#}");
            cluster.expect_backends(&case.from, case.to, &names).unwrap();
        }
        if case.what.contains("check fails") {
            let candidates = path["candidates"].as_array().unwrap();
            let dead = cluster.topology.workloads["dead"].addresses[0].to_string();
            let dead = candidates.iter().find(|one| one["address"] == dead).unwrap();
            assert_eq!(dead["used"], false, "{said:#}");
            assert!(dead["why"].as_str().unwrap().starts_with("its health check fails since"), "{dead}");
        }
    }
}

/// Returns the kernel steps that `explain SERVICE` must list for a mode, in order.
fn steps_of(mode: &str, vip: IpAddr) -> Vec<String> {
    match mode {
        "nftables" => vec![
            "chain inet tidegate prerouting".to_owned(),
            format!("map inet tidegate services4  {vip} . 6 . 80"),
            format!("map inet tidegate endpoints4  {vip} . 6 . 80 . 0"),
        ],
        "iptables" => vec!["nat PREROUTING".to_owned(), format!("-d {vip}/32"), "-j DNAT".to_owned()],
        "ipvs" => vec![format!("virtual server TCP {vip}:80"), "weight 1 of".to_owned()],
        "userspace" => vec![
            "chain inet tidegate-userspace prerouting".to_owned(),
            format!("map inet tidegate-userspace services4  {vip} . 6 . 80"),
            "listener at port".to_owned(),
        ],
        other => panic!("there is no mode {other}"),
    }
}

fn whole_service(cluster: &Cluster, modes: &[&str]) {
    let vip = cluster.cluster_ip("default/web", 0).unwrap();
    let text = wait::until("all nodes to be asked", || {
        let text = tidegate(cluster, &["explain", "web"])?;
        ensure!(text.matches("kernel:  it goes to").count() == modes.len(), "{text}");
        Ok(text)
    })
    .unwrap();
    for (number, mode) in (1..).zip(modes) {
        let head = format!("\nnode{number} ({mode}): ");
        let (_, mut rest) = text.split_once(&head).unwrap_or_else(|| panic!("no {head:?} in:\n{text}"));
        rest = rest.split("\n\nnode").next().unwrap();
        for step in steps_of(mode, vip) {
            (_, rest) = rest.split_once(&step).unwrap_or_else(|| panic!("no {step:?} in its place:\n{text}"));
        }
    }
    for (form, first) in [("--graph", "digraph \"default/web\" {"), ("--graph=mermaid", "flowchart LR")] {
        let graph = tidegate(cluster, &["explain", "web", form]).unwrap();
        assert!(graph.starts_with(first), "{graph}");
        let endpoints =
            (1..=modes.len()).map(|number| format!("endpoint 10.1.{number}.{}:8080", 10 + number));
        let boxes =
            [format!("cluster IP {vip} 80/tcp"), format!("{vip}: any other port"), "refused".to_owned()];
        for label in endpoints.chain(boxes) {
            assert!(graph.contains(&format!("\"{label}\"")), "no {label:?} in:\n{graph}");
        }
    }
}

fn all_agree(modes: &[&'static str]) {
    let cluster = cluster(modes);
    whole_service(&cluster, modes);
    // In parallel, since a connection without a reply takes until its timeout.
    std::thread::scope(|scope| {
        for (number, mode) in (1..).zip(modes) {
            let cluster = &cluster;
            scope.spawn(move || agrees(cluster, number, mode));
        }
    });
}

/// F166, F167: the explanations of connections match the results of real connections on three nodes in
/// nftables, iptables and userspace mode.
#[test]
fn f166_f167_what_is_explained_happens_to_real_connections_in_every_mode() {
    all_agree(&modes::NATIVE);
}

/// F166, F167: the explanations of connections match the results of real connections in ipvs mode, in the
/// guest VM whose kernel has IPVS.
#[test]
fn f166_f167_what_is_explained_happens_to_real_connections_in_ipvs_mode() {
    guest::run("explain::f166_f167_what_is_explained_happens_to_real_connections_in_ipvs_mode", || {
        all_agree(&modes::GUEST);
    });
}

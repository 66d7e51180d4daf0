//! Tests of the traffic statistics of a Service, counted by kernels and a relay, and reported by the API, the
//! metrics and the CLI.

use anyhow::{Context as _, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    host::{modes, wait},
    network::client::at,
};
use serde_json::{Value, json};

const TRAFFIC: &str = "/v1/namespaces/default/services/web/traffic";
const MODES: [&str; 3] = modes::NATIVE;

/// F086: on nodes in different modes, the connections of clients are counted at the endpoint that served
/// them, with bytes and a rate, and a node without clients counts none. The totals of the Service do not
/// restart from 0 when agents restart.
#[test]
fn f086_connections_through_a_service_are_counted_where_they_went_in_every_mode() {
    let mut cluster =
        Cluster::start(&Options { nodes: 3, modes: MODES.to_vec(), ..Options::default() }).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    for node in 1..=3 {
        cluster.add_place(&format!("near{node}"), &format!("node{node}"), 50).unwrap();
    }
    for service in ["web", "idle"] {
        let ports = json!([{ "port": 80, "targetPort": 8080 }]);
        cluster.add_service(service, json!({ "selector": { "app": "web" }, "ports": ports })).unwrap();
    }
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let connect = |cluster: &Cluster, count: usize| {
        for _ in 0..count {
            for place in ["near1", "near3"] {
                cluster.tcp(place, to).unwrap();
            }
        }
    };
    connect(&cluster, 7);
    let traffic = wait_for_connections(&cluster, 7);
    let [endpoint] = &traffic["endpoints"].as_array().unwrap()[..] else { panic!("{traffic:#}") };
    assert_eq!((&endpoint["port"], &endpoint["servicePorts"]), (&json!(8080), &json!(["80"])));
    for (node, mode) in (1..).zip(MODES) {
        let of_node = &traffic["nodes"][format!("node{node}")];
        let connections = &of_node["total"]["connections"];
        if node == 2 {
            assert!(connections.is_null() || *connections == 0, "{traffic:#}");
        } else {
            assert_eq!(
                (&of_node["mode"], of_node["total"]["bytes"].as_u64() > Some(7)),
                (&json!(mode), true)
            );
        }
    }

    let metrics = cluster.api.get("/metrics").unwrap().text;
    for name in ["service", "traffic"] {
        let labels = if name == "service" { r#"{namespace="default",service="web"}"# } else { "{}" };
        let line = format!("tidegate_{name}_connections_total{labels} 14");
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains(r#"service="idle""#), "a Service without traffic has no series");

    // The previous sample contains the first connections, so the next one yields a rate for these.
    connect(&cluster, 7);
    wait::until("a rate to be told", || {
        let busiest = cluster.api.get_json("/v1/traffic?sortBy=connections")?;
        let web = &busiest["services"][0];
        ensure!(web["service"] == "default/web" && web["connections"] == 28, "{busiest:#}");
        ensure!(web["perSecond"]["connections"].as_f64() > Some(0.0), "{busiest:#}");
        Ok(())
    })
    .unwrap();

    // The kernel of one node and the relay of the other have continued to count.
    for node in ["node1", "node3"] {
        cluster.agents.get_mut(node).unwrap().kill();
        cluster.start_agent_again(node).unwrap();
    }
    connect(&cluster, 1);
    wait_for_connections(&cluster, 15);
    let sum = sum(&cluster).unwrap();
    assert_eq!(sum, 30, "neither lost nor counted twice");

    let tidegate = lab::processes::binaries::find("tidegate").unwrap();
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--api", cluster.api.url()]].concat();
        cluster.place("control").unwrap().run(tidegate.to_str().unwrap(), &arguments).unwrap()
    };
    let table = run(&["traffic", "web"]);
    assert!(table.lines().any(|line| line.starts_with("node1") && line.contains(" 15 ")), "{table}");
    let top = run(&["top", "services"]);
    assert!(top.lines().any(|line| line.starts_with("default/web") && line.contains(" 30 ")), "{top}");
    // The restarted agents were silent for a moment; their earlier reports are kept.
    let lag = run(&["top", "nodes"]);
    assert!(["node1", "node2", "node3"].iter().all(|node| lag.contains(node)), "{lag}");
}

/// Waits until the control server reports `count` connections for every node with clients, and returns the
/// traffic statistics of the Service.
fn wait_for_connections(cluster: &Cluster, count: u64) -> Value {
    wait::until("the connections to be reported", || {
        let traffic = cluster.api.get_json(TRAFFIC)?;
        for node in ["node1", "node3"] {
            let total = &traffic["nodes"][node]["total"];
            ensure!(total["connections"] == count, "{traffic:#}");
        }
        Ok(traffic)
    })
    .unwrap()
}

/// Returns the number of connections of the Service according to its metric.
fn sum(cluster: &Cluster) -> anyhow::Result<u64> {
    let name = r#"tidegate_service_connections_total{namespace="default",service="web"} "#;
    let metrics = cluster.api.get("/metrics")?.text;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)).context("no such series")?;
    Ok(value.parse()?)
}

/// F148: an endpoint without a server leaves service because of the connection failures that a relay
/// observes, long before its next health check, and no client fails. A node whose proxy mode has no passive
/// checks reports this.
#[test]
fn f148_an_endpoint_that_refuses_clients_of_a_relay_leaves_service_before_its_checks_find_it() {
    let modes = vec!["userspace", "nftables"];
    let mut cluster = Cluster::start(&Options { nodes: 2, modes, ..Options::default() }).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_place("near", "node1", 50).unwrap();
    cluster.add_place("dead", "node1", 99).unwrap();
    cluster.apply_objects(&[cluster.workload_record("dead", "web").unwrap()]).unwrap();
    // With active checks alone it would take two minutes.
    let check = json!({ "type": "Tcp", "intervalMs": 60_000, "timeoutMs": 1000, "fall": 3, "passive": true });
    let spec = json!({
        "selector": { "app": "web" }, "healthCheck": check, "ports": [{ "port": 80, "targetPort": 8080 }],
    });
    cluster.add_service("web", spec).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let mut failures = Vec::new();
    let dead = wait::until("the endpoint to be out of service", || {
        failures.extend(cluster.tcp("near", to).err());
        let health = cluster.api.get_json("/v1/namespaces/default/services/web/health")?;
        let endpoints = health["endpoints"].as_array().cloned().unwrap_or_default();
        let dead = endpoints.into_iter().find(|one| one["address"] == "10.1.1.99").context("not checked")?;
        ensure!(dead["state"] == "Unhealthy" && dead["share"] == 0, "{dead:#}");
        Ok(dead)
    })
    .unwrap();
    let message = dead["checkers"]["node1"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("connections of clients in a row"), "{dead:#}");
    assert!(failures.is_empty(), "{failures:#?}");
    let node = wait::until("the other node to warn", || {
        let node = cluster.object("nodes/node2")?;
        ensure!(node["status"]["warnings"].to_string().contains("healthCheck.passive"), "{node:#}");
        Ok(node)
    });
    node.unwrap();
}

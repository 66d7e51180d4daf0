//! What went through a Service, counted by a kernel and shown by the API, the metrics and the command.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use anyhow::ensure;
use lab::{
    client::at,
    cluster::{Cluster, Options},
    wait,
};
use serde_json::{Value, json};

const TRAFFIC: &str = "/v1/namespaces/default/services/web/traffic";

/// Seven connections from one node's client, none through the other node → seven, at the endpoint that took them.
#[test]
fn f086_connections_through_a_service_are_counted_where_they_went() {
    let options = Options { nodes: 2, modes: vec!["iptables"], ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_place("near", "node1", 50).unwrap();
    cluster
        .add_service(
            "web",
            json!({ "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] }),
        )
        .unwrap();
    cluster
        .add_service(
            "idle",
            json!({ "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] }),
        )
        .unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    for _ in 0..7 {
        cluster.tcp("near", to).unwrap();
    }
    let traffic: Value = wait::until("the connections to be reported", || {
        let traffic = cluster.api.get_json(TRAFFIC)?;
        ensure!(traffic["total"]["connections"] == 7, "{traffic:#}");
        Ok(traffic)
    })
    .unwrap();
    let [endpoint] = &traffic["endpoints"].as_array().unwrap()[..] else { panic!("{traffic:#}") };
    assert_eq!((&endpoint["port"], &endpoint["servicePorts"]), (&json!(8080), &json!(["80"])));
    assert_eq!(traffic["nodes"]["node1"]["total"]["connections"], 7);
    assert_eq!(traffic["nodes"]["node1"]["mode"], "iptables");
    let elsewhere = &traffic["nodes"]["node2"]["total"]["connections"];
    assert!(elsewhere.is_null() || *elsewhere == 0, "{traffic:#}");

    let metrics = cluster.api.get("/metrics").unwrap().text;
    let line = r#"tidegate_service_connections_total{namespace="default",service="web"} 7"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    assert!(!metrics.contains(r#"service="idle""#), "a Service without traffic has no series");

    let tidegate = lab::binaries::find("tidegate").unwrap();
    let arguments = ["traffic", "web", "--api", cluster.api.url()];
    let table = cluster.place("control").unwrap().run(tidegate.to_str().unwrap(), &arguments).unwrap();
    assert!(table.lines().any(|line| line.starts_with("node1") && line.contains(" 7 ")), "{table}");
}

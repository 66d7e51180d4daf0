//! What the founding documents do by hand, done here: their configuration, their Service, their two tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::collections::BTreeSet;

use lab::{
    binaries,
    cluster::{Cluster, Options},
    shell, wait,
};
use serde_json::json;

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures/import/seed.yaml");

/// F009, F037, F116, F118, F127, F135: in: the ConfigMap and the Service of the documents. Out: an address of the range, announced
/// by one node of three, and pages of both backends by `curl` from a workload and from a machine that is no node.
#[test]
fn f136_curl_from_inside_and_outside_gets_pages_at_the_address_that_the_documents_give_out() {
    let mut cluster = Cluster::start(&Options { lan: true, ..Options::default() }).unwrap();
    cluster.add_web("nginx-1", "node1", 21, "nginx").unwrap();
    cluster.add_web("nginx-2", "node2", 22, "nginx").unwrap();
    cluster.add_place("inside", "node3", 50).unwrap();
    let tidegate = binaries::find("tidegate").unwrap();
    let objects = shell::run(tidegate.to_str().unwrap(), &["import", CONFIGURATION]).unwrap();
    cluster.apply(&objects).unwrap();
    let spec = json!({"type": "LoadBalancer", "selector": {"app": "nginx"},
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}]});
    cluster.add_service("nginx-svc", spec).unwrap();

    let address = cluster.wait_load_balancer_ip("default/nginx-svc").unwrap();
    assert_eq!(address.to_string(), "172.25.1.100", "the first of the range");
    let owner = cluster.wait_owner(address, |_| true).unwrap();
    for from in ["inside", "client"] {
        let mut pages = BTreeSet::new();
        wait::until(&format!("both backends to answer {from}"), || {
            pages.insert(cluster.curl(from, address)?);
            anyhow::ensure!(pages.len() == 2, "{pages:?}");
            Ok(())
        })
        .unwrap();
        assert_eq!(pages.iter().collect::<Vec<_>>(), ["nginx-1", "nginx-2"]);
    }

    // The client outside has no route to the address but its own network: it asked by ARP, and the owner answered.
    cluster.wait_moved(address, &owner).unwrap();
}

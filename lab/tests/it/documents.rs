//! Acceptance tests of the project's requirements documents, with the configuration and the Service given
//! there.

use std::collections::BTreeSet;

use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::{shell, wait},
    processes::binaries,
};
use serde_json::{Value, json};

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures/import/seed.yaml");

/// F009, F037, F116, F118, F127, F135: with the ConfigMap and the Service of the requirements documents, the
/// Service gets an address of the configured range, one of three nodes announces it, and `curl` from a
/// workload and from an external machine gets the pages of both backends.
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

    // The outside client has only its on-link route to the address: it resolved the address by ARP, and the
    // owner replied.
    cluster.wait_moved(address, &owner).unwrap();
}

/// F037, F038, F116: two Services of type LoadBalancer wait while there is no pool, and while the only pool
/// is for other Services. Each status gives the reason. With a pool of one address, the first Service gets it
/// and is reachable, also after a kill of the control server. The second Service gets the address when it is
/// free.
#[test]
fn f038_f116_services_wait_with_a_reason_and_the_next_address_follows_from_the_store() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    let balancer =
        |app: &str| json!({"type": "LoadBalancer", "selector": {"app": app}, "ports": [{"port": 80}]});
    for (name, node, host) in [("first", "node1", 21), ("second", "node2", 22)] {
        cluster.add_web(&format!("{name}-1"), node, host, name).unwrap();
        cluster.add_service(name, balancer(name)).unwrap();
        assert_eq!(why_without_address(&cluster, name), "NoPools");
        assert!(listed(&cluster, name).contains("<pending>"), "{}", listed(&cluster, name));
    }
    let set_pool = |more: Value| {
        let mut spec = json!({"addresses": ["172.17.8.220"], "quarantineSeconds": 0});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let object = |kind: &str, spec| json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": "lan"}, "spec": spec});
        cluster.apply_objects(&[object("AddressPool", spec), object("Advertisement", json!({}))]).unwrap();
    };
    set_pool(json!({"namespaces": ["elsewhere"]}));
    assert_eq!(why_without_address(&cluster, "first"), "NoPoolMatches");
    set_pool(json!({"namespaces": ["default"]}));
    let address = cluster.wait_load_balancer_ip("default/first").unwrap();
    assert_eq!(address.to_string(), "172.17.8.220");
    assert_eq!(why_without_address(&cluster, "second"), "PoolFull");
    let answers = |cluster: &Cluster, wanted: &str| {
        wait::until(&format!("{wanted} to answer at {address}"), || {
            let page = cluster.curl("client", address)?;
            anyhow::ensure!(page == wanted, "{page} answers");
            Ok(())
        })
        .unwrap();
    };
    answers(&cluster, "first-1");

    cluster.restart_control().unwrap();
    cluster.wait_converged().unwrap();
    assert_eq!(cluster.wait_load_balancer_ip("default/first").unwrap(), address);
    assert_eq!(why_without_address(&cluster, "second"), "PoolFull");
    cluster.delete("namespaces/default/services/first").unwrap();
    assert_eq!(cluster.wait_load_balancer_ip("default/second").unwrap(), address);
    assert!(listed(&cluster, "second").contains(&address.to_string()), "{}", listed(&cluster, "second"));
    answers(&cluster, "second-1");
}

/// Asserts that a Service has no address and returns the reason in its status.
fn why_without_address(cluster: &Cluster, service: &str) -> String {
    let service = cluster.service(&format!("default/{service}")).unwrap();
    assert_eq!(service.pointer("/status/loadBalancer/ingress/0"), None);
    let conditions = service["status"]["conditions"].as_array().unwrap();
    let assigned = conditions.iter().find(|condition| condition["type"] == "AddressAssigned").unwrap();
    assert_eq!(assigned["status"], "False", "{assigned:#}");
    string(assigned, "/reason").unwrap()
}

/// Returns the line of a Service in the table that the CLI prints.
fn listed(cluster: &Cluster, service: &str) -> String {
    let tidegate = binaries::find("tidegate").unwrap();
    let words = ["--api", cluster.api.url(), "get", "services", service];
    cluster.place("control").unwrap().run(tidegate.to_str().unwrap(), &words).unwrap()
}

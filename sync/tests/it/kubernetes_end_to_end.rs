//! Tests of `tidegate-sync` between a Kubernetes cluster and a control server as in production, except that
//! the API server is that of the tests: connections are real, and processes are killed.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use serde_json::{Value, json};

use crate::{
    cluster::apiserver::{ApiServer, Mood},
    support::{Api, Sync, eventually},
};

fn service(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": name }, "annotations": annotations },
        "spec": { "type": "LoadBalancer", "clusterIP": "172.20.0.9", "clusterIPs": ["172.20.0.9"],
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 31080 }] },
    })
}

fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": format!("{service}-1"), "namespace": "shop", "labels": { "kubernetes.io/service-name": service } },
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
    })
}

fn pool(name: &str, addresses: &str) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": { "name": name, "namespace": "metallb-system" },
        "spec": { "addresses": [addresses] },
    })
}

/// Running adapter process with its kubeconfig, whose file must exist while the process runs.
pub(crate) struct Adapter {
    pub(crate) sync: Sync,
    _file: tempfile::NamedTempFile,
}

pub(crate) fn adapter(server: &ApiServer, apis: &str, flags: &[&str]) -> Adapter {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), server.kubeconfig()).unwrap();
    let own = ["kubernetes", "--kubeconfig", file.path().to_str().unwrap()];
    let sync = Sync::start(apis, &own.iter().chain(flags).copied().collect::<Vec<_>>());
    Adapter { sync, _file: file }
}

fn ingress(server: &ApiServer, name: &str) -> Value {
    let service = server.get("api/v1", "services", "shop", name).unwrap_or_default();
    service["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f037_a_service_gets_its_address_back_and_follows_its_endpoints_through_restarts() {
    let mut server = ApiServer::start(true).await;
    let api_directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/t.sqlite", api_directory.path().display());
    let api = Api::start(&store, 0);
    let adapter = adapter(&server, &api.url, &[]);
    server.put(&pool("lan", "192.0.2.16/28"));
    server.put(&service("web", &json!({ "metallb.io/loadBalancerIPs": "192.0.2.20" })));
    server.put(&slice("web", &["10.1.1.2"]));
    eventually("the address is in the cluster", || ingress(&server, "web"), |ip| ip == "192.0.2.20");
    let seen = api.get("/v1/namespaces/shop/services/web");
    assert_eq!(seen["spec"]["ports"][0]["port"], 80);
    assert_eq!(seen["spec"]["allocateLoadBalancerNodePorts"], false, "kube-proxy has the node ports");
    assert_eq!(seen["metadata"]["labels"]["app"], "web");
    let endpoints = |api: &Api| {
        let set = api.get("/v1/namespaces/shop/endpointsets/web-1");
        let all = set["spec"]["endpoints"].as_array().cloned().unwrap_or_default();
        all.iter().map(|each| each["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("endpoints", || endpoints(&api), |found| *found == ["10.1.1.2"]);
    // The cluster's API server disappears and returns.
    server.stop().await;
    server.start_again().await;
    server.put(&slice("web", &["10.1.1.2", "10.1.1.3"]));
    eventually("endpoints after a restart there", || endpoints(&api), |found| found.len() == 2);
    // The control server is killed and returns.
    let port = api.port();
    api.kill();
    server.put(&slice("web", &["10.1.1.3"]));
    let api = Api::start(&store, port);
    eventually("endpoints after a restart here", || endpoints(&api), |found| *found == ["10.1.1.3"]);
    // Expired changes lead to a new listing.
    server.set_mood(Mood::Unavailable);
    server.cut();
    server.delete(&service("web", &Value::Null));
    server.put(&service("other", &Value::Null));
    server.forget();
    server.set_mood(Mood::Well);
    eventually("the other Service", || api.names("services"), |names| *names == ["other"]);
    // Stopping the adapter changes nothing.
    adapter.sync.kill();
    assert_eq!(api.names("services"), ["other"]);
}

/// If the leading process is stopped, its Lease is released and all objects stay unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_asked_to_end_gives_its_lease_back() {
    let server = ApiServer::start(true).await;
    let api = Api::memory();
    let adapter = adapter(&server, &api.url, &["--leader-election", "--identity", "first"]);
    server.put(&service("web", &Value::Null));
    eventually("it works", || api.names("services"), |names| *names == ["web"]);
    let holder = || {
        let lease = server.get("apis/coordination.k8s.io/v1", "leases", "tidegate", "tidegate-sync").unwrap();
        lease["spec"]["holderIdentity"].clone()
    };
    assert_eq!(holder(), "first");
    assert_eq!(adapter.sync.terminate(), Some(0));
    assert!(holder().is_null(), "{}", holder());
    assert_eq!(api.names("services"), ["web"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f038_a_service_without_room_says_so_and_gets_its_address_when_there_is() {
    let server = ApiServer::start(true).await;
    let api = Api::memory();
    let _adapter = adapter(&server, &api.url, &[]);
    server.put(&service("web", &Value::Null));
    let ready = || {
        let service = server.get("api/v1", "services", "shop", "web").unwrap();
        service["status"]["conditions"][0].clone()
    };
    eventually("it says that it has none", ready, |ready| {
        ready["status"] == "False" && ready["reason"] != ""
    });
    assert!(ingress(&server, "web").is_null());
    server.put(&pool("lan", "192.0.2.16/28"));
    eventually("an address", || ingress(&server, "web"), |ip| ip == "192.0.2.16");
}

/// A Service keeps the address that MetalLB assigned, even if another address is the next free one. It gets a
/// different address only if its own is not available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_metallb_gave_an_address_keeps_it() {
    let server = ApiServer::start(true).await;
    let api = Api::memory();
    server.put(&pool("lan", "192.0.2.16/28"));
    for (name, address) in [("web", "192.0.2.27"), ("lost", "203.0.113.5")] {
        let mut moved = service(name, &json!({ "metallb.io/ip-allocated-from-pool": "lan" }));
        moved["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": address }] } });
        server.put(&moved);
    }
    let _adapter = adapter(&server, &api.url, &[]);
    eventually("what cannot be had is replaced", || ingress(&server, "lost"), |ip| ip == "192.0.2.16");
    let asked = || api.get("/v1/namespaces/shop/services/web")["spec"]["loadBalancer"].clone();
    eventually("it is given, and asked for no longer", asked, Value::is_null);
    assert_eq!(ingress(&server, "web"), "192.0.2.27");
    assert_eq!(
        api.get("/v1/namespaces/shop/services/web")["status"]["loadBalancer"]["ingress"][0]["ip"],
        "192.0.2.27"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_feed_one_tidegate_without_a_clash() {
    let (east, west) = (ApiServer::start(true).await, ApiServer::start(true).await);
    let api = Api::memory();
    for (server, addresses) in [(&east, "192.0.2.16/28"), (&west, "198.51.100.16/28")] {
        server.put(&pool("lan", addresses));
        server.put(&service("web", &Value::Null));
        server.put(&slice("web", &["10.1.1.2"]));
    }
    let _east = adapter(&east, &api.url, &["--cluster", "east", "--source", "east"]);
    let _west = adapter(&west, &api.url, &["--cluster", "west", "--source", "west"]);
    eventually("east's own address", || ingress(&east, "web"), |ip| ip == "192.0.2.16");
    eventually("west's own address", || ingress(&west, "web"), |ip| ip == "198.51.100.16");
    assert_eq!(api.names("addresspools"), ["east--lan", "west--lan"]);
    east.delete(&service("web", &Value::Null));
    eventually(
        "only east's is gone",
        || api.get("/v1/services")["items"].clone(),
        |items| {
            items
                .as_array()
                .is_some_and(|items| items.len() == 1 && items[0]["metadata"]["namespace"] == "west--shop")
        },
    );
}

/// Labels and pod networks of the cluster's nodes are added to those of the registered Nodes. No Node is
/// created or removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_get_the_labels_and_networks_of_the_cluster_and_are_never_removed() {
    let server = ApiServer::start(true).await;
    let api = Api::memory();
    api.apply(&json!({
        "apiVersion": "tidegate/v1", "kind": "Node", "metadata": { "name": "n1", "labels": { "own": "x" } },
        "spec": { "addresses": ["192.0.2.7"], "mode": "ipvs" },
    }));
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "labels": { "rack": "a" } },
        "spec": { "podCIDRs": ["10.1.1.0/24"] }, "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] },
    });
    server.put(&node);
    let _adapter = adapter(&server, &api.url, &[]);
    let seen = || api.get("/v1/nodes/n1");
    eventually("labels", seen, |node| node["metadata"]["labels"] == json!({ "own": "x", "rack": "a" }));
    assert_eq!(seen()["spec"]["workloadCIDRs"], json!(["10.1.1.0/24"]));
    assert_eq!(
        (&seen()["spec"]["mode"], &seen()["spec"]["addresses"]),
        (&json!("ipvs"), &json!(["192.0.2.7"]))
    );
    server.delete(&node);
    server.put(&service("web", &Value::Null));
    eventually("a later change", || api.names("services"), |names| *names == ["web"]);
    assert_eq!(seen()["metadata"]["name"], "n1");
}

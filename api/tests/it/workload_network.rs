//! Workload networks over HTTP: blocks in the feeds of agents, and Attachments that agents report.

use axum::body::Body;
use http::Request;
use model::cluster::quota::Quotas;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

/// Opens a feed of a node. `networks` is the value of the header by which agents declare that they know workload networks.
async fn open(server: &Server, node: &str, resume: Option<&str>, networks: Option<&str>) -> Lines {
    let query = resume.map(|position| format!("?resume={position}")).unwrap_or_default();
    let mut request = Request::get(format!("/v1/nodes/{node}/state{query}"));
    if let Some(networks) = networks {
        request = request.header("tidegate-workload-networks", networks);
    }
    let response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status().as_u16(), 200);
    Lines::new(response.into_body())
}

async fn batch(feed: &mut Lines) -> Vec<Value> {
    let lines = feed.until("\"synced\"").await;
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

async fn cluster() -> Server {
    let server = support::start().await;
    let node = |name: &str, address: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": { "addresses": [address] } });
    let network = json!({
        "kind": "WorkloadNetwork", "metadata": { "name": "pods" },
        "spec": {
            "cidrs": ["10.64.0.0/16"], "blockSize": { "ipv4": 30 }, "namespaces": { "names": ["default", "shop"] },
        },
    });
    let items = json!([node("n1", "172.16.0.1"), network]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    server
}

/// The block of a new Node reaches the agents of the others in the same batch as its addresses. Older agents, which do not
/// send the header, receive none of these frames, and an upgraded one begins with the full state.
#[tokio::test]
async fn agents_that_know_networks_receive_the_blocks_of_all_nodes() {
    let server = cluster().await;
    let (mut new, mut old) =
        (open(&server, "n1", None, Some("new")).await, open(&server, "n1", None, None).await);
    drop(batch(&mut old).await);
    // A second feed of the node has ended the first one.
    let mut feed = open(&server, "n1", None, Some("new")).await;
    drop(new.next().await);
    let first = batch(&mut feed).await;
    assert_eq!(types(&first), ["start", "network", "node", "workloadNetwork", "block", "synced"]);
    assert_eq!(first[1]["workloadCIDRs"], json!(["10.64.0.0/16"]));
    assert_eq!(first[2]["workloadCIDRs"], json!(["10.64.0.0/30"]), "the block of the node itself");
    let block = &first[4]["block"];
    assert_eq!((&block["node"], &block["nodeAddresses"]), (&json!("n1"), &json!(["172.16.0.1"])));
    assert_eq!(first[5]["workloadNetworks"], true);
    let position = first[5]["position"].as_str().unwrap().to_owned();

    let node = json!({ "metadata": { "name": "n2" }, "spec": { "addresses": ["172.16.0.2"] } });
    server.call("POST", "/v1/nodes", Some(node)).await;
    let next = batch(&mut feed).await;
    assert_eq!(types(&next), ["network", "block", "synced"]);
    assert_eq!(next[1]["block"]["cidr"], "10.64.0.4/30");
    // A changed address of the Node is a change of its block.
    let node = json!({ "metadata": { "name": "n2" }, "spec": { "addresses": ["172.16.0.3"] } });
    let node = json!([{ "kind": "Node", "metadata": node["metadata"], "spec": node["spec"] }]);
    server.call("POST", "/v1/apply", Some(node)).await;
    let moved = batch(&mut feed).await;
    assert_eq!(moved[0]["block"]["nodeAddresses"], json!(["172.16.0.3"]), "{moved:?}");
    server.call("DELETE", "/v1/nodes/n2", None).await;
    let gone = batch(&mut feed).await;
    assert!(gone.iter().any(|frame| frame["type"] == "blockRemoved"), "{gone:?}");

    let mut resumed = open(&server, "n1", Some(&position), Some("known")).await;
    assert_eq!(batch(&mut resumed).await[0]["mode"], "delta");
    let mut upgraded = open(&server, "n1", Some(&position), Some("new")).await;
    assert_eq!(batch(&mut upgraded).await[0]["mode"], "full");
    let mut older = open(&server, "n1", Some(&position), None).await;
    let frames = batch(&mut older).await;
    assert_eq!(frames[0]["mode"], "delta");
    assert!(frames.iter().all(|frame| !frame["type"].as_str().unwrap().contains("lock")), "{frames:?}");
    assert_eq!(frames.last().unwrap().get("workloadNetworks"), None);
}

fn entry(workload: &str, address: &str) -> Value {
    json!({
        "workload": workload, "labels": { "app": "web" }, "network": "pods", "kind": "Veth", "interface": "eth0",
        "hostInterface": "tg0", "addresses": [address],
    })
}

/// A report makes the record of an endpoint with its Workload, which a Service selects; its end removes both.
#[tokio::test]
async fn attachments_are_recorded_with_their_workloads_and_refused_one_by_one() {
    let server = cluster().await;
    let path = "/v1/nodes/n1/attachments";
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    let service = json!({ "metadata": { "name": "web" }, "spec": spec });
    server.call("POST", "/v1/namespaces/shop/services", Some(service)).await;
    let report = json!({
        "attachments": { "a": entry("shop/web-1", "10.64.0.1"), "b": entry("shop/web-2", "10.64.0.9") },
    });
    let (status, result) = server.call("PUT", path, Some(report.clone())).await;
    assert_eq!((status, &result["refused"]["b"]["reason"]), (200, &json!("OutsideOfBlocks")), "{result}");
    assert_eq!(result["refused"].as_object().map(serde_json::Map::len), Some(1));
    let (_, endpoints) = server.call("GET", "/v1/namespaces/shop/endpoints/web", None).await;
    assert_eq!(endpoints["ports"][0]["endpoints"][0]["address"], "10.64.0.1", "{endpoints}");
    let (_, record) = server.call("GET", "/v1/attachments/n1.a", None).await;
    assert_eq!(record["status"]["conditions"][0]["reason"], "Attached", "{record}");
    let (_, again) = server.call("PUT", path, Some(report)).await;
    assert_eq!(again["position"], result["position"], "a repeated report is no write");
    let (_, own) = server.call("GET", path, None).await;
    assert_eq!(own["attachments"]["a"]["addresses"], json!(["10.64.0.1"]), "{own}");

    let wanted = json!({ "wanted": [{ "network": "pods", "family": "IPv4" }] });
    server.call("PUT", path, Some(wanted)).await;
    let (_, blocks) = server.call("GET", "/v1/blocks", None).await;
    assert_eq!(blocks["items"].as_array().map(Vec::len), Some(2), "{blocks}");
    let (status, problem) = server.call("DELETE", "/v1/workloadnetworks/pods", None).await;
    assert_eq!(status, 422, "{problem}");

    let (_, result) = server.call("PUT", path, Some(json!({ "removed": ["a"] }))).await;
    assert_eq!(result["refused"], json!({}));
    let (status, _) = server.call("GET", "/v1/namespaces/shop/workloads/web-1", None).await;
    assert_eq!(status, 404);
    let many: serde_json::Map<_, _> =
        (0..2001).map(|at| (format!("c{at}"), entry("shop/many", "10.64.0.1"))).collect();
    let (status, problem) = server.call("PUT", path, Some(json!({ "attachments": many }))).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/attachments")), "{problem}");
    assert_eq!(server.call("PUT", "/v1/nodes/n9/attachments", Some(json!({}))).await.0, 404);
}

/// Input: a report with more entries than the quota of checked endpoints permits, which depends on Services. Output: those that
/// fit are recorded, also those of other namespaces, with a limited number of writes.
#[tokio::test]
async fn a_report_beyond_a_quota_takes_few_writes() {
    let mut settings = support::settings(30000..=32767);
    let quotas = Quotas::new(["shop/checked-endpoints=2".parse().unwrap()]);
    settings.cluster = settings.cluster.clone().with_quotas(quotas);
    let server = support::start_with(settings).await;
    let network = json!({
        "kind": "WorkloadNetwork", "metadata": { "name": "pods" },
        "spec": { "cidrs": ["10.64.0.0/16"], "namespaces": { "from": "All" } },
    });
    let service = json!({
        "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" } },
    });
    let node =
        json!({ "kind": "Node", "metadata": { "name": "n1" }, "spec": { "addresses": ["172.16.0.1"] } });
    let (status, body) = server.call("POST", "/v1/apply", Some(json!([node, network, service]))).await;
    assert_eq!(status, 200, "{body}");
    let mut entries: serde_json::Map<_, _> = (10..60)
        .map(|at| (format!("c{at}"), entry(&format!("shop/w{at}"), &format!("10.64.0.{at}"))))
        .collect();
    entries.insert("other".to_owned(), entry("default/other", "10.64.0.1"));
    let path = "/v1/nodes/n1/attachments";
    let (_, before) = server.call("PUT", path, Some(json!({}))).await;
    let (status, result) = server.call("PUT", path, Some(json!({ "attachments": entries }))).await;
    assert_eq!(
        (status, result["refused"].as_object().map(serde_json::Map::len)),
        (200, Some(48)),
        "{result}"
    );
    assert!(result["refused"].as_object().unwrap().values().all(|one| one["reason"] == "LimitReached"));
    let revision = |result: &Value| {
        let position = result["position"].as_str().unwrap();
        position.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
    };
    assert!(revision(&result) - revision(&before) <= 3, "{before} {result}");
    let (_, list) = server.call("GET", "/v1/attachments", None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3), "{list}");
}

//! History, rollback and convergence through the server: addresses come back, a restart forgets nothing.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{Fixed, START, Server, settings};
use serde_json::{Value, json};

fn balancer(name: &str) -> Value {
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

fn pool() -> Value {
    let spec = json!({ "addresses": ["198.51.100.0/28"], "quarantineSeconds": 0 });
    json!({ "kind": "AddressPool", "metadata": { "name": "lan" }, "spec": spec })
}

async fn ok(server: &Server, method: &str, path: &str, body: Option<Value>) -> Value {
    let (status, answer) = server.call(method, path, body).await;
    assert!(status < 300, "{method} {path}: {status} {answer:#}");
    answer
}

fn revision(answer: &Value) -> u64 {
    answer["revision"].as_u64().unwrap()
}

async fn address_of(server: &Server, name: &str) -> Value {
    let path = format!("/v1/namespaces/default/services/{name}");
    ok(server, "GET", &path, None).await["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
}

#[tokio::test]
async fn a_rollback_gives_a_service_its_load_balancer_address_back() {
    let server = common::start().await;
    ok(&server, "POST", "/v1/apply", Some(json!([pool(), balancer("a"), balancer("b")]))).await;
    let had = address_of(&server, "b").await;
    assert!(had.is_string(), "{had}");
    let before = revision(&ok(&server, "POST", "/v1/apply", Some(json!([pool()]))).await);
    ok(&server, "DELETE", "/v1/namespaces/default/services/a", None).await;
    ok(&server, "DELETE", "/v1/namespaces/default/services/b", None).await;
    // The first free address is another's now.
    ok(&server, "POST", "/v1/apply", Some(json!([balancer("c")]))).await;
    let body = json!({ "revision": before });
    let tried = ok(&server, "POST", "/v1/rollback?dryRun=true", Some(body.clone())).await;
    assert_eq!(tried["results"].as_array().unwrap().len(), 3);
    ok(&server, "POST", "/v1/rollback", Some(body)).await;
    assert_eq!(address_of(&server, "b").await, had);
    assert_eq!(server.call("GET", "/v1/namespaces/default/services/c", None).await.0, 404);
    server.running.stop().await;
}

#[tokio::test]
async fn history_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/state.db", directory.path().display());
    let source = Fixed::at(START);
    let store = store::open(&url, model::quantity::Timestamp::from_unix_seconds(START)).await.unwrap();
    let open = || common::start_on(settings(30000..=32767), store.clone(), source.clone());
    let server = open().await;
    ok(&server, "POST", "/v1/apply", Some(json!([pool(), balancer("a")]))).await;
    ok(&server, "DELETE", "/v1/namespaces/default/services/a", None).await;
    let before = ok(&server, "GET", "/v1/history", None).await;
    let clients = |listing: &Value| -> Vec<u64> {
        let items = listing["items"].as_array().unwrap().iter();
        items.filter(|item| item["maker"] == "client").map(revision).collect()
    };
    server.running.stop().await;

    let server = open().await;
    let after = ok(&server, "GET", "/v1/history", None).await;
    assert_eq!(clients(&after), clients(&before));
    assert_eq!(clients(&after).len(), 2);
    let first = clients(&after)[1];
    ok(&server, "POST", "/v1/rollback", Some(json!({ "revision": first }))).await;
    assert!(address_of(&server, "a").await.is_string());
    server.running.stop().await;
}

/// In: two nodes, one of which reports that it has a change. Out: the curve has its time, and says why the other lacks it.
#[tokio::test]
async fn the_curve_of_a_change_says_who_has_it_and_why_others_do_not() {
    let server = common::start().await;
    let node = |name: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": {} });
    ok(&server, "POST", "/v1/apply", Some(json!([node("n1"), node("n2")]))).await;
    let answer = ok(&server, "POST", "/v1/apply", Some(json!([pool(), balancer("a")]))).await;
    let (position, changed) = (answer["position"].clone(), revision(&answer));
    let report = |at: &Value| json!({ "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at });
    ok(&server, "PUT", "/v1/nodes/n1/report", Some(report(&position))).await;
    let path = format!("/v1/history/{changed}/convergence");
    let curve = ok(&server, "GET", &path, None).await;
    assert_eq!((curve["verified"].as_u64(), curve["total"].as_u64()), (Some(1), Some(2)), "{curve:#}");
    assert_eq!(curve["nodes"][0], json!({ "node": "n2", "why": "its agent does not report" }));
    assert!(curve["nodes"][1]["verifiedMs"].is_u64() && curve["maxMs"].is_u64(), "{curve:#}");
    let old = json!("1-1");
    ok(&server, "PUT", "/v1/nodes/n2/report", Some(report(&old))).await;
    let curve = ok(&server, "GET", &path, None).await;
    assert_eq!(curve["nodes"][0]["why"], "its agent has not received it");
    assert_eq!(server.call("GET", "/v1/history/999/convergence", None).await.0, 404);
    server.running.stop().await;
}

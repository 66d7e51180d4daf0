//! Tests of history, rollback and convergence through the server: a rollback restores addresses, and a restart
//! loses no data.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Fixed, Lines, START, Server, settings};

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
    let server = support::start().await;
    ok(&server, "POST", "/v1/apply", Some(json!([pool(), balancer("a"), balancer("b")]))).await;
    let had = address_of(&server, "b").await;
    assert!(had.is_string(), "{had}");
    let before = revision(&ok(&server, "POST", "/v1/apply", Some(json!([pool()]))).await);
    ok(&server, "DELETE", "/v1/namespaces/default/services/a", None).await;
    ok(&server, "DELETE", "/v1/namespaces/default/services/b", None).await;
    // The first free address belongs to another Service now.
    ok(&server, "POST", "/v1/apply", Some(json!([balancer("c")]))).await;
    let body = json!({ "revision": before });
    let tried = ok(&server, "POST", "/v1/rollback?dryRun=true", Some(body.clone())).await;
    assert_eq!(tried["results"].as_array().unwrap().len(), 3);
    ok(&server, "POST", "/v1/rollback", Some(body)).await;
    assert_eq!(address_of(&server, "b").await, had);
    assert_eq!(server.call("GET", "/v1/namespaces/default/services/c", None).await.0, 404);
    server.running.stop().await;
}

/// The plan of a rollback lists its changes without making them, and can then be applied.
#[tokio::test]
async fn a_rollback_can_be_planned_and_its_plan_applied() {
    let server = support::start().await;
    ok(&server, "POST", "/v1/apply", Some(json!([pool(), balancer("a")]))).await;
    let had = address_of(&server, "a").await;
    let before = revision(&ok(&server, "POST", "/v1/apply", Some(json!([pool()]))).await);
    ok(&server, "DELETE", "/v1/namespaces/default/services/a", None).await;
    ok(&server, "POST", "/v1/apply", Some(json!([balancer("c")]))).await;
    let plan = ok(&server, "POST", "/v1/rollback/plan", Some(json!({ "revision": before }))).await;
    let named: Vec<_> =
        plan["objects"].as_array().unwrap().iter().map(|one| (&one["object"], &one["action"])).collect();
    assert!(named.contains(&(&json!("Service default/a"), &json!("created"))), "{plan}");
    assert!(named.contains(&(&json!("Service default/c"), &json!("deleted"))), "{plan}");
    assert_eq!(server.call("GET", "/v1/namespaces/default/services/a", None).await.0, 404);
    let id = plan["id"].as_str().unwrap();
    ok(&server, "POST", &format!("/v1/plans/{id}/apply"), None).await;
    assert_eq!(address_of(&server, "a").await, had);
    assert_eq!(server.call("GET", "/v1/namespaces/default/services/c", None).await.0, 404);
    server.running.stop().await;
}

#[tokio::test]
async fn history_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/state.db", directory.path().display());
    let source = Fixed::at(START);
    let store =
        store::open(&url, model::primitives::quantity::Timestamp::from_unix_seconds(START)).await.unwrap();
    let open = || support::start_on(settings(30000..=32767), store.clone(), source.clone());
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

/// If only one of two nodes has reported a change, the convergence of the change shows the time that this
/// node needed, and the reason why the other node lacks the change.
#[tokio::test]
async fn the_curve_of_a_change_says_who_has_it_and_why_others_do_not() {
    let server = support::start().await;
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

/// A request for the kernel changes of a past write, the second of three writes of a Service that was deleted
/// later, sends the agent the Service before and after that write for comparison. A Service created later is
/// in neither state.
#[tokio::test]
async fn the_lines_of_a_past_write_are_worked_out_by_the_nodes_from_the_states_around_it() {
    let server = support::start().await;
    let node = |name: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": {} });
    ok(&server, "POST", "/v1/apply", Some(json!([node("a"), node("b")]))).await;
    let request = Request::get("/v1/nodes/a/state").body(Body::empty()).unwrap();
    let mut feed = Lines::new(server.send(request).await.into_body());
    let web = |port: u16| {
        let spec = json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": port }] });
        json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": spec })
    };
    let mut revisions = Vec::new();
    for port in [80, 81, 82] {
        revisions.push(revision(&ok(&server, "POST", "/v1/apply", Some(json!([web(port)]))).await));
    }
    let labels =
        json!([{ "kind": "Workload", "metadata": { "name": "w" }, "spec": { "addresses": ["10.1.0.1"] } }]);
    let silent = revision(&ok(&server, "POST", "/v1/apply", Some(labels)).await);
    ok(&server, "DELETE", "/v1/namespaces/default/services/web", None).await;
    ok(&server, "POST", "/v1/apply", Some(json!([balancer("later")]))).await;

    let preview =
        json!({ "kernel": [{ "change": "added", "place": "set inet tidegate x", "line": "10.96.0.7" }] });
    let path = format!("/v1/history/{}/rules", revisions[1]);
    let asked = async {
        let line = feed.until("\"ask\"").await.pop().unwrap();
        let ask: Value = serde_json::from_str(&line).unwrap();
        let mut reply = preview.clone();
        reply["answer"] = json!("plan");
        ok(&server, "PUT", &format!("/v1/nodes/a/answers/{}", ask["id"]), Some(reply)).await;
        ask["question"].clone()
    };
    let (rules, question) = tokio::join!(ok(&server, "GET", &path, None), asked);
    assert_eq!(question["ask"], "compare");
    for (side, port) in [("from", 80), ("to", 81)] {
        let services = question[side]["services"].as_array().unwrap();
        assert_eq!(services.len(), 1, "{question:#}");
        assert_eq!(services[0]["ports"][0]["port"], port, "{question:#}");
        assert_eq!(question[side]["removed"], json!(["default/later"]), "{question:#}");
    }
    assert_eq!(rules["revision"], json!(revisions[1]));
    assert_eq!(rules["nodes"]["a"]["preview"]["kernel"], preview["kernel"]);
    assert_eq!(rules["nodes"]["b"], json!({ "error": "the agent is not connected" }));

    let rules = ok(&server, "GET", &format!("/v1/history/{silent}/rules"), None).await;
    assert_eq!(rules["nodes"]["b"]["preview"]["kernel"], json!([]), "nodes have nothing to do with it");
    assert_eq!(server.call("GET", "/v1/history/999/rules", None).await.0, 404);
    server.running.stop().await;
}

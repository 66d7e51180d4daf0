//! Tests of races between clients for one address or port: exactly one write succeeds.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support;

/// Sends `count` requests at once that each create a Service. Asserts that every rejection has the given `code`,
/// and returns the number of accepted requests.
async fn race(count: usize, spec: impl Fn() -> Value, code: &str) -> usize {
    let server = Arc::new(support::start().await);
    let tasks: Vec<_> = (0..count)
        .map(|at| {
            let server = Arc::clone(&server);
            let body = json!({ "metadata": { "name": format!("s{at}") }, "spec": spec() });
            tokio::spawn(
                async move { server.call("POST", "/v1/namespaces/default/services", Some(body)).await },
            )
        })
        .collect();
    let mut accepted = 0;
    for task in tasks {
        let (status, body) = task.await.unwrap();
        match status {
            201 => accepted += 1,
            422 => assert_eq!(body["errors"][0]["code"], code, "{body}"),
            other => panic!("{other}: {body}"),
        }
    }
    let (_, list) = server.call("GET", "/v1/services", None).await;
    assert_eq!(
        list["items"].as_array().unwrap().len(),
        accepted,
        "what was accepted is there, and nothing else"
    );
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creates_for_one_node_port_exactly_one_wins() {
    let spec = || json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] });
    assert_eq!(race(64, spec, "PortTaken").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creates_for_one_cluster_ip_exactly_one_wins() {
    let spec = || json!({ "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] });
    assert_eq!(race(64, spec, "AddressTaken").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_replacements_of_one_state_exactly_one_wins() {
    let server = Arc::new(support::start().await);
    let path = "/v1/namespaces/default/services";
    let body = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let (_, created) = server.call("POST", path, Some(body)).await;
    let etag = format!("\"{}.1\"", created["metadata"]["uid"].as_str().unwrap());
    let tasks: Vec<_> = (0..32)
        .map(|at| {
            let (server, etag) = (Arc::clone(&server), etag.clone());
            let body = json!({
                "metadata": { "name": "web", "labels": { "writer": format!("w{at}") } },
                "spec": { "ports": [{ "port": 80 }] },
            });
            tokio::spawn(async move {
                let request = http::Request::put(format!("{path}/web"))
                    .header("content-type", "application/json")
                    .header("if-match", etag)
                    .body(axum::body::Body::from(body.to_string()));
                server.send(request.unwrap()).await.status().as_u16()
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            200 => won += 1,
            412 => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_of_different_fields_all_take_effect() {
    let server = Arc::new(support::start().await);
    let path = "/v1/namespaces/default/services";
    let body = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    server.call("POST", path, Some(body)).await;
    let tasks: Vec<_> = (0..4)
        .map(|at| {
            let server = Arc::clone(&server);
            let body = json!({ "metadata": { "labels": { format!("l{at}"): "x" } } });
            tokio::spawn(async move {
                let request = http::Request::patch("/v1/namespaces/default/services/web")
                    .header("content-type", "application/merge-patch+json")
                    .body(axum::body::Body::from(body.to_string()));
                server.send(request.unwrap()).await.status().as_u16()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(service["metadata"]["labels"], json!({ "l0": "x", "l1": "x", "l2": "x", "l3": "x" }));
}

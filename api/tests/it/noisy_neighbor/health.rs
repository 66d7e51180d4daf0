//! Health decisions about one namespace while the endpoints of another one are dead.

use std::time::Duration;

use model::primitives::quantity::{Epoch, Position, Revision};
use serde_json::{Value, json};

use crate::support::{self, START, Server};

const GUARD: &str = "/v1/guards/health";

/// Creates a Service with a health check and endpoints whose addresses begin with `prefix`.
async fn create(server: &Server, namespace: &str, prefix: &str, endpoints: u8) {
    let metadata = json!({ "namespace": namespace, "name": "web" });
    let endpoints: Vec<_> =
        (1..=endpoints).map(|host| json!({ "address": format!("{prefix}.{host}") })).collect();
    let objects = json!([
        { "kind": "Service", "metadata": metadata,
          "spec": { "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" } } },
        { "kind": "EndpointSet", "metadata": metadata, "spec": { "service": "web", "endpoints": endpoints } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(objects)).await;
    assert_eq!(status, 200, "{body}");
}

fn results(prefix: &str, states: &[&str]) -> Value {
    let one = |(at, state): (usize, &&str)| {
        json!({
            "address": format!("{prefix}.{}", at + 1), "port": 80, "state": state,
            "since": "2026-11-21T09:00:00Z", "message": "connection refused",
        })
    };
    states.iter().enumerate().map(one).collect()
}

/// Sends the reports of the only Node with the check results of both namespaces.
async fn report(server: &Server, prod: &[&str], evil: &[&str]) {
    let everything = Position { epoch: Epoch(u64::try_from(START).unwrap()), revision: Revision(1_000_000) };
    let body = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables",
        "received": everything, "applied": everything, "verified": everything,
        "health": { "prod/web": results("10.1.0", prod), "evil/web": results("10.2.0", evil) },
    });
    let (status, body) = server.call("PUT", "/v1/nodes/a/report", Some(body)).await;
    assert_eq!(status, 204, "{body}");
}

/// Waits for the number of endpoints of a namespace that are out of service and returns the number of held ones.
async fn until_out(server: &Server, namespace: &str, out: usize) -> u64 {
    let path = format!("/v1/namespaces/{namespace}/endpointhealths/web");
    for _ in 0..600 {
        let (_, record) = server.call("GET", &path, None).await;
        if record["spec"]["endpoints"].as_object().map_or(0, serde_json::Map::len) == out {
            return server.call("GET", GUARD, None).await.1["heldTotal"].as_u64().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not {out} endpoints of {namespace} are out: {}", server.call("GET", GUARD, None).await.1);
}

async fn start() -> Server {
    let server = support::start().await;
    let body = json!({ "metadata": { "name": "a" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(body)).await.0, 201);
    create(&server, "prod", "10.1.0", 3).await;
    create(&server, "evil", "10.2.0", 12).await;
    server
}

/// F148: endpoints of one namespace that never passed a check leave service and hold no endpoint of another namespace.
#[tokio::test]
async fn f148_endpoints_that_never_served_do_not_keep_a_failed_one_in_service() {
    let server = start().await;
    report(&server, &["Healthy"; 3], &["Unhealthy"; 12]).await;
    assert_eq!(until_out(&server, "evil", 12).await, 0);
    report(&server, &["Unhealthy", "Healthy", "Healthy"], &["Unhealthy"; 12]).await;
    assert_eq!(until_out(&server, "prod", 1).await, 0);
}

/// F148: endpoints of one namespace that failed together are held, those of another namespace leave service.
#[tokio::test]
async fn f148_held_endpoints_do_not_keep_a_failed_one_of_another_namespace_in_service() {
    let server = start().await;
    report(&server, &["Healthy"; 3], &["Healthy"; 12]).await;
    report(&server, &["Healthy"; 3], &["Unhealthy"; 12]).await;
    report(&server, &["Unhealthy", "Healthy", "Healthy"], &["Unhealthy"; 12]).await;
    assert_eq!(until_out(&server, "prod", 1).await, 12);
    server.source.advance(3600);
    report(&server, &["Unhealthy", "Unhealthy", "Healthy"], &["Unhealthy"; 12]).await;
    assert_eq!(until_out(&server, "prod", 2).await, 12);
}

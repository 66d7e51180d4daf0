//! Test of the size of a large cluster's overview and of the time to compute it. Sizes are asserted, times are
//! only printed.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail, and says what it measured")]

use std::time::Instant;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{self, Server};

const NODES: usize = 500;
const SERVICES: usize = 5000;
const GZIP_BYTES_MAX: usize = 150 * 1024;

async fn apply(server: &Server, objects: Vec<Value>) {
    for batch in objects.chunks(500) {
        let (status, answer) = server.call("POST", "/v1/apply", Some(json!(batch))).await;
        assert_eq!(status, 200, "{answer}");
    }
}

fn service(at: usize) -> Value {
    let spec = json!({"ports": [{"port": 80}], "type": if at.is_multiple_of(5) { "LoadBalancer" } else { "ClusterIP" }});
    let name = format!("service-{at}");
    json!({"kind": "Service", "metadata": {"name": name, "namespace": format!("team-{}", at % 40)}, "spec": spec})
}

fn endpoints(at: usize) -> Value {
    let name = format!("service-{at}");
    let endpoint = |host: usize| json!({"address": format!("10.{}.{}.{}", host, at / 250, at % 250 + 1)});
    let spec = json!({"service": name, "endpoints": (1..=3).map(endpoint).collect::<Vec<_>>()});
    json!({"kind": "EndpointSet", "metadata": {"name": name, "namespace": format!("team-{}", at % 40)}, "spec": spec})
}

async fn gzip_bytes(server: &Server) -> usize {
    let request = Request::get("/v1/overview").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    response.into_body().collect().await.unwrap().to_bytes().len()
}

async fn report(server: &Server, at: usize, position: &str) {
    let body = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": position, "applied": position,
        "verified": position, "announcementsComplete": true,
    });
    let (status, answer) = server.call("PUT", &format!("/v1/nodes/node-{at}/report"), Some(body)).await;
    assert_eq!(status, 204, "{answer}");
}

#[tokio::test]
async fn the_overview_of_500_nodes_and_5000_services_is_small() {
    let server = support::start().await;
    let pool =
        json!({"kind": "AddressPool", "metadata": {"name": "all"}, "spec": {"addresses": ["198.18.0.0/16"]}});
    let nodes =
        (0..NODES).map(|at| json!({"kind": "Node", "metadata": {"name": format!("node-{at}")}, "spec": {}}));
    apply(&server, nodes.chain([pool]).collect()).await;
    apply(&server, (0..SERVICES).flat_map(|at| [service(at), endpoints(at)]).collect()).await;
    let (_, status) = server.call("GET", "/v1/status", None).await;
    let position = status["position"].as_str().unwrap().to_owned();
    for at in 0..NODES {
        report(&server, at, &position).await;
    }
    let well = gzip_bytes(&server).await;
    server.source.advance(1);
    report(&server, 99, "1-1").await;
    let begun = Instant::now();
    let request = Request::get("/v1/overview").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    let plain = response.into_body().collect().await.unwrap().to_bytes().len();
    let took = begun.elapsed();
    // All rows are recomputed from changed reports.
    let begun = Instant::now();
    server.source.advance(100);
    let silent = gzip_bytes(&server).await;
    let took_silent = begun.elapsed();
    let document: Value = serde_json::from_slice(&{
        let response = server.send(Request::get("/v1/overview").body(Body::empty()).unwrap()).await;
        response.into_body().collect().await.unwrap().to_bytes()
    })
    .unwrap();
    assert_eq!(document["totals"]["nodes"]["disconnected"], NODES);
    eprintln!(
        "500 nodes, 5,000 Services: {plain} bytes plain, {well} compressed, {silent} compressed with all nodes silent; worked \
         out and written in {took:?}, with all nodes silent in {took_silent:?}"
    );
    assert!(well <= GZIP_BYTES_MAX, "{well} bytes");
    assert!(silent <= GZIP_BYTES_MAX, "{silent} bytes with all nodes silent");
}

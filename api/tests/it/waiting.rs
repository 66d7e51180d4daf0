//! Tests that load balancer addresses are assigned as time passes. A released address is in quarantine for
//! some time (no other Service gets it). When that time ends, a Service that waits for the address gets it,
//! although no client has written an object.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support;

/// Reads a Service repeatedly until it has a load balancer address, and returns the address.
async fn first_address(server: &support::Server, name: &str) -> String {
    for _ in 0..600 {
        let (_, answer) = server.call("GET", &format!("/v1/namespaces/default/services/{name}"), None).await;
        if let Some(ip) = answer.pointer("/status/loadBalancer/ingress/0/ip").and_then(Value::as_str) {
            return ip.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} gets no address");
}

/// F038, F122: a pool has only one address, which a Service has released, so that it is in quarantine. When
/// the quarantine ends, the Service that waits for an address gets it, although no client has written an
/// object.
#[tokio::test]
async fn f038_f122_a_waiting_service_is_served_when_a_quarantine_ends() {
    let server = support::start().await;
    let balancer = |name: &str| json!({ "metadata": { "name": name }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    let pool = json!({ "metadata": { "name": "lab" }, "spec": { "addresses": ["198.51.100.8"], "quarantineSeconds": 30 } });
    server.call("POST", "/v1/addresspools", Some(pool)).await;
    server.call("POST", "/v1/namespaces/default/services", Some(balancer("first"))).await;
    assert_eq!(first_address(&server, "first").await, "198.51.100.8");
    server.call("DELETE", "/v1/namespaces/default/services/first", None).await;
    server.call("POST", "/v1/namespaces/default/services", Some(balancer("second"))).await;
    let (_, waiting) = server.call("GET", "/v1/namespaces/default/services/second", None).await;
    let assigned = waiting["status"]["conditions"][1].clone();
    assert_eq!((&assigned["status"], &assigned["reason"]), (&json!("False"), &json!("WaitingForQuarantine")));
    server.source.advance(30);
    assert_eq!(first_address(&server, "second").await, "198.51.100.8");
    server.running.stop().await;
}

//! Tests of the time series of the last hour, with a clock that the test sets.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{self, Server, secured};

/// Repeats a request for a time series until it has `wanted` points.
async fn points(server: &Server, of: &str, wanted: usize) -> Value {
    for _ in 0..600 {
        let (status, answer) = server.call("GET", &format!("/v1/series?of={of}"), None).await;
        let length = answer["series"][0]["points"].as_array().map_or(0, Vec::len);
        if status == 200 && length == wanted {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{of} never had {wanted} points");
}

fn of(answer: &Value, name: &str) -> Value {
    let series = answer["series"].as_array().unwrap();
    series.iter().find(|series| series["name"] == name).unwrap_or_else(|| panic!("{answer}"))["points"]
        .clone()
}

async fn report(server: &Server, traffic: Value) {
    let at = server.call("GET", "/v1/status", None).await.1["position"].clone();
    let report = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at,
        "traffic": traffic,
    });
    assert_eq!(server.call("PUT", "/v1/nodes/n1/report", Some(report)).await.0, 204);
}

/// If a node that has reported traffic becomes silent, its series keep the earlier values and have gaps from then
/// on, and the series of the cluster count it as not converged.
#[tokio::test]
async fn the_last_hour_of_a_service_a_node_and_the_cluster() {
    let server = support::start().await;
    let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    assert_eq!(server.call("POST", "/v1/namespaces/default/services", Some(web)).await.0, 201);
    let node = json!({ "metadata": { "name": "n1" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(node)).await.0, 201);
    let (web, idle) = ("service/default/web", points(&server, "cluster", 1).await);
    assert_eq!((&idle["stepSeconds"], &idle["of"]), (&json!(10), &json!("cluster")));
    let target = json!({
        "protocol": "TCP", "address": "10.1.1.1", "port": 80, "connections": 7, "bytes": 70, "active": 2,
        "perSecond": { "connections": 0.7, "bytes": 12.5 },
    });
    report(&server, json!({ "default/web": [target] })).await;
    server.source.advance(10);
    let answer = points(&server, web, 2).await;
    assert_eq!(answer["start"], "2026-11-21T09:00:00Z");
    assert_eq!(of(&answer, "connections"), json!([null, 0.7]));
    assert_eq!(of(&answer, "bytes"), json!([null, 12.5]));
    assert_eq!(of(&answer, "active"), json!([null, 2.0]));
    let answer = points(&server, "node/n1", 2).await;
    assert_eq!(of(&answer, "healthy")[1], json!(1.0));
    assert_eq!((&of(&answer, "behind")[1], &of(&answer, "lag")[1]), (&json!(0.0), &json!(0.0)));
    assert_eq!(of(&answer, "programmed")[1], json!(2.0));
    // Thirty seconds later the node is silent: two points were missed, and the traffic is unknown.
    server.source.advance(30);
    let answer = points(&server, web, 5).await;
    assert_eq!(of(&answer, "connections"), json!([null, 0.7, null, null, null]));
    let answer = points(&server, "cluster", 5).await;
    assert_eq!(of(&answer, "connections"), json!([null, 0.7, null, null, null]));
    assert_eq!(of(&answer, "nodesNotConverged")[4], json!(1.0));
    let totals = server.call("GET", "/v1/overview", None).await.1["totals"].clone();
    let not_ok =
        ["atRisk", "degraded", "unreachable"].map(|state| totals["services"][state].as_f64().unwrap());
    assert_eq!(of(&answer, "servicesNotOk")[4], json!(not_ok.iter().sum::<f64>()), "{totals}");
    let answer = points(&server, "node/n1", 5).await;
    assert_eq!((&of(&answer, "healthy")[4], &of(&answer, "programmed")[4]), (&json!(0.0), &Value::Null));
    for (wrong, status) in [
        ("?of=service/default/none", 404),
        ("?of=node/none", 404),
        ("?of=service/default", 400),
        ("?of=pool/x", 400),
        ("?of=service/A/b", 400),
        ("?of=cluster&x=1", 400),
        ("", 400),
    ] {
        assert_eq!(server.call("GET", &format!("/v1/series{wrong}"), None).await.0, status, "{wrong}");
    }
}

#[tokio::test]
async fn series_are_shown_to_whom_what_they_are_of_is_shown() {
    let secured = secured::start().await;
    for namespace in ["team-a", "team-b"] {
        let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        secured.admin("POST", &format!("/v1/namespaces/{namespace}/services"), Some(web)).await;
    }
    secured.admin("POST", "/v1/nodes", Some(json!({ "metadata": { "name": "n1" }, "spec": {} }))).await;
    let team = secured.token("team", json!({ "role": "viewer", "namespaces": ["team-a"] })).await;
    for (of, allowed) in [
        ("service/team-a/web", true),
        ("service/team-a/none", true),
        ("service/team-b/web", false),
        ("service/team-b/none", false),
        ("node/n1", false),
        ("cluster", false),
    ] {
        let (status, answer) = secured.call(&team, "GET", &format!("/v1/series?of={of}"), None).await;
        assert_eq!(status != 403, allowed, "{of}: {answer}");
    }
}

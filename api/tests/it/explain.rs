//! Tests of explanations of packet paths over HTTP. The server derives the desired state; a simulated agent sends
//! the kernel state.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

/// Starts a server with Node `n1` and Service `web` at 10.96.0.10 with one endpoint.
async fn cluster() -> Server {
    let server = support::start().await;
    let items = json!([
        { "kind": "Node", "metadata": { "name": "n1" }, "spec": { "workloadCIDRs": ["10.1.0.0/16"] } },
        { "kind": "Service", "metadata": { "name": "web" }, "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } },
        { "kind": "EndpointSet", "metadata": { "name": "web" }, "spec": { "service": "web", "endpoints": [{ "address": "10.1.1.2" }] } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    let everything = "99999999999-99";
    let report = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables",
        "received": everything, "applied": everything, "verified": everything,
    });
    assert_eq!(server.call("PUT", "/v1/nodes/n1/report", Some(report)).await.0, 204);
    server
}

const PACKET: &str = "/v1/explain?source=10.1.0.9&destination=10.96.0.10&port=80";

/// Replies to the next query in a feed with a kernel trace whose packets end as `ends` specifies.
async fn answer(server: &Server, feed: &mut Lines, ends: Value) {
    let lines = feed.until("\"ask\"").await;
    let ask: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let packet = json!({ "source": "10.1.0.9", "destination": "10.96.0.10", "protocol": "TCP", "port": 80 });
    assert_eq!(ask["question"]["source"], packet["source"], "{ask}");
    assert_eq!(ask["question"]["destination"], packet["destination"], "{ask}");
    let step = json!({ "place": "map inet tidegate endpoints4", "rule": "10.96.0.10 . 6 . 80 . 0", "result": "nothing", "odd": true });
    let traced = json!({ "answer": "trace", "steps": [step], "fate": "as the ends say", "ends": ends });
    let path = format!("/v1/nodes/n1/answers/{}", ask["id"]);
    let (status, body) = server.call("PUT", &path, Some(traced)).await;
    assert_eq!(status, 204, "{body}");
}

#[tokio::test]
async fn f166_the_kernels_side_is_asked_of_the_node_and_the_first_difference_is_shown() {
    let server = cluster().await;
    let request = Request::get("/v1/nodes/n1/state").body(Body::empty()).unwrap();
    let mut feed = Lines::new(server.send(request).await.into_body());
    feed.until("\"synced\"").await;
    let same = json!([{ "reaches": { "address": "10.1.1.2", "port": 80, "sees": "client" } }]);
    let ((status, body), ()) =
        tokio::join!(server.call("GET", PACKET, None), answer(&server, &mut feed, same));
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["broken"], Value::Null, "{body:#}");
    assert_eq!(body["paths"][0]["node"], "n1");
    assert_eq!(body["paths"][0]["fate"], "goes to 10.1.1.2:80, seen as the client");
    assert_eq!(body["paths"][0]["kernel"]["difference"], Value::Null);
    let other = json!(["dropped"]);
    let ((status, body), ()) =
        tokio::join!(server.call("GET", PACKET, None), answer(&server, &mut feed, other));
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["broken"]["step"]["about"], "Kernel", "{body:#}");
    let difference = &body["paths"][0]["kernel"]["difference"];
    assert_eq!(difference["place"], "map inet tidegate endpoints4");
    assert_eq!(difference["desired"], "goes to 10.1.1.2:80, seen as the client");
    assert_eq!(difference["kernel"], "is dropped without an answer");
}

#[tokio::test]
async fn f166_a_node_that_does_not_answer_is_no_fault_and_what_is_wrong_with_a_question_is_named() {
    let server = cluster().await;
    let (status, body) = server.call("GET", PACKET, None).await;
    assert_eq!(status, 200, "{body}");
    let last = body["paths"][0]["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["about"], &last["state"]), (&json!("Kernel"), &json!("Unknown")), "{body:#}");
    assert_eq!(last["why"], "the agent is not connected");
    let (status, body) = server.call("GET", "/v1/explain?destination=203.0.113.9", None).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["broken"]["step"]["outcome"], "203.0.113.9 is not known");
    for (query, word) in [
        ("", "destination"),
        ("destination=10.96.0.10&port=80", "source"),
        ("destination=10.96.0.10&source=10.1.0.9", "port"),
        ("destination=10.96.0.10&source=10.1.0.9&port=0", "port"),
        ("destination=10.96.0.10&source=fd00::1&port=80", "family"),
        ("destination=web", "IP address"),
    ] {
        let (status, body) = server.call("GET", &format!("/v1/explain?{query}"), None).await;
        assert_eq!(status, 400, "{query}: {body}");
        assert!(body["detail"].as_str().unwrap().contains(word), "{query}: {body}");
    }
}

#[tokio::test]
async fn f167_the_graph_of_a_service_comes_with_its_explanation() {
    let server = cluster().await;
    let path = "/v1/namespaces/default/services/web/explain";
    let (status, body) =
        server.call("GET", &format!("{path}?desiredOnly=true&graph=mermaid&node=n1"), None).await;
    assert_eq!(status, 200, "{body}");
    assert!(body["graph"].as_str().unwrap().starts_with("flowchart LR\n"), "{body:#}");
    assert_eq!(body["paths"][0]["kernel"], Value::Null, "nobody was asked");
    assert_eq!(body["subject"], "Service default/web");
    let (status, body) = server.call("GET", &format!("{path}x"), None).await;
    assert_eq!(status, 404, "{body}");
    let (status, body) = server.call("GET", "/v1/namespaces/default/services/nothing/explain", None).await;
    assert_eq!((status, &body["code"]), (404, &json!("NotFound")));
}

//! Tests of limits of the server that need many requests.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Lines};

/// While a watcher hardly reads, more changes are made than the server keeps in memory. The watcher then receives
/// an error event, and the watch ends. It reads a piece from time to time, because the server disconnects a client that reads
/// nothing for 30 seconds, for which the changes can take longer on a loaded machine.
#[tokio::test]
async fn a_watch_that_falls_too_far_behind_is_told_to_begin_again() {
    let server = support::start().await;
    let request = Request::get("/v1/watch").body(Body::empty()).unwrap();
    let mut lines = Lines::new(server.send(request).await.into_body());
    lines.until("BOOKMARK").await;
    for round in 0..16 {
        let workload = |at: usize| {
            json!({
                "kind": "Workload",
                "metadata": { "name": format!("w{at}"), "labels": { "round": round.to_string() } },
                "spec": {},
            })
        };
        let items: Vec<Value> = (0..2500).map(workload).collect();
        let (status, body) = server.call("POST", "/v1/apply", Some(json!(items))).await;
        assert_eq!(status, 200, "{body}");
        lines.read_piece().await;
    }
    let mut last = String::new();
    while let Some(line) = lines.next().await {
        last = line;
    }
    let event: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&event["type"], &event["problem"]["code"]),
        (&json!("ERROR"), &json!("ResumeExpired")),
        "{event}"
    );
    assert_eq!(event["problem"]["status"], 410);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_requests_with_one_idempotency_key_one_takes_effect() {
    let server = Arc::new(support::start().await);
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let body = json!({ "metadata": { "name": "web" }, "spec": { "clusterIP": "None" } });
                let request = Request::post("/v1/namespaces/default/services")
                    .header("content-type", "application/json")
                    .header("idempotency-key", "k")
                    .body(Body::from(body.to_string()));
                let response = server.send(request.unwrap()).await;
                (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"))
            })
        })
        .collect();
    let mut first = 0;
    for task in tasks {
        match task.await.unwrap() {
            (201, false) => first += 1,
            // Replayed, or rejected because the first request is still in progress.
            (201, true) | (409, false) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(first, 1);
}

#[tokio::test]
async fn more_objects_than_one_request_may_have_are_refused() {
    let server = support::start().await;
    let items = vec![json!({ "kind": "Node", "metadata": { "name": "n" }, "spec": {} }); 5001];
    let (status, problem) = server.call("POST", "/v1/apply", Some(json!(items))).await;
    assert_eq!((status, problem["errors"][0]["pointer"].as_str()), (422, Some("/items")), "{problem}");
}

//! Tests of the feed, the stream of state to an agent: the cost of an update is proportional to the change,
//! not to the size of the cluster, and changes that an agent has missed are merged.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

async fn open(server: &Server, resume: Option<&str>) -> Lines {
    let query = resume.map(|position| format!("?resume={position}")).unwrap_or_default();
    let request = Request::get(format!("/v1/nodes/n1/state{query}")).body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status().as_u16(), 200);
    Lines::new(response.into_body())
}

fn service(at: usize) -> Value {
    json!({ "kind": "Service", "metadata": { "name": format!("s{at:05}") }, "spec": { "ports": [{ "port": 80 }] } })
}

fn endpoints(at: usize, last: u8) -> Value {
    let name = format!("s{at:05}");
    json!({
        "kind": "EndpointSet", "metadata": { "name": name },
        "spec": { "service": name, "endpoints": [{ "address": format!("10.1.1.{last}") }] },
    })
}

/// Starts a server with a Node, and with `services` Services that have one endpoint each.
async fn cluster(services: usize) -> Server {
    let server = support::start().await;
    let mut items = vec![json!({ "kind": "Node", "metadata": { "name": "n1" }, "spec": {} })];
    items.extend((0..services).flat_map(|at| [service(at), endpoints(at, 1)]));
    for chunk in items.chunks(2500) {
        let (status, body) = server.call("POST", "/v1/apply", Some(json!(chunk))).await;
        assert_eq!(status, 200, "{body}");
    }
    server
}

/// Changes one endpoint in a cluster of `services` Services. Returns the numbers of lines and bytes sent to an
/// agent that was up to date.
async fn cost_of_one_change(services: usize) -> (usize, usize) {
    let server = cluster(services).await;
    let mut feed = open(&server, None).await;
    let first = feed.until("\"synced\"").await;
    assert_eq!(first.iter().filter(|line| line.contains("\"type\":\"service\"")).count(), services);
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00007", Some(endpoints(7, 2))).await;
    let lines = feed.until("\"synced\"").await;
    // Positions are wider in a longer history; all other bytes must be equal.
    let bytes = lines.iter().map(|line| without_revisions(line).len()).sum();
    (lines.len(), bytes)
}

fn without_revisions(line: &str) -> String {
    let mut value: Value = serde_json::from_str(line).unwrap();
    if value["type"] == "synced" {
        value["position"] = json!("");
    } else {
        value["service"]["revision"] = json!(0);
        value["service"]["clusterIPs"] = json!([]);
    }
    value.to_string()
}

#[tokio::test]
async fn one_endpoint_change_sends_the_same_with_50_and_with_5000_services() {
    let small = cost_of_one_change(50).await;
    let large = cost_of_one_change(5000).await;
    assert_eq!(small, large, "lines and bytes");
    assert_eq!(small.0, 2, "one Service and one synced");
}

#[tokio::test]
async fn a_resumed_feed_carries_only_what_changed_and_each_service_once() {
    let server = cluster(20).await;
    let position = last_position(&open(&server, None).await.until("\"synced\"").await);
    for last in 2..5 {
        server.call("PUT", "/v1/namespaces/default/endpointsets/s00003", Some(endpoints(3, last))).await;
    }
    server.call("DELETE", "/v1/namespaces/default/services/s00004", None).await;
    let lines = open(&server, Some(&position)).await.until("\"synced\"").await;
    let types: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["start", "network", "node", "service", "removed", "synced"]);
    assert!(lines[0].contains("\"mode\":\"delta\""));
    assert!(lines[3].contains("10.1.1.4"), "the newest form: {}", lines[3]);
}

#[tokio::test]
async fn a_resume_of_another_epoch_or_from_the_future_begins_with_the_full_state() {
    let server = cluster(3).await;
    for position in ["1-1", "99999999999-1", &format!("{}-900", support::START)] {
        let lines = open(&server, Some(position)).await.until("\"synced\"").await;
        assert!(lines[0].contains("\"mode\":\"full\""), "{position}: {}", lines[0]);
        assert_eq!(lines.len(), 3 + 3 + 1);
    }
}

/// An agent has seen later changes than this server, whose store is therefore an older copy. As soon as the server has
/// overtaken the agent, its position means another state; the feed then begins with the full state, and not in the middle of
/// the other history.
#[tokio::test]
async fn an_older_copy_of_the_store_never_resumes_the_history_that_it_lost() {
    let server = cluster(3).await;
    let lines = open(&server, None).await.until("\"synced\"").await;
    let start = last_position(&lines);
    let (epoch, revision) = start.split_once('-').unwrap();
    let ahead = format!("{epoch}-{}", revision.parse::<u64>().unwrap() + 2);
    let change = |host: u8| endpoints(1, host);
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(change(7))).await;
    let resumed = open(&server, Some(&start)).await.until("\"synced\"").await;
    assert!(resumed[0].contains("\"mode\":\"delta\""), "{}", resumed[0]);

    // Another client that claims a later position proves nothing.
    let (status, _) = server.call("GET", &format!("/v1/watch?resume={epoch}-99999"), None).await;
    assert_eq!(status, 410);
    let resumed = open(&server, Some(last_position(&resumed).as_str())).await.until("\"synced\"").await;
    assert!(resumed[0].contains("\"mode\":\"delta\""), "{}", resumed[0]);

    let behind = open(&server, Some(&ahead)).await.until("\"synced\"").await;
    assert!(behind[0].contains("\"mode\":\"full\""), "{}", behind[0]);
    for host in [8, 9] {
        server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(change(host))).await;
    }
    let overtaken = open(&server, Some(&ahead)).await.until("\"synced\"").await;
    assert!(overtaken[0].contains("\"mode\":\"full\""), "{}", overtaken[0]);
    let (status, problem) = server.call("GET", &format!("/v1/watch?resume={ahead}"), None).await;
    assert_eq!((status, problem["code"].as_str()), (410, Some("ResumeExpired")), "{problem}");
}

/// After a full state of 24 Services was sent, one Service changes and one is deleted. The next full sync includes
/// both changes.
#[tokio::test]
async fn a_complete_state_that_was_made_for_another_feed_comes_with_what_changed_since() {
    let server = cluster(24).await;
    open(&server, None).await.until("\"synced\"").await;
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00003", Some(endpoints(3, 7))).await;
    server.call("DELETE", "/v1/namespaces/default/services/s00004", None).await;
    let lines = open(&server, None).await.until("\"synced\"").await;
    assert!(lines[0].contains("\"mode\":\"full\""), "{}", lines[0]);
    let mut held = std::collections::BTreeMap::new();
    for line in &lines {
        let value: Value = serde_json::from_str(line).unwrap();
        match value["type"].as_str().unwrap() {
            "service" => drop(held.insert(value["service"]["service"].clone().to_string(), line.clone())),
            "removed" => drop(held.remove(&value["service"].to_string())),
            _ => {}
        }
    }
    assert_eq!(held.len(), 23, "all but the one that is gone");
    assert!(held["\"default/s00003\""].contains("10.1.1.7"), "the newest form counts");
    assert_eq!(last_position(&lines), last_position(&lines[..1]), "it ends where it said it would");
}

#[tokio::test]
async fn writes_that_touch_no_service_send_nothing() {
    let server = cluster(3).await;
    let mut feed = open(&server, None).await;
    feed.until("\"synced\"").await;
    let workload = json!({ "metadata": { "name": "w" }, "spec": { "addresses": ["10.1.1.9"] } });
    server.call("POST", "/v1/namespaces/default/workloads", Some(workload)).await;
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(endpoints(1, 1))).await;
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(endpoints(1, 9))).await;
    let lines = feed.until("\"synced\"").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[tokio::test]
async fn a_second_feed_to_a_node_ends_the_first() {
    let server = cluster(1).await;
    let mut first = open(&server, None).await;
    first.until("\"synced\"").await;
    let mut second = open(&server, None).await;
    second.until("\"synced\"").await;
    assert_eq!(first.next().await, None);
}

#[tokio::test]
async fn deleting_the_node_ends_its_feed_and_settings_of_the_node_arrive() {
    let server = cluster(1).await;
    let mut feed = open(&server, None).await;
    feed.until("\"synced\"").await;
    let node = json!({ "metadata": { "name": "n1" }, "spec": { "workloadCIDRs": ["10.1.0.0/16"], "proxy": { "masqueradeAll": true } } });
    server.call("PUT", "/v1/nodes/n1", Some(node)).await;
    let lines = feed.until("\"synced\"").await;
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("10.1.0.0/16") && lines[1].contains("\"masqueradeAll\":true"), "{lines:?}");
    server.call("DELETE", "/v1/nodes/n1", None).await;
    assert_eq!(feed.next().await, None);
}

#[tokio::test]
async fn a_compressed_feed_is_flushed_at_every_synced() {
    use flate2::write::GzDecoder;
    use http_body_util::BodyExt;
    use std::io::Write;

    let server = cluster(5).await;
    let request =
        Request::get("/v1/nodes/n1/state").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let mut body = response.into_body();
    let mut decoder = GzDecoder::new(Vec::new());
    for wanted in 1..=2 {
        while String::from_utf8_lossy(decoder.get_ref()).matches("\"synced\"").count() < wanted {
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            decoder.write_all(&data).unwrap();
            decoder.flush().unwrap();
        }
        server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(endpoints(1, 9))).await;
    }
}

fn last_position(lines: &[String]) -> String {
    let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    last["position"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_question_reaches_the_agent_behind_the_state_and_its_answer_who_asked() {
    let server = cluster(1).await;
    let (status, body) = server.call("GET", "/v1/nodes/n1/doctor", None).await;
    assert_eq!((status, &body["code"]), (504, &json!("NodeSilent")), "no feed is open: {body}");
    let (status, body) = server.call("GET", "/v1/nodes/n2/doctor", None).await;
    assert_eq!((status, &body["code"]), (404, &json!("NodeNotFound")));

    let mut feed = open(&server, None).await;
    feed.until("\"synced\"").await;
    let finding = json!({ "check": "nf_tables", "state": "Fine", "message": "built-in" });
    let answer = json!({ "answer": "doctor", "findings": [finding] });
    let (asked, ()) = tokio::join!(server.call("GET", "/v1/nodes/n1/doctor", None), async {
        let lines = feed.until("\"ask\"").await;
        let ask: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(ask["question"], json!({ "ask": "doctor" }));
        let path = format!("/v1/nodes/n1/answers/{}", ask["id"]);
        let (status, body) = server.call("PUT", &path, Some(json!({ "answer": "weather" }))).await;
        assert_eq!((status, &body["code"]), (422, &json!("Invalid")), "{body}");
        let long = json!({ "answer": "failed", "message": "x".repeat(1025) });
        assert_eq!(server.call("PUT", &path, Some(long)).await.0, 422);
        assert_eq!(server.call("PUT", &path, Some(answer.clone())).await.0, 204);
        let (status, body) = server.call("PUT", &path, Some(answer)).await;
        assert_eq!((status, &body["code"]), (410, &json!("NotAsked")), "{body}");
    });
    assert_eq!(asked, (200, json!({ "node": "n1", "findings": [finding] })));
}

/// The query-only feed of an agent that receives its state from another server carries only heartbeats and
/// queries. A state feed of the same agent replaces it.
#[tokio::test]
async fn a_feed_of_questions_only_carries_no_state_and_gives_way_to_one_that_does() {
    let server = cluster(2).await;
    let open_with = async |query: &str| {
        let request = Request::get(format!("/v1/nodes/n1/state?{query}")).body(Body::empty()).unwrap();
        server.send(request).await
    };
    for refused in ["asks=all", "asks=only&resume=1-1"] {
        assert_eq!(open_with(refused).await.status().as_u16(), 400, "{refused}");
    }
    let mut questions = Lines::new(open_with("asks=only").await.into_body());
    let first: Value = serde_json::from_str(&questions.next().await.unwrap()).unwrap();
    let (_, list) = server.call("GET", "/v1/services", None).await;
    assert_eq!((&first["type"], &first["position"]), (&json!("heartbeat"), &list["metadata"]["position"]));
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(endpoints(1, 9))).await;
    let answer = json!({ "answer": "doctor", "findings": [] });
    let request = ("GET", "/v1/nodes/n1/doctor", None);
    let (question, status, _) = asked(&server, &mut questions, request, answer.clone()).await;
    assert_eq!((question["ask"].as_str(), status), (Some("doctor"), 200));

    let mut feed = open(&server, None).await;
    feed.until("\"synced\"").await;
    while let Some(line) = questions.next().await {
        assert!(line.contains("\"heartbeat\""), "nothing but heartbeats before the end: {line}");
    }
    let request = ("GET", "/v1/nodes/n1/doctor", None);
    assert_eq!(asked(&server, &mut feed, request, answer).await.1, 200);
    let mut questions = Lines::new(open_with("asks=only").await.into_body());
    questions.until("\"heartbeat\"").await;
    server.call("PUT", "/v1/namespaces/default/endpointsets/s00001", Some(endpoints(1, 8))).await;
    feed.until("\"synced\"").await;
}

/// Sends a request that queries an agent, and replies as that agent. Returns the query, and the status and body of
/// the response.
async fn asked(
    server: &Server,
    feed: &mut Lines,
    request: (&str, &str, Option<Value>),
    answer: Value,
) -> (Value, u16, Value) {
    let (method, path, body) = request;
    let (answered, question) = tokio::join!(server.call(method, path, body), async {
        let lines = feed.until("\"ask\"").await;
        let ask: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let path = format!("/v1/nodes/n1/answers/{}", ask["id"]);
        assert_eq!(server.call("PUT", &path, Some(answer)).await.0, 204);
        ask["question"].clone()
    });
    (question, answered.0, answered.1)
}

/// The diagnosis of a node compares the node's clock with that of the server. Requests for fixes are sent to
/// the agent only if the fixes are known; all such requests are audited.
#[tokio::test]
async fn a_doctors_clock_is_compared_and_fixes_are_asked_for_and_remembered() {
    let server = cluster(0).await;
    let mut feed = open(&server, None).await;
    feed.until("\"synced\"").await;
    for (seconds, state) in [(5, "Fine"), (-6, "Warning"), (3600, "Warning")] {
        let clock = model::primitives::quantity::Timestamp::from_unix_seconds(support::START + seconds);
        let answer = json!({ "answer": "doctor", "findings": [], "clock": clock });
        let (_, status, body) = asked(&server, &mut feed, ("GET", "/v1/nodes/n1/doctor", None), answer).await;
        let found = &body["findings"][0];
        assert_eq!(
            (status, &found["check"], &found["state"]),
            (200, &json!("clock"), &json!(state)),
            "{body}"
        );
    }

    let path = "/v1/nodes/n1/fixes";
    for wrong in [json!({ "fixes": [] }), json!({ "fixes": ["Reboot"] }), json!({ "fix": ["IpForward"] })] {
        let (status, body) = server.call("POST", path, Some(wrong)).await;
        assert_eq!((status, &body["code"]), (422, &json!("Invalid")), "{body}");
    }
    let wish = json!({ "fixes": ["IpForward"] });
    let done = json!([{ "fix": "IpForward", "outcome": "Done", "message": "it was 0 and is 1" }]);
    let answer = json!({ "answer": "fix", "fixes": done });
    let (question, status, body) =
        asked(&server, &mut feed, ("POST", path, Some(wish.clone())), answer).await;
    assert_eq!(question, json!({ "ask": "fix", "fixes": ["IpForward"] }));
    assert_eq!((status, body), (200, json!({ "node": "n1", "fixes": done })));
    let refusal = json!({ "answer": "failed", "message": "start it with --allow-fixes" });
    let (_, status, body) = asked(&server, &mut feed, ("POST", path, Some(wish)), refusal).await;
    assert_eq!((status, &body["code"]), (502, &json!("NodeCannotSay")), "{body}");

    let (_, audit) = server.call("GET", "/v1/audit", None).await;
    let entries: Vec<_> =
        audit["items"].as_array().unwrap().iter().filter(|entry| entry["path"] == path).collect();
    assert_eq!(entries.len(), 5, "every request to change a machine is remembered: {audit}");
    assert_eq!(entries.iter().filter(|entry| entry["decision"] == "accepted").count(), 1, "{entries:?}");
}

//! Tests of health checks in the server, with reports of simulated agents over HTTP: decisions, feed and
//! responses.

use std::{sync::Arc, time::Duration};

use api::base::config::{NodeLostAfter, Settings};
use axum::body::Body;
use http::Request;
use model::primitives::quantity::{Epoch, Position, Revision, Timestamp};
use serde_json::{Value, json};

use crate::support::{self, Fixed, Lines, START, Server};

const HEALTH: &str = "/v1/namespaces/default/services/web/health";
const RECORD: &str = "/v1/namespaces/default/endpointhealths/web";
const GUARD: &str = "/v1/guards/health";

/// Starts a server with Nodes `a`, `b` and `c` that report, and Service `web` with endpoints 10.1.0.1, .2, … that
/// belong to no Node.
async fn start(endpoints: u8, check: Value) -> Server {
    let server = support::start().await;
    prepare(&server, endpoints, check).await;
    server
}

async fn prepare(server: &Server, endpoints: u8, check: Value) {
    for node in ["a", "b", "c"] {
        let body = json!({ "metadata": { "name": node }, "spec": {} });
        assert_eq!(server.call("POST", "/v1/nodes", Some(body)).await.0, 201);
        say(server, node, &[]).await;
    }
    apply(server, endpoints, check).await;
}

async fn apply(server: &Server, endpoints: u8, check: Value) {
    let spec = json!({ "ports": [{ "port": 80 }], "healthCheck": check });
    let endpoints: Vec<_> =
        (1..=endpoints).map(|host| json!({ "address": format!("10.1.0.{host}") })).collect();
    let objects = json!([
        { "kind": "Service", "metadata": { "name": "web" }, "spec": spec },
        { "kind": "EndpointSet", "metadata": { "name": "web" }, "spec": { "service": "web", "endpoints": endpoints } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(objects)).await;
    assert_eq!(status, 200, "{body}");
}

fn report(more: Value) -> Value {
    let everything = Position { epoch: Epoch(u64::try_from(START).unwrap()), revision: Revision(1_000_000) };
    let mut report = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables",
        "received": everything, "applied": everything, "verified": everything,
    });
    report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    report
}

/// Sends the report of a node with the states of endpoints of Service `web`. The last octet of the address
/// identifies each endpoint.
async fn say(server: &Server, node: &str, states: &[(u8, &str)]) {
    let one = |(host, state): &(u8, &str)| {
        json!({
            "address": format!("10.1.0.{host}"), "port": 80, "state": state, "since": "2026-11-21T09:00:00Z",
            "message": format!("{node} says {state}"),
        })
    };
    let states: Vec<_> = states.iter().map(one).collect();
    let body = report(json!({ "health": { "default/web": states } }));
    let (status, body) = server.call("PUT", &format!("/v1/nodes/{node}/report"), Some(body)).await;
    assert_eq!(status, 204, "{body}");
}

async fn say_all(server: &Server, states: &[(u8, &str)]) {
    for node in ["a", "b", "c"] {
        say(server, node, states).await;
    }
}

/// Repeats a request until its response matches. Changes take effect within moments, but asynchronously.
async fn until(server: &Server, path: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
    let mut last = (0, Value::Null);
    for _ in 0..600 {
        last = server.call("GET", path, None).await;
        if wanted(last.0, &last.1) {
            return last.1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} stays {last:#?}");
}

fn out(record: &Value) -> Vec<String> {
    let endpoints = record["spec"]["endpoints"].as_object().cloned().unwrap_or_default();
    endpoints.iter().filter(|(_, verdict)| verdict["share"] == 0).map(|(key, _)| key.clone()).collect()
}

async fn until_out(server: &Server, wanted: &[&str]) {
    if wanted.is_empty() {
        until(server, RECORD, |status, _| status == 404).await;
    } else {
        until(server, RECORD, |_, record| out(record) == wanted).await;
    }
}

fn available(service: &Value) -> (String, String) {
    let conditions = service["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|one| one["type"] == "EndpointsAvailable").unwrap();
    (found["reason"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap_or_default().to_owned())
}

fn states(health: &Value) -> Vec<&str> {
    let endpoints = health["endpoints"].as_array().unwrap();
    endpoints.iter().map(|endpoint| endpoint["state"].as_str().unwrap()).collect()
}

/// F148: an endpoint that most nodes report as unhealthy is recorded and sent to agents as not ready, until the
/// nodes report it as healthy. The health response lists the result of each node.
#[tokio::test]
async fn f148_reports_take_an_endpoint_out_and_bring_it_back() {
    let server = start(2, json!({ "type": "Tcp" })).await;
    let request = Request::get("/v1/nodes/a/state").body(Body::empty()).unwrap();
    let mut feed = Lines::new(server.send(request).await.into_body());
    let first = feed.until("\"synced\"").await.concat();
    assert!(first.contains(r#""checkers":["a","b","c"]"#), "{first}");
    say(&server, "a", &[(1, "Unhealthy"), (2, "Healthy")]).await;
    say(&server, "b", &[(1, "Unhealthy"), (2, "Healthy")]).await;
    say(&server, "c", &[(1, "Pending"), (2, "Healthy")]).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    let line = feed.until("\"ready\":false").await.pop().unwrap();
    let frame: Value = serde_json::from_str(&line).unwrap();
    let endpoints = &frame["service"]["ports"][0]["endpoints"];
    assert_eq!((&endpoints[0]["ready"], &endpoints[0]["serving"]), (&json!(false), &json!(false)), "{line}");
    assert_eq!(endpoints[1]["ready"], true, "{line}");
    let (_, health) = server.call("GET", HEALTH, None).await;
    let one = &health["endpoints"][0];
    assert_eq!((&one["state"], &one["share"]), (&json!("Unhealthy"), &json!(0)), "{health:#}");
    assert_eq!(one["checkers"]["c"]["state"], "Pending", "{health:#}");
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(service["status"]["endpoints"], json!({ "total": 2, "ready": 1, "unhealthy": 1 }));
    let (reason, message) = available(&service);
    assert_eq!(reason, "EndpointsReady");
    assert!(message.starts_with("1 of 2 checked endpoints are out of service: 10.1.0.1:80 "), "{message}");
    let (_, records) = server.call("GET", "/v1/endpointhealths", None).await;
    assert_eq!(records["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.call("DELETE", RECORD, None).await.0, 405);
    say_all(&server, &[(1, "Healthy"), (2, "Healthy")]).await;
    until_out(&server, &[]).await;
    let line = feed.until("\"ready\":true").await.pop().unwrap();
    assert!(!line.contains("\"ready\":false"), "{line}");
    let (_, metrics) = {
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let body = http_body_util::BodyExt::collect(server.send(request).await.into_body()).await.unwrap();
        ((), String::from_utf8(body.to_bytes().to_vec()).unwrap())
    };
    for line in [
        "tidegate_health_checked_endpoints 2",
        "tidegate_health_out_endpoints 0",
        r#"tidegate_health_verdicts_total{verdict="out"} 1"#,
        r#"tidegate_health_verdicts_total{verdict="back"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

/// F148: without reports of agents no endpoint is taken out of service or returned to it, even after a restart of
/// the server.
#[tokio::test]
async fn f148_what_was_decided_holds_while_nobody_says_anything() {
    let source = Fixed::at(START);
    let store = store::open("memory:", Timestamp::from_unix_seconds(START)).await.unwrap();
    let server =
        support::start_on(support::settings(30000..=32767), Arc::clone(&store), Arc::clone(&source)).await;
    for node in ["a", "b", "c"] {
        let body = json!({ "metadata": { "name": node }, "spec": {} });
        server.call("POST", "/v1/nodes", Some(body)).await;
    }
    apply(&server, 2, json!({ "type": "Tcp" })).await;
    say_all(&server, &[(1, "Unhealthy"), (2, "Healthy")]).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    source.advance(20);
    let health = until(&server, HEALTH, |_, health| health["endpoints"][0]["state"] == "Unknown").await;
    assert_eq!(health["endpoints"][0]["share"], 0, "{health:#}");
    assert_eq!(health["endpoints"][0]["message"], "a, b, c check it and have not reported a result");
    server.running.stop().await;
    let server = support::start_on(support::settings(30000..=32767), store, source).await;
    say(&server, "a", &[(1, "Pending"), (2, "Pending")]).await;
    until(&server, HEALTH, |_, health| health["endpoints"][0]["state"] == "Pending").await;
    until_out(&server, &["10.1.0.1:80"]).await;
    // The only node that reports.
    say(&server, "a", &[(1, "Healthy"), (2, "Healthy")]).await;
    until_out(&server, &[]).await;
}

/// F168: the health guard does not hold the endpoints of a lost Node that fail, and their record is deleted when the
/// Node reports again. With `--node-lost-after never` the Node is not lost.
#[tokio::test]
async fn f168_endpoints_of_a_failed_machine_leave_without_the_health_guard() {
    for lost_after in [NodeLostAfter::Secs(10), NodeLostAfter::Never] {
        let source = Fixed::at(START);
        let store = store::open("memory:", Timestamp::from_unix_seconds(START)).await.unwrap();
        let settings = Settings { node_lost_after: lost_after, ..support::settings(30000..=32767) };
        let server = support::start_on(settings, store, Arc::clone(&source)).await;
        let node = |name: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": {} });
        let workload = |host: u8| {
            json!({
                "kind": "Workload", "metadata": { "name": format!("w{host}"), "labels": { "app": "web" } },
                "spec": { "addresses": [format!("10.1.0.{host}")], "node": if host == 1 { "b" } else { "a" } },
            })
        };
        let service = json!({
            "kind": "Service", "metadata": { "name": "web" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
        });
        let mut items: Vec<_> = ["a", "b", "c"].map(node).into();
        items.extend((1..=5).map(workload).chain([service]));
        let (status, body) = server.call("POST", "/v1/apply", Some(json!(items))).await;
        assert_eq!(status, 200, "{body}");
        for node in ["a", "b", "c"] {
            say(&server, node, &[]).await;
        }
        let failed: Vec<_> = (2..=5).map(|host| (host, "Unhealthy")).collect();
        for _ in 0..4 {
            source.advance(5);
            say(&server, "b", &failed).await;
            say(&server, "c", &failed).await;
        }
        if lost_after == NodeLostAfter::Never {
            // Time for a wrong decision: leases are checked every second.
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let (_, node) = server.call("GET", "/v1/nodes/a", None).await;
            assert_eq!(node["spec"]["lostSince"], Value::Null);
            assert_eq!(server.call("GET", RECORD, None).await.0, 404);
            continue;
        }
        until_out(&server, &["10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80", "10.1.0.5:80"]).await;
        let (_, guard) = server.call("GET", GUARD, None).await;
        assert_eq!((&guard["heldTotal"], &guard["left"]), (&json!(0), &json!(0)), "{guard:#}");
        let (_, health) = server.call("GET", HEALTH, None).await;
        let endpoints = health["endpoints"].as_array().unwrap();
        let lost = endpoints.iter().filter(|endpoint| endpoint["nodeLost"] == true).count();
        let checked = states(&health).into_iter().filter(|state| *state != "NotChecked").count();
        assert_eq!((lost, checked), (4, 4), "only those of the lost Node: {health:#}");
        say(&server, "a", &[]).await;
        until(&server, RECORD, |status, _| status == 404).await;
        until_out(&server, &[]).await;
    }
}

/// F148: if too many endpoints fail at once, they stay in service until a user confirms the removal, or until they
/// recover.
#[tokio::test]
async fn f148_too_many_at_once_are_held_until_they_are_confirmed_or_recover() {
    let server = start(6, json!({ "type": "Tcp" })).await;
    let all = |state: &'static str| (1..=6).map(|host| (host, state)).collect::<Vec<_>>();
    say_all(&server, &all("Healthy")).await;
    say_all(&server, &all("Unhealthy")).await;
    let guard = until(&server, GUARD, |_, guard| guard["heldTotal"] == 6).await;
    assert_eq!((&guard["percent"], &guard["checked"]), (&json!(33), &json!(6)));
    assert_eq!(guard["held"][0]["service"], "default/web");
    until_out(&server, &[]).await;
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(available(&service).0, "HealthGuardHeld", "{service:#}");
    assert_eq!(service["status"]["endpoints"], json!({ "total": 6, "ready": 6, "unhealthy": 6 }));
    let (_, status) = server.call("GET", "/v1/status", None).await;
    let problems = status["problems"].as_array().unwrap();
    assert!(problems.iter().any(|one| one["reason"] == "HealthGuardHeld"), "{status:#}");
    let mut some = all("Healthy");
    some[0].1 = "Unhealthy";
    say_all(&server, &some).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    until(&server, GUARD, |_, guard| guard["heldTotal"] == 0).await;
    say_all(&server, &all("Unhealthy")).await;
    until(&server, GUARD, |_, guard| guard["heldTotal"] == 5).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    let (status, let_go) = server.call("POST", &format!("{GUARD}/confirm"), None).await;
    assert_eq!((status, &let_go["heldTotal"]), (200, &json!(5)));
    until(&server, RECORD, |_, record| out(record).len() == 6).await;
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(available(&service).0, "NoHealthyEndpoints", "{service:#}");
}

/// F148: in slow start the share of an endpoint grows with time. The EndpointHealth record is deleted when
/// the slow start is complete, or when the health check of the Service is removed.
#[tokio::test]
async fn f148_a_share_grows_and_a_record_ends_with_its_check() {
    let server = start(2, json!({ "type": "Tcp", "slowStartSeconds": 90 })).await;
    say_all(&server, &[(1, "Unhealthy"), (2, "Healthy")]).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    say_all(&server, &[(1, "Healthy"), (2, "Healthy")]).await;
    let share = |record: &Value| record["spec"]["endpoints"]["10.1.0.1:80"]["share"].clone();
    until(&server, RECORD, |_, record| share(record) == 10).await;
    let (_, compiled) = server.call("GET", "/v1/namespaces/default/endpoints/web", None).await;
    let weights = [0, 1].map(|at| compiled["ports"][0]["endpoints"][at]["weight"].as_u64().unwrap());
    assert_eq!(weights, [1, 10]);
    server.source.advance(10);
    until(&server, RECORD, |_, record| share(record) == 20).await;
    server.source.advance(80);
    until(&server, RECORD, |status, _| status == 404).await;
    say_all(&server, &[(1, "Unhealthy"), (2, "Healthy")]).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    let patch = json!({ "spec": { "healthCheck": null } });
    let (status, body) = server.call("PATCH", "/v1/namespaces/default/services/web", Some(patch)).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(server.call("GET", RECORD, None).await.0, 404, "in the same commit");
    let (_, health) = server.call("GET", HEALTH, None).await;
    assert_eq!(states(&health), ["NotChecked", "NotChecked"]);
}

#[tokio::test]
async fn reports_of_health_have_limits() {
    let server = start(1, json!({ "type": "Tcp" })).await;
    let check = |message: String| json!({ "address": "10.1.0.1", "port": 80, "state": "Healthy", "since": "2026-11-21T09:00:00Z", "message": message });
    let many: Vec<_> = (0..5001).map(|_| check("x".to_owned())).collect();
    for (checks, pointer) in
        [(json!([check("x".repeat(513))]), "/health/*/message"), (json!(many), "/health/*")]
    {
        let body = report(json!({ "health": { "default/web": checks } }));
        let (status, problem) = server.call("PUT", "/v1/nodes/a/report", Some(body)).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{problem:#}");
    }
}

/// Endpoints that nobody checks have the state NotChecked, and the status, the overview and the metrics count them.
#[tokio::test]
async fn endpoints_that_nobody_checks_are_shown_as_not_checked() {
    let server = start(2, Value::Null).await;
    let health =
        until(&server, HEALTH, |_, health| health["endpoints"].as_array().is_some_and(|all| all.len() == 2));
    let health = health.await;
    assert_eq!(health["endpoints"][0]["state"], "NotChecked", "{health:#}");
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(service["status"]["endpoints"], json!({ "total": 2, "ready": 2, "notChecked": 2 }));
    let status = until(&server, "/v1/status", |_, status| status["services"]["notChecked"] == 1).await;
    assert_eq!(status["problems"], json!([]), "it is no problem by itself: {status:#}");
    let (_, overview) = server.call("GET", "/v1/overview", None).await;
    assert_eq!(overview["totals"]["services"]["notChecked"], 1, "{overview:#}");
    assert_eq!(overview["services"][0]["endpointsNotChecked"], 2, "{overview:#}");
    let (_, explained) =
        server.call("GET", "/v1/namespaces/default/services/web/explain?desiredOnly=true", None).await;
    let candidate = &explained["paths"][0]["candidates"][0];
    assert_eq!(candidate["notChecked"], true, "{explained:#}");
    assert!(candidate["why"].as_str().unwrap().ends_with("; not checked"), "{candidate:#}");
    let response = server.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let text = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("tidegate_endpoints{state=\"not_checked\"} 2"), "{text}");
    apply(&server, 2, json!({ "type": "Tcp" })).await;
    until(&server, "/v1/status", |_, status| status["services"]["notChecked"] == 0).await;
}

/// Two agents with one node name are a problem in the status, and the node does not count as connected. The state
/// ends soon after one of them is gone.
#[tokio::test]
async fn two_agents_of_one_name_are_shown_until_one_is_gone() {
    let server = support::start().await;
    let body = json!({ "metadata": { "name": "a" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(body)).await.0, 201);
    let say = async |boot_id: &str| {
        let (status, body) =
            server.call("PUT", "/v1/nodes/a/report", Some(report(json!({ "bootId": boot_id })))).await;
        assert_eq!(status, 204, "{body}");
    };
    for boot_id in ["one", "two", "one", "two"] {
        say(boot_id).await;
        server.source.advance(2);
    }
    let status = until(&server, "/v1/status", |_, status| status["nodes"]["connected"] == 0).await;
    let problem = status["problems"].as_array().unwrap().iter().find(|one| one["reason"] == "TwoAgents");
    assert!(problem.is_some(), "{status}");
    for _ in 0..3 {
        server.source.advance(2);
        say("two").await;
    }
    let status = until(&server, "/v1/status", |_, status| status["nodes"]["connected"] == 1).await;
    assert_eq!(status["problems"].as_array().unwrap().len(), 0, "{status}");
}

/// An endpoint that nobody else checks leaves service if it fails the check by default, and the status states why. Agents
/// receive the setting. Other checks by default have no effect on the status.
#[tokio::test]
async fn endpoints_that_nobody_checks_are_checked_by_default() {
    let off = support::settings(30000..=32767);
    let settings = Settings { cluster: off.cluster.clone().with_default_checks(true), ..off };
    let server = support::start_with(settings).await;
    prepare(&server, 3, Value::Null).await;
    let mut feed = Lines::new(
        server.send(Request::get("/v1/nodes/a/state").body(Body::empty()).unwrap()).await.into_body(),
    );
    let sent = feed.until("\"synced\"").await.concat();
    assert!(sent.contains("\"defaultCheck\":true") && sent.contains("\"defaultCheck\":\"on\""), "{sent}");
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(service["status"]["endpoints"], json!({ "total": 3, "ready": 3 }), "nothing is unknown");
    say_all(&server, &[(1, "Unhealthy"), (2, "Healthy"), (3, "Healthy")]).await;
    until_out(&server, &["10.1.0.1:80"]).await;
    let (_, health) = server.call("GET", HEALTH, None).await;
    assert!(health["endpoints"].as_array().unwrap().iter().all(|one| one["byDefault"] == true), "{health:#}");
    let (_, service) = server.call("GET", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(service["status"]["endpoints"], json!({ "total": 3, "ready": 2, "unhealthy": 1 }));
    say_all(&server, &[(1, "Healthy"), (2, "Healthy"), (3, "Healthy")]).await;
    until_out(&server, &[]).await;
    until(&server, RECORD, |status, _| status == 404).await;
}

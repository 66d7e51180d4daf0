//! Tests of the overview and its watch: problems have a start time and a preceding change, and the changes that a
//! watch sends lead to the current document.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail, by what it does not expect"
)]

use std::io::Read;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use model::views::overview::{
    Impact, Overview,
    diff::{OverviewChange, OverviewFrame},
};
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

async fn call(server: &Server, method: &str, path: &str, body: Value) -> Value {
    let (status, answer) = server.call(method, path, Some(body)).await;
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

async fn apply(server: &Server, objects: Value) -> Value {
    call(server, "POST", "/v1/apply", objects).await
}

async fn overview(server: &Server) -> Overview {
    let (status, answer) = server.call("GET", "/v1/overview", None).await;
    assert_eq!(status, 200, "{answer}");
    serde_json::from_value(answer).unwrap()
}

async fn watch(server: &Server) -> Lines {
    let request = Request::get("/v1/overview/watch").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status(), 200);
    Lines::new(response.into_body())
}

async fn frame(lines: &mut Lines) -> OverviewFrame {
    serde_json::from_str(&lines.next().await.unwrap()).unwrap()
}

async fn first(lines: &mut Lines) -> Overview {
    match frame(lines).await {
        OverviewFrame::Overview(overview) => *overview,
        other => panic!("the first line is {other:?}"),
    }
}

/// Applies the changes that a watch sends to the document `held`, until the document satisfies a condition.
/// Returns the changes.
async fn until(
    lines: &mut Lines,
    held: &mut Overview,
    is_wanted: impl Fn(&Overview) -> bool,
) -> Vec<OverviewChange> {
    let mut changes = Vec::new();
    while !is_wanted(held) {
        match frame(lines).await {
            OverviewFrame::Change(change) => {
                held.apply((*change).clone());
                changes.push(*change);
            }
            OverviewFrame::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    }
    changes
}

fn report(at: &str) -> Value {
    json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at,
        "failuresTotal": 0, "announcementsComplete": true,
    })
}

/// Sends reports of the given nodes that they have verified the newest revision.
async fn converge(server: &Server, nodes: &[&str]) {
    let (_, status) = server.call("GET", "/v1/status", None).await;
    let at = status["position"].as_str().unwrap().to_owned();
    for node in nodes {
        let (status, answer) =
            server.call("PUT", &format!("/v1/nodes/{node}/report"), Some(report(&at))).await;
        assert_eq!(status, 204, "{answer}");
    }
}

fn service(name: &str) -> Value {
    json!({"kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn endpoints(name: &str, ready: &[bool]) -> Value {
    let endpoint = |(at, ready): (usize, &bool)| json!({"address": format!("10.1.1.{}", at + 1), "conditions": {"ready": ready}});
    let endpoints: Vec<_> = ready.iter().enumerate().map(endpoint).collect();
    json!({"kind": "EndpointSet", "metadata": {"name": name}, "spec": {"service": name, "endpoints": endpoints}})
}

fn node(name: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "spec": {}})
}

fn state(overview: &Overview, name: &str) -> String {
    let row = overview.services.iter().find(|row| row.name.as_str() == name).unwrap();
    format!("{:?} {}", row.state, row.reason.as_deref().unwrap_or("-"))
}

#[tokio::test]
async fn the_death_of_endpoints_is_a_change_line_with_impact_time_and_the_write_before_it() {
    let server = support::start().await;
    let objects = json!([node("n1"), service("web"), endpoints("web", &[true, true])]);
    apply(&server, json!(objects)).await;
    converge(&server, &["n1"]).await;
    let mut lines = watch(&server).await;
    let mut held = first(&mut lines).await;
    assert_eq!((state(&held, "web").as_str(), held.problems.len()), ("Ok -", 0), "{held:?}");
    server.source.advance(5);
    let request = Request::put("/v1/namespaces/default/endpointsets/web")
        .header("content-type", "application/json")
        .header("if-match", "*")
        .header("x-tidegate-author", "ada")
        .header("x-change-message", "off for the night");
    let body = Body::from(endpoints("web", &[true, false]).to_string());
    assert_eq!(server.send(request.body(body).unwrap()).await.status(), 200);
    let changes = until(&mut lines, &mut held, |held| !held.problems.is_empty()).await;
    assert!(changes.iter().all(|change| change.nodes.is_none()), "only what differs: {changes:?}");
    let problem = &held.problems[0];
    let change = problem.change.clone().unwrap();
    let seen =
        (problem.id.as_str(), format!("{:?} {}", problem.impact, problem.reason), change.author.as_deref());
    assert_eq!(
        seen,
        ("Service/default/web/EndpointsAvailable", "Degraded EndpointsNotReady".to_owned(), Some("ada"))
    );
    assert_eq!(change.message.as_deref(), Some("off for the night"));
    assert_eq!(problem.since.unwrap().unix_seconds(), support::START + 5);
    assert_eq!(state(&held, "web"), "Degraded EndpointsNotReady");
    apply(&server, json!([endpoints("web", &[false, false])])).await;
    until(&mut lines, &mut held, |held| state(held, "web") == "Unreachable NoReadyEndpoints").await;
    assert_eq!(held.totals.services.unreachable, 1);
    apply(&server, json!([endpoints("web", &[true, true])])).await;
    until(&mut lines, &mut held, |held| held.problems.is_empty()).await;
    assert_eq!(state(&held, "web"), "Ok -");
}

/// A Node that gets no block of a workload network is a problem, with the reason and the Node.
#[tokio::test]
async fn an_exhausted_workload_network_is_a_problem() {
    let server = support::start().await;
    let network = json!({ "kind": "WorkloadNetwork", "metadata": { "name": "pods" },
        "spec": { "cidrs": ["10.70.0.0/29"], "blockSize": { "ipv4": 30 } } });
    apply(&server, json!([network, node("n1")])).await;
    let about = |held: &Overview| {
        let problem = held.problems.iter().find(|one| one.name.as_str() == "pods");
        problem.map(|one| (one.impact, one.reason.clone(), one.message.clone()))
    };
    assert_eq!(about(&overview(&server).await), None);
    apply(&server, json!([node("n2")])).await;
    let (impact, reason, _) = about(&overview(&server).await).unwrap();
    assert_eq!(
        (impact, reason.as_str()),
        (Impact::Risk, "BlocksExhausted"),
        "no further Node can get a block"
    );
    apply(&server, json!([node("n3")])).await;
    let (impact, reason, message) = about(&overview(&server).await).unwrap();
    assert_eq!((impact, reason.as_str()), (Impact::Degraded, "BlocksExhausted"));
    assert!(message.starts_with("1 of 3 Nodes have no block: n3; no IPv4 block is free"), "{message}");
}

#[tokio::test]
async fn a_node_that_falls_silent_says_since_when_and_whom_it_concerns() {
    let server = support::start().await;
    apply(&server, json!([node("n1"), node("n2"), service("web"), endpoints("web", &[true])])).await;
    converge(&server, &["n1", "n2"]).await;
    let before = overview(&server).await;
    assert!(before.problems.is_empty(), "{:?}", before.problems);
    server.source.advance(100);
    converge(&server, &["n1"]).await;
    apply(&server, json!([service("later"), endpoints("later", &[true])])).await;
    let after = overview(&server).await;
    let row = after.nodes.iter().find(|row| row.name.as_str() == "n2").unwrap();
    assert_eq!(
        (format!("{:?}", row.state), row.since.unwrap().unix_seconds()),
        ("Disconnected".to_owned(), support::START)
    );
    let problem = after.problems.iter().find(|one| one.name.as_str() == "n2").unwrap();
    let affects: Vec<_> = problem.affects.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((format!("{:?}", problem.impact), affects), ("Risk".to_owned(), vec!["later"]));
}

/// After random writes and reports, the document of a watcher equals the document that a new request returns.
#[tokio::test]
async fn the_changes_of_a_watch_make_the_document_that_one_reads() {
    let server = support::start().await;
    let nodes = ["n1", "n2", "n3"];
    apply(&server, json!(nodes.map(node))).await;
    let mut lines = watch(&server).await;
    let mut held = first(&mut lines).await;
    let mut dice = Dice(5);
    let mut changes = 0;
    for _ in 0..12 {
        for _ in 0..=dice.roll(6) {
            step(&server, &mut dice, &nodes).await;
        }
        let wanted = overview(&server).await;
        changes += until(&mut lines, &mut held, |held| is_same(held, &wanted)).await.len();
    }
    assert!(changes >= 10, "the writes said something: {changes}");
}

/// Returns true if two overviews are equal except for times and measured delays.
fn is_same(held: &Overview, wanted: &Overview) -> bool {
    let strip = |overview: &Overview| {
        let mut overview = overview.clone();
        overview.at = wanted.at;
        overview.convergence = wanted.convergence.clone();
        overview.nodes.iter_mut().for_each(|row| row.lag_millis = None);
        overview
    };
    strip(held) == strip(wanted)
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

async fn step(server: &Server, dice: &mut Dice, nodes: &[&str]) {
    let name = format!("s{}", dice.roll(5));
    match dice.roll(8) {
        0..=2 => drop(apply(server, json!([service(&name), endpoints(&name, &[true, true])])).await),
        3 | 4 => {
            let ready: Vec<_> = (0..=dice.roll(3)).map(|_| dice.roll(2) == 0).collect();
            drop(apply(server, json!([service(&name), endpoints(&name, &ready)])).await);
        }
        5 => drop(server.call("DELETE", &format!("/v1/namespaces/default/services/{name}"), None).await),
        6 => converge(server, &nodes[..dice.roll(4) as usize]).await,
        _ => server.source.advance(dice.roll(70) as i64),
    }
}

#[tokio::test]
async fn both_are_compressed_line_by_line_for_who_accepts_gzip() {
    let server = support::start().await;
    apply(&server, json!([node("n1"), service("web")])).await;
    let request = Request::get("/v1/overview").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    let whole: Overview = serde_json::from_str(&text).unwrap();
    assert_eq!(whole.services.len(), 1);
    let request =
        Request::get("/v1/overview/watch").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let mut body = response.into_body();
    let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let mut text = Vec::new();
    // The stream continues; the data so far is one complete line.
    let _ = flate2::read::GzDecoder::new(&piece[..]).read_to_end(&mut text);
    let line = String::from_utf8(text).unwrap();
    assert!(line.starts_with("{\"type\":\"overview\"") && line.ends_with("}\n"), "{line}");
}

#[tokio::test]
async fn a_token_limited_to_a_namespace_sees_its_services_and_nothing_of_the_cluster() {
    let secured = support::secured::start().await;
    for namespace in ["shop", "bank"] {
        let body = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
        secured.admin("POST", &format!("/v1/namespaces/{namespace}/services"), Some(body)).await;
    }
    secured.admin("POST", "/v1/nodes", Some(json!({"metadata": {"name": "n1"}, "spec": {}}))).await;
    let limited = secured.token("shop", json!({"role": "viewer", "namespaces": ["shop"]})).await;
    let (status, seen) = secured.call(&limited, "GET", "/v1/overview", None).await;
    assert_eq!(status, 200, "{seen}");
    let text = seen.to_string();
    assert!(!text.contains("bank") && !text.contains("n1"), "{text}");
    assert_eq!((&seen["isWhole"], &seen["totals"]["services"]["total"]), (&json!(false), &json!(1)));
    assert_eq!(seen["problems"][0]["namespace"], "shop");
    let response = secured.send(&limited, "GET", "/v1/overview/watch", None).await;
    let mut lines = Lines::new(response.into_body());
    assert_eq!(first(&mut lines).await.services.len(), 1);
    let body = json!({"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}]}});
    secured.admin("POST", "/v1/namespaces/bank/services", Some(body.clone())).await;
    secured.admin("POST", "/v1/namespaces/shop/services", Some(body)).await;
    let lines = lines.until("\"other\"").await;
    assert!(!lines.concat().contains("bank"), "{lines:?}");
    let whole = secured.admin("GET", "/v1/overview", None).await;
    assert_eq!((&whole["isWhole"], &whole["totals"]["services"]["total"]), (&json!(true), &json!(4)));
}

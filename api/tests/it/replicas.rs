//! Tests of several control servers on one store: concurrent writes, visibility of each other's writes, and
//! leadership.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test may fail")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{
    self, Fixed, Lines, START, Server, etcd, settings,
    shared::{Shared, View},
};

const SERVICES: &str = "/v1/namespaces/default/services";

/// Two servers on one store, the first of them the leader.
struct Pair {
    shared: Shared,
    a: Arc<Server>,
    b: Arc<Server>,
    of_a: Arc<View>,
    of_b: Arc<View>,
}

async fn server(view: &Arc<View>, name: &str, seed: u64) -> Arc<Server> {
    let settings = api::base::config::Settings { replica_name: name.to_owned(), ..settings(30000..=32767) };
    Arc::new(support::start_on(settings, view.clone(), Fixed::seeded(START, seed)).await)
}

async fn pair() -> Pair {
    let shared = Shared::new().await;
    let (of_a, of_b) = (shared.view(true).await, shared.view(false).await);
    let (a, b) = (server(&of_a, "a", 1).await, server(&of_b, "b", 1_000_000).await);
    Pair { shared, a, b, of_a, of_b }
}

fn service(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

fn node() -> Value {
    json!({ "metadata": { "name": "n1" }, "spec": {} })
}

fn get(path: &str, header: Option<(&str, &str)>) -> Request<Body> {
    let request = Request::get(path);
    let request = match header {
        Some((name, value)) => request.header(name, value),
        None => request,
    };
    request.body(Body::empty()).unwrap()
}

async fn watch(server: &Server, resume: Option<&str>) -> Lines {
    let query = resume.map(|position| format!("&resume={position}")).unwrap_or_default();
    let response = server.send(get(&format!("/v1/watch?kinds=Service{query}"), None)).await;
    assert_eq!(response.status().as_u16(), 200);
    Lines::new(response.into_body())
}

/// Returns the next event of a watch that is not a heartbeat.
async fn event(watch: &mut Lines) -> Value {
    loop {
        let event: Value = serde_json::from_str(&watch.next().await.unwrap()).unwrap();
        if event["type"] != "HEARTBEAT" {
            return event;
        }
    }
}

/// Repeats a read of a path until status and body satisfy a condition.
async fn until(server: &Server, path: &str, is_wanted: impl Fn(u16, &Value) -> bool) -> Value {
    for _ in 0..600 {
        let (status, body) = server.call("GET", path, None).await;
        if is_wanted(status, &body) {
            return body;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} does not come to be as wanted");
}

async fn position(server: &Server) -> String {
    let (_, list) = server.call("GET", SERVICES, None).await;
    list["metadata"]["position"].as_str().unwrap().to_owned()
}

/// Both servers create objects concurrently, some with the same names. Each name is created once, no address is
/// allocated twice, and a watch at each server sends the same events in order without gaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_at_two_servers_at_once_land_once_and_are_seen_alike_at_both() {
    let Pair { a, b, .. } = pair().await;
    write_at_both(&a, &b).await;
}

async fn write_at_both(a: &Arc<Server>, b: &Arc<Server>) {
    let mut watches = [watch(a, None).await, watch(b, None).await];
    for watch in &mut watches {
        assert_eq!(event(watch).await["initial"], true);
    }
    let tasks: Vec<_> = (0..120)
        .map(|at| {
            // Each of 60 names at both servers; node port 30080 for every tenth.
            let (server, name) = (if at % 2 == 0 { a } else { b }, at / 2);
            let server = Arc::clone(server);
            let mut body = service(&format!("s{name}"));
            if name % 10 == 0 {
                body["spec"] = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] });
            }
            tokio::spawn(async move { server.call("POST", SERVICES, Some(body)).await })
        })
        .collect();
    let mut created = BTreeSet::new();
    for task in tasks {
        let (status, body) = task.await.unwrap();
        match status {
            201 => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(created.insert(name), "created twice: {body}");
            }
            409 => assert_eq!(body["code"], "AlreadyExists"),
            422 => assert_eq!(body["errors"][0]["code"], "PortTaken", "{body}"),
            other => panic!("{other}: {body}"),
        }
    }
    assert_eq!(created.len(), 54 + 1, "all names but those that wanted the same port, and one of them");
    let mut seen = Vec::new();
    for watch in &mut watches {
        let mut events = Vec::new();
        while events.len() < created.len() {
            let event = event(watch).await;
            assert_eq!(event["type"], "ADDED", "{event}");
            events.push((
                event["revision"].as_u64().unwrap(),
                event["object"]["spec"].clone(),
                event["position"].clone(),
            ));
        }
        assert!(events.is_sorted_by(|one, next| one.0 + 1 == next.0), "in order, without gaps: {events:?}");
        seen.push(events);
    }
    assert_eq!(seen[0], seen[1]);
    let addresses: BTreeSet<_> = seen[0].iter().map(|(_, spec, _)| spec["clusterIP"].to_string()).collect();
    assert_eq!(addresses.len(), created.len(), "no address twice");
}

/// A server that has not yet read the writes of the other one still decides writes on the newest state, including
/// rejections.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_behind_decides_writes_on_the_newest_state() {
    let Pair { a, b, of_b, .. } = pair().await;
    of_b.deafen(true);
    let port = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] });
    let taken = json!({ "metadata": { "name": "a1" }, "spec": port });
    assert_eq!(a.call("POST", SERVICES, Some(taken)).await.0, 201);
    assert_eq!(b.call("GET", &format!("{SERVICES}/a1"), None).await.0, 404, "it is behind");
    let other = json!({ "metadata": { "name": "b1" }, "spec": port });
    let (status, body) = b.call("POST", SERVICES, Some(other)).await;
    assert_eq!((status, &body["errors"][0]["code"]), (422, &json!("PortTaken")), "{body}");

    a.call("POST", SERVICES, Some(service("a2"))).await;
    assert_eq!(b.call("POST", SERVICES, Some(service("a2"))).await.0, 409);
    a.call("POST", SERVICES, Some(service("a3"))).await;
    let labels = json!({ "metadata": { "labels": { "by": "b" } } });
    let patch =
        Request::patch(format!("{SERVICES}/a3")).header("content-type", "application/merge-patch+json");
    let patched = b.send(patch.body(Body::from(labels.to_string())).unwrap()).await;
    assert_eq!(patched.status().as_u16(), 200);
    a.call("POST", SERVICES, Some(service("a4"))).await;
    let read = a.send(get(&format!("{SERVICES}/a4"), None)).await;
    let etag = read.headers()["etag"].to_str().unwrap().to_owned();
    let put = || {
        Request::put(format!("{SERVICES}/a4"))
            .header("content-type", "application/json")
            .header("if-match", &etag)
    };
    let body = |label: &str| {
        let mut body = service("a4");
        body["metadata"]["labels"] = json!({ "by": label });
        Body::from(body.to_string())
    };
    assert_eq!(
        b.send(put().body(body("b")).unwrap()).await.status().as_u16(),
        200,
        "the state that A showed"
    );
    assert_eq!(a.send(put().body(body("a")).unwrap()).await.status().as_u16(), 412, "B was faster");
    a.call("POST", SERVICES, Some(service("a5"))).await;
    assert_eq!(b.call("DELETE", &format!("{SERVICES}/a5"), None).await.0, 200);
    let gone = |status: u16, _: &Value| status == 404;
    until(&a, &format!("{SERVICES}/a5"), gone).await;
    let metrics = b.send(get("/metrics", None)).await;
    let text = http_body_util::BodyExt::collect(metrics.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    let conflicts = text.lines().find_map(|line| line.strip_prefix("tidegate_write_commit_conflicts_total "));
    assert!(conflicts.unwrap().parse::<u64>().unwrap() >= 3, "{conflicts:?}");
    assert!(text.contains("tidegate_store_call_seconds_count{call=\"commit\"} "), "{text}");
}

/// A client that has written through one server sees the write at another server if the read names the
/// revision of the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_that_names_a_revision_waits_until_its_server_has_seen_it() {
    let Pair { a, b, of_b, .. } = pair().await;
    of_b.deafen(true);
    let path = format!("{SERVICES}/web");
    a.call("POST", SERVICES, Some(service("web"))).await;
    let (revision, whole) = ("1".to_owned(), position(&a).await);
    for min in [revision, whole] {
        of_b.deafen(true);
        let read = tokio::spawn({
            let (b, request) = (Arc::clone(&b), get(&path, Some(("x-tidegate-min-position", &min))));
            async move { b.send(request).await.status().as_u16() }
        });
        tokio::task::yield_now().await;
        of_b.deafen(false);
        assert_eq!(read.await.unwrap(), 200, "{min}");
    }
    let wrong = b.send(get(&path, Some(("x-tidegate-min-position", "soon")))).await;
    assert_eq!(wrong.status().as_u16(), 400);
}

/// A read of the latest state includes a write that another server has accepted before, although the server of
/// the read receives no notification. Without the store such a read fails instead of returning an old state.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_of_the_latest_state_is_linearizable() {
    let Pair { a, b, of_b, .. } = pair().await;
    of_b.deafen(true);
    let latest = Some(("x-tidegate-min-position", "latest"));
    for name in ["web", "shop"] {
        a.call("POST", SERVICES, Some(service(name))).await;
        let path = format!("{SERVICES}/{name}");
        assert_eq!(b.send(get(&path, None)).await.status().as_u16(), 404, "the replica is behind");
        assert_eq!(b.send(get(&path, latest)).await.status().as_u16(), 200, "{name}");
    }
    of_b.cut(true);
    assert_eq!(b.send(get(&format!("{SERVICES}/web"), None)).await.status().as_u16(), 200);
    assert_eq!(b.send(get(&format!("{SERVICES}/web"), latest)).await.status().as_u16(), 503);
}

/// A read or watch that names a position which the server does not reach in time fails with `Behind`; a watch
/// does not start at an older state instead. The feed of an agent does, and contains the older position.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_stays_behind_says_so_instead_of_going_back() {
    let Pair { a, b, of_b, .. } = pair().await;
    a.call("POST", "/v1/nodes", Some(node())).await;
    until(&b, "/v1/nodes/n1", |status, _| status == 200).await;
    of_b.deafen(true);
    a.call("POST", SERVICES, Some(service("web"))).await;
    let at = position(&a).await;
    let read = b.send(get(&format!("{SERVICES}/web"), Some(("x-tidegate-min-position", &at))));
    let watched = b.send(get(&format!("/v1/watch?resume={at}"), None));
    let fed = b.send(get(&format!("/v1/nodes/n1/state?resume={at}"), None));
    let (read, watched, fed) = tokio::join!(read, watched, fed);
    for response in [read, watched] {
        assert_eq!(response.status().as_u16(), 503);
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["code"], "Behind");
    }
    let start: Value = serde_json::from_str(&Lines::new(fed.into_body()).next().await.unwrap()).unwrap();
    assert!(start["position"].as_str().unwrap() < at.as_str(), "an agent sees that this server is behind");
}

/// A watch and a feed can continue at another server that is slightly behind, without gaps or a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_fails_over_to_a_server_that_is_a_little_behind_misses_nothing() {
    let Pair { a, b, of_b, .. } = pair().await;
    a.call("POST", "/v1/nodes", Some(node())).await;
    until(&b, "/v1/nodes/n1", |status, _| status == 200).await;
    of_b.deafen(true);
    let mut first = watch(&a, None).await;
    event(&mut first).await;
    a.call("POST", SERVICES, Some(service("one"))).await;
    let at = event(&mut first).await["position"].as_str().unwrap().to_owned();
    let resumed = tokio::spawn({
        let (b, at) = (Arc::clone(&b), at.clone());
        async move { watch(&b, Some(&at)).await }
    });
    let fed = tokio::spawn({
        let (b, request) = (Arc::clone(&b), get(&format!("/v1/nodes/n1/state?resume={at}"), None));
        async move { Lines::new(b.send(request).await.into_body()) }
    });
    tokio::task::yield_now().await;
    of_b.deafen(false);
    let (mut resumed, mut fed) = (resumed.await.unwrap(), fed.await.unwrap());
    let start: Value = serde_json::from_str(&fed.next().await.unwrap()).unwrap();
    assert_eq!((&start["mode"], start["position"].as_str()), (&json!("delta"), Some(at.as_str())));
    fed.until("\"synced\"").await;
    a.call("POST", SERVICES, Some(service("two"))).await;
    let next = event(&mut resumed).await;
    assert_eq!((&next["type"], &next["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("two")));
    let lines = fed.until("\"synced\"").await;
    assert_eq!(lines.len(), 2, "the new Service, and synced: {lines:?}");
}

/// If another process starts a new epoch of the store, watches end with an explanation, and feeds end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_epoch_that_another_process_began_ends_watches_and_feeds_everywhere() {
    let Pair { shared, a, b, .. } = pair().await;
    a.call("POST", "/v1/nodes", Some(node())).await;
    until(&b, "/v1/nodes/n1", |status, _| status == 200).await;
    let before = position(&b).await;
    let mut watches = [watch(&a, None).await, watch(&b, None).await];
    for watch in &mut watches {
        event(watch).await;
    }
    let mut feed = Lines::new(b.send(get("/v1/nodes/n1/state", None)).await.into_body());
    feed.until("\"synced\"").await;
    let third = shared.view(false).await;
    store::Store::raise_epoch(&*third, model::primitives::quantity::Timestamp::from_unix_seconds(START + 60))
        .await
        .unwrap();
    for watch in &mut watches {
        let end = event(watch).await;
        assert_eq!((&end["type"], &end["problem"]["code"]), (&json!("ERROR"), &json!("ResumeExpired")));
    }
    while let Some(line) = feed.next().await {
        assert!(line.contains("\"heartbeat\""), "{line}");
    }
    for server in [&a, &b] {
        let now = position(server).await;
        assert!(now > before && now.starts_with(&(START + 60).to_string()), "{now}");
        let response = server.send(get(&format!("/v1/watch?resume={before}"), None)).await;
        assert_eq!(response.status().as_u16(), 410);
    }
    assert_eq!(b.call("POST", SERVICES, Some(service("web"))).await.0, 201);
    until(&a, &format!("{SERVICES}/web"), |status, _| status == 200).await;
}

/// A server that has lost its store still serves reads and rejects writes. After it reconnects, it and its watches
/// continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_cut_off_reads_on_refuses_writes_and_recovers() {
    let Pair { a, b, of_b, .. } = pair().await;
    a.call("POST", SERVICES, Some(service("one"))).await;
    until(&b, &format!("{SERVICES}/one"), |status, _| status == 200).await;
    let mut watched = watch(&b, Some(&position(&b).await)).await;
    of_b.cut(true);
    a.call("POST", SERVICES, Some(service("two"))).await;
    assert_eq!(b.call("GET", &format!("{SERVICES}/one"), None).await.0, 200);
    let (status, problem) = b.call("POST", SERVICES, Some(service("three"))).await;
    assert_eq!((status, &problem["code"]), (503, &json!("Unavailable")));
    assert_eq!(b.call("GET", "/readyz", None).await.0, 503);
    of_b.cut(false);
    let mut status = 0;
    for _ in 0..600 {
        status = b.call("POST", SERVICES, Some(service("three"))).await.0;
        if status != 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, 201);
    for name in ["two", "three"] {
        let event = event(&mut watched).await;
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
}

/// If the change log of the store was truncated, but the server can load the newer state, watches and feeds
/// continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_whose_log_was_trimmed_reads_the_state_anew_and_its_watches_go_on() {
    let Pair { a, b, of_b, .. } = pair().await;
    a.call("POST", "/v1/nodes", Some(node())).await;
    until(&b, "/v1/nodes/n1", |status, _| status == 200).await;
    let mut fed = Lines::new(b.send(get("/v1/nodes/n1/state", None)).await.into_body());
    fed.until("\"synced\"").await;
    let mut watched = watch(&b, None).await;
    event(&mut watched).await;
    of_b.deafen(true);
    of_b.forget(true);
    for name in ["one", "two"] {
        a.call("POST", SERVICES, Some(service(name))).await;
    }
    of_b.deafen(false);
    for name in ["one", "two"] {
        assert_eq!(event(&mut watched).await["object"]["metadata"]["name"], name);
    }
    let lines = fed.until("\"synced\"").await;
    assert!(lines.iter().all(|line| !line.contains("\"start\"")), "what changed, and no more: {lines:?}");
}

/// F016: after the leader stops, another server allocates addresses, and no address is allocated twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f016_what_is_done_once_moves_to_another_server_and_no_address_is_given_twice() {
    let Pair { a, b, of_a, of_b, .. } = pair().await;
    for (server, leads) in [(&a, true), (&b, false)] {
        let replica = server.call("GET", "/v1/status", None).await.1["replica"].clone();
        let name = if leads { "a" } else { "b" };
        assert_eq!(replica, json!({ "name": name, "isLeader": leads, "isShared": true }));
    }
    let (status, problem) = b.call("POST", "/v1/guards/health/confirm", None).await;
    assert_eq!((status, &problem["code"]), (409, &json!("NotLeader")));
    let pool = json!({ "metadata": { "name": "lab" }, "spec": { "addresses": ["198.51.100.8-198.51.100.9"], "quarantineSeconds": 30 } });
    a.call("POST", "/v1/addresspools", Some(pool)).await;
    let balancer = |name: &str| json!({ "metadata": { "name": name }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    for name in ["w1", "w2"] {
        assert_eq!(a.call("POST", SERVICES, Some(balancer(name))).await.0, 201);
        assert_eq!(b.call("DELETE", &format!("{SERVICES}/{name}"), None).await.0, 200);
    }
    for (server, name) in [(&a, "w3"), (&b, "w4")] {
        assert_eq!(server.call("POST", SERVICES, Some(balancer(name))).await.0, 201);
    }
    of_a.lead(false);
    of_b.lead(true);
    b.source.advance(30);
    let mut given = BTreeSet::new();
    for name in ["w3", "w4"] {
        let has_address = |_: u16, body: &Value| body.pointer("/status/loadBalancer/ingress/0/ip").is_some();
        let body = until(&a, &format!("{SERVICES}/{name}"), has_address).await;
        given.insert(body["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap().to_owned());
    }
    assert_eq!(given, BTreeSet::from(["198.51.100.8", "198.51.100.9"].map(str::to_owned)));
    assert_eq!(b.call("POST", "/v1/guards/health/confirm", None).await.0, 200, "it leads");
}

/// A new leader gives every Node a full lease, because it may have been cut off from the agents before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_begins_to_lead_gives_nodes_the_time_of_a_lease() {
    let Pair { a, b, of_a, of_b, .. } = pair().await;
    a.call("POST", "/v1/nodes", Some(node())).await;
    until(&b, "/v1/nodes/n1", |status, _| status == 200).await;
    let report = json!({
        "bootId": "x", "agentVersion": "0", "mode": "nftables", "received": "1-1", "applied": "1-1", "verified": "1-1",
    });
    assert_eq!(b.call("PUT", "/v1/nodes/n1/report", Some(report)).await.0, 204);
    b.source.advance(1000);
    of_a.lead(false);
    of_b.lead(true);
    // Time for a wrong decision: leases are checked every second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let lost_since = |body: &Value| body["spec"]["lostSince"].as_str().map(str::to_owned);
    for _ in 0..100 {
        b.source.advance(41);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (_, body) = a.call("GET", "/v1/nodes/n1", None).await;
        if let Some(since) = lost_since(&body) {
            let earliest =
                model::primitives::quantity::Timestamp::from_unix_seconds(START + 1041).to_string();
            assert!(since >= earliest, "{since} is before {earliest}");
            return;
        }
    }
    panic!("the Node is never lost");
}

/// F002: two servers on a real etcd write concurrently. After the leader stops, the other server becomes the
/// leader, has all writes of the first, and accepts new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f002_what_was_written_through_one_server_on_etcd_is_read_through_another_after_the_first_ended() {
    let etcd = etcd::Etcd::start();
    let on_etcd = async |name: &str, seed| {
        let store =
            store::open(&etcd.url(), model::primitives::quantity::Timestamp::from_unix_seconds(START))
                .await
                .unwrap();
        let settings =
            api::base::config::Settings { replica_name: name.to_owned(), ..settings(30000..=32767) };
        support::start_on(settings, store, Fixed::seeded(START, seed)).await
    };
    let (first, second) = (Arc::new(on_etcd("a", 1).await), Arc::new(on_etcd("b", 1_000_000).await));
    write_at_both(&first, &second).await;
    let leads = |_: u16, status: &Value| status["replica"]["isLeader"] == true;
    assert_eq!(first.call("POST", SERVICES, Some(service("last"))).await.0, 201);
    let at = position(&first).await;
    let read = second.send(get(&format!("{SERVICES}/last"), Some(("x-tidegate-min-position", &at)))).await;
    assert_eq!(read.status().as_u16(), 200);
    let mut watched = watch(&second, Some(&at)).await;
    assert_eq!(first.call("POST", SERVICES, Some(service("very-last"))).await.0, 201);
    let first = Arc::into_inner(first).expect("nobody else has it");
    drop(first.router);
    first.running.stop().await;
    assert_eq!(event(&mut watched).await["object"]["metadata"]["name"], "very-last");
    until(&second, "/v1/status", leads).await;
    assert_eq!(second.call("POST", SERVICES, Some(service("next"))).await.0, 201);
    assert_eq!(event(&mut watched).await["object"]["metadata"]["name"], "next");
}

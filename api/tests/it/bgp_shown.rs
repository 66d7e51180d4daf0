//! Tests of the display of reported BGP state: conditions of addresses and Services, metrics, and limits of
//! reports.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{self, Server};

fn report(more: Value) -> Value {
    let mut report = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables",
        "received": "1795251600-1", "applied": "1795251600-1", "verified": "1795251600-1",
    });
    report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    report
}

fn session(peer: &str, state: &str) -> Value {
    json!({ "peer": peer, "address": "10.0.0.1", "state": state, "since": "2026-11-21T08:00:00Z", "reason": "because",
        "localASN": 64512, "counters": { "prefixesSent": 2 } })
}

fn bgp(sessions: Vec<Value>) -> Value {
    json!({ "asn": 64512, "routerId": "192.0.2.1", "sessions": sessions })
}

async fn send(server: &Server, node: &str, more: Value) -> u16 {
    server.call("PUT", &format!("/v1/nodes/{node}/report"), Some(report(more))).await.0
}

async fn create(server: &Server, path: &str, body: Value) {
    let (status, answer) = server.call("POST", path, Some(body)).await;
    assert_eq!(status, 201, "{answer}");
}

async fn text(server: &Server, path: &str) -> String {
    let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn announced(object: &Value) -> &Value {
    object["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Announced").unwrap()
}

async fn two_nodes() -> Server {
    let server = support::start().await;
    for node in ["a", "b"] {
        create(&server, "/v1/nodes", json!({ "metadata": { "name": node }, "spec": {} })).await;
    }
    server
}

/// F126: the status of an address with a BGP Advertisement, and that of its Service, list the routers that have
/// received it.
#[tokio::test]
async fn f126_addresses_and_services_say_which_routers_have_them() {
    let server = two_nodes().await;
    let pool = json!({ "metadata": { "name": "p" }, "spec": { "addresses": ["198.51.100.0/28"] } });
    create(&server, "/v1/addresspools", pool).await;
    let to_racks = json!({ "metadata": { "name": "to-racks" }, "spec": { "type": "BGP" } });
    create(&server, "/v1/advertisements", to_racks).await;
    let web = json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "loadBalancer": { "addresses": ["198.51.100.7"] }, "ports": [{ "port": 80 }] } });
    create(&server, "/v1/namespaces/default/services", web).await;
    // Advance beyond the initial listening period of the server.
    server.source.advance(120);
    let routes = json!({ "198.51.100.7/32": { "addresses": ["198.51.100.7"],
        "peers": { "tor-1": { "since": "2026-11-21T08:00:00Z", "text": "next hop 192.0.2.1" } } } });
    let everything = json!({ "bgp": bgp(vec![session("tor-1", "Established")]), "bgpRoutes": routes });
    for node in ["a", "b"] {
        assert_eq!(send(&server, node, everything.clone()).await, 204);
    }
    let address = "/v1/addresses/198.51.100.7";
    let mut record = Value::Null;
    for _ in 0..600 {
        record = server.call("GET", address, None).await.1;
        if record["spec"]["announcement"]["advertisements"] == json!(["to-racks"]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let message = "198.51.100.7 is announced by 2 nodes to 1 router (tor-1)";
    assert_eq!(announced(&record)["message"], message, "{record:#}");
    assert_eq!(record["status"]["byBgp"]["announcedBy"], json!(["a", "b"]));
    let service = server.call("GET", "/v1/namespaces/default/services/web", None).await.1;
    assert_eq!(announced(&service)["status"], "True");
    assert_eq!(announced(&service)["message"], message);

    let withheld =
        json!({ "198.51.100.7/32": { "addresses": ["198.51.100.7"], "withheld": "no usable endpoint" } });
    for node in ["a", "b"] {
        let more = json!({ "bgp": bgp(vec![session("tor-1", "Established")]), "bgpRoutes": withheld });
        assert_eq!(send(&server, node, more).await, 204);
    }
    let service = server.call("GET", "/v1/namespaces/default/services/web", None).await.1;
    assert_eq!(announced(&service)["reason"], "Withheld", "{service:#}");
}

/// A session is shown as unknown as soon as the agent has closed its feed, and an address that only this node
/// announces is unknown too. A report or a new feed ends this. A feed that a newer one replaces has no such effect.
#[tokio::test]
async fn sessions_of_an_agent_whose_connection_ended_are_unknown_at_once() {
    let server = two_nodes().await;
    let open = async || {
        let response = server.send(Request::get("/v1/nodes/a/state").body(Body::empty()).unwrap()).await;
        let mut lines = support::Lines::new(response.into_body());
        lines.until("\"synced\"").await;
        lines
    };
    let is_reporting = async || {
        let sessions = server.call("GET", "/v1/bgp/sessions?node=a", None).await.1;
        let routes = server.call("GET", "/v1/bgp/routes?node=a", None).await.1;
        let both = [&sessions, &routes].map(|list| list["items"][0]["isReporting"].as_bool().unwrap());
        assert_eq!(both[0], both[1]);
        both[0]
    };
    let routes = json!({ "198.51.100.7/32": { "addresses": ["198.51.100.7"],
        "peers": { "tor-1": { "since": "2026-11-21T08:00:00Z", "text": "next hop 192.0.2.1" } } } });
    let up = json!({ "bgp": bgp(vec![session("tor-1", "Established")]), "bgpRoutes": routes });
    let first = open().await;
    assert_eq!(send(&server, "a", up.clone()).await, 204);
    assert!(is_reporting().await);

    let second = open().await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(is_reporting().await, "the agent has a newer feed");
    drop(second);
    for _ in 0..200 {
        if !is_reporting().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_reporting().await, "the agent has left, and its lease has not expired");
    let established = "tidegate_bgp_sessions{peer=\"tor-1\",state=\"Established\"}";
    assert!(text(&server, "/metrics").await.contains(&format!("{established} 0")));
    assert_eq!(send(&server, "a", up).await, 204);
    assert!(is_reporting().await, "the agent reports");
    let third = open().await;
    drop(third);
    while is_reporting().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _fourth = open().await;
    assert!(is_reporting().await, "the agent has opened a feed");
}

/// BGP sessions are counted by peer and state. Sessions of silent nodes do not count as established, and the
/// number of peers is limited.
#[tokio::test]
async fn metrics_count_sessions_by_peer_and_state() {
    let server = two_nodes().await;
    send(
        &server,
        "a",
        json!({ "bgp": bgp(vec![session("tor-1", "Established"), session("tor-2", "Idle")]) }),
    )
    .await;
    send(&server, "b", json!({ "bgp": bgp(vec![session("tor-1", "Established")]) })).await;
    let metrics = text(&server, "/metrics").await;
    for line in [
        "tidegate_bgp_sessions{peer=\"tor-1\",state=\"Established\"} 2",
        "tidegate_bgp_sessions{peer=\"tor-2\",state=\"Established\"} 0",
        "tidegate_bgp_sessions{peer=\"tor-2\",state=\"Idle\"} 1",
        "tidegate_bgp_prefixes_sent{peer=\"tor-1\"} 4",
        "tidegate_bgp_hidden_peers 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    server.source.advance(600);
    let many = (0..250).map(|at| session(&format!("peer-{at:03}"), "Established")).collect();
    send(&server, "a", json!({ "bgp": bgp(many) })).await;
    let metrics = text(&server, "/metrics").await;
    for line in
        ["tidegate_bgp_sessions{peer=\"peer-000\",state=\"Established\"} 1", "tidegate_bgp_hidden_peers 51"]
    {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("tor-1"), "what is beyond the bound has no series");
}

/// A report beyond a limit is rejected as a whole, and the error points to the field.
#[tokio::test]
async fn reports_beyond_the_limits_are_refused_with_the_field() {
    let server = two_nodes().await;
    let long = "x".repeat(1025);
    let told = |text: &str, peers: usize| {
        let peer = |at: usize| (format!("peer-{at}"), json!({ "text": text }));
        let peers: serde_json::Map<_, _> = (0..peers).map(peer).collect();
        json!({ "bgpRoutes": { "192.0.2.7/32": { "peers": peers } } })
    };
    let with = |field: &str, value: Value| {
        let mut session = session("tor-1", "Idle");
        session[field] = value;
        json!({ "bgp": bgp(vec![session]) })
    };
    let prefixes = |count: u32| (0..count).map(|at| format!("{}/32", std::net::Ipv4Addr::from_bits(at)));
    let routes: serde_json::Map<_, _> = prefixes(5001).map(|prefix| (prefix, json!({}))).collect();
    let error = json!({ "at": "2026-11-21T08:00:00Z", "code": 6, "subcode": 2, "message": long });
    let negotiated =
        |count: usize| json!({ "holdTime": 9, "keepaliveTime": 3, "capabilities": vec!["x"; count] });
    for (more, pointer) in [
        (json!({ "bgp": bgp(vec![session("tor-1", "Idle"); 513]) }), "/bgp/sessions"),
        (with("reason", json!(long)), "/bgp/sessions/*/reason"),
        (with("bfd", json!(long)), "/bgp/sessions/*/bfd"),
        (with("hostName", json!("x".repeat(256))), "/bgp/sessions/*/hostName"),
        (with("lastSent", error.clone()), "/bgp/sessions/*/lastSent/message"),
        (with("lastReceived", error), "/bgp/sessions/*/lastReceived/message"),
        (with("negotiated", negotiated(65)), "/bgp/sessions/*/negotiated/capabilities"),
        (json!({ "bgpRoutes": routes }), "/bgpRoutes"),
        (json!({ "bgpRoutesGone": prefixes(5001).collect::<Vec<_>>() }), "/bgpRoutesGone"),
        (told(&long, 1), "/bgpRoutes/*/peers/*/text"),
        (told("x", 513), "/bgpRoutes/*/peers"),
        (json!({ "bgpRoutes": { "192.0.2.7/32": { "withheld": long } } }), "/bgpRoutes/*/withheld"),
    ] {
        let (status, body) = server.call("PUT", "/v1/nodes/a/report", Some(report(more))).await;
        assert_eq!((status, &body["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}");
    }
    assert_eq!(send(&server, "a", with("negotiated", negotiated(64))).await, 204);
    let (_, events) = server.call("GET", "/v1/bgp/events", None).await;
    assert_eq!(events["items"], json!([]), "what was refused left no trace");
}

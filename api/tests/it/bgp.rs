//! Tests of BGP in the control server: only affected nodes receive changes, addresses record the Advertisements
//! that cover them, and passwords are sent to nodes only.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

async fn text(server: &Server, path: &str) -> String {
    let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
    assert_eq!(response.status().as_u16(), 200, "{path}");
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn open(server: &Server, path: &str) -> Lines {
    let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
    assert_eq!(response.status().as_u16(), 200);
    Lines::new(response.into_body())
}

async fn apply(server: &Server, items: Value) {
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    assert!(!body.to_string().contains("hush"), "{body}");
}

fn of_kind(kind: &str, name: &str, labels: Value, spec: Value) -> Value {
    json!({ "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": spec })
}

/// Starts a server with nodes `a` and `b` in racks of the same names, and a BgpPeer for rack `a`.
async fn start() -> Server {
    let server = support::start().await;
    let in_a = json!([{ "matchLabels": { "rack": "a" } }]);
    apply(
        &server,
        json!([
            of_kind("Node", "a", json!({ "rack": "a" }), json!({})),
            of_kind("Node", "b", json!({ "rack": "b" }), json!({})),
            of_kind("BfdProfile", "fast", json!({}), json!({})),
            of_kind("BgpPeer", "tor", json!({}), json!({
                "peerAddress": "10.0.0.1", "peerASN": 65_001, "password": "hush-hush", "bfdProfile": "fast", "nodeSelectors": in_a,
            })),
        ]),
    )
    .await;
    server
}

/// Returns the BGP settings in the last feed frame of type `node` among these lines; `None` if there is no
/// such frame.
fn told(lines: &[String]) -> Option<Value> {
    let frames = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames.filter(|frame| frame["type"] == "node").map(|frame| frame["bgp"].clone()).next_back()
}

/// A change of any object on which the BGP settings of a node depend is sent to the node that has the
/// BgpPeer, and not to the other node.
#[tokio::test]
async fn only_the_nodes_concerned_are_told_and_only_what_changed() {
    let server = start().await;
    let mut a = open(&server, "/v1/nodes/a/state").await;
    let mut b = open(&server, "/v1/nodes/b/state").await;
    let first = told(&a.until("\"synced\"").await).unwrap();
    assert_eq!(first["peers"]["tor"]["password"], "hush-hush");
    assert_eq!(
        (&first["asn"], &first["peers"]["tor"]["bfd"]["receiveInterval"]),
        (&json!(64_512), &json!(300))
    );
    assert_eq!(told(&b.until("\"synced\"").await), Some(Value::Null));
    let changes = [
        of_kind("BfdProfile", "fast", json!({}), json!({ "receiveInterval": 100 })),
        of_kind("Advertisement", "all", json!({}), json!({ "type": "BGP", "med": 5 })),
        of_kind("Node", "a", json!({ "rack": "a" }), json!({ "unschedulable": true })),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        apply(&server, json!([change])).await;
        let frame = told(&a.until("\"synced\"").await).unwrap_or_else(|| panic!("change {at} is told"));
        let seen = [
            frame["peers"]["tor"]["bfd"]["receiveInterval"] == 100,
            frame["advertisements"]["all"]["med"] == 5,
            frame["isDraining"] == true,
        ];
        assert!(seen[at], "change {at}: {frame}");
    }
    // Changes without effect on a node are not sent; a marker follows directly.
    apply(&server, json!([of_kind("BgpPeer", "other", json!({}), json!({
        "peerAddress": "10.0.0.2", "peerASN": 65_001, "nodeSelectors": [{ "matchLabels": { "rack": "z" } }],
    }))]))
    .await;
    apply(
        &server,
        json!([{ "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } }]),
    )
    .await;
    assert_eq!(told(&a.until("\"synced\"").await), None);
    let of_b = b.until("\"synced\"").await;
    assert!(of_b.iter().any(|line| line.contains("default/web")) && told(&of_b).is_none(), "{of_b:?}");
    // After the last peer is deleted, the BGP settings are removed.
    server.call("DELETE", "/v1/bgppeers/tor", None).await;
    assert_eq!(told(&a.until("\"synced\"").await), Some(Value::Null));
}

/// The Advertisements that select a Service by its labels are recorded in the Service's Address object, and are
/// sent to agents with the address.
#[tokio::test]
async fn an_address_records_the_advertisements_that_cover_it() {
    let server = start().await;
    let gold = json!([{ "matchLabels": { "tier": "gold" } }]);
    let balancer = |labels: Value| {
        let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        of_kind("Service", "web", labels, spec)
    };
    apply(
        &server,
        json!([
            of_kind("AddressPool", "lab", json!({}), json!({ "addresses": ["198.51.100.8/29"] })),
            of_kind("Advertisement", "gold", json!({}), json!({ "type": "BGP", "serviceSelectors": gold })),
            balancer(json!({})),
        ]),
    )
    .await;
    let mut feed = open(&server, "/v1/nodes/b/state").await;
    feed.until("\"synced\"").await;
    apply(&server, json!([balancer(json!({ "tier": "gold" }))])).await;
    let lines = feed.until("\"advertisements\":[\"gold\"]").await;
    assert!(lines.last().unwrap().contains("198.51.100.8"), "{lines:?}");
    let record = || async { server.call("GET", "/v1/addresses/198.51.100.8", None).await.1 };
    let status = record().await["status"]["conditions"][0].clone();
    assert_eq!((&status["type"], &status["reason"]), (&json!("Announced"), &json!("NoSession")), "{status}");
    server.call("DELETE", "/v1/advertisements/gold", None).await;
    for _ in 0..600 {
        if record().await["spec"]["announcement"]["advertisements"].is_null() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the record still names what is deleted: {}", record().await);
}

/// The password of a BgpPeer is in the feed of the node that needs it, and in no response, list, watch, status or
/// metric.
#[tokio::test]
async fn a_password_is_in_no_answer() {
    let server = start().await;
    let mut watch = open(&server, "/v1/watch").await;
    let initial = watch.until("BOOKMARK").await.concat();
    apply(
        &server,
        json!([of_kind(
            "BgpPeer",
            "tor",
            json!({}),
            json!({
                "peerAddress": "10.0.0.1", "peerASN": 65_001, "password": "hush-anew",
            })
        )]),
    )
    .await;
    let event = watch.until("MODIFIED").await.concat();
    assert!(initial.contains("10.0.0.1") && event.contains("\"hasPassword\":true"), "{event}");
    let refused = of_kind(
        "BgpPeer",
        "tor",
        json!({}),
        json!({ "peerAddress": "hush-x", "peerASN": "hush", "password": ["hush-y"] }),
    );
    let (status, refusal) = server.call("POST", "/v1/apply", Some(refused)).await;
    assert_eq!(status, 422);
    assert!(!refusal.to_string().contains("hush-y"), "{refusal}");
    let mut shown = vec![initial, event];
    for path in ["/v1/bgppeers", "/v1/bgppeers/tor", "/v1/status", "/metrics", "/v1/nodes/a"] {
        shown.push(text(&server, path).await);
    }
    let (_, deleted) = server.call("DELETE", "/v1/bgppeers/tor", None).await;
    shown.push(deleted.to_string());
    shown.push(watch.until("DELETED").await.concat());
    for text in shown {
        assert!(!text.contains("hush") && !text.contains("\"password\""), "{text}");
    }
}

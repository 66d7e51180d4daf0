//! Test that a stolen agent certificate grants access only to its own node.

use serde_json::{Value, json};

use crate::support::{
    self, Lines,
    secured::{self, Secured, Who},
};

const AGENT: Who = Who::Agent("n1");

fn node(name: &str) -> Value {
    let address = format!("192.0.2.{}", name.trim_start_matches('n'));
    json!({ "kind": "Node", "metadata": { "name": name }, "spec": { "addresses": [address] } })
}

/// Returns a report of an agent with only the required fields.
fn report() -> Value {
    let at = format!("{}-1", support::START);
    json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at,
    })
}

async fn cluster() -> Secured {
    let secured = secured::start().await;
    secured.admin("POST", "/v1/nodes", Some(node("n2"))).await;
    let peer = |name: &str, node: &str, password: &str| {
        json!({
            "kind": "BgpPeer", "metadata": { "name": name },
            "spec": {
                "peerAddress": "192.0.2.254", "peerASN": 65001, "password": password,
                "nodeSelectors": [{ "matchLabels": { "who": node } }],
            },
        })
    };
    let service = json!({
        "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "ports": [{ "port": 80 }] },
    });
    let objects = json!([peer("of-n1", "n1", "canary-one"), peer("of-n2", "n2", "canary-two"), service]);
    secured.admin("POST", "/v1/apply", Some(objects)).await;
    secured
}

/// With the certificate of n1's agent a client can register n1, read its state and send its reports, but cannot
/// read or change n2 or anything else.
#[tokio::test]
async fn a_stolen_certificate_of_an_agent_speaks_for_its_node_only() {
    let secured = cluster().await;
    let mut with_label = node("n1");
    with_label["metadata"]["labels"] = json!({ "who": "n2" });
    let (status, answer) = secured.call(&AGENT, "POST", "/v1/nodes", Some(with_label)).await;
    assert_eq!(
        (status, &answer["spec"]["requested"]),
        (201, &json!({ "labels": { "who": "n2" } })),
        "{answer}"
    );
    let labels = json!({ "metadata": { "labels": { "who": "n1" } } });
    secured.admin("PATCH", "/v1/nodes/n1", Some(labels)).await;
    assert_eq!(secured.call(&AGENT, "GET", "/v1/nodes/n1", None).await.0, 200);
    let mut lines = Lines::new(secured.send(&AGENT, "GET", "/v1/nodes/n1/state", None).await.into_body());
    let state = lines.until("synced").await.concat();
    assert!(state.contains("canary-one") && !state.contains("canary-two"), "{state}");
    let (status, answer) = secured.call(&AGENT, "PUT", "/v1/nodes/n1/report", Some(report())).await;
    assert_eq!(status, 204, "{answer}");
    // The author is the authenticated identity, regardless of the claim.
    let history = secured.admin("GET", "/v1/history?kind=Node&name=n1", None).await;
    assert_eq!(history["items"][1]["author"], "agent/n1");

    let mut refused = 0;
    let mut annotated = node("n1");
    annotated["metadata"]["annotations"] = json!({ "a": "b" });
    let mut unschedulable = node("n1");
    unschedulable["spec"]["unschedulable"] = json!(true);
    let service = json!({ "metadata": { "name": "mine" }, "spec": { "ports": [{ "port": 80 }] } });
    let attempts: Vec<(&str, &str, Option<Value>)> = vec![
        ("GET", "/v1/nodes/n2/state", None),
        ("PUT", "/v1/nodes/n2/report", Some(report())),
        ("PUT", "/v1/nodes/n2/answers/1", Some(json!({ "failed": { "message": "x" } }))),
        ("GET", "/v1/nodes/n2", None),
        ("GET", "/v1/nodes", None),
        ("POST", "/v1/nodes", Some(node("n3"))),
        ("POST", "/v1/nodes", Some(annotated)),
        ("POST", "/v1/nodes", Some(unschedulable)),
        // Deleting and registering again would shed settings of the operator (CVE-2025-5187).
        ("DELETE", "/v1/nodes/n1", None),
        ("PATCH", "/v1/nodes/n1", Some(json!({ "metadata": { "labels": { "who": "n2" } } }))),
        ("PUT", "/v1/nodes/n1", Some(node("n1"))),
        ("POST", "/v1/nodes/n1/confirm?epoch=1", None),
        ("POST", "/v1/nodes/n1/fixes", Some(json!({ "fixes": [] }))),
        ("GET", "/v1/nodes/n1/doctor", None),
        ("POST", "/v1/apply", Some(json!([node("n1")]))),
        ("POST", "/v1/plan", Some(json!([node("n1")]))),
        ("POST", "/v1/plans/x/apply", None),
        ("POST", "/v1/rollback", Some(json!({ "revision": 1 }))),
        ("GET", "/v1/watch", None),
        ("GET", "/v1/history", None),
        ("GET", "/v1/audit", None),
        ("GET", "/v1/services", None),
        ("GET", "/v1/namespaces/shop/services/web", None),
        ("POST", "/v1/namespaces/shop/services", Some(service)),
        ("DELETE", "/v1/namespaces/shop/services/web", None),
        ("GET", "/v1/bgppeers/of-n1", None),
        ("GET", "/v1/bgp/sessions", None),
        ("GET", "/v1/status", None),
        ("GET", "/metrics", None),
        ("GET", "/v1/tokens", None),
        ("POST", "/v1/tokens", Some(json!({ "name": "x", "bindings": [{ "role": "admin" }] }))),
        ("PUT", "/v1/roles/x", Some(json!({ "rules": [] }))),
    ];
    for (method, path, body) in &attempts {
        let (status, answer) = secured.call(&AGENT, method, path, body.clone()).await;
        assert_eq!(status, 403, "{method} {path}: {answer}");
        refused += 1;
    }
    // Each attempt is in the audit log with its author.
    let audit = secured.admin("GET", "/v1/audit?limit=500", None).await;
    let entries = audit["items"].as_array().unwrap();
    let of_agent = entries.iter().filter(|it| it["author"] == "agent/n1" && it["status"] == 403).count();
    assert_eq!(of_agent, refused);
    println!("abuse: attempts with the certificate of an agent: {refused} of {} refused", attempts.len());
}

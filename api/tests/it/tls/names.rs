//! Names of nodes: names in use or once used are reserved for join tokens created for them, and the labels of a
//! Node come from the join token.

use super::*;

fn node(name: &str, labels: Value) -> Value {
    json!({ "kind": "Node", "metadata": { "name": name, "labels": labels }, "spec": {} })
}

/// Tries to enroll `name` with a join token for new machines. Returns the status.
async fn enrol_unbound(server: &Server, name: &str) -> u16 {
    let token = server.token(json!({})).await;
    let (status, answer) = server.enrol(&token, name, &request(|_| {}).1).await;
    if status != 200 {
        assert!(answer["hint"].as_str().unwrap().contains(&format!("node join-token {name}")), "{answer}");
    }
    status
}

/// A token for new machines takes over no name that is or was in use: of a Node without a certificate, of a
/// revoked or expired certificate, or of a deleted Node.
#[tokio::test]
async fn names_once_used_need_a_join_token_created_for_them() {
    let server = start(own()).await;
    assert_eq!(server.call(None, "POST", "/v1/nodes", Some(node("made", json!({})))).await.0, 201);
    assert_eq!(enrol_unbound(&server, "made").await, 409, "the Node exists");
    for name in ["revoked", "expired", "deleted"] {
        assert_eq!(enrol_unbound(&server, name).await, 200, "{name} is free");
    }
    assert_eq!(server.call(None, "DELETE", "/v1/agents/revoked/certificate", None).await.0, 204);
    assert_eq!(server.call(None, "POST", "/v1/nodes", Some(node("deleted", json!({})))).await.0, 201);
    assert_eq!(server.call(None, "DELETE", "/v1/nodes/deleted", None).await.0, 200);
    server.source.0.fetch_add(86_401, Ordering::SeqCst);
    for name in ["revoked", "expired", "deleted"] {
        assert_eq!(enrol_unbound(&server, name).await, 409, "{name} is reserved");
        server.join(name).await;
    }
}

/// The deletion of a Node ends its certificates: the connection is closed, and the agent cannot register the Node
/// again.
#[tokio::test]
async fn a_deleted_node_needs_a_new_join_token() {
    let server = start(own()).await;
    let apply = |prune: bool| format!("/v1/apply?applySet=nodes&prune={prune}");
    for path in ["/v1/nodes/n1", "/v1/apply?applySet=nodes&prune=true"] {
        let agent = server.join("n1").await;
        let created = server.call(None, "POST", &apply(false), Some(json!([node("n1", json!({}))]))).await;
        assert_eq!(created.0, 200, "{}", created.1);
        let dry = server.call(None, "DELETE", "/v1/nodes/n1?dryRun=true", None).await;
        assert_eq!(dry.0, 200);
        assert_eq!(
            server.call(Some(&agent), "GET", "/v1/nodes/n1", None).await.0,
            200,
            "a dry run ends nothing"
        );
        let mut open = server.connect(Some(&agent)).await.unwrap();
        let (method, body) =
            if path.contains("apply") { ("POST", Some(json!([]))) } else { ("DELETE", None) };
        let (status, answer) = server.call(None, method, path, body).await;
        assert_eq!(status, 200, "{answer}");
        let cut = tokio::time::timeout(PATIENCE, open.read_to_end(&mut Vec::new())).await;
        assert!(cut.is_ok(), "the connection is cut");
        let again = server.try_call(Some(&agent), "POST", "/v1/nodes", Some(node("n1", json!({})))).await;
        assert_ne!(again.map_or(0, |answer| answer.0), 201);
        assert_eq!(server.call(None, "GET", "/v1/nodes/n1", None).await.0, 404);
    }
}

/// The agent of a node registers the labels of its join token; others are pending, so that no BGP password and no
/// announcement is the agent's to choose.
#[tokio::test]
async fn labels_come_from_the_join_token() {
    let server = start(own()).await;
    let peer = json!({
        "kind": "BgpPeer", "metadata": { "name": "tor" },
        "spec": {
            "peerAddress": "192.0.2.254", "peerASN": 65001, "password": "s3cret",
            "nodeSelectors": [{ "matchLabels": { "role": "edge" } }],
        },
    });
    assert_eq!(server.call(None, "POST", "/v1/bgppeers", Some(peer)).await.0, 201);
    for (name, token, has_password) in [
        ("honest", json!({ "labels": { "role": "edge" } }), true),
        ("greedy", json!({ "labels": { "rack": "r1" } }), false),
        ("plain", json!({}), false),
    ] {
        let token = server.token(token).await;
        let (key, csr) = request(|_| {});
        let (status, answer) = server.enrol(&token, name, &csr).await;
        assert_eq!(status, 200, "{answer}");
        let agent = shown(&answer, &key);
        let wanted = node(name, json!({ "role": "edge" }));
        let (status, object) = server.call(Some(&agent), "POST", "/v1/nodes", Some(wanted)).await;
        assert_eq!(status, 201, "{object}");
        let is_pending = object["spec"]["requested"]["labels"]["role"] == "edge";
        assert_eq!(is_pending, !has_password, "{object}");
        let mut stream = server.connect(Some(&agent)).await.unwrap();
        let head = format!("GET /v1/nodes/{name}/state HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut text, mut part) = (String::new(), [0; 4096]);
        while !text.contains("synced") {
            let read = stream.read(&mut part).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        assert_eq!(text.contains("s3cret"), has_password, "{text}");
    }
    // Labels that no registration would apply are refused, not ignored.
    let late = json!({ "node": "plain", "labels": { "role": "edge" } });
    let (status, answer) = server.call(None, "POST", "/v1/jointokens", Some(late)).await;
    assert_eq!((status, answer["code"].as_str()), (409, Some("Conflict")), "{answer}");
    let bad = json!({ "labels": { "role": "a b" } });
    let (status, answer) = server.call(None, "POST", "/v1/jointokens", Some(bad)).await;
    assert_eq!((status, &answer["errors"][0]["pointer"]), (422, &json!("/labels/role")), "{answer}");
}

/// An enrollment without credentials costs little: its body is JSON of at most 16 KiB, and an address that failed
/// too often is refused before its body is parsed.
#[tokio::test]
async fn an_enrollment_is_small_json_and_limited_before_it_is_parsed() {
    let server = start(own()).await;
    let token = server.token(json!({ "node": "n1" })).await;
    let (_, csr) = request(|_| {});
    let large = "x".repeat(17 * 1024);
    let mut tries = 0;
    loop {
        let (status, answer) = server.enrol(&token, "n1", &large).await;
        if status == 429 {
            break;
        }
        assert_eq!((status, answer["code"].as_str()), (413, Some("PayloadTooLarge")), "{answer}");
        tries += 1;
        assert!(tries < 500, "the attempts of an address are limited");
    }
    server.source.0.fetch_add(1, Ordering::SeqCst);
    assert_eq!(server.enrol(&token, "n1", &csr).await.0, 200, "one attempt per second");
}

//! Tests of the audit log: entries remain after a restart of the server, listings are paginated, and entries
//! of rejected requests do not evict the ones of accepted requests.

use std::sync::Arc;

use model::primitives::quantity::Timestamp;
use serde_json::{Value, json};
use store::{AuditPool, Store};

use crate::support::{
    self, Fixed, START, Server,
    secured::{self, Who},
    settings,
};

const SERVICES: &str = "/v1/namespaces/default/services";

fn service(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "clusterIP": "None" } })
}

async fn open(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    let url = format!("sqlite:{}/state.db", directory.path().display());
    store::open(&url, Timestamp::from_unix_seconds(START)).await.unwrap()
}

async fn audit(server: &Server, query: &str) -> (Vec<Value>, Option<String>) {
    let (status, answer) = server.call("GET", &format!("/v1/audit{query}"), None).await;
    assert_eq!(status, 200, "{answer:#}");
    let token = answer["metadata"]["continue"].as_str().map(str::to_owned);
    (answer["items"].as_array().unwrap().clone(), token)
}

fn said(entries: &[Value]) -> Vec<String> {
    let line = |entry: &Value| {
        format!("{} {} {}", entry["method"].as_str().unwrap(), entry["status"], entry["decision"])
    };
    entries.iter().map(|entry| line(entry).replace('"', "")).collect()
}

#[tokio::test]
async fn the_audit_log_outlives_the_server_and_pages_through_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, source) = (open(&directory).await, Fixed::at(START));
    let server = support::start_on(settings(30000..=32767), Arc::clone(&store), source.clone()).await;
    assert_eq!(server.call("POST", SERVICES, Some(service("a"))).await.0, 201);
    assert_eq!(server.call("POST", SERVICES, Some(service("a"))).await.0, 409);
    assert_eq!(server.call("DELETE", &format!("{SERVICES}/a?dryRun=true"), None).await.0, 200);
    assert_eq!(server.call("DELETE", &format!("{SERVICES}/a"), None).await.0, 200);
    let expected = ["DELETE 200 accepted", "DELETE 200 accepted", "POST 409 refused", "POST 201 accepted"];
    let (before, _) = audit(&server, "").await;
    assert_eq!(said(&before), expected, "each once, at once");
    assert_eq!(before[0]["revision"], 2);
    assert_eq!((&before[3]["revision"], &before[3]["objects"]), (&json!(1), &json!(["Service default/a"])));
    assert_eq!((&before[1]["dryRun"], &before[2]["code"]), (&json!(true), &json!("AlreadyExists")));
    for (query, count) in [
        ("decision=refused", 1),
        ("decision=accepted", 3),
        ("decision=failed", 0),
        ("object=service%20Default/a&decision=accepted", 3),
        ("object=Service%20default/b", 0),
        ("author=unknown", 4),
        ("author=ann", 0),
    ] {
        let (found, token) = audit(&server, &format!("?{query}")).await;
        assert_eq!((found.len(), token), (count, None), "{query}");
    }
    let (found, token) = audit(&server, "?decision=accepted&limit=2").await;
    assert_eq!(said(&found), expected[..2], "the newest");
    let next = format!("?decision=accepted&limit=2&continue={}", token.unwrap());
    let (found, token) = audit(&server, &next).await;
    assert_eq!((said(&found), token), (vec![expected[3].to_owned()], None));
    for (query, length) in [("audit?author", 261), ("audit?object", 401), ("history?author", 261)] {
        let path = |length| format!("/v1/{query}={}", "x".repeat(length));
        assert_eq!(server.call("GET", &path(length - 1), None).await.0, 200, "{query}");
        assert_eq!(server.call("GET", &path(length), None).await.0, 400, "{query}");
    }
    assert_eq!(server.call("GET", "/v1/audit?decision=other", None).await.0, 400);
    for (author, count) in [("unknown", 2), ("ann", 0)] {
        let (_, history) = server.call("GET", &format!("/v1/history?author={author}"), None).await;
        assert_eq!(history["items"].as_array().unwrap().len(), count, "{author}: {history}");
    }
    server.running.stop().await;

    let server = support::start_on(settings(30000..=32767), store, source).await;
    assert_eq!(server.call("POST", SERVICES, Some(service("b"))).await.0, 201);
    let (mut all, mut token) = audit(&server, "?limit=2").await;
    while let Some(next) = token {
        let (page, more) = audit(&server, &format!("?limit=2&continue={next}")).await;
        all.extend(page);
        token = more;
    }
    assert_eq!(all[1..], before, "what was there is there as it was");
    let numbers: Vec<_> = all.iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");
    server.running.stop().await;
}

#[tokio::test]
async fn what_was_written_is_in_the_store_with_its_commit_whatever_becomes_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let server = support::start_on(settings(30000..=32767), Arc::clone(&store), Fixed::at(START)).await;
    assert_eq!(server.call("POST", SERVICES, Some(service("a"))).await.0, 201);
    // Read from the store, because the server may have queued entries.
    let kept = store.audit(None, 10).await.unwrap();
    assert_eq!(kept.iter().map(|record| record.pool).collect::<Vec<_>>(), [AuditPool::Changes]);
    server.running.stop().await;
}

/// A request that is rejected before its objects are known is found by the object in its path.
#[tokio::test]
async fn rejected_requests_are_found_by_the_object_in_their_path() {
    let server = support::start().await;
    for (method, path) in [
        ("PUT", "/v1/namespaces/shop/services/web"),
        ("PATCH", "/v1/namespaces/shop/services/web"),
        ("PUT", "/v1/namespaces/shop/services/other"),
        ("PUT", "/v1/nodes/n1"),
    ] {
        let (status, answer) = server.call(method, path, Some(json!({ "spec": 1 }))).await;
        assert!((400..500).contains(&status), "{answer}");
    }
    for (object, count) in [("service%20shop/web", 2), ("Node%20n1", 1), ("Service%20shop/missing", 0)] {
        let (found, _) = audit(&server, &format!("?object={object}&decision=refused")).await;
        assert_eq!(found.len(), count, "{object}");
    }
    server.running.stop().await;
}

#[tokio::test]
async fn a_flood_of_refusals_is_left_out_before_it_fills_anything() {
    let server = support::start().await;
    assert_eq!(server.call("POST", SERVICES, Some(service("a"))).await.0, 201);
    for _ in 0..1500 {
        assert_eq!(server.call("POST", SERVICES, Some(json!({}))).await.0, 422);
    }
    let (entries, _) = audit(&server, "?limit=5000").await;
    // At most the queue limit, plus entries stored meanwhile.
    assert!((1000..=1501).contains(&entries.len()), "{}", entries.len());
    assert_eq!(said(&entries[entries.len() - 1..]), ["POST 201 accepted"]);
    server.running.stop().await;
}

#[tokio::test]
async fn consent_to_a_state_is_of_this_life_of_the_store_and_is_audited() {
    let server = support::start().await;
    let path = |epoch: i64| format!("/v1/nodes/n1/confirm?epoch={epoch}");
    assert_eq!(server.call("POST", &path(START), None).await.1["code"], "NodeNotFound");
    let node = json!({ "metadata": { "name": "n1" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(node)).await.0, 201);
    let (status, problem) = server.call("POST", &path(START + 1), None).await;
    assert_eq!((status, &problem["code"]), (409, &json!("Conflict")), "{problem:#}");
    assert_eq!(server.call("POST", &path(START), None).await.1["code"], "NodeSilent", "no agent is there");
    let (entries, _) = audit(&server, "?limit=2").await;
    assert_eq!(said(&entries), ["POST 504 failed", "POST 409 refused"]);
    assert_eq!(entries[0]["objects"], json!(["Node n1"]));
    server.running.stop().await;
}

/// Requests without credentials do not displace the refusals of known callers: they share entries that contain
/// their number, and have a limit of their own. Each login has an entry.
#[tokio::test]
async fn anonymous_requests_displace_no_refusal_of_a_known_caller() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let secured = secured::start_in(Arc::clone(&store)).await;
    let team = secured.token("team-a", json!({ "role": "operator", "namespaces": ["team-a"] })).await;
    assert_eq!(secured.call(&team, "DELETE", &format!("{SERVICES}/x"), None).await.0, 403);
    let Who::Token(token) = &secured.admin else { panic!("the administrator has a token") };
    for _ in 0..2 {
        let login = Some(json!({ "token": token }));
        assert_eq!(secured.call(&Who::Nobody, "POST", "/v1/session", login).await.0, 200);
    }
    for number in 0..2660 {
        let path = format!("/v1/services?limit={}", 1 + number % 7);
        assert_eq!(secured.call(&Who::Nobody, "GET", &path, None).await.0, 401);
    }
    let listed = secured.admin("GET", "/v1/audit?limit=500", None).await;
    let entries = listed["items"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["author"] == "team-a" && entry["status"] == 403), "{listed:#}");
    let logins = entries.iter().filter(|entry| entry["path"] == "/v1/session" && entry["status"] == 200);
    assert_eq!(logins.count(), 2, "{listed:#}");
    secured.server.running.stop().await;
    let stored = store.audit(None, 500).await.unwrap();
    let anonymous: Vec<Value> = stored
        .iter()
        .filter(|record| record.pool == AuditPool::Anonymous)
        .map(|record| serde_json::from_slice(&record.body).unwrap())
        .collect();
    let count = |entry: &Value| 1 + entry["repeated"].as_u64().unwrap_or(0);
    assert_eq!((anonymous.len(), anonymous.iter().map(count).sum()), (2, 2660), "{anonymous:#?}");
}

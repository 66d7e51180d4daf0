//! Tests of the permissions of the Kubernetes API: every path requires one, and every response contains only
//! permitted objects.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use super::{Events, settings};
use crate::support::{
    Lines,
    secured::{self, Secured, Who},
};

async fn filled() -> Secured {
    let secured = secured::start_on(settings()).await;
    let node = json!({ "metadata": { "name": "n1" }, "spec": { "addresses": ["192.0.2.1"] } });
    secured.admin("POST", "/v1/nodes", Some(node)).await;
    for namespace in ["team-a", "team-b"] {
        let of = |name: &str, spec: Value| Some(json!({ "metadata": { "name": name }, "spec": spec }));
        let path = format!("/v1/namespaces/{namespace}");
        let pod = of(&format!("pod-of-{namespace}"), json!({}));
        secured.admin("POST", &format!("{path}/workloads"), pod).await;
        let service = of(&format!("service-of-{namespace}"), json!({ "ports": [{ "port": 80 }] }));
        secured.admin("POST", &format!("{path}/services"), service).await;
    }
    secured
}

/// F008: each path of the Kubernetes API admits exactly the callers that the permission table lists.
#[tokio::test]
async fn f008_every_path_of_the_view_lets_through_whom_the_table_says() {
    let secured = filled().await;
    let own = json!({ "role": "operator", "namespaces": ["team-a"] });
    let people = [
        ("viewer", secured.token("v", json!({ "role": "viewer" })).await),
        ("admin", secured.admin.clone()),
        ("operator of team-a", secured.token("t", own).await),
        ("agent of n1", Who::Agent("n1")),
        ("nobody", Who::Nobody),
    ];
    let mut table =
        String::from("# own / other: namespace team-a / team-b; one word where the path names none\n");
    let routes = api::kubernetes_routes();
    assert!(routes.len() > 25, "{routes:?}");
    for (path, asks) in &routes {
        assert_ne!(asks["asks"], "nothing", "{path} is open to everybody");
        let _ = write!(table, "GET {path} {asks}\n   ");
        for (name, who) in &people {
            let mut said = Vec::new();
            for namespace in ["team-a", "team-b"] {
                let path = path.replace("{namespace}", namespace).replace("{place}", namespace);
                let (status, body) = secured.call(who, "GET", &path.replace("{name}", "x"), None).await;
                if status >= 400 {
                    assert_eq!(
                        (&body["kind"], &body["code"]),
                        (&json!("Status"), &json!(status)),
                        "{path}: {body}"
                    );
                }
                let word = match status {
                    401 => "who?",
                    403 => "no",
                    200 | 404 => "yes",
                    _ => panic!("{path}: {status} {body}"),
                };
                assert_eq!(word == "who?", *name == "nobody", "{path}: {name}");
                said.push(word);
            }
            said.dedup();
            let _ = write!(table, " {name}: {};", said.join("/"));
        }
        table.push('\n');
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/kubernetes_authorisation.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &table).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    assert!(expected == table, "run with UPDATE_GOLDEN=1 and read the diff; it would be:\n{table}");
}

/// A token limited to a namespace reads only objects of that namespace.
#[tokio::test]
async fn a_token_of_one_namespace_reads_nothing_of_another_and_nothing_of_nodes() {
    let secured = filled().await;
    let who = secured.token("t", json!({ "role": "viewer", "namespaces": ["team-a"] })).await;
    for plural in ["pods", "services", "endpoints", "namespaces"] {
        let (status, list) = secured.call(&who, "GET", &format!("/k8s/api/v1/{plural}"), None).await;
        let text = list.to_string();
        assert_eq!((status, text.contains("team-a"), text.contains("team-b")), (200, true, false), "{text}");
    }
    let slices = secured.call(&who, "GET", "/k8s/apis/discovery.k8s.io/v1/endpointslices", None).await.1;
    assert_eq!(slices["items"].as_array().unwrap().len(), 1, "{slices}");
    for path in [
        "/k8s/api/v1/nodes",
        "/k8s/api/v1/nodes?watch=true",
        "/k8s/api/v1/events",
        "/k8s/api/v1/namespaces/team-a/events",
        "/k8s/api/v1/namespaces/team-b",
        "/k8s/api/v1/namespaces/team-b/pods",
        "/k8s/api/v1/namespaces/team-b/pods?watch=true",
    ] {
        assert_eq!(secured.call(&who, "GET", path, None).await.0, 403, "{path}");
    }
    let response = secured.send(&who, "GET", "/k8s/api/v1/pods?watch=true", None).await;
    let mut events = Events(Lines::new(response.into_body()));
    events.expect("ADDED", "pod-of-team-a").await;
    for namespace in ["team-b", "team-a"] {
        let pod = json!({ "metadata": { "name": format!("later-of-{namespace}") }, "spec": {} });
        secured.admin("POST", &format!("/v1/namespaces/{namespace}/workloads"), Some(pod)).await;
    }
    events.expect("ADDED", "later-of-team-a").await;
}

/// A caller that may list objects but not watch them is refused a watch.
#[tokio::test]
async fn who_may_list_and_not_watch_is_refused_a_watch() {
    let secured = filled().await;
    let rules = json!([{ "verbs": ["get", "list"], "kinds": ["Workload"] }]);
    secured.admin("PUT", "/v1/roles/lister", Some(json!({ "rules": rules }))).await;
    let who = secured.token("l", json!({ "role": "lister" })).await;
    assert_eq!(secured.call(&who, "GET", "/k8s/api/v1/pods", None).await.0, 200);
    for path in ["/k8s/api/v1/pods?watch=1", "/k8s/api/v1/namespaces/team-a/pods?watch=true"] {
        let (status, body) = secured.call(&who, "GET", path, None).await;
        assert_eq!((status, &body["reason"]), (403, &json!("Forbidden")), "{body}");
    }
}

/// The watch of a caller ends when its token is revoked.
#[tokio::test]
async fn a_watch_ends_with_its_token() {
    let secured = filled().await;
    let who = secured.token("short", json!({ "role": "viewer" })).await;
    let response = secured.send(&who, "GET", "/k8s/api/v1/nodes?watch=true", None).await;
    let mut events = Events(Lines::new(response.into_body()));
    events.expect("ADDED", "n1").await;
    let tokens = secured.admin("GET", "/v1/tokens", None).await;
    let short = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "short").unwrap();
    secured.admin("DELETE", &format!("/v1/tokens/{}", short["id"].as_str().unwrap()), None).await;
    let node = json!({ "metadata": { "name": "n2" }, "spec": {} });
    secured.admin("POST", "/v1/nodes", Some(node)).await;
    let event = events.next().await;
    assert_eq!((&event["type"], &event["object"]["reason"]), (&json!("ERROR"), &json!("Unauthorized")));
}

/// Writes are rejected with the Tidegate command to use, and change nothing. Unauthenticated callers get status
/// 401.
#[tokio::test]
async fn writes_are_refused_in_words_and_nothing_of_them_is_done() {
    let secured = filled().await;
    let admin = secured.admin.clone();
    for (method, path, words) in [
        ("POST", "/k8s/api/v1/namespaces/team-a/services", "tidegate apply -f FILE"),
        (
            "DELETE",
            "/k8s/api/v1/namespaces/team-a/pods/pod-of-team-a",
            "tidegate delete workload pod-of-team-a -n team-a",
        ),
        ("PATCH", "/k8s/api/v1/nodes/n1", "tidegate drain node n1"),
        ("PUT", "/k8s/api/v1/namespaces/team-a/services/service-of-team-a", "tidegate apply -f FILE"),
        ("DELETE", "/k8s/api/v1/namespaces/team-a", "tidegate delete"),
        ("POST", "/k8s/apis/apps/v1/namespaces/team-a/deployments", "does not run Workloads"),
        ("POST", "/k8s/api/v1/namespaces/team-a/pods/pod-of-team-a/exec", "has no exec"),
    ] {
        let (status, body) = secured.call(&admin, method, path, None).await;
        assert_eq!((status, &body["reason"]), (405, &json!("MethodNotAllowed")), "{method} {path}: {body}");
        assert!(body["message"].as_str().unwrap().contains(words), "{method} {path}: {body}");
        assert_eq!(secured.call(&Who::Nobody, method, path, None).await.0, 401, "{method} {path}");
    }
    assert_eq!(
        secured.call(&admin, "GET", "/k8s/api/v1/namespaces/team-a/pods/pod-of-team-a", None).await.0,
        200
    );
}

//! Tests of lists of the Kubernetes API: pages, selectors, and rejected requests.

use serde_json::{Value, json};

use super::{TABLE, ask, create, get, read, seed, start, version, workload};
use crate::support::Server;

fn names(list: &Value) -> Vec<String> {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// Reads a list in pages of one object, and returns the names of all objects.
async fn one_by_one(server: &Server, path: &str) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("{path}?limit=1&continue={token}")).await;
        let own = names(&page);
        assert!(own.len() <= 1, "{own:?}");
        found.extend(own);
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => return found,
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_hold_everything_once_and_show_one_state() {
    let server = start().await;
    seed(&server).await;
    let dual = json!({ "ipFamilyPolicy": "RequireDualStack", "ports": [{ "port": 80 }] });
    create(&server, "/v1/namespaces/shop/services", "dual", dual).await;
    let core = ["pods", "services", "endpoints", "nodes", "namespaces", "events"];
    let paths = core.map(|plural| format!("/api/v1/{plural}"));
    for path in paths.into_iter().chain(["/apis/discovery.k8s.io/v1/endpointslices".to_owned()]) {
        assert_eq!(one_by_one(&server, &path).await, names(&get(&server, &path).await), "{path}");
    }
    let first = get(&server, "/api/v1/pods?limit=2").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    workload(&server, "default", "zzz-later", json!({})).await;
    let second = get(&server, &format!("/api/v1/pods?limit=2&continue={token}")).await;
    assert_eq!((names(&second).len(), version(&second)), (1, version(&first)), "{second}");
    let other = format!("/api/v1/services?limit=2&continue={token}");
    assert_eq!(read(ask(&server, &other, "application/json").await).await.0, 400);
}

#[tokio::test]
async fn selectors_choose_by_labels_and_fields() {
    let server = start().await;
    seed(&server).await;
    for (query, count) in [
        ("pods?labelSelector=app%3Dnginx", 3),
        ("pods?labelSelector=app%20in%20(x,y)", 0),
        ("pods?fieldSelector=spec.nodeName%3Dcore-v2-01,status.phase!%3DFailed", 3),
        ("pods?fieldSelector=metadata.name%3Dnginx-controller-iowux", 1),
        ("pods?fieldSelector=status.podIP%3D10.1.13.4&labelSelector=app", 1),
        ("services?fieldSelector=spec.type%3DNodePort", 1),
        ("endpoints?labelSelector=app%3Dnginx-service", 1),
        ("namespaces?fieldSelector=metadata.name%3Ddefault", 1),
        ("namespaces/other/events?fieldSelector=involvedObject.name%3Dx", 0),
    ] {
        let list = get(&server, &format!("/api/v1/{query}")).await;
        assert_eq!(names(&list).len(), count, "{query}: {list}");
    }
}

#[tokio::test]
async fn a_row_holds_as_much_of_its_object_as_is_asked_for() {
    let server = start().await;
    seed(&server).await;
    for (include, has_object, has_spec) in
        [("", true, false), ("&includeObject=None", false, false), ("&includeObject=Object", true, true)]
    {
        let path = format!("/api/v1/namespaces/default/services?limit=1{include}");
        let (_, table) = read(ask(&server, &path, TABLE).await).await;
        let object = &table["rows"][0]["object"];
        assert_eq!((object.is_object(), object["spec"].is_object()), (has_object, has_spec), "{include}");
        assert!(table["metadata"]["continue"].is_string());
    }
    let one = read(ask(&server, "/api/v1/nodes/core-v2-01", TABLE).await).await.1;
    assert_eq!((&one["kind"], one["rows"].as_array().unwrap().len()), (&json!("Table"), 1));
}

/// If a list has one object more than a page may contain, a request without `limit` is rejected instead of
/// truncated. Pages return all objects.
#[tokio::test]
async fn a_listing_without_pages_is_whole_or_refused() {
    const WORKLOADS: usize = 5001;
    let server = start().await;
    let object = |index: usize| {
        let name = format!("w{index}");
        json!({ "apiVersion": "tidegate/v1", "kind": "Workload", "metadata": { "name": name }, "spec": {} })
    };
    for first in (0..WORKLOADS).step_by(1000) {
        let items: Vec<_> = (first..WORKLOADS.min(first + 1000)).map(object).collect();
        let (status, answer) =
            server.call("POST", "/v1/apply", Some(json!({ "kind": "List", "items": items }))).await;
        assert_eq!(status, 200, "{answer}");
    }
    let (status, body) = read(ask(&server, "/api/v1/pods", "application/json").await).await;
    assert_eq!((status, &body["reason"]), (400, &json!("BadRequest")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("limit=500"), "{body}");
    // The bytes of a page are limited as well.
    let mut listed = Vec::new();
    let mut page = get(&server, "/api/v1/pods?limit=9000").await;
    loop {
        let found = names(&page);
        assert!(!found.is_empty() && found.len() <= 5000, "{} objects", found.len());
        listed.extend(found);
        let Some(token) = page["metadata"]["continue"].as_str().map(str::to_owned) else { break };
        page = get(&server, &format!("/api/v1/pods?limit=9000&continue={token}")).await;
    }
    let mut expected: Vec<_> = (0..WORKLOADS).map(|index| format!("w{index}")).collect();
    expected.sort();
    listed.sort();
    assert_eq!(listed, expected);
}

/// Unsupported requests are rejected with the `reason` that Kubernetes clients expect, and are never answered with
/// other data.
#[tokio::test]
async fn what_cannot_be_had_is_refused_with_the_word_that_clients_know() {
    let server = start().await;
    seed(&server).await;
    let now = version(&get(&server, "/api/v1/pods").await);
    let (epoch, revision) = now.split_once('-').unwrap();
    let later = format!("{epoch}-{}", revision.parse::<u64>().unwrap() + 5);
    let before = format!("{epoch}-1");
    for (path, status, reason) in [
        ("/api/v1/namespaces/default/pods/none".to_owned(), 404, "NotFound"),
        ("/api/v1/namespaces/none".to_owned(), 404, "NotFound"),
        ("/api/v1/widgets".to_owned(), 404, "NotFound"),
        ("/api/v1/namespaces/default/pods/a/log".to_owned(), 404, "NotFound"),
        ("/api/v1/pods?fieldSelector=spec.image%3Dx".to_owned(), 400, "BadRequest"),
        ("/api/v1/pods?labelSelector=a%20b".to_owned(), 400, "BadRequest"),
        ("/api/v1/pods?limit=-1".to_owned(), 400, "BadRequest"),
        ("/api/v1/pods?colour=red".to_owned(), 400, "BadRequest"),
        ("/api/v1/pods?continue=x".to_owned(), 400, "BadRequest"),
        ("/api/v1/pods?resourceVersion=17".to_owned(), 400, "BadRequest"),
        ("/api/v1/namespaces/UP/pods".to_owned(), 400, "BadRequest"),
        ("/api/v1/events?watch=true".to_owned(), 405, "MethodNotAllowed"),
        (format!("/api/v1/pods?resourceVersion={before}&resourceVersionMatch=Exact"), 410, "Expired"),
        (format!("/api/v1/pods?resourceVersion={later}"), 503, "ServiceUnavailable"),
        ("/api/v1/pods?watch=true&resourceVersion=7-1".to_owned(), 410, "Expired"),
        (format!("/api/v1/pods?watch=true&resourceVersion={later}"), 410, "Expired"),
    ] {
        let (found, body) = read(ask(&server, &path, "application/json").await).await;
        assert_eq!(
            (found, &body["reason"], &body["kind"]),
            (status, &json!(reason), &json!("Status")),
            "{path}: {body}"
        );
        assert!(body["message"].as_str().is_some_and(|text| text.len() > 10), "{body}");
    }
    let odd = ask(&server, "/api/v1/pods", "application/vnd.kubernetes.protobuf").await;
    assert_eq!(odd.status().as_u16(), 406);
    let exact = format!("/api/v1/pods?resourceVersion={now}&resourceVersionMatch=Exact");
    assert_eq!(names(&get(&server, &exact).await).len(), 3);
}

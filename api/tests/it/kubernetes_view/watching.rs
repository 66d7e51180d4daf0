//! Tests of watches of the Kubernetes API: existing objects, changes, and resumption after a disconnect.

use serde_json::{Value, json};

use super::{Events, TABLE, ask, create, get, read, seed, start, version, workload};
use crate::support::Server;

const SERVICES: &str = "/v1/namespaces/default/services";

async fn delete(server: &Server, path: &str) {
    assert_eq!(server.call("DELETE", &format!("{path}?confirm=true"), None).await.0, 200, "{path}");
}

async fn change(server: &Server, path: &str, changes: Value) {
    let (status, answer) = server.call("PATCH", path, Some(changes)).await;
    assert_eq!(status, 200, "{path}: {answer}");
}

/// A Workload that is created, becomes unready and is deleted causes events for Pods, Endpoints and
/// EndpointSlices.
#[tokio::test]
async fn one_change_is_told_to_those_who_follow_pods_endpoints_and_slices() {
    let server = start().await;
    seed(&server).await;
    let at = version(&get(&server, "/api/v1/pods").await);
    let query = format!("watch=true&resourceVersion={at}");
    let mut pods = Events::of(&server, &format!("/api/v1/pods?{query}")).await;
    let mut endpoints = Events::of(&server, &format!("/api/v1/namespaces/default/endpoints?{query}")).await;
    let slices = format!("/apis/discovery.k8s.io/v1/endpointslices?{query}");
    let mut slices = Events::of(&server, &slices).await;
    let mut services = Events::of(&server, &format!("/api/v1/services?{query}")).await;

    workload(&server, "default", "fourth", json!({ "addresses": ["10.1.13.5"] })).await;
    pods.expect("ADDED", "fourth").await;
    let event = endpoints.next().await;
    assert_eq!(event["object"]["subsets"][0]["addresses"].as_array().unwrap().len(), 4, "{event}");
    slices.expect("MODIFIED", "nginx-service-ipv4").await;

    change(&server, "/v1/namespaces/default/workloads/fourth", json!({ "spec": { "ready": false } })).await;
    pods.expect("MODIFIED", "fourth").await;
    let event = endpoints.next().await;
    assert_eq!(event["object"]["subsets"][0]["notReadyAddresses"][0]["ip"], "10.1.13.5", "{event}");
    slices.expect("MODIFIED", "nginx-service-ipv4").await;

    delete(&server, "/v1/namespaces/default/workloads/fourth").await;
    pods.expect("DELETED", "fourth").await;
    endpoints.expect("MODIFIED", "nginx-service").await;
    slices.expect("MODIFIED", "nginx-service-ipv4").await;

    delete(&server, &format!("{SERVICES}/nginx-service")).await;
    endpoints.expect("DELETED", "nginx-service").await;
    slices.expect("DELETED", "nginx-service-ipv4").await;
    // Only this event concerns Services.
    services.expect("DELETED", "nginx-service").await;
}

/// If a Service without an address gets one, a watch of Services sends the change, although the Tidegate Service
/// itself has not changed.
#[tokio::test]
async fn an_address_that_a_service_waited_for_is_told() {
    let server = start().await;
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    create(&server, SERVICES, "web", spec).await;
    let mut services = Events::with(&server, "/api/v1/services?watch=true", TABLE).await;
    let shown = services.next().await;
    assert_eq!(shown["object"]["rows"][0]["cells"][3], "<pending>", "{shown}");
    create(&server, "/v1/addresspools", "lan", json!({ "addresses": ["198.51.100.7-198.51.100.9"] })).await;
    let shown = services.next().await;
    assert_eq!((&shown["type"], &shown["object"]["kind"]), (&json!("MODIFIED"), &json!("Table")));
    assert_eq!(shown["object"]["rows"][0]["cells"][3], "198.51.100.7", "{shown}");
}

#[tokio::test]
async fn a_namespace_comes_with_its_first_object_and_goes_with_its_last() {
    let server = start().await;
    seed(&server).await;
    let mut events = Events::of(&server, "/api/v1/namespaces?watch=true").await;
    events.expect("ADDED", "default").await;
    workload(&server, "shop", "a", json!({})).await;
    events.expect("ADDED", "shop").await;
    workload(&server, "shop", "b", json!({})).await;
    delete(&server, "/v1/namespaces/shop/workloads/b").await;
    delete(&server, "/v1/namespaces/shop/workloads/a").await;
    // No object in between changed the namespace.
    events.expect("DELETED", "shop").await;
}

/// An object that begins to match the selectors of a watch is reported as added; one that no longer matches, as
/// deleted.
#[tokio::test]
async fn labels_and_fields_decide_what_is_added_and_deleted() {
    let server = start().await;
    let path = "/v1/namespaces/default/workloads/a";
    let query = "watch=true&labelSelector=tier%3Dfront&fieldSelector=status.phase%3DRunning";
    let mut events = Events::of(&server, &format!("/api/v1/pods?{query}")).await;
    workload(&server, "default", "a", json!({})).await;
    for (changes, word) in [
        (json!({ "metadata": { "labels": { "tier": "front" } } }), "ADDED"),
        (json!({ "spec": { "phase": "Pending" } }), "DELETED"),
        (json!({ "spec": { "phase": "Running" } }), "ADDED"),
        (json!({ "metadata": { "labels": { "tier": null } } }), "DELETED"),
    ] {
        change(&server, path, changes).await;
        events.expect(word, "a").await;
    }
}

/// A watch is cut after the first event of a commit of three objects. Resuming from that event misses no event;
/// resuming from the last one repeats none.
#[tokio::test]
async fn who_is_cut_in_the_middle_of_a_commit_misses_nothing() {
    let server = start().await;
    let at = version(&get(&server, "/api/v1/pods").await);
    let from = |version: &str| format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let mut first = Events::of(&server, &from(&at)).await;
    let object = |name: &str| json!({ "apiVersion": "tidegate/v1", "kind": "Workload", "metadata": { "name": name }, "spec": {} });
    let objects: Vec<_> = ["a", "b", "c"].into_iter().map(object).collect();
    let (status, answer) =
        server.call("POST", "/v1/apply", Some(json!({ "kind": "List", "items": objects }))).await;
    assert_eq!(status, 200, "{answer}");
    let cut = first.next().await;
    assert_eq!(cut["object"]["metadata"]["name"], "a");
    let mut again = Events::of(&server, &from(&version(&cut["object"]))).await;
    for name in ["a", "b", "c"] {
        again.expect("ADDED", name).await;
    }
    first.expect("ADDED", "b").await;
    let last = first.next().await;
    let mut on = Events::of(&server, &from(&version(&last["object"]))).await;
    workload(&server, "default", "d", json!({})).await;
    on.expect("ADDED", "d").await;
}

/// A watch with bookmarks sends one after the existing objects, and a further one with the newest version
/// after a change that does not match the watch. The watch ends at the requested timeout.
#[tokio::test]
async fn bookmarks_tell_how_far_a_watch_is() {
    let server = start().await;
    seed(&server).await;
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3";
    let mut events = Events::of(&server, &format!("/api/v1/nodes?{query}")).await;
    events.expect("ADDED", "core-v2-01").await;
    let mark = events.next().await;
    assert_eq!((&mark["type"], &mark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Node")));
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    workload(&server, "default", "later", json!({})).await;
    let moved = events.next().await;
    assert_eq!(moved["type"], "BOOKMARK");
    assert_eq!(version(&moved["object"]), version(&get(&server, "/api/v1/pods").await));
    assert_eq!(events.0.next().await, None, "it ends when it was asked to");
}

/// A resource version of an earlier epoch of the store is rejected with `Expired`, after which clients list again.
#[tokio::test]
async fn a_version_of_another_life_of_the_store_is_expired() {
    let server = start().await;
    let at = version(&get(&server, "/api/v1/pods").await);
    let (epoch, _) = at.split_once('-').unwrap();
    for path in ["/api/v1/pods", "/api/v1/endpoints"] {
        let old = format!("{path}?watch=true&resourceVersion={}-0", epoch.parse::<u64>().unwrap() - 1);
        let (status, body) = read(ask(&server, &old, "application/json").await).await;
        assert_eq!((status, &body["reason"]), (410, &json!("Expired")), "{body}");
    }
}

/// If the address of a Node changes, a watch of Pods reports the Pods on that Node as modified.
#[tokio::test]
async fn the_pods_of_a_node_follow_its_address() {
    let server = start().await;
    seed(&server).await;
    let at = version(&get(&server, "/api/v1/pods").await);
    let mut events = Events::of(&server, &format!("/api/v1/pods?watch=true&resourceVersion={at}")).await;
    change(&server, "/v1/nodes/core-v2-01", json!({ "spec": { "addresses": ["172.17.8.200"] } })).await;
    for _ in 0..3 {
        let event = events.next().await;
        assert_eq!(event["object"]["status"]["hostIP"], "172.17.8.200", "{event}");
    }
}

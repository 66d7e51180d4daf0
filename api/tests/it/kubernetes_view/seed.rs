//! Tests that the documented objects have the documented columns and fields. `UPDATE_GOLDEN=1` rewrites the
//! recorded output.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use super::{TABLE, ask, create, get, read, seed, start, workload};
use crate::support::Server;

fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name} differs; it would be:\n{actual}\nUPDATE_GOLDEN=1 rewrites it");
}

/// Reads a table and formats it as `kubectl get -A` and `-o wide` do: all columns, with a bar before those of the
/// wide format.
async fn table(server: &Server, path: &str) -> String {
    let (status, table) = read(ask(server, path, TABLE).await).await;
    assert_eq!((status, &table["kind"]), (200, &json!("Table")), "{path}");
    let mut text = format!("GET /k8s{path}\n");
    let columns = table["columnDefinitions"].as_array().unwrap();
    let line = |cells: Vec<String>| {
        let narrow = columns.iter().filter(|column| column["priority"] == 0).count();
        let (narrow, wide) = cells.split_at(narrow);
        format!("  {} | {}\n", narrow.join("  "), wide.join("  "))
    };
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    text += &line(columns.iter().map(|column| word(&column["name"]).to_uppercase()).collect());
    for row in table["rows"].as_array().unwrap() {
        let metadata = &row["object"]["metadata"];
        assert!(metadata["name"].is_string() && row["object"]["kind"] == "PartialObjectMetadata", "{row}");
        text += &line(row["cells"].as_array().unwrap().iter().map(word).collect());
    }
    text
}

/// F005: the documented objects give the documented output of `get pods`, `get svc`, `get ep`, and the fields
/// of `-o yaml` and `describe`.
#[tokio::test]
async fn f005_the_objects_of_the_documents_have_the_columns_and_fields_of_the_documents() {
    let server = start().await;
    seed(&server).await;
    server.source.advance(240);
    let mut text =
        String::from("# Written by UPDATE_GOLDEN=1 cargo test -p api --test it kubernetes_view::\n");
    let inside = "/api/v1/namespaces/default";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    for path in [
        &format!("{inside}/pods"),
        &format!("{inside}/services"),
        &format!("{inside}/endpoints"),
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/events",
        slices,
    ] {
        text += &table(&server, path).await;
    }
    for path in [
        &format!("{inside}/pods/nginx-controller-6bovu"),
        &format!("{inside}/services/nginx-service"),
        &format!("{inside}/endpoints/nginx-service"),
        "/api/v1/nodes/core-v2-01",
        "/api/v1/namespaces/default",
        &format!("{slices}/nginx-service-ipv4"),
    ] {
        let shown = serde_json::to_string_pretty(&get(&server, path).await).unwrap();
        let _ = writeln!(text, "GET /k8s{path}\n{shown}");
    }
    for path in
        ["/version", "/api", "/apis", "/api/v1", "/apis/discovery.k8s.io", "/apis/discovery.k8s.io/v1beta1"]
    {
        let _ = writeln!(text, "GET /k8s{path}\n{}", get(&server, path).await);
    }
    check("kubernetes_view.txt", &text);
}

/// Spec fields without a counterpart in Kubernetes are in an annotation; none is omitted.
#[tokio::test]
async fn what_kubernetes_has_no_field_for_stands_in_an_annotation() {
    let server = start().await;
    let spec = json!({
        "type": "LoadBalancer", "scheduler": "wrr", "removalPolicy": "reset",
        "ports": [{ "name": "a", "port": 8000, "endPort": 8100 }, { "name": "b", "port": 80 }],
        "ipFamilyPolicy": "RequireDualStack",
    });
    create(&server, "/v1/namespaces/default/services", "web", spec).await;
    let shown = get(&server, "/api/v1/namespaces/default/services/web").await;
    let rest = shown["metadata"]["annotations"]["tidegate/spec"].as_str().unwrap();
    let rest: Value = serde_json::from_str(rest).unwrap();
    assert_eq!(rest, json!({ "scheduler": "wrr", "removalPolicy": "reset" }));
    assert!(shown["spec"].get("scheduler").is_none());
    let row = &read(ask(&server, "/api/v1/services", TABLE).await).await.1["rows"][0]["cells"];
    assert_eq!(row[3], "<pending>");
    assert!(row[4].as_str().unwrap().starts_with("8000-8100/TCP,80:"), "{row}");
}

/// A Workload that accepts no connections is a Pod that is not ready, with the reason in the terms of
/// `kubectl get pods`.
#[tokio::test]
async fn a_workload_that_takes_no_connections_is_a_pod_that_is_not_ready() {
    let server = start().await;
    for (name, spec) in [
        ("a-running", json!({})),
        ("b-not-ready", json!({ "ready": false })),
        ("c-pending", json!({ "phase": "Pending" })),
        ("d-terminating", json!({ "phase": "Terminating" })),
        ("e-done", json!({ "phase": "Succeeded" })),
        ("f-failed", json!({ "phase": "Failed" })),
        ("g-out", json!({ "maintenance": { "mode": "Maintenance" } })),
    ] {
        workload(&server, "default", name, spec).await;
    }
    let table = read(ask(&server, "/api/v1/pods", TABLE).await).await.1;
    let cells =
        |row: &Value| [&row["cells"][1], &row["cells"][2]].map(|cell| cell.as_str().unwrap().to_owned());
    let shown: Vec<_> = table["rows"].as_array().unwrap().iter().map(cells).collect();
    let expected = [
        ["1/1", "Running"],
        ["0/1", "Running"],
        ["0/1", "Pending"],
        ["0/1", "Terminating"],
        ["0/1", "Completed"],
        ["0/1", "Error"],
        ["0/1", "Running"],
    ];
    assert_eq!(shown, expected);
}

/// A Service has endpoints of both families, one of them on a different port. Each EndpointSlice has one family
/// and one set of ports, and is found by the Service's label. In the older API version the zone is in its own
/// field.
#[tokio::test]
async fn slices_have_one_family_and_one_set_of_ports_each() {
    let server = start().await;
    let spec = json!({
        "ipFamilyPolicy": "RequireDualStack", "selector": { "app": "nginx" },
        "ports": [{ "name": "web", "port": 80, "targetPort": "http" }],
    });
    create(&server, "/v1/namespaces/default/services", "web", spec).await;
    for (name, addresses, port) in [
        ("a", json!(["10.1.1.1", "fd00:1::1"]), 80),
        ("b", json!(["10.1.1.2"]), 80),
        ("c", json!(["10.1.1.3"]), 81),
    ] {
        let spec = json!({ "addresses": addresses, "zone": "z1", "ports": { "http": { "port": port } } });
        workload(&server, "default", name, spec).await;
    }
    let query = "labelSelector=kubernetes.io/service-name=web";
    let list = get(&server, &format!("/apis/discovery.k8s.io/v1/endpointslices?{query}")).await;
    let of = |slice: &Value| {
        let addresses = slice["endpoints"].as_array().unwrap().iter().map(|one| one["addresses"][0].clone());
        (
            slice["metadata"]["name"].as_str().unwrap().to_owned(),
            slice["ports"][0]["port"].as_u64().unwrap(),
            addresses.collect::<Vec<_>>(),
        )
    };
    let found: Vec<_> = list["items"].as_array().unwrap().iter().map(of).collect();
    let expected = [
        ("web-ipv4".to_owned(), 80, vec![json!("10.1.1.1"), json!("10.1.1.2")]),
        ("web-ipv4-2".to_owned(), 81, vec![json!("10.1.1.3")]),
        ("web-ipv6".to_owned(), 80, vec![json!("fd00:1::1")]),
    ];
    assert_eq!(found, expected);
    assert_eq!(list["items"][0]["endpoints"][0]["zone"], "z1");
    let older = "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices/web-ipv4-2";
    let older = get(&server, older).await;
    assert_eq!(older["endpoints"][0]["topology"]["topology.kubernetes.io/zone"], "z1");
    assert_eq!(older["apiVersion"], "discovery.k8s.io/v1beta1");
}

/// The report of an agent makes its Node ready, with the agent's version, and creates events.
/// `kubectl describe node` selects them by the Node's name as uid.
#[tokio::test]
async fn what_an_agent_says_makes_its_node_ready_and_its_events() {
    let server = start().await;
    seed(&server).await;
    let at = super::version(&get(&server, "/api/v1/nodes").await);
    let report = json!({
        "bootId": "a", "agentVersion": "0.1.0", "mode": "nftables", "received": at, "applied": at, "verified": at,
        "facts": { "kernel": "6.12.0" },
        "events": [
            { "time": "2026-11-21T08:58:00Z", "reason": "ModeChangeFailed", "message": "no ip_vs", "count": 3 },
            { "time": "2026-11-21T08:59:30Z", "reason": "DriftRepaired", "message": "1 element", "count": 1 },
        ],
    });
    let (status, answer) = server.call("PUT", "/v1/nodes/core-v2-01/report", Some(report)).await;
    assert_eq!(status, 204, "{answer}");
    let nodes = table(&server, "/api/v1/nodes").await;
    let row = "  core-v2-01  Ready  <none>  0s  0.1.0 | 172.17.8.101  <none>  <unknown>  6.12.0  <unknown>\n";
    assert!(nodes.ends_with(row), "{nodes}");
    let of_node = "fieldSelector=involvedObject.kind%3DNode,involvedObject.uid%3Dcore-v2-01";
    let events = table(&server, &format!("/api/v1/events?{of_node}")).await;
    for line in [
        "  2m  Warning  ModeChangeFailed  node/core-v2-01  no ip_vs | tidegate-agent, core-v2-01  3  core-v2-01.modechangefailed.",
        "  30s  Normal  DriftRepaired  node/core-v2-01  1 element | ",
    ] {
        assert!(events.contains(line), "{line} is missing: {events}");
    }
    let list = get(&server, "/api/v1/namespaces/default/events").await;
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    let one = get(&server, &format!("/api/v1/namespaces/default/events/{name}")).await;
    assert_eq!(one, list["items"][0]);
}

/// Without `--kubernetes-view`, the paths of the Kubernetes API do not exist, and errors have the ordinary format.
#[tokio::test]
async fn without_the_flag_there_is_no_view() {
    let server = crate::support::start().await;
    for path in ["/version", "/api/v1/pods"] {
        let response = ask(&server, path, "application/json").await;
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.status().as_u16(), 404);
    }
}

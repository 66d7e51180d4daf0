//! Tests of the requests and progress output of `drain`, `maintenance` and `undrain`.

use serde_json::{Value, json};

use crate::stub::{JSON, Stub, run, write_answer};

/// Returns the JSON body of an HTTP request.
fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A drain of a Node sends one patch, then polls until no connection is left, and prints each progress line
/// once on stderr.
#[test]
fn a_drain_patches_the_object_and_waits_until_no_connection_is_left() {
    let stub = Stub::new(|number, _, stream| {
        let answer = match number {
            0 => json!({ "items": [] }),
            1 => json!({ "kind": "Node", "metadata": { "name": "n1" } }),
            2 | 3 => json!({ "connections": 2, "isOver": false, "items": [
                { "nodes": { "n2": 2 }, "unknown": { "n3": "silent" } },
            ] }),
            _ => json!({ "connections": 0, "isOver": true, "items": [] }),
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let arguments =
        ["drain", "node", "n1", "--reason", "a disk", "--by", "ops", "--deadline", "2h", "--wait"];
    let (code, out, err) = run(&stub.url, &arguments);
    assert_eq!(
        (code, out.as_str()),
        (0, "node/n1 drains\nno connection to an endpoint on the node is left\n"),
        "{err}"
    );
    assert_eq!(err, "2 connections left: n2 2; unknown: n3 (silent)\n");
    let look = "GET /v1/drains?node=n1 HTTP/1.1";
    assert_eq!(stub.first_lines()[1..], ["PATCH /v1/nodes/n1 HTTP/1.1", look, look, look]);
    let patch = body(&stub.requests.lock().unwrap()[1]);
    let asked = &patch["spec"]["maintenance"];
    assert_eq!(
        (&asked["mode"], &asked["reason"], &asked["by"]),
        (&json!("Drain"), &json!("a disk"), &json!("ops"))
    );
    assert!(asked["deadline"].as_str().unwrap().ends_with('Z'), "{asked}");
}

/// The drain of a Node and its preview name the addresses that move and the connections through the node, because a
/// move resets them.
#[test]
fn a_preview_of_a_drain_names_the_addresses_that_move() {
    for more in [&["--dry-run"][..], &[]] {
        let stub = Stub::new(|number, _, stream| {
            let answer = match number {
                0 => json!({ "items": [{ "kind": "Address" }, { "kind": "Address" }], "metadata": {} }),
                1 => json!({ "connections": 0, "isOver": true, "items": [], "connectionsThroughNode": 17 }),
                _ => json!({ "kind": "Node", "metadata": { "name": "n1" } }),
            };
            write_answer(stream, "200 OK", JSON, &answer.to_string());
        });
        let (code, out, err) = run(&stub.url, &[&["drain", "node", "n1"], more].concat());
        assert_eq!(code, 0, "{err}");
        assert!(out.starts_with("node/n1 drains"), "{out}");
        assert_eq!(
            err,
            "2 load balancer addresses move to other nodes; established connections through this node are reset \
             (at most 17 at the last count)\n"
        );
        let lines = stub.first_lines();
        assert!(lines[0].starts_with("GET /v1/addresses?") && lines[0].contains("node=n1"), "{lines:?}");
        assert_eq!(lines[1], "GET /v1/drains?node=n1 HTTP/1.1");
    }
}

/// A drain or preview by a caller who may not read addresses does not fail.
#[test]
fn a_preview_of_a_drain_needs_no_permission_for_addresses() {
    let stub = Stub::new(|number, _, stream| {
        let (status, kind, answer) = match number {
            1 => ("200 OK", JSON, json!({ "kind": "Node", "metadata": { "name": "n1" } })),
            _ => (
                "403 Forbidden",
                "application/problem+json",
                json!({ "title": "Forbidden", "status": 403, "code": "Forbidden", "detail": "not allowed" }),
            ),
        };
        write_answer(stream, status, kind, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["drain", "node", "n1", "--dry-run"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "node/n1 drains (dry run)\n", ""));
    assert_eq!(stub.first_lines().len(), 2, "{:?}", stub.first_lines());
}

/// If connections remain at the timeout, the exit code is 1, and the message contains their number and the
/// remedy.
#[test]
fn a_wait_that_is_too_long_is_exit_code_1_and_undoes_nothing() {
    let stub = Stub::new(|number, _, stream| {
        let answer = match number {
            0 => json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" } }),
            _ => json!({ "connections": 1, "isOver": false, "items": [{ "nodes": { "n1": 1 } }] }),
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let arguments = ["maintenance", "service", "web", "-n", "shop", "--wait", "--wait-timeout", "1s"];
    let (code, _, err) = run(&stub.url, &arguments);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("1 connections are left after 1 s") && err.contains("tidegate undrain"), "{err}");
    let lines = stub.first_lines();
    assert_eq!(lines[0], "PATCH /v1/namespaces/shop/services/web HTTP/1.1");
    assert!(
        lines[1..].iter().all(|line| line == "GET /v1/drains?namespace=shop&service=web HTTP/1.1"),
        "{lines:?}"
    );
}

/// An address is looked up in EndpointSets and Workloads. An EndpointSet is patched only if it has not
/// changed since it was read.
#[test]
fn an_endpoint_is_found_by_its_address_and_given_back() {
    let stub = Stub::new(|_, request, stream| {
        let set = json!({
            "kind": "EndpointSet",
            "metadata": { "name": "by-hand", "namespace": "default", "uid": "u", "resourceVersion": "7" },
            "spec": { "endpoints": [
                { "address": "10.1.0.1", "maintenance": { "mode": "Drain" } }, { "address": "10.1.0.2" },
            ] },
        });
        let answer = match request.split(' ').collect::<Vec<_>>()[..] {
            ["PATCH", ..] => set,
            ["GET", path, ..] if path.starts_with("/v1/namespaces/default/endpointsets") => {
                json!({ "items": [set] })
            }
            _ => json!({ "items": [] }),
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["undrain", "endpoint", "10.1.0.1"]);
    assert_eq!((code, out.as_str()), (0, "endpointset/by-hand is back in service\n"), "{err}");
    let requests = stub.requests.lock().unwrap().clone();
    let patch = requests.last().unwrap();
    assert!(patch.contains("if-match: \"u.7\""), "{patch}");
    let endpoints = &body(patch)["spec"]["endpoints"];
    assert_eq!(*endpoints, json!([{ "address": "10.1.0.1", "drain": false }, { "address": "10.1.0.2" }]));
    let (code, _, err) = run(&stub.url, &["drain", "endpoint", "10.1.0.9"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("has the address 10.1.0.9"), "{err}");
}

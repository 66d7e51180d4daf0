//! Tests of listings that follow changes, of namespaces and kinds, and of checks for monitoring.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use crate::stub::{JSON, Stub, command, run, write_answer};

const NOWHERE: &str = "http://127.0.0.1:1";

/// Runs a command that follows changes until its output contains every one of `expected`, in this order.
fn follows(stub: &Stub, words: &[&str], expected: &[&str]) {
    let mut child = command(&stub.url, words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for text in expected {
        let found = lines.by_ref().map(Result::unwrap).any(|line| line.contains(text));
        assert!(found, "{words:?} ended before `{text}`");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn states_are_printed_again_on_each_change() {
    let mut looks = 0;
    let stub = Stub::new(move |_, request, stream| {
        if request.starts_with("GET /v1/convergence") {
            return write_answer(stream, "404 Not Found", JSON, "{}");
        }
        looks += 1;
        let status =
            json!({ "version": "1", "nodes": { "total": 3, "connected": looks.min(2), "converged": 0 } });
        write_answer(stream, "200 OK", JSON, &status.to_string());
    });
    follows(&stub, &["status", "-w", "-o", "json"], &["\"connected\": 1", "\"connected\": 2"]);
}

/// The audit log, namespaces, variables and changes of owners are printed again when they differ.
#[test]
fn other_listings_are_printed_again_on_each_change() {
    let mut looks = 0;
    let stub = Stub::new(move |_, request, stream| {
        looks += 1;
        let names: Vec<String> = (0..looks).map(|number| format!("shop-{number}")).collect();
        let namespace = |name: &String| json!({ "name": name, "objects": { "Service": 1 } });
        let variable = |name: &String| json!({ "name": name, "value": "", "service": "default/web" });
        let event = |name: &String| json!({ "id": 1, "time": "2026-11-29T00:00:00Z", "address": "192.0.2.1", "node": name, "reason": "Announced", "message": "" });
        let entry = |name: &String| json!({ "caller": name, "verb": "get", "path": name });
        let items: Vec<_> = match request.split(' ').nth(1).unwrap_or_default() {
            path if path.contains("/events") => names.iter().map(event).collect(),
            path if path.contains("/audit") => names.iter().map(entry).collect(),
            _ => names.iter().map(namespace).collect(),
        };
        let variables: Vec<_> = names.iter().map(variable).collect();
        let answer = json!({ "metadata": {}, "items": items, "namespace": "default", "revision": 1, "variables": variables, "conflicts": [] });
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    for words in [&["namespaces", "-w"][..], &["env", "-w"], &["addresses", "events", "-w"], &["audit", "-w"]]
    {
        follows(&stub, words, &["shop-0", "shop-0"]);
    }
}

#[test]
fn later_changes_of_the_history_are_printed_once() {
    let mut looks = 0;
    let stub = Stub::new(move |_, _, stream| {
        looks += 1;
        let entry = |revision: u64| {
            json!({ "revision": revision, "maker": "client", "author": format!("author-{revision}"),
                                            "changes": [], "changesTotal": 0 })
        };
        let revisions: Vec<u64> = (1..=3 + looks).rev().collect();
        let items: Vec<_> = revisions.into_iter().take(3).map(entry).collect();
        write_answer(stream, "200 OK", JSON, &json!({ "metadata": {}, "items": items }).to_string());
    });
    follows(&stub, &["events", "-w"], &["REVISION", "author-4", "author-2", "author-5", "author-6"]);
    assert_eq!(run(NOWHERE, &["history", "42", "-w"]).0, 2);
}

#[test]
fn namespaces_are_listed_with_the_numbers_of_the_server() {
    let stub = Stub::new(|_, request, stream| {
        assert!(request.starts_with("GET /v1/namespaces "), "{request}");
        let row = json!({ "name": "shop", "objects": { "Service": 2, "Workload": 5, "EndpointHealth": 1 } });
        write_answer(stream, "200 OK", JSON, &json!({ "items": [row] }).to_string());
    });
    let (code, out, err) = run(&stub.url, &["get", "ns"]);
    let row: Vec<_> = out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!((code, row), (0, vec!["shop", "2", "0", "5"]), "{err}");
}

/// A server of version 0.1.0 does not count the objects of namespaces.
#[test]
fn namespaces_are_listed_with_their_objects() {
    let stub = Stub::new(|_, request, stream| {
        if request.starts_with("GET /v1/namespaces ") {
            let problem =
                json!({ "status": 404, "code": "NotFound", "title": "Not found", "detail": "no such path" });
            return write_answer(stream, "404 Not Found", "application/problem+json", &problem.to_string());
        }
        let names = if request.starts_with("GET /v1/services") {
            &["shop", "default", "shop"][..]
        } else {
            &["infra"]
        };
        let items: Vec<_> =
            names.iter().map(|name| json!({ "metadata": { "name": "x", "namespace": name } })).collect();
        write_answer(stream, "200 OK", JSON, &json!({ "metadata": {}, "items": items }).to_string());
    });
    let (code, out, err) = run(&stub.url, &["get", "ns"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, 0, "{err}");
    assert_eq!(rows[1..], [["default", "1", "0", "0"], ["infra", "0", "1", "1"], ["shop", "2", "0", "0"]]);
    let (_, out, _) = run(&stub.url, &["namespaces", "-o", "json"]);
    assert!(out.contains("\"endpointSets\": 1"), "{out}");
}

#[test]
fn kinds_and_fields_are_described_without_a_server() {
    let (code, out, err) = run(NOWHERE, &["api-resources"]);
    assert!(code == 0 && out.contains("endpointsets") && out.contains("eps"), "{out}{err}");
    for words in [&["explain", "svc.spec.ports"][..], &["api", "explain", "svc.spec.ports"]] {
        let (code, out, err) = run(NOWHERE, words);
        assert!(code == 0 && out.starts_with("Service.spec.ports <list of"), "{out}{err}");
    }
    let (code, _, err) = run(NOWHERE, &["explain", "svc.spec.portz"]);
    assert!(code == 2 && err.contains("no field `portz`"), "{err}");
}

#[test]
fn a_check_prints_one_line_and_has_the_codes_of_monitoring_plugins() {
    let check = |impact: Option<&str>| {
        let problems: Vec<_> = impact
            .iter()
            .map(|impact| json!({ "object": "Service a", "impact": impact, "reason": "Bad" }))
            .collect();
        let stub = Stub::fixed("200 OK", JSON, json!({ "problems": problems }).to_string());
        run(&stub.url, &["status", "--check"])
    };
    for (impact, expected, word) in
        [(None, 0, "OK"), (Some("degraded"), 1, "WARNING"), (Some("unreachable"), 2, "CRITICAL")]
    {
        let (code, out, err) = check(impact);
        assert_eq!((code, out.lines().count()), (expected, 1), "{out}{err}");
        assert!(out.starts_with(&format!("TIDEGATE {word} - ")) && out.contains(" | problems="), "{out}");
    }
    for words in [&["status", "--check"][..], &["status", "--check", "--nosuch"]] {
        let (code, out, err) = run(NOWHERE, words);
        assert!(code == 3 && out.starts_with("TIDEGATE UNKNOWN - ") && !err.is_empty(), "{code} {out}{err}");
    }
}

#[test]
fn the_help_has_groups_and_the_connection_options_once() {
    let (_, first, _) = run(NOWHERE, &["--help"]);
    for text in ["Everyday:\n", "Administer:\n", "--ca-hash", "Exit codes:"] {
        assert!(first.contains(text), "{text}: {first}");
    }
    let (_, own, _) = run(NOWHERE, &["bgp", "peers", "--help"]);
    assert!(
        !own.contains("--ca-hash") && own.contains("--state") && own.contains("tidegate --help"),
        "{own}"
    );
}

//! Tests of the requests that commands for tokens and roles send to a stub server.

use crate::stub::{JSON, Stub, run, write_answer};

#[test]
fn a_token_goes_to_stdout_alone_and_its_limits_to_the_server() {
    let stub = Stub::fixed("201 Created", JSON, r#"{"id":"abc","name":"shop","token":"tgt_abc_secret"}"#);
    let words = [
        "token",
        "create",
        "shop",
        "--role",
        "operator,viewer",
        "-n",
        "shop",
        "--pool",
        "web",
        "--endpoint-range",
        "10.1.0.0/16",
        "--expires-in",
        "90d",
    ];
    let (code, out, err) = run(&stub.url, &words);
    assert_eq!((code, out.as_str()), (0, "tgt_abc_secret\n"), "{err}");
    assert!(err.contains("cannot be displayed again") && !err.contains("tgt_abc"), "{err}");
    let request = stub.requests.lock().unwrap()[0].clone();
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let limits = r#""endpointRanges":["10.1.0.0/16"],"namespaces":["shop"],"pools":["web"]"#;
    let bindings = format!(r#"[{{{limits},"role":"operator"}},{{{limits},"role":"viewer"}}]"#);
    assert_eq!(body, format!(r#"{{"bindings":{bindings},"name":"shop","ttlSeconds":7776000}}"#));
    for bad in [
        &["token", "create", "shop"][..],
        &["token", "create", "Shop_1", "--role", "viewer"],
        &["token", "create", "shop", "--role", "viewer", "--expires-in", "0d"],
        &["token", "create", "shop", "--role", "viewer", "--expires-in", "soon"],
        &["token", "create", "shop", "--role", "viewer", "--endpoint-range", "10.1.0.0/33"],
        &["can-i", "get"],
        &["role", "apply", "x"],
    ] {
        assert_eq!(run(&stub.url, bad).0, 2, "{bad:?}");
    }
    assert_eq!(stub.first_lines().len(), 1, "a mistake on the command line asks nobody");
}

#[test]
fn tokens_are_revoked_by_name_and_answers_are_shown() {
    let stub = Stub::new(|_, request, stream| {
        let answer = if request.starts_with("GET /v1/tokens ") {
            r#"{"items":[{"id":"abc","name":"ci","bindings":[{"role":"operator","namespaces":["shop"]}],
                "created":"2026-11-21T09:00:00Z","createdBy":"bootstrap"}]}"#
        } else if request.starts_with("GET /v1/whoami ") {
            r#"{"identity":{"type":"token","id":"abc","name":"ci"},"bindings":[{"role":"viewer"}],"authRequired":true}"#
        } else if request.starts_with("GET /v1/whoami/may") {
            r#"{"allowed":false,"who":"token ci"}"#
        } else if request.starts_with("GET /v1/roles") {
            r#"{"items":[{"name":"viewer","builtIn":true,"rules":[{"verbs":["get"],"kinds":["Service"]}]}]}"#
        } else {
            r#"{"id":"abc","name":"ci","token":"tgj_x"}"#
        };
        write_answer(stream, "200 OK", JSON, answer);
    });
    let (code, out, err) = run(&stub.url, &["token", "list"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("operator in shop"), "{out}");
    assert_eq!(run(&stub.url, &["token", "revoke", "ci"]).1, "token ci revoked\n");
    assert!(run(&stub.url, &["role", "list"]).1.contains("viewer (built in)"));
    assert_eq!(run(&stub.url, &["whoami"]).1, "token ci (abc)\n  viewer\n");
    let (code, out, _) = run(&stub.url, &["can-i", "update", "svc", "-n", "shop"]);
    assert_eq!((code, out.as_str()), (1, "no\n"));
    assert_eq!(run(&stub.url, &["node", "join-token", "n1", "--expires-in", "1h"]).1, "tgj_x\n");
    assert_eq!(run(&stub.url, &["role", "delete", "x"]).0, 0);
    let lines = stub.first_lines();
    assert!(lines.contains(&"DELETE /v1/tokens/abc HTTP/1.1".to_owned()), "{lines:?}");
    let may = "GET /v1/whoami/may?verb=update&kind=Service&namespace=shop HTTP/1.1".to_owned();
    assert!(lines.contains(&may), "{lines:?}");
    assert!(lines.contains(&"POST /v1/jointokens HTTP/1.1".to_owned()), "{lines:?}");
}

/// The labels of a join token are sent, and a label that is none is refused without a request.
#[test]
fn a_join_token_carries_labels() {
    let stub = Stub::new(|_, request, stream| {
        let is_fit =
            request.contains(r#"{"labels":{"role":"edge","tidegate.example/rack":"r1"},"node":"n1"}"#);
        let status = if is_fit { "201 Created" } else { "400 Bad Request" };
        write_answer(stream, status, JSON, r#"{"id":"abc","token":"tgj_x"}"#);
    });
    let create = |label: &str| run(&stub.url, &["node", "join-token", "n1", "--label", label]);
    assert_eq!(create("role=edge,tidegate.example/rack=r1").1, "tgj_x\n");
    for bad in ["role", "=x", "role=a b"] {
        assert_eq!(create(bad).0, 2, "{bad}");
    }
    assert_eq!(stub.first_lines().len(), 1);
}

/// `node accept` adds the requests to the properties of the Node, on the state that it has read.
#[test]
fn pending_requests_of_an_agent_are_accepted_on_the_state_that_was_read() {
    let stub = Stub::new(|_, request, stream| {
        let answer = if request.starts_with("GET /v1/nodes/plain ") {
            r#"{"metadata":{"name":"plain","uid":"u","resourceVersion":"7"},"spec":{"addresses":["10.0.0.8"]}}"#
        } else {
            r#"{"metadata":{"name":"n9","uid":"u","resourceVersion":"7"},"spec":{"addresses":["10.0.0.9"],
                "workloadCIDRs":["10.1.9.0/24"],
                "requested":{"labels":{"role":"edge"},"workloadCIDRs":["192.0.0.0/4"]}}}"#
        };
        let is_fit = !request.starts_with("PATCH")
            || (request.to_ascii_lowercase().contains("if-match: \"u.7\"")
                && request.contains(r#"{"metadata":{"labels":{"role":"edge"}}"#)
                && request
                    .contains(r#"{"addresses":["10.0.0.9"],"workloadCIDRs":["10.1.9.0/24","192.0.0.0/4"]}"#));
        write_answer(stream, if is_fit { "200 OK" } else { "400 Bad Request" }, JSON, answer);
    });
    let (code, out, err) = run(&stub.url, &["node", "accept", "n9"]);
    assert_eq!(
        (code, out.as_str()),
        (0, "node n9: accepted label role=edge, workload network 192.0.0.0/4\n"),
        "{err}"
    );
    assert_eq!(run(&stub.url, &["node", "accept", "plain"]).1, "node plain has no pending requests\n");
    let lines = stub.first_lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("PATCH /v1/nodes/n9 ")).count(), 1, "{lines:?}");
}

//! Tests of spellings known from `kubectl` that the command accepts.

use crate::stub::{JSON, PROBLEM, Stub, command, ended, run, write_answer};

/// Starts a stub with one Service, `shop/web`.
fn shop() -> Stub {
    Stub::new(|_, request, stream| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        if path == "/v1/namespaces/shop/services/web" {
            let body = r#"{"kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{},"status":{"conditions":[
                {"type":"Ready","status":"True","reason":"Ready","message":""}]}}"#;
            write_answer(stream, "200 OK", JSON, body);
        } else {
            let body = r#"{"status":404,"code":"NotFound"}"#;
            write_answer(stream, "404 Not Found", PROBLEM, body);
        }
    })
}

#[test]
fn a_namespace_is_given_before_the_subcommand_or_with_the_name() {
    for words in [
        &["-n", "shop", "get", "svc", "web", "-o", "name"][..],
        &["get", "svc", "shop/web", "-o", "name"],
        &["get", "svc/shop/web", "-o", "name"],
    ] {
        let stub = shop();
        let (code, out, err) = run(&stub.url, words);
        assert_eq!((code, out.as_str()), (0, "service/web\n"), "{words:?}: {err}");
    }
    let stub = shop();
    let (code, out, err) = run(&stub.url, &["wait", "svc", "shop/web", "--for=condition=ready"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(run(&stub.url, &["wait", "svc", "shop/other", "--for=delete"]).0, 0);
}

/// The objects that exist are printed, and the others are errors.
#[test]
fn a_missing_object_does_not_hide_the_others() {
    let stub = shop();
    let (code, out, err) = run(&stub.url, &["get", "svc", "nosuch", "web", "-n", "shop", "-o", "name"]);
    assert_eq!((code, out.as_str()), (1, "service/web\n"));
    assert!(err.contains("NotFound"), "{err}");
    assert_eq!(
        run(&stub.url, &["get", "svc", "nosuch", "-n", "shop", "-o", "json"]).1,
        "",
        "nothing was found"
    );
}

#[test]
fn help_version_and_unknown_subcommands_are_answered_without_a_server() {
    let nowhere = "http://127.0.0.1:1";
    for words in [&["--version"][..], &["-V"], &["help"], &["help", "get"]] {
        let (code, out, err) = run(nowhere, words);
        assert!(code == 0 && out.contains("tidegate"), "{words:?}: {out}{err}");
    }
    let (code, out, err) = run(nowhere, &["replace", "-f", "web.yaml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("no command `replace`") && err.contains("tidegate apply -f"), "{err}");
    for words in [&["drain", "pool/a"][..], &["drain", "svc", "a/b/c"], &["drain", "svc/a/b/c"]] {
        assert_eq!(run(nowhere, words).0, 2, "{words:?}");
    }
}

#[test]
fn the_namespace_of_the_environment_is_used_and_a_contradiction_is_an_error() {
    let stub = shop();
    let mut command = command(&stub.url, &["get", "svc", "web", "-o", "name"]);
    let (code, out, err) = ended(command.env("TIDEGATE_NAMESPACE", "shop").output().unwrap());
    assert_eq!((code, out.as_str()), (0, "service/web\n"), "{err}");
    let (code, _, err) = run("http://127.0.0.1:1", &["get", "svc", "shop/web", "-n", "infra"]);
    assert!(code == 2 && err.contains("is in namespace shop, and -n names infra"), "{err}");
}

/// `explain ADDRESS:PORT` traces a packet from a client that the server proposes.
#[test]
fn one_port_of_an_address_is_explained() {
    let stub = Stub::new(|_, request, stream| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let packet = |port| {
            serde_json::json!({ "node": "n1", "chosen": "", "steps": [], "candidates": [], "packet": {
                "source": format!("10.1.1.{port}"), "destination": "10.96.64.70", "protocol": "UDP", "port": port } })
        };
        let answer = if path.contains("source=") {
            serde_json::json!({ "subject": "a packet", "summary": "it arrives", "steps": [], "paths": [] })
        } else {
            serde_json::json!({ "subject": "10.96.64.70", "summary": "s", "steps": [], "paths": [packet(80), packet(53)] })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["explain", "10.96.64.70:53/udp", "--at", "n1"]);
    assert!(code == 0 && out.contains("it arrives") && err.contains("traced from 10.1.1.53"), "{out}{err}");
    let requests = stub.first_lines();
    assert_eq!(requests[0], "GET /v1/explain?destination=10.96.64.70&desiredOnly=true HTTP/1.1");
    let traced =
        "GET /v1/explain?source=10.1.1.53&destination=10.96.64.70&protocol=UDP&port=53&node=n1 HTTP/1.1";
    assert_eq!(requests[1], traced);
    for words in [
        &["explain", "10.96.64.70:53/udp", "--from", "10.9.9.9"][..],
        &["explain", "10.96.64.70", "--from=10.9.9.9"],
    ] {
        let (code, out, err) = run(&stub.url, words);
        assert!(code == 0 && out.contains("it arrives"), "{words:?}: {out}{err}");
        let requests = stub.first_lines();
        let last = requests.last().unwrap();
        assert!(
            last.starts_with("GET /v1/explain?source=10.9.9.9&destination=10.96.64.70&protocol=UDP&port="),
            "{last}"
        );
    }
    let (code, _, err) = run(&stub.url, &["explain", "web", "--from", "10.9.9.9"]);
    assert!(code == 2 && err.contains("--from"), "{err}");
}

/// A failing step is a negative result.
#[test]
fn an_explanation_of_a_fault_ends_with_code_3() {
    let answer = r#"{"subject":"s","summary":"no endpoint","steps":[],"paths":[],"broken":{"step":{"about":"Endpoints",
        "state":"Broken","outcome":"no endpoint","why":""}}}"#;
    let stub = Stub::fixed("200 OK", JSON, answer);
    for form in ["text", "json"] {
        assert_eq!(run(&stub.url, &["explain", "web", "-o", form]).0, 3, "{form}");
    }
}

/// `create service` makes two objects. The second one is named after the deletion of the first, and in the way of a new
/// one.
#[test]
fn a_remaining_endpoint_set_is_named() {
    let stub = Stub::new(|_, request, stream| {
        let set =
            r#"{"kind":"EndpointSet","metadata":{"name":"web","namespace":"shop"},"spec":{"service":"web"}}"#;
        let service = r#"{"kind":"Service","metadata":{"name":"web","namespace":"shop"}}"#;
        let answer = if request.starts_with("DELETE ") {
            service.to_owned()
        } else if request.starts_with("GET /v1/namespaces/shop/endpointsets/web ") {
            set.to_owned()
        } else {
            format!(
                r#"{{"results":[{{"action":"created","object":{service}}},{{"action":"configured","object":{set}}}]}}"#
            )
        };
        write_answer(stream, "200 OK", JSON, &answer);
    });
    let (code, out, err) = run(&stub.url, &["delete", "svc", "web", "-n", "shop"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("endpointset/web") && err.contains("`tidegate delete eps web -n shop`"), "{err}");
    let create = ["create", "svc", "web", "-n", "shop", "--port", "80", "--endpoint", "10.1.1.1"];
    let (code, _, err) = run(&stub.url, &create);
    assert!(code == 2 && err.contains("tidegate delete endpointset/web"), "{err}");
}

/// Several kinds with several names are all combinations.
#[test]
fn several_kinds_are_deleted_by_name() {
    let stub = Stub::fixed("200 OK", JSON, r#"{"results":[]}"#);
    run(&stub.url, &["delete", "svc,eps", "a", "b", "--dry-run"]);
    let requests = stub.requests();
    for kind in ["Service", "EndpointSet"] {
        for name in ["a", "b"] {
            let reference = serde_json::json!({ "kind": kind, "name": name, "namespace": "default" });
            assert!(requests[0].contains(&reference.to_string()), "{reference}: {requests:?}");
        }
    }
}

/// A server of version 0.1.0 has no `/version`.
#[test]
fn the_builds_of_client_and_servers_are_printed() {
    let whole = r#"{"version":"1.2.3","commit":"4f2a9c1","date":"2026-11-28T14:02:11Z","target":"x86_64-unknown-linux-gnu"}"#;
    let new = Stub::new(move |_, request, stream| {
        assert!(request.starts_with("GET /version "), "{request}");
        write_answer(stream, "200 OK", JSON, whole);
    });
    let old = Stub::new(|_, request, stream| {
        if request.starts_with("GET /version ") {
            return write_answer(stream, "404 Not Found", PROBLEM, r#"{"status":404,"code":"NotFound"}"#);
        }
        assert!(request.starts_with("GET /v1/status "), "{request}");
        write_answer(stream, "200 OK", JSON, r#"{"version":"0.1.0"}"#);
    });
    let servers = format!("{},{}", new.url, old.url);
    let (code, out, err) = run(&servers, &["version"]);
    let client = run(&servers, &["--version"]).1;
    let expected = format!(
        "{client}server 1.2.3 (commit 4f2a9c1, 2026-11-28T14:02:11Z, x86_64-unknown-linux-gnu) at {}\nserver 0.1.0 at {}\n",
        new.url, old.url
    );
    assert_eq!((code, out), (0, expected), "{err}");
    assert!(client.starts_with("tidegate ") && client.contains('('), "{client}");
    let (code, out, err) = run(&format!("http://127.0.0.1:1,{}", old.url), &["version"]);
    assert!(code != 0 && out.contains("server 0.1.0 at") && err.contains("127.0.0.1:1"), "{out}{err}");
}

//! Tests of the writes known from `kubectl`: labels, patches, the editor, and creation and deletion by options.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Mutex};

use serde_json::{Value, json};

use crate::stub::{JSON, PROBLEM, Stub, command, ended, run, write_answer};

fn service(version: u64, port: u64) -> Value {
    json!({ "apiVersion": "tidegate/v1", "kind": "Service", "spec": { "ports": [{ "port": port }] }, "status": { "x": 1 },
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "resourceVersion": version.to_string(),
                          "labels": { "app": "web" } } })
}

/// Starts a stub with the Service `web`, whose writes succeed.
fn cluster() -> Stub {
    Stub::new(|_, request, stream| {
        let line = request.lines().next().unwrap_or_default();
        let result = |action: &str| json!({ "results": [{ "action": action, "object": service(2, 80) }] });
        let answer = if line.contains("/v1/apply") {
            result(if request.contains("\"name\":\"web\"") { "updated" } else { "created" })
        } else if line.contains("/v1/delete") {
            result("deleted")
        } else if line.starts_with("GET /v1/namespaces/default/services?") {
            let other = json!({ "kind": "Service", "metadata": { "name": "api", "namespace": "default" } });
            json!({ "metadata": {}, "items": [service(1, 80), other] })
        } else if line.starts_with("GET /v1/namespaces/default/endpointsets") {
            json!({ "metadata": {}, "items": [] })
        } else {
            service(1, 80)
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    })
}

fn writes(stub: &Stub) -> Vec<String> {
    stub.requests().into_iter().filter(|request| !request.starts_with("GET")).collect()
}

#[test]
fn labels_are_set_removed_and_replaced_only_with_overwrite() {
    let stub = cluster();
    let (code, out, err) = run(&stub.url, &["label", "svc", "web", "tier=front", "old-", "-m", "why"]);
    assert_eq!((code, out.as_str()), (0, "service/web labeled\n"), "{err}");
    let request = &writes(&stub)[0];
    assert!(request.starts_with("PATCH /v1/namespaces/default/services/web "), "{request}");
    assert!(request.contains("if-match: \"u.1\"") && request.contains("x-change-message: why"), "{request}");
    assert!(request.ends_with(r#"{"metadata":{"labels":{"old":null,"tier":"front"}}}"#), "{request}");

    let stub = cluster();
    let (code, _, err) = run(&stub.url, &["label", "svc/web", "app=shop"]);
    assert!(code == 2 && err.contains("app=web") && err.contains("--overwrite"), "{err}");
    assert_eq!(run(&stub.url, &["label", "svc/web", "app=web", "gone-"]).1, "service/web unchanged\n");
    assert_eq!(writes(&stub).len(), 0);
    assert_eq!(run(&stub.url, &["label", "svc/web", "app=shop", "--overwrite"]).0, 0);
    let (_, out, _) = run(&stub.url, &["annotate", "svc/web", "example.org/owner=a=b"]);
    assert_eq!(out, "service/web annotated\n");
    assert!(writes(&stub)[1].ends_with(r#"{"metadata":{"annotations":{"example.org/owner":"a=b"}}}"#));
    for words in [
        &["label", "svc", "web"][..],
        &["label", "svc", "a=b"],
        &["label", "svc", "web", "=b"],
        &["label", "ep", "web", "a=b"],
    ] {
        assert_eq!(run("http://127.0.0.1:1", words).0, 2, "{words:?}");
    }
}

#[test]
fn a_patch_is_sent_as_a_merge_patch() {
    let stub = cluster();
    let (code, out, err) =
        run(&stub.url, &["patch", "svc", "web", "-p", "spec: {disabled: true}", "--dry-run"]);
    assert_eq!((code, out.as_str()), (0, "service/web patched (dry run)\n"), "{err}");
    let request = &writes(&stub)[0];
    assert!(request.starts_with("PATCH /v1/namespaces/default/services/web?dryRun=true "), "{request}");
    assert!(
        request.contains("application/merge-patch+json")
            && request.ends_with(r#"{"spec":{"disabled":true}}"#)
    );
    for patch in ["[{\"op\":\"remove\"}]", "x", "{", ""] {
        let (code, _, err) = run("http://127.0.0.1:1", &["patch", "svc/web", "-p", patch]);
        assert!(code == 2 && err.contains("hint"), "{patch}: {err}");
    }
}

#[test]
fn objects_are_deleted_by_selector_in_one_write() {
    let stub = cluster();
    let (code, _, err) = run(&stub.url, &["delete", "svc,eps", "-l", "app=web", "--confirm"]);
    assert!(
        code == 1 && err.contains("Service default/api does not exist"),
        "the stub deletes web only: {err}"
    );
    let lines = stub.first_lines();
    assert!(lines.iter().any(|line| line.contains("services?labelSelector=app+in+%28web%29")), "{lines:?}");
    let request = &writes(&stub)[0];
    assert!(request.starts_with("POST /v1/delete?ignoreNotFound=true&confirm=true "), "{request}");
    assert!(request.contains("\"name\":\"api\"") && request.contains("\"name\":\"web\""), "{request}");
    let (code, _, err) = run(&stub.url, &["delete", "eps", "--all"]);
    assert!(code == 0 && err.contains("nothing is deleted"), "{err}");
    for words in
        [&["delete", "svc", "web", "--all"][..], &["delete", "svc/web", "-l", "a=b"], &["delete", "--all"]]
    {
        assert_eq!(run("http://127.0.0.1:1", words).0, 2, "{words:?}");
    }
}

#[test]
fn a_service_is_created_from_options() {
    let words = [
        "create",
        "service",
        "shop/new",
        "--port",
        "80:8080,53/udp",
        "--endpoint",
        "10.1.1.1",
        "--address",
        "auto",
    ];
    let (code, out, err) = run("http://127.0.0.1:1", &[&words[..], &["--dry-run", "-o", "json"]].concat());
    assert_eq!(code, 0, "{err}");
    let list: Value = serde_json::from_str(&out).unwrap();
    for object in list["items"].as_array().unwrap() {
        let decoded = model::admission::decode::decode(object, &model::admission::decode::Expect::default());
        assert!(decoded.is_ok(), "{object}: {decoded:?}");
    }
    assert_eq!(list["items"][0]["spec"]["type"], "LoadBalancer");
    assert_eq!(
        list["items"][0]["spec"]["ports"][0],
        json!({ "name": "tcp-80", "port": 80, "protocol": "TCP", "targetPort": 8080 })
    );
    assert_eq!(
        list["items"][1]["spec"],
        json!({ "service": "new", "endpoints": [{ "address": "10.1.1.1" }] })
    );
    let (_, yaml, _) = run("http://127.0.0.1:1", &[&words[..], &["--dry-run", "-o", "yaml"]].concat());
    assert_eq!(yaml.matches("apiVersion").count(), 2);

    let stub = cluster();
    assert_eq!(run(&stub.url, &words).0, 0);
    let requests = writes(&stub);
    assert!(
        requests[0].starts_with("POST /v1/apply?dryRun=true ") && requests[1].starts_with("POST /v1/apply ")
    );
    let stub = cluster();
    let (code, _, err) = run(&stub.url, &["create", "service", "web", "--port", "80"]);
    assert!(code == 2 && err.contains("service/web exists") && err.contains("tidegate edit"), "{err}");
    assert_eq!(writes(&stub).len(), 1, "nothing is changed");
}

/// Runs `edit` with a shell script as editor; `$1` is the file.
fn edit(stub: &Stub, script: &str) -> (i32, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let editor = directory.path().join("editor");
    fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = command(&stub.url, &["edit", "svc", "web"]);
    let path = std::env::var_os("PATH").unwrap();
    let result = ended(
        command.env("EDITOR", &editor).env("PATH", path).env("TMPDIR", directory.path()).output().unwrap(),
    );
    let left = fs::read_dir(directory.path()).unwrap().count() - 1;
    assert_eq!(left, usize::from(result.2.contains("the edited text is in")), "temporary files");
    result
}

#[test]
fn an_edited_object_replaces_the_one_that_was_read() {
    let stub = cluster();
    let (code, out, err) =
        edit(&stub, "test $(stat -c %a \"$1\") = 600 && sed -i 's/port: 80/port: 81/' \"$1\"");
    assert_eq!((code, out.as_str()), (0, "service/web edited\n"), "{err}");
    let request = &writes(&stub)[0];
    assert!(
        request.starts_with("PUT /v1/namespaces/default/services/web ")
            && request.contains("if-match: \"u.1\"")
    );
    assert!(
        request.contains("\"port\":81")
            && !request.contains("status")
            && !request.contains("resourceVersion")
    );
    let stub = cluster();
    for script in ["true", ": > \"$1\""] {
        let (code, _, err) = edit(&stub, script);
        assert!(code == 0 && err.contains("nothing was changed"), "{err}");
    }
    let (code, _, err) = edit(&stub, "exit 3");
    assert!(code == 2 && err.contains("failed"), "{err}");
    assert_eq!(writes(&stub).len(), 0);
}

/// The editor opens again with the reason: after a rejection, and after a change by somebody else.
#[test]
fn a_rejected_edit_opens_the_editor_again() {
    static WRITES: Mutex<u64> = Mutex::new(0);
    let stub = Stub::new(|_, request, stream| {
        let mut writes = WRITES.lock().unwrap();
        if !request.starts_with("PUT") {
            let object = if *writes < 2 { service(1, 80) } else { service(2, 90) };
            return write_answer(stream, "200 OK", JSON, &object.to_string());
        }
        *writes += 1;
        match *writes {
            1 => write_answer(
                stream,
                "422 Unprocessable Content",
                PROBLEM,
                r#"{"status":422,"code":"Invalid","detail":"port is odd"}"#,
            ),
            2 => write_answer(
                stream,
                "412 Precondition Failed",
                PROBLEM,
                r#"{"status":412,"code":"PreconditionFailed"}"#,
            ),
            _ => write_answer(stream, "200 OK", JSON, &service(3, 81).to_string()),
        }
    });
    let script = r#"
        if grep -q '^# .*ports is now' "$1"; then exit 0; fi
        if grep -q '^# error: port is odd' "$1"; then sed -i 's/port: 79/port: 81/' "$1"; fi
        sed -i 's/port: 80/port: 79/' "$1""#;
    let (code, out, err) = edit(&stub, script);
    assert_eq!((code, out.as_str()), (0, "service/web edited\n"), "{err}");
    let requests = writes(&stub);
    assert!(requests[0].contains("\"port\":79") && requests[1].contains("\"port\":81"), "{requests:?}");
    assert!(
        requests[2].contains("\"port\":81") && requests[2].contains("if-match: \"u.2\""),
        "{}",
        requests[2]
    );

    let refusing = Stub::new(|_, request, stream| {
        if request.starts_with("PUT") {
            write_answer(
                stream,
                "422 Unprocessable Content",
                PROBLEM,
                r#"{"status":422,"code":"Invalid","detail":"no"}"#,
            );
        } else {
            write_answer(stream, "200 OK", JSON, &service(1, 80).to_string());
        }
    });
    let (code, _, err) = edit(&refusing, "sed -i 's/port: 80/port: 79/' \"$1\"");
    assert!(code == 1 && err.contains("Invalid") && err.contains("the edited text is in"), "{err}");
    assert_eq!(writes(&refusing).len(), 1, "the same text is not sent again");
}

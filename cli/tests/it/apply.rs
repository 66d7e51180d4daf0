//! Tests of `apply`: input by URL, formats of others, errors with file names, and waiting.

use std::{fs, path::Path};

use serde_json::json;

use crate::stub::{JSON, PROBLEM, Stub, run, write_answer};

const SERVICE: &str =
    "apiVersion: tidegate/v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
const KUBERNETES: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.7, selector: {a: b}, ports: [{port: 80}]}\n";

/// Starts a stub that accepts writes, and whose only node has the change at the second look.
fn cluster() -> Stub {
    let mut looks = 0;
    Stub::new(move |_, request, stream| {
        let line = request.lines().next().unwrap_or_default();
        let answer = if line.starts_with("GET /web.yaml") {
            return write_answer(stream, "200 OK", "text/plain", SERVICE);
        } else if line.starts_with("GET /v1/status") {
            json!({ "position": "1-7" })
        } else if line.starts_with("GET /v1/nodes") {
            looks += 1;
            let verified = if looks > 1 { "1-7" } else { "1-6" };
            json!({ "metadata": {}, "items": [{ "kind": "Node", "metadata": { "name": "n1" }, "spec": {}, "status": {
                "connected": true, "received": verified, "applied": verified, "verified": verified,
                "conditions": [{ "type": "Connected", "status": "True", "reason": "Reports", "message": "" }] } }] })
        } else {
            let object = json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "default" } });
            json!({ "revision": 7, "results": [{ "action": "created", "object": object }] })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    })
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_manifest_is_downloaded_from_a_url() {
    let stub = cluster();
    let url = format!("{}/web.yaml", stub.url);
    let (code, out, err) = run(&stub.url, &["apply", "-f", &url, "-o", "name", "--dry-run=server"]);
    assert_eq!((code, out.as_str()), (0, "service/web\n"), "{err}");
    let requests = stub.requests();
    assert!(
        requests[0].starts_with("GET /web.yaml ") && requests[1].starts_with("POST /v1/apply?dryRun=true ")
    );
    assert!(requests[1].ends_with(SERVICE), "{}", requests[1]);
    let missing = Stub::fixed("404 Not Found", JSON, "{}");
    let (code, _, err) = run(&stub.url, &["apply", "-f", &format!("{}/web.yaml", missing.url)]);
    assert!(code == 1 && err.contains("404") && err.contains("/web.yaml"), "{err}");
    let huge = Stub::fixed("200 OK", JSON, " ".repeat(17 * 1024 * 1024));
    let (code, _, err) = run(&stub.url, &["apply", "-f", &format!("{}/web.yaml", huge.url)]);
    assert!(code == 1 && err.contains("larger than"), "{err}");
}

#[test]
fn wait_returns_when_every_node_has_the_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "web.yaml", SERVICE);
    let stub = cluster();
    let (code, out, err) = run(&stub.url, &["apply", "-f", &path, "--wait", "--timeout", "20s"]);
    assert_eq!((code, out.as_str()), (0, "service/web created\n"), "{err}");
    assert!(err.contains("revision 7 is verified on every node"), "{err}");
    let looks = stub.first_lines().iter().filter(|line| line.starts_with("GET /v1/nodes")).count();
    assert_eq!(looks, 2);
}

/// The file is named, also among others, and nothing is sent.
#[test]
fn a_file_that_is_not_yaml_is_named() {
    let directory = tempfile::tempdir().unwrap();
    file(directory.path(), "a.yaml", SERVICE);
    let broken = file(directory.path(), "b.yaml", &format!("{SERVICE}---\na: [1\nb: {{"));
    for path in [directory.path().to_str().unwrap(), &broken] {
        for verb in ["apply", "plan", "delete"] {
            let (code, _, err) = run("http://127.0.0.1:1", &[verb, "-f", path]);
            assert!(code == 1 && err.contains("b.yaml") && err.contains("line"), "{verb}: {code} {err}");
        }
    }
}

#[test]
fn a_manifest_of_kubernetes_is_converted_or_answered_with_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "k8s.yaml", KUBERNETES);
    let (code, _, err) = run("http://127.0.0.1:1", &["apply", "-f", &path]);
    assert!(code == 2 && err.contains("k8s.yaml has apiVersion v1"), "{err}");
    assert!(err.contains(&format!("tidegate import '{path}' --apply")) && err.contains("--from"), "{err}");
    let stub = cluster();
    let (code, out, err) = run(&stub.url, &["apply", "-f", &path, "--from", "kubernetes", "--dry-run"]);
    assert_eq!((code, out.as_str()), (0, "service/web created (dry run)\n"), "{err}");
    assert!(stub.requests()[0].contains("apiVersion: tidegate/v1"), "{}", stub.requests()[0]);
}

#[test]
fn fields_of_kubernetes_with_another_form_are_answered_with_that_form() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "web.yaml", SERVICE);
    let problem = json!({ "status": 422, "code": "Invalid", "detail": "x", "errors": [
        { "pointer": "/items/0/spec/loadBalancerIP", "message": "unknown field", "hint": "did you mean loadBalancer?" }] });
    let stub = Stub::fixed("422 Unprocessable Content", PROBLEM, problem.to_string());
    let (_, _, err) = run(&stub.url, &["apply", "-f", &path]);
    assert!(
        err.contains("write `loadBalancer: {addresses: [ADDRESS]}`") && !err.contains("did you mean"),
        "{err}"
    );
}

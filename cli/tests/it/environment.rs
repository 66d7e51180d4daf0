//! Tests of the requests and output of `env` (F162).

use serde_json::json;

use crate::stub::{JSON, Stub, run, write_answer};

/// Variables go to stdout in the chosen format; conflicts and Services without variables are reported on stderr.
#[test]
fn f162_env_prints_lines_for_docker_and_reports_conflicts() {
    let stub = Stub::new(|_, _, stream| {
        let answer = json!({
            "namespace": "shop", "revision": 7,
            "variables": [{ "name": "WEB_SERVICE_HOST", "value": "10.96.0.10", "service": "shop/web" }],
            "conflicts": [{ "name": "WEB_SERVICE_HOST", "used": "shop/web", "ignored": "shop/we-b" }],
        });
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["env", "web", "gone", "-n", "shop", "--no-links"]);
    assert_eq!((code, out.as_str()), (0, "WEB_SERVICE_HOST=10.96.0.10\n"), "{err}");
    assert!(err.contains("shop/we-b") && err.contains("Service shop/gone has no variables"), "{err}");
    let (_, docker, _) = run(&stub.url, &["env", "-n", "shop", "-o", "docker"]);
    assert_eq!(docker, "[\n  \"WEB_SERVICE_HOST=10.96.0.10\"\n]\n");
    let lines = stub.first_lines();
    assert_eq!(lines[0], "GET /v1/namespaces/shop/env?names=web%2Cgone&links=false HTTP/1.1");
    assert_eq!(lines[1], "GET /v1/namespaces/shop/env HTTP/1.1");
}

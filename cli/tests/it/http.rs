//! Tests of the requests and output of `explain http` (F142).

use serde_json::{Value, json};

use crate::stub::{JSON, Stub, run, write_answer};

/// `explain http` prints the decision with its rule and backends, and the reasons of the other rules.
#[test]
fn f142_a_request_is_explained() {
    let candidate = |rule: &str, outcome: &str, message: &str| json!({ "route": "shop/www", "rule": rule, "place": "www.example.org/api/*", "outcome": outcome, "message": message });
    let answer = json!({
        "request": "GET https://www.example.org/api", "revision": 7, "decision": "Forward", "reason": "rule shop/www/0 applies",
        "listeners": ["shop/edge/https"], "certificate": "shop/www", "rule": "shop/www/0",
        "matched": { "path": { "type": "PathPrefix", "value": "/api" }, "headers": [{ "name": "X-A", "value": "b" }] },
        "filters": [{ "type": "URLRewrite", "urlRewrite": {} }], "newPath": "/", "forwardedFor": "198.51.100.7",
        "backends": [
            { "backend": "shop/web:80", "weight": 3, "endpoints": [{ "address": "10.1.0.1:8080", "weight": 1 }, { "address": "10.1.0.2:8080", "weight": 3 }] },
            { "backend": "shop/no:80", "weight": 1, "status": 503, "problem": "the Service has no endpoint in service" },
        ],
        "candidates": [
            candidate("canary", "Header", "requires the header x-canary: always"),
            candidate("0", "Applies", "is the most specific rule whose conditions are met"),
            { "route": "shop/lost", "outcome": "NotAttached", "message": "no such listener" },
        ],
        "omitted": 4,
        "parents": [{ "route": "shop/lost", "parent": "shop/edge/none", "accepted": false, "reason": "NoMatchingParent", "message": "no such listener" }],
    });
    let text = answer.to_string();
    let stub = Stub::new(move |_, _, stream| write_answer(stream, "200 OK", JSON, &text));
    let url = "https://www.example.org/api";
    let words = ["explain", "http", url, "--from", "198.51.100.7", "-X", "PUT", "-H", "A: b", "-H", "C: d"];
    let (code, out, err) = run(&stub.url, &words);
    assert_eq!(code, 0, "{err}");
    let expected = "\
GET https://www.example.org/api
Forward: rule shop/www/0 applies
  Listeners:       shop/edge/https
  Certificate:     shop/www
  Rule:            shop/www/0
  Matches:         /api/* @X-A=b
  Filters:         URLRewrite
  New path:        /
  X-Forwarded-For: 198.51.100.7

BACKEND       WEIGHT   ENDPOINTS
shop/web:80   3        10.1.0.1:8080, 10.1.0.2:8080 (weight 3)
shop/no:80    1        503: the Service has no endpoint in service

RULE              PLACE                   OUTCOME       REASON
shop/www/canary   www.example.org/api/*   Header        requires the header x-canary: always
shop/www/0        www.example.org/api/*   Applies       is the most specific rule whose conditions are met
shop/lost         <none>                  NotAttached   no such listener
4 further rules do not apply

ROUTE       PARENT           REASON             MESSAGE
shop/lost   shop/edge/none   NoMatchingParent   no such listener
";
    assert_eq!(out, expected);
    // Without a URL, `http` is a Service.
    run(&stub.url, &["explain", "http", "-n", "shop"]);
    let (_, out, _) = run(&stub.url, &["explain", "http", url, "-o", "json"]);
    assert!(out.contains("\"omitted\": 4"), "{out}");
    let lines = stub.first_lines();
    assert_eq!(
        lines[0],
        "GET /v1/explain/http?url=https%3A%2F%2Fwww.example.org%2Fapi&method=PUT&headers=A%3A+b%0AC%3A+d&from=198.51.100.7 HTTP/1.1"
    );
    assert_eq!(lines[1], "GET /v1/namespaces/shop/services/http/explain HTTP/1.1");
}

/// F145: `get ingress` lists HttpRoutes, and `describe ingress` has the address, the hosts, the paths, and the backends with their
/// endpoints.
#[test]
fn f145_an_ingress_is_described_with_addresses_and_endpoints() {
    let route = json!({
        "apiVersion": "tidegate/v1", "kind": "HttpRoute", "metadata": { "name": "www", "namespace": "shop" },
        "spec": {
            "parentRefs": [{ "name": "edge" }], "hostnames": ["www.example.org"],
            "rules": [{ "matches": [{ "path": { "value": "/api" } }], "backendRefs": [{ "name": "web", "port": 80 }, { "name": "absent", "port": 80 }] }],
        },
        "status": { "conditions": [] },
    });
    let endpoint = json!({ "address": "10.1.0.1", "port": 8080, "weight": 1, "ready": true, "serving": true, "terminating": false });
    let compiled = json!({ "service": "shop/web", "revision": 7, "ports": [{ "protocol": "TCP", "port": 80, "endpoints": [endpoint] }] });
    let address = json!({
        "apiVersion": "tidegate/v1", "kind": "Address", "metadata": { "name": "192.0.2.7" },
        "spec": { "address": "192.0.2.7", "pool": "lan", "services": ["shop/edge"] }, "status": { "conditions": [] },
    });
    let stub = Stub::new(move |_, request, stream| {
        let answer = if request.contains("/endpoints/web") {
            compiled.clone()
        } else if request.contains("/endpoints/absent") {
            let problem = json!({ "type": "about:blank", "status": 404, "code": "NotFound", "title": "Not Found", "detail": "none" });
            return write_answer(stream, "404 Not Found", "application/problem+json", &problem.to_string());
        } else if request.contains("/v1/addresses") {
            json!({ "items": [address], "metadata": {} })
        } else if request.contains("/httproutes/www") {
            route.clone()
        } else {
            json!({ "items": [route], "metadata": {} })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["get", "ingress", "-n", "shop"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("www.example.org"), "{out}");
    let (code, out, err) = run(&stub.url, &["describe", "ingress", "www", "-n", "shop"]);
    assert_eq!(code, 0, "{err}");
    for part in
        ["www.example.org", "/api/*", "web:80", "192.0.2.7", "Backend shop/web (1 of 1 ready", "10.1.0.1"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    let lines = stub.first_lines();
    assert!(lines.iter().any(|line| line.contains("/v1/addresses?service=shop%2Fedge")), "{lines:?}");
}

/// `http gateways` lists the gateways and their problems, and ends with code 3 if there is one.
#[test]
fn gateways_are_listed_with_their_problems() {
    let gateway = |error: Option<&str>, problems: Value| {
        let second = error
            .map_or(json!({ "address": "[::]:80" }), |error| json!({ "address": "[::]:80", "error": error }));
        json!({ "gateways": [{ "name": "edge-1", "reportedAt": "2026-02-13T16:26:40Z", "problems": problems, "report": {
            "version": "0.2.0", "startedAt": "2026-02-13T16:26:40Z", "connected": true, "revision": 42,
            "sockets": [{ "address": "0.0.0.0:80" }, second], "certificates": 2, "connections": 3,
            "requests": { "seconds": 60, "codes": [{ "code": 200, "count": 90 }, { "code": 503, "count": 1 }] } } }] })
    };
    let stub = Stub::fixed("200 OK", JSON, gateway(None, json!([])).to_string());
    let (code, out, err) = run(&stub.url, &["http", "gateways"]);
    assert_eq!(code, 0, "{err}");
    let table = "\
NAME     VERSION   REVISION   SERVES   SOCKETS   CERTIFICATES   CONNECTIONS   REQUESTS/S   5XX   PROBLEMS
edge-1   0.2.0     42         all      2/2       2/2            3             1.5          1     0
";
    assert_eq!(out, table);
    assert_eq!(stub.first_lines(), ["GET /v1/http/gateways HTTP/1.1"]);
    let problem = json!(["cannot listen on [::]:80: address in use"]);
    let stub = Stub::fixed("200 OK", JSON, gateway(Some("address in use"), problem).to_string());
    let (code, out, _) = run(&stub.url, &["http", "gateways"]);
    assert_eq!(code, 3);
    assert!(
        out.contains(" 1/2 ") && out.ends_with("\nedge-1: cannot listen on [::]:80: address in use\n"),
        "{out}"
    );
    let stub = Stub::fixed("200 OK", JSON, json!({ "gateways": [] }).to_string());
    let (code, out, err) = run(&stub.url, &["http", "gateways"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("no gateway has reported"), "{err}");
}

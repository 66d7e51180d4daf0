//! Tests of the explanation of HTTP requests over HTTP (F141, F142).

use serde_json::json;

use crate::support;

/// The explanation of a request has its listener, rule and backends, and the reason for which another rule does not apply.
#[tokio::test]
async fn f142_a_request_is_explained_with_its_rule() {
    let server = support::start().await;
    let backend = json!([{ "name": "web", "port": 80 }]);
    let canary = json!({ "headers": [{ "name": "X-Canary", "value": "always" }] });
    let spec = json!({
        "parentRefs": [{ "name": "edge" }], "hostnames": ["www.example.org"],
        "rules": [{ "name": "all", "backendRefs": backend }, { "name": "canary", "matches": [canary], "backendRefs": backend }],
    });
    let listeners = json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]);
    let items = json!([
        { "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } },
        { "kind": "EndpointSet", "metadata": { "name": "web" }, "spec": { "service": "web", "endpoints": [{ "address": "10.1.0.1" }] } },
        { "kind": "Gateway", "metadata": { "name": "edge" }, "spec": { "listeners": listeners } },
        { "kind": "HttpRoute", "metadata": { "name": "www" }, "spec": spec },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    let get = async |query: &str| server.call("GET", &format!("/v1/explain/http?{query}"), None).await;
    let url = "url=http://WWW.example.org/a";
    let (status, found) = get(&format!("{url}&from=198.51.100.7")).await;
    assert_eq!(status, 200, "{found}");
    assert_eq!((&found["decision"], &found["rule"]), (&json!("Forward"), &json!("default/www/all")));
    assert_eq!(found["request"], "GET http://www.example.org/a");
    assert_eq!(found["listeners"], json!(["default/edge/http"]));
    assert_eq!(found["forwardedFor"], "198.51.100.7");
    let endpoint = json!({ "address": "10.1.0.1:80", "weight": 1 });
    assert_eq!(
        found["backends"],
        json!([{ "backend": "default/web:80", "weight": 1, "endpoints": [endpoint] }])
    );
    let first = &found["candidates"][0];
    assert_eq!((&first["rule"], &first["outcome"]), (&json!("canary"), &json!("Header")));
    assert_eq!(first["message"], "requires the header x-canary: always");
    assert_eq!(found["parents"][0]["accepted"], true);
    let (_, found) = get(&format!("{url}&headers=Accept:%20text%0aX-Canary:always&method=POST")).await;
    assert_eq!(
        (&found["rule"], &found["candidates"][1]["outcome"]),
        (&json!("default/www/canary"), &json!("LowerPrecedence"))
    );
    let (_, found) = get("url=https://www.example.org/").await;
    assert_eq!((&found["decision"], &found["status"]), (&json!("Refuse"), &json!(null)), "{found}");
    for query in [
        "url=www.example.org",
        "url=ftp://a/",
        "url=",
        "",
        "url=http://a/&headers=x",
        "url=http://a/&method=a%20b",
        "url=http://a:0/",
    ] {
        let (status, problem) = get(query).await;
        assert_eq!(status, 400, "{query}: {problem}");
    }
}

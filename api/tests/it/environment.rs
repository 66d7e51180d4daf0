//! Tests of the environment variables of Services over HTTP (F162).

use axum::body::{Body, to_bytes};
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Server};

/// Starts a server with Services `web` and `db` in namespace `shop`.
async fn shop() -> Server {
    let server = support::start().await;
    let items = json!([
        { "kind": "Service", "metadata": { "name": "web", "namespace": "shop" }, "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } },
        { "kind": "Service", "metadata": { "name": "db", "namespace": "shop" }, "spec": { "clusterIP": "10.96.0.11", "ports": [{ "port": 5432 }] } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    server
}

const DOTENV: &str = "\
DB_SERVICE_HOST=10.96.0.11
DB_SERVICE_PORT=5432
WEB_SERVICE_HOST=10.96.0.10
WEB_SERVICE_PORT=80
";

#[tokio::test]
async fn f162_the_variables_have_three_formats() {
    let server = shop().await;
    let path = "/v1/namespaces/shop/env?links=false";
    let (status, full) = server.call("GET", path, None).await;
    assert_eq!(status, 200, "{full}");
    assert_eq!(
        full["variables"][0],
        json!({ "name": "DB_SERVICE_HOST", "value": "10.96.0.11", "service": "shop/db" })
    );
    let (_, docker) = server.call("GET", &format!("{path}&format=docker"), None).await;
    assert_eq!(docker, json!(DOTENV.lines().collect::<Vec<_>>()));
    let request = Request::get(format!("{path}&format=dotenv")).body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    assert_eq!(text, DOTENV);
    let (_, one) = server.call("GET", &format!("{path}&format=docker&names=web"), None).await;
    assert_eq!(one, json!(["WEB_SERVICE_HOST=10.96.0.10", "WEB_SERVICE_PORT=80"]));
    let (status, problem) = server.call("GET", "/v1/namespaces/shop/env?names=Web", None).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("`Web`"), "{problem}");
}

/// A set of variables with which Linux could not start a program is refused with the remedies.
#[tokio::test]
async fn f162_too_many_variables_are_refused_with_the_remedy() {
    let server = shop().await;
    let ports: Vec<Value> =
        (1..=100).map(|port| json!({ "name": format!("port-number-{port}"), "port": port })).collect();
    let many = (0..60).map(|number| {
        let name = format!("a-service-with-a-name-of-the-longest-length-that-dns-permits-{number:02}");
        json!({ "kind": "Service", "metadata": { "name": name, "namespace": "shop" }, "spec": { "ports": ports } })
    });
    let (status, body) = server.call("POST", "/v1/apply", Some(many.collect())).await;
    assert_eq!(status, 200, "{body}");
    let (status, problem) = server.call("GET", "/v1/namespaces/shop/env", None).await;
    assert_eq!((status, &problem["code"]), (422, &json!("EnvironmentTooLarge")), "{problem}");
    for path in ["force=true", "links=false", "names=web"] {
        let (status, body) = server.call("GET", &format!("/v1/namespaces/shop/env?{path}"), None).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
}

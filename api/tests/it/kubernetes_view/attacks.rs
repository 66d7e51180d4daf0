//! Tests of malformed requests to the Kubernetes API: the response is a Kubernetes `Status`, and the server keeps
//! running.

use axum::body::Body;
use http::Request;
use serde_json::json;

use super::{get, read, seed, start};

#[tokio::test]
async fn odd_requests_are_refused_in_the_form_that_clients_read() {
    let server = start().await;
    seed(&server).await;
    let long = "a".repeat(4000);
    let many = vec!["a=b"; 1000].join(",");
    let odd = [
        String::new(),
        "/".to_owned(),
        "//".to_owned(),
        "/api/v1/".to_owned(),
        "/api/v2".to_owned(),
        "/api/v1/namespaces/default/pods/..%2f..%2fnodes".to_owned(),
        "/api/v1/namespaces/%00/pods".to_owned(),
        "/api/v1/namespaces/default/pods/%ff%fe".to_owned(),
        format!("/api/v1/namespaces/{long}/pods"),
        format!("/api/v1/nodes/{long}"),
        format!("/api/v1/pods?labelSelector={many}"),
        format!("/api/v1/pods?labelSelector={long}"),
        format!("/api/v1/pods?fieldSelector={many}"),
        format!("/api/v1/pods?continue={long}"),
        "/api/v1/pods?limit=99999999999999999999".to_owned(),
        "/api/v1/pods?watch=maybe".to_owned(),
        "/api/v1/pods?watch=true&timeoutSeconds=4000000000".to_owned(),
        "/api/v1/pods?watch=true&watch=true".to_owned(),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/-ipv4".to_owned(),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/x-ipv4-99".to_owned(),
        "/api/v1/namespaces/default/events/..".to_owned(),
        "/api/v1/namespaces/default/events/core-v2-01.x.y".to_owned(),
        "/openapi/v3".to_owned(),
    ];
    for path in &odd {
        for method in ["GET", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let request = Request::builder().method(method).uri(format!("/k8s{path}"));
            let (status, body) = read(server.send(request.body(Body::from("{\u{0}")).unwrap()).await).await;
            assert!((400..500).contains(&status), "{method} {path}: {status}");
            assert_eq!(
                (&body["kind"], &body["code"]),
                (&json!("Status"), &json!(status)),
                "{method} {path}: {body}"
            );
        }
    }
    assert_eq!(get(&server, "/api/v1/pods").await["items"].as_array().unwrap().len(), 3);
}

/// The OpenAPI document by which `kubectl create` validates files contains no schemas, in JSON and in protobuf.
#[tokio::test]
async fn the_document_that_files_are_checked_with_promises_nothing() {
    let server = start().await;
    assert_eq!(get(&server, "/openapi/v2").await["swagger"], "2.0");
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let response = super::ask(&server, "/openapi/v2", accept).await;
    assert_eq!(response.headers()["content-type"], "application/octet-stream");
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(&bytes[..5], b"\x0a\x032.0");
}

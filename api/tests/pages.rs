//! The pages work on a machine that reaches nothing but this server.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;

async fn get(server: &common::Server, path: &str) -> (u16, String, String) {
    let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
    let status = response.status().as_u16();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, content_type, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn the_docs_load_everything_from_this_server() {
    let server = common::start().await;
    let (status, content_type, page) = get(&server, "/docs/").await;
    assert_eq!((status, content_type.as_str()), (200, "text/html"));
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    let assets = page.split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css"));
    let assets: Vec<_> = assets.map(|asset| asset.trim_start_matches("./").to_owned()).collect();
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        assert_eq!(get(&server, &format!("/docs/{asset}")).await.0, 200, "{asset}");
    }
    let (_, _, start) = get(&server, "/docs/swagger-initializer.js").await;
    assert!(start.contains("/openapi.json"), "{start}");
}

#[tokio::test]
async fn the_document_the_front_page_and_the_metrics_are_served() {
    let server = common::start().await;
    let (status, _, document) = get(&server, "/openapi.json").await;
    assert_eq!((status, document == api::document()), (200, true));
    let (status, content_type, page) = get(&server, "/").await;
    assert_eq!((status, content_type.as_str()), (200, "text/html; charset=utf-8"));
    for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert_eq!(get(&server, link).await.0, 200, "{link}");
    }
    let (_, _, metrics) = get(&server, "/metrics").await;
    for name in
        ["tidegate_revision", "tidegate_http_requests_total", "tidegate_write_queue", "tidegate_feeds"]
    {
        assert!(metrics.contains(name), "{name}");
    }
}

/// F086: counters of Services and endpoints in Prometheus' form; what nobody counts has no series.
#[tokio::test]
async fn f086_the_metrics_show_the_traffic_of_services_and_endpoints() {
    let server = common::start().await;
    let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    assert_eq!(server.call("POST", "/v1/namespaces/default/services", Some(web)).await.0, 201);
    for node in ["n1", "n2"] {
        assert_eq!(
            server
                .call("POST", "/v1/nodes", Some(json!({ "metadata": { "name": node }, "spec": {} })))
                .await
                .0,
            201
        );
    }
    for (node, connections, packets, active) in
        [("n1", 7, Some(70), Some(2)), ("n2", 5, None, None), ("n1", 9, Some(90), Some(1))]
    {
        let target = json!({
            "protocol": "TCP", "address": "10.1.1.1", "port": 80,
            "connections": connections, "packets": packets, "active": active,
        });
        let report = json!({
            "bootId": node, "agentVersion": "0", "mode": "nftables", "received": "1-1", "applied": "1-1",
            "verified": "1-1", "traffic": { "default/web": [target] },
        });
        assert_eq!(server.call("PUT", &format!("/v1/nodes/{node}/report"), Some(report)).await.0, 204);
    }
    let (_, _, metrics) = get(&server, "/metrics").await;
    for line in [
        r#"tidegate_service_connections_total{namespace="default",service="web"} 14"#,
        r#"tidegate_service_packets_total{namespace="default",service="web"} 90"#,
        r#"tidegate_service_active_connections{namespace="default",service="web"} 1"#,
        r#"tidegate_endpoint_connections_total{namespace="default",service="web",protocol="TCP",address="10.1.1.1",port="80"} 14"#,
        "tidegate_traffic_refused_total 0",
        "tidegate_traffic_hidden_services 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("tidegate_service_bytes_total{"), "nobody counts bytes");
    assert!(metrics.ends_with("# EOF\n"));
}

//! The pages work on a machine that reaches nothing but this server.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;

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

//! Tests of the web pages, which must work on a machine that can reach only this server.

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;

use crate::support;

async fn get(server: &support::Server, path: &str) -> (u16, String, String) {
    let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
    let status = response.status().as_u16();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, content_type, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn the_docs_load_everything_from_this_server() {
    let server = support::start().await;
    let (status, content_type, page) = get(&server, "/docs/").await;
    assert_eq!((status, content_type.as_str()), (200, "text/html; charset=utf-8"));
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    let assets = page.split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css"));
    let assets: Vec<_> = assets.map(str::to_owned).collect();
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        assert_eq!(get(&server, &asset).await.0, 200, "{asset}");
    }
    let (_, _, script) = get(&server, "/web/docs/reference.js").await;
    assert!(script.contains("/openapi.json") && script.contains("/openapi-agent.json"), "{script}");
    let response = server.send(Request::get("/docs").body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()["location"], "/docs/");
}

#[tokio::test]
async fn the_document_the_front_page_and_the_metrics_are_served() {
    let server = support::start().await;
    let (status, _, document) = get(&server, "/openapi.json").await;
    assert_eq!((status, document == api::document()), (200, true));
    let (status, content_type, page) = get(&server, "/").await;
    assert_eq!((status, content_type.as_str()), (200, "text/html; charset=utf-8"));
    // Styles and scripts are files: nothing is inline, and nothing comes from other hosts.
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("<script>"), "{page}");
    let linked = ["href=\"", "src=\""].into_iter().flat_map(|attribute| page.split(attribute).skip(1));
    let links: Vec<_> = linked.filter_map(|rest| rest.split('"').next()).collect();
    assert!(!links.is_empty());
    for link in links.into_iter().filter(|link| link.starts_with("/web/")) {
        assert_eq!(get(&server, link).await.0, 200, "{link}");
    }
    let (_, _, metrics) = get(&server, "/metrics").await;
    for name in
        ["tidegate_revision", "tidegate_http_requests_total", "tidegate_write_queue", "tidegate_feeds"]
    {
        assert!(metrics.contains(name), "{name}");
    }
}

/// Paths that other programs try first.
#[tokio::test]
async fn the_liveness_and_the_icon_are_served_under_their_usual_names() {
    let server = support::start().await;
    let (status, content_type, text) = get(&server, "/livez").await;
    assert_eq!((status, content_type.as_str(), text.as_str()), (200, "text/plain", "ok\n"));
    let (status, content_type, icon) = get(&server, "/favicon.ico").await;
    assert_eq!((status, content_type.as_str()), (200, "image/svg+xml"));
    assert!(icon.contains("<svg"), "{icon}");
}

/// Version and build are those that the build recorded, for callers with an identity only.
#[tokio::test]
async fn the_version_is_shown_to_authenticated_callers() {
    let secured = crate::support::secured::start().await;
    let (status, version) = secured.call(&secured.admin, "GET", "/version", None).await;
    assert_eq!((status, &version["version"]), (200, &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(version.get("commit").is_some(), option_env!("TIDEGATE_BUILD_COMMIT").is_some());
    assert_eq!(secured.call(&crate::support::secured::Who::Nobody, "GET", "/version", None).await.0, 401);
}

/// The status page and its files have the same contents with and without compression, and are not sent again if
/// the entity tag matches. Unknown files are not found.
#[tokio::test]
async fn files_of_the_page_are_packed_and_sent_again_only_when_they_changed() {
    use std::io::Read;

    let server = support::start().await;
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = server.send(request.body(Body::empty()).unwrap()).await;
        let (parts, body) = response.into_parts();
        (parts, body.collect().await.unwrap().to_bytes())
    };
    let (plain, bytes) = ask("GET", "/web/index.html", &[]).await;
    assert_eq!((plain.status.as_u16(), &plain.headers["cache-control"]), (200, &"no-cache".parse().unwrap()));
    for (accepted, coding) in [("gzip", "gzip"), ("gzip, deflate, br", "br")] {
        let (packed, small) = ask("GET", "/", &[("accept-encoding", accepted)]).await;
        assert_eq!(packed.headers["content-encoding"], coding);
        assert_eq!(packed.headers["vary"], "accept-encoding");
        assert_ne!(packed.headers["etag"], plain.headers["etag"]);
        assert!(small.len() < bytes.len());
        if coding == "gzip" {
            let mut whole = Vec::new();
            flate2::read::GzDecoder::new(&small[..]).read_to_end(&mut whole).unwrap();
            assert_eq!(whole, bytes);
        }
        let tag = packed.headers["etag"].to_str().unwrap();
        let (known, nothing) =
            ask("GET", "/", &[("accept-encoding", accepted), ("if-none-match", &format!("\"x\", W/{tag}"))])
                .await;
        assert_eq!((known.status.as_u16(), nothing.len()), (304, 0));
        assert_eq!(known.headers["etag"], packed.headers["etag"]);
    }
    let (head, nothing) = ask("HEAD", "/web/style/mark.svg", &[]).await;
    assert_eq!((head.status.as_u16(), nothing.len()), (200, 0));
    assert_eq!(head.headers["content-type"], "image/svg+xml");
    assert_eq!(ask("POST", "/web/style/mark.svg", &[]).await.0.status, 405);
    for path in [
        "/web/",
        "/web",
        "/web/none.js",
        "/web/..%2fCargo.toml",
        "/web/%2e%2e/Cargo.toml",
        "/web/%2fetc%2fhosts.js",
        "/web/.git/x.js",
    ] {
        let (parts, body) = ask("GET", path, &[]).await;
        assert_eq!(parts.status, 404, "{path}");
        assert_eq!(parts.headers["content-type"], "application/problem+json", "{path}");
        assert!(String::from_utf8_lossy(&body).contains("NotFound"), "{path}");
    }
}

#[tokio::test]
async fn pages_may_nothing_that_they_do_not_need_and_nothing_inline() {
    let server = support::start().await;
    let headers = async |path: &str| {
        server.send(Request::get(path).body(Body::empty()).unwrap()).await.headers().clone()
    };
    for path in ["/", "/web/style/mark.svg", "/v1/status", "/docsx", "/docs", "/docs/"] {
        let found = headers(path).await;
        let policy = found["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe-"), "{path}: {policy}");
        assert_eq!(found["cross-origin-opener-policy"], "same-origin", "{path}");
        assert_eq!(found["cross-origin-resource-policy"], "same-origin", "{path}");
        assert_eq!(found["referrer-policy"], "no-referrer", "{path}");
        assert!(found["permissions-policy"].to_str().unwrap().contains("camera=()"), "{path}");
    }
    assert_eq!(headers("/v1/status").await["cache-control"], "no-store");
}

/// F086: `/metrics` contains the traffic of Services and endpoints. Values that are not counted have no series.
#[tokio::test]
async fn f086_the_metrics_show_the_traffic_of_services_and_endpoints() {
    let server = support::start().await;
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
